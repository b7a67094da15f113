/* batch.h: combines rows of several sequences into the step of one forward pass, and lists the rows that want logits.
   takes: sequences with their numbers of rows, page copies.
   gives: exl2__batch, exl2__batch_make, exl2__batch_fill, exl2__batch_drop_sequence, exl2__batch_next.
   owns:  nothing; its arrays lie in the model's scratch arena, and are valid until the pass has ended. */
#ifndef EXL2__BATCH_H
#define EXL2__BATCH_H

#include "../0_base/half.h"
#include "sequence.h"

#define EXL2__BATCH_NOBODY UINT64_MAX

typedef struct exl2__batch {
    exl2__step_row *rows;          /* [rows_max] */
    exl2__logit_row *logits;       /* [rows_max] */
    uint16_t *logit_owner;         /* [rows_max] index of the sequence in the list given to exl2__batch_fill */
    uint64_t *logit_order;         /* [rows_max] its `order`, because another sequence may get the same index;
                                      EXL2__BATCH_NOBODY: no sequence needs the result */
    const uint32_t **page_tables;  /* [sequences_max] */
    uint32_t *page_table_memory;   /* [sequences_max, pages_per_table] copies, as sessions may change during a pass */
    const uint32_t **part_tables;  /* the same of the pages' window parts; NULL: pages have one part */
    uint32_t *part_table_memory;
    uint16_t *row_loras;           /* [rows_max] as in exl2__step; NULL: the model has neither adapters nor control
                                      vectors */
    exl2__lora_set *lora_sets;     /* [sequences_max] copies, as jobs may end during a pass */
    exl2_token *history;           /* [sequences_max, context_max] for penalties */
    exl2_bias *extras;             /* [sequences_max + drafts, EXL2__LOGIT_EXTRAS_MAX] */
    exl2__page_copy *copies;       /* [pages] */
    uint32_t *masks;               /* [sequences_max + drafts, mask_words] one bit per token */
    uint32_t mask_words;
    uint32_t copy_count, logit_count, pages_per_table, context_max;
} exl2__batch;

/* drafts: the most rows of a pass that are drafts. */
static inline void exl2__batch_make(exl2__batch *b, exl2__arena *arena, const exl2__plan *plan, uint32_t drafts)
{
    uint64_t sampled = (uint64_t)plan->sequences_max + drafts;
    b->copy_count = b->logit_count = 0;
    b->row_loras = NULL;
    b->part_tables = NULL;
    b->part_table_memory = NULL;
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
    if (plan->window_pages) {
        b->part_tables =
            (const uint32_t **)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * sizeof *b->part_tables);
        b->part_table_memory =
            (uint32_t *)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * b->pages_per_table * sizeof(uint32_t));
    }
    if (plan->lora_max || plan->steer_max) {
        b->row_loras = (uint16_t *)exl2__arena_alloc(arena, (uint64_t)plan->rows_max * sizeof *b->row_loras);
        b->lora_sets =
            (exl2__lora_set *)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * sizeof *b->lora_sets);
    }
    b->history =
        (exl2_token *)exl2__arena_alloc(arena, (uint64_t)plan->sequences_max * plan->context_max * sizeof(exl2_token));
    b->extras = (exl2_bias *)exl2__arena_alloc(arena, sampled * EXL2__LOGIT_EXTRAS_MAX * sizeof *b->extras);
    b->copies = (exl2__page_copy *)exl2__arena_alloc(arena, (uint64_t)plan->pages * sizeof *b->copies);
    b->mask_words = exl2__bit_words(plan->shape.vocab);
    b->masks = (uint32_t *)exl2__arena_alloc(arena, sampled * b->mask_words * sizeof *b->masks);
}

/* The row's own list of biases: DRY penalties, then end tokens that a minimum length bans, and tokens that were tried
   at this position before. `history` [count]: the tokens that DRY looks at. extras: [EXL2__LOGIT_EXTRAS_MAX] */
static inline void exl2__batch_extras(const exl2__sequence *s, uint32_t position, const exl2_token *history,
                                      uint32_t count, exl2_bias *extras, exl2__logit_row *logit)
{
    uint32_t used = s->dry.multiplier > 0 ? exl2__dry_find(&s->dry, history, count, extras) : 0;
    const float never = exl2__minus_infinity();
    for (uint32_t i = 0; i < s->end_count && exl2__sequence_is_short_at(s, position); i++) {
        extras[used++] = (exl2_bias){ s->ends[i], never };
    }
    for (uint32_t i = 0; i < s->tried_count && s->tried_at == position; i++) {
        extras[used++] = (exl2_bias){ s->tried[i], never };
    }
    logit->extras = extras;
    logit->extra_count = used;
    logit->attempt = s->attempt;
}

/* Copies the most recent tokens, which penalties look at, to the sequence's part of b->history, with the drafts after
   them. Penalties do not see vectors. Returns the number of tokens before the drafts. */
static inline uint32_t exl2__batch_read(exl2__batch *b, const exl2__sequence *s, uint32_t sequence)
{
    uint32_t tokens = s->table->tokens, dry = s->dry.multiplier <= 0 ? 0 : s->dry.range ? s->dry.range : tokens;
    uint32_t count = s->penalty_range < 0 ? tokens : exl2__min32((uint32_t)s->penalty_range, tokens);
    exl2_token *history = b->history + (size_t)sequence * b->context_max;
    uint32_t read = exl2__table_read_last(s->table, exl2__max32(count, exl2__min32(dry, tokens)), history);
    memcpy(history + read, s->draft, s->draft_count * sizeof *history);
    return read;
}

/* Length of the history that the sequence's present pages hold, with all parts: passes may be repeated up to there. */
static inline uint32_t exl2__batch_covered(const exl2__sequence *s)
{
    uint32_t parts = s->table->parts_promised > 0 ? s->table->seen_end : UINT32_MAX;
    return exl2__min32(s->tokens_end, exl2__min32(s->table->page_count, parts) * EXL2__PAGE_TOKENS);
}

/* Sets how a token is sampled from a row, `ahead` tokens after the history's end. `history`: what _read has copied.
   `number`: of this row among all from which tokens are sampled. */
static inline void exl2__batch_sample(exl2__batch *b, const exl2__sequence *s, const exl2_token *history, uint32_t read,
                                      uint32_t ahead, uint32_t number, exl2__logit_row *logit)
{
    uint32_t position = s->table->tokens + ahead, known = read + ahead;
    uint32_t count = s->penalty_range < 0 ? known : exl2__min32((uint32_t)s->penalty_range, known);
    logit->use = s->fetches_logits ? EXL2__LOGIT_FETCH : EXL2__LOGIT_SAMPLE;
    logit->sampling = &s->sampling;
    logit->sample_position = position;
    logit->left = exl2__batch_covered(s) - position;
    exl2__batch_extras(s, position, history, known, b->extras + (size_t)number * EXL2__LOGIT_EXTRAS_MAX, logit);
    logit->history = history + known - count;
    logit->history_count = count;
    logit->history_max = s->penalty_range < 0 ? s->tokens_end : exl2__min32((uint32_t)s->penalty_range, s->tokens_end);
}

/* The input of the row at `position`: a draft, a token of the history, or a vector, which lives until the history ends
   and so at least as long as anybody looks at what the row gives. */
static inline exl2__step_row exl2__batch_row(const exl2__sequence *s, const exl2__pages *pages, uint32_t position,
                                             uint32_t sequence, exl2__pictures_turner *turner)
{
    const exl2__table *t = s->table;
    exl2__step_row row = { .position = position, .sequence = sequence };
    const exl2__pictures *pictures = pages->vectors ? &pages->vectors->pictures : NULL;
    if (pictures && pictures->turns && pictures->live > 0) {
        exl2__pictures_turn(pictures, turner, t->words, t->tokens, position, row.turn);
    }
    if (position >= t->tokens) {
        row.token = s->draft[position - t->tokens];
    } else if (exl2__table_is_vector(t, position)) {
        row.token = -1;
        row.vector = exl2__vectors_data(pages->vectors, t->words[position]);
        row.later = pictures->whole ? exl2__pictures_later(pictures, t->words[position]) : 0;
    } else {
        row.token = exl2__table_token(t, position);
    }
    return row;
}

/* The number of the sequence's set, 1 + its index among the *count sets of the pass; 0: it has none. */
static inline uint16_t exl2__batch_loras(exl2__batch *b, const exl2__lora_set *set, uint32_t *count)
{
    uint32_t i = 0;
    while (set && i < *count && !exl2__lora_same(set, &b->lora_sets[i])) {
        i++;
    }
    if (set && i == *count) {
        b->lora_sets[(*count)++] = *set;
    }
    return (uint16_t)(set ? i + 1 : 0);
}

/* Lists the window parts of the table's pages. Rows see none of those before and after; these are 0. */
static inline void exl2__batch_parts(exl2__batch *b, const exl2__table *t, const exl2__pages *pages, uint32_t sequence)
{
    uint32_t *parts = b->part_table_memory + (size_t)sequence * b->pages_per_table;
    for (uint32_t i = 0; i < t->page_count; i++) {
        parts[i] = i >= t->seen && i < t->seen_end ? pages->windows.part[t->pages[i]] : 0;
    }
    b->part_tables[sequence] = parts;
}

/* A step that is being filled. */
typedef struct exl2__batch_filling {
    uint32_t rows, sequences, sets;
    uint32_t logits, needed, sampled, hidden; /* logit rows; those whose results a sequence needs; that sample a token;
                                                 that give hidden states */
    bool masked, tapped, adapted, steered; /* as in exl2__step */
    uint32_t read, masks;                  /* of the present sequence: what exl2__batch_read gave, UINT32_MAX = not yet
                                              called; masks in use */
} exl2__batch_filling;

/* Sets what the row at `position` gives. The logits at position p predict token p + 1: from the last pending row and
   from drafts a token is sampled; the earlier rows of a scored prompt give the log-probability of the token after them.
   Rows of an embedding give their hidden states instead. false: the sequence needs nothing of the row. */
static inline bool exl2__batch_want(exl2__batch *b, exl2__batch_filling *f, const exl2__sequence *s, uint32_t position,
                                    exl2__logit_row *logit)
{
    const exl2__table *t = s->table;
    uint32_t next = position + 1;
    if (s->pool != EXL2_EMBED_OFF && exl2__sequence_pools(s, position)) {
        logit->use = EXL2__LOGIT_HIDDEN;
        logit->layer = s->pool_layer;
        f->hidden++;
        f->tapped = f->tapped || s->pool_layer;
        return true;
    }
    if (next < t->tokens) {
        bool of_prompt = next >= exl2__sequence_begin(s) && position >= s->computed_end && next < s->prompt_end;
        bool scored = s->score_prompt && of_prompt && !exl2__table_is_vector(t, next);
        logit->target = scored ? exl2__table_token(t, next) : 0;
        return scored;
    }
    if (s->prefill_only || !exl2__sequence_samples_after(s, next - t->tokens)) {
        return false;
    }
    f->read = f->read == UINT32_MAX ? exl2__batch_read(b, s, f->sequences) : f->read;
    logit->mask = s->mask ? s->mask + (size_t)f->masks++ * b->mask_words : NULL;
    f->masked |= s->mask != NULL;
    exl2__batch_sample(b, s, b->history + (size_t)f->sequences * b->context_max, f->read, next - t->tokens,
                       f->sampled++, logit);
    return true;
}

/* Adds the rows of a sequence, which is number `owner` of the list. If a pass of sampled tokens has logits at all,
   every row has, so that it can run as a captured graph. */
static inline void exl2__batch_fill_sequence(exl2__batch *b, exl2__batch_filling *f, const exl2__sequence *s,
                                             uint32_t owner, const exl2__pages *pages, exl2__row_kind kind)
{
    exl2__pictures_turner turner = { 0 };
    uint32_t *table = b->page_table_memory + (size_t)f->sequences * b->pages_per_table;
    memcpy(table, s->table->pages, s->table->page_count * sizeof *table);
    b->page_tables[f->sequences] = table;
    if (b->part_tables) {
        exl2__batch_parts(b, s->table, pages, f->sequences);
    }
    uint16_t loras = exl2__batch_loras(b, s->loras, &f->sets);
    f->adapted = f->adapted || exl2__sequence_is_adapted(s);
    f->steered = f->steered || (s->loras && s->loras->steer_count > 0);
    f->read = UINT32_MAX;
    f->masks = 0;
    for (uint32_t i = 0; i < s->rows; i++) {
        uint32_t position = s->table->cached + i;
        exl2__logit_row logit = { .row = f->rows, .use = EXL2__LOGIT_SCORE, .alts = s->alts };
        b->rows[f->rows] = exl2__batch_row(s, pages, position, f->sequences, &turner);
        if (b->row_loras) {
            b->row_loras[f->rows] = loras;
        }
        f->rows++;
        bool needed = exl2__batch_want(b, f, s, position, &logit);
        if (!needed && kind != EXL2__ROWS_SAMPLED) {
            continue;
        }
        EXL2__ASSERT(logit.use != EXL2__LOGIT_HIDDEN || kind != EXL2__ROWS_SAMPLED); /* rows of a prompt */
        EXL2__ASSERT(f->logits == 0 || b->logits[f->logits - 1].row < logit.row);    /* as exl2__logit_row says */
        logit.alts = needed ? logit.alts : 0;
        b->logit_owner[f->logits] = (uint16_t)owner;
        b->logit_order[f->logits] = needed ? s->order : EXL2__BATCH_NOBODY;
        b->logits[f->logits++] = logit;
        f->needed += needed;
    }
    f->sequences++;
}

/* Makes a step of the sequences' rows. */
static inline void exl2__batch_fill(exl2__batch *b, exl2__sequence *const *all, uint32_t count,
                                    const exl2__pages *pages, exl2__row_kind kind, exl2__step *step)
{
    exl2__batch_filling f = { 0 };
    for (uint32_t owner = 0; owner < count; owner++) {
        if (all[owner]->live && all[owner]->rows > 0) {
            exl2__batch_fill_sequence(b, &f, all[owner], owner, pages, kind);
        }
    }
    b->logit_count = f.needed ? f.logits : 0;
    bool decodes = f.rows > 0 && kind != EXL2__ROWS_PROMPT && b->logit_count == f.rows && !f.hidden;
    *step = (exl2__step){ .rows = b->rows, .row_count = f.rows, .sequence_count = f.sequences,
                          .page_tables = b->page_tables, .copies = b->copies, .copy_count = b->copy_count,
                          .part_tables = b->part_tables, .part_copies = pages->windows.copies,
                          .logits = b->logits, .logit_count = b->logit_count, .kind = kind,
                          .row_loras = f.sets ? b->row_loras : NULL, .lora_sets = b->lora_sets,
                          .lora_set_count = f.sets, .adapted = f.adapted, .steered = f.steered,
                          .decodes = decodes,
                          .repeats = decodes && f.sampled == f.rows && f.sampled == f.sequences,
                          .masked = f.masked, .tapped = f.tapped };
    b->copy_count = 0;
}

/* For a row whose result is not needed any more: it stays in the pass, but refers to nothing that its owner has
   (sampler, biases), and its result is ignored. */
static inline void exl2__batch_drop_row(exl2__logit_row *row)
{
    exl2__logit_use use = row->use == EXL2__LOGIT_HIDDEN ? EXL2__LOGIT_HIDDEN : EXL2__LOGIT_SCORE;
    *row = (exl2__logit_row){ .row = row->row, .use = use, .mask = row->mask };
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
        s->mask_row = 0;
        rows++;
    }
    return rows;
}

#endif
