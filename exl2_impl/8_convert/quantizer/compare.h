/* compare.h: how far the logits of two models are apart.
   takes: rows of logits, or two models and a sequence.
   gives: exl2__compare_row, exl2__compare_row_make, exl2__compare_kl; exl2__compare, exl2__compare_rows; exl2_compare.
   owns:  nothing; exl2_compare owns two models, until it returns. */
#ifndef EXL2__COMPARE_H
#define EXL2__COMPARE_H

#include "../../0_base/sort.h"
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
    exl2__runner *a, *b;
    float *first, *second; /* [logit rows, exl2__compare_stride(vocab)] each */
    exl2__compare_pair *pair; /* [logit rows] */
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
    m->pair = (exl2__compare_pair *)exl2__arena_alloc(a, rows * sizeof *m->pair);
}

/* Task: one row of logits. */
EXL2__PRIVATE void exl2__compare_one(void *arg, uint32_t index)
{
    const exl2__compare *m = (const exl2__compare *)arg;
    const exl2__cpu_device *a = exl2__runner_cpu(m->a), *b = exl2__runner_cpu(m->b);
    uint32_t vocab = m->a->plan.shape.vocab, next = m->row + index + 1;
    size_t at = (size_t)index * exl2__compare_stride(vocab);
    const float *x = a->logits + (size_t)index * a->vocab_stride, *y = b->logits + (size_t)index * b->vocab_stride;
    exl2__compare_row first = { m->first + at, 0, 0, 0, 0 }, second;
    exl2__compare_row_make(a->ops, x, vocab, &first);
    exl2__compare_pair pair = { exl2__compare_kl(a->ops, &first, y, vocab, m->second + at, &second), 0, 0, false };
    pair.same_top = first.top == second.top;
    if (next < m->count) {
        pair.nll_a = exl2__compare_nll(&first, x, m->tokens[next]);
        pair.nll_b = exl2__compare_nll(&second, y, m->tokens[next]);
    }
    m->pair[index] = pair;
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
    for (uint32_t row = 0; row < count; row += most) {
        exl2__range range = { 0 };
        range.logit0 = row;
        range.logit_count = exl2__min32(count - row, most);
        EXL2__TRY(exl2__runner_head(m->a, range));
        EXL2__TRY(exl2__runner_head(m->b, range));
        m->row = row;
        exl2__tasks_run(m->a->c, range.logit_count, exl2__compare_one, m);
        for (uint32_t i = 0; i < range.logit_count; i++) {
            const exl2__compare_pair *pair = &m->pair[i];
            m->kl += pair->kl;
            m->same_top += pair->same_top;
            if (m->kls && m->positions < m->kl_max) {
                m->kls[m->positions] = (float)pair->kl;
            }
            m->positions++;
            if (row + i + 1 < count) {
                m->nll_a += pair->nll_a;
                m->nll_b += pair->nll_b;
                m->scored++;
            }
        }
    }
    return EXL2_OK;
}

/* ---- two models ---- */

EXL2__PRIVATE bool exl2__compare_less(const void *items, uint32_t a, uint32_t b)
{
    const float *kls = (const float *)items;
    return kls[a] < kls[b];
}

EXL2__PRIVATE void exl2__compare_swap(void *items, uint32_t a, uint32_t b)
{
    float *kls = (float *)items, kept = kls[a];
    kls[a] = kls[b];
    kls[b] = kept;
}

#define EXL2__COMPARE_ROW 512u
#define EXL2__COMPARE_TOKENS_MAX ((uint64_t)1 << 30)

EXL2__PRIVATE exl2_result exl2__compare_check(exl2__ctx *c, const exl2_compare_desc *d, const exl2__compare *m)
{
    const exl2__shape *a = &m->a->plan.shape, *b = &m->b->plan.shape;
    if (a->vocab != b->vocab) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s has a vocabulary of %u, %s one of %u", d->a_dir, a->vocab, d->b_dir,
                          b->vocab);
    }
    for (uint64_t i = 0; i < d->token_count; i++) {
        if (d->tokens[i] < 0 || (uint32_t)d->tokens[i] >= a->vocab) {
            return exl2__fail(c, EXL2_ERR_ARG, "token %llu is %d, but the vocabulary has %u", (unsigned long long)i,
                              d->tokens[i], a->vocab);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__compare_texts(exl2__ctx *c, const exl2_compare_desc *d, exl2__compare *m, uint32_t row)
{
    EXL2__TRY(exl2__compare_check(c, d, m));
    for (uint64_t at = 0, some; at < d->token_count; at += some) {
        some = exl2__min64(d->token_count - at, row);
        EXL2__TRY(exl2__compare_rows(m, d->tokens + at, (uint32_t)some));
        double done = (double)(at + some) / (double)d->token_count;
        if (d->progress && !d->progress(d->user, "compare", (float)done)) {
            return exl2__fail(c, EXL2_ERR_CANCELLED, "the comparison was cancelled");
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__compare_report(exl2__compare *m, exl2_compare_info *out)
{
    exl2__sort_items items = { m->kls, exl2__compare_less, exl2__compare_swap };
    exl2__sort(&items, (uint32_t)m->positions);
    out->tokens = m->positions;
    out->kl = m->kl / (double)m->positions;
    out->kl_p99 = (double)m->kls[(m->positions - 1) * 99 / 100];
    out->top1 = (double)m->same_top / (double)m->positions;
    out->nll_a = m->scored ? m->nll_a / (double)m->scored : 0;
    out->nll_b = m->scored ? m->nll_b / (double)m->scored : 0;
}

EXL2__PRIVATE exl2_result exl2__compare_run(exl2__ctx *c, const exl2_compare_desc *d, exl2_compare_info *out)
{
    exl2__runner a = { 0 }, b = { 0 };
    exl2__compare m = { 0 };
    exl2__arena dry = { 0 }, memory = { 0 };
    uint32_t row = d->row ? d->row : EXL2__COMPARE_ROW;
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_compare_desc));
    if (!d->a_dir || !d->b_dir || !d->tokens || d->token_count == 0 || d->token_count > EXL2__COMPARE_TOKENS_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_compare needs two models, and 1 to 2^30 tokens");
    }
    if (!d->a_dir[0] || !d->b_dir[0]) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_compare_desc.%s is an empty string", d->a_dir[0] ? "b_dir" : "a_dir");
    }
    row = (uint32_t)exl2__min64(row, d->token_count);
    m.a = &a;
    m.b = &b;
    m.kl_max = d->token_count;
    exl2_result result = exl2__runner_open(c, d->a_dir, row, &a);
    result = result < 0 ? result : exl2__runner_open(c, d->b_dir, row, &b);
    if (result >= 0) {
        exl2__compare_layout(&m, &dry);
        exl2__arena_alloc(&dry, d->token_count * sizeof *m.kls);
        result = exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH);
        if (result >= 0) {
            exl2__compare_layout(&m, &memory);
            m.kls = (float *)exl2__arena_alloc(&memory, d->token_count * sizeof *m.kls);
            result = exl2__compare_texts(c, d, &m, row);
        }
    }
    if (result >= 0) {
        exl2__compare_report(&m, out);
    }
    exl2__arena_close(c, &memory);
    exl2__runner_close(&b);
    exl2__runner_close(&a);
    return result;
}

EXL2_API exl2_result exl2_compare(const exl2_compare_desc *d, exl2_compare_info *out)
{
    exl2__ctx c = { 0 };
    if (!d || !out) {
        return EXL2_ERR_ARG;
    }
    *out = (exl2_compare_info){ 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.parallel = d->parallel;
    c.cpu_path = exl2__cpu_path_best();
    exl2_result result = exl2__compare_run(&c, d, out);
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
