/* columns.h: which columns a device has where several devices share every matrix of a model.
   takes: the number of columns of a whole matrix, and how many of them stay together.
   gives: exl2__columns, exl2__columns_begin, exl2__columns_of, exl2__columns_heads, exl2__columns_are_cut.

   Every matrix is cut by its outputs: so each output is one sum on one device, in the order of its inputs, and has the
   bits that it has on a single device. Attention is cut by heads of K and V, with the heads of q that read them. The
   devices compute everything else alike: norms, the residual, and sampling. */
#ifndef EXL2__COLUMNS_H
#define EXL2__COLUMNS_H

#include "../0_base/bytes.h"

#define EXL2__COLUMNS_UNIT 32u       /* columns that stay together, unless the model or the matrix says more */
#define EXL2__COLUMNS_UNIT_EXL3 128u /* the same of models with EXL3 matrices, whose outputs are transformed together */

typedef struct exl2__columns {
    uint32_t count, index;    /* devices, the number of this one; count 0 or 1: it has all columns */
    uint32_t heads, kv_heads; /* of the whole model */
    uint32_t first_kv_head;
    bool idle;                /* it has no heads */
} exl2__columns;

static inline bool exl2__columns_are_cut(const exl2__columns *c) { return c->count > 1; }

/* Where the columns of device `index` begin, and with index = count, where those of the last device end. If the columns
   cannot be divided equally, the first devices have more, and the last ones may have none. unit: columns that stay
   together, a multiple of EXL2__COLUMNS_UNIT; 0 = EXL2__COLUMNS_UNIT. */
static inline uint32_t exl2__columns_begin(uint32_t columns, uint32_t unit, uint32_t count, uint32_t index)
{
    uint64_t each = unit ? unit : EXL2__COLUMNS_UNIT, units = exl2__div_up(columns, each);
    return (uint32_t)exl2__min64(exl2__div_up(units * index, count) * each, columns);
}

/* Some columns of a matrix. */
typedef struct exl2__columns_run {
    uint32_t first, count;
} exl2__columns_run;

/* The part of a matrix with `columns` columns that the device has. unit: as of exl2__columns_begin. */
static inline exl2__columns_run exl2__columns_of(const exl2__columns *c, uint32_t columns, uint32_t unit)
{
    exl2__columns_run run = { 0, columns };
    if (exl2__columns_are_cut(c)) {
        run.first = exl2__columns_begin(columns, unit, c->count, c->index);
        run.count = exl2__columns_begin(columns, unit, c->count, c->index + 1) - run.first;
    }
    return run;
}

/* Heads of K and V that stay together, so that cuts of q, k and v lie at multiples of `unit`. */
static inline uint32_t exl2__columns_heads(uint32_t head_dim, uint32_t unit)
{
    uint32_t heads = 1;
    while (heads * head_dim % (unit ? unit : EXL2__COLUMNS_UNIT) != 0) {
        heads++;
    }
    return heads;
}

#endif
