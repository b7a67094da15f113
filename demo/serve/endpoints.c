/* endpoints.c: see endpoints.h. The table of routes.
   takes: exchanges.
   gives: endpoints_*, and the small answers that handlers share. */
#include "endpoints.h"

#include "../common/json_in.h"
#include "adapters.h"
#include "embeddings.h"
#include "inline_load.h"
#include "models.h"
#include "page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICTURES_BODY_MAX ((uint64_t)16 << 20)

typedef enum route_flag {
    GET = 1, POST = 2, PUT = 4, DELETE_ = 8,
    PICTURES = 16, /* a body may have some, where a model reads pictures */
    CHATS = 32     /* and so may a chat, where chats are stored */
} route_flag;

typedef struct route {
    unsigned flags; /* route_flag */
    const char *path; /* without /v1; one that ends in '/' has a tail */
    keys_level level;
    endpoint_fn run;
} route;

static void generate(const endpoint_request *r, request_kind kind);

static void completions(const endpoint_request *r)
{
    generate(r, REQUEST_COMPLETION);
}

static void chat_completions(const endpoint_request *r)
{
    generate(r, REQUEST_CHAT);
}

static void responses_request(const endpoint_request *r)
{
    generate(r, REQUEST_RESPONSES);
}

static const route routes[] = {
    { GET, "/health", KEYS_NONE, endpoint_health },
    { POST, "/completions", KEYS_API, completions },
    { POST | PICTURES, "/chat/completions", KEYS_API, chat_completions },
    { POST | PICTURES, "/responses", KEYS_API, responses_request },
    { POST | PICTURES, "/token/encode", KEYS_API, endpoint_encode },
    { POST, "/token/decode", KEYS_API, endpoint_decode },
    { POST | PICTURES, "/internal/encode", KEYS_API, endpoint_encode },
    { POST, "/internal/decode", KEYS_API, endpoint_decode },
    { POST | PICTURES, "/internal/token-count", KEYS_API, endpoint_count },
    { GET, "/internal/model/info", KEYS_API, endpoint_internal_model },
    { GET, "/models", KEYS_API, endpoint_models },
    { GET, "/models/", KEYS_API, endpoint_model_of },
    { GET, "/model/list", KEYS_API, endpoint_models },
    { GET, "/model/draft/list", KEYS_API, endpoint_drafts },
    { GET, "/model", KEYS_API, endpoint_model },
    { GET, "/props", KEYS_API, endpoint_props },
    { GET, "/auth/permission", KEYS_API, endpoint_permission },
    { GET, "/template", KEYS_API, endpoint_templates },
    { GET, "/templates", KEYS_API, endpoint_templates },
    { GET, "/template/list", KEYS_API, endpoint_templates },
    { GET, "/templates/list", KEYS_API, endpoint_templates },
    { GET, "/sampling/override", KEYS_API, endpoint_overrides },
    { GET, "/sampling/overrides", KEYS_API, endpoint_overrides },
    { GET, "/sampling/override/list", KEYS_API, endpoint_overrides },
    { GET, "/sampling/overrides/list", KEYS_API, endpoint_overrides },
    { GET, "/lora", KEYS_API, endpoint_lora },
    { GET, "/loras", KEYS_API, endpoint_loras },
    { GET, "/lora/list", KEYS_API, endpoint_loras },
    { GET, "/loras/list", KEYS_API, endpoint_loras },
    { GET, "/metrics", KEYS_API, endpoint_metrics },
    { GET, "/ui/watch", KEYS_API, endpoint_watch },
    { POST, "/ui/budget", KEYS_ADMIN, endpoint_budget },
    { GET, "/ui/sessions", KEYS_API, endpoint_sessions },
    { GET | PUT | DELETE_ | CHATS, "/ui/sessions/", KEYS_API, endpoint_session },
    { POST, "/model/load", KEYS_ADMIN, endpoint_load },
    { POST, "/model/unload", KEYS_ADMIN, endpoint_unload },
    { POST, "/template/switch", KEYS_ADMIN, endpoint_template_switch },
    { POST, "/template/unload", KEYS_ADMIN, endpoint_template_unload },
    { POST, "/sampling/override/switch", KEYS_ADMIN, endpoint_override_switch },
    { POST, "/sampling/override/unload", KEYS_ADMIN, endpoint_override_unload },
    { POST, "/embeddings", KEYS_API, endpoint_embeddings },
    { POST, "/lora/load", KEYS_ADMIN, endpoint_lora_load },
    { POST, "/lora/unload", KEYS_ADMIN, endpoint_lora_unload },
    { POST, "/download", KEYS_ADMIN, endpoint_unsupported },
    { GET | POST, "/api/", KEYS_API, endpoint_unsupported }, /* of Kobold */
};

/* ---- small answers ---- */

void endpoint_json(const endpoint_request *r, int status, buffer *body)
{
    if (body->failed) {
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for the answer.");
    } else {
        http_answer(r->x, status, "application/json", NULL, body->data ? body->data : "", body->bytes);
    }
    buffer_free(body);
}

void endpoint_fail(http_exchange *x, int status, const char *code, const char *message)
{
    const char *type = status >= 500 ? "server_error" : status == 401 ? "authentication_error"
                     : status == 403 ? "permission_error" : status == 429 ? "rate_limit_error"
                     : "invalid_request_error";
    const char *headers = status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL;
    http_answer_error(x, status, headers, type, NULL, code, message);
}

void endpoint_error(const endpoint_request *r, int status, const char *code, const char *message)
{
    endpoint_fail(r->x, status, code, message);
}

void endpoint_bad(http_exchange *x, const request_error *e)
{
    http_answer_error(x, 400, NULL, "invalid_request_error", e->param[0] ? e->param : NULL, e->code, e->message);
}

void endpoint_ok(const endpoint_request *r)
{
    http_answer(r->x, 200, "application/json", NULL, "null", 4);
}

void endpoint_unsupported(const endpoint_request *r)
{
    char message[256];
    snprintf(message, sizeof message, "This server does not have %.100s.", r->http->path);
    endpoint_error(r, 501, "not_supported", message);
}

json_value *endpoint_body(const endpoint_request *r)
{
    request_error error = { 0 };
    json_value *tree = fields_read(r->http->body ? r->http->body : "", r->http->body_bytes, &error);
    if (!tree) {
        endpoint_bad(r->x, &error);
    }
    return tree;
}

/* ---- routes ---- */

static unsigned method_of(const http_request *r)
{
    static const struct { const char *name; unsigned method; } rows[] = {
        { "GET", GET }, { "HEAD", GET }, { "POST", POST }, { "PUT", PUT }, { "DELETE", DELETE_ }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(r->method, rows[i].name) == 0) {
            return rows[i].method;
        }
    }
    return 0;
}

static const route *find_route(const char *path, const char **tail)
{
    path += strncmp(path, "/v1/", 4) == 0 ? 3 : 0;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        size_t bytes = strlen(routes[i].path);
        bool has_tail = routes[i].path[bytes - 1] == '/';
        if (has_tail ? strncmp(path, routes[i].path, bytes) == 0 : strcmp(path, routes[i].path) == 0) {
            *tail = has_tail ? path + bytes : "";
            return &routes[i];
        }
    }
    return NULL;
}

const char *endpoints_path(const char *path)
{
    const char *tail;
    const route *found = find_route(path, &tail);
    return found ? found->path : "other";
}

static void refuse_method(http_exchange *x, const route *found)
{
    char allow[128] = "Allow:";
    size_t bytes = 6;
    static const struct { unsigned method; const char *names; } rows[] = { { GET, "GET, HEAD" }, { POST, "POST" },
                                                                           { PUT, "PUT" }, { DELETE_, "DELETE" } };
    for (size_t i = 0; i < 4; i++) {
        if (found->flags & rows[i].method) {
            bytes +=
                (size_t)snprintf(allow + bytes, sizeof allow - bytes, "%s %s", bytes > 6 ? "," : "", rows[i].names);
        }
    }
    snprintf(allow + bytes, sizeof allow - bytes, ", OPTIONS\r\n");
    http_answer_error(x, 405, allow, "invalid_request_error", NULL, "method_not_allowed",
                      "This path does not have that method.");
}

static keys_level level_of(server *s, const http_request *r)
{
    return keys_right(&s->keys, http_field_of(r, "x-admin-key"), http_field_of(r, "x-api-key"),
                      http_field_of(r, "authorization"));
}

static bool answer_page(http_exchange *x, const http_request *r)
{
    static const char headers[] = "Content-Security-Policy: " PAGE_POLICY "\r\nReferrer-Policy: no-referrer\r\n"
                                  "Cache-Control: no-cache\r\n";
    static const route page = { .flags = GET };
    page_file file;
    if (!page_find(r->path, &file)) {
        return false;
    }
    if (method_of(r) != GET) {
        refuse_method(x, &page);
        return true;
    }
    http_answer(x, 200, file.type, headers, file.data, file.bytes);
    return true;
}

/* A body with pictures may be longer, where it has any use: a screenshot of 3840 x 2160 has some 10 MB as base64. */
static bool may_have_pictures(const server *s, const route *found)
{
    if (found->flags & CHATS) {
        return s->options->sessions != NULL;
    }
    bool may = s->options->inline_load; /* the model is perhaps not yet loaded */
    for (const model *m = s->models; m && !may; m = m->next) {
        may = m->load.info.tower_bytes > 0;
    }
    return may && (found->flags & PICTURES);
}

void endpoints_head(server *s, http_exchange *x, const http_request *r)
{
    char message[256];
    const char *tail;
    if (answer_page(x, r)) {
        return;
    }
    const route *found = find_route(r->path, &tail);
    if (!found) {
        snprintf(message, sizeof message, "There is no %.150s here.", r->path);
        http_answer_error(x, 404, NULL, "invalid_request_error", NULL, "not_found", message);
        return;
    }
    keys_level level = found->level == KEYS_NONE ? KEYS_ADMIN : level_of(s, r);
    if (level == KEYS_NONE) {
        http_answer_error(x, 401, "WWW-Authenticate: Bearer\r\n", "authentication_error", NULL, "invalid_api_key",
                          "The key is missing or wrong. Send it as Authorization: Bearer KEY, or as x-api-key.");
    } else if (!(found->flags & method_of(r))) {
        refuse_method(x, found);
    } else if (level < found->level) {
        http_answer_error(x, 403, NULL, "permission_error", NULL, "admin_key_required",
                          "This needs an admin key, as x-admin-key.");
    } else if (!s->options->body_max && may_have_pictures(s, found)) {
        http_set_body_max(x, PICTURES_BODY_MAX);
    }
}

static void run_route(server *s, http_exchange *x, const http_request *r, bool again)
{
    const char *tail;
    const route *found = find_route(r->path, &tail);
    endpoint_request all = { .server = s, .x = x, .http = r, .tail = tail, .admin = level_of(s, r) == KEYS_ADMIN,
                             .again = again };
    found->run(&all);
}

void endpoints_request(server *s, http_exchange *x, const http_request *r)
{
    run_route(s, x, r, false);
}

void endpoints_again(server *s, http_exchange *x)
{
    run_route(s, x, http_request_of(x), true);
}

/* ---- generation ---- */

bool endpoint_names_model(const endpoint_request *r, char *name, size_t cap)
{
    const char *error;
    json_value *tree =
        r->http->body_bytes ? json_read_rules(r->http->body, r->http->body_bytes, &FIELDS_RULES, &error) : NULL;
    const json_value *named = json_member(tree, "model");
    bool given = named && named->kind == JSON_TEXT && named->text_bytes;
    snprintf(name, cap, "%s", given ? named->text : "");
    json_free(tree);
    return given;
}

/* The model that the body names, as models_find says it. A body that is no object is refused by request_read. */
static model *find_model(const endpoint_request *r)
{
    char why[1024], name[256];
    int status = 503;
    bool given = endpoint_names_model(r, name, sizeof name);
    model *m = models_find(r->server, given ? name : NULL, &status, why, sizeof why);
    if (!m) {
        endpoint_error(r, status, status == 404 ? "model_not_found" : "no_model", why);
    }
    return m;
}

request_limits endpoint_limits(const server *s, const model *m)
{
    static const exl2_preset presets[] = { EXL2_PRESET_NEUTRAL, EXL2_PRESET_MODEL, EXL2_PRESET_BALANCED };
    return (request_limits){ .vocab = m->load.info.vocab, .preset = presets[s->options->sampling],
                             .pictures_max = m->load.info.tower_bytes ? m->load.desc.vision.images : 0,
                             .no_pictures = m->load.blind[0] ? m->load.blind : NULL };
}

static void generate(const endpoint_request *r, request_kind kind)
{
    server *s = r->server;
    request_error error = { 0 };
    request all = { 0 };
    if (s->options->inline_load && !r->again && inline_load_wait(r)) {
        return;
    }
    model *m = s->models && s->models->next ? find_model(r) : NULL;
    if (!m && s->models && s->models->next) {
        return;
    }
    m = m ? m : models_first(s);
    if (!m) {
        endpoint_error(r, 503, "no_model", models_loading(s) ? "The model is still loading." : "No model is loaded.");
        return;
    }
    request_limits limits = endpoint_limits(s, m);
    const char *body = r->http->body ? r->http->body : "";
    size_t bytes = r->http->body_bytes;
    buffer changed = { 0 };
    if (s->overrides.count && bytes && overrides_apply(&s->overrides, body, bytes, &changed)) {
        body = changed.data;
        bytes = changed.bytes;
    }
    if (request_read(&all, kind, body, bytes, &limits, &error)) {
        if (s->options->log_prompts) {
            fprintf(stderr, "%.*s\n", (int)r->http->body_bytes, r->http->body);
        }
        call_begin(s, r->x, m, &all);
    } else {
        endpoint_bad(r->x, &error);
    }
    request_free(&all);
    buffer_free(&changed);
}
