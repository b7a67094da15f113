/* api_jobs.h: the jobs that the fuzzer starts, what their callbacks do, and what another thread does meanwhile.
   takes: the shadow model.
   gives: api_op_start, api_hear, api_allow, api_logits, api_token, api_other_thread, api_nap.
   owns:  nothing; records belong to the shadow model. */
#ifndef API_JOBS_H
#define API_JOBS_H

#include "api_shadow.h"

static void api_callback_operation(api_job *job, const exl2_event *ev);

/* ---- choices ---- */

static api_model *api_pick_model(bool ready)
{
    api_model *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_MODELS; i++) {
        api_model *m = &api.models[i];
        if (m->id && (!ready || m->ready) && api_draw(++count) == 0) {
            picked = m;
        }
    }
    return picked;
}

static api_session *api_pick_session(const api_model *m, bool idle)
{
    api_session *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        api_session *s = &api.sessions[i];
        if (s->id && (!m || s->model == m) && (!idle || !s->busy) && api_draw(++count) == 0) {
            picked = s;
        }
    }
    return picked;
}

static api_grammar *api_pick_grammar(const api_model *m)
{
    api_grammar *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < API_GRAMMARS; i++) {
        api_grammar *g = &api.grammars[i];
        if (g->id && (!m || g->model == m) && api_draw(++count) == 0) {
            picked = g;
        }
    }
    return picked;
}

static bool api_lives(const api_job *job)
{
    return job->id && !job->done && !job->over && !job->replay;
}

/* A job whose DONE the application has not received. */
static api_job *api_pick_job(uint64_t *random)
{
    api_job *picked = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < api.job_count; i++) {
        if (api_lives(api.jobs[i]) && api_below(random, ++count) == 0) {
            picked = api.jobs[i];
        }
    }
    return picked;
}

/* ---- what the engine calls ---- */

static exl2_flow api_hear(void *user, const exl2_event *event)
{
    api_job *job = (api_job *)user;
    api_event(job, event);
    if (job->replay) {
        return EXL2_CONTINUE;
    }
    API_MUST(!job->pull, "job %u has no on_event, but one is called", job->number);
    api.depth++;
    if (event->kind == EXL2_EVENT_DONE) {
        api_after_done(job);
    }
    for (uint32_t i = 0; i < 2 && api_chance(5); i++) {
        api_callback_operation(job, event);
    }
    api.depth--;
    return api_chance(25) ? EXL2_STOP_JOB : api_chance(25) ? EXL2_PAUSE_JOB : EXL2_CONTINUE;
}

static exl2_flow api_hear_load(void *user, const exl2_event *event)
{
    api_model *m = (api_model *)user;
    API_MUST(event->kind == EXL2_EVENT_LOAD, "a model has an event of kind %d", (int)event->kind);
    m->id = m->id ? m->id : event->model.id;
    API_MUST(event->model.id == m->id, "a LOAD event names another model");
    API_MUST(!m->ended, "a LOAD event after the last one");
    API_MUST(event->progress >= m->progress && event->progress <= 1, "LOAD goes from %g to %g", (double)m->progress,
             (double)event->progress);
    API_MUST((event->result < 0) == (event->error != NULL), "LOAD with %s", exl2_result_name(event->result));
    m->progress = event->progress;
    m->ended = event->result != EXL2_PENDING;
    if (api_chance(6)) {
        api.depth++;
        api_callback_operation(NULL, event);
        api.depth--;
    }
    return EXL2_STOP_JOB; /* must be ignored: this is not the event of a job */
}

/* The mask depends only on `n` and the grammar, so that a replay gives the same. */
static bool api_allow(void *user, exl2_job handle, const exl2_token *said, uint32_t n, uint32_t *bits, uint32_t words)
{
    const api_grammar_spec *spec = (const api_grammar_spec *)user;
    bool first = spec == &api_grammar_specs[API_GRAMMARS_GOOD - 2];
    for (uint32_t i = 0; i < words; i++) {
        API_MUST(bits[i] == 0, "allow gets bits that are not 0");
    }
    for (uint32_t i = 0; i < api.job_count; i++) {
        const api_job *job = api.jobs[i];
        if (api_lives(job) && !job->pull && job->id == handle.id) {
            API_MUST(n >= job->said_count && api_same(said, job->said_count, job->said, job->said_count),
                     "allow sees other tokens than the events of job %u", job->number);
        }
    }
    for (uint32_t id = n % 5; id < 64 && (first || n != 6); id += 3) {
        bits[id / 32] |= 1u << id % 32;
    }
    if (!api.quiet && api_chance(12)) {
        api.depth++;
        api_callback_operation(NULL, NULL);
        api.depth--;
    }
    return !first || n < 9;
}

static void api_logits(void *user, exl2_job handle, float *logits, uint32_t vocab)
{
    const api_job *job = (const api_job *)user;
    uint32_t at = (uint32_t)job->store.edited % vocab;
    API_MUST(!job->id || job->id == handle.id, "on_logits of job %u names another job", job->number);
    switch (job->store.edit) {
    case 1:
        logits[at] += 5;
        break;
    case 2:
        logits[at] = -INFINITY;
        break;
    case 3:
        for (uint32_t i = 0; i < vocab; i++) {
            logits[i] = i % 7 ? -INFINITY : logits[i];
        }
        break;
    default:
        for (uint32_t i = 0; i < vocab; i++) {
            logits[i] *= 0.5f;
        }
        break;
    }
    if (!api.quiet && api_chance(12)) {
        api.depth++;
        api_callback_operation(NULL, NULL);
        api.depth--;
    }
}

static exl2_token api_token(void *user, exl2_job handle, uint32_t position, exl2_token token)
{
    const api_job *job = (const api_job *)user;
    uint32_t every = job->store.replaces;
    API_MUST(!job->id || job->id == handle.id, "on_token of job %u names another job", job->number);
    API_MUST(token >= 0 && (uint32_t)token < job->vocab, "on_token of job %u gets token %d", job->number, (int)token);
    if (!api.quiet && api_chance(12)) {
        api.depth++;
        api_callback_operation(NULL, NULL);
        api.depth--;
    }
    if (every == 7 && position % 11 == 0) {
        return position % 2 ? -1 - token : (exl2_token)job->vocab;
    }
    return every && position % every == 0 ? (exl2_token)(((uint32_t)token + position) % job->vocab) : token;
}

/* ---- another thread ---- */

/* Calls functions that any thread may call at any moment of another call. One thread plays both parts here. */
static void api_other_thread(void)
{
    api_frame *frame = &api.frames[api.frame_count - 1];
    exl2_job handle = { 0 };
    exl2_job_info info;
    exl2_engine_stats stats;
    api_job *job;
    for (uint32_t i = 0; i < api.frame_count; i++) {
        if (api.frames[i].fn == API_close || api.frames[i].fn == API_open) {
            return;
        }
    }
    if (!api.e || !(job = api_pick_job(&api.other_random))) {
        return;
    }
    uint32_t what = api_below(&api.other_random, 12);
    handle.id = (api_id)job->id;
    exl2_result r = EXL2_OK;
    if (what == 0) {
        api_trace("(another thread cancels job %u)", job->number);
        r = exl2_job_cancel(api.e, handle);
    } else if (what < 3) {
        api_trace("(another thread pauses job %u)", job->number);
        r = exl2_job_pause(api.e, handle, true);
    } else if (what < 8) {
        r = exl2_job_pause(api.e, handle, false);
    } else if (what < 10) {
        r = exl2_job_get(api.e, handle, &info);
    } else if (what == 10) {
        exl2_stats(api.e, &stats);
    } else {
        for (uint32_t i = 0; i < api.frame_count; i++) {
            api_frame *waiting = &api.frames[i];
            if (waiting->fn == API_generate && api_below(&api.other_random, 4) == 0 && !waiting->interrupted) {
                api_trace("(another thread interrupts)");
                waiting->interrupted = true;
                waiting->looks = 0;
                exl2_interrupt(api.e);
            }
        }
    }
    API_MUST(r == EXL2_OK || r == EXL2_ERR_STALE, "another thread's call gives %s", exl2_result_name(r));
    frame->other_called |= r < 0;
}

/* Called when exl2_generate waits and has nothing to do, which is right only while its own job is paused. Then another
   thread unpauses the job. */
static void api_nap(void)
{
    api_frame *frame = api.frame_count ? &api.frames[api.frame_count - 1] : NULL;
    exl2_job_info info = { EXL2_JOB_QUEUED, { 0 }, { 0 } };
    exl2_job handle = { 0 };
    if (!frame || frame->fn != API_generate || api.quiet || api.threads || ++frame->naps < 20) {
        return;
    }
    handle.id = api.waiting ? (api_id)api.waiting->id : 0;
    exl2_result r = handle.id ? exl2_job_get(api.e, handle, &info) : EXL2_ERR_STALE;
    if (r == EXL2_OK && info.state == EXL2_JOB_PAUSED) {
        frame->naps = 0;
        api_trace("(another thread lets job %u go on)", api.waiting->number);
        exl2_job_pause(api.e, handle, false);
    }
    frame->other_called |= r < 0;
    API_MUST(frame->naps < 200, "exl2_generate waits for ever, and its job is not paused");
}

/* ---- starting ---- */

static api_job *api_new_job(void)
{
    static uint32_t number;
    api_job *job = (api_job *)calloc(1, sizeof *job);
    number = api.job_count ? number + 1 : 1;
    job->number = number;
    return job;
}

/* Whether the start of this job may allocate: a grammar has a copy for one that excludes tokens, or has several. */
static bool api_may_allocate(const api_job_store *s)
{
    const exl2_sampler_desc *d = &s->d.sampler;
    bool excludes = d->allow_count || d->ban_count || d->bias_count;
    return s->irregular || s->d.grammar_count || (s->d.grammar.id && excludes);
}

static api_model *api_next_drafter; /* the draft model of the next job that starts; NULL: a random one, or none */

/* Sets the objects of the desc: model, session, another session for guidance, grammar. Sometimes one is wrong. */
static void api_aim(api_job *job, exl2_job_desc *d, api_session *wanted)
{
    api_model *m = job->model;
    api_session *s = wanted ? wanted : api_chance(3) ? NULL : api_pick_session(m, !api_chance(8));
    api_grammar *g = api_chance(4) ? api_pick_grammar(api_chance(20) ? NULL : m) : NULL;
    api_model *draft = api_chance(5) ? api_pick_model(!api_chance(8)) : NULL;
    if (api_next_drafter) { /* a job that lasts long enough to be drafted for, and may be */
        draft = api_next_drafter;
        d->guidance = 0;
        d->negative_prompt = (exl2_prompt){ 0 };
        d->on_logits = NULL;
        d->on_token = NULL;
        d->prefill_only = false;
        d->draft.ngram = d->draft.one_by_one = false;
        d->max_tokens = 60;
    }
    d->model.id = (api_id)m->id;
    d->draft.model.id = draft && (draft != m || api_chance(10)) ? (api_id)draft->id : 0;
    if (s) {
        d->session.id = (api_id)s->id;
        d->model.id = api_chance(2) ? (api_id)m->id : 0;
        job->session = s;
        job->session_id = s->id;
    }
    bool guided = d->guidance < 0 || d->guidance > 0;
    if (guided && (api_chance(2) || !m->has_text)) {
        api_session *negative = api_pick_session(m, !api_chance(8));
        d->negative_session.id = negative ? (api_id)negative->id : 0;
        job->negative = negative;
        job->negative_id = negative ? negative->id : 0;
    }
    if (g) {
        d->grammar.id = (api_id)g->id;
        job->grammar_spec = g->spec + 1;
        if (!api_chance(10)) { /* these settings cannot be combined with a grammar */
            d->heal_prompt = false;
            d->ban_string_count = 0;
            d->ban_strings = NULL;
        }
    }
    if (api_chance(60) && api.dead_count) {
        uint32_t at = api_draw(api.dead_count);
        bool grammar = api.dead[at].kind == API_GRAMMAR;
        if (grammar || api.dead[at].kind == API_SESSION) {
            *(grammar ? &d->grammar.id : &d->session.id) = (api_id)api.dead[at].id;
        }
    }
}

/* Records the histories with which the job begins, and the ids of its pictures. */
static void api_note_before(api_job *job)
{
    api_session *s = job->session, *n = job->negative;
    for (uint32_t i = 0; i < job->store.image_count; i++) {
        exl2_image_info info;
        exl2_result r = API_CALL(image_get, exl2_image_get(api.e, job->store.images[i], &info));
        API_MUST(r == EXL2_OK, "exl2_image_get of an open picture gives %s", exl2_result_name(r));
        memcpy(job->image_ids[i], info.id, sizeof info.id);
    }
    if (s) {
        job->before_count = s->count;
        memcpy(job->before, s->history, s->count * sizeof *s->history);
        job->had_pictures = s->picture_count > 0;
    }
    if (n) {
        job->negative_before_count = n->count;
        memcpy(job->negative_before, n->history, n->count * sizeof *n->history);
        job->had_pictures = job->had_pictures || n->picture_count > 0;
    }
}

static void api_started(api_job *job)
{
    if (job->session) {
        job->session->busy = job;
    }
    if (job->negative) {
        job->negative->busy = job;
    }
    api_shared->jobs++;
    api_shared->restarts += api_next_drafter != NULL;
}

static void api_keep(api_job *job)
{
    API_MUST(api.job_count < API_JOBS_MAX, "too many jobs for this fuzzer");
    api.jobs[api.job_count++] = job;
}

/* The model may have become ready since the last call. */
static void api_look_at(api_model *m)
{
    exl2_model_info info;
    exl2_model handle = { 0 };
    handle.id = (api_id)m->id;
    if (m->loading && m->id) {
        exl2_result r = API_CALL(model_get, exl2_model_get(api.e, handle, &info));
        API_MUST(r == EXL2_OK, "exl2_model_get of an open model gives %s", exl2_result_name(r));
        m->vocab = info.vocab;
        m->has_text = info.has_tokenizer;
    }
}

static void api_aim_loras(api_job_store *s, const api_model *m);
static void api_aim_steers(api_job_store *s, const api_model *m);

/* Gives a job with a grammar some more of its model, rarely one that has ended. */
static void api_aim_grammars(api_job_store *s, const api_model *m)
{
    uint32_t most = s->d.grammar.id && api_chance(3) ? 1 + api_draw(EXL2__COUNT(s->grammars)) : 0;
    for (uint32_t i = 0; i < most; i++) {
        const api_grammar *g = api_pick_grammar(m);
        if (g) {
            s->grammars[s->d.grammar_count++].id = (api_id)(api_chance(30) ? g->id + 1000 : g->id);
        }
    }
    s->d.grammars = s->d.grammar_count ? s->grammars : NULL;
}
static void api_aim_images(api_job_store *s, const api_model *m, api_recipe *recipes);

/* Starts a job, or if `waits` runs one with exl2_generate. wanted: the session to use, or NULL for a random one. */
static void api_op_start(bool waits, api_session *wanted)
{
    static api_job_store given;
    api_model *m = wanted ? wanted->model : api_pick_model(!api_chance(10));
    if (!m || api.job_count + 1 >= API_JOBS_MAX) {
        return;
    }
    api_settle_all();
    api_look_at(m);
    api_job *job = api_new_job();
    uint64_t sub_seed = api_next(&api.random), aim = api_next(&api.random), live = api.live_bytes;
    bool told = !api_chance(3);
    job->model = m;
    job->model_id = m->id;
    job->vocab = m->vocab;
    job->settings = m->desc;
    job->has_text = m->has_text;
    job->waited = waits;
    for (uint32_t round = 0; round < 2; round++) { /* given to the engine and then overwritten; our copy */
        api_job_store *s = round ? &job->store : &given;
        uint64_t outer = api.random;
        api_make_job(s, m, sub_seed);
        api.random = aim;
        api_aim(job, &s->d, wanted);
        api_aim_loras(s, m);
        api_aim_steers(s, m);
        api_aim_grammars(s, m);
        api_aim_images(s, m, job->recipes);
        api.random = outer;
        s->d.on_event = told ? api_hear : NULL;
        s->d.user = job;
    }
    api_note_before(job);
    job->pull = !told && !waits;
    job->dropped = !told && waits;
    bool busy = (job->session && job->session->busy) || (job->negative && job->negative->busy);
    exl2_job handle = { 0 };
    exl2_result r;
    if (waits) {
        api_job *outer = api.waiting;
        api_keep(job); /* events arrive before the call returns */
        api.waiting = job;
        bool inside = api.depth > 0;
        if (!busy && !inside) {
            api_started(job);
        }
        api_begin_more(API_generate, api_may_allocate(&given));
        r = exl2_generate(api.e, &given.d);
        memset(&given, 0xEE, sizeof given);
        api.frames[api.frame_count - 1].refused -= job->done; /* a job may end with any result */
        r = api_end(r);
        api.waiting = outer;
        bool ran = job->done || (job->dropped && r == EXL2_OK);
        api_trace("exl2_generate: job %u, session %d: %s", job->number, (int)(job->session != NULL),
                  exl2_result_name(r));
        API_MUST(!ran || !inside, "exl2_generate runs inside a callback");
        API_MUST(!ran || !busy, "exl2_generate runs on a busy session");
        API_MUST(r < 0 || ran, "exl2_generate gives %s, but no DONE came", exl2_result_name(r));
        API_MUST(!job->done || job->result == r, "exl2_generate gives %s, its DONE %s", exl2_result_name(r),
                 exl2_result_name(job->result));
        API_MUST(job->done || job->id == 0, "exl2_generate gives %s without a DONE for job %u", exl2_result_name(r),
                 job->number);
        job->over = true;
        api_settle_all();
        API_MUST((!job->session || job->session->busy != job) && (!job->negative || job->negative->busy != job),
                 "a session is busy with the job that exl2_generate ran");
        return;
    }
    exl2_job_size size;
    exl2_result foretold = EXL2_OK;
    bool measures = api_chance(3);
    uint64_t refused = api.refused;
    if (measures) {
        api_begin_more(API_job_measure, true);
        foretold = api_end(exl2_job_measure(api.e, &given.d, &size));
        live = api.live_bytes;
    }
    api_begin_more(API_job_start, api_may_allocate(&given));
    r = api_end(exl2_job_start(api.e, &given.d, &handle));
    API_MUST(!measures || api.refused > refused || r == foretold, "exl2_job_start gives %s, exl2_job_measure %s",
             exl2_result_name(r), exl2_result_name(foretold));
    memset(&given, 0xEE, sizeof given);
    api_trace("exl2_job_start: job %u%s on %s, %zu ids, %s%s%s: %s", job->number, told ? "" : " (pull)",
              job->session ? "a session" : "its own", job->store.d.prompt.token_count,
              job->store.d.prompt.text ? "text " : "", job->store.d.prompt.messages ? "messages " : "",
              job->grammar_spec ? "grammar " : "", exl2_result_name(r));
    if (r < 0) {
        API_MUST(api.live_bytes == live, "exl2_job_start gives %s, and %lld bytes more are allocated",
                 exl2_result_name(r), (long long)(api.live_bytes - live));
        free(job);
        return;
    }
    API_MUST(!busy, "exl2_job_start starts on a busy session");
    API_MUST(m->ready || api.depth, "exl2_job_start starts on a model that is not ready");
    for (uint32_t i = 0; i < api.job_count; i++) {
        API_MUST(!api_lives(api.jobs[i]) || api.jobs[i]->id != handle.id, "two jobs have one handle");
    }
    job->id = handle.id;
    api_check_new(API_JOB, job->id);
    api_keep(job);
    api_started(job);
}

#endif
