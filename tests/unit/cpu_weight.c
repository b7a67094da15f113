/* cpu_weight.c: sort keys, integer weights and the passes over a row, compared with exp2, with a model in Python, and
   with each other. */
#include "private/cpu_weight.h"
#include "../check.h"
#include "../sample_reference.h"

static int32_t maxima(const float *logits, uint32_t vocab, int32_t *block_keys)
{
    exl2__weight_maxima_of(exl2__cpu_path_best(), logits, vocab, 0, exl2__weight_blocks(vocab), block_keys);
    return exl2__weight_most(block_keys, exl2__weight_blocks(vocab));
}

static void test_scale(void)
{
    CHECK(exl2__weight_scale(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
    CHECK(exl2__weight_scale((uint64_t)1 << 63, 10) == 5);
    CHECK(exl2__weight_scale(0x123456789ABCDEF0u, 0xFEDCBA9876543210u) == 0x121FA00AD77D7422u);
    CHECK(exl2__weight_scale(UINT64_MAX, 1) == 0);
}

static void test_keys(void)
{
    const float ascending[] = { -3e38f, -1.5f, -1e-42f, 0, 1e-42f, 1, 2, 3e38f, PLUS_INF };
    for (size_t i = 1; i < EXL2__COUNT(ascending); i++) {
        CHECK(exl2__weight_key(ascending[i]) > exl2__weight_key(ascending[i - 1]));
        float back = exl2__weight_key_logit(exl2__weight_key(ascending[i]));
        CHECK(exl2__float_bits(back) == exl2__float_bits(ascending[i]));
    }
    CHECK_INT(exl2__weight_key(MINUS_ZERO), 0);
    CHECK_INT(exl2__weight_key(MINUS_INF), EXL2__WEIGHT_KEY_NONE);
    CHECK_INT(exl2__weight_key(NOT_A_NUMBER), EXL2__WEIGHT_KEY_NONE);
    CHECK_INT(exl2__weight_key(NEGATIVE_NAN), EXL2__WEIGHT_KEY_NONE);
    CHECK_INT(exl2__weight_key(exl2__bits_float(0xFF7FFFFFu)), EXL2__WEIGHT_KEY_LEAST);
    CHECK_INT(exl2__weight_key(PLUS_INF), EXL2__WEIGHT_KEY_INF);
}

/* Every step from 1 to 1/2, then the powers of two and one fraction between each two of them. */
static void test_exp2(void)
{
    uint64_t before = EXL2__WEIGHT_ONE + 1;
    uint32_t rises = 0, wrong = 0;
    for (uint32_t steps = 0; steps <= 1u << 25; steps++) {
        uint64_t weight = exl2__weight_exp2(steps);
        rises += weight > before;
        before = weight;
        if (steps % 1009 == 0) {
            double exact = 0x1p40 * exp2(-(double)steps / 33554432.0);
            wrong += fabs((double)weight - exact) > exact * 2.7e-8;
        }
    }
    CHECK_INT(rises, 0);
    CHECK_INT(wrong, 0);
    CHECK(exl2__weight_exp2(0) == EXL2__WEIGHT_ONE);
    for (uint32_t place = 0; place <= 40; place++) {
        CHECK(exl2__weight_exp2(place << 25) == EXL2__WEIGHT_ONE >> place);
        CHECK(exl2__weight_exp2((place << 25) + 12345678) == exl2__weight_exp2(12345678) >> place);
    }
    CHECK(exl2__weight_exp2((40u << 25) + 1) == 0);
    CHECK(exl2__bits_float(EXL2__WEIGHT_STEPS_MAX_BITS) == 40.5f * 33554432.0f);
}

/* Sums and hashes computed by a Python model of the comment: integers, and floats rounded one by one. */
static void test_weights_golden(void)
{
    static const struct {
        float temperature;
        uint64_t sum, hash;
    } golden[] = { { 1.0f, 1667687868059827u, 0xC5549F38247F4BF3u }, { 0.7f, 1173996735467944u, 0x9127C0F3CE61DC98u } };
    uint32_t vocab = 49152, state = 12345;
    float *logits = take(vocab * sizeof *logits);
    int32_t *block_keys = take(exl2__weight_blocks(vocab) * sizeof *block_keys);
    uint64_t *block_sums = take(exl2__weight_blocks(vocab) * sizeof *block_sums);
    for (uint32_t i = 0; i < vocab; i++) {
        state = state * 1664525u + 1013904223u;
        logits[i] = (float)((double)(state >> 8) / 524288.0 - 20.0); /* exact */
    }
    for (size_t g = 0; g < EXL2__COUNT(golden); g++) {
        int32_t top_key = maxima(logits, vocab, block_keys);
        exl2__weight_curve curve = exl2__weight_curve_make(top_key, golden[g].temperature);
        uint64_t hash = 0;
        for (uint32_t i = 0; i < vocab; i++) {
            hash = hash * 31 + exl2__weight_of(&curve, logits[i]);
        }
        CHECK(hash == golden[g].hash);
        CHECK(exl2__weight_sums(exl2__cpu_path_best(), &curve, logits, vocab, block_sums) == golden[g].sum);
    }
    free(logits);
    free(block_keys);
    free(block_sums);
}

/* The vector passes against the plain ones, over arbitrary bit patterns. */
static void test_passes(void)
{
    uint64_t seed = 77;
    for (uint32_t vocab = 1; vocab < 700; vocab += vocab < 130 ? 1 : 61) {
        uint32_t blocks = exl2__weight_blocks(vocab);
        float *logits = take(vocab * sizeof *logits);
        int32_t keys[2][16];
        uint64_t sums[2][16];
        for (int kind = 0; kind < 6; kind++) {
            fill_logits(logits, vocab, 20, mix(&seed));
            for (uint32_t i = 0; i < vocab && kind > 0; i += 1 + (uint32_t)(mix(&seed) % 5)) {
                const float odd[] = { NOT_A_NUMBER, NEGATIVE_NAN, MINUS_INF, MINUS_ZERO, 1e-42f, PLUS_INF };
                logits[i] = kind == 5 ? exl2__bits_float((uint32_t)mix(&seed)) : odd[mix(&seed) % (kind == 4 ? 6 : 5)];
            }
            int32_t most = maxima(logits, vocab, keys[0]);
            exl2__weight_maxima_scalar(logits, 0, vocab, keys[1]);
            CHECK(memcmp(keys[0], keys[1], blocks * sizeof keys[0][0]) == 0);
            if (most == EXL2__WEIGHT_KEY_NONE) {
                continue;
            }
            exl2__weight_curve curve = exl2__weight_curve_make(most, kind == 3 ? 0.02f : 3.0f);
            uint64_t total = exl2__weight_sums(exl2__cpu_path_best(), &curve, logits, vocab, sums[0]);
            exl2__weight_sums_scalar(&curve, logits, 0, vocab, sums[1]);
            CHECK(memcmp(sums[0], sums[1], blocks * sizeof sums[0][0]) == 0);
            CHECK(total >= EXL2__WEIGHT_ONE);
            for (uint64_t weight = 1; weight <= EXL2__WEIGHT_ONE; weight = weight * 3 + 1) {
                int32_t least = exl2__weight_least_key(&curve, weight);
                CHECK(exl2__weight_of(&curve, exl2__weight_key_logit(least)) >= weight);
                float below = exl2__weight_key_logit(least - 1);
                CHECK(least == EXL2__WEIGHT_KEY_LEAST || exl2__weight_of(&curve, below) < weight);
            }
        }
        free(logits);
    }
}

int main(void)
{
    test_scale();
    test_keys();
    test_exp2();
    test_weights_golden();
    test_passes();
    return check_done();
}
