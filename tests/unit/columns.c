/* columns.c: how columns.h divides columns between devices: equal shares as by a formula of their own, others nearly
   as they say; each column has one device, and each device a unit if there are enough.
   takes: columns.h.
   gives: exit code 0 or 1. */
#include "private/columns.h"
#include "../check.h"

#include <math.h>

static uint32_t state = 1;

static uint32_t any(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(state >> 8) * below >> 24);
}

/* Units of all devices; checks what is true of all shares. */
static void divide(const exl2__columns *c, uint32_t columns, uint32_t unit, uint32_t *units)
{
    uint32_t all = (columns + unit - 1) / unit, end = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        exl2__columns own = *c;
        own.index = i;
        exl2__columns_run run = exl2__columns_of(&own, columns, unit);
        CHECK(run.first == end && (run.first % unit == 0 || run.first == columns));
        end += run.count;
        units[i] = (run.count + unit - 1) / unit;
        CHECK(units[i] > 0 || all < c->count);
    }
    CHECK_INT(end, columns);
}

static void test_equal(void)
{
    static const float none[EXL2_DEVICES_MAX], ones[EXL2_DEVICES_MAX] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    uint32_t units[EXL2_DEVICES_MAX], same[EXL2_DEVICES_MAX];
    for (uint32_t count = 1; count <= EXL2_DEVICES_MAX; count++) {
        exl2__columns c = exl2__columns_make(none, count), d = exl2__columns_make(ones, count);
        for (uint32_t all = 1; all < 300; all++) {
            uint32_t columns = all * 32 - any(32);
            divide(&c, columns, 32, units);
            divide(&d, columns, 32, same);
            for (uint32_t i = 0; i < count; i++) { /* what earlier versions had: the first ones have more */
                CHECK_INT(units[i], (all * (i + 1) + count - 1) / count - (all * i + count - 1) / count);
                CHECK_INT(same[i], units[i]);
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            CHECK(fabs((double)exl2__columns_share(&c, i) * count - 1) < 1e-6);
        }
    }
}

static void test_shares(void)
{
    uint32_t units[EXL2_DEVICES_MAX];
    for (uint32_t round = 0; round < 20000; round++) {
        float shares[EXL2_DEVICES_MAX];
        double sum = 0;
        uint32_t count = 2 + any(EXL2_DEVICES_MAX - 1), unit = 32u << any(3), all = 1 + any(any(2) ? 20 : 5000);
        for (uint32_t i = 0; i < count; i++) {
            shares[i] = any(4) ? (float)(1 + any(9)) : any(2) ? 1e-3f : 1e5f;
            sum += (double)shares[i];
        }
        exl2__columns c = exl2__columns_make(shares, count);
        divide(&c, all * unit, unit, units);
        for (uint32_t i = 0; i < count; i++) {
            double part = (double)shares[i] / sum;
            CHECK(fabs((double)exl2__columns_share(&c, i) - part) < 1e-6);
            CHECK(fabs(units[i] - part * all) < 1 + (all < count ? 0 : count)); /* others have one at least */
        }
    }
}

/* Cuts of real sizes. */
static void test_sizes(void)
{
    static const struct { float shares[3]; uint32_t count, columns, unit, units[3]; } cuts[] = {
        { { 3, 1 }, 2, 8192, 32, { 192, 64 } },          { { 3, 1 }, 2, 8 * 128, 128, { 6, 2 } },
        { { 1, 2, 1 }, 3, 28672, 128, { 56, 112, 56 } }, { { 1, 2, 1 }, 3, 3 * 64, 64, { 1, 1, 1 } },
        { { 1e6f, 1 }, 2, 4096, 32, { 127, 1 } },        { { 1, 1e6f, 1 }, 3, 4096, 32, { 1, 126, 1 } },
        { { 1, 3, 2 }, 3, 2 * 128, 128, { 1, 1, 0 } },   { { 2, 1 }, 2, 100, 0, { 3, 1 } },
        { { 1e-30f, 3e-30f }, 2, 8192, 32, { 64, 192 } }, { { 0.3f, 0.1f }, 2, 8192, 32, { 192, 64 } },
    };
    for (size_t i = 0; i < EXL2__COUNT(cuts); i++) {
        exl2__columns c = exl2__columns_make(cuts[i].shares, cuts[i].count);
        uint32_t units[EXL2_DEVICES_MAX];
        divide(&c, cuts[i].columns, cuts[i].unit ? cuts[i].unit : EXL2__COLUMNS_UNIT, units);
        for (uint32_t k = 0; k < cuts[i].count; k++) {
            if (!CHECK_INT(units[k], cuts[i].units[k])) {
                printf("  cut %zu, device %u\n", i, k);
            }
        }
    }
}

int main(void)
{
    test_equal();
    test_shares();
    test_sizes();
    return check_done();
}
