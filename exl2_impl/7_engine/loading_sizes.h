/* loading_sizes.h: the stage that makes the plan: how many pages fit, and what the model will need.
   takes: a model whose headers are read.
   gives: exl2__loading_sizes. */
#ifndef EXL2__LOADING_SIZES_H
#define EXL2__LOADING_SIZES_H

#include "cards_fit.h"
#include "loading_read.h"

/* Can K and V have the format that the desc asks for? */
EXL2__PRIVATE exl2_result exl2__loading_check_format(exl2__ctx *c, const exl2__model *m)
{
    uint32_t dim = m->plan.shape.head_dim;
    return dim % 16 == 0 || m->plan.kv == EXL2_KV_FP16 ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: a quantized cache needs heads whose size is a multiple of 16, but "
                      "those of this model have %u elements", m->path, dim);
}

/* Once the cards are known: whether the backend computes pictures there. */
EXL2__PRIVATE exl2_result exl2__loading_check_cards(const exl2__model *m)
{
    (void)m; /* where there are no pictures */
#ifndef EXL2_NO_VISION
    if (m->plan.tower) {
        return exl2__objects_backend(m)->towers->supports(m->spans.span->device, &m->plan);
    }
#endif
    return EXL2_OK;
}

/* Gives the plan a pool of window parts. There is none if it would have as many parts as the cache has pages, or if the
   cache has a second tier, which keeps pages with all layers. */
EXL2__PRIVATE void exl2__loading_plan_windows(exl2__model *m, uint32_t pages)
{
    uint32_t window = m->weights.config.window;
    uint32_t parts = exl2__plan_window_pages(&m->plan, pages, m->desc.batch_max, exl2__windows_each(window),
                                             exl2__windows_rows(m->plan.rows_max, m->plan.picture_rows));
    bool split = m->plan.shape.windows && !m->desc.cache.full && !m->desc.cache.host_bytes && parts < pages;
    m->plan.windowed = split ? m->weights.config.windowed : NULL;
    m->plan.window_pages = split ? parts : 0;
}

/* Makes the plan, still without pages, and info.context_max. Fails if the backend does not compute all of it. */
EXL2__PRIVATE exl2_result exl2__loading_plan(exl2__ctx *c, exl2__model *m)
{
    const exl2__backend *backend = exl2__objects_backend(m);
    uint32_t chunk = m->desc.prefill_chunk;
    if (chunk == 0 && exl2__objects_has_memory(m)) {
        chunk = backend->memory->prefill_chunk(m->weights.weight_bytes);
    }
    exl2__plan_make(&m->plan, &m->weights.config, m->weights.embed_rows, m->desc.context_max, chunk, m->desc.batch_max);
    m->plan.logit_rows_max = exl2__max32(m->plan.logit_rows_max, exl2__min32(m->plan.sequences_max,
                                                                             backend->logit_rows));
    m->plan.shape.affine = m->weights.has_affine;
    m->plan.shape.columns_unit = m->weights.columns_unit;
    m->plan.shape.exl3 = m->weights.has_exl3;
    m->plan.shape.mixes_exl3 = m->weights.mixes_exl3;
    m->plan.shape.exl3_experts = m->weights.has_exl3 && !m->weights.plain_experts;
    m->plan.lora_max = m->desc.lora_max;
    m->plan.steer_max = m->desc.steer_max;
    m->plan.lora_rank_max = m->desc.lora_rank_max ? m->desc.lora_rank_max : EXL2__LORAS_RANK_MAX;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        m->plan.shape.row_levels = m->images.config.levels;
        m->plan.picture_rows = m->images.config.whole ? m->images.largest.rows : 0;
        m->plan.rows_max += m->plan.picture_rows;
        m->plan.tower_limits = m->images.limits;
        m->plan.tower = exl2__images_towers(m) ? &m->images.config : NULL;
        m->plan.turns = m->images.config.mrope;
    }
#endif
    m->plan.kv = m->desc.cache.format;
    EXL2__TRY(exl2__loading_check_format(c, m));
    if (backend->supports) {
        EXL2__TRY(backend->supports(m->spans.span->device, &m->plan.shape));
    }
    exl2__loading_plan_windows(m, exl2__cards_least_pages(m)); /* of which the cards are chosen */
    exl2__cards_choose(m, exl2__cards_least_pages(m));
    EXL2__TRY(exl2__loading_check_cards(m));
    if (m->weights.position_rows && m->plan.context > m->weights.position_rows) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: context_max %u is more than the model's %u learned positions",
                          m->path, m->desc.context_max, m->weights.position_rows);
    }
    m->info.context_max =
        m->desc.context_max ? m->desc.context_max : exl2__min32(m->weights.config.context_max, EXL2__DEFAULT_CONTEXT);
    if (m->info.context_max > m->weights.config.context_max) {
        exl2__log(c, EXL2_LOG_WARN, EXL2_LOG_ID_CONTEXT_ABOVE_MODEL,
                  "%s: context_max is %u, but the model was trained with at most %u", m->path, m->info.context_max,
                  m->weights.config.context_max);
    }
    return EXL2_OK;
}

/* Plans window parts beside as many pages as the desc asks for, or a default cache has. Returns the latter number. */
EXL2__PRIVATE uint32_t exl2__loading_usual_pages(exl2__model *m)
{
    uint64_t wanted = exl2__div_up(m->desc.cache.tokens, EXL2__PAGE_TOKENS);
    m->plan.window_pages = 0; /* by K and V of all layers */
    uint64_t page_bytes = exl2__spans_page_bytes(&m->spans, &m->plan, false);
    uint32_t usual = exl2__plan_default_pages(&m->plan, page_bytes, m->weights.weight_bytes);
    exl2__loading_plan_windows(m, wanted ? (uint32_t)exl2__min64(wanted, UINT32_MAX - 1) : usual);
    return usual;
}

/* Bytes of the window parts. */
EXL2__PRIVATE uint64_t exl2__loading_window_bytes(exl2__model *m)
{
    uint64_t parts = m->plan.window_pages;
    return parts ? exl2__spans_page_bytes(&m->spans, &m->plan, true) * parts : 0;
}

/* Cap of a model that lies on one of the desc's cards; 0: there is none. */
static inline uint64_t exl2__loading_card_most(const exl2__model *m)
{
    return m->desc.card_count == 1 ? m->cards[0].bytes_max : 0;
}

/* Fails if the model would exceed that cap with `pages` pages. */
EXL2__PRIVATE exl2_result exl2__loading_check_most(exl2__ctx *c, exl2__model *m, uint32_t pages)
{
    uint64_t most = exl2__loading_card_most(m);
    if (most == 0) {
        return EXL2_OK;
    }
    m->plan.pages = pages;
    uint64_t cache = exl2__spans_page_bytes(&m->spans, &m->plan, false) * pages
                   + exl2__loading_window_bytes(m);
    uint64_t weights = m->weights.weight_bytes + exl2__loading_tower_bytes(m);
    uint64_t buffers = exl2__spans_buffer_bytes(&m->spans, &m->plan), all = weights + cache + buffers;
    return all <= most ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_BUDGET, "%s: the model needs %llu bytes on its GPU (weights %llu, cache %llu, "
                      "buffers %llu), but cards[0].bytes_max is %llu", m->path, (unsigned long long)all,
                      (unsigned long long)weights, (unsigned long long)cache, (unsigned long long)buffers,
                      (unsigned long long)most);
}

/* Sets the plan's number of KV pages, by desc.cache.tokens or by the free host and device memory, and m->scratch_bytes,
   which depends on it. `usual`: the number of a default cache. */
EXL2__PRIVATE exl2_result exl2__loading_fit_pages(exl2_engine *e, exl2__model *m, uint32_t usual)
{
    bool has_memory = exl2__objects_has_memory(m);
    uint64_t page_bytes = exl2__spans_page_bytes(&m->spans, &m->plan, false), with_pages, without_pages;
    uint64_t window_bytes = exl2__loading_window_bytes(m);
    EXL2__TRY(exl2__tier_moves_plan(&e->ctx, m, page_bytes));
    /* Host memory besides K and V (the pages' tokens, their users) grows in proportion to the number of pages. */
    EXL2__TRY(exl2__loading_scratch_bytes(e, m, EXL2__LOADING_SAMPLE_PAGES, &with_pages));
    with_pages += exl2__loading_peak(m);
    EXL2__TRY(exl2__loading_scratch_bytes(e, m, 0, &without_pages)); /* leaves a plan without pages */
    without_pages += exl2__loading_peak(m);
    uint64_t host_per_page = (has_memory ? 0 : page_bytes) + 1;
    host_per_page += with_pages > without_pages ? (with_pages - without_pages) / EXL2__LOADING_SAMPLE_PAGES : 0;
    uint64_t host_fixed = without_pages + m->weights.host_bytes + m->weights.streamed_bytes;
    host_fixed += has_memory ? 0 : m->weights.weight_bytes + exl2__loading_tower_bytes(m) + window_bytes;
    uint64_t wanted = m->desc.cache.tokens;
    uint64_t host_room = exl2__alloc_room(&e->ctx);
    uint32_t pages = exl2__plan_pages(&m->plan, wanted, usual, host_per_page, host_fixed, host_room);
    if (exl2__cards_by_columns(m)) {
        pages = exl2__min32(pages, exl2__cards_fit_pages(m, wanted, usual, EXL2__LOADING_SAMPLE_PAGES));
    } else if (has_memory) {
        m->plan.pages = EXL2__LOADING_SAMPLE_PAGES;
        with_pages = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        m->plan.pages = 0;
        without_pages = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        uint64_t device_per_page = page_bytes + exl2__div_up(with_pages - without_pages, EXL2__LOADING_SAMPLE_PAGES);
        uint64_t device_fixed = m->weights.weight_bytes + exl2__loading_tower_bytes(m) + without_pages + window_bytes;
        const exl2__span *first = m->spans.span; /* all spans are on one device, or else layers lie on several cards */
        uint64_t room = first->backend->memory->bytes_free(first->device), most = exl2__loading_card_most(m);
        room = most ? exl2__min64(room, most) : room;
        uint32_t fitting = exl2__plan_pages(&m->plan, wanted, usual, device_per_page, device_fixed, room);
        pages = exl2__cards_by_layers(m) ? pages : exl2__min32(pages, fitting);
    }
    if (exl2__cards_by_layers(m)) {
        uint32_t context_pages = m->plan.context_max / EXL2__PAGE_TOKENS;
        uint32_t least = wanted ? pages : exl2__min32(context_pages, pages);
        EXL2__TRY(exl2__offload_may(m) ? exl2__offload_cut(&e->ctx, m, least, &pages)
                                       : exl2__cards_cut(&e->ctx, m, least, &pages));
    }
    EXL2__TRY(exl2__cards_by_columns(m) ? exl2__cards_fit_check(&e->ctx, m, pages)
                                        : exl2__loading_check_most(&e->ctx, m, pages));
    return exl2__loading_scratch_bytes(e, m, pages, &m->scratch_bytes);
}

/* Decides the number of pages, and whether they have window parts. */
EXL2__PRIVATE exl2_result exl2__loading_fit(exl2_engine *e, exl2__model *m)
{
    uint32_t usual = exl2__loading_usual_pages(m);
    EXL2__TRY(exl2__loading_fit_pages(e, m, usual));
    if (m->plan.window_pages >= m->plan.pages) { /* memory has room for fewer pages than a default cache */
        exl2__loading_plan_windows(m, m->plan.pages);
        return exl2__loading_fit_pages(e, m, usual);
    }
    return EXL2_OK;
}

/* Fills in what exl2_model_info says of the family, its windows and its RoPE. */
EXL2__PRIVATE void exl2__loading_info_family(exl2__model *m)
{
    const exl2__config *config = &m->weights.config;
    exl2_model_info *info = &m->info;
    info->family = info->format = "";
    if (m->desc.text_only) {
        return;
    }
    info->family = config->arch.family;
    bool awq = config->quant.method == EXL2__QUANT_AWQ;
    uint32_t kinds = (uint32_t)m->weights.has_dense + m->weights.has_exl2 + m->weights.has_gptq
                   + (m->weights.has_exl3 != 0);
    info->dequantized = m->weights.dequantized;
    info->format = kinds > 1 ? "mixed" : m->weights.has_exl2 ? "exl2" : m->weights.has_dense ? "dense"
                 : m->weights.has_exl3 ? "exl3" : awq ? "awq" : "gptq";
    exl2__arch_norms(config, info->norms, sizeof info->norms);
    info->head_dim = config->head_dim;
    info->window = m->plan.shape.windows ? config->window : 0;
    memcpy(info->windowed, config->windowed, sizeof info->windowed);
    info->rope_count = m->plan.rope_count;
    for (uint32_t i = 0; i < info->rope_count; i++) {
        const exl2__rope *rope = i == 0 ? &config->rope : &config->local_rope;
        const char *kind = exl2__rope_name(rope, m->plan.context);
        info->ropes[i] = (exl2_rope_info){ kind, rope->theta, strcmp(kind, "plain") != 0 ? rope->factor : 1 };
    }
    info->needs_bos = config->arch.traits[EXL2__TRAIT_NEEDS_BOS] == EXL2__YES;
    info->tower_skipped = config->arch.text_of_multimodal && m->desc.vision.images == 0;
    info->parallel = config->parallel;
}

/* Fills in what exl2_model_info says of the tokenizer and of config.json. */
EXL2__PRIVATE void exl2__loading_info(exl2__model *m)
{
    const exl2__config *config = &m->weights.config;
    exl2_model_info *info = &m->info;
    exl2__format(info->arch, sizeof info->arch, "%s", config->arch_name); /* "" with text_only */
    info->vocab = m->desc.text_only ? 0 : config->vocab;
    info->hidden = config->hidden;
    info->layers = config->layers;
    info->heads = config->heads;
    info->kv_heads = config->kv_heads;
    info->experts = config->experts.count;
    info->experts_active = config->experts.active;
    exl2__loading_info_family(m);
    info->bos = config->bos >= 0 ? config->bos : m->vocab.present ? m->vocab.bos : -1;
    info->eos = config->eos_count ? config->eos[0] : m->vocab.present ? m->vocab.eos : -1;
    info->has_tokenizer = m->vocab.present;
    info->has_head = !m->desc.text_only && !m->weights.headless;
    info->embed_pool = m->pooling.pool;
    info->embed_raw = m->pooling.raw;
    const exl2__template *chat = exl2__template_set_pick(&m->chats, NULL, false);
    const exl2__template *tool_chat = exl2__template_set_pick(&m->chats, NULL, true); /* jobs with tools get this one */
    info->has_chat_template = chat != NULL;
    info->reads_tools = tool_chat && tool_chat->reads_tools;
    info->reads_tool_calls = tool_chat && tool_chat->reads_tool_calls;
}

/* Fills in what exl2_model_info says of memory. opened_bytes: see exl2__loading_open_backend. */
EXL2__PRIVATE void exl2__loading_info_bytes(const exl2_engine *e, exl2__model *m, uint64_t opened_bytes)
{
    exl2_model_info *info = &m->info;
    uint64_t page_bytes = exl2__spans_page_bytes(&m->spans, &m->plan, false), buffers = 0;
    uint64_t part_bytes = m->plan.window_pages ? exl2__spans_page_bytes(&m->spans, &m->plan, true) : 0;
    exl2__store64(m->content_head, m->weights.content_head[0]);
    exl2__store64(m->content_head + 8, m->weights.content_head[1]);
    info->tower_bytes = exl2__loading_tower_bytes(m);
    info->host_pages = m->plan.host_pages;
    info->weight_bytes = m->weights.weight_bytes + exl2__weights_away(&m->weights) + info->tower_bytes;
#ifndef EXL2_NO_VISION
    info->image_bytes = exl2__images_bytes(m);
    info->tower = m->images.on ? m->images.config.family : NULL;
#endif
    memcpy(m->span_bytes, m->weights.span_bytes, sizeof m->span_bytes);
    m->span_bytes[0] += exl2__objects_has_memory(m) ? info->tower_bytes : 0;
    info->window_bytes = part_bytes * m->plan.window_pages;
    info->window_tokens = (uint64_t)m->plan.window_pages * EXL2__PAGE_TOKENS;
    info->cache_bytes = page_bytes * m->plan.pages + info->window_bytes;
    if (exl2__objects_has_memory(m)) {
        buffers = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        info->device_bytes = m->weights.weight_bytes + info->tower_bytes + info->cache_bytes + buffers;
        exl2__cards_info(e, m, info);
        exl2__offload_info(m, info);
    }
    info->pass_bytes = m->weights.pass_bytes;
    info->row_weights = m->weights.row_weights;
    info->cache_bytes_per_token = (page_bytes + part_bytes) / EXL2__PAGE_TOKENS;
    info->cache_tokens = (uint64_t)m->plan.pages * EXL2__PAGE_TOKENS;
    info->bits_per_weight = (float)((double)m->weights.disk_bytes * 8 / (double)m->weights.weight_count);
    info->scratch_bytes = m->scratch_bytes + opened_bytes + exl2__loading_peak(m) + exl2__loading_text_bytes(m)
                        + buffers;
}

/* Host memory that there will be room for once the readers are closed. */
static inline uint64_t exl2__loading_room(const exl2_engine *e, const exl2__model *m)
{
    uint64_t room = exl2__alloc_room(&e->ctx), readers = sizeof *m->loading + m->loading->layers.size;
    return room + exl2__min64(readers, UINT64_MAX - room);
}

/* Chooses what lies on each device, and the number of pages. */
EXL2__PRIVATE exl2_result exl2__loading_place(exl2_engine *e, exl2__model *m)
{
    exl2__loading_usual_pages(m); /* what the GPU must have room for */
    EXL2__TRY(exl2__offload_choose(&e->ctx, m));
    return exl2__loading_fit(e, m);
}

/* Decides every size. */
EXL2__PRIVATE exl2_result exl2__loading_sizes(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    if (m->desc.text_only) {
        exl2__arena dry = { 0 };
        exl2__arena_alloc(&dry, EXL2__RENDER_BYTES);
        exl2__loading_info(m);
        m->info.scratch_bytes = dry.used + exl2__loading_text_bytes(m);
        return EXL2_OK;
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    uint64_t before = e->ctx.host_bytes; /* devices close, and one opens for the CPU's part */
    EXL2__TRY(exl2__loading_plan(&e->ctx, m));
    m->spans.host_prompts = m->desc.host_prompts;
    EXL2__TRY(exl2__loading_place(e, m));
    if (exl2__spans_stream(&m->spans) && exl2__loading_more(m) > exl2__loading_room(e, m)) {
        m->spans.host_prompts = true; /* which needs less host memory */
        exl2__offload_reset(m);
        EXL2__TRY(exl2__loading_place(e, m));
    }
    m->loading->opened_bytes += e->ctx.host_bytes - before;
    exl2__loading_info(m);
    exl2__loading_info_bytes(e, m, m->loading->opened_bytes);
    return EXL2_OK;
}

#endif
