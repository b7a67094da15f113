/* meet.cu: several GPUs give each other the columns that each has computed (meet_args.h says how).
   takes: base.cuh, meet_args.h, gemv_args.h.
   gives: exl2k_meet, exl2k_meet_norm. */
#include "base.cuh"
#include "gemv_args.h"
#include "meet_args.h"

#define EXL2K_MEET_LIMIT_NS 2000000000ull
#define EXL2K_MEET_LOOKS 1024u /* between two looks at the clock */

/* ---- memory of other GPUs ---- */

EXL2K_FN u32 exl2k_meet_acquire(u64 at)
{
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

EXL2K_FN f32 exl2k_meet_load_f32(u64 at)
{
    f32 v;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
    return v;
}

EXL2K_FN uint4 exl2k_meet_load4(u64 at)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

/* ---- a meeting ---- */

/* Waits until a flag has the number, or a later one. */
EXL2K_FN void exl2k_meet_wait(u64 flag, u32 number, u64 stop)
{
    u64 since = 0, now;
    for (u32 looks = 1; (int)(exl2k_meet_acquire(flag) - number) < 0; looks++) {
        if (looks % EXL2K_MEET_LOOKS == 0) {
            if (exl2k_meet_acquire(stop)) {
                return;
            }
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
            since = since ? since : now;
            if (now - since > EXL2K_MEET_LIMIT_NS) {
                asm volatile("trap;");
            }
        }
    }
}

/* Arrives, and waits for all others. Returns the number of the meeting. */
EXL2K_FN u32 exl2k_meet_begin(const exl2k_meet_args &a)
{
    u32 thread = threadIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 number = exl2k_load(a.state + sizeof(exl2k_meet_flag) * EXL2K_MEET_GPUS) + 1;
    if (thread < a.count && thread != a.own) {
        if (blockIdx.x == 0 && blockIdx.y == 0) {
            asm volatile("fence.acq_rel.sys;" ::: "memory");
            exl2k_sleep(32);
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(a.flags[thread]), "r"(number) : "memory");
        }
        exl2k_meet_wait(a.state + sizeof(exl2k_meet_flag) * thread, number, a.stop);
    }
    __syncthreads();
    return number;
}

/* The last CTA counts the meeting. */
EXL2K_FN void exl2k_meet_end(const exl2k_meet_args &a, u32 number)
{
    u64 at = a.state + sizeof(exl2k_meet_flag) * EXL2K_MEET_GPUS;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 all = gridDim.x * gridDim.y, ended = all > 1 ? atomicAdd((u32 *)(at + 4), 1) + 1 : 1;
        if (ended == all) {
            exl2k_store(at + 4, 0);
            exl2k_store(at, number);
        }
    }
}

/* The GPU that has byte `at` of a row. */
EXL2K_FN u32 exl2k_meet_owner(const exl2k_meet_args &a, u32 at)
{
    u32 gpu = 0;
    while (at >= a.ends[gpu]) {
        gpu++;
    }
    return gpu;
}

/* ---- the kernels ---- */

extern "C" __global__ void __launch_bounds__(EXL2K_MEET_THREADS) exl2k_meet(const __grid_constant__ exl2k_meet_args a)
{
    u32 number = exl2k_meet_begin(a), step = gridDim.x * EXL2K_MEET_THREADS;
    u32 pieces = a.ends[a.count - 1] / 16, first = a.own ? a.ends[a.own - 1] / 16 : 0;
    u32 own = a.to == a.from[a.own] && !a.map ? a.ends[a.own] / 16 - first : 0; /* these stay where they are */
    u64 from = (u64)blockIdx.y * a.from_pitch, to = a.to + (u64)blockIdx.y * a.to_pitch;
    for (u32 i = blockIdx.x * EXL2K_MEET_THREADS + threadIdx.x; i < pieces - own; i += step * EXL2K_MEET_BATCH) {
        uint4 v[EXL2K_MEET_BATCH];
#pragma unroll
        for (u32 k = 0; k < EXL2K_MEET_BATCH; k++) {
            u32 n = i + k * step, piece = n < first ? n : n + own;
            if (n < pieces - own) {
                v[k] = exl2k_meet_load4(a.from[exl2k_meet_owner(a, piece * 16)] + from + piece * 16);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_MEET_BATCH; k++) {
            u32 n = i + k * step, piece = n < first ? n : n + own;
            if (n < pieces - own && !a.map) {
                exl2k_store4(to + piece * 16, v[k]);
            } else if (n < pieces - own) {
                uint4 map = exl2k_load_constant4(a.map + piece * 16);
                u32 at[4] = { map.x, map.y, map.z, map.w }, halves[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
#pragma unroll
                for (u32 h = 0; h < 8; h++) {
                    exl2k_store_u16(to + (at[h / 2] >> h % 2 * 16 & 0xFFFFu) * 2, halves[h / 2] >> h % 2 * 16);
                }
            }
        }
    }
    exl2k_meet_end(a, number);
}

/* 1 / sqrt of the mean of the squares of the norm before, in the order of gemv_out.cuh, or (by_lanes) expert.cuh. */
EXL2K_FN f32 exl2k_meet_rho(const exl2k_meet_norm_args &a, u32 row)
{
    __shared__ f32 sums[8];
    u32 slot = threadIdx.x;
    if (a.by_lanes) {
        f32 all = 0.0f;
        for (slot %= EXL2K_WARP; slot < EXL2K_SLOTS_MAX; slot += EXL2K_WARP) {
            all += slot < a.slots ? exl2k_load_f32(a.sums_before + ((u64)row * EXL2K_SLOTS_MAX + slot) * 4) : 0.0f;
        }
        return rsqrtf(fmaf(exl2k_warp_sum(all), a.inverse_hidden, a.eps));
    }
    f32 value = slot < a.slots ? exl2k_load_f32(a.sums_before + ((u64)row * EXL2K_SLOTS_MAX + slot) * 4) : 0.0f;
    value = exl2k_warp_sum(value);
    if (slot % EXL2K_WARP == 0) {
        sums[slot / EXL2K_WARP] = value;
    }
    __syncthreads();
    f32 sum = 0.0f;
    for (u32 group = 0; group < 8; group++) {
        sum += sums[group];
    }
    return rsqrtf(fmaf(sum, a.inverse_hidden, a.eps));
}

/* A half-warp has a strip of 16 columns: residual r of column n. Returns the sum of the squares. */
EXL2K_FN f32 exl2k_meet_strip(const exl2k_meet_norm_args &a, u32 row, u32 n, bool valid, f32 r, f32 rho)
{
    if (valid) {
        u32 index = a.meet.map ? exl2k_load_u16(a.meet.map + n * 2) : n;
        f32 weight = __uint_as_float(exl2k_load_constant(a.weight + n * 4));
        u64 to = a.out + (u64)row * (a.out_pitch * 2) + index / 32 * a.out_step + index % 32 * 2;
        exl2k_store_u16(to, exl2k_f32_to_f16(exl2k_clamp_f16(r * weight * rho)));
        if (exl2k_meet_owner(a.meet, n * 4) != a.meet.own) {
            exl2k_store_f32(a.meet.to + (u64)row * a.meet.to_pitch + n * 4, r);
        }
    }
    return exl2k_half_warp_sum(valid ? __fmul_rn(r, r) : 0.0f);
}

extern "C" __global__ void __launch_bounds__(EXL2K_MEET_THREADS)
exl2k_meet_norm(const __grid_constant__ exl2k_meet_norm_args a)
{
    u32 number = exl2k_meet_begin(a.meet), lane = threadIdx.x % EXL2K_WARP, row = blockIdx.y;
    u32 slot = blockIdx.x * (EXL2K_MEET_THREADS / EXL2K_WARP) + threadIdx.x / EXL2K_WARP;
    bool there = !a.rows_at || row < exl2k_load(a.rows_at);
    if (there) {
        f32 rho = exl2k_meet_rho(a, row), all = 0.0f;
        u32 begin = slot * a.strips + exl2k_min(slot, a.slots_with_more);
        u32 end = slot < a.slots ? begin + a.strips + (slot < a.slots_with_more) : begin;
        for (u32 strip = begin; strip < end; strip += 2 * EXL2K_MEET_BATCH) { /* the same in all lanes of a warp */
            f32 r[EXL2K_MEET_BATCH];
#pragma unroll
            for (u32 k = 0; k < EXL2K_MEET_BATCH; k++) {
                u32 s = strip + 2 * k + lane / 16, n = s * 16 + lane % 16;
                r[k] = 0.0f;
                if (s < end && n < a.hidden) {
                    u32 gpu = exl2k_meet_owner(a.meet, n * 4);
                    r[k] = exl2k_meet_load_f32(a.meet.from[gpu] + (u64)row * a.meet.from_pitch + n * 4);
                }
            }
#pragma unroll
            for (u32 k = 0; k < EXL2K_MEET_BATCH; k++) {
                u32 s = strip + 2 * k + lane / 16, n = s * 16 + lane % 16;
                if (strip + 2 * k < end) {
                    f32 square = exl2k_meet_strip(a, row, n, s < end && n < a.hidden, r[k], rho);
                    f32 second = __shfl_sync(EXL2K_ALL, square, 16);
                    all += __shfl_sync(EXL2K_ALL, square, 0); /* strip by strip, as a CTA adds them up */
                    all = strip + 2 * k + 1 < end ? all + second : all;
                }
            }
        }
        if (slot < a.slots && lane == 0) {
            exl2k_store_f32(a.sums_out + ((u64)row * EXL2K_SLOTS_MAX + slot) * 4, all);
        }
    }
    exl2k_meet_end(a.meet, number);
}
