/* panels.h: square matrices in panels of a few columns, and their products with strips of 32 columns, which are those
   of the CPU backend.
   takes: the operations of an instruction set, a matrix, strips.
   gives: exl2__panels, exl2__panels_width, exl2__panels_bytes, exl2__panels_at, exl2__panels_product,
          exl2__panels_strip_product. */
#ifndef EXL2__PANELS_H
#define EXL2__PANELS_H

#include "../../3_backend/cpu/cpu.h"
#include "../tasks.h"

#define EXL2__PANELS_LANES EXL2__CPU_STRIP /* columns of a strip, which is [rows, 32] */

/* A matrix [size, size]. A panel is [size, width], so that a product reads it from front to back. */
typedef struct exl2__panels {
    const exl2__cpu_ops *ops;
    float *data; /* [size / width, size, width] */
    uint32_t size, width;
} exl2__panels;

/* The widest tile that every instruction set computes at once, and that divides a group of 32 rows. */
static inline uint32_t exl2__panels_width(const exl2__cpu_ops *ops) { return ops->tile_rows >= 8 ? 8 : 4; }

static inline uint64_t exl2__panels_bytes(uint32_t size) { return (uint64_t)size * size * sizeof(float); }

static inline float *exl2__panels_at(const exl2__panels *p, uint32_t row, uint32_t column)
{
    return p->data + ((size_t)(column / p->width) * p->size + row) * p->width + column % p->width;
}

/* out [width, 32] = panel [rows, width]' * strip [rows, 32]; or, with `add` not 0, out += add * that. */
static inline void exl2__panels_strip_product(const exl2__cpu_ops *ops, const float *panel, uint32_t width,
                                              const float *strip, uint32_t rows, float *out, float add)
{
    exl2__cpu_part part = { 0 };
    exl2__cpu_input input = { (float *)(uintptr_t)panel, (float *)(uintptr_t)panel, width, width }; /* only read */
    part.source = EXL2__CPU_F32;
    part.in = rows;
    part.out = EXL2__PANELS_LANES;
    part.strips = 1;
    part.data = (uint8_t *)(uintptr_t)strip; /* only read */
    ops->product(&part, &input, 0, 1, out, EXL2__PANELS_LANES, add);
}

/* out [columns, 32] = M[begin..end, column..column + columns]' * strip[begin..end], strip [size, 32]. `column` and
   `columns` are multiples of the width. */
static inline void exl2__panels_product(const exl2__panels *p, uint32_t column, uint32_t columns, uint32_t begin,
                                        uint32_t end, const float *strip, float *out)
{
    for (uint32_t c = 0; c < columns; c += p->width) {
        exl2__panels_strip_product(p->ops, exl2__panels_at(p, begin, column + c), p->width,
                                   strip + (size_t)begin * EXL2__PANELS_LANES, end - begin,
                                   out + (size_t)c * EXL2__PANELS_LANES, 0);
    }
}

#endif
