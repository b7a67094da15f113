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

static const synth_family llama = { "LlamaForCausalLM", "llama", "silu", .norms = NORMS_LLAMA, MLP_LLAMA };

static const synth_family mistral = { "MistralForCausalLM", "mistral", "silu", "\"sliding_window\": 4096",
                                      .norms = NORMS_LLAMA, MLP_LLAMA };

static const synth_family qwen3 = { "Qwen3ForCausalLM", "qwen3", "silu", "\"use_sliding_window\": false",
                                    .norms = NORMS_LLAMA, MLP_LLAMA, .qk_norm = SYNTH_QK_HEADS };

static const synth_family gemma2 = { "Gemma2ForCausalLM", "gemma2", "gelu_pytorch_tanh",
                                     "\"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 256, "
                                     "\"sliding_window\": 4096, \"attn_logit_softcapping\": 50.0, "
                                     "\"final_logit_softcapping\": 30.0",
                                     .norms = NORMS_GEMMA, MLP_LLAMA, .tied = true };

static const synth_family gemma3 = { "Gemma3ForCausalLM", "gemma3_text", "gelu_pytorch_tanh",
                                     "\"hidden_activation\": \"gelu_pytorch_tanh\", \"query_pre_attn_scalar\": 256, "
                                     "\"sliding_window\": 512, \"sliding_window_pattern\": 6, "
                                     "\"rope_local_base_freq\": 10000.0",
                                     .norms = NORMS_GEMMA, MLP_LLAMA, .qk_norm = SYNTH_QK_HEADS, .tied = true };

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
                                    .experts_key = "num_experts",
                                    .qk_norm = SYNTH_QK_WHOLE };

static const synth_family qwen3_moe = { "Qwen3MoeForCausalLM", "qwen3_moe", "silu",
                                        "\"moe_intermediate_size\": 768, \"norm_topk_prob\": true, "
                                        "\"decoder_sparse_step\": 1, \"use_sliding_window\": false",
                                        .norms = NORMS_LLAMA, MLP_EXPERTS, .router = "mlp.gate",
                                    .experts_key = "num_experts",
                                        .qk_norm = SYNTH_QK_HEADS };

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

/* ---- shapes ---- */

static const synth_shape shapes[] = {
    { "smollm2-135m", &llama, 576, 1536, 30, 9, 3, 64, 49152, 100000, 0, 0 },
    { "tinyllama-1.1b", &llama, 2048, 5632, 22, 32, 4, 64, 32000, 10000, 0, 0 },
    { "llama3.2-3b", &llama, 3072, 8192, 28, 24, 8, 128, 128256, 500000, 0, 0 },
    { "llama2-7b", &llama, 4096, 11008, 32, 32, 32, 128, 32000, 10000, 0, 0 },
    { "llama3-8b", &llama, 4096, 14336, 32, 32, 8, 128, 128256, 500000, 0, 0 },
    { "llama2-13b", &llama, 5120, 13824, 40, 40, 40, 128, 32000, 10000, 0, 0 },
    { "llama2-70b", &llama, 8192, 28672, 80, 64, 8, 128, 32000, 10000, 0, 0 },
    { "mistral-7b", &mistral, 4096, 14336, 32, 32, 8, 128, 32000, 10000, 0, 0 },
    { "qwen3-8b", &qwen3, 4096, 12288, 36, 32, 8, 128, 151936, 1000000, 0, 0 },
    { "gemma2-9b", &gemma2, 3584, 14336, 42, 16, 8, 256, 256000, 10000, 0, 0 },
    { "gemma3-1b", &gemma3, 1152, 6912, 26, 4, 1, 256, 262144, 1000000, 0, 0 },
    { "command-r7b", &cohere2, 4096, 14336, 32, 32, 8, 128, 256000, 50000, 0, 0 },
    { "starcoder2-3b", &starcoder2, 3072, 12288, 30, 24, 2, 128, 49152, 1000000, 0, 0 },
    { "olmoe-1b-7b", &olmoe, 2048, 1024, 16, 16, 16, 128, 50304, 10000, 64, 8 },
    { "qwen3-30b-a3b", &qwen3_moe, 2048, 768, 48, 32, 4, 128, 151936, 1000000, 128, 8 },
    { "mixtral-8x7b", &mixtral, 4096, 14336, 32, 32, 8, 128, 32000, 1000000, 8, 2 },
    { "gpt-oss-20b", &gpt_oss, 2880, 2880, 24, 64, 8, 64, 201088, 150000, 32, 4 },
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
