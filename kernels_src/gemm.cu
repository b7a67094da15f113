/* gemm.cu: products of 9 and more rows: 32, 64 or 128 rows x 256 columns a CTA, weights decoded in registers.
   takes: base.cuh, gemm_weights.cuh, gemm_args.h.
   gives: exl2k_gemm32, exl2k_gemm64, exl2k_gemm128.
   owns:  nothing.
   next:  gemm_weights.cuh

   Eight warps of two strips (ACT: one of gate, one of up). Every weight is decoded once by the warp that uses it for
   all rows; only inputs are shared, in tiles of 64 inputs. What a half (32 inputs) of all SMs' work costs a scheduler
   with two warps at 128 rows: 128 HMMA of 6.7 clocks, 860 in all, against 2 x 150 other instructions; shared memory
   gives inputs in 512 clocks. The two warps take turns: one decodes while the other multiplies, so nothing may make
   them wait for each other: tiles of inputs are handed over by arrivals (mbarrier), not by barriers of the CTA.

   A tile of inputs is two halves of [rows][64 bytes], the second with 64-byte columns swapped: a lane's 8 inputs are 16
   bytes, read and written without bank conflicts. */
#include "base.cuh"
#include "gemm_args.h"
#include "gemm_weights.cuh"

/* ---- tiles of inputs ---- */

typedef struct exl2k_tiles {
    u64 x;                    /* input 0 of row 0 */
    u32 pitch, first, last;   /* bytes of a row; rows of the CTA, `last` the last there is */
    u32 at, barriers, stages;
    u32 fill, fill_phase;     /* the next tile to fill, and how often (mod 2) that place was filled */
    u32 use, use_phase;
} exl2k_tiles;

#if __CUDA_ARCH__ >= 800
EXL2K_FN void exl2k_arrival_wait(u32 barrier, u32 parity)
{
    u32 done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#else
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#endif
    } while (!done);
}
#endif

/* Barrier 8 + i: all warps have read place i; barrier i: all threads' copies to place i have arrived. */
EXL2K_FN void exl2k_tiles_begin(const exl2k_tiles &s)
{
#if __CUDA_ARCH__ >= 800
    if (threadIdx.x < s.stages) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(s.barriers + threadIdx.x * 8), "r"(EXL2K_GEMM_THREADS)
                     : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(s.barriers + 64 + threadIdx.x * 8),
                     "r"(EXL2K_GEMM_WARPS) : "memory");
    }
#endif
}

/* Begins to copy tile `tile` (64 inputs); rows beyond the last are the last, and are never stored. */
template <u32 NT> EXL2K_FN void exl2k_tiles_fill(exl2k_tiles &s, u32 tile)
{
    u32 column = threadIdx.x % 8, line = threadIdx.x / 8, to = s.at + s.fill * (NT * 1024);
    u64 from = s.x + tile * 128 + column * 16;
#if __CUDA_ARCH__ >= 800
    if (tile >= s.stages) {
        exl2k_arrival_wait(s.barriers + 64 + s.fill * 8, s.fill_phase ^ 1);
    }
#endif
    to += column / 4 * (NT * 512) + ((line * 64 + column % 4 * 16) ^ (column / 4 * 64));
#pragma unroll
    for (u32 i = 0; i < NT * 8; i += EXL2K_GEMM_THREADS / 8) {
        exl2k_copy16(to + i * 64, from + (u64)exl2k_min(s.first + line + i, s.last) * s.pitch);
    }
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(s.barriers + s.fill * 8) : "memory");
#endif
    s.fill = s.fill + 1 == s.stages ? 0 : s.fill + 1;
    s.fill_phase ^= s.fill == 0;
}

EXL2K_FN void exl2k_tiles_wait(const exl2k_tiles &s)
{
#if __CUDA_ARCH__ >= 800
    exl2k_arrival_wait(s.barriers + s.use * 8, s.use_phase);
#else
    __syncthreads();
#endif
}

/* The warp will not read this tile again. */
EXL2K_FN void exl2k_tiles_done(exl2k_tiles &s, u32 lane)
{
#if __CUDA_ARCH__ >= 800
    __syncwarp();
    if (lane == 0) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(s.barriers + 64 + s.use * 8) : "memory");
    }
#endif
    s.use = s.use + 1 == s.stages ? 0 : s.use + 1;
    s.use_phase ^= s.use == 0;
}

/* ---- sums ---- */

template <u32 NT> struct exl2k_sums { /* [strip][8 rows]: column g + 8 (e / 2), row 2 t + e % 2 in element e */
    f32 v[2][NT][4];
};

/* The two strips' operands of a half against all rows. at: the lane's inputs of the first row. */
template <u32 NT> EXL2K_FN void exl2k_half_product(exl2k_sums<NT> &sums, const exl2k_operand a[2], u32 at)
{
    uint4 x[2][2];
    x[0][0] = exl2k_shared_load4(at);
    x[0][1] = exl2k_shared_load4(at + 512);
#pragma unroll
    for (u32 p = 0; p < NT / 2; p++) {
        if (p + 1 < NT / 2) {
            x[(p + 1) % 2][0] = exl2k_shared_load4(at + p * 1024 + 1024);
            x[(p + 1) % 2][1] = exl2k_shared_load4(at + p * 1024 + 1536);
        }
        for (u32 k = 0; k < 4; k++) {
            exl2k_mma(sums.v[k % 2][2 * p + k / 2], a[k % 2][0], x[p % 2][k / 2].x, x[p % 2][k / 2].y);
        }
        for (u32 k = 0; k < 4; k++) {
            exl2k_mma(sums.v[k % 2][2 * p + k / 2], a[k % 2][1], x[p % 2][k / 2].z, x[p % 2][k / 2].w);
        }
    }
}

/* Waits until this warp's copies for all halves but those of the last `ahead` - 2 steps have arrived. */
EXL2K_FN void exl2k_weights_wait(u32 ahead)
{
    switch (ahead) {
    case 2: exl2k_copy_wait<0>(); break;
    case 3: exl2k_copy_wait<1>(); break;
    case 5: exl2k_copy_wait<3>(); break;
    case 7: exl2k_copy_wait<5>(); break;
    default: exl2k_copy_wait<9>(); break;
    }
    __syncwarp();
}

/* sums = W x over the halves [first, end), whose weights for the first `ahead` are on their way. */
template <u32 NT>
EXL2K_FN void exl2k_gemm_sum(exl2k_sums<NT> &sums, const exl2k_gemm_args &a, exl2k_weights w[2], exl2k_tiles &s,
                             u32 first, u32 end)
{
    u32 lane = threadIdx.x % EXL2K_WARP, lead = s.stages > 2 ? s.stages - 2 : 1, tile = first / 2;
    u32 tiles = (end - first + 1) / 2, from = (lane / 4 * 64 + lane % 4 * 16);
    exl2k_operand operand[2];
    for (u32 i = 0; i < lead && i < tiles; i++) {
        exl2k_tiles_fill<NT>(s, i);
    }
    exl2k_copy_commit();
    for (u32 k = 0; k < 2 * NT * 4; k++) {
        sums.v[k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
    }
    exl2k_copy_wait<0>();
    __syncwarp();
    exl2k_weights_decode(w[0], operand[0], first, a.slot_bytes, lane);
    exl2k_weights_decode(w[1], operand[1], first, a.slot_bytes, lane);
    (void)tile;
    for (u32 half = first; half < end; half++) {
        u32 odd = half & 1;
        exl2k_weights_wait(a.ahead);
        if (half + a.ahead < end) {
            exl2k_weights_fill(w[0], half + a.ahead, a.slot_bytes, lane);
            exl2k_weights_fill(w[1], half + a.ahead, a.slot_bytes, lane);
        }
        exl2k_copy_commit();
        if (!odd) {
            exl2k_tiles_wait(s);
            if ((half - first) / 2 + lead < tiles) {
                exl2k_tiles_fill<NT>(s, (half - first) / 2 + lead);
            }
        }
        exl2k_half_product<NT>(sums, operand, s.at + s.use * (NT * 1024) + odd * (NT * 512) + (from ^ odd * 64));
        if (odd) {
            exl2k_tiles_done(s, lane);
        }
        if (half + 1 < end) {
            exl2k_weights_decode(w[0], operand[0], half + 1, a.slot_bytes, lane);
            exl2k_weights_decode(w[1], operand[1], half + 1, a.slot_bytes, lane);
        }
    }
}

/* ---- splits ---- */

/* Leaves this warp's sums in scratch; whether it is the last of its splits: then all are summed up in `sums`. */
template <u32 NT> EXL2K_FN bool exl2k_gemm_gather(exl2k_sums<NT> &sums, const exl2k_gemm_args &a)
{
    u32 warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP, ticket = 0;
    u32 tile = blockIdx.y * gridDim.x + blockIdx.x;
    u64 split_bytes = EXL2K_GEMM_WARPS * NT * 1024, mine = a.partial + warp * (NT * 1024) + lane * 16;
    mine += (u64)tile * gridDim.z * split_bytes;
#pragma unroll
    for (u32 k = 0; k < 2 * NT; k++) {
        const f32 *v = sums.v[k / NT][k % NT];
        exl2k_store4(mine + blockIdx.z * split_bytes + k * 512,
                     make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                __float_as_uint(v[3])));
    }
    __syncwarp();
    if (lane == 0) {
        __threadfence();
        ticket = atomicInc((u32 *)a.tickets + tile * EXL2K_GEMM_WARPS + warp, gridDim.z - 1);
        __threadfence();
    }
    if (__shfl_sync(EXL2K_ALL, ticket, 0) != gridDim.z - 1) {
        return false;
    }
    for (u32 k = 0; k < 2 * NT * 4; k++) {
        sums.v[k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
    }
    for (u32 z = 0; z < gridDim.z; z++) {
#pragma unroll
        for (u32 k = 0; k < 2 * NT; k++) {
            uint4 v = exl2k_load4(mine + z * split_bytes + k * 512);
            sums.v[k / NT][k % NT][0] += __uint_as_float(v.x);
            sums.v[k / NT][k % NT][1] += __uint_as_float(v.y);
            sums.v[k / NT][k % NT][2] += __uint_as_float(v.z);
            sums.v[k / NT][k % NT][3] += __uint_as_float(v.w);
        }
    }
    return true;
}

/* ---- results ---- */

EXL2K_FN f32 exl2k_silu(f32 v) { return v / (1.0f + __expf(-v)); }

EXL2K_FN f32 exl2k_bias(const exl2k_part &p, u32 n)
{
    return p.bias && n < p.columns ? __uint_as_float(exl2k_load_constant(p.bias + n * 4)) : 0.0f;
}

/* Rows of a warp's results, 32 columns each, from shared memory to where they belong. n: the first column. */
EXL2K_FN void exl2k_rows_store(const exl2k_gemm_args &a, const exl2k_part &p, u32 from, u32 n, u32 row0, u32 rows)
{
    u32 lane = threadIdx.x % EXL2K_WARP;
    n += lane;
    f32 bias = exl2k_bias(p, n);
    u64 at = (u64)row0 * a.out_pitch + p.column + n;
    from += lane * 4;
    if (n < p.columns && a.out_half) {
#pragma unroll 4
        for (u32 row = 0; row < rows; row++, at += a.out_pitch) {
            f32 value = exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH) + bias;
            exl2k_store_u16(a.out + at * 2, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
        }
    } else if (n < p.columns) {
#pragma unroll 4
        for (u32 row = 0; row < rows; row++, at += a.out_pitch) {
            exl2k_store_f32(a.out + at * 4, exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH) + bias);
        }
    }
}

EXL2K_FN void exl2k_rows_add(const exl2k_gemm_args &a, const exl2k_part &p, u32 from, u32 n, u32 row0, u32 rows)
{
    u32 lane = threadIdx.x % EXL2K_WARP;
    n += lane;
    f32 bias = exl2k_bias(p, n);
    u64 at = a.out + ((u64)row0 * a.out_pitch + p.column + n) * 4;
    from += lane * 4;
    for (u32 row = 0; row < rows && n < p.columns; row += 16) { /* 16 reads under way */
        f32 old[16];
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            old[i] = row + i < rows ? exl2k_load_f32(at + (u64)(row + i) * a.out_pitch * 4) : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            if (row + i < rows) {
                f32 value = exl2k_shared_load_f32(from + (row + i) * EXL2K_GEMM_PITCH) + bias;
                exl2k_store_f32(at + (u64)(row + i) * a.out_pitch * 4, old[i] + value);
            }
        }
    }
}

/* 16 columns of gate, then the same of up. */
EXL2K_FN void exl2k_rows_act(const exl2k_gemm_args &a, u32 from, u32 n, u32 row0, u32 rows)
{
    u32 lane = threadIdx.x % EXL2K_WARP, odd = lane / 16;
    const exl2k_part &p = a.matrix.part[0];
    n += lane % 16;
    f32 bias = exl2k_bias(p, n), bias_up = exl2k_bias(a.matrix.part[1], n);
    if (n < p.columns) {
        u64 at = a.out + ((u64)row0 * a.out_pitch + (a.map ? exl2k_load_u16(a.map + n * 2) : n)) * 2;
        from += lane % 16 * 4;
#pragma unroll 4
        for (u32 row = odd; row < rows; row += 2) {
            f32 gate = exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH) + bias;
            f32 up = exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH + 64) + bias_up;
            exl2k_store_u16(at + (u64)row * a.out_pitch * 2,
                            exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_silu(gate) * up)));
        }
    }
}

/* Turns the warp's sums into rows in shared memory, 64 (or 32) at a time, and stores those. n: the first column. */
template <u32 NT>
EXL2K_FN void exl2k_gemm_results(const exl2k_sums<NT> &sums, const exl2k_gemm_args &a, const exl2k_part &p, u32 n,
                                 u32 row0, u32 rows, u32 shared)
{
    constexpr u32 each = NT < 8 ? NT : 8;
    u32 warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP;
    u32 at = shared + warp * (each * 8 * EXL2K_GEMM_PITCH), to = at + lane % 4 * 2 * EXL2K_GEMM_PITCH + lane / 4 * 4;
#pragma unroll
    for (u32 c = 0; c < NT; c += each) {
        u32 first = row0 + c * 8, count = exl2k_min(each * 8, exl2k_max(rows, first) - first);
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < each * 8; k++) {
            u32 i = k / 8, s = k / 4 % 2, e = k % 4;
            exl2k_shared_store_f32(to + (i * 8 + e % 2) * EXL2K_GEMM_PITCH + s * 64 + e / 2 * 32, sums.v[s][c + i][e]);
        }
        __syncwarp();
        if (a.kind == EXL2K_GEMM_ACT) {
            exl2k_rows_act(a, at, n, first, count);
        } else if (a.kind == EXL2K_GEMM_RESIDUAL) {
            exl2k_rows_add(a, p, at, n, first, count);
        } else {
            exl2k_rows_store(a, p, at, n, first, count);
        }
    }
}

/* ---- the kernels ---- */

template <u32 NT> EXL2K_FN void exl2k_gemm(const exl2k_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_matrix &m = a.matrix;
    u32 shared = exl2k_shared(exl2k_dynamic), warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP;
    u32 part = 0, tile = blockIdx.y, act = a.kind == EXL2K_GEMM_ACT;
    u32 first = blockIdx.z * a.halves, end = exl2k_min(first + a.halves, (m.rows + 31) / 32);
    for (u32 i = 0; i + 1 < EXL2K_PARTS_MAX && !act; i++) {
        u32 tiles = (m.part[i].strips + EXL2K_GEMM_STRIPS - 1) / EXL2K_GEMM_STRIPS;
        if (part == i && i + 1 < m.parts && tile >= tiles) {
            tile -= tiles;
            part++;
        }
    }
    exl2k_tiles s = { 0 };
    u32 table = shared + EXL2K_GEMM_BARRIERS, ring = table + (act + 1) * a.halves * 8, each = a.slots * a.slot_bytes;
    u32 strip = tile * (EXL2K_GEMM_STRIPS >> act) + (warp * 2 >> act);
    exl2k_weights w[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) { /* strips beyond the last are the last, and are never stored */
        const exl2k_part &q = m.part[part + (i & act)];
        u32 slots = ring + (warp * 2 + i) * each;
        u64 base = q.base + (u64)exl2k_min(strip + (act ? 0 : i), q.strips - 1) * q.pitch;
        w[i] = { base, table + ((i & act) * a.halves - first) * 8, slots, slots + each, slots, slots, first };
    }
    s.barriers = shared;
    s.stages = a.stages;
    s.at = ring + EXL2K_GEMM_WARPS * 2 * each;
    exl2k_tiles_begin(s);
    for (u32 i = 0; i <= act; i++) {
        exl2k_table_make(table + i * a.halves * 8, m.part[part + i], m.ways, first, end);
    }
    __syncthreads();
    for (u32 half = first; half < first + a.ahead && half < end; half++) {
        exl2k_weights_fill(w[0], half, a.slot_bytes, lane);
        exl2k_weights_fill(w[1], half, a.slot_bytes, lane);
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = a.rows_at ? exl2k_load(a.rows_at) : a.rows, row0 = blockIdx.x * (NT * 8);
    if (row0 >= rows) {
        exl2k_copy_commit();
        exl2k_copy_wait<0>();
        return;
    }
    s.x = a.x + (u64)first * 64;
    s.pitch = a.x_pitch * 2;
    s.first = row0;
    s.last = rows - 1;
    exl2k_sums<NT> sums;
    exl2k_gemm_sum<NT>(sums, a, w, s, first, end);
    bool store = gridDim.z == 1 || exl2k_gemm_gather<NT>(sums, a);
    __syncthreads(); /* no warp reads tiles of inputs any more */
    if (store) {
        exl2k_gemm_results<NT>(sums, a, m.part[part], strip * 16, row0, rows, shared + EXL2K_GEMM_BARRIERS);
    }
}

#define EXL2K_GEMM(name, NT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)                                             \
    name(const __grid_constant__ exl2k_gemm_args a)                                                                 \
    {                                                                                                               \
        exl2k_gemm<NT>(a);                                                                                          \
    }

EXL2K_GEMM(exl2k_gemm32, 4)
EXL2K_GEMM(exl2k_gemm64, 8)
EXL2K_GEMM(exl2k_gemm128, 16)
