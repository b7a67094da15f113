/* attend_prefill64.cu: attention of many rows, heads of up to 64 elements.
   takes: attend_args.h.
   gives: exl2k_attend_prefill64.
   owns:  nothing.
   next:  sample_args.h */
#define EXL2K_DIM 64
#define EXL2K_PREFILL exl2k_attend_prefill64
#include "attend_prefill.cuh"
