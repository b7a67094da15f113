/* gemv_chunk.cuh: the product of one chunk of one strip, or of two side by side, with its inputs.
   takes: base.cuh, unpack.cuh, gemv_stream.cuh; EXL2K_WIDTHS_MASK: bits EXL2K_Wn of the widths that may occur;
          EXL2K_WHOLE_CHUNKS (0 or 1, default 1): see exl2k_chunk_one.
   gives: exl2k_task, exl2k_task_load, exl2k_inputs, exl2k_load_input(s), exl2k_keep_input, exl2k_chunks_one, _eight.
   owns:  nothing; included by gemv.cuh only.
   next:  gemv_out.cuh */
#ifndef EXL2K_GEMV_CHUNK_CUH
#define EXL2K_GEMV_CHUNK_CUH

#include "gemv_stream.cuh"
#include "unpack.cuh"

/* Widths that the kernel can meet: a bit for each; the host may compile for those of one model. */
#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* 0: they have the code of shorter chunks. */
#ifndef EXL2K_WHOLE_CHUNKS
#define EXL2K_WHOLE_CHUNKS 1
#endif

/* ---- a task: one chunk, of every strip of the warp ---- */

typedef struct exl2k_task {
    u32 shape, ends; /* of exl2k_chunk: width, records, groups, by_half; ends, halves: a byte each */
    u32 maximum;     /* lane t: of halves 2 t and 2 t + 1 */
} exl2k_task;

EXL2K_FN u32 exl2k_task_width(const exl2k_task &t) { return t.shape & 255; }
EXL2K_FN u32 exl2k_task_records(const exl2k_task &t) { return t.shape >> 8 & 255; }
EXL2K_FN u32 exl2k_task_groups(const exl2k_task &t) { return t.shape >> 16 & 255; }
EXL2K_FN bool exl2k_task_by_half(const exl2k_task &t) { return t.shape >> 24 != 0; }
EXL2K_FN u32 exl2k_task_halves(const exl2k_task &t) { return t.ends >> 8 & 255; }

/* Index of the scale word of record r in a chunk whose groups are whole records. */
EXL2K_FN u32 exl2k_group_of_record(const exl2k_task &t, u32 r)
{
    return exl2k_min(__popc(t.ends & ((1u << r) - 1)), exl2k_task_groups(t) - 1);
}

/* From the chunk table. */
EXL2K_FN void exl2k_task_load(exl2k_task &t, const exl2k_part &p, u32 chunk, u32 lane)
{
    u64 at = p.chunks + chunk * sizeof(exl2k_chunk);
    t.shape = exl2k_load_constant(at + 8);
    t.ends = exl2k_load_constant(at + 12);
    t.maximum = exl2k_load_constant(at + 16 + lane % 4 * 4);
}

EXL2K_FN u32 exl2k_scale_place(const exl2k_task &t, u32 lane)
{
    return exl2k_task_records(t) * exl2k_bits(exl2k_task_width(t)) * 128 + lane / 16 * exl2k_task_groups(t) * 4;
}

/* ---- inputs ---- */

/* B operands of the eight halves (runs of 32 rows) of a chunk. Eight rows: the lane's row g. One row: column h of B has
   half h and no other (exl2k_spread): the eight columns of the result are the sums of the eight halves, and each
   lane scales only two of them. Sums of halves have the same bits either way: adding products of 0 changes nothing. */
template <u32 M> struct exl2k_inputs;

template <> struct exl2k_inputs<1> {
    uint4 mine; /* half g */
};

template <> struct exl2k_inputs<8> {
    uint4 half[2 * EXL2K_CHUNK_RECORDS];
};

EXL2K_FN void exl2k_clear(f32 d[4]) { d[0] = d[1] = d[2] = d[3] = 0.0f; }

/* One row: the lane's 8 inputs of half g of the chunk that begins with row 32 `row`, read before the chunk is known:
   also of halves that are not the chunk's. `x`: of the row, + 16 t bytes; rows: of the matrix. */
EXL2K_FN uint4 exl2k_load_input(u64 x, u32 row, u32 rows, u32 lane)
{
    return exl2k_load4(x + exl2k_min(row + lane / 4, (rows - 1) / 32) * 64);
}

/* Without those. */
EXL2K_FN void exl2k_keep_input(exl2k_inputs<1> &x, const uint4 &ahead, const exl2k_task &t, u32 lane)
{
    x.mine = lane / 4 < exl2k_task_halves(t) ? ahead : make_uint4(0, 0, 0, 0);
}

/* `mine` in the lanes of column h, else 0: times 1 or 0, as multiplying is cheaper than choosing. Volatile: registers
   for all eight of them would be too many. */
EXL2K_FN uint4 exl2k_spread(const uint4 &mine, u32 h, u32 lane)
{
    u32 one = lane / 4 == h ? 0x3C003C00u : 0;
    uint4 v;
    asm volatile("mul.f16x2 %0, %1, %2;" : "=r"(v.x) : "r"(mine.x), "r"(one));
    asm volatile("mul.f16x2 %0, %1, %2;" : "=r"(v.y) : "r"(mine.y), "r"(one));
    asm volatile("mul.f16x2 %0, %1, %2;" : "=r"(v.z) : "r"(mine.z), "r"(one));
    asm volatile("mul.f16x2 %0, %1, %2;" : "=r"(v.w) : "r"(mine.w), "r"(one));
    return v;
}

/* Eight rows. */
EXL2K_FN void exl2k_load_inputs(exl2k_inputs<8> &x, u64 at, const exl2k_task &t)
{
#pragma unroll
    for (u32 h = 0; h < 2 * EXL2K_CHUNK_RECORDS; h++) {
        x.half[h] = h < exl2k_task_halves(t) ? exl2k_load4(at + h * 64) : make_uint4(0, 0, 0, 0);
    }
}

/* ---- one chunk of one strip ---- */

/* Half h of a record: two steps. */
template <u32 W> EXL2K_FN void exl2k_half_record(f32 sum[4], const u32 *w, u32 h, const uint4 &x)
{
    u32 a[4];
    exl2k_decode<W>(w, 2 * h, a);
    exl2k_mma(sum, a, x.x, x.y);
    exl2k_decode<W>(w, 2 * h + 1, a);
    exl2k_mma(sum, a, x.z, x.w);
}

/* One row: record r of a chunk, of S strips side by side: they hide each other's waits. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_record_one(f32 sum[S][4], const u32 at[S], const exl2k_inputs<1> &x, u32 r, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    uint4 x0 = exl2k_spread(x.mine, 2 * r, lane), x1 = exl2k_spread(x.mine, 2 * r + 1, lane);
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        u32 w[bits];
        exl2k_lane_words<W>(at[i] + r * bits * 128, lane, w);
        exl2k_half_record<W>(sum[i], w, 0, x0);
        exl2k_half_record<W>(sum[i], w, 1, x1);
    }
}

/* One row: the sums of all halves. Chunks of four records have code without conditions, at the widths that most weights
   have; a strip that is left alone has a loop. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_chunk_one(f32 sum[S][4], const u32 at[S], const exl2k_inputs<1> &x, u32 records, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr u32 most = bits <= 4 ? 4 : bits <= 8 ? 16 / bits : 1; /* records that fit a chunk */
    if (EXL2K_WHOLE_CHUNKS && most == 4 && S == 2 && records == most) {
#pragma unroll
        for (u32 r = 0; r < most; r++) {
            exl2k_record_one<W, S>(sum, at, x, r, lane);
        }
        return;
    }
    if constexpr (S == 1) {
#pragma unroll 1
        for (u32 r = 0; r < records; r++) {
            exl2k_record_one<W, S>(sum, at, x, r, lane);
        }
    } else {
#pragma unroll
        for (u32 r = 0; r < most; r++) {
            if (r < records) {
                exl2k_record_one<W, S>(sum, at, x, r, lane);
            }
        }
    }
}

/* fp16(level^2 * maximum) of columns g and g + 8, as floats; dense: 1. */
typedef struct exl2k_scales { f32 low, high; } exl2k_scales;

EXL2K_FN exl2k_scales exl2k_scales_of(u32 word, u32 g, u32 maximum)
{
    u32 pair = exl2k_scale_pair(word, g, maximum);
    return exl2k_scales{ exl2k_low(pair), exl2k_high(pair) };
}

/* One row: out[i] = the sum of column g in lane t = 0, of g + 8 in lane t = 1; of S strips whose chunks are at at[]. */
template <u32 S>
EXL2K_FN void exl2k_finish_one(f32 out[S], const f32 sum[S][4], const u32 at[S], const exl2k_task &task, u32 lane)
{
    u32 g = lane / 4, t = lane % 4, groups = exl2k_task_groups(task), column = exl2k_scale_place(task, lane);
    f32 low[S], high[S];
    if (exl2k_task_by_half(task)) {
        column += exl2k_min(t * 2, groups - 2) * 4;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            uint2 words = exl2k_shared_load2(at[i] + column);
            exl2k_scales s0 = exl2k_scales_of(words.x, g, exl2k_permute(task.maximum, 0, 0x1010u));
            exl2k_scales s1 = exl2k_scales_of(words.y, g, exl2k_permute(task.maximum, 0, 0x3232u));
            low[i] = fmaf(s1.low, sum[i][1], s0.low * sum[i][0]);
            high[i] = fmaf(s1.high, sum[i][3], s0.high * sum[i][2]);
        }
    } else {
        column += exl2k_group_of_record(task, t) * 4;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            exl2k_scales s = { 1.0f, 1.0f };
            if (groups > 0) {
                s = exl2k_scales_of(exl2k_shared_load(at[i] + column), g, exl2k_permute(task.maximum, 0, 0x1010u));
            }
            low[i] = fmaf(s.low, sum[i][1], s.low * sum[i][0]);
            high[i] = fmaf(s.high, sum[i][3], s.high * sum[i][2]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < S; i++) { /* lanes t = 0, 2: column g; 1, 3: g + 8 */
        f32 mine = t & 1 ? high[i] : low[i], other = t & 1 ? low[i] : high[i];
        mine += __shfl_xor_sync(EXL2K_ALL, other, 1);
        out[i] = mine + __shfl_xor_sync(EXL2K_ALL, mine, 2);
    }
}

/* Eight rows: sums of halves are scaled and added in the order of exl2k_finish_one. */
template <u32 W>
EXL2K_FN void exl2k_chunk_eight(f32 sum[4], u32 at, const exl2k_inputs<8> &x, const exl2k_task &task, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr u32 most = bits <= 4 ? 4 : bits <= 8 ? 16 / bits : 1;
    u32 g = lane / 4, column = at + exl2k_scale_place(task, lane);
    f32 later[4];
    exl2k_clear(sum);
    exl2k_clear(later);
#pragma unroll
    for (u32 r = 0; r < most; r++) {
        if (r < exl2k_task_records(task)) {
            u32 w[bits];
            f32 d0[4], d1[4];
            exl2k_scales s0 = { 1.0f, 1.0f }, s1 = s0;
            exl2k_lane_words<W>(at + r * bits * 128, lane, w);
            u32 maximum = __shfl_sync(EXL2K_ALL, task.maximum, r);
            if (bits < 16 && exl2k_task_by_half(task)) {
                uint2 words = exl2k_shared_load2(column + r * 8);
                s0 = exl2k_scales_of(words.x, g, exl2k_permute(maximum, 0, 0x1010u));
                s1 = exl2k_scales_of(words.y, g, exl2k_permute(maximum, 0, 0x3232u));
            } else if (bits < 16) {
                u32 word = exl2k_shared_load(column + exl2k_group_of_record(task, r) * 4);
                s0 = s1 = exl2k_scales_of(word, g, exl2k_permute(maximum, 0, 0x1010u));
            }
            exl2k_clear(d0);
            exl2k_clear(d1);
            exl2k_half_record<W>(d0, w, 0, x.half[2 * r]);
            exl2k_half_record<W>(d1, w, 1, x.half[2 * r + 1]);
            f32 *to = r < 2 ? sum : later;
            to[0] += fmaf(s1.low, d1[0], s0.low * d0[0]);
            to[1] += fmaf(s1.low, d1[1], s0.low * d0[1]);
            to[2] += fmaf(s1.high, d1[2], s0.high * d0[2]);
            to[3] += fmaf(s1.high, d1[3], s0.high * d0[3]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        sum[i] += later[i];
    }
}

/* ---- by width ---- */

template <u32 W, u32 S>
EXL2K_FN void exl2k_chunk_one_of(f32 sum[S][4], const u32 at[S], const exl2k_inputs<1> &x, const exl2k_task &task,
                                 u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_one<W, S>(sum, at, x, exl2k_task_records(task), lane);
    }
}

/* One row: as exl2k_finish_one. */
template <u32 S>
EXL2K_FN void exl2k_chunks_one(f32 out[S], const u32 at[S], const exl2k_inputs<1> &x, const exl2k_task &task, u32 lane)
{
    f32 sum[S][4];
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        exl2k_clear(sum[i]);
    }
    switch (exl2k_task_width(task)) {
    case EXL2K_W2: exl2k_chunk_one_of<EXL2K_W2, S>(sum, at, x, task, lane); break;
    case EXL2K_W3: exl2k_chunk_one_of<EXL2K_W3, S>(sum, at, x, task, lane); break;
    case EXL2K_W4: exl2k_chunk_one_of<EXL2K_W4, S>(sum, at, x, task, lane); break;
    case EXL2K_W5: exl2k_chunk_one_of<EXL2K_W5, S>(sum, at, x, task, lane); break;
    case EXL2K_W6: exl2k_chunk_one_of<EXL2K_W6, S>(sum, at, x, task, lane); break;
    case EXL2K_W8: exl2k_chunk_one_of<EXL2K_W8, S>(sum, at, x, task, lane); break;
    default: exl2k_chunk_one_of<EXL2K_W16, S>(sum, at, x, task, lane); break;
    }
    exl2k_finish_one<S>(out, sum, at, task, lane);
}

template <u32 W>
EXL2K_FN void exl2k_chunk_eight_of(f32 sum[4], u32 at, const exl2k_inputs<8> &x, const exl2k_task &task, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_eight<W>(sum, at, x, task, lane);
    }
}

/* Eight rows: the lane's four results: columns g (twice) and g + 8 (twice) of rows 2 t and 2 t + 1. A template, so that
   the module for one row does not compile it. */
template <u32 M>
EXL2K_FN void exl2k_chunks_eight(f32 sum[4], u32 at, const exl2k_inputs<8> &x, const exl2k_task &task, u32 lane)
{
    switch (exl2k_task_width(task)) {
    case EXL2K_W2: exl2k_chunk_eight_of<EXL2K_W2>(sum, at, x, task, lane); break;
    case EXL2K_W3: exl2k_chunk_eight_of<EXL2K_W3>(sum, at, x, task, lane); break;
    case EXL2K_W4: exl2k_chunk_eight_of<EXL2K_W4>(sum, at, x, task, lane); break;
    case EXL2K_W5: exl2k_chunk_eight_of<EXL2K_W5>(sum, at, x, task, lane); break;
    case EXL2K_W6: exl2k_chunk_eight_of<EXL2K_W6>(sum, at, x, task, lane); break;
    case EXL2K_W8: exl2k_chunk_eight_of<EXL2K_W8>(sum, at, x, task, lane); break;
    default: exl2k_chunk_eight_of<EXL2K_W16>(sum, at, x, task, lane); break;
    }
}

#endif
