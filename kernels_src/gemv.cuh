/* gemv.cuh: products of 1 to 8 rows with one matrix: what a decode step is made of.
   takes: base.cuh, unpack.cuh, gemv_args.h; the options of gemv_stream.cuh and gemv_chunk.cuh.
   gives: exl2k_gemv<M>, M 1 or 8: the body of a kernel; grid = CTAs (one per SM), EXL2K_GEMV_THREADS threads.
   owns:  nothing; included by gemv1.cu and gemv8.cu.
   next:  gemv1.cu

   A CTA owns a run of strips over all of K and takes them in blocks. Each warp owns one slice of K for the strips of
   its group (16 warps = groups of `slices` slices) and streams their chunks through a ring of its own: no barrier but
   the one before a block's slices are summed. Chunks are the outer loop, strips the inner one, so that the inputs of
   a chunk (256 rows) are read once a block. Sums of slices are taken in the order of slices: the same
   bits in every run, and for a row alone or among others. */
#ifndef EXL2K_GEMV_CUH
#define EXL2K_GEMV_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemv_args.h"
#include "gemv_chunk.cuh"
#include "gemv_stream.cuh"

/* ---- partial sums of slices: [strip of the block][slice][16 columns], with 8 rows [lane][4] instead ---- */

template <u32 M> EXL2K_FN constexpr u32 exl2k_partial_bytes(void) { return M == 1 ? 64 : 512; }

/* Partial sums of a strip. */
EXL2K_FN u32 exl2k_partials(const exl2k_matrix &m) { return m.slices + m.rest; }

/* Where this lane adds: one row: lanes t = 0 and 1 have a column each. */
template <u32 M> EXL2K_FN u32 exl2k_partial_at(u32 sums, const exl2k_matrix &m, u32 strip, const exl2k_place &place)
{
    u32 t = place.lane & 3, inside = M == 1 ? (t * 8 + place.lane / 4) * 4 : place.lane * 16;
    return sums + (strip * exl2k_partials(m) + place.slot) * exl2k_partial_bytes<M>() + inside;
}

template <u32 M> EXL2K_FN void exl2k_partial_clear(u32 at, u32 lane)
{
    if (M > 1) {
        exl2k_shared_store4(at, make_uint4(0, 0, 0, 0));
    } else if (lane % 4 < 2) {
        exl2k_shared_store(at, 0);
    }
}

/* first: there is nothing yet to add to. */
EXL2K_FN void exl2k_partial_add_one(u32 at, f32 sum, bool first, u32 lane)
{
    if (lane % 4 < 2) {
        exl2k_shared_store_f32(at, first ? sum : exl2k_shared_load_f32(at) + sum);
    }
}

EXL2K_FN void exl2k_partial_add_eight(u32 at, const f32 sum[4], bool first)
{
    uint4 v = first ? make_uint4(0, 0, 0, 0) : exl2k_shared_load4(at);
    v.x = __float_as_uint(__uint_as_float(v.x) + sum[0]);
    v.y = __float_as_uint(__uint_as_float(v.y) + sum[1]);
    v.z = __float_as_uint(__uint_as_float(v.z) + sum[2]);
    v.w = __float_as_uint(__uint_as_float(v.w) + sum[3]);
    exl2k_shared_store4(at, v);
}

/* All slices of one output of one row, slice 0 first. */
template <u32 M> EXL2K_FN f32 exl2k_partial_total(u32 sums, u32 slots, u32 strip, u32 column, u32 row)
{
    u32 inside = M == 1 ? column : (column % 8) * 16 + row / 2 * 4 + row % 2 + column / 8 * 2;
    u32 at = sums + strip * slots * exl2k_partial_bytes<M>() + inside * 4;
    f32 total = 0.0f;
    if constexpr (M == 1) {
#pragma unroll 16 /* EXL2K_SLICES_MAX: all are asked for at once */
        for (u32 slice = 0; slice < slots; slice++) {
            total += exl2k_shared_load_f32(at + slice * exl2k_partial_bytes<M>());
        }
    } else {
        f32 more[EXL2K_SLICES_MAX + 1];
#pragma unroll
        for (u32 i = 0; i <= EXL2K_SLICES_MAX; i++) { /* the same, in less code */
            more[i] = exl2k_shared_load_f32(at + exl2k_min(i, slots - 1) * exl2k_partial_bytes<M>());
        }
#pragma unroll
        for (u32 i = 0; i <= EXL2K_SLICES_MAX; i++) {
            total = i < slots ? total + more[i] : total;
        }
    }
    return total;
}

#include "gemv_out.cuh"

/* ---- a warp's share of a block ---- */

/* The task that the warp works on next: a chunk of its slice of a part, of all strips that it has of this part in the
   block. */
typedef struct exl2k_work {
    exl2k_run run;  /* own 0: there is no task */
    u32 chunk, end; /* chunks of the slice: up to `end` */
    exl2k_task task;
    u32 row;        /* first of the chunk, in units of 32 */
    bool first;     /* chunk of the slice */
    u32 sums;       /* where the partial sums of the first strip go */
} exl2k_work;

/* From the sums of one strip of the warp to those of its next. */
template <u32 M> EXL2K_FN u32 exl2k_work_hop(const exl2k_work &w, const exl2k_gemv_args &a)
{
    return (w.run.in.groups << a.matrix.interleaved) * exl2k_partials(a.matrix) * exl2k_partial_bytes<M>();
}

/* A slice without chunks has sums too. */
template <u32 M>
EXL2K_FN void exl2k_work_clear(const exl2k_work &w, const exl2k_gemv_args &a, const exl2k_place &place)
{
    u32 at = w.sums, hop = exl2k_work_hop<M>(w, a);
#pragma unroll 1
    for (u32 left = w.chunk < w.end ? 0 : w.run.own; left > 0; left--) {
        exl2k_partial_clear<M>(at, place.lane);
        at += hop;
    }
}

/* Goes to the first chunk of a run. */
template <u32 M>
EXL2K_FN void exl2k_work_enter(exl2k_work &w, const exl2k_gemv_args &a, const exl2k_run &r, exl2k_span block, u32 sums)
{
    const exl2k_matrix &m = a.matrix;
    const exl2k_slice &share = m.part[r.part].slice[r.in.slice];
    w.run = r;
    w.chunk = share.chunk;
    w.end = share.chunk + share.count;
    w.row = share.row;
    w.first = true;
    u32 strip = m.interleaved ? 2 * r.in.group + r.part : r.begin - block.begin + r.in.group;
    w.sums = exl2k_partial_at<M>(sums, m, strip, r.in);
}

EXL2K_FN bool exl2k_work_none(const exl2k_work &w) { return w.chunk >= w.end || w.run.own == 0; }

/* Goes to the task at w, or to the next one in the block, and begins to read its table entry. */
template <u32 M>
EXL2K_FN void exl2k_work_find(exl2k_work &w, const exl2k_gemv_args &a, const exl2k_place &place, exl2k_span block,
                              u32 sums)
{
    while (exl2k_work_none(w)) {
        u32 piece = w.run.piece + 1;
        if (piece == exl2k_pieces(a.matrix)) {
            w.run.own = 0;
            return;
        }
        exl2k_work_enter<M>(w, a, exl2k_run_of(a, place, piece, block), block, sums);
        exl2k_work_clear<M>(w, a, place);
    }
    exl2k_task_load(w.task, a.matrix.part[w.run.part], w.chunk, place.lane);
}

/* The first of a block whose first run is `run`. */
template <u32 M>
EXL2K_FN exl2k_work exl2k_work_first(const exl2k_gemv_args &a, const exl2k_place &place, const exl2k_run &run,
                                     exl2k_span block, u32 sums)
{
    exl2k_work w;
    exl2k_work_enter<M>(w, a, run, block, sums);
    exl2k_work_clear<M>(w, a, place);
    exl2k_work_find<M>(w, a, place, block, sums);
    return w;
}

/* One row: the chunks at the cursor, of S strips side by side, whose sums are at `to` and `hop` behind it. */
template <u32 S>
EXL2K_FN void exl2k_gemv_chunks(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_stream &s,
                                const exl2k_inputs<1> &inputs, const exl2k_task &task, u32 to, u32 hop, bool first)
{
    u32 at[2] = { s.at, s.at + a.slot_bytes };
    f32 out[S];
    exl2k_chunks_one<S>(out, at, inputs, task, place.lane);
    __syncwarp();
    exl2k_stream_refill<1>(s, a, place);
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        exl2k_partial_add_one(to + i * hop, out[i], first, place.lane);
    }
}

/* `w` is the first task; one row: `ahead` has its inputs; eight rows: at `input_sums` is room for sums of inputs.
   Inputs and table entries are asked for one task ahead. */
template <u32 M>
EXL2K_FN void exl2k_gemv_block(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_stream &s, exl2k_work w,
                               uint4 ahead, exl2k_span block, u32 sums, u64 x, u32 input_sums)
{
    while (w.run.own > 0) {
        exl2k_inputs<M> inputs;
        exl2k_task task = w.task;
        u32 to = w.sums, left = w.run.own, hop = exl2k_work_hop<M>(w, a);
        bool first = w.first;
        if constexpr (M == 1) {
            exl2k_keep_input(inputs, ahead, task, place.lane);
        } else {
            exl2k_load_inputs(inputs, x + w.row * 64, task, input_sums, place.lane);
        }
        w.chunk++;
        w.first = false;
        w.row += exl2k_task_halves(task);
        exl2k_work_find<M>(w, a, place, block, sums);
        if constexpr (M == 1) {
            ahead = exl2k_load_input(x, w.row, a.matrix.rows, place.lane);
        }
        while (left > 0) {
            exl2k_stream_wait(s, a);
            if constexpr (M == 1) {
                if (exl2k_job_has_two<M>(a, left)) {
                    exl2k_gemv_chunks<2>(a, place, s, inputs, task, to, hop, first);
                    to += hop;
                    left--;
                } else {
                    exl2k_gemv_chunks<1>(a, place, s, inputs, task, to, hop, first);
                }
            } else {
                f32 sum[4];
                exl2k_chunks_eight<M>(sum, s.at, inputs, task, place.lane);
                __syncwarp();
                exl2k_stream_refill<M>(s, a, place);
                exl2k_partial_add_eight(to, sum, first);
            }
            exl2k_stream_step(s, a);
            to += hop;
            left--;
        }
    }
}

/* ---- the kernel ---- */

template <u32 M> EXL2K_FN void exl2k_gemv(const exl2k_gemv_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    exl2k_place place = exl2k_place_of_warp(a);
    u32 shared = exl2k_shared(exl2k_dynamic), sums = shared + EXL2K_GEMV_WARPS * a.stages * a.slot_strips * a.slot_bytes;
    u32 small = sums + (a.block << a.matrix.interleaved) * exl2k_partials(a.matrix) * exl2k_partial_bytes<M>();
    exl2k_span block = exl2k_block_at(a, exl2k_strips_of_cta(a).begin);
    exl2k_run run = exl2k_run_first(a, place, block);
    exl2k_stream s = exl2k_stream_open<M>(a, place, run, shared, small);
    exl2k_work work = exl2k_work_first<M>(a, place, run, block, sums);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 x = a.x + place.lane % 4 * 16;
    uint4 ahead = make_uint4(0, 0, 0, 0); /* one row: asked for before all else, as it takes longest */
    if (M == 1) {
        ahead = exl2k_load_input(x, work.row, a.matrix.rows, place.lane);
    }
    __syncwarp(); /* or the assembler moves that behind the rest */
    exl2k_out out = exl2k_out_open<M>(a, block, small + 1024);
    exl2k_out_begin<M>(out, a);
    exl2k_out_read<M>(out, a, block);
    u32 input_sums = out.small + EXL2K_SMALL_INPUTS + place.warp * 256;
    x += M == 1 ? 0 : (u64)exl2k_min(place.lane / 4, out.rows - 1) * a.x_pitch * 2;
    while (block.begin < block.end) {
        exl2k_gemv_block<M>(a, place, s, work, ahead, block, sums, x, input_sums);
        exl2k_out_settle<M>(out, a);
        __syncthreads();
        exl2k_out_block<M>(out, a, block, sums);
        block = exl2k_block_at(a, block.end);
        if (block.begin >= block.end) {
            break;
        }
        __syncthreads();
        exl2k_out_constants<M>(out, a, block);
        exl2k_out_read<M>(out, a, block);
        work = exl2k_work_first<M>(a, place, exl2k_run_first(a, place, block), block, sums);
        if (M == 1) {
            ahead = exl2k_load_input(x, work.row, a.matrix.rows, place.lane);
        }
    }
    exl2k_out_close<M>(out, a);
}

#endif
