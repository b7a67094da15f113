/* convert_allocate.h: chooses the widths of all linears for the planned size.
   takes: the losses and sensitivities that were measured; the budget of the plan.
   gives: exl2__convert_allocate. */
#ifndef EXL2__CONVERT_ALLOCATE_H
#define EXL2__CONVERT_ALLOCATE_H

#include "convert_plan.h"

/* Losses times sensitivities, for exl2__allocate_run. */
EXL2__PRIVATE exl2_result exl2__convert_allocate_in(exl2__convert *v, exl2__allocate_linear *linears, double *losses)
{
    uint32_t count = exl2__convert_allocated(v);
    for (uint32_t i = 0; i < count; i++) {
        exl2__linear *linear = &v->linears.items[i];
        uint32_t cells = EXL2__LOSSES_WIDTHS * (linear->in / 32);
        for (uint32_t k = 0; k < cells; k++) {
            losses[k] = linear->losses[k] * linear->measured->sensitivity;
        }
        linears[i] = (exl2__allocate_linear){ linear->in, linear->columns, linear->has_bias, losses, linear->widths };
        losses += cells;
    }
    return exl2__allocate_run(v->c, linears, count, v->budget);
}

EXL2__PRIVATE exl2_result exl2__convert_allocate(exl2__convert *v)
{
    exl2__arena dry = { 0 }, memory;
    uint64_t cells = 0;
    if (v->linears.chosen) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < exl2__convert_allocated(v); i++) {
        cells += (uint64_t)EXL2__LOSSES_WIDTHS * (v->linears.items[i].in / 32);
    }
    exl2__arena_alloc(&dry, v->linears.count * sizeof(exl2__allocate_linear));
    exl2__arena_alloc(&dry, cells * sizeof(double));
    EXL2__TRY(exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__allocate_linear *linears =
        (exl2__allocate_linear *)exl2__arena_alloc(&memory, v->linears.count * sizeof *linears);
    double *losses = (double *)exl2__arena_alloc(&memory, cells * sizeof *losses);
    exl2_result result = exl2__convert_allocate_in(v, linears, losses);
    exl2__arena_close(v->c, &memory);
    return result;
}

#endif
