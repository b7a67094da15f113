/* asserts.c: the engine's asserts abort when their invariant is broken. Each case breaks one state on purpose in a
   child process, calls the function that must keep the invariant, and expects SIGABRT and the assert's file.
   takes: nothing.
   gives: exit code 0 when all checks hold. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#ifndef EXL2_ASSERT_SLOW
#define EXL2_ASSERT_SLOW
#endif
#include "private/heap.h"
#include "private/pool.h"
#include "private/forward.h"
#include "private/table.h"
#include "private/batch.h"
#include "private/events.h"
#include "private/step.h"

#include "../check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 8u
#define TOKENS (4u * EXL2__PAGE_TOKENS)

/* ---- a small pool of pages with one running job ---- */

typedef struct cache {
    exl2__pages pages;
    exl2__table table;
    uint32_t words[TOKENS], list[TOKENS];
} cache;

static cache running(void)
{
    static uint64_t memory[65536];
    static cache c;
    exl2__arena arena = { .base = (uint8_t *)memory, .size = sizeof memory };
    exl2__pages_make(&c.pages, &arena, PAGES);
    exl2__table_make(&c.table, c.words, c.list, 0);
    for (uint32_t i = 0; i < 100; i++) {
        exl2__table_append(&c.table, &c.pages, (exl2_token)i, false);
    }
    exl2__table_start(&c.table, &c.pages, 150, 0, 0);
    return c;
}

static void pages_add_up(bool broken)
{
    cache c = running();
    c.pages.used += broken;
    exl2__table_reserve(&c.table, &c.pages, 150);
}

static void promised_pages_exist(bool broken)
{
    cache c = running();
    c.pages.owed += broken ? PAGES + 1 : 0;
    exl2__table_release(&c.table, &c.pages, 100);
}

static void no_page_in_two_lists(bool broken)
{
    cache c = running();
    if (broken) {
        c.pages.free_list[0] = c.table.pages[0];
    }
    exl2__table_computed(&c.table, &c.pages, 100);
    exl2__table_release(&c.table, &c.pages, 100);
}

static void pages_were_promised(bool broken)
{
    cache c = running();
    exl2__table_reserve(&c.table, &c.pages, broken ? 200 : 150);
}

static void closed_pages_stay(bool broken)
{
    cache c = running();
    exl2__table_computed(&c.table, &c.pages, 100);
    exl2__table_close(&c.table, &c.pages, 100);
    exl2__table_cut(&c.table, &c.pages, 70, broken ? 30 : 70);
}

static void shared_page_is_not_written(bool broken)
{
    cache c = running();
    if (broken) {
        exl2__pages_pin(&c.pages, c.table.pages[1]);
    }
    exl2__table_set_sampled(&c.table, &c.pages);
}

/* ---- other parts ---- */

static void newest_generation(bool broken)
{
    uint64_t memory[64];
    exl2__arena arena = { .base = (uint8_t *)memory, .size = sizeof memory };
    exl2__pool pool;
    exl2__pool_make(&pool, &arena, 2);
    exl2__pool_alloc(&pool);
    pool.generations[0] += broken;
    exl2__pool_free(&pool, 0);
}

static void heap_has_keys(bool broken)
{
    uint64_t keys[4];
    exl2__heap heap = { keys, 0 };
    exl2__heap_push(&heap, 5);
    exl2__heap_push(&heap, 7);
    keys[1] = broken ? 3 : 7;
    exl2__heap_pop(&heap);
}

static void events_fit(bool broken)
{
    static uint64_t ring[EXL2__EVENTS_MIN / 8];
    exl2__events q = { .ring = (uint8_t *)ring, .size = sizeof ring };
    uint32_t owned = 0;
    exl2__events_reserve(&q, 8, 0, &owned);
    q.reserved -= broken ? 8 : 0;
    exl2__events_reserve_less(&q, 0, 0, &owned);
}

static void events_are_dropped_once(bool broken)
{
    static uint64_t ring[EXL2__EVENTS_MIN / 8];
    exl2__events q = { .ring = (uint8_t *)ring, .size = sizeof ring };
    exl2_event event = { .kind = EXL2_EVENT_DONE }, out;
    CHECK(exl2__events_push(&q, &event) && exl2__events_pull(&q, &out));
    q.reading += broken ? 8 : 0;
    exl2__events_pull(&q, &out);
}

static void phase_of_the_layer(bool broken)
{
    const exl2__phase phases[] = { broken ? EXL2__PHASE_settle : EXL2__PHASE_qkv };
    exl2__layer layer = { .phases = phases, .phase_count = 1 };
    exl2__plan plan = { .layers = &layer, .shape = { .layers = 1 } };
    exl2__forward f = { .plan = &plan, .phase = EXL2__PHASE_qkv, .active = true };
    exl2__forward_clock clock = { 0 };
    exl2__forward_status status;
    if (broken) {
        exl2__forward_unit(&f, &clock, &status);
    }
}

static void results_of_the_pass(bool broken)
{
    exl2__plan plan = { 0 };
    exl2__forward f = { .plan = &plan, .phase = EXL2__PHASE_COUNT, .step = { .logit_count = 4 }, .result_count = 2 };
    exl2__forward_status status;
    f.logit0 = broken ? 3 : 2;
    exl2__forward_run(&f, 0, true, &status);
}

static void one_job_of_a_session(bool broken)
{
    static exl2__session sessions[2];
    static exl2__job jobs[2];
    uint32_t live[2] = { 1, 0 }, jobs_live[2] = { 1, 1 };
    exl2_engine e = { .max_sessions = 2, .sessions = sessions, .jobs = jobs };
    e.session_ids = (exl2__pool){ .live = live, .capacity = 2, .end = 1 };
    e.job_ids = (exl2__pool){ .live = jobs_live, .capacity = 2, .end = 2 };
    sessions[0].job = 1;
    jobs[0].sequence.live = true;
    jobs[1].sequence.live = broken; /* of the same session */
    if (broken) {
        exl2__step_engine(&e, NULL);
    }
}

static void layout_is_its_dry_run(bool broken)
{
    uint64_t memory[64];
    exl2__arena arena = { .base = (uint8_t *)memory, .size = 128 };
    exl2__arena_alloc(&arena, broken ? 64 : 128);
    EXL2__ASSERT(exl2__arena_is_filled(&arena));
}

static const struct {
    const char *name, *file; /* file: where the assert stands */
    void (*run)(bool broken);
} cases[] = {
    { "pages_add_up", "pages.h", pages_add_up },
    { "promised_pages_exist", "table.h", promised_pages_exist },
    { "no_page_in_two_lists", "table.h", no_page_in_two_lists },
    { "pages_were_promised", "table.h", pages_were_promised },
    { "closed_pages_stay", "table.h", closed_pages_stay },
    { "shared_page_is_not_written", "table.h", shared_page_is_not_written },
    { "newest_generation", "pool.h", newest_generation },
    { "heap_has_keys", "heap.h", heap_has_keys },
    { "events_fit", "events.h", events_fit },
    { "events_are_dropped_once", "events.h", events_are_dropped_once },
    { "phase_of_the_layer", "forward.h", phase_of_the_layer },
    { "results_of_the_pass", "forward.h", results_of_the_pass },
    { "one_job_of_a_session", "step.h", one_job_of_a_session },
    { "layout_is_its_dry_run", "asserts.c", layout_is_its_dry_run },
};

/* Runs a case in a child process; text: the end of what it wrote to stderr. Returns the status of waitpid. */
static int run_child(size_t number, bool broken, char *text, size_t room)
{
    int ends[2], status = 0;
    if (!CHECK(pipe(ends) == 0)) {
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        cases[number].run(broken);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used + 1 < room && (got = read(ends[0], text + used, room - 1 - used)) > 0;) {
        used += (size_t)got;
    }
    text[used] = 0;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        int status = run_child(i, false, text, sizeof text);
        if (!CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
            printf("%s, not broken: %s\n", cases[i].name, text);
        }
        status = run_child(i, true, text, sizeof text);
        bool aborts = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        if (!CHECK(aborts && strstr(text, "assertion failed") && strstr(text, cases[i].file))) {
            printf("%s, broken: status %d, %s\n", cases[i].name, status, text);
        }
    }
    return check_done();
}
#else
#include "../check.h"

int main(void)
{
    check_skip("no fork");
}
#endif
