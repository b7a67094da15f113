/* guidance.c: classifier-free guidance with a negative prompt: the formula, two sequences that advance together, other
   jobs in the same batch, ends of every kind. Through the public API.
   takes: a golden model.
   gives: exit code 0 or 1. */
#include "rig.h"

static const exl2_token yes[] = { 5, 17, 42, 99, 3, 250, 1, 8 }, no[] = { 200, 7, 9 };

static rig_said said, other;

static exl2_session session_of(const rig *r, const exl2_token *ids, uint32_t count)
{
    exl2_session s;
    CHECK_INT(exl2_session_open(r->engine, r->model, &s), EXL2_OK);
    if (count) {
        exl2_job_desc d = rig_job(r, ids, count, 0, &other);
        d.session = s;
        d.prefill_only = true;
        rig_run(r, &d);
    }
    return s;
}

/* The raw logits after these ids. */
static float captured[1024];

static void capture(void *user, exl2_job job, float *logits, uint32_t vocab)
{
    (void)user;
    (void)job;
    memcpy(captured, logits, vocab * sizeof *logits);
}

static uint32_t vocab_of(const rig *r)
{
    exl2_model_info info;
    CHECK_INT(exl2_model_get(r->engine, r->model, &info), EXL2_OK);
    return info.vocab;
}

static void logits_behind(const rig *r, const exl2_token *ids, uint32_t count, double *out)
{
    memset(&other, 0, sizeof other);
    exl2_job_desc d = rig_job(r, ids, count, 1, &other);
    d.on_logits = capture;
    rig_run(r, &d);
    double sum = 0;
    for (uint32_t i = 0; i < vocab_of(r); i++) {
        sum += exp((double)captured[i]);
    }
    for (uint32_t i = 0; i < vocab_of(r); i++) {
        out[i] = (double)captured[i] - log(sum);
    }
}

/* Each token is the most likely one by s log p + (1 - s) log n, in double. */
static void check_formula(const rig *r, float guidance)
{
    exl2_token with[64], without[64];
    double p[1024], n[1024];
    uint32_t vocab = vocab_of(r), told = 0;
    exl2_session s = session_of(r, no, EXL2__COUNT(no));
    memset(&said, 0, sizeof said);
    exl2_job_desc d = rig_job(r, yes, EXL2__COUNT(yes), 12, &said);
    d.guidance = guidance;
    d.negative_session = s;
    rig_run(r, &d);
    CHECK_INT(said.count, 12);
    memcpy(with, yes, sizeof yes);
    memcpy(without, no, sizeof no);
    for (uint32_t k = 0; k < said.count; k++) {
        logits_behind(r, with, (uint32_t)EXL2__COUNT(yes) + k, p);
        logits_behind(r, without, (uint32_t)EXL2__COUNT(no) + k, n);
        uint32_t best = 0;
        for (uint32_t i = 0; i < vocab; i++) {
            p[i] = (double)guidance * p[i] + (1 - (double)guidance) * n[i];
            best = p[i] > p[best] ? i : best;
        }
        CHECK(p[best] - p[said.ids[k]] < 1e-3); /* equal, or a near tie */
        told += said.ids[k] == (exl2_token)best;
        with[EXL2__COUNT(yes) + k] = without[EXL2__COUNT(no) + k] = said.ids[k];
    }
    CHECK(told >= 11);
    exl2_token history[64];
    size_t need;
    CHECK_INT(exl2_session_tokens(r->engine, s, history, 64, &need), EXL2_OK);
    CHECK(need == EXL2__COUNT(no) + 12 && memcmp(history, without, need * sizeof *history) == 0);
    CHECK_INT(exl2_session_close(r->engine, s), EXL2_OK);
}

/* A guidance of 1 has no effect. */
static void check_without_effect(const rig *r)
{
    memset(&other, 0, sizeof other);
    exl2_job_desc d = rig_job(r, yes, EXL2__COUNT(yes), 30, &other);
    d.sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_NEUTRAL, .seed = 5, .top_k = 40 };
    rig_run(r, &d);
    memset(&said, 0, sizeof said);
    d.user = &said;
    d.guidance = 1;
    d.negative_session = session_of(r, no, 2);
    rig_run(r, &d);
    CHECK(said.count == 30 && memcmp(said.ids, other.ids, 30 * sizeof *said.ids) == 0);
    memset(&said, 0, sizeof said);
    d.guidance = 3;
    rig_run(r, &d);
    CHECK(said.count == 30 && memcmp(said.ids, other.ids, 30 * sizeof *said.ids) != 0);
    CHECK_INT(exl2_session_rewind(r->engine, d.negative_session, 2), EXL2_OK);
    memset(&said, 0, sizeof said);
    rig_run(r, &d);
    CHECK_INT(exl2_session_close(r->engine, d.negative_session), EXL2_OK);
    memset(&other, 0, sizeof other); /* the same negative prompt as ids, in the job's internal session */
    d.user = &other;
    d.negative_session = (exl2_session){ 0 };
    d.negative_prompt.tokens = no;
    d.negative_prompt.token_count = 2;
    rig_run(r, &d);
    CHECK(other.count == 30 && memcmp(said.ids, other.ids, 30 * sizeof *said.ids) == 0);
}

/* Prompts of different lengths, in chunks, together with other jobs: the same results as alone. */
static void check_beside(const char *path, uint32_t chunk, uint32_t cpu_us)
{
    static exl2_token longer[150];
    static rig_said guided[3], plain[2];
    exl2_model_desc m = { .path = path, .prefill_chunk = chunk, .batch_max = 5, .context_max = 256 };
    rig r = rig_open(NULL, &m);
    for (uint32_t i = 0; i < 150; i++) {
        longer[i] = (exl2_token)(20 + i * 7 % 200);
    }
    exl2_session negative[3] = { session_of(&r, longer, 10), session_of(&r, longer, 149), session_of(&r, no, 3) };
    exl2_job_desc d[3];
    for (uint32_t i = 0; i < 3; i++) {
        exl2_session_rewind(r.engine, negative[i], i == 1 ? 140 : 2);
        d[i] = rig_job(&r, i == 2 ? longer : yes, i == 2 ? 150 : EXL2__COUNT(yes), 20, &guided[i]);
        d[i].sampler = (exl2_sampler_desc){ .preset = EXL2_PRESET_BALANCED, .seed = i + 1 };
        d[i].guidance = 1.5f + (float)i;
        d[i].negative_session = negative[i];
        memset(&guided[i], 0, sizeof guided[i]);
        rig_run(&r, &d[i]);
    }
    static exl2_token wanted[3][20];
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(guided[i].count, 20);
        memcpy(wanted[i], guided[i].ids, sizeof wanted[i]);
        exl2_session_rewind(r.engine, negative[i], i == 1 ? 140 : 2);
        memset(&guided[i], 0, sizeof guided[i]);
        CHECK_INT(exl2_job_start(r.engine, &d[i], NULL), EXL2_OK);
        if (i < 2) {
            memset(&plain[i], 0, sizeof plain[i]);
            exl2_job_desc other_job = rig_job(&r, longer, 70 + i * 60, 15, &plain[i]);
            CHECK_INT(exl2_job_start(r.engine, &other_job, NULL), EXL2_OK);
        }
    }
    rig_drain(&r, cpu_us);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(guided[i].done_events, 1);
        CHECK_INT(guided[i].result, EXL2_OK);
        CHECK(guided[i].count == 20 && memcmp(guided[i].ids, wanted[i], sizeof wanted[i]) == 0);
    }
    CHECK(plain[0].count == 15 && plain[1].count == 15);
    rig_close(&r);
}

static void ends(const rig *r)
{
    exl2_engine_stats before, after;
    exl2_session_info info;
    exl2_session s = session_of(r, no, 3), fork;
    exl2_job job;
    exl2_step_desc step = { 0 };
    exl2_stats(r->engine, &before);
    exl2_job_desc d = rig_job(r, yes, EXL2__COUNT(yes), 100, &said);
    d.guidance = 2;
    d.negative_session = s;
    for (int i = 0; i < 3; i++) {
        memset(&said, 0, sizeof said);
        CHECK_INT(exl2_job_start(r->engine, &d, &job), EXL2_OK);
        CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
        CHECK_INT(info.busy_with.id, job.id);
        CHECK_INT(exl2_session_rewind(r->engine, s, 1), EXL2_ERR_STATE);
        for (int k = 0; k < 4 + i; k++) {
            exl2_step(r->engine, &step);
        }
        /* the text so far after its own prompt, not the negative one */
        CHECK_INT(exl2_session_fork(r->engine, s, &fork), EXL2_OK);
        CHECK_INT(exl2_session_get(r->engine, fork, &info), EXL2_OK);
        CHECK_INT(info.tokens, 3 + said.count);
        CHECK_INT(exl2_session_close(r->engine, fork), EXL2_OK);
        CHECK_INT(i < 2 ? exl2_job_cancel(r->engine, job) : exl2_session_close(r->engine, s), EXL2_OK);
        rig_drain(r, 0);
        CHECK(said.done_events == 1 && said.result == EXL2_ERR_CANCELLED);
        if (i < 2) {
            CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_OK);
            CHECK(info.busy_with.id == 0 && info.tokens == 3 + said.count);
            CHECK_INT(exl2_session_rewind(r->engine, s, 3), EXL2_OK);
        }
    }
    CHECK_INT(exl2_session_get(r->engine, s, &info), EXL2_ERR_STALE);
    exl2_stats(r->engine, &after);
    CHECK(after.host_bytes == before.host_bytes && after.jobs_active == 0 && after.jobs_waiting == 0);
    CHECK_INT(after.pages_used, 0);
}

static void expect_refused(const rig *r, const exl2_job_desc *d, exl2_result wanted, const char *piece)
{
    exl2_error error;
    exl2_engine_stats before, after;
    exl2_stats(r->engine, &before);
    CHECK_INT(exl2_job_start(r->engine, d, NULL), wanted);
    exl2_stats(r->engine, &after);
    exl2_last_error(r->engine, &error);
    CHECK(after.host_bytes == before.host_bytes && after.pages_used == before.pages_used);
    if (!CHECK(strstr(error.text, piece) != NULL)) {
        printf("  the message is \"%s\", it should hold \"%s\"\n", error.text, piece);
    }
}

static void refusals(const rig *r)
{
    exl2_job_desc d = rig_job(r, yes, EXL2__COUNT(yes), 10, &said);
    d.guidance = 2;
    expect_refused(r, &d, EXL2_ERR_ARG, "guidance needs a negative prompt or session");
    d.negative_session = session_of(r, NULL, 0);
    expect_refused(r, &d, EXL2_ERR_ARG, "there is no token to generate from");
    d.guidance = 0;
    expect_refused(r, &d, EXL2_ERR_ARG, "a negative prompt needs guidance");
    d.guidance = 1000;
    expect_refused(r, &d, EXL2_ERR_ARG, "guidance must be in the range -100 to 100");
    d.guidance = 2;
    exl2_session same = session_of(r, no, 3);
    d.session = d.negative_session = same;
    expect_refused(r, &d, EXL2_ERR_STATE, "the session is busy");
    exl2_session_info info;
    CHECK_INT(exl2_session_get(r->engine, same, &info), EXL2_OK);
    CHECK_INT(info.busy_with.id, 0);
    d.session = (exl2_session){ 0 };
    d.negative_session = (exl2_session){ 0 };
    d.negative_prompt.text = "no";
    expect_refused(r, &d, EXL2_ERR_STATE, "has no tokenizer.json");
    d.negative_prompt.tokens = no;
    d.negative_prompt.token_count = 2;
    expect_refused(r, &d, EXL2_ERR_ARG, "a prompt of tokens");
    d.negative_prompt.tokens = NULL;
    d.negative_prompt.token_count = 0;
    exl2_model_desc m = { .path = rig_golden("exl2-mixed"), .batch_max = 1 };
    rig small = rig_open(NULL, &m);
    d.model = small.model;
    d.negative_prompt.text = NULL;
    d.negative_session = session_of(&small, no, 3);
    expect_refused(&small, &d, EXL2_ERR_BUDGET, "guidance needs two sequences (batch_max is 1)");
    rig_close(&small);
}

int main(void)
{
    rig r = rig_load(rig_golden("exl2-mixed"));
    const float scales[] = { 1.5f, 3, 0.5f, -1, 1e-6f };
    for (size_t i = 0; i < EXL2__COUNT(scales); i++) {
        check_formula(&r, scales[i]);
    }
    check_without_effect(&r);
    check_beside(rig_golden("exl2-mixed"), 1024, 0);
    check_beside(rig_golden("exl2-mixed"), 16, 0);
    check_beside(rig_golden("exl2-mixed"), 7, 50);
    ends(&r);
    refusals(&r);
    rig_close(&r);
    return check_done();
}
