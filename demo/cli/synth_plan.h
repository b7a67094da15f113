/* synth_plan.h: plans the tensors of a synthetic EXL2 model: names, shapes, group tables.
   takes: a shape, a bit rate, a seed.
   gives: synth_shape_find, synth_bpw_known, synth_plan_make, synth_groups.
   owns:  the plan's list of tensors. */
#ifndef DEMO_CLI_SYNTH_PLAN_H
#define DEMO_CLI_SYNTH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYNTH_MIX_PARTS 3
#define SYNTH_GROUPS_MAX 1024u /* 28,672 rows in groups of 32 are 896 */

typedef struct synth_shape {
    const char *name;
    uint32_t hidden, inter, layers, heads, kv_heads, head_dim, vocab;
    double rope_theta;
} synth_shape;

typedef struct synth_mix { /* bits of one matrix: parts in descending order of bits; bits 0 ends the list */
    struct {
        uint32_t bits;
        double share; /* share of the rows, 0..1 */
        uint32_t group; /* rows of a group */
    } parts[SYNTH_MIX_PARTS];
} synth_mix;

typedef struct synth_group { uint32_t bits, word_row, rows; } synth_group;

typedef enum synth_fill {
    SYNTH_WORDS,     /* random u32 */
    SYNTH_NORMS,     /* fp16, 1 +- 0.05 */
    SYNTH_EMBEDDING, /* fp16, 0 +- 1 */
    SYNTH_SCALE_MAX, /* fp16 per group, so that weights have a deviation of about 0.02 */
    SYNTH_GROUPS,    /* u16 pairs (bits, first word row) */
    SYNTH_PERM       /* a random permutation, i32 */
} synth_fill;

typedef struct synth_tensor {
    char name[64];
    const char *dtype;
    uint64_t shape[2]; /* shape[1] = 0: one dimension */
    uint64_t bytes, seed;
    synth_fill fill;
    const synth_mix *mix; /* SCALE_MAX, GROUPS */
    uint32_t rows;        /* SCALE_MAX, GROUPS, PERM: rows of the matrix */
} synth_tensor;

typedef struct synth_plan {
    const synth_shape *shape;
    double bpw;
    synth_tensor *tensors; /* [count] in file order; free() it */
    uint32_t count, cap;
    uint64_t layer_bits, layer_weights, head_bits; /* with scales, groups and permutations */
} synth_plan;

const synth_shape *synth_shape_find(const char *name); /* NULL: no shape has this name */
bool synth_bpw_known(double bpw);                      /* one of 2.5, 3, 4, 4.5, 5, 6, 8 */
synth_plan synth_plan_make(const synth_shape *shape, double bpw, uint32_t seed);
uint32_t synth_groups(const synth_mix *mix, uint32_t rows, synth_group groups[SYNTH_GROUPS_MAX]); /* their count */

#endif
