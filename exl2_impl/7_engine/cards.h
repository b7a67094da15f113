/* cards.h: which GPUs a model lies on, and where its layers are cut.
   takes: the engine's devices; exl2_model_desc.cards; the bytes of the model's layers.
   gives: exl2__cards_check, _open, _least_pages, _layers, _find, _set, _cut, _info.

   The cut has two conditions. Each card has room for the weights and the K and V of its layers and for its buffers,
   with the whole cache. And the longest time that a card needs to read its weights is as short as possible or, where
   shares are given, the largest quotient of weights and share is as small as possible. */
#ifndef EXL2__CARDS_H
#define EXL2__CARDS_H

#include "../2_graph/weights_headers.h"
#include "objects.h"

/* The engine's device of the model's card i. */
static inline uint32_t exl2__cards_device(const exl2_engine *e, const exl2__model *m, uint32_t i)
{
    uint32_t first = 0;
    while (!m->desc.card_count && first + 1 < e->hardware.count && !e->hardware.devices[first]) {
        first++;
    }
    return m->desc.card_count ? m->cards[i].device : first;
}

/* Whether the model's cards share every matrix: then they are one span. */
static inline bool exl2__cards_by_columns(const exl2__model *m)
{
    return m->desc.split == EXL2_SPLIT_COLUMNS && m->desc.card_count > 1;
}

/* Whether its layers lie on several cards. */
static inline bool exl2__cards_by_layers(const exl2__model *m)
{
    return m->desc.split == EXL2_SPLIT_LAYERS && m->desc.card_count > 1;
}

/* Checks what a desc says of a split by columns. */
EXL2__PRIVATE exl2_result exl2__cards_check_columns(exl2__ctx *c, const exl2_model_desc *d, const char *call)
{
    if (d->split != EXL2_SPLIT_LAYERS && d->split != EXL2_SPLIT_COLUMNS) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: split is %d, no value of exl2_split", call, (int)d->split);
    }
    if (d->split == EXL2_SPLIT_LAYERS) {
        return EXL2_OK;
    }
    if (d->card_count < 2) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: split is EXL2_SPLIT_COLUMNS, but card_count is %u, less than 2", call,
                          d->card_count);
    }
    return d->offload == EXL2_OFFLOAD_NONE ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: offload is set, but the CPU has no part in a model that cards "
                      "share by columns", call);
}

/* Checks the list of a desc. */
EXL2__PRIVATE exl2_result exl2__cards_check(exl2_engine *e, const exl2_model_desc *d, const char *call)
{
    exl2__ctx *c = &e->ctx;
    uint32_t shares = 0;
    if (d->card_count > EXL2_DEVICES_MAX || (d->card_count && !d->cards)) {
        return exl2__fail(c, EXL2_ERR_ARG, d->cards ? "%s: card_count is %u, more than EXL2_DEVICES_MAX"
                                                    : "%s: card_count is %u, and cards is NULL", call, d->card_count);
    }
    if (d->card_count && d->split_auto) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: split_auto is set, and card_count is %u: with cards the application "
                          "chooses, with split_auto the engine", call, d->card_count);
    }
    for (uint32_t i = 0; i < d->card_count; i++) {
        const exl2_card *card = &d->cards[i];
        if (e->info.backend != EXL2_BACKEND_CUDA) {
            return exl2__fail(c, EXL2_ERR_NO_DEVICE, "%s: the desc names cards, but this engine's models run on the "
                              "CPU", call);
        }
        if (card->device >= e->hardware.count || !e->hardware.devices[card->device]) {
            return exl2__fail(c, EXL2_ERR_ARG, card->device < e->hardware.count
                              ? "%s: cards[%u] is device %u, which did not open"
                              : "%s: cards[%u] is device %u, but the engine has %u", call, i, card->device,
                              e->hardware.count);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (d->cards[k].device == card->device) {
                return exl2__fail(c, EXL2_ERR_ARG, "%s: cards[%u] and cards[%u] are the same device", call, k, i);
            }
        }
        if (!(card->share >= 0 && card->share <= 1e6f)) { /* false for NaN */
            return exl2__fail(c, EXL2_ERR_ARG, "%s: cards[%u].share must be from 0 to 1,000,000", call, i);
        }
        shares += card->share > 0;
    }
    if (shares && shares < d->card_count) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: %u of %u cards have a share: set it for all, or for none", call, shares,
                          d->card_count);
    }
    return exl2__cards_check_columns(c, d, call);
}

/* Opens the model on cards that share every matrix, as one span. */
EXL2__PRIVATE exl2_result exl2__cards_open_columns(exl2_engine *e, exl2__model *m)
{
    void *devices[EXL2_DEVICES_MAX];
    float shares[EXL2_DEVICES_MAX];
    uint32_t layers = m->weights.config.layers, count = m->desc.card_count;
    for (uint32_t i = 0; i < count; i++) {
        devices[i] = e->hardware.devices[m->cards[i].device];
        shares[i] = m->cards[i].share;
    }
    exl2__spans_cut(&m->spans, &layers, 1);
    return exl2__hardware_share(&e->ctx, devices, shares, count, &m->spans);
}

/* Opens the model on its cards, cut anywhere; on the CPU as one span. A model that is opened again keeps its cut. Of
   cards that the engine may choose from, no more than the model has layers. */
EXL2__PRIVATE exl2_result exl2__cards_open(exl2_engine *e, exl2__model *m, const uint32_t *ends, uint32_t count)
{
    void *hardware[EXL2__SPANS_MAX] = { NULL };
    uint32_t cut[EXL2__SPANS_MAX], layers = m->weights.config.layers, cards = m->desc.card_count;
    if (exl2__cards_by_columns(m)) {
        return exl2__cards_open_columns(e, m);
    }
    if (m->desc.split_auto) {
        cards = m->desc.card_count = exl2__min32(cards, layers);
    }
    if (cards > layers) {
        return exl2__fail(&e->ctx, EXL2_ERR_ARG, "%s: the model has %u layers, too few for %u cards", m->path, layers,
                          cards);
    }
    for (uint32_t i = 0; i < cards; i++) {
        cut[i] = (uint32_t)((uint64_t)layers * (i + 1) / cards);
    }
    if (m->spans.count == 0) {
        exl2__spans_cut(&m->spans, cards ? cut : ends, cards ? cards : count);
    }
    for (uint32_t i = 0; i < m->spans.count && e->hardware.count; i++) {
        hardware[i] = e->hardware.devices[exl2__cards_device(e, m, i)];
    }
    return exl2__spans_open(&e->ctx, &m->spans, e->hardware.backend, hardware);
}

/* The pages that the desc asks for, or those of one context, which is the least. */
static inline uint32_t exl2__cards_least_pages(const exl2__model *m)
{
    uint64_t tokens = m->desc.cache.tokens ? m->desc.cache.tokens : m->plan.context_max;
    return (uint32_t)exl2__min64(exl2__div_up(tokens, EXL2__PAGE_TOKENS), UINT32_MAX - 1);
}

/* What a cut needs to know from the headers, exl2__weights.layer_bytes. */
static inline uint64_t *exl2__cards_layers(const exl2__model *m, exl2__arena *arena)
{
    return (uint64_t *)exl2__arena_alloc_zeroed(arena, ((uint64_t)m->weights.config.layers + 1) * sizeof(uint64_t));
}

typedef struct exl2__cards { /* of a cut that is looked for */
    uint64_t room[EXL2__SPANS_MAX]; /* bytes for layers: without buffers */
    double speed[EXL2__SPANS_MAX];  /* read bandwidth, or share */
    uint32_t ends[EXL2__SPANS_MAX];
    uint64_t page_bytes;            /* K and V of one layer, of all pages */
    uint64_t part_bytes;            /* K and V of one layer, of all window parts */
} exl2__cards;

/* Layers that the first card has at least: those after which rows of pictures are added. */
static inline uint32_t exl2__cards_least(const exl2__model *m)
{
    return exl2__max32(m->plan.shape.row_levels, 2) - 1;
}

/* Bytes of the tower's weights, which the first card has. */
static inline uint64_t exl2__cards_tower_bytes(const exl2__model *m, uint32_t card)
{
#ifndef EXL2_NO_VISION
    return card == 0 && m->plan.tower ? m->images.tower.weight_bytes : 0;
#else
    (void)m, (void)card;
    return 0;
#endif
}

/* Gives each card as many layers as it has room for and as it reads in `time`. false: layers are left. */
EXL2__PRIVATE bool exl2__cards_fill(exl2__cards *x, const exl2__model *m, double time)
{
    const exl2__weights *w = &m->weights;
    uint32_t layers = w->config.layers, layer = 0, count = m->spans.count, least = exl2__cards_least(m);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t taken = 0, weights = 0;
        uint32_t most = layers - (count - 1 - i), first = layer; /* each later card needs a layer */
        for (; layer < most; layer++) {
            bool last = layer + 1 == layers;
            uint64_t more = w->layer_bytes[layer] + (last ? w->layer_bytes[layers] : 0);
            uint64_t cache = exl2__plan_parts(&m->plan, layer) ? x->part_bytes : x->page_bytes;
            bool fits = taken + more + cache <= x->room[i] && (double)(weights + more) <= time * x->speed[i];
            if (!fits) {
                break;
            }
            taken += more + cache;
            weights += more;
        }
        if (layer < first + (i == 0 ? least : 1)) {
            return false;
        }
        x->ends[i] = layer;
    }
    return layer == layers;
}

/* Finds the best cut of the model with `pages` pages. false: there is none. */
EXL2__PRIVATE bool exl2__cards_find(exl2__model *m, uint32_t pages, exl2__cards *x)
{
    m->plan.pages = pages;
    uint64_t bytes = exl2__spans_page_bytes(&m->spans, &m->plan, false);
    bytes += m->plan.window_pages ? exl2__spans_page_bytes(&m->spans, &m->plan, true) : 0;
    x->page_bytes = bytes / m->weights.config.layers * pages;
    x->part_bytes = bytes / m->weights.config.layers * m->plan.window_pages;
    double slowest = 0;
    for (uint32_t i = 0; i < m->spans.count; i++) {
        const exl2__span *span = &m->spans.span[i];
        const exl2__backend_memory *memory = span->backend->memory;
        uint64_t buffers = memory->buffer_bytes(span->device, &span->plan) + exl2__cards_tower_bytes(m, i);
        uint64_t room = memory->bytes_free(span->device), most = m->cards[i].bytes_max;
        room = most ? exl2__min64(room, most) : room;
        x->room[i] = room - exl2__min64(room, buffers);
        x->speed[i] = m->cards[i].share > 0 ? (double)m->cards[i].share
                                            : (double)exl2__max32(memory->read_mbps(span->device), 1);
        slowest = i == 0 || x->speed[i] < slowest ? x->speed[i] : slowest;
    }
    /* The shortest time lies between 0 and the time of all layers on the slowest card. */
    double low = 0, high = (double)m->weights.weight_bytes / slowest * 1.000001; /* a product rounds */
    bool found = exl2__cards_fill(x, m, high);
    for (uint32_t step = 0; found && step < 40; step++) {
        exl2__cards trial = *x;
        double middle = (low + high) / 2;
        if (exl2__cards_fill(&trial, m, middle)) {
            *x = trial;
            high = middle;
        } else {
            low = middle;
        }
    }
    return found;
}

/* Cuts the model where `ends` says. */
EXL2__PRIVATE void exl2__cards_set(exl2__model *m, const uint32_t *ends)
{
    exl2__weights *w = &m->weights;
    exl2__spans_cut(&m->spans, ends, m->spans.count);
    exl2__weights_cut(w, &m->spans);
    memset(w->span_bytes, 0, sizeof w->span_bytes);
    for (uint32_t layer = 0; layer <= w->config.layers; layer++) {
        w->span_bytes[exl2__weights_span_of(w, layer)] += w->layer_bytes[layer];
    }
}

/* Cuts a model that has several cards. *pages: the number that it is to have; if it may have fewer, down to `least`,
   then as many as fit. BUDGET: the model does not fit. */
EXL2__PRIVATE exl2_result exl2__cards_cut(exl2__ctx *c, exl2__model *m, uint32_t least, uint32_t *pages)
{
    exl2__cards best, trial;
    exl2__weights *w = &m->weights;
    uint32_t low = exl2__min32(least, *pages), high = *pages;
    if (!exl2__cards_find(m, low, &best)) {
        char rooms[160] = "";
        size_t used = 0;
        for (uint32_t i = 0; i < m->spans.count && used < sizeof rooms; i++) {
            exl2__format(rooms + used, sizeof rooms - used, "%s%llu", i ? ", " : "",
                         (unsigned long long)best.room[i]);
            used += strlen(rooms + used);
        }
        uint64_t cache = 0;
        for (uint32_t layer = 0; layer < w->config.layers; layer++) {
            cache += exl2__plan_parts(&m->plan, layer) ? best.part_bytes : best.page_bytes;
        }
        return exl2__fail(c, EXL2_ERR_BUDGET, "%s: %llu bytes of weights and %llu of K and V (%u tokens) do not fit on "
                          "%u cards that have room for %s besides their buffers", m->path,
                          (unsigned long long)w->weight_bytes, (unsigned long long)cache, low * EXL2__PAGE_TOKENS,
                          m->spans.count, rooms);
    }
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (exl2__cards_find(m, middle, &trial)) {
            low = middle;
            best = trial;
        } else {
            high = middle - 1;
        }
    }
    *pages = low;
    exl2__cards_set(m, best.ends);
    return EXL2_OK;
}

/* Fills in what exl2_model_info says of cards that share every matrix. */
EXL2__PRIVATE void exl2__cards_info_columns(const exl2__model *m, exl2_model_info *info)
{
    const exl2__span *span = m->spans.span;
    info->card_count = m->desc.card_count;
    for (uint32_t i = 0; i < info->card_count; i++) {
        exl2_card_info *card = &info->cards[i];
        exl2__share_bytes bytes = exl2__hardware_share_bytes(span, i);
        card->device = m->cards[i].device;
        card->layers = span->end;
        card->weight_bytes = m->span_bytes[i];
        card->cache_bytes = bytes.cache;
        card->scratch_bytes = bytes.buffers;
        card->columns = bytes.columns;
    }
}

/* Fills in what exl2_model_info says of the cards. The plan is final. */
EXL2__PRIVATE void exl2__cards_info(const exl2_engine *e, const exl2__model *m, exl2_model_info *info)
{
    if (exl2__cards_by_columns(m)) {
        exl2__cards_info_columns(m, info);
        return;
    }
    info->card_count = exl2__objects_has_memory(m) ? m->spans.count : 0;
    for (uint32_t i = 0; i < info->card_count; i++) {
        const exl2__span *span = &m->spans.span[i];
        exl2_card_info *card = &info->cards[i];
        card->device = exl2__cards_device(e, m, i);
        card->first_layer = i ? m->spans.span[i - 1].end : 0;
        card->layers = span->end - card->first_layer;
        card->weight_bytes = m->span_bytes[i];
        card->cache_bytes = exl2__span_cache_bytes(span);
        card->scratch_bytes = span->backend->memory->buffer_bytes(span->device, &span->plan);
        card->columns = 1;
    }
}

#endif
