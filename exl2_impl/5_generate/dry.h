/* dry.h: DRY, the penalty on going on with what the history has already said: which tokens would, and what they pay.
   takes: a history, settings.
   gives: exl2__dry, exl2__dry_find.
   owns:  nothing. */
#ifndef EXL2__DRY_H
#define EXL2__DRY_H

#include "../2_graph/phases.h"

#include <math.h>

#define EXL2__DRY_MAX 512      /* tokens that pay; of more, those whose matches are newest */
#define EXL2__DRY_MOST 1000000 /* no token pays more */

/* ExLlamaV2 0.3.2 differs: it looks only at what followed the longest match and counts how often it did, never finds
   the loop of a single token (spec 17, defect 22), and keeps its state in the settings, which breaks when a history is
   rewound (8). This is the common definition, from the history alone: a token that followed an earlier occurrence of
   the last m tokens, m >= allowed, pays multiplier * base^(m - allowed) for the longest such m. */
typedef struct exl2__dry { /* multiplier 0: off */
    float multiplier, base;
    uint32_t allowed, range, match_max;             /* tokens; range 0 = the whole history */
    bool (*breaks)(const void *user, exl2_token t); /* matches end at such tokens, which never pay; NULL = none */
    const void *user;
} exl2__dry;

/* How many of the last tokens a match may have: none of them breaks. */
static uint32_t exl2__dry_reach(const exl2__dry *d, const exl2_token *history, uint32_t count)
{
    uint32_t reach = 0;
    while (reach < d->match_max && reach < count && !(d->breaks && d->breaks(d->user, history[count - 1 - reach]))) {
        reach++;
    }
    return reach;
}

/* out [EXL2__DRY_MAX]: what is added to the logits; returns how many tokens pay. */
static uint32_t exl2__dry_find(const exl2__dry *d, const exl2_token *history, uint32_t count, exl2_bias *out)
{
    uint16_t slots[2 * EXL2__DRY_MAX] = { 0 }; /* place in out and 1, by the token */
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
        double pays = (double)d->multiplier * pow((double)d->base, (double)(same - d->allowed));
        float add = -(float)(pays < EXL2__DRY_MOST ? pays : EXL2__DRY_MOST);
        exl2_bias *bias = &out[slots[slot] - 1];
        bias->add = add < bias->add ? add : bias->add;
    }
    return found;
}

#endif
