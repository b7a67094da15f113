/* exl3_expert_args.h: arguments of the kernels of experts in EXL3.
   takes: exl3_args.h, grouped_rows_args.h (pairs, places and tiles of many rows).
   gives: exl2k_exl3_expert_args, exl2k_exl3_expert_rotate_args; EXL2K_EXL3_EXPERT_PARTS.
   owns:  nothing; the addresses point to device memory that the backend owns.

   Experts of a layer may differ in rate and codebook, and so may gate, up and down of one expert. A launch has the
   kernel of one codebook: its CTAs whose part has another one leave at once, and there is a launch for each codebook of
   the layer's parts.
   SLOT     row * active + i is the i-th expert of a row.

   FEW ROWS, at most EXL2K_EXL3_ROWS: one product writes h of every slot, one adds the sum of a row's slots to the
            residual. Grid: strips of gate and up, or of down; slots * splits. The CTAs of the first slot of an expert
            multiply the rows of all of its slots, so that a weight is decoded once. Sums of splits lie at `partial`:
            f32 [strips, splits, slots, 128]. Tickets: up: u32 [slots, strips of a part], down: u32 [strips].
            up    x: fp16 [rows, x_pitch], normalised; out: h, fp16 [slots, out_pitch] act(gate) * up
            down  x: h; out: f32 [rows, out_pitch] += scale * sum of weight * (value + bias), in the order of slots
            A row's bits depend on its experts and the number of splits only.
   MANY     exl2k_grouped_sort gives each slot a place; inputs, h and results lie at the places, and a CTA has a strip
            of one tile. exl2k_exl3_expert_rotate writes transformed inputs, gate's before up's; h is transformed where
            it lies. exl2k_grouped_sum adds up the results. Grid: strips of a part, tiles at most. Rows beyond the last
            one of a tile are multiplied and never stored, so that memory for a tile's rows must follow the last place.
            Gate is STOREd in h as fp16; ACT of up reads it there. down: STORE, f32 [places, out_pitch]. */
#ifndef EXL2K_EXL3_EXPERT_ARGS_H
#define EXL2K_EXL3_EXPERT_ARGS_H

#include "exl3_args.h"
#include "grouped_rows_args.h"

#define EXL2K_EXL3_EXPERT_PARTS 3 /* gate, up, down; without a gate up is the first one */
/* Dynamic shared memory of a product of few rows whose longest split has `blocks` blocks. */
#define EXL2K_EXL3_EXPERT_SHARED(rows, blocks) \
    ((rows) * (((blocks) < EXL2K_EXL3_SLAB ? (blocks) : EXL2K_EXL3_SLAB) * 256 + EXL2K_EXL3_SPARE))
#define EXL2K_EXL3_EXPERT_TILE_MAX 128 /* rows of a tile by wgmma; else EXL2K_EXL3_GEMM_ROWS */
/* Of a product by wgmma: four stages of 64 inputs; then sums, which need a little more. */
#define EXL2K_EXL3_EXPERT_STAGES 4
#define EXL2K_EXL3_EXPERT_WG_SHARED (EXL2K_EXL3_EXPERT_TILE_MAX * EXL2K_EXL3_PITCH * 4 + 1024)

typedef struct exl2k_exl3_expert_args {
    exl2k_exl3_args product; /* but for its parts, which `experts` has: `first` is that of the product, `parts` their
                                number. rotated: what the part of the launch reads */
    exl2k_u64 experts;       /* exl2k_exl3_part [count, EXL2K_EXL3_EXPERT_PARTS]; their `column` is 0 */
    exl2k_u64 choice;        /* few rows: u32 [rows, active]; an index beyond the last expert means the last one */
    exl2k_u64 weight;        /* few rows, down: f32 [rows, active] */
    exl2k_u64 added;         /* few rows, up: f32 [slots, 2, columns of a part] that is added to gate and up, or to up
                                alone in the first of the two (lora_experts_args.h); 0: nothing */
    exl2k_u64 tiles, tile_count; /* many rows: of exl2k_grouped_sort */
    exl2k_u32 count, active;
    exl2k_u32 strips;        /* of a part */
    exl2k_u32 part;          /* many rows: the part of the launch */
} exl2k_exl3_expert_args;

/* Writes H (x suh) of some parts of the expert at each place. Grid: places; blocks / EXL2K_EXL3_WARPS, rounded up,
   times the number of parts. x and rotated may be the same. */
typedef struct exl2k_exl3_expert_rotate_args {
    exl2k_u64 experts;
    exl2k_u64 pairs;   /* of exl2k_grouped_sort */
    exl2k_u64 x;       /* fp16 [rows or places, x_pitch] */
    exl2k_u64 rotated; /* fp16 [places, blocks * 128]; that of the next part begins `step` bytes later */
    exl2k_u64 step;
    exl2k_u32 first;   /* part */
    exl2k_u32 in, blocks, x_pitch;
    exl2k_u32 by_place; /* 1: x has a row for each place */
    exl2k_u32 natural;  /* as exl2k_exl3_rotate_args */
} exl2k_exl3_expert_rotate_args;

#endif
