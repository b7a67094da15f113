/* api_calls.h: stepping, polling events, running until nothing is left to do; engines; misuse; the choice of an
   operation, inside or outside a callback.
   takes: the shadow model, api.random of the operation.
   gives: api_operation, api_callback_operation, api_open_engine, api_close_engine, api_drain.
   owns:  the engine. */
#ifndef API_CALLS_H
#define API_CALLS_H

#include "api_objects.h"

/* ---- stepping ---- */

static api_job *api_find_pulled(uint64_t id)
{
    for (uint32_t i = api.job_count; i-- > 0;) {
        if (api.jobs[i]->pull && api.jobs[i]->id == id) {
            return api.jobs[i];
        }
    }
    return NULL;
}

/* Polls one event. Returns false if there was none. */
static bool api_pull(void)
{
    exl2_event ev;
    api_begin(API_next_event);
    bool any = exl2_next_event(api.e, &ev);
    api_leave();
    API_MUST(!any || !api.depth, "exl2_next_event gives events inside a callback");
    if (any && ev.kind == EXL2_EVENT_LOAD) {
        API_MUST(ev.model.id != 0, "a LOAD event names no model");
        return true;
    }
    if (any && ev.kind == EXL2_EVENT_IMAGE) {
        api_event_image(&ev);
        return true;
    }
    if (any) {
        api_job *job = api_find_pulled(ev.job.id);
        API_MUST(job != NULL, "the queue has an event of kind %d for a job that does not use it", (int)ev.kind);
        api_event(job, &ev);
        if (ev.kind == EXL2_EVENT_DONE) {
            api_after_done(job);
        }
    }
    return any;
}

static void api_op_pull(uint32_t most)
{
    uint32_t count = 0;
    while (count < most && api_pull()) {
        count++;
    }
    api_trace("exl2_next_event: %u events", count);
}

static exl2_result api_step(const exl2_step_desc *d)
{
    exl2_result r = API_CALL(step, exl2_step(api.e, d));
    API_MUST(r >= 0 || api.depth, "exl2_step gives %s", exl2_result_name(r));
    API_MUST(r == EXL2_ERR_STATE || !api.depth, "exl2_step inside a callback gives %s", exl2_result_name(r));
    if (!api.depth) {
        api_refresh_models();
        api_settle_all();
    }
    return r;
}

static void api_op_step(void)
{
    static const uint32_t times[] = { 0, 0, 1, 5, 20, 100, 1000 };
    exl2_step_desc d = { .cpu_us = times[api_draw(EXL2__COUNT(times))], .gpu_us = times[api_draw(EXL2__COUNT(times))],
                         .wait = api_chance(3) };
    uint32_t count = api_chance(3) ? 1 : 1 + api_draw(12);
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < count && r != EXL2_IDLE; i++) {
        r = api_step(api_chance(10) ? NULL : &d);
    }
    api_trace("exl2_step, %u us: %s", d.cpu_us, exl2_result_name(r));
}

/* Unpauses all jobs, steps and polls until the engine stays idle: every job that is not blocked ends. */
static void api_run_dry(void)
{
    exl2_step_desc d = { .wait = true };
    exl2_job handle = { 0 };
    uint32_t idle = 0;
    for (uint32_t i = 0; i < API_MODELS; i++) {
        api_model *m = &api.models[i];
        if (m->id && m->parked) {
            API_CALL(model_park, exl2_model_park(api.e, (exl2_model){ m->id }, false));
            m->loading = true;
            m->ended = m->parked = false;
            m->progress = 0;
        }
    }
    for (uint32_t i = 0; i < 20000 && idle < 3; i++) {
        for (uint32_t k = 0; k < api.job_count; k++) {
            if (api_lives(api.jobs[k])) {
                handle.id = (api_id)api.jobs[k]->id;
                API_CALL(job_pause, exl2_job_pause(api.e, handle, false));
            }
        }
        exl2_result r = api_step(&d);
        bool read = false;
        while (api_pull()) {
            read = true;
        }
        idle = r == EXL2_IDLE && !read ? idle + 1 : 0;
    }
    API_MUST(idle, "20,000 steps, and still not idle");
}

/* For jobs that remain after api_run_dry. Each must wait for pages that sessions or other waiting jobs hold, so one job
   is cancelled. Returns false if no job remains. If the last step paused a job, nothing is cancelled: the caller must
   call api_run_dry again. */
static bool api_unblock(void)
{
    api_job *left = NULL;
    uint32_t jobs = 0, sessions = 0;
    exl2_job handle = { 0 };
    exl2_job_info info;
    for (uint32_t i = 0; i < api.job_count; i++) {
        if (api_lives(api.jobs[i])) {
            left = api.jobs[i];
            jobs++;
            handle.id = (api_id)left->id;
            exl2_result r = API_CALL(job_get, exl2_job_get(api.e, handle, &info));
            if (r == EXL2_OK && info.state == EXL2_JOB_PAUSED) { /* another thread or a callback paused it */
                return true;
            }
            API_MUST(r == EXL2_OK && info.state == EXL2_JOB_QUEUED, "job %u is at rest in state %d (%s)",
                     left->number, r == EXL2_OK ? (int)info.state : -1, exl2_result_name(r));
        }
    }
    for (uint32_t i = 0; i < API_SESSIONS && left; i++) {
        sessions += api.sessions[i].id && api.sessions[i].busy != left;
    }
    bool parked = left && left->model->parked; /* it could not be loaded again */
    API_MUST(!left || jobs > 1 || sessions || parked, "job %u never starts, though nothing holds pages", left->number);
    if (!left) {
        return false;
    }
    API_CALL(job_cancel, exl2_job_cancel(api.e, handle));
    api_trace("(job %u waits for others that wait: cancelled)", left->number);
    uint32_t depth = api_step(NULL) == EXL2_IDLE ? 0 : 1;
    while (api_pull()) {
        depth++;
    }
    API_MUST(left->done, "job %u was cancelled, and the next step brings no DONE (%u)", left->number, depth);
    return true;
}

/* Closes idle sessions and cancels jobs that wait for each other, until no job is left. */
static void api_drain(void)
{
    uint32_t refuse = api.refuse_one_in, fail = api.fail_one_in;
    api.refuse_one_in = api.fail_one_in = 0;
    api_run_dry();
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        exl2_session handle = { 0 };
        handle.id = (api_id)api.sessions[i].id;
        if (handle.id && !api.sessions[i].busy) {
            API_CALL(session_close, exl2_session_close(api.e, handle));
            api_forget_session(&api.sessions[i]);
            api_run_dry();
        }
    }
    for (uint32_t round = 0; round < 3; round++) { /* callbacks may have opened more sessions */
        for (uint32_t i = 0; i < API_SESSIONS; i++) {
            exl2_session handle = { 0 };
            handle.id = (api_id)api.sessions[i].id;
            if (handle.id && !api.sessions[i].busy) {
                API_CALL(session_close, exl2_session_close(api.e, handle));
                api_forget_session(&api.sessions[i]);
            }
        }
        api_run_dry();
    }
    while (api_unblock()) {
        api_run_dry();
    }
    api.refuse_one_in = refuse;
    api.fail_one_in = fail;
    api_trace("(everything was run dry)");
}

/* ---- the engine ---- */

static void api_op_look(void)
{
    exl2_engine_stats stats;
    exl2_device_info devices[2];
    exl2_device_speed speed;
    uint32_t count = 0, live = 0;
    API_VOID(stats, exl2_stats(api.e, &stats));
    for (uint32_t i = 0; i < api.job_count; i++) {
        live += api_lives(api.jobs[i]) || (api.jobs[i] == api.waiting && !api.jobs[i]->done);
    }
    for (const api_frame *f = api.frames; f < api.frames + api.frame_count; f++) {
        live += f->fn == API_generate; /* its job has no handle yet */
    }
    API_MUST(stats.pages_used + stats.pages_cached <= stats.pages_total && stats.pages_shared <= stats.pages_used,
             "exl2_stats: %u pages, %u used, %u shared", stats.pages_total, stats.pages_used, stats.pages_shared);
    API_MUST(api.depth || stats.jobs_active + stats.jobs_waiting <= live, "exl2_stats: %u + %u jobs, there are %u",
             stats.jobs_active, stats.jobs_waiting, live);
    bool whole = api.cuda ? stats.host_bytes >= api.live_bytes : stats.host_bytes == api.live_bytes; /* and pinned */
    API_MUST(api.depth || whole, "exl2_stats: %llu bytes, allocated are %llu",
             (unsigned long long)stats.host_bytes, (unsigned long long)api.live_bytes);
    API_MUST(api.depth || stats.allocations == api.allocations, "exl2_stats: %llu allocations, there were %llu",
             (unsigned long long)stats.allocations, (unsigned long long)api.allocations);
    API_MUST(!api.desc.host_bytes_max || stats.host_peak <= api.desc.host_bytes_max, "the peak is %llu, the cap %llu",
             (unsigned long long)stats.host_peak, (unsigned long long)api.desc.host_bytes_max);
    API_VOID(interrupt, exl2_interrupt(api.e));
    if (api_chance(4)) {
        API_CALL(devices, exl2_devices(devices, 2, &count));
    }
    if (api_chance(4)) {
        exl2_result r = API_CALL(device_probe, exl2_device_probe(api.e, &speed));
        api_trace("exl2_device_probe: %s", exl2_result_name(r));
        API_MUST(!api.depth || r == EXL2_ERR_STATE, "exl2_device_probe inside a callback: %s", exl2_result_name(r));
    }
    if (api_chance(8)) {
        exl2_link_speed link;
        uint32_t from = api_draw(API_CARDS), to = api_draw(API_CARDS), all = api.desc.device_count;
        exl2_result r = API_CALL(link_probe, exl2_link_probe(api.e, from, to, &link));
        API_MUST(r < 0 || (from != to && from < all && to < all), "exl2_link_probe of %u and %u of %u GPUs: %s", from,
                 to, all, exl2_result_name(r));
    }
    API_MUST(exl2_version() == EXL2_VERSION, "exl2_version");
    API_MUST(exl2_result_name((exl2_result)((int)api_draw(60) - 30))[0], "exl2_result_name");
}

/* Calls with handles of objects that have ended, of another kind, and of nothing. */
static void api_op_stale(void)
{
    static const uint64_t wild[] = { 0, 0x7FFFFFFF, 0xFFFFFFFF, 1ull << 32, UINT64_MAX, 0xDEAD00000001u };
    exl2_model m = { 0 }, model_out = { 0 };
    exl2_session s = { 0 }, session_out = { 0 };
    exl2_job j = { 0 };
    exl2_grammar g = { 0 };
    exl2_model_info model_info;
    exl2_session_info session_info;
    exl2_job_info job_info;
    exl2_sampler_desc settings = { 0 };
    exl2_job_desc jd = { 0 };
    exl2_prompt prompt = { .text = "a" };
    size_t need;
    exl2_token ids[2];
    char text[4];
    bool is_wild = api_chance(3) || !api.dead_count;
    uint32_t at = is_wild ? 0 : api_draw(api.dead_count);
    uint64_t id = is_wild ? wild[api_draw(EXL2__COUNT(wild))] : api.dead[at].id;
    exl2_result r = EXL2_ERR_STALE;
    (void)model_out;
    switch (is_wild ? (api_kind)api_draw(4) : api.dead[at].kind) {
    case API_MODEL:
        m.id = (api_id)id;
        r = api_chance(2) ? API_CALL(model_get, exl2_model_get(api.e, m, &model_info))
          : api_chance(2) ? API_CALL(model_state, exl2_model_state(api.e, m))
          : api_chance(2) ? API_CALL(session_open, exl2_session_open(api.e, m, &session_out))
          : api_chance(2) ? API_CALL(tokenize, exl2_tokenize(api.e, m, "a", 1, 0, ids, 2, &need))
          : api_chance(2) ? API_CALL(detokenize, exl2_detokenize(api.e, m, ids, 0, 0, text, 4, &need))
          : api_chance(2) ? API_CALL(chat_render, exl2_chat_render(api.e, m, NULL, 0, NULL, text, 4, &need))
          : api_chance(2) ? API_CALL(chat_tokenize, exl2_chat_tokenize(api.e, m, &prompt, NULL, ids, 2, &need))
          : api.depth == 0 ? API_CALL(model_close, exl2_model_close(api.e, m))
                           : API_CALL(sampler_resolve, exl2_sampler_resolve(api.e, m, &settings, &settings));
        break;
    case API_SESSION:
        s.id = (api_id)id;
        jd.session = s;
        r = api_chance(3) ? API_CALL(session_get, exl2_session_get(api.e, s, &session_info))
          : api_chance(3) ? API_CALL(session_fork, exl2_session_fork(api.e, s, &session_out))
          : api_chance(3) ? API_CALL(session_rewind, exl2_session_rewind(api.e, s, 0))
          : api_chance(3) ? API_CALL(session_trim, exl2_session_trim(api.e, s, 0, 0))
          : api.depth == 0 && api_chance(4) ? API_CALL(session_save, exl2_session_save(api.e, s, 0, NULL, 0, &need))
          : api.depth == 0 && api_chance(4) ? API_CALL(session_restore, exl2_session_restore(api.e, s, "", 0))
          : api_chance(3) ? API_CALL(session_tokens, exl2_session_tokens(api.e, s, ids, 2, &need))
          : api_chance(2) && id ? API_CALL(job_start, exl2_job_start(api.e, &jd, &j))
                          : API_CALL(session_close, exl2_session_close(api.e, s));
        break;
    case API_JOB:
        j.id = (api_id)id;
        r = api_chance(2) ? API_CALL(job_get, exl2_job_get(api.e, j, &job_info))
          : api_chance(2) ? API_CALL(job_pause, exl2_job_pause(api.e, j, api_chance(2)))
                          : API_CALL(job_cancel, exl2_job_cancel(api.e, j));
        break;
    default:
        g.id = (api_id)id;
        r = API_CALL(grammar_close, exl2_grammar_close(api.e, g));
        break;
    }
    API_MUST(r == EXL2_ERR_STALE, "a handle of what has ended is not stale: %s", exl2_result_name(r));
}

/* Calls with NULL for an argument that must not be NULL. */
static void api_op_nothing(void)
{
    exl2_engine *e = api_chance(2) ? NULL : api.e, *none = NULL;
    exl2_model m = { 0 };
    exl2_session s = { 0 };
    exl2_job j = { 0 };
    exl2_grammar g = { 0 };
    exl2_engine_desc spoilt;
    exl2_token ids[2];
    size_t need;
    exl2_event ev;
    api_model *live = api_pick_model(false);
    m.id = live ? (api_id)live->id : 0;
    api.nobody = !e;
    const exl2_result results[] = {
        API_CALL(model_measure, exl2_model_measure(e, NULL, NULL)), API_CALL(model_open, exl2_model_open(e, NULL, &m)),
        API_CALL(model_open, exl2_model_open(e, live ? &live->desc : NULL, NULL)),
        API_CALL(model_load, exl2_model_load(e, NULL, NULL)), API_CALL(model_get, exl2_model_get(e, m, NULL)),
        API_CALL(tokenize, exl2_tokenize(e, m, NULL, 3, 0, ids, 2, &need)),
        API_CALL(tokenize, exl2_tokenize(e, m, "a", 1, 0, NULL, 2, &need)),
        API_CALL(tokenize, exl2_tokenize(e, m, "a", 1, 0, ids, 2, NULL)),
        API_CALL(detokenize, exl2_detokenize(e, m, NULL, 2, 0, NULL, 0, &need)),
        API_CALL(chat_render, exl2_chat_render(e, m, NULL, 2, NULL, NULL, 0, &need)),
        API_CALL(chat_tokenize, exl2_chat_tokenize(e, m, NULL, NULL, NULL, 0, &need)),
        API_CALL(session_open, exl2_session_open(e, m, NULL)), API_CALL(session_fork, exl2_session_fork(e, s, NULL)),
        API_CALL(session_get, exl2_session_get(e, s, NULL)),
        API_CALL(session_tokens, exl2_session_tokens(e, s, NULL, 2, &need)),
        API_CALL(sampler_resolve, exl2_sampler_resolve(e, m, NULL, NULL)),
        API_CALL(grammar_make, exl2_grammar_make(e, NULL, &g)), API_CALL(job_start, exl2_job_start(e, NULL, &j)),
        API_CALL(generate, exl2_generate(e, NULL)), API_CALL(job_get, exl2_job_get(e, j, NULL)),
        API_CALL(kernels_build, exl2_kernels_build(NULL)), API_CALL(devices, exl2_devices(NULL, 1, NULL)),
        API_CALL(open, exl2_open(NULL, NULL)),
    };
    api.nobody = false;
    for (uint32_t i = 0; i < EXL2__COUNT(results); i++) {
        bool inside = api.depth && results[i] == EXL2_ERR_STATE; /* checked before the arguments */
        API_MUST(results[i] == EXL2_ERR_ARG || inside, "call %u with NULL gives %s", i, exl2_result_name(results[i]));
    }
    memset(&spoilt, 0xCD, sizeof spoilt);
    exl2_result r = API_CALL(open, exl2_open(&spoilt, &none));
    API_MUST(r == EXL2_ERR_ARG && !none, "exl2_open of a desc that was not zeroed gives %s", exl2_result_name(r));
    API_MUST(!exl2_next_event(NULL, &ev) && !exl2_next_event(api.e, NULL), "exl2_next_event of nothing");
    exl2_close(NULL);
    exl2_interrupt(NULL);
    exl2_stats(NULL, NULL);
    exl2_last_error(NULL, NULL);
}

static void api_open_engine(void)
{
    exl2_error error = { EXL2_OK, 0, "" };
    api_make_machine();
    api.device_faulted = false;
    api.allocations = 0;
    api.refused = api.failed_reads = 0;
    api.refuse_one_in = api.fail_one_in = 0;
    api.desc = api_engine_desc(&error);
    api_make_engine(&api.desc);
    api.refuse_one_in = api_chance(20) ? 2 : 0;
    exl2_result r = API_CALL(open, exl2_open(&api.desc, &api.e));
    api.refuse_one_in = 0;
    if (r < 0) {
        API_MUST(error.code == r && strlen(error.text) > 10, "exl2_open gives %s, open_error %s: %s",
                 exl2_result_name(r), exl2_result_name(error.code), error.text);
        API_MUST(api.e == NULL, "exl2_open failed, and there is an engine");
        api.allocations = 0;
        r = API_CALL(open, exl2_open(&api.desc, &api.e));
        bool cap = api.desc.host_bytes_max && r == EXL2_ERR_BUDGET;
        if (cap) {
            api.desc.host_bytes_max = 0;
            api.allocations = 0;
            r = API_CALL(open, exl2_open(&api.desc, &api.e));
        }
        API_MUST(r == EXL2_OK, "exl2_open gives %s: %s", exl2_result_name(r), error.text);
    }
    api_lend(api.e);
    api_trace("exl2_open: max_models %u, max_sessions %u, max_jobs %u, max_events %u, host_bytes_max %llu",
              api.max_models, api.max_sessions, api.max_jobs, api.desc.max_events,
              (unsigned long long)api.desc.host_bytes_max);
}

static void api_close_engine(void)
{
    if (!api.e) {
        return;
    }
    for (uint32_t i = 0; i < API_MODELS; i++) {
        api.models[i].closing = api.models[i].id != 0;
    }
    api_lend(NULL);
    api_begin(API_close);
    exl2_close(api.e);
    api_leave();
    api_trace("exl2_close");
    api.e = NULL;
    for (uint32_t i = 0; i < api.job_count; i++) {
        const api_job *job = api.jobs[i];
        API_MUST(job->pull || job->dropped || job->done || job->over || !job->id,
                 "job %u never had its DONE, and the engine is closed", job->number);
        api.jobs[i]->over = true;
    }
    API_MUST(api.live_blocks == 0 && api.live_bytes == 0, "%u blocks, %llu bytes are allocated after exl2_close",
             api.live_blocks, (unsigned long long)api.live_bytes);
    API_MUST(api.open_files == 0, "%u files are open after exl2_close", api.open_files);
    API_MUST(api.zones == 0, "%u zones are open after exl2_close", api.zones);
    if (api.cuda) {
        API_MUST(fake.misuse[0] == 0, "the driver is misused: %s", fake.misuse);
        API_MUST(fake_leaks() == 0 && fake.allocated == 0, "the driver has %llu bytes and other things left",
                 (unsigned long long)fake.allocated);
    }
    memset(api.models, 0, sizeof api.models);
    memset(api.sessions, 0, sizeof api.sessions);
    memset(api.grammars, 0, sizeof api.grammars);
    memset(api.loras, 0, sizeof api.loras);
    memset(api.steers, 0, sizeof api.steers);
    memset(api.images, 0, sizeof api.images);
    api.dead_count = 0;
    api.dead_seen = 0;
    for (uint32_t i = 0; i < api.job_count; i++) {
        api.jobs[i]->session = api.jobs[i]->negative = NULL;
    }
}

/* Changes which hooks and driver calls fail from now on. */
static void api_op_faults(void)
{
    static const uint32_t rates[] = { 0, 0, 0, 2, 5, 30 };
    static const int codes[] = { 2, 2, 719, 700, 999 }; /* out of memory; launch failed, illegal address, unknown */
    api.refuse_one_in = rates[api_draw(EXL2__COUNT(rates))];
    api.fail_one_in = rates[api_draw(EXL2__COUNT(rates))];
    api_trace("(alloc_fn refuses 1 of %u, read fails 1 of %u; 0 = none)", api.refuse_one_in, api.fail_one_in);
    if (api.cuda && api_chance(6)) {
        fake.fail_at = 1 + api_draw(60);
        fake.fail_code = codes[api_draw(EXL2__COUNT(codes))];
        api.device_faulted = true;
        api_trace("(the driver's %u-th call from now fails with %d)", fake.fail_at, fake.fail_code);
    } else if (api.cuda && api_chance(12)) {
        fake.fault_at = 1 + api_draw(60);
        fake.fault_code = 700;
        api.device_faulted = true;
        api_trace("(the %u-th launch from now faults)", fake.fault_at);
    }
}

/* ---- one operation ---- */

static void api_callback_operation(api_job *job, const exl2_event *ev)
{
    uint32_t what = api_draw(24);
    bool at_done = ev && ev->kind == EXL2_EVENT_DONE;
    if (at_done && job && job->session && api_chance(3)) {
        api_op_start(false, job->session);
        return;
    }
    switch (what) {
    case 0: case 1: case 2: case 3: case 4: case 5:
        api_op_start(false, NULL);
        break;
    case 6: case 7: case 8:
        api_op_job();
        break;
    case 9: case 10:
        api_op_session_fork();
        break;
    case 11:
        api_op_session_close();
        break;
    case 12:
        (api_chance(2) ? api_op_session_rewind : api_op_session_trim)();
        break;
    case 13:
        api_op_session_open();
        break;
    case 14:
        api_op_session_look();
        break;
    case 15:
        api_op_grammar_make();
        break;
    case 16:
        api_op_grammar_close();
        break;
    case 17:
        api_op_stale();
        break;
    case 18:
        api_op_look();
        break;
    case 19:
        (api_chance(2) ? api_op_text : api_op_image)();
        break;
    case 20: /* 20 and 21: calls that are not allowed in a callback */
        (api_chance(2) ? api_op_model_close : api_op_model_park)();
        break;
    case 21:
        api_step(NULL);
        API_MUST(!api_pull(), "exl2_next_event inside a callback");
        API_VOID(last_error, exl2_close(api.e));
        break;
    case 22:
        if (api_chance(2)) {
            api_op_model_look();
        } else {
            api_op_model_open();
        }
        break;
    default:
        if (api_chance(3)) {
            api_op_start(true, NULL);
        } else if (api_chance(2)) {
            api_op_nothing();
        }
        break;
    }
}

/* Whether the job drafts with a model that is open. */
static api_model *api_drafter_of(const api_job *job)
{
    return api_lives(job) ? api_find_model(job->store.d.draft.model.id) : NULL;
}

/* The draft model of a live job ends and comes back while jobs run: it is parked and loads again, or it is closed and
   another one of the same folder opens. Then a job begins with it. */
static void api_op_drafter(void)
{
    const exl2_step_desc some = { .cpu_us = 200 };
    api_model *m = NULL, *target;
    uint32_t count = 0;
    for (uint32_t i = 0; i < api.job_count; i++) {
        api_model *of = api_drafter_of(api.jobs[i]);
        m = of && of->ready && !of->parked && !of->closing && api_draw(++count) == 0 ? of : m;
    }
    if (!m) { /* a job that drafts is started */
        target = api_pick_model(true);
        for (uint32_t i = 0; target && i < API_MODELS; i++) {
            api_model *of = &api.models[i];
            bool fits = of->id && of->ready && of != target && of->vocab == target->vocab;
            m = fits && of->has_text == target->has_text && api_draw(++count) == 0 ? of : m;
        }
        if (!m && target && target->ready) { /* there is no other model of this vocabulary yet */
            m = api_load_model(&target->desc);
        }
    } else {
        exl2_model_desc again = m->desc;
        if (api_chance(2)) {
            api_park_model(m);
            for (uint32_t i = api_draw(6); i > 0; i--) {
                api_step(&some);
            }
            if (m->id && m->parked && !m->closing) {
                api_park_model(m);
            }
        } else {
            api_close_model(m);
            for (uint32_t i = api_draw(6); i > 0; i--) {
                api_step(&some);
            }
            m = api_load_model(&again);
        }
    }
    for (uint32_t i = 0; m && m->id && m->loading && i < 300; i++) {
        api_step(i % 2 ? NULL : &some);
    }
    if (m && m->id && m->ready && !m->parked) {
        api_next_drafter = m;
        api_op_start(false, NULL);
        api_next_drafter = NULL;
        for (uint32_t i = api_draw(80); i > 0; i--) { /* until it drafts, or until it ends */
            api_step(NULL);
        }
    }
}

/* A worker that no step allows anything, so that what happens is the same in every run. */
static void api_op_worker(void)
{
    exl2_result r = API_CALL(worker_start, exl2_worker_start(api.e));
    api_trace("exl2_worker_start: %s", exl2_result_name(r));
    if (r == EXL2_OK) {
        r = API_CALL(worker_start, exl2_worker_start(api.e));
        API_MUST(r == EXL2_ERR_STATE, "a second exl2_worker_start gives %s", exl2_result_name(r));
        api_op_session_open();
        api_op_session_look();
        r = API_CALL(worker_stop, exl2_worker_stop(api.e));
        API_MUST(r == EXL2_OK, "exl2_worker_stop gives %s", exl2_result_name(r));
    }
    r = API_CALL(worker_stop, exl2_worker_stop(api.e));
    API_MUST(r == EXL2_ERR_STATE, "exl2_worker_stop without a worker gives %s", exl2_result_name(r));
}

static void api_operation(void)
{
    uint32_t what = api_draw(100);
    uint32_t ready = api_pick_model(true) != NULL;
    if (!api.e) {
        api_open_engine();
    } else if (!ready && api_chance(3)) {
        (api_chance(3) ? api_op_model_open : api_op_model_load)();
    } else if (api_pick_sight() && api_chance(8)) {
        api_op_image();
    } else if (what < 30) {
        api_op_step();
    } else if (what < 48) {
        api_op_start(false, NULL);
    } else if (what < 52) {
        api_op_start(true, NULL);
    } else if (what < 58) {
        api_op_pull(api_chance(3) ? 1000 : api_draw(20));
    } else if (what < 65) {
        api_op_job();
    } else if (what < 70) {
        api_op_session_open();
    } else if (what < 74) {
        api_op_session_fork();
    } else if (what < 77) {
        (api_chance(2) ? api_op_session_rewind : api_op_session_trim)();
    } else if (what < 80) {
        (api_chance(2) ? api_op_session_look : api_op_session_save)();
    } else if (what < 83) {
        api_op_session_close();
    } else if (what < 86) {
        api_op_grammar_make();
    } else if (what < 87) {
        api_op_grammar_close();
    } else if (what < 89) {
        api_op_text();
    } else if (what < 91) {
        api_op_look();
    } else if (what < 92) {
        (api_chance(3) ? api_op_stale : api_chance(2) ? api_op_lora : api_op_steer)();
    } else if (what < 93) {
        api_op_drafter();
    } else if (what < 94) {
        (api_chance(3) ? api_op_nothing : api_op_steer)();
    } else if (what < 96) {
        (api_chance(2) ? api_op_model_open : api_chance(3) ? api_op_model_look : api_op_model_load)();
    } else if (what < 97) {
        api_op_model_close();
    } else if (what < 98) {
        (api_chance(2) ? api_op_faults : api_op_model_park)();
    } else if (what < 99) {
        (api_chance(2) ? api_drain : api_op_worker)();
    } else if (api_chance(2)) {
        api_close_engine();
    }
    if (api.e) {
        api_refresh_models();
        api_refresh_loras();
        api_settle_all();
    }
}

#endif
