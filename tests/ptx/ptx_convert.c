/* ptx_convert.c: mov, cvt, setp and selp: values between registers, types and predicates.
   takes: ptx_parts.h.
   gives: ptx_move_decode, ptx_convert_decode, ptx_compare_decode. */
#include "ptx_parts.h"

#include <math.h>

/* ---- mov ---- */

#define MOVE(name, type)                                                \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)     \
    {                                                                   \
        ptx_put(w, s->arg[0], PTX_IN(type, 1), sizeof(type), mask);     \
    }
MOVE(move16, uint16_t)
MOVE(move32, uint32_t)
MOVE(move64, uint64_t)

static void move_predicate(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    ptx_put_predicate(w, s->arg[0], ptx_predicate(w, s->arg[1]), mask);
}

/* {a, b, ...} = d, and d = {a, b, ...}; count: elements. */
#define PARTS(type, bits)                                               \
    static void unpack##bits(ptx_warp *w, const ptx_step *s, uint32_t mask) \
    {                                                                   \
        uint32_t n = s->count;                                          \
        for (uint32_t i = 0; i < n; i++) {                              \
            const type *from = PTX_IN(type, n) + i;                     \
            type d[PTX_LANES];                                          \
            PTX_EACH(l) {                                               \
                d[l] = from[l * n];                                     \
            }                                                           \
            PTX_PUT(i, d);                                              \
        }                                                               \
    }                                                                   \
    static void pack##bits(ptx_warp *w, const ptx_step *s, uint32_t mask) \
    {                                                                   \
        uint32_t n = s->count;                                          \
        type d[PTX_LANES * 4];                                          \
        for (uint32_t i = 0; i < n; i++) {                              \
            const type *from = PTX_IN(type, 1 + i);                     \
            PTX_EACH(l) {                                               \
                d[l * n + i] = from[l];                                 \
            }                                                           \
        }                                                               \
        ptx_put(w, s->arg[0], d, sizeof *d * n, mask);                  \
    }
PARTS(uint16_t, 16)
PARTS(uint32_t, 32)

/* In the order of `specials` in ptx_names.c. */
enum special {
    TID_X, TID_Y, TID_Z, NTID_X, NTID_Y, NTID_Z, CTAID_X, CTAID_Y, CTAID_Z, NCTAID_X, NCTAID_Y, NCTAID_Z, LANEID,
    WARPID, SMID, CLOCK, CLOCK64, GLOBALTIMER, GLOBALTIMER_LO, CLUSTER_CTARANK, CLUSTER_NCTARANK, CLUSTER_CTAID_X,
    CLUSTER_NCTAID_X, CLUSTERID_X, NCLUSTERID_X, LANEMASK_LT, LANEMASK_LE, LANEMASK_EQ, LANEMASK_GT, LANEMASK_GE,
    DYNAMIC_SMEM_SIZE
};

static uint64_t special_of(const ptx_warp *w, enum special which, uint32_t lane)
{
    const ptx_cta *cta = w->cta;
    const ptx_run *run = cta->run;
    const uint32_t *block = run->launch.block, *grid = run->launch.grid;
    uint32_t thread = w->index * PTX_LANES + lane;
    switch (which) {
    case TID_X: return thread % block[0];
    case TID_Y: return thread / block[0] % block[1];
    case TID_Z: return thread / block[0] / block[1];
    case NTID_X: return block[0];
    case NTID_Y: return block[1];
    case NTID_Z: return block[2];
    case CTAID_X: return cta->id[0];
    case CTAID_Y: return cta->id[1];
    case CTAID_Z: return cta->id[2];
    case NCTAID_X: return grid[0];
    case NCTAID_Y: return grid[1];
    case NCTAID_Z: return grid[2];
    case LANEID: return lane;
    case WARPID: return w->index;
    case SMID: return (uint64_t)(cta - run->ctas);
    case CLOCK: return (uint32_t)run->instructions;
    case CLOCK64: return run->instructions;
    case GLOBALTIMER: return ptx_clock(0);
    case GLOBALTIMER_LO: return (uint32_t)ptx_clock(0);
    case CLUSTER_CTARANK:
    case CLUSTER_CTAID_X: return cta->rank;
    case CLUSTER_NCTARANK:
    case CLUSTER_NCTAID_X: return run->cluster;
    case CLUSTERID_X: return cta->id[0] / run->cluster;
    case NCLUSTERID_X: return grid[0] / run->cluster;
    case LANEMASK_LT: return (1u << lane) - 1;
    case LANEMASK_LE: return (2u << lane) - 1;
    case LANEMASK_EQ: return 1u << lane;
    case LANEMASK_GT: return (uint32_t)~((2u << lane) - 1);
    case LANEMASK_GE: return (uint32_t)~((1u << lane) - 1);
    case DYNAMIC_SMEM_SIZE: return run->launch.dynamic_bytes;
    }
    return 0;
}

static void move_special(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    PTX_ACTIVE(l) {
        uint64_t v = special_of(w, (enum special)s->a, l);
        memcpy(PTX_OUT(uint8_t, 0) + l * s->bytes, &v, s->bytes);
    }
}

static void vector_decode(ptx_code *c, uint32_t bytes)
{
    ptx_step *s = c->step;
    bool in = c->operands[0].kind == PTX_IS_VECTOR;
    s->count = (uint8_t)c->operands[in ? 0 : 1].count;
    s->bytes = (uint8_t)(bytes / s->count);
    s->run = s->bytes == 2 ? (in ? unpack16 : pack16) : (in ? unpack32 : pack32);
    if ((s->bytes != 2 && s->bytes != 4) || s->bytes * s->count != bytes) {
        ptx_code_fail(c, "this mov is not supported");
        return;
    }
    ptx_code_outs(c, 0, in ? s->bytes : bytes, in ? s->count : 1);
    ptx_code_ins(c, 1, in ? bytes : s->bytes, in ? 1 : s->count);
}

bool ptx_move_decode(ptx_code *c)
{
    static const char *const types[] = { "pred", "b16", "u16", "s16", "f16", "b32", "u32", "s32", "f32", "b64", "u64",
        "s64", "f64", NULL };
    static const uint8_t widths[] = { 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8 };
    ptx_step *s = c->step;
    if (!ptx_code_is(c, "mov")) {
        return false;
    }
    int type = ptx_code_one(c, types);
    if (type < 0 || c->operand_count != 2) {
        ptx_code_fail(c, "this mov is not supported");
        return true;
    }
    uint32_t width = widths[type];
    if (c->operands[0].kind == PTX_IS_VECTOR || c->operands[1].kind == PTX_IS_VECTOR) {
        vector_decode(c, width);
        return true;
    }
    ptx_code_outs(c, 0, width, 1);
    if (c->operands[1].kind == PTX_IS_SPECIAL) {
        s->a = (uint8_t)c->operands[1].id;
        s->bytes = (uint8_t)width;
        s->run = move_special;
        return true;
    }
    ptx_code_ins(c, 1, width, 1);
    s->run = width == 1 ? move_predicate : width == 2 ? move16 : width == 4 ? move32 : move64;
    return true;
}

/* ---- cvt ----
   a: the source's type, b: the destination's, c: rounding, d: flags; bytes: the destination register's, count: the
   source register's. */

enum type { U8, U16, U32, U64, S8, S16, S32, S64, F16, F32, F64 };
enum rounding { RN, RZ, RM, RP, RNI, RZI, RMI, RPI };
#define SATURATE 1u
#define FLUSH 2u

static const char *const types[] = { "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f32", "f64", NULL };
static const uint8_t type_bytes[] = { 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8 };

static bool is_float(uint32_t type) { return type >= F16; }
static bool is_signed(uint32_t type) { return type >= S8 && type <= S64; }

static int64_t sign_extended(uint64_t v, uint32_t bytes)
{
    uint32_t shift = 64 - bytes * 8;
    return (int64_t)(v << shift) >> shift;
}

/* The number of bits `bits`, whose value a double has: all but integers of 64 bits. */
static double value_of(uint64_t bits, uint32_t type)
{
    double d;
    if (type == F64) {
        memcpy(&d, &bits, 8);
        return d;
    }
    return type == F16 ? (double)ptx_from_half((uint16_t)bits) : (double)ptx_float_of((uint32_t)bits);
}

static double to_integer(double x, uint32_t rounding)
{
    return rounding == RNI ? nearbyint(x) : rounding == RMI ? floor(x) : rounding == RPI ? ceil(x) : trunc(x);
}

/* Out of range: the nearest number of the type. What is no number is 0, or in 64 bits the upper bit. */
static uint64_t float_to_integer(double x, uint32_t from, uint32_t type, uint32_t rounding)
{
    uint32_t bits = type_bytes[type] * 8u;
    if (x != x) {
        return bits == 64 || from == F64 ? 1ull << (bits - 1) : 0;
    }
    double r = to_integer(x, rounding);
    if (is_signed(type)) {
        double limit = ldexp(1.0, (int)bits - 1);
        int64_t most = (int64_t)((1ull << (bits - 1)) - 1);
        return (uint64_t)(r >= limit ? most : r < -limit ? -most - 1 : (int64_t)r);
    }
    return r >= ldexp(1.0, (int)bits) ? ~0ull >> (64 - bits) : r <= 0 ? 0 : (uint64_t)r;
}

/* Rounds to float in a direction. */
static float float_of(double x, uint32_t rounding)
{
    float f = (float)x;
    if (rounding == RN || rounding > RP || f != f || (double)f == x) {
        return f;
    }
    bool up = rounding == RP || (rounding == RZ && x < 0);
    return up ? ((double)f < x ? nextafterf(f, INFINITY) : f) : ((double)f > x ? nextafterf(f, -INFINITY) : f);
}

static uint16_t half_toward_zero(double x)
{
    uint16_t h = ptx_half_of(x);
    return x == x && fabs((double)ptx_from_half(h)) > fabs(x) ? (uint16_t)(h - 1) : h;
}

static uint64_t float_bits(double x, const ptx_step *s)
{
    uint64_t u = 0;
    if (s->d & SATURATE) {
        x = x > 0 ? (x < 1 ? x : 1) : 0;
    }
    if (s->b == F64) {
        memcpy(&u, &x, 8);
        return u;
    }
    if (s->b == F16) {
        return s->c == RZ ? half_toward_zero(x) : ptx_half_of(x);
    }
    float f = float_of(x, s->c);
    return ptx_bits_of(s->d & FLUSH ? ptx_flush(f) : f);
}

static uint64_t integer_to_integer(uint64_t v, const ptx_step *s)
{
    uint32_t bits = type_bytes[s->b] * 8u;
    v = is_signed(s->a) ? (uint64_t)sign_extended(v, type_bytes[s->a]) : v;
    if (!(s->d & SATURATE)) {
        return v;
    }
    bool negative = is_signed(s->a) && (int64_t)v < 0;
    if (!is_signed(s->b)) {
        uint64_t most = ~0ull >> (64 - bits);
        return negative ? 0 : v > most ? most : v;
    }
    int64_t most = (int64_t)(~0ull >> (65 - bits));
    if (negative) {
        return (int64_t)v < -most - 1 ? (uint64_t)(-most - 1) : v;
    }
    return v > (uint64_t)most ? (uint64_t)most : v;
}

static uint64_t integer_to_float(uint64_t v, const ptx_step *s)
{
    int64_t i = sign_extended(v, type_bytes[s->a]);
    if (s->b == F32 && s->c == RN) { /* in one rounding */
        return ptx_bits_of(is_signed(s->a) ? (float)i : (float)v);
    }
    return float_bits(is_signed(s->a) ? (double)i : (double)v, s);
}

static void convert(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint8_t *a = PTX_IN(uint8_t, 1);
    uint8_t *d = PTX_OUT(uint8_t, 0);
    PTX_ACTIVE(l) {
        uint64_t v = 0, r;
        memcpy(&v, a + l * s->count, type_bytes[s->a]);
        if (!is_float(s->a)) {
            r = is_float(s->b) ? integer_to_float(v, s) : integer_to_integer(v, s);
        } else {
            double x = value_of(v, s->a);
            x = s->d & FLUSH && s->a == F32 ? (double)ptx_flush((float)x) : x;
            r = !is_float(s->b) ? float_to_integer(x, s->a, s->b, s->c)
              : float_bits(s->c >= RNI ? to_integer(x, s->c) : x, s);
        }
        /* A result of 8 bits fills a wider register with its sign. */
        r = is_signed(s->b) ? (uint64_t)sign_extended(r, type_bytes[s->b])
          : type_bytes[s->b] < 8 ? r & ((1ull << type_bytes[s->b] * 8) - 1) : r;
        memcpy(d + l * s->bytes, &r, s->bytes);
    }
}

/* The frequent conversions. */
PTX_UNARY(u64_of_u32, uint64_t, uint32_t, x)
PTX_UNARY(s64_of_s32, int64_t, int32_t, x)
PTX_UNARY(u32_of_u64, uint32_t, uint64_t, x)
PTX_UNARY(u16_of_u32, uint16_t, uint32_t, x)
PTX_UNARY(u32_of_u16, uint32_t, uint16_t, x)
PTX_UNARY(s32_of_s16, int32_t, int16_t, x)
PTX_UNARY(f32_of_f16, float, uint16_t, ptx_from_half(x))
PTX_UNARY(f16_of_f32, uint16_t, float, ptx_half_of((double)x))
PTX_UNARY(f32_of_u32, float, uint32_t, x)
PTX_UNARY(f32_of_s32, float, int32_t, x)

static ptx_function *fast_of(const ptx_step *s)
{
    static const struct { uint8_t to, from; ptx_function *run; } rows[] = {
        { U64, U32, u64_of_u32 }, { S64, U32, u64_of_u32 }, { S64, S32, s64_of_s32 }, { U64, S32, s64_of_s32 },
        { U32, U64, u32_of_u64 }, { U32, S64, u32_of_u64 }, { S32, U64, u32_of_u64 }, { S32, S64, u32_of_u64 },
        { U16, U32, u16_of_u32 }, { U16, S32, u16_of_u32 }, { S16, U32, u16_of_u32 }, { S16, S32, u16_of_u32 },
        { U32, U16, u32_of_u16 }, { S32, U16, u32_of_u16 }, { U32, S16, s32_of_s16 }, { S32, S16, s32_of_s16 },
        { F32, F16, f32_of_f16 }, { F16, F32, f16_of_f32 }, { F32, U32, f32_of_u32 }, { F32, S32, f32_of_s32 } };
    bool plain = s->d == 0 && s->c == RN && s->bytes == type_bytes[s->b] && s->count == type_bytes[s->a];
    for (size_t i = 0; plain && i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].to == s->b && rows[i].from == s->a) {
            return rows[i].run;
        }
    }
    return convert;
}

/* Two floats become two halves; the first one is the upper one. */
static void pair_of_floats(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const float *a = PTX_IN(float, 1), *b = PTX_IN(float, 2);
    uint32_t d[PTX_LANES];
    PTX_EACH(l) {
        float x = s->d & SATURATE ? fmaxf(0, a[l]) : a[l], y = s->d & SATURATE ? fmaxf(0, b[l]) : b[l];
        d[l] = (uint32_t)(s->c == RZ ? half_toward_zero(x) : ptx_half_of(x)) << 16
             | (s->c == RZ ? half_toward_zero(y) : ptx_half_of(y));
    }
    PTX_PUT(0, d);
}

/* The mantissa of tf32 has 10 bits; ties away from zero (rna). */
static void tf32_of_f32(ptx_warp *w, const ptx_step *s, uint32_t mask)
{
    const uint32_t *a = PTX_IN(uint32_t, 1);
    uint32_t d[PTX_LANES];
    PTX_EACH(l) {
        bool special = (a[l] & 0x7F800000) == 0x7F800000;
        d[l] = special ? a[l] : (a[l] + 0x1000) & ~0x1FFFu;
    }
    PTX_PUT(0, d);
}

static uint32_t width_of(const ptx_operand *o, uint32_t bytes)
{
    return o->kind == PTX_IS_REGISTER ? o->width : bytes < 2 ? 2 : bytes;
}

/* The types of cvt are its last two words. */
static int type_at(const ptx_code *c, uint32_t word)
{
    for (int i = 0; types[i]; i++) {
        if (word < c->mod_count && strcmp(c->mods[word], types[i]) == 0) {
            return i;
        }
    }
    return -1;
}

bool ptx_convert_decode(ptx_code *c)
{
    static const char *const roundings[] = { "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", NULL };
    ptx_step *s = c->step;
    if (!ptx_code_is(c, "cvt")) {
        return false;
    }
    int rounding = ptx_code_one(c, roundings), to = type_at(c, c->mod_count - 2), from = type_at(c, c->mod_count - 1);
    s->c = (uint8_t)(rounding < 0 ? RN : rounding);
    s->d = (uint8_t)((ptx_code_has(c, "sat") ? SATURATE : 0) | (ptx_code_has(c, "ftz") ? FLUSH : 0));
    if (ptx_code_has(c, "f16x2") && from == F32 && c->operand_count == 3 && (s->c == RN || s->c == RZ)) {
        ptx_code_has(c, "f32");
        s->d = (uint8_t)(ptx_code_has(c, "relu") ? SATURATE : 0);
        s->run = pair_of_floats;
        ptx_code_outs(c, 0, 4, 1);
        ptx_code_ins(c, 1, 4, 1);
        ptx_code_ins(c, 2, 4, 1);
        return true;
    }
    if (ptx_code_has(c, "tf32") && from == F32 && c->operand_count == 2 && ptx_code_has(c, "rna")) {
        ptx_code_has(c, "f32");
        s->run = tf32_of_f32;
        ptx_code_outs(c, 0, 4, 1);
        ptx_code_ins(c, 1, 4, 1);
        return true;
    }
    bool directed = s->c == RM || s->c == RP || (s->c == RZ && to == F64);
    if (to < 0 || from < 0 || c->operand_count != 2 || (directed && to != F32)) {
        ptx_code_fail(c, "this conversion is not supported");
        return true;
    }
    c->used |= 3u << (c->mod_count - 2);
    s->a = (uint8_t)from;
    s->b = (uint8_t)to;
    s->bytes = (uint8_t)width_of(&c->operands[0], type_bytes[to]);
    s->count = (uint8_t)width_of(&c->operands[1], type_bytes[from]);
    if (s->bytes < type_bytes[to] || s->count < type_bytes[from]) {
        ptx_code_fail(c, "a register is too small for this conversion");
        return true;
    }
    ptx_code_outs(c, 0, s->bytes, 1);
    ptx_code_ins(c, 1, s->count, 1);
    s->run = fast_of(s);
    return true;
}

/* ---- setp and selp ----
   a: how the result is combined with a predicate; b: 1: that is negated; count 1: there is a second destination. */

enum combine { ALONE, AND, OR, XOR };

/* Bit l: byte l is not 0. */
static uint32_t bits_of(const uint8_t bytes[PTX_LANES])
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t eight;
        memcpy(&eight, bytes + i * 8, 8);
        bits |= (uint32_t)((eight & 0x0101010101010101u) * 0x0102040810204080u >> 56) << i * 8;
    }
    return bits;
}

static uint32_t combined(uint32_t p, uint32_t q, uint32_t how)
{
    return how == AND ? p & q : how == OR ? p | q : how == XOR ? p ^ q : p;
}

static void put_comparison(ptx_warp *w, const ptx_step *s, uint32_t mask, const uint8_t holds[PTX_LANES])
{
    uint32_t p = bits_of(holds), q = s->a ? ptx_predicate(w, s->arg[s->args - 1]) : 0, n = s->count;
    q = s->b ? ~q : q;
    if (n > 0) {
        ptx_put_predicate(w, s->arg[1], combined(~p, q, s->a), mask);
    }
    ptx_put_predicate(w, s->arg[0], combined(p, q, s->a), mask);
}

#define COMPARE(name, type, as, value, expression)                      \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)     \
    {                                                                   \
        const type *a = PTX_IN(type, 1 + s->count);                     \
        const type *b = PTX_IN(type, 2 + s->count);                     \
        uint8_t holds[PTX_LANES];                                       \
        PTX_EACH(l) {                                                   \
            as x = value(a[l]), y = value(b[l]);                        \
            holds[l] = (uint8_t)((expression) ? 1 : 0);                 \
        }                                                               \
        put_comparison(w, s, mask, holds);                              \
    }
#define SAME(x) (x)
#define SIX(name, type, as, value)                                      \
    COMPARE(eq_##name, type, as, value, x == y)                         \
    COMPARE(ne_##name, type, as, value, x < y || x > y)                 \
    COMPARE(lt_##name, type, as, value, x < y)                          \
    COMPARE(le_##name, type, as, value, x <= y)                         \
    COMPARE(gt_##name, type, as, value, x > y)                          \
    COMPARE(ge_##name, type, as, value, x >= y)
#define FLOATS(name, type, as, value)                                   \
    SIX(name, type, as, value)                                          \
    COMPARE(equ_##name, type, as, value, !(x < y || x > y))             \
    COMPARE(neu_##name, type, as, value, x != y)                        \
    COMPARE(ltu_##name, type, as, value, !(x >= y))                     \
    COMPARE(leu_##name, type, as, value, !(x > y))                      \
    COMPARE(gtu_##name, type, as, value, !(x <= y))                     \
    COMPARE(geu_##name, type, as, value, !(x < y))                      \
    COMPARE(num_##name, type, as, value, x == x && y == y)              \
    COMPARE(nan_##name, type, as, value, x != x || y != y)
SIX(u16, uint16_t, uint16_t, SAME)
SIX(u32, uint32_t, uint32_t, SAME)
SIX(u64, uint64_t, uint64_t, SAME)
SIX(s16, int16_t, int16_t, SAME)
SIX(s32, int32_t, int32_t, SAME)
SIX(s64, int64_t, int64_t, SAME)
FLOATS(f16, uint16_t, float, ptx_from_half)
FLOATS(f32, float, float, SAME)
FLOATS(ftz, float, float, ptx_flush)
FLOATS(f64, double, double, SAME)

static const char *const comparisons[] = { "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu",
    "ltu", "leu", "gtu", "geu", "num", "nan", NULL };
#define ROW_SIX(n) eq_##n, ne_##n, lt_##n, le_##n, gt_##n, ge_##n
#define ROW_UNSIGNED(n) { ROW_SIX(n), lt_##n, le_##n, gt_##n, ge_##n }
#define ROW_SIGNED(n) { ROW_SIX(n) }
#define ROW_FLOAT(n) \
    { ROW_SIX(n), NULL, NULL, NULL, NULL, equ_##n, neu_##n, ltu_##n, leu_##n, gtu_##n, geu_##n, num_##n, nan_##n }

static const struct {
    const char *type;
    uint32_t bytes;
    ptx_function *run[18];
} compared[] = { { "u16", 2, ROW_UNSIGNED(u16) }, { "b16", 2, ROW_UNSIGNED(u16) }, { "u32", 4, ROW_UNSIGNED(u32) },
    { "b32", 4, ROW_UNSIGNED(u32) }, { "u64", 8, ROW_UNSIGNED(u64) }, { "b64", 8, ROW_UNSIGNED(u64) },
    { "s16", 2, ROW_SIGNED(s16) }, { "s32", 4, ROW_SIGNED(s32) }, { "s64", 8, ROW_SIGNED(s64) },
    { "f16", 2, ROW_FLOAT(f16) }, { "f32", 4, ROW_FLOAT(f32) }, { "f64", 8, ROW_FLOAT(f64) },
    { "ftz", 4, ROW_FLOAT(ftz) } }; /* the last one: f32 with .ftz */

static void compare_decode(ptx_code *c)
{
    static const char *const combines[] = { "and", "or", "xor", NULL };
    ptx_step *s = c->step;
    int how = ptx_code_one(c, combines), comparison = ptx_code_one(c, comparisons);
    size_t last = sizeof compared / sizeof *compared - 1, type = last + 1;
    for (size_t i = 0; i < last; i++) {
        type = ptx_code_has(c, compared[i].type) ? i : type;
    }
    type = type <= last && ptx_code_has(c, "ftz") ? last : type;
    s->a = (uint8_t)(how + 1);
    if (comparison < 0 || type > last || c->operand_count != (how < 0 ? 3u : 4u)
        || !compared[type].run[comparison]) {
        ptx_code_fail(c, "this comparison is not supported");
        return;
    }
    s->run = compared[type].run[comparison];
    s->count = c->operands[0].pair >= 0;
    ptx_code_outs(c, 0, 1, 1);
    if (s->count) {
        ptx_code_out(c, &(ptx_operand){ .kind = PTX_IS_REGISTER, .id = c->operands[0].pair, .width = 1 }, 1);
    }
    ptx_code_ins(c, 1, compared[type].bytes, 1);
    ptx_code_ins(c, 2, compared[type].bytes, 1);
    if (how >= 0) {
        s->b = c->operands[3].negated;
        ptx_code_ins(c, 3, 1, 1);
    }
}

#define SELECT(name, type)                                              \
    static void name(ptx_warp *w, const ptx_step *s, uint32_t mask)     \
    {                                                                   \
        const type *a = PTX_IN(type, 1), *b = PTX_IN(type, 2);          \
        uint32_t p = ptx_predicate(w, s->arg[3]);                       \
        type d[PTX_LANES];                                              \
        PTX_EACH(l) {                                                   \
            d[l] = p >> l & 1 ? a[l] : b[l];                            \
        }                                                               \
        PTX_PUT(0, d);                                                  \
    }
SELECT(select16, uint16_t)
SELECT(select32, uint32_t)
SELECT(select64, uint64_t)

static void select_decode(ptx_code *c)
{
    static const char *const names[] = { "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",
        NULL };
    static const uint8_t widths[] = { 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8 };
    int type = ptx_code_one(c, names);
    if (type < 0 || c->operand_count != 4) {
        ptx_code_fail(c, "this selection is not supported");
        return;
    }
    uint32_t width = widths[type];
    ptx_code_outs(c, 0, width, 1);
    ptx_code_ins(c, 1, width, 1);
    ptx_code_ins(c, 2, width, 1);
    ptx_code_ins(c, 3, 1, 1);
    c->step->run = width == 2 ? select16 : width == 4 ? select32 : select64;
}

bool ptx_compare_decode(ptx_code *c)
{
    if (ptx_code_is(c, "setp")) {
        compare_decode(c);
    } else if (ptx_code_is(c, "selp")) {
        select_decode(c);
    } else {
        return false;
    }
    return true;
}
