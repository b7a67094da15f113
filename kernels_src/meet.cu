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

EXL2K_FN void exl2k_meet_store_words(u64 at, u64 x, u64 y)
{
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(x), "l"(y) : "memory");
}

EXL2K_FN ulonglong2 exl2k_meet_load_words(u64 at)
{
    ulonglong2 v;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(at) : "memory");
    return v;
}

/* ---- a meeting ---- */

typedef struct exl2k_meet_patience { /* of one wait */
    u32 looks;
    u64 since;
} exl2k_meet_patience;

/* Called after a look in vain. False: the CPU says that nobody comes. */
EXL2K_FN bool exl2k_meet_patient(exl2k_meet_patience *p, u64 stop)
{
    u64 now;
    if (++p->looks % EXL2K_MEET_LOOKS != 0) {
        return true;
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    p->since = p->since ? p->since : now;
    if (now - p->since > EXL2K_MEET_LIMIT_NS) {
        asm volatile("trap;");
    }
    return exl2k_meet_acquire(stop) == 0;
}

/* Waits until a flag has the number, or a later one. */
EXL2K_FN void exl2k_meet_wait(u64 flag, u32 number, u64 stop)
{
    exl2k_meet_patience p = { 0, 0 };
    while ((int)(exl2k_meet_acquire(flag) - number) < 0 && exl2k_meet_patient(&p, stop)) {
    }
}

/* A meeting, as a CTA knows it. */
typedef struct exl2k_meeting {
    u32 number;
    bool last; /* thread 0: it was the last CTA to read the number, so it counts the meeting */
} exl2k_meeting;

/* Arrives, and waits for all others, unless columns go by words. */
EXL2K_FN exl2k_meeting exl2k_meet_begin(const exl2k_meet_args &a)
{
    __shared__ u32 number;
    u32 thread = threadIdx.x, all = gridDim.x * gridDim.y, read = 0;
    u64 at = a.state + sizeof(exl2k_meet_flag) * EXL2K_MEET_GPUS;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (thread == 0) {
        number = exl2k_load(at) + 1;
    }
    __syncthreads();
    if (thread == 0 && all > 1) {
        read = atomicAdd((u32 *)(at + 4), 1); /* looked at after the meeting */
    }
    exl2k_meeting m = { number, read + 1 == all };
    if (a.set == 0 && thread < a.count && thread != a.own) {
        if (blockIdx.x == 0 && blockIdx.y == 0) {
            asm volatile("fence.acq_rel.sys;" ::: "memory");
            exl2k_sleep(32);
            asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(a.flags[thread]), "r"(m.number) : "memory");
        }
        exl2k_meet_wait(a.state + sizeof(exl2k_meet_flag) * thread, m.number, a.stop);
    }
    if (a.set == 0) {
        __syncthreads();
    }
    return m;
}

EXL2K_FN void exl2k_meet_end(const exl2k_meet_args &a, const exl2k_meeting &m)
{
    u64 at = a.state + sizeof(exl2k_meet_flag) * EXL2K_MEET_GPUS;
    if (threadIdx.x == 0 && m.last) {
        exl2k_store(at + 4, 0);
        exl2k_store(at, m.number);
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

/* ---- words ---- */

/* Where the words of byte `at` of a row lie in the inbox of a GPU. */
EXL2K_FN u64 exl2k_meet_word_at(const exl2k_meet_args &a, u32 gpu, u32 number, u32 row, u32 at)
{
    return a.inbox[gpu] + (number & 1 ? a.set : 0) + (u64)row * a.inbox_pitch + at * 2;
}

/* Sends 16 bytes of a row to all others. */
EXL2K_FN void exl2k_meet_send4(const exl2k_meet_args &a, u32 number, u32 row, u32 at, uint4 v)
{
    u64 tag = (u64)number << 32;
    for (u32 gpu = 0; gpu < a.count; gpu++) {
        if (gpu != a.own) {
            u64 to = exl2k_meet_word_at(a, gpu, number, row, at);
            exl2k_sleep(32);
            exl2k_meet_store_words(to, v.x | tag, v.y | tag);
            exl2k_meet_store_words(to + 16, v.z | tag, v.w | tag);
        }
    }
}

/* Waits for 16 bytes of a row. */
EXL2K_FN uint4 exl2k_meet_take4(const exl2k_meet_args &a, u32 number, u32 row, u32 at)
{
    u64 from = exl2k_meet_word_at(a, a.own, number, row, at);
    exl2k_meet_patience p = { 0, 0 };
    ulonglong2 v, w;
    do {
        v = exl2k_meet_load_words(from);
        w = exl2k_meet_load_words(from + 16);
    } while ((v.x >> 32 != number || v.y >> 32 != number || w.x >> 32 != number || w.y >> 32 != number) &&
             exl2k_meet_patient(&p, a.stop));
    return make_uint4((u32)v.x, (u32)v.y, (u32)w.x, (u32)w.y);
}

EXL2K_FN void exl2k_meet_send_f32(const exl2k_meet_args &a, u32 number, u32 row, u32 at, f32 value)
{
    u64 word = __float_as_uint(value) | (u64)number << 32;
    for (u32 gpu = 0; gpu < a.count; gpu++) {
        if (gpu != a.own) {
            exl2k_sleep(32);
            asm volatile("st.relaxed.sys.global.u64 [%0], %1;"
                         ::"l"(exl2k_meet_word_at(a, gpu, number, row, at)), "l"(word) : "memory");
        }
    }
}

EXL2K_FN f32 exl2k_meet_take_f32(const exl2k_meet_args &a, u32 number, u32 row, u32 at)
{
    u64 from = exl2k_meet_word_at(a, a.own, number, row, at), word;
    exl2k_meet_patience p = { 0, 0 };
    do {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    } while (word >> 32 != number && exl2k_meet_patient(&p, a.stop));
    return __uint_as_float((u32)word);
}

/* ---- the kernels ---- */

/* Stores 16 bytes of a row. */
EXL2K_FN void exl2k_meet_put(const exl2k_meet_args &a, u64 to, u32 piece, uint4 v)
{
    if (!a.map) {
        exl2k_store4(to + piece * 16, v);
        return;
    }
    uint4 map = exl2k_load_constant4(a.map + piece * 16);
    u32 at[4] = { map.x, map.y, map.z, map.w }, halves[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (u32 h = 0; h < 8; h++) {
        exl2k_store_u16(to + (at[h / 2] >> h % 2 * 16 & 0xFFFFu) * 2, halves[h / 2] >> h % 2 * 16);
    }
}

/* Copies by words: first what this GPU has, to all, then what the others send. */
EXL2K_FN void exl2k_meet_by_words(const exl2k_meet_args &a, u32 number)
{
    u32 row = blockIdx.y, step = gridDim.x * EXL2K_MEET_THREADS, thread = blockIdx.x * EXL2K_MEET_THREADS + threadIdx.x;
    u32 pieces = a.ends[a.count - 1] / 16, first = a.own ? a.ends[a.own - 1] / 16 : 0, end = a.ends[a.own] / 16;
    u64 from = a.from[a.own] + (u64)row * a.from_pitch, to = a.to + (u64)row * a.to_pitch;
    bool stays = a.to == a.from[a.own] && !a.map;
    for (u32 i = first + thread; i < end; i += step) {
        uint4 v = exl2k_load4(from + i * 16);
        exl2k_meet_send4(a, number, row, i * 16, v);
        if (!stays) {
            exl2k_meet_put(a, to, i, v);
        }
    }
    for (u32 i = thread; i < pieces - (end - first); i += step) {
        u32 piece = i < first ? i : i + (end - first);
        exl2k_meet_put(a, to, piece, exl2k_meet_take4(a, number, row, piece * 16));
    }
}

/* Copies what each GPU has computed from its memory. */
EXL2K_FN void exl2k_meet_by_flags(const exl2k_meet_args &a)
{
    u32 step = gridDim.x * EXL2K_MEET_THREADS;
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
            if (n < pieces - own) {
                exl2k_meet_put(a, to, piece, v[k]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_MEET_THREADS, 2)
exl2k_meet(const __grid_constant__ exl2k_meet_args a)
{
    exl2k_meeting m = exl2k_meet_begin(a);
    if (a.set) {
        exl2k_meet_by_words(a, m.number);
    } else {
        exl2k_meet_by_flags(a);
    }
    exl2k_meet_end(a, m);
}

/* 1 / sqrt of the mean of the squares of the norm before, in the order of gemv_out.cuh. */
EXL2K_FN f32 exl2k_meet_rho(const exl2k_meet_norm_args &a, u32 row)
{
    __shared__ f32 sums[8];
    u32 slot = threadIdx.x;
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

extern "C" __global__ void __launch_bounds__(EXL2K_MEET_THREADS, 2)
exl2k_meet_norm(const __grid_constant__ exl2k_meet_norm_args a)
{
    exl2k_meeting m = exl2k_meet_begin(a.meet);
    u32 number = m.number, lane = threadIdx.x % EXL2K_WARP, row = blockIdx.y;
    u32 slot = blockIdx.x * (EXL2K_MEET_THREADS / EXL2K_WARP) + threadIdx.x / EXL2K_WARP;
    bool there = !a.rows_at || row < exl2k_load(a.rows_at);
    if (there) {
        u32 begin = slot * a.strips + exl2k_min(slot, a.slots_with_more);
        u32 end = slot < a.slots ? begin + a.strips + (slot < a.slots_with_more) : begin;
        for (u32 s = begin + lane / 16; s < end && a.meet.set; s += 2) { /* before anything else is waited for */
            u32 n = s * 16 + lane % 16;
            if (n < a.hidden && exl2k_meet_owner(a.meet, n * 4) == a.meet.own) {
                f32 own = exl2k_load_f32(a.meet.to + (u64)row * a.meet.to_pitch + n * 4);
                exl2k_meet_send_f32(a.meet, number, row, n * 4, own);
            }
        }
        __syncwarp();
        f32 rho = exl2k_meet_rho(a, row), all = 0.0f;
        for (u32 strip = begin; strip < end; strip += 2 * EXL2K_MEET_BATCH) { /* the same in all lanes of a warp */
            f32 r[EXL2K_MEET_BATCH];
#pragma unroll
            for (u32 k = 0; k < EXL2K_MEET_BATCH; k++) {
                u32 s = strip + 2 * k + lane / 16, n = s * 16 + lane % 16;
                u32 gpu = s < end && n < a.hidden ? exl2k_meet_owner(a.meet, n * 4) : EXL2K_MEET_GPUS;
                r[k] = 0.0f;
                if (gpu == a.meet.own || (gpu < EXL2K_MEET_GPUS && !a.meet.set)) {
                    r[k] = exl2k_meet_load_f32(a.meet.from[gpu] + (u64)row * a.meet.from_pitch + n * 4);
                }
            }
#pragma unroll
            for (u32 k = 0; k < EXL2K_MEET_BATCH && a.meet.set; k++) {
                u32 s = strip + 2 * k + lane / 16, n = s * 16 + lane % 16;
                if (s < end && n < a.hidden && exl2k_meet_owner(a.meet, n * 4) != a.meet.own) {
                    r[k] = exl2k_meet_take_f32(a.meet, number, row, n * 4);
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
    exl2k_meet_end(a.meet, m);
}
