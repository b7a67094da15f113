/* exl3_out.cuh: what follows the sums of an EXL3 product: the transform of outputs, svh, bias, and what `kind` says.
   takes: exl3.cuh.
   gives: exl2k_exl3_rows, exl2k_exl3_gather, exl2k_exl3_sums, exl2k_exl3_output, exl2k_exl3_result,
          exl2k_exl3_store_rows. */
#ifndef EXL2K_EXL3_OUT_CUH
#define EXL2K_EXL3_OUT_CUH

#include "exl3.cuh"

/* Rows of this launch; a captured launch may have more than the pass. Called after exl2k_dependency_wait. */
EXL2K_FN u32 exl2k_exl3_rows(u64 rows_at, u32 rows, u32 before)
{
    if (rows_at == 0) {
        return rows;
    }
    u32 all = exl2k_load(rows_at);
    return exl2k_min(rows, all > before ? all - before : 0);
}

/* Puts a warp's sums of a column of tiles into shared memory: f32 [rows, EXL2K_EXL3_PITCH]. */
template <u32 TILES> EXL2K_FN void exl2k_exl3_gather(u32 shared, const f32 sum[TILES][4], u32 warp, u32 lane,
                                                       u32 rows)
{
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * n + lane % 4 * 2 + i % 2, column = warp * EXL2K_EXL3_TILE + lane / 4 + i / 2 * 8;
            if (row < rows) {
                exl2k_shared_store_f32(shared + (row * EXL2K_EXL3_PITCH + column) * 4, sum[n][i]);
            }
        }
    }
}

/* A lane's four sums of a row, from shared memory. */
EXL2K_FN void exl2k_exl3_sums(f32 v[4], u32 shared, u32 row, u32 lane)
{
    uint4 s = exl2k_shared_load4(shared + (row * EXL2K_EXL3_PITCH + 4 * lane) * 4);
    v[0] = __uint_as_float(s.x);
    v[1] = __uint_as_float(s.y);
    v[2] = __uint_as_float(s.z);
    v[3] = __uint_as_float(s.w);
}

/* The asm is volatile, because otherwise the compiler may load before it is known that there is a bias. */
EXL2K_FN f32 exl2k_exl3_bias(u64 bias, u32 n)
{
    f32 value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(bias + (u64)n * 4));
    return value;
}

/* Turns a warp's sums of a strip into outputs of the model: H, svh, bias. */
EXL2K_FN void exl2k_exl3_output(f32 v[4], const exl2k_exl3_part &part, u32 strip, u32 lane)
{
    u32 n = strip * EXL2K_EXL3_BLOCK + 4 * lane;
    uint2 scale = exl2k_exl3_scales(part.svh + (u64)n * 2);
    exl2k_exl3_hadamard(v, lane);
    v[0] *= exl2k_low(scale.x);
    v[1] *= exl2k_high(scale.x);
    v[2] *= exl2k_low(scale.y);
    v[3] *= exl2k_high(scale.y);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (part.bias && n + i < part.columns) {
            v[i] += exl2k_exl3_bias(part.bias, n + i);
        }
    }
}

/* Stores the outputs of a strip of a row. gate: ACT of two parts: the outputs of gate. */
EXL2K_FN void exl2k_exl3_result(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 row,
                                const f32 v[4], const f32 gate[4], u32 lane)
{
    u32 first = strip * EXL2K_EXL3_BLOCK + 4 * lane;
    u64 line = (u64)row * a.out_pitch + (a.kind == EXL2K_EXL3_ACT ? 0 : part.column);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u64 at = line + first + i;
        if (first + i >= part.columns) {
            break;
        }
        if (a.kind == EXL2K_EXL3_ACT) {
            f32 h = a.parts == 1 ? exl2k_act(a.act, v[i]) : exl2k_gated(a.act, a.act_limit, gate[i], v[i]);
            exl2k_store_u16(a.out + at * 2, exl2k_f32_to_f16(exl2k_clamp_f16(h)));
        } else if (a.kind == EXL2K_EXL3_RESIDUAL) {
            exl2k_store_f32(a.out + at * 4, fmaf(a.scale, v[i], exl2k_load_f32(a.out + at * 4)));
        } else {
            f32 value = a.scale * v[i];
            value = a.cap > 0 ? exl2k_softcap(value, a.cap) : value;
            if (a.out_half) {
                exl2k_store_u16(a.out + at * 2, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
            } else {
                exl2k_store_f32(a.out + at * 4, value);
            }
        }
    }
}

/* Stores 64 rows of a strip, whose sums lie in shared memory, as the outputs of rows from `first` on. */
EXL2K_FN void exl2k_exl3_store_rows(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                    u32 first, u32 rows, u32 warp, u32 lane)
{
    for (u32 row = warp; row < EXL2K_EXL3_GEMM_ROWS && first + row < rows; row += EXL2K_EXL3_WARPS) {
        f32 v[4], gate[4] = { 0, 0, 0, 0 };
        exl2k_exl3_sums(v, shared, row, lane);
        exl2k_exl3_output(v, part, strip, lane);
        if (a.kind == EXL2K_EXL3_ACT && a.parts == 2) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 n = strip * EXL2K_EXL3_BLOCK + 4 * lane + i;
                u64 at = a.out + ((u64)(first + row) * a.out_pitch + n) * 2;
                gate[i] = n < part.columns ? exl2k_f16_to_f32(exl2k_load_u16(at)) : 0;
            }
        }
        exl2k_exl3_result(a, part, strip, first + row, v, gate, lane);
    }
}

#endif
