/* cards.c: however many GPUs compute a model, its bits are the same: on the second GPU, cut into layers on both, in
   whole passes and in steps, with direct copies and through host memory, and cut into spans on one GPU. K and V that
   one of them has saved serve all others. Some jobs have control vectors and adapters. A drafter on the other GPU
   changes no word. Memory is as planned.
   takes: the goldens; kernels, as all programs of this folder; as arguments folders of models with longer contexts,
          whose prompts are read in parts by both GPUs at the same time. `columns` before them: only what two GPUs share
          by columns. Names of models in tests/golden/models, or in EXL2_TEST_DATA's fixtures/arch, exl2 or exl3, each
          any number of times: these in place of all. With more than two GPUs columns are on three and four of them.
   gives: exit code 0 or 1. With one GPU only the spans on one GPU are tested. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../engine/rig.h"

#define JOBS 12u
#define NEW 40u
#define SAVED_BYTES (4u << 20)

typedef struct outcome {
    rig_said said[JOBS + 1];
    uint8_t saved[SAVED_BYTES];
    size_t saved_bytes;
} outcome;

#define GPUS_MAX 4u

static const exl2_device_desc all[GPUS_MAX] = {
    { .pick = EXL2_PICK_INDEX, .index = 0 }, { .pick = EXL2_PICK_INDEX, .index = 1 },
    { .pick = EXL2_PICK_INDEX, .index = 2 }, { .pick = EXL2_PICK_INDEX, .index = 3 }
};

static uint32_t gpus; /* 1 to GPUS_MAX */
static bool columns_only;
static exl2_steer steer; /* of the model that open_on has opened */
static exl2_lora lora;   /* the same; 0: it has none */

/* Gives the model a control vector, and an adapter if there is one for it. */
static void add_moods(const rig *r, const exl2_model_info *info, const char *adapter)
{
    size_t count = (size_t)info->layers * info->hidden;
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(i * 7919 % 401) / 800 - 0.25f;
    }
    exl2_steer_desc d = { .model = r->model, .values = values, .layer_count = info->layers };
    exl2_lora_desc l = { .model = r->model, .path = adapter };
    CHECK_INT(exl2_steer_make(r->engine, &d, &steer), EXL2_OK);
    CHECK_INT(adapter ? exl2_lora_load(r->engine, &l, &lora) : EXL2_OK, EXL2_OK);
    free(values);
}

static rig open_on(const char *model, const exl2_card *cards, uint32_t count, exl2_split split)
{
    exl2_engine_desc e = { .devices = all, .device_count = gpus };
    static char path[1100];
    bool adapted = getenv("EXL2_TEST_DATA") && strstr(model, "exl2-mixed");
    exl2_model_desc m = { .path = model, .batch_max = JOBS, .cards = cards, .card_count = count, .split = split,
                          .steer_max = 1, .lora_max = adapted };
    exl2_model_info info;
    exl2_engine_stats stats;
    snprintf(path, sizeof path, "%s/fixtures/lora/exl2-mixed/a", adapted ? getenv("EXL2_TEST_DATA") : "");
    m.cache.tokens = 4096;
    rig r = rig_open(&e, &m);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    exl2_stats(r.engine, &stats);
    uint64_t planned[GPUS_MAX] = { 0 };
    for (uint32_t i = 0; i < info.card_count; i++) { /* spans on one GPU are several entries of it */
        const exl2_card_info *c = &info.cards[i];
        planned[c->device] += c->weight_bytes + c->cache_bytes + c->scratch_bytes;
    }
    CHECK(memcmp(stats.devices_bytes, planned, sizeof planned) == 0);
    CHECK(count == 0 || info.card_count == count);
    CHECK(!strstr(model, "gemma2") || info.window_tokens > 0); /* K and V of windows only, on each GPU */
    lora = (exl2_lora){ 0 };
    add_moods(&r, &info, adapted ? path : NULL);
    return r;
}

/* Whether a job has a control vector, or an adapter. */
static bool has_mood(uint32_t n) { return n == 3 || n == 6 || n == 7; }

/* Tokens of a job. Those with moods end early: then passes of 9 rows and fewer have none. */
static uint32_t new_tokens(uint32_t n) { return has_mood(n) ? 8 : NEW - n % 4 * 6; }

/* With min_tokens no pass would be queued before its tokens are known. */
static const exl2_bias no_end = { 2, -INFINITY };

static exl2_job_desc job_of(const rig *r, uint32_t n, exl2_token *prompt, exl2_session s, rig_said *said)
{
    memset(said, 0, sizeof *said);
    for (uint32_t k = 0; k < 20 + 4 * n; k++) { /* the models' contexts hold 128 tokens */
        prompt[k] = (exl2_token)(16 + (n * 91 + k * k * 7 + k * 31) % 230);
    }
    exl2_job_desc d = rig_job(r, prompt, 20 + 4 * n, new_tokens(n), said);
    d.session = s;
    d.sampler = (exl2_sampler_desc){ .preset = n % 2 ? EXL2_PRESET_NEUTRAL : EXL2_PRESET_GREEDY, .seed = 5 + n,
                                     .bias = &no_end, .bias_count = 1 };
    static exl2_steer_use steers;
    static exl2_lora_use loras;
    steers = (exl2_steer_use){ steer, 0.5f };
    loras = (exl2_lora_use){ lora, 1 };
    d.steers = &steers;
    d.steer_count = n == 3 || n == 6;
    d.loras = &loras;
    d.lora_count = lora.id && (n == 3 || n == 7);
    return d;
}

/* Twelve jobs at once, in steps of `gpu_us`; one of them is saved with its K and V. Then a saved session is restored,
   and its job continues: that of `from`, or the one of this outcome if `from` is NULL. */
static void use(const rig *r, uint32_t gpu_us, exl2_model drafter, const outcome *from, outcome *out)
{
    from = from ? from : out;
    static exl2_token prompt[JOBS][256];
    exl2_session s[JOBS], again;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < JOBS; i++) {
        CHECK_INT(exl2_session_open(r->engine, r->model, &s[i]), EXL2_OK);
        exl2_job_desc d = job_of(r, i, prompt[i], s[i], &out->said[i]);
        d.draft.model = drafter;
        CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    }
    exl2_step_desc step = { .gpu_us = gpu_us, .wait = true };
    while (exl2_step(r->engine, &step) != EXL2_IDLE) {
    }
    CHECK_INT(exl2_session_save(r->engine, s[1], EXL2_SAVE_KV, out->saved, SAVED_BYTES, &out->saved_bytes), EXL2_OK);
    CHECK_INT(exl2_session_open(r->engine, r->model, &again), EXL2_OK);
    CHECK_INT(exl2_session_restore(r->engine, again, from->saved, from->saved_bytes), EXL2_OK);
    exl2_job_desc d = job_of(r, 2, prompt[0], again, &out->said[JOBS]);
    d.prompt.token_count = 3; /* the session has 58 tokens, and its context holds 128 */
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    while (exl2_step(r->engine, &step) != EXL2_IDLE) {
    }
    for (uint32_t i = 0; i <= JOBS; i++) {
        uint32_t count = new_tokens(i < JOBS ? i : 2);
        CHECK(out->said[i].done_events == 1 && out->said[i].result == EXL2_OK && out->said[i].count == count);
    }
}

static void compare(const outcome *got, const outcome *wanted, bool saves, const char *model, const char *how)
{
    bool saved = !saves || (got->saved_bytes == wanted->saved_bytes
                            && memcmp(got->saved, wanted->saved, got->saved_bytes) == 0);
    if (!CHECK(saved)) {
        size_t at = 0;
        while (at < got->saved_bytes && got->saved[at] == wanted->saved[at]) {
            at++;
        }
        printf("  %s, %s: other bits are saved: byte %zu of %zu and %zu\n", model, how, at, got->saved_bytes,
               wanted->saved_bytes);
    }
    for (uint32_t i = 0; i <= JOBS; i++) {
        const rig_said *g = &got->said[i], *w = &wanted->said[i];
        uint32_t same = 0;
        while (same < w->count && same < g->count && g->ids[same] == w->ids[same]
               && memcmp(&g->logprobs[same], &w->logprobs[same], sizeof *w->logprobs) == 0) {
            same++;
        }
        if (!CHECK(g->count == w->count && same == w->count)) {
            printf("  %s, %s: other bits, job %u from token %u on (%g, not %g)\n", model, how, i, same,
                   (double)g->logprobs[same], (double)w->logprobs[same]);
        }
    }
}

/* The folder of a model: of the goldens, of the fixtures, or `name` itself. */
static const char *folder_of(const char *name)
{
    static const char *const folders[] = { "arch", "exl2", "exl3" };
    static char path[1100];
    char file[1200];
    if (strchr(name, '/')) {
        return name;
    }
    for (size_t i = 0; i < EXL2__COUNT(folders) && check_env("EXL2_TEST_DATA"); i++) {
        snprintf(path, sizeof path, "%s/fixtures/%s/%s", check_env("EXL2_TEST_DATA"), folders[i], name);
        snprintf(file, sizeof file, "%s/config.json", rig_golden(name));
        FILE *golden = fopen(file, "rb");
        snprintf(file, sizeof file, "%s/config.json", path);
        FILE *fixture = golden ? NULL : fopen(file, "rb");
        if (golden || fixture) {
            fclose(golden ? golden : fixture);
            return golden ? rig_golden(name) : path;
        }
    }
    return rig_golden(name);
}

static void check_words(const char *name)
{
    static outcome alone, other;
    static const struct way {
        const char *how, *spans, *apart;
        exl2_card cards[GPUS_MAX];
        uint32_t count, gpu_us;
        exl2_split split;
    } ways[] = {
        { "two spans on one GPU", "2", NULL, { { .device = 0 } }, 0, 0, 0 },
        { "many spans on one GPU, in steps", "8", NULL, { { .device = 0 } }, 0, 50, 0 },
        { "on the second GPU", NULL, NULL, { { .device = 1 } }, 1, 0, 0 },
        { "layers on both", NULL, NULL, { { .device = 0 }, { .device = 1 } }, 2, 0, 0 },
        { "layers on both, in steps", NULL, NULL, { { .device = 0 }, { .device = 1 } }, 2, 50, 0 },
        { "layers on both, through host memory", NULL, "1", { { .device = 0 }, { .device = 1 } }, 2, 0, 0 },
        { "most layers on the second one, which is the first card", NULL, NULL,
          { { .device = 1, .share = 9 }, { .device = 0, .share = 1 } }, 2, 0, 0 },
        { "columns on both", NULL, NULL, { { .device = 0 }, { .device = 1 } }, 2, 0, EXL2_SPLIT_COLUMNS },
        { "columns on both, 3 to 1", NULL, NULL, { { .device = 0, .share = 3 }, { .device = 1, .share = 1 } }, 2, 0,
          EXL2_SPLIT_COLUMNS },
        { "columns on both, in steps", NULL, NULL, { { .device = 1 }, { .device = 0 } }, 2, 50, EXL2_SPLIT_COLUMNS },
        { "columns on three", NULL, NULL, { { .device = 2 }, { .device = 0 }, { .device = 1 } }, 3, 0,
          EXL2_SPLIT_COLUMNS },
        { "columns on four", NULL, NULL, { { .device = 0 }, { .device = 1 }, { .device = 2 }, { .device = 3 } }, 4, 0,
          EXL2_SPLIT_COLUMNS },
    };
    char path[1024];
    snprintf(path, sizeof path, "%s", folder_of(name));
    rig r = open_on(path, NULL, 0, EXL2_SPLIT_LAYERS);
    use(&r, 0, (exl2_model){ 0 }, NULL, &alone);
    rig_close(&r);
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        /* At real widths a row of a prompt has other bits in passes of more than 128 rows, unless wgmma computes it. */
        if ((ways[i].split != EXL2_SPLIT_COLUMNS && columns_only) || (ways[i].gpu_us && strchr(name, '/'))
            || ways[i].count > gpus || (ways[i].count > 0 && gpus == 1)) {
            continue;
        }
        setenv("EXL2_TEST_SPANS", ways[i].spans ? ways[i].spans : "1", 1);
        ways[i].apart ? setenv("EXL2_TEST_APART", ways[i].apart, 1) : unsetenv("EXL2_TEST_APART");
        r = open_on(path, ways[i].cards, ways[i].count, ways[i].split);
        use(&r, ways[i].gpu_us, (exl2_model){ 0 }, &alone, &other);
        compare(&other, &alone, true, name, ways[i].how);
        rig_close(&r);
    }
    unsetenv("EXL2_TEST_SPANS");
    unsetenv("EXL2_TEST_APART");
    if (gpus > 1 && !columns_only) {
        exl2_card second = { .device = 1 };
        exl2_model drafter;
        exl2_model_desc m = { .path = path, .batch_max = JOBS, .cards = &second, .card_count = 1 };
        m.cache.tokens = 4096;
        r = open_on(path, NULL, 0, EXL2_SPLIT_LAYERS);
        CHECK_INT(exl2_model_load(r.engine, &m, &drafter), EXL2_OK);
        use(&r, 0, drafter, NULL, &other);
        compare(&other, &alone, false, name, "with a drafter on the second GPU");
        rig_close(&r);
    }
    printf("%s: done\n", name);
}

/* A prompt that the spans of a model share in parts. */
static void check_prompt(const char *path)
{
    enum { TOKENS = 3000 };
    static exl2_token prompt[TOKENS];
    static const struct { const char *how, *spans, *apart; uint32_t count; exl2_split split; } ways[] = {
        { "alone", NULL, NULL, 0, 0 }, { "three spans on one GPU", "3", NULL, 0, 0 },
        { "layers on both", NULL, NULL, 2, 0 }, { "layers on both, through host memory", NULL, "1", 2, 0 },
        { "columns on both", NULL, NULL, 2, EXL2_SPLIT_COLUMNS }
    };
    static const exl2_card cards[2] = { { .device = 0 }, { .device = 1 } };
    static rig_said alone, said;
    for (uint32_t i = 0; i < TOKENS; i++) {
        prompt[i] = (exl2_token)(16 + (i * 91 + i * i % 1009 * 7) % 20000);
    }
    for (size_t i = 0; i < EXL2__COUNT(ways) && (gpus > 1 || ways[i].count == 0); i++) {
        if (i > 0 && columns_only && ways[i].split != EXL2_SPLIT_COLUMNS) {
            continue;
        }
        setenv("EXL2_TEST_SPANS", ways[i].spans ? ways[i].spans : "1", 1);
        setenv("EXL2_TEST_APART", ways[i].apart ? "1" : "", 1);
        exl2_engine_desc e = { .devices = all, .device_count = gpus };
        exl2_model_desc m = { .path = path, .context_max = 4096, .prefill_chunk = 2048, .cards = cards,
                              .card_count = ways[i].count, .split = ways[i].split };
        rig r = rig_open(&e, &m);
        exl2_session s;
        CHECK_INT(exl2_session_open(r.engine, r.model, &s), EXL2_OK);
        memset(&said, 0, sizeof said);
        exl2_job_desc d = rig_job(&r, prompt, TOKENS, NEW, &said);
        d.session = s;
        d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_GREEDY, .bias = &no_end, .bias_count = 1 };
        CHECK_INT(exl2_job_start(r.engine, &d, NULL), EXL2_OK);
        while (exl2_step(r.engine, &(exl2_step_desc){ .wait = true }) != EXL2_IDLE) {
        }
        CHECK(said.done_events == 1 && said.result == EXL2_OK && said.count == NEW);
        printf("%s, %s: prompt of %u in %.1f ms\n", path, ways[i].how, TOKENS, (double)said.stats.prefill_ns * 1e-6);
        alone = i == 0 ? said : alone;
        if (!CHECK(memcmp(said.ids, alone.ids, NEW * sizeof *said.ids) == 0
                   && memcmp(said.logprobs, alone.logprobs, NEW * sizeof *said.logprobs) == 0)) {
            printf("  %s, %s: other bits\n", path, ways[i].how);
        }
        rig_close(&r);
    }
    unsetenv("EXL2_TEST_SPANS");
    unsetenv("EXL2_TEST_APART");
}

int main(int argc, char **argv)
{
    static const char *const models[] = { "exl2-mixed", "exl2-qwen3-moe", "gemma2", "cohere", "orion", "qwen3",
                                          "smollm3", "gptq-phi3", "starcoder2", "mixed-kinds" };
    static const char *const fixtures[] = { "mixtral", "mixtral-uneven", "qwen2-moe", "qwen3-moe", "gpt-oss",
                                            "glm4-moe", "gptq-mixtral", "gptq-act-order", "exl2-ragged", "olmo2",
                                            "olmoe", "exl3-llama", "exl3-mixtral", "exl3-qwen2-padded", "exl3-qwen3" };
    exl2_device_info list[GPUS_MAX];
    uint32_t count = 0;
    exl2_devices(list, GPUS_MAX, &count);
    while (gpus < count && gpus < GPUS_MAX && list[gpus].usable) {
        gpus++;
    }
    if (gpus == 0) {
        check_skip("no GPU");
    }
    columns_only = argc > 1 && strcmp(argv[1], "columns") == 0;
    bool named = false;
    for (int i = 1 + columns_only; i < argc; i++) {
        named = named || !strchr(argv[i], '/');
        check_words(argv[i]);
        if (strchr(argv[i], '/')) {
            check_prompt(argv[i]);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(models) && !named; i++) {
        check_words(models[i]);
    }
    for (size_t i = 0; i < EXL2__COUNT(fixtures) && !named && columns_only && check_env("EXL2_TEST_DATA"); i++) {
        if (folder_of(fixtures[i]) != rig_golden(fixtures[i])) { /* else it is not there */
            check_words(fixtures[i]);
        }
    }
    if (gpus > 1) {
        rig r = open_on(rig_golden("exl2-mixed"), NULL, 0, EXL2_SPLIT_LAYERS);
        exl2_engine_info info;
        exl2_engine_get(r.engine, &info);
        printf("GPUs reach each other's memory: %x, %x\n", info.peers[0], info.peers[1]);
        rig_close(&r);
    }
    return check_done();
}
