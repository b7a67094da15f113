/* matrix_dense.h: dense weights that a backend does not read as they stand in the file.
   takes: a matrix that exl2__matrix_find has described.
   gives: exl2__matrix_read_columns, exl2__matrix_normalize_rows. */
#ifndef EXL2__MATRIX_DENSE_H
#define EXL2__MATRIX_DENSE_H

#include "matrix_desc.h"

#include <math.h>

/* Reads outputs [row, row + rows) of a transposed matrix, which are columns of the file, as rows [rows, in]. */
EXL2__PRIVATE exl2_result exl2__matrix_read_columns(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                    uint32_t row, uint32_t rows, uint8_t *out)
{
    uint8_t raw[2048];
    uint32_t size = desc->dtype == EXL2__F32 ? 4 : 2;
    uint64_t columns = desc->view.columns, most = sizeof raw / size;
    uint64_t before = (uint64_t)desc->view.stack * desc->in;
    for (uint32_t i = 0; i < desc->in; i++) {
        for (uint32_t r = 0, n; r < rows; r += n) {
            uint64_t first = exl2__matrix_view_at(&desc->view, row + r);
            for (n = 1; r + n < rows && exl2__matrix_view_at(&desc->view, row + r + n) - first < most; n++) {
            }
            uint64_t span = exl2__matrix_view_at(&desc->view, row + r + n - 1) - first + 1;
            EXL2__TRY(exl2__tensors_read(c, t, desc->data, ((before + i) * columns + first) * size, raw, span * size));
            for (uint32_t k = 0; k < n; k++) {
                uint64_t at = exl2__matrix_view_at(&desc->view, row + r + k) - first;
                memcpy(out + ((uint64_t)(r + k) * desc->in + i) * size, raw + at * size, size);
            }
        }
    }
    return EXL2_OK;
}

/* Divides each row [in] of dense weights by its length, but by at least 1e-12. */
EXL2__PRIVATE void exl2__matrix_normalize_rows(const exl2__matrix_desc *desc, uint32_t rows, void *memory)
{
    uint32_t size = desc->dtype == EXL2__F32 ? 4 : 2;
    uint32_t type = desc->data->type;
    for (uint32_t r = 0; r < rows; r++) {
        uint8_t *row = (uint8_t *)memory + (uint64_t)r * desc->in * size;
        double sum = 0;
        for (uint32_t i = 0; i < desc->in; i++) {
            double x = (double)exl2__tensor_float(type, row + (uint64_t)i * size);
            sum += exl2__mul_double(x, x);
        }
        double length = sqrt(sum) > 1e-12 ? sqrt(sum) : 1e-12;
        for (uint32_t i = 0; i < desc->in; i++) {
            uint8_t *at = row + (uint64_t)i * size;
            float x = (float)((double)exl2__tensor_float(type, at) / length);
            uint32_t bits = exl2__float_bits(x);
            uint16_t half = desc->dtype == EXL2__F16 ? exl2__f32_to_f16(x)
                          : (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16); /* bf16, to nearest even */
            memcpy(at, desc->dtype == EXL2__F32 ? (const void *)&x : (const void *)&half, size);
        }
    }
}

#endif
