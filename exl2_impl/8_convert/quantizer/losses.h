/* losses.h: what each block of 32 rows of a matrix would lose at each width: the measurement that allocate.h works on.
   takes: a solve with its weights.
   gives: EXL2__LOSSES_WIDTHS, exl2__losses_bits, exl2__losses, exl2__losses_run.
   owns:  scratch, until exl2__losses_run returns.

   The loss of a block is the sum over its rows of D times the squared error of rounding to nearest, with the best scale
   and levels. Summed over a layout, that is within -1 to +11 % of what the loop of solve.h leaves. */
#ifndef EXL2__LOSSES_H
#define EXL2__LOSSES_H

#include "solve.h"

#define EXL2__LOSSES_WIDTHS 6u /* 2, 3, 4, 5, 6 and 8 bits */
#define EXL2__LOSSES_TRIES 8u  /* scales that are tried */
#define EXL2__LOSSES_BLOCK EXL2__PACK_UNIT

static inline uint32_t exl2__losses_bits(uint32_t width) { return width == 5 ? 8 : width + 2; }

typedef struct exl2__losses {
    const exl2__factor *factor;
    const float *weights; /* [strips, in, 32] */
    exl2__gpu_solve *on_gpu; /* NULL: the weights are here */
    uint32_t strips, blocks;
    exl2_cpu_path path;
    float *peaks;         /* [strips, blocks] */
    double *sums;         /* [strips, blocks, WIDTHS, TRIES], on a GPU of one strip */
    uint16_t *tries;      /* [blocks, WIDTHS, TRIES] */
} exl2__losses;

static inline const float *exl2__losses_strip(const exl2__losses *l, uint32_t strip, uint32_t row)
{
    return l->weights + ((size_t)strip * l->factor->in + row) * EXL2__PANELS_LANES;
}

/* Task: the peaks of all blocks in one strip. */
EXL2__PRIVATE void exl2__losses_peaks(void *arg, uint32_t strip)
{
    const exl2__losses *l = (const exl2__losses *)arg;
    for (uint32_t b = 0; b < l->blocks; b++) {
        float peaks[EXL2__PANELS_LANES], most = 0;
        exl2__quantize_peaks(exl2__losses_strip(l, strip, b * EXL2__LOSSES_BLOCK), EXL2__LOSSES_BLOCK, peaks);
        for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
            most = most > peaks[k] ? most : peaks[k];
        }
        l->peaks[(size_t)strip * l->blocks + b] = most;
    }
}

/* Task: the weighted errors of all blocks, widths and tries in one strip. */
EXL2__PRIVATE void exl2__losses_errors(void *arg, uint32_t strip)
{
    const exl2__losses *l = (const exl2__losses *)arg;
    size_t per_block = EXL2__LOSSES_WIDTHS * EXL2__LOSSES_TRIES;
    for (uint32_t b = 0; b < l->blocks; b++) {
        const float *x = exl2__losses_strip(l, strip, b * EXL2__LOSSES_BLOCK);
        float peaks[EXL2__PANELS_LANES];
        exl2__quantize_peaks(x, EXL2__LOSSES_BLOCK, peaks);
        for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
            double *sums = l->sums + ((size_t)strip * l->blocks + b) * per_block + w * EXL2__LOSSES_TRIES;
            memset(sums, 0, EXL2__LOSSES_TRIES * sizeof *sums);
            exl2__quantize_errors(l->path, x, l->factor->diagonal + b * EXL2__LOSSES_BLOCK, EXL2__LOSSES_BLOCK, peaks,
                                  exl2__losses_bits(w), l->tries + b * per_block + w * EXL2__LOSSES_TRIES,
                                  EXL2__LOSSES_TRIES, sums);
        }
    }
}

EXL2__PRIVATE void exl2__losses_layout(exl2__losses *l, exl2__arena *a)
{
    size_t per_block = EXL2__LOSSES_WIDTHS * EXL2__LOSSES_TRIES, cells = (size_t)l->strips * l->blocks;
    l->peaks = (float *)exl2__arena_alloc(a, cells * sizeof *l->peaks);
    l->sums = (double *)exl2__arena_alloc(a, (l->on_gpu ? l->blocks : cells) * per_block * sizeof *l->sums);
    l->tries = (uint16_t *)exl2__arena_alloc(a, l->blocks * per_block * sizeof *l->tries);
}

/* The sums of the first strip become those of all strips. */
EXL2__PRIVATE exl2_result exl2__losses_sum(exl2__ctx *c, exl2__losses *l)
{
#ifndef EXL2_NO_CUDA
    if (l->on_gpu) {
        return exl2__gpu_losses(l->on_gpu, l->sums);
    }
#endif
    exl2__tasks_run(c, l->strips, exl2__losses_peaks, l);
    for (uint32_t b = 0; b < l->blocks; b++) {
        float peak = 0;
        for (uint32_t strip = 0; strip < l->strips; strip++) {
            float most = l->peaks[(size_t)strip * l->blocks + b];
            peak = peak > most ? peak : most;
        }
        for (uint32_t w = 0; w < EXL2__LOSSES_WIDTHS; w++) {
            exl2__quantize_tries(peak, exl2__losses_bits(w), true, EXL2__LOSSES_TRIES,
                                 l->tries + ((size_t)b * EXL2__LOSSES_WIDTHS + w) * EXL2__LOSSES_TRIES);
        }
    }
    exl2__tasks_run(c, l->strips, exl2__losses_errors, l);
    size_t cells = (size_t)l->blocks * EXL2__LOSSES_WIDTHS * EXL2__LOSSES_TRIES;
    for (uint32_t strip = 1; strip < l->strips; strip++) {
        for (size_t i = 0; i < cells; i++) {
            l->sums[i] += l->sums[strip * cells + i];
        }
    }
    return EXL2_OK;
}

/* out [WIDTHS, in / 32]: the losses of the blocks, in units of tr(E' H E). */
EXL2__PRIVATE exl2_result exl2__losses_run(exl2__ctx *c, exl2__solve *s, double *out)
{
    exl2__arena dry = { 0 }, memory;
    exl2__losses l = { 0 };
    l.factor = s->factor;
    l.weights = s->weights;
    l.on_gpu = s->factor->on_gpu.gpu ? &s->on_gpu : NULL;
    l.strips = s->strips;
    l.path = s->path;
    l.blocks = s->factor->in / EXL2__LOSSES_BLOCK;
    exl2__losses_layout(&l, &dry);
    EXL2__TRY(exl2__arena_open(c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__losses_layout(&l, &memory);
    exl2_result result = exl2__losses_sum(c, &l);
    for (uint32_t i = 0; result >= 0 && i < l.blocks * EXL2__LOSSES_WIDTHS; i++) {
        double least = l.sums[(size_t)i * EXL2__LOSSES_TRIES];
        for (uint32_t t = 1; t < EXL2__LOSSES_TRIES; t++) {
            double sum = l.sums[(size_t)i * EXL2__LOSSES_TRIES + t];
            least = sum < least ? sum : least;
        }
        out[i % EXL2__LOSSES_WIDTHS * l.blocks + i / EXL2__LOSSES_WIDTHS] = least * s->factor->mean;
    }
    exl2__arena_close(c, &memory);
    return result;
}

#endif
