/* cpu_paths.h: the CPU backend's paths, for tests of each of them. A test that links the tests' engine tests the vector
   code of that engine (tests/engine.c), and does not compile it again. */
#ifndef CPU_PATHS_H
#define CPU_PATHS_H

#include "private/cpu.h"

#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD && EXL2__AVX_VNNI
#define CPU_PATHS { &exl2__cpu_phases_ops, &exl2__cpu_plain_ops, &exl2__cpu_avx2_ops, &exl2__cpu_avxvnni_ops, \
                    &exl2__cpu_avx2_pairs_ops, &exl2__cpu_avx512_ops, &exl2__cpu_vnni_ops }
#define CPU_PATH_COUNT 7
#elif defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
#define CPU_PATHS { &exl2__cpu_phases_ops, &exl2__cpu_plain_ops, &exl2__cpu_avx2_ops, &exl2__cpu_avx2_pairs_ops, \
                    &exl2__cpu_avx512_ops, &exl2__cpu_vnni_ops }
#define CPU_PATH_COUNT 6
#elif defined(EXL2__CPU_FAST)
#define CPU_PATHS { &exl2__cpu_phases_ops, &exl2__cpu_plain_ops, &exl2__cpu_neon_ops }
#define CPU_PATH_COUNT 3
#else
#define CPU_PATHS { &exl2__cpu_phases_ops, &exl2__cpu_plain_ops }
#define CPU_PATH_COUNT 2
#endif

#ifdef CPU_PATHS_OWNER /* tests/engine.c */
extern const exl2__cpu_ops *const all_ops[CPU_PATH_COUNT];
const exl2__cpu_ops *const all_ops[CPU_PATH_COUNT] = CPU_PATHS;
#else
#ifdef TEST_WHOLE
static const exl2__cpu_ops *const all_ops[CPU_PATH_COUNT] = CPU_PATHS;
#else
extern const exl2__cpu_ops *const all_ops[CPU_PATH_COUNT];
#endif

static const char *only_path; /* the program's argument: test this path alone, where all would last too long */

/* Are other operations, before these in the list, the same but for those of EXL3? */
static inline bool is_twin(const exl2__cpu_ops *ops)
{
    for (uint32_t i = 0; i < CPU_PATH_COUNT && all_ops[i] != ops; i++) {
        exl2__cpu_ops same = *all_ops[i];
        same.name = ops->name;
        same.exl3_gather = ops->exl3_gather;
        same.exl3_product = ops->exl3_product;
        if (memcmp(&same, ops, sizeof same) == 0) {
            return true;
        }
    }
    return false;
}

/* Are these operations to be tested, and can this CPU run them? A test of EXL3 defines CPU_PATHS_EXL3, others need no
   path twice. */
static inline bool runs(const exl2__cpu_ops *ops)
{
    if (only_path && strcmp(only_path, ops->name) != 0) {
        return false;
    }
#ifndef CPU_PATHS_EXL3
    if (!only_path && is_twin(ops)) {
        return false;
    }
#endif
#if defined(EXL2__CPU_FAST) && EXL2__X86_SIMD
    exl2_cpu_path needs = strncmp(ops->name, "avx2", 4) == 0 || strcmp(ops->name, "avxvnni") == 0 ? EXL2_CPU_AVX2
                        : strcmp(ops->name, "avx512") == 0 || strcmp(ops->name, "vnni") == 0 ? EXL2_CPU_AVX512
                        : EXL2_CPU_C;
    return exl2__cpu_path_best() >= needs && (!strstr(ops->name, "vnni") || exl2__cpu_path_has_vnni(needs));
#else
    return true;
#endif
}

#endif
#endif
