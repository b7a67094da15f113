/* step_cards.h: which models have a share of a step, and how they share its time on each GPU.
   takes: an engine; the gpu_us of a step.
   gives: exl2__step_kind, exl2__step_has_work; exl2__step_cards, exl2__step_share_cards, _take_cards, _return_cards.

   Each GPU has a time of its own, which only the models that lie there share: a model on another GPU takes nothing of
   it. */
#ifndef EXL2__STEP_CARDS_H
#define EXL2__STEP_CARDS_H

#include "cards.h"
#include "loras.h"
#include "masks.h"

#define EXL2__STEP_FREE_NS ((uint64_t)1000000000000u) /* of a GPU without a limit */

/* What a step of a model can be. */
typedef enum exl2__step_kind { EXL2__STEP_LOADS = 1, EXL2__STEP_PASSES = 2 } exl2__step_kind;

/* Whether the model has a share of a step of these kinds. text_only and failed models have none. */
static inline bool exl2__step_has_work(const exl2__model *m, uint32_t kinds)
{
    bool loads = m->state == EXL2_PENDING || m->park == EXL2__PARK_LOADS;
    bool works = loads || (m->state == EXL2_OK && exl2__objects_backend(m));
    bool adapters = (kinds & EXL2__STEP_LOADS) && exl2__loras_have_work(m);
    return m->id && works && (adapters || (kinds & (loads ? EXL2__STEP_LOADS : EXL2__STEP_PASSES)));
}

/* Whether a part of the model lies on the engine's GPU `card`. */
static inline bool exl2__step_is_on(const exl2_engine *e, const exl2__model *m, uint32_t card)
{
    bool on = false;
    for (uint32_t i = 0; i < m->desc.card_count && exl2__cards_by_columns(m); i++) {
        on = on || m->cards[i].device == card;
    }
    for (uint32_t i = 0; i < m->spans.count && exl2__objects_is_async(m); i++) {
        on = on || exl2__cards_device(e, m, i) == card;
    }
    return on;
}

/* The GPU time of a step on each GPU, which models share that lie there. */
typedef struct exl2__step_cards {
    uint64_t ns[EXL2_DEVICES_MAX];     /* left */
    uint32_t models[EXL2_DEVICES_MAX]; /* that have not had their share */
} exl2__step_cards;

static inline exl2__step_cards exl2__step_share_cards(const exl2_engine *e, uint32_t gpu_us, uint32_t kinds)
{
    exl2__step_cards cards = { { 0 }, { 0 } };
    for (uint32_t card = 0; card < e->hardware.count; card++) {
        uint32_t own = e->hardware.gpu_us[card];
        cards.ns[card] = own == UINT32_MAX ? EXL2__STEP_FREE_NS : (uint64_t)(own ? own : gpu_us) * 1000u;
        for (uint32_t i = 0; i < e->max_models; i++) {
            const exl2__model *m = &e->models[i];
            cards.models[card] += exl2__step_has_work(m, kinds) && exl2__step_is_on(e, m, card);
        }
    }
    return cards;
}

/* What the model may use of the step on the card of a span. Cards that share every matrix work at the same time. */
static inline uint64_t exl2__step_card_ns(const exl2_engine *e, const exl2__model *m, const exl2__budget *budget,
                                          uint32_t span)
{
    uint64_t ns = budget->card_ns[exl2__cards_device(e, m, span)];
    for (uint32_t i = 0; i < m->desc.card_count && exl2__cards_by_columns(m); i++) {
        ns = exl2__min64(ns, budget->card_ns[m->cards[i].device]);
    }
    return ns;
}

/* Records that the model has `ns` left of this time. */
static inline void exl2__step_card_left(const exl2_engine *e, const exl2__model *m, exl2__budget *budget, uint32_t span,
                                        uint64_t ns)
{
    uint64_t used = exl2__step_card_ns(e, m, budget, span) - exl2__min64(ns, exl2__step_card_ns(e, m, budget, span));
    if (!exl2__cards_by_columns(m)) {
        budget->card_ns[exl2__cards_device(e, m, span)] = ns;
        return;
    }
    for (uint32_t i = 0; i < m->desc.card_count; i++) {
        uint64_t *left = &budget->card_ns[m->cards[i].device];
        *left -= exl2__min64(*left, used);
    }
}

/* Gives the model its share of the step's time on each of its GPUs. */
static inline void exl2__step_take_cards(const exl2_engine *e, const exl2__model *m, exl2__step_cards *cards,
                                         exl2__budget *budget)
{
    budget->gpu_ns = EXL2__STEP_FREE_NS;
    for (uint32_t card = 0; card < e->hardware.count; card++) {
        if (exl2__step_is_on(e, m, card)) {
            budget->card_ns[card] = exl2__max64(cards->ns[card] / exl2__max32(cards->models[card], 1), 1);
            budget->gpu_ns = exl2__min64(budget->gpu_ns, budget->card_ns[card]);
        }
    }
}

/* Takes back what the model has left of its share. */
static inline void exl2__step_return_cards(const exl2_engine *e, const exl2__model *m, const exl2__budget *before,
                                           const exl2__budget *after, exl2__step_cards *cards)
{
    for (uint32_t card = 0; card < e->hardware.count; card++) {
        if (exl2__step_is_on(e, m, card)) {
            uint64_t used = before->card_ns[card] - exl2__min64(before->card_ns[card], after->card_ns[card]);
            cards->ns[card] -= exl2__min64(cards->ns[card], used);
            cards->models[card] -= cards->models[card] > 1;
        }
    }
}

#endif
