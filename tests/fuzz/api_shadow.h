/* api_shadow.h: the checks of the shadow model: the expected events and histories, the handles that live, the results
   that a function may return.
   takes: events, results.
   gives: api_begin, api_end: around every call of the engine; api_event; api_settle_all; api_check_idle; records.
   owns:  the job records. */
#ifndef API_SHADOW_H
#define API_SHADOW_H

#include "api_desc.h"

/* ---- calls ---- */

#define API_BIT(result) (1u << -(result))
#define API_GPU_ERRORS (API_BIT(EXL2_ERR_NO_COMPILER) | API_BIT(EXL2_ERR_COMPILE) | API_BIT(EXL2_ERR_DEVICE_MEMORY) \
                        | API_BIT(EXL2_ERR_DEVICE_LOST))
#define API_FILE_ERRORS (API_BIT(EXL2_ERR_IO) | API_BIT(EXL2_ERR_FORMAT) | API_BIT(EXL2_ERR_UNSUPPORTED))
#define API_START_ERRORS (API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_CONTEXT_FULL) | API_BIT(EXL2_ERR_BUDGET)         \
                          | API_BIT(EXL2_ERR_UNSUPPORTED) | API_BIT(EXL2_ERR_FORMAT))

typedef enum api_fn {
    API_open, API_close, API_devices, API_device_probe, API_link_probe, API_last_error, API_interrupt, API_step,
    API_next_event,
    API_worker_start, API_worker_stop, API_stats, API_model_measure, API_model_open, API_model_load, API_model_state,
    API_model_get, API_model_park, API_model_close, API_tokenize, API_detokenize, API_chat_render, API_chat_tokenize,
    API_session_open,
    API_session_fork, API_session_rewind, API_session_trim, API_session_save, API_session_restore, API_session_get,
    API_session_tokens, API_session_close, API_sampler_resolve, API_grammar_make,
    API_grammar_close, API_job_start, API_job_measure, API_json_text, API_generate, API_job_cancel,
    API_job_get, API_job_pause, API_job_priority, API_lora_measure, API_lora_open, API_lora_load, API_lora_state,
    API_lora_get, API_lora_close, API_steer_make, API_steer_get, API_steer_close, API_image_make, API_image_get,
    API_image_measure, API_image_seen, API_image_rows, API_image_close, API_session_pictures, API_kernels_build, API_FNS
} api_fn;

/* What exl2.h says of each function: its errors (besides ARG, STALE and, after an allocation failed, MEMORY), and
   whether it may allocate once all models are ready. */
static const struct {
    const char *name;
    bool stale, allocates;
    uint32_t errors;
} api_fns[API_FNS] = {
    [API_open] = { "exl2_open", false, true, API_BIT(EXL2_ERR_BUDGET) | API_BIT(EXL2_ERR_VERSION)
                   | API_BIT(EXL2_ERR_NO_DEVICE) | API_BIT(EXL2_ERR_DEVICE_MEMORY) | API_BIT(EXL2_ERR_DEVICE_LOST)
                   | API_BIT(EXL2_ERR_UNSUPPORTED) },
    [API_close] = { "exl2_close", false, false, 0 },
    [API_devices] = { "exl2_devices", false, false, 0 },
    [API_device_probe] = { "exl2_device_probe", false, true, API_BIT(EXL2_ERR_NO_DEVICE) | API_BIT(EXL2_ERR_STATE)
                           | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_link_probe] = { "exl2_link_probe", false, true, API_BIT(EXL2_ERR_NO_DEVICE) | API_BIT(EXL2_ERR_STATE)
                         | API_BIT(EXL2_ERR_ARG) | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_last_error] = { "exl2_last_error", false, false, 0 },
    [API_interrupt] = { "exl2_interrupt", false, false, 0 },
    [API_step] = { "exl2_step", false, false, API_BIT(EXL2_ERR_STATE) },
    [API_next_event] = { "exl2_next_event", false, false, 0 },
    [API_stats] = { "exl2_stats", false, false, 0 },
    [API_worker_start] = { "exl2_worker_start", false, true, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_worker_stop] = { "exl2_worker_stop", false, false, API_BIT(EXL2_ERR_STATE) },
    [API_model_measure] = { "exl2_model_measure", false, true, API_FILE_ERRORS | API_BIT(EXL2_ERR_STATE)
                            | API_BIT(EXL2_ERR_CANCELLED) | API_BIT(EXL2_ERR_BUDGET) },
    [API_model_open] = { "exl2_model_open", false, false, API_BIT(EXL2_ERR_BUDGET) | API_BIT(EXL2_ERR_UNSUPPORTED) },
    [API_model_load] = { "exl2_model_load", false, true, API_FILE_ERRORS | API_BIT(EXL2_ERR_STATE)
                         | API_BIT(EXL2_ERR_CANCELLED) | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_model_state] = { "exl2_model_state", true, false, API_FILE_ERRORS | API_BIT(EXL2_ERR_MEMORY)
                          | API_BIT(EXL2_ERR_CANCELLED) | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_model_get] = { "exl2_model_get", true, false, 0 },
    [API_model_park] = { "exl2_model_park", true, false, API_BIT(EXL2_ERR_STATE) },
    [API_model_close] = { "exl2_model_close", true, false, API_BIT(EXL2_ERR_STATE) },
    [API_tokenize] = { "exl2_tokenize", true, false, API_BIT(EXL2_ERR_TOO_SMALL) | API_BIT(EXL2_ERR_STATE) },
    [API_detokenize] = { "exl2_detokenize", true, false, API_BIT(EXL2_ERR_TOO_SMALL) | API_BIT(EXL2_ERR_STATE) },
    [API_chat_render] = { "exl2_chat_render", true, false, API_BIT(EXL2_ERR_TOO_SMALL) | API_BIT(EXL2_ERR_STATE)
                          | API_BIT(EXL2_ERR_UNSUPPORTED) | API_BIT(EXL2_ERR_FORMAT) | API_BIT(EXL2_ERR_BUDGET) },
    [API_chat_tokenize] = { "exl2_chat_tokenize", true, false, API_BIT(EXL2_ERR_TOO_SMALL) | API_BIT(EXL2_ERR_STATE)
                            | API_BIT(EXL2_ERR_UNSUPPORTED) | API_BIT(EXL2_ERR_FORMAT) | API_BIT(EXL2_ERR_BUDGET) },
    [API_session_open] = { "exl2_session_open", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_session_fork] = { "exl2_session_fork", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_session_rewind] = { "exl2_session_rewind", true, false, API_BIT(EXL2_ERR_STATE) },
    [API_session_trim] = { "exl2_session_trim", true, false, API_BIT(EXL2_ERR_STATE) },
    [API_session_save] = { "exl2_session_save", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_TOO_SMALL)
                           | API_GPU_ERRORS },
    [API_session_restore] = { "exl2_session_restore", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_FORMAT)
                              | API_BIT(EXL2_ERR_CONTEXT_FULL) | API_BIT(EXL2_ERR_UNSUPPORTED)
                              | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_session_get] = { "exl2_session_get", true, false, 0 },
    [API_session_tokens] = { "exl2_session_tokens", true, false, API_BIT(EXL2_ERR_TOO_SMALL) },
    [API_session_close] = { "exl2_session_close", true, false, 0 },
    [API_sampler_resolve] = { "exl2_sampler_resolve", true, false, 0 },
    [API_grammar_make] = { "exl2_grammar_make", true, true, API_BIT(EXL2_ERR_FORMAT) | API_BIT(EXL2_ERR_UNSUPPORTED)
                           | API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_grammar_close] = { "exl2_grammar_close", true, false, 0 },
    [API_job_start] = { "exl2_job_start", true, false, API_START_ERRORS },
    [API_job_measure] = { "exl2_job_measure", true, false, API_START_ERRORS },
    [API_json_text] = { "exl2_json_text", false, false,
                        API_BIT(EXL2_ERR_FORMAT) | API_BIT(EXL2_ERR_TOO_SMALL) },
    [API_generate] = { "exl2_generate", true, false, API_START_ERRORS | API_BIT(EXL2_ERR_CANCELLED) },
    [API_job_cancel] = { "exl2_job_cancel", true, false, 0 },
    [API_job_get] = { "exl2_job_get", true, false, 0 },
    [API_job_pause] = { "exl2_job_pause", true, false, 0 },
    [API_job_priority] = { "exl2_job_priority", true, false, 0 },
    [API_lora_measure] = { "exl2_lora_measure", true, true, API_FILE_ERRORS | API_BIT(EXL2_ERR_STATE)
                           | API_BIT(EXL2_ERR_BUDGET) },
    [API_lora_open] = { "exl2_lora_open", true, true, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_lora_load] = { "exl2_lora_load", true, true, API_FILE_ERRORS | API_BIT(EXL2_ERR_STATE)
                        | API_BIT(EXL2_ERR_BUDGET) | API_BIT(EXL2_ERR_CANCELLED) | API_GPU_ERRORS },
    [API_lora_state] = { "exl2_lora_state", true, false, API_FILE_ERRORS | API_BIT(EXL2_ERR_MEMORY)
                         | API_BIT(EXL2_ERR_BUDGET) | API_GPU_ERRORS },
    [API_lora_get] = { "exl2_lora_get", true, false, 0 },
    [API_lora_close] = { "exl2_lora_close", true, false, 0 },
    [API_steer_make] = { "exl2_steer_make", true, true, API_FILE_ERRORS | API_BIT(EXL2_ERR_STATE)
                         | API_BIT(EXL2_ERR_BUDGET) },
    [API_steer_get] = { "exl2_steer_get", true, false, 0 },
    [API_steer_close] = { "exl2_steer_close", true, false, 0 },
    [API_image_make] = { "exl2_image_make", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_BUDGET) },
    [API_image_get] = { "exl2_image_get", true, false, 0 },
    [API_image_measure] = { "exl2_image_measure", true, false, API_BIT(EXL2_ERR_STATE) },
    [API_image_seen] = { "exl2_image_seen", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_TOO_SMALL) },
    [API_image_rows] = { "exl2_image_rows", true, false, API_BIT(EXL2_ERR_STATE) | API_BIT(EXL2_ERR_TOO_SMALL) },
    [API_image_close] = { "exl2_image_close", true, false, 0 },
    [API_session_pictures] = { "exl2_session_pictures", true, false, API_BIT(EXL2_ERR_TOO_SMALL) },
    [API_kernels_build] = { "exl2_kernels_build", false, true, API_BIT(EXL2_ERR_NO_COMPILER)
                            | API_BIT(EXL2_ERR_COMPILE) | API_BIT(EXL2_ERR_UNSUPPORTED) },
};

static void api_begin_more(api_fn fn, bool may_allocate)
{
    API_MUST(api.frame_count < API_FRAMES, "calls nest %u deep", API_FRAMES);
    api.frames[api.frame_count++] = (api_frame){ .fn = fn, .may_allocate = may_allocate, .refused = api.refused,
                                                 .failed_reads = api.failed_reads };
    api_shared->calls++;
    snprintf(api_shared->call, sizeof api_shared->call, "%s", api_fns[fn].name);
}

static void api_begin(api_fn fn)
{
    api_begin_more(fn, api_fns[fn].allocates);
}

static api_frame api_leave(void)
{
    api_frame frame = api.frames[--api.frame_count];
    snprintf(api_shared->call, sizeof api_shared->call, "%s",
             api.frame_count ? api_fns[api.frames[api.frame_count - 1].fn].name : "");
    if (api.frame_count) {
        api.frames[api.frame_count - 1].other_called |= frame.other_called;
    }
    return frame;
}

/* Whether a model or the engine is being closed. */
static bool api_closes(void)
{
    bool closes = false;
    for (uint32_t i = 0; i < api.frame_count; i++) {
        closes = closes || api.frames[i].fn == API_close || api.frames[i].fn == API_model_close;
    }
    return closes;
}

/* The result must be one that the manual names for the function, and an error must have a message. */
static exl2_result api_end(exl2_result r)
{
    api_frame frame = api_leave();
    const char *name = api_fns[frame.fn].name;
    uint32_t allowed = api_fns[frame.fn].errors | API_BIT(EXL2_ERR_ARG);
    bool refused = api.refused > frame.refused, unread = api.failed_reads > frame.failed_reads;
    allowed |= api_fns[frame.fn].stale || frame.fn == API_job_start ? API_BIT(EXL2_ERR_STALE) : 0;
    allowed |= api_closes() ? API_BIT(EXL2_ERR_STATE) : 0;
    allowed |= refused ? API_BIT(EXL2_ERR_MEMORY) : 0;
    allowed |= unread ? API_BIT(EXL2_ERR_IO) | API_BIT(EXL2_ERR_FORMAT) : 0;
    allowed |= api.device_faulted ? API_GPU_ERRORS | API_BIT(EXL2_ERR_NO_DEVICE) : 0;
    allowed |= api.device_faulted ? API_BIT(EXL2_ERR_MEMORY) : 0; /* the driver allocates pinned memory */
    API_MUST(r >= EXL2_ERR_INTERNAL && r <= EXL2_IDLE, "%s gives %d", name, (int)r);
    API_MUST(r >= 0 || allowed >> -r & 1, "%s gives %s, which the manual does not name for it", name,
             exl2_result_name(r));
    bool state = frame.fn == API_model_state || frame.fn == API_lora_state;
    API_MUST(r <= 0 || frame.fn == API_step || state, "%s gives %s", name, exl2_result_name(r));
    bool of_engine = frame.fn > API_devices && frame.fn != API_kernels_build && frame.fn != API_json_text;
    if (r < 0 && api.e && !api.nobody && of_engine) {
        exl2_error error;
        exl2_last_error(api.e, &error);
        api_check_sentence(error.text, sizeof error.text, name);
        bool ours = !frame.other_called && !api.threads;
        API_MUST(!ours || error.code == r, "%s gives %s, but the newest sentence is of %s: %s", name,
                 exl2_result_name(r), exl2_result_name(error.code), error.text);
        API_MUST(!ours || strlen(error.text) > 10, "%s gives %s with the sentence \"%s\"", name, exl2_result_name(r),
                 error.text);
    }
    return r;
}

#define API_CALL(fn, call) (api_begin(API_##fn), api_end(call))
#define API_VOID(fn, call) (api_begin(API_##fn), (call), (void)api_leave())

/* ---- handles ---- */

static void api_bury(api_kind kind, uint64_t id)
{
    uint32_t at = api.dead_count < API_DEAD ? api.dead_count++
                : API_DEAD / 2 + (uint32_t)(api.dead_seen % (API_DEAD / 2)); /* the first half is never replaced */
    api.dead_seen++;
    api.dead[at].kind = kind;
    api.dead[at].id = id;
}

static void api_check_new(api_kind kind, uint64_t id)
{
    static const char *const names[] = { "model", "session", "job", "grammar" };
    API_MUST(id != 0, "a new %s has the handle 0", names[kind]);
    for (uint32_t i = 0; i < api.dead_count; i++) {
        API_MUST(api.dead[i].kind != kind || api.dead[i].id != id, "the handle of a new %s is that of one that ended",
                 names[kind]);
    }
}

static api_session *api_new_session(uint64_t id, api_model *m)
{
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        API_MUST(api.sessions[i].id != id, "two sessions have one handle");
    }
    api_check_new(API_SESSION, id);
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        if (api.sessions[i].id == 0) {
            api.sessions[i].id = id;
            api.sessions[i].model = m;
            api.sessions[i].busy = NULL;
            api.sessions[i].count = api.sessions[i].picture_count = 0;
            return &api.sessions[i];
        }
    }
    api_finding("more sessions live than max_sessions allows");
}

/* Removes the session, also from the jobs that use it. */
static void api_forget_session(api_session *s)
{
    for (uint32_t i = 0; i < api.job_count; i++) {
        api.jobs[i]->session = api.jobs[i]->session == s ? NULL : api.jobs[i]->session;
        api.jobs[i]->negative = api.jobs[i]->negative == s ? NULL : api.jobs[i]->negative;
    }
    api_bury(API_SESSION, s->id);
    memset(s, 0, sizeof *s);
}

static api_model *api_find_model(uint64_t id)
{
    for (uint32_t i = 0; i < API_MODELS; i++) {
        if (id && api.models[i].id == id) {
            return &api.models[i];
        }
    }
    return NULL;
}

/* ---- histories ---- */

static uint32_t api_read_history(uint64_t id, exl2_token *out)
{
    size_t need = 0;
    exl2_session s = { 0 };
    s.id = (api_id)id;
    exl2_result r = API_CALL(session_tokens, exl2_session_tokens(api.e, s, out, API_HISTORY, &need));
    API_MUST(r == EXL2_OK, "exl2_session_tokens of a live session gives %s", exl2_result_name(r));
    return (uint32_t)need;
}

/* Reads the pictures of a history. Their ids are those of the pictures that were given; whether the rows are gone may
   change at any time. */
static uint32_t api_read_pictures(uint64_t id, exl2_picture *out)
{
    size_t need = 0;
    exl2_result r = API_CALL(session_pictures, exl2_session_pictures(api.e, (exl2_session){ id }, out, API_PICTURES,
                                                                     &need));
    API_MUST(r == (need <= API_PICTURES ? EXL2_OK : EXL2_ERR_TOO_SMALL), "exl2_session_pictures of %zu gives %s", need,
             exl2_result_name(r));
    uint32_t count = need < API_PICTURES ? (uint32_t)need : API_PICTURES;
    for (uint32_t i = 0; i < count; i++) {
        API_MUST(out[i].rows > 0 && out[i].rows <= out[i].count, "a picture has %u rows on %u places", out[i].rows,
                 out[i].count);
        API_MUST(i == 0 || out[i].from >= out[i - 1].from + out[i - 1].count, "a picture begins within another one");
        out[i].missing = false;
    }
    return (uint32_t)need;
}

static bool api_same_pictures(const api_session *a, const exl2_picture *b, uint32_t count)
{
    uint32_t known = count < API_PICTURES ? count : API_PICTURES;
    return a->picture_count == count && memcmp(a->pictures, b, known * sizeof *b) == 0;
}

/* Whether a history may not end at `at`, as that is within a picture. */
static bool api_cuts(const api_session *s, uint32_t at)
{
    bool cuts = false;
    for (uint32_t i = 0; i < s->picture_count && i < API_PICTURES; i++) {
        cuts = cuts || (at > s->pictures[i].from && at < s->pictures[i].from + s->pictures[i].count);
    }
    return cuts;
}

static bool api_same(const exl2_token *a, uint32_t a_count, const exl2_token *b, uint32_t b_count)
{
    return a_count == b_count && (a_count == 0 || memcmp(a, b, a_count * sizeof *a) == 0);
}

/* Writes the ids of the job's prompt and returns their number, or -1 for a conversation or a prompt with pictures,
   whose ids only the engine knows. */
static int32_t api_prompt_ids(const api_job *job, const api_job_store *s, bool empty, exl2_token *out)
{
    static exl2_token with[API_HISTORY * 4], without[API_HISTORY * 4];
    size_t need = 0, plain = 0;
    const exl2_job_desc *d = &s->d;
    exl2_model m = { 0 };
    m.id = (api_id)job->model_id;
    if (d->prompt.messages || d->prompt.image_count) {
        return -1;
    }
    if (!d->prompt.text) {
        memcpy(out, d->prompt.tokens ? d->prompt.tokens : s->tokens, d->prompt.token_count * sizeof *out);
        return (int32_t)d->prompt.token_count;
    }
    size_t bytes = strlen(d->prompt.text);
    bool quiet = api.quiet;
    api.quiet = true;
    api_begin_more(API_tokenize, true);
    exl2_result r = api_end(exl2_tokenize(api.e, m, d->prompt.text, bytes, d->prompt.flags | EXL2_TEXT_NO_BOS, without,
                                          EXL2__COUNT(without), &plain));
    api_begin_more(API_tokenize, true);
    r = r < 0 ? r : api_end(exl2_tokenize(api.e, m, d->prompt.text, bytes, d->prompt.flags, with, EXL2__COUNT(with),
                                          &need));
    api.quiet = quiet;
    API_MUST(r == EXL2_OK, "exl2_tokenize of a prompt gives %s", exl2_result_name(r));
    bool bos = empty && need == plain + 1 && !(plain && without[0] == with[0]);
    memcpy(out, bos ? with : without, (plain + bos) * sizeof *out);
    return (int32_t)(plain + bos);
}

/* The history must be the one before the job, the prompt and the tokens of the events. It may be unchanged if the job
   generated nothing and did not end with OK; healing may have removed the prompt's last token. */
static void api_check_after(api_job *job, const char *whose, const exl2_token *before, uint32_t before_count,
                            int32_t prompt_count, const exl2_token *prompt, const exl2_token *after, uint32_t count)
{
    static exl2_token wanted[3 * API_HISTORY];
    const exl2_job_desc *d = &job->store.d;
    bool whole = job->result == EXL2_OK, heals = d->heal_prompt && !d->prefill_only;
    if (prompt_count < 0) {
        bool ends = count >= job->said_count
                 && api_same(after + count - job->said_count, job->said_count, job->said, job->said_count);
        bool untouched = job->said_count == 0 && !whole && api_same(after, count, before, before_count);
        API_MUST(ends, "%s history of job %u does not end with what its events said", whose, job->number);
        uint32_t own = d->prompt.image_count && !d->prompt.messages ? before_count : 0; /* not part of the prompt */
        API_MUST(untouched || before != job->before || count - job->said_count - own == job->stats.prompt_tokens
                     || (heals && count - job->said_count - own + 1 == job->stats.prompt_tokens),
                 "%s history of job %u has %u tokens before the %u said ones, its prompt %u", whose, job->number,
                 count - job->said_count, job->said_count, job->stats.prompt_tokens);
        return;
    }
    memcpy(wanted, before, before_count * sizeof *wanted);
    memcpy(wanted + before_count, prompt, (uint32_t)prompt_count * sizeof *wanted);
    for (uint32_t less = 0; less <= heals && less <= (uint32_t)prompt_count; less++) {
        uint32_t used = before_count + (uint32_t)prompt_count - less;
        memcpy(wanted + used, job->said, job->said_count * sizeof *wanted);
        if (api_same(wanted, used + job->said_count, after, count)) {
            return;
        }
    }
    bool untouched = job->said_count == 0 && !whole && api_same(after, count, before, before_count);
    API_MUST(untouched, "%s history of job %u has %u tokens: not the %u before it, %d of prompt and %u said (%s)",
             whose, job->number, count, before_count, prompt_count, job->said_count, exl2_result_name(job->result));
}

/* The newest pictures of the history must be those of the prompt. */
static void api_check_pictures(const api_job *job)
{
    uint32_t given = job->store.image_count, count = job->picture_count_after;
    if (!given || job->result != EXL2_OK || count > API_PICTURES) {
        return;
    }
    API_MUST(count >= given, "the history of job %u has %u pictures, its prompt %u", job->number, count, given);
    for (uint32_t i = 0; i < given; i++) {
        API_MUST(memcmp(job->pictures_after[count - given + i].id, job->image_ids[i], sizeof job->image_ids[i]) == 0,
                 "picture %u of job %u is another one in its history", i, job->number);
    }
}

/* Checks both histories of a job that is done, if they were read after its DONE. */
static void api_check_histories(api_job *job)
{
    static exl2_token prompt[API_HISTORY * 2];
    static api_job_store other;
    if (job->after_known) {
        int32_t count = api_prompt_ids(job, &job->store, job->before_count == 0, prompt);
        api_check_after(job, "the", job->before, job->before_count, count, prompt, job->after, job->after_count);
        api_check_pictures(job);
    }
    if (job->negative_after_known) {
        memset(&other, 0, sizeof other);
        other.d.prompt = job->store.d.negative_prompt;
        int32_t count = api_prompt_ids(job, &other, job->negative_before_count == 0, prompt);
        api_check_after(job, "the negative", job->negative_before, job->negative_before_count, count, prompt,
                        job->negative_after, job->negative_after_count);
    }
}

/* If the session's job has ended, records the history that the job left. */
static void api_settle(api_session *s)
{
    api_job *job = s->busy;
    exl2_session_info info;
    exl2_session handle = { 0 };
    handle.id = (api_id)s->id;
    if (!job) {
        return;
    }
    exl2_result r = API_CALL(session_get, exl2_session_get(api.e, handle, &info));
    API_MUST(r == EXL2_OK, "exl2_session_get of a live session gives %s", exl2_result_name(r));
    if (job->id && info.busy_with.id == job->id) {
        API_MUST(!job->done, "a session is busy with job %u, whose DONE was told", job->number);
        return;
    }
    if (!job->id && info.busy_with.id != 0) {
        return; /* the job of exl2_generate, whose handle is not known yet */
    }
    API_MUST(info.busy_with.id == 0, "a session is busy with a job that was never started on it");
    s->count = api_read_history(s->id, s->history);
    s->picture_count = api_read_pictures(s->id, s->pictures);
    bool negative = job->negative == s;
    memcpy(negative ? job->negative_after : job->after, s->history, s->count * sizeof *s->history);
    if (!negative) {
        memcpy(job->pictures_after, s->pictures, sizeof s->pictures);
        job->picture_count_after = s->picture_count;
    }
    *(negative ? &job->negative_after_count : &job->after_count) = s->count;
    *(negative ? &job->negative_after_known : &job->after_known) = true;
    s->busy = NULL;
}

static void api_settle_all(void)
{
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        if (api.sessions[i].id) {
            api_settle(&api.sessions[i]);
        }
    }
}

/* The history of an idle session must not have changed. */
static void api_check_idle(api_session *s)
{
    static exl2_token now[API_HISTORY];
    api_settle(s);
    if (!s->busy) {
        uint32_t count = api_read_history(s->id, now);
        API_MUST(api_same(now, count, s->history, s->count), "the history of an idle session changed: %u, %u tokens",
                 s->count, count);
        exl2_picture pictures[API_PICTURES];
        count = api_read_pictures(s->id, pictures);
        API_MUST(api_same_pictures(s, pictures, count), "the pictures of an idle session changed: %u, %u of them",
                 s->picture_count, count);
    }
}

/* ---- events ---- */

static bool api_find_fold(const char *text, uint32_t bytes, const char *what)
{
    size_t length = strlen(what);
    for (uint32_t i = 0; i + length <= bytes; i++) {
        size_t k = 0;
        while (k < length) {
            char a = text[i + k], b = what[k];
            a = a >= 'A' && a <= 'Z' ? (char)(a + 32) : a;
            b = b >= 'A' && b <= 'Z' ? (char)(b + 32) : b;
            if (a != b) {
                break;
            }
            k++;
        }
        if (k == length) {
            return true;
        }
    }
    return false;
}

static bool api_find(const char *text, uint32_t bytes, const char *what)
{
    size_t length = strlen(what);
    for (uint32_t i = 0; i + length <= bytes; i++) {
        if (memcmp(text + i, what, length) == 0) {
            return true;
        }
    }
    return false;
}

static void api_event_text(api_job *job, const exl2_event *ev)
{
    const exl2_job_desc *d = &job->store.d;
    API_MUST(ev->text != NULL && ev->text[ev->bytes] == 0, "TEXT of job %u without a NUL after it", job->number);
    API_MUST(exl2__unicode_valid(ev->text, ev->bytes), "TEXT of job %u is not whole code points", job->number);
    API_MUST(ev->bytes || ev->token_count, "an empty TEXT of job %u", job->number);
    API_MUST(ev->alts_per_token == d->alts_per_token, "TEXT of job %u has %u alternatives a token, asked for %u",
             job->number, ev->alts_per_token, d->alts_per_token);
    API_MUST(!d->prefill_only, "TEXT of job %u, which is prefill_only", job->number);
    for (uint32_t i = 0; i < ev->token_count; i++) {
        exl2_token t = ev->tokens[i].token;
        API_MUST(t >= 0 && (uint32_t)t < job->vocab, "TEXT with token %d", t);
        API_MUST(job->said_count < API_HISTORY, "job %u says more than any context holds", job->number);
        job->said[job->said_count++] = t;
        for (uint32_t k = 0; k < ev->alts_per_token; k++) {
            exl2_token alt = ev->alts[(size_t)i * ev->alts_per_token + k].token;
            API_MUST(alt >= -1 && alt < (exl2_token)job->vocab, "TEXT with alternative %d", alt);
        }
    }
    API_MUST(!d->max_tokens || job->said_count <= d->max_tokens + d->heal_prompt, "job %u says %u tokens of %u",
             job->number, job->said_count, d->max_tokens);
    API_MUST(job->text_bytes + ev->bytes < API_TEXT, "job %u says too much text", job->number);
    memcpy(job->text + job->text_bytes, ev->text, ev->bytes);
    job->text_bytes += (uint32_t)ev->bytes;
    for (uint32_t i = 0; i < d->stop_string_count; i++) {
        API_MUST(!api_find(job->text, job->text_bytes, d->stop_strings[i]), "job %u shows the stop string \"%s\"",
                 job->number, d->stop_strings[i]);
    }
}

static void api_event_prefill(api_job *job, const exl2_event *ev)
{
    API_MUST(ev->progress >= job->progress && ev->progress <= 1, "PREFILL of job %u goes from %g to %g", job->number,
             (double)job->progress, (double)ev->progress);
    API_MUST(!ev->token_count || job->store.d.score_prompt, "PREFILL of job %u has scores nobody asked for",
             job->number);
    API_MUST(!ev->token_count || ev->logsumexp, "PREFILL of job %u without logsumexp", job->number);
    API_MUST(job->text_bytes == 0 && job->said_count == 0, "PREFILL of job %u behind its text", job->number);
    job->progress = ev->progress;
    job->scored += ev->token_count;
}

static void api_event_embedding(api_job *job, const exl2_event *ev)
{
    const exl2_job_desc *d = &job->store.d;
    double square = 0;
    job->vectors++;
    job->vector_hash = exl2__hash(ev->values, ev->value_count * sizeof *ev->values);
    API_MUST(d->embed.pool != EXL2_EMBED_OFF, "job %u has a vector that nobody asked for", job->number);
    API_MUST(ev->values && ev->value_count, "an empty vector of job %u", job->number);
    for (uint32_t i = 0; i < ev->value_count; i++) {
        square += (double)ev->values[i] * (double)ev->values[i];
    }
    API_MUST(square < 1e30, "the vector of job %u is not finite", job->number);
    API_MUST(d->embed.raw || square < 1e-9 || (square > 0.999 && square < 1.001), "the vector of job %u has length %g",
             job->number, square);
}

/* If no setting changes the text, it must be the text of the tokens. */
static void api_check_text(const api_job *job)
{
    static char text[API_TEXT];
    size_t need = 0;
    exl2_model m = { 0 };
    m.id = (api_id)job->model_id;
    bool cut = job->stop == EXL2_STOP_STRING || job->store.d.heal_prompt || job->result != EXL2_OK
            || job->stop == EXL2_STOP_CALLBACK || !job->has_text;
    if (cut || job->said_count == 0) {
        return;
    }
    exl2_result r = API_CALL(detokenize, exl2_detokenize(api.e, m, job->said, job->said_count,
                                                         job->store.d.show_markers ? 0 : EXL2_TEXT_SKIP_MARKERS, text,
                                                         sizeof text, &need));
    API_MUST(r == EXL2_OK, "exl2_detokenize of what was said gives %s", exl2_result_name(r));
    API_MUST(need == job->text_bytes && memcmp(text, job->text, need) == 0,
             "the text of job %u (%u bytes) is not what its tokens say (%zu bytes)", job->number, job->text_bytes,
             need);
}

static void api_event_done(api_job *job, const exl2_event *ev)
{
    const exl2_job_desc *d = &job->store.d;
    exl2_stop stop = ev->stop;
    exl2_result r = ev->result;
    job->done = true;
    job->stop = stop;
    job->result = r;
    job->stats = ev->stats;
    snprintf(job->error, sizeof job->error, "%s", ev->error ? ev->error : "");
    api_shared->dones++;
    api_shared->tokens += job->said_count;
    api_shared->seeing += job->store.image_count > 0 && r == EXL2_OK;
    API_MUST(r <= 0, "DONE of job %u with %s", job->number, exl2_result_name(r));
    API_MUST((r < 0) == (ev->error != NULL), "DONE of job %u: %s, error %s", job->number, exl2_result_name(r),
             ev->error ? ev->error : "NULL");
    API_MUST(!ev->error || strlen(ev->error) > 10, "DONE of job %u: the sentence is \"%s\"", job->number, ev->error);
    API_MUST(stop > EXL2_STOP_NONE && stop <= EXL2_STOP_LOOP, "DONE of job %u: stop %d", job->number, (int)stop);
    API_MUST((r < 0) == (stop == EXL2_STOP_ERROR || stop == EXL2_STOP_CANCELLED), "DONE of job %u: stop %d, %s",
             job->number, (int)stop, exl2_result_name(r));
    API_MUST((r == EXL2_ERR_CANCELLED) == (stop == EXL2_STOP_CANCELLED), "DONE of job %u: stop %d, %s", job->number,
             (int)stop, exl2_result_name(r));
    API_MUST(r != EXL2_ERR_INTERNAL, "DONE of job %u: INTERNAL: %s", job->number, ev->error);
    bool by_model = job->store.d.draft.model.id && !job->store.d.draft.ngram;
    api_shared->drafted += by_model ? ev->stats.drafted : 0;
    API_MUST(ev->stats.new_tokens == job->said_count, "DONE of job %u counts %u tokens, its events had %u", job->number,
             ev->stats.new_tokens, job->said_count);
    bool full = d->max_tokens && job->said_count >= d->max_tokens;
    API_MUST(stop != EXL2_STOP_LENGTH || d->prefill_only || !d->max_tokens || full, "job %u ends after %u tokens of %u",
             job->number, job->said_count, d->max_tokens);
    bool embeds = d->embed.pool != EXL2_EMBED_OFF;
    API_MUST(job->vectors <= 1 && (!embeds || stop != EXL2_STOP_LENGTH || job->vectors == 1),
             "job %u ends with %u vectors", job->number, job->vectors);
    API_MUST(stop != EXL2_STOP_STRING || d->stop_string_count, "job %u ends at a stop string, but has none",
             job->number);
    API_MUST(stop != EXL2_STOP_GRAMMAR || job->grammar_spec, "job %u ends by a grammar that it does not have",
             job->number);
    for (uint32_t i = 0; i < d->ban_string_count && !ev->stats.bans_shown; i++) {
        API_MUST(!api_find_fold(job->text, job->text_bytes, d->ban_strings[i]), "job %u shows the banned \"%s\"",
                 job->number, d->ban_strings[i]);
    }
    if (d->score_prompt && r == EXL2_OK && stop != EXL2_STOP_CALLBACK && !d->prompt.messages && !d->prompt.image_count
        && !d->heal_prompt) {
        uint32_t prompt = ev->stats.prompt_tokens;
        API_MUST(job->scored + 1 == prompt || job->scored == prompt || prompt == 0,
                 "job %u scores %u of %u prompt tokens", job->number, job->scored, prompt);
    }
}

/* Checks an event that a callback or exl2_next_event gave for the job. */
static void api_event(api_job *job, const exl2_event *ev)
{
    API_MUST(!job->done, "an event of kind %d for job %u after its DONE", (int)ev->kind, job->number);
    API_MUST(!job->over, "an event of kind %d for job %u, which cannot have any more", (int)ev->kind, job->number);
    if (!job->id) {
        job->id = ev->job.id;
        api_check_new(API_JOB, job->id);
    }
    API_MUST(ev->user == job, "an event of job %u has another user pointer", job->number);
    API_MUST(ev->job.id == job->id, "an event of job %u names another job", job->number);
    API_MUST(ev->model.id == job->model_id, "an event of job %u names another model", job->number);
    API_MUST(!job->session_id || ev->session.id == job->session_id, "an event of job %u names another session",
             job->number);
    API_MUST(ev->session.id != 0, "an event of job %u names no session", job->number);
    api_trace("(job %u: %s, %u tokens, %zu bytes, stop %d, %s)", job->number,
              ev->kind == EXL2_EVENT_TEXT ? "TEXT" : ev->kind == EXL2_EVENT_DONE ? "DONE" : "PREFILL", ev->token_count,
              ev->kind == EXL2_EVENT_TEXT ? ev->bytes : 0, (int)ev->stop, exl2_result_name(ev->result));
    switch (ev->kind) {
    case EXL2_EVENT_TEXT:
        api_event_text(job, ev);
        break;
    case EXL2_EVENT_PREFILL:
        api_event_prefill(job, ev);
        break;
    case EXL2_EVENT_EMBEDDING:
        api_event_embedding(job, ev);
        break;
    case EXL2_EVENT_DONE:
        api_event_done(job, ev);
        break;
    default:
        api_finding("job %u has an event of kind %d", job->number, (int)ev->kind);
    }
}

/* After DONE the job's handle must be stale, its sessions idle, and their histories as expected. */
static void api_after_done(api_job *job)
{
    exl2_job_info info;
    exl2_job handle = { 0 };
    handle.id = (api_id)job->id;
    exl2_result r = API_CALL(job_get, exl2_job_get(api.e, handle, &info));
    API_MUST(r == EXL2_ERR_STALE, "exl2_job_get after DONE gives %s", exl2_result_name(r));
    api_bury(API_JOB, job->id);
    if (job->session && job->session->busy == job) {
        api_settle(job->session);
        API_MUST(!job->session->busy, "the session of job %u is busy after its DONE", job->number);
    }
    if (job->negative && job->negative->busy == job) {
        api_settle(job->negative);
        API_MUST(!job->negative->busy, "the negative session of job %u is busy after its DONE", job->number);
    }
    if (job->model->id) {
        api_check_histories(job);
        api_check_text(job);
    }
}

#endif
