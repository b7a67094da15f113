/* attend_prefill256.cu: attention in prefill for heads of 129 to 256 elements.
   takes: attend_prefill.cuh.
   gives: exl2k_attend_prefill256. */
#define EXL2K_DIM 256
#define EXL2K_PREFILL exl2k_attend_prefill256
#include "attend_prefill.cuh"
