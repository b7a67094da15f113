/* gemm_args.h: a product of 9 and more rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemm_args, what a launch is made of.
   owns:  nothing.
   next:  gemm.cu

   INPUT   x: fp16 [rows, x_pitch], normalised, in the packed order of the matrix; finite, also 32 elements behind.
   OUTPUT  by kind: STORE    out = value (+ bias), f32 or fp16 [rows, out_pitch]
                    RESIDUAL out += value (+ bias), f32 [rows, out_pitch]
                    ACT      out = fp16 silu(gate) * up, at position map[n], fp16 [rows, out_pitch]
   KERNELS exl2k_gemm32, _gemm64, _gemm128: as many rows a CTA. 256 threads.
   GRID    (tiles of rows, tiles of columns, splits). A tile of columns is 16 strips of one part (ACT: 8 of each): part
           p has strips / 16 of them, rounded up, one part after the other.
   SPLITS  of K: each CTA takes `halves` runs of 32 inputs, an even number when there are several. Their sums go to
           `partial`, and the warp that comes last adds them up in the order of the splits: the bits of a row depend on
           the matrix, on the kernel and on `halves` alone.
   SHARED  barriers [128 bytes], table [lists, halves, 8], weights [8 warps, 2 strips, slots, slot_bytes], tiles of
           inputs [stages, rows of the kernel, 128]; at least EXL2K_GEMM_RESULT bytes for the results. */
#ifndef EXL2K_GEMM_ARGS_H
#define EXL2K_GEMM_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMM_THREADS 256
#define EXL2K_GEMM_WARPS 8
#define EXL2K_GEMM_STRIPS 16  /* of a CTA */
#define EXL2K_GEMM_BARRIERS 128 /* bytes */
#define EXL2K_GEMM_STAGES_MAX 8
#define EXL2K_GEMM_SCALES 64  /* bytes of a slot behind the codes */
#define EXL2K_GEMM_PITCH 144  /* bytes of a row of results of a warp in shared memory: 32 columns, and 4 to spread */
#define EXL2K_GEMM_RESULT(rows) (EXL2K_GEMM_WARPS * (rows) * EXL2K_GEMM_PITCH) /* rows: of a pass, 32 or 64 */

enum { EXL2K_GEMM_STORE, EXL2K_GEMM_RESIDUAL, EXL2K_GEMM_ACT };

typedef struct exl2k_gemm_args {
    exl2k_matrix matrix;
    exl2k_u64 x, out, map;
    exl2k_u64 rows_at;     /* u32 in device memory: rows of the step; 0: `rows` */
    exl2k_u64 partial;     /* f32 [tiles, splits, 256, rows of the kernel]; unused when there is one split */
    exl2k_u64 tickets;     /* u32 [tiles, 8], zero; the kernel leaves zeros */
    exl2k_u32 rows, x_pitch, out_pitch;
    exl2k_u32 kind;
    exl2k_u32 out_half;    /* STORE: 1: fp16 */
    exl2k_u32 halves;      /* of a split */
    exl2k_u32 stages;      /* 2..8: tiles of inputs in shared memory */
    exl2k_u32 slots;       /* 2..: records of a strip in shared memory */
    exl2k_u32 slot_bytes;  /* 128 * the widest (dense: 1024) + EXL2K_GEMM_SCALES */
    exl2k_u32 ahead;       /* 2, 3, 5, 7, 11: weights are read so many halves before they are decoded; slots suffice */
} exl2k_gemm_args;

#endif
