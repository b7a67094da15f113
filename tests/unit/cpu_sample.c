/* cpu_sample.c: the sampling chain compared with a simple one in double, with its own statistics, and at its edges. */
#include "private/cpu_sample_run.h"
#include "../check.h"
#include "../sample_draws.h"

static void test_chain(void)
{
    static const uint32_t vocabs[] = { 1, 2, 63, 64, 65, 1000, 49152, 152064 };
    uint64_t seed = 5;
    for (size_t v = 0; v < EXL2__COUNT(vocabs); v++) {
        uint32_t vocab = vocabs[v];
        float *logits = take(vocab * sizeof *logits);
        exl2_token history[300];
        for (size_t i = 0; i < EXL2__COUNT(history); i++) {
            history[i] = (exl2_token)(mix(&seed) % (vocab + vocab / 8)); /* some are outside the vocabulary */
        }
        for (int spread = vocab > 100000 ? 5 : 1; spread <= 9; spread += vocab > 100000 ? 5 : 4) {
            fill_logits(logits, vocab, spread, mix(&seed));
            exl2__sampling cases[] = {
                settings(1, 0, 1, 0, 1),           settings(0.3f, 0, 1, 0, 1.3f),
                settings(0.8f, 0, 1, 0.05f, 1.1f), settings(1, 40, 0.9f, 0, 1),
                settings(1.7f, 50, 0.8f, 0, 1),    settings(1, 0, 0.95f, 0, 1),
                settings(2.5f, 0, 0.5f, 0.1f, 1),  settings(1, 5000, 1, 0, 1.2f),
                settings(1, 0, 0.999f, 0.001f, 1), settings(0.7f, 20, 0.97f, 0.02f, 0.8f),
                settings(1, 1, 1, 0, 1),           settings(1, 0, 1, 1, 1),
                settings(30, 0, 0.9f, 0, 1),       settings(1, 0, 1e-7f, 0, 1),
                settings(1, 64, 1, 1e-9f, 1),      settings(1, 3000, 0.9f, 0, 1),
            };
            for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
                compare(logits, vocab, &cases[i], history, EXL2__COUNT(history));
            }
        }
        free(logits);
    }
}

static void test_philox(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = { /* from kat_vectors of Random123, philox4x32 10 */
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8 } },
        { { 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF },
          { 0xFFFFFFFF, 0xFFFFFFFF },
          { 0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD } },
        { { 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344 },
          { 0xA4093822, 0x299F31D0 },
          { 0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(known); i++) {
        uint32_t out[4];
        exl2__sample_philox(known[i].counter, known[i].key, out);
        CHECK(memcmp(out, known[i].out, sizeof out) == 0);
    }
    CHECK(exl2__sample_random(0, 0, 0) == 0xE169C58D6627E8D5u);
    CHECK(exl2__sample_random(1, 2, 0) != exl2__sample_random(1, 2, 1));
    uint32_t counter[4] = { 7, 9, 3, 0 }, key[2] = { 5, 6 }, out[4];
    exl2__sample_philox(counter, key, out);
    CHECK(exl2__sample_random(5 | (uint64_t)6 << 32, 7 | (uint64_t)9 << 32, 3) == (out[0] | (uint64_t)out[1] << 32));
}

/* ---- whole rows ---- */

typedef struct bench { /* a row and its result */
    float logits[4096];
    uint32_t vocab;
    exl2__sampling sampling;
    exl2__logit_row row;
    exl2_alt alts[EXL2_ALTS_MAX];
    exl2__logit_result result;
} bench;

static exl2_token run(bench *b)
{
    float copy[4096];
    void *scratch = take(exl2__sample_scratch_bytes(b->vocab));
    memset(scratch, 0xA5, exl2__sample_scratch_bytes(b->vocab));
    memcpy(copy, b->logits, sizeof copy);
    b->row.sampling = &b->sampling;
    b->result.alts = b->alts;
    CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), copy, b->vocab, &b->row, scratch, &b->result), EXL2_OK);
    free(scratch);
    return b->result.token;
}

static bench *row_of(const float *logits, uint32_t vocab)
{
    bench *b = take(sizeof *b);
    memset(b, 0, sizeof *b);
    memcpy(b->logits, logits, vocab * sizeof *logits);
    b->vocab = vocab;
    b->sampling = settings(1, 0, 1, 0, 1);
    return b;
}

/* The frequencies of 4,000 samples must be near the wanted probabilities. */
static void check_shares(bench *b, const double *wanted)
{
    uint32_t hits[4096] = { 0 };
    for (uint32_t i = 0; i < 4000; i++) {
        b->row.sample_position = i;
        exl2_token token = run(b);
        if (CHECK(token >= 0 && (uint32_t)token < b->vocab)) {
            hits[token]++;
        }
    }
    for (uint32_t i = 0; i < b->vocab; i++) {
        CHECK(fabs(hits[i] / 4000.0 - wanted[i]) <= (wanted[i] > 0 ? 0.04 : 0));
    }
}

static void test_ties_and_greedy(void)
{
    bench *b = row_of((const float[]){ 1, 3, 3, -2, 3, 0 }, 6);
    b->sampling.greedy = true;
    CHECK_INT(run(b), 1);
    b->sampling.greedy = false;
    b->sampling.top_k = 1;
    CHECK_INT(run(b), 1);
    b->sampling.top_k = 2;
    check_shares(b, (const double[]){ 0, 0.5, 0.5, 0, 0, 0 });
    b->sampling.top_k = 0;
    b->sampling.top_p = 0.3f; /* three tokens have 0.93 together, so one of them holds 0.31 */
    check_shares(b, (const double[]){ 0, 1, 0, 0, 0, 0 });
    b->sampling.top_p = 0.5f;
    check_shares(b, (const double[]){ 0, 0.5, 0.5, 0, 0, 0 });
    b->sampling.top_p = 1;
    b->sampling.min_p = 1;
    check_shares(b, (const double[]){ 0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0, 0 });
    b->sampling.top_k = 4;
    check_shares(b, (const double[]){ 0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0, 0 });
    b->row.alts = 4;
    run(b);
    CHECK_INT(b->result.alt_count, 4);
    CHECK(b->alts[0].token == 1 && b->alts[1].token == 2 && b->alts[2].token == 4 && b->alts[3].token == 0);
    free(b);
    b = row_of((const float[]){ exl2__bits_float(0x80000000u), 0, -1 }, 3); /* -0 and +0 tie */
    b->sampling.greedy = true;
    CHECK_INT(run(b), 0);
    free(b);
}

/* p = .5 .3 .15 .05, and which of them top-p keeps. */
static void test_top_p_table(void)
{
    static const struct {
        float top_p;
        int kept;
    } table[] = { { 0.50f, 1 }, { 0.57f, 2 }, { 0.80f, 2 }, { 0.85f, 3 }, { 0.90f, 3 }, { 0.95f, 3 }, { 0.999f, 4 } };
    float logits[] = { (float)log(0.5000001), (float)log(0.3000001), (float)log(0.1500001), (float)log(0.0499997) };
    for (size_t i = 0; i < EXL2__COUNT(table); i++) {
        for (uint32_t top_k = 0; top_k <= 4; top_k += 4) {
            float copy[4];
            double p[4];
            exl2__sampling s = settings(1, top_k, table[i].top_p, 0, 1);
            memcpy(copy, logits, sizeof copy);
            implied(copy, 4, &s, NULL, 0, p);
            CHECK_INT((p[0] > 0) + (p[1] > 0) + (p[2] > 0) + (p[3] > 0), table[i].kept);
        }
    }
    /* reached exactly: a half needs two of four tokens, or one of two */
    for (uint32_t top_k = 0; top_k <= 2; top_k += 2) {
        float equal[4] = { 1, 1, 1, 1 };
        double p[4];
        exl2__sampling s = settings(1, top_k, 0.5f, 0, 1);
        implied(equal, 4, &s, NULL, 0, p);
        CHECK(p[0] > 0 && (p[1] > 0) == (top_k == 0) && p[2] <= 0 && p[3] <= 0);
    }
}

static void test_not_numbers(void)
{
    bench *b = row_of((const float[]){ NOT_A_NUMBER, 1, MINUS_INF, 1, NEGATIVE_NAN }, 5);
    b->row.alts = 5;
    check_shares(b, (const double[]){ 0, 0.5, 0, 0.5, 0 });
    CHECK(fabsf(b->result.logprob + 0.6931472f) < 1e-6f);
    CHECK(fabsf(b->result.logsumexp - 1.6931472f) < 1e-6f);
    CHECK_INT(b->result.alt_count, 2);
    b->sampling.greedy = true;
    CHECK_INT(run(b), 1);
    free(b);

    b = row_of((const float[]){ 5, PLUS_INF, NOT_A_NUMBER, PLUS_INF, 7 }, 5);
    check_shares(b, (const double[]){ 0, 0.5, 0, 0.5, 0 });
    CHECK(fabsf(b->result.logprob + 0.6931472f) < 1e-6f);
    CHECK(exl2__float_bits(b->result.logsumexp) == 0x7F800000u);
    b->sampling.top_k = 2;
    check_shares(b, (const double[]){ 0, 0.5, 0, 0.5, 0 });
    b->sampling.top_p = 0.4f;
    check_shares(b, (const double[]){ 0, 1, 0, 0, 0 });
    b->row.use = EXL2__LOGIT_SCORE;
    b->row.target = 4;
    CHECK_INT(run(b), 4);
    CHECK(exl2__float_bits(b->result.logprob) == 0xFF800000u);
    free(b);

    const float hopeless[][3] = { { NOT_A_NUMBER, NOT_A_NUMBER, NEGATIVE_NAN }, { MINUS_INF, MINUS_INF, MINUS_INF } };
    for (int i = 0; i < 2; i++) {
        b = row_of(hopeless[i], 3);
        b->row.alts = 3;
        b->result.alt_count = 9;
        CHECK_INT(run(b), -1);
        CHECK_INT(b->result.alt_count, 0);
        CHECK(exl2__float_bits(b->result.logsumexp) == 0xFF800000u);
        b->row.use = EXL2__LOGIT_SCORE;
        CHECK_INT(run(b), -1);
        free(b);
    }
    b = row_of((const float[]){ 3e38f, -3e38f, 0 }, 3); /* the difference overflows */
    check_shares(b, (const double[]){ 1, 0, 0 });
    CHECK(b->result.logprob == 0);
    free(b);
}

static void test_bias_and_penalty(void)
{
    bench *b = row_of((const float[]){ 4, 3, 2, 1 }, 4);
    exl2_bias ban[] = { { 0, MINUS_INF }, { 9999, 5 }, { 3, 0.5f }, { 3, 0.5f } };
    b->sampling.bias = ban;
    b->sampling.bias_count = 4;
    check_shares(b, (const double[]){ 0, 0.5761, 0.2119, 0.2119 });
    double raw_sum = log(exp(4.0) + exp(3.0) + exp(2.0) + exp(1.0));
    CHECK(fabs((double)b->result.logsumexp - raw_sum) < 1e-6);
    double raw = (double)b->logits[b->result.token] - raw_sum; /* of the raw softmax */
    CHECK(fabs((double)b->result.logprob - raw) < 1e-6);
    b->sampling.greedy = true;
    CHECK_INT(run(b), 1);
    CHECK(fabs((double)b->result.logprob - (3 - raw_sum)) < 1e-6);
    exl2_bias all[] = { { 0, MINUS_INF }, { 1, MINUS_INF }, { 2, NOT_A_NUMBER }, { 3, MINUS_INF } };
    b->sampling.bias = all;
    CHECK_INT(run(b), -1);
    b->sampling.greedy = false;
    CHECK_INT(run(b), -1);
    b->sampling.bias = &(exl2_bias){ 2, 100 };
    b->sampling.bias_count = 1;
    b->sampling.top_k = 1;
    CHECK_INT(run(b), 2);
    CHECK(fabs((double)b->result.logprob - (2 - raw_sum)) < 1e-6); /* the biased logit does not count */
    free(b);

    /* The repetition penalty alone: a token that was seen twice is penalised once, 0 stays 0, tokens outside the
       vocabulary are ignored. */
    float x[] = { 2, -2, 0, 1, 3, 1, 1, 1 };
    const float wanted[] = { 1.3333333f, -3, 0, 1, 3, 1, 1, 0.6666667f };
    const exl2_token history[] = { 0, 1, 1, 2, 0, 7, -1, 8, 1 << 30 };
    double p[8];
    exl2__sampling s = settings(1, 0, 1, 0, 1.5f);
    implied(x, 8, &s, history, EXL2__COUNT(history), p);
    for (int i = 0; i < 8; i++) {
        CHECK(fabsf(x[i] - wanted[i]) < 1e-6f);
    }
    b = row_of((const float[]){ 2, 1.9f, -1 }, 3);
    b->sampling = settings(1, 0, 1, 0, 1.2f);
    b->sampling.greedy = true;
    b->row.history = history;
    b->row.history_count = 1;
    CHECK_INT(run(b), 1); /* 2 / 1.2 is less than 1.9 */
    b->row.history_count = 0;
    CHECK_INT(run(b), 0);
    free(b);
}

/* Log-probabilities, logsumexp and the order of alternatives, compared with sums in double. */
static void test_scores(void)
{
    static const uint32_t vocabs[] = { 1, 2, 40, 1000, 49152, 152064 };
    uint64_t seed = 3;
    for (size_t v = 0; v < EXL2__COUNT(vocabs); v++) {
        uint32_t vocab = vocabs[v];
        float *logits = take(vocab * sizeof *logits);
        candidate *c = take(vocab * sizeof *c);
        void *scratch = take(exl2__sample_scratch_bytes(vocab));
        for (int kind = 0; kind < 3; kind++) {
            fill_logits(logits, vocab, kind == 0 ? 0.01 : 8, mix(&seed));
            for (uint32_t i = 0; i < vocab; i++) {
                logits[i] = kind == 2 ? (float)((int)logits[i]) : logits[i]; /* many ties */
                c[i] = (candidate){ (double)logits[i], 0, 0, i };
            }
            qsort(c, vocab, sizeof *c, by_order);
            double sum = 0;
            for (uint32_t i = vocab; i-- > 0;) {
                sum += exp(c[i].logit - c[0].logit);
            }
            double exact = c[0].logit + log(sum);
            exl2_alt alts[EXL2_ALTS_MAX];
            exl2__logit_result result = { 0 };
            exl2__logit_row row = { 0 };
            result.alts = alts;
            row.use = EXL2__LOGIT_SCORE;
            row.target = (exl2_token)(mix(&seed) % vocab);
            row.alts = EXL2_ALTS_MAX;
            CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), logits, vocab, &row, scratch, &result), EXL2_OK);
            CHECK_INT(result.token, row.target);
            CHECK(fabs((double)result.logsumexp - exact) < 1e-5);
            CHECK(fabs((double)result.logprob - ((double)logits[row.target] - exact)) < 1e-5);
            CHECK_INT(result.alt_count, vocab < EXL2_ALTS_MAX ? vocab : EXL2_ALTS_MAX);
            for (uint32_t i = 0; i < result.alt_count; i++) {
                CHECK_INT(result.alts[i].token, c[i].id);
                CHECK(fabs((double)result.alts[i].logprob - (c[i].logit - exact)) < 1e-5);
            }
        }
        free(logits);
        free(c);
        free(scratch);
    }
    CHECK_INT(exl2__sample_row(EXL2_CPU_C, NULL, (1u << 24) + 1, NULL, NULL, NULL), EXL2_ERR_UNSUPPORTED);
}

/* ---- sampling ---- */

/* The token that is sampled from a list. */
static int pick_list(const exl2__sample_list *list, uint64_t random)
{
    uint64_t sum = exl2__weight_total(list->weights, list->count), running = 0;
    return (int)list->ids[exl2__sample_find(list, NULL, exl2__weight_scale(random, sum), 0, list->count, &running)];
}

/* The smallest and the largest random number give the first and the last token of nonzero weight. */
static void test_draw_edges(void)
{
    float logits[] = { MINUS_INF, -99, 1, 2, 1, -99, NOT_A_NUMBER };
    uint64_t block_sums[1], weights[7];
    uint32_t ids[7];
    exl2__sample_work w = { 0 };
    w.logits = logits;
    w.vocab = 7;
    w.block_sums = block_sums;
    w.list.ids = ids;
    w.list.weights = weights;
    w.list.count = 7;
    exl2__weight_curve curve = exl2__weight_curve_make(exl2__weight_key(2), 1);
    for (uint32_t i = 0; i < 7; i++) {
        ids[i] = i;
        weights[i] = exl2__weight_of(&curve, logits[i]);
    }
    CHECK_INT(exl2__sample_pick_all(&w, &curve, 0), 2);
    CHECK_INT(exl2__sample_pick_all(&w, &curve, UINT64_MAX), 4);
    CHECK_INT(pick_list(&w.list, 0), 2);
    CHECK_INT(pick_list(&w.list, UINT64_MAX), 4);
    float far[128]; /* a block without weight, then one with weight */
    uint64_t far_sums[2];
    exl2__sample_work blocks = { 0 };
    for (uint32_t i = 0; i < 128; i++) {
        far[i] = i < 70 ? -99.0f : 2.0f;
    }
    blocks.logits = far;
    blocks.vocab = 128;
    blocks.block_sums = far_sums;
    CHECK_INT(exl2__sample_pick_all(&blocks, &curve, 0), 70);
    CHECK_INT(exl2__sample_pick_all(&blocks, &curve, UINT64_MAX), 127);
    /* The boundary between tokens 2 and 3: the largest number that gives 2, and the next. */
    uint64_t sum = exl2__sample_sum(&w, &curve), low = 0, high = UINT64_MAX;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (exl2__weight_scale(middle, sum) >= weights[2]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    CHECK_INT(exl2__sample_pick_all(&w, &curve, low), 3);
    CHECK_INT(exl2__sample_pick_all(&w, &curve, low - 1), 2);
    CHECK_INT(pick_list(&w.list, low), 3);
    CHECK_INT(pick_list(&w.list, low - 1), 2);
}

/* A row that is sampled in parts of any size gives what it gives at once, also if its settings change meanwhile,
   because its job has ended. */
static void test_parts(void)
{
    static float logits[5000], copy[5000], other[5000];
    static exl2_token history[3000];
    static exl2_alt alts[2][EXL2_ALTS_MAX];
    uint32_t vocab = 5000, state = 1;
    void *scratch = take(exl2__sample_scratch_bytes(vocab));
    for (uint32_t i = 0; i < 3000; i++) {
        history[i] = (exl2_token)(i * 7 % vocab);
    }
    for (uint32_t n = 0; n < 400; n++) {
        exl2__sampling s = { .temperature = n % 2 ? 50 : 0.7f, .top_p = n % 3 ? 0.9f : 1, .min_p = n % 5 ? 0 : 0.1f,
                             .top_k = n % 4 ? 0 : 300, .repeat_penalty = n % 7 ? 1 : 1.1f, .seed = n + 1 };
        s.typical = n % 11 ? 0 : 0.8f;
        s.tail_free = n % 13 ? 0 : 0.95f;
        s.top_a = n % 17 ? 0 : 0.2f;
        s.mirostat_tau = n % 19 ? 0 : 5;
        s.adaptive_target = n % 19 == 1 ? 0.3f : 0;
        s.state = n % 19 ? 0.1f : 8;
        s.xtc_probability = n % 7 == 1 ? 0.5f : 0;
        s.skew = n % 7 == 2 ? 0.4f : 0;
        s.smoothing = n % 7 == 3 ? 0.3f : 0;
        s.temperature_last = n % 7 >= 3 && n % 2;
        s.dynamic_min = n % 7 == 4 ? 0.5f : 0;
        s.dynamic_max = n % 7 == 4 ? 1.5f : 0;
        s.dynamic_exponent = 1;
        exl2__logit_row row = { .sampling = &s, .sample_position = n, .history = history, .alts = n % 6 };
        row.history_count = n % 7 ? 0 : 3000;
        row.negative = n % 5 == 3 ? other : NULL;
        row.guidance = 1.6f;
        exl2__logit_result at_once = { .alts = alts[0] }, in_parts = { .alts = alts[1] };
        exl2__sample_run x;
        fill_logits(logits, vocab, n, 6);
        fill_logits(other, vocab, n + 1000, 6);
        memcpy(copy, logits, sizeof copy);
        CHECK_INT(exl2__sample_row(exl2__cpu_path_best(), copy, vocab, &row, scratch, &at_once), EXL2_OK);
        memcpy(copy, logits, sizeof copy);
        CHECK_INT(exl2__sample_begin(&x, exl2__cpu_path_best(), copy, vocab, &row, scratch, &in_parts), EXL2_OK);
        memset(&s, 0, sizeof s);
        memset(&row, 0, sizeof row);
        uint32_t all = 0;
        for (uint32_t parts; (parts = exl2__sample_parts(&x)) > 0; exl2__sample_next(&x)) {
            for (uint32_t begin = 0, end; begin < parts; begin = end) {
                state = state * 1664525u + 1013904223u;
                end = begin + 1 + (state >> 30);
                end = end < parts ? end : parts;
                exl2__sample_part(&x, begin, end);
            }
            all += parts;
        }
        CHECK(all > 0 && all < exl2__sample_parts_most(vocab));
        CHECK_INT(in_parts.token, at_once.token);
        CHECK(memcmp(&in_parts.logprob, &at_once.logprob, sizeof(float)) == 0);
        CHECK(memcmp(&in_parts.surprise, &at_once.surprise, sizeof(float)) == 0);
        CHECK(memcmp(&in_parts.chance, &at_once.chance, sizeof(float)) == 0);
        CHECK_INT(in_parts.alt_count, at_once.alt_count);
        CHECK(memcmp(alts[1], alts[0], at_once.alt_count * sizeof **alts) == 0);
    }
    free(scratch);
}

/* With filters that keep every token, the path over a list samples the same tokens as the path over blocks. */
static void test_draw_paths(void)
{
    bench *b = row_of((const float[]){ 0 }, 1);
    b->vocab = 777;
    fill_logits(b->logits, b->vocab, 3, 8);
    uint32_t differ = 0, changed = 0;
    exl2_token last = -1;
    for (uint32_t i = 0; i < 2000; i++) {
        b->row.sample_position = i;
        b->sampling = settings(0.9f, 0, 1, 0, 1);
        b->sampling.seed = 42;
        exl2_token token = run(b);
        changed += token != last;
        last = token;
        b->sampling.min_p = 1e-13f;
        differ += run(b) != token;
        b->sampling.min_p = 0;
        b->sampling.top_k = b->vocab;
        differ += run(b) != token;
    }
    CHECK_INT(differ, 0);
    CHECK(changed > 500);
    free(b);
}

int main(void)
{
    test_philox();
    test_ties_and_greedy();
    test_top_p_table();
    test_not_numbers();
    test_bias_and_penalty();
    test_scores();
    test_chain();
    check_draws(1000, 6, settings(1, 0, 1, 0, 1), 11);
    check_draws(1000, 6, settings(0.8f, 0, 1, 0.05f, 1.1f), 12);
    check_draws(300, 6, settings(1.3f, 40, 0.9f, 0, 1), 13);
    check_draws(2, 6, settings(1, 0, 1, 0, 1), 14);
    test_draw_edges();
    test_parts();
    test_draw_paths();
    return check_done();
}
