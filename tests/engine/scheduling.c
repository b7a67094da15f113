/* scheduling.c: several jobs at once: one batched pass, waiting for pages, priorities, overtaking, pause, budgets, the
   event ring and its back-pressure, misuse. On a tiny model, by ids. */
#include "rig.h"

static exl2_token prompt[200];

static rig_said saids[16];

static exl2_job start(const rig *r, uint32_t i, uint32_t count, uint32_t max_tokens, int32_t priority)
{
    exl2_job job = { 0 };
    memset(&saids[i], 0, sizeof saids[i]);
    exl2_job_desc d = rig_job(r, prompt + i, count, max_tokens, &saids[i]);
    d.priority = priority;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    return job;
}

/* Three jobs with default settings run together in a default pool. */
static void three_defaults(void)
{
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 1024;
    rig r = rig_open(NULL, &m);
    for (uint32_t i = 0; i < 3; i++) {
        start(&r, i, 30, 0, 0);
    }
    exl2_engine_stats stats;
    exl2_step(r.engine, NULL);
    exl2_stats(r.engine, &stats);
    CHECK_INT(stats.jobs_active, 3);
    CHECK_INT(stats.jobs_waiting, 0);
    CHECK_INT(stats.pages_total, 2 * 1024 / 64);
    rig_drain(&r, 0);
    exl2_engine_stats after;
    exl2_stats(r.engine, &after);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(saids[i].stop == EXL2_STOP_LENGTH || saids[i].stop == EXL2_STOP_EOS);
        CHECK(saids[i].stop == EXL2_STOP_EOS || saids[i].count == 512);
    }
    uint64_t passes = after.forwards, tokens = after.tokens_out;
    printf("%u tokens in %u passes\n", (unsigned)tokens, (unsigned)passes);
    CHECK(passes <= 1 + 512 + 2); /* one pass serves all three */
    rig_close(&r);
}

static void waiting_and_overtaking(void)
{
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 256;
    m.cache.tokens = 256;
    rig r = rig_open(NULL, &m);
    exl2_engine_stats stats;
    exl2_job job;
    exl2_job_info info;
    exl2_error error;

    exl2_job_desc d = rig_job(&r, prompt, 200, 57, &saids[0]);
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_ERR_CONTEXT_FULL);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "257") && strstr(error.text, "256"));

    start(&r, 0, 100, 20, 0);               /* 2 of 4 pages */
    exl2_job big = start(&r, 1, 150, 40, 0); /* 3 pages: waits */
    exl2_step(r.engine, NULL);
    exl2_stats(r.engine, &stats);
    CHECK_INT(stats.jobs_active, 1);
    CHECK_INT(stats.jobs_waiting, 1);
    CHECK_INT(exl2_job_get(r.engine, big, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_JOB_QUEUED);
    exl2_job small[12];
    for (uint32_t i = 2; i < 12; i++) {
        small[i] = start(&r, i, 20, 4, 0);  /* 1 page each; four may overtake */
    }
    while (exl2_job_get(r.engine, big, &info) == EXL2_OK && info.state == EXL2_JOB_QUEUED) {
        exl2_step(r.engine, NULL);
    }
    /* four began before the big one; one more may in the same step, since the big one has 3 of the 4 pages */
    uint32_t began = 0;
    for (uint32_t i = 2; i < 12; i++) {
        began += exl2_job_get(r.engine, small[i], &info) == EXL2_ERR_STALE || info.state != EXL2_JOB_QUEUED;
    }
    CHECK(began >= 4 && began <= 5);
    rig_drain(&r, 0);
    for (uint32_t i = 2; i < 12; i++) {
        CHECK_INT(saids[i].done_events, 1);
    }
    CHECK_INT(saids[1].count, 40);
    rig_close(&r);
}

static void priorities(void)
{
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 128;
    m.cache.tokens = 128;
    rig r = rig_open(NULL, &m);
    start(&r, 0, 60, 60, 0); /* both pages */
    exl2_step(r.engine, NULL);
    start(&r, 1, 60, 60, 0);
    start(&r, 2, 60, 60, 5); /* later, but with a higher priority */
    rig_drain(&r, 0);
    CHECK(saids[2].stats.queued_ns < saids[1].stats.queued_ns);
    CHECK_INT(saids[1].count, saids[1].stop == EXL2_STOP_LENGTH ? 60 : saids[1].count);
    rig_close(&r);
}

static void pausing(void)
{
    rig r = rig_load(rig_golden("exl2-mixed"));
    memset(&saids[0], 0, sizeof saids[0]);
    exl2_job job;
    exl2_job_info info;
    exl2_job_desc d = rig_job(&r, prompt, 20, 20, &saids[0]);
    saids[0].stop_after = 5;
    saids[0].flow = EXL2_PAUSE_JOB;
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(saids[0].count, 5);
    CHECK_INT(saids[0].done_events, 0);
    CHECK_INT(exl2_job_get(r.engine, job, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_JOB_PAUSED);
    CHECK_INT(exl2_job_pause(r.engine, job, false), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(saids[0].count, 20);
    static rig_said straight;
    exl2_job_desc plain = rig_job(&r, prompt, 20, 20, &straight);
    rig_run(&r, &plain);
    CHECK(memcmp(straight.ids, saids[0].ids, sizeof(exl2_token) * 20) == 0);
    rig_close(&r);
}

/* Without on_event all events wait in the ring. A ring too small for all of them delays events and loses none. */
static void pulling(void)
{
    static rig_said straight[4];
    static exl2_token pulled[4][600];
    uint32_t counts[4] = { 0 }, done = 0, pulls = 0;
    exl2_engine_desc e = { 0 };
    e.max_events = 1;
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 1024;
    m.cache.tokens = 4 * 1024;
    rig r = rig_open(&e, &m);
    exl2_job jobs[4];
    for (uint32_t i = 0; i < 4; i++) {
        memset(&straight[i], 0, sizeof straight[i]);
        exl2_job_desc d = rig_job(&r, prompt + i, 30, 500, &straight[i]);
        rig_run(&r, &d);
        d.on_event = NULL;
        d.alts_per_token = 20;
        CHECK_INT(exl2_job_start(r.engine, &d, &jobs[i]), EXL2_OK);
    }
    while (done < 4 && pulls < 100000) {
        rig_drain(&r, 0); /* until the ring is full */
        exl2_event ev;
        while (exl2_next_event(r.engine, &ev)) {
            pulls++;
            for (uint32_t i = 0; i < 4; i++) {
                if (ev.job.id != jobs[i].id) {
                    continue;
                }
                for (uint32_t k = 0; k < ev.token_count && ev.kind == EXL2_EVENT_TEXT; k++) {
                    CHECK_INT(ev.alts_per_token, 20);
                    /* greedy: the most likely token is the sampled one */
                    CHECK_INT(ev.alts[k * 20].token, ev.tokens[k].token);
                    pulled[i][counts[i]++] = ev.tokens[k].token;
                }
                done += ev.kind == EXL2_EVENT_DONE;
            }
            if (pulls % 3 == 0) {
                break;
            }
        }
    }
    CHECK_INT(done, 4);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(counts[i], straight[i].count);
        CHECK(memcmp(pulled[i], straight[i].ids, counts[i] * sizeof(exl2_token)) == 0);
    }
    exl2_event none;
    CHECK(!exl2_next_event(r.engine, &none));
    rig_close(&r);
}

typedef struct owner {
    uint32_t events[EXL2_EVENT_DONE + 1]; /* by kind */
} owner;

static void count_owned(const exl2_event *ev)
{
    if (CHECK(ev->user != NULL && ev->kind >= EXL2_EVENT_LOAD && ev->kind <= EXL2_EVENT_DONE)) {
        ((owner *)ev->user)->events[ev->kind]++;
    }
}

static exl2_flow hear_owned(void *user, const exl2_event *ev)
{
    CHECK(ev->user == user);
    count_owned(ev);
    return EXL2_CONTINUE;
}

/* Each event carries the user pointer of its model or job, so that an application that pulls events needs no map of
   handles. */
static void users(void)
{
    owner model = { { 0 } }, pushed = { { 0 } }, pulled[3] = { { { 0 } } };
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.user = &model;
    rig r = rig_open(NULL, &m); /* waits for the load and drops its events */
    exl2_model second;
    exl2_event ev;
    CHECK(!exl2_next_event(r.engine, &ev));
    CHECK_INT(exl2_model_open(r.engine, &m, &second), EXL2_OK);
    rig_drain(&r, 0);
    while (exl2_next_event(r.engine, &ev)) {
        CHECK(ev.kind == EXL2_EVENT_LOAD && ev.model.id == second.id);
        count_owned(&ev);
    }
    CHECK(model.events[EXL2_EVENT_LOAD] >= 1);

    for (uint32_t i = 0; i < 4; i++) {
        exl2_job_desc d = rig_job(&r, prompt + i, 30, 4, NULL);
        d.model = i % 2 ? second : r.model;
        d.on_event = i == 3 ? hear_owned : NULL;
        d.user = i == 3 ? &pushed : &pulled[i];
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 0);
    while (exl2_next_event(r.engine, &ev)) {
        count_owned(&ev);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const owner *o = i == 3 ? &pushed : &pulled[i];
        CHECK_INT(o->events[EXL2_EVENT_PREFILL], 1);
        CHECK_INT(o->events[EXL2_EVENT_TEXT], 4);
        CHECK_INT(o->events[EXL2_EVENT_DONE], 1);
        CHECK_INT(o->events[EXL2_EVENT_LOAD], 0);
    }
    rig_close(&r);
}

/* The scores of a prompt are the same through the ring and through the callback. */
static void pulled_scores(void)
{
    static rig_said said;
    exl2_engine_desc e = { 0 };
    e.max_events = 1;
    exl2_model_desc m = { 0 };
    m.path = rig_golden("exl2-mixed");
    m.context_max = 256;
    m.cache.tokens = 4 * 256;
    rig r = rig_open(&e, &m);
    exl2_job_desc d = rig_job(&r, prompt, 200, 1, &said);
    d.prefill_only = true;
    d.score_prompt = true;
    d.alts_per_token = 64;
    rig_run(&r, &d);
    CHECK_INT(said.scored, 199);
    d.on_event = NULL;
    exl2_job job;
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    uint32_t scored = 0;
    bool done = false;
    for (uint32_t i = 0; i < 10000 && !done; i++) {
        exl2_event ev;
        if (!exl2_next_event(r.engine, &ev)) {
            exl2_step(r.engine, NULL);
            continue;
        }
        for (uint32_t k = 0; ev.kind == EXL2_EVENT_PREFILL && k < ev.token_count; k++) {
            CHECK(scored < 199 && memcmp(&ev.logsumexp[k], &said.logsumexp[scored], sizeof(float)) == 0);
            CHECK(memcmp(&ev.alts[k * 64], said.alts[scored], 64 * sizeof(exl2_alt)) == 0);
            scored++;
        }
        done = ev.kind == EXL2_EVENT_DONE;
    }
    CHECK(done);
    CHECK_INT(scored, 199);
    rig_close(&r);
}

static exl2_flow misuse(void *user, const exl2_event *ev)
{
    exl2_engine *e = (exl2_engine *)user;
    if (ev->kind == EXL2_EVENT_TEXT) {
        exl2_job_desc d = { 0 };
        CHECK_INT(exl2_step(e, NULL), EXL2_ERR_STATE);
        CHECK_INT(exl2_generate(e, &d), EXL2_ERR_STATE);
        CHECK_INT(exl2_model_close(e, ev->model), EXL2_ERR_STATE);
        exl2_close(e); /* only records an error */
        return EXL2_STOP_JOB;
    }
    return EXL2_CONTINUE;
}

static void refusals(void)
{
    rig r = rig_load(rig_golden("exl2-mixed"));
    exl2_error error;
    exl2_job job;
    exl2_job_desc d = rig_job(&r, prompt, 10, 5, &saids[0]);
    d.user = r.engine;
    d.on_event = misuse;
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);

    exl2_job_desc bad = rig_job(&r, prompt, 0, 5, &saids[0]);
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_ARG); /* no token to continue from */
    exl2_token wild = 320;
    bad = rig_job(&r, &wild, 1, 5, &saids[0]);
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_ARG);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "320"));
    bad = rig_job(&r, prompt, 10, 5, &saids[0]);
    bad.prompt.text = "hello";
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_ARG); /* two prompts */
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "neither text nor messages"));
    bad.prompt.tokens = NULL;
    bad.prompt.token_count = 0;
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_STATE); /* no tokenizer */
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, "tokenizer.json"));
    bad = rig_job(&r, prompt, 10, 5, &saids[0]);
    bad._end_canary = 7;
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_ARG);
    bad = rig_job(&r, prompt, 10, 5, &saids[0]);
    bad.alts_per_token = 65;
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_BUDGET);
    bad = rig_job(&r, prompt, 10, 5, &saids[0]);
    exl2_bias outside = { -1, 1.0f };
    bad.sampler.bias = &outside;
    bad.sampler.bias_count = 1;
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_ARG);
    bad = rig_job(&r, prompt, 10, 5, &saids[0]);
    bad.model.id = 0;
    CHECK_INT(exl2_job_start(r.engine, &bad, &job), EXL2_ERR_STALE);
    CHECK_INT(exl2_job_start(NULL, &bad, &job), EXL2_ERR_ARG);
    size_t need;
    CHECK_INT(exl2_tokenize(r.engine, r.model, "x", 1, 0, NULL, 0, &need), EXL2_ERR_STATE);
    exl2_model_info info;
    CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_ERR_STALE);
    rig_close(&r);

    exl2_engine *e = NULL;
    exl2_engine_desc desc = { 0 };
    desc._end_canary = 1;
    desc.open_error = &error;
    memset(&error, 0, sizeof error);
    CHECK_INT(exl2_open(&desc, &e), EXL2_ERR_ARG);
    CHECK(e == NULL && error.code == 0); /* a desc that was never zeroed: open_error points anywhere */
    CHECK_INT(exl2_open_versioned(NULL, EXL2_VERSION + 1, &e), EXL2_ERR_VERSION);
}

/* Closing the model or the engine ends its jobs with one DONE each. */
static void closing_ends_jobs(void)
{
    rig r = rig_load(rig_golden("exl2-mixed"));
    start(&r, 0, 30, 40, 0);
    start(&r, 1, 30, 40, 0);
    exl2_step_desc tiny = { .cpu_us = 1 };
    for (int i = 0; i < 7; i++) {
        exl2_step(r.engine, &tiny);
    }
    exl2_model_close(r.engine, r.model);
    CHECK_INT(saids[0].done_events, 1);
    CHECK_INT(saids[1].result, EXL2_ERR_CANCELLED);
    rig_close(&r);
    r = rig_load(rig_golden("exl2-mixed"));
    start(&r, 2, 30, 40, 0);
    exl2_step(r.engine, NULL);
    rig_close(&r);
    CHECK_INT(saids[2].done_events, 1);
}

int main(void)
{
    for (int i = 0; i < 200; i++) {
        prompt[i] = (exl2_token)((i * 53 + 7) % 300);
    }
    three_defaults();
    waiting_and_overtaking();
    priorities();
    pausing();
    pulling();
    users();
    pulled_scores();
    refusals();
    closing_ends_jobs();
    return check_done();
}
