/* lora_gemv.c: products of 1 to 8 rows that add what adapters add, compared with a reference in double. A row with a
   set of adapters has the same bits alone and beside rows with any other sets, by the kernels for large matrices, too;
   without adapters it has the bits of the product that knows none.
   takes: [kernels_src [SHAPE]]; a GPU. With SHAPE only this shape is tested.
   gives: exit code 0, 1, or 77 without a GPU; the largest error.

   Columns are those of q, k and v, of out and of gate and up of a 13B, whose strips the CTAs share unevenly. */
#include "product_rig.h"

#include "../../kernels_src/lora_args.h"

#define ROWS EXL2K_LORA_ROWS
#define ADAPTERS 4u
#define SETS 6u /* with set 0, which has no adapters */
#define RANK_MAX 64u
#define EPOCHS 4u

enum { ANY, AFFINE, LARGE, VARIANTS };

static rig_module shuffle, base[2], adapted[VARIANTS][2]; /* for 1 and 8 rows; not loaded: the GPU has none */
static double worst;

/* Ranks of an adapter for parts 0 to 2; some have nothing for a part, or another rank. */
static const uint32_t ranks[ADAPTERS][EXL2K_PARTS_MAX] = { { 1, 8, 0 }, { 16, 16, 16 }, { 24, 0, 40 }, { 64, 33, 64 } };

/* How much of each adapter a set has; 0: nothing. */
static const float sets[SETS][ADAPTERS] = {
    { 0, 0, 0, 0 }, { 1, 0, 0, 0 }, { 0, 1, 0, 0 }, { 0.5f, 0, -3, 0 }, { 0, 0, 0, 1 }, { 0, 4, 1, 0.25f }
};

/* Sets of the rows of a pass: all the same, one, two or all of them beside each other, rows without adapters. */
static const uint8_t mixes[][ROWS] = {
    { 2, 2, 2, 2, 2, 2, 2, 2 }, { 5, 5, 5, 5, 5, 5, 5, 5 }, { 0, 0, 0, 3, 0, 0, 0, 0 }, { 1, 4, 1, 4, 4, 1, 1, 4 },
    { 0, 1, 2, 3, 4, 5, 0, 1 }, { 5, 4, 3, 2, 1, 0, 5, 3 },
};

typedef struct lora_case {
    product_matrix m;
    uint32_t kind, columns, x_pitch, variant;
    uint16_t *x;             /* [ROWS, x_pitch] */
    double *value;           /* [ROWS, columns] of the base, bias included */
    double *added[ADAPTERS]; /* [ROWS, columns] what an adapter adds */
    float *residual;
    rig_buffer a[ADAPTERS][EXL2K_PARTS_MAX], b[ADAPTERS][EXL2K_PARTS_MAX];
    rig_buffer x_buffer, out, r, weight, sums, tables, t, turn, pass;
    uint32_t passes;
} lora_case;

/* ---- the reference ---- */

static double x_at(const lora_case *c, uint32_t row, uint32_t k)
{
    return (double)exl2__f16_to_f32(c->x[(size_t)row * c->x_pitch + k]);
}

static void value_of(lora_case *c)
{
    double *x = product_take((size_t)ROWS * c->m.in, sizeof *x);
    for (size_t i = 0; i < (size_t)ROWS * c->m.in; i++) {
        x[i] = x_at(c, (uint32_t)(i / c->m.in), (uint32_t)(i % c->m.in));
    }
    product_values(&c->m, false, x, ROWS, c->columns, c->value);
    free(x);
}

/* Makes an adapter's part, of which column `first` of the matrix is the first one. */
static exl2k_lora_matrix adapter_make(lora_case *c, uint32_t adapter, uint32_t part, uint32_t first)
{
    uint32_t rank = ranks[adapter][part], in = c->m.in, out = c->m.part[part].desc.out;
    uint32_t a_pitch = (in + 15) / 16 * 16, b_pitch = (out + 31) / 32 * 32;
    uint16_t *a = product_take((size_t)rank * a_pitch, 2), *b = product_take((size_t)rank * b_pitch, 2);
    exl2k_lora_matrix m = { .rank = rank, .factor = 0.01f * (float)(adapter + 1) };
    for (uint32_t k = 0; k < rank; k++) {
        for (uint32_t i = 0; i < in; i++) {
            a[k * a_pitch + i] = exl2__f32_to_f16(product_uniform());
        }
        for (uint32_t n = 0; n < out; n++) {
            b[k * b_pitch + n] = exl2__f32_to_f16(product_uniform());
        }
        for (uint32_t row = 0; row < ROWS; row++) {
            double t = 0;
            for (uint32_t i = 0; i < in; i++) {
                t += (double)exl2__f16_to_f32(a[k * a_pitch + i]) * x_at(c, row, i);
            }
            for (uint32_t n = 0; n < out; n++) {
                double value = (double)exl2__f16_to_f32(b[k * b_pitch + n]) * t * (double)m.factor;
                c->added[adapter][(size_t)row * c->columns + first + n] += value;
            }
        }
    }
    if (rank > 0) {
        c->a[adapter][part] = rig_buffer_of(a, (size_t)rank * a_pitch * 2);
        c->b[adapter][part] = rig_buffer_of(b, (size_t)rank * b_pitch * 2);
        m.a = c->a[adapter][part].address;
        m.b = c->b[adapter][part].address;
    }
    free(a);
    free(b);
    return m;
}

static void case_open(lora_case *c, uint32_t count, uint32_t kind)
{
    exl2k_lora_matrix tables[ADAPTERS][EXL2K_PARTS_MAX] = { { { 0 } } };
    product_lay(&c->m, count, 0, EXL2__CUDA_CHUNK_BYTES);
    product_pack(&c->m, &shuffle, 100, NULL);
    c->kind = kind;
    for (uint32_t i = 0; i < count; i++) {
        c->columns += c->m.part[i].desc.out;
    }
    c->x_pitch = (c->m.in + 63) / 64 * 64 + 32;
    c->x = product_take((size_t)ROWS * c->x_pitch, 2);
    c->value = product_take((size_t)ROWS * c->columns, sizeof *c->value);
    c->residual = product_take((size_t)ROWS * c->columns, 4);
    for (uint32_t i = 0; i < ROWS * c->m.in; i++) {
        c->x[i / c->m.in * c->x_pitch + i % c->m.in] = exl2__f32_to_f16(product_uniform());
    }
    for (uint32_t i = 0; i < ROWS * c->columns; i++) {
        c->residual[i] = product_uniform();
    }
    value_of(c);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        c->added[i] = product_take((size_t)ROWS * c->columns, sizeof **c->added);
        for (uint32_t part = 0, first = 0; part < count; first += c->m.part[part++].desc.out) {
            tables[i][part] = adapter_make(c, i, part, first);
        }
    }
    c->x_buffer = rig_buffer_make((size_t)ROWS * c->x_pitch * 2);
    c->out = rig_buffer_make((size_t)ROWS * c->columns * 4);
    c->r = rig_buffer_of(c->residual, (size_t)ROWS * c->columns * 4);
    c->weight = rig_buffer_of(c->residual, (size_t)c->columns * 4);
    c->sums = rig_buffer_make(ROWS * EXL2K_SLOTS_MAX * 4);
    c->tables = rig_buffer_of(tables, sizeof tables);
    c->t = rig_buffer_make((size_t)ADAPTERS * EXL2K_PARTS_MAX * ROWS * RANK_MAX * 8);
    c->turn = rig_buffer_make(16);
    c->pass = rig_buffer_make(sizeof(exl2k_lora_pass));
}

static void case_close(lora_case *c)
{
    rig_buffer *buffers[] = { &c->x_buffer, &c->out, &c->r, &c->weight, &c->sums, &c->tables, &c->t, &c->turn,
                              &c->pass };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    for (uint32_t i = 0; i < ADAPTERS * EXL2K_PARTS_MAX; i++) {
        rig_buffer_free(&c->a[i / EXL2K_PARTS_MAX][i % EXL2K_PARTS_MAX]);
        rig_buffer_free(&c->b[i / EXL2K_PARTS_MAX][i % EXL2K_PARTS_MAX]);
    }
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        free(c->added[i]);
    }
    free(c->x);
    free(c->value);
    free(c->residual);
    product_free(&c->m);
    *c = (lora_case){ 0 };
}

/* ---- launches ---- */

/* How a product is launched. bare: the pass has adapters, but nothing for this matrix. */
typedef struct way {
    uint32_t variant, lanes, budget; /* lanes: 1 or 8 */
    bool plain, bare;                /* plain: by the kernels that know no adapters */
} way;

static uint32_t tile_at(uint32_t lanes, uint32_t row, uint32_t k) { return (k / 32 * lanes + row) * 32 + k % 32; }

/* Uploads rows [first, first + rows) of x, with eight lanes in tiles. What follows the last row of tiles is NaN. */
static void upload_x(const lora_case *c, uint32_t first, uint32_t rows, uint32_t lanes)
{
    size_t count = (size_t)lanes * c->x_pitch;
    uint16_t *x = product_take(count, 2);
    memset(x, 0xFF, count * 2);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < c->x_pitch; k++) {
            x[lanes == 1 ? k : tile_at(lanes, row, k)] = c->x[(size_t)(first + row) * c->x_pitch + k];
        }
    }
    rig_upload(c->x_buffer, 0, x, count * 2);
    free(x);
}

/* The pass of rows [0, rows) with the sets `row_sets`. Its adapters have slots in the other order. */
static void upload_pass(const lora_case *c, const uint8_t *row_sets, uint32_t rows)
{
    exl2k_lora_pass pass = { 0 };
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        exl2k_u32 users = 0;
        for (uint32_t row = 0; row < rows; row++) {
            bool has = sets[row_sets[row]][i] < 0 || sets[row_sets[row]][i] > 0;
            pass.scale[pass.count][row] = sets[row_sets[row]][i];
            users |= (exl2k_u32)has << row;
        }
        pass.slots[pass.count] = (exl2k_u8)i;
        pass.users[pass.count] = (exl2k_u8)users;
        pass.count += users != 0;
    }
    rig_upload(c->pass, 0, &pass, sizeof pass);
}

/* Computes rows [first, first + rows), of which row i has the set row_sets[i]: f32 [rows, columns] of store and
   residual, fp16 [rows, columns / 2] of act. */
static void launch(lora_case *c, const way *w, uint32_t first, uint32_t rows, const uint8_t *row_sets, void *out)
{
    static const char *const names[][2] = { { "exl2k_gemv1_any_lora", "exl2k_gemv8_any_lora" },
                                            { "exl2k_gemv1_affine_lora", "exl2k_gemv8_affine_lora" },
                                            { "exl2k_gemv1_large_lora", "exl2k_gemv8_large_lora" } };
    bool is_affine = c->variant == AFFINE, many = w->lanes == 8;
    uint32_t ctas = (uint32_t)rig.sm_count - EXL2K_LORA_CTAS, turn[4] = { ++c->passes }, half = c->columns / 2;
    exl2k_lora_gemv_args l = {
        .gemv = { .matrix = c->m.device, .x = c->x_buffer.address, .out = c->out.address, .residual = c->r.address,
                  .weight = c->weight.address, .sums_out = c->sums.address, .x_pitch = c->x_pitch,
                  .out_pitch = c->kind == EXL2K_GEMV_ACT ? half : c->columns, .residual_pitch = c->columns,
                  .rows = rows, .slots = ctas, .kind = c->kind, .eps = 1e-5f,
                  .inverse_hidden = 1.0f / (float)c->m.in, .scale = 1, .act = EXL2K_ACT_SILU },
        .pass = c->pass.address, .x = c->x_buffer.address, .tables = c->tables.address, .t = c->t.address,
        .turn = c->turn.address, .slots = ADAPTERS, .table = EXL2K_PARTS_MAX,
        .parts_inverse = 65536 / c->m.count + 1, .in = c->m.in, .rank_stride = RANK_MAX, .epochs = EPOCHS, .epoch = 1
    };
    exl2k_gemv_args *a = &l.gemv;
    bool adds = !w->plain && !w->bare;
    if (many) {
        a->x_pitch = EXL2K_STEP / 2;
        a->x_step = EXL2K_STEP * w->lanes;
    }
    a->matrix.adapted = adds;
    a->ctas_before = adds ? EXL2K_LORA_CTAS : 0;
    uint32_t shared = exl2__cuda_gemv_shared(a, c->m.chunk_bytes, w->lanes, ctas, w->budget, adds ? ADAPTERS : 0,
                                             is_affine);
    CHECK(shared > 0);
    upload_x(c, first, rows, w->lanes);
    upload_pass(c, row_sets, rows);
    rig_upload(c->turn, 0, turn, sizeof turn);
    rig_poison(c->out);
    rig_upload(c->r, 0, c->residual + (size_t)first * c->columns, (size_t)rows * c->columns * 4);
    if (w->plain) {
        const char *name = is_affine ? many ? "exl2k_gemv8_affine" : "exl2k_gemv1_affine"
                                     : many ? "exl2k_gemv8" : "exl2k_gemv1";
        rig_launch(&base[many], name, ctas, 1, EXL2K_GEMV_THREADS, shared, a, sizeof *a);
    } else {
        rig_launch(&adapted[w->variant][many], names[w->variant][many], ctas + a->ctas_before, 1, EXL2K_GEMV_THREADS,
                   shared, &l, sizeof l);
    }
    rig_wait();
    size_t row_bytes = c->kind == EXL2K_GEMV_ACT ? half * 2 : c->columns * 4;
    rig_download(c->kind == EXL2K_GEMV_RESIDUAL ? c->r : c->out, 0, out, rows * row_bytes);
}

/* ---- checks ---- */

/* Relative error of a row with a set. */
static double error_of(const lora_case *c, uint32_t row, uint32_t set, const void *out)
{
    bool half = c->kind == EXL2K_GEMV_ACT;
    double error = 0, size = 0;
    for (uint32_t n = 0; n < c->columns >> half; n++) {
        double value[2];
        for (uint32_t i = 0; i < 1u + half; i++) {
            size_t at = (size_t)row * c->columns + n + i * (c->columns / 2);
            value[i] = c->value[at];
            for (uint32_t k = 0; k < ADAPTERS; k++) {
                value[i] += (double)sets[set][k] * c->added[k][at];
            }
        }
        double right = half ? value[0] / (1 + exp(-value[0])) * value[1] : value[0];
        right += c->kind == EXL2K_GEMV_RESIDUAL ? (double)c->residual[(size_t)row * c->columns + n] : 0;
        double got = (double)(half ? exl2__f16_to_f32(((const uint16_t *)out)[n]) : ((const float *)out)[n]);
        error += got == got ? (got - right) * (got - right) : INFINITY;
        size += right * right;
    }
    return sqrt(error / size);
}

/* Compares rows of a pass with the same rows alone; prints the first ones that differ. */
static void check_pass(lora_case *c, const way *w, uint32_t rows, const uint8_t *row_sets, uint8_t *const *alone)
{
    size_t row_bytes = c->kind == EXL2K_GEMV_ACT ? c->columns : c->columns * 4;
    uint8_t *out = product_take(ROWS, row_bytes);
    uint32_t others = 0;
    launch(c, w, 0, rows, row_sets, out);
    for (uint32_t row = 0; row < rows; row++) {
        bool same = memcmp(out + row * row_bytes, alone[row_sets[row]] + row * row_bytes, row_bytes) == 0;
        others += !same;
        if (!same && others == 1) {
            double error = error_of(c, row, row_sets[row], out + row * row_bytes);
            printf("    kind %u, variant %u, %u bytes, row %u of %u with set %u%s%s: other bits (error %.2e)\n",
                   c->kind, w->variant, w->budget, row, rows, row_sets[row], w->plain ? ", plain" : "",
                   w->bare ? ", bare" : "", error);
        }
    }
    CHECK_INT(others, 0);
    free(out);
}

static void check_case(lora_case *c)
{
    static const uint32_t counts[] = { 2, 5, ROWS };
    static const uint8_t none[ROWS];
    size_t row_bytes = c->kind == EXL2K_GEMV_ACT ? c->columns : c->columns * 4;
    uint32_t all = (uint32_t)rig.shared_optin, budgets[] = { all, exl2__min32(all, 100u << 10) };
    double bound = c->kind == EXL2K_GEMV_ACT ? 5.5e-4 : 1e-5;
    uint8_t *alone[SETS];
    for (uint8_t set = 0; set < SETS; set++) { /* each row alone, with each set */
        alone[set] = product_take(ROWS, row_bytes);
        for (uint32_t row = 0; row < ROWS; row++) {
            way w = { .variant = c->variant, .lanes = 1, .budget = all };
            uint8_t *at = alone[set] + row * row_bytes;
            launch(c, &w, row, 1, &set, at);
            double error = error_of(c, row, set, at);
            worst = c->kind != EXL2K_GEMV_ACT && error > worst ? error : worst;
            if (!CHECK(error <= bound)) {
                printf("    kind %u, row %u with set %u alone: %.2e\n", c->kind, row, set, error);
            }
        }
    }
    for (uint32_t variant = 0; variant < VARIANTS; variant++) {
        bool fits = c->variant == AFFINE ? variant == AFFINE : variant != AFFINE;
        for (uint32_t i = 0; i < 2 && fits && adapted[variant][1].module; i++) {
            way w = { .variant = variant, .lanes = 1, .budget = budgets[i] };
            for (uint8_t set = 0; set < SETS; set++) {
                check_pass(c, &w, 1, &set, alone);
            }
            w.lanes = 8;
            for (size_t mix = 0; mix < sizeof mixes / sizeof mixes[0]; mix++) {
                for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
                    check_pass(c, &w, counts[k], mixes[mix], alone);
                }
            }
            w.bare = true;
            check_pass(c, &w, ROWS, none, alone);
            w.lanes = 1;
            check_pass(c, &w, 1, none, alone);
        }
    }
    check_pass(c, &(way){ .lanes = 1, .budget = all, .plain = true }, 1, none, alone);
    check_pass(c, &(way){ .lanes = 8, .budget = all, .plain = true }, ROWS, none, alone);
    for (uint32_t set = 0; set < SETS; set++) {
        free(alone[set]);
    }
}

static const struct {
    uint32_t kind, parts, out[3];
    product_run run;
    bool bias;
} shapes[] = {
    { EXL2K_GEMV_STORE, 3, { 5120, 5120, 5120 }, { 4, 640, 128 }, false },
    { EXL2K_GEMV_RESIDUAL, 1, { 5120 }, { 3, 1024, 64 }, false },
    { EXL2K_GEMV_ACT, 2, { 13824, 13824 }, { 4, 512, 128 }, false },
    { EXL2K_GEMV_STORE, 3, { 608, 200, 72 }, { 5, 672, 32 }, true },
    { EXL2K_GEMV_STORE, 3, { 5120, 1024, 1024 }, { PRODUCT_AFFINE + 4, 640, 128 }, true },
    { EXL2K_GEMV_RESIDUAL, 1, { 5120 }, { PRODUCT_AFFINE + 4, 608, 32 }, false },
};

static void check_shape(uint32_t shape)
{
    static lora_case c;
    c.variant = shapes[shape].run.bits > PRODUCT_AFFINE ? AFFINE : ANY;
    for (uint32_t part = 0; part < shapes[shape].parts; part++) {
        product_part_make(&c.m.part[part], &shapes[shape].run, 1, shapes[shape].out[part], shapes[shape].bias);
    }
    case_open(&c, shapes[shape].parts, shapes[shape].kind);
    for (uint32_t many = 0; many < 2; many++) {
        const char *source = c.variant == AFFINE ? many ? "gemv8_affine.cu" : "gemv1_affine.cu"
                                                 : many ? "gemv8.cu" : "gemv1.cu";
        base[many] = rig_load(source, NULL);
    }
    check_case(&c);
    case_close(&c);
    for (uint32_t many = 0; many < 2; many++) {
        rig_unload(&base[many]);
    }
}

int main(int argc, char **argv)
{
    static const char *const sources[][2] = { { "gemv1_any_lora.cu", "gemv8_any_lora.cu" },
                                              { "gemv1_affine_lora.cu", "gemv8_affine_lora.cu" },
                                              { "gemv1_large_lora.cu", "gemv8_large_lora.cu" } };
    uint32_t only = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : UINT32_MAX;
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    shuffle = rig_load("shuffle.cu", NULL);
    for (uint32_t i = 0; i < 2 * VARIANTS; i++) {
        if (rig_exists(sources[i / 2][i % 2])) {
            adapted[i / 2][i % 2] = rig_load(sources[i / 2][i % 2], NULL);
        }
    }
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (only == UINT32_MAX || only == i) {
            check_shape(i);
        }
    }
    printf("largest relative error of fp32 results: %.2e\n", worst);
    for (uint32_t i = 0; i < 2 * VARIANTS; i++) {
        if (adapted[i / 2][i % 2].module) {
            rig_unload(&adapted[i / 2][i % 2]);
        }
    }
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
