/* products.c: products of 1 to 16 rows on the GPU compared with a reference in double on the same codes, and rows of a
   batch compared with the same rows alone.
   takes: [kernels_src [NVRTC options]]; a GPU.
   gives: exit code 0, 1, or 77 without a GPU; the largest errors. */
#include "product_rig.h"

#define ROWS 16

/* As exl2k_gemv_args.kind. */
typedef enum result_kind {
    STORE = EXL2K_GEMV_STORE, RESIDUAL = EXL2K_GEMV_RESIDUAL, ACT = EXL2K_GEMV_ACT, KINDS
} result_kind;

static const char *const kind_names[KINDS] = { "store", "residual", "act" };
static rig_module shuffle, gemv[3], affine[3], large[2]; /* for 1, 8 and 16 rows; not loaded: the GPU has none */
static rig_module head[3]; /* the same, whose chunks add to running sums */
static uint32_t chained_runs;
static double worst_half, worst_single;

/* ---- one matrix with its inputs and its expected results ---- */

typedef struct product_case {
    product_matrix m;
    uint32_t columns, x_pitch, out_pitch;
    double *value;          /* [ROWS, columns] x * W */
    uint16_t *x;            /* [ROWS, x_pitch] */
    uint16_t *map;          /* [columns] */
    float *residual, *weight, *now, *before;
    rig_buffer x_buffer, map_buffer, residual_buffer, weight_buffer, now_buffer, before_buffer, sums_out, out;
    double factor[ROWS], rho[ROWS];
} product_case;

static void make_map(uint16_t *map, uint32_t count, uint32_t order)
{
    for (uint32_t i = 0; i < count; i++) {
        map[i] = (uint16_t)(order == 1 ? count - 1 - i : i);
    }
    for (uint32_t i = count; order == 2 && i > 1; i--) {
        uint32_t k = product_random() % i;
        uint16_t other = map[k];
        map[k] = map[i - 1];
        map[i - 1] = other;
    }
}

static void make_values(product_case *c)
{
    double *weights = product_take(c->m.in + 64, sizeof *weights);
    for (uint32_t part = 0, first = 0; part < c->m.count; part++) {
        const product_part *p = &c->m.part[part];
        for (uint32_t n = 0; n < p->desc.out; n++) {
            product_column(p, n, false, weights);
            for (uint32_t row = 0; row < ROWS; row++) {
                double sum = 0;
                for (uint32_t k = 0; k < c->m.in; k++) {
                    sum += weights[k] * (double)exl2__f16_to_f32(c->x[(size_t)row * c->x_pitch + k]);
                }
                c->value[(size_t)row * c->columns + first + n] = sum;
            }
        }
        first += p->desc.out;
    }
    free(weights);
}

static double rho_of(const float *sums, uint32_t row, uint32_t slots, uint32_t hidden)
{
    double sum = 0;
    for (uint32_t i = 0; i < slots; i++) {
        sum += (double)sums[(size_t)row * EXL2K_SLOTS_MAX + i];
    }
    return 1 / sqrt(sum / hidden + 1e-5);
}

/* Makes everything but the parts of c->m, which the caller has made. outlier: one input of each row is 1000. */
static void case_open(product_case *c, uint32_t count, uint32_t slices, uint32_t chunk_bytes, uint32_t order,
                      bool outlier)
{
    product_lay(&c->m, count, slices, chunk_bytes);
    product_pack(&c->m, &shuffle, 7, NULL);
    for (uint32_t i = 0; i < count; i++) {
        c->columns += c->m.part[i].desc.out;
    }
    c->x_pitch = (c->m.in + 63) / 64 * 64 + 32;
    c->out_pitch = c->columns + 5;
    c->x = product_take((size_t)ROWS * c->x_pitch, 2);
    c->map = product_take(c->columns, 2);
    c->value = product_take((size_t)ROWS * c->columns, sizeof *c->value);
    c->residual = product_take((size_t)ROWS * c->columns, 4);
    c->weight = product_take(c->columns, 4);
    c->now = product_take(ROWS * EXL2K_SLOTS_MAX, 4);
    c->before = product_take(ROWS * EXL2K_SLOTS_MAX, 4);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t k = 0; k < c->m.in; k++) {
            c->x[(size_t)row * c->x_pitch + k] = exl2__f32_to_f16(product_uniform());
        }
        if (outlier) {
            c->x[(size_t)row * c->x_pitch + product_random() % c->m.in] = exl2__f32_to_f16(1000.0f);
        }
    }
    make_map(c->map, c->columns, order);
    for (uint32_t i = 0; i < ROWS * c->columns; i++) {
        c->residual[i] = product_uniform() * 3;
    }
    for (uint32_t i = 0; i < c->columns; i++) {
        c->weight[i] = product_uniform();
    }
    for (uint32_t i = 0; i < ROWS * EXL2K_SLOTS_MAX; i++) {
        c->now[i] = 1.5f + product_uniform();
        c->before[i] = 1.5f + product_uniform();
    }
    make_values(c);
    c->x_buffer = rig_buffer_of(c->x, (size_t)ROWS * c->x_pitch * 2);
    c->map_buffer = rig_buffer_of(c->map, c->columns * 2);
    c->residual_buffer = rig_buffer_of(c->residual, (size_t)ROWS * c->columns * 4);
    c->weight_buffer = rig_buffer_of(c->weight, c->columns * 4);
    c->now_buffer = rig_buffer_of(c->now, ROWS * EXL2K_SLOTS_MAX * 4);
    c->before_buffer = rig_buffer_of(c->before, ROWS * EXL2K_SLOTS_MAX * 4);
    c->sums_out = rig_buffer_make(ROWS * EXL2K_SLOTS_MAX * 4);
    c->out = rig_buffer_make((size_t)ROWS * c->out_pitch * 4);
}

static void case_close(product_case *c)
{
    void *all[] = { c->value, c->x, c->map, c->residual, c->weight, c->now, c->before };
    rig_buffer *buffers[] = { &c->x_buffer, &c->map_buffer, &c->residual_buffer, &c->weight_buffer, &c->now_buffer,
                              &c->before_buffer, &c->sums_out, &c->out };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    product_free(&c->m);
    *c = (product_case){ 0 };
}

/* ---- a launch ---- */

typedef struct setting {
    uint32_t rows, ctas, budget;
    bool half, large; /* large: by the kernels for large matrices */
    bool chain;       /* chunks add to running sums */
    bool tiles;       /* of x, and of the outputs of act and residual */
} setting;

/* Halves of `rows` rows of `pitch` elements, to tiles (gemv_args.h) or back. */
static void reorder(const uint16_t *from, uint16_t *to, uint32_t rows, uint32_t pitch, bool back)
{
    for (uint32_t i = 0; i < rows * pitch; i++) {
        uint32_t row = i / pitch, column = i % pitch, tiled = (column / 32 * rows + row) * 32 + column % 32;
        to[back ? i : tiled] = from[back ? tiled : i];
    }
}

/* The inputs of `lanes` rows in tiles; those of a product of fewer rows end with NaN. */
static rig_buffer tiles_of(const product_case *c, uint32_t lanes, uint32_t rows)
{
    uint32_t count = lanes * c->x_pitch;
    uint16_t *x = product_take(count, 2), *tiles = product_take(count, 2);
    memset(x, 0xFF, (size_t)count * 2);
    memcpy(x, c->x, (size_t)rows * c->x_pitch * 2);
    reorder(x, tiles, lanes, c->x_pitch, false);
    rig_buffer b = rig_buffer_of(tiles, (size_t)count * 2);
    free(x);
    free(tiles);
    return b;
}

/* Puts fp16 outputs of a product into rows. */
static void out_of_tiles(const product_case *c, uint32_t lanes)
{
    size_t count = (size_t)lanes * c->out_pitch, whole = (size_t)lanes * ((c->out_pitch + 31) / 32 * 32);
    uint16_t *tiles = product_take(whole, 2), *out = product_take(count, 2);
    rig_download(c->out, 0, tiles, whole * 2);
    reorder(tiles, out, lanes, c->out_pitch, true);
    rig_upload(c->out, 0, out, count * 2);
    free(tiles);
    free(out);
}

/* Computes rows [row, row + s->rows) with the kernel for `lanes` rows, 1, 8 or 16. Poisons the outputs first. false:
   the budget is too small for the kernel for 16 rows. */
static bool run(product_case *c, result_kind kind, const setting *s, uint32_t row, uint32_t lanes)
{
    uint64_t skip = (uint64_t)row * EXL2K_SLOTS_MAX * 4;
    exl2k_gemv_args a = { .matrix = c->m.device, .x = c->x_buffer.address + (uint64_t)row * c->x_pitch * 2,
                          .out = c->out.address, .map = c->map_buffer.address, .weight = c->weight_buffer.address,
                          .residual = c->residual_buffer.address + (uint64_t)row * c->columns * 4,
                          .sums_now = c->now_buffer.address + skip, .sums_before = c->before_buffer.address + skip,
                          .sums_out = c->sums_out.address, .x_pitch = c->x_pitch,
                          .out_pitch = c->out_pitch, .residual_pitch = c->columns, .rows = s->rows,
                          .slots = s->ctas, .kind = kind, .out_half = s->half,
                          .eps = 1e-5f, .inverse_hidden = 1.0f / (float)c->m.in, .scale = 1, .act = EXL2K_ACT_SILU };
    rig_buffer tiles = { 0 };
    if (s->tiles) {
        tiles = tiles_of(c, lanes, s->rows);
        a.x = tiles.address;
        a.x_pitch = EXL2K_STEP / 2;
        a.x_step = EXL2K_STEP * lanes;
        if (kind != STORE) {
            a.out_pitch = a.x_pitch;
            a.out_step = a.x_step;
        }
    }
    uint32_t shared = exl2__cuda_gemv_shared(&a, c->m.chunk_bytes, lanes, s->ctas, s->budget, 0,
                                             c->m.part[0].desc.kind == EXL2__MATRIX_AFFINE);
    CHECK(shared > 0 || lanes == 16);
    exl2k_slice chunks[EXL2__CUDA_CHAIN_CHUNKS];
    if (shared > 0 && s->chain && lanes > 1) {
        uint32_t count = exl2__cuda_layout_chain(&c->m.part[0].layout, c->m.part[0].chunks, chunks);
        shared = exl2__cuda_gemv_chain(&a, chunks, count, lanes, s->budget);
    }
    if (shared == 0) {
        rig_buffer_free(&tiles);
        return false;
    }
    rig_poison(c->out);
    rig_poison(c->sums_out);
    static const char *const names[][3] = { { "exl2k_gemv1", "exl2k_gemv8", "exl2k_gemv16" },
                                            { "exl2k_gemv1_affine", "exl2k_gemv8_affine", "exl2k_gemv16_affine" },
                                            { "exl2k_gemv1_large", "exl2k_gemv8_large" } };
    static const char *const chained[] = { "", "exl2k_gemv8_head", "exl2k_gemv16_head" };
    rig_module *const modules[] = { gemv, affine, large };
    uint32_t variant = c->m.part[0].desc.kind == EXL2__MATRIX_AFFINE ? 1 : s->large ? 2 : 0;
    bool chains = s->chain && lanes > 1;
    chained_runs += chains;
    rig_launch(chains ? &head[lanes / 8] : &modules[variant][lanes / 8],
               chains ? chained[lanes / 8] : names[variant][lanes / 8], s->ctas, 1, EXL2K_GEMV_THREADS, shared, &a,
               sizeof a);
    rig_wait();
    if (s->tiles && kind != STORE) {
        out_of_tiles(c, lanes);
    }
    rig_buffer_free(&tiles);
    return true;
}

/* ---- expected results ---- */

static double silu(double v) { return v / (1 + exp(-v)); }

static double bias_of(const product_case *c, uint32_t n)
{
    uint32_t part = 0;
    while (n >= c->m.part[part].desc.out) {
        n -= c->m.part[part++].desc.out;
    }
    return c->m.part[part].desc.has_bias ? (double)c->m.part[part].bias[n] : 0;
}

/* Expected result n of a row: STORE: the output; ACT: h; RESIDUAL: the new residual. */
static double wanted(const product_case *c, result_kind kind, uint32_t row, uint32_t n)
{
    const double *value = c->value + (size_t)row * c->columns;
    if (kind == RESIDUAL) {
        return (double)c->residual[(size_t)row * c->columns + n] + value[n] + bias_of(c, n);
    }
    double v = value[n] * c->factor[row] + bias_of(c, n);
    if (kind == ACT) {
        uint32_t up = n + c->columns / 2;
        return silu(v) * (value[up] * c->factor[row] + bias_of(c, up));
    }
    return v;
}

typedef struct distance { double error, size; } distance;

static void measure(distance *d, double got, double right)
{
    d->error += got == got ? (got - right) * (got - right) : INFINITY;
    d->size += right * right;
}

static void judge(const product_case *c, const char *what, result_kind kind, uint32_t row, const setting *s,
                  distance d, double bound)
{
    double relative = sqrt(d.error / (d.size > 0 ? d.size : 1));
    double *worst = bound > 1e-4 ? &worst_half : &worst_single;
    *worst = relative > *worst ? relative : *worst;
    if (!CHECK(relative <= bound)) {
        printf("    %s of %s: %.2e > %.0e, row %u of %u, %u -> %u, %u bits first, %u slices, %u CTAs, %u bytes\n", what,
               kind_names[kind], relative, bound, row, s->rows, c->m.in, c->columns, c->m.part[0].groups[0].bits,
               c->m.device.slices, s->ctas, s->budget);
    }
}

static float out_at(const void *out, bool half, size_t i)
{
    return half ? exl2__f16_to_f32(((const uint16_t *)out)[i]) : ((const float *)out)[i];
}

/* Compares the outputs of the last run with the reference. */
static void check_rows(product_case *c, result_kind kind, const setting *s)
{
    bool half = kind == ACT || kind == RESIDUAL || (kind == STORE && s->half);
    uint32_t count = kind == ACT ? c->columns / 2 : c->columns;
    void *out = product_take((size_t)ROWS * c->out_pitch, 4);
    float *r = product_take((size_t)ROWS * c->columns, 4), sums[EXL2K_SLOTS_MAX];
    rig_download(c->out, 0, out, (size_t)ROWS * c->out_pitch * 4);
    rig_download(c->residual_buffer, 0, r, (size_t)ROWS * c->columns * 4);
    for (uint32_t row = 0; row < s->rows; row++) {
        distance d = { 0, 0 }, y = { 0, 0 };
        double squares = 0, slots = 0;
        for (uint32_t n = 0; n < count; n++) {
            double right = wanted(c, kind, row, n);
            uint32_t place = kind == RESIDUAL ? c->map[n] : n;
            double got = (double)out_at(out, half, (size_t)row * c->out_pitch + place);
            if (kind == RESIDUAL) {
                measure(&d, (double)r[(size_t)row * c->columns + n], right);
                measure(&y, got, right * (double)c->weight[n] * c->rho[row]);
                squares += right * right;
            } else {
                measure(&d, got, right);
            }
        }
        /* ACT: if one output dominates the norm, the row has the full rounding error of one fp16 value, 2^-11. */
        judge(c, "result", kind, row, s, d, !half || kind == RESIDUAL ? 1e-5 : kind == ACT ? 4.9e-4 : 3e-4);
        if (kind == RESIDUAL) {
            judge(c, "y", kind, row, s, y, 3e-4);
            rig_download(c->sums_out, (uint64_t)row * sizeof sums, sums, sizeof sums);
            for (uint32_t i = 0; i < s->ctas; i++) {
                slots += (double)sums[i];
            }
            judge(c, "sum of squares", kind, row, s, (distance){ (slots - squares) * (slots - squares),
                                                                 squares * squares }, 1e-5);
        }
    }
    rig_upload(c->residual_buffer, 0, c->residual, (size_t)ROWS * c->columns * 4);
    free(out);
    free(r);
}

/* Every row of a batch has the outputs, the residual and the sums of squares of the same row computed alone, bit for
   bit. large_ones: 1: the batch is computed by the kernel for large matrices, 2: the rows alone are, 3: the batch is
   computed by the kernel whose chunks add to running sums. */
static void check_alone(product_case *c, result_kind kind, setting s, uint32_t lanes, uint32_t large_ones)
{
    bool residual = kind == RESIDUAL;
    size_t bytes[] = { c->out_pitch * (s.half || kind == ACT || residual ? 2 : 4), c->columns * 4, s.ctas * 4 };
    size_t pitch[] = { bytes[0], bytes[1], EXL2K_SLOTS_MAX * 4 };
    rig_buffer from[] = { c->out, c->residual_buffer, c->sums_out };
    uint8_t *batch[3], *alone = product_take(ROWS, pitch[0] + pitch[1] + pitch[2]);
    uint32_t different = 0;
    s.rows = lanes - lanes / 16; /* 15: the last row is no row of the pass */
    s.large = large_ones == 1;
    s.chain = large_ones == 3;
    bool ran = run(c, kind, &s, 0, lanes);
    s.large = large_ones == 2;
    for (uint32_t i = 0; i < 3; i++) {
        batch[i] = product_take(lanes, pitch[i]);
        rig_download(from[i], 0, batch[i], lanes * pitch[i]);
    }
    rig_upload(c->residual_buffer, 0, c->residual, (size_t)ROWS * c->columns * 4);
    uint32_t rows = ran ? s.rows : 0;
    s.rows = 1;
    s.tiles = false;
    for (uint32_t row = 0; row < rows; row++) {
        run(c, kind, &s, row, 1);
        for (uint32_t i = 0; i < (residual ? 3u : 1u); i++) {
            rig_download(from[i], i == 1 ? row * pitch[i] : 0, alone, bytes[i]);
            different += memcmp(alone, batch[i] + row * pitch[i], bytes[i]) != 0;
        }
    }
    rig_upload(c->residual_buffer, 0, c->residual, (size_t)ROWS * c->columns * 4);
    if (!CHECK_INT(different, 0)) {
        printf("    %s, %u -> %u, %u rows, large %u\n", kind_names[kind], c->m.in, c->columns, lanes, large_ones);
    }
    for (uint32_t i = 0; i < 3; i++) {
        free(batch[i]);
    }
    free(alone);
}

static void check_kind(product_case *c, result_kind kind, uint32_t ctas, uint32_t budget)
{
    static const uint32_t rows[] = { 1, 2, 3, 5, 8, 9, 11, 16 };
    bool is_affine = c->m.part[0].desc.kind == EXL2__MATRIX_AFFINE;
    uint32_t most = (is_affine ? affine : gemv)[2].module ? 16 : 8; /* rows of a product; more are several products */
    for (uint32_t row = 0; row < ROWS; row++) {
        c->rho[row] = rho_of(c->before, row, ctas, c->m.in);
        c->factor[row] = rho_of(c->now, row, ctas, c->m.in) / c->rho[row];
    }
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0] && rows[i] <= most; i++) {
        uint32_t lanes = rows[i] > 8 ? 16 : rows[i] > 1 ? 8 : 1;
        uint32_t turns = kind == STORE || lanes > 1 ? 2 : 1;
        for (uint32_t turn = 0; turn < turns; turn++) {
            setting s = { rows[i], ctas, budget, kind == STORE && turn, false, false, lanes > 1 && turn };
            if (run(c, kind, &s, 0, lanes)) {
                check_rows(c, kind, &s);
            }
            s.chain = kind == STORE && lanes > 1 && head[1].module && !is_affine;
            if (s.chain && run(c, kind, &s, 0, lanes)) {
                check_rows(c, kind, &s);
            }
        }
    }
    for (uint32_t lanes = 8; lanes <= most; lanes += 8) {
        for (uint32_t i = 0; i < (large[0].module && !is_affine && lanes == 8 ? 3u : 1u); i++) {
            check_alone(c, kind, (setting){ 1, ctas, budget, false, false, false, false }, lanes, i);
            check_alone(c, kind, (setting){ 1, ctas, budget, false, false, false, true }, lanes, i);
        }
        if (kind == STORE && head[1].module && !is_affine) {
            check_alone(c, kind, (setting){ 1, ctas, budget, false, false, false, false }, lanes, 3);
            check_alone(c, kind, (setting){ 1, ctas, budget, false, false, false, true }, lanes, 3);
        }
    }
}

/* ---- cases ---- */

static const struct {
    uint32_t parts, out[3], runs[3];
    product_run run[3][3];
    bool bias;
    uint32_t slices; /* 0: by the number of the case */
} shapes[] = {
    { 1, { 256 }, { 1 }, { { { 4, 1024, 128 } } }, false },
    { 1, { 160 }, { 1 }, { { { 2, 672, 64 } } }, true },
    { 1, { 96 }, { 1 }, { { { 3, 1056, 32 } } }, false },
    { 1, { 96 }, { 1 }, { { { 5, 480, 64 } } }, false },
    { 1, { 96 }, { 1 }, { { { 6, 2080, 128 } } }, false },
    { 1, { 96 }, { 1 }, { { { 8, 1184, 32 } } }, false },
    { 1, { 200 }, { 1 }, { { { 16, 1000, 0 } } }, true },
    { 1, { 576 }, { 3 }, { { { 8, 736, 32 }, { 4, 1536, 128 }, { 3, 2016, 128 } } }, false },
    { 1, { 64 }, { 1 }, { { { 4, 32, 32 } } }, false },
    { 3, { 576, 192, 192 }, { 2, 2, 1 },
      { { { 5, 64, 64 }, { 4, 512, 64 } }, { { 5, 64, 64 }, { 4, 512, 64 } }, { { 6, 576, 128 } } }, true },
    { 2, { 320, 320 }, { 2, 1 }, { { { 4, 416, 32 }, { 3, 3680, 32 } }, { { 4, 4096, 32 } } }, false },
    { 2, { 96, 96 }, { 2, 2 }, { { { 3, 64, 64 }, { 2, 512, 64 } }, { { 3, 192, 64 }, { 2, 384, 64 } } }, true },
    { 1, { 96 }, { 1 }, { { { 16, 4500, 0 } } }, false }, /* one slice: 71 chunks, more than a warp has lanes */
    { 2, { 320, 320 }, { 1, 1 }, { { { 2, 4096, 64 } }, { { 3, 4096, 128 } } }, false },
    { 1, { 1584 }, { 1 }, { { { 2, 8192, 32 } } }, false }, /* warps have more jobs than they plan at a time */
    /* running sums: 26, 40 and 8 chunks */
    { 1, { 2080 }, { 3 }, { { { 8, 736, 32 }, { 6, 1536, 128 }, { 3, 2016, 128 } } }, true, 1 },
    { 1, { 2080 }, { 1 }, { { { 6, 5120, 128 } } }, false, 1 },
    { 1, { 2080 }, { 1 }, { { { 4, 992, 32 } } }, true, 1 },
};
#define ONE_SLICE 12u

/* Affine ones: every width, groups of 32 to one group for all rows, rows that do not fill a record. */
static const product_run affine_runs[] = {
    { PRODUCT_AFFINE + 4, 1024, 128 }, { PRODUCT_AFFINE + 4, 4096, 32 },   { PRODUCT_AFFINE + 4, 672, 672 },
    { PRODUCT_AFFINE + 2, 1056, 32 },  { PRODUCT_AFFINE + 2, 2048, 64 },   { PRODUCT_AFFINE + 3, 992, 32 },
    { PRODUCT_AFFINE + 3, 3584, 128 }, { PRODUCT_AFFINE + 8, 1184, 32 },   { PRODUCT_AFFINE + 8, 2048, 2048 },
    { PRODUCT_AFFINE + 4, 32, 32 },    { PRODUCT_AFFINE + 8, 96, 96 },     { PRODUCT_AFFINE + 2, 160, 160 },
    { PRODUCT_AFFINE + 3, 1152, 96 },
};

/* A matrix of one part, of two and of three, by the number of the case. */
static void check_affine(uint32_t i, uint32_t sms, uint32_t all)
{
    product_case c = { 0 };
    uint32_t parts = 1 + i % 3, outs[3] = { 96 + i % 2 * 64, parts == 2 ? 96 + i % 2 * 64 : 40, 72 };
    bool small = i % 4 == 3;
    for (uint32_t part = 0; part < parts; part++) {
        product_part_make(&c.m.part[part], &affine_runs[i], 1, outs[part], i % 2 == 1);
    }
    case_open(&c, parts, i % 4 == 2 ? 16 : 0, small ? 1088 : EXL2__CUDA_CHUNK_BYTES, i % 3, i % 5 == 4);
    for (uint32_t turn = 0; turn < 2; turn++) {
        uint32_t ctas = turn == 0 ? sms : i % 2 ? 3 : 4, budget = small && turn == 1 ? 64 * 1024 : all;
        check_kind(&c, parts == 2 ? ACT : STORE, ctas, budget);
        if (parts == 1) {
            check_kind(&c, RESIDUAL, ctas, budget);
        }
    }
    case_close(&c);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    shuffle = rig_load("shuffle.cu", NULL);
    static const char *const sources[] = { "gemv1.cu", "gemv8.cu", "gemv16.cu" };
    for (size_t i = 0; i < 3 && rig_exists(sources[i]); i++) {
        gemv[i] = rig_load(sources[i], argc > 2 ? argv[2] : NULL);
        printf("%s: compiled in %.0f ms\n", sources[i], gemv[i].compile_ms);
    }
    static const char *const of_affine[] = { "gemv1_affine.cu", "gemv8_affine.cu", "gemv16_affine.cu" };
    for (size_t i = 0; i < 3 && rig_exists(of_affine[i]); i++) {
        affine[i] = rig_load(of_affine[i], NULL);
    }
    for (size_t i = 0; i < 2 && rig_exists("gemv8_large.cu"); i++) {
        large[i] = rig_load(i ? "gemv8_large.cu" : "gemv1_large.cu", argc > 2 ? argv[2] : NULL);
    }
    for (size_t i = 1; i < 3 && rig_exists("gemv8_head.cu"); i++) {
        head[i] = rig_load(i == 2 ? "gemv16_head.cu" : "gemv8_head.cu", argc > 2 ? argv[2] : NULL);
    }
    uint32_t sms = (uint32_t)rig.sm_count, all = (uint32_t)rig.shared_optin;
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        product_case c = { 0 };
        bool small = i % 3 == 2 || shapes[i].run[0][0].bits == 16;
        for (uint32_t part = 0; part < shapes[i].parts; part++) {
            product_part_make(&c.m.part[part], shapes[i].run[part], shapes[i].runs[part], shapes[i].out[part],
                              shapes[i].bias);
        }
        uint32_t slices = i == ONE_SLICE ? 1 : i % 4 == 3 ? 16 : i % 4 == 2 ? PRODUCT_REST + 5 - i / 4 : 0;
        case_open(&c, shapes[i].parts, shapes[i].slices ? shapes[i].slices : slices,
                  small ? 1088 : EXL2__CUDA_CHUNK_BYTES, i % 3, i % 2 == 1);
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint32_t ctas = turn == 0 ? sms : i % 2 ? 3 : 4, budget = small && turn == 1 ? 48 * 1024 : all;
            if (shapes[i].parts == 2) {
                check_kind(&c, ACT, ctas, budget);
            }
            if (shapes[i].parts == 1) {
                check_kind(&c, RESIDUAL, ctas, budget);
            }
            if (shapes[i].parts != 2) {
                check_kind(&c, STORE, ctas, budget);
            }
        }
        case_close(&c);
    }
    for (uint32_t i = 0; i < sizeof affine_runs / sizeof affine_runs[0]; i++) {
        check_affine(i, sms, all);
    }
    printf("%u products whose chunks add to running sums\n", chained_runs);
    CHECK(!head[1].module || chained_runs > 0);
    printf("largest relative error: %.2e of fp16 results, %.2e of fp32\n", worst_half, worst_single);
    for (size_t i = 0; i < 3 && gemv[i].module; i++) {
        rig_unload(&gemv[i]);
    }
    for (size_t i = 0; i < 3 && affine[i].module; i++) {
        rig_unload(&affine[i]);
    }
    for (size_t i = 1; i < 3 && head[i].module; i++) {
        rig_unload(&head[i]);
    }
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
