/* gemm_args.h: arguments of the product of 9 and more rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemm_args.

   INPUT   x: fp16 [rows, x_pitch], normalised, in the packed order of the matrix, finite; 32 elements
           after a row are finite, too.
   OUTPUT  by kind: STORE    out = value + bias, f32 or fp16 [rows, out_pitch]
                    RESIDUAL out += scale * (value + bias), f32 [rows, out_pitch]
                    ACT      out = act(gate) * up, or act(value) of a matrix of one part, fp16 [rows, out_pitch]
           Bias is 0 where a part has none. The columns of gate and up are stored in the order of their reader.
   KERNELS exl2k_gemm is made for Llama: scale is 1, act SILU with a gate. exl2k_gemm_any allows everything.
   TILES   of 32, 64 or 128 rows (row_blocks) and 256 columns (ACT: 256 of gate and the same 256 of up). Each part has
           ceil(strips / 16) columns of tiles, and the parts follow one another. ACT counts the tiles of one part only.
   GRID    256 threads per CTA. One split: as many CTAs as the GPU runs at a time, or one per tile if that is fewer;
           CTA i computes tiles i, i + grid size, and so on. Several splits: tiles * splits CTAs.
   SPLITS  of K. Each split has the records that begin in its `halves` (an even number) runs of 32 inputs. The splits
           write their sums to `partial`, and the last warp to arrive adds the sums up in the order of the splits. The
           bits of a row therefore depend only on the matrix and on `halves`.
   SHARED  memory: barriers [1024 bytes], tiles of inputs [1 << stages_log, rows of a tile, 64 bytes], then for each
           warp ring_bytes: slots [1 << slots_log, slot_bytes]. */
#ifndef EXL2K_GEMM_ARGS_H
#define EXL2K_GEMM_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMM_THREADS 256
#define EXL2K_GEMM_WARPS 8
#define EXL2K_GEMM_STRIPS 16    /* strips of a tile */
#define EXL2K_GEMM_TILE_BARRIERS 256 /* bytes: a `full` and an `empty` barrier for each of 16 tile slots */
#define EXL2K_GEMM_WARP_STATE 96 /* bytes of shared memory for each warp's state */
#define EXL2K_GEMM_BARRIERS 1024 /* bytes of the tile barriers and of all warps' states */
#define EXL2K_GEMM_ENTRY 32     /* bytes of a slot's table entry, which precedes the chunks */
/* Bytes per row of a warp's results in its ring: 32 columns, and 4 floats against bank conflicts. */
#define EXL2K_GEMM_PITCH 144
#define EXL2K_GEMM_RESULT (32 * EXL2K_GEMM_PITCH) /* bytes of the ring that results need */

enum { EXL2K_GEMM_STORE, EXL2K_GEMM_RESIDUAL, EXL2K_GEMM_ACT };

typedef struct exl2k_gemm_args {
    exl2k_matrix matrix;
    exl2k_u64 x, out;
    exl2k_u64 rows_at;               /* address of the number of rows, u32 in device memory; 0: use `rows` */
    exl2k_u64 partial;               /* f32 [.., 256, rows of a tile]. With splits: one block for each CTA (ACT:
                                        of two parts: two). ACT of two parts needs a further block for each CTA, or
                                        with splits for each tile */
    exl2k_u64 tickets;               /* with splits: u32 [tiles, passes, 8], zero before and after the launch;
                                        passes: 2 for ACT of two parts, else 1 */
    exl2k_u32 rows, x_pitch, out_pitch;
    exl2k_u32 kind;
    exl2k_u32 out_half;              /* STORE: 1: out is fp16 */
    exl2k_u32 row_blocks;            /* rows of a tile in units of 32: 1, 2 or 4 */
    exl2k_u32 row_tiles, column_tiles, splits;
    exl2k_u32 halves;                /* 32-input halves of a split */
    exl2k_u32 stage_mask, slot_mask; /* number of tiles - 1, number of slots - 1 */
    exl2k_u32 stages_log;            /* 2..4: 4, 8 or 16 tiles of 32 inputs in shared memory */
    exl2k_u32 slots_log;             /* 0..2: 1, 2 or 4 chunks of a warp in shared memory */
    exl2k_u32 slot_bytes;            /* EXL2K_GEMM_ENTRY + twice the largest chunk */
    exl2k_u32 ring_bytes;            /* slot_bytes << slots_log, but at least EXL2K_GEMM_RESULT */
    exl2k_f32 scale;                 /* RESIDUAL */
    exl2k_u32 act;                   /* ACT: EXL2K_ACT_* */
    exl2k_f32 act_limit;             /* of EXL2K_ACT_CLAMPED */
    exl2k_u32 cut;                   /* by wgmma: halves of the first part of a tile that two CTAs compute; 0: none */
} exl2k_gemm_args;

#endif
