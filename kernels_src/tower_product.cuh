/* tower_product.cuh: what becomes of the sums of a product of a tower. They go through shared memory, so that a warp
   stores whole lines.
   takes: base.cuh, tower_args.h.
   gives: exl2k_tower_results_pitch, exl2k_tower_put, exl2k_tower_finish. */
#ifndef EXL2K_TOWER_PRODUCT_CUH
#define EXL2K_TOWER_PRODUCT_CUH

#include "base.cuh"
#include "tower_args.h"

/* Bytes of shared memory that a warp needs for its results: 16 rows. */
template <u32 COLUMNS> EXL2K_FN u32 exl2k_tower_results_pitch(void) { return (COLUMNS + 8) * 4; }

/* All but GELU by erf are v / (1 + e^-(plain + linear v + cubic v^3)). */
EXL2K_FN f32 exl2k_tower_act(const exl2k_tower_product_args &a, f32 v)
{
    f32 z = fmaf(fmaf(a.cubic * v, v, a.linear), v, a.plain);
    return a.act == EXL2K_TOWER_GELU ? exl2k_gelu(v) : v / (1.0f + __expf(-z));
}

/* Puts the sums of 16 rows and 8 columns from `column` on into shared memory; operands as those of exl2k_mma. */
template <u32 COLUMNS> EXL2K_FN void exl2k_tower_put(u32 shared, u32 column, const f32 d[4])
{
    u32 lane = threadIdx.x % 32;
    u32 at = shared + lane / 4 * exl2k_tower_results_pitch<COLUMNS>() + (column + lane % 4 * 2) * 4;
    exl2k_shared_store2(at, make_uint2(__float_as_uint(d[0]), __float_as_uint(d[1])));
    exl2k_shared_store2(at + 8 * exl2k_tower_results_pitch<COLUMNS>(),
                        make_uint2(__float_as_uint(d[2]), __float_as_uint(d[3])));
}

/* y of four neighbouring columns. */
EXL2K_FN void exl2k_tower_values(const exl2k_tower_product_args &a, u32 at, u32 column, f32 y[4])
{
    uint4 v = exl2k_shared_load4(at), b = exl2k_load4(a.bias + column * 4);
    y[0] = fmaf(__uint_as_float(v.x), EXL2K_TOWER_SCALE, __uint_as_float(b.x));
    y[1] = fmaf(__uint_as_float(v.y), EXL2K_TOWER_SCALE, __uint_as_float(b.y));
    y[2] = fmaf(__uint_as_float(v.z), EXL2K_TOWER_SCALE, __uint_as_float(b.z));
    y[3] = fmaf(__uint_as_float(v.w), EXL2K_TOWER_SCALE, __uint_as_float(b.w));
}

EXL2K_FN void exl2k_tower_store(const exl2k_tower_product_args &a, u32 row, u32 column, f32 y[4])
{
    u64 to = a.out + ((u64)row * a.out_pitch + column) * 4;
    bool adds = a.kind == EXL2K_TOWER_ADD;
    if (column + 4 <= a.columns && a.out_pitch % 4 == 0) {
        uint4 v = adds ? exl2k_load4(to) : make_uint4(0, 0, 0, 0); /* a sum with 0 is exact */
        exl2k_store4(to, make_uint4(__float_as_uint(__uint_as_float(v.x) + y[0]),
                                    __float_as_uint(__uint_as_float(v.y) + y[1]),
                                    __float_as_uint(__uint_as_float(v.z) + y[2]),
                                    __float_as_uint(__uint_as_float(v.w) + y[3])));
        return;
    }
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        if (column + k < a.columns) {
            exl2k_store_f32(to + k * 4, adds ? exl2k_load_f32(to + k * 4) + y[k] : y[k]);
        }
    }
}

/* A warp finishes the 16 rows that it has put into shared memory: rows from `row` on, columns from `column` on. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_finish(const exl2k_tower_product_args &a, u32 shared, u32 row, u32 column)
{
    u32 lane = threadIdx.x % 32, part = lane % (COLUMNS / 4);
    const f32 inverse = 1.0f / EXL2K_TOWER_SCALE;
    __syncwarp();
#pragma unroll 1
    for (u32 r = lane / (COLUMNS / 4); r < 16; r += 128 / COLUMNS) {
        u32 line = shared + r * exl2k_tower_results_pitch<COLUMNS>();
        f32 y[4];
        if (row + r >= a.rows) {
            continue;
        }
        if (a.kind == EXL2K_TOWER_GATED) { /* two columns of gate, and of up 8 further */
            u32 from = part * 2 / 8 * 16 + part * 2 % 8, to = column / 2 + part * 2;
            uint2 g = exl2k_shared_load2(line + from * 4), u = exl2k_shared_load2(line + (from + 8) * 4);
            uint2 gb = exl2k_load_constant2(a.bias + (column + from) * 4);
            uint2 ub = exl2k_load_constant2(a.bias + (column + from + 8) * 4);
            y[0] = fmaf(__uint_as_float(g.x), EXL2K_TOWER_SCALE, __uint_as_float(gb.x));
            y[1] = fmaf(__uint_as_float(g.y), EXL2K_TOWER_SCALE, __uint_as_float(gb.y));
            y[2] = fmaf(__uint_as_float(u.x), EXL2K_TOWER_SCALE, __uint_as_float(ub.x));
            y[3] = fmaf(__uint_as_float(u.y), EXL2K_TOWER_SCALE, __uint_as_float(ub.y));
            if (to < a.out_pitch) {
                exl2k_store(a.out + ((u64)(row + r) * a.out_pitch + to) * 2,
                            exl2k_pack_f16(exl2k_tower_act(a, y[0]) * y[2] * inverse,
                                           exl2k_tower_act(a, y[1]) * y[3] * inverse));
            }
            continue;
        }
        u32 to = column + part * 4;
        exl2k_tower_values(a, line + part * 16, to, y);
        if (a.kind != EXL2K_TOWER_ACT) {
            exl2k_tower_store(a, row + r, to, y);
        } else if (to < a.out_pitch) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                y[k] = exl2k_tower_act(a, y[k]) * inverse;
            }
            exl2k_store2(a.out + ((u64)(row + r) * a.out_pitch + to) * 2, exl2k_pack_f16(y[0], y[1]),
                         exl2k_pack_f16(y[2], y[3]));
        }
    }
    __syncwarp();
}

#endif
