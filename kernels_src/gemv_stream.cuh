/* gemv_stream.cuh: what a warp of a decode product works on: strips, chunks, and the ring that brings them.
   takes: base.cuh, gemv_args.h; EXL2K_BULK (default: from sm_90 on): copies by the bulk engine.
   gives: exl2k_strips_of_cta, _of_part, exl2k_place, exl2k_stream, exl2k_task.
   owns:  nothing; included by gemv.cu only.
   next:  gemv_chunk.cuh */
#ifndef EXL2K_GEMV_STREAM_CUH
#define EXL2K_GEMV_STREAM_CUH

#include "base.cuh"
#include "gemv_args.h"

#ifndef EXL2K_BULK
#define EXL2K_BULK (__CUDA_ARCH__ >= 900)
#endif

/* ---- which strips, which chunks ---- */

/* How parts are merged, known when compiling: one part; up to three, one after the other; two, strip by strip. */
enum { EXL2K_ONE = 1, EXL2K_PAIR = 2, EXL2K_LIST = 3 };

/* Strips [begin, end). */
typedef struct exl2k_span { u32 begin, end; } exl2k_span;

/* Of this CTA; whole pairs when interleaved. */
template <u32 P> EXL2K_FN exl2k_span exl2k_strips_of_cta(const exl2k_gemv_args &a)
{
    u32 c = blockIdx.x, begin = c * a.each + exl2k_min(c, a.more), end = begin + a.each + (c < a.more);
    return P == EXL2K_PAIR ? exl2k_span{ 2 * begin, 2 * end } : exl2k_span{ begin, end };
}

EXL2K_FN exl2k_span exl2k_block_after(const exl2k_gemv_args &a, u32 begin, exl2k_span cta)
{
    return exl2k_span{ begin, exl2k_min(begin + a.block, cta.end) };
}

/* The strips of `part` inside [begin, end), counted from the first of the part. */
template <u32 P> EXL2K_FN exl2k_span exl2k_strips_of_part(const exl2k_matrix &m, u32 part, exl2k_span all)
{
    if (P == EXL2K_ONE) {
        return all;
    }
    if (P == EXL2K_PAIR) {
        return exl2k_span{ all.begin / 2, all.end / 2 };
    }
    u32 first = part == 0 ? 0 : part == 1 ? m.part[0].strips : m.part[0].strips + m.part[1].strips;
    u32 begin = exl2k_max(all.begin, first), end = exl2k_min(all.end, first + m.part[part].strips);
    return begin < end ? exl2k_span{ begin - first, end - first } : exl2k_span{ 0, 0 };
}

template <u32 P> EXL2K_FN u32 exl2k_parts(const exl2k_matrix &m) { return P == EXL2K_LIST ? m.parts : P; }

typedef struct exl2k_place { u32 slice, group, groups, lane, warp; } exl2k_place;

/* ways_inverse = 256 / ways + 1 divides 0..16 by the ways. */
EXL2K_FN exl2k_place exl2k_place_of_warp(const exl2k_gemv_args &a)
{
    exl2k_place p;
    p.lane = threadIdx.x % EXL2K_WARP;
    p.warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    p.group = p.warp * a.ways_inverse >> 8;
    p.groups = EXL2K_GEMV_WARPS * a.ways_inverse >> 8;
    p.slice = p.warp - p.group * a.matrix.ways;
    return p;
}

/* ---- the stream of chunks into the ring of a warp ---- */

typedef struct exl2k_stream {
    u64 from, policy;
    u32 strip, end;                /* of the part: next to copy; strip >= end: nothing is left */
    u32 bytes, step;               /* of a chunk; from strip to strip of this warp */
    u32 part, chunk;               /* of the matrix; index into the chunk table */
    u32 sizes[EXL2K_PARTS_MAX];    /* lane i: place | bytes16 << 20 of the i-th chunk of the slice, of each part */
    exl2k_span block, cta;
    u32 ring, slot, stages, slot_bytes, barriers;
} exl2k_stream;

/* Sizes of 32 chunks at once, so that filling the ring does not wait for one after the other. */
EXL2K_FN u32 exl2k_sizes(const exl2k_part &p, u32 chunk, u32 last)
{
    if (chunk >= last) {
        return 0;
    }
    u64 at = p.chunks + chunk * sizeof(exl2k_chunk);
    return exl2k_load_constant(at) | exl2k_load_constant(at + 4) >> 16 << 20;
}

/* A long slice: the sizes of its next 32 chunks. */
template <u32 P>
EXL2K_FN void exl2k_stream_more(exl2k_stream &s, const exl2k_part &p, const exl2k_place &place)
{
    u32 sizes = exl2k_sizes(p, s.chunk + place.lane, p.slice[place.slice + 1]);
#pragma unroll
    for (u32 i = 0; i < P; i++) {
        s.sizes[i] = s.part == i ? sizes : s.sizes[i];
    }
}

/* Moves to the first strip of the next chunk that this warp has. */
template <u32 P>
EXL2K_FN void exl2k_stream_seek(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    const exl2k_matrix &m = a.matrix;
    while (s.block.begin < s.cta.end) {
        const exl2k_part &p = m.part[P == EXL2K_ONE ? 0 : s.part];
        exl2k_span strips = exl2k_strips_of_part<P>(m, s.part, s.block);
        u32 first = strips.begin + place.group, index = s.chunk - p.slice[place.slice];
        if (s.chunk < p.slice[place.slice + 1] && first < strips.end) {
            if (index > 0 && index % EXL2K_WARP == 0) {
                exl2k_stream_more<P>(s, p, place);
            }
            u32 mine = P == EXL2K_ONE || s.part == 0 ? s.sizes[0] : P == EXL2K_PAIR || s.part == 1 ? s.sizes[1]
                     : s.sizes[2];
            u32 size = __shfl_sync(EXL2K_ALL, mine, index % EXL2K_WARP);
            s.from = p.base + (u64)first * p.pitch + (u64)(size & 0xFFFFF) * 16;
            s.bytes = (size >> 20) * 16;
            s.step = place.groups * p.pitch;
            s.strip = first;
            s.end = strips.end;
            return;
        }
        s.part++;
        if (P == EXL2K_ONE || s.part == exl2k_parts<P>(m)) {
            s.part = 0;
            s.block = exl2k_block_after(a, s.block.end, s.cta);
        }
        s.chunk = m.part[P == EXL2K_ONE ? 0 : s.part].slice[place.slice];
    }
    s.strip = s.end = 0;
}

/* Copies the next chunk into the slot that comes next. */
template <u32 P>
EXL2K_FN void exl2k_stream_fill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    if (s.strip < s.end) {
        u32 to = s.ring + s.slot * s.slot_bytes;
#if EXL2K_BULK
        if (place.lane == 0) {
            exl2k_barrier_expect(s.barriers + s.slot * 8, s.bytes);
            exl2k_copy_bulk(to, s.from, s.bytes, s.barriers + s.slot * 8, s.policy);
        }
#else
        for (u32 i = 0; i < s.bytes; i += 512) { /* the warp stays together */
            u32 at = i + place.lane * 16;
            if (at < s.bytes) {
                exl2k_copy16_once(to + at, s.from + at);
            }
        }
#endif
        __syncwarp();
        s.from += s.step;
        s.strip += place.groups;
        if (s.strip >= s.end) {
            s.chunk++;
            exl2k_stream_seek<P>(s, a, place);
        }
    }
#if !EXL2K_BULK
    exl2k_copy_commit();
#endif
    s.slot = s.slot + 1 == s.stages ? 0 : s.slot + 1;
}

/* Until the oldest slot of the ring is there, for every lane. */
EXL2K_FN void exl2k_stream_wait(const exl2k_stream &s, u32 slot, u32 parity)
{
#if EXL2K_BULK
    exl2k_barrier_wait(s.barriers + slot * 8, parity);
#else
    if (s.stages >= 6) { /* two slots may be in use: at most stages - 2 copies are still under way */
        exl2k_copy_wait<4>();
    } else if (s.stages >= 4) {
        exl2k_copy_wait<2>();
    } else if (s.stages == 3) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<0>();
    }
    __syncwarp();
#endif
}

template <u32 P>
EXL2K_FN exl2k_stream exl2k_stream_open(const exl2k_gemv_args &a, const exl2k_place &place, u32 shared, u32 small,
                                        exl2k_span cta)
{
    exl2k_stream s;
    s.policy = exl2k_evict_first();
    s.stages = a.stages;
    s.slot_bytes = a.slot_bytes;
    s.ring = shared + place.warp * a.stages * a.slot_bytes;
    s.barriers = small + place.warp * 64;
    s.slot = 0;
    s.cta = cta;
    s.block = exl2k_block_after(a, cta.begin, cta);
    s.part = 0;
    s.chunk = a.matrix.part[0].slice[place.slice];
#pragma unroll
    for (u32 i = 0; i < P; i++) {
        const exl2k_part &p = a.matrix.part[i];
        s.sizes[i] = i < exl2k_parts<P>(a.matrix)
                   ? exl2k_sizes(p, p.slice[place.slice] + place.lane, p.slice[place.slice + 1]) : 0;
    }
#if EXL2K_BULK
    if (place.lane < a.stages) {
        exl2k_barrier_init(s.barriers + place.lane * 8, 1);
    }
    exl2k_barrier_init_fence();
    __syncwarp();
#endif
    if (place.group >= place.groups) { /* 16 is no multiple of the ways: the last warps have nothing */
        s.block.begin = s.cta.end;
    }
    exl2k_stream_seek<P>(s, a, place);
    return s;
}

/* ---- the chunks that a warp works on, one ahead ---- */

typedef struct exl2k_task {
    u32 part, chunk, strips;   /* strips: of the part in the block; 0: no task */
    u32 offset;                /* strips of earlier parts in the block */
    u32 row, shape, ends;      /* of exl2k_chunk; shape: width, records, groups, by_half, a byte each */
    u32 maximum;               /* one row: of the lane's two halves */
} exl2k_task;

EXL2K_FN u32 exl2k_task_records(const exl2k_task &t) { return t.shape >> 8 & 255; }

/* Goes on from t.part, t.chunk to a chunk that is there, and begins to read its table entry. */
template <u32 M, u32 P>
EXL2K_FN void exl2k_task_find(exl2k_task &t, const exl2k_matrix &m, const exl2k_place &place, exl2k_span block)
{
    while (t.part < exl2k_parts<P>(m)) {
        const exl2k_part &p = m.part[P == EXL2K_ONE ? 0 : t.part];
        exl2k_span strips = exl2k_strips_of_part<P>(m, t.part, block);
        t.strips = strips.end - strips.begin;
        if (t.chunk < p.slice[place.slice + 1] && place.group < t.strips) {
            u64 at = p.chunks + t.chunk * sizeof(exl2k_chunk);
            uint4 entry = exl2k_load_constant4(at);
            t.row = entry.y & 0xFFFF;
            t.shape = entry.z;
            t.ends = entry.w & 255;
            if (M == 1) {
                t.maximum = exl2k_load_constant(at + 16 + place.lane % 4 * 4);
            }
            return;
        }
        t.offset += t.strips;
        t.part++;
        t.chunk = t.part < exl2k_parts<P>(m) ? m.part[t.part].slice[place.slice] : 0;
    }
    t.strips = 0;
}

template <u32 M, u32 P>
EXL2K_FN exl2k_task exl2k_task_first(const exl2k_matrix &m, const exl2k_place &place, exl2k_span block)
{
    exl2k_task t = { 0 };
    t.chunk = m.part[0].slice[place.slice];
    if (place.group < place.groups) {
        exl2k_task_find<M, P>(t, m, place, block);
    }
    return t;
}

#endif
