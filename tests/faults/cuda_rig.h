/* cuda_rig.h: what the fault tests over the fake driver share: jobs whose tokens must be those of the fake model, and a
   use of an engine that makes every kind of driver call.
   takes: fake_model.h; the goldens.
   gives: cuda_open, cuda_load, cuda_job, cuda_step_all, cuda_run, cuda_expect_history, cuda_hear_load,
          cuda_load_again, cuda_use. */
#ifndef CUDA_RIG_H
#define CUDA_RIG_H

#define RIG_BACKEND EXL2_BACKEND_CUDA
#include "../device/fake_model.h"
#include "../engine/rig.h"

#define CUDA_VOCAB 320u /* vocabulary of exl2-mixed */

static exl2_error cuda_error; /* error of the last cuda_open */

static const exl2_card *cuda_cards; /* [cuda_card_count] of the model that cuda_load loads */
static uint32_t cuda_card_count;
static exl2_split cuda_split;
static uint32_t cuda_host_mlps; /* of the same model: layers whose MLPs the CPU computes */

static const exl2_token cuda_prompt[] = { 5, 17, 42, 99, 3, 250, 1, 8 };

/* Opens an engine on the fake GPU. NULL: failed, with the error in cuda_error. */
static inline exl2_engine *cuda_open(void)
{
    exl2_engine *e = NULL;
    exl2_engine_desc d = machine_desc(EXL2_BACKEND_CUDA, &cuda_error);
    cuda_error = (exl2_error){ EXL2_OK, 0, "" };
    exl2_result r = exl2_open(&d, &e);
    CHECK((e == NULL) == (r < 0) && cuda_error.code == r);
    return e;
}

static inline exl2_result cuda_load(exl2_engine *e, exl2_model *out)
{
    exl2_model_desc d = { 0 };
    d.path = rig_golden("exl2-mixed");
    d.prefill_chunk = 32;
    d.batch_max = 4;
    d.cache.tokens = 16 * EXL2__PAGE_TOKENS;
    d.cards = cuda_cards;
    d.card_count = cuda_card_count;
    d.split = cuda_split;
    d.offload = cuda_host_mlps ? EXL2_OFFLOAD_AUTO : EXL2_OFFLOAD_NONE;
    d.host_mlps = cuda_host_mlps;
    return exl2_model_load(e, &d, out);
}

/* The history must have `count` tokens; all after the first `given` must be those that the fake model generates. */
static inline void cuda_expect_history(exl2_engine *e, exl2_session s, size_t given, size_t count)
{
    static exl2_token ids[256];
    size_t need = 0;
    uint32_t sum = 0, wrong = 0;
    CHECK_INT(exl2_session_tokens(e, s, ids, EXL2__COUNT(ids), &need), EXL2_OK);
    CHECK_INT(need, count);
    for (size_t i = 0; i < need; i++) {
        wrong += i >= given && ids[i] != fake_model_say(sum, CUDA_VOCAB);
        sum = fake_model_hear(sum, (uint32_t)ids[i]);
    }
    CHECK_INT(wrong, 0);
}

/* A desc of a greedy job that continues `s`. */
static inline exl2_job_desc cuda_job(exl2_session s, const exl2_token *ids, size_t count, uint32_t tokens,
                                     rig_said *said)
{
    exl2_job_desc d = { 0 };
    memset(said, 0, offsetof(rig_said, scores));
    d.session = s;
    d.prompt.tokens = ids;
    d.prompt.token_count = count;
    d.max_tokens = tokens;
    d.sampler.preset = EXL2_PRESET_GREEDY;
    d.on_event = rig_hear;
    d.user = said;
    return d;
}

/* Steps until the engine is idle. late: no step waits. gpu_us: device time per step; 0 = whole passes. */
static inline void cuda_step_all(exl2_engine *e, bool late, uint32_t gpu_us)
{
    exl2_step_desc step = { .gpu_us = gpu_us, .wait = !late };
    uint32_t steps = 0;
    while (steps < 100000 && exl2_step(e, &step) != EXL2_IDLE) {
        steps++;
    }
    CHECK(steps < 100000);
}

/* ---- parking ---- */

static exl2_result cuda_loaded; /* result of the last LOAD event of models with cuda_hear_load */

static exl2_flow cuda_hear_load(void *user, const exl2_event *event)
{
    (void)user;
    cuda_loaded = event->result;
    return EXL2_CONTINUE;
}

/* Loads a parked model again, in slices: the result of the last LOAD event. */
static inline exl2_result cuda_load_again(exl2_engine *e, exl2_model model)
{
    cuda_loaded = EXL2_PENDING;
    CHECK_INT(exl2_model_park(e, model, false), EXL2_OK);
    for (uint32_t i = 0; i < 100000 && cuda_loaded == EXL2_PENDING; i++) {
        exl2_step(e, &(exl2_step_desc){ .cpu_us = 1 });
    }
    return cuda_loaded;
}

/* ---- using an engine ---- */

typedef struct cuda_life {
    exl2_engine *e;
    exl2_model model;
    exl2_session a, b, c;
    bool late;       /* the device works as late as it may, so steps must not wait for it */
    bool unheard;    /* the failure came when no job was left that could report it */
    exl2_error error; /* the failure */
} cuda_life;

static rig_said cuda_said[3];

/* For a call that may fail: keeps the error. */
static inline exl2_result cuda_try(cuda_life *l, exl2_result r)
{
    if (r < 0) {
        exl2_last_error(l->e, &l->error);
    }
    return r;
}

static inline exl2_result cuda_keep(cuda_life *l, const rig_said *said)
{
    if (said->result < 0) {
        l->error.code = said->result;
        memcpy(l->error.text, said->error, sizeof l->error.text - 1);
    }
    return said->result;
}

/* Starts the jobs and steps until they are done. Returns EXL2_OK, or the error of the first job that failed. */
static inline exl2_result cuda_run(cuda_life *l, const exl2_job_desc *d, uint32_t count)
{
    exl2_job job;
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(cuda_try(l, exl2_job_start(l->e, &d[i], &job)));
    }
    cuda_step_all(l->e, l->late, 0);
    for (uint32_t i = 0; i < count; i++) {
        const rig_said *said = &cuda_said[i];
        CHECK_INT(said->done_events, 1);
        EXL2__TRY(cuda_keep(l, said));
    }
    return EXL2_OK;
}

/* One job alone: a prompt, then single tokens in passes that are queued before the tokens are known. */
static inline exl2_result cuda_use_alone(cuda_life *l)
{
    exl2_job_desc d = cuda_job(l->a, cuda_prompt, 8, 6, &cuda_said[0]);
    EXL2__TRY(l->late ? cuda_run(l, &d, 1) : cuda_try(l, exl2_generate(l->e, &d)));
    cuda_expect_history(l->e, l->a, 8, 14);
    return EXL2_OK;
}

/* Three jobs at once: a session, its fork, whose pages are copied, and a scored prompt over two pages in pieces. */
static inline exl2_result cuda_use_beside(cuda_life *l)
{
    exl2_token longer[100];
    for (uint32_t i = 0; i < EXL2__COUNT(longer); i++) {
        longer[i] = (exl2_token)(20 + i * 7 % 200);
    }
    EXL2__TRY(cuda_try(l, exl2_session_fork(l->e, l->a, &l->b)));
    exl2_job_desc d[3] = { cuda_job(l->a, cuda_prompt, 1, 5, &cuda_said[0]),
                           cuda_job(l->b, cuda_prompt + 3, 2, 7, &cuda_said[1]),
                           cuda_job(l->c, longer, 100, 3, &cuda_said[2]) };
    d[1].sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 3, .repeat_penalty = 1.1f };
    d[2].score_prompt = true;
    EXL2__TRY(cuda_run(l, d, 3));
    cuda_expect_history(l->e, l->a, 15, 20);
    cuda_expect_history(l->e, l->b, 16, 23);
    cuda_expect_history(l->e, l->c, 100, 103);
    return EXL2_OK;
}

/* A job that runs unit by unit and is cancelled in the middle; then a job that the CPU samples. */
static inline exl2_result cuda_use_in_steps(cuda_life *l)
{
    exl2_job job;
    exl2_step_desc step = { .gpu_us = 1 };
    exl2_job_desc other = cuda_job(l->b, cuda_prompt, 4, 9, &cuda_said[1]);
    exl2_job_desc d = cuda_job(l->a, cuda_prompt, 4, 3, &cuda_said[0]);
    EXL2__TRY(cuda_try(l, exl2_session_rewind(l->e, l->a, 10)));
    EXL2__TRY(cuda_try(l, exl2_job_start(l->e, &other, &job)));
    for (uint32_t i = 0; i < 6; i++) {
        exl2_step(l->e, &step);
    }
    if (cuda_said[1].done_events == 0) {
        bool failed = fake.failed[0] != 0;
        exl2_job_cancel(l->e, job);
        cuda_step_all(l->e, l->late, 1);
        l->unheard = !failed && fake.failed[0];
    }
    CHECK_INT(cuda_said[1].done_events, 1);
    if (cuda_said[1].result != EXL2_ERR_CANCELLED) {
        CHECK(cuda_said[1].result < 0);
        return cuda_keep(l, &cuda_said[1]);
    }
    /* The CPU samples because of `typical` and the presence penalty; the tokens are the same. The penalties of DRY are
       biases, which the GPU supports as well. */
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 3, .typical = 0.9f, .dry_multiplier = 0.5f,
                                     .presence_penalty = 0.1f };
    exl2_engine_stats before, after;
    exl2_stats(l->e, &before);
    EXL2__TRY(cuda_run(l, &d, 1));
    exl2_stats(l->e, &after);
    CHECK_INT(after.cpu_sampled - before.cpu_sampled, 3);
    cuda_expect_history(l->e, l->a, 14, 17);
    return EXL2_OK;
}

/* A session is saved with its K and V and restored as another one, which goes on. Where the copy of K and V fails, the
   history is there. */
static inline exl2_result cuda_use_saved(cuda_life *l)
{
    static uint8_t saved[1u << 20];
    exl2_session s;
    exl2_session_info info;
    size_t bytes = 0;
    EXL2__TRY(cuda_try(l, exl2_session_open(l->e, l->model, &s)));
    EXL2__TRY(cuda_try(l, exl2_session_save(l->e, l->a, EXL2_SAVE_KV, saved, sizeof saved, &bytes)));
    exl2_result r = cuda_try(l, exl2_session_restore(l->e, s, saved, bytes));
    CHECK_INT(exl2_session_get(l->e, s, &info), EXL2_OK);
    CHECK_INT(info.tokens, 17);
    CHECK_INT(info.tokens_cached, r < 0 ? 0 : 16);
    EXL2__TRY(r);
    exl2_job_desc d = cuda_job(s, cuda_prompt, 2, 3, &cuda_said[0]);
    EXL2__TRY(cuda_run(l, &d, 1));
    CHECK_INT(cuda_said[0].stats.reused_tokens, 0);
    cuda_expect_history(l->e, s, 19, 22);
    return cuda_try(l, exl2_session_close(l->e, s));
}

#define CUDA_MASKED 9u /* the grammar allows this number of tokens */

/* The application's own grammar: the n-th id must be n modulo CUDA_MASKED. */
static bool cuda_allow(void *user, exl2_job job, const exl2_token *out, uint32_t n, uint32_t *bits, uint32_t words)
{
    (void)job;
    (void)out;
    ++*(uint32_t *)user;
    for (uint32_t id = FAKE_MODEL_FIRST; id < words * 32; id++) {
        bits[id / 32] |= (uint32_t)(id % CUDA_MASKED == n) << id % 32;
    }
    return n < CUDA_MASKED;
}

/* Every token is one that its own mask allows: in passes that are queued before masks are made, unit by unit, and with
   a second job that has no grammar. The first text ends when the grammar ends, while one more pass is under way, whose
   result is not used. */
static inline exl2_result cuda_use_masked(cuda_life *l)
{
    static uint32_t asked;
    exl2_grammar g;
    exl2_grammar_desc gd = { .model = l->model, .kind = EXL2_GRAMMAR_CUSTOM, .allow = cuda_allow, .user = &asked };
    EXL2__TRY(cuda_try(l, exl2_grammar_make(l->e, &gd, &g)));
    for (uint32_t round = 0; round < 3; round++) {
        exl2_session_info info;
        exl2_token ids[256];
        size_t need;
        exl2_job_desc d[2] = { cuda_job(l->a, cuda_prompt, 3, 20, &cuda_said[0]),
                               cuda_job(l->c, cuda_prompt, 1, 4, &cuda_said[1]) };
        d[0].grammar = g;
        d[0].max_tokens = round == 0 ? 20 : CUDA_MASKED;
        asked = 0;
        EXL2__TRY(cuda_try(l, exl2_session_get(l->e, l->a, &info)));
        if (round == 1) {
            exl2_job job;
            EXL2__TRY(cuda_try(l, exl2_job_start(l->e, &d[0], &job)));
            cuda_step_all(l->e, l->late, 1);
            EXL2__TRY(cuda_keep(l, &cuda_said[0]));
        } else {
            EXL2__TRY(cuda_run(l, d, 1 + round / 2));
        }
        l->unheard = round == 0 && (fake.failed[0] || fake.lost);
        CHECK_INT(asked, CUDA_MASKED + (round == 0));
        CHECK(cuda_said[0].stop == (round == 0 ? EXL2_STOP_GRAMMAR : EXL2_STOP_LENGTH));
        CHECK_INT(cuda_said[0].count, CUDA_MASKED);
        CHECK_INT(exl2_session_tokens(l->e, l->a, ids, EXL2__COUNT(ids), &need), EXL2_OK);
        CHECK_INT(need, info.tokens + 3 + CUDA_MASKED);
        uint32_t sum = 0;
        for (uint32_t i = 0; i < need; i++) {
            uint32_t at = i - info.tokens - 3; /* index among the generated tokens */
            if (i >= info.tokens + 3) {
                uint32_t id = (uint32_t)fake_model_say(sum, CUDA_VOCAB);
                while (id % CUDA_MASKED != at || id < FAKE_MODEL_FIRST) {
                    id = (id + 1) % CUDA_VOCAB;
                }
                CHECK_INT(ids[i], id);
            }
            sum = fake_model_hear(sum, (uint32_t)ids[i]);
        }
    }
    return cuda_try(l, exl2_grammar_close(l->e, g));
}

/* Loads a model, runs jobs of all kinds, closes the model. Returns EXL2_OK or the first error. */
static inline exl2_result cuda_use(cuda_life *l)
{
    EXL2__TRY(cuda_try(l, cuda_load(l->e, &l->model)));
    EXL2__TRY(cuda_try(l, exl2_session_open(l->e, l->model, &l->a)));
    EXL2__TRY(cuda_try(l, exl2_session_open(l->e, l->model, &l->c)));
    EXL2__TRY(cuda_use_alone(l));
    EXL2__TRY(cuda_use_beside(l));
    EXL2__TRY(cuda_use_in_steps(l));
    EXL2__TRY(cuda_use_saved(l));
    EXL2__TRY(cuda_use_masked(l));
    return exl2_model_close(l->e, l->model);
}

#endif
