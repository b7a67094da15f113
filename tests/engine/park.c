/* park.c: a model that gives its memory back and loads again: its jobs go on with the same words. faults/cuda_park.c is
   the same over the fake driver. */
#include "rig.h"

#define JOBS 3

static exl2_token prompt[200];
static rig_said alone[JOBS], said[JOBS + 1];
static bool files_broken, weights_changed;

/* ---- files that can vanish ---- */

static exl2_files plain;

static void *open_unless_broken(void *user, const char *path, uint64_t *bytes)
{
    return files_broken && strstr(path, ".safetensors") ? NULL : plain.open(user, path, bytes);
}

/* A byte behind the first 4 KiB of a tensor is another one; the header of the file is read from its byte 8 on. */
static int64_t read_maybe_changed(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    int64_t got = plain.read(user, file, offset, dst, bytes);
    if (weights_changed && got > 4096 && offset > 8) {
        ((uint8_t *)dst)[got - 2] ^= 1;
    }
    return got;
}

typedef struct loads {
    uint32_t events, ready, failed;
    float progress;
    bool changed; /* the last failure was that the files have changed */
} loads;

static exl2_flow hear_load(void *user, const exl2_event *event)
{
    loads *l = user;
    CHECK_INT(event->kind, EXL2_EVENT_LOAD);
    l->events++;
    l->ready += event->result == EXL2_OK;
    l->failed += event->result < 0;
    l->changed = event->error && strstr(event->error, "files have changed");
    CHECK(event->result < 0 || event->progress >= l->progress);
    CHECK((event->error != NULL) == (event->result < 0));
    l->progress = event->result == EXL2_PENDING ? event->progress : 0;
    return EXL2_CONTINUE;
}

static exl2_job_desc job_of(const rig *r, uint32_t i, rig_said *to)
{
    exl2_job_desc d = rig_job(r, prompt + i, 20 + 25 * i, 40, to);
    memset(to, 0, sizeof *to);
    if (i == 1) {
        d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .seed = 7 };
    }
    return d;
}

static exl2_engine_stats stats_of(const rig *r)
{
    exl2_engine_stats stats;
    exl2_stats(r->engine, &stats);
    return stats;
}

static void check_same(const rig_said *a, const rig_said *b)
{
    CHECK_INT(a->done_events, 1);
    CHECK_INT(a->result, EXL2_OK);
    CHECK_INT(a->count, b->count);
    CHECK(memcmp(a->ids, b->ids, b->count * sizeof *b->ids) == 0);
}

static void load_again(const rig *r, loads *l)
{
    *l = (loads){ 0 };
    CHECK_INT(exl2_model_park(r->engine, r->model, false), EXL2_OK);
    CHECK_INT(exl2_model_state(r->engine, r->model), EXL2_PENDING);
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_ERR_STATE);
    for (uint32_t i = 0; i < 1000000 && !l->ready && !l->failed; i++) {
        CHECK_INT(exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = 1 }), EXL2_PENDING);
    }
}

/* Parks after `steps` steps, asks for all that may be asked for meanwhile, and goes on. */
static void parks(const rig *r, loads *l, uint32_t steps, uint32_t cpu_us)
{
    static uint8_t saved[1 << 16];
    size_t need = 0;
    exl2_session s, t;
    exl2_job jobs[JOBS], doomed;
    exl2_job_info info;
    exl2_session_info session;
    exl2_model_info model;
    uint64_t memory = stats_of(r).host_bytes;
    CHECK_INT(exl2_model_get(r->engine, r->model, &model), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job_desc d = job_of(r, i, &said[i]);
        if (i == 0) {
            d.model = (exl2_model){ 0 };
            d.session = s;
        }
        CHECK_INT(exl2_job_start(r->engine, &d, &jobs[i]), EXL2_OK);
    }
    for (uint32_t i = 0; i < steps; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .cpu_us = cpu_us });
    }
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK);
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK); /* it is parked already */
    CHECK_INT(exl2_model_state(r->engine, r->model), EXL2_IDLE);
    exl2_engine_stats stats = stats_of(r);
    CHECK(stats.host_bytes + model.cache_bytes <= memory);
    CHECK_INT(stats.pages_used + stats.pages_cached, 0);
    uint32_t heard = said[0].count;
    exl2_job_desc d = job_of(r, 2, &said[2]); /* starts while the model is parked */
    CHECK_INT(exl2_job_start(r->engine, &d, &jobs[2]), EXL2_OK);
    d = job_of(r, 2, &said[3]);
    CHECK_INT(exl2_job_start(r->engine, &d, &doomed), EXL2_OK);
    CHECK_INT(exl2_step(r->engine, NULL), EXL2_IDLE);
    CHECK_INT(exl2_job_cancel(r->engine, doomed), EXL2_OK);
    exl2_step(r->engine, NULL);
    CHECK_INT(said[3].stop, EXL2_STOP_CANCELLED);
    CHECK_INT(said[0].count, heard);
    if (exl2_job_get(r->engine, jobs[1], &info) == EXL2_OK) {
        CHECK_INT(info.state, EXL2_JOB_QUEUED);
    }
    CHECK_INT(exl2_session_get(r->engine, s, &session), EXL2_OK);
    CHECK_INT(session.tokens_cached, 0);
    CHECK_INT(exl2_session_save(r->engine, s, EXL2_SAVE_KV, saved, sizeof saved, &need), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &t), EXL2_OK);
    CHECK_INT(exl2_session_restore(r->engine, t, saved, need), EXL2_OK);
    CHECK_INT(exl2_session_close(r->engine, t), EXL2_OK);
    d = job_of(r, 1, &said[3]);
    CHECK_INT(exl2_generate(r->engine, &d), EXL2_ERR_STATE);
    load_again(r, l);
    CHECK_INT(l->ready, 1);
    CHECK_INT(exl2_model_state(r->engine, r->model), EXL2_OK);
    rig_drain(r, cpu_us);
    for (uint32_t i = 0; i < JOBS; i++) {
        check_same(&said[i], &alone[i]);
    }
    CHECK_INT(stats_of(r).host_bytes, memory);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
    CHECK_INT(exl2_model_park(r->engine, r->model, false), EXL2_OK); /* it is loaded already */
}

/* Files that are gone when the model loads again: it stays parked, and loads when they are back. */
static void broken_files(const rig *r, loads *l)
{
    exl2_job_desc d = job_of(r, 0, &said[0]);
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK);
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    files_broken = true;
    load_again(r, l);
    CHECK_INT(l->failed, 1);
    CHECK_INT(exl2_model_state(r->engine, r->model), EXL2_IDLE);
    CHECK_INT(said[0].done_events, 0);
    files_broken = false;
    load_again(r, l);
    CHECK_INT(l->ready, 1);
    rig_drain(r, 0);
    check_same(&said[0], &alone[0]);
}

/* Other weights behind the first bytes of each tensor: the model stays parked, until the files are as they were. */
static void changed_weights(const rig *r, loads *l)
{
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK);
    weights_changed = true;
    load_again(r, l);
    CHECK_INT(l->failed, 1);
    CHECK(l->changed);
    CHECK_INT(exl2_model_state(r->engine, r->model), EXL2_IDLE);
    weights_changed = false;
    load_again(r, l);
    CHECK_INT(l->ready, 1);
    exl2_job_desc d = job_of(r, 0, &said[0]);
    rig_run(r, &d);
    check_same(&said[0], &alone[0]);
}

static exl2_result in_callback;

static exl2_flow park_in_callback(void *user, const exl2_event *event)
{
    const rig *r = user;
    in_callback = event->kind == EXL2_EVENT_TEXT ? exl2_model_park(r->engine, r->model, true) : in_callback;
    return EXL2_CONTINUE;
}

static void with_worker(rig *r, loads *l)
{
    exl2_job_desc d[2] = { job_of(r, 0, &said[0]), job_of(r, 1, &said[1]) };
    CHECK_INT(exl2_worker_start(r->engine), EXL2_OK);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_INT(exl2_job_start(r->engine, &d[i], NULL), EXL2_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    *l = (loads){ 0 };
    CHECK_INT(exl2_model_park(r->engine, r->model, true), EXL2_OK);
    CHECK_INT(exl2_model_park(r->engine, r->model, false), EXL2_OK);
    while (!l->ready || !said[0].done_events || !said[1].done_events) {
        exl2_step(r->engine, &(exl2_step_desc){ .wait = true });
    }
    CHECK_INT(l->ready, 1);
    check_same(&said[0], &alone[0]);
    check_same(&said[1], &alone[1]);
    CHECK_INT(exl2_worker_stop(r->engine), EXL2_OK);
}

static void check_parking(const char *name, bool keep)
{
    loads l = { 0 };
    exl2_engine_desc d = { 0 };
    exl2_model_desc m = { .path = rig_golden(name), .keep_packed = keep, .on_event = hear_load, .user = &l,
                          .prefill_chunk = 128 }; /* on a GPU larger passes have other bits */
    exl2_model loading;
    plain = exl2__platform_files();
    d.files = plain;
    d.files.open = open_unless_broken;
    d.files.read = read_maybe_changed;
    rig r = rig_open(&d, &m);
    for (uint32_t i = 0; i < JOBS; i++) {
        exl2_job_desc job = job_of(&r, i, &alone[i]);
        rig_run(&r, &job);
    }
    for (uint32_t steps = 0; steps < 40; steps += 6) {
        parks(&r, &l, steps, steps % 4 ? 100 : 0);
    }
    if (!keep) {
        broken_files(&r, &l);
        changed_weights(&r, &l);
    }
    with_worker(&r, &l);
    exl2_job_desc job = rig_job(&r, prompt, 8, 4, NULL);
    job.on_event = park_in_callback;
    job.user = &r;
    rig_run(&r, &job);
    CHECK_INT(in_callback, EXL2_ERR_STATE);
    m.user = &(loads){ 0 };
    CHECK_INT(exl2_model_open(r.engine, &m, &loading), EXL2_OK);
    CHECK_INT(exl2_model_park(r.engine, loading, true), EXL2_ERR_STATE);
    CHECK_INT(exl2_model_close(r.engine, loading), EXL2_OK);
    CHECK_INT(exl2_model_park(r.engine, loading, true), EXL2_ERR_STALE);
    CHECK_INT(exl2_model_park(NULL, loading, true), EXL2_ERR_ARG);
    CHECK_INT(exl2_model_park(r.engine, r.model, true), EXL2_OK);
    if (keep) { /* closed while it loads again */
        CHECK_INT(exl2_model_park(r.engine, r.model, false), EXL2_OK);
        exl2_step(r.engine, &(exl2_step_desc){ .cpu_us = 1 });
    }
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < 200; i++) {
        prompt[i] = (exl2_token)((i * 37 + 11) % 300);
    }
    check_parking("exl2-mixed", false);
    check_parking("exl2-mixed", true);
    check_parking("exl2-qwen3-moe", false);
    check_parking("gemma2", false);
    return check_done();
}
