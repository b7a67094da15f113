/* loading_layout.h: what a model holds: its scratch memory is laid out, or only counted; and it is closed.
   takes: a model whose plan is made.
   gives: exl2__loading; exl2__loading_end_reading, exl2__loading_end_jobs, exl2__loading_close; exl2__loading_layout,
          exl2__loading_layers, exl2__loading_turns; exl2__loading_peak, exl2__loading_scratch_bytes.
   owns:  the model's arenas, vocabulary, template, tensor table and device. */
#ifndef EXL2__LOADING_LAYOUT_H
#define EXL2__LOADING_LAYOUT_H

#include "../1_load/arch_words.h"
#include "../1_load/model_config_read.h"
#include "../2_graph/weights_load.h"
#include "../6_text/tokenizer/vocab_read.h"
#include "offload.h"
#include "images.h"
#include "jobs.h"
#include "loras.h"
#include "tier_moves.h"

#define EXL2__LOADING_STEP 0.01f /* least progress between two LOAD events */
#define EXL2__LOADING_SAMPLE_PAGES 65536u /* for a dry run that measures the host memory of a page */

/* The readers of the stages up to EXL2__LOADING_MEASURED, after which it is freed. */
typedef struct exl2__loading {
    exl2__vocab_reader vocab;
    exl2__grammar_vocab_maker grammar;
    exl2__template_set_reader chats;
    exl2__weights_reader weights;
    exl2__arena layers;      /* of exl2__weights.layer_bytes and mlp_bytes */
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
        m->weights.mlp_bytes = NULL;
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
#ifndef EXL2_NO_VISION
    exl2__images_hold(m, false);
#endif
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
    if (m->spans.count > 1 && !exl2__objects_is_async(m)) {
        uint64_t elements = (uint64_t)m->plan.rows_max * m->plan.shape.hidden;
        m->forward.handed = (float *)exl2__arena_alloc(scratch, elements * sizeof(float));
    }
    exl2__pages_make(&m->pages, scratch, m->plan.pages);
    exl2__windows_make(&m->pages.windows, scratch, m->plan.pages, m->plan.window_pages, m->weights.config.window,
                       exl2__windows_rows(m->plan.rows_max, m->plan.picture_rows));
    exl2__tier_make(&m->tier, scratch, m->plan.host_pages, m->plan.pages, exl2__pages_for(m->plan.context_max));
    m->pages.tier = m->plan.host_pages ? &m->tier : NULL;
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
    if (m->plan.lora_max || m->plan.steer_max) {
        uint64_t layers = (uint64_t)m->plan.steer_max * m->plan.shape.layers;
        exl2__roots_make(&m->roots, scratch, 2 * e->max_sessions);
        m->loras = (exl2__lora *)exl2__arena_alloc_zeroed(scratch, m->plan.lora_max * (uint64_t)sizeof *m->loras);
        m->steers = (exl2__steer *)exl2__arena_alloc_zeroed(scratch, m->plan.steer_max * (uint64_t)sizeof *m->steers);
        m->steer_values = (float *)exl2__arena_alloc(scratch, layers * m->plan.shape.hidden * sizeof(float));
        m->steer_has = (bool *)exl2__arena_alloc(scratch, layers * sizeof(bool));
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
    uint64_t host = m->weights.host_bytes ? m->weights.config.layers : 0;
    m->plan.host_layers =
        host ? (exl2__layer *)exl2__arena_alloc_zeroed(scratch, host * sizeof(exl2__layer)) : NULL;
    uint64_t prompt = exl2__spans_stream(&m->spans) ? m->weights.config.layers : 0;
    m->plan.prompt_layers =
        prompt ? (exl2__layer *)exl2__arena_alloc_zeroed(scratch, prompt * sizeof(exl2__layer)) : NULL;
    uint64_t pointers = exl2__plan_expert_pointers(&m->weights.config);
    uint64_t more = prompt ? pointers : 0;
    exl2__matrix **others = (exl2__matrix **)exl2__arena_alloc_zeroed(scratch, more * sizeof *others);
    exl2__matrix **experts = (exl2__matrix **)exl2__arena_alloc_zeroed(scratch, pointers * sizeof *experts);
    bool turns = exl2__loading_turns(m);
    uint8_t *axis = (uint8_t *)exl2__arena_alloc(scratch, turns ? m->weights.config.rotary / 2 : 0);
    if (m->plan.layers) {
        exl2__plan_layers(&m->plan, &m->weights.config, m->plan.layers);
        if (m->plan.prompt_layers) {
            memcpy(m->plan.prompt_layers, m->plan.layers, (size_t)prompt * sizeof *m->plan.layers);
            exl2__plan_experts(&m->weights.config, others, m->plan.prompt_layers);
        }
        exl2__plan_experts(&m->weights.config, experts, m->plan.layers);
        for (uint32_t i = 0; m->plan.host_layers && i < m->weights.config.layers; i++) {
            if (exl2__weights_is_host(&m->weights, i)) {
                exl2__plan_divide(&m->plan, &m->plan.layers[i], &m->plan.host_layers[i]);
            }
        }
        exl2__plan_ropes(&m->plan, &m->weights.config, frequencies, ropes);
        if (turns) {
            exl2__plan_axes(&m->weights.config, axis, ropes);
        }
    }
}

/* Bytes of the tower's weights. */
static inline uint64_t exl2__loading_tower_bytes(const exl2__model *m)
{
#ifndef EXL2_NO_VISION
    return m->images.on ? m->images.tower.weight_bytes : 0;
#else
    (void)m;
    return 0;
#endif
}

/* Host bytes of the copy of packed weights that a backend with memory of its own keeps. */
static inline uint64_t exl2__loading_packed_bytes(const exl2__model *m)
{
    bool keeps = m->desc.keep_packed && exl2__objects_has_memory(m);
    uint64_t bytes = m->weights.weight_bytes + exl2__loading_tower_bytes(m);
    return keeps ? bytes + (bytes >> 20) + 8 : 0; /* the CPU's part stays */
}

/* Host bytes of the cache's second tier; spans have the plan. */
static inline uint64_t exl2__loading_tier_bytes(const exl2__model *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->spans.count && m->plan.host_pages; i++) {
        bytes += exl2__span_page_bytes(&m->spans.span[i], false) + sizeof(void *);
    }
    return bytes * m->plan.host_pages;
}

/* What else reading them needs. */
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
    return exl2__max64(loading, ready) + exl2__loading_packed_bytes(m) + exl2__loading_tier_bytes(m);
}

/* Host bytes that loading will still allocate, after headers and text, besides weights and pages of a backend without
   memory of its own. */
static inline uint64_t exl2__loading_more(const exl2__model *m)
{
    uint64_t tables = exl2__weights_loading_bytes(&m->weights) - exl2__weights_more_bytes(&m->weights);
    uint64_t more = m->scratch_bytes + exl2__loading_peak(m) - tables;
    return more + (exl2__objects_has_memory(m) ? exl2__weights_away(&m->weights) : 0);
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

#endif
