/* attend_wg64.cu: attention in prefill by wgmma for heads of up to 64 elements.
   takes: attend_wg.cuh.
   gives: exl2k_attend_wg64. */
#define EXL2K_DIM 64
#define EXL2K_PREFILL exl2k_attend_wg64
#include "attend_wg.cuh"
