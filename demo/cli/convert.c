/* convert.c: `exl2 convert`: makes an EXL2 folder from another model.
   takes: a model folder or a GGUF file, a folder that does not exist yet or is empty, files with text for calibration.
   gives: cli_convert. */
#include "../common/clock.h"
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/kernel_folder.h"
#include "../common/loras.h"
#include "../common/pool.h"
#include "../common/progress.h"
#include "cli.h"
#include "exl2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef EXL2_CONVERT
#error "build the program exl2 with EXL2_CONVERT defined"
#endif

static const char *const stage_names[EXL2_CONVERT_STAGES] = { "text", "forward", "factor", "losses", "probe",
                                                              "quantize", "files", "compare" };

typedef struct conversion {
    progress bar;
    exl2_convert_matrix *matrices; /* their names point into `names` */
    char (*names)[128];
    uint32_t matrix_count, matrix_room;
    bool out_of_memory;
    bool has_files;    /* for calibration, or random ids: no text is needed */
} conversion;

static bool on_progress(void *user, const char *name, float done)
{
    conversion *v = user;
    progress_show_stage(&v->bar, (double)done, name);
    return !interrupted();
}

static void on_matrix(void *user, const exl2_convert_matrix *matrix)
{
    conversion *v = user;
    if (v->matrix_count == v->matrix_room) {
        uint32_t room = v->matrix_room * 2 + 64;
        exl2_convert_matrix *matrices = realloc(v->matrices, room * sizeof *matrices);
        v->matrices = matrices ? matrices : v->matrices;
        char(*names)[128] = realloc(v->names, room * sizeof *names);
        v->names = names ? names : v->names;
        v->out_of_memory = !matrices || !names;
        v->matrix_room = v->out_of_memory ? v->matrix_room : room;
    }
    if (v->matrix_count < v->matrix_room) {
        snprintf(v->names[v->matrix_count], sizeof v->names[0], "%s", matrix->name);
        v->matrices[v->matrix_count++] = *matrix;
    }
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static void on_plan(void *user, const exl2_convert_plan *plan)
{
    conversion *v = user;
    progress_end(&v->bar);
    fprintf(stderr, "it will be at most %.1f MiB (%.1f to %.1f are possible), with %.2f bits per weight (%.2f to "
            "%.2f); this needs %.1f MiB of disk and %.1f MiB of memory", mib(plan->bytes), mib(plan->bytes_least),
            mib(plan->bytes_most), (double)plan->bpw, (double)plan->bpw_least, (double)plan->bpw_most,
            mib(plan->disk_bytes), mib(plan->host_bytes));
    if (plan->device_bytes) {
        fprintf(stderr, ", and %.1f MiB of GPU memory", mib(plan->device_bytes));
    }
    fputc('\n', stderr);
    if (plan->streamed) {
        fprintf(stderr, "the model does not fit that memory at once, so one layer at a time is read%s\n",
                v->has_files ? "" : "; it cannot write its own text, so all of calibration's is of this program");
    }
}

static void report_json(const conversion *v, const exl2_convert_info *info, double seconds)
{
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_number(&j, "bpw", (double)info->bpw);
    json_out_number(&j, "head_bpw", (double)info->head_bpw);
    json_out_uint(&j, "bytes", info->bytes);
    json_out_number(&j, "seconds", seconds);
    json_out_object(&j, "stages");
    for (uint32_t i = 0; i < EXL2_CONVERT_STAGES; i++) {
        json_out_number(&j, stage_names[i], info->stage_seconds[i]);
    }
    json_out_end(&j);
    json_out_string(&j, "backend", info->backend == EXL2_BACKEND_CUDA ? "cuda" : "cpu");
    if (info->warning[0]) {
        json_out_string(&j, "warning", info->warning);
    }
    json_out_uint(&j, "host_peak", info->host_peak);
    json_out_uint(&j, "device_peak", info->device_peak);
    json_out_number(&j, "predicted_kl", info->predicted_kl);
    json_out_number(&j, "kl", info->kl);
    json_out_number(&j, "top1", info->top1);
    json_out_number(&j, "nll_before", info->nll_before);
    json_out_number(&j, "nll_after", info->nll_after);
    json_out_uint(&j, "tokens", (uint64_t)info->rows * info->length);
    json_out_array(&j, "matrices");
    for (uint32_t i = 0; i < v->matrix_count; i++) {
        const exl2_convert_matrix *m = &v->matrices[i];
        json_out_object(&j, NULL);
        json_out_string(&j, "name", v->names[i]);
        json_out_number(&j, "bpw", (double)m->bpw);
        json_out_array(&j, "groups");
        for (uint32_t bits = 8; bits >= 2; bits--) {
            if (m->rows[bits]) {
                json_out_array(&j, NULL);
                json_out_uint(&j, NULL, bits);
                json_out_uint(&j, NULL, m->rows[bits]);
                json_out_end(&j);
            }
        }
        json_out_end(&j);
        json_out_number(&j, "loss", m->loss);
        json_out_number(&j, "kl", m->kl);
        json_out_end(&j);
    }
    json_out_end(&j);
    json_out_end(&j);
}

static void report_text(const conversion *v, const exl2_convert_desc *d, const exl2_convert_info *info, double seconds)
{
    if (info->warning[0]) {
        fprintf(stderr, "warning: %s: %s\n", d->source_dir, info->warning);
    }
    printf("%-36s %6s %9s %9s  rows by bits\n", "matrix", "bpw", "loss", "KL");
    for (uint32_t i = 0; i < v->matrix_count; i++) {
        const exl2_convert_matrix *m = &v->matrices[i];
        printf("%-36s %6.3f %9.2e %9.2e ", v->names[i], (double)m->bpw, m->loss, m->kl);
        for (uint32_t bits = 8; bits >= 2; bits--) {
            if (m->rows[bits]) {
                printf(" %u:%u", bits, m->rows[bits]);
            }
        }
        printf("\n");
    }
    printf("\n");
    for (uint32_t i = 0; i < EXL2_CONVERT_STAGES; i++) {
        printf("%s %.1f s%s", stage_names[i], info->stage_seconds[i], i + 1 < EXL2_CONVERT_STAGES ? ", " : "");
    }
    printf(" (on %s)\n", info->backend == EXL2_BACKEND_CUDA ? "the GPU, but files" : "the CPU");
    printf("%s: made from %s (%s) in %.0f s: %.3f bits per weight, head %.3f, %.1f MiB\n", d->out_dir, d->source_dir,
           info->arch, seconds, (double)info->bpw, (double)info->head_bpw, mib(info->bytes));
    printf("on rows kept out of calibration: nll %.4f, before %.4f; KL %.4f (predicted %.4f); same top token %.1f %%\n",
           info->nll_after, info->nll_before, info->kl, info->predicted_kl, 100 * info->top1);
}

/* The adapters of --lora. false: a path is too long. */
static bool split_loras(const arg_texts *given, exl2_convert_lora *out, char (*paths)[LORAS_PATH])
{
    for (uint32_t i = 0; i < given->count; i++) {
        out[i].folder = paths[i];
        if (!loras_split(given->items[i], paths[i], &out[i].scale)) {
            return false;
        }
    }
    return true;
}

/* Runs the conversion and reports it. Returns the exit code. */
static int run(conversion *v, exl2_convert_desc *d, uint32_t threads, bool json)
{
    pool *threads_pool = pool_open(threads);
    d->parallel = pool_hook(threads_pool);
    interrupt_watch();
    interrupt_watch_ends();
    uint64_t start = clock_ns();
    exl2_result result = exl2_convert(d);
    progress_end(&v->bar);
    pool_close(threads_pool);
    if (result < 0) {
        fprintf(stderr, "%s\n", d->error->text);
    } else if (v->out_of_memory) {
        fprintf(stderr, "there is no memory for the table of matrices\n");
    } else if (d->bits) {
        printf("%s: made from %s, %.1f MiB\n", d->out_dir, d->source_dir, mib(d->info->bytes));
    } else if (d->measure_only) {
        printf("%s/measurement.json: the measurement of %s; calibration.json: the ids of its text\n", d->out_dir,
               d->source_dir);
    } else if (json) {
        report_json(v, d->info, clock_seconds_since(start));
    } else {
        report_text(v, d, d->info, clock_seconds_since(start));
    }
    free(v->matrices);
    free(v->names);
    return result == EXL2_ERR_ARG ? CLI_EXIT_USAGE : result < 0 || v->out_of_memory;
}

int cli_convert(int argc, char **argv)
{
    conversion v = { 0 };
    exl2_error error = { 0 };
    exl2_convert_info info = { 0 };
    exl2_convert_desc d = { .progress = on_progress, .on_plan = on_plan, .on_matrix = on_matrix, .user = &v,
                            .error = &error, .info = &info };
    arg_texts files = { 0 }, adapters = { 0 };
    exl2_convert_lora merged[ARGS_LIST_MAX];
    char paths[ARGS_LIST_MAX][LORAS_PATH];
    uint32_t threads = 0, backend = EXL2_BACKEND_AUTO;
    const char *kernels = NULL;
    arg_numbers device = { 0 };
    exl2_device_desc gpu = { .pick = EXL2_PICK_INDEX };
    kernel_folder cache;
    bool json = false;
    const arg positional[] = {
        { "SOURCE", ARG_TEXT, &d.source_dir, NULL, "model folder, or GGUF file" },
        { "OUT", ARG_TEXT, &d.out_dir, NULL, "folder to make" },
    };
    const arg flags[] = {
        { "--bpw", ARG_FLOAT, &d.bpw, "X",
          "bits per weight, without the head; --size, --measure-only or --bits may stand for it" },
        { "--size", ARG_MIB, &d.size_bytes, "SIZE",
          "most bytes of the whole folder, in MiB or such as 4.2GB; the head's bits are chosen, too" },
        { "--head-bits", ARG_U32, &d.head_bits, "B", "bits of the output head: 2, 3, 4, 5, 6 or 8 (6; with --size: "
          "chosen)" },
        { "--cal", ARG_TEXTS, &files, "FILE", "text for calibration: .txt, .json with ids, .jsonl with \"text\" or "
          "\"messages\"; may be repeated (a text of this program and what the model writes)" },
        { "--lora", ARG_TEXTS, &adapters, "DIR[:S]",
          "merges an adapter, with factor S (1), into a dense, FP8 or GGUF source; may "
          "be repeated" },
        { "--bits", ARG_U32, &d.bits, "16", "makes a dense folder, with the adapters merged; nothing is quantized" },
        { "--rows", ARG_U32, &d.rows, "N", "rows of calibration (64; of --cal at most 128; on a GPU 128)" },
        { "--length", ARG_U32, &d.length, "N", "tokens of a row (512; on a GPU 2048)" },
        HOST_ROPE_ARGS(d),
        { "--random-ids", ARG_BOOL, &d.random_ids, NULL, "calibrates with random ids, for a model without a tokenizer; "
          "its figures of quality are not those of text" },
        { "--seed", ARG_U64, &d.seed, "N", "seed of the text that the model writes, or of random ids (0)" },
        { "--work", ARG_TEXT, &d.work_dir, "DIR",
          "folder for finished parts, which is kept (OUT.work, which is removed)" },
        { "--measure-only", ARG_BOOL, &d.measure_only, NULL, "OUT gets measurement.json and calibration.json alone" },
        { "--measurement", ARG_TEXT, &d.measurement_file, "FILE",
          "measurement.json of the same model, or ExLlamaV2's" },
        { "--corrected", ARG_BOOL, &d.corrected, NULL, "each matrix makes up for errors of those before: better at low "
          "rates, about twice the time" },
        { "--shard-size", ARG_MIB, &d.shard_bytes, "SIZE",
          "most bytes of a file of the output, in MiB or such as 4GiB (4096)" },
        { "--memory", ARG_MIB, &d.host_bytes_max, "SIZE",
          "most memory, in MiB or such as 8GB; a model that does not fit is read layer by layer (no limit)" },
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
        POOL_THREADS_ARG(threads),
        { "--backend", ARG_CHOICE, &backend, "auto|cuda|cpu", "what computes; auto = a GPU if there is one (auto)" },
        { "--device", ARG_NUMBERS, &device, "N", "the GPU, by its index in 'exl2 info' (fastest memory)" },
        { "--gpu-bytes", ARG_SIZE, &d.device_bytes_max, "SIZE", "most memory to use on the GPU, such as 6.5GB (no "
          "limit)" },
        { "--kernels", ARG_TEXT, &kernels, "DIR", "folder of compiled GPU kernels (your cache folder)" },
    };
    const args_desc args = { "exl2 convert",
                             "Makes an EXL2 model folder from another model. Killed, it continues when it is started "
                             "again.",
                             positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&args, argc, argv);
    if (parsed == ARGS_OK && !split_loras(&adapters, merged, paths)) {
        parsed = args_wrong(&args, "the path of --lora is longer than %d bytes", LORAS_PATH - 1);
    }
    d.loras = merged;
    d.lora_count = adapters.count;
    if (parsed == ARGS_OK && d.bpw == 0 && d.size_bytes == 0 && !d.measure_only && !d.bits) {
        parsed = args_wrong(&args, "--bpw is missing (or --size)");
    }
    if (parsed == ARGS_OK && device.count > 1) {
        parsed = args_wrong(&args, "--device needs one number");
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    if (!kernel_folder_open(&cache, kernels)) {
        fputs("the path of the kernel folder is too long\n", stderr);
        return 1;
    }
    d.backend = (exl2_backend)backend;
    d.kernel_cache = kernel_folder_hook(&cache);
    if (device.count) {
        gpu.index = device.items[0];
        d.device = &gpu;
    }
    d.calibration_files = files.items;
    d.calibration_file_count = files.count;
    v.has_files = files.count > 0 || d.random_ids;
    return run(&v, &d, threads, json);
}
