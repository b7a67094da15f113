/* cards_choose.h: which of the engine's GPUs a model lies on, if it may choose (exl2_model_desc.split_auto): the fewest
   that hold it, and of equally many those that come first in the engine's list.
   takes: a model that was opened on all of them, whose headers are read and whose plan is made.
   gives: exl2__cards_list, exl2__cards_choose.

   A GPU that holds the model alone is better than two, because rows need not cross. So each GPU is tried alone, then
   each pair, and so on: at most 255 trials, which compute sizes only. Where all GPUs together have too little room, the
   model stays on all of them: its MLPs may go to the CPU, or exl2__cards_cut says what is missing. */
#ifndef EXL2__CARDS_CHOOSE_H
#define EXL2__CARDS_CHOOSE_H

#include "cards.h"

/* The cards of a new model whose desc leaves the choice to the engine: all GPUs that opened. */
EXL2__PRIVATE void exl2__cards_list(const exl2_engine *e, exl2__model *m)
{
    for (uint32_t i = 0; m->desc.split_auto && i < e->hardware.count; i++) {
        if (e->hardware.devices[i]) {
            m->cards[m->desc.card_count++] = (exl2_card){ .device = i };
        }
    }
}

/* The model has the cards of the bits in `set`, of those in `all`; it is cut anywhere. */
EXL2__PRIVATE void exl2__cards_take(exl2__model *m, const exl2__spans *all, const exl2_card *cards, uint32_t set)
{
    uint32_t layers = m->weights.config.layers, count = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        if (set >> i & 1) {
            m->spans.span[count] = all->span[i];
            m->cards[count++] = cards[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        m->spans.span[i].end = (uint32_t)((uint64_t)layers * (i + 1) / count);
    }
    m->spans.count = m->desc.card_count = count;
}

/* Closes the devices of the cards that are not in `set`, and links the others. */
EXL2__PRIVATE void exl2__cards_close(exl2__model *m, const exl2__spans *all, uint32_t set)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (!(set >> i & 1)) {
            all->span[i].backend->close(all->span[i].device);
        }
    }
    for (uint32_t i = 0; i < m->spans.count; i++) {
        const exl2__span *span = &m->spans.span[i];
        span->backend->queue->link(span->device, i ? m->spans.span[i - 1].device : NULL);
    }
    for (uint32_t i = m->spans.count; i < all->count; i++) {
        m->spans.span[i] = (exl2__span){ 0 };
        m->cards[i] = (exl2_card){ 0 };
    }
}

/* The next larger number with as many bits. */
static inline uint32_t exl2__cards_next_set(uint32_t set)
{
    uint32_t low = set & (~set + 1), up = set + low;
    return up | ((set ^ up) / low >> 2);
}

/* Chooses the cards, with `pages` pages. */
EXL2__PRIVATE void exl2__cards_choose(exl2__model *m, uint32_t pages)
{
    exl2__spans all = m->spans;
    exl2_card cards[EXL2__SPANS_MAX];
    exl2__cards found;
    uint32_t count = all.count, whole = (1u << count) - 1;
    if (!m->desc.split_auto || count < 2) {
        return;
    }
    memcpy(cards, m->cards, sizeof cards);
    for (uint32_t n = 1; n < count; n++) {
        for (uint32_t set = (1u << n) - 1; set <= whole; set = exl2__cards_next_set(set)) {
            exl2__cards_take(m, &all, cards, set);
            if (exl2__cards_find(m, pages, &found)) {
                exl2__cards_close(m, &all, set);
                exl2__cards_set(m, found.ends);
#ifndef EXL2_NO_VISION
                m->images.reader.device = m->spans.span->device;
#endif
                return;
            }
        }
    }
    exl2__cards_take(m, &all, cards, whole);
}

#endif
