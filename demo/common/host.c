/* host.c: see host.h.
   takes: options, a model folder.
   gives: what host.h declares.
   owns:  the engine and the pool of a host, until host_close.
   next:  text_file.c */
#include "host.h"

#include "clock.h"
#include "interrupt.h"

#include <stdio.h>

exl2_backend host_backend(const host_options *o)
{
    static const exl2_backend backends[] = { EXL2_BACKEND_AUTO, EXL2_BACKEND_CUDA, EXL2_BACKEND_CPU };
    return backends[o->backend];
}

bool host_open(host *h, const host_options *o)
{
    exl2_error error = { 0 };
    *h = (host){ .pool = pool_open(o->threads) };
    if (!h->pool) {
        fprintf(stderr, "%u threads could not be started\n", o->threads ? o->threads : pool_processors());
        return false;
    }
    exl2_engine_desc d = { .backend = host_backend(o), .parallel = pool_hook(h->pool), .open_error = &error };
    if (exl2_open(&d, &h->engine) < 0) {
        fprintf(stderr, "%s\n", error.text);
        host_close(h);
        return false;
    }
    return true;
}

static exl2_flow on_load(void *user, const exl2_event *event)
{
    host *h = user;
    if (event->kind == EXL2_EVENT_LOAD) {
        progress_show(&h->bar, (double)event->progress, "loading the model");
    }
    if (interrupted()) {
        exl2_interrupt(h->engine);
    }
    return EXL2_CONTINUE;
}

bool host_load(host *h, const exl2_model_desc *d, uint32_t sequences)
{
    exl2_model_desc with_progress = *d;
    if (!d->cache.tokens && exl2_model_measure(h->engine, d, &h->info) >= 0) {
        with_progress.cache.tokens = (uint64_t)h->info.context_max * sequences;
    }
    with_progress.on_event = on_load;
    with_progress.user = h;
    interrupt_watch();
    uint64_t start = clock_ns();
    exl2_result result = exl2_model_load(h->engine, &with_progress, &h->model);
    h->load_seconds = clock_seconds_since(start);
    progress_end(&h->bar);
    if (result >= 0) {
        result = exl2_model_get(h->engine, h->model, &h->info);
    }
    if (result == EXL2_ERR_CANCELLED) {
        fputs("interrupted\n", stderr);
    } else if (result < 0) {
        host_failed(h);
    }
    return result >= 0;
}

bool host_load_text(host *h, const char *path)
{
    exl2_model_desc d = { .path = path, .text_only = true };
    if (exl2_model_load(h->engine, &d, &h->model) < 0) {
        host_failed(h);
        return false;
    }
    return true;
}

exl2_result host_step(host *h, exl2_job job, uint32_t cpu_us)
{
    exl2_step_desc d = { .cpu_us = cpu_us };
    if (interrupted()) {
        exl2_job_cancel(h->engine, job);
    }
    return exl2_step(h->engine, &d);
}

void host_end_take(host_end *end, const exl2_event *event)
{
    if (event->kind == EXL2_EVENT_DONE) {
        *end = (host_end){ true, event->stop, event->result, event->stats, "" };
        snprintf(end->error, sizeof end->error, "%s", event->error ? event->error : "");
    }
}

bool host_end_good(host *h, const host_end *end)
{
    bool cancelled = end->stop == EXL2_STOP_CANCELLED;
    if (!cancelled && end->result >= 0) {
        return true;
    }
    progress_end(&h->bar);
    fprintf(stderr, "%s\n", cancelled ? "interrupted" : end->error);
    return false;
}

int host_failed(host *h)
{
    exl2_error error;
    exl2_last_error(h->engine, &error);
    progress_end(&h->bar);
    fprintf(stderr, "%s\n", error.text);
    return 1;
}

void host_close(host *h)
{
    exl2_close(h->engine);
    pool_close(h->pool);
    *h = (host){ 0 };
}

const char *host_stop_name(exl2_stop stop)
{
    static const char *const names[] = { "none", "eos", "string", "token", "length", "callback", "cancelled", "error" };
    size_t at = (size_t)stop;
    return at < sizeof names / sizeof names[0] ? names[at] : "unknown";
}
