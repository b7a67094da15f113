/* schedule.h: decides which sequences may start, and how many rows each sequence gets in the next pass.
   takes: the sequences of a model, its pages, the row limit that a budget allows.
   gives: exl2__schedule_next, exl2__schedule_start, exl2__schedule_rows, exl2__schedule_demand.
   owns:  nothing. */
#ifndef EXL2__SCHEDULE_H
#define EXL2__SCHEDULE_H

#include "sequence.h"

#define EXL2__SCHEDULE_SKIPS_MAX 4   /* a waiting sequence that was skipped this often is the next to start */
#define EXL2__SCHEDULE_MIXED_ROWS 64 /* prompt rows in a pass that also decodes: long prompts delay decoding little */

/* The first sequence by priority and order for which `wanted` is true, or NULL. */
static inline exl2__sequence *exl2__schedule_first(exl2__sequence *const *all, uint32_t count,
                                                   bool (*wanted)(const exl2__sequence *s, const void *arg),
                                                   const void *arg)
{
    exl2__sequence *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i]->live && wanted(all[i], arg) && (!first || exl2__sequence_before(all[i], first))) {
            first = all[i];
        }
    }
    return first;
}

/* Number of free pages that starting the sequence needs, in addition to those that rewinding to `keep` frees. */
static inline uint32_t exl2__schedule_demand(const exl2__sequence *s, const exl2__pages *p)
{
    exl2__table kept = *s->table;
    kept.tokens = exl2__min32(kept.tokens, s->keep);
    kept.cached = exl2__min32(kept.cached, kept.tokens);
    kept.page_count = exl2__min32(kept.page_count, exl2__pages_for(kept.tokens));
    uint32_t demand = exl2__table_demand(&kept, p, s->tokens_end), freed = 0;
    for (uint32_t i = kept.page_count; i < s->table->page_count; i++) {
        freed += p->users[s->table->pages[i]] == 1;
    }
    return demand - exl2__min32(demand, freed);
}

static inline bool exl2__schedule_fits(const exl2__sequence *s, const void *pages)
{
    const exl2__pages *p = (const exl2__pages *)pages;
    uint32_t negative = s->negative ? exl2__schedule_demand(s->negative, p) : 0;
    return !s->active && !s->held && !s->positive && exl2__schedule_demand(s, p) + negative <= p->free_count;
}

static inline bool exl2__schedule_starves(const exl2__sequence *s, const void *arg)
{
    (void)arg;
    return !s->active && !s->held && !s->positive && s->skips >= EXL2__SCHEDULE_SKIPS_MAX;
}

/* The waiting sequence that may start now, or NULL. A sequence whose pages do not fit may be skipped
   EXL2__SCHEDULE_SKIPS_MAX times; then no other sequence starts before it. */
static inline exl2__sequence *exl2__schedule_next(exl2__sequence *const *all, uint32_t count, const exl2__pages *pages)
{
    exl2__sequence *starved = exl2__schedule_first(all, count, exl2__schedule_starves, NULL);
    if (starved) {
        return exl2__schedule_fits(starved, pages) ? starved : NULL;
    }
    return exl2__schedule_first(all, count, exl2__schedule_fits, pages);
}

/* Reserves the pages and appends the prompt to the history. Copies of shared pages are appended to copies[]. */
static inline void exl2__schedule_start(exl2__sequence *s, exl2__sequence *const *all, uint32_t count,
                                        exl2__pages *pages, exl2__page_copy *copies, uint32_t *copy_count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (all[i]->live && !all[i]->active && !all[i]->held && exl2__sequence_before(all[i], s)) {
            all[i]->skips++;
        }
    }
    exl2__table_rewind(s->table, pages, s->keep);
    if (s->prompt_count == 0 && s->table->cached == s->table->tokens) {
        s->table->cached--; /* compute the last token again, for its logits */
    }
    exl2__table_reserve(s->table, pages, s->tokens_end, copies, copy_count);
    for (uint32_t i = 0; i < s->prompt_count; i++) {
        exl2__table_append(s->table, pages, s->prompt[i]);
    }
    s->prompt_end = s->table->tokens;
    s->active = true;
}

/* Is only the last row pending? With guidance, both sequences must be ready before a token is sampled. */
static inline bool exl2__schedule_ready(const exl2__sequence *s)
{
    return !s->held && exl2__sequence_pending(s) == 1;
}

static inline bool exl2__schedule_no_rows_yet(const exl2__sequence *s, const void *decodes)
{
    const exl2__sequence *pair = exl2__sequence_pair(s);
    bool may_run = !pair || exl2__sequence_pending(s) > 1 || exl2__schedule_ready(pair);
    return s->active && !s->held && s->rows == 0 && exl2__sequence_pending(s) > 0 && may_run
        && exl2__sequence_decodes(s) == *(const bool *)decodes;
}

/* Sets the rows of every sequence for the next pass: first those of each that decodes, of which no one gets more than
   its share, then prompt rows by priority, at most prompt_rows_max of them. In all at most rows_max rows and
   sequences_max sequences. Returns the number of rows. */
static inline uint32_t exl2__schedule_rows(exl2__sequence *const *all, uint32_t count, uint32_t rows_max,
                                           uint32_t prompt_rows_max, uint32_t sequences_max)
{
    uint32_t rows = 0, sequences = 0, decoding = 0;
    for (uint32_t i = 0; i < count; i++) {
        all[i]->rows = 0;
        decoding += all[i]->live && all[i]->active && !all[i]->held && exl2__sequence_decodes(all[i]);
    }
    for (uint32_t round = 0; round < 2; round++) {
        bool decodes = round == 0;
        uint32_t limit = rows_max;
        if (!decodes) {
            uint32_t prompt_rows = rows ? exl2__min32(prompt_rows_max, EXL2__SCHEDULE_MIXED_ROWS) : prompt_rows_max;
            limit = exl2__min32(rows_max, rows + prompt_rows);
        }
        exl2__sequence *s;
        while (rows < limit && sequences < sequences_max
               && (s = exl2__schedule_first(all, count, exl2__schedule_no_rows_yet, &decodes)) != NULL) {
            uint32_t pending = exl2__sequence_pending(s);
            exl2__sequence *pair = exl2__sequence_pair(s);
            bool sampled = pair && pending == 1; /* the rows of both sequences go into this pass */
            if (sampled && (rows + 2 > rows_max || sequences + 2 > sequences_max)) {
                break;
            }
            s->rows = exl2__min32(pair && pending > 1 ? pending - 1 : pending, limit - rows);
            s->rows = decodes ? exl2__min32(s->rows, exl2__max32(rows_max / decoding, 1)) : s->rows;
            s->rows = s->rows_most ? exl2__min32(s->rows, s->rows_most) : s->rows;
            s->draft_count = s->rows == pending ? exl2__min32(s->draft_count, limit - rows - s->rows) : 0;
            s->rows += s->draft_count;
            if (sampled) {
                pair->rows = 1;
            }
            rows += s->rows + sampled;
            sequences += 1u + sampled;
        }
    }
    return rows;
}

#endif
