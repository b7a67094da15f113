/* peers.cuh: stores to the memory of other GPUs, and looks for what they have stored (peers_args.h).
   takes: base.cuh, peers_args.h.
   gives: exl2k_peers_store_u16, _store_f32, _store2, _clear, _await, _await_f32, _take.
   owns:  nothing; included by kernels that give columns to other GPUs. */
#ifndef EXL2K_PEERS_CUH
#define EXL2K_PEERS_CUH

#include "base.cuh"
#include "peers_args.h"

#define EXL2K_PEERS_LIMIT_NS 2000000000u
#define EXL2K_PEERS_PATIENCE_NS 1000000u /* after so long each look asks the CPU, too */

/* ---- memory ---- */

EXL2K_FN void exl2k_peers_store_u16(const u64 *apart, u32 others, u64 at, u32 v)
{
#pragma unroll 1
    for (u32 i = 0; i < others; i++) {
        exl2k_sleep(32);
        asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(at + apart[i]), "h"((u16)v) : "memory");
    }
}

EXL2K_FN void exl2k_peers_store_f32(const u64 *apart, u32 others, u64 at, f32 v)
{
#pragma unroll 1
    for (u32 i = 0; i < others; i++) {
        exl2k_sleep(32);
        asm volatile("st.relaxed.sys.global.f32 [%0], %1;" ::"l"(at + apart[i]), "f"(v) : "memory");
    }
}

EXL2K_FN void exl2k_peers_store2(const u64 *apart, u32 others, u64 at, u32 v, u32 w)
{
#pragma unroll 1
    for (u32 i = 0; i < others; i++) {
        exl2k_sleep(32);
        asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(at + apart[i]), "r"(v), "r"(w) : "memory");
    }
}

EXL2K_FN uint4 exl2k_peers_load4(u64 at)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

EXL2K_FN f32 exl2k_peers_load_f32(u64 at)
{
    f32 v;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
    return v;
}

/* Empties `bytes` bytes, all CTAs of the kernel together. */
EXL2K_FN void exl2k_peers_clear(u64 at, u32 bytes)
{
    const uint4 none = make_uint4(EXL2K_PEERS_NONE, EXL2K_PEERS_NONE, EXL2K_PEERS_NONE, EXL2K_PEERS_NONE);
    u32 step = gridDim.x * blockDim.x * 16;
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 16; i < bytes; i += step) {
        exl2k_store4(at + i, none);
    }
}

/* ---- what is there ---- */

/* Whether one of the two halves is EXL2K_PEERS_NONE. */
EXL2K_FN bool exl2k_peers_lacks(u32 pair) { return (pair & 0xFFFFu) == 0xFFFFu || pair >> 16 == 0xFFFFu; }

/* A pair with NaN in each half where v or w has one; few rows are NaN, so this is a quick first look. */
EXL2K_FN u32 exl2k_peers_larger(u32 v, u32 w)
{
#if __CUDA_ARCH__ >= 800
    u32 d;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(v), "r"(w));
    return d;
#else
    return exl2k_peers_lacks(v) || exl2k_peers_lacks(w) ? 0x7FFF7FFFu : 0;
#endif
}

EXL2K_FN u32 exl2k_peers_largest(const uint4 &v)
{
    return exl2k_peers_larger(exl2k_peers_larger(v.x, v.y), exl2k_peers_larger(v.z, v.w));
}

EXL2K_FN bool exl2k_peers_is_nan(u32 pair) { return (pair & 0x7FFFu) > 0x7C00u || (pair >> 16 & 0x7FFFu) > 0x7C00u; }

/* Whether all halves are there. */
EXL2K_FN bool exl2k_peers_there(const uint4 &v)
{
    return !exl2k_peers_lacks(v.x) && !exl2k_peers_lacks(v.y) && !exl2k_peers_lacks(v.z) && !exl2k_peers_lacks(v.w);
}

/* ---- waits ---- */

/* Called after a look in vain. since: 0 before the first one. False: the CPU says that nothing comes. */
EXL2K_FN bool exl2k_peers_patient(u32 &since, u64 stop)
{
    u32 now, stopped = 0;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
    since = since ? since : now | 1;
    if (now - since > EXL2K_PEERS_LIMIT_NS && now - since < 1u << 31) { /* the clock may be a little behind `since` */
        asm volatile("trap;");
    }
    if (now - since > EXL2K_PEERS_PATIENCE_NS && now - since < 1u << 31) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(stopped) : "l"(stop) : "memory");
    }
    return stopped == 0;
}

/* Waits for the halves at `at`, if v, which has been loaded from there, lacks some. */
EXL2K_FN void exl2k_peers_await(uint4 &v, u64 at, u64 stop)
{
    u32 since = 0;
    while (exl2k_peers_is_nan(exl2k_peers_largest(v)) && !exl2k_peers_there(v) && exl2k_peers_patient(since, stop)) {
        v = exl2k_peers_load4(at);
    }
}

/* The same for a float. */
EXL2K_FN f32 exl2k_peers_await_f32(f32 v, u64 at, u64 stop)
{
    u32 since = 0;
    while (__float_as_uint(v) == EXL2K_PEERS_NONE && exl2k_peers_patient(since, stop)) {
        v = exl2k_peers_load_f32(at);
    }
    return v;
}

/* Waits for eight halves of an inbox, v, which have been loaded from there, and empties their place. */
EXL2K_FN uint4 exl2k_peers_take(uint4 v, u64 at, u64 stop)
{
    exl2k_peers_await(v, at, stop);
    exl2k_store4(at, make_uint4(EXL2K_PEERS_NONE, EXL2K_PEERS_NONE, EXL2K_PEERS_NONE, EXL2K_PEERS_NONE));
    return v;
}

#endif
