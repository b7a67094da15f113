/* gemv_stream.cuh: what a warp of a decode product works on: strips, chunks, and the ring that brings them.
   takes: base.cuh, gemv_args.h; EXL2K_BULK (default: from sm_90 on): copies by the bulk engine.
   gives: exl2k_place, exl2k_span, exl2k_stream, _open, _refill, _wait, _step.
   owns:  nothing; included by gemv.cuh only.
   next:  gemv_chunk.cuh */
#ifndef EXL2K_GEMV_STREAM_CUH
#define EXL2K_GEMV_STREAM_CUH

#include "base.cuh"
#include "gemv_args.h"

#ifndef EXL2K_BULK
#define EXL2K_BULK (__CUDA_ARCH__ >= 900)
#endif

/* ---- which strips ---- */

/* Strips [begin, end); interleaved: pairs of them. */
typedef struct exl2k_span { u32 begin, end; } exl2k_span;

EXL2K_FN exl2k_span exl2k_strips_of_cta(const exl2k_gemv_args &a)
{
    u32 c = blockIdx.x, begin = c * a.strips_per_cta + exl2k_min(c, a.ctas_with_more), end = begin + a.strips_per_cta + (c < a.ctas_with_more);
    return exl2k_span{ begin, end };
}

/* The block that begins with strip `begin`; begin == end: there is none. */
EXL2K_FN exl2k_span exl2k_block_at(const exl2k_gemv_args &a, u32 begin)
{
    return exl2k_span{ begin, exl2k_min(begin + a.block, exl2k_strips_of_cta(a).end) };
}

/* Those of a part; end <= begin: none. */
EXL2K_FN exl2k_span exl2k_strips_of_part(const exl2k_part &p, exl2k_span all)
{
    return exl2k_span{ exl2k_max(all.begin, p.first), exl2k_min(all.end, p.first + p.strips) };
}

/* `groups` groups of warps share out the strips of a block; a group has one warp for each slice. group >= 16: a warp
   without work. slot: of the partial sums of a strip. */
typedef struct exl2k_place { u32 slice, slot, group, groups, lane, warp; } exl2k_place;

/* slices_inverse = 256 / slices + 1 divides 0..16 by the slices. */
EXL2K_FN exl2k_place exl2k_place_of_warp(const exl2k_gemv_args &a)
{
    exl2k_place p;
    p.lane = threadIdx.x % EXL2K_WARP;
    p.warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    p.group = p.warp * a.slices_inverse >> 8;
    p.groups = EXL2K_GEMV_WARPS * a.slices_inverse >> 8;
    p.slice = p.slot = p.warp - p.group * a.matrix.slices;
    if (p.group >= p.groups) { /* the warps are no multiple of the slices */
        p.group = 0xFFFF;
    }
    return p;
}

/* ---- which part of them ---- */

/* A piece: the slices of a part, or its chunks that are left. */
EXL2K_FN u32 exl2k_pieces(const exl2k_matrix &m) { return m.parts << m.rest; }

/* The part of a strip; of a pair: the first. */
EXL2K_FN u32 exl2k_part_at(const exl2k_matrix &m, u32 strip) { return (strip >= m.second) + (strip >= m.third); }

EXL2K_FN exl2k_place exl2k_place_in_piece(const exl2k_matrix &m, const exl2k_place &place, u32 piece)
{
    exl2k_place p = place;
    if (piece & m.rest) {
        p.slice = EXL2K_SLICES_MAX;
        p.slot = m.slices;
        p.group = place.warp;
        p.groups = EXL2K_GEMV_WARPS;
    }
    return p;
}

/* ---- the stream of chunks into the ring of a warp ---- */

/* A job fills one slot of the ring: one chunk of the warp's slice of a part, of two strips if there is room for two
   (side 2); of an odd number the first comes alone, so that it is there sooner. Lane i knows job 32 n + i, and copies
   it. The ring is full from the start, and a slot is filled again when it has been read: one cursor serves both. */
typedef struct exl2k_stream {
    u64 from;         /* the lane's job: chunk of its first strip; bytes of it, 0: no job */
    u32 bytes, hop;   /* hop: from its first strip to the second; 0: one strip */
    uint2 late;       /* first words of the table entry of a chunk that exl2k_slice does not have; else 0 */
    u32 job;          /* the next */
    u32 ring, barriers;
    u32 at;           /* the cursor: slot and where it is */
    u32 slot, parity;
} exl2k_stream;

/* floor(a / b), a < 2^20; b 0: anything. */
EXL2K_FN u32 exl2k_divide(u32 a, u32 b) { return (u32)(((f32)a + 0.5f) * exl2k_reciprocal((f32)b)); }

/* Strips that the warp's group has of these. */
EXL2K_FN u32 exl2k_own_strips(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_span strips)
{
    u32 begin = strips.begin + place.group + 1, over = exl2k_max(strips.end + place.groups, begin) - begin;
    return place.slice == EXL2K_SLICES_MAX ? over / EXL2K_GEMV_WARPS : over * a.groups_inverse >> 16;
}

/* Two strips fit a slot. Eight rows: never, as registers are few. */
template <u32 M> EXL2K_FN bool exl2k_by_twos(const exl2k_gemv_args &a) { return M == 1 && a.slot_strips == 2; }

/* The next job has two of the `left` strips. */
template <u32 M> EXL2K_FN bool exl2k_job_has_two(const exl2k_gemv_args &a, u32 left)
{
    return exl2k_by_twos<M>(a) && left % 2 == 0;
}

/* Strips of the first `turns` jobs of a chunk. */
template <u32 M> EXL2K_FN u32 exl2k_strips_of_jobs(const exl2k_gemv_args &a, u32 own, u32 turns)
{
    return exl2k_by_twos<M>(a) ? 2 * turns - (turns > 0 ? own % 2 : 0) : turns;
}

/* What the warp has of a piece in a block. */
typedef struct exl2k_run {
    exl2k_place in;
    u32 piece, part;
    u32 begin; /* of the part's strips in the block */
    u32 own;   /* strips of the warp; 0: none */
} exl2k_run;

EXL2K_FN exl2k_run exl2k_run_of(const exl2k_gemv_args &a, const exl2k_place &place, u32 piece, exl2k_span block)
{
    exl2k_run r;
    r.piece = piece;
    r.part = piece >> a.matrix.rest;
    r.in = exl2k_place_in_piece(a.matrix, place, piece);
    exl2k_span strips = exl2k_strips_of_part(a.matrix.part[r.part], block);
    r.begin = strips.begin;
    r.own = exl2k_own_strips(a, r.in, strips);
    return r;
}

/* Of the first piece of the part where the block begins. */
EXL2K_FN exl2k_run exl2k_run_first(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_span block)
{
    return exl2k_run_of(a, place, exl2k_part_at(a.matrix, block.begin) << a.matrix.rest, block);
}

/* The lane's of the jobs from s.job on. Nothing waits for the table. */
template <u32 M>
EXL2K_FN void exl2k_stream_plan(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    const exl2k_matrix &m = a.matrix;
    exl2k_span all = exl2k_strips_of_cta(a);
    u32 left = s.job + place.lane, seen = 0;
    s.from = 0;
    s.bytes = s.hop = s.late.x = s.late.y = 0;
#pragma unroll 1
    for (u32 begin = all.begin; begin < all.end && seen < s.job + EXL2K_WARP; begin += a.block) {
#pragma unroll 1
        for (u32 piece = 0; piece < exl2k_pieces(m); piece++) {
            exl2k_run r = exl2k_run_of(a, place, piece, exl2k_span{ begin, exl2k_min(begin + a.block, all.end) });
            const exl2k_part &p = m.part[r.part];
            const exl2k_slice &share = p.slice[r.in.slice];
            u32 turns = exl2k_by_twos<M>(a) ? (r.own + 1) / 2 : r.own, jobs = turns * share.count;
            seen += jobs;
            if (left < jobs) {
                u32 index = exl2k_divide(left, turns), turn = left - index * turns;
                u32 place16 = share.offset16 + exl2k_dot4(share.sizes, 0x01010101u & ((1u << 8 * (index & 3)) - 1));
                s.bytes = (share.sizes >> 8 * (index & 3) & 255) * 16;
                if (index > 3) {
                    s.late = exl2k_load_constant2(p.chunks + (share.chunk + index) * sizeof(exl2k_chunk));
                    place16 = 0;
                }
                u32 done = exl2k_strips_of_jobs<M>(a, r.own, turn);
                s.from = p.base + (u64)(r.begin - p.first + r.in.group + done * r.in.groups) * p.pitch + place16 * 16;
                s.hop = exl2k_job_has_two<M>(a, r.own - done) ? r.in.groups * p.pitch : 0;
                left = ~0u;
            } else {
                left -= jobs;
            }
        }
    }
}

/* Takes over what the table says: before the first job of a chunk that is not among the first four of its slice. */
EXL2K_FN void exl2k_stream_settle(exl2k_stream &s)
{
    s.from += (u64)s.late.x * 16;
    s.bytes = s.late.y > 0 ? (s.late.y >> 16) * 16 : s.bytes;
}

#if EXL2K_BULK
/* The lane's job, into slot `slot`, which is at `to`. */
EXL2K_FN void exl2k_stream_copy(const exl2k_stream &s, const exl2k_gemv_args &a, u32 to, u32 slot)
{
    u32 barrier = s.barriers + slot * 8;
    exl2k_barrier_expect(barrier, s.hop > 0 ? 2 * s.bytes : s.bytes);
    exl2k_copy_bulk(to, s.from, s.bytes, barrier, exl2k_evict_first());
    if (s.hop > 0) {
        exl2k_copy_bulk(to + a.slot_bytes, s.from + s.hop, s.bytes, barrier, exl2k_evict_first());
    }
}
#endif

/* Copies the next chunks into the slot at the cursor. */
EXL2K_FN void exl2k_stream_fill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    u32 from = s.job++ % EXL2K_WARP;
#if EXL2K_BULK
    if (place.lane == from && s.bytes > 0) {
        exl2k_stream_copy(s, a, s.at, s.slot);
    }
#else
    u32 bytes = __shfl_sync(EXL2K_ALL, s.bytes, from), hop = __shfl_sync(EXL2K_ALL, s.hop, from);
    u64 at = (u64)__shfl_sync(EXL2K_ALL, (u32)(s.from >> 32), from) << 32 | __shfl_sync(EXL2K_ALL, (u32)s.from, from);
    for (u32 i = place.lane * 16; i < bytes; i += 512) {
        exl2k_copy16_once(s.at + i, at + i);
        if (hop > 0) {
            exl2k_copy16_once(s.at + a.slot_bytes + i, at + hop + i);
        }
    }
    exl2k_copy_commit();
#endif
    __syncwarp();
}

/* The same while the kernel runs. */
template <u32 M>
EXL2K_FN void exl2k_stream_refill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    exl2k_stream_fill(s, a, place);
    if (s.job % EXL2K_WARP == 0) {
        exl2k_stream_plan<M>(s, a, place);
        exl2k_stream_settle(s);
    }
}

/* Moves the cursor to the next slot. */
EXL2K_FN void exl2k_stream_step(exl2k_stream &s, const exl2k_gemv_args &a)
{
    s.at += a.slot_strips * a.slot_bytes;
    if (++s.slot == a.stages) {
        s.slot = 0;
        s.at = s.ring;
        s.parity ^= 1;
    }
}

/* Until the slot at the cursor is there, for every lane. */
EXL2K_FN void exl2k_stream_wait(const exl2k_stream &s, const exl2k_gemv_args &a)
{
#if EXL2K_BULK
    exl2k_barrier_wait(s.barriers + s.slot * 8, s.parity);
#else
    if (a.stages >= 4) { /* as many groups are under way as there are stages */
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

/* Job 0, if it is of this run, before all else is known: copies of all warps hide the rest of the beginning. Returns
   whether it is under way. */
template <u32 M>
EXL2K_FN bool exl2k_stream_first(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place,
                                 const exl2k_run &r)
{
#if EXL2K_BULK
    const exl2k_part &p = a.matrix.part[r.part];
    const exl2k_slice &share = p.slice[r.in.slice];
    if (r.own == 0 || share.count == 0) {
        return false;
    }
    if (place.lane == 0) {
        s.from = p.base + (u64)(r.begin - p.first + r.in.group) * p.pitch + share.offset16 * 16;
        s.bytes = (share.sizes & 255) * 16;
        s.hop = exl2k_job_has_two<M>(a, r.own) ? r.in.groups * p.pitch : 0;
        exl2k_stream_copy(s, a, s.at, 0);
    }
    return true;
#else
    return false;
#endif
}

/* All stages under way. */
template <u32 M>
EXL2K_FN exl2k_stream exl2k_stream_open(const exl2k_gemv_args &a, const exl2k_place &place, const exl2k_run &run,
                                        u32 shared, u32 small)
{
    exl2k_stream s;
    s.ring = s.at = shared + place.warp * a.stages * a.slot_strips * a.slot_bytes;
    s.barriers = small + place.warp * 64;
    s.slot = s.parity = s.job = 0;
#if EXL2K_BULK
    if (place.lane == 0) {
        for (u32 i = 0; i < EXL2K_GEMV_STAGES_MAX; i++) {
            exl2k_barrier_init(s.barriers + i * 8, 1);
        }
        exl2k_barrier_init_fence();
    }
    __syncwarp(); /* the instruction that makes them is the warp's, not lane 0's */
    bool first = exl2k_stream_first<M>(s, a, place, run);
    __syncwarp();
    exl2k_stream_plan<M>(s, a, place);
    if (place.lane < a.stages && place.lane >= (u32)first && s.bytes > 0) {
        exl2k_stream_copy(s, a, s.ring + place.lane * a.slot_strips * a.slot_bytes, place.lane);
    }
    s.job = a.stages;
    __syncwarp();
#else
    exl2k_stream_plan<M>(s, a, place);
#pragma unroll 1
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_stream_fill(s, a, place);
        exl2k_stream_step(s, a);
    }
    s.parity = 0;
#endif
    exl2k_stream_settle(s);
    return s;
}

#endif
