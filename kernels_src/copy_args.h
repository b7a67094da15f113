/* copy_args.h: arguments of the kernels that copy KV pages and gather rows for the head.
   takes: pass_args.h.
   gives: exl2k_copy_args, exl2k_head_rows_args. */
#ifndef EXL2K_COPY_ARGS_H
#define EXL2K_COPY_ARGS_H

#include "pass_args.h"

#define EXL2K_COPY_THREADS 256

/* Grid (ceil(page_bytes / (16 * THREADS)), layers), block THREADS. Copies are made in order: a later copy may
   overwrite a page that an earlier one reads. */
typedef struct exl2k_copy_args {
    exl2k_u64 copies;     /* {u32 from, u32 to} [count] */
    exl2k_u64 pages;      /* page p of layer l: pages + (l * page_count + p) * page_bytes */
    exl2k_u32 count, page_count;
    exl2k_u32 page_bytes; /* bytes of a page of one layer; a multiple of 16 */
    exl2k_u32 unused;
} exl2k_copy_args;

/* Grid (rows), block THREADS. Gathers the rows that want logits: inputs of the head, and the sums of squares that
   scale these inputs. The last residual product has written both for all rows. */
typedef struct exl2k_head_rows_args {
    exl2k_u64 rows_at;                /* address of the number of rows that want logits, u32 */
    exl2k_u64 samplings;              /* exl2k_sampling [rows]: names the rows */
    exl2k_u64 x, out;                 /* [rows, row_bytes] */
    exl2k_u64 sums_now, sums_before;  /* [rows, slots_bytes] */
    exl2k_u64 now_out, before_out;    /* copies of the sums */
    exl2k_u32 row_bytes, slots_bytes; /* multiples of 16 */
} exl2k_head_rows_args;

#endif
