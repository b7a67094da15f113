/* gemm_args.h: a product of many rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemm_args.
   owns:  nothing.
   next:  gemm.cu

   INPUT   x: fp16 [rows, x_pitch], normalised, in the packed order of the matrix; finite, also 32 elements behind.
   OUTPUT  by kernel: store    out = value (+ bias), f32 or fp16 [rows, out_pitch]
                      act      out = fp16 silu(gate) * up, at position map[n]
                      residual r += value (+ bias), f32 [rows, out_pitch]
   Grid (column tiles, rows / 64 rounded up), 256 threads. A column tile is 16 strips of one part (act: of both): part
   p has strips / 16 tiles, rounded up, one part after the other. */
#ifndef EXL2K_GEMM_ARGS_H
#define EXL2K_GEMM_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMM_THREADS 256
#define EXL2K_GEMM_ROWS 64
#define EXL2K_GEMM_STRIPS 16
#define EXL2K_GEMM_SHARED 49152 /* bytes of dynamic shared memory: four tiles of inputs */

typedef struct exl2k_gemm_args {
    exl2k_matrix matrix;
    exl2k_u64 x, out, map;
    exl2k_u64 rows_at; /* u32 in device memory: rows of the step; 0: `rows` */
    exl2k_u32 rows, x_pitch, out_pitch;
    exl2k_u32 out_half; /* store: 1: fp16 */
} exl2k_gemm_args;

#endif
