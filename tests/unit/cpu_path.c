/* cpu_path.c: the choice of the instruction set, from bits of other CPUs and systems, and on this CPU as the compiler's
   own detection sees it. */
#include "../check.h"
#include "private/cpu_path.h"

static void test_bits(void)
{
    const uint32_t haswell = 0x7FFAFBBFu, avx2 = 0x000027ABu; /* CPUID of an Intel Core of 2013 */
    const uint32_t skylake = 0xD39FFFFBu;                     /* leaf 7 of a Xeon of 2017 */
    const struct {
        exl2__cpu_bits bits;
        exl2_cpu_path wanted;
    } cases[] = {
        { { 0, 0, 0 }, EXL2_CPU_C },
        { { haswell, avx2, 0x7 }, EXL2_CPU_AVX2 },
        { { haswell, avx2, 0x3 }, EXL2_CPU_C },              /* a system that does not save ymm */
        { { haswell, avx2, 0xE7 }, EXL2_CPU_AVX2 },
        { { haswell & ~(1u << 12), avx2, 0x7 }, EXL2_CPU_C }, /* no FMA: VIA */
        { { haswell & ~(1u << 27), avx2, 0 }, EXL2_CPU_C },   /* no OSXSAVE */
        { { haswell & ~(1u << 28), avx2, 0x7 }, EXL2_CPU_C }, /* AVX is hidden by a hypervisor */
        { { haswell & ~(1u << 29), avx2, 0x7 }, EXL2_CPU_C },
        { { haswell, avx2 & ~(1u << 5), 0x7 }, EXL2_CPU_C },  /* Ivy Bridge, but for FMA */
        { { haswell, skylake, 0xE7 }, EXL2_CPU_AVX512 },
        { { haswell, skylake, 0x7 }, EXL2_CPU_AVX2 },         /* a system that does not save zmm, such as macOS */
        { { haswell, skylake, 0x67 }, EXL2_CPU_AVX2 },
        { { haswell, skylake & ~(1u << 16), 0xE7 }, EXL2_CPU_AVX2 },
        { { haswell, skylake & ~(1u << 17), 0xE7 }, EXL2_CPU_AVX2 },
        { { haswell, skylake & ~(1u << 30), 0xE7 }, EXL2_CPU_AVX2 }, /* Knights Landing: F without BW */
        { { haswell, skylake & ~(1u << 31), 0xE7 }, EXL2_CPU_AVX2 },
        { { haswell, skylake & ~(1u << 5), 0xE7 }, EXL2_CPU_C },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        if (!CHECK_INT(exl2__cpu_path_of(cases[i].bits), cases[i].wanted)) {
            printf("  case %zu\n", i);
        }
    }
}

#if EXL2__X86_SIMD
/* Does a line of what the system says about CPUs contain a word? otherwise: where the system is another one */
static bool says(const char *begin, const char *word, bool otherwise)
{
    char line[8192];
    bool has = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (!has && file && fgets(line, sizeof line, file)) {
        has = strncmp(line, begin, strlen(begin)) == 0 && strstr(line, word);
    }
    if (!file) {
        has = otherwise;
    } else {
        fclose(file);
    }
    return has;
}
#endif

static void test_here(void)
{
    exl2_cpu_path best = exl2__cpu_path_best();
#if EXL2__X86_SIMD
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
               && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    CHECK_INT(best, avx512 ? EXL2_CPU_AVX512 : avx2 ? EXL2_CPU_AVX2 : EXL2_CPU_C);
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_AVX2), best < EXL2_CPU_AVX2 ? best : EXL2_CPU_AVX2);
    bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi")
             && __builtin_cpu_supports("avx512vbmi2");
    CHECK_INT(exl2__cpu_path_has_vnni(EXL2_CPU_AVX512), vnni);
    bool avx_vnni = exl2__cpu_path_has_vnni(EXL2_CPU_AVX2); /* compilers know the name later than the intrinsics */
    CHECK_INT(avx_vnni, EXL2__AVX_VNNI && says("flags", " avx_vnni ", avx_vnni));
    bool splits = exl2__cpu_path_splits_products();
    CHECK_INT(splits, says("vendor_id", "GenuineIntel", splits));
    CHECK_INT(exl2__cpu_path_has_vnni(EXL2_CPU_C), false);
#else
    CHECK_INT(best, EXL2__NEON_SIMD ? EXL2_CPU_NEON : EXL2_CPU_C);
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_AVX2), best); /* a limit for x86-64 limits no other CPU */
#endif
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_AUTO), best);
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_C), EXL2_CPU_C);
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_AVX512), best);
    CHECK_INT(exl2__cpu_path_choose(EXL2_CPU_NEON), best);
}

int main(void)
{
    test_bits();
    test_here();
    return check_done();
}
