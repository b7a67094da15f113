/* cuda_random.c: jobs that start, pause, end, are cancelled and share histories at random moments, in steps of every
   kind, over a device that works while the host sleeps: whatever was queued ahead, histories are what the fake model
   says, and nothing is left.
   takes: the goldens.
   gives: exit code 0 or 1.
   owns:  nothing that outlives the program.
   next:  cuda_rig.h */
#include "cuda_rig.h"

enum { SPEAKERS = 6, MOVES = 60000, PROMPT = 8, NEW = 12 };

typedef struct speaker {
    exl2_session session;
    exl2_job job;
    size_t given; /* tokens of the history that nobody drew, or that were checked */
    bool busy;
    rig_said said;
} speaker;

static speaker speakers[SPEAKERS];
static uint32_t context_max;
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
    d.sampler.seed = 1 + below(100);
    d.sampler.repeat_penalty = below(4) ? 0 : 1.1f;
    s->said.stop_after = below(6) ? 0 : 1 + below(5);
    s->said.flow = below(2) ? EXL2_STOP_JOB : EXL2_PAUSE_JOB;
    s->given = tokens + prompt;
    s->busy = CHECK_INT(exl2_job_start(e, &d, &s->job), EXL2_OK);
}

/* The job has ended, as it should: what it drew is right. */
static void check_end(exl2_engine *e, speaker *s)
{
    CHECK_INT(s->said.done_events, 1);
    CHECK(s->said.result == EXL2_OK || s->said.result == EXL2_ERR_CANCELLED);
    size_t tokens = tokens_of(e, s->session);
    cuda_expect_history(e, s->session, tokens < s->given ? tokens : s->given, tokens);
    s->busy = false;
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

int main(void)
{
    uint32_t ended = 0;
    machine_drop_cache();
    machine_make();
    fake.run = fake_model_run;
    cuda_life l = { .e = cuda_open() };
    if (!CHECK(l.e != NULL) || !CHECK_INT(cuda_load(l.e, &l.model), EXL2_OK)) {
        return 1;
    }
    exl2_model_info info;
    CHECK_INT(exl2_model_get(l.e, l.model, &info), EXL2_OK);
    context_max = info.context_max;
    for (uint32_t i = 0; i < SPEAKERS; i++) {
        CHECK_INT(exl2_session_open(l.e, l.model, &speakers[i].session), EXL2_OK);
    }
    for (uint32_t i = 0; i < MOVES; i++) {
        move(l.e, &speakers[below(SPEAKERS)]);
        ended += speakers[i % SPEAKERS].said.done_events;
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
    exl2_engine_stats stats;
    exl2_stats(l.e, &stats);
    CHECK_INT(stats.pages_used, 0);
    CHECK(ended > 100);
    exl2_close(l.e);
    machine_drop_cache();
    machine_end();
    fake_reset();
    return check_done();
}
