/* shuffle_args.h: from matrices as files hold them to strips of records.
   takes: types.h.
   gives: exl2k_shuffle_args.
   owns:  nothing.
   next:  shuffle.cu

   codes  grid (columns / 32, chunks): chunks [chunk, chunk + gridDim.y) of the part, all of whose words lie in the slab
   scales grid (columns / 16, chunks): the same chunks, all groups are there
   dense  grid (strips of the slab, records / 8 rounded up): outputs [first, first + rows) of the slab */
#ifndef EXL2K_SHUFFLE_ARGS_H
#define EXL2K_SHUFFLE_ARGS_H

#include "types.h"

#define EXL2K_SHUFFLE_THREADS 256

enum { EXL2K_FROM_F16, EXL2K_FROM_BF16, EXL2K_FROM_F32 };

typedef struct exl2k_shuffle_args {
    exl2k_u64 source;  /* codes: u32 [slab rows, columns]; scales: u32 [groups, columns / 8]; dense: [rows, inputs] */
    exl2k_u64 base;    /* strip 0 of the part */
    exl2k_u64 chunks;  /* exl2k_chunk table of the part */
    exl2k_u64 group_of; /* scales: u16 [chunks, 8] group of each scale word, 0xFFFF: none */
    exl2k_u64 columns_from; /* u16 or 0: stored column that becomes column c */
    exl2k_u32 pitch;   /* bytes from strip to strip */
    exl2k_u32 columns; /* stored: a multiple of 32; dense: real outputs */
    exl2k_u32 chunk;
    exl2k_u32 first;   /* codes: word row, dense: output, where the slab begins */
    exl2k_u32 rows;    /* dense: outputs in the slab */
    exl2k_u32 inputs;  /* dense */
    exl2k_u32 records; /* dense: of a strip */
    exl2k_u32 type;    /* dense: EXL2K_FROM_* */
} exl2k_shuffle_args;

#endif
