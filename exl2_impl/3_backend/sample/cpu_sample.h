/* cpu_sample.h: what the phase `sample` computes, the reference for every backend: a token from a row of logits, or
   log-probabilities.
   takes: logits [vocab] f32 (overwritten), an exl2__logit_row, scratch.
   gives: exl2__sample_random, exl2__sample_guide; what cpu_sample_run.h does in steps.
   owns:  nothing. */
#ifndef EXL2__CPU_SAMPLE_H
#define EXL2__CPU_SAMPLE_H

#include "cpu_sample_shape.h"

/* The steps by which a token is sampled from logits x. (With guidance, x combines two rows.) "In order" always means:
   logit descending, then id ascending.
   0. mask: the logit of a token that is not in the mask becomes -infinity
   1. penalties: for each distinct token of the history once x * (1 / r) if x > 0, else x * r, and x - presence; for
      each of its occurrences x - frequency
   2. biases: x + add, in the order of the list; then the row's own list
   3. greedy: the first token in order. Else:
   4. weights: 2^40 * exp((x - top) / T), with T = 1 if the temperature is applied last; with smoothing
      2^40 * exp(-f (x - top)^2 / T). NaN and -infinity have the weight 0. If a logit is +infinity, all tokens with
      smaller logits have the weight 0
   5. top-k: the first k tokens in order
   6. top-p: the shortest prefix in order whose sum is at least floor(top_p * sum), and at least one token
   7. top-a; min-p: weights of at least floor(min_p * 2^40); tail-free; typical; mirostat
   8. the temperature, if it is applied last or is dynamic; XTC; adaptive-p
   9. the token: the first id, ascending, at which the running sum of weights exceeds floor(random * sum / 2^64); with
      skew from the most likely token to the least likely one, see EXL2__SHAPE_SKEW_KEYS */

/* Philox-4x32-10 (Salmon et al., 2011). */
static inline void exl2__sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)0xD2511F53u * x0, odd = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(odd >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)odd;
        x2 = (uint32_t)(even >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)even;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* The random number for the token at an absolute position. Key: the seed, low word first. Counter: the position, low
   word first; attempt; 0. Result: the first two words of the block, low word first. */
static inline uint64_t exl2__sample_random(uint64_t seed, uint64_t position, uint32_t attempt)
{
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t counter[4] = { (uint32_t)position, (uint32_t)(position >> 32), attempt, 0 }, out[4];
    exl2__sample_philox(counter, key, out);
    return out[0] | (uint64_t)out[1] << 32;
}

/* ---- the raw softmax ---- */

typedef struct exl2__sample_softmax {
    int32_t top_key;
    float top;
    double log_sum; /* logsumexp - top */
} exl2__sample_softmax;

EXL2__PRIVATE float exl2__sample_logprob(const exl2__sample_softmax *s, float logit)
{
    int32_t key = exl2__weight_key(logit);
    if (key == EXL2__WEIGHT_KEY_NONE || (s->top_key == EXL2__WEIGHT_KEY_INF && key != s->top_key)) {
        return exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    }
    double below = key == s->top_key ? 0.0 : (double)logit - (double)s->top; /* avoids infinity - infinity */
    return (float)(below - s->log_sum);
}

/* The alternatives: the tokens of the list, at most EXL2_ALTS_MAX, descending, ties by lowest id. */
EXL2__PRIVATE void exl2__sample_alternatives(exl2__sample_work *w, const exl2__sample_softmax *s,
                                             exl2__logit_result *result)
{
    exl2__sample_list *list = &w->list;
    for (uint32_t i = 0; i < list->count; i++) { /* insertion sort: stable, at most EXL2_ALTS_MAX */
        int32_t key = list->keys[i];
        uint32_t id = list->ids[i], at = i;
        for (; at > 0 && list->keys[at - 1] < key; at--) {
            list->keys[at] = list->keys[at - 1];
            list->ids[at] = list->ids[at - 1];
        }
        list->keys[at] = key;
        list->ids[at] = id;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        result->alts[i].token = (exl2_token)list->ids[i];
        result->alts[i].logprob = exl2__sample_logprob(s, w->logits[list->ids[i]]);
    }
    result->alt_count = list->count;
}

/* ---- guidance; steps 0 to 2 ---- */

/* Of logits [begin, end): log p + (guidance - 1) (log p - log n), where n are the probabilities of row->negative. `sum`
   and `other_sum` are the logsumexp of both rows. A token with probability 0 in p or in n becomes -infinity. (ExLlamaV2
   computes NaN there.) */
EXL2__PRIVATE void exl2__sample_guide(float *logits, const exl2__logit_row *row, float sum, float other_sum,
                                      uint32_t begin, uint32_t end)
{
    float away = row->guidance - 1;
    const float *negative = row->negative;
    for (uint32_t i = begin; i < end; i++) {
        float p = logits[i] - sum, n = negative[i] - other_sum;
        bool out = exl2__weight_key(logits[i]) == EXL2__WEIGHT_KEY_NONE
                || exl2__weight_key(negative[i]) == EXL2__WEIGHT_KEY_NONE;
        logits[i] = out ? exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE) : p + exl2__mul_float(away, p - n);
    }
}

EXL2__PRIVATE void exl2__sample_mask(float *logits, const uint32_t *mask, uint32_t begin, uint32_t end)
{
    float none = exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    for (uint32_t i = begin; i < end; i++) {
        logits[i] = mask[i / 32] >> (i & 31) & 1 ? logits[i] : none;
    }
}

/* Goes from the newest token of the history to the oldest. With a decay, penalties are full for one token more than the
   range, as in ExLlamaV2, and fade out for older tokens. The repeat penalty multiplies by the reciprocal, computed in
   double, so that backends and compilers cannot round a quotient differently. Tokens outside of the vocabulary are
   skipped. Of the tokens so ordered, [begin, end). */
EXL2__PRIVATE void exl2__sample_penalize(exl2__sample_work *w, float *logits, const exl2__logit_row *row,
                                         uint32_t begin, uint32_t end)
{
    const exl2__sampling *s = row->sampling;
    float repeat = s->repeat_penalty, inverse = (float)(1.0 / (double)repeat), share = 1;
    for (uint32_t j = begin + 1; j <= end; j++) {
        uint32_t token = (uint32_t)row->history[row->history_count - j];
        if (token >= w->vocab) {
            continue;
        }
        if (s->penalty_decay > 0 && j > s->penalty_range + 1) {
            share = 1 - (float)(j - s->penalty_range - 1) / (float)s->penalty_decay;
            repeat = 1 + exl2__mul_float(s->repeat_penalty - 1, share);
            inverse = (float)(1.0 / (double)repeat);
        }
        if (exl2__sample_touch(w, token)) {
            logits[token] *= exl2__weight_key(logits[token]) > 0 ? inverse : repeat;
            logits[token] -= exl2__mul_float(s->presence_penalty, share);
        }
        logits[token] -= exl2__mul_float(s->frequency_penalty, share);
    }
}

EXL2__PRIVATE void exl2__sample_add(exl2__sample_work *w, float *logits, const exl2_bias *bias, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = (uint32_t)bias[i].token;
        if (token < w->vocab) {
            exl2__sample_touch(w, token);
            logits[token] += bias[i].add;
        }
    }
}

/* ---- steps 3 to 9 ---- */

EXL2__PRIVATE exl2_token exl2__sample_greedy(const exl2__sample_work *w, int32_t top_key)
{
    uint32_t block = 0;
    while (w->block_keys[block] != top_key) {
        block++;
    }
    uint32_t id = block * EXL2__WEIGHT_BLOCK;
    while (exl2__weight_key(w->logits[id]) != top_key) {
        id++;
    }
    return (exl2_token)id;
}

EXL2__PRIVATE exl2_token exl2__sample_pick_all(exl2__sample_work *w, const exl2__weight_curve *curve, uint64_t random)
{
    uint64_t target = exl2__weight_scale(random, exl2__sample_sum(w, curve)), running = 0;
    uint32_t block = 0;
    while (running + w->block_sums[block] <= target) {
        running += w->block_sums[block++];
    }
    uint32_t id = block * EXL2__WEIGHT_BLOCK;
    while ((running += exl2__weight_of(curve, w->logits[id])) <= target) {
        id++;
    }
    return (exl2_token)id;
}

/* Step 9 for a list, of tokens [begin, end) of it, or of `order`: goes on with the running sum, up to the token at
   which it exceeds `target`. Returns its place, or `end` if no token of these is it. */
EXL2__PRIVATE uint32_t exl2__sample_find(const exl2__sample_list *list, const uint32_t *order, uint64_t target,
                                         uint32_t begin, uint32_t end, uint64_t *running)
{
    uint32_t i = begin;
    while (i < end && (*running += list->weights[order ? order[i] : i]) <= target) {
        i++;
    }
    return i;
}

/* The sum that the prefix of top-p must reach; share: top_p * 2^64. */
static inline uint64_t exl2__sample_need(uint64_t sum, uint64_t share)
{
    return exl2__max64(1, exl2__weight_scale(sum, share));
}

#endif
