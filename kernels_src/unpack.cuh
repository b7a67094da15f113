/* unpack.cuh: from the lane words of a record to fp16 operands of the tensor cores.
   takes: base.cuh, matrix_args.h.
   gives: exl2k_bits, exl2k_lane_words, exl2k_decode, exl2k_scale_pair, exl2k_dense_pair.
   owns:  nothing.
   next:  shuffle.cu

   ROWS. Lane l = 4 g + t. Step j = 0..3 of a record is one 16 x 16 operand A (16 columns of the matrix, 16 packed
   rows). With r0 = 32 (j / 2) + 8 t + 4 (j % 2):
       pair 0 = codes of column g,     rows r0, r0 + 1      -> a[0]
       pair 1 = codes of column g + 8, rows r0, r0 + 1      -> a[1]
       pair 2 = codes of column g,     rows r0 + 2, r0 + 3  -> a[2]
       pair 3 = codes of column g + 8, rows r0 + 2, r0 + 3  -> a[3]
   so that the inputs of a lane for half a record are the 8 in a row from 32 h + 8 t on. Example: lane 5 (g = 1, t = 1),
   step 3: r0 = 32 + 8 + 4 = 44; a[3] holds rows 46 and 47 of column 9.

   MEMORY. The b words of every lane: words in fours as [quad][lane][4], then two as [lane][2], then one as [lane].

   FIELDS. `w@p` = bits p.. of the lower half-word of word w (first row of the pair), the same of the upper one:
        8 bit  step j: w[2j]@0, w[2j]@8, w[2j+1]@0, w[2j+1]@8
        6 bit  half h, A B C = w[3h..]: even step A@0 A@6 B@0 B@6; odd step C@0 C@6 X Y,
               X = A@12 (4 bits), C@12 (2), Y = B@12 (4), C@14 (2)
        5 bit  step 0: w0@0 w0@10 w1@0 w1@10; steps i = 1..3: a0 = w[i+1]@0, a2 = w[i+1]@10, and a1, a3 =
               w0@5 w1@5 | w2@5 w3@5 | w4@5 Z, Z = bits 15 of w0..w4
        4 bit  step j: w[j]@0 @4 @8 @12
        3 bit  steps k = 0..2: w[k]@0 @3 @9 @12; step 3: w0@6 w1@6 w2@6 Z, Z = bits 15 of w0..w2
        2 bit  word k: step 2k @0 @2 @8 @10, step 2k + 1 @4 @6 @12 @14
       16 bit  step j: w[4j], w[4j+1], w[4j+2], w[4j+3] (halves themselves)

   EXACTNESS. fp16 0x6400 is 1024 with one unit a mantissa step: (w & mask) | 0x6400 is 1024 + 2^p code in one
   instruction; one more subtracts 1024 / 2^p + 2^(b-1) after scaling by 2^-p. All results are whole, -128..127. */
#ifndef EXL2K_UNPACK_CUH
#define EXL2K_UNPACK_CUH

#include "base.cuh"
#include "matrix_args.h"

/* ---- widths ---- */

template <u32 W> struct exl2k_width;
template <> struct exl2k_width<EXL2K_W2> { enum { bits = 2 }; };
template <> struct exl2k_width<EXL2K_W3> { enum { bits = 3 }; };
template <> struct exl2k_width<EXL2K_W4> { enum { bits = 4 }; };
template <> struct exl2k_width<EXL2K_W5> { enum { bits = 5 }; };
template <> struct exl2k_width<EXL2K_W6> { enum { bits = 6 }; };
template <> struct exl2k_width<EXL2K_W8> { enum { bits = 8 }; };
template <> struct exl2k_width<EXL2K_W16> { enum { bits = 16 }; };

/* EXL2K_Wn -> n. */
EXL2K_FN u32 exl2k_bits(u32 width)
{
    return width <= EXL2K_W6 ? width + 2 : width == EXL2K_W8 ? 8 : 16;
}

/* ---- lane words ---- */

/* The words of lane `lane` of the record that begins at shared address `at`. */
template <u32 W> EXL2K_FN void exl2k_lane_words(u32 at, u32 lane, u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits, quads = bits / 4;
    for (u32 q = 0; q + 1 <= quads; q++) {
        uint4 v = exl2k_shared_load4(at + q * 512 + lane * 16);
        w[4 * q] = v.x;
        w[4 * q + 1] = v.y;
        w[4 * q + 2] = v.z;
        w[4 * q + 3] = v.w;
    }
    if (bits & 2) {
        uint2 v = exl2k_shared_load2(at + quads * 512 + lane * 8);
        w[4 * quads] = v.x;
        w[4 * quads + 1] = v.y;
    }
    if (bits & 1) {
        w[bits - 1] = exl2k_shared_load(at + quads * 512 + (bits & 2) * 128 + lane * 4);
    }
}

/* ---- codes ---- */

EXL2K_FN constexpr u32 exl2k_twice(u32 half) { return half | half << 16; }

/* fp16 bits of 2^e + z, z < 2^e. */
EXL2K_FN constexpr u32 exl2k_half_of(u32 e, u32 z) { return (15 + e) << 10 | z << (10 - e); }

/* 1024 + 2^AT code -> code - 2^(BITS - 1). */
template <u32 BITS, u32 AT> EXL2K_FN u32 exl2k_centre(u32 raised)
{
    constexpr u32 zero = 1u << (BITS - 1);
    if (AT == 0) {
        return exl2k_sub2(raised, exl2k_twice(0x6400u + zero));
    }
    return exl2k_fma2(raised, exl2k_twice((15 - AT) << 10), exl2k_twice(0x8000u | exl2k_half_of(10 - AT, zero)));
}

/* The pair of fields at bit AT of both half-words; AT + BITS <= 10. */
template <u32 BITS, u32 AT> EXL2K_FN u32 exl2k_field(u32 w)
{
    constexpr u32 mask = exl2k_twice(((1u << BITS) - 1) << AT);
    return exl2k_centre<BITS, AT>(exl2k_and_or(w, mask, 0x64006400u));
}

/* The pair of codes whose bit n is bit 15 of w[n]. */
template <u32 BITS> EXL2K_FN u32 exl2k_tops(const u32 *w)
{
    u32 raised = 0x64006400u;
    for (u32 n = 0; n < BITS; n++) {
        raised = exl2k_and_or(w[n] >> (15 - n), exl2k_twice(1u << n), raised);
    }
    return exl2k_centre<BITS, 0>(raised);
}

/* ---- steps: j is known when compiling ---- */

EXL2K_FN void exl2k_decode2(const u32 *w, u32 j, u32 a[4])
{
    u32 v = w[j / 2], high = v >> 8;
    a[0] = j % 2 ? exl2k_field<2, 4>(v) : exl2k_field<2, 0>(v);
    a[1] = j % 2 ? exl2k_field<2, 6>(v) : exl2k_field<2, 2>(v);
    a[2] = j % 2 ? exl2k_field<2, 4>(high) : exl2k_field<2, 0>(high);
    a[3] = j % 2 ? exl2k_field<2, 6>(high) : exl2k_field<2, 2>(high);
}

EXL2K_FN void exl2k_decode3(const u32 *w, u32 j, u32 a[4])
{
    if (j < 3) {
        u32 high = w[j] >> 9;
        a[0] = exl2k_field<3, 0>(w[j]);
        a[1] = exl2k_field<3, 3>(w[j]);
        a[2] = exl2k_field<3, 0>(high);
        a[3] = exl2k_field<3, 3>(high);
    } else {
        a[0] = exl2k_field<3, 6>(w[0]);
        a[1] = exl2k_field<3, 6>(w[1]);
        a[2] = exl2k_field<3, 6>(w[2]);
        a[3] = exl2k_tops<3>(w);
    }
}

EXL2K_FN void exl2k_decode4(const u32 *w, u32 j, u32 a[4])
{
    u32 high = w[j] >> 8;
    a[0] = exl2k_field<4, 0>(w[j]);
    a[1] = exl2k_field<4, 4>(w[j]);
    a[2] = exl2k_field<4, 0>(high);
    a[3] = exl2k_field<4, 4>(high);
}

EXL2K_FN void exl2k_decode5(const u32 *w, u32 j, u32 a[4])
{
    if (j == 0) {
        a[0] = exl2k_field<5, 0>(w[0]);
        a[1] = exl2k_field<5, 0>(w[0] >> 10);
        a[2] = exl2k_field<5, 0>(w[1]);
        a[3] = exl2k_field<5, 0>(w[1] >> 10);
    } else {
        a[0] = exl2k_field<5, 0>(w[j + 1]);
        a[1] = exl2k_field<5, 5>(w[2 * j - 2]);
        a[2] = exl2k_field<5, 0>(w[j + 1] >> 10);
        a[3] = j < 3 ? exl2k_field<5, 5>(w[2 * j - 1]) : exl2k_tops<5>(w);
    }
}

EXL2K_FN void exl2k_decode6(const u32 *w, u32 j, u32 a[4])
{
    u32 first = w[3 * (j / 2)], second = w[3 * (j / 2) + 1], third = w[3 * (j / 2) + 2];
    if (j % 2 == 0) {
        a[0] = exl2k_field<6, 0>(first);
        a[1] = exl2k_field<6, 0>(first >> 6);
        a[2] = exl2k_field<6, 0>(second);
        a[3] = exl2k_field<6, 0>(second >> 6);
    } else {
        u32 low = exl2k_and_or(first >> 12, 0x000F000Fu, 0x64006400u);
        u32 high = exl2k_and_or(second >> 12, 0x000F000Fu, 0x64006400u);
        a[0] = exl2k_field<6, 0>(third);
        a[1] = exl2k_field<6, 0>(third >> 6);
        a[2] = exl2k_centre<6, 0>(exl2k_and_or(third >> 8, 0x00300030u, low));
        a[3] = exl2k_centre<6, 0>(exl2k_and_or(third >> 10, 0x00300030u, high));
    }
}

EXL2K_FN void exl2k_decode8(const u32 *w, u32 j, u32 a[4])
{
    a[0] = exl2k_field<8, 0>(w[2 * j]);
    a[1] = exl2k_field<8, 0>(w[2 * j] >> 8);
    a[2] = exl2k_field<8, 0>(w[2 * j + 1]);
    a[3] = exl2k_field<8, 0>(w[2 * j + 1] >> 8);
}

EXL2K_FN void exl2k_decode16(const u32 *w, u32 j, u32 a[4])
{
    a[0] = w[4 * j];
    a[1] = w[4 * j + 1];
    a[2] = w[4 * j + 2];
    a[3] = w[4 * j + 3];
}

template <u32 W> EXL2K_FN void exl2k_decode(const u32 *w, u32 j, u32 a[4])
{
    if constexpr (W == EXL2K_W2) {
        exl2k_decode2(w, j, a);
    } else if constexpr (W == EXL2K_W3) {
        exl2k_decode3(w, j, a);
    } else if constexpr (W == EXL2K_W4) {
        exl2k_decode4(w, j, a);
    } else if constexpr (W == EXL2K_W5) {
        exl2k_decode5(w, j, a);
    } else if constexpr (W == EXL2K_W6) {
        exl2k_decode6(w, j, a);
    } else if constexpr (W == EXL2K_W8) {
        exl2k_decode8(w, j, a);
    } else {
        exl2k_decode16(w, j, a);
    }
}

/* ---- scales ---- */

/* Scale word of the lane's columns (already chosen by g >> 2) -> half pair of fp16(level^2 * maximum), column g low,
   g + 8 high. `maximum` holds the group's twice. Bit for bit exl2-format 4.5. */
EXL2K_FN u32 exl2k_scale_pair(u32 word, u32 g, u32 maximum)
{
    u32 level = exl2k_sub2(exl2k_and_or(word >> (4 * (g & 3)), 0x000F000Fu, 0x64006400u), 0x63FE63FEu);
    return exl2k_mul2(exl2k_mul2(level, level), maximum);
}

/* ---- dense matrices read by column, for embeddings ---- */

/* Inputs `row` and `row` + 1 (row even) of output `column` of a dense part. */
EXL2K_FN u32 exl2k_dense_pair(const exl2k_part &p, u32 column, u32 row)
{
    u32 inside = row % 32, t = inside / 8, step = row / 32 % 2 * 2 + inside / 4 % 2, lane = (column & 7) * 4 + t;
    u32 word = step * 4 + (column >> 3 & 1) + (inside & 2);
    u64 record = p.base + (u64)(column / 16) * p.pitch + (u64)(row / 64) * 2048;
    return exl2k_load_constant(record + word / 4 * 512 + lane * 16 + word % 4 * 4);
}

#endif
