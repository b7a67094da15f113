/* exl3_wg.cuh: the product of many rows with an EXL3 matrix by wgmma, on sm_90a (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh, exl3_gemv.cuh (strips, rings), wg.cuh.
   gives: exl2k_exl3_wg<T, C, BOOK>: the body of a kernel for one codebook, tiles of T rows (128, 256), and CTAs that
          have C outputs of a strip (128, or 64 with 128 rows). Grid: strips of the launch's parts * 128 / C,
          rotated_rows / T; EXL2K_EXL3_WG_THREADS(C) threads; EXL2K_EXL3_WG_SHARED(T, C) bytes of dynamic shared memory.

   The first C / 16 warps of a CTA multiply, eight others decode: registers leave room for two warps that multiply on a
   scheduler, and if these decode, too, each waits for its own instructions most of the time. A stage has 64 inputs: of
   all rows (B), and of the CTA's outputs (A), both in tiles as wgmma reads them (wg.cuh). In the end all warps
   transform and store outputs.

   DECODE   C / 16 warps, a group, have one column of tiles each, whose words come through a ring (exl3_gemv.cuh); two
            groups take stages in turn. A group also copies its stages' inputs, which lie in memory as in the stage, a
            stage of its own in advance.
   MULTIPLY A warpgroup has 64 outputs. A stage's products are one group; when it has ended, the stage before is free.
   HALVES   Two CTAs that have 64 outputs each of one strip exchange their sums through `partial`; the second one to
            arrive makes the strip's outputs.

   A CTA has all inputs of its rows, in one order: a row's bits do not depend on the number of rows. */
#ifndef EXL2K_EXL3_WG_CUH
#define EXL2K_EXL3_WG_CUH

#include "exl3_gemv.cuh"
#include "wg.cuh"

/* Shared memory: stages of T lines of 128 bytes of B, then C lines of A; rings; barriers: full, then empty. */
template <u32 T, u32 C> struct exl2k_exl3_wg_plan {
    static constexpr u32 columns = C / EXL2K_EXL3_TILE; /* of tiles: warps of a group, and warps that multiply */
    static constexpr u32 groups = EXL2K_EXL3_WARPS / columns, stages = EXL2K_EXL3_WG_STAGES(C);
    static constexpr u32 slot = EXL2K_EXL3_WG_SLOT(T, C), rings = stages * slot;
    static constexpr u32 full = rings + EXL2K_EXL3_WARPS * EXL2K_EXL3_RING(EXL2K_EXL3_RATE_MAX);
    static constexpr u32 empty = full + stages * 8;
};

/* The product of a CTA. */
typedef struct exl2k_exl3_wg_work {
    u64 tile;    /* first tile of the CTA's columns */
    u64 inputs;  /* transformed inputs of the CTA's rows: tiles of 128 rows */
    u32 pitch;   /* bytes from a row of tiles to the next one */
    u32 stages, shared;
} exl2k_exl3_wg_work;

/* A barrier of the warps that multiply. */
template <u32 C> EXL2K_FN void exl2k_exl3_wg_sync(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(2 * C) : "memory");
}

/* ---- the warps that decode ---- */

/* Waits until stage `index` is free, and starts to copy its inputs. All threads of the group call it. */
template <u32 T, u32 C> EXL2K_FN void exl2k_exl3_wg_inputs(const exl2k_exl3_wg_work &w, u32 index)
{
    using plan = exl2k_exl3_wg_plan<T, C>;
    constexpr u32 threads = C * 2;
    if (index < w.stages) {
        u32 slot = index % plan::stages, own = threadIdx.x % threads;
        exl2k_barrier_wait(w.shared + plan::empty + slot * 8, (index / plan::stages & 1) ^ 1);
#pragma unroll
        for (u32 i = 0; i < T * 8 / threads; i++) {
            u32 piece = own + i * threads;
            u64 from = w.inputs + ((u64)(piece / 1024) * w.stages + index) * EXL2K_EXL3_WG_INPUTS;
            exl2k_copy16(w.shared + slot * plan::slot + piece * 16, from + piece % 1024 * 16);
        }
    }
}

/* warp: of those that decode. */
template <u32 T, u32 C, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_decode(const exl2k_exl3_wg_work &w, u32 warp, u32 lane)
{
    using plan = exl2k_exl3_wg_plan<T, C>;
    constexpr u32 count = exl2k_exl3_words<RATE>();
    u32 group = warp / plan::columns, column = warp % plan::columns;
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 turns = (w.stages + plan::groups - 1 - group) / plan::groups;
    u64 tile = w.tile + (u64)group * EXL2K_EXL3_WG_BATCH * w.pitch + column * 16 * RATE;
    exl2k_exl3_ring ring = exl2k_exl3_ring_open(w.shared + plan::rings + warp * EXL2K_EXL3_RING(RATE), tile, w.pitch,
                                                RATE, turns * EXL2K_EXL3_WG_BATCH, EXL2K_EXL3_WG_BATCH, plan::groups,
                                                lane);
    exl2k_exl3_wg_inputs<T, C>(w, group);
    exl2k_copy_commit();
    /* Lane l gives the address of line l % 8 of the quarter l / 8 of a tile (exl2k_stmatrix4). */
    u32 line = column * EXL2K_EXL3_TILE + lane / 8 % 2 * 8 + lane % 8, half = (lane / 16 ^ lane % 8) * 16;
    u32 own = w.shared + T * 128 + line * 128;
#pragma unroll 1
    for (u32 i = group; i < w.stages; i += plan::groups) {
        exl2k_exl3_wg_inputs<T, C>(w, i + plan::groups);
        u32 at = exl2k_exl3_ring_next<EXL2K_EXL3_WG_BATCH * RATE, EXL2K_EXL3_WG_SLOTS>(ring, lane);
        u32 slot = i % plan::stages, to = own + slot * plan::slot, words[EXL2K_EXL3_WG_BATCH][count];
#pragma unroll
        for (u32 n = 0; n < count; n++) {
#pragma unroll
            for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
                words[k][n] = exl2k_shared_load(at + place.at[n] + k * 16 * RATE);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
            u32 a[4];
            exl2k_exl3_decode<RATE, BOOK>(a, words[k], place.shift);
            exl2k_stmatrix4(to + (half ^ k * 32), a);
        }
        exl2k_copy_wait<1>(); /* the inputs of this stage, which were started a turn before */
        exl2k_async_fence();
        __syncwarp();
        if (lane == 0) {
            exl2k_barrier_arrive(w.shared + plan::full + slot * 8);
        }
    }
    exl2k_copy_wait<0>();
}

template <u32 T, u32 C, u32 BOOK>
EXL2K_FN void exl2k_exl3_wg_any_rate(u32 rate, const exl2k_exl3_wg_work &w, u32 warp, u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_wg_decode<T, C, R, BOOK>(w, warp, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* ---- the warps that multiply ---- */

/* What lies where the outputs go, if they need it: lines of 128 bytes, which are on their way into L2 while the last
   stages are multiplied. */
typedef struct exl2k_exl3_wg_before {
    u64 at;    /* of the first row */
    u32 pitch; /* bytes */
    u32 rows, bytes; /* of a row */
    u32 turn;  /* stage before which the prefetch starts; none: beyond the last one */
} exl2k_exl3_wg_before;

template <u32 T, u32 C> EXL2K_FN void exl2k_exl3_wg_prefetch(const exl2k_exl3_wg_before &b)
{
#pragma unroll 1
    for (u32 row = threadIdx.x; row < b.rows; row += 2 * C) {
#pragma unroll 1
        for (u32 i = 0; i < b.bytes; i += 128) {
            exl2k_prefetch(b.at + (u64)row * b.pitch + i);
        }
    }
}

/* Leaves the sums of all rows in shared memory, f32 [T, EXL2K_EXL3_PITCH], as columns from `first` on. */
template <u32 T, u32 C>
EXL2K_FN void exl2k_exl3_wg_sums(const exl2k_exl3_wg_work &w, const exl2k_exl3_wg_before &before, u32 first, u32 warp,
                                 u32 lane)
{
    using plan = exl2k_exl3_wg_plan<T, C>;
    constexpr u32 rows = 128; /* of a product: 256 need more registers than 512 threads may begin with */
    constexpr u32 halves = T / rows;
    f32 sum[halves][rows / 8][4];
    u32 own = T * 128 + warp / 4 * (64 * 128);
#pragma unroll 1
    for (u32 i = 0; i < w.stages; i++) {
        u32 slot = i % plan::stages, at = w.shared + slot * plan::slot, last = (i + plan::stages - 1) % plan::stages;
        if (i == before.turn) {
            exl2k_exl3_wg_prefetch<T, C>(before);
        }
        exl2k_barrier_wait(w.shared + plan::full + slot * 8, i / plan::stages & 1);
        exl2k_wg_begin();
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
#pragma unroll
            for (u32 h = 0; h < halves; h++) {
                exl2k_wg_product(sum[h], exl2k_wg_tile(at + own) + 2 * k, exl2k_wg_tile(at + h * (128 * 128)) + 2 * k,
                                 i + k);
            }
        }
        exl2k_wg_commit();
        exl2k_wg_wait<1>(); /* the stage before */
        if (i > 0 && lane == 0) {
            exl2k_barrier_arrive(w.shared + plan::empty + last * 8);
        }
        __syncwarp();
    }
    exl2k_wg_wait<0>();
#pragma unroll
    for (u32 h = 0; h < halves; h++) {
        exl2k_wg_hold(sum[h]);
    }
    exl2k_exl3_wg_sync<C>(); /* nothing reads stages any more */
#pragma unroll
    for (u32 h = 0; h < halves; h++) {
        exl2k_exl3_gather<rows / 8>(w.shared + h * (rows * EXL2K_EXL3_PITCH * 4) + first * 4, sum[h], warp, lane, rows);
    }
}

/* ---- the outputs of a strip whose halves two CTAs have ---- */

/* Exchanges sums. Returns whether this CTA is the second one of the strip; it has all sums in shared memory then. All
   threads call it. strip: of the whole matrix. */
template <u32 T> EXL2K_FN bool exl2k_exl3_wg_exchange(const exl2k_exl3_args &a, u32 strip, u32 half, u32 shared)
{
    __shared__ u32 arrived;
    constexpr u32 threads = EXL2K_EXL3_WG_THREADS(64);
    u64 partial = a.partial + (u64)strip * (2 * T * 256), ticket = a.tickets + strip * 4;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < T * 16; i += threads) {
        uint4 v = exl2k_shared_load4(shared + (i / 16 * EXL2K_EXL3_PITCH + half * 64 + i % 16 * 4) * 4);
        exl2k_store4(partial + (half * T * 16 + i) * 16, v);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* of all sums of the CTA, which happened before */
        arrived = atomicAdd((u32 *)ticket, 1u);
    }
    __syncthreads();
    if (arrived == 0) {
        return false;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        exl2k_store(ticket, 0);
    }
    half ^= 1;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < T * 16; i += threads) {
        uint4 v = exl2k_load4(partial + (half * T * 16 + i) * 16);
        exl2k_shared_store4(shared + (i / 16 * EXL2K_EXL3_PITCH + half * 64 + i % 16 * 4) * 4, v);
    }
    __syncthreads();
    return true;
}

template <u32 T>
EXL2K_FN exl2k_exl3_wg_before exl2k_exl3_wg_before_of(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip,
                                                      u32 first, u32 rows)
{
    bool needed = a.kind == EXL2K_EXL3_RESIDUAL || (a.kind == EXL2K_EXL3_ACT && a.parts == 2);
    u32 stages = a.blocks * 2;
    exl2k_exl3_goal g = exl2k_exl3_goal_of(a, part, strip, first, 0);
    u32 size = g.half ? 2 : 4, columns = exl2k_min(part.columns - strip * EXL2K_EXL3_BLOCK, EXL2K_EXL3_BLOCK);
    exl2k_exl3_wg_before b = { g.at, a.out_pitch * size, exl2k_min(rows - first, T), columns * size,
                               needed ? stages - exl2k_min(stages, 12) : stages };
    return b;
}

template <u32 T, u32 C, u32 BOOK> EXL2K_FN void exl2k_exl3_wg(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    using plan = exl2k_exl3_wg_plan<T, C>;
    constexpr u32 parts = EXL2K_EXL3_BLOCK / C; /* of a strip */
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    u32 first = blockIdx.y * T, half = blockIdx.x % parts, row_bytes = a.blocks * (EXL2K_EXL3_BLOCK * 2);
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x / parts);
    const exl2k_exl3_part &part = a.part[u.part];
    exl2k_exl3_wg_work w;
    w.shared = (exl2k_shared(exl2k_dynamic) + 1023) & ~1023u;
    w.pitch = part.row_tiles * 16 * part.rate;
    w.tile = part.trellis + (u64)(u.strip * 8 + half * plan::columns) * 16 * part.rate;
    w.inputs = a.rotated + ((u64)u.part * a.rotated_rows + first) * row_bytes;
    w.stages = a.blocks * 2;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < plan::stages; i++) {
            exl2k_barrier_init(w.shared + plan::full + i * 8, plan::columns);
            exl2k_barrier_init(w.shared + plan::empty + i * 8, plan::columns);
        }
        exl2k_barrier_init_fence();
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    __syncthreads();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows <= first) {
        return;
    }
    if (warp >= plan::columns) {
        if constexpr (T == 256) {
            exl2k_registers_less<88>();
        }
        exl2k_exl3_wg_any_rate<T, C, BOOK>(part.rate, w, warp - plan::columns, lane);
        if constexpr (T == 256) {
            exl2k_registers_more<128>();
        }
    } else {
        if constexpr (T == 256) {
            exl2k_registers_more<168>();
        }
        exl2k_exl3_wg_sums<T, C>(w, exl2k_exl3_wg_before_of<T>(a, part, u.strip, first, rows), half * C, warp, lane);
        if constexpr (T == 256) {
            exl2k_registers_less<128>();
        }
    }
    __syncthreads();
    if constexpr (C < EXL2K_EXL3_BLOCK) {
        if (!exl2k_exl3_wg_exchange<T>(a, u.before + u.strip, half, w.shared)) {
            return;
        }
    }
#pragma unroll 1
    for (u32 i = 0; i < T; i += EXL2K_EXL3_GEMM_ROWS) {
        exl2k_exl3_store_rows(a, part, u.strip, w.shared + i * (EXL2K_EXL3_PITCH * 4), first + i, rows, warp, lane,
                              EXL2K_EXL3_WG_THREADS(C) / EXL2K_WARP);
    }
}

#endif
