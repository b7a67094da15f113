/* measure_probe.h: the original logits of the probes, with which trials are compared.
   takes: exl2__measure with its memory; the model's weights.
   gives: exl2__measure_likely, exl2__measure_probe_layer, exl2__measure_logits_cpu, exl2__measure_logits_gpu,
          exl2__measure_probes. */
#ifndef EXL2__MEASURE_PROBE_H
#define EXL2__MEASURE_PROBE_H

#include "measure.h"

/* The logits of a row that belong to m->strips, without gaps. Returns their number, of up to `vocab`. *likely: them. */
EXL2__PRIVATE uint32_t exl2__measure_likely(const exl2__measure *m, uint32_t row, const float *logits,
                                            const float **likely)
{
    uint32_t vocab = m->r->plan.shape.vocab, count = 0;
    float *out = m->likely + (size_t)(row % m->r->plan.logit_rows_max) * exl2__compare_stride(vocab);
    *likely = m->strip_count ? out : logits;
    for (uint32_t i = 0; i < m->strip_count; i++) {
        uint32_t first = m->strips[i] * EXL2__CPU_STRIP, some = exl2__min32(vocab - first, EXL2__CPU_STRIP);
        memcpy(out + count, logits + first, some * sizeof *out);
        count += some;
    }
    return m->strip_count ? count : vocab;
}

EXL2__PRIVATE void exl2__measure_keep_probe(void *user, uint32_t row, const float *logits)
{
    const exl2__measure *m = (const exl2__measure *)user;
    const float *likely;
    uint32_t count = exl2__measure_likely(m, row, logits, &likely);
    exl2__compare_row_make(exl2__runner_cpu(m->r)->ops, likely, count, &m->probe[m->sequence * m->probe_length + row]);
}

/* Runs `sets` copies of all probes through a layer, from one array of states to another, which may be the same. */
EXL2__PRIVATE exl2_result exl2__measure_probe_layer(exl2__measure *m, uint32_t layer, exl2__runner_states from,
                                                    exl2__runner_states to, uint32_t sets)
{
    exl2__runner *r = m->r;
    uint32_t all = sets * m->probes;
    EXL2__TRY(exl2__runner_hold(r, layer));
    for (uint32_t first = 0, count; first < all; first += count) {
        uint64_t at = (uint64_t)first * m->probe_length;
        count = exl2__min32(all - first, exl2__runner_together(r, layer, m->probe_length));
        EXL2__TRY(exl2__runner_begin_all(r, NULL, count, m->probe_length));
        EXL2__TRY(exl2__runner_get(r, &from, at, from.gpu != to.gpu));
        EXL2__TRY(exl2__runner_layer(r, layer, NULL, NULL));
        EXL2__TRY(exl2__runner_put(r, &to, at));
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_CUDA
#define EXL2__MEASURE_LOGITS 256u /* rows whose logits are computed together on a GPU */

/* On the GPU: the original model's logits of the probes (kls NULL), or divergences of other states from them. */
EXL2__PRIVATE exl2_result exl2__measure_logits_gpu(exl2__measure *m, const exl2__runner_states *states, double *kls)
{
    exl2__gpu *g = m->gpu;
    uint32_t rows = m->probes * m->probe_length, some;
    uint64_t columns = (uint64_t)exl2__cpu_matrix_of(m->r->plan.head)->parts->strips * EXL2__CPU_STRIP;
    exl2_result result = EXL2_OK;
    EXL2__TRY(exl2__runner_begin_all(m->r, NULL, m->probes, m->probe_length));
    EXL2__TRY(exl2__runner_get(m->r, states, 0, false));
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    for (uint32_t row = 0; row < rows && result >= 0; row += some) {
        uint64_t at = m->logits + row * columns * sizeof(float);
        some = exl2__min32(rows - row, EXL2__MEASURE_LOGITS);
        result = kls ? exl2__gpu_pass_kl(&m->r->pass, row, some, at, kls + row)
                     : exl2__gpu_pass_logits(&m->r->pass, row, some, at);
    }
    return exl2__cuda_device_leave_with(g->d, result);
}
#endif

/* On the CPU: gives the logits of m->strips that the head makes of the probes' states to `fn`. */
EXL2__PRIVATE exl2_result exl2__measure_logits_cpu(exl2__measure *m, const exl2__runner_states *states,
                                                   exl2__runner_logits_fn fn)
{
    uint32_t count;
    for (m->sequence = 0; m->sequence < m->probes; m->sequence += count) {
        count = exl2__min32(m->probes - m->sequence, exl2__runner_together(m->r, UINT32_MAX, m->probe_length));
        EXL2__TRY(exl2__runner_begin_all(m->r, NULL, count, m->probe_length));
        EXL2__TRY(exl2__runner_get(m->r, states, (uint64_t)m->sequence * m->probe_length, false));
        EXL2__TRY(exl2__runner_logits_strips(m->r, m->strips, m->strip_count, fn, m));
    }
    return EXL2_OK;
}

/* Chooses m->strips: those of the most probability in all probes, until a part of 1 - EXL2__MEASURE_MASS is left. A
   trial then costs a fraction of the head, and what the others would add to its KL divergence is much the same part for
   all matrices. mass [strips]: scratch. */
EXL2__PRIVATE void exl2__measure_choose_strips(exl2__measure *m, double *mass)
{
    uint32_t vocab = m->r->plan.shape.vocab, strips = (uint32_t)exl2__div_up(vocab, EXL2__CPU_STRIP);
    double left = (1 - EXL2__MEASURE_MASS) * m->probes * m->probe_length, low = 0, high = 0;
    memset(mass, 0, strips * sizeof *mass);
    for (uint32_t i = 0; i < m->probes * m->probe_length; i++) {
        for (uint32_t v = 0; v < vocab; v++) {
            mass[v / EXL2__CPU_STRIP] += (double)m->probe[i].probability[v];
        }
    }
    for (uint32_t i = 0; i < strips; i++) {
        high = mass[i] > high ? mass[i] : high;
    }
    for (uint32_t step = 0; step < 50; step++) { /* low: the most mass that a strip must have to be kept */
        double middle = (low + high) / 2, lost = 0;
        for (uint32_t i = 0; i < strips; i++) {
            lost += mass[i] < middle ? mass[i] : 0;
        }
        *(lost <= left ? &low : &high) = middle;
    }
    for (uint32_t i = 0; i < strips; i++) {
        m->strips[m->strip_count] = i;
        m->strip_count += mass[i] >= low;
    }
}

/* The probes' logits on the CPU: all of them, and then those that are compared. */
EXL2__PRIVATE exl2_result exl2__measure_probes_cpu(exl2__measure *m)
{
    void *mass;
    uint64_t bytes = exl2__div_up(m->r->plan.shape.vocab, EXL2__CPU_STRIP) * sizeof(double);
    m->strip_count = 0;
    EXL2__TRY(exl2__measure_logits_cpu(m, &m->before, exl2__measure_keep_probe));
    if (m->r->plan.shape.vocab <= EXL2__MEASURE_VOCAB) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__alloc(m->r->c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &mass));
    exl2__measure_choose_strips(m, (double *)mass);
    exl2__free(m->r->c, mass, bytes, EXL2_MEM_SCRATCH);
    return exl2__measure_logits_cpu(m, &m->before, exl2__measure_keep_probe);
}

/* Computes the probes' logits, layer by layer, so that a streamed model is read once. */
EXL2__PRIVATE exl2_result exl2__measure_probes(exl2__measure *m)
{
    const exl2_token *ids[EXL2__MEASURE_PROBES];
    uint32_t count;
    for (uint32_t first = 0; first < m->probes; first += count) {
        count = exl2__min32(m->probes - first, exl2__runner_together(m->r, UINT32_MAX, m->probe_length));
        for (uint32_t i = 0; i < count; i++) {
            ids[i] = exl2__measure_probe_ids(m, first + i);
        }
        EXL2__TRY(exl2__runner_begin_all(m->r, ids, count, m->probe_length));
        EXL2__TRY(exl2__runner_embed(m->r));
        EXL2__TRY(exl2__runner_put(m->r, &m->before, (uint64_t)first * m->probe_length));
    }
    for (uint32_t layer = 0; layer < m->r->plan.shape.layers; layer++) {
        EXL2__TRY(exl2__measure_probe_layer(m, layer, m->before, m->before, 1));
    }
#ifndef EXL2_NO_CUDA
    if (exl2__measure_on_gpu(m)) {
        return exl2__measure_logits_gpu(m, &m->before, NULL);
    }
#endif
    return exl2__measure_probes_cpu(m);
}

#endif
