/* schedule.h: decides which sequences may start, which are preempted, and how many rows each gets in the next pass.
   takes: the sequences of a model, its pages, the row limit that a budget allows.
   gives: exl2__schedule_room, exl2__schedule_limits, exl2__schedule_next, _make_room, _outranks, _start, _grow,
          _slide, _preempt, _demand, _demand_all, _kind, _rows. */
#ifndef EXL2__SCHEDULE_H
#define EXL2__SCHEDULE_H

#include "sequence.h"

#define EXL2__SCHEDULE_SKIPS_MAX 4   /* a waiting sequence that was skipped this often is the next to start */
#define EXL2__SCHEDULE_MIXED_ROWS 64 /* prompt rows between two passes that decode, or in a pass that also decodes: long
                                        prompts delay decoding little */
#define EXL2__SCHEDULE_MISSED_MAX 8  /* a prompt without rows in this many passes comes next, whatever its priority */
#define EXL2__SCHEDULE_UNDISTURBED 16 /* a preempted sequence gets this many tokens before it is preempted again */

/* What a sequence needs to start: pages, and a place in the batch. */
typedef struct exl2__schedule_room {
    const exl2__pages *pages;
    uint32_t places;
} exl2__schedule_room;

/* Prompts that missed too many passes, then the higher priority, then the earlier start. */
static inline bool exl2__schedule_before(const exl2__sequence *a, const exl2__sequence *b)
{
    bool late_a = a->passes_missed >= EXL2__SCHEDULE_MISSED_MAX, late_b = b->passes_missed >= EXL2__SCHEDULE_MISSED_MAX;
    return late_a != late_b ? late_a : exl2__sequence_before(a, b);
}

/* The first sequence for which `wanted` is true, or NULL. */
static inline exl2__sequence *exl2__schedule_first(exl2__sequence *const *all, uint32_t count,
                                                   bool (*wanted)(const exl2__sequence *s, const void *arg),
                                                   const void *arg)
{
    exl2__sequence *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i]->live && wanted(all[i], arg) && (!first || exl2__schedule_before(all[i], first))) {
            first = all[i];
        }
    }
    return first;
}

/* ---- starts ---- */

/* Number of pages of the pool's room that starting the sequence uses. */
static inline uint32_t exl2__schedule_demand(const exl2__sequence *s, const exl2__pages *p)
{
    exl2__table_text text = exl2__sequence_text(s);
    return exl2__table_demand(p, &text, exl2__sequence_shared(s, text.tokens), exl2__sequence_reuse(s, text.tokens),
                              exl2__sequence_promise(s, text.tokens));
}

/* The same for both sequences of a pair, which start together. With parts of pages the first start may take what the
   second one would have shared, so nothing of it counts. */
static inline uint32_t exl2__schedule_demand_all(const exl2__sequence *s, const exl2__pages *p)
{
    uint32_t demand = 0;
    for (const exl2__sequence *a = s; a; a = a->negative) {
        bool alone = !s->negative || p->windows.count == 0;
        uint32_t tokens = exl2__sequence_text(a).tokens;
        demand += alone ? exl2__schedule_demand(a, p) : exl2__pages_for(exl2__sequence_promise(a, tokens));
    }
    return demand;
}

/* Number of parts of pages that are promised with it. */
static inline uint32_t exl2__schedule_parts(const exl2__sequence *s, const exl2__pages *p)
{
    uint32_t each = exl2__windows_each(p->windows.window);
    return exl2__min32(each, exl2__pages_for(s->tokens_end)) + (s->negative ? exl2__schedule_parts(s->negative, p) : 0);
}

/* Not the negative sequence of a pair, which starts with the positive one. */
static inline bool exl2__schedule_is_waiting(const exl2__sequence *s, const void *arg)
{
    (void)arg;
    return !s->active && !s->held && !s->positive;
}

static inline bool exl2__schedule_fits(const exl2__sequence *s, const void *arg)
{
    const exl2__schedule_room *room = (const exl2__schedule_room *)arg;
    return exl2__schedule_is_waiting(s, NULL) && room->places > (s->negative != NULL)
        && exl2__windows_fits(&room->pages->windows, exl2__schedule_parts(s, room->pages))
        && exl2__schedule_demand_all(s, room->pages) <= exl2__pages_room(room->pages);
}

static inline bool exl2__schedule_starves(const exl2__sequence *s, const void *arg)
{
    return exl2__schedule_is_waiting(s, arg) && s->skips >= EXL2__SCHEDULE_SKIPS_MAX;
}

/* The waiting sequence that may start now, or NULL. A sequence that does not fit may be skipped
   EXL2__SCHEDULE_SKIPS_MAX times; then no other sequence starts before it. */
static inline exl2__sequence *exl2__schedule_next(exl2__sequence *const *all, uint32_t count,
                                                  const exl2__schedule_room *room)
{
    exl2__sequence *starved = exl2__schedule_first(all, count, exl2__schedule_starves, NULL);
    if (starved) {
        return exl2__schedule_fits(starved, room) ? starved : NULL;
    }
    return exl2__schedule_first(all, count, exl2__schedule_fits, room);
}

/* Appends the prompt to the history, unless that was done before, and gets the pages. */
static inline void exl2__schedule_start(exl2__sequence *s, exl2__sequence *const *all, uint32_t count,
                                        exl2__pages *pages)
{
    exl2__table *t = s->table;
    for (uint32_t i = 0; i < count; i++) {
        if (all[i]->live && exl2__schedule_is_waiting(all[i], NULL) && exl2__sequence_before(all[i], s)) {
            all[i]->skips++;
        }
    }
    exl2__table_forget(t, pages);
    if (!s->begun) {
        exl2__table_keep(t, pages, s->keep);
        exl2__table_append_words(t, pages, s->prompt, s->prompt_count);
        exl2__vectors_drop(pages->vectors, s->prompt, s->prompt_count);
        s->prompt_end = s->final_end = t->tokens;
        s->begun = true;
    }
    exl2__table_start(t, pages, exl2__sequence_promise(s, t->tokens), exl2__sequence_shared(s, t->tokens),
                      exl2__sequence_reuse(s, t->tokens));
    exl2__table_promise_windows(t, pages, s->tokens_end);
    s->active = true;
}

/* ---- preemption ---- */

/* The sequence waits again. Its pages become cache; its history stays. */
static inline void exl2__schedule_preempt(exl2__sequence *s, exl2__pages *pages)
{
    exl2__table_release(s->table, pages, s->table->tokens);
    exl2__table_remember(s->table, pages);
    s->active = false;
    s->passes_missed = 0;
    s->preempt_from = s->table->tokens + EXL2__SCHEDULE_UNDISTURBED;
}

/* The running sequence that gives way before all others: held ones, the lowest priority, the newest. With `s` it gives
   way to that one, so its priority is lower, and it was not disturbed just before. */
static inline exl2__sequence *exl2__schedule_least(exl2__sequence *const *all, uint32_t count, const exl2__sequence *s)
{
    exl2__sequence *least = NULL;
    for (uint32_t i = 0; i < count; i++) {
        exl2__sequence *a = all[i];
        bool may = a->live && a->active && !a->positive && !a->leaving;
        may = may && (!s || (a->priority < s->priority && (a->held || a->table->tokens >= a->preempt_from)));
        if (may && (!least || (a->held != least->held ? a->held : exl2__sequence_before(least, a)))) {
            least = a;
        }
    }
    return least;
}

/* Counts the sequence's pages as released, or takes that back. */
static inline void exl2__schedule_leave(exl2__sequence *s, exl2__pages *pages, exl2__schedule_room *room, bool leaving)
{
    s->leaving = leaving;
    (leaving ? exl2__table_unpin_all : exl2__table_pin_all)(s->table, pages);
    room->places += leaving ? 1 : UINT32_MAX;
    if (s->negative) {
        exl2__schedule_leave(s->negative, pages, room, leaving);
    }
}

/* If the first waiting sequence does not fit, preempts sequences of a lower priority, but only if it fits then. Returns
   the number of sequences preempted; those of a pair count as one. */
static inline uint32_t exl2__schedule_make_room(exl2__sequence *const *all, uint32_t count, exl2__pages *pages,
                                                exl2__schedule_room *room)
{
    const exl2__sequence *s = exl2__schedule_first(all, count, exl2__schedule_is_waiting, NULL);
    exl2__sequence *least;
    uint32_t preempted = 0;
    if (!s || exl2__schedule_fits(s, room)) {
        return 0;
    }
    while (!exl2__schedule_fits(s, room) && (least = exl2__schedule_least(all, count, s)) != NULL) {
        exl2__schedule_leave(least, pages, room, true);
    }
    bool fits = exl2__schedule_fits(s, room);
    for (uint32_t i = 0; i < count; i++) { /* all have their pages again before the first gives up shared ones */
        if (all[i]->live && all[i]->leaving && !all[i]->positive) {
            exl2__schedule_leave(all[i], pages, room, false);
            all[i]->leaving = fits;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__sequence *a = all[i]->live && all[i]->leaving ? all[i] : NULL;
        preempted += a != NULL;
        for (; a; a = a->negative) {
            exl2__schedule_preempt(a, pages);
            a->leaving = false;
            room->places++;
        }
    }
    return preempted;
}

/* ---- growth ---- */

#define EXL2__SCHEDULE_AHEAD 32 /* forced tokens and drafts that a step may add before promises are looked at again */

/* Number of pages that an active sequence lacks for the next step; with a pair, those of both. */
static inline uint32_t exl2__schedule_lacks(const exl2__sequence *s)
{
    uint32_t wanted = exl2__pages_for(exl2__min32(s->tokens_end, s->table->tokens + EXL2__SCHEDULE_AHEAD));
    uint32_t promised = exl2__table_promised(s->table);
    return (wanted > promised ? wanted - promised : 0) + (s->negative ? exl2__schedule_lacks(s->negative) : 0);
}

static inline bool exl2__schedule_outgrew(const exl2__sequence *s, const void *arg)
{
    (void)arg;
    return s->active && !s->held && !s->positive && exl2__schedule_lacks(s) > 0;
}

/* Promises the sequence, and the other one of its pair, pages for `reserve` tokens more, or fewer if there are fewer;
   the room is enough for what they lack. */
static inline void exl2__schedule_promise(exl2__sequence *s, exl2__pages *pages)
{
    for (exl2__sequence *a = s; a; a = a->negative) {
        uint32_t rest = a->negative ? exl2__schedule_lacks(a->negative) : 0;
        uint32_t wanted = exl2__pages_for(exl2__sequence_promise(a, a->table->tokens));
        uint32_t most = exl2__table_promised(a->table) + exl2__pages_room(pages) - rest;
        exl2__table_promise(a->table, pages, exl2__min32(wanted, most));
    }
}

/* Promises pages to the sequences that outgrew what they were promised, the first ones first. If the pool has too few,
   the last active sequences are preempted, which may be the one that grows: so the first one always gets on. Returns
   the number of sequences preempted. */
static inline uint32_t exl2__schedule_grow(exl2__sequence *const *all, uint32_t count, exl2__pages *pages,
                                           exl2__schedule_room *room)
{
    exl2__sequence *s;
    uint32_t preempted = 0;
    while ((s = exl2__schedule_first(all, count, exl2__schedule_outgrew, NULL)) != NULL) {
        if (exl2__schedule_lacks(s) <= exl2__pages_room(pages)) {
            exl2__schedule_promise(s, pages);
            continue;
        }
        for (exl2__sequence *last = exl2__schedule_least(all, count, NULL); last; last = last->negative) {
            exl2__schedule_preempt(last, pages);
            room->places++;
        }
        preempted++;
    }
    return preempted;
}

/* Preempts the sequences that cannot go on where they are, as parts of pages that their next rows see were given away:
   after a rewind over many tokens, or where the job is gone that they followed. They start again, and compute these
   anew. Returns the number of sequences preempted. */
static inline uint32_t exl2__schedule_slide(exl2__sequence *const *all, uint32_t count, exl2__pages *pages)
{
    uint32_t preempted = 0;
    for (uint32_t i = 0; i < count && pages->windows.count > 0; i++) {
        exl2__sequence *s = all[i];
        if (!s->live || !s->active) {
            continue;
        }
        exl2__table_sync(s->table, pages);
        if (!exl2__table_slide(s->table, pages)) {
            for (s = s->positive ? s->positive : s; s; s = s->negative) {
                exl2__schedule_preempt(s, pages);
                preempted++;
            }
        }
    }
    return preempted;
}

/* Does a waiting sequence have a higher priority than one that runs? Then it may be about to preempt it. */
static inline bool exl2__schedule_outranks(exl2__sequence *const *all, uint32_t count)
{
    const exl2__sequence *s = exl2__schedule_first(all, count, exl2__schedule_is_waiting, NULL);
    return s && exl2__schedule_least(all, count, s) != NULL;
}

/* ---- rows of a pass ---- */

/* Is only the last row pending? With guidance, both sequences must be ready before a token is sampled. */
static inline bool exl2__schedule_ready(const exl2__sequence *s)
{
    return !s->held && exl2__sequence_pending(s) == 1;
}

/* What the next pass may have. */
typedef struct exl2__schedule_limits {
    exl2__row_kind kind;        /* rows of any kind, or of one */
    uint32_t rows, prompt_rows, sequences;
    uint32_t sampled_rows;      /* of kind SAMPLED, unless more sequences than that have a row each */
    uint32_t picture_rows;      /* besides, of a picture whose rows see each other */
    uint32_t lora_rows;         /* rows with adapters have passes of their own, of at most this many sampled rows; 0:
                                   they share passes */
    uint8_t *lora_turn;         /* [EXL2__ROWS_SAMPLED + 1] of each kind of rows: exl2__lora_rows of the last pass */
} exl2__schedule_limits;

/* Whether an active sequence decodes. With one kind of rows: only the rows of its newest tokens are pending. With two:
   its next rows are of sampled tokens, also of old ones whose K and V have to be computed again. */
static inline bool exl2__schedule_decodes(const exl2__sequence *s, const exl2__pages *p)
{
    uint32_t pending = exl2__sequence_pending(s);
    return p->sampled ? pending > 0 && s->table->words[s->table->cached] & p->sampled
                      : exl2__sequence_decodes(s) && pending <= EXL2__SEQUENCE_DRAFT_MAX + 1;
}

/* Whether the sequence can have rows in the next pass, and has none yet. */
static inline bool exl2__schedule_can_run(const exl2__sequence *s)
{
    const exl2__sequence *pair = exl2__sequence_pair(s);
    uint32_t pending = s->active ? exl2__sequence_pending(s) : 0;
    bool may_run = !pair || pending > 1 || exl2__schedule_ready(pair);
    bool waits = s->held || s->drafting || s->blocked || s->pictured || s->apart;
    return !waits && s->rows == 0 && pending > s->leaves_last && may_run;
}

static inline bool exl2__schedule_is_prompt(const exl2__sequence *s, const void *pages)
{
    return exl2__schedule_can_run(s) && !exl2__schedule_decodes(s, (const exl2__pages *)pages);
}

static inline bool exl2__schedule_is_decoding(const exl2__sequence *s, const void *pages)
{
    return exl2__schedule_can_run(s) && exl2__schedule_decodes(s, (const exl2__pages *)pages);
}

/* Both sequences of a pair have their last row in the same pass, so the two are of one kind. */
static inline void exl2__schedule_match_pair(exl2__sequence *s, exl2__pages *p)
{
    exl2__sequence *other = s->negative;
    if (other && s->active && exl2__sequence_pending(s) == 1 && exl2__sequence_pending(other) == 1
        && exl2__schedule_decodes(s, p) != exl2__schedule_decodes(other, p)) {
        exl2__table_set_sampled(s->table, p);
        exl2__table_set_sampled(other->table, p);
    }
}

/* Begins the planning of a pass. With two kinds of rows, passes of the two take turns while both have rows, with few
   rows of prompts between passes that decode. last: the kind of the pass before. */
static inline void exl2__schedule_kind(exl2__sequence *const *all, uint32_t count, exl2__pages *pages,
                                       exl2__row_kind last, exl2__schedule_limits *limits)
{
    pages->pass++;
    for (uint32_t i = 0; i < count; i++) {
        all[i]->rows = 0;
        all[i]->blocked = all[i]->apart = false;
        if (all[i]->live && all[i]->active) {
            exl2__table_sync(all[i]->table, pages);
            exl2__table_close(all[i]->table, pages, all[i]->final_end - 1);
            all[i]->blocked = !exl2__table_slide(all[i]->table, pages);
        }
    }
    for (uint32_t i = 0; i < count && pages->sampled; i++) {
        exl2__schedule_match_pair(all[i], pages);
    }
    bool prompts = exl2__schedule_first(all, count, exl2__schedule_is_prompt, pages) != NULL;
    bool decodes = exl2__schedule_first(all, count, exl2__schedule_is_decoding, pages) != NULL;
    limits->kind = !pages->sampled ? EXL2__ROWS_MIXED
                 : decodes && (!prompts || last != EXL2__ROWS_SAMPLED) ? EXL2__ROWS_SAMPLED : EXL2__ROWS_PROMPT;
    limits->prompt_rows = decodes ? exl2__min32(limits->prompt_rows, EXL2__SCHEDULE_MIXED_ROWS) : limits->prompt_rows;
}

/* Where rows see each other, a picture's rows are in one pass. Returns the number of rows that the sequence gets:
   those of the picture that is next, if *picture_rows has room for them; or those before the next picture, at most
   `rows`. first: the pass has no rows yet. With two kinds of rows a picture has a pass of its own: so the bits of its
   rows depend on nothing else. */
static inline uint32_t exl2__schedule_whole(const exl2__table *t, const exl2__pages *pages, uint32_t rows, bool first,
                                            uint32_t *picture_rows)
{
    const exl2__pictures *pictures = pages->vectors ? &pages->vectors->pictures : NULL;
    if (!pictures || !pictures->whole || pictures->live == 0) {
        return rows;
    }
    uint32_t next = t->words[t->cached];
    if (exl2__pictures_is(next)) {
        uint32_t need = exl2__pictures_later(pictures, next) + 1;
        bool fits = need <= *picture_rows && (first || !pages->sampled);
        *picture_rows -= fits ? need : 0;
        return fits ? need : 0;
    }
    for (uint32_t i = 1; i < rows; i++) {
        if (exl2__pictures_is(t->words[t->cached + i])) {
            return i;
        }
    }
    return rows;
}

/* Gives the sequence rows, at most `limit`, after K and V that other pages have were found. Page copies are appended to
   copies[]. Returns the number of its rows; 0: it waits for another sequence. */
static inline uint32_t exl2__schedule_give(exl2__sequence *s, exl2__pages *pages, uint32_t limit, bool first,
                                           uint32_t *picture_rows, exl2__page_copy *copies, uint32_t *copy_count)
{
    exl2__table *t = s->table;
    bool pair = exl2__sequence_pair(s) != NULL, copied = false;
    if (exl2__sequence_pending(s) > 1) {
        uint32_t reuse = exl2__sequence_copied(s, t->tokens);
        reuse = s->picture_at ? exl2__min32(reuse, s->picture_at - 1) : reuse;
        reuse = exl2__min32(reuse, t->cached + exl2__table_run(t, pages) - 1); /* a row of this kind follows the copy */
        exl2__page_copy *parts = pages->windows.count ? &pages->windows.copies[*copy_count] : NULL;
        if (!exl2__table_borrow(t, pages, reuse, &copies[*copy_count], parts, &copied)) {
            s->blocked = true;
            return 0;
        }
        *copy_count += copied;
    }
    uint32_t pending = exl2__sequence_pending(s);
    s->rows = exl2__min32((pair && pending > 1) || s->leaves_last ? pending - 1 : pending, limit);
    s->rows = exl2__min32(s->rows, exl2__table_run(t, pages));
    s->rows = s->rows_most ? exl2__min32(s->rows, s->rows_most) : s->rows;
    s->rows = s->picture_at ? exl2__min32(s->rows, s->picture_at - t->cached) : s->rows;
    s->rows = exl2__schedule_whole(t, pages, s->rows, first, picture_rows);
    if (s->rows == 0) {
        s->blocked = true;
        return 0;
    }
    uint32_t promised = exl2__table_promised(t) * EXL2__PAGE_TOKENS;
    exl2__table_reserve(t, pages, exl2__min32(exl2__min32(s->tokens_end, promised), t->tokens + EXL2__PAGE_TOKENS));
    exl2__table_mark(t, pages, s->rows);
    s->draft_count = s->rows == pending ? exl2__min32(s->draft_count, limit - s->rows) : 0;
    s->rows += s->draft_count;
    bool repeats = s->rows == 1 && pending == 1; /* such a pass may go on to the end of the table's pages */
    exl2__table_see(t, pages, exl2__pages_for(t->cached + (repeats ? EXL2__PAGE_TOKENS : s->rows) + 1));
    return s->rows;
}

/* What adapters of a pass's rows add to. */
typedef enum exl2__lora_rows {
    EXL2__LORA_ROWS_NONE, EXL2__LORA_ROWS_PLAIN, EXL2__LORA_ROWS_EXPERTS, EXL2__LORA_ROWS_COUNT
} exl2__lora_rows;

/* Rows of prompts have passes of their own if their adapters add to routers or experts, as these passes have other
   products with experts. */
static inline exl2__lora_rows exl2__schedule_lora_rows(const exl2__sequence *s, exl2__row_kind kind)
{
    return !exl2__sequence_is_adapted(s)                                    ? EXL2__LORA_ROWS_NONE
           : kind != EXL2__ROWS_SAMPLED && exl2__sequence_adapts_experts(s) ? EXL2__LORA_ROWS_EXPERTS
                                                                            : EXL2__LORA_ROWS_PLAIN;
}

/* Rows with adapters, and rows without, take turns. Sets `apart` of the sequences that have none in this pass, and
   returns the most rows of it. */
EXL2__PRIVATE uint32_t exl2__schedule_loras(exl2__sequence *const *all, uint32_t count, const exl2__pages *pages,
                                            const exl2__schedule_limits *limits)
{
    bool any[EXL2__LORA_ROWS_COUNT] = { false };
    if (limits->lora_rows == 0) {
        return limits->rows;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool decodes = all[i]->live && all[i]->active && exl2__schedule_decodes(all[i], pages);
        bool kind = limits->kind == EXL2__ROWS_MIXED || decodes == (limits->kind == EXL2__ROWS_SAMPLED);
        any[exl2__schedule_lora_rows(all[i], limits->kind)] |= all[i]->live && kind && exl2__schedule_can_run(all[i]);
    }
    uint32_t turn = limits->lora_turn[limits->kind], left = EXL2__LORA_ROWS_COUNT;
    do {
        turn = (turn + 1) % EXL2__LORA_ROWS_COUNT;
    } while (!any[turn] && --left > 0);
    turn = any[turn] ? turn : EXL2__LORA_ROWS_NONE;
    limits->lora_turn[limits->kind] = (uint8_t)turn;
    for (uint32_t i = 0; i < count; i++) {
        all[i]->apart = (uint32_t)exl2__schedule_lora_rows(all[i], limits->kind) != turn; /* enums of MSVC are signed */
    }
    bool few = turn != EXL2__LORA_ROWS_NONE && limits->kind == EXL2__ROWS_SAMPLED;
    return few ? exl2__min32(limits->rows, limits->lora_rows) : limits->rows;
}

/* After exl2__schedule_kind, sets the rows of every sequence for the next pass: first those of each that decodes, of
   which no one gets more than its share, then prompt rows by priority. Returns the number of rows. */
static inline uint32_t exl2__schedule_rows(exl2__sequence *const *all, uint32_t count, exl2__pages *pages,
                                           const exl2__schedule_limits *limits, exl2__page_copy *copies,
                                           uint32_t *copy_count)
{
    uint32_t rows = 0, sequences = 0, decoding = 0, rows_max = exl2__schedule_loras(all, count, pages, limits);
    uint32_t picture_rows = limits->picture_rows;
    for (uint32_t i = 0; i < count; i++) {
        decoding += !all[i]->apart && all[i]->live && all[i]->active && exl2__schedule_decodes(all[i], pages);
    }
    if (limits->kind == EXL2__ROWS_SAMPLED) {
        rows_max = exl2__min32(rows_max, exl2__max32(limits->sampled_rows, decoding));
    }
    for (uint32_t round = 0; round < 2; round++) {
        bool decodes = round == 0;
        uint32_t limit = decodes ? rows_max : exl2__min32(rows_max, rows + limits->prompt_rows);
        exl2__sequence *s;
        while (limits->kind != (decodes ? EXL2__ROWS_PROMPT : EXL2__ROWS_SAMPLED) && rows < limit
               && sequences < limits->sequences
               && (s = exl2__schedule_first(all, count, decodes ? exl2__schedule_is_decoding
                                                                : exl2__schedule_is_prompt, pages)) != NULL) {
            exl2__sequence *pair = exl2__sequence_pair(s);
            bool sampled = pair && exl2__sequence_pending(s) == 1; /* the rows of both sequences go into this pass */
            if (sampled && (rows + 2 > rows_max || sequences + 2 > limits->sequences)) {
                break;
            }
            uint32_t most = decodes ? exl2__min32(limit - rows, exl2__max32(rows_max / decoding, 1)) : limit - rows;
            uint32_t before = picture_rows;
            uint32_t given = exl2__schedule_give(s, pages, most, rows == 0, &picture_rows, copies, copy_count);
            if (sampled) {
                given += exl2__schedule_give(pair, pages, 1, false, &picture_rows, copies, copy_count);
            }
            rows += given;
            uint32_t beside = exl2__min32(before - picture_rows, given); /* rows of a picture have room of their own */
            rows_max += beside;
            limit += beside;
            sequences += (given > 0 ? 1u : 0u) + sampled;
            if (beside > 0 && pages->sampled) { /* a picture's pass */
                limit = rows;
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__sequence *s = all[i];
        bool missed = rows > 0 && s->live && s->active && !s->held && s->rows == 0 && exl2__sequence_pending(s) > 0;
        missed = missed && limits->kind != EXL2__ROWS_SAMPLED;
        s->passes_missed = missed ? s->passes_missed + 1 : s->rows ? 0 : s->passes_missed;
    }
    return rows;
}

#endif
