/* gemm_results.cuh: stores the sums of a product of many rows.
   takes: base.cuh, gemm_args.h.
   gives: exl2k_passes, exl2k_sums, exl2k_column with functions that make, store and add up columns, exl2k_gemm_results.

   A warp transposes its sums in shared memory, so that each lane has one column and a row of the warp is 128 bytes. */
#ifndef EXL2K_GEMM_RESULTS_CUH
#define EXL2K_GEMM_RESULTS_CUH

#include "base.cuh"
#include "gemm_args.h"

/* Passes over K: ACT of two parts has two, gate and then up. */
EXL2K_FN u32 exl2k_passes(const exl2k_gemm_args &a)
{
    return a.kind != EXL2K_GEMM_ACT ? 1 : EXL2K_ANY ? a.matrix.parts : 2;
}

typedef struct exl2k_sums { /* [strip][8 rows]: element e is column g + 8 (e / 2), row 2 t + e % 2 */
    f32 v[2][16][4];
} exl2k_sums;

/* ---- conditional loads and stores ---- */

/* Loads and stores with a predicate. Branches around this many of them would take most of the compile time. If
   `valid` is false, a load gives 0. */
EXL2K_FN f32 exl2k_load_if(bool valid, u64 at)
{
    f32 v;
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nmov.f32 %0, 0f00000000;\n@p ld.global.cg.f32 %0, [%2];\n}"
                 : "=f"(v) : "r"((u32)valid), "l"(at) : "memory");
    return v;
}

EXL2K_FN void exl2k_store_if(bool valid, u64 at, f32 v)
{
    exl2k_sleep(32);
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.f32 [%1], %2;\n}"
                 ::"r"((u32)valid), "l"(at), "f"(v) : "memory");
}

EXL2K_FN void exl2k_store_u16_if(bool valid, u64 at, u32 v)
{
    exl2k_sleep(32);
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.u16 [%1], %2;\n}"
                 ::"r"((u32)valid), "l"(at), "h"((u16)v) : "memory");
}

/* ---- columns ---- */

/* SiLU with a division that is accurate to two units in the last place, because many results wait for it here. */
EXL2K_FN f32 exl2k_silu_quick(f32 v) { return __fdividef(v, 1.0f + __expf(-v)); }

EXL2K_FN f32 exl2k_bias_of(const exl2k_part &p, u32 n)
{
    return p.bias && n < p.columns ? __uint_as_float(exl2k_load_constant(p.bias + n * 4)) : 0.0f;
}

/* Destination of a lane's column of results, and the prior values that are combined with the results. RESIDUAL: prior
   values are the old outputs, and the scaled result is added to them. ACT of two parts: prior values are the gate, and
   the result is multiplied by their activation. */
typedef struct exl2k_column {
    u64 to, prior;           /* address of the first row; prior 0: no prior values */
    u32 to_step, prior_step; /* bytes from row to row */
    f32 bias, prior_bias;
    f32 scale;               /* ACT: the limit of EXL2K_ACT_CLAMPED; else a factor of the result */
    u32 act, half;           /* act: EXL2K_ACT_* (1 if EXL2K_ANY is 0); 0: none */
} exl2k_column;

/* A column of a block f32 [rows, 256]: sums of a split, or the gate of ACT. */
EXL2K_FN exl2k_column exl2k_column_block(u64 block)
{
    exl2k_column c = { block + threadIdx.x * 4, 0, 1024, 0, 0.0f, 0.0f, 1.0f, 0, 0 };
    return c;
}

/* The column of a pass. Pass 0 of two stores the gate in the block `gates`, and pass 1 reads it there. n: the lane's
   column in the part. */
EXL2K_FN exl2k_column exl2k_column_of(const exl2k_gemm_args &a, u32 part, u32 pass, u32 n, u32 row0, u64 gates)
{
    const exl2k_part &p = a.matrix.part[part];
    u32 act = a.kind == EXL2K_GEMM_ACT, half = act || (a.kind == EXL2K_GEMM_STORE && a.out_half);
    u32 index = act ? n : p.column + n;
    bool gated = EXL2K_ANY ? exl2k_passes(a) > 1 : act;
    if (gated && pass == 0) {
        return exl2k_column_block(gates);
    }
    /* Results go to the outputs. The prior values are the gate for ACT, and the old output for RESIDUAL. */
    exl2k_column c = { a.out + ((u64)row0 * a.out_pitch + index << (half ? 1 : 2)), 0, a.out_pitch << (half ? 1 : 2), 0,
                       exl2k_bias_of(p, n), 0.0f, a.kind == EXL2K_GEMM_RESIDUAL ? a.scale : act ? a.act_limit : 1.0f,
                       EXL2K_ANY && act ? a.act : act, half };
    c.prior = gated ? gates + threadIdx.x * 4 : a.kind == EXL2K_GEMM_RESIDUAL ? c.to : 0;
    c.prior_step = gated ? 1024 : c.to_step;
    c.prior_bias = gated ? exl2k_bias_of(a.matrix.part[0], n) : 0.0f;
    return c;
}

/* Starts to load the prior values of the column's next 16 rows; `rows` of them exist. */
EXL2K_FN void exl2k_column_load(exl2k_column &c, f32 prior[16], u32 rows)
{
    u32 count = c.prior ? rows : 0;
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        prior[i] = exl2k_load_if(i < count, c.prior + (u64)i * c.prior_step);
    }
    c.prior += c.prior ? 16ull * c.prior_step : 0;
}

/* Activation of 16 values. */
EXL2K_FN void exl2k_column_act(u32 act, f32 v[16])
{
    if (act == EXL2K_ACT_SILU) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            v[i] = exl2k_silu_quick(v[i]);
        }
    } else if (act == EXL2K_ACT_GELU_TANH) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            v[i] = exl2k_gelu_tanh(v[i]);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            v[i] = act == EXL2K_ACT_GELU ? exl2k_gelu(v[i]) : exl2k_relu_squared(v[i]);
        }
    }
}

/* act(gate) * up of 16 rows, or act(up) without a gate. */
EXL2K_FN void exl2k_column_gated(const exl2k_column &c, const f32 v[16], const f32 prior[16], f32 value[16])
{
    bool gated = c.prior != 0;
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        value[i] = gated ? prior[i] + c.prior_bias : v[i] + c.bias;
    }
    if (!EXL2K_AFFINE && c.act == EXL2K_ACT_CLAMPED) { /* has a gate; gemm_affine.cu has no registers left for this */
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            value[i] = exl2k_clamped(value[i], v[i] + c.bias, c.scale);
        }
        return;
    }
    exl2k_column_act(c.act, value);
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        value[i] *= gated ? v[i] + c.bias : 1.0f;
    }
}

/* Stores the column's next 16 rows; `rows` of them exist. Conditions that are the same for all rows are tested once,
   and 16 SiLUs in parallel take only as long as two in sequence. */
EXL2K_FN void exl2k_column_store(exl2k_column &c, const f32 v[16], const f32 prior[16], u32 rows)
{
    f32 value[16];
    if (c.act && EXL2K_ANY) {
        exl2k_column_gated(c, v, prior, value);
    } else if (c.act) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            value[i] = exl2k_silu_quick(prior[i] + c.prior_bias) * (v[i] + c.bias);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            value[i] = EXL2K_ANY ? fmaf(v[i] + c.bias, c.scale, prior[i]) : prior[i] + (v[i] + c.bias);
        }
    }
    /* Store as fp16 or as f32. */
    if (c.half) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            u32 half = exl2k_f32_to_f16(exl2k_clamp_f16(value[i]));
            exl2k_store_u16_if(i < rows, c.to + (u64)i * c.to_step, half);
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            exl2k_store_if(i < rows, c.to + (u64)i * c.to_step, value[i]);
        }
    }
    c.to += 16ull * c.to_step;
}

/* Adds up the column over blocks, in their order, and stores it. */
EXL2K_FN void exl2k_column_sum(exl2k_column &c, u64 block, u32 count, u64 block_bytes, u32 rows)
{
#pragma unroll 1
    for (u32 row = 0; row < rows; row += 16) {
        /* Each round adds up 16 rows of the column. */
        f32 v[16] = { 0 }, prior[16];
        exl2k_column_load(c, prior, rows - row);
        u64 from = block + row * 1024 + threadIdx.x * 4;
#pragma unroll 1
        for (u32 z = 0; z < count; z += 4, from += 4 * block_bytes) { /* 64 loads in flight */
            f32 more[4][16];
#pragma unroll
            for (u32 k = 0; k < 64; k++) {
                u64 at = from + k / 16 * block_bytes + k % 16 * 1024;
                more[k / 16][k % 16] = exl2k_load_if(z + k / 16 < count, at);
            }
#pragma unroll
            for (u32 k = 0; k < 64; k++) {
                v[k % 16] += more[k / 16][k % 16];
            }
        }
        exl2k_column_store(c, v, prior, rows - row);
    }
}

/* Orders later bulk copies into the ring after the results in it. */
EXL2K_FN void exl2k_results_fence(void)
{
#if EXL2K_GEMM_BULK
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Transposes the warp's sums through its ring, 32 rows at a time, and stores them. valid: the lane has a column. */
EXL2K_FN void exl2k_gemm_results(const exl2k_sums &sums, exl2k_column &c, bool valid, u32 rows, u32 ring)
{
    u32 lane = threadIdx.x % EXL2K_WARP, to = ring + lane % 4 * 2 * EXL2K_GEMM_PITCH + lane / 4 * 4;
    u32 left = valid ? rows : 0;
    f32 prior[16], next[16];
    /* Load the prior values of the first 16 rows. */
    exl2k_column_load(c, prior, left);
#pragma unroll 1
    for (u32 row = 0; row < rows; row += 16) {
        f32 v[16];
        /* Every 32 rows, all lanes write their sums of these rows into the ring. */
        if (row % 32 == 0) {
            __syncwarp();
#pragma unroll
            for (u32 k = 0; k < 128; k++) {
                u32 i = k / 8 % 4, s = k / 4 % 2, e = k % 4;
                if (row == k / 32 * 32) {
                    exl2k_shared_store_f32(to + (i * 8 + e % 2) * EXL2K_GEMM_PITCH + s * 64 + e / 2 * 32,
                                           sums.v[s][k / 8][e]);
                }
            }
            __syncwarp();
        }
        /* Each lane reads 16 rows of its column. */
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            v[i] = exl2k_shared_load_f32(ring + lane * 4 + (row % 32 + i) * EXL2K_GEMM_PITCH);
        }
        /* Load the next prior values, then store these rows. */
        u32 now = left;
        left -= exl2k_min(left, 16);
        exl2k_column_load(c, next, left);
        exl2k_column_store(c, v, prior, now);
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            prior[i] = next[i];
        }
    }
    exl2k_results_fence();
    __syncwarp();
}

#endif
