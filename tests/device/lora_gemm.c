/* lora_gemm.c: products of many rows by wgmma with what adapters add, compared with a reference in double. Rows with
   different sets of adapters stand beside each other; a row has the bits that it has where all rows have its set, and
   without adapters those of the product that knows none.
   takes: [kernels_src [SHAPE ROWS]]; a GPU. With SHAPE and ROWS only this shape is tested, with at most ROWS rows.
   gives: exit code 0, 1, or 77 without a GPU that has wgmma; the largest error. */
#include "gemm_rig.h"

#include "../../kernels_src/lora_wg_args.h"

#define ROWS 700u
#define ADAPTERS 4u
#define SETS 6u /* without set 0, which has no adapters */
#define RANK_MAX 64u
#define BLOCKS (RANK_MAX / EXL2K_LORA_WG_BLOCK)
#define USES 3u

static rig_module shuffle, adapted[2][5], rows_t;
static gemm_wg wg;
static gemm_scratch scratch;
static double worst;
static uint32_t rows_most = ROWS;

/* Ranks of an adapter for parts 0 to 2; some have nothing for a part, or another rank. */
static const uint32_t ranks[ADAPTERS][EXL2K_PARTS_MAX] = { { 1, 8, 0 }, { 16, 16, 16 }, { 24, 0, 40 }, { 64, 33, 64 } };

typedef struct set_of_uses {
    uint32_t count, adapter[USES];
    float scale[USES];
} set_of_uses;

static const set_of_uses sets[SETS + 1] = {
    { 0, { 0 }, { 0 } }, { 1, { 0 }, { 1 } }, { 1, { 1 }, { 1 } }, { 2, { 0, 2 }, { 0.5f, -3 } }, { 1, { 3 }, { 1 } },
    { 3, { 1, 2, 3 }, { 8, 1, 0.25f } }, { 1, { 2 }, { 8 } }
};

typedef struct lora_case {
    product_matrix m;
    uint32_t columns, x_pitch;
    uint16_t *x;
    double *inputs;    /* [ROWS, in] */
    double *value;     /* [ROWS, columns] of the base, bias included */
    double *added[SETS + 1]; /* [ROWS, columns] what a set adds */
    float *residual;
    float factor[ADAPTERS];
    rig_buffer a[ADAPTERS][EXL2K_PARTS_MAX], b[ADAPTERS][EXL2K_PARTS_MAX];
    rig_buffer x_buffer, tiles, out, t, zeros, tables, sets, row_sets;
} lora_case;

/* ---- the reference ---- */

/* Makes a part of an adapter, and adds what it adds to the sets that have it. */
static void adapter_make(lora_case *c, uint32_t adapter, uint32_t part, uint32_t first)
{
    uint32_t rank = ranks[adapter][part], in = c->m.in, out = c->m.part[part].desc.out;
    uint32_t a_pitch = (in + 15) / 16 * 16, b_pitch = (out + 31) / 32 * 32;
    uint16_t *a = product_take((size_t)rank * a_pitch, 2), *b = product_take((size_t)rank * b_pitch, 2);
    double t[RANK_MAX];
    for (uint32_t k = 0; k < rank; k++) {
        for (uint32_t i = 0; i < in; i++) {
            a[k * a_pitch + i] = exl2__f32_to_f16(product_uniform());
        }
        for (uint32_t n = 0; n < out; n++) {
            b[k * b_pitch + n] = exl2__f32_to_f16(product_uniform());
        }
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t k = 0; k < rank; k++) {
            t[k] = 0;
            for (uint32_t i = 0; i < in; i++) {
                t[k] += (double)exl2__f16_to_f32(a[k * a_pitch + i]) * c->inputs[(size_t)row * in + i];
            }
        }
        for (uint32_t n = 0; n < out; n++) {
            double sum = 0;
            for (uint32_t k = 0; k < rank; k++) {
                sum += (double)exl2__f16_to_f32(b[k * b_pitch + n]) * t[k] * (double)c->factor[adapter];
            }
            for (uint32_t s = 1; s <= SETS; s++) {
                for (uint32_t u = 0; u < sets[s].count; u++) {
                    double scale = sets[s].adapter[u] == adapter ? (double)sets[s].scale[u] : 0;
                    c->added[s][(size_t)row * c->columns + first + n] += scale * sum;
                }
            }
        }
    }
    if (rank > 0) {
        c->a[adapter][part] = rig_buffer_of(a, (size_t)rank * a_pitch * 2);
        c->b[adapter][part] = rig_buffer_of(b, (size_t)rank * b_pitch * 2);
    }
    free(a);
    free(b);
}

static void case_open(lora_case *c, uint32_t count)
{
    exl2k_lora_matrix tables[ADAPTERS][EXL2K_PARTS_MAX] = { { { 0 } } };
    exl2k_lora_set device_sets[SETS] = { { 0 } };
    product_lay(&c->m, count, 0, EXL2__CUDA_CHUNK_BYTES);
    product_pack(&c->m, &shuffle, 100, NULL);
    for (uint32_t i = 0; i < count; i++) {
        c->columns += c->m.part[i].desc.out;
    }
    c->x_pitch = (c->m.in + 63) / 64 * 64 + 32;
    c->x = product_take((size_t)ROWS * c->x_pitch, 2);
    c->inputs = product_take((size_t)ROWS * c->m.in, sizeof *c->inputs);
    c->value = product_take((size_t)ROWS * c->columns, sizeof *c->value);
    c->residual = product_take((size_t)ROWS * c->columns, 4);
    for (size_t i = 0; i < (size_t)ROWS * c->m.in; i++) {
        uint16_t *x = &c->x[i / c->m.in * c->x_pitch + i % c->m.in];
        *x = exl2__f32_to_f16(product_uniform());
        c->inputs[i] = (double)exl2__f16_to_f32(*x);
    }
    for (size_t i = 0; i < (size_t)ROWS * c->columns; i++) {
        c->residual[i] = product_uniform();
    }
    for (uint32_t s = 0; s <= SETS; s++) {
        c->added[s] = product_take((size_t)ROWS * c->columns, sizeof **c->added);
    }
    product_values(&c->m, true, c->inputs, ROWS, c->columns, c->value);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        c->factor[i] = 0.01f * (float)(i + 1);
        for (uint32_t part = 0, first = 0; part < count; first += c->m.part[part++].desc.out) {
            adapter_make(c, i, part, first);
            tables[i][part] = (exl2k_lora_matrix){ .rank = ranks[i][part], .factor = c->factor[i],
                                                   .a = c->a[i][part].address, .b = c->b[i][part].address };
        }
    }
    for (uint32_t s = 0; s < SETS; s++) {
        device_sets[s].count = sets[s + 1].count;
        for (uint32_t u = 0; u < sets[s + 1].count; u++) {
            device_sets[s].slots[u] = (exl2k_u8)sets[s + 1].adapter[u];
            device_sets[s].scale[u] = sets[s + 1].scale[u];
        }
    }
    static const uint8_t zeros[EXL2K_LORA_WG_ZEROS];
    c->x_buffer = rig_buffer_of(c->x, (size_t)ROWS * c->x_pitch * 2);
    c->tiles = rig_buffer_make((size_t)(ROWS + 7) * (c->m.in + 32) * 2);
    c->out = rig_buffer_make((size_t)ROWS * c->columns * 4);
    c->t = rig_buffer_make((size_t)USES * EXL2K_PARTS_MAX * BLOCKS * (ROWS + 7) * 128);
    c->zeros = rig_buffer_of(zeros, sizeof zeros);
    c->tables = rig_buffer_of(tables, sizeof tables);
    c->sets = rig_buffer_of(device_sets, sizeof device_sets);
    c->row_sets = rig_buffer_make((ROWS + 7) * 2);
}

static void case_close(lora_case *c)
{
    rig_buffer *buffers[] = { &c->x_buffer, &c->tiles, &c->out, &c->t, &c->zeros, &c->tables, &c->sets, &c->row_sets };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    for (uint32_t i = 0; i < ADAPTERS * EXL2K_PARTS_MAX; i++) {
        rig_buffer_free(&c->a[i / EXL2K_PARTS_MAX][i % EXL2K_PARTS_MAX]);
        rig_buffer_free(&c->b[i / EXL2K_PARTS_MAX][i % EXL2K_PARTS_MAX]);
    }
    for (uint32_t s = 0; s <= SETS; s++) {
        free(c->added[s]);
    }
    free(c->x);
    free(c->inputs);
    free(c->value);
    free(c->residual);
    product_free(&c->m);
    *c = (lora_case){ 0 };
}

/* ---- launches ---- */

/* Rows [rows, pitch] out of tiles (kernels_src/wg_tiles.cuh); columns beyond `columns` become 0. */
static void rows_of_tiles(uint16_t *values, uint32_t rows, uint32_t columns, uint32_t pitch)
{
    size_t bytes = (size_t)exl2__cuda_wg_rows(rows) * columns * 2;
    uint16_t *tiles = product_take(bytes, 1);
    memcpy(tiles, values, bytes);
    memset(values, 0, (size_t)rows * pitch * 2);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t n = 0; n < columns; n++) {
            size_t line = (size_t)(n / 32) * exl2__cuda_wg_rows(rows) + row;
            uint32_t t = n % 32 / 8, chunk = n % 8 / 2;
            values[(size_t)row * pitch + n] = tiles[line * 32 + 8 * (chunk ^ row / 2 % 4) + 2 * t + n % 2];
        }
    }
    free(tiles);
}

/* The product of `rows` rows, of which row i has the set row_sets[i]; NULL: by the kernels that know no adapters. */
static void launch(const lora_case *c, uint32_t kind, uint32_t rows, const uint16_t *row_sets, void *out)
{
    uint32_t tile_rows = exl2__cuda_wg_rows(rows);
    exl2k_gemm_lora_args a = {
        .gemm = { .out = c->out.address, .rows = rows, .kind = kind, .x = c->tiles.address,
                  .out_pitch = kind == EXL2K_GEMM_ACT ? tile_rows : c->columns },
        .lora = { .row_sets = c->row_sets.address, .sets = c->sets.address, .tables = c->tables.address,
                  .t = c->t.address, .zeros = c->zeros.address, .x = c->tiles.address, .rows = rows,
                  .tile_rows = tile_rows, .table = EXL2K_PARTS_MAX, .parts = c->m.count, .in = c->m.in,
                  .blocks = BLOCKS }
    };
    size_t bytes = (size_t)ROWS * c->columns * 4;
    rig_poison(c->out);
    rig_poison(c->t);
    if (kind == EXL2K_GEMM_RESIDUAL) {
        rig_upload(c->out, 0, c->residual, bytes);
    }
    gemm_wg_order(&wg, c->x_buffer.address, c->tiles.address, 0, rows, c->m.in, c->x_pitch);
    exl2__cuda_gemm_plan plan = gemm_wg_prepare(&a.gemm, &c->m, &scratch, false);
    if (!row_sets) {
        gemm_wg_run(&wg, &c->m, &a.gemm, &plan);
    } else {
        char name[48];
        bool affine = product_is_affine(&c->m);
        /* Not the plan of short prompts, whose kernels know no adapters. */
        plan = exl2__cuda_wg_plan_make(&a.gemm, (uint32_t)rig.sm_count, false, affine ? 2 : 0);
        uint32_t some = rows % 3 == 0 ? 16 : rows % 3 == 1 ? 32 : 64; /* the bits of t do not depend on it */
        rig_upload(c->row_sets, 0, row_sets, rows * 2);
        snprintf(name, sizeof name, "exl2k_lora_wg_t%u", some);
        rig_launch(&rows_t, name, EXL2K_LORA_WG_CLUSTER, (rows + some - 1) / some, EXL2K_LORA_WG_THREADS, 0, &a.lora,
                   sizeof a.lora);
        snprintf(name, sizeof name, "exl2k_gemm_wg%u%s_lora", plan.rows, affine ? "_affine" : "");
        rig_launch(&adapted[affine][plan.rows / 64], name, plan.ctas, 1, EXL2K_WG_THREADS, plan.shared_bytes, &a,
                   sizeof a);
    }
    rig_download(c->out, 0, out, bytes);
    if (kind == EXL2K_GEMM_ACT) {
        rows_of_tiles(out, rows, c->columns / 2, c->columns);
    }
}

/* ---- checks ---- */

static double wanted(const lora_case *c, uint32_t kind, uint32_t row, uint32_t n, uint32_t set)
{
    size_t at = (size_t)row * c->columns + n;
    double value = c->value[at] + c->added[set][at];
    if (kind == EXL2K_GEMM_ACT) {
        size_t up = at + c->columns / 2;
        return value / (1 + exp(-value)) * (c->value[up] + c->added[set][up]);
    }
    return value + (kind == EXL2K_GEMM_RESIDUAL ? (double)c->residual[at] : 0);
}

/* Relative error of a row. */
static double error_of(const lora_case *c, uint32_t kind, uint32_t row, uint32_t set, const void *out)
{
    bool half = kind == EXL2K_GEMM_ACT;
    double error = 0, size = 0;
    for (uint32_t n = 0; n < (half ? c->columns / 2 : c->columns); n++) {
        size_t at = (size_t)row * c->columns + n;
        double got = (double)(half ? exl2__f16_to_f32(((const uint16_t *)out)[at]) : ((const float *)out)[at]);
        double right = wanted(c, kind, row, n, set);
        error += got == got ? (got - right) * (got - right) : INFINITY;
        size += right * right;
    }
    return sqrt(error / size);
}

/* Ways to mix sets: every row another one; one in a run of rows; blocks of 8, 16 and 24 rows; texts of any length. */
static uint32_t set_of(uint32_t way, uint32_t row, uint32_t rows)
{
    switch (way) {
    case 0: return row * 5 % (SETS + 1);
    case 1: return row == rows / 2 ? 3 : row == rows - 1 ? 5 : 2;
    case 2: return row / 8 % 6 < 1 ? 4 : row / 8 % 6 < 3 ? 0 : 1;
    default: return row * row / 977 % (SETS + 1);
    }
}

static void check_kind(lora_case *c, uint32_t kind)
{
    static const uint32_t counts[] = { 17, 64, 200, 256, 257, ROWS };
    size_t row_bytes = (size_t)c->columns * (kind == EXL2K_GEMM_ACT ? 2 : 4), bytes = (size_t)ROWS * c->columns * 4;
    uint8_t *alone[SETS + 1], *out = product_take(bytes, 1);
    double bound = kind == EXL2K_GEMM_ACT ? 5.5e-4 : 1e-5;
    for (uint32_t set = 0; set <= SETS; set++) {
        alone[set] = product_take(bytes, 1);
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && counts[i] <= rows_most; i++) {
        uint16_t row_sets[ROWS];
        uint32_t rows = counts[i], wrong = 0, others = 0;
        for (uint32_t set = 0; set <= SETS; set++) {
            for (uint32_t row = 0; row < rows; row++) {
                row_sets[row] = (uint16_t)set;
            }
            launch(c, kind, rows, set ? row_sets : NULL, alone[set]);
            for (uint32_t row = 0; row < rows; row++) {
                double error = error_of(c, kind, row, set, alone[set]);
                worst = kind != EXL2K_GEMM_ACT && error > worst ? error : worst;
                wrong += !(error <= bound);
                if (!(error <= bound) && wrong < 4) {
                    printf("    kind %u, set %u, row %u of %u, %u -> %u: %.2e\n", kind, set, row, rows, c->m.in,
                           c->columns, error);
                }
            }
        }
        for (uint32_t way = 0; way < 4; way++) {
            for (uint32_t row = 0; row < rows; row++) {
                row_sets[row] = (uint16_t)set_of(way, row, rows);
            }
            launch(c, kind, rows, row_sets, out);
            for (uint32_t row = 0; row < rows; row++) {
                bool same = memcmp(out + row * row_bytes, alone[row_sets[row]] + row * row_bytes, row_bytes) == 0;
                others += !same;
                if (!same && others < 4) {
                    printf("    kind %u, way %u, row %u of %u with set %u: other bits (error %.2e)\n", kind, way, row,
                           rows, row_sets[row], error_of(c, kind, row, row_sets[row], out));
                }
            }
        }
        CHECK_INT(wrong, 0);
        CHECK_INT(others, 0);
    }
    for (uint32_t set = 0; set <= SETS; set++) {
        free(alone[set]);
    }
    free(out);
}

static const struct {
    uint32_t parts, out[3];
    product_run run;
    bool bias;
} shapes[] = {
    { 1, { 200 }, { 4, 1024, 128 }, false },
    { 3, { 288, 96, 96 }, { 5, 672, 32 }, true },
    { 2, { 288, 288 }, { 4, 576, 32 }, true },
    { 1, { 200 }, { PRODUCT_AFFINE + 4, 1024, 128 }, true },
    { 2, { 160, 160 }, { PRODUCT_AFFINE + 4, 608, 32 }, false },
};

static void check_shape(uint32_t shape)
{
    static lora_case c;
    for (uint32_t part = 0; part < shapes[shape].parts; part++) {
        product_part_make(&c.m.part[part], &shapes[shape].run, 1, shapes[shape].out[part], shapes[shape].bias);
    }
    case_open(&c, shapes[shape].parts);
    if (shapes[shape].parts == 2) {
        check_kind(&c, EXL2K_GEMM_ACT);
    } else {
        check_kind(&c, EXL2K_GEMM_STORE);
        check_kind(&c, EXL2K_GEMM_RESIDUAL);
    }
    case_close(&c);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    if (!rig_exists("lora_wg.cu")) {
        check_skip("the GPU has no wgmma");
    }
    uint32_t only = argc > 3 ? (uint32_t)strtoul(argv[2], NULL, 10) : UINT32_MAX;
    rows_most = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : rows_most;
    shuffle = rig_load("shuffle.cu", NULL);
    rows_t = rig_load("lora_wg.cu", NULL);
    wg = gemm_wg_open(true);
    for (uint32_t i = 1; i <= 4; i *= 2) {
        char name[40];
        snprintf(name, sizeof name, "gemm_wg%u_lora.cu", 64 * i);
        adapted[0][i] = rig_load(name, NULL);
        snprintf(name, sizeof name, "gemm_wg%u_affine_lora.cu", 64 * i);
        adapted[1][i] = rig_load(name, NULL);
    }
    scratch = gemm_scratch_open(64u << 20);
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (only == UINT32_MAX || only == i) {
            check_shape(i);
        }
    }
    printf("largest relative error of fp32 results: %.2e\n", worst);
    for (uint32_t i = 1; i <= 4; i *= 2) {
        rig_unload(&adapted[0][i]);
        rig_unload(&adapted[1][i]);
    }
    gemm_scratch_close(&scratch);
    gemm_wg_close(&wg);
    rig_unload(&rows_t);
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
