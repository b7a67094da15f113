/* matrix_args.h: one linear layer (or q, k, v or gate, up as one) as the product kernels see it.
   takes: types.h.
   gives: exl2k_chunk, exl2k_slice, exl2k_part, exl2k_matrix: passed to kernels by value.
   owns:  nothing; addresses are of device memory that the backend owns.
   next:  unpack.cuh

   STRIP   16 columns (outputs) over all packed rows (inputs), `pitch` bytes from one to the next.
   RECORD  16 columns x 64 rows of one width of b bits: b words a lane, 128 * b bytes (unpack.cuh has the order).
           Records begin where their width begins; an odd 32 rows are padded with codes that decode to 0, so that a
           product may read 32 rows more than there are: every input row has 32 spare, finite elements at its end.
   CHUNK   1 to 4 records of one width, then the scale words of their groups: the unit of every copy, one run of
           bytes, a multiple of 16. A group that two chunks share has its words in both.
   SLICE   the chunks that one warp works on, side by side in memory: `slices` slices of about equal cost. Chunks
           that are left (rest 1) are the slice EXL2K_SLICES_MAX: strip i of a block is warp i's there.

   SCALE WORDS of a chunk with G groups: u32 [2][G]; word [g >> 2][group] has the level - 1 of column g in bits
   4 (g & 3) and of column g + 8 in bits 16 + 4 (g & 3), for g = 0..7. A weight is code * fp16(level^2 * maximum).
   Example: 4 bit in groups of 128, four records: 4 * 512 bytes of codes, G = 2, 16 bytes of scale words.
   Dense matrices have records of 16 bits (halves) and no scale words. */
#ifndef EXL2K_MATRIX_ARGS_H
#define EXL2K_MATRIX_ARGS_H

#include "types.h"

#define EXL2K_PARTS_MAX 3
#define EXL2K_SLICES_MAX 16
#define EXL2K_CHUNK_RECORDS 4
#define EXL2K_SCALE_BYTES_MAX 64 /* of a chunk: 8 groups of 32 rows */

/* Widths as the kernels count them: 2, 3, 4, 5, 6, 8 and 16 bits. */
enum { EXL2K_W2, EXL2K_W3, EXL2K_W4, EXL2K_W5, EXL2K_W6, EXL2K_W8, EXL2K_W16, EXL2K_WIDTHS };

/* 32 bytes, the same for every strip of a part. */
typedef struct exl2k_chunk {
    exl2k_u32 offset16;      /* from the start of the strip, in units of 16 bytes */
    exl2k_u16 row;        /* first packed row, in units of 32 */
    exl2k_u16 bytes16;    /* in units of 16 bytes, scale words included */
    exl2k_u8 width;       /* EXL2K_W2 .. EXL2K_W16 */
    exl2k_u8 records;     /* 1..4 */
    exl2k_u8 groups;      /* G; 0: dense */
    exl2k_u8 by_half;     /* 1: every 32 rows have a scale word of their own */
    exl2k_u8 ends;        /* bit i: a group, or the chunk, ends after record i */
    exl2k_u8 halves;      /* 1..8: runs of 32 rows that are there; the rest of the last record is padding */
    exl2k_u16 word;       /* codes: word row of q_weight where row `row` begins */
    exl2k_u32 maxima[4];  /* [8] fp16, of the group of each half (32 rows); 0 where there is none */
} exl2k_chunk;

/* A slice: what its first copies need, so that they wait for no table. */
typedef struct exl2k_slice {
    exl2k_u32 offset16;        /* of its first chunk, as exl2k_chunk.offset16 */
    exl2k_u32 sizes;        /* of its first four chunks, a byte each, in units of 16 bytes */
    exl2k_u16 chunk, count; /* its chunks: [chunk, chunk + count) */
    exl2k_u16 row;          /* of its first chunk, as exl2k_chunk.row */
    exl2k_u16 unused;
} exl2k_slice;

typedef struct exl2k_part {
    exl2k_u64 base;       /* strip 0 */
    exl2k_u64 chunks;     /* exl2k_chunk [chunk_count] */
    exl2k_u64 bias;       /* f32 [columns] or 0 */
    exl2k_u32 pitch;      /* bytes from strip to strip of this part */
    exl2k_u32 strips;
    exl2k_u32 column;     /* of the whole output, where this part begins */
    exl2k_u32 columns;    /* real ones; a strip may have more, which are never stored */
    exl2k_u32 chunk_count;
    exl2k_u32 first;      /* strip of the matrix where this part begins; interleaved: 0 */
    exl2k_slice slice[EXL2K_SLICES_MAX + 1];
} exl2k_part;

/* Parts one after the other, or (interleaved) strip i of part 0 before strip i of part 1. */
typedef struct exl2k_matrix {
    exl2k_part part[EXL2K_PARTS_MAX];
    exl2k_u32 parts, interleaved;
    exl2k_u32 strips;     /* of all parts */
    exl2k_u32 slices;       /* slices: warps that share a strip */
    exl2k_u32 rest;       /* 1: a part may have chunks that are left */
    exl2k_u32 rows;       /* packed rows of real inputs */
    exl2k_u32 widths;     /* bit EXL2K_Wn: chunks of this width occur */
    exl2k_u32 second, third; /* `first` of part[1] and part[2]; interleaved, or not there: ~0 */
    exl2k_u32 unused;
} exl2k_matrix;

#endif
