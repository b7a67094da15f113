/* towers.c: towers for pictures on the GPU against the CPU's: pictures of many sizes; the same bits in slices of any
   length and beside other work; weights so large that values pass what FP16 holds; rows that are not finite.
   takes: the shared fixtures (fixtures/vision); $EXL2_TEST_KERNELS or NVRTC; `few`: less of it, for compute-sanitizer.
   gives: exit code 0 or 1; 77 without a GPU or fixtures. */
#include "../../exl2.h"

#include "private/platform.h"
#include "../check.h"
#include "kernel_folder.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* Root mean square of a row's differences, in parts of the row's; single ones may have thrice that. */
#define ROWS_BOUND 0.01
#define SIDE_MAX 640u

static bool few; /* less of everything */
static uint8_t pixels[SIDE_MAX * SIDE_MAX * 3];
static float wanted[1280 * 64 * 4], rows[1280 * 64 * 4];

typedef struct engine_of {
    exl2_engine *e;
    exl2_model model;
} engine_of;

static engine_of open_on(exl2_backend backend, const char *path)
{
    engine_of o = { NULL, { 0 } };
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc d = { .backend = backend, .open_error = &error };
    if (backend == EXL2_BACKEND_CUDA) {
        d.kernel_cache = kernel_folder();
    }
    exl2_result r = exl2_open(&d, &o.e);
    if (r == EXL2_ERR_NO_DEVICE) {
        check_skip(error.text);
    }
    exl2_model_desc m = { .path = path };
    m.vision.images = 4;
    m.vision.pixels_max = SIDE_MAX * SIDE_MAX;
    if (r < 0 || (r = exl2_model_load(o.e, &m, &o.model)) < 0) {
        if (o.e) {
            exl2_last_error(o.e, &error);
        }
        printf("%s: %s\n", path, error.text);
        exit(1);
    }
    return o;
}

/* Encodes a picture with steps of gpu_us. Returns the number of floats of its rows; 0: it has none, and *why says
   why. */
static size_t encode(const engine_of *o, uint32_t width, uint32_t height, uint32_t gpu_us, float *out, exl2_error *why)
{
    exl2_image image;
    exl2_image_info info = { 0 };
    size_t floats = 0;
    exl2_image_desc d = { .model = o->model, .width = width, .height = height, .pixels = pixels, .silent = true };
    exl2_step_desc step = { .gpu_us = gpu_us, .wait = gpu_us == 0 };
    *why = (exl2_error){ EXL2_OK, 0, "" };
    exl2_result r = exl2_image_make(o->e, &d, &image);
    if (r < 0) {
        exl2_last_error(o->e, why);
        return 0;
    }
    for (uint32_t i = 0; i < 1000000 && info.state != EXL2_IMAGE_ENCODED && info.result >= 0; i++) {
        exl2_step(o->e, &step);
        CHECK_INT(exl2_image_get(o->e, image, &info), EXL2_OK);
    }
    if (info.result >= 0) {
        CHECK_INT(exl2_image_rows(o->e, image, out, EXL2__COUNT(rows), &floats), EXL2_OK);
    } else {
        why->code = info.result;
    }
    CHECK_INT(exl2_image_close(o->e, image), EXL2_OK);
    pixels[0]++; /* the next picture is another one */
    return floats;
}

/* The largest root mean square of the differences of a vector, in parts of the vector's own, or a third of the largest
   difference of an element if that is more. */
static double differ(const float *a, const float *b, size_t floats)
{
    double worst = 0;
    for (size_t at = 0; at < floats; at += 64) {
        double square = 0, most = 0, all = 0;
        for (size_t i = at; i < at + 64; i++) {
            double off = fabs((double)a[i] - (double)b[i]);
            square += (double)a[i] * (double)a[i];
            all += off * off;
            most = off > most ? off : most;
        }
        double now = fmax(sqrt(all / square), most / 3 / sqrt(square / 64));
        worst = now > worst || now != now ? now : worst;
    }
    return worst;
}

/* Both backends, all sizes. */
static void compare(const char *name, const char *path, double bound)
{
    static const uint32_t sizes[][2] = { { 64, 64 }, { 400, 300 }, { 300, 400 }, { 640, 40 }, { 40, 640 }, { 1, 1 },
                                         { 637, 511 } };
    static const uint32_t slices[] = { 0, 7, 150 }; /* at once, in slices of two lengths */
    static float once[EXL2__COUNT(rows)];
    engine_of cpu = open_on(EXL2_BACKEND_CPU, path), gpu[EXL2__COUNT(slices)];
    double worst = 0;
    for (uint32_t k = 0; k < EXL2__COUNT(slices); k++) {
        gpu[k] = open_on(EXL2_BACKEND_CUDA, path);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(sizes); i += few ? 3 : 1) {
        exl2_error why, other;
        uint8_t first = pixels[0];
        size_t floats = encode(&cpu, sizes[i][0], sizes[i][1], 0, wanted, &why);
        for (uint32_t k = 0; k < EXL2__COUNT(slices); k++) {
            pixels[0] = first;
            size_t got = encode(&gpu[k], sizes[i][0], sizes[i][1], slices[k], rows, &other);
            CHECK_INT(got, floats);
            CHECK_INT(other.code, why.code);
            if (k == 0 && got) {
                double off = differ(wanted, rows, floats);
                worst = off > worst || off != off ? off : worst;
                memcpy(once, rows, floats * sizeof *rows);
            }
            CHECK(memcmp(once, rows, floats * sizeof *rows) == 0);
        }
        pixels[0] = (uint8_t)(first + 1);
    }
    if (!CHECK(worst < bound)) {
        printf("  %s\n", name);
    }
    printf("%s: rows within %.2g of the CPU's\n", name, worst);
    exl2_close(cpu.e);
    for (uint32_t k = 0; k < EXL2__COUNT(slices); k++) {
        exl2_close(gpu[k].e);
    }
}

/* ---- large weights ---- */

/* Copies a folder; halves of tensors whose names have one of the parts are multiplied by 2^by. */
static void copy_scaled(const char *from, const char *to, const char *const *parts, uint32_t by)
{
    static const char *const files[] = { "config.json", "preprocessor_config.json", "processor_config.json",
                                         "tokenizer.json", "tokenizer_config.json", "model.safetensors" };
    char path[1200];
    uint32_t changed = 0;
    mkdir(to, 0755);
    for (uint32_t f = 0; f < EXL2__COUNT(files); f++) {
        size_t bytes = 0;
        snprintf(path, sizeof path, "%s/%s", from, files[f]);
        if (access(path, R_OK) != 0) {
            continue;
        }
        uint8_t *data = (uint8_t *)check_read(path, &bytes);
        uint64_t head = 0;
        if (strcmp(files[f], "model.safetensors") == 0) {
            memcpy(&head, data, 8);
        }
        char *at = (char *)data + 8, *end = at + head;
        while (head && (at = strstr(at, "\"data_offsets\":[")) != NULL && at < end) {
            unsigned long long begin, stop;
            char *name = at, *over;
            while (*name != '{') {
                name--;
            }
            over = name--;
            while (name > (char *)data + 8 && strncmp(name, ",\"", 2) != 0 && strncmp(name, "{\"", 2) != 0) {
                name--;
            }
            at += 16;
            CHECK_INT(sscanf(at, "%llu,%llu", &begin, &stop), 2);
            bool scaled = false;
            for (uint32_t i = 0; parts[i]; i++) {
                char *found = strstr(name, parts[i]);
                scaled = scaled || (found && found < over);
            }
            changed += scaled;
            for (unsigned long long i = begin; scaled && i < stop; i += 2) {
                uint16_t half;
                memcpy(&half, data + 8 + head + i, 2);
                uint32_t exponent = half >> 10 & 31;
                exponent = exponent == 0 ? 0 : exponent + by < 30 ? exponent + by : 30;
                half = (uint16_t)((half & 0x83FF) | exponent << 10);
                memcpy(data + 8 + head + i, &half, 2);
            }
        }
        snprintf(path, sizeof path, "%s/%s", to, files[f]);
        FILE *out = fopen(path, "wb");
        CHECK(out && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0);
        free(data);
    }
    CHECK(changed > 0);
}

static void test_gains(void)
{
    static const char *const mlp[] = { "mlp.up_proj", "mlp.fc1", "feed_forward.up_proj", "mlp.linear_fc1", NULL };
    static const char *const values[] = { "self_attn.v_proj", "attention.v_proj", NULL };
    static const char *const both[] = { "visual.blocks.0.mlp.up_proj", "visual.blocks.0.mlp.gate_proj",
                                        "visual.blocks.0.norm2", NULL };
    static const char *const folders[] = { "qwen2.5-vl", "gemma3", "pixtral", "smolvlm" };
    char from[1000], to[] = "/tmp/exl2-towers-gain", name[64];
    for (uint32_t i = 0; i < EXL2__COUNT(folders); i++) {
        char folder[100];
        snprintf(folder, sizeof folder, "fixtures/vision/%s", folders[i]);
        snprintf(from, sizeof from, "%s", check_shared(folder));
        for (uint32_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s, %s times 2^15", folders[i], k ? "v" : "up");
            copy_scaled(from, to, k ? values : mlp, 15);
            compare(name, to, ROWS_BOUND);
        }
    }
    /* Products of gate and up beyond any half: an error with a sentence. */
    exl2_error why;
    copy_scaled(check_shared("fixtures/vision/qwen2.5-vl"), to, both, 15);
    engine_of gpu = open_on(EXL2_BACKEND_CUDA, to);
    CHECK_INT(encode(&gpu, 64, 64, 0, rows, &why), 0);
    CHECK_INT(why.code, EXL2_ERR_FORMAT);
    exl2_close(gpu.e);
}

int main(int argc, char **argv)
{
    few = argc > 1 && strcmp(argv[1], "few") == 0;
    static const char *const folders[] = { "smolvlm", "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "gemma3", "pixtral",
                                           "mistral3", "llava-clip" };
    char path[1000];
    for (uint32_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    for (uint32_t i = 0; i < EXL2__COUNT(folders); i += few ? 2 : 1) {
        char file[100];
        snprintf(file, sizeof file, "fixtures/vision/%s/config.json", folders[i]);
        snprintf(path, sizeof path, "%s", check_shared(file));
        *strrchr(path, '/') = 0;
        compare(folders[i], path, ROWS_BOUND);
    }
    if (!few) {
        test_gains();
    }
    return check_done();
}
