/* gemv_args.h: arguments of the product of 1 to 16 rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemv_args.

   INPUT   x: fp16 [rows, x_pitch], or tiles, in the packed order of the matrix, finite, including the 32 elements after
           the last row of the matrix. x = residual * weight * rho_before, so outputs are multiplied by rho_now /
           rho_before, where rho = 1 / sqrt(sum of the slots / hidden + eps).
   OUTPUT  by kind: store    out = scale * (value + bias), soft-capped if cap > 0; f32 or fp16 [rows, out_pitch],
                             outputs in their natural order
                    act      out = fp16 act(gate) * up, or act(value) of a matrix of one part: its columns are stored
                             in the order of their reader
                    residual r += scale * (value + bias); y = fp16(r * weight * rho_before) at map[n]; this CTA's slot
                             of sums_out = sum of r * r over the CTA's columns. out = 0: y and the sums are not wanted
           Bias is 0 where a part has none.
   TILES   between products of 8 or 16 rows: fp16 [columns / 32, 8 or 16 rows, 32 columns], so that a load of a warp is
           512 bytes side by side, not half a line of each of eight rows. Pitch: 32; step: EXL2K_STEP * rows.
   KERNELS exl2k_gemv1, exl2k_gemv8 and exl2k_gemv16 are made for Llama: scale is 1, cap 0, act SILU with a gate, and
           out is not 0. exl2k_gemv1_large and exl2k_gemv8_large (compiled with EXL2K_LARGE) are, too, for large
           matrices. So is exl2k_gemv16_affine (compiled with EXL2K_AFFINE), for affine matrices.
           exl2k_gemv8_head and exl2k_gemv16_head (compiled with EXL2K_CHAIN) are for heads of Llama: kind is store, and
           exl2__cuda_gemv_chain makes the launch.
           exl2k_gemv1_any and exl2k_gemv8_any (compiled with EXL2K_ANY) allow everything; with these checks Llama's
           decode would lose 1.1 % (H100). */
#ifndef EXL2K_GEMV_ARGS_H
#define EXL2K_GEMV_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMV_THREADS 512
#define EXL2K_GEMV_WARPS 16
#define EXL2K_GEMV_STAGES_MAX 4
#define EXL2K_SLOTS_MAX 256 /* slots for sums of squares: one for each CTA of a residual product */
#define EXL2K_GEMV_SQUARES 96 /* sums of squares in shared memory, one for a row and strip of a block */
#define EXL2K_STEP 64 /* bytes of 32 columns of a row */
#define EXL2K_CHAIN_BYTES(parts) ((parts) * 128 + 16) /* barriers of a strip's running sum, with padding (gemv.cuh) */
#define EXL2K_RING_HEAD 144 /* 16 rows: bytes of a ring before its slots: 16 planned jobs, two barriers */
/* Shared memory besides the rings' slots and the partial sums (gemv_out.cuh), for 1, 8 and 16 rows. */
#define EXL2K_GEMV_SMALL_BYTES 6144
#define EXL2K_GEMV8_SMALL_BYTES 10240
/* 16 rows: what a warp has besides its initial sums: how its lanes decode scales, and these of four records. */
#define EXL2K_STARTS_PLAN 1024
#define EXL2K_STARTS_SCALES 1280
#define EXL2K_STARTS_BYTES(affine) ((affine) ? 2048 : 1792) /* affine: scales, then zeros, behind the initial sums */
#define EXL2K_GEMV16_SMALL_BYTES(affine) (EXL2K_GEMV_WARPS * (EXL2K_RING_HEAD + EXL2K_STARTS_BYTES(affine)) + 4096)

enum { EXL2K_GEMV_STORE, EXL2K_GEMV_RESIDUAL, EXL2K_GEMV_ACT };

typedef struct exl2k_gemv_args {
    exl2k_matrix matrix;
    exl2k_u64 x;
    exl2k_u64 rows_at;        /* address of the number of rows of the pass, u32 in device memory, of which `before` come
                                 before those of this launch; 0: use `rows`. The one-row kernel always has 1 row */
    exl2k_u64 out;            /* residual: y, or 0 */
    exl2k_u64 map;            /* residual: u16 [columns]; 0: identity */
    exl2k_u64 residual;       /* f32 [rows, residual_pitch]; each row is aligned to 16 bytes */
    exl2k_u64 weight;         /* weight of the next norm, f32 [columns] */
    exl2k_u64 sums_now;       /* f32 [rows, EXL2K_SLOTS_MAX], aligned to 16; 0: outputs are not scaled */
    exl2k_u64 sums_before;    /* the same for the preceding norm; 0: rho_before = 1 */
    exl2k_u64 sums_out;       /* the same for the next norm; written by residual, unless out is 0 */
    exl2k_u32 x_pitch, out_pitch, residual_pitch; /* in elements */
    exl2k_u32 x_step, out_step; /* bytes from 32 columns of x, or of outputs of act and residual, to the next 32:
                                   without tiles EXL2K_STEP; one row has no tiles */
    exl2k_u32 rows, before;
    exl2k_u32 kind;           /* EXL2K_GEMV_STORE ... */
    exl2k_u32 slots;          /* slots in use in all sums: CTAs of a residual product */
    exl2k_u32 out_half;       /* store: 1: out is fp16 */
    exl2k_f32 eps, inverse_hidden;
    exl2k_f32 scale, cap;     /* scale: store, residual; cap: store, 0 = none */
    exl2k_u32 act;            /* EXL2K_ACT_* */
    exl2k_f32 act_limit;      /* of EXL2K_ACT_CLAMPED */
    /* Dynamic shared memory: rings [16 warps, stages, slot_strips, slot_bytes], partial sums [block, slices + rest,
       64 bytes a row], then the small areas (gemv_out.cuh). */
    exl2k_u32 stages;         /* 1..EXL2K_GEMV_STAGES_MAX */
    exl2k_u32 slot_strips;    /* strips per stage: 1 or, for one row, 2; a stage holds one chunk of each */
    exl2k_u32 slot_bytes;     /* size of the largest chunk */
    exl2k_u32 block;          /* strips (interleaved: pairs of strips) between two barriers */
    exl2k_u32 strips_per_cta, ctas_with_more; /* strips (or pairs) of each CTA; number of CTAs that have one more */
    exl2k_u32 slices_inverse; /* 256 / slices + 1 */
    exl2k_u32 groups_inverse; /* 65536 / (16 / slices) + 1 */
    exl2k_u32 ctas_before;    /* CTAs of the launch that come before those with strips (lora_args.h) */
    exl2k_u64 added;          /* residual, of kernels with EXL2K_STEER: f32 [rows, residual_pitch] that is added to r
                                 first (steer_args.h); 0: nothing */
} exl2k_gemv_args;

#endif
