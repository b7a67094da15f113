/* embed.c: vectors of prompts. They are those of transformers in float64, and of a reference after each block; the same
   bits in any chunk, budget, batch and order of tasks; nothing is reused where all rows are needed, and what was
   computed is found by others. What has no meaning is rejected, and an end in any state loses nothing.
   takes: the goldens; those of the fixtures, if they are there.
   gives: exit code 0 or 1. */
#include "../device/fake_driver.h"
#include "rig.h"

#define IDS_MAX 256
#define VALUES_MAX 1024

#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA) /* tests/device */

/* fake_engine.c makes tasks small; there is no GPU. */
void machine_tables(exl2__cuda_driver *driver, exl2__cuda_nvrtc *nvrtc)
{
    (void)driver;
    (void)nvrtc;
}

/* What a job gave. */
typedef struct heard {
    float values[VALUES_MAX];
    uint32_t count, embeddings, others, dones;
    exl2_stop stop;
    exl2_result result;
    exl2_job_stats stats;
    char error[256];
    exl2_flow flow; /* returned at the embedding */
} heard;

static exl2_flow hear(void *user, const exl2_event *event)
{
    heard *h = user;
    if (event->kind == EXL2_EVENT_EMBEDDING) {
        CHECK_INT(h->dones, 0);
        h->embeddings++;
        h->count = event->value_count;
        if (CHECK(h->count <= VALUES_MAX)) {
            memcpy(h->values, event->values, h->count * sizeof *h->values);
        }
        return h->flow;
    }
    h->others += event->kind != EXL2_EVENT_DONE;
    if (event->kind == EXL2_EVENT_DONE) {
        h->dones++;
        h->stop = event->stop;
        h->result = event->result;
        h->stats = event->stats;
        snprintf(h->error, sizeof h->error, "%s", event->error ? event->error : "");
    }
    return EXL2_CONTINUE;
}

static exl2_job_desc job_of(const rig *r, const exl2_token *ids, uint32_t count, exl2_embed_pool pool, heard *h)
{
    memset(h, 0, sizeof *h);
    return (exl2_job_desc){ .model = r->model, .prompt = { .tokens = ids, .token_count = count }, .embed.pool = pool,
                            .on_event = hear, .user = h };
}

/* One vector, then DONE, and nothing else. */
static void check_heard(const heard *h, const char *how)
{
    bool good = h->embeddings == 1 && h->others == 0 && h->dones == 1 && h->stop == EXL2_STOP_LENGTH
             && h->result == EXL2_OK && h->stats.new_tokens == 0;
    if (!CHECK(good)) {
        printf("  %s: %u vectors, %u other events, %u ends: %s\n", how, h->embeddings, h->others, h->dones, h->error);
    }
}

static void check_refused(const rig *r, const exl2_job_desc *d, exl2_result wanted, const char *words)
{
    exl2_error error = { 0 };
    exl2_job job;
    CHECK_INT(exl2_job_start(r->engine, d, &job), wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, words) != NULL)) {
        printf("  '%s' does not contain '%s'\n", error.text, words);
    }
}

static exl2_token ids_of(uint32_t i)
{
    return (exl2_token)(3 + (i * i * 7 + i * 31 + 5) % 290);
}

/* ---- goldens ---- */

static double cosine(const float *a, const double *b, uint32_t count)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < count; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * (double)a[i];
        bb += b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

static double farthest(const float *a, const double *b, uint32_t count)
{
    double worst = 0;
    for (uint32_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)a[i] - b[i]));
    }
    return worst;
}

static const struct {
    exl2_embed_pool pool;
    const char *key, *unit;
} pools[] = { { EXL2_EMBED_LAST, "last", "last_unit" }, { EXL2_EMBED_MEAN, "mean", "mean_unit" },
              { EXL2_EMBED_FIRST, "first", "first_unit" } };

/* The numbers at object.key. */
static uint32_t numbers_of(const rig_golden_file *g, uint32_t object, const char *key, double *out)
{
    return rig_golden_numbers(g, exl2__json_get(&g->json, object, key), out, VALUES_MAX);
}

static void test_golden(const char *file, const char *model)
{
    static heard h;
    static double wanted[VALUES_MAX];
    rig_golden_file golden;
    rig_golden_open(file, &golden);
    rig r = rig_load(model);
    double least = 1, most = 0;
    for (uint32_t s = 0; s < 3; s++) {
        exl2_token ids[IDS_MAX];
        uint32_t count = rig_golden_ids(&golden, rig_golden_at(&golden, 0, "tokens", s), ids, IDS_MAX);
        uint32_t vectors = rig_golden_at(&golden, 0, "sequences", s);
        for (uint32_t i = 0; i < 3; i++) {
            for (uint32_t raw = 0; raw < 2; raw++) {
                exl2_job_desc d = job_of(&r, ids, count, pools[i].pool, &h);
                d.embed.raw = raw == 1;
                rig_run(&r, &d);
                check_heard(&h, pools[i].key);
                CHECK_INT(h.count, numbers_of(&golden, vectors, raw ? pools[i].key : pools[i].unit, wanted));
                least = fmin(least, cosine(h.values, wanted, h.count));
                most = raw ? most : fmax(most, farthest(h.values, wanted, h.count));
                CHECK(!raw || farthest(h.values, wanted, h.count) < 0.1); /* their largest components are about 8 */
            }
        }
    }
    CHECK(least >= 0.9995 && most <= 0.01);
    uint32_t layers = exl2__json_get(&golden.json, 0, "layers");
    for (uint32_t layer = ON_GPU ? 2 : 1; layers && layer <= 2; layer++) {
        exl2_token ids[IDS_MAX];
        uint32_t count = rig_golden_ids(&golden, rig_golden_at(&golden, 0, "tokens", 1), ids, IDS_MAX);
        for (uint32_t i = 0; i < 2; i++) {
            exl2_job_desc d = job_of(&r, ids, count, pools[i].pool, &h);
            d.embed.raw = true;
            d.embed.layer = layer;
            rig_run(&r, &d);
            check_heard(&h, "a layer");
            uint32_t block = rig_golden_at(&golden, 0, "layers", layer - 1);
            CHECK_INT(h.count, numbers_of(&golden, block, pools[i].key, wanted));
            CHECK(cosine(h.values, wanted, h.count) > 0.9995 && farthest(h.values, wanted, h.count) < 0.02);
        }
    }
    printf("%s: cosine %.7f, components within %.2g\n", model, least, most);
    rig_close(&r);
    rig_golden_close(&golden);
}

/* ---- the same bits ---- */

static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    while (count) {
        task(arg, --count);
    }
}

#define TEXTS 8u
#define LENGTH 120u

static exl2_token texts[TEXTS][LENGTH];
static heard alone[TEXTS], beside[TEXTS];

static exl2_job_desc text_job(const rig *r, uint32_t i, uint32_t layer, heard *h)
{
    exl2_job_desc d = job_of(r, texts[i], LENGTH - i * 17, i % 4 == 3 ? EXL2_EMBED_LAST : EXL2_EMBED_MEAN, h);
    d.embed.layer = layer;
    return d;
}

static void check_same(const char *how)
{
    for (uint32_t i = 0; i < TEXTS; i++) {
        check_heard(&beside[i], how);
        bool same = alone[i].count == beside[i].count
                 && memcmp(alone[i].values, beside[i].values, alone[i].count * sizeof(float)) == 0;
        if (!CHECK(same)) {
            printf("  %s: text %u differs\n", how, i);
        }
    }
}

/* All texts at once, beside a job that speaks, in steps of cpu_us. */
static void run_together(const rig *r, uint32_t layer, uint32_t cpu_us)
{
    static rig_said said;
    memset(&said, 0, sizeof said);
    exl2_job_desc speaks = rig_job(r, texts[1], 20, 40, &said);
    CHECK_INT(exl2_job_start(r->engine, &speaks, NULL), EXL2_OK);
    for (uint32_t i = 0; i < TEXTS; i++) {
        exl2_job_desc d = text_job(r, i, layer, &beside[i]);
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    rig_drain(r, cpu_us);
    CHECK(said.count == 40 || said.stop == EXL2_STOP_EOS);
}

static void test_bits(const char *name, uint32_t layer)
{
    static const uint32_t chunks[] = { 16, 33, 64 };
    exl2_model_desc m = { .path = rig_golden(name), .cache.tokens = 8192 };
    rig r = rig_open(NULL, &m);
    for (uint32_t i = 0; i < TEXTS; i++) {
        exl2_job_desc d = text_job(&r, i, layer, &alone[i]);
        rig_run(&r, &d);
        check_heard(&alone[i], "alone");
    }
    CHECK(memcmp(alone[0].values, alone[1].values, 64) != 0); /* otherwise the comparison shows nothing */
    run_together(&r, layer, 0);
    check_same("in a batch");
    run_together(&r, layer, 1);
    check_same("in the shortest steps");
    rig_close(&r);
    for (uint32_t c = 0; c < 3; c++) {
        exl2_engine_desc e = { .parallel = { c ? backwards : NULL, c + 1, NULL } };
        m.prefill_chunk = chunks[c];
        m.path = rig_golden(name);
        r = rig_open(&e, &m);
        run_together(&r, layer, c == 1 ? 50 : 0);
        check_same("in chunks");
        rig_close(&r);
    }
}

/* Pages are few, so that jobs are preempted by others in the middle of their prompts, and computed again. */
static void test_preempted(void)
{
    exl2_model_desc m = { .path = rig_golden("qwen3"), .cache.tokens = 256, .context_max = 256, .prefill_chunk = 16 };
    rig r = rig_open(NULL, &m);
    exl2_engine_stats stats;
    for (uint32_t i = 0; i < TEXTS; i++) {
        exl2_job_desc d = text_job(&r, i, 0, &beside[i]);
        d.priority = (int32_t)i;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        for (uint32_t k = 0; k < 3; k++) {
            exl2_step(r.engine, NULL);
        }
    }
    rig_drain(&r, 0);
    exl2_stats(r.engine, &stats);
    CHECK(stats.preemptions > 2);
    check_same("preempted");
    rig_close(&r);
}

/* ---- the cache ---- */

static void test_cache(void)
{
    static heard h[4];
    static rig_said said;
    rig r = rig_load(rig_golden("qwen3"));
    exl2_engine_stats before, after;
    for (uint32_t i = 0; i < 3; i++) { /* MEAN, MEAN, LAST of the same text */
        exl2_job_desc d = job_of(&r, texts[0], LENGTH, i < 2 ? EXL2_EMBED_MEAN : EXL2_EMBED_LAST, &h[i]);
        exl2_job_size size;
        exl2_stats(r.engine, &before);
        CHECK_INT(exl2_job_measure(r.engine, &d, &size), EXL2_OK);
        rig_run(&r, &d);
        exl2_stats(r.engine, &after);
        check_heard(&h[i], "again");
        CHECK_INT(size.reused_tokens, i < 2 ? 0 : LENGTH - 1);
        CHECK_INT(h[i].stats.reused_tokens, i < 2 ? 0 : LENGTH - 1);
        CHECK_INT(after.tokens_in - before.tokens_in, i < 2 ? LENGTH : 1);
        CHECK_INT(after.allocations, before.allocations);
        CHECK_INT(size.max_tokens, 0);
    }
    CHECK(memcmp(h[0].values, h[1].values, h[0].count * sizeof(float)) == 0);
    exl2_job_desc d = job_of(&r, texts[0], LENGTH, EXL2_EMBED_FIRST, &h[3]);
    rig_run(&r, &d);
    CHECK_INT(h[3].stats.reused_tokens, 0);
    memset(&said, 0, sizeof said);
    d = rig_job(&r, texts[0], LENGTH, 1, &said); /* speaks from the pages that an embedding has written */
    rig_run(&r, &d);
    CHECK_INT(said.stats.reused_tokens, LENGTH - 1);
    /* After a history, of which the vector is no part; the history then has the prompt. */
    exl2_session session;
    exl2_session_info info;
    CHECK_INT(exl2_session_open(r.engine, r.model, &session), EXL2_OK);
    for (uint32_t i = 0; i < 2; i++) {
        d = job_of(&r, texts[0] + i * 60, 60, EXL2_EMBED_MEAN, &h[i]);
        d.model.id = 0;
        d.session = session;
        rig_run(&r, &d);
        check_heard(&h[i], "in a session");
        CHECK_INT(h[i].stats.reused_tokens, 0);
    }
    CHECK_INT(exl2_session_get(r.engine, session, &info), EXL2_OK);
    CHECK_INT(info.tokens, 120);
    d = job_of(&r, texts[0] + 60, 60, EXL2_EMBED_MEAN, &h[2]);
    rig_run(&r, &d);
    CHECK(memcmp(h[1].values, h[2].values, h[1].count * sizeof(float)) != 0); /* the history counts as context */
    rig_close(&r);
}

/* ---- what is rejected ---- */

static void never(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    (void)job;
    (void)logits;
    (void)vocab;
}

static void test_rejected(void)
{
    static heard h;
    rig r = rig_load(rig_golden("qwen3"));
    exl2_grammar grammar = { 1 };
    const exl2_job_desc good = job_of(&r, texts[0], 20, EXL2_EMBED_MEAN, &h);
    exl2_job_desc d;
#define REJECTED(change, result, words) (d = good, change, check_refused(&r, &d, result, words))
    REJECTED(d.max_tokens = 1, EXL2_ERR_ARG, "max_tokens");
    REJECTED(d.min_tokens = 1, EXL2_ERR_ARG, "min_tokens");
    REJECTED(d.resume = true, EXL2_ERR_ARG, "resume");
    REJECTED(d.score_prompt = true, EXL2_ERR_ARG, "score_prompt");
    REJECTED(d.heal_prompt = true, EXL2_ERR_ARG, "heal_prompt");
    REJECTED(d.grammar = grammar, EXL2_ERR_ARG, "grammar");
    REJECTED(d.draft.model = r.model, EXL2_ERR_ARG, "draft.model");
    REJECTED(d.draft.ngram = true, EXL2_ERR_ARG, "draft.ngram");
    REJECTED(d.alts_per_token = 1, EXL2_ERR_ARG, "alts_per_token");
    REJECTED((d.guidance = 2, d.negative_prompt = d.prompt), EXL2_ERR_ARG, "guidance");
    REJECTED(d.on_logits = never, EXL2_ERR_ARG, "on_logits");
    REJECTED(d.embed.layer = 3, EXL2_ERR_ARG, "the model has 2 layers");
    REJECTED(d.embed.pool = (exl2_embed_pool)4, EXL2_ERR_ARG, "embed.pool is 4");
    REJECTED((d.embed.pool = EXL2_EMBED_OFF, d.embed.raw = true), EXL2_ERR_ARG, "embed.raw");
    REJECTED((d.embed.pool = EXL2_EMBED_OFF, d.embed.layer = 1), EXL2_ERR_ARG, "embed.layer");
    REJECTED(d.embed._start_canary = 1, EXL2_ERR_ARG, "exl2_embed_desc");
    REJECTED(d.prompt.token_count = 0, EXL2_ERR_ARG, "empty");
    exl2_session session; /* a history alone is no prompt */
    CHECK_INT(exl2_session_open(r.engine, r.model, &session), EXL2_OK);
    d = good;
    d.model.id = 0;
    d.session = session;
    rig_run(&r, &d);
    d.prompt = (exl2_prompt){ 0 };
    check_refused(&r, &d, EXL2_ERR_ARG, "the prompt is empty");
    d = job_of(&r, texts[0], 20, EXL2_EMBED_MEAN, &h);
    d.model.id = 0;
    d.session = session;
    CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    size_t need;
    CHECK_INT(exl2_session_save(r.engine, session, 0, NULL, 0, &need), EXL2_ERR_STATE);
    rig_drain(&r, 0);
    CHECK_INT(exl2_session_save(r.engine, session, 0, NULL, 0, &need), EXL2_OK);
    rig_close(&r);
}

/* ---- events ---- */

static void test_events(void)
{
    static heard h[3];
    exl2_engine_desc e = { .max_jobs = 300, .max_sessions = 300, .max_events = 1 };
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .cache.tokens = 8192, .context_max = 128 };
    rig r = rig_open(&e, &m);
    uint32_t vectors = 0, ends = 0;
    exl2_event event;
    for (uint32_t i = 0; i < 300; i++) { /* more than the ring has room for: the jobs wait, and none is lost */
        exl2_job_desc d = job_of(&r, texts[0] + i, 10, EXL2_EMBED_MEAN, &h[0]);
        d.on_event = NULL;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
    }
    rig_drain(&r, 0);
    while (ends < 300) {
        while (exl2_next_event(r.engine, &event)) {
            vectors += event.kind == EXL2_EVENT_EMBEDDING && event.value_count == 128 && event.values[0] < 1;
            ends += event.kind == EXL2_EVENT_DONE;
            CHECK(vectors >= ends);
        }
        if (!CHECK(exl2_step(r.engine, NULL) != EXL2_IDLE || ends == 300)) {
            break;
        }
    }
    CHECK_INT(vectors, 300);
    for (uint32_t i = 0; i < 3; i++) { /* the callback stops the job, cancelled before its first pass, and in it */
        exl2_job job;
        exl2_job_desc d = job_of(&r, texts[i], 100, EXL2_EMBED_MEAN, &h[i]);
        exl2_step_desc step = { .cpu_us = 1 };
        h[i].flow = i ? EXL2_CONTINUE : EXL2_STOP_JOB;
        CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        for (uint32_t k = 0; i == 2 && k < 3; k++) {
            exl2_step(r.engine, &step);
        }
        exl2_job_cancel(r.engine, i ? job : (exl2_job){ 0 });
        rig_drain(&r, 0);
        CHECK_INT(h[i].dones, 1);
        CHECK_INT(h[i].embeddings, i == 0);
        CHECK_INT(h[i].stop, i ? EXL2_STOP_CANCELLED : EXL2_STOP_LENGTH);
    }
    rig_close(&r);
}

#ifndef EXL2_NO_THREADS
/* The worker writes the event, exl2_step delivers it; a paused job keeps it. */
static void test_worker(void)
{
    static heard h;
    rig r = rig_load(rig_golden("qwen3"));
    for (uint32_t i = 0; i < 2; i++) {
        exl2_job job;
        exl2_job_desc d = text_job(&r, 0, 0, &h);
        CHECK_INT(exl2_worker_start(r.engine), EXL2_OK);
        CHECK_INT(exl2_job_start(r.engine, &d, &job), EXL2_OK);
        for (uint32_t k = 0; k < 1000000 && h.dones == 0; k++) {
            exl2_step_desc step = { .wait = true };
            exl2_step(r.engine, &step);
        }
        check_heard(&h, "by the worker");
        CHECK(ON_GPU || memcmp(h.values, alone[0].values, h.count * sizeof(float)) == 0);
        CHECK_INT(exl2_worker_stop(r.engine), EXL2_OK);
    }
    rig_close(&r);
}
#endif

int main(int argc, char **argv)
{
    char file[1200];
    rig_read_path(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "shared") == 0) {
        test_golden(check_shared("fixtures/embed/qwen3/golden.json"), rig_golden("qwen3"));
        test_golden(check_shared("fixtures/embed/exl2-mixed/golden.json"), rig_golden("exl2-mixed"));
        return check_done();
    }
    snprintf(file, sizeof file, "%s/embed/qwen3.json", EXL2_GOLDEN_DIR);
    test_golden(file, rig_golden("qwen3"));
    for (uint32_t i = 0; i < TEXTS * LENGTH; i++) {
        texts[i / LENGTH][i % LENGTH] = ids_of(i);
    }
    if (!ON_GPU) { /* whose bits depend on the kind of a pass */
        test_bits("gemma2", 1);
        test_bits("exl2-mixed", 0);
        test_bits("qwen3", 1);
        test_bits("qwen3", 0);
        test_preempted();
    }
    test_cache();
    test_rejected();
    test_events();
#ifndef EXL2_NO_THREADS
    test_worker();
#endif
    return check_done();
}
