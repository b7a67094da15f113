/* lora_match.h: which pairs of an adapter belong to which matrices of a model.
   takes: an adapter's pairs; the model's config.
   gives: exl2__lora_part, exl2__lora_unit; exl2__lora_matcher and exl2__lora_match_slice, which checks all of them.

   The parts of a fused matrix (q, k, v in one tensor) share A; their rows of B are cut as the base's rows are. */
#ifndef EXL2__LORA_MATCH_H
#define EXL2__LORA_MATCH_H

#include "../1_load/lora_files.h"
#include "units.h"

/* What an adapter adds to one part of a matrix: factor B A. pair NULL: nothing. */
typedef struct exl2__lora_part {
    const exl2__lora_pair *pair;
    exl2__matrix_view view; /* where the part's outputs lie in the rows of B */
    bool shares;            /* A is that of an earlier part of the matrix */
} exl2__lora_part;

EXL2__PRIVATE exl2_result exl2__lora_unit_check(exl2__ctx *c, const exl2__lora_pair *pair, uint64_t in, uint64_t out)
{
    bool a = pair->a->dims[1] == in, b = pair->b->dims[0] == out;
    const exl2__tensor *t = a ? pair->b : pair->a;
    return a && b ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has the shape [%llu, %llu], but this model's matrix "
                      "needs [%llu, %llu]", t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                      (unsigned long long)(a ? out : pair->rank), (unsigned long long)(a ? pair->rank : in));
}

/* Fills in parts [u->count] of a unit of a layer, and marks the pairs as used. */
EXL2__PRIVATE exl2_result exl2__lora_unit(exl2__ctx *c, const exl2__lora_files *f, const exl2__unit *u,
                                          exl2__lora_part parts[3])
{
    uint32_t own = 0;
    for (uint32_t i = 0; i < 3; i++) {
        parts[i] = (exl2__lora_part){ 0 };
        exl2__lora_pair *pair = i < u->count ? exl2__lora_files_find(f, u->keys[i]) : NULL;
        if (pair) {
            EXL2__TRY(exl2__lora_unit_check(c, pair, u->in, u->out[i]));
            parts[i].pair = pair;
            parts[i].view = (exl2__matrix_view){ 0, u->out[i], u->out[i], false, 0, 0 };
            own++;
        }
    }
    for (uint32_t i = 0; i < u->count && own == 0; i++) { /* beside pairs of single parts a fused one has no use */
        bool fused = u->fused[i][0] && u->source[i].stack == 0;
        exl2__lora_pair *pair = fused ? exl2__lora_files_find(f, u->fused[i]) : NULL;
        if (pair) {
            EXL2__TRY(exl2__lora_unit_check(c, pair, u->in, u->source[i].fused_rows));
            parts[i].pair = pair;
            parts[i].view = u->source[i].view;
            parts[i].shares = i > 0;
        }
    }
    return EXL2_OK;
}

/* A walk over all matrices of the layers. Zeroed: at its beginning. */
typedef struct exl2__lora_matcher {
    uint32_t unit, used; /* the next unit; the next pair that is checked for its use */
    uint32_t matrices;   /* pairs */
} exl2__lora_matcher;

/* Checks in slices that every pair has one matrix of the model, with its shape. */
EXL2__PRIVATE exl2_result exl2__lora_match_slice(exl2__ctx *c, const exl2__lora_files *f, const exl2__config *config,
                                                 exl2__lora_matcher *m, exl2__work *work)
{
    uint32_t units = exl2__unit_count(config, true);
    exl2__lora_part parts[3];
    exl2__unit u;
    for (; m->unit < units; m->unit++) {
        if (!exl2__work_spend(work, 3000)) {
            return EXL2_PENDING;
        }
        exl2__unit_make(config, m->unit, &u);
        if (!u.table) {
            EXL2__TRY(exl2__lora_unit(c, f, &u, parts));
        }
    }
    EXL2__TRY_DONE(exl2__lora_files_check_used(c, f, &m->used, work));
    m->matrices = f->count;
    return EXL2_OK;
}

#endif
