/* factor.h: the factorization that one input's statistics need, once for all matrices that share the input.
   takes: H [in, in], the second moments of the input (x'x / tokens), as strips of 32 columns.
   gives: exl2__factor, exl2__factor_make, exl2__factor_close.
   owns:  the order, H and its factor, until exl2__factor_close.

   The packed order is by diag(H), descending, because the first rows get the most bits. Hd = H + d I = A A', where A
   is upper triangular (a Cholesky factorization from the last row up). Roundings from the first row to the last, in
   which each row compensates the errors E of the rows before it, leave the loss
       tr(E' Hd E) = sum over rows i of D[i] * (what row i was rounded by)^2,   D[i] = A[i][i]^2,
   if row i aims at W[i] - sum over j < i of F[j][i] * E[j],   F[j][i] = A[j][i] / A[i][i].
   (GPTQ computes the same from U = inverse(A): inverse(Hd) = U'U, D[i] = 1 / U[i][i]^2. Without the inverse there is
   less to compute.) All is divided by the mean of diag(H), so that floats neither overflow nor underflow. */
#ifndef EXL2__FACTOR_H
#define EXL2__FACTOR_H

#include "../../0_base/arena.h"
#include "../../0_base/sort.h"
#include "../gpu/gpu_factor.h"
#include "panels.h"

#include <math.h>

#define EXL2__FACTOR_DAMP 0.01f  /* d, as a fraction of the mean of diag(H) */
#define EXL2__FACTOR_TRIES 16u   /* how often d is doubled before the factorization fails */
#define EXL2__FACTOR_BLOCK EXL2__PANELS_LANES /* rows that are factored together */

typedef struct exl2__factor {
    uint32_t in;
    uint32_t *order;     /* [in] input feature of each packed row */
    float *diagonal;     /* [in] D, divided by `mean` */
    double mean;         /* of diag(H); 1 if H is 0, which then counts as the identity */
    float damp;          /* d / mean */
    exl2__panels hessian;  /* Hd / mean, in packed order */
    exl2__panels feedback; /* F; rows below the diagonal are not used */
    exl2__gpu_factor on_gpu; /* its gpu NULL: both are in host memory; else on the GPU, without data here */
    exl2__arena memory;
    float *lower;        /* [in / 32, in, 32] A', while the factorization runs */
} exl2__factor;

/* ---- packed order ---- */

typedef struct exl2__factor_rank {
    const double *energy; /* diag(H) */
    uint32_t *order;
} exl2__factor_rank;

EXL2__PRIVATE bool exl2__factor_rank_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__factor_rank *r = (const exl2__factor_rank *)items;
    double x = r->energy[r->order[a]], y = r->energy[r->order[b]];
    return x > y || (x == y && r->order[a] < r->order[b]);
}

EXL2__PRIVATE void exl2__factor_rank_swap(void *items, uint32_t a, uint32_t b)
{
    const exl2__factor_rank *r = (const exl2__factor_rank *)items;
    uint32_t kept = r->order[a];
    r->order[a] = r->order[b];
    r->order[b] = kept;
}

/* ---- the factorization, in blocks of 32 rows from the last to the first ---- */

typedef struct exl2__factor_block {
    exl2__factor *f;
    uint32_t first; /* of its rows */
    float *panel;   /* [32 / width, in - first - 32, width] of A' at its columns, below its rows */
} exl2__factor_block;

static inline float *exl2__factor_lower(const exl2__factor *f, uint32_t strip, uint32_t row)
{
    return f->lower + ((size_t)strip * f->in + row) * EXL2__PANELS_LANES;
}

/* Task: the rows of the block in one strip, minus what the rows below have accounted for. */
EXL2__PRIVATE void exl2__factor_block_update(void *arg, uint32_t strip)
{
    const exl2__factor_block *b = (const exl2__factor_block *)arg;
    const exl2__factor *f = b->f;
    uint32_t width = f->hessian.width, below = b->first + EXL2__FACTOR_BLOCK, rows = f->in - below;
    for (uint32_t c = 0; rows > 0 && c < EXL2__FACTOR_BLOCK; c += width) {
        exl2__panels_strip_product(f->hessian.ops, b->panel + (size_t)c * rows, width,
                                   exl2__factor_lower(f, strip, below), rows,
                                   exl2__factor_lower(f, strip, b->first + c), -1);
    }
}

/* Factors the block on the diagonal: M = L'L with L lower triangular, in place. false: M is not positive definite. */
EXL2__PRIVATE bool exl2__factor_block_diagonal(const exl2__factor_block *b)
{
    float *m = exl2__factor_lower(b->f, b->first / EXL2__PANELS_LANES, b->first);
    for (uint32_t i = EXL2__FACTOR_BLOCK; i-- > 0;) {
        double left[EXL2__FACTOR_BLOCK];
        for (uint32_t k = 0; k <= i; k++) {
            left[k] = (double)m[i * EXL2__FACTOR_BLOCK + k];
        }
        for (uint32_t j = i + 1; j < EXL2__FACTOR_BLOCK; j++) {
            double factor = (double)m[j * EXL2__FACTOR_BLOCK + i];
            for (uint32_t k = 0; k <= i; k++) {
                left[k] -= factor * (double)m[j * EXL2__FACTOR_BLOCK + k];
            }
        }
        /* less than what damping alone leaves is lost in rounding */
        if (!(left[i] > (double)b->f->damp * 1e-3)) {
            return false;
        }
        double root = sqrt(left[i]);
        for (uint32_t k = 0; k < EXL2__FACTOR_BLOCK; k++) {
            m[i * EXL2__FACTOR_BLOCK + k] = k <= i ? (float)(left[k] / root) : 0.0f;
        }
    }
    return true;
}

/* Task: the rows of the block in one strip to its left: solves L_bb' X = M for X, from the last row up. */
EXL2__PRIVATE void exl2__factor_block_solve(void *arg, uint32_t strip)
{
    const exl2__factor_block *b = (const exl2__factor_block *)arg;
    const float *l = exl2__factor_lower(b->f, b->first / EXL2__PANELS_LANES, b->first);
    float *x = exl2__factor_lower(b->f, strip, b->first);
    for (uint32_t i = EXL2__FACTOR_BLOCK; i-- > 0;) {
        float *row = x + (size_t)i * EXL2__PANELS_LANES;
        for (uint32_t j = i + 1; j < EXL2__FACTOR_BLOCK; j++) {
            float factor = l[j * EXL2__FACTOR_BLOCK + i];
            for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
                row[k] -= factor * x[(size_t)j * EXL2__PANELS_LANES + k];
            }
        }
        float inverse = 1 / l[i * EXL2__FACTOR_BLOCK + i];
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            row[k] *= inverse;
        }
    }
}

/* Task: copies Hd from its panels to one strip. */
EXL2__PRIVATE void exl2__factor_load(void *arg, uint32_t strip)
{
    const exl2__factor_block *b = (const exl2__factor_block *)arg;
    for (uint32_t row = 0; row < b->f->in; row++) {
        float *to = exl2__factor_lower(b->f, strip, row);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            to[k] = *exl2__panels_at(&b->f->hessian, row, strip * EXL2__PANELS_LANES + k);
        }
    }
}

EXL2__PRIVATE bool exl2__factor_run(const exl2__ctx *c, exl2__factor_block *b)
{
    exl2__factor *f = b->f;
    exl2__tasks_run(c, f->in / EXL2__PANELS_LANES, exl2__factor_load, b);
    for (b->first = f->in; b->first > 0;) {
        b->first -= EXL2__FACTOR_BLOCK;
        uint32_t strip = b->first / EXL2__PANELS_LANES, width = f->hessian.width;
        uint32_t below = b->first + EXL2__FACTOR_BLOCK, rows = f->in - below;
        for (uint32_t row = 0; row < rows; row++) {
            const float *from = exl2__factor_lower(f, strip, below + row);
            for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
                b->panel[((size_t)(k / width) * rows + row) * width + k % width] = from[k];
            }
        }
        exl2__tasks_run(c, strip + 1, exl2__factor_block_update, b);
        if (!exl2__factor_block_diagonal(b)) {
            return false;
        }
        exl2__tasks_run(c, strip, exl2__factor_block_solve, b);
    }
    return true;
}

/* Task: F from A', one panel. */
EXL2__PRIVATE void exl2__factor_feedback(void *arg, uint32_t panel)
{
    const exl2__factor_block *b = (const exl2__factor_block *)arg;
    const exl2__factor *f = b->f;
    for (uint32_t k = 0; k < f->feedback.width; k++) {
        uint32_t column = panel * f->feedback.width + k;
        float root = *(exl2__factor_lower(f, column / EXL2__PANELS_LANES, column) + column % EXL2__PANELS_LANES);
        f->diagonal[column] = root * root;
        for (uint32_t row = 0; row < column; row++) {
            float a = exl2__factor_lower(f, row / EXL2__PANELS_LANES, column)[row % EXL2__PANELS_LANES];
            *exl2__panels_at(&f->feedback, row, column) = a / root;
        }
        for (uint32_t row = column; row < f->in; row++) {
            *exl2__panels_at(&f->feedback, row, column) = 0;
        }
    }
}

/* ---- making one ---- */

EXL2__PRIVATE void exl2__factor_close(exl2__ctx *c, exl2__factor *f)
{
#ifndef EXL2_NO_CUDA
    exl2__gpu_factor_close(&f->on_gpu);
#endif
    exl2__arena_close(c, &f->memory);
    *f = (exl2__factor){ 0 };
}

EXL2__PRIVATE void exl2__factor_layout(exl2__factor *f, exl2__arena *a)
{
    f->order = (uint32_t *)exl2__arena_alloc(a, f->in * sizeof *f->order);
    f->diagonal = (float *)exl2__arena_alloc(a, f->in * sizeof *f->diagonal);
    if (f->on_gpu.gpu) {
        return;
    }
    f->hessian.data = (float *)exl2__arena_alloc(a, exl2__panels_bytes(f->in));
    f->feedback.data = (float *)exl2__arena_alloc(a, exl2__panels_bytes(f->in));
}

/* Scratch of a factorization, freed at its end. */
typedef struct exl2__factor_scratch {
    float *lower, *panel;
    double *energy;
} exl2__factor_scratch;

EXL2__PRIVATE exl2__factor_scratch exl2__factor_scratch_layout(uint32_t in, bool on_gpu, exl2__arena *a)
{
    exl2__factor_scratch s = { NULL, NULL, NULL };
    if (!on_gpu) {
        s.lower = (float *)exl2__arena_alloc(a, exl2__panels_bytes(in));
        s.panel = (float *)exl2__arena_alloc(a, (uint64_t)in * EXL2__FACTOR_BLOCK * sizeof *s.panel);
    }
    s.energy = (double *)exl2__arena_alloc(a, in * sizeof *s.energy);
    return s;
}

/* Reads H: its order and its mean. */
EXL2__PRIVATE exl2_result exl2__factor_rank_all(exl2__ctx *c, const char *name, const float *gram, double *energy,
                                                exl2__factor *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->in; i++) {
        energy[i] = (double)gram[((size_t)(i / EXL2__PANELS_LANES) * f->in + i) * EXL2__PANELS_LANES
                                 + i % EXL2__PANELS_LANES];
        f->order[i] = i;
        sum += energy[i];
    }
    if (!(sum >= 0 && sum < 3e38)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: the activations of its input are not finite", name);
    }
    exl2__factor_rank rank = { energy, f->order };
    exl2__sort_items items = { &rank, exl2__factor_rank_less, exl2__factor_rank_swap };
    exl2__sort(&items, f->in);
    f->mean = sum > 0 ? sum / f->in : 1;
    f->damp = sum > 0 ? EXL2__FACTOR_DAMP : 1;
    return EXL2_OK;
}

/* The panels of H in packed order, without damping. */
EXL2__PRIVATE void exl2__factor_read(const float *gram, exl2__factor *f)
{
    float inverse = (float)(1 / f->mean);
    for (uint32_t row = 0; row < f->in; row++) {
        for (uint32_t column = 0; column < f->in; column++) {
            uint32_t from = f->order[column];
            float h = gram[((size_t)(from / EXL2__PANELS_LANES) * f->in + f->order[row]) * EXL2__PANELS_LANES
                           + from % EXL2__PANELS_LANES];
            *exl2__panels_at(&f->hessian, row, column) = h * inverse;
        }
    }
}

EXL2__PRIVATE void exl2__factor_damp(exl2__factor *f, float d)
{
    for (uint32_t i = 0; i < f->in; i++) {
        *exl2__panels_at(&f->hessian, i, i) += d;
    }
}

EXL2__PRIVATE exl2_result exl2__factor_failed(exl2__ctx *c, const char *name)
{
    return exl2__fail(c, EXL2_ERR_FORMAT, "%s: the moments of its input cannot be factored", name);
}

#ifndef EXL2_NO_CUDA
EXL2__PRIVATE exl2_result exl2__factor_gpu(exl2__ctx *c, const char *name, const float *gram, exl2__factor *f)
{
    bool failed;
    for (uint32_t i = 0;; i++) {
        EXL2__TRY(exl2__gpu_factor_make(&f->on_gpu, gram, f->order, f->in, (float)(1 / f->mean), f->damp, f->diagonal,
                                        &failed));
        if (!failed) {
            return EXL2_OK;
        }
        if (i == EXL2__FACTOR_TRIES) {
            return exl2__factor_failed(c, name);
        }
        f->damp *= 2;
    }
}
#endif

EXL2__PRIVATE exl2_result exl2__factor_steps(exl2__ctx *c, const char *name, const float *gram, exl2__factor *f,
                                             const exl2__factor_scratch *s)
{
    exl2__factor_block b = { f, 0, s->panel };
    EXL2__TRY(exl2__factor_rank_all(c, name, gram, s->energy, f));
#ifndef EXL2_NO_CUDA
    if (f->on_gpu.gpu) {
        return exl2__factor_gpu(c, name, gram, f);
    }
#endif
    exl2__factor_read(gram, f);
    exl2__factor_damp(f, f->damp);
    f->lower = s->lower;
    for (uint32_t i = 0; !exl2__factor_run(c, &b); i++) {
        if (i == EXL2__FACTOR_TRIES) {
            return exl2__factor_failed(c, name);
        }
        exl2__factor_damp(f, f->damp); /* d is doubled */
        f->damp *= 2;
    }
    exl2__tasks_run(c, f->in / f->feedback.width, exl2__factor_feedback, &b);
    f->lower = NULL;
    return EXL2_OK;
}

/* gram [in / 32, in, 32]: H, symmetric; in: a multiple of 32. name: the layer, for messages. gpu: where the factor is
   made and stays; NULL: the CPU. After a failure *f is zeroed. */
EXL2__PRIVATE exl2_result exl2__factor_make(exl2__ctx *c, exl2__gpu *gpu, const char *name, const float *gram,
                                            uint32_t in, exl2__factor *f)
{
    exl2__arena dry = { 0 }, memory = { 0 };
    const exl2__cpu_ops *ops = exl2__cpu_choose(c->cpu_path);
    *f = (exl2__factor){ 0 };
    f->in = in;
    f->on_gpu.gpu = gpu;
    f->hessian.ops = f->feedback.ops = ops;
    f->hessian.size = f->feedback.size = in;
    f->hessian.width = f->feedback.width = exl2__panels_width(ops);
    exl2__factor_layout(f, &dry);
    EXL2__TRY(exl2__arena_open(c, &f->memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__factor_layout(f, &f->memory);
    dry = (exl2__arena){ 0 };
    exl2__factor_scratch_layout(in, gpu != NULL, &dry);
    exl2_result result = exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH);
    if (result >= 0) {
        exl2__factor_scratch scratch = exl2__factor_scratch_layout(in, gpu != NULL, &memory);
        result = exl2__factor_steps(c, name, gram, f, &scratch);
    }
    exl2__arena_close(c, &memory);
    if (result < 0) {
        exl2__factor_close(c, f);
    }
    return result;
}

#endif
