/* copy_args.h: arguments of the kernels that copy pages and fill memory.
   takes: types.h.
   gives: exl2k_copy_args, exl2k_fill_args.
   owns:  nothing.
   next:  copy.cu */
#ifndef EXL2K_COPY_ARGS_H
#define EXL2K_COPY_ARGS_H

#include "types.h"

#define EXL2K_COPY_THREADS 256

/* Grid (ceil(page_bytes / (16 * THREADS)), layers), block THREADS. Copies are made in order: a later one may overwrite
   a page that an earlier one reads. */
typedef struct exl2k_copy_args {
    exl2k_u64 copies;     /* {u32 from, u32 to} [count] */
    exl2k_u64 pages;      /* page p of layer l: pages + (l * page_count + p) * page_bytes */
    exl2k_u32 count, page_count;
    exl2k_u32 page_bytes; /* of one layer; a multiple of 16 */
    exl2k_u32 unused;
} exl2k_copy_args;

/* Any grid, block THREADS. */
typedef struct exl2k_fill_args {
    exl2k_u64 to, words; /* u32 */
    exl2k_u32 word, unused;
} exl2k_fill_args;

#endif
