/* attend_decode256.cu: attention of single rows, heads of up to 256 elements.
   takes: attend_args.h.
   gives: exl2k_attend_decode256.
   owns:  nothing.
   next:  attend_prefill.cuh */
#define EXL2K_DIM 256
#define EXL2K_DECODE exl2k_attend_decode256
#include "attend_decode.cuh"
