/* pack.h: packs codes and scale levels into the words of an EXL2 file.
   takes: the bit widths of the rows, the codes of a group, the levels of its columns.
   gives: exl2__pack_layout, exl2__pack_codes, exl2__pack_levels, exl2__pack_scale. */
#ifndef EXL2__PACK_H
#define EXL2__PACK_H

#include "../0_base/half.h"
#include "../0_base/result.h"
#include "../1_load/matrix_desc.h"

#define EXL2__PACK_UNIT 32u /* rows of a group and columns of a matrix are multiples of this */

/* `rows` packed rows with `bits` bits per code, cut into groups of `size` rows. */
typedef struct exl2__pack_band {
    uint32_t bits, rows, size;
} exl2__pack_band;

static inline bool exl2__pack_bits_valid(uint32_t bits)
{
    return bits >= 2 && bits <= 8 && bits != 7;
}

/* Lays out the groups of a matrix of `in` rows: the bands follow each other with descending bits, and only the very
   last group may be shorter than its band's size. `groups` is NULL to compute only *group_count and *words (rows of
   q_weight); else it has room for *group_count. `name`: the layer, for messages. */
EXL2__PRIVATE exl2_result exl2__pack_layout(exl2__ctx *c, const char *name, uint32_t in, const exl2__pack_band *bands,
                                            uint32_t band_count, exl2__group *groups, uint32_t *group_count,
                                            uint32_t *words)
{
    uint32_t row = 0, count = 0;
    uint64_t word = 0;
    for (uint32_t i = 0; i < band_count; i++) {
        const exl2__pack_band *band = &bands[i];
        bool last = i + 1 == band_count;
        if (!exl2__pack_bits_valid(band->bits) || (i > 0 && band->bits > bands[i - 1].bits)) {
            return exl2__fail(c, EXL2_ERR_ARG, "%s: %u bits follow %u, expected 8, 6, 5, 4, 3 or 2, descending",
                              name, band->bits, i ? bands[i - 1].bits : 8u);
        }
        if (band->size == 0 || band->size % EXL2__PACK_UNIT != 0 || band->rows > in - row ||
            band->rows % EXL2__PACK_UNIT != 0 || (!last && band->rows % band->size != 0)) {
            return exl2__fail(c, EXL2_ERR_ARG, "%s: %u rows in groups of %u do not fit the remaining %u rows", name,
                              band->rows, band->size, in - row);
        }
        for (uint32_t done = 0; done < band->rows; done += band->size) {
            uint32_t rows = exl2__min32(band->size, band->rows - done);
            if (groups) {
                exl2__group group = { row, rows, (uint32_t)word, band->bits };
                groups[count] = group;
            }
            count++;
            row += rows;
            word += (uint64_t)rows * band->bits / 32;
        }
    }
    if (row != in || in == 0 || in > EXL2__MATRIX_IN_MAX) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: the bands cover %u of %u rows, expected all rows, 32 to 65504", name,
                          row, in);
    }
    *group_count = count;
    *words = (uint32_t)word;
    return EXL2_OK;
}

/* Packs codes [rows, stride] into words [rows * bits / 32, word_stride], of each row the first `columns`. A column is a
   bit stream that begins with its first row in the lowest bits. With 3 bits, the codes 3 2 1 0 ... give
   word 0 = 3 | 2 << 3 | 1 << 6 | 0 << 9 ... */
EXL2__PRIVATE void exl2__pack_codes(const uint8_t *codes, uint32_t rows, uint32_t columns, size_t stride, uint32_t bits,
                                    uint32_t *words, size_t word_stride)
{
    uint32_t word_rows = rows * bits / 32;
    for (uint32_t w = 0; w < word_rows; w++) {
        uint32_t *out = words + w * word_stride;
        memset(out, 0, columns * sizeof *out);
        uint32_t first = w * 32 / bits, last = (w * 32 + 31) / bits; /* rows with bits in this word */
        for (uint32_t row = first; row <= last; row++) {
            const uint8_t *in = codes + row * stride;
            /* negative: the code's low bits are in the previous word */
            int32_t shift = (int32_t)(row * bits) - (int32_t)(w * 32);
            if (shift >= 0) {
                for (uint32_t n = 0; n < columns; n++) {
                    out[n] |= (uint32_t)in[n] << shift;
                }
            } else {
                for (uint32_t n = 0; n < columns; n++) {
                    out[n] |= (uint32_t)in[n] >> -shift;
                }
            }
        }
    }
}

/* Packs levels [columns], 1..16, into q_scale words [columns / 8], which store level - 1 in 4 bits. */
EXL2__PRIVATE void exl2__pack_levels(const uint8_t *levels, uint32_t columns, uint32_t *words)
{
    for (uint32_t n = 0; n < columns; n += 8) {
        uint32_t word = 0;
        for (uint32_t k = 0; k < 8; k++) {
            word |= (uint32_t)(levels[n + k] - 1) << (4 * k);
        }
        words[n / 8] = word;
    }
}

/* The step with which a decoder multiplies the codes of a column: fp16(level^2 * fp16(q_scale_max / 256)). */
static inline float exl2__pack_scale(uint16_t scale_max, uint32_t level)
{
    float unit = exl2__f16_to_f32(exl2__f32_to_f16(exl2__f16_to_f32(scale_max) * (1.0f / 256)));
    return exl2__f16_to_f32(exl2__f32_to_f16((float)(level * level) * unit));
}

#endif
