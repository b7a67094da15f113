/* attend_decode_few128.cu: attention in decode for heads of 65 to 128 elements, of few rows without norms.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode_few128. */
#define EXL2K_DIM 128
#define EXL2K_FEW 1
#define EXL2K_DECODE exl2k_attend_decode_few128
#include "attend_decode.cuh"
