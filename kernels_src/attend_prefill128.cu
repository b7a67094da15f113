/* attend_prefill128.cu: attention of many rows, heads of up to 128 elements.
   takes: attend_args.h.
   gives: exl2k_attend_prefill128.
   owns:  nothing.
   next:  sample_args.h */
#define EXL2K_DIM 128
#define EXL2K_PREFILL exl2k_attend_prefill128
#include "attend_prefill.cuh"
