/* attend_decode_crowd128.cu: attention in decode for heads of 65 to 128 elements, by smaller CTAs where there are many.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode_crowd128. */
#define EXL2K_DIM 128
#define EXL2K_CROWD 1
#define EXL2K_DECODE exl2k_attend_decode_crowd128
#include "attend_decode.cuh"
