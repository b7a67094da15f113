/* image_work.h: a step's work on pictures: which one is next, its resizing and its pass through the tower, the events.
   takes: pictures that wait; jobs that need rows; a budget.
   gives: exl2__images_gate, exl2__images_run, exl2__images_deliver.

   A picture that a running job needs goes before those that were only made. Until the picture's rows are computed, the
   job gets no rows from that place on; other jobs continue. */
#ifndef EXL2__IMAGE_WORK_H
#define EXL2__IMAGE_WORK_H

#include "../2_graph/forward_queue.h"
#include "images.h"

#ifndef EXL2_NO_VISION

/* ---- jobs that wait ---- */

/* Ends a job whose next picture is gone. */
EXL2__PRIVATE void exl2__images_miss(exl2_engine *e, exl2__model *m, exl2__job *job, uint32_t slot, uint32_t at)
{
    char id[33];
    exl2_result why = m->images.data[slot].result;
    exl2__job *positive = exl2__objects_positive(job);
    exl2__images_id_text(exl2__images_pictures(m)->picture[slot].id, id);
    exl2_result r = why < 0 ? exl2__fail(&e->ctx, why, "%s", m->images.data[slot].error)
                            : exl2__fail(&e->ctx, EXL2_ERR_STATE,
                                         "the picture %s at token %u of the history "
                                         "is gone: make it again with exl2_image_make", id, at);
    exl2__jobs_fail(e, positive, r);
}

/* Before the rows of a pass are given: which jobs wait for pictures, and how many rows others may have before one. */
EXL2__PRIVATE void exl2__images_gate(exl2_engine *e, exl2__model *m)
{
    exl2__pictures *p = exl2__images_pictures(m);
    uint64_t now = 0;
    for (uint32_t i = 0; m->images.on && i < p->count; i++) {
        m->images.data[i].wanted = false;
    }
    for (exl2__job *job = NULL; m->images.on && (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        exl2__sequence *s = &job->sequence;
        bool waited = s->pictured;
        uint32_t begin = s->table->cached;
        s->pictured = false;
        s->picture_at = 0;
        for (uint32_t at = begin; p->live > 0 && s->active && at < s->table->tokens; at++) {
            if (!exl2__pictures_is(s->table->words[at])) {
                continue;
            }
            uint32_t slot = exl2__pictures_of(s->table->words[at]);
            m->images.data[slot].age = ++m->images.clock;
            if (p->picture[slot].data) {
                continue;
            }
            m->images.data[slot].wanted = true;
            s->pictured = at == begin;
            s->picture_at = s->pictured ? 0 : at;
            if (!exl2__images_can_return(m, slot) || m->images.data[slot].result < 0) {
                exl2__images_miss(e, m, job, slot, at);
            }
            break;
        }
        now = now || (!waited && !s->pictured) ? now : exl2__platform_ns();
        if (s->pictured && !waited) {
            job->pictured_ns = now;
        } else if (waited && !s->pictured) {
            job->stats.image_ns += now - job->pictured_ns;
        }
    }
}

/* ---- the work ---- */

/* What a step may spend on pictures. */
typedef struct exl2__image_budget {
    uint64_t deadline_ns; /* by exl2__platform_ns; 0: there is none */
    uint64_t unit_ns;     /* of the CPU */
    uint64_t gpu_ns;      /* that may be enqueued, with what is enqueued already; 0: any */
    bool wait;            /* waits for a GPU */
} exl2__image_budget;

/* The picture that is next: one that a job needs, then the one that was made first. One that has its rows and was made
   again is only resized, as its rows may be evicted. */
EXL2__PRIVATE uint32_t exl2__images_next(exl2__model *m)
{
    const exl2__pictures *p = exl2__images_pictures(m);
    uint32_t next = EXL2__NO_PICTURE;
    for (uint32_t i = 0; i < p->count; i++) {
        const exl2__image_data *d = &m->images.data[i];
        bool open = p->picture[i].rows && d->seen.count && d->result >= 0;
        bool named = p->picture[i].uses || p->picture[i].handles, has_rows = p->picture[i].data;
        if (!open || (has_rows && d->resized) || !(d->wanted || (named && (d->fresh || has_rows)))) {
            continue;
        }
        const exl2__image_data *best = next == EXL2__NO_PICTURE ? NULL : &m->images.data[next];
        next = !best || d->wanted > best->wanted || (d->wanted == best->wanted && d->age < best->age) ? i : next;
    }
    return next;
}

static inline bool exl2__images_has_wanted(const exl2__model *m)
{
    for (uint32_t i = 0; m->images.on && i < m->vectors.pictures.count; i++) {
        if (m->images.data[i].wanted) {
            return true;
        }
    }
    return false;
}

/* Begins with the next picture, or with its next stage. false: there is nothing to do now. */
EXL2__PRIVATE bool exl2__images_begin(exl2_engine *e, exl2__model *m)
{
    exl2__images *g = &m->images;
    uint32_t slot = exl2__images_next(m);
    exl2__image_data *d = slot == EXL2__NO_PICTURE ? NULL : &g->data[slot];
    if (!d) {
        return false;
    }
    if (!d->resized) {
        exl2__resize_begin(&g->resize, &g->config, &g->limits, &d->size, g->pixels + d->source.at, d->width, d->height,
                           exl2__images_side(m), g->pixels + d->seen.at, g->resize_scratch, exl2__images_cpu(m));
        g->stage = EXL2__IMAGE_RESIZES;
        g->at = slot;
        return true;
    }
    uint64_t at = exl2__images_room_for_rows(e, m, d->size.rows);
    if (at == EXL2__IMAGE_NOWHERE) {
        return false;
    }
    d->rows = (exl2__image_room){ at, d->size.rows };
    g->stage = EXL2__IMAGE_ENCODES;
    g->at = slot;
    g->begun = false;
    return true;
}

/* Begins the pass through the tower. */
EXL2__PRIVATE exl2_result exl2__images_enter_tower(exl2__model *m)
{
    exl2__images *g = &m->images;
    exl2__image_data *d = &g->data[g->at];
    const exl2__backend_towers *towers = exl2__images_towers(m);
    float *rows = g->pool + d->rows.at * g->config.hidden * g->config.levels;
    g->begun = true;
    if (towers) {
        return towers->begin(m->spans.span[0].device, &d->size, g->pixels + d->seen.at, rows);
    }
    exl2__tower_begin(&g->tower, &d->size, g->pixels + d->seen.at, rows);
    return EXL2_OK;
}

/* Makes the last event due for every handle of the picture: each gets it once. */
static inline void exl2__images_end(exl2__model *m, uint32_t slot)
{
    for (uint32_t i = 0; i < m->images.count; i++) {
        exl2__image *image = &m->images.image[i];
        bool ends = image->id && image->picture == slot && !image->ended;
        image->end_due = image->end_due || ends;
        image->ended = image->ended || ends;
    }
}

/* One unit of the tower on a GPU. *blocked: this step can do no more for pictures. */
EXL2__PRIVATE exl2_result exl2__images_queue(exl2__model *m, const exl2__image_budget *budget, bool *blocked)
{
    const exl2__backend_towers *towers = exl2__images_towers(m);
    uint64_t ns = UINT64_MAX;
    if (budget->gpu_ns > 0) { /* what earlier steps have enqueued counts until it has ended */
        uint64_t queued_ns = exl2__span_queued_ns(&m->spans.span[0]);
        ns = queued_ns >= budget->gpu_ns ? 0 : budget->gpu_ns - queued_ns;
    }
    *blocked = true;
    return towers->step(m->spans.span[0].device, ns, budget->deadline_ns, budget->wait && budget->gpu_ns == 0);
}

/* One unit. *ended: the picture has its rows, or never will. */
EXL2__PRIVATE void exl2__images_unit(exl2_engine *e, exl2__model *m, const exl2__image_budget *budget,
                                     uint64_t unit_ns, bool *ended, bool *blocked)
{
    exl2__images *g = &m->images;
    exl2__image_data *d = &g->data[g->at];
    uint64_t begin_ns = exl2__platform_ns();
    if (g->stage == EXL2__IMAGE_RESIZES) {
        if (exl2__resize_step(&g->resize, exl2__images_cpu(m), unit_ns) != EXL2_PENDING) {
            d->resized = true;
            d->source = (exl2__image_room){ 0 };
            g->stage = EXL2__IMAGE_IDLE;
        }
        return;
    }
    exl2_result r = g->begun ? EXL2_OK : exl2__images_enter_tower(m);
    if (r >= 0) {
        r = exl2__images_towers(m) ? exl2__images_queue(m, budget, blocked) : exl2__tower_step(&g->tower, unit_ns);
    }
    d->encode_ns += exl2__platform_ns() - begin_ns;
    if (r == EXL2_PENDING) {
        return;
    }
    exl2_error error;
    g->passes++;
    g->stage = EXL2__IMAGE_IDLE;
    d->fresh = d->wanted = false;
    d->result = r < 0 ? r : EXL2_OK;
    if (r < 0) {
        exl2__error_copy(&e->ctx, &error);
        exl2__format(d->error, sizeof d->error, "%s", error.text);
        exl2__images_drop_rows(m, g->at);
    } else {
        exl2__images_pictures(m)->picture[g->at].data = g->pool + d->rows.at * g->config.hidden * g->config.levels;
    }
    exl2__images_end(m, g->at);
    *ended = true;
}

#define EXL2__IMAGE_UNIT_NS 2000000u  /* most time of a unit in a step without a budget */
#define EXL2__IMAGE_STEP_NS 50000000u /* most time of such a step for pictures */

/* Works on pictures until the deadline or until one has ended, at least one unit; deadline 0: there is no budget. On a
   GPU it enqueues what the budget allows once. Returns whether one has ended. */
EXL2__PRIVATE bool exl2__images_run(exl2_engine *e, exl2__model *m, const exl2__image_budget *budget, bool *anything)
{
    bool ended = false, blocked = false;
    uint64_t unit_ns = budget->unit_ns ? budget->unit_ns : EXL2__IMAGE_UNIT_NS;
    uint64_t deadline_ns = budget->deadline_ns ? budget->deadline_ns : exl2__platform_ns() + EXL2__IMAGE_STEP_NS;
    while (m->images.on && !ended && !blocked && (m->images.stage != EXL2__IMAGE_IDLE || exl2__images_begin(e, m))) {
        exl2__images_unit(e, m, budget, unit_ns, &ended, &blocked);
        *anything = true;
        bool stops = e->worker.stepping && exl2__atomic_load(&e->worker.wanted);
        if (stops || exl2__platform_ns() >= deadline_ns) {
            break;
        }
    }
    return ended;
}

/* ---- events ---- */

/* Delivers an event of a picture. false: the ring is full. The callback may close the handle, or the model. */
EXL2__PRIVATE bool exl2__images_send(exl2_engine *e, exl2__model *m, const exl2__image *image, bool end)
{
    const exl2__image_data *d = &m->images.data[image->picture];
    exl2__way way = exl2__jobs_choose_way(image->on_event, image->silent, false);
    char text[sizeof d->error];
    exl2_event event = { 0 };
    exl2_flow ignored;
    exl2__format(text, sizeof text, "%s", d->error);
    event.kind = EXL2_EVENT_IMAGE;
    event.model.id = m->id;
    event.image.id = image->id;
    event.user = image->user;
    event.progress = end && d->result >= 0 ? 1.0f : 0.0f;
    event.result = end ? d->result : EXL2_PENDING;
    event.error = event.result < 0 ? text : NULL;
    return exl2__jobs_deliver(e, image->silent ? EXL2__WAY_NOWHERE : way, image->on_event, &event, &ignored);
}

/* Delivers the events of pictures that are due; those with a callback only on the application's thread. */
EXL2__PRIVATE void exl2__images_deliver(exl2_engine *e, exl2__model *m, bool *anything)
{
    uint64_t model = m->id;
    for (uint32_t i = 0; m->id == model && m->state == EXL2_OK && m->images.on && i < m->images.count; i++) {
        exl2__image *image = &m->images.image[i];
        bool heard = image->id && !(image->on_event && !image->silent && e->worker.stepping);
        uint64_t id = image->id;
        if (heard && image->begun_due) {
            image->begun_due = false;
            if (!exl2__images_send(e, m, image, false)) {
                image->begun_due = true;
                return;
            }
            *anything = true;
        }
        if (heard && m->id == model && image->id == id && image->end_due) {
            image->end_due = false;
            if (!exl2__images_send(e, m, image, true)) {
                image->end_due = true;
                return;
            }
            *anything = true;
        }
    }
}

#else

static inline void exl2__images_gate(const exl2_engine *e, const exl2__model *m)
{
    (void)e, (void)m;
}

#endif
#endif
