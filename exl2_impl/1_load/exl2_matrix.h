/* exl2_matrix.h: the tensors of one linear layer -> a checked description that a backend packs.
   takes: the tensor table, a layer key, the sizes that config.json asks for.
   gives: exl2__dtype, exl2__group, exl2__matrix_desc.
   owns:  nothing.
   next:  ../2_graph/phases.h */
#ifndef EXL2__EXL2_MATRIX_H
#define EXL2__EXL2_MATRIX_H

#include "../0_base/arena.h"

typedef enum exl2__dtype { EXL2__F16, EXL2__BF16, EXL2__F32 } exl2__dtype;

/* Rows [row, row + rows) of packed order, `bits` wide, from word row `word` of q_weight on (exl2-format 4.2). */
typedef struct exl2__group {
    uint32_t row, rows, word;
    uint32_t bits;
} exl2__group;

/* One linear layer y[out] = x[in] W (+ bias), as the loader has checked it. */
typedef struct exl2__matrix_desc {
    const char *name;             /* "model.layers.0.self_attn.q_proj", for messages */
    uint32_t in, out, out_stored; /* out_stored: out rounded up to 32; padded outputs are never used */
    bool dense;                   /* [out, in] of `dtype`; else EXL2 */
    exl2__dtype dtype;            /* dense only */
    uint32_t group_count, words;  /* EXL2: groups and word rows of q_weight */
    bool has_bias;
    /* Above is known from headers alone and is enough for matrix_bytes. Below is needed by matrix_make, and only
       until it returns. */
    const exl2__group *groups;    /* [group_count] */
    const uint32_t *scale_codes;  /* [group_count, out_stored / 8] q_scale as on disk */
    const uint16_t *scale_max;    /* [group_count] f16: fp16(q_scale_max * prescale / 256), exl2-format 4.5 */
    const uint32_t *inverse_perm; /* [in] q_invperm: packed row of each input feature */
    const float *bias;            /* [out] or NULL */
} exl2__matrix_desc;

#endif
