/* synth_plan.h: plans the tensors of a synthetic model: names, shapes, group tables.
   takes: a shape, a format, a bit rate, a seed.
   gives: synth_format_find, synth_bpw_known, synth_plan_make, synth_groups, synth_group_rows;
          synth_plan_adapter.
   owns:  the plan's list of tensors. */
#ifndef DEMO_CLI_SYNTH_PLAN_H
#define DEMO_CLI_SYNTH_PLAN_H

#include "synth_shapes.h"

#include <stddef.h>

#define SYNTH_TARGETS 7u /* q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj */
#define SYNTH_MIX_PARTS 3
#define SYNTH_GROUPS_MAX 1024u /* 28,672 rows in groups of 32 are 896 */

typedef enum synth_format { SYNTH_EXL2, SYNTH_GPTQ, SYNTH_AWQ, SYNTH_DENSE, SYNTH_EXL3, SYNTH_FORMATS } synth_format;

typedef enum synth_codebook { SYNTH_MUL1, SYNTH_MCG, SYNTH_3INST, SYNTH_CODEBOOKS } synth_codebook; /* of EXL3 */

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
    SYNTH_NORMAL,    /* fp16, about normal: mean, deviation */
    SYNTH_SCALE_MAX, /* fp16 per group, so that weights have a deviation of about 0.02 */
    SYNTH_GROUPS,    /* u16 pairs (bits, first word row) */
    SYNTH_PERM,      /* a random permutation, i32 */
    SYNTH_CODES,     /* `bits` bits of each column hold `code`, one after the other */
    SYNTH_INDEX,     /* i32: row / `rows` */
    SYNTH_NUMBER     /* i32: `code` */
} synth_fill;

typedef struct synth_tensor {
    char name[80];
    const char *dtype;
    uint64_t shape[5]; /* 0: there are fewer dimensions */
    uint64_t bytes, seed;
    synth_fill fill;
    float mean, deviation; /* NORMAL */
    const synth_mix *mix;  /* SCALE_MAX, GROUPS */
    uint32_t rows;         /* SCALE_MAX, GROUPS, PERM: rows of the matrix; INDEX: rows of a group */
    uint32_t bits, code;   /* CODES; NUMBER: code */
} synth_tensor;

typedef struct synth_plan {
    synth_shape shape;
    synth_format format;
    synth_codebook codebook;
    double bpw;
    uint32_t rank;         /* of an adapter, which has no config of a model; 0: a model */
    synth_tensor *tensors; /* [count] in file order; free() it */
    uint32_t count, cap;
    uint64_t layer_bits, layer_weights, head_bits; /* with scales, groups and permutations */
    uint64_t token_bits;                           /* what a token reads of the layers: of experts, the active ones */
} synth_plan;

bool synth_format_find(const char *name, synth_format *out); /* exl2, gptq, awq, dense, exl3 */
const char *synth_format_name(synth_format format);
/* EXL2: 2.5, 3, 4, 4.5, 5, 6, 8; GPTQ: 2, 3, 4, 8; AWQ: 4; EXL3: 1 to 8, 1.5, 2.5, 3.5;
   dense: any, it is not used. */
bool synth_bpw_known(synth_format format, double bpw);
synth_plan synth_plan_make(const synth_shape *shape, synth_format format, synth_codebook codebook, double bpw,
                           uint32_t seed);
/* An adapter in peft's format, F16, for the matrices that bits of `targets` name: bit i is synth_targets[i]. */
extern const char *const synth_targets[SYNTH_TARGETS];
synth_plan synth_plan_adapter(const synth_shape *shape, uint32_t targets, uint32_t rank, uint32_t seed);
uint32_t synth_groups(const synth_mix *mix, uint32_t rows, synth_group groups[SYNTH_GROUPS_MAX]); /* their count */
uint32_t synth_group_rows(const synth_shape *shape); /* rows of a group of GPTQ and AWQ */

#endif
