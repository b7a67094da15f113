/* compare.h: how far the logits of two models are apart.
   takes: rows of logits, or two models and a sequence.
   gives: exl2__compare_row, exl2__compare_row_make, exl2__compare_kl; exl2__compare, exl2__compare_layout,
          exl2__compare_first, exl2__compare_second, exl2__compare_sum, exl2__compare_rows.
   owns:  nothing. */
#ifndef EXL2__COMPARE_H
#define EXL2__COMPARE_H

#include "runner_logits.h"

/* A row of the first model: its probabilities, and what else its KL divergence needs. */
typedef struct exl2__compare_row {
    float *probability; /* [exl2__compare_stride(vocab)] */
    double entropy;     /* sum of p log p */
    double log_sum, most; /* log of the sum of exp(logit - most) */
    uint32_t top;
} exl2__compare_row;

static inline uint32_t exl2__compare_stride(uint32_t vocab) { return (uint32_t)exl2__align_up(vocab, 64); }

static inline uint32_t exl2__compare_top(const float *logits, uint32_t vocab)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        top = logits[i] > logits[top] ? i : top;
    }
    return top;
}

/* sum of p [vocab] * (x [vocab] - most), in double: the result is a small difference of large numbers */
EXL2__PRIVATE double exl2__compare_dot(const float *p, const float *x, double most, uint32_t vocab)
{
    double sum[8] = { 0 };
    uint32_t i = 0;
    for (; i + 8 <= vocab; i += 8) {
        for (uint32_t k = 0; k < 8; k++) {
            sum[k] += (double)p[i + k] * ((double)x[i + k] - most);
        }
    }
    for (; i < vocab; i++) {
        sum[0] += (double)p[i] * ((double)x[i] - most);
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* logits [vocab] are not changed; row->probability is filled in. */
EXL2__PRIVATE void exl2__compare_row_make(const exl2__cpu_ops *ops, const float *logits, uint32_t vocab,
                                          exl2__compare_row *row)
{
    memcpy(row->probability, logits, vocab * sizeof *logits);
    row->top = exl2__compare_top(logits, vocab);
    row->most = (double)logits[row->top];
    float share = ops->softmax(row->probability, vocab, exl2__compare_stride(vocab));
    double total = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        row->probability[i] *= share;
        total += (double)row->probability[i];
    }
    row->log_sum = -log((double)share);
    row->entropy = exl2__compare_dot(row->probability, logits, row->most, vocab) - total * row->log_sum;
}

/* KL divergence of the second model's logits [vocab] from the row. scratch [exl2__compare_stride(vocab)]. `other` gets
   what the second model's row is, without an entropy. */
EXL2__PRIVATE double exl2__compare_kl(const exl2__cpu_ops *ops, const exl2__compare_row *row, const float *logits,
                                      uint32_t vocab, float *scratch, exl2__compare_row *other)
{
    other->probability = scratch;
    other->top = exl2__compare_top(logits, vocab);
    other->most = (double)logits[other->top];
    other->entropy = 0;
    memcpy(scratch, logits, vocab * sizeof *logits);
    double total = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        total += (double)row->probability[i];
    }
    other->log_sum = -log((double)ops->softmax(scratch, vocab, exl2__compare_stride(vocab)));
    double cross = exl2__compare_dot(row->probability, logits, other->most, vocab) - total * other->log_sum;
    double kl = row->entropy - cross;
    return kl > 0 ? kl : 0;
}

/* A position, in both models. */
typedef struct exl2__compare_pair {
    double kl, nll_a, nll_b;
    bool same_top;
} exl2__compare_pair;

/* Sums over the positions of sequences. */
typedef struct exl2__compare {
    exl2__runner *a, *b;   /* b NULL: there is none */
    float *first, *second; /* [logit rows, exl2__compare_stride(vocab)] each */
    exl2__compare_row *rows; /* [logit rows] of A; their probabilities are `first` */
    exl2__compare_pair *pair; /* [logit rows] */
    const exl2__runner *other; /* whose logits are the second ones */
    const exl2_token *tokens; /* [count] of the pass */
    uint32_t row, count;   /* row: of the first logits that were computed */
    float *kls;            /* [kl_max] KL of each position, for quantiles; NULL: not wanted */
    uint64_t kl_max;
    double kl, nll_a, nll_b;
    uint64_t positions, scored, same_top; /* scored: positions with a next token */
} exl2__compare;

static inline double exl2__compare_nll(const exl2__compare_row *row, const float *logits, exl2_token next)
{
    return row->log_sum + row->most - (double)logits[next];
}

/* Lays out the scratch of m->a and m->b, which have headers. */
EXL2__PRIVATE void exl2__compare_layout(exl2__compare *m, exl2__arena *a)
{
    uint64_t rows = m->a->plan.logit_rows_max, stride = exl2__compare_stride(m->a->plan.shape.vocab);
    m->first = (float *)exl2__arena_alloc(a, rows * stride * sizeof *m->first);
    m->second = (float *)exl2__arena_alloc(a, rows * stride * sizeof *m->second);
    m->rows = (exl2__compare_row *)exl2__arena_alloc(a, rows * sizeof *m->rows);
    m->pair = (exl2__compare_pair *)exl2__arena_alloc(a, rows * sizeof *m->pair);
}

/* The logits of a row of a model's last group. */
static inline const float *exl2__compare_logits(const exl2__runner *r, uint32_t index)
{
    const exl2__cpu_device *d = exl2__runner_cpu(r);
    return d->logits + (size_t)index * d->vocab_stride;
}

/* Task: one row of A's logits. */
EXL2__PRIVATE void exl2__compare_first(void *arg, uint32_t index)
{
    const exl2__compare *m = (const exl2__compare *)arg;
    uint32_t vocab = m->a->plan.shape.vocab, next = m->row + index + 1;
    const float *logits = exl2__compare_logits(m->a, index);
    exl2__compare_row *row = &m->rows[index];
    *row = (exl2__compare_row){ m->first + (size_t)index * exl2__compare_stride(vocab), 0, 0, 0, 0 };
    exl2__compare_row_make(exl2__runner_cpu(m->a)->ops, logits, vocab, row);
    m->pair[index] = (exl2__compare_pair){ 0, 0, 0, false };
    if (next < m->count) {
        m->pair[index].nll_a = exl2__compare_nll(row, logits, m->tokens[next]);
    }
}

/* Task: one row of the other logits, after A's. */
EXL2__PRIVATE void exl2__compare_second(void *arg, uint32_t index)
{
    const exl2__compare *m = (const exl2__compare *)arg;
    uint32_t vocab = m->a->plan.shape.vocab, next = m->row + index + 1;
    const float *logits = exl2__compare_logits(m->other, index);
    float *scratch = m->second + (size_t)index * exl2__compare_stride(vocab);
    exl2__compare_pair *pair = &m->pair[index];
    exl2__compare_row second;
    pair->kl = exl2__compare_kl(exl2__runner_cpu(m->a)->ops, &m->rows[index], logits, vocab, scratch, &second);
    pair->same_top = m->rows[index].top == second.top;
    if (next < m->count) {
        pair->nll_b = exl2__compare_nll(&second, logits, m->tokens[next]);
    }
}

/* Adds the rows of a group to the sums. */
EXL2__PRIVATE void exl2__compare_sum(exl2__compare *m, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        const exl2__compare_pair *pair = &m->pair[i];
        m->kl += pair->kl;
        m->same_top += pair->same_top;
        if (m->kls && m->positions < m->kl_max) {
            m->kls[m->positions] = (float)pair->kl;
        }
        m->positions++;
        if (m->row + i + 1 < m->count) {
            m->nll_a += pair->nll_a;
            m->nll_b += pair->nll_b;
            m->scored++;
        }
    }
}

/* One pass of each model over the tokens; their logits meet in groups of rows. */
EXL2__PRIVATE exl2_result exl2__compare_rows(exl2__compare *m, const exl2_token *tokens, uint32_t count)
{
    exl2__runner *both[2] = { m->a, m->b };
    uint32_t most = m->a->plan.logit_rows_max;
    for (uint32_t i = 0; i < 2; i++) {
        EXL2__TRY(exl2__runner_begin(both[i], tokens, count));
        EXL2__TRY(exl2__runner_embed(both[i]));
        for (uint32_t layer = 0; layer < both[i]->plan.shape.layers; layer++) {
            EXL2__TRY(exl2__runner_layer(both[i], layer, NULL, NULL));
        }
    }
    m->tokens = tokens;
    m->count = count;
    m->other = m->b;
    for (m->row = 0; m->row < count; m->row += most) {
        exl2__range range = { 0 };
        range.logit0 = m->row;
        range.logit_count = exl2__min32(count - m->row, most);
        EXL2__TRY(exl2__runner_head(m->a, range));
        EXL2__TRY(exl2__runner_head(m->b, range));
        exl2__tasks_run(m->a->c, range.logit_count, exl2__compare_first, m);
        exl2__tasks_run(m->a->c, range.logit_count, exl2__compare_second, m);
        exl2__compare_sum(m, range.logit_count);
    }
    return EXL2_OK;
}

#endif
