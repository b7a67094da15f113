/* gemv.cu: products of 1 to 8 rows with one matrix: what a decode step is made of.
   takes: base.cuh, unpack.cuh, gemv_args.h; the options of gemv_stream.cuh and gemv_chunk.cuh.
   gives: exl2k_gemv1_* and exl2k_gemv8_*: store, residual, act, head; grid = CTAs (one per SM), 512 threads.
   owns:  nothing.
   next:  gemm.cu

   A CTA owns a run of strips over all of K and takes them in blocks. Each warp owns one slice of K for the strips of
   its group (16 warps = groups of `ways` slices) and streams their chunks through a ring of its own: no barrier but
   the one before a block's slices are summed. Chunks are the outer loop, strips the inner one, so that the inputs of
   a chunk (256 rows: 32 registers) are read once a block. Sums of slices are taken in the order of slices: the same
   bits in every run, and for a row alone or among others. */
#include "base.cuh"
#include "unpack.cuh"
#include "gemv_args.h"
#include "gemv_chunk.cuh"
#include "gemv_stream.cuh"

enum { EXL2K_STORE, EXL2K_RESIDUAL, EXL2K_ACT, EXL2K_HEAD };

/* ---- partial sums of slices: [strip of the block][slice][16 columns], with 8 rows [lane][4] instead ---- */

template <u32 M> EXL2K_FN u32 exl2k_partial_at(u32 sums, u32 ways, u32 strip, u32 slice)
{
    return sums + (strip * ways + slice) * (M == 1 ? 64 : 512);
}

template <u32 M> EXL2K_FN void exl2k_partial_add(u32 at, const f32 sum[4], bool first, u32 lane)
{
    if (M == 1) { /* every lane has all of its two columns; t = 0 keeps g, t = 1 keeps g + 8 */
        u32 t = lane & 3;
        if (t < 2) {
            u32 mine = at + (t * 8 + lane / 4) * 4;
            f32 before = first ? 0.0f : exl2k_shared_load_f32(mine);
            exl2k_shared_store_f32(mine, before + (t ? sum[2] : sum[0]));
        }
    } else {
        u32 mine = at + lane * 16;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (!first) {
            v = exl2k_shared_load4(mine);
        }
        v.x = __float_as_uint(__uint_as_float(v.x) + sum[0]);
        v.y = __float_as_uint(__uint_as_float(v.y) + sum[1]);
        v.z = __float_as_uint(__uint_as_float(v.z) + sum[2]);
        v.w = __float_as_uint(__uint_as_float(v.w) + sum[3]);
        exl2k_shared_store4(mine, v);
    }
}

/* All slices of one output of one row, slice 0 first. */
template <u32 M> EXL2K_FN f32 exl2k_partial_total(u32 sums, u32 ways, u32 strip, u32 column, u32 row)
{
    u32 inside = M == 1 ? column : (column % 8) * 16 + row / 2 * 4 + row % 2 + column / 8 * 2;
    u32 at = exl2k_partial_at<M>(sums, ways, strip, 0) + inside * 4;
    f32 total = exl2k_shared_load_f32(at);
#pragma unroll 5
    for (u32 slice = 1; slice < ways; slice++) {
        total += exl2k_shared_load_f32(at + slice * (M == 1 ? 64 : 512));
    }
    return total;
}

#include "gemv_out.cuh"

/* ---- the kernel ---- */

/* Partial sums that no chunk will write: slices without records. */
template <u32 M, u32 P>
EXL2K_FN void exl2k_clear_empty(const exl2k_matrix &m, const exl2k_place &place, exl2k_span block, u32 sums)
{
    f32 zero[4] = { 0 };
    u32 offset = 0, parts = place.group < place.groups ? exl2k_parts<P>(m) : 0;
    for (u32 part = 0; part < parts; part++) {
        const exl2k_part &p = m.part[part];
        exl2k_span strips = exl2k_strips_of_part<P>(m, part, block);
        u32 count = strips.end - strips.begin;
        if (p.slice[place.slice] == p.slice[place.slice + 1]) {
            for (u32 i = place.group; i < count; i += place.groups) {
                u32 strip = P == EXL2K_PAIR ? 2 * i + part : offset + i;
                exl2k_partial_add<M>(exl2k_partial_at<M>(sums, m.ways, strip, place.slice), zero, true, place.lane);
            }
        }
        offset += count;
    }
}

/* Where a warp reads its ring. */
typedef struct exl2k_reader { u32 slot, parity; } exl2k_reader;

/* The chunk `t` of strips i, i + groups, ... (S of them), which are the next in the ring. */
template <u32 M, u32 P, u32 S>
EXL2K_FN void exl2k_gemv_strips(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_stream &s, exl2k_reader &r,
                                const exl2k_task &t, const exl2k_inputs &inputs, u32 i, u32 sums)
{
    u32 at[S];
    f32 sum[S][4];
#pragma unroll
    for (u32 k = 0; k < S; k++) {
        exl2k_stream_wait(s, r.slot, r.parity);
        at[k] = s.ring + r.slot * s.slot_bytes;
        if (++r.slot == s.stages) {
            r.slot = 0;
            r.parity ^= 1;
        }
    }
    exl2k_chunk_product<M, S>(sum, at, inputs, t, place.lane);
    __syncwarp();
    bool first = t.chunk == a.matrix.part[P == EXL2K_ONE ? 0 : t.part].slice[place.slice];
#pragma unroll
    for (u32 k = 0; k < S; k++) {
        exl2k_stream_fill<P>(s, a, place);
        u32 local = i + k * place.groups, strip = P == EXL2K_PAIR ? 2 * local + t.part : t.offset + local;
        exl2k_partial_add<M>(exl2k_partial_at<M>(sums, a.matrix.ways, strip, place.slice), sum[k], first, place.lane);
    }
}

/* The warp's share of a block; `t` is its first task. One row: `ahead` has the inputs of that, and two strips at a time
   hide each other's waits. */
template <u32 M, u32 P>
EXL2K_FN void exl2k_gemv_block(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_stream &s, exl2k_reader &r,
                               exl2k_task t, uint4 ahead, exl2k_span block, u32 sums, u64 x)
{
    const exl2k_matrix &m = a.matrix;
    exl2k_clear_empty<M, P>(m, place, block, sums);
    while (t.strips > 0) {
        exl2k_inputs inputs;
        exl2k_task next = t;
        if (M == 1) {
            exl2k_spread_input(inputs, ahead, place.lane);
        } else {
            u64 entry = m.part[P == EXL2K_ONE ? 0 : t.part].chunks + t.chunk * sizeof(exl2k_chunk);
            exl2k_load_inputs(inputs, x + t.row * 64, exl2k_task_records(t), entry);
        }
        next.chunk++;
        exl2k_task_find<M, P>(next, m, place, block);
        u32 i = place.group;
        if (M == 1) {
            for (; i + place.groups < t.strips && s.stages > 1; i += 2 * place.groups) {
                exl2k_gemv_strips<M, P, 2>(a, place, s, r, t, inputs, i, sums);
            }
            if (next.strips > 0) {
                ahead = exl2k_load_input(x, next, m.rows, place.lane);
            }
        }
        for (; i < t.strips; i += place.groups) {
            exl2k_gemv_strips<M, P, 1>(a, place, s, r, t, inputs, i, sums);
        }
        t = next;
    }
}

template <u32 M, u32 KIND> EXL2K_FN void exl2k_gemv(const exl2k_gemv_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    constexpr u32 P = KIND == EXL2K_ACT ? EXL2K_PAIR : KIND == EXL2K_STORE ? EXL2K_LIST : EXL2K_ONE;
    const exl2k_matrix &m = a.matrix;
    exl2k_place place = exl2k_place_of_warp(a);
    u32 shared = exl2k_shared(exl2k_dynamic), sums = shared + EXL2K_GEMV_WARPS * a.stages * a.slot_bytes;
    u32 small = sums + a.block * m.ways * (M == 1 ? 64 : 512);
    exl2k_span cta = exl2k_strips_of_cta<P>(a), block = exl2k_block_after(a, cta.begin, cta);
    exl2k_stream s = exl2k_stream_open<P>(a, place, shared, small, cta);
    exl2k_task task = exl2k_task_first<M, P>(m, place, block);
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_stream_fill<P>(s, a, place);
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 x = a.x + place.lane % 4 * 16;
    uint4 ahead = exl2k_first_input<M>(x, task, m.rows, place.lane); /* before all else: it takes longest */
    exl2k_out out = exl2k_out_open<M, KIND>(a, place, small + 1024);
    exl2k_reader reader = { 0, 0 };
    x += M == 1 ? 0 : (u64)exl2k_min(place.lane / 4, out.rows - 1) * a.x_pitch * 2;
    while (block.begin < block.end) {
        exl2k_out_begin<M, KIND>(out, a, block);
        exl2k_gemv_block<M, P>(a, place, s, reader, task, ahead, block, sums, x);
        if (block.begin == cta.begin) {
            exl2k_out_settle<M>(out);
            __syncthreads();
            exl2k_out_scale<KIND>(out, a);
        } else {
            __syncthreads();
        }
        exl2k_out_block<M, KIND>(out, a, block, sums);
        block = exl2k_block_after(a, block.end, cta);
        if (block.begin >= block.end) {
            break;
        }
        task = exl2k_task_first<M, P>(m, place, block);
        ahead = exl2k_first_input<M>(x, task, m.rows, place.lane);
        __syncthreads();
    }
    exl2k_out_close<M, KIND>(out, a);
}

#define EXL2K_GEMV(name, M, KIND)                                                                      \
    extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)                                \
    name(const __grid_constant__ exl2k_gemv_args a)                                                    \
    {                                                                                                  \
        exl2k_gemv<M, KIND>(a);                                                                        \
    }

EXL2K_GEMV(exl2k_gemv1_store, 1, EXL2K_STORE)
EXL2K_GEMV(exl2k_gemv1_residual, 1, EXL2K_RESIDUAL)
EXL2K_GEMV(exl2k_gemv1_act, 1, EXL2K_ACT)
EXL2K_GEMV(exl2k_gemv1_head, 1, EXL2K_HEAD)
EXL2K_GEMV(exl2k_gemv8_store, 8, EXL2K_STORE)
EXL2K_GEMV(exl2k_gemv8_residual, 8, EXL2K_RESIDUAL)
EXL2K_GEMV(exl2k_gemv8_act, 8, EXL2K_ACT)
EXL2K_GEMV(exl2k_gemv8_head, 8, EXL2K_HEAD)
