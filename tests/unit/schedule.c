/* schedule.c: which sequences start and which get rows: priority, order, a limit on overtaking, decoding before
   prompts, small pieces of prompts together with decoding sequences.
   takes: nothing.
   gives: main.
   owns:  nothing. */
#include "../../exl2.h"

#include "../../exl2_impl/5_generate/schedule.h"
#include "../check.h"

#define COUNT 6u
#define PAGES 16u
#define CONTEXT 1024u

static exl2__pages pages;
static uint32_t users[PAGES], free_list[PAGES], lists[COUNT][CONTEXT / EXL2__PAGE_TOKENS];
static exl2_token tokens[PAGES * EXL2__PAGE_TOKENS], prompt[CONTEXT];
static exl2__table tables[COUNT];
static exl2__sequence memory[COUNT], *all[COUNT];
static exl2__page_copy copies[PAGES];
static uint32_t copy_count;

static void open_all(void)
{
    pages = (exl2__pages){ PAGES, PAGES, 0, users, free_list, tokens };
    memset(users, 0, sizeof users);
    copy_count = 0;
    for (uint32_t i = 0; i < PAGES; i++) {
        free_list[i] = i;
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        tables[i] = (exl2__table){ lists[i], 0, 0, 0 };
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
    memory[i].prompt = prompt;
    memory[i].prompt_count = prompt_count;
    memory[i].tokens_end = prompt_count + new_tokens;
    memory[i].priority = priority;
    memory[i].order = order++;
    return &memory[i];
}

static void start(exl2__sequence *s)
{
    exl2__schedule_start(s, all, COUNT, &pages, copies, &copy_count);
}

static exl2__sequence *next(void)
{
    return exl2__schedule_next(all, COUNT, &pages);
}

/* The sequence has computed all that was pending and sampled a token. */
static void speak(exl2__sequence *s)
{
    s->table->cached = s->table->tokens;
    exl2__table_append(s->table, &pages, 1);
}

static void finish(exl2__sequence *s)
{
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
        exl2__table_append(a->table, &pages, 1);
    }
    CHECK(!exl2__sequence_decodes(a));
    CHECK_INT(exl2__sequence_unscored(a), 9);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 15, 16), 15);
    CHECK_INT(a->rows, 15);
    a->table->cached = 10;
    CHECK(exl2__sequence_decodes(a));
    CHECK_INT(exl2__sequence_unscored(a), 0);
    speak(b);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 512, 16), 12 + 1);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 16, 16, 16), 8 + 1);
    CHECK(a->rows == 8 && b->rows == 1);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 1, 1, 16), 1);
}

/* The pages of a prompt and of the new tokens are reserved at once, so an active sequence never lacks a page. */
static void pages_are_reserved(void)
{
    open_all();
    exl2__sequence *s = queue(0, 65, 64 * 3, 0);
    start(s);
    CHECK_INT(PAGES - pages.free_count, 5);
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
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 512, 16), 330);
    speak(speaker);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 512, 16), 1 + EXL2__SCHEDULE_MIXED_ROWS);
    CHECK_INT(speaker->rows, 1);
    CHECK_INT(reader->rows, EXL2__SCHEDULE_MIXED_ROWS); /* priority decides among the prompts */
    CHECK_INT(late->rows, 0);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 8, 16), 1 + 8); /* the budget allows 8 prompt rows */
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 512, 1), 1);    /* a pass for one sequence */
    speaker->held = true;
    CHECK_INT(exl2__schedule_rows(all, COUNT, 100, 512, 16), 100); /* the row limit of a pass */
    CHECK_INT(speaker->rows, 0);
    CHECK_INT(reader->rows, 100);
}

/* An empty prompt on a history that is completely cached: the last token is computed again for its logits. */
static void nothing_new_still_gives_a_row(void)
{
    open_all();
    exl2__sequence *s = queue(0, 30, 0, 0);
    start(s);
    s->table->cached = 30;
    exl2__sequence *again = &memory[0];
    again->active = false;
    again->keep = 30;
    again->prompt_count = 0;
    again->tokens_end = 40;
    start(again);
    CHECK_INT(exl2__schedule_rows(all, COUNT, 512, 512, 16), 1);
    CHECK_INT(again->table->cached, 29);
}

int main(void)
{
    starts_by_priority_then_order();
    overtaking_has_an_end();
    pages_are_reserved();
    rows_go_to_speakers_first();
    rows_are_shared_out();
    nothing_new_still_gives_a_row();
    return check_done();
}
