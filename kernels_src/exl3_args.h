/* exl3_args.h: arguments of the kernels of EXL3 matrices: trellises between two Hadamard transforms.
   takes: types.h.
   gives: exl2k_exl3_part, exl2k_exl3_args, exl2k_exl3_rotate_args, exl2k_exl3_settle_args, exl2k_exl3_embed_args,
          exl2k_exl3_dump_args; EXL2K_EXL3_*.
   owns:  nothing; the addresses point to device memory that the backend owns.

   MATRIX   Up to three parts (q, k and v; gate and up) that read one input. A part has inputs and outputs in multiples
            of 128, padding included, and lies as in the file: tiles of 16 inputs times 16 outputs, 16 K 16-bit words
            each, [in / 16, out / 16]. exl3.cuh says how a tile is decoded.
   PRODUCT  y = (H (H (x suh) W)) svh + bias, where H is the Hadamard transform of each 128 neighbours.
   STRIP    128 outputs of a part. The unit of work of a CTA is a strip, or some of its blocks of 128 inputs.
   INPUT    x: fp16 [rows, x_pitch], in natural order and normalised; each row is aligned to 8 bytes. Inputs from `in`
            on count as 0, whatever is there.
   OUTPUT   by kind: STORE    out = scale * (value + bias), soft-capped if cap > 0; f32 or fp16 [rows, out_pitch]
                     RESIDUAL out += scale * (value + bias), f32 [rows, out_pitch]
                     ACT      out = fp16 act(gate) * up, or act(value) of a matrix of one part; [rows, out_pitch]
            Only the first `columns` outputs of a part are stored. Many rows: ACT of two parts is two launches, as a
            CTA has one part: the first one STOREs gate in `out`, as fp16, and that of up (`first` is 1) reads it there.
   SPLITS   of the inputs, for few rows. Split i has the blocks [blocks * i / splits, blocks * (i + 1) / splits). Each
            CTA writes its sums to `partial`, and the last CTA of a strip (ACT: of gate's and up's) adds them up in the
            order of the splits. So the bits of a row depend on the matrix and the number of splits only. One split of
            anything but ACT of two parts needs neither `partial` nor `tickets`. One row by exl3_one.cuh needs no
            `tickets`, and `partial` is zero before and after the launch.
   SLAB     the blocks whose inputs a CTA of few rows has in shared memory at a time. It changes no bit. */
#ifndef EXL2K_EXL3_ARGS_H
#define EXL2K_EXL3_ARGS_H

#include "settle_args.h"

#define EXL2K_EXL3_PARTS 3
#define EXL2K_EXL3_BLOCK 128   /* values of a Hadamard transform */
#define EXL2K_EXL3_TILE 16
#define EXL2K_EXL3_RATE_MAX 16
#define EXL2K_EXL3_THREADS 256 /* of products: a warp for each column of tiles of a strip */
#define EXL2K_EXL3_WARPS 8u
#define EXL2K_EXL3_ROWS 16     /* most rows of a product of few rows */
#define EXL2K_EXL3_SLAB 8      /* blocks, at most, of rows of experts */
#define EXL2K_EXL3_SLAB_OF(rows) ((rows) > 8 ? 8u : 64u / (rows)) /* of rows of a matrix */
#define EXL2K_EXL3_RING_TILES 16u /* of all slots of a warp's ring */
/* exl3_one.cuh: tiles that each warp decodes into shared memory before there are inputs. */
#define EXL2K_EXL3_STASH_TILES 8u
#define EXL2K_EXL3_STASH (EXL2K_EXL3_WARPS * EXL2K_EXL3_STASH_TILES * 512u)
#define EXL2K_EXL3_ONE_TAKES 16u /* sums of other CTAs that the last one of a strip has in shared memory at a time */
#define EXL2K_EXL3_ONE_LEAST (EXL2K_EXL3_PITCH * 4u + EXL2K_EXL3_ONE_TAKES * 512u) /* bytes of shared memory */
#define EXL2K_EXL3_PITCH 132   /* floats of a row of sums in shared memory */
#define EXL2K_EXL3_SPARE 64    /* bytes after each row of inputs in shared memory, against bank conflicts */
#define EXL2K_EXL3_STEP 64     /* inputs of a stage of the product of many rows */

/* Dynamic shared memory of a product of few rows: inputs (or sums) of `rows` rows with slabs of `slab` blocks, then the
   rings of all warps, for the highest rate of all parts. */
#define EXL2K_EXL3_SHARED_ROWS(rows, slab) \
    ((rows) * ((slab) < 2 ? EXL2K_EXL3_PITCH * 4 : (slab) * 256 + EXL2K_EXL3_SPARE))
#define EXL2K_EXL3_RING(rate) (EXL2K_EXL3_RING_TILES * 16 * (rate))
#define EXL2K_EXL3_SHARED(rows, slab, rate) \
    (EXL2K_EXL3_SHARED_ROWS(rows, slab) + EXL2K_EXL3_WARPS * EXL2K_EXL3_RING(rate))
#define EXL2K_EXL3_GEMM_ROWS 64 /* rows of a tile */
/* By wgmma: tiles of 128 or 256 rows, and CTAs that have all 128 outputs of a strip, or 64. A stage has 64 inputs of
   all rows and of the CTA's outputs. Shared memory: stages (later sums), rings, barriers; aligned to 1,024 bytes. */
#define EXL2K_EXL3_TILE_MAX 256
#define EXL2K_EXL3_WG_BATCH 4u /* tiles of a slot of a ring: a stage's */
#define EXL2K_EXL3_WG_SLOTS 4u
#define EXL2K_EXL3_WG_INPUTS 16384u /* bytes of 64 inputs of 128 rows, transformed */
#define EXL2K_EXL3_WG_STAGES(outputs) ((outputs) == 64 ? 6u : 4u)
#define EXL2K_EXL3_WG_THREADS(outputs) (EXL2K_EXL3_THREADS + 2 * (outputs))
#define EXL2K_EXL3_WG_SLOT(tile_rows, outputs) (((tile_rows) + (outputs)) * 128)
#define EXL2K_EXL3_WG_SHARED(tile_rows, outputs)                                                 \
    (1024u + EXL2K_EXL3_WG_STAGES(outputs) * (EXL2K_EXL3_WG_SLOT(tile_rows, outputs) + 16u) +    \
     EXL2K_EXL3_WARPS * EXL2K_EXL3_RING(EXL2K_EXL3_RATE_MAX))
/* exl3_wide.cuh: a stage has 64 inputs of 256 rows, and of the 128 outputs of a strip, decoded: EXL2K_EXL3_WIDE_STRIP
   bytes. exl3_strips.cuh: stages of a CTA. */
#define EXL2K_EXL3_WIDE_STRIP 16384u
#define EXL2K_EXL3_WIDE_STAGES 4u
#define EXL2K_EXL3_WIDE_SLOT (2u * EXL2K_EXL3_WG_INPUTS + EXL2K_EXL3_WIDE_STRIP)
#define EXL2K_EXL3_WIDE_THREADS (EXL2K_EXL3_THREADS + 128)
#define EXL2K_EXL3_WIDE_SHARED (1024u + EXL2K_EXL3_WIDE_STAGES * (EXL2K_EXL3_WIDE_SLOT + 16u))
#define EXL2K_EXL3_STRIPS_STAGES 8u
#define EXL2K_EXL3_STRIPS_SHARED(rate) (EXL2K_EXL3_WARPS * (EXL2K_EXL3_RING(rate) + 2048u))
#define EXL2K_EXL3_GEMM_SHARED (EXL2K_EXL3_GEMM_ROWS * EXL2K_EXL3_PITCH * 4)
/* exl3_crowd.cuh: a stage has the inputs and tiles of a block, for `rows` rows: 8, 16, 32 or 64. */
#define EXL2K_EXL3_CROWD_ROWS 64
#define EXL2K_EXL3_CROWD_STAGES 4u
#define EXL2K_EXL3_CROWD_AHEAD 2u /* stages on their way */
#define EXL2K_EXL3_CROWD_WORDS(rate) ((rate) * 1024u)
#define EXL2K_EXL3_CROWD_SHARED(rows, rate) \
    (EXL2K_EXL3_CROWD_STAGES * ((rows) * 256u + EXL2K_EXL3_CROWD_WORDS(rate) + 16u))

enum { EXL2K_EXL3_STORE, EXL2K_EXL3_RESIDUAL, EXL2K_EXL3_ACT };
enum { EXL2K_EXL3_BY_ROWS, EXL2K_EXL3_TILES, EXL2K_EXL3_FRAGMENTS }; /* orders of transformed inputs */
enum { EXL2K_EXL3_3INST, EXL2K_EXL3_MCG, EXL2K_EXL3_MUL1 }; /* codebooks */

typedef struct exl2k_exl3_part {
    exl2k_u64 trellis; /* u16 [in / 16, out / 16, 8 * rate], aligned to 16 bytes */
    exl2k_u64 suh;     /* fp16 [in] */
    exl2k_u64 svh;     /* fp16 [out] */
    exl2k_u64 bias;    /* f32 [columns] or 0 */
    exl2k_u32 out;     /* outputs with padding, a multiple of 128 */
    exl2k_u32 row_tiles; /* tiles of a row of the trellis: out / 16 of the whole part, if these are some of its strips
    */
    exl2k_u32 columns; /* the model's outputs */
    exl2k_u32 column;  /* column of the whole output where this part begins */
    exl2k_u32 rate;    /* 2 K: 2 to 16; 3, 5 and 7 are half rates */
    exl2k_u32 book;    /* EXL2K_EXL3_3INST ... */
} exl2k_exl3_part;

/* The RMSNorm that follows a product of one row that is added to the residual: x = fp16(norm(residual)), and H (x suh)
   for every part of the matrix that reads x, in the order BY_ROWS. The row has at most 32 strips, without padding. */
typedef struct exl2k_exl3_norm {
    exl2k_u64 weight;  /* f32 [columns] */
    exl2k_u64 x;       /* fp16 [columns] */
    exl2k_u64 rotated; /* fp16 [parts, columns] */
    exl2k_u64 suh[EXL2K_EXL3_PARTS];
    exl2k_u64 sums;    /* f32 [32, 32]: for each strip, sums of squares of all; zero before and after the launch */
    exl2k_u32 parts;   /* 0: no norm follows */
    exl2k_f32 eps;
} exl2k_exl3_norm;

typedef struct exl2k_exl3_args {
    exl2k_exl3_part part[EXL2K_EXL3_PARTS];
    exl2k_u64 x;
    exl2k_u64 out;
    exl2k_u64 rows_at;   /* address of the number of rows of the pass, u32 in device memory, of which `before` come
                            before those of this launch; 0: use `rows` */
    exl2k_u64 partial;   /* few rows: f32 [strips of all parts, splits, rows, 128]; many rows, where CTAs have 64
                            outputs: f32 [strips of all parts, 2, 128, 64] */
    exl2k_u64 tickets;   /* the same: u32 [strips; few rows, ACT: of one part], zero before and after the launch */
    exl2k_u64 rotated;   /* many rows: fp16 [parts, rotated_rows, blocks * 128], in the order in which
                            exl2k_exl3_rotate wrote them */
    exl2k_u32 rows, before;
    exl2k_u32 rotated_rows; /* many rows: `rows`, rounded up to the rows of a tile */
    exl2k_u32 parts;
    exl2k_u32 first, count; /* the parts that this launch computes; they have one codebook */
    exl2k_u32 in, blocks;   /* the model's inputs, and their blocks of 128 */
    exl2k_u32 splits, slab; /* of few rows */
    exl2k_u32 x_pitch, out_pitch; /* in elements */
    exl2k_u32 kind;
    exl2k_u32 out_half;     /* STORE: 1: out is fp16 */
    exl2k_f32 scale, cap;
    exl2k_u32 act;          /* EXL2K_ACT_* */
    exl2k_f32 act_limit;    /* of EXL2K_ACT_CLAMPED */
    exl2k_u32 stash;        /* one row: 1: shared memory has room for tiles that are decoded ahead */
    exl2k_u32 turned;       /* one row: 1: `rotated` has the inputs, fp16 [parts, blocks * 128] in the order BY_ROWS */
    exl2k_u64 next_suh, next_rotated; /* ACT: results are transformed for the matrix that reads them: one row in the
                                         order BY_ROWS, besides; many rows (exl3_wg_plain) in the order TILES, and only
                                         that. 0: they are not */
    exl2k_exl3_norm norm; /* one row, RESIDUAL */
    exl2k_u32 next_blocks, unused; /* many rows: blocks of next_rotated */
    exl2k_u64 decoded;    /* exl3_wide.cuh: the strips of this launch, decoded: fp16 [strips, blocks * 2, 128, 64], where
                             piece p (8 inputs) of output i lies at place p ^ (i % 8) */
} exl2k_exl3_args;

/* Writes H (x suh) of every part, in one of these orders:
     BY_ROWS    the inputs of a row in the order of exl2k_exl3_place;
     TILES      as the stages of products by wgmma have them: of each 128 rows fp16 [blocks * 2, 128, 64], where piece p
                (8 inputs) of row i lies at place p ^ (i % 8);
     FRAGMENTS  as the stages of exl3_crowd.cuh have them: fp16 [parts, blocks, rotated_rows / 8, 4, 8, 32],
                32 inputs of 8 rows in the order of exl2k_exl3_place.
   Grid: blocks / 8 rounded up, rotated_rows * parts; rows from `rows` on become 0. */
typedef struct exl2k_exl3_rotate_args {
    exl2k_u64 suh[EXL2K_EXL3_PARTS];
    exl2k_u64 x, rotated;
    exl2k_u64 rows_at;
    exl2k_u32 rows, before, rotated_rows, in, blocks, x_pitch;
    exl2k_u32 order, unused;
} exl2k_exl3_rotate_args;

/* exl2k_exl3_settle: settles one row as exl2k_settle does, and writes H (x suh) of every part, too, in the order
   BY_ROWS. The row has a multiple of 128 elements, and one reader, without a map.

   exl2k_exl3_norm_rows: the same of many rows, in the order TILES. Only RMSNorm, without bias and branch, of at most
   EXL2K_EXL3_NORM_MAX elements; `out` may be 0: only transformed rows are needed. Grid: rows; EXL2K_EXL3_THREADS
   threads. */
#define EXL2K_EXL3_NORM_HELD 8u /* blocks of a row that a warp holds: a multiple of 4 */
#define EXL2K_EXL3_NORM_MAX (EXL2K_EXL3_NORM_HELD * EXL2K_EXL3_WARPS * EXL2K_EXL3_BLOCK)
typedef struct exl2k_exl3_settle_args {
    exl2k_settle_args settle;
    exl2k_u64 suh[EXL2K_EXL3_PARTS];
    exl2k_u64 rotated; /* fp16 [parts, hidden], or [parts, rotated_rows, hidden] */
    exl2k_u32 parts, rotated_rows; /* rotated_rows: 0: one row */
} exl2k_exl3_settle_args;

/* Writes rows of a trellis embedding into the residual, times `scale`, before exl2k_embed. A row of the table has ceil(
   hidden / 256) rings: a scale, fp16, and 16 K words of 16 bits, whose bits are counted from the low end. Symbol c(i)
   of a ring is its bits [i K, (i + 1) K), and the state of value i is c(i) + c(i - 1) 2^K + ... modulo 2^16, indices
   modulo 256; the codebook is MUL1. 256 values times the scale, transformed, times `signs` are elements of the row.
   Grid: rows, rings; 32 threads. */
typedef struct exl2k_exl3_embed_args {
    exl2k_u64 pass, rows; /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 table;      /* u16 [table_rows, rings, 1 + 16 bits] */
    exl2k_u64 signs;      /* fp16 [rings, 256] */
    exl2k_u64 residual;   /* f32 [rows, residual_pitch] */
    exl2k_u32 table_rows, hidden, bits, residual_pitch;
    exl2k_f32 scale;
    exl2k_u32 unused;
} exl2k_exl3_embed_args;

/* Writes the decoded values of a part, fp16 [in, out], in the basis of the trellis: for tests and tools. Grid: in / 16,
   out / 128. */
typedef struct exl2k_exl3_dump_args {
    exl2k_u64 trellis, out;
    exl2k_u32 columns; /* outputs with padding */
    exl2k_u32 rate, book, unused;
} exl2k_exl3_dump_args;

#endif
