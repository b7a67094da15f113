/* attend_codes128.cu: attention in decode from a quantized cache, for heads of 65 to 128 elements.
   takes: attend_decode.cuh.
   gives: exl2k_attend_codes128. */
#define EXL2K_DIM 128
#define EXL2K_CODES 1
#define EXL2K_DECODE exl2k_attend_codes128
#include "attend_decode.cuh"
