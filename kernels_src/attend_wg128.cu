/* attend_wg128.cu: attention in prefill by wgmma for heads of 65 to 128 elements.
   takes: attend_wg.cuh.
   gives: exl2k_attend_wg128. */
#define EXL2K_DIM 128
#define EXL2K_PREFILL exl2k_attend_wg128
#include "attend_wg.cuh"
