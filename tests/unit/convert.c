/* convert.c: exl2_convert and exl2_compare on tiny models of several architectures: the calibration pass against the
   goldens, the output against the goldens, resuming after a stop at any point, damaged and foreign work folders, wrong
   arguments, failing allocations; weights that are read in parallel. */
#define _POSIX_C_SOURCE 200809L
#include "../convert_system.h"
#include "../engine_rig.h"

#include "private/compare_models.h"
#include "private/convert.h"
#include "../convert_rig.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 12, LENGTH = 64, VOCAB = 320 };

#define LOGITS_OFF 0.04 /* K and V are f16, as in the engine; the goldens are float64 */

static char work_dir[640];
static const char *const models[] = { "qwen3", "llama3-rope", "starcoder2", "gemma2", "cohere", "phi3-longrope",
                                      "smollm3", "exl2-qwen3-moe", "gptq-phi3" };

static const char *model_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/models/%s", EXL2_GOLDEN_DIR, name);
    return path;
}

/* ---- contexts ---- */

/* Allocations are counted, and fail from a number on. */
typedef struct heap {
    uint64_t left, blocks;
} heap;

static void *heap_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    heap *h = (heap *)user;
    exl2_allocator plain = exl2__platform_allocator();
    if (h->left == 0) {
        return NULL;
    }
    h->left--;
    h->blocks++;
    return plain.alloc_fn(plain.user, bytes, align, tag);
}

static void heap_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    heap *h = (heap *)user;
    exl2_allocator plain = exl2__platform_allocator();
    h->blocks--;
    plain.free_fn(plain.user, memory, bytes, tag);
}

static exl2__ctx context(heap *h)
{
    exl2__ctx c = { 0 };
    c.allocator.alloc_fn = heap_alloc;
    c.allocator.free_fn = heap_free;
    c.allocator.user = h;
    c.files = exl2__platform_files();
    c.cpu_path = exl2__cpu_path_best();
    return c;
}

/* ---- conversions ---- */

typedef struct watch {
    uint32_t calls, stop_at, matrices;
    double kl;
} watch;

static bool on_progress(void *user, const char *stage, float done)
{
    watch *w = (watch *)user;
    CHECK(stage && done >= 0 && done <= 1);
    return w->calls++ != w->stop_at;
}

static void on_matrix(void *user, const exl2_convert_matrix *m)
{
    watch *w = (watch *)user;
    uint32_t rows = 0;
    for (uint32_t bits = 2; bits <= 8; bits++) {
        rows += m->rows[bits];
    }
    CHECK_INT(rows, m->in);
    CHECK(m->loss >= 0 && m->loss < 1 && m->bpw > 2 && m->bpw < 16);
    w->kl += m->kl;
    w->matrices++;
}

static exl2_convert_desc describe(const char *model, float bpw, watch *w)
{
    exl2_convert_desc d = rig_desc(model_path(model), ROWS, LENGTH);
    d.bpw = bpw;
    d.head_bits = 8;
    d.progress = on_progress;
    d.on_matrix = on_matrix;
    d.user = w;
    return d;
}

static exl2_result run(const exl2_convert_desc *d, exl2__ctx *c)
{
    heap h = { UINT64_MAX, 0 };
    *c = context(&h);
    c->parallel = d->parallel;
    exl2_result result = exl2__convert_run(c, d);
    CHECK_INT(h.blocks, 0);
    CHECK_INT(c->host_bytes, 0);
    return result;
}

static bool good(exl2_result result, const exl2__ctx *c)
{
    bool fine = CHECK_INT(result, EXL2_OK);
    if (!fine) {
        printf("  %s\n", c->error.text);
    }
    return fine;
}

static char *output(size_t *bytes)
{
    char path[700];
    snprintf(path, sizeof path, "%s/output.safetensors", out_dir);
    return check_read(path, bytes);
}

/* ---- the calibration pass, and the output, against goldens ---- */

typedef struct golden {
    exl2__json j;
    char *text;
    exl2_token ids[256];
    uint32_t first, count; /* of the sequence's ids */
} golden;

static golden golden_read(const char *model)
{
    golden g = { 0 };
    char path[700];
    size_t bytes;
    exl2__ctx c = context(&(heap){ UINT64_MAX, 0 });
    snprintf(path, sizeof path, "%s/golden.json", model_path(model));
    g.text = check_read(path, &bytes);
    c.allocator = exl2__platform_allocator();
    CHECK_INT(exl2__json_open(&c, "golden.json", g.text, bytes, &g.j), EXL2_OK);
    uint32_t tokens = exl2__json_get(&g.j, 0, "tokens"), row = exl2__json_first(&g.j, tokens);
    row = exl2__json_next(&g.j, tokens, row); /* the second sequence, of 80 ids */
    for (uint32_t at = exl2__json_first(&g.j, row); at; at = exl2__json_next(&g.j, row, at)) {
        uint64_t id = 0;
        CHECK(exl2__json_u64(&g.j, at, &id));
        g.ids[g.count++] = (exl2_token)id;
    }
    return g;
}

static double golden_nll(const golden *g)
{
    double nll = 0;
    uint32_t list = exl2__json_get(&g->j, 0, "nll"), at = exl2__json_first(&g->j, list);
    CHECK(exl2__json_f64(&g->j, exl2__json_next(&g->j, list, at), &nll));
    return nll;
}

static void golden_close(golden *g)
{
    exl2__ctx c = context(&(heap){ UINT64_MAX, 0 });
    c.allocator = exl2__platform_allocator();
    exl2__json_close(&c, &g->j);
    free(g->text);
}

typedef struct last {
    const golden *g;
    uint32_t rows;
    double off; /* largest difference of the last row's logits from the golden's */
} last;

static void on_logits(void *user, uint32_t row, const float *logits)
{
    last *l = (last *)user;
    CHECK_INT(row, l->rows++);
    if (row + 1 == l->g->count) {
        uint32_t list = exl2__json_get(&l->g->j, 0, "logits_last");
        uint32_t values = exl2__json_next(&l->g->j, list, exl2__json_first(&l->g->j, list)), i = 0;
        for (uint32_t at = exl2__json_first(&l->g->j, values); at; at = exl2__json_next(&l->g->j, values, at)) {
            double wanted = 0;
            CHECK(exl2__json_f64(&l->g->j, at, &wanted));
            l->off = fmax(l->off, fabs((double)logits[i++] - wanted));
        }
        CHECK_INT(i, VOCAB);
    }
}

/* What the states are after each layer; the pass layer by layer must give what the pass in one go gives. */
static void check_states(exl2__runner *r, const golden *g)
{
    exl2__cpu_device *d = exl2__runner_cpu(r);
    size_t count = (size_t)g->count * d->hidden_stride;
    float *kept = malloc(count * sizeof *kept);
    CHECK_INT(exl2__runner_begin(r, g->ids, g->count), EXL2_OK);
    CHECK_INT(exl2__runner_embed(r), EXL2_OK);
    for (uint32_t layer = 0; layer < r->plan.shape.layers; layer++) {
        CHECK_INT(exl2__runner_layer(r, layer, NULL, NULL), EXL2_OK);
        memcpy(kept, d->residual, count * sizeof *kept);
        memset(d->residual, 0x7F, count * sizeof *kept); /* NaN: the next layer depends on nothing else */
        memcpy(d->residual, kept, count * sizeof *kept);
        CHECK_INT(exl2__runner_begin(r, g->ids, g->count), EXL2_OK);
    }
    last l = { g, 0, 0 };
    CHECK_INT(exl2__runner_logits(r, on_logits, &l), EXL2_OK);
    CHECK(l.off < LOGITS_OFF);
    free(kept);
}

/* What the engine itself says of the prompt. */
typedef struct scores {
    float logprob[256];
    uint32_t count;
} scores;

static exl2_flow on_score(void *user, const exl2_event *event)
{
    scores *s = (scores *)user;
    if (event->kind == EXL2_EVENT_PREFILL) {
        for (uint32_t i = 0; i < event->token_count; i++) {
            s->logprob[s->count++] = event->tokens[i].logprob;
        }
    }
    CHECK(event->result >= 0);
    return EXL2_CONTINUE;
}

typedef struct own {
    const golden *g;
    const scores *s;
    float first[512];
} own;

static void on_own_logits(void *user, uint32_t row, const float *logits)
{
    own *o = (own *)user;
    exl2__compare_row r = { o->first, 0, 0, 0, 0 };
    exl2__compare_row_make(exl2__cpu_choose(exl2__cpu_path_best()), logits, VOCAB, &r);
    if (row + 1 < o->g->count) {
        CHECK(fabs(exl2__compare_nll(&r, logits, o->g->ids[row + 1]) + (double)o->s->logprob[row]) < 1e-5);
    }
}

/* A whole pass: the logits of all rows of a sequence. */
static exl2_result run_all(exl2__runner *r, const exl2_token *tokens, uint32_t count, exl2__runner_logits_fn fn,
                           void *user)
{
    EXL2__TRY(exl2__runner_begin(r, tokens, count));
    EXL2__TRY(exl2__runner_embed(r));
    for (uint32_t i = 0; i < r->plan.shape.layers; i++) {
        EXL2__TRY(exl2__runner_layer(r, i, NULL, NULL));
    }
    return exl2__runner_logits(r, fn, user);
}

static const uint32_t some_strips[] = { 0, 3, 4, 9 }; /* of the 10 strips of the head */

/* First the logits of all rows, then those of some strips, which must be the same. */
typedef struct strips {
    float logits[64][VOCAB];
    uint32_t rows;
    bool again;
} strips;

static void on_strips(void *user, uint32_t row, const float *logits)
{
    strips *s = (strips *)user;
    if (!s->again && CHECK(row < 64)) {
        memcpy(s->logits[row], logits, sizeof s->logits[row]);
    }
    for (size_t i = 0; i < sizeof some_strips / sizeof some_strips[0]; i++) {
        uint32_t first = some_strips[i] * EXL2__CPU_STRIP;
        CHECK(memcmp(&s->logits[row][first], logits + first, EXL2__CPU_STRIP * sizeof *logits) == 0);
    }
    s->rows++;
}

static void check_strips(exl2__runner *r, const golden *g)
{
    static strips s;
    uint32_t count = g->count < 64 ? g->count : 64;
    exl2__cpu_device *d = exl2__runner_cpu(r);
    s.rows = 0;
    s.again = false;
    CHECK_INT(run_all(r, g->ids, count, on_strips, &s), EXL2_OK);
    memset(d->logits, 0, (size_t)r->plan.logit_rows_max * d->vocab_stride * sizeof *d->logits);
    s.again = true;
    CHECK_INT(exl2__runner_logits_strips(r, some_strips, sizeof some_strips / sizeof some_strips[0], on_strips, &s),
              EXL2_OK);
    CHECK_INT(s.rows, 2 * count);
}

/* Of four strips, the last with 4 tokens, those with at least 95 % of the probability: the one with 3 % can go, and the
   one with 4 % cannot go, too. */
static void test_likely(void)
{
    static const float probabilities[2][4] = { { 0.50f, 0.40f, 0.02f, 0.08f }, { 0.90f, 0.06f, 0.04f, 0.00f } };
    static const uint32_t wanted[] = { 0, 1, 3 };
    static float p[2][128], likely[128], logits[100];
    uint32_t chosen[4];
    double mass[4];
    const float *some;
    exl2__runner r = { .plan = { .logit_rows_max = 1, .shape = { .vocab = 100 } } };
    exl2__compare_row rows[2] = { { .probability = p[0] }, { .probability = p[1] } };
    exl2__measure m = { .r = &r, .probes = 1, .probe_length = 2, .probe = rows, .likely = likely, .strips = chosen };
    for (uint32_t i = 0; i < 100; i++) {
        logits[i] = (float)i;
        p[0][i] = probabilities[0][i / 32] / (i < 96 ? 32 : 4);
        p[1][i] = probabilities[1][i / 32] / (i < 96 ? 32 : 4);
    }
    CHECK(exl2__measure_likely(&m, 0, logits, &some) == 100 && some == logits); /* nothing is chosen yet */
    exl2__measure_choose_strips(&m, mass);
    CHECK(m.strip_count == 3 && memcmp(chosen, wanted, sizeof wanted) == 0);
    if (CHECK_INT(exl2__measure_likely(&m, 0, logits, &some), 68)) {
        for (uint32_t i = 0; i < 68; i++) {
            CHECK(some[i] == (float)(i < 64 ? i : i + 32));
        }
    }
}

/* The calibration pass and the engine give the same probabilities. */
static void check_engine(exl2__runner *r, const golden *g, const char *model)
{
    scores s = { { 0 }, 0 };
    own o = { .g = g, .s = &s };
    exl2_engine_desc e = { 0 };
    exl2_model_desc m = { 0 };
    exl2_job_desc d = { 0 };
    exl2_engine *engine = NULL;
    e.backend = EXL2_BACKEND_CPU;
    m.path = model_path(model);
    m.context_max = 128;
    d.prompt.tokens = g->ids;
    d.prompt.token_count = g->count;
    d.score_prompt = true;
    d.prefill_only = true;
    d.on_event = on_score;
    d.user = &s;
    CHECK_INT(exl2_open(&e, &engine), EXL2_OK);
    CHECK_INT(exl2_model_load(engine, &m, &d.model), EXL2_OK);
    CHECK_INT(exl2_generate(engine, &d), EXL2_OK);
    CHECK_INT(s.count, g->count - 1);
    CHECK_INT(run_all(r, g->ids, g->count, on_own_logits, &o), EXL2_OK);
    exl2_close(engine);
}

static void test_runner(void)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        heap h = { UINT64_MAX, 0 };
        exl2__ctx c = context(&h);
        golden g = golden_read(models[i]);
        exl2__runner r;
        last l = { &g, 0, 0 };
        if (good(exl2__runner_open(&c, model_path(models[i]), g.count, NULL, &r), &c)) {
            CHECK_INT(run_all(&r, g.ids, g.count, on_logits, &l), EXL2_OK);
            if (!CHECK(l.off < LOGITS_OFF)) {
                printf("  %s: logits %.2e off\n", models[i], l.off);
            }
            check_states(&r, &g);
            check_strips(&r, &g);
            check_engine(&r, &g, models[i]);
            exl2__runner_close(&r);
        }
        CHECK_INT(h.blocks, 0);
        golden_close(&g);
    }
}

/* At the top (8 bits, groups of 32) the model predicts as before; at 5 bits the KL divergence is small. */
static void test_quality(void)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        for (int top = i % 3 == 0 ? 0 : 1; top < 2; top++) { /* 5 bits: qwen3, gemma2, smollm3 */
            watch w = { 0, UINT32_MAX, 0, 0 };
            exl2__ctx c;
            exl2_convert_info info = { 0 };
            golden g = golden_read(models[i]);
            exl2_convert_desc d = describe(models[i], top ? 9.0f : 5.0f, &w);
            d.info = &info;
            remove_folder(out_dir);
            if (good(run(&d, &c), &c)) {
                exl2_compare_info compared;
                exl2_compare_desc both = { 0 };
                exl2_error error = { 0 };
                both.a_dir = d.source_dir;
                both.b_dir = out_dir;
                both.tokens = g.ids;
                both.token_count = g.count;
                both.error = &error;
                if (!CHECK_INT(exl2_compare(&both, &compared), EXL2_OK)) {
                    printf("  %s\n", error.text);
                }
                printf("%s at %.2f bits: nll %.4f, golden %.4f, KL %.5f; held out: KL %.5f, predicted %.5f\n",
                       models[i], (double)info.bpw, compared.nll_b, golden_nll(&g), compared.kl, info.kl,
                       info.predicted_kl);
                CHECK(fabs(compared.nll_a - golden_nll(&g)) < 1e-3);
                CHECK(!top || fabs(compared.nll_b - golden_nll(&g)) <= 0.05);
                CHECK(top ? compared.kl < 0.02 && info.bpw > 8 : compared.kl < 0.6 && info.bpw > 4.9f);
                CHECK(top || info.bpw <= 5);
                CHECK(fabs(w.kl - info.predicted_kl) < 1e-12 && w.matrices == info.matrices);
                CHECK(info.rows == ROWS && info.length == LENGTH && info.bytes > 0);
                CHECK(compared.tokens == g.count && compared.kl_p99 >= compared.kl && compared.top1 > 0.2);
            }
            golden_close(&g);
        }
    }
    CHECK(access(work_dir, F_OK) != 0); /* removed after success */
}

/* ---- reading in parallel ---- */

/* Runs tasks from the last to the first. */
static void backwards(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    (void)user;
    for (uint32_t i = count; i-- > 0;) {
        task(arg, i);
    }
}

/* Do all parts have the same weights? Counts their bytes. */
static bool same_matrix(const exl2__matrix *a, const exl2__matrix *b, uint64_t *bytes)
{
    bool same = !a == !b;
    for (uint32_t i = 0; same && a && i < exl2__cpu_matrix_of(a)->count; i++) {
        const exl2__cpu_part *x = &exl2__cpu_matrix_of(a)->parts[i], *y = &exl2__cpu_matrix_of(b)->parts[i];
        same = x->strips * x->strip_bytes == y->strips * y->strip_bytes
            && memcmp(x->data, y->data, (size_t)(x->strips * x->strip_bytes)) == 0;
        *bytes += x->strips * x->strip_bytes;
    }
    return same;
}

static bool same_weights(const exl2__runner *a, const exl2__runner *b, uint64_t *bytes)
{
    bool same = same_matrix(a->plan.embed, b->plan.embed, bytes) && same_matrix(a->plan.head, b->plan.head, bytes);
    for (uint32_t i = 0; i < a->plan.shape.layers; i++) {
        const exl2__layer *x = &a->plan.layers[i], *y = &b->plan.layers[i];
        for (uint32_t role = 0; role < EXL2__ROLE_ROUTER; role++) {
            same = same && same_matrix(x->matrix[role], y->matrix[role], bytes);
        }
        for (uint32_t e = 0; x->matrix[EXL2__ROLE_ROUTER] && e < a->plan.shape.experts.count; e++) {
            for (uint32_t k = 0; k < EXL2__COUNT(x->experts); k++) {
                same = same && same_matrix(x->experts[k][e], y->experts[k][e], bytes);
            }
        }
    }
    return same;
}

/* Files whose bytes from `from` on cannot be read. */
static struct {
    exl2_files plain;
    uint64_t from;
} hole;

static int64_t hole_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    (void)user;
    if (bytes > 0 && offset + bytes > hole.from) {
        return -1;
    }
    return hole.plain.read(hole.plain.user, file, offset, dst, bytes);
}

static void test_parallel(void)
{
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        heap h = { UINT64_MAX, 0 };
        exl2__ctx c = context(&h), d = context(&h);
        exl2__runner in_order, parallel, broken;
        uint64_t bytes = 0;
        d.parallel.run = backwards;
        if (CHECK_INT(exl2__runner_open(&c, model_path(models[i]), 32, NULL, &in_order), EXL2_OK)
            && CHECK_INT(exl2__runner_open(&d, model_path(models[i]), 32, NULL, &parallel), EXL2_OK)) {
            CHECK(same_weights(&in_order, &parallel, &bytes) && bytes > engine_rig.read_most);
            CHECK(exl2__runner_bytes(&parallel, false) == exl2__runner_bytes(&in_order, false) + engine_rig.read_most);
            CHECK(d.host_peak <= exl2__runner_bytes(&parallel, false) + parallel.lists.size + (1u << 20));
        }
        exl2__runner_close(&in_order);
        exl2__runner_close(&parallel);
        hole.plain = d.files;
        for (uint32_t part = 1; part < 4; part++) { /* the first part that cannot be read is named, in any order */
            char texts[2][248] = { { 0 }, { 0 } };
            for (uint32_t k = 0; k < 2; k++) {
                exl2__ctx *one = k ? &d : &c;
                one->files = hole.plain;
                CHECK_INT(exl2__runner_headers(one, model_path(models[i]), 32, NULL, &broken), EXL2_OK);
                one->files.read = hole_read;
                hole.from = 40000 * part;
                CHECK_INT(exl2__runner_load(&broken), EXL2_ERR_IO);
                char *end = strstr(one->error.text, ": reading");
                if (CHECK(end != NULL)) {
                    *end = 0; /* what follows are the bytes of a slice */
                }
                snprintf(texts[k], sizeof texts[k], "%s", one->error.text);
                one->files = hole.plain;
                exl2__runner_close(&broken);
            }
            if (!CHECK(strcmp(texts[0], texts[1]) == 0)) {
                printf("  %s: %s, in parallel %s\n", models[i], texts[0], texts[1]);
            }
        }
        CHECK_INT(h.blocks, 0);
    }
}

/* ---- resuming ---- */

/* Changes a byte in the middle of a file of the work folder. */
static void damage(const char *name)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", work_dir, name);
    FILE *file = fopen(path, "r+b");
    if (CHECK(file != NULL)) {
        fseek(file, 100, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, 100, SEEK_SET);
        fputc(byte ^ 1, file);
        fclose(file);
    }
}

static void test_resume(void)
{
    exl2__ctx c;
    watch w = { 0, UINT32_MAX, 0, 0 };
    exl2_convert_desc d = describe("qwen3", 4.0f, &w);
    size_t bytes, again;
    remove_folder(out_dir);
    good(run(&d, &c), &c);
    uint32_t calls = w.calls;
    char *whole = output(&bytes);
    CHECK(calls > 10);
    /* another order of tasks, as with threads, gives the same bytes */
    remove_folder(out_dir);
    d.parallel.run = backwards;
    d.parallel.width = 3;
    good(run(&d, &c), &c);
    char *other = output(&again);
    CHECK(bytes == again && memcmp(whole, other, bytes) == 0);
    free(other);
    d.parallel.run = NULL;
    for (uint32_t stop = 0; stop < calls; stop += stop + 4 < calls ? 3 : 1) {
        remove_folder(out_dir);
        w = (watch){ 0, stop, 0, 0 };
        if (!CHECK_INT(run(&d, &c), EXL2_ERR_CANCELLED)) {
            printf("  stopped at call %u of %u\n", stop, calls);
        }
        CHECK(access(out_dir, F_OK) != 0);
        if (stop + 2 == calls) {
            damage("layer-0.losses");
            damage("layer-1-0.codes");
        }
        w = (watch){ 0, UINT32_MAX, 0, 0 };
        good(run(&d, &c), &c);
        other = output(&again);
        if (!CHECK(bytes == again && memcmp(whole, other, bytes) == 0)) {
            printf("  stopped at call %u of %u\n", stop, calls);
        }
        free(other);
    }
    free(whole);
}

static void test_foreign(void)
{
    exl2__ctx c;
    watch w = { 0, 8, 0, 0 };
    char path[700];
    remove_folder(out_dir);
    exl2_convert_desc d = describe("qwen3", 4.0f, &w);
    CHECK_INT(run(&d, &c), EXL2_ERR_CANCELLED);
    d.bpw = 4.5f;
    CHECK_INT(run(&d, &c), EXL2_ERR_STATE);
    CHECK(strstr(c.error.text, "bpw in thousandths differs") != NULL);
    d.bpw = 4;
    d.source_dir = model_path("llama3-rope");
    CHECK_INT(run(&d, &c), EXL2_ERR_STATE);
    CHECK(strstr(c.error.text, "source differs") != NULL);
    remove_folder(work_dir);
    CHECK(exl2__platform_make_dir(work_dir));
    snprintf(path, sizeof path, "%s/diary.txt", work_dir);
    fclose(fopen(path, "wb"));
    CHECK_INT(run(&d, &c), EXL2_ERR_STATE);
    CHECK(strstr(c.error.text, "diary.txt") != NULL && access(path, F_OK) == 0);
    remove_folder(work_dir);
    /* a work folder that was asked for stays, and is not needed again */
    w = (watch){ 0, UINT32_MAX, 0, 0 };
    d = describe("qwen3", 4.0f, &w);
    d.work_dir = work_dir;
    good(run(&d, &c), &c);
    CHECK(access(work_dir, F_OK) == 0 && access(out_dir, F_OK) == 0);
    remove_folder(out_dir);
    remove_folder(work_dir);
}

/* ---- what is rejected ---- */

static void check_rejected(exl2_convert_desc d, exl2_result code, const char *piece)
{
    exl2__ctx c;
    CHECK_INT(run(&d, &c), code);
    if (!CHECK(strstr(c.error.text, piece) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", c.error.text, piece);
    }
    CHECK(access(out_dir, F_OK) != 0);
    remove_folder(work_dir);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0);
    fclose(file);
}

static void test_rejected(void)
{
    watch w = { 0, UINT32_MAX, 0, 0 };
    char path[700];
    const char *files[1] = { path };
    exl2_convert_desc d = describe("qwen3", 4.0f, &w);
    remove_folder(out_dir);
    d.bpw = 0;
    check_rejected(d, EXL2_ERR_ARG, "bpw must be");
    d.bpw = 2.01f;
    check_rejected(d, EXL2_ERR_ARG, "this model can have 2.");
    d = describe("qwen3", 4.0f, &w);
    d.head_bits = 7;
    check_rejected(d, EXL2_ERR_ARG, "head_bits is 7");
    d = describe("qwen3", 4.0f, &w);
    d.length = 16;
    check_rejected(d, EXL2_ERR_ARG, "rows of 16 tokens");
    d = describe("qwen3", 4.0f, &w);
    d.source_dir = NULL;
    check_rejected(d, EXL2_ERR_ARG, "source_dir is NULL");
    d = describe("qwen3", 4.0f, &w);
    d._end_canary = 1;
    check_rejected(d, EXL2_ERR_ARG, "exl2_convert_desc was not zeroed");
    CHECK_INT(exl2_convert(NULL), EXL2_ERR_ARG);
    CHECK_INT(exl2_compare(NULL, NULL), EXL2_ERR_ARG);
    check_rejected(describe("no-such-model", 4.0f, &w), EXL2_ERR_IO, "config.json");
    d = describe("qwen3", 4.0f, &w);
    d.calibration_file_count = 0;
    check_rejected(d, EXL2_ERR_ARG, "has no tokenizer, so it cannot write its own text");
    d = describe("qwen3", 4.0f, &w);
    d.calibration_files = files;
    snprintf(path, sizeof path, "%s/text.txt", root);
    write_text(path, "Hello");
    check_rejected(d, EXL2_ERR_ARG, "has no tokenizer, so calibration files must be .json");
    snprintf(path, sizeof path, "%s/text.parquet", root);
    write_text(path, "PAR1");
    check_rejected(d, EXL2_ERR_UNSUPPORTED, "calibration files are .txt");
    snprintf(path, sizeof path, "%s/few.json", root);
    write_text(path, "[1,2,3]");
    check_rejected(d, EXL2_ERR_ARG, "calibration has 3 ids");
    write_text(path, "[1,2,320]");
    check_rejected(d, EXL2_ERR_FORMAT, "expected ids below 320");
    write_text(path, "{\"ids\":1}");
    check_rejected(d, EXL2_ERR_FORMAT, "expected an array of ids");
    write_text(path, "[[1,[2]]]");
    check_rejected(d, EXL2_ERR_FORMAT, "expected ids below 320");
    snprintf(path, sizeof path, "%s/none.json", root);
    check_rejected(d, EXL2_ERR_IO, "none.json: no such file");
}

/* Every allocation fails once: the right code, nothing is leaked, and the conversion continues afterwards. */
static void test_allocations(void)
{
    watch w = { 0, UINT32_MAX, 0, 0 };
    exl2_convert_desc d = describe("qwen3", 4.0f, &w);
    exl2_result result = EXL2_ERR_MEMORY;
    uint64_t count = 0;
    remove_folder(out_dir);
    for (uint64_t step = CHECK_SANITIZED ? 7 : 1; result < 0; count += step) {
        heap h = { count, 0 };
        exl2__ctx c = context(&h);
        w = (watch){ 0, UINT32_MAX, 0, 0 };
        result = exl2__convert_run(&c, &d);
        CHECK(result == EXL2_OK || result == EXL2_ERR_MEMORY);
        CHECK_INT(h.blocks, 0);
        CHECK(result == EXL2_OK || (c.error.text[0] && access(out_dir, F_OK) != 0));
        if (count > 20000) {
            CHECK(false);
            break;
        }
    }
    printf("%llu allocations\n", (unsigned long long)count);
}

/* ---- KL divergence ---- */

static void test_kl(void)
{
    enum { N = 1000 };
    float a[N], b[N], first[1024], second[1024];
    const exl2__cpu_ops *ops = exl2__cpu_choose(exl2__cpu_path_best());
    uint32_t state = 3;
    for (uint32_t round = 0; round < 20; round++) {
        double sums[2] = { 0, 0 }, kl = 0, noise = pow(10, -(double)(round % 5));
        for (uint32_t i = 0; i < N; i++) {
            state = state * 1664525u + 1013904223u;
            a[i] = (float)(state >> 8) / (1 << 24) * 20 - 5;
            state = state * 1664525u + 1013904223u;
            b[i] = a[i] + (float)(noise * ((double)(state >> 8) / (1 << 24) - 0.5));
            sums[0] += exp((double)a[i]);
            sums[1] += exp((double)b[i]);
        }
        for (uint32_t i = 0; i < N; i++) {
            double p = exp((double)a[i]) / sums[0];
            kl += p * (((double)a[i] - log(sums[0])) - ((double)b[i] - log(sums[1])));
        }
        exl2__compare_row row = { first, 0, 0, 0, 0 }, other;
        exl2__compare_row_make(ops, a, N, &row);
        double got = exl2__compare_kl(ops, &row, b, N, second, &other);
        if (!CHECK(fabs(got - kl) < 2e-6 + 1e-4 * kl)) {
            printf("  %.9f, wanted %.9f\n", got, kl);
        }
        CHECK(fabs(exl2__compare_nll(&other, b, 7) - (log(sums[1]) - (double)b[7])) < 1e-5);
    }
}

int main(void)
{
    rig_open((ROWS + 2) * LENGTH, VOCAB);
    snprintf(work_dir, sizeof work_dir, "%s/out.work", root);
    test_kl();
    test_likely();
    test_runner();
    test_quality();
    test_parallel();
    test_resume();
    test_foreign();
    test_rejected();
    test_allocations();
    rig_close();
    return check_done();
}
