/* gemm_args.h: a product of 9 and more rows with one matrix.
   takes: matrix_args.h.
   gives: exl2k_gemm_args, exl2k_gemm_permute_args: what launches are made of.
   owns:  nothing.
   next:  gemm.cu

   INPUT   x: fp16 [rows, x_pitch], normalised, in the packed order of the matrix; finite, also 32 elements behind.
   OUTPUT  by kind: STORE    out = value (+ bias), f32 or fp16 [rows, out_pitch]
                    RESIDUAL out += value (+ bias), f32 [rows, out_pitch]
                    ACT      out = fp16 silu(gate) * up, at position map[n], fp16 [rows, out_pitch]
   TILES   of 32, 64 or 128 rows (row_blocks) and 256 columns (ACT: 256 of gate and the same of up). Columns of tiles:
           of each part strips / 16, rounded up, one part after the other; ACT: of one part.
   GRID    256 threads a CTA. One split: as many CTAs as run at a time, or tiles; each takes every so manieth tile.
           More: tiles * splits.
   SPLITS  of K: each takes the records that begin in `halves` (an even number) runs of 32 inputs. The sums go to
           `partial`, and the warp that comes last adds them up in the order of the splits: the bits of a row depend on
           the matrix and on `halves` alone.
   SHARED  barriers [1024 bytes], tiles of inputs [1 << stages_log, rows of a tile, 64 bytes], for each warp
           ring_bytes: slots [1 << slots_log, slot_bytes]. */
#ifndef EXL2K_GEMM_ARGS_H
#define EXL2K_GEMM_ARGS_H

#include "matrix_args.h"

#define EXL2K_GEMM_THREADS 256
#define EXL2K_GEMM_WARPS 8
#define EXL2K_GEMM_STRIPS 16    /* of a tile */
#define EXL2K_GEMM_TILE_BARRIERS 256 /* bytes: 16 places, twice */
#define EXL2K_GEMM_HOME 96 /* bytes of each warp */
#define EXL2K_GEMM_BARRIERS 1024 /* both together */
#define EXL2K_GEMM_ENTRY 32     /* bytes of a slot in front of the chunks */
#define EXL2K_GEMM_PITCH 144    /* bytes of a row of a warp's results in its ring: 32 columns, and 4 to spread */
#define EXL2K_GEMM_RESULT (32 * EXL2K_GEMM_PITCH) /* bytes of the ring that results need */

enum { EXL2K_GEMM_STORE, EXL2K_GEMM_RESIDUAL, EXL2K_GEMM_ACT };

typedef struct exl2k_gemm_args {
    exl2k_matrix matrix;
    exl2k_u64 x, out, map;
    exl2k_u64 rows_at;     /* u32 in device memory: rows of the step; 0: `rows` */
    exl2k_u64 partial;     /* f32 [.., 256, rows of a tile]: of splits a block for each CTA, ACT: two; then ACT: one
                              for each CTA, of splits: tile */
    exl2k_u64 tickets;     /* of splits: u32 [tiles, passes, 8], zero; the kernel leaves zeros; passes: ACT 2, else 1 */
    exl2k_u32 rows, x_pitch, out_pitch;
    exl2k_u32 kind;
    exl2k_u32 out_half;    /* STORE: 1: fp16 */
    exl2k_u32 row_blocks;  /* of a tile: 1, 2 or 4 times 32 rows */
    exl2k_u32 row_tiles, column_tiles, splits;
    exl2k_u32 halves;      /* of a split */
    exl2k_u32 stage_mask, slot_mask; /* places - 1 of the next two */
    exl2k_u32 stages_log;  /* 2..4: 4, 8 or 16 tiles of 32 inputs in shared memory */
    exl2k_u32 slots_log;   /* 0..2: 1, 2 or 4 chunks of a warp in shared memory */
    exl2k_u32 slot_bytes;  /* EXL2K_GEMM_ENTRY + twice the largest chunk */
    exl2k_u32 ring_bytes;  /* (slot_bytes << slots_log), at least EXL2K_GEMM_RESULT */
} exl2k_gemm_args;

/* exl2k_gemm_permute: fp16 [rows, pitch], element n of a row to map[n], in place. Grid (rows), 256 threads; dynamic
   shared memory: 2 * columns bytes. */
typedef struct exl2k_gemm_permute_args {
    exl2k_u64 values, map; /* map: u16 [columns] */
    exl2k_u32 columns, pitch; /* columns: a multiple of 8 */
} exl2k_gemm_permute_args;

#endif
