/* steer_rig.h: what the tests of control vectors share: vectors, models, jobs with sets of them beside each other.
   takes: rig.h.
   gives: shape, vectors, make, make_from, shape_of, open_model, set_of, prompt_of, same, beside.
   A test includes it once. */
#ifndef STEER_RIG_H
#define STEER_RIG_H

#include "rig.h"

#define TOKENS 64
#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA)
#define BOUND (ON_GPU ? 0.15 : 0.02)
#define GPU_ROWS 128 /* of prompts in a pass: up to so many, a row's bits do not depend on them */
#define HIDDEN_MAX 512
#define LAYERS_MAX 8

typedef struct shape {
    uint32_t layers, hidden;
} shape;

/* ---- vectors ---- */

/* Vectors of the layers [first, layers), as tests/golden/steer/make.py has them. */
static void fill_vectors(float *values, shape s, uint32_t k, uint32_t first)
{
    for (uint32_t i = first; i < s.layers; i++) {
        for (uint32_t n = 0; n < s.hidden; n++) {
            uint64_t at = (uint64_t)(i * s.hidden + n) * (7919 + 2 * k);
            values[(size_t)(i - first) * s.hidden + n] = (float)(((double)(at % 401) - 200) / 800);
        }
    }
}

static float *vectors(shape s, uint32_t k, uint32_t first)
{
    static float values[LAYERS_MAX * HIDDEN_MAX];
    fill_vectors(values, s, k, first);
    return values;
}

/* Of the layers [first, s.layers). */
static exl2_steer make_from(const rig *r, shape s, uint32_t k, uint32_t first)
{
    exl2_steer out = { 0 };
    float *values = malloc((size_t)s.layers * s.hidden * sizeof *values);
    fill_vectors(values, s, k, first);
    exl2_steer_desc d = { .model = r->model, .values = values, .first_layer = first, .layer_count = s.layers - first };
    exl2_result result = exl2_steer_make(r->engine, &d, &out);
    if (result < 0) {
        rig_fail(r->engine, "exl2_steer_make", result);
    }
    free(values);
    return out;
}

static exl2_steer make(const rig *r, shape s, uint32_t k) { return make_from(r, s, k, k == 1); }

static shape shape_of(const rig *r)
{
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    return (shape){ info.layers, info.hidden };
}

static rig open_model(const char *name, exl2_model_desc m, uint32_t steers, shape *s)
{
    m.path = rig_golden(name);
    m.steer_max = steers;
    m.prefill_chunk = ON_GPU && m.prefill_chunk == 0 ? GPU_ROWS : m.prefill_chunk;
    rig r = rig_open(NULL, &m);
    *s = shape_of(&r);
    CHECK(s->layers <= LAYERS_MAX && s->hidden <= HIDDEN_MAX);
    return r;
}

/* ---- rows with different vectors ---- */

#define SETS 7
#define JOBS 21

/* Sets with the same number are the same: none, a, a 0.5, b, a + b, b + a, a off. */
static const uint32_t set_class[SETS] = { 0, 1, 2, 3, 4, 4, 0 };

static uint32_t set_of(uint32_t set, exl2_steer a, exl2_steer b, exl2_steer_use out[2])
{
    const exl2_steer_use uses[SETS][2] = { { { { 0 }, 0 } }, { { a, 0 } }, { { a, 0.5f } }, { { b, -1 } },
                                           { { a, 1 }, { b, -1 } }, { { b, -1 }, { a, 1 } }, { { a, EXL2_OFF } } };
    static const uint32_t counts[SETS] = { 0, 1, 1, 1, 2, 2, 1 };
    memcpy(out, uses[set], sizeof uses[set]);
    return counts[set];
}

static uint32_t prompt_of(exl2_token *ids, uint32_t count, uint32_t salt)
{
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (exl2_token)(5 + (i * 37 + salt * 101 + i * i * 3) % 300);
    }
    return count;
}

static bool same(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && a->scored == b->scored && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0
        && memcmp(a->logsumexp, b->logsumexp, a->scored * sizeof *a->logsumexp) == 0;
}

/* On a GPU `most` is at most 16: rows of more sampled tokens have other bits. */
static void beside(const char *model, uint32_t chunk, uint32_t budget_us, uint32_t most)
{
    static rig_said alone[JOBS], together[JOBS], plain;
    exl2_token ids[JOBS][90];
    shape s;
    exl2_model_desc m = { .prefill_chunk = chunk, .batch_max = most, .cache.no_reuse = true };
    rig r = open_model(model, m, 2, &s), bare = open_model(model, m, 0, &s);
    exl2_steer a = make(&r, s, 0), b = make(&r, s, 1);
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < JOBS; i++) {
            exl2_steer_use uses[2];
            rig_said *said = way ? &together[i] : &alone[i];
            exl2_job_desc d = rig_job(&r, ids[i], prompt_of(ids[i], 90, i / SETS), 8, said);
            memset(said, 0, sizeof *said);
            d.prompt.token_count = 2 + i / SETS * 40; /* sets of one round have one prompt */
            d.score_prompt = true;
            d.steers = uses;
            d.steer_count = set_of(i % SETS, a, b, uses);
            if (way) {
                CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
            } else {
                rig_run(&r, &d);
            }
        }
        rig_drain(&r, budget_us);
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK(together[i].done_events == 1 && together[i].count > 0 && same(&alone[i], &together[i]));
        for (uint32_t k = i - i % SETS; k < i; k++) {
            CHECK((set_class[k % SETS] == set_class[i % SETS]) == same(&alone[k], &alone[i]));
        }
        if (set_class[i % SETS] == 0) { /* the bits of a model that was opened without vectors */
            exl2_job_desc d = rig_job(&bare, ids[i], 2 + i / SETS * 40, 8, &plain);
            memset(&plain, 0, sizeof plain);
            d.score_prompt = true;
            rig_run(&bare, &d);
            CHECK(same(&plain, &alone[i]));
        }
    }
    rig_close(&r);
    rig_close(&bare);
}

#endif
