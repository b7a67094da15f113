/* dequantize.h: reads a matrix of codes as a dense one in F16, for backends that need all matrices of a block in one
   form.
   takes: the tensor table; a matrix whose tables are read.
   gives: exl2__dequantize_rows. */
#ifndef EXL2__DEQUANTIZE_H
#define EXL2__DEQUANTIZE_H

#include "affine_matrix.h"

/* Reads the codes of columns [first, first + count) to desc->codes [words, EXL2__MATRIX_COLUMNS]. The columns lie
   together in the file. */
EXL2__PRIVATE exl2_result exl2__dequantize_read(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                uint32_t first, uint32_t count)
{
#if EXL2__GPTQ
    if (desc->stored == EXL2__MATRIX_AFFINE) {
        exl2__matrix_desc part = *desc;
        part.out = count;
        part.out_stored = EXL2__MATRIX_COLUMNS;
        part.view = (exl2__matrix_view){ exl2__matrix_view_at(&desc->view, first), count, count, false, 0, 0 };
        return exl2__affine_read_words(c, t, &part, 0, desc->words, desc->codes);
    }
#endif
    for (uint32_t row = 0; row < desc->words; row++) {
        uint64_t at = ((uint64_t)row * desc->out_stored + first) * sizeof(uint32_t);
        EXL2__TRY(exl2__tensors_read(c, t, desc->data, at, desc->codes + (size_t)row * EXL2__MATRIX_COLUMNS,
                                     count * sizeof(uint32_t)));
    }
    return EXL2_OK;
}

/* Scales and zeros of group g in columns [first, first + count). */
EXL2__PRIVATE void exl2__dequantize_group(const exl2__matrix_desc *desc, uint32_t g, uint32_t first, uint32_t count,
                                          float *scale, float *zero)
{
    for (uint32_t j = 0; j < count; j++) {
        uint32_t n = first + j;
        if (desc->stored == EXL2__MATRIX_AFFINE) {
            scale[j] = exl2__f16_to_f32(desc->scales[(size_t)g * desc->out_stored + n]);
            zero[j] = (float)desc->zeros[(size_t)g * desc->out_stored + n];
            continue;
        }
        uint32_t level = (desc->scale_codes[((size_t)g * desc->out_stored + n) / 8] >> n % 8 * 4 & 15u) + 1;
        float whole = (float)(level * level) * exl2__f16_to_f32(desc->scale_max[g]);
        scale[j] = exl2__f16_to_f32(exl2__f32_to_f16(whole)); /* docs/formats.md, "EXL2: scales" */
        zero[j] = (float)(1u << (desc->groups[g].bits - 1));
    }
}

/* Rows [row, row + rows) of the dense matrix [out, in]: fp16((code - zero) * scale). */
EXL2__PRIVATE exl2_result exl2__dequantize_rows(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                uint32_t row, uint32_t rows, uint16_t *out)
{
    float scale[EXL2__MATRIX_COLUMNS], zero[EXL2__MATRIX_COLUMNS];
    for (uint32_t end = row + rows, n; row < end; row += n, out += (size_t)n * desc->in) {
        n = exl2__min32(exl2__min32(end - row, desc->view.run - row % desc->view.run), EXL2__MATRIX_COLUMNS);
        EXL2__TRY(exl2__dequantize_read(c, t, desc, row, n));
        for (uint32_t g = 0; g < desc->group_count; g++) {
            const exl2__group *group = &desc->groups[g];
            uint32_t bits = group->bits, mask = (1u << bits) - 1;
            exl2__dequantize_group(desc, g, row, n, scale, zero);
            for (uint32_t i = 0; i < group->rows; i++) {
                uint32_t bit = i * bits, shift = bit % 32, feature = desc->order[group->row + i];
                const uint32_t *low = desc->codes + (size_t)(group->word + bit / 32) * EXL2__MATRIX_COLUMNS;
                const uint32_t *high = shift + bits > 32 ? low + EXL2__MATRIX_COLUMNS : NULL;
                for (uint32_t j = 0; j < n; j++) {
                    uint32_t code = (low[j] >> shift | (high ? high[j] << (32 - shift) : 0)) & mask;
                    out[(size_t)j * desc->in + feature] = exl2__f32_to_f16(((float)code - zero[j]) * scale[j]);
                }
            }
        }
    }
    return EXL2_OK;
}

#endif
