/* columns.h: which columns a device has where several devices share every matrix of a model.
   takes: the number of columns of a whole matrix, how many of them stay together, and each device's share.
   gives: exl2__columns, exl2__columns_make, _share, _begin, _of, _heads, _are_cut.

   Every matrix is cut by its outputs: so each output is one sum on one device, in the order of its inputs, and has the
   bits that it has on a single device. Attention is cut by heads of K and V, with the heads of q that read them. The
   devices compute everything else alike: norms, the residual, and sampling. */
#ifndef EXL2__COLUMNS_H
#define EXL2__COLUMNS_H

#include "../0_base/bytes.h"
#include "../0_base/result.h"

#define EXL2__COLUMNS_UNIT 32u       /* columns that stay together, unless the model or the matrix says more */
#define EXL2__COLUMNS_UNIT_EXL3 128u /* the same in models with EXL3 matrices, whose outputs are transformed together */

typedef struct exl2__columns {
    uint32_t count, index;    /* number of devices; index of this one. count 0 or 1: this device has all columns */
    uint32_t ends[EXL2_DEVICES_MAX]; /* [count] running sums of the devices' shares, each of which is at least 1 */
    uint32_t heads, kv_heads; /* of the whole model */
    uint32_t first_kv_head;
    bool idle;                /* this device has no heads */
} exl2__columns;

#define EXL2__COLUMNS_SHARE 16777216u /* the largest share in exl2__columns.ends is from a half of it to all of it */

/* How `count` devices divide columns; the caller sets the index of each. shares [count]: > 0, or all 0: equal ones.
   They are multiplied by a power of two, and rounded, so quotients of small numbers stay what they are. */
static inline exl2__columns exl2__columns_make(const float *shares, uint32_t count)
{
    exl2__columns c = { .count = count };
    double largest = 0, scale = 1;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        largest = (double)shares[i] > largest ? (double)shares[i] : largest;
    }
    while (largest > 0 && largest * scale < EXL2__COLUMNS_SHARE / 2) {
        scale *= 2;
    }
    for (uint32_t i = 0; i < count; i++) {
        sum += largest > 0 ? exl2__max32((uint32_t)((double)shares[i] * scale + 0.5), 1) : 1;
        c.ends[i] = sum;
    }
    return c;
}

static inline bool exl2__columns_are_cut(const exl2__columns *c) { return c->count > 1; }

/* The part of all columns that device `index` is to have, from 0 to 1. */
static inline float exl2__columns_share(const exl2__columns *c, uint32_t index)
{
    uint32_t own = c->ends[index] - (index ? c->ends[index - 1] : 0);
    return (float)own / (float)c->ends[c->count - 1];
}

/* Where the columns of device `index` begin, and with index = count, where those of the last device end. They are
   divided by shares, but each device has a unit at least; if there are fewer units than devices, the last ones have
   none. Of equal shares the first devices may have a unit more than the last ones; less than 1 / 4,096 of a unit, as of
   0.3 and 0.1, is no reason for that. unit: columns that stay together, a multiple of EXL2__COLUMNS_UNIT; 0 =
   EXL2__COLUMNS_UNIT. */
static inline uint32_t exl2__columns_begin(const exl2__columns *c, uint32_t columns, uint32_t unit, uint32_t index)
{
    uint64_t each = unit ? unit : EXL2__COLUMNS_UNIT, units = exl2__div_up(columns, each), begin = 0;
    uint64_t all = c->ends[c->count - 1], up = all - 1 - (units < c->count ? 0 : all / 4096);
    for (uint32_t i = 1; i <= index; i++) {
        uint64_t end = (units * c->ends[i - 1] + up) / all;
        begin = units < c->count ? end : exl2__min64(exl2__max64(end, begin + 1), units - (c->count - i));
    }
    return (uint32_t)exl2__min64(begin * each, columns);
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
        run.first = exl2__columns_begin(c, columns, unit, c->index);
        run.count = exl2__columns_begin(c, columns, unit, c->index + 1) - run.first;
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
