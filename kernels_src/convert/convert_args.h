/* convert_args.h: arguments of the kernels of the converter.
   takes: types.h, included before.
   gives: exl2k_half_rows_args, exl2k_half_act_args, exl2k_half_columns_args, exl2k_half_weights_args,
          exl2k_half_product_args, exl2k_gram_args; exl2k_pass_norm_args, exl2k_pass_heads_args,
          exl2k_pass_attend_args, exl2k_pass_kl_args; exl2k_experts_weigh_args, exl2k_experts_sum_args,
          exl2k_experts_blend_args; exl2k_float_product_args; exl2k_factor_args; exl2k_losses_args; exl2k_solve_args;
          exl2k_correct_args.

   Device memory holds matrices of weights, errors and codes in strips of 32 columns, [strips, in, 32], as host memory
   does. Square matrices are row-major. */
#ifndef EXL2K_CONVERT_ARGS_H
#define EXL2K_CONVERT_ARGS_H

#define EXL2K_CONVERT_STRIP 32u /* columns of a strip */

/* ---- products of halves ---- */

#define EXL2K_HALF_TILE 128u     /* rows and columns of a tile of the product; */
#define EXL2K_HALF_DEPTH 32u     /* what it reads of k at once: k is a multiple; */
#define EXL2K_HALF_THREADS 256u
#define EXL2K_HALF_STAGES 3u     /* in flight */
#define EXL2K_HALF_PITCH 80u     /* bytes of a row of DEPTH halves in shared memory: ldmatrix then has no conflicts */
#define EXL2K_HALF_SHARED (EXL2K_HALF_STAGES * 2 * EXL2K_HALF_TILE * EXL2K_HALF_PITCH)
#define EXL2K_HALF_WG_STAGE (384u * 128) /* bytes, of four */
#define EXL2K_HALF_WG_SHARED (4 * EXL2K_HALF_WG_STAGE + 1024)

/* out [rows, in] f16 = x / scale, scale [rows] a power of two: the largest of a row becomes 2^13 to 2^14. With a list
   (u32 [rows], else 0), row i is made of row list[i] / each of x. */
typedef struct exl2k_half_rows_args {
    exl2k_u64 x, out, scale, list; /* x [.., in] f32 */
    exl2k_u32 in, each;
} exl2k_half_rows_args;

/* x [count] = act(gate) up; up 0: without the second factor. act: EXL2K_ACT_*, with the bound `limit` of CLAMPED. */
typedef struct exl2k_half_act_args {
    exl2k_u64 gate, up, x, count;
    exl2k_u32 act;
    exl2k_f32 limit;
} exl2k_half_act_args;

/* As exl2k_half_rows_args by columns, transposed: out [in, pitch], scale [in]; rows from `rows` on are zeros. minus: 0,
   or [rows, in] f32, which is subtracted from x. */
typedef struct exl2k_half_columns_args {
    exl2k_u64 x, minus, out, scale;
    exl2k_u32 in, rows, pitch, unused;
} exl2k_half_columns_args;

enum { EXL2K_HALF_F16, EXL2K_HALF_BF16, EXL2K_HALF_F32 };

/* out [columns, in] f16, from strips of another type. */
typedef struct exl2k_half_weights_args {
    exl2k_u64 strips, out;
    exl2k_u32 in, source;
} exl2k_half_weights_args;

/* With y = a_scale b_scale (a b') + bias, c [m, n] f32 becomes y, or with `add` not 0, c + add y. a [m, k], b [n, k]
   f16. Memory of a and b lasts to a multiple of EXL2K_HALF_TILE rows. */
typedef struct exl2k_half_product_args {
    exl2k_u64 a, b, c, a_scale, b_scale, bias; /* a_scale [m]; b_scale [n], 0: all 1; bias [n], 0: none */
    exl2k_u32 m, n, k, c_pitch; /* rows of c are c_pitch apart */
    exl2k_f32 add;
    exl2k_u32 lower; /* tiles above the diagonal are left out */
} exl2k_half_product_args;

/* strips [in / 32, in, 32] = factor * the symmetric matrix whose lower half is sum [in, in]. */
typedef struct exl2k_gram_args {
    exl2k_u64 sum, strips;
    exl2k_u32 in;
    exl2k_f32 factor;
} exl2k_gram_args;

/* ---- a pass through the model ---- */

#define EXL2K_PASS_THREADS 256u
#define EXL2K_PASS_HEAD_THREADS 128u
#define EXL2K_PASS_DIM_MAX 256u /* of a head; a multiple of 8 */

/* With y = the RMSNorm or LayerNorm of a row of x, or the row if weight is 0: out [rows, count] becomes y, or with
   `add` not 0, out + add y. */
typedef struct exl2k_pass_norm_args {
    exl2k_u64 x, weight, bias, out; /* weight, bias [count]; bias 0: none */
    exl2k_u32 count, layer_norm;
    exl2k_f32 eps, add;
} exl2k_pass_norm_args;

/* out [rows, heads, dim] f16: heads of x [rows, pitch], each with its norm (weight 0: none), bounded to +-clip (0:
   not), rotated, and multiplied by scale (1 + growth ln(1 + floor(position / context))). Sequences have `each` rows. */
typedef struct exl2k_pass_heads_args {
    exl2k_u64 x, out, weight, bias; /* weight, bias [heads, dim] */
    exl2k_u64 angles;               /* [positions, 2, rotary / 2] cosines, sines */
    exl2k_u32 pitch, heads, dim, each;
    exl2k_u32 rotary;               /* the first elements, which are rotated; 0: none */
    exl2k_u32 pairs;                /* those are (2i, 2i + 1), else (i, i + rotary / 2) */
    exl2k_u32 after, layer_norm;    /* after: the norm follows the rotation */
    exl2k_f32 eps, clip, scale, growth, context;
    exl2k_u32 unused;
} exl2k_pass_heads_args;

/* out [rows, heads, dim] f32 = softmax(cap(q k')) v in each sequence of `each` rows. */
typedef struct exl2k_pass_attend_args {
    exl2k_u64 q, k, v, out; /* q [rows, heads, dim], k, v [rows, heads / group, dim] f16 */
    exl2k_u64 sinks;        /* [heads] f32, 0: none */
    exl2k_u32 heads, group, dim, each;
    exl2k_u32 window;       /* keys that a row sees, with itself */
    exl2k_f32 softcap;      /* 0: none */
} exl2k_pass_attend_args;

/* kl [rows] f64: KL divergence of logits y from x [rows, pitch], both multiplied by `scale` and capped (0: not). */
typedef struct exl2k_pass_kl_args {
    exl2k_u64 x, y, kl;
    exl2k_u32 vocab, pitch;
    exl2k_f32 scale, cap;
} exl2k_pass_kl_args;

/* ---- experts ---- */

/* The i-th expert that a row has chosen is its slot row * active + i. Slots are sorted by expert: each has a place. */

/* x [rows, in] f32, row i times weight[slots[i]], or with slots 0, times weight[i]. */
typedef struct exl2k_experts_weigh_args {
    exl2k_u64 x, weight, slots; /* slots u32 [rows] */
    exl2k_u32 in, unused;
} exl2k_experts_weigh_args;

/* residual [rows, hidden] += scale * sum of y + weight * bias over the experts of a row, in ascending order. */
typedef struct exl2k_experts_sum_args {
    exl2k_u64 y, residual;    /* y [places, hidden] f32 */
    exl2k_u64 weight, choice; /* f32 and u32 [rows, active] */
    exl2k_u64 places;         /* u32 [rows, active] */
    exl2k_u64 bias;           /* [experts, hidden] f32; 0: none */
    exl2k_u32 hidden, active;
    exl2k_f32 scale;
    exl2k_u32 unused;
} exl2k_experts_sum_args;

/* Sums of x'x over the tokens of each expert become moments: (sum + shared mean) / (tokens + shared), where mean is
   that of all tokens, and shared in / 4. */
typedef struct exl2k_experts_blend_args {
    exl2k_u64 sums, tokens; /* sums [experts, in, in] f32; tokens f32 [experts] */
    exl2k_u32 in, experts;
    exl2k_f32 all;          /* tokens of all experts */
    exl2k_u32 unused;
} exl2k_experts_blend_args;

/* ---- products of floats ---- */

#define EXL2K_FLOAT_ROWS 128u /* a tile */
#define EXL2K_FLOAT_COLUMNS 64u
#define EXL2K_FLOAT_DEPTH 16u /* k is a multiple */
#define EXL2K_FLOAT_THREADS 128u

/* c [m, n] = add * c + factor * a' b, a [k, m] with rows a_pitch apart, b [k, n], in f32. b and c lie in strips of
   b_width and c_width columns, [rows, width] each, which are b_strip and c_strip floats apart. m and n are multiples of
   4. Slice z of the grid sums the rows from z * k_slice on, and stores at c + z * c_slice floats. */
typedef struct exl2k_float_product_args {
    exl2k_u64 a, b, c, b_strip, c_strip, c_slice;
    exl2k_u32 m, n, k, k_slice, a_pitch, b_width, c_width, lower;
    exl2k_f32 factor, add;
} exl2k_float_product_args;

/* ---- factor ---- */

#define EXL2K_FACTOR_BLOCK 32u  /* rows that are factored together; */
#define EXL2K_FACTOR_PANEL 128u /* rows that are subtracted from those above them together */
#define EXL2K_FACTOR_THREADS 128u

typedef struct exl2k_factor_args {
    exl2k_u64 gram;     /* [in, in] H, of which the lower half is read; or with `strips` [in / 32, in, 32] */
    exl2k_u64 order;    /* [in] u32 */
    exl2k_u64 hessian;  /* [in, in] Hd / mean */
    exl2k_u64 lower;    /* [in, in] A' in the lower half, while it is made */
    exl2k_u64 feedback; /* [in, in] F, zeros from the diagonal down */
    exl2k_u64 diagonal; /* [in] D / mean */
    exl2k_u64 failed;   /* u32, set to 1 if a block is not positive definite */
    exl2k_u32 in, first; /* first: row of the block */
    exl2k_f32 factor, damp; /* factor: what makes the mean of the diagonal of H 1 */
    exl2k_u32 strips, unused;
} exl2k_factor_args;

/* ---- losses ---- */

#define EXL2K_LOSSES_WIDTHS 6u
#define EXL2K_LOSSES_TRIES 8u
#define EXL2K_LOSSES_CELLS (EXL2K_LOSSES_WIDTHS * EXL2K_LOSSES_TRIES)
#define EXL2K_LOSSES_BLOCK 32u /* rows */
#define EXL2K_LOSSES_THREADS 128u

typedef struct exl2k_losses_args {
    exl2k_u64 weights;  /* [strips, in, 32] */
    exl2k_u64 diagonal; /* [in] D */
    exl2k_u64 peaks;    /* [blocks, strips] f32 */
    exl2k_u64 tries;    /* [blocks, WIDTHS, TRIES] u16, padded to u32 */
    exl2k_u64 sums;     /* [strips, blocks, WIDTHS, TRIES] f64 */
    exl2k_u64 totals;   /* [blocks, WIDTHS, TRIES] f64 */
    exl2k_u32 in, strips;
} exl2k_losses_args;

/* ---- solve ---- */

#define EXL2K_SOLVE_ROWS 128u  /* most rows of a block, which is some whole groups */
#define EXL2K_SOLVE_TRIES 24u
#define EXL2K_SOLVE_LEVELS 4u  /* warps of a CTA: one for each level that a column tries */
#define EXL2K_SOLVE_THREADS 128u
#define EXL2K_SOLVE_SLICES 16u /* most slices of a product */

typedef struct exl2k_solve_args {
    exl2k_u64 weights, errors; /* [strips, in, 32] */
    exl2k_u64 codes;           /* [strips, in, 32] u8 */
    exl2k_u64 levels;          /* [groups, columns] u8 */
    exl2k_u64 scale_max;       /* [groups] u32: f16 */
    exl2k_u64 groups;          /* [groups] exl2__group: row, rows, word, bits */
    exl2k_u64 hessian, feedback, diagonal;
    exl2k_u64 targets;         /* [strips, ROWS, 32] what the rows of the block aim at */
    exl2k_u64 partial;         /* [slices, strips, ROWS, 32] slices of a product */
    exl2k_u64 peaks;           /* [columns] and [strips] */
    exl2k_u64 sums;            /* [strips, TRIES] f64; of exl2k_solve_energy [strips, 2] */
    exl2k_u64 x;               /* whose energy is computed */
    exl2k_u64 strips_of;       /* [strips, in, 32] weights as the model has them; or f16 that take their place */
    exl2k_u64 order;           /* [in] u32 input of each packed row */
    exl2k_u32 in, columns, strips, slices;
    exl2k_u32 row, rows;       /* of the block */
    exl2k_u32 group, group_count; /* the group; of a descent the first one of the block, and their number */
    exl2k_u32 source, used;    /* EXL2K_HALF_* of strips_of; columns from `used` on are zeros */
} exl2k_solve_args;

/* ---- corrected targets ---- */

typedef struct exl2k_correct_args {
    exl2k_u64 cross;    /* [in, in] (x - y)'y by inputs */
    exl2k_u64 order;    /* [in] u32 */
    exl2k_u64 turned;   /* [in, in] factor * cross in packed order */
    exl2k_u64 feedback, lower; /* [in, in] F and F' */
    exl2k_u64 diagonal; /* [in] */
    exl2k_u64 g, weights; /* [strips, in, 32] */
    exl2k_u64 partial;  /* [slices, strips, EXL2K_SOLVE_ROWS, 32] slices of a product */
    exl2k_u32 in, row, rows, slices; /* row, rows: of the block */
    exl2k_u32 down;
    exl2k_f32 factor, most;
    exl2k_u32 unused;
} exl2k_correct_args;

#endif
