/* attend_prefill64.cu: attention in prefill for heads of up to 64 elements.
   takes: attend_prefill.cuh.
   gives: exl2k_attend_prefill64. */
#define EXL2K_DIM 64
#define EXL2K_PREFILL exl2k_attend_prefill64
#include "attend_prefill.cuh"
