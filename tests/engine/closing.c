/* closing.c: what callbacks may do while a model or the engine is being closed: nothing can be started that would
   outlive it, everything that was started ends once, and other models continue. On tiny models, by ids. */
#include "rig.h"

#define JOBS 6

static const exl2_token prompt[] = { 7, 60, 113, 166, 219, 272, 25, 78, 131, 184 };

/* What a job's callback tries at DONE. */
typedef struct closer {
    exl2_engine *engine;
    exl2_model own, other;     /* other: id 0 = none */
    exl2_session session, peer; /* sessions of `own`: the job's, and another one that is busy */
    rig_said after;            /* what the job that it starts on `other` gives */
    exl2_result wanted;        /* result of every call that uses `own` or opens a model */
    exl2_result other_wanted;
    uint32_t done, refused;
} closer;

static void check_state(closer *c, exl2_result got, const char *call)
{
    exl2_error error;
    exl2_last_error(c->engine, &error);
    check_int(got, c->wanted, call, __FILE__, __LINE__);
    if (got < 0) {
        c->refused++;
        check_that(strstr(error.text, "being closed") != NULL, call, __FILE__, __LINE__);
    }
}

static bool allow_nothing(void *user, exl2_job job, const exl2_token *said, uint32_t n, uint32_t *bits, uint32_t words)
{
    (void)user, (void)job, (void)said, (void)n, (void)bits, (void)words;
    return false;
}

static exl2_flow at_done(void *user, const exl2_event *ev)
{
    closer *c = (closer *)user;
    if (ev->kind != EXL2_EVENT_DONE) {
        return EXL2_CONTINUE;
    }
    c->done++;
    CHECK_INT(ev->result, EXL2_ERR_CANCELLED);
    exl2_job_desc d = { .session = c->session, .prompt = { .tokens = prompt, .token_count = 3 },
                        .on_event = at_done, .user = c };
    exl2_grammar_desc g = { .model = c->own, .kind = EXL2_GRAMMAR_CUSTOM, .allow = allow_nothing };
    exl2_grammar grammar;
    exl2_session s;
    exl2_model m;
    exl2_model_desc folder = { .path = rig_golden("exl2-4bit") };
    exl2_token history[128];
    size_t need = 0;
    check_state(c, exl2_job_start(c->engine, &d, NULL), "a job on the session that is free now");
    d.session.id = 0;
    d.model = c->own;
    check_state(c, exl2_job_start(c->engine, &d, NULL), "a job on the model");
    check_state(c, exl2_session_open(c->engine, c->own, &s), "a session");
    check_state(c, exl2_session_fork(c->engine, c->session, &s), "a fork");
    check_state(c, exl2_session_fork(c->engine, c->peer, &s), "a fork of a session that is busy");
    check_state(c, exl2_grammar_make(c->engine, &g, &grammar), "a grammar");
    /* the session can still be read, to be kept */
    CHECK_INT(exl2_session_tokens(c->engine, c->session, history, 128, &need), EXL2_OK);
    CHECK(need >= 10 && memcmp(history, prompt, sizeof prompt) == 0);
    CHECK_INT(exl2_model_close(c->engine, c->own), EXL2_ERR_STATE);
    exl2_close(c->engine); /* only records an error */
    if (!c->other.id) {
        check_state(c, exl2_model_open(c->engine, &folder, &m), "a model");
        return EXL2_CONTINUE;
    }
    d.model = c->other;
    d.max_tokens = 4;
    d.sampler.preset = EXL2_PRESET_GREEDY;
    d.on_event = rig_hear;
    d.user = &c->after;
    CHECK_INT(exl2_job_start(c->engine, &d, NULL), c->other_wanted);
    return EXL2_CONTINUE;
}

static rig open_two(exl2_model *second)
{
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 128, .cache.tokens = 512 };
    rig r = rig_open(NULL, &m);
    exl2_model_desc folder = { .path = rig_golden("exl2-4bit"), .context_max = 128, .cache.tokens = 512 };
    CHECK_INT(exl2_model_load(r.engine, &folder, second), EXL2_OK);
    return r;
}

static void start_jobs(const rig *r, exl2_model other, exl2_result other_wanted, closer *closers)
{
    memset(closers, 0, JOBS * sizeof *closers);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(exl2_session_open(r->engine, r->model, &closers[i].session), EXL2_OK);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        closer *c = &closers[i];
        c->engine = r->engine;
        c->own = r->model;
        c->other = other;
        c->peer = closers[(i + 1) % JOBS].session;
        c->wanted = EXL2_ERR_STATE;
        c->other_wanted = other_wanted;
        exl2_job_desc d = { .session = c->session, .prompt = { .tokens = prompt, .token_count = 10 },
                            .max_tokens = 50 };
        d.sampler.preset = EXL2_PRESET_GREEDY;
        d.on_event = at_done;
        d.user = c;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    exl2_step(r->engine, NULL);
    exl2_step(r->engine, NULL);
}

/* Another model continues, and accepts work meanwhile. */
static void a_model(void)
{
    static closer closers[JOBS];
    exl2_model other;
    exl2_engine_stats before, after;
    rig r = open_two(&other);
    start_jobs(&r, other, EXL2_OK, closers);
    exl2_stats(r.engine, &before);
    CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
    rig_drain(&r, 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(closers[i].done, 1);
        CHECK_INT(closers[i].refused, 6);
        CHECK_INT(closers[i].after.done_events, 1);
        CHECK_INT(closers[i].after.result, EXL2_OK);
    }
    exl2_stats(r.engine, &after);
    CHECK(after.jobs_active == 0 && after.jobs_waiting == 0 && after.host_bytes < before.host_bytes);
    exl2_model_desc again = { .path = rig_golden("exl2-mixed"), .context_max = 128, .cache.tokens = 512 };
    CHECK_INT(exl2_model_load(r.engine, &again, &r.model), EXL2_OK); /* its slot can be used again */
    rig_close(&r);
}

/* Nothing may begin, on any model. */
static void the_engine(void)
{
    static closer closers[JOBS];
    exl2_model other;
    rig r = open_two(&other);
    start_jobs(&r, other, EXL2_ERR_STATE, closers);
    rig_close(&r);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(closers[i].done, 1);
        CHECK_INT(closers[i].refused, 6);
        CHECK_INT(closers[i].after.done_events, 0);
    }
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .cache.tokens = 512 };
    r = rig_open(NULL, &m);
    start_jobs(&r, (exl2_model){ 0 }, EXL2_OK, closers);
    rig_close(&r);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(closers[i].done, 1);
        CHECK_INT(closers[i].refused, 7);
    }
}

/* At DONE, every handle that the application has not closed is still valid, whichever model was opened first. */
static exl2_flow ask_everybody(void *user, const exl2_event *ev)
{
    closer *c = (closer *)user;
    exl2_model_info model;
    exl2_session_info session;
    exl2_token history[128], id = prompt[3];
    size_t need = 0;
    if (ev->kind != EXL2_EVENT_DONE) {
        return EXL2_CONTINUE;
    }
    c->done++;
    const exl2_model models[] = { c->own, c->other };
    const exl2_session sessions[] = { c->session, c->peer };
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_model_get(c->engine, models[i], &model), EXL2_OK);
        CHECK_INT(exl2_model_state(c->engine, models[i]), EXL2_OK);
        CHECK_INT(exl2_session_get(c->engine, sessions[i], &session), EXL2_OK);
        CHECK(session.model.id == models[i].id);
        CHECK_INT(exl2_session_tokens(c->engine, sessions[i], history, 128, &need), EXL2_OK);
        CHECK(need >= 4 && history[3] == id);
    }
    return EXL2_CONTINUE;
}

static void every_handle_answers(void)
{
    static closer closers[2]; /* a job on each of two models; each knows the other's session */
    exl2_model models[2];
    exl2_session sessions[2];
    rig r = open_two(&models[1]);
    models[0] = r.model;
    memset(closers, 0, sizeof closers);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_session_open(r.engine, models[i], &sessions[i]), EXL2_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        closer *c = &closers[i];
        *c = (closer){ .engine = r.engine, .own = models[i], .other = models[!i] };
        c->session = sessions[i];
        c->peer = sessions[!i];
        exl2_job_desc d = { .session = c->session, .max_tokens = 50 };
        d.prompt.tokens = prompt;
        d.prompt.token_count = 10;
        d.on_event = ask_everybody;
        d.user = c;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    exl2_step(r.engine, NULL);
    rig_close(&r);
    CHECK_INT(closers[0].done, 1);
    CHECK_INT(closers[1].done, 1);
}

/* A callback that closes the other sessions at DONE: each of their jobs still ends once. */
static exl2_flow close_peer(void *user, const exl2_event *ev)
{
    closer *c = (closer *)user;
    if (ev->kind == EXL2_EVENT_DONE) {
        c->done++;
        exl2_session_close(c->engine, c->peer);
        exl2_session_close(c->engine, c->session);
    }
    return EXL2_CONTINUE;
}

static void sessions_close_each_other(void)
{
    static closer closers[JOBS];
    for (uint32_t whole = 0; whole < 2; whole++) {
        exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .cache.tokens = 512 };
        rig r = rig_open(NULL, &m);
        memset(closers, 0, sizeof closers);
        for (uint32_t i = 0; i < JOBS; i++) {
            CHECK_INT(exl2_session_open(r.engine, r.model, &closers[i].session), EXL2_OK);
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            closers[i].engine = r.engine;
            closers[i].peer = closers[(i + JOBS - 1) % JOBS].session;
            exl2_job_desc d = { .session = closers[i].session, .prompt = { .tokens = prompt, .token_count = 10 } };
            d.max_tokens = 50;
            d.on_event = close_peer;
            d.user = &closers[i];
            CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        }
        exl2_step(r.engine, NULL);
        if (!whole) {
            CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
        }
        rig_close(&r);
        for (uint32_t i = 0; i < JOBS; i++) {
            CHECK_INT(closers[i].done, 1);
        }
    }
}

int main(void)
{
    a_model();
    the_engine();
    every_handle_answers();
    sessions_close_each_other();
    return check_done();
}
