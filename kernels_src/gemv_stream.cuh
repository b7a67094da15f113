/* gemv_stream.cuh: what a warp of a decode product works on: strips, chunks, and the ring that brings them.
   takes: base.cuh, gemv_args.h; EXL2K_BULK (default: from sm_90 on): copies by the bulk engine.
   gives: exl2k_place, exl2k_span, exl2k_walk, exl2k_stream, _open, _fill, _wait, _step.
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

/* Strips [begin, end). */
typedef struct exl2k_span { u32 begin, end; } exl2k_span;

/* Of this CTA; whole pairs when interleaved. */
EXL2K_FN exl2k_span exl2k_strips_of_cta(const exl2k_gemv_args &a)
{
    u32 c = blockIdx.x, begin = c * a.each + exl2k_min(c, a.more), end = begin + a.each + (c < a.more);
    return exl2k_span{ begin << a.matrix.interleaved, end << a.matrix.interleaved };
}

/* The block that begins with strip `begin`; begin == end: there is none. */
EXL2K_FN exl2k_span exl2k_block_at(const exl2k_gemv_args &a, u32 begin)
{
    return exl2k_span{ begin, exl2k_min(begin + a.block, exl2k_strips_of_cta(a).end) };
}

/* Of the first strip of `part` among all; parts one after the other. */
EXL2K_FN u32 exl2k_first_strip(const exl2k_matrix &m, u32 part)
{
    return (part > 0 ? m.part[0].strips : 0) + (part > 1 ? m.part[1].strips : 0);
}

/* The strips of `part` inside [begin, end), counted from the first of the part. */
EXL2K_FN exl2k_span exl2k_strips_of_part(const exl2k_matrix &m, u32 part, exl2k_span all)
{
    if (m.interleaved) {
        return exl2k_span{ all.begin / 2, all.end / 2 };
    }
    u32 first = exl2k_first_strip(m, part);
    u32 begin = exl2k_max(all.begin, first), end = exl2k_min(all.end, first + m.part[part].strips);
    return begin < end ? exl2k_span{ begin - first, end - first } : exl2k_span{ 0, 0 };
}

/* `groups` groups of warps share out the strips of a block; a group has one warp for each slice. group >= 16: a warp
   without work. */
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
    if (p.group >= p.groups) { /* the warps are no multiple of the ways */
        p.group = 0xFFFF;
    }
    return p;
}

/* ---- which chunks ---- */

/* A task is one chunk of the warp's slice of a part, of all strips that the warp has of this part in a block. */
typedef struct exl2k_walk {
    u32 part, chunk;
    u32 reach; /* strips of the block from the warp's first on, those of other groups too; 0: none */
} exl2k_walk;

EXL2K_FN void exl2k_walk_enter(exl2k_walk &w, const exl2k_matrix &m, const exl2k_place &place, exl2k_span strips)
{
    u32 count = strips.end - strips.begin;
    w.chunk = m.part[w.part].slice[place.slice];
    w.reach = place.group < count ? count - place.group : 0;
}

EXL2K_FN bool exl2k_walk_done(const exl2k_walk &w, const exl2k_matrix &m, const exl2k_place &place)
{
    return w.chunk >= m.part[w.part].slice[place.slice + 1] || w.reach == 0;
}

/* ---- the stream of chunks into the ring of a warp ---- */

/* A slot of the ring has the chunks of the next `side` strips of a task, or of the one that is left. The ring is full
   from the start, and a slot is filled again when it has been read: one cursor serves both. */
typedef struct exl2k_stream {
    exl2k_walk walk;
    u32 block;        /* first strip */
    u32 from;         /* of the next copy: from the start of its part, in units of 16 bytes */
    u32 left, bytes;  /* as exl2k_walk.reach; of a chunk */
    u32 places, sizes; /* lane i: the first two words of the table entry of chunk 1 + 32 n + i of the slice */
    u32 ring, barriers;
    u32 slot, parity; /* the cursor */
} exl2k_stream;

/* Begins the task at `walk`, if there is one, else the next one there is. */
EXL2K_FN void exl2k_stream_seek(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    const exl2k_matrix &m = a.matrix;
    while (exl2k_walk_done(s.walk, m, place)) {
        if (++s.walk.part == m.parts) {
            s.walk.part = 0;
            s.block += a.block;
            if (s.block >= exl2k_strips_of_cta(a).end) {
                s.left = 0;
                return;
            }
        }
        exl2k_walk_enter(s.walk, m, place, exl2k_strips_of_part(m, s.walk.part, exl2k_block_at(a, s.block)));
    }
    const exl2k_part &p = m.part[s.walk.part];
    u32 index = s.walk.chunk - p.slice[place.slice], at = p.first[place.slice] & 0xFFFFF;
    s.bytes = (p.first[place.slice] >> 20) * 16;
    if (index > 0) {
        at = __shfl_sync(EXL2K_ALL, s.places, (index - 1) % EXL2K_WARP);
        s.bytes = (__shfl_sync(EXL2K_ALL, s.sizes, (index - 1) % EXL2K_WARP) >> 16) * 16;
    }
    if (index % EXL2K_WARP == 0) { /* 32 at once; what is read is left alone: nothing waits for it before it is needed */
        u64 entry = p.chunks + (s.walk.chunk + 1 + place.lane) * sizeof(exl2k_chunk);
        if (s.walk.chunk + 1 + place.lane < p.slice[place.slice + 1]) {
            s.places = exl2k_load_constant(entry);
            s.sizes = exl2k_load_constant(entry + 4);
        }
    }
    u32 strip = exl2k_strips_of_part(m, s.walk.part, exl2k_block_at(a, s.block)).begin + place.group;
    s.from = strip * (p.pitch / 16) + at;
    s.left = s.walk.reach;
}

/* Where the slot at the cursor is. */
EXL2K_FN u32 exl2k_stream_at(const exl2k_stream &s, const exl2k_gemv_args &a)
{
    return s.ring + s.slot * a.side * a.slot_bytes;
}

/* Of `left` strips two fit the slot. Eight rows: never, as registers are few. */
template <u32 M> EXL2K_FN bool exl2k_stream_two(const exl2k_gemv_args &a, const exl2k_place &place, u32 left)
{
    return M == 1 && a.side == 2 && left > place.groups;
}

/* Copies the next chunks into the slot at the cursor. */
template <u32 M>
EXL2K_FN void exl2k_stream_fill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    if (s.left > 0) {
        const exl2k_part &p = a.matrix.part[s.walk.part];
        bool two = exl2k_stream_two<M>(a, place, s.left);
        u32 to = exl2k_stream_at(s, a), strips = two ? 2 * place.groups : place.groups;
        u64 from = p.base + (u64)s.from * 16, second = from + place.groups * p.pitch;
#if EXL2K_BULK
        if (place.lane == 0) {
            u32 barrier = s.barriers + s.slot * 8;
            exl2k_barrier_expect(barrier, two ? 2 * s.bytes : s.bytes);
            exl2k_copy_bulk(to, from, s.bytes, barrier, exl2k_evict_first());
            if (two) {
                exl2k_copy_bulk(to + a.slot_bytes, second, s.bytes, barrier, exl2k_evict_first());
            }
        }
#else
        for (u32 i = 0; i < s.bytes; i += 512) { /* the warp stays together */
            u32 inside = i + place.lane * 16;
            if (inside < s.bytes) {
                exl2k_copy16_once(to + inside, from + inside);
                if (two) {
                    exl2k_copy16_once(to + a.slot_bytes + inside, second + inside);
                }
            }
        }
#endif
        __syncwarp();
        s.from += strips * (p.pitch / 16);
        s.left -= exl2k_min(s.left, strips);
        if (s.left == 0) {
            s.walk.chunk++;
            exl2k_stream_seek(s, a, place);
        }
    }
#if !EXL2K_BULK
    exl2k_copy_commit();
#endif
}

/* Moves the cursor to the next slot. */
EXL2K_FN void exl2k_stream_step(exl2k_stream &s, const exl2k_gemv_args &a)
{
    if (++s.slot == a.stages) {
        s.slot = 0;
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

EXL2K_FN exl2k_stream exl2k_stream_open(const exl2k_gemv_args &a, const exl2k_place &place, u32 shared, u32 small)
{
    exl2k_stream s;
    s.ring = shared + place.warp * a.stages * a.side * a.slot_bytes;
    s.barriers = small + place.warp * 64;
    s.slot = s.parity = s.places = s.sizes = 0;
    s.block = exl2k_strips_of_cta(a).begin;
    s.walk.part = 0;
#if EXL2K_BULK
    if (place.lane < a.stages) {
        exl2k_barrier_init(s.barriers + place.lane * 8, 1);
    }
    exl2k_barrier_init_fence();
    __syncwarp();
#endif
    exl2k_walk_enter(s.walk, a.matrix, place, exl2k_strips_of_part(a.matrix, 0, exl2k_block_at(a, s.block)));
    exl2k_stream_seek(s, a, place);
    return s;
}

#endif
