/* attend_decode_few64.cu: attention in decode for heads of up to 64 elements, of few rows without norms.
   takes: attend_decode.cuh.
   gives: exl2k_attend_decode_few64. */
#define EXL2K_DIM 64
#define EXL2K_FEW 1
#define EXL2K_DECODE exl2k_attend_decode_few64
#include "attend_decode.cuh"
