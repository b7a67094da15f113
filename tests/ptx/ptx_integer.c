/* ptx_integer.c: instructions that compute with integers and bits.
   takes: ptx_parts.h.
   gives: ptx_integer_forms. */
#include "ptx_parts.h"

/* For 16, 32 and 64 bits. Sums and low products do not depend on the sign; 16 bits are multiplied as 32, as C would
   make them signed. */
#define EACH_WIDTH(name, expression)                                        \
    PTX_BINARY(name##16, uint16_t, uint16_t, uint16_t, expression)          \
    PTX_BINARY(name##32, uint32_t, uint32_t, uint32_t, expression)          \
    PTX_BINARY(name##64, uint64_t, uint64_t, uint64_t, expression)
EACH_WIDTH(add, x + y)
EACH_WIDTH(sub, x - y)
EACH_WIDTH(and, x & y)
EACH_WIDTH(or, x | y)
EACH_WIDTH(xor, x ^ y)
PTX_BINARY(mul_lo16, uint16_t, uint16_t, uint16_t, (uint32_t)x * y)
PTX_BINARY(mul_lo32, uint32_t, uint32_t, uint32_t, x * y)
PTX_BINARY(mul_lo64, uint64_t, uint64_t, uint64_t, x * y)
PTX_TERNARY(mad_lo16, uint16_t, uint16_t, uint16_t, (uint32_t)x * y + z)
PTX_TERNARY(mad_lo32, uint32_t, uint32_t, uint32_t, x * y + z)
PTX_TERNARY(mad_lo64, uint64_t, uint64_t, uint64_t, x * y + z)

static uint64_t high_product(uint64_t x, uint64_t y)
{
    uint64_t a = x >> 32, b = (uint32_t)x, c = y >> 32, d = (uint32_t)y;
    uint64_t middle = a * d + (b * d >> 32), low = b * c + (uint32_t)middle;
    return a * c + (middle >> 32) + (low >> 32);
}

static uint64_t high_product_signed(int64_t x, int64_t y)
{
    uint64_t high = high_product((uint64_t)x, (uint64_t)y);
    return high - (x < 0 ? (uint64_t)y : 0) - (y < 0 ? (uint64_t)x : 0);
}

PTX_BINARY(mul_hi_u16, uint16_t, uint16_t, uint16_t, (uint32_t)x * y >> 16)
PTX_BINARY(mul_hi_s16, uint16_t, int16_t, int16_t, (uint32_t)((int32_t)x * y) >> 16)
PTX_BINARY(mul_hi_u32, uint32_t, uint32_t, uint32_t, (uint64_t)x * y >> 32)
PTX_BINARY(mul_hi_s32, uint32_t, int32_t, int32_t, (uint64_t)((int64_t)x * y) >> 32)
PTX_BINARY(mul_hi_u64, uint64_t, uint64_t, uint64_t, high_product(x, y))
PTX_BINARY(mul_hi_s64, uint64_t, int64_t, int64_t, high_product_signed(x, y))
PTX_BINARY(mul_wide_u16, uint32_t, uint16_t, uint16_t, (uint32_t)x * y)
PTX_BINARY(mul_wide_s16, uint32_t, int16_t, int16_t, (int32_t)x * y)
PTX_BINARY(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)x * y)
PTX_BINARY(mul_wide_s32, uint64_t, int32_t, int32_t, (int64_t)x * y)
PTX_TERNARY(mad_hi_u32, uint32_t, uint32_t, uint32_t, ((uint64_t)x * y >> 32) + z)
PTX_TERNARY(mad_hi_s32, uint32_t, int32_t, uint32_t, (uint32_t)((uint64_t)((int64_t)x * y) >> 32) + z)
PTX_TERNARY(mad_wide_u16, uint32_t, uint16_t, uint32_t, (uint32_t)x * y + z)
PTX_TERNARY(mad_wide_s16, uint32_t, int16_t, uint32_t, (uint32_t)((int32_t)x * y) + z)
PTX_TERNARY(mad_wide_u32, uint64_t, uint32_t, uint64_t, (uint64_t)x * y + z)
PTX_TERNARY(mad_wide_s32, uint64_t, int32_t, uint64_t, (uint64_t)((int64_t)x * y) + z)

/* Division by zero gives ones, and the remainder is then the dividend, as on GPUs. */
#define DIVIDE(name, type, wide)                                                            \
    PTX_BINARY(div_##name, type, type, type, y == 0 ? (type)-1 : (type)((wide)x / (wide)y)) \
    PTX_BINARY(rem_##name, type, type, type, y == 0 ? x : (type)((wide)x % (wide)y))
DIVIDE(u16, uint16_t, uint32_t)
DIVIDE(u32, uint32_t, uint32_t)
DIVIDE(u64, uint64_t, uint64_t)
DIVIDE(s16, int16_t, int32_t)
DIVIDE(s32, int32_t, int64_t)
PTX_BINARY(div_s64, uint64_t, int64_t, int64_t, y == 0 ? -1 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y)
PTX_BINARY(rem_s64, uint64_t, int64_t, int64_t, y == 0 ? x : y == -1 ? 0 : x % y)

#define LEAST(name, type)                                   \
    PTX_BINARY(min_##name, type, type, type, x < y ? x : y) \
    PTX_BINARY(max_##name, type, type, type, x > y ? x : y)
LEAST(u16, uint16_t)
LEAST(u32, uint32_t)
LEAST(u64, uint64_t)
LEAST(s16, int16_t)
LEAST(s32, int32_t)
LEAST(s64, int64_t)

PTX_UNARY(not16, uint16_t, uint16_t, ~x)
PTX_UNARY(not32, uint32_t, uint32_t, ~x)
PTX_UNARY(not64, uint64_t, uint64_t, ~x)
PTX_UNARY(neg16, uint16_t, uint16_t, 0 - x)
PTX_UNARY(neg32, uint32_t, uint32_t, 0 - x)
PTX_UNARY(neg64, uint64_t, uint64_t, 0 - x)
PTX_UNARY(abs16, uint16_t, uint16_t, x >> 15 ? 0 - x : x)
PTX_UNARY(abs32, uint32_t, uint32_t, x >> 31 ? 0 - x : x)
PTX_UNARY(abs64, uint64_t, uint64_t, x >> 63 ? 0 - x : x)

/* Shifts by more than the width give 0, or the sign. */
PTX_BINARY(shl16, uint16_t, uint16_t, uint32_t, y > 15 ? 0 : (uint32_t)x << y)
PTX_BINARY(shl32, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x << y)
PTX_BINARY(shl64, uint64_t, uint64_t, uint32_t, y > 63 ? 0 : x << y)
PTX_BINARY(shr_u16, uint16_t, uint16_t, uint32_t, y > 15 ? 0 : x >> y)
PTX_BINARY(shr_u32, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x >> y)
PTX_BINARY(shr_u64, uint64_t, uint64_t, uint32_t, y > 63 ? 0 : x >> y)
PTX_BINARY(shr_s16, int16_t, int16_t, uint32_t, x >> (y > 15 ? 15 : y))
PTX_BINARY(shr_s32, int32_t, int32_t, uint32_t, x >> (y > 31 ? 31 : y))
PTX_BINARY(shr_s64, int64_t, int64_t, uint32_t, x >> (y > 63 ? 63 : y))

/* Shifts of two registers: y is the upper half. */
PTX_TERNARY(shf_l_wrap, uint32_t, uint32_t, uint32_t, ((uint64_t)y << 32 | x) << (z & 31) >> 32)
PTX_TERNARY(shf_r_wrap, uint32_t, uint32_t, uint32_t, ((uint64_t)y << 32 | x) >> (z & 31))
PTX_TERNARY(shf_l_clamp, uint32_t, uint32_t, uint32_t, z > 31 ? x : ((uint64_t)y << 32 | x) << z >> 32)
PTX_TERNARY(shf_r_clamp, uint32_t, uint32_t, uint32_t, z > 31 ? y : ((uint64_t)y << 32 | x) >> z)

PTX_UNARY(popc32, uint32_t, uint32_t, __builtin_popcount(x))
PTX_UNARY(popc64, uint32_t, uint64_t, __builtin_popcountll(x))
PTX_UNARY(clz32, uint32_t, uint32_t, x ? __builtin_clz(x) : 32)
PTX_UNARY(clz64, uint32_t, uint64_t, x ? __builtin_clzll(x) : 64)
PTX_UNARY(bfind_u32, uint32_t, uint32_t, x ? 31 - __builtin_clz(x) : -1)
PTX_UNARY(bfind_u64, uint32_t, uint64_t, x ? 63 - __builtin_clzll(x) : -1)
PTX_UNARY(bfind_s32, uint32_t, uint32_t, (x ^ (0 - (x >> 31))) ? 31 - __builtin_clz(x ^ (0 - (x >> 31))) : -1)
PTX_UNARY(bfind_shift_u32, uint32_t, uint32_t, x ? __builtin_clz(x) : -1)
PTX_UNARY(bfind_shift_u64, uint32_t, uint64_t, x ? __builtin_clzll(x) : -1)

static uint64_t reversed(uint64_t x)
{
    x = (x >> 1 & 0x5555555555555555u) | (x & 0x5555555555555555u) << 1;
    x = (x >> 2 & 0x3333333333333333u) | (x & 0x3333333333333333u) << 2;
    x = (x >> 4 & 0x0F0F0F0F0F0F0F0Fu) | (x & 0x0F0F0F0F0F0F0F0Fu) << 4;
    x = (x >> 8 & 0x00FF00FF00FF00FFu) | (x & 0x00FF00FF00FF00FFu) << 8;
    x = (x >> 16 & 0x0000FFFF0000FFFFu) | (x & 0x0000FFFF0000FFFFu) << 16;
    return x >> 32 | x << 32;
}

PTX_UNARY(brev32, uint32_t, uint32_t, reversed(x) >> 32)
PTX_UNARY(brev64, uint64_t, uint64_t, reversed(x))

/* Bits [at, at + count) of x; with a sign, its last bit is repeated. */
static uint64_t field(uint64_t x, uint32_t at, uint32_t count, uint32_t width, bool sign)
{
    at &= 255;
    count &= 255;
    uint32_t last = at + count - 1 < width - 1 && count > 0 ? at + count - 1 : width - 1;
    bool ones = sign && count > 0 && (x >> last & 1);
    uint64_t v = at < width ? x >> at : 0;
    uint32_t kept = count > 0 && at < width ? last - at + 1 : 0;
    uint64_t in = kept >= 64 ? ~0ull : (1ull << kept) - 1;
    v &= in;
    return ones ? v | ~in : v;
}

#define FIELD(name, type, width, sign)                                                  \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                     \
    {                                                                                   \
        const type *a = PTX_IN(type, 1);                                                \
        const uint32_t *b = PTX_IN(uint32_t, 2), *c = PTX_IN(uint32_t, 3);              \
        type d[PTX_LANES];                                                              \
        PTX_EACH(l) {                                                                   \
            d[l] = (type)field(a[l], b[l], c[l], width, sign);                          \
        }                                                                               \
        PTX_PUT(0, d);                                                                  \
    }
FIELD(bfe_u32, uint32_t, 32, false)
FIELD(bfe_s32, uint32_t, 32, true)
FIELD(bfe_u64, uint64_t, 64, false)
FIELD(bfe_s64, uint64_t, 64, true)

/* y with bits [at, at + count) replaced by the low bits of x. */
static uint64_t inserted(uint64_t x, uint64_t y, uint32_t at, uint32_t count, uint32_t width)
{
    at &= 255;
    count &= 255;
    uint64_t bits = count >= 64 ? ~0ull : (1ull << count) - 1;
    bits = at < width ? bits << at : 0;
    return (y & ~bits) | (at < width ? (x << at) & bits : 0);
}

#define INSERT(name, type, width)                                                       \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                     \
    {                                                                                   \
        const type *a = PTX_IN(type, 1), *b = PTX_IN(type, 2);                          \
        const uint32_t *c = PTX_IN(uint32_t, 3), *e = PTX_IN(uint32_t, 4);              \
        type d[PTX_LANES];                                                              \
        PTX_EACH(l) {                                                                   \
            d[l] = (type)inserted(a[l], b[l], c[l], e[l], width);                       \
        }                                                                               \
        PTX_PUT(0, d);                                                                  \
    }
INSERT(bfi32, uint32_t, 32)
INSERT(bfi64, uint64_t, 64)

/* Any function of three bits: `table` has its result for each value of x, y, z (x is the highest bit). */
static void lop3(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1), *b = PTX_IN(uint32_t, 2), *c = PTX_IN(uint32_t, 3);
    uint32_t table = *PTX_IN(uint32_t, 4), bit[8], d[PTX_LANES];
    for (uint32_t i = 0; i < 8; i++) {
        bit[i] = table >> i & 1 ? PTX_ALL : 0;
    }
    uint32_t flip[4] = { bit[0] ^ bit[1], bit[2] ^ bit[3], bit[4] ^ bit[5], bit[6] ^ bit[7] };
    PTX_EACH(l) {
        uint32_t x = a[l], y = b[l], z = c[l];
        uint32_t r0 = bit[0] ^ (z & flip[0]), r1 = bit[2] ^ (z & flip[1]); /* x = 0; y = 0, 1 */
        uint32_t r2 = bit[4] ^ (z & flip[2]), r3 = bit[6] ^ (z & flip[3]); /* x = 1 */
        uint32_t low = r0 ^ (y & (r0 ^ r1)), high = r2 ^ (y & (r2 ^ r3));
        d[l] = low ^ (x & (low ^ high));
    }
    PTX_PUT(0, d);
}

/* Each nibble of z chooses one of 8 bytes; its upper bit repeats the byte's sign. */
static void prmt(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1), *b = PTX_IN(uint32_t, 2), *c = PTX_IN(uint32_t, 3);
    uint32_t d[PTX_LANES];
    PTX_EACH(l) {
        uint64_t v = (uint64_t)b[l] << 32 | a[l];
        uint32_t r = 0;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t choice = c[l] >> i * 4 & 15, byte = (uint32_t)(v >> (choice & 7) * 8) & 255;
            byte = choice & 8 ? (byte & 128 ? 255 : 0) : byte;
            r |= byte << i * 8;
        }
        d[l] = r;
    }
    PTX_PUT(0, d);
}

/* z + the sum of four products of bytes. */
#define DOT(name, first, second)                                                                        \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)                                     \
    {                                                                                                   \
        const uint32_t *a = PTX_IN(uint32_t, 1), *b = PTX_IN(uint32_t, 2), *c = PTX_IN(uint32_t, 3);    \
        uint32_t d[PTX_LANES];                                                                          \
        PTX_EACH(l) {                                                                                   \
            d[l] = c[l];                                                                                \
            for (uint32_t i = 0; i < 32; i += 8) {                                                      \
                d[l] += (uint32_t)((first)(a[l] >> i) * (second)(b[l] >> i));                           \
            }                                                                                           \
        }                                                                                               \
        PTX_PUT(0, d);                                                                                  \
    }
DOT(dp4a_uu, uint8_t, uint8_t)
DOT(dp4a_us, uint8_t, int8_t)
DOT(dp4a_su, int8_t, uint8_t)
DOT(dp4a_ss, int8_t, int8_t)

/* ---- predicates: a bit for each lane ---- */

#define PREDICATE(name, expression)                                             \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)             \
    {                                                                           \
        uint32_t x = ptx_predicate(w, s->arg[1]);                               \
        uint32_t y = ptx_predicate(w, s->arg[s->args - 1]);                     \
        (void)y;                                                                \
        ptx_put_predicate(w, s->arg[0], expression, mask);                      \
    }
PREDICATE(and_p, x & y)
PREDICATE(or_p, x | y)
PREDICATE(xor_p, x ^ y)
PREDICATE(not_p, ~x)

const ptx_form ptx_integer_forms[] = {
    { "add.u16", add16, "2=22" }, { "add.s16", add16, "2=22" }, { "add.u32", add32, "4=44" },
    { "add.s32", add32, "4=44" }, { "add.u64", add64, "8=88" }, { "add.s64", add64, "8=88" },
    { "sub.u16", sub16, "2=22" }, { "sub.s16", sub16, "2=22" }, { "sub.u32", sub32, "4=44" },
    { "sub.s32", sub32, "4=44" }, { "sub.u64", sub64, "8=88" }, { "sub.s64", sub64, "8=88" },
    { "mul.lo.u16", mul_lo16, "2=22" }, { "mul.lo.s16", mul_lo16, "2=22" }, { "mul.lo.u32", mul_lo32, "4=44" },
    { "mul.lo.s32", mul_lo32, "4=44" }, { "mul.lo.u64", mul_lo64, "8=88" }, { "mul.lo.s64", mul_lo64, "8=88" },
    { "mul.hi.u16", mul_hi_u16, "2=22" }, { "mul.hi.s16", mul_hi_s16, "2=22" },
    { "mul.hi.u32", mul_hi_u32, "4=44" }, { "mul.hi.s32", mul_hi_s32, "4=44" },
    { "mul.hi.u64", mul_hi_u64, "8=88" }, { "mul.hi.s64", mul_hi_s64, "8=88" },
    { "mul.wide.u16", mul_wide_u16, "4=22" }, { "mul.wide.s16", mul_wide_s16, "4=22" },
    { "mul.wide.u32", mul_wide_u32, "8=44" }, { "mul.wide.s32", mul_wide_s32, "8=44" },
    { "mad.lo.u16", mad_lo16, "2=222" }, { "mad.lo.s16", mad_lo16, "2=222" },
    { "mad.lo.u32", mad_lo32, "4=444" }, { "mad.lo.s32", mad_lo32, "4=444" },
    { "mad.lo.u64", mad_lo64, "8=888" }, { "mad.lo.s64", mad_lo64, "8=888" },
    { "mad.hi.u32", mad_hi_u32, "4=444" }, { "mad.hi.s32", mad_hi_s32, "4=444" },
    { "mad.wide.u16", mad_wide_u16, "4=224" }, { "mad.wide.s16", mad_wide_s16, "4=224" },
    { "mad.wide.u32", mad_wide_u32, "8=448" }, { "mad.wide.s32", mad_wide_s32, "8=448" },
    { "div.u16", div_u16, "2=22" }, { "div.s16", div_s16, "2=22" }, { "div.u32", div_u32, "4=44" },
    { "div.s32", div_s32, "4=44" }, { "div.u64", div_u64, "8=88" }, { "div.s64", div_s64, "8=88" },
    { "rem.u16", rem_u16, "2=22" }, { "rem.s16", rem_s16, "2=22" }, { "rem.u32", rem_u32, "4=44" },
    { "rem.s32", rem_s32, "4=44" }, { "rem.u64", rem_u64, "8=88" }, { "rem.s64", rem_s64, "8=88" },
    { "min.u16", min_u16, "2=22" }, { "min.s16", min_s16, "2=22" }, { "min.u32", min_u32, "4=44" },
    { "min.s32", min_s32, "4=44" }, { "min.u64", min_u64, "8=88" }, { "min.s64", min_s64, "8=88" },
    { "max.u16", max_u16, "2=22" }, { "max.s16", max_s16, "2=22" }, { "max.u32", max_u32, "4=44" },
    { "max.s32", max_s32, "4=44" }, { "max.u64", max_u64, "8=88" }, { "max.s64", max_s64, "8=88" },
    { "neg.s16", neg16, "2=2" }, { "neg.s32", neg32, "4=4" }, { "neg.s64", neg64, "8=8" },
    { "abs.s16", abs16, "2=2" }, { "abs.s32", abs32, "4=4" }, { "abs.s64", abs64, "8=8" },
    { "and.b16", and16, "2=22" }, { "and.b32", and32, "4=44" }, { "and.b64", and64, "8=88" },
    { "or.b16", or16, "2=22" }, { "or.b32", or32, "4=44" }, { "or.b64", or64, "8=88" },
    { "xor.b16", xor16, "2=22" }, { "xor.b32", xor32, "4=44" }, { "xor.b64", xor64, "8=88" },
    { "not.b16", not16, "2=2" }, { "not.b32", not32, "4=4" }, { "not.b64", not64, "8=8" },
    { "and.pred", and_p, "p=pp" }, { "or.pred", or_p, "p=pp" }, { "xor.pred", xor_p, "p=pp" },
    { "not.pred", not_p, "p=p" },
    { "shl.b16", shl16, "2=24" }, { "shl.b32", shl32, "4=44" }, { "shl.b64", shl64, "8=84" },
    { "shr.b16", shr_u16, "2=24" }, { "shr.b32", shr_u32, "4=44" }, { "shr.b64", shr_u64, "8=84" },
    { "shr.u16", shr_u16, "2=24" }, { "shr.u32", shr_u32, "4=44" }, { "shr.u64", shr_u64, "8=84" },
    { "shr.s16", shr_s16, "2=24" }, { "shr.s32", shr_s32, "4=44" }, { "shr.s64", shr_s64, "8=84" },
    { "shf.l.wrap.b32", shf_l_wrap, "4=444" }, { "shf.r.wrap.b32", shf_r_wrap, "4=444" },
    { "shf.l.clamp.b32", shf_l_clamp, "4=444" }, { "shf.r.clamp.b32", shf_r_clamp, "4=444" },
    { "popc.b32", popc32, "4=4" }, { "popc.b64", popc64, "4=8" }, { "clz.b32", clz32, "4=4" },
    { "clz.b64", clz64, "4=8" }, { "bfind.u32", bfind_u32, "4=4" }, { "bfind.u64", bfind_u64, "4=8" },
    { "bfind.s32", bfind_s32, "4=4" }, { "bfind.shiftamt.u32", bfind_shift_u32, "4=4" },
    { "bfind.shiftamt.u64", bfind_shift_u64, "4=8" }, { "brev.b32", brev32, "4=4" }, { "brev.b64", brev64, "8=8" },
    { "bfe.u32", bfe_u32, "4=444" }, { "bfe.s32", bfe_s32, "4=444" }, { "bfe.u64", bfe_u64, "8=844" },
    { "bfe.s64", bfe_s64, "8=844" }, { "bfi.b32", bfi32, "4=4444" }, { "bfi.b64", bfi64, "8=8844" },
    { "lop3.b32", lop3, "4=4444" }, { "prmt.b32", prmt, "4=444" },
    { "dp4a.u32.u32", dp4a_uu, "4=444" }, { "dp4a.u32.s32", dp4a_us, "4=444" },
    { "dp4a.s32.u32", dp4a_su, "4=444" }, { "dp4a.s32.s32", dp4a_ss, "4=444" },
    { NULL, NULL, NULL } };
