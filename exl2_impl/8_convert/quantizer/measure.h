/* measure.h: the memory of the measurement of one layer: what its matrices lose at each width, and what that costs the
   whole model.
   takes: a model whose headers are read.
   gives: exl2__measure_matrix, exl2__measure, exl2__measure_on_gpu, exl2__measure_probe_ids, exl2__measure_layout,
          exl2__measure_open, exl2__measure_states_open.

   What a matrix matters needs no gradients: its quantized form takes the place of the original, some tokens (probes)
   run through the rest of the model, and the KL divergence of the logits is divided by the matrix's loss. The experts
   of a layer are replaced together, because few tokens reach each of them. The trials of a layer go through the rest
   together, so that a streamed model is read once for each layer, not for each matrix.
   measure_probe.h computes the probes' logits, measure_moments.h the moments of a layer's inputs, and measure_trial.h
   has the trials. */
#ifndef EXL2__MEASURE_H
#define EXL2__MEASURE_H

#include "compare.h"
#include "gram.h"
#include "losses.h"
#include "solve.h"

#define EXL2__MEASURE_PROBES 16u    /* sequences that run through the rest of the model */
#define EXL2__MEASURE_PROBE 32u     /* tokens of such a sequence */
#define EXL2__MEASURE_COPIES 10u    /* most trials of a layer: q, k, v, o; gate, up, down; those of all experts */
/* On a CPU, probes of a vocabulary of at least VOCAB tokens see only the likely ones: the strips of the head that hold
   MASS of the probability in all probes. */
#define EXL2__MEASURE_VOCAB 4096u
#define EXL2__MEASURE_MASS 0.95

/* What is known of one matrix. */
typedef struct exl2__measure_matrix {
    double power;       /* tr(W' H W) */
    double sensitivity; /* KL divergence for a loss of 1 in units of tr(E' H E), in a typical text */
    double mean;        /* sensitivity over all tokens: a few of them would decide where the bits go */
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

#endif
