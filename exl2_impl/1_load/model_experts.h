/* model_experts.h: the numbers of a model's experts, as config.json gives them and as backends use them.
   takes: nothing.
   gives: exl2__experts, exl2__experts_any, EXL2__EXPERTS_MAX, EXL2__EXPERTS_ALL_MAX, EXL2__EXPERTS_GROUPS_MAX. */
#ifndef EXL2__MODEL_EXPERTS_H
#define EXL2__MODEL_EXPERTS_H

#include "../0_base/config.h"

#define EXL2__EXPERTS_MAX 4096u
#define EXL2__EXPERTS_ALL_MAX (1u << 17) /* of all layers: the time to read headers grows with it */
#define EXL2__EXPERTS_GROUPS_MAX 256u

/* The experts of a layer. A row uses the `active` ones with the highest scores (ties: the lowest number); to choose
   them, a bias may be added to the scores. Its result is the sum of their results, each times a weight: its score,
   divided by the sum of the chosen scores if `renormalized`, times `scale`. */
typedef struct exl2__experts {
    uint32_t count, active;         /* count 0: no layer has experts */
    uint32_t inter;                 /* width of an expert */
    uint32_t shared_inter;          /* width of the expert that every row uses; 0: there is none */
    bool shared_switch;             /* the weight of that expert is the sigmoid of a number per row, else 1 */
    bool sigmoid;                   /* scores are sigmoids of the router's logits, else their softmax */
    bool renormalized;
    uint32_t groups, groups_active; /* experts are chosen from the groups_active groups, of `groups` runs of experts,
                                       whose two best scores have the largest sums */
    float scale;
} exl2__experts;

/* Do some layers have experts? Never in a build without them, which leaves out what depends on it. */
static inline bool exl2__experts_any(const exl2__experts *e)
{
#ifdef EXL2_NO_MOE
    (void)e;
    return false;
#else
    return e->count > 0;
#endif
}

#endif
