/* gemv.cuh: the product of 1 to 16 rows with one matrix. Decode consists mainly of these products.
   takes: base.cuh, unpack.cuh, gemv_args.h; the options of gemv_stream.cuh and gemv_chunk.cuh.
   gives: exl2k_gemv<M>, M 1, 8 or 16: the body of a kernel; grid = CTAs (one per SM), EXL2K_GEMV_THREADS threads.
   owns:  nothing; included by gemv1.cu, gemv8.cu, gemv16.cu and their variants _any, _affine and _large.

   Each CTA owns a range of strips, over all of K, and works on them in BLOCKS of a few strips. matrix_args.h defines
   strips, records, chunks and slices. Example with slices = 3 and rest = 1:

     STRIP: 16 columns over all of K
     +---------+---------+---------+---------+---------+---------+---------+
     | chunk 0 | chunk 1 | chunk 2 | chunk 3 | chunk 4 | chunk 5 | chunk 6 |   -> K
     +---------+---------+---------+---------+---------+---------+---------+
     |<---- slice 0 ---->|<---- slice 1 ---->|<---- slice 2 ---->|  rest   |
      warps 0, 3, .., 12   warps 1, 4, .., 13  warps 2, 5, .., 14   any warp

     PIECE: the slices of one part in a block, or the rest of that part. A block has parts << rest pieces, in the order
     part 0, rest of part 0, part 1, rest of part 1, and so on. In a piece of slices, 3 warps form a group, so there are
     16 / 3 = 5 groups (warp 15 is idle), and group g has strips g, g + 5, g + 10, .. of the block. In a piece of rest
     chunks, warp w has strips w, w + 16, .. of the block.

     RUN: the strips of one warp in one piece. JOB: one slot of the warp's ring: one chunk of one strip, or of two
     strips if a slot holds two (slot_strips 2). The run of warp 1 (group 0, slice 1) in a block of 13 strips:

               strip 0   strip 5   strip 10
             +---------+---------+---------+
     chunk 2 |  job 0  |       job 1       |     If the number of strips is odd, the first strip is a job of its own, so
             +---------+---------+---------+     that its copy completes sooner.
     chunk 3 |  job 2  |       job 3       |
             +---------+---------+---------+     TASK: one row of this table: one chunk of every strip of the run.

   Each warp streams its jobs through a ring of its own, so that warps meet only at one barrier per block, before the
   sums of the slices are added up. Chunks are the outer loop and strips the inner loop, so that the inputs of a chunk
   (256 rows) are read once per block. Sums of slices are added in the order of the slices. The result has the same
   bits in every run, whether a row is alone or in a batch.

   RUNNING SUMS (EXL2K_CHAIN). A matrix with many strips, such as a head, has one slice: a warp multiplies all chunks of
   its own strips, and loads inputs for each chunk of only a few strips. With 8 or 16 rows these loads are what it waits
   for. So here a warp has chunks i, i + 16, .. of all strips of the CTA, and a strip has one sum: the warp of a chunk
   waits until the chunk before has been added, adds its own, and opens the barrier of the next one. All warps have the
   strips in the same order, so they wait for little more than the first sum; and the sums, in the order of the chunks,
   have the bits that the other kernels give. The launch (exl2__cuda_gemv_chain) describes chunks 0 to 15, 16 to 31, and
   so on as slices of parts that lie in the same memory. */
#ifndef EXL2K_GEMV_CUH
#define EXL2K_GEMV_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemv_args.h"

#ifndef EXL2K_PEERS
#define EXL2K_PEERS 0 /* 1: inputs and results are shared with other GPUs (peers_args.h) */
#endif
#if EXL2K_PEERS
#include "peers.cuh"
#endif
#include "gemv_chunk.cuh"
#include "gemv_stream.cuh"

/* ---- partial sums of slices: [strip of the block][slice][16 columns]; many rows: [..][..][tile][a lane's 4] ---- */

template <u32 M> EXL2K_FN constexpr u32 exl2k_partial_bytes(void) { return M * 64; }

/* Number of partial sums of a strip. The last one is what adapters add, if they do. */
EXL2K_FN u32 exl2k_partials(const exl2k_matrix &m) { return m.slices + m.rest + (EXL2K_LORA ? m.adapted : 0); }

/* Bytes of the partial sums of a strip. Running sums are followed by their barriers. */
template <u32 M> EXL2K_FN u32 exl2k_strip_bytes(const exl2k_gemv_args &a)
{
    u32 sums = EXL2K_CHAIN ? 1 : exl2k_partials(a.matrix);
    return sums * exl2k_partial_bytes<M>() + (EXL2K_CHAIN ? EXL2K_CHAIN_BYTES(a.matrix.parts) : 0);
}

/* Many rows: offset of a lane's sums. In this order of lanes, what a warp adds up at a time, 16 columns of two rows,
   lies in 32 banks. */
EXL2K_FN u32 exl2k_partial_lane(u32 lane) { return (lane ^ lane >> 3) * 16; }

/* Address of this lane's partial sum. With one row, lanes t = 0 and 1 have a column each. */
template <u32 M> EXL2K_FN u32 exl2k_partial_at(u32 sums, const exl2k_gemv_args &a, u32 strip, const exl2k_role &role)
{
    u32 lane = role.lane, inside = M == 1 ? (lane % 4 * 8 + lane / 4) * 4 : exl2k_partial_lane(lane);
    u32 mine = EXL2K_CHAIN ? 0 : role.slot * exl2k_partial_bytes<M>() + inside; /* running sums: of lane 0 */
    return sums + strip * exl2k_strip_bytes<M>(a) + mine;
}

template <u32 M> EXL2K_FN void exl2k_partial_clear(u32 at, u32 lane)
{
    if constexpr (M > 1) {
        for (u32 tile = 0; tile < M / 8; tile++) {
            exl2k_shared_store4(at + tile * 512, make_uint4(0, 0, 0, 0));
        }
    } else if (lane % 4 < 2) {
        exl2k_shared_store(at, 0);
    }
}

/* first: this is the first chunk of the slice, so its sum is stored, not added. */
EXL2K_FN void exl2k_partial_add_one(u32 at, f32 sum, bool first, u32 lane)
{
    if (lane % 4 < 2) {
        exl2k_shared_store_f32(at, first ? sum : exl2k_shared_load_f32(at) + sum);
    }
}

template <u32 M> EXL2K_FN void exl2k_partial_add_many(u32 at, const f32 sum[M / 8][4], bool first)
{
#pragma unroll
    for (u32 tile = 0; tile < M / 8; tile++) {
        uint4 v = first ? make_uint4(0, 0, 0, 0) : exl2k_shared_load4(at + tile * 512);
        v.x = __float_as_uint(__uint_as_float(v.x) + sum[tile][0]);
        v.y = __float_as_uint(__uint_as_float(v.y) + sum[tile][1]);
        v.z = __float_as_uint(__uint_as_float(v.z) + sum[tile][2]);
        v.w = __float_as_uint(__uint_as_float(v.w) + sum[tile][3]);
        exl2k_shared_store4(at + tile * 512, v);
    }
}

#if EXL2K_CHAIN
/* ---- running sums ---- */

/* Adds to a running sum, when it is this warp's turn. at: of lane 0; chain: offset to the barrier of the chunk, after
   which that of the next chunk follows. */
template <u32 M> EXL2K_FN void exl2k_chain_add(u32 at, const f32 sum[M / 8][4], u32 chain, u32 lane)
{
    exl2k_barrier_wait(at + chain, 0);
    exl2k_partial_add_many<M>(at + exl2k_partial_lane(lane), sum, false);
    __syncwarp();
    if (lane == 0) {
        exl2k_barrier_arrive(at + chain + 8);
    }
}

/* Clears running sums and prepares their barriers: u64 [16 parts + 1] for each strip, of which the first is open. */
template <u32 M> EXL2K_FN void exl2k_chain_open(const exl2k_gemv_args &a, u32 sums, u32 strips)
{
    u32 strip = exl2k_strip_bytes<M>(a);
    for (u32 i = exl2k_thread<M>(); i < strips * strip / 16; i += EXL2K_GEMV_THREADS) {
        exl2k_shared_store4(sums + i * 16, make_uint4(0, 0, 0, 0));
    }
    __syncthreads();
    for (u32 i = exl2k_thread<M>() / EXL2K_WARP; i < strips; i += EXL2K_GEMV_WARPS) {
        u32 at = sums + i * strip + exl2k_partial_bytes<M>();
        for (u32 k = exl2k_lane<M>(); k <= a.matrix.parts * EXL2K_SLICES_MAX; k += EXL2K_WARP) {
            exl2k_barrier_init(at + k * 8, 1);
        }
        __syncwarp();
        if (exl2k_lane<M>() == 0) {
            exl2k_barrier_arrive(at);
        }
    }
    __syncthreads();
}
#endif

/* Sum of all slices of one output of one row, beginning with slice 0. */
template <u32 M>
EXL2K_FN f32 exl2k_partial_total(u32 sums, const exl2k_gemv_args &a, u32 strip, u32 column, u32 row)
{
    u32 slots = exl2k_partials(a.matrix);
    u32 lane = column % 8 * 4 + row % 8 / 2; /* that has the sum, as one of four */
    u32 inside = M == 1 ? column * 4 : row / 8 * 512 + exl2k_partial_lane(lane) + (row % 2 + column / 8 * 2) * 4;
    u32 at = sums + strip * exl2k_strip_bytes<M>(a) + inside;
    f32 total = 0.0f;
    if constexpr (M == 1) {
#pragma unroll 16 /* EXL2K_SLICES_MAX, so that all loads are issued at once */
        for (u32 slice = 0; slice < slots; slice++) {
            total += exl2k_shared_load_f32(at + slice * exl2k_partial_bytes<M>());
        }
    } else if (EXL2K_CHAIN) {
        total = exl2k_shared_load_f32(at);
    } else {
        constexpr u32 most = EXL2K_SLICES_MAX + 1 + EXL2K_LORA;
        f32 more[most];
#pragma unroll
        for (u32 i = 0; i < most; i++) { /* the same effect in less code than a loop with a branch */
            more[i] = exl2k_shared_load_f32(at + exl2k_min(i, slots - 1) * exl2k_partial_bytes<M>());
        }
#pragma unroll
        for (u32 i = 0; i < most; i++) {
            total = i < slots ? total + more[i] : total;
        }
    }
    return total;
}

#if EXL2K_PEERS
#include "gemv_peers.cuh"
#endif
#include "gemv_out.cuh"

/* ---- a warp's tasks in a block ---- */

/* The warp's next task: a chunk of its slice of a part, of all strips of the run. */
typedef struct exl2k_work {
    exl2k_run run;  /* own 0: no task is left */
    u32 chunk, end; /* next chunk of the slice, and their end */
    exl2k_task task;
    u32 row;        /* first row of the chunk, in units of 32 */
    bool first;     /* true for the first chunk of the slice */
    u32 sums;       /* address of the first strip's partial sums */
    u32 chain;      /* offset from the first strip's running sum to the barrier of the chunk */
} exl2k_work;

/* Whether partial sums of both interleaved parts lie side by side. With 16 rows one part is added up after the other,
   in the same memory, so that more strips fit into a block, and inputs are loaded fewer times. */
template <u32 M> EXL2K_FN u32 exl2k_side_by_side(const exl2k_gemv_args &a)
{
    return M == 16 || EXL2K_CHAIN ? 0 : a.matrix.interleaved;
}

/* Bytes from the partial sums of one strip of the run to those of the next. */
template <u32 M> EXL2K_FN u32 exl2k_work_stride(const exl2k_work &w, const exl2k_gemv_args &a)
{
    return (w.run.role.groups << exl2k_side_by_side<M>(a)) * exl2k_strip_bytes<M>(a);
}

/* Clears the partial sums of a slice without chunks, because they are added up like all others. */
template <u32 M>
EXL2K_FN void exl2k_work_clear(const exl2k_work &w, const exl2k_gemv_args &a, const exl2k_role &role)
{
    u32 at = w.sums, stride = exl2k_work_stride<M>(w, a);
#pragma unroll 1
    for (u32 left = w.chunk < w.end || EXL2K_CHAIN ? 0 : w.run.own; left > 0; left--) {
        exl2k_partial_clear<M>(at, role.lane);
        at += stride;
    }
}

/* Moves to the first chunk of a run. */
template <u32 M>
EXL2K_FN void exl2k_work_start_run(exl2k_work &w, const exl2k_gemv_args &a, const exl2k_run &r, exl2k_span block,
                                   u32 sums)
{
    const exl2k_matrix &m = a.matrix;
    const exl2k_slice &slice = m.part[r.part].slice[r.role.slice];
    w.run = r;
    w.chunk = slice.chunk;
    w.end = slice.chunk + slice.count;
    w.row = slice.row;
    w.chain = exl2k_partial_bytes<M>() + (r.part * EXL2K_SLICES_MAX + r.role.slot) * 8;
    w.first = true;
    u32 strip = exl2k_side_by_side<M>(a) ? 2 * r.role.group + r.part : r.begin - block.begin + r.role.group;
    w.sums = exl2k_partial_at<M>(sums, a, strip, r.role);
}

EXL2K_FN bool exl2k_work_is_empty(const exl2k_work &w) { return w.chunk >= w.end || w.run.own == 0; }

/* Moves to the next task of the block if the slice has no chunks left, and starts to load the task's table entry. */
template <u32 M>
EXL2K_FN void exl2k_work_next(exl2k_work &w, const exl2k_gemv_args &a, const exl2k_role &role, exl2k_span block,
                              u32 sums)
{
    while (exl2k_work_is_empty(w)) {
        u32 piece = w.run.piece + 1;
        bool apart = M == 16 && a.matrix.interleaved && !EXL2K_CHAIN;
        bool done = apart && piece == 1u << a.matrix.rest; /* the first part is */
        if (done || piece == exl2k_pieces(a.matrix)) {
            w.run.own = 0;
            return;
        }
        exl2k_work_start_run<M>(w, a, exl2k_run_of(a, role, piece, block), block, sums);
        exl2k_work_clear<M>(w, a, role);
    }
    exl2k_task_load(w.task, a.matrix.part[w.run.part], w.chunk, role.lane);
}

/* The first task of a block whose first run is `run`. */
template <u32 M>
EXL2K_FN exl2k_work exl2k_work_first(const exl2k_gemv_args &a, const exl2k_role &role, const exl2k_run &run,
                                     exl2k_span block, u32 sums)
{
    exl2k_work w;
    exl2k_work_start_run<M>(w, a, run, block, sums);
    exl2k_work_clear<M>(w, a, role);
    exl2k_work_next<M>(w, a, role, block, sums);
    return w;
}

/* One row: multiplies the job at the cursor, which has S strips. Strip i adds to the partial sums at `to` + i *
   stride. */
template <u32 S>
EXL2K_FN void exl2k_gemv_chunks(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_stream &s,
                                const exl2k_inputs<1> &inputs, const exl2k_task &task, u32 to, u32 stride, bool first)
{
    /* Multiply the job in the slot at the cursor. */
    u32 at[2] = { s.at, s.at + a.slot_bytes };
    f32 out[S];
    exl2k_chunks_one<S>(out, at, inputs, task, role.lane);
    /* All lanes have read the slot, so it can be refilled. */
    __syncwarp();
    exl2k_stream_fill<1>(s, a, role);
    exl2k_stream_replan<1>(s, a, role);
    /* Each strip's result is added to its partial sums. */
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        exl2k_partial_add_one(to + i * stride, out[i], first, role.lane);
    }
}

#include "gemv_kept.cuh"
#if EXL2K_LARGE
#include "gemv_large.cuh"
#endif
#if EXL2K_LORA
#include "gemv_lora.cuh"
#endif

/* Works through all of the warp's tasks in a block. `w` is the first task. One row: `next_input` holds its inputs.
   Eight rows: `starts` is the address for the initial sums. Inputs and table entries are loaded one task in advance. */
template <u32 M>
EXL2K_FN void exl2k_gemv_block(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_stream &s, exl2k_work w,
                               uint4 next_input, exl2k_span block, u32 sums, u64 x, u32 starts)
{
    while (w.run.own > 0) {
        /* Turn the inputs of this task into operands. */
        exl2k_inputs<M> inputs;
        exl2k_task task = w.task;
        u32 to = w.sums, left = w.run.own, stride = exl2k_work_stride<M>(w, a);
        bool first = w.first;
        [[maybe_unused]] u32 chain = w.chain;
        if constexpr (M == 1) {
#if EXL2K_PEERS
            exl2k_peers_input(a, next_input, x, w.row, task, role.lane);
#endif
            exl2k_prepare_input(inputs, next_input, task, role.lane);
        } else {
            u64 at[1] = { x + w.row * a.x_step };
            if constexpr (EXL2K_LARGE) {
                exl2k_kept_inputs<M>(inputs, at, a.x_step, task, starts, role.lane);
            } else {
                exl2k_load_inputs<M>(inputs, at, a.x_step, task, starts, role.lane);
            }
        }
        /* Move to the next task, and start to load its table entry and its inputs. */
        w.chunk++;
        w.first = false;
        w.row += exl2k_task_halves(task);
        exl2k_work_next<M>(w, a, role, block, sums);
        if constexpr (M == 1) {
            next_input = exl2k_load_input(x, w.row, a.matrix.rows, role.lane);
        }
        u32 whole = 0; /* strips that follow the loop */
#if EXL2K_LARGE
        whole = exl2k_large_strips<M>(a, task, left);
#endif
        /* One job per slot of the ring: wait for the copy, multiply, refill the slot. */
        while (left > whole) {
            exl2k_stream_wait(s, a);
            if constexpr (M == 1) {
                if (exl2k_job_has_two<M>(a, left)) {
                    exl2k_gemv_chunks<2>(a, role, s, inputs, task, to, stride, first);
                    to += stride;
                    left--;
                } else {
                    exl2k_gemv_chunks<1>(a, role, s, inputs, task, to, stride, first);
                }
            } else {
                f32 sum[M / 8][4];
                exl2k_chunks_many<M>(sum, s.at, inputs, task, role.lane);
                __syncwarp();
                exl2k_stream_fill<M>(s, a, role);
                exl2k_stream_replan<M>(s, a, role);
#if EXL2K_CHAIN
                exl2k_chain_add<M>(to, sum, chain, role.lane);
#else
                exl2k_partial_add_many<M>(to, sum, first);
#endif
            }
            exl2k_stream_step(s, a);
            to += stride;
            left--;
        }
#if EXL2K_LARGE
        exl2k_large_block<M>(a, role, s, inputs, task, to, stride, first, chain, left);
#endif
    }
}

/* ---- the kernel ---- */

/* 1: eight rows: the role of a warp and its block are computed again after the block's chunks. */
#define EXL2K_AGAIN (EXL2K_LARGE || (EXL2K_LORA && __CUDA_ARCH__ < 1200))

#if EXL2K_LORA
#define EXL2K_GEMV_ARGS exl2k_lora_gemv_args
#elif EXL2K_PEERS
#define EXL2K_GEMV_ARGS exl2k_peers_gemv_args
#else
#define EXL2K_GEMV_ARGS exl2k_gemv_args
#endif

template <u32 M> EXL2K_FN void exl2k_gemv(const EXL2K_GEMV_ARGS &all)
{
#if EXL2K_LORA || EXL2K_PEERS
    const exl2k_gemv_args &a = all.gemv;
#else
    const exl2k_gemv_args &a = all;
#endif
    /* Find this warp's role, and divide shared memory into rings, partial sums and small areas. */
    extern __shared__ uint4 exl2k_dynamic[];
    exl2k_role role = exl2k_role_of_warp<M>(a);
    u32 shared = exl2k_shared(exl2k_dynamic);
#if EXL2K_LORA
    if (blockIdx.x < a.ctas_before) {
        exl2k_lora_shrink<M>(all, shared);
        return;
    }
#endif
    u32 sums = shared + EXL2K_GEMV_WARPS * (a.stages * a.slot_strips * a.slot_bytes + (M == 16 ? EXL2K_RING_HEAD : 0));
    u32 strips = a.block << exl2k_side_by_side<M>(a);
    u32 small = sums + strips * exl2k_strip_bytes<M>(a);
    bool apart = M == 16 && a.matrix.interleaved && !EXL2K_CHAIN;
    small += apart ? a.block * exl2k_partial_bytes<M>() : 0; /* totals of gate */
    /* Fill the ring with weights and find the first task, while preceding kernels may still run. */
    exl2k_span block = exl2k_block_at<M>(a, exl2k_strips_of_cta<M>(a).begin);
    exl2k_run run = exl2k_run_first(a, role, block);
    exl2k_stream s = exl2k_stream_open<M>(a, role, run, shared, small);
    exl2k_work work = exl2k_work_first<M>(a, role, run, block, sums);
    u32 kept_at = small - shared + exl2k_small_kept<M>() + role.warp * (u32)sizeof(exl2k_kept);
    exl2k_opaque(kept_at);
    exl2k_kept *kept = (exl2k_kept *)((u8 *)exl2k_dynamic + kept_at);
    if constexpr (M == 16) {
        exl2k_kept_store(kept, work, exl2k_work_stride<M>(work, a));
        exl2k_kept_load(kept, a, work.run.part, work.chunk);
    }
#if EXL2K_CHAIN
    exl2k_chain_open<M>(a, sums, strips);
#endif
#if EXL2K_LORA
    if (a.matrix.adapted) {
        exl2k_lora_copy(all, small + exl2k_lora_behind<M>());
        __syncthreads();
        exl2k_lora_copied(small + exl2k_lora_behind<M>());
    }
#endif
    /* From here on, memory that preceding kernels write can be read. */
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 x = a.x + role.lane % 4 * 16;
    uint4 next_input = make_uint4(0, 0, 0, 0); /* one row: this load is issued first, because its latency is longest */
    if (M == 1) {
        next_input = exl2k_load_input(x, work.row, a.matrix.rows, role.lane);
    }
    __syncwarp(); /* keeps the assembler from moving that load after the following ones */
#if EXL2K_PEERS
    if constexpr (M == 1) {
        exl2k_peers_clear(all.peers.clear[0], all.peers.clear_bytes[0]);
        exl2k_peers_clear(all.peers.clear[1], all.peers.clear_bytes[1]);
    }
#endif
    /* Start to load what the results need: sums of squares, residual, constants. */
    exl2k_out out = exl2k_out_open<M>(a, block, small + (M == 16 ? 0 : 1024));
    exl2k_out_begin<M>(out, a);
#if EXL2K_LORA
    if (a.matrix.adapted) {
        exl2k_lora_begin(all, small + exl2k_lora_behind<M>());
    }
#endif
    exl2k_out_read<M>(out, a, block);
    /* With 8 rows each lane reads the inputs of row lane / 4; rows beyond the last repeat the last row. */
    u32 starts = out.small + exl2k_small_starts<M>() + role.warp * M * 64;
    x += M == 8 ? (u64)exl2k_min(role.lane / 4, out.rows - 1) * a.x_pitch * 2 : 0;
    /* Each block: multiply, meet the other warps at the barrier, then add up the slices and store the results. */
    while (block.begin < block.end) {
        if constexpr (M == 16) {
            exl2k_kept_block(kept, block, out.rows, sums, out.small);
            exl2k_gemv_block_kept(a, s, kept);
            block = exl2k_block_at<M>(a, kept->begin);
            role = exl2k_role_of_warp<M>(a);
            out.rows = kept->rows;
            out.small = kept->small;
            sums = kept->all_sums;
        } else {
            exl2k_gemv_block<M>(a, role, s, work, next_input, block, sums, x, starts);
            if (EXL2K_AGAIN && M == 8) { /* computed again, as registers are scarce */
                role = exl2k_role_of_warp<16>(a);
                block = exl2k_block_at<16>(a, block.begin);
            }
        }
#if EXL2K_LORA
        if (a.matrix.adapted) {
            exl2k_lora_expand<M>(all, block, sums, out.rows, out.small - 1024 + exl2k_lora_behind<M>());
        }
#endif
        exl2k_out_sum_slots<M>(out, a);
        __syncthreads();
        bool more = M == 16 && a.matrix.interleaved && !EXL2K_CHAIN;
        if (more && kept->piece < 1u << a.matrix.rest) { /* the other part follows */
            exl2k_out_gates(out, a, block, sums);
            run = exl2k_run_of(a, role, 1u << a.matrix.rest, block);
            __syncthreads();
        } else {
            exl2k_out_block<M>(out, a, block, sums);
            /* Prepare the next block once all threads have read the partial sums. */
            block = exl2k_block_at<EXL2K_LORA && EXL2K_AGAIN && M == 8 ? 16 : M>(a, block.end);
            if (block.begin >= block.end) {
                break;
            }
#if EXL2K_LORA
            if (a.matrix.adapted) {
                exl2k_lora_again(out.small - 1024 + exl2k_lora_behind<M>());
            }
#endif
            __syncthreads();
            exl2k_out_constants<M>(out, a, block);
            exl2k_out_read<M>(out, a, block);
            run = exl2k_run_first(a, role, block);
        }
        work = exl2k_work_first<M>(a, role, run, block, sums);
        if constexpr (M == 16) {
            exl2k_kept_store(kept, work, exl2k_work_stride<M>(work, a));
            exl2k_kept_load(kept, a, work.run.part, work.chunk);
        } else if (M == 1) {
            next_input = exl2k_load_input(x, work.row, a.matrix.rows, role.lane);
        }
    }
    exl2k_out_close<M>(out, a);
}

#endif
