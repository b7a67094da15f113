/* gemm.c: products of 9 and more rows on the GPU compared with a reference in double on the same codes.
   takes: [kernels_src [SHAPE ROWS]]; a GPU. With SHAPE and ROWS only this shape is tested, with at most ROWS rows.
   gives: exit code 0, 1, or 77 without a GPU; the largest error. */
#include "gemm_rig.h"

#define ROWS 530u

static rig_module shuffle, gemm, gemm_affine;
static gemm_wg wg;
static bool by_wg;   /* products by wgmma instead of gemm.cu */
static bool sampled; /* by_wg: the rows are of sampled tokens */
static gemm_scratch scratch;
static double worst;
static uint32_t rows_most = ROWS;

typedef struct gemm_case {
    product_matrix m;
    uint32_t columns, x_pitch;
    uint16_t *x;
    double *value;   /* [ROWS, columns], bias included */
    float *residual; /* [ROWS, columns] */
    rig_buffer x_buffer, out, tiles;
} gemm_case;

/* By wgmma: writes the inputs as tiles first. Results of ACT are tiles, too. */
static void launch_wg(const gemm_case *c, uint32_t kind, uint32_t rows)
{
    exl2k_gemm_args a = { .out = c->out.address, .rows = rows, .kind = kind, .x = c->tiles.address,
                          .out_pitch = kind == EXL2K_GEMM_ACT ? exl2__cuda_wg_rows(rows) : c->columns };
    gemm_wg_order(&wg, c->x_buffer.address, c->tiles.address, 0, rows, c->m.in, c->x_pitch);
    exl2__cuda_gemm_plan plan = gemm_wg_prepare(&a, &c->m, &scratch, sampled);
    gemm_wg_run(&wg, &c->m, &a, &plan);
}

static void launch(const gemm_case *c, uint32_t kind, uint32_t rows, bool half, uint32_t budget)
{
    if (by_wg) {
        launch_wg(c, kind, rows);
        return;
    }
    exl2k_gemm_args a = { .x = c->x_buffer.address, .out = c->out.address, .rows = rows, .x_pitch = c->x_pitch,
                          .out_pitch = c->columns, .kind = kind, .out_half = half, .scale = 1, .act = EXL2K_ACT_SILU };
    exl2__cuda_gemm_plan plan = gemm_prepare(&a, &c->m, &scratch, budget);
    gemm_run(product_is_affine(&c->m) ? &gemm_affine : &gemm, &a, &plan);
}

static void case_open(gemm_case *c, uint32_t count, uint32_t rows, uint32_t chunk_bytes)
{
    product_lay(&c->m, count, 0, chunk_bytes);
    product_pack(&c->m, &shuffle, 100, NULL);
    for (uint32_t i = 0; i < count; i++) {
        c->columns += c->m.part[i].desc.out;
    }
    c->x_pitch = (c->m.in + 63) / 64 * 64 + 32;
    c->x = product_take((size_t)rows * c->x_pitch, 2);
    c->value = product_take((size_t)rows * c->columns, sizeof *c->value);
    c->residual = product_take((size_t)rows * c->columns, 4);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < c->m.in; k++) {
            c->x[(size_t)row * c->x_pitch + k] = exl2__f32_to_f16(product_uniform());
        }
    }
    for (size_t i = 0; i < (size_t)rows * c->columns; i++) {
        c->residual[i] = product_uniform();
    }
    double *weights = product_take(c->m.in + 64, sizeof *weights), *sums = product_take(rows, sizeof *sums);
    double *inputs = product_take((size_t)rows * c->m.in, sizeof *inputs); /* [in, rows]: rows are the inner loop */
    for (size_t i = 0; i < (size_t)rows * c->m.in; i++) {
        inputs[i] = (double)exl2__f16_to_f32(c->x[i % rows * c->x_pitch + i / rows]);
    }
    for (uint32_t part = 0, first = 0; part < count; part++) {
        const product_part *p = &c->m.part[part];
        for (uint32_t n = 0; n < p->desc.out; n++) {
            product_column(p, n, true, weights);
            memset(sums, 0, rows * sizeof *sums);
            for (uint32_t k = 0; k < c->m.in; k++) {
                for (uint32_t row = 0; row < rows; row++) {
                    sums[row] += weights[k] * inputs[(size_t)k * rows + row];
                }
            }
            for (uint32_t row = 0; row < rows; row++) {
                double bias = p->desc.has_bias ? (double)p->bias[n] : 0;
                c->value[(size_t)row * c->columns + first + n] = sums[row] + bias;
            }
        }
        first += p->desc.out;
    }
    free(weights);
    free(inputs);
    free(sums);
    c->x_buffer = rig_buffer_of(c->x, (size_t)rows * c->x_pitch * 2);
    c->out = rig_buffer_make((size_t)rows * c->columns * 4);
    c->tiles = rig_buffer_make((size_t)(rows + 7) * (c->m.in + 32) * 2);
}

static void case_close(gemm_case *c)
{
    free(c->x);
    free(c->value);
    free(c->residual);
    rig_buffer_free(&c->x_buffer);
    rig_buffer_free(&c->out);
    rig_buffer_free(&c->tiles);
    product_free(&c->m);
    *c = (gemm_case){ 0 };
}

static double wanted(const gemm_case *c, uint32_t kind, uint32_t row, uint32_t n)
{
    const double *value = c->value + (size_t)row * c->columns;
    if (kind == EXL2K_GEMM_RESIDUAL) {
        return value[n] + (double)c->residual[(size_t)row * c->columns + n];
    }
    return kind == EXL2K_GEMM_ACT ? value[n] / (1 + exp(-value[n])) * value[n + c->columns / 2] : value[n];
}

static void check_rows(const gemm_case *c, uint32_t kind, uint32_t rows, bool half, void *out)
{
    uint32_t count = kind == EXL2K_GEMM_ACT ? c->columns / 2 : c->columns;
    for (uint32_t row = 0; row < rows; row++) {
        double error = 0, size = 0, bound = half ? 4.9e-4 : 1e-5;
        for (uint32_t n = 0; n < count; n++) {
            size_t at = (size_t)row * c->columns + n;
            double got = (double)(half ? exl2__f16_to_f32(((uint16_t *)out)[at]) : ((float *)out)[at]);
            double right = wanted(c, kind, row, n);
            error += got == got ? (got - right) * (got - right) : INFINITY;
            size += right * right;
        }
        double relative = sqrt(error / size);
        worst = !half && relative > worst ? relative : worst;
        if (!CHECK(relative <= bound)) {
            printf("    kind %d, row %u of %u, %u -> %u, first width %u bits: %.2e\n", kind, row, rows, c->m.in,
                   c->columns, c->m.part[0].groups[0].bits, relative);
            return;
        }
    }
}

/* Rows [rows, pitch] out of tiles, as kernels_src/wg_tiles.cuh defines them: of 32 inputs of a row, input 8 t + 2 c + e
   is element 8 (c ^ row / 2 % 4) + 2 t + e. Columns beyond `columns` become 0. */
static void rows_of_tiles(uint16_t *values, uint32_t rows, uint32_t columns, uint32_t pitch)
{
    size_t bytes = (size_t)exl2__cuda_wg_rows(rows) * columns * 2;
    uint16_t *tiles = product_take(bytes, 1);
    memcpy(tiles, values, bytes);
    memset(values, 0, (size_t)rows * pitch * 2);
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t n = 0; n < columns; n++) {
            size_t line = (size_t)(n / 32) * exl2__cuda_wg_rows(rows) + row;
            uint32_t t = n % 32 / 8, c = n % 8 / 2;
            values[(size_t)row * pitch + n] = tiles[line * 32 + 8 * (c ^ row / 2 % 4) + 2 * t + n % 2];
        }
    }
    free(tiles);
}

static uint32_t class_of(uint32_t rows)
{
    return by_wg ? rows <= EXL2__CUDA_WG_SPLIT_ROWS : exl2__cuda_gemm_class(rows);
}

/* Compares with the reference, and each row bit for bit with the same row of the largest batch of its class. */
static void check_kind(gemm_case *c, uint32_t kind, bool half, uint32_t budget)
{
    static const uint32_t by_gemm[] = { 32, 17, 9, 64, 63, 33, 128, 127, 65, 256, 129, 512, 257, ROWS, 513 };
    static const uint32_t with_wg[] = { 256, 129, 128, 127, 65, 64, 63, 33, 32, 17, 9, 1, ROWS, 513, 512, 385, 257 };
    static const uint32_t of_samples[] = { 256, 129, 128, 65, 64, 63, 33, 32, 31, 24, 17, 16, 9, 8, 1 };
    const uint32_t *rows = sampled ? of_samples : by_wg ? with_wg : by_gemm;
    uint32_t count = sampled ? EXL2__COUNT(of_samples) : by_wg ? EXL2__COUNT(with_wg) : EXL2__COUNT(by_gemm);
    size_t bytes = (size_t)ROWS * c->columns * 4, row_bytes = (size_t)c->columns * (half ? 2 : 4);
    uint8_t *largest = product_take(bytes, 1), *out = product_take(bytes, 1);
    uint32_t class = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] > rows_most) {
            continue;
        }
        rig_poison(c->out);
        if (kind == EXL2K_GEMM_RESIDUAL) {
            rig_upload(c->out, 0, c->residual, bytes);
        }
        launch(c, kind, rows[i], half, budget);
        rig_download(c->out, 0, out, bytes);
        if (by_wg && kind == EXL2K_GEMM_ACT) {
            rows_of_tiles((uint16_t *)(void *)out, rows[i], c->columns / 2, c->columns);
        }
        if (class_of(rows[i]) != class) {
            class = class_of(rows[i]);
            memcpy(largest, out, bytes);
            check_rows(c, kind, rows[i], half, out);
        }
        bool same = memcmp(largest, out, rows[i] * row_bytes) == 0;
        if (!CHECK(same)) {
            printf("    kind %u, %u rows, %u -> %u: not the bits of the largest batch\n", kind, rows[i], c->m.in,
                   c->columns);
        }
    }
    free(largest);
    free(out);
}

static const struct {
    uint32_t parts, out[3], runs[3];
    product_run run[3][3];
    bool bias;
} shapes[] = {
    { 1, { 256 }, { 1 }, { { { 4, 1024, 128 } } }, false },
    { 1, { 96 }, { 1 }, { { { 2, 672, 64 } } }, true },
    { 1, { 96 }, { 1 }, { { { 3, 1056, 32 } } }, false },
    { 1, { 96 }, { 2 }, { { { 6, 96, 32 }, { 5, 480, 64 } } }, false },
    { 1, { 300 }, { 3 }, { { { 8, 736, 32 }, { 4, 256, 128 }, { 3, 96, 128 } } }, false },
    { 1, { 200 }, { 1 }, { { { 16, 1000, 0 } } }, true },
    { 3, { 576, 192, 192 }, { 2, 2, 1 },
      { { { 5, 64, 64 }, { 4, 512, 64 } }, { { 5, 64, 64 }, { 4, 512, 64 } }, { { 6, 576, 128 } } }, true },
    { 2, { 288, 288 }, { 2, 1 }, { { { 4, 416, 32 }, { 3, 608, 32 } }, { { 4, 1024, 32 } } }, true },
    { 1, { 200 }, { 1 }, { { { PRODUCT_AFFINE + 4, 1024, 128 } } }, false },
    { 1, { 96 }, { 1 }, { { { PRODUCT_AFFINE + 2, 672, 32 } } }, true },
    { 1, { 96 }, { 1 }, { { { PRODUCT_AFFINE + 8, 736, 736 } } }, false },
    { 2, { 160, 160 }, { 1, 1 }, { { { PRODUCT_AFFINE + 3, 608, 32 } }, { { PRODUCT_AFFINE + 3, 608, 32 } } }, true },
    { 3, { 96, 64, 32 }, { 1, 1, 1 },
      { { { PRODUCT_AFFINE + 8, 480, 96 } }, { { PRODUCT_AFFINE + 8, 480, 96 } },
        { { PRODUCT_AFFINE + 4, 480, 480 } } }, true },
};

/* budget: bytes of shared memory. A small budget gets small chunks, as in cuda.h. */
static void check_shape(uint32_t shape, uint32_t budget)
{
    gemm_case c = { 0 };
    for (uint32_t part = 0; part < shapes[shape].parts; part++) {
        product_part_make(&c.m.part[part], shapes[shape].run[part], shapes[shape].runs[part], shapes[shape].out[part],
                          shapes[shape].bias);
    }
    case_open(&c, shapes[shape].parts, ROWS, budget < 64 * 1024 ? 1088 : EXL2__CUDA_CHUNK_BYTES);
    if (shapes[shape].parts == 2) {
        check_kind(&c, EXL2K_GEMM_ACT, true, budget);
    } else {
        check_kind(&c, EXL2K_GEMM_STORE, false, budget);
        if (!by_wg) {
            check_kind(&c, EXL2K_GEMM_STORE, true, budget);
        }
        check_kind(&c, EXL2K_GEMM_RESIDUAL, false, budget);
    }
    case_close(&c);
}

/* Rows with one input of 1 give the weights themselves: exactly fp16(fp16(code - zero) * scale). */
static void check_exact(const product_run *run)
{
    gemm_case c = { 0 };
    product_part_make(&c.m.part[0], run, 1, 72, false);
    case_open(&c, 1, ROWS, EXL2__CUDA_CHUNK_BYTES);
    double *weights = product_take(c.m.in + 64, sizeof *weights);
    float *out = product_take((size_t)ROWS * c.columns, 4);
    uint32_t wrong = 0;
    memset(c.x, 0, (size_t)ROWS * c.x_pitch * 2);
    for (uint32_t row = 0; row < c.m.in; row++) {
        c.x[(size_t)row * c.x_pitch + row] = 0x3C00;
    }
    rig_upload(c.x_buffer, 0, c.x, (size_t)ROWS * c.x_pitch * 2);
    launch(&c, EXL2K_GEMM_STORE, c.m.in, false, (uint32_t)rig.shared_optin);
    rig_download(c.out, 0, out, (size_t)c.m.in * c.columns * 4);
    for (uint32_t n = 0; n < c.columns; n++) {
        product_column(&c.m.part[0], n, true, weights);
        for (uint32_t row = 0; row < c.m.in; row++) {
            wrong += (double)out[(size_t)row * c.columns + n] != weights[row];
        }
    }
    CHECK_INT(wrong, 0);
    free(weights);
    free(out);
    case_close(&c);
}

/* The same shapes by wgmma, where it computes them. */
static void check_wg(uint32_t first, uint32_t end)
{
    if (!rig_exists("gemm_wg256.cu")) {
        return;
    }
    wg = gemm_wg_open(true);
    by_wg = true;
    worst = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t bits = shapes[i].run[0][0].bits;
        for (uint32_t few = 0; few < 2 && bits < 16; few++) {
            sampled = few;
            check_shape(i, (uint32_t)rig.shared_optin);
        }
        for (uint32_t sms = 2; sms < 6 && bits < 16; sms += 3) { /* tiles that two CTAs compute; splits in memory */
            sampled = false;
            gemm_wg_sms = sms;
            check_shape(i, (uint32_t)rig.shared_optin);
        }
        gemm_wg_sms = 0;
    }
    by_wg = sampled = false;
    gemm_wg_close(&wg);
    printf("largest relative error of fp32 results by wgmma: %.2e\n", worst);
}

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    const uint32_t budgets[] = { (uint32_t)rig.shared_optin, 99 * 1024, 48 * 1024 };
    shuffle = rig_load("shuffle.cu", NULL);
    gemm = rig_load("gemm.cu", NULL);
    gemm_affine = rig_load("gemm_affine.cu", NULL);
    scratch = gemm_scratch_open(64u << 20);
    printf("gemm.cu compiled in %.0f ms, %llu bytes\n", gemm.compile_ms, (unsigned long long)gemm.image_bytes);
    uint32_t count = sizeof shapes / sizeof shapes[0], first = 0;
    if (argc > 3) {
        first = (uint32_t)strtoul(argv[2], NULL, 10) % count;
        count = first + 1;
        rows_most = (uint32_t)strtoul(argv[3], NULL, 10);
    }
    for (uint32_t i = first; i < count; i++) {
        for (uint32_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
            if (budgets[b] <= budgets[0]) { /* what this GPU has */
                check_shape(i, budgets[b]);
            }
        }
    }
    printf("largest relative error of fp32 results: %.2e\n", worst);
    check_wg(first, count);
    static const product_run exact[] = { { PRODUCT_AFFINE + 2, 512, 64 }, { PRODUCT_AFFINE + 3, 480, 32 },
                                         { PRODUCT_AFFINE + 4, 512, 128 }, { PRODUCT_AFFINE + 8, 352, 352 },
                                         { 4, 448, 128 } };
    for (uint32_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        check_exact(&exact[i]);
    }
    gemm_scratch_close(&scratch);
    rig_unload(&gemm);
    rig_unload(&gemm_affine);
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
