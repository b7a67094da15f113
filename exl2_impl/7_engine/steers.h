/* steers.h: the control vectors of a model: how they are made, which jobs have them, and when their places are free.
   takes: exl2_steer_desc; the steers of a job's desc.
   gives: exl2__steers_find, exl2__steers_make, exl2__steers_close; exl2__steers_of_desc.
   owns:  nothing; the values lie in the model's scratch memory, so a parked model keeps them.

   They are in the sets of adapters (loras.h): for pages, snapshots and rows of a pass they are more of those. */
#ifndef EXL2__STEERS_H
#define EXL2__STEERS_H

#include "../1_load/content_id.h"
#include "../1_load/steer_file.h"
#include "loras.h"

/* The control vector of a handle, and its model; NULL: it is stale. */
EXL2__PRIVATE exl2__steer *exl2__steers_find(exl2_engine *e, exl2_steer handle, exl2__model **model)
{
    for (uint32_t i = 0; handle.id && i < e->max_models; i++) {
        exl2__model *m = &e->models[i];
        for (uint32_t k = 0; m->id && m->steers && k < m->desc.steer_max; k++) {
            if (m->steers[k].id == handle.id && !m->steers[k].closing) {
                *model = m;
                return &m->steers[k];
            }
        }
    }
    return NULL;
}

/* Frees the places of those that were closed, and that nothing uses any more. */
EXL2__PRIVATE void exl2__steers_collect(exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; i < m->desc.steer_max; i++) {
        exl2__steer *s = &m->steers[i];
        if (s->id && s->closing && !exl2__loras_is_used(e, m, s->id)) {
            exl2__roots_drop(&m->roots, &m->pages, s->id);
            *s = (exl2__steer){ 0 };
        }
    }
}

/* The handle is stale from now on. */
EXL2__PRIVATE void exl2__steers_close(exl2_engine *e, exl2__model *m, exl2__steer *s)
{
    s->closing = true;
    if (!e->in_callback) {
        exl2__steers_collect(e, m);
    }
}

/* ---- making ---- */

/* Copies the vectors of a desc. */
EXL2__PRIVATE exl2_result exl2__steers_copy(exl2_engine *e, const exl2_steer_desc *d, exl2__steer_file *f)
{
    if (d->first_layer >= f->layers || d->layer_count == 0 || d->layer_count > f->layers - d->first_layer) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the desc has vectors of %u layers from layer %u on, but the layers "
                          "of this model are 0 to %u", d->layer_count, d->first_layer, f->layers - 1);
    }
    memset(f->has, 0, f->layers * sizeof *f->has);
    float *to = f->values + (size_t)d->first_layer * f->hidden;
    size_t count = (size_t)d->layer_count * f->hidden;
    for (size_t i = 0; i < count; i++) {
        to[i] = d->values[i];
        if (!exl2__float_is_finite(to[i])) {
            return exl2__fail(&e->ctx, EXL2_ERR_ARG, "value %zu of the control vector is not finite", i);
        }
    }
    memset(f->has + d->first_layer, 1, d->layer_count);
    return EXL2_OK;
}

/* Layers whose vector is 0 have none. Fills in the info. */
EXL2__PRIVATE void exl2__steers_measure(exl2__steer_file *f, exl2_steer_info *info)
{
    uint64_t id[2] = { 3, 5 }; /* other ids than those of adapters */
    double largest = 0;
    *info = (exl2_steer_info){ .bytes = (uint64_t)f->layers * f->hidden * sizeof(float) };
    for (uint32_t layer = 0; layer < f->layers; layer++) {
        const float *vector = f->values + (size_t)layer * f->hidden;
        double sum = 0;
        for (uint32_t i = 0; f->has[layer] && i < f->hidden; i++) {
            sum += exl2__mul_double((double)vector[i], (double)vector[i]);
        }
        f->has[layer] = sum > 0;
        largest = sum > largest ? sum : largest;
        if (f->has[layer]) {
            exl2__content_id_add(id, &layer, sizeof layer);
            exl2__content_id_add(id, vector, f->hidden * sizeof *vector);
            info->layers++;
        }
    }
    info->largest = (float)sqrt(largest);
    exl2__store64(info->content_id, id[0]);
    exl2__store64(info->content_id + 8, id[1]);
}

EXL2__PRIVATE exl2_result exl2__steers_make(exl2_engine *e, exl2__model *m, const exl2_steer_desc *d, exl2_steer *out)
{
    uint32_t slot = 0;
    if (m->desc.steer_max == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s was opened with steer_max 0: set exl2_model_desc.steer_max to "
                          "the number of control vectors", m->path);
    }
    if (m->state != EXL2_OK || m->desc.text_only) {
        return exl2__fail(&e->ctx, EXL2_ERR_STATE,
                          "%s is not loaded yet: a control vector can be made once the model is ready", m->path);
    }
    EXL2__TRY(exl2__objects_not_closing(e, m));
    exl2__steers_collect(e, m);
    while (slot < m->desc.steer_max && m->steers[slot].id) {
        slot++;
    }
    if (slot == m->desc.steer_max) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "%s has %u control vectors already, and exl2_model_desc.steer_max "
                          "is %u: close one of them", m->path, slot, slot);
    }
    uint32_t layers = m->plan.shape.layers, hidden = m->plan.shape.hidden;
    exl2__steer_file f = { m->steer_values + (size_t)slot * layers * hidden, m->steer_has + (size_t)slot * layers,
                           layers, hidden };
    EXL2__TRY(d->path ? exl2__steer_file_read(&e->ctx, d->path, &f) : exl2__steers_copy(e, d, &f));
    exl2__steer *s = &m->steers[slot];
    exl2__steers_measure(&f, &s->info);
    s->store = (exl2__steer_store){ f.values, f.has, slot };
    s->id = out->id = ++e->loras_made;
    return EXL2_OK;
}

/* ---- the set of a job ---- */

EXL2__PRIVATE exl2_result exl2__steers_check_use(exl2_engine *e, const exl2__model *m, const exl2_steer_use *use,
                                                 exl2__steer **out)
{
    exl2__model *owner;
    exl2__steer *s = exl2__steers_find(e, use->steer, &owner);
    if (!s) {
        return exl2__fail(&e->ctx, EXL2_ERR_STALE, "steer handle %llu names no control vector; it was closed, or never "
                          "made", (unsigned long long)use->steer.id);
    }
    if (owner != m) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "control vector %llu belongs to another model than the job's",
                          (unsigned long long)s->id);
    }
    if (!exl2__loras_is_factor(use->factor)) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the factor of control vector %llu must be from -100 to 100",
                          (unsigned long long)s->id);
    }
    *out = s;
    return EXL2_OK;
}

/* Adds the control vectors that a desc asks for to a set that has its adapters. */
EXL2__PRIVATE exl2_result exl2__steers_of_desc(exl2_engine *e, const exl2__model *m, const exl2_job_desc *d,
                                               exl2__lora_set *set)
{
    if (d->steer_count > EXL2_JOB_STEERS) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job names %u control vectors, but a job has at most %u",
                          d->steer_count, EXL2_JOB_STEERS);
    }
    exl2__lora_use *uses = set->uses + set->count;
    for (uint32_t i = 0; i < d->steer_count; i++) {
        const exl2_steer_use *use = &d->steers[i];
        exl2__steer *s = NULL;
        EXL2__TRY(exl2__steers_check_use(e, m, use, &s));
        for (uint32_t k = 0; k < i; k++) {
            if (d->steers[k].steer.id == s->id) {
                return exl2__fail(&e->ctx, EXL2_ERR_ARG, "the job names control vector %llu twice",
                                  (unsigned long long)s->id);
            }
        }
        if (use->factor >= -100 && s->info.layers > 0) { /* else EXL2_OFF, or nothing to add */
            exl2__loras_insert(m, uses, &set->steer_count, (exl2__lora_use){ NULL, &s->store, s->id, use->factor });
        }
    }
    return EXL2_OK;
}

#endif
