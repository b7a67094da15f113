/* config.h: what this compiler and processor can do, under names of our own.
   takes: predefined macros, and the host's EXL2_ASSERT.
   gives: EXL2__ASSERT, EXL2__PRINTF, EXL2__COUNT, EXL2__X86_SIMD, targets, inlining, size, lowest bit, atomics.
   owns:  nothing. */
#ifndef EXL2__CONFIG_H
#define EXL2__CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef EXL2_ASSERT
#define EXL2__ASSERT(c) EXL2_ASSERT(c)
#else
#define EXL2__ASSERT(c) ((void)0)
#endif

#define EXL2__COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__) && !defined(__clang__)
#define EXL2__PRINTF(format_index, first_index) __attribute__((format(__gnu_printf__, format_index, first_index)))
#elif defined(__clang__)
#define EXL2__PRINTF(format_index, first_index) __attribute__((format(__printf__, format_index, first_index)))
#else
#define EXL2__PRINTF(format_index, first_index)
#endif

/* SIMD by function target attributes, chosen at run time. Not on mingw: its gcc keeps 32-byte locals on a
   16-byte stack (GCC bug 54412), so those builds run the reference path. */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && !defined(__MINGW32__) && !defined(EXL2_NO_SIMD)
#define EXL2__X86_SIMD 1
/* Its allocation helpers call malloc and free, which hosts define as macros. */
#pragma push_macro("malloc")
#pragma push_macro("free")
#undef malloc
#undef free
#include <immintrin.h>
#pragma pop_macro("free")
#pragma pop_macro("malloc")
#define EXL2__TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define EXL2__TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
/* Whether the processor runs EXL2__TARGET_AVX2 code (every one with AVX2 and FMA has F16C). */
static inline bool exl2__has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* The same for EXL2__TARGET_AVX512. */
static inline bool exl2__has_avx512(void)
{
    return exl2__has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#else
#define EXL2__X86_SIMD 0
#endif

/* For kernels whose tile sizes are constants of the caller: only inlined and unrolled do tiles live in registers. */
#if EXL2__X86_SIMD
#define EXL2__FORCE_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define EXL2__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__OPTIMIZE__)
#define EXL2__UNROLL _Pragma("GCC unroll 16")
#else
#define EXL2__UNROLL /* at -O0 gcc warns of the hint that it ignores */
#endif
#endif

/* COLD: code that is built for size, because it runs a few times a model or a job; compilers that can see that only
   such code calls a function build that one so too, unless it is HOT: loops over the whole of a big file. */
#if defined(__GNUC__) || defined(__clang__)
#define EXL2__NOINLINE __attribute__((noinline))
#define EXL2__COLD __attribute__((noinline, cold))
#define EXL2__HOT __attribute__((noinline, hot))
#define EXL2__PREFETCH(address) __builtin_prefetch(address)
#else
#define EXL2__NOINLINE
#define EXL2__COLD
#define EXL2__HOT
#define EXL2__PREFETCH(address) ((void)(address))
#endif

/* Number of the lowest set bit of what is not 0. */
static inline uint32_t exl2__lowest_bit(uint64_t word)
{
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(word);
#else
    uint32_t bit = 0;
    for (; !(word & 1); word >>= 1) {
        bit++;
    }
    return bit;
#endif
}

/* Between these, at file level, functions are built for size: those that read text and settings run a few times a
   model or a job, and what a step does beside its arithmetic is little. Not in builds for debugging. */
#if defined(__clang__)
#define EXL2__SIZE_BEGIN _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#define EXL2__SIZE_END _Pragma("clang attribute pop")
#elif defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define EXL2__SIZE_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Os\")")
#define EXL2__SIZE_END _Pragma("GCC pop_options")
#else
#define EXL2__SIZE_BEGIN
#define EXL2__SIZE_END
#endif

/* Sequentially consistent; few and off the hot path. C11's stdatomic.h is missing from MSVC's C. */
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
static inline uint32_t exl2__atomic_load(const uint32_t *p)
{
    return (uint32_t)_InterlockedOr((volatile long *)(uintptr_t)p, 0);
}
static inline uint64_t exl2__atomic_load64(const uint64_t *p)
{
    return (uint64_t)_InterlockedOr64((volatile __int64 *)(uintptr_t)p, 0);
}
static inline void exl2__atomic_store(uint32_t *p, uint32_t value)
{
    (void)_InterlockedExchange((volatile long *)p, (long)value);
}
static inline uint32_t exl2__atomic_swap(uint32_t *p, uint32_t value)
{
    return (uint32_t)_InterlockedExchange((volatile long *)p, (long)value);
}
#else
static inline uint32_t exl2__atomic_load(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline uint64_t exl2__atomic_load64(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline void exl2__atomic_store(uint32_t *p, uint32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}
static inline uint32_t exl2__atomic_swap(uint32_t *p, uint32_t value)
{
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);
}
#endif

/* A lock for sections of a few dozen instructions (error record, counters, job flags); it never sleeps. */
static inline void exl2__lock(uint32_t *lock)
{
    while (exl2__atomic_swap(lock, 1)) {
    }
}
static inline void exl2__unlock(uint32_t *lock)
{
    exl2__atomic_store(lock, 0);
}

#endif
