/* cpu_sample.h: the phase `sample`, the reference for every backend: samples a token from a row of logits, or computes
   log-probabilities.
   takes: logits [vocab] f32 (overwritten), an exl2__logit_row, scratch.
   gives: exl2__sample_row, exl2__sample_random.
   owns:  nothing; scratch and the array of alternatives belong to the caller. */
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
   8. the temperature, if it is applied last or is dynamic; XTC
   9. the token: the first id, ascending, at which the running sum of weights exceeds floor(random * sum / 2^64); with
      skew see exl2__sample_pick_skewed */

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

/* The most likely tokens, at most `wanted`, descending, ties by lowest id. */
EXL2__PRIVATE void exl2__sample_alternatives(exl2__sample_work *w, const exl2__sample_softmax *s, uint32_t wanted,
                                             exl2__logit_result *result)
{
    exl2__sample_first(w, s->top_key, exl2__min32(wanted, EXL2_ALTS_MAX));
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

/* ---- steps 0 to 2 ---- */

/* The logsumexp of a row in which at least one token is allowed. */
EXL2__PRIVATE double exl2__sample_logsumexp(exl2__sample_work *w, const float *logits, int32_t top_key)
{
    exl2__weight_curve curve = exl2__weight_curve_make(top_key, 1.0f);
    return (double)curve.top + exl2__weight_log(exl2__weight_sums(w->path, &curve, logits, w->vocab, w->block_sums));
}

/* Replaces logits by log p + (guidance - 1) (log p - log n), where n are the probabilities of row->negative. A token
   with probability 0 in p or in n becomes -infinity. (ExLlamaV2 computes NaN there.) */
EXL2__PRIVATE void exl2__sample_guidance(exl2__sample_work *w, float *logits, const exl2__logit_row *row)
{
    int32_t top = exl2__weight_maxima(w->path, logits, w->vocab, w->block_keys);
    int32_t other = exl2__weight_maxima(w->path, row->negative, w->vocab, w->block_keys);
    if (top == EXL2__WEIGHT_KEY_NONE || other == EXL2__WEIGHT_KEY_NONE) {
        return;
    }
    float sum = (float)exl2__sample_logsumexp(w, logits, top);
    float other_sum = (float)exl2__sample_logsumexp(w, row->negative, other), away = row->guidance - 1;
    for (uint32_t i = 0; i < w->vocab; i++) {
        float p = logits[i] - sum, n = row->negative[i] - other_sum;
        bool out = exl2__weight_key(logits[i]) == EXL2__WEIGHT_KEY_NONE
                || exl2__weight_key(row->negative[i]) == EXL2__WEIGHT_KEY_NONE;
        logits[i] = out ? exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE) : p + exl2__mul_float(away, p - n);
    }
}

EXL2__PRIVATE void exl2__sample_mask(float *logits, uint32_t vocab, const uint32_t *mask)
{
    float none = exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = mask[i / 32] >> (i & 31) & 1 ? logits[i] : none;
    }
}

/* Saves logits[token] before its first change. Returns true if this is the first. */
EXL2__PRIVATE bool exl2__sample_touch(exl2__sample_work *w, uint32_t token)
{
    uint32_t bit = 1u << (token & 31), *word = &w->touched[token / 32];
    bool first = !(*word & bit);
    if (first) {
        *word |= bit;
        w->raw[token] = w->logits[token];
    }
    return first;
}

/* Goes from the newest token of the history to the oldest. With a decay, penalties are full for one token more than the
   range, as in ExLlamaV2, and fade out for older tokens. The repeat penalty multiplies by the reciprocal, computed in
   double, so that backends and compilers cannot round a quotient differently. Tokens outside of the vocabulary are
   skipped. */
EXL2__PRIVATE void exl2__sample_penalize(exl2__sample_work *w, float *logits, const exl2__logit_row *row)
{
    const exl2__sampling *s = row->sampling;
    float repeat = s->repeat_penalty, inverse = (float)(1.0 / (double)repeat), share = 1;
    for (uint32_t j = 1; j <= row->history_count; j++) {
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

/* Steps 0 to 2. Returns the largest key. */
EXL2__PRIVATE int32_t exl2__sample_adjust(exl2__sample_work *w, float *logits, const exl2__logit_row *row,
                                          int32_t top_key)
{
    const exl2__sampling *s = row->sampling;
    bool penalty = row->history_count > 0 && (s->repeat_penalty != 1.0f || exl2__sample_is_penalized(s));
    memset(w->touched, 0, (size_t)exl2__div_up(w->vocab, 32) * sizeof *w->touched);
    if (row->mask) {
        exl2__sample_mask(logits, w->vocab, row->mask);
    }
    if (penalty) {
        exl2__sample_penalize(w, logits, row);
    }
    exl2__sample_add(w, logits, s->bias, s->bias_count);
    exl2__sample_add(w, logits, row->extras, row->extra_count);
    if (!penalty && s->bias_count + row->extra_count == 0 && !row->mask) {
        return top_key;
    }
    w->slope = 0;
    return exl2__weight_maxima(w->path, logits, w->vocab, w->block_keys);
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

/* Step 9 for a list. Returns an index into it. */
EXL2__PRIVATE uint32_t exl2__sample_pick_list(const exl2__sample_list *list, uint64_t random)
{
    uint64_t target = exl2__weight_scale(random, exl2__sample_list_sum(list)), running = 0;
    uint32_t i = 0;
    while ((running += list->weights[i]) <= target) {
        i++;
    }
    return i;
}

/* The sum that the prefix of top-p must reach; share: top_p * 2^64. */
static inline uint64_t exl2__sample_need(uint64_t sum, uint64_t share)
{
    return exl2__max64(1, exl2__weight_scale(sum, share));
}

/* Keeps the shortest prefix in order whose sum is at least `need`, which is at most the sum of the list. */
EXL2__PRIVATE void exl2__sample_keep_weight(exl2__sample_list *list, int32_t top_key, uint64_t need)
{
    exl2__sample_cut cut = exl2__sample_prefix(list->keys, list->weights, list->count, top_key, need);
    exl2__sample_keep_prefix(list, list->keys, cut, true);
}

/* Top-p and min-p over the whole row: searches the end of the prefix among ever smaller weights. The list becomes the
   prefix, or the tokens of at least `least_weight` if the prefix contains all of them. */
EXL2__PRIVATE void exl2__sample_nucleus(exl2__sample_work *w, const exl2__weight_curve *curve, uint64_t share,
                                        uint64_t least_weight)
{
    uint64_t need = exl2__sample_need(exl2__sample_sum(w, curve), share);
    for (int places = 10;; places += 10) {
        uint64_t weight = places < EXL2__WEIGHT_ONE_LOG2 ? EXL2__WEIGHT_ONE >> places : 1;
        weight = exl2__max64(weight, least_weight);
        exl2__sample_collect(w, exl2__weight_least_key(curve, weight));
        if (exl2__sample_weigh(w, curve) >= need) {
            exl2__sample_keep_weight(&w->list, curve->top_key, need);
            return;
        }
        if (weight == exl2__max64(least_weight, 1)) {
            return;
        }
    }
}

/* Steps 5 and 6, and removes weights below `least_weight` (0: only those that top-p removes). The list becomes the
   remaining tokens, with their weights; the top token always remains. */
EXL2__PRIVATE void exl2__sample_filter(exl2__sample_work *w, const exl2__sampling *s, const exl2__weight_curve *curve,
                                       uint64_t least_weight)
{
    /* Powers of two scale floats exactly, so the threshold is the setting's own, rounded down. */
    uint64_t share = s->top_p < 1 ? (uint64_t)(s->top_p * 4294967296.0f) << 32 : 0;
    if (s->top_k == 0 && s->top_p < 1 && !curve->square) {
        exl2__sample_nucleus(w, curve, share, exl2__max64(least_weight, 1));
        return;
    }
    if (s->top_k == 0) {
        uint64_t least = s->top_p < 1 ? 1 : least_weight;
        exl2__sample_collect(w, least ? exl2__weight_least_key(curve, least) : EXL2__WEIGHT_KEY_LEAST);
    } else {
        exl2__sample_first(w, curve->top_key, s->top_k);
    }
    uint64_t sum = exl2__sample_weigh(w, curve);
    if (s->top_p < 1) {
        exl2__sample_keep_weight(&w->list, curve->top_key, exl2__sample_need(sum, share));
    }
    if (s->top_k > 0 || s->top_p < 1) {
        exl2__sample_keep_least(&w->list, least_weight);
    }
}

/* Steps 4 to 8. The list becomes the tokens to sample from. */
EXL2__PRIVATE void exl2__sample_survivors(exl2__sample_work *w, const exl2__sampling *s, int32_t top_key)
{
    bool shaped = exl2__sample_is_shaped(s);
    float temperature = s->temperature_last ? 1 : s->temperature;
    exl2__weight_curve curve = s->smoothing > 0 ? exl2__weight_curve_smooth(top_key, temperature, s->smoothing)
                                                : exl2__weight_curve_make(top_key, temperature);
    bool min_p = s->min_p > 0 && s->top_a <= 0; /* top-a needs the tokens that min-p removes */
    bool later = s->temperature_last || s->dynamic_max > s->dynamic_min; /* a weight of 0 may become larger */
    uint64_t least_weight = min_p ? exl2__max64(1, (uint64_t)(s->min_p * 1099511627776.0f)) : later ? 0 : 1;
    exl2__sample_filter(w, s, &curve, least_weight);
    if (shaped) {
        exl2__sample_shape(w, s, &curve);
    }
}

/* Steps 3 to 9. The block maxima must be those of the adjusted row; top_key is above EXL2__WEIGHT_KEY_NONE. */
EXL2__PRIVATE exl2_token exl2__sample_pick(exl2__sample_work *w, const exl2__logit_row *row, int32_t top_key,
                                           float *surprise)
{
    const exl2__sampling *s = row->sampling;
    bool skewed = s->skew > 0 || s->skew < 0;
    *surprise = 0;
    if (s->greedy) {
        return exl2__sample_greedy(w, top_key);
    }
    uint64_t random = exl2__sample_random(s->seed, row->sample_position, row->attempt);
    if (s->top_k == 0 && s->top_p >= 1 && s->min_p <= 0 && !exl2__sample_is_shaped(s)) {
        exl2__weight_curve curve = exl2__weight_curve_make(top_key, s->temperature);
        return exl2__sample_pick_all(w, &curve, random);
    }
    exl2__sample_survivors(w, s, top_key);
    uint32_t place = skewed ? exl2__sample_pick_skewed(w, s->skew, random) : exl2__sample_pick_list(&w->list, random);
    if (s->mirostat_tau > 0) {
        double sum = (double)exl2__sample_list_sum(&w->list);
        *surprise = (float)(log2(sum) - log2((double)w->list.weights[place]));
    }
    return (exl2_token)w->list.ids[place];
}

/* ---- the phase ---- */

/* Fills *result from one row of logits. result->alts is [EXL2_ALTS_MAX]; scratch is aligned to 64 bytes. The token is
   -1 if no token is allowed, before or after penalties and biases. Fails only if vocab is greater than 2^24. */
EXL2__PRIVATE exl2_result exl2__sample_row(exl2_cpu_path path, float *logits, uint32_t vocab,
                                           const exl2__logit_row *row, void *scratch, exl2__logit_result *result)
{
    exl2__arena arena = { (uint8_t *)scratch, exl2__sample_scratch_bytes(vocab), 0, EXL2_MEM_SCRATCH };
    exl2__sample_work w;
    if (vocab > 1u << 24) {
        return EXL2_ERR_UNSUPPORTED; /* sums of weights could overflow 64 bits */
    }
    exl2__sample_layout(&arena, vocab, &w);
    w.path = path;
    w.logits = logits;
    result->token = -1;
    result->alt_count = 0;
    result->surprise = 0;
    result->logprob = result->logsumexp = exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    exl2__sample_softmax raw;
    if (row->negative) {
        exl2__sample_guidance(&w, logits, row);
    }
    raw.top_key = exl2__weight_maxima(path, logits, vocab, w.block_keys);
    if (raw.top_key == EXL2__WEIGHT_KEY_NONE) {
        return EXL2_OK;
    }
    exl2__weight_curve curve = exl2__weight_curve_make(raw.top_key, 1.0f);
    raw.top = curve.top;
    raw.log_sum = exl2__weight_log(exl2__sample_sum(&w, &curve));
    result->logsumexp = raw.top_key == EXL2__WEIGHT_KEY_INF ? raw.top : (float)((double)raw.top + raw.log_sum);
    if (row->alts > 0) {
        exl2__sample_alternatives(&w, &raw, row->alts, result);
    }
    if (row->use == EXL2__LOGIT_SCORE) {
        result->token = row->target;
        if ((uint32_t)row->target < vocab) {
            result->logprob = exl2__sample_logprob(&raw, logits[row->target]);
        }
        return EXL2_OK;
    }
    int32_t top_key = exl2__sample_adjust(&w, logits, row, raw.top_key);
    if (top_key == EXL2__WEIGHT_KEY_NONE) {
        return EXL2_OK;
    }
    result->token = exl2__sample_pick(&w, row, top_key, &result->surprise);
    uint32_t token = (uint32_t)result->token;
    bool touched = w.touched[token / 32] >> (token & 31) & 1;
    result->logprob = exl2__sample_logprob(&raw, touched ? w.raw[token] : logits[token]);
    return EXL2_OK;
}

#endif
