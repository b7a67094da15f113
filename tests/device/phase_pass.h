/* phase_pass.h: the passes of the phase tests: rows at positions that cross pages and splits, their logits.
   takes: cpu_synth.h.
   gives: passes, made_step, make_step.
   owns:  nothing.
   next:  phase_rig.h */
#ifndef PHASE_PASS_H
#define PHASE_PASS_H

#include "../unit/cpu_synth.h"

#define CONTEXT 2304u
#define PAGES 47u /* prime: pages are handed out in a scattered order */
#define ROWS_MAX 130u
#define SEQUENCES_MAX 8u
#define LOGITS_MAX 24u

typedef struct pass {
    struct {
        uint32_t position, rows;
    } sequence[SEQUENCES_MAX]; /* the first ones have rows */
    bool copies;
} pass;

/* A page has 64 tokens, a split 128, or a 16th of the context where that is more. */
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

/* A step with all that it points to. */
typedef struct made_step {
    exl2__step step;
    exl2__step_row rows[ROWS_MAX];
    uint32_t table[SEQUENCES_MAX][CONTEXT / EXL2__PAGE_TOKENS];
    const uint32_t *tables[SEQUENCES_MAX];
    exl2__logit_row logits[LOGITS_MAX];
    exl2__sampling sampling, greedy;
    exl2_bias bias[2];
    bool is_context[PAGES][EXL2__PAGE_TOKENS]; /* positions before the pass's rows */
} made_step;

/* Later copies overwrite what earlier ones read, and read what earlier ones wrote. */
static const exl2__page_copy copies[] = { { 0, 12 }, { 5, 0 }, { 0, 11 }, { 11, 10 }, { 1, 11 }, { 2, 1 }, { 10, 2 } };

/* A row that wants logits: drawn by all filters, drawn greedily and scored in turns. */
static inline void make_logits(made_step *m, uint32_t row)
{
    uint32_t i = m->step.logit_count++;
    bool score = i % 3 == 2 && !m->step.decodes;
    CHECK(i < LOGITS_MAX);
    m->logits[i] = (exl2__logit_row){ .row = row, .use = score ? EXL2__LOGIT_SCORE : EXL2__LOGIT_DRAW,
                                      .target = m->rows[row].token, .alts = 3,
                                      .sampling = i % 3 ? &m->greedy : &m->sampling,
                                      .draw_position = m->rows[row].position + 1,
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

/* decodes: a step that says so of itself; every row draws. */
static inline void make_step(made_step *m, const synth_shape *s, const pass *p, bool decodes)
{
    uint32_t pages = 0, rows = 0;
    memset(m, 0, sizeof *m);
    m->bias[0] = (exl2_bias){ (exl2_token)(s->vocab / 2), 2.5f };
    m->bias[1] = (exl2_bias){ 3, -4 };
    m->sampling = (exl2__sampling){ .temperature = 0.9f, .top_k = 40, .top_p = 0.8f, .min_p = 0.01f,
                                    .repeat_penalty = 1.1f, .seed = 77, .bias = m->bias, .bias_count = 2 };
    m->greedy = (exl2__sampling){ .greedy = true, .temperature = 1, .top_p = 1, .repeat_penalty = 1 };
    for (uint32_t i = 0; i < SEQUENCES_MAX && p->sequence[i].rows; i++) {
        uint32_t first = p->sequence[i].position, end = first + p->sequence[i].rows;
        for (uint32_t t = 0; t < end; t++) {
            if (t % EXL2__PAGE_TOKENS == 0) {
                m->table[i][t / EXL2__PAGE_TOKENS] = pages++ * 7 % PAGES;
            }
            m->is_context[m->table[i][t / EXL2__PAGE_TOKENS]][t % EXL2__PAGE_TOKENS] = t < first;
        }
        for (uint32_t t = first; t < end; t++) {
            m->rows[rows++] = (exl2__step_row){ (exl2_token)(synth_bits() % s->vocab), t, i };
        }
        m->tables[i] = m->table[i];
        m->step.sequence_count = i + 1;
    }
    CHECK(pages <= PAGES && rows <= ROWS_MAX);
    m->step.decodes = decodes;
    for (uint32_t row = 0; row < rows; row += 1 + rows / 12) {
        make_logits(m, row);
    }
    m->step.rows = m->rows;
    m->step.row_count = rows;
    m->step.page_tables = m->tables;
    m->step.copies = copies;
    m->step.copy_count = p->copies ? (uint32_t)EXL2__COUNT(copies) : 0;
    m->step.logits = m->logits;
}

#endif
