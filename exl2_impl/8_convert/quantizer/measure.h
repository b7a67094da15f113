/* measure.h: the measurement of one layer: what its matrices lose at each width, and what that costs the whole model.
   takes: a model, the residual of all calibration rows before the layer.
   gives: exl2__measure, exl2__measure_layout, exl2__measure_begin, exl2__measure_layer, exl2__measure_head;
          exl2__measure_matrix.
   owns:  nothing; its memory lies in the caller's arena.

   What a matrix matters needs no gradients: its quantized form takes the place of the original, some tokens run through
   the rest of the model, and the KL divergence of the logits is divided by the matrix's loss. */
#ifndef EXL2__MEASURE_H
#define EXL2__MEASURE_H

#include "compare.h"
#include "gram.h"
#include "losses.h"
#include "solve.h"

#define EXL2__MEASURE_PARTS 3u      /* most matrices of an input */
#define EXL2__MEASURE_MATRICES 7u   /* most matrices of a layer */
#define EXL2__MEASURE_PROBE 256u    /* tokens that run through the rest of the model */

/* What is known of one matrix. */
typedef struct exl2__measure_matrix {
    double power;       /* tr(W' H W) */
    double sensitivity; /* KL divergence for a loss of 1 in units of tr(E' H E) */
    double *losses;     /* [EXL2__LOSSES_WIDTHS, in / 32] in the same units */
} exl2__measure_matrix;

typedef struct exl2__measure {
    exl2__runner *r;
    const exl2_token *ids; /* [rows, length] */
    uint32_t rows, length, probe_rows;
    uint32_t probe_bits;   /* width at which matrices are tried */
    float *states;         /* [rows, length, hidden] */
    uint32_t widest;       /* input */
    float *x;              /* [length, widest] rows of one input */
    exl2__runner_tap tap;  /* the input that is being added */
    exl2__gram grams[EXL2__RUNNER_TAPS];
    exl2__compare_row *probe; /* [probe_rows] */
    float *probabilities;  /* [probe_rows, stride of vocab] */
    float *scratch;        /* [stride of vocab] */
    const exl2__layer *layer; /* that is being run; NULL: the head */
    double kl;
} exl2__measure;

/* ---- memory ---- */

static void exl2__measure_layout(exl2__measure *m, exl2__arena *a)
{
    const exl2__shape *s = &m->r->plan.shape;
    uint32_t stride = exl2__compare_stride(s->vocab), sizes[EXL2__RUNNER_TAPS], widest = s->hidden;
    for (uint32_t i = 0; i < EXL2__RUNNER_TAPS; i++) {
        sizes[i] = exl2__runner_input_size(m->r, &m->r->plan.layers[0], (exl2__runner_tap)i);
        widest = exl2__max32(widest, sizes[i]);
    }
    uint64_t work = exl2__gram_work_bytes(widest, m->length);
    m->states = (float *)exl2__arena_alloc(a, (uint64_t)m->rows * m->length * s->hidden * sizeof *m->states);
    m->widest = widest;
    m->x = (float *)exl2__arena_alloc(a, (uint64_t)m->length * widest * sizeof *m->x);
    float *strips = (float *)exl2__arena_alloc(a, work), *panels = (float *)exl2__arena_alloc(a, work);
    for (uint32_t i = 0; i < EXL2__RUNNER_TAPS; i++) {
        exl2__gram_layout(&m->grams[i], exl2__runner_cpu(m->r)->ops, sizes[i], m->length, strips, panels, a);
    }
    m->probe = (exl2__compare_row *)exl2__arena_alloc_zeroed(a, m->probe_rows * sizeof *m->probe);
    m->probabilities = (float *)exl2__arena_alloc(a, (uint64_t)m->probe_rows * stride * sizeof *m->probabilities);
    m->scratch = (float *)exl2__arena_alloc(a, stride * sizeof *m->scratch);
    for (uint32_t i = 0; m->probe && i < m->probe_rows; i++) {
        m->probe[i].probability = m->probabilities + (size_t)i * stride;
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
    exl2__compare_row_make(exl2__runner_cpu(m->r)->ops, logits, m->r->plan.shape.vocab, &m->probe[row]);
}

/* Sets the states to the embeddings, and computes the probe's logits. */
static exl2_result exl2__measure_begin(exl2__measure *m)
{
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        EXL2__TRY(exl2__runner_embed(m->r));
        exl2__measure_move(m, row, m->length, false);
    }
    return exl2__runner_run(m->r, m->ids, m->probe_rows, exl2__measure_keep_probe, m);
}

/* ---- moments ---- */

/* Task: one row of an input. */
static void exl2__measure_row(void *arg, uint32_t row)
{
    const exl2__measure *m = (const exl2__measure *)arg;
    float *x = m->x + (size_t)row * m->widest;
    exl2__runner_input(m->r, m->layer, m->tap, row, x);
    exl2__gram_row(&m->grams[m->tap], row, x);
}

static void exl2__measure_tap(void *user, exl2__runner_tap tap)
{
    exl2__measure *m = (exl2__measure *)user;
    m->tap = tap;
    exl2__tasks_run(m->r->c, m->length, exl2__measure_row, m);
    exl2__gram_add(m->r->c, &m->grams[tap], m->length);
}

static void exl2__measure_clear(exl2__measure *m)
{
    for (uint32_t i = 0; i < EXL2__RUNNER_TAPS; i++) {
        memset(m->grams[i].sum, 0, (size_t)exl2__panels_bytes(m->grams[i].in));
        m->grams[i].tokens = 0;
    }
}

/* Runs all rows through a layer: fills in the grams. The states go from before the layer to after it, but those of the
   probe, which *before [probe_rows, hidden] keeps. */
static exl2_result exl2__measure_layer(exl2__measure *m, uint32_t index, float *before)
{
    size_t hidden = m->r->plan.shape.hidden;
    exl2__measure_clear(m);
    m->layer = &m->r->plan.layers[index];
    memcpy(before, m->states, m->probe_rows * hidden * sizeof *before);
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        exl2__measure_move(m, row, m->length, true);
        EXL2__TRY(exl2__runner_layer(m->r, index, exl2__measure_tap, m));
        exl2__measure_move(m, row, m->length, false);
    }
    for (uint32_t i = 0; i < EXL2__RUNNER_TAPS; i++) {
        exl2__gram_finish(&m->grams[i]);
    }
    return EXL2_OK;
}

/* After the last layer: the moments of the head's input, in grams[EXL2__RUNNER_QKV]. */
static exl2_result exl2__measure_head(exl2__measure *m)
{
    exl2__measure_clear(m);
    m->layer = NULL;
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__runner_begin(m->r, m->ids + (size_t)row * m->length, m->length));
        exl2__measure_move(m, row, m->length, true);
        exl2__measure_tap(m, EXL2__RUNNER_QKV);
    }
    exl2__gram_finish(&m->grams[EXL2__RUNNER_QKV]);
    return EXL2_OK;
}

/* ---- matrices ---- */

/* to [strips, in, 32]: the weights of the first `out` columns of a part, in packed order, and zeros after them. (An
   embedding that is the head may have more rows than the vocabulary.) Fails if some are too large. */
static exl2_result exl2__measure_weights(exl2__ctx *c, const char *name, const exl2__cpu_part *p,
                                         const exl2__factor *f, uint32_t out, float *to)
{
    for (uint32_t strip = 0; strip < exl2__div_up(out, EXL2__PANELS_LANES); strip++) {
        for (uint32_t i = 0; i < p->in; i++, to += EXL2__PANELS_LANES) {
            for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
                uint32_t column = strip * EXL2__PANELS_LANES + k;
                float w = column < out ? exl2__cpu_matrix_weight(p, f->order[i], column) : 0;
                if (!(w <= EXL2__QUANTIZE_MAX && w >= -EXL2__QUANTIZE_MAX)) {
                    return exl2__fail(c, EXL2_ERR_FORMAT, "%s has a weight (output %u, input %u) that is not finite or "
                                      "larger than 32752", name, column, f->order[i]);
                }
                to[k] = w;
            }
        }
    }
    return EXL2_OK;
}

static void exl2__measure_add_kl(void *user, uint32_t row, const float *logits)
{
    exl2__measure *m = (exl2__measure *)user;
    exl2__compare_row other;
    m->kl += exl2__compare_kl(exl2__runner_cpu(m->r)->ops, &m->probe[row], logits, m->r->plan.shape.vocab, m->scratch,
                              &other);
}

/* KL divergence if the part had the weights W + E of the quantizer. `before`: the probe's states before the layer. */
static exl2_result exl2__measure_probe(exl2__measure *m, uint32_t layer, exl2__cpu_part *p, const exl2__solve *s,
                                       const float *before, double *kl)
{
    const exl2__cpu_device *d = exl2__runner_cpu(m->r);
    void *memory;
    uint64_t bytes = (uint64_t)p->in * s->columns * sizeof(float);
    EXL2__TRY(exl2__alloc(m->r->c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    float *weights = (float *)memory;
    for (uint32_t strip = 0; strip < s->strips; strip++) {
        for (uint32_t i = 0; i < p->in; i++) {
            size_t from = ((size_t)strip * p->in + i) * EXL2__PANELS_LANES;
            size_t to = ((size_t)strip * p->in + s->factor->order[i]) * EXL2__PANELS_LANES;
            for (uint32_t k = 0; k < EXL2__PANELS_LANES; k++) {
                weights[to + k] = s->weights[from + k] + s->errors[from + k];
            }
        }
    }
    exl2__cpu_part kept = *p;
    p->source = EXL2__CPU_F32;
    p->data = (uint8_t *)memory;
    p->strip_bytes = (uint64_t)p->in * EXL2__PANELS_LANES * sizeof(float);
    exl2_result result = exl2__runner_begin(m->r, m->ids, m->probe_rows);
    for (uint32_t i = 0; i < m->probe_rows; i++) {
        memcpy(d->residual + (size_t)i * d->hidden_stride, before + (size_t)i * d->shape.hidden,
               d->shape.hidden * sizeof *before);
    }
    for (uint32_t i = layer; i < m->r->plan.shape.layers && result >= 0; i++) {
        result = exl2__runner_layer(m->r, i, NULL, NULL);
    }
    m->kl = 0;
    if (result >= 0) {
        result = exl2__runner_logits(m->r, exl2__measure_add_kl, m);
    }
    *p = kept;
    *kl = m->kl / m->probe_rows;
    exl2__free(m->r->c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* Measures one matrix of a layer. */
static exl2_result exl2__measure_part(exl2__measure *m, const char *name, uint32_t layer, exl2__cpu_part *p,
                                      const exl2__factor *f, const float *before, exl2__measure_matrix *out)
{
    exl2__ctx *c = m->r->c;
    exl2__solve s;
    exl2__group groups[EXL2__MATRIX_IN_MAX / 32 / 4];
    uint32_t count = 0, columns = p->strips * EXL2__PANELS_LANES;
    for (uint32_t row = 0; row < f->in; row += groups[count++].rows) { /* large groups: this is only a trial */
        groups[count] = (exl2__group){ row, exl2__min32(EXL2__SOLVE_ROWS, f->in - row), 0, m->probe_bits };
    }
    EXL2__TRY(exl2__solve_open(c, f, columns, groups, count, &s));
    s.passes = 0;
    double kl = 0, loss = 0;
    exl2_result result = exl2__measure_weights(c, name, p, f, p->out, s.weights);
    if (result >= 0) {
        result = exl2__losses_run(c, f, s.weights, columns, out->losses);
    }
    if (result >= 0) {
        exl2__solve_run(c, &s);
        out->power = exl2__solve_energy(c, &s, s.weights);
        loss = exl2__solve_energy(c, &s, s.errors);
        result = exl2__measure_probe(m, layer, p, &s, before, &kl);
    }
    out->sensitivity = loss > 0 ? kl / loss : 0;
    exl2__solve_close(c, &s);
    return result;
}

#endif
