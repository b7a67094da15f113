/* gpu_factor.h: the factorization of the moments of an input on the GPU (quantizer/factor.h says what it is).
   takes: H in host memory, in strips, of which only what is not above the diagonal is read; or as sums that are on the
          GPU still; the packed order; damping.
   gives: exl2__gpu_factor, exl2__gpu_factor_bytes, exl2__gpu_factor_make, exl2__gpu_factor_close.
   owns:  Hd, F and D in device memory, until exl2__gpu_factor_close. The context need not be current. */
#ifndef EXL2__GPU_FACTOR_H
#define EXL2__GPU_FACTOR_H

#include "gpu.h"

#ifdef EXL2_NO_CUDA
typedef struct exl2__gpu_factor {
    exl2__gpu *gpu; /* NULL */
} exl2__gpu_factor;
#else

typedef struct exl2__gpu_factor {
    exl2__gpu *gpu; /* NULL: the factor is in host memory */
    exl2__gpu_buffer hessian, feedback; /* [in, in] */
    exl2__gpu_buffer diagonal; /* [in] */
    exl2__gpu_buffer order;    /* [in] u32 */
} exl2__gpu_factor;

/* Accepts zeroed ones. */
EXL2__PRIVATE void exl2__gpu_factor_close(exl2__gpu_factor *f)
{
    if (f->gpu) {
        bool entered = exl2__gpu_enter(f->gpu);
        exl2__gpu_free(f->gpu, &f->hessian);
        exl2__gpu_free(f->gpu, &f->feedback);
        exl2__gpu_free(f->gpu, &f->diagonal);
        exl2__gpu_free(f->gpu, &f->order);
        exl2__gpu_leave(f->gpu, entered);
    }
    *f = (exl2__gpu_factor){ 0 };
}

/* Device memory of a factor; making: of what is needed only while it is made. */
static inline uint64_t exl2__gpu_factor_bytes(uint32_t in, bool making)
{
    uint64_t square = (uint64_t)in * in * sizeof(float);
    return making ? square + sizeof(uint32_t) : 2 * square + in * (sizeof(float) + sizeof(uint32_t));
}

/* What is needed only while it is made. */
typedef struct exl2__gpu_factor_scratch {
    exl2__gpu_buffer gram, failed; /* gram: H, unless the GPU has its sums; later A' */
} exl2__gpu_factor_scratch;

/* H becomes a->gram: the sums that it was made of, or a copy of what is in host memory. */
EXL2__PRIVATE exl2_result exl2__gpu_factor_gram(exl2__gpu *g, const exl2__gpu_factor_scratch *s, const float *gram,
                                                exl2k_factor_args *a)
{
    for (uint32_t i = 0; i < EXL2__GPU_INPUTS; i++) {
        if (g->sums[i].strips == gram) {
            a->gram = g->scratch[EXL2__GPU_SUMS + i].address;
            a->factor *= g->sums[i].factor;
            return EXL2_OK;
        }
    }
    a->gram = s->gram.address;
    a->strips = 1;
    return exl2__gpu_up(g, a->gram, gram, (uint64_t)a->in * a->in * sizeof(float));
}

/* Subtracts what rows [first, first + count) of A' account for from rows [top, end), in the columns before `end`. */
EXL2__PRIVATE exl2_result exl2__gpu_factor_update(exl2__gpu *g, const exl2k_factor_args *a, uint32_t first,
                                                  uint32_t count, uint32_t top, uint32_t end)
{
    uint64_t pitch = (uint64_t)a->in * sizeof(float);
    exl2k_float_product_args p = { .a = a->lower + first * pitch + top * sizeof(float), .b = a->lower + first * pitch,
                                   .c = a->lower + top * pitch, .m = end - top, .n = end, .k = count,
                                   .a_pitch = a->in, .b_width = a->in, .c_width = a->in, .lower = top == 0,
                                   .factor = -1, .add = 1 };
    return top < end ? exl2__gpu_float_product(g, &p, 1) : EXL2_OK;
}

/* One block after the other, from the last rows to the first. The other rows of its panel are kept up to date after
   each block, those above it after each panel. */
EXL2__PRIVATE exl2_result exl2__gpu_factor_blocks(exl2__gpu *g, exl2k_factor_args *a)
{
    for (uint32_t end = a->in, top; end > 0; end = top) {
        top = end > EXL2K_FACTOR_PANEL ? end - EXL2K_FACTOR_PANEL : 0;
        for (a->first = end; a->first > top;) {
            a->first -= EXL2K_FACTOR_BLOCK;
            EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_factor_diagonal, 1, 1, 32, 0, a));
            if (a->first > 0) {
                EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_factor_solve,
                                           (uint32_t)exl2__div_up(a->first, EXL2K_FACTOR_THREADS), 1,
                                           EXL2K_FACTOR_THREADS, 0, a));
            }
            EXL2__TRY(exl2__gpu_factor_update(g, a, a->first, EXL2K_FACTOR_BLOCK, top, a->first));
        }
        EXL2__TRY(exl2__gpu_factor_update(g, a, top, end - top, 0, top));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__gpu_factor_steps(exl2__gpu_factor *f, exl2__gpu_factor_scratch *s, const float *gram,
                                                 const uint32_t *order, exl2k_factor_args *a, float *diagonal,
                                                 bool *failed)
{
    exl2__gpu *g = f->gpu;
    uint64_t square = (uint64_t)a->in * a->in * sizeof(float);
    uint32_t flag = 0;
    if (!f->hessian.address) { /* else it failed with less damping */
        exl2__gpu_make_room(g, exl2__gpu_factor_bytes(a->in, false) + exl2__gpu_factor_bytes(a->in, true));
        EXL2__TRY(exl2__gpu_alloc(g, square, &f->hessian));
        EXL2__TRY(exl2__gpu_alloc(g, square, &f->feedback));
        EXL2__TRY(exl2__gpu_alloc(g, a->in * sizeof(float), &f->diagonal));
        EXL2__TRY(exl2__gpu_alloc(g, a->in * sizeof *order, &f->order));
    }
    EXL2__TRY(exl2__gpu_alloc(g, square, &s->gram));
    EXL2__TRY(exl2__gpu_alloc(g, sizeof flag, &s->failed));
    a->order = f->order.address;
    a->hessian = f->hessian.address;
    a->lower = s->gram.address;
    a->feedback = f->feedback.address;
    a->diagonal = f->diagonal.address;
    a->failed = s->failed.address;
    EXL2__TRY(exl2__gpu_factor_gram(g, s, gram, a));
    EXL2__TRY(exl2__gpu_up(g, a->order, order, a->in * sizeof *order));
    EXL2__TRY(exl2__gpu_fill(g, a->failed, sizeof flag));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_factor_read, (uint32_t)exl2__div_up(a->in, 256), a->in, 256, 0,
                               a));
    EXL2__TRY(exl2__gpu_copy(g, a->lower, a->hessian, square));
    EXL2__TRY(exl2__gpu_factor_blocks(g, a));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_factor_feedback, a->in / 32, a->in / 32, 256, 0, a));
    EXL2__TRY(exl2__gpu_down(g, &flag, a->failed, sizeof flag));
    *failed = flag != 0;
    return exl2__gpu_down(g, diagonal, a->diagonal, a->in * sizeof *diagonal);
}

/* gram [in / 32, in, 32]; order [in]; diagonal [in]: gets D. All is multiplied by `factor`, then `damp` is added to the
   diagonal. *failed: H + damp is not positive definite; with a larger damp it may be. f->gpu is set before. */
EXL2__PRIVATE exl2_result exl2__gpu_factor_make(exl2__gpu_factor *f, const float *gram, const uint32_t *order,
                                                uint32_t in, float factor, float damp, float *diagonal, bool *failed)
{
    exl2__gpu *g = f->gpu;
    exl2__gpu_factor_scratch s = { { 0, 0 }, { 0, 0 } };
    exl2k_factor_args a = { .in = in, .factor = factor, .damp = damp };
    *failed = false;
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_factor_steps(f, &s, gram, order, &a, diagonal, failed);
    if (result < 0) {
        g->d->driver.stream_wait(g->d->stream); /* kernels may still use the scratch */
    }
    exl2__gpu_free(g, &s.gram);
    exl2__gpu_free(g, &s.failed);
    return exl2__cuda_device_leave_with(g->d, result);
}
#endif

#endif
