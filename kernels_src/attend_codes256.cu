/* attend_codes256.cu: attention in decode from a quantized cache, for heads of 129 to 256 elements.
   takes: attend_decode.cuh.
   gives: exl2k_attend_codes256. */
#define EXL2K_DIM 256
#define EXL2K_CODES 1
#define EXL2K_DECODE exl2k_attend_codes256
#include "attend_decode.cuh"
