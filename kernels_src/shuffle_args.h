/* shuffle_args.h: arguments of the kernels that repack matrices from the layout of the file into strips of records.
   takes: types.h.
   gives: exl2k_shuffle_args.

   A staging buffer holds a range of the source's rows.
   codes  grid (columns / 32, chunks): chunks [chunk, chunk + gridDim.y) of the part; the buffer holds all their words
   scales grid (columns / 16, chunks): the same chunks; the buffer holds all groups
   affine grid as scales: scale words of an affine matrix
   dense  grid (strips in the buffer, records / 8 rounded up): outputs [first, first + rows) are in the buffer */
#ifndef EXL2K_SHUFFLE_ARGS_H
#define EXL2K_SHUFFLE_ARGS_H

#include "types.h"

#define EXL2K_SHUFFLE_THREADS 256
#define EXL2K_AFFINE_THREADS 128 /* of shuffle_affine: 16 columns of at most 8 groups */

enum { EXL2K_FROM_F16, EXL2K_FROM_BF16, EXL2K_FROM_F32, EXL2K_FROM_AWQ };

typedef struct exl2k_shuffle_args {
    exl2k_u64 source;       /* staging buffer. codes: u32 [buffer rows, columns], or of AWQ [buffer rows * 8,
                               columns / 8]; scales: u32 [groups, columns / 8];
                               affine: fp16 scales [groups, columns]; dense: [rows, inputs] */
    exl2k_u64 zeros;        /* affine: integers from 0 to 256, u16 [groups, columns] */
    exl2k_u64 base;         /* strip 0 of the part */
    exl2k_u64 chunks;       /* exl2k_chunk table of the part */
    exl2k_u64 group_of;     /* scales, affine: u16 [chunks, 8]: group of each scale word, 0xFFFF: none */
    exl2k_u64 columns_from; /* u16 [columns]: stored column that becomes column c; 0: identity */
    exl2k_u32 pitch;        /* bytes from one strip to the next */
    exl2k_u32 columns;      /* codes, scales: stored columns, a multiple of 32; dense: real outputs */
    exl2k_u32 chunk;
    exl2k_u32 first;        /* where the buffer begins. codes: a row of words; dense: an output */
    exl2k_u32 rows;         /* dense: outputs in the buffer */
    exl2k_u32 inputs;       /* dense */
    exl2k_u32 records;      /* dense: records per strip */
    exl2k_u32 type;         /* dense, codes of AWQ: EXL2K_FROM_* */
} exl2k_shuffle_args;

#endif
