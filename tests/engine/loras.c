/* loras.c: jobs with adapters. Scores and greedy texts of all sets of fixtures/lora against float64; rows with
   different sets beside each other give the bits that they give alone; K and V never cross sets; errors, closing,
   memory. -DRIG_BACKEND=EXL2_BACKEND_CUDA: on a GPU, whose rows without adapters may differ in their last bits. */
#include "rig.h"

#define ON_GPU (RIG_BACKEND == EXL2_BACKEND_CUDA)
#define TOKENS 64
#define TOPS 6
#define LOGIT_BOUND (ON_GPU ? 0.15 : 0.1)
#define LOGSUMEXP_BOUND LOGIT_BOUND

static const char *lora_path(const char *name, const char *folder)
{
    static char path[4][1100];
    static uint32_t next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/fixtures/lora/%s/%s", check_env("EXL2_TEST_DATA"), name, folder);
    return out;
}

static exl2_lora load(const rig *r, const char *path)
{
    exl2_lora l = { 0 };
    exl2_lora_desc d = { .model = r->model, .path = path };
    exl2_result result = exl2_lora_load(r->engine, &d, &l);
    if (result < 0) {
        rig_fail(r->engine, path, result);
    }
    return l;
}

static uint64_t memory_of(const exl2_engine_stats *s)
{
    return s->host_bytes + s->device_bytes;
}

static rig open_base(const char *base, uint32_t context, uint32_t loras)
{
    static char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/%s", check_env("EXL2_TEST_DATA"), base);
    exl2_model_desc m = { .path = path, .context_max = context, .lora_max = loras };
    return rig_open(NULL, &m);
}

/* ---- goldens ---- */

typedef struct golden_set {
    exl2_lora_use uses[4];
    uint32_t count;
} golden_set;

/* Adapters of the folders "a" and "b", in the order of the golden's set, or the other way round. */
static golden_set set_of(const rig_golden_file *g, uint32_t set, const exl2_lora *loras, bool reversed)
{
    golden_set out = { .count = 0 };
    uint32_t list = exl2__json_get(&g->json, set, "adapters");
    for (uint32_t at = exl2__json_first(&g->json, list); at; at = exl2__json_next(&g->json, list, at)) {
        double scale = 0;
        exl2__json_f64(&g->json, exl2__json_get(&g->json, at, "scale"), &scale);
        bool b = exl2__json_is(&g->json, exl2__json_get(&g->json, at, "folder"), "b");
        out.uses[out.count++] = (exl2_lora_use){ loras[b], (float)scale };
    }
    for (uint32_t i = 0; reversed && i < out.count / 2; i++) {
        exl2_lora_use held = out.uses[i];
        out.uses[i] = out.uses[out.count - 1 - i];
        out.uses[out.count - 1 - i] = held;
    }
    return out;
}

static double check_scores(const rig *r, const rig_golden_file *g, uint32_t set, uint32_t sequence,
                           const golden_set *loras)
{
    static double numbers[TOPS * TOKENS], ids[TOPS * TOKENS], sums[TOKENS];
    static rig_said said;
    double worst = 0;
    memset(&said, 0, sizeof said);
    exl2_token tokens[TOKENS];
    uint32_t count = rig_golden_ids(g, rig_golden_at(g, 0, "tokens", sequence), tokens, TOKENS);
    exl2_job_desc d = rig_job(r, tokens, count, 1, &said);
    d.score_prompt = d.prefill_only = true;
    d.alts_per_token = EXL2_ALTS_MAX;
    d.loras = loras->uses;
    d.lora_count = loras->count;
    rig_run(r, &d);
    CHECK_INT(said.scored, count - 1);
    rig_golden_numbers(g, rig_golden_at(g, set, "top_logits", sequence), numbers, TOPS * TOKENS);
    rig_golden_numbers(g, rig_golden_at(g, set, "top_ids", sequence), ids, TOPS * TOKENS);
    rig_golden_numbers(g, rig_golden_at(g, set, "logsumexp", sequence), sums, TOKENS);
    for (uint32_t p = 0; p + 1 < count && p < said.scored; p++) {
        double off = fabs((double)said.logsumexp[p] - sums[p]);
        CHECK(off <= LOGSUMEXP_BOUND);
        worst = fmax(worst, off);
        if (numbers[p * TOPS] - numbers[p * TOPS + 1] > 0.3) {
            CHECK_INT(said.alts[p][0].token, (exl2_token)ids[p * TOPS]);
        }
        for (uint32_t k = 0; k < TOPS; k++) {
            for (uint32_t a = 0; a < EXL2_ALTS_MAX; a++) {
                if (said.alts[p][a].token == (exl2_token)ids[p * TOPS + k]) {
                    double logit = (double)said.alts[p][a].logprob + (double)said.logsumexp[p];
                    off = fabs(logit - numbers[p * TOPS + k]);
                    CHECK(off <= LOGIT_BOUND);
                    worst = fmax(worst, off);
                }
            }
        }
    }
    return worst;
}

static void check_greedy(const rig *r, const rig_golden_file *g, uint32_t set, uint32_t sequence,
                         const golden_set *loras)
{
    static rig_said said;
    memset(&said, 0, sizeof said);
    exl2_token tokens[TOKENS], greedy[TOKENS];
    exl2_model_info info;
    uint32_t count = rig_golden_ids(g, rig_golden_at(g, 0, "tokens", sequence), tokens, TOKENS);
    uint32_t wanted = rig_golden_ids(g, rig_golden_at(g, set, "greedy", sequence), greedy, TOKENS);
    exl2_job_desc d = rig_job(r, tokens, count, wanted, &said);
    d.loras = loras->uses;
    d.lora_count = loras->count;
    rig_run(r, &d);
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    for (uint32_t i = 0; i < wanted; i++) {
        wanted = greedy[i] == info.eos ? i + 1 : wanted;
    }
    CHECK_INT(said.count, wanted);
    for (uint32_t i = 0; i < wanted && i < said.count; i++) {
        CHECK_INT(said.ids[i], greedy[i]);
    }
}

static void check_case(const char *name)
{
    char base[200];
    rig_golden_file g;
    double context = 0, worst = 0;
    exl2_lora loras[2] = { { 0 }, { 0 } };
    rig_golden_open(lora_path(name, "golden.json"), &g);
    base[exl2__json_text(&g.json, exl2__json_get(&g.json, 0, "base"), base, sizeof base - 1)] = 0;
    exl2__json_f64(&g.json, exl2__json_get(&g.json, 0, "context"), &context);
    rig r = open_base(base, (uint32_t)context, 2);
    loras[0] = load(&r, lora_path(name, "a"));
    FILE *second = fopen(lora_path(name, "b/adapter_config.json"), "rb");
    if (second) {
        fclose(second);
        loras[1] = load(&r, lora_path(name, "b"));
    }
    uint32_t sets = exl2__json_get(&g.json, 0, "sets"), n = 0;
    for (uint32_t set = exl2__json_first(&g.json, sets); set; set = exl2__json_next(&g.json, sets, set), n++) {
        for (uint32_t sequence = 0; sequence < 2; sequence++) {
            golden_set uses = set_of(&g, set, loras, sequence == 1);
            worst = fmax(worst, check_scores(&r, &g, set, sequence, &uses));
            check_greedy(&r, &g, set, sequence, &uses);
        }
    }
    printf("%s: %u sets, within %.2g\n", name, n, worst);
    rig_close(&r);
    rig_golden_close(&g);
}

static void check_refused(const char *base, const char *name, const char *word)
{
    rig r = open_base(base, 0, 1);
    exl2_lora l = { 1 };
    exl2_lora_desc d = { .model = r.model, .path = lora_path(name, "a") };
    exl2_error error;
    CHECK_INT(exl2_lora_load(r.engine, &d, &l), EXL2_ERR_UNSUPPORTED);
    exl2_last_error(r.engine, &error);
    CHECK(strstr(error.text, word) != NULL);
    CHECK(l.id == 0);
    rig_close(&r);
}

static void check_goldens(void)
{
    static const char *const cases[] = { "plain", "two-rslora", "patterns", "fused-phi3", "gemma3-f32", "experts",
                                         "bias-base", "exl2-mixed", "gptq-act-order" };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool experts = strcmp(cases[i], "experts") == 0, apart = strcmp(cases[i], "gptq-act-order") == 0;
        if (ON_GPU && (experts || apart)) {
            check_refused(experts ? "arch/mixtral" : "exl2/gptq-act-order", cases[i],
                          experts ? "experts" : "order their inputs differently");
        } else {
            check_case(cases[i]);
        }
    }
    check_refused("arch/llama", "dora", "use_dora");
    check_refused("arch/llama", "embed-head", "embedding");
}

/* ---- rows with different sets ---- */

#define SETS 9
#define SET_CLASSES 6

typedef struct pair_rig {
    rig r;
    exl2_lora a, b;
    golden_set sets[SETS]; /* none, a, b, a + b, b + a, a 0.5, a off, a off + b, a -1 */
} pair_rig;

/* Sets with the same number are the same. */
static const uint32_t set_class[SETS] = { 0, 1, 2, 3, 3, 4, 0, 2, 5 };

static pair_rig open_pair(const exl2_engine_desc *e, exl2_model_desc m)
{
    static char path[1100];
    pair_rig p;
    snprintf(path, sizeof path, "%s/fixtures/arch/llama", check_env("EXL2_TEST_DATA"));
    m.path = path;
    m.lora_max = 3;
    m.context_max = 256;
    m.cache.tokens = 8192;
    p.r = rig_open(e, &m);
    exl2_lora a = p.a = load(&p.r, lora_path("plain", "a")), b = p.b = load(&p.r, lora_path("two-rslora", "b"));
    const golden_set sets[SETS] = {
        { .count = 0 }, { { { a, 0 } }, 1 }, { { { b, 1 } }, 1 }, { { { a, 1 }, { b, 1 } }, 2 },
        { { { b, 0 }, { a, 1 } }, 2 }, { { { a, 0.5f } }, 1 }, { { { a, EXL2_OFF } }, 1 },
        { { { a, EXL2_OFF }, { b, 1 } }, 2 }, { { { a, -1 } }, 1 }
    };
    memcpy(p.sets, sets, sizeof sets);
    return p;
}

static uint32_t make_prompt(exl2_token *ids, uint32_t count, uint32_t salt)
{
    uint32_t state = salt * 2654435761u + 12345;
    for (uint32_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (exl2_token)(3 + (state >> 16) % 300);
    }
    return count;
}

static exl2_job_desc mixed_job(const pair_rig *p, uint32_t set, const exl2_token *ids, uint32_t count, rig_said *said)
{
    exl2_job_desc d = rig_job(&p->r, ids, count, 10, said);
    memset(said, 0, sizeof *said);
    d.loras = p->sets[set].uses;
    d.lora_count = p->sets[set].count;
    d.score_prompt = true;
    return d;
}

static bool said_same(const rig_said *a, const rig_said *b)
{
    return a->count == b->count && a->scored == b->scored && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0
        && memcmp(a->logprobs, b->logprobs, a->count * sizeof *a->logprobs) == 0
        && memcmp(a->scores, b->scores, a->scored * sizeof *a->scores) == 0
        && memcmp(a->logsumexp, b->logsumexp, a->scored * sizeof *a->logsumexp) == 0;
}

/* On a GPU passes of other sizes have other products, but those of rows with adapters. */
static bool said_alike(const rig_said *a, const rig_said *b, uint32_t set)
{
    bool alike = a->scored == b->scored;
    if (!ON_GPU || set_class[set] != 0) {
        return said_same(a, b);
    }
    for (uint32_t i = 0; i < a->scored && alike; i++) {
        alike = fabs((double)a->scores[i] - (double)b->scores[i]) < LOGIT_BOUND;
    }
    return alike;
}

#define MIXED 18

/* Jobs with every set beside each other, twice, in passes cut by budgets and chunks: the bits of each job alone. */
static void check_mixes(void)
{
    static const uint32_t lengths[MIXED] = { 1, 2, 3, 7, 8, 16, 17, 33, 64, 65, 5, 90, 12, 1, 30, 48, 100, 9 };
    static const struct { uint32_t chunk, budget_us, batch; } ways[] = { { 0, 0, 32 }, { 24, 200, 32 }, { 7, 0, 5 } };
    static rig_said alone[MIXED], beside[MIXED];
    exl2_token ids[MIXED][128];
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        exl2_model_desc m = { .prefill_chunk = ways[way].chunk, .batch_max = ways[way].batch };
        m.cache.no_reuse = true;
        pair_rig p = open_pair(NULL, m);
        for (uint32_t i = 0; i < MIXED; i++) {
            make_prompt(ids[i], lengths[i], i);
            exl2_job_desc d = mixed_job(&p, i % SETS, ids[i], lengths[i], &alone[i]);
            rig_run(&p.r, &d);
        }
        for (uint32_t i = 0; i < MIXED; i++) {
            exl2_job_desc d = mixed_job(&p, i % SETS, ids[i], lengths[i], &beside[i]);
            CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
        }
        rig_drain(&p.r, ways[way].budget_us);
        for (uint32_t i = 0; i < MIXED; i++) {
            CHECK(beside[i].done_events == 1 && beside[i].count > 0);
            CHECK(said_alike(&alone[i], &beside[i], i % SETS));
        }
        for (uint32_t i = 0; i < SETS; i++) { /* sets differ in what they say */
            exl2_job_desc d = mixed_job(&p, i, ids[8], 64, &alone[i]);
            rig_run(&p.r, &d);
            for (uint32_t k = 0; k < i; k++) {
                bool same = set_class[i] == set_class[k];
                CHECK(same ? said_alike(&alone[i], &alone[k], i) : !said_same(&alone[i], &alone[k]));
            }
        }
        rig_close(&p.r);
    }
}

/* ---- K and V never cross sets ---- */

/* A GPU may compute the last rows of a prompt again, in products of another size. */
static void check_reused(uint32_t got, uint32_t wanted)
{
    CHECK(got <= wanted && got >= (ON_GPU ? wanted / 64 * 64 : wanted));
}

/* Tokens that a job with the set finds in the cache. The estimate must agree. */
static uint32_t reused(const pair_rig *p, exl2_session session, uint32_t set, const exl2_token *ids, uint32_t count)
{
    static rig_said said;
    exl2_job_size size;
    exl2_job_desc d = mixed_job(p, set, ids, count, &said);
    d.score_prompt = false;
    d.prefill_only = true;
    d.session = session;
    CHECK_INT(exl2_job_measure(p->r.engine, &d, &size), EXL2_OK);
    rig_run(&p->r, &d);
    CHECK_INT(size.reused_tokens, said.stats.reused_tokens);
    return said.stats.reused_tokens;
}

static void check_pairs_of_sets(void)
{
    const exl2_session none = { 0 };
    exl2_token ids[150];
    pair_rig p = open_pair(NULL, (exl2_model_desc){ 0 });
    for (uint32_t first = 0; first < SETS; first++) {
        for (uint32_t second = 0; second < SETS; second++) {
            make_prompt(ids, 150, 1000 + first * SETS + second);
            check_reused(reused(&p, none, first, ids, 150), 0);
            bool same = set_class[first] == set_class[second];
            check_reused(reused(&p, none, second, ids, 150), same ? 149 : 0);
            check_reused(reused(&p, none, first, ids, 150), 149);
        }
    }
    rig_close(&p.r);
}

/* One session with one set after another. */
static void check_session_sets(bool no_reuse)
{
    exl2_token ids[150];
    exl2_session s, fork;
    exl2_model_desc m = { 0 };
    m.cache.no_reuse = no_reuse;
    pair_rig p = open_pair(NULL, m);
    make_prompt(ids, 150, 7);
    CHECK_INT(exl2_session_open(p.r.engine, p.r.model, &s), EXL2_OK);
    check_reused(reused(&p, s, 1, ids, 150), 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t set = 0; set < 6; set++) {
            exl2_session_info info;
            CHECK_INT(exl2_session_rewind(p.r.engine, s, 0), EXL2_OK);
            uint32_t wanted = round || set == 1 || set == 4 ? 149 : 0;
            check_reused(reused(&p, s, set, ids, 150), wanted);
            CHECK_INT(exl2_session_get(p.r.engine, s, &info), EXL2_OK);
            CHECK_INT(info.tokens_cached, 150);
        }
    }
    CHECK_INT(exl2_session_fork(p.r.engine, s, &fork), EXL2_OK);
    CHECK_INT(exl2_session_rewind(p.r.engine, fork, 0), EXL2_OK);
    check_reused(reused(&p, fork, 5, ids, 150), 149);
    CHECK_INT(exl2_session_rewind(p.r.engine, fork, 0), EXL2_OK);
    check_reused(reused(&p, fork, 0, ids, 150), 149);
    rig_close(&p.r);
}

/* What a closed adapter has computed is never found, though the new one comes from the same folder. */
static void check_loaded_again(void)
{
    const exl2_session none = { 0 };
    exl2_token ids[150];
    exl2_engine_stats before, after;
    pair_rig p = open_pair(NULL, (exl2_model_desc){ 0 });
    make_prompt(ids, 150, 3);
    check_reused(reused(&p, none, 1, ids, 150), 0);
    check_reused(reused(&p, none, 0, ids, 150), 0);
    exl2_lora old = p.a;
    exl2_stats(p.r.engine, &before);
    CHECK_INT(exl2_lora_close(p.r.engine, old), EXL2_OK);
    CHECK_INT(exl2_lora_close(p.r.engine, old), EXL2_ERR_STALE);
    p.a = load(&p.r, lora_path("plain", "a"));
    exl2_stats(p.r.engine, &after);
    CHECK(memory_of(&before) == memory_of(&after) && p.a.id != old.id);
    p.sets[1].uses[0].lora = p.a;
    check_reused(reused(&p, none, 1, ids, 150), 0);
    check_reused(reused(&p, none, 1, ids, 150), 149);
    check_reused(reused(&p, none, 0, ids, 150), 149);
    rig_close(&p.r);
}

/* ---- closing, loading beside jobs ---- */

/* A job keeps its adapter: the words are those of the whole adapter, and the memory is free after its DONE. */
static void check_close_under_job(uint32_t steps)
{
    static rig_said whole, said;
    exl2_token ids[100];
    exl2_engine_stats loaded, after;
    exl2_lora_info info;
    exl2_model_desc m = { .prefill_chunk = 16 };
    pair_rig p = open_pair(NULL, m);
    make_prompt(ids, 100, 11);
    CHECK_INT(exl2_lora_get(p.r.engine, p.a, &info), EXL2_OK);
    exl2_job_desc d = mixed_job(&p, 1, ids, 100, &whole);
    rig_run(&p.r, &d);
    d = mixed_job(&p, 1, ids, 100, &said);
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
    exl2_stats(p.r.engine, &loaded);
    for (uint32_t i = 0; i < steps; i++) {
        exl2_step_desc step = { .cpu_us = 1 };
        exl2_step(p.r.engine, &step);
    }
    CHECK_INT(exl2_lora_close(p.r.engine, p.a), EXL2_OK);
    CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_ERR_STALE);
    exl2_stats(p.r.engine, &after);
    CHECK(memory_of(&after) == memory_of(&loaded));
    rig_drain(&p.r, 0);
    CHECK(said.done_events == 1 && said.result == EXL2_OK && said_same(&whole, &said));
    exl2_stats(p.r.engine, &after);
    CHECK_INT(memory_of(&loaded) - memory_of(&after), info.bytes);
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
    pair_rig p = open_pair(NULL, (exl2_model_desc){ 0 });
    load_said heard = { .engine = p.r.engine, .close = close };
    exl2_lora l;
    exl2_lora_desc load = { .model = p.r.model, .path = lora_path("two-rslora", "a"), .on_event = hear_load,
                            .user = &heard };
    make_prompt(ids, 64, 5);
    exl2_job_desc d = mixed_job(&p, 3, ids, 64, &whole);
    rig_run(&p.r, &d);
    d = mixed_job(&p, 3, ids, 64, &said);
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
    CHECK(said_same(&whole, &said));
    CHECK_INT(exl2_lora_state(p.r.engine, l), close ? EXL2_ERR_STALE : EXL2_OK);
    CHECK(close ? heard.events == 1 : heard.last == 1 && heard.result == EXL2_OK && heard.progress >= 1);
    rig_close(&p.r);
}

/* ---- errors, memory ---- */

static void check_said(exl2_engine *e, exl2_result got, exl2_result wanted, const char *word)
{
    exl2_error error = { EXL2_OK, 0, "" };
    CHECK_INT(got, wanted);
    exl2_last_error(e, &error);
    if (!CHECK(strstr(error.text, word) != NULL)) {
        printf("  \"%s\" should hold \"%s\"\n", error.text, word);
    }
}

static exl2_result start(const pair_rig *p, const exl2_lora_use *uses, uint32_t count)
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
    pair_rig p = open_pair(NULL, (exl2_model_desc){ .lora_rank_max = 16 });
    exl2_engine *e = p.r.engine;
    rig other = { e, { 0 } };
    exl2_lora l = { 0 }, far;
    exl2_lora_info info;
    char path[1100];
    snprintf(path, sizeof path, "%s/fixtures/arch/llama", check_env("EXL2_TEST_DATA"));
    exl2_model_desc m = { .path = path };
    CHECK_INT(exl2_model_load(e, &m, &other.model), EXL2_OK);
    exl2_lora_desc d = { .model = other.model, .path = lora_path("plain", "a") };
    check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_STATE, "lora_max");
    check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_STATE, "lora_max");
    CHECK_INT(exl2_model_close(e, other.model), EXL2_OK);
    check_said(e, exl2_lora_open(e, &d, &l), EXL2_ERR_STALE, "model");
    m.lora_max = 1;
    m.lora_rank_max = 7;
    CHECK_INT(exl2_model_load(e, &m, &other.model), EXL2_OK);
    d.model = other.model;
    check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_BUDGET, "rank 8, but exl2_model_desc.lora_rank_max is 7");
    CHECK(l.id == 0);
    d.path = lora_path("two-rslora", "a");
    CHECK_INT(exl2_lora_load(e, &d, &far), EXL2_OK);
    check_said(e, exl2_lora_load(e, &d, &l), EXL2_ERR_BUDGET, "lora_max is 1");
    d.path = "no/such/folder";
    check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_IO, "adapter_config.json");
    check_said(e, exl2_lora_measure(e, &d, NULL), EXL2_ERR_ARG, "out");
    d.path = NULL;
    check_said(e, exl2_lora_measure(e, &d, &info), EXL2_ERR_ARG, "path");
    const float zero = 0, bad[] = { 101, -101, 1 / zero, -1 / zero, zero / zero, -999 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_said(e, start(&p, (exl2_lora_use[]){ { p.a, bad[i] } }, 1), EXL2_ERR_ARG, "scale");
    }
    check_said(e, start(&p, (exl2_lora_use[]){ { p.a, 1 }, { p.a, 2 } }, 2), EXL2_ERR_ARG, "twice");
    check_said(e, start(&p, (exl2_lora_use[]){ { far, 1 } }, 1), EXL2_ERR_ARG, "another model");
    check_said(e, start(&p, (exl2_lora_use[]){ { { 0 }, 1 } }, 1), EXL2_ERR_STALE, "lora handle 0");
    check_said(e, start(&p, (exl2_lora_use[9]){ { p.a, 1 } }, 9), EXL2_ERR_ARG, "at most 8");
    check_said(e, start(&p, NULL, 1), EXL2_ERR_ARG, "NULL");
    d = (exl2_lora_desc){ .model = p.r.model, .path = lora_path("two-rslora", "a") };
    CHECK_INT(exl2_lora_open(e, &d, &l), EXL2_OK);
    CHECK_INT(exl2_lora_state(e, l), EXL2_PENDING);
    check_said(e, start(&p, (exl2_lora_use[]){ { l, 1 } }, 1), EXL2_ERR_STATE, "loading");
    CHECK_INT(exl2_lora_close(e, l), EXL2_OK);
    CHECK_INT(exl2_lora_state(e, l), EXL2_ERR_STALE);
    CHECK_INT(exl2_lora_get(e, l, &info), EXL2_ERR_STALE);
    d.path = lora_path("dora", "a");
    CHECK_INT(exl2_lora_open(e, &d, &l), EXL2_OK);
    rig_drain(&p.r, 0);
    check_said(e, exl2_lora_state(e, l), EXL2_ERR_UNSUPPORTED, "use_dora");
    check_said(e, start(&p, (exl2_lora_use[]){ { l, 1 } }, 1), EXL2_ERR_STATE, "did not load");
    rig_close(&p.r);
}

/* exl2_lora_measure predicts the memory to the byte; a cap one byte below it refuses the adapter. */
static void check_memory(void)
{
    exl2_engine_stats before, after;
    exl2_lora_info measured, info;
    rig r = open_base("exl2/exl2-mixed", 0, 2);
    exl2_lora_desc d = { .model = r.model, .path = lora_path("exl2-mixed", "a") };
    CHECK_INT(exl2_lora_measure(r.engine, &d, &measured), EXL2_OK);
    exl2_stats(r.engine, &before);
    exl2_lora l = load(&r, d.path);
    exl2_stats(r.engine, &after);
    CHECK_INT(memory_of(&after) - memory_of(&before), measured.bytes);
    CHECK_INT(exl2_lora_get(r.engine, l, &info), EXL2_OK);
    CHECK(info.bytes == measured.bytes && info.rank_max == 16 && info.matrices == 14);
    CHECK(ON_GPU ? info.device_bytes > 0 && info.device_bytes < info.bytes : info.device_bytes == 0);
    CHECK(info.content_id[0] | info.content_id[5] | info.content_id[9]);
    CHECK_INT(exl2_lora_close(r.engine, l), EXL2_OK);
    exl2_stats(r.engine, &after);
    CHECK_INT(memory_of(&after), memory_of(&before));
    rig_close(&r);
}

/* Adapters are loaded until the cap refuses one: it has no room for the predicted bytes, and nothing is lost. */
static void check_cap(void)
{
    exl2_engine_stats stats;
    exl2_lora_info info;
    exl2_lora l;
    rig r = open_base("exl2/exl2-mixed", 0, 64);
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

static exl2_job_desc session_job(const pair_rig *p, exl2_session session, uint32_t set, rig_said *said)
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

static exl2_session restored(const pair_rig *p)
{
    exl2_session s;
    CHECK_INT(exl2_session_open(p->r.engine, p->r.model, &s), EXL2_OK);
    CHECK_INT(exl2_session_restore(p->r.engine, s, saved, saved_bytes), EXL2_OK);
    return s;
}

static uint32_t tokens_cached(const pair_rig *p, exl2_session s)
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
    make_prompt(ids, 100, 21);
    pair_rig p = open_pair(NULL, (exl2_model_desc){ 0 });
    exl2_job_desc d = mixed_job(&p, set, ids, 100, &whole);
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
    for (uint32_t i = 0; i < 1000 && first.text_events < 9; i++) {
        exl2_step(p.r.engine, NULL);
    }
    CHECK_INT(exl2_session_save(p.r.engine, s, flags, saved, sizeof saved, &saved_bytes), EXL2_OK);
    CHECK_INT(exl2_session_save(p.r.engine, s, flags, NULL, 0, &saved_bytes), EXL2_OK);
    rig_close(&p.r);

    p = open_pair(NULL, (exl2_model_desc){ 0 });
    CHECK_INT(exl2_lora_close(p.r.engine, p.a), EXL2_OK);
    p.a = load(&p.r, lora_path("plain", "a"));
    for (uint32_t i = 0; i < SETS; i++) {
        for (uint32_t k = 0; k < p.sets[i].count; k++) {
            p.sets[i].uses[k].lora = p.sets[i].uses[k].lora.id == p.b.id ? p.b : p.a;
        }
    }
    s = restored(&p);
    CHECK(flags ? tokens_cached(&p, s) > 100 : tokens_cached(&p, s) == 0);
    for (uint32_t other = 0; other < SETS; other++) {
        d = session_job(&p, s, other, &rest);
        if (set_class[other] != set_class[set]) {
            bool lacks = set != 0 && !(set == 1 && other == 3) && !(set == 2 && other == 3);
            check_said(p.r.engine, exl2_job_start(p.r.engine, &d, NULL), EXL2_ERR_ARG, lacks && set != 0
                       && !(set_class[other] == 3 && set < 3) ? "which the desc lacks" : "but the saved job had");
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
        make_prompt(ids, 100, 21);
        uint32_t found = reused(&p, s, other, ids, 100);
        if (flags) {
            check_reused(found, set_class[other] == set_class[set] ? 99 : 0);
        }
    }
    rig_close(&p.r);

    /* A model without adapters has the history, and cannot go on with the job. */
    rig plain = open_base("arch/llama", 256, 0);
    p.r = plain;
    s = restored(&p);
    CHECK_INT(tokens_cached(&p, s), set || !flags ? 0 : tokens_cached(&p, s));
    p.sets[0].count = 0;
    d = session_job(&p, s, 0, &rest);
    if (set) {
        size_t need;
        check_said(plain.engine, exl2_job_start(plain.engine, &d, NULL), EXL2_ERR_ARG, "which the desc lacks");
        check_said(plain.engine, exl2_session_save(plain.engine, s, 0, NULL, 0, &need), EXL2_ERR_STATE, "adapters");
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
    pair_rig p = open_pair(NULL, (exl2_model_desc){ .keep_packed = keep_packed });
    make_prompt(ids, 64, 9);
    exl2_job_desc d = mixed_job(&p, 3, ids, 64, &whole);
    d.max_tokens = 20;
    rig_run(&p.r, &d);
    d = mixed_job(&p, 3, ids, 64, &said);
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
    CHECK(memory_of(&loaded) - memory_of(&parked) >= (keep_packed ? info.device_bytes : info.bytes));
    check_said(p.r.engine, exl2_lora_open(p.r.engine, &more, &l), EXL2_ERR_STATE, "parked");
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
    check_goldens();
    check_mixes();
    check_pairs_of_sets();
    check_session_sets(false);
    check_session_sets(true);
    check_loaded_again();
    for (uint32_t steps = 0; steps < 40; steps += 3) {
        check_close_under_job(steps);
    }
    for (uint32_t i = 0; i < 4; i++) {
        check_load_beside(i % 2, i / 2);
        check_snapshot(i, 0);
        check_snapshot(i, EXL2_SAVE_KV);
    }
    check_park(false);
    check_park(true);
    check_errors();
    check_memory();
    ON_GPU ? (void)0 : check_cap(); /* of host memory */
    return check_done();
}
