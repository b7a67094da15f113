/* ptx_half.c: instructions that compute with half floats, alone and in pairs. Sums, products and fma of halves are
   computed in double: where that is not exact, what it loses cannot change the half that it is rounded to.
   takes: ptx_parts.h.
   gives: ptx_half_of, ptx_half_forms. */
#include "ptx_parts.h"

#include <math.h>

uint16_t ptx_half_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    uint16_t sign = (uint16_t)(u >> 48 & 0x8000);
    double a = fabs(x);
    if (!(a < 65520.0)) {
        return (uint16_t)(sign | (x != x ? 0x7FFF : 0x7C00));
    }
    if (a < 0x1p-14) { /* the sum's last place is 2^-24, that of a subnormal half */
        double sum = a + 0x1p28;
        memcpy(&u, &sum, 8);
        return (uint16_t)(sign | (u & 0x7FF));
    }
    memcpy(&u, &a, 8);
    u += (1ull << 41) - 1 + (u >> 42 & 1);
    return (uint16_t)(sign | ((u >> 42) - ((1023 - 15) << 10)));
}

static double least(double x, double y) { return x < y || y != y || (x == y && signbit(x)) ? x : y; }
static double most(double x, double y) { return x > y || y != y || (x == y && signbit(y)) ? x : y; }
static double clamped(double x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

/* One half a lane, and two: 64 halves of a register. */
#define HALVES(name, count, in, expression)                                                     \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                             \
    {                                                                                           \
        const uint16_t *a = PTX_IN(uint16_t, 1), *b = PTX_IN(uint16_t, in > 1 ? 2 : 1);         \
        const uint16_t *c = PTX_IN(uint16_t, in > 2 ? 3 : 1);                                   \
        uint16_t d[PTX_LANES * count];                                                          \
        for (uint32_t i = 0; i < PTX_LANES * count; i++) {                                      \
            double x = ptx_from_half(a[i]), y = ptx_from_half(b[i]), z = ptx_from_half(c[i]);   \
            (void)y;                                                                            \
            (void)z;                                                                            \
            d[i] = ptx_half_of(expression);                                                     \
        }                                                                                       \
        ptx_put(w, s->arg[0], d, sizeof *d * count, mask);                                      \
    }
#define BOTH(name, in, expression)              \
    HALVES(name##_f16, 1, in, expression)       \
    HALVES(name##_f16x2, 2, in, expression)
BOTH(add, 2, x + y)
BOTH(sub, 2, x - y)
BOTH(mul, 2, x *y)
BOTH(fma, 3, x *y + z)
BOTH(fma_sat, 3, clamped(x *y + z))
BOTH(fma_relu, 3, x *y + z > 0 ? x * y + z : 0)
BOTH(min, 2, least(x, y))
BOTH(max, 2, most(x, y))
BOTH(min_nan, 2, x != x || y != y ? (double)NAN : least(x, y))
BOTH(max_nan, 2, x != x || y != y ? (double)NAN : most(x, y))
BOTH(neg, 1, -x)
BOTH(abs, 1, fabs(x))
BOTH(ex2, 1, exp2(x))
BOTH(tanh, 1, tanh(x))

#define ROWS(op, function, one, two) { op ".f16", function##_f16, one }, { op ".f16x2", function##_f16x2, two }

const ptx_form ptx_half_forms[] = {
    ROWS("add", add, "2=22", "4=44"), ROWS("add.rn", add, "2=22", "4=44"), ROWS("sub", sub, "2=22", "4=44"),
    ROWS("sub.rn", sub, "2=22", "4=44"), ROWS("mul", mul, "2=22", "4=44"), ROWS("mul.rn", mul, "2=22", "4=44"),
    ROWS("fma.rn", fma, "2=222", "4=444"), ROWS("fma.rn.sat", fma_sat, "2=222", "4=444"),
    ROWS("fma.rn.relu", fma_relu, "2=222", "4=444"), ROWS("min", min, "2=22", "4=44"),
    ROWS("max", max, "2=22", "4=44"), ROWS("min.NaN", min_nan, "2=22", "4=44"),
    ROWS("max.NaN", max_nan, "2=22", "4=44"), ROWS("neg", neg, "2=2", "4=4"), ROWS("abs", abs, "2=2", "4=4"),
    ROWS("ex2.approx", ex2, "2=2", "4=4"), ROWS("tanh.approx", tanh, "2=2", "4=4"),
    { NULL, NULL, NULL } };
