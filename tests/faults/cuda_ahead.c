/* cuda_ahead.c: passes that are queued before their tokens are known, on the fake device, which works while the engine
   sleeps. Tests that one sleep serves two tokens; and that histories are right and nothing leaks when jobs start,
   pause, end, are cancelled and share histories at random moments, in steps of every kind.
   takes: the goldens.
   gives: exit code 0 or 1. */
#include "cuda_rig.h"

/* Opens an engine with the golden model; exits if that fails. */
static cuda_life begin(void (*run)(const char *function, const void *arguments, const unsigned grid[3]))
{
    machine_make();
    fake.run = run;
    cuda_life l = { .e = cuda_open() };
    if (!CHECK(l.e != NULL) || !CHECK_INT(cuda_load(l.e, &l.model), EXL2_OK)) {
        exit(1);
    }
    return l;
}

static void end(cuda_life *l)
{
    exl2_close(l->e);
    machine_end();
}

/* ---- tokens two at a time ---- */

static uint32_t drawn; /* passes that sampled */

static void run_counted(const char *function, const void *arguments, const unsigned grid[3])
{
    drawn += strcmp(function, "exl2k_sample_token") == 0;
    fake_model_run(function, arguments, grid);
}

/* Steps until the engine is idle. Returns the number of steps in which two passes ended. */
static uint32_t step_pairs(exl2_engine *e, const exl2_step_desc *step)
{
    uint32_t pairs = 0, before = drawn;
    for (uint32_t i = 0; i < 1000 && exl2_step(e, step) != EXL2_IDLE; i++) {
        pairs += drawn - before == 2;
        before = drawn;
    }
    return pairs;
}

/* With a fast model, a step that may wait sleeps once for two tokens. A step that may not wait, or has a budget, never
   waits for two. Histories are right wherever a job stops, is cancelled, or another job joins. */
static void test_pairs(void)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .wait = false }, { .wait = true, .gpu_us = 1 } };
    exl2_job job, other;
    cuda_life l = begin(run_counted);
    exl2_session_open(l.e, l.model, &l.a);
    exl2_session_open(l.e, l.model, &l.b);
    CHECK_INT(cuda_use_alone(&l), EXL2_OK);
    for (uint32_t i = 0; i < EXL2__COUNT(steps); i++) {
        CHECK_INT(exl2_session_rewind(l.e, l.a, 14), EXL2_OK);
        exl2_job_desc d = cuda_job(l.a, cuda_prompt, 2, 30, &cuda_said[0]);
        CHECK_INT(exl2_job_start(l.e, &d, &job), EXL2_OK);
        uint32_t pairs = step_pairs(l.e, &steps[i]);
        CHECK(i == 0 ? pairs >= 12 && pairs <= 15 : pairs == 0);
        cuda_expect_history(l.e, l.a, 16, 46);
    }
    for (uint32_t n = 1; n < 20; n++) {
        CHECK_INT(exl2_session_rewind(l.e, l.a, 14), EXL2_OK);
        CHECK_INT(exl2_session_rewind(l.e, l.b, 0), EXL2_OK);
        exl2_job_desc d[2] = { cuda_job(l.a, cuda_prompt, 2, 30, &cuda_said[0]),
                               cuda_job(l.b, cuda_prompt, 8, 12, &cuda_said[1]) };
        CHECK_INT(exl2_job_start(l.e, &d[0], &job), EXL2_OK);
        for (uint32_t i = 0; i < n; i++) {
            exl2_step(l.e, &steps[0]);
        }
        CHECK_INT(exl2_job_start(l.e, &d[1], &other), EXL2_OK);
        for (uint32_t i = 0; i < n / 2; i++) {
            exl2_step(l.e, &steps[i % 3]);
        }
        CHECK_INT(exl2_job_cancel(l.e, job), EXL2_OK);
        step_pairs(l.e, &steps[0]);
        cuda_expect_history(l.e, l.a, 16, 16 + cuda_said[0].count);
        cuda_expect_history(l.e, l.b, 8, 20);
    }
    end(&l);
}

/* More sequences than a captured pass has rows: their logits are one group, so a pass is sampled once, and two passes
   are waited for at once. */
static void test_crowd(void)
{
    enum { CROWD = 20, TOKENS = 30 };
    static rig_said said[CROWD];
    const exl2_step_desc step = { .wait = true };
    exl2_session sessions[CROWD];
    exl2_job job;
    machine_make();
    fake.run = run_counted;
    cuda_life l = { .e = cuda_open() };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .batch_max = CROWD };
    m.cache.tokens = 2 * CROWD * EXL2__PAGE_TOKENS;
    CHECK_INT(exl2_model_load(l.e, &m, &l.model), EXL2_OK);
    for (uint32_t i = 0; i < CROWD; i++) {
        CHECK_INT(exl2_session_open(l.e, l.model, &sessions[i]), EXL2_OK);
        exl2_job_desc d = cuda_job(sessions[i], cuda_prompt, 2, TOKENS, &said[i]);
        CHECK_INT(exl2_job_start(l.e, &d, &job), EXL2_OK);
    }
    drawn = 0;
    uint32_t pairs = step_pairs(l.e, &step);
    CHECK(drawn >= TOKENS && drawn <= TOKENS + 2);
    CHECK(pairs >= TOKENS / 2 - 4);
    for (uint32_t i = 0; i < CROWD; i++) {
        cuda_expect_history(l.e, sessions[i], 2, 2 + TOKENS);
    }
    end(&l);
}

/* ---- random moments ---- */

enum { SPEAKERS = 6, MOVES = 60000, PROMPT = 8, NEW = 12 };

typedef struct speaker {
    exl2_session session;
    exl2_job job;
    size_t given; /* tokens of the history before the ones that the job samples */
    bool busy;
    rig_said said;
} speaker;

static speaker speakers[SPEAKERS];
static uint32_t context_max, ended;
static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static uint32_t tokens_of(exl2_engine *e, exl2_session s)
{
    exl2_session_info info = { .tokens = 0 };
    CHECK_INT(exl2_session_get(e, s, &info), EXL2_OK);
    return info.tokens;
}

static void start(exl2_engine *e, speaker *s)
{
    uint32_t tokens = tokens_of(e, s->session), prompt = 1 + below(PROMPT);
    if (tokens + PROMPT + NEW > context_max) {
        tokens = below(context_max - PROMPT - NEW);
        CHECK_INT(exl2_session_rewind(e, s->session, tokens), EXL2_OK);
    }
    exl2_job_desc d = cuda_job(s->session, cuda_prompt, prompt, 1 + below(NEW), &s->said);
    d.priority = (int32_t)below(2);
    d.sampler.repeat_penalty = below(4) ? 0 : 1.1f;
    s->said.stop_after = below(6) ? 0 : 1 + below(5);
    s->said.flow = below(2) ? EXL2_STOP_JOB : EXL2_PAUSE_JOB;
    s->given = tokens + prompt;
    s->busy = CHECK_INT(exl2_job_start(e, &d, &s->job), EXL2_OK);
}

/* Checks a job that has ended: its result and the tokens that it sampled. */
static void check_end(exl2_engine *e, speaker *s)
{
    CHECK_INT(s->said.done_events, 1);
    CHECK(s->said.result == EXL2_OK || s->said.result == EXL2_ERR_CANCELLED);
    size_t tokens = tokens_of(e, s->session);
    cuda_expect_history(e, s->session, tokens < s->given ? tokens : s->given, tokens);
    s->busy = false;
    ended++;
}

static void move(exl2_engine *e, speaker *s)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .wait = true }, { .wait = false }, { .gpu_us = 1 },
                                            { .wait = true, .gpu_us = 40 } };
    speaker *other = &speakers[below(SPEAKERS)];
    uint32_t what = below(30);
    if (!s->busy && what < 12) {
        start(e, s);
    } else if (s->busy && what == 12) {
        exl2_job_cancel(e, s->job);
    } else if (s->busy && what < 16) {
        exl2_job_pause(e, s->job, what == 13);
    } else if (!s->busy && !other->busy && s != other && what == 16) {
        exl2_session_close(e, s->session);
        CHECK_INT(exl2_session_fork(e, other->session, &s->session), EXL2_OK);
    } else {
        exl2_step(e, &steps[below((uint32_t)EXL2__COUNT(steps))]);
    }
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        if (speakers[i].busy && speakers[i].said.done_events) {
            check_end(e, &speakers[i]);
        }
    }
}

static void test_random(void)
{
    cuda_life l = begin(fake_model_run);
    exl2_model_info info;
    exl2_engine_stats stats;
    CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
    context_max = info.context_max;
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        CHECK_INT(exl2_session_open(l.e, l.model, &speakers[i].session), EXL2_OK);
    }
    for (uint32_t i = 0; i < MOVES; i++) {
        move(l.e, &speakers[below(SPEAKERS)]);
    }
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        if (speakers[i].busy) {
            exl2_job_pause(l.e, speakers[i].job, false);
            speakers[i].said.flow = EXL2_CONTINUE;
        }
    }
    cuda_step_all(l.e, false, 0);
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        if (speakers[i].busy) {
            check_end(l.e, &speakers[i]);
        }
        CHECK_INT(exl2_session_close(l.e, speakers[i].session), EXL2_OK);
    }
    exl2_stats(l.e, &stats);
    CHECK_INT(stats.pages_used, 0);
    CHECK(ended > 1000);
    end(&l);
}

int main(void)
{
    machine_drop_cache();
    test_pairs();
    test_crowd();
    test_random();
    machine_drop_cache();
    fake_reset();
    return check_done();
}
