/* lora_life.c: adapters that come and go beside jobs: closed under a job, loaded beside one, saved with its session,
   parked with its model; errors and memory. -DRIG_BACKEND=EXL2_BACKEND_CUDA: on a GPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "../adapter_maker.h"
#include "lora_rig.h"

#include <unistd.h>

/* ---- closing, loading beside jobs ---- */

/* A job keeps its adapter: the words are those of the whole adapter, and the memory is free after its DONE. */
static void check_close_under_job(uint32_t steps)
{
    static rig_said whole, said;
    exl2_token ids[100];
    exl2_engine_stats loaded, after;
    exl2_lora_info info;
    exl2_model_desc m = { .prefill_chunk = 16 };
    lora_pair p = lora_open_pair(NULL, m);
    lora_prompt(ids, 100, 11);
    CHECK_INT(exl2_lora_get(p.r.engine, p.a, &info), EXL2_OK);
    exl2_job_desc d = lora_job(&p, 1, ids, 100, &whole);
    rig_run(&p.r, &d);
    d = lora_job(&p, 1, ids, 100, &said);
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
    exl2_stats(p.r.engine, &loaded);
    for (uint32_t i = 0; i < steps; i++) {
        exl2_step_desc step = { .cpu_us = 1 };
        exl2_step(p.r.engine, &step);
    }
    CHECK_INT(exl2_lora_close(p.r.engine, p.a), EXL2_OK);
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_ERR_STALE);
    exl2_stats(p.r.engine, &after);
    CHECK(lora_memory(&after) == lora_memory(&loaded));
    rig_drain(&p.r, 0);
    CHECK(said.done_events == 1 && said.result == EXL2_OK && lora_same(&whole, &said));
    exl2_stats(p.r.engine, &after);
    CHECK_INT(lora_memory(&loaded) - lora_memory(&after), info.bytes);
    rig_close(&p.r);
}

typedef struct load_said {
    exl2_engine *engine;
    uint32_t events, last;
    exl2_result result;
    float progress;
    bool close;
} load_said;

static exl2_flow hear_load(void *user, const exl2_event *ev)
{
    load_said *said = (load_said *)user;
    CHECK(ev->kind == EXL2_EVENT_LOAD && ev->lora.id != 0 && ev->model.id != 0);
    CHECK(ev->progress >= said->progress);
    said->progress = ev->progress;
    said->events++;
    said->last += ev->result != EXL2_PENDING;
    said->result = ev->result;
    if (said->close) {
        CHECK_INT(exl2_lora_close(said->engine, ev->lora), EXL2_OK);
    }
    return EXL2_CONTINUE;
}

/* A load in frames beside a job that speaks, whose bits it does not change; with a worker; closed in its callback. */
static void check_load_beside(bool worker, bool close)
{
    static rig_said whole, said;
    exl2_token ids[64];
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ 0 });
    load_said heard = { .engine = p.r.engine, .close = close };
    exl2_lora l;
    exl2_lora_desc load = { .model = p.r.model, .path = lora_path("two-rslora", "a"), .on_event = hear_load,
                            .user = &heard };
    lora_prompt(ids, 64, 5);
    exl2_job_desc d = lora_job(&p, 3, ids, 64, &whole);
    rig_run(&p.r, &d);
    d = lora_job(&p, 3, ids, 64, &said);
    if (worker) {
        CHECK_INT(exl2_worker_start(p.r.engine), EXL2_OK);
    }
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
    CHECK_INT(exl2_lora_open(p.r.engine, &load, &l), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && (!said.done_events || (!close && heard.last == 0)); i++) {
        exl2_step_desc step = { .cpu_us = 100, .wait = true };
        exl2_step(p.r.engine, &step);
    }
    if (worker) {
        CHECK_INT(exl2_worker_stop(p.r.engine), EXL2_OK);
    }
    CHECK_INT(said.done_events, 1);
    CHECK(lora_same(&whole, &said));
    CHECK_INT(exl2_lora_state(p.r.engine, l), close ? EXL2_ERR_STALE : EXL2_OK);
    CHECK(close ? heard.events == 1 : heard.last == 1 && heard.result == EXL2_OK && heard.progress >= 1);
    rig_close(&p.r);
}

/* ---- errors, memory ---- */

static exl2_result start(const lora_pair *p, const exl2_lora_use *uses, uint32_t count)
{
    static rig_said said;
    const exl2_token ids[] = { 5, 6, 7 };
    exl2_job_desc d = rig_job(&p->r, ids, 3, 1, &said);
    exl2_job_size size;
    d.loras = uses;
    d.lora_count = count;
    exl2_result measured = exl2_job_measure(p->r.engine, &d, &size), r = exl2_job_start(p->r.engine, &d, NULL);
    CHECK_INT(measured, r);
    return r;
}

static void check_errors(void)
{
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ .lora_rank_max = 16 });
    exl2_engine *e = p.r.engine;
    rig other = { e, { 0 } };
    exl2_lora l = { 0 }, far;
    exl2_lora_info info;
    char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/arch/llama", check_env("EXL2_TEST_DATA"));
    exl2_model_desc m = { .path = path };
    CHECK_INT(exl2_model_load(e, &m, &other.model), EXL2_OK);
    exl2_lora_desc d = { .model = other.model, .path = lora_path("plain", "a") };
    lora_check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_STATE, "lora_max");
    lora_check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_STATE, "lora_max");
    CHECK_INT(exl2_model_close(e, other.model), EXL2_OK);
    lora_check_said(e, exl2_lora_open(e, &d, &l), EXL2_ERR_STALE, "model");
    m.lora_max = 1;
    m.lora_rank_max = 7;
    CHECK_INT(exl2_model_load(e, &m, &other.model), EXL2_OK);
    d.model = other.model;
    lora_check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_BUDGET, "rank 8, but exl2_model_desc.lora_rank_max is 7");
    CHECK(l.id == 0);
    d.path = lora_path("two-rslora", "a");
    CHECK_INT(exl2_lora_load(e, &d, &far), EXL2_OK);
    lora_check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_BUDGET, "lora_max is 1");
    d.path = "no/such/folder";
    lora_check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_IO, "adapter_config.json");
    lora_check_said(e, exl2_lora_measure(e, &d, NULL), EXL2_ERR_ARG, "out");
    d.path = NULL;
    lora_check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_ARG, "path");
    const float zero = 0, bad[] = { 101, -101, 1 / zero, -1 / zero, zero / zero, -999 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lora_check_said(e, start(&p, (exl2_lora_use[]){ { p.a, bad[i] } }, 1), EXL2_ERR_ARG, "scale");
    }
    lora_check_said(e, start(&p, (exl2_lora_use[]){ { p.a, 1 }, { p.a, 2 } }, 2), EXL2_ERR_ARG, "twice");
    lora_check_said(e, start(&p, (exl2_lora_use[]){ { far, 1 } }, 1), EXL2_ERR_ARG, "another model");
    lora_check_said(e, start(&p, (exl2_lora_use[]){ { { 0 }, 1 } }, 1), EXL2_ERR_STALE, "lora handle 0");
    lora_check_said(e, start(&p, (exl2_lora_use[9]){ { p.a, 1 } }, 9), EXL2_ERR_ARG, "at most 8");
    lora_check_said(e, start(&p, NULL, 1), EXL2_ERR_ARG, "NULL");
    d = (exl2_lora_desc){ .model = p.r.model, .path = lora_path("two-rslora", "a") };
    CHECK_INT(exl2_lora_open(e, &d, &l), EXL2_OK);
    CHECK_INT(exl2_lora_state(e, l), EXL2_PENDING);
    lora_check_said(e, start(&p, (exl2_lora_use[]){ { l, 1 } }, 1), EXL2_ERR_STATE, "loading");
    CHECK_INT(exl2_lora_close(e, l), EXL2_OK);
    CHECK_INT(exl2_lora_state(e, l), EXL2_ERR_STALE);
    CHECK_INT(exl2_lora_get(e, l, &info), EXL2_ERR_STALE);
    d.path = lora_path("dora", "a");
    CHECK_INT(exl2_lora_open(e, &d, &l), EXL2_OK);
    rig_drain(&p.r, 0);
    lora_check_said(e, exl2_lora_state(e, l), EXL2_ERR_UNSUPPORTED, "use_dora");
    lora_check_said(e, start(&p, (exl2_lora_use[]){ { l, 1 } }, 1), EXL2_ERR_STATE, "did not load");
    rig_close(&p.r);
}

/* ---- callbacks that close ---- */

typedef struct closer {
    exl2_engine *engine;
    bool at_once;       /* at the first LOAD event; else at the last one */
    exl2_result result; /* of the last LOAD event */
    uint32_t closed;
} closer;

static exl2_flow close_adapter(void *user, const exl2_event *event)
{
    closer *c = user;
    c->result = event->result;
    if (!c->closed && (c->at_once || event->result != EXL2_PENDING)) {
        CHECK_INT(exl2_lora_close(c->engine, event->lora), EXL2_OK);
        CHECK_INT(exl2_lora_close(c->engine, event->lora), EXL2_ERR_STALE); /* another error since */
        c->closed++;
    }
    return EXL2_CONTINUE;
}

/* exl2_lora_load says why an adapter failed, also if the callback that hears of it closes the adapter. */
static void check_closed_in_callback(void)
{
    rig r = lora_open_base("arch/llama", 256, 1);
    exl2_engine_stats before, after;
    exl2_lora l = { 7 };
    closer c = { .engine = r.engine };
    exl2_lora_desc d = { .model = r.model, .path = lora_path("dora", "a"), .on_event = close_adapter, .user = &c };
    exl2_stats(r.engine, &before);
    for (int i = 0; i < 2; i++) { /* lora_max is 1: the place is free again */
        c = (closer){ .engine = r.engine };
        lora_check_said(r.engine, exl2_lora_load(r.engine, &d, &l), EXL2_ERR_UNSUPPORTED, "use_dora");
        CHECK(c.closed == 1 && c.result == EXL2_ERR_UNSUPPORTED && l.id == 0);
    }
    d.path = lora_path("plain", "a");
    for (int i = 0; i < 2; i++) {
        c = (closer){ .engine = r.engine, .at_once = i == 0 };
        lora_check_said(r.engine, exl2_lora_load(r.engine, &d, &l), EXL2_ERR_CANCELLED, "closed while it loaded");
        CHECK(c.closed == 1 && c.result == (i == 0 ? EXL2_PENDING : EXL2_OK) && l.id == 0);
    }
    exl2_stats(r.engine, &after);
    CHECK_INT(lora_memory(&after), lora_memory(&before));
    d.on_event = NULL;
    CHECK_INT(exl2_lora_load(r.engine, &d, &l), EXL2_OK);
    rig_close(&r);
}

/* A value that no power of two makes a half. */
static void check_large(void)
{
    static const adapter_matrix one = { "model.layers.0.self_attn.q_proj", 64, 64 };
    char folder[] = "/tmp/exl2-large-XXXXXX", path[64];
    const float large = 3e38f;
    uint64_t header = 0;
    CHECK(mkdtemp(folder) != NULL);
    adapter_write(folder, &one, 1);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    FILE *file = fopen(path, "r+b");
    CHECK(file && fread(&header, 8, 1, file) == 1 && fseek(file, (long)(8 + header), SEEK_SET) == 0
          && fwrite(&large, sizeof large, 1, file) == 1 && fclose(file) == 0);
    rig r = lora_open_base("arch/llama", 256, 1);
    exl2_lora l;
    exl2_lora_desc d = { .model = r.model, .path = folder };
    lora_check_said(r.engine, exl2_lora_load(r.engine, &d, &l), EXL2_ERR_FORMAT, "has a value of 2^127 or more");
    rig_close(&r);
    remove(path);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    remove(path);
    rmdir(folder);
}

/* exl2_lora_measure predicts the memory to the byte; a cap one byte below it refuses the adapter. */
static void check_memory(void)
{
    exl2_engine_stats before, after;
    exl2_lora_info measured, info;
    rig r = lora_open_base("exl2/exl2-mixed", 0, 2);
    exl2_lora_desc d = { .model = r.model, .path = lora_path("exl2-mixed", "a") };
    CHECK_INT(exl2_lora_measure(r.engine, &d, &measured), EXL2_OK);
    exl2_stats(r.engine, &before);
    exl2_lora l = lora_load(&r, d.path);
    exl2_stats(r.engine, &after);
    CHECK_INT(lora_memory(&after) - lora_memory(&before), measured.bytes);
    CHECK_INT(exl2_lora_get(r.engine, l, &info), EXL2_OK);
    CHECK(info.bytes == measured.bytes && info.rank_max == 16 && info.matrices == 14);
    CHECK(ON_GPU ? info.device_bytes > 0 && info.device_bytes < info.bytes : info.device_bytes == 0);
    CHECK(info.content_id[0] | info.content_id[5] | info.content_id[9]);
    CHECK_INT(exl2_lora_close(r.engine, l), EXL2_OK);
    exl2_stats(r.engine, &after);
    CHECK_INT(lora_memory(&after), lora_memory(&before));
    rig_close(&r);
}

/* Adapters are loaded until the cap refuses one: it has no room for the predicted bytes, and nothing is lost. */
static void check_cap(void)
{
    exl2_engine_stats stats;
    exl2_lora_info info;
    exl2_lora l;
    rig r = lora_open_base("exl2/exl2-mixed", 0, 64);
    exl2_stats(r.engine, &stats);
    rig_close(&r);
    exl2_engine_desc e = { .host_bytes_max = stats.host_peak + 100000 };
    char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/exl2/exl2-mixed", check_env("EXL2_TEST_DATA"));
    exl2_model_desc m = { .path = path, .lora_max = 64 };
    r = rig_open(&e, &m);
    exl2_lora_desc d = { .model = r.model, .path = lora_path("exl2-mixed", "a") };
    CHECK_INT(exl2_lora_measure(r.engine, &d, &info), EXL2_OK);
    uint32_t loaded = 0;
    uint64_t before = 0;
    for (exl2_result result = EXL2_OK; result == EXL2_OK; loaded += result == EXL2_OK) {
        exl2_stats(r.engine, &stats);
        before = stats.host_bytes;
        result = exl2_lora_load(r.engine, &d, &l);
        CHECK(result == EXL2_OK || result == EXL2_ERR_BUDGET);
        exl2_stats(r.engine, &stats);
        CHECK_INT(stats.host_bytes - before, result == EXL2_OK ? info.bytes : 0);
        CHECK(stats.host_peak <= e.host_bytes_max);
    }
    CHECK(loaded > 0 && loaded < 64 && before + 2 * info.bytes > e.host_bytes_max);
    rig_close(&r);
}

/* ---- snapshots, parking ---- */

static uint8_t saved[1u << 20];
static size_t saved_bytes;

static exl2_job_desc session_job(const lora_pair *p, exl2_session session, uint32_t set, rig_said *said)
{
    exl2_job_desc d = rig_job(&p->r, NULL, 0, 0, said);
    memset(said, 0, sizeof *said);
    d.model.id = 0;
    d.session = session;
    d.loras = p->sets[set].uses;
    d.lora_count = p->sets[set].count;
    d.resume = true;
    return d;
}

static exl2_session restored(const lora_pair *p)
{
    exl2_session s;
    CHECK_INT(exl2_session_open(p->r.engine, p->r.model, &s), EXL2_OK);
    CHECK_INT(exl2_session_restore(p->r.engine, s, saved, saved_bytes), EXL2_OK);
    return s;
}

static uint32_t tokens_cached(const lora_pair *p, exl2_session s)
{
    exl2_session_info info;
    CHECK_INT(exl2_session_get(p->r.engine, s, &info), EXL2_OK);
    return info.tokens_cached;
}

/* A job with the set is saved in the middle of its text, and goes on in an engine that has loaded its adapters in
   another order. */
static void check_snapshot(uint32_t set, uint32_t flags)
{
    static rig_said whole, first, rest;
    exl2_token ids[150];
    exl2_session s;
    exl2_job job;
    lora_prompt(ids, 100, 21);
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ 0 });
    exl2_job_desc d = lora_job(&p, set, ids, 100, &whole);
    d.score_prompt = false;
    d.max_tokens = 30;
    rig_run(&p.r, &d);
    CHECK_INT(exl2_session_open(p.r.engine, p.r.model, &s), EXL2_OK);
    memset(&first, 0, sizeof first);
    first.stop_after = 9;
    first.flow = EXL2_PAUSE_JOB;
    d.model.id = 0;
    d.session = s;
    d.user = &first;
    CHECK_INT(exl2_job_start(p.r.engine, &d, &job), EXL2_OK);
    while (first.text_events < 9 && exl2_step(p.r.engine, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE) {
    } /* a thousand steps that do not wait end before a GPU has said a token */
    CHECK_INT(first.text_events, 9);
    CHECK_INT(exl2_session_save(p.r.engine, s, flags, saved, sizeof saved, &saved_bytes), EXL2_OK);
    CHECK_INT(exl2_session_save(p.r.engine, s, flags, NULL, 0, &saved_bytes), EXL2_OK);
    rig_close(&p.r);

    p = lora_open_pair(NULL, (exl2_model_desc){ 0 });
    CHECK_INT(exl2_lora_close(p.r.engine, p.a), EXL2_OK);
    p.a = lora_load(&p.r, lora_path("plain", "a"));
    for (uint32_t i = 0; i < LORA_SETS; i++) {
        for (uint32_t k = 0; k < p.sets[i].count; k++) {
            p.sets[i].uses[k].lora = p.sets[i].uses[k].lora.id == p.b.id ? p.b : p.a;
        }
    }
    s = restored(&p);
    CHECK(flags ? tokens_cached(&p, s) > 100 : tokens_cached(&p, s) == 0);
    for (uint32_t other = 0; other < LORA_SETS; other++) {
        d = session_job(&p, s, other, &rest);
        if (lora_set_class[other] != lora_set_class[set]) {
            bool lacks = set != 0 && !(set == 1 && other == 3) && !(set == 2 && other == 3);
            lora_check_said(p.r.engine, exl2_job_start(p.r.engine, &d, NULL), EXL2_ERR_ARG, lacks && set != 0
                       && !(lora_set_class[other] == 3 && set < 3) ? "which the desc lacks" : "but the saved job had");
        }
    }
    d = session_job(&p, s, set, &rest);
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
    rig_drain(&p.r, 0);
    CHECK_INT(rest.result, EXL2_OK);
    if (!ON_GPU || set != 0) {
        CHECK_INT(first.count + rest.count, whole.count);
        CHECK(memcmp(whole.ids, first.ids, first.count * sizeof *first.ids) == 0);
        CHECK(memcmp(whole.ids + first.count, rest.ids, rest.count * sizeof *rest.ids) == 0);
    }

    /* K and V of the snapshot serve its set alone, and this session. */
    for (uint32_t other = 0; other < 6; other++) {
        s = restored(&p);
        uint32_t cached = tokens_cached(&p, s);
        CHECK(flags ? cached > 100 : true);
        CHECK_INT(exl2_session_rewind(p.r.engine, s, 0), EXL2_OK);
        lora_prompt(ids, 100, 21);
        uint32_t found = lora_reused(&p, s, other, ids, 100);
        if (flags) {
            lora_check_reused(found, lora_set_class[other] == lora_set_class[set] ? 99 : 0);
        }
    }
    rig_close(&p.r);

    /* A model without adapters has the history, and cannot go on with the job. */
    rig plain = lora_open_base("arch/llama", 256, 0);
    p.r = plain;
    s = restored(&p);
    CHECK_INT(tokens_cached(&p, s), set || !flags ? 0 : tokens_cached(&p, s));
    p.sets[0].count = 0;
    d = session_job(&p, s, 0, &rest);
    if (set) {
        size_t need;
        lora_check_said(plain.engine, exl2_job_start(plain.engine, &d, NULL), EXL2_ERR_ARG,
                        set == 5 ? "scale 0.500, which the desc lacks" : "scale 1.000, which the desc lacks");
        lora_check_said(plain.engine, exl2_session_save(plain.engine, s, 0, NULL, 0, &need), EXL2_ERR_STATE,
                        "adapters");
    }
    rig_close(&plain);
}

/* Parked in the middle of a text, and loaded again: the same words; the adapter's memory is given back. */
static void check_park(bool keep_packed)
{
    static rig_said whole, said;
    exl2_token ids[64];
    exl2_engine_stats loaded, parked;
    exl2_lora_info info;
    exl2_lora l;
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ .keep_packed = keep_packed });
    lora_prompt(ids, 64, 9);
    exl2_job_desc d = lora_job(&p, 3, ids, 64, &whole);
    d.max_tokens = 20;
    rig_run(&p.r, &d);
    d = lora_job(&p, 3, ids, 64, &said);
    d.max_tokens = 20;
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
    for (uint32_t i = 0; i < 8; i++) {
        exl2_step(p.r.engine, NULL);
    }
    exl2_lora_desc more = { .model = p.r.model, .path = lora_path("two-rslora", "a") };
    CHECK_INT(exl2_lora_open(p.r.engine, &more, &l), EXL2_OK); /* its load goes on later */
    CHECK_INT(exl2_lora_get(p.r.engine, p.a, &info), EXL2_OK);
    exl2_stats(p.r.engine, &loaded);
    CHECK_INT(exl2_model_park(p.r.engine, p.r.model, true), EXL2_OK);
    exl2_stats(p.r.engine, &parked);
    CHECK(lora_memory(&loaded) - lora_memory(&parked) >= (keep_packed ? info.device_bytes : info.bytes));
    lora_check_said(p.r.engine, exl2_lora_open(p.r.engine, &more, &l), EXL2_ERR_STATE, "parked");
    CHECK_INT(exl2_lora_close(p.r.engine, p.b), EXL2_OK); /* the job has it */
    CHECK_INT(exl2_model_park(p.r.engine, p.r.model, false), EXL2_OK);
    rig_drain(&p.r, 0);
    CHECK(said.done_events == 1 && said.result == EXL2_OK);
    CHECK_INT(said.count, whole.count);
    CHECK(memcmp(said.ids, whole.ids, said.count * sizeof *said.ids) == 0);
    CHECK_INT(exl2_lora_state(p.r.engine, l), EXL2_ERR_STALE); /* the failed open has set no handle */
    rig_close(&p.r);
}

int main(int argc, char **argv)
{
    rig_read_path(&argc, &argv);
    check_shared("fixtures/lora/README.md");
    for (uint32_t steps = 0; steps < 40; steps += 3) {
        check_close_under_job(steps);
    }
    for (uint32_t i = 0; i < 4; i++) {
        check_load_beside(i % 2, i / 2);
        check_snapshot(i, 0);
        check_snapshot(i, EXL2_SAVE_KV);
    }
    check_snapshot(5, EXL2_SAVE_KV); /* a scale that is not 1 */
    check_park(false);
    check_park(true);
    check_errors();
    check_large();
    check_closed_in_callback();
    check_memory();
    ON_GPU ? (void)0 : check_cap(); /* of host memory */
    return check_done();
}
