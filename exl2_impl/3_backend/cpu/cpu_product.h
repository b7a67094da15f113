/* cpu_product.h: products of all rows of a pass, or of those that want logits.
   takes: a device with a current step; operands (phases.h).
   gives: exl2__cpu_product_input, exl2__cpu_gather, exl2__cpu_multiply_rows. */
#ifndef EXL2__CPU_PRODUCT_H
#define EXL2__CPU_PRODUCT_H

#include "cpu_multiply.h"

/* The input of a part for `rows` rows: that of its input_part. */
EXL2__PRIVATE exl2__cpu_input exl2__cpu_product_input(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                                      uint32_t rows)
{
    const exl2__cpu_part *p = exl2__cpu_part_of(of, part);
    size_t before = (size_t)p->input_part * exl2__max32(d->rows_max, d->logit_rows_max);
    exl2__cpu_input input = { d->input + before * exl2__cpu_device_room(d, p->in),
                              d->centre + before * exl2__cpu_device_centres(d, p->in), rows, d->ops->tile_rows };
    return input;
}

/* Makes one tile, which begins at `row`, of the inputs of all parts that do not use an earlier part's input, from rows
   x [n, stride]. The inputs have `rows` rows. */
EXL2__PRIVATE void exl2__cpu_gather(const exl2__cpu_device *d, exl2__operand of, uint32_t rows, uint32_t row,
                                    uint32_t n, const exl2__real *x, size_t stride)
{
    exl2__cpu_lora_rows all = { NULL, row };
    for (uint32_t i = 0; i < exl2__cpu_matrix_of(of.matrix)->count; i++) {
        if (exl2__cpu_part_of(of, i)->input_part == i) {
            exl2__cpu_input input = exl2__cpu_product_input(d, of, i, rows);
            exl2__cpu_gather_part(d, of, i, &input, row, n, x, stride);
        }
        if (exl2__cpu_lora_any(d, of)) {
            exl2__cpu_lora_shrink(d, of, i, exl2__cpu_part_width(of, i), &all, n, x, stride);
        }
    }
}

/* Strips [begin, end) of one part for `rows` rows, whose input exl2__cpu_gather has made. */
EXL2__PRIVATE void exl2__cpu_multiply_rows(const exl2__cpu_device *d, exl2__operand of, uint32_t part, uint32_t rows,
                                           uint32_t begin, uint32_t end, exl2__real *out, size_t stride,
                                           exl2__real add)
{
    exl2__cpu_product p = { .of = of, .part = part, .input = exl2__cpu_product_input(d, of, part, rows),
                            .begin = begin, .end = end, .biased = true, .out = out, .stride = stride, .add = add };
    if (begin < end) {
        exl2__cpu_multiply(d, &p);
    }
}

#endif
