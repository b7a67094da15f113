/* loading.h: the stages in which a model is loaded from its folder; and how it is closed. loading_run.h runs them.
   takes: exl2_model_desc.
   gives: exl2__loading_stages, exl2__loading_end_jobs, exl2__loading_close.
   owns:  the model's arenas, vocabulary, template, tensor table and device.

   exl2__loading_stages lists the stages of a load, in order. Each works in slices (work.h), and keeps its position in
   exl2__loading or, for the weights, in exl2__weights. */
#ifndef EXL2__LOADING_H
#define EXL2__LOADING_H

#include "../1_load/arch_words.h"
#include "../1_load/model_config_read.h"
#include "../2_graph/weights_load.h"
#include "../6_text/tokenizer/vocab_read.h"
#include "cards.h"
#include "images.h"
#include "loading_tokens.h"
#include "loras.h"

#define EXL2__LOADING_STEP 0.01f /* least progress between two LOAD events */
#define EXL2__LOADING_SAMPLE_PAGES 65536u /* for a dry run that measures the host memory of a page */

/* The readers of the stages up to EXL2__LOADING_MEASURED, after which it is freed. */
typedef struct exl2__loading {
    exl2__vocab_reader vocab;
    exl2__grammar_vocab_maker grammar;
    exl2__template_set_reader chats;
    exl2__weights_reader weights;
    exl2__arena layers;      /* of exl2__weights.layer_bytes */
    uint64_t opened_bytes;   /* host memory that the backend keeps allocated for the model */
    uint64_t bytes, peak;    /* host memory that the stages have allocated and hold; the most of it at any time */
    bool begun;              /* the current stage's reader has begun */
} exl2__loading;

/* ---- close ---- */

/* Frees the readers and, of a stage that is not finished, all that it has made. */
EXL2__PRIVATE void exl2__loading_end_reading(exl2_engine *e, exl2__model *m)
{
    exl2__loading *l = m->loading;
    if (l) {
        exl2__vocab_read_end(&l->vocab);
        exl2__grammar_vocab_make_end(&l->grammar);
        exl2__template_set_end(&l->chats);
        exl2__weights_read_end(&l->weights);
        exl2__arena_close(&e->ctx, &l->layers);
        m->weights.layer_bytes = NULL;
        exl2__free(&e->ctx, l, sizeof *l, EXL2_MEM_GENERAL);
        m->loading = NULL;
    }
}

/* Ends the model's jobs, each with its DONE, and rejects new ones. Everything that the model holds is still valid,
   because callbacks may ask for it. A zeroed slot is allowed. */
EXL2__PRIVATE void exl2__loading_end_jobs(exl2_engine *e, exl2__model *m)
{
    if (m->id == 0) {
        return;
    }
    m->closing = true; /* before the first DONE, whose callback could start a job that nothing would end */
    m->forward.active = false;
    for (exl2__job *job = NULL; (job = exl2__objects_next_job(e, m, job)) != NULL;) {
        if (job->drafting.target) {
            exl2__jobs_free_drafter(e, job->drafting.target);
        } else if (!exl2__objects_is_hidden(job)) {
            exl2__jobs_end_now(job, EXL2_ERR_CANCELLED, "the model was closed");
            exl2__jobs_finish(e, job);
        }
    }
}

/* Frees everything that the model holds, jobs and sessions first. A zeroed slot is allowed. */
EXL2__PRIVATE void exl2__loading_close(exl2_engine *e, exl2__model *m)
{
    if (m->id == 0) {
        return;
    }
    uint32_t slot = (uint32_t)(m - e->models);
    exl2__loading_end_jobs(e, m);
    for (uint32_t i = 0; i < e->max_sessions; i++) {
        if (e->sessions[i].id && e->sessions[i].model == slot) {
            exl2__objects_free_session(e, &e->sessions[i]);
        }
    }
    exl2__loading_end_reading(e, m);
    exl2__loras_close_all(e, m);
    exl2__weights_close(&e->ctx, &m->weights);
    exl2__template_set_close(&e->ctx, &m->chats);
    exl2__grammars_close_all(e, m);
    exl2__vocab_close(&e->ctx, &m->vocab);
    exl2__arena_close(&e->ctx, &m->scratch);
#ifndef EXL2_NO_VISION
    exl2__tower_read_end(&m->images.reader);
    exl2__arena_close(&e->ctx, &m->images.weights);
#endif
    exl2__spans_close(&e->ctx, &m->spans);
    memset(m, 0, sizeof *m);
    exl2__pool_free(&e->model_ids, slot);
}

/* ---- layout ---- */

/* Lays out the scratch memory of a running model, after the backend's part; a dry run only counts bytes. */
EXL2__PRIVATE exl2_result exl2__loading_layout(exl2_engine *e, exl2__model *m, bool dry, exl2__arena *scratch)
{
    m->prepared_at = scratch->used;
    EXL2__TRY(exl2__spans_prepare(&m->spans, &m->plan, dry, scratch));
    if (m->spans.count > 1) {
        uint64_t elements = (uint64_t)m->plan.rows_max * m->plan.shape.hidden;
        m->forward.handed = (float *)exl2__arena_alloc(scratch, elements * sizeof(float));
    }
    exl2__pages_make(&m->pages, scratch, m->plan.pages);
    exl2__batch_make(&m->batch, scratch, &m->plan, exl2__objects_backend(m)->decode_rows - 1);
    m->forward.results =
        (exl2__logit_result *)exl2__arena_alloc_zeroed(scratch, m->plan.logit_rows_max * sizeof *m->forward.results);
    exl2_alt *alts =
        (exl2_alt *)exl2__arena_alloc(scratch, (uint64_t)m->plan.logit_rows_max * EXL2_ALTS_MAX * sizeof *alts);
    for (uint32_t i = 0; alts && i < m->plan.logit_rows_max; i++) {
        m->forward.results[i].alts = alts + (size_t)i * EXL2_ALTS_MAX;
    }
    m->sequences = (exl2__sequence **)exl2__arena_alloc(scratch, (uint64_t)e->max_jobs * sizeof(void *));
    m->pages.sampled = exl2__objects_backend(m)->two_kinds ? EXL2__WORD_SAMPLED : 0;
    m->pages.vectors = &m->vectors;
    m->page_lists = (uint32_t *)exl2__arena_alloc(
        scratch, (uint64_t)e->max_sessions * exl2__pages_for(m->plan.context_max) * sizeof(uint32_t));
    uint64_t words = (uint64_t)m->plan.context_max + EXL2__JOB_HELD_TOKENS;
    m->histories = (uint32_t *)exl2__arena_alloc(scratch, e->max_sessions * words * sizeof(uint32_t));
    m->prompts =
        (exl2_token *)exl2__arena_alloc(scratch, (uint64_t)e->max_jobs * m->plan.context_max * sizeof(exl2_token));
    if (m->plan.lora_max) {
        exl2__roots_make(&m->roots, scratch, 2 * e->max_sessions);
        m->loras = (exl2__lora *)exl2__arena_alloc_zeroed(scratch, m->plan.lora_max * (uint64_t)sizeof *m->loras);
        m->lora_sets =
            (exl2__lora_set *)exl2__arena_alloc(scratch, (uint64_t)e->max_jobs * sizeof *m->lora_sets);
        m->lora_names =
            (exl2__lora_names *)exl2__arena_alloc_zeroed(scratch, (uint64_t)e->max_sessions * sizeof *m->lora_names);
    }
    m->blocks = (exl2__job_block *)exl2__arena_alloc(scratch, (uint64_t)e->max_jobs * sizeof *m->blocks);
    m->render = exl2__arena_alloc(scratch, EXL2__RENDER_BYTES);
#ifndef EXL2_NO_VISION
    exl2__images_layout(m, scratch);
#endif
    return EXL2_OK;
}

/* Whether pictures give the model's rows positions of three axes. */
static inline bool exl2__loading_turns(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on && m->images.config.mrope;
#else
    (void)m;
    return false;
#endif
}

/* Lays out the layers and the RoPE frequencies, before the rest of the scratch memory, because loading fills them. */
static inline void exl2__loading_layers(exl2__model *m, exl2__arena *scratch)
{
    uint64_t angles = (uint64_t)m->plan.rope_count * (m->weights.config.rotary / 2);
    double *frequencies = (double *)exl2__arena_alloc(scratch, angles * sizeof(double));
    exl2__rope_angles *ropes =
        (exl2__rope_angles *)exl2__arena_alloc(scratch, m->plan.rope_count * sizeof(exl2__rope_angles));
    m->plan.layers =
        (exl2__layer *)exl2__arena_alloc_zeroed(scratch, (uint64_t)m->weights.config.layers * sizeof(exl2__layer));
    uint64_t pointers = exl2__plan_expert_pointers(&m->weights.config);
    exl2__matrix **experts = (exl2__matrix **)exl2__arena_alloc_zeroed(scratch, pointers * sizeof *experts);
    bool turns = exl2__loading_turns(m);
    uint8_t *axis = (uint8_t *)exl2__arena_alloc(scratch, turns ? m->weights.config.rotary / 2 : 0);
    if (m->plan.layers) {
        exl2__plan_layers(&m->plan, &m->weights.config, m->plan.layers);
        exl2__plan_experts(&m->weights.config, experts, m->plan.layers);
        exl2__plan_ropes(&m->plan, &m->weights.config, frequencies, ropes);
        if (turns) {
            exl2__plan_axes(&m->weights.config, axis, ropes);
        }
    }
}

/* Host bytes of the copy of packed weights that a backend with memory of its own keeps. */
static inline uint64_t exl2__loading_packed_bytes(const exl2__model *m)
{
    bool keeps = m->desc.keep_packed && exl2__objects_has_memory(m);
    return keeps ? m->weights.weight_bytes + (m->weights.weight_bytes >> 20) + 8 : 0;
}

/* Bytes of the tower's weights, and what else reading them needs. */
static inline uint64_t exl2__loading_tower_bytes(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? m->images.tower.weight_bytes : 0;
#else
    (void)m;
    return 0;
#endif
}

static inline uint64_t exl2__loading_tower_peak(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? m->images.reader.staging_bytes + m->images.table_bytes : 0;
#else
    (void)m;
    return 0;
#endif
}

/* Of the plan that the spans have: peak of the other host bytes, besides scratch, text and the CPU backend's arenas:
   memory that only loading needs, and host memory of a backend that has its own device memory. */
EXL2__PRIVATE uint64_t exl2__loading_peak(const exl2__model *m)
{
    uint64_t loading = exl2__weights_loading_bytes(&m->weights) + exl2__loading_tower_peak(m), ready = 0;
    if (exl2__objects_has_memory(m)) {
        loading += exl2__spans_host_bytes(&m->spans, m->weights.slice_bytes, false);
        ready = exl2__spans_host_bytes(&m->spans, m->weights.slice_bytes, true);
    }
    return exl2__max64(loading, ready) + exl2__loading_packed_bytes(m);
}

/* Bytes of scratch memory with `pages` pages; sets the plan's pages. */
EXL2__PRIVATE exl2_result exl2__loading_scratch_bytes(exl2_engine *e, exl2__model *m, uint32_t pages, uint64_t *out)
{
    exl2__arena scratch = { 0 };
    m->plan.pages = pages;
    exl2__loading_layers(m, &scratch);
    EXL2__TRY(exl2__loading_layout(e, m, true, &scratch));
    *out = scratch.used;
    return EXL2_OK;
}

/* ---- reading: everything but the weights ---- */

static inline uint64_t exl2__loading_text_bytes(const exl2__model *m)
{
    return m->vocab.bytes + m->chats.bytes + m->grammar_vocab.memory.size;
}

/* Sets the number of experts that a row uses, if the application chooses it. */
EXL2__PRIVATE exl2_result exl2__loading_experts(exl2__ctx *c, exl2__model *m)
{
    exl2__experts *experts = &m->weights.config.experts;
    uint32_t active = m->desc.experts_active;
    uint64_t most = experts->groups ? (uint64_t)experts->groups_active * (experts->count / experts->groups) : 0;
    if (active > most) {
        return exl2__fail(c, EXL2_ERR_ARG, "experts_active is %u, but a token of %s can use at most %u experts", active,
                          m->path, (uint32_t)most);
    }
    experts->active = active ? active : experts->active;
    return EXL2_OK;
}

/* Applies the application's settings of RoPE. Layers with a window and a RoPE of their own keep it. */
EXL2__PRIVATE exl2_result exl2__loading_rope(exl2__ctx *c, exl2__model *m)
{
    exl2__config *config = &m->weights.config;
    double scale = (double)m->desc.rope_scale, alpha = (double)m->desc.rope_alpha, yarn = (double)m->desc.yarn_factor;
    if (!(scale > 0 || alpha > 0 || yarn > 0)) {
        return EXL2_OK;
    }
    if (config->rotary == 0) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "%s: rope_scale, rope_alpha and yarn_factor cannot stretch learned positions", m->path);
    }
    if (yarn > 0 && config->rope.theta <= 1) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: yarn_factor needs a rope_theta above 1", m->path);
    }
    double context = exl2__rope_override(&config->rope, config->rotary, config->context_max, scale, alpha, yarn);
    config->context_max = context < EXL2__CONFIG_CONTEXT_MAX ? (uint32_t)context : EXL2__CONFIG_CONTEXT_MAX;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_config(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    exl2__work_spend(work, EXL2__WORK_SLICE);
    if (m->desc.text_only) {
        return exl2__config_read_text(c, m->path, &m->weights.config);
    }
    EXL2__TRY(exl2__config_read(c, m->path, &m->weights.config));
    EXL2__TRY(exl2__pooling_read(c, m->path, &m->pooling));
    EXL2__TRY(exl2__loading_experts(c, m));
    return exl2__loading_rope(c, m);
}

EXL2__PRIVATE exl2_result exl2__loading_vocab(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!l->begun) {
        l->begun = true;
        EXL2__TRY(exl2__vocab_read_begin(&l->vocab, &e->ctx, m->path, &m->vocab));
    }
    EXL2__TRY_DONE(exl2__vocab_read_slice(&l->vocab, work));
    exl2__vocab_read_end(&l->vocab);
    if (m->vocab.present && m->vocab.piece_bytes_max > EXL2__PIECE_BYTES_MAX) {
        return exl2__fail(&e->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s/tokenizer.json: a token has %u bytes of text, but at most %d are supported", m->path,
                          m->vocab.piece_bytes_max, EXL2__PIECE_BYTES_MAX);
    }
    if (m->desc.text_only && !m->vocab.present) {
        return exl2__fail(&e->ctx, EXL2_ERR_IO, "%s has no tokenizer.json, which text_only needs", m->path);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_grammar_vocab(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!m->desc.grammars || !m->vocab.present) {
        return EXL2_OK;
    }
    if (!l->begun) {
        l->begun = true;
        EXL2__TRY(exl2__grammar_vocab_make_begin(&l->grammar, &e->ctx, &m->vocab, &m->grammar_vocab));
    }
    EXL2__TRY_DONE(exl2__grammar_vocab_make_slice(&l->grammar, work));
    exl2__grammar_vocab_make_end(&l->grammar);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_chats(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (!l->begun) {
        const exl2__vocab *vocab = m->vocab.present ? &m->vocab : NULL;
        l->begun = true;
        EXL2__TRY(exl2__template_set_begin(&l->chats, &e->ctx, m->path, vocab, &m->chats));
    }
    EXL2__TRY_DONE(exl2__template_set_slice(&l->chats, work));
    exl2__template_set_end(&l->chats);
    exl2__loading_eos(m);
    exl2__loading_bos(m);
    return EXL2_OK;
}

/* Tests cut a model of so many layers into several spans: the hook fills ends [EXL2__SPANS_MAX] of exl2__spans_cut, and
   its value is their number. */
#ifndef EXL2__TEST_SPANS
#define EXL2__TEST_SPANS(layers, ends) (*(ends) = (layers), 1u)
#endif

/* Opens the model on the engine's backend. */
EXL2__PRIVATE exl2_result exl2__loading_open_backend(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    uint64_t before = c->host_bytes;
    uint32_t ends[EXL2__SPANS_MAX];
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    uint32_t count = EXL2__TEST_SPANS(m->weights.config.layers, ends);
    EXL2__TRY(exl2__cards_open(e, m, ends, count));
    m->loading->opened_bytes = c->host_bytes - before;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_headers(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__loading *l = m->loading;
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!l->begun) {
        l->begun = true;
        const exl2__span *first = m->spans.span; /* all devices pack alike */
        exl2__weights_read_begin(&l->weights, &e->ctx, &m->weights, m->path, first->backend, first->device);
        exl2__weights_cut(&m->weights, &m->spans);
        if (m->desc.card_count > 1) {
            exl2__arena dry = { 0 };
            exl2__cards_layers(m, &dry);
            EXL2__TRY(exl2__arena_open(&e->ctx, &l->layers, dry.used, EXL2_MEM_GENERAL));
            m->weights.layer_bytes = exl2__cards_layers(m, &l->layers);
        }
    }
    EXL2__TRY_DONE(exl2__weights_read_slice(&l->weights, work));
    exl2__weights_read_end(&l->weights);
    if (m->weights.dequantized) {
        exl2__log(&e->ctx, EXL2_LOG_WARN, EXL2_LOG_ID_DEQUANTIZED, "%s: %u quantized matrices are held as FP16, as "
                  "the GPU computes them together with others that are not quantized so", m->path,
                  m->weights.dequantized);
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_VISION
/* Reads the headers of the tower's files. */
EXL2__PRIVATE exl2_result exl2__loading_tower_headers(exl2__ctx *c, exl2__model *m, exl2__work *work)
{
    exl2__images *g = &m->images;
    uint64_t before = c->host_bytes;
    if (!g->reader.c) {
        exl2__tower_read_begin(&g->reader, c, &g->tower, &g->config, m->path);
    }
    exl2_result r = exl2__tower_read_headers(&g->reader, work);
    g->table_bytes = r < 0 ? 0 : g->table_bytes + (c->host_bytes > before ? c->host_bytes - before : 0);
    return r;
}
#endif

/* Reads what the files say of the tower, if the desc asks for pictures. */
EXL2__PRIVATE exl2_result exl2__loading_tower(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (m->desc.text_only || m->desc.vision.images == 0) {
        return EXL2_OK;
    }
#ifdef EXL2_NO_VISION
    (void)work;
    return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but pictures are not part of this build "
                      "(EXL2_NO_VISION)", m->path);
#else
    exl2__images *g = &m->images;
    if (!m->loading->begun) {
        m->loading->begun = true;
        if (!m->weights.config.arch.text_of_multimodal) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but the model (%s) has no tower for "
                              "pictures", m->path, m->weights.config.arch_name);
        }
        if (exl2__objects_has_memory(m)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: vision.images is set, but a GPU does not compute towers "
                              "yet: use EXL2_BACKEND_CPU", m->path);
        }
        EXL2__TRY(exl2__vision_config_read(c, m->path, &m->weights.config, &g->config));
        EXL2__TRY(exl2__images_supports(c, m));
        EXL2__TRY(exl2__images_sizes(c, m));
    }
    EXL2__TRY_DONE(exl2__loading_tower_headers(c, m, work));
    g->on = true;
    return exl2__images_find_marks(c, m);
#endif
}

/* Can K and V have the format that the desc asks for? */
EXL2__PRIVATE exl2_result exl2__loading_check_format(exl2__ctx *c, const exl2__model *m)
{
    uint32_t dim = m->plan.shape.head_dim;
    return dim % 16 == 0 || m->plan.kv == EXL2_KV_FP16 ? EXL2_OK
         : exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: a quantized cache needs heads whose size is a multiple of 16, but "
                      "those of this model have %u elements", m->path, dim);
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
    m->plan.shape.exl3 = m->weights.has_exl3;
    m->plan.lora_max = m->desc.lora_max;
    m->plan.lora_rank_max = m->desc.lora_rank_max ? m->desc.lora_rank_max : EXL2__LORAS_RANK_MAX;
    if (m->desc.lora_max && !backend->loras) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: lora_max is %u, but adapters are not computed on the GPU yet: "
                          "open the engine with EXL2_BACKEND_CPU", m->path, m->desc.lora_max);
    }
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        m->plan.shape.row_levels = m->images.config.levels;
        m->plan.picture_rows = m->images.config.whole ? m->images.largest.rows : 0;
        m->plan.rows_max += m->plan.picture_rows;
    }
#endif
    m->plan.kv = m->desc.cache.format;
    EXL2__TRY(exl2__loading_check_format(c, m));
    if (backend->supports) {
        EXL2__TRY(backend->supports(m->spans.span->device, &m->plan.shape));
    }
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

/* Sets the plan's number of KV pages, by desc.cache.tokens or by the free host and device memory, and m->scratch_bytes,
   which depends on it. */
EXL2__PRIVATE exl2_result exl2__loading_fit_pages(exl2_engine *e, exl2__model *m)
{
    bool has_memory = exl2__objects_has_memory(m);
    uint64_t page_bytes = exl2__spans_page_bytes(&m->spans, &m->plan), with_pages, without_pages;
    /* Host memory besides K and V (the pages' tokens, their users) grows in proportion to the number of pages. */
    EXL2__TRY(exl2__loading_scratch_bytes(e, m, EXL2__LOADING_SAMPLE_PAGES, &with_pages));
    with_pages += exl2__loading_peak(m);
    EXL2__TRY(exl2__loading_scratch_bytes(e, m, 0, &without_pages)); /* leaves a plan without pages */
    without_pages += exl2__loading_peak(m);
    uint64_t host_per_page = (has_memory ? 0 : page_bytes) + 1;
    host_per_page += with_pages > without_pages ? (with_pages - without_pages) / EXL2__LOADING_SAMPLE_PAGES : 0;
    uint64_t host_fixed = without_pages + (has_memory ? 0 : m->weights.weight_bytes) + exl2__loading_tower_bytes(m);
    uint64_t wanted = m->desc.cache.tokens;
    uint32_t usual = exl2__plan_default_pages(&m->plan, page_bytes, m->weights.weight_bytes);
    uint64_t host_room = exl2__alloc_room(&e->ctx);
    uint32_t pages = exl2__plan_pages(&m->plan, wanted, usual, host_per_page, host_fixed, host_room);
    if (has_memory) {
        m->plan.pages = EXL2__LOADING_SAMPLE_PAGES;
        with_pages = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        m->plan.pages = 0;
        without_pages = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        uint64_t device_per_page = page_bytes + exl2__div_up(with_pages - without_pages, EXL2__LOADING_SAMPLE_PAGES);
        uint64_t device_fixed = m->weights.weight_bytes + without_pages;
        const exl2__span *first = m->spans.span; /* all spans are on one device, or else the model has several cards */
        uint64_t room = first->backend->memory->bytes_free(first->device);
        uint32_t fitting = exl2__plan_pages(&m->plan, wanted, usual, device_per_page, device_fixed, room);
        pages = m->desc.card_count > 1 ? pages : exl2__min32(pages, fitting);
    }
    if (m->desc.card_count > 1) {
        uint32_t context_pages = m->plan.context_max / EXL2__PAGE_TOKENS;
        EXL2__TRY(exl2__cards_cut(&e->ctx, m, wanted ? pages : exl2__min32(context_pages, pages), &pages));
    }
    return exl2__loading_scratch_bytes(e, m, pages, &m->scratch_bytes);
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
    uint32_t kinds = (uint32_t)m->weights.has_dense + m->weights.has_exl2 + m->weights.has_gptq + m->weights.has_exl3;
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
    uint64_t page_bytes = exl2__spans_page_bytes(&m->spans, &m->plan), buffers = 0;
    exl2__store64(m->content_head, m->weights.content_head[0]);
    exl2__store64(m->content_head + 8, m->weights.content_head[1]);
    info->tower_bytes = exl2__loading_tower_bytes(m);
    info->weight_bytes = m->weights.weight_bytes + info->tower_bytes;
#ifndef EXL2_NO_VISION
    info->image_bytes = exl2__images_bytes(m);
#endif
    memcpy(m->span_bytes, m->weights.span_bytes, sizeof m->span_bytes);
    info->cache_bytes = page_bytes * m->plan.pages;
    if (exl2__objects_has_memory(m)) {
        buffers = exl2__spans_buffer_bytes(&m->spans, &m->plan);
        info->device_bytes = info->weight_bytes + info->cache_bytes + buffers;
        exl2__cards_info(e, m, info);
    }
    info->pass_bytes = m->weights.pass_bytes;
    info->cache_bytes_per_token = page_bytes / EXL2__PAGE_TOKENS;
    info->bits_per_weight = (float)((double)m->weights.disk_bytes * 8 / (double)m->weights.weight_count);
    info->scratch_bytes = m->scratch_bytes + opened_bytes + exl2__loading_peak(m) + exl2__loading_text_bytes(m)
                        + buffers;
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
    EXL2__TRY(exl2__loading_plan(&e->ctx, m));
    EXL2__TRY(exl2__loading_fit_pages(e, m));
    exl2__loading_info(m);
    exl2__loading_info_bytes(e, m, m->loading->opened_bytes);
    return EXL2_OK;
}

/* ---- load ---- */

static inline exl2__way exl2__loading_way(const exl2_engine *e, const exl2__model *m)
{
    return exl2__jobs_choose_way(m->desc.on_event, m->discard_events, e->worker.stepping);
}

/* Delivers a LOAD event. false: the ring is full; loading waits. */
EXL2__PRIVATE bool exl2__loading_deliver(exl2_engine *e, exl2__model *m, float progress, exl2_result result)
{
    exl2_event event = { 0 };
    event.kind = EXL2_EVENT_LOAD;
    event.model.id = m->id;
    event.user = m->desc.user;
    event.progress = progress;
    event.result = result;
    event.error = result < 0 ? m->error.text : NULL;
    exl2_flow ignored;
    return exl2__jobs_deliver(e, exl2__loading_way(e, m), m->desc.on_event, &event, &ignored);
}

/* Memory for the tower's weights. */
EXL2__PRIVATE exl2_result exl2__loading_open_tower(exl2__ctx *c, exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? exl2__arena_open(c, &m->images.weights, m->images.tower.weight_bytes, EXL2_MEM_WEIGHTS)
                        : EXL2_OK;
#else
    (void)c, (void)m;
    return EXL2_OK;
#endif
}

EXL2__PRIVATE exl2_result exl2__loading_tower_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    (void)e;
#ifndef EXL2_NO_VISION
    if (m->images.on) {
        EXL2__TRY_DONE(exl2__tower_read_weights(&m->images.reader, &m->images.weights, work));
        exl2__tower_read_end(&m->images.reader);
    }
#else
    (void)m, (void)work;
#endif
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__loading_allocate(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    exl2__ctx *c = &e->ctx;
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    if (m->desc.text_only) {
        EXL2__TRY(exl2__arena_open(c, &m->scratch, EXL2__RENDER_BYTES, EXL2_MEM_SCRATCH));
        m->render = exl2__arena_alloc(&m->scratch, EXL2__RENDER_BYTES);
        return EXL2_OK;
    }
    const exl2_model_info *info = &m->info;
    bool on_device = exl2__objects_has_memory(m);
    /* Allocated by now: */
    uint64_t tables = exl2__weights_loading_bytes(&m->weights) - exl2__weights_more_bytes(&m->weights);
    uint64_t more = m->scratch_bytes + exl2__loading_peak(m) - tables;
    more += on_device ? 0 : info->weight_bytes + info->cache_bytes;
    if (more > exl2__alloc_room(c)) {
        return exl2__fail(c, EXL2_ERR_BUDGET,
                          "%s needs %llu bytes (weights %llu, cache %llu), but host_bytes_max leaves %llu", m->path,
                          (unsigned long long)(info->weight_bytes + info->cache_bytes + info->scratch_bytes
                                               - info->device_bytes),
                          (unsigned long long)(on_device ? 0 : info->weight_bytes),
                          (unsigned long long)(on_device ? 0 : info->cache_bytes),
                          (unsigned long long)exl2__alloc_room(c));
    }
    if (on_device) {
        EXL2__TRY_DONE(exl2__spans_reserve(&m->spans, m->span_bytes));
    } else {
        EXL2__TRY(exl2__spans_open_weights(c, &m->spans, m->span_bytes));
        EXL2__TRY(exl2__loading_open_tower(c, m));
        EXL2__TRY(exl2__spans_open_pages(c, &m->spans, m->plan.pages));
    }
    EXL2__TRY(exl2__arena_open(c, &m->scratch, m->scratch_bytes, EXL2_MEM_SCRATCH));
    exl2__loading_layers(m, &m->scratch);
    return exl2__weights_begin(c, &m->weights);
}

EXL2__PRIVATE exl2_result exl2__loading_weights(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    return m->desc.text_only ? EXL2_OK
         : exl2__weights_spans(&e->ctx, &m->weights, &m->plan, &m->spans, work);
}

EXL2__PRIVATE exl2_result exl2__loading_keep_packed(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    bool keeps = !m->desc.text_only && m->desc.keep_packed && exl2__objects_has_memory(m);
    (void)e;
    return keeps ? exl2__spans_keep_packed(&m->spans, work) : EXL2_OK;
}

/* Once all weights are packed: lays out the rest of the scratch memory. */
EXL2__PRIVATE exl2_result exl2__loading_finish(exl2_engine *e, exl2__model *m, exl2__work *work)
{
    if (m->desc.text_only) {
        return EXL2_OK;
    }
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    exl2__weights_close(&e->ctx, &m->weights);
    exl2__content_id_end(m->weights.content_head, m->weights.content_sum, m->info.content_id);
    EXL2__TRY(exl2__loading_layout(e, m, false, &m->scratch));
    if (m->scratch.used > m->scratch.size || exl2__spans_overflow(&m->spans)) {
        return exl2__fail(&e->ctx, EXL2_ERR_INTERNAL, "%s: the model needs more memory than its plan reserved",
                          m->path);
    }
    EXL2__ASSERT(exl2__arena_is_filled(&m->scratch) && exl2__spans_are_filled(&m->spans));
    m->mask_ns = EXL2__FIRST_MASK_NS;
    m->mask_begin_ns = EXL2__FIRST_MASK_BEGIN_NS;
    m->forward.c = &e->ctx;
    m->forward.spans = &m->spans;
    m->forward.plan = &m->plan;
    return EXL2_OK;
}

/* ---- the stages ---- */

typedef exl2_result (*exl2__loading_stage)(exl2_engine *e, exl2__model *m, exl2__work *work);

static const exl2__loading_stage exl2__loading_stages[] = {
    exl2__loading_config, exl2__loading_vocab, exl2__loading_grammar_vocab, exl2__loading_chats,
    exl2__loading_open_backend, exl2__loading_headers, exl2__loading_tower, exl2__loading_sizes,
    exl2__loading_allocate, exl2__loading_weights, exl2__loading_tower_weights, exl2__loading_keep_packed,
    exl2__loading_finish,
};

#define EXL2__LOADING_MEASURED 8u /* stages that exl2_model_measure needs, too */

#endif
