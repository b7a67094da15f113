/* allocate.c: the allocation of bits, compared with a bound that no allocation can pass (tests/golden/convert), and
   with all allocations of small problems. */
#define EXL2_CONVERT
#include "private/json.h"
#include "private/platform_alloc.h"
#include "private/allocate.h"
#include "../check.h"

#include <math.h>

enum { SLOTS = 64, BLOCKS = 64 };

static exl2__ctx ctx;
static exl2__allocate_linear linears[SLOTS];
static double losses[SLOTS][EXL2__LOSSES_WIDTHS * BLOCKS];
static uint8_t widths[SLOTS][BLOCKS], again[SLOTS][BLOCKS];

static double number_of(const exl2__json *j, uint32_t token)
{
    double value = 0;
    CHECK(exl2__json_f64(j, token, &value));
    return value;
}

static double loss_of(uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t b = 0; b < linears[i].in / 32; b++) {
            sum += linears[i].losses[linears[i].widths[b] * (linears[i].in / 32) + b];
            CHECK(linears[i].widths[b] < EXL2__LOSSES_WIDTHS);
            CHECK(b == 0 || linears[i].widths[b] <= linears[i].widths[b - 1]);
        }
    }
    return sum;
}

/* Bits by the format's own formula (exl2_impl/docs/formats.md), written again. */
static uint64_t bits_of(uint32_t count)
{
    static const uint32_t bits[] = { 2, 3, 4, 5, 6, 8 };
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t n = linears[i].columns, groups = linears[i].in / 32;
        for (uint32_t b = 0; b < groups; b++) {
            sum += 32 * n * bits[linears[i].widths[b]];
        }
        sum += groups * (16 + 32 + 4 * n) + 32 * (uint64_t)linears[i].in + (linears[i].has_bias ? 16 * n : 0);
    }
    return sum;
}

static void test_golden(void)
{
    static const char *const names[] = { "2", "3", "4", "5", "6", "8" };
    size_t bytes;
    exl2__json j;
    uint32_t count = 0;
    char *text = check_read(EXL2_GOLDEN_DIR "/convert/allocate.json", &bytes);
    CHECK_INT(exl2__json_open(&ctx, "allocate.json", text, bytes, &j), EXL2_OK);
    uint32_t list = exl2__json_get(&j, 0, "slots"), targets = exl2__json_get(&j, 0, "targets");
    for (uint32_t at = exl2__json_first(&j, list); at; at = exl2__json_next(&j, list, at), count++) {
        uint32_t loss = exl2__json_get(&j, at, "loss");
        linears[count].in = (uint32_t)number_of(&j, exl2__json_get(&j, at, "K"));
        linears[count].columns = (uint32_t)number_of(&j, exl2__json_get(&j, at, "N"));
        linears[count].losses = losses[count];
        linears[count].widths = widths[count];
        for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
            uint32_t values = exl2__json_get(&j, loss, names[w]), b = 0;
            for (uint32_t v = exl2__json_first(&j, values); v; v = exl2__json_next(&j, values, v)) {
                losses[count][w * (linears[count].in / 32) + b++] = number_of(&j, v);
            }
            CHECK_INT(b, linears[count].in / 32);
        }
    }
    CHECK_INT(count, 42);
    for (uint32_t key = exl2__json_first(&j, targets); key; key = exl2__json_next(&j, targets, key)) {
        uint64_t budget = (uint64_t)number_of(&j, exl2__json_get(&j, key + 1, "budget_bits"));
        double bound = number_of(&j, exl2__json_get(&j, key + 1, "lower_bound"));
        CHECK_INT(exl2__allocate_run(&ctx, linears, count, budget), EXL2_OK);
        double loss = loss_of(count);
        uint64_t bits = bits_of(count), own = 0;
        for (uint32_t i = 0; i < count; i++) {
            own += exl2__allocate_bits(&linears[i]);
        }
        printf("%llu of %llu bits: %.6f of the bound, prototype %.6f\n", (unsigned long long)bits,
               (unsigned long long)budget, loss / bound,
               number_of(&j, exl2__json_get(&j, key + 1, "prototype_loss")) / bound);
        CHECK_INT(own, bits);
        CHECK(bits <= budget);
        CHECK(loss <= 1.003 * bound && loss >= 0.9999 * bound);
        memcpy(again, widths, sizeof again);
        CHECK_INT(exl2__allocate_run(&ctx, linears, count, budget), EXL2_OK);
        CHECK(memcmp(again, widths, sizeof again) == 0);
    }
    exl2__json_close(&ctx, &j);
    free(text);
}

static uint64_t state = 9;

static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

/* Two matrices of two blocks: every allocation is tried. The result need not be the best one, because the rest of a
   budget is spent without looking back, but it is never over the budget, and no single block could still rise. */
static void test_small(void)
{
    double worst = 1, sum = 0;
    for (uint32_t round = 0; round < 300; round++) {
        for (uint32_t i = 0; i < 2; i++) {
            linears[i] = (exl2__allocate_linear){ 64, 32u << (round % 3), i == 1, losses[i], widths[i] };
            for (uint32_t b = 0; b < 2; b++) {
                double loss = uniform() * pow(10, 3 * uniform());
                for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
                    losses[i][w * 2 + b] = loss;
                    loss *= 0.15 + 0.2 * uniform();
                }
            }
        }
        uint64_t least, most, budget;
        exl2__allocate_range(linears, 2, &least, &most);
        budget = least + (uint64_t)((double)(most - least) * uniform());
        double best = 1e300;
        for (uint32_t code = 0; code < 6 * 6 * 6 * 6; code++) {
            widths[0][0] = (uint8_t)(code % 6);
            widths[0][1] = (uint8_t)(code / 6 % 6);
            widths[1][0] = (uint8_t)(code / 36 % 6);
            widths[1][1] = (uint8_t)(code / 216);
            if (widths[0][0] >= widths[0][1] && widths[1][0] >= widths[1][1] && bits_of(2) <= budget) {
                best = fmin(best, loss_of(2));
            }
        }
        CHECK_INT(exl2__allocate_run(&ctx, linears, 2, budget), EXL2_OK);
        uint64_t bits = bits_of(2);
        CHECK(bits <= budget);
        double loss = loss_of(2);
        CHECK(loss >= best);
        worst = fmax(worst, loss / best);
        sum += loss / best;
        for (uint32_t i = 0; i < 2; i++) {
            CHECK(exl2__allocate_best_step(&linears[i], i, budget - bits).rate <= 0);
        }
    }
    printf("four blocks: %.3f of the best on average, at worst %.2f\n", sum / 300, worst);
    CHECK(sum / 300 < 1.02);
}

/* The ends of the range, and losses of 0. */
static void test_ends(void)
{
    uint64_t least, most;
    for (uint32_t zero = 0; zero < 2; zero++) {
        for (uint32_t i = 0; i < EXL2__LOSSES_WIDTHS * 4; i++) {
            losses[0][i] = zero ? 0 : 1.0 / (1 + i / 4);
        }
        linears[0] = (exl2__allocate_linear){ 128, 64, false, losses[0], widths[0] };
        exl2__allocate_range(linears, 1, &least, &most);
        CHECK_INT(exl2__allocate_run(&ctx, linears, 1, least), EXL2_OK);
        CHECK_INT(bits_of(1), least);
        CHECK_INT(exl2__allocate_run(&ctx, linears, 1, most), EXL2_OK);
        CHECK_INT(bits_of(1), zero ? least : most);
    }
}

int main(void)
{
    ctx.allocator = exl2__platform_allocator();
    test_golden();
    test_small();
    test_ends();
    CHECK_INT(ctx.host_bytes, 0);
    return check_done();
}
