/* batch.h: combines rows of several sequences into the step of one forward pass, and lists the rows that want logits.
   takes: sequences with their numbers of rows, page copies.
   gives: exl2__batch, exl2__batch_make, exl2__batch_fill, exl2__batch_drop_sequence, exl2__batch_next.
   owns:  nothing; its arrays lie in the model's scratch arena, and are valid until the pass has ended. */
#ifndef EXL2__BATCH_H
#define EXL2__BATCH_H

#include "../0_base/half.h"
#include "sequence.h"

typedef struct exl2__batch {
    exl2__step_row *rows;          /* [rows_max] */
    exl2__logit_row *logits;       /* [rows_max] */
    uint16_t *logit_owner;         /* [rows_max] index of the sequence in the list given to exl2__batch_fill */
    uint64_t *logit_order;         /* [rows_max] its `order`, because another sequence may get the same index */
    const uint32_t **page_tables;  /* [sequences_max] */
    uint32_t *page_table_memory;   /* [sequences_max, pages_per_table] copies, as sessions may change during a pass */
    exl2_token *history;           /* [sequences_max, context_max] for penalties */
    exl2_bias *extras;             /* [sequences_max, EXL2__LOGIT_EXTRAS_MAX] */
    exl2__page_copy *copies;       /* [pages] */
    uint32_t *masks;               /* [sequences_max, words of one bit per token] */
    uint32_t copy_count, logit_count, pages_per_table, context_max;
} exl2__batch;

static inline void exl2__batch_make(exl2__batch *b, exl2__arena *arena, const exl2__plan *plan)
{
    b->copy_count = b->logit_count = 0;
    b->context_max = plan->context_max;
    b->pages_per_table = exl2__pages_for(plan->context_max);
    b->rows = (exl2__step_row *)exl2__arena_alloc(arena, (uint64_t)plan->rows_max * sizeof *b->rows);
    b->logits = (exl2__logit_row *)exl2__arena_alloc(arena, (uint64_t)plan->rows_max * sizeof *b->logits);
    b->logit_owner = (uint16_t *)exl2__arena_alloc(arena, (uint64_t)plan->rows_max * sizeof *b->logit_owner);
    b->logit_order = (uint64_t *)exl2__arena_alloc(arena, (uint64_t)plan->rows_max * sizeof *b->logit_order);
    b->page_tables =
        (const uint32_t **)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * sizeof *b->page_tables);
    b->page_table_memory =
        (uint32_t *)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * b->pages_per_table * sizeof(uint32_t));
    b->history =
        (exl2_token *)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * plan->context_max * sizeof(exl2_token));
    uint64_t extras = (uint64_t)plan->sequences_max * EXL2__LOGIT_EXTRAS_MAX;
    b->extras = (exl2_bias *)exl2__arena_alloc(arena, extras * sizeof *b->extras);
    b->copies = (exl2__page_copy *)exl2__arena_alloc(arena, (uint64_t)plan->pages * sizeof *b->copies);
    uint64_t words = (uint64_t)plan->sequences_max * exl2__bit_words(plan->shape.vocab);
    b->masks = (uint32_t *)exl2__arena_alloc(arena, words * sizeof *b->masks);
}

/* The row's own list of biases: DRY penalties, then end tokens that a minimum length bans, and tokens that were tried
   at this position before. `history` [count]: the tokens that DRY looks at. */
static inline void exl2__batch_extras(exl2__batch *b, const exl2__sequence *s, uint32_t sequence,
                                      const exl2_token *history, uint32_t count, exl2__logit_row *logit)
{
    exl2_bias *extras = b->extras + (size_t)sequence * EXL2__LOGIT_EXTRAS_MAX;
    uint32_t used = s->dry.multiplier > 0 ? exl2__dry_find(&s->dry, history, count, extras) : 0;
    const float never = exl2__minus_infinity();
    for (uint32_t i = 0; i < s->end_count && exl2__sequence_is_short(s); i++) {
        extras[used++] = (exl2_bias){ s->ends[i], never };
    }
    for (uint32_t i = 0; i < s->tried_count && s->tried_at == s->table->tokens; i++) {
        extras[used++] = (exl2_bias){ s->tried[i], never };
    }
    logit->extras = extras;
    logit->extra_count = used;
    logit->attempt = s->attempt;
}

/* Copies the most recent tokens, which penalties look at, to the sequence's part of b->history, and sets the row's
   history and extras. */
static inline void exl2__batch_history(exl2__batch *b, const exl2__sequence *s, uint32_t sequence,
                                       exl2__logit_row *logit)
{
    uint32_t tokens = s->table->tokens, dry = s->dry.multiplier <= 0 ? 0 : s->dry.range ? s->dry.range : tokens;
    uint32_t count = s->penalty_range < 0 ? tokens : exl2__min32((uint32_t)s->penalty_range, tokens);
    uint32_t read = exl2__max32(count, exl2__min32(dry, tokens));
    exl2_token *history = b->history + (size_t)sequence * b->context_max;
    exl2__table_read(s->table, tokens - read, read, history);
    exl2__batch_extras(b, s, sequence, history, read, logit);
    logit->history = history + (read - count);
    logit->history_count = count;
    logit->history_max = s->penalty_range < 0 ? s->tokens_end : exl2__min32((uint32_t)s->penalty_range, s->tokens_end);
}

/* Length of the history that the sequence's present pages hold: passes may be repeated up to there. */
static inline uint32_t exl2__batch_covered(const exl2__sequence *s)
{
    return exl2__min32(s->tokens_end, s->table->page_count * EXL2__PAGE_TOKENS);
}

/* Makes a step of the sequences' rows. The logits at position p predict token p + 1: from the last pending row a token
   is sampled; the earlier rows of a scored prompt give the log-probability of the token after them. */
static inline void exl2__batch_fill(exl2__batch *b, exl2__sequence *const *all, uint32_t count, exl2__step *step)
{
    uint32_t rows = 0, logits = 0, sequences = 0, sampled = 0;
    bool masked = false;
    for (uint32_t owner = 0; owner < count; owner++) {
        exl2__sequence *s = all[owner];
        if (!s->live || s->rows == 0) {
            continue;
        }
        uint32_t *table = b->page_table_memory + (size_t)sequences * b->pages_per_table;
        memcpy(table, s->table->pages, s->table->page_count * sizeof *table);
        b->page_tables[sequences] = table;
        for (uint32_t i = 0; i < s->rows; i++) {
            uint32_t position = s->table->cached + i;
            b->rows[rows] = (exl2__step_row){ exl2__table_token(s->table, position), position, sequences };
            bool last = position + 1 == s->table->tokens;
            bool of_prompt = position + 1 >= exl2__sequence_begin(s) && position >= s->computed_end;
            exl2__logit_row logit = { 0 };
            logit.row = rows++;
            logit.alts = s->alts;
            if (!last && s->score_prompt && of_prompt) {
                logit.use = EXL2__LOGIT_SCORE;
                logit.target = exl2__table_token(s->table, position + 1);
            } else if (last && !s->prefill_only) {
                logit.use = s->fetches_logits ? EXL2__LOGIT_FETCH : EXL2__LOGIT_SAMPLE;
                logit.sampling = &s->sampling;
                logit.mask = s->mask;
                masked |= s->mask != NULL;
                logit.sample_position = s->table->tokens;
                logit.left = exl2__batch_covered(s) - s->table->tokens;
                exl2__batch_history(b, s, sequences, &logit);
            } else {
                continue;
            }
            b->logit_owner[logits] = (uint16_t)owner;
            b->logit_order[logits] = s->order;
            b->logits[logits++] = logit;
            sampled += logit.use != EXL2__LOGIT_SCORE;
        }
        sequences++;
    }
    b->logit_count = logits;
    *step = (exl2__step){ b->rows, rows, sequences, b->page_tables, b->copies, b->copy_count, b->logits, logits,
                          sampled == rows && sampled == sequences && rows > 0, masked };
    b->copy_count = 0;
}

/* For a row whose result is not needed any more: it stays in the pass, but refers to nothing that its owner has
   (sampler, biases), and its result is ignored. */
static inline void exl2__batch_drop_row(exl2__logit_row *row)
{
    *row = (exl2__logit_row){ .row = row->row, .use = EXL2__LOGIT_SCORE, .mask = row->mask };
}

/* Drops the rows of a sequence that has ended during the pass. */
static inline void exl2__batch_drop_sequence(exl2__batch *b, uint32_t owner)
{
    for (uint32_t i = 0; i < b->logit_count; i++) {
        if (b->logit_owner[i] == owner) {
            exl2__batch_drop_row(&b->logits[i]);
        }
    }
}

/* Moves the rows of a decode pass by one position, for its repetition. Sequences that continue get their row, the rows
   of other sequences are dropped. Returns the number of sequences that continue. */
static inline uint32_t exl2__batch_next(exl2__batch *b, exl2__sequence *const *all)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < b->logit_count; i++) {
        exl2__sequence *s = all[b->logit_owner[i]];
        bool continues = b->logits[i].use == EXL2__LOGIT_SAMPLE && b->logits[i].left > 1;
        bool same = s->live && s->active && s->order == b->logit_order[i];
        if (!continues || !same || s->held || exl2__sequence_pending(s) != 1) {
            exl2__batch_drop_row(&b->logits[i]);
            continue;
        }
        b->rows[i].position++;
        b->logits[i].sample_position++;
        b->logits[i].left--;
        s->rows = 1;
        s->mask_due = s->mask != NULL;
        rows++;
    }
    return rows;
}

#endif
