/* measure_moments.h: the moments of the inputs of a layer or of the head, over all rows of calibration.
   takes: exl2__measure with its memory; the residual of all rows before the layer.
   gives: exl2__measure_begin, exl2__measure_layer, exl2__measure_head; exl2__measure_clear, exl2__measure_keep_before,
          exl2__measure_experts_on_gpu. */
#ifndef EXL2__MEASURE_MOMENTS_H
#define EXL2__MEASURE_MOMENTS_H

#include "measure.h"

/* Sets the states to the embeddings. */
EXL2__PRIVATE exl2_result exl2__measure_begin(exl2__measure *m)
{
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        EXL2__TRY(exl2__runner_embed(m->r));
        EXL2__TRY(exl2__runner_put(m->r, &m->states, (uint64_t)row * m->length));
    }
    return EXL2_OK;
}

/* Do the experts of the layer, if it has any, run on the GPU? */
static inline bool exl2__measure_experts_on_gpu(const exl2__measure *m)
{
    return m->layer && exl2__unit_sparse(&m->r->load.config, m->layer->index)
        && exl2__runner_on_gpu(m->r, m->layer->index, EXL2__RUNNER_EXPERTS);
}

/* Task: one row of an input. */
EXL2__PRIVATE void exl2__measure_row(void *arg, uint32_t row)
{
    const exl2__measure *m = (const exl2__measure *)arg;
    float *x = m->x + (size_t)row * m->widest;
    exl2__runner_input(m->r, m->layer, m->input, row, x);
    exl2__gram_row(&m->grams[m->input], row, x);
}

#ifndef EXL2_NO_CUDA
EXL2__PRIVATE exl2_result exl2__measure_experts_gpu(exl2__measure *m)
{
    const exl2__gpu_routed *routed = &m->r->routed;
    const exl2__experts *e = &m->r->plan.shape.experts;
    for (uint32_t i = 0; i < e->count; i++) {
        m->grams[EXL2__RUNNER_EXPERTS + i].tokens += exl2__gpu_routed_rows(routed, i);
    }
    EXL2__TRY(exl2__cuda_device_enter(m->gpu->d));
    return exl2__cuda_device_leave_with(m->gpu->d, exl2__gpu_experts_add(m->gpu, e, routed));
}
#endif

EXL2__PRIVATE exl2_result exl2__measure_experts(exl2__measure *m)
{
#ifndef EXL2_NO_CUDA
    if (exl2__measure_experts_on_gpu(m)) {
        return exl2__measure_experts_gpu(m);
    }
#endif
    for (uint32_t i = 0; i < exl2__runner_cpu(m->r)->routed.expert_count; i++) {
        uint32_t expert, count, stride;
        const float *x = exl2__runner_expert(m->r, i, &expert, &count, &stride);
        exl2__gram *gram = &m->grams[EXL2__RUNNER_EXPERTS + expert];
        for (uint32_t row = 0; row < count; row++) {
            exl2__gram_row(gram, row, x + (size_t)row * stride);
        }
        EXL2__TRY(exl2__gram_add(m->r->c, gram, count));
    }
    return EXL2_OK;
}

/* With a GPU, the input is on it. */
EXL2__PRIVATE exl2_result exl2__measure_input(void *user, uint32_t input)
{
    exl2__measure *m = (exl2__measure *)user;
    m->input = input;
    if (input == EXL2__RUNNER_EXPERTS) {
        return exl2__measure_experts(m);
    }
    if (!m->gpu) {
        exl2__tasks_run(m->r->c, m->r->row_count, exl2__measure_row, m);
    }
    return exl2__gram_add(m->r->c, &m->grams[input], m->r->row_count);
}

/* Inputs that are not a multiple of 32 have no moments: their matrices stay dense. layer NULL: the head. */
EXL2__PRIVATE exl2_result exl2__measure_clear(exl2__measure *m, const exl2__layer *layer)
{
    m->layer = layer;
    for (uint32_t i = 0; i < exl2__runner_inputs(m->r); i++) {
        uint32_t in = exl2__runner_input_size(m->r, layer, i);
        EXL2__TRY(exl2__gram_begin(&m->grams[i], in % EXL2__PANELS_LANES == 0 ? in : 0));
    }
#ifndef EXL2_NO_CUDA
    if (exl2__measure_experts_on_gpu(m)) {
        EXL2__TRY(exl2__cuda_device_enter(m->gpu->d));
        return exl2__cuda_device_leave_with(m->gpu->d, exl2__gpu_experts_begin(m->gpu, &m->r->plan.shape.experts));
    }
#endif
    return EXL2_OK;
}

#ifndef EXL2_NO_CUDA
EXL2__PRIVATE exl2_result exl2__measure_blend_gpu(exl2__measure *m, uint64_t all)
{
    float tokens[EXL2__EXPERTS_MAX];
    const exl2__experts *e = &m->r->plan.shape.experts;
    for (uint32_t i = 0; i < e->count; i++) {
        tokens[i] = (float)m->grams[EXL2__RUNNER_EXPERTS + i].tokens;
    }
    EXL2__TRY(exl2__cuda_device_enter(m->gpu->d));
    EXL2__TRY(exl2__cuda_device_leave_with(m->gpu->d, exl2__gpu_experts_blend(m->gpu, e, tokens, (float)all)));
    for (uint32_t i = 0; i < e->count; i++) {
        EXL2__TRY(exl2__gram_finish(m->r->c, &m->grams[EXL2__RUNNER_EXPERTS + i]));
    }
    return EXL2_OK;
}
#endif

/* The moments of an expert's input are blended with the mean of all experts, which counts as much as in / 4 tokens: an
   expert that few tokens reach has too few of its own. */
EXL2__PRIVATE exl2_result exl2__measure_blend(exl2__measure *m)
{
    exl2__gram *first = &m->grams[EXL2__RUNNER_EXPERTS];
    uint32_t experts = m->r->plan.shape.experts.count;
    uint64_t tokens = 0, numbers = experts ? (uint64_t)first->in * first->in : 0;
    for (uint32_t e = 0; e < experts; e++) {
        tokens += first[e].tokens;
    }
#ifndef EXL2_NO_CUDA
    if (exl2__measure_experts_on_gpu(m)) {
        return exl2__measure_blend_gpu(m, tokens);
    }
#endif
    for (uint32_t e = 0; e < experts; e++) {
        EXL2__TRY(exl2__gram_finish(m->r->c, &first[e]));
    }
    for (uint64_t i = 0; i < numbers; i++) {
        double sum = 0;
        for (uint32_t e = 0; e < experts; e++) {
            sum += (double)first[e].sum[i] * (double)first[e].tokens;
        }
        double mean = sum / (double)tokens;
        for (uint32_t e = 0; e < experts; e++) {
            double own = (double)first[e].tokens, shared = first->in / 4.0;
            first[e].sum[i] = (float)(((double)first[e].sum[i] * own + mean * shared) / (own + shared));
        }
    }
    return EXL2_OK;
}

/* Copies the states of the probes to m->before. */
EXL2__PRIVATE exl2_result exl2__measure_keep_before(exl2__measure *m)
{
    for (uint32_t i = 0; i < m->probes; i++) {
        uint64_t first = (uint64_t)(exl2__measure_probe_ids(m, i) - m->ids);
        exl2__runner_states from = exl2__runner_states_at(m->r, &m->states, first);
        exl2__runner_states to = exl2__runner_states_at(m->r, &m->before, (uint64_t)i * m->probe_length);
        EXL2__TRY(exl2__runner_states_copy(m->r, &to, &from, m->probe_length));
    }
    return EXL2_OK;
}

/* Runs all rows through a layer: fills in the grams. The states go from before the layer to after it, but those of the
   probes, which m->before keeps. */
EXL2__PRIVATE exl2_result exl2__measure_layer(exl2__measure *m, uint32_t index)
{
    EXL2__TRY(exl2__runner_hold(m->r, index));
    EXL2__TRY(exl2__measure_clear(m, &m->r->plan.layers[index]));
    EXL2__TRY(exl2__measure_keep_before(m));
    for (uint32_t row = 0, count; row < m->rows; row += count) {
        count = exl2__min32(m->rows - row, exl2__runner_together(m->r, index, m->length));
        EXL2__TRY(exl2__runner_begin_all(m->r, NULL, count, m->length));
        EXL2__TRY(exl2__runner_get(m->r, &m->states, (uint64_t)row * m->length, false));
        EXL2__TRY(exl2__runner_layer(m->r, index, exl2__measure_input, m));
        EXL2__TRY(exl2__runner_put(m->r, &m->states, (uint64_t)row * m->length));
    }
    for (uint32_t i = 0; i < EXL2__RUNNER_EXPERTS; i++) {
        EXL2__TRY(exl2__gram_finish(m->r->c, &m->grams[i]));
    }
    return exl2__measure_blend(m);
}

/* After the last layer: the moments of the head's input, in grams[EXL2__RUNNER_QKV]. */
EXL2__PRIVATE exl2_result exl2__measure_head(exl2__measure *m)
{
    EXL2__TRY(exl2__measure_clear(m, NULL));
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin_all(m->r, NULL, 1, m->length));
        EXL2__TRY(exl2__runner_get(m->r, &m->states, (uint64_t)row * m->length, false));
        EXL2__TRY(exl2__runner_until(m->r, UINT32_MAX, EXL2__RUNNER_QKV));
        EXL2__TRY(exl2__measure_input(m, EXL2__RUNNER_QKV));
    }
    return exl2__gram_finish(m->r->c, &m->grams[EXL2__RUNNER_QKV]);
}

#endif
