/* arch_rows.h: the supported architectures, one row each.
   takes: nothing.
   gives: exl2__archs, exl2__arch_find, exl2__arch_find_type, exl2__arch_resolve.

   A model that differs from an existing row only in what a row can say needs a new row and nothing else. */
#ifndef EXL2__ARCH_ROWS_H
#define EXL2__ARCH_ROWS_H

#include "arch.h"

#define EXL2__RENAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define EXL2__NAMES(...) ((const exl2__arch_name[]){ __VA_ARGS__, { EXL2__NAME_EMBED, NULL } })
#define EXL2__DEFAULTS(...) ((const exl2__field_default[]){ __VA_ARGS__, { NULL, 0 } })

/* Names of the text model inside of a multimodal one, before and since transformers 5. */
#define EXL2__RENAME_WRAPPED "^language_model.", "", "^model.language_model.", "model."

/* The same names under transformers 5. */
#define EXL2__RENAME_MIXTRAL ".mlp.gate.", ".block_sparse_moe.gate.", ".mlp.experts.", ".block_sparse_moe.experts."

/* Names of the router and of experts in Mixtral's and in Qwen's style, of the shared expert in DeepSeek's. */
#define EXL2__NAMES_MIXTRAL \
    { EXL2__NAME_ROUTER, "block_sparse_moe.gate" }, { EXL2__NAME_EXPERT_GATE, "block_sparse_moe.experts.#.w1" }, \
    { EXL2__NAME_EXPERT_UP, "block_sparse_moe.experts.#.w3" }, \
    { EXL2__NAME_EXPERT_DOWN, "block_sparse_moe.experts.#.w2" }, \
    { EXL2__NAME_EXPERTS_GATE_UP, "block_sparse_moe.experts.gate_up_proj" }, \
    { EXL2__NAME_EXPERTS_DOWN, "block_sparse_moe.experts.down_proj" }
#define EXL2__NAMES_EXPERTS \
    { EXL2__NAME_ROUTER, "mlp.gate" }, { EXL2__NAME_EXPERT_GATE, "mlp.experts.#.gate_proj" }, \
    { EXL2__NAME_EXPERT_UP, "mlp.experts.#.up_proj" }, { EXL2__NAME_EXPERT_DOWN, "mlp.experts.#.down_proj" }, \
    { EXL2__NAME_EXPERTS_GATE_UP, "mlp.experts.gate_up_proj" }, { EXL2__NAME_EXPERTS_DOWN, "mlp.experts.down_proj" }
#define EXL2__NAMES_SHARED \
    { EXL2__NAME_SHARED_GATE, "mlp.shared_experts.gate_proj" }, \
    { EXL2__NAME_SHARED_UP, "mlp.shared_experts.up_proj" }, \
    { EXL2__NAME_SHARED_DOWN, "mlp.shared_experts.down_proj" }

static const exl2__arch_row exl2__archs[] = {
    { .name = "LlamaForCausalLM", .type = "llama", .family = "Llama",
      /* of old fused checkpoints; of models that were saved without their head */
      .renames = EXL2__RENAMES(".mlp.swiglu.w3.", ".mlp.down_proj.", "^layers.", "model.layers.", "^embed_tokens.",
                               "model.embed_tokens.", "^norm.", "model.norm."),
      .names = EXL2__NAMES({ EXL2__NAME_EMBED, "model.embed_tokens" }, { EXL2__NAME_FINAL_NORM, "model.norm" },
                           { EXL2__NAME_HEAD, "lm_head" }, { EXL2__NAME_ATTN_NORM, "input_layernorm" },
                           { EXL2__NAME_MLP_NORM, "post_attention_layernorm" },
                           { EXL2__NAME_Q_NORM, "self_attn.q_norm" }, { EXL2__NAME_K_NORM, "self_attn.k_norm" },
                           { EXL2__NAME_Q, "self_attn.q_proj" }, { EXL2__NAME_K, "self_attn.k_proj" },
                           { EXL2__NAME_V, "self_attn.v_proj" }, { EXL2__NAME_OUT, "self_attn.o_proj" },
                           { EXL2__NAME_GATE, "mlp.gate_proj" }, { EXL2__NAME_UP, "mlp.up_proj" },
                           { EXL2__NAME_DOWN, "mlp.down_proj" }, { EXL2__NAME_GATE_UP, "mlp.swiglu.w12" },
                           { EXL2__NAME_EPS, "rms_norm_eps" }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_RMS, [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_NONE,
                  [EXL2__TRAIT_ACT] = EXL2__ACT_SILU, [EXL2__TRAIT_GATED] = EXL2__YES,
                  [EXL2__TRAIT_PARALLEL] = EXL2__NO, [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_HALVES,
                  [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_NEVER, [EXL2__TRAIT_UNROTATED] = EXL2__UNROTATED_NONE,
                  [EXL2__TRAIT_LOCAL_ROPE] = EXL2__LOCAL_ROPE_SAME,
                  [EXL2__TRAIT_EMBED_SCALE] = EXL2__EMBED_SCALE_NONE, [EXL2__TRAIT_TIED] = EXL2__BY_CONFIG,
                  [EXL2__TRAIT_NEEDS_BOS] = EXL2__NO, [EXL2__TRAIT_QKV_ORDER] = EXL2__QKV_ORDER_BLOCKS,
                  [EXL2__TRAIT_TRANSPOSED] = EXL2__NO, [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_NONE,
                  [EXL2__TRAIT_RENORMALIZED] = EXL2__YES, [EXL2__TRAIT_EXPERTS_ORDER] = EXL2__EXPERTS_ROWS,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    /* ---- as Llama, with a window, biases or other names ---- */
    { .name = "MistralForCausalLM", .type = "mistral", .family = "Mistral", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 32 }, { "num_key_value_heads", 8 }, { "rms_norm_eps", 1e-6 },
                                 { "max_sequence_length", 131072 }, { "sliding_window", 4096 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_ALL, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "MinistralForCausalLM", .type = "ministral", .family = "Ministral", .like = "MistralForCausalLM" },
    { .name = "Ministral3ForCausalLM", .type = "ministral3", .family = "Ministral 3", .like = "MistralForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 32 }, { "num_key_value_heads", 8 }, { "head_dim", 128 },
                                 { "rms_norm_eps", 1e-5 }, { "rope_theta", 1e6 }, { "max_sequence_length", 262144 }) },
    { .name = "SmolVLMForConditionalGeneration", .type = "smolvlm", .family = "SmolVLM", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-6 }),
      .renames = EXL2__RENAMES("^model.text_model.", "model."), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Idefics3ForConditionalGeneration", .type = "idefics3", .family = "Idefics 3",
      .like = "SmolVLMForConditionalGeneration" },
    { .name = "LlavaForConditionalGeneration", .type = "llava", .family = "LLaVA", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "hidden_size", 4096 }, { "intermediate_size", 11008 }, { "num_hidden_layers", 32 },
                                 { "num_attention_heads", 32 }, { "rms_norm_eps", 1e-6 },
                                 { "max_sequence_length", 2048 }),
      .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "LlavaForConditionalGeneration", .type = "llava", .tower = "pixtral", .family = "Pixtral",
      .like = "MistralForCausalLM", .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Mistral3ForConditionalGeneration", .type = "mistral3", .family = "Mistral Small 3",
      .like = "MistralForCausalLM",
      .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "CwmForCausalLM", .type = "cwm", .family = "Code World Model", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "head_dim", 128 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 1e6 },
                                 { "sliding_window", 8192 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_BUT_FOURTH } },
    { .name = "YiForCausalLM", .type = "Yi", .family = "Yi", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES(".ln1.", ".input_layernorm.", ".ln2.", ".post_attention_layernorm.") },
    { .name = "InternLM2ForCausalLM", .type = "internlm2", .family = "InternLM 2", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES("^output.", "lm_head.", "^model.tok_embeddings.", "model.embed_tokens.", ".attention.",
                               ".self_attn.", ".wo.", ".o_proj."),
      .names = EXL2__NAMES({ EXL2__NAME_ATTN_NORM, "attention_norm" }, { EXL2__NAME_MLP_NORM, "ffn_norm" },
                           { EXL2__NAME_GATE, "feed_forward.w1" }, { EXL2__NAME_UP, "feed_forward.w3" },
                           { EXL2__NAME_DOWN, "feed_forward.w2" }, { EXL2__NAME_QKV, "self_attn.wqkv" }),
      .traits = { [EXL2__TRAIT_QKV_ORDER] = EXL2__QKV_ORDER_GROUPS, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "IndexForCausalLM", .type = "index", .family = "Index", .like = "LlamaForCausalLM",
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "SeedOssForCausalLM", .type = "seed_oss", .family = "Seed-OSS", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "head_dim", 128 }, { "num_key_value_heads", 8 }, { "rms_norm_eps", 1e-6 }) },
    { .name = "MiniCPMForCausalLM", .type = "minicpm", .family = "MiniCPM", .like = "LlamaForCausalLM",
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "GraniteForCausalLM", .type = "granite", .family = "Granite", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "attention_multiplier", 1 }, { "rms_norm_eps", 1e-6 }),
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Phi3ForCausalLM", .type = "phi3", .family = "Phi-3, Phi-4", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rope_scaling->original_max_position_embeddings", 4096 }, { "rms_norm_eps", 1e-5 }),
      .names = EXL2__NAMES({ EXL2__NAME_QKV, "self_attn.qkv_proj" }, { EXL2__NAME_GATE_UP, "mlp.gate_up_proj" }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_ALL, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "SmolLM3ForCausalLM", .type = "smollm3", .family = "SmolLM3", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 4 }, { "rms_norm_eps", 1e-6 }, { "rope_theta", 2e6 },
                                 { "max_sequence_length", 32768 }),
      .traits = { [EXL2__TRAIT_UNROTATED] = EXL2__UNROTATED_LISTED, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_UNROTATED,
                  [EXL2__TRAIT_TIED] = EXL2__YES, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "HeliumForCausalLM", .type = "helium", .family = "Helium", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "head_dim", 128 }, { "rms_norm_eps", 1e-8 }, { "rope_theta", 1e5 },
                                 { "max_sequence_length", 4096 }),
      .traits = { [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_PAIRS } },
    { .name = "Ernie4_5ForCausalLM", .type = "ernie4_5", .family = "Ernie 4.5", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 2 }, { "head_dim", 128 }, { "rms_norm_eps", 1e-5 },
                                 { "rope_theta", 500000 }, { "max_sequence_length", 131072 }),
      .traits = { [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_PAIRS, [EXL2__TRAIT_TIED] = EXL2__YES,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "ArceeForCausalLM", .type = "arcee", .family = "Arcee", .like = "LlamaForCausalLM",
      .traits = { [EXL2__TRAIT_GATED] = EXL2__NO, [EXL2__TRAIT_ACT] = EXL2__ACT_RELU_SQUARED,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "HunYuanDenseV1ForCausalLM", .type = "hunyuan_v1_dense", .family = "Hunyuan", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_Q_NORM, "self_attn.query_layernorm" },
                           { EXL2__NAME_K_NORM, "self_attn.key_layernorm" }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS_ROTATED, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    /* ---- Qwen ---- */
    { .name = "Qwen2ForCausalLM", .type = "qwen2", .family = "Qwen 2, Qwen 2.5", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "sliding_window", 4096 }, { "max_window_layers", 28 }, { "rms_norm_eps", 1e-6 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_UPPER, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Qwen2VLForConditionalGeneration", .type = "qwen2_vl", .family = "Qwen2-VL", .like = "Qwen2ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 64 }, { "num_key_value_heads", 8 }, { "rms_norm_eps", 1e-5 },
                                 { "rope_theta", 1e6 }, { "max_sequence_length", 32768 }, { "sliding_window", 4096 },
                                 { "max_window_layers", 80 }),
      .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Qwen2_5_VLForConditionalGeneration", .type = "qwen2_5_vl", .family = "Qwen2.5-VL",
      .like = "Qwen2VLForConditionalGeneration", .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Qwen3ForCausalLM", .type = "qwen3", .family = "Qwen 3", .like = "Qwen2ForCausalLM",
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    { .name = "Qwen3VLForConditionalGeneration", .type = "qwen3_vl", .family = "Qwen3-VL", .like = "Qwen3ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 32 }, { "num_key_value_heads", 32 }, { "head_dim", 128 },
                                 { "rms_norm_eps", 1e-6 }, { "rope_theta", 5e6 }, { "max_sequence_length", 128000 },
                                 { "sliding_window", 4096 }, { "max_window_layers", 28 }),
      .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED), .text_of_multimodal = true,
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    /* ---- norms after the blocks ---- */
    { .name = "GemmaForCausalLM", .type = "gemma", .family = "Gemma", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "head_dim", 256 }, { "rms_norm_eps", 1e-6 }, { "max_sequence_length", 8192 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_RMS_PLUS_ONE, [EXL2__TRAIT_ACT] = EXL2__ACT_GELU_TANH,
                  [EXL2__TRAIT_EMBED_SCALE] = EXL2__EMBED_SCALE_ROOT, [EXL2__TRAIT_TIED] = EXL2__YES,
                  [EXL2__TRAIT_NEEDS_BOS] = EXL2__YES, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Gemma2ForCausalLM", .type = "gemma2", .family = "Gemma 2", .like = "GemmaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 8 }, { "num_key_value_heads", 4 }, { "head_dim", 256 },
                                 { "rms_norm_eps", 1e-6 }, { "max_sequence_length", 8192 }, { "sliding_window", 4096 },
                                 { "query_pre_attn_scalar", 256 }, { "attn_logit_softcapping", 50 },
                                 { "final_logit_softcapping", 30 }),
      .names = EXL2__NAMES({ EXL2__NAME_ATTN_POST_NORM, "post_attention_layernorm" },
                           { EXL2__NAME_MLP_NORM, "pre_feedforward_layernorm" },
                           { EXL2__NAME_MLP_POST_NORM, "post_feedforward_layernorm" }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_EVEN, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Gemma3ForCausalLM", .type = "gemma3_text", .family = "Gemma 3", .like = "Gemma2ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_attention_heads", 8 }, { "num_key_value_heads", 4 }, { "head_dim", 256 },
                                 { "vocab_size", 262208 }, { "rms_norm_eps", 1e-6 }, { "rope_theta", 1e6 },
                                 { "max_sequence_length", 131072 }, { "sliding_window", 4096 },
                                 { "sliding_window_pattern", 6 }, { "query_pre_attn_scalar", 256 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_PATTERN, [EXL2__TRAIT_LOCAL_ROPE] = EXL2__LOCAL_ROPE_BASE,
                  [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Gemma3ForConditionalGeneration", .type = "gemma3", .family = "Gemma 3", .like = "Gemma3ForCausalLM",
      .renames = EXL2__RENAMES(EXL2__RENAME_WRAPPED, "mm_input_projection_weight", "mm_input_projection.weight"),
      .text_of_multimodal = true, .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Olmo2ForCausalLM", .type = "olmo2", .family = "OLMo 2", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-5 }),
      .names = EXL2__NAMES({ EXL2__NAME_ATTN_NORM, "" }, { EXL2__NAME_ATTN_POST_NORM, "post_attention_layernorm" },
                           { EXL2__NAME_MLP_NORM, "" }, { EXL2__NAME_MLP_POST_NORM, "post_feedforward_layernorm" }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_WHOLE, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Olmo3ForCausalLM", .type = "olmo3", .family = "OLMo 3", .like = "Olmo2ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-5 }, { "rope_theta", 500000 }, { "sliding_window", 4096 },
                                 { "sliding_window_pattern", 4 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_PATTERN, [EXL2__TRAIT_LOCAL_ROPE] = EXL2__LOCAL_ROPE_PLAIN } },
    { .name = "Exaone4ForCausalLM", .type = "exaone4", .family = "EXAONE 4", .like = "Olmo2ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-5 }, { "sliding_window", 4096 }, { "sliding_window_pattern", 4 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_PATTERN,
                  [EXL2__TRAIT_UNROTATED] = EXL2__UNROTATED_IF_WINDOW, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "GlmForCausalLM", .type = "glm", .family = "GLM-4 9B", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "partial_rotary_factor", 0.5 }, { "num_key_value_heads", 2 }, { "head_dim", 128 },
                                 { "rms_norm_eps", 1.5625e-7 }, { "max_sequence_length", 131072 }),
      .names = EXL2__NAMES({ EXL2__NAME_GATE_UP, "mlp.gate_up_proj" }),
      .traits = { [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_PAIRS } },
    { .name = "Glm4ForCausalLM", .type = "glm4", .family = "GLM-4", .like = "GlmForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_ATTN_POST_NORM, "post_self_attn_layernorm" },
                           { EXL2__NAME_MLP_POST_NORM, "post_mlp_layernorm" }),
      .traits = { [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    /* ---- LayerNorm ---- */
    { .name = "OrionForCausalLM", .type = "orion", .family = "Orion", .like = "LlamaForCausalLM",
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Starcoder2ForCausalLM", .type = "starcoder2", .family = "StarCoder 2", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_UP, "mlp.c_fc" }, { EXL2__NAME_DOWN, "mlp.c_proj" },
                           { EXL2__NAME_EPS, "norm_epsilon" }),
      .defaults = EXL2__DEFAULTS({ "norm_epsilon", 1e-5 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_ACT] = EXL2__ACT_GELU_TANH,
                  [EXL2__TRAIT_GATED] = EXL2__NO, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_ALL,
                  [EXL2__TRAIT_TIED] = EXL2__YES, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "NemotronForCausalLM", .type = "nemotron", .family = "Nemotron", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_EPS, "norm_eps" }),
      .defaults = EXL2__DEFAULTS({ "norm_eps", 1e-5 }, { "partial_rotary_factor", 0.5 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER_PLUS_ONE, [EXL2__TRAIT_ACT] = EXL2__ACT_RELU_SQUARED,
                  [EXL2__TRAIT_GATED] = EXL2__NO } },
    { .name = "StableLmForCausalLM", .type = "stablelm", .family = "StableLM", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_EPS, "layer_norm_eps" }),
      .defaults = EXL2__DEFAULTS({ "layer_norm_eps", 1e-5 }, { "partial_rotary_factor", 0.25 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_PARALLEL] = EXL2__BY_CONFIG } },
    { .name = "PhiForCausalLM", .type = "phi", .family = "Phi-1, Phi-2", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_OUT, "self_attn.dense" }, { EXL2__NAME_UP, "mlp.fc1" },
                           { EXL2__NAME_DOWN, "mlp.fc2" }, { EXL2__NAME_FINAL_NORM, "model.final_layernorm" },
                           { EXL2__NAME_EPS, "layer_norm_eps" }),
      .defaults = EXL2__DEFAULTS({ "layer_norm_eps", 1e-5 }, { "partial_rotary_factor", 0.5 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_PARALLEL] = EXL2__YES,
                  [EXL2__TRAIT_ACT] = EXL2__ACT_GELU_TANH, [EXL2__TRAIT_GATED] = EXL2__NO,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "CohereForCausalLM", .type = "cohere", .family = "Command R", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_EPS, "layer_norm_eps" }),
      .defaults = EXL2__DEFAULTS({ "layer_norm_eps", 1e-5 }, { "logit_scale", 0.0625 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_PARALLEL] = EXL2__YES,
                  [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_BY_CONFIG, [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_PAIRS,
                  [EXL2__TRAIT_TIED] = EXL2__YES, [EXL2__TRAIT_NEEDS_BOS] = EXL2__YES,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Cohere2ForCausalLM", .type = "cohere2", .family = "Command R7B, Command A", .like = "CohereForCausalLM",
      .defaults = EXL2__DEFAULTS({ "layer_norm_eps", 1e-5 }, { "logit_scale", 0.0625 }, { "sliding_window", 4096 },
                                 { "sliding_window_pattern", 4 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_NONE, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_PATTERN,
                  [EXL2__TRAIT_UNROTATED] = EXL2__UNROTATED_FULL } },

    /* ---- learned positions ---- */
    { .name = "GPT2LMHeadModel", .type = "gpt2", .family = "GPT-2", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES("^transformer.", "", "^ln_f.", "model.norm.", ".attn.c_proj.", ".self_attn.o_proj.",
                               ".attn.", ".self_attn.", "^h.", "model.layers.", "^wte.", "model.embed_tokens.",
                               "^wpe.", "model.wpe."),
      .names = EXL2__NAMES({ EXL2__NAME_POSITIONS, "model.wpe" }, { EXL2__NAME_ATTN_NORM, "ln_1" },
                           { EXL2__NAME_MLP_NORM, "ln_2" }, { EXL2__NAME_UP, "mlp.c_fc" },
                           { EXL2__NAME_DOWN, "mlp.c_proj" }, { EXL2__NAME_QKV, "self_attn.c_attn" },
                           { EXL2__NAME_EPS, "layer_norm_epsilon" }),
      .defaults = EXL2__DEFAULTS({ "layer_norm_epsilon", 1e-5 }, { "max_sequence_length", 1024 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_ACT] = EXL2__ACT_GELU_TANH,
                  [EXL2__TRAIT_GATED] = EXL2__NO, [EXL2__TRAIT_POSITIONS] = EXL2__POSITIONS_LEARNED,
                  [EXL2__TRAIT_TIED] = EXL2__YES, [EXL2__TRAIT_TRANSPOSED] = EXL2__YES } },
    { .name = "GPTBigCodeForCausalLM", .type = "gpt_bigcode", .family = "StarCoder, SantaCoder, Granite Code",
      .like = "GPT2LMHeadModel",
      .renames = EXL2__RENAMES("transformer.ln_f", "model.norm", "transformer.", "model.", ".attn.c_proj.",
                               ".self_attn.o_proj.", ".attn.", ".self_attn.", ".h.", ".layers.", ".wte.",
                               ".embed_tokens."),
      .defaults = EXL2__DEFAULTS({ "layer_norm_epsilon", 1e-5 }, { "max_sequence_length", 1024 },
                                 { "num_key_value_heads", 1 }),
      .traits = { [EXL2__TRAIT_TRANSPOSED] = EXL2__NO, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },

    /* ---- experts ---- */
#ifdef EXL2_NO_MOE /* such a build rejects these models, and needs only their names and their routing */
#undef EXL2__RENAMES
#undef EXL2__NAMES
#undef EXL2__DEFAULTS
#define EXL2__RENAMES(...) NULL
#define EXL2__NAMES(...) NULL
#define EXL2__DEFAULTS(...) NULL
#endif
    { .name = "MixtralForCausalLM", .type = "mixtral", .family = "Mixtral", .like = "MistralForCausalLM",
      .renames = EXL2__RENAMES(EXL2__RENAME_MIXTRAL), .names = EXL2__NAMES(EXL2__NAMES_MIXTRAL),
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 8 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 1e6 },
                                 { "max_sequence_length", 131072 }, { "num_local_experts", 8 },
                                 { "num_experts_per_tok", 2 }),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "GemmoeForCausalLM", .type = "gemmoe", .family = "GemMoE", .like = "GemmaForCausalLM",
      .renames = EXL2__RENAMES(EXL2__RENAME_MIXTRAL), .names = EXL2__NAMES(EXL2__NAMES_MIXTRAL),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX } },
    { .name = "Qwen2MoeForCausalLM", .type = "qwen2_moe", .family = "Qwen 1.5, Qwen 2 MoE", .like = "Qwen2ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "sliding_window", 4096 }, { "max_window_layers", 28 }, { "rms_norm_eps", 1e-6 },
                                 { "max_sequence_length", 32768 }, { "num_local_experts", 60 },
                                 { "num_experts_per_tok", 4 }, { "moe_intermediate_size", 1408 },
                                 { "shared_expert_intermediate_size", 5632 }),
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS, { EXL2__NAME_SHARED_GATE, "mlp.shared_expert.gate_proj" },
                           { EXL2__NAME_SHARED_UP, "mlp.shared_expert.up_proj" },
                           { EXL2__NAME_SHARED_DOWN, "mlp.shared_expert.down_proj" },
                           { EXL2__NAME_SHARED_SWITCH, "mlp.shared_expert_gate" }),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX, [EXL2__TRAIT_RENORMALIZED] = EXL2__BY_CONFIG,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Qwen3MoeForCausalLM", .type = "qwen3_moe", .family = "Qwen 3 MoE", .like = "Qwen3ForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 4 }, { "sliding_window", 4096 }, { "rms_norm_eps", 1e-6 },
                                 { "max_sequence_length", 32768 }, { "num_local_experts", 128 },
                                 { "num_experts_per_tok", 8 }, { "moe_intermediate_size", 768 }),
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX, [EXL2__TRAIT_RENORMALIZED] = EXL2__BY_CONFIG,
                  [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_SWITCHED, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "OlmoeForCausalLM", .type = "olmoe", .family = "OLMoE", .like = "LlamaForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-5 }, { "max_sequence_length", 4096 }, { "num_local_experts", 64 },
                                 { "num_experts_per_tok", 8 }),
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_WHOLE, [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX,
                  [EXL2__TRAIT_RENORMALIZED] = EXL2__BY_CONFIG, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "DbrxForCausalLM", .type = "dbrx", .family = "DBRX", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES("^transformer.", "model.", ".blocks.", ".layers.", ".ffn.experts.mlp.",
                               ".block_sparse_moe.experts.", ".ffn.router.layer.", ".block_sparse_moe.gate.",
                               ".norm_attn_norm.norm_1.", ".input_layernorm.", ".norm_attn_norm.norm_2.",
                               ".post_attention_layernorm.", ".norm_attn_norm.attn.", ".self_attn.", ".out_proj.",
                               ".o_proj.", ".norm_f.", ".norm.", ".wte.", ".embed_tokens."),
      .names = EXL2__NAMES({ EXL2__NAME_QKV, "self_attn.Wqkv" }, { EXL2__NAME_ROUTER, "block_sparse_moe.gate" },
                           { EXL2__NAME_EXPERT_GATE, "block_sparse_moe.experts.#.w1" },
                           { EXL2__NAME_EXPERT_UP, "block_sparse_moe.experts.#.v1" },
                           { EXL2__NAME_EXPERT_DOWN, "block_sparse_moe.experts.#.w2" },
                           { EXL2__NAME_EXPERTS_GATE, "block_sparse_moe.experts.w1" },
                           { EXL2__NAME_EXPERTS_UP, "block_sparse_moe.experts.v1" },
                           { EXL2__NAME_EXPERTS_DOWN, "block_sparse_moe.experts.w2" },
                           { EXL2__NAME_EPS, "layer_norm_eps" }),
      .defaults = EXL2__DEFAULTS({ "layer_norm_eps", 1e-5 }, { "num_key_value_heads", 1 }, { "num_local_experts", 4 },
                                 { "num_experts_per_tok", 1 }),
      .traits = { [EXL2__TRAIT_NORM] = EXL2__NORM_LAYER, [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX,
                  [EXL2__TRAIT_EXPERTS_ORDER] = EXL2__EXPERTS_DOWN_TRANSPOSED, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "GraniteMoeForCausalLM", .type = "granitemoe", .family = "Granite MoE", .like = "GraniteForCausalLM",
      .defaults = EXL2__DEFAULTS({ "attention_multiplier", 1 }, { "rms_norm_eps", 1e-6 }, { "num_local_experts", 8 },
                                 { "num_experts_per_tok", 2 }),
      .renames = EXL2__RENAMES(".router.weight", ".router.layer.weight", ".experts.gate_up_proj", ".input_linear",
                               ".experts.down_proj", ".output_linear"),
      .names = EXL2__NAMES({ EXL2__NAME_ROUTER, "block_sparse_moe.router.layer" },
                           { EXL2__NAME_EXPERT_GATE, "block_sparse_moe.experts.#.gate_proj" },
                           { EXL2__NAME_EXPERT_UP, "block_sparse_moe.experts.#.up_proj" },
                           { EXL2__NAME_EXPERT_DOWN, "block_sparse_moe.experts.#.down_proj" },
                           { EXL2__NAME_EXPERTS_GATE_UP, "block_sparse_moe.input_linear" },
                           { EXL2__NAME_EXPERTS_DOWN, "block_sparse_moe.output_linear" }),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX } },
    { .name = "GraniteMoeSharedForCausalLM", .type = "granitemoeshared", .family = "Granite MoE",
      .like = "GraniteMoeForCausalLM",
      .names = EXL2__NAMES({ EXL2__NAME_SHARED_GATE, "shared_mlp.gate_proj" },
                           { EXL2__NAME_SHARED_UP, "shared_mlp.up_proj" },
                           { EXL2__NAME_SHARED_GATE_UP, "shared_mlp.input_linear" },
                           { EXL2__NAME_SHARED_DOWN, "shared_mlp.output_linear" }) },
    { .name = "GptOssForCausalLM", .type = "gpt_oss", .family = "GPT-OSS", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES(".mlp.router.", ".mlp.gate."),
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS, { EXL2__NAME_SINKS, "self_attn.sinks" }),
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 8 }, { "head_dim", 64 }, { "rms_norm_eps", 1e-5 },
                                 { "rope_theta", 150000 }, { "max_sequence_length", 131072 }, { "sliding_window", 128 },
                                 { "num_local_experts", 128 }, { "num_experts_per_tok", 4 }),
      .traits = { [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_EVEN, [EXL2__TRAIT_ACT] = EXL2__ACT_CLAMPED,
                  [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX, [EXL2__TRAIT_EXPERTS_ORDER] = EXL2__EXPERTS_COLUMNS,
                  [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "Ernie4_5_MoeForCausalLM", .type = "ernie4_5_moe", .family = "Ernie 4.5 MoE",
      .like = "Ernie4_5ForCausalLM", .renames = EXL2__RENAMES(".mlp.gate.moe_statics.", ".mlp.moe_statics."),
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS, EXL2__NAMES_SHARED,
                           { EXL2__NAME_CHOICE_BIAS, "mlp.moe_statics.e_score_correction_bias" }),
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 4 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 500000 },
                                 { "max_sequence_length", 131072 }, { "num_local_experts", 64 },
                                 { "num_experts_per_tok", 6 }, { "moe_intermediate_size", 1536 },
                                 { "n_shared_experts", 2 }, { "first_k_dense_replace", 1 }),
      .traits = { [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SOFTMAX } },
    { .name = "Glm4MoeForCausalLM", .type = "glm4_moe", .family = "GLM-4.5, GLM-4.6", .like = "LlamaForCausalLM",
      .names = EXL2__NAMES(EXL2__NAMES_EXPERTS, EXL2__NAMES_SHARED,
                           { EXL2__NAME_CHOICE_BIAS, "mlp.gate.e_score_correction_bias" }),
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 8 }, { "partial_rotary_factor", 0.5 },
                                 { "rms_norm_eps", 1e-5 }, { "max_sequence_length", 131072 },
                                 { "num_local_experts", 128 }, { "num_experts_per_tok", 8 },
                                 { "moe_intermediate_size", 1408 }, { "n_shared_experts", 1 },
                                 { "first_k_dense_replace", 1 }, { "norm_topk_prob", 1 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_BY_CONFIG, [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SIGMOID,
                  [EXL2__TRAIT_RENORMALIZED] = EXL2__BY_CONFIG, [EXL2__TRAIT_GOLDEN] = EXL2__YES } },
    { .name = "SolarOpenForCausalLM", .type = "solar_open", .family = "Solar Open", .like = "Glm4MoeForCausalLM",
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 8 }, { "head_dim", 128 }, { "rms_norm_eps", 1e-5 },
                                 { "rope_theta", 1e6 }, { "max_sequence_length", 131072 }, { "num_local_experts", 128 },
                                 { "num_experts_per_tok", 8 }, { "moe_intermediate_size", 1280 },
                                 { "n_shared_experts", 1 }, { "norm_topk_prob", 1 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_NONE } },
    { .name = "Dots1ForCausalLM", .type = "dots1", .family = "dots.llm1", .like = "Glm4MoeForCausalLM",
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-6 }, { "sliding_window", 4096 }, { "max_window_layers", 62 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_ABOVE } },
    { .name = "ExaoneMoeForCausalLM", .type = "exaone_moe", .family = "K-EXAONE", .like = "Glm4MoeForCausalLM",
      .renames = EXL2__RENAMES(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
      .defaults = EXL2__DEFAULTS({ "rms_norm_eps", 1e-5 }, { "sliding_window", 4096 }, { "sliding_window_pattern", 4 },
                                 { "num_local_experts", 64 }, { "num_experts_per_tok", 8 },
                                 { "moe_intermediate_size", 1024 }, { "n_shared_experts", 1 },
                                 { "routed_scaling_factor", 2.5 }, { "norm_topk_prob", 1 },
                                 { "first_k_dense_replace", 1 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_HEADS, [EXL2__TRAIT_WINDOW] = EXL2__WINDOW_PATTERN,
                  [EXL2__TRAIT_UNROTATED] = EXL2__UNROTATED_IF_WINDOW } },
    { .name = "MiniMaxM2ForCausalLM", .type = "minimax_m2", .family = "MiniMax M2", .like = "LlamaForCausalLM",
      .renames = EXL2__RENAMES(EXL2__RENAME_MIXTRAL, ".mlp.e_score_", ".block_sparse_moe.e_score_"),
      .names = EXL2__NAMES(EXL2__NAMES_MIXTRAL, { EXL2__NAME_CHOICE_BIAS, "block_sparse_moe.e_score_correction_bias" }),
      .defaults = EXL2__DEFAULTS({ "num_key_value_heads", 8 }, { "head_dim", 128 }, { "rms_norm_eps", 1e-6 },
                                 { "rope_theta", 5e6 }, { "max_sequence_length", 196608 }, { "num_local_experts", 256 },
                                 { "num_experts_per_tok", 8 }),
      .traits = { [EXL2__TRAIT_QK_NORM] = EXL2__QK_NORM_WHOLE, [EXL2__TRAIT_ROUTING] = EXL2__ROUTING_SIGMOID } },
};

/* The row with this string of `architectures`, or NULL. */
static inline const exl2__arch_row *exl2__arch_find(const char *name)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__archs); i++) {
        if (strcmp(exl2__archs[i].name, name) == 0) {
            return &exl2__archs[i];
        }
    }
    return NULL;
}

/* The first row with this string of `model_type`, or NULL. */
static inline const exl2__arch_row *exl2__arch_find_type(const char *type)
{
    for (size_t i = 0; i < EXL2__COUNT(exl2__archs); i++) {
        if (strcmp(exl2__archs[i].type, type) == 0) {
            return &exl2__archs[i];
        }
    }
    return NULL;
}

/* The row of a model that was saved without its head, such as Qwen3Model or Gemma3TextModel of Qwen3ForCausalLM and
   Gemma3ForCausalLM; or NULL. The type alone does not say it: encoders that were made of such a model keep it. */
static inline const exl2__arch_row *exl2__arch_find_base(const char *name, const char *type)
{
    const exl2__arch_row *row = exl2__arch_find_type(type);
    const char *end = row ? strstr(row->name, "ForCausalLM") : NULL;
    end = row && !end ? strstr(row->name, "LMHeadModel") : end;
    size_t stem = end ? (size_t)(end - row->name) : 0;
    bool same = end && !row->text_of_multimodal && strncmp(row->name, name, stem) == 0;
    return same && (strcmp(name + stem, "Model") == 0 || strcmp(name + stem, "TextModel") == 0) ? row : NULL;
}

/* *out: the row, with what it inherits. Only EXL2__TRAIT_GOLDEN, `text_of_multimodal`, names and renames of the row
   itself tell about this row alone; renames and defaults are inherited as a whole if the row has none. */
static inline void exl2__arch_resolve(const exl2__arch_row *row, exl2__arch *out)
{
    *out = (exl2__arch){ .name = row->name, .type = row->type, .family = row->family };
    for (const exl2__arch_row *base = row; base; base = base->like ? exl2__arch_find(base->like) : NULL) {
        out->renames = out->renames ? out->renames : base->renames;
        out->text_of_multimodal = out->text_of_multimodal || base->text_of_multimodal;
        out->defaults = out->defaults ? out->defaults : base->defaults;
        for (const exl2__arch_name *n = base->names; n && n->text; n++) {
            out->names[n->name] = out->names[n->name] ? out->names[n->name] : n->text;
        }
        for (uint32_t i = 0; i < EXL2__TRAIT_COUNT; i++) {
            bool inherited = base == row || i != EXL2__TRAIT_GOLDEN;
            out->traits[i] = out->traits[i] || !inherited ? out->traits[i] : base->traits[i];
        }
    }
    for (uint32_t i = 0; i < EXL2__NAME_COUNT; i++) {
        out->names[i] = out->names[i] ? out->names[i] : "";
    }
}

#endif
