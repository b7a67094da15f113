/* sample_draws.h: many samples of the chain against the chain in double. */
#ifndef SAMPLE_DRAWS_H
#define SAMPLE_DRAWS_H

#include "sample_reference.h"

/* Pearson's statistic of 200,000 samples, with sanitizers 20,000; p > 1e-4 by Wilson and Hilferty's normal
   approximation. */
static void check_draws(uint32_t vocab, double wide, exl2__sampling s, uint64_t seed)
{
    uint32_t draws = CHECK_SANITIZED ? 20000 : getenv("EXL2_TEST_ALL") ? 200000 : 50000;
    uint32_t classes = 0, pooled_hits = 0, impossible = 0;
    float *logits = take(vocab * sizeof *logits), *copy = take(vocab * sizeof *copy);
    double *p = take(vocab * sizeof *p);
    uint32_t *hits = take(vocab * sizeof *hits);
    void *scratch = take(exl2__sample_scratch_bytes(vocab));
    exl2_token history[20];
    fill_logits(logits, vocab, wide, seed);
    for (int i = 0; i < 20; i++) {
        history[i] = (exl2_token)(mix(&seed) % vocab);
    }
    candidate *c = take(vocab * sizeof *c);
    uint32_t count = reference(logits, vocab, &s, history, 20, false, c);
    memset(p, 0, vocab * sizeof *p);
    memset(hits, 0, vocab * sizeof *hits);
    for (uint32_t i = 0; i < count; i++) {
        p[c[i].id] = c[i].p;
    }
    s.seed = seed;
    exl2__logit_row row = { 0 };
    exl2__logit_result result = { 0 };
    row.sampling = &s;
    row.history = history;
    row.history_count = 20;
    for (uint32_t i = 0; i < draws; i++) {
        memcpy(copy, logits, vocab * sizeof *copy);
        row.sample_position = i;
        exl2__sample_row(exl2__cpu_path_best(), copy, vocab, &row, scratch, &result);
        hits[result.token]++;
    }
    double statistic = 0, pooled = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double wanted = p[i] * draws;
        impossible += p[i] <= 0 && hits[i] > 0;
        if (wanted < 8) {
            pooled += wanted;
            pooled_hits += hits[i];
        } else {
            classes++;
            statistic += (hits[i] - wanted) * (hits[i] - wanted) / wanted;
        }
    }
    if (pooled >= 8) {
        classes++;
        statistic += (pooled_hits - pooled) * (pooled_hits - pooled) / pooled;
    }
    CHECK_INT(impossible, 0);
    if (CHECK(classes > 1)) {
        double freedom = classes - 1, spread = 2 / (9 * freedom);
        CHECK((cbrt(statistic / freedom) - (1 - spread)) / sqrt(spread) < 3.719);
    }
    free(logits);
    free(copy);
    free(p);
    free(hits);
    free(scratch);
    free(c);
}

#endif
