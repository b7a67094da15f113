/* runner_read.h: reads the weights of a model, several slices at a time if the application can run tasks in parallel.
   takes: the loading state of a model for the CPU backend.
   gives: exl2__runner_read_bytes, exl2__runner_read_until.

   Slices of dense weights are whole strips, those of EXL2 codes whole blocks, so that no two of them write to the same
   memory. GPTQ, AWQ and EXL3 are read in order, as their reader has memory for one slice. */
#ifndef EXL2__RUNNER_READ_H
#define EXL2__RUNNER_READ_H

#include "../../2_graph/weights_load.h"
#include "../../3_backend/cpu/cpu.h"
#include "../tasks.h"

#ifndef EXL2__RUNNER_READ_SLICE /* tests have smaller ones */
#define EXL2__RUNNER_READ_SLICE ((uint64_t)1 << 20) /* bytes of a slice, to which a strip or a block is added */
#define EXL2__RUNNER_READ_MOST ((uint64_t)32 << 20) /* bytes of the slices that are in memory together */
#endif

typedef struct exl2__runner_slice {
    uint32_t row, rows, block; /* block: of codes, the one that begins at `row` */
    uint64_t at;               /* in the buffer */
} exl2__runner_slice;

typedef struct exl2__runner_slices {
    const exl2__weights *w;
    const exl2__matrix_desc *desc;
    const exl2__cpu_part *part;
    uint8_t *memory;
    exl2__runner_slice items[EXL2__TASKS_TRY_MAX];
} exl2__runner_slices;

/* Bytes of memory that reading in parallel needs; 0: it reads in order, as it does with small models. */
static inline uint64_t exl2__runner_read_bytes(const exl2__ctx *c, const exl2__weights *w)
{
    return c->parallel.run && w->disk_bytes >= EXL2__RUNNER_READ_MOST ? EXL2__RUNNER_READ_MOST : 0;
}

/* Part: one slice. */
EXL2__PRIVATE exl2_result exl2__runner_read_slice(exl2__ctx *c, void *arg, uint32_t index)
{
    const exl2__runner_slices *s = (const exl2__runner_slices *)arg;
    const exl2__runner_slice *one = &s->items[index];
    exl2__cpu_part part = *s->part;
    exl2__work all = exl2__work_all();
    exl2__rows_slice rows = { one->row, one->rows, s->memory + one->at };
    EXL2__TRY(exl2__weights_read_rows(c, &s->w->tensors, s->desc, one->row, one->rows, false, s->memory + one->at));
    if (s->w->now.kind == EXL2__UNIT_HEAD && s->w->config.norm_head && s->desc->kind == EXL2__MATRIX_DENSE) {
        exl2__matrix_normalize_rows(s->desc, one->rows, s->memory + one->at);
    }
    part.fed_block = one->block;
    return exl2__cpu_matrix_feed(&part, &rows, &all);
}

/* The slice that begins at *next, which goes on to its end. */
EXL2__PRIVATE exl2__runner_slice exl2__runner_read_cut(const exl2__runner_slices *s, exl2__runner_slice *next)
{
    uint32_t all = exl2__weights_rows(s->desc);
    uint64_t row_bytes = exl2__weights_row_bytes(s->desc);
    bool codes = exl2__cpu_matrix_is_codes(s->part->source);
    exl2__runner_slice one = *next;
    while (next->row < all && (next->row - one.row) * row_bytes < EXL2__RUNNER_READ_SLICE) {
        next->row += codes ? s->part->block[next->block++].bits : EXL2__CPU_STRIP;
    }
    next->row = exl2__min32(next->row, all);
    one.rows = next->row - one.row;
    next->at += one.rows * row_bytes;
    return one;
}

/* Can slices of such rows be in memory together? */
EXL2__PRIVATE bool exl2__runner_read_fits(const exl2__matrix_desc *desc)
{
    uint64_t rows = desc->kind == EXL2__MATRIX_DENSE ? EXL2__CPU_STRIP : 8; /* bits of a block */
    return desc->kind != EXL2__MATRIX_AFFINE && !desc->dequantized
        && rows * exl2__weights_row_bytes(desc) + 2 * EXL2__RUNNER_READ_SLICE <= EXL2__RUNNER_READ_MOST;
}

/* All rows of a part. */
EXL2__PRIVATE exl2_result exl2__runner_read_part(exl2__ctx *c, exl2__runner_slices *s)
{
    for (exl2__runner_slice next = { 0, 0, 0, 0 }; next.row < exl2__weights_rows(s->desc);) {
        uint32_t count = 0;
        for (next.at = 0; next.row < exl2__weights_rows(s->desc) && count < EXL2__TASKS_TRY_MAX; count++) {
            exl2__runner_slice before = next;
            s->items[count] = exl2__runner_read_cut(s, &next);
            if (next.at > EXL2__RUNNER_READ_MOST) {
                next = before;
                break;
            }
        }
        EXL2__TRY(exl2__tasks_try(c, count, exl2__runner_read_slice, s));
    }
    return EXL2_OK;
}

/* Loads on up to a unit. memory: NULL, or [EXL2__RUNNER_READ_MOST]. */
EXL2__PRIVATE exl2_result exl2__runner_read_units(exl2__ctx *c, exl2__weights *w, uint32_t end, exl2__plan *plan,
                                                  exl2__device *device, exl2__arena *arena, uint8_t *memory)
{
    exl2__work all = exl2__work_all();
    exl2__runner_slices s = { .w = w, .memory = memory };
    w->touched = memory ? UINT64_MAX : w->touched; /* else one thread would write to all pages first */
    while (memory && w->unit < end) {
        EXL2__TRY(exl2__weights_open_unit(c, w, plan, &exl2__cpu_backend, device, arena, &all));
        bool fits = true;
        for (uint32_t i = 0; i < w->now.count; i++) {
            fits = fits && exl2__runner_read_fits(&w->parts[i]);
        }
        if (!fits) {
            EXL2__TRY(exl2__weights_until(c, w, w->unit + 1, plan, &exl2__cpu_backend, device, arena, &all));
            continue;
        }
        for (uint32_t i = 0; i < w->now.count; i++) {
            s.desc = &w->parts[i];
            s.part = &exl2__cpu_matrix_of(w->matrix)->parts[i];
            EXL2__TRY(exl2__runner_read_part(c, &s));
        }
        w->unit++;
        w->opened = false;
    }
    return exl2__weights_until(c, w, end, plan, &exl2__cpu_backend, device, arena, &all);
}

/* Loads on up to a unit: exl2__weights_until, in parallel. */
EXL2__PRIVATE exl2_result exl2__runner_read_until(exl2__ctx *c, exl2__weights *w, uint32_t end, exl2__plan *plan,
                                                  exl2__device *device, exl2__arena *arena)
{
    void *memory;
    uint64_t bytes = exl2__runner_read_bytes(c, w);
    EXL2__TRY(exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &memory));
    exl2_result result = exl2__runner_read_units(c, w, end, plan, device, arena, (uint8_t *)memory);
    exl2__free(c, memory, bytes, EXL2_MEM_STAGING);
    return result;
}

#endif
