/* gemv_whole.cuh: whole chunks (four records of 2 to 4 bits) of 8 rows of large matrices, and their inputs.
   takes: what gemv.cuh defines before it includes this file.
   gives: exl2k_whole_inputs, exl2k_whole, _of, _scales, _many.
   owns:  nothing; included by gemv.cuh only. */
#ifndef EXL2K_GEMV_WHOLE_CUH
#define EXL2K_GEMV_WHOLE_CUH

/* ---- inputs ---- */

/* Loads the inputs of a chunk and stores the initial sums of its halves, as exl2k_load_inputs does. */
template <u32 M>
EXL2K_FN void exl2k_whole_inputs(exl2k_inputs<M> &x, const u64 at[M / 8], u32 step, const exl2k_task &t, u32 starts,
                                u32 lane)
{
    constexpr u32 halves = 2 * EXL2K_CHUNK_RECORDS;
    /* All loads are issued first; halves beyond the chunk are 0. */
#pragma unroll
    for (u32 i = 0; i < M; i++) {
        u32 h = i % halves;
        bool has = h < exl2k_task_halves(t);
        x.half[i / halves][h] = has ? exl2k_load4(at[i / halves] + h * step) : make_uint4(0, 0, 0, 0);
    }
    bool dense = (EXL2K_WIDTHS_MASK >> EXL2K_W16 & 1) && exl2k_task_width(t) == EXL2K_W16;
    u32 one = dense ? 0 : 0x3C003C00u; /* sums of fp16 weights begin with 0 */
    /* Row h of A is 1 and all others are 0, so that row h of the result is the sum of half h: what a product with 0
       adds changes nothing. Even and odd halves have accumulators of their own, which makes short chains. */
    f32 d[M / 8][2][4];
#pragma unroll
    for (u32 i = 0; i < M / 4; i++) {
        exl2k_clear(d[i / 2][i % 2]);
    }
#pragma unroll
    for (u32 h = 0; h < halves; h++) {
        u32 mine = lane / 4 == h ? one : 0;
        const u32 a[4] = { mine, 0, mine, 0 };
#pragma unroll
        for (u32 tile = 0; tile < M / 8; tile++) {
            const uint4 &v = x.half[tile][h];
            exl2k_mma(d[tile][h % 2], a, v.x, v.y);
            exl2k_mma(d[tile][h % 2], a, v.z, v.w);
        }
    }
    /* Lane 4 g + t has the sums of half g of rows 2 t and 2 t + 1, and stores what columns g and g + 8 begin with, when
       all lanes have read the starts of the preceding chunk. */
    f32 low = exl2k_start_factor(exl2k_task_width(t), 0), high = exl2k_start_factor(exl2k_task_width(t), 1);
    x.starts = starts;
    __syncwarp();
#pragma unroll
    for (u32 tile = 0; tile < M / 8; tile++) {
        f32 first = d[tile][0][0] + d[tile][1][0], second = d[tile][0][1] + d[tile][1][1];
        exl2k_shared_store4(starts + tile * 512 + lane * 16,
                            make_uint4(__float_as_uint(first * low), __float_as_uint(second * low),
                                       __float_as_uint(first * high), __float_as_uint(second * high)));
    }
    if (exl2k_task_width(t) == EXL2K_W2) {
#pragma unroll
        for (u32 i = 0; i < M; i++) {
            exl2k_quarter_odd(x.half[i / halves][i % halves], EXL2K_W2);
        }
    }
    __syncwarp();
}

/* ---- products ---- */

/* What lane t needs to decode the scales of record t, in few registers. plan: where the scale words are in a chunk;
   from bit 16 on the width, or EXL2K_WIDTHS if the chunk is not whole; bit 24: by_half. maxima: of the two halves. */
typedef struct exl2k_whole { u32 plan, maxima; } exl2k_whole;

EXL2K_FN exl2k_whole exl2k_whole_of(const exl2k_task &task, u32 maxima, u32 lane)
{
    u32 by_half = exl2k_task_by_half(task), width = exl2k_task_width(task), t = lane % 4;
    u32 words = exl2k_scale_offset(task, lane) + (by_half ? 2 * t : exl2k_group_of_record(task, t)) * 4;
    width = exl2k_task_records(task) == EXL2K_CHUNK_RECORDS && width <= EXL2K_W4 ? width : EXL2K_WIDTHS;
    exl2k_whole w = { words | width << 16 | by_half << 24, maxima };
    exl2k_opaque(w.plan);
    return w;
}

/* Scales of both halves of record t of the chunk at shared address `at`, as half pairs. */
EXL2K_FN uint2 exl2k_whole_scales(const exl2k_whole &w, u32 at, u32 lane)
{
    uint2 v;
    at += w.plan & 0xFFFF;
    if (w.plan >> 24) {
        v = exl2k_shared_load2(at);
    } else {
        v.x = v.y = exl2k_shared_load(at);
    }
    return make_uint2(exl2k_scale_pair(v.x, lane / 4, exl2k_permute_bytes(w.maxima, 0, 0x1010u)),
                      exl2k_scale_pair(v.y, lane / 4, exl2k_permute_bytes(w.maxima, 0, 0x3232u)));
}

/* The products of a whole chunk: the same results as exl2k_chunk_many's. Lane t decodes the scales of record t, and the
   four lanes of a column exchange them. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_whole_many(f32 sum[M / 8][4], u32 at, const exl2k_inputs<M> &x, const exl2k_whole &whole, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr f32 unit[2] = { exl2k_sum_unit<W>(0), exl2k_sum_unit<W>(1) };
    uint2 pairs = exl2k_whole_scales(whole, at, lane);
    f32 later[M / 8][4];
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        u32 w[bits];
        f32 d0[M / 8][4], d1[M / 8][4], scale[4]; /* of the first half, columns g and g + 8; of the second */
        u32 first = __shfl_sync(EXL2K_ALL, pairs.x, r, 4), second = __shfl_sync(EXL2K_ALL, pairs.y, r, 4);
        scale[0] = exl2k_low(first);
        scale[1] = exl2k_high(first);
        scale[2] = exl2k_low(second);
        scale[3] = exl2k_high(second);
        exl2k_lane_words<W>(at + r * bits * 128, lane, w);
        exl2k_half_many<W, M>(d0, w, 0, x, 2 * r, 0, lane);
        exl2k_half_many<W, M>(d1, w, 1, x, 2 * r + 1, 0, lane);
#pragma unroll
        for (u32 i = 0; i < M / 2; i++) {
            u32 c = i % 4 / 2;
            f32 s = fmaf(scale[2 + c], d1[i / 4][i % 4], scale[c] * d0[i / 4][i % 4]);
            f32 &to = r < 2 ? sum[i / 4][i % 4] : later[i / 4][i % 4];
            to = r % 2 ? to + s : s;
        }
    }
#pragma unroll
    for (u32 i = 0; i < M / 2; i++) {
        sum[i / 4][i % 4] = (sum[i / 4][i % 4] + later[i / 4][i % 4]) * unit[i % 4 / 2];
    }
}

#endif
