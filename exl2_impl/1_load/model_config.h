/* model_config.h: reads config.json and generation_config.json into exl2__config. A model that uses something this
   engine does not compute is rejected, and the message names it.
   takes: a model folder, untrusted.
   gives: exl2__config, exl2__config_defaults, exl2__config_read, exl2__config_rope.
   owns:  nothing. */
#ifndef EXL2__MODEL_CONFIG_H
#define EXL2__MODEL_CONFIG_H

#include "arch.h"
#include "fields.h"
#include "model_rope.h"

#define EXL2__CONFIG_EOS_MAX 16u
#define EXL2__CONFIG_CONTEXT_MAX (1u << 30)
#define EXL2__CONFIG_NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define EXL2__CONFIG_ROPE_NAMES(key) EXL2__CONFIG_NAMES("rope_scaling->" key, "rope_parameters->" key)

/* The suggestions of generation_config.json; a value is valid only if its has_ flag is set. */
typedef struct exl2__config_defaults {
    bool has_do_sample, has_temperature, has_top_k, has_top_p, has_min_p, has_repeat_penalty;
    bool do_sample; /* false: greedy */
    uint32_t top_k; /* 0 = off */
    float temperature, top_p, min_p, repeat_penalty;
} exl2__config_defaults;

typedef struct exl2__config {
    const exl2__arch *arch;
    uint32_t vocab, hidden, layers, heads, kv_heads, head_dim, inter;
    uint32_t context_max; /* tokens; what the model was trained for */
    float norm_eps, attn_scale;
    exl2__rope rope;
    bool tie_embeddings;           /* if there is no lm_head, model.embed_tokens is used as the head */
    bool attention_bias, mlp_bias; /* as in the file, but not used: a layer has a bias if its .bias tensor exists */
    exl2_token bos;                /* -1 = none */
    exl2_token eos[EXL2__CONFIG_EOS_MAX]; /* [eos_count] of config.json, then of generation_config.json; each once */
    uint32_t eos_count;
    exl2__config_defaults defaults;
} exl2__config;

/* ---- architecture ---- */

/* An architecture without a row in exl2__archs is rejected: its tensors may have the names and shapes of Llama's, but
   its computation differs. */
static exl2_result exl2__config_read_arch(const exl2__fields *f, exl2__config *out)
{
    uint32_t list = exl2__json_get(&f->json, 0, "architectures");
    if (!list) {
        return exl2__fields_missing(f, "architectures");
    }
    uint32_t name = exl2__json_first(&f->json, list);
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count != 1 ||
        f->json.tokens[name].kind != EXL2__JSON_STRING) {
        return exl2__fields_bad(f, "architectures", list, "a list of exactly one name");
    }
    for (size_t i = 0; i < EXL2__COUNT(exl2__archs); i++) {
        if (exl2__json_is(&f->json, name, exl2__archs[i].name)) {
            out->arch = &exl2__archs[i];
            return EXL2_OK;
        }
    }
    const char *found = f->json.text + f->json.tokens[name].begin;
    size_t bytes = f->json.tokens[name].end - f->json.tokens[name].begin;
    bytes = bytes > 100 ? exl2__utf8_cut(found, 100) : bytes;
    return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: unsupported architecture '%.*s', supported is LlamaForCausalLM",
                      f->label, (int)bytes, found);
}

/* Keys for features that Llama does not have, each with the value that switches its feature off. Other values are
   rejected. */
static exl2_result exl2__config_check_unsupported(const exl2__fields *f)
{
    static const struct {
        const char *name, *same_text;
        double same;
    } others[] = {
        { "logit_scale", "1", 1 }, { "logits_scaling", "1", 1 }, { "scale_emb", "1", 1 }, { "embedding_multiplier", "1",
                                                                                            1 },
        { "residual_multiplier", "1", 1 }, { "scale_depth", "none at all", -1 }, { "attn_logit_softcapping", "null",
                                                                                   0 },
        { "final_logit_softcapping", "null", 0 }, { "partial_rotary_factor", "1", 1 }, { "norm_head", "0", 0 },
        { "num_local_experts", "0", 0 }, { "num_experts", "0", 0 }, { "use_qk_norm", "false", 0 },
    };
    for (size_t i = 0; i < EXL2__COUNT(others); i++) {
        uint32_t token = exl2__fields_find(f, EXL2__CONFIG_NAMES(others[i].name), NULL);
        double value = 0;
        bool flag = false;
        if (!token) {
            continue;
        }
        if (exl2__json_bool(&f->json, token, &flag)) {
            value = flag;
        } else if (!exl2__json_f64(&f->json, token, &value)) {
            return exl2__fields_bad(f, others[i].name, token, "a number");
        }
        if (value < others[i].same || value > others[i].same) {
            return exl2__fields_unsupported(f, others[i].name, token, others[i].same_text);
        }
    }
    uint32_t act = exl2__fields_find(f, EXL2__CONFIG_NAMES("hidden_act"), NULL);
    if (act && !exl2__json_is(&f->json, act, "silu")) {
        return exl2__fields_unsupported(f, "hidden_act", act, "silu");
    }
    uint32_t method = exl2__fields_find(f, EXL2__CONFIG_NAMES("quantization_config->quant_method"), NULL);
    if (method && !exl2__json_is(&f->json, method, "exl2")) {
        return exl2__fields_unsupported(f, "quant_method", method, "exl2");
    }
    return EXL2_OK;
}

/* ---- RoPE scaling ---- */

static exl2_result exl2__config_rope_kind(const exl2__fields *f, exl2__rope *rope)
{
    exl2__field_names names[2] = { EXL2__CONFIG_ROPE_NAMES("rope_type"), EXL2__CONFIG_ROPE_NAMES("type") };
    uint32_t sections = exl2__fields_find(f, EXL2__CONFIG_ROPE_NAMES("mrope_section"), NULL);
    if (sections) {
        return exl2__fields_unsupported(f, "mrope_section", sections, "linear and llama3 scaling");
    }
    rope->kind = EXL2__ROPE_PLAIN;
    for (int i = 0; i < 2 && rope->kind == EXL2__ROPE_PLAIN; i++) { /* of two keys, the one that is not "default" */
        const char *name = NULL;
        uint32_t token = exl2__fields_find(f, names[i], &name);
        if (!token || exl2__json_is(&f->json, token, "default")) {
            continue;
        }
        if (exl2__json_is(&f->json, token, "linear")) {
            rope->kind = EXL2__ROPE_LINEAR;
        } else if (exl2__json_is(&f->json, token, "llama3")) {
            rope->kind = EXL2__ROPE_LLAMA3;
        } else {
            return exl2__fields_unsupported(f, name, token, "linear and llama3 scaling");
        }
    }
    return EXL2_OK;
}

/* A number that the scaling requires. */
static exl2_result exl2__config_rope_number(const exl2__fields *f, exl2__field_names names, double min,
                                            const char *allowed, double *out)
{
    bool present;
    EXL2__TRY(exl2__fields_f64(f, names, min, 1e9, allowed, out, &present));
    return present ? EXL2_OK : exl2__fields_missing(f, names[0]);
}

static exl2_result exl2__config_read_rope(const exl2__fields *f, exl2__rope *rope)
{
    rope->theta = 10000;
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES("rope_theta", "attn_config->rope_theta",
                                                     "rope_parameters->rope_theta"), 1, 1e30,
                               "a number of at least 1", &rope->theta, NULL));
    EXL2__TRY(exl2__config_rope_kind(f, rope));
    if (rope->kind == EXL2__ROPE_PLAIN) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__config_rope_number(f, EXL2__CONFIG_ROPE_NAMES("factor"), 1, "a number of at least 1",
                                       &rope->factor));
    if (rope->kind == EXL2__ROPE_LINEAR) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__config_rope_number(f, EXL2__CONFIG_ROPE_NAMES("low_freq_factor"), 1e-9, "a number above 0",
                                       &rope->low));
    EXL2__TRY(exl2__config_rope_number(f, EXL2__CONFIG_ROPE_NAMES("high_freq_factor"), 1e-9, "a number above 0",
                                       &rope->high));
    EXL2__TRY(exl2__config_rope_number(f, EXL2__CONFIG_ROPE_NAMES("original_max_position_embeddings"), 1,
                                       "a number of at least 1", &rope->original_context_max));
    if (rope->high <= rope->low) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: high_freq_factor of the RoPE scaling must be greater than low_freq_factor", f->label);
    }
    return EXL2_OK;
}

/* ---- sizes ---- */

/* model_max_length may be 10^30, which means "no limit". */
static exl2_result exl2__config_read_context(const exl2__fields *f, exl2__config *out)
{
    double tokens = 2048;
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES("max_sequence_length", "model_max_length",
                                                     "max_position_embeddings", "max_seq_len",
                                                     "n_positions"), 1, 1e300, "a positive number", &tokens, NULL));
    out->context_max = tokens < EXL2__CONFIG_CONTEXT_MAX ? (uint32_t)tokens : EXL2__CONFIG_CONTEXT_MAX;
    return EXL2_OK;
}

/* head_dim defaults to hidden / heads, heads to hidden / head_dim, kv_heads to heads. */
static exl2_result exl2__config_read_heads(const exl2__fields *f, exl2__config *out)
{
    const exl2__field_names heads = EXL2__CONFIG_NAMES("num_attention_heads", "n_heads", "n_head");
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("head_dim"), 0, 4096, &out->head_dim));
    out->heads = out->head_dim ? out->hidden / out->head_dim : 0;
    EXL2__TRY(exl2__fields_u32(f, heads, 1, 8192, &out->heads));
    if (!out->head_dim) {
        if (out->hidden % out->heads != 0) {
            return exl2__fail(f->c, EXL2_ERR_FORMAT,
                              "%s: hidden_size=%u is not a multiple of num_attention_heads=%u, and head_dim is missing",
                              f->label, out->hidden, out->heads);
        }
        out->head_dim = out->hidden / out->heads;
    }
    if (out->head_dim % 2 != 0) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT, "%s: head_dim=%u is odd, but RoPE rotates pairs", f->label,
                          out->head_dim);
    }
    out->kv_heads = out->heads;
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("num_key_value_heads", "attn_config->kv_n_heads"), 1, 8192,
                               &out->kv_heads));
    if (out->heads % out->kv_heads != 0) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: num_attention_heads=%u is not a multiple of num_key_value_heads=%u", f->label,
                          out->heads, out->kv_heads);
    }
    return EXL2_OK;
}

/* The factor of the scores: attention_multiplier, else query_pre_attn_scalar^-1/2, else head_dim^-1/2. */
static exl2_result exl2__config_read_scale(const exl2__fields *f, exl2__config *out)
{
    double multiplier = 0, scalar = out->head_dim;
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES("attention_multiplier"), 0, 1e6, "a number from 0 to 1e6",
                               &multiplier, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES("query_pre_attn_scalar"), 1e-6, 1e6, "a number from 1e-6 to 1e6",
                               &scalar, NULL));
    out->attn_scale = (float)(multiplier > 0 ? multiplier : 1.0 / sqrt(scalar));
    return EXL2_OK;
}

static exl2_result exl2__config_read_sizes(const exl2__fields *f, exl2__config *out)
{
    double norm_eps = 0;
    bool present;
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("vocab_size"), 1, 1u << 24, &out->vocab));
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("hidden_size", "d_model", "n_embd"), 1, 1u << 20, &out->hidden));
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("num_hidden_layers", "n_layers", "n_layer"), 1, 4096,
                               &out->layers));
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("intermediate_size", "ffn_config->ffn_hidden_size", "n_inner"), 1,
                               1u << 20, &out->inter));
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES("rms_norm_eps"), 1e-30, 1, "a number above 0 and up to 1",
                               &norm_eps, &present));
    if (!present) {
        return exl2__fields_missing(f, "rms_norm_eps");
    }
    out->norm_eps = (float)norm_eps;
    EXL2__TRY(exl2__config_read_heads(f, out));
    EXL2__TRY(exl2__config_read_scale(f, out));
    EXL2__TRY(exl2__config_read_context(f, out));
    EXL2__TRY(exl2__fields_bool(f, EXL2__CONFIG_NAMES("tie_word_embeddings"), &out->tie_embeddings, NULL));
    EXL2__TRY(exl2__fields_bool(f, EXL2__CONFIG_NAMES("attention_bias"), &out->attention_bias, NULL));
    return exl2__fields_bool(f, EXL2__CONFIG_NAMES("mlp_bias"), &out->mlp_bias, NULL);
}

/* ---- special tokens ---- */

/* Reads a token id. *out is -1 if the model cannot produce the token: its id is negative (some files write "none" so)
   or not in the vocabulary. */
static exl2_result exl2__config_token(const exl2__fields *f, const char *name, uint32_t token, uint32_t vocab,
                                      exl2_token *out)
{
    int64_t id;
    if (!exl2__json_i64(&f->json, token, &id)) {
        return exl2__fields_bad(f, name, token, "a token id");
    }
    if (id >= (int64_t)vocab) {
        exl2__log(f->c, EXL2_LOG_WARN, EXL2_LOG_ID_TOKEN_ID_IGNORED,
                  "%s: %s=%lld is ignored, the vocabulary has %u tokens", f->label, name, (long long)id, vocab);
    }
    *out = id >= 0 && id < (int64_t)vocab ? (exl2_token)id : -1;
    return EXL2_OK;
}

static exl2_result exl2__config_add_eos(const exl2__fields *f, uint32_t token, exl2__config *out)
{
    exl2_token id;
    EXL2__TRY(exl2__config_token(f, "eos_token_id", token, out->vocab, &id));
    bool ignored = id < 0;
    for (uint32_t i = 0; i < out->eos_count; i++) {
        ignored = ignored || out->eos[i] == id;
    }
    if (ignored) {
        return EXL2_OK;
    }
    if (out->eos_count == EXL2__CONFIG_EOS_MAX) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: eos_token_id has more than %u tokens", f->label,
                          EXL2__CONFIG_EOS_MAX);
    }
    out->eos[out->eos_count++] = id;
    return EXL2_OK;
}

/* bos_token_id and eos_token_id; each is an id or a list of ids. Adds them to those that *out has already. */
static exl2_result exl2__config_read_tokens(const exl2__fields *f, exl2__config *out)
{
    uint32_t bos = exl2__fields_find(f, EXL2__CONFIG_NAMES("bos_token_id"), NULL);
    if (bos && f->json.tokens[bos].kind == EXL2__JSON_ARRAY) {
        bos = exl2__json_first(&f->json, bos);
    }
    if (bos && out->bos < 0) {
        EXL2__TRY(exl2__config_token(f, "bos_token_id", bos, out->vocab, &out->bos));
    }
    uint32_t eos = exl2__fields_find(f, EXL2__CONFIG_NAMES("eos_token_id"), NULL);
    if (!eos || f->json.tokens[eos].kind != EXL2__JSON_ARRAY) {
        return eos ? exl2__config_add_eos(f, eos, out) : EXL2_OK;
    }
    for (uint32_t at = exl2__json_first(&f->json, eos); at; at = exl2__json_next(&f->json, eos, at)) {
        EXL2__TRY(exl2__config_add_eos(f, at, out));
    }
    return EXL2_OK;
}

/* ---- generation_config.json ---- */

static exl2_result exl2__config_default(const exl2__fields *f, const char *name, double min, double max,
                                        const char *allowed,
                                        float *out, bool *present)
{
    double value = 0;
    EXL2__TRY(exl2__fields_f64(f, EXL2__CONFIG_NAMES(name), min, max, allowed, &value, present));
    *out = (float)value;
    return EXL2_OK;
}

static exl2_result exl2__config_read_defaults(const exl2__fields *f, exl2__config_defaults *d)
{
    EXL2__TRY(exl2__config_default(f, "temperature", 0, 1000, "a number from 0 to 1000", &d->temperature,
                                   &d->has_temperature));
    EXL2__TRY(exl2__config_default(f, "top_p", 0, 1, "a number from 0 to 1", &d->top_p, &d->has_top_p));
    EXL2__TRY(exl2__config_default(f, "min_p", 0, 1, "a number from 0 to 1", &d->min_p, &d->has_min_p));
    EXL2__TRY(exl2__config_default(f, "repetition_penalty", 0.01, 100, "a number from 0.01 to 100", &d->repeat_penalty,
                                   &d->has_repeat_penalty));
    d->has_top_k = exl2__fields_find(f, EXL2__CONFIG_NAMES("top_k"), NULL) != 0;
    EXL2__TRY(exl2__fields_u32(f, EXL2__CONFIG_NAMES("top_k"), 0, INT32_MAX, &d->top_k));
    return exl2__fields_bool(f, EXL2__CONFIG_NAMES("do_sample"), &d->do_sample, &d->has_do_sample);
}

/* ---- all ---- */

static exl2_result exl2__config_read_model(const exl2__fields *f, exl2__config *out)
{
    EXL2__TRY(exl2__config_read_arch(f, out));
    EXL2__TRY(exl2__config_check_unsupported(f));
    EXL2__TRY(exl2__config_read_sizes(f, out));
    EXL2__TRY(exl2__config_read_rope(f, &out->rope));
    return exl2__config_read_tokens(f, out);
}

static exl2_result exl2__config_read_generation(const exl2__fields *f, exl2__config *out)
{
    EXL2__TRY(exl2__config_read_tokens(f, out));
    return exl2__config_read_defaults(f, &out->defaults);
}

/* Reads config.json, which must exist, and generation_config.json, if it exists. Messages name the file, the field, its
   value and the allowed values. */
EXL2__COLD
static exl2_result exl2__config_read(exl2__ctx *c, const char *dir, exl2__config *out)
{
    exl2__fields f;
    *out = (exl2__config){ 0 };
    out->bos = -1;
    EXL2__TRY(exl2__fields_open(c, dir, "config.json", false, &f));
    exl2_result result = exl2__config_read_model(&f, out);
    exl2__fields_close(&f);
    EXL2__TRY(result);
    EXL2__TRY(exl2__fields_open(c, dir, "generation_config.json", true, &f));
    if (f.text.data) {
        result = exl2__config_read_generation(&f, out);
    }
    exl2__fields_close(&f);
    return result;
}

/* frequency: [head_dim / 2] radians per position. */
static inline void exl2__config_rope(const exl2__config *config, double *frequency)
{
    exl2__rope_frequencies(&config->rope, config->head_dim, frequency);
}

#endif
