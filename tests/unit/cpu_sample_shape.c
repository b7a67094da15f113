/* cpu_sample_shape.c: filters, penalties and samplers beyond the plain chain, compared with the chain in double, with
   small distributions computed by hand, and with their own statistics. */
#include "private/cpu_sample_run.h"
#include "../check.h"
#include "../sample_draws.h"

static bool keeps_thirds(const void *user, exl2_token token)
{
    (void)user;
    return token % 3 == 0;
}

static exl2__sampling plain(void)
{
    return settings(1, 0, 1, 0, 1);
}

/* Each setting alone, after top-k, and after top-p and min-p. */
static uint32_t make_cases(exl2__sampling *out)
{
    const exl2__sampling before[] = { plain(), settings(0.8f, 100, 1, 0, 1), settings(1.3f, 60, 0.9f, 0.02f, 1.1f),
                                      settings(1, 0, 0.97f, 0, 1) };
    uint32_t count = 0;
    for (size_t i = 0; i < EXL2__COUNT(before); i++) {
        for (int kind = 0; kind < 14; kind++) {
            exl2__sampling s = before[i];
            s.top_a = kind == 0 ? 0.2f : kind == 11 ? 0.05f : 0;
            s.tail_free = kind == 1 ? 0.9f : kind == 11 ? 0.97f : 0;
            s.typical = kind == 2 ? 0.7f : kind == 3 ? 0.95f : kind == 11 ? 0.9f : 0;
            s.smoothing = kind == 4 ? 0.3f : kind == 5 ? 2.0f : 0;
            s.temperature_last = kind == 6 || kind == 11;
            s.dynamic_max = kind == 7 ? 1.8f : 0;
            s.dynamic_min = kind == 7 ? 0.5f : 0;
            s.dynamic_exponent = kind == 7 ? 1.5f : 1;
            s.xtc_probability = kind == 8 ? 0.5f : kind == 9 ? 1 : 0;
            s.xtc_threshold = 0.03f;
            s.xtc_keeps = kind == 9 ? keeps_thirds : NULL;
            s.mirostat_tau = kind == 10 ? 2 : 0;
            s.state = kind == 10 ? 4 : 0;
            s.adaptive_target = kind == 12 ? 0.3f : kind == 13 ? 0.7f : 0;
            s.state = kind == 12 ? 0.45f : kind == 13 ? 0.2f : s.state;
            s.typical = kind == 13 ? 0.9f : s.typical;
            s.frequency_penalty = kind == 8 ? 0.4f : 0;
            s.presence_penalty = kind == 9 ? 0.3f : 0;
            s.penalty_range = kind == 10 ? 30 : 1000;
            s.penalty_decay = kind == 10 ? 64 : 0;
            out[count++] = s;
        }
    }
    return count;
}

static void test_chain(void)
{
    static const uint32_t vocabs[] = { 1, 2, 3, 64, 1000, 49152 };
    static exl2__sampling cases[64];
    uint32_t count = make_cases(cases);
    uint64_t seed = 9;
    for (size_t v = 0; v < EXL2__COUNT(vocabs); v++) {
        uint32_t vocab = vocabs[v];
        float *logits = take(vocab * sizeof *logits);
        exl2_token history[94]; /* long enough for the range and decay of the penalty */
        for (size_t i = 0; i < EXL2__COUNT(history); i++) {
            history[i] = (exl2_token)(mix(&seed) % (exl2__min32(vocab, 40) + vocab / 8));
        }
        for (int spread = vocab > 40000 ? 5 : 1; spread <= (vocab > 40000 ? 5 : 9); spread += 4) {
            fill_logits(logits, vocab, spread, mix(&seed));
            for (uint32_t i = 0; i < count; i++) {
                compare(logits, vocab, &cases[i], history, EXL2__COUNT(history));
            }
        }
        free(logits);
    }
}

/* ---- distributions computed by hand ---- */

static void shares_of(const float *probabilities, uint32_t count, exl2__sampling s, double *p)
{
    float logits[16];
    for (uint32_t i = 0; i < count; i++) {
        logits[i] = (float)log((double)probabilities[i]);
    }
    implied(logits, count, &s, NULL, 0, p);
}

static void check_near(const double *p, const double *wanted, uint32_t count, double bound)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!CHECK(fabs(p[i] - wanted[i]) <= bound)) {
            printf("%u: %g, not %g\n", i, p[i], wanted[i]);
        }
    }
}

static const float four[] = { 0.5f, 0.3f, 0.15f, 0.05f };

static void test_vectors(void)
{
    double p[16];
    exl2__sampling s = plain();
    float steps[] = { 3, 2, 1, 0 };
    s.smoothing = 1;
    implied(steps, 4, &s, NULL, 0, p);
    check_near(p, (const double[]){ 0.721335, 0.265364, 0.013212, 0.000089 }, 4, 1e-6);
    s.smoothing = 0.5f;
    implied(steps, 4, &s, NULL, 0, p);
    check_near(p, (const double[]){ 0.570459, 0.346001, 0.077203, 0.006337 }, 4, 1e-6);

    s = plain();
    s.tail_free = 0.1f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 1, 0, 0, 0 }, 4, 1e-6);
    for (int i = 0; i < 2; i++) {
        s.tail_free = i ? 0.95f : 0.52f;
        shares_of(four, 4, s, p);
        check_near(p, (const double[]){ 0.625, 0.375, 0, 0 }, 4, 1e-6);
    }
    s.tail_free = 0.5f;
    shares_of((const float[]){ 0.25f, 0.25f, 0.25f, 0.25f }, 4, s, p); /* no curvature: all stay */
    check_near(p, (const double[]){ 0.25, 0.25, 0.25, 0.25 }, 4, 1e-6);
    shares_of((const float[]){ 0.6f, 0.4f }, 2, s, p);
    check_near(p, (const double[]){ 0.6, 0.4 }, 2, 1e-6);

    s = plain(); /* typical: ExLlamaV2 keeps .3; .5 and .3; .3 */
    s.typical = 0.5f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.625, 0.375, 0, 0 }, 4, 1e-6);
    s.typical = 0.9f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0 }, 4, 1e-6);
    s.typical = 0.29f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0, 1, 0, 0 }, 4, 1e-6);

    s = plain();
    s.dynamic_min = 0.5f;
    s.dynamic_max = 1.5f;
    s.dynamic_exponent = 1;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.442818, 0.301057, 0.178345, 0.077779 }, 4, 1e-6);
    s.dynamic_min = 0; /* ExLlamaV2 gives NaN here */
    s.dynamic_max = 1;
    s.dynamic_exponent = 2;
    shares_of((const float[]){ 0.99999f, 0.00001f }, 2, s, p);
    check_near(p, (const double[]){ 1, 0 }, 2, 1e-6);

    s = plain();
    s.xtc_threshold = 0.15f;
    s.xtc_probability = 1;
    shares_of((const float[]){ 0.4f, 0.3f, 0.2f, 0.1f }, 4, s, p);
    check_near(p, (const double[]){ 0, 0, 0.666667, 0.333333 }, 4, 1e-6);
    /* ExLlamaV2 gives a wrong result on an ascending list */
    shares_of((const float[]){ 0.1f, 0.2f, 0.3f, 0.4f }, 4, s, p);
    check_near(p, (const double[]){ 0.333333, 0.666667, 0, 0 }, 4, 1e-6);
    s.xtc_probability = 0.5f;
    shares_of((const float[]){ 0.4f, 0.3f, 0.2f, 0.1f }, 4, s, p);
    check_near(p, (const double[]){ 0.2, 0.15, 0.433333, 0.216667 }, 4, 1e-6);
    s.xtc_keeps = keeps_thirds; /* 0 and 3 stay; of 1 and 2, the less likely one stays */
    shares_of((const float[]){ 0.4f, 0.3f, 0.2f, 0.1f }, 4, s, p);
    double more = 1 + 0.15 / 0.7;
    check_near(p, (const double[]){ 0.4 * more, 0.15, 0.2 * more, 0.1 * more }, 4, 1e-6);
    s.xtc_threshold = 0;
    s.xtc_probability = 1;
    shares_of((const float[]){ 0.25f, 0.25f, 0.25f, 0.25f }, 4, s, p); /* of equal tokens the highest id stays: 2 */
    check_near(p, (const double[]){ 0.333333, 0, 0.333333, 0.333333 }, 4, 1e-6);

    s = plain(); /* top-a of 1; and typical sampling that leaves 0 and 1, without the top token */
    s.top_a = 1;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.625, 0.375, 0, 0 }, 4, 1e-6);
    s.typical = 0.3f;
    s.temperature_last = true;
    s.temperature = 0.02f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0, 1, 0, 0 }, 4, 1);
    CHECK(fabs(p[0] + p[1] - 1) < 1e-9);

    s = plain(); /* mirostat: 2^-3 at the beginning; a negative mu leaves one token */
    s.mirostat_tau = 1.5f;
    s.state = 3;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0 }, 4, 1e-6);
    s.state = -2;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 1, 0, 0, 0 }, 4, 1e-6);

    s = plain(); /* adaptive-p: .3 is wanted, then 0 (of 2 * .3 - .7), then 1 (of 2 * .9 - .1) */
    s.adaptive_target = s.state = 0.3f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.054241, 0.780639, 0.147444, 0.017676 }, 4, 1e-6);
    s.state = 0.7f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.000030, 0.006849, 0.191991, 0.801129 }, 4, 1e-6);
    s.xtc_threshold = 0.15f; /* after XTC two thirds and one third are left, of which the second one is wanted */
    s.xtc_probability = 1;
    s.state = 0.6f - 1.0f / 3;
    shares_of((const float[]){ 0.4f, 0.3f, 0.2f, 0.1f }, 4, s, p);
    check_near(p, (const double[]){ 0, 0, 0.002877, 0.997123 }, 4, 1e-6);
    s.xtc_probability = 0;
    s.adaptive_target = 0.9f;
    s.state = 0.1f;
    shares_of(four, 4, s, p);
    check_near(p, (const double[]){ 0.997285, 0.002687, 0.000027, 0.000001 }, 4, 1e-6);
}

static void test_penalties(void)
{
    float x[] = { 2, -2, 0, 1, 3, 1, 1, 1 };
    const float wanted[] = { 0.9333333f, -3.4f, -0.3f, 1, 3, 1, 1, 0.3666667f };
    const exl2_token history[] = { 0, 1, 1, 2, 0, 7, 9, -1 };
    double p[8];
    exl2__sampling s = settings(1, 0, 1, 0, 1.5f);
    s.frequency_penalty = 0.1f;
    s.presence_penalty = 0.2f;
    implied(x, 8, &s, history, EXL2__COUNT(history), p);
    for (int i = 0; i < 8; i++) {
        CHECK(fabsf(x[i] - wanted[i]) < 1e-6f);
    }
    /* Range 2, decay 4: weights 1 1 1 .75 .5 .25, from the newest token on. */
    float y[] = { 1, 1, 1, 1, 1, 1, 1 };
    const exl2_token all[] = { 5, 4, 3, 2, 1, 0 };
    const float faded[] = { 0, 0, 0, 0.25f, 0.5f, 0.75f, 1 };
    s = plain();
    s.presence_penalty = 1;
    s.penalty_range = 2;
    s.penalty_decay = 4;
    implied(y, 7, &s, all, 6, p);
    for (int i = 0; i < 7; i++) {
        CHECK(fabsf(y[i] - faded[i]) < 1e-6f);
    }
}

/* ---- sampling ---- */

static exl2__logit_result draw(const float *from, uint32_t vocab, const exl2__sampling *s, uint64_t position)
{
    float logits[64];
    exl2_alt alts[EXL2_ALTS_MAX];
    void *scratch = take(exl2__sample_scratch_bytes(vocab));
    exl2__logit_row row = { .sampling = s, .sample_position = position };
    exl2__logit_result result = { .alts = alts };
    memset(scratch, 0x5A, exl2__sample_scratch_bytes(vocab));
    memcpy(logits, from, vocab * sizeof *from);
    CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), logits, vocab, &row, scratch, &result), EXL2_OK);
    free(scratch);
    return result;
}

/* u^exp(-skew) over the tokens in order: the first token covers u up to p^exp(skew). */
static void test_skew(void)
{
    const float skews[] = { 1, -1, 0.5f, -0.5f };
    float logits[4] = { (float)log(0.15), (float)log(0.5), (float)log(0.05), (float)log(0.3) };
    for (size_t i = 0; i < EXL2__COUNT(skews); i++) {
        exl2__sampling s = plain();
        uint32_t hits[4] = { 0 }, draws = 20000;
        s.skew = skews[i];
        for (uint32_t n = 0; n < draws; n++) {
            hits[draw(logits, 4, &s, n).token]++;
        }
        double power_of = exp((double)skews[i]), edges[] = { 0, 0.5, 0.8, 0.95, 1 }, statistic = 0;
        const int order[] = { 1, 3, 0, 2 };
        for (int k = 0; k < 4; k++) {
            double expected = draws * (pow(edges[k + 1], power_of) - pow(edges[k], power_of));
            statistic += (hits[order[k]] - expected) * (hits[order[k]] - expected) / expected;
        }
        CHECK(statistic < 21.1); /* chi-square with 3 degrees of freedom, p > 1e-4 */
    }
}

static void test_surprise(void)
{
    float logits[4];
    exl2__sampling s = plain();
    s.mirostat_tau = 2;
    s.state = 2;
    for (int i = 0; i < 4; i++) {
        logits[i] = (float)log((double)four[i]);
    }
    uint32_t seen = 0;
    for (uint32_t n = 0; n < 100; n++) { /* 2^-2 keeps .5 and .3 */
        exl2__logit_result r = draw(logits, 4, &s, n);
        if (CHECK(r.token == 0 || r.token == 1)) {
            CHECK(fabs((double)r.surprise + log2(r.token ? 0.375 : 0.625)) < 1e-5);
            seen |= 1u << r.token;
        }
    }
    CHECK_INT(seen, 3);
    s.mirostat_tau = 0;
    CHECK(draw(logits, 4, &s, 1).surprise == 0);
}

/* Adaptive-p tells the probability that the token had before it, and its log-probability is that of the model. */
static void test_chance(void)
{
    float logits[4];
    exl2__sampling s = settings(2, 3, 1, 0, 1);
    s.adaptive_target = s.state = 0.4f;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        logits[i] = (float)log((double)four[i]);
        sum += i < 3 ? sqrt((double)four[i]) : 0;
    }
    for (int skewed = 0; skewed < 2; skewed++) {
        uint32_t seen = 0;
        s.skew = skewed ? 0.5f : 0;
        for (uint32_t n = 0; n < 200; n++) {
            exl2__logit_result r = draw(logits, 4, &s, n);
            if (CHECK(r.token >= 0 && r.token < 3)) {
                CHECK(fabs((double)r.chance - sqrt((double)four[r.token]) / sum) < 1e-6);
                CHECK(fabs((double)r.logprob - log((double)four[r.token])) < 1e-6);
                seen |= 1u << r.token;
            }
        }
        CHECK_INT(seen, 7);
    }
    s.adaptive_target = 0;
    CHECK(draw(logits, 4, &s, 1).chance == 0);
}

/* Logits that are NaN or infinite, with every setting: the sampled token is allowed. */
static void test_odd_logits(void)
{
    static exl2__sampling cases[64];
    uint32_t count = make_cases(cases);
    const float odd[][4] = { { NOT_A_NUMBER, 1, MINUS_INF, 0 }, { PLUS_INF, 1, PLUS_INF, 0 }, { 3e38f, -3e38f, 0, 1 },
                             { MINUS_INF, MINUS_INF, -5, MINUS_INF }, { 0, MINUS_ZERO, 0, 0 } };
    const uint32_t allowed[] = { 10, 5, 1, 4, 15 };
    for (size_t i = 0; i < EXL2__COUNT(odd); i++) {
        for (uint32_t k = 0; k < count; k++) {
            exl2__logit_result r = draw(odd[i], 4, &cases[k], k);
            CHECK(r.token >= 0 && r.token < 4 && (allowed[i] >> r.token & 1));
            cases[k].skew = 0.5f;
            r = draw(odd[i], 4, &cases[k], k);
            CHECK(r.token >= 0 && r.token < 4 && (allowed[i] >> r.token & 1));
            cases[k].skew = 0;
        }
    }
    const float none[] = { NOT_A_NUMBER, MINUS_INF };
    CHECK_INT(draw(none, 2, &cases[1], 0).token, -1);
}

/* After a rewind a position is sampled anew from the same distribution. */
static void test_attempts(void)
{
    exl2__sampling s = plain();
    const float logits[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    uint32_t differ = 0;
    for (uint32_t n = 0; n < 100; n++) {
        float copy[2][8];
        exl2__logit_result results[2] = { { 0 } };
        void *scratch = take(exl2__sample_scratch_bytes(8));
        for (uint32_t k = 0; k < 2; k++) {
            exl2__logit_row row = { .sampling = &s, .sample_position = n, .attempt = k };
            memcpy(copy[k], logits, sizeof logits);
            CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), copy[k], 8, &row, scratch, &results[k]), EXL2_OK);
        }
        differ += results[0].token != results[1].token;
        free(scratch);
    }
    CHECK(differ > 60);
}

int main(void)
{
    test_vectors();
    test_penalties();
    test_chain();
    test_skew();
    test_surprise();
    test_chance();
    test_odd_logits();
    test_attempts();
    static exl2__sampling cases[64];
    uint32_t count = make_cases(cases);
    for (uint32_t i = 0; i < count; i += 7) {
        check_draws(200, 1.5, cases[i], 300 + i);
    }
    return check_done();
}
