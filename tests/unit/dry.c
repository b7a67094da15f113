/* dry.c: DRY: hand-computed vectors, comparison with a literal implementation of the definition over random histories,
   and its limits. */
#include "private/dry.h"
#include "../check.h"

static bool breaks_multiples_of_10(const void *user, exl2_token t)
{
    (void)user;
    return t % 10 == 0;
}

static exl2__dry settings(uint32_t allowed)
{
    return (exl2__dry){ .multiplier = 1, .base = 1.75f, .allowed = allowed, .match_max = 20 };
}

/* The penalty of the token, below 0; 0 = none. */
static double paid(const exl2_bias *found, uint32_t count, exl2_token token)
{
    double add = 0;
    uint32_t times = 0;
    for (uint32_t i = 0; i < count; i++) {
        times += found[i].token == token;
        add += found[i].token == token ? (double)found[i].add : 0;
    }
    CHECK(times <= 1);
    return add;
}

static void test_vectors(void)
{
    static const struct {
        exl2_token history[10];
        uint32_t count, allowed, pays;
        struct {
            exl2_token token;
            double add;
        } wanted[2];
    } cases[] = {
        { { 1, 2, 3, 9, 8, 1, 2 }, 7, 2, 1, { { 3, -1 } } },
        { { 1, 2, 3, 4, 9, 8, 1, 2, 3 }, 9, 2, 1, { { 4, -1.75 } } },
        { { 1, 2, 3, 9, 1, 2, 3, 8, 1, 2 }, 10, 2, 1, { { 3, -1 } } }, /* ExLlamaV2: -2, by the count */
        { { 4, 4, 4 }, 3, 2, 1, { { 4, -1 } } },                       /* ExLlamaV2: nothing */
        { { 1, 2, 3, 9, 5, 2, 7, 8, 1, 2 }, 10, 1, 2, { { 3, -1.75 }, { 7, -1 } } }, /* ExLlamaV2: only 3 */
        { { 1, 2, 3, 9, 5, 2, 7, 8, 1, 2 }, 10, 3, 0, { { 0, 0 } } },
        { { 1 }, 1, 1, 0, { { 0, 0 } } },
    };
    for (size_t i = 0; i < EXL2__COUNT(cases); i++) {
        exl2_bias found[EXL2__DRY_MAX];
        exl2__dry d = settings(cases[i].allowed);
        uint32_t count = exl2__dry_find(&d, cases[i].history, cases[i].count, found);
        CHECK_INT(count, cases[i].pays);
        for (uint32_t k = 0; k < cases[i].pays; k++) {
            CHECK(fabs(paid(found, count, cases[i].wanted[k].token) - cases[i].wanted[k].add) < 1e-6);
        }
    }
}

/* The definition, token by token. */
static double defined(const exl2__dry *d, const exl2_token *history, int count, exl2_token token)
{
    int first = d->range && (int)d->range < count ? count - (int)d->range : 0, longest = 0;
    for (int i = first; i + 1 < count; i++) {
        int same = 0;
        while (same < (int)d->match_max && i - same >= first && history[i - same] == history[count - 1 - same]
               && !(d->breaks && d->breaks(NULL, history[i - same]))) {
            same++;
        }
        longest = history[i + 1] == token && same > longest ? same : longest;
    }
    if (longest < (int)d->allowed || (d->breaks && d->breaks(NULL, token))) {
        return 0;
    }
    double pays = (double)d->multiplier * pow((double)d->base, longest - (int)d->allowed);
    return -(pays < 1e6 ? pays : 1e6);
}

static void test_definition(void)
{
    uint32_t seed = 7, pays = 0;
    for (int round = 0; round < 400; round++) {
        exl2_token history[200];
        int count = 1 + round % 200, kinds = 2 + round % 23;
        for (int i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            history[i] = i >= 50 && round % 3 == 0 ? history[i - 37] : (exl2_token)((seed >> 16) % (uint32_t)kinds);
        }
        exl2__dry d = settings(1 + (uint32_t)round % 4);
        d.multiplier = 0.8f;
        d.range = round % 5 == 0 ? 60 : 0;
        d.match_max = round % 7 == 0 ? 3 : 20;
        d.breaks = round % 2 ? breaks_multiples_of_10 : NULL;
        exl2_bias found[EXL2__DRY_MAX];
        uint32_t known = exl2__dry_find(&d, history, (uint32_t)count, found);
        for (exl2_token t = 0; t < kinds; t++) {
            double wanted = defined(&d, history, count, t);
            CHECK(fabs(paid(found, known, t) - wanted) <= 1e-6 * fabs(wanted));
            pays += wanted < 0;
        }
    }
    CHECK(pays > 400);
}

static void test_limits(void)
{
    static exl2_token history[20000];
    exl2_bias found[EXL2__DRY_MAX];
    exl2__dry d = settings(2);
    for (int i = 0; i < 20000; i++) { /* 1 2 x, with another x each time: more tokens than can be penalised */
        history[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 2 : 100 + i;
    }
    CHECK_INT(exl2__dry_find(&d, history, 20000 - 19998 % 3, found), EXL2__DRY_MAX);
    CHECK(found[0].token > found[EXL2__DRY_MAX - 1].token); /* the newest tokens are penalised */
    for (int i = 0; i < 20000; i++) {
        history[i] = 5;
    }
    d.base = 100; /* 100^18 */
    CHECK_INT(exl2__dry_find(&d, history, 20000, found), 1);
    CHECK(found[0].token == 5 && found[0].add == -1e6f);
    d.breaks = breaks_multiples_of_10;
    history[19999] = 10;
    CHECK_INT(exl2__dry_find(&d, history, 20000, found), 0);
    CHECK_INT(exl2__dry_find(&d, history, 0, found), 0);
}

int main(void)
{
    test_vectors();
    test_definition();
    test_limits();
    return check_done();
}
