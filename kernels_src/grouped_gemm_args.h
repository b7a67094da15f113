/* grouped_gemm_args.h: arguments of the products of many rows with the experts of a layer.
   takes: expert_args.h, grouped_rows_args.h, gemm_args.h.
   gives: exl2k_grouped_gemm_args.

   INPUT    x: fp16 [places, x_pitch] (grouped_rows_args.h), in the packed order of each place's expert, finite up to
            the next multiple of 32 elements.
   OUTPUT   UP    out = act(gate) * up, or act(up) without a gate, fp16 [places, out_pitch]; columns are stored in the
                  order of `down`
            DOWN  out = value + bias, f32 [places, out_pitch]
   KERNELS  exl2k_grouped_gemm has tiles of up to 128 rows, and one CTA on an SM. exl2k_grouped_gemm32 has tiles of up
            to 32 rows, and two CTAs on an SM if their shared memory fits. A row's bits are the same with both: its
            sums run over K in one order, whatever the tile. exl2k_grouped_gemm_affine is the first one for experts
            whose matrices are affine; it lacks EXL2K_ACT_CLAMPED.
   TILES    as gemm_args.h, from the list of exl2k_grouped_sort: tile i of the list and its column_tiles columns are
            work i * column_tiles and following. CTA i computes work i, i + grid size, and so on.
   GRID     256 threads per CTA, as many CTAs as run at a time.
   SHARED   memory: as gemm_args.h. */
#ifndef EXL2K_GROUPED_GEMM_ARGS_H
#define EXL2K_GROUPED_GEMM_ARGS_H

#include "expert_args.h"
#include "grouped_rows_args.h"
#include "gemm_args.h"

enum { EXL2K_GROUPED_UP, EXL2K_GROUPED_DOWN };

typedef struct exl2k_grouped_gemm_args {
    exl2k_u64 experts;            /* exl2k_expert [experts]; all have the same numbers of inputs, outputs and parts */
    exl2k_u64 tiles, tile_count;  /* of exl2k_grouped_sort */
    exl2k_u64 x, out;
    exl2k_u64 partial;            /* UP of two parts: f32 [CTAs, 256, rows of the largest tile] for the gate */
    exl2k_u32 x_pitch, out_pitch;
    exl2k_u32 kind;
    exl2k_u32 parts;              /* UP: 2, or 1 without a gate; DOWN: 1 */
    exl2k_u32 halves;             /* inputs / 32, rounded up */
    exl2k_u32 column_tiles;       /* columns of a part / 256, rounded up */
    exl2k_u32 row_blocks;         /* rows of the largest tile in units of 32: 1, 2 or 4 */
    exl2k_u32 act;                /* UP: EXL2K_ACT_* */
    exl2k_f32 scale;              /* UP: the limit of EXL2K_ACT_CLAMPED; DOWN: 1 */
    exl2k_u32 stage_mask, slot_mask, stages_log, slots_log, slot_bytes, ring_bytes; /* as gemm_args.h */
} exl2k_grouped_gemm_args;

#endif
