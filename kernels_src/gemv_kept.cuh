/* gemv_kept.cuh: a warp's tasks in a block of a product of 16 rows. Registers hold the inputs of a task, so shared
   memory holds what is not needed for every strip. Nothing is loaded in advance but the next table entry.
   takes: what gemv.cuh defines before it includes this file.
   gives: exl2k_kept, exl2k_kept_store, _load, _block; exl2k_gemv_block_kept; for 8 rows of large matrices, too:
          exl2k_kept_inputs, exl2k_whole, _of, _scales, _many.
   owns:  nothing; included by gemv.cuh only. */
#ifndef EXL2K_GEMV_KEPT_CUH
#define EXL2K_GEMV_KEPT_CUH

/* What a warp keeps: its task, as in exl2k_work, and what the kernel needs again after a block. */
typedef struct exl2k_kept {
    uint4 entry[2][2]; /* table entries (exl2k_chunk) of the task and of the next one, by the parity of the chunk */
    u32 piece, stride, sums, sums_end; /* sums: lane 0's, from strip to strip in steps of stride; = sums_end: no task */
    u32 chunk, end, row, first;
    u32 begin, rows, all_sums, small, starts; /* first strip of the block; rows of the launch; addresses */
    u32 chain; /* as exl2k_work.chain */
    u32 unused[2];
} exl2k_kept;

static_assert(sizeof(exl2k_kept) == 128, "exl2k_small_starts");

EXL2K_FN void exl2k_kept_store(exl2k_kept *kept, const exl2k_work &w, u32 stride)
{
    __syncwarp();
    if (exl2k_lane<16>() == 0) {
        kept->piece = w.run.piece;
        kept->stride = stride;
        kept->sums = w.sums;
        kept->sums_end = w.sums + w.run.own * stride;
        kept->chunk = w.chunk;
        kept->end = w.end;
        kept->row = w.row;
        kept->first = w.first;
        if (EXL2K_CHAIN) {
            kept->chain = w.chain;
        }
    }
    __syncwarp();
}

EXL2K_FN void exl2k_kept_block(exl2k_kept *kept, exl2k_span block, u32 rows, u32 sums, u32 small)
{
    if (exl2k_lane<16>() == 0) {
        kept->begin = block.begin;
        kept->rows = rows;
        kept->all_sums = sums;
        kept->small = small;
        u32 warp = exl2k_thread<16>() / EXL2K_WARP;
        kept->starts = small + exl2k_small_starts<16>() + warp * EXL2K_STARTS_BYTES(EXL2K_AFFINE);
    }
    __syncwarp();
}

/* Starts to load the table entry of a chunk. */
EXL2K_FN void exl2k_kept_load(exl2k_kept *kept, const exl2k_gemv_args &a, u32 part, u32 chunk)
{
    u32 lane = exl2k_lane<16>();
    if (lane < 2) {
        u64 entry = a.matrix.part[part].chunks + chunk * sizeof(exl2k_chunk);
        exl2k_copy16(exl2k_shared(&kept->entry[chunk % 2][lane]), entry + lane * 16);
    }
    exl2k_copy_commit();
}

/* The task, whose entry has arrived. */
EXL2K_FN exl2k_task exl2k_kept_task(const exl2k_kept *kept)
{
    u32 entry = exl2k_shared(kept->entry[kept->chunk % 2]);
    uint2 words = exl2k_shared_load2(entry + 8);
    return exl2k_task{ words.x, words.y, entry + 16 };
}

/* Moves to the next task, and starts to load its table entry, which that of the same run has been. */
EXL2K_FN void exl2k_kept_next(exl2k_kept *kept, const exl2k_gemv_args &a, u32 halves)
{
    exl2k_role role = exl2k_role_of_warp<16>(a);
    exl2k_work w;
    w.run.piece = kept->piece;
    w.run.own = (kept->sums_end - kept->sums) / kept->stride;
    w.sums = kept->sums;
    w.chunk = kept->chunk + 1;
    w.end = kept->end;
    w.row = kept->row + halves;
    w.first = false;
    w.chain = 0; /* running sums: a slice has one chunk */
    exl2k_work_next<16>(w, a, role, exl2k_block_at<16>(a, kept->begin), kept->all_sums);
    exl2k_kept_store(kept, w, w.first ? exl2k_work_stride<16>(w, a) : kept->stride);
    if (w.first && w.run.own > 0) {
        exl2k_kept_load(kept, a, w.run.part, w.chunk);
    }
}

/* ---- inputs ---- */

/* Loads the inputs of a chunk and stores the initial sums of its halves, as exl2k_load_inputs does. */
template <u32 M>
EXL2K_FN void exl2k_kept_inputs(exl2k_inputs<M> &x, const u64 at[M / 8], u32 step, const exl2k_task &t, u32 starts,
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

/* ---- whole chunks: four records of 2 to 4 bits, the most frequent kind ---- */

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
   four lanes of a column exchange them: with 16 rows through shared memory, as shuffles cost registers there. In it,
   exl2k_sum_unit, a power of 2, is part of them. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_whole_many(f32 sum[M / 8][4], u32 at, const exl2k_inputs<M> &x, const exl2k_whole &whole, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    constexpr f32 unit[2] = { exl2k_sum_unit<W>(0), exl2k_sum_unit<W>(1) };
    uint2 pairs = exl2k_whole_scales(whole, at, lane);
    u32 table = x.starts + EXL2K_STARTS_SCALES + lane / 4 * 16;
    if (M == 16) {
        f32 first[2] = { exl2k_low(pairs.x) * unit[0], exl2k_high(pairs.x) * unit[1] };
        f32 second[2] = { exl2k_low(pairs.y) * unit[0], exl2k_high(pairs.y) * unit[1] };
        exl2k_shared_store4(table + lane % 4 * 128, make_uint4(__float_as_uint(first[0]), __float_as_uint(first[1]),
                                                               __float_as_uint(second[0]), __float_as_uint(second[1])));
        __syncwarp();
    }
    f32 later[M / 8][4];
#pragma unroll
    for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
        u32 w[bits];
        f32 d0[M / 8][4], d1[M / 8][4], scale[4]; /* of the first half, columns g and g + 8; of the second */
        if (M == 16) {
            uint4 v = exl2k_shared_load4(table + r * 128);
            scale[0] = __uint_as_float(v.x);
            scale[1] = __uint_as_float(v.y);
            scale[2] = __uint_as_float(v.z);
            scale[3] = __uint_as_float(v.w);
        } else {
            u32 first = __shfl_sync(EXL2K_ALL, pairs.x, r, 4), second = __shfl_sync(EXL2K_ALL, pairs.y, r, 4);
            scale[0] = exl2k_low(first);
            scale[1] = exl2k_high(first);
            scale[2] = exl2k_low(second);
            scale[3] = exl2k_high(second);
        }
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
        f32 s = sum[i / 4][i % 4] + later[i / 4][i % 4];
        sum[i / 4][i % 4] = M == 16 ? s : s * unit[i % 4 / 2];
    }
}

#if EXL2K_AFFINE
/* Lane t decodes the scales and zeros of record t, of both halves, for the four lanes of its column: behind the initial
   sums lie scales times exl2k_sum_unit, and 512 bytes on the factors of the sums of inputs. */
template <u32 W>
EXL2K_FN void exl2k_kept_scales(u32 at, const exl2k_inputs<16> &x, const exl2k_task &task, u32 lane)
{
    constexpr f32 unit[2] = { exl2k_sum_unit<W>(0), exl2k_sum_unit<W>(1) };
    constexpr f32 back[2] = { -exl2k_power(exl2k_code_bit<W>(0) - 24), -exl2k_power(exl2k_code_bit<W>(1) - 24) };
    u32 t = lane % 4, to = x.starts + EXL2K_STARTS_PLAN + t * 128 + lane / 4 * 16;
    uint2 words[2] = { exl2k_affine_words(at, task, 2 * t, lane), exl2k_affine_words(at, task, 2 * t + 1, lane) };
    u32 first = exl2k_affine_scales(words[0]), second = exl2k_affine_scales(words[1]);
    f32 v[4] = { exl2k_low(first) * unit[0], exl2k_high(first) * unit[1], exl2k_low(second) * unit[0],
                 exl2k_high(second) * unit[1] };
    exl2k_shared_store4(to, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                       __float_as_uint(v[3])));
    first = exl2k_affine_zeros(words[0]);
    second = exl2k_affine_zeros(words[1]);
    f32 z[4] = { exl2k_low(first) * back[0], exl2k_high(first) * back[1], exl2k_low(second) * back[0],
                 exl2k_high(second) * back[1] };
    exl2k_shared_store4(to + 512, make_uint4(__float_as_uint(z[0]), __float_as_uint(z[1]), __float_as_uint(z[2]),
                                             __float_as_uint(z[3])));
    __syncwarp();
}

/* A half of a record: p = or += scale * (sums of codes - zero * sums of inputs). */
template <u32 W>
EXL2K_FN void exl2k_kept_half(f32 p[2][4], const u32 *w, u32 h, const exl2k_inputs<16> &x, u32 half, u32 table,
                              u32 lane)
{
    constexpr f32 back = 1.0f / exl2k_sum_centre<W>(0);
    f32 d[2][4];
    exl2k_half_many<W, 16>(d, w, h, x, half, 0, lane);
    uint2 zero = exl2k_shared_load2(table + 512), scale = exl2k_shared_load2(table);
#pragma unroll
    for (u32 tile = 0; tile < 2; tile++) {
        uint2 v = exl2k_shared_load2(x.starts + (tile * 8 + half) * 64 + lane % 4 * 16); /* sums of inputs follow */
        const f32 sums[2] = { __uint_as_float(v.x) * back, __uint_as_float(v.y) * back };
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            f32 k = __uint_as_float(i < 2 ? scale.x : scale.y), z = __uint_as_float(i < 2 ? zero.x : zero.y);
            f32 one = fmaf(z, sums[i % 2], d[tile][i]);
            p[tile][i] = h ? fmaf(k, one, p[tile][i]) : k * one;
        }
    }
}

/* The products of a chunk of an affine matrix: the same results as exl2k_chunk_many's. */
template <u32 W>
EXL2K_FN void exl2k_kept_affine(f32 sum[2][4], u32 at, const exl2k_inputs<16> &x, const exl2k_task &task, u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits, most = bits <= 4 ? 4 : 2;
    u32 table = x.starts + EXL2K_STARTS_PLAN + lane / 4 * 16, records = exl2k_task_records(task);
    f32 later[2][4];
    exl2k_kept_scales<W>(at, x, task, lane);
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        sum[i / 4][i % 4] = later[i / 4][i % 4] = 0.0f;
    }
#pragma unroll
    for (u32 r = 0; r < most; r++) {
        if (r < records) {
            u32 w[bits];
            f32 p[2][4];
            exl2k_lane_words<W>(at + r * bits * 128, lane, w);
            exl2k_kept_half<W>(p, w, 0, x, 2 * r, table + r * 128, lane);
            exl2k_kept_half<W>(p, w, 1, x, 2 * r + 1, table + r * 128 + 8, lane);
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                f32 &to = r < 2 ? sum[i / 4][i % 4] : later[i / 4][i % 4];
                to += p[i / 4][i % 4];
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        sum[i / 4][i % 4] += later[i / 4][i % 4];
    }
}

EXL2K_FN void exl2k_kept_chunk(f32 sum[2][4], u32 at, const exl2k_inputs<16> &x, const exl2k_kept *kept, u32 lane)
{
    exl2k_task task = exl2k_kept_task(kept);
    switch (exl2k_task_width(task)) {
    case EXL2K_W2: exl2k_kept_affine<EXL2K_W2>(sum, at, x, task, lane); break;
    case EXL2K_W3: exl2k_kept_affine<EXL2K_W3>(sum, at, x, task, lane); break;
    case EXL2K_W4: exl2k_kept_affine<EXL2K_W4>(sum, at, x, task, lane); break;
    default: exl2k_kept_affine<EXL2K_W8>(sum, at, x, task, lane); break;
    }
}
#else
/* The products of any chunk. */
EXL2K_FN void exl2k_kept_chunk(f32 sum[2][4], u32 at, const exl2k_inputs<16> &x, const exl2k_kept *kept, u32 lane)
{
    uint2 plan = exl2k_shared_load2(x.starts + EXL2K_STARTS_PLAN + lane * 8);
    exl2k_whole whole = { plan.x, plan.y };
    switch (plan.x >> 16 & 255) {
    case EXL2K_W4: exl2k_whole_many<EXL2K_W4, 16>(sum, at, x, whole, lane); break;
    case EXL2K_W3: exl2k_whole_many<EXL2K_W3, 16>(sum, at, x, whole, lane); break;
    case EXL2K_W2: exl2k_whole_many<EXL2K_W2, 16>(sum, at, x, whole, lane); break;
    default: exl2k_chunks_many<16>(sum, at, x, exl2k_kept_task(kept), lane); break;
    }
}
#endif

/* ---- tasks ---- */

/* Stores what the lane needs to decode scales behind the initial sums. */
EXL2K_FN void exl2k_kept_whole(const exl2k_inputs<16> &x, const exl2k_task &task, u32 lane)
{
    exl2k_whole whole = exl2k_whole_of(task, exl2k_shared_load(task.maximum + lane % 4 * 4), lane);
    exl2k_shared_store2(x.starts + EXL2K_STARTS_PLAN + lane * 8, make_uint2(whole.plan, whole.maxima));
}

/* Works through all of the warp's tasks in a block. */
EXL2K_FN void exl2k_gemv_block_kept(const exl2k_gemv_args &a, exl2k_stream &s, exl2k_kept *kept)
{
    while (kept->sums < kept->sums_end) {
        /* Load the inputs of this task, and start to load the next table entry. */
        exl2k_copy_wait<0>();
        __syncwarp();
        u32 lane = exl2k_lane<16>();
        u64 x[2];
        exl2k_inputs<16> inputs;
        for (u32 tile = 0; tile < 2; tile++) {
            u32 row = exl2k_min(tile * 8 + lane / 4, kept->rows - 1);
            x[tile] = a.x + kept->row * a.x_step + (u64)row * (a.x_pitch * 2) + lane % 4 * 16;
        }
        exl2k_kept_inputs<16>(inputs, x, a.x_step, exl2k_kept_task(kept), kept->starts, lane);
        if (kept->chunk + 1 < kept->end) {
            exl2k_kept_load(kept, a, kept->piece >> a.matrix.rest, kept->chunk + 1);
        }
        /* One job per slot of the ring: wait for the copy, multiply, refill the slot. */
        if (!EXL2K_AFFINE) {
            exl2k_kept_whole(inputs, exl2k_kept_task(kept), lane);
        }
#pragma unroll 1
        for (u32 to = kept->sums; to < kept->sums_end; to += kept->stride) {
            f32 sum[2][4];
            exl2k_stream_seek(s, a);
            exl2k_stream_wait(s, a);
            exl2k_kept_chunk(sum, s.at, inputs, kept, lane);
            __syncwarp();
            if (EXL2K_CHAIN) { /* found again, as no register is free */
                exl2k_opaque(s.job);
                exl2k_stream_seek(s, a);
            }
            exl2k_stream_fill<16>(s, a, exl2k_role{});
            u32 mine = EXL2K_AFFINE ? exl2k_lane<16>() : lane; /* affine: read again, as no register is free */
#if EXL2K_CHAIN
            exl2k_chain_add<16>(to, sum, kept->chain, mine);
#else
            exl2k_partial_add_many<16>(to + exl2k_partial_lane(mine), sum, kept->first);
#endif
            exl2k_stream_plan_kept(s, a);
        }
        exl2k_kept_next(kept, a, exl2k_task_halves(exl2k_kept_task(kept)));
    }
}

#endif
