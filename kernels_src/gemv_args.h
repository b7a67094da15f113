/* gemv_args.h: a product of 1 to 8 rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemv_args.
   owns:  nothing.
   next:  gemv.cuh

   INPUT   x: fp16 [rows, x_pitch] in the packed order of the matrix; finite, also the 32 elements behind the last row
           of the matrix. x = residual * weight * rho_before, so outputs are multiplied by rho_now / rho_before, where
           rho = 1 / sqrt(sum of the slots / hidden + eps).
   OUTPUT  by kind: store    out = value (+ bias), f32 or fp16 [rows, out_pitch], natural order of outputs
                    act      out = fp16 silu(gate) * up, at position map[n]
                    residual r += value (+ bias); y = fp16(r * weight * rho_before) at map[n]; slot of this CTA in
                             sums_out = sum of r * r over its columns */
#ifndef EXL2K_GEMV_ARGS_H
#define EXL2K_GEMV_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMV_THREADS 512
#define EXL2K_GEMV_WARPS 16
#define EXL2K_GEMV_STAGES_MAX 4
#define EXL2K_SLOTS_MAX 256 /* of sums of squares: CTAs of a residual product */
#define EXL2K_GEMV_SMALL_BYTES 6144 /* of shared memory besides ring and partial sums */

enum { EXL2K_GEMV_STORE, EXL2K_GEMV_RESIDUAL, EXL2K_GEMV_ACT };

typedef struct exl2k_gemv_args {
    exl2k_matrix matrix;
    exl2k_u64 x;
    exl2k_u64 rows_at;     /* u32 in device memory: rows of the step; 0: `rows`. One-row kernel: always 1 */
    exl2k_u64 out;         /* residual: y */
    exl2k_u64 map;         /* u16 [columns]; 0: identity */
    exl2k_u64 residual;    /* f32 [rows, residual_pitch]; rows begin at multiples of 16 bytes */
    exl2k_u64 weight;      /* f32 [columns] of the next norm */
    exl2k_u64 sums_now;    /* f32 [rows, EXL2K_SLOTS_MAX], at a multiple of 16; 0: outputs are not scaled */
    exl2k_u64 sums_before; /* the same, of the norm before; 0: rho_before = 1 */
    exl2k_u64 sums_out;    /* the same */
    exl2k_u32 x_pitch, out_pitch, residual_pitch; /* elements */
    exl2k_u32 rows;
    exl2k_u32 kind;        /* EXL2K_GEMV_STORE ... */
    exl2k_u32 slots;       /* in use, in all sums: CTAs of a residual product */
    exl2k_u32 out_half;    /* store: 1: fp16 */
    exl2k_f32 eps, inverse_hidden;
    /* Dynamic shared memory: ring [16 warps, stages, side, slot_bytes], sums [block, slices + rest, 64 or 512 bytes],
       small. */
    exl2k_u32 stages;      /* 1..EXL2K_GEMV_STAGES_MAX */
    exl2k_u32 slot_strips;        /* chunks of a stage: of 1 or, for one row, 2 strips */
    exl2k_u32 slot_bytes;  /* the largest chunk */
    exl2k_u32 block;       /* strips (interleaved: pairs) between two barriers */
    exl2k_u32 strips_per_cta, ctas_with_more;  /* the same of a CTA; CTAs that have one more */
    exl2k_u32 slices_inverse; /* 256 / slices + 1 */
    exl2k_u32 groups_inverse; /* 65536 / (16 / slices) + 1 */
} exl2k_gemv_args;

#endif
