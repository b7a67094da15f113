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
            stage of its own in advance: by bulk copies, which its warps start in turn, or where it has four warps by
            copies of all threads.
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

/* Whether inputs come by bulk copies, which the warps of a group start in turn; else by copies of all threads, as four
   warps are too few to take turns. */
template <u32 C> EXL2K_FN constexpr bool exl2k_exl3_wg_bulk(void) { return C == EXL2K_EXL3_BLOCK; }

/* Waits until stage `index` is free, and starts to copy its inputs. All threads of the group call it. column: of the
   warp. */
template <u32 T, u32 C> EXL2K_FN void exl2k_exl3_wg_inputs(const exl2k_exl3_wg_work &w, u32 index, u32 column)
{
    using plan = exl2k_exl3_wg_plan<T, C>;
    constexpr u32 threads = C * 2;
    bool bulk = exl2k_exl3_wg_bulk<C>(), others = bulk && index / plan::groups % plan::columns != column;
    if (index >= w.stages || others) {
        return;
    }
    u32 slot = index % plan::stages, to = w.shared + slot * plan::slot, own = threadIdx.x % threads;
    exl2k_barrier_wait(w.shared + plan::empty + slot * 8, (index / plan::stages & 1) ^ 1);
    if constexpr (exl2k_exl3_wg_bulk<C>()) {
        u32 full = w.shared + plan::full + slot * 8;
        if (exl2k_elect()) {
            exl2k_barrier_expect(full, T * 128);
#pragma unroll
            for (u32 i = 0; i < T / 128; i++) {
                u64 from = w.inputs + ((u64)i * w.stages + index) * EXL2K_EXL3_WG_INPUTS;
                exl2k_copy_whole(to + i * EXL2K_EXL3_WG_INPUTS, from, EXL2K_EXL3_WG_INPUTS, full);
            }
        }
        __syncwarp();
    } else {
#pragma unroll
        for (u32 i = 0; i < T * 8 / threads; i++) {
            u32 piece = own + i * threads;
            u64 from = w.inputs + ((u64)(piece / 1024) * w.stages + index) * EXL2K_EXL3_WG_INPUTS;
            exl2k_copy16(to + piece * 16, from + piece % 1024 * 16);
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
    exl2k_exl3_wg_inputs<T, C>(w, group, column);
    if constexpr (!exl2k_exl3_wg_bulk<C>()) {
        exl2k_copy_commit();
    }
    /* Lane l gives the address of line l % 8 of the quarter l / 8 of a tile (exl2k_stmatrix4). */
    u32 line = column * EXL2K_EXL3_TILE + lane / 8 % 2 * 8 + lane % 8, half = (lane / 16 ^ lane % 8) * 16;
    u32 own = w.shared + T * 128 + line * 128;
#pragma unroll 1
    for (u32 i = group; i < w.stages; i += plan::groups) {
        exl2k_exl3_wg_inputs<T, C>(w, i + plan::groups, column);
        u32 at = exl2k_exl3_ring_next<EXL2K_EXL3_WG_BATCH * RATE, EXL2K_EXL3_WG_SLOTS>(ring, lane);
        u32 slot = i % plan::stages, to = own + slot * plan::slot, words[EXL2K_EXL3_WG_BATCH][count];
#pragma unroll
        for (u32 n = 0; n < count; n++) {
#pragma unroll
            for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
                words[k][n] = exl2k_shared_load(at + place.at[n] + k * 16 * RATE);
            }
        }
        if constexpr (exl2k_exl3_wg_bulk<C>()) { /* another warp may have waited for it */
            exl2k_barrier_wait(w.shared + plan::empty + slot * 8, (i / plan::stages & 1) ^ 1);
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
            u32 a[4];
            exl2k_exl3_decode<RATE, BOOK>(a, words[k], place.shift);
            exl2k_stmatrix4(to + (half ^ k * 32), a);
        }
        if constexpr (!exl2k_exl3_wg_bulk<C>()) {
            exl2k_copy_wait<1>(); /* the inputs of this stage, which were started a turn before */
        }
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
    constexpr u32 threads = EXL2K_EXL3_WG_THREADS(64);
    u64 partial = a.partial + (u64)strip * (2 * T * 256), ticket = a.tickets + strip * 4;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < T * 16; i += threads) {
        uint4 v = exl2k_shared_load4(shared + (i / 16 * EXL2K_EXL3_PITCH + half * 64 + i % 16 * 4) * 4);
        exl2k_store4(partial + (half * T * 16 + i) * 16, v);
    }
    if (!exl2k_exl3_is_last(ticket, 2)) {
        return false;
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

/* ---- outputs ---- */

/* Whether the outputs of a strip have a way of their own, exl2k_exl3_wg_eight. */
EXL2K_FN bool exl2k_exl3_wg_plain(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip)
{
    bool whole = (strip + 1) * EXL2K_EXL3_BLOCK <= part.columns && (a.out_pitch | part.column) % 4 == 0;
    bool act = a.kind == EXL2K_EXL3_ACT && a.parts == 2 && a.act == EXL2K_ACT_SILU;
    return whole && (a.kind == EXL2K_EXL3_RESIDUAL || act || (a.kind == EXL2K_EXL3_STORE && !(a.cap > 0)));
}

/* Turns four sums after H into outputs. before: what lies there. */
template <u32 KIND>
EXL2K_FN void exl2k_exl3_wg_four(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 n, f32 w[4], uint2 scale,
                                 uint4 before)
{
    w[0] = w[0] * 0.08838834764831845f * exl2k_low(scale.x);
    w[1] = w[1] * 0.08838834764831845f * exl2k_high(scale.x);
    w[2] = w[2] * 0.08838834764831845f * exl2k_low(scale.y);
    w[3] = w[3] * 0.08838834764831845f * exl2k_high(scale.y);
    if (part.bias) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            w[k] += exl2k_exl3_bias(part.bias, n + k);
        }
    }
    if constexpr (KIND == EXL2K_EXL3_RESIDUAL) {
        w[0] = fmaf(a.scale, w[0], __uint_as_float(before.x));
        w[1] = fmaf(a.scale, w[1], __uint_as_float(before.y));
        w[2] = fmaf(a.scale, w[2], __uint_as_float(before.z));
        w[3] = fmaf(a.scale, w[3], __uint_as_float(before.w));
    } else if constexpr (KIND == EXL2K_EXL3_ACT) {
        w[0] = exl2k_silu(exl2k_low(before.x)) * w[0];
        w[1] = exl2k_silu(exl2k_high(before.x)) * w[1];
        w[2] = exl2k_silu(exl2k_low(before.y)) * w[2];
        w[3] = exl2k_silu(exl2k_high(before.y)) * w[3];
    } else {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            w[k] = a.scale * w[k];
        }
    }
}

/* HALF: outputs are fp16. */
template <bool HALF> EXL2K_FN void exl2k_exl3_wg_store(u64 at, const f32 w[4])
{
    if constexpr (HALF) {
        exl2k_store2(at, exl2k_pack_f16(exl2k_clamp_f16(w[0]), exl2k_clamp_f16(w[1])),
                     exl2k_pack_f16(exl2k_clamp_f16(w[2]), exl2k_clamp_f16(w[3])));
    } else {
        exl2k_store4(at, make_uint4(__float_as_uint(w[0]), __float_as_uint(w[1]), __float_as_uint(w[2]),
                                    __float_as_uint(w[3])));
    }
}

/* Stores the outputs of a strip of rows first .. first + count - 1, whose sums lie in shared memory. KIND: the kind;
   HALF: outputs, and those of gate, are fp16. */
template <u32 KIND, bool HALF>
EXL2K_FN void exl2k_exl3_wg_eight(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                  u32 first, u32 count, u32 warp, u32 lane, u32 warps)
{
    constexpr u32 size = HALF ? 2 : 4;
    u32 own = lane / 8, column = lane % 8 * 4, n = strip * EXL2K_EXL3_BLOCK + column;
    u64 to = a.out + ((u64)first * a.out_pitch + (KIND == EXL2K_EXL3_ACT ? 0 : part.column) + n) * size;
#pragma unroll 1
    for (u32 turn = warp * 8; turn < count; turn += warps * 8) {
        f32 v[2][4][4];
        uint4 before[2][4];
        uint2 scale[4];
        u64 at[2];
#pragma unroll
        for (u32 j = 0; j < 2; j++) { /* rows beyond the last repeat it, and are not stored */
            u32 row = exl2k_min(turn + own + 4 * j, count - 1);
            at[j] = to + (u64)row * a.out_pitch * size;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                if constexpr (KIND == EXL2K_EXL3_RESIDUAL) {
                    before[j][i] = exl2k_load4(at[j] + i * 128);
                } else if constexpr (KIND == EXL2K_EXL3_ACT) {
                    before[j][i].x = exl2k_load(at[j] + i * 64);
                    before[j][i].y = exl2k_load(at[j] + i * 64 + 4);
                }
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                uint4 s = exl2k_shared_load4(shared + (row * EXL2K_EXL3_PITCH + column + 32 * i) * 4);
                v[j][i][0] = __uint_as_float(s.x);
                v[j][i][1] = __uint_as_float(s.y);
                v[j][i][2] = __uint_as_float(s.z);
                v[j][i][3] = __uint_as_float(s.w);
            }
        }
        exl2k_exl3_hadamard_rows<2>(v, lane);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            scale[i] = exl2k_exl3_scales(part.svh + (u64)(n + 32 * i) * 2);
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                exl2k_exl3_wg_four<KIND>(a, part, n + 32 * i, v[j][i], scale[i], before[j][i]);
                if (turn + own + 4 * j < count) {
                    exl2k_exl3_wg_store<HALF>(at[j] + i * 32 * size, v[j][i]);
                }
            }
        }
    }
}

/* Stores the outputs of a strip of up to T rows from `first` on. All threads call it. */
template <u32 T>
EXL2K_FN void exl2k_exl3_wg_outputs(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 strip, u32 shared,
                                    u32 first, u32 rows, u32 warp, u32 lane, u32 warps)
{
    u32 count = exl2k_min(rows - first, T);
    if (!exl2k_exl3_wg_plain(a, part, strip)) {
#pragma unroll 1
        for (u32 i = 0; i < T; i += EXL2K_EXL3_GEMM_ROWS) {
            exl2k_exl3_store_rows(a, part, strip, shared + i * (EXL2K_EXL3_PITCH * 4), first + i, rows, warp, lane,
                                  warps);
        }
    } else if (a.kind == EXL2K_EXL3_RESIDUAL) {
        exl2k_exl3_wg_eight<EXL2K_EXL3_RESIDUAL, false>(a, part, strip, shared, first, count, warp, lane, warps);
    } else if (a.kind == EXL2K_EXL3_ACT) {
        exl2k_exl3_wg_eight<EXL2K_EXL3_ACT, true>(a, part, strip, shared, first, count, warp, lane, warps);
    } else if (a.out_half) {
        exl2k_exl3_wg_eight<EXL2K_EXL3_STORE, true>(a, part, strip, shared, first, count, warp, lane, warps);
    } else {
        exl2k_exl3_wg_eight<EXL2K_EXL3_STORE, false>(a, part, strip, shared, first, count, warp, lane, warps);
    }
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
            exl2k_barrier_init(w.shared + plan::full + i * 8, plan::columns + exl2k_exl3_wg_bulk<C>());
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
    exl2k_exl3_wg_outputs<T>(a, part, u.strip, w.shared, first, rows, warp, lane,
                             EXL2K_EXL3_WG_THREADS(C) / EXL2K_WARP);
}

#endif
