/* cpu_product.h: products on the CPU: rows of activations times a part of a matrix of some role.
   takes: a device with a current step; operands (phases.h); rows.
   gives: exl2__cpu_gather, exl2__cpu_gather_part, exl2__cpu_product, exl2__cpu_multiply, exl2__cpu_multiply_rows.

   A product is two calls, which are stages of a phase: exl2__cpu_gather_part brings rows into the order of the packed
   weights, then exl2__cpu_multiply multiplies them, strip by strip. Each phase goes through these two, and both know
   the layer, the role and the expert. So whatever is added to a product, such as a matrix of low rank, is added there. */
#ifndef EXL2__CPU_PRODUCT_H
#define EXL2__CPU_PRODUCT_H

#include "cpu_device.h"

/* The type that the boundary declares opaque. */
static inline const exl2__cpu_matrix *exl2__cpu_matrix_of(const exl2__matrix *m)
{
    return (const exl2__cpu_matrix *)(const void *)m;
}

static inline const exl2__cpu_part *exl2__cpu_part_of(exl2__operand of, uint32_t part)
{
    return &exl2__cpu_matrix_of(of.matrix)->parts[part];
}

/* ---- inputs ---- */

/* The input of a part for `rows` rows: that of its input_part. */
EXL2__PRIVATE exl2__cpu_input exl2__cpu_product_input(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                                      uint32_t rows)
{
    const exl2__cpu_part *p = exl2__cpu_part_of(of, part);
    size_t before = (size_t)p->input_part * exl2__max32(d->rows_max, d->logit_rows_max);
    exl2__cpu_input input = { d->input + before * p->in, d->centre + before * p->blocks * (d->shape.affine ? 2 : 1),
                              rows, d->ops->tile_rows };
    return input;
}

/* Makes one tile of an input, which begins at `row`, from rows x [n, stride] in the order of the features. */
EXL2__PRIVATE void exl2__cpu_gather_part(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                         const exl2__cpu_input *input, uint32_t row, uint32_t n, const exl2__real *x,
                                         size_t stride)
{
    const exl2__cpu_part *p = exl2__cpu_part_of(of, part);
    d->ops->gather(p, x, stride, n, input->x + (size_t)row * p->in, input->centre + exl2__cpu_matrix_start(p, row));
}

/* The same tile of the inputs of all parts that do not use an earlier part's input; the inputs have `rows` rows. */
EXL2__PRIVATE void exl2__cpu_gather(const exl2__cpu_device *d, exl2__operand of, uint32_t rows, uint32_t row,
                                    uint32_t n, const exl2__real *x, size_t stride)
{
    for (uint32_t i = 0; i < exl2__cpu_matrix_of(of.matrix)->count; i++) {
        if (exl2__cpu_part_of(of, i)->input_part == i) {
            exl2__cpu_input input = exl2__cpu_product_input(d, of, i, rows);
            exl2__cpu_gather_part(d, of, i, &input, row, n, x, stride);
        }
    }
}

/* ---- products ---- */

/* The columns of strips [begin, end) of input * W + bias, for all rows of the input. */
typedef struct exl2__cpu_product {
    exl2__operand of;
    uint32_t part;
    exl2__cpu_input input;
    uint32_t begin, end;
    uint32_t first;  /* the strip whose first column is at `out`; even, and at most `begin` */
    bool biased;     /* else the bias is left out */
    exl2__real *out; /* [rows, stride] */
    size_t stride;
    exl2__real add;  /* 0: out = product, else out += add * product */
} exl2__cpu_product;

EXL2__PRIVATE void exl2__cpu_multiply(const exl2__cpu_device *d, const exl2__cpu_product *p)
{
    exl2__cpu_part one = *exl2__cpu_part_of(p->of, p->part);
    one.strips -= p->first;
    one.data += p->first * one.strip_bytes;
    one.bias = one.bias && p->biased ? one.bias + (size_t)p->first * EXL2__CPU_STRIP : NULL;
    d->ops->product(&one, &p->input, p->begin - p->first, p->end - p->first, p->out, p->stride, p->add);
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
