/* made_step.h: a step with all that it points to: pages and rows assigned to sequences; for tests of phases.
   takes: cpu_synth.h; the test's CONTEXT, PAGES (a prime), ROWS_MAX, SEQUENCES_MAX, LOGITS_MAX, defined before.
   gives: made_rows, made_step, made_copies, made_step_place. */
#ifndef MADE_STEP_H
#define MADE_STEP_H

#include "cpu_synth.h"

typedef struct made_rows { /* the rows of one sequence */
    uint32_t position, rows;
} made_rows;

typedef struct made_step {
    exl2__step step;
    exl2__step_row rows[ROWS_MAX];
    uint32_t table[SEQUENCES_MAX][CONTEXT / EXL2__PAGE_TOKENS];
    const uint32_t *tables[SEQUENCES_MAX];
    exl2__logit_row logits[LOGITS_MAX];
    exl2__sampling sampling, greedy;
    exl2_bias bias[2];
    bool is_context[PAGES][EXL2__PAGE_TOKENS]; /* positions before the step's rows */
} made_step;

/* Later copies overwrite what earlier ones read, and read what earlier ones wrote. */
static const exl2__page_copy made_copies[] = { { 0, 12 }, { 5, 0 }, { 0, 11 }, { 11, 10 }, { 1, 11 }, { 2, 1 },
                                               { 10, 2 } };

/* A zeroed step with the copies and with the rows of the sequences, up to the first sequence without rows: random
   tokens, on pages in a scattered order. It has no logits yet. */
static inline void made_step_place(made_step *m, const made_rows *sequence, uint32_t vocab, bool copies)
{
    uint32_t pages = 0, rows = 0;
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < SEQUENCES_MAX && sequence[i].rows; i++) {
        uint32_t first = sequence[i].position, end = first + sequence[i].rows;
        for (uint32_t t = 0; t < end; t++) {
            if (t % EXL2__PAGE_TOKENS == 0) {
                m->table[i][t / EXL2__PAGE_TOKENS] = pages++ * 7 % PAGES;
            }
            m->is_context[m->table[i][t / EXL2__PAGE_TOKENS]][t % EXL2__PAGE_TOKENS] = t < first;
        }
        for (uint32_t t = first; t < end; t++) {
            m->rows[rows++] = (exl2__step_row){ .token = (exl2_token)(synth_bits() % vocab), .position = t,
                                                 .sequence = i };
        }
        m->tables[i] = m->table[i];
        m->step.sequence_count = i + 1;
    }
    CHECK(pages <= PAGES && rows <= ROWS_MAX);
    m->step.rows = m->rows;
    m->step.row_count = rows;
    m->step.page_tables = m->tables;
    m->step.copies = made_copies;
    m->step.copy_count = copies ? (uint32_t)EXL2__COUNT(made_copies) : 0;
    m->step.logits = m->logits;
}

#endif
