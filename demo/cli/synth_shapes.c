/* synth_shapes.c: see synth_shapes.h.
   takes: nothing.
   gives: what synth_shapes.h declares. */
#include "synth_shapes.h"

#include <stddef.h>
#include <string.h>

/* ---- families ---- */

#define NORMS_LLAMA { "input_layernorm", "post_attention_layernorm" }
#define NORMS_GEMMA \
    { "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm" }
#define MLP_LLAMA .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define MLP_EXPERTS \
    .gate = "mlp.experts.#.gate_proj", .up = "mlp.experts.#.up_proj", .down = "mlp.experts.#.down_proj"
#define CONFIG_GEMMA "\"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 256, "
#define FAMILY_GEMMA3(window, more) \
    { "Gemma3ForCausalLM", "gemma3_text", "gelu_pytorch_tanh", \
      CONFIG_GEMMA "\"sliding_window\": " #window ", \"sliding_window_pattern\": 6, " \
      "\"rope_local_base_freq\": 10000.0" more, \
      .norms = NORMS_GEMMA, MLP_LLAMA, .qk_norm = SYNTH_QK_HEADS, .tied = true }

static const synth_family llama = { "LlamaForCausalLM", "llama", "silu", .norms = NORMS_LLAMA, MLP_LLAMA };

static const synth_family mistral = { "MistralForCausalLM", "mistral", "silu", "\"sliding_window\": 4096",
                                      .norms = NORMS_LLAMA, MLP_LLAMA };

static const synth_family qwen3 = { "Qwen3ForCausalLM", "qwen3", "silu", "\"use_sliding_window\": false",
                                    .norms = NORMS_LLAMA, MLP_LLAMA, .qk_norm = SYNTH_QK_HEADS };

static const synth_family gemma2 = { "Gemma2ForCausalLM", "gemma2", "gelu_pytorch_tanh",
                                     CONFIG_GEMMA "\"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, "
                                     "\"final_logit_softcapping\": 30.0",
                                     .norms = NORMS_GEMMA, MLP_LLAMA, .tied = true };

static const synth_family gemma3 = FAMILY_GEMMA3(512, "");

static const synth_family cohere2 = { "Cohere2ForCausalLM", "cohere2", "silu",
                                      "\"layer_norm_eps\": 1e-05, \"logit_scale\": 0.25, \"sliding_window\": 4096, "
                                      "\"sliding_window_pattern\": 4",
                                      .norms = { "input_layernorm" }, MLP_LLAMA, .tied = true };

static const synth_family starcoder2 = { "Starcoder2ForCausalLM", "starcoder2", "gelu_pytorch_tanh",
                                         "\"norm_epsilon\": 1e-05, \"use_bias\": true, \"sliding_window\": 4096",
                                         .norms = NORMS_LLAMA, .up = "mlp.c_fc", .down = "mlp.c_proj",
                                         .norm_biases = true, .attention_biases = true, .mlp_biases = true,
                                         .tied = true };

static const synth_family olmoe = { "OlmoeForCausalLM", "olmoe", "silu", "\"norm_topk_prob\": false",
                                    .norms = NORMS_LLAMA, MLP_EXPERTS, .router = "mlp.gate",
                                    .experts_key = "num_experts", .qk_norm = SYNTH_QK_WHOLE };

static const synth_family qwen3_moe = { "Qwen3MoeForCausalLM", "qwen3_moe", "silu",
                                        "\"moe_intermediate_size\": 768, \"norm_topk_prob\": true, "
                                        "\"decoder_sparse_step\": 1, \"use_sliding_window\": false",
                                        .norms = NORMS_LLAMA, MLP_EXPERTS, .router = "mlp.gate",
                                        .experts_key = "num_experts", .qk_norm = SYNTH_QK_HEADS };

static const synth_family mixtral = { "MixtralForCausalLM", "mixtral", "silu", "\"sliding_window\": null",
                                      .norms = NORMS_LLAMA, .gate = "block_sparse_moe.experts.#.w1",
                                      .up = "block_sparse_moe.experts.#.w3",
                                      .down = "block_sparse_moe.experts.#.w2", .router = "block_sparse_moe.gate",
                                      .experts_key = "num_local_experts" };

static const synth_family gpt_oss = { "GptOssForCausalLM", "gpt_oss", "silu",
                                      "\"attention_bias\": true, \"sliding_window\": 128, \"swiglu_limit\": 7.0, "
                                      "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, "
                                      "\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"truncate\": false, "
                                      "\"original_max_position_embeddings\": 4096}",
                                      .norms = NORMS_LLAMA, MLP_EXPERTS, .router = "mlp.router",
                                      .experts_key = "num_local_experts", .attention_biases = true,
                                      .mlp_biases = true, .sinks = true };

static const synth_family qwen2 = { "Qwen2ForCausalLM", "qwen2", "silu",
                                    "\"use_sliding_window\": false, "
                                    "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}",
                                    .norms = NORMS_LLAMA, MLP_LLAMA, .qkv_biases = true, .tied = true };

static const synth_family gemma3_large =
    FAMILY_GEMMA3(1024, ", \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}");

static const synth_family nemo = { "MistralForCausalLM", "mistral", "silu", "\"sliding_window\": null",
                                   .norms = NORMS_LLAMA, MLP_LLAMA };

/* ---- towers ---- */

#define MATRIX(name, rows, columns) { name, rows, columns, false, false, false }
#define MATRIX_BIAS(name, rows, columns) { name, rows, columns, false, true, false }
#define NORM(name) { name, 'w', 0, true, false, false }
#define NORM_BIAS(name) { name, 'w', 0, true, true, false }
#define PARTS_END { NULL, 0, 0, false, false, false }

#define SIGLIP(tower, name) tower "encoder.layers.#." name
#define PARTS_SIGLIP(tower) \
    MATRIX_BIAS(tower "embeddings.patch_embedding", 'w', 'p'), \
    MATRIX(tower "embeddings.position_embedding", 'n', 'w'), \
    NORM_BIAS(SIGLIP(tower, "layer_norm1")), MATRIX_BIAS(SIGLIP(tower, "self_attn.q_proj"), 'w', 'w'), \
    MATRIX_BIAS(SIGLIP(tower, "self_attn.k_proj"), 'w', 'w'), \
    MATRIX_BIAS(SIGLIP(tower, "self_attn.v_proj"), 'w', 'w'), \
    MATRIX_BIAS(SIGLIP(tower, "self_attn.out_proj"), 'w', 'w'), NORM_BIAS(SIGLIP(tower, "layer_norm2")), \
    MATRIX_BIAS(SIGLIP(tower, "mlp.fc1"), 'i', 'w'), MATRIX_BIAS(SIGLIP(tower, "mlp.fc2"), 'w', 'i'), \
    NORM_BIAS(tower "post_layernorm")

static const synth_part parts_smolvlm[] = {
    PARTS_SIGLIP("model.vision_model."), MATRIX("model.connector.modality_projection.proj", 'h', 'm'), PARTS_END
};

static const synth_part parts_gemma3[] = {
    PARTS_SIGLIP("vision_tower.vision_model."),
    MATRIX("multi_modal_projector.mm_soft_emb_norm", 'w', 0), /* the factor is 1 + weight */
    { "multi_modal_projector.mm_input_projection_weight", 'w', 'h', false, false, true }, PARTS_END
};

#define PIXTRAL(name) "vision_tower.transformer.layers.#." name
static const synth_part parts_pixtral[] = {
    MATRIX("vision_tower.patch_conv", 'w', 'p'), NORM("vision_tower.ln_pre"), NORM(PIXTRAL("attention_norm")),
    MATRIX(PIXTRAL("attention.q_proj"), 'w', 'w'), MATRIX(PIXTRAL("attention.k_proj"), 'w', 'w'),
    MATRIX(PIXTRAL("attention.v_proj"), 'w', 'w'), MATRIX(PIXTRAL("attention.o_proj"), 'w', 'w'),
    NORM(PIXTRAL("ffn_norm")), MATRIX(PIXTRAL("feed_forward.gate_proj"), 'i', 'w'),
    MATRIX(PIXTRAL("feed_forward.up_proj"), 'i', 'w'), MATRIX(PIXTRAL("feed_forward.down_proj"), 'w', 'i'),
    MATRIX_BIAS("multi_modal_projector.linear_1", 'h', 'w'), MATRIX_BIAS("multi_modal_projector.linear_2", 'h', 'h'),
    PARTS_END
};

#define QWEN(name) "visual.blocks.#." name
static const synth_part parts_qwen2_5_vl[] = {
    MATRIX("visual.patch_embed.proj", 'w', 'p'), NORM(QWEN("norm1")), MATRIX_BIAS(QWEN("attn.qkv"), '3', 'w'),
    MATRIX_BIAS(QWEN("attn.proj"), 'w', 'w'), NORM(QWEN("norm2")), MATRIX_BIAS(QWEN("mlp.gate_proj"), 'i', 'w'),
    MATRIX_BIAS(QWEN("mlp.up_proj"), 'i', 'w'), MATRIX_BIAS(QWEN("mlp.down_proj"), 'w', 'i'),
    NORM("visual.merger.ln_q"), MATRIX_BIAS("visual.merger.mlp.0", 'm', 'm'),
    MATRIX_BIAS("visual.merger.mlp.2", 'h', 'm'), PARTS_END
};

/* The members of a vision_config that most towers have. */
#define TOWER(type, width, inter, layers, heads) \
    "\"vision_config\": {\"model_type\": \"" type "\", \"hidden_size\": " #width ", " \
    "\"intermediate_size\": " #inter ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", "
#define TOWER_SIGLIP(type, width, inter, layers, heads, side, patch) \
    TOWER(type, width, inter, layers, heads) "\"image_size\": " #side ", \"patch_size\": " #patch ", " \
    "\"hidden_act\": \"gelu_pytorch_tanh\", \"layer_norm_eps\": 1e-06}"

static const synth_tower tower_smolvlm = {
    "SmolVLMForConditionalGeneration", "smolvlm",
    "\"image_token_id\": 49190, \"scale_factor\": 4, "
    TOWER_SIGLIP("smolvlm_vision", 768, 3072, 12, 12, 512, 16),
    "{\"size\": {\"longest_edge\": 2048}, \"max_image_size\": {\"longest_edge\": 512}}",
    "model.text_model.", "lm_head", false, parts_smolvlm, 768, 3072, 12, 16, 1, 4, 1024 };

static const synth_tower tower_gemma3 = {
    "Gemma3ForConditionalGeneration", "gemma3",
    "\"boi_token_index\": 255999, \"eoi_token_index\": 256000, \"image_token_index\": 262144, "
    "\"mm_tokens_per_image\": 256, " TOWER_SIGLIP("siglip_vision_model", 1152, 4304, 27, 16, 896, 14),
    "{\"size\": {\"height\": 896, \"width\": 896}}",
    "language_model.model.", "language_model.lm_head", false, parts_gemma3, 1152, 4304, 27, 14, 1, 1, 4096 };

static const synth_tower tower_pixtral = {
    "LlavaForConditionalGeneration", "llava",
    "\"image_token_index\": 10, \"projector_hidden_act\": \"gelu\", \"vision_feature_layer\": -1, "
    "\"vision_feature_select_strategy\": \"full\", \"multimodal_projector_bias\": true, "
    TOWER("pixtral", 1024, 4096, 24, 16)
    "\"head_dim\": 64, \"image_size\": 1024, \"patch_size\": 16, \"hidden_act\": \"silu\", \"rope_theta\": 10000.0}",
    "{\"size\": {\"longest_edge\": 1024}}",
    "language_model.model.", "language_model.lm_head", false, parts_pixtral, 1024, 4096, 24, 16, 1, 1, 0 };

static const synth_tower tower_qwen2_5_vl = {
    "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl",
    "\"image_token_id\": 151655, \"vision_config\": {\"model_type\": \"qwen2_5_vl\", \"depth\": 32, "
    "\"hidden_size\": 1280, \"out_hidden_size\": 2048, \"hidden_act\": \"silu\", \"intermediate_size\": 3420, "
    "\"num_heads\": 16, \"patch_size\": 14, \"spatial_merge_size\": 2, \"temporal_patch_size\": 2, "
    "\"window_size\": 112, \"fullatt_block_indexes\": [7, 15, 23, 31], \"tokens_per_second\": 2}",
    "{\"min_pixels\": 3136, \"max_pixels\": 12845056}",
    "model.", "lm_head", true, parts_qwen2_5_vl, 1280, 3420, 32, 14, 2, 2, 0 };

uint32_t synth_tower_size(const synth_shape *s, char letter)
{
    const synth_tower *t = s->tower;
    switch (letter) {
    case 'w': return t->width;
    case '3': return 3 * t->width;
    case 'i': return t->inter;
    case 'p': return 3 * t->frames * t->patch * t->patch;
    case 'n': return t->places;
    case 'm': return t->width * t->merge * t->merge;
    case 'h': return s->hidden;
    default: return 0;
    }
}

/* ---- shapes ---- */

static const synth_shape shapes[] = {
    { "smollm2-135m", &llama, 576, 1536, 30, 9, 3, 64, 49152, 100000, 0, 0, NULL },
    { "tinyllama-1.1b", &llama, 2048, 5632, 22, 32, 4, 64, 32000, 10000, 0, 0, NULL },
    { "llama3.2-3b", &llama, 3072, 8192, 28, 24, 8, 128, 128256, 500000, 0, 0, NULL },
    { "llama2-7b", &llama, 4096, 11008, 32, 32, 32, 128, 32000, 10000, 0, 0, NULL },
    { "llama3-8b", &llama, 4096, 14336, 32, 32, 8, 128, 128256, 500000, 0, 0, NULL },
    { "llama2-13b", &llama, 5120, 13824, 40, 40, 40, 128, 32000, 10000, 0, 0, NULL },
    { "llama2-70b", &llama, 8192, 28672, 80, 64, 8, 128, 32000, 10000, 0, 0, NULL },
    { "mistral-7b", &mistral, 4096, 14336, 32, 32, 8, 128, 32000, 10000, 0, 0, NULL },
    { "qwen3-8b", &qwen3, 4096, 12288, 36, 32, 8, 128, 151936, 1000000, 0, 0, NULL },
    { "gemma2-9b", &gemma2, 3584, 14336, 42, 16, 8, 256, 256000, 10000, 0, 0, NULL },
    { "gemma3-1b", &gemma3, 1152, 6912, 26, 4, 1, 256, 262144, 1000000, 0, 0, NULL },
    { "command-r7b", &cohere2, 4096, 14336, 32, 32, 8, 128, 256000, 50000, 0, 0, NULL },
    { "starcoder2-3b", &starcoder2, 3072, 12288, 30, 24, 2, 128, 49152, 1000000, 0, 0, NULL },
    { "olmoe-1b-7b", &olmoe, 2048, 1024, 16, 16, 16, 128, 50304, 10000, 64, 8, NULL },
    { "qwen3-30b-a3b", &qwen3_moe, 2048, 768, 48, 32, 4, 128, 151936, 1000000, 128, 8, NULL },
    { "mixtral-8x7b", &mixtral, 4096, 14336, 32, 32, 8, 128, 32000, 1000000, 8, 2, NULL },
    { "gpt-oss-20b", &gpt_oss, 2880, 2880, 24, 64, 8, 64, 201088, 150000, 32, 4, NULL },
    { "smolvlm-256m", &llama, 576, 1536, 30, 9, 3, 64, 49280, 100000, 0, 0, &tower_smolvlm },
    { "qwen2.5-vl-3b", &qwen2, 2048, 11008, 36, 16, 2, 128, 151936, 1000000, 0, 0, &tower_qwen2_5_vl },
    { "gemma3-4b", &gemma3_large, 2560, 10240, 34, 8, 4, 256, 262208, 1000000, 0, 0, &tower_gemma3 },
    { "pixtral-12b", &nemo, 5120, 14336, 40, 32, 8, 128, 131072, 1000000000, 0, 0, &tower_pixtral },
};

const synth_shape *synth_shape_find(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}
