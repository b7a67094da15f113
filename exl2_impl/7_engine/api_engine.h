/* api_engine.h: the public functions of engines, devices, steps and events.
   takes: calls from the application, as api.h says.
   gives: exl2_open_versioned, exl2_open_binding, exl2_version, exl2_devices, exl2_kernels_build, exl2_engine_get,
          exl2_last_error, exl2_interrupt, exl2_stats; what public.h calls.
   owns:  the engine's block. */
#ifndef EXL2__API_ENGINE_H
#define EXL2__API_ENGINE_H

#include "api.h"

/* ---- engine ---- */

EXL2_API uint32_t exl2_version(void)
{
    return EXL2_VERSION;
}

EXL2_API const char *exl2_result_name(exl2_result r)
{
    static const char *const names[] = { /* from EXL2_ERR_INTERNAL up */
        "EXL2_ERR_INTERNAL", "EXL2_ERR_VERSION", "EXL2_ERR_CANCELLED", "EXL2_ERR_DEVICE_LOST", "EXL2_ERR_COMPILE",
        "EXL2_ERR_NO_COMPILER", "EXL2_ERR_NO_DEVICE", "EXL2_ERR_UNSUPPORTED", "EXL2_ERR_FORMAT", "EXL2_ERR_IO",
        "EXL2_ERR_CONTEXT_FULL", "EXL2_ERR_BUDGET", "EXL2_ERR_DEVICE_MEMORY", "EXL2_ERR_MEMORY", "EXL2_ERR_TOO_SMALL",
        "EXL2_ERR_STALE", "EXL2_ERR_STATE", "EXL2_ERR_ARG", "EXL2_OK", "EXL2_PENDING", "EXL2_IDLE",
    };
    uint32_t at = (uint32_t)((int)r - EXL2_ERR_INTERNAL);
    return at < EXL2__COUNT(names) ? names[at] : "unknown result";
}

EXL2__PRIVATE exl2_result exl2__api_allocator(exl2__ctx *c, const exl2_allocator *given)
{
    c->allocator = *given;
    if (!given->alloc_fn && !given->free_fn) {
        c->allocator.alloc_fn = exl2__platform_alloc;
        c->allocator.free_fn = exl2__platform_free;
        c->reserves_cache = EXL2__PLATFORM_RESERVES;
    }
    if (!c->allocator.alloc_fn || !c->allocator.free_fn) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "the allocator of a desc has one of alloc_fn and free_fn: set both, or neither");
    }
    if (!c->allocator.device_alloc_fn != !c->allocator.device_free_fn) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "the allocator of a desc has one of device_alloc_fn and device_free_fn: set both, or "
                          "neither");
    }
    return EXL2_OK;
}

/* Gives the context the hooks of a desc, with defaults for hooks that are zero. */
EXL2__PRIVATE exl2_result exl2__api_hooks(exl2__ctx *c, const exl2_engine_desc *d)
{
    c->files = d->files;
    c->logger = d->log;
    c->zones = d->zones;
    c->parallel = d->parallel;
    c->cpu_path = exl2__cpu_path_choose(d->cpu_path_max);
    c->cpu_vnni = exl2__cpu_path_has_vnni(c->cpu_path);
    c->cpu_splits = exl2__cpu_path_splits_products();
    c->host_bytes_max = d->host_bytes_max;
    if (!d->files.open && !d->files.list && !d->files.read && !d->files.close) {
#ifndef EXL2_NO_FILES
        c->files = exl2__platform_files();
#else
        return exl2__fail(c, EXL2_ERR_ARG, "this build has EXL2_NO_FILES: exl2_engine_desc.files must be set");
#endif
    }
    if (!c->files.open || !c->files.list || !c->files.read || !c->files.close) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "exl2_engine_desc.files has some of open, list, read and close: set all four, or none");
    }
    return exl2__api_allocator(c, &d->allocator);
}

EXL2__PRIVATE exl2_result exl2__api_check(exl2__ctx *c, const exl2_engine_desc *d, uint32_t header_version)
{
    if (header_version != EXL2_VERSION) {
        return exl2__fail(c, EXL2_ERR_VERSION,
                          "exl2.h has version %u, but the implementation has %u: build both from one release",
                          header_version, (uint32_t)EXL2_VERSION);
    }
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_engine_desc));
    if (d->backend != EXL2_BACKEND_AUTO && d->backend != EXL2_BACKEND_CUDA && d->backend != EXL2_BACKEND_CPU) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_engine_desc.backend is %d, which names no backend", (int)d->backend);
    }
    if ((uint32_t)d->load_thread > EXL2_LOAD_WORKER) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_engine_desc.load_thread is %d, which names no thread",
                          (int)d->load_thread);
    }
    if ((uint32_t)d->cpu_path_max > EXL2_CPU_NEON) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_engine_desc.cpu_path_max is %d, which names no instruction set",
                          (int)d->cpu_path_max);
    }
    if (d->device_count > EXL2_DEVICES_MAX || (d->device_count && !d->devices)) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          d->devices ? "exl2_engine_desc.device_count is %u: an engine uses at most 8 GPUs"
                                     : "exl2_engine_desc.device_count is %u, and devices is NULL", d->device_count);
    }
    for (uint32_t i = 0; i < d->device_count; i++) {
        EXL2__TRY(EXL2__CHECK_ZEROED(c, &d->devices[i], exl2_device_desc));
    }
    if (d->max_models > 1024 || d->max_sessions > 65535 || d->max_jobs > 65535) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "exl2_engine_desc asks for %u models, %u sessions and %u jobs, at most 1,024, 65,535 and "
                          "65,535 are possible", d->max_models, d->max_sessions, d->max_jobs);
    }
    return EXL2_OK;
}

/* Also gives the context its hooks. */
EXL2__PRIVATE exl2_result exl2__api_check_build(exl2__ctx *c, const exl2_kernel_build_desc *d)
{
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_kernel_build_desc));
    c->logger = d->log;
    c->parallel = d->parallel;
    EXL2__TRY(exl2__api_allocator(c, &d->allocator));
    if (!d->archs || d->arch_count == 0 || !d->into.store) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_kernels_build needs archs, and into.store to store the kernels");
    }
#ifndef EXL2_CONVERT
    if (d->converter) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "exl2_kernel_build_desc.converter needs a build with EXL2_CONVERT");
    }
#endif
    return EXL2_OK;
}

/* Lays out the engine's block. Returns the engine, or NULL in a dry run, which only counts bytes. */
EXL2__PRIVATE exl2_engine *exl2__api_layout(exl2__arena *block, const exl2_engine_desc *d)
{
    exl2_engine dry = { 0 };
    exl2_engine *e = (exl2_engine *)exl2__arena_alloc_zeroed(block, sizeof *e);
    exl2_engine *at = e ? e : &dry;
    at->max_models = d->max_models ? d->max_models : 4;
    at->max_sessions = d->max_sessions ? d->max_sessions : 256;
    at->max_jobs = d->max_jobs ? d->max_jobs : 64;
    exl2__pool_make(&at->model_ids, block, at->max_models);
    exl2__pool_make(&at->session_ids, block, at->max_sessions);
    exl2__pool_make(&at->job_ids, block, at->max_jobs);
    exl2__pool_make(&at->grammar_ids, block, at->max_sessions);
    at->models = (exl2__model *)exl2__arena_alloc_zeroed(block, (uint64_t)at->max_models * sizeof *at->models);
    at->sessions = (exl2__session *)exl2__arena_alloc_zeroed(block, (uint64_t)at->max_sessions * sizeof *at->sessions);
    at->jobs = (exl2__job *)exl2__arena_alloc_zeroed(block, (uint64_t)at->max_jobs * sizeof *at->jobs);
    at->grammars =
        (exl2__grammar_slot *)exl2__arena_alloc_zeroed(block, (uint64_t)at->max_sessions * sizeof *at->grammars);
    at->info.max_events = d->max_events ? d->max_events : 1024;
    exl2__events_make(&at->events, block, at->info.max_events);
    return e;
}

static inline void exl2__api_describe(exl2_engine *e, const exl2_engine_desc *d)
{
    e->info.cpu_path = e->ctx.cpu_path;
    e->loads_on_caller = d->load_thread == EXL2_LOAD_CALLER || (d->load_thread == EXL2_LOAD_AUTO && d->files.open);
    e->info.max_models = e->max_models;
    e->info.max_sessions = e->max_sessions;
    e->info.max_jobs = e->max_jobs;
    e->info.host_bytes_max = d->host_bytes_max;
    e->info.device_bytes_max = d->device_bytes_max;
    exl2__hardware_describe(&e->hardware, &e->info);
}

EXL2_API exl2_result exl2_open_versioned(const exl2_engine_desc *d, uint32_t header_version, exl2_engine **out)
{
    exl2_engine_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    d = d ? d : &defaults;
    exl2__ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    exl2__arena block = { 0 }, dry = { 0 };
    exl2_result r = out ? EXL2_OK : exl2__fail(&ctx, EXL2_ERR_ARG, "exl2_open: the pointer for the engine is NULL");
    r = r < 0 ? r : exl2__api_check(&ctx, d, header_version);
    r = r < 0 ? r : exl2__api_hooks(&ctx, d);
    if (r >= 0) {
        exl2__api_layout(&dry, d);
        r = exl2__arena_open(&ctx, &block, dry.used, EXL2_MEM_GENERAL);
    }
    exl2_engine *e = r >= 0 ? exl2__api_layout(&block, d) : NULL;
    if (e) {
        EXL2__ASSERT(exl2__arena_is_filled(&block));
        e->ctx = ctx;
        e->block = block;
        r = exl2__hardware_open(&e->ctx, d, &e->hardware);
        if (r < 0) {
            ctx = e->ctx;
            exl2__arena_close(&ctx, &block);
        }
    }
    if (r < 0) {
        bool readable = header_version == EXL2_VERSION && !d->_start_canary && !d->_end_canary;
        if (readable && d->open_error) { /* otherwise this pointer may be garbage, too */
            *d->open_error = ctx.error;
        }
        if (out) {
            *out = NULL;
        }
        return r;
    }
    exl2__api_describe(e, d);
    exl2__gate_make(e);
    exl2__objects_publish(e);
    *out = e;
    return EXL2_OK;
}

EXL2_API exl2_result exl2_open_binding(const exl2_engine_desc *d, uint32_t version, const exl2_layout *members,
                                       uint32_t member_count, exl2_error *error, exl2_engine **out)
{
    exl2__ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    exl2_result r = EXL2_OK;
    if (!out || !members) {
        r = exl2__fail(&ctx, EXL2_ERR_ARG, "exl2_open_binding: %s is NULL", out ? "the list of members" : "out");
    } else if (version / 100 != EXL2_VERSION / 100) {
        r = exl2__fail(&ctx, EXL2_ERR_VERSION, "the binding was made for version %u of exl2.h, but the library has %u",
                       version, (uint32_t)EXL2_VERSION);
    } else {
        r = exl2__layouts_check(&ctx, members, member_count);
    }
    if (r >= 0) {
        exl2_engine_desc copy;
        memset(&copy, 0, sizeof copy);
        if (d) {
            copy = *d;
        }
        copy.open_error = &ctx.error;
        r = exl2_open_versioned(&copy, EXL2_VERSION, out);
    } else if (out) {
        *out = NULL;
    }
    if (r < 0 && error) {
        *error = ctx.error;
    }
    return r;
}

EXL2__PRIVATE void exl2__api_close(exl2_engine *e)
{
    e->closing = true;
    for (uint32_t i = 0; i < e->max_models; i++) { /* all jobs end first: a callback at DONE may ask for any model */
        exl2__loading_end_jobs(e, &e->models[i]);
    }
    for (uint32_t i = 0; i < e->max_models; i++) {
        exl2__loading_close(e, &e->models[i]);
    }
    exl2__hardware_close(&e->ctx, &e->hardware);
    exl2__gate_end(e);
    exl2__ctx ctx = e->ctx;
    exl2__arena block = e->block;
    exl2__arena_close(&ctx, &block);
}

EXL2_API exl2_result exl2_devices(exl2_device_info *out, uint32_t cap, uint32_t *count)
{
    if (!count || (!out && cap)) {
        return EXL2_ERR_ARG;
    }
    exl2__hardware_list(out, cap, count);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_device_probe(exl2_engine *e, exl2_device_speed *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_device_probe"));
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_device_probe", "out is NULL"));
    exl2_result r = exl2__hardware_probe(&e->ctx, &e->hardware, out);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_link_probe(exl2_engine *e, uint32_t from, uint32_t to, exl2_link_speed *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_link_probe"));
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_link_probe", "out is NULL"));
    exl2_result r = exl2__hardware_link(&e->ctx, &e->hardware, from, to, out);
    exl2__objects_publish(e);
    return r;
}

EXL2_API exl2_result exl2_kernels_build(const exl2_kernel_build_desc *d)
{
    exl2__ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    if (!d) {
        return EXL2_ERR_ARG;
    }
    exl2_result r = exl2__api_check_build(&ctx, d);
    r = r < 0 ? r : exl2__hardware_build(&ctx, d);
    if (r < 0 && !d->_start_canary && !d->_end_canary && d->error) {
        *d->error = ctx.error;
    }
    return r;
}

EXL2_API void exl2_engine_get(const exl2_engine *e, exl2_engine_info *out)
{
    if (out) {
        memset(out, 0, sizeof *out);
    }
    if (e && out) {
        *out = e->info;
    }
}

EXL2_API void exl2_last_error(const exl2_engine *e, exl2_error *out)
{
    if (out) {
        memset(out, 0, sizeof *out);
    }
    if (e && out) {
        exl2__error_copy(&exl2__api_mutable(e)->ctx, out);
    }
}

EXL2_API void exl2_interrupt(exl2_engine *e)
{
    if (e && exl2__atomic_load(&e->waiting)) {
        exl2__atomic_store(&e->interrupted, 1);
    }
}

/* ---- stepping ---- */

EXL2__PRIVATE exl2_result exl2__api_step(exl2_engine *e, const exl2_step_desc *d)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_step"));
    static const exl2_step_desc whole_pass = { 0 };
    d = d ? d : &whole_pass;
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_step_desc));
    return exl2__worker_step(e, d);
}

EXL2__PRIVATE bool exl2__api_next_event(exl2_engine *e, exl2_event *out)
{
    if (!out || exl2__api_outside(e, "exl2_next_event") < 0) {
        return false;
    }
    if (exl2__events_pull(&e->events, out)) {
        return true;
    }
    exl2__jobs_deliver_due_dones(e);
    return exl2__events_pull(&e->events, out);
}

EXL2_API void exl2_stats(const exl2_engine *e, exl2_engine_stats *out)
{
    if (out) {
        memset(out, 0, sizeof *out);
    }
    if (e && out) {
        exl2_engine *m = exl2__api_mutable(e);
        exl2__lock(&m->lock);
        *out = m->published;
        exl2__unlock(&m->lock);
    }
}

#endif
