/* cpu_path.h: which instruction set the CPU code uses: detection by CPUID, and the limit that the application sets.
   takes: CPUID leaves 1 and 7, XCR0, exl2_engine_desc.cpu_path_max.
   gives: exl2__cpu_bits, exl2__cpu_path_of, exl2__cpu_path_best, exl2__cpu_path_has_vnni,
          exl2__cpu_path_splits_products, exl2__cpu_path_choose.
   owns:  nothing. CPUID traps in a virtual machine, so exl2_open reads it once. */
#ifndef EXL2__CPU_PATH_H
#define EXL2__CPU_PATH_H

#include "result.h"

/* The registers that tell what an x86-64 CPU and its system support. */
typedef struct exl2__cpu_bits {
    uint32_t leaf1_ecx, leaf7_ebx; /* CPUID */
    uint32_t saved;                /* XCR0: states that the system saves; 0 without OSXSAVE */
} exl2__cpu_bits;

/* The fastest path that these bits allow. */
static inline exl2_cpu_path exl2__cpu_path_of(exl2__cpu_bits bits)
{
    const uint32_t avx_leaf1 = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;   /* FMA, OSXSAVE, AVX, F16C */
    const uint32_t avx512_leaf7 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    const uint32_t ymm = 0x06, zmm = 0xE0; /* SSE and AVX state; masks, upper halves, registers 16 to 31 */
    bool avx2 = (bits.leaf1_ecx & avx_leaf1) == avx_leaf1 && (bits.leaf7_ebx >> 5 & 1) && (bits.saved & ymm) == ymm;
    bool avx512 = avx2 && (bits.leaf7_ebx & avx512_leaf7) == avx512_leaf7 && (bits.saved & zmm) == zmm;
    return avx512 ? EXL2_CPU_AVX512 : avx2 ? EXL2_CPU_AVX2 : EXL2_CPU_C;
}

/* The fastest path of this build on this CPU. */
static inline exl2_cpu_path exl2__cpu_path_best(void)
{
#if EXL2__X86_SIMD
    exl2__cpu_bits bits = { 0, 0, 0 };
    uint32_t leaf[4];
    exl2__cpuid(0, 0, leaf);
    uint32_t last = leaf[0];
    exl2__cpuid(1, 0, leaf);
    bits.leaf1_ecx = leaf[2];
    if (leaf[2] >> 27 & 1) {
        bits.saved = exl2__xgetbv();
    }
    if (last >= 7) {
        exl2__cpuid(7, 0, leaf);
        bits.leaf7_ebx = leaf[1];
    }
    exl2_cpu_path best = exl2__cpu_path_of(bits);
#ifdef EXL2_NO_AVX512
    best = best == EXL2_CPU_AVX512 ? EXL2_CPU_AVX2 : best;
#endif
    return best;
#elif EXL2__NEON_SIMD
    return EXL2_CPU_NEON;
#else
    return EXL2_CPU_C;
#endif
}

/* Does this CPU, which has this path, also sum bytes (VNNI, VBMI and VBMI2 beside AVX-512, AVX-VNNI beside
   AVX2)? They are no path of their own: results are the same to the bit. */
static inline bool exl2__cpu_path_has_vnni(exl2_cpu_path path)
{
    bool has = false;
    (void)path;
#if EXL2__X86_SIMD
    uint32_t leaf[4], needed = 1u << 1 | 1u << 6 | 1u << 11;
    exl2__cpuid(0, 0, leaf);
    if (leaf[0] >= 7) {
        exl2__cpuid(7, 0, leaf);
        has = path == EXL2_CPU_AVX512 && (leaf[2] & needed) == needed;
        if (path == EXL2_CPU_AVX2 && EXL2__AVX_VNNI && leaf[0] >= 1) {
            exl2__cpuid(7, 1, leaf);
            has = leaf[0] >> 4 & 1;
        }
    }
#endif
    return has;
}

/* Is a product of 32-bit integers in vectors two operations? It is on Intel's CPUs. */
static inline bool exl2__cpu_path_splits_products(void)
{
#if EXL2__X86_SIMD
    uint32_t leaf[4];
    exl2__cpuid(0, 0, leaf);
    return leaf[1] == 0x756E6547; /* the first letters of GenuineIntel */
#else
    return false;
#endif
}

/* The path of an engine. most: the application's limit, or EXL2_CPU_AUTO. Instruction sets of other CPUs limit nothing,
   so that a limit for x86-64 does not make ARM slow. */
static inline exl2_cpu_path exl2__cpu_path_choose(exl2_cpu_path most)
{
    exl2_cpu_path best = exl2__cpu_path_best();
    if (best == EXL2_CPU_NEON && most != EXL2_CPU_C) {
        return best;
    }
    return most != EXL2_CPU_AUTO && most < best ? most : best;
}

#endif
