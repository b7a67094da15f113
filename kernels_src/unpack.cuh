/* unpack.cuh: decodes the lane words of a record to fp16 operands of the tensor cores.
   takes: base.cuh, matrix_args.h.
   gives: exl2k_bits, exl2k_lane_words, exl2k_decode, exl2k_sum_start, exl2k_sum_centre, exl2k_start_factor,
          exl2k_sum_unit, exl2k_scales_of_lane,
          exl2k_scale_pair, exl2k_affine_scales, exl2k_affine_zeros, exl2k_dense_pair.

   ROWS. Lane l = 4 g + t. Step j = 0..3 of a record is one 16 x 16 operand A (16 columns of the matrix, 16 packed
   rows). With r0 = 32 (j / 2) + 8 t + 4 (j % 2):
       pair 0 = codes of column g,     rows r0, r0 + 1      -> a[0]
       pair 1 = codes of column g + 8, rows r0, r0 + 1      -> a[1]
       pair 2 = codes of column g,     rows r0 + 2, r0 + 3  -> a[2]
       pair 3 = codes of column g + 8, rows r0 + 2, r0 + 3  -> a[3]
   With this order, a lane's inputs for half h of a record are 8 consecutive ones, from 32 h + 8 t on. Example: lane 5
   (g = 1, t = 1), step 3: r0 = 32 + 8 + 4 = 44; a[3] holds rows 46 and 47 of column 9.

   MEMORY. The b words of all lanes: first groups of four words as [quad][lane][4], then two words as [lane][2], then
   one word as [lane].

   FIELDS. `w@p` = bits p.. of the lower half-word of word w (first row of the pair), and of the upper half-word
        (second): 8 bit  step j: w[2j]@0, w[2j]@8, w[2j+1]@0, w[2j+1]@8
        6 bit  half h, A B C = w[3h..]: even step A@0 A@6 B@0 B@6; odd step C@0 C@6 X Y,
               X = A@12 (4 bits), C@12 (2), Y = B@12 (4), C@14 (2)
        5 bit  step 0: w0@0 w0@10 w1@0 w1@10; steps i = 1..3: a0 = w[i+1]@0, a2 = w[i+1]@10, and a1, a3 =
               w0@5 w1@5 | w2@5 w3@5 | w4@5 Z, Z = bits 15 of w0..w4
        4 bit  step j: w[j]@2 @6 @10 @14; the last wraps: bits 14, 15, 0, 1
        3 bit  steps k = 0..2: w[k]@4 @7 @10 @13; step 3: w0@0 w1@0 w2@0 Z, Z = bits 3 of w0..w2
        2 bit  word k: step 2k @4 @6 @10 @12, step 2k + 1 @0 @8 @2 @14
       16 bit  step j: w[4j], w[4j+1], w[4j+2], w[4j+3] (the fp16 values)

   EXACTNESS. Centred codes: fp16 0x6400 is 1024, and one step of its mantissa is 1. Therefore (w & mask) | 0x6400 is
   1024 + 2^p code in one instruction. One more instruction scales by 2^-p and subtracts 1024 / 2^p + 2^(b-1). All
   results are integers in -128..127. Raw codes: w & mask alone is the subnormal number 2^(p-24) code, exactly; 2^(b-1)
   times the sum of the inputs is subtracted beforehand (exl2k_sum_start). Tensor cores align a subnormal product as if
   its leading digits were set, so that a low p and few bits lose precision: sums of random codes have a relative error
   of about 6e-8 * 2^(12-p-b). Fields are therefore shifted to p + b >= 6 (largest measured error 2.4e-6; with centred
   codes 2e-7). */
#ifndef EXL2K_UNPACK_CUH
#define EXL2K_UNPACK_CUH

#include "base.cuh"
#include "matrix_args.h"

/* Bytes from the scale words of a group to those of the next one, for one lane. */
#define EXL2K_GROUP_BYTES (EXL2K_AFFINE ? EXL2K_AFFINE_BYTES : 4)

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

/* Loads the words of lane `lane` of the record at shared address `at`. */
template <u32 W> EXL2K_FN void exl2k_lane_words(u32 at, u32 lane, u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits, quads = bits / 4;
    /* Load groups of four words, then two words, then one word. */
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

EXL2K_FN constexpr u32 exl2k_both_halves(u32 half) { return half | half << 16; }

/* The fp16 bits of 2^e + z, for z < 2^e. */
EXL2K_FN constexpr u32 exl2k_f16_bits(u32 e, u32 z) { return (15 + e) << 10 | z << (10 - e); }

/* 1024 + 2^AT code -> code - 2^(BITS - 1). */
template <u32 BITS, u32 AT> EXL2K_FN u32 exl2k_centre(u32 raised)
{
    constexpr u32 zero = 1u << (BITS - 1);
    if (AT == 0) {
        return exl2k_sub2(raised, exl2k_both_halves(0x6400u + zero));
    }
    return exl2k_fma2(raised, exl2k_both_halves((15 - AT) << 10),
                      exl2k_both_halves(0x8000u | exl2k_f16_bits(10 - AT, zero)));
}

/* A code as an operand: centred, code - 2^(BITS - 1), or raw, 2^(AT - 24) code. */
template <u32 BITS, u32 AT, bool RAW> EXL2K_FN u32 exl2k_code_value(u32 v)
{
    return RAW ? v : exl2k_centre<BITS, AT>(v);
}

/* The bits that are combined with a masked field: 1024 for centred codes, 0 for raw ones. */
template <bool RAW> EXL2K_FN constexpr u32 exl2k_code_base(void) { return RAW ? 0 : 0x64006400u; }

/* Decodes the pair of fields at bit AT of both half-words; AT + BITS <= 10. */
template <u32 BITS, u32 AT, bool RAW> EXL2K_FN u32 exl2k_field(u32 w)
{
    constexpr u32 mask = exl2k_both_halves(((1u << BITS) - 1) << AT);
    return exl2k_code_value<BITS, AT, RAW>(exl2k_and_or(w, mask, exl2k_code_base<RAW>()));
}

/* ---- steps; j is a compile-time constant after unrolling ---- */

template <bool RAW> EXL2K_FN void exl2k_decode2(const u32 *w, u32 j, u32 a[4])
{
    /* Even steps have the fields at bits 4 to 9, directly or after a shift; odd steps the rest. */
    u32 v = w[j / 2], high = v >> 6;
    if (j % 2 == 0) {
        a[0] = exl2k_field<2, 4, RAW>(v);
        a[1] = exl2k_field<2, 6, RAW>(v);
        a[2] = exl2k_field<2, 4, RAW>(high);
        a[3] = exl2k_field<2, 6, RAW>(high);
    } else {
        a[0] = exl2k_field<2, 6, RAW>(v << 6);
        a[1] = exl2k_field<2, 8, RAW>(v);
        a[2] = exl2k_field<2, 6, RAW>(v << 4);
        a[3] = exl2k_field<2, 8, RAW>(high);
    }
}

template <bool RAW> EXL2K_FN void exl2k_decode3(const u32 *w, u32 j, u32 a[4])
{
    /* Steps 0..2 have a word each; step 3 collects the bits below, and its last pair one bit of each word. */
    if (j < 3) {
        u32 high = w[j] >> 6;
        a[0] = exl2k_field<3, 4, RAW>(w[j]);
        a[1] = exl2k_field<3, 7, RAW>(w[j]);
        a[2] = exl2k_field<3, 4, RAW>(high);
        a[3] = exl2k_field<3, 7, RAW>(high);
    } else {
        u32 first = w[0] << 4, last = exl2k_and_or(first, 0x00800080u, exl2k_code_base<RAW>());
        last = exl2k_and_or(w[1] << 5, 0x01000100u, last);
        a[0] = exl2k_field<3, 4, RAW>(first);
        a[1] = exl2k_field<3, 7, RAW>(w[1] << 7);
        a[2] = exl2k_field<3, 4, RAW>(w[2] << 4);
        a[3] = exl2k_code_value<3, 7, RAW>(exl2k_and_or(w[2] << 6, 0x02000200u, last));
    }
}

template <bool RAW> EXL2K_FN void exl2k_decode4(const u32 *w, u32 j, u32 a[4])
{
    u32 swapped = exl2k_permute_bytes(w[j], 0, 0x2301u);
    a[0] = exl2k_field<4, 2, RAW>(w[j]);
    a[1] = exl2k_field<4, 6, RAW>(w[j]);
    a[2] = exl2k_field<4, 2, RAW>(swapped);
    a[3] = exl2k_field<4, 6, RAW>(swapped);
}

template <bool RAW> EXL2K_FN void exl2k_decode5(const u32 *w, u32 j, u32 a[4])
{
    /* Step 0 has words 0 and 1; the last pair of step 3 collects bit 15 of each word. */
    if (j == 0) {
        a[0] = exl2k_field<5, 5, RAW>(w[0] << 5);
        a[1] = exl2k_field<5, 5, RAW>(w[0] >> 5);
        a[2] = exl2k_field<5, 5, RAW>(w[1] << 5);
        a[3] = exl2k_field<5, 5, RAW>(w[1] >> 5);
    } else {
        a[0] = exl2k_field<5, 5, RAW>(w[j + 1] << 5);
        a[1] = exl2k_field<5, 5, RAW>(w[2 * j - 2]);
        a[2] = exl2k_field<5, 5, RAW>(w[j + 1] >> 5);
        if (j < 3) {
            a[3] = exl2k_field<5, 5, RAW>(w[2 * j - 1]);
        } else {
            u32 tops = exl2k_code_base<RAW>();
            for (u32 n = 0; n < 5; n++) {
                tops = exl2k_and_or(w[n] >> (10 - n), exl2k_both_halves(32u << n), tops);
            }
            a[3] = exl2k_code_value<5, 5, RAW>(tops);
        }
    }
}

template <bool RAW> EXL2K_FN void exl2k_decode6(const u32 *w, u32 j, u32 a[4])
{
    /* Even steps have two words of their own; odd steps the third word and the top bits of the first two. */
    u32 first = w[3 * (j / 2)], second = w[3 * (j / 2) + 1], third = w[3 * (j / 2) + 2];
    if (j % 2 == 0) {
        a[0] = exl2k_field<6, 0, RAW>(first);
        a[1] = exl2k_field<6, 0, RAW>(first >> 6);
        a[2] = exl2k_field<6, 0, RAW>(second);
        a[3] = exl2k_field<6, 0, RAW>(second >> 6);
    } else {
        u32 low = exl2k_and_or(first >> 12, 0x000F000Fu, exl2k_code_base<RAW>());
        u32 high = exl2k_and_or(second >> 12, 0x000F000Fu, exl2k_code_base<RAW>());
        a[0] = exl2k_field<6, 0, RAW>(third);
        a[1] = exl2k_field<6, 0, RAW>(third >> 6);
        a[2] = exl2k_code_value<6, 0, RAW>(exl2k_and_or(third >> 8, 0x00300030u, low));
        a[3] = exl2k_code_value<6, 0, RAW>(exl2k_and_or(third >> 10, 0x00300030u, high));
    }
}

template <bool RAW> EXL2K_FN void exl2k_decode8(const u32 *w, u32 j, u32 a[4])
{
    a[0] = exl2k_field<8, 0, RAW>(w[2 * j]);
    a[1] = exl2k_field<8, 0, RAW>(w[2 * j] >> 8);
    a[2] = exl2k_field<8, 0, RAW>(w[2 * j + 1]);
    a[3] = exl2k_field<8, 0, RAW>(w[2 * j + 1] >> 8);
}

EXL2K_FN void exl2k_decode16(const u32 *w, u32 j, u32 a[4])
{
    a[0] = w[4 * j];
    a[1] = w[4 * j + 1];
    a[2] = w[4 * j + 2];
    a[3] = w[4 * j + 3];
}

/* Decodes step j of a record. Values of 16 bits are used unchanged, whatever RAW is. */
template <u32 W, bool RAW> EXL2K_FN void exl2k_decode(const u32 *w, u32 j, u32 a[4])
{
    if constexpr (W == EXL2K_W2) {
        exl2k_decode2<RAW>(w, j, a);
    } else if constexpr (W == EXL2K_W3) {
        exl2k_decode3<RAW>(w, j, a);
    } else if constexpr (W == EXL2K_W4) {
        exl2k_decode4<RAW>(w, j, a);
    } else if constexpr (W == EXL2K_W5) {
        exl2k_decode5<RAW>(w, j, a);
    } else if constexpr (W == EXL2K_W6) {
        exl2k_decode6<RAW>(w, j, a);
    } else if constexpr (W == EXL2K_W8) {
        exl2k_decode8<RAW>(w, j, a);
    } else {
        exl2k_decode16(w, j, a);
    }
}

/* ---- sums of raw codes ---- */

/* The bit position of all raw codes of column g (upper 0) or g + 8 (upper 1). With 2 bits this holds for even steps;
   codes of odd steps lie two bits higher, and their inputs are divided by four (exl2k_quarter_odd), so that one sum
   serves both. */
template <u32 W> EXL2K_FN constexpr int exl2k_code_bit(u32 upper)
{
    switch (W) {
    case EXL2K_W2: return upper ? 6 : 4;
    case EXL2K_W3: return upper ? 7 : 4;
    case EXL2K_W4: return upper ? 6 : 2;
    case EXL2K_W5: return 5;
    default: return 0;
    }
}

/* Divides the inputs of odd steps by four for 2-bit codes. Inputs below 2^-12 become subnormal, with an error of at
   most 2^-23 each. */
EXL2K_FN void exl2k_quarter_odd(uint4 &x, u32 width)
{
    u32 factor = width == EXL2K_W2 ? 0x34003400u : 0x3C003C00u;
    x.z = exl2k_mul2(x.z, factor);
    x.w = exl2k_mul2(x.w, factor);
}

/* 2^n for n from -24 to 24. */
EXL2K_FN constexpr f32 exl2k_power(int n) { return n < 0 ? 1.0f / (f32)(1u << -n) : (f32)(1u << n); }

/* Minus the centre of the raw codes of column g (upper 0) or g + 8 (upper 1): a sum begins with it times the inputs. */
template <u32 W> EXL2K_FN constexpr f32 exl2k_sum_centre(u32 upper)
{
    constexpr int centre = (int)exl2k_width<W>::bits - 1 - 24;
    return W == EXL2K_W16 ? 0.0f : -exl2k_power(W == EXL2K_W16 ? 0 : centre + exl2k_code_bit<W>(upper));
}

/* Initial value of a sum. x: sums of the inputs for the two columns of B whose results the lane has. */
template <u32 W> EXL2K_FN void exl2k_sum_start(f32 d[4], const f32 x[2])
{
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        d[i] = W == EXL2K_W16 ? 0.0f : x[i % 2] * exl2k_sum_centre<W>(i / 2);
    }
}

/* exl2k_sum_centre of a width that is known at run time. */
EXL2K_FN f32 exl2k_start_factor(u32 width, u32 upper)
{
    switch (width) {
    case EXL2K_W2: return exl2k_sum_centre<EXL2K_W2>(upper);
    case EXL2K_W3: return exl2k_sum_centre<EXL2K_W3>(upper);
    case EXL2K_W4: return exl2k_sum_centre<EXL2K_W4>(upper);
    case EXL2K_W5: return exl2k_sum_centre<EXL2K_W5>(upper);
    case EXL2K_W6: return exl2k_sum_centre<EXL2K_W6>(upper);
    case EXL2K_W8: return exl2k_sum_centre<EXL2K_W8>(upper);
    default: return 0.0f;
    }
}

/* Final factor of a sum, which undoes the scaling of raw codes. */
template <u32 W> EXL2K_FN constexpr f32 exl2k_sum_unit(u32 upper)
{
    return W == EXL2K_W16 ? 1.0f : exl2k_power(24 - exl2k_code_bit<W>(upper));
}

/* ---- scales ---- */

/* Offset of the lane's first scale word among those of a chunk. */
EXL2K_FN u32 exl2k_scales_of_lane(u32 groups, u32 lane) { return EXL2K_AFFINE ? lane / 4 * 8 : lane / 16 * groups * 4; }

/* The scales, and the zeros, of the words of columns g and g + 8 as half pairs: column g low, g + 8 high. */
EXL2K_FN u32 exl2k_affine_scales(uint2 words) { return exl2k_permute_bytes(words.x, words.y, 0x5410u); }
EXL2K_FN u32 exl2k_affine_zeros(uint2 words) { return exl2k_permute_bytes(words.x, words.y, 0x7632u); }

/* Decodes a scale word of the lane's columns (chosen by g >> 2) to the half pair fp16(level^2 * maximum): column g
   low, g + 8 high. Both halves of `maximum` hold the group's maximum. The rounding is exactly that of the EXL2
   format (exl2_impl/docs/formats.md, "Scales of a group"). */
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
