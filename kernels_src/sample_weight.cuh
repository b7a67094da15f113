/* sample_weight.cuh: logits as ordered keys, and integer weights, as exl2_impl/3_backend/sample/cpu_weight.h has them.
   takes: base.cuh, sample_args.h.
   gives: exl2k_key, exl2k_key_logit, exl2k_curve, exl2k_steps, exl2k_weight, exl2k_random.

   Every integer equals that of the CPU backend, so that CPU and GPU sample the same token from the same logits. The two
   float operations are intrinsics that the compiler never contracts. */
#ifndef EXL2K_SAMPLE_WEIGHT_CUH
#define EXL2K_SAMPLE_WEIGHT_CUH

#include "base.cuh"
#include "sample_args.h"

#define EXL2K_KEY_INF 0x7F800000                /* key of +infinity */
#define EXL2K_KEY_NONE (-EXL2K_KEY_INF)         /* key of -infinity and NaN: the token is not allowed */
#define EXL2K_KEY_LEAST (-0x7F7FFFFF)           /* key of the smallest finite logit */
#define EXL2K_BITS_NONE 0xFF800000u             /* bits of a logit with that key */
#define EXL2K_WEIGHT_ONE_LOG2 40
#define EXL2K_WEIGHT_ONE (1ull << EXL2K_WEIGHT_ONE_LOG2)
#define EXL2K_WEIGHT_ZERO_BITS 0x4EA20000u       /* 40.5 * 2^25 as a float: from this distance on, weights are 0 */
#define EXL2K_BIN_STEPS_LOG2 19
#define EXL2K_SLOPE_ONE 48408812.646245942f     /* 2^25 * log2(e): the slope at temperature 1 */

/* 2^(31 - j / 8), rounded. */
static __constant__ u32 exl2k_eighths[8] = { 0x80000000u, 0x75606374u, 0x6BA27E65u, 0x62B39509u,
                                             0x5A82799Au, 0x52FF6B55u, 0x4C1BF829u, 0x45CAE0F2u };

/* A copy in shared memory, because lanes read different entries at the same time. The kernel fills it before a
   barrier. */
static __shared__ u32 exl2k_eighth[8];

/* The key of a logit: an integer with the same order as the logits. */
EXL2K_FN int exl2k_key(u32 bits)
{
    u32 size = bits & 0x7FFFFFFFu;
    int key = (int)bits < 0 ? -(int)size : (int)size;
    return size > 0x7F800000u ? EXL2K_KEY_NONE : key;
}

EXL2K_FN u32 exl2k_key_bits(int key) { return key < 0 ? 0x80000000u | (0u - (u32)key) : (u32)key; }
EXL2K_FN f32 exl2k_key_logit(int key) { return __uint_as_float(exl2k_key_bits(key)); }

typedef struct exl2k_curve {
    int top_key; /* key of the largest logit; above EXL2K_KEY_NONE */
    f32 top, slope;
} exl2k_curve;

EXL2K_FN exl2k_curve exl2k_curve_make(int top_key, f32 slope)
{
    exl2k_curve curve = { top_key, exl2k_key_logit(top_key), slope };
    return curve;
}

/* 2^40 * 2^(-steps / 2^25) for steps < 41 * 2^25. */
EXL2K_FN u64 exl2k_exp2(u32 steps)
{
    u32 t = steps << 10, eighth = exl2k_eighth[steps >> 22 & 7];
    u32 part = 16109532u - __umulhi(t, 445911u);
    part = 372128541u - __umulhi(t, part);
    part = __umulhi(t, part);
    return (((u64)eighth << 32) - (u64)eighth * part) >> (63 - EXL2K_WEIGHT_ONE_LOG2 + (steps >> 25));
}

/* Distance of a logit from the largest one, in units of 2^-25 octaves of weight. If the largest logit is infinite,
   all finite logits have no weight. */
EXL2K_FN u32 exl2k_steps(const exl2k_curve *curve, f32 logit)
{
    f32 below = __fmul_rn(__fsub_rn(curve->top, logit), curve->slope);
    u32 bits = exl2k_min(__float_as_uint(below), EXL2K_WEIGHT_ZERO_BITS);
    return __float_as_uint(logit) == EXL2K_KEY_INF ? 0 : (u32)__float2int_rz(__uint_as_float(bits));
}

EXL2K_FN u64 exl2k_weight(const exl2k_curve *curve, f32 logit) { return exl2k_exp2(exl2k_steps(curve, logit)); }

/* The bin of a weight: 64 bins per octave, and one for all small weights. */
EXL2K_FN u32 exl2k_steps_bin(u32 steps) { return exl2k_min(steps >> EXL2K_BIN_STEPS_LOG2, EXL2K_SAMPLE_BINS - 1); }

EXL2K_FN u64 exl2k_key_weight(const exl2k_curve *curve, int key) { return exl2k_weight(curve, exl2k_key_logit(key)); }

/* The random number generator Philox-4x32-10, as exl2__sample_random with attempt 0. */
EXL2K_FN u64 exl2k_random(u64 seed, u64 position)
{
    u32 x0 = (u32)position, x1 = (u32)(position >> 32), x2 = 0, x3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
    /* Each of the ten rounds makes two products and mixes them with the key. */
#pragma unroll 1
    for (u32 round = 0; round < 10; round++) {
        u64 even = (u64)0xD2511F53u * x0, odd = (u64)0xCD9E8D57u * x2;
        x0 = (u32)(odd >> 32) ^ x1 ^ k0;
        x1 = (u32)odd;
        x2 = (u32)(even >> 32) ^ x3 ^ k1;
        x3 = (u32)even;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x0 | (u64)x1 << 32;
}

#endif
