/* matrix_args.h: the kernels' view of one linear layer (q, k and v, or gate and up, form one layer).
   takes: types.h.
   gives: exl2k_chunk, exl2k_slice, exl2k_part, exl2k_matrix: passed to kernels by value.
   owns:  nothing; the addresses point to device memory that the backend owns.

   STRIP   16 columns (outputs) times all packed rows (inputs). Consecutive strips are `pitch` bytes apart.
   RECORD  16 columns times 64 rows of one width of b bits: b words per lane, 128 * b bytes (order: see unpack.cuh).
           Each width starts a new record. If a width ends after an odd number of 32-row halves, its last record is
           padded with codes that decode to 0. A product may therefore read 32 rows beyond the last row: every row of
           inputs has 32 spare, finite elements at its end.
   CHUNK   1 to 4 records of one width, followed by the scale words of their groups. The chunk is the unit of every
           copy: one run of bytes, a multiple of 16. A group that spans two chunks has its scale words in both.
   SLICE   the chunks that one warp works on, contiguous in memory. A strip has `slices` slices of about equal cost. If
           the chunks do not divide evenly (rest 1), the remaining chunks form slice EXL2K_SLICES_MAX, and warp i
           processes these chunks for strip i of a block.
   gemv.cuh has a drawing.

   SCALE WORDS of a chunk with G groups: u32 [2][G]. For g = 0..7, word [g >> 2][group] holds the level - 1 of column g
   in bits 4 (g & 3), and of column g + 8 in bits 16 + 4 (g & 3). A weight is code * fp16(level^2 * maximum).
   Example: 4 bits in groups of 128, four records: 4 * 512 bytes of codes, G = 2, 16 bytes of scale words.
   Dense matrices have records of 16 bits (fp16 values) and no scale words.

   SCALE WORDS of an affine matrix (GPTQ, AWQ): u32 [G][8][2]: word [group][g][0] belongs to column g, word
   [group][g][1] to column g + 8. The low half is the fp16 scale, the high half is fp16(zero - 2^(b-1)). A weight is
   (code - zero) * scale. If the rows are no multiple of 64, every half has scale words of its own, and those of the
   padding are 0. */
#ifndef EXL2K_MATRIX_ARGS_H
#define EXL2K_MATRIX_ARGS_H

#include "types.h"

#define EXL2K_PARTS_MAX 3
#define EXL2K_SLICES_MAX 16
#define EXL2K_CHUNK_RECORDS 4
#define EXL2K_SCALE_BYTES_MAX 64 /* in one chunk of EXL2: 8 groups of 32 rows */
#define EXL2K_AFFINE_BYTES 64    /* scale words of one group of an affine matrix */

/* Indices of the widths 2, 3, 4, 5, 6, 8 and 16 bits. */
enum { EXL2K_W2, EXL2K_W3, EXL2K_W4, EXL2K_W5, EXL2K_W6, EXL2K_W8, EXL2K_W16, EXL2K_WIDTHS };

/* An entry of a part's chunk table: 32 bytes. All strips of a part share the table. */
typedef struct exl2k_chunk {
    exl2k_u32 offset16;  /* offset from the start of the strip, in units of 16 bytes */
    exl2k_u16 row;       /* first packed row, in units of 32 */
    exl2k_u16 bytes16;   /* size in units of 16 bytes, scale words included */
    exl2k_u8 width;      /* EXL2K_W2 .. EXL2K_W16 */
    exl2k_u8 records;    /* 1..4 */
    exl2k_u8 groups;     /* G; 0: dense */
    exl2k_u8 by_half;    /* 1: every 32 rows have a scale word of their own */
    exl2k_u8 ends;       /* bit i: a group, or the chunk, ends after record i */
    exl2k_u8 halves;     /* 1..8: 32-row halves that hold weights; any later half of the last record is padding */
    exl2k_u16 word;      /* codes: row of q_weight (in words) where packed row `row` begins */
    exl2k_u32 maxima[4]; /* fp16 [8]: maximum of the group of each half (32 rows); 0 for halves without weights */
} exl2k_chunk;

/* A slice. It holds all that a warp needs for its first copies, so that these need not wait for the chunk table. */
typedef struct exl2k_slice {
    exl2k_u32 offset16;     /* offset of the first chunk, as exl2k_chunk.offset16 */
    exl2k_u32 sizes;        /* sizes of the first four chunks, one byte each, in units of 16 bytes */
    exl2k_u16 chunk, count; /* the slice's chunks: [chunk, chunk + count) */
    exl2k_u16 row;          /* row of the first chunk, as exl2k_chunk.row */
    exl2k_u16 unused;
} exl2k_slice;

typedef struct exl2k_part {
    exl2k_u64 base;    /* address of strip 0 */
    exl2k_u64 chunks;  /* exl2k_chunk [chunk_count] */
    exl2k_u64 bias;    /* f32 [columns] or 0 */
    exl2k_u32 pitch;   /* bytes from one strip of this part to the next */
    exl2k_u32 strips;
    exl2k_u32 column;  /* column of the whole output where this part begins */
    exl2k_u32 columns; /* real columns; the last strip may have more, which are never stored */
    exl2k_u32 chunk_count;
    exl2k_u32 first;   /* strip of the matrix where this part begins; interleaved: 0 */
    exl2k_slice slice[EXL2K_SLICES_MAX + 1];
} exl2k_part;

/* The parts follow one another, or (interleaved) strip i of part 0 precedes strip i of part 1. */
typedef struct exl2k_matrix {
    exl2k_part part[EXL2K_PARTS_MAX];
    exl2k_u32 parts, interleaved;
    exl2k_u32 strips;        /* strips of all parts */
    exl2k_u32 slices;        /* slices per strip = warps that share a strip */
    exl2k_u32 rest;          /* 1: a part may have remaining chunks (slice EXL2K_SLICES_MAX) */
    exl2k_u32 rows;          /* packed rows that hold real inputs */
    exl2k_u32 widths;        /* bit EXL2K_Wn: chunks of this width occur */
    exl2k_u32 second, third; /* `first` of part[1] and part[2]; ~0 if interleaved or absent */
    exl2k_u32 adapted;       /* 1: the launch adds what adapters add (lora_args.h) */
} exl2k_matrix;

#endif
