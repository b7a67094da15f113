/* exl3_out.cuh: what follows the sums of an EXL3 product: the transform of outputs, svh, bias, and what `kind` says.
   takes: exl3.cuh.
   gives: exl2k_exl3_rows, exl2k_exl3_is_last, exl2k_exl3_gather, exl2k_exl3_sums, exl2k_exl3_output,
          exl2k_exl3_goal_of, exl2k_exl3_before, exl2k_exl3_made, exl2k_exl3_finish_row, exl2k_exl3_result,
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

/* Whether this CTA is the last one of `ctas` that come to a ticket, which is then 0 again. If so, it sees what all of
   them stored before. All threads call it. */
EXL2K_FN bool exl2k_exl3_is_last(u64 ticket, u32 ctas)
{
    __shared__ u32 arrived;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* of all stores of the CTA, which happened before */
        arrived = atomicAdd((u32 *)ticket, 1u);
    }
    __syncthreads();
    if (arrived + 1 < ctas) {
        return false;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        exl2k_store(ticket, 0);
    }
    return true;
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

/* Scales and biases of a lane's four outputs of a strip. */
typedef struct exl2k_exl3_ends {
    uint2 scale;
    f32 bias[4]; /* 0 where there is none */
} exl2k_exl3_ends;

EXL2K_FN exl2k_exl3_ends exl2k_exl3_ends_of(const exl2k_exl3_part &part, u32 strip, u32 lane)
{
    u32 n = strip * EXL2K_EXL3_BLOCK + 4 * lane;
    exl2k_exl3_ends e = { exl2k_exl3_scales(part.svh + (u64)n * 2), { 0, 0, 0, 0 } };
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (part.bias && n + i < part.columns) {
            e.bias[i] = exl2k_exl3_bias(part.bias, n + i);
        }
    }
    return e;
}

/* Turns a warp's sums of a strip into outputs of the model: H, svh, bias. */
EXL2K_FN void exl2k_exl3_ended(f32 v[4], const exl2k_exl3_ends &e, bool biased, u32 lane)
{
    exl2k_exl3_hadamard(v, lane);
    v[0] *= exl2k_low(e.scale.x);
    v[1] *= exl2k_high(e.scale.x);
    v[2] *= exl2k_low(e.scale.y);
    v[3] *= exl2k_high(e.scale.y);
    if (biased) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            v[i] += e.bias[i];
        }
    }
}

/* The same of one row. */
EXL2K_FN void exl2k_exl3_output(f32 v[4], const exl2k_exl3_part &part, u32 strip, u32 lane)
{
    exl2k_exl3_ended(v, exl2k_exl3_ends_of(part, strip, lane), part.bias != 0, lane);
}

/* Where a lane's four outputs of a row go. */
typedef struct exl2k_exl3_goal {
    u64 at;
    u32 count; /* how many of them exist */
    bool half; /* fp16; else f32 */
    bool whole; /* one load or store takes all four */
} exl2k_exl3_goal;

EXL2K_FN exl2k_exl3_goal exl2k_exl3_goal_of(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 row,
                                            u32 lane)
{
    u32 first = strip * EXL2K_EXL3_BLOCK + 4 * lane, column = a.kind == EXL2K_EXL3_ACT ? 0 : part.column;
    exl2k_exl3_goal g;
    g.half = a.kind == EXL2K_EXL3_ACT || (a.kind == EXL2K_EXL3_STORE && a.out_half);
    g.at = a.out + ((u64)row * a.out_pitch + column + first) * (g.half ? 2 : 4);
    g.count = first < part.columns ? exl2k_min(part.columns - first, 4) : 0;
    g.whole = g.count == 4 && (a.out_pitch | column) % 4 == 0;
    return g;
}

/* Loads what lies there already: the residual, or the outputs of gate. */
EXL2K_FN void exl2k_exl3_before(f32 v[4], const exl2k_exl3_goal &g)
{
    v[0] = v[1] = v[2] = v[3] = 0;
    if (g.whole && g.half) {
        u32 low = exl2k_load(g.at), high = exl2k_load(g.at + 4);
        v[0] = exl2k_low(low);
        v[1] = exl2k_high(low);
        v[2] = exl2k_low(high);
        v[3] = exl2k_high(high);
    } else if (g.whole) {
        uint4 s = exl2k_load4(g.at);
        v[0] = __uint_as_float(s.x);
        v[1] = __uint_as_float(s.y);
        v[2] = __uint_as_float(s.z);
        v[3] = __uint_as_float(s.w);
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (i < g.count) {
                v[i] = g.half ? exl2k_f16_to_f32(exl2k_load_u16(g.at + i * 2)) : exl2k_load_f32(g.at + i * 4);
            }
        }
    }
}

EXL2K_FN void exl2k_exl3_put(const exl2k_exl3_goal &g, const f32 v[4])
{
    if (g.whole && g.half) {
        exl2k_store2(g.at, exl2k_pack_f16(exl2k_clamp_f16(v[0]), exl2k_clamp_f16(v[1])),
                     exl2k_pack_f16(exl2k_clamp_f16(v[2]), exl2k_clamp_f16(v[3])));
    } else if (g.whole) {
        exl2k_store4(g.at, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                      __float_as_uint(v[3])));
    } else {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (i < g.count && g.half) {
                exl2k_store_u16(g.at + i * 2, exl2k_f32_to_f16(exl2k_clamp_f16(v[i])));
            } else if (i < g.count) {
                exl2k_store_f32(g.at + i * 4, v[i]);
            }
        }
    }
}

/* The results of a product, from a lane's four outputs. before: RESIDUAL: what lies there; ACT of two parts: the
   outputs of gate. */
EXL2K_FN void exl2k_exl3_made(f32 w[4], const exl2k_exl3_args &a, const f32 v[4], const f32 before[4])
{
    w[0] = v[0], w[1] = v[1], w[2] = v[2], w[3] = v[3];
    if (a.kind == EXL2K_EXL3_RESIDUAL) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            w[i] = fmaf(a.scale, v[i], before[i]);
        }
    } else if (a.kind == EXL2K_EXL3_STORE) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            f32 value = a.scale * v[i];
            w[i] = a.cap > 0 ? exl2k_softcap(value, a.cap) : value;
        }
    } else if (a.act == EXL2K_ACT_SILU) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            w[i] = a.parts == 1 ? exl2k_silu(v[i]) : exl2k_silu(before[i]) * v[i];
        }
    } else {
        f32 b[4] = { before[0], before[1], before[2], before[3] };
#pragma unroll 1
        for (u32 i = 0; i < 4; i++) { /* the code of the other activations is there once */
            f32 h = a.parts == 1 ? exl2k_act(a.act, w[0]) : exl2k_gated(a.act, a.act_limit, b[0], w[0]);
            b[0] = b[1], b[1] = b[2], b[2] = b[3];
            w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = h;
        }
    }
}

/* Stores the outputs of a strip of a row. */
EXL2K_FN void exl2k_exl3_finish_row(const exl2k_exl3_args &a, const exl2k_exl3_goal &g, const f32 v[4],
                                    const f32 before[4])
{
    f32 w[4];
    exl2k_exl3_made(w, a, v, before);
    exl2k_exl3_put(g, w);
}

/* The same; the residual is loaded here. gate: the outputs of gate. */
EXL2K_FN void exl2k_exl3_result(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 row,
                                const f32 v[4], const f32 gate[4], u32 lane)
{
    exl2k_exl3_goal g = exl2k_exl3_goal_of(a, part, strip, row, lane);
    f32 before[4] = { gate[0], gate[1], gate[2], gate[3] };
    if (a.kind == EXL2K_EXL3_RESIDUAL) {
        exl2k_exl3_before(before, g);
    }
    exl2k_exl3_finish_row(a, g, v, before);
}

/* Stores 64 rows of a strip, whose sums lie in shared memory, as the outputs of rows from `first` on. warps: that call
   it. Loads and shuffles of several rows overlap. */
EXL2K_FN void exl2k_exl3_store_rows(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                    u32 first, u32 rows, u32 warp, u32 lane, u32 warps = EXL2K_EXL3_WARPS)
{
    constexpr u32 count = 4;
    bool has_before = a.kind == EXL2K_EXL3_RESIDUAL || (a.kind == EXL2K_EXL3_ACT && a.parts == 2);
    exl2k_exl3_ends e = exl2k_exl3_ends_of(part, strip, lane);
    u32 end = first < rows ? exl2k_min(rows - first, EXL2K_EXL3_GEMM_ROWS) : 0;
#pragma unroll 1
    for (u32 row = warp; row < end; row += count * warps) {
        exl2k_exl3_goal g[count];
        f32 v[count][4], before[count][4];
#pragma unroll
        for (u32 i = 0; i < count; i++) { /* rows beyond the last repeat it, and are not stored */
            u32 own = exl2k_min(row + i * warps, end - 1);
            g[i] = exl2k_exl3_goal_of(a, part, strip, first + own, lane);
            before[i][0] = before[i][1] = before[i][2] = before[i][3] = 0;
            if (has_before) {
                exl2k_exl3_before(before[i], g[i]);
            }
            exl2k_exl3_sums(v[i], shared, own, lane);
        }
#pragma unroll
        for (u32 i = 0; i < count; i++) {
            exl2k_exl3_ended(v[i], e, part.bias != 0, lane);
        }
#pragma unroll
        for (u32 i = 0; i < count; i++) {
            if (row + i * warps < end) {
                exl2k_exl3_finish_row(a, g[i], v[i], before[i]);
            }
        }
    }
}

#endif
