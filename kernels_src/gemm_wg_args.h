/* gemm_wg_args.h: how exl2k_gemm_args launch the products of many rows by wgmma; and the order of their inputs.
   takes: gemm_args.h.
   gives: exl2k_wg_order_args, EXL2K_WG_*.

   INPUT   x: tiles as wg_tiles.cuh defines them, finite; x_pitch: their rows, a multiple of 8. The matrix has EXL2
           parts, or affine ones (kernels with "_affine" in their names), whole halves of 32 inputs, and no chunk larger
           than EXL2K_WG_CHUNK_BYTES.
   OUTPUT  by kind: STORE    out = value + bias, f32 [rows, out_pitch]
                    RESIDUAL out += scale * (value + bias), f32 [rows, out_pitch]
                    ACT      out = act(gate) * up: tiles as of x; out_pitch = x_pitch
   TILES   of 32, 64, 128 or 256 rows, as the kernel's name says, and 128 columns (ACT: 64 of gate and the same 64 of
           up). Each part has ceil(strips / 8) columns of tiles, and the parts follow one another. ACT has
           ceil(strips / 4).
   GRID    EXL2K_WG_THREADS per CTA, of which two run on an SM if tiles have up to 64 rows. CTA i computes tiles i,
           i + grid size, and so on; the splits of a tile follow one another, and count as tiles. No CTA waits for
           another but for CUT.
   SPLITS  of K as in gemm_args.h, with sums in `partial`: f32 [tiles, splits, 128 columns, rows of a tile]. tickets:
           u32 [tiles, 8 warps], zero before and after the launch.
           A launch whose clusters have as many CTAs as there are splits, and one tile for each cluster, adds sums up in
           shared memory instead. Not of ACT.
   CUT     Tiles of 128 or 256 rows without splits, more than CTAs: tiles beyond the last whole turn, `rest`, may be
           computed in two parts. CTA i < rest has the first `cut` halves (an even number) of one of them as its first
           work, and leaves the sums in `partial`: f32 [rest, 128 columns, rows of a tile]. The other CTAs take these
           sums after their whole tiles and continue. tickets: u32 [rest, 8 warps], 1 when the sums are there; zero
           before and after the launch. So the sums have the same order as without.
   KERNELS for Llama and for affine matrices: scale is 1, act SILU. Those with "_any" in their names: act may also be
           GELU_TANH.
   ROLES   Kernels with "_roles" in their names: EXL2K_WG_ROLE_THREADS per CTA, one CTA on an SM, tiles of 16, 32 or 64
           rows, EXL2K_WG_ROLE_SHARED bytes. All else is the same.
   SHARED  memory: EXL2K_WG_SHARED bytes. rows_at, out_half and what describes rings are not used. */
#ifndef EXL2K_GEMM_WG_ARGS_H
#define EXL2K_GEMM_WG_ARGS_H

#include "gemm_args.h"

#define EXL2K_WG_THREADS 384
/* Stages have 64 inputs of all rows of a tile, slots a chunk of each of the two groups of columns. */
#ifndef EXL2K_WG_ROLES
#define EXL2K_WG_ROLES 0 /* 1: of the kernels whose warps have roles */
#endif
#define EXL2K_WG_STAGES(rows) (EXL2K_WG_ROLES || (rows) == 64 || (rows) == 256 ? 4u : 8u)
#define EXL2K_WG_SLOTS(rows, affine) /* two CTAs fit on an SM */ \
    (EXL2K_WG_ROLES || (rows) == 64 || ((rows) == 32 && (affine)) ? 3u : 4u)
#define EXL2K_WG_CHUNK_BYTES(affine) ((affine) ? 2560u : 2112u) /* 2,048 of codes, and the scale words of 8 groups */
#define EXL2K_WG_SLOT_BYTES(affine) (EXL2K_GEMM_ENTRY + 4 * EXL2K_WG_CHUNK_BYTES(affine))
#define EXL2K_WG_EXCHANGE(rows) ((rows) == 32 ? 8192u : 16384u) /* results on their way between the groups */
#define EXL2K_WG_SHARED(rows, affine)                                \
    (EXL2K_GEMM_BARRIERS + (rows) * 128u * EXL2K_WG_STAGES(rows)     \
     + 2 * EXL2K_WG_SLOTS(rows, affine) * EXL2K_WG_SLOT_BYTES(affine) + EXL2K_WG_EXCHANGE(rows))
/* Kernels whose warps have roles (gemm_wg_roles.cuh); decoded records of each of the two groups, and their bytes. */
#define EXL2K_WG_ROLE_THREADS 896
#define EXL2K_WG_PLACES 4u
#define EXL2K_WG_DECODED (2 * EXL2K_WG_PLACES * 8192)
#define EXL2K_WG_ROLE_SHARED(rows)                                                           \
    (EXL2K_GEMM_BARRIERS + EXL2K_WG_DECODED + (rows) * 128u * 4 + 6 * EXL2K_WG_SLOT_BYTES(0) \
     + EXL2K_WG_EXCHANGE(rows))
#define EXL2K_WG_ORDER_THREADS 1024

/* exl2k_wg_order moves element n of each row to map[n], and writes tiles. Grid (rows), up to EXL2K_WG_ORDER_THREADS;
   dynamic shared memory: 2 * columns bytes. */
typedef struct exl2k_wg_order_args {
    exl2k_u64 from, to;
    exl2k_u64 map;        /* u16 [columns]; 0: identity */
    exl2k_u32 columns;    /* a multiple of 32 */
    exl2k_u32 from_pitch; /* elements of a row at `from` */
    exl2k_u32 rows;       /* of the tiles: a multiple of 8 */
} exl2k_wg_order_args;

#endif
