/* gemm.cu: products of 9 and more rows: 64 rows x 256 columns a CTA, weights decoded in registers.
   takes: base.cuh, unpack.cuh, gemm_args.h; EXL2K_WIDTHS_MASK as in gemv_chunk.cuh.
   gives: exl2k_gemm_store, exl2k_gemm_residual, exl2k_gemm_act.
   owns:  nothing.
   next:  gemm_args.h

   Eight warps of two strips each. Inputs go through shared memory in tiles of 64 rows x one record (64 inputs), four
   tiles deep; a warp reads its own records from global memory, one ahead, and multiplies the codes by the fp16 scale:
   fp16(code * scale) is what the format defines. A row's sums depend on K alone, never on other rows. act takes the
   gate strips over all of K first, then the up strips, because their records begin at different rows. */
#include "base.cuh"
#include "unpack.cuh"
#include "gemm_args.h"

#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

#define EXL2K_TILE_PITCH 192u /* bytes of a row of a tile: 128, and 64 that spread rows over the banks */
#define EXL2K_TILE_BYTES (EXL2K_GEMM_ROWS * EXL2K_TILE_PITCH)
#define EXL2K_TILES 4u
#define EXL2K_ROW_TILES 8u /* of 8 rows: columns of operand B */

enum { EXL2K_GEMM_STORE, EXL2K_GEMM_RESIDUAL, EXL2K_GEMM_ACT };

/* ---- records, one after the other ---- */

typedef struct exl2k_walk {
    u64 table, end;              /* chunk table entries, addresses */
    u32 place, row, shape, ends; /* of exl2k_chunk */
    u32 record;
} exl2k_walk;

EXL2K_FN void exl2k_walk_read(exl2k_walk &w)
{
    if (w.table < w.end) {
        uint4 entry = exl2k_load_constant4(w.table);
        w.place = entry.x;
        w.row = entry.y & 0xFFFF;
        w.shape = entry.z;
        w.ends = entry.w & 255;
    }
    w.record = 0;
}

EXL2K_FN exl2k_walk exl2k_walk_begin(const exl2k_matrix &m, const exl2k_part &p)
{
    exl2k_walk w = { p.chunks, p.chunks + p.slice[m.ways] * sizeof(exl2k_chunk), 0, 0, 0, 0, 0 };
    exl2k_walk_read(w);
    return w;
}

EXL2K_FN bool exl2k_walk_there(const exl2k_walk &w) { return w.table < w.end; }

EXL2K_FN void exl2k_walk_next(exl2k_walk &w)
{
    if (++w.record == (w.shape >> 8 & 255)) {
        w.table += sizeof(exl2k_chunk);
        exl2k_walk_read(w);
    }
}

/* ---- weights of a record: two strips a warp ---- */

typedef struct exl2k_record {
    u32 w[2][8];                 /* lane words; dense records are read when they are used */
    u32 scale[2][2];             /* [strip][half]: scale words of the lane's columns */
    u32 maximum, width, by_half;
    u64 at[2];
} exl2k_record;

template <u32 W> EXL2K_FN void exl2k_global_words(u64 at, u32 lane, u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits, quads = bits / 4;
#pragma unroll
    for (u32 q = 0; q + 1 <= quads; q++) {
        uint4 v = exl2k_load_constant4(at + q * 512 + lane * 16);
        w[4 * q] = v.x;
        w[4 * q + 1] = v.y;
        w[4 * q + 2] = v.z;
        w[4 * q + 3] = v.w;
    }
    if constexpr ((bits & 2) != 0) {
        w[4 * quads] = exl2k_load_constant(at + quads * 512 + lane * 8);
        w[4 * quads + 1] = exl2k_load_constant(at + quads * 512 + lane * 8 + 4);
    }
    if constexpr ((bits & 1) != 0) {
        w[bits - 1] = exl2k_load_constant(at + quads * 512 + (bits & 2) * 128 + lane * 4);
    }
}

template <u32 W> EXL2K_FN void exl2k_record_words(exl2k_record &r, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_global_words<W>(r.at[0], lane, r.w[0]);
        exl2k_global_words<W>(r.at[1], lane, r.w[1]);
    }
}

/* Begins to read the record that `w` stands at, of the strips at first[0], first[1]. */
EXL2K_FN void exl2k_record_read(exl2k_record &r, const exl2k_walk &w, const u64 first[2], u32 lane)
{
    u32 bits = exl2k_bits(w.shape & 255), groups = w.shape >> 16 & 255, g = lane / 4;
    r.width = w.shape & 255;
    r.by_half = w.shape >> 24;
    for (u32 i = 0; i < 2; i++) {
        r.at[i] = first[i] + (u64)w.place * 16 + w.record * bits * 128;
    }
    if (groups > 0) {
        u32 group = r.by_half ? 2 * w.record : __popc(w.ends & ((1u << w.record) - 1));
        u32 scales = ((w.shape >> 8 & 255) - w.record) * bits * 128 + (g / 4 * groups + group) * 4;
        for (u32 i = 0; i < 2; i++) {
            r.scale[i][0] = exl2k_load_constant(r.at[i] + scales);
            r.scale[i][1] = r.by_half ? exl2k_load_constant(r.at[i] + scales + 4) : r.scale[i][0];
        }
        r.maximum = exl2k_load_constant(w.table + 16 + w.record * 4);
    }
    switch (r.width) {
    case EXL2K_W2: exl2k_record_words<EXL2K_W2>(r, lane); break;
    case EXL2K_W3: exl2k_record_words<EXL2K_W3>(r, lane); break;
    case EXL2K_W4: exl2k_record_words<EXL2K_W4>(r, lane); break;
    case EXL2K_W5: exl2k_record_words<EXL2K_W5>(r, lane); break;
    case EXL2K_W6: exl2k_record_words<EXL2K_W6>(r, lane); break;
    case EXL2K_W8: exl2k_record_words<EXL2K_W8>(r, lane); break;
    default: break;
    }
}

/* ---- inputs ---- */

/* Copies 64 rows x 64 inputs; rows beyond the last are the last, and are never stored. */
EXL2K_FN void exl2k_tile_fill(u32 to, u64 x, u32 pitch, u32 first, u32 rows, u32 input)
{
    for (u32 i = threadIdx.x; i < EXL2K_GEMM_ROWS * 8; i += EXL2K_GEMM_THREADS) {
        u32 row = i / 8, row_there = exl2k_min(first + row, rows - 1);
        exl2k_copy16(to + row * EXL2K_TILE_PITCH + i % 8 * 16, x + ((u64)row_there * pitch + input) * 2 + i % 8 * 16);
    }
}

/* ---- one record ---- */

typedef f32 exl2k_sums[2][EXL2K_ROW_TILES][4]; /* [strip][8 rows] */

/* Decoded step j of both strips, scaled, against all rows. b: the lane's inputs of the step, of each 8 rows. */
template <u32 W>
EXL2K_FN void exl2k_step(exl2k_sums &sums, const u32 *w0, const u32 *w1, u32 j, const u32 scale[2][2],
                         const uint4 x[EXL2K_ROW_TILES])
{
    u32 a[2][4];
    exl2k_decode<W>(w0, j, a[0]);
    exl2k_decode<W>(w1, j, a[1]);
    for (u32 i = 0; i < 2 && W != EXL2K_W16; i++) {
        a[i][0] = exl2k_mul2(a[i][0], scale[i][0]);
        a[i][1] = exl2k_mul2(a[i][1], scale[i][1]);
        a[i][2] = exl2k_mul2(a[i][2], scale[i][0]);
        a[i][3] = exl2k_mul2(a[i][3], scale[i][1]);
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_ROW_TILES; n++) {
        u32 b0 = j % 2 ? x[n].z : x[n].x, b1 = j % 2 ? x[n].w : x[n].y;
        exl2k_mma(sums[0][n], a[0], b0, b1);
        exl2k_mma(sums[1][n], a[1], b0, b1);
    }
}

template <u32 W> EXL2K_FN void exl2k_record_product(exl2k_sums &sums, const exl2k_record &r, u32 tile, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        constexpr u32 bits = exl2k_width<W>::bits;
        u32 w[2][bits], g = lane / 4;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            if constexpr (W == EXL2K_W16) {
                exl2k_global_words<W>(r.at[i], lane, w[i]);
            } else {
#pragma unroll
                for (u32 k = 0; k < bits; k++) {
                    w[i][k] = r.w[i][k];
                }
            }
        }
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            uint4 x[EXL2K_ROW_TILES];
            u32 scale[2][2];
#pragma unroll
            for (u32 n = 0; n < EXL2K_ROW_TILES; n++) {
                x[n] = exl2k_shared_load4(tile + (n * 8 + g) * EXL2K_TILE_PITCH + h * 64 + lane % 4 * 16);
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                u32 maximum = exl2k_permute(r.maximum, 0, h ? 0x3232u : 0x1010u);
                u32 pair = W == EXL2K_W16 ? 0 : exl2k_scale_pair(r.scale[i][h], g, maximum);
                scale[i][0] = exl2k_permute(pair, 0, 0x1010u);
                scale[i][1] = exl2k_permute(pair, 0, 0x3232u);
            }
            exl2k_step<W>(sums, w[0], w[1], 2 * h, scale, x);
            exl2k_step<W>(sums, w[0], w[1], 2 * h + 1, scale, x);
        }
    }
}

EXL2K_FN void exl2k_record_any(exl2k_sums &sums, const exl2k_record &r, u32 tile, u32 lane)
{
    switch (r.width) {
    case EXL2K_W2: exl2k_record_product<EXL2K_W2>(sums, r, tile, lane); break;
    case EXL2K_W3: exl2k_record_product<EXL2K_W3>(sums, r, tile, lane); break;
    case EXL2K_W4: exl2k_record_product<EXL2K_W4>(sums, r, tile, lane); break;
    case EXL2K_W5: exl2k_record_product<EXL2K_W5>(sums, r, tile, lane); break;
    case EXL2K_W6: exl2k_record_product<EXL2K_W6>(sums, r, tile, lane); break;
    case EXL2K_W8: exl2k_record_product<EXL2K_W8>(sums, r, tile, lane); break;
    default: exl2k_record_product<EXL2K_W16>(sums, r, tile, lane); break;
    }
}

/* ---- all of K ---- */

/* sums += W x of the two strips that begin at first[], for the CTA's rows. */
EXL2K_FN void exl2k_gemm_part(exl2k_sums &sums, const exl2k_gemm_args &a, const exl2k_part &p, const u64 first[2],
                              u32 row0, u32 rows, u32 shared)
{
    u32 lane = threadIdx.x % EXL2K_WARP, fill = 0, tile = 0;
    exl2k_walk ahead = exl2k_walk_begin(a.matrix, p), walk = ahead;
    exl2k_record now, next;
    for (; fill < EXL2K_TILES - 1; fill++) {
        if (exl2k_walk_there(ahead)) {
            exl2k_tile_fill(shared + fill * EXL2K_TILE_BYTES, a.x, a.x_pitch, row0, rows,
                            ahead.row * 32 + ahead.record * 64);
            exl2k_walk_next(ahead);
        }
        exl2k_copy_commit();
    }
    exl2k_record_read(next, walk, first, lane);
    while (exl2k_walk_there(walk)) {
        now = next;
        exl2k_walk_next(walk);
        if (exl2k_walk_there(walk)) {
            exl2k_record_read(next, walk, first, lane);
        }
        exl2k_copy_wait<EXL2K_TILES - 2>();
        __syncthreads(); /* the tile is there for all, and the one before is no longer read */
        if (exl2k_walk_there(ahead)) {
            exl2k_tile_fill(shared + fill * EXL2K_TILE_BYTES, a.x, a.x_pitch, row0, rows,
                            ahead.row * 32 + ahead.record * 64);
            exl2k_walk_next(ahead);
        }
        exl2k_copy_commit();
        exl2k_record_any(sums, now, shared + tile * EXL2K_TILE_BYTES, lane);
        tile = (tile + 1) % EXL2K_TILES;
        fill = (fill + 1) % EXL2K_TILES;
    }
    __syncthreads();
}

/* ---- results ---- */

EXL2K_FN f32 exl2k_silu(f32 v) { return v / (1.0f + __expf(-v)); }

EXL2K_FN f32 exl2k_bias(const exl2k_part &p, u32 n)
{
    return p.bias ? __uint_as_float(exl2k_load_constant(p.bias + n * 4)) : 0.0f;
}

/* Element e of a result: column g + 8 (e / 2), row 2 t + e % 2 of the eight. */
template <u32 KIND>
EXL2K_FN void exl2k_gemm_out(const exl2k_gemm_args &a, const exl2k_part &p, u32 n, u32 row, f32 value, f32 other)
{
    value += exl2k_bias(p, n);
    u64 at = (u64)row * a.out_pitch + p.column + n;
    if (KIND == EXL2K_GEMM_ACT) {
        u32 place = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        other += exl2k_bias(a.matrix.part[1], n);
        exl2k_store_u16(a.out + ((u64)row * a.out_pitch + place) * 2,
                        exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_silu(value) * other)));
    } else if (KIND == EXL2K_GEMM_RESIDUAL) {
        exl2k_store_f32(a.out + at * 4, exl2k_load_f32(a.out + at * 4) + value);
    } else if (a.out_half) {
        exl2k_store_u16(a.out + at * 2, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
    } else {
        exl2k_store_f32(a.out + at * 4, value);
    }
}

template <u32 KIND> EXL2K_FN void exl2k_gemm(const exl2k_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_matrix &m = a.matrix;
    u32 shared = exl2k_shared(exl2k_dynamic), warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP;
    u32 part = 0, tile = blockIdx.x, passes = KIND == EXL2K_GEMM_ACT ? 2 : 1;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = a.rows_at ? exl2k_load(a.rows_at) : a.rows, row0 = blockIdx.y * EXL2K_GEMM_ROWS;
    for (u32 i = 0; i < EXL2K_PARTS_MAX - 1 && KIND != EXL2K_GEMM_ACT; i++) {
        u32 tiles = (m.part[i].strips + EXL2K_GEMM_STRIPS - 1) / EXL2K_GEMM_STRIPS;
        if (part == i && i + 1 < m.parts && tile >= tiles) {
            tile -= tiles;
            part++;
        }
    }
    const exl2k_part &p = m.part[part];
    if (row0 >= rows) {
        return;
    }
    exl2k_sums sums[KIND == EXL2K_GEMM_ACT ? 2 : 1];
    u32 strip = tile * EXL2K_GEMM_STRIPS + warp * 2;
#pragma unroll
    for (u32 pass = 0; pass < passes; pass++) {
        const exl2k_part &q = m.part[part + pass];
        u64 first[2];
        for (u32 i = 0; i < 2; i++) { /* strips beyond the last are the last, and are never stored */
            first[i] = q.base + (u64)exl2k_min(strip + i, q.strips - 1) * q.pitch;
            for (u32 k = 0; k < EXL2K_ROW_TILES * 4; k++) {
                sums[pass][i][k / 4][k % 4] = 0.0f;
            }
        }
        exl2k_gemm_part(sums[pass], a, q, first, row0, rows, shared);
    }
#pragma unroll
    for (u32 k = 0; k < 2 * EXL2K_ROW_TILES * 4; k++) {
        u32 i = k / 32, tile8 = k / 4 % 8, e = k % 4;
        u32 n = (strip + i) * 16 + lane / 4 + e / 2 * 8, row = row0 + tile8 * 8 + lane % 4 * 2 + e % 2;
        if (n < p.columns && row < rows) {
            exl2k_gemm_out<KIND>(a, p, n, row, sums[0][i][tile8][e], sums[passes - 1][i][tile8][e]);
        }
    }
}

#define EXL2K_GEMM(name, KIND)                                                                                      \
    extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)                                             \
    name(const __grid_constant__ exl2k_gemm_args a)                                                                 \
    {                                                                                                               \
        exl2k_gemm<KIND>(a);                                                                                        \
    }

EXL2K_GEMM(exl2k_gemm_store, EXL2K_GEMM_STORE)
EXL2K_GEMM(exl2k_gemm_residual, EXL2K_GEMM_RESIDUAL)
EXL2K_GEMM(exl2k_gemm_act, EXL2K_GEMM_ACT)
