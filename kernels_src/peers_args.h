/* peers_args.h: how kernels of passes of 1 to 16 rows give their columns to the other GPUs that share every matrix.
   takes: meet_args.h, gemv_args.h.
   gives: exl2k_peers, exl2k_peers_gemv_args.

   No kernel and no flag is in between: values that are not there yet are EXL2K_PEERS_NONE, which no kernel computes,
   and who needs them looks until they have come.

   ONE ROW: a kernel that computes columns for the next kernel stores each of them to its own GPU's buffer and to those
   of all others, at the same place, and readers look. Each buffer is emptied after it has been read, two exchanges
   before it is written again: the others write it only when they have got what this GPU has sent after a kernel that
   emptied it had ended.

   MORE ROWS: a product stores its columns to the inbox of each other GPU, strip by strip, so that what a warp stores
   lies side by side. At its end each CTA takes some strips from its own GPU's inbox, empties their places, and stores
   them where the next kernel reads. So the next kernel knows no other GPU, but for the sums. Two products in a row have
   different inboxes.

   SUMS of squares go strip by strip, as the strips of a CTA of one GPU belong to several GPUs here: each reader adds up
   the strips of a slot in the order in which that CTA does. The first product that reads the sums of a norm keeps what
   they add up to, in groups of 32 slots, for the products that need the same norm as the one before. */
#ifndef EXL2K_PEERS_ARGS_H
#define EXL2K_PEERS_ARGS_H

#include "gemv_args.h"
#include "meet_args.h"

#define EXL2K_PEERS_STRIP 32u  /* bytes of a row of a strip in an inbox, without the sum of its squares */
#define EXL2K_PEERS_SQUARE 4u
#define EXL2K_PEERS_NONE 0xFFFFFFFFu /* two halves, or a float, that are not there yet. Kernels compute NaN as 0x7FFF */

typedef struct exl2k_peers {
    exl2k_u64 apart[EXL2K_MEET_GPUS - 1]; /* [others] where their buffers lie, minus where those of this GPU lie */
    exl2k_u64 stop;                       /* as in exl2k_meet_args */
    exl2k_u32 others;
    exl2k_u32 clear_bytes[2];             /* multiples of 16 */
    exl2k_u32 now_by_strips;              /* 1: sums_now are of strips, as sums_out is; 0: of slots */
    exl2k_u32 before_by_groups;           /* 1: sums_before are groups_out of an earlier product; 0: of slots */
    exl2k_u64 groups_out;                 /* f32 [rows, 8]: where the groups of sums_now are kept; 0: they are not */
    exl2k_u32 strips, slots_with_more;    /* strips of a slot; number of slots that have one more */
    exl2k_u32 sums_pitch;                 /* sums of strips are f32 [rows, sums_pitch] */
    exl2k_u64 clear[2];                   /* one row: buffers of this GPU that are emptied */
    exl2k_u64 inbox;                      /* more rows: of this GPU, [strips of the whole matrix]: fp16 [8 or 16 rows,
                                             16 columns], then, of a residual product, f32 [rows]: sums of squares; 0:
                                             the results stay here */
    exl2k_u64 all_out, all_map, all_sums; /* exl2k_gemv_args.out, .map, .sums_out of the whole matrix */
    exl2k_u32 first_strip, own_strips;    /* of this GPU in the whole matrix */
    exl2k_u32 taken, ctas_with_more;      /* strips that each CTA takes; number of CTAs that take one more */
} exl2k_peers;

typedef struct exl2k_peers_gemv_args {
    exl2k_gemv_args gemv;
    exl2k_peers peers;
} exl2k_peers_gemv_args;

#endif
