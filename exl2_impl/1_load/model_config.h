/* model_config.h: what config.json and generation_config.json say of a model, after the rules of its architecture.
   takes: what model_config_read.h found.
   gives: exl2__config, exl2__config_defaults, exl2__config_layer. */
#ifndef EXL2__MODEL_CONFIG_H
#define EXL2__MODEL_CONFIG_H

#include "arch.h"
#include "model_experts.h"
#include "model_rope.h"
#include "quant_config.h"

#define EXL2__CONFIG_EOS_MAX 16u
#define EXL2__CONFIG_CONTEXT_MAX (1u << 30)
#define EXL2__CONFIG_VOCAB_MAX (1u << 24)
#define EXL2__CONFIG_LAYERS_MAX ((uint32_t)EXL2_LAYERS_MAX)
#define EXL2__CONFIG_HEAD_MAX 256u /* largest head_dim */

/* The suggestions of generation_config.json; a value is valid only if its has_ flag is set. */
typedef struct exl2__config_defaults {
    bool has_do_sample, has_temperature, has_top_k, has_top_p, has_min_p, has_repeat_penalty;
    bool do_sample; /* false: greedy */
    uint32_t top_k; /* 0 = off */
    float temperature, top_p, min_p, repeat_penalty;
} exl2__config_defaults;

typedef struct exl2__config {
    exl2__arch arch;               /* resolved; arch.name is the supported name, as which an unsupported one is read */
    char arch_name[64];            /* as in the file */
    uint32_t vocab, hidden, layers, heads, kv_heads, head_dim, inter;
    uint32_t context_max;          /* tokens; what the model was trained for */
    uint32_t rotary;               /* elements of a head that RoPE rotates; 0 with learned positions */
    uint32_t window;               /* tokens, of the layers in `windowed`; 0 = none */
    float norm_eps, attn_scale;
    float embed_scale, residual_scale, logit_scale;  /* factors of the embedding, of each block's result, of logits */
    float attn_softcap, final_softcap;               /* 0 = none */
    float clip_qkv;                                  /* bound of the absolute values of q, k, v; 0 = none */
    float query_growth, query_context; /* q *= 1 + growth * ln(1 + floor(position / context)); growth 0 = off */
    exl2__act act;
    exl2__qk_norm qk_norm;         /* never BY_CONFIG */
    bool parallel;
    float act_limit;               /* bound of EXL2__ACT_CLAMPED; 0 = none */
    exl2__experts experts;
    bool norm_head;                /* a dense head is used with rows of length 1 */
    exl2__rope rope, local_rope;   /* local_rope: of layers with a window, if has_local_rope */
    bool has_local_rope;
    uint32_t windowed[EXL2__CONFIG_LAYERS_MAX / 32], unrotated[EXL2__CONFIG_LAYERS_MAX / 32]; /* a bit per layer */
    uint32_t sparse[EXL2__CONFIG_LAYERS_MAX / 32]; /* a bit per layer: it has experts */
    uint32_t draft_layers;         /* layers after the last one, which predict further tokens and are not used */
    bool tie_embeddings;           /* if there is no head tensor, the embedding is used as the head */
    bool attention_bias, mlp_bias; /* as in the file, but not used: a layer has a bias if its .bias tensor exists */
    exl2_token bos;                /* -1 = none */
    exl2_token eos[EXL2__CONFIG_EOS_MAX]; /* [eos_count] of config.json, then of generation_config.json; each once */
    uint32_t eos_count;
    exl2__config_defaults defaults;
    exl2__quant quant;             /* for GPTQ and AWQ */
} exl2__config;

/* Is the bit of this layer set? */
static inline bool exl2__config_layer(const uint32_t *bits, uint32_t layer)
{
    return bits[layer / 32] >> (layer % 32) & 1u;
}

#endif
