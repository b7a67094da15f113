/* correct.h: targets that make up for errors which the matrices before have made already.
   takes: rows of one input: x of the original model, y of the one that is quantized up to here.
   gives: exl2__correct, exl2__correct_layout, exl2__correct_row, exl2__correct_add, exl2__correct_finish,
          exl2__correct_weights.
   owns:  nothing; its memory lies in the caller's arena.

   The matrix will see y, and should give what W makes of x. With H = y'y / tokens the least squares answer is
       W + inverse(H + dI) * y'(x - y) / tokens * W.
   Half of that step is made: the whole of it fits the tokens of calibration, and not others. */
#ifndef EXL2__CORRECT_H
#define EXL2__CORRECT_H

#include "gram.h"
#include "solve.h"
#include "../gpu/gpu_correct.h"

#define EXL2__CORRECT_STEP 0.5f

typedef struct exl2__correct {
    exl2__gpu *gpu;      /* NULL: the CPU; else all of it is on the GPU */
    exl2__gram *gram;    /* of y; has the current chunk of y, too */
    float *strips;       /* [in / 32, rows_max, 32] the current chunk of x - y */
    float *sum;          /* [in / 32, in, 32] y'(x - y) */
    exl2__panels turned; /* the same / tokens, transposed, in packed order */
} exl2__correct;

/* widest: the largest input; rows_max: of a chunk. */
EXL2__PRIVATE void exl2__correct_layout(exl2__correct *k, exl2__gpu *gpu, uint32_t widest, uint32_t rows_max,
                                        exl2__arena *a)
{
    k->gpu = gpu;
    if (gpu) {
        return;
    }
    k->strips = (float *)exl2__arena_alloc(a, exl2__gram_work_bytes(widest, rows_max));
    k->sum = (float *)exl2__arena_alloc(a, exl2__panels_bytes(widest));
    k->turned.data = (float *)exl2__arena_alloc(a, exl2__panels_bytes(widest));
}

/* Begins the sums of an input. */
EXL2__PRIVATE exl2_result exl2__correct_begin(exl2__correct *k, exl2__gram *gram, uint32_t in)
{
    k->gram = gram;
#ifndef EXL2_NO_CUDA
    if (k->gpu) {
        EXL2__TRY(exl2__gram_begin(gram, in));
        return exl2__gpu_correct_begin(k->gpu, in);
    }
#endif
    gram->in = in;
    gram->tokens = 0;
    memset(gram->sum, 0, (size_t)exl2__panels_bytes(in));
    memset(k->sum, 0, (size_t)exl2__panels_bytes(in));
    return EXL2_OK;
}

/* Sets row `row` of the current chunk. */
static inline void exl2__correct_row(const exl2__correct *k, uint32_t row, const float *x, const float *y)
{
    exl2__gram_row(k->gram, row, y);
    for (uint32_t i = 0; i < k->gram->in; i++) {
        k->strips[((size_t)(i / EXL2__PANELS_LANES) * k->gram->rows_max + row) * EXL2__PANELS_LANES
                  + i % EXL2__PANELS_LANES] = x[i] - y[i];
    }
}

/* Task: one strip of columns of y'(x - y). */
EXL2__PRIVATE void exl2__correct_task(void *arg, uint32_t strip)
{
    const exl2__correct *k = (const exl2__correct *)arg;
    const exl2__gram *g = k->gram;
    for (uint32_t row = 0; row < g->in; row += g->width) {
        exl2__panels_strip_product(g->ops, g->panels + (size_t)row * g->rows_max, g->width,
                                   k->strips + (size_t)strip * g->rows_max * EXL2__PANELS_LANES, g->rows,
                                   k->sum + ((size_t)strip * g->in + row) * EXL2__PANELS_LANES, 1);
    }
}

/* Adds the first `rows` rows of the current chunk; with a GPU, those that exl2__gpu_correct_keep has kept, and the
   current input. */
EXL2__PRIVATE exl2_result exl2__correct_add(const exl2__ctx *c, exl2__correct *k, uint32_t rows)
{
    EXL2__TRY(exl2__gram_add(c, k->gram, rows));
#ifndef EXL2_NO_CUDA
    if (k->gpu) {
        return exl2__gpu_correct_add(k->gpu);
    }
#endif
    exl2__tasks_run(c, k->gram->in / EXL2__PANELS_LANES, exl2__correct_task, k);
    return EXL2_OK;
}

/* Brings the sums into the order of a factor of k->gram, which is finished. */
EXL2__PRIVATE exl2_result exl2__correct_finish(exl2__correct *k, const exl2__factor *f)
{
    float tokens = (float)k->gram->tokens;
#ifndef EXL2_NO_CUDA
    if (k->gpu) {
        return exl2__gpu_correct_finish(&f->on_gpu, f->in, 1 / tokens);
    }
#endif
    k->turned = (exl2__panels){ f->hessian.ops, k->turned.data, f->in, f->hessian.width };
    for (uint32_t row = 0; row < f->in; row++) {
        for (uint32_t column = 0; column < f->in; column++) {
            uint32_t y = f->order[column], x = f->order[row];
            *exl2__panels_at(&k->turned, row, column) =
                k->sum[((size_t)(x / EXL2__PANELS_LANES) * f->in + y) * EXL2__PANELS_LANES + x % EXL2__PANELS_LANES]
                / tokens;
        }
    }
    return EXL2_OK;
}

/* g [in, 32] = inverse(Hd) g, in units of mean / Hd: with Hd = A A', first A, from the last row up, and then A'. */
EXL2__PRIVATE void exl2__correct_solve(const exl2__factor *f, float *g)
{
    for (uint32_t i = f->in; i-- > 0;) {
        for (uint32_t j = i + 1; j < f->in; j++) {
            exl2__solve_subtract(g + (size_t)i * EXL2__PANELS_LANES, *exl2__panels_at(&f->feedback, i, j),
                                 g + (size_t)j * EXL2__PANELS_LANES);
        }
    }
    for (uint32_t i = 0; i < f->in; i++) {
        float *row = g + (size_t)i * EXL2__PANELS_LANES, inverse = 1 / f->diagonal[i];
        for (uint32_t n = 0; n < EXL2__PANELS_LANES; n++) {
            row[n] *= inverse;
        }
        for (uint32_t j = 0; j < i; j++) {
            exl2__solve_subtract(row, *exl2__panels_at(&f->feedback, j, i), g + (size_t)j * EXL2__PANELS_LANES);
        }
    }
}

typedef struct exl2__correct_job {
    const exl2__correct *k;
    const exl2__solve *s;
} exl2__correct_job;

/* Task: the targets of one strip. Where they are too large for the format, the weights stay. */
EXL2__PRIVATE void exl2__correct_strip(void *arg, uint32_t strip)
{
    const exl2__correct_job *job = (const exl2__correct_job *)arg;
    const exl2__factor *f = job->s->factor;
    float *w = exl2__solve_strip(job->s->weights, job->s, strip);
    float *g = exl2__solve_strip(job->s->errors, job->s, strip); /* not used yet */
    float scale = EXL2__CORRECT_STEP / (float)f->mean;
    size_t count = (size_t)f->in * EXL2__PANELS_LANES;
    exl2__panels_product(&job->k->turned, 0, f->in, 0, f->in, w, g);
    exl2__correct_solve(f, g);
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        float x = w[i] + scale * g[i];
        fits = fits && x <= EXL2__QUANTIZE_MAX && x >= -EXL2__QUANTIZE_MAX; /* a NaN does not */
    }
    for (size_t i = 0; fits && i < count; i++) {
        w[i] += scale * g[i];
    }
}

/* Changes s->weights to the targets, before exl2__solve_run. s->factor: the one of exl2__correct_finish. */
EXL2__PRIVATE exl2_result exl2__correct_weights(const exl2__ctx *c, const exl2__correct *k, exl2__solve *s)
{
    exl2__correct_job job = { k, s };
#ifndef EXL2_NO_CUDA
    if (k->gpu) {
        return exl2__gpu_correct_weights(&s->on_gpu, &s->factor->on_gpu, EXL2__CORRECT_STEP / (float)s->factor->mean,
                                         EXL2__QUANTIZE_MAX);
    }
#endif
    exl2__tasks_run(c, s->strips, exl2__correct_strip, &job);
    return EXL2_OK;
}

#endif
