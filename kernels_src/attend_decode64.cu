/* attend_decode64.cu: attention in decode for heads of up to 64 elements.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode64. */
#define EXL2K_DIM 64
#define EXL2K_DECODE exl2k_attend_decode64
#include "attend_decode.cuh"
