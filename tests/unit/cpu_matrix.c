/* cpu_matrix.c: packing, compared with codes that the test packs; dequantized fixtures; products, compared with
   double; memory that is touched ahead. */
#include "cpu_paths.h"
#include "cpu_synth.h"

typedef struct bench {
    exl2__ctx c;
    exl2__device *d;
    exl2__arena arena;
} bench;

static exl2__cpu_part *pack(bench *b, const synth_matrix *m, uint32_t step)
{
    exl2__matrix *made = NULL;
    b->c.allocator = exl2__platform_allocator();
    uint64_t bytes = exl2__cpu_backend.matrix_bytes(NULL, &m->desc, 1);
    CHECK_INT(exl2__cpu_backend.open(&b->c, NULL, &b->d), EXL2_OK);
    CHECK_INT(exl2__arena_open(&b->c, &b->arena, bytes, EXL2_MEM_WEIGHTS), EXL2_OK);
    memset(b->arena.base, 0xA5, (size_t)bytes);
    CHECK_INT(exl2__cpu_backend.matrix_make(b->d, &b->arena, &m->desc, 1, &made), EXL2_OK);
    CHECK_INT(b->arena.used, bytes);
    synth_feed(&exl2__cpu_backend, b->d, made, 0, m, step);
    return exl2__cpu_matrix_of(made)->parts;
}

static void unpack(bench *b)
{
    exl2__arena_close(&b->c, &b->arena);
    exl2__cpu_backend.close(b->d);
    CHECK_INT(b->c.host_bytes, 0);
}

/* Checks every weight, through the packed row of its input feature. */
static void check_weights(const exl2__cpu_part *p, const synth_matrix *m)
{
    uint32_t wrong = 0;
    for (uint32_t j = 0; j < p->in; j++) {
        for (uint32_t n = 0; n < m->desc.out; n++) {
            size_t at = (size_t)j * m->desc.out_stored + n;
            float got = exl2__cpu_matrix_weight(p, m->desc.kind == EXL2__MATRIX_DENSE ? j : m->desc.inverse_perm[j], n);
            float wanted = m->desc.kind == EXL2__MATRIX_DENSE ? (float)m->weight[at] : exl2__f16_to_f32(m->rounded[at]);
            wrong += exl2__float_bits(got) != exl2__float_bits(wanted);
        }
    }
    CHECK_INT(wrong, 0);
}

/* x * W + bias of the synthetic matrix in double, and the magnitude of the terms that were rounded. */
static double truth(const synth_matrix *m, const float *x, uint32_t n, double *size)
{
    double y = m->desc.has_bias ? (double)m->desc.bias[n] : 0;
    *size = fabs(y);
    for (uint32_t j = 0; j < m->desc.in; j++) {
        size_t at = (size_t)j * m->desc.out_stored + n;
        y += (double)x[j] * m->weight[at];
        *size += fabs((double)x[j]) * m->reach[at];
    }
    return y;
}

static void check_product(const exl2__cpu_ops *ops, const exl2__cpu_part *p, const synth_matrix *m, uint32_t rows,
                          bool add)
{
    uint32_t stride = p->strips * 32 + 32, tiles = exl2__cpu_tiles(rows, ops->tile_rows), wrong = 0;
    float *x = (float *)synth_alloc((size_t)rows * p->in * sizeof *x);
    float *out = (float *)synth_alloc((size_t)rows * stride * sizeof *out);
    float *start = (float *)synth_alloc((size_t)rows * stride * sizeof *start);
    exl2__cpu_input input = { (float *)synth_alloc((size_t)rows * p->in * 4),
                              (float *)synth_alloc(exl2__cpu_matrix_start(p, rows) * 4), rows, ops->tile_rows };
    for (uint32_t i = 0; i < rows * p->in; i++) {
        x[i] = synth_float() * (synth_bits() % 97 == 0 ? 1000.0f : 1.0f);
    }
    for (uint32_t i = 0; i < rows * stride; i++) {
        start[i] = add ? synth_float() : exl2__bits_float(0x7FC00000u);
        out[i] = start[i];
    }
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t row = exl2__cpu_tile_start(rows, ops->tile_rows, t);
        uint32_t n = exl2__cpu_tile_start(rows, ops->tile_rows, t + 1) - row;
        ops->gather(p, x + row * p->in, p->in, n, input.x + row * p->in,
                    input.centre + exl2__cpu_matrix_start(p, row));
    }
    for (uint32_t strip = 0, end; strip < p->strips; strip = end) { /* pairs, parts of pairs, and both */
        end = exl2__min32(strip + 1 + (strip + rows) % 3, p->strips);
        ops->product(p, &input, strip, end, out, stride, add);
    }
    double error = 0, whole = 0;
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t n = 0; n < p->out; n++) {
            double before = add ? (double)start[r * stride + n] : 0;
            double size, y = truth(m, x + r * p->in, n, &size) + before;
            double off = fabs((double)out[r * stride + n] - y);
            wrong += !(off <= 1e-6 * (size + fabs(before)));
            error += off * off;
            whole += y * y;
        }
        for (uint32_t n = p->strips * 32; n < stride; n++) {
            wrong += exl2__float_bits(out[r * stride + n]) != exl2__float_bits(start[r * stride + n]);
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(error <= 1e-10 * whole);
    free(x);
    free(out);
    free(start);
    free(input.x);
    free(input.centre);
}

static void check_matrix(synth_matrix *m, uint32_t step)
{
    static const uint32_t rows[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 21, 25, 40 };
    bench b = { 0 };
    exl2__cpu_part *p = pack(&b, m, step);
    check_weights(p, m);
    for (uint32_t o = 0; o < EXL2__COUNT(all_ops); o++) {
        for (uint32_t i = 0; runs(all_ops[o]) && i < EXL2__COUNT(rows); i++) {
            check_product(all_ops[o], p, m, rows[i], i % 2);
        }
    }
    unpack(&b);
    synth_matrix_free(m);
}

static void widths(void)
{
    static const uint32_t bits[] = { 2, 3, 4, 5, 6, 8 };
    for (uint32_t i = 0; i < EXL2__COUNT(bits); i++) {
        synth_group one[] = { { bits[i], 32 } };
        synth_group some[] = { { bits[i], 64 }, { bits[i], 32 }, { bits[i], 128 }, { bits[i], 96 } };
        synth_matrix m = synth_codes(32, one, 1, false, 0);
        check_matrix(&m, 1);
        m = synth_codes(96, some, 4, true, i);
        check_matrix(&m, 1 + i);
        m = synth_codes(77, some, 4, true, i); /* 19 padded columns */
        synth_bias(&m);
        check_matrix(&m, 1000);
    }
}

static void mixes(void)
{
    synth_group ragged[]
        = { { 8, 32 }, { 8, 32 }, { 6, 96 }, { 5, 32 }, { 4, 128 }, { 4, 32 }, { 3, 64 }, { 2, 128 }, { 2, 32 } };
    synth_matrix m = synth_codes(160, ragged, EXL2__COUNT(ragged), true, 3);
    check_matrix(&m, 5);
    for (uint32_t mix = 0; mix < 12; mix++) {
        m = synth_mixed(32 * (1 + mix), 64, mix, mix);
        check_matrix(&m, 3);
    }
}

static void affine(void)
{
    static const uint32_t bits[] = { 2, 3, 4, 8 };
    for (uint32_t i = 0; i < EXL2__COUNT(bits); i++) {
        synth_matrix m = synth_affine(32, 32, bits[i], 32, i);
        check_matrix(&m, 1);
        m = synth_affine(320, 96, bits[i], 128, i); /* a short last group */
        check_matrix(&m, 3);
        m = synth_affine(192, 77, bits[i], 192, i); /* one group; 19 padded columns */
        synth_bias(&m);
        check_matrix(&m, 1000);
    }
}

static void dense(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        exl2__dtype dtype = i == 0 ? EXL2__F16 : i == 1 ? EXL2__BF16 : EXL2__F32;
        synth_matrix m = synth_dense(64, 64, dtype);
        check_matrix(&m, 64);
        m = synth_dense(50, 70, dtype); /* a short last block, 26 padded columns */
        synth_bias(&m);
        check_matrix(&m, 9);
        m = synth_dense(1, 1, dtype);
        check_matrix(&m, 1);
    }
}

/* A worked example of the format: column 0 of two groups. */
static void worked_example(void)
{
    static const uint32_t column[10] = { 0x4d6f81a3, 0xc5e7092b, 0x4d6f81a3, 0xc5e7092b, 0x53977053,
                                         0x70539770, 0x97705397, 0x53977053, 0x70539770, 0x97705397 };
    synth_group groups[] = { { 4, 32 }, { 3, 64 } };
    synth_matrix m = synth_codes(32, groups, 2, false, 0);
    uint32_t *scale_codes = (uint32_t *)(uintptr_t)m.desc.scale_codes;
    uint32_t *inverse = (uint32_t *)(uintptr_t)m.desc.inverse_perm;
    uint16_t *scale_max = (uint16_t *)(uintptr_t)m.desc.scale_max;
    for (uint32_t w = 0; w < 10; w++) {
        ((uint32_t *)m.data)[w * 32] = column[w];
    }
    for (uint32_t j = 0; j < 96; j++) {
        inverse[j] = (5 * j + 7) % 96;
    }
    scale_codes[0] = 9;
    scale_codes[4] = 2;
    scale_max[0] = 0x0a66;
    scale_max[1] = 0x0312;
    bench b = { 0 };
    exl2__cpu_part *p = pack(&b, &m, 4);
    static const struct { uint32_t row; int code; uint16_t weight; } wanted[] = {
        { 0, 3 - 8, 0xae40 }, { 1, 10 - 8, 0x2900 }, { 2, 1 - 8, 0xb060 }, { 31, 12 - 8, 0x2d00 },
        { 32, 3 - 4, 0x8ee8 }, { 33, 2 - 4, 0x92e8 }, { 95, 0, 0 },
    };
    for (uint32_t i = 0; i < EXL2__COUNT(wanted); i++) {
        CHECK_INT(exl2__cpu_matrix_code(p, wanted[i].row, 0), wanted[i].code);
        CHECK_INT(exl2__f32_to_f16(exl2__cpu_matrix_weight(p, wanted[i].row, 0)), wanted[i].weight);
    }
    static const uint32_t order[6] = { 37, 18, 95, 76, 57, 38 };
    for (uint32_t i = 0; i < 6; i++) {
        CHECK_INT(p->order[i], order[i]);
    }
    unpack(&b);
    synth_matrix_free(&m);
}

static void refusals(void)
{
    synth_group groups[] = { { 4, 64 } };
    synth_matrix m = synth_codes(64, groups, 1, false, 0);
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    exl2__cpu_matrix *made = NULL;
    exl2__arena a;
    CHECK_INT(exl2__arena_open(&c, &a, exl2__cpu_matrix_bytes(&m.desc, 1) - EXL2__ARENA_ALIGN, EXL2_MEM_WEIGHTS),
              EXL2_OK);
    CHECK_INT(exl2__cpu_matrix_make(&c, &a, &m.desc, 1, &made), EXL2_ERR_INTERNAL);
    CHECK(strstr(c.error.text, "codes") != NULL);
    exl2__arena_close(&c, &a);
    synth_matrix_free(&m);
}

/* ---- fixtures: the matrices of the tiny models ---- */

typedef struct tensor {
    const uint8_t *data;
    uint32_t shape[2];
    bool found;
} tensor;

/* A safetensors parser that is good enough for trusted files. */
static tensor find(const char *file, const char *name)
{
    char key[160];
    tensor t = { NULL, { 1, 1 }, false };
    snprintf(key, sizeof key, "\"%s\":", name);
    size_t header = (size_t)exl2__load64(file);
    const char *at = strstr(file + 8, key);
    if (!at || at > file + 8 + header) {
        return t;
    }
    unsigned long begin = 0;
    const char *shape = strstr(at, "\"shape\""), *offsets = strstr(at, "\"data_offsets\"");
    sscanf(strchr(shape, '[') + 1, "%u%*[ ,]%u", &t.shape[0], &t.shape[1]);
    sscanf(strchr(offsets, '[') + 1, "%lu", &begin);
    t.data = (const uint8_t *)file + 8 + header + begin;
    t.found = true;
    return t;
}

static tensor find_part(const char *file, const char *layer, const char *suffix)
{
    char name[160];
    snprintf(name, sizeof name, "%s.%s", layer, suffix);
    return find(file, name);
}

static void *copy(tensor t, size_t bytes)
{
    void *memory = synth_alloc(bytes);
    memcpy(memory, t.data, bytes);
    return memory;
}

/* A matrix of a file, read without the loader. */
static synth_matrix from_file(const char *file, const char *layer)
{
    synth_matrix m = { { 0 }, NULL, 0, 0, NULL, NULL, NULL };
    tensor words = find_part(file, layer, "q_weight"), groups = find_part(file, layer, "q_groups");
    tensor order = find_part(file, layer, "q_invperm"), scales = find_part(file, layer, "q_scale");
    uint32_t count = groups.shape[0] / 2, rows = words.shape[0], out = words.shape[1], row = 0;
    exl2__group *table = (exl2__group *)synth_alloc(count * sizeof *table);
    uint16_t *scale_max = (uint16_t *)copy(find_part(file, layer, "q_scale_max"), count * 2);
    for (uint32_t g = 0; g < count; g++) {
        uint32_t bits = exl2__load16(groups.data + 4 * g), first = exl2__load16(groups.data + 4 * g + 2);
        uint32_t end = g + 1 < count ? exl2__load16(groups.data + 4 * g + 6) : rows;
        table[g] = (exl2__group){ row, (end - first) * 32 / bits, first, bits };
        row += table[g].rows;
        scale_max[g] = exl2__f32_to_f16(exl2__f16_to_f32(scale_max[g]) / 256);
    }
    m.rows = rows;
    m.row_bytes = out * 4;
    m.data = copy(words, rows * m.row_bytes);
    m.desc = (exl2__matrix_desc){ .name = layer, .in = row, .out = out, .out_stored = out, .group_count = count,
                                  .words = rows, .groups = table, .scale_max = scale_max,
                                  .scale_codes = (uint32_t *)copy(scales, (size_t)count * out / 2),
                                  .inverse_perm = (uint32_t *)copy(order, row * 4) };
    return m;
}

static void fixture(const char *name)
{
    static const char *const layers[]
        = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj" };
    char path[160];
    snprintf(path, sizeof path, "fixtures/exl2/%s/output.safetensors", name);
    char *file = check_read(check_shared(path), NULL);
    snprintf(path, sizeof path, "fixtures/exl2/%s/dequant.safetensors", name);
    char *wanted = check_read(check_shared(path), NULL);
    for (uint32_t i = 0; i < 15; i++) {
        char layer[96];
        snprintf(layer, sizeof layer, "model.layers.%u.%s", i / 7, layers[i % 7]);
        if (i == 14) {
            strcpy(layer, "lm_head");
        }
        synth_matrix m = from_file(file, layer);
        tensor weights = find(wanted, layer);
        CHECK(weights.found);
        m.rounded = (uint16_t *)copy(weights, (size_t)m.desc.in * m.desc.out * 2);
        bench b = { 0 };
        check_weights(pack(&b, &m, 11), &m);
        unpack(&b);
        synth_matrix_free(&m);
    }
    free(file);
    free(wanted);
}

/* Memory that is touched ahead of its use: what lies before it keeps its bytes, also where more has been used since
   than had been touched; a slice has at most its share. */
static void touch(void)
{
    static const uint32_t used[] = { 5000, 300000, 70000, 1, 200000 };
    exl2__ctx c = { .allocator = exl2__platform_allocator() };
    exl2__arena a;
    uint64_t at = 0, changed = 0;
    CHECK_INT(exl2__arena_open(&c, &a, 900000, EXL2_MEM_WEIGHTS), EXL2_OK);
    memset(a.base, 0xA5, 900000);
    for (uint32_t i = 0; i < EXL2__COUNT(used); i++) {
        uint64_t end = exl2__min64(a.used + 100000, a.size), slices = 0;
        exl2_result r = EXL2_PENDING;
        for (; r == EXL2_PENDING; slices++) {
            uint64_t before = exl2__max64(at, a.used);
            exl2__work work = { 1 };
            r = exl2__arena_touch(&a, 100000, &at, &work);
            CHECK(at <= before + 65536);
        }
        CHECK_INT(r, EXL2_OK);
        CHECK(at >= end && slices <= 3);
        memset(exl2__arena_alloc(&a, used[i]), 0x5A, used[i]);
    }
    for (uint64_t i = 0, n = 0; n < EXL2__COUNT(used); i += exl2__align_up(used[n++], EXL2__ARENA_ALIGN)) {
        for (uint64_t k = 0; k < used[n]; k++) {
            changed += a.base[i + k] != 0x5A;
        }
    }
    CHECK_INT(changed, 0);
    exl2__arena_close(&c, &a);
}

int main(int argc, char **argv)
{
    only_path = argc > 1 ? argv[1] : NULL;
    widths();
    mixes();
    affine();
    dense();
    worked_example();
    refusals();
    touch();
    if (check_env("EXL2_TEST_DATA")) {
        static const char *const names[]
            = { "2bit", "3bit", "4bit", "5bit", "6bit", "8bit", "mixed", "ragged", "attn-bias", "odd-vocab" };
        for (uint32_t i = 0; i < EXL2__COUNT(names); i++) {
            char name[32];
            snprintf(name, sizeof name, "exl2-%s", names[i]);
            fixture(name);
        }
    }
    return check_done();
}
