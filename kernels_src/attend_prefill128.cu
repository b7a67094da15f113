/* attend_prefill128.cu: attention in prefill for heads of 65 to 128 elements.
   takes: attend_prefill.cuh.
   gives: exl2k_attend_prefill128. */
#define EXL2K_DIM 128
#define EXL2K_PREFILL exl2k_attend_prefill128
#include "attend_prefill.cuh"
