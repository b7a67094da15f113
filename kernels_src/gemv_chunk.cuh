/* gemv_chunk.cuh: the product of one chunk with its inputs, for one strip or for two strips at once.
   takes: base.cuh, unpack.cuh, gemv_stream.cuh; EXL2K_WIDTHS_MASK: bits EXL2K_Wn of the widths that may occur.
   gives: exl2k_task, exl2k_task_load, exl2k_inputs, exl2k_load_input(s), exl2k_prepare_input, exl2k_chunks_one, _many.
   owns:  nothing; included by gemv.cuh only. */
#ifndef EXL2K_GEMV_CHUNK_CUH
#define EXL2K_GEMV_CHUNK_CUH

#include "gemv_stream.cuh"
#include "unpack.cuh"

/* Widths that the kernel supports, one bit each. The backend may compile the kernel for the widths of one model. */
#ifndef EXL2K_WIDTHS_MASK
#define EXL2K_WIDTHS_MASK 127
#endif

/* ---- a task: one chunk, of every strip of the run ---- */

typedef struct exl2k_task {
    u32 shape, ends; /* bytes of exl2k_chunk: width, records, groups, by_half; then ends, halves */
    u32 maximum;     /* lane t: maxima of halves 2 t and 2 t + 1; 16 rows: shared address of all maxima */
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

/* Loads the task from the chunk table. */
EXL2K_FN void exl2k_task_load(exl2k_task &t, const exl2k_part &p, u32 chunk, u32 lane)
{
    u64 at = p.chunks + chunk * sizeof(exl2k_chunk);
    t.shape = exl2k_load_constant(at + 8);
    t.ends = exl2k_load_constant(at + 12);
    t.maximum = exl2k_load_constant(at + 16 + lane % 4 * 4);
}

EXL2K_FN u32 exl2k_scale_offset(const exl2k_task &t, u32 lane)
{
    return exl2k_task_records(t) * exl2k_bits(exl2k_task_width(t)) * 128 +
           exl2k_scales_of_lane(exl2k_task_groups(t), lane);
}

/* Affine: the scale words of the lane's columns, for half `half` of the chunk at shared address `at`. */
EXL2K_FN uint2 exl2k_affine_words(u32 at, const exl2k_task &t, u32 half, u32 lane)
{
    u32 group = exl2k_task_by_half(t) ? exl2k_min(half, exl2k_task_groups(t) - 1) : exl2k_group_of_record(t, half / 2);
    return exl2k_shared_load2(at + exl2k_scale_offset(t, lane) + group * EXL2K_AFFINE_BYTES);
}

/* Affine: subtracts zero * (sum of inputs) from four raw sums. Sums 0 and 1 belong to column g, 2 and 3 to column
   g + 8; sums 0 and 2 have the zeros `first` and the inputs x[0], sums 1 and 3 `second` and x[1]. */
template <u32 W> EXL2K_FN void exl2k_subtract_zeros(f32 sum[4], u32 first, u32 second, const f32 x[2])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 pair = i % 2 ? second : first;
        f32 zero = i / 2 ? exl2k_high(pair) : exl2k_low(pair);
        sum[i] = fmaf(zero * -exl2k_power(exl2k_code_bit<W>(i / 2) - 24), x[i % 2], sum[i]);
    }
}

/* ---- inputs ---- */

/* B operands of the eight halves (runs of 32 rows) of a chunk. Many rows, 8 or 16: column g of B is row g of the
   inputs, or row 8 + g for the second tile. One row: column h of B has half h and zeros elsewhere (exl2k_spread). The
   eight columns of the result are then the sums of the eight halves, and each lane scales only two of these sums. All
   ways give the same bits, because adding a product with 0 changes nothing. */
template <u32 M> struct exl2k_inputs {
    uint4 half[M / 8][2 * EXL2K_CHUNK_RECORDS];
    u32 starts; /* address in shared memory of the initial sums, f32 [tile][half][lane % 4][4] */
};

template <> struct exl2k_inputs<1> {
    uint4 mine;  /* inputs of half g */
    f32 sums[2]; /* sums of the inputs of halves 2 t and 2 t + 1 */
    u32 ones[EXL2K_CHUNK_RECORDS]; /* exl2k_ones of each record, in registers */
};

EXL2K_FN void exl2k_clear(f32 d[4]) { d[0] = d[1] = d[2] = d[3] = 0.0f; }

/* Sums of the inputs in columns 2 t and 2 t + 1 of B. The tensor cores compute them, so that they round like the
   products. */
EXL2K_FN void exl2k_sum_inputs(f32 sums[2], const uint4 &x, u32 one = 0x3C003C00u)
{
    const u32 ones[4] = { one, one, one, one };
    f32 d[4];
    exl2k_clear(d);
    exl2k_mma(d, ones, x.x, x.y);
    exl2k_mma(d, ones, x.z, x.w);
    sums[0] = d[0];
    sums[1] = d[1];
}

/* One row: loads the lane's 8 inputs of half g of the chunk that begins at row 32 `row`. The load is issued before
   the length of the chunk is known, so it also reads halves beyond the chunk. `x`: address of the row, plus 16 t
   bytes; `rows`: rows of the matrix. */
EXL2K_FN uint4 exl2k_load_input(u64 x, u32 row, u32 rows, u32 lane)
{
    return exl2k_load4(x + exl2k_min(row + lane / 4, (rows - 1) / 32) * 64);
}

/* A half pair: the low half is 1 in the lanes of column 2 r, the high half is 1 in the lanes of column 2 r + 1, else
   0. */
EXL2K_FN u32 exl2k_ones(u32 r, u32 lane) { return lane / 8 != r ? 0 : lane & 4 ? 0x3C000000u : 0x3C00u; }

/* Makes the operands of a chunk from the loaded inputs, and sets those of halves beyond the chunk to 0. */
EXL2K_FN void exl2k_prepare_input(exl2k_inputs<1> &x, const uint4 &next_input, const exl2k_task &t, u32 lane)
{
    x.mine = lane / 4 < exl2k_task_halves(t) ? next_input : make_uint4(0, 0, 0, 0);
    exl2k_sum_inputs(x.sums, x.mine);
    exl2k_quarter_odd(x.mine, exl2k_task_width(t));
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        /* Without this instruction the compiler would compute the value again at each use. */
        asm volatile("mov.u32 %0, %1;" : "=r"(x.ones[r]) : "r"(exl2k_ones(r, lane)));
    }
}

/* Both halves of v times the lower or the upper half of `ones`. The assembler can use a half as an operand. The asm
   is volatile, because otherwise the compiler would hold the products of all eight halves, which need too many
   registers. */
template <bool UPPER> EXL2K_FN u32 exl2k_times(u32 v, u32 ones)
{
    u32 product;
    if (UPPER) {
        asm volatile("{\n.reg .f16 low, high;\n.reg .b32 twice;\nmov.b32 {low, high}, %2;\n"
                     "mov.b32 twice, {high, high};\nmul.f16x2 %0, %1, twice;\n}" : "=r"(product) : "r"(v), "r"(ones));
    } else {
        asm volatile("{\n.reg .f16 low, high;\n.reg .b32 twice;\nmov.b32 {low, high}, %2;\n"
                     "mov.b32 twice, {low, low};\nmul.f16x2 %0, %1, twice;\n}" : "=r"(product) : "r"(v), "r"(ones));
    }
    return product;
}

/* `mine` in the lanes of column 2 r (UPPER: 2 r + 1), else 0. A multiplication is cheaper than a selection. */
template <bool UPPER> EXL2K_FN uint4 exl2k_spread(const uint4 &mine, u32 ones)
{
    return make_uint4(exl2k_times<UPPER>(mine.x, ones), exl2k_times<UPPER>(mine.y, ones),
                      exl2k_times<UPPER>(mine.z, ones), exl2k_times<UPPER>(mine.w, ones));
}

/* The lane's offset among initial sums, if it is added once: what needs fewer registers depends on the assembler. */
template <u32 M> EXL2K_FN u32 exl2k_start_early(u32 lane)
{
    return M == 8 && !EXL2K_AFFINE && __CUDA_ARCH__ >= 1200 ? lane % 4 * 16 : 0;
}

/* Many rows: loads the inputs of a chunk and stores the initial sums of its halves. at: address in the lane's row,
   lane / 4, of each tile. step: bytes to the next half. starts: M * 64 bytes of the warp's own shared memory. */
template <u32 M>
EXL2K_FN void exl2k_load_inputs(exl2k_inputs<M> &x, const u64 at[M / 8], u32 step, const exl2k_task &t, u32 starts,
                                u32 lane)
{
    constexpr u32 halves = 2 * EXL2K_CHUNK_RECORDS;
    /* All loads are issued first; halves beyond the chunk are 0. */
#pragma unroll
    for (u32 tile = 0; tile < M / 8; tile++) {
#pragma unroll
        for (u32 h = 0; h < halves; h++) {
            x.half[tile][h] = h < exl2k_task_halves(t) ? exl2k_load4(at[tile] + h * step) : make_uint4(0, 0, 0, 0);
        }
    }
    /* The starts may be overwritten when all lanes have read those of the preceding chunk. */
    x.starts = starts + exl2k_start_early<M>(lane);
    bool dense = (EXL2K_WIDTHS_MASK >> EXL2K_W16 & 1) && exl2k_task_width(t) == EXL2K_W16;
    u32 one = dense ? 0 : 0x3C003C00u; /* sums of fp16 weights begin with 0 */
    f32 low = exl2k_start_factor(exl2k_task_width(t), 0), high = exl2k_start_factor(exl2k_task_width(t), 1);
    __syncwarp();
    /* Lanes 0..3 hold the sums of two rows of a tile each, and store what columns g and g + 8 begin with. */
#pragma unroll
    for (u32 i = 0; i < M; i++) {
        uint4 &v = x.half[i / halves][i % halves];
        f32 pair[2];
        exl2k_sum_inputs(pair, v, one);
        if (lane < 4) {
            uint4 start = make_uint4(__float_as_uint(pair[0] * low), __float_as_uint(pair[1] * low),
                                     __float_as_uint(pair[0] * high), __float_as_uint(pair[1] * high));
            exl2k_shared_store4(starts + i * 64 + lane * 16, start);
        }
#if __CUDA_ARCH__ >= 1000
        __syncwarp(); /* the assembler begins no later sums here, for which it would need more registers */
#endif
        exl2k_quarter_odd(v, exl2k_task_width(t));
    }
    __syncwarp();
}

/* ---- one chunk of one strip ---- */

/* Multiplies half h of a record: two steps. */
template <u32 W> EXL2K_FN void exl2k_half_record(f32 sum[4], const u32 *w, u32 h, const uint4 &x)
{
    u32 a[4];
    exl2k_decode<W, true>(w, 2 * h, a);
    exl2k_mma(sum, a, x.x, x.y);
    exl2k_decode<W, true>(w, 2 * h + 1, a);
    exl2k_mma(sum, a, x.z, x.w);
}

/* One row: multiplies record r of a chunk, of S strips. The instructions of two strips hide each other's latencies.
   ones: of record r. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_record_one(f32 sum[S][4], const u32 at[S], const uint4 &mine, u32 ones, u32 r, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    uint4 x0 = exl2k_spread<false>(mine, ones), x1 = exl2k_spread<true>(mine, ones);
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        u32 w[bits];
        exl2k_lane_words<W>(at[i] + r * bits * 128, lane, w);
        exl2k_half_record<W>(sum[i], w, 0, x0);
        exl2k_half_record<W>(sum[i], w, 1, x1);
    }
}

/* One row: the sums of all halves of a chunk. Chunks of four records of 2 to 4 bits, the most frequent kind, need no
   loop. */
template <u32 W, u32 S>
EXL2K_FN void exl2k_chunk_one(f32 sum[S][4], const u32 at[S], const exl2k_inputs<1> &x, u32 records, u32 lane)
{
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        exl2k_sum_start<W>(sum[i], x.sums);
    }
    /* Multiply four records without a loop, or any number of records in a loop. */
    if (!EXL2K_LARGE && exl2k_width<W>::bits <= 4 && S == 2 && records == EXL2K_CHUNK_RECORDS) {
#pragma unroll
        for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
            exl2k_record_one<W, S>(sum, at, x.mine, x.ones[r], r, lane);
        }
        return;
    }
#pragma unroll 1
    for (u32 r = 0; r < records; r++) {
        exl2k_record_one<W, S>(sum, at, x.mine, exl2k_ones(r, lane), r, lane);
    }
}

/* Scales fp16(level^2 * maximum) of columns g and g + 8, as floats; dense: 1. */
typedef struct exl2k_scales { f32 low, high; } exl2k_scales;

EXL2K_FN exl2k_scales exl2k_scales_of(u32 word, u32 g, u32 maximum)
{
    u32 pair = exl2k_scale_pair(word, g, maximum);
    return exl2k_scales{ exl2k_low(pair), exl2k_high(pair) };
}

/* One row: scales the sums of the halves and adds them up. out[i], for strip i of S: lane t = 0 has the sum of
   column g, lane t = 1 that of column g + 8. */
template <u32 S>
EXL2K_FN void exl2k_finish_one(f32 out[S], const f32 sum[S][4], f32 unit, const u32 at[S], const exl2k_task &task,
                               u32 lane)
{
    u32 t = lane % 4, groups = exl2k_task_groups(task), column = exl2k_scale_offset(task, lane);
    u32 first[S], second[S]; /* scales of halves 2 t and 2 t + 1 */
    /* Decode the scales. Each half may have a scale word of its own, or whole records share one. */
    if (EXL2K_AFFINE) {
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            first[i] = exl2k_affine_scales(exl2k_affine_words(at[i], task, 2 * t, lane));
            second[i] = exl2k_affine_scales(exl2k_affine_words(at[i], task, 2 * t + 1, lane));
        }
    } else if (exl2k_task_by_half(task)) {
        column += exl2k_min(t * 2, groups - 2) * 4;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            uint2 words = exl2k_shared_load2(at[i] + column);
            first[i] = exl2k_scale_pair(words.x, lane / 4, exl2k_permute_bytes(task.maximum, 0, 0x1010u));
            second[i] = exl2k_scale_pair(words.y, lane / 4, exl2k_permute_bytes(task.maximum, 0, 0x3232u));
        }
    } else {
        column += groups > 0 ? exl2k_group_of_record(task, t) * 4 : 0;
#pragma unroll
        for (u32 i = 0; i < S; i++) {
            u32 pair = exl2k_scale_pair(exl2k_shared_load(at[i] + column), lane / 4,
                                        exl2k_permute_bytes(task.maximum, 0, 0x1010u));
            first[i] = second[i] = groups > 0 ? pair : 0x3C003C00u;
        }
    }
    /* The four lanes of a column add up the halves. Lanes t = 0, 2 end with column g; 1, 3 with g + 8. */
#pragma unroll
    for (u32 i = 0; i < S; i++) {
        f32 low = fmaf(exl2k_low(second[i]), sum[i][1], exl2k_low(first[i]) * sum[i][0]);
        f32 high = fmaf(exl2k_high(second[i]), sum[i][3], exl2k_high(first[i]) * sum[i][2]);
        f32 mine = lane & 1 ? high : low, other = lane & 1 ? low : high;
        mine += __shfl_xor_sync(EXL2K_ALL, other, 1);
        out[i] = (mine + __shfl_xor_sync(EXL2K_ALL, mine, 2)) * unit;
    }
}

/* Many rows: the sums of half h of a record, of each tile; it is half `half` of the chunk. zeros: of the half, if
   affine. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_half_many(f32 sum[M / 8][4], const u32 *w, u32 h, const exl2k_inputs<M> &x, u32 half, u32 zeros,
                              u32 lane)
{
    u32 a[4];
#pragma unroll
    for (u32 tile = 0; tile < M / 8; tile++) {
        uint4 v = exl2k_shared_load4(x.starts + (tile * 8 + half) * 64 + lane % 4 * 16 - exl2k_start_early<M>(lane));
        sum[tile][0] = __uint_as_float(v.x);
        sum[tile][1] = __uint_as_float(v.y);
        sum[tile][2] = __uint_as_float(v.z);
        sum[tile][3] = __uint_as_float(v.w);
    }
    /* All tiles share the decoded operands of a step. */
#pragma unroll
    for (u32 step = 0; step < 2; step++) {
        exl2k_decode<W, true>(w, 2 * h + step, a);
#pragma unroll
        for (u32 tile = 0; tile < M / 8; tile++) {
            const uint4 &b = x.half[tile][half];
            exl2k_mma(sum[tile], a, step ? b.z : b.x, step ? b.w : b.y);
        }
    }
#pragma unroll
    for (u32 tile = 0; EXL2K_AFFINE && M == 8 && tile < M / 8; tile++) {
        /* The sums of inputs follow from the initial sums. 16 rows: exl2k_kept_half subtracts. */
        uint2 v = exl2k_shared_load2(x.starts + (tile * 8 + half) * 64 + lane % 4 * 16 - exl2k_start_early<M>(lane));
        f32 back = 1.0f / exl2k_sum_centre<W>(0);
        f32 sums[2] = { __uint_as_float(v.x) * back, __uint_as_float(v.y) * back };
        exl2k_subtract_zeros<W>(sum[tile], zeros, zeros, sums);
    }
}

/* Many rows: multiplies a chunk. Sums of halves are scaled and added in the same order as in exl2k_finish_one. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_chunk_many(f32 sum[M / 8][4], u32 at, const exl2k_inputs<M> &x, const exl2k_task &task, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr u32 most = bits <= 4 ? 4 : bits <= 8 ? 16 / bits : 1;
#if EXL2K_AFFINE
    asm volatile("" : "+r"(lane)); /* what lanes need is computed here, and keeps no registers between chunks */
#endif
    u32 g = lane / 4, column = at + exl2k_scale_offset(task, lane);
    f32 later[M / 8][4];
#pragma unroll
    for (u32 tile = 0; tile < M / 8; tile++) {
        exl2k_clear(sum[tile]);
        exl2k_clear(later[tile]);
    }
    /* Record by record; a chunk of more bits has fewer records. */
#pragma unroll
    for (u32 r = 0; r < most; r++) {
        if (r < exl2k_task_records(task)) {
            u32 w[bits];
            f32 d0[M / 8][4], d1[M / 8][4];
            exl2k_scales s0 = { 1.0f, 1.0f }, s1 = s0;
            exl2k_lane_words<W>(at + r * bits * 128, lane, w);
            /* Decode the scales of the record's two halves. */
            u32 maximum = 0, z0 = 0, z1 = 0;
            if (bits < 16 && !EXL2K_AFFINE) {
                maximum = M == 16 ? exl2k_shared_load(task.maximum + r * 4)
                                  : __shfl_sync(EXL2K_ALL, task.maximum, r);
            }
            if (EXL2K_AFFINE) {
                uint2 v = exl2k_affine_words(at, task, 2 * r, lane);
                u32 pair = exl2k_affine_scales(v);
                s0 = exl2k_scales{ exl2k_low(pair), exl2k_high(pair) };
                z0 = exl2k_affine_zeros(v);
            } else if (bits < 16 && exl2k_task_by_half(task)) {
                uint2 words = exl2k_shared_load2(column + r * 8);
                s0 = exl2k_scales_of(words.x, g, exl2k_permute_bytes(maximum, 0, 0x1010u));
                s1 = exl2k_scales_of(words.y, g, exl2k_permute_bytes(maximum, 0, 0x3232u));
            } else if (bits < 16) {
                u32 word = exl2k_shared_load(column + exl2k_group_of_record(task, r) * 4);
                s0 = s1 = exl2k_scales_of(word, g, exl2k_permute_bytes(maximum, 0, 0x1010u));
            }
            /* The products of each half are scaled, then added. Records 2 and 3 have sums of their own. */
            exl2k_half_many<W, M>(d0, w, 0, x, 2 * r, z0, lane);
            if (EXL2K_AFFINE) { /* after the first half, as registers are scarce */
                __syncwarp();
                uint2 v = exl2k_affine_words(at, task, 2 * r + 1, lane);
                u32 pair = exl2k_affine_scales(v);
                s1 = exl2k_scales{ exl2k_low(pair), exl2k_high(pair) };
                z1 = exl2k_affine_zeros(v);
            }
            exl2k_half_many<W, M>(d1, w, 1, x, 2 * r + 1, z1, lane);
#pragma unroll
            for (u32 tile = 0; tile < M / 8; tile++) {
                f32 *to = r < 2 ? sum[tile] : later[tile];
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    f32 first = i < 2 ? s0.low : s0.high, second = i < 2 ? s1.low : s1.high;
                    to[i] += fmaf(second, d1[tile][i], first * d0[tile][i]);
                }
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < M / 2; i++) {
        sum[i / 4][i % 4] = (sum[i / 4][i % 4] + later[i / 4][i % 4]) * exl2k_sum_unit<W>(i % 4 / 2);
    }
}

/* ---- one instance per width ---- */

template <u32 W, u32 S>
EXL2K_FN f32 exl2k_chunk_one_of(f32 sum[S][4], const u32 at[S], const exl2k_inputs<1> &x, const exl2k_task &task,
                                u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_one<W, S>(sum, at, x, exl2k_task_records(task), lane);
#pragma unroll
        for (u32 i = 0; EXL2K_AFFINE && i < S; i++) {
            u32 first = exl2k_affine_zeros(exl2k_affine_words(at[i], task, lane % 4 * 2, lane));
            u32 second = exl2k_affine_zeros(exl2k_affine_words(at[i], task, lane % 4 * 2 + 1, lane));
            exl2k_subtract_zeros<W>(sum[i], first, second, x.sums);
        }
    }
    return lane & 1 ? exl2k_sum_unit<W>(1) : exl2k_sum_unit<W>(0);
}

/* One row: the product of a chunk, with results as in exl2k_finish_one. */
template <u32 S>
EXL2K_FN void exl2k_chunks_one(f32 out[S], const u32 at[S], const exl2k_inputs<1> &x, const exl2k_task &task, u32 lane)
{
    f32 sum[S][4], unit;
    switch (exl2k_task_width(task)) {
    case EXL2K_W2: unit = exl2k_chunk_one_of<EXL2K_W2, S>(sum, at, x, task, lane); break;
    case EXL2K_W3: unit = exl2k_chunk_one_of<EXL2K_W3, S>(sum, at, x, task, lane); break;
    case EXL2K_W4: unit = exl2k_chunk_one_of<EXL2K_W4, S>(sum, at, x, task, lane); break;
    case EXL2K_W5: unit = exl2k_chunk_one_of<EXL2K_W5, S>(sum, at, x, task, lane); break;
    case EXL2K_W6: unit = exl2k_chunk_one_of<EXL2K_W6, S>(sum, at, x, task, lane); break;
    case EXL2K_W8: unit = exl2k_chunk_one_of<EXL2K_W8, S>(sum, at, x, task, lane); break;
    default: unit = exl2k_chunk_one_of<EXL2K_W16, S>(sum, at, x, task, lane); break;
    }
    exl2k_finish_one<S>(out, sum, unit, at, task, lane);
}

template <u32 W, u32 M>
EXL2K_FN void exl2k_chunk_many_of(f32 sum[M / 8][4], u32 at, const exl2k_inputs<M> &x, const exl2k_task &task, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        exl2k_chunk_many<W, M>(sum, at, x, task, lane);
    }
}

/* Many rows: the lane's four results of each tile: column g (two of them) and g + 8 (two) of its rows 2 t and
   2 t + 1. */
template <u32 M>
EXL2K_FN void exl2k_chunks_many(f32 sum[M / 8][4], u32 at, const exl2k_inputs<M> &x, const exl2k_task &task, u32 lane)
{
    switch (exl2k_task_width(task)) {
    case EXL2K_W2: exl2k_chunk_many_of<EXL2K_W2, M>(sum, at, x, task, lane); break;
    case EXL2K_W3: exl2k_chunk_many_of<EXL2K_W3, M>(sum, at, x, task, lane); break;
    case EXL2K_W4: exl2k_chunk_many_of<EXL2K_W4, M>(sum, at, x, task, lane); break;
    case EXL2K_W5: exl2k_chunk_many_of<EXL2K_W5, M>(sum, at, x, task, lane); break;
    case EXL2K_W6: exl2k_chunk_many_of<EXL2K_W6, M>(sum, at, x, task, lane); break;
    case EXL2K_W8: exl2k_chunk_many_of<EXL2K_W8, M>(sum, at, x, task, lane); break;
    default: exl2k_chunk_many_of<EXL2K_W16, M>(sum, at, x, task, lane); break;
    }
}

#endif
