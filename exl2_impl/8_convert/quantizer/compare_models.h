/* compare_models.h: a text in two models, or in one: likelihoods, divergence, and what each layer adds to it.
   takes: two model folders with the same vocabulary, tokens.
   gives: exl2_compare.
   owns:  both models and the states of a block of sequences, until it returns.

   The sequences of a block go through the models layer by layer, so that a model need not be in memory as a whole: with
   a cap on memory that holds too little, one layer at a time is read (runner.h), and a block has as many sequences as
   have room, because each block reads the models again. What a layer of B does to A: the block's states also exist as
   those of A with that layer of B, for each layer that they have passed, and go on through the layers of A. */
#ifndef EXL2__COMPARE_MODELS_H
#define EXL2__COMPARE_MODELS_H

#include "../../0_base/sort.h"
#include "compare.h"

#define EXL2__COMPARE_ROW 512u
#define EXL2__COMPARE_TOKENS_MAX ((uint64_t)1 << 30)

enum { EXL2__COMPARE_A, EXL2__COMPARE_B, EXL2__COMPARE_SWAPPED }; /* states; SWAPPED + n: with layer n of B */

typedef struct exl2__compare_models {
    exl2__ctx *c;
    const exl2_compare_desc *d;
    exl2__compare sums;
    exl2__runner a, b;
    exl2__arena memory;
    uint32_t row;            /* tokens of a sequence, but perhaps of the last one */
    uint32_t layers;         /* of A, whose figures are wanted, or 0 */
    uint32_t sequences;      /* of a block */
    uint32_t state_count;
    float *states;           /* [state_count, sequences, row, hidden] */
    double *error, *size, *kl; /* [layers] squares of B - A and of A; divergence */
    const exl2_token *tokens;  /* [count] of the block */
    uint64_t count;
    uint64_t done, all;      /* passes of a sequence through a layer or a head */
} exl2__compare_models;

static inline bool exl2__compare_models_has_b(const exl2__compare_models *m) { return m->d->b_dir != NULL; }

/* ---- sizes ---- */

/* With `sequences` set. */
EXL2__PRIVATE void exl2__compare_models_layout(exl2__compare_models *m, exl2__arena *a)
{
    uint64_t values = (uint64_t)m->state_count * m->sequences * m->row * m->a.plan.shape.hidden;
    exl2__compare_layout(&m->sums, a);
    m->sums.kls = (float *)exl2__arena_alloc(a, m->sums.kl_max * sizeof *m->sums.kls);
    m->error = (double *)exl2__arena_alloc_zeroed(a, m->layers * sizeof *m->error);
    m->size = (double *)exl2__arena_alloc_zeroed(a, m->layers * sizeof *m->size);
    m->kl = (double *)exl2__arena_alloc_zeroed(a, m->layers * sizeof *m->kl);
    m->states = (float *)exl2__arena_alloc(a, values * sizeof *m->states);
}

/* Bytes at the peak, with the models read layer by layer or as a whole. Both have headers. */
EXL2__PRIVATE uint64_t exl2__compare_models_bytes(exl2__compare_models *m, bool streamed, uint32_t sequences)
{
    exl2__arena dry = { 0 };
    m->a.streamed = m->b.streamed = streamed;
    m->sequences = sequences;
    exl2__compare_models_layout(m, &dry);
    return m->c->host_bytes + dry.used + exl2__runner_bytes(&m->a, false)
         + (exl2__compare_models_has_b(m) ? exl2__runner_bytes(&m->b, false) : 0);
}

/* Decides whether the models are read layer by layer, and the number of sequences of a block. */
EXL2__PRIVATE exl2_result exl2__compare_models_fit(exl2__compare_models *m)
{
    uint64_t most = m->d->host_bytes_max, count = exl2__div_up(m->d->token_count, m->row);
    if (most == 0 || exl2__compare_models_bytes(m, false, 1) <= most) {
        m->sequences = 1;
        return EXL2_OK;
    }
    uint64_t one = exl2__compare_models_bytes(m, true, 1), two = exl2__compare_models_bytes(m, true, 2);
    if (one > most) {
        return exl2__fail(m->c, EXL2_ERR_BUDGET, "%s%s%s layer by layer needs %llu bytes for rows of %u tokens, but "
                          "host_bytes_max is %llu", m->d->a_dir, exl2__compare_models_has_b(m) ? " and " : "",
                          exl2__compare_models_has_b(m) ? m->d->b_dir : "", (unsigned long long)one, m->row,
                          (unsigned long long)most);
    }
    m->sequences = (uint32_t)exl2__min64(1 + (most - one) / (two - one), count);
    exl2__compare_models_bytes(m, true, m->sequences);
    return EXL2_OK;
}

/* ---- a block ---- */

static inline uint32_t exl2__compare_models_length(const exl2__compare_models *m, uint32_t sequence)
{
    return (uint32_t)exl2__min64(m->count - (uint64_t)sequence * m->row, m->row);
}

static inline exl2__runner_states exl2__compare_models_states(const exl2__compare_models *m, uint32_t which)
{
    uint64_t at = (uint64_t)which * m->sequences * m->row * m->a.plan.shape.hidden;
    return (exl2__runner_states){ m->states + at, 0 };
}

EXL2__PRIVATE exl2_result exl2__compare_models_progress(exl2__compare_models *m)
{
    m->done++;
    return !m->d->progress || m->d->progress(m->d->user, "compare", (float)((double)m->done / (double)m->all))
               ? EXL2_OK : exl2__fail(m->c, EXL2_ERR_CANCELLED, "the comparison was cancelled");
}

/* The sequences of the block that have tokens. */
static inline uint32_t exl2__compare_models_used(const exl2__compare_models *m)
{
    return (uint32_t)exl2__div_up(m->count, m->row);
}

EXL2__PRIVATE exl2_result exl2__compare_models_embed(exl2__compare_models *m, exl2__runner *r, uint32_t which)
{
    exl2__runner_states states = exl2__compare_models_states(m, which);
    for (uint32_t i = 0; i < exl2__compare_models_used(m); i++) {
        uint64_t first = (uint64_t)i * m->row;
        EXL2__TRY(exl2__runner_begin(r, m->tokens + first, exl2__compare_models_length(m, i)));
        EXL2__TRY(exl2__runner_embed(r));
        EXL2__TRY(exl2__runner_put(r, &states, first));
    }
    return EXL2_OK;
}

/* All sequences of some states go through a layer of a model. */
EXL2__PRIVATE exl2_result exl2__compare_models_layer(exl2__compare_models *m, exl2__runner *r, uint32_t layer,
                                                     uint32_t which)
{
    exl2__runner_states states = exl2__compare_models_states(m, which);
    for (uint32_t i = 0; i < exl2__compare_models_used(m); i++) {
        uint64_t first = (uint64_t)i * m->row;
        EXL2__TRY(exl2__runner_begin_all(r, NULL, 1, exl2__compare_models_length(m, i)));
        EXL2__TRY(exl2__runner_get(r, &states, first, false));
        EXL2__TRY(exl2__runner_layer(r, layer, NULL, NULL));
        EXL2__TRY(exl2__runner_put(r, &states, first));
        EXL2__TRY(exl2__compare_models_progress(m));
    }
    return EXL2_OK;
}

/* Adds how far the states of B are from those of A after a layer: sums of each sequence, so that blocks of any length
   give the same. */
EXL2__PRIVATE void exl2__compare_models_distance(exl2__compare_models *m, uint32_t layer)
{
    const float *a = exl2__compare_models_states(m, EXL2__COMPARE_A).host;
    const float *b = exl2__compare_models_states(m, EXL2__COMPARE_B).host;
    for (uint32_t i = 0; i < exl2__compare_models_used(m); i++) {
        uint64_t values = (uint64_t)exl2__compare_models_length(m, i) * m->a.plan.shape.hidden;
        double error = 0, size = 0;
        for (uint64_t k = 0; k < values; k++, a++, b++) {
            double off = (double)*b - (double)*a;
            error += off * off;
            size += (double)*a * (double)*a;
        }
        m->error[layer] += error;
        m->size[layer] += size;
    }
}

/* A layer of both models. Each is read once. */
EXL2__PRIVATE exl2_result exl2__compare_models_step(exl2__compare_models *m, uint32_t layer)
{
    bool in_a = layer < m->a.plan.shape.layers;
    bool in_b = exl2__compare_models_has_b(m) && layer < m->b.plan.shape.layers;
    uint64_t bytes = m->count * m->a.plan.shape.hidden * sizeof(float);
    if (m->layers) {
        memcpy(exl2__compare_models_states(m, EXL2__COMPARE_SWAPPED + layer).host,
               exl2__compare_models_states(m, EXL2__COMPARE_A).host, (size_t)bytes);
    }
    for (uint32_t i = 0; in_a && i <= (m->layers ? layer : 0); i++) {
        uint32_t which = i ? EXL2__COMPARE_SWAPPED + i - 1 : EXL2__COMPARE_A;
        EXL2__TRY(exl2__compare_models_layer(m, &m->a, layer, which));
    }
    if (in_b) {
        EXL2__TRY(exl2__compare_models_layer(m, &m->b, layer, EXL2__COMPARE_B));
    }
    if (m->layers) {
        EXL2__TRY(exl2__compare_models_layer(m, &m->b, layer, EXL2__COMPARE_SWAPPED + layer));
        exl2__compare_models_distance(m, layer);
    }
    return EXL2_OK;
}

/* The logits of a group of a sequence's rows, from some states. */
EXL2__PRIVATE exl2_result exl2__compare_models_head(exl2__compare_models *m, exl2__runner *r, uint32_t sequence,
                                                    exl2__range range, uint32_t which)
{
    exl2__runner_states states = exl2__compare_models_states(m, which);
    EXL2__TRY(exl2__runner_begin_all(r, NULL, 1, exl2__compare_models_length(m, sequence)));
    EXL2__TRY(exl2__runner_get(r, &states, (uint64_t)sequence * m->row, true));
    return exl2__runner_head(r, range);
}

EXL2__PRIVATE exl2_result exl2__compare_models_logits(exl2__compare_models *m, uint32_t sequence)
{
    exl2__compare *x = &m->sums;
    uint32_t most = m->a.plan.logit_rows_max;
    uint64_t first = (uint64_t)sequence * m->row, before = (uint64_t)(m->tokens - m->d->tokens) + first;
    x->tokens = m->tokens + first;
    x->count = exl2__compare_models_length(m, sequence);
    for (x->row = 0; x->row < x->count; x->row += most) {
        exl2__range range = { 0 };
        range.logit0 = x->row;
        range.logit_count = exl2__min32(x->count - x->row, most);
        EXL2__TRY(exl2__compare_models_head(m, &m->a, sequence, range, EXL2__COMPARE_A));
        exl2__tasks_run(m->c, range.logit_count, exl2__compare_first, x);
        for (uint32_t i = 0; m->d->nll && i < range.logit_count; i++) {
            uint32_t next = x->row + i + 1;
            if (next < x->count) {
                m->d->nll[before + next] = (float)x->pair[i].nll_a;
            }
        }
        if (exl2__compare_models_has_b(m)) {
            EXL2__TRY(exl2__compare_models_head(m, &m->b, sequence, range, EXL2__COMPARE_B));
            x->other = &m->b;
            exl2__tasks_run(m->c, range.logit_count, exl2__compare_second, x);
        }
        exl2__compare_sum(x, range.logit_count);
        for (uint32_t layer = 0; layer < m->layers; layer++) {
            EXL2__TRY(exl2__compare_models_head(m, &m->a, sequence, range, EXL2__COMPARE_SWAPPED + layer));
            x->other = &m->a;
            exl2__tasks_run(m->c, range.logit_count, exl2__compare_second, x);
            for (uint32_t i = 0; i < range.logit_count; i++) {
                m->kl[layer] += x->pair[i].kl;
            }
        }
    }
    return exl2__compare_models_progress(m);
}

EXL2__PRIVATE exl2_result exl2__compare_models_block(exl2__compare_models *m)
{
    uint32_t layers = m->a.plan.shape.layers;
    EXL2__TRY(exl2__compare_models_embed(m, &m->a, EXL2__COMPARE_A));
    if (exl2__compare_models_has_b(m)) {
        layers = exl2__max32(layers, m->b.plan.shape.layers);
        EXL2__TRY(exl2__compare_models_embed(m, &m->b, EXL2__COMPARE_B));
    }
    for (uint32_t layer = 0; layer < layers; layer++) {
        EXL2__TRY(exl2__compare_models_step(m, layer));
    }
    for (uint32_t i = 0; i < exl2__compare_models_used(m); i++) {
        EXL2__TRY(exl2__compare_models_logits(m, i));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__compare_models_text(exl2__compare_models *m)
{
    uint64_t block = (uint64_t)m->sequences * m->row, sequences = exl2__div_up(m->d->token_count, m->row);
    uint64_t passes = m->a.plan.shape.layers + (exl2__compare_models_has_b(m) ? m->b.plan.shape.layers : 0);
    m->all = sequences * (passes + (uint64_t)m->layers * (m->layers + 1) / 2 + 1);
    for (uint64_t at = 0; at < m->d->token_count; at += m->count) {
        m->tokens = m->d->tokens + at;
        m->count = exl2__min64(m->d->token_count - at, block);
        EXL2__TRY(exl2__compare_models_block(m));
    }
    return EXL2_OK;
}

/* ---- checks, results ---- */

EXL2__PRIVATE exl2_result exl2__compare_models_check_desc(exl2__ctx *c, const exl2_compare_desc *d)
{
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_compare_desc));
    if (!d->a_dir || !d->tokens || d->token_count == 0 || d->token_count > EXL2__COMPARE_TOKENS_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_compare needs a model, and 1 to 2^30 tokens");
    }
    if (!d->a_dir[0] || (d->b_dir && !d->b_dir[0])) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_compare_desc.%s is an empty string", d->a_dir[0] ? "b_dir" : "a_dir");
    }
    return !d->layers || d->b_dir ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_ARG, "exl2_compare_desc.layers needs two models, and b_dir is NULL");
}

/* Both models have headers. */
EXL2__PRIVATE exl2_result exl2__compare_models_check(exl2__compare_models *m)
{
    const exl2_compare_desc *d = m->d;
    const exl2__shape *a = &m->a.plan.shape, *b = &m->b.plan.shape;
    if (d->b_dir && a->vocab != b->vocab) {
        return exl2__fail(m->c, EXL2_ERR_ARG, "%s has a vocabulary of %u, %s one of %u", d->a_dir, a->vocab, d->b_dir,
                          b->vocab);
    }
    for (uint64_t i = 0; i < d->token_count; i++) {
        if (d->tokens[i] < 0 || (uint32_t)d->tokens[i] >= a->vocab) {
            return exl2__fail(m->c, EXL2_ERR_ARG, "token %llu is %d, but the vocabulary has %u", (unsigned long long)i,
                              d->tokens[i], a->vocab);
        }
    }
    if (d->layers && (a->layers != b->layers || a->hidden != b->hidden)) {
        return exl2__fail(m->c, EXL2_ERR_ARG, "layers of %s (%u, of %u features) and of %s (%u, of %u) cannot replace "
                          "each other", d->a_dir, a->layers, a->hidden, d->b_dir, b->layers, b->hidden);
    }
    return !d->layers || d->layer_max >= a->layers ? EXL2_OK
         : exl2__fail(m->c, EXL2_ERR_TOO_SMALL, "%s has %u layers, but layer_max is %u", d->a_dir, a->layers,
                      d->layer_max);
}

EXL2__PRIVATE bool exl2__compare_models_less(const void *items, uint32_t a, uint32_t b)
{
    const float *kls = (const float *)items;
    return kls[a] < kls[b];
}

EXL2__PRIVATE void exl2__compare_models_swap(void *items, uint32_t a, uint32_t b)
{
    float *kls = (float *)items, kept = kls[a];
    kls[a] = kls[b];
    kls[b] = kept;
}

EXL2__PRIVATE void exl2__compare_models_report(const exl2__compare_models *m, exl2_compare_info *out)
{
    const exl2__compare *x = &m->sums;
    exl2__sort_items items = { x->kls, exl2__compare_models_less, exl2__compare_models_swap };
    exl2__sort(&items, (uint32_t)x->positions);
    out->tokens = x->positions;
    out->kl = x->kl / (double)x->positions;
    out->kl_p99 = (double)x->kls[(x->positions - 1) * 99 / 100];
    out->top1 = exl2__compare_models_has_b(m) ? (double)x->same_top / (double)x->positions : 0;
    out->nll_a = x->scored ? x->nll_a / (double)x->scored : 0;
    out->nll_b = x->scored ? x->nll_b / (double)x->scored : 0;
    out->layers = m->layers;
    out->streamed = m->a.streamed;
    for (uint32_t i = 0; i < m->layers; i++) {
        m->d->layers[i].error = m->size[i] > 0 ? sqrt(m->error[i] / m->size[i]) : 0;
        m->d->layers[i].kl = m->kl[i] / (double)x->positions;
    }
}

EXL2__PRIVATE exl2_result exl2__compare_models_run(exl2__compare_models *m, exl2_compare_info *out)
{
    exl2__ctx *c = m->c;
    const exl2_compare_desc *d = m->d;
    exl2__arena dry = { 0 };
    m->row = (uint32_t)exl2__min64(d->row ? d->row : EXL2__COMPARE_ROW, d->token_count);
    m->sums.a = &m->a;
    m->sums.b = d->b_dir ? &m->b : NULL;
    m->sums.kl_max = d->token_count;
    EXL2__TRY(exl2__runner_headers(c, d->a_dir, m->row, NULL, &m->a));
    if (d->b_dir) {
        EXL2__TRY(exl2__runner_headers(c, d->b_dir, m->row, NULL, &m->b));
    }
    EXL2__TRY(exl2__compare_models_check(m));
    m->layers = d->layers ? m->a.plan.shape.layers : 0;
    m->state_count = d->b_dir ? EXL2__COMPARE_SWAPPED + m->layers : 1;
    EXL2__TRY(exl2__compare_models_fit(m));
    EXL2__TRY(exl2__runner_load(&m->a));
    if (d->b_dir) {
        EXL2__TRY(exl2__runner_load(&m->b));
    }
    exl2__compare_models_layout(m, &dry);
    EXL2__TRY(exl2__arena_open(c, &m->memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__compare_models_layout(m, &m->memory);
    if (d->nll) {
        memset(d->nll, 0, (size_t)(d->token_count * sizeof *d->nll));
    }
    EXL2__TRY(exl2__compare_models_text(m));
    exl2__compare_models_report(m, out);
    return EXL2_OK;
}

EXL2_API exl2_result exl2_compare(const exl2_compare_desc *d, exl2_compare_info *out)
{
    exl2__ctx c = { 0 };
    exl2__compare_models m = { .c = &c, .d = d };
    if (!d || !out) {
        return EXL2_ERR_ARG;
    }
    *out = (exl2_compare_info){ 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.parallel = d->parallel;
    c.cpu_path = exl2__cpu_path_best();
    exl2_result result = exl2__compare_models_check_desc(&c, d);
    if (result >= 0) {
        c.host_bytes_max = d->host_bytes_max;
        result = exl2__compare_models_run(&m, out);
        exl2__arena_close(&c, &m.memory);
        exl2__runner_close(&m.b);
        exl2__runner_close(&m.a);
    }
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
