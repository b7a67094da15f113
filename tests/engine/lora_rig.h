/* lora_rig.h: what the tests of adapters share: a model with two adapters of the fixtures, and jobs with the sets that
   can be made of them.
   takes: rig.h; the shared fixtures (fixtures/lora).
   gives: lora_path, lora_load, lora_open_base, lora_memory, lora_set, lora_pair, lora_set_class, lora_open_pair,
          lora_prompt, lora_job, lora_same, lora_check_reused, lora_reused, lora_check_said. */
#ifndef LORA_RIG_H
#define LORA_RIG_H

#include "rig.h"

#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA)

static const char *lora_path(const char *name, const char *folder)
{
    static char path[4][1100];
    static uint32_t next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/fixtures/lora/%s/%s", check_env("EXL2_TEST_DATA"), name, folder);
    return out;
}

static exl2_lora lora_load(const rig *r, const char *path)
{
    exl2_lora l = { 0 };
    exl2_lora_desc d = { .model = r->model, .path = path };
    exl2_result result = exl2_lora_load(r->engine, &d, &l);
    if (result < 0) {
        rig_fail(r->engine, path, result);
    }
    return l;
}

static uint64_t lora_memory(const exl2_engine_stats *s)
{
    return s->host_bytes + s->device_bytes;
}

static rig lora_open_base(const char *base, uint32_t context, uint32_t loras)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/%s", check_env("EXL2_TEST_DATA"), base);
    exl2_model_desc m = { .path = path, .context_max = context, .lora_max = loras };
    return rig_open(NULL, &m);
}

typedef struct lora_set {
    exl2_lora_use uses[4];
    uint32_t count;
} lora_set;

/* ---- two adapters ---- */

#define LORA_SETS 9

typedef struct lora_pair {
    rig r;
    exl2_lora a, b;
    lora_set sets[LORA_SETS]; /* none, a, b, a + b, b + a, a 0.5, a off, a off + b, a -1 */
} lora_pair;

/* Sets with the same number are the same. */
static const uint32_t lora_set_class[LORA_SETS] = { 0, 1, 2, 3, 3, 4, 0, 2, 5 };

static lora_pair lora_open_pair(const exl2_engine_desc *e, exl2_model_desc m)
{
    static char path[1100];
    lora_pair p;
    snprintf(path, sizeof path, "%s/fixtures/arch/llama", check_env("EXL2_TEST_DATA"));
    m.path = path;
    m.lora_max = 3;
    m.context_max = 256;
    m.cache.tokens = 8192;
    p.r = rig_open(e, &m);
    exl2_lora a = p.a = lora_load(&p.r, lora_path("plain", "a"));
    exl2_lora b = p.b = lora_load(&p.r, lora_path("two-rslora", "b"));
    const lora_set sets[LORA_SETS] = {
        { .count = 0 }, { { { a, 0 } }, 1 }, { { { b, 1 } }, 1 }, { { { a, 1 }, { b, 1 } }, 2 },
        { { { b, 0 }, { a, 1 } }, 2 }, { { { a, 0.5f } }, 1 }, { { { a, EXL2_OFF } }, 1 },
        { { { a, EXL2_OFF }, { b, 1 } }, 2 }, { { { a, -1 } }, 1 }
    };
    memcpy(p.sets, sets, sizeof sets);
    return p;
}

static uint32_t lora_prompt(exl2_token *ids, uint32_t count, uint32_t salt)
{
    uint32_t state = salt * 2654435761u + 12345;
    for (uint32_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (exl2_token)(3 + (state >> 16) % 300);
    }
    return count;
}

static exl2_job_desc lora_job(const lora_pair *p, uint32_t set, const exl2_token *ids, uint32_t count, rig_said *said)
{
    exl2_job_desc d = rig_job(&p->r, ids, count, 10, said);
    memset(said, 0, sizeof *said);
    d.loras = p->sets[set].uses;
    d.lora_count = p->sets[set].count;
    d.score_prompt = true;
    return d;
}

static bool lora_same(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && a->scored == b->scored && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0
        && memcmp(a->scores, b->scores, a->scored * sizeof *a->scores) == 0
        && memcmp(a->logsumexp, b->logsumexp, a->scored * sizeof *a->logsumexp) == 0;
}

/* A GPU may compute the last rows of a prompt again, in products of another size. */
static void lora_check_reused(uint32_t got, uint32_t wanted)
{
    CHECK(got <= wanted && got >= (ON_GPU ? wanted / 64 * 64 : wanted));
}

/* Tokens that a job with the set finds in the cache. The estimate must agree. */
static uint32_t lora_reused(const lora_pair *p, exl2_session session, uint32_t set, const exl2_token *ids,
                            uint32_t count)
{
    static rig_said said;
    exl2_job_size size;
    exl2_job_desc d = lora_job(p, set, ids, count, &said);
    d.score_prompt = false;
    d.prefill_only = true;
    d.session = session;
    CHECK_INT(exl2_job_measure(p->r.engine, &d, &size), EXL2_OK);
    rig_run(&p->r, &d);
    CHECK_INT(size.reused_tokens, said.stats.reused_tokens);
    return said.stats.reused_tokens;
}

static void lora_check_said(exl2_engine *e, exl2_result got, exl2_result wanted, const char *word)
{
    exl2_error error = { EXL2_OK, 0, "" };
    CHECK_INT(got, wanted);
    exl2_last_error(e, &error);
    /* a '%' would be a conversion that exl2__format does not have */
    if (!CHECK(strstr(error.text, word) != NULL && strchr(error.text, '%') == NULL)) {
        printf("  \"%s\" should hold \"%s\", and no %%\n", error.text, word);
    }
}

#endif
