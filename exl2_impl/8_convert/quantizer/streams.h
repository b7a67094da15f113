/* streams.h: the calibration rows in two models at once: the original, and what is quantized of it up to here.
   takes: exl2__measure, whose states are those of the original.
   gives: exl2__streams, exl2__streams_layout, exl2__streams_begin, exl2__streams_input, exl2__streams_replace,
          exl2__streams_next, exl2__streams_drop.
   owns:  quantized forms of the current layer's matrices, until exl2__streams_next or exl2__streams_drop.

   An input of a layer is computed with all matrices before it quantized, those of the same layer, too. For that the
   layer runs again from its begin for each of its inputs: states of all phases would need much more memory. */
#ifndef EXL2__STREAMS_H
#define EXL2__STREAMS_H

#include "correct.h"
#include "measure_trial.h"

typedef struct exl2__streams {
    exl2__measure *m;
    exl2__runner_states states; /* [rows, length, hidden] of the quantized model */
    float *x, *y;        /* [length, widest] rows of one input, of the original and of the quantized model */
    exl2__correct correct;
    exl2__measure_trial *trials; /* [most] */
    uint32_t count;      /* of trials */
    bool original;       /* the original matrices are in place, not the trials */
    const exl2__layer *layer; /* layer of the input that is being computed; NULL: the head */
    uint32_t input;      /* number of that input */
} exl2__streams;

/* most: linears of a layer. */
EXL2__PRIVATE void exl2__streams_layout(exl2__streams *s, exl2__measure *m, uint32_t most, exl2__arena *a)
{
    uint64_t inputs = m->gpu ? 0 : (uint64_t)m->length * m->widest * sizeof(float);
    *s = (exl2__streams){ .m = m };
    s->states.host = (float *)exl2__arena_alloc(a, (uint64_t)m->rows * m->length * m->r->plan.shape.hidden
                                                       * sizeof(float));
    s->x = (float *)exl2__arena_alloc(a, inputs);
    s->y = (float *)exl2__arena_alloc(a, inputs);
    s->trials = (exl2__measure_trial *)exl2__arena_alloc_zeroed(a, most * sizeof *s->trials);
    exl2__correct_layout(&s->correct, m->gpu, m->widest, m->length, a);
}

/* Both streams begin with the embeddings. */
EXL2__PRIVATE exl2_result exl2__streams_begin(exl2__streams *s)
{
    const exl2__measure *m = s->m;
    EXL2__TRY(exl2__measure_begin(s->m));
    return exl2__runner_states_copy(m->r, &s->states, &m->states, (uint64_t)m->rows * m->length);
}

/* Has the original matrices of the layer in place, or the quantized ones. */
EXL2__PRIVATE void exl2__streams_swap(exl2__streams *s, bool original)
{
    for (uint32_t i = 0; i < s->count && s->original != original; i++) {
#ifndef EXL2_NO_CUDA
        if (s->trials[i].on_gpu) {
            exl2__gpu_solve_swap(s->m->gpu, s->trials[i].part);
            continue;
        }
#endif
        exl2__cpu_part other = *s->trials[i].part;
        *s->trials[i].part = s->trials[i].kept;
        s->trials[i].kept = other;
    }
    s->original = original;
}

/* Begins a pass over rows of one of the streams. keep: its states must not change. */
EXL2__PRIVATE exl2_result exl2__streams_rows(exl2__streams *s, uint32_t row, uint32_t count, bool original, bool keep)
{
    const exl2__measure *m = s->m;
    exl2__streams_swap(s, original);
    EXL2__TRY(exl2__runner_begin_all(m->r, NULL, count, m->length));
    return exl2__runner_get(m->r, original ? &m->states : &s->states, (uint64_t)row * m->length, keep);
}

/* Tasks: one token of the input, as the original model has it; as the quantized one does, after that. */
EXL2__PRIVATE void exl2__streams_token_x(void *arg, uint32_t row)
{
    const exl2__streams *s = (const exl2__streams *)arg;
    exl2__runner_input(s->m->r, s->layer, s->input, row, s->x + (size_t)row * s->m->widest);
}

EXL2__PRIVATE void exl2__streams_token_y(void *arg, uint32_t row)
{
    const exl2__streams *s = (const exl2__streams *)arg;
    float *x = s->x + (size_t)row * s->m->widest, *y = s->y + (size_t)row * s->m->widest;
    exl2__runner_input(s->m->r, s->layer, s->input, row, y);
    exl2__correct_row(&s->correct, row, x, y);
}

/* Adds the input of a pass's rows, which both streams begin anew. */
EXL2__PRIVATE exl2_result exl2__streams_add(exl2__streams *s, uint32_t layer, uint32_t row, uint32_t count)
{
    exl2__measure *m = s->m;
    EXL2__TRY(exl2__streams_rows(s, row, count, true, true));
    EXL2__TRY(exl2__runner_until(m->r, layer, s->input));
#ifndef EXL2_NO_CUDA
    if (m->gpu) {
        EXL2__TRY(exl2__gpu_correct_keep(m->gpu));
    }
#endif
    if (!m->gpu) {
        exl2__tasks_run(m->r->c, m->r->row_count, exl2__streams_token_x, s);
    }
    EXL2__TRY(exl2__streams_rows(s, row, count, false, true));
    EXL2__TRY(exl2__runner_until(m->r, layer, s->input));
    if (!m->gpu) {
        exl2__tasks_run(m->r->c, m->r->row_count, exl2__streams_token_y, s);
    }
    return exl2__correct_add(m->r->c, &s->correct, m->r->row_count);
}

/* Sums up an input of a layer over all rows (the head: layer EXL2__UNIT_NO_LAYER), in s->correct and its gram. */
EXL2__PRIVATE exl2_result exl2__streams_input(exl2__streams *s, uint32_t layer, uint32_t input, uint32_t in)
{
    exl2__measure *m = s->m;
    s->layer = layer == EXL2__UNIT_NO_LAYER ? NULL : &m->r->plan.layers[layer];
    s->input = input;
    EXL2__TRY(exl2__correct_begin(&s->correct, &m->grams[input], in));
    for (uint32_t row = 0, count; row < m->rows; row += count) {
        count = exl2__min32(m->rows - row, exl2__runner_together(m->r, layer, m->length));
        EXL2__TRY(exl2__streams_add(s, layer, row, count));
    }
    return exl2__gram_finish(m->r->c, s->correct.gram);
}

/* Puts what the quantizer made of a part in its place. on_gpu: its products run there. */
EXL2__PRIVATE exl2_result exl2__streams_replace(exl2__streams *s, exl2__cpu_part *p, bool on_gpu, exl2__solve *solve)
{
    exl2__streams_swap(s, false);
    EXL2__TRY(exl2__measure_replace(s->m, p, on_gpu, solve, &s->trials[s->count]));
    s->count++;
    return EXL2_OK;
}

/* Forgets the quantized forms. Accepts zeroed ones. */
EXL2__PRIVATE void exl2__streams_drop(exl2__streams *s)
{
    if (s->count > 0) {
        exl2__streams_swap(s, false);
    }
    while (s->count > 0) {
        exl2__measure_restore(s->m, &s->trials[--s->count]);
    }
}

/* Runs both streams through a layer. */
EXL2__PRIVATE exl2_result exl2__streams_next(exl2__streams *s, uint32_t layer)
{
    exl2__measure *m = s->m;
    for (uint32_t row = 0, count; row < m->rows; row += count) {
        uint64_t first = (uint64_t)row * m->length;
        count = exl2__min32(m->rows - row, exl2__runner_together(m->r, layer, m->length));
        EXL2__TRY(exl2__streams_rows(s, row, count, true, false));
        EXL2__TRY(exl2__runner_layer(m->r, layer, NULL, NULL));
        EXL2__TRY(exl2__runner_put(m->r, &m->states, first));
        EXL2__TRY(exl2__streams_rows(s, row, count, false, false));
        EXL2__TRY(exl2__runner_layer(m->r, layer, NULL, NULL));
        EXL2__TRY(exl2__runner_put(m->r, &s->states, first));
    }
    exl2__streams_drop(s);
    return EXL2_OK;
}

#endif
