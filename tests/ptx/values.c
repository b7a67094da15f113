/* values.c: instructions of PTX that compute: each one on many values, against a second computation in C.
   takes: rig.h.
   gives: exit code. */
#include "rig.h"

#include <fenv.h>
#include <math.h>

#define THREADS 256u
#define CTAS 16u
#define VALUES (THREADS * CTAS)

/* How results are compared. */
typedef enum compare { BITS, FLOAT, DOUBLE, HALF, HALVES, CLOSE } compare;

typedef struct row {
    const char *op;
    const char *shape; /* "4=44": a destination of 4 bytes, two sources; p: a predicate */
    const char *end;   /* what follows the operands */
    compare how;
    uint64_t (*want)(uint64_t a, uint64_t b, uint64_t c, uint64_t d);
} row;

static uint64_t in[4][VALUES], out[VALUES];
static char text[4000];

static uint64_t random64(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717u;
}

static float f_of(uint64_t u)
{
    uint32_t v = (uint32_t)u;
    float x;
    memcpy(&x, &v, 4);
    return x;
}

static uint64_t f_bits(float x)
{
    uint32_t v;
    memcpy(&v, &x, 4);
    return v;
}

static double d_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static uint64_t d_bits(double x)
{
    uint64_t v;
    memcpy(&v, &x, 8);
    return v;
}

/* A half from its parts. */
static double h_of(uint64_t u)
{
    int exponent = (int)(u >> 10 & 31), mantissa = (int)(u & 1023);
    double sign = u & 0x8000 ? -1 : 1;
    if (exponent == 31) {
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    }
    return exponent ? sign * ldexp(1024 + mantissa, exponent - 25) : sign * ldexp(mantissa, -24);
}

/* The nearest half of a number that has 64 bits of mantissa. */
static uint64_t h_bits(long double x)
{
    uint64_t sign = signbit(x) ? 0x8000 : 0;
    long double a = fabsl(x);
    if (x != x) {
        return 0x7FFF;
    }
    if (a >= 65520.0L) {
        return sign | 0x7C00;
    }
    int exponent = a < 0x1p-14L ? -14 : ilogbl(a);
    long double units = nearbyintl(ldexpl(a, 10 - exponent)); /* 1024 to 2048, or less for a subnormal number */
    return sign | (uint64_t)((long long)units + ((long long)(exponent + 14) << 10));
}

/* Numbers of all kinds: special ones, small ones, and random bits of integers, floats and halves. */
static uint64_t value_of(uint32_t i)
{
    static const uint64_t special[] = { 0, 1, 2, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF,
        0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x3F800000,
        0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
        0x4F000000, 0xCF000000, 0x4F800000, 0x5F000000, 0x5F800000, 0x3C003C00, 0x7C00FC00, 0x7BFF0001, 0x83FF0400,
        0x3FF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x41DFFFFFFFC00000,
        0x43E0000000000000, 0x0000000000000001, 0x0010000000000000, 0x3FE0000000000000, 0x3F0000003F000000 };
    uint64_t u = random64();
    switch (i % 6) {
    case 0: return special[u % (sizeof special / sizeof *special)];
    case 1: return u % 70;
    case 2: return d_bits((double)(int64_t)(u >> 40) * 0.37 - 2000000);
    case 3: return f_bits((float)(int64_t)(u >> 44) * 0.011f - 3000.0f) | u << 32;
    case 4: return h_bits((double)(int64_t)(u >> 50) * 0.013 - 90) | h_bits((double)(u >> 54) * 0.01) << 16 | u << 32;
    default: return u;
    }
}

/* Loads four numbers, makes the operands of them, executes, and stores the result as 64 bits. */
static void make_text(const row *r)
{
    static const char *const loads =
        RIG_HEAD ".visible .entry test(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n{\n"
        ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<19>;\nmov.u32 %r10, %tid.x;\n"
        "mov.u32 %r11, %ctaid.x;\nmad.lo.s32 %r12, %r11, 256, %r10;\nmul.wide.u32 %rd10, %r12, 32;\n"
        "ld.param.u64 %rd11, [a];\nadd.s64 %rd12, %rd11, %rd10;\nld.global.v2.u64 {%rd1, %rd2}, [%rd12];\n"
        "ld.global.v2.u64 {%rd3, %rd4}, [%rd12+16];\nld.param.u64 %rd13, [b];\nmul.wide.u32 %rd14, %r12, 8;\n"
        "add.s64 %rd15, %rd13, %rd14;\nmov.u64 %rd0, 0;\n";
    char *at = text;
    const char *end = text + sizeof text;
    at += snprintf(at, (size_t)(end - at), "%s", loads);
    for (int i = 1; i < 5; i++) {
        at += snprintf(at, (size_t)(end - at), "cvt.u32.u64 %%r%d, %%rd%d;\ncvt.u16.u64 %%h%d, %%rd%d;\n"
                       "and.b64 %%rd9, %%rd%d, 1;\nsetp.ne.u64 %%p%d, %%rd9, 0;\n", i, i, i, i, i, i);
    }
    at += snprintf(at, (size_t)(end - at), "%s ", r->op);
    int source = 0;
    for (const char *s = r->shape; *s; s++) {
        if (*s != '=') {
            const char *name = *s == 'p' ? "%p" : *s == '2' ? "%h" : *s == '4' ? "%r" : "%rd";
            at += snprintf(at, (size_t)(end - at), "%s%s%d", source ? ", " : "", name, source);
            source++;
        }
    }
    const char *widen = r->shape[0] == 'p' ? "selp.u64 %rd0, 1, 0, %p0;\n"
                      : r->shape[0] == '2' ? "cvt.u64.u16 %rd0, %h0;\n"
                      : r->shape[0] == '4' ? "cvt.u64.u32 %rd0, %r0;\n" : "";
    snprintf(at, (size_t)(end - at), "%s;\n%sst.global.u64 [%%rd15], %%rd0;\nret;\n}\n", r->end, widen);
}

static bool same(const row *r, uint64_t got, uint64_t wanted)
{
    double x = f_of(got), y = f_of(wanted);
    if (got == wanted) {
        return true;
    }
    switch (r->how) {
    case BITS: return false;
    case FLOAT: return x != x && y != y;
    case DOUBLE: return d_of(got) != d_of(got) && d_of(wanted) != d_of(wanted);
    case HALF: return h_of(got) != h_of(got) && h_of(wanted) != h_of(wanted);
    case HALVES: {
        row one = *r;
        one.how = HALF;
        bool low = (got & 0xFFFF) == (wanted & 0xFFFF) || same(&one, got & 0xFFFF, wanted & 0xFFFF);
        return low && (got >> 16 == wanted >> 16 || same(&one, got >> 16, wanted >> 16));
    }
    case CLOSE: return (x != x && y != y) || fabs(x - y) <= fabs(y) * 0x1p-21 + 0x1p-140;
    }
    return false;
}

static void check_row(const row *r)
{
    static uint64_t sources[VALUES][4];
    for (uint32_t i = 0; i < VALUES; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            sources[i][j] = in[j][i];
        }
        out[i] = 0xDEADBEEF;
    }
    make_text(r);
    rig run = { .text = text, .buffers = { { sources, sizeof sources }, { out, sizeof out } }, .threads = THREADS,
        .ctas = CTAS };
    rig_check(&run);
    int wrong = 0;
    for (uint32_t i = 0; i < VALUES && wrong < 3; i++) {
        uint64_t wanted = r->want(in[0][i], in[1][i], in[2][i], in[3][i]);
        if (!same(r, out[i], wanted)) {
            wrong++;
            printf("%s%s of 0x%llx, 0x%llx, 0x%llx, 0x%llx is 0x%llx, wanted 0x%llx\n", r->op, r->end,
                   (unsigned long long)in[0][i], (unsigned long long)in[1][i], (unsigned long long)in[2][i],
                   (unsigned long long)in[3][i], (unsigned long long)out[i], (unsigned long long)wanted);
        }
    }
    CHECK(wrong == 0);
}

/* ---- references ---- */

#define WANT(name, expression)                                                       \
    static uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d)             \
    {                                                                                \
        (void)a;                                                                     \
        (void)b;                                                                     \
        (void)c;                                                                     \
        (void)d;                                                                     \
        return (expression);                                                         \
    }
#define LOW32(x) ((x) & 0xFFFFFFFFu)
#define LOW16(x) ((x) & 0xFFFFu)
#define S32(x) ((int64_t)(int32_t)(x))
#define S16(x) ((int64_t)(int16_t)(x))

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 wide_signed;

WANT(add32, LOW32(a + b))
WANT(add64, a + b)
WANT(add16, LOW16(a + b))
WANT(sub32, LOW32(a - b))
WANT(sub64, a - b)
WANT(sub16, LOW16(a - b))
WANT(mul_lo32, LOW32(a * b))
WANT(mul_lo64, a *b)
WANT(mul_lo16, LOW16(a * b))
WANT(mul_hi_u32, LOW32(a) * LOW32(b) >> 32)
WANT(mul_hi_s32, LOW32((uint64_t)(S32(a) * S32(b)) >> 32))
WANT(mul_hi_u64, (uint64_t)((wide)a * b >> 64))
WANT(mul_hi_s64, (uint64_t)((wide)((wide_signed)(int64_t)a * (int64_t)b) >> 64))
WANT(mul_wide_u32, LOW32(a) * LOW32(b))
WANT(mul_wide_s32, (uint64_t)(S32(a) * S32(b)))
WANT(mul_wide_u16, LOW16(a) * LOW16(b))
WANT(mul_wide_s16, LOW32((uint64_t)(S16(a) * S16(b))))
WANT(mad_lo32, LOW32(a * b + c))
WANT(mad_lo64, a *b + c)
WANT(mad_wide_u32, LOW32(a) * LOW32(b) + c)
WANT(mad_wide_s32, (uint64_t)(S32(a) * S32(b)) + c)
WANT(mad_hi_u32, LOW32((LOW32(a) * LOW32(b) >> 32) + c))
WANT(div_u32, LOW32(b) ? LOW32(a) / LOW32(b) : 0xFFFFFFFFu)
WANT(rem_u32, LOW32(b) ? LOW32(a) % LOW32(b) : LOW32(a))
WANT(div_s32, LOW32(b) ? LOW32((uint64_t)(S32(a) / S32(b))) : 0xFFFFFFFFu)
WANT(rem_s32, LOW32(b) ? LOW32((uint64_t)(S32(a) % S32(b))) : LOW32(a))
WANT(div_u64, b ? a / b : ~0ull)
WANT(rem_u64, b ? a % b : a)
WANT(div_u16, LOW16(b) ? LOW16(a) / LOW16(b) : 0xFFFFu)
WANT(min_u32, LOW32(a) < LOW32(b) ? LOW32(a) : LOW32(b))
WANT(max_u32, LOW32(a) > LOW32(b) ? LOW32(a) : LOW32(b))
WANT(min_s32, LOW32((uint64_t)(S32(a) < S32(b) ? S32(a) : S32(b))))
WANT(max_s32, LOW32((uint64_t)(S32(a) > S32(b) ? S32(a) : S32(b))))
WANT(max_u64, a > b ? a : b)
WANT(min_s64, (uint64_t)((int64_t)a < (int64_t)b ? (int64_t)a : (int64_t)b))
WANT(neg32, LOW32(0 - a))
WANT(abs32, LOW32((uint64_t)(S32(a) < 0 ? -S32(a) : S32(a))))
WANT(not32, LOW32(~a))
WANT(not64, ~a)
WANT(and32, LOW32(a & b))
WANT(or64, a | b)
WANT(xor16, LOW16(a ^ b))
WANT(shl32, LOW32(b) > 31 ? 0 : LOW32(a << LOW32(b)))
WANT(shl64, LOW32(b) > 63 ? 0 : a << LOW32(b))
WANT(shr_u32, LOW32(b) > 31 ? 0 : LOW32(a) >> LOW32(b))
WANT(shr_s32, LOW32((uint64_t)(S32(a) >> (LOW32(b) > 31 ? 31 : LOW32(b)))))
WANT(shr_u64, LOW32(b) > 63 ? 0 : a >> LOW32(b))
WANT(shr_s64, (uint64_t)((int64_t)a >> (LOW32(b) > 63 ? 63 : LOW32(b))))
WANT(shr_u16, LOW32(b) > 15 ? 0 : LOW16(a) >> LOW32(b))
WANT(shf_l_wrap, LOW32((LOW32(b) << 32 | LOW32(a)) << (c & 31) >> 32))
WANT(shf_r_wrap, LOW32((LOW32(b) << 32 | LOW32(a)) >> (c & 31)))
WANT(shf_r_clamp, LOW32(c) > 31 ? LOW32(b) : LOW32((LOW32(b) << 32 | LOW32(a)) >> (c & 31)))
WANT(shf_l_clamp, LOW32(c) > 31 ? LOW32(a) : LOW32((LOW32(b) << 32 | LOW32(a)) << (c & 31) >> 32))
WANT(and_p, a & b & 1)
WANT(xor_p, (a ^ b) & 1)
WANT(not_p, ~a & 1)

static uint64_t count_bits(uint64_t x)
{
    uint64_t n = 0;
    for (; x; x &= x - 1) {
        n++;
    }
    return n;
}

static uint64_t highest(uint64_t x)
{
    int n = 63;
    while (n >= 0 && !(x >> n & 1)) {
        n--;
    }
    return (uint64_t)(int64_t)n;
}

static uint64_t mirror(uint64_t x, uint32_t width)
{
    uint64_t r = 0;
    for (uint32_t i = 0; i < width; i++) {
        r |= (x >> i & 1) << (width - 1 - i);
    }
    return r;
}

WANT(popc32, count_bits(LOW32(a)))
WANT(popc64, count_bits(a))
WANT(clz32, 31 - highest(LOW32(a)))
WANT(clz64, LOW32(63 - highest(a)))
WANT(bfind_u32, LOW32(highest(LOW32(a))))
WANT(bfind_shift, LOW32(a) ? 31 - highest(LOW32(a)) : 0xFFFFFFFFu)
WANT(brev32, mirror(LOW32(a), 32))

/* Bit by bit, as the manual of PTX defines it. */
static uint64_t bit_field(uint64_t a, uint64_t b, uint64_t c, uint32_t width, bool sign)
{
    uint64_t at = b & 255, count = c & 255, last = width - 1, r = 0;
    uint64_t end = at + count - 1 < last ? at + count - 1 : last;
    bool ones = sign && count > 0 && (a >> end & 1);
    for (uint64_t i = 0; i < width; i++) {
        bool bit = i < count && at + i <= last ? a >> (at + i) & 1 : ones;
        r |= (uint64_t)bit << i;
    }
    return r;
}

static uint64_t bit_insert(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint32_t width)
{
    uint64_t at = c & 255, count = d & 255;
    for (uint64_t i = 0; i < count && at + i < width; i++) {
        b = (b & ~(1ull << (at + i))) | (a >> i & 1) << (at + i);
    }
    return width == 32 ? LOW32(b) : b;
}

WANT(bfe_u32, bit_field(LOW32(a), b, c, 32, false))
WANT(bfe_s32, bit_field(LOW32(a), b, c, 32, true))
WANT(bfe_u64, bit_field(a, b, c, 64, false))
WANT(bfe_s64, bit_field(a, b, c, 64, true))
WANT(bfi32, bit_insert(a, b, c, d, 32))
WANT(bfi64, bit_insert(a, b, c, d, 64))

static uint64_t table_of(uint64_t a, uint64_t b, uint64_t c, uint32_t table)
{
    uint64_t r = 0;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t entry = (uint32_t)((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1));
        r |= (uint64_t)(table >> entry & 1) << i;
    }
    return r;
}

WANT(lop3_6a, table_of(a, b, c, 0x6A))
WANT(lop3_ea, table_of(a, b, c, 0xEA))
WANT(lop3_1b, table_of(a, b, c, 0x1B))

static uint64_t permute(uint64_t a, uint64_t b, uint64_t c)
{
    uint8_t bytes[8];
    uint64_t r = 0;
    for (uint32_t i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(a >> 8 * i);
        bytes[4 + i] = (uint8_t)(b >> 8 * i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint8_t byte = bytes[c >> 4 * i & 7];
        bool sign = c >> 4 * i & 8;
        r |= (uint64_t)(sign ? (byte > 127 ? 255 : 0) : byte) << 8 * i;
    }
    return r;
}

static uint64_t dot(uint64_t a, uint64_t b, uint64_t c, bool sign)
{
    int64_t sum = S32(c);
    for (uint32_t i = 0; i < 32; i += 8) {
        sum += sign ? (int8_t)(a >> i) * (int8_t)(b >> i) : (uint8_t)(a >> i) * (uint8_t)(b >> i);
    }
    return LOW32((uint64_t)sum);
}

WANT(prmt, permute(a, b, c))
WANT(dp4a_u, dot(a, b, c, false))
WANT(dp4a_s, dot(a, b, c, true))

/* ---- floats ---- */

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* In a rounding mode of the CPU. */
static float with_rounding(int mode, float x, float y, float z)
{
    static float (*volatile fused)(float, float, float) = fmaf;
    fesetround(mode);
    float r = fused(x, y, z);
    fesetround(FE_TONEAREST);
    return r;
}

static float smaller(float x, float y)
{
    if (x == 0 && y == 0) {
        return signbit(x) ? x : y;
    }
    return x != x ? y : y != y || x < y ? x : y;
}

#define F(expression) f_bits(expression)
WANT(add_f, F(f_of(a) + f_of(b)))
WANT(sub_f, F(f_of(a) - f_of(b)))
WANT(mul_f, F(f_of(a) * f_of(b)))
WANT(div_f, F(f_of(a) / f_of(b)))
WANT(add_ftz, F(flush(flush(f_of(a)) + flush(f_of(b)))))
WANT(mul_ftz, F(flush(flush(f_of(a)) * flush(f_of(b)))))
WANT(fma_f, F(fmaf(f_of(a), f_of(b), f_of(c))))
WANT(fma_ftz, F(flush(fmaf(flush(f_of(a)), flush(f_of(b)), flush(f_of(c))))))
WANT(fma_rm, F(with_rounding(FE_DOWNWARD, f_of(a), f_of(b), f_of(c))))
WANT(fma_rp, F(with_rounding(FE_UPWARD, f_of(a), f_of(b), f_of(c))))
WANT(fma_rz, F(with_rounding(FE_TOWARDZERO, f_of(a), f_of(b), f_of(c))))
WANT(sqrt_f, F(sqrtf(f_of(a))))
WANT(rcp_f, F(1.0f / f_of(a)))
WANT(min_f, F(smaller(f_of(a), f_of(b))))
WANT(max_f, F(-smaller(-f_of(a), -f_of(b))))
WANT(neg_f, LOW32(a) ^ 0x80000000u)
WANT(abs_f, LOW32(a) & 0x7FFFFFFFu)
WANT(ex2_f, F((float)exp2l(f_of(a))))
WANT(lg2_f, F((float)log2l(f_of(a))))
WANT(rsqrt_f, F((float)(1 / sqrtl(f_of(a)))))
WANT(sin_f, F((float)sinl(f_of(a))))
WANT(cos_f, F((float)cosl(f_of(a))))
WANT(add_d, d_bits(d_of(a) + d_of(b)))
WANT(mul_d, d_bits(d_of(a) * d_of(b)))
WANT(div_d, d_bits(d_of(a) / d_of(b)))
WANT(fma_d, d_bits(fma(d_of(a), d_of(b), d_of(c))))

/* ---- halves ---- */

#define PAIR(name, expression)                                                                         \
    static uint64_t name##_one(uint64_t a, uint64_t b, uint64_t c, uint64_t d)                         \
    {                                                                                                  \
        long double x = h_of(a), y = h_of(b), z = h_of(c);                                             \
        (void)d;                                                                                       \
        (void)y;                                                                                       \
        (void)z;                                                                                       \
        return h_bits(expression);                                                                     \
    }                                                                                                  \
    WANT(name##_two, name##_one(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF, 0)                                 \
                         | name##_one(a >> 16 & 0xFFFF, b >> 16 & 0xFFFF, c >> 16 & 0xFFFF, 0) << 16)
PAIR(add_h, x + y)
PAIR(sub_h, x - y)
PAIR(mul_h, x *y)
PAIR(fma_h, x *y + z)
PAIR(max_nan_h, x != x || y != y ? (long double)NAN : x > y || (x == y && signbit(y)) ? x : y)
PAIR(neg_h, -x)

/* ---- conversions ---- */

static uint64_t clip(double x, double low, double high, uint64_t least, uint64_t most)
{
    return x != x ? 0 : x <= low ? least : x >= high ? most : (uint64_t)(int64_t)x;
}

WANT(cvt_f32_f16, F((float)h_of(a)))
WANT(cvt_f16_f32, h_bits((long double)f_of(a)))
WANT(cvt_f16x2, h_bits((long double)f_of(a)) << 16 | h_bits((long double)f_of(b)))
WANT(cvt_f32_u32, F((float)LOW32(a)))
WANT(cvt_f32_s32, F((float)(int32_t)a))
WANT(cvt_f32_u64, F((float)a))
WANT(cvt_f64_u32, d_bits((double)LOW32(a)))
WANT(cvt_f64_f32, d_bits((double)f_of(a)))
WANT(cvt_f32_f64, F((float)d_of(a)))
WANT(cvt_rzi_u32, LOW32(clip(trunc((double)f_of(a)), 0, 4294967295.0, 0, 0xFFFFFFFFu)))
WANT(cvt_rni_s32, LOW32(clip(rint((double)f_of(a)), -2147483648.0, 2147483647.0, 0x80000000u, 0x7FFFFFFFu)))
WANT(cvt_rmi_s32, LOW32(clip(floor((double)f_of(a)), -2147483648.0, 2147483647.0, 0x80000000u, 0x7FFFFFFFu)))
WANT(cvt_rni_f32, F(rintf(f_of(a))))
WANT(cvt_sat_f32, F(f_of(a) >= 1 ? 1.0f : f_of(a) > 0 ? f_of(a) : 0.0f))
WANT(cvt_s64_s32, (uint64_t)S32(a))
WANT(cvt_u64_u32, LOW32(a))
WANT(cvt_s32_s16, LOW32((uint64_t)S16(a)))
WANT(cvt_s32_s8, LOW32((uint64_t)(int64_t)(int8_t)a))
WANT(cvt_u32_u8, a & 255)
WANT(cvt_u32_u64, LOW32(a))
WANT(cvt_sat_u8_s32, S32(a) < 0 ? 0 : S32(a) > 255 ? 255 : LOW32(a))
WANT(cvt_rz_f32_u32, F(nextafterf((float)LOW32(a), 0) >= (float)LOW32(a) || (double)(float)LOW32(a) <= (double)LOW32(a)
                           ? (float)LOW32(a) : nextafterf((float)LOW32(a), 0)))

/* ---- comparisons and selections ---- */

WANT(setp_lt_s32, S32(a) < S32(b))
WANT(setp_hi_u32, LOW32(a) > LOW32(b))
WANT(setp_le_u64, a <= b)
WANT(setp_ne_s16, LOW16(a) != LOW16(b))
WANT(setp_lt_f, f_of(a) < f_of(b))
WANT(setp_ne_f, f_of(a) < f_of(b) || f_of(a) > f_of(b))
WANT(setp_leu_f, !(f_of(a) > f_of(b)))
WANT(setp_nan_f, f_of(a) != f_of(a) || f_of(b) != f_of(b))
WANT(setp_gt_h, h_of(a) > h_of(b))
WANT(setp_and, S32(a) < S32(b) && (c & 1))
WANT(selp32, c & 1 ? LOW32(a) : LOW32(b))
WANT(selp64, c & 1 ? a : b)

static const row rows[] = {
    { "add.s32", "4=44", "", BITS, add32 }, { "add.s64", "8=88", "", BITS, add64 },
    { "add.s16", "2=22", "", BITS, add16 }, { "sub.s32", "4=44", "", BITS, sub32 },
    { "sub.s64", "8=88", "", BITS, sub64 }, { "sub.s16", "2=22", "", BITS, sub16 },
    { "mul.lo.s32", "4=44", "", BITS, mul_lo32 }, { "mul.lo.s64", "8=88", "", BITS, mul_lo64 },
    { "mul.lo.s16", "2=22", "", BITS, mul_lo16 }, { "mul.hi.u32", "4=44", "", BITS, mul_hi_u32 },
    { "mul.hi.s32", "4=44", "", BITS, mul_hi_s32 }, { "mul.hi.u64", "8=88", "", BITS, mul_hi_u64 },
    { "mul.hi.s64", "8=88", "", BITS, mul_hi_s64 }, { "mul.wide.u32", "8=44", "", BITS, mul_wide_u32 },
    { "mul.wide.s32", "8=44", "", BITS, mul_wide_s32 }, { "mul.wide.u16", "4=22", "", BITS, mul_wide_u16 },
    { "mul.wide.s16", "4=22", "", BITS, mul_wide_s16 }, { "mad.lo.s32", "4=444", "", BITS, mad_lo32 },
    { "mad.lo.s64", "8=888", "", BITS, mad_lo64 }, { "mad.wide.u32", "8=448", "", BITS, mad_wide_u32 },
    { "mad.wide.s32", "8=448", "", BITS, mad_wide_s32 }, { "mad.hi.u32", "4=444", "", BITS, mad_hi_u32 },
    { "div.u32", "4=44", "", BITS, div_u32 }, { "rem.u32", "4=44", "", BITS, rem_u32 },
    { "div.s32", "4=44", "", BITS, div_s32 }, { "rem.s32", "4=44", "", BITS, rem_s32 },
    { "div.u64", "8=88", "", BITS, div_u64 }, { "rem.u64", "8=88", "", BITS, rem_u64 },
    { "div.u16", "2=22", "", BITS, div_u16 }, { "min.u32", "4=44", "", BITS, min_u32 },
    { "max.u32", "4=44", "", BITS, max_u32 }, { "min.s32", "4=44", "", BITS, min_s32 },
    { "max.s32", "4=44", "", BITS, max_s32 }, { "max.u64", "8=88", "", BITS, max_u64 },
    { "min.s64", "8=88", "", BITS, min_s64 }, { "neg.s32", "4=4", "", BITS, neg32 },
    { "abs.s32", "4=4", "", BITS, abs32 }, { "not.b32", "4=4", "", BITS, not32 },
    { "not.b64", "8=8", "", BITS, not64 }, { "and.b32", "4=44", "", BITS, and32 },
    { "or.b64", "8=88", "", BITS, or64 }, { "xor.b16", "2=22", "", BITS, xor16 },
    { "shl.b32", "4=44", "", BITS, shl32 }, { "shl.b64", "8=84", "", BITS, shl64 },
    { "shr.u32", "4=44", "", BITS, shr_u32 }, { "shr.s32", "4=44", "", BITS, shr_s32 },
    { "shr.u64", "8=84", "", BITS, shr_u64 }, { "shr.s64", "8=84", "", BITS, shr_s64 },
    { "shr.u16", "2=24", "", BITS, shr_u16 }, { "shf.l.wrap.b32", "4=444", "", BITS, shf_l_wrap },
    { "shf.r.wrap.b32", "4=444", "", BITS, shf_r_wrap }, { "shf.r.clamp.b32", "4=444", "", BITS, shf_r_clamp },
    { "shf.l.clamp.b32", "4=444", "", BITS, shf_l_clamp }, { "and.pred", "p=pp", "", BITS, and_p },
    { "xor.pred", "p=pp", "", BITS, xor_p }, { "not.pred", "p=p", "", BITS, not_p },
    { "popc.b32", "4=4", "", BITS, popc32 }, { "popc.b64", "4=8", "", BITS, popc64 },
    { "clz.b32", "4=4", "", BITS, clz32 }, { "clz.b64", "4=8", "", BITS, clz64 },
    { "bfind.u32", "4=4", "", BITS, bfind_u32 }, { "bfind.shiftamt.u32", "4=4", "", BITS, bfind_shift },
    { "brev.b32", "4=4", "", BITS, brev32 }, { "bfe.u32", "4=444", "", BITS, bfe_u32 },
    { "bfe.s32", "4=444", "", BITS, bfe_s32 }, { "bfe.u64", "8=844", "", BITS, bfe_u64 },
    { "bfe.s64", "8=844", "", BITS, bfe_s64 }, { "bfi.b32", "4=4444", "", BITS, bfi32 },
    { "bfi.b64", "8=8844", "", BITS, bfi64 }, { "lop3.b32", "4=444", ", 0x6A", BITS, lop3_6a },
    { "lop3.b32", "4=444", ", 0xEA", BITS, lop3_ea }, { "lop3.b32", "4=444", ", 27", BITS, lop3_1b },
    { "prmt.b32", "4=444", "", BITS, prmt }, { "dp4a.u32.u32", "4=444", "", BITS, dp4a_u },
    { "dp4a.s32.s32", "4=444", "", BITS, dp4a_s },
    { "add.f32", "4=44", "", FLOAT, add_f }, { "sub.rn.f32", "4=44", "", FLOAT, sub_f },
    { "mul.f32", "4=44", "", FLOAT, mul_f }, { "div.rn.f32", "4=44", "", FLOAT, div_f },
    { "add.ftz.f32", "4=44", "", FLOAT, add_ftz }, { "mul.rn.ftz.f32", "4=44", "", FLOAT, mul_ftz },
    { "fma.rn.f32", "4=444", "", FLOAT, fma_f }, { "fma.rn.ftz.f32", "4=444", "", FLOAT, fma_ftz },
    { "fma.rm.f32", "4=444", "", FLOAT, fma_rm }, { "fma.rp.f32", "4=444", "", FLOAT, fma_rp },
    { "fma.rz.f32", "4=444", "", FLOAT, fma_rz }, { "sqrt.rn.f32", "4=4", "", FLOAT, sqrt_f },
    { "rcp.rn.f32", "4=4", "", FLOAT, rcp_f }, { "min.f32", "4=44", "", FLOAT, min_f },
    { "max.f32", "4=44", "", FLOAT, max_f }, { "neg.f32", "4=4", "", FLOAT, neg_f },
    { "abs.f32", "4=4", "", FLOAT, abs_f }, { "ex2.approx.f32", "4=4", "", CLOSE, ex2_f },
    { "lg2.approx.f32", "4=4", "", CLOSE, lg2_f }, { "rsqrt.approx.f32", "4=4", "", CLOSE, rsqrt_f },
    { "sin.approx.f32", "4=4", "", CLOSE, sin_f }, { "cos.approx.f32", "4=4", "", CLOSE, cos_f },
    { "add.f64", "8=88", "", DOUBLE, add_d }, { "mul.rn.f64", "8=88", "", DOUBLE, mul_d },
    { "div.rn.f64", "8=88", "", DOUBLE, div_d }, { "fma.rn.f64", "8=888", "", DOUBLE, fma_d },
    { "add.f16", "2=22", "", HALF, add_h_one }, { "add.f16x2", "4=44", "", HALVES, add_h_two },
    { "sub.f16x2", "4=44", "", HALVES, sub_h_two }, { "mul.f16x2", "4=44", "", HALVES, mul_h_two },
    { "fma.rn.f16", "2=222", "", HALF, fma_h_one }, { "fma.rn.f16x2", "4=444", "", HALVES, fma_h_two },
    { "max.NaN.f16x2", "4=44", "", HALVES, max_nan_h_two }, { "neg.f16x2", "4=4", "", HALVES, neg_h_two },
    { "cvt.f32.f16", "4=2", "", FLOAT, cvt_f32_f16 }, { "cvt.rn.f16.f32", "2=4", "", HALF, cvt_f16_f32 },
    { "cvt.rn.f16x2.f32", "4=44", "", HALVES, cvt_f16x2 }, { "cvt.rn.f32.u32", "4=4", "", FLOAT, cvt_f32_u32 },
    { "cvt.rn.f32.s32", "4=4", "", FLOAT, cvt_f32_s32 }, { "cvt.rn.f32.u64", "4=8", "", FLOAT, cvt_f32_u64 },
    { "cvt.rn.f64.u32", "8=4", "", DOUBLE, cvt_f64_u32 }, { "cvt.f64.f32", "8=4", "", DOUBLE, cvt_f64_f32 },
    { "cvt.rn.f32.f64", "4=8", "", FLOAT, cvt_f32_f64 }, { "cvt.rzi.u32.f32", "4=4", "", BITS, cvt_rzi_u32 },
    { "cvt.rni.s32.f32", "4=4", "", BITS, cvt_rni_s32 }, { "cvt.rmi.s32.f32", "4=4", "", BITS, cvt_rmi_s32 },
    { "cvt.rni.f32.f32", "4=4", "", FLOAT, cvt_rni_f32 }, { "cvt.sat.f32.f32", "4=4", "", FLOAT, cvt_sat_f32 },
    { "cvt.s64.s32", "8=4", "", BITS, cvt_s64_s32 }, { "cvt.u64.u32", "8=4", "", BITS, cvt_u64_u32 },
    { "cvt.s32.s16", "4=2", "", BITS, cvt_s32_s16 }, { "cvt.s32.s8", "4=4", "", BITS, cvt_s32_s8 },
    { "cvt.u32.u8", "4=2", "", BITS, cvt_u32_u8 }, { "cvt.u32.u64", "4=8", "", BITS, cvt_u32_u64 },
    { "cvt.sat.u8.s32", "4=4", "", BITS, cvt_sat_u8_s32 }, { "cvt.rz.f32.u32", "4=4", "", FLOAT, cvt_rz_f32_u32 },
    { "setp.lt.s32", "p=44", "", BITS, setp_lt_s32 }, { "setp.hi.u32", "p=44", "", BITS, setp_hi_u32 },
    { "setp.le.u64", "p=88", "", BITS, setp_le_u64 }, { "setp.ne.s16", "p=22", "", BITS, setp_ne_s16 },
    { "setp.lt.f32", "p=44", "", BITS, setp_lt_f }, { "setp.ne.f32", "p=44", "", BITS, setp_ne_f },
    { "setp.leu.f32", "p=44", "", BITS, setp_leu_f }, { "setp.nan.f32", "p=44", "", BITS, setp_nan_f },
    { "setp.gt.f16", "p=22", "", BITS, setp_gt_h }, { "setp.lt.and.s32", "p=44p", "", BITS, setp_and },
    { "selp.b32", "4=44p", "", BITS, selp32 }, { "selp.b64", "8=88p", "", BITS, selp64 },
};

int main(void)
{
    for (uint32_t i = 0; i < VALUES; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            in[j][i] = value_of(i + j * (i / 6));
        }
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(&rows[i]);
    }
    return check_done();
}
