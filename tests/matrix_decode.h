/* matrix_decode.h: decodes a whole EXL2 matrix to fp16 [in, out_stored], from a checked description. Written from the
   format description (exl2_impl/docs/formats.md), one value at a time; for tests only. */
#ifndef MATRIX_DECODE_H
#define MATRIX_DECODE_H

#include "private/matrix_tables.h"
#include "check.h"

/* words: q_weight [desc->words, out_stored]; out: f16 bits, rows in the order of the input features. */
static void matrix_decode(const exl2__matrix_desc *desc, const uint32_t *words, uint16_t *out)
{
    uint32_t columns = desc->out_stored;
    for (uint32_t feature = 0; feature < desc->in; feature++) {
        uint32_t row = desc->inverse_perm[feature], g = 0;
        while (row >= desc->groups[g].row + desc->groups[g].rows) {
            g++;
        }
        const exl2__group *group = &desc->groups[g];
        uint32_t bit = (row - group->row) * group->bits, word = group->word + bit / 32, shift = bit % 32;
        for (uint32_t n = 0; n < columns; n++) {
            uint64_t pair = words[(size_t)word * columns + n];
            if (shift + group->bits > 32) {
                pair |= (uint64_t)words[(size_t)(word + 1) * columns + n] << 32;
            }
            int code = (int)(pair >> shift & ((1u << group->bits) - 1)) - (1 << (group->bits - 1));
            uint32_t level = (desc->scale_codes[(size_t)g * (columns / 8) + n / 8] >> (4 * (n % 8)) & 15) + 1;
            uint16_t scale = exl2__f32_to_f16((float)(level * level) * exl2__f16_to_f32(desc->scale_max[g]));
            out[(size_t)feature * columns + n] = exl2__f32_to_f16((float)code * exl2__f16_to_f32(scale));
        }
    }
}

/* Finds, reads and decodes one matrix: allocated f16 [in, out_stored], or NULL after a failed check. */
static uint16_t *matrix_load(exl2__ctx *c, const exl2__tensors *t, const char *key, uint32_t in, uint32_t out,
                             exl2__matrix_desc *desc)
{
    exl2__matrix_tables tables;
    exl2_result result = exl2__matrix_find(c, t, key, in, out, desc);
    result = result < 0 ? result : exl2__matrix_tables_open(c, t, 1.0f, desc, &tables);
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("  %s\n", c->error.text);
        return NULL;
    }
    const exl2__tensor *data = exl2__matrix_data(t, key, false);
    uint32_t *words = (uint32_t *)malloc(data->bytes);
    uint16_t *matrix = (uint16_t *)malloc((size_t)desc->in * desc->out_stored * 2);
    CHECK_INT(data->bytes, (uint64_t)desc->words * desc->out_stored * 4);
    CHECK_INT(exl2__tensors_read(c, t, data, 0, words, data->bytes), EXL2_OK);
    matrix_decode(desc, words, matrix);
    free(words);
    exl2__matrix_tables_close(c, &tables);
    return matrix;
}

#endif
