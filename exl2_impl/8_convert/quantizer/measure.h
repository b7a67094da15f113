/* measure.h: the measurement of one layer: what its matrices lose at each width, and what that costs the whole model.
   takes: a model, the residual of all calibration rows before the layer.
   gives: exl2__measure, exl2__measure_layout, exl2__measure_probes, exl2__measure_begin, exl2__measure_layer,
          exl2__measure_head; exl2__measure_matrix; exl2__measure_part, exl2__measure_trial, exl2__measure_restore;
          exl2__measure_copy, exl2__measure_probe_layer, exl2__measure_kl_of.
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
    float *states;         /* [rows, length, hidden] */
    float *before;         /* [probes, probe_length, hidden] states of the probes before the current layer */
    float *copies;         /* [EXL2__MEASURE_COPIES, probes, probe_length, hidden] the same, of each trial */
    uint32_t widest;       /* input */
    float *x;              /* [length, widest] rows of one input */
    uint32_t input;        /* that is being added */
    exl2__gram *grams;     /* [inputs of the runner] */
    exl2__compare_row *probe; /* [probes, probe_length] */
    float *probabilities;  /* [probes, probe_length, stride of vocab] */
    float *scratch;        /* [logit rows, stride of vocab] */
    double *kls;           /* [probes, probe_length] of the run that was the last */
    const exl2__layer *layer; /* that is being run; NULL: the head */
    uint32_t sequence;     /* the first probe of those that are being run */
    exl2__gpu *gpu;        /* NULL: all runs on the CPU */
} exl2__measure;

static inline const exl2_token *exl2__measure_probe_ids(const exl2__measure *m, uint32_t probe)
{
    return m->ids + (size_t)((uint64_t)probe * m->rows / m->probes) * m->length;
}

/* ---- memory ---- */

static uint32_t exl2__measure_widest(const exl2__runner *r, uint32_t input)
{
    uint32_t widest = 0;
    for (uint32_t i = 0; i < r->plan.shape.layers; i++) {
        widest = exl2__max32(widest, exl2__runner_input_size(r, &r->plan.layers[i], input));
    }
    return widest;
}

static void exl2__measure_layout(exl2__measure *m, exl2__arena *a)
{
    const exl2__shape *s = &m->r->plan.shape;
    uint32_t stride = exl2__compare_stride(s->vocab), inputs = exl2__runner_inputs(m->r), widest = s->hidden;
    uint64_t tokens = (uint64_t)m->probes * m->probe_length;
    for (uint32_t i = 0; i < inputs; i++) {
        widest = exl2__max32(widest, exl2__measure_widest(m->r, i));
    }
    uint64_t work = exl2__gram_work_bytes(widest, m->length);
    m->states = (float *)exl2__arena_alloc(a, (uint64_t)m->rows * m->length * s->hidden * sizeof *m->states);
    m->before = (float *)exl2__arena_alloc(a, tokens * s->hidden * sizeof *m->before);
    m->copies = (float *)exl2__arena_alloc(a, EXL2__MEASURE_COPIES * tokens * s->hidden * sizeof *m->copies);
    m->widest = widest;
    m->x = (float *)exl2__arena_alloc(a, (uint64_t)m->length * widest * sizeof *m->x);
    float *strips = (float *)exl2__arena_alloc(a, work), *panels = (float *)exl2__arena_alloc(a, work);
    m->grams = (exl2__gram *)exl2__arena_alloc_zeroed(a, inputs * sizeof *m->grams);
    for (uint32_t i = 0; i < inputs; i++) {
        exl2__gram gram;
        exl2__gram_layout(&gram, exl2__runner_cpu(m->r)->ops, exl2__measure_widest(m->r, i), m->length, strips, panels,
                          a);
        if (i < EXL2__GPU_INPUTS) { /* those of experts are summed on the CPU */
            gram.gpu = m->gpu;
            gram.number = i;
        }
        if (m->grams) {
            m->grams[i] = gram;
        }
    }
    m->probe = (exl2__compare_row *)exl2__arena_alloc_zeroed(a, tokens * sizeof *m->probe);
    m->probabilities = (float *)exl2__arena_alloc(a, tokens * stride * sizeof *m->probabilities);
    m->scratch = (float *)exl2__arena_alloc(a, (uint64_t)m->r->plan.logit_rows_max * stride * sizeof *m->scratch);
    m->kls = (double *)exl2__arena_alloc(a, tokens * sizeof *m->kls);
    for (uint64_t i = 0; m->probe && i < tokens; i++) {
        m->probe[i].probability = m->probabilities + i * stride;
    }
}

/* ---- states ---- */

/* Copies the residual of a row to or from the device. */
static void exl2__measure_move(const exl2__measure *m, uint32_t row, uint32_t count, bool to_device)
{
    const exl2__cpu_device *d = exl2__runner_cpu(m->r);
    size_t hidden = d->shape.hidden;
    for (uint32_t i = 0; i < count; i++) {
        float *state = m->states + ((size_t)row * m->length + i) * hidden;
        float *residual = d->residual + (size_t)i * d->hidden_stride;
        memcpy(to_device ? residual : state, to_device ? state : residual, hidden * sizeof *state);
    }
}

static void exl2__measure_keep_probe(void *user, uint32_t row, const float *logits)
{
    const exl2__measure *m = (const exl2__measure *)user;
    exl2__compare_row_make(exl2__runner_cpu(m->r)->ops, logits, m->r->plan.shape.vocab,
                           &m->probe[m->sequence * m->probe_length + row]);
}

/* Begins a pass over the probes from m->sequence on, as many as it can have: *count. */
static exl2_result exl2__measure_pass(exl2__measure *m, uint32_t *count)
{
    const exl2_token *ids[EXL2__MEASURE_PROBES];
    *count = exl2__min32(m->probes - m->sequence, exl2__runner_together(m->r, m->probe_length));
    for (uint32_t i = 0; i < *count; i++) {
        ids[i] = exl2__measure_probe_ids(m, m->sequence + i);
    }
    return exl2__runner_begin_all(m->r, ids, *count, m->probe_length);
}

/* Copies the residual of the pass's `count` probes to the device, or back to `states`. */
static void exl2__measure_move_probes(const exl2__measure *m, uint32_t count, float *states, bool to_device)
{
    const exl2__cpu_device *d = exl2__runner_cpu(m->r);
    size_t hidden = d->shape.hidden;
    for (uint32_t i = 0; i < count * m->probe_length; i++) {
        float *state = states + ((size_t)m->sequence * m->probe_length + i) * hidden;
        float *residual = d->residual + (size_t)i * d->hidden_stride;
        memcpy(to_device ? residual : state, to_device ? state : residual, hidden * sizeof *state);
    }
}

/* Runs all probes through a layer, from one array of states to another, which may be the same. */
static exl2_result exl2__measure_probe_layer(exl2__measure *m, uint32_t layer, float *from, float *to)
{
    uint32_t count;
    for (m->sequence = 0; m->sequence < m->probes; m->sequence += count) {
        EXL2__TRY(exl2__measure_pass(m, &count));
        exl2__measure_move_probes(m, count, from, true);
        EXL2__TRY(exl2__runner_layer(m->r, layer, NULL, NULL));
        exl2__measure_move_probes(m, count, to, false);
    }
    return EXL2_OK;
}

/* Computes the logits that the head makes of the probes' states. */
static exl2_result exl2__measure_probe_logits(exl2__measure *m, float *states, exl2__runner_logits_fn fn)
{
    uint32_t count;
    for (m->sequence = 0; m->sequence < m->probes; m->sequence += count) {
        EXL2__TRY(exl2__measure_pass(m, &count));
        exl2__measure_move_probes(m, count, states, true);
        EXL2__TRY(exl2__runner_logits(m->r, fn, m));
    }
    return EXL2_OK;
}

/* Computes the probes' logits, layer by layer, so that a streamed model is read once. */
static exl2_result exl2__measure_probes(exl2__measure *m)
{
    uint32_t count;
    for (m->sequence = 0; m->sequence < m->probes; m->sequence += count) {
        EXL2__TRY(exl2__measure_pass(m, &count));
        EXL2__TRY(exl2__runner_embed(m->r));
        exl2__measure_move_probes(m, count, m->before, false);
    }
    for (uint32_t layer = 0; layer < m->r->plan.shape.layers; layer++) {
        EXL2__TRY(exl2__measure_probe_layer(m, layer, m->before, m->before));
    }
    return exl2__measure_probe_logits(m, m->before, exl2__measure_keep_probe);
}

/* Sets the states to the embeddings. */
static exl2_result exl2__measure_begin(exl2__measure *m)
{
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        EXL2__TRY(exl2__runner_embed(m->r));
        exl2__measure_move(m, row, m->length, false);
    }
    return EXL2_OK;
}

/* ---- moments ---- */

/* Task: one row of an input. */
static void exl2__measure_row(void *arg, uint32_t row)
{
    const exl2__measure *m = (const exl2__measure *)arg;
    float *x = m->x + (size_t)row * m->widest;
    exl2__runner_input(m->r, m->layer, m->input, row, x);
    exl2__gram_row(&m->grams[m->input], row, x);
}

static exl2_result exl2__measure_experts(exl2__measure *m)
{
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

/* With a GPU, the runner has copied the input there. */
static exl2_result exl2__measure_input(void *user, uint32_t input)
{
    exl2__measure *m = (exl2__measure *)user;
    m->input = input;
    if (input == EXL2__RUNNER_EXPERTS) {
        return exl2__measure_experts(m);
    }
    if (!m->gpu) {
        exl2__tasks_run(m->r->c, m->length, exl2__measure_row, m);
    }
    return exl2__gram_add(m->r->c, &m->grams[input], m->length);
}

/* Inputs that are not a multiple of 32 have no moments: their matrices stay dense. layer NULL: the head. */
static exl2_result exl2__measure_clear(exl2__measure *m, const exl2__layer *layer)
{
    m->layer = layer;
    for (uint32_t i = 0; i < exl2__runner_inputs(m->r); i++) {
        uint32_t in = exl2__runner_input_size(m->r, layer, i);
        EXL2__TRY(exl2__gram_begin(&m->grams[i], in % EXL2__PANELS_LANES == 0 ? in : 0));
    }
    return EXL2_OK;
}

/* The moments of an expert's input are blended with the mean of all experts, which counts as much as in / 4 tokens: an
   expert that few tokens reach has too few of its own. */
static void exl2__measure_blend(exl2__measure *m)
{
    exl2__gram *first = &m->grams[EXL2__RUNNER_EXPERTS];
    uint32_t experts = m->r->plan.shape.experts.count;
    uint64_t tokens = 0, numbers = experts ? (uint64_t)first->in * first->in : 0;
    for (uint32_t e = 0; e < experts; e++) {
        tokens += first[e].tokens;
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
}

/* Copies the states of the probes to m->before. */
static void exl2__measure_keep_before(exl2__measure *m)
{
    size_t hidden = m->r->plan.shape.hidden, count = m->probe_length * hidden;
    for (uint32_t i = 0; i < m->probes; i++) {
        memcpy(m->before + i * count, m->states + (size_t)(exl2__measure_probe_ids(m, i) - m->ids) * hidden,
               count * sizeof *m->before);
    }
}

/* Runs all rows through a layer: fills in the grams. The states go from before the layer to after it, but those of the
   probes, which m->before keeps. */
static exl2_result exl2__measure_layer(exl2__measure *m, uint32_t index)
{
    EXL2__TRY(exl2__measure_clear(m, &m->r->plan.layers[index]));
    exl2__measure_keep_before(m);
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        exl2__measure_move(m, row, m->length, true);
        EXL2__TRY(exl2__runner_layer(m->r, index, exl2__measure_input, m));
        exl2__measure_move(m, row, m->length, false);
    }
    for (uint32_t i = 0; i < exl2__runner_inputs(m->r); i++) {
        EXL2__TRY(exl2__gram_finish(&m->grams[i]));
    }
    exl2__measure_blend(m);
    return EXL2_OK;
}

/* After the last layer: the moments of the head's input, in grams[EXL2__RUNNER_QKV]. */
static exl2_result exl2__measure_head(exl2__measure *m)
{
    EXL2__TRY(exl2__measure_clear(m, NULL));
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        exl2__measure_move(m, row, m->length, true);
#ifndef EXL2_NO_CUDA
        if (m->gpu && m->grams[EXL2__RUNNER_QKV].in) {
            EXL2__TRY(exl2__runner_upload(m->r, NULL, EXL2__RUNNER_QKV, 0, m->length));
        }
#endif
        EXL2__TRY(exl2__measure_input(m, EXL2__RUNNER_QKV));
    }
    return exl2__gram_finish(&m->grams[EXL2__RUNNER_QKV]);
}

/* ---- matrices ---- */

static void exl2__measure_add_kl(void *user, uint32_t row, const float *logits)
{
    const exl2__measure *m = (const exl2__measure *)user;
    uint32_t vocab = m->r->plan.shape.vocab, at = m->sequence * m->probe_length + row;
    float *scratch = m->scratch + (size_t)(row % m->r->plan.logit_rows_max) * exl2__compare_stride(vocab);
    exl2__compare_row other;
    m->kls[at] = exl2__compare_kl(exl2__runner_cpu(m->r)->ops, &m->probe[at], logits, vocab, scratch, &other);
}

/* KL divergences of the logits. */
typedef struct exl2__measure_kl {
    double mean;    /* of all tokens */
    double typical; /* of a sequence: (mean of the square roots)^2 */
} exl2__measure_kl;

/* The states of a trial, after its own layer and before the rest of the model. */
static inline float *exl2__measure_copy(const exl2__measure *m, uint32_t trial)
{
    return m->copies + (size_t)trial * m->probes * m->probe_length * m->r->plan.shape.hidden;
}

/* The KL divergence of the logits that the head makes of the probes' states. */
static exl2_result exl2__measure_kl_of(exl2__measure *m, float *states, exl2__measure_kl *out)
{
    double sum = 0, roots = 0;
    EXL2__TRY(exl2__measure_probe_logits(m, states, exl2__measure_add_kl));
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
    bool on_gpu;       /* it is there instead */
    double loss;
} exl2__measure_trial;

/* Puts a quantized form in the place of a part: on the GPU, if its products are computed there. */
static exl2_result exl2__measure_replace(const exl2__measure *m, exl2__cpu_part *p, exl2__solve *s,
                                         exl2__measure_trial *trial)
{
#ifndef EXL2_NO_CUDA
    trial->on_gpu = exl2__runner_computes(m->r, p);
    if (trial->on_gpu) {
        trial->part = p;
        trial->kept = *p;
        return exl2__gpu_solve_values(&s->on_gpu, p, NULL);
    }
#endif
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
static void exl2__measure_restore(const exl2__measure *m, exl2__measure_trial *trial)
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

/* Measures one matrix, of whose columns `used` are used, and puts a quantized form in its place. losses
   [EXL2__LOSSES_WIDTHS, in / 32]; out->share is given. Losses, power and trial->loss are those of a token of the
   model. */
static exl2_result exl2__measure_part(exl2__measure *m, exl2__cpu_part *p, uint32_t used, const exl2__factor *f,
                                      double *losses, exl2__measure_matrix *out, exl2__measure_trial *trial)
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
    result = result < 0 ? result : exl2__measure_replace(m, p, &s, trial);
    out->power = power * out->share;
    trial->loss = loss * out->share;
    exl2__solve_close(c, &s);
    return result;
}

#endif
