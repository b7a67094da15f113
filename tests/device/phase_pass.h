/* phase_pass.h: the passes of the phase tests: rows at positions that cross pages and splits, and their logit rows.
   takes: made_step.h.
   gives: passes, make_step; sizes of a made_step. */
#ifndef PHASE_PASS_H
#define PHASE_PASS_H

#define CONTEXT 2304u
#define PAGES 47u /* prime, so that page numbers are scattered */
#define ROWS_MAX 130u
#define SEQUENCES_MAX 16u
#define LOGITS_MAX 64u

#include "../unit/made_step.h"

typedef struct pass {
    made_rows sequence[SEQUENCES_MAX]; /* sequences without rows come last */
    bool copies;
} pass;

/* A page has 64 tokens. A split has 128 tokens, or a 16th of the context if that is more. */
static const pass passes[] = {
    { { { 0, 1 } }, true },
    { { { 1000, 1 } }, false },
    { { { 2303, 1 } }, false }, /* 16 splits of 192 */
    { { { 63, 1 }, { 64, 1 } }, false },
    { { { 62, 2 } }, true },
    { { { 127, 1 }, { 128, 1 }, { 129, 1 } }, false },
    { { { 0, 3 } }, false },
    { { { 120, 7 } }, false },
    { { { 5, 1 }, { 62, 5 }, { 700, 1 } }, true }, /* single rows around a prompt */
    { { { 0, 1 }, { 63, 1 }, { 64, 1 }, { 127, 1 }, { 128, 1 }, { 191, 1 }, { 511, 1 }, { 1100, 1 } }, false },
    { { { 60, 8 } }, false },
    { { { 10, 4 }, { 511, 1 }, { 512, 1 }, { 0, 3 } }, false },
    { { { 55, 17 } }, true },
    { { { 100, 20 }, { 40, 1 }, { 300, 12 } }, false },
    { { { 0, 33 } }, false },
    { { { 1023, 65 } }, false },
    { { { 31, 97 } }, false },
    { { { 500, 100 }, { 9, 1 }, { 64, 29 } }, true },
    { { { 0, 130 } }, false },
};

/* Asks for the logits of a row, which in turn are sampled with all filters, sampled greedily, and scored. */
static inline void make_logits(made_step *m, uint32_t row)
{
    uint32_t i = m->step.logit_count++;
    bool score = i % 3 == 2 && !m->step.repeats;
    CHECK(i < LOGITS_MAX);
    m->logits[i] = (exl2__logit_row){ .row = row, .use = score ? EXL2__LOGIT_SCORE : EXL2__LOGIT_SAMPLE,
                                      .target = m->rows[row].token, .alts = 3,
                                      .sampling = i % 3 ? &m->greedy : &m->sampling,
                                      .sample_position = m->rows[row].position + 1,
                                      .history = &m->rows[row].token, .history_count = 1, .history_max = 1,
                                      .left = 1 };
}

/* Whether every row is the only one of its sequence. */
static inline bool pass_is_single(const pass *p)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < SEQUENCES_MAX; i++) {
        most = p->sequence[i].rows > most ? p->sequence[i].rows : most;
    }
    return most == 1;
}

/* A step of the kind. If it may repeat, every logit row is sampled. */
static inline void make_step(made_step *m, const synth_shape *s, const pass *p, exl2__row_kind kind)
{
    made_step_place(m, p->sequence, s->vocab, p->copies);
    m->bias[0] = (exl2_bias){ (exl2_token)(s->vocab / 2), 2.5f };
    m->bias[1] = (exl2_bias){ 3, -4 };
    m->sampling = (exl2__sampling){ .temperature = 0.9f, .top_k = 40, .top_p = 0.8f, .min_p = 0.01f,
                                    .repeat_penalty = 1.1f, .seed = 77, .bias = m->bias, .bias_count = 2 };
    m->greedy = (exl2__sampling){ .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    m->step.kind = kind;
    m->step.decodes = kind == EXL2__ROWS_SAMPLED && m->step.row_count <= 12; /* then every row has logits */
    m->step.repeats = m->step.decodes && pass_is_single(p);
    for (uint32_t row = 0; row < m->step.row_count; row += 1 + m->step.row_count / 12) {
        make_logits(m, row);
    }
}

#endif
