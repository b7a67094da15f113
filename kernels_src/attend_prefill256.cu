/* attend_prefill256.cu: attention of many rows, heads of up to 256 elements.
   takes: attend_args.h.
   gives: exl2k_attend_prefill256.
   owns:  nothing.
   next:  sample_args.h */
#define EXL2K_DIM 256
#define EXL2K_PREFILL exl2k_attend_prefill256
#include "attend_prefill.cuh"
