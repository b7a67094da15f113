/* inline_load.c: see inline_load.h.
   takes: requests to generate, news of models.
   gives: what inline_load.h declares.
   owns:  the requests that wait. */
#include "inline_load.h"

#include "models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct waiter {
    owner owner;
    http_exchange *x;
    char *path;
    model *model; /* that was loaded for it; NULL: its turn has not come */
    struct waiter *next;
} waiter;

static void free_waiter(waiter *w)
{
    if (w->model) {
        w->model->calls--;
    }
    free(w->path);
    free(w);
}

/* Takes the first out of the list, before it is answered. */
static http_exchange *take_first(server *s)
{
    waiter *w = s->waiters;
    http_exchange *x = w->x;
    s->waiters = w->next;
    http_set_user(x, NULL);
    free_waiter(w);
    return x;
}

static void refuse(server *s, http_exchange *x, const char *code, const char *message)
{
    const endpoint_request r = { .server = s, .x = x };
    endpoint_error(&r, 503, code, message);
}

/* The model of this name that is loaded or loads; NULL: none. */
static model *find_loaded(const server *s, const char *name)
{
    for (model *m = s->models; m; m = m->next) {
        if (!m->embeds && !m->leaving && strcmp(m->name, name) == 0 && m->load.state != ENGINE_FAILED) {
            return m;
        }
    }
    return NULL;
}

bool inline_load_wait(const endpoint_request *r)
{
    server *s = r->server;
    char name[256], path[MODELS_PATH_MAX];
    bool named = endpoint_names_model(r, name, sizeof name) && r->admin && !s->stopping
              && models_in(s->options->folder, name, "config.json", path, sizeof path);
    bool loads = named && (s->waiters || !find_loaded(s, name));
    if (!loads && s->waiters) {
        endpoint_error(r, 503, "loading", "Another model is being loaded.");
        return true;
    }
    waiter *w = loads ? calloc(1, sizeof *w) : NULL;
    if (w) {
        w->path = buffer_copy(path, strlen(path));
    }
    if (loads && (!w || !w->path)) {
        free(w);
        endpoint_error(r, 500, "out_of_memory", "There is no memory left for the request.");
    } else if (loads) {
        w->owner.kind = OWNER_WAITER;
        w->x = r->x;
        http_set_user(r->x, &w->owner);
        waiter **end = &s->waiters;
        while (*end) {
            end = &(*end)->next;
        }
        *end = w;
        inline_load_look(s);
    }
    return loads;
}

static bool in_use(const server *s)
{
    for (const model *m = s->models; m; m = m->next) {
        if (!m->embeds && (m->calls || m->load.state == ENGINE_LOADING)) {
            return true;
        }
    }
    return false;
}

/* Loads the model in place of the others. NULL: no room. */
static model *begin(server *s, const char *path)
{
    for (model *m = s->models; m; m = m->next) {
        if (!m->embeds) {
            models_unload(m);
        }
    }
    return models_load(s, &(models_desc){ .path = path });
}

/* Gives the first that waits its model. false: not yet. */
static bool take_turn(server *s, waiter *w)
{
    char *name = models_name(w->path);
    w->model = name ? find_loaded(s, name) : NULL;
    free(name);
    if (!w->model && in_use(s)) {
        return false;
    }
    w->model = w->model ? w->model : begin(s, w->path);
    if (w->model) {
        w->model->calls++;
    } else {
        refuse(s, take_first(s), "load_failed", "There is no room for one more model; unload one first.");
    }
    return w->model != NULL;
}

void inline_load_look(server *s)
{
    while (s->waiters) {
        waiter *w = s->waiters;
        if (!w->model && !take_turn(s, w)) {
            if (s->waiters == w) {
                return;
            }
            continue;
        }
        const engine_load *l = &w->model->load;
        char why[sizeof l->error];
        if (l->state == ENGINE_LOADING || s->adapters_load) {
            return;
        }
        bool ready = l->state == ENGINE_READY && !w->model->leaving;
        snprintf(why, sizeof why, "%s", l->state == ENGINE_FAILED ? l->error : "The model was unloaded.");
        if (l->state == ENGINE_FAILED) {
            models_unload(w->model);
        }
        http_exchange *x = take_first(s);
        ready ? endpoints_again(s, x) : refuse(s, x, "load_failed", why);
    }
}

void inline_load_gone(server *s, http_exchange *x)
{
    for (waiter **at = &s->waiters; *at; at = &(*at)->next) {
        if ((*at)->x == x) {
            waiter *w = *at;
            *at = w->next;
            free_waiter(w);
            return;
        }
    }
}

void inline_load_end(server *s, const char *why)
{
    while (s->waiters) {
        refuse(s, take_first(s), "shutting_down", why);
    }
}

void inline_load_close(server *s)
{
    while (s->waiters) {
        waiter *w = s->waiters;
        s->waiters = w->next;
        free_waiter(w);
    }
}
