/* gemv_peers.cuh: what products that share their inputs and results with other GPUs do besides (peers_args.h).
   takes: peers.cuh; what gemv.cuh defines before it includes this file.
   gives: exl2k_peers_of, exl2k_gemv_stop, exl2k_peers_input, exl2k_peers_strips, _slot_load, _slot, exl2k_inbox_strip,
          exl2k_taken_strip(s).
   owns:  nothing; included by gemv.cuh only, if EXL2K_PEERS. */
#ifndef EXL2K_GEMV_PEERS_CUH
#define EXL2K_GEMV_PEERS_CUH

/* `a` is the first member of the kernel's arguments. */
EXL2K_FN const exl2k_peers &exl2k_peers_of(const exl2k_gemv_args &a)
{
    return ((const exl2k_peers_gemv_args &)a).peers;
}

EXL2K_FN u64 exl2k_gemv_stop(const exl2k_gemv_args &a) { return exl2k_peers_of(a).stop; }

/* Waits for the lane's inputs of a task, which have been loaded as exl2k_load_input does. */
EXL2K_FN void exl2k_peers_input(const exl2k_gemv_args &a, uint4 &v, u64 x, u32 row, const exl2k_task &task, u32 lane)
{
    if (lane / 4 < exl2k_task_halves(task)) {
        exl2k_peers_await(v, x + (row + lane / 4) * 64, exl2k_gemv_stop(a));
    }
}

#define EXL2K_PEERS_BATCH 4u /* strips of a slot that are on their way at once */

/* The strips of a slot, or of which the slot is the only one if by_strips is 0; none from `slots` on. */
EXL2K_FN exl2k_span exl2k_peers_strips(const exl2k_peers &p, u32 by_strips, u32 slot, u32 slots)
{
    u32 begin = by_strips ? slot * p.strips + exl2k_min(slot, p.slots_with_more) : slot;
    u32 count = by_strips ? p.strips + (slot < p.slots_with_more) : 1;
    return exl2k_span{ begin, slot < slots ? begin + count : begin };
}

/* Starts to load the strips of a slot. */
EXL2K_FN void exl2k_peers_slot_load(f32 v[EXL2K_PEERS_BATCH], u64 sums, exl2k_span strips)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_PEERS_BATCH; k++) {
        v[k] = strips.begin + k < strips.end ? exl2k_peers_load_f32(sums + (strips.begin + k) * 4) : 0.0f;
    }
}

/* Adds up a slot, whose first strips have been loaded, in the order of its strips. */
EXL2K_FN f32 exl2k_peers_slot(const f32 v[EXL2K_PEERS_BATCH], u64 sums, exl2k_span strips, u64 stop)
{
    f32 sum = 0.0f;
#pragma unroll
    for (u32 k = 0; k < EXL2K_PEERS_BATCH; k++) {
        if (strips.begin + k < strips.end) {
            sum += exl2k_peers_await_f32(v[k], sums + (strips.begin + k) * 4, stop);
        }
    }
#pragma unroll 1
    for (u32 k = strips.begin + EXL2K_PEERS_BATCH; k < strips.end; k++) {
        sum += exl2k_peers_await_f32(exl2k_peers_load_f32(sums + k * 4), sums + k * 4, stop);
    }
    return sum;
}

/* More rows: the place in the inbox of a strip of the whole matrix. */
template <u32 M> EXL2K_FN u64 exl2k_inbox_strip(const exl2k_gemv_args &a, u32 strip)
{
    u32 bytes = EXL2K_PEERS_STRIP + (a.kind == EXL2K_GEMV_RESIDUAL ? EXL2K_PEERS_SQUARE : 0);
    return exl2k_peers_of(a).inbox + (u64)strip * (M * bytes);
}

/* More rows: strip i of those that are taken from the inbox, of the whole matrix; the CTA takes [begin, end). */
EXL2K_FN u32 exl2k_taken_strip(const exl2k_peers &p, u32 i) { return i < p.first_strip ? i : i + p.own_strips; }

EXL2K_FN exl2k_span exl2k_taken_strips(const exl2k_peers &p)
{
    u32 begin = blockIdx.x * p.taken + exl2k_min(blockIdx.x, p.ctas_with_more);
    return exl2k_span{ begin, begin + p.taken + (blockIdx.x < p.ctas_with_more) };
}

#endif
