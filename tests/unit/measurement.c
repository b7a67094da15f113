/* measurement.c: measurement.json: a conversion with it gives the bytes that one without it gives; its layouts for
   ExLlamaV2, whose rule for rows and bits is written down here again, are what they say; foreign and damaged files. */
#define _POSIX_C_SOURCE 200809L
#define EXL2_CONVERT
#include "private/json.h"
#include "private/file.h"
#include "../convert_rig.h"

#include <math.h>
#include <unistd.h>

enum { ROWS = 6, LENGTH = 32, VOCAB = 320 };

static char measured_dir[600], json_path[700], ids_path[700];

static const char *ids; /* the file of ids; NULL: that of the rig */

static exl2_result convert(const char *model, float bpw, bool measure, const char *measurement, exl2_error *error)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/models/%s", EXL2_GOLDEN_DIR, model);
    exl2_convert_desc d = rig_desc(path, ROWS, LENGTH);
    d.out_dir = measure ? measured_dir : out_dir;
    d.bpw = bpw;
    d.head_bits = 8;
    d.measure_only = measure;
    d.measurement_file = measurement;
    d.calibration_files = ids ? &ids : d.calibration_files;
    d.error = error;
    remove_folder(d.out_dir);
    return exl2_convert(&d);
}

static char *converted(const char *model, float bpw, const char *measurement, size_t *bytes)
{
    char path[700];
    exl2_error error = { 0 };
    if (!CHECK_INT(convert(model, bpw, false, measurement, &error), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    return check_read(path, bytes);
}

/* ---- ExLlamaV2's part ---- */

/* The size of a layer's matrix of any name in these models, by the first tensor of that name in the converted file. */
static bool find_shape(const char *text, const char *layer, const char *part, uint64_t *in, uint64_t *out)
{
    char key[200];
    for (const char *at = text; (at = strstr(at, layer)) != NULL; at++) {
        const char *end = strchr(at, '"');
        size_t bytes = end ? (size_t)(end - at) : 0;
        snprintf(key, sizeof key, ".%s.q_invperm", part);
        if (bytes > strlen(key) && strncmp(end - strlen(key), key, strlen(key)) == 0) {
            unsigned long long rows = 0, columns = 0;
            CHECK(sscanf(strstr(at, "\"shape\":["), "\"shape\":[%llu", &rows) == 1);
            snprintf(key, sizeof key, "%.*s.q_weight", (int)(bytes - strlen(".q_invperm")), at);
            const char *weight = strstr(text, key);
            CHECK(weight && sscanf(strstr(weight, "\"shape\":["), "\"shape\":[%*u,%llu", &columns) == 1);
            *in = rows;
            *out = columns;
            return true;
        }
    }
    return false;
}

/* Bits of one matrix of a layout (ExLlamaV2's converter, "group layout from an option" and "bit accounting"). */
static uint64_t part_bits(const exl2__json *j, uint32_t part, uint64_t in, uint64_t out, bool bias)
{
    uint32_t bits = exl2__json_get(j, part, "bits"), shares = exl2__json_get(j, part, "bits_prop");
    uint32_t sizes = exl2__json_get(j, part, "group_size"), share = exl2__json_first(j, shares);
    uint64_t left = in, total = 32 * in + (bias ? 16 * out : 0), last = 9;
    double sum = 0;
    CHECK_INT(j->tokens[bits].count, j->tokens[shares].count);
    for (uint32_t at = exl2__json_first(j, bits); at; at = exl2__json_next(j, bits, at)) {
        uint64_t width = 0, size = 0;
        double p = 0;
        char name[8];
        CHECK(exl2__json_u64(j, at, &width) && width < last && exl2__json_f64(j, share, &p));
        snprintf(name, sizeof name, "%u", (unsigned)width);
        CHECK(exl2__json_u64(j, exl2__json_get(j, sizes, name), &size) && size == 32);
        uint64_t groups = (uint64_t)ceil(fmin((double)in * p, (double)left) / 32);
        CHECK(groups * 32 <= left && groups > 0);
        left -= groups * 32;
        total += groups * (32 * out * width + 48 + 4 * out);
        last = width;
        sum += p;
        share = exl2__json_next(j, shares, share);
    }
    CHECK(left == 0 && sum == 1.0);
    return total;
}

/* All layouts of a module. layer: such as "layers.0."; experts: how often each matrix counts. */
static void check_module(const exl2__json *j, uint32_t list, const char *text, const char *layer, uint32_t experts)
{
    uint64_t before = 0;
    double worse = 0;
    CHECK(j->tokens[list].kind == EXL2__JSON_ARRAY && j->tokens[list].count > 7 && j->tokens[list].count <= 20);
    for (uint32_t at = exl2__json_first(j, list); at; at = exl2__json_next(j, list, at)) {
        uint64_t total = 0, bits = 0, in = 0, out = 0;
        double accuracy = 0;
        CHECK(exl2__json_f64(j, exl2__json_get(j, at, "accuracy"), &accuracy) && accuracy > 0 && accuracy <= 1);
        CHECK(exl2__json_u64(j, exl2__json_get(j, at, "total_bits"), &total) && total > before && accuracy >= worse);
        for (uint32_t key = exl2__json_first(j, at); key; key = exl2__json_next(j, at, key)) {
            const exl2__json_token *name = &j->tokens[key];
            char part[64];
            snprintf(part, sizeof part, "%.*s", (int)(name->end - name->begin), j->text + name->begin);
            if (j->tokens[key + 1].kind == EXL2__JSON_OBJECT) {
                const char *stored = strcmp(part, "w1") == 0 ? "gate_proj" : strcmp(part, "w2") == 0 ? "down_proj"
                                   : strcmp(part, "w3") == 0 ? "up_proj" : part;
                if (CHECK(find_shape(text, layer, stored, &in, &out))) {
                    bits += part_bits(j, key + 1, in, out, false) * experts;
                }
            }
        }
        CHECK_INT(bits, total);
        before = total;
        worse = accuracy;
    }
}

static void check_layouts(const char *model, const char *text, bool parallel, uint32_t experts)
{
    exl2__ctx c = { 0 };
    exl2__json j;
    size_t bytes;
    char *file = check_read(json_path, &bytes);
    c.allocator = exl2__platform_allocator();
    CHECK_INT(exl2__json_open(&c, "measurement.json", file, bytes, &j), EXL2_OK);
    uint32_t all = exl2__json_get(&j, 0, "measurement");
    printf("%s: %u modules\n", model, j.tokens[all].count);
    for (uint32_t layer = 0; layer < 2; layer++) {
        char key[64], part[32];
        snprintf(part, sizeof part, "layers.%u.", layer);
        snprintf(key, sizeof key, "model.layers.%u.%s", layer, parallel ? "parallel_decoder" : "self_attn");
        uint32_t attention = exl2__json_get(&j, all, key);
        snprintf(key, sizeof key, "model.layers.%u.%s", layer, experts > 1 ? "block_sparse_moe" : "mlp");
        uint32_t mlp = parallel ? exl2__json_get(&j, attention, "mlp") : exl2__json_get(&j, all, key);
        check_module(&j, parallel ? exl2__json_get(&j, attention, "attn") : attention, text, part, 1);
        check_module(&j, mlp, text, part, experts);
    }
    uint64_t last = 0;
    CHECK(exl2__json_u64(&j, exl2__json_get(&j, 0, "last_module_idx"), &last) && last == (parallel ? 4 : 6));
    exl2__json_close(&c, &j);
    free(file);
}

static void test_measured(const char *model, bool parallel, uint32_t experts)
{
    exl2_error error = { 0 };
    size_t bytes, again;
    char *plain = converted(model, 4, NULL, &bytes);
    if (!CHECK_INT(convert(model, 4, true, NULL, &error), EXL2_OK)) {
        printf("  %s\n", error.text);
    }
    CHECK(access(json_path, R_OK) == 0);
    char *measured = converted(model, 4, json_path, &again);
    CHECK(bytes == again && memcmp(plain, measured, bytes) == 0);
    free(measured);
    ids = ids_path; /* the same rows */
    measured = converted(model, 4, json_path, &again);
    CHECK(bytes == again && memcmp(plain, measured, bytes) == 0);
    free(measured);
    measured = converted(model, 3, json_path, &again); /* another rate */
    ids = NULL;
    CHECK(again < bytes);
    plain[8 + exl2__load64(plain) - 1] = 0; /* the text of the header */
    check_layouts(model, plain + 8, parallel, experts);
    free(measured);
    free(plain);
}

/* Changes a piece of the file, and gives the message. */
static void check_rejected(const char *model, const char *from, const char *to, exl2_result code, const char *piece)
{
    exl2_error error = { 0 };
    size_t bytes;
    char *file = check_read(json_path, &bytes), *at = strstr(file, from), path[700];
    snprintf(path, sizeof path, "%s/changed.json", root);
    if (CHECK(at != NULL && strlen(from) == strlen(to))) {
        memcpy(at, to, strlen(to));
    }
    FILE *out = fopen(path, "wb");
    CHECK(fwrite(file, 1, bytes, out) == bytes);
    fclose(out);
    free(file);
    CHECK_INT(convert(model, 4, false, path, &error), code);
    if (!CHECK(strstr(error.text, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", error.text, piece);
    }
    snprintf(path, sizeof path, "%s.work", out_dir);
    remove_folder(path);
}

/* Without our tables the file is one that ExLlamaV2 could have written: the layouts are chosen from its lists. */
static void test_exllama(const char *model)
{
    exl2_error error = { 0 };
    exl2_convert_info info = { 0 };
    char path[700], source[640];
    size_t bytes;
    CHECK_INT(convert(model, 0, true, NULL, &error), EXL2_OK);
    char *file = check_read(json_path, &bytes), *own = strstr(file, "\"exl2_h\"");
    snprintf(path, sizeof path, "%s/changed.json", root);
    if (CHECK(own != NULL)) {
        memcpy(own, "\"exl2_x\"", 8);
    }
    FILE *out = fopen(path, "wb");
    CHECK(fwrite(file, 1, bytes, out) == bytes);
    fclose(out);
    free(file);
    for (float bpw = 4; bpw < 10; bpw += 5) {
        snprintf(source, sizeof source, "%s/models/%s", EXL2_GOLDEN_DIR, model);
        exl2_convert_desc d = rig_desc(source, ROWS, LENGTH);
        d.bpw = bpw;
        d.measurement_file = path;
        d.error = &error;
        d.info = &info;
        remove_folder(out_dir);
        if (!CHECK_INT(exl2_convert(&d), EXL2_OK)) {
            printf("  %s\n", error.text);
        }
        printf("%s at %.2f bits from ExLlamaV2's lists: KL %.4f\n", model, (double)info.bpw, info.kl);
        CHECK(info.bpw > (bpw < 5 ? 3.5f : 8) && info.bpw <= bpw && info.kl < (bpw < 5 ? 2 : 0.05));
        CHECK(strstr(info.warning, "knows nothing of what follows a module") != NULL && info.predicted_kl == 0);
        CHECK((strstr(info.warning, "more was asked for") != NULL) == (bpw > 8.5f));
        d.measure_only = true;
        d.bpw = 0;
        remove_folder(out_dir);
        CHECK_INT(exl2_convert(&d), EXL2_ERR_ARG);
        CHECK(strstr(error.text, "measure_only has nothing to add") != NULL);
        snprintf(source, sizeof source, "%s.work", out_dir);
        remove_folder(source);
    }
}

static void test_rejected(void)
{
    exl2_error error = { 0 };
    CHECK_INT(convert("qwen3", 0, true, NULL, &error), EXL2_OK);
    check_rejected("qwen3", "\"measurement\"", "\"measurexent\"", EXL2_OK, ""); /* what is ours is enough */
    check_rejected("llama3-rope", "\"exl2_h\"", "\"exl2_x\"", EXL2_ERR_ARG, "is of another model");
    check_rejected("qwen3", "\"version\": 2", "\"version\": 3", EXL2_ERR_UNSUPPORTED, "has no \"exl2_h\" of version 2");
    check_rejected("qwen3", "\"version\": 2", "\"version\": 1", EXL2_ERR_UNSUPPORTED, "does not say which weights");
    check_rejected("llama3-rope", "\"exl2_h\"", "\"exl2_h\"", EXL2_ERR_ARG, "is of another model");
    check_rejected("qwen3", "\"in\": 64", "\"in\": 32", EXL2_ERR_ARG, "is of another model: it does not have");
    check_rejected("qwen3", "\"losses\": [", "\"losses\": {", EXL2_ERR_FORMAT, "changed.json");
    check_rejected("qwen3", "\"numbers\": [", "\"numbexs\": [", EXL2_ERR_FORMAT, "not negative");
}

int main(void)
{
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(measured_dir, sizeof measured_dir, "%s/measured", root);
    snprintf(json_path, sizeof json_path, "%s/measurement.json", measured_dir);
    snprintf(ids_path, sizeof ids_path, "%s/calibration.json", measured_dir);
    test_measured("qwen3", false, 1);
    test_measured("cohere", true, 1);
    test_measured("exl2-qwen3-moe", false, 6);
    test_exllama("qwen3");
    test_exllama("exl2-qwen3-moe");
    test_rejected();
    rig_close();
    return check_done();
}
