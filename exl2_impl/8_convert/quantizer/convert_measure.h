/* convert_measure.h: the first stage of a conversion: layer by layer the moments of inputs, the losses of blocks, the
   sensitivities; all of it is kept in the work folder.
   takes: exl2__convert, whose source is open.
   gives: exl2__convert_measure, exl2__convert_load_moments, exl2__convert_moments_name, exl2__convert_on_gpu. */
#ifndef EXL2__CONVERT_MEASURE_H
#define EXL2__CONVERT_MEASURE_H

#include "convert_open.h"

EXL2__PRIVATE void exl2__convert_moments_name(uint32_t layer, uint32_t input, char name[EXL2__FILE_NAME_MAX])
{
    if (layer == EXL2__LINEARS_NO_LAYER) {
        exl2__format(name, EXL2__FILE_NAME_MAX, "head-moments");
    } else {
        exl2__format(name, EXL2__FILE_NAME_MAX, "layer-%u-%u.moments", layer, input);
    }
}

/* The moments of an input, from the diagonal of each strip down, and the number of its tokens, as a file. Returns the
   number of pieces. */
EXL2__PRIVATE uint32_t exl2__convert_moments(exl2__convert *v, uint32_t input,
                                             exl2__workdir_piece pieces[EXL2__MATRIX_IN_MAX / EXL2__PANELS_LANES + 1])
{
    exl2__gram *gram = &v->measure.grams[input];
    uint32_t strips = gram->in / EXL2__PANELS_LANES;
    for (uint32_t i = 0; i < strips; i++) {
        uint64_t below = ((uint64_t)gram->in - i * EXL2__PANELS_LANES) * EXL2__PANELS_LANES;
        pieces[i] = (exl2__workdir_piece){ gram->sum + ((size_t)i + 1) * gram->in * EXL2__PANELS_LANES - below,
                                           below * sizeof *gram->sum };
    }
    pieces[strips] = (exl2__workdir_piece){ &gram->tokens, sizeof gram->tokens };
    return strips + 1;
}

EXL2__PRIVATE exl2_result exl2__convert_save_moments(exl2__convert *v, uint32_t layer, uint32_t input)
{
    exl2__workdir_piece pieces[EXL2__MATRIX_IN_MAX / EXL2__PANELS_LANES + 1];
    char name[EXL2__FILE_NAME_MAX];
    exl2__convert_moments_name(layer, input, name);
    return exl2__workdir_save(&v->work, name, pieces, exl2__convert_moments(v, input, pieces));
}

EXL2__PRIVATE exl2_result exl2__convert_load_moments(exl2__convert *v, uint32_t layer, uint32_t input, bool *found)
{
    exl2__workdir_piece pieces[EXL2__MATRIX_IN_MAX / EXL2__PANELS_LANES + 1];
    char name[EXL2__FILE_NAME_MAX];
    exl2__convert_moments_name(layer, input, name);
    EXL2__TRY(exl2__workdir_load(&v->work, name, pieces, exl2__convert_moments(v, input, pieces), found));
    exl2__gram_replaced(v->c, &v->measure.grams[input]);
    return EXL2_OK;
}

/* Pieces of the file with what was measured of a layer. A layer without linears has an empty one. */
EXL2__PRIVATE void exl2__convert_losses(exl2__convert *v, uint32_t layer, exl2__workdir_piece pieces[2],
                                        char name[EXL2__FILE_NAME_MAX])
{
    const exl2__linear *first = &v->linears.items[v->linears.first[layer]];
    const exl2__linear *end = &v->linears.items[v->linears.first[layer + 1]];
    pieces[0] = (exl2__workdir_piece){ first->measured, (uint64_t)(end - first) * sizeof *first->measured };
    pieces[1] = (exl2__workdir_piece){ first->losses, (uint64_t)(end->losses - first->losses) * sizeof *first->losses };
    exl2__format(name, EXL2__FILE_NAME_MAX, "layer-%u.losses", layer);
}

/* What is done of measuring a layer, once `share` of its linears are. */
EXL2__PRIVATE exl2_result exl2__convert_measure_progress(const exl2__convert *v, uint32_t layer, double share)
{
    return exl2__convert_progress(v, "measure", (layer + share) / v->source.plan.shape.layers);
}

/* Do a linear's products run on the GPU? */
static inline bool exl2__convert_on_gpu(const exl2__convert *v, const exl2__linear *linear)
{
    return exl2__runner_on_gpu(&v->source, linear->layer, linear->input);
}

/* Measures the linears [first, end), which are tried together, and runs the probes through their layer with the
   quantized forms in place, to `states`. *f: the factor of the input `*input`, which is replaced when another one is
   needed. trials [end - first]: zeroed. *loss: of all linears. */
EXL2__PRIVATE exl2_result exl2__convert_try(exl2__convert *v, uint32_t first, uint32_t end, exl2__factor *f,
                                            uint32_t *input, exl2__measure_trial *trials, exl2__runner_states states,
                                            double *loss)
{
    uint32_t layer = v->linears.items[first].layer, linears = v->linears.first[layer + 1] - v->linears.first[layer];
    exl2_result result = EXL2_OK;
    *loss = 0;
    for (uint32_t i = first; i < end && result >= 0; i++) {
        exl2__linear *linear = &v->linears.items[i];
        const exl2__gram *gram = &v->measure.grams[linear->input];
        if (linear->input != *input) {
            exl2__factor_close(v->c, f);
            *input = UINT32_MAX;
            EXL2__TRY(exl2__factor_make(v->c, exl2__convert_gpu(v), linear->name, gram->sum, linear->in, f));
            *input = linear->input;
            exl2__convert_time(v, EXL2_CONVERT_FACTOR);
        }
        linear->measured->share = 1;
        if (linear->kind == EXL2__UNIT_EXPERT_UP || linear->kind == EXL2__UNIT_EXPERT_DOWN) {
            uint64_t used = v->measure.grams[EXL2__RUNNER_EXPERTS + linear->expert].tokens;
            linear->measured->share = ((double)used + 0.5) / ((double)v->rows * v->length);
        }
        result = exl2__measure_part(&v->measure, exl2__linears_part(&v->source, linear), exl2__convert_on_gpu(v,
                                                                                                              linear),
                                    linear->out, f, linear->losses, linear->measured, &trials[i - first]);
        exl2__convert_time(v, EXL2_CONVERT_LOSSES);
        *loss += trials[i - first].loss;
        double share = (i + 1.0 - v->linears.first[layer]) / linears / 2; /* the rest of the model is the other half */
        result = result < 0 ? result : exl2__convert_measure_progress(v, layer, share);
    }
    if (result >= 0) {
        result = exl2__measure_probe_layer(&v->measure, layer, v->measure.before, states, 1);
    }
    exl2__convert_time(v, EXL2_CONVERT_PROBE);
    return result;
}

/* The same with memory for the trials, which are taken back. */
EXL2__PRIVATE exl2_result exl2__convert_try_linears(exl2__convert *v, uint32_t first, uint32_t end, exl2__factor *f,
                                                    uint32_t *input, exl2__runner_states states, double *loss)
{
    void *memory;
    uint64_t bytes = (end - first) * sizeof(exl2__measure_trial);
    EXL2__TRY(exl2__alloc(v->c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    exl2__measure_trial *trials = (exl2__measure_trial *)memory;
    memset(trials, 0, (size_t)bytes);
    exl2_result result = exl2__convert_try(v, first, end, f, input, trials, states, loss);
    for (uint32_t i = 0; i < end - first; i++) {
        exl2__measure_restore(&v->measure, &trials[i]);
    }
    exl2__free(v->c, memory, bytes, EXL2_MEM_SCRATCH);
    return result;
}

/* Linears of a layer that are tried together. */
typedef struct exl2__convert_trial {
    uint32_t first, end;
    double loss;
} exl2__convert_trial;

/* Runs all trials of a layer through the rest of the model: the sensitivities of their linears. */
EXL2__PRIVATE exl2_result exl2__convert_try_rest(exl2__convert *v, uint32_t layer, const exl2__convert_trial *trials,
                                                 uint32_t count)
{
    exl2__measure *m = &v->measure;
    uint32_t layers = v->source.plan.shape.layers;
    for (uint32_t next = layer + 1; next < layers; next++) {
        EXL2__TRY(exl2__measure_probe_layer(m, next, m->copies, m->copies, count));
        EXL2__TRY(exl2__convert_measure_progress(v, layer, (1 + (double)(next - layer) / (layers - layer)) / 2));
    }
    for (uint32_t i = 0; i < count; i++) {
        exl2__measure_kl kl;
        exl2__runner_states states = exl2__measure_copy(m, i);
        EXL2__TRY(exl2__measure_kl_of(m, &states, &kl));
        for (uint32_t k = trials[i].first; k < trials[i].end; k++) {
            v->linears.items[k].measured->sensitivity = trials[i].loss > 0 ? kl.typical / trials[i].loss : 0;
            v->linears.items[k].measured->mean = trials[i].loss > 0 ? kl.mean / trials[i].loss : 0;
        }
    }
    exl2__convert_time(v, EXL2_CONVERT_PROBE);
    return EXL2_OK;
}

/* Measures all matrices of a layer. */
EXL2__PRIVATE exl2_result exl2__convert_measure_linears(exl2__convert *v, uint32_t layer)
{
    exl2__factor f = { 0 };
    exl2__convert_trial trials[EXL2__MEASURE_COPIES];
    uint32_t input = UINT32_MAX, count = 0;
    exl2_result result = EXL2_OK;
    for (uint32_t first = v->linears.first[layer]; first < v->linears.first[layer + 1] && result >= 0; count++) {
        exl2__convert_trial *t = &trials[count];
        *t = (exl2__convert_trial){ first, first + 1, 0 };
        while (exl2__linears_together(&v->linears.items[first], &v->linears.items[t->end])) {
            t->end++;
        }
        result = exl2__convert_try_linears(v, t->first, t->end, &f, &input, exl2__measure_copy(&v->measure, count),
                                           &t->loss);
        first = t->end;
    }
    exl2__factor_close(v->c, &f);
    return result < 0 ? result : exl2__convert_try_rest(v, layer, trials, count);
}

EXL2__PRIVATE exl2_result exl2__convert_save_states(exl2__convert *v, uint32_t layer)
{
    uint64_t index = layer, count = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden;
    exl2__workdir_piece pieces[2] = { { &index, sizeof index }, { v->measure.states.host, count * sizeof(float) } };
    EXL2__TRY(exl2__runner_states_sync(&v->source, &v->measure.states, (uint64_t)v->rows * v->length, true));
    return exl2__workdir_save(&v->work, "states", pieces, 2);
}

/* Sets the states to those before the last saved layer, at most `layer`, or to the embeddings. */
EXL2__PRIVATE exl2_result exl2__convert_load_states(exl2__convert *v, uint32_t layer, uint32_t *at)
{
    uint64_t index = 0, count = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden;
    exl2__workdir_piece pieces[2] = { { &index, sizeof index }, { v->measure.states.host, count * sizeof(float) } };
    bool found;
    EXL2__TRY(exl2__workdir_load(&v->work, "states", pieces, 2, &found));
    *at = (uint32_t)index;
    if (found && index <= layer) {
        return exl2__runner_states_sync(&v->source, &v->measure.states, (uint64_t)v->rows * v->length, false);
    }
    *at = 0;
    return exl2__measure_begin(&v->measure);
}

EXL2__PRIVATE exl2_result exl2__convert_measure_layer(exl2__convert *v, uint32_t layer, bool measured)
{
    exl2__workdir_piece pieces[2];
    char name[EXL2__FILE_NAME_MAX];
    EXL2__TRY(exl2__measure_layer(&v->measure, layer));
    exl2__convert_time(v, EXL2_CONVERT_FORWARD);
    if (measured) {
        return EXL2_OK;
    }
    for (uint32_t input = 0; input < exl2__runner_inputs(&v->source); input++) {
        if (v->measure.grams[input].in) {
            EXL2__TRY(exl2__convert_save_moments(v, layer, input));
        }
    }
    exl2__convert_time(v, EXL2_CONVERT_FILES);
    if (!v->d->measurement_file) {
        EXL2__TRY(exl2__convert_measure_linears(v, layer));
    }
    exl2__convert_losses(v, layer, pieces, name);
    return exl2__workdir_save(&v->work, name, pieces, 2);
}

/* Pieces of the file with what was measured of a head whose widths are allocated. */
EXL2__PRIVATE void exl2__convert_head_losses(exl2__convert *v, exl2__workdir_piece pieces[2])
{
    const exl2__linear *head = &v->linears.items[v->linears.count - 1];
    pieces[0] = (exl2__workdir_piece){ head->measured, sizeof *head->measured };
    pieces[1] = (exl2__workdir_piece){ head->losses, EXL2__LOSSES_WIDTHS * (head->in / 32) * sizeof *head->losses };
}

/* Measures the head, after its moments. */
EXL2__PRIVATE exl2_result exl2__convert_measure_head(exl2__convert *v)
{
    const exl2__linear *head = &v->linears.items[v->linears.count - 1];
    exl2__workdir_piece pieces[2];
    exl2__factor f;
    exl2__measure_trial trial = { 0 };
    exl2__measure_kl kl = { 0, 0 };
    EXL2__TRY(exl2__factor_make(v->c, exl2__convert_gpu(v), head->name, v->measure.grams[EXL2__RUNNER_QKV].sum,
                                head->in, &f));
    head->measured->share = 1;
    exl2_result result = exl2__measure_keep_before(&v->measure);
    result = result < 0 ? result : exl2__measure_part(&v->measure, exl2__linears_part(&v->source, head),
                                                      exl2__convert_on_gpu(v, head), head->out, &f, head->losses,
                                                      head->measured, &trial);
    result = result < 0 ? result : exl2__measure_kl_of(&v->measure, &v->measure.before, &kl);
    if (trial.loss > 0) {
        head->measured->sensitivity = kl.typical / trial.loss;
        head->measured->mean = kl.mean / trial.loss;
    }
    exl2__measure_restore(&v->measure, &trial);
    exl2__factor_close(v->c, &f);
    exl2__convert_time(v, EXL2_CONVERT_LOSSES);
    exl2__convert_head_losses(v, pieces);
    return result < 0 ? result : exl2__workdir_save(&v->work, "head-losses", pieces, 2);
}

/* Measures what is not in the work folder yet. */
EXL2__PRIVATE exl2_result exl2__convert_measure(exl2__convert *v)
{
    uint32_t layers = v->source.plan.shape.layers, first = 0, at;
    exl2__workdir_piece pieces[2];
    char name[EXL2__FILE_NAME_MAX];
    bool found = true;
    while (first < layers && found) {
        exl2__convert_losses(v, first, pieces, name);
        EXL2__TRY(exl2__workdir_load(&v->work, name, pieces, 2, &found));
        first += found;
    }
    if (found) {
        EXL2__TRY(exl2__measure_clear(&v->measure, NULL));
        EXL2__TRY(exl2__convert_load_moments(v, EXL2__LINEARS_NO_LAYER, EXL2__RUNNER_QKV, &found));
        if (found && !v->linears.head_bits) {
            exl2__convert_head_losses(v, pieces);
            EXL2__TRY(exl2__workdir_load(&v->work, "head-losses", pieces, 2, &found));
        }
        if (found) {
            return EXL2_OK;
        }
    }
    if (!v->d->measurement_file || !v->linears.head_bits) {
        EXL2__TRY(exl2__measure_probes(&v->measure));
    }
    exl2__convert_time(v, EXL2_CONVERT_PROBE);
    EXL2__TRY(exl2__convert_load_states(v, first, &at));
    uint64_t saved_ns = exl2__platform_ns();
    for (; at < layers; at++) {
        EXL2__TRY(exl2__convert_measure_layer(v, at, at < first));
        if (exl2__platform_ns() - saved_ns > EXL2__CONVERT_SAVE_NS) {
            EXL2__TRY(exl2__convert_save_states(v, at + 1));
            saved_ns = exl2__platform_ns();
        }
    }
    EXL2__TRY(exl2__measure_head(&v->measure));
    if (!v->linears.head_bits) {
        EXL2__TRY(exl2__convert_measure_head(v));
    }
    return exl2__convert_save_moments(v, EXL2__LINEARS_NO_LAYER, EXL2__RUNNER_QKV);
}

#endif
