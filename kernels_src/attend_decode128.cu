/* attend_decode128.cu: attention in decode for heads of 65 to 128 elements.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode128. */
#define EXL2K_DIM 128
#define EXL2K_DECODE exl2k_attend_decode128
#include "attend_decode.cuh"
