/* exl3.cuh: decodes EXL3's trellis tiles in registers, and transforms blocks of 128 values.
   takes: base.cuh, exl3_args.h.
   gives: exl2k_exl3_again, exl2k_exl3_words, exl2k_exl3_fetch, exl2k_exl3_decode; exl2k_exl3_hadamard,
          exl2k_exl3_hadamard_rows,
          exl2k_exl3_place, exl2k_exl3_tile_at, exl2k_exl3_inputs_at, exl2k_exl3_rotated, exl2k_exl3_input; EXL2K_EXL3_RATES.

   A tile has 256 weights on a ring of 256 K bits. Bit b of the ring is bit 31 - b % 32 of the little-endian 32-bit word
   b / 32. Position t ends behind bit e(t); its state is the 16 bits before that, modulo the ring. Lane L decodes the
   positions 8 L .. 8 L + 7, whose states lie in a row of at most 72 bits. Position 8 L + q is input 2 (L % 4) + q % 2 +
   8 (q / 2 % 2) and output L / 4 + 8 (q / 4) of the tile, so a lane's weights are its own four registers of operand A
   of an mma (base.cuh) whose rows are the outputs: a[0] has q 0 and 1, a[1] 4 and 5, a[2] 2 and 3, a[3] 6 and 7. */
#ifndef EXL2K_EXL3_CUH
#define EXL2K_EXL3_CUH

#include "base.cuh"
#include "exl3_args.h"

/* A switch over the rates of a codebook, each of which is 2 K: whole bits, and the half ones that MUL1 has. */
#define EXL2K_EXL3_RATES(rate, book, CASE)   \
    switch (rate) {                          \
        CASE(2)                              \
        CASE(4)                              \
        CASE(6)                              \
        CASE(8)                              \
        CASE(10)                             \
        CASE(12)                             \
        CASE(14)                             \
        CASE(16)                             \
    }                                        \
    if constexpr (book == EXL2K_EXL3_MUL1) { \
        switch (rate) {                      \
            CASE(3)                          \
            CASE(5)                          \
            CASE(7)                          \
        }                                    \
    }

/* v, as a value of its own in each turn of a loop. */
EXL2K_FN u32 exl2k_exl3_again(u32 v)
{
    u32 d;
    asm volatile("mov.u32 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}

/* ---- where bits lie. RATE is 2 K, so that half rates are integers ---- */

/* Bits from the end of position 8 L to that of position 8 L + q. Two positions bring RATE bits, the first one RATE / 2
   of them, rounded down. */
template <u32 RATE> EXL2K_FN constexpr u32 exl2k_exl3_offset(u32 q)
{
    return (q + 1) / 2 * RATE - (q % 2) * (RATE / 2);
}

/* Where the state of position 8 L begins on the ring. */
template <u32 RATE> EXL2K_FN constexpr u32 exl2k_exl3_begin(u32 lane)
{
    return (4 * lane * RATE + RATE / 2 + 128 * RATE - 16) % (128 * RATE);
}

/* 32-bit words that the states of a lane touch: the most of all lanes. */
template <u32 RATE> EXL2K_FN constexpr u32 exl2k_exl3_words(void)
{
    u32 most = 0;
    for (u32 lane = 0; lane < 32; lane++) {
        u32 bits = exl2k_exl3_begin<RATE>(lane) % 32 + exl2k_exl3_offset<RATE>(7) + 16;
        most = bits > most ? bits : most;
    }
    return (most + 31) / 32;
}

/* Whether every lane's first state begins at the same bit of a word. */
template <u32 RATE> EXL2K_FN constexpr bool exl2k_exl3_aligned(void) { return 4 * RATE % 32 == 0; }

/* The words of a lane's states, and the bit of the first word where they begin. */
template <u32 RATE> struct exl2k_exl3_place_of {
    u32 at[exl2k_exl3_words<RATE>()]; /* byte offsets in a tile */
    u32 shift;
};

template <u32 RATE> EXL2K_FN exl2k_exl3_place_of<RATE> exl2k_exl3_places(u32 lane)
{
    exl2k_exl3_place_of<RATE> p;
    u32 begin = exl2k_exl3_begin<RATE>(lane);
#pragma unroll
    for (u32 i = 0; i < exl2k_exl3_words<RATE>(); i++) {
        p.at[i] = (begin / 32 + i) % (4 * RATE) * 4;
    }
    p.shift = begin % 32;
    return p;
}

template <u32 RATE>
EXL2K_FN void exl2k_exl3_fetch(u32 words[exl2k_exl3_words<RATE>()], u64 tile, const exl2k_exl3_place_of<RATE> &p)
{
#pragma unroll
    for (u32 i = 0; i < exl2k_exl3_words<RATE>(); i++) {
        words[i] = exl2k_load_constant(tile + p.at[i]);
    }
}

/* The upper word of (high : low) << by; by < 32. */
EXL2K_FN u32 exl2k_funnel_left(u32 low, u32 high, u32 by)
{
    u32 d;
    asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(by));
    return d;
}

/* The lower word of (high : low) >> by; by < 32. */
EXL2K_FN u32 exl2k_funnel_right(u32 low, u32 high, u32 by)
{
    u32 d;
    asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(by));
    return d;
}

/* Bits [FROM, FROM + 16) of words whose top bit is bit 0. One instruction, where they are whole bytes of a word. */
template <u32 FROM> EXL2K_FN u32 exl2k_exl3_state(const u32 *words)
{
    constexpr u32 word = FROM / 32, bit = FROM % 32;
    if constexpr (bit == 0) {
        return words[word] >> 16;
    } else if constexpr (bit == 8) {
        return exl2k_permute_bytes(words[word], 0, 0x4421);
    } else if constexpr (bit <= 16) {
        return words[word] >> (16 - bit) & 0xFFFFu;
    } else {
        return exl2k_funnel_right(words[word + 1], words[word], 48 - bit) & 0xFFFFu;
    }
}

/* The states of a lane's eight positions. The instructions that shift and mask run at half rate, and there are more of
   them than of any other kind. So three states with 8 bits between one and the next are cut from one shifted word. */
template <u32 RATE> EXL2K_FN void exl2k_exl3_states(u32 s[8], const u32 words[3])
{
    constexpr u32 skip = exl2k_exl3_aligned<RATE>() ? exl2k_exl3_begin<RATE>(0) % 32 : 0;
    s[0] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(0)>(words);
    s[1] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(1)>(words);
    s[2] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(2)>(words);
    s[3] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(3)>(words);
    s[4] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(4)>(words);
    s[5] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(5)>(words);
    s[6] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(6)>(words);
    s[7] = exl2k_exl3_state<skip + exl2k_exl3_offset<RATE>(7)>(words);
    if constexpr (RATE == 8) {
        u32 even = exl2k_funnel_right(words[1], words[0], 12); /* bits 20 to 51 */
        s[0] = even >> 16;
        s[2] = exl2k_permute_bytes(even, 0, 0x4421);
        s[4] = even & 0xFFFFu;
    } else if constexpr (RATE == 4) {
#pragma unroll
        for (u32 q = 1; q < 4; q++) {
            u32 word = words[0] << 2 * q;
            exl2k_opaque(word);
            s[q] = word >> 16;
            s[q + 4] = exl2k_permute_bytes(word, 0, 0x4421);
        }
    }
}

/* ---- codebooks: states to halves ---- */

/* The sums of both halves of a, and of b, as a half pair. An addition reads either half of a register: two of them and
   one instruction that permutes bytes take less of the pipe that is short than one of them and two of these. */
EXL2K_FN u32 exl2k_exl3_sums_of_halves(u32 a, u32 b)
{
    u32 d;
    asm("{\n.reg .f16 a, b, c, d;\nmov.b32 {a, b}, %1;\nmov.b32 {c, d}, %2;\nadd.rn.f16 a, a, b;\n"
        "add.rn.f16 c, c, d;\nmov.b32 %0, {a, c};\n}" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Sum of the four bytes of a, plus c. */
EXL2K_FN u32 exl2k_byte_sum(u32 a, u32 c)
{
    u32 d;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x01010101u), "r"(c));
    return d;
}

/* The two halves whose sum is the value of a state of 3INST or MCG. */
EXL2K_FN u32 exl2k_exl3_terms(u32 product)
{
    u32 d;
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(d) : "r"(product), "r"(0x8FFF8FFFu), "r"(0x3B603B60u));
    return d; /* (product & b) ^ c */
}

/* The values of two states, as a half pair. Each is rounded once, as the format says. */
template <u32 BOOK> EXL2K_FN u32 exl2k_exl3_values(u32 low, u32 high)
{
    if constexpr (BOOK == EXL2K_EXL3_MUL1) {
        /* 0x6400 + n are the bits of the half 1024 + n. */
        u32 a = exl2k_byte_sum(low * 0x83DCD12Du, 0x6400u), b = exl2k_byte_sum(high * 0x83DCD12Du, 0x6400u);
        return exl2k_fma2(exl2k_permute_bytes(a, b, 0x5410), 0x1EEE1EEEu, 0xC931C931u);
    } else {
        constexpr u32 factor = BOOK == EXL2K_EXL3_MCG ? 0xCBAC1FEDu : 89226354u;
        constexpr u32 more = BOOK == EXL2K_EXL3_MCG ? 0u : 64248484u;
        u32 a = exl2k_exl3_terms(low * factor + more), b = exl2k_exl3_terms(high * factor + more);
        return exl2k_exl3_sums_of_halves(a, b);
    }
}

/* Decodes a lane's weights of a tile into operand A. */
template <u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_decode(u32 a[4], const u32 fetched[exl2k_exl3_words<RATE>()], u32 shift)
{
    constexpr u32 count = exl2k_exl3_words<RATE>(), last = exl2k_exl3_offset<RATE>(7) + 16;
    u32 words[3], s[8];
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        if (i >= count) {
            words[i] = 0;
        } else if (exl2k_exl3_aligned<RATE>()) {
            words[i] = fetched[i];
        } else if (32 * i < last) {
            words[i] = exl2k_funnel_left(i + 1 < count ? fetched[i + 1] : 0, fetched[i], shift);
        } else {
            words[i] = 0;
        }
    }
    exl2k_exl3_states<RATE>(s, words);
    a[0] = exl2k_exl3_values<BOOK>(s[0], s[1]);
    a[2] = exl2k_exl3_values<BOOK>(s[2], s[3]);
    a[1] = exl2k_exl3_values<BOOK>(s[4], s[5]);
    a[3] = exl2k_exl3_values<BOOK>(s[6], s[7]);
}

/* ---- transforms: a warp has 128 values, lane L those with the indices 4 L .. 4 L + 3 ---- */

EXL2K_FN void exl2k_exl3_hadamard(f32 v[4], u32 lane)
{
    f32 a = v[0] + v[1], b = v[0] - v[1], c = v[2] + v[3], d = v[2] - v[3];
    v[0] = a + c;
    v[1] = b + d;
    v[2] = a - c;
    v[3] = b - d;
#pragma unroll
    for (u32 step = 1; step < EXL2K_WARP; step *= 2) {
        f32 sign = lane & step ? -1.0f : 1.0f;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            v[i] = fmaf(sign, v[i], __shfl_xor_sync(EXL2K_ALL, v[i], step));
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        v[i] *= 0.08838834764831845f;
    }
}

/* H of 4 R rows, but for its factor. A warp has eight lanes for each row, and R rows for each lane. Lane l of a row has
   the values 32 i + 4 l .. + 3, so 4 of 7 steps are sums of a lane's own values. They come in the order of
   exl2k_exl3_hadamard, and have its bits. */
template <u32 R> EXL2K_FN void exl2k_exl3_hadamard_rows(f32 v[R][4][4], u32 lane)
{
#pragma unroll
    for (u32 j = 0; j < 4 * R; j++) {
        f32 *x = v[j / 4][j % 4], a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
        x[0] = a + c;
        x[1] = b + d;
        x[2] = a - c;
        x[3] = b - d;
    }
#pragma unroll
    for (u32 step = 1; step < 8; step *= 2) {
        f32 sign = lane & step ? -1.0f : 1.0f;
#pragma unroll
        for (u32 j = 0; j < 16 * R; j++) {
            f32 *x = &v[j / 16][j / 4 % 4][j % 4];
            *x = fmaf(sign, *x, __shfl_xor_sync(EXL2K_ALL, *x, step));
        }
    }
#pragma unroll
    for (u32 j = 0; j < 4 * R; j++) {
        f32 *a = &v[j / 4][0][j % 4], *b = &v[j / 4][1][j % 4], *c = &v[j / 4][2][j % 4], *d = &v[j / 4][3][j % 4];
        f32 low = *a + *b, low_odd = *a - *b, high = *c + *d, high_odd = *c - *d;
        *a = low + high;
        *b = low_odd + high_odd;
        *c = low - high;
        *d = low_odd - high_odd;
    }
}

/* Operand B of two tiles, 32 inputs, is 16 bytes of a lane with t = lane % 4: the inputs 2 t, 2 t + 1, 2 t + 8, 2 t +
   9 of the first tile, then those of the second one. Byte offset, among the inputs of a row, of a pair of inputs that
   begins with input `i`. */
EXL2K_FN u32 exl2k_exl3_place(u32 i)
{
    return (i & ~31u) * 2 + i % 8 / 2 * 16 + i % 32 / 16 * 8 + i % 16 / 8 * 4;
}

/* The address of inputs k .. k + 3 of a row in the order TILES; blocks: of a row. */
EXL2K_FN u64 exl2k_exl3_tile_at(u64 tiles, u32 row, u32 k, u32 blocks)
{
    u64 stage = (u64)(row / 128 * blocks * 2 + k / EXL2K_EXL3_STEP) * EXL2K_EXL3_WG_INPUTS;
    return tiles + stage + row % 128 * 128 + (k % EXL2K_EXL3_STEP / 8 ^ row % 8) * 16 + k % 8 * 2;
}

/* Four scales. The asm is volatile, because otherwise the compiler may load before it is known that there are any. */
EXL2K_FN uint2 exl2k_exl3_scales(u64 at)
{
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
    return v;
}

/* Inputs i .. i + 3 of a row; those from `in` on are 0. i and rows are multiples of four halves. */
EXL2K_FN uint2 exl2k_exl3_inputs_at(u64 x, u32 i, u32 in)
{
    if (i + 4 <= in) {
        uint2 v;
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(x + (u64)i * 2) : "memory");
        return v;
    }
    u32 v[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (u32 k = 0; k < 3; k++) { /* the last one is beyond the inputs */
        if (i + k < in) {
            v[k] = exl2k_load_u16(x + (u64)(i + k) * 2);
        }
    }
    return make_uint2(v[0] | v[1] << 16, v[2]);
}

/* Four inputs times their scales, transformed: two half pairs. Inputs that are padding are 0, whatever suh is. */
EXL2K_FN uint2 exl2k_exl3_rotated(uint2 x, uint2 suh, u32 lane)
{
    f32 v[4] = { exl2k_low(x.x) * exl2k_low(suh.x), exl2k_high(x.x) * exl2k_high(suh.x),
                 exl2k_low(x.y) * exl2k_low(suh.y), exl2k_high(x.y) * exl2k_high(suh.y) };
    exl2k_exl3_hadamard(v, lane);
    return make_uint2(exl2k_pack_f16(v[0], v[1]), exl2k_pack_f16(v[2], v[3]));
}

/* Inputs 128 `block` + 4 lane .. + 3 of a row, times suh, transformed: two half pairs. */
EXL2K_FN uint2 exl2k_exl3_input(u64 x, u64 suh, u32 block, u32 in, u32 lane)
{
    u32 i = block * EXL2K_EXL3_BLOCK + 4 * lane;
    uint2 scale = exl2k_exl3_scales(suh + (u64)i * 2);
    return exl2k_exl3_rotated(exl2k_exl3_inputs_at(x, i, in), scale, lane);
}

#endif
