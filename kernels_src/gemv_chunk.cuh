/* gemv_chunk.cuh: the product of one chunk of one strip with its inputs.
   takes: base.cuh, unpack.cuh, gemv_stream.cuh; EXL2K_WIDTHS_MASK: bits EXL2K_Wn of the widths that may occur.
   gives: exl2k_inputs, exl2k_load_input(s), exl2k_spread_input, exl2k_chunk_product.
   owns:  nothing; included by gemv.cu only.
   next:  gemv_out.cuh */
#ifndef EXL2K_GEMV_CHUNK_CUH
#define EXL2K_GEMV_CHUNK_CUH

#include "gemv_stream.cuh"
#include "unpack.cuh"

/* Widths that the kernel can meet: a bit for each; the host may compile for those of one model. */
#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* ---- inputs ---- */

/* B operands of the eight halves (runs of 32 rows) of a chunk. Eight rows: the lane's row g. One row: column h of B has
   half h and no other, so that the eight columns of the result are the sums of the eight halves, and each lane scales
   only two of them. Sums of halves have the same bits either way: adding products that are 0 changes nothing. */
typedef struct exl2k_inputs {
    uint4 half[2 * EXL2K_CHUNK_RECORDS];
    uint4 maxima; /* eight rows: of the halves */
} exl2k_inputs;

/* One row: the lane's 8 inputs of half g. `x`: of the row, + 16 t bytes; rows: of the matrix. */
EXL2K_FN uint4 exl2k_load_input(u64 x, const exl2k_task &t, u32 rows, u32 lane)
{
    u32 row = t.row + lane / 4;
    bool there = lane / 4 < 2 * exl2k_task_records(t) && row * 32 < rows + 32;
    return there ? exl2k_load4(x + row * 64) : make_uint4(0, 0, 0, 0);
}

/* One row: inputs of the first task of a block. */
template <u32 M> EXL2K_FN uint4 exl2k_first_input(u64 x, const exl2k_task &t, u32 rows, u32 lane)
{
    return M == 1 && t.strips > 0 ? exl2k_load_input(x, t, rows, lane) : make_uint4(0, 0, 0, 0);
}

EXL2K_FN void exl2k_spread_input(exl2k_inputs &x, uint4 mine, u32 lane)
{
#pragma unroll
    for (u32 h = 0; h < 2 * EXL2K_CHUNK_RECORDS; h++) {
        u32 keep = lane / 4 == h ? 0xFFFFFFFFu : 0;
        x.half[h] = make_uint4(mine.x & keep, mine.y & keep, mine.z & keep, mine.w & keep);
    }
}

/* Eight rows. `entry`: of the chunk. */
EXL2K_FN void exl2k_load_inputs(exl2k_inputs &x, u64 at, u32 records, u64 entry)
{
    x.maxima = exl2k_load_constant4(entry + 16);
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        if (r < records) {
            x.half[2 * r] = exl2k_load4(at + r * 128);
            x.half[2 * r + 1] = exl2k_load4(at + r * 128 + 64);
        }
    }
}

/* ---- one chunk of one strip ---- */

EXL2K_FN void exl2k_clear(f32 d[4])
{
    d[0] = d[1] = d[2] = d[3] = 0.0f;
}

/* Half h of a record: two steps. */
template <u32 W> EXL2K_FN void exl2k_half_record(f32 d[4], const u32 *w, u32 h, const uint4 &x)
{
    u32 a[4];
    exl2k_decode<W>(w, 2 * h, a);
    exl2k_mma(d, a, x.x, x.y);
    exl2k_decode<W>(w, 2 * h + 1, a);
    exl2k_mma(d, a, x.z, x.w);
}

/* One row: sums of the even and of the odd halves of all records, of S strips side by side. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_chunk_one(f32 even[S][4], f32 odd[S][4], const u32 at[S], const exl2k_inputs &x, u32 records,
                              u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr u32 most = bits <= 4 ? 4 : bits <= 8 ? 16 / bits : 1; /* records that fit a chunk */
#pragma unroll
    for (u32 r = 0; r < most; r++) {
        if (r < records) {
            u32 w[S][bits];
#pragma unroll
            for (u32 i = 0; i < S; i++) {
                exl2k_lane_words<W>(at[i] + r * bits * 128, lane, w[i]);
            }
#pragma unroll
            for (u32 i = 0; i < S; i++) {
                exl2k_half_record<W>(even[i], w[i], 0, x.half[2 * r]);
                exl2k_half_record<W>(odd[i], w[i], 1, x.half[2 * r + 1]);
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

/* Scale word of record r among the groups of a chunk whose groups are whole records. */
EXL2K_FN u32 exl2k_group_of_record(const exl2k_task &t, u32 r)
{
    return exl2k_min(__popc(t.ends & ((1u << r) - 1)), (t.shape >> 16 & 255) - 1);
}

/* One row: sum[0] of column g, sum[2] of g + 8, complete in lanes t = 0 and t = 1; of S strips, whose scale words begin
   at scales[]. */
template <u32 S>
EXL2K_FN void exl2k_finish_one(f32 sum[S][4], const f32 even[S][4], const f32 odd[S][4], const u32 scales[S],
                               const exl2k_task &task, u32 lane)
{
    u32 g = lane / 4, t = lane % 4, groups = task.shape >> 16 & 255, column = g / 4 * groups * 4;
    exl2k_scales s0[S], s1[S];
    if (task.shape >> 24) {
        u32 at = column + exl2k_min(t, groups / 2 - 1) * 8;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            uint2 words = exl2k_shared_load2(scales[i] + at);
            s0[i] = exl2k_scales_of(words.x, g, exl2k_permute(task.maximum, 0, 0x1010u));
            s1[i] = exl2k_scales_of(words.y, g, exl2k_permute(task.maximum, 0, 0x3232u));
        }
    } else if (groups > 0) {
        u32 at = column + exl2k_group_of_record(task, t) * 4;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            s0[i] = s1[i] = exl2k_scales_of(exl2k_shared_load(scales[i] + at), g,
                                            exl2k_permute(task.maximum, 0, 0x1010u));
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            s0[i] = s1[i] = exl2k_scales{ 1.0f, 1.0f };
        }
    }
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        f32 low = fmaf(s1[i].low, odd[i][1], s0[i].low * even[i][0]);
        f32 high = fmaf(s1[i].high, odd[i][3], s0[i].high * even[i][2]);
        f32 mine = t & 1 ? high : low, other = t & 1 ? low : high; /* lanes t = 0, 2: column g; 1, 3: g + 8 */
        mine += __shfl_xor_sync(EXL2K_ALL, other, 1);
        mine += __shfl_xor_sync(EXL2K_ALL, mine, 2);
        sum[i][0] = sum[i][2] = mine;
    }
}

/* Eight rows: sums of halves are scaled and added in the order of exl2k_finish_one. */
template <u32 W>
EXL2K_FN void exl2k_chunk_eight(f32 sum[4], u32 at, const exl2k_inputs &x, const exl2k_task &task, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr u32 most = bits <= 4 ? 4 : bits <= 8 ? 16 / bits : 1;
    u32 records = exl2k_task_records(task), groups = task.shape >> 16 & 255, g = lane / 4;
    u32 column = at + records * bits * 128 + g / 4 * groups * 4;
    f32 later[4];
    exl2k_clear(later);
#pragma unroll
    for (u32 r = 0; r < most; r++) {
        if (r < records) {
            u32 w[bits];
            f32 d0[4], d1[4];
            exl2k_scales s0 = { 1.0f, 1.0f }, s1 = s0;
            exl2k_lane_words<W>(at + r * bits * 128, lane, w);
            u32 maximum = r == 0 ? x.maxima.x : r == 1 ? x.maxima.y : r == 2 ? x.maxima.z : x.maxima.w;
            if (bits < 16 && task.shape >> 24) {
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
    for (u32 i = 0; i < 4; i++) {
        sum[i] += later[i];
    }
}

/* One row. even, odd: scratch. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_chunk_one_of(f32 even[S][4], f32 odd[S][4], const u32 at[S], const exl2k_inputs &x,
                                 const exl2k_task &task, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_one<W, S>(even, odd, at, x, exl2k_task_records(task), lane);
    }
}

template <u32 W>
EXL2K_FN void exl2k_chunk_eight_of(f32 sum[4], u32 at, const exl2k_inputs &x, const exl2k_task &task, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_eight<W>(sum, at, x, task, lane);
    }
}

/* sum = the products of the chunk `task` of S strips, which lie at at[]. */
template <u32 M, u32 S>
EXL2K_FN void exl2k_chunk_product(f32 sum[S][4], const u32 at[S], const exl2k_inputs &x, const exl2k_task &task,
                                  u32 lane)
{
    if constexpr (M == 1) {
        f32 even[S][4], odd[S][4];
        for (u32 i = 0; i < S; i++) {
            exl2k_clear(even[i]);
            exl2k_clear(odd[i]);
        }
        switch (task.shape & 255) {
        case EXL2K_W2: exl2k_chunk_one_of<EXL2K_W2, S>(even, odd, at, x, task, lane); break;
        case EXL2K_W3: exl2k_chunk_one_of<EXL2K_W3, S>(even, odd, at, x, task, lane); break;
        case EXL2K_W4: exl2k_chunk_one_of<EXL2K_W4, S>(even, odd, at, x, task, lane); break;
        case EXL2K_W5: exl2k_chunk_one_of<EXL2K_W5, S>(even, odd, at, x, task, lane); break;
        case EXL2K_W6: exl2k_chunk_one_of<EXL2K_W6, S>(even, odd, at, x, task, lane); break;
        case EXL2K_W8: exl2k_chunk_one_of<EXL2K_W8, S>(even, odd, at, x, task, lane); break;
        default: exl2k_chunk_one_of<EXL2K_W16, S>(even, odd, at, x, task, lane); break;
        }
        u32 scales[S];
        for (u32 i = 0; i < S; i++) {
            scales[i] = at[i] + exl2k_task_records(task) * exl2k_bits(task.shape & 255) * 128;
        }
        exl2k_finish_one<S>(sum, even, odd, scales, task, lane);
    } else {
        exl2k_clear(sum[0]);
        switch (task.shape & 255) {
        case EXL2K_W2: exl2k_chunk_eight_of<EXL2K_W2>(sum[0], at[0], x, task, lane); break;
        case EXL2K_W3: exl2k_chunk_eight_of<EXL2K_W3>(sum[0], at[0], x, task, lane); break;
        case EXL2K_W4: exl2k_chunk_eight_of<EXL2K_W4>(sum[0], at[0], x, task, lane); break;
        case EXL2K_W5: exl2k_chunk_eight_of<EXL2K_W5>(sum[0], at[0], x, task, lane); break;
        case EXL2K_W6: exl2k_chunk_eight_of<EXL2K_W6>(sum[0], at[0], x, task, lane); break;
        case EXL2K_W8: exl2k_chunk_eight_of<EXL2K_W8>(sum[0], at[0], x, task, lane); break;
        default: exl2k_chunk_eight_of<EXL2K_W16>(sum[0], at[0], x, task, lane); break;
        }
    }
}

#endif
