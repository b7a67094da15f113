/* cpu_exl3_template.h: products with matrices of EXL3 with SIMD, written once and included once per instruction set.
   takes: the macros EXL2__V_* of cpu_simd_template.h, before it, and those below.
   gives: the functions exl3_gather and exl3_product of one instruction set, named by the macros of the includer.

   A vector has the positions 8 L + q of a tile, for neighbouring L and one q: so a lane is an L, and each of the two
   vectors of sums of a group of lanes has chains of SUMS in cpu_exl3.h, whose order is kept. Rows of a batch share
   decoded weights: some tiles are decoded to the stack, then multiplied by all rows of a chunk.

   A window is 32 neighbouring ring bits, for each lane its own, with the states of two or four q. In most instruction
   sets, words of the tile are brought to the lanes and shifted, so that the first state lies on top. AVX2 has no such
   move of words from two vectors; there, a shuffle of bytes makes the window, which begins at a whole byte. The shuffle
   moves bytes within 16. So the window's bytes come from one or more sources, whose halves are 16 bytes each: the bits
   of four neighbouring lanes, or, if these are too many, of two or of one of the four. With 4 bits a lane's bits are a
   word, which needs no such thing.

   Half precision is kept: with s = x * 8193, rounded, s - x * 8192 is x, rounded to 11 bits. The second product is
   exact, so one fused operation or two give the same, and no compiler has a product and a sum to contract.

   A weight of MUL1 is x = (887 n - 452608) / 2^17, rounded, n the sum of four bytes. Where products sum the bytes, the
   last of them also multiplies by 887, so the sum is y = 2^17 + 887 n / 16, and w = y - 159360 is x * 8192, all exact.
   Then w * 8193 / 8192, rounded, is one fused operation with y, as 159360 * 8193 / 8192 has 24 bits. Less w, it is the
   weight. So five of eight operations are products, in place of seven: x86-64 begins two products in a cycle. Where one
   instruction sums the bytes, each times 64, the sum is y = 239616 + n, and w = 887 / 16 y - 13312000 is a fused
   operation. Of all bases that the upper half of y's bits allows, only this one has so few bits that the other fused
   operation is exact but for its rounding: 13312000 is 1625 * 2^13, and 1625 * 8193 has 24 bits.

   EXL2__V_SHRI(v, n) EXL2__V_SRAI(v, n) shifts by a constant, logical and arithmetic
   EXL2__V_FUNNEL(a, b, l, r)            a << l | b >> r for each lane, l + r = 32
   EXL2__V_JOIN(a, b, n)                 a << (32 - n) | b >> n, n a constant
   EXL2__V_TAKE(v, n)                    v >> n & 0xFFFF, n a constant
   EXL2__V_TAKE_AT(v, i) EXL2__V_TAKE_INDEX(n)  the same, i made of n before
   EXL2__V_TAKES                         is EXL2__V_TAKE one instruction?
   EXL2__V_INT_ADD(a, b) EXL2__V_INT_SUB(a, b) EXL2__V_INT_MUL(a, b)  the low 32 bits
   EXL2__V_MASK_XOR(v, m, c)             (v & m) ^ c
   EXL2__V_LOW(v)                        the low 16 bits as a signed number, * 2^13
   EXL2__V_BITS_FLOAT(v)                 the same bits as floats
   EXL2__V_SUM_BYTES(v)                  y of a lane's four bytes, or EXL2__V_SUM_BASE + n where the following are not
                                         defined
   EXL2__V_SUM_TIMES, EXL2__V_SUM_LESS   w is that many times y, less that
   EXL2__V_OPAQUE(v)                     EXL2__OPAQUE: -ffast-math would change the order of sums
   EXL2__V_SUB(a, b) EXL2__V_MUL(a, b)   of floats
   EXL2__V_PICK(a, b, i)                 words i of a and b, one after the other; of a alone, if EXL2__V_NEAR
   EXL2__V_PICK_NEAR(a, i)               words i of a
   EXL2__V_PICK_INDEX(i)                 i as EXL2__V_PICK needs it
   EXL2__V_NEAR                          does one vector hold the words of a window up to 3.5 bits?
   EXL2__V_BY_BYTES                      1: windows are made of bytes, in eight lanes, by these; else by those above
   EXL2__V_HALVES(a, b)                  16 bytes at a, then 16 at b
   EXL2__V_SHUFFLE(v, i)                 bytes i of v, in each half by itself; 0 for i of 128 and more
   EXL2__V_OR(a, b)                      a | b
   EXL2__V_FIRST(v, u)                   v with the word u in lane 0
   EXL2__V_FOURS(p)                      four floats at p, again and again
   EXL2__V_SWAP1(v), 2, 4, 8             lane i becomes lane i ^ 1, ...; those below EXL2__V_LANES
   EXL2__V_FOLD(to, v)                   (v0 + v1) + (v2 + v3) of each four lanes
   EXL2__V_UNROLL                        EXL2__UNROLL, or nothing where code grows too much
   EXL2__V_EXL3_ROWS(X), EXL2__V_EXL3_ROWS_MOST   X(n) for the numbers of rows that are multiplied together; 1 to the
                                         most, not all of them */

#if EXL2__EXL3

#define EXL2__V_INLINE EXL2__FORCE_INLINE EXL2__V_TARGET
#define EXL2__V_GROUPS (32 / EXL2__V_LANES) /* vectors of the 32 L */
#define EXL2__V_PANEL 16u                   /* tiles that are decoded at once, for several rows */
#define EXL2__V_CHUNK 36u                   /* rows that share them, at most */
#define EXL2__V_BLOCKS (EXL2__EXL3_BLOCK / EXL2__V_LANES)

/* How the windows of a rate are found. FOUR: 4 bits. NEAR: two windows, for up to 3.5 bits; by bytes, for up to 3. FAR:
   four windows. WIDE: 7 and 8 bits by bytes, four windows, each from four sources. */
enum { EXL2__V_NAME(exl3_four), EXL2__V_NAME(exl3_near), EXL2__V_NAME(exl3_far), EXL2__V_NAME(exl3_wide) };

static inline uint32_t EXL2__V_NAME(exl3_how)(const exl2__cpu_part *p)
{
    uint32_t words = p->exl3.words, two = EXL2__V_BY_BYTES ? 48 : 56, four = EXL2__V_BY_BYTES ? 96 : 128;
    return words == 64 ? EXL2__V_NAME(exl3_four) : words <= two ? EXL2__V_NAME(exl3_near)
         : words <= four ? EXL2__V_NAME(exl3_far) : EXL2__V_NAME(exl3_wide);
}

/* The number of q that a window has. */
static inline uint32_t EXL2__V_NAME(exl3_each)(uint32_t how) { return how == EXL2__V_NAME(exl3_near) ? 4 : 2; }

typedef struct EXL2__V_NAME(exl3_ring) {
    uint32_t words;             /* 32-bit words of a tile */
    uint32_t factor, add;       /* of 3INST and MCG */
    int32_t at[8];              /* first word of a window, or of a source's half; -1: the last word of the ring, then
                                   the first ones */
#if EXL2__V_BY_BYTES
    EXL2__V_INT pick[4][4];     /* bytes of each window in each source */
#else
    EXL2__V_INT high[4], low[4], left[4], right[4]; /* which words of a window, and by how much they are shifted */
#endif
    EXL2__V_INT shift[8];       /* of each q in its window */
} EXL2__V_NAME(exl3_ring);

#if EXL2__V_BY_BYTES
/* Sources of windows: their halves have the bits of four neighbouring lanes, of two, or of one of these four. */
static inline uint32_t EXL2__V_NAME(exl3_sources)(uint32_t how)
{
    return how == EXL2__V_NAME(exl3_near) ? 1 : how == EXL2__V_NAME(exl3_far) ? 2 : 4;
}

EXL2__V_TARGET static void EXL2__V_NAME(exl3_ring_place)(uint32_t words, uint32_t how, uint32_t group,
                                                         EXL2__V_NAME(exl3_ring) *r)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t each = EXL2__V_NAME(exl3_each)(how), lanes = 4 / EXL2__V_NAME(exl3_sources)(how); /* of half a source */
    uint32_t pick[4][4][8], shift[8][8];
    memset(pick, 0x80, sizeof pick); /* no byte, but 0 */
    for (uint32_t l = 0; l < 8; l++) {
        uint32_t lane = 8 * group + l, source = l % 4 / lanes, step = words / 2; /* bits of a lane */
        uint32_t next = (step * (lane - l % lanes) + exl2__exl3_end(words, 0) + 16) / 32; /* word after the first one */
        r->at[2 * source + l / 4] = (int32_t)next - 1;
        for (uint32_t w = 0; w < 8 / each; w++) {
            uint32_t begin = step * lane + exl2__exl3_end(words, w * each) + 16 - 32 * next;
            uint32_t byte = exl2__min32(begin / 8, 12);
            for (uint32_t i = 0; i < 4; i++) { /* the ring's first byte becomes the highest one */
                ((uint8_t *)&pick[w][source][l])[3 - i] = (uint8_t)((byte + i) ^ 3);
            }
            for (uint32_t q = w * each; q < (w + 1) * each; q++) {
                shift[q][l] = 8 * byte + 32 * next - step * lane - exl2__exl3_end(words, q);
            }
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        r->pick[i / 4][i % 4] = EXL2__V_BITS(pick[i / 4][i % 4]);
    }
    for (uint32_t q = 0; q < 8; q++) {
        r->shift[q] = EXL2__V_BITS(shift[q]);
    }
}
#else
EXL2__V_TARGET static void EXL2__V_NAME(exl3_ring_place)(uint32_t words, uint32_t how, uint32_t group,
                                                         EXL2__V_NAME(exl3_ring) *r)
{
    static const uint32_t lanes[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    EXL2__UNALIGNED_MOVES();
    uint32_t each = EXL2__V_NAME(exl3_each)(how), step = words / 2; /* bits of a lane */
    for (uint32_t w = 0; w < 8 / each; w++) {
        uint32_t end = exl2__exl3_end(words, w * each);
        uint32_t first = end + 16 + step * EXL2__V_LANES * group; /* 32 bits more than where the window begins */
        r->at[w] = (int32_t)(first / 32) - 1;
        EXL2__V_INT bits = EXL2__V_INT_MUL(EXL2__V_BITS(lanes), EXL2__V_SET_BITS(step));
        bits = EXL2__V_INT_ADD(bits, EXL2__V_SET_BITS(first % 32));
        EXL2__V_INT word = EXL2__V_SHRI(bits, 5);
        r->high[w] = EXL2__V_PICK_INDEX(word);
        r->low[w] = EXL2__V_PICK_INDEX(EXL2__V_INT_ADD(word, EXL2__V_SET_BITS(1)));
        r->left[w] = EXL2__V_AND(bits, EXL2__V_SET_BITS(31));
        r->right[w] = EXL2__V_INT_SUB(EXL2__V_SET_BITS(32), r->left[w]);
        for (uint32_t q = w * each; q < (w + 1) * each; q++) {
            r->shift[q] = EXL2__V_TAKE_INDEX(16 + end - exl2__exl3_end(words, q));
        }
    }
}
#endif

EXL2__V_TARGET static void EXL2__V_NAME(exl3_ring_make)(const exl2__cpu_part *p, uint32_t group,
                                                        EXL2__V_NAME(exl3_ring) *r)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t how = EXL2__V_NAME(exl3_how)(p);
    r->words = p->exl3.words / 2;
    r->factor = p->exl3.codebook == EXL2__EXL3_MCG ? EXL2__EXL3_MCG_FACTOR : 89226354u;
    r->add = p->exl3.codebook == EXL2__EXL3_MCG ? 0 : 64248484u;
    r->at[0] = (int32_t)(group * EXL2__V_LANES) - 1;
    if (how != EXL2__V_NAME(exl3_four)) {
        EXL2__V_NAME(exl3_ring_place)(p->exl3.words, how, group, r);
    }
}

/* The weights of states. factor, add: of 3INST and MCG. */
EXL2__V_INLINE EXL2__V EXL2__V_NAME(exl3_value)(bool mul1, EXL2__V_INT factor, EXL2__V_INT add, EXL2__V_INT state)
{
    EXL2__V value;
    if (mul1) {
        EXL2__V sum = EXL2__V_SUM_BYTES(EXL2__V_INT_MUL(state, EXL2__V_SET_BITS(EXL2__EXL3_MUL1_FACTOR)));
#ifdef EXL2__V_SUM_TIMES
        const float times = EXL2__V_SUM_TIMES, less = EXL2__V_SUM_LESS, more = 8193.0f / 8192;
        EXL2__V wide = times == 1 ? EXL2__V_SUB(sum, EXL2__V_SET(less))
                     : EXL2__V_FMA(sum, EXL2__V_SET(times), EXL2__V_SET(-less));
        EXL2__V_OPAQUE(wide);
        return EXL2__V_SUB(EXL2__V_FMA(sum, EXL2__V_SET(times * more), EXL2__V_SET(-less * more)), wide);
#else /* exact, as EXL2__V_SUM_BASE and the factor have few bits */
        const float a = 0.00676727294921875f, b = -10.3828125f; /* halves 1EEE, C931 */
        value = EXL2__V_FMA(sum, EXL2__V_SET(a), EXL2__V_SET(b + (1024.0f - EXL2__V_SUM_BASE) * a));
#endif
    } else { /* the two halves, whose exponents are 12 to 15, as floats */
        EXL2__V_INT mask = EXL2__V_SET_BITS(0x81FFE000u), flip = EXL2__V_SET_BITS(0x3F6C0000u);
        EXL2__V_INT x = EXL2__V_INT_ADD(EXL2__V_INT_MUL(state, factor), add);
        EXL2__V_INT high = EXL2__V_SRAI(x, 3), low = EXL2__V_LOW(x);
        value = EXL2__V_ADD(EXL2__V_BITS_FLOAT(EXL2__V_MASK_XOR(high, mask, flip)),
                            EXL2__V_BITS_FLOAT(EXL2__V_MASK_XOR(low, mask, flip)));
    }
    return EXL2__V_FMA(value, EXL2__V_SET(-8192.0f), EXL2__V_MUL(value, EXL2__V_SET(8193.0f)));
}

/* The states of q = 0..7 in the tile u. */
EXL2__V_INLINE void EXL2__V_NAME(exl3_states)(const EXL2__V_NAME(exl3_ring) *r, const uint32_t *u, uint32_t how,
                                              EXL2__V_INT state[8])
{
    const EXL2__V_INT low16 = EXL2__V_SET_BITS(0xFFFF);
    if (how == EXL2__V_NAME(exl3_four)) {
        const uint32_t *at = u + r->at[0];
        EXL2__V_INT own = EXL2__V_BITS(at + 1), before = EXL2__V_BITS(at);
        before = r->at[0] >= 0 ? before : EXL2__V_FIRST(before, u[31]);
        EXL2__V_INT whole = EXL2__V_TAKES ? own : EXL2__V_SHRI(own, 4); /* two states begin at bytes of it */
        before = EXL2__V_JOIN(before, own, 12);
        state[0] = EXL2__V_SHRI(before, 16);
        state[1] = EXL2__V_TAKE(before, 12);
        state[2] = EXL2__V_TAKE(before, 8);
        state[3] = EXL2__V_SHRI(own, 16);
        state[4] = EXL2__V_TAKES ? EXL2__V_TAKE(own, 12) : EXL2__V_TAKE(whole, 8);
        state[5] = EXL2__V_TAKE(own, 8);
        state[6] = EXL2__V_TAKES ? EXL2__V_TAKE(own, 4) : EXL2__V_AND(whole, low16);
        state[7] = EXL2__V_AND(own, low16);
        return;
    }
    const uint32_t each = EXL2__V_NAME(exl3_each)(how);
#if EXL2__V_BY_BYTES
    const uint32_t sources = EXL2__V_NAME(exl3_sources)(how);
    EXL2__V_INT source[4];
    EXL2__V_UNROLL
    for (uint32_t k = 0; k < sources; k++) {
        source[k] = EXL2__V_HALVES(u + r->at[2 * k], u + r->at[2 * k + 1]);
    }
    source[0] = r->at[0] >= 0 ? source[0] : EXL2__V_FIRST(source[0], u[r->words - 1]);
#endif
    EXL2__V_UNROLL
    for (uint32_t w = 0; w < 8 / each; w++) {
#if EXL2__V_BY_BYTES
        EXL2__V_INT window = EXL2__V_SHUFFLE(source[0], r->pick[w][0]);
        EXL2__V_UNROLL
        for (uint32_t k = 1; k < sources; k++) {
            window = EXL2__V_OR(window, EXL2__V_SHUFFLE(source[k], r->pick[w][k]));
        }
        state[w * each] = EXL2__V_TAKE_AT(window, r->shift[w * each]);
#else
        const uint32_t *at = u + r->at[w];
        EXL2__V_INT a = EXL2__V_BITS(at), high, low;
        if (w < 2) { /* only these begin before the first bit */
            a = r->at[w] >= 0 ? a : EXL2__V_FIRST(a, u[r->words - 1]);
        }
        if (EXL2__V_NEAR && how == EXL2__V_NAME(exl3_near)) {
            high = EXL2__V_PICK_NEAR(a, r->high[w]);
            low = EXL2__V_PICK_NEAR(a, r->low[w]);
        } else {
            EXL2__V_INT b = EXL2__V_BITS(at + EXL2__V_LANES);
            high = EXL2__V_PICK(a, b, r->high[w]);
            low = EXL2__V_PICK(a, b, r->low[w]);
        }
        EXL2__V_INT window = EXL2__V_FUNNEL(high, low, r->left[w], r->right[w]);
        state[w * each] = EXL2__V_SHRI(window, 16);
#endif
        EXL2__V_UNROLL
        for (uint32_t q = w * each + 1; q < (w + 1) * each; q++) {
            state[q] = EXL2__V_TAKE_AT(window, r->shift[q]);
        }
    }
}

/* Sums of one row x [tiles][16] for a column of tiles: z [16]. */
EXL2__V_INLINE void EXL2__V_NAME(exl3_one)(const EXL2__V_NAME(exl3_ring) *ring, const uint32_t *column, uint32_t tiles,
                                           uint32_t how, bool mul1, const float *x, float *z)
{
    const EXL2__V_INT factor = EXL2__V_SET_BITS(ring->factor), add = EXL2__V_SET_BITS(ring->add);
    for (uint32_t g = 0; g < EXL2__V_GROUPS; g++, z += EXL2__V_LANES / 4) {
        const EXL2__V_NAME(exl3_ring) *r = ring + g;
        const uint32_t *u = column;
        EXL2__V sum[2] = { EXL2__V_SET(0), EXL2__V_SET(0) };
        for (uint32_t i = 0; i < tiles; i++, u += r->words) {
            EXL2__V_INT state[8];
            EXL2__V_NAME(exl3_states)(r, u, how, state);
            EXL2__V_UNROLL
            for (uint32_t k = 0; k < 8; k++) { /* two adjacent values have one factor */
                uint32_t q = how == EXL2__V_NAME(exl3_four) ? k / 2 + k % 2 * 4 : k;
                EXL2__V value = EXL2__V_NAME(exl3_value)(mul1, factor, add, state[q]);
                sum[q / 4] = EXL2__V_FMA(EXL2__V_FOURS(x + 16 * (size_t)i + 4 * (q % 4)), value, sum[q / 4]);
            }
        }
        EXL2__V_FOLD(z, sum[0]);
        EXL2__V_FOLD(z + 8, sum[1]);
    }
}

/* Decodes tiles from u on for a group of lanes: out [count][8][lanes]. */
EXL2__V_INLINE void EXL2__V_NAME(exl3_fill)(const EXL2__V_NAME(exl3_ring) *r, const uint32_t *u, uint32_t count,
                                            uint32_t how, bool mul1, float *out)
{
    const EXL2__V_INT factor = EXL2__V_SET_BITS(r->factor), add = EXL2__V_SET_BITS(r->add);
    for (uint32_t i = 0; i < count; i++, u += r->words, out += 8 * EXL2__V_LANES) {
        EXL2__V_INT state[8];
        EXL2__V_NAME(exl3_states)(r, u, how, state);
        EXL2__V_UNROLL
        for (uint32_t q = 0; q < 8; q++) {
            EXL2__V_STORE(out + q * EXL2__V_LANES, EXL2__V_NAME(exl3_value)(mul1, factor, add, state[q]));
        }
    }
}

/* Every way of finding states with every kind of codebook: a function of one row, and one that decodes. */
#define EXL2__V_EXL3(how, mul1, name)                                                                                 \
    EXL2__NOINLINE                                                                                                    \
    EXL2__V_TARGET static void EXL2__V_NAME(exl3_one_##name)(const EXL2__V_NAME(exl3_ring) *ring,                     \
                                                             const uint32_t *column, uint32_t tiles, const float *x,  \
                                                             float *z)                                                \
    {                                                                                                                 \
        EXL2__UNALIGNED_MOVES();                                                                                      \
        EXL2__V_NAME(exl3_one)(ring, column, tiles, how, mul1, x, z);                                                 \
    }                                                                                                                 \
    EXL2__NOINLINE                                                                                                    \
    EXL2__V_TARGET static void EXL2__V_NAME(exl3_fill_##name)(const EXL2__V_NAME(exl3_ring) *r, const uint32_t *u,    \
                                                              uint32_t count, float *out)                             \
    {                                                                                                                 \
        EXL2__UNALIGNED_MOVES();                                                                                      \
        EXL2__V_NAME(exl3_fill)(r, u, count, how, mul1, out);                                                         \
    }

EXL2__V_EXL3(EXL2__V_NAME(exl3_four), true, four_mul1)
EXL2__V_EXL3(EXL2__V_NAME(exl3_near), true, near_mul1)
EXL2__V_EXL3(EXL2__V_NAME(exl3_far), true, far_mul1)
EXL2__V_EXL3(EXL2__V_NAME(exl3_four), false, four_halves)
EXL2__V_EXL3(EXL2__V_NAME(exl3_near), false, near_halves)
EXL2__V_EXL3(EXL2__V_NAME(exl3_far), false, far_halves)
#if EXL2__V_BY_BYTES
EXL2__V_EXL3(EXL2__V_NAME(exl3_wide), true, wide_mul1)
EXL2__V_EXL3(EXL2__V_NAME(exl3_wide), false, wide_halves)
#endif

typedef struct EXL2__V_NAME(exl3_kernels) {
    void (*one)(const EXL2__V_NAME(exl3_ring) *ring, const uint32_t *column, uint32_t tiles, const float *x, float *z);
    void (*fill)(const EXL2__V_NAME(exl3_ring) *r, const uint32_t *u, uint32_t count, float *out);
} EXL2__V_NAME(exl3_kernels);

EXL2__V_TARGET static EXL2__V_NAME(exl3_kernels) EXL2__V_NAME(exl3_choose)(const exl2__cpu_part *p)
{
#define EXL2__V_KERNELS(name) { EXL2__V_NAME(exl3_one_##name), EXL2__V_NAME(exl3_fill_##name) }
    static const EXL2__V_NAME(exl3_kernels) kernels[4][2] = {
        { EXL2__V_KERNELS(four_halves), EXL2__V_KERNELS(four_mul1) },
        { EXL2__V_KERNELS(near_halves), EXL2__V_KERNELS(near_mul1) },
        { EXL2__V_KERNELS(far_halves), EXL2__V_KERNELS(far_mul1) },
#if EXL2__V_BY_BYTES
        { EXL2__V_KERNELS(wide_halves), EXL2__V_KERNELS(wide_mul1) },
#endif
    };
#undef EXL2__V_KERNELS
    return kernels[EXL2__V_NAME(exl3_how)(p)][p->exl3.codebook == EXL2__EXL3_MUL1];
}

static inline const uint32_t *EXL2__V_NAME(exl3_column)(const exl2__cpu_part *p, uint32_t column)
{
    return (const uint32_t *)(const void *)p->data + (size_t)column * (p->in / 16) * (p->exl3.words / 2);
}

/* Adds to sums [n][2][lanes] the products of n rows x [count][pitch], 16 of each row, with decoded weights. */
EXL2__V_INLINE void EXL2__V_NAME(exl3_rows)(const float *weights, uint32_t count, const float *x, size_t pitch,
                                            uint32_t n, float *sums)
{
    EXL2__V sum[2 * EXL2__V_EXL3_ROWS_MOST];
    EXL2__V_UNROLL
    for (uint32_t i = 0; i < 2 * n; i++) {
        sum[i] = EXL2__V_LOAD(sums + i * EXL2__V_LANES);
    }
    for (uint32_t i = 0; i < count; i++, weights += 8 * EXL2__V_LANES, x += pitch) {
        EXL2__V_UNROLL
        for (uint32_t q = 0; q < 4; q++) {
            EXL2__V a = EXL2__V_LOAD(weights + q * EXL2__V_LANES), b = EXL2__V_LOAD(weights + (q + 4) * EXL2__V_LANES);
            EXL2__V_UNROLL
            for (uint32_t k = 0; k < n; k++) {
                EXL2__V factor = EXL2__V_FOURS(x + k * 16 + 4 * q);
                sum[2 * k] = EXL2__V_FMA(factor, a, sum[2 * k]);
                sum[2 * k + 1] = EXL2__V_FMA(factor, b, sum[2 * k + 1]);
            }
        }
    }
    EXL2__V_UNROLL
    for (uint32_t i = 0; i < 2 * n; i++) {
        EXL2__V_STORE(sums + i * EXL2__V_LANES, sum[i]);
    }
}

#define EXL2__V_EXL3_FN(n)                                                                                            \
    EXL2__NOINLINE                                                                                                    \
    EXL2__V_TARGET static void EXL2__V_NAME(exl3_rows_##n)(const float *weights, uint32_t count, const float *x,      \
                                                           size_t pitch, float *sums)                                 \
    {                                                                                                                 \
        EXL2__UNALIGNED_MOVES();                                                                                      \
        EXL2__V_NAME(exl3_rows)(weights, count, x, pitch, n, sums);                                                   \
    }

EXL2__V_EXL3_ROWS(EXL2__V_EXL3_FN)

/* The same for any number of rows. */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_multiply)(const float *weights, uint32_t count, const float *x,
                                                       uint32_t n, float *sums)
{
    EXL2__UNALIGNED_MOVES();
    size_t pitch = (size_t)n * 16;
    for (uint32_t left = n, some = 0; left > 0; left -= some, x += some * 16, sums += some * 2 * EXL2__V_LANES) {
        some = 0;
#define EXL2__V_CASE(m)                                                                                               \
        if (some == 0 && left >= m) {                                                                                 \
            some = m;                                                                                                 \
            EXL2__V_NAME(exl3_rows_##m)(weights, count, x, pitch, sums);                                              \
        }
        EXL2__V_EXL3_ROWS(EXL2__V_CASE)
#undef EXL2__V_CASE
    }
}

/* x [128] = H x / sqrt(128). */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_transform)(float *x)
{
    static const float signs[4][16] = { { 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1 },
                                        { 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1 },
                                        { 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1 },
                                        { 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1 } };
    EXL2__UNALIGNED_MOVES();
    EXL2__V v[EXL2__V_BLOCKS];
    EXL2__V_UNROLL
    for (uint32_t j = 0; j < EXL2__V_BLOCKS; j++) { /* a lane's sum with its neighbour: exact products with 1 and -1 */
        v[j] = EXL2__V_LOAD(x + j * EXL2__V_LANES);
        v[j] = EXL2__V_FMA(v[j], EXL2__V_LOAD(signs[0]), EXL2__V_SWAP1(v[j]));
        v[j] = EXL2__V_FMA(v[j], EXL2__V_LOAD(signs[1]), EXL2__V_SWAP2(v[j]));
        if (EXL2__V_LANES > 4) {
            v[j] = EXL2__V_FMA(v[j], EXL2__V_LOAD(signs[2]), EXL2__V_SWAP4(v[j]));
        }
        if (EXL2__V_LANES > 8) {
            v[j] = EXL2__V_FMA(v[j], EXL2__V_LOAD(signs[3]), EXL2__V_SWAP8(v[j]));
        }
    }
    for (uint32_t half = 1; half < EXL2__V_BLOCKS; half *= 2) {
        for (uint32_t i = 0; i < EXL2__V_BLOCKS; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                EXL2__V a = v[j], b = v[j + half];
                v[j] = EXL2__V_ADD(a, b);
                v[j + half] = EXL2__V_SUB(a, b);
            }
        }
    }
    EXL2__V_UNROLL
    for (uint32_t j = 0; j < EXL2__V_BLOCKS; j++) {
        EXL2__V_STORE(x + j * EXL2__V_LANES, EXL2__V_MUL(v[j], EXL2__V_SET((float)EXL2__EXL3_SCALE)));
    }
}

/* As exl2__cpu_exl3_gather. */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_gather)(const exl2__cpu_part *p, const float *x, size_t stride, uint32_t n,
                                                     float *out)
{
    EXL2__UNALIGNED_MOVES();
    for (uint32_t i = 0; i < p->in; i += EXL2__EXL3_BLOCK) {
        uint32_t count = exl2__min32(p->exl3.width > i ? p->exl3.width - i : 0, EXL2__EXL3_BLOCK);
        for (uint32_t r = 0; r < n; r++) {
            float block[EXL2__EXL3_BLOCK], *to = out + ((size_t)i / 16 * n + r) * 16;
            memcpy(block, x + r * stride + i, count * sizeof *block);
            memset(block + count, 0, (EXL2__EXL3_BLOCK - count) * sizeof *block);
            for (uint32_t k = 0; k < EXL2__EXL3_BLOCK; k += EXL2__V_LANES) {
                EXL2__V scaled = EXL2__V_MUL(EXL2__V_LOAD(block + k), EXL2__V_HALF(p->exl3.in_scales + i + k));
                EXL2__V_STORE(block + k, scaled);
            }
            EXL2__V_NAME(exl3_transform)(block);
            for (uint32_t k = 0; k < EXL2__EXL3_BLOCK; k += 8, to += k % 16 ? 8 : 16 * n - 8) {
                for (uint32_t l = 0; l < 4; l++) {
                    to[l] = block[k + 2 * l];
                    to[l + 4] = block[k + 2 * l + 1];
                }
            }
        }
    }
}

/* As exl2__cpu_exl3_finish. */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_finish)(const exl2__cpu_part *p, uint32_t strip, uint32_t count, float *z,
                                                     float *out, float add)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t first = strip * EXL2__CPU_STRIP;
    EXL2__V_NAME(exl3_transform)(z);
    for (uint32_t i = 0; i < count; i += EXL2__V_LANES) {
        float *to = out + first + i;
        EXL2__V y = EXL2__V_FMA(EXL2__V_LOAD(z + i), EXL2__V_HALF(p->exl3.out_scales + first + i),
                                EXL2__V_SET(-0.0f)); /* a product that compilers do not contract with the bias */
        y = p->bias ? EXL2__V_ADD(y, EXL2__V_LOAD(p->bias + first + i)) : y;
        EXL2__V_STORE(to, add != 0 ? EXL2__V_FMA(EXL2__V_SET(add), y, EXL2__V_LOAD(to)) : y);
    }
}

/* Sums of the rows of tiles [t0, t1) of the input, at most EXL2__V_CHUNK rows, for a column of tiles: z [rows][128]. */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_chunk)(const exl2__cpu_part *p, const EXL2__V_NAME(exl3_ring) *ring,
                                                    const exl2__cpu_input *input, uint32_t t0, uint32_t t1,
                                                    uint32_t column, float *z)
{
    EXL2__UNALIGNED_MOVES();
    EXL2__V_NAME(exl3_kernels) kernels = EXL2__V_NAME(exl3_choose)(p);
    float weights[EXL2__V_PANEL * 8 * EXL2__V_LANES], sums[EXL2__V_CHUNK * 2 * EXL2__V_LANES];
    uint32_t first = exl2__cpu_tile_start(input->rows, input->tile_rows, t0), tiles = p->in / 16;
    uint32_t rows = exl2__cpu_tile_start(input->rows, input->tile_rows, t1) - first;
    for (uint32_t g = 0; g < EXL2__V_GROUPS; g++, z += EXL2__V_LANES / 4) {
        memset(sums, 0, rows * 2 * EXL2__V_LANES * sizeof *sums);
        for (uint32_t i = 0, count; i < tiles; i += count) {
            count = exl2__min32(tiles - i, EXL2__V_PANEL);
            kernels.fill(ring + g, EXL2__V_NAME(exl3_column)(p, column) + (size_t)i * ring->words, count, weights);
            for (uint32_t t = t0; t < t1; t++) {
                uint32_t row = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
                uint32_t n = exl2__cpu_tile_start(input->rows, input->tile_rows, t + 1) - row;
                EXL2__V_NAME(exl3_multiply)(weights, count, input->x + (size_t)row * p->in + (size_t)i * n * 16, n,
                                            sums + (row - first) * 2 * EXL2__V_LANES);
            }
        }
        for (uint32_t r = 0; r < rows; r++) {
            EXL2__V_FOLD(z + (size_t)r * EXL2__EXL3_BLOCK, EXL2__V_LOAD(sums + 2 * r * EXL2__V_LANES));
            EXL2__V_FOLD(z + (size_t)r * EXL2__EXL3_BLOCK + 8, EXL2__V_LOAD(sums + (2 * r + 1) * EXL2__V_LANES));
        }
    }
}

/* As exl2__cpu_exl3_product. */
EXL2__V_TARGET static void EXL2__V_NAME(exl3_product)(const exl2__cpu_part *p, const exl2__cpu_input *input,
                                                      uint32_t begin, uint32_t end, float *out, size_t stride,
                                                      float add)
{
    EXL2__UNALIGNED_MOVES();
    EXL2__V_NAME(exl3_ring) ring[EXL2__V_GROUPS];
    for (uint32_t g = 0; g < EXL2__V_GROUPS; g++) {
        EXL2__V_NAME(exl3_ring_make)(p, g, ring + g);
    }
    uint32_t tiles = exl2__cpu_tiles(input->rows, input->tile_rows), most = EXL2__V_CHUNK / input->tile_rows;
    for (uint32_t strip = begin; strip < end; strip += EXL2__CPU_EXL3_STRIPS) {
        uint32_t count = exl2__min32(end - strip, EXL2__CPU_EXL3_STRIPS) * EXL2__CPU_STRIP;
        float z[EXL2__V_CHUNK * EXL2__EXL3_BLOCK];
        for (uint32_t t = 0, next; t < tiles; t = next) {
            next = exl2__min32(t + most, tiles);
            uint32_t first = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
            uint32_t rows = exl2__cpu_tile_start(input->rows, input->tile_rows, next) - first;
            for (uint32_t i = 0; i < EXL2__EXL3_BLOCK / 16; i++) {
                if (rows == 1) {
                    EXL2__V_NAME(exl3_choose)(p).one(ring, EXL2__V_NAME(exl3_column)(p, 2 * strip + i), p->in / 16,
                                                     input->x + (size_t)first * p->in, z + 16 * i);
                } else {
                    EXL2__V_NAME(exl3_chunk)(p, ring, input, t, next, 2 * strip + i, z + 16 * i);
                }
            }
            for (uint32_t r = 0; r < rows; r++) {
                EXL2__V_NAME(exl3_finish)(p, strip, count, z + (size_t)r * EXL2__EXL3_BLOCK,
                                          out + (size_t)(first + r) * stride, add);
            }
        }
    }
}

#undef EXL2__V_INLINE
#undef EXL2__V_GROUPS
#undef EXL2__V_PANEL
#undef EXL2__V_CHUNK
#undef EXL2__V_BLOCKS
#undef EXL2__V_EXL3
#undef EXL2__V_EXL3_FN
#endif
