/* simd.c: all SIMD code of the engine without the rest, for a look at its machine code. */
#include "../../exl2_impl/3_backend/cpu/cpu.h"

extern const void *volatile kept[2];
const void *volatile kept[2];

int main(void)
{
#if EXL2__NEON_SIMD
    kept[0] = &exl2__cpu_neon_ops;
#else
    kept[0] = &exl2__cpu_avx2_ops;
#endif
    kept[1] = &exl2__cpu_backend; /* with the AVX-512 operations and the sampler */
    return exl2__cpu_path_best() == EXL2_CPU_AUTO;
}
