/* offload.h: which layers of a model leave their MLPs to the CPU, because their GPU has no room for them.
   takes: exl2_model_desc.offload and host_mlps; the bytes of the layers' MLPs; the room on each GPU.
   gives: exl2__offload_check, exl2__offload_may, exl2__offload_mlps, exl2__offload_choose, exl2__offload_cut,
          exl2__offload_reset, exl2__offload_again, exl2__offload_info.

   Each span leaves MLPs to the CPU, from its last layer on, until there is room for the rest with K and V and buffers.
   The experts of a layer stay together, as it is not known before a pass which of them it needs. The CPU computes these
   MLPs for sampled rows. For rows of prompts the GPU is hundreds of times faster, so the weights are copied to it for
   each pass (exl2__streamed). That needs areas for one layer (two, with experts), and the weights in host memory twice:
   as the CPU packs them, and as the GPU does. */
#ifndef EXL2__OFFLOAD_H
#define EXL2__OFFLOAD_H

#include "cards_choose.h"

/* Checks the settings of a desc. */
EXL2__PRIVATE exl2_result exl2__offload_check(exl2__ctx *c, const exl2_model_desc *d, const char *call)
{
    if (d->offload != EXL2_OFFLOAD_NONE && d->offload != EXL2_OFFLOAD_AUTO) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: offload is %d, no value of exl2_offload", call, (int)d->offload);
    }
    if (d->host_mlps && d->offload == EXL2_OFFLOAD_NONE) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: host_mlps is %u, but offload is EXL2_OFFLOAD_NONE", call, d->host_mlps);
    }
    if (d->host_prompts && d->offload == EXL2_OFFLOAD_NONE) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: host_prompts is set, but offload is EXL2_OFFLOAD_NONE", call);
    }
    return EXL2_OK;
}

/* Whether MLPs of the model may go to the CPU: its desc allows it, and the model runs on GPUs. */
static inline bool exl2__offload_may(const exl2__model *m)
{
    return m->desc.offload == EXL2_OFFLOAD_AUTO && exl2__objects_has_memory(m);
}

/* What the choice needs to know from the headers, exl2__weights.mlp_bytes. */
static inline exl2__weights_mlp *exl2__offload_mlps(const exl2__model *m, exl2__arena *arena)
{
    uint64_t bytes = m->weights.config.layers * (uint64_t)sizeof(exl2__weights_mlp);
    return (exl2__weights_mlp *)exl2__arena_alloc_zeroed(arena, bytes);
}

/* How the span's GPU computes rows of prompts with the last `mlps` MLPs, which the CPU has. Zeroed: it does not, as
   the areas would need as much memory as these MLPs, or the desc does not want it. */
EXL2__PRIVATE exl2__streamed exl2__offload_streamed(const exl2__model *m, uint32_t span, uint32_t mlps)
{
    const exl2__config *config = &m->weights.config;
    uint32_t end = m->spans.span[span].end;
    exl2__streamed s = { .first = end - mlps };
    for (uint32_t i = s.first; i < end; i++) {
        s.by_layer = s.by_layer || exl2__unit_sparse(config, i);
    }
    if (m->spans.host_prompts || mlps < (s.by_layer ? 3u : 2u)) {
        return (exl2__streamed){ 0 };
    }
    s.parts = s.by_layer ? mlps : 2 * mlps;
    for (uint32_t i = s.first; i < end; i++) {
        const exl2__weights_mlp *mlp = &m->weights.mlp_bytes[i];
        uint64_t all = mlp->up_bytes + mlp->down_bytes;
        uint64_t up = s.by_layer ? all : mlp->up_bytes, down = s.by_layer ? 0 : mlp->down_bytes;
        uint32_t area = s.by_layer ? (i - s.first) % 2 : 0;
        s.area_bytes[area] = exl2__max64(s.area_bytes[area], up);
        s.area_bytes[1] = exl2__max64(s.area_bytes[1], down);
        s.host_bytes += all;
    }
    return s;
}

/* Lets the span leave its last `mlps` MLPs to the CPU. Returns the bytes that the span then needs on its GPU, with
   `pages` pages. streams: the GPU computes these MLPs for rows of prompts. */
EXL2__PRIVATE uint64_t exl2__offload_needs(exl2__model *m, uint32_t span, uint32_t mlps, bool streams, uint32_t pages)
{
    exl2__span *s = &m->spans.span[span];
    uint64_t bytes = m->weights.span_bytes[span];
    s->host_mlps = mlps;
    s->streamed = streams ? exl2__offload_streamed(m, span, mlps) : (exl2__streamed){ 0 };
    for (uint32_t i = 0; i < mlps; i++) {
        const exl2__weights_mlp *mlp = &m->weights.mlp_bytes[s->end - 1 - i];
        bytes -= s->streamed.parts ? mlp->up_bytes + mlp->down_bytes : mlp->span_bytes;
    }
    bytes += s->streamed.area_bytes[0] + s->streamed.area_bytes[1];
#ifndef EXL2_NO_VISION
    bytes += span == 0 && m->plan.tower ? m->images.tower.weight_bytes : 0;
#endif
    m->plan.pages = pages;
    exl2__spans_share(&m->spans, &m->plan);
    return bytes + exl2__span_cache_bytes(s) + s->backend->memory->buffer_bytes(s->device, &s->plan);
}

#define EXL2__OFFLOAD_SPARE ((uint64_t)256 << 20) /* free memory that is left to the driver, for kernels and graphs */

/* Bytes that the model may have on the GPU of a span. */
static inline uint64_t exl2__offload_room(const exl2__model *m, uint32_t span)
{
    const exl2__span *s = &m->spans.span[span];
    uint64_t allowed = s->backend->memory->bytes_allowed(s->device), room = s->backend->memory->bytes_free(s->device);
    uint64_t most = m->desc.card_count ? m->cards[span].bytes_max : 0;
    room = room < allowed ? room - exl2__min64(room, EXL2__OFFLOAD_SPARE) : room;
    return most ? exl2__min64(room, most) : room;
}

/* The fewest MLPs, from `mlps` on, without which the span fits; all of them if it never does. */
EXL2__PRIVATE uint32_t exl2__offload_fewest(exl2__model *m, uint32_t span, uint32_t mlps, bool streams, uint32_t pages)
{
    uint32_t first = span ? m->spans.span[span - 1].end : 0, layers = m->spans.span[span].end - first;
    uint64_t room = exl2__offload_room(m, span);
    while (mlps < layers && exl2__offload_needs(m, span, mlps, streams, pages) > room) {
        mlps++;
    }
    return mlps;
}

/* Sets how many MLPs the span leaves to the CPU: desc.host_mlps, or as few as it can. The GPU computes rows of prompts
   with them if its memory has room for that; if desc.host_mlps does not say how many, and it needs more MLPs on the CPU
   then, there must be fewer than twice as many. BUDGET: it does not fit without any. */
EXL2__PRIVATE exl2_result exl2__offload_span(exl2__ctx *c, exl2__model *m, uint32_t span, uint32_t pages)
{
    uint32_t first = span ? m->spans.span[span - 1].end : 0, layers = m->spans.span[span].end - first;
    uint64_t room = exl2__offload_room(m, span);
    uint32_t given = exl2__min32(m->desc.host_mlps, layers);
    uint32_t mlps = given ? given : exl2__offload_fewest(m, span, 0, false, pages);
    uint32_t more = given ? given : exl2__offload_fewest(m, span, mlps, true, pages);
    bool fits = exl2__offload_needs(m, span, more, true, pages) <= room;
    if (fits && m->spans.span[span].streamed.parts && (given || more < 2 * mlps)) {
        return EXL2_OK;
    }
    uint64_t needs = exl2__offload_needs(m, span, mlps, false, pages);
    if (needs <= room) {
        return EXL2_OK;
    }
    return exl2__fail(c, EXL2_ERR_BUDGET, "%s: without the MLPs of %u of its %u layers, the model needs %llu bytes of "
                      "GPU memory for %u tokens of cache, but there is room for %llu", m->path, mlps, layers,
                      (unsigned long long)needs, pages * EXL2__PAGE_TOKENS, (unsigned long long)room);
}

/* Moves the weights of the MLPs that the spans leave to the CPU. */
EXL2__PRIVATE exl2_result exl2__offload_move(exl2__ctx *c, exl2__model *m)
{
    if (exl2__spans_host_count(&m->spans) == 0) {
        return EXL2_OK;
    }
    exl2__weights_move(&m->weights, &m->spans);
    m->spans.host_affine = m->weights.host_affine;
    return m->spans.host.backend ? EXL2_OK : exl2__spans_open_host(c, &m->spans, &exl2__cpu_backend);
}

/* Undoes the choice: the spans have all of their MLPs again. */
EXL2__PRIVATE void exl2__offload_reset(exl2__model *m)
{
    for (uint32_t i = 0; i < m->spans.count; i++) {
        m->spans.span[i].host_mlps = 0;
        m->spans.span[i].streamed = (exl2__streamed){ 0 };
    }
    exl2__weights_move_back(&m->weights, &m->spans);
    exl2__spans_share(&m->spans, &m->plan);
}

/* Chooses the MLPs of each span that go to the CPU, with `pages` pages. */
EXL2__PRIVATE exl2_result exl2__offload_spans(exl2__ctx *c, exl2__model *m, uint32_t pages)
{
    for (uint32_t i = 0; i < m->spans.count; i++) {
        EXL2__TRY(exl2__offload_span(c, m, i, pages));
    }
    uint32_t mlps = exl2__spans_host_count(&m->spans);
    if (mlps && m->desc.lora_max) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: lora_max is %u, but adapters are not computed yet where the "
                          "CPU has MLPs (of %u layers)", m->path, m->desc.lora_max, mlps);
    }
    return exl2__offload_move(c, m);
}

/* Once the plan is made: chooses the MLPs of a model on one GPU that go to the CPU. The cache has as many pages as the
   desc asks for, or one context. */
EXL2__PRIVATE exl2_result exl2__offload_choose(exl2__ctx *c, exl2__model *m)
{
    bool one = exl2__offload_may(m) && m->desc.card_count <= 1;
    return one ? exl2__offload_spans(c, m, exl2__cards_least_pages(m)) : EXL2_OK;
}

#define EXL2__OFFLOAD_TIMES 64.0 /* a model that needs more than this many times the room of its cards is not cut */

/* As exl2__cards_cut, where MLPs may go to the CPU. A model that does not fit is cut as if all cards had the same
   number of times the room that they have; then each of them sheds MLPs. */
EXL2__PRIVATE exl2_result exl2__offload_cut(exl2__ctx *c, exl2__model *m, uint32_t least, uint32_t *pages)
{
    exl2__cards found, trial;
    double low = 1, high = EXL2__OFFLOAD_TIMES, time = 1e18; /* only room counts */
    least = exl2__min32(least, *pages);
    exl2__offload_reset(m);
    bool fits = exl2__cards_find(m, least, &found);
    if (fits && !m->desc.host_mlps) {
        return exl2__cards_cut(c, m, least, pages);
    }
    for (uint32_t step = 0; !fits && step < 40; step++) {
        double times = step ? (low + high) / 2 : high;
        trial = found;
        for (uint32_t i = 0; i < m->spans.count; i++) {
            trial.room[i] = (uint64_t)((double)found.room[i] * times);
        }
        bool filled = exl2__cards_fill(&trial, m, time);
        if (filled) {
            memcpy(found.ends, trial.ends, sizeof found.ends);
        } else if (step == 0) {
            return exl2__cards_cut(c, m, least, pages); /* its error says what is missing */
        }
        *(filled ? &high : &low) = times;
    }
    exl2__cards_set(m, found.ends);
    *pages = least;
    return exl2__offload_spans(c, m, least);
}

/* A parked model loads again, and its headers are read: leaves the same MLPs to the CPU as before. */
EXL2__PRIVATE exl2_result exl2__offload_again(exl2__ctx *c, exl2__model *m)
{
    return exl2__offload_may(m) ? exl2__offload_move(c, m) : EXL2_OK;
}

/* Fills in what exl2_model_info says of them. */
static inline void exl2__offload_info(const exl2__model *m, exl2_model_info *info)
{
    info->host_mlps = exl2__spans_host_count(&m->spans);
    info->host_weight_bytes = exl2__weights_away(&m->weights);
    info->host_prompts = false;
    for (uint32_t i = 0; i < info->card_count; i++) {
        const exl2__span *span = &m->spans.span[i];
        info->cards[i].host_mlps = span->host_mlps;
        info->cards[i].host_prompts = span->host_mlps > 0 && span->streamed.parts == 0;
        info->host_prompts = info->host_prompts || info->cards[i].host_prompts;
    }
}

#endif
