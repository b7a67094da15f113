/* expert_args.h: the kernels' view of the experts of one layer.
   takes: types.h, matrix_args.h.
   gives: exl2k_expert: an array [experts] in device memory for each layer.
   owns:  nothing; the addresses point to device memory that the backend owns.

   Experts of a layer may differ in everything but the numbers of inputs and outputs. A kernel copies the matrix of its
   expert to shared memory. The inputs of `up` are rows of norm(r) in natural order, fp16. Element i of a natural row goes
   to place map[i] of the packed row, which the matrix reads. */
#ifndef EXL2K_EXPERT_ARGS_H
#define EXL2K_EXPERT_ARGS_H

#include "matrix_args.h"

typedef struct exl2k_expert {
    exl2k_matrix up;    /* gate and up, interleaved; or one part without a gate */
    exl2k_matrix down;  /* one part */
    exl2k_u64 up_map;   /* u16 [inputs of up]: place in the packed row of each input; 0: the same place */
    exl2k_u64 down_map; /* u16 [inputs of down] */
} exl2k_expert;

#endif
