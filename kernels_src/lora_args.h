/* lora_args.h: what adapters add to a product of few rows: B t, with t = factor A x.
   takes: gemv_args.h.
   gives: exl2k_lora_matrix, exl2k_lora_pass, exl2k_lora_gemv_args. */
#ifndef EXL2K_LORA_ARGS_H
#define EXL2K_LORA_ARGS_H

#include "gemv_args.h"

#define EXL2K_LORA_USES 8      /* adapters of a row */
#define EXL2K_LORA_PARTS 3     /* of a matrix */
#define EXL2K_LORA_ROWS 8      /* of a pass with adapters */
#define EXL2K_LORA_SLOTS 256   /* adapters of a model */
#define EXL2K_LORA_ADAPTERS 64 /* of all rows of such a pass */
#define EXL2K_LORA_CTAS 4      /* that compute t: the first ones of a launch */
#define EXL2K_LORA_TILE 16     /* values of t that a CTA computes at a time */
/* Shared memory of a CTA: the beginning of exl2k_lora_pass, 16 bytes for each warp, a barrier and the next strip
   without B t, then the first half of exl2k_lora_matrix [slots, parts]. A CTA that computes t has two buffers of sums
   [16 warps, EXL2K_LORA_TILE, rows] in place of rings, and all of exl2k_lora_matrix [slots, parts]. */
#define EXL2K_LORA_HEAD_BYTES (16 + 2 * EXL2K_LORA_ADAPTERS)
#define EXL2K_LORA_TURN_AT EXL2K_LORA_HEAD_BYTES
#define EXL2K_LORA_BARRIER_AT (EXL2K_LORA_TURN_AT + EXL2K_GEMV_WARPS * 16)
#define EXL2K_LORA_NEXT_AT (EXL2K_LORA_BARRIER_AT + 8)
#define EXL2K_LORA_ENTRY_AT (EXL2K_LORA_BARRIER_AT + 16)
#define EXL2K_LORA_SMALL_BYTES(slots) (EXL2K_LORA_ENTRY_AT + (slots) * EXL2K_LORA_PARTS * 16)
#define EXL2K_LORA_SUMS_BYTES (EXL2K_GEMV_WARPS * EXL2K_LORA_TILE * EXL2K_LORA_ROWS * 4)
#define EXL2K_LORA_SUMS_AT EXL2K_LORA_BARRIER_AT
#define EXL2K_LORA_TABLE_AT (EXL2K_LORA_SUMS_AT + 2 * EXL2K_LORA_SUMS_BYTES)
#define EXL2K_LORA_SHRINK_BYTES(slots) (EXL2K_LORA_TABLE_AT + (slots) * EXL2K_LORA_PARTS * 32)

/* What an adapter adds to one part of a matrix; as exl2__lora_matrix (2_graph/lora.h). */
typedef struct exl2k_lora_matrix {
    exl2k_u32 rank;       /* 0: nothing */
    exl2k_f32 factor;
    exl2k_u64 b, a;       /* fp16 [rank, columns rounded up to 32], [rank, inputs rounded up to 16] */
    exl2k_u32 shares, unused;
} exl2k_lora_matrix;

/* An adapter that passes use has a slot, which holds its table. The adapters of a pass lie in the order in which each
   row adds up what its own ones add. */
typedef struct exl2k_lora_pass {
    exl2k_u32 count, unused[3];           /* adapters of the pass */
    exl2k_u8 slots[EXL2K_LORA_ADAPTERS];  /* [count] their slots */
    exl2k_u8 users[EXL2K_LORA_ADAPTERS];  /* [count] bit i: row i has the adapter */
    exl2k_f32 scale[EXL2K_LORA_ADAPTERS][EXL2K_LORA_ROWS]; /* [count] of each for each row */
} exl2k_lora_pass;

/* A value of t and its epoch are one store of 8 bytes, so a value is ready when its epoch is that of the product:
   turn * epochs + epoch, where turn counts passes. */
typedef struct exl2k_lora_gemv_args {
    exl2k_gemv_args gemv;
    exl2k_u64 pass;       /* exl2k_lora_pass */
    exl2k_u64 x;          /* of A, as gemv.x; its inputs may have another order */
    exl2k_u64 tables;     /* exl2k_lora_matrix [slots, table] */
    exl2k_u64 t;          /* (f32, u32 epoch) [slots, parts, rows, rank_stride] */
    exl2k_u64 turn;       /* u32, aligned to 16: the embedding of a pass adds 1 */
    exl2k_u32 slots;
    exl2k_u32 table;      /* matrices of a table: [layers, places] */
    exl2k_u32 row;        /* of the pass, that is row 0 of the launch */
    exl2k_u32 place;      /* of the matrix's first part in a table */
    exl2k_u32 parts_inverse; /* 65536 / parts + 1 */
    exl2k_u32 in;         /* inputs of the matrix */
    exl2k_u32 rank_stride; /* a multiple of 8 */
    exl2k_u32 epochs, epoch; /* epochs of a pass, a power of two; this product's, 1 .. epochs - 1 */
} exl2k_lora_gemv_args;

#endif
