/* cpu_multiply.h: the one function of the CPU backend that multiplies rows by a matrix of some role.
   takes: a device; operands (phases.h); rows of activations.
   gives: exl2__cpu_matrix_of, exl2__cpu_part_of, exl2__cpu_part_width, exl2__cpu_gather_part,
          exl2__cpu_product, exl2__cpu_multiply.

   A product is two calls, in two stages of a phase: exl2__cpu_gather_part brings rows into the order of the packed
   weights, then exl2__cpu_multiply multiplies them, strip by strip. Every phase goes through these two, and both know
   layer, role and expert, so whatever is added to a product, such as a matrix of low rank, is added in them. What
   adapters add (cpu_lora.h) is begun beside the first call, whose rows have the order of the features. */
#ifndef EXL2__CPU_MULTIPLY_H
#define EXL2__CPU_MULTIPLY_H

#include "cpu_exl3.h"
#include "cpu_lora.h"

/* The type that the boundary declares opaque. */
static inline const exl2__cpu_matrix *exl2__cpu_matrix_of(const exl2__matrix *m)
{
    return (const exl2__cpu_matrix *)(const void *)m;
}

static inline const exl2__cpu_part *exl2__cpu_part_of(exl2__operand of, uint32_t part)
{
    return &exl2__cpu_matrix_of(of.matrix)->parts[part];
}

/* Features of a row, without the padding that inputs of EXL3 have. */
static inline uint32_t exl2__cpu_part_width(exl2__operand of, uint32_t part)
{
    const exl2__cpu_part *p = exl2__cpu_part_of(of, part);
    return exl2__cpu_matrix_is_exl3(p->source) ? p->exl3.width : p->in;
}

/* Makes one tile of an input, which begins at `row`, from rows x [n, stride] in the order of the features. */
EXL2__PRIVATE void exl2__cpu_gather_part(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                         const exl2__cpu_input *input, uint32_t row, uint32_t n, const exl2__real *x,
                                         size_t stride)
{
    const exl2__cpu_part *p = exl2__cpu_part_of(of, part);
#if EXL2__EXL3
    if (exl2__cpu_matrix_is_exl3(p->source)) {
        (d->ops->exl3_gather ? d->ops->exl3_gather : exl2__cpu_exl3_gather)(p, x, stride, n,
                                                                            input->x + (size_t)row * p->in);
        return;
    }
#endif
    d->ops->gather(p, x, stride, n, input->x + (size_t)row * p->in, input->centre + exl2__cpu_matrix_start(p, row));
}

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
    exl2__cpu_lora_rows rows; /* which rows of the step the input has, for their adapters */
} exl2__cpu_product;

EXL2__PRIVATE void exl2__cpu_multiply(const exl2__cpu_device *d, const exl2__cpu_product *p)
{
    exl2__cpu_part one = *exl2__cpu_part_of(p->of, p->part);
    one.strips -= p->first;
    one.data += p->first * one.strip_bytes;
    one.bias = one.bias && p->biased ? one.bias + (size_t)p->first * EXL2__CPU_STRIP : NULL;
    void (*product)(const exl2__cpu_part *part, const exl2__cpu_input *input, uint32_t begin, uint32_t end,
                    exl2__real *out, size_t stride, exl2__real add) = d->ops->product;
#if EXL2__EXL3
    if (exl2__cpu_matrix_is_exl3(one.source)) {
        one.exl3.out_scales += (size_t)p->first * EXL2__CPU_STRIP;
        product = d->ops->exl3_product ? d->ops->exl3_product : exl2__cpu_exl3_product;
    }
#endif
    product(&one, &p->input, p->begin - p->first, p->end - p->first, p->out, p->stride, p->add);
    if (exl2__cpu_lora_any(d, p->of)) {
        exl2__cpu_lora_expand(d, p->of, p->part, one.out, &p->rows, p->input.rows, p->begin * EXL2__CPU_STRIP,
                              (p->end - p->begin) * EXL2__CPU_STRIP,
                              p->out + (size_t)(p->begin - p->first) * EXL2__CPU_STRIP, p->stride, p->add);
    }
}

#endif
