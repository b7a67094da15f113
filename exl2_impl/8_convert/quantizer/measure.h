/* measure.h: the measurement of one layer: what its matrices lose at each width, and what that costs the whole model.
   takes: a model, the residual of all calibration rows before the layer.
   gives: exl2__measure, exl2__measure_layout, exl2__measure_open, exl2__measure_states_open, exl2__measure_probes,
          exl2__measure_begin, exl2__measure_layer, exl2__measure_head; exl2__measure_matrix; exl2__measure_part,
          exl2__measure_trial, exl2__measure_restore; exl2__measure_copy, exl2__measure_probe_layer,
          exl2__measure_kl_of.
   owns:  nothing; its memory lies in the caller's arena.

   What a matrix matters needs no gradients: its quantized form takes the place of the original, some tokens run through
   the rest of the model, and the KL divergence of the logits is divided by the matrix's loss. The experts of a layer
   are replaced together, because few tokens reach each of them. The trials of a layer go through the rest together, so
   that a streamed model is read once for each layer, not for each matrix. */
#ifndef EXL2__MEASURE_H
#define EXL2__MEASURE_H

#include "compare.h"
#include "gram.h"
#include "losses.h"
#include "solve.h"

#define EXL2__MEASURE_PROBES 16u    /* sequences that run through the rest of the model; */
#define EXL2__MEASURE_PROBE 32u     /* their tokens */
#define EXL2__MEASURE_COPIES 10u    /* most trials of a layer: q, k, v, o; gate, up, down; those of all experts */
#define EXL2__MEASURE_VOCAB 4096u   /* tokens of a vocabulary of which probes see only the likely ones on a CPU: */
#define EXL2__MEASURE_MASS 0.95     /* the strips of the head that hold so much of the probability in all probes */

/* What is known of one matrix. */
typedef struct exl2__measure_matrix {
    double power;       /* tr(W' H W) */
    double sensitivity; /* KL divergence for a loss of 1 in units of tr(E' H E), in a typical text; */
    double mean;        /* the same over all tokens: a few sensitive ones would decide where the bits go */
    double share;       /* of the tokens that use the matrix; less than 1 for experts */
} exl2__measure_matrix;

typedef struct exl2__measure {
    exl2__runner *r;
    const exl2_token *ids; /* [rows, length] */
    uint32_t rows, length;
    uint32_t probes, probe_length; /* sequences: the beginnings of rows, evenly spread over all rows */
    uint32_t probe_bits;   /* width at which matrices are tried */
    exl2__runner_states states; /* [rows, length, hidden] */
    exl2__runner_states before; /* [probes, probe_length, hidden] states of the probes before the current layer */
    exl2__runner_states copies; /* [EXL2__MEASURE_COPIES, probes, probe_length, hidden] the same, of each trial */
    uint32_t widest;       /* input */
    float *x;              /* [length, widest] rows of one input */
    uint32_t input;        /* that is being added */
    exl2__gram *grams;     /* [inputs of the runner] */
    exl2__compare_row *probe; /* [probes, probe_length] */
    float *probabilities;  /* [probes, probe_length, stride of vocab] */
    float *scratch;        /* [logit rows, stride of vocab] */
    float *likely;         /* [logit rows, stride of vocab] the logits of m->strips */
    uint32_t *strips;      /* [strip_count] of the head, in order, that are computed for the probes */
    uint32_t strip_count;  /* 0: not chosen yet; all are computed */
    double *kls;           /* [probes, probe_length] of the run that was the last */
    const exl2__layer *layer; /* that is being run; NULL: the head */
    uint32_t sequence;     /* the first probe of those that are being run */
    exl2__gpu *gpu;        /* NULL: all runs on the CPU */
    uint64_t logits;       /* on the GPU, in place of `probe`: [probes, probe_length, columns of the head] */
} exl2__measure;

/* Are the probes' states and logits on the GPU? */
static inline bool exl2__measure_on_gpu(const exl2__measure *m)
{
    return m->gpu && m->r->plan.shape.hidden % EXL2__CPU_STRIP == 0;
}

/* The row of which a probe is the beginning: one of each of m->probes parts of all rows, at another place in each part,
   so that texts that alternate are all among them. (5 is prime to 16.) */
static inline const exl2_token *exl2__measure_probe_ids(const exl2__measure *m, uint32_t probe)
{
    uint64_t first = (uint64_t)probe * m->rows / m->probes, end = (probe + (uint64_t)1) * m->rows / m->probes;
    return m->ids + (size_t)(first + (end - first) * (probe * 5 % m->probes) / m->probes) * m->length;
}

/* ---- memory ---- */

EXL2__PRIVATE uint32_t exl2__measure_widest(const exl2__runner *r, uint32_t input)
{
    uint32_t widest = 0;
    for (uint32_t i = 0; i < r->plan.shape.layers; i++) {
        widest = exl2__max32(widest, exl2__runner_input_size(r, &r->plan.layers[i], input));
    }
    return widest;
}

/* Can the experts of layers run on a GPU? They are alike in all layers. */
EXL2__PRIVATE bool exl2__measure_experts_can(const exl2__runner *r)
{
    for (uint32_t i = 0; i < r->plan.shape.layers; i++) {
        if (exl2__unit_sparse(&r->load.config, i)) {
            return exl2__runner_can(r, i, EXL2__RUNNER_EXPERTS);
        }
    }
    return false;
}

EXL2__PRIVATE void exl2__measure_layout(exl2__measure *m, exl2__arena *a)
{
    const exl2__shape *s = &m->r->plan.shape;
    uint32_t stride = exl2__compare_stride(s->vocab), inputs = exl2__runner_inputs(m->r), widest = s->hidden;
    uint64_t tokens = (uint64_t)m->probes * m->probe_length;
    for (uint32_t i = 0; i < inputs; i++) {
        widest = exl2__max32(widest, exl2__measure_widest(m->r, i));
    }
    uint64_t work = exl2__gram_work_bytes(widest, m->length);
    uint64_t probes = exl2__measure_on_gpu(m) ? 0 : tokens; /* whose states are in host memory */
    m->states.host = (float *)exl2__arena_alloc(a, (uint64_t)m->rows * m->length * s->hidden * sizeof(float));
    m->before.host = (float *)exl2__arena_alloc(a, probes * s->hidden * sizeof(float));
    m->copies.host = (float *)exl2__arena_alloc(a, EXL2__MEASURE_COPIES * probes * s->hidden * sizeof(float));
    m->widest = widest;
    m->x = (float *)exl2__arena_alloc(a, (uint64_t)m->length * widest * sizeof *m->x);
    float *strips = (float *)exl2__arena_alloc(a, work), *panels = (float *)exl2__arena_alloc(a, work);
    m->grams = (exl2__gram *)exl2__arena_alloc_zeroed(a, inputs * sizeof *m->grams);
    for (uint32_t i = 0; i < inputs; i++) {
        exl2__gram gram;
        exl2__gram_layout(&gram, exl2__runner_cpu(m->r)->ops, exl2__measure_widest(m->r, i), m->length, strips, panels,
                          a);
        gram.gpu = i < EXL2__GPU_INPUTS || exl2__measure_experts_can(m->r) ? m->gpu : NULL;
        gram.number = i;
        if (m->grams) {
            m->grams[i] = gram;
        }
    }
    m->probe = (exl2__compare_row *)exl2__arena_alloc_zeroed(a, probes * sizeof *m->probe);
    m->probabilities = (float *)exl2__arena_alloc(a, probes * stride * sizeof *m->probabilities);
    m->scratch = (float *)exl2__arena_alloc(a, (uint64_t)m->r->plan.logit_rows_max * stride * sizeof *m->scratch);
    m->likely = (float *)exl2__arena_alloc(a, (uint64_t)m->r->plan.logit_rows_max * stride * sizeof *m->likely);
    m->strips = (uint32_t *)exl2__arena_alloc(a, stride / EXL2__CPU_STRIP * sizeof *m->strips);
    m->strip_count = 0;
    m->kls = (double *)exl2__arena_alloc(a, tokens * sizeof *m->kls);
    for (uint64_t i = 0; m->probe && i < probes; i++) {
        m->probe[i].probability = m->probabilities + i * stride;
    }
}

#ifndef EXL2_NO_CUDA
/* Device memory for states, in a buffer of the GPU, if that is planned (device_plan.h); else the host has them. */
EXL2__PRIVATE exl2_result exl2__measure_states_open(exl2__gpu *g, uint64_t bytes, uint32_t index,
                                                    exl2__runner_states *s)
{
    exl2k_u64 address = 0;
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = g->planned[index] ? exl2__gpu_need(g, bytes, index, &address) : EXL2_OK;
    s->gpu = address;
    return exl2__cuda_device_leave_with(g->d, result);
}

/* After exl2__measure_layout and exl2__runner_use. */
EXL2__PRIVATE exl2_result exl2__measure_open(exl2__measure *m)
{
    exl2__gpu *g = m->gpu;
    uint64_t hidden = m->r->plan.shape.hidden * sizeof(float), tokens = (uint64_t)m->probes * m->probe_length;
    uint64_t columns = (uint64_t)exl2__cpu_matrix_of(m->r->plan.head)->parts->strips * EXL2__CPU_STRIP;
    exl2k_u64 before = 0, copies = 0, logits = 0;
    if (!exl2__measure_on_gpu(m)) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(g->d));
    exl2_result result = exl2__gpu_need(g, tokens * hidden, EXL2__GPU_BEFORE, &before);
    result = result < 0 ? result : exl2__gpu_need(g, EXL2__MEASURE_COPIES * tokens * hidden, EXL2__GPU_COPIES, &copies);
    result = result < 0 ? result : exl2__gpu_need(g, tokens * columns * sizeof(float), EXL2__GPU_LOGITS, &logits);
    EXL2__TRY(exl2__cuda_device_leave_with(g->d, result));
    m->before.gpu = before;
    m->copies.gpu = copies;
    m->logits = logits;
    return exl2__measure_states_open(g, (uint64_t)m->rows * m->length * hidden, EXL2__GPU_STATES, &m->states);
}
#endif

/* ---- states ---- */

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

/* ---- moments ---- */

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

/* ---- matrices ---- */

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
