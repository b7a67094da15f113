/* standing.c: what may block and what continues all the same: models without weights, queues that nobody reads, paused
   jobs. On a tiny model, by ids. */
#include "text_model.h"

static text_model fixture;
static exl2_token prompt[200];

/* ---- text_only models in a step ---- */

/* A model without weights costs a step nothing, uses none of its budget, and does not disturb other models. */
static void text_only_beside(void)
{
    static rig_said said;
    exl2_engine_desc e = text_engine(&fixture);
    e.max_models = 3;
    exl2_model_desc folder = text_folder();
    exl2_model_desc only = { .path = folder.path, .text_only = true };
    rig r = rig_open(&e, &only);
    exl2_step_desc timed = { .cpu_us = 500 };
    size_t need;
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_IDLE);
    CHECK_INT(exl2_step(r.engine, &timed), EXL2_IDLE);
    exl2_model text = r.model;
    CHECK_INT(exl2_model_load(r.engine, &folder, &r.model), EXL2_OK); /* loading runs steps, too */
    exl2_job_desc d = rig_job(&r, prompt, 20, 8, &said);
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(said.count, 8);
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    rig_drain(&r, 300);
    CHECK_INT(said.done_events, 2);
    exl2_token ids[8];
    CHECK_INT(exl2_tokenize(r.engine, text, "abc", 3, 0, ids, 8, &need), EXL2_OK);
    CHECK_INT(exl2_model_close(r.engine, text), EXL2_OK);
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_IDLE);
    rig_close(&r);
}

/* ---- queues that nobody reads ---- */

/* What a job gave through the queue. */
typedef struct pulled {
    exl2_job job;
    exl2_token ids[RIG_TOKENS];
    float scores[RIG_TOKENS], sums[RIG_TOKENS];
    exl2_alt alts[RIG_TOKENS][EXL2_ALTS_MAX];
    uint32_t count, scored, done, after_done;
} pulled;

static void keep(pulled *all, uint32_t jobs, const exl2_event *ev)
{
    for (uint32_t i = 0; i < jobs; i++) {
        pulled *p = &all[i];
        if (p->job.id != ev->job.id) {
            continue;
        }
        p->after_done += p->done;
        p->done += ev->kind == EXL2_EVENT_DONE;
        CHECK((ev->alts != NULL) == (ev->alts_per_token > 0)); /* NULL without alternatives, as in a callback */
        CHECK((ev->tokens != NULL) == (ev->token_count > 0));
        for (uint32_t k = 0; k < ev->token_count && p->count + p->scored < RIG_TOKENS; k++) {
            if (ev->kind == EXL2_EVENT_TEXT) {
                p->ids[p->count++] = ev->tokens[k].token;
                continue;
            }
            p->sums[p->scored] = ev->logsumexp[k];
            if (ev->alts_per_token) {
                memcpy(p->alts[p->scored], ev->alts + (size_t)k * ev->alts_per_token,
                       ev->alts_per_token * sizeof(exl2_alt));
            }
            p->scores[p->scored++] = ev->tokens[k].logprob;
        }
    }
}

static rig open_small_queue(uint32_t batch_max, uint64_t cache_tokens)
{
    exl2_engine_desc e = { .max_events = 1, .max_jobs = 12 };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 256, .batch_max = batch_max };
    m.cache.tokens = cache_tokens;
    return rig_open(&e, &m);
}

static exl2_job_desc scoring(const rig *r, uint32_t first, uint32_t count, uint32_t alts, uint32_t max_tokens)
{
    exl2_job_desc d = rig_job(r, prompt + first, count, max_tokens, NULL);
    d.on_event = NULL;
    d.score_prompt = true;
    d.prefill_only = max_tokens == 0;
    d.alts_per_token = alts;
    return d;
}

/* A full queue blocks the job whose events do not fit, and nothing else: not the jobs of the same pass, not a blocking
   call. */
static void one_unread_queue(void)
{
    static rig_said said[3];
    exl2_event ev;
    uint32_t scored = 0, done = 0;
    rig r = open_small_queue(0, 0);
    exl2_job_desc unread = scoring(&r, 0, 200, EXL2_ALTS_MAX, 4);
    CHECK_INT(exl2_job_start(r.engine, &unread, NULL), EXL2_OK); /* its scores need more than 64 KiB */
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc d = rig_job(&r, prompt + i, 20, 30, &said[i]);
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 0);
    if (!CHECK(said[0].done_events == 1 && said[1].done_events == 1)) {
        return; /* the next call would never return */
    }
    CHECK(said[0].count == 30 && said[1].count == 30);
    exl2_job_desc d = rig_job(&r, prompt + 2, 20, 30, &said[2]);
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(said[2].count, 30);
    for (uint32_t i = 0; i < 10000 && !done; i++) {
        if (!exl2_next_event(r.engine, &ev)) {
            exl2_step(r.engine, NULL);
            continue;
        }
        scored += ev.kind == EXL2_EVENT_PREFILL ? ev.token_count : 0;
        done += ev.kind == EXL2_EVENT_DONE;
    }
    CHECK_INT(scored, 199);
    CHECK_INT(done, 1);
    rig_close(&r);
}

#define PULLERS 7

/* Many jobs send scores through one small queue, mixed with text, and the queue is read in small pieces. Each job gives
   what it gives to a callback, bit for bit. */
static void many_unread_queues(void)
{
    static rig_said straight[PULLERS];
    static pulled all[PULLERS];
    static const uint32_t alts[PULLERS] = { 64, 0, 7, 64, 0, 33, 1 };
    rig r = open_small_queue(0, 0);
    exl2_job_desc d[PULLERS];
    for (uint32_t i = 0; i < PULLERS; i++) {
        d[i] = scoring(&r, i, 180 - i * 11, alts[i], i % 3 * 20);
        d[i].score_prompt = i != 4;
        d[i].prefill_only = i % 3 == 0;
        d[i].on_event = rig_hear;
        d[i].user = &straight[i];
        rig_run(&r, &d[i]);
    }
    for (uint32_t slow = 0; slow < 3; slow++) {
        uint32_t done = 0, pulls = 0;
        memset(all, 0, sizeof all);
        for (uint32_t i = 0; i < PULLERS; i++) {
            d[i].on_event = NULL;
            CHECK_INT(exl2_job_start(r.engine, &d[i], &all[i].job), EXL2_OK);
        }
        while (done < PULLERS && pulls < 100000) {
            exl2_step_desc step = { .cpu_us = slow == 2 ? 50 : 0 }; /* with parts of passes, too */
            exl2_event ev;
            exl2_step(r.engine, &step);
            for (uint32_t i = 0; i < 1 + slow * 2 && exl2_next_event(r.engine, &ev); i++) {
                keep(all, PULLERS, &ev);
                done += ev.kind == EXL2_EVENT_DONE;
            }
            pulls++;
        }
        CHECK_INT(done, PULLERS);
        for (uint32_t i = 0; i < PULLERS; i++) {
            const pulled *p = &all[i];
            CHECK(p->done == 1 && p->after_done == 0);
            CHECK_INT(p->count, straight[i].count);
            CHECK_INT(p->scored, straight[i].scored);
            CHECK_INT(p->scored, i == 4 ? 0 : d[i].prompt.token_count - 1);
            CHECK(memcmp(p->ids, straight[i].ids, p->count * sizeof *p->ids) == 0);
            CHECK(memcmp(p->scores, straight[i].scores, p->scored * sizeof *p->scores) == 0);
            CHECK(memcmp(p->sums, straight[i].logsumexp, p->scored * sizeof *p->sums) == 0);
            bool same = true;
            for (uint32_t k = 0; k < p->scored; k++) {
                same = same && memcmp(p->alts[k], straight[i].alts[k], alts[i] * sizeof(exl2_alt)) == 0;
            }
            CHECK(same);
        }
    }
    rig_close(&r);
}

/* The queue is full when the model is closed. Every job's DONE arrives once the application reads. Until then the job's
   handle is stale, and no other job gets its slot. */
static void unread_when_closed(void)
{
    static pulled all[12];
    exl2_event ev;
    exl2_job_info info;
    rig r = open_small_queue(0, 0);
    memset(all, 0, sizeof all);
    exl2_job_desc d = rig_job(&r, prompt, 20, 200, NULL); /* events of one token leave less room than a DONE needs */
    d.on_event = NULL;
    for (uint32_t i = 0; i < 12; i++) {
        d.user = &all[i];
        CHECK_INT(exl2_job_start(r.engine, &d, &all[i].job), EXL2_OK);
    }
    rig_drain(&r, 0);
    CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 256 };
    CHECK_INT(exl2_model_load(r.engine, &m, &r.model), EXL2_OK);
    for (uint32_t i = 0; i < 12; i++) {
        CHECK_INT(exl2_job_get(r.engine, all[i].job, &info), EXL2_ERR_STALE);
        CHECK_INT(exl2_job_cancel(r.engine, all[i].job), EXL2_ERR_STALE);
    }
    while (exl2_next_event(r.engine, &ev)) {
        keep(all, 12, &ev);
        CHECK(ev.kind != EXL2_EVENT_DONE || (ev.result == EXL2_ERR_CANCELLED && strstr(ev.error, "closed")));
        CHECK(((const pulled *)ev.user)->job.id == ev.job.id);
        CHECK(ev.model.id != 0 && ev.model.id != r.model.id && ev.session.id != 0);
    }
    for (uint32_t i = 0; i < 12; i++) {
        CHECK_INT(all[i].done, 1);
        CHECK_INT(all[i].after_done, 0);
    }
    static rig_said said;
    d = rig_job(&r, prompt, 20, 5, &said);
    for (uint32_t i = 0; i < 12; i++) { /* all slots are free again */
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 0);
    CHECK_INT(said.done_events, 12);
    rig_close(&r);
}

/* ---- calls that block ---- */

/* The call ended with EXL2_ERR_STATE, and the message names the job that has what the call needs, and the reason. */
static void check_names(const rig *r, exl2_result got, exl2_job job, const char *why)
{
    exl2_error error;
    char name[64];
    exl2_last_error(r->engine, &error);
    CHECK_INT(got, EXL2_ERR_STATE);
    snprintf(name, sizeof name, "job %u.%u ", (unsigned)job.id, (unsigned)(job.id >> 32));
    if (!CHECK(strstr(error.text, name) && strstr(error.text, why))) {
        printf("  the message is \"%s\", it should name %s, and why: %s\n", error.text, name, why);
    }
}

static exl2_job paused_job(const rig *r, uint32_t max_tokens, rig_said *said)
{
    exl2_job job = { 0 };
    memset(said, 0, sizeof *said);
    exl2_job_desc d = rig_job(r, prompt, 30, max_tokens, said);
    said->stop_after = 2;
    said->flow = EXL2_PAUSE_JOB;
    CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
    rig_drain(r, 0);
    CHECK_INT(said->count, 2);
    return job;
}

/* A paused job has the only slot, all pages, or one of two slots. A call that waits for them ends, and the message
   names the paused job. The paused job later continues as if nothing had happened. */
static void paused_has_the_place(void)
{
    static rig_said held, said;
    static const struct { uint32_t batch_max, tokens, waiting; bool pair; } cases[] = {
        { 1, 1024, 10, false }, { 4, 256, 100, false }, { 2, 1024, 10, true },
    };
    for (uint32_t i = 0; i < EXL2__COUNT(cases); i++) {
        rig r = open_small_queue(cases[i].batch_max, cases[i].tokens);
        exl2_job job = paused_job(&r, 150, &held);
        memset(&said, 0, sizeof said);
        exl2_job_desc d = rig_job(&r, prompt, 30, cases[i].waiting, &said);
        d.negative_prompt.text = NULL;
        exl2_session negative = { 0 };
        if (cases[i].pair) {
            static rig_said told;
            CHECK_INT(exl2_session_open(r.engine, r.model, &negative), EXL2_OK);
            exl2_job_desc fill = rig_job(&r, prompt, 5, 0, &told);
            fill.model.id = 0;
            fill.session = negative;
            fill.prefill_only = true;
            rig_run(&r, &fill);
            d.guidance = 1.5f;
            d.negative_session = negative;
        }
        check_names(&r, exl2_generate(r.engine, &d), job, "paused");
        CHECK_INT(said.done_events, 1);
        CHECK_INT(said.result, EXL2_ERR_STATE);
        CHECK_INT(said.count, 0);
        CHECK_INT(held.done_events, 0);
        CHECK_INT(exl2_job_pause(r.engine, job, false), EXL2_OK);
        CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK); /* waits for the other job's end, then continues */
        CHECK_INT(said.count, cases[i].waiting);
        CHECK_INT(held.done_events, 1);
        CHECK_INT(held.count, 150);
        rig_close(&r);
    }
}

/* The same with a job whose events nobody reads. */
static void unread_has_the_place(void)
{
    static rig_said said;
    exl2_event ev;
    exl2_job job;
    rig r = open_small_queue(1, 0);
    exl2_job_desc unread = scoring(&r, 0, 200, EXL2_ALTS_MAX, 4);
    CHECK_INT(exl2_job_start(r.engine, &unread, &job), EXL2_OK);
    exl2_job_desc d = rig_job(&r, prompt, 20, 6, &said);
    check_names(&r, exl2_generate(r.engine, &d), job, "exl2_next_event");
    for (uint32_t i = 0; i < 1000; i++) {
        while (exl2_next_event(r.engine, &ev)) {
        }
        exl2_step(r.engine, NULL);
    }
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(said.count, 6);
    rig_close(&r);
}

/* A job that was paused before it began holds nothing, and nothing waits for it. */
static void paused_before_it_began(void)
{
    static rig_said first, second;
    exl2_job job;
    exl2_job_info info;
    rig r = open_small_queue(1, 256);
    exl2_job_desc d = rig_job(&r, prompt, 100, 100, &first), other = rig_job(&r, prompt, 100, 100, &second);
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    CHECK_INT(exl2_job_pause(r.engine, job, true), EXL2_OK);
    for (uint32_t i = 1; i <= 8; i++) { /* more than may overtake a waiting job */
        CHECK_INT(exl2_generate(r.engine, &other), EXL2_OK);
        CHECK_INT(second.done_events, i);
    }
    CHECK_INT(exl2_job_get(r.engine, job, &info), EXL2_OK);
    CHECK_INT(info.state, EXL2_JOB_PAUSED);
    CHECK_INT(first.prefill_events, 0);
    CHECK_INT(exl2_job_pause(r.engine, job, false), EXL2_OK);
    rig_drain(&r, 0);
    CHECK_INT(first.count, 100);
    rig_close(&r);
}

/* A call whose own job is paused waits until the job is resumed: here at another job's end. */
typedef struct resumer {
    exl2_engine *engine;
    exl2_job job, *sleeper;
    uint32_t texts;
} resumer;

static exl2_flow pause_at_third(void *user, const exl2_event *ev)
{
    resumer *s = (resumer *)user;
    s->job = ev->job;
    s->texts += ev->kind == EXL2_EVENT_TEXT;
    return ev->kind == EXL2_EVENT_TEXT && s->texts == 3 ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
}

static exl2_flow resume_at_done(void *user, const exl2_event *ev)
{
    resumer *s = (resumer *)user;
    if (ev->kind == EXL2_EVENT_DONE) {
        CHECK_INT(s->texts, 3);
        CHECK_INT(exl2_job_pause(s->engine, s->job, false), EXL2_OK);
    }
    return EXL2_CONTINUE;
}

static void paused_by_itself(void)
{
    resumer s = { 0 };
    rig r = open_small_queue(0, 0);
    s.engine = r.engine;
    exl2_job_desc d = rig_job(&r, prompt, 20, 12, NULL), other = rig_job(&r, prompt, 20, 40, NULL);
    d.user = other.user = &s;
    d.on_event = pause_at_third;
    other.on_event = resume_at_done;
    CHECK_INT(exl2_job_start(r.engine, &other, NULL), EXL2_OK);
    CHECK_INT(exl2_generate(r.engine, &d), EXL2_OK);
    CHECK_INT(s.texts, 12);
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < 200; i++) {
        prompt[i] = (exl2_token)((i * 53 + 7) % 300);
    }
    text_write(&fixture, NULL, 0, "{}");
    text_only_beside();
    one_unread_queue();
    many_unread_queues();
    unread_when_closed();
    paused_has_the_place();
    unread_has_the_place();
    paused_before_it_began();
    paused_by_itself();
    return check_done();
}
