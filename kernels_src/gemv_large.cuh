/* gemv_large.cuh: whole chunks (four records of 2 to 4 bits) in large matrices: what is the same for all strips of a
   task is chosen once, and the loop over strips has no choices left.
   takes: what gemv.cuh defines before it includes this file; sm_90a.
   gives: exl2k_large_strips<M>, exl2k_large_block<M>, M 1 or 8: the same bits as the other loops of gemv.cuh.
   owns:  nothing; included by gemv.cuh only, if EXL2K_LARGE.

   A pair of chunks costs a fifth fewer instructions (tests/kernels.c counts them), but a task begins with more of them,
   so small matrices, which have few whole chunks and few strips, are faster without this file
   (tests/device/NOTES.md). */
#ifndef EXL2K_GEMV_LARGE_CUH
#define EXL2K_GEMV_LARGE_CUH

/* exl2k_mma with d = from + a b. */
EXL2K_FN void exl2k_mma_from(f32 d[4], const u32 a[4], u32 b0, u32 b1, const f32 from[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(from[0]), "f"(from[1]), "f"(from[2]),
          "f"(from[3]));
}

/* One row: the product of chunks of two strips. record[r]: inputs in the lanes of columns 2 r and 2 r + 1, else 0.
   Lanes t = 0 and 1 get the first strip's sums of columns g and g + 8, lanes 2 and 3 the second strip's. */
template <u32 W>
EXL2K_FN f32 exl2k_large_pair(const u32 at[2], const uint4 *record, const f32 *start, const exl2k_whole &whole,
                              u32 lane)
{
    constexpr u32 bits = exl2k_width<W>::bits;
    f32 sum[2][2][4], mine[2]; /* even halves are summed apart: of each only its own columns count */
#pragma unroll
    for (u32 i = 0; i < 2 * EXL2K_CHUNK_RECORDS; i++) {
        u32 r = i / 2, w[bits], a[4];
        exl2k_lane_words<W>(at[i % 2] + r * bits * 128, lane, w);
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
            const uint4 &v = record[r];
            f32 *d = sum[i % 2][step / 2];
            exl2k_decode<W, true>(w, step, a);
            exl2k_mma_from(d, a, step % 2 ? v.z : v.x, step % 2 ? v.w : v.y, r + step % 2 ? d : start);
        }
    }
    /* Each lane scales its halves; lanes exchange columns, then strips. */
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        uint2 s = exl2k_whole_scales(whole, at[i], lane);
        f32 low = fmaf(exl2k_low(s.y), sum[i][1][1], exl2k_low(s.x) * sum[i][0][0]);
        f32 high = fmaf(exl2k_high(s.y), sum[i][1][3], exl2k_high(s.x) * sum[i][0][2]);
        mine[i] = lane & 1 ? high : low;
        mine[i] += __shfl_xor_sync(EXL2K_ALL, lane & 1 ? low : high, 1);
    }
    f32 total = lane & 2 ? mine[1] : mine[0];
    total += __shfl_xor_sync(EXL2K_ALL, lane & 2 ? mine[0] : mine[1], 2);
    return total * (lane & 1 ? exl2k_sum_unit<W>(1) : exl2k_sum_unit<W>(0));
}

/* Multiplies `jobs` jobs that have been planned. One row: a job has two strips. */
template <u32 W, u32 M>
EXL2K_FN void exl2k_large_jobs(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_stream &s,
                               const exl2k_inputs<M> &x, const exl2k_task &task, u32 to, u32 stride, bool first,
                               u32 chain, u32 jobs)
{
    u32 lane = role.lane;
    uint4 record[EXL2K_CHUNK_RECORDS];
    f32 start[4];
    if constexpr (M == 1) {
#pragma unroll
        for (u32 r = 0; r < EXL2K_CHUNK_RECORDS; r++) {
            uint4 &v = record[r];
            v = lane / 8 == r ? x.mine : make_uint4(0, 0, 0, 0);
            asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)); /* chosen once, not in each strip */
        }
        /* A product with 0 puts the sums into registers that a product can begin with, else each would copy them. */
        const u32 zeros[4] = { 0, 0, 0, 0 };
        exl2k_sum_start<W>(start, x.sums);
        exl2k_mma(start, zeros, 0, 0);
        to += lane & 2 ? stride - 64 : 0; /* these lanes have the second strip's columns */
        stride *= 2;
    }
    exl2k_whole whole = exl2k_whole_of(task, task.maximum, lane);
#pragma unroll 1
    for (; jobs > 0; jobs--) {
        f32 sum[1][4];
        exl2k_stream_wait(s, a);
        if constexpr (M == 1) {
            u32 at[2] = { s.at, s.at + a.slot_bytes };
            sum[0][0] = exl2k_large_pair<W>(at, record, start, whole, lane);
        } else {
            exl2k_whole_many<W, 8>(sum, s.at, x, whole, lane);
        }
        __syncwarp();
        exl2k_stream_fill<M>(s, a, role);
        if constexpr (M == 1) {
            exl2k_shared_store_f32(to, first ? sum[0][0] : exl2k_shared_load_f32(to) + sum[0][0]);
        } else {
#if EXL2K_CHAIN
            exl2k_chain_add<M>(to, sum, chain, lane);
#else
            exl2k_partial_add_many<M>(to, sum, first);
#endif
        }
        exl2k_stream_step(s, a);
        to += stride;
    }
}

/* How many of a task's `left` strips, the last ones, exl2k_large_block multiplies. */
template <u32 M> EXL2K_FN u32 exl2k_large_strips(const exl2k_gemv_args &a, const exl2k_task &task, u32 left)
{
    bool whole = exl2k_task_records(task) == EXL2K_CHUNK_RECORDS && exl2k_task_width(task) <= EXL2K_W4;
    return !whole ? 0 : M > 1 ? left : exl2k_slot_holds_two<M>(a) ? left & ~1u : 0;
}

/* Multiplies `left` such strips, up to 32 jobs at a time, as they are planned. */
template <u32 M>
EXL2K_FN void exl2k_large_block(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_stream &s,
                                const exl2k_inputs<M> &x, const exl2k_task &task, u32 to, u32 stride, bool first,
                                u32 chain, u32 left)
{
    constexpr u32 each = M == 1 ? 2 : 1, planned = exl2k_stream_planned<M>();
    while (left > 0) {
        u32 jobs = exl2k_min(left / each, planned - s.job % planned);
        switch (exl2k_task_width(task)) {
        case EXL2K_W2: exl2k_large_jobs<EXL2K_W2, M>(a, role, s, x, task, to, stride, first, chain, jobs); break;
        case EXL2K_W3: exl2k_large_jobs<EXL2K_W3, M>(a, role, s, x, task, to, stride, first, chain, jobs); break;
        default: exl2k_large_jobs<EXL2K_W4, M>(a, role, s, x, task, to, stride, first, chain, jobs); break;
        }
        exl2k_stream_replan<M>(s, a, role);
        to += jobs * each * stride;
        left -= jobs * each;
    }
}

#endif
