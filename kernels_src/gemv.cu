/* gemv.cu: products of 1 to 8 rows with one matrix: what a decode step is made of.
   takes: base.cuh, unpack.cuh, gemv_args.h; EXL2K_BULK (default: from sm_90 on) copies by the bulk engine.
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

#ifndef EXL2K_BULK
#define EXL2K_BULK (__CUDA_ARCH__ >= 900)
#endif

enum { EXL2K_STORE, EXL2K_RESIDUAL, EXL2K_ACT, EXL2K_HEAD };

/* ---- which strips, which chunks ---- */

/* Strips [begin, end) of this CTA; whole pairs when interleaved. */
typedef struct exl2k_span { u32 begin, end; } exl2k_span;

EXL2K_FN exl2k_span exl2k_strips_of_cta(const exl2k_matrix &m)
{
    u32 units = m.interleaved ? m.strips / 2 : m.strips, each = units / gridDim.x, more = units % gridDim.x;
    u32 c = blockIdx.x, begin = c * each + exl2k_min(c, more), end = begin + each + (c < more);
    return m.interleaved ? exl2k_span{ 2 * begin, 2 * end } : exl2k_span{ begin, end };
}

/* The strips of `part` inside [begin, end), counted from the first of the part. */
EXL2K_FN exl2k_span exl2k_strips_of_part(const exl2k_matrix &m, u32 part, exl2k_span all)
{
    if (m.interleaved) {
        return exl2k_span{ all.begin / 2, all.end / 2 };
    }
    u32 first = 0;
    for (u32 i = 0; i < EXL2K_PARTS_MAX - 1; i++) {
        first += i < part ? m.part[i].strips : 0;
    }
    u32 begin = exl2k_max(all.begin, first), end = exl2k_min(all.end, first + m.part[part].strips);
    return begin < end ? exl2k_span{ begin - first, end - first } : exl2k_span{ 0, 0 };
}

typedef struct exl2k_place { u32 slice, group, groups, lane, warp; } exl2k_place;

EXL2K_FN exl2k_place exl2k_place_of_warp(const exl2k_matrix &m)
{
    exl2k_place p;
    p.lane = threadIdx.x % EXL2K_WARP;
    p.warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    p.slice = p.warp % m.ways;
    p.group = p.warp / m.ways;
    p.groups = EXL2K_GEMV_WARPS / m.ways;
    return p;
}

/* ---- the stream of chunks into the ring of a warp ---- */

typedef struct exl2k_stream {
    u64 from, policy;
    u32 step, left, bytes;         /* strips of this chunk: address to address, how many, bytes of one */
    u32 part, chunk;               /* of the matrix; index into the chunk table */
    exl2k_span block, cta;
    u32 ring, slot, stages, slot_bytes, barriers;
} exl2k_stream;

/* Moves to the first strip of the next chunk that this warp has; left = 0: there is none. */
EXL2K_FN void exl2k_stream_seek(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    const exl2k_matrix &m = a.matrix;
    s.left = 0;
    while (s.block.begin < s.cta.end) {
        const exl2k_part &p = m.part[s.part];
        exl2k_span strips = exl2k_strips_of_part(m, s.part, s.block);
        u32 first = strips.begin + place.group;
        if (s.chunk < p.slice[place.slice + 1] && first < strips.end) {
            uint4 entry = exl2k_load_constant4(p.chunks + s.chunk * sizeof(exl2k_chunk));
            s.from = p.base + (u64)first * p.pitch + (u64)entry.x * 16;
            s.bytes = (entry.y >> 16) * 16;
            s.step = place.groups * p.pitch;
            s.left = (strips.end - first + place.groups - 1) / place.groups;
            return;
        }
        s.part++;
        if (s.part == m.parts) {
            s.part = 0;
            s.block.begin = s.block.end;
            s.block.end = exl2k_min(s.block.begin + a.block, s.cta.end);
        }
        s.chunk = m.part[s.part].slice[place.slice];
    }
}

/* Copies the next chunk into the slot that comes next. */
EXL2K_FN void exl2k_stream_fill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_place &place)
{
    if (s.left > 0) {
        u32 to = s.ring + s.slot * s.slot_bytes;
#if EXL2K_BULK
        if (place.lane == 0) {
            exl2k_barrier_expect(s.barriers + s.slot * 8, s.bytes);
            exl2k_copy_bulk(to, s.from, s.bytes, s.barriers + s.slot * 8, s.policy);
        }
#else
        for (u32 i = place.lane * 16; i < s.bytes; i += 512) {
            exl2k_copy16_once(to + i, s.from + i, s.policy);
        }
#endif
        s.from += s.step;
        if (--s.left == 0) {
            s.chunk++;
            exl2k_stream_seek(s, a, place);
        }
    }
    exl2k_copy_commit();
    s.slot = s.slot + 1 == s.stages ? 0 : s.slot + 1;
}

/* Until the oldest slot of the ring is there, for every lane. */
EXL2K_FN void exl2k_stream_wait(const exl2k_stream &s, u32 slot, u32 parity)
{
#if EXL2K_BULK
    exl2k_barrier_wait(s.barriers + slot * 8, parity);
#else
    if (s.stages >= 6) {
        exl2k_copy_wait<5>();
    } else if (s.stages >= 4) {
        exl2k_copy_wait<3>();
    } else if (s.stages == 3) {
        exl2k_copy_wait<2>();
    } else {
        exl2k_copy_wait<1>();
    }
    __syncwarp();
#endif
}

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
    s.block = exl2k_span{ cta.begin, exl2k_min(cta.begin + a.block, cta.end) };
    s.part = 0;
    s.chunk = a.matrix.part[0].slice[place.slice];
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
    exl2k_stream_seek(s, a, place);
    return s;
}

/* ---- one chunk of one strip ---- */

typedef struct exl2k_inputs { uint4 half[2 * EXL2K_CHUNK_RECORDS]; } exl2k_inputs;

EXL2K_FN void exl2k_load_inputs(exl2k_inputs &x, u64 at, u32 records)
{
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        if (r < records) {
            x.half[2 * r] = exl2k_load4(at + r * 128);
            x.half[2 * r + 1] = exl2k_load4(at + r * 128 + 64);
        }
    }
}

/* sum += scale * d; with one row only columns 0 of d count. */
template <u32 M> EXL2K_FN void exl2k_add_scaled(f32 sum[4], const f32 d[4], f32 low, f32 high)
{
    sum[0] = fmaf(low, d[0], sum[0]);
    sum[2] = fmaf(high, d[2], sum[2]);
    if (M > 1) {
        sum[1] = fmaf(low, d[1], sum[1]);
        sum[3] = fmaf(high, d[3], sum[3]);
    }
}

EXL2K_FN void exl2k_clear(f32 d[4])
{
    d[0] = d[1] = d[2] = d[3] = 0.0f;
}

/* Two of a record's steps: half h. */
template <u32 W> EXL2K_FN void exl2k_half_record(f32 d[4], const u32 *w, u32 h, const uint4 &x)
{
    u32 a[4];
    exl2k_decode<W>(w, 2 * h, a);
    exl2k_mma(d, a, x.x, x.y);
    exl2k_decode<W>(w, 2 * h + 1, a);
    exl2k_mma(d, a, x.z, x.w);
}

/* Every 32 rows have a scale: gs 32, and the odd sizes of old files. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_chunk_by_half(f32 sum[4], u32 at, const exl2k_inputs &x, u32 shape, const u32 maxima[4], u32 lane)
{
    constexpr u32 bytes = exl2k_width<W>::bits * 128;
    u32 records = shape >> 8 & 255, groups = shape >> 16 & 255, g = lane / 4;
    u32 scales = at + records * bytes + (g / 4) * groups * 4;
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        if (r < records) {
            u32 w[exl2k_width<W>::bits];
            f32 d0[4], d1[4];
            exl2k_lane_words<W>(at + r * bytes, lane, w);
            uint2 words = exl2k_shared_load2(scales + r * 8);
            u32 s0 = exl2k_scale_pair(words.x, g, exl2k_maximum(maxima, 2 * r));
            u32 s1 = exl2k_scale_pair(words.y, g, exl2k_maximum(maxima, 2 * r + 1));
            exl2k_clear(d0);
            exl2k_clear(d1);
            exl2k_half_record<W>(d0, w, 0, x.half[2 * r]);
            exl2k_half_record<W>(d1, w, 1, x.half[2 * r + 1]);
            exl2k_add_scaled<M>(sum, d0, exl2k_low(s0), exl2k_high(s0));
            exl2k_add_scaled<M>(sum, d1, exl2k_low(s1), exl2k_high(s1));
        }
    }
}

/* Groups are whole records. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_chunk_by_record(f32 sum[4], u32 at, const exl2k_inputs &x, u32 shape, u32 ends,
                                    const u32 maxima[4], u32 lane)
{
    constexpr u32 bytes = exl2k_width<W>::bits * 128;
    u32 records = shape >> 8 & 255, groups = shape >> 16 & 255, g = lane / 4, maximum = maxima[0];
    u32 scales = at + records * bytes + (g / 4) * groups * 4, next = 0;
    f32 d0[4], d1[4];
    exl2k_clear(d0);
    exl2k_clear(d1);
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        if (r < records) {
            u32 w[exl2k_width<W>::bits];
            exl2k_lane_words<W>(at + r * bytes, lane, w);
            exl2k_half_record<W>(d0, w, 0, x.half[2 * r]);
            exl2k_half_record<W>(d1, w, 1, x.half[2 * r + 1]);
            if (ends >> r & 1) {
                u32 s = exl2k_scale_pair(exl2k_shared_load(scales), g, exl2k_permute(maximum, 0, 0x1010u));
                exl2k_add_scaled<M>(sum, d0, exl2k_low(s), exl2k_high(s));
                exl2k_add_scaled<M>(sum, d1, exl2k_low(s), exl2k_high(s));
                exl2k_clear(d0);
                exl2k_clear(d1);
                scales += 4;
                next++;
                maximum = next & 1 ? maximum >> 16 : maxima[1];
            }
        }
    }
}

template <u32 M> EXL2K_FN void exl2k_chunk_dense(f32 sum[4], u32 at, const exl2k_inputs &x, u32 shape, u32 lane)
{
    u32 records = shape >> 8 & 255;
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        if (r < records) {
            u32 w[16];
            f32 d0[4], d1[4];
            exl2k_clear(d0);
            exl2k_clear(d1);
            exl2k_lane_words<EXL2K_W16>(at + r * 2048, lane, w);
            exl2k_half_record<EXL2K_W16>(d0, w, 0, x.half[2 * r]);
            exl2k_half_record<EXL2K_W16>(d1, w, 1, x.half[2 * r + 1]);
            exl2k_add_scaled<M>(sum, d0, 1.0f, 1.0f);
            exl2k_add_scaled<M>(sum, d1, 1.0f, 1.0f);
        }
    }
}

template <u32 W, u32 M>
EXL2K_FN void exl2k_chunk_codes(f32 sum[4], u32 at, const exl2k_inputs &x, u32 shape, u32 ends, const u32 maxima[4],
                                u32 lane)
{
    if (shape >> 24) {
        exl2k_chunk_by_half<W, M>(sum, at, x, shape, maxima, lane);
    } else {
        exl2k_chunk_by_record<W, M>(sum, at, x, shape, ends, maxima, lane);
    }
}

/* `shape`: width, records, groups, by_half of exl2k_chunk, a byte each. */
template <u32 M>
EXL2K_FN void exl2k_chunk_product(f32 sum[4], u32 at, const exl2k_inputs &x, u32 shape, u32 ends, const u32 maxima[4],
                                  u32 lane)
{
    exl2k_clear(sum);
    switch (shape & 255) {
    case EXL2K_W2: exl2k_chunk_codes<EXL2K_W2, M>(sum, at, x, shape, ends, maxima, lane); break;
    case EXL2K_W3: exl2k_chunk_codes<EXL2K_W3, M>(sum, at, x, shape, ends, maxima, lane); break;
    case EXL2K_W4: exl2k_chunk_codes<EXL2K_W4, M>(sum, at, x, shape, ends, maxima, lane); break;
    case EXL2K_W5: exl2k_chunk_codes<EXL2K_W5, M>(sum, at, x, shape, ends, maxima, lane); break;
    case EXL2K_W6: exl2k_chunk_codes<EXL2K_W6, M>(sum, at, x, shape, ends, maxima, lane); break;
    case EXL2K_W8: exl2k_chunk_codes<EXL2K_W8, M>(sum, at, x, shape, ends, maxima, lane); break;
    default: exl2k_chunk_dense<M>(sum, at, x, shape, lane); break;
    }
}

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
    for (u32 slice = 1; slice < ways; slice++) {
        total += exl2k_shared_load_f32(at + slice * (M == 1 ? 64 : 512));
    }
    return total;
}

#include "gemv_out.cuh"

/* ---- the kernel ---- */

template <u32 M>
EXL2K_FN void exl2k_gemv_block(const exl2k_gemv_args &a, const exl2k_place &place, exl2k_stream &s, exl2k_span block,
                               u32 sums, u64 x, u32 &slot, u32 &parity)
{
    const exl2k_matrix &m = a.matrix;
    u32 offset = 0; /* strips of earlier parts in the block */
    for (u32 part = 0; part < m.parts; part++) {
        const exl2k_part &p = m.part[part];
        exl2k_span strips = exl2k_strips_of_part(m, part, block);
        u32 count = strips.end - strips.begin, chunk = p.slice[place.slice], last = p.slice[place.slice + 1];
        if (count == 0) {
            continue;
        }
        for (bool first = true; first || chunk < last; first = false, chunk++) {
            exl2k_inputs inputs;
            u32 maxima[4] = { 0 }, shape = 0, ends = 0;
            if (chunk < last) {
                uint4 entry = exl2k_load_constant4(p.chunks + chunk * sizeof(exl2k_chunk));
                uint4 more = exl2k_load_constant4(p.chunks + chunk * sizeof(exl2k_chunk) + 16);
                shape = entry.z;
                ends = entry.w & 255;
                maxima[0] = more.x;
                maxima[1] = more.y;
                maxima[2] = more.z;
                maxima[3] = more.w;
                if (place.group < count) {
                    exl2k_load_inputs(inputs, x + (entry.y & 0xFFFF) * 64, shape >> 8 & 255);
                }
            }
            for (u32 i = place.group; i < count; i += place.groups) {
                f32 sum[4];
                exl2k_clear(sum);
                if (chunk < last) {
                    exl2k_stream_wait(s, slot, parity);
                    exl2k_chunk_product<M>(sum, s.ring + slot * s.slot_bytes, inputs, shape, ends, maxima,
                                           place.lane);
                    __syncwarp();
                    exl2k_stream_fill(s, a, place);
                    if (++slot == s.stages) {
                        slot = 0;
                        parity ^= 1;
                    }
                }
                u32 strip = m.interleaved ? 2 * i + part : offset + i;
                exl2k_partial_add<M>(exl2k_partial_at<M>(sums, m.ways, strip, place.slice), sum, first, place.lane);
            }
        }
        offset += count;
    }
}

template <u32 M, u32 KIND> EXL2K_FN void exl2k_gemv(const exl2k_gemv_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    const exl2k_matrix &m = a.matrix;
    exl2k_place place = exl2k_place_of_warp(m);
    u32 shared = exl2k_shared(exl2k_dynamic), sums = shared + EXL2K_GEMV_WARPS * a.stages * a.slot_bytes;
    u32 small = sums + a.block * m.ways * (M == 1 ? 64 : 512);
    exl2k_span cta = exl2k_strips_of_cta(m), block = { cta.begin, exl2k_min(cta.begin + a.block, cta.end) };
    exl2k_stream s = exl2k_stream_open(a, place, shared, small, cta);
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_stream_fill(s, a, place);
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    exl2k_out out = exl2k_out_open<M, KIND>(a, place, small + 1024);
    u32 row = M == 1 ? 0 : exl2k_min(place.lane / 4, out.rows - 1), slot = 0, parity = 0;
    u64 x = a.x + (u64)row * a.x_pitch * 2 + place.lane % 4 * 16;
    while (block.begin < block.end) {
        exl2k_out_begin<M, KIND>(out, a, block);
        if (place.group < place.groups) {
            exl2k_gemv_block<M>(a, place, s, block, sums, x, slot, parity);
        }
        if (block.begin == cta.begin) {
            exl2k_out_settle<M>(out);
            __syncthreads();
            exl2k_out_scale<KIND>(out, a);
        } else {
            __syncthreads();
        }
        exl2k_out_block<M, KIND>(out, a, block, sums);
        block = exl2k_span{ block.end, exl2k_min(block.end + a.block, cta.end) };
        __syncthreads();
    }
    exl2k_out_close<M, KIND>(out, a);
}

#define EXL2K_GEMV(name, M, KIND)                                                                           \
    extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1) name(const __grid_constant__ exl2k_gemv_args a) \
    {                                                                                                       \
        exl2k_gemv<M, KIND>(a);                                                                             \
    }

EXL2K_GEMV(exl2k_gemv1_store, 1, EXL2K_STORE)
EXL2K_GEMV(exl2k_gemv1_residual, 1, EXL2K_RESIDUAL)
EXL2K_GEMV(exl2k_gemv1_act, 1, EXL2K_ACT)
EXL2K_GEMV(exl2k_gemv1_head, 1, EXL2K_HEAD)
EXL2K_GEMV(exl2k_gemv8_store, 8, EXL2K_STORE)
EXL2K_GEMV(exl2k_gemv8_residual, 8, EXL2K_RESIDUAL)
EXL2K_GEMV(exl2k_gemv8_act, 8, EXL2K_ACT)
EXL2K_GEMV(exl2k_gemv8_head, 8, EXL2K_HEAD)
