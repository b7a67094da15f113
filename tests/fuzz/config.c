/* config.c: fuzz target: config.json of every row. Bytes that begin with '{' are the file; others choose a row, then
   fields and hostile values for them, two bytes each. What is accepted must make a sound plan.
   By hand, with a build folder: clang -g -O1 -fsanitize=fuzzer,address,undefined -DTEST_WHOLE -I. -Ibuild/tests
   tests/fuzz/config.c -lm. The suite runs it with run_seeds.c. */
#include "../memory_files.h"

#include "private/model_config_read.h"
#include "private/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES 8192

static const char *const fields[] = {
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon",
    "layer_norm_epsilon", "max_position_embeddings", "n_positions", "rope_theta", "rope_local_base_freq",
    "rope_scaling", "rope_parameters", "original_max_position_embeddings", "partial_rotary_factor", "sliding_window",
    "use_sliding_window", "max_window_layers", "layer_types", "sliding_window_pattern", "no_rope_layers",
    "no_rope_layer_interval", "use_qk_norm", "use_parallel_residual", "tie_word_embeddings", "norm_head",
    "attention_multiplier", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
    "logits_scaling", "embedding_multiplier", "residual_multiplier", "scale_emb", "scale_depth", "dim_model_base",
    "clip_qkv", "hidden_act", "hidden_activation", "activation_function", "num_local_experts", "text_config",
    "bos_token_id", "eos_token_id", "multi_query", "scale_attn_weights", "use_bidirectional_attention",
    /* experts */
    "num_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_k", "moe_intermediate_size",
    "shared_expert_intermediate_size", "shared_intermediate_size", "n_shared_experts", "moe_num_shared_experts",
    "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor", "scoring_func", "mlp_only_layers",
    "decoder_sparse_step", "first_k_dense_replace", "moe_layer_start_index", "moe_layer_end_index",
    "moe_layer_interval", "mlp_layer_types", "is_moe_layer", "num_nextn_predict_layers", "ffn_config", "attn_config",
    "swiglu_limit", "swiglu_alpha",
    /* others of single rows */
    "rotary_dim", "rope_pct", "max_sequence_length", "n_inner", "attention_bias", "mlp_bias",
    "scale_attn_by_inverse_layer_idx", "quantization_config",
};

static const char *const values[] = {
    "null", "0", "1", "-1", "2", "3", "4", "7", "8", "32", "64", "256", "264", "2147483648", "4294967296", "1e30",
    "1e-30", "1e999", "0.5", "1.5", "0.3", "true", "false", "\"\"", "\"silu\"", "\"gelu\"", "\"relu2\"", "\"LLG\"",
    "\"mistral\"",
    "16", "4096", "4097", "\"sigmoid\"", "[\"sparse\",\"dense\",\"sparse\"]", "[false,true,true]",
    "{\"moe_num_experts\":5,\"moe_top_k\":2,\"moe_normalize_expert_weights\":null}",
    "{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":-1,\"desc_act\":true}",
    "[]", "[0]", "[1,0,1]", "[0,0,0,0,0,0]", "{}", "[\"full_attention\",\"sliding_attention\",\"sliding_attention\"]",
    "[\"sliding_attention\"]", "{\"rope_type\":\"linear\",\"factor\":4}", "{\"type\":\"dynamic\",\"factor\":1e9}",
    "{\"type\":\"dynamic\",\"alpha\":1000}",
    "{\"rope_type\":\"yarn\",\"factor\":40,\"original_max_position_embeddings\":1}",
    "{\"rope_type\":\"yarn\",\"factor\":1e9,\"original_max_position_embeddings\":1e9,\"beta_fast\":1e-9,"
    "\"beta_slow\":1e-9}",
    "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1e-9,\"high_freq_factor\":1e9,"
    "\"original_max_position_embeddings\":8192}",
    "{\"type\":\"su\",\"short_factor\":[1,1,1,1],\"long_factor\":[1e6,1e-6,1,1]}",
    "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8},\"sliding_attention\":{\"rope_theta\":1}}",
    "{\"model_type\":\"gemma2\",\"sliding_window\":9}", "{\"model_type\":7,\"head_dim\":null}",
};

static void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Layers and units of an accepted config are within their bounds, and all RoPE angles are numbers. */
static void check_plan(const exl2__config *k)
{
    static double frequencies[2 * EXL2__ROPE_HALF_MAX];
    exl2__rope_angles ropes[2];
    exl2__plan plan;
    exl2__layer *layers = (exl2__layer *)calloc(k->layers, sizeof *layers);
    require(layers != NULL && k->layers <= EXL2__CONFIG_LAYERS_MAX && k->rotary <= k->head_dim && k->rotary % 2 == 0);
    require(k->heads % k->kv_heads == 0 && k->norm_eps > 0 && k->attn_scale > 0 && k->embed_scale > 0);
    require(k->logit_scale > 0 && k->residual_scale > 0 && k->attn_softcap >= 0 && k->final_softcap >= 0);
    exl2__plan_make(&plan, k, k->vocab, 0, 0, 0);
    exl2__plan_layers(&plan, k, layers);
    exl2__plan_ropes(&plan, k, frequencies, ropes);
    for (uint32_t i = 0; i < k->layers; i++) {
        require(layers[i].window > 0 && layers[i].phase_count >= 5);
        require(layers[i].rope == EXL2__NO_ROPE || layers[i].rope < plan.rope_count);
    }
    for (uint32_t i = 0; i < plan.rope_count * (k->rotary / 2); i++) {
        require(isfinite(frequencies[i]) && frequencies[i] >= 0);
    }
    for (uint32_t i = 0; i < plan.rope_count; i++) {
        require(isfinite(ropes[i].magnitude) && ropes[i].magnitude > 0);
    }
    for (uint32_t i = 0, count = exl2__unit_count(k, true); i < count && i < 64; i++) {
        exl2__unit u;
        exl2__unit_make(k, i, &u);
        require(u.count >= 1 && u.count <= 3 && u.in > 0 && u.out[0] > 0 && u.keys[0][0]);
    }
    free(layers);
}

static void read_file(const void *bytes, size_t size)
{
    static memory_files m;
    static exl2__config k;
    memory_make(&m);
    m.c.host_bytes_max = (uint64_t)64 << 20;
    memory_add(&m, "config.json", bytes, size);
    exl2_result result = exl2__config_read(&m.c, "folder", &k);
    require(result == EXL2_OK || result == EXL2_ERR_FORMAT || result == EXL2_ERR_UNSUPPORTED);
    require((result < 0) == (m.c.error.text[0] != 0));
    if (result == EXL2_OK) {
        check_plan(&k);
    }
    memory_free(&m);
}

/* A small good file of the row, with these fields in place of its own. */
static void read_fields(const uint8_t *data, size_t size)
{
    static const char *const base[][2] = {
        { "vocab_size", "64" }, { "hidden_size", "64" }, { "intermediate_size", "64" }, { "num_hidden_layers", "3" },
        { "num_attention_heads", "8" }, { "head_dim", "8" }, { "num_key_value_heads", "4" }, { "rms_norm_eps", "1e-5" },
    };
    char text[BYTES];
    bool used[EXL2__COUNT(fields)] = { false };
    size_t row = size ? data[0] % EXL2__COUNT(exl2__archs) : 0;
    int at = snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]", exl2__archs[row].name);
    for (size_t i = 1; i + 1 < size && at < BYTES - 1024; i += 2) {
        size_t field = data[i] % EXL2__COUNT(fields);
        if (!used[field]) {
            used[field] = true;
            at += snprintf(text + at, sizeof text - (size_t)at, ",\"%s\":%s", fields[field],
                           values[data[i + 1] % EXL2__COUNT(values)]);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(base); i++) {
        bool given = false;
        for (size_t k = 0; k < EXL2__COUNT(fields); k++) {
            given = given || (used[k] && strcmp(fields[k], base[i][0]) == 0);
        }
        if (!given) {
            at += snprintf(text + at, sizeof text - (size_t)at, ",\"%s\":%s", base[i][0], base[i][1]);
        }
    }
    at += snprintf(text + at, sizeof text - (size_t)at, "}");
    read_file(text, (size_t)at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size && data[0] == '{') {
        read_file(data, size);
    } else {
        read_fields(data, size);
    }
    return 0;
}
