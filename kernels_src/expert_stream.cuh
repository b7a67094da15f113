/* expert_stream.cuh: the blocks that a CTA of expert.cuh works on, and the rings through which warps stream weights.
   takes: base.cuh, expert_list.cuh.
   gives: exl2k_expert_shared with divide; exl2k_expert_block with open; exl2k_expert_place with find, next;
          exl2k_expert_stream with ring, begin, fill, step, wait.
   owns:  nothing; included by expert.cuh only. */
#ifndef EXL2K_EXPERT_STREAM_CUH
#define EXL2K_EXPERT_STREAM_CUH

#include "base.cuh"
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

static_assert(sizeof(exl2k_expert_part) == EXL2K_EXPERT_PART_BYTES, "the backend reserves memory for it");

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
    used += EXL2K_EXPERT_WARPS * 512;
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

/* x / a.unit, which is a power of 2. */
EXL2K_FN u32 exl2k_expert_by_unit(const exl2k_expert_args &a, u32 x) { return x >> (__ffs(a.unit) - 1); }

EXL2K_FN u32 exl2k_expert_units(const exl2k_expert_args &a, u32 chunks)
{
    return exl2k_expert_by_unit(a, chunks + a.unit - 1);
}

/* The expert's strips of a block. */
EXL2K_FN void exl2k_expert_span(const exl2k_expert_args &a, const exl2k_expert_block &b, u32 run, u32 *begin, u32 *end)
{
    u32 strips = exl2k_expert_strips(a), first = (b.run + run) * strips;
    *begin = a.down ? b.begin : exl2k_max(b.begin, first) - first;
    *end = a.down ? b.end : exl2k_min(b.end, first + strips) - first;
}

EXL2K_FN u64 exl2k_expert_address(u64 at)
{
    uint2 words = exl2k_load_constant2(at);
    return (u64)words.y << 32 | words.x;
}

/* Loads a part of the block and its chunk table; one warp calls it. */
EXL2K_FN void exl2k_expert_open_part(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                     const exl2k_expert_list &list, const exl2k_expert_block &b, u32 part, u32 lane)
{
    u32 run = a.parts == 2 ? part / 2 : part, own = part - run * a.parts, index = list.index[b.run + run], begin, end;
    u64 expert = a.experts + (u64)index * sizeof(exl2k_expert);
    u64 at = expert + (a.down ? (u32)sizeof(exl2k_matrix) : own * (u32)sizeof(exl2k_part));
    u64 table = (u64)(index * EXL2K_EXPERT_PARTS + (a.down ? 2 : own)) * a.table_chunks * sizeof(exl2k_chunk);
#pragma unroll 4
    for (u32 i = lane; i < 2 * a.chunks; i += EXL2K_WARP) {
        ((uint4 *)&s.tables[part * a.chunks])[i] = exl2k_load_constant4(a.tables + table + i * 16);
    }
    exl2k_expert_span(a, b, run, &begin, &end);
    exl2k_expert_part p;
    p.pitch = exl2k_load_constant(at + 24);
    p.chunks = exl2k_load_constant(at + 40);
    p.base = exl2k_expert_address(at) + (u64)begin * p.pitch;
    p.bias = exl2k_expert_address(at + 16);
    p.strips = end - begin;
    p.strip = begin;
    if (lane == 0) {
        s.part[part] = p;
    }
}

/* Loads the rows' weights of the block's experts. */
template <u32 M>
EXL2K_FN void exl2k_expert_open_weights(const exl2k_expert_args &a, const exl2k_expert_shared &s,
                                        const exl2k_expert_list &list, const exl2k_expert_block &b)
{
    u64 choice = a.rows.choice + (u64)a.rows.first * a.rows.active * 4;
    u64 weight = a.rows.weight + (u64)a.rows.first * a.rows.active * 4;
    /* The last warps come first: they have no part to load. */
    for (u32 i = EXL2K_EXPERT_THREADS - 1 - threadIdx.x; i < list.rows * a.rows.active; i += EXL2K_EXPERT_THREADS) {
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
}

/* Loads what the block needs to know of its experts; every thread calls it. */
template <u32 M>
EXL2K_FN void exl2k_expert_open(const exl2k_expert_args &a, const exl2k_expert_shared &s, const exl2k_expert_list &list,
                                exl2k_expert_block &b, u32 warp, u32 lane)
{
    u32 parts = b.runs * a.parts, before = 0;
#pragma unroll 1
    for (u32 part = warp; part < parts; part += EXL2K_EXPERT_WARPS) {
        exl2k_expert_open_part(a, s, list, b, part, lane);
    }
    exl2k_expert_open_weights<M>(a, s, list, b);
    __syncthreads();
    /* First units: every warp computes and stores the same ones, so that none waits for another. */
#pragma unroll 1
    for (u32 base = 0; base < parts; base += EXL2K_WARP) {
        u32 i = base + lane, own = 0;
        if (i < parts) {
            own = exl2k_expert_units(a, s.part[i].chunks) * s.part[i].strips;
        }
        u32 sum = own;
        for (u32 step = 1; step < EXL2K_WARP; step *= 2) {
            u32 other = __shfl_up_sync(EXL2K_ALL, sum, step);
            sum += lane >= step ? other : 0;
        }
        if (i < parts) {
            s.first[i] = before + sum - own;
        }
        before += __shfl_sync(EXL2K_ALL, sum, EXL2K_WARP - 1);
    }
    if (lane == 0) {
        s.first[parts] = before;
    }
    __syncwarp();
    b.units = before;
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
    u32 chunk = t.next + lane, unit = exl2k_expert_by_unit(a, chunk);
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

#if __CUDA_ARCH__ >= 900
/* Starts to copy this lane's chunk to shared memory. */
EXL2K_FN void exl2k_expert_copy(const exl2k_expert_stream &t, u32 to, u32 barrier)
{
    exl2k_barrier_expect(barrier, t.bytes);
    if (t.bytes > 0) {
        exl2k_copy_bulk(to, t.from, t.bytes, barrier, exl2k_evict_first());
    }
}
#endif

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
            exl2k_expert_copy(t, t.at, t.barriers + t.slot * 8);
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
    t.unit = exl2k_min(warp * b.each, b.units);
    t.chunks = (exl2k_min(t.unit + b.each, b.units) - t.unit) * a.unit;
    t.next = 0;
#if __CUDA_ARCH__ >= 900
    /* Each lane copies one chunk. */
    exl2k_expert_plan(a, s, b, t, lane);
    t.next = exl2k_min(a.stages, t.chunks);
    if (lane < t.next) {
        u32 slot = t.slot + lane;
        slot -= slot >= a.stages ? a.stages : 0;
        exl2k_expert_copy(t, t.ring + slot * a.slot_bytes, t.barriers + slot * 8);
    }
    __syncwarp();
#else
    u32 parity = t.parity;
#pragma unroll 1
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_expert_fill(a, s, b, t, lane);
        exl2k_expert_step(a, t);
    }
    t.parity = parity; /* the cursor is where it was */
#endif
}

#endif
