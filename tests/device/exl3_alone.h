/* exl3_alone.h: what products of one row do besides: inputs that come transformed, results that are transformed for the
   next product, and the norm after a product, for exl3.c.
   takes: exl3_shots.h.
   gives: check_turned, check_settle, check_settle_rows, check_norm. */
#ifndef EXL3_ALONE_H
#define EXL3_ALONE_H

#include "exl3_shots.h"

/* Both buffers have the same bytes. */
static void check_equal(rig_buffer one, rig_buffer other)
{
    uint8_t *got[2] = { take(one.bytes, 1), take(one.bytes, 1) };
    rig_download(one, 0, got[0], one.bytes);
    rig_download(other, 0, got[1], one.bytes);
    CHECK_INT(memcmp(got[0], got[1], one.bytes), 0);
    free(got[0]);
    free(got[1]);
}

/* The inputs of row `row` as exl2k_exl3_rotate writes them for a product of one row. */
static void rotate_row(bench *b, uint64_t x, uint32_t in, const exl2k_exl3_part *parts, uint32_t count, uint64_t to)
{
    uint32_t blocks = (uint32_t)exl2__div_up(in, 128);
    exl2k_exl3_rotate_args r = { .x = x, .rotated = to, .rows = 1, .rotated_rows = 1, .in = in, .blocks = blocks,
                                 .x_pitch = b->x_pitch, .order = EXL2K_EXL3_BY_ROWS };
    for (uint32_t i = 0; i < count; i++) {
        r.suh[i] = parts[i].suh;
    }
    rig_launch(&rotate, "exl2k_exl3_rotate", (uint32_t)exl2__div_up(blocks, EXL2K_EXL3_WARPS), count,
               EXL2K_EXL3_THREADS, 0, &r, sizeof r);
}

/* A product of one row has the same bits if its inputs come transformed; what ACT transforms for the next matrix has
   the bits of exl2k_exl3_rotate. */
static void check_turned(bench *b, uint32_t kind)
{
    uint32_t width = kind == EXL2K_EXL3_ACT ? b->part[0].columns : b->columns, alone_width;
    uint32_t padded = (uint32_t)exl2__align_up(width, 128);
    rig_buffer turned = rig_buffer_make((uint64_t)EXL2K_EXL3_PARTS * exl2__align_up(b->in, 128) * 2);
    rig_buffer next[2] = { rig_buffer_make(padded * 2), rig_buffer_make(padded * 2) };
    uint16_t *suh = take(padded, 2);
    exl2k_exl3_part reader = { 0 };
    for (uint32_t i = 0; i < padded; i++) {
        suh[i] = exl2__f32_to_f16(uniform());
    }
    rig_buffer suh_at = rig_buffer_of(suh, padded * 2);
    reader.suh = suh_at.address;
    for (uint32_t i = 0; i < 2; i++) {
        shot s = { .kind = kind, .scale = 1, .by = FEW, .rows = 1, .first = 7, .splits = i ? 2 : 1 };
        s.splits = exl2__min32(s.splits, (uint32_t)exl2__div_up(b->in, 128));
        float *expect = shoot(b, &s, &alone_width);
        exl2k_exl3_part parts[EXL2K_EXL3_PARTS];
        for (uint32_t p = 0; p < b->parts; p++) {
            parts[p] = matrix_part(&b->part[p], 0);
        }
        rotate_row(b, b->x_at.address + 7ull * b->x_pitch * 2, b->in, parts, b->parts, turned.address);
        s.turned = turned.address;
        s.next_suh = kind == EXL2K_EXL3_ACT ? suh_at.address : 0;
        s.next_rotated = next[0].address;
        float *got = shoot(b, &s, &alone_width);
        if (!CHECK_INT(memcmp(expect, got, width * sizeof(float)), 0)) {
            printf("    in %u, rate %u, kind %u: other results of transformed inputs\n", b->in, b->part[0].rate, kind);
        }
        if (kind == EXL2K_EXL3_ACT && width % 4 == 0) {
            rotate_row(b, b->out.address, width, &reader, 1, next[1].address);
            check_equal(next[0], next[1]);
        }
        free(expect);
        free(got);
    }
    free(suh);
    rig_buffer_free(&suh_at);
    rig_buffer_free(&turned);
    rig_buffer_free(&next[0]);
    rig_buffer_free(&next[1]);
}

/* exl2k_exl3_settle writes what exl2k_settle writes, and what exl2k_exl3_rotate makes of it. */
static void check_settle(uint32_t hidden)
{
    uint32_t one = 1, bytes = hidden * 2;
    float *floats[2] = { take(hidden, 4), take(hidden, 4) };
    uint16_t *suh = take(hidden * 3, 2);
    for (uint32_t i = 0; i < hidden; i++) {
        floats[0][i] = uniform() * 3;
        floats[1][i] = uniform() + 1;
    }
    for (uint32_t i = 0; i < hidden * 3; i++) {
        suh[i] = exl2__f32_to_f16(uniform());
    }
    rig_buffer residual = rig_buffer_of(floats[0], hidden * 4), weight = rig_buffer_of(floats[1], hidden * 4);
    rig_buffer scales = rig_buffer_of(suh, bytes * 3), rows_at = rig_buffer_of(&one, 4);
    rig_buffer out[2] = { rig_buffer_make(bytes), rig_buffer_make(bytes) };
    rig_buffer turned[2] = { rig_buffer_make(bytes * 3), rig_buffer_make(bytes * 3) };
    exl2k_exl3_settle_args a = { .settle = { .rows_at = rows_at.address, .residual = residual.address,
                                             .weight = weight.address, .out = { out[0].address, 0 },
                                             .hidden = hidden, .out_pitch = hidden, .eps = 1e-5f, .scale = 1 },
                                 .rotated = turned[0].address, .parts = 3 };
    bench b = { .x_pitch = hidden };
    exl2k_exl3_part parts[3] = { { 0 } };
    for (uint32_t i = 0; i < 3; i++) {
        parts[i].suh = a.suh[i] = scales.address + i * bytes;
    }
    rig_launch(&settle, "exl2k_exl3_settle", 1, 1, exl2k_settle_threads(hidden), 0, &a, sizeof a);
    a.settle.out[0] = out[1].address;
    rig_launch(&plain_settle, "exl2k_settle", 1, 1, exl2k_settle_threads(hidden), 0, &a.settle, sizeof a.settle);
    rotate_row(&b, out[1].address, hidden, parts, 3, turned[1].address);
    check_equal(out[0], out[1]);
    check_equal(turned[0], turned[1]);
    rig_buffer *buffers[] = { &residual, &weight, &scales, &rows_at, &out[0], &out[1], &turned[0], &turned[1] };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    free(floats[0]);
    free(floats[1]);
    free(suh);
}

/* The same of many rows, in tiles; rows that the pass does not have stay as they are. */
static void check_settle_rows(uint32_t hidden)
{
    enum { TURNED = 130, LAUNCHED = 133, PADDED = 256 };
    uint32_t rows = TURNED, bytes = hidden * 2;
    float *residual = take((size_t)LAUNCHED * hidden, 4), *weight = take(hidden, 4);
    uint16_t *suh = take(hidden * 2, 2);
    for (uint32_t i = 0; i < LAUNCHED * hidden; i++) {
        residual[i] = uniform() * 3;
    }
    for (uint32_t i = 0; i < hidden * 2; i++) {
        weight[i / 2] = uniform() + 1;
        suh[i] = exl2__f32_to_f16(uniform());
    }
    rig_buffer residual_at = rig_buffer_of(residual, (uint64_t)LAUNCHED * hidden * 4);
    rig_buffer weight_at = rig_buffer_of(weight, hidden * 4), scales = rig_buffer_of(suh, bytes * 2);
    rig_buffer rows_at = rig_buffer_of(&rows, 4);
    rig_buffer out[2] = { rig_buffer_make((uint64_t)LAUNCHED * bytes), rig_buffer_make((uint64_t)LAUNCHED * bytes) };
    rig_buffer turned[2] = { rig_buffer_make(2ull * PADDED * bytes), rig_buffer_make(2ull * PADDED * bytes) };
    exl2k_exl3_settle_args a = { .settle = { .rows_at = rows_at.address, .residual = residual_at.address,
                                             .weight = weight_at.address, .out = { out[0].address, 0 },
                                             .hidden = hidden, .out_pitch = hidden, .eps = 1e-5f, .scale = 1 },
                                 .suh = { scales.address, scales.address + bytes }, .rotated = turned[0].address,
                                 .parts = 2, .rotated_rows = PADDED };
    rig_launch(&rotate, "exl2k_exl3_norm_rows", LAUNCHED, 1, EXL2K_EXL3_THREADS, 0, &a, sizeof a);
    a.settle.out[0] = out[1].address;
    rig_launch(&plain_settle, "exl2k_settle", LAUNCHED, 1, exl2k_settle_threads(hidden), 0, &a.settle,
               sizeof a.settle);
    for (uint32_t p = 0; p < 2; p++) {
        exl2k_exl3_rotate_args r = { .suh = { a.suh[p] }, .x = out[1].address, .rows = TURNED, .rotated_rows = TURNED,
                                     .rotated = turned[1].address + (uint64_t)p * PADDED * bytes, .in = hidden,
                                     .blocks = hidden / 128, .x_pitch = hidden, .order = EXL2K_EXL3_TILES };
        rig_launch(&rotate, "exl2k_exl3_rotate", (uint32_t)exl2__div_up(r.blocks, EXL2K_EXL3_WARPS), TURNED,
                   EXL2K_EXL3_THREADS, 0, &r, sizeof r);
    }
    check_equal(out[0], out[1]);
    check_equal(turned[0], turned[1]);
    free(residual);
    free(weight);
    free(suh);
    rig_buffer *buffers[] = { &residual_at, &weight_at, &scales, &rows_at, &out[0], &out[1], &turned[0], &turned[1] };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
}

/* The norm after a product that is added to the residual has the bits of exl2k_exl3_settle. */
static void check_norm(uint32_t hidden, uint32_t book)
{
    uint32_t one = 1, bytes = hidden * 2, width;
    bench b = { .parts = 1 };
    b.part[0] = matrix_random(640, hidden, 8, book, hidden % 256 == 0);
    bench_open(&b, 640, 1);
    float *floats = take(hidden, 4);
    uint16_t *suh = take(hidden * 3, 2);
    static const uint8_t nothing[4096];
    uint8_t left[4096];
    for (uint32_t i = 0; i < hidden * 3; i++) {
        floats[i / 3] = uniform() + 1;
        suh[i] = exl2__f32_to_f16(uniform());
    }
    rig_buffer weight = rig_buffer_of(floats, hidden * 4), scales = rig_buffer_of(suh, bytes * 3);
    rig_buffer rows_at = rig_buffer_of(&one, 4), sums = rig_buffer_of(nothing, sizeof nothing);
    rig_buffer out[2] = { rig_buffer_make(bytes), rig_buffer_make(bytes) };
    rig_buffer turned[2] = { rig_buffer_make(bytes * 3), rig_buffer_make(bytes * 3) };
    exl2k_exl3_settle_args a = { .settle = { .rows_at = rows_at.address, .residual = b.out.address,
                                             .weight = weight.address, .out = { out[1].address, 0 },
                                             .hidden = hidden, .out_pitch = hidden, .eps = 1e-5f, .scale = 1 },
                                 .rotated = turned[1].address, .parts = 3 };
    shot s = { .kind = EXL2K_EXL3_RESIDUAL, .scale = 0.5f, .by = FEW, .rows = 1,
               .norm = { .weight = weight.address, .x = out[0].address, .rotated = turned[0].address,
                         .sums = sums.address, .parts = 3, .eps = 1e-5f } };
    for (uint32_t i = 0; i < 3; i++) {
        s.norm.suh[i] = a.suh[i] = scales.address + i * bytes;
    }
    for (s.splits = 1; s.splits <= 5; s.splits++) {
        float *residual = shoot(&b, &s, &width);
        rig_launch(&settle, "exl2k_exl3_settle", 1, 1, exl2k_settle_threads(hidden), 0, &a, sizeof a);
        check_equal(out[0], out[1]);
        check_equal(turned[0], turned[1]);
        rig_download(sums, 0, left, sizeof left);
        CHECK_INT(memcmp(left, nothing, sizeof left), 0);
        free(residual);
    }
    rig_buffer *buffers[] = { &weight, &scales, &rows_at, &sums, &out[0], &out[1], &turned[0], &turned[1] };
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        rig_buffer_free(buffers[i]);
    }
    bench_close(&b);
    free(floats);
    free(suh);
}

#endif
