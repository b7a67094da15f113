/* peers_args.h: how kernels of passes of one row give their columns to the other GPUs that share every matrix.
   takes: meet_args.h, gemv_args.h.
   gives: exl2k_peers, exl2k_peers_gemv_args.

   A kernel that computes columns for the next kernel stores each of them to its own GPU's buffer and to those of all
   others, at the same place. No kernel and no flag is in between: values that are not there yet are EXL2K_PEERS_NONE,
   which no kernel computes, and readers look until all that they need have come. So each buffer is emptied after it has
   been read, two exchanges before it is written again: the others write it only when they have got what this GPU has
   sent after a kernel that emptied it had ended.

   SUMS of squares go strip by strip, as the strips of a CTA of one GPU belong to several GPUs here: each reader adds up
   the strips of a slot in the order in which that CTA does. */
#ifndef EXL2K_PEERS_ARGS_H
#define EXL2K_PEERS_ARGS_H

#include "gemv_args.h"
#include "meet_args.h"

#define EXL2K_PEERS_NONE 0xFFFFFFFFu /* two halves, or a float, that are not there yet. Kernels compute NaN as 0x7FFF */

typedef struct exl2k_peers {
    exl2k_u64 apart[EXL2K_MEET_GPUS - 1]; /* [others] where their buffers lie, minus where those of this GPU lie */
    exl2k_u64 stop;                       /* as in exl2k_meet_args */
    exl2k_u32 others;
    exl2k_u32 clear_bytes[2];             /* multiples of 16 */
    exl2k_u32 now_by_strips, before_by_strips; /* 1: sums_now, sums_before are of strips, as sums_out is; 0: of slots */
    exl2k_u32 strips, slots_with_more;    /* strips of a slot; number of slots that have one more */
    exl2k_u32 unused;
    exl2k_u64 clear[2];                   /* buffers of this GPU that are emptied */
} exl2k_peers;

typedef struct exl2k_peers_gemv_args {
    exl2k_gemv_args gemv;
    exl2k_peers peers;
} exl2k_peers_gemv_args;

#endif
