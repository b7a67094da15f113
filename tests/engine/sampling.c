/* sampling.c: settings of the sampler through the public API: which tokens they allow, that the seed determines the
   result, that lists are checked. The sampling chain itself: tests/unit/cpu_sample*.c.
   takes: a golden model.
   gives: exit code 0 or 1. */
#include "rig.h"

static const exl2_token prompt[] = { 5, 17, 42, 99, 3, 250, 1, 8 };

#define N .preset = EXL2_PRESET_NEUTRAL

static rig_said said, other;
static exl2_alt best[RIG_TOKENS]; /* the most likely token at each position */
static uint32_t best_count;

static exl2_flow hear_best(void *user, const exl2_event *ev)
{
    for (uint32_t i = 0; ev->kind == EXL2_EVENT_TEXT && i < ev->token_count && ev->alts_per_token; i++) {
        best[best_count++] = ev->alts[i * ev->alts_per_token];
    }
    return rig_hear(user, ev);
}

static void run(const rig *r, exl2_sampler_desc sampler, uint32_t tokens, rig_said *out)
{
    memset(out, 0, sizeof *out);
    best_count = 0;
    exl2_job_desc d = rig_job(r, prompt, EXL2__COUNT(prompt), tokens, out);
    d.sampler = sampler;
    d.sampler.seed = sampler.seed ? sampler.seed : 77;
    d.alts_per_token = 1;
    d.on_event = hear_best;
    rig_run(r, &d);
}

static void expect_refused(const rig *r, exl2_sampler_desc sampler, exl2_result wanted, const char *piece)
{
    exl2_error error;
    exl2_job_desc d = rig_job(r, prompt, EXL2__COUNT(prompt), 4, &said);
    d.sampler = sampler;
    CHECK_INT(exl2_job_start(r->engine, &d, NULL), wanted);
    exl2_last_error(r->engine, &error);
    if (!CHECK(strstr(error.text, piece) != NULL)) {
        printf("  the message is \"%s\", it should hold \"%s\"\n", error.text, piece);
    }
}

static void lists(const rig *r)
{
    const exl2_token few[] = { 30, 31, 32, 33 }, two[] = { 31, 33 }, outside[] = { 4, 100000 };
    exl2_sampler_desc s = { N, .allow = few, .allow_count = 4 };
    uint32_t seen[4] = { 0 };
    run(r, s, 60, &said);
    CHECK_INT(said.count, 60);
    for (uint32_t i = 0; i < said.count; i++) {
        if (CHECK(said.ids[i] >= 30 && said.ids[i] <= 33)) {
            seen[said.ids[i] - 30]++;
        }
    }
    CHECK(seen[0] && seen[1] && seen[2] && seen[3]);
    const exl2_bias wish = { 31, 1000 };
    s.ban = two;
    s.ban_count = 2;
    s.bias = &wish;
    s.bias_count = 1;
    run(r, s, 60, &said);
    for (uint32_t i = 0; i < said.count; i++) {
        CHECK(said.ids[i] == 30 || said.ids[i] == 32);
    }
    s.ban = few;
    s.ban_count = 4;
    exl2_job_desc d = rig_job(r, prompt, EXL2__COUNT(prompt), 4, &said);
    d.sampler = s;
    CHECK_INT(exl2_generate(r->engine, &d), EXL2_ERR_ARG);
    expect_refused(r, (exl2_sampler_desc){ .ban = outside, .ban_count = 2 }, EXL2_ERR_ARG,
                   "banned token 1 is id 100000");
    expect_refused(r, (exl2_sampler_desc){ .allow = outside, .allow_count = 2 }, EXL2_ERR_ARG,
                   "allowed token 1 is id");
    expect_refused(r, (exl2_sampler_desc){ .xtc_keep = outside, .xtc_keep_count = 2 }, EXL2_ERR_ARG,
                   "xtc_keep 1 is id");
    expect_refused(r, (exl2_sampler_desc){ .ban_count = 2 }, EXL2_ERR_ARG, "ban is NULL");
    expect_refused(r, (exl2_sampler_desc){ .ban = few, .ban_count = 0xFFFFFFFF }, EXL2_ERR_BUDGET, "more than");
    const char *const breakers[] = { "." };
    expect_refused(r, (exl2_sampler_desc){ .dry_breakers = breakers, .dry_breaker_count = 1 }, EXL2_ERR_STATE,
                   "which dry_breakers need");
}

static uint32_t repeated(const rig_said *s, uint32_t width)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i + width <= s->count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            count += memcmp(s->ids + i, s->ids + k, width * sizeof *s->ids) == 0;
        }
    }
    return count;
}

static void penalties(const rig *r)
{
    exl2_sampler_desc s = { .preset = EXL2_PRESET_GREEDY };
    run(r, s, 80, &other);
    CHECK(repeated(&other, 2) > 0); /* otherwise the following checks show nothing */
    run(r, (exl2_sampler_desc){ .greedy = true, .temperature = 2 }, 80, &said);
    CHECK(said.count == other.count && memcmp(said.ids, other.ids, said.count * sizeof *said.ids) == 0);
    s.presence_penalty = 100;
    s.penalty_range = -1;
    run(r, s, 80, &said);
    CHECK_INT(repeated(&said, 1), 0);
    s.presence_penalty = 0;
    s.frequency_penalty = 100;
    run(r, s, 80, &said);
    CHECK_INT(repeated(&said, 1), 0);
    s.penalty_range = 3; /* any four consecutive tokens differ; farther apart a token may repeat */
    run(r, s, 80, &said);
    for (uint32_t i = 3; i < said.count; i++) {
        CHECK(said.ids[i] != said.ids[i - 1] && said.ids[i] != said.ids[i - 2] && said.ids[i] != said.ids[i - 3]);
    }
    CHECK(repeated(&said, 1) > 0);
    s.frequency_penalty = 0;
    s.dry_multiplier = 1000;
    s.dry_allowed = 1;
    run(r, s, 80, &said);
    CHECK_INT(repeated(&said, 2), 0);
    s.dry_allowed = 2;
    run(r, s, 80, &said);
    CHECK_INT(repeated(&said, 3), 0);
}

/* Each setting alone: the same seed gives the same ids, and the setting has its effect. */
static void settings(const rig *r)
{
    const exl2_sampler_desc all[] = {
        { N, .typical = 0.5f },          { N, .tail_free = 0.5f },
        { N, .top_a = 0.5f },            { N, .smoothing = 0.5f },
        { N, .skew = -1 },               { N, .mirostat_tau = 2 },
        { N, .adaptive_target = 0.2f, .min_p = 0.02f },
        { N, .temperature = 1.5f, .temperature_last = true, .top_k = 20 },
        { N, .dynamic_min = 0.2f, .dynamic_max = 2 },
        { N, .xtc_probability = 1, .xtc_threshold = 0.001f },
        { N, .repeat_penalty = 1.3f, .penalty_range = 4, .penalty_decay = 8 },
    };
    run(r, (exl2_sampler_desc){ N }, 40, &other);
    static exl2_token neutral[40];
    memcpy(neutral, other.ids, sizeof neutral);
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        run(r, all[i], 40, &other);
        run(r, all[i], 40, &said);
        CHECK(said.count == 40 && memcmp(said.ids, other.ids, sizeof neutral) == 0);
        CHECK(memcmp(said.ids, neutral, sizeof neutral) != 0);
        uint32_t likeliest = 0;
        for (uint32_t k = 0; k < said.count; k++) {
            likeliest += said.ids[k] == best[k].token;
        }
        CHECK(all[i].xtc_probability <= 0 || likeliest < 3); /* except where no other token reaches 0.001 */
        exl2_sampler_desc one = all[i];
        one.top_k = 1;
        one.repeat_penalty = 0;
        run(r, one, 40, &said);
        for (uint32_t k = 0; k < said.count; k++) {
            CHECK_INT(said.ids[k], best[k].token);
        }
    }
}

/* Mirostat keeps the surprise near the requested value. The model's own surprise is about 1.5 bits, and the temperature
   raises it above both values. */
static void mirostat(const rig *r)
{
    double means[2];
    for (int i = 0; i < 2; i++) {
        run(r, (exl2_sampler_desc){ N, .temperature = 2, .mirostat_tau = i ? 5 : 1, .mirostat_eta = 0.3f }, 80,
            &said);
        means[i] = 0;
        for (uint32_t k = 0; k < said.count; k++) {
            means[i] -= (double)said.logprobs[k] / (double)said.count;
        }
    }
    CHECK(means[0] + 1.5 < means[1]); /* about 0.9 and 4.3 nats */
}

static void adaptive_refused(const rig *r)
{
    expect_refused(r, (exl2_sampler_desc){ N, .adaptive_target = 0.5f, .mirostat_tau = 2 }, EXL2_ERR_ARG,
                   "mirostat_tau and adaptive_target are both set");
    expect_refused(r, (exl2_sampler_desc){ N, .adaptive_target = 1.5f }, EXL2_ERR_ARG, "adaptive_target");
    expect_refused(r, (exl2_sampler_desc){ N, .adaptive_decay = 1 }, EXL2_ERR_ARG, "adaptive_decay");
}

int main(void)
{
    rig r = rig_load(rig_golden("exl2-mixed"));
    lists(&r);
    penalties(&r);
    settings(&r);
    mirostat(&r);
    adaptive_refused(&r);
    exl2_engine_stats stats;
    exl2_stats(r.engine, &stats);
    CHECK((stats.cpu_sampled > 0) == (RIG_BACKEND == EXL2_BACKEND_CUDA));
    rig_close(&r);
    return check_done();
}
