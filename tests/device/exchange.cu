/* exchange.cu: kernels that only hand vectors over, for exchange.c: among the 16 CTAs of a cluster, and among all SMs.
   takes: base.cuh.
   gives: exl2k_exchange_cluster, exl2k_exchange_grid; their arguments: exl2k_exchange_args.

   In round r half n of the vector is value(r, n), made by the CTA that n belongs to. All CTAs read and check all halves
   of a round before they make their own for the next one, as the products of successive layers would. */
#include "base.cuh"

typedef struct exl2k_exchange_args {
    u64 ns;       /* u64 [CTAs]: time of all rounds */
    u64 wrong;    /* u32: halves that had another value, or never came */
    u64 slots;    /* u16 [4][halves], all 0xFFFF at first; grid only */
    u64 weights;  /* grid only: bytes that are copied beside the exchange */
    u64 weight_bytes;
    u32 halves, rounds;
    u32 kilobytes; /* grid only: bytes that each SM has on their way, in KiB */
    u32 skip;      /* rounds before the time is taken */
} exl2k_exchange_args;

#define EXCHANGE_THREADS 512u
#define EXCHANGE_HALVES 4096u
#define EXCHANGE_LOOKS 100000u /* then the halves count as wrong */

EXL2K_FN u32 exchange_value(u32 round, u32 n) { return (round * 2654435761u + n * 40503u) >> 9 & 0x3FFFu; }

EXL2K_FN u64 exchange_clock(void)
{
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* Counts the halves of a piece of 8 that are wrong. */
EXL2K_FN u32 exchange_check(uint4 v, u32 round, u32 n)
{
    u32 words[4] = { v.x, v.y, v.z, v.w }, wrong = 0;
    for (u32 i = 0; i < 8; i++) {
        wrong += (words[i / 2] >> i % 2 * 16 & 0xFFFFu) != exchange_value(round, n + i);
    }
    return wrong;
}

/* The CTA's halves: strips of 16. */
EXL2K_FN uint2 exchange_own(u32 halves, u32 cta, u32 ctas)
{
    u32 strips = halves / 16, each = strips / ctas, more = strips % ctas, begin = cta * each + exl2k_min(cta, more);
    return make_uint2(begin * 16, (each + (cta < more)) * 16);
}

/* Waits for the phase; false: given up, so that a fault of the exchange ends the test. */
EXL2K_FN bool exchange_wait(u32 barrier, u32 parity)
{
    u32 there = 0;
    for (u32 looks = 0; looks < EXCHANGE_LOOKS && !there; looks++) {
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(there) : "r"(barrier), "r"(parity) : "memory");
    }
    return there != 0;
}

/* Grid: one cluster of 16 CTAs. Pieces of 16 bytes are stored asynchronously into every CTA, and count as bytes of its
   barrier. Two barriers take turns: a CTA that is ahead by one round must not count for the round before. */
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS, 1) exl2k_exchange_cluster(exl2k_exchange_args a)
{
    __shared__ __align__(16) u16 vector[2][EXCHANGE_HALVES], send[EXCHANGE_HALVES];
    __shared__ __align__(8) u64 barriers[2];
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, cta, wrong = 0;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(cta));
    uint2 own = exchange_own(a.halves, cta, 16);
    if (thread < 2) {
        exl2k_barrier_init(exl2k_shared(&barriers[thread]), 1);
        exl2k_barrier_init_fence();
    }
    exl2k_cluster_arrive();
    exl2k_cluster_wait();
    u64 begin = 0;
    for (u32 round = 0; round < a.rounds + a.skip; round++) {
        u32 set = round % 2, barrier = exl2k_shared(&barriers[set]), there, barrier_there;
        begin = round == a.skip ? exchange_clock() : begin;
        for (u32 i = thread; i < own.y; i += EXCHANGE_THREADS) {
            send[i] = (u16)exchange_value(round, own.x + i);
        }
        __syncthreads();
        /* Warp w sends to CTA w. */
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(exl2k_shared(&vector[set][own.x])), "r"(warp));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(barrier), "r"(warp));
        for (u32 i = lane * 8; i < own.y; i += 256) {
            uint4 v = exl2k_shared_load4(exl2k_shared(send) + i * 2);
            exl2k_sleep(32);
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                         ::"r"(there + i * 2), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier_there) : "memory");
        }
        if (thread == 0) {
            exl2k_barrier_expect(barrier, a.halves * 2);
        }
        wrong += !exchange_wait(barrier, round / 2 & 1);
        for (u32 i = thread * 8; i < a.halves; i += EXCHANGE_THREADS * 8) {
            wrong += exchange_check(exl2k_shared_load4(exl2k_shared(vector[set]) + i * 2), round, i);
        }
        __syncthreads();
    }
    if (thread == 0) {
        *(u64 *)(a.ns + cta * 8) = exchange_clock() - begin;
    }
    if (wrong) {
        atomicAdd((u32 *)a.wrong, wrong);
    }
    exl2k_cluster_arrive();
    exl2k_cluster_wait();
}

EXL2K_FN bool exchange_is_nan(u32 pair) { return (pair & 0x7FFFu) > 0x7C00u || (pair >> 16 & 0x7FFFu) > 0x7C00u; }

/* Grid: a cooperative launch of one CTA on each SM. Halves go through L2 and carry their readiness: 0xFFFF is not there
   yet. A CTA that has read round r makes its slots of round r + 2 empty: every CTA has read what was there. */
extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS, 1) exl2k_exchange_grid(exl2k_exchange_args a)
{
    extern __shared__ __align__(128) u8 ring[];
    __shared__ __align__(8) u64 barriers[16];
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, cta = blockIdx.x, wrong = 0;
    u32 bytes = a.kilobytes * 64, barrier = exl2k_shared(&barriers[warp]); /* of a warp */
    uint2 own = exchange_own(a.halves, cta, gridDim.x);
    u64 begin = 0, from = ((u64)cta * 16 + warp) * bytes;
    if (lane == 0) {
        exl2k_barrier_init(barrier, 1);
        exl2k_barrier_init_fence();
    }
    __syncthreads();
    for (u32 round = 0; round < a.rounds + a.skip; round++) {
        u64 slots = a.slots + round % 4 * a.halves * 2, empty = a.slots + (round + 2) % 4 * a.halves * 2;
        begin = round == a.skip ? exchange_clock() : begin;
        if (bytes > 0) { /* the copies of the round before have arrived; the next ones leave */
            if (round > 0) {
                exl2k_barrier_wait(barrier, (round - 1) & 1);
            }
            __syncwarp();
            if (lane == 0) {
                exl2k_barrier_expect(barrier, bytes);
                u32 to = exl2k_shared(ring) + warp * bytes;
                exl2k_copy_bulk(to, a.weights + from, bytes, barrier, exl2k_evict_first());
            }
            from += (u64)gridDim.x * 16 * bytes;
            from = from + bytes > a.weight_bytes ? ((u64)cta * 16 + warp) * bytes : from;
        }
        for (u32 i = thread; i < own.y; i += EXCHANGE_THREADS) {
            exl2k_sleep(32);
            asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(slots + (own.x + i) * 2),
                         "h"((u16)exchange_value(round, own.x + i)) : "memory");
        }
        for (u32 i = thread * 8; i < a.halves; i += EXCHANGE_THREADS * 8) {
            uint4 v;
            u32 looks = 0;
            do {
                asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(slots + i * 2) : "memory");
            } while ((exchange_is_nan(v.x) || exchange_is_nan(v.y) || exchange_is_nan(v.z) || exchange_is_nan(v.w)) &&
                     ++looks < EXCHANGE_LOOKS);
            wrong += exchange_check(v, round, i);
        }
        __syncthreads();
        for (u32 i = thread; i < own.y; i += EXCHANGE_THREADS) {
            asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(empty + (own.x + i) * 2), "h"((u16)0xFFFF)
                         : "memory");
        }
    }
    if (bytes > 0) {
        exl2k_barrier_wait(barrier, (a.rounds + a.skip - 1) & 1);
    }
    if (thread == 0) {
        *(u64 *)(a.ns + cta * 8) = exchange_clock() - begin;
    }
    if (wrong) {
        atomicAdd((u32 *)a.wrong, wrong);
    }
}
