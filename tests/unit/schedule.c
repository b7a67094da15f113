/* schedule.c: which sequences start and which get rows: priority, order, a limit on overtaking, decoding before
   prompts, small pieces of prompts together with decoding sequences, or in turn with them if rows are of two kinds.
   takes: nothing.
   gives: main. */
#include "../../exl2.h"

#include "private/schedule.h"
#include "../check.h"

#define COUNT 6u
#define PAGES 16u
#define CONTEXT 1024u

static exl2__pages pages;
static uint32_t words[COUNT][CONTEXT], lists[COUNT][CONTEXT / EXL2__PAGE_TOKENS];
static exl2_token prompts[COUNT][CONTEXT];
static exl2__table tables[COUNT];
static exl2__sequence memory[COUNT], *all[COUNT];
static exl2__page_copy copies[PAGES];
static uint32_t copy_count;
static exl2__row_kind last;

static void open_all(void)
{
    static uint64_t block[PAGES * 64];
    exl2__arena arena = { .base = (uint8_t *)block, .size = sizeof block };
    exl2__pages_make(&pages, &arena, PAGES);
    copy_count = 0;
    last = EXL2__ROWS_MIXED;
    for (uint32_t i = 0; i < COUNT; i++) {
        exl2__table_make(&tables[i], words[i], lists[i], 0);
        memory[i] = (exl2__sequence){ 0 };
        all[i] = &memory[i];
    }
}

/* A waiting sequence with a prompt, which also wants `new_tokens`. */
static exl2__sequence *queue(uint32_t i, uint32_t prompt_count, uint32_t new_tokens, int32_t priority)
{
    static uint64_t order;
    memory[i] = (exl2__sequence){ 0 };
    memory[i].live = true;
    memory[i].table = &tables[i];
    for (uint32_t k = 0; k < prompt_count; k++) {
        prompts[i][k] = (exl2_token)(k + 1000 * i); /* no two share a page */
    }
    memory[i].prompt = (const uint32_t *)prompts[i];
    memory[i].prompt_count = prompt_count;
    memory[i].tokens_end = prompt_count + new_tokens;
    memory[i].priority = priority;
    memory[i].order = order++;
    return &memory[i];
}

static void start(exl2__sequence *s)
{
    exl2__schedule_start(s, all, COUNT, &pages);
}

static exl2__sequence *next(void)
{
    exl2__schedule_room room = { &pages, 16 };
    return exl2__schedule_next(all, COUNT, &room);
}

static uint32_t rows(uint32_t rows_max, uint32_t prompt_rows_max, uint32_t sequences_max)
{
    exl2__schedule_limits limits = { .kind = last, .rows = rows_max, .prompt_rows = prompt_rows_max,
                                     .sequences = sequences_max, .sampled_rows = 8 };
    exl2__schedule_kind(all, COUNT, &pages, last, &limits);
    last = limits.kind;
    return exl2__schedule_rows(all, COUNT, &pages, &limits, copies, &copy_count);
}

/* The sequence has computed all that was pending and sampled a token. */
static void speak(exl2__sequence *s)
{
    exl2__table_computed(s->table, &pages, exl2__sequence_pending(s));
    exl2__table_append(s->table, &pages, 1, true);
}

static void finish(exl2__sequence *s)
{
    exl2__table_release(s->table, &pages, s->table->tokens);
    exl2__table_rewind(s->table, &pages, 0);
    *s = (exl2__sequence){ 0 };
}

static void starts_by_priority_then_order(void)
{
    open_all();
    exl2__sequence *first = queue(0, 10, 10, 0), *second = queue(1, 10, 10, 0), *urgent = queue(2, 10, 10, 5);
    exl2__sequence *wanted[] = { urgent, first, second };
    for (size_t i = 0; i < EXL2__COUNT(wanted); i++) {
        CHECK(next() == wanted[i]);
        start(wanted[i]);
        CHECK(wanted[i]->active && wanted[i]->prompt_end == 10);
    }
    CHECK(next() == NULL);
}

/* A sequence that does not fit is overtaken a limited number of times; then no other may start before it. */
static void overtaking_has_an_end(void)
{
    open_all();
    exl2__sequence *holder = queue(0, 64, 0, 0);
    start(holder);
    exl2__sequence *big = queue(1, 64, 64 * (PAGES - 1), 0);
    uint32_t passed = 0;
    for (; passed < 100; passed++) {
        queue(2, 10, 10, 0);
        exl2__sequence *s = next();
        if (!s) {
            break;
        }
        CHECK(s == &memory[2]);
        start(s);
        finish(s);
    }
    CHECK_INT(passed, EXL2__SCHEDULE_SKIPS_MAX);
    finish(holder);
    CHECK(next() == big);
}

/* Tokens that joined a history without being sampled are rows of the next pass. Where several sequences have many of
   them, no one gets more than its share of the rows. */
static void rows_are_shared_out(void)
{
    open_all();
    exl2__sequence *a = queue(0, 10, 40, 0), *b = queue(1, 10, 40, 0);
    start(a);
    start(b);
    for (uint32_t i = 0; i < 12; i++) { /* after a's prompt, which is not computed yet: they are rows of its prompt */
        exl2__table_append(a->table, &pages, 1, true);
    }
    CHECK(!exl2__sequence_decodes(a));
    CHECK_INT(exl2__sequence_unscored(a), 9);
    CHECK_INT(rows(512, 15, 16), 15);
    CHECK_INT(a->rows, 15);
    exl2__table_computed(a->table, &pages, 10);
    CHECK(exl2__sequence_decodes(a));
    CHECK_INT(exl2__sequence_unscored(a), 0);
    speak(b);
    CHECK_INT(rows(512, 512, 16), 12 + 1);
    CHECK_INT(rows(16, 16, 16), 8 + 1);
    CHECK(a->rows == 8 && b->rows == 1);
    CHECK_INT(rows(1, 1, 16), 1);
    a->draft_count = b->draft_count = 3; /* drafts come after all pending rows, and as far as there is room */
    CHECK_INT(rows(512, 512, 16), 12 + 3 + 1 + 3);
    CHECK_INT(rows(16, 16, 16), 8 + 1 + 3);
    CHECK(a->draft_count == 0 && b->draft_count == 3 && b->rows == 4);
}

/* The pages of a prompt and of the new tokens are promised at once, so an active sequence never lacks a page; those of
   the new tokens are taken later. */
static void pages_are_promised(void)
{
    open_all();
    exl2__sequence *s = queue(0, 65, 64 * 3, 0);
    start(s);
    CHECK_INT(PAGES - exl2__pages_room(&pages), 5);
    CHECK_INT(pages.used, 2);
    queue(1, 64 * 12, 0, 0);
    CHECK(next() == NULL);
    finish(s);
    CHECK(next() == &memory[1]);
}

static void rows_go_to_speakers_first(void)
{
    open_all();
    exl2__sequence *speaker = queue(0, 10, 40, -1), *reader = queue(1, 300, 10, 9), *late = queue(2, 20, 10, 0);
    start(speaker);
    start(reader);
    start(late);
    /* all rows of all prompts, because no sequence decodes yet */
    CHECK_INT(rows(512, 512, 16), 330);
    speak(speaker);
    CHECK_INT(rows(512, 512, 16), 1 + EXL2__SCHEDULE_MIXED_ROWS);
    CHECK_INT(speaker->rows, 1);
    CHECK_INT(reader->rows, EXL2__SCHEDULE_MIXED_ROWS); /* priority decides among the prompts */
    CHECK_INT(late->rows, 0);
    CHECK_INT(rows(512, 8, 16), 1 + 8); /* the budget allows 8 prompt rows */
    CHECK_INT(rows(512, 512, 1), 1);    /* a pass for one sequence */
    speaker->held = true;
    CHECK_INT(rows(100, 512, 16), 100); /* the row limit of a pass */
    CHECK_INT(speaker->rows, 0);
    CHECK_INT(reader->rows, 100);
}

/* An empty prompt on a history that is completely cached: the last token is computed again for its logits. */
static void nothing_new_still_gives_a_row(void)
{
    open_all();
    exl2__sequence *s = queue(0, 30, 0, 0);
    start(s);
    exl2__table_computed(s->table, &pages, 30);
    exl2__table_release(s->table, &pages, 30);
    exl2__sequence *again = queue(0, 0, 10, 0);
    again->keep = 30;
    again->tokens_end = 40;
    start(again);
    CHECK_INT(rows(512, 512, 16), 1);
    CHECK_INT(again->table->cached, 29);
}

/* A prompt that gets no rows because others have a higher priority gets some after 8 passes. */
static void no_prompt_waits_for_ever(void)
{
    open_all();
    exl2__sequence *speaker = queue(0, 10, 300, 0), *low = queue(1, 100, 0, -5), *high = queue(2, 500, 0, 5);
    start(speaker);
    start(low);
    start(high);
    speak(speaker);
    for (uint32_t pass = 0; pass < 3 * (EXL2__SCHEDULE_MISSED_MAX + 1) && low->table->cached < 30; pass++) {
        bool turn = pass % (EXL2__SCHEDULE_MISSED_MAX + 1) == EXL2__SCHEDULE_MISSED_MAX;
        CHECK_INT(rows(512, 10, 16), 11);
        CHECK_INT(low->rows, turn ? 10 : 0);
        CHECK_INT(high->rows, turn ? 0 : 10);
        exl2__table_computed(low->table, &pages, low->rows);
        exl2__table_computed(high->table, &pages, high->rows);
        speak(speaker);
    }
    CHECK_INT(low->table->cached, 30);
}

/* Rows of two kinds never share a pass. The kinds take turns, with at most 64 rows of prompts between two passes that
   decode. */
static void kinds_take_turns(void)
{
    open_all();
    pages.sampled = EXL2__WORD_SAMPLED;
    exl2__sequence *speaker = queue(0, 10, 40, 0), *reader = queue(1, 300, 10, 9);
    start(speaker);
    start(reader);
    CHECK_INT(rows(512, 512, 16), 310);
    CHECK_INT(last, EXL2__ROWS_PROMPT);
    speak(speaker);
    for (uint32_t turn = 0; turn < 4; turn++) {
        CHECK_INT(rows(512, 512, 16), turn % 2 ? EXL2__SCHEDULE_MIXED_ROWS : 1);
        CHECK_INT(last, turn % 2 ? EXL2__ROWS_PROMPT : EXL2__ROWS_SAMPLED);
        CHECK_INT(speaker->rows, !(turn % 2));
        CHECK_INT(reader->rows, turn % 2 ? EXL2__SCHEDULE_MIXED_ROWS : 0);
        if (turn % 2) {
            exl2__table_computed(reader->table, &pages, reader->rows);
        } else {
            speak(speaker);
        }
    }
    CHECK_INT(reader->passes_missed, 0); /* turns of the other kind do not count */
    reader->held = true;
    for (uint32_t i = 0; i < 11; i++) {
        exl2__table_append(speaker->table, &pages, 1, true);
    }
    CHECK_INT(rows(512, 512, 16), 8);
    speaker->draft_count = 3; /* no row is left for them */
    CHECK_INT(rows(512, 512, 16), 8);
    CHECK_INT(speaker->draft_count, 0);
}

/* A history that is computed again: each word in rows of its kind. */
static void words_say_how_they_are_computed(void)
{
    open_all();
    pages.sampled = EXL2__WORD_SAMPLED;
    exl2__table *t = &tables[0];
    for (uint32_t i = 0; i < 62; i++) {
        exl2__table_append(t, &pages, (exl2_token)i, i >= 20 && i < 32);
    }
    exl2__sequence *s = queue(0, 3, 10, 0);
    s->keep = 62;
    s->tokens_end = 75;
    start(s);
    for (uint32_t i = 0; i < 32; i += s->rows) {
        CHECK_INT(rows(512, 512, 16), i < 20 ? 20 : i < 28 ? 8 : 4);
        CHECK_INT(last, i < 20 ? EXL2__ROWS_PROMPT : EXL2__ROWS_SAMPLED);
        exl2__table_computed(t, &pages, s->rows);
    }
    CHECK_INT(rows(512, 512, 16), 33);
    CHECK_INT(last, EXL2__ROWS_PROMPT);
}

static uint32_t make_room(void)
{
    exl2__schedule_room room = { &pages, 16 };
    return exl2__schedule_make_room(all, COUNT, &pages, &room);
}

/* Sequences give way to one of a higher priority: a held one first, then the lowest priority, then the newest; no more
   than it needs, and none if it would not fit all the same. Each keeps its history, and gets 16 tokens in peace. */
static void lower_ones_give_way(void)
{
    open_all();
    exl2__sequence *a = queue(0, 64, 192, 1), *b = queue(1, 64, 192, 1), *c = queue(2, 64, 192, 0);
    exl2__sequence *held = queue(3, 64, 192, 2);
    start(a);
    start(b);
    start(c);
    start(held);
    held->held = true;
    CHECK_INT(exl2__pages_room(&pages), 0);
    exl2__sequence *equal = queue(4, 64, 0, 0);
    CHECK(make_room() == 0 && next() == NULL); /* no one has a lower priority */
    equal->priority = 9;
    CHECK(make_room() == 1 && !held->active && held->begun && held->table->tokens == 64 && next() == equal);
    finish(equal);
    held->held = false;
    CHECK(next() == held);
    start(held);
    CHECK(held->active && held->prompt_end == 64 && held->table->tokens == 64);
    exl2__sequence *large = queue(4, 64 * 8, 0, 9);
    CHECK(make_room() == 2 && !c->active && !b->active && a->active && held->active && next() == large);
    start(large);
    exl2__sequence *huge = queue(5, 64 * 16, 0, 9);
    CHECK(make_room() == 0 && a->active); /* it would not fit */
    finish(huge);
    finish(large);
    start(b);
    start(c);
    queue(4, 64 * 8, 0, 9);
    CHECK(make_room() == 0); /* b, c and held have just begun again */
    for (uint32_t i = 0; i < EXL2__SCHEDULE_UNDISTURBED; i++) {
        exl2__table_reserve(c->table, &pages, c->table->tokens + 1);
        speak(c);
    }
    CHECK(make_room() == 2 && !c->active && !a->active && c->table->tokens == 64 + EXL2__SCHEDULE_UNDISTURBED);
}

int main(void)
{
    starts_by_priority_then_order();
    overtaking_has_an_end();
    pages_are_promised();
    rows_go_to_speakers_first();
    rows_are_shared_out();
    nothing_new_still_gives_a_row();
    no_prompt_waits_for_ever();
    kinds_take_turns();
    words_say_how_they_are_computed();
    lower_ones_give_way();
    return check_done();
}
