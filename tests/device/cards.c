/* cards.c: a model on the second GPU has the bits that it has on the first one. A model whose layers lie on both has
   the same bits in whole passes and in steps, and those of one GPU where norms are not folded into products; else the
   first tokens are as probable within 0.05. A drafter on the other GPU changes no word. Memory is as planned.
   takes: the goldens; kernels, as all programs of this folder.
   gives: exit code 0, 1, or 77 with fewer than two GPUs. */
#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../engine/rig.h"

#define JOBS 8u
#define NEW 40u
#define SAVED_BYTES (4u << 20)

typedef struct outcome {
    rig_said said[JOBS + 1];
    uint8_t saved[SAVED_BYTES];
    size_t saved_bytes;
} outcome;

static const exl2_device_desc both[2] = { { .pick = EXL2_PICK_INDEX, .index = 0 },
                                          { .pick = EXL2_PICK_INDEX, .index = 1 } };

static rig open_on(const char *model, const exl2_card *cards, uint32_t count)
{
    exl2_engine_desc e = { .devices = both, .device_count = 2 };
    exl2_model_desc m = { .path = model, .batch_max = JOBS, .cards = cards, .card_count = count };
    exl2_model_info info;
    exl2_engine_stats stats;
    m.cache.tokens = 4096;
    rig r = rig_open(&e, &m);
    CHECK_INT(exl2_model_get(r.engine, r.model, &info), EXL2_OK);
    exl2_stats(r.engine, &stats);
    for (uint32_t i = 0; i < info.card_count; i++) {
        const exl2_card_info *c = &info.cards[i];
        CHECK_INT(stats.devices_bytes[c->device], c->weight_bytes + c->cache_bytes + c->scratch_bytes);
    }
    CHECK_INT(info.card_count, count ? count : 1);
    return r;
}

static exl2_job_desc job_of(const rig *r, uint32_t n, exl2_token *prompt, exl2_session s, rig_said *said)
{
    memset(said, 0, sizeof *said);
    for (uint32_t k = 0; k < 20 + 5 * n; k++) { /* the models' contexts hold 128 tokens */
        prompt[k] = (exl2_token)(16 + (n * 91 + k * k * 7 + k * 31) % 230);
    }
    exl2_job_desc d = rig_job(r, prompt, 20 + 5 * n, NEW, said);
    d.session = s;
    d.min_tokens = NEW;
    d.sampler = (exl2_sampler_desc){ .preset = n % 2 ? EXL2_PRESET_NEUTRAL : EXL2_PRESET_GREEDY, .seed = 5 + n };
    return d;
}

/* Eight jobs at once, in steps of `gpu_us`; one of them is saved with its K and V, restored and goes on. */
static void use(const rig *r, uint32_t gpu_us, exl2_model drafter, outcome *out)
{
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
    CHECK_INT(exl2_session_restore(r->engine, again, out->saved, out->saved_bytes), EXL2_OK);
    exl2_job_desc d = job_of(r, 2, prompt[0], again, &out->said[JOBS]);
    d.prompt.token_count = 3; /* the session has 65 tokens, and its context holds 128 */
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), EXL2_OK);
    while (exl2_step(r->engine, &step) != EXL2_IDLE) {
    }
    for (uint32_t i = 0; i <= JOBS; i++) {
        CHECK(out->said[i].done_events == 1 && out->said[i].result == EXL2_OK && out->said[i].count == NEW);
    }
}

/* The first tokens, which the same prompts give. */
static void compare_first(const outcome *got, const outcome *wanted, const char *model, const char *how)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        const rig_said *g = &got->said[i], *w = &wanted->said[i];
        if (!CHECK(g->ids[0] == w->ids[0] && fabsf(g->logprobs[0] - w->logprobs[0]) < 0.05f)) {
            printf("  %s, %s: job %u begins with token %d of %g, on one GPU %d of %g\n", model, how, i, g->ids[0],
                   (double)g->logprobs[0], w->ids[0], (double)w->logprobs[0]);
        }
    }
}

static void compare(const outcome *got, const outcome *wanted, bool saves, const char *model, const char *how)
{
    bool same = !saves || (got->saved_bytes == wanted->saved_bytes
                           && memcmp(got->saved, wanted->saved, got->saved_bytes) == 0);
    for (uint32_t i = 0; i <= JOBS; i++) {
        const rig_said *g = &got->said[i], *w = &wanted->said[i];
        same = same && g->count == w->count && memcmp(g->ids, w->ids, w->count * sizeof *w->ids) == 0
             && memcmp(g->logprobs, w->logprobs, w->count * sizeof *w->logprobs) == 0;
    }
    if (!CHECK(same)) {
        printf("  %s, %s: other bits\n", model, how);
    }
}

static void check_words(const char *name, bool folds)
{
    static outcome alone, cut, other;
    static const struct { const char *how; exl2_card cards[2]; uint32_t count, gpu_us; } ways[] = {
        { "on the second GPU", { { .device = 1 } }, 1, 0 },
        { "layers on both", { { .device = 0 }, { .device = 1 } }, 2, 0 },
        { "layers on both, in steps", { { .device = 0 }, { .device = 1 } }, 2, 50 },
        { "most layers on the second one, which is the first card", { { .device = 1, .share = 9 },
                                                                      { .device = 0, .share = 1 } }, 2, 0 },
    };
    char path[1024];
    snprintf(path, sizeof path, "%s", rig_golden(name));
    rig r = open_on(path, NULL, 0);
    use(&r, 0, (exl2_model){ 0 }, &alone);
    rig_close(&r);
    for (size_t i = 0; i < EXL2__COUNT(ways); i++) {
        r = open_on(path, ways[i].cards, ways[i].count);
        use(&r, ways[i].gpu_us, (exl2_model){ 0 }, &other);
        if (i == 0 || !folds) {
            compare(&other, &alone, true, name, ways[i].how);
        } else if (i == 2) {
            compare(&other, &cut, true, name, ways[i].how);
        } else {
            compare_first(&other, &alone, name, ways[i].how);
            cut = other;
        }
        rig_close(&r);
    }
    exl2_card second = { .device = 1 };
    exl2_model drafter;
    exl2_model_desc m = { .path = path, .batch_max = JOBS, .cards = &second, .card_count = 1 };
    m.cache.tokens = 4096;
    r = open_on(path, NULL, 0);
    CHECK_INT(exl2_model_load(r.engine, &m, &drafter), EXL2_OK);
    use(&r, 0, drafter, &other);
    compare(&other, &alone, false, name, "with a drafter on the second GPU");
    CHECK(other.said[0].stats.accepted > 0);
    rig_close(&r);
    printf("%s: done\n", name);
}

int main(void)
{
    static const struct { const char *name; bool folds; } models[] = {
        { "exl2-mixed", true }, { "exl2-qwen3-moe", true }, { "gemma2", false }, { "cohere", false },
        { "orion", false }, { "qwen3", true }, { "smollm3", true }, { "gptq-phi3", true }
    };
    exl2_device_info list[2];
    uint32_t count = 0;
    exl2_devices(list, 2, &count);
    if (count < 2 || !list[0].usable || !list[1].usable) {
        check_skip("two GPUs are needed");
    }
    for (size_t i = 0; i < EXL2__COUNT(models); i++) {
        check_words(models[i].name, models[i].folds);
    }
    return check_done();
}
