/* exl3_shots.h: the products of EXL3 matrices on a GPU, as the engine launches them, for exl3.c.
   takes: exl3_rig.h.
   gives: way, launch_product; bench, bench_open, bench_close; shot, shoot; slab_bytes_max; the modules and by_wg. */
#ifndef EXL3_SHOTS_H
#define EXL3_SHOTS_H

#include "exl3_rig.h"

static rig_module gemv[3], gemm[3];
static rig_module settle, plain_settle; /* the same */
static rig_module lone[3], crowd[3], crowd16[3], wg[3], wide; /* not loaded where the GPU has none */

typedef enum way { MANY, FEW, CROWD, WIDE } way; /* which product */

static uint32_t slab_bytes; /* most shared memory of a product of few rows */
static bool by_wg; /* products of many rows run by wgmma */

/* ---- launches, as the engine makes them ---- */

static uint32_t slab_bytes_max(void) { return (uint32_t)rig.shared_optin - EXL2__CUDA_EXL3_STATIC; }

static uint32_t wide_strips; /* most strips of a launch of WIDE */

/* Products whose strips are decoded first, from transformed inputs, into two places by turns. decoded: of them. */
static void launch_wide(exl2k_exl3_args a, uint64_t decoded)
{
    static bool turn;
    bool pair = a.kind == EXL2K_EXL3_ACT && a.parts == 2, half = a.kind == EXL2K_EXL3_ACT || a.out_half;
    for (a.first = 0; a.first < a.parts; a.first++) {
        uint32_t strips = a.part[a.first].out / EXL2K_EXL3_BLOCK;
        for (uint32_t done = 0; done < strips; done += wide_strips) {
            exl2k_exl3_args one = a;
            exl2k_exl3_part *p = &one.part[a.first];
            uint32_t end = exl2__min32(done + wide_strips, strips), book = p->book;
            *p = exl2__cuda_exl3_part_range(p, done, end);
            p->column = a.part[a.first].column;
            one.out += (uint64_t)done * EXL2K_EXL3_BLOCK * (half ? 2 : 4);
            one.next_suh += one.next_suh ? (uint64_t)done * EXL2K_EXL3_BLOCK * 2 : 0;
            one.next_rotated += (uint64_t)done * 2 * EXL2K_EXL3_WG_INPUTS;
            one.count = 1;
            one.decoded = decoded + (turn ? exl2__cuda_exl3_decoded_bytes(wide_strips, a.blocks) : 0);
            turn = !turn;
            if (pair && a.first == 0) {
                one.kind = EXL2K_EXL3_STORE;
                one.out_half = 1;
                one.scale = 1;
                one.next_suh = 0;
            }
            const char *strips_name = exl2__cuda_kernel_rows[exl2__cuda_exl3_strips_kernel(book)].function;
            rig_launch(&wg[book], strips_name, end - done,
                       (uint32_t)exl2__div_up(2 * a.blocks, EXL2K_EXL3_STRIPS_STAGES), EXL2K_EXL3_THREADS,
                       EXL2K_EXL3_STRIPS_SHARED(p->rate), &one, sizeof one);
            rig_launch(&wide, "exl2k_exl3_wide", a.rotated_rows / EXL2K_EXL3_TILE_MAX, end - done,
                       EXL2K_EXL3_WIDE_THREADS, EXL2K_EXL3_WIDE_SHARED, &one, sizeof one);
        }
    }
}

/* FEW, CROWD: a.rows is at most 16, 64; a.splits, partial and tickets are set. zeros: partial of one row. But with FEW,
   rows are transformed first. */
static void launch_product(exl2k_exl3_args a, way by, uint64_t rotated, uint64_t zeros, uint64_t decoded)
{
    bool few = by == FEW;
    uint32_t tile_rows = by == CROWD ? exl2__cuda_exl3_crowd_rows(a.rows)
                       : by == WIDE ? EXL2K_EXL3_TILE_MAX : exl2__cuda_exl3_tile_rows(by_wg, a.rows);
    a.rotated = rotated;
    a.rotated_rows = (uint32_t)exl2__align_up(a.rows, tile_rows);
    if (!few) {
        exl2k_exl3_rotate_args r = { .x = a.x, .rotated = rotated, .rows_at = a.rows_at, .rows = a.rows,
                                     .before = a.before, .rotated_rows = a.rotated_rows, .in = a.in,
                                     .blocks = a.blocks, .x_pitch = a.x_pitch,
                                     .order = by == CROWD ? EXL2K_EXL3_FRAGMENTS
                                              : by_wg || by == WIDE ? EXL2K_EXL3_TILES : EXL2K_EXL3_BY_ROWS };
        for (uint32_t i = 0; i < a.parts; i++) {
            r.suh[i] = a.part[i].suh;
        }
        rig_launch(&rotate, "exl2k_exl3_rotate", (uint32_t)exl2__div_up(a.blocks, EXL2K_EXL3_WARPS),
                   a.rotated_rows * a.parts, EXL2K_EXL3_THREADS, 0, &r, sizeof r);
    }
    if (by == WIDE) {
        launch_wide(a, decoded);
        return;
    }
    bool pair = by == MANY && a.kind == EXL2K_EXL3_ACT && a.parts == 2;
    for (a.first = 0; a.first < a.parts; a.first += a.count) {
        exl2k_exl3_args one = a;
        a.count = one.count = pair ? 1 : exl2__cuda_exl3_run(a.part, a.first, a.parts);
        if (pair && a.first == 0) {
            one.kind = EXL2K_EXL3_STORE;
            one.out_half = 1;
            one.scale = 1;
        }
        uint32_t book = one.part[one.first].book, strips = exl2__cuda_exl3_strips(one.part, one.first, one.count);
        if (by == CROWD) {
            uint32_t rate = exl2__cuda_exl3_rate(&one);
            one.slab = EXL2K_EXL3_CROWD_WORDS(rate);
            exl2__cuda_kernel kernel = exl2__cuda_exl3_crowd_kernel(book, a.rows);
            rig_launch(a.rows > 16 ? &crowd[book] : &crowd16[book], exl2__cuda_kernel_rows[kernel].function, strips,
                       a.splits, EXL2K_EXL3_THREADS, EXL2K_EXL3_CROWD_SHARED(tile_rows, rate), &one, sizeof one);
            continue;
        }
        uint32_t outputs = exl2__cuda_exl3_outputs(&one, few ? 0 : tile_rows, (uint32_t)rig.sm_count);
        bool is_alone = few && one.rows == 1 && lone[book].module;
        uint32_t rate = exl2__cuda_exl3_rate(&one);
        exl2__cuda_kernel kernel = is_alone ? exl2__cuda_exl3_one(book)
                                   : few ? exl2__cuda_exl3_gemv(book, one.rows)
                                         : exl2__cuda_exl3_gemm(book, tile_rows, outputs);
        one.partial = is_alone ? zeros : one.partial;
        uint32_t shared = is_alone ? exl2__cuda_exl3_one_slabs(&one, rate, slab_bytes)
                          : few ? exl2__cuda_exl3_slabs(&one, rate, slab_bytes)
                                : exl2__cuda_exl3_gemm_shared(tile_rows, outputs);
        rig_launch(is_alone ? &lone[book] : few ? &gemv[book] : by_wg ? &wg[book] : &gemm[book],
                   exl2__cuda_kernel_rows[kernel].function, strips * (EXL2K_EXL3_BLOCK / outputs),
                   few ? one.splits : one.rotated_rows / tile_rows,
                   few ? EXL2K_EXL3_THREADS : exl2__cuda_exl3_gemm_threads(tile_rows, outputs), shared, &one,
                   sizeof one);
    }
}

/* ---- a matrix of one to three parts, with inputs and expected values ---- */

typedef struct bench {
    matrix part[EXL2K_EXL3_PARTS];
    uint32_t parts, in, columns, x_pitch, rows;
    uint16_t *x;
    double *value; /* [rows, columns] */
    float *before; /* [rows, columns]: what RESIDUAL adds to */
    rig_buffer x_at, out, partial, alone, tickets, rotated, decoded, rows_at; /* alone: partial of one row, zeros */
} bench;

static void bench_open(bench *b, uint32_t in, uint32_t rows)
{
    b->in = in;
    b->rows = rows;
    b->x_pitch = (uint32_t)exl2__align_up(in, 64) + 64;
    b->columns = 0;
    b->x = take((size_t)rows * b->x_pitch, 2);
    for (uint32_t i = 0; i < b->parts; i++) {
        b->columns += b->part[i].columns;
    }
    b->value = take((size_t)rows * b->columns, sizeof(double));
    b->before = take((size_t)rows * b->columns, sizeof(float));
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < b->x_pitch; i++) { /* NaN beyond the inputs, which must not matter */
            b->x[(size_t)row * b->x_pitch + i] = i < in ? exl2__f32_to_f16(uniform()) : 0x7FFF;
        }
        for (uint32_t i = 0, column = 0; i < b->parts; column += b->part[i++].columns) {
            multiply(b->value + (size_t)row * b->columns + column, &b->part[i], b->x + (size_t)row * b->x_pitch, in);
        }
        for (uint32_t n = 0; n < b->columns; n++) {
            b->before[(size_t)row * b->columns + n] = uniform();
        }
    }
    b->x_at = rig_buffer_of(b->x, (size_t)rows * b->x_pitch * 2);
    b->out = rig_buffer_make((uint64_t)rows * b->columns * 4);
    b->partial = rig_buffer_make((uint64_t)(b->columns + 3 * 127) / 128 * 64 * 64 * 128 * sizeof(float));
    b->tickets = rig_buffer_make(4096);
    uint64_t alone_bytes = (uint64_t)(b->columns + 3 * 127) / 128 * 64 * 128 * sizeof(float);
    void *nothing = take(alone_bytes, 1);
    b->alone = rig_buffer_of(nothing, alone_bytes);
    free(nothing);
    b->rotated = rig_buffer_make((uint64_t)EXL2K_EXL3_PARTS * exl2__align_up(rows, 256) * exl2__align_up(in, 128) * 2);
    b->decoded = rig_buffer_make(exl2__cuda_exl3_decoded_bytes(2 * 4, (uint32_t)exl2__div_up(in, 128)));
    b->rows_at = rig_buffer_make(16);
    static const uint8_t zeros[4096];
    rig_upload(b->tickets, 0, zeros, sizeof zeros);
}

static void bench_close(bench *b)
{
    rig_buffer *buffers[] = { &b->x_at, &b->out, &b->partial, &b->alone, &b->tickets, &b->rotated, &b->decoded,
                              &b->rows_at };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    for (uint32_t i = 0; i < b->parts; i++) {
        matrix_close(&b->part[i]);
    }
    free(b->x);
    free(b->value);
    free(b->before);
}

static const char *const way_names[] = { "many", "few", "crowd", "wide" };

typedef struct shot {
    uint32_t kind, first, rows, splits, out_half; /* first: row of the inputs where the launch begins */
    way by;
    bool fewer; /* device memory says one row less than the launch has */
    float scale, cap;
    uint64_t turned, next_suh, next_rotated; /* one row: exl2k_exl3_args.rotated, if it is not 0, ... */
    exl2k_exl3_norm norm;
} shot;

/* Runs a product; returns its results as floats [rows, width]. */
static float *shoot(bench *b, const shot *s, uint32_t *width)
{
    exl2k_exl3_args a = { .x = b->x_at.address + (uint64_t)s->first * b->x_pitch * 2, .out = b->out.address,
                          .partial = b->partial.address, .tickets = b->tickets.address, .rows = s->rows,
                          .parts = b->parts, .in = b->in, .blocks = (uint32_t)exl2__div_up(b->in, 128),
                          .splits = s->splits, .x_pitch = b->x_pitch, .kind = s->kind, .out_half = s->out_half,
                          .scale = s->scale, .cap = s->cap, .act = EXL2K_ACT_SILU };
    bool act = s->kind == EXL2K_EXL3_ACT, half = act || s->out_half;
    *width = act ? b->part[0].columns : b->columns;
    a.out_pitch = *width;
    for (uint32_t i = 0, column = 0; i < b->parts; column += b->part[i++].columns) {
        a.part[i] = matrix_part(&b->part[i], act ? 0 : column);
    }
    rig_poison(b->out);
    if (s->kind == EXL2K_EXL3_RESIDUAL) {
        rig_upload(b->out, 0, b->before + (size_t)s->first * b->columns, (size_t)s->rows * b->columns * 4);
    }
    if (s->fewer) {
        uint32_t rows = s->rows - 1 + 3;
        a.before = 3;
        a.rows_at = b->rows_at.address;
        rig_upload(b->rows_at, 0, &rows, 4);
    }
    rig_poison(b->rotated);
    a.turned = s->turned != 0;
    a.next_suh = s->next_suh;
    a.next_rotated = s->next_rotated;
    a.next_blocks = (*width + EXL2K_EXL3_BLOCK - 1) / EXL2K_EXL3_BLOCK;
    a.norm = s->norm;
    launch_product(a, s->by, s->turned ? s->turned : b->rotated.address, b->alone.address,
                   b->decoded.address);
    size_t count = (size_t)s->rows * *width;
    float *got = take(count, 4);
    uint16_t *halves = take(count, 2);
    rig_download(b->out, 0, half ? (void *)halves : (void *)got, count * (half ? 2 : 4));
    for (size_t i = 0; half && i < count; i++) {
        got[i] = exl2__f16_to_f32(halves[i]);
    }
    free(halves);
    return got;
}

#endif
