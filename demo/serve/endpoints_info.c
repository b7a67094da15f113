/* endpoints_info.c: what the server is and how it does.
   takes: requests without a body.
   gives: endpoint_health ... endpoint_internal_model of endpoints.h. */
#include "../common/clock.h"
#include "../common/folder.h"
#include "adapters.h"
#include "metrics.h"
#include "models.h"

#include <string.h>
#include <time.h>

#define STALL_NS 30000000000u /* without the end of a step, while jobs are active */

static const char *illness(server *s)
{
    const engine_times *t = &s->times;
    engine_watch(s->engine, &s->times);
    if (t->lost) {
        return "device lost";
    }
    if (t->active && clock_ns() - t->step_end_ns > STALL_NS) {
        return "the engine has not ended a step for 30 seconds";
    }
    if (!models_first(s)) {
        return models_loading(s) ? "loading" : "no model is loaded";
    }
    return NULL;
}

void endpoint_health(const endpoint_request *r)
{
    const char *why = illness(r->server);
    buffer out = { 0 };
    buffer_object(&out, NULL);
    buffer_name(&out, "status", why ? "unhealthy" : "healthy");
    buffer_array(&out, "issues");
    if (why) {
        buffer_object(&out, NULL);
        buffer_int(&out, "time", (int64_t)time(NULL));
        buffer_name(&out, "description", why);
        buffer_end(&out);
    }
    buffer_end(&out);
    buffer_end(&out);
    endpoint_json(r, why ? 503 : 200, &out);
}

void endpoint_models(const endpoint_request *r)
{
    buffer out = { 0 };
    models_list(r->server, r->admin, &out);
    endpoint_json(r, 200, &out);
}

static void answer_card(const endpoint_request *r, const model *m)
{
    buffer out = { 0 };
    models_card(m, &out, NULL);
    endpoint_json(r, 200, &out);
}

void endpoint_model_of(const endpoint_request *r)
{
    for (model *m = r->server->models; m; m = m->next) {
        if (m->load.state == ENGINE_READY && !m->leaving && strcmp(m->name, r->tail) == 0) {
            answer_card(r, m);
            return;
        }
    }
    endpoint_error(r, 404, "model_not_found", "There is no model of that name here.");
}

void endpoint_model(const endpoint_request *r)
{
    const model *m = models_first(r->server);
    if (m) {
        answer_card(r, m);
    } else {
        endpoint_error(r, 503, "no_model", "No model is loaded.");
    }
}

void endpoint_drafts(const endpoint_request *r)
{
    buffer out = { 0 };
    if (r->admin) { /* any model may guess for another of the same vocabulary */
        models_list(r->server, true, &out);
    } else {
        buffer_string(&out, "{\"object\":\"list\",\"data\":[]}");
    }
    endpoint_json(r, 200, &out);
}

void endpoint_props(const endpoint_request *r)
{
    const model *m = models_first(r->server);
    const server *s = r->server;
    buffer out = { 0 };
    if (!m) {
        endpoint_error(r, 503, "no_model", "No model is loaded.");
        return;
    }
    const char *text = models_template(s, m);
    buffer_object(&out, NULL);
    buffer_uint(&out, "total_slots", m->load.desc.batch_max ? m->load.desc.batch_max : 16);
    buffer_name(&out, "chat_template", text ? text : "");
    buffer_name(&out, "model_path", m->name);
    buffer_object(&out, "modalities"); /* as llama.cpp says them */
    buffer_bool(&out, "vision", m->load.info.tower_bytes > 0);
    buffer_bool(&out, "audio", false);
    buffer_end(&out);
    buffer_object(&out, "default_generation_settings");
    buffer_uint(&out, "n_ctx", m->load.info.context_max);
    buffer_end(&out);
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}

void endpoint_permission(const endpoint_request *r)
{
    buffer out = { 0 };
    buffer_object(&out, NULL);
    buffer_name(&out, "permission", r->admin ? "admin" : "api");
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}

static void list_template(void *user, const char *name)
{
    static const char end[] = ".jinja";
    size_t bytes = strlen(name), ending = sizeof end - 1;
    if (bytes > ending && strcmp(name + bytes - ending, end) == 0) {
        buffer_text(user, NULL, name, bytes - ending);
    }
}

void endpoint_templates(const endpoint_request *r)
{
    const server *s = r->server;
    buffer out = { 0 };
    buffer_object(&out, NULL);
    buffer_name(&out, "object", "list");
    buffer_array(&out, "data");
    if (s->template_text) {
        buffer_name(&out, NULL, s->template_name);
    } else if (models_first(s) && models_first(s)->template_text) {
        buffer_name(&out, NULL, "default");
    }
    if (r->admin && s->options->folder) {
        folder_each(s->options->folder, list_template, &out);
    }
    buffer_end(&out);
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}

void endpoint_metrics(const endpoint_request *r)
{
    buffer out = { 0 };
    metrics_write(r->server, &out);
    if (out.failed) {
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for the answer.");
    } else {
        http_answer(r->x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, out.data, out.bytes);
    }
    buffer_free(&out);
}

void endpoint_internal_model(const endpoint_request *r)
{
    const model *m = models_first(r->server);
    buffer out = { 0 };
    buffer_object(&out, NULL);
    buffer_name(&out, "model_name", m ? m->name : "None");
    buffer names = { 0 };
    adapters_names(m, &names);
    buffer_raw(&out, "lora_names", names.data ? names.data : "[]", names.data ? names.bytes : 2);
    out.failed = out.failed || names.failed;
    buffer_free(&names);
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}
