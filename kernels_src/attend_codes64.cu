/* attend_codes64.cu: attention in decode from a quantized cache, for heads of up to 64 elements.
   takes: attend_decode.cuh.
   gives: exl2k_attend_codes64. */
#define EXL2K_DIM 64
#define EXL2K_CODES 1
#define EXL2K_DECODE exl2k_attend_codes64
#include "attend_decode.cuh"
