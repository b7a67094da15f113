/* exl3_decode.h: what the bits of EXL3 mean: rates, the walk over a tile, codebooks, rows of a quantized embedding. It
   is the decoder that all others are compared with (docs/formats.md, "EXL3").
   takes: the 16-bit words of a tile, or of a row of an embedding.
   gives: exl2__exl3_codebook, exl2__exl3_is_tile, exl2__exl3_state, exl2__exl3_value, exl2__exl3_tile_row,
          exl2__exl3_tile_column, exl2__exl3_tile, exl2__exl3_groups, exl2__exl3_table_row; EXL2__EXL3.

   A tile is 16 inputs by 16 outputs, 256 weights on a ring of 16 K words: K bits a weight, 1 to 8, or 1.5, 2.5, 3.5.
   Position t ends behind ring bit e(t) = floor((t + 1) K); its state is the 16 bits before e(t), and a codebook makes
   an f16 of the state. Sizes are counted by `words` = 16 K, which is 24 for 1.5 bits. */
#ifndef EXL2__EXL3_DECODE_H
#define EXL2__EXL3_DECODE_H

#include "../0_base/bytes.h"
#include "../0_base/half.h"

#ifndef EXL2_NO_EXL3
#define EXL2__EXL3 1
#else
#define EXL2__EXL3 0
#endif
#define EXL2__EXL3_ABSENT "this program was built with EXL2_NO_EXL3"

typedef enum exl2__exl3_codebook { EXL2__EXL3_3INST, EXL2__EXL3_MCG, EXL2__EXL3_MUL1 } exl2__exl3_codebook;

#define EXL2__EXL3_MCG_FACTOR 0xCBAC1FEDu
#define EXL2__EXL3_MUL1_FACTOR 0x83DCD12Du
/* MUL1 where one instruction sums the bytes of a product, each times 64 (cpu_exl3_template.h): BASE plus that sum is
   y as a float, and TIMES * y - LESS is the weight * 8192, before it is rounded. */
#define EXL2__EXL3_MUL1_BASE 0x486A0000
#define EXL2__EXL3_MUL1_TIMES (887.0f / 16)
#define EXL2__EXL3_MUL1_LESS 13312000.0f
#define EXL2__EXL3_BLOCK 128u       /* inputs, or outputs, of a Hadamard transform; widths are multiples */
#define EXL2__EXL3_TABLE_BLOCK 256u /* the same of an embedding's row */
#define EXL2__EXL3_SCALE 0.08838834764831845 /* 1 / sqrt(128) */

/* Is it the number of words of a tile of some rate? */
static inline bool exl2__exl3_is_tile(uint64_t words)
{
    return words >= 16 && words <= 128 && (words % 16 == 0 || words == 24 || words == 40 || words == 56);
}

/* Rates of 1.5, 2.5 and 3.5 bits. */
static inline bool exl2__exl3_is_half_rate(uint32_t words)
{
    return words % 16 != 0;
}

#if EXL2__EXL3

/* e(t): the ring bits before the end of position t. */
static inline uint32_t exl2__exl3_end(uint32_t words, uint32_t t)
{
    return (t + 1) * (words / 8) / 2;
}

/* State of position t. The ring's bits are those of 32-bit words, the highest first; so 16-bit word w comes at w ^ 1.
   */
static inline uint32_t exl2__exl3_state(const uint16_t *tile, uint32_t words, uint32_t t)
{
    uint32_t bits = 16 * words, first = (exl2__exl3_end(words, t) + bits - 16) % bits, w = first / 16;
    uint32_t high = exl2__load16(tile + (w ^ 1u)), low = exl2__load16(tile + ((w + 1) % words ^ 1u));
    return (high << 16 | low) >> (16 - first % 16) & 0xFFFFu;
}

/* The f16 of a state. */
EXL2__PRIVATE uint16_t exl2__exl3_value(exl2__exl3_codebook codebook, uint32_t state)
{
    if (codebook == EXL2__EXL3_MUL1) { /* (1024 + n) a + b is exact in f32, so that the half is rounded once */
        uint32_t x = state * EXL2__EXL3_MUL1_FACTOR;
        uint32_t n = (x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24);
        float product = exl2__mul_float((float)(1024 + n), exl2__f16_to_f32(0x1EEE));
        return exl2__f32_to_f16(product + exl2__f16_to_f32(0xC931));
    }
    uint32_t x = codebook == EXL2__EXL3_MCG ? state * EXL2__EXL3_MCG_FACTOR : state * 89226354u + 64248484u;
    x = (x & 0x8FFF8FFFu) ^ 0x3B603B60u;
    return exl2__f32_to_f16(exl2__f16_to_f32((uint16_t)(x & 0xFFFFu)) + exl2__f16_to_f32((uint16_t)(x >> 16)));
}

/* Input and output of position t in its tile. It is the order in which lanes of mma.m16n8k16 hold the operand B. */
static inline uint32_t exl2__exl3_tile_row(uint32_t t)
{
    return 2 * (t / 8 % 4) + t % 2 + 8 * (t / 2 % 2);
}

static inline uint32_t exl2__exl3_tile_column(uint32_t t)
{
    return t / 32 + 8 * (t / 4 % 2);
}

/* out [16 inputs, 16 outputs] f16: the weights of a tile in the rotated basis. Outputs are `stride` apart by input. */
static inline void exl2__exl3_tile(exl2__exl3_codebook codebook, uint32_t words, const uint16_t *tile, uint16_t *out,
                                   size_t stride)
{
    for (uint32_t t = 0; t < 256; t++) {
        out[exl2__exl3_tile_row(t) * stride + exl2__exl3_tile_column(t)] =
            exl2__exl3_value(codebook, exl2__exl3_state(tile, words, t));
    }
}

/* ---- quantized embeddings ---- */

/* Groups of 256 in a row of an embedding. */
static inline uint32_t exl2__exl3_groups(uint32_t hidden)
{
    return (uint32_t)exl2__div_up(hidden, EXL2__EXL3_TABLE_BLOCK);
}

/* Decodes one group of a row: ring: a scale and 16 K words, bits from the low end of each word. Out of a symbol c(i) of
   K bits and those before it, index modulo 256, the state is c(i) + c(i-1) 2^K + ... modulo 2^16. */
EXL2__PRIVATE void exl2__exl3_table_group(const uint16_t *ring, uint32_t rate, const uint16_t *signs, float *out)
{
    float scale = exl2__f16_to_f32(exl2__load16(ring));
    uint32_t state = 0, steps = (15 + rate) / rate;
    for (uint32_t k = 0; k < EXL2__EXL3_TABLE_BLOCK + steps; k++) { /* the first `steps` fill the state */
        uint32_t i = (k + EXL2__EXL3_TABLE_BLOCK - steps) % EXL2__EXL3_TABLE_BLOCK, bit = i * rate, w = bit / 16;
        uint32_t next = w + 1 < 16 * rate ? exl2__load16(ring + 2 + w) : 0;
        uint32_t pair = exl2__load16(ring + 1 + w) | next << 16;
        state = (state << rate | (pair >> bit % 16 & ((1u << rate) - 1))) & 0xFFFFu;
        if (k >= steps) {
            out[i] = exl2__mul_float(exl2__f16_to_f32(exl2__exl3_value(EXL2__EXL3_MUL1, state)), scale);
        }
    }
    for (uint32_t half = 1; half < EXL2__EXL3_TABLE_BLOCK; half *= 2) {
        for (uint32_t i = 0; i < EXL2__EXL3_TABLE_BLOCK; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                float a = out[j], b = out[j + half];
                out[j] = a + b;
                out[j + half] = a - b;
            }
        }
    }
    for (uint32_t i = 0; i < EXL2__EXL3_TABLE_BLOCK; i++) {
        out[i] = exl2__mul_float(out[i] * 0.0625f, exl2__f16_to_f32(signs[i]));
    }
}

/* out [hidden]: a row of groups of 1 + 16 rate words; signs [groups, 256]. */
static inline void exl2__exl3_table_row(const uint16_t *row, uint32_t rate, const uint16_t *signs, uint32_t hidden,
                                        float *out)
{
    float group[EXL2__EXL3_TABLE_BLOCK];
    for (uint32_t i = 0; i < hidden; i += EXL2__EXL3_TABLE_BLOCK, row += 1 + 16 * rate) {
        exl2__exl3_table_group(row, rate, signs + i, group);
        memcpy(out + i, group, exl2__min32(hidden - i, EXL2__EXL3_TABLE_BLOCK) * sizeof *out);
    }
}

#endif
#endif
