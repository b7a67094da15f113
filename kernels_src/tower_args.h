/* tower_args.h: arguments of the kernels of towers for pictures.
   takes: types.h, included before or here.
   gives: exl2k_tower_weights_args, exl2k_tower_patches_args, exl2k_tower_norm_args, exl2k_tower_product_args,
          exl2k_tower_attend_args, exl2k_tower_merge_args, exl2k_tower_check_args,
          exl2k_tower_add_args.

   SCALE   The residual is f32. Inputs of products, and q, k and v, are fp16 and hold the value divided by
           EXL2K_TOWER_SCALE, a power of two: so they reach 4.2 million, where plain fp16 ends at 65,504. Values below
           0.004 lose bits, but they are added to values that are much larger. A value beyond the range becomes an
           infinity, and exl2k_tower_check finds the rows that result.
   RANGES  A launch computes some rows: those from `row` on, as many as its grid has. The bits of a row do not depend on
           the range.
   PADS    Lines of inputs have zeros up to a multiple of EXL2K_TOWER_DEPTH. So do lines of weights. The number of lines
           in memory is a multiple of EXL2K_TOWER_TILE.
   TILES   What products read, inputs and weights, lies as [k / 64][lines][64] fp16: 64 elements of one line, then those
           of the next line. Eight elements are a piece: piece p of line i is at place p ^ (i % 8) of its eight. That is
           the order of wgmma in shared memory, so the lines of a tile are one copy for each 64 of k. */
#ifndef EXL2K_TOWER_ARGS_H
#define EXL2K_TOWER_ARGS_H

#include "types.h"

#define EXL2K_TOWER_SCALE 64.0f
#define EXL2K_TOWER_DEPTH 64u    /* inputs that a product reads at once */
#define EXL2K_TOWER_TILE 128u    /* rows and columns of a tile of a product; queries of a CTA of attention */
#define EXL2K_TOWER_LINES(columns) (((columns) + 127u) / 128u * 128u) /* of weights, in memory */
#define EXL2K_TOWER_WIDTH_MAX 4096u /* of the residual */
#define EXL2K_TOWER_DIM_MAX 128u    /* of a head */

enum { EXL2K_TOWER_F16, EXL2K_TOWER_BF16, EXL2K_TOWER_F32 };

/* exl2k_tower_weights: grid (ceil(in / 256), rows), block 256. Writes rows of a tensor as fp16, see TILES, or as f32 if
   `lines` is 0. Element i of the tensor's row number n = first + the grid's y goes to element i of line n; with
   `transposed` to element n of line i. Line l lies at the place offset + l / 8 * step + l % 8: with a step of 16 the
   lines of two matrices alternate in groups of 8. Of heads of `dim` lines, those before line `turned` have the pairs
   (i, i + dim / 2) side by side: line 2 i, line 2 i + 1. */
typedef struct exl2k_tower_weights_args {
    exl2k_u64 from;                  /* [rows, in] of `type` */
    exl2k_u64 to;                    /* fp16, or f32 [places, pitch] */
    exl2k_u32 in, first, type;
    exl2k_u32 pitch, offset, step;
    exl2k_u32 transposed, lines;     /* lines: in memory */
    exl2k_u32 dim, turned;           /* turned 0: lines stay */
} exl2k_tower_weights_args;

/* exl2k_tower_patches: grid (rows), block 256. The pixels of each row's patch: channel, frame, line, column. The first
   `before` rows are zeros. */
typedef struct exl2k_tower_patches_args {
    exl2k_u64 pixels;                /* u8 [frames, lines, line_bytes] RGB */
    exl2k_u64 order;                 /* u32: the patch of each row after the first `before` */
    exl2k_u64 levels;                /* f32 [3, 256] value of a byte of a channel */
    exl2k_u64 out;                   /* fp16, see SCALE and TILES */
    exl2k_u32 row, before;
    exl2k_u32 patch, frames, columns; /* side of a patch; frames of it; patches of a line */
    exl2k_u32 line_bytes, frame_bytes, pitch; /* frame_bytes 0: the frames of a patch are equal; pitch: of out */
    exl2k_u32 rows_max, unused;      /* rows of out in memory */
} exl2k_tower_patches_args;

enum { EXL2K_TOWER_TABLE_NONE, EXL2K_TOWER_TABLE_PLACES, EXL2K_TOWER_TABLE_BILINEAR };

/* exl2k_tower_norm: grid (rows), block EXL2K_TOWER_NORM_THREADS. With y = the row of x, or the class row, + its place
   in the table: out = norm(y), or y if weight is 0. */
#define EXL2K_TOWER_NORM_THREADS 128
typedef struct exl2k_tower_norm_args {
    exl2k_u64 x;                     /* f32 [rows, pitch] */
    exl2k_u64 out;                   /* rows_max 0: f32 [rows, out_pitch], which may be x; else fp16, see SCALE, PADS
                                        and TILES */
    exl2k_u64 weight, bias;          /* f32 [width]; bias: of LayerNorm */
    exl2k_u64 table, order;          /* f32 [places, width]; u32 as in exl2k_tower_patches_args */
    exl2k_u64 class_row;             /* f32 [width], of the row before the patches; 0: there is none */
    exl2k_u32 width, pitch, out_pitch, row;
    exl2k_u32 kind, before;          /* EXL2K_TOWER_TABLE_*; 1 if there is a class row, else 0 */
    exl2k_u32 lines, columns, side;  /* BILINEAR: patches; the table is [side, side] */
    exl2k_u32 rms, rows_max;         /* rows_max: of out in memory, if it is fp16 */
    exl2k_f32 eps;
} exl2k_tower_norm_args;

/* What becomes of y = SCALE * x W + bias. GATED: lines of the weights alternate in groups of 8, gate and up, and each
   pair of columns gives act(gate) * up. HEADS: columns are q, k and v of all heads, as exl2k_tower_weights has turned
   them; with angles, each pair of q and k is rotated: the first half of the pairs of a head by the line of the row's
   patch, the others by its column. */
enum { EXL2K_TOWER_STORE, EXL2K_TOWER_ADD, EXL2K_TOWER_ACT, EXL2K_TOWER_GATED, EXL2K_TOWER_HEADS };

/* Activations: GELU by erf, or LOGISTIC: v / (1 + e^-(plain + linear v + cubic v^3)). SiLU is that of 0, 1, 0; GELU by
   tanh of 0, 2 sqrt(2 / pi), 0.044715 times that; quick_gelu of 0, 1.702, 0; none at all of EXL2K_TOWER_PLAIN, 0, 0. */
#define EXL2K_TOWER_PLAIN 200.0f
enum { EXL2K_TOWER_LOGISTIC, EXL2K_TOWER_GELU };

/* exl2k_tower_product: grid (tiles of rows, tiles of columns) of 128 x 128, block 256, dynamic shared memory
   EXL2K_TOWER_SHARED. On sm_90a, block EXL2K_TOWER_WG_THREADS, dynamic shared memory EXL2K_TOWER_WG_SHARED(rows and
   columns of a tile, stages): exl2k_tower_wg_pair with the same tiles, exl2k_tower_wg_narrow with tiles of 128 x 64.
   There the CTAs of a cluster (x of the grid) compute one tile, each a part of k of one DEPTH at least: SPLITS_MAX at
   most. */
#define EXL2K_TOWER_WG_THREADS 288u
#define EXL2K_TOWER_SHARED (3u * 2 * 128 * 80)
#define EXL2K_TOWER_SPLITS_MAX 8u
#define EXL2K_TOWER_PAIR_STAGES 3u
#define EXL2K_TOWER_NARROW_STAGES 4u
#define EXL2K_TOWER_WG_SHARED(lines, stages) ((stages) * ((lines) * 128u + 16) + 1024)
typedef struct exl2k_tower_product_args {
    exl2k_u64 x;                     /* fp16 [rows_max, k], see SCALE and TILES */
    exl2k_u64 weight;                /* fp16 [columns, k], see PADS and TILES */
    exl2k_u64 bias;                  /* f32 [columns], as many as rows of weights */
    exl2k_u64 out;                   /* STORE, ADD: f32 [rows, out_pitch]; ACT, GATED: fp16, see SCALE and TILES; HEADS:
                                        fp16 [3, heads, rows_max, padded], see SCALE; what is after dim stays */
    exl2k_u64 angles;                /* f32 [2, sides, 2, dim / 4]: of lines, of columns: cosines, sines; 0: none */
    exl2k_u64 order;                 /* of angles: as in exl2k_tower_patches_args; there is no class row */
    exl2k_u32 row, rows, rows_max;   /* rows [row, rows) are computed; rows_max: in memory, of x and of fp16 `out` */
    exl2k_u32 columns, k, out_pitch; /* columns: lines of weights, without padding; ACT and GATED write all out_pitch */
    exl2k_u32 kind, act;
    exl2k_f32 plain, linear, cubic;  /* of LOGISTIC */
    exl2k_u32 heads, dim, padded;    /* of HEADS */
    exl2k_u32 sides, patches;        /* of angles: places of the table; patches of a line */
} exl2k_tower_product_args;

/* exl2k_tower_attend{32,64,80,128} (the smallest one that holds dim, which is also `padded` of the heads): grid (tiles
   of 128 rows, heads), block 256. On sm_90a, where each row sees all rows, exl2k_tower_attend_wg64, and
   exl2k_tower_attend_wg80 with tiles of 192 rows, block 384: dynamic shared memory EXL2K_TOWER_ATTEND_SHARED(dim). */
#define EXL2K_TOWER_ATTEND_SHARED(dim) (((dim) + 63) / 64 * 3u * 2 * 64 * 128 + 1024)
typedef struct exl2k_tower_attend_args {
    exl2k_u64 heads_at;              /* `out` of a product of HEADS */
    exl2k_u64 segments;              /* u32 [rows, 2]: first key of each row, and the end of its keys, ascending; 0:
                                        each row sees all rows */
    exl2k_u64 out;                   /* fp16, see SCALE and TILES: element i of head h is h * dim + i of a row */
    exl2k_u32 row, rows, rows_max;   /* the first row is a multiple of 128; rows: of the picture; rows_max: in memory */
    exl2k_u32 heads, dim;
    exl2k_f32 scale;                 /* of scores, times log2(e) and SCALE^2 */
} exl2k_tower_attend_args;

enum { EXL2K_TOWER_DYX, EXL2K_TOWER_CYX, EXL2K_TOWER_MEAN };

/* exl2k_tower_merge: grid (rows of the result, any), block 256. The patches of a cell become one row of inputs, after a
   norm of all of them unless weight is 0. */
typedef struct exl2k_tower_merge_args {
    exl2k_u64 x;                     /* f32 [rows, pitch] */
    exl2k_u64 out;                   /* fp16, see SCALE, PADS and TILES */
    exl2k_u64 at;                    /* u32: the row of each patch, without the first `before` */
    exl2k_u64 weight, bias;          /* f32 [width * side * side], of MEAN [width] */
    exl2k_u32 width, pitch, out_pitch, row;
    exl2k_u32 side, cells, columns;  /* of a cell; cells and patches of a line */
    exl2k_u32 before, direct, kind;  /* direct: row i of the result is row i */
    exl2k_u32 rms, rows_max;         /* rows_max: of out in memory */
    exl2k_f32 eps;
    exl2k_u32 unused_too;
} exl2k_tower_merge_args;

/* exl2k_tower_check: grid (any), block 256. Sets *bad to 1 if a value is not finite. */
typedef struct exl2k_tower_check_args {
    exl2k_u64 x, bad, count;         /* f32 [count]; u32 */
} exl2k_tower_check_args;

/* exl2k_tower_add: grid (rows), block 256. residual += added, of rows with EXL2K_ROW_VECTOR. */
typedef struct exl2k_tower_add_args {
    exl2k_u64 pass, rows;            /* exl2k_pass, exl2k_row [rows] */
    exl2k_u64 residual, added;       /* f32 [rows, hidden] */
    exl2k_u32 hidden, unused;
} exl2k_tower_add_args;

#endif
