/* cpu_sample_shape.h: the less common filters: top-a, tail-free, typical, mirostat, a temperature applied last or
   dynamic, XTC, skew.
   takes: a list of candidates with their weights.
   gives: exl2__sample_is_shaped, exl2__sample_is_penalized, exl2__sample_shape, exl2__sample_pick_skewed. */
#ifndef EXL2__CPU_SAMPLE_SHAPE_H
#define EXL2__CPU_SAMPLE_SHAPE_H

#include "../../2_graph/phases.h"
#include "cpu_sample_list.h"

/* Differences to ExLlamaV2 0.3.2, which has defects in some filters; here each filter does what its literature says
   (docs/generation.md, "Sampling: differences to ExLlamaV2"):
   - a temperature of 0 applied last is greedy (there: division by zero)
   - smoothing divides by the temperature once (there: once per row)
   - top-p and typical keep the token that reaches the sum; typical sorts by |-ln p - H| (there: by p + ln p)
   - top-a is at most 1 and keeps the most likely token
   - XTC works on lists in any order, and of equal probabilities removes the lowest ids first
   - tokens of weight 0 are never sampled, and the whole range of the random number is used */

/* Is any setting on that this file implements? */
static inline bool exl2__sample_is_shaped(const exl2__sampling *s)
{
    return s->temperature_last || s->smoothing > 0 || s->top_a > 0 || s->tail_free > 0 || s->typical > 0
        || s->skew > 0 || s->skew < 0 || s->dynamic_max > s->dynamic_min || s->xtc_probability > 0
        || exl2__sampling_has_state(s);
}

/* Are there penalties other than a repeat penalty without decay? */
static inline bool exl2__sample_is_penalized(const exl2__sampling *s)
{
    return s->frequency_penalty > 0 || s->frequency_penalty < 0 || s->presence_penalty > 0 || s->presence_penalty < 0
        || (s->penalty_decay > 0 && s->repeat_penalty != 1.0f);
}

EXL2__PRIVATE uint64_t exl2__sample_list_sum(const exl2__sample_list *list)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        sum += list->weights[i];
    }
    return sum;
}

static inline void exl2__sample_copy(exl2__sample_list *list, uint32_t to, uint32_t from)
{
    list->ids[to] = list->ids[from];
    list->keys[to] = list->keys[from];
    list->weights[to] = list->weights[from];
}

/* Of tokens [begin, end), moves those whose weight is at least `least` behind the first `kept` ones. Returns how many
   are kept now; after the last part that is the length of the list. */
EXL2__PRIVATE uint32_t exl2__sample_keep_least_part(exl2__sample_list *list, uint64_t least, uint32_t begin,
                                                    uint32_t end, uint32_t kept)
{
    for (uint32_t i = begin; i < end; i++) {
        exl2__sample_copy(list, kept, i); /* overwritten by the next token if this one is removed */
        kept += list->weights[i] >= least;
    }
    return kept;
}

/* Keeps tokens whose weight is at least `least`. */
EXL2__PRIVATE void exl2__sample_keep_least(exl2__sample_list *list, uint64_t least)
{
    list->count = exl2__sample_keep_least_part(list, least, 0, list->count, 0);
}

/* Index of the most likely token, of equal ones that with the lowest id. count > 0. */
EXL2__PRIVATE uint32_t exl2__sample_best(const exl2__sample_list *list)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < list->count; i++) {
        best = list->keys[i] > list->keys[best] ? i : best;
    }
    return best;
}

/* Keeps tokens whose weight is at least `weight`, and always the most likely one. */
EXL2__PRIVATE void exl2__sample_keep_share(exl2__sample_list *list, double weight)
{
    uint64_t most = list->weights[exl2__sample_best(list)];
    exl2__sample_keep_least(list, weight < (double)most ? exl2__max64((uint64_t)weight, 1) : most);
}

/* Tail-free sampling. With the tokens in order of weight, |w[i] - 2 w[i+1] + w[i+2]| is the curvature after token i. It
   keeps one token more than those whose curvatures sum up to at most z of the total. Tokens with a probability below
   1e-8 are removed and not counted. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_tail_free(exl2__sample_work *w, float z)
{
    exl2__sample_list *list = &w->list;
    if (list->count >= 3) {
        exl2__sample_keep_least(list, exl2__max64(1, (uint64_t)(1e-8 * (double)exl2__sample_list_sum(list))));
    }
    if (list->count < 3) {
        return;
    }
    const uint32_t *order = exl2__sample_sort(w, list->keys, list->keys[exl2__sample_best(list)]);
    uint64_t sums[2] = { 0, 0 }; /* total curvature; the part of it that is at most z */
    uint32_t last = 0;
    for (int pass = 0; pass < 2; pass++) {
        double limit = pass ? (double)z * (double)sums[0] : 0;
        for (uint32_t i = 0; i + 2 < list->count; i++) {
            uint64_t ends = list->weights[order[i]] + list->weights[order[i + 2]];
            uint64_t middle = 2 * list->weights[order[i + 1]];
            sums[pass] += ends > middle ? ends - middle : middle - ends;
            if (pass && (double)sums[1] > limit) {
                break;
            }
            last = i + 1;
        }
        if (sums[0] == 0) {
            return;
        }
        last = pass ? last : 0;
    }
    int32_t key = list->keys[order[last]];
    uint32_t place = order[last], kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        bool in = list->keys[i] > key || (list->keys[i] == key && i <= place);
        exl2__sample_copy(list, kept, i);
        kept += in;
    }
    list->count = kept;
}

/* -log2 of the token's weight relative to the top, from its logit, in steps of 2^-25. */
static inline uint32_t exl2__sample_steps(const exl2__sample_work *w, const exl2__weight_curve *curve, uint32_t i)
{
    return exl2__weight_steps(curve, w->logits[w->list.ids[i]]);
}

/* The mean of the steps, by weight. -log2 p differs from the steps by the same constant for all tokens, so the mean can
   be used in place of the entropy, and no logarithm is needed. */
EXL2__PRIVATE double exl2__sample_mean_steps(const exl2__sample_work *w, const exl2__weight_curve *curve, uint64_t *sum)
{
    double mean = 0;
    *sum = 0;
    for (uint32_t i = 0; i < w->list.count; i++) {
        mean += exl2__mul_double((double)w->list.weights[i], (double)exl2__sample_steps(w, curve, i));
        *sum += w->list.weights[i];
    }
    return mean / (double)*sum;
}

/* Typical sampling: keeps the tokens whose -log p is nearest to the entropy, as few as make `share` of the sum; of
   equally near ones the lowest id first. */
EXL2__PRIVATE void exl2__sample_typical(exl2__sample_work *w, const exl2__weight_curve *curve, float share)
{
    exl2__sample_list *list = &w->list;
    uint64_t sum;
    double mean = exl2__sample_mean_steps(w, curve, &sum);
    int32_t *order = (int32_t *)(void *)w->order[0];
    for (uint32_t i = 0; i < list->count; i++) {
        double away = (double)exl2__sample_steps(w, curve, i) - mean;
        order[i] = -(int32_t)(away < 0 ? -away : away);
    }
    uint64_t need = exl2__min64(sum, exl2__max64(1, (uint64_t)((double)share * (double)sum)));
    exl2__sample_cut cut = exl2__sample_prefix(order, list->weights, list->count, 0, need);
    exl2__sample_keep_prefix(list, order, cut, true);
}

/* The dynamic temperature: min + (max - min) * (entropy / largest possible entropy)^exponent */
EXL2__PRIVATE double exl2__sample_dynamic(const exl2__sample_work *w, const exl2__weight_curve *curve,
                                          const exl2__sampling *s)
{
    uint64_t sum;
    double mean = exl2__sample_mean_steps(w, curve, &sum); /* ln(sum / 2^40) + mean * ln 2 = entropy */
    double ln2 = 0.69314718055994531 / (double)(1u << EXL2__WEIGHT_STEP_LOG2); /* of one step */
    double entropy = exl2__weight_log(sum) + exl2__mul_double(mean, ln2);
    double part = entropy / log((double)w->list.count);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    double range = (double)s->dynamic_max - (double)s->dynamic_min;
    return (double)s->dynamic_min + exl2__mul_double(range, pow(part, (double)s->dynamic_exponent));
}

/* Weights become p^(1 / T), scaled so that the most likely token of the list has 2^40. (It need not be the most likely
   token of the row.) A temperature below 0.01 counts as 0.01. A weight of 0 may become larger, except with smoothing,
   where distant tokens have the weight 0 at every temperature. */
EXL2__PRIVATE void exl2__sample_reshape(exl2__sample_work *w, const exl2__weight_curve *curve, double temperature)
{
    double inverse = 1 / (temperature < 0.01 ? 0.01 : temperature);
    uint32_t best = exl2__sample_best(&w->list), least = exl2__sample_steps(w, curve, best);
    exl2__weight_curve now = *curve;
    now.top_key = w->list.keys[best];
    now.top = exl2__weight_key_logit(now.top_key);
    now.slope = (float)((double)curve->slope * inverse);
    if (!curve->square) {
        exl2__sample_weigh(w, &now, 0, w->list.count);
        return;
    }
    for (uint32_t i = 0; i < w->list.count; i++) {
        uint32_t was = exl2__sample_steps(w, curve, i);
        double steps = (double)(was - least) * inverse;
        bool out = was == EXL2__WEIGHT_STEPS_MAX || steps >= EXL2__WEIGHT_STEPS_MAX;
        w->list.weights[i] = exl2__weight_exp2(out ? EXL2__WEIGHT_STEPS_MAX : (uint32_t)steps);
    }
}

/* XTC: with probability q, all tokens at or above the threshold are removed, except the least likely of them and those
   that xtc_keeps excludes. Here no random choice is made for that: the weights become those of the mixture of both
   cases, which gives each token the same probability. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_xtc(exl2__sample_list *list, const exl2__sampling *s)
{
    double sum = (double)exl2__sample_list_sum(list), least = (double)s->xtc_threshold * sum, gone = 0;
    uint32_t eligible = 0, last = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        double q = (double)s->xtc_probability, rest = sum - gone;
        double factor = (1 - q) * rest / (rest + exl2__mul_double(q, gone));
        for (uint32_t i = 0; i < list->count; i++) {
            double weight = (double)list->weights[i];
            if (weight < least || (s->xtc_keeps && s->xtc_keeps(s->xtc_user, (exl2_token)list->ids[i]))) {
                continue;
            }
            if (pass == 0) {
                last = eligible == 0 || list->weights[i] <= list->weights[last] ? i : last;
                gone += weight;
                eligible++;
            } else if (i != last) {
                list->weights[i] = (uint64_t)(weight * factor);
            }
        }
        if (eligible < 2) {
            return;
        }
        gone -= pass ? 0 : (double)list->weights[last];
    }
}

/* Steps 7 and 8. The list is not empty before, and not after. */
EXL2__PRIVATE void exl2__sample_shape(exl2__sample_work *w, const exl2__sampling *s, const exl2__weight_curve *curve)
{
    exl2__sample_list *list = &w->list;
    if (s->top_a > 0) { /* p >= a pmax^2 */
        double most = (double)list->weights[exl2__sample_best(list)];
        exl2__sample_keep_share(list, (double)s->top_a * most * most / (double)exl2__sample_list_sum(list));
        exl2__sample_keep_least(list, exl2__max64(1, (uint64_t)(s->min_p * 1099511627776.0f)));
    }
    if (s->tail_free > 0) {
        exl2__sample_tail_free(w, s->tail_free);
    }
    if (s->typical > 0 && list->count > 1) {
        exl2__sample_typical(w, curve, s->typical);
    }
    if (s->mirostat_tau > 0) { /* p >= 2^-mu */
        exl2__sample_keep_share(list, exp2(-(double)s->state) * (double)exl2__sample_list_sum(list));
    }
    if (list->count > 1 && s->dynamic_max > s->dynamic_min) {
        exl2__sample_reshape(w, curve, exl2__sample_dynamic(w, curve, s));
    } else if (list->count > 1 && s->temperature_last) {
        exl2__sample_reshape(w, curve, (double)s->temperature);
    }
    if (s->xtc_probability > 0) {
        exl2__sample_xtc(list, s);
    }
}

/* Step 9 with skew: goes through the tokens from the most likely to the least likely, and uses u^exp(-skew) in place of
   the random number u of 0..1. Weights that are equal as floats are in order of id. */
EXL2__COLD
EXL2__PRIVATE uint32_t exl2__sample_pick_skewed(exl2__sample_work *w, float skew, uint64_t random)
{
    exl2__sample_list *list = &w->list;
    int32_t top_key = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        list->keys[i] = exl2__weight_key((float)list->weights[i]);
        top_key = list->keys[i] > top_key ? list->keys[i] : top_key;
    }
    const uint32_t *order = exl2__sample_sort(w, list->keys, top_key);
    double u = pow((double)(random >> 11) * 0x1p-53, exp(-(double)skew));
    uint64_t sum = exl2__sample_list_sum(list), running = 0;
    uint64_t target = exl2__min64((uint64_t)(u * (double)sum), sum - 1);
    uint32_t i = 0;
    while ((running += list->weights[order[i]]) <= target) {
        i++;
    }
    return order[i];
}

#endif
