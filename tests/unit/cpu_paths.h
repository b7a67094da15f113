/* cpu_paths.h: the CPU backend's paths, for tests of each of them. */
#ifndef CPU_PATHS_H
#define CPU_PATHS_H

#include "private/cpu.h"

static const exl2__cpu_ops *const all_ops[] = {
    &exl2__cpu_phases_ops,
    &exl2__cpu_plain_ops,
#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
    &exl2__cpu_avx2_ops,
#if EXL2__AVX_VNNI
    &exl2__cpu_avxvnni_ops,
#endif
    &exl2__cpu_avx512_ops,
    &exl2__cpu_vnni_ops,
#elif defined(EXL2__CPU_FAST)
    &exl2__cpu_neon_ops,
#endif
};

static const char *only_path; /* the program's argument: test this path alone, where all would last too long */

/* Are these operations to be tested, and can this CPU run them? */
static bool runs(const exl2__cpu_ops *ops)
{
    if (only_path && strcmp(only_path, ops->name) != 0) {
        return false;
    }
#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
    exl2_cpu_path needs = ops == &exl2__cpu_avx2_ops || strcmp(ops->name, "avxvnni") == 0 ? EXL2_CPU_AVX2
                        : ops == &exl2__cpu_avx512_ops || ops == &exl2__cpu_vnni_ops ? EXL2_CPU_AVX512 : EXL2_CPU_C;
    return exl2__cpu_path_best() >= needs && (!strstr(ops->name, "vnni") || exl2__cpu_path_has_vnni(needs));
#else
    return true;
#endif
}

#endif
