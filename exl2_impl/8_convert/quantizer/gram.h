/* gram.h: second moments of inputs: sums of x'x over the tokens.
   takes: rows of one input, in chunks.
   gives: exl2__gram, exl2__gram_layout, exl2__gram_begin, exl2__gram_add, exl2__gram_finish,
          exl2__gram_mirror, exl2__gram_replaced.
   owns:  nothing; its memory lies in the caller's arena.

   Chunks are added in f32, always in the same order, so that the sums do not depend on the number of threads. Only the
   half below the diagonal is computed; exl2__gram_finish mirrors it. With a GPU, a chunk is the current input. */
#ifndef EXL2__GRAM_H
#define EXL2__GRAM_H

#include "../../0_base/arena.h"
#include "../gpu/gpu_inputs.h"
#include "panels.h"

typedef struct exl2__gram {
    const exl2__cpu_ops *ops;
    exl2__gpu *gpu;        /* NULL: the CPU; else sums are those of `number` there */
    uint32_t number;
    uint32_t in, width, rows_max; /* in: a multiple of 32 */
    uint64_t tokens;
    float *sum;    /* [in / 32, in, 32] as exl2__factor_make reads it */
    float *strips; /* [in / 32, rows_max, 32] the current chunk */
    float *panels; /* [in / width, rows_max, width] the current chunk in panels */
    uint32_t rows; /* of the current chunk */
} exl2__gram;

/* Lays out a gram in `a`, which may be dry. `strips` and `panels` of several grams may be the same memory: `work`
   [exl2__gram_work_bytes of the largest]. */
static inline uint64_t exl2__gram_work_bytes(uint32_t in, uint32_t rows_max)
{
    return (uint64_t)in * rows_max * sizeof(float);
}

EXL2__PRIVATE void exl2__gram_layout(exl2__gram *g, const exl2__cpu_ops *ops, uint32_t in, uint32_t rows_max,
                                     float *strips, float *panels, exl2__arena *a)
{
    *g = (exl2__gram){ 0 };
    g->ops = ops;
    g->in = in;
    g->width = exl2__panels_width(ops);
    g->rows_max = rows_max;
    g->sum = (float *)exl2__arena_alloc_zeroed(a, exl2__panels_bytes(in));
    g->strips = strips;
    g->panels = panels;
}

/* Sets row `row` of the current chunk. */
static inline void exl2__gram_row(const exl2__gram *g, uint32_t row, const float *x)
{
    for (uint32_t i = 0; i < g->in; i++) {
        g->strips[((size_t)(i / EXL2__PANELS_LANES) * g->rows_max + row) * EXL2__PANELS_LANES
                  + i % EXL2__PANELS_LANES] = x[i];
        g->panels[((size_t)(i / g->width) * g->rows_max + row) * g->width + i % g->width] = x[i];
    }
}

/* Task: one strip of columns, from the diagonal down. */
EXL2__PRIVATE void exl2__gram_task(void *arg, uint32_t strip)
{
    const exl2__gram *g = (const exl2__gram *)arg;
    for (uint32_t row = strip * EXL2__PANELS_LANES; row < g->in; row += g->width) {
        exl2__panels_strip_product(g->ops, g->panels + (size_t)row * g->rows_max, g->width,
                                   g->strips + (size_t)strip * g->rows_max * EXL2__PANELS_LANES, g->rows,
                                   g->sum + ((size_t)strip * g->in + row) * EXL2__PANELS_LANES, 1);
    }
}

/* Begins the sums. in: 0 if there is no such input now. */
EXL2__PRIVATE exl2_result exl2__gram_begin(exl2__gram *g, uint32_t in)
{
    g->in = in;
    g->tokens = 0;
#ifndef EXL2_NO_CUDA
    if (g->gpu) { /* those of experts begin together: exl2__gpu_experts_begin */
        return g->number < EXL2__GPU_INPUTS ? exl2__gpu_gram_begin(g->gpu, g->number, in) : EXL2_OK;
    }
#endif
    memset(g->sum, 0, (size_t)exl2__panels_bytes(in));
    return EXL2_OK;
}

/* Adds the first `rows` rows of the current chunk. */
EXL2__PRIVATE exl2_result exl2__gram_add(const exl2__ctx *c, exl2__gram *g, uint32_t rows)
{
    g->rows = rows;
    g->tokens += rows;
#ifndef EXL2_NO_CUDA
    if (g->gpu && g->in) {
        return exl2__gpu_gram_add(g->gpu, g->number);
    }
#endif
    exl2__tasks_run(c, g->in / EXL2__PANELS_LANES, exl2__gram_task, g);
    return EXL2_OK;
}

/* Task: copies what is below the diagonal in one strip to above it. */
EXL2__PRIVATE void exl2__gram_mirror_task(void *arg, uint32_t strip)
{
    const exl2__gram *g = (const exl2__gram *)arg;
    const float *from = g->sum + (size_t)strip * g->in * EXL2__PANELS_LANES;
    for (uint32_t row = strip * EXL2__PANELS_LANES; row < g->in; row++) {
        float *to = g->sum + (size_t)(row / EXL2__PANELS_LANES) * g->in * EXL2__PANELS_LANES + row % EXL2__PANELS_LANES;
        for (uint32_t k = 0; k < EXL2__PANELS_LANES && strip * EXL2__PANELS_LANES + k < row; k++) {
            size_t column = strip * EXL2__PANELS_LANES + k;
            to[column * EXL2__PANELS_LANES] = from[(size_t)row * EXL2__PANELS_LANES + k];
        }
    }
}

/* Fills in the half above the diagonal. */
EXL2__PRIVATE void exl2__gram_mirror(const exl2__ctx *c, exl2__gram *g)
{
    exl2__tasks_run(c, g->in / EXL2__PANELS_LANES, exl2__gram_mirror_task, g);
}

/* g->sum is filled in by other means: without what is above the diagonal, which a GPU does not read. */
EXL2__PRIVATE void exl2__gram_replaced(const exl2__ctx *c, exl2__gram *g)
{
#ifndef EXL2_NO_CUDA
    if (g->gpu) {
        if (g->number < EXL2__GPU_INPUTS) {
            g->gpu->sums[g->number].strips = NULL;
        }
        return;
    }
#endif
    exl2__gram_mirror(c, g);
}

/* Divides by the number of tokens, and fills in the other half. On the GPU, moments of experts are blended before. */
EXL2__PRIVATE exl2_result exl2__gram_finish(const exl2__ctx *c, exl2__gram *g)
{
    float share = g->tokens ? 1 / (float)g->tokens : 0;
#ifndef EXL2_NO_CUDA
    if (g->gpu) {
        return exl2__gpu_gram_finish(g->gpu, g->number, g->in, g->number < EXL2__GPU_INPUTS ? share : 1, g->sum);
    }
#endif
    for (uint32_t strip = 0; strip < g->in / EXL2__PANELS_LANES; strip++) {
        float *sum = g->sum + (size_t)strip * g->in * EXL2__PANELS_LANES;
        for (size_t i = (size_t)strip * EXL2__PANELS_LANES * EXL2__PANELS_LANES;
             i < (size_t)g->in * EXL2__PANELS_LANES; i++) {
            sum[i] *= share;
        }
    }
    exl2__gram_mirror(c, g);
    return EXL2_OK;
}

#endif
