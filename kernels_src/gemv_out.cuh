/* gemv_out.cuh: the results of a product of 1 to 16 rows: adds up slices, scales them, and stores the outputs.
   takes: base.cuh, gemv_args.h, partial sums in shared memory.
   gives: exl2k_out, exl2k_out_open, _begin, _read, _constants, _sum_slots, _block, _close.
   owns:  nothing; included by gemv.cuh only.

   Thread i computes item i of a block: column i % 16 of row i / 16 % M of strip i / (16 M); then item i + 512, and so
   on. A thread always has the same row, and a half-warp has one row of one strip. The small area of shared memory
   begins with the barriers of the rings (1,024 bytes; not with 16 rows). From `small` on it holds, for R rows (8 if M
   is 1): sums of 32 slots each [R][8], now and before; squares [96]; total of squares [R]. One row: then the residual
   of 512 items and the slots now and before [2][256], both filled by asynchronous copies. 16 rows: then exl2k_kept [16
   warps]. Many rows: then the initial sums [16 warps][tile][8 halves][4 lanes][4]; with 16 rows each warp's are
   followed by what its lanes need to decode scales, affine: by scales and zeros (EXL2K_STARTS_BYTES in all). */
#ifndef EXL2K_GEMV_OUT_CUH
#define EXL2K_GEMV_OUT_CUH

#include "base.cuh"
#include "gemv_args.h"

#ifndef EXL2K_STEER
#define EXL2K_STEER 0 /* 1: residual products add control vectors, too */
#endif

#define EXL2K_SMALL_NOW 0u
#define EXL2K_SMALL_RESIDUAL 1024u
#define EXL2K_SMALL_SLOTS 3072u
template <u32 M> EXL2K_FN constexpr u32 exl2k_small_before(void) { return M == 1 ? 256 : M * 32; }
template <u32 M> EXL2K_FN constexpr u32 exl2k_small_squares(void) { return 2 * exl2k_small_before<M>(); }
template <u32 M> EXL2K_FN constexpr u32 exl2k_small_total(void) { return exl2k_small_squares<M>() + 384; }
template <u32 M> EXL2K_FN constexpr u32 exl2k_small_kept(void) { return exl2k_small_squares<M>() + 512; }
template <u32 M> EXL2K_FN constexpr u32 exl2k_small_starts(void)
{
    return exl2k_small_kept<M>() + (M == 16 ? EXL2K_GEMV_WARPS * 128 : 0);
}

/* With one row: data for this thread's first item of a block. With many rows the registers are needed for products,
   and weight, index and added stay unused. */
typedef struct exl2k_out {
    u32 rows, small;
    f32 weight; /* residual only */
    u32 index;  /* residual: index of the output */
#if EXL2K_STEER
    f32 added;  /* residual */
#endif
} exl2k_out;

/* This thread's first item. Computed from the thread index at each use, because registers are scarce. */
template <u32 M> EXL2K_FN u32 exl2k_item_column(void) { return exl2k_thread<M>() % 16; }
template <u32 M> EXL2K_FN u32 exl2k_item_row(void) { return exl2k_thread<M>() / 16 % M; }
template <u32 M> EXL2K_FN u32 exl2k_item_strip(void) { return exl2k_thread<M>() / (16 * M); }

/* ---- sums of squares ---- */

EXL2K_FN f32 exl2k_slot(u64 sums, u32 row, u32 slot, u32 slots)
{
    return slot < slots ? exl2k_load_f32(sums + ((u64)row * EXL2K_SLOTS_MAX + slot) * 4) : 0.0f;
}

/* Stores the sum of the lanes' values: slots 32 `group` .. + 31 of `row`. The order of the sum does not depend on
   the number of rows. */
EXL2K_FN void exl2k_group_store(const exl2k_out &o, u32 table, u32 row, u32 group, f32 value)
{
    f32 sum = exl2k_warp_sum(value);
    if (threadIdx.x % EXL2K_WARP == 0) {
        exl2k_shared_store_f32(o.small + table + (row * 8 + group) * 4, sum);
    }
}

/* Half as many values: each lane adds those of the lane that is STEP lanes away. */
template <u32 STEP, u32 N> EXL2K_FN void exl2k_fold(f32 v[N], u32 lane)
{
    bool upper = lane & STEP;
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        f32 mine = upper ? v[i + N / 2] : v[i], other = upper ? v[i] : v[i + N / 2];
        v[i] = mine + __shfl_xor_sync(EXL2K_ALL, other, STEP);
    }
}

/* The same as exl2k_group_store for groups first .. of a row, with a fifth of its shuffles: lanes exchange halves of
   what they have, so that each value is added in the order of exl2k_warp_sum. */
template <u32 GROUPS>
EXL2K_FN void exl2k_groups_store(const exl2k_out &o, u32 table, u32 row, u32 first, f32 v[GROUPS], u32 lane)
{
    constexpr u32 lanes = EXL2K_WARP / GROUPS; /* that have the same sum */
    exl2k_fold<16, GROUPS>(v, lane);
    exl2k_fold<8, GROUPS / 2>(v, lane);
    if (GROUPS == 8) {
        exl2k_fold<4, 2>(v, lane);
    } else {
        v[0] += __shfl_xor_sync(EXL2K_ALL, v[0], 4);
    }
    v[0] += __shfl_xor_sync(EXL2K_ALL, v[0], 2);
    v[0] += __shfl_xor_sync(EXL2K_ALL, v[0], 1);
    if (lane % lanes == 0) {
        exl2k_shared_store_f32(o.small + table + (row * 8 + first + lane / lanes) * 4, v[0]);
    }
}

#if EXL2K_PEERS
/* One row: warp w < 8 waits for the strips of slots 32 w .. + 31 of the current norm, and stores their sums. Groups of
   the norm before are copied. */
EXL2K_FN void exl2k_peers_slots_read(const exl2k_out &o, const exl2k_gemv_args &a)
{
    const exl2k_peers &p = exl2k_peers_of(a);
    u32 slot = threadIdx.x;
    if (slot >= EXL2K_SLOTS_MAX) {
        return;
    }
    if (p.before_by_groups && slot < 2) {
        exl2k_copy16(o.small + exl2k_small_before<1>() + slot * 16, a.sums_before + slot * 16);
    }
    f32 now[EXL2K_PEERS_BATCH];
    exl2k_span strips = exl2k_peers_strips(p, p.now_by_strips, slot, a.sums_now ? a.slots : 0);
    exl2k_peers_slot_load(now, a.sums_now, strips);
    if (!p.before_by_groups) {
        f32 before = a.sums_before ? exl2k_slot(a.sums_before, 0, slot, a.slots) : 0.0f;
        exl2k_group_store(o, exl2k_small_before<1>(), 0, slot / EXL2K_WARP, before);
    }
    exl2k_group_store(o, EXL2K_SMALL_NOW, 0, slot / EXL2K_WARP, exl2k_peers_slot(now, a.sums_now, strips, p.stop));
}

/* More rows: as exl2k_slots_read. All strips are there. Sums of rows beyond the last are read, too, so that no load
   waits for the number of rows. */
template <u32 M> EXL2K_FN void exl2k_peers_rows_read(const exl2k_out &o, const exl2k_gemv_args &a)
{
    constexpr u32 warps = EXL2K_GEMV_WARPS / M, groups = 8 / warps; /* of a row; of a warp */
    const exl2k_peers &p = exl2k_peers_of(a);
    u32 row = threadIdx.x / EXL2K_WARP / warps, first = threadIdx.x / EXL2K_WARP % warps * groups;
    u32 lane = threadIdx.x % EXL2K_WARP;
    f32 sum[groups];
    u32 next[groups], left[groups];
#pragma unroll
    for (u32 i = 0; i < groups; i++) {
        exl2k_span strips = exl2k_peers_strips(p, p.now_by_strips, (first + i) * 32 + lane, a.sums_now ? a.slots : 0);
        sum[i] = 0.0f;
        next[i] = strips.begin;
        left[i] = strips.end - strips.begin;
    }
    /* Strip by strip, of all slots at a time. */
    u32 strips = p.now_by_strips ? p.strips + 1 : 1;
    u64 sums = a.sums_now + (u64)row * (p.now_by_strips ? p.sums_pitch : EXL2K_SLOTS_MAX) * 4;
#pragma unroll 4
    for (u32 k = 0; k < strips; k++) {
#pragma unroll
        for (u32 i = 0; i < groups; i++) {
            sum[i] += k < left[i] ? exl2k_load_f32(sums + (next[i] + k) * 4) : 0.0f;
        }
    }
#pragma unroll
    for (u32 i = 0; i < groups; i++) {
        exl2k_group_store(o, EXL2K_SMALL_NOW, row, first + i, sum[i]);
    }
    if (p.before_by_groups) {
        u32 at = exl2k_thread<M>() * 4;
        if (exl2k_thread<M>() < M * 8) {
            exl2k_shared_store_f32(o.small + exl2k_small_before<M>() + at, exl2k_load_f32(a.sums_before + at));
        }
    } else if (a.sums_before) {
#pragma unroll
        for (u32 i = 0; i < groups; i++) {
            f32 before = exl2k_slot(a.sums_before, row, (first + i) * 32 + lane, a.slots);
            exl2k_group_store(o, exl2k_small_before<M>(), row, first + i, before);
        }
    }
}
#endif

/* Loads the slots. One row: warp w < 8 starts asynchronous copies of slots 32 w .. + 31. Many rows: a warp sums all the
   slots of a row, or half of them. */
template <u32 M> EXL2K_FN void exl2k_slots_read(const exl2k_out &o, const exl2k_gemv_args &a)
{
    u32 warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP;
#if EXL2K_PEERS
    if constexpr (M == 1) {
        exl2k_peers_slots_read(o, a);
    } else {
        exl2k_peers_rows_read<M>(o, a);
    }
    return;
#endif
    if (M == 1) {
        u32 at = warp * 128 + lane % 8 * 16, to = o.small + EXL2K_SMALL_SLOTS + at;
        if (warp < 8 && lane < 8 && a.sums_now) {
            exl2k_copy16(to, a.sums_now + at);
        }
        if (warp < 8 && lane < 8 && a.sums_before) {
            exl2k_copy16(to + 1024, a.sums_before + at);
        }
        return;
    }
    constexpr u32 warps = M == 1 ? 1 : EXL2K_GEMV_WARPS / M, groups = 8 / warps; /* of a row; of a warp */
    u32 row = warp / warps, first = warp % warps * groups, slots = row < o.rows ? a.slots : 0;
    /* All loads are issued before the first sum. */
    f32 now[groups], before[groups];
    for (u32 i = 0; i < groups; i++) {
        u32 slot = (first + i) * 32 + lane;
        now[i] = a.sums_now ? exl2k_slot(a.sums_now, row, slot, slots) : 0.0f;
        before[i] = a.sums_before ? exl2k_slot(a.sums_before, row, slot, slots) : 0.0f;
    }
    if constexpr (M == 8 && EXL2K_LORA && !EXL2K_LARGE) { /* no registers are left to fold */
        for (u32 i = 0; i < groups; i++) {
            exl2k_group_store(o, EXL2K_SMALL_NOW, row, first + i, now[i]);
            exl2k_group_store(o, exl2k_small_before<M>(), row, first + i, before[i]);
        }
    } else if constexpr (M > 1) {
        exl2k_groups_store<groups>(o, EXL2K_SMALL_NOW, row, first, now, lane);
        exl2k_groups_store<groups>(o, exl2k_small_before<M>(), row, first, before, lane);
    }
}

template <u32 M> EXL2K_FN f32 exl2k_rho(const exl2k_out &o, const exl2k_gemv_args &a, u32 table)
{
    f32 sum = 0.0f;
    for (u32 group = 0; group < 8; group++) {
        sum += exl2k_shared_load_f32(o.small + table + (exl2k_item_row<M>() * 8 + group) * 4);
    }
    return rsqrtf(fmaf(sum, a.inverse_hidden, a.eps));
}

/* Whether a residual product writes the next product's inputs. */
EXL2K_FN bool exl2k_out_wanted(const exl2k_gemv_args &a) { return !EXL2K_ANY || a.out; }

/* ---- from opening to closing ---- */

/* Column of this thread's first item in the first part. The outputs of the block end at *end. */
template <u32 M> EXL2K_FN u32 exl2k_first_column(const exl2k_gemv_args &a, exl2k_span block, u32 *end)
{
    *end = exl2k_min(block.end * 16, a.matrix.part[0].columns);
    return (block.begin + exl2k_item_strip<M>()) * 16 + exl2k_item_column<M>();
}

#if EXL2K_STEER
/* What control vectors add to output n of a row. Adding -0 changes no bit. */
EXL2K_FN f32 exl2k_out_added(const exl2k_gemv_args &a, u32 row, u32 n)
{
    return a.added ? exl2k_load_f32(a.added + ((u64)row * a.residual_pitch + n) * 4) : -0.0f;
}
#endif

/* Loads constants of a block, which no kernel writes. Many rows: only prefetches them into L2. */
template <u32 M> EXL2K_FN void exl2k_out_constants(exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block)
{
#if EXL2K_STEER
    if (M == 1 && a.kind == EXL2K_GEMV_RESIDUAL) {
        u32 last, at = exl2k_first_column<M>(a, block, &last);
        o.added = at < last ? exl2k_out_added(a, 0, at) : -0.0f;
    }
#endif
    if (EXL2K_CHAIN || a.kind != EXL2K_GEMV_RESIDUAL || !exl2k_out_wanted(a)) {
        return;
    }
    u32 end, n = exl2k_first_column<M>(a, block, &end);
    /* With one row, load the constants of this thread's first item. With many rows, prefetch them. */
    if (n < end && M == 1) {
        o.index = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        o.weight = __uint_as_float(exl2k_load_constant(a.weight + n * 4));
    } else if (n < end) {
        exl2k_prefetch(a.weight + n * 4);
        if (a.map) {
            exl2k_prefetch(a.map + n * 2);
        }
    }
}

/* Called before the dependency wait. */
template <u32 M> EXL2K_FN exl2k_out exl2k_out_open(const exl2k_gemv_args &a, exl2k_span block, u32 small)
{
    exl2k_out o;
    o.small = small;
    o.rows = 1;
    o.index = 0;
    o.weight = 0.0f;
#if EXL2K_STEER
    o.added = -0.0f;
#endif
    exl2k_out_constants<M>(o, a, block);
    if (threadIdx.x < M) {
        exl2k_shared_store(small + exl2k_small_total<M>() + threadIdx.x * 4, 0);
    }
    return o;
}

/* Called after the dependency wait. */
template <u32 M> EXL2K_FN void exl2k_out_begin(exl2k_out &o, const exl2k_gemv_args &a)
{
    if (M > 1) {
        o.rows = a.rows_at ? exl2k_min(exl2k_load(a.rows_at) - a.before, M) : a.rows;
    }
    exl2k_slots_read<M>(o, a);
}

/* One row: starts to copy the residual that the block's results will be added to, four columns per thread. */
template <u32 M> EXL2K_FN void exl2k_out_read(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block)
{
    if (M == 1 && a.kind == EXL2K_GEMV_RESIDUAL) {
        u32 end, n = exl2k_first_column<M>(a, block, &end), inside = exl2k_item_column<M>();
        if (inside < 4 && n + inside * 3 < end) {
            u32 to = o.small + EXL2K_SMALL_RESIDUAL + (threadIdx.x + inside * 3) * 4;
            exl2k_copy16(to, a.residual + (n + inside * 3) * 4);
        }
    }
    exl2k_copy_commit();
}

/* Called before a block's barrier. One row: sums the slots that have been copied. */
template <u32 M> EXL2K_FN void exl2k_out_sum_slots(const exl2k_out &o, const exl2k_gemv_args &a)
{
    if (M > 1) {
        return;
    }
    exl2k_copy_wait<0>();
    /* Warp w < 8 sums slots 32 w .. + 31; each lane has copied the slots of its own warp. */
    if (!EXL2K_PEERS && threadIdx.x < EXL2K_SLOTS_MAX) {
        u32 at = o.small + EXL2K_SMALL_SLOTS + threadIdx.x * 4;
        __syncwarp();
        f32 now = threadIdx.x < a.slots ? exl2k_shared_load_f32(at) : 0.0f;
        f32 before = threadIdx.x < a.slots ? exl2k_shared_load_f32(at + 1024) : 0.0f;
        exl2k_group_store(o, EXL2K_SMALL_NOW, 0, threadIdx.x / EXL2K_WARP, now);
        exl2k_group_store(o, exl2k_small_before<M>(), 0, threadIdx.x / EXL2K_WARP, before);
    }
}

/* Called after the barrier: rho of the preceding norm. */
template <u32 M> EXL2K_FN f32 exl2k_rho_before(const exl2k_out &o, const exl2k_gemv_args &a)
{
    return a.sums_before ? exl2k_rho<M>(o, a, exl2k_small_before<M>()) : 1.0f;
}

/* The factor of all outputs. */
template <u32 M> EXL2K_FN f32 exl2k_factor(const exl2k_out &o, const exl2k_gemv_args &a)
{
    return a.sums_now ? exl2k_rho<M>(o, a, EXL2K_SMALL_NOW) / exl2k_rho_before<M>(o, a) : 1.0f;
}

/* ---- kinds of outputs ---- */

/* Address of an output that is an input of the next product. */
template <u32 M> EXL2K_FN u64 exl2k_out_at(const exl2k_gemv_args &a, u32 row, u32 index)
{
    u64 at = a.out + (u64)row * (a.out_pitch * 2);
    return M > 1 ? at + index / 32 * a.out_step + index % 32 * 2 : at + index * 2;
}

/* Stores output n of a row, which is an input of the next product. */
template <u32 M> EXL2K_FN void exl2k_store_input(const exl2k_gemv_args &a, u64 at, u32 row, u32 n, u32 v)
{
    exl2k_store_u16(at, v);
#if EXL2K_PEERS
    const exl2k_peers &p = exl2k_peers_of(a);
    u64 to = M == 1 ? at : exl2k_inbox_strip<M>(a, p.first_strip + n / 16) + row * 32 + n % 16 * 2;
    exl2k_peers_store_u16(p.apart, p.others, to, v);
#endif
}

#if EXL2K_PEERS
/* Stores the sum of the squares of a strip of a row. */
template <u32 M> EXL2K_FN void exl2k_out_square(const exl2k_gemv_args &a, u32 row, u32 strip, f32 square)
{
    const exl2k_peers &p = exl2k_peers_of(a);
    u64 at = a.sums_out + (row * p.sums_pitch + strip) * 4;
    u64 to = M == 1 ? at : exl2k_inbox_strip<M>(a, p.first_strip + strip) + M * EXL2K_PEERS_STRIP + row * 4;
    exl2k_store_f32(at, square);
    exl2k_peers_store_f32(p.apart, p.others, to, square);
}

/* More rows: eight columns of a row, which have come from another GPU. map: where they go, if p.all_map. */
template <u32 M>
EXL2K_FN void exl2k_out_taken(const exl2k_gemv_args &a, u32 row, u32 n, const uint4 &v, const uint4 &map)
{
    const exl2k_peers &p = exl2k_peers_of(a);
    u64 to = p.all_out + (u64)row * (a.out_pitch * 2);
    if (!p.all_map) {
        exl2k_store4(to + n / 32 * a.out_step + n % 32 * 2, v);
        return;
    }
    u32 index[4] = { map.x, map.y, map.z, map.w }, pair[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 at = index[i / 2] >> i % 2 * 16 & 0xFFFFu;
        exl2k_store_u16(to + at / 32 * a.out_step + at % 32 * 2, pair[i / 2] >> i % 2 * 16);
    }
}

/* More rows: takes the strips that the CTA has to take from the inbox. A thread has eight columns of a row. All loads
   of a strip are issued before the first wait. */
template <u32 M> EXL2K_FN void exl2k_out_take(const exl2k_out &o, const exl2k_gemv_args &a)
{
    const exl2k_peers &p = exl2k_peers_of(a);
    exl2k_span strips = exl2k_taken_strips(p);
    u32 row = threadIdx.x / 2 % M, half = threadIdx.x % 2;
#pragma unroll 1
    for (u32 i = strips.begin + threadIdx.x / (2 * M); i < strips.end && row < o.rows;
         i += EXL2K_GEMV_THREADS / (2 * M)) {
        u32 strip = exl2k_taken_strip(p, i), n = strip * 16 + half * 8;
        bool has_square = a.kind == EXL2K_GEMV_RESIDUAL && half == 0;
        u64 from = exl2k_inbox_strip<M>(a, strip), at = from + threadIdx.x % (2 * M) * 16;
        u64 square_at = from + M * EXL2K_PEERS_STRIP + row * 4;
        uint4 v = exl2k_peers_load4(at), map = make_uint4(0, 0, 0, 0);
        f32 square = has_square ? exl2k_peers_load_f32(square_at) : 0.0f;
        if (p.all_map) {
            map = exl2k_load_constant4(p.all_map + n * 2);
        }
        exl2k_out_taken<M>(a, row, n, exl2k_peers_take(v, at, p.stop), map);
        if (has_square) {
            square = exl2k_peers_await_f32(square, square_at, p.stop);
            exl2k_store(square_at, EXL2K_PEERS_NONE);
            exl2k_store_f32(p.all_sums + (row * p.sums_pitch + strip) * 4, square);
        }
    }
}
#endif

/* Adds the result of item `strip` strips after the thread's first one to the residual; returns its square. */
template <u32 M>
EXL2K_FN f32 exl2k_out_residual_item(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums,
                                     u32 strip)
{
    u32 end, n = exl2k_first_column<M>(a, block, &end) + strip * 16, row = exl2k_item_row<M>();
    strip += exl2k_item_strip<M>();
    if (n >= end || row >= o.rows) {
        return 0.0f;
    }
    u64 at = a.residual + ((u64)row * a.residual_pitch + n) * 4, bias_at = a.matrix.part[0].bias;
    f32 r, weight = o.weight, bias = bias_at ? __uint_as_float(exl2k_load_constant(bias_at + n * 4)) : 0.0f;
    u32 index = o.index;
    /* Load the residual, the weight of the next norm and the index of the output. */
    if (M == 1) {
        r = exl2k_shared_load_f32(o.small + EXL2K_SMALL_RESIDUAL + threadIdx.x * 4);
#if EXL2K_STEER
        r += o.added;
#endif
    } else {
        r = exl2k_load_f32(at);
#if EXL2K_STEER
        r += exl2k_out_added(a, row, n);
#endif
        weight = exl2k_out_wanted(a) ? __uint_as_float(exl2k_load_constant(a.weight + n * 4)) : 0.0f;
        index = a.map ? exl2k_load_u16(a.map + n * 2) : n;
    }
    /* Store the new residual and the next product's input. */
    f32 v = exl2k_partial_total<M>(sums, a, strip, exl2k_item_column<M>(), row) + bias;
    r = EXL2K_ANY ? fmaf(v, a.scale, r) : r + v;
    exl2k_store_f32(at, r);
    u32 y = exl2k_f32_to_f16(exl2k_clamp_f16(r * weight * exl2k_rho_before<M>(o, a)));
    if (exl2k_out_wanted(a)) {
        exl2k_store_input<M>(a, exl2k_out_at<M>(a, row, index), row, n, y);
    }
    return r * r;
}

/* With one row one item per thread: the backend chooses blocks that are small enough. */
template <u32 M>
EXL2K_FN void exl2k_out_residual(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums)
{
    constexpr u32 step = EXL2K_GEMV_THREADS / (16 * M); /* strips of 512 items */
    u32 strips = block.end - block.begin;
#pragma unroll 1
    for (u32 first = 0; first < (M == 1 ? 1 : strips); first += step) {
        u32 squares = o.small + exl2k_small_squares<M>() + (first * M + exl2k_thread<M>() / 16) * 4;
        /* A half-warp sums the squares of one row and strip. */
        f32 square = exl2k_half_warp_sum(exl2k_out_residual_item<M>(o, a, block, sums, first));
        if (exl2k_item_column<M>() == 0 && first + exl2k_item_strip<M>() < strips) {
#if EXL2K_PEERS
            if (exl2k_item_row<M>() < o.rows) {
                exl2k_out_square<M>(a, exl2k_item_row<M>(), block.begin + first + exl2k_item_strip<M>(), square);
            }
#else
            exl2k_shared_store_f32(squares, square);
#endif
        }
    }
#if EXL2K_PEERS
    return;
#endif
    if (M == 1 && strips <= EXL2K_WARP / 16) { /* all items of the block belong to warp 0 */
        __syncwarp();
    } else {
        __syncthreads();
    }
    /* Thread i adds up the strips of row i in their order. */
    if (exl2k_thread<M>() < M) {
        u32 total = o.small + exl2k_small_total<M>() + exl2k_thread<M>() * 4;
        f32 all = exl2k_shared_load_f32(total);
#pragma unroll 1
        for (u32 strip = 0; strip < strips; strip++) {
            all += exl2k_shared_load_f32(o.small + exl2k_small_squares<M>() + (strip * M + exl2k_thread<M>()) * 4);
        }
        exl2k_shared_store_f32(total, all);
    }
}

EXL2K_FN f32 exl2k_gate(const exl2k_gemv_args &a, f32 gate, f32 up)
{
    return EXL2K_ANY ? exl2k_gated(a.act, a.act_limit, gate, up) : exl2k_silu(gate) * up;
}

/* 16 rows: where the thread's total of a gate lies, behind the partial sums. */
EXL2K_FN u32 exl2k_gate_at(const exl2k_gemv_args &a, u32 sums, u32 pair)
{
    u32 strips = a.block * exl2k_partials(a.matrix) + pair;
    return sums + strips * exl2k_partial_bytes<16>() + exl2k_thread<16>() % 256 * 4;
}

/* 16 rows: adds up the slices of the gates of a block, before those of up take their place. */
EXL2K_FN void exl2k_out_gates(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums)
{
    u32 row = exl2k_item_row<16>(), column = exl2k_item_column<16>();
#pragma unroll 1
    for (u32 pair = exl2k_item_strip<16>(); pair < block.end - block.begin; pair += EXL2K_GEMV_THREADS / 256) {
        f32 total = exl2k_partial_total<16>(sums, a, pair, column, row);
        exl2k_shared_store_f32(exl2k_gate_at(a, sums, pair), total);
    }
}

template <u32 M> EXL2K_FN void exl2k_out_act(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums)
{
    const exl2k_part &gate = a.matrix.part[0], &up = a.matrix.part[1];
    u32 row = exl2k_item_row<M>(), column = exl2k_item_column<M>();
    u32 gated = EXL2K_ANY ? a.matrix.interleaved : 1;
    u32 pairs = block.end - block.begin;
    /* Strip 2 i of the block has the gates, strip 2 i + 1 the matching columns of up. Without a gate, strip i has the
       columns of up. */
#pragma unroll 1
    for (u32 pair = exl2k_item_strip<M>(); pair < pairs; pair += EXL2K_GEMV_THREADS / (16 * M)) {
        u32 n = (block.begin + pair) * 16 + column;
        if (n < gate.columns && row < o.rows) {
            f32 g = M == 16 ? exl2k_shared_load_f32(exl2k_gate_at(a, sums, pair))
                            : exl2k_partial_total<M>(sums, a, pair << gated, column, row);
            f32 factor = exl2k_factor<M>(o, a);
            g *= factor;
            f32 u = 1.0f;
            if (gated) {
                u32 strip = M == 16 ? pair : 2 * pair + 1;
                u = exl2k_partial_total<M>(sums, a, strip, column, row) * factor;
            }
            g += gate.bias ? __uint_as_float(exl2k_load_constant(gate.bias + n * 4)) : 0.0f;
            u += gated && up.bias ? __uint_as_float(exl2k_load_constant(up.bias + n * 4)) : 0.0f;
            exl2k_store_input<M>(a, exl2k_out_at<M>(a, row, n), row, n,
                                 exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_gate(a, g, u))));
        }
    }
}

template <u32 M>
EXL2K_FN void exl2k_out_plain(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums)
{
    u32 row = exl2k_item_row<M>(), column = exl2k_item_column<M>();
    f32 factor = exl2k_factor<M>(o, a);
#pragma unroll 1
    for (u32 strip = exl2k_item_strip<M>(); strip < block.end - block.begin; strip += EXL2K_GEMV_THREADS / (16 * M)) {
        /* Find the part and the output column of this item. */
        const exl2k_part &p = a.matrix.part[exl2k_part_at(a.matrix, block.begin + strip)];
        u32 n = (block.begin + strip - p.first) * 16 + column;
        if (n >= p.columns || row >= o.rows) {
            continue;
        }
        /* Add up the slices, scale the sum, add the bias, scale and cap the output, and store it. */
        f32 v = exl2k_partial_total<M>(sums, a, strip, column, row) * factor;
        v += p.bias ? __uint_as_float(exl2k_load_constant(p.bias + n * 4)) : 0.0f;
        if (EXL2K_ANY) {
            v *= a.scale;
            v = a.cap > 0.0f ? exl2k_softcap(v, a.cap) : v;
        }
        u64 at = (u64)row * a.out_pitch + p.column + n;
        if (a.out_half) {
            exl2k_store_u16(a.out + at * 2, exl2k_f32_to_f16(exl2k_clamp_f16(v)));
        } else {
            exl2k_store_f32(a.out + at * 4, v);
        }
    }
}

/* Stores the results of a block; called after its barrier. */
template <u32 M>
EXL2K_FN void exl2k_out_block(const exl2k_out &o, const exl2k_gemv_args &a, exl2k_span block, u32 sums)
{
    if (EXL2K_CHAIN) {
        exl2k_out_plain<M>(o, a, block, sums);
    } else if (a.kind == EXL2K_GEMV_RESIDUAL) {
        exl2k_out_residual<M>(o, a, block, sums);
    } else if (a.kind == EXL2K_GEMV_ACT) {
        exl2k_out_act<M>(o, a, block, sums);
    } else {
        exl2k_out_plain<M>(o, a, block, sums);
    }
}

template <u32 M> EXL2K_FN void exl2k_out_close(const exl2k_out &o, const exl2k_gemv_args &a)
{
    bool residual = !EXL2K_CHAIN && a.kind == EXL2K_GEMV_RESIDUAL;
    if (!EXL2K_PEERS && residual && exl2k_thread<M>() < M && exl2k_thread<M>() < o.rows && exl2k_out_wanted(a)) {
        exl2k_store_f32(a.sums_out + ((u64)exl2k_thread<M>() * EXL2K_SLOTS_MAX + exl2k_cta<M>(a)) * 4,
                        exl2k_shared_load_f32(o.small + exl2k_small_total<M>() + exl2k_thread<M>() * 4));
    }
#if EXL2K_PEERS
    u64 groups = exl2k_peers_of(a).groups_out;
    if (groups && exl2k_cta<M>(a) == 0 && exl2k_thread<M>() < o.rows * 8) {
        exl2k_store_f32(groups + exl2k_thread<M>() * 4,
                        exl2k_shared_load_f32(o.small + EXL2K_SMALL_NOW + exl2k_thread<M>() * 4));
    }
    if constexpr (M > 1) {
        exl2k_out_take<M>(o, a);
    }
#endif
}

#endif
