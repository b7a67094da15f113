/* rig.h: what the engine tests share: an engine, a model, jobs that collect their results, JSON of the goldens. A test
   includes it once. The engine is linked, except for tests that define EXL2_IMPLEMENTATION first, with switches of
   their own. */
#ifndef RIG_H
#define RIG_H

#include "../../exl2.h"

#include "private/platform_alloc.h"
#include "private/platform_files.h"
#include "private/json.h"
#include "../check.h"
#include "../device/kernel_folder.h"

#include <math.h>

#ifndef RIG_BACKEND /* the same on every machine; tests/device uses others */
#define RIG_BACKEND EXL2_BACKEND_CPU
#endif

/* ---- an engine with one model ---- */

typedef struct rig {
    exl2_engine *engine;
    exl2_model model;
} rig;

static inline void rig_fail(exl2_engine *e, const char *what, exl2_result r)
{
    exl2_error error = { 0 };
    exl2_last_error(e, &error);
    printf("%s: %s: %s\n", what, exl2_result_name(r), error.text);
    exit(1);
}

/* Limits the instruction set of all engines that rig_open opens. */
static exl2_cpu_path rig_path_max;

/* Does the command line begin with "c", for plain C? Then it is shortened, and rig_open opens engines of this path. */
static inline void rig_read_path(int *argc, char ***argv)
{
    if (*argc > 1 && strcmp((*argv)[1], "c") == 0) {
        rig_path_max = EXL2_CPU_C;
        *argc -= 1;
        *argv += 1;
    }
}

/* With EXL2_TEST_COLUMNS=1, two GPUs share the model's columns, if the test names no GPUs; with another number the
   first one has so many times as many as each other one. With EXL2_TEST_CARDS=3 to 8 there are so many GPUs. */
static inline void rig_share(exl2_engine_desc *d, exl2_model_desc *m)
{
    static exl2_device_desc devices[EXL2_DEVICES_MAX];
    static exl2_card cards[EXL2_DEVICES_MAX];
    const char *columns = getenv("EXL2_TEST_COLUMNS"), *given = getenv("EXL2_TEST_CARDS");
    float times = columns ? (float)atof(columns) : 0;
    int asked = given ? atoi(given) : 2;
    uint32_t count = asked > 2 && asked <= EXL2_DEVICES_MAX ? (uint32_t)asked : 2;
    if (RIG_BACKEND != EXL2_BACKEND_CUDA || times <= 0 || d->device_count || m->card_count) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        devices[i] = (exl2_device_desc){ .pick = EXL2_PICK_INDEX, .index = i };
        cards[i] = (exl2_card){ .device = i, .share = i == 0 ? times : 1 };
    }
    d->devices = devices;
    d->device_count = count;
    m->cards = cards;
    m->card_count = count;
    m->split = EXL2_SPLIT_COLUMNS;
}

/* d NULL: defaults. The backend is RIG_BACKEND; on a machine without it the test is skipped. */
static inline rig rig_open(const exl2_engine_desc *d, const exl2_model_desc *m)
{
    exl2_model_desc model = *m;
    rig r = { 0 };
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc desc = { 0 };
    desc = d ? *d : desc;
    desc.backend = RIG_BACKEND;
    desc.cpu_path_max = rig_path_max ? rig_path_max : desc.cpu_path_max;
    desc.open_error = &error;
    desc.kernel_cache = RIG_BACKEND == EXL2_BACKEND_CUDA ? kernel_folder() : desc.kernel_cache;
    rig_share(&desc, &model);
    exl2_result result = exl2_open(&desc, &r.engine);
    if (result == EXL2_ERR_NO_DEVICE) {
        check_skip(error.text);
    }
    if (result < 0) {
        printf("exl2_open: %s\n", error.text);
        exit(1);
    }
    result = exl2_model_load(r.engine, &model, &r.model);
    if (result < 0) {
        rig_fail(r.engine, m->path, result);
    }
    return r;
}

static inline rig rig_load(const char *path)
{
    exl2_model_desc m = { 0 };
    m.path = path;
    return rig_open(NULL, &m);
}

static inline void rig_close(rig *r)
{
    exl2_close(r->engine);
    r->engine = NULL;
}

/* Path of a tiny model in tests/golden/models. */
static inline const char *rig_golden(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/models/%s", EXL2_GOLDEN_DIR, name);
    return path;
}

/* ---- a job that collects its results ---- */

#define RIG_TOKENS 2048

typedef struct rig_said {
    exl2_token ids[RIG_TOKENS];
    float logprobs[RIG_TOKENS];
    uint32_t count;
    char text[16384];
    uint32_t bytes, text_events, done_events, prefill_events;
    exl2_stop stop;
    exl2_result result;
    char error[256];
    exl2_job_stats stats;
    /* Scores of the prompt's tokens, from the second on. */
    float scores[RIG_TOKENS], logsumexp[RIG_TOKENS];
    exl2_alt alts[RIG_TOKENS][EXL2_ALTS_MAX];
    uint32_t scored, alts_per_token;
    /* What the callback returns. */
    uint32_t stop_after; /* TEXT events; 0 = never */
    exl2_flow flow;      /* returned at that event */
} rig_said;

static inline exl2_flow rig_hear(void *user, const exl2_event *ev)
{
    rig_said *said = (rig_said *)user;
    if (ev->kind == EXL2_EVENT_TEXT) {
        said->text_events++;
        CHECK(ev->text[ev->bytes] == 0); /* the text may contain zero bytes */
        for (uint32_t i = 0; i < ev->token_count && said->count < RIG_TOKENS; i++) {
            said->logprobs[said->count] = ev->tokens[i].logprob;
            said->ids[said->count++] = ev->tokens[i].token;
        }
        if (said->bytes + ev->bytes < sizeof said->text) {
            memcpy(said->text + said->bytes, ev->text, ev->bytes);
            said->bytes += (uint32_t)ev->bytes;
        }
        if (said->stop_after && said->text_events == said->stop_after) {
            return said->flow;
        }
    } else if (ev->kind == EXL2_EVENT_PREFILL) {
        said->prefill_events++;
        said->alts_per_token = ev->alts_per_token;
        for (uint32_t i = 0; i < ev->token_count && said->scored < RIG_TOKENS; i++) {
            said->scores[said->scored] = ev->tokens[i].logprob;
            said->logsumexp[said->scored] = ev->logsumexp[i];
            if (ev->alts_per_token) {
                memcpy(said->alts[said->scored], ev->alts + (size_t)i * ev->alts_per_token,
                       ev->alts_per_token * sizeof(exl2_alt));
            }
            said->scored++;
        }
    } else if (ev->kind == EXL2_EVENT_DONE) {
        said->done_events++;
        said->stop = ev->stop;
        said->result = ev->result;
        said->stats = ev->stats;
        snprintf(said->error, sizeof said->error, "%s", ev->error ? ev->error : "");
    }
    return EXL2_CONTINUE;
}

/* A greedy job on ids whose events are collected in `said`. */
static inline exl2_job_desc rig_job(const rig *r, const exl2_token *ids, uint32_t count, uint32_t max_tokens,
                                    rig_said *said)
{
    exl2_job_desc d = { 0 };
    d.model = r->model;
    d.prompt.tokens = ids;
    d.prompt.token_count = count;
    d.max_tokens = max_tokens;
    d.sampler.preset = EXL2_PRESET_GREEDY;
    d.on_event = rig_hear;
    d.user = said;
    return d;
}

static inline void rig_run(const rig *r, const exl2_job_desc *d)
{
    exl2_result result = exl2_generate(r->engine, d);
    if (result < 0) {
        rig_fail(r->engine, "exl2_generate", result);
    }
}

/* Steps until the engine is idle. */
static inline void rig_drain(const rig *r, uint32_t cpu_us)
{
    exl2_step_desc step = { .cpu_us = cpu_us };
    for (uint32_t i = 0; i < 10000000 && exl2_step(r->engine, &step) != EXL2_IDLE; i++) {
    }
}

/* ---- JSON of goldens, with the engine's own parser ---- */

typedef struct rig_golden_file {
    exl2__ctx c;
    char *text;
    exl2__json json;
} rig_golden_file;

static inline void rig_golden_open(const char *path, rig_golden_file *g)
{
    size_t bytes;
    memset(g, 0, sizeof *g);
    g->c.allocator = exl2__platform_allocator();
    g->text = check_read(path, &bytes);
    if (exl2__json_open(&g->c, path, g->text, bytes, &g->json) < 0) {
        printf("%s\n", g->c.error.text);
        exit(1);
    }
}

static inline void rig_golden_close(rig_golden_file *g)
{
    exl2__json_close(&g->c, &g->json);
    free(g->text);
}

/* The value at `key` of an object, then its i-th element. Exits if it is missing. */
static inline uint32_t rig_golden_at(const rig_golden_file *g, uint32_t object, const char *key, uint32_t i)
{
    uint32_t list = exl2__json_get(&g->json, object, key), item = list ? exl2__json_first(&g->json, list) : 0;
    for (uint32_t n = 0; item && n < i; n++) {
        item = exl2__json_next(&g->json, list, item);
    }
    if (!item) {
        printf("the golden has no %s %u\n", key, i);
        exit(1);
    }
    return item;
}

/* All numbers inside a value, in the order of the text. */
static inline uint32_t rig_golden_numbers(const rig_golden_file *g, uint32_t value, double *out, uint32_t cap)
{
    uint32_t count = 0;
    for (uint32_t i = value; i < g->json.tokens[value].after && count < cap; i++) {
        if (g->json.tokens[i].kind == EXL2__JSON_NUMBER) {
            exl2__json_f64(&g->json, i, &out[count++]);
        }
    }
    return count;
}

static inline uint32_t rig_golden_ids(const rig_golden_file *g, uint32_t value, exl2_token *out, uint32_t cap)
{
    static double numbers[4096];
    uint32_t count = rig_golden_numbers(g, value, numbers, cap < 4096 ? cap : 4096);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (exl2_token)numbers[i];
    }
    return count;
}

#endif
