/* engine_models.c: the engine's thread loads models: each into the engine, and its tokenizer and template into an
   engine of texts, which the I/O thread gets when both are ready. Both are loaded in slices between other steps.
   takes: loads.
   gives: engine_begin_loads, engine_step_loads, engine_load_event, engine_end_loads, engine_reopen of engine_inside.h;
          engine_load_begin, engine_unload, engine_load_free_text of engine_thread.h.
   owns:  the engine of texts of a load, until that is ready. */
#include "engine_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_STEP_US 5000u
#define CACHE_BYTES_LEAST ((uint64_t)1 << 30) /* a default cache of several contexts may have this or the weights' */

/* The lock is held. */
static void list_load(engine_thread *t, engine_load *l)
{
    if (!l->listed) {
        l->listed = true;
        l->next_ready = t->ready_loads;
        t->ready_loads = l;
    }
}

static void set_state(engine_thread *t, engine_load *l, engine_load_state state, const char *why)
{
    lock_take(&t->lock);
    l->new_state = state;
    snprintf(l->new_error, sizeof l->new_error, "%s", why);
    list_load(t, l);
    lock_release(&t->lock);
}

static void drop_text(engine_load *l)
{
    exl2_close(l->text_loading);
    l->text_loading = NULL;
    l->text_loading_model = (exl2_model){ 0 };
}

static void fail(engine_thread *t, engine_load *l, const char *why)
{
    char text[sizeof l->new_error];
    snprintf(text, sizeof text, "%s", why);
    if (l->model.id) {
        exl2_model_close(t->host->engine, l->model);
        l->model = (exl2_model){ 0 };
    }
    drop_text(l);
    set_state(t, l, ENGINE_FAILED, text);
}

static void fail_by_engine(engine_thread *t, engine_load *l, const exl2_engine *e)
{
    exl2_error error;
    exl2_last_error(e, &error);
    fail(t, l, error.text);
}

/* As many contexts as the batch has sequences, within the bytes of the weights or 1 GiB. */
static void choose_cache(engine_thread *t, engine_load *l, exl2_model_desc *d)
{
    exl2_model_info info;
    if (d->cache.tokens || !l->sequences || exl2_model_measure(t->host->engine, d, &info) < 0) {
        return;
    }
    uint64_t bytes = info.weight_bytes > CACHE_BYTES_LEAST ? info.weight_bytes : CACHE_BYTES_LEAST;
    uint64_t most = info.cache_bytes_per_token ? bytes / info.cache_bytes_per_token : 0;
    uint64_t tokens = (uint64_t)info.context_max * l->sequences;
    tokens = tokens < most ? tokens : most;
    d->cache.tokens = tokens > info.context_max ? tokens : info.context_max;
}

/* A tower is loaded where the model has one. Where this engine does not compute it, the model reads texts alone. */
static void choose_tower(engine_thread *t, engine_load *l, exl2_model_desc *d)
{
    exl2_vision_desc wanted = d->vision;
    exl2_model_info info;
    exl2_error error = { 0 };
    d->vision = (exl2_vision_desc){ 0 };
    if (wanted.images && exl2_model_measure(t->host->engine, d, &info) >= 0 && info.tower_skipped) {
        d->vision = wanted;
        if (exl2_model_measure(t->host->engine, d, &info) == EXL2_ERR_UNSUPPORTED) {
            exl2_last_error(t->host->engine, &error);
            d->vision = (exl2_vision_desc){ 0 };
        }
    }
    lock_take(&t->lock);
    snprintf(l->new_blind, sizeof l->new_blind, "%s", error.text);
    lock_release(&t->lock);
}

static void begin_load(engine_thread *t, engine_load *l)
{
    exl2_model_desc d = l->desc;
    host_place(t->host, &d);
    d.experts_active = t->host->experts ? t->host->experts : d.experts_active;
    d.on_event = NULL;
    d.user = l;
    choose_tower(t, l, &d);
    choose_cache(t, l, &d);
    l->model_done = false;
    if (exl2_model_open(t->host->engine, &d, &l->model) < 0) {
        fail_by_engine(t, l, t->host->engine);
        return;
    }
    l->text_done = l->text_done || l->no_text;
    if (l->text_done) {
        return;
    }
    exl2_error error = { 0 };
    exl2_engine_desc text = { .backend = EXL2_BACKEND_CPU, .open_error = &error };
    exl2_model_desc text_model = { .path = l->desc.path, .text_only = true };
    if (exl2_open(&text, &l->text_loading) < 0) {
        fail(t, l, error.text);
    } else if (exl2_model_open(l->text_loading, &text_model, &l->text_loading_model) < 0) {
        fail_by_engine(t, l, l->text_loading);
    }
}

void engine_begin_loads(engine_thread *t)
{
    for (;;) {
        lock_take(&t->lock);
        engine_load *l = t->loads;
        for (const engine_load *other = t->loads; other; other = other->next) {
            l = other->closing ? NULL : l; /* first its memory is given back */
        }
        while (l && (l->begun || (l->draft && l->draft->new_state == ENGINE_LOADING))) {
            l = l->next;
        }
        if (l) {
            l->begun = true;
        }
        lock_release(&t->lock);
        if (!l) {
            return;
        }
        if (l->draft && l->draft->new_state != ENGINE_READY) {
            fail(t, l, l->draft->new_error);
        } else {
            begin_load(t, l);
        }
    }
}

static engine_load *first_load(engine_thread *t)
{
    lock_take(&t->lock);
    engine_load *l = t->loads;
    lock_release(&t->lock);
    return l;
}

bool engine_step_loads(engine_thread *t)
{
    bool any = false;
    for (engine_load *l = first_load(t); l; l = l->next) {
        if (!l->text_loading || l->text_done) {
            continue;
        }
        any = true;
        exl2_step(l->text_loading, &(exl2_step_desc){ .cpu_us = TEXT_STEP_US });
        for (exl2_event event; exl2_next_event(l->text_loading, &event);) {
        }
        exl2_result state = exl2_model_state(l->text_loading, l->text_loading_model);
        l->text_done = state == EXL2_OK;
        if (state < 0) {
            fail_by_engine(t, l, l->text_loading);
        }
    }
    return any;
}

void engine_load_event(engine_thread *t, const exl2_event *event)
{
    engine_load *l = event->user;
    l->new_progress = event->progress;
    l->model_done = event->result != EXL2_PENDING;
    if (event->result < 0) {
        snprintf(l->new_error, sizeof l->new_error, "%s", event->error ? event->error : "");
    }
    list_load(t, l);
}

/* The model was loaded or has failed. */
static void end_load(engine_thread *t, engine_load *l)
{
    exl2_model_info info = { 0 };
    if (exl2_model_state(t->host->engine, l->model) < 0) {
        fail(t, l, l->new_error);
        return;
    }
    if (!l->text_done) {
        return;
    }
    exl2_model_get(t->host->engine, l->model, &info);
    lock_take(&t->lock);
    l->new_info = info;
    lock_release(&t->lock);
    set_state(t, l, ENGINE_READY, "");
}

static void unload(engine_thread *t, engine_load *l)
{
    lock_take(&t->lock);
    engine_load **at = &t->loads;
    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
    lock_release(&t->lock);
    if (l->model.id) {
        engine_forget_grammars(t, l->model);
        exl2_model_close(t->host->engine, l->model);
        l->model = (exl2_model){ 0 };
    }
    drop_text(l);
    set_state(t, l, ENGINE_UNLOADED, "");
}

bool engine_end_loads(engine_thread *t)
{
    bool any = false;
    for (engine_load *l = first_load(t), *next; l; l = next) {
        lock_take(&t->lock);
        bool closing = l->closing;
        bool loading = l->begun && l->new_state == ENGINE_LOADING;
        next = l->next;
        lock_release(&t->lock);
        if (closing) {
            unload(t, l);
            any = true;
        } else if (loading && l->model.id && l->model_done) {
            end_load(t, l);
            any = true;
        }
    }
    return any;
}

void engine_reopen(engine_thread *t)
{
    engine_forget_grammars(t, (exl2_model){ 0 });
    lock_take(&t->lock);
    host *h = t->host;
    t->host = NULL;
    t->epoch++;
    t->closing_count = 0;
    for (engine_load *l = t->loads; l; l = l->next) {
        l->begun = false;
        l->new_state = ENGINE_LOADING;
        list_load(t, l);
    }
    lock_release(&t->lock);
    for (engine_load *l = first_load(t); l; l = l->next) {
        l->model = (exl2_model){ 0 };
    }
    host_close(h);
    t->options.backend = t->options.backend == HOST_AUTO ? HOST_CPU : t->options.backend;
    bool open = host_open(h, &t->options);
    lock_take(&t->lock);
    t->host = open ? h : NULL;
    t->lost = !open;
    lock_release(&t->lock);
    if (!open) {
        free(h);
    }
}

/* ---- for the I/O thread ---- */

void engine_load_begin(engine_thread *t, engine_load *l)
{
    lock_take(&t->lock);
    l->state = l->new_state = ENGINE_LOADING;
    l->begun = l->closing = l->text_done = false;
    engine_load **end = &t->loads;
    while (*end) {
        end = &(*end)->next;
    }
    l->next = NULL;
    *end = l;
    t->news = true;
    signal_one(&t->more);
    lock_release(&t->lock);
}

void engine_unload(engine_thread *t, engine_load *l)
{
    lock_take(&t->lock);
    l->closing = true;
    t->news = true;
    signal_one(&t->more);
    lock_release(&t->lock);
}

void engine_load_free_text(engine_load *l)
{
    exl2_close(l->text);
    l->text = NULL;
    l->text_model = (exl2_model){ 0 };
}
