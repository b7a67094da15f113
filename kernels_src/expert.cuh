/* expert.cuh: the products of up to 8 rows with the experts that they have chosen.
   takes: base.cuh, unpack.cuh, gemv_chunk.cuh, expert_args.h.
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
#include "expert_list.cuh"

/* ---- shared memory ---- */

/* One part of the expert of a run. */
typedef struct exl2k_expert_part {
    u64 base; /* the first strip of the block */
    u64 bias;
    u32 pitch, chunks;
    u32 strips; /* in the block */
    u32 strip;  /* first one in the part */
} exl2k_expert_part;

typedef struct exl2k_expert_shared {
    u32 rings, sums, inputs, barriers; /* addresses */
    exl2k_chunk *tables;     /* [runs, parts, chunks] */
    exl2k_expert_part *part; /* [runs, parts] */
    u32 *first;              /* [runs * parts + 1] first unit of each */
    f32 *weight;             /* [runs, 8] of the rows */
    u32 *list;
} exl2k_expert_shared;

template <u32 M> EXL2K_FN constexpr u32 exl2k_expert_sum_bytes(void) { return M == 1 ? 64 : 512; }

template <u32 M> EXL2K_FN exl2k_expert_shared exl2k_expert_divide(const exl2k_expert_args &a, uint4 *memory)
{
    exl2k_expert_shared s;
    u32 parts = a.runs * a.parts, at = exl2k_shared(memory);
    s.rings = at;
    u32 used = EXL2K_EXPERT_WARPS * a.stages * a.slot_bytes;
    s.sums = at + used;
    used += a.units * exl2k_expert_sum_bytes<M>();
    s.inputs = at + used;
    used += EXL2K_EXPERT_WARPS * 256;
    s.barriers = at + used;
    used += EXL2K_EXPERT_WARPS * EXL2K_EXPERT_STAGES_MAX * 8;
    unsigned char *bytes = (unsigned char *)memory;
    s.tables = (exl2k_chunk *)(bytes + used);
    used += parts * a.chunks * sizeof(exl2k_chunk);
    s.part = (exl2k_expert_part *)(bytes + used);
    used += parts * sizeof(exl2k_expert_part);
    s.weight = (f32 *)(bytes + used);
    used += a.runs * 32;
    s.first = (u32 *)(bytes + used);
    s.list = s.first + parts + 1;
    return s;
}

/* ---- blocks ---- */

/* Experts in use [run, run + runs), and items [begin, end): of all experts one after the other (up), or of each expert
   (down). An item is a pair of strips, or a strip. */
typedef struct exl2k_expert_block {
    u32 run, runs, begin, end;
    u32 units, each; /* each: units of a warp, but the last ones have fewer */
} exl2k_expert_block;

/* Strips of a part that hold real columns. */
EXL2K_FN u32 exl2k_expert_strips(const exl2k_expert_args &a) { return (a.columns + 15) / 16; }

EXL2K_FN u32 exl2k_expert_units(const exl2k_expert_args &a, u32 chunks) { return (chunks + a.unit - 1) / a.unit; }

/* The expert's strips of a block. */
EXL2K_FN void exl2k_expert_span(const exl2k_expert_args &a, const exl2k_expert_block &b, u32 run, u32 *begin, u32 *end)
{
    u32 strips = exl2k_expert_strips(a), first = (b.run + run) * strips;
    *begin = a.down ? b.begin : exl2k_max(b.begin, first) - first;
    *end = a.down ? b.end : exl2k_min(b.end, first + strips) - first;
}

/* Loads what the block needs to know of its experts; every thread calls it. */
template <u32 M>
EXL2K_FN void exl2k_expert_open(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_list &list,
                                exl2k_expert_block &b)
{
    u32 parts = b.runs * a.parts;
    for (u32 i = threadIdx.x; i < parts * a.chunks * 2; i += EXL2K_EXPERT_THREADS) {
        u32 piece = i % 2, entry = i / 2 % a.chunks, part = i / 2 / a.chunks, run = part / a.parts;
        u32 table = list.index[b.run + run] * EXL2K_EXPERT_PARTS + (a.down ? 2 : part - run * a.parts);
        u64 at = a.tables + ((u64)table * a.table_chunks + entry) * sizeof(exl2k_chunk) + piece * 16;
        ((uint4 *)s.tables)[i] = exl2k_load_constant4(at);
    }
    for (u32 i = threadIdx.x; i < parts; i += EXL2K_EXPERT_THREADS) {
        u32 run = i / a.parts, begin, end;
        u64 expert = a.experts + (u64)list.index[b.run + run] * sizeof(exl2k_expert);
        u64 at = expert + (a.down ? (u32)sizeof(exl2k_matrix) : (i - run * a.parts) * (u32)sizeof(exl2k_part));
        exl2k_expert_span(a, b, run, &begin, &end);
        uint2 base = exl2k_load_constant2(at), bias = exl2k_load_constant2(at + 16);
        exl2k_expert_part p;
        p.pitch = exl2k_load_constant(at + 24);
        p.chunks = exl2k_load_constant(at + 40);
        p.base = ((u64)base.y << 32 | base.x) + (u64)begin * p.pitch;
        p.bias = (u64)bias.y << 32 | bias.x;
        p.strips = end - begin;
        p.strip = begin;
        s.part[i] = p;
    }
    u64 choice = a.rows.choice + (u64)a.rows.first * a.rows.active * 4;
    u64 weight = a.rows.weight + (u64)a.rows.first * a.rows.active * 4;
    for (u32 i = threadIdx.x; i < list.rows * a.rows.active; i += EXL2K_EXPERT_THREADS) {
        u32 expert = M == 1 ? 0 : exl2k_load(choice + i * 4), run = i - b.run;
        if (M > 1) { /* the run whose expert it is */
            u32 low = b.run, high = b.run + b.runs;
            while (low < high) {
                u32 middle = (low + high) / 2;
                low = list.index[middle] < expert ? middle + 1 : low;
                high = list.index[middle] < expert ? high : middle;
            }
            run = low < b.run + b.runs && list.index[low] == expert ? low - b.run : ~0u;
        }
        if (run < b.runs) {
            s.weight[run * 8 + (M == 1 ? 0 : i / a.rows.active)] = exl2k_load_f32(weight + i * 4);
        }
    }
    __syncthreads();
    /* First units. */
    if (threadIdx.x < EXL2K_WARP) {
        u32 before = 0;
        for (u32 base = 0; base < parts; base += EXL2K_WARP) {
            u32 i = base + threadIdx.x, own = 0;
            if (i < parts) {
                own = exl2k_expert_units(a, s.part[i].chunks) * s.part[i].strips;
            }
            u32 sum = own;
            for (u32 step = 1; step < EXL2K_WARP; step *= 2) {
                u32 other = __shfl_up_sync(EXL2K_ALL, sum, step);
                sum += threadIdx.x >= step ? other : 0;
            }
            if (i < parts) {
                s.first[i] = before + sum - own;
            }
            before += __shfl_sync(EXL2K_ALL, sum, EXL2K_WARP - 1);
        }
        if (threadIdx.x == 0) {
            s.first[parts] = before;
        }
    }
    __syncthreads();
    b.units = s.first[parts];
    b.each = (b.units + EXL2K_EXPERT_WARPS - 1) / EXL2K_EXPERT_WARPS;
}

/* ---- a warp's units ---- */

/* floor(x / y) for x < 2^20. */
EXL2K_FN u32 exl2k_expert_divided(u32 x, u32 y) { return (u32)(((f32)x + 0.5f) * exl2k_reciprocal((f32)y)); }

/* A chunk of a unit. */
typedef struct exl2k_expert_place {
    u32 part;   /* of all runs */
    u32 strip;  /* in the block */
    u32 first;  /* first chunk of the unit */
    u32 chunk;  /* the chunk; it may lie beyond the last one, and is then empty */
} exl2k_expert_place;

/* The place of a unit's first chunk. */
EXL2K_FN exl2k_expert_place exl2k_expert_find(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                              const exl2k_expert_block &b, u32 unit)
{
    u32 low = 0, high = b.runs * a.parts; /* first[low] <= unit < first[high] */
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        low = s.first[middle] <= unit ? middle : low;
        high = s.first[middle] <= unit ? high : middle;
    }
    u32 left = unit - s.first[low], strips = s.part[low].strips, index = exl2k_expert_divided(left, strips);
    exl2k_expert_place p;
    p.part = low;
    p.strip = left - index * strips;
    p.first = p.chunk = index * a.unit;
    return p;
}

/* Moves to the next chunk of the warp's units. */
EXL2K_FN void exl2k_expert_next(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_block &b,
                                exl2k_expert_place &p)
{
    if (++p.chunk < p.first + a.unit) {
        return;
    }
    if (++p.strip == s.part[p.part].strips) {
        p.strip = 0;
        p.first += a.unit;
        while (p.first >= s.part[p.part].chunks && p.part + 1 < b.runs * a.parts) {
            p.first = 0;
            p.part++;
        }
    }
    p.chunk = p.first;
}

/* The ring of a warp. Lane i holds the address and the bytes of chunk 32 n + i of the warp's units. */
typedef struct exl2k_expert_stream {
    u64 from;
    u32 bytes;
    u32 unit, chunks;  /* first unit of the warp, number of its chunks in the block, empty ones included */
    u32 next;          /* the next chunk to copy */
    u32 ring, barriers, at, slot, parity; /* at, slot: the slot that is read next, and then filled again */
} exl2k_expert_stream;

EXL2K_FN void exl2k_expert_plan(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_block &b,
                                exl2k_expert_stream &t, u32 lane)
{
    u32 chunk = t.next + lane, unit = exl2k_expert_divided(chunk, a.unit);
    t.bytes = 0;
    t.from = 0;
    if (chunk < t.chunks) {
        exl2k_expert_place p = exl2k_expert_find(a, s, b, t.unit + unit);
        p.chunk += chunk - unit * a.unit;
        const exl2k_expert_part &part = s.part[p.part];
        if (p.chunk < part.chunks) {
            const exl2k_chunk &entry = s.tables[p.part * a.chunks + p.chunk];
            t.from = part.base + (u64)p.strip * part.pitch + (u64)entry.offset16 * 16;
            t.bytes = entry.bytes16 * 16;
        }
    }
}

/* Starts to copy the next chunk, if there is one, into the slot at the cursor. */
EXL2K_FN void exl2k_expert_fill(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_block &b,
                                exl2k_expert_stream &t, u32 lane)
{
    if (t.next < t.chunks) {
        u32 from = t.next % EXL2K_WARP;
        if (from == 0) {
            exl2k_expert_plan(a, s, b, t, lane);
        }
#if __CUDA_ARCH__ >= 900
        if (lane == from) {
            u32 barrier = t.barriers + t.slot * 8;
            exl2k_barrier_expect(barrier, t.bytes);
            if (t.bytes > 0) {
                exl2k_copy_bulk(t.at, t.from, t.bytes, barrier, exl2k_evict_first());
            }
        }
#else
        u32 bytes = __shfl_sync(EXL2K_ALL, t.bytes, from);
        u64 at = (u64)__shfl_sync(EXL2K_ALL, (u32)(t.from >> 32), from) << 32
                 | __shfl_sync(EXL2K_ALL, (u32)t.from, from);
        for (u32 i = lane * 16; i < bytes; i += 512) {
            exl2k_copy16_once(t.at + i, at + i);
        }
#endif
        t.next++;
    }
#if __CUDA_ARCH__ < 900
    exl2k_copy_commit();
#endif
    __syncwarp();
}

EXL2K_FN void exl2k_expert_step(const exl2k_expert_args &a, exl2k_expert_stream &t)
{
    t.at += a.slot_bytes;
    if (++t.slot == a.stages) {
        t.slot = 0;
        t.at = t.ring;
        t.parity ^= 1;
    }
}

/* Waits for the chunk in the slot at the cursor. */
EXL2K_FN void exl2k_expert_wait(const exl2k_expert_args &a, const exl2k_expert_stream &t)
{
#if __CUDA_ARCH__ >= 900
    exl2k_barrier_wait(t.barriers + t.slot * 8, t.parity);
#else
    if (a.stages >= 4) {
        exl2k_copy_wait<3>();
    } else if (a.stages == 3) {
        exl2k_copy_wait<2>();
    } else if (a.stages == 2) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<0>();
    }
    __syncwarp();
#endif
}

EXL2K_FN exl2k_expert_stream exl2k_expert_ring(const exl2k_expert_args &a, const exl2k_expert_shared &s, u32 warp,
                                               u32 lane)
{
    exl2k_expert_stream t;
    t.ring = t.at = s.rings + warp * a.stages * a.slot_bytes;
    t.barriers = s.barriers + warp * EXL2K_EXPERT_STAGES_MAX * 8;
    t.slot = t.parity = 0;
    t.unit = t.chunks = t.next = t.bytes = 0;
    t.from = 0;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        for (u32 i = 0; i < EXL2K_EXPERT_STAGES_MAX; i++) {
            exl2k_barrier_init(t.barriers + i * 8, 1);
        }
        exl2k_barrier_init_fence();
    }
    __syncwarp();
#else
    (void)lane;
#endif
    return t;
}

/* Begins the warp's units of a block, and fills the ring. */
EXL2K_FN void exl2k_expert_begin(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_block &b,
                                 exl2k_expert_stream &t, u32 warp, u32 lane)
{
    u32 parity = t.parity;
    t.unit = exl2k_min(warp * b.each, b.units);
    t.chunks = (exl2k_min(t.unit + b.each, b.units) - t.unit) * a.unit;
    t.next = 0;
#pragma unroll 1
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_expert_fill(a, s, b, t, lane);
        exl2k_expert_step(a, t);
    }
    t.parity = parity; /* the cursor is where it was */
}

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
    u32 inputs_at = s.inputs + warp * 256, known = ~0u; /* known: key of the operands */
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
                exl2k_load_inputs(inputs, rows + entry.row * 64, task, inputs_at, lane);
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
                f32 out[4];
                exl2k_chunks_eight<M>(out, t.at, inputs, task, lane);
                sum[0] += out[0];
                sum[1] += out[1];
                sum[2] += out[2];
                sum[3] += out[3];
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

/* h of the block's pairs of strips. */
template <u32 M>
EXL2K_FN void exl2k_expert_store_up(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                    const exl2k_expert_list &list, const exl2k_expert_block &b)
{
    u32 column = threadIdx.x % 16, row = threadIdx.x / 16 % M, strips = exl2k_expert_strips(a);
#pragma unroll 1
    for (u32 item = b.begin + threadIdx.x / (16 * M); item < b.end; item += EXL2K_EXPERT_THREADS / (16 * M)) {
        u32 used = item / strips, run = used - b.run, n = (item - used * strips) * 16 + column;
        u32 expert = list.index[used], part = run * a.parts;
        if (n >= a.columns || row >= list.rows || !exl2k_expert_chosen<M>(list, expert, row)) {
            continue;
        }
        u32 strip = item - used * strips - s.part[part].strip;
        f32 g = exl2k_expert_total<M>(a, s, part, strip, column, row) + exl2k_expert_bias(s.part[part].bias, n);
        f32 u = 1.0f, weight = s.weight[run * 8 + row];
        if (a.parts == 2) {
            u = exl2k_expert_total<M>(a, s, part + 1, strip, column, row) + exl2k_expert_bias(s.part[part + 1].bias, n);
        }
        uint2 map = exl2k_load_constant2(a.experts + (u64)expert * sizeof(exl2k_expert) + 2 * sizeof(exl2k_matrix) + 8);
        u64 map_at = (u64)map.y << 32 | map.x;
        u32 index = map_at ? exl2k_load_u16(map_at + n * 2) : n;
        f32 h = exl2k_gated(a.act, a.act_limit, g, u) * weight;
        exl2k_store_u16(a.out + ((u64)(used * EXL2K_EXPERT_ROWS + row) * a.out_pitch + index) * 2,
                        exl2k_f32_to_f16(exl2k_clamp_f16(h)));
    }
}

/* The sum over the block's experts of this thread's output. Called with one output for each thread. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_add_down(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                   const exl2k_expert_list &list, const exl2k_expert_block &b, f32 total)
{
    u32 column = threadIdx.x % 16, row = threadIdx.x / 16 % M, strip = threadIdx.x / (16 * M);
    u32 n = (b.begin + strip) * 16 + column;
    if (strip >= b.end - b.begin || n >= a.columns || row >= list.rows) {
        return total;
    }
#pragma unroll 1
    for (u32 run = 0; run < b.runs; run++) {
        if (exl2k_expert_chosen<M>(list, list.index[b.run + run], row)) {
            f32 v = exl2k_expert_total<M>(a, s, run, strip, column, row), weight = s.weight[run * 8 + row];
            v = s.part[run].bias ? fmaf(weight, exl2k_expert_bias(s.part[run].bias, n), v) : v;
            total += weight == weight ? v : weight; /* h has lost a NaN */
        }
    }
    return total;
}

/* 1 / sqrt(mean square + eps) of the preceding norm, for this thread's row; the same in all of its threads. */
template <u32 M> EXL2K_FN f32 exl2k_expert_rho(const exl2k_expert_args &a, const exl2k_expert_list &list)
{
    __shared__ f32 rho[M];
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
    u32 row = threadIdx.x / 16 % M;
    return row < list.rows ? rho[row] : 0.0f;
}

/* This thread's output of the block: its residual. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_residual(const exl2k_expert_args &a, const exl2k_expert_list &list, u32 begin, u32 end)
{
    u32 column = threadIdx.x % 16, row = threadIdx.x / 16 % M, strip = begin + threadIdx.x / (16 * M);
    u32 n = strip * 16 + column;
    bool is_real = strip < end && n < a.columns && row < list.rows;
    return is_real ? exl2k_load_f32(a.residual + ((u64)(a.rows.first + row) * a.residual_pitch + n) * 4) : 0.0f;
}

/* Stores the residual r + scale * total, and the next product's input. Returns the square of the new residual. */
template <u32 M>
EXL2K_FN f32 exl2k_expert_store_down(const exl2k_expert_args &a, const exl2k_expert_list &list, u32 begin, u32 end,
                                     f32 r, f32 total, f32 rho)
{
    u32 column = threadIdx.x % 16, row = threadIdx.x / 16 % M, strip = begin + threadIdx.x / (16 * M);
    u32 n = strip * 16 + column, own = a.rows.first + row;
    if (strip >= end || n >= a.columns || row >= list.rows) {
        return 0.0f;
    }
    r = fmaf(total, a.scale, r);
    exl2k_store_f32(a.residual + ((u64)own * a.residual_pitch + n) * 4, r);
    if (a.next) {
        u32 index = a.map ? exl2k_load_u16(a.map + n * 2) : n;
        u32 y = exl2k_f32_to_f16(exl2k_clamp_f16(r * exl2k_load_f32(a.norm + n * 4) * rho));
        exl2k_store_u16(a.next + ((u64)own * a.next_pitch + index) * 2, y);
    }
    return r * r;
}

/* Adds the squares of a block to those of the CTA, whose rows are in `squares` [M]; at the end thread i < M has row
   i's. scratch: [32]. */
template <u32 M> EXL2K_FN f32 exl2k_expert_squares(f32 square, f32 sum, u32 strips, f32 *scratch)
{
    square = exl2k_half_warp_sum(square); /* of one row and strip */
    if (threadIdx.x % 16 == 0) {
        scratch[threadIdx.x / 16] = square;
    }
    __syncthreads();
    for (u32 strip = 0; threadIdx.x < M && strip < strips; strip++) {
        sum += scratch[strip * M + threadIdx.x];
    }
    return sum;
}

/* ---- the kernel ---- */

template <u32 M> EXL2K_FN void exl2k_expert_products(const exl2k_expert_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    exl2k_expert_shared s = exl2k_expert_divide<M>(a, exl2k_dynamic);
    exl2k_expert_stream t = exl2k_expert_ring(a, s, warp, lane);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    exl2k_expert_list list = exl2k_expert_list_make<M>(a.rows, s.list, EXL2K_EXPERT_THREADS);
    if (list.rows == 0) {
        return;
    }
    /* This CTA's share of the items. */
    u32 strips = exl2k_expert_strips(a), all = a.down ? strips : strips * list.count;
    u32 share = all / gridDim.x, more = all % gridDim.x;
    u32 begin = blockIdx.x * share + exl2k_min(blockIdx.x, more), last = begin + share + (blockIdx.x < more);
    u64 x = lane % 4 * 16;
    x += M == 1 ? 0 : (u64)exl2k_min(lane / 4, list.rows - 1) * a.x_pitch * 2;
    __shared__ f32 scratch[EXL2K_EXPERT_THREADS / 16];
    f32 total = 0.0f, squares = 0.0f, rho = a.next ? exl2k_expert_rho<M>(a, list) : 0.0f, residual = 0.0f;
    exl2k_expert_block b;
    b.run = 0;
    b.begin = begin;
#pragma unroll 1
    while (b.begin < last) {
        /* The next block. */
        b.end = exl2k_min(b.begin + a.items, last);
        if (!a.down) {
            b.run = b.begin / strips;
            b.end = exl2k_min(b.end, (b.run + a.runs) * strips);
        }
        b.runs = a.down ? exl2k_min(a.runs, list.count - b.run) : (b.end - 1) / strips - b.run + 1;
        exl2k_expert_open<M>(a, s, list, b);
        exl2k_expert_begin(a, s, b, t, warp, lane);
        if (a.down && b.run == 0) {
            residual = exl2k_expert_residual<M>(a, list, b.begin, b.end);
        }
        exl2k_expert_multiply<M>(a, s, b, t, x, warp, lane);
        __syncthreads();
        if (!a.down) {
            exl2k_expert_store_up<M>(a, s, list, b);
            b.begin = b.end;
        } else {
            total = exl2k_expert_add_down<M>(a, s, list, b, total);
            b.run += b.runs;
            if (b.run == list.count) {
                f32 square = exl2k_expert_store_down<M>(a, list, b.begin, b.end, residual, total, rho);
                squares = exl2k_expert_squares<M>(square, squares, b.end - b.begin, scratch);
                b.run = 0;
                b.begin = b.end;
                total = 0.0f;
            }
        }
        __syncthreads();
    }
    if (a.next && threadIdx.x < exl2k_min(list.rows, M)) {
        u64 sums = a.sums_out + (u64)(a.rows.first + threadIdx.x) * a.slots_pitch * 4;
        exl2k_store_f32(sums + blockIdx.x * 4, squares);
    }
}

#endif
