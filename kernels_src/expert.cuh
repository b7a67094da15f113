/* expert.cuh: the products of up to 8 rows with the experts that they have chosen.
   takes: base.cuh, unpack.cuh, gemv_chunk.cuh, expert_stream.cuh.
   gives: exl2k_expert_products<M>, M 1 or 8: the body of a kernel.
   owns:  nothing; included by expert1.cu and expert8.cu.

   expert_up: the pairs of strips of all experts in use follow one another, and each CTA has an equal share of them.
   expert_down: each CTA has strips of the residual, over all experts in use. A CTA works in BLOCKS: some experts (RUNS)
   and some strips of each, as many as shared memory has room for.

   A block's weights are divided into units: a few consecutive chunks of one strip. The units of a run and part follow
   one another by chunks, then by strips, and each warp has an equal share of the units of the block, which it streams
   through a ring of its own. So a warp has the same inputs for many units. Each unit's sum is stored apart, and the
   sums of a strip are added in the order of the chunks. Therefore a row's bits depend neither on the other rows and
   their experts, nor on the number of CTAs. */
#ifndef EXL2K_EXPERT_CUH
#define EXL2K_EXPERT_CUH

#include "base.cuh"
#include "unpack.cuh"
#include "gemv_args.h"
#include "gemv_chunk.cuh"
#include "expert_stream.cuh"

#ifndef EXL2K_STEER
#define EXL2K_STEER 0 /* 1: down adds control vectors, up what adapters add */
#endif

/* ---- products ---- */

/* The chunk's table entry. */
EXL2K_FN const exl2k_chunk &exl2k_expert_entry(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                               const exl2k_expert_place &p)
{
    return s.tables[p.part * a.chunks + exl2k_min(p.chunk, s.part[p.part].chunks - 1)];
}

EXL2K_FN void exl2k_expert_task(exl2k_task &task, const exl2k_chunk &entry, u32 lane)
{
    u32 at = exl2k_shared(&entry);
    task.shape = exl2k_shared_load(at + 8);
    task.ends = exl2k_shared_load(at + 12);
    task.maximum = exl2k_shared_load(at + 16 + lane % 4 * 4);
}

/* Address of the rows that the expert of the part reads. */
EXL2K_FN u64 exl2k_expert_rows_of(const exl2k_expert_args &a, const exl2k_expert_block &b, u32 part)
{
    u32 run = a.parts == 1 ? part : part / 2;
    return a.x + (u64)(b.run + run) * a.x_step * 2;
}

/* The products of one warp's units. x: the lane's offset from the address of an expert's rows. */
template <u32 M>
EXL2K_FN void exl2k_expert_multiply(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                    const exl2k_expert_block &b, exl2k_expert_stream &t, u64 x, u32 warp, u32 lane)
{
    u32 unit = t.unit, chunks = t.chunks, inside = M == 1 ? (lane % 4 * 8 + lane / 4) * 4 : lane * 16;
    u32 inputs_at = s.inputs + warp * 512, known = ~0u; /* known: key of the operands */
    exl2k_inputs<M> inputs;
    exl2k_task task;
    exl2k_expert_place p;
    uint4 next_input = make_uint4(0, 0, 0, 0);
    f32 sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    if (chunks == 0) {
        return;
    }
    p = exl2k_expert_find(a, s, b, unit);
    if constexpr (M == 1) {
        next_input = exl2k_load_input(exl2k_expert_rows_of(a, b, p.part) + x, exl2k_expert_entry(a, s, p).row,
                                      a.inputs, lane);
    }
#pragma unroll 1
    for (; chunks > 0; chunks--) {
        u32 key = p.part * 65536 + p.chunk;
        bool exists = p.chunk < s.part[p.part].chunks, last = p.chunk + 1 == p.first + a.unit;
        u64 rows = exl2k_expert_rows_of(a, b, p.part) + x;
        /* Turn the inputs into operands, if the preceding chunk had others. */
        if (key != known) {
            const exl2k_chunk &entry = exl2k_expert_entry(a, s, p);
            exl2k_expert_task(task, entry, lane);
            if constexpr (M == 1) {
                exl2k_prepare_input(inputs, next_input, task, lane);
            } else {
                u64 at[1] = { rows + entry.row * 64 };
                exl2k_load_inputs<M>(inputs, at, EXL2K_STEP, task, inputs_at, lane);
            }
            known = key;
        }
        /* Load the inputs of the next chunk. */
        exl2k_expert_next(a, s, b, p);
        if constexpr (M == 1) {
            if (chunks > 1 && p.part * 65536 + p.chunk != known) {
                next_input = exl2k_load_input(exl2k_expert_rows_of(a, b, p.part) + x,
                                              exl2k_expert_entry(a, s, p).row, a.inputs, lane);
            }
        }
        /* Multiply. */
        exl2k_expert_wait(a, t);
        if (exists) {
            if constexpr (M == 1) {
                u32 at[1] = { t.at };
                f32 out[1];
                exl2k_chunks_one<1>(out, at, inputs, task, lane);
                sum[0] += out[0];
            } else {
                f32 out[1][4];
                exl2k_chunks_many<M>(out, t.at, inputs, task, lane);
                sum[0] += out[0][0];
                sum[1] += out[0][1];
                sum[2] += out[0][2];
                sum[3] += out[0][3];
            }
        }
        __syncwarp();
        exl2k_expert_fill(a, s, b, t, lane);
        exl2k_expert_step(a, t);
        /* Store the sum of the unit. */
        if (last) {
            u32 at = s.sums + unit * exl2k_expert_sum_bytes<M>() + inside;
            if (M > 1) {
                exl2k_shared_store4(at, make_uint4(__float_as_uint(sum[0]), __float_as_uint(sum[1]),
                                                   __float_as_uint(sum[2]), __float_as_uint(sum[3])));
            } else if (lane % 4 < 2) {
                exl2k_shared_store_f32(at, sum[0]);
            }
            exl2k_clear(sum);
            unit++;
        }
    }
}

/* ---- results ---- */

/* The sum of the units of one output: column `column` of strip `strip` of the block, in row `row`. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_total(const exl2k_expert_args &a, const exl2k_expert_shared &s, u32 part, u32 strip,
                                u32 column, u32 row)
{
    const exl2k_expert_part &p = s.part[part];
    u32 inside = M == 1 ? column : (column % 8) * 16 + row / 2 * 4 + row % 2 + column / 8 * 2;
    u32 at = s.sums + (s.first[part] + strip) * exl2k_expert_sum_bytes<M>() + inside * 4;
    u32 step = p.strips * exl2k_expert_sum_bytes<M>();
    f32 total = 0.0f;
#pragma unroll 4
    for (u32 left = exl2k_expert_units(a, p.chunks); left > 0; left--, at += step) {
        total += exl2k_shared_load_f32(at);
    }
    return total;
}

EXL2K_FN f32 exl2k_expert_bias(u64 bias, u32 n) { return bias ? exl2k_load_f32(bias + n * 4) : 0.0f; }

/* An output of a block: this thread's column and row of a strip. What it needs besides the sums of the units is loaded
   while the weights are on their way. `up` may have more outputs than threads, and loads that of the others later. */
typedef struct exl2k_expert_output {
    u32 strip;    /* in the block (up: in the part); EXL2K_EXPERT_NONE: there is no such output, or it is not wanted */
    u32 part;     /* up: the expert's first part in the block */
    u32 place;    /* in the row that is written */
    f32 first, second; /* up: biases of gate and up; down: weight of the next norm, residual */
} exl2k_expert_output;

#define EXL2K_EXPERT_NONE (~0u)

template <u32 M> EXL2K_FN u32 exl2k_expert_row(void) { return threadIdx.x / 16 % M; }

/* Address of what is added to gate and up of a row's expert. */
template <u32 M> EXL2K_FN u64 exl2k_expert_added(const exl2k_expert_args &a, u32 expert, u32 row)
{
    u64 choice = a.rows.choice + ((u64)a.rows.first + row) * a.rows.active * 4;
    u32 k = 0;
    while (k + 1 < a.rows.active && exl2k_load(choice + k * 4) != expert) {
        k++;
    }
    return a.added + (u64)(row * a.rows.active + k) * 2 * a.columns * 4;
}

template <u32 M>
EXL2K_FN exl2k_expert_output exl2k_expert_output_up(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                                    const exl2k_expert_list &list, const exl2k_expert_block &b,
                                                    u32 item)
{
    u32 row = exl2k_expert_row<M>(), strips = exl2k_expert_strips(a), used = exl2k_expert_divided(item, strips);
    u32 n = (item - used * strips) * 16 + threadIdx.x % 16;
    exl2k_expert_output o = { EXL2K_EXPERT_NONE, (used - b.run) * a.parts, n, 0.0f, 0.0f };
    if (item < b.end && n < a.columns && row < list.rows && exl2k_expert_chosen<M>(list, list.index[used], row)) {
        const exl2k_expert_part &p = s.part[o.part];
        o.strip = item - used * strips - p.strip;
        o.first = exl2k_expert_bias(p.bias, n);
        o.second = a.parts == 2 ? exl2k_expert_bias(s.part[o.part + 1].bias, n) : 0.0f;
        if (EXL2K_STEER && a.added) {
            u64 at = exl2k_expert_added<M>(a, list.index[used], row) + n * 4;
            o.first += exl2k_load_f32(at);
            o.second += a.parts == 2 ? exl2k_load_f32(at + a.columns * 4) : 0.0f;
        }
    }
    return o;
}

/* h of the block's pairs of strips. o: this thread's first output. */
template <u32 M>
EXL2K_FN void exl2k_expert_store_up(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                    const exl2k_expert_list &list, const exl2k_expert_block &b, exl2k_expert_output o)
{
    u32 column = threadIdx.x % 16, row = exl2k_expert_row<M>(), item = b.begin + threadIdx.x / (16 * M);
#pragma unroll 1
    while (item < b.end) {
        if (o.strip != EXL2K_EXPERT_NONE) {
            u32 run = a.parts == 2 ? o.part / 2 : o.part;
            f32 g = exl2k_expert_total<M>(a, s, o.part, o.strip, column, row) + o.first, u = 1.0f;
            if (a.parts == 2) {
                u = exl2k_expert_total<M>(a, s, o.part + 1, o.strip, column, row) + o.second;
            }
            f32 h = exl2k_gated(a.act, a.act_limit, g, u) * s.weight[run * 8 + row];
            exl2k_store_u16(a.out + ((u64)((b.run + run) * EXL2K_EXPERT_ROWS + row) * a.out_pitch + o.place) * 2,
                            exl2k_f32_to_f16(exl2k_clamp_f16(h)));
        }
        item += EXL2K_EXPERT_THREADS / (16 * M);
        if (item < b.end) {
            o = exl2k_expert_output_up<M>(a, s, list, b, item);
        }
    }
}

/* The column of this thread's output of `down` in the residual. */
template <u32 M> EXL2K_FN u32 exl2k_expert_column(const exl2k_expert_block &b)
{
    return (b.begin + threadIdx.x / (16 * M)) * 16 + threadIdx.x % 16;
}

/* Address of the residual of this thread's output. */
template <u32 M> EXL2K_FN u64 exl2k_expert_residual(const exl2k_expert_args &a, const exl2k_expert_block &b)
{
    u32 row = a.rows.first + exl2k_expert_row<M>();
    return a.residual + ((u64)row * a.residual_pitch + exl2k_expert_column<M>(b)) * 4;
}

template <u32 M>
EXL2K_FN exl2k_expert_output exl2k_expert_output_down(const exl2k_expert_args &a, const exl2k_expert_list &list,
                                                      const exl2k_expert_block &b)
{
    u32 strip = threadIdx.x / (16 * M), n = exl2k_expert_column<M>(b);
    exl2k_expert_output o = { EXL2K_EXPERT_NONE, 0, n, 0.0f, 0.0f };
    if (b.begin + strip < b.end && n < a.columns && exl2k_expert_row<M>() < list.rows) {
        o.strip = strip;
        o.first = a.next ? exl2k_load_f32(a.norm + n * 4) : 0.0f;
        o.second = exl2k_load_f32(exl2k_expert_residual<M>(a, b));
        if (EXL2K_STEER && a.added) {
            u32 row = a.rows.first + exl2k_expert_row<M>();
            o.second += exl2k_load_f32(a.added + ((u64)row * a.residual_pitch + n) * 4);
        }
        o.place = a.next && a.map ? exl2k_load_u16(a.map + n * 2) : n;
    }
    return o;
}

/* This thread's first output of a block. */
template <u32 M>
EXL2K_FN exl2k_expert_output exl2k_expert_output_of(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                                    const exl2k_expert_list &list, const exl2k_expert_block &b)
{
    return a.down ? exl2k_expert_output_down<M>(a, list, b)
                  : exl2k_expert_output_up<M>(a, s, list, b, b.begin + threadIdx.x / (16 * M));
}

/* Adds the weighted biases of the block's experts, of this thread's output, to those of preceding blocks. They have a
   sum of their own, so that its order does not depend on how experts are divided into blocks. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_biases(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                 const exl2k_expert_list &list, const exl2k_expert_block &b, f32 sum)
{
    u32 row = exl2k_expert_row<M>(), n = exl2k_expert_column<M>(b);
    bool exists = n < b.end * 16 && n < a.columns && row < list.rows;
#pragma unroll 4
    for (u32 run = 0; exists && run < b.runs; run++) {
        if (s.part[run].bias && exl2k_expert_chosen<M>(list, list.index[b.run + run], row)) {
            sum = fmaf(s.weight[run * 8 + row], exl2k_load_f32(s.part[run].bias + n * 4), sum);
        }
    }
    return sum;
}

/* The sum over the block's experts of this thread's output. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_add_down(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                   const exl2k_expert_list &list, const exl2k_expert_block &b, u32 strip, f32 total)
{
    u32 row = exl2k_expert_row<M>();
#pragma unroll 4
    for (u32 run = 0; run < b.runs; run++) {
        if (exl2k_expert_chosen<M>(list, list.index[b.run + run], row)) {
            total += exl2k_expert_total<M>(a, s, run, strip, threadIdx.x % 16, row);
        }
    }
    return total;
}

/* rho [M] in shared memory = 1 / sqrt(mean square + eps) of the preceding norm, for each row. */
template <u32 M> EXL2K_FN void exl2k_expert_rho(const exl2k_expert_args &a, const exl2k_expert_list &list, f32 *rho)
{
    u32 warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP;
    if (warp < exl2k_min(list.rows, M)) {
        u64 at = a.sums_before + (u64)(a.rows.first + warp) * a.slots_pitch * 4;
        f32 sum = 0.0f;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 slot = i * EXL2K_WARP + lane;
            sum += slot < a.slots ? exl2k_load_f32(at + slot * 4) : 0.0f;
        }
        sum = exl2k_warp_sum(sum);
        if (lane == 0) {
            rho[warp] = rsqrtf(fmaf(sum, a.inverse_hidden, a.eps));
        }
    }
    __syncthreads();
}

/* Stores the residual r + scale * total, and the next product's input. Returns the square of the new residual. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_store_down(const exl2k_expert_args &a, const exl2k_expert_block &b,
                                     const exl2k_expert_output &o, f32 total, const f32 *rho)
{
    f32 r = fmaf(total, a.scale, o.second);
    exl2k_store_f32(exl2k_expert_residual<M>(a, b), r);
    if (a.next) {
        u32 row = exl2k_expert_row<M>(), y = exl2k_f32_to_f16(exl2k_clamp_f16(r * o.first * rho[row]));
        exl2k_store_u16(a.next + ((u64)(a.rows.first + row) * a.next_pitch + o.place) * 2, y);
    }
    return r * r;
}

/* Adds the squares of a block to those of the CTA: squares [M] in shared memory, as registers are scarce; thread i has
   row i. scratch: [32]. */
template <u32 M> EXL2K_FN void exl2k_expert_squares(f32 square, f32 *squares, u32 strips, f32 *scratch)
{
    square = exl2k_half_warp_sum(square); /* of one row and strip */
    if (threadIdx.x % 16 == 0) {
        scratch[threadIdx.x / 16] = square;
    }
    __syncthreads();
    if (threadIdx.x < M) {
        f32 sum = squares[threadIdx.x];
        for (u32 strip = 0; strip < strips; strip++) {
            sum += scratch[strip * M + threadIdx.x];
        }
        squares[threadIdx.x] = sum;
    }
}

/* ---- the kernel ---- */

/* This CTA's share of the items: [begin, end). */
typedef struct exl2k_expert_share {
    u32 begin, end;
} exl2k_expert_share;

EXL2K_FN exl2k_expert_share exl2k_expert_share_of(const exl2k_expert_args &a, u32 used)
{
    u32 strips = exl2k_expert_strips(a), all = a.down ? strips : strips * used;
    u32 share = all / gridDim.x, more = all % gridDim.x, begin = blockIdx.x * share + exl2k_min(blockIdx.x, more);
    return exl2k_expert_share{ begin, begin + share + (blockIdx.x < more) };
}

/* The block that begins at item b.begin, of the runs from b.run on (down). */
EXL2K_FN void exl2k_expert_next_block(const exl2k_expert_args &a, const exl2k_expert_list &list, u32 last,
                                      exl2k_expert_block &b)
{
    u32 strips = exl2k_expert_strips(a);
    b.end = exl2k_min(b.begin + a.items, last);
    if (a.down) {
        b.runs = exl2k_min(a.runs, list.count - b.run);
        return;
    }
    b.run = exl2k_expert_divided(b.begin, strips);
    b.end = exl2k_min(b.end, (b.run + a.runs) * strips);
    b.runs = exl2k_expert_divided(b.end - 1, strips) - b.run + 1;
}

template <u32 M> EXL2K_FN void exl2k_expert_products(const exl2k_expert_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    __shared__ f32 scratch[EXL2K_EXPERT_THREADS / 16], squares[M], rho[M];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    exl2k_expert_shared s = exl2k_expert_divide<M>(a, exl2k_dynamic);
    exl2k_expert_stream t = exl2k_expert_ring(a, s, warp, lane);
    exl2k_expert_share share = exl2k_expert_share_of(a, a.rows.active); /* of one row */
    /* `up` lets `down` start after its own wait. So the router has ended when `down` starts, which reads the choice and
       copies weights before it waits for h. */
    if (!a.down) {
        exl2k_dependency_wait();
    }
    exl2k_dependency_release();
    bool waits = a.down;
    exl2k_expert_list list = exl2k_expert_list_make<M>(a.rows, s.list, EXL2K_EXPERT_THREADS);
    share = M == 1 ? share : exl2k_expert_share_of(a, list.count);
    u32 last = list.rows > 0 ? share.end : share.begin;
    u64 x = lane % 4 * 16;
    x += M == 1 ? 0 : (u64)exl2k_min(lane / 4, list.rows - 1) * a.x_pitch * 2;
    f32 total = 0.0f, biases = 0.0f;
    exl2k_expert_output output = { EXL2K_EXPERT_NONE, 0, 0, 0.0f, 0.0f };
    exl2k_expert_block b;
    b.run = 0;
    b.begin = share.begin;
    if (threadIdx.x < M) {
        squares[threadIdx.x] = 0.0f;
    }
#pragma unroll 1
    while (b.begin < last) {
        exl2k_expert_next_block(a, list, last, b);
        exl2k_expert_open<M>(a, s, list, b, warp, lane);
        exl2k_expert_begin(a, s, b, t, warp, lane);
        if (waits) {
            exl2k_dependency_wait();
            if (a.next) {
                exl2k_expert_rho<M>(a, list, rho);
            }
            waits = false;
        }
        /* One row: what results need is loaded while the weights are on their way. With eight rows there are not enough
           registers. */
        output = M == 1 ? exl2k_expert_output_of<M>(a, s, list, b) : output;
        biases = M == 1 && a.down ? exl2k_expert_biases<M>(a, s, list, b, biases) : biases;
        exl2k_expert_multiply<M>(a, s, b, t, x, warp, lane);
        __syncthreads();
        output = M == 1 ? output : exl2k_expert_output_of<M>(a, s, list, b);
        biases = M > 1 && a.down ? exl2k_expert_biases<M>(a, s, list, b, biases) : biases;
        if (!a.down) {
            exl2k_expert_store_up<M>(a, s, list, b, output);
            b.begin = b.end;
        } else {
            bool exists = output.strip != EXL2K_EXPERT_NONE;
            total = exists ? exl2k_expert_add_down<M>(a, s, list, b, output.strip, total) : 0.0f;
            b.run += b.runs;
            if (b.run == list.count) {
                f32 square = exists ? exl2k_expert_store_down<M>(a, b, output, total + biases, rho) : 0.0f;
                exl2k_expert_squares<M>(square, squares, b.end - b.begin, scratch);
                b.run = 0;
                b.begin = b.end;
                total = biases = 0.0f;
            }
        }
        __syncthreads();
    }
    if (waits) {
        exl2k_dependency_wait();
    }
    if (a.next && threadIdx.x < exl2k_min(list.rows, M)) {
        u64 sums = a.sums_out + (u64)(a.rows.first + threadIdx.x) * a.slots_pitch * 4;
        exl2k_store_f32(sums + blockIdx.x * 4, squares[threadIdx.x]);
    }
}

#endif
