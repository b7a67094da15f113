/* correct.c: corrected targets against least squares in double: W + 1/2 inverse(H + dI) Y'(X - Y) W / tokens. With
   equal streams the weights stay, and so do those whose targets the format cannot hold. */
#define EXL2_CONVERT
#include "private/platform_alloc.h"
#include "private/correct.h"
#include "../check.h"

#include <math.h>
#include <stdio.h>

enum { IN = 96, OUT = 64, TOKENS = 200, CHUNK = 80 };

static float x[TOKENS][IN], y[TOKENS][IN], w[IN][OUT];
static double hessian[IN][IN], cross[IN][IN], wanted[IN][OUT];

static float random_number(void)
{
    static uint32_t state = 9;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

/* Solves (hessian + d I) z = b in place of b, for all OUT columns: Gauss with pivots. */
static void solve_double(double d, double b[IN][OUT])
{
    static double a[IN][IN];
    memcpy(a, hessian, sizeof a);
    for (uint32_t i = 0; i < IN; i++) {
        a[i][i] += d;
    }
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t r = i + 1; r < IN; r++) { /* positive definite: no pivots are needed */
            double factor = a[r][i] / a[i][i];
            for (uint32_t k = i; k < IN; k++) {
                a[r][k] -= factor * a[i][k];
            }
            for (uint32_t n = 0; n < OUT; n++) {
                b[r][n] -= factor * b[i][n];
            }
        }
    }
    for (uint32_t i = IN; i-- > 0;) {
        for (uint32_t n = 0; n < OUT; n++) {
            for (uint32_t k = i + 1; k < IN; k++) {
                b[i][n] -= a[i][k] * b[k][n];
            }
            b[i][n] /= a[i][i];
        }
    }
}

/* Fills in `wanted`. */
static void reference(void)
{
    double trace = 0;
    memset(hessian, 0, sizeof hessian);
    memset(cross, 0, sizeof cross);
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t i = 0; i < IN; i++) {
            for (uint32_t k = 0; k < IN; k++) {
                hessian[i][k] += (double)y[t][i] * (double)y[t][k] / TOKENS;
                cross[i][k] += (double)y[t][i] * ((double)x[t][k] - (double)y[t][k]) / TOKENS;
            }
        }
    }
    for (uint32_t i = 0; i < IN; i++) {
        trace += hessian[i][i];
        for (uint32_t n = 0; n < OUT; n++) {
            wanted[i][n] = 0;
            for (uint32_t k = 0; k < IN; k++) {
                wanted[i][n] += cross[i][k] * (double)w[k][n];
            }
        }
    }
    solve_double(0.01 * trace / IN, wanted);
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t n = 0; n < OUT; n++) {
            wanted[i][n] = (double)w[i][n] + 0.5 * wanted[i][n];
        }
    }
}

/* The largest difference between the targets and `wanted`, or, if `same`, the weights. */
static double run(bool same)
{
    static const exl2__group groups[] = { { 0, 96, 0, 4 } };
    exl2__ctx c = { 0 };
    exl2__arena dry = { 0 }, memory;
    exl2__correct k = { 0 };
    exl2__gram gram;
    exl2__factor f;
    exl2__solve s;
    double most = 0;
    c.allocator = exl2__platform_allocator();
    c.cpu_path = exl2__cpu_path_best();
    const exl2__cpu_ops *ops = exl2__cpu_choose(c.cpu_path);
    uint64_t work = exl2__gram_work_bytes(IN, CHUNK);
    for (uint32_t pass = 0; pass < 2; pass++) {
        exl2__arena *a = pass ? &memory : &dry;
        float *strips = (float *)exl2__arena_alloc(a, work), *panels = (float *)exl2__arena_alloc(a, work);
        exl2__gram_layout(&gram, ops, IN, CHUNK, strips, panels, a);
        exl2__correct_layout(&k, NULL, IN, CHUNK, a);
        if (!pass) {
            CHECK_INT(exl2__arena_open(&c, &memory, dry.used, EXL2_MEM_SCRATCH), EXL2_OK);
        }
    }
    CHECK_INT(exl2__correct_begin(&k, &gram, IN), EXL2_OK);
    for (uint32_t t = 0; t < TOKENS; t += CHUNK) {
        uint32_t rows = exl2__min32(CHUNK, TOKENS - t);
        for (uint32_t r = 0; r < rows; r++) {
            exl2__correct_row(&k, r, x[t + r], y[t + r]);
        }
        CHECK_INT(exl2__correct_add(&c, &k, rows), EXL2_OK);
    }
    CHECK_INT(exl2__gram_finish(&c, &gram), EXL2_OK);
    CHECK_INT(exl2__factor_make(&c, NULL, "test", gram.sum, IN, &f), EXL2_OK);
    CHECK_INT(exl2__correct_finish(&k, &f), EXL2_OK);
    CHECK_INT(exl2__solve_open(&c, &f, OUT, groups, 1, &s), EXL2_OK);
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t n = 0; n < OUT; n++) {
            s.weights[((size_t)(n / 32) * IN + i) * 32 + n % 32] = w[f.order[i]][n];
        }
    }
    CHECK_INT(exl2__correct_weights(&c, &k, &s), EXL2_OK);
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t n = 0; n < OUT; n++) {
            double target = (double)s.weights[((size_t)(n / 32) * IN + i) * 32 + n % 32];
            double off = fabs(target - (same ? (double)w[f.order[i]][n] : wanted[f.order[i]][n]));
            most = off <= most ? most : off; /* a NaN counts */
        }
    }
    exl2__solve_close(&c, &s);
    exl2__factor_close(&c, &f);
    exl2__arena_close(&c, &memory);
    CHECK_INT(c.host_bytes, 0);
    return most;
}

int main(void)
{
    double step = 0;
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t n = 0; n < OUT; n++) {
            w[i][n] = random_number();
        }
        for (uint32_t t = 0; t < TOKENS; t++) {
            x[t][i] = random_number() * (1 + (float)(i % 7));
            y[t][i] = x[t][i] * 0.9f + random_number() * 0.3f;
        }
    }
    reference();
    for (uint32_t i = 0; i < IN; i++) {
        for (uint32_t n = 0; n < OUT; n++) {
            step = fmax(step, fabs(wanted[i][n] - (double)w[i][n]));
        }
    }
    double off = run(false);
    printf("targets differ from the reference by %.2g, from the weights by %.2g\n", off, step);
    CHECK(off < 1e-4 && step > 0.05);
    for (uint32_t t = 0; t < TOKENS; t++) {
        x[t][5] = 1e9f; /* no target of the format can give what the weights make of it */
    }
    CHECK(run(true) == 0);
    memcpy(x, y, sizeof x);
    CHECK(run(true) == 0);
    return check_done();
}
