/* worker_states.c: what the application is told while the worker runs: IDLE only when nothing is left to do or to hear,
   one DONE for each job, states of jobs and models that agree with the events; which thread the hooks are called on; a
   call goes before the worker's next unit, and calls in a row leave the worker its turns. Run it by hand with TSan,
   too. */
#include "rig.h"
#include "text_model.h"

#include "private/gate.h"

#include <pthread.h>

#define NEW 200

static exl2_token prompt[100];
static const exl2_token ban[] = { 2 };
static rig_said said[4];
static const exl2_step_desc waiting = { .wait = true };

static exl2_job_desc job_of(const rig *r, uint32_t tokens, rig_said *into)
{
    exl2_job_desc d = rig_job(r, prompt, 100, tokens, into);
    memset(into, 0, sizeof *into);
    d.sampler.ban = ban; /* the end token */
    d.sampler.ban_count = 1;
    return d;
}

static exl2_kernel_cache kernels(void)
{
    return RIG_BACKEND == EXL2_BACKEND_CUDA ? kernel_folder() : (exl2_kernel_cache){ NULL, NULL, NULL };
}

/* The usual loop. */
static void step_until_idle(const rig *r, const exl2_step_desc *step)
{
    uint32_t i = 0;
    while (CHECK(i++ < 4000000) && exl2_step(r->engine, step) != EXL2_IDLE) {
        exl2_event ev;
        while (exl2_next_event(r->engine, &ev)) {
            rig_hear(ev.user, &ev);
        }
        if (!step->wait && i % 256 == 0) {
            exl2__platform_sleep_ms();
        }
    }
}

/* ---- IDLE ---- */

/* After IDLE the whole answer was heard, by a callback, or in the loop that polls; also when the worker had written as
   many texts as it may and waited to be heard. */
static void idle_is_the_end(const rig *r)
{
    static const exl2_step_desc steps[] = { { .wait = true }, { .cpu_us = 300, .wait = true }, { .cpu_us = 2000 } };
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    for (uint32_t i = 0; i < 60; i++) {
        exl2_job_desc d = job_of(r, NEW, &said[0]);
        d.on_event = i % 2 ? NULL : d.on_event;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
        step_until_idle(r, &steps[i / 2 % 3]);
        CHECK_INT(said[0].count, NEW);
        CHECK_INT(said[0].done_events, 1);
    }
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

/* A job that goes on, or is cancelled, from any thread is work: the next step does not say IDLE because of what the
   worker saw before. */
static void news_is_work(const rig *r)
{
    for (uint32_t i = 0; i < 60; i++) {
        exl2_job job;
        exl2_job_desc d = job_of(r, NEW, &said[0]);
        d.on_event = i % 2 ? NULL : d.on_event;
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        CHECK_INT(exl2_job_pause(r->engine, job, true), EXL2_OK);
        CHECK_INT(exl2_worker_start(r->engine), EXL2_OK); /* now, else the job might end before the pause */
        step_until_idle(r, &waiting);
        CHECK_INT(said[0].done_events, 0);
        CHECK_INT(i % 3 ? exl2_job_pause(r->engine, job, false) : exl2_job_cancel(r->engine, job), EXL2_OK);
        step_until_idle(r, &waiting);
        CHECK_INT(said[0].done_events, 1);
        CHECK(i % 3 ? said[0].count == NEW : said[0].stop == EXL2_STOP_CANCELLED);
        CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    }
}

/* ---- texts that are large ---- */

/* A stop string could end in each text: so its tokens are held, with their likeliest ones, and are heard together, as
   35 KB. The worker's ring has room for one such text. */
#define LARGE 400u /* tokens of a text */
#define LARGE_ALTS 10u
#define LARGE_TEXTS 4u

static text_model lettered;

static exl2_job_desc large_texts(const rig *r, exl2_grammar grammar, rig_said *into)
{
    static char stop[LARGE + 1];
    static const char *const stops[] = { stop };
    memset(stop, 'a', LARGE - 1);
    stop[LARGE - 1] = 'b';
    exl2_job_desc d = job_of(r, LARGE * LARGE_TEXTS, into);
    d.grammar = grammar;
    d.alts_per_token = LARGE_ALTS;
    d.stop_strings = stops;
    d.stop_string_count = 1;
    return d;
}

static bool step_until_done(const rig *r, const rig_said *who)
{
    for (uint32_t i = 0; i < 3000 && !who->done_events; i++) {
        exl2_step(r->engine, NULL);
        exl2__platform_sleep_ms();
    }
    return who->done_events == 1;
}

/* Every text is heard, though the one before it was the last in the ring. While the job is paused, another one's texts
   are heard. */
static void large_texts_are_heard(void)
{
    static const char *const plan[] = { "x" };
    text_find_plan(&lettered, 1);
    text_write(&lettered, plan, 1, "{'eos_token':'</s>'}");
    exl2_engine_desc engine = text_engine(&lettered);
    exl2_model_desc m = text_folder();
    engine.max_jobs = 2;
    engine.max_events = 1;
    m.grammars = true;
    m.context_max = 4096;
    rig r = rig_open(&engine, &m);
    exl2_grammar g;
    exl2_job job;
    exl2_grammar_desc gd = { .model = r.model, .kind = EXL2_GRAMMAR_REGEX, .source = "(a{399}c){4}" };
    CHECK_INT(exl2_grammar_make(r.engine, &gd, &g), EXL2_OK);
    exl2_job_desc d = large_texts(&r, g, &said[1]), other = job_of(&r, NEW, &said[2]);
    rig_run(&r, &d);
    CHECK_INT(said[1].count, LARGE * LARGE_TEXTS);
    CHECK_INT(said[1].text_events, LARGE_TEXTS);
    d = large_texts(&r, g, &said[3]);
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    CHECK(step_until_done(&r, &said[3]));
    CHECK_TEXT(said[3].text, said[1].text);
    d = large_texts(&r, g, &said[3]);
    CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
    exl2_step(r.engine, NULL);
    for (uint32_t i = 0; i < 3000 && exl2__atomic_load(&r.engine->worker.events.used) < 30000; i++) {
        exl2__platform_sleep_ms(); /* until a text waits to be heard */
    }
    CHECK_INT(exl2_job_pause(r.engine, job, true), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &other, NULL), EXL2_OK);
    CHECK(step_until_done(&r, &said[2]));
    CHECK_INT(said[3].done_events, 0);
    CHECK_INT(exl2_job_pause(r.engine, job, false), EXL2_OK);
    CHECK(step_until_done(&r, &said[3]));
    CHECK_TEXT(said[3].text, said[1].text);
    CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
    rig_close(&r);
}

/* ---- states ---- */

/* exl2_job_get tells of a pause, and of its end, at once. */
static void pause_is_told(const rig *r)
{
    for (uint32_t with = 0; with < 2; with++) {
        exl2_job job;
        exl2_job_info info;
        exl2_job_desc d = job_of(r, 1500, &said[0]);
        if (with) {
            CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
        }
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        while (said[0].count == 0) {
            exl2_step(r->engine, &waiting);
        }
        for (uint32_t i = 0; i < 20; i++) {
            CHECK_INT(exl2_job_pause(r->engine, job, true), EXL2_OK);
            CHECK_INT(exl2_job_get(r->engine, job, &info), EXL2_OK);
            CHECK_INT(info.state, EXL2_JOB_PAUSED);
            CHECK_INT(exl2_job_pause(r->engine, job, false), EXL2_OK);
            CHECK_INT(exl2_job_get(r->engine, job, &info), EXL2_OK);
            CHECK_INT(info.state, EXL2_JOB_DECODE);
            exl2_step(r->engine, &waiting);
        }
        CHECK_INT(exl2_job_cancel(r->engine, job), EXL2_OK);
        step_until_idle(r, &waiting);
        CHECK_INT(said[0].done_events, 1);
        if (with) {
            CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
        }
    }
}

/* The last events of a job are heard in a call that waits: the statistics agree afterwards. */
static void stats_after_a_wait(const rig *r)
{
    static uint8_t saved[1 << 12];
    size_t need;
    exl2_session s;
    exl2_engine_stats stats;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    exl2_step(r->engine, NULL);
    exl2_job_desc d = job_of(r, 5, &said[0]);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && !said[0].done_events; i++) {
        exl2__platform_sleep_ms();
        CHECK_INT(exl2_session_save(r->engine, s, 0, saved, sizeof saved, &need), EXL2_OK);
    }
    CHECK_INT(said[0].done_events, 1);
    exl2_stats(r->engine, &stats);
    CHECK_INT(stats.jobs_active + stats.jobs_waiting, 0);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

typedef struct loader {
    exl2_engine *engine;
    uint32_t events, ends, wrong; /* wrong: the state is not PENDING while an event is heard */
} loader;

static exl2_flow hear_load(void *user, const exl2_event *event)
{
    loader *l = user;
    l->events++;
    l->ends += event->result == EXL2_OK;
    l->wrong += exl2_model_state(l->engine, event->model) != EXL2_PENDING;
    return EXL2_CONTINUE;
}

/* The worker loads, and loads again after a park: the model is ready once its last event was heard, not before. */
static void ready_when_heard(void)
{
    rig r = { 0 };
    static loader l;
    l = (loader){ 0 };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 1024, .on_event = hear_load, .user = &l };
    exl2_engine_desc d = { .backend = RIG_BACKEND, .kernel_cache = kernels() };
    CHECK_INT(exl2_open(&d, &r.engine), EXL2_OK);
    l.engine = r.engine;
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_step(r.engine, NULL), EXL2_PENDING); /* without a budget: the worker loads all of it by itself */
    CHECK_INT(exl2_model_open(r.engine, &m, &r.model), EXL2_OK);
    for (uint32_t round = 0; round < 2; round++) {
        exl2_engine_stats before, now;
        exl2_stats(r.engine, &before);
        for (uint32_t same = 0; same < 100;) { /* until it has nothing more to do */
            exl2__platform_sleep_ms();
            exl2_stats(r.engine, &now);
            same = now.allocations == before.allocations ? same + 1 : 0;
            before = now;
            CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_PENDING);
        }
        CHECK_INT(l.events, 0);
        step_until_idle(&r, &waiting);
        CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_OK);
        CHECK_INT(l.ends, 1);
        CHECK_INT(l.wrong, 0);
        if (round == 0) {
            l = (loader){ .engine = r.engine };
            CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
            CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_IDLE);
            exl2_step(r.engine, NULL);
            CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
        }
    }
    rig_close(&r);
}

/* ---- one DONE ---- */

static uint32_t queued_dones(const rig *r)
{
    exl2_event ev;
    uint32_t dones = 0;
    while (exl2_next_event(r->engine, &ev)) {
        dones += ev.kind == EXL2_EVENT_DONE;
    }
    return dones;
}

/* The model is closed while texts of a job wait, because it is paused: it has one DONE, in its callback, which says
   that it was cancelled, also if the worker had already written its last word. */
static void one_done(void)
{
    for (uint32_t round = 0; round < 8; round++) {
        exl2_job job;
        exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 1024 };
        rig r = rig_open(NULL, &m);
        uint32_t tokens = round % 2 ? 10 : 110, stopped = round & 2, other = round & 4;
        CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
        exl2_step(r.engine, NULL); /* the worker may go on, and nothing of it is heard yet */
        exl2_job_desc d = job_of(&r, tokens, &said[0]);
        CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        exl2_engine_stats stats = { 0 };
        while (stats.tokens_out < 10) {
            exl2__platform_sleep_ms();
            exl2_stats(r.engine, &stats);
        }
        CHECK_INT(exl2_job_pause(r.engine, job, true), EXL2_OK);
        if (other) {
            exl2_step(r.engine, NULL); /* the texts are put aside */
        }
        if (stopped) {
            CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
        }
        CHECK_INT(exl2_model_close(r.engine, r.model), EXL2_OK);
        CHECK_INT(said[0].done_events, 1);
        CHECK(said[0].count == tokens || said[0].stop == EXL2_STOP_CANCELLED);
        CHECK_INT(said[0].stats.new_tokens, said[0].count);
        CHECK_INT(queued_dones(&r), 0);
        for (uint32_t i = 0; i < 3; i++) {
            exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 100 });
        }
        CHECK_INT(queued_dones(&r), 0);
        CHECK_INT(said[0].done_events, 1);
        rig_close(&r);
    }
}

/* ---- threads of hooks ---- */

typedef struct where { pthread_t caller; uint32_t here, there; } where;

static where files_at, weights_at;

static void count(where *w)
{
    *(pthread_equal(pthread_self(), w->caller) ? &w->here : &w->there) += 1;
}

static void *noted_open(void *user, const char *path, uint64_t *bytes)
{
    count(&files_at);
    return exl2__platform_files().open(user, path, bytes);
}

static bool noted_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    count(&files_at);
    return exl2__platform_files().list(user, dir, index, name, cap);
}

static int64_t noted_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    count(&files_at);
    return exl2__platform_files().read(user, file, offset, dst, bytes);
}

static void noted_close(void *user, void *file)
{
    count(&files_at);
    exl2__platform_files().close(user, file);
}

static void *noted_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    if (tag == EXL2_MEM_WEIGHTS) { /* the loading thread asks for them */
        count(&weights_at);
    }
    return exl2__platform_alloc(user, bytes, align, tag);
}

/* Loads a model while a worker runs, parks it, loads it again, and fails to load one. */
static void load_with_a_worker(const exl2_engine_desc *d, const char *path)
{
    rig r = { 0 };
    exl2_model missing;
    exl2_model_desc m = { .path = path, .context_max = 512 };
    files_at = weights_at = (where){ .caller = pthread_self() };
    CHECK_INT(exl2_open(d, &r.engine), EXL2_OK);
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_model_open(r.engine, &m, &r.model), EXL2_OK);
    m.path = "nowhere/at/all";
    CHECK_INT(exl2_model_open(r.engine, &m, &missing), EXL2_OK);
    step_until_idle(&r, &(exl2_step_desc){ .cpu_us = 200 });
    CHECK_INT(exl2_model_state(r.engine, missing), EXL2_ERR_IO);
    CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_OK);
    exl2_job_desc job = job_of(&r, 20, &said[0]);
    CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_OK);
    exl2_step(r.engine, &waiting);
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
    step_until_idle(&r, &waiting);
    CHECK_INT(exl2_model_state(r.engine, r.model), EXL2_OK);
    CHECK_INT(said[0].count, 20);
    CHECK_INT(said[0].done_events, 1);
    exl2_close(r.engine);
}

/* File functions of the application are not called on the worker's thread, unless it allows that. */
static void threads_of_hooks(void)
{
    static const exl2_load_thread threads[] = { EXL2_LOAD_AUTO, EXL2_LOAD_CALLER, EXL2_LOAD_WORKER };
    for (uint32_t i = 0; i < 6; i++) {
        bool own = i < 3;
        exl2_engine_desc d = { .backend = RIG_BACKEND, .load_thread = threads[i % 3],
                               .kernel_cache = kernels() };
        d.allocator = (exl2_allocator){ .alloc_fn = noted_alloc, .free_fn = exl2__platform_free };
        if (own) {
            d.files = (exl2_files){ noted_open, noted_list, noted_read, noted_close, NULL };
        }
        load_with_a_worker(&d, rig_golden("exl2-mixed"));
        bool worker_loads = d.load_thread == EXL2_LOAD_WORKER || (d.load_thread == EXL2_LOAD_AUTO && !own);
        CHECK_INT(files_at.there > 0, own && worker_loads);
        CHECK_INT(files_at.here > 0, own && !worker_loads);
        if (RIG_BACKEND == EXL2_BACKEND_CPU) {
            CHECK_INT(weights_at.there, worker_loads ? 2 : 0);
            CHECK_INT(weights_at.here, worker_loads ? 0 : 2);
        }
    }
    exl2_engine *none;
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc wrong = { .backend = RIG_BACKEND, .load_thread = (exl2_load_thread)3, .open_error = &error };
    CHECK_INT(exl2_open(&wrong, &none), EXL2_ERR_ARG);
    CHECK_TEXT(error.text, "exl2_engine_desc.load_thread is 3, which names no thread");
}

/* ---- a call goes first ---- */

static exl2_engine *busy;
static pthread_t calls_from;
static uint32_t call, begun;             /* odd during a call; the call in which the worker has begun a unit */
static uint32_t late;                    /* units that began while a call waits */

/* A zone begins, such as a unit of a pass. During a call the worker is slow, so that a lock that is not fair would be
   the worker's all the time. */
static void slow_zone(void *user, const char *name)
{
    uint32_t now = exl2__atomic_load(&call);
    (void)user;
    if (strcmp(name, "exl2_step") == 0 || now % 2 == 0 || pthread_equal(pthread_self(), calls_from)) {
        return;
    }
    late += exl2__atomic_load(&busy->worker.wanted) > 0;
    exl2__atomic_store(&begun, now);
    exl2__platform_sleep_ms();
    exl2__platform_sleep_ms();
}

static void end_zone(void *user)
{
    (void)user;
}

/* A call that waits for the worker gets its turn after the present unit, whatever the worker has to do. The worker may
   begin one unit just as the call begins. */
static void calls_go_first(void)
{
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096 };
    exl2_engine_desc d = { .zones = { slow_zone, end_zone, NULL } };
    rig r = rig_open(&d, &m);
    exl2_job_desc job = job_of(&r, 1500, &said[0]), other = job_of(&r, 20, &said[1]);
    exl2_job_size size;
    exl2_job id;
    busy = r.engine;
    calls_from = pthread_self();
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &job, &id), EXL2_OK);
    for (uint32_t i = 0; i < 40; i++) {
        exl2__atomic_add(&call, 1);
        exl2_step(r.engine, NULL); /* the worker may have written as many texts as it may: now it begins a unit */
        while (exl2__atomic_load(&begun) != call) {
            exl2__platform_sleep_ms();
        }
        CHECK_INT(exl2_job_measure(r.engine, &other, &size), EXL2_OK);
        exl2__atomic_add(&call, 1);
    }
    exl2__atomic_add(&call, 1);
    CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
    busy = NULL;
    printf("%u units of the worker began while one of 40 calls waited\n", late);
    CHECK(late <= 4);
    rig_close(&r);
}

/* ---- the worker gets its turn ---- */

static bool watching;
static uint32_t worker_steps;            /* that have begun. Atomic */
static uint32_t steps_before, turns;     /* at the end of the last call; calls before which the worker has had a step */

/* Runs within a call of the application, which holds the engine: returns once the worker waits for the engine, too. */
static void hold_until_the_worker_waits(void)
{
    turns += exl2__atomic_load(&worker_steps) != steps_before;
    while (!(exl2__atomic_load(&busy->worker.asked) & 1)) {
        exl2__signal_raise(&busy->worker.wake); /* it may sleep, with nothing to do */
        exl2__platform_sleep_ms();
    }
    steps_before = exl2__atomic_load(&worker_steps);
}

static void noted_zone(void *user, const char *name)
{
    (void)user;
    if (strcmp(name, "exl2_step") != 0) {
        return;
    }
    if (!pthread_equal(pthread_self(), calls_from)) {
        exl2__atomic_add(&worker_steps, 1);
    } else if (watching) {
        hold_until_the_worker_waits();
    }
}

static void noted_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    (void)user, (void)level, (void)id, (void)code, (void)text;
    if (watching) {
        hold_until_the_worker_waits();
    }
}

/* The worker waits for the engine while an application polls, which leaves the engine and enters it again at once. It
   gets a step between any two calls of exl2_step, and one between many other calls. */
#define POLLS 300u
static void polling_leaves_turns(void)
{
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096 };
    exl2_engine_desc d = { .zones = { noted_zone, end_zone, NULL }, .log = { .line = noted_line },
                           .load_thread = EXL2_LOAD_CALLER };
    const exl2_model none = { 0 };
    calls_from = pthread_self();
    rig r = rig_open(&d, &m);
    exl2_job_desc job = job_of(&r, 1500, &said[0]);
    busy = r.engine;
    CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
    CHECK_INT(exl2_job_start(r.engine, &job, NULL), EXL2_OK);
    watching = true;
    exl2_step(r.engine, NULL);
    turns = 0;
    for (uint32_t i = 0; i < POLLS; i++) {
        exl2_step(r.engine, NULL);
    }
    CHECK_INT(turns, POLLS);
    turns = 0;
    for (uint32_t i = 0; i < POLLS; i++) {
        CHECK_INT(exl2_model_state(r.engine, none), EXL2_ERR_STALE);
    }
    CHECK(turns >= POLLS / (EXL2__GATE_OVERTAKES + 1));
    watching = false;
    CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
    busy = NULL;
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < 100; i++) {
        prompt[i] = (exl2_token)((i * 37 + 11) % 300);
    }
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .context_max = 4096 };
    rig r = rig_open(NULL, &m);
    idle_is_the_end(&r);
    news_is_work(&r);
    pause_is_told(&r);
    stats_after_a_wait(&r);
    rig_close(&r);
    large_texts_are_heard();
    ready_when_heard();
    one_done();
    threads_of_hooks();
    if (RIG_BACKEND == EXL2_BACKEND_CPU) { /* on a GPU the worker waits for nothing */
        calls_go_first();
        polling_leaves_turns();
    }
    return check_done();
}
