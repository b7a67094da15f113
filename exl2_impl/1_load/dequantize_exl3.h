/* dequantize_exl3.h: reads a matrix or an embedding of EXL3 as a dense one, in F32 and in the model's own basis, for
   tools; and the tiles of a matrix as they are decoded.
   takes: the tensor table; a matrix whose tables are read, as exl2__matrix_dequantize has changed it.
   gives: exl2__dequantize_exl3_rows, exl2__dequantize_exl3_tiles. */
#ifndef EXL2__DEQUANTIZE_EXL3_H
#define EXL2__DEQUANTIZE_EXL3_H

#include "exl3_matrix.h"

#if EXL2__EXL3

/* out [16, 128] f16: inputs 16 row .. of outputs 128 block .., in the rotated basis. */
EXL2__PRIVATE exl2_result exl2__dequantize_exl3_tiles(exl2__ctx *c, const exl2__tensors *t,
                                                      const exl2__matrix_desc *desc, uint32_t row, uint32_t block,
                                                      uint16_t *out)
{
    const exl2__exl3 *e = &desc->exl3;
    uint16_t tiles[EXL2__EXL3_BLOCK / 16 * 128];
    uint32_t count = EXL2__EXL3_BLOCK / 16, bytes = count * e->words * (uint32_t)sizeof *tiles;
    uint64_t at = (uint64_t)row * (desc->out_stored / 16) * e->words * sizeof *tiles + (uint64_t)block * bytes;
    EXL2__TRY(exl2__tensors_read(c, t, desc->data, at, tiles, bytes));
    for (uint32_t i = 0; i < count; i++) {
        exl2__exl3_tile(e->codebook, e->words, tiles + (size_t)i * e->words, out + i * 16, EXL2__EXL3_BLOCK);
    }
    return EXL2_OK;
}

/* x [128], whose elements are `step` apart, = H x / sqrt(128). */
EXL2__PRIVATE void exl2__dequantize_exl3_transform(float *x, size_t step)
{
    for (size_t half = 1; half < EXL2__EXL3_BLOCK; half *= 2) {
        for (size_t i = 0; i < EXL2__EXL3_BLOCK; i += 2 * half) {
            for (size_t j = i; j < i + half; j++) {
                float a = x[j * step], b = x[(j + half) * step];
                x[j * step] = a + b;
                x[(j + half) * step] = a - b;
            }
        }
    }
    for (size_t i = 0; i < EXL2__EXL3_BLOCK; i++) {
        x[i * step] *= (float)EXL2__EXL3_SCALE;
    }
}

/* Outputs [row, row + rows) of a matrix, which lie in one block of 128: out [rows, in]. */
EXL2__PRIVATE exl2_result exl2__dequantize_exl3_block(exl2__ctx *c, const exl2__tensors *t,
                                                      const exl2__matrix_desc *desc, uint32_t row, uint32_t rows,
                                                      float *out)
{
    float *w = (float *)(void *)desc->codes; /* [in_stored, 128] */
    uint16_t halves[16 * EXL2__EXL3_BLOCK];
    for (uint32_t i = 0; i < desc->exl3.in_stored; i += 16) {
        EXL2__TRY(exl2__dequantize_exl3_tiles(c, t, desc, i / 16, row / EXL2__EXL3_BLOCK, halves));
        for (uint32_t k = 0; k < EXL2__COUNT(halves); k++) {
            w[(size_t)i * EXL2__EXL3_BLOCK + k] = exl2__f16_to_f32(halves[k]);
        }
        for (uint32_t k = 0; k < 16; k++) {
            exl2__dequantize_exl3_transform(w + (size_t)(i + k) * EXL2__EXL3_BLOCK, 1);
        }
    }
    for (uint32_t n = 0; n < rows; n++, out += desc->in) {
        uint32_t column = row % EXL2__EXL3_BLOCK + n;
        float scale = exl2__f16_to_f32(desc->out_scales[row + n]);
        for (uint32_t i = 0; i < desc->exl3.in_stored; i += EXL2__EXL3_BLOCK) {
            exl2__dequantize_exl3_transform(w + (size_t)i * EXL2__EXL3_BLOCK + column, EXL2__EXL3_BLOCK);
        }
        for (uint32_t i = 0; i < desc->in; i++) {
            out[i] = w[(size_t)i * EXL2__EXL3_BLOCK + column] * exl2__f16_to_f32(desc->in_scales[i]) * scale;
        }
    }
    return EXL2_OK;
}

/* Rows [row, row + rows) of the dense matrix, or of the embedding: out [rows, in]. */
EXL2__PRIVATE exl2_result exl2__dequantize_exl3_rows(exl2__ctx *c, const exl2__tensors *t,
                                                     const exl2__matrix_desc *desc, uint32_t row, uint32_t rows,
                                                     float *out)
{
    bool table = desc->stored == EXL2__MATRIX_EXL3_TABLE;
    uint64_t bytes = exl2__exl3_row_bytes(desc);
    for (uint32_t end = row + rows, n; row < end; row += n, out += (size_t)n * desc->in) {
        n = table ? 1 : exl2__min32(EXL2__EXL3_BLOCK - row % EXL2__EXL3_BLOCK, end - row);
        if (!table) {
            EXL2__TRY(exl2__dequantize_exl3_block(c, t, desc, row, n, out));
            continue;
        }
        EXL2__TRY(exl2__tensors_read(c, t, desc->data, row * bytes, desc->codes, bytes));
        exl2__exl3_table_row((const uint16_t *)(const void *)desc->codes, desc->exl3.words / 16, desc->in_scales,
                             desc->in, out);
    }
    return EXL2_OK;
}

#endif
#endif
