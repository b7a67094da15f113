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
#include "measure.h"

typedef struct exl2__streams {
    exl2__measure *m;
    float *states;       /* [rows, length, hidden] of the quantized model */
    float *x, *y;        /* [length, widest] rows of one input, of the original and of the quantized model */
    exl2__correct correct;
    exl2__measure_trial *trials; /* [most] */
    uint32_t count;      /* of trials, which are in place unless */
    bool original;       /* the original matrices are */
    /* of the input that is being computed: */
    const exl2__layer *layer; /* NULL: the head */
    uint32_t input;
} exl2__streams;

/* most: slots of a layer. */
static void exl2__streams_layout(exl2__streams *s, exl2__measure *m, uint32_t most, exl2__arena *a)
{
    uint64_t inputs = (uint64_t)m->length * m->widest * sizeof(float);
    *s = (exl2__streams){ .m = m };
    s->states = (float *)exl2__arena_alloc(a, (uint64_t)m->rows * m->length * m->r->plan.shape.hidden
                                                  * sizeof *s->states);
    s->x = (float *)exl2__arena_alloc(a, inputs);
    s->y = (float *)exl2__arena_alloc(a, inputs);
    s->trials = (exl2__measure_trial *)exl2__arena_alloc_zeroed(a, most * sizeof *s->trials);
    exl2__correct_layout(&s->correct, m->widest, m->length, a);
}

/* Both streams begin with the embeddings. */
static exl2_result exl2__streams_begin(exl2__streams *s)
{
    const exl2__measure *m = s->m;
    EXL2__TRY(exl2__measure_begin(s->m));
    memcpy(s->states, m->states, (size_t)m->rows * m->length * m->r->plan.shape.hidden * sizeof *s->states);
    return EXL2_OK;
}

/* Has the original matrices of the layer in place, or the quantized ones. */
static void exl2__streams_swap(exl2__streams *s, bool original)
{
    for (uint32_t i = 0; i < s->count && s->original != original; i++) {
        exl2__cpu_part other = *s->trials[i].part;
        *s->trials[i].part = s->trials[i].kept;
        s->trials[i].kept = other;
    }
    s->original = original;
}

/* Begins a row of one of the streams. */
static exl2_result exl2__streams_row(exl2__streams *s, uint32_t row, bool original)
{
    exl2__measure m = *s->m;
    m.states = original ? m.states : s->states;
    exl2__streams_swap(s, original);
    EXL2__TRY(exl2__runner_begin(m.r, m.ids + (size_t)row * m.length, m.length));
    exl2__measure_move(&m, row, m.length, true);
    return EXL2_OK;
}

/* Tasks: one token of the input, as the original model has it; as the quantized one does, after that. */
static void exl2__streams_token_x(void *arg, uint32_t row)
{
    const exl2__streams *s = (const exl2__streams *)arg;
    exl2__runner_input(s->m->r, s->layer, s->input, row, s->x + (size_t)row * s->m->widest);
}

static void exl2__streams_token_y(void *arg, uint32_t row)
{
    const exl2__streams *s = (const exl2__streams *)arg;
    float *x = s->x + (size_t)row * s->m->widest, *y = s->y + (size_t)row * s->m->widest;
    exl2__runner_input(s->m->r, s->layer, s->input, row, y);
    exl2__correct_row(&s->correct, row, x, y);
}

/* Sums up an input of a layer over all rows (the head: layer EXL2__UNIT_NO_LAYER), in s->correct and its gram. */
static exl2_result exl2__streams_input(exl2__streams *s, uint32_t layer, uint32_t input, uint32_t in)
{
    exl2__measure *m = s->m;
    bool head = layer == EXL2__UNIT_NO_LAYER;
    s->layer = head ? NULL : &m->r->plan.layers[layer];
    s->input = input;
    exl2__correct_begin(&s->correct, &m->grams[input], in);
    for (uint32_t row = 0; row < m->rows; row++) {
        EXL2__TRY(exl2__streams_row(s, row, true));
        EXL2__TRY(head ? EXL2_OK : exl2__runner_until(m->r, layer, input));
        exl2__tasks_run(m->r->c, m->length, exl2__streams_token_x, s);
        EXL2__TRY(exl2__streams_row(s, row, false));
        EXL2__TRY(head ? EXL2_OK : exl2__runner_until(m->r, layer, input));
        exl2__tasks_run(m->r->c, m->length, exl2__streams_token_y, s);
        EXL2__TRY(exl2__correct_add(m->r->c, &s->correct, m->length));
    }
    return exl2__gram_finish(s->correct.gram);
}

/* Puts what the quantizer made of a part in its place. */
static exl2_result exl2__streams_replace(exl2__streams *s, exl2__cpu_part *p, exl2__solve *solve)
{
    exl2__streams_swap(s, false);
    EXL2__TRY(exl2__measure_replace(s->m, p, solve, &s->trials[s->count]));
    s->count++;
    return EXL2_OK;
}

/* Forgets the quantized forms. Accepts zeroed ones. */
static void exl2__streams_drop(exl2__streams *s)
{
    if (s->count > 0) {
        exl2__streams_swap(s, false);
    }
    while (s->count > 0) {
        exl2__measure_restore(s->m, &s->trials[--s->count]);
    }
}

/* Runs both streams through a layer. */
static exl2_result exl2__streams_next(exl2__streams *s, uint32_t layer)
{
    exl2__measure other = *s->m;
    other.states = s->states;
    for (uint32_t row = 0; row < s->m->rows; row++) {
        EXL2__TRY(exl2__streams_row(s, row, true));
        EXL2__TRY(exl2__runner_layer(s->m->r, layer, NULL, NULL));
        exl2__measure_move(s->m, row, s->m->length, false);
        EXL2__TRY(exl2__streams_row(s, row, false));
        EXL2__TRY(exl2__runner_layer(s->m->r, layer, NULL, NULL));
        exl2__measure_move(&other, row, s->m->length, false);
    }
    exl2__streams_drop(s);
    return EXL2_OK;
}

#endif
