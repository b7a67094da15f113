/* loader.c: an admin loads and unloads models and templates while the server runs.
   takes: bodies of /v1/model/load and its like.
   gives: endpoint_load, endpoint_unload, endpoint_template_*, loader_news, loader_gone, loader_template.
   owns:  the streams that tell the progress of a load. The load goes on when its client leaves. */
#include "../common/json_in.h"
#include "../common/text_file.h"
#include "adapters.h"
#include "answer.h"
#include "endpoints.h"
#include "models.h"
#include "request_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULES 100u                             /* steps in which progress is told */
#define TEMPLATE_FILE_BYTES ((size_t)512 << 10) /* as the engine's limit of a template */

struct loader {
    owner owner;
    http_exchange *x;
    model *model;
    uint32_t told; /* steps */
};

/* ---- progress ---- */

static void tell(loader *l, const char *type, uint32_t step, const char *status)
{
    buffer b = { 0 };
    buffer_string(&b, "data: ");
    buffer_object(&b, NULL);
    buffer_name(&b, "model_type", type);
    buffer_uint(&b, "module", step);
    buffer_uint(&b, "modules", MODULES);
    buffer_name(&b, "status", status);
    buffer_end(&b);
    buffer_string(&b, "\n\n");
    if (l->x && !b.failed) {
        http_stream_write(l->x, b.data, b.bytes);
    }
    buffer_free(&b);
}

static void tell_error(loader *l, const char *message)
{
    if (l->x) {
        answer_error_write(l->x, "server_error", "load_failed", message);
    }
}

static void end_loader(loader *l)
{
    l->model->loader = NULL;
    if (l->x) {
        http_set_user(l->x, NULL);
        http_stream_end(l->x);
    }
    free(l);
}

void loader_news(engine_load *load)
{
    model *m = load->user;
    loader *l = m->loader;
    const char *type = load == &m->draft ? "draft" : "model";
    if (load->state == ENGINE_FAILED && !m->server->announced) {
        fprintf(stderr, "%s: %s\n", load->desc.path, load->error);
        m->server->failed = true;
    }
    if (load == &m->load && load->state == ENGINE_READY) {
        adapters_ready(m);
    }
    if (!l) {
        return;
    }
    uint32_t step = (uint32_t)(load->progress * (float)MODULES);
    if (load->state == ENGINE_LOADING && step > l->told) {
        l->told = step;
        tell(l, type, step, "processing");
    } else if (load->state == ENGINE_READY) {
        l->told = 0;
        tell(l, type, MODULES, "finished");
    }
    if (load == &m->load && load->state != ENGINE_LOADING) {
        if (load->state == ENGINE_FAILED) {
            tell_error(l, load->error);
            models_unload(m);
        }
        end_loader(l);
    }
}

void loader_gone(server *s, http_exchange *x)
{
    for (model *m = s->models; m; m = m->next) {
        if (m->loader && m->loader->x == x) {
            m->loader->x = NULL;
        }
    }
}

/* ---- load ---- */

static bool find_folder(const endpoint_request *r, const char *name, char *path, size_t cap)
{
    char message[256];
    if (models_in(r->server->options->folder, name, "config.json", path, cap)) {
        return true;
    }
    snprintf(message, sizeof message, r->server->options->folder
             ? "There is no model '%.100s' in the folder of models."
             : "The server was started without --models DIR, so '%.100s' cannot be found.", name);
    endpoint_error(r, r->server->options->folder ? 404 : 400, "model_not_found", message);
    return false;
}

static bool read_load(fields *f, models_desc *d, const char **name, const char **draft)
{
    int64_t whole;
    double number;
    const json_value *of_draft = NULL;
    if (!fields_text(f, "model_name|name", name, NULL)) {
        return fields_fail(f->error, "model_name", "model_name is missing");
    }
    if (fields_whole(f, "max_seq_len", 0, 1e8, &whole)) {
        d->context = (uint32_t)whole;
    }
    if (fields_whole(f, "cache_size", 0, 1e9, &whole)) {
        d->cache_tokens = (uint64_t)whole;
    }
    if (fields_whole(f, "max_batch_size", 0, 1024, &whole)) {
        d->batch = (uint32_t)whole;
    }
    if (fields_number(f, "rope_scale", 0, 1000, &number)) {
        d->rope_scale = (float)number;
    }
    const json_value *alpha = json_member(f->object, "rope_alpha"); /* "auto" is the model's own */
    if (alpha && alpha->kind == JSON_NUMBER && fields_number(f, "rope_alpha", 0, 1000, &number)) {
        d->rope_alpha = (float)number;
    }
    fields_text(f, "cache_mode", &d->cache_mode, NULL);
    if (fields_object(f, "draft_model|draft", &of_draft)) {
        fields_text(&(fields){ of_draft, f->error }, "draft_model_name", draft, NULL);
    }
    return !f->error->set;
}

static void begin_load(const endpoint_request *r, const models_desc *d, model *same)
{
    server *s = r->server;
    loader *l = calloc(1, sizeof *l);
    model *m = same;
    for (model *old = s->models; old && !same; old = old->next) {
        models_unload(old); /* the new one takes their memory */
    }
    m = l && !m ? models_load(s, d) : m;
    if (!l || !m) {
        free(l);
        endpoint_error(r, 503, "load_failed", "There is no room for one more model; unload one first.");
        return;
    }
    *l = (loader){ { OWNER_LOADER }, r->x, m, 0 };
    http_set_user(r->x, l);
    http_stream_begin(r->x, 200, "text/event-stream; charset=utf-8", "Cache-Control: no-cache\r\n", true);
    if (same) {
        tell(l, "model", MODULES, "finished");
        http_set_user(r->x, NULL);
        http_stream_end(r->x);
        free(l);
    } else {
        m->loader = l;
    }
}

void endpoint_load(const endpoint_request *r)
{
    char path[MODELS_PATH_MAX], draft_path[MODELS_PATH_MAX];
    const char *name = NULL, *draft = NULL;
    json_value *tree = endpoint_body(r);
    request_error error = { 0 };
    models_desc d = { 0 };
    if (!tree) {
        return;
    }
    if (!read_load(&(fields){ tree, &error }, &d, &name, &draft)) {
        endpoint_bad(r->x, &error);
        json_free(tree);
        return;
    }
    for (model *m = r->server->models; m; m = m->next) {
        if (m->load.state == ENGINE_READY && !m->leaving && strcmp(m->name, name) == 0) {
            begin_load(r, &d, m);
            json_free(tree);
            return;
        }
    }
    if (find_folder(r, name, path, sizeof path)
        && (!draft || find_folder(r, draft, draft_path, sizeof draft_path))) {
        d.path = path;
        d.draft = draft ? draft_path : NULL;
        begin_load(r, &d, NULL);
    }
    json_free(tree);
}

void endpoint_unload(const endpoint_request *r)
{
    for (model *m = r->server->models; m; m = m->next) {
        models_unload(m);
    }
    endpoint_ok(r);
}

/* ---- templates ---- */

static bool use_template(server *s, const char *path, const char *name)
{
    size_t bytes = 0;
    char *text = text_file_load(path, TEMPLATE_FILE_BYTES, &bytes);
    if (text) {
        free(s->template_text);
        s->template_text = text;
        snprintf(s->template_name, sizeof s->template_name, "%.100s", name);
    }
    return text != NULL;
}

/* The template of that name in the folder of models, which is searched for it: no request names a path. */
static bool find_template(server *s, const char *name)
{
    char file[256], path[MODELS_PATH_MAX];
    snprintf(file, sizeof file, "%.200s.jinja", name);
    return models_lists(s->options->folder, file)
        && (size_t)snprintf(path, sizeof path, "%s/%s", s->options->folder, file) < sizeof path
        && use_template(s, path, name);
}

bool loader_template(server *s, const char *name, char *why, size_t cap)
{
    bool good = use_template(s, name, name) || find_template(s, name);
    if (!good) {
        snprintf(why, cap, "The template '%.100s' cannot be read.", name);
    }
    return good;
}

void endpoint_template_switch(const endpoint_request *r)
{
    json_value *tree = endpoint_body(r);
    request_error error = { 0 };
    const char *name = NULL;
    if (!tree) {
        return;
    }
    fields f = { tree, &error };
    if (!fields_text(&f, "prompt_template_name|name", &name, NULL)) {
        fields_fail(&error, "prompt_template_name", "prompt_template_name is missing");
        endpoint_bad(r->x, &error);
    } else if (strcmp(name, "default") == 0) { /* the model's own */
        free(r->server->template_text);
        r->server->template_text = NULL;
        endpoint_ok(r);
    } else if (!find_template(r->server, name)) {
        endpoint_error(r, 400, "template_not_found", "There is no template of that name in the folder of models.");
    } else {
        endpoint_ok(r);
    }
    json_free(tree);
}

void endpoint_template_unload(const endpoint_request *r)
{
    free(r->server->template_text);
    r->server->template_text = NULL;
    endpoint_ok(r);
}
