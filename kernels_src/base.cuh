/* base.cuh: functions that CUDA's headers would provide, as inline PTX, because NVRTC finds no headers at run time.
   takes: __CUDA_ARCH__; macros that are 0 or 1: EXL2K_ANY (default 0): products for any family, see gemv_args.h;
          EXL2K_AFFINE (default 0): products of affine matrices; EXL2K_PDL (default 1): launches overlap, see
          exl2k_dependency_wait; EXL2K_SLEEP (a number, default 0: off): random delays for tests, see exl2k_sleep.
   gives: short types, half pairs in a u32, conversions, loads and stores with their cache rules, mma, ldmatrix,
          cp.async, bulk copies with mbarrier, programmatic launch, sums over a warp.

   A half pair is a u32: the low half-word is element 0. Addresses of shared memory are u32 (exl2k_shared). */
#ifndef EXL2K_BASE_CUH
#define EXL2K_BASE_CUH

#include "types.h"

typedef exl2k_u8 u8;
typedef exl2k_u16 u16;
typedef exl2k_u32 u32;
typedef exl2k_u64 u64;
typedef exl2k_f32 f32;

#ifndef EXL2K_ANY
#define EXL2K_ANY 0
#endif

/* 1: the kernel computes products of affine matrices (matrix_args.h). */
#ifndef EXL2K_AFFINE
#define EXL2K_AFFINE 0
#endif

#ifndef EXL2K_PDL
#define EXL2K_PDL 1
#endif

#ifndef EXL2K_SLEEP
#define EXL2K_SLEEP 0
#endif

#define EXL2K_FN static __device__ __forceinline__
#define EXL2K_WARP 32u
#define EXL2K_ALL 0xFFFFFFFFu /* every lane of a warp */

EXL2K_FN u32 exl2k_min(u32 a, u32 b) { return a < b ? a : b; }
EXL2K_FN u32 exl2k_max(u32 a, u32 b) { return a > b ? a : b; }

/* For tests: sleeps up to 16 us in one of `one_in` calls, chosen by a hash of block, warp and time. Kernels call it
   before each store that other kernels read, before they let the next kernel start, and after they have waited for
   the preceding kernels. The delays expose kernels whose order of execution is correct only by luck. */
EXL2K_FN void exl2k_sleep(u32 one_in)
{
#if EXL2K_SLEEP
    u32 now, hash = EXL2K_SLEEP;
    asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
    hash = (hash ^ (now >> 8)) * 0x9E3779B1u;
    hash = (hash ^ blockIdx.x ^ blockIdx.y << 12 ^ blockIdx.z << 20) * 0x85EBCA77u;
    hash = (hash ^ hash >> 15 ^ threadIdx.x / EXL2K_WARP) * 0xC2B2AE3Du;
    if ((hash >> 16) % one_in == 0) {
        asm volatile("nanosleep.u32 %0;" ::"r"(hash & 16383u));
    }
#else
    (void)one_in;
#endif
}

/* The compiler keeps v in one register from here on, in place of what it was computed from. */
EXL2K_FN void exl2k_opaque(u32 &v) { asm volatile("" : "+r"(v)); }

/* ---- halves and half pairs ---- */

EXL2K_FN f32 exl2k_f16_to_f32(u32 half)
{
    f32 value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)half));
    return value;
}

EXL2K_FN f32 exl2k_low(u32 pair) { return exl2k_f16_to_f32(pair & 0xFFFFu); }
EXL2K_FN f32 exl2k_high(u32 pair) { return exl2k_f16_to_f32(pair >> 16); }

EXL2K_FN u32 exl2k_f32_to_f16(f32 value)
{
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

/* Clamps to the largest finite half, so that no infinity enters a product. A NaN stays a NaN: the row's job is to fail,
   as it does on the CPU. */
EXL2K_FN f32 exl2k_clamp_f16(f32 value)
{
    f32 d;
#if __CUDA_ARCH__ >= 800
    asm("{\n.reg .f32 low;\nmax.NaN.f32 low, %1, 0fC77FE000;\nmin.NaN.f32 %0, low, 0f477FE000;\n}"
        : "=f"(d) : "f"(value));
#else
    d = value != value ? value : fminf(fmaxf(value, -65504.0f), 65504.0f);
#endif
    return d;
}

EXL2K_FN u32 exl2k_pack_f16(f32 low, f32 high)
{
#if __CUDA_ARCH__ >= 800
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return exl2k_f32_to_f16(low) | exl2k_f32_to_f16(high) << 16;
#endif
}

EXL2K_FN u32 exl2k_sub2(u32 a, u32 b)
{
    u32 d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

EXL2K_FN u32 exl2k_mul2(u32 a, u32 b)
{
    u32 d;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

EXL2K_FN u32 exl2k_fma2(u32 a, u32 b, u32 c)
{
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* (a & b) | c in one instruction. */
EXL2K_FN u32 exl2k_and_or(u32 a, u32 b, u32 c)
{
    u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* 1 / a with a relative error of at most 2^-23. */
EXL2K_FN f32 exl2k_reciprocal(f32 a)
{
    f32 d;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(a));
    return d;
}

/* Sum of the products of the four bytes of a and b. */
EXL2K_FN u32 exl2k_dot4(u32 a, u32 b)
{
    u32 d;
    asm("dp4a.u32.u32 %0, %1, %2, 0;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

EXL2K_FN u32 exl2k_permute_bytes(u32 a, u32 b, u32 selector)
{
    u32 d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

EXL2K_FN f32 exl2k_bf16_to_f32(u32 bits) { return __uint_as_float(bits << 16); }

/* ---- global memory ---- */

/* For data that no running kernel writes (weights, tables); may be cached in L1. */
EXL2K_FN u32 exl2k_load_constant(u64 at)
{
    u32 v;
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(at));
    return v;
}

EXL2K_FN uint2 exl2k_load_constant2(u64 at)
{
    uint2 v;
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

EXL2K_FN uint4 exl2k_load_constant4(u64 at)
{
    uint4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

/* For data that an earlier kernel has written: reads L2, never L1. */
EXL2K_FN u32 exl2k_load(u64 at)
{
    u32 v;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

EXL2K_FN f32 exl2k_load_f32(u64 at) { return __uint_as_float(exl2k_load(at)); }

EXL2K_FN u32 exl2k_load_u16(u64 at)
{
    u16 v;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(v) : "l"(at) : "memory");
    return v;
}

EXL2K_FN uint4 exl2k_load4(u64 at)
{
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

/* Prefetches into L2. */
EXL2K_FN void exl2k_prefetch(u64 at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

EXL2K_FN void exl2k_store(u64 at, u32 v)
{
    exl2k_sleep(32);
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

EXL2K_FN void exl2k_store_f32(u64 at, f32 v) { exl2k_store(at, __float_as_uint(v)); }

EXL2K_FN void exl2k_store_u16(u64 at, u32 v)
{
    exl2k_sleep(32);
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"((u16)v) : "memory");
}

EXL2K_FN void exl2k_store2(u64 at, u32 x, u32 y)
{
    exl2k_sleep(32);
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(x), "r"(y) : "memory");
}

EXL2K_FN void exl2k_store4(u64 at, uint4 v)
{
    exl2k_sleep(32);
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- shared memory ---- */

EXL2K_FN u32 exl2k_shared(const void *p) { return (u32)__cvta_generic_to_shared(p); }

EXL2K_FN u32 exl2k_shared_load(u32 at)
{
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

EXL2K_FN f32 exl2k_shared_load_f32(u32 at) { return __uint_as_float(exl2k_shared_load(at)); }

EXL2K_FN uint2 exl2k_shared_load2(u32 at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}

EXL2K_FN uint4 exl2k_shared_load4(u32 at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

EXL2K_FN void exl2k_shared_store(u32 at, u32 v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}

EXL2K_FN void exl2k_shared_store2(u32 at, uint2 v)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

EXL2K_FN void exl2k_shared_store_f32(u32 at, f32 v) { exl2k_shared_store(at, __float_as_uint(v)); }

EXL2K_FN void exl2k_shared_store4(u32 at, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* ---- copies from global to shared memory ---- */

/* A cache policy for bulk copies of data that is read once per token: L2 evicts it first. 0 before sm_80. */
EXL2K_FN u64 exl2k_evict_first(void)
{
    u64 policy = 0;
#if __CUDA_ARCH__ >= 800
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#endif
    return policy;
}

/* Copies 16 bytes, asynchronously from sm_80 on; both addresses are multiples of 16. */
EXL2K_FN void exl2k_copy16(u32 to, u64 from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    exl2k_shared_store4(to, exl2k_load4(from));
#endif
}

/* The same for data that is read once per token; fetches 256 bytes at a time into L2. It has no cache policy: with
   one, ptxas 13.0 may choose wrong uniform registers when the shared address has a uniform part, and the instruction
   becomes illegal. */
EXL2K_FN void exl2k_copy16_once(u32 to, u64 from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    exl2k_shared_store4(to, exl2k_load_constant4(from));
#endif
}

EXL2K_FN void exl2k_copy_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most `PENDING` of this thread's committed groups are still in flight. */
template <u32 PENDING> EXL2K_FN void exl2k_copy_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
/* True in one lane of the warp. The compiler knows that it is one, so bulk copies need no loop over lanes. */
EXL2K_FN bool exl2k_elect(void)
{
    u32 is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is));
    return is != 0;
}

EXL2K_FN void exl2k_barrier_init(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Needed after the inits and before the first bulk copy. */
EXL2K_FN void exl2k_barrier_init_fence(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

EXL2K_FN void exl2k_barrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

EXL2K_FN void exl2k_barrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

EXL2K_FN void exl2k_barrier_wait(u32 barrier, u32 parity)
{
    asm volatile("{\n.reg .pred p;\nL_WAIT_%=:\n"
                 "mbarrier.try_wait.parity.shared.b64 p, [%0], %1, 0x989680;\n"
                 "@!p bra L_WAIT_%=;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

/* One thread copies a contiguous range; `bytes` and both addresses are multiples of 16. */
EXL2K_FN void exl2k_copy_bulk(u32 to, u64 from, u32 bytes, u32 barrier, u64 policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}
#endif

/* ---- clusters: CTAs of one row of the grid, which can write to each other's shared memory ---- */

/* Number of CTAs in this CTA's cluster; 1 if the launch has no clusters. */
EXL2K_FN u32 exl2k_cluster_size(void)
{
    u32 size = 1;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
#endif
    return size;
}

/* Barrier of all running CTAs of the cluster: data written before arriving can be read after waiting. */
EXL2K_FN void exl2k_cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

EXL2K_FN void exl2k_cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* Stores into shared memory of the cluster's first CTA, at the address that corresponds to this CTA's `at`. */
EXL2K_FN void exl2k_cluster_store4(u32 at, uint4 v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .b32 to;\nmapa.shared::cluster.u32 to, %0, 0;\n"
                 "st.shared::cluster.v4.b32 [to], {%1, %2, %3, %4};\n}"
                 ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
/* The address in shared memory of the cluster's CTA `cta` that corresponds to this CTA's `at`. */
EXL2K_FN u32 exl2k_cluster_address(u32 at, u32 cta)
{
    u32 to;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at), "r"(cta));
    return to;
}

EXL2K_FN uint4 exl2k_cluster_load4(u32 from)
{
    uint4 v;
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}
#endif

/* ---- tensor cores ---- */

/* d[16 x 8] += a[16 x 16] b[16 x 8]. Operands of lane 4g + t:
     a[0]        row g,     columns 2t, 2t + 1        b0          column g, rows 2t, 2t + 1
     a[1]        row g + 8, columns 2t, 2t + 1        b1          column g, rows 2t + 8, 2t + 9
     a[2], a[3]  the same rows, columns 2t + 8, + 9   d[0], d[1]  row g, columns 2t, 2t + 1
                                                      d[2], d[3]  row g + 8, the same columns */
EXL2K_FN void exl2k_mma(f32 d[4], const u32 a[4], u32 b0, u32 b1)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

/* Loads four 8 x 8 tiles of halves; lane l gives the address of row l % 8 of tile l / 8. */
EXL2K_FN uint4 exl2k_ldmatrix4(u32 at)
{
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

EXL2K_FN uint4 exl2k_ldmatrix4_transposed(u32 at)
{
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}

/* ---- activations and soft caps ---- */

EXL2K_FN f32 exl2k_silu(f32 v) { return v / (1.0f + __expf(-v)); }

/* GELU by tanh: v / (1 + e^-z), z = 2 sqrt(2 / pi) (v + 0.044715 v^3). */
EXL2K_FN f32 exl2k_gelu_tanh(f32 v)
{
    f32 z = 1.5957691216f * fmaf(0.044715f * v * v, v, v);
    return v * exl2k_reciprocal(1.0f + __expf(-z));
}

/* GELU: v times the normal distribution's cumulative probability at v. The tail beyond |v| is a polynomial of t times
   e^(-v^2 / 2), with an absolute error of 8e-8 (Abramowitz and Stegun, 7.1.26). */
EXL2K_FN f32 exl2k_gelu(f32 v)
{
    f32 t = exl2k_reciprocal(fmaf(0.2316418882f, fabsf(v), 1.0f)); /* 0.3275911 / sqrt(2) */
    f32 p = fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
    f32 tail = 0.5f * p * t * __expf(-0.5f * v * v);
    return v * (v > 0.0f ? 1.0f - tail : tail);
}

EXL2K_FN f32 exl2k_relu_squared(f32 v) { return v > 0.0f ? v * v : v * 0.0f; }

/* act: EXL2K_ACT_* but CLAMPED. A NaN stays a NaN. */
EXL2K_FN f32 exl2k_act(u32 act, f32 v)
{
    return act == EXL2K_ACT_SILU ? exl2k_silu(v) : act == EXL2K_ACT_GELU_TANH ? exl2k_gelu_tanh(v)
         : act == EXL2K_ACT_GELU ? exl2k_gelu(v) : exl2k_relu_squared(v);
}

/* The SwiGLU of GPT-OSS: g sigmoid(1.702 g) (u + 1), where g = min(gate, limit) and u is `up` bounded to +-limit. */
EXL2K_FN f32 exl2k_clamped(f32 gate, f32 up, f32 limit)
{
    f32 g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
    return exl2k_silu(1.702f * g) * ((u + 1.0f) * (1.0f / 1.702f));
}

/* act(gate) * up. limit: of EXL2K_ACT_CLAMPED. */
EXL2K_FN f32 exl2k_gated(u32 act, f32 limit, f32 gate, f32 up)
{
    return act == EXL2K_ACT_CLAMPED ? exl2k_clamped(gate, up, limit) : exl2k_act(act, gate) * up;
}

/* cap * tanh(v / cap), from exp and reciprocal: tanh.approx would be off by 5e-4 of the cap. */
EXL2K_FN f32 exl2k_softcap(f32 v, f32 cap)
{
    return fmaf(-2.0f * cap, exl2k_reciprocal(1.0f + __expf(2.0f / cap * v)), cap);
}

/* ---- programmatic dependent launch ---- */

/* Waits for the preceding kernels. Before this call a kernel may read only weights and constant tables, and may
   write nothing. Every CTA calls it. (expert.cuh reads more, and says why it may.) */
EXL2K_FN void exl2k_dependency_wait(void)
{
#if EXL2K_PDL && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    exl2k_sleep(2);
}

/* Allows the next kernel to start on an SM as soon as this kernel leaves it. */
EXL2K_FN void exl2k_dependency_release(void)
{
    exl2k_sleep(2);
#if EXL2K_PDL && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- sums over a warp, in the same order on every GPU ---- */

EXL2K_FN f32 exl2k_warp_sum(f32 v)
{
    for (u32 step = 16; step > 0; step /= 2) {
        v += __shfl_xor_sync(EXL2K_ALL, v, step);
    }
    return v;
}

EXL2K_FN f32 exl2k_half_warp_sum(f32 v) /* one sum for lanes 0..15 and one for 16..31 */
{
    for (u32 step = 8; step > 0; step /= 2) {
        v += __shfl_xor_sync(EXL2K_ALL, v, step);
    }
    return v;
}

EXL2K_FN u32 exl2k_warp_most(u32 v) /* the largest one */
{
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(EXL2K_ALL, v);
#else
    for (u32 step = 16; step > 0; step /= 2) {
        v = exl2k_max(v, __shfl_xor_sync(EXL2K_ALL, v, step));
    }
    return v;
#endif
}

EXL2K_FN f32 exl2k_warp_max(f32 v)
{
    for (u32 step = 16; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(EXL2K_ALL, v, step));
    }
    return v;
}

#endif
