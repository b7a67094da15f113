/* attend_decode128.cu: attention of single rows, heads of up to 128 elements.
   takes: attend_args.h.
   gives: exl2k_attend_decode128.
   owns:  nothing.
   next:  attend_prefill.cuh */
#define EXL2K_DIM 128
#define EXL2K_DECODE exl2k_attend_decode128
#include "attend_decode.cuh"
