/* config.h: what this compiler can do, under names of our own.
   takes: predefined macros, and the application's EXL2_ASSERT.
   gives: EXL2__PRIVATE, EXL2__ASSERT, EXL2__PRINTF, EXL2__COUNT, EXL2__X86_SIMD, EXL2__NEON_SIMD,
          EXL2__TARGET_AVX2, EXL2__NOINLINE and other attributes, EXL2__OPAQUE, EXL2__ROUND_TWICE_BEGIN, exl2__cpuid,
          exl2__mul_float and exl2__mul_double, exl2__lowest_bit, exl2__atomic_load and its like, exl2__pause,
          exl2__lock. */
#ifndef EXL2__CONFIG_H
#define EXL2__CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if UINTPTR_MAX < UINT64_MAX
#error "exl2.h needs a 64-bit target: a 32-bit process has no room for models"
#endif

/* MSVC itself: clang-cl defines _MSC_VER, too, but compiles the code of gcc and clang. */
#if defined(_MSC_VER) && !defined(__clang__)
#define EXL2__MSVC 1
#else
#define EXL2__MSVC 0
#endif

/* Internal linkage. Tests define this word as nothing, so that they can link one compiled engine and call its private
   functions (tests/meson.build). */
#ifndef EXL2__PRIVATE
#define EXL2__PRIVATE static
#endif

#ifdef EXL2_ASSERT
#define EXL2__ASSERT(c) EXL2_ASSERT(c)
#else
#define EXL2__ASSERT(c) ((void)0)
#endif

/* The same for conditions that walk over a list or a pool: only the sanitizers' build defines EXL2_ASSERT_SLOW, too. */
#if defined(EXL2_ASSERT) && defined(EXL2_ASSERT_SLOW)
#define EXL2__ASSERT_SLOW(c) EXL2_ASSERT(c)
#else
#define EXL2__ASSERT_SLOW(c) ((void)0)
#endif

#define EXL2__COUNT(array) (sizeof(array) / sizeof((array)[0]))

#if defined(__GNUC__) && !defined(__clang__)
#define EXL2__PRINTF(format_index, first_index) __attribute__((format(__gnu_printf__, format_index, first_index)))
#elif defined(__clang__)
#define EXL2__PRINTF(format_index, first_index) __attribute__((format(__printf__, format_index, first_index)))
#else
#define EXL2__PRINTF(format_index, first_index)
#endif

/* gcc for Windows places locals of 32 and 64 bytes on a stack that is aligned to 16 bytes, and accesses them by aligned
   moves, which fault (GCC bug 54412; clang realigns the stack). Here macros of the assembler replace the aligned moves
   by unaligned ones, which are as fast. The macros are defined at file level and once more at the head of each function
   that holds vectors, because -flto may cut a file into several assembler files. The symbol keeps an assembler file
   from defining them twice. Tests define EXL2__TEST_UNALIGNED_MOVES, to see the effect on other systems. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    (defined(__MINGW32__) || defined(EXL2__TEST_UNALIGNED_MOVES))
#define EXL2__UNALIGNED_MOVE(from, to) ".macro " from " operands:vararg\n" to " \\operands\n.endm\n"
#define EXL2__UNALIGNED_TEXT                                                                                      \
    ".ifndef exl2__unaligned_moves\n.set exl2__unaligned_moves, 1\n"                                              \
    EXL2__UNALIGNED_MOVE("vmovaps", "vmovups") EXL2__UNALIGNED_MOVE("vmovapd", "vmovupd")                         \
    EXL2__UNALIGNED_MOVE("vmovdqa", "vmovdqu") EXL2__UNALIGNED_MOVE("vmovdqa32", "vmovdqu32")                     \
    EXL2__UNALIGNED_MOVE("vmovdqa64", "vmovdqu64") ".endif\n"
#define EXL2__UNALIGNED_MOVES() __asm__(EXL2__UNALIGNED_TEXT)
EXL2__UNALIGNED_MOVES();
#else
#define EXL2__UNALIGNED_MOVES() ((void)0)
#endif

/* SIMD code is compiled by function target attributes, which MSVC does not need, and chosen at run time. */
#if !defined(EXL2_NO_SIMD) && (((defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)) || \
                               (EXL2__MSVC && defined(_M_X64) && !defined(_M_ARM64EC)))
#define EXL2__X86_SIMD 1
#else
#define EXL2__X86_SIMD 0
#endif

#if EXL2__MSVC
/* intrin.h has functions that call malloc and free, which applications may have defined as macros. */
#pragma push_macro("malloc")
#pragma push_macro("free")
#undef malloc
#undef free
#include <intrin.h>
#pragma pop_macro("free")
#pragma pop_macro("malloc")
#endif

#if EXL2__X86_SIMD && EXL2__MSVC
#define EXL2__TARGET_AVX2
#define EXL2__TARGET_AVX512
#define EXL2__TARGET_VNNI
static inline void exl2__cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) /* eax, ebx, ecx, edx */
{
    int part[4];
    __cpuidex(part, (int)leaf, (int)subleaf);
    for (uint32_t i = 0; i < 4; i++) {
        out[i] = (uint32_t)part[i];
    }
}

/* The low half of XCR0. Only if CPUID reports OSXSAVE. */
static inline uint32_t exl2__xgetbv(void)
{
    return (uint32_t)_xgetbv(0);
}
#elif EXL2__X86_SIMD
#define EXL2__TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define EXL2__TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define EXL2__TARGET_VNNI \
    __attribute__((target("avx512vnni,avx512vbmi,avx512vbmi2,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
/* CPUID by hand: __builtin_cpu_supports needs compiler-rt, which clang-cl does not link. */
static inline void exl2__cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) /* eax, ebx, ecx, edx */
{
    __asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(subleaf));
}

/* The low half of XCR0. Only if CPUID reports OSXSAVE. */
static inline uint32_t exl2__xgetbv(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

/* AVX-VNNI sums bytes in 256 bits: compilers that know it have this header (gcc 11, clang 12). */
#define EXL2__AVX_VNNI 0
#if EXL2__X86_SIMD && !EXL2__MSVC && defined(__has_include)
#if __has_include(<avxvnniintrin.h>)
#undef EXL2__AVX_VNNI
#define EXL2__AVX_VNNI 1
#define EXL2__TARGET_AVX_VNNI __attribute__((target("avxvnni,avx2,fma,f16c")))
#endif
#endif

/* After this, compilers know nothing about the vector v, which is in a register of class c. (MSVC does not reorder
   sums.) */
#if EXL2__MSVC
#define EXL2__OPAQUE(c, v) ((void)0)
#else
#define EXL2__OPAQUE(c, v) __asm__("" : "+" c(v))
#endif

/* Every aarch64 CPU has NEON. Big-endian systems number lanes in another way. */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) && defined(__ARM_NEON) && \
    !defined(__AARCH64EB__) && !defined(EXL2_NO_SIMD)
#define EXL2__NEON_SIMD 1
#else
#define EXL2__NEON_SIMD 0
#endif

/* For kernels whose tile sizes are constants of the caller: a tile stays in registers only if the kernel is inlined and
   its loops are unrolled. */
#if EXL2__MSVC
#define EXL2__FORCE_INLINE static __forceinline
#elif defined(__GNUC__) || defined(__clang__)
#define EXL2__FORCE_INLINE static inline __attribute__((always_inline))
#else
#define EXL2__FORCE_INLINE static inline
#endif
#if defined(__clang__)
#define EXL2__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__) && defined(__OPTIMIZE__)
#define EXL2__UNROLL _Pragma("GCC unroll 16")
#else
#define EXL2__UNROLL /* at -O0 gcc ignores the hint, with a warning */
#endif

/* Where the CPU has fused multiply-adds, gcc uses them for a * b + c, also across statements, unless -std=c11 forbids
   it; so results would depend on the application's options. Two things prevent that. Between the following two, at file
   level, a * b + c rounds twice: for files of loops that are to be vectorized. */
#if defined(__clang__)
#define EXL2__ROUND_TWICE_BEGIN _Pragma("STDC FP_CONTRACT OFF")
#define EXL2__ROUND_TWICE_END _Pragma("STDC FP_CONTRACT DEFAULT")
#elif defined(__GNUC__) && defined(__OPTIMIZE__)
#define EXL2__ROUND_TWICE_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#define EXL2__ROUND_TWICE_END _Pragma("GCC pop_options")
#elif EXL2__MSVC
#define EXL2__ROUND_TWICE_BEGIN __pragma(fp_contract(off))
#define EXL2__ROUND_TWICE_END
#else
#define EXL2__ROUND_TWICE_BEGIN
#define EXL2__ROUND_TWICE_END
#endif

/* And elsewhere, a product of these functions is rounded before it is added to something: no compiler looks through the
   empty assembler statement. (x86-64 without AVX has no fused operation. MSVC contracts only if asked.) */
#if (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
#define EXL2__ROUNDED(x) __asm__("" : "+w"(x))
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__) && defined(__AVX__)
#define EXL2__ROUNDED(x) __asm__("" : "+x"(x))
#elif (defined(__GNUC__) || defined(__clang__)) && !defined(__x86_64__)
#define EXL2__ROUNDED(x) __asm__("" : "+m"(x))
#else
#define EXL2__ROUNDED(x) ((void)0)
#endif
static inline float exl2__mul_float(float a, float b)
{
    float product = a * b;
    EXL2__ROUNDED(product);
    return product;
}
static inline double exl2__mul_double(double a, double b)
{
    double product = a * b;
    EXL2__ROUNDED(product);
    return product;
}

/* COLD: code that runs a few times per model or job, and is compiled for size. Compilers do the same with a function
   that only COLD code calls; HOT prevents that, for loops over the whole of a large file. */
#if defined(__GNUC__) || defined(__clang__)
#define EXL2__NOINLINE __attribute__((noinline))
#define EXL2__COLD __attribute__((noinline, cold))
#define EXL2__HOT __attribute__((noinline, hot))
#define EXL2__PREFETCH(address) __builtin_prefetch(address)
#else
#if EXL2__MSVC
#define EXL2__NOINLINE __declspec(noinline)
#else
#define EXL2__NOINLINE
#endif
#define EXL2__COLD EXL2__NOINLINE
#define EXL2__HOT EXL2__NOINLINE
#if EXL2__MSVC && EXL2__X86_SIMD
#define EXL2__PREFETCH(address) _mm_prefetch((const char *)(address), _MM_HINT_T0)
#else
#define EXL2__PREFETCH(address) ((void)(address))
#endif
#endif

/* Index of the lowest set bit. word != 0. */
static inline uint32_t exl2__lowest_bit(uint64_t word)
{
#if defined(__GNUC__) || defined(__clang__)
    return (uint32_t)__builtin_ctzll(word);
#elif EXL2__MSVC && defined(_WIN64)
    unsigned long bit;
    _BitScanForward64(&bit, word);
    return (uint32_t)bit;
#else
    uint32_t bit = 0;
    for (; !(word & 1); word >>= 1) {
        bit++;
    }
    return bit;
#endif
}

/* Functions between these two, at file level, are compiled for size. They read files and settings a few times per model
   or job, or are a small part of a step's time. Debug builds ignore both. */
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

/* Sequentially consistent atomics; they are few, and not on a hot path. MSVC's C has no stdatomic.h. */
#if EXL2__MSVC
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
static inline uint32_t exl2__atomic_add(uint32_t *p, uint32_t more) /* the value before */
{
    return (uint32_t)_InterlockedExchangeAdd((volatile long *)p, (long)more);
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
static inline uint32_t exl2__atomic_add(uint32_t *p, uint32_t more) /* the value before */
{
    return __atomic_fetch_add(p, more, __ATOMIC_SEQ_CST);
}
#endif

/* Tells the CPU that this thread spins: the other thread of its core runs faster, and power is saved. */
static inline void exl2__pause(void)
{
#if EXL2__MSVC && (defined(_M_X64) || defined(_M_IX86))
    _mm_pause();
#elif EXL2__MSVC
    __yield();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A spin lock, for sections of a few dozen instructions (error record, counters, job flags). */
static inline void exl2__lock(uint32_t *lock)
{
    while (exl2__atomic_swap(lock, 1)) {
        exl2__pause();
    }
}
static inline void exl2__unlock(uint32_t *lock)
{
    exl2__atomic_store(lock, 0);
}

#endif
