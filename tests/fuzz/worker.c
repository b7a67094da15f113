/* worker.c: a fuzzer of the worker. A sequence has some hundred operations on one engine: the worker starts and stops,
   models load, park, draft for each other and end, jobs start, pause, fork, are saved and go on elsewhere, callbacks do
   the same, a second thread cancels and pauses, allocations and reads fail. It is chosen by the seed, but when the
   worker does its work is up to the machine. These hold at any time:
     - each job has one DONE, and no event after it; callbacks run on the application's thread, and texts are UTF-8;
     - hooks but the logger never run two at a time, and file functions on the worker's thread only where load_thread
       allows that;
     - when nothing is paused or parked, IDLE means that all jobs have ended;
     - a history is what it was, the prompt, and the tokens of the events;
     - a model is ready once its last LOAD event was heard; an error has its sentence;
     - the tokens are those that the job has alone in another engine, also after a save, a park or a restore in a model
       with other settings;
     - as many bytes are freed as were allocated, and all files are closed.

       fuzz_worker [--begin SEED] [--count SEQUENCES] [--operations N]   runs these sequences, as CI does
       fuzz_worker --seconds S [--begin SEED]                            runs sequences for S seconds

   A finding names its seed; with that seed it may come again, or not. For a release run it for 30 minutes each with the
   address and undefined-behaviour sanitizers, and with -fsanitize=thread, and with the engine's own checks:

       cc -g -O1 -DFUZZ_ENGINE -DTEST_WHOLE -fsanitize=thread -I. -Ibuild/tests '-DEXL2_GOLDEN_DIR="tests/golden"' \
           tests/fuzz/worker.c -o fuzz_worker -lm -lpthread -ldl
   takes: models of tests/golden.
   gives: exit code 0 or 1. */
#define _GNU_SOURCE
#ifdef FUZZ_ENGINE
#include <stdio.h>
#include <stdlib.h>
#define EXL2_NO_CUDA
#define EXL2_ASSERT(c) ((c) ? (void)0 : (fprintf(stderr, "%s:%d: assertion: %s\n", __FILE__, __LINE__, #c), abort()))
#define EXL2__CPU_TASK_COST 1
#define EXL2_IMPLEMENTATION
#endif
#include "worker_hooks.h"

#define SLOTS 4u        /* models at a time */
#define SESSIONS 12u
#define JOBS 2000u      /* of a sequence */
#define HISTORY 1200u   /* tokens, more than any context */

/* ---- records ---- */

typedef struct model {
    exl2_model id;
    exl2_model_desc desc;
    bool opens, parked; /* opens: a call opens one here */
} model;

typedef struct job job;

typedef struct session {
    exl2_session id;
    model *of;
    job *busy;
    bool moved; /* its history came from a model with other settings */
} session;

struct job {
    exl2_job id;
    exl2_model_desc model; /* for the replay */
    exl2_job_desc desc;
    exl2_token prompt[160], before[HISTORY], said[HISTORY];
    uint32_t before_count, count, skipped; /* skipped: tokens that were said before the save that it goes on from */
    uint32_t made; /* of `said`: tokens that the model of the save had sampled, but that were not heard before it */
    session *in;
    bool live, polled, moved;
    bool replaced; /* its session was restored after it had ended, and before its DONE was read */
    exl2_stop stop;
    exl2_result result;
    uint32_t dones;
};

static model models[SLOTS];
static session sessions[SESSIONS];
static job *jobs[JOBS];
static uint32_t job_count, depth;
static bool closes; /* exl2_close runs */
static session *restored; /* a restore into it runs */
static uint64_t total_jobs, total_tokens, total_replays, total_idles;
static uint32_t rewinds; /* of sessions */

#define failing() (fail_alloc || fail_read)
static void operate(const exl2_event *event);

static uint32_t history(exl2_session s, exl2_token *out)
{
    size_t need = 0;
    exl2_result r = CALL(exl2_session_tokens, s, out, HISTORY, &need);
    MUST(r == EXL2_OK, "exl2_session_tokens of a live session gives %s", exl2_result_name(r));
    return (uint32_t)need;
}

/* ---- events ---- */

static void check_history(const job *j)
{
    static exl2_token now[HISTORY];
    uint32_t prompt = (uint32_t)j->desc.prompt.token_count;
    if (!j->in || j->in->busy || j->replaced) {
        return;
    }
    uint32_t count = history(j->in->id, now), begun = j->before_count + prompt;
    bool untouched = j->count == 0 && j->result < 0 && count == j->before_count;
    MUST(untouched || count == begun + j->count, "a history has %u tokens, not %u and %u of the prompt and %u said",
         count, j->before_count, prompt, j->count);
    MUST(memcmp(now, j->before, j->before_count * sizeof *now) == 0, "a history begins otherwise than before the job");
    MUST(untouched || (memcmp(now + j->before_count, j->prompt, prompt * sizeof *now) == 0
                       && memcmp(now + begun, j->said, j->count * sizeof *now) == 0),
         "a history is not what was there, the prompt, and what was said");
}

static void hear_event(job *j, const exl2_event *event)
{
    MUST(j->live && j->dones == 0, "an event of kind %d of a job that had its DONE", (int)event->kind);
    MUST(!j->id.id || event->job.id == j->id.id, "an event names another job");
    if (event->kind == EXL2_EVENT_TEXT) {
        MUST(event->text[event->bytes] == 0 && exl2__unicode_valid(event->text, event->bytes), "TEXT is not UTF-8");
        MUST(j->count + event->token_count < HISTORY, "a job says more than it may");
        for (uint32_t i = 0; i < event->token_count; i++) {
            MUST(event->tokens[i].token >= 0 && event->tokens[i].token < TEXT_VOCAB, "a token outside the vocabulary");
            j->said[j->count++] = event->tokens[i].token;
        }
    } else if (event->kind == EXL2_EVENT_DONE) {
        exl2_job_info info;
        j->dones++;
        j->live = false;
        j->stop = event->stop;
        j->result = event->result;
        total_tokens += j->count;
        MUST((event->result < 0) == (event->error != NULL), "DONE with %s", exl2_result_name(event->result));
        MUST(event->stats.new_tokens == j->count, "DONE counts %u tokens, heard were %u", event->stats.new_tokens,
             j->count);
        MUST(event->stop != EXL2_STOP_LENGTH || j->desc.prefill_only || j->skipped + j->count == j->desc.max_tokens,
             "a job ends by its length after %u of %u tokens", j->skipped + j->count, j->desc.max_tokens);
        MUST(CALL(exl2_job_get, event->job, &info) == EXL2_ERR_STALE, "a job lives after its DONE");
        if (j->in && j->in->busy == j) {
            j->in->busy = NULL;
            check_history(j);
        }
    }
}

static void start_and_cancel(session *s);

static exl2_flow hear(void *user, const exl2_event *event)
{
    MUST(pthread_equal(main_thread, pthread_self()), "on_event is called on the worker's thread");
    hear_event(user, event);
    if (restored && restored->id.id && !restored->busy && chance(2)) {
        start_and_cancel(restored);
    }
    if (depth < 3 && chance(6)) {
        depth++;
        operate(event);
        depth--;
    }
    bool waits = ((job *)user)->id.id == 0; /* exl2_generate: nobody knows its handle and could let it go on */
    return chance(30) ? EXL2_STOP_JOB : chance(30) && !waits ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
}

static exl2_flow hear_load(void *user, const exl2_event *event)
{
    model *m = user;
    MUST(pthread_equal(main_thread, pthread_self()), "on_event is called on the worker's thread");
    MUST(event->kind == EXL2_EVENT_LOAD, "a model has an event of kind %d", (int)event->kind);
    if (m->parked || m->id.id == event->model.id) {
        exl2_result state = CALL(exl2_model_state, event->model);
        MUST(state == EXL2_PENDING, "a LOAD event is heard, and the state is %s", exl2_result_name(state));
    }
    return EXL2_CONTINUE;
}

static void poll_events(void)
{
    exl2_event event;
    while (!depth && exl2_next_event(engine, &event)) {
        if (event.kind != EXL2_EVENT_LOAD) {
            hear_event(event.user, &event);
        }
    }
}

static void edit_logits(void *user, exl2_job id, float *logits, uint32_t vocab)
{
    exl2_job_info info;
    (void)user;
    MUST(exl2_job_get(engine, id, &info) == EXL2_OK, "on_logits of a job that does not live");
    logits[7 % vocab] = -INFINITY;
}

/* ---- models ---- */

static model *pick_model(void)
{
    uint32_t first = draw(SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        model *m = &models[(first + i) % SLOTS];
        if (m->id.id && exl2_model_state(engine, m->id) == EXL2_OK) {
            return m;
        }
    }
    return NULL;
}

static void end_model(model *m)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        if (sessions[i].of == m) {
            sessions[i] = (session){ 0 };
        }
    }
    for (uint32_t i = 0; i < job_count; i++) {
        bool own = jobs[i]->model.user == m;
        MUST(!own || !jobs[i]->live || jobs[i]->polled, "a model was closed, and its job had no DONE");
        jobs[i]->in = own ? NULL : jobs[i]->in;
        jobs[i]->model.user = own ? NULL : jobs[i]->model.user;
    }
    *m = (model){ 0 };
}

static void change_model(void)
{
    model *m = &models[draw(SLOTS)];
    if (m->opens) {
        return;
    }
    if (!m->id.id) {
        exl2_model id = { 0 };
        make_model(&m->desc);
        m->desc.user = m;
        m->desc.on_event = chance(2) ? hear_load : NULL;
        m->parked = false;
        m->opens = true;
        bool waits = !depth && chance(2);
        exl2_result r = waits ? CALL(exl2_model_load, &m->desc, &id) : CALL(exl2_model_open, &m->desc, &id);
        MUST(r == EXL2_OK || failing() || (closes && r == EXL2_ERR_STATE), "opening a model gives %s",
             exl2_result_name(r));
        m->id = id;
        m->opens = false;
        return;
    }
    exl2_result state = CALL(exl2_model_state, m->id);
    MUST(state != EXL2_ERR_STALE, "a live model gives %s", exl2_result_name(state));
    if (!depth && (state < 0 || chance(8))) {
        exl2_model id = m->id;
        exl2_result r = CALL(exl2_model_close, id);
        MUST(r == EXL2_OK, "exl2_model_close gives %s", exl2_result_name(r));
        end_model(m);
    } else if (state == EXL2_OK && !depth) {
        exl2_result r = CALL(exl2_model_park, m->id, true);
        m->parked = r == EXL2_OK;
        state = CALL(exl2_model_state, m->id);
        MUST(state == EXL2_IDLE, "a parked model is %s", exl2_result_name(state));
    } else if (state == EXL2_IDLE) {
        MUST(CALL(exl2_model_park, m->id, false) == EXL2_OK, "a parked model cannot load again");
    }
}

/* ---- sessions and jobs ---- */

static session *pick_session(bool idle)
{
    uint32_t first = draw(SESSIONS);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        session *s = &sessions[(first + i) % SESSIONS];
        if (s->id.id && !(idle && s->busy)) {
            return s;
        }
    }
    return NULL;
}

static session *free_session(void)
{
    uint32_t i = 0;
    while (i < SESSIONS && sessions[i].id.id) {
        i++;
    }
    return i < SESSIONS ? &sessions[i] : NULL;
}

static void change_session(void)
{
    session *s = pick_session(false), *to = free_session();
    model *m = pick_model();
    if (to && m && chance(2)) {
        exl2_session id;
        if (CALL(exl2_session_open, m->id, &id) == EXL2_OK) {
            *to = (session){ .id = id, .of = m };
        }
    } else if (s && to && chance(2)) {
        exl2_session id;
        if (CALL(exl2_session_fork, s->id, &id) == EXL2_OK) {
            static exl2_token a[HISTORY], b[HISTORY];
            *to = (session){ .id = id, .of = s->of, .moved = s->moved };
            uint32_t count = history(id, b), origin = history(s->id, a); /* which may go on meanwhile */
            MUST((count == origin || (s->busy && count < origin)) && memcmp(a, b, count * sizeof *a) == 0,
                 "a fork has %u tokens, its origin %u", count, origin);
        }
    } else if (s && !s->busy && chance(3)) {
        MUST(CALL(exl2_session_rewind, s->id, draw(20)) != EXL2_ERR_STATE, "a free session cannot be rewound");
        rewinds++;
    } else if (s && chance(4)) {
        for (uint32_t i = 0; i < job_count; i++) {
            jobs[i]->in = jobs[i]->in == s ? NULL : jobs[i]->in;
        }
        MUST(CALL(exl2_session_close, s->id) == EXL2_OK, "a live session cannot be closed");
        *s = (session){ 0 };
    }
}

static job *new_job(const model *m, session *s)
{
    job *j = calloc(1, sizeof *j);
    j->model = m->desc;
    j->in = s;
    j->polled = chance(4);
    if (s) {
        j->before_count = history(s->id, j->before);
        j->moved = s->moved;
    }
    return j;
}

/* Starts the job, or throws it away. */
static bool start(job *j)
{
    bool waits = !depth && !j->polled && chance(8);
    j->desc.user = j;
    j->desc.on_event = j->polled ? NULL : hear;
    j->live = true;
    jobs[job_count++] = j;
    session *s = j->in;
    if (s) {
        s->busy = j;
    }
    exl2_result r;
    if (waits) { /* which another thread may interrupt, and which ends a job that waits for paused ones */
        r = CALL(exl2_generate, &j->desc);
        MUST(!j->live || r < 0, "exl2_generate gives %s without a DONE", exl2_result_name(r));
        j->live = false;
    } else {
        exl2_job id = { 0 };
        r = CALL(exl2_job_start, &j->desc, &id);
        j->id = id;
    }
    total_jobs += r == EXL2_OK;
    if (r < 0 && j->dones == 0) {
        if (j->in && j->in->busy == j) {
            j->in->busy = NULL;
        }
        j->live = false;
        j->in = NULL;
        j->result = r;
    }
    return r == EXL2_OK;
}

/* In a callback while the session waits to be restored: the job may end before that, and its DONE is read after it. */
static void start_and_cancel(session *s)
{
    if (job_count < JOBS) {
        job *j = new_job(s->of, s);
        j->polled = true;
        j->desc = (exl2_job_desc){ .session = s->id, .prompt = { .tokens = j->prompt, .token_count = 10 },
                                   .max_tokens = 5, .sampler.seed = 1 + draw(1000) }; /* seed 0 is another each time */
        if (start(j)) {
            CALL(exl2_job_cancel, j->id);
        }
    }
}

static void start_job(const exl2_event *event)
{
    session *s = chance(3) ? NULL : pick_session(true);
    for (uint32_t i = 0; event && event->kind == EXL2_EVENT_DONE && i < SESSIONS && chance(2); i++) {
        s = sessions[i].id.id == event->session.id && !sessions[i].busy ? &sessions[i] : s;
    }
    model *m = s ? s->of : pick_model();
    if (!m || job_count == JOBS || exl2_model_state(engine, m->id) != EXL2_OK) {
        return;
    }
    static const uint32_t lengths[] = { 1, 3, 20, 64, 150 };
    job *j = new_job(m, s);
    exl2_job_desc *d = &j->desc;
    d->model = m->id;
    d->session.id = s ? s->id.id : 0;
    d->prompt.token_count = lengths[draw(5)];
    d->prompt.tokens = j->prompt;
    uint32_t first = draw(4) * 7;
    for (uint32_t i = 0; i < d->prompt.token_count; i++) {
        j->prompt[i] = (exl2_token)((first + i * 5) % TEXT_VOCAB);
    }
    d->max_tokens = 1 + draw(chance(3) ? 120 : 16);
    d->prefill_only = chance(15);
    d->max_tokens = d->prefill_only ? 0 : d->max_tokens;
    d->score_prompt = chance(8);
    d->alts_per_token = chance(6) ? 1 + draw(5) : 0;
    d->sampler.preset = (exl2_preset)(1 + draw(3));
    d->sampler.seed = 1 + draw(1000);
    d->priority = chance(4) ? (int32_t)draw(3) : 0;
    d->loop_stop = chance(6) ? 3 : 0;
    d->draft.ngram = chance(3);
    d->on_logits = chance(10) ? edit_logits : NULL;
    model *draft = chance(3) ? pick_model() : NULL;
    d->draft.model.id = draft && draft != m ? draft->id.id : 0;
    start(j);
}

/* Saves a session, restores it in one of another model or the same, and lets its job go on there. */
static void save_and_go_on(void)
{
    static uint8_t saved[1 << 20];
    static exl2_token was[HISTORY], now[HISTORY];
    session *from = pick_session(false), *to = pick_session(true);
    size_t need = 0;
    if (!from || !to || from == to) {
        return;
    }
    exl2_session id = from->id, into = to->id;
    exl2_result r = CALL(exl2_session_save, id, chance(2) ? EXL2_SAVE_KV : 0, saved, sizeof saved, &need);
    if (r < 0 || from->id.id != id.id || to->id.id != into.id || to->busy) { /* callbacks ran meanwhile */
        return;
    }
    const job *goes_on = from->busy;
    uint32_t said = goes_on ? goes_on->count : 0; /* a restore may deliver more */
    uint32_t count = history(id, was), before = history(into, now);
    bool same = strcmp(from->of->desc.path, to->of->desc.path) == 0;
    exl2_model_desc settings = to->of->desc;
    if (chance(6)) {
        saved[draw((uint32_t)need)] ^= (uint8_t)(1u << draw(8));
        same = false;
    }
    uint32_t changes = rewinds + job_count;
    restored = to;
    r = CALL(exl2_session_restore, into, saved, need);
    restored = NULL;
    if (r == EXL2_OK && to->id.id == into.id && to->busy) { /* a callback has started its job, which has ended */
        MUST(to->busy->polled, "a session is restored while its job runs");
        to->busy->replaced = true;
        to->moved = from->of != to->of;
    }
    if (to->id.id != into.id || to->busy || rewinds + job_count != changes) { /* the same */
        return;
    }
    uint32_t after = history(into, now);
    MUST(r == EXL2_OK || after == before, "a restore gives %s, and the history has changed", exl2_result_name(r));
    MUST(r != EXL2_OK || same, "a snapshot of another model is restored");
    bool grown = goes_on && after < count; /* since the save the worker has begun with its prompt, or queued texts */
    MUST(r != EXL2_OK || ((after == count || grown) && memcmp(now, was, after * sizeof *now) == 0),
         "a restored history has %u tokens, of %u", after, count);
    to->moved = r == EXL2_OK ? from->of != to->of : to->moved;
    exl2_session_info info;
    if (r != EXL2_OK || CALL(exl2_session_get, into, &info) < 0 || !info.resumes || !goes_on || grown
        || goes_on->polled || goes_on->skipped || goes_on->desc.draft.model.id || goes_on->desc.loop_stop
        || job_count == JOBS) {
        return;
    }
    job *j = calloc(1, sizeof *j);
    memcpy(j, goes_on, sizeof *j);
    j->model = settings;
    j->id.id = 0;
    j->in = to;
    j->skipped = said;
    j->made = exl2__load32(saved + 32) - count; /* the snapshot has more words than the history */
    j->moved = to->moved;
    j->count = j->dones = 0;
    j->polled = chance(4);
    j->desc.session = into;
    j->desc.model.id = 0;
    j->desc.resume = true;
    j->desc.prompt = (exl2_prompt){ .tokens = NULL };
    memcpy(j->before, now, count * sizeof *now);
    j->before_count = count;
    start(j);
}

static void change_job(void)
{
    job *j = NULL;
    exl2_job_info info;
    for (uint32_t i = 0, count = 0; i < job_count; i++) {
        j = jobs[i]->live && jobs[i]->id.id && draw(++count) == 0 ? jobs[i] : j;
    }
    if (!j) {
        return;
    }
    uint32_t what = draw(6);
    exl2_result r = what == 0 ? CALL(exl2_job_cancel, j->id) : what < 4 ? CALL(exl2_job_pause, j->id, what == 1)
                  : what == 4 ? CALL(exl2_job_priority, j->id, (int32_t)draw(3)) : CALL(exl2_job_get, j->id, &info);
    MUST(r == EXL2_OK || j->polled, "a call for a live job gives %s", exl2_result_name(r));
}

/* ---- stepping ---- */

static exl2_result step(const exl2_step_desc *d)
{
    exl2_result r = CALL(exl2_step, d);
    MUST(depth ? r == EXL2_ERR_STATE : r >= 0, "exl2_step gives %s", exl2_result_name(r));
    return r;
}

static pthread_mutex_t second_lock = PTHREAD_MUTEX_INITIALIZER; /* held: the second thread makes no calls */
/* Lets all go on, and makes the usual loop: after IDLE, all jobs have ended. */
static void run_dry(void)
{
    exl2_step_desc d = { .wait = chance(2), .cpu_us = chance(2) ? 0 : 1 + draw(2000) };
    uint32_t alloc = fail_alloc, read = fail_read, left = 1;
    pthread_mutex_lock(&second_lock);
    exl2__atomic_store(&fail_alloc, 0);
    exl2__atomic_store(&fail_read, 0);
    for (uint32_t round = 0; left && round < 1000; round++) { /* callbacks may pause jobs again, or start some */
        left = 0;
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (models[i].id.id && exl2_model_state(engine, models[i].id) == EXL2_IDLE) {
                CALL(exl2_model_park, models[i].id, false);
            }
        }
        for (uint32_t i = 0; i < job_count; i++) {
            if (jobs[i]->live && jobs[i]->id.id) {
                CALL(exl2_job_pause, jobs[i]->id, false);
            }
        }
        do { /* a full queue, too, is a reason for IDLE */
            poll_events();
        } while (step(&d) != EXL2_IDLE);
        poll_events();
        total_idles++;
        uint32_t paused = 0;
        for (uint32_t i = 0; i < job_count; i++) {
            exl2_job_info info;
            if (jobs[i]->live && exl2_job_get(engine, jobs[i]->id, &info) == EXL2_OK) {
                left++;
                paused += info.state == EXL2_JOB_PAUSED;
            }
        }
        for (uint32_t i = 0; i < SLOTS; i++) {
            exl2_result state = models[i].id.id ? exl2_model_state(engine, models[i].id) : EXL2_OK;
            MUST(state != EXL2_PENDING, "IDLE, and a model still loads");
            paused += state == EXL2_IDLE; /* a load that had begun before failed, and its jobs wait on */
        }
        MUST(!left || paused, "IDLE, and %u jobs live, none of them paused or parked", left);
    }
    MUST(!left, "%u jobs do not end", left);
    exl2__atomic_store(&fail_alloc, alloc);
    exl2__atomic_store(&fail_read, read);
    pthread_mutex_unlock(&second_lock);
}

static void look(void)
{
    exl2_engine_stats stats;
    exl2_job_size size = { 0 };
    exl2_stats(engine, &stats);
    MUST(stats.pages_used + stats.pages_cached <= stats.pages_total && stats.pages_shared <= stats.pages_used,
         "exl2_stats: %u pages, %u used, %u cached", stats.pages_total, stats.pages_used, stats.pages_cached);
    model *m = pick_model();
    exl2_token ids[3] = { 5, 6, 7 };
    if (m) {
        exl2_job_desc d = { .model = m->id, .prompt = { .tokens = ids, .token_count = 3 }, .max_tokens = 5 };
        CALL(exl2_job_measure, &d, &size);
    }
}

static void change_worker(void)
{
    exl2_result r = chance(3) ? CALL_WORKER(exl2_worker_stop) : CALL_WORKER(exl2_worker_start);
    MUST(r == EXL2_OK || r == EXL2_ERR_STATE || failing(), "starting or stopping the worker gives %s",
         exl2_result_name(r));
}

static void change_faults(void)
{
    static const uint32_t rates[] = { 0, 0, 0, 3, 20 };
    exl2__atomic_store(&fail_alloc, rates[draw(5)]);
    exl2__atomic_store(&fail_read, rates[draw(5)]);
}

static void operate(const exl2_event *event)
{
    uint32_t what = draw(100);
    if (what < 30 || (depth && what < 34)) {
        exl2_step_desc d = { .wait = chance(4), .cpu_us = chance(2) ? 0 : 1 + draw(1000) };
        step(&d);
        if (chance(3)) {
            poll_events();
        }
    } else if (what < 55) {
        start_job(event);
    } else if (what < 68) {
        change_job();
    } else if (what < 78) {
        change_session();
    } else if (what < (pick_model() ? 81 : 83)) {
        change_model();
    } else if (what < 88) {
        look();
    } else if (depth) {
        MUST(CALL_WORKER(exl2_worker_stop) == EXL2_ERR_STATE, "exl2_worker_stop in a callback");
    } else if (what < 92) {
        save_and_go_on();
    } else if (what < 95) {
        change_worker();
    } else if (what < 97) {
        change_faults();
    } else if (what < 98) {
        run_dry();
    } else {
        usleep(draw(3000));
    }
}

/* ---- the second thread ---- */

static uint32_t second_ends;
static void *second_thread(void *arg)
{
    (void)arg;
    while (!exl2__atomic_load(&second_ends)) {
        exl2_job id = { (uint64_t)(1 + draw_of(&other_chance, 12)) << 32 | (1 + draw_of(&other_chance, 8)) };
        exl2_job_info info;
        exl2_engine_stats stats;
        exl2_error error;
        uint32_t what = draw_of(&other_chance, 40);
        pthread_mutex_lock(&second_lock);
        exl2_result r = what < 2 ? exl2_job_cancel(engine, id) : what < 6 ? exl2_job_pause(engine, id, true)
                      : what < 20 ? exl2_job_pause(engine, id, false) : exl2_job_get(engine, id, &info);
        exl2_stats(engine, &stats);
        exl2_last_error(engine, &error);
        pthread_mutex_unlock(&second_lock);
        MUST(r == EXL2_OK || r == EXL2_ERR_STALE, "a call on the second thread gives %s", exl2_result_name(r));
        usleep(draw_of(&other_chance, 400));
    }
    return NULL;
}

/* ---- one sequence ---- */

/* Runs the job again, alone: it must say the same. */
static void replay(const job *was)
{
    static exl2_token before[2 * HISTORY];
    exl2_engine_desc e = text_engine(&words);
    exl2_model_desc m = was->model;
    job *now = calloc(1, sizeof *now);
    exl2_model id;
    m.on_event = NULL;
    m.user = NULL;
    m.prefill_chunk = 0;
    m.batch_max = 0;
    m.keep_packed = false;
    m.cache.tokens = 4096;
    MUST(exl2_open(&e, &engine) == EXL2_OK && CALL(exl2_model_load, &m, &id) == EXL2_OK, "no engine for a replay");
    exl2_job_desc d = was->desc;
    exl2_session s;
    memcpy(before, was->before, was->before_count * sizeof *before);
    memcpy(before + was->before_count, was->said, was->made * sizeof *before);
    MUST(CALL(exl2_session_open, id, &s) == EXL2_OK, "replay: no session");
    exl2_job_desc fill = { .session = s, .prefill_only = true, .prompt = { .tokens = before } };
    fill.prompt.token_count = was->before_count + was->made;
    if (was->desc.resume) { /* what was there and said before is the prompt now */
        d.prompt = fill.prompt;
        d.max_tokens -= was->skipped + was->made;
        d.resume = false;
    } else {
        d.prompt.tokens = was->prompt;
        MUST(!was->before_count || CALL(exl2_generate, &fill) == EXL2_OK, "replay: no history");
    }
    d.session = s;
    d.model.id = d.draft.model.id = 0;
    d.draft.ngram = false;
    d.on_event = NULL;
    d.priority = 0;
    now->polled = now->live = true;
    d.user = now;
    now->desc = d;
    exl2_job started;
    exl2_result r = CALL(exl2_job_start, &d, &started);
    MUST(r == EXL2_OK, "replay: a start gives %s", exl2_result_name(r));
    while (now->live) {
        step(&(exl2_step_desc){ .wait = true });
        poll_events();
    }
    bool whole = was->result == EXL2_OK && was->stop != EXL2_STOP_CALLBACK;
    uint32_t count = was->count - was->made;
    MUST(now->count >= count && memcmp(now->said, was->said + was->made, count * sizeof *was->said) == 0,
         "%s, context %u, rope %g %g %g, experts %u: a job said other tokens than it says alone (%u, %u before a save, "
         "%u made, resumed %d, history moved %d, draft %d; alone %u)", strrchr(m.path, '/'), m.context_max,
         (double)m.rope_scale, (double)m.rope_alpha, (double)m.yarn_factor, m.experts_active, count, was->skipped,
         was->made, was->desc.resume, was->moved, was->desc.draft.model.id != 0, now->count);
    MUST(!whole || (now->count == count && now->stop == was->stop), "a job ended otherwise than alone: %u tokens, stop "
         "%d; alone %u, %d", count, (int)was->stop, now->count, (int)now->stop);
    exl2_close(engine);
    free(now);
    total_replays++;
}

/* Replays some jobs: those whose history was moved, or others. */
static void replay_some(bool moved, uint32_t most)
{
    for (uint32_t i = 0; i < job_count && most; i++) {
        const job *j = jobs[(i + (uint32_t)seed * 7) % job_count];
        bool said = j->dones && j->count && (j->result == EXL2_OK || j->result == EXL2_ERR_CANCELLED);
        said = said && j->made < j->count && (!j->desc.resume || j->skipped + j->made < j->desc.max_tokens);
        if (said && j->moved == moved) {
            replay(j);
            most--;
        }
    }
}

static void run_sequence(uint32_t operations)
{
    pthread_t second;
    exl2_engine_desc d = text_engine(&words);
    watch_hang(true);
    main_chance = seed * 3 + 1;
    hook_chance = seed * 3 + 2;
    other_chance = seed * 3 + 3;
    d.allocator = (exl2_allocator){ .alloc_fn = hook_alloc, .free_fn = hook_free };
    d.files = (exl2_files){ hook_open, hook_list, hook_read, hook_close, &words };
    d.log = (exl2_logger){ hook_line, NULL, EXL2_LOG_DEBUG };
    d.parallel = chance(3) ? (exl2_parallel){ 0 } : (exl2_parallel){ hook_run, 3, NULL };
    d.load_thread = (exl2_load_thread)draw(3);
    worker_may_load = d.load_thread == EXL2_LOAD_WORKER;
    d.max_jobs = 3 + draw(8);
    d.max_sessions = 4 + draw(20);
    d.max_events = chance(2) ? 1 : 500;
    MUST(exl2_open(&d, &engine) == EXL2_OK, "no engine");
    exl2__atomic_store(&second_ends, 0);
    pthread_create(&second, NULL, second_thread, NULL);
    change_model();
    change_model();
    CALL_WORKER(exl2_worker_start);
    for (at = 0; at < operations; at++) {
        operate(NULL);
    }
    if (chance(2)) {
        run_dry();
    }
    pthread_mutex_lock(&second_lock);
    exl2__atomic_store(&second_ends, 1);
    pthread_mutex_unlock(&second_lock);
    pthread_join(second, NULL);
    doing = "exl2_close";
    closes = true;
    exl2_close(engine);
    closes = false;
    doing = "";
    fail_alloc = fail_read = 0;
    for (uint32_t i = 0; i < job_count; i++) {
        MUST(!jobs[i]->live || jobs[i]->polled, "the engine is closed, and a job had no DONE");
        jobs[i]->in = NULL;
    }
    MUST(live_bytes == 0 && files_open == 0, "%llu bytes and %u files are left", (unsigned long long)live_bytes,
         files_open);
    memset(sessions, 0, sizeof sessions);
    memset(models, 0, sizeof models);
    replay_some(true, 4);
    replay_some(false, 3);
    for (uint32_t i = 0; i < job_count; i++) {
        free(jobs[i]);
    }
    job_count = 0;
    watch_hang(false);
}

int main(int argc, char **argv)
{
    uint64_t begin = 1, count = 0;
    uint32_t operations = 300;
    double seconds = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        begin = strcmp(argv[i], "--begin") == 0 ? strtoull(value, NULL, 10) : begin;
        count = strcmp(argv[i], "--count") == 0 ? strtoull(value, NULL, 10) : count;
        operations = strcmp(argv[i], "--operations") == 0 ? (uint32_t)strtoul(value, NULL, 10) : operations;
        seconds = strcmp(argv[i], "--seconds") == 0 ? strtod(value, NULL) : seconds;
    }
    static const char *const plan[] = { "ab", "\xC3", "\xA9", "\xE2\x82", "\xAC", "\n", "the ", "\xF0\x9F" };
    for (uint32_t i = 0; i < EXL2__COUNT(plan); i++) {
        words.planned[i] = (exl2_token)(TEXT_VOCAB - EXL2__COUNT(plan) + i);
    }
    text_write(&words, plan, EXL2__COUNT(plan), TEXT_CHAT_CONFIG);
    signal(SIGALRM, on_alarm);
    signal(SIGPROF, on_alarm);
    signal(SIGABRT, on_abort);
    main_thread = pthread_self();
    count = count ? count : seconds > 0 ? UINT64_MAX / 2 : 20;
    uint64_t end_ns = seconds > 0 ? exl2__platform_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (seed = begin; seed - begin < count && exl2__platform_ns() < end_ns; seed++) {
        run_sequence(operations);
        CHECK(true);
    }
    printf("%llu sequences, %llu jobs, %llu tokens, %llu times IDLE, %llu replays\n",
           (unsigned long long)(seed - begin), (unsigned long long)total_jobs, (unsigned long long)total_tokens,
           (unsigned long long)total_idles, (unsigned long long)total_replays);
    return check_done();
}
