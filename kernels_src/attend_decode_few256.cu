/* attend_decode_few256.cu: attention in decode for heads of 129 to 256 elements, of few rows without norms.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode_few256. */
#define EXL2K_DIM 256
#define EXL2K_FEW 1
#define EXL2K_DECODE exl2k_attend_decode_few256
#include "attend_decode.cuh"
