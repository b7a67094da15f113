/* import_families.h: what llama.cpp's converter makes of a model: for each general.architecture the row of the model,
   the config.json fields of its keys, and the changes of its tensors that an import undoes.
   takes: nothing.
   gives: exl2__import_family and its parts, exl2__import_families, exl2__import_family_tensor.

   The names of GGUF tensors are the same for all families, so a family needs a row here and nothing else, unless it is
   stored in a way that no field says. */
#ifndef EXL2__IMPORT_FAMILIES_H
#define EXL2__IMPORT_FAMILIES_H

#include "../../1_load/arch_rows.h"

/* Keys after "<architecture>." that change what a model computes. A family that gives no field for a key accepts only
   its neutral value. */
typedef enum exl2__import_key {
    EXL2__IMPORT_KEY_LOGIT_SCALE,
    EXL2__IMPORT_KEY_EMBEDDING_SCALE,
    EXL2__IMPORT_KEY_RESIDUAL_SCALE,
    EXL2__IMPORT_KEY_ATTENTION_SCALE,
    EXL2__IMPORT_KEY_ATTN_SOFTCAP,
    EXL2__IMPORT_KEY_FINAL_SOFTCAP,
    EXL2__IMPORT_KEY_CLAMP_QKV,
    EXL2__IMPORT_KEY_COUNT
} exl2__import_key;

typedef struct exl2__import_key_row {
    const char *key;
    float neutral;
} exl2__import_key_row;

static const exl2__import_key_row exl2__import_keys[EXL2__IMPORT_KEY_COUNT] = {
    [EXL2__IMPORT_KEY_LOGIT_SCALE] = { "logit_scale", 1 },
    [EXL2__IMPORT_KEY_EMBEDDING_SCALE] = { "embedding_scale", 1 },
    [EXL2__IMPORT_KEY_RESIDUAL_SCALE] = { "residual_scale", 1 },
    [EXL2__IMPORT_KEY_ATTENTION_SCALE] = { "attention.scale", 0 },
    [EXL2__IMPORT_KEY_ATTN_SOFTCAP] = { "attn_logit_softcapping", 0 },
    [EXL2__IMPORT_KEY_FINAL_SOFTCAP] = { "final_logit_softcapping", 0 },
    [EXL2__IMPORT_KEY_CLAMP_QKV] = { "attention.clamp_kqv", 0 },
};

/* What the converter changed in the tensors, and an import undoes. */
typedef enum exl2__import_undo {
    EXL2__IMPORT_UNDO_PAIRS = 1,        /* rows of q and k, which RoPE rotates as halves, are stored as pairs */
    EXL2__IMPORT_UNDO_WEIGHT_PAIRS = 2, /* the same, but not the biases */
    EXL2__IMPORT_UNDO_PLUS_ONE = 4,     /* weights of norms are stored plus 1 */
    EXL2__IMPORT_UNDO_GATE_UP = 8       /* ffn_up holds the rows of the gate, then those of up */
} exl2__import_undo;

/* The fields of config.json that say what experts a model has. */
typedef struct exl2__import_expert_fields {
    const char *count, *active; /* how many, and how many a token uses */
    const char *shared;         /* width of the shared expert; NULL: there is none */
    bool shared_multiple;       /* `shared` is how many experts wide the shared one is */
    const char *dense;          /* number of layers before the first one with experts; NULL: mlp_only_layers lists the
                                   layers without experts */
    bool renormalized;          /* norm_topk_prob of files without the key expert_weights_norm */
} exl2__import_expert_fields;

typedef struct exl2__import_family {
    const char *gguf; /* general.architecture */
    const char *arch; /* name of a row of exl2__archs */
    uint32_t undo;    /* exl2__import_undo, together */
    const char *fields[EXL2__IMPORT_KEY_COUNT]; /* the field of config.json for each key; NULL: there is none */
    float absent[EXL2__IMPORT_KEY_COUNT];       /* value without the key, where it is not the neutral one */
    const char *windowed_arch; /* the row instead of `arch` if the file has attention.sliding_window */
    const char *experts_arch;  /* the row instead of `arch` if the file has experts */
    const char *shared_arch;   /* the row instead of `arch` if the file has a shared expert */
    exl2__import_expert_fields experts; /* for rows with experts */
    const char *extra;         /* what the file leaves out, as members of config.json */
    uint32_t wide_layers;      /* not 0: config.json gets query_pre_attn_scalar, the head size. A model with this number
                                  of layers has hidden / heads instead */
    uint32_t window_period;    /* of EXL2__WINDOW_PATTERN, where the file does not say it */
    bool from_sizes;           /* config.json has what the factors come from: hidden / logit_scale as dim_model_base,
                                  residual_scale sqrt(layers) as scale_depth; 256 and 1.4 in files without the keys */
    bool yarn_exact;           /* YaRN's ramp has exact bounds, not whole frequencies ("truncate": false) */
    bool bias_for_all;         /* config.json has one flag for the biases of q, k, v and o: if any layer has one of
                                  them, all others are written as zeros */
} exl2__import_family;

#define EXL2__IMPORT_GRANITE_FIELDS { "logits_scaling", "embedding_multiplier", "residual_multiplier", \
                                      "attention_multiplier" }

#define EXL2__IMPORT_DEEPSEEK_FIELDS \
    { .count = "n_routed_experts", .active = "num_experts_per_tok", .shared = "n_shared_experts", \
      .shared_multiple = true, .dense = "first_k_dense_replace", .renormalized = true }

static const exl2__import_family exl2__import_families[] = {
    { .gguf = "llama", .arch = "LlamaForCausalLM", .undo = EXL2__IMPORT_UNDO_PAIRS, .bias_for_all = true,
      .experts_arch = "MixtralForCausalLM",
      .experts = { .count = "num_local_experts", .active = "num_experts_per_tok" } },
    { .gguf = "arcee", .arch = "ArceeForCausalLM", .undo = EXL2__IMPORT_UNDO_PAIRS },
    { .gguf = "internlm2", .arch = "InternLM2ForCausalLM", .undo = EXL2__IMPORT_UNDO_PAIRS },
    { .gguf = "smollm3", .arch = "SmolLM3ForCausalLM", .undo = EXL2__IMPORT_UNDO_PAIRS,
      .extra = "\"no_rope_layer_interval\": 4" },
    { .gguf = "granite", .arch = "GraniteForCausalLM", .undo = EXL2__IMPORT_UNDO_PAIRS,
      .fields = EXL2__IMPORT_GRANITE_FIELDS },
    { .gguf = "minicpm", .arch = "MiniCPMForCausalLM", .undo = EXL2__IMPORT_UNDO_WEIGHT_PAIRS, .from_sizes = true,
      .fields = { "dim_model_base", "scale_emb", "scale_depth" },
      .absent = { [EXL2__IMPORT_KEY_EMBEDDING_SCALE] = 12 } },

    { .gguf = "command-r", .arch = "CohereForCausalLM", .fields = { "logit_scale" } },
    { .gguf = "cohere2", .arch = "Cohere2ForCausalLM", .fields = { "logit_scale" }, .window_period = 4 },
    { .gguf = "chatglm", .arch = "GlmForCausalLM", .undo = EXL2__IMPORT_UNDO_GATE_UP },
    { .gguf = "glm4", .arch = "Glm4ForCausalLM", .undo = EXL2__IMPORT_UNDO_GATE_UP },
    { .gguf = "ernie4_5", .arch = "Ernie4_5ForCausalLM" },

    { .gguf = "qwen2", .arch = "Qwen2ForCausalLM" },
    { .gguf = "qwen2vl", .arch = "Qwen2VLForConditionalGeneration" },
    { .gguf = "qwen3", .arch = "Qwen3ForCausalLM" },

    { .gguf = "gemma", .arch = "GemmaForCausalLM", .undo = EXL2__IMPORT_UNDO_PLUS_ONE },
    { .gguf = "gemma2", .arch = "Gemma2ForCausalLM", .undo = EXL2__IMPORT_UNDO_PLUS_ONE, .wide_layers = 46,
      .fields = { [EXL2__IMPORT_KEY_ATTN_SOFTCAP] = "attn_logit_softcapping",
                  [EXL2__IMPORT_KEY_FINAL_SOFTCAP] = "final_logit_softcapping" },
      .absent = { [EXL2__IMPORT_KEY_ATTN_SOFTCAP] = 50, [EXL2__IMPORT_KEY_FINAL_SOFTCAP] = 30 } },
    { .gguf = "gemma3", .arch = "Gemma3ForCausalLM", .undo = EXL2__IMPORT_UNDO_PLUS_ONE, .wide_layers = 62,
      .fields = { [EXL2__IMPORT_KEY_FINAL_SOFTCAP] = "final_logit_softcapping" }, .window_period = 6 },

    { .gguf = "phi3", .arch = "Phi3ForCausalLM", .undo = EXL2__IMPORT_UNDO_GATE_UP },
    { .gguf = "phi2", .arch = "PhiForCausalLM" },
    { .gguf = "gpt2", .arch = "GPT2LMHeadModel" },
    { .gguf = "starcoder", .arch = "GPTBigCodeForCausalLM" },
    { .gguf = "starcoder2", .arch = "Starcoder2ForCausalLM" },
    { .gguf = "orion", .arch = "OrionForCausalLM" },
    { .gguf = "nemotron", .arch = "NemotronForCausalLM", .undo = EXL2__IMPORT_UNDO_PLUS_ONE },
    { .gguf = "stablelm", .arch = "StableLmForCausalLM" },
    { .gguf = "olmo2", .arch = "Olmo2ForCausalLM", .windowed_arch = "Olmo3ForCausalLM", .window_period = 4 },
    { .gguf = "exaone4", .arch = "Exaone4ForCausalLM", .window_period = 4 },
    { .gguf = "seed_oss", .arch = "SeedOssForCausalLM" },
    { .gguf = "hunyuan-dense", .arch = "HunYuanDenseV1ForCausalLM" },

    { .gguf = "qwen2moe", .arch = "Qwen2MoeForCausalLM",
      .experts = { .count = "num_experts", .active = "num_experts_per_tok",
                   .shared = "shared_expert_intermediate_size" } },
    { .gguf = "qwen3moe", .arch = "Qwen3MoeForCausalLM",
      .experts = { .count = "num_experts", .active = "num_experts_per_tok", .renormalized = true } },
    { .gguf = "olmoe", .arch = "OlmoeForCausalLM",
      .experts = { .count = "num_experts", .active = "num_experts_per_tok" },
      .fields = { [EXL2__IMPORT_KEY_CLAMP_QKV] = "clip_qkv" } },
    { .gguf = "dbrx", .arch = "DbrxForCausalLM",
      .experts = { .count = "moe_num_experts", .active = "num_experts_per_tok" },
      .fields = { [EXL2__IMPORT_KEY_CLAMP_QKV] = "clip_qkv" } },
    { .gguf = "granitemoe", .arch = "GraniteMoeForCausalLM", .shared_arch = "GraniteMoeSharedForCausalLM",
      .undo = EXL2__IMPORT_UNDO_PAIRS, .fields = EXL2__IMPORT_GRANITE_FIELDS,
      .experts = { .count = "num_local_experts", .active = "num_experts_per_tok",
                   .shared = "shared_intermediate_size" } },
    { .gguf = "gpt-oss", .arch = "GptOssForCausalLM",
      .experts = { .count = "num_local_experts", .active = "num_experts_per_tok" },
      .extra = "\"swiglu_limit\": 7.0", .yarn_exact = true },
    { .gguf = "ernie4_5-moe", .arch = "Ernie4_5_MoeForCausalLM",
      .experts = { .count = "moe_num_experts", .active = "moe_k",
                   .shared = "moe_num_shared_experts", .shared_multiple = true, .dense = "moe_layer_start_index" } },
    { .gguf = "glm4moe", .arch = "Glm4MoeForCausalLM", .experts = EXL2__IMPORT_DEEPSEEK_FIELDS },
    { .gguf = "dots1", .arch = "Dots1ForCausalLM", .experts = EXL2__IMPORT_DEEPSEEK_FIELDS },
    { .gguf = "exaone-moe", .arch = "ExaoneMoeForCausalLM", .window_period = 4,
      .experts = { .count = "num_experts", .active = "num_experts_per_tok",
                   .shared = "num_shared_experts", .shared_multiple = true, .dense = "first_k_dense_replace",
                   .renormalized = true } },
    { .gguf = "minimax-m2", .arch = "MiniMaxM2ForCausalLM",
      .experts = { .count = "num_local_experts", .active = "num_experts_per_tok" } },
};

/* The GGUF name of a tensor, without ".weight" and without "blk.<layer>.". NULL: GGUF has none. */
static inline const char *exl2__import_family_tensor(exl2__name name)
{
    static const char *const names[EXL2__NAME_COUNT] = {
        [EXL2__NAME_EMBED] = "token_embd", [EXL2__NAME_POSITIONS] = "position_embd",
        [EXL2__NAME_FINAL_NORM] = "output_norm", [EXL2__NAME_HEAD] = "output",
        [EXL2__NAME_ATTN_NORM] = "attn_norm", [EXL2__NAME_ATTN_POST_NORM] = "post_attention_norm",
        [EXL2__NAME_MLP_NORM] = "ffn_norm", [EXL2__NAME_MLP_POST_NORM] = "post_ffw_norm",
        [EXL2__NAME_Q_NORM] = "attn_q_norm", [EXL2__NAME_K_NORM] = "attn_k_norm",
        [EXL2__NAME_Q] = "attn_q", [EXL2__NAME_K] = "attn_k", [EXL2__NAME_V] = "attn_v",
        [EXL2__NAME_OUT] = "attn_output", [EXL2__NAME_GATE] = "ffn_gate", [EXL2__NAME_UP] = "ffn_up",
        [EXL2__NAME_DOWN] = "ffn_down", [EXL2__NAME_QKV] = "attn_qkv", [EXL2__NAME_SINKS] = "attn_sinks",
        [EXL2__NAME_ROUTER] = "ffn_gate_inp", [EXL2__NAME_CHOICE_BIAS] = "exp_probs_b",
        [EXL2__NAME_EXPERT_GATE] = "ffn_gate_exps", [EXL2__NAME_EXPERT_UP] = "ffn_up_exps",
        [EXL2__NAME_EXPERT_DOWN] = "ffn_down_exps", [EXL2__NAME_EXPERTS_GATE_UP] = "ffn_gate_up_exps",
        [EXL2__NAME_SHARED_GATE] = "ffn_gate_shexp", [EXL2__NAME_SHARED_UP] = "ffn_up_shexp",
        [EXL2__NAME_SHARED_DOWN] = "ffn_down_shexp", [EXL2__NAME_SHARED_SWITCH] = "ffn_gate_inp_shexp",
    };
    return names[name];
}

#endif
