/* convert_plan.h: what a conversion is asked for, whether that is possible, and what it needs: found out before hours
   of work.
   takes: exl2_convert_desc; headers of the source and its linears; for exl2__convert_plan_values its weights.
   gives: exl2__convert, exl2__convert_progress, exl2__convert_held, exl2__convert_check, exl2__convert_plan,
          exl2__convert_plan_values, exl2__convert_allocate. */
#ifndef EXL2__CONVERT_PLAN_H
#define EXL2__CONVERT_PLAN_H

#include "convert_source.h"
#include "device_plan.h"
#include "measurement.h"
#include "streams.h"
#include "texts.h"

#define EXL2__CONVERT_ROWS 64u       /* of the spare texts and of the model's own; */
#define EXL2__CONVERT_FILE_ROWS 128u /* of files, if they hold as many, and of all on a GPU */
#define EXL2__CONVERT_LENGTH 512u
#define EXL2__CONVERT_GPU_LENGTH 2048u
#define EXL2__CONVERT_MEASURE_BPW 4.0 /* what measure_only tries, unless another rate is given */
#define EXL2__CONVERT_LENGTH_MAX 8192u
#define EXL2__CONVERT_HELD 2u         /* rows kept out of calibration, for 64 */
#define EXL2__CONVERT_SAVE_NS 50000000000u /* time between two writes of the states */

typedef struct exl2__convert {
    exl2__ctx *c;
    const exl2_convert_desc *d;
    char out_dir[EXL2__FILE_PATH_MAX], work_dir[EXL2__FILE_PATH_MAX];
    char source_dir[EXL2__FILE_PATH_MAX]; /* dense, if the source is a GGUF file or FP8 */
    exl2__convert_source from;
    uint64_t copy_bytes;      /* of the dense folder that the source becomes; 0: it is one */
    bool copied;              /* it has been made */
    double bpw;
    uint32_t rows, held, length, head_bits; /* held: rows after those of calibration */
    exl2_token *ids;          /* [rows + held, length] */
    uint64_t ids_bytes;
    exl2__workdir work;
    exl2__runner source;
    exl2__linears linears;
    exl2__measure measure;
    exl2__arena memory;       /* of `measure` */
    exl2__streams streams;    /* while corrected targets are quantized */
    exl2__folder folder;
    exl2__convert_write write;
    exl2_convert_plan plan;
    exl2__gpu gpu;            /* open, if stages run there */
    exl2_engine_desc engine;  /* backend, device, caps and kernel cache */
    uint64_t stage_ns[EXL2_CONVERT_STAGES], started_ns; /* wall-clock time of each stage; when the running one began */
    bool above;               /* more bits were asked for than the model can have */
    uint64_t budget;          /* bits of the linears that exl2__convert_allocate fills in */
} exl2__convert;

/* ---- progress ---- */

EXL2__PRIVATE exl2_result exl2__convert_progress(const exl2__convert *v, const char *stage, double done)
{
    if (v->d->progress && !v->d->progress(v->d->user, stage, (float)done)) {
        return exl2__fail(v->c, EXL2_ERR_CANCELLED, "the conversion of %s was cancelled", v->d->source_dir);
    }
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__convert_text_progress(void *user, double done)
{
    const exl2__convert *v = (const exl2__convert *)user;
    return !v->d->progress || v->d->progress(v->d->user, "text", (float)done);
}

/* ---- what runs where ---- */

/* The GPU, or NULL: the CPU. */
static inline exl2__gpu *exl2__convert_gpu(exl2__convert *v) { return exl2__gpu_is_open(&v->gpu) ? &v->gpu : NULL; }

/* What the model's own text is written on; NULL: the CPU. */
static inline const exl2_engine_desc *exl2__convert_engine(const exl2__convert *v)
{
    return exl2__gpu_is_open(&v->gpu) ? &v->engine : NULL;
}

/* Rows that are asked for on a CPU. */
static inline uint32_t exl2__convert_rows(const exl2_convert_desc *d)
{
    return d->rows ? d->rows : d->calibration_file_count ? EXL2__CONVERT_FILE_ROWS : EXL2__CONVERT_ROWS;
}

/* Rows that are kept out for the comparison at the end, of what is asked for. */
static inline uint32_t exl2__convert_held(const exl2__convert *v)
{
    return exl2__max32(v->rows / 64 * EXL2__CONVERT_HELD, 1);
}

/* Sets rows and length where the application has not: a GPU has time for more. */
EXL2__PRIVATE void exl2__convert_defaults(exl2__convert *v)
{
    bool gpu = exl2__gpu_is_open(&v->gpu);
    v->length = v->d->length ? v->d->length : gpu ? EXL2__CONVERT_GPU_LENGTH : EXL2__CONVERT_LENGTH;
    v->rows = v->d->rows || !gpu ? exl2__convert_rows(v->d) : EXL2__CONVERT_FILE_ROWS;
}

/* Opens the GPU. AUTO becomes what there is, so that the model's text does not fall back to the CPU later. */
EXL2__PRIVATE exl2_result exl2__convert_open_gpu(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    v->engine = (exl2_engine_desc){ .backend = d->backend, .devices = d->device, .device_count = d->device ? 1 : 0,
                                    .device_bytes_max = d->device_bytes_max, .kernel_cache = d->kernel_cache,
                                    .nvrtc_path = d->nvrtc_path };
    EXL2__TRY(exl2__gpu_open(v->c, &v->engine, &v->gpu));
    v->engine.backend = EXL2_BACKEND_CUDA;
    exl2__convert_defaults(v);
    return EXL2_OK;
}

/* The time since the last call belongs to this stage. */
EXL2__PRIVATE void exl2__convert_time(exl2__convert *v, exl2_convert_stage stage)
{
    uint64_t now = exl2__platform_ns();
    v->stage_ns[stage] += now - v->started_ns;
    v->started_ns = now;
}

/* ---- what is asked for ---- */

/* Fails if one of two folders is the other, or lies in it, by whatever names. */
EXL2__PRIVATE exl2_result exl2__convert_check_apart(exl2__ctx *c, const char *a_name, const char *a, const char *b_name,
                                                    const char *b)
{
    if (exl2__folder_lies_in(a, b)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the %s %s lies in the %s %s; choose another one", a_name, a, b_name, b);
    }
    if (exl2__folder_lies_in(b, a)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the %s %s lies in the %s %s; choose another one", b_name, b, a_name, a);
    }
    return EXL2_OK;
}

/* Fills in the paths of the output and of the work folder, and checks all paths: none is empty, and no folder that is
   written lies in the source, or in another one that is written, or around it. */
EXL2__PRIVATE exl2_result exl2__convert_check_paths(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    exl2__ctx *c = v->c;
    char source[EXL2__FILE_PATH_MAX], unfinished[EXL2__FILE_PATH_MAX];
    EXL2__TRY(exl2__folder_path(c, "source_dir", d->source_dir, source));
    EXL2__TRY(exl2__folder_path(c, "out_dir", d->out_dir, v->out_dir));
    if (d->work_dir) {
        EXL2__TRY(exl2__folder_path(c, "work_dir", d->work_dir, v->work_dir));
    } else {
        exl2__format(v->work_dir, sizeof v->work_dir, "%s.work", v->out_dir);
    }
    for (uint32_t i = 0; i < d->calibration_file_count; i++) {
        if (!d->calibration_files[i] || !d->calibration_files[i][0]) {
            return exl2__fail(c, EXL2_ERR_ARG, "calibration_files[%u] is %s", i,
                              d->calibration_files[i] ? "an empty string" : "NULL");
        }
    }
    if (d->measurement_file && !d->measurement_file[0]) {
        return exl2__fail(c, EXL2_ERR_ARG, "measurement_file is an empty string");
    }
    exl2__format(unfinished, sizeof unfinished, "%s.unfinished", v->out_dir);
    EXL2__TRY(exl2__convert_check_apart(c, "work folder", v->work_dir, "output folder", v->out_dir));
    EXL2__TRY(exl2__convert_check_apart(c, "work folder", v->work_dir, "unfinished folder", unfinished));
    if (!exl2__folder_exists(source)) {
        return EXL2_OK; /* a file, or nothing */
    }
    EXL2__TRY(exl2__convert_check_apart(c, "output folder", v->out_dir, "source", source));
    EXL2__TRY(exl2__convert_check_apart(c, "unfinished folder", unfinished, "source", source));
    return exl2__convert_check_apart(c, "work folder", v->work_dir, "source", source);
}

/* With `bits` the result is a dense folder, so nothing that says how to quantize has a meaning. */
EXL2__PRIVATE exl2_result exl2__convert_check_bits(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    const struct {
        const char *name;
        bool set;
    } others[] = { { "bpw", d->bpw != 0 }, { "size_bytes", d->size_bytes != 0 }, { "head_bits", d->head_bits != 0 },
                   { "calibration_files", d->calibration_file_count != 0 }, { "rows", d->rows != 0 },
                   { "length", d->length != 0 }, { "random_ids", d->random_ids },
                   { "measurement_file", d->measurement_file != NULL }, { "measure_only", d->measure_only },
                   { "corrected", d->corrected }, { "shard_bytes", d->shard_bytes != 0 } };
    if (d->bits != EXL2__IMPORT_DENSE_BITS) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "bits is %u, expected 16 or 0", d->bits);
    }
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        if (others[i].set) {
            return exl2__fail(v->c, EXL2_ERR_ARG, "bits is 16, so nothing is quantized, and %s must not be set",
                              others[i].name);
        }
    }
    return exl2__convert_check_paths(v);
}

EXL2__PRIVATE exl2_result exl2__convert_check(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    exl2__ctx *c = v->c;
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_convert_desc));
    if (!d->source_dir || !d->out_dir) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_convert_desc.%s is NULL", d->source_dir ? "out_dir" : "source_dir");
    }
    EXL2__TRY(exl2__convert_loras_check(c, d));
    if (d->bits) {
        return exl2__convert_check_bits(v);
    }
    if (d->size_bytes && (d->bpw != 0 || d->measure_only)) {
        return exl2__fail(c, EXL2_ERR_ARG, "size_bytes and %s are both given", d->bpw != 0 ? "bpw" : "measure_only");
    }
    if (d->corrected && d->measure_only) {
        return exl2__fail(c, EXL2_ERR_ARG, "corrected and measure_only are both given");
    }
    v->bpw = d->measure_only && d->bpw == 0 ? EXL2__CONVERT_MEASURE_BPW : (double)d->bpw;
    if (!d->size_bytes && !(v->bpw >= 2 && v->bpw <= 16)) {
        return exl2__fail(c, EXL2_ERR_ARG, "bpw must be from 2 to 16");
    }
    v->head_bits = d->head_bits || d->size_bytes ? d->head_bits : 6; /* 0: the head's widths are allocated, too */
    if (v->head_bits && !exl2__linears_head_of(v->head_bits)) {
        return exl2__fail(c, EXL2_ERR_ARG, "head_bits is %u, expected 2, 3, 4, 5, 6 or 8", v->head_bits);
    }
    exl2__convert_defaults(v); /* length may become less: exl2__convert_headers */
    if (v->length < 32 || v->length > EXL2__CONVERT_LENGTH_MAX || v->rows > 65536) {
        return exl2__fail(c, EXL2_ERR_ARG, "%u rows of %u tokens: expected at most 65536 rows, of 32 to %u tokens",
                          v->rows, v->length, EXL2__CONVERT_LENGTH_MAX);
    }
    if (d->calibration_file_count && d->random_ids) {
        return exl2__fail(c, EXL2_ERR_ARG, "calibration_files and random_ids are both given");
    }
    if (d->calibration_file_count && !d->calibration_files) {
        return exl2__fail(c, EXL2_ERR_ARG, "calibration_files is NULL");
    }
    return exl2__convert_check_paths(v);
}

/* bpw as a whole number of thousandths, so that it can be compared and written exactly. */
static inline uint32_t exl2__convert_bpw_1000(const exl2__convert *v)
{
    return (uint32_t)(v->bpw * 1000 + 0.5);
}

/* ---- what it needs ---- */

/* Bytes of the output folder with all widths of the linears set to `width`. */
EXL2__PRIVATE exl2_result exl2__convert_plan_folder(exl2__convert *v, uint8_t width, uint64_t *bytes)
{
    for (uint32_t i = 0; i < v->linears.count; i++) {
        memset(v->linears.items[i].widths, width, v->linears.items[i].in / 32);
        memset(v->linears.items[i].group_rows, 0, sizeof v->linears.items[i].group_rows);
    }
    return exl2__convert_write_dry(&v->write, false, bytes);
}

/* Most bytes of memory that the work on one linear needs at once, besides exl2__measure_layout's. */
EXL2__PRIVATE uint64_t exl2__convert_plan_linear_bytes(exl2__convert *v, const exl2__linear *linear)
{
    exl2__factor f = { .in = linear->in, .on_gpu.gpu = exl2__convert_gpu(v) };
    exl2__linear_codes codes;
    exl2__arena factor = { 0 }, scratch = { 0 }, packed = { 0 };
    bool expert = linear->kind == EXL2__UNIT_EXPERT_UP || linear->kind == EXL2__UNIT_EXPERT_DOWN;
    uint64_t together = expert ? v->source.plan.shape.experts.count : 1; /* tried at the same time */
    exl2__factor_layout(&f, &factor);
    exl2__factor_scratch_layout(linear->in, f.on_gpu.gpu != NULL, &scratch);
    exl2__linear_codes_layout(&v->linears, linear, &codes, &packed);
    uint64_t solve = exl2__solve_bytes(&f, linear->columns, linear->in / 32);
    uint64_t trials = (uint64_t)linear->in * linear->columns * sizeof(uint16_t) * together; /* exl2__measure_replace */
    trials += together * sizeof(exl2__measure_trial);
    return factor.used + exl2__max64(scratch.used + trials, exl2__max64(solve + trials, solve + packed.used));
}

/* What corrected targets need, besides the work on a linear: both streams, and a layer in its quantized form. */
EXL2__PRIVATE uint64_t exl2__convert_plan_streams(const exl2__convert *v)
{
    exl2__arena streams = { 0 };
    exl2__streams s;
    uint64_t layer = 0, most = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        layer = i > 0 && linear->layer == linear[-1].layer ? layer : 0;
        layer += (uint64_t)linear->in * linear->columns * sizeof(uint16_t);
        most = exl2__max64(most, layer);
    }
    exl2__streams_layout(&s, (exl2__measure *)(uintptr_t)&v->measure, exl2__linears_most(&v->linears), &streams);
    return streams.used + most;
}

/* Most bytes that each of the stages needs at once, besides the weights of the source. */
EXL2__PRIVATE uint64_t exl2__convert_plan_stages(exl2__convert *v, const exl2__arena *measure)
{
    const exl2__runner *r = &v->source;
    exl2__compare both = { .a = &v->source };
    exl2__arena write = { 0 }, rows = { 0 };
    uint64_t quantize = 0, weights = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        weights += (uint64_t)linear->in * linear->columns;
        quantize = exl2__max64(quantize, exl2__convert_plan_linear_bytes(v, linear));
    }
    exl2__convert_write_layout(&v->write, &write);
    uint64_t shards = write.used + exl2__convert_write_tensors_max(&v->write) * sizeof(exl2__shards_entry);
    shards += EXL2__WRITE_BUFFER + (v->plan.bytes / v->write.shard_bytes + 1) * sizeof(exl2__shards_file)
            + 2 * EXL2__ARENA_ALIGN; /* of the lists of tensors and of files */
    /* the comparison has the output beside the source; in memory, a scale has 16 bits, not 4 */
    uint64_t out = v->plan.bytes + weights / 32 * 12 / 8, streamed = r->outside.loaded + r->layer.loaded;
    uint64_t compare = r->other_bytes + (r->streamed ? exl2__min64(out, streamed) : out);
    exl2__compare_layout(&both, &rows);
    compare += rows.used;
    /* Shards are laid out before the work, too, to check all numbers. */
    uint64_t others = v->d->measure_only ? shards : exl2__max64(shards, compare);
    quantize += v->d->corrected ? exl2__convert_plan_streams(v) : 0;
    return exl2__max64(measure->used + quantize, others);
}

#ifndef EXL2_NO_CUDA
/* Weights of the largest matrix that is quantized. */
EXL2__PRIVATE uint64_t exl2__convert_plan_largest(const exl2__convert *v)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        most = exl2__max64(most, (uint64_t)v->linears.items[i].in * v->linears.items[i].columns);
    }
    return most;
}
#endif

/* Memory at its peak, with the weights streamed or not. measure: of exl2__measure_layout. text: for the model's own
   text, which is made while no other weights are loaded; 0: there is none. */
EXL2__PRIVATE uint64_t exl2__convert_plan_host(exl2__convert *v, const exl2__arena *measure, uint64_t text)
{
    uint64_t ids = (uint64_t)(v->rows + v->rows / 32 + 1) * v->length * sizeof(exl2_token); /* with rows kept out */
    uint64_t stages = exl2__runner_bytes(&v->source, true) + exl2__convert_plan_stages(v, measure);
#ifndef EXL2_NO_CUDA
    exl2__arena copies = { 0 };
    if (exl2__convert_gpu(v)) { /* of the source, and of the output; one of its matrices is decoded at a time */
        uint64_t decoded = exl2__convert_plan_largest(v) * sizeof(uint16_t);
        exl2__runner_layout_copies(&v->source, &copies);
        stages += copies.used + (v->d->measure_only ? 0 : copies.used + decoded);
    }
#endif
    return v->c->host_bytes + ids + exl2__max64(stages, text);
}

/* What the work folder will hold besides a dense copy of the source. */
EXL2__PRIVATE uint64_t exl2__convert_plan_work(const exl2__convert *v)
{
    uint64_t rows = (uint64_t)v->rows * v->length, last = 0;
    uint64_t disk = (rows + (v->rows / 32 + 1) * v->length) * sizeof(exl2_token); /* ids, with what is kept out */
    disk += rows * v->source.plan.shape.hidden * sizeof(float) * (v->d->corrected ? 3 : 1);
    disk += v->d->measure_only ? 0 : v->budget / 8;
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        uint64_t key = (uint64_t)linear->layer << 32 | linear->input;
        /* Moments, once for each input: */
        disk += i == 0 || key != last ? 2 * (uint64_t)linear->in * (linear->in + 32) : 0;
        disk += EXL2__LOSSES_WIDTHS * (linear->in / 32) * sizeof(double) + sizeof *linear->measured;
        last = key;
    }
    if (v->linears.head_bits && !v->d->measure_only) { /* its codes are not in the budget */
        const exl2__linear *head = &v->linears.items[v->linears.count - 1];
        exl2__arena dry = { 0 };
        exl2__linear_codes codes;
        exl2__linear_codes_layout(&v->linears, head, &codes, &dry);
        disk += exl2__linears_bits(head, &codes) / 8;
    }
    return disk;
}

EXL2__PRIVATE void exl2__convert_plan_mib(char out[24], uint64_t bytes)
{
    uint64_t tenths = (bytes + 104857) / 104858; /* of a MiB, rounded up */
    exl2__format(out, 24, "%llu.%llu MiB", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10));
}

/* Fails if a disk has too little room, where the system can tell. path: a folder that exists. */
EXL2__PRIVATE exl2_result exl2__convert_plan_disk(exl2__convert *v, const char *path, uint64_t bytes)
{
    uint64_t room = 0;
    char needed[24], there[24];
    if (!exl2__platform_disk_free(path, &room) || room >= bytes) {
        return EXL2_OK;
    }
    exl2__convert_plan_mib(needed, bytes);
    exl2__convert_plan_mib(there, room);
    return exl2__fail(v->c, EXL2_ERR_IO, "%s: the conversion needs %s of disk, but %s are free there", path, needed,
                      there);
}

#ifndef EXL2_NO_CUDA
/* GPU memory. text: for the model's own text. Fails if there is too little. */
EXL2__PRIVATE exl2_result exl2__convert_plan_device(exl2__convert *v, uint64_t text)
{
    char needed[24], there[24];
    exl2__cuda_device *d = v->gpu.d;
    exl2__device_plan p = { .c = v->c, .g = &v->gpu, .r = &v->source, .m = &v->measure, .linears = &v->linears,
                            .corrected = v->d->corrected, .compared = !v->d->measure_only };
    EXL2__TRY(exl2__cuda_device_enter(d));
    p.room = exl2__gpu_room(&v->gpu);
    EXL2__TRY(exl2__cuda_device_leave_with(d, exl2__device_plan_make(&p)));
    v->plan.device_bytes = exl2__max64(p.peak, v->plan.own_text ? exl2__min64(text, p.room) : 0);
    if (p.needs <= p.room) {
        return EXL2_OK;
    }
    exl2__convert_plan_mib(needed, p.needs);
    exl2__convert_plan_mib(there, p.room);
    return exl2__fail(v->c, EXL2_ERR_BUDGET, "the conversion needs %s of GPU memory, but has %s (device_bytes_max, or "
                      "what is free)", needed, there);
}
#endif

/* Memory: weights are streamed if they do not fit. text, text_device: bytes for the model's own text. */
EXL2__PRIVATE exl2_result exl2__convert_plan_memory(exl2__convert *v, const exl2__arena *measure, uint64_t text,
                                                    uint64_t text_device)
{
    char needed[24], cap[24];
    uint64_t most = v->c->host_bytes_max;
    v->plan.host_bytes = exl2__convert_plan_host(v, measure, text);
    if (most && v->plan.host_bytes > most) {
        v->source.streamed = true;
        v->plan.host_bytes = exl2__convert_plan_host(v, measure, 0);
    }
    v->plan.streamed = v->source.streamed;
    v->plan.own_text = v->d->calibration_file_count == 0 && !v->d->random_ids && !v->plan.streamed;
    if (most && v->plan.host_bytes > most) {
        exl2__convert_plan_mib(needed, v->plan.host_bytes);
        exl2__convert_plan_mib(cap, most);
        return exl2__fail(v->c, EXL2_ERR_BUDGET, "the conversion needs about %s of memory, but host_bytes_max is %s, "
                          "with one layer at a time; fewer or shorter rows of calibration need less", needed, cap);
    }
#ifndef EXL2_NO_CUDA
    if (exl2__convert_gpu(v)) {
        return exl2__convert_plan_device(v, text_device);
    }
#endif
    (void)text_device;
    return EXL2_OK;
}

/* Disks: both numbers in each sentence. A conversion that continues needs less: what its work folder
   holds is not written again. */
EXL2__PRIVATE exl2_result exl2__convert_plan_room(exl2__convert *v)
{
    uint64_t work = exl2__convert_plan_work(v) + v->copy_bytes;
    uint64_t kept = exl2__workdir_bytes(v->c, v->work.dir) + (v->copied ? v->copy_bytes : 0);
    v->plan.disk_bytes = v->plan.bytes + work;
    work -= exl2__min64(work, kept);
    if (!v->d->work_dir) { /* beside the output, on the same disk */
        return exl2__convert_plan_disk(v, v->folder.work_path, v->plan.bytes + work);
    }
    EXL2__TRY(exl2__convert_plan_disk(v, v->work.dir, work));
    return exl2__convert_plan_disk(v, v->folder.work_path, v->plan.bytes);
}

/* ---- which rate ---- */

/* bpw as text with two digits. */
EXL2__PRIVATE void exl2__convert_bpw_text(char out[16], double bpw)
{
    uint32_t hundredths = (uint32_t)(bpw * 100 + 0.5);
    exl2__format(out, 16, "%u.%u%u", hundredths / 100, hundredths / 10 % 10, hundredths % 10);
}

/* Linear layers whose widths are allocated: all, or all but the head. */
static inline uint32_t exl2__convert_allocated(const exl2__convert *v)
{
    return v->linears.count - (v->linears.head_bits ? 1u : 0u);
}

/* Sets the budget and what the plan says of rates and of the folder. Fails below what this model can have; above it,
   the budget is the most. */
EXL2__PRIVATE exl2_result exl2__convert_plan_rate(exl2__convert *v)
{
    exl2_convert_plan *p = &v->plan;
    uint64_t least = 0, most = 0, weights = 0, asked;
    char low[24], high[24], given[24];
    for (uint32_t i = 0; i < exl2__convert_allocated(v); i++) {
        const exl2__linear *linear = &v->linears.items[i];
        exl2__allocate_linear one = { linear->in, linear->columns, linear->has_bias, NULL, NULL };
        uint64_t bits[2];
        exl2__allocate_range(&one, 1, &bits[0], &bits[1]);
        least += bits[0];
        most += bits[1];
        weights += (uint64_t)linear->in * linear->columns;
    }
    EXL2__TRY(exl2__convert_plan_folder(v, 0, &p->bytes_least));
    EXL2__TRY(exl2__convert_plan_folder(v, EXL2__LOSSES_WIDTHS - 1, &p->bytes_most));
    uint64_t other = p->bytes_most - most / 8; /* headers grow with the numbers in them: with few bits they are less */
    p->bytes_least = exl2__max64(p->bytes_least, other + exl2__div_up(least, 8));
    p->bpw_least = (float)((double)least / (double)weights);
    p->bpw_most = (float)((double)most / (double)weights);
    if (v->d->size_bytes) {
        asked = v->d->size_bytes > other ? exl2__min64(v->d->size_bytes - other, most) * 8 : 0;
        if (v->d->size_bytes < p->bytes_least) {
            exl2__convert_plan_mib(low, p->bytes_least);
            exl2__convert_plan_mib(high, p->bytes_most);
            exl2__convert_plan_mib(given, v->d->size_bytes);
            return exl2__fail(v->c, EXL2_ERR_ARG, "the folder of this model can have %s to %s; %s are too few", low,
                              high, given);
        }
    } else {
        asked = (uint64_t)(v->bpw * (double)weights);
        if (asked < least && !v->d->measure_only) {
            exl2__convert_bpw_text(low, (double)least / (double)weights + 0.005);
            exl2__convert_bpw_text(high, (double)most / (double)weights);
            return exl2__fail(v->c, EXL2_ERR_ARG, "this model can have %s to %s bits per weight", low, high);
        }
    }
    v->above = asked > most;
    v->budget = exl2__min64(asked, most);
    p->bpw = (float)((double)v->budget / (double)weights);
    p->bytes = exl2__min64(other + exl2__div_up(v->budget, 8), p->bytes_most);
    v->bpw = v->d->size_bytes ? (double)p->bpw : v->bpw;
    if (v->d->measure_only) { /* about 16 bytes for the loss of a block at a width, and 7 for an id */
        uint64_t ids = (uint64_t)(v->rows + exl2__convert_held(v)) * v->length;
        p->bytes = p->bytes_least = p->bytes_most = weights / 32 / 32 * EXL2__LOSSES_WIDTHS * 16 + ids * 7;
    }
    return EXL2_OK;
}

/* Is there a tokenizer for the text of calibration, and are its files of the right kind? *bytes, *device_bytes: memory
   that the model's own text needs. */
EXL2__PRIVATE exl2_result exl2__convert_plan_text(exl2__convert *v, uint64_t *bytes, uint64_t *device_bytes)
{
    const exl2_convert_desc *d = v->d;
    bool has_tokenizer;
    *bytes = *device_bytes = 0;
    if (d->random_ids) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__texts_measure(v->c, exl2__convert_engine(v), v->source_dir, v->rows + exl2__convert_held(v),
                                  v->length, bytes, device_bytes, &has_tokenizer));
    for (uint32_t i = 0; i < d->calibration_file_count; i++) {
        EXL2__TRY(exl2__texts_check_file(v->c, d->source_dir, d->calibration_files[i], has_tokenizer));
        *bytes = 0;
    }
    if (d->calibration_file_count == 0 && !has_tokenizer) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "%s has no tokenizer, so it cannot write its own text; give a .json with "
                          "ids for calibration, or ask for random ids (random_ids, --random-ids)", d->source_dir);
    }
    return EXL2_OK;
}

/* All that can be found out from headers. measure: a dry run of exl2__measure_layout. */
EXL2__PRIVATE exl2_result exl2__convert_plan(exl2__convert *v, exl2__arena *measure)
{
    uint64_t text, text_device;
    v->write = (exl2__convert_write){ .c = v->c, .source_dir = v->source_dir, .source = &v->source,
                                      .linears = &v->linears, .work = &v->work, .bpw_1000 = exl2__convert_bpw_1000(v),
                                      .rows = v->rows, .length = v->length,
                                      .head_bits = v->head_bits,
                                      .shard_bytes = v->d->shard_bytes ? v->d->shard_bytes : EXL2__SHARDS_BYTES };
    EXL2__TRY(exl2__convert_plan_rate(v));
    EXL2__TRY(exl2__convert_plan_text(v, &text, &text_device));
    EXL2__TRY(exl2__convert_plan_memory(v, measure, text, text_device));
    v->write.text = v->d->calibration_file_count ? EXL2__CONVERT_WRITE_FILES
                  : v->d->random_ids ? EXL2__CONVERT_WRITE_RANDOM
                  : v->plan.own_text ? EXL2__CONVERT_WRITE_OWN : EXL2__CONVERT_WRITE_SPARE;
    return exl2__convert_plan_room(v);
}

/* ---- values ---- */

/* Are all weights of a part halves (f16 or bf16) that can be quantized? This is fast. */
EXL2__PRIVATE bool exl2__convert_plan_fits(const exl2__cpu_part *p)
{
    uint16_t most = p->source == EXL2__CPU_BF16 ? 0x46FF : 0x77FF; /* the largest one below 32752, and 32752 */
    bool larger = p->source != EXL2__CPU_BF16 && p->source != EXL2__CPU_F16;
    for (uint32_t strip = 0; strip < p->strips && !larger; strip++) {
        const uint16_t *w = (const uint16_t *)(const void *)(p->data + strip * p->strip_bytes);
        uint32_t over = 0;
        for (size_t i = 0; i < (size_t)p->in * EXL2__CPU_STRIP; i++) {
            over |= (uint32_t)((w[i] & 0x7FFF) > most);
        }
        larger = over != 0;
    }
    return !larger;
}

/* Linear layers from `first` on. */
typedef struct exl2__convert_plan_values_job {
    exl2__convert *v;
    uint32_t first;
} exl2__convert_plan_values_job;

/* Task: finds the first weight of a linear that cannot be quantized. */
EXL2__PRIVATE void exl2__convert_plan_weights(void *arg, uint32_t index)
{
    const exl2__convert_plan_values_job *job = (const exl2__convert_plan_values_job *)arg;
    exl2__linear *linear = &job->v->linears.items[job->first + index];
    const exl2__cpu_part *p = exl2__linears_part(&job->v->source, linear);
    linear->bad = false;
    if (exl2__convert_plan_fits(p)) {
        return;
    }
    for (uint32_t first = 0; first < linear->out; first += EXL2__PANELS_LANES) { /* strips, as they lie in memory */
        uint32_t end = exl2__min32(first + EXL2__PANELS_LANES, linear->out);
        for (uint32_t i = 0; i < linear->in; i++) {
            for (uint32_t column = first; column < end; column++) {
                float w = exl2__cpu_matrix_weight(p, i, column);
                if (!(w <= EXL2__QUANTIZE_MAX && w >= -EXL2__QUANTIZE_MAX)) {
                    linear->bad = true;
                    linear->bad_in = i;
                    linear->bad_out = column;
                    return;
                }
            }
        }
    }
}

/* Fails if a number of the source cannot become FP16, or cannot be quantized. Hours later it would fail, too. */
EXL2__PRIVATE exl2_result exl2__convert_plan_values(exl2__convert *v)
{
    uint32_t layers = v->source.plan.shape.layers;
    exl2__convert_plan_values_job head = { v, v->linears.first[layers] };
    for (uint32_t layer = 0; layer < layers; layer++) {
        exl2__convert_plan_values_job job = { v, v->linears.first[layer] };
        EXL2__TRY(exl2__runner_hold(&v->source, layer));
        exl2__tasks_run(v->c, v->linears.first[layer + 1] - job.first, exl2__convert_plan_weights, &job);
    }
    exl2__tasks_run(v->c, v->linears.count - head.first, exl2__convert_plan_weights, &head);
    for (uint32_t i = 0; i < v->linears.count; i++) {
        const exl2__linear *linear = &v->linears.items[i];
        if (linear->bad) {
            return exl2__fail(v->c, EXL2_ERR_FORMAT, "%s has a weight (output %u, input %u) that is not finite or "
                              "larger than 32752", linear->name, linear->bad_out, linear->bad_in);
        }
    }
    return exl2__convert_write_dry(&v->write, true, NULL);
}

/* ---- allocate ---- */

/* Losses times sensitivities, for exl2__allocate_run. */
EXL2__PRIVATE exl2_result exl2__convert_allocate_in(exl2__convert *v, exl2__allocate_linear *linears, double *losses)
{
    uint32_t count = exl2__convert_allocated(v);
    for (uint32_t i = 0; i < count; i++) {
        exl2__linear *linear = &v->linears.items[i];
        uint32_t cells = EXL2__LOSSES_WIDTHS * (linear->in / 32);
        for (uint32_t k = 0; k < cells; k++) {
            losses[k] = linear->losses[k] * linear->measured->sensitivity;
        }
        linears[i] = (exl2__allocate_linear){ linear->in, linear->columns, linear->has_bias, losses, linear->widths };
        losses += cells;
    }
    return exl2__allocate_run(v->c, linears, count, v->budget);
}

EXL2__PRIVATE exl2_result exl2__convert_allocate(exl2__convert *v)
{
    exl2__arena dry = { 0 }, memory;
    uint64_t cells = 0;
    if (v->linears.chosen) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < exl2__convert_allocated(v); i++) {
        cells += (uint64_t)EXL2__LOSSES_WIDTHS * (v->linears.items[i].in / 32);
    }
    exl2__arena_alloc(&dry, v->linears.count * sizeof(exl2__allocate_linear));
    exl2__arena_alloc(&dry, cells * sizeof(double));
    EXL2__TRY(exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__allocate_linear *linears =
        (exl2__allocate_linear *)exl2__arena_alloc(&memory, v->linears.count * sizeof *linears);
    double *losses = (double *)exl2__arena_alloc(&memory, cells * sizeof *losses);
    exl2_result result = exl2__convert_allocate_in(v, linears, losses);
    exl2__arena_close(v->c, &memory);
    return result;
}

#endif
