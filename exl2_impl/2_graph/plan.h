/* plan.h: makes the plan of a model (shape, limits, number of pages) from its config and desc, before anything is
   allocated.
   takes: exl2__config, the limits of exl2_model_desc, the backend's size of a page.
   gives: exl2__plan_make, exl2__plan_layers, exl2__plan_divide, exl2__plan_join, exl2__plan_experts, exl2__plan_ropes,
          exl2__plan_axes, exl2__plan_default_pages, exl2__plan_window_pages, exl2__plan_pages. */
#ifndef EXL2__PLAN_H
#define EXL2__PLAN_H

#include "../1_load/model_config.h"
#include "phases.h"

#define EXL2__DEFAULT_CONTEXT 8192u
#define EXL2__DEFAULT_PREFILL_CHUNK 1024u
#define EXL2__DEFAULT_BATCH 16u
#define EXL2__LEAST_WINDOWS 4u /* sequences whose windows the cache has, unless the application chooses batch_max */
#define EXL2__DEFAULT_CACHE_BYTES ((uint64_t)256 << 20) /* the default cache may have this, or the bytes of weights */
#define EXL2__LOGIT_ROWS 16u /* rows of a group of logits: 16 x vocabulary x 4 bytes of scratch */

/* Sets everything but pages, layers and matrices. context_max 0 = the model's own, but at most EXL2__DEFAULT_CONTEXT.
   */
static inline void exl2__plan_make(exl2__plan *p, const exl2__config *config, uint32_t embed_rows, uint32_t context_max,
                                   uint32_t prefill_chunk, uint32_t batch_max)
{
    const uint8_t *traits = config->arch.traits;
    const char *const *names = config->arch.names;
    *p = (exl2__plan){ 0 };
    p->shape.vocab = config->vocab;
    p->shape.hidden = config->hidden;
    p->shape.layers = config->layers;
    p->shape.heads = config->heads;
    p->shape.kv_heads = config->kv_heads;
    p->shape.head_dim = config->head_dim;
    p->shape.inter = config->experts.shared_inter;
    p->shape.embed_rows = embed_rows;
    p->shape.norm_eps = config->norm_eps;
    p->shape.attn_scale = config->attn_scale;
    p->shape.rotary = config->rotary;
    p->shape.pairs = traits[EXL2__TRAIT_POSITIONS] == EXL2__POSITIONS_PAIRS;
    p->shape.layer_norm =
        traits[EXL2__TRAIT_NORM] == EXL2__NORM_LAYER || traits[EXL2__TRAIT_NORM] == EXL2__NORM_LAYER_PLUS_ONE;
    p->shape.gated = traits[EXL2__TRAIT_GATED] == EXL2__YES;
    p->shape.parallel = config->parallel;
    p->shape.act = config->act;
    p->shape.act_limit = config->act_limit;
    p->shape.experts = config->experts;
    p->shape.sinks = names[EXL2__NAME_SINKS][0] != 0;
    p->shape.qk_norm = config->qk_norm;
    p->shape.pre_norms = names[EXL2__NAME_ATTN_NORM][0] != 0;
    p->shape.post_norms = names[EXL2__NAME_ATTN_POST_NORM][0] != 0;
    p->shape.embed_scale = config->embed_scale;
    p->shape.residual_scale = config->residual_scale;
    p->shape.logit_scale = config->logit_scale;
    p->shape.attn_softcap = config->attn_softcap;
    p->shape.final_softcap = config->final_softcap;
    p->shape.clip_qkv = config->clip_qkv;
    p->shape.query_growth = config->query_growth;
    p->shape.query_context = config->query_context;
    for (uint32_t i = 0; i < config->layers; i++) {
        p->shape.inter = exl2__config_layer(config->sparse, i) ? p->shape.inter
                                                               : exl2__max32(p->shape.inter, config->inter);
        p->shape.windows = p->shape.windows || exl2__config_layer(config->windowed, i);
        p->shape.unrotated = p->shape.unrotated || (config->rotary && exl2__config_layer(config->unrotated, i));
    }
    p->rope_count = config->rotary ? 1u + config->has_local_rope : 0;
    p->sequences_max = batch_max ? batch_max : EXL2__DEFAULT_BATCH;
    p->rows_max = exl2__max32(prefill_chunk ? prefill_chunk : EXL2__DEFAULT_PREFILL_CHUNK, p->sequences_max);
    p->logit_rows_max = EXL2__LOGIT_ROWS;
    p->context = context_max ? context_max : exl2__min32(config->context_max, EXL2__DEFAULT_CONTEXT);
    p->context_max = (uint32_t)exl2__align_up(p->context, EXL2__PAGE_TOKENS);
    p->rows_max = exl2__min32(p->rows_max, exl2__max32(p->context_max, p->sequences_max));
}

/* The phases of a layer, in their order. The last one, `steer`, is left out of models without control vectors. */
static const exl2__phase exl2__plan_plain_phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_attend, EXL2__PHASE_out,
                                                       EXL2__PHASE_gate_up, EXL2__PHASE_down, EXL2__PHASE_steer };
static const exl2__phase exl2__plan_settled_phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_attend, EXL2__PHASE_out,
                                                         EXL2__PHASE_settle, EXL2__PHASE_gate_up, EXL2__PHASE_down,
                                                         EXL2__PHASE_settle, EXL2__PHASE_steer };
static const exl2__phase exl2__plan_parallel_phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_gate_up, EXL2__PHASE_attend,
                                                          EXL2__PHASE_out, EXL2__PHASE_down, EXL2__PHASE_steer };

/* The phases of a layer with experts. down adds the shared expert's result after all others have read the residual. */
static const exl2__phase exl2__plan_sparse_phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_attend, EXL2__PHASE_out,
                                                        EXL2__PHASE_route, EXL2__PHASE_expert_up,
                                                        EXL2__PHASE_expert_down, EXL2__PHASE_steer };
static const exl2__phase exl2__plan_shared_phases[] = { EXL2__PHASE_qkv, EXL2__PHASE_attend, EXL2__PHASE_out,
                                                        EXL2__PHASE_route, EXL2__PHASE_gate_up, EXL2__PHASE_expert_up,
                                                        EXL2__PHASE_down, EXL2__PHASE_expert_down, EXL2__PHASE_steer };

/* Fills what is known of layers [shape.layers] before their weights are loaded. */
static inline void exl2__plan_layers(const exl2__plan *p, const exl2__config *config, exl2__layer *layers)
{
    for (uint32_t i = 0; i < config->layers; i++) {
        exl2__layer *layer = &layers[i];
        bool windowed = exl2__config_layer(config->windowed, i);
        bool rotated = config->rotary && !exl2__config_layer(config->unrotated, i);
        layer->index = i;
        layer->window = windowed ? config->window : UINT32_MAX;
        layer->rope = !rotated ? EXL2__NO_ROPE : windowed && config->has_local_rope ? 1 : 0;
        if (exl2__experts_any(&config->experts) && exl2__config_layer(config->sparse, i)) {
            bool shared = config->experts.shared_inter > 0;
            layer->phases = shared ? exl2__plan_shared_phases : exl2__plan_sparse_phases;
            layer->phase_count = shared ? EXL2__COUNT(exl2__plan_shared_phases)
                                        : EXL2__COUNT(exl2__plan_sparse_phases);
        } else if (p->shape.parallel) {
            layer->phases = exl2__plan_parallel_phases;
            layer->phase_count = EXL2__COUNT(exl2__plan_parallel_phases);
        } else if (p->shape.post_norms) {
            layer->phases = exl2__plan_settled_phases;
            layer->phase_count = EXL2__COUNT(exl2__plan_settled_phases);
        } else {
            layer->phases = exl2__plan_plain_phases;
            layer->phase_count = EXL2__COUNT(exl2__plan_plain_phases);
        }
        layer->phase_count -= p->steer_max == 0;
    }
}

/* Another backend computes the MLP: divides the phases of a layer among `layer` and `host`, which is zeroed. An MLP
   beside attention (parallel blocks) comes first: it reads the residual before attention adds to it. */
static inline void exl2__plan_divide(const exl2__plan *p, exl2__layer *layer, exl2__layer *host)
{
    const exl2__phase *all = p->shape.parallel ? exl2__plan_plain_phases : layer->phases;
    uint32_t count = p->shape.parallel ? (uint32_t)EXL2__COUNT(exl2__plan_plain_phases) - (p->steer_max == 0)
                                       : layer->phase_count;
    uint32_t attention = all[3] == EXL2__PHASE_settle ? 4 : 3; /* qkv, attend, out */
    *host = *layer; /* its list of experts is the layer's */
    memset(layer->experts, 0, sizeof layer->experts);
    host->phases = all + attention;
    host->phase_count = count - attention;
    layer->phases = all;
    layer->phase_count = attention;
}

/* Once all weights are loaded: fills one of exl2__plan.prompt_layers. A streamed one has its phases and its MLP
   already, and gets everything else from the layer. */
static inline void exl2__plan_join(const exl2__plan *p, const exl2__layer *layer, bool streamed, exl2__layer *prompt)
{
    exl2__layer mlp = *prompt;
    *prompt = *layer;
    if (!streamed) {
        return;
    }
    prompt->phases = mlp.phases;
    prompt->phase_count = mlp.phase_count;
    for (uint32_t role = EXL2__ROLE_GATE_UP; role < EXL2__ROLE_SINGLES; role++) {
        prompt->matrix[role] = mlp.matrix[role];
    }
    memcpy(prompt->experts, mlp.experts, sizeof prompt->experts);
    prompt->choice_bias = mlp.choice_bias;
    prompt->mlp_norm = p->shape.parallel ? layer->attn_norm : mlp.mlp_norm;
    prompt->mlp_post_norm = mlp.mlp_post_norm;
}

/* Number of pointers to matrices that the layers with experts have. */
static inline uint64_t exl2__plan_expert_pointers(const exl2__config *config)
{
    uint64_t layers = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        layers += exl2__config_layer(config->sparse, i);
    }
    return layers * (EXL2__ROLE_COUNT - EXL2__ROLE_SINGLES) * config->experts.count;
}

/* Divides `matrices` [exl2__plan_expert_pointers] among the layers. */
static inline void exl2__plan_experts(const exl2__config *config, exl2__matrix **matrices, exl2__layer *layers)
{
    for (uint32_t i = 0; i < config->layers; i++) {
        if (exl2__config_layer(config->sparse, i)) {
            for (uint32_t k = 0; k < EXL2__COUNT(layers[i].experts); k++) {
                layers[i].experts[k] = matrices;
                matrices += config->experts.count;
            }
        }
    }
}

/* Fills ropes [2] and frequencies [2, rotary / 2], and sets p->ropes. */
static inline void exl2__plan_ropes(exl2__plan *p, const exl2__config *config, double *frequencies,
                                    exl2__rope_angles *ropes)
{
    for (uint32_t i = 0; i < p->rope_count; i++) {
        const exl2__rope *rope = i == 0 ? &config->rope : &config->local_rope;
        double *frequency = frequencies + (size_t)i * (config->rotary / 2);
        ropes[i].frequency = frequency;
        ropes[i].axis = NULL;
        exl2__rope_frequencies(rope, config->rotary, p->context, frequency, &ropes[i].magnitude);
    }
    p->ropes = ropes;
}

/* Fills axis [rotary / 2] of the first set of angles: whose position turns a frequency (transformers,
   apply_multimodal_rotary_pos_emb of Qwen2-VL, apply_interleaved_mrope of Qwen3-VL). */
static inline void exl2__plan_axes(const exl2__config *config, uint8_t *axis, exl2__rope_angles *ropes)
{
    const uint32_t *section = config->rope.section;
    for (uint32_t i = 0; i < config->rotary / 2; i++) {
        uint32_t turn = i % 3;
        axis[i] = config->rope.interleaved ? (uint8_t)(turn > 0 && i < 3 * section[turn] ? turn : 0)
                                           : (uint8_t)((i >= section[0]) + (i >= section[0] + section[1]));
    }
    ropes[0].axis = axis;
}

/* Number of pages of a default cache: two contexts, or fewer, down to one, so that their K and V are no larger than the
   weights or EXL2__DEFAULT_CACHE_BYTES, whichever is more. page_bytes: of K and V. */
static inline uint32_t exl2__plan_default_pages(const exl2__plan *p, uint64_t page_bytes, uint64_t weight_bytes)
{
    uint64_t context_pages = p->context_max / EXL2__PAGE_TOKENS;
    uint64_t modest = exl2__max64(weight_bytes, EXL2__DEFAULT_CACHE_BYTES) / page_bytes;
    return (uint32_t)exl2__max64(exl2__min64(2 * context_pages, modest), context_pages);
}

/* Number of window parts of a cache of `pages` pages (4_cache/windows.h). It has the windows of batch_max sequences; if
   the application does not choose that, of as many as have a whole context in the cache, or of EXL2__LEAST_WINDOWS.
   each: parts of a sequence; rows: beside these. */
static inline uint32_t exl2__plan_window_pages(const exl2__plan *p, uint32_t pages, uint32_t batch_max, uint32_t each,
                                               uint32_t rows)
{
    uint32_t contexts = exl2__max32(pages / (p->context_max / EXL2__PAGE_TOKENS), EXL2__LEAST_WINDOWS);
    uint32_t sequences = batch_max ? p->sequences_max : exl2__min32(p->sequences_max, contexts);
    return (uint32_t)exl2__min64((uint64_t)sequences * each + rows, UINT32_MAX - 1);
}

/* Number of pages for `tokens` tokens. 0 = default_pages, or fewer, down to one context, so that `fixed` bytes plus the
   pages fit into `room` bytes. If they do not fit, the allocation will fail later. */
static inline uint32_t exl2__plan_pages(const exl2__plan *p, uint64_t tokens, uint32_t default_pages,
                                        uint64_t page_bytes, uint64_t fixed, uint64_t room)
{
    uint64_t context_pages = p->context_max / EXL2__PAGE_TOKENS;
    if (tokens) {
        return (uint32_t)exl2__min64(exl2__div_up(tokens, EXL2__PAGE_TOKENS), UINT32_MAX - 1);
    }
    uint64_t affordable = room > fixed ? (room - fixed) / page_bytes : 0;
    return (uint32_t)exl2__max64(exl2__min64(default_pages, affordable), context_pages);
}

#endif
