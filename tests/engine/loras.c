/* loras.c: jobs with adapters. Scores and greedy texts of all sets of fixtures/lora against float64; rows with
   different sets beside each other give the bits that they give alone; K and V never cross sets.
   -DRIG_BACKEND=EXL2_BACKEND_CUDA: on a GPU, whose rows without adapters may differ in their last bits; models of EXL3,
   and with experts, against the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "../adapter_maker.h"
#include "../mixed_model.h"
#include "lora_rig.h"

#include <unistd.h>

#define TOKENS 64
#define TOPS 6
#define LOGIT_BOUND (ON_GPU ? 0.15 : 0.1)
#define LOGSUMEXP_BOUND LOGIT_BOUND

/* ---- goldens ---- */

/* Adapters of the folders "a" and "b", in the order of the golden's set, or the other way round. */
static lora_set set_of(const rig_golden_file *g, uint32_t set, const exl2_lora *loras, bool reversed)
{
    lora_set out = { .count = 0 };
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
                           const lora_set *loras)
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
                         const lora_set *loras)
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

/* Writes an adapter of F16 to `dir` with the same numbers in F32, which engines scale before they become F16 again. */
static void widen(const char *from, const char *dir)
{
    char path[1300], header[8192], *p = header;
    size_t bytes, used = 0;
    uint64_t begin = 0;
    snprintf(path, sizeof path, "%s/adapter_config.json", from);
    char *config = check_read(path, &bytes);
    maker_write(dir, "adapter_config.json", config, bytes);
    free(config);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", from);
    char *data = check_read(path, &bytes);
    memcpy(&begin, data, sizeof begin);
    CHECK(begin < sizeof header / 2);
    while (used < begin) { /* all types, and the numbers of all data_offsets, which are twice as large */
        char *at = data + 8 + used, *end = at;
        uint64_t offset = strncmp(at, "_offsets\":[", 11) == 0 ? strtoull(at + 11, &end, 10) : 0;
        uint64_t after = end != at ? strtoull(end + 1, &end, 10) : 0;
        bool type = strncmp(at, "\"F16\"", 5) == 0;
        if (end != at) {
            p += sprintf(p, "_offsets\":[%llu,%llu", 2 * (unsigned long long)offset, 2 * (unsigned long long)after);
        } else if (type) {
            p += sprintf(p, "\"F32\"");
        } else {
            *p++ = *at;
        }
        used += end != at ? (size_t)(end - at) : type ? 5 : 1;
    }
    uint64_t length = (uint64_t)(p - header);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(&length, 8, 1, file) == 1 && fwrite(header, 1, (size_t)length, file) == length);
    for (size_t i = 8 + (size_t)begin; i + 2 <= bytes; i += 2) {
        uint16_t half;
        memcpy(&half, data + i, sizeof half);
        float number = exl2__f16_to_f32(half);
        CHECK(file && fwrite(&number, sizeof number, 1, file) == 1);
    }
    CHECK(file && fclose(file) == 0);
    free(data);
}

/* wide: the adapter "a" is read as F32. */
static void check_case(const char *name, bool wide)
{
    char dir[] = "/tmp/exl2-lora-XXXXXX", command[64];
    char base[200];
    rig_golden_file g;
    double context = 0, worst = 0;
    exl2_lora loras[2] = { { 0 }, { 0 } };
    rig_golden_open(lora_path(name, "golden.json"), &g);
    base[exl2__json_text(&g.json, exl2__json_get(&g.json, 0, "base"), base, sizeof base - 1)] = 0;
    exl2__json_f64(&g.json, exl2__json_get(&g.json, 0, "context"), &context);
    rig r = lora_open_base(base, (uint32_t)context, 2);
    if (wide && CHECK(mkdtemp(dir) != NULL)) {
        widen(lora_path(name, "a"), dir);
    }
    loras[0] = lora_load(&r, wide ? dir : lora_path(name, "a"));
    FILE *second = fopen(lora_path(name, "b/adapter_config.json"), "rb");
    if (second) {
        fclose(second);
        loras[1] = lora_load(&r, lora_path(name, "b"));
    }
    uint32_t sets = exl2__json_get(&g.json, 0, "sets"), n = 0;
    for (uint32_t set = exl2__json_first(&g.json, sets); set; set = exl2__json_next(&g.json, sets, set), n++) {
        for (uint32_t sequence = 0; sequence < 2; sequence++) {
            lora_set uses = set_of(&g, set, loras, sequence == 1);
            worst = fmax(worst, check_scores(&r, &g, set, sequence, &uses));
            check_greedy(&r, &g, set, sequence, &uses);
        }
    }
    printf("%s%s: %u sets, within %.2g\n", name, wide ? " in F32" : "", n, worst);
    rig_close(&r);
    rig_golden_close(&g);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK(!wide || system(command) == 0);
}

static void check_refused(const char *base, const char *name, const char *word)
{
    rig r = lora_open_base(base, 0, 1);
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
        check_case(cases[i], false);
    }
    check_case("plain", true);
    check_case("fused-phi3", true); /* parts of B with their own powers of two */
    check_refused("arch/llama", "dora", "use_dora");
    check_refused("arch/llama", "embed-head", "embedding");
}

/* ---- rows with different sets ---- */

/* On a GPU passes of other sizes have other products, but those of rows with adapters. */
static bool said_alike(const rig_said *a, const rig_said *b, uint32_t set)
{
    bool alike = a->scored == b->scored;
    if (!ON_GPU || lora_set_class[set] != 0) {
        return lora_same(a, b);
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
        lora_pair p = lora_open_pair(NULL, m);
        for (uint32_t i = 0; i < MIXED; i++) {
            lora_prompt(ids[i], lengths[i], i);
            exl2_job_desc d = lora_job(&p, i % LORA_SETS, ids[i], lengths[i], &alone[i]);
            rig_run(&p.r, &d);
        }
        for (uint32_t i = 0; i < MIXED; i++) {
            exl2_job_desc d = lora_job(&p, i % LORA_SETS, ids[i], lengths[i], &beside[i]);
            CHECK_INT(exl2_job_start(p.r.engine, &d, NULL), EXL2_OK);
        }
        rig_drain(&p.r, ways[way].budget_us);
        for (uint32_t i = 0; i < MIXED; i++) {
            CHECK(beside[i].done_events == 1 && beside[i].count > 0);
            CHECK(said_alike(&alone[i], &beside[i], i % LORA_SETS));
        }
        for (uint32_t i = 0; i < LORA_SETS; i++) { /* sets differ in what they say */
            exl2_job_desc d = lora_job(&p, i, ids[8], 64, &alone[i]);
            rig_run(&p.r, &d);
            for (uint32_t k = 0; k < i; k++) {
                bool same = lora_set_class[i] == lora_set_class[k];
                CHECK(same ? said_alike(&alone[i], &alone[k], i) : !lora_same(&alone[i], &alone[k]));
            }
        }
        rig_close(&p.r);
    }
}

/* ---- K and V never cross sets ---- */

static void check_pairs_of_sets(void)
{
    const exl2_session none = { 0 };
    exl2_token ids[150];
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ 0 });
    for (uint32_t first = 0; first < LORA_SETS; first++) {
        for (uint32_t second = 0; second < LORA_SETS; second++) {
            lora_prompt(ids, 150, 1000 + first * LORA_SETS + second);
            lora_check_reused(lora_reused(&p, none, first, ids, 150), 0);
            bool same = lora_set_class[first] == lora_set_class[second];
            lora_check_reused(lora_reused(&p, none, second, ids, 150), same ? 149 : 0);
            lora_check_reused(lora_reused(&p, none, first, ids, 150), 149);
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
    lora_pair p = lora_open_pair(NULL, m);
    lora_prompt(ids, 150, 7);
    CHECK_INT(exl2_session_open(p.r.engine, p.r.model, &s), EXL2_OK);
    lora_check_reused(lora_reused(&p, s, 1, ids, 150), 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t set = 0; set < 6; set++) {
            exl2_session_info info;
            CHECK_INT(exl2_session_rewind(p.r.engine, s, 0), EXL2_OK);
            uint32_t wanted = round || set == 1 || set == 4 ? 149 : 0;
            lora_check_reused(lora_reused(&p, s, set, ids, 150), wanted);
            CHECK_INT(exl2_session_get(p.r.engine, s, &info), EXL2_OK);
            CHECK_INT(info.tokens_cached, 150);
        }
    }
    CHECK_INT(exl2_session_fork(p.r.engine, s, &fork), EXL2_OK);
    CHECK_INT(exl2_session_rewind(p.r.engine, fork, 0), EXL2_OK);
    lora_check_reused(lora_reused(&p, fork, 5, ids, 150), 149);
    CHECK_INT(exl2_session_rewind(p.r.engine, fork, 0), EXL2_OK);
    lora_check_reused(lora_reused(&p, fork, 0, ids, 150), 149);
    rig_close(&p.r);
}

/* What a closed adapter has computed is never found, though the new one comes from the same folder. */
static void check_loaded_again(void)
{
    const exl2_session none = { 0 };
    exl2_token ids[150];
    exl2_engine_stats before, after;
    lora_pair p = lora_open_pair(NULL, (exl2_model_desc){ 0 });
    lora_prompt(ids, 150, 3);
    lora_check_reused(lora_reused(&p, none, 1, ids, 150), 0);
    lora_check_reused(lora_reused(&p, none, 0, ids, 150), 0);
    exl2_lora old = p.a;
    exl2_stats(p.r.engine, &before);
    CHECK_INT(exl2_lora_close(p.r.engine, old), EXL2_OK);
    CHECK_INT(exl2_lora_close(p.r.engine, old), EXL2_ERR_STALE);
    p.a = lora_load(&p.r, lora_path("plain", "a"));
    exl2_stats(p.r.engine, &after);
    CHECK(lora_memory(&before) == lora_memory(&after) && p.a.id != old.id);
    p.sets[1].uses[0].lora = p.a;
    lora_check_reused(lora_reused(&p, none, 1, ids, 150), 0);
    lora_check_reused(lora_reused(&p, none, 1, ids, 150), 149);
    lora_check_reused(lora_reused(&p, none, 0, ids, 150), 149);
    rig_close(&p.r);
}

/* ---- on a GPU, against the CPU: EXL3, experts ---- */

/* A model of Llama's names, and the widths of its matrices. */
typedef struct made_model {
    const char *base;
    uint32_t layers, hidden, heads, kv;
    const char *mlp[3];
    uint32_t inter[3];
    bool chooses; /* the adapter changes what routers read */
    uint32_t routed; /* experts of a router that the adapter adds to, of models with Mixtral's names; 0: none */
} made_model;

/* Writes an adapter of all matrices. */
static void write_adapter(const char *folder, const made_model *m)
{
    static char names[24][64];
    adapter_matrix matrices[24];
    uint32_t count = 7 * m->layers;
    for (uint32_t i = 0; i < 7 * m->layers; i++) {
        uint32_t layer = i / 7, inter = m->inter[layer];
        const struct { const char *group, *name; uint32_t out, in; } all[] = {
            { "self_attn", "q_proj", m->heads, m->hidden }, { "self_attn", "k_proj", m->kv, m->hidden },
            { "self_attn", "v_proj", m->kv, m->hidden }, { "self_attn", "o_proj", m->hidden, m->heads },
            { m->mlp[layer], m->routed ? "w1" : "gate_proj", inter, m->hidden },
            { m->mlp[layer], m->routed ? "w3" : "up_proj", inter, m->hidden },
            { m->mlp[layer], m->routed ? "w2" : "down_proj", m->hidden, inter }
        };
        snprintf(names[i], sizeof names[i], "model.layers.%u.%s.%s", layer, all[i % 7].group, all[i % 7].name);
        matrices[i] = (adapter_matrix){ names[i], all[i % 7].out, all[i % 7].in };
    }
    for (uint32_t layer = 0; m->routed && layer < m->layers; layer++, count++) {
        snprintf(names[count], sizeof names[count], "model.layers.%u.block_sparse_moe.gate", layer);
        matrices[count] = (adapter_matrix){ names[count], m->routed, m->hidden };
    }
    adapter_write(folder, matrices, count);
}

/* Writes a model of EXL3 beside other kinds. */
static void write_mixed(const char *folder, const char *first, const char *second)
{
    static mixed_model x;
    x = (mixed_model){ .kinds = { first, second }, .config = "", .state = 5 };
    mixed_make(&x);
    maker_write(folder, "config.json", x.config_json, strlen(x.config_json));
    maker_write(folder, "model.safetensors", x.file, x.file_bytes);
    mixed_free(&x);
}

#define MADE_ROWS 40

/* Scores of a text, and some words. jobs: so many at once, of which job i has the scale i / 2. */
static void run_made(exl2_backend backend, const char *base, const char *folder, uint32_t jobs, rig_said *said)
{
    static char path[1100];
    static exl2_token ids[4][MADE_ROWS];
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_engine_desc e = { .backend = backend, .open_error = &error };
    rig r = { 0 };
    exl2_lora_use uses[4];
    const char *data = base[0] == '/' ? "" : check_env("EXL2_TEST_DATA");
    snprintf(path, sizeof path, "%s%s%s", data, data[0] ? "/fixtures/" : "", base);
    exl2_model_desc m = { .path = path, .lora_max = 2, .prefill_chunk = 64, .batch_max = 8 };
    m.cache.no_reuse = true;
    e.kernel_cache = backend == EXL2_BACKEND_CUDA ? kernel_folder() : e.kernel_cache;
    exl2_result result = exl2_open(&e, &r.engine);
    if (!CHECK(result == EXL2_OK) || (result = exl2_model_load(r.engine, &m, &r.model)) < 0) {
        rig_fail(r.engine, base, result);
    }
    exl2_lora a = lora_load(&r, folder);
    for (uint32_t i = 0; i < jobs; i++) {
        lora_prompt(ids[i], MADE_ROWS, 7);
        for (uint32_t k = 0; k < MADE_ROWS; k++) {
            ids[i][k] = 3 + ids[i][k] % 90;
        }
        exl2_job_desc d = rig_job(&r, ids[i], MADE_ROWS, 12, &said[i]);
        memset(&said[i], 0, sizeof said[i]);
        uses[i] = (exl2_lora_use){ a, (float)i / 2 };
        d.loras = &uses[i];
        d.lora_count = i > 0;
        d.score_prompt = true;
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        jobs == 4 ? (void)0 : rig_drain(&r, 0);
    }
    rig_drain(&r, 0);
    rig_close(&r);
}

static void remove_files(const char *folder, const char *first, const char *second)
{
    char path[128];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? second : first);
        remove(path);
    }
    rmdir(folder);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check_made(const made_model *m)
{
    static rig_said cpu[4], gpu[4], again[3];
    char folder[] = "/tmp/exl2_lora_XXXXXX";
    const char *base = m->base;
    double off = 0, least = 1e9;
    CHECK(mkdtemp(folder) != NULL);
    write_adapter(folder, m);
    run_made(EXL2_BACKEND_CPU, base, folder, 4, cpu);
    run_made(EXL2_BACKEND_CUDA, base, folder, 4, gpu);
    run_made(EXL2_BACKEND_CUDA, base, folder, 3, again); /* one after the other: the same bits */
    for (uint32_t i = 0; i < 4; i++) {
        double differences[2][MADE_ROWS];
        CHECK_INT(gpu[i].scored, MADE_ROWS - 1);
        for (uint32_t k = 0; k < MADE_ROWS - 1; k++) {
            differences[0][k] = fabs((double)cpu[i].scores[k] - (double)gpu[i].scores[k]);
            differences[1][k] = fabs((double)gpu[0].scores[k] - (double)gpu[i].scores[k]);
        }
        for (uint32_t k = 0; k < 2; k++) {
            qsort(differences[k], MADE_ROWS - 1, sizeof **differences, by_value);
        }
        uint32_t judged = m->chooses ? MADE_ROWS / 2 : MADE_ROWS - 2; /* a row may choose another expert */
        off = fmax(off, differences[0][judged]);
        least = i > 0 ? fmin(least, differences[1][judged]) : least;
        CHECK(i == 3 || i == 0 || lora_same(&gpu[i], &again[i]));
    }
    printf("%s: off by %.2g from the CPU; the adapter changes %.2g\n", base, off, least);
    CHECK(off < LOGIT_BOUND && least > 2 * (m->chooses ? off : LOGIT_BOUND));
    remove_files(folder, "adapter_config.json", "adapter_model.safetensors");
}

static void check_mixed(const char *first, const char *second)
{
    char folder[] = "/tmp/exl2_mixed_XXXXXX";
    made_model m = { folder, 2, 64, 64, 32, { "mlp", "mlp" }, { 96, 96 }, false, 0 };
    CHECK(mkdtemp(folder) != NULL);
    write_mixed(folder, first, second);
    check_made(&m);
    remove_files(folder, "config.json", "model.safetensors");
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
    static const made_model models[] = {
        { "exl3/exl3-llama", 2, 128, 128, 128, { "mlp", "mlp" }, { 256, 256 }, false, 0 },
        { "exl3/exl3-qwen3", 2, 128, 256, 128, { "mlp", "mlp" }, { 256, 256 }, false, 0 },
        { "exl3/exl3-mixtral", 2, 128, 128, 128, { "block_sparse_moe.experts.1", "block_sparse_moe.experts.2" },
          { 128, 128 }, true, 4 },
        { "arch/qwen2-moe", 3, 64, 64, 32, { "mlp.shared_expert", "mlp", "mlp.shared_expert" }, { 64, 128, 64 },
          false, 0 },
        { "arch/exl2-qwen3-moe", 2, 96, 128, 64, { "mlp.experts.1", "mlp.experts.2" }, { 64, 64 }, true, 0 },
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0] && ON_GPU; i++) {
        check_made(&models[i]);
    }
    if (ON_GPU) { /* q, k, v, o, gate, up, down: EXL3 beside EXL2, dense matrices */
        check_mixed("teettet", "ettette");
        check_mixed("tdetbte", "eeetmde");
    }
    return check_done();
}
