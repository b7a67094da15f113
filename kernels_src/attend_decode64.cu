/* attend_decode64.cu: attention of single rows, heads of up to 64 elements.
   takes: attend_args.h.
   gives: exl2k_attend_decode64.
   owns:  nothing.
   next:  attend_prefill.cuh */
#define EXL2K_DIM 64
#define EXL2K_DECODE exl2k_attend_decode64
#include "attend_decode.cuh"
