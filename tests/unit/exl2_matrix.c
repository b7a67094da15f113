/* exl2_matrix.c: matrices of real and hand-made files, decoded through our description, compared bit for bit with
   ExLlamaV2's own values. Every check of a matrix is tested by a model with one thing wrong. */
#define EXL2__MATRIX_SCALES_READ 48u /* one group of 64 outputs, three of 32 */

#include "private/hash.h"
#include "../matrix_decode.h"
#include "../memory_files.h"
#include "../model_maker.h"
#include "../tensors_open.h"

/* ---- goldens ---- */

#ifndef EXL2_GOLDEN_DIR
#define EXL2_GOLDEN_DIR "tests/golden"
#endif

/* As check_shared, but never skips: half of this test needs no shared data. */
static const char *shared_file(const char *relative)
{
    static char path[1024];
    const char *root = check_env("EXL2_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", relative);
    return path;
}

static void plain_context(exl2__ctx *c)
{
    memset(c, 0, sizeof *c);
    c->allocator = exl2__platform_allocator();
    c->files = exl2__platform_files();
}

/* A folder with its own dequant.safetensors (in one table: the names do not clash). */
static void check_fixture(const char *name)
{
    char relative[128];
    snprintf(relative, sizeof relative, "fixtures/exl2/%s", name);
    exl2__ctx c;
    exl2__tensors t;
    plain_context(&c);
    if (!CHECK_INT(tensors_open(&c, shared_file(relative), &t), EXL2_OK)) {
        printf("  %s\n", c.error.text);
        return;
    }
    uint32_t matrices = 0;
    for (uint32_t i = 0; i < t.count; i++) {
        const exl2__tensor *golden = &t.entries[i];
        if (!exl2__tensors_find_part(&t, golden->name, "q_weight")) {
            continue;
        }
        uint32_t in = (uint32_t)golden->dims[0], out = (uint32_t)golden->dims[1];
        out = strcmp(name, "exl2-odd-vocab") == 0 && strcmp(golden->name, "lm_head") == 0 ? 301 : out;
        exl2__matrix_desc desc;
        uint16_t *matrix = matrix_load(&c, &t, golden->name, in, out, &desc);
        uint16_t *wanted = (uint16_t *)malloc(golden->bytes);
        CHECK_INT(exl2__tensors_read(&c, &t, golden, 0, wanted, golden->bytes), EXL2_OK);
        CHECK_INT(golden->bytes, (uint64_t)desc.in * desc.out_stored * 2);
        if (!CHECK(matrix && memcmp(matrix, wanted, golden->bytes) == 0)) {
            printf("  %s: %s differs\n", name, golden->name);
        }
        CHECK_INT(desc.has_bias, strcmp(name, "exl2-attn-bias") == 0 && strstr(golden->name, "self_attn") != NULL);
        matrices++;
        free(matrix);
        free(wanted);
    }
    CHECK_INT(matrices, 15);
    exl2__tensors_close(&c, &t);
    CHECK_INT(c.host_bytes, 0);
}

/* The copy of exl2-mixed in the repository. Its lines, "key in out hash", were made from the same
   dequant.safetensors. */
static void check_copy(void)
{
    exl2__ctx c;
    exl2__tensors t;
    plain_context(&c);
    CHECK_INT(tensors_open(&c, EXL2_GOLDEN_DIR "/models/exl2-mixed", &t), EXL2_OK);
    char *lines = check_read(EXL2_GOLDEN_DIR "/exl2-mixed-dequant.txt", NULL), key[128];
    uint32_t in, out, matrices = 0;
    unsigned long long hash;
    for (char *line = lines; sscanf(line, "%127s %u %u %llx", key, &in, &out, &hash) == 4; line = strchr(line,
                                                                                                         '\n') + 1) {
        exl2__matrix_desc desc;
        uint16_t *matrix = matrix_load(&c, &t, key, in, out, &desc);
        if (!CHECK(matrix && exl2__hash(matrix, (size_t)in * out * 2) == hash)) {
            printf("  %s differs\n", key);
        }
        free(matrix);
        matrices++;
    }
    CHECK_INT(matrices, 15);
    free(lines);
    exl2__tensors_close(&c, &t);
}

static void check_real_model(const char *folder)
{
    static const struct { const char *key; uint32_t in, out; } layers[] = {
        { "model.layers.0.self_attn.q_proj", 576, 576 }, { "model.layers.0.self_attn.v_proj", 576, 192 },
        { "model.layers.15.mlp.down_proj", 1536, 576 }, { "model.layers.29.mlp.gate_proj", 576, 1536 },
        { "lm_head", 576, 49152 },
    };
    exl2__ctx c;
    exl2__tensors t;
    plain_context(&c);
    CHECK_INT(tensors_open(&c, folder, &t), EXL2_OK);
    for (size_t i = 0; i < EXL2__COUNT(layers); i++) {
        const char *module = strncmp(layers[i].key, "model.", 6) == 0 ? layers[i].key + 6 : layers[i].key;
        char relative[160];
        snprintf(relative, sizeof relative, "fixtures/smollm2-4.0bpw/dequant.%s.f16", module);
        size_t bytes;
        char *wanted = check_read(shared_file(relative), &bytes);
        size_t columns = bytes / 2 / layers[i].in; /* of lm_head, only the first 1,024 are stored */
        exl2__matrix_desc desc;
        uint16_t *matrix = matrix_load(&c, &t, layers[i].key, layers[i].in, layers[i].out, &desc);
        bool same = matrix != NULL && columns > 0 && columns <= desc.out_stored;
        for (uint32_t row = 0; same && row < layers[i].in; row++) {
            same = memcmp(matrix + (size_t)row * desc.out_stored, wanted + (size_t)row * columns * 2, columns * 2) == 0;
        }
        if (!CHECK(same)) {
            printf("  %s differs\n", layers[i].key);
        }
        free(matrix);
        free(wanted);
    }
    exl2__tensors_close(&c, &t);
}

/* A worked example of the format: 96 inputs, column 0 of 32; all numbers are computed by hand. */
static void check_worked_example(bool short_perm)
{
    static const uint32_t column[10] = { 0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b, 0x53977053,
                                         0x70539770, 0x97705397, 0x53977053, 0x70539770, 0x97705397 };
    static const uint8_t groups[] = { 4, 0, 0, 0, 3, 0, 4, 0 }, scale_max[] = { 0x66, 0x2a, 0x25, 0x22 };
    static const struct { uint32_t row; uint16_t value; } wanted[] = {
        { 37, 0xae40 }, { 18, 0x2900 }, { 95, 0xb060 }, { 24, 0x2d00 }, { 5, 0x8ee8 }, { 82, 0x92e8 }, { 56, 0 },
    };
    uint8_t weight[10 * 32 * 4] = { 0 }, scale[2 * 4 * 4] = { 0 }, perm[96 * 4];
    for (uint32_t w = 0; w < 10; w++) {
        maker_store(weight + w * 32 * 4, column[w], 4);
    }
    scale[0] = 9;
    scale[16] = 2;
    size_t size = short_perm ? 2 : 4;
    for (uint32_t j = 0; j < 96; j++) {
        maker_store(perm + size * j, (5 * j + 7) % 96, size);
    }
    maker m = { 0 };
    maker_add(&m, "example", "q_weight", "I32", 10, 32, sizeof weight, weight);
    maker_add(&m, "example", "q_scale", "I32", 2, 4, sizeof scale, scale);
    maker_add(&m, "example", "q_scale_max", "F16", 2, 0, sizeof scale_max, scale_max);
    maker_add(&m, "example", "q_groups", "I16", 4, 0, sizeof groups, groups);
    maker_add(&m, "example", "q_invperm", short_perm ? "I16" : "I32", 96, 0, 96 * size, perm);
    size_t bytes;
    uint8_t *file = maker_file(&m, &bytes);
    memory_files files;
    memory_make(&files);
    memory_add(&files, "example.safetensors", file, bytes);
    exl2__tensors t;
    exl2__matrix_desc desc;
    CHECK_INT(tensors_open(&files.c, "folder", &t), EXL2_OK);
    uint16_t *matrix = matrix_load(&files.c, &t, "example", 96, 32, &desc);
    if (CHECK(matrix != NULL)) {
        for (size_t i = 0; i < EXL2__COUNT(wanted); i++) {
            CHECK_INT(matrix[wanted[i].row * 32], wanted[i].value);
        }
        double sum = 0, weighted = 0;
        for (uint32_t j = 0; j < 96; j++) {
            sum += exl2__f16_to_f32(matrix[j * 32]);
            weighted += (double)j * exl2__f16_to_f32(matrix[j * 32]);
        }
        CHECK(sum == -0.32598876953125);
        CHECK(weighted == -14.7908935546875);
    }
    free(matrix);
    exl2__tensors_close(&files.c, &t);
    memory_free(&files);
    free(file);
    maker_free(&m);
}

/* ---- checks: one thing wrong each ---- */

/* The groups read alone equal those read with all tables, and reading them rejects nothing that reading all tables
   accepts. */
static void check_groups(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *whole, exl2_result all)
{
    exl2__matrix_desc desc = *whole;
    uint64_t bytes = exl2__matrix_groups_bytes(whole);
    exl2__arena arena = { .base = (uint8_t *)malloc((size_t)bytes + 1), .size = bytes };
    desc.groups = NULL;
    exl2_result result = exl2__matrix_groups_read(c, t, &desc, &arena);
    CHECK(result == EXL2_OK || result == all);
    if (all == EXL2_OK && desc.kind != EXL2__MATRIX_DENSE) {
        CHECK(memcmp(desc.groups, whole->groups, desc.group_count * sizeof *desc.groups) == 0);
    }
    CHECK(desc.kind != EXL2__MATRIX_DENSE || desc.groups == NULL);
    CHECK_INT(arena.used, bytes);
    free(arena.base);
}

/* With slices that are used up at once, the scales are read a few groups at a time, and are the same. */
static void check_slices(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *whole)
{
    exl2__matrix_desc desc = *whole;
    exl2__matrix_tables tables = { .memory = { .size = exl2__matrix_tables_bytes(whole) } };
    tables.memory.base = (uint8_t *)malloc(tables.memory.size);
    CHECK_INT(exl2__matrix_tables_begin(c, t, 1.0f, &desc, &tables), EXL2_OK);
    memset(tables.scale_codes, 0, desc.group_count * (desc.out_stored / 8) * sizeof *tables.scale_codes);
    uint32_t slices = 0;
    exl2_result result = EXL2_PENDING;
    for (; result == EXL2_PENDING; slices++) {
        exl2__work work = { 1 };
        result = exl2__matrix_tables_slice(c, t, &desc, &tables, &work);
    }
    CHECK_INT(result, EXL2_OK);
    uint32_t in_read = exl2__max32(EXL2__MATRIX_SCALES_READ * 2 / desc.out_stored, 1);
    CHECK_INT(slices, exl2__div_up(desc.group_count, in_read));
    CHECK(memcmp(desc.scale_codes, whole->scale_codes,
                 desc.group_count * (desc.out_stored / 8) * sizeof *desc.scale_codes) == 0);
    free(tables.memory.base);
}

/* The result for the matrix model.layers.0.mlp.gate_proj [64 -> 64] of a model_maker.h model. */
static exl2_result try_matrix(maker *m, memory_files *files, float prescale, exl2__matrix_desc *desc,
                              uint16_t *first_scale)
{
    size_t bytes;
    uint8_t *file = maker_file(m, &bytes);
    memory_make(files);
    memory_add(files, "m.safetensors", file, bytes);
    exl2__tensors t;
    exl2__matrix_tables tables;
    exl2_result result = tensors_open(&files->c, "folder", &t);
    if (result >= 0) {
        uint64_t before = files->c.host_bytes;
        result = exl2__matrix_find(&files->c, &t, "model.layers.0.mlp.gate_proj", 64, 64, desc);
        CHECK_INT(files->c.host_bytes, before);
        if (result >= 0) {
            result = exl2__matrix_tables_open(&files->c, &t, prescale, desc, &tables);
            CHECK_INT(files->c.host_bytes - before, result < 0 ? 0 : exl2__matrix_tables_bytes(desc));
            if (result >= 0 && first_scale) {
                *first_scale = desc->kind == EXL2__MATRIX_EXL2 ? desc->scale_max[0] : 0;
            }
            if (result >= 0 && desc->kind == EXL2__MATRIX_EXL2) {
                uint32_t warnings = files->warnings;
                check_slices(&files->c, &t, desc);
                files->warnings = warnings; /* of the first reading */
            }
            exl2_error error = files->c.error;
            check_groups(&files->c, &t, desc, result);
            files->c.error = error;
            exl2__matrix_tables_close(&files->c, &tables);
        }
        exl2__tensors_close(&files->c, &t);
    }
    free(file);
    return result;
}

#define GATE(part) maker_find(&m, "mlp.gate_proj." part)

/* Makes a valid model, runs `spoil` on it, and expects an error with both pieces in its message. */
#define BAD(spoil, code, piece, other)                                           \
    do {                                                                         \
        maker m;                                                                 \
        memory_files files;                                                      \
        exl2__matrix_desc desc;                                                  \
        maker_make(&m);                                                          \
        spoil;                                                                   \
        CHECK_INT(try_matrix(&m, &files, 1.0f, &desc, NULL), code);              \
        check_error(&files.c, piece, other, #spoil);                             \
        memory_free(&files);                                                     \
        maker_free(&m);                                                          \
    } while (0)

static void resize(maker_tensor *t, size_t bytes)
{
    t->data = (uint8_t *)realloc(t->data, bytes ? bytes : 1);
    memset(t->data, 0, bytes);
    t->bytes = bytes;
}

static void check_headers(void)
{
    BAD(maker_drop(&m, "mlp.gate_proj.q_scale_max"), EXL2_ERR_FORMAT, "incomplete EXL2 tensor set", "q_scale_max");
    BAD(maker_drop(&m, "mlp.gate_proj.q_weight"), EXL2_ERR_FORMAT, "model.layers.0.mlp.gate_proj", "missing q_weight");
    BAD(strcpy(GATE("q_scale_max")->dtype, "BF16"), EXL2_ERR_FORMAT, "expected F16 of rank 1", "found BF16");
    BAD(strcpy(GATE("q_groups")->dtype, "U16"), EXL2_ERR_FORMAT, "m.safetensors", "q_groups: expected I16");
    BAD((GATE("q_invperm")->dims[1] = 1, GATE("q_invperm")->rank = 2), EXL2_ERR_FORMAT,
        "q_invperm: expected I32 of rank 1", "of rank 2");
    BAD((GATE("q_groups")->dims[0] = 2, resize(GATE("q_groups"), 4)), EXL2_ERR_FORMAT, "group tables disagree",
        "2 values");
    BAD((GATE("q_scale")->dims[1] = 4, resize(GATE("q_scale"), 32)), EXL2_ERR_FORMAT, "rows of q_scale have 4 words",
        "64 columns");
    BAD((GATE("q_weight")->dims[1] = 32, GATE("q_scale")->dims[1] = 4, resize(GATE("q_weight"), 7 * 32 * 4),
         resize(GATE("q_scale"), 32)),
        EXL2_ERR_FORMAT, "q_weight has 32 outputs", "expected 64");
    BAD((GATE("q_invperm")->dims[0] = 32, resize(GATE("q_invperm"), 128)), EXL2_ERR_FORMAT, "q_invperm has 32 inputs",
        "expected 64");
    BAD((GATE("q_weight")->dims[0] = 17, resize(GATE("q_weight"), 17 * 64 * 4)), EXL2_ERR_FORMAT, "17 word rows",
        "64 inputs");
    BAD(strcpy(GATE("q_weight")->name, "model.layers.0.mlp.gate_proj.qweight"), EXL2_ERR_FORMAT, "incomplete",
        "missing q_weight");
    BAD((maker_drop(&m, "gate_proj.q_weight"), maker_drop(&m, "gate_proj.q_scale"),
         maker_drop(&m, "gate_proj.q_scale_max"),
         maker_drop(&m, "gate_proj.q_groups"), maker_drop(&m, "gate_proj.q_invperm"),
         maker_add(&m, "model.layers.0.mlp.gate_proj", "qweight", "I32", 8, 64, 8 * 64 * 4, NULL)),
        EXL2_ERR_FORMAT, "incomplete GPTQ or AWQ tensor set", "missing qzeros");
    BAD((maker_drop(&m, "gate_proj.q_weight"), maker_drop(&m, "gate_proj.q_scale"),
         maker_drop(&m, "gate_proj.q_scale_max"),
         maker_drop(&m, "gate_proj.q_groups"), maker_drop(&m, "gate_proj.q_invperm")),
        EXL2_ERR_FORMAT, "neither .q_weight, .qweight, .trellis nor .weight", "gate_proj");
    BAD((maker_drop(&m, "gate_proj.q_weight"), maker_drop(&m, "gate_proj.q_scale"),
         maker_drop(&m, "gate_proj.q_scale_max"),
         maker_drop(&m, "gate_proj.q_groups"), maker_drop(&m, "gate_proj.q_invperm"),
         maker_add_halves(&m, "model.layers.0.mlp.gate_proj", 64, 63)),
        EXL2_ERR_FORMAT, "shape [64, 63]", "[64, 64]");
    BAD(maker_add(&m, "model.layers.0.mlp.gate_proj", "bias", "F16", 63, 0, 126, NULL), EXL2_ERR_FORMAT,
        "gate_proj.bias", "expected [64]");
    BAD(maker_add(&m, "model.layers.0.mlp.gate_proj", "bias", "I32", 64, 0, 256, NULL), EXL2_ERR_FORMAT,
        "gate_proj.bias", "found I32");
}

static void check_tables(void)
{
    BAD(GATE("q_groups")->data[0] = 7, EXL2_ERR_FORMAT, "group 0 has unsupported width 7", "gate_proj");
    BAD(GATE("q_groups")->data[1] = 1, EXL2_ERR_FORMAT, "group 0 has unsupported width 260", "gate_proj");
    BAD(GATE("q_groups")->data[4] = 0, EXL2_ERR_FORMAT, "group 1 has unsupported width 0", "gate_proj");
    BAD((GATE("q_groups")->data[0] = 3, GATE("q_groups")->data[4] = 4), EXL2_ERR_FORMAT, "fractional number of rows",
        "group 0");
    BAD((GATE("q_groups")->data[0] = 3, GATE("q_groups")->data[4] = 4, GATE("q_groups")->data[6] = 3), EXL2_ERR_FORMAT,
        "not in descending order", "group 1 has 4 after 3");
    BAD(GATE("q_groups")->data[2] = 1, EXL2_ERR_FORMAT, "group 0 starts at packed row 1", "gate_proj");
    BAD(GATE("q_groups")->data[6] = 0, EXL2_ERR_FORMAT, "group 0 starts at packed row 0", "next at 0");
    BAD(GATE("q_groups")->data[6] = 9, EXL2_ERR_FORMAT, "next at 9", "past end 7");
    BAD((GATE("q_weight")->dims[0] = 4, resize(GATE("q_weight"), 4 * 64 * 4)), EXL2_ERR_FORMAT,
        "group 1 starts at packed row 4",
        "past end 4");
    BAD(GATE("q_groups")->data[6] = 3, EXL2_ERR_FORMAT, "group 0 covers a fractional number of rows",
        "3 words of 4-bit");
    BAD((GATE("q_groups")->data[0] = 2, GATE("q_groups")->data[4] = 2, GATE("q_groups")->data[6] = 2), EXL2_ERR_FORMAT,
        "group 1 covers a fractional number of rows", "gate_proj");
    BAD((GATE("q_groups")->data[0] = 2, GATE("q_groups")->data[4] = 2, GATE("q_weight")->dims[0] = 6,
         GATE("q_groups")->data[6] = 2,
         resize(GATE("q_weight"), 6 * 64 * 4)), EXL2_ERR_FORMAT, "q_groups has 96 inputs", "expected 64");
    BAD(maker_store(GATE("q_scale_max")->data + 2, 0x7e00, 2), EXL2_ERR_FORMAT, "scale of group 1 is NaN", "0x7e00");
    BAD(maker_store(GATE("q_scale_max")->data, 0x7c00, 2), EXL2_ERR_FORMAT, "scale of group 0 is infinite",
        "gate_proj");
    BAD(maker_store(GATE("q_scale_max")->data, 0x8001, 2), EXL2_ERR_FORMAT, "scale of group 0 is negative",
        "gate_proj");
    BAD(maker_store(GATE("q_invperm")->data + 4 * 3, 64, 4), EXL2_ERR_FORMAT, "not a permutation (value 64 at 3",
        "out of range");
    BAD(maker_store(GATE("q_invperm")->data + 4 * 3, 0xFFFFFFFF, 4), EXL2_ERR_FORMAT, "value -1 at 3", "out of range");
    BAD(maker_store(GATE("q_invperm")->data + 4 * 63, 7, 4), EXL2_ERR_FORMAT, "value 7 at 63", "seen before");
    BAD(maker_store(maker_add(&m, "model.layers.0.mlp.gate_proj", "bias", "F32", 64, 0, 256, NULL)->data, 0x7f800000,
                    4),
        EXL2_ERR_FORMAT, "gate_proj.bias", "value 0 is not finite");
}

static void check_good(void)
{
    maker m;
    memory_files files;
    exl2__matrix_desc desc;
    uint16_t scale = 0;
    maker_make(&m);
    CHECK_INT(try_matrix(&m, &files, 1.0f, &desc, &scale), EXL2_OK);
    CHECK_INT(scale, 0x0a66); /* 0x2a66 / 256, exact */
    CHECK_INT(files.warnings, 0);
    CHECK(desc.kind == EXL2__MATRIX_EXL2 && !desc.has_bias);
    CHECK_INT(desc.group_count, 2);
    CHECK_INT(desc.words, 7);
    memory_free(&files);
    CHECK_INT(try_matrix(&m, &files, 0.125f, &desc, &scale), EXL2_OK);
    CHECK_INT(scale, 410); /* 0x2a66 / 2048 = 409.5 units of 2^-24, ties to even */
    memory_free(&files);
    maker_store(maker_find(&m, "mlp.gate_proj.q_scale_max")->data, 0, 2);
    CHECK_INT(try_matrix(&m, &files, 1.0f, &desc, &scale), EXL2_OK);
    CHECK_INT(files.warnings, 1);
    CHECK_INT(files.warning_id, EXL2_LOG_ID_ZERO_SCALES);
    memory_free(&files);
    maker_free(&m);
}

/* Dense matrices of all three types, a bias, the token table, and blocks of mixed kind. */
static void check_dense(void)
{
    maker m = { 0 };
    static const uint8_t bias[] = { 0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00 }; /* 1, -2, 2^-24 */
    m.state = 7;
    maker_add_exl2(&m, "quantized", 64);
    maker_add_halves(&m, "half", 3, 5);
    maker_add(&m, "half", "bias", "F16", 3, 0, sizeof bias, bias);
    maker_add(&m, "brain", "weight", "BF16", 3, 5, 30, NULL);
    maker_add(&m, "single", "weight", "F32", 3, 5, 60, NULL);
    maker_add(&m, "integer", "weight", "I32", 3, 5, 60, NULL);
    maker_add(&m, "table", "weight", "F16", 70, 5, 700, NULL);
    size_t bytes;
    uint8_t *file = maker_file(&m, &bytes);
    memory_files files;
    memory_make(&files);
    exl2__ctx *c = &files.c;
    memory_add(&files, "m.safetensors", file, bytes);
    exl2__tensors t;
    exl2__matrix_desc half, other;
    exl2__matrix_tables tables;
    CHECK_INT(tensors_open(c, "folder", &t), EXL2_OK);
    CHECK_INT(exl2__matrix_find(c, &t, "half", 5, 3, &half), EXL2_OK);
    CHECK(half.kind == EXL2__MATRIX_DENSE && half.has_bias && half.dtype == EXL2__F16 && half.out_stored == 32);
    CHECK_INT(exl2__matrix_tables_open(c, &t, 1.0f, &half, &tables), EXL2_OK);
    CHECK(half.bias[0] == 1.0f && half.bias[1] == -2.0f && half.bias[2] == 1.0f / 16777216.0f);
    exl2__matrix_tables_close(c, &tables);
    exl2__matrix_tables_close(c, &tables);
    CHECK_INT(exl2__matrix_find(c, &t, "brain", 5, 3, &other), EXL2_OK);
    CHECK_INT(other.dtype, EXL2__BF16);
    CHECK_INT(exl2__matrix_find(c, &t, "single", 5, 3, &other), EXL2_OK);
    CHECK_INT(other.dtype, EXL2__F32);
    CHECK_INT(exl2__matrix_tables_open(c, &t, 1.0f, &other, &tables), EXL2_OK);
    CHECK(other.bias == NULL && tables.memory.base == NULL);
    CHECK_INT(exl2__matrix_find(c, &t, "integer", 5, 3, &other), EXL2_ERR_FORMAT);
    check_error(c, "integer.weight", "found I32", "integer");
    CHECK_INT(exl2__matrix_find_table(c, &t, "table", 5, 64, &other), EXL2_OK);
    CHECK(other.kind == EXL2__MATRIX_DENSE && other.out == 70 && other.in == 5);
    CHECK_INT(exl2__matrix_find_table(c, &t, "table", 6, 64, &other), EXL2_ERR_FORMAT);
    CHECK_INT(exl2__matrix_find_table(c, &t, "quantized", 64, 64, &other), EXL2_ERR_FORMAT);
    CHECK(exl2__matrix_exists(&t, "quantized") && exl2__matrix_exists(&t, "half") &&
          !exl2__matrix_exists(&t, "lm_head"));
    CHECK_INT(exl2__matrix_find(c, &t, "quantized", 64, 64, &other), EXL2_OK);
    exl2__tensors_close(c, &t);
    memory_free(&files);
    free(file);
    maker_free(&m);
}

int main(void)
{
    static const char *const fixtures[] = { "exl2-2bit", "exl2-3bit", "exl2-4bit", "exl2-5bit", "exl2-6bit",
                                            "exl2-8bit",
                                            "exl2-mixed", "exl2-ragged", "exl2-attn-bias", "exl2-odd-vocab",
                                           "exl2-qwen3" };
    check_worked_example(false);
    check_worked_example(true);
    check_good();
    check_headers();
    check_tables();
    check_dense();
    check_copy();
    FILE *shared = fopen(shared_file("fixtures/README.md"), "rb");
    if (!shared) {
        printf("without shared data (EXL2_TEST_DATA): goldens of the repository only\n");
        return check_done();
    }
    fclose(shared);
    for (size_t i = 0; i < EXL2__COUNT(fixtures); i++) {
        check_fixture(fixtures[i]);
    }
    const char *model = getenv("EXL2_TEST_MODEL");
    if (model && *model) {
        check_real_model(model);
    } else {
        printf("without the real model (EXL2_TEST_MODEL)\n");
    }
    return check_done();
}
