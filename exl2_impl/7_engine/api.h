/* api.h: the functions of engine, events, models and text. They check arguments, resolve handles and call the functions
   of this folder; nothing else.
   takes: calls from the application: those that may come from any thread directly, the others through public.h.
   gives: the functions of sections 3 to 7 and 11 of exl2.h.
   owns:  the engine's block. */
#ifndef EXL2__API_H
#define EXL2__API_H

#include "../0_base/json/json_part.h"
#include "../6_text/unicode/sentences.h"
#include "job_start.h"
#include "layouts.h"
#include "worker.h"

/* ---- checks that every call makes ---- */

/* Rejects, inside callbacks, a call that may wait or that frees objects which a callback is using. */
static inline exl2_result exl2__api_outside(exl2_engine *e, const char *call)
{
    if (!e) {
        return EXL2_ERR_ARG;
    }
    if (e->in_callback) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s is not allowed inside a callback", call);
    }
    return EXL2_OK;
}

static inline exl2_result exl2__api_engine(const exl2_engine *e)
{
    return e ? EXL2_OK : EXL2_ERR_ARG;
}

static inline exl2_result exl2__api_argument(exl2_engine *e, bool holds, const char *call, const char *what)
{
    if (!e) {
        return EXL2_ERR_ARG;
    }
    return holds ? EXL2_OK : exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s: %s", call, what);
}

/* For getters: they change nothing but a lock. */
static inline exl2_engine *exl2__api_mutable(const exl2_engine *e)
{
    return (exl2_engine *)(uintptr_t)e;
}

/* The model of a handle. */
EXL2__PRIVATE exl2_result exl2__api_model(exl2_engine *e, exl2_model handle, exl2__model **out)
{
    *out = exl2__objects_model(e, handle);
    return *out ? EXL2_OK : exl2__objects_stale(e, "model", handle.id);
}

/* ---- waiting ---- */

static inline void exl2__api_wait_begin(exl2_engine *e)
{
    exl2__atomic_store(&e->interrupted, 0);
    exl2__atomic_store(&e->waiting, 1);
}

static inline bool exl2__api_interrupted(exl2_engine *e)
{
    return exl2__atomic_load(&e->interrupted) != 0;
}

static inline void exl2__api_wait_end(exl2_engine *e)
{
    exl2__atomic_store(&e->waiting, 0);
}

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
        return exl2__fail(c, EXL2_ERR_ARG, "the allocator of a desc needs alloc_fn and free_fn, or neither");
    }
    if (!c->allocator.device_alloc_fn != !c->allocator.device_free_fn) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "the allocator of a desc needs device_alloc_fn and device_free_fn, or neither");
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
    c->host_bytes_max = d->host_bytes_max;
    if (!d->files.open && !d->files.list && !d->files.read && !d->files.close) {
#ifndef EXL2_NO_FILES
        c->files = exl2__platform_files();
#else
        return exl2__fail(c, EXL2_ERR_ARG, "this build has EXL2_NO_FILES: exl2_engine_desc.files must be set");
#endif
    }
    if (!c->files.open || !c->files.list || !c->files.read || !c->files.close) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_engine_desc.files needs open, list, read and close, or none of them");
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
    if (d->device_count > 1 || (d->device_count && !d->devices)) {
        return exl2__fail(c, EXL2_ERR_ARG, d->devices ? "exl2_engine_desc.device_count is %u: an engine uses one device"
                                                      : "exl2_engine_desc.device_count is %u, and devices is NULL",
                          d->device_count);
    }
    if (d->device_count) {
        EXL2__TRY(EXL2__CHECK_ZEROED(c, d->devices, exl2_device_desc));
    }
    if (d->max_models > 1024 || d->max_sessions > 65535 || d->max_jobs > 65535) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "exl2_engine_desc allows at most 1,024 models, 65,535 sessions and 65,535 jobs");
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

/* ---- models ---- */

/* Makes an earlier error the most recent one again. It was logged when it happened. */
static inline void exl2__api_restore_error(exl2_engine *e, const exl2_error *error)
{
    exl2__lock(&e->ctx.error_lock);
    e->ctx.error = *error;
    exl2__unlock(&e->ctx.error_lock);
}

EXL2__PRIVATE exl2_result exl2__api_check_model(exl2_engine *e, const exl2_model_desc *d, const char *call)
{
    EXL2__TRY(exl2__api_argument(e, d != NULL, call, "the desc is NULL"));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, d, exl2_model_desc));
    EXL2__TRY(EXL2__CHECK_ZEROED(&e->ctx, &d->cache, exl2_cache_desc));
    EXL2__TRY(exl2__api_argument(e, d->path != NULL, call, "the desc has no path"));
    bool fits = d->context_max <= 1u << 24 && d->prefill_chunk <= 65536 && d->batch_max <= 1024;
    EXL2__TRY(exl2__api_argument(e, fits, call,
                                 "context_max is at most 16,777,216, prefill_chunk 65,536, batch_max 1,024"));
    EXL2__TRY(exl2__api_argument(e, (uint32_t)d->cache.format <= EXL2_KV_Q4, call,
                                 "cache.format is none of exl2_kv"));
    const float rope[3] = { d->rope_scale, d->rope_alpha, d->yarn_factor };
    for (uint32_t i = 0; i < 3; i++) {
        fits = (rope[i] >= 0 && rope[i] <= 0) || (rope[i] >= 1 && rope[i] <= 1000); /* false for NaN */
        EXL2__TRY(exl2__api_argument(e, fits, call,
                                     "rope_scale, rope_alpha and yarn_factor are 0 or from 1 to 1000"));
    }
    fits = !(d->rope_scale > 0 && d->yarn_factor > 0);
    EXL2__TRY(exl2__api_argument(e, fits, call, "rope_scale and yarn_factor are both set"));
    return exl2__api_argument(e, strlen(d->path) < EXL2__PATH_BYTES, call, "the path is longer than 1,023 bytes");
}

EXL2_API bool exl2_arch(uint32_t index, exl2_arch_info *out)
{
    if (!out) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (index < EXL2__COUNT(exl2__archs)) {
        const exl2__arch_row *row = &exl2__archs[index];
        out->name = row->name;
        out->family = row->family;
        out->golden = row->traits[EXL2__TRAIT_GOLDEN] == EXL2__YES;
        exl2__arch_differences(row, out->differs, sizeof out->differs);
        return true;
    }
    index -= (uint32_t)EXL2__COUNT(exl2__archs);
    if (index < EXL2__COUNT(exl2__arch_unsupported_rows)) {
        out->name = exl2__arch_unsupported_rows[index].name;
        out->reason = exl2__arch_unsupported_rows[index].reason;
        return true;
    }
    return false;
}

EXL2__PRIVATE exl2_result exl2__api_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_model_measure"));
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_measure", "out is NULL"));
    EXL2__TRY(exl2__api_check_model(e, d, "exl2_model_measure"));
    exl2_model handle;
    EXL2__TRY(exl2__loading_open(e, d, &handle));
    exl2__model *m = exl2__objects_model(e, handle);
    m->discard_events = true;
    exl2__api_wait_begin(e);
    exl2__work all = exl2__work_all();
    exl2_result r = exl2__loading_measure(e, m, &all);
    if (r >= 0 && exl2__api_interrupted(e)) {
        r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "exl2_interrupt ended exl2_model_measure");
    }
    exl2__api_wait_end(e);
    if (r >= 0) {
        *out = m->info;
    }
    exl2__loading_close(e, m);
    exl2__objects_publish(e);
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_open", "out is NULL"));
    EXL2__TRY(exl2__api_check_model(e, d, "exl2_model_open"));
    return exl2__loading_open(e, d, out);
}

EXL2__PRIVATE exl2_result exl2__api_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out)
{
    EXL2__TRY(exl2__api_outside(e, "exl2_model_load"));
    EXL2__TRY(exl2__api_model_open(e, d, out));
    exl2__model *m = exl2__objects_model(e, *out);
    uint64_t id = m->id;
    m->discard_events = d->on_event == NULL;
    exl2__api_wait_begin(e);
    exl2_result r = EXL2_OK;
    while (r >= 0 && m->id == id && m->state == EXL2_PENDING) {
        r = exl2__worker_step_held(e);
        if (r >= 0 && exl2__api_interrupted(e)) {
            r = exl2__fail(&e->ctx, EXL2_ERR_CANCELLED, "exl2_interrupt ended exl2_model_load");
        }
    }
    exl2__api_wait_end(e);
    bool failed = r >= 0 && m->state < 0;
    exl2_error error = m->error;
    r = r < 0 ? r : m->state;
    if (r < 0) {
        exl2__loading_close(e, m);
        exl2__objects_publish(e);
        out->id = 0;
    }
    if (failed) { /* a callback that got the last LOAD event may have made calls that failed since */
        exl2__api_restore_error(e, &error);
    }
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_model_state(exl2_engine *e, exl2_model handle)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    if (m->state < 0) {
        exl2__api_restore_error(e, &m->error);
    }
    return m->park == EXL2__PARK_PARKED ? EXL2_IDLE : m->park == EXL2__PARK_LOADS ? EXL2_PENDING : m->state;
}

EXL2__PRIVATE exl2_result exl2__api_model_park(exl2_engine *e, exl2_model handle, bool parked)
{
    exl2__model *m;
    static const char *const call = "exl2_model_park";
    EXL2__TRY(exl2__api_engine(e));
    EXL2__TRY(parked ? exl2__api_outside(e, call) : EXL2_OK);
    EXL2__TRY(exl2__api_model(e, handle, &m));
    if (m->state != EXL2_OK || m->desc.text_only || m->park == EXL2__PARK_LOADS) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s: the model is loading, or was opened with text_only", m->path);
    }
    if (parked && m->park == EXL2__PARK_NONE) {
        exl2__step_end_active_pass(e, m);
        EXL2__TRY(exl2__api_model(e, handle, &m));
        exl2__step_park(e, m);
    } else if (!parked && m->park == EXL2__PARK_PARKED) {
        exl2__loading_begin_again(m);
    }
    exl2__objects_publish(e);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_model_get(exl2_engine *e, exl2_model handle, exl2_model_info *out)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, out != NULL, "exl2_model_get", "out is NULL"));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    *out = m->info;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_model_close(exl2_engine *e, exl2_model handle)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_outside(e, "exl2_model_close"));
    EXL2__TRY(exl2__api_model(e, handle, &m));
    exl2__loading_close(e, m);
    exl2__objects_publish(e);
    return EXL2_OK;
}

/* ---- text ---- */

/* The model, if its tokenizer is loaded. */
EXL2__PRIVATE exl2_result exl2__api_text_model(exl2_engine *e, exl2_model handle, exl2__model **out)
{
    EXL2__TRY(exl2__api_model(e, handle, out));
    bool loading = (*out)->state == EXL2_PENDING && (*out)->loading_stage < EXL2__LOADING_MEASURED;
    if ((*out)->vocab.present && !loading) {
        return EXL2_OK;
    }
    return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                      loading ? "the tokenizer of %s is not loaded yet" : "%s has no tokenizer.json", (*out)->path);
}

static inline exl2_result exl2__api_fits_tokens(exl2_engine *e, size_t need, const exl2_token *out, size_t cap)
{
    if (need > cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the text needs %zu tokens, but the buffer holds %zu", need,
                          cap);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_tokenize(exl2_engine *e, exl2_model handle, const char *text, size_t bytes,
                                             uint32_t flags, exl2_token *out, size_t cap, size_t *need)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, (text || !bytes) && (out || !cap) && need, "exl2_tokenize",
                                 "text, out or need is NULL"));
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    size_t bos = exl2__vocab_prefix(&m->vocab, flags, out, cap);
    size_t skip = bos < cap ? bos : cap;
    exl2_result r =
        exl2__encode(&e->ctx, &m->vocab, text, bytes, NULL, flags, skip < cap ? out + skip : NULL, cap - skip, need);
    exl2__objects_publish_memory(e);
    if (r < 0 && r != EXL2_ERR_TOO_SMALL) {
        return r;
    }
    *need += bos;
    return exl2__api_fits_tokens(e, *need, out, cap);
}

static inline exl2_result exl2__api_fits(exl2_engine *e, size_t bytes, const char *out, size_t cap)
{
    if (bytes >= cap && out) { /* with out NULL only the size is asked for */
        return exl2__fail(&e->ctx, EXL2_ERR_TOO_SMALL, "the text needs %zu bytes and a NUL, but the buffer holds %zu",
                          bytes, cap);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__api_detokenize(exl2_engine *e, exl2_model handle, const exl2_token *t, size_t n,
                                               uint32_t flags, char *out, size_t cap, size_t *need)
{
    exl2__model *m;
    EXL2__TRY(exl2__api_argument(e, (t || !n) && (out || !cap) && need, "exl2_detokenize",
                                 "t, out or need is NULL"));
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    bool skip = (flags & EXL2_TEXT_SKIP_MARKERS) != 0, as_bytes = (flags & EXL2_TEXT_BYTES) != 0;
    as_bytes ? exl2__stream_bytes(&m->vocab, t, n, skip, out, cap, need)
             : exl2__stream_decode(&m->vocab, t, n, skip, out, cap, need);
    if (cap) {
        out[*need < cap ? *need : as_bytes ? cap - 1 : exl2__utf8_cut(out, cap - 1)] = 0;
    }
    return exl2__api_fits(e, *need, out, cap);
}

EXL2__PRIVATE exl2_result exl2__api_chat_render(exl2_engine *e, exl2_model handle, const exl2_message *msgs, size_t n,
                                                const exl2_chat_desc *d, char *out, size_t cap, size_t *need)
{
    exl2__model *m;
    exl2__rendered rendered;
    EXL2__TRY(exl2__api_argument(e, (msgs || !n) && (out || !cap) && need, "exl2_chat_render",
                                 "msgs, out or need is NULL"));
    EXL2__TRY(d ? EXL2__CHECK_ZEROED(&e->ctx, d, exl2_chat_desc) : EXL2_OK);
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    exl2_result r = exl2__job_prompt_render(e, m, msgs, n, d, &rendered);
    if (r < 0) {
        exl2__objects_publish_memory(e);
        return r;
    }
    *need = rendered.bytes;
    if (cap) {
        size_t bytes = exl2__utf8_cut(rendered.text, rendered.bytes < cap ? rendered.bytes : cap - 1);
        memcpy(out, rendered.text, bytes);
        out[bytes] = 0;
    }
    exl2__job_prompt_free(e, &rendered);
    exl2__objects_publish_memory(e);
    return exl2__api_fits(e, *need, out, cap);
}

static inline bool exl2__api_prompt_whole(const exl2_prompt *p)
{
    return (p->text || !p->text_bytes) && (p->tokens || !p->token_count) && (p->messages || !p->message_count);
}

/* The ids of a text alone, as a job in an empty session has them: BOS before it, unless it begins with BOS. */
EXL2__PRIVATE exl2_result exl2__api_prompt_text(exl2_engine *e, exl2__model *m, const exl2_prompt *prompt,
                                                exl2_token *out, size_t cap, size_t *need)
{
    exl2_token bos[EXL2__VOCAB_PREFIX_MAX], first[EXL2__VOCAB_PREFIX_MAX];
    size_t bytes = exl2__job_prompt_text_bytes(prompt);
    size_t begin = exl2__vocab_prefix(&m->vocab, prompt->flags, bos, EXL2__VOCAB_PREFIX_MAX);
    if (begin > 0) {
        exl2_result r = exl2__encode(&e->ctx, &m->vocab, prompt->text, bytes, NULL, prompt->flags, first, begin, need);
        EXL2__TRY(r == EXL2_ERR_TOO_SMALL ? EXL2_OK : r);
        begin = *need >= begin && memcmp(first, bos, begin * sizeof *bos) == 0 ? 0 : begin;
    }
    size_t skip = begin < cap ? begin : cap;
    if (skip) {
        memcpy(out, bos, skip * sizeof *bos);
    }
    exl2_result r = exl2__encode(&e->ctx, &m->vocab, prompt->text, bytes, NULL, prompt->flags,
                                 skip < cap ? out + skip : NULL, cap - skip, need);
    *need += begin;
    return r;
}

EXL2__PRIVATE exl2_result exl2__api_chat_tokenize(exl2_engine *e, exl2_model handle, const exl2_prompt *prompt,
                                                  const exl2_chat_desc *d, exl2_token *out, size_t cap, size_t *need)
{
    static const char *const call = "exl2_chat_tokenize";
    exl2__model *m;
    exl2__rendered rendered;
    EXL2__TRY(exl2__api_argument(e, prompt && (out || !cap) && need, call, "prompt, out or need is NULL"));
    EXL2__TRY(exl2__api_argument(e, !prompt->tokens && (prompt->messages || prompt->text), call,
                                 "the prompt must have messages or a text, and no tokens"));
    EXL2__TRY(exl2__api_argument(e, exl2__api_prompt_whole(prompt), call, "a count is set but its array is NULL"));
    EXL2__TRY(d ? EXL2__CHECK_ZEROED(&e->ctx, d, exl2_chat_desc) : EXL2_OK);
    EXL2__TRY(exl2__api_text_model(e, handle, &m));
    exl2_result r;
    if (prompt->messages) {
        r = exl2__job_prompt_conversation(e, m, prompt, d, &rendered);
        if (r >= 0) {
            exl2__encode_marks marks = { rendered.from_message, rendered.guard };
            r = exl2__encode(&e->ctx, &m->vocab, rendered.text, rendered.bytes, &marks, 0, out, cap, need);
            exl2__job_prompt_free(e, &rendered);
        }
    } else {
        r = exl2__api_prompt_text(e, m, prompt, out, cap, need);
    }
    exl2__objects_publish_memory(e);
    if (r < 0 && r != EXL2_ERR_TOO_SMALL) {
        return r;
    }
    return exl2__api_fits_tokens(e, *need, out, cap);
}

EXL2_API exl2_result exl2_json_text(const char *json, size_t bytes, const char *path, char *out, size_t cap,
                                    size_t *need, bool *whole)
{
    if ((!json && bytes) || !path || !exl2__json_part_pointer_is(path) || (!out && cap) || !need) {
        return EXL2_ERR_ARG;
    }
    exl2__json_part part = { (const uint8_t *)json, bytes, path, out, cap, 0, .at = 0 };
    bool begins = exl2__json_part_read(&part);
    *need = part.used;
    if (whole) {
        *whole = part.whole;
    }
    if (cap) {
        out[part.used < cap ? part.used : exl2__utf8_cut(out, cap - 1)] = 0;
    }
    return !begins ? EXL2_ERR_FORMAT : out && part.used >= cap ? EXL2_ERR_TOO_SMALL : EXL2_OK;
}

EXL2_API size_t exl2_sentence(const char *text, size_t bytes, bool whole)
{
    return text ? exl2__sentences_first(text, bytes, whole) : 0;
}

#endif
