/* sessions.c: histories and pages: open, fork with copy-on-write, rewind, trim, common prefix, what a session keeps after
   each kind of end, reservation and waiting. On a tiny model, by ids. */
#include "rig.h"

static exl2_token prompt[100];

static void make_prompt(void)
{
    for (int i = 0; i < 100; i++) {
        prompt[i] = (exl2_token)((i * 37 + 11) % 300);
    }
}

static exl2_session_info info_of(const rig *r, exl2_session s)
{
    exl2_session_info info = { 0 };
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
    return info;
}

static exl2_engine_stats stats_of(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats;
}

/* Runs a greedy job on the session and returns its results. */
static rig_said *say(const rig *r, exl2_session s, const exl2_token *ids, uint32_t count, uint32_t max_tokens)
{
    static rig_said saids[8];
    static int next;
    rig_said *said = &saids[next++ % 8];
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, ids, count, max_tokens, said);
    d.session = s;
    d.prefill_only = max_tokens == 0;
    rig_run(r, &d);
    CHECK_INT(said->done_events, 1);
    return said;
}

static void check_history(const rig *r, exl2_session s, const exl2_token *a, uint32_t na, const exl2_token *b,
                          uint32_t nb)
{
    exl2_token history[512];
    size_t need = 0;
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 512, &need), EXL2_OK);
    if (CHECK_INT(need, na + nb)) {
        CHECK(memcmp(history, a, na * sizeof *a) == 0);
        CHECK(nb == 0 || memcmp(history + na, b, nb * sizeof *b) == 0);
    }
}

static void going_on_equals_one_go(const rig *r)
{
    exl2_session whole, parts;
    exl2_session_open(r->engine, r->model, &whole);
    exl2_session_open(r->engine, r->model, &parts);
    rig_said *one = say(r, whole, prompt, 30, 20);
    say(r, parts, prompt, 13, 0);
    CHECK_INT(info_of(r, parts).tokens, 13);
    CHECK_INT(info_of(r, parts).tokens_cached, 13);
    say(r, parts, prompt + 13, 17, 0);
    rig_said *first = say(r, parts, NULL, 0, 5); /* no prompt: continues from the history */
    rig_said *rest = say(r, parts, NULL, 0, 15);
    CHECK_INT(first->count, 5);
    CHECK(memcmp(one->ids, first->ids, 5 * sizeof(exl2_token)) == 0);
    CHECK(memcmp(one->ids + 5, rest->ids, 15 * sizeof(exl2_token)) == 0);
    check_history(r, whole, prompt, 30, one->ids, 20);
    exl2_session_info info = info_of(r, whole);
    CHECK_INT(info.tokens, 50);
    CHECK_INT(info.tokens_cached, 49); /* K and V of the last token were never needed */
    CHECK_INT(info.pages, 1);
    CHECK_INT(exl2_session_close(r->engine, whole), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, parts), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, parts), EXL2_ERR_STALE);
    CHECK_INT(stats_of(r).pages_used, 0);
}

static void forks_share_until_written(const rig *r)
{
    exl2_session world, a, b;
    uint32_t cached = stats_of(r).pages_cached;
    exl2_session_open(r->engine, r->model, &world);
    say(r, world, prompt, 70, 0); /* one whole page and a part of the next */
    CHECK_INT(exl2_session_fork(r->engine, world, &a), EXL2_OK);
    CHECK_INT(exl2_session_fork(r->engine, world, &b), EXL2_OK);
    CHECK_INT(stats_of(r).pages_used, 0); /* no job runs */
    CHECK_INT(stats_of(r).pages_cached, cached + 2);
    CHECK_INT(info_of(r, a).pages_shared, 2);
    rig_said *from_a = say(r, a, prompt + 70, 5, 8);
    CHECK_INT(stats_of(r).pages_cached, cached + 3); /* `a` writes to a page of its own */
    CHECK_INT(info_of(r, a).pages_shared, 1);
    rig_said *from_b = say(r, b, prompt + 80, 5, 8);
    rig_said *from_world = say(r, world, prompt + 70, 5, 8);
    CHECK(memcmp(from_a->ids, from_world->ids, sizeof(exl2_token) * 8) == 0);
    exl2_session fresh;
    exl2_token ids[100];
    memcpy(ids, prompt, 70 * sizeof *ids);
    memcpy(ids + 70, prompt + 80, 5 * sizeof *ids);
    exl2_session_open(r->engine, r->model, &fresh);
    rig_said *alone = say(r, fresh, ids, 75, 8);
    CHECK(memcmp(from_b->ids, alone->ids, sizeof(exl2_token) * 8) == 0);
    exl2_session_close(r->engine, world);
    rig_said *more_a = say(r, a, NULL, 0, 4); /* `a` outlives the session that it was forked from */
    CHECK_INT(more_a->count, 4);
    exl2_session_close(r->engine, a);
    exl2_session_close(r->engine, b);
    exl2_session_close(r->engine, fresh);
    CHECK_INT(stats_of(r).pages_used, 0);
    CHECK_INT(stats_of(r).pages_shared, 0);
}

static void rewind_forgets(const rig *r)
{
    exl2_session s;
    exl2_session_open(r->engine, r->model, &s);
    rig_said *first = say(r, s, prompt, 66, 10);
    CHECK_INT(exl2_session_rewind(r->engine, s, 200), EXL2_ERR_ARG);
    CHECK_INT(exl2_session_rewind(r->engine, s, 66), EXL2_OK);
    rig_said *again = say(r, s, NULL, 0, 10);
    CHECK(memcmp(first->ids, again->ids, 10 * sizeof(exl2_token)) == 0);
    CHECK_INT(exl2_session_rewind(r->engine, s, 10), EXL2_OK);
    CHECK_INT(info_of(r, s).pages, 1);
    CHECK_INT(exl2_session_rewind(r->engine, s, 0), EXL2_OK);
    CHECK_INT(info_of(r, s).pages, 0);
    exl2_session_close(r->engine, s);
}

/* Tokens are taken out of the middle: what follows has other positions, so the words are those of a session that never
   had them, however the rest is read. */
static void trim_closes_the_gap(const rig *r)
{
    static const struct { uint32_t from, count; } cuts[] = { { 20, 30 }, { 0, 64 }, { 64, 1 }, { 60, 30 }, { 5, 0 } };
    for (uint32_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        exl2_session s, fresh;
        exl2_token ids[200];
        uint32_t from = cuts[i].from, count = cuts[i].count;
        exl2_session_open(r->engine, r->model, &s);
        exl2_session_open(r->engine, r->model, &fresh);
        rig_said *first = say(r, s, prompt, 80, 15);
        memcpy(ids, prompt, 80 * sizeof *ids);
        memcpy(ids + 80, first->ids, 15 * sizeof *ids);
        memmove(ids + from, ids + from + count, (95 - from - count) * sizeof *ids);
        CHECK_INT(exl2_session_trim(r->engine, s, from, count), EXL2_OK);
        check_history(r, s, ids, 95 - count, NULL, 0);
        CHECK(count == 0 || (info_of(r, s).tokens_cached <= from + 63 && info_of(r, s).tokens_cached >= from / 64 * 64));
        if (i % 2) {
            say(r, s, NULL, 0, 0); /* reads the rest again, at any priority */
            CHECK_INT(info_of(r, s).tokens_cached, 95 - count);
        }
        rig_said *got = say(r, s, prompt, 10, 15), *wanted = NULL;
        memcpy(ids + 95 - count, prompt, 10 * sizeof *ids);
        wanted = say(r, fresh, ids, 105 - count, 15);
        CHECK(memcmp(got->ids, wanted->ids, 15 * sizeof *ids) == 0);
        CHECK(memcmp(got->logprobs, wanted->logprobs, 15 * sizeof(float)) == 0);
        CHECK_INT(exl2_session_trim(r->engine, s, 121 - count, 1), EXL2_ERR_ARG);
        exl2_session_close(r->engine, s);
        exl2_session_close(r->engine, fresh);
    }
}

/* A fork while the original decodes has the delivered tokens, and neither disturbs the other. */
static void fork_of_a_running_session(const rig *r)
{
    static rig_said said;
    memset(&said, 0, sizeof said);
    exl2_session s, copy;
    exl2_job job;
    exl2_session_open(r->engine, r->model, &s);
    exl2_job_desc d = rig_job(r, prompt, 20, 30, &said);
    d.session = s;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    while (said.count < 10) {
        exl2_step(r->engine, NULL);
    }
    CHECK_INT(info_of(r, s).busy_with.id, job.id);
    CHECK_INT(exl2_session_rewind(r->engine, s, 1), EXL2_ERR_STATE);
    CHECK_INT(exl2_session_trim(r->engine, s, 0, 1), EXL2_ERR_STATE);
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_ERR_STATE);
    CHECK_INT(exl2_session_fork(r->engine, s, &copy), EXL2_OK);
    CHECK_INT(info_of(r, copy).tokens, 30);
    rig_said *other = say(r, copy, NULL, 0, 20); /* the original continues at the same time */
    rig_drain(r, 0);
    CHECK_INT(said.count, 30);
    CHECK(memcmp(other->ids, said.ids + 10, 20 * sizeof(exl2_token)) == 0);
    exl2_session_close(r->engine, s);
    exl2_session_close(r->engine, copy);
}

static void ends_leave_what_was_delivered(const rig *r)
{
    static rig_said said;
    memset(&said, 0, sizeof said);
    exl2_session s;
    exl2_job job;
    exl2_session_open(r->engine, r->model, &s);
    exl2_job_desc d = rig_job(r, prompt, 20, 30, &said);
    d.session = s;
    said.stop_after = 4;
    said.flow = EXL2_STOP_JOB;
    rig_run(r, &d);
    CHECK_INT(said.stop, EXL2_STOP_CALLBACK);
    check_history(r, s, prompt, 20, said.ids, 4);

    exl2_token stop = said.ids[2];
    memset(&said, 0, sizeof said);
    exl2_session_rewind(r->engine, s, 20);
    d.prompt.tokens = NULL;
    d.prompt.token_count = 0;
    d.stop_tokens = &stop;
    d.stop_token_count = 1;
    rig_run(r, &d);
    CHECK_INT(said.stop, EXL2_STOP_TOKEN);
    CHECK_INT(said.ids[said.count - 1], stop);
    CHECK_INT(info_of(r, s).tokens, 20 + said.count);

    memset(&said, 0, sizeof said);
    exl2_session_rewind(r->engine, s, 20);
    d.stop_token_count = 0;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    while (said.count < 3) {
        exl2_step(r->engine, NULL);
    }
    CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(said.stop, EXL2_STOP_CANCELLED);
    CHECK_INT(said.result, EXL2_ERR_CANCELLED);
    CHECK_INT(said.done_events, 1);
    check_history(r, s, prompt, 20, said.ids, said.count);
    CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_ERR_STALE);
    exl2_session_close(r->engine, s);
}

/* Cancels a job at many points while it runs in the smallest steps. The session is consistent each time. */
static void cancel_anywhere(const rig *r)
{
    static rig_said said, control;
    memset(&control, 0, sizeof control);
    exl2_job_desc whole = rig_job(r, prompt, 40, 6, &control);
    rig_run(r, &whole);
    for (uint32_t steps = 0; steps < 20000; steps += 1 + steps / 24) {
        exl2_session s;
        exl2_job job;
        memset(&said, 0, sizeof said);
        exl2_session_open(r->engine, r->model, &s);
        exl2_job_desc d = rig_job(r, prompt, 40, 6, &said);
        d.session = s;
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        exl2_step_desc tiny = { .cpu_us = 1 };
        bool ended = false;
        for (uint32_t i = 0; i < steps && !ended; i++) {
            exl2_step(r->engine, &tiny);
            ended = said.done_events > 0;
        }
        if (!ended) {
            exl2_job_cancel(r->engine, job);
        }
        rig_drain(r, 1);
        CHECK_INT(said.done_events, 1);
        CHECK(memcmp(said.ids, control.ids, said.count * sizeof(exl2_token)) == 0);
        exl2_session_info info = info_of(r, s);
        if (info.tokens > 0) { /* the job had started: continue to the same end */
            uint32_t had = said.count;
            if (had < 6) {
                rig_said *rest = say(r, s, NULL, 0, 6 - had);
                CHECK(memcmp(rest->ids, control.ids + had, (6 - had) * sizeof(exl2_token)) == 0);
            }
        }
        exl2_session_close(r->engine, s);
        if (ended) {
            printf("a job of 46 tokens needed %u of the smallest steps\n", steps);
            CHECK(steps > 20);
            return;
        }
    }
    check_that(0, "the job ended within 20,000 tiny steps", __FILE__, __LINE__);
}

int main(void)
{
    make_prompt();
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .cache.tokens = 512 };
    rig r = rig_open(NULL, &m);
    going_on_equals_one_go(&r);
    forks_share_until_written(&r);
    rewind_forgets(&r);
    trim_closes_the_gap(&r);
    fork_of_a_running_session(&r);
    ends_leave_what_was_delivered(&r);
    cancel_anywhere(&r);
    CHECK_INT(stats_of(&r).pages_used, 0);
    rig_close(&r);
    return check_done();
}
