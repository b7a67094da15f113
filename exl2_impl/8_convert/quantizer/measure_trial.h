/* measure_trial.h: a trial: one matrix is replaced by its quantized form, and the probes run through the rest.
   takes: the original logits of the probes, the moments of the layer's inputs.
   gives: exl2__measure_copy, exl2__measure_kl, exl2__measure_kl_of; exl2__measure_trial, exl2__measure_part,
          exl2__measure_replace, exl2__measure_restore. */
#ifndef EXL2__MEASURE_TRIAL_H
#define EXL2__MEASURE_TRIAL_H

#include "measure_moments.h"
#include "measure_probe.h"

EXL2__PRIVATE void exl2__measure_add_kl(void *user, uint32_t row, const float *logits)
{
    const exl2__measure *m = (const exl2__measure *)user;
    uint32_t vocab = m->r->plan.shape.vocab, at = m->sequence * m->probe_length + row;
    float *scratch = m->scratch + (size_t)(row % m->r->plan.logit_rows_max) * exl2__compare_stride(vocab);
    const float *likely;
    uint32_t count = exl2__measure_likely(m, row, logits, &likely);
    exl2__compare_row other;
    m->kls[at] = exl2__compare_kl(exl2__runner_cpu(m->r)->ops, &m->probe[at], likely, count, scratch, &other);
}

/* KL divergences of the logits. */
typedef struct exl2__measure_kl {
    double mean;    /* of all tokens */
    double typical; /* of a sequence: (mean of the square roots)^2 */
} exl2__measure_kl;

/* The states of a trial, after its own layer and before the rest of the model. */
static inline exl2__runner_states exl2__measure_copy(const exl2__measure *m, uint32_t trial)
{
    return exl2__runner_states_at(m->r, &m->copies, (uint64_t)trial * m->probes * m->probe_length);
}

/* The KL divergence of the logits that the head makes of the probes' states. */
EXL2__PRIVATE exl2_result exl2__measure_kl_of(exl2__measure *m, const exl2__runner_states *states,
                                              exl2__measure_kl *out)
{
    double sum = 0, roots = 0;
#ifndef EXL2_NO_CUDA
    if (exl2__measure_on_gpu(m)) {
        EXL2__TRY(exl2__measure_logits_gpu(m, states, m->kls));
    }
#endif
    if (!exl2__measure_on_gpu(m)) {
        EXL2__TRY(exl2__measure_logits_cpu(m, states, exl2__measure_add_kl));
    }
    for (uint32_t i = 0; i < m->probes; i++) {
        double kl = 0;
        for (uint32_t k = 0; k < m->probe_length; k++) {
            kl += m->kls[i * m->probe_length + k];
        }
        sum += kl / m->probe_length;
        roots += sqrt(kl / m->probe_length);
    }
    *out = (exl2__measure_kl){ sum / m->probes, roots / m->probes * (roots / m->probes) };
    return EXL2_OK;
}

/* A quantized form of a part that stands in for it. */
typedef struct exl2__measure_trial {
    exl2__cpu_part *part, kept;
    void *memory;      /* [strips, in, 32] f16 */
    uint64_t bytes;
    bool on_gpu;       /* it is on the GPU instead */
    double loss;
} exl2__measure_trial;

/* Puts a quantized form in the place of a part: on the GPU, if its products are computed there. */
EXL2__PRIVATE exl2_result exl2__measure_replace(const exl2__measure *m, exl2__cpu_part *p, bool on_gpu, exl2__solve *s,
                                                exl2__measure_trial *trial)
{
#ifndef EXL2_NO_CUDA
    trial->on_gpu = on_gpu;
    if (on_gpu) {
        trial->part = p;
        trial->kept = *p;
        return exl2__gpu_solve_values(&s->on_gpu, p, NULL);
    }
#endif
    (void)on_gpu;
    trial->bytes = (uint64_t)p->in * s->columns * sizeof(uint16_t);
    EXL2__TRY(exl2__alloc(m->r->c, trial->bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &trial->memory));
    EXL2__TRY(exl2__solve_values(m->r->c, s, (uint16_t *)trial->memory));
    trial->part = p;
    trial->kept = *p;
    p->source = EXL2__CPU_F16;
    p->data = (uint8_t *)trial->memory;
    p->strip_bytes = (uint64_t)p->in * EXL2__PANELS_LANES * sizeof(uint16_t);
    return EXL2_OK;
}

/* Puts the original back. Accepts zeroed ones. */
EXL2__PRIVATE void exl2__measure_restore(const exl2__measure *m, exl2__measure_trial *trial)
{
    if (trial->part) {
        *trial->part = trial->kept;
    }
#ifndef EXL2_NO_CUDA
    if (trial->on_gpu) {
        exl2__gpu_solve_restore(m->gpu, trial->part);
    }
#endif
    exl2__free(m->r->c, trial->memory, trial->bytes, EXL2_MEM_SCRATCH);
    *trial = (exl2__measure_trial){ 0 };
}

/* Measures one matrix, of whose columns `used` are used, and puts a quantized form in its place. on_gpu: its products
   run there. losses
   [EXL2__LOSSES_WIDTHS, in / 32]; out->share is given. Losses, power and trial->loss are those of a token of the
   model. */
EXL2__PRIVATE exl2_result exl2__measure_part(exl2__measure *m, exl2__cpu_part *p, bool on_gpu, uint32_t used,
                                             const exl2__factor *f, double *losses, exl2__measure_matrix *out,
                                             exl2__measure_trial *trial)
{
    exl2__ctx *c = m->r->c;
    exl2__solve s;
    exl2__group groups[EXL2__MATRIX_IN_MAX / EXL2__SOLVE_ROWS + 1];
    uint32_t count = 0, columns = p->strips * EXL2__PANELS_LANES;
    for (uint32_t row = 0; row < f->in; row += groups[count++].rows) { /* large groups: this is only a trial */
        groups[count] = (exl2__group){ row, exl2__min32(EXL2__SOLVE_ROWS, f->in - row), 0, m->probe_bits };
    }
    EXL2__TRY(exl2__solve_open(c, f, columns, groups, count, &s));
    s.passes = 0;
    exl2_result result = exl2__solve_load(c, &s, p, used);
    result = result < 0 ? result : exl2__losses_run(c, &s, losses);
    for (uint32_t i = 0; i < EXL2__LOSSES_WIDTHS * (f->in / EXL2__LOSSES_BLOCK) && result >= 0; i++) {
        losses[i] *= out->share;
    }
    double power = 0, loss = 0;
    result = result < 0 ? result : exl2__solve_run(c, &s);
    result = result < 0 ? result : exl2__solve_energy(c, &s, false, &power);
    result = result < 0 ? result : exl2__solve_energy(c, &s, true, &loss);
    result = result < 0 ? result : exl2__measure_replace(m, p, on_gpu, &s, trial);
    out->power = power * out->share;
    trial->loss = loss * out->share;
    exl2__solve_close(c, &s);
    return result;
}

#endif
