/* weights_rows.h: the rows in which files store a matrix: how many, their bytes, and reading some of them.
   takes: a matrix; the tensor table.
   gives: exl2__weights_rows, exl2__weights_row_bytes, exl2__weights_unit_rows, exl2__weights_extra_bytes,
          exl2__weights_file_bytes, exl2__weights_read_rows. */
#ifndef EXL2__WEIGHTS_ROWS_H
#define EXL2__WEIGHTS_ROWS_H

#include "../1_load/matrix_dense.h"
#include "../1_load/dequantize.h"
#include "../1_load/dequantize_exl3.h"

/* Number of rows in which a matrix is stored, and bytes of a row. */
static inline uint32_t exl2__weights_rows(const exl2__matrix_desc *d)
{
    return d->kind == EXL2__MATRIX_DENSE ? d->out : d->words;
}

static inline uint64_t exl2__weights_row_bytes(const exl2__matrix_desc *d)
{
    return d->kind == EXL2__MATRIX_DENSE ? (uint64_t)d->in * (d->dtype == EXL2__F32 ? 4 : 2)
         : exl2__matrix_is_exl3(d->kind) ? exl2__exl3_row_bytes(d) : (uint64_t)d->out_stored * sizeof(uint32_t);
}

/* Slices begin and end at multiples of this number of rows, where codes do not cross the border of words. */
static inline uint32_t exl2__weights_unit_rows(const exl2__matrix_desc *d)
{
#if EXL2__GPTQ
    return d->dequantized && d->stored == EXL2__MATRIX_EXL3 ? EXL2__EXL3_BLOCK
         : d->dequantized ? 8 /* columns of a word of AWQ */
         : d->kind == EXL2__MATRIX_AFFINE ? exl2__affine_unit(d) : 1;
#else
    return d->dequantized && d->stored == EXL2__MATRIX_EXL3 ? EXL2__EXL3_BLOCK : 1;
#endif
}

/* Bytes of a stored matrix in addition to its weights. EXL2: for each group 2 of q_scale_max, 4 of q_groups and half a
   byte per output of q_scale; 4 per input of q_invperm. GPTQ, AWQ: for each group and output 2 of scales and the bits
   of qzeros; 4 per input of g_idx. EXL3: 2 per input and output of suh and svh, or 1/8 of their signs. All: 2 per
   output of the bias. */
static inline uint64_t exl2__weights_extra_bytes(const exl2__matrix_desc *d)
{
    uint64_t tables = d->has_bias ? (uint64_t)d->out * 2 : 0;
    exl2__matrix_kind stored = exl2__matrix_stored(d);
    if (stored == EXL2__MATRIX_EXL2) {
        tables += d->group_count * (6 + (uint64_t)d->out_stored / 2) + (uint64_t)d->in * 4;
    } else if (stored == EXL2__MATRIX_AFFINE) {
        tables += (uint64_t)d->group_count * d->out * (16 + d->affine.bits) / 8;
        tables += d->affine.group_index ? (uint64_t)d->in * 4 : 0;
    } else if (exl2__matrix_is_exl3(stored)) {
        tables += d->exl3.in_scales->bytes + (d->exl3.out_scales ? d->exl3.out_scales->bytes : 0);
    }
    return tables;
}

/* Bytes of a matrix in the files. */
static inline uint64_t exl2__weights_file_bytes(const exl2__matrix_desc *d)
{
    uint64_t codes = exl2__matrix_is_exl3(exl2__matrix_stored(d)) ? d->words * exl2__exl3_row_bytes(d)
                   : d->dequantized ? (uint64_t)d->words * d->out_stored * sizeof(uint32_t)
                                    : exl2__weights_rows(d) * exl2__weights_row_bytes(d);
    return codes + exl2__weights_extra_bytes(d);
}

/* Reads rows [row, row + rows) of a matrix as its kind stores them into `memory`. awq: codes of AWQ, too, stay as they
   are in the file; else they are put in GPTQ's order. */
EXL2__PRIVATE exl2_result exl2__weights_read_rows(exl2__ctx *c, const exl2__tensors *t, const exl2__matrix_desc *desc,
                                                  uint32_t row, uint32_t rows, bool awq, void *memory)
{
    uint64_t row_bytes = exl2__weights_row_bytes(desc);
    uint8_t *out = (uint8_t *)memory;
#if EXL2__EXL3
    if (desc->dequantized && exl2__matrix_is_exl3(desc->stored)) {
        return exl2__dequantize_exl3_rows(c, t, desc, row, rows, (float *)memory);
    }
#endif
    if (desc->dequantized) {
        return exl2__dequantize_rows(c, t, desc, row, rows, (uint16_t *)memory);
    }
#if EXL2__GPTQ
    if (desc->kind == EXL2__MATRIX_AFFINE) {
        return awq && desc->affine.awq ? exl2__affine_read_stored(c, t, desc, row, rows, (uint32_t *)memory)
                                       : exl2__affine_read_words(c, t, desc, row, rows, (uint32_t *)memory);
    }
#endif
    (void)awq;
    if (desc->kind == EXL2__MATRIX_EXL2 || exl2__matrix_is_exl3(desc->kind)) {
        return exl2__tensors_read(c, t, desc->data, row * row_bytes, out, rows * row_bytes);
    }
    if (desc->view.transposed) {
        return exl2__matrix_read_columns(c, t, desc, row, rows, out);
    }
    for (uint32_t end = row + rows, n; row < end; row += n, out += n * row_bytes) { /* n: number of rows that are
                                                                                       adjacent in the file */
        n = exl2__min32(desc->view.run - row % desc->view.run, end - row);
        bool padded = desc->view.columns > desc->in; /* the file's rows are longer */
        uint64_t pitch = padded ? row_bytes / desc->in * desc->view.columns : row_bytes;
        n = padded ? 1 : n;
        uint64_t at = exl2__matrix_view_at(&desc->view, row) * pitch;
        EXL2__TRY(exl2__tensors_read(c, t, desc->data, at, out, n * row_bytes));
    }
    return EXL2_OK;
}

#endif
