/* cards_fit.h: whether a model that several cards share by columns fits on each of them.
   takes: a model whose headers are read and whose plan is made, all but the number of pages.
   gives: exl2__cards_fit_pages, exl2__cards_fit_check.

   The cards need different numbers of bytes: they have different shares of columns and heads, or these cannot be
   divided equally, and the first one has the tower. */
#ifndef EXL2__CARDS_FIT_H
#define EXL2__CARDS_FIT_H

#include "cards.h"

/* Bytes of card `index` with `pages` pages. */
typedef struct exl2__cards_fit {
    uint64_t weights, cache, buffers;
} exl2__cards_fit;

EXL2__PRIVATE exl2__cards_fit exl2__cards_fit_of(exl2__model *m, uint32_t index, uint32_t pages)
{
    m->plan.pages = pages;
    exl2__spans_share(&m->spans, &m->plan);
    exl2__share_bytes bytes = exl2__hardware_share_bytes(m->spans.span, index);
    uint64_t weights = m->weights.span_bytes[index] + exl2__cards_tower_bytes(m, index);
    return (exl2__cards_fit){ weights, bytes.cache, bytes.buffers };
}

static inline uint64_t exl2__cards_fit_sum(exl2__cards_fit fit)
{
    return fit.weights + fit.cache + fit.buffers;
}

/* As exl2__plan_pages: the most pages that fit on every card. sample: a number of pages by which one is measured. */
EXL2__PRIVATE uint32_t exl2__cards_fit_pages(exl2__model *m, uint64_t wanted, uint32_t usual, uint32_t sample)
{
    uint32_t pages = UINT32_MAX;
    for (uint32_t i = 0; i < m->desc.card_count; i++) {
        uint64_t with_pages = exl2__cards_fit_sum(exl2__cards_fit_of(m, i, sample));
        uint64_t fixed = exl2__cards_fit_sum(exl2__cards_fit_of(m, i, 0));
        uint64_t room = exl2__hardware_share_room(m->spans.span, i), most = m->cards[i].bytes_max;
        uint32_t fitting = exl2__plan_pages(&m->plan, wanted, usual, exl2__div_up(with_pages - fixed, sample), fixed,
                                            most ? exl2__min64(room, most) : room);
        pages = exl2__min32(pages, fitting);
    }
    return pages;
}

/* Fails if the model would exceed a card's cap with `pages` pages. */
EXL2__PRIVATE exl2_result exl2__cards_fit_check(exl2__ctx *c, exl2__model *m, uint32_t pages)
{
    for (uint32_t i = 0; i < m->desc.card_count; i++) {
        exl2__cards_fit fit = exl2__cards_fit_of(m, i, pages);
        uint64_t most = m->cards[i].bytes_max, all = exl2__cards_fit_sum(fit);
        if (most && all > most) {
            return exl2__fail(c, EXL2_ERR_BUDGET, "%s: the model needs %llu bytes on the GPU of cards[%u] (weights "
                              "%llu, cache %llu, buffers %llu), but its bytes_max is %llu", m->path,
                              (unsigned long long)all, i, (unsigned long long)fit.weights,
                              (unsigned long long)fit.cache, (unsigned long long)fit.buffers,
                              (unsigned long long)most);
        }
    }
    return EXL2_OK;
}

#endif
