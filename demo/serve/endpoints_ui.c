/* endpoints_ui.c: what the page alone asks for: the stream of figures, the budget of a step, the store of chats.
   takes: requests of the page.
   gives: endpoint_watch, endpoint_budget, endpoint_sessions, endpoint_session, endpoint_watch_* of endpoints.h.
   owns:  the streams of /ui/watch. */
#include "../common/clock.h"
#include "../common/json_in.h"
#include "answer.h"
#include "endpoints.h"
#include "models.h"
#include "request_fields.h"
#include "ui_sessions.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WATCH_MS 250u
#define WATCH_JOBS_MAX 64u /* rows of a frame */

struct watcher {
    owner owner;
    http_exchange *x;
    watcher *next;
};

/* ---- figures ---- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void put_steps(buffer *out, engine_times *t)
{
    uint32_t n = t->step_count;
    qsort(t->step_us, n, sizeof t->step_us[0], by_number);
    buffer_object(out, "step_us");
    buffer_uint(out, "p50", n ? t->step_us[n / 2] : 0);
    buffer_uint(out, "p99", n ? t->step_us[(uint64_t)n * 99 / 100] : 0);
    buffer_uint(out, "max", n ? t->step_us[n - 1] : 0);
    buffer_end(out);
}

static void put_job(server *s, buffer *out, const choice *c)
{
    static const char *const phases[] = { "queue", "prefill", "decode", "paused" };
    exl2_job_info info = { 0 };
    bool known = engine_job(s->engine, &c->run, &info);
    double seconds = c->first_ns ? (double)(clock_ns() - c->first_ns) * 1e-9 : 0; /* since the first text */
    buffer_object(out, NULL);
    buffer_name(out, "id", c->call->id);
    buffer_name(out, "phase", known ? phases[info.state] : "queue");
    buffer_uint(out, "prompt_tokens", known ? info.stats.prompt_tokens : c->prompt_tokens);
    buffer_uint(out, "tokens", info.stats.new_tokens);
    buffer_number(out, "tokens_per_second", seconds > 0 ? info.stats.new_tokens / seconds : 0);
    buffer_uint(out, "age_ms", (clock_ns() - c->call->begin_ns) / 1000000);
    buffer_end(out);
}

static void measure_speed(watch_speed *v, uint64_t tokens)
{
    uint64_t now = clock_ns();
    double seconds = (double)(now - v->ns) * 1e-9;
    if (now - v->ns > WATCH_MS * 500000u) {
        bool known = v->ns && tokens >= v->tokens && seconds < 2; /* nobody has watched for long before */
        *v = (watch_speed){ tokens, now, known ? (double)(tokens - v->tokens) / seconds : 0 };
    }
}

static void put_frame(server *s, buffer *out)
{
    engine_times *t = &s->times;
    engine_watch(s->engine, t);
    measure_speed(&s->speed, t->stats.tokens_out);
    const model *m = models_first(s);
    uint32_t free_pages = t->stats.pages_total - t->stats.pages_used - t->stats.pages_cached;
    buffer_string(out, "data: ");
    buffer_object(out, NULL);
    buffer_object(out, "pages");
    buffer_uint(out, "total", t->stats.pages_total);
    buffer_uint(out, "used", t->stats.pages_used);
    buffer_uint(out, "shared", t->stats.pages_shared);
    buffer_uint(out, "cached", t->stats.pages_cached);
    buffer_uint(out, "free", free_pages <= t->stats.pages_total ? free_pages : 0);
    buffer_end(out);
    buffer_uint(out, "page_bytes", m ? m->load.info.cache_bytes_per_token * 64 : 0);
    buffer_array(out, "jobs");
    uint32_t rows = 0;
    for (const call *c = s->calls; c; c = c->next) {
        for (uint32_t i = 0; i < c->count && rows < WATCH_JOBS_MAX; i++) {
            if (!c->choices[i].ended) {
                put_job(s, out, &c->choices[i]);
                rows++;
            }
        }
    }
    buffer_end(out);
    buffer_number(out, "tokens_per_second", s->speed.per_second);
    put_steps(out, t);
    buffer_uint(out, "cpu_us", t->cpu_us);
    buffer_uint(out, "gpu_us", t->gpu_us);
    buffer_name(out, "model", m ? m->name : NULL);
    buffer_uint(out, "host_bytes", t->stats.host_bytes);
    buffer_uint(out, "device_bytes", t->stats.device_bytes);
    buffer_end(out);
    buffer_string(out, "\n\n");
}

void endpoint_watch(const endpoint_request *r)
{
    watcher *w = calloc(1, sizeof *w);
    if (!w) {
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for this stream.");
        return;
    }
    *w = (watcher){ { OWNER_WATCHER }, r->x, r->server->watchers };
    r->server->watchers = w;
    http_set_user(r->x, w);
    http_stream_begin(r->x, 200, "text/event-stream; charset=utf-8", "Cache-Control: no-cache\r\n", true);
    http_set_alarm(r->server->http, 1);
}

void endpoint_watch_alarm(server *s)
{
    buffer frame = { 0 };
    if (!s->watchers) {
        return;
    }
    put_frame(s, &frame);
    for (watcher *w = s->watchers; w && !frame.failed; w = w->next) {
        if (http_stream_pending(w->x) < HTTP_ROOM) { /* a slow reader misses frames */
            http_stream_write(w->x, frame.data, frame.bytes);
        }
    }
    buffer_free(&frame);
    http_set_alarm(s->http, WATCH_MS);
}

void endpoint_watch_gone(server *s, http_exchange *x)
{
    for (watcher **at = &s->watchers; *at; at = &(*at)->next) {
        if ((*at)->x == x) {
            watcher *w = *at;
            *at = w->next;
            free(w);
            return;
        }
    }
}

void endpoint_watch_end(server *s)
{
    while (s->watchers) {
        watcher *w = s->watchers;
        s->watchers = w->next;
        http_set_user(w->x, NULL);
        http_stream_end(w->x);
        free(w);
    }
}

void endpoint_budget(const endpoint_request *r)
{
    json_value *tree = endpoint_body(r);
    request_error error = { 0 };
    if (!tree) {
        return;
    }
    engine_watch(r->server->engine, &r->server->times);
    int64_t cpu = r->server->times.cpu_us, gpu = r->server->times.gpu_us;
    fields f = { tree, &error };
    fields_whole(&f, "cpu_us", 0, 1e7, &cpu);
    fields_whole(&f, "gpu_us", 0, 1e7, &gpu);
    if (error.set) {
        endpoint_bad(r->x, &error);
    } else {
        buffer out = { 0 };
        engine_budget(r->server->engine, (uint32_t)cpu, (uint32_t)gpu);
        buffer_object(&out, NULL);
        buffer_int(&out, "cpu_us", cpu);
        buffer_int(&out, "gpu_us", gpu);
        buffer_end(&out);
        endpoint_json(r, 200, &out);
    }
    json_free(tree);
}

/* ---- chats ---- */

static void answer_store(const endpoint_request *r, ui_sessions_result result, char *body, size_t bytes,
                         const char *why)
{
    static const struct { int status; const char *code; } rows[] = {
        [UI_SESSIONS_OK] = { 200, NULL },
        [UI_SESSIONS_BAD] = { 400, "invalid_value" },
        [UI_SESSIONS_MISSING] = { 404, "not_found" },
        [UI_SESSIONS_CONFLICT] = { 409, "conflict" },
        [UI_SESSIONS_FULL] = { 413, "too_large" },
        [UI_SESSIONS_FAILED] = { 500, "store_failed" },
    };
    if (result == UI_SESSIONS_OK) {
        http_answer(r->x, 200, "application/json", "Cache-Control: no-store\r\n", body, bytes);
    } else {
        endpoint_error(r, rows[result].status, rows[result].code, why);
    }
    free(body);
}

static const char *folder_of(const endpoint_request *r)
{
    const char *folder = r->server->options->sessions;
    if (!folder) {
        endpoint_error(r, 501, "not_supported", "The server was started without --sessions DIR, so it keeps no chats.");
    }
    return folder;
}

void endpoint_sessions(const endpoint_request *r)
{
    char why[UI_SESSIONS_WHY_BYTES] = "", *body = NULL;
    size_t bytes = 0;
    const char *folder = folder_of(r);
    if (folder) {
        ui_sessions_result result = ui_sessions_list(folder, &body, &bytes, why);
        answer_store(r, result, body, bytes, why);
    }
}

static void put_session(const endpoint_request *r, const char *folder)
{
    char why[UI_SESSIONS_WHY_BYTES] = "";
    uint64_t revision = 0;
    ui_sessions_result result = ui_sessions_put(folder, r->tail, http_field_of(r->http, "if-match"),
                                                r->http->body ? r->http->body : "", r->http->body_bytes,
                                                (int64_t)time(NULL), &revision, why);
    if (result != UI_SESSIONS_OK && result != UI_SESSIONS_CONFLICT) {
        answer_store(r, result, NULL, 0, why);
        return;
    }
    buffer out = { 0 };
    buffer_object(&out, NULL);
    if (result == UI_SESSIONS_CONFLICT) {
        answer_error_put(&out, "invalid_request_error", "conflict", why);
    }
    buffer_uint(&out, "revision", revision);
    buffer_end(&out);
    endpoint_json(r, result == UI_SESSIONS_OK ? 200 : 409, &out);
}

void endpoint_session(const endpoint_request *r)
{
    char why[UI_SESSIONS_WHY_BYTES] = "", *body = NULL;
    size_t bytes = 0;
    const char *folder = folder_of(r);
    if (!folder) {
        return;
    }
    if (strcmp(r->http->method, "PUT") == 0) {
        put_session(r, folder);
    } else if (strcmp(r->http->method, "DELETE") == 0) {
        ui_sessions_result result = ui_sessions_delete(folder, r->tail, why);
        if (result == UI_SESSIONS_OK) {
            http_answer(r->x, 204, NULL, NULL, NULL, 0);
        } else {
            answer_store(r, result, NULL, 0, why);
        }
    } else {
        ui_sessions_result result = ui_sessions_get(folder, r->tail, &body, &bytes, why);
        answer_store(r, result, body, bytes, why);
    }
}
