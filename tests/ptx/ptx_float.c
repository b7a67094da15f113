/* ptx_float.c: instructions that compute with float and double. They are exact as IEEE 754 says; approximations (ex2,
   rcp, rsqrt ...) are rounded correctly, or nearly so from double, which a GPU's are not.
   takes: ptx_parts.h.
   gives: ptx_float_forms. */
#include "ptx_parts.h"

#include <math.h>

#define UNARY(name, type, expression) PTX_UNARY(name, type, type, expression)
#define BINARY(name, type, expression) PTX_BINARY(name, type, type, type, expression)
#define TERNARY(name, type, expression) PTX_TERNARY(name, type, type, type, expression)
#define FLUSH ptx_flush

BINARY(add_f32, float, x + y)
BINARY(sub_f32, float, x - y)
BINARY(mul_f32, float, x *y)
BINARY(add_f32_ftz, float, FLUSH(FLUSH(x) + FLUSH(y)))
BINARY(sub_f32_ftz, float, FLUSH(FLUSH(x) - FLUSH(y)))
BINARY(mul_f32_ftz, float, FLUSH(FLUSH(x) * FLUSH(y)))
BINARY(div_f32, float, x / y)
BINARY(div_f32_ftz, float, FLUSH(FLUSH(x) / FLUSH(y)))
BINARY(add_f64, double, x + y)
BINARY(sub_f64, double, x - y)
BINARY(mul_f64, double, x *y)
BINARY(div_f64, double, x / y)
UNARY(neg_f32, float, -x)
UNARY(abs_f32, float, fabsf(x))
UNARY(neg_f64, double, -x)
UNARY(abs_f64, double, fabs(x))
UNARY(neg_f32_ftz, float, -FLUSH(x))
UNARY(abs_f32_ftz, float, fabsf(FLUSH(x)))
UNARY(sqrt_f32, float, sqrtf(x))
UNARY(sqrt_f32_ftz, float, FLUSH(sqrtf(FLUSH(x))))
UNARY(sqrt_f64, double, sqrt(x))
UNARY(rcp_f32, float, 1.0f / x)
UNARY(rcp_f32_ftz, float, FLUSH(1.0f / FLUSH(x)))
UNARY(rcp_f64, double, 1.0 / x)
UNARY(rsqrt_f32, float, 1.0 / sqrt((double)x))
UNARY(rsqrt_f32_ftz, float, FLUSH((float)(1.0 / sqrt((double)FLUSH(x)))))
UNARY(ex2_f32, float, exp2((double)x))
UNARY(ex2_f32_ftz, float, FLUSH((float)exp2((double)FLUSH(x))))
UNARY(lg2_f32, float, log2((double)x))
UNARY(lg2_f32_ftz, float, log2((double)FLUSH(x)))
UNARY(sin_f32, float, sin((double)x))
UNARY(sin_f32_ftz, float, FLUSH((float)sin((double)FLUSH(x))))
UNARY(cos_f32, float, cos((double)x))
UNARY(cos_f32_ftz, float, FLUSH((float)cos((double)FLUSH(x))))
UNARY(tanh_f32, float, tanh((double)x))

/* The number, if the other operand is none; -0 is less than +0. */
static float least(float x, float y)
{
    if (x == y) {
        return ptx_float_of(ptx_bits_of(x) | ptx_bits_of(y));
    }
    return x < y || y != y ? x : y;
}

static float most(float x, float y)
{
    if (x == y) {
        return ptx_float_of(ptx_bits_of(x) & ptx_bits_of(y));
    }
    return x > y || y != y ? x : y;
}

static double least_double(double x, double y) { return x < y || y != y || (x == y && signbit(x)) ? x : y; }
static double most_double(double x, double y) { return x > y || y != y || (x == y && signbit(y)) ? x : y; }

BINARY(min_f32, float, least(x, y))
BINARY(max_f32, float, most(x, y))
BINARY(min_f32_ftz, float, least(FLUSH(x), FLUSH(y)))
BINARY(max_f32_ftz, float, most(FLUSH(x), FLUSH(y)))
BINARY(min_f32_nan, float, x != x || y != y ? NAN : least(x, y))
BINARY(max_f32_nan, float, x != x || y != y ? NAN : most(x, y))
BINARY(min_f64, double, least_double(x, y))
BINARY(max_f64, double, most_double(x, y))

/* ---- fma ---- */

TERNARY(fma_f32_plain, float, fmaf(x, y, z))
TERNARY(fma_f32_ftz, float, FLUSH(fmaf(FLUSH(x), FLUSH(y), FLUSH(z))))
TERNARY(fma_f64, double, fma(x, y, z))
TERNARY(fma_f32_sat, float, fmaxf(0.0f, fminf(1.0f, fmaf(x, y, z))))

/* The same with the CPU's own instruction, whose bits are the same. */
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2,fma"))) static void fma_f32_fast(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const float *a = PTX_IN(float, 1), *b = PTX_IN(float, 2), *c = PTX_IN(float, 3);
    float d[PTX_LANES];
    PTX_EACH(l) {
        d[l] = __builtin_fmaf(a[l], b[l], c[l]);
    }
    PTX_PUT(0, d);
}

static void fma_f32(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        fma_f32_fast(w, s, mask);
    } else {
        fma_f32_plain(w, s, mask);
    }
}
#else
#define fma_f32 fma_f32_plain
#endif

/* ---- directed rounding ---- */

/* Rounds the exact sum of `sum` and `rest`, which is less than half of the last place of `sum`. up: towards +infinity,
   else towards -infinity. */
static float rounded(double sum, double rest, bool up)
{
    float f = (float)sum;
    if (f != f || isinf(sum)) {
        return f;
    }
    if (up) {
        return (double)f < sum || ((double)f == sum && rest > 0) ? nextafterf(f, INFINITY) : f;
    }
    return (double)f > sum || ((double)f == sum && rest < 0) ? nextafterf(f, -INFINITY) : f;
}

/* x y + z: the product is exact in double, and `rest` is what the sum lost. */
static float fma_directed(float x, float y, float z, int direction)
{
    double p = (double)x * y, c = z, sum = p + c, back = sum - p, rest = (p - (sum - back)) + (c - back);
    bool up = direction == 0 ? sum < 0 : direction > 0;
    if (sum == 0 && rest == 0 && direction < 0) { /* x - x is -0 */
        return signbit(p) || signbit(c) ? -0.0f : 0.0f;
    }
    return rounded(sum, rest, up);
}

TERNARY(fma_f32_rm, float, fma_directed(x, y, z, -1))
TERNARY(fma_f32_rp, float, fma_directed(x, y, z, 1))
TERNARY(fma_f32_rz, float, fma_directed(x, y, z, 0))
BINARY(add_f32_rm, float, fma_directed(x, 1.0f, y, -1))
BINARY(add_f32_rp, float, fma_directed(x, 1.0f, y, 1))
BINARY(add_f32_rz, float, fma_directed(x, 1.0f, y, 0))
BINARY(mul_f32_rz, float, fma_directed(x, y, 0.0f, 0))
BINARY(mul_f32_rm, float, fma_directed(x, y, 0.0f, -1))
BINARY(mul_f32_rp, float, fma_directed(x, y, 0.0f, 1))

/* A first approximation, for Newton's method: the lower half of its bits is 0. */
static double rough_reciprocal(double x)
{
    uint64_t u;
    x = fabs(x) < 0x1p-1022 ? copysign(0.0, x) : x;
    x = 1.0 / x;
    memcpy(&u, &x, 8);
    u &= x == x ? 0xFFFFFFFF00000000u : ~0ull;
    memcpy(&x, &u, 8);
    return fabs(x) < 0x1p-1022 ? copysign(0.0, x) : x;
}

UNARY(rcp_f64_rough, double, rough_reciprocal(x))
BINARY(copysign_f32, float, copysignf(y, x))
BINARY(copysign_f64, double, copysign(y, x))

const ptx_form ptx_float_forms[] = {
    { "add.f32", add_f32, "4=44" }, { "add.rn.f32", add_f32, "4=44" }, { "add.ftz.f32", add_f32_ftz, "4=44" },
    { "add.rn.ftz.f32", add_f32_ftz, "4=44" }, { "sub.f32", sub_f32, "4=44" }, { "sub.rn.f32", sub_f32, "4=44" },
    { "sub.ftz.f32", sub_f32_ftz, "4=44" }, { "sub.rn.ftz.f32", sub_f32_ftz, "4=44" }, { "mul.f32", mul_f32, "4=44" },
    { "mul.rn.f32", mul_f32, "4=44" }, { "mul.ftz.f32", mul_f32_ftz, "4=44" },
    { "mul.rn.ftz.f32", mul_f32_ftz, "4=44" }, { "add.rm.f32", add_f32_rm, "4=44" },
    { "add.rp.f32", add_f32_rp, "4=44" }, { "add.rz.f32", add_f32_rz, "4=44" }, { "mul.rz.f32", mul_f32_rz, "4=44" },
    { "mul.rm.f32", mul_f32_rm, "4=44" }, { "mul.rp.f32", mul_f32_rp, "4=44" },
    { "div.rn.f32", div_f32, "4=44" }, { "div.approx.f32", div_f32, "4=44" }, { "div.full.f32", div_f32, "4=44" },
    { "div.rn.ftz.f32", div_f32_ftz, "4=44" }, { "div.approx.ftz.f32", div_f32_ftz, "4=44" },
    { "div.full.ftz.f32", div_f32_ftz, "4=44" },
    { "min.f32", min_f32, "4=44" }, { "max.f32", max_f32, "4=44" }, { "min.ftz.f32", min_f32_ftz, "4=44" },
    { "max.ftz.f32", max_f32_ftz, "4=44" }, { "min.NaN.f32", min_f32_nan, "4=44" },
    { "max.NaN.f32", max_f32_nan, "4=44" }, { "copysign.f32", copysign_f32, "4=44" },
    { "neg.f32", neg_f32, "4=4" }, { "abs.f32", abs_f32, "4=4" }, { "neg.ftz.f32", neg_f32_ftz, "4=4" },
    { "abs.ftz.f32", abs_f32_ftz, "4=4" }, { "sqrt.rn.f32", sqrt_f32, "4=4" },
    { "sqrt.approx.f32", sqrt_f32, "4=4" }, { "sqrt.rn.ftz.f32", sqrt_f32_ftz, "4=4" },
    { "sqrt.approx.ftz.f32", sqrt_f32_ftz, "4=4" }, { "rcp.rn.f32", rcp_f32, "4=4" },
    { "rcp.approx.f32", rcp_f32, "4=4" }, { "rcp.rn.ftz.f32", rcp_f32_ftz, "4=4" },
    { "rcp.approx.ftz.f32", rcp_f32_ftz, "4=4" }, { "rsqrt.approx.f32", rsqrt_f32, "4=4" },
    { "rsqrt.approx.ftz.f32", rsqrt_f32_ftz, "4=4" }, { "ex2.approx.f32", ex2_f32, "4=4" },
    { "ex2.approx.ftz.f32", ex2_f32_ftz, "4=4" }, { "lg2.approx.f32", lg2_f32, "4=4" },
    { "lg2.approx.ftz.f32", lg2_f32_ftz, "4=4" }, { "sin.approx.f32", sin_f32, "4=4" },
    { "sin.approx.ftz.f32", sin_f32_ftz, "4=4" }, { "cos.approx.f32", cos_f32, "4=4" },
    { "cos.approx.ftz.f32", cos_f32_ftz, "4=4" }, { "tanh.approx.f32", tanh_f32, "4=4" },
    { "fma.rn.f32", fma_f32, "4=444" }, { "fma.rn.ftz.f32", fma_f32_ftz, "4=444" },
    { "fma.rm.f32", fma_f32_rm, "4=444" }, { "fma.rp.f32", fma_f32_rp, "4=444" },
    { "fma.rz.f32", fma_f32_rz, "4=444" }, { "fma.rn.sat.f32", fma_f32_sat, "4=444" },
    { "mad.f32", fma_f32, "4=444" }, { "mad.rn.f32", fma_f32, "4=444" },
    { "add.f64", add_f64, "8=88" }, { "add.rn.f64", add_f64, "8=88" }, { "sub.f64", sub_f64, "8=88" },
    { "sub.rn.f64", sub_f64, "8=88" }, { "mul.f64", mul_f64, "8=88" }, { "mul.rn.f64", mul_f64, "8=88" },
    { "div.rn.f64", div_f64, "8=88" }, { "min.f64", min_f64, "8=88" }, { "max.f64", max_f64, "8=88" },
    { "neg.f64", neg_f64, "8=8" }, { "abs.f64", abs_f64, "8=8" }, { "sqrt.rn.f64", sqrt_f64, "8=8" },
    { "rcp.approx.ftz.f64", rcp_f64_rough, "8=8" }, { "rcp.rn.f64", rcp_f64, "8=8" }, 
    { "copysign.f64", copysign_f64, "8=88" }, { "fma.rn.f64", fma_f64, "8=888" },
    { NULL, NULL, NULL } };
