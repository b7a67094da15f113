/* cuda_sample.h: turns a row that wants logits into what the sampling kernels read, and their result into ours.
   takes: exl2__logit_row, addresses of its lists in device memory; exl2k_result.
   gives: exl2__cuda_sample_chunks, exl2__cuda_sample_ctas, exl2__cuda_sample_supports, exl2__cuda_sample_settings,
          exl2__cuda_sample_result. */
#ifndef EXL2__CUDA_SAMPLE_H
#define EXL2__CUDA_SAMPLE_H

#include "../../../kernels_src/sample_args.h"
#include "../sample/cpu_sample_run.h"

/* Device addresses of a row's lists. An address may be 0 if its count is 0. */
typedef struct exl2__cuda_lists {
    uint64_t history; /* u32 [history_size], filled from index 0 */
    uint64_t bias;    /* exl2k_bias [bias_count] */
    uint64_t mask;    /* u32 [ceil(vocab / 32)]; 0: no mask */
    uint32_t history_size;
} exl2__cuda_lists;

static inline uint32_t exl2__cuda_sample_chunks(uint32_t vocab)
{
    return (vocab + EXL2K_SAMPLE_CHUNK - 1) / EXL2K_SAMPLE_CHUNK;
}

/* CTAs of a row for exl2k_sample_token: not more than run at a time, two on an SM, with equal numbers of chunks. */
static inline uint32_t exl2__cuda_sample_ctas(uint32_t chunks, uint32_t rows, uint32_t sms)
{
    uint32_t most = exl2__max32(1, 2 * sms / exl2__max32(1, rows));
    return (uint32_t)exl2__div_up(chunks, exl2__div_up(chunks, most));
}

/* Whether the kernels support these settings: mask, repeat penalty, biases, temperature, top-k, top-p, min-p. */
EXL2__PRIVATE bool exl2__cuda_sample_supports(const exl2__sampling *s)
{
    return !exl2__sample_is_penalized(s) && !exl2__sample_is_shaped(s);
}

/* Computes the same numbers as the passes of cpu_sample_run.h. advance: the kernel advances the row to its
   next position, for at most `left` tokens. */
EXL2__PRIVATE exl2k_sampling exl2__cuda_sample_settings(const exl2__logit_row *row, const exl2__cuda_lists *lists,
                                                        bool advance, uint32_t left)
{
    exl2k_sampling d = { .row = row->row, .alts = exl2__min32(row->alts, EXL2K_ALTS_MAX), .slope = 1, .penalty = 1,
                         .penalty_inverse = 1, .left = left, .least_weight = 1 };
    if (row->use != EXL2__LOGIT_SAMPLE) {
        d.use = EXL2K_SCORE;
        d.target = (uint32_t)row->target;
        return d;
    }
    const exl2__sampling *s = row->sampling;
    d.use = EXL2K_SAMPLE;
    d.flags = (s->greedy ? EXL2K_GREEDY : 0) | (s->top_p < 1 ? EXL2K_TOP_P : 0) | (advance ? EXL2K_ADVANCE : 0);
    d.top_k = s->top_k;
    d.slope = exl2__weight_curve_make(0, s->temperature).slope;
    d.penalty = s->repeat_penalty;
    d.penalty_inverse = (float)(1.0 / (double)s->repeat_penalty);
    d.seed = s->seed;
    d.position = row->sample_position;
    d.top_p = s->top_p < 1 ? (uint64_t)(s->top_p * 4294967296.0f) << 32 : 0;
    d.least_weight = exl2__max64(1, s->min_p > 0 ? (uint64_t)(s->min_p * 1099511627776.0f) : 0);
    d.history = lists->history;
    d.history_count = row->history_count;
    d.history_size = lists->history_size;
    d.history_next = lists->history_size > 0 ? row->history_count % lists->history_size : 0;
    d.bias = lists->bias;
    d.bias_count = s->bias_count + row->extra_count;
    d.mask = lists->mask;
    return d;
}

/* Gives what exl2__sample_row gives for the same logits, bit for bit. result->alts is [EXL2_ALTS_MAX]. */
EXL2__PRIVATE void exl2__cuda_sample_result(const exl2k_result *from, exl2__logit_result *result)
{
    exl2__sample_softmax raw = { from->top_key, exl2__weight_key_logit(from->top_key), 0 };
    result->token = (exl2_token)(uint32_t)from->stamp;
    result->alt_count = from->alt_count;
    result->logprob = result->logsumexp = exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    if (raw.top_key == EXL2__WEIGHT_KEY_NONE) {
        return;
    }
    raw.log_sum = exl2__weight_log(from->sum);
    result->logsumexp = raw.top_key == EXL2__WEIGHT_KEY_INF ? raw.top : (float)((double)raw.top + raw.log_sum);
    result->logprob = exl2__sample_logprob(&raw, from->logit);
    for (uint32_t i = 0; i < from->alt_count; i++) {
        result->alts[i].token = (exl2_token)from->alts[i].token;
        result->alts[i].logprob = exl2__sample_logprob(&raw, from->alts[i].logit);
    }
}

#endif
