/* plan.h: makes the plan of a model (shape, limits, number of pages) from its config and desc, before anything is
   allocated.
   takes: exl2__config, the limits of exl2_model_desc, the backend's size of a page.
   gives: exl2__plan_make, exl2__plan_pages.
   owns:  nothing. */
#ifndef EXL2__PLAN_H
#define EXL2__PLAN_H

#include "../1_load/model_config.h"
#include "phases.h"

#define EXL2__DEFAULT_CONTEXT 8192u
#define EXL2__DEFAULT_PREFILL_CHUNK 1024u
#define EXL2__DEFAULT_BATCH 16u
#define EXL2__LOGIT_ROWS 16u /* rows of a group of logits: 16 x vocabulary x 4 bytes of scratch */

/* Sets everything but pages, layers and matrices. context_max 0 = the model's own, but at most EXL2__DEFAULT_CONTEXT.
   */
static inline void exl2__plan_make(exl2__plan *p, const exl2__config *config, uint32_t embed_rows, uint32_t context_max,
                                   uint32_t prefill_chunk, uint32_t batch_max)
{
    *p = (exl2__plan){ 0 };
    p->shape.vocab = config->vocab;
    p->shape.hidden = config->hidden;
    p->shape.layers = config->layers;
    p->shape.heads = config->heads;
    p->shape.kv_heads = config->kv_heads;
    p->shape.head_dim = config->head_dim;
    p->shape.inter = config->inter;
    p->shape.embed_rows = embed_rows;
    p->shape.norm_eps = config->norm_eps;
    p->shape.attn_scale = config->attn_scale;
    p->sequences_max = batch_max ? batch_max : EXL2__DEFAULT_BATCH;
    p->rows_max = exl2__max32(prefill_chunk ? prefill_chunk : EXL2__DEFAULT_PREFILL_CHUNK, p->sequences_max);
    p->logit_rows_max = EXL2__LOGIT_ROWS;
    p->context_max = (uint32_t)exl2__align_up(
        context_max ? context_max : exl2__min32(config->context_max, EXL2__DEFAULT_CONTEXT), EXL2__PAGE_TOKENS);
    p->rows_max = exl2__min32(p->rows_max, exl2__max32(p->context_max, p->sequences_max));
}

/* Number of pages for `tokens` tokens. 0 = the default: four contexts, or fewer, down to one, so that `fixed` bytes
   plus the pages fit into `room` bytes. If they do not fit, the allocation will fail later. */
static inline uint32_t exl2__plan_pages(const exl2__plan *p, uint64_t tokens, uint64_t page_bytes, uint64_t fixed,
                                        uint64_t room)
{
    uint64_t context_pages = p->context_max / EXL2__PAGE_TOKENS;
    if (tokens) {
        return (uint32_t)exl2__min64(exl2__div_up(tokens, EXL2__PAGE_TOKENS), UINT32_MAX - 1);
    }
    uint64_t affordable = room > fixed ? (room - fixed) / page_bytes : 0;
    return (uint32_t)exl2__max64(exl2__min64(4 * context_pages, affordable), context_pages);
}

#endif
