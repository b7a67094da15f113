/* allocate.h: chooses the widths of all groups of a model: the least sum of losses that a number of bits can buy.
   takes: per matrix, what each block of 32 rows loses at each width (losses.h), times what a unit of loss costs.
   gives: exl2__allocate_linear, exl2__allocate_bits, exl2__allocate_range, exl2__allocate_run.
   owns:  scratch, until exl2__allocate_run returns.

   All groups have 32 rows: groups of 64 and 128 rows were measured to save less than they lose. Widths never rise from
   one group to the next, as the format says. For a price per bit, the best widths of each matrix are found exactly, by
   dynamic programming over (block, width); the price is found by bisection. What is left of the budget is then spent
   block by block, on what gains most per bit. Everything is in a fixed order, so that the result is always the same. */
#ifndef EXL2__ALLOCATE_H
#define EXL2__ALLOCATE_H

#include "../../0_base/arena.h"
#include "losses.h"

#define EXL2__ALLOCATE_STEPS 200u /* of the bisection; it ends before when the price no longer changes */

typedef struct exl2__allocate_linear {
    uint32_t in, columns; /* in: a multiple of 32 */
    bool has_bias;
    const double *losses; /* [EXL2__LOSSES_WIDTHS, in / 32] */
    uint8_t *widths;      /* [in / 32] result: index of the width of each block, never rising */
} exl2__allocate_linear;

/* Bits of one group of 32 rows: codes, scale, group table, levels. */
static inline uint64_t exl2__allocate_group_bits(const exl2__allocate_linear *s, uint32_t width)
{
    return (uint64_t)EXL2__LOSSES_BLOCK * s->columns * exl2__losses_bits(width) + 48 + 4 * (uint64_t)s->columns;
}

/* Bits of the matrix besides its groups: the permutation, the bias. */
static inline uint64_t exl2__allocate_fixed_bits(const exl2__allocate_linear *s)
{
    return 32 * (uint64_t)s->in + (s->has_bias ? 16 * (uint64_t)s->columns : 0);
}

/* Bits of the matrix with its widths (docs/formats.md). */
EXL2__PRIVATE uint64_t exl2__allocate_bits(const exl2__allocate_linear *s)
{
    uint64_t bits = exl2__allocate_fixed_bits(s);
    for (uint32_t b = 0; b < s->in / EXL2__LOSSES_BLOCK; b++) {
        bits += exl2__allocate_group_bits(s, s->widths[b]);
    }
    return bits;
}

/* The fewest and the most bits that these matrices can have. */
EXL2__PRIVATE void exl2__allocate_range(const exl2__allocate_linear *linears, uint32_t count, uint64_t *least,
                                        uint64_t *most)
{
    *least = *most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t blocks = linears[i].in / EXL2__LOSSES_BLOCK, fixed = exl2__allocate_fixed_bits(&linears[i]);
        *least += fixed + blocks * exl2__allocate_group_bits(&linears[i], 0);
        *most += fixed + blocks * exl2__allocate_group_bits(&linears[i], EXL2__LOSSES_WIDTHS - 1);
    }
}

/* Fills in the widths of one matrix that are best at `price` per bit. from [in / 32, WIDTHS]: scratch. Of equal choices
   the one with fewer bits is taken. */
EXL2__PRIVATE void exl2__allocate_best(const exl2__allocate_linear *s, double price, uint8_t *from)
{
    uint32_t blocks = s->in / EXL2__LOSSES_BLOCK;
    double best[EXL2__LOSSES_WIDTHS] = { 0 };
    for (uint32_t b = 0; b < blocks; b++) {
        /* the best way to here that ends with width w, or a larger one */
        uint32_t way = EXL2__LOSSES_WIDTHS - 1;
        for (uint32_t w = EXL2__LOSSES_WIDTHS; w-- > 0;) {
            way = best[w] <= best[way] ? w : way;
            from[b * EXL2__LOSSES_WIDTHS + w] = (uint8_t)way;
        }
        double next[EXL2__LOSSES_WIDTHS];
        for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
            next[w] = best[from[b * EXL2__LOSSES_WIDTHS + w]] + s->losses[w * blocks + b]
                    + price * (double)exl2__allocate_group_bits(s, w);
        }
        memcpy(best, next, sizeof best);
    }
    uint32_t w = 0;
    for (uint32_t i = 1; i < EXL2__LOSSES_WIDTHS; i++) {
        w = best[i] < best[w] ? i : w;
    }
    for (uint32_t b = blocks; b-- > 0;) {
        s->widths[b] = (uint8_t)w;
        w = from[b * EXL2__LOSSES_WIDTHS + w];
    }
}

/* The same for all matrices; returns their bits. */
EXL2__PRIVATE uint64_t exl2__allocate_all(const exl2__allocate_linear *linears, uint32_t count, double price,
                                          uint8_t *from)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < count; i++) {
        exl2__allocate_best(&linears[i], price, from);
        bits += exl2__allocate_bits(&linears[i]);
    }
    return bits;
}

/* One block gets a larger width. */
typedef struct exl2__allocate_step {
    uint32_t linear, block, width;
    uint64_t bits;
    double rate; /* loss that is saved per bit; 0: no step */
} exl2__allocate_step;

/* The best step of a matrix that costs at most `room` bits. Only the first block of a run of equal widths can rise. */
EXL2__PRIVATE exl2__allocate_step exl2__allocate_best_step(const exl2__allocate_linear *s, uint32_t linear,
                                                           uint64_t room)
{
    exl2__allocate_step best = { linear, 0, 0, 0, 0 };
    uint32_t blocks = s->in / EXL2__LOSSES_BLOCK;
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t most = b == 0 ? EXL2__LOSSES_WIDTHS - 1 : s->widths[b - 1];
        for (uint32_t w = s->widths[b] + 1u; w <= most; w++) {
            uint64_t bits = exl2__allocate_group_bits(s, w) - exl2__allocate_group_bits(s, s->widths[b]);
            double rate = (s->losses[s->widths[b] * blocks + b] - s->losses[w * blocks + b]) / (double)bits;
            if (bits <= room && rate > best.rate) {
                best = (exl2__allocate_step){ linear, b, w, bits, rate };
            }
        }
    }
    return best;
}

/* Spends the rest of the budget. steps [count]: scratch. */
EXL2__PRIVATE void exl2__allocate_spend(const exl2__allocate_linear *linears, uint32_t count, uint64_t room,
                                        exl2__allocate_step *steps)
{
    for (uint32_t i = 0; i < count; i++) {
        steps[i] = exl2__allocate_best_step(&linears[i], i, room);
    }
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (steps[i].bits > room) {
                steps[i] = exl2__allocate_best_step(&linears[i], i, room);
            }
            best = steps[i].rate > steps[best].rate ? i : best;
        }
        if (!(steps[best].rate > 0)) {
            return;
        }
        linears[best].widths[steps[best].block] = (uint8_t)steps[best].width;
        room -= steps[best].bits;
        steps[best] = exl2__allocate_best_step(&linears[best], best, room);
    }
}

/* Fills in all widths. budget: bits; at least exl2__allocate_range's `least`. Losses are finite and not negative. */
EXL2__PRIVATE exl2_result exl2__allocate_run(exl2__ctx *c, const exl2__allocate_linear *linears, uint32_t count,
                                             uint64_t budget)
{
    exl2__arena dry = { 0 }, memory;
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < count; i++) {
        blocks = exl2__max64(blocks, linears[i].in / EXL2__LOSSES_BLOCK);
    }
    exl2__arena_alloc(&dry, blocks * EXL2__LOSSES_WIDTHS);
    exl2__arena_alloc(&dry, count * sizeof(exl2__allocate_step));
    EXL2__TRY(exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH));
    uint8_t *from = (uint8_t *)exl2__arena_alloc(&memory, blocks * EXL2__LOSSES_WIDTHS);
    exl2__allocate_step *steps = (exl2__allocate_step *)exl2__arena_alloc(&memory, count * sizeof *steps);
    double low = 0, high = 1; /* prices: too low, and high enough */
    while (exl2__allocate_all(linears, count, high, from) > budget && high < 1e300) {
        high *= 1e6;
    }
    for (uint32_t i = 0; i < EXL2__ALLOCATE_STEPS; i++) {
        /* prices range over many powers of ten */
        double price = low > 0 ? sqrt(low) * sqrt(high) : high * 1e-6;
        if (price <= low || price >= high || price < 1e-280) {
            break;
        }
        if (exl2__allocate_all(linears, count, price, from) > budget) {
            low = price;
        } else {
            high = price;
        }
    }
    uint64_t used = exl2__allocate_all(linears, count, high, from);
    exl2__allocate_spend(linears, count, used < budget ? budget - used : 0, steps);
    exl2__arena_close(c, &memory);
    return EXL2_OK;
}

#endif
