/* dry.h: the DRY sampler ("don't repeat yourself"): penalties for tokens that would continue a repetition.
   takes: a history, settings.
   gives: exl2__dry, exl2__dry_find. */
#ifndef EXL2__DRY_H
#define EXL2__DRY_H

#include "../2_graph/phases.h"

#include <math.h>

#define EXL2__DRY_MAX 512          /* tokens with a penalty; if there are more, those with the most recent matches */
#define EXL2__DRY_PENALTY 1000000 /* the largest penalty */

/* This is the common definition, which depends on the history alone: if a token followed an earlier occurrence of the
   last m tokens, m >= allowed, its penalty is multiplier * base^(m - allowed), with the longest such m. ExLlamaV2 0.3.2
   differs (docs/generation.md, "DRY"): it looks only at the tokens that followed the longest match and counts how often
   each did; it never finds the repetition of a single token; and it keeps state in the settings, which becomes wrong
   when a history is rewound. */
typedef struct exl2__dry { /* multiplier 0: off */
    float multiplier, base;
    uint32_t allowed, range, match_max;             /* tokens; range 0 = the whole history */
    bool (*breaks)(const void *user, exl2_token t); /* is it a sequence breaker? Matches do not extend over breakers,
                                                       which have no penalty; NULL = there are none */
    const void *user;
} exl2__dry;

/* The longest possible match: the number of last tokens that contain no breaker, at most match_max. */
EXL2__PRIVATE uint32_t exl2__dry_reach(const exl2__dry *d, const exl2_token *history, uint32_t count)
{
    uint32_t reach = 0;
    while (reach < d->match_max && reach < count && !(d->breaks && d->breaks(d->user, history[count - 1 - reach]))) {
        reach++;
    }
    return reach;
}

/* out [EXL2__DRY_MAX]: the penalties, as negative biases. Returns their number. */
EXL2__PRIVATE uint32_t exl2__dry_find(const exl2__dry *d, const exl2_token *history, uint32_t count, exl2_bias *out)
{
    uint16_t slots[2 * EXL2__DRY_MAX] = { 0 }; /* hash table: index into out + 1, by token */
    uint32_t found = 0;
    if (d->range > 0 && count > d->range) {
        history += count - d->range;
        count = d->range;
    }
    uint32_t reach = exl2__dry_reach(d, history, count);
    for (uint32_t i = count - 1; i-- > 0 && reach >= d->allowed;) {
        uint32_t same = 0;
        while (same < reach && same <= i && history[i - same] == history[count - 1 - same]) {
            same++;
        }
        exl2_token next = history[i + 1];
        if (same < d->allowed) {
            continue;
        }
        uint32_t slot = (uint32_t)next * 0x9E3779B1u >> 22; /* 10 bits: EXL2__COUNT(slots) */
        while (slots[slot] && out[slots[slot] - 1].token != next) {
            slot = (slot + 1) % (uint32_t)EXL2__COUNT(slots);
        }
        if (!slots[slot]) {
            if (found == EXL2__DRY_MAX || (d->breaks && d->breaks(d->user, next))) {
                continue;
            }
            out[found] = (exl2_bias){ next, 0 };
            slots[slot] = (uint16_t)++found;
        }
        double penalty = (double)d->multiplier * pow((double)d->base, (double)(same - d->allowed));
        float add = -(float)(penalty < EXL2__DRY_PENALTY ? penalty : EXL2__DRY_PENALTY);
        exl2_bias *bias = &out[slots[slot] - 1];
        bias->add = add < bias->add ? add : bias->add;
    }
    return found;
}

#endif
