/* api_objects.h: operations on models, texts, sessions, grammars and jobs, with the expected results of each.
   takes: the shadow model, api.random of the operation.
   gives: api_op_model_open and the other api_op_*; api_refresh_models. */
#ifndef API_OBJECTS_H
#define API_OBJECTS_H

#include "api_images.h"
#include "api_loras.h"
#include "api_steers.h"

/* ---- models ---- */

/* Asks exl2_model_get about models that load or may have ended. */
static void api_refresh_models(void)
{
    for (uint32_t i = 0; i < API_MODELS && api.models[i].used; i++) {
        api_model *m = &api.models[i];
        exl2_model_info info;
        exl2_model handle = { 0 };
        if (!m->id || !m->loading || m->closing) {
            continue;
        }
        handle.id = (api_id)m->id;
        exl2_result r = API_CALL(model_get, exl2_model_get(api.e, handle, &info));
        API_MUST(r == EXL2_OK, "exl2_model_get of an open model gives %s", exl2_result_name(r));
        exl2_result state = API_CALL(model_state, exl2_model_state(api.e, handle));
        m->loading = state == EXL2_PENDING;
        m->parked = state == EXL2_IDLE;
        m->has_text = m->has_text || info.has_tokenizer;
        m->vocab = info.vocab ? info.vocab : m->vocab;
        if (!m->loading) {
            bool fit = m->folder <= API_MADE;
            bool has_words = m->folder == API_TEXT_FOLDER || m->folder == API_WORDS || api_sees(m->folder);
            fit = m->desc.text_only ? has_words : fit;
            bool fault = api.refused || api.failed_reads || api.device_faulted || api.desc.host_bytes_max;
            bool apart = api.cuda && m->desc.offload != EXL2_OFFLOAD_NONE && m->desc.lora_max;
            fault = fault || (apart && state == EXL2_ERR_UNSUPPORTED); /* adapters where the CPU computes MLPs */
            fault = fault || api_cards_refuse(&m->desc, state);
            m->ready = state >= 0 && !m->desc.text_only;
            api_trace("(model %s: %s)", m->desc.path, exl2_result_name(state));
            API_MUST(state != EXL2_ERR_INTERNAL, "loading %s: INTERNAL", m->desc.path);
            API_MUST(state == EXL2_OK || !fit || fault, "%s does not load: %s", m->desc.path,
                     exl2_result_name(state));
            API_MUST(state < 0 || fit, "%s loads, which is no model", m->desc.path);
            API_MUST(m->desc.on_event == NULL || m->ended, "%s is %s, and no LOAD event said so", m->desc.path,
                     exl2_result_name(state));
        }
    }
}

/* A record for a model with the desc, or with a random one. */
static api_model *api_new_model(const exl2_model_desc *given)
{
    for (uint32_t i = 0; i < API_MODELS; i++) {
        if (!api.models[i].used) {
            api_model *m = &api.models[i];
            memset(m, 0, sizeof *m);
            m->used = true;
            if (given) {
                m->desc = *given;
            } else {
                api_make_model(&m->desc, m->cards);
            }
            m->desc.user = m;
            for (uint32_t k = 0; k < API_FOLDERS; k++) {
                m->folder = api_folders[k] == m->desc.path ? k : m->folder;
            }
            return m;
        }
    }
    return NULL;
}

static void api_trace_cards(const exl2_model_desc *d)
{
    for (uint32_t i = 0; i < d->card_count; i++) {
        const char *how = d->split == EXL2_SPLIT_COLUMNS ? "columns" : "layers";
        api_trace("    by %s on GPU %u, share %g, at most %llu bytes", how, d->cards[i].device,
                  (double)d->cards[i].share, (unsigned long long)d->cards[i].bytes_max);
    }
}

static void api_op_model_open(void)
{
    exl2_model handle = { 0 };
    api_model *m = api_new_model(NULL);
    if (!m) {
        return;
    }
    exl2_model_desc d = m->desc;
    char path[32];
    snprintf(path, sizeof path, "%s", d.path);
    d.path = api_chance(60) ? NULL : path;
    d._end_canary = api_chance(60);
    d.cache.format = api_chance(60) ? (exl2_kv)(4 + api_draw(2)) : d.cache.format;
    d.host_mlps += api_chance(60);
    d.host_prompts = d.host_prompts || api_chance(60);
    bool bad = !d.path || d._end_canary || d.cache.format > EXL2_KV_Q4;
    bad = bad || ((d.host_mlps || d.host_prompts) && d.offload == EXL2_OFFLOAD_NONE);
    exl2_result r = API_CALL(model_open, exl2_model_open(api.e, &d, &handle));
    bool whole = d.split == EXL2_SPLIT_COLUMNS && d.offload != EXL2_OFFLOAD_NONE;
    memset(path, 'x', sizeof path);
    memset(&d, 0xEE, sizeof d);
    api_trace("exl2_model_open %s%s, context %u, batch %u, cache %u of format %u: %s", m->desc.path,
              m->desc.text_only ? " text_only" : "", m->desc.context_max, m->desc.batch_max,
              (unsigned)m->desc.cache.tokens, (unsigned)m->desc.cache.format, exl2_result_name(r));
    api_trace_cards(&m->desc);
    API_MUST(!bad || r == EXL2_ERR_ARG, "exl2_model_open of a bad desc gives %s", exl2_result_name(r));
    API_MUST(!whole || r < 0, "exl2_model_open with columns and offload gives %s", exl2_result_name(r));
    if (r == EXL2_OK) {
        API_MUST(!api_find_model(handle.id), "two models have one handle");
        api_check_new(API_MODEL, handle.id);
        m->id = handle.id;
        m->loading = true;
    }
}

/* After a model has been closed: its objects are stale, and every job of it has had its DONE, unless the job's events
   are polled or dropped. */
static void api_model_ended(api_model *m)
{
    for (uint32_t i = 0; i < api.job_count; i++) {
        const api_job *job = api.jobs[i];
        API_MUST(job->model != m || job->pull || job->dropped || job->done || job->over || !job->id,
                 "job %u never had its DONE, and its model is closed", job->number);
    }
    for (uint32_t i = 0; i < API_SESSIONS; i++) {
        if (api.sessions[i].id && api.sessions[i].model == m) {
            api_forget_session(&api.sessions[i]);
        }
    }
    for (uint32_t i = 0; i < API_GRAMMARS; i++) {
        if (api.grammars[i].id && api.grammars[i].model == m) {
            api_bury(API_GRAMMAR, api.grammars[i].id);
            api.grammars[i].id = 0;
        }
    }
    api_forget_loras(m);
    api_forget_steers(m);
    api_forget_images(m);
    api_bury(API_MODEL, m->id);
    m->id = 0;
    m->loading = m->ready = false;
}

/* Loads a model with the desc, or with a random one. NULL: that failed. */
static api_model *api_load_model(const exl2_model_desc *given)
{
    exl2_model handle = { 0 };
    api_model *m = api_new_model(given);
    if (!m) {
        return NULL;
    }
    m->loading = true;
    api_begin(API_model_load);
    exl2_result r = api_end(exl2_model_load(api.e, &m->desc, &handle));
    api_trace("exl2_model_load %s%s, context %u, batch %u, cache %u of format %u: %s", m->desc.path,
              m->desc.text_only ? " text_only" : "", m->desc.context_max, m->desc.batch_max,
              (unsigned)m->desc.cache.tokens, (unsigned)m->desc.cache.format, exl2_result_name(r));
    api_trace_cards(&m->desc);
    API_MUST((r == EXL2_OK) == (handle.id != 0), "exl2_model_load gives %s, and the handle %llu", exl2_result_name(r),
             (unsigned long long)handle.id);
    if (r < 0) {
        m->closing = m->id != 0; /* known from a LOAD event; its callback may have made a grammar */
        if (m->id) {
            api_model_ended(m);
        }
        m->loading = false;
        return NULL;
    }
    API_MUST(!m->id || m->id == handle.id, "the LOAD events name another model than exl2_model_load gives");
    API_MUST(api.depth == 0, "exl2_model_load runs inside a callback");
    m->id = handle.id;
    api_check_new(API_MODEL, m->id);
    return m;
}

static void api_op_model_load(void)
{
    api_load_model(NULL);
}

static void api_close_model(api_model *m)
{
    exl2_model handle = { 0 };
    handle.id = (api_id)m->id;
    m->closing = m->closing || api.depth == 0;
    exl2_result r = API_CALL(model_close, exl2_model_close(api.e, handle));
    api_trace("exl2_model_close %s: %s", m->desc.path, exl2_result_name(r));
    API_MUST(r == (api.depth ? EXL2_ERR_STATE : EXL2_OK), "exl2_model_close gives %s", exl2_result_name(r));
    if (r == EXL2_OK) {
        api_model_ended(m);
    }
}

static void api_op_model_close(void)
{
    api_model *m = api_pick_model(false);
    if (m) {
        api_close_model(m);
    }
}

/* Parks a model that is ready, or lets one that is parked load again. */
static void api_park_model(api_model *m)
{
    exl2_model handle = { 0 };
    handle.id = (api_id)m->id;
    /* In a callback, loading may have ended since api_refresh_models. */
    bool loading = m->loading && API_CALL(model_state, exl2_model_state(api.e, handle)) == EXL2_PENDING;
    bool parks = !m->parked && !loading;
    uint64_t id = m->id;
    exl2_result r = API_CALL(model_park, exl2_model_park(api.e, handle, parks));
    api_trace("exl2_model_park %s, %s: %s", m->desc.path, parks ? "true" : "false", exl2_result_name(r));
    bool inside = parks && api.depth;
    API_MUST(r == (inside || loading ? EXL2_ERR_STATE : EXL2_OK) || m->id != id, "exl2_model_park gives %s",
             exl2_result_name(r));
    if (r == EXL2_OK && m->id == id) {
        m->loading = m->parked;
        m->ended = m->ended && !m->parked;
        m->progress = m->parked ? 0 : m->progress;
        m->parked = parks;
        exl2_result state = API_CALL(model_state, exl2_model_state(api.e, handle));
        API_MUST(state == (parks ? EXL2_IDLE : EXL2_PENDING), "exl2_model_state after exl2_model_park: %s",
                 exl2_result_name(state));
    }
}

static void api_op_model_park(void)
{
    api_model *m = api_pick_model(true);
    if (m) {
        api_park_model(m);
    }
}

static void api_op_model_look(void)
{
    exl2_model_info info;
    exl2_model handle = { 0 };
    exl2_sampler_desc settings = { .preset = (exl2_preset)api_draw(4) }, resolved;
    exl2_model_desc d = { 0 };
    exl2_card cards[API_CARDS] = { { 0 } };
    api_model *m = api_pick_model(false);
    handle.id = m ? (api_id)m->id : 0;
    if (api_chance(2)) {
        exl2_result r = API_CALL(model_get, exl2_model_get(api.e, handle, &info));
        API_MUST(r == (m ? EXL2_OK : EXL2_ERR_STALE), "exl2_model_get gives %s", exl2_result_name(r));
        r = API_CALL(model_state, exl2_model_state(api.e, handle));
        API_MUST(m || r == EXL2_ERR_STALE, "exl2_model_state gives %s", exl2_result_name(r));
    }
    if (api_chance(3)) {
        settings.temperature = api_chance(5) ? NAN : 0.5f;
        API_CALL(sampler_resolve, exl2_sampler_resolve(api.e, handle, &settings, &resolved));
    }
    if (api_chance(3)) {
        api_make_model(&d, cards);
        d.on_event = NULL;
        exl2_result r = API_CALL(model_measure, exl2_model_measure(api.e, &d, &info));
        api_trace("exl2_model_measure %s: %s", d.path, exl2_result_name(r));
        API_MUST(!api.depth || r == EXL2_ERR_STATE, "exl2_model_measure inside a callback: %s", exl2_result_name(r));
    }
}

/* ---- text ---- */

static void api_op_text(void)
{
    static char text[2048], out[4096];
    static exl2_token ids[4096];
    exl2_model handle = { 0 };
    bool irregular = false;
    size_t need = 77, again = 0;
    api_model *m = api_pick_model(false);
    handle.id = m ? (api_id)m->id : 0;
    api_make_text(text, sizeof text, api_draw(12), &irregular);
    uint32_t flags = api_draw(4);
    size_t bytes = strlen(text), cap = api_chance(3) ? api_draw(30) : EXL2__COUNT(ids);
    api_begin_more(API_tokenize, irregular);
    exl2_result r = api_end(exl2_tokenize(api.e, handle, text, bytes, flags, ids, cap, &need));
    api_trace("exl2_tokenize: %s", exl2_result_name(r));
    API_MUST(!m || !m->has_text || m->closing || r == EXL2_OK || r == EXL2_ERR_TOO_SMALL || r == EXL2_ERR_MEMORY,
             "exl2_tokenize gives %s", exl2_result_name(r));
    API_MUST(r != EXL2_OK || need <= cap, "exl2_tokenize is OK with %zu of %zu", need, cap);
    API_MUST(r != EXL2_ERR_TOO_SMALL || need > cap, "exl2_tokenize is TOO_SMALL with %zu of %zu", need, cap);
    if (r == EXL2_OK) {
        cap = api_chance(3) ? api_draw(20) : sizeof out;
        flags |= api_draw(16);
        bool as_bytes = (flags & EXL2_TEXT_BYTES) != 0;
        r = API_CALL(detokenize, exl2_detokenize(api.e, handle, ids, need, flags, out, cap, &again));
        API_MUST(r != EXL2_OK || (again < cap && out[again] == 0), "exl2_detokenize is OK with %zu of %zu", again, cap);
        API_MUST(!cap || as_bytes || exl2__unicode_valid(out, strlen(out)), "exl2_detokenize gives what is not UTF-8");
    }
    if (api_chance(3)) {
        static const char *const paths[] = { "", "/a", "/0", "/a/b", "x", "/~2" };
        bool whole;
        cap = api_draw(20);
        r = API_CALL(json_text, exl2_json_text(text, bytes, paths[api_draw(6)], out, cap, &need, &whole));
        API_MUST(r != EXL2_OK || need < cap, "exl2_json_text is OK with %zu of %zu", need, cap);
    }
    if (api_chance(3)) {
        size_t part = exl2_sentence(text, api_draw((uint32_t)bytes + 1), false), all = exl2_sentence(text, bytes, true);
        API_MUST(part == 0 || part == all, "exl2_sentence gives %zu, then %zu", part, all);
        API_MUST(all <= bytes && (all > 0 || bytes == 0), "exl2_sentence gives %zu of %zu", all, bytes);
    }
    if (api_chance(3)) {
        static exl2_message messages[3];
        static char words[4][96];
        exl2_chat_desc chat = { .now = "2026-01-02 03:04:05" };
        uint32_t count = api_draw(4);
        memset(messages, 0, sizeof messages);
        api_make_messages(messages, count < 3 ? count : 3, words, &irregular);
        chat.template_text = api_chance(10) ? "{{ messages | length }}{% for m in messages %}{{ m.role }}{% endfor %}"
                           : NULL;
        cap = api_chance(3) ? api_draw(40) : sizeof out;
        api_begin_more(API_chat_render, true);
        r = api_end(exl2_chat_render(api.e, handle, messages, count < 3 ? count : 3, api_chance(3) ? NULL : &chat, out,
                                     cap, &need));
        api_trace("exl2_chat_render: %s", exl2_result_name(r));
        API_MUST(r != EXL2_OK || (need < cap && out[need] == 0), "exl2_chat_render is OK with %zu of %zu", need, cap);
        const exl2_prompt prompt = { .text = api_chance(2) ? text : NULL, .messages = messages,
                                     .message_count = count < 3 ? count : 3, .flags = api_draw(4) };
        cap = api_chance(3) ? api_draw(40) : EXL2__COUNT(ids);
        chat.begun_reply = api_chance(4);
        api_begin_more(API_chat_tokenize, true);
        r = api_end(exl2_chat_tokenize(api.e, handle, &prompt, &chat, ids, cap, &need));
        api_trace("exl2_chat_tokenize: %s", exl2_result_name(r));
        API_MUST(r != EXL2_OK || need <= cap, "exl2_chat_tokenize is OK with %zu of %zu", need, cap);
    }
}

/* ---- sessions ---- */

static void api_op_session_open(void)
{
    api_model *m = api_pick_model(!api_chance(8));
    exl2_session out = { 0 };
    exl2_model handle = { 0 };
    handle.id = m ? (api_id)m->id : 0;
    exl2_result r = API_CALL(session_open, exl2_session_open(api.e, handle, &out));
    api_trace("exl2_session_open: %s", exl2_result_name(r));
    API_MUST(m || r == EXL2_ERR_STALE, "exl2_session_open without a model gives %s", exl2_result_name(r));
    API_MUST(r != EXL2_OK || m->ready || api.depth, "exl2_session_open on a model that is not ready");
    API_MUST(!m || !m->ready || m->closing || r == EXL2_OK || r == EXL2_ERR_BUDGET, "exl2_session_open gives %s",
             exl2_result_name(r));
    if (r == EXL2_OK) {
        api_new_session(out.id, m);
    }
}

static void api_op_session_fork(void)
{
    static exl2_token from[API_HISTORY];
    api_session *s = api_pick_session(NULL, false);
    exl2_session out = { 0 }, handle = { 0 };
    if (!s) {
        return;
    }
    handle.id = (api_id)s->id;
    exl2_result r = API_CALL(session_fork, exl2_session_fork(api.e, handle, &out));
    api_trace("exl2_session_fork%s: %s", s->busy ? " of a busy one" : "", exl2_result_name(r));
    API_MUST(r == EXL2_OK || r == EXL2_ERR_BUDGET || (s->model->closing && r == EXL2_ERR_STATE),
             "exl2_session_fork of a live session gives %s", exl2_result_name(r));
    if (r == EXL2_OK) {
        api_session *fork = api_new_session(out.id, s->model);
        fork->count = api_read_history(fork->id, fork->history);
        uint32_t count = api_read_history(s->id, from);
        API_MUST(api_same(fork->history, fork->count, from, count), "a fork has %u tokens, its origin %u", fork->count,
                 count);
        exl2_picture pictures[API_PICTURES];
        fork->picture_count = api_read_pictures(fork->id, fork->pictures);
        count = s->busy ? fork->picture_count : api_read_pictures(s->id, pictures);
        API_MUST(s->busy || api_same_pictures(fork, pictures, count), "a fork has %u pictures, its origin %u",
                 fork->picture_count, count);
        count = api_read_history(s->id, from);
        const api_job *job = s->busy;
        if (job && !job->pull && !job->dropped && job->said_count) {
            API_MUST(count >= job->said_count && api_same(from + count - job->said_count, job->said_count, job->said,
                                                          job->said_count),
                     "a fork of a busy session does not end with what job %u has said", job->number);
        }
    }
}

static void api_op_session_rewind(void)
{
    api_session *s = api_pick_session(NULL, !api_chance(6));
    exl2_session handle = { 0 };
    if (!s) {
        return;
    }
    api_settle(s);
    handle.id = (api_id)s->id;
    uint32_t to = api_chance(8) ? s->count + 1 : api_draw(s->count + 1);
    exl2_result r = API_CALL(session_rewind, exl2_session_rewind(api.e, handle, to));
    bool bad = to > s->count || api_cuts(s, to);
    exl2_result wanted = s->busy ? EXL2_ERR_STATE : bad ? EXL2_ERR_ARG : EXL2_OK;
    api_trace("exl2_session_rewind %u to %u: %s", s->count, to, exl2_result_name(r));
    API_MUST(r == wanted, "exl2_session_rewind of %u tokens to %u gives %s", s->count, to, exl2_result_name(r));
    s->count = r == EXL2_OK ? to : s->count;
    s->picture_count = r == EXL2_OK ? api_read_pictures(s->id, s->pictures) : s->picture_count;
}

static void api_op_session_trim(void)
{
    api_session *s = api_pick_session(NULL, !api_chance(6));
    exl2_session handle = { 0 };
    if (!s) {
        return;
    }
    api_settle(s);
    handle.id = (api_id)s->id;
    uint32_t from = api_draw(s->count + 1), count = api_chance(8) ? s->count - from + 1 : api_draw(s->count - from + 1);
    exl2_result r = API_CALL(session_trim, exl2_session_trim(api.e, handle, from, count));
    bool bad = count > s->count - from || api_cuts(s, from) || api_cuts(s, from + count);
    exl2_result wanted = s->busy ? EXL2_ERR_STATE : bad ? EXL2_ERR_ARG : EXL2_OK;
    api_trace("exl2_session_trim %u: %u from %u on: %s", s->count, count, from, exl2_result_name(r));
    API_MUST(r == wanted, "exl2_session_trim of %u tokens, %u from %u on, gives %s", s->count, count, from,
             exl2_result_name(r));
    if (r == EXL2_OK) {
        memmove(s->history + from, s->history + from + count, (s->count - from - count) * sizeof *s->history);
        s->count -= count;
        s->picture_count = api_read_pictures(s->id, s->pictures);
    }
}

/* What a restore of the session `id` gives. It may deliver events first, whose callbacks close the session or start a
   job there. */
static exl2_result api_restore_wanted(const api_session *to, uint64_t id, exl2_result otherwise)
{
    return to->id != id ? EXL2_ERR_STALE : to->busy ? EXL2_ERR_STATE : otherwise;
}

/* After a restore. A callback may have started a job in the session, which another thread cancelled, so that it ended
   before the history was replaced; its DONE waits in the queue. The history that it left is known if it is still
   there. */
static void api_settle_restored(api_session *to, uint64_t id, bool replaced)
{
    exl2_job_info info;
    api_job *job = to->id == id ? to->busy : NULL;
    if (job && job->pull && exl2_job_get(api.e, (exl2_job){ job->id }, &info) == EXL2_ERR_STALE) {
        if (replaced) {
            to->busy = NULL;
        } else {
            api_settle(to);
        }
    }
}

/* Saves a session and restores it, whole or damaged, in another one. */
static void api_op_session_save(void)
{
    static uint8_t snapshot[1u << 20];
    static exl2_token ids[API_HISTORY];
    api_session *s = api_pick_session(NULL, false), *to = s ? api_pick_session(s->model, !api_chance(6)) : NULL;
    api_session *other = api_chance(2) ? api_pick_session(NULL, true) : NULL; /* of the same model, loaded otherwise */
    exl2_session handle = { 0 };
    size_t need = 0;
    if (!to) {
        return;
    }
    to = other && other->model->folder == s->model->folder ? other : to;
    api_settle(s);
    api_settle(to);
    handle.id = (api_id)s->id;
    uint32_t flags = api_chance(3) ? EXL2_SAVE_KV : 0, count = api_read_history(s->id, ids);
    uint32_t with_images = api_chance(2) ? EXL2_SAVE_IMAGES : 0;
    exl2_picture pictures[API_PICTURES];
    uint32_t picture_count = api_read_pictures(s->id, pictures);
    exl2_result r = API_CALL(session_save, exl2_session_save(api.e, handle, flags | with_images, snapshot,
                                                              sizeof snapshot, &need));
    api_trace("exl2_session_save of %u tokens: %zu bytes, %s", count, need, exl2_result_name(r));
    if (r != EXL2_OK) {
        return; /* a job with guidance, a lost device, many pages */
    }
    size_t cut = api_chance(4) ? api_draw((uint32_t)need) : need;
    if (api_chance(4)) {
        snapshot[api_draw((uint32_t)need)] ^= (uint8_t)(1u << api_draw(8));
        cut = cut == need ? need : 0;
        handle.id = (api_id)to->id;
        r = API_CALL(session_restore, exl2_session_restore(api.e, handle, snapshot, cut));
        api_settle_restored(to, handle.id, false);
        API_MUST(r == api_restore_wanted(to, handle.id, EXL2_ERR_FORMAT), "a damaged snapshot gives %s",
                 exl2_result_name(r));
        return;
    }
    handle.id = (api_id)to->id;
    r = API_CALL(session_restore, exl2_session_restore(api.e, handle, snapshot, cut));
    bool kept = r == EXL2_ERR_FORMAT || r == EXL2_ERR_CONTEXT_FULL || (r < 0 && !flags);
    api_settle_restored(to, handle.id, !kept);
    exl2_result wanted = api_restore_wanted(to, handle.id, cut < need ? EXL2_ERR_FORMAT : EXL2_OK);
    api_trace("exl2_session_restore: %s", exl2_result_name(r));
    bool longer = r == EXL2_ERR_CONTEXT_FULL && to->id == handle.id && to->model != s->model;
    bool blind = picture_count && to->id == handle.id && wanted == EXL2_OK
              && (r == EXL2_ERR_BUDGET || (r == EXL2_ERR_STATE && !to->model->desc.vision.images));
    if (blind) {
        return;
    }
    API_MUST(r == wanted || (flags && r < 0 && wanted == EXL2_OK) || longer, "exl2_session_restore gives %s",
             exl2_result_name(r));
    if (longer) {
        return;
    }
    if (r == EXL2_OK || (flags && wanted == EXL2_OK)) {
        to->count = count;
        memcpy(to->history, ids, count * sizeof *ids);
        to->picture_count = picture_count;
        memcpy(to->pictures, pictures, sizeof pictures);
    }
}

static void api_op_session_look(void)
{
    static exl2_token ids[API_HISTORY];
    api_session *s = api_pick_session(NULL, false);
    exl2_session handle = { 0 };
    exl2_session_info info;
    size_t need = 0, cap = api_draw(40);
    if (!s) {
        return;
    }
    api_check_idle(s);
    handle.id = (api_id)s->id;
    exl2_result r = API_CALL(session_get, exl2_session_get(api.e, handle, &info));
    API_MUST(r == EXL2_OK && info.model.id == s->model->id, "exl2_session_get gives %s", exl2_result_name(r));
    API_MUST(info.tokens_cached <= info.tokens && info.tokens <= info.context_max, "a session with %u of %u tokens, %u "
             "cached", info.tokens, info.context_max, info.tokens_cached);
    /* Pages may hold more than a job goes on from: full layers of models whose windows are gone. */
    uint32_t least = (info.tokens_cached + 63) / 64, most = (info.tokens + 63) / 64;
    API_MUST(info.pages_shared <= info.pages && (info.busy_with.id || (info.pages >= least && info.pages <= most)),
             "a session of %u tokens, %u cached, with %u pages, %u shared", info.tokens, info.tokens_cached, info.pages,
             info.pages_shared);
    r = API_CALL(session_tokens, exl2_session_tokens(api.e, handle, ids, cap, &need));
    API_MUST(need == info.tokens && r == (need <= cap ? EXL2_OK : EXL2_ERR_TOO_SMALL),
             "exl2_session_tokens of %zu tokens into %zu gives %s", need, cap, exl2_result_name(r));
}

static void api_op_session_close(void)
{
    api_session *s = api_pick_session(NULL, api_chance(2));
    exl2_session handle = { 0 };
    if (!s) {
        return;
    }
    handle.id = (api_id)s->id;
    bool busy = s->busy != NULL;
    exl2_result r = API_CALL(session_close, exl2_session_close(api.e, handle));
    api_trace("exl2_session_close%s: %s", busy ? " of a busy one" : "", exl2_result_name(r));
    API_MUST(r == EXL2_OK, "exl2_session_close of a live session gives %s", exl2_result_name(r));
    api_forget_session(s);
    r = API_CALL(session_close, exl2_session_close(api.e, handle));
    API_MUST(r == EXL2_ERR_STALE, "exl2_session_close twice gives %s", exl2_result_name(r));
}

/* ---- grammars ---- */

static void api_op_grammar_make(void)
{
    api_model *m = api_pick_model(!api_chance(8));
    exl2_grammar out = { 0 };
    uint32_t at = api_draw(api_chance(4) ? EXL2__COUNT(api_grammar_specs) : API_GRAMMARS_GOOD);
    const api_grammar_spec *spec = &api_grammar_specs[at];
    exl2_grammar_desc d = { .kind = spec->kind, .source = spec->source, .cache_bytes = api_chance(2) ? 70000 : 0 };
    d.model.id = m ? (api_id)m->id : 0;
    d.allow = spec->kind == EXL2_GRAMMAR_CUSTOM && !api_chance(20) ? api_allow : NULL;
    d.user = (void *)(uintptr_t)spec;
    exl2_result r = API_CALL(grammar_make, exl2_grammar_make(api.e, &d, &out));
    api_trace("exl2_grammar_make %u: %s", at, exl2_result_name(r));
    API_MUST(r != EXL2_OK || (m && at < API_GRAMMARS_GOOD), "exl2_grammar_make of a bad grammar");
    if (r != EXL2_OK) {
        return;
    }
    api_check_new(API_GRAMMAR, out.id);
    for (uint32_t i = 0; i < API_GRAMMARS; i++) {
        API_MUST(api.grammars[i].id != out.id, "two grammars have one handle");
    }
    for (uint32_t i = 0; i < API_GRAMMARS; i++) {
        if (api.grammars[i].id == 0) {
            api.grammars[i] = (api_grammar){ out.id, m, at };
            return;
        }
    }
    api_finding("more grammars live than max_sessions allows");
}

static void api_op_grammar_close(void)
{
    api_grammar *g = api_pick_grammar(NULL);
    exl2_grammar handle = { 0 };
    if (!g) {
        return;
    }
    handle.id = (api_id)g->id;
    exl2_result r = API_CALL(grammar_close, exl2_grammar_close(api.e, handle));
    api_trace("exl2_grammar_close: %s", exl2_result_name(r));
    API_MUST(r == EXL2_OK, "exl2_grammar_close of a live grammar gives %s", exl2_result_name(r));
    api_bury(API_GRAMMAR, g->id);
    g->id = 0;
}

/* ---- jobs ---- */

static void api_op_job(void)
{
    api_job *job = api_pick_job(&api.random);
    exl2_job handle = { 0 };
    exl2_job_info info;
    if (!job) {
        return;
    }
    handle.id = (api_id)job->id;
    uint32_t what = api_draw(7);
    exl2_result r = what == 0 ? API_CALL(job_cancel, exl2_job_cancel(api.e, handle))
                  : what < 4  ? API_CALL(job_pause, exl2_job_pause(api.e, handle, what == 1))
                  : what == 6 ? API_CALL(job_priority, exl2_job_priority(api.e, handle, (int32_t)api_draw(5) - 2))
                              : API_CALL(job_get, exl2_job_get(api.e, handle, &info));
    api_trace("%s job %u: %s", what == 0 ? "exl2_job_cancel" : what == 1 ? "exl2_job_pause" : what < 4
              ? "exl2_job_pause (false)" : what == 6 ? "exl2_job_priority" : "exl2_job_get", job->number,
              exl2_result_name(r));
    API_MUST(r == EXL2_OK || (job->pull && r == EXL2_ERR_STALE), "a call for live job %u gives %s", job->number,
             exl2_result_name(r));
    if ((what == 4 || what == 5) && r == EXL2_OK) {
        API_MUST(!job->session_id || info.session.id == job->session_id, "exl2_job_get of job %u: another session",
                 job->number);
        API_MUST(info.state <= EXL2_JOB_PAUSED, "exl2_job_get of job %u: state %d", job->number, (int)info.state);
        API_MUST(info.stats.new_tokens >= job->said_count || api.depth, "exl2_job_get of job %u: %u tokens, heard %u",
                 job->number, info.stats.new_tokens, job->said_count);
    }
}

#endif
