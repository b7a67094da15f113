/* adapters.c: see adapters.h.
   takes: bodies of /v1/lora/load; calls that begin and end.
   gives: what adapters.h declares.
   owns:  what adapters.h says. */
#include "adapters.h"

#include "../common/folder.h"
#include "../common/json_in.h"
#include "../common/loras.h"
#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct adapter {
    engine_task closing; /* the first member */
    char *name, *path;
    float scale;         /* of requests that name none; EXL2_OFF: they leave it out */
    exl2_lora handle;
    uint32_t epoch;      /* engine_epoch of the handle */
    char error[sizeof(((exl2_error *)0)->text)]; /* "": it is loaded */
    model *model;
    uint32_t calls;      /* that use it */
    bool leaves, closes; /* it is in the set no more; engine_do was called */
    adapter *next;
};

typedef struct adapters_load {
    engine_task task;    /* the first member */
    owner owner;
    server *server;
    model *model;
    http_exchange *x;    /* NULL: nobody waits for the answer */
    adapter *first, **end;
    bool opened;         /* of the engine's thread */
} adapters_load;

/* ---- one adapter ---- */

static void free_adapter(adapter *a)
{
    free(a->name);
    free(a->path);
    free(a);
}

static adapter *make_adapter(model *m, const char *path, float scale)
{
    adapter *a = calloc(1, sizeof *a);
    if (a) {
        a->name = models_name(path);
        a->path = buffer_copy(path, strlen(path));
        a->scale = scale;
        a->model = m;
    }
    if (a && (!a->name || !a->path)) {
        free_adapter(a);
        return NULL;
    }
    return a;
}

static float to_scale(double scaling)
{
    return scaling > 0 || scaling < 0 ? (float)scaling : EXL2_OFF;
}

static bool close_on_engine(engine_task *t, exl2_engine *e)
{
    adapter *a = (adapter *)(void *)t;
    if (e && a->epoch == engine_epoch(a->model->server->engine)) {
        exl2_lora_close(e, a->handle); /* of a model that was closed: STALE, and nothing happens */
    }
    return true;
}

static void closed(engine_task *t)
{
    adapter *a = (adapter *)(void *)t;
    model *m = a->model;
    adapter **at = &m->adapters;
    while (*at != a) {
        at = &(*at)->next;
    }
    *at = a->next;
    m->calls--;
    free_adapter(a);
    models_sweep(m->server);
}

/* Closes an adapter that is in the set no more and that no call uses. */
static void sweep(adapter *a)
{
    if (a->leaves && a->calls == 0 && !a->closes) {
        a->closes = true;
        a->closing = (engine_task){ .work = close_on_engine, .done = closed };
        a->model->calls++; /* the model stays until then */
        engine_do(a->model->server->engine, &a->closing);
    }
}

static void leave_set(model *m)
{
    for (adapter *a = m->adapters, *next; a; a = next) {
        next = a->next;
        a->leaves = true;
        sweep(a);
    }
}

/* ---- loading a set ---- */

static exl2_flow ignore(void *user, const exl2_event *event)
{
    (void)user;
    (void)event;
    return EXL2_CONTINUE;
}

static void put_error(adapter *a, exl2_engine *e)
{
    exl2_error error;
    exl2_last_error(e, &error);
    snprintf(a->error, sizeof a->error, "%s", error.text);
}

static bool load_on_engine(engine_task *t, exl2_engine *e)
{
    adapters_load *l = (adapters_load *)(void *)t;
    bool done = true;
    for (adapter *a = l->first; a; a = a->next) {
        if (!e) {
            snprintf(a->error, sizeof a->error, "the engine is lost");
        } else if (a->error[0]) {
            continue;
        } else if (!l->opened) {
            const exl2_lora_desc d = { .model = l->model->load.model, .path = a->path, .on_event = ignore };
            done = false;
            a->epoch = engine_epoch(l->server->engine);
            if (exl2_lora_open(e, &d, &a->handle) < 0) {
                put_error(a, e);
            }
        } else {
            bool lost = a->epoch != engine_epoch(l->server->engine);
            exl2_result state = lost ? EXL2_ERR_DEVICE_LOST : exl2_lora_state(e, a->handle);
            done = done && state != EXL2_PENDING;
            if (lost) {
                snprintf(a->error, sizeof a->error, "the device was lost");
            } else if (state < 0) {
                put_error(a, e);
                exl2_lora_close(e, a->handle);
            }
        }
    }
    l->opened = true;
    return done;
}

static void answer_load(adapters_load *l)
{
    buffer out = { 0 };
    buffer_object(&out, NULL);
    for (uint32_t failed = 0; failed < 2; failed++) {
        buffer_array(&out, failed ? "failure" : "success");
        for (const adapter *a = l->first; a; a = a->next) {
            if ((a->error[0] != 0) == failed) {
                buffer_name(&out, NULL, a->name);
            }
        }
        buffer_end(&out);
    }
    buffer_array(&out, "errors");
    for (const adapter *a = l->first; a; a = a->next) {
        if (a->error[0]) {
            buffer_object(&out, NULL);
            buffer_name(&out, "name", a->name);
            buffer_name(&out, "message", a->error);
            buffer_end(&out);
        }
    }
    buffer_end(&out);
    buffer_end(&out);
    const endpoint_request r = { .server = l->server, .x = l->x };
    http_set_user(l->x, NULL);
    endpoint_json(&r, 200, &out);
}

/* The new set takes the place of the old one. */
static void loaded(engine_task *t)
{
    adapters_load *l = (adapters_load *)(void *)t;
    server *s = l->server;
    model *m = l->model;
    s->adapters_load = NULL;
    m->adapters_lost = false;
    if (l->x) {
        answer_load(l);
    }
    leave_set(m);
    adapter **at = &m->adapters;
    for (adapter *a = l->first, *next; a; a = next) {
        next = a->next;
        if (a->error[0]) {
            fprintf(stderr, "adapter %s: %s\n", a->path[0] ? a->path : a->name, a->error);
            s->failed = s->failed || !s->announced; /* one of --lora */
            free_adapter(a);
        } else {
            a->next = *at;
            *at = a;
            at = &a->next;
        }
    }
    m->calls--;
    free(l);
    models_sweep(s);
}

static adapters_load *make_load(model *m)
{
    adapters_load *l = calloc(1, sizeof *l);
    if (l) {
        l->task = (engine_task){ .work = load_on_engine, .done = loaded };
        l->owner.kind = OWNER_ADAPTERS;
        l->server = m->server;
        l->model = m;
        l->end = &l->first;
    }
    return l;
}

static void free_load(adapters_load *l)
{
    for (adapter *a = l ? l->first : NULL, *next; a; a = next) {
        next = a->next;
        free_adapter(a);
    }
    free(l);
}

static bool add(adapters_load *l, const char *path, float scale)
{
    adapter *a = make_adapter(l->model, path, scale);
    if (a) {
        *l->end = a;
        l->end = &a->next;
    }
    return a != NULL;
}

/* A name that two of them have, so that a request could not name one; NULL: there is none. */
static const char *find_twice(const adapters_load *l)
{
    for (const adapter *a = l->first; a; a = a->next) {
        for (const adapter *other = a->next; other; other = other->next) {
            if (strcmp(a->name, other->name) == 0) {
                return a->name;
            }
        }
    }
    return NULL;
}

static void begin(adapters_load *l)
{
    l->server->adapters_load = l;
    l->model->calls++;
    engine_do(l->server->engine, &l->task);
}

void adapters_ready(model *m)
{
    server *s = m->server;
    const arg_texts *texts = &s->options->host.loras;
    bool starts = !s->announced && m == s->models && texts->count;
    adapters_load *l = (starts || m->adapters) && !s->adapters_load ? make_load(m) : NULL;
    bool good = l || !(starts || m->adapters);
    for (uint32_t i = 0; starts && i < texts->count && good; i++) {
        char path[LORAS_PATH];
        float scale;
        good = loras_split(texts->items[i], path, &scale) && add(l, path, scale);
    }
    for (const adapter *a = starts ? NULL : m->adapters; a && good; a = a->next) { /* the engine was opened again */
        good = a->leaves || add(l, a->path, a->scale);
        m->adapters_lost = true;
    }
    const char *twice = good && l ? find_twice(l) : NULL;
    if (twice) {
        fprintf(stderr, "--lora: two of the adapters have the name '%s'\n", twice);
        s->failed = true; /* a set that is loaded again has no name twice */
        free_load(l);
    } else if (!good) {
        fputs("the adapters cannot be loaded: a path is too long, others are being loaded, or there is no memory\n",
              stderr);
        s->failed = s->failed || !s->announced;
        free_load(l);
    } else if (l) {
        begin(l);
    }
}

void adapters_gone(server *s, http_exchange *x)
{
    if (s->adapters_load && s->adapters_load->x == x) {
        s->adapters_load->x = NULL;
    }
}

void adapters_close(server *s, model *m)
{
    if (s->adapters_load && s->adapters_load->model == m) {
        free_load(s->adapters_load);
        s->adapters_load = NULL;
    }
    while (m->adapters) {
        adapter *a = m->adapters;
        m->adapters = a->next;
        free_adapter(a);
    }
}

/* ---- calls ---- */

static adapter *find(const model *m, const char *name)
{
    for (adapter *a = m->adapters; a; a = a->next) {
        if (!a->leaves && strcmp(a->name, name) == 0) {
            return a;
        }
    }
    return NULL;
}

static void use(call *c, adapter *a, float scale)
{
    a->calls++;
    c->uses_epoch = a->epoch;
    c->adapters[c->use_count] = a;
    c->uses[c->use_count++] = (exl2_lora_use){ a->handle, scale };
}

void adapters_join(call *c, request_error *error)
{
    const request *r = &c->request;
    for (uint32_t i = 0; i < r->lora_count; i++) {
        adapter *a = find(c->model, r->loras[i].name);
        if (!a) {
            buffer names = { 0 };
            adapters_names(c->model, &names);
            fields_fail(error, "loras", "the adapter '%.100s' is not loaded; those that are: %.300s", r->loras[i].name,
                        names.bytes ? names.data : "[]");
            buffer_free(&names);
            return;
        }
        use(c, a, to_scale(r->loras[i].scaling));
    }
    for (adapter *a = r->lora_count ? NULL : c->model->adapters; a; a = a->next) {
        if (!a->leaves && !(a->scale <= EXL2_OFF)) { /* those left out are no adapters of the job */
            if (c->use_count == EXL2_JOB_LORAS) {
                fields_fail(error, "loras", "more than %d adapters are loaded: name those that the request wants",
                            EXL2_JOB_LORAS);
                return;
            }
            use(c, a, a->scale);
        }
    }
}

void adapters_leave(call *c)
{
    for (uint32_t i = 0; i < c->use_count; i++) {
        c->adapters[i]->calls--;
        sweep(c->adapters[i]);
    }
    c->use_count = 0;
}

/* ---- endpoints ---- */

static void put_card(buffer *out, const char *name, const adapter *loaded)
{
    buffer_object(out, NULL);
    buffer_name(out, "id", name);
    buffer_name(out, "object", "lora");
    buffer_int(out, "created", 0);
    buffer_name(out, "owned_by", "exl2");
    if (loaded) {
        buffer_number(out, "scaling", loaded->scale <= EXL2_OFF ? 0 : loaded->scale);
    } else {
        buffer_null(out, "scaling");
    }
    buffer_end(out);
}

void adapters_names(const model *m, buffer *out)
{
    buffer_array(out, NULL);
    for (const adapter *a = m ? m->adapters : NULL; a; a = a->next) {
        if (!a->leaves) {
            buffer_name(out, NULL, a->name);
        }
    }
    buffer_end(out);
}

typedef struct listing {
    const char *folder;
    const model *model;
    buffer *out;
} listing;

static void list_entry(void *user, const char *name)
{
    listing *l = user;
    char path[MODELS_PATH_MAX];
    if (!(l->model && find(l->model, name))
        && models_folder_has(l->folder, name, "adapter_config.json", path, sizeof path)) {
        put_card(l->out, name, NULL);
    }
}

static void list(const endpoint_request *r, bool all)
{
    const model *m = models_first(r->server);
    buffer out = { 0 };
    listing l = { r->server->options->adapters, m, &out };
    buffer_object(&out, NULL);
    buffer_name(&out, "object", "list");
    buffer_array(&out, "data");
    for (const adapter *a = m ? m->adapters : NULL; a; a = a->next) {
        if (!a->leaves) {
            put_card(&out, a->name, a);
        }
    }
    if (all && l.folder) {
        folder_each(l.folder, list_entry, &l);
    }
    buffer_end(&out);
    buffer_end(&out);
    endpoint_json(r, 200, &out);
}

void endpoint_loras(const endpoint_request *r)
{
    list(r, r->admin);
}

void endpoint_lora(const endpoint_request *r)
{
    list(r, false);
}

/* The set of the body. false: there is no memory. */
static bool read_set(adapters_load *l, const request_lora *named, uint32_t count)
{
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++) {
        char path[MODELS_PATH_MAX];
        const char *name = named[i].name;
        bool found = models_in(l->server->options->adapters, name, "adapter_config.json", path, sizeof path);
        adapter **last = l->end;
        good = add(l, found ? path : "", to_scale(named[i].scaling));
        if (good && !found) {
            free((*last)->name);
            (*last)->name = buffer_copy(name, strlen(name));
            good = (*last)->name != NULL;
            snprintf((*last)->error, sizeof (*last)->error, "the folder of adapters has none of that name");
        }
    }
    return good;
}

void endpoint_lora_load(const endpoint_request *r)
{
    server *s = r->server;
    model *m = models_first(s);
    request_lora named[ADAPTERS_MAX];
    uint32_t count = 0;
    request_error error = { 0 };
    if (!m || s->adapters_load) {
        endpoint_error(r, 503, m ? "loading" : "no_model",
                       m ? "Adapters are being loaded already." : "No model is ready.");
        return;
    }
    if (!s->options->adapters) {
        endpoint_error(r, 400, "lora_not_found",
                       "The server was started without --loras DIR, so no adapter can be found.");
        return;
    }
    json_value *tree = endpoint_body(r);
    if (!tree) {
        return;
    }
    if (!request_read_loras(&(fields){ tree, &error }, named, ADAPTERS_MAX, &count)) {
        fields_fail(&error, "loras", "loras is missing: a list of names with their scaling");
        endpoint_bad(r->x, &error);
        json_free(tree);
        return;
    }
    adapters_load *l = make_load(m);
    if (l && read_set(l, named, count)) {
        l->x = r->x;
        http_set_user(r->x, &l->owner);
        begin(l);
    } else {
        free_load(l);
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for the adapters.");
    }
    json_free(tree);
}

void endpoint_lora_unload(const endpoint_request *r)
{
    for (model *m = r->server->models; m; m = m->next) {
        leave_set(m);
    }
    endpoint_ok(r);
}
