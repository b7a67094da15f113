/* model_config_read.h: reads config.json and generation_config.json into exl2__config. A model that uses something this
   engine does not compute is rejected, and the message names it.
   takes: a model folder, untrusted.
   gives: exl2__config_read, exl2__config_read_text; exl2__config_rope, exl2__config_stretch,
          exl2__config_rope_wrong. */
#ifndef EXL2__MODEL_CONFIG_READ_H
#define EXL2__MODEL_CONFIG_READ_H

#include "arch_rows.h"
#include "arch_unsupported.h"
#include "model_config.h"
#include "model_layers_read.h"
#include "model_rope_read.h"

/* ---- architecture ---- */

/* The row of the same name for the model's tower. */
EXL2__PRIVATE const exl2__arch_row *exl2__config_row_of_tower(const exl2__fields *f, const exl2__arch_row *row)
{
    char tower[64] = "";
    uint32_t vision = row->text_of_multimodal ? exl2__json_get(&f->json, 0, "vision_config") : 0;
    uint32_t token = vision ? exl2__json_get(&f->json, vision, "model_type") : 0;
    if (token && f->json.tokens[token].kind == EXL2__JSON_STRING) {
        exl2__json_text(&f->json, token, tower, sizeof tower - 1);
    }
    for (size_t i = 0; tower[0] && i < EXL2__COUNT(exl2__archs); i++) {
        const exl2__arch_row *other = &exl2__archs[i];
        row = other->tower && strcmp(other->name, row->name) == 0 && strcmp(other->tower, tower) == 0 ? other : row;
    }
    return row;
}

/* The row of the text model inside the multimodal model of `row`; `row` itself if it is none. */
EXL2__PRIVATE const exl2__arch_row *exl2__config_row_inside(const exl2__arch_row *row)
{
    const exl2__arch_row *inside = row;
    for (const exl2__arch_row *base = row; base; base = base->like ? exl2__arch_find(base->like) : NULL) {
        inside = base->text_of_multimodal && base->like ? exl2__arch_find(base->like) : inside;
    }
    return inside;
}

/* Resolves the row. The text model inside of a multimodal one may be of another family than the row says: its
   model_type decides, if it names a row, and then that row has the numbers that the file may leave out. */
EXL2__PRIVATE exl2_result exl2__config_resolve(const exl2__fields *f, const exl2__arch_row *row, exl2__arch *out)
{
    row = exl2__config_row_of_tower(f, row);
    exl2__arch_row own = *row;
    char type[64] = "";
    uint32_t token = f->nested ? exl2__json_get(&f->json, f->nested, "model_type") : 0;
    exl2__arch_resolve(row, out);
    if (out->text_of_multimodal && token && f->json.tokens[token].kind == EXL2__JSON_STRING) {
        exl2__json_text(&f->json, token, type, sizeof type - 1);
        const exl2__arch_row *text = exl2__arch_find_type(type);
        const char *reason = exl2__arch_unsupported("TextForCausalLM", type);
        if (reason) {
            return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: the text model '%s' in %s is not supported: %s",
                              f->label, type, row->name, reason);
        }
        if (text && !text->text_of_multimodal && text != exl2__config_row_inside(row)) {
            own.like = text->name;
            own.renames = out->renames;
            own.text_of_multimodal = true;
            own.defaults = NULL;
        }
    }
    exl2__arch_resolve(&own, out);
    return EXL2_OK;
}

/* Chooses the row of a file without `architectures`: by model_type, if it is known. */
EXL2__PRIVATE exl2_result exl2__config_read_type(const exl2__fields *f, exl2__config *out)
{
    char type[64] = "";
    uint32_t token = exl2__json_get(&f->json, 0, "model_type");
    if (!token || f->json.tokens[token].kind != EXL2__JSON_STRING) {
        return exl2__fields_missing(f, "architectures");
    }
    exl2__json_text(&f->json, token, type, sizeof type - 1);
    const exl2__arch_row *row = exl2__arch_find_type(type);
    const char *reason = row ? NULL : exl2__arch_unsupported("ForCausalLM", type);
    if (!row) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: architectures is missing, and the model_type '%s' is not "
                          "supported%s%s", f->label, type, reason ? ": " : "", reason ? reason : "");
    }
    exl2__format(out->arch_name, sizeof out->arch_name, "%s", row->name);
    return exl2__config_resolve(f, row, &out->arch);
}

/* Chooses the row. An architecture that nobody knows is read by its model_type, or else as Llama, with a warning: most
   of them are Llama under another name, and a tensor that the row does not use is an error. A known architecture
   without a row is rejected: its tensors may have the names and shapes of Llama's, while its computation differs. */
EXL2__PRIVATE exl2_result exl2__config_read_arch(const exl2__fields *f, exl2__config *out)
{
    uint32_t list = exl2__json_get(&f->json, 0, "architectures");
    if (!list || (f->json.tokens[list].kind == EXL2__JSON_ARRAY && f->json.tokens[list].count == 0)) {
        return exl2__config_read_type(f, out);
    }
    uint32_t name = exl2__json_first(&f->json, list);
    if (f->json.tokens[list].kind != EXL2__JSON_ARRAY || f->json.tokens[list].count != 1 ||
        f->json.tokens[name].kind != EXL2__JSON_STRING) {
        return exl2__fields_bad(f, "architectures", list, "a list of exactly one name");
    }
    char found[sizeof out->arch_name] = "", type[64] = "";
    uint32_t model_type = exl2__json_get(&f->json, 0, "model_type");
    size_t bytes = exl2__json_text(&f->json, name, found, sizeof found - 1);
    if (bytes >= sizeof found || strlen(found) != bytes) {
        return exl2__fields_bad(f, "architectures", name, "a name of at most 63 bytes without NUL");
    }
    if (model_type && f->json.tokens[model_type].kind == EXL2__JSON_STRING) {
        exl2__json_text(&f->json, model_type, type, sizeof type - 1);
    }
    const exl2__arch_row *row = exl2__arch_find(found);
    row = row ? row : exl2__arch_find_base(found, type);
    const char *reason = row ? NULL : exl2__arch_unsupported(found, type);
    if (reason) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: the architecture '%s' is not supported: %s", f->label, found,
                          reason);
    }
    if (!row) {
        row = exl2__arch_find_type(type);
        row = row ? row : exl2__arch_find("LlamaForCausalLM");
        exl2__log(f->c, EXL2_LOG_WARN, EXL2_LOG_ID_UNKNOWN_ARCH,
                  "%s: the architecture '%s' is unknown; the model is read as %s", f->label, found, row->name);
    }
    memcpy(out->arch_name, found, sizeof found);
    return exl2__config_resolve(f, row, &out->arch);
}

#define EXL2__CONFIG_EXPERT_KEYS 3 /* the first ones of the list below */

/* Keys for features that the row does not have, each with the value that switches its feature off. Other values are
   rejected. */
EXL2__PRIVATE exl2_result exl2__config_check_unsupported(const exl2__fields *f, const exl2__config *out)
{
    static const struct {
        const char *name, *same_text;
        double same;
    } others[] = {
        { "num_local_experts", "0", 0 }, { "num_experts", "0", 0 }, { "n_routed_experts", "0", 0 },
        { "scale_attn_by_inverse_layer_idx", "false", 0 }, { "multi_query", "true", 1 },
        { "alibi", "false", 0 }, { "attention_sinks", "0", 0 }, { "scale_attn_weights", "true", 1 },
        { "use_bidirectional_attention", "false", 0 }, { "swiglu_alpha", "1.702", 1.702 },
        { "is_causal", "true", 1 },
    };
    bool routed = out->arch.traits[EXL2__TRAIT_ROUTING] != EXL2__ROUTING_NONE;
    for (size_t i = routed ? EXL2__CONFIG_EXPERT_KEYS : 0; i < EXL2__COUNT(others); i++) {
        uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES(others[i].name), NULL);
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
    return EXL2_OK;
}

/* An optional number; without the key *out stays as it is. */
#define EXL2__CONFIG_NUMBER(f, names, min, max, out) \
    exl2__config_read_number(f, names, min, max, "a number from " #min " to " #max, out)

EXL2__PRIVATE exl2_result exl2__config_read_number(const exl2__fields *f, exl2__field_names names, double min,
                                                   double max, const char *allowed, float *out)
{
    double value = (double)*out;
    EXL2__TRY(exl2__fields_f64(f, names, min, max, allowed, &value, NULL));
    *out = (float)value;
    return EXL2_OK;
}

/* The activation of config.json, which must be of the row's kind. Files of the first Gemma say "gelu" and mean the
   approximation with tanh. */
EXL2__PRIVATE exl2_result exl2__config_read_act(const exl2__fields *f, exl2__config *out)
{
    static const struct { const char *name; exl2__act act; } acts[] = {
        { "silu", EXL2__ACT_SILU }, { "swish", EXL2__ACT_SILU }, { "gelu_pytorch_tanh", EXL2__ACT_GELU_TANH },
        { "gelu_new", EXL2__ACT_GELU_TANH }, { "gelu_fast", EXL2__ACT_GELU_TANH }, { "gelu", EXL2__ACT_GELU },
        { "relu2", EXL2__ACT_RELU_SQUARED },
    };
    const char *name = NULL, *expected = "silu";
    uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES("hidden_activation", "hidden_act", "activation_function",
                                                            "ffn_config->ffn_act_fn->name"), &name), i = 0;
    exl2__act row = (exl2__act)out->arch.traits[EXL2__TRAIT_ACT];
    bool row_gelu = row == EXL2__ACT_GELU_TANH, clamped = row == EXL2__ACT_CLAMPED;
    row = clamped ? EXL2__ACT_SILU : row; /* files of GPT-OSS say "silu" */
    out->act = row;
    while (token && i < EXL2__COUNT(acts) && !exl2__json_is(&f->json, token, acts[i].name)) {
        i++;
    }
    if (i == EXL2__COUNT(acts) || (token && acts[i].act != row && !(row_gelu && acts[i].act == EXL2__ACT_GELU))) {
        expected = row_gelu ? "gelu and gelu_pytorch_tanh" : row == EXL2__ACT_RELU_SQUARED ? "relu2" : expected;
        return exl2__fields_unsupported(f, name, token, expected);
    }
    out->act = token && out->arch.traits[EXL2__TRAIT_EMBED_SCALE] != EXL2__EMBED_SCALE_ROOT ? acts[i].act : row;
    if (clamped) {
        out->act = EXL2__ACT_CLAMPED;
        out->act_limit = 7;
        return EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("swiglu_limit"), 1e-3, 1e6, &out->act_limit);
    }
    return EXL2_OK;
}

/* ---- sizes ---- */

/* model_max_length may be 10^30, which means "no limit". */
EXL2__PRIVATE exl2_result exl2__config_read_context(const exl2__fields *f, exl2__config *out)
{
    double tokens = 2048;
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("max_sequence_length", "model_max_length",
                                                    "max_position_embeddings", "max_seq_len",
                                                    "n_positions"), 1, 1e300, "a positive number", &tokens, NULL));
    out->context_max = tokens < EXL2__CONFIG_CONTEXT_MAX ? (uint32_t)tokens : EXL2__CONFIG_CONTEXT_MAX;
    return EXL2_OK;
}

/* head_dim defaults to hidden / heads, heads to hidden / head_dim, kv_heads to heads. */
EXL2__PRIVATE exl2_result exl2__config_read_heads(const exl2__fields *f, exl2__config *out)
{
    const exl2__field_names heads = EXL2__FIELD_NAMES("num_attention_heads", "n_heads", "n_head");
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("head_dim"), 0, 4096, &out->head_dim));
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
    if (out->head_dim > EXL2__CONFIG_HEAD_MAX) {
        return exl2__fail(f->c, EXL2_ERR_UNSUPPORTED, "%s: head_dim=%u is not supported, at most %u is", f->label,
                          out->head_dim, EXL2__CONFIG_HEAD_MAX);
    }
    out->kv_heads = out->heads;
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("num_key_value_heads", "attn_config->kv_n_heads"), 1, 8192,
                               &out->kv_heads));
    if (out->heads % out->kv_heads != 0) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: num_attention_heads=%u is not a multiple of num_key_value_heads=%u", f->label,
                          out->heads, out->kv_heads);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__config_read_sizes(const exl2__fields *f, exl2__config *out)
{
    double norm_eps = 0;
    bool present;
    const char *eps = out->arch.names[EXL2__NAME_EPS];
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("vocab_size"), 1, EXL2__CONFIG_VOCAB_MAX, &out->vocab));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("hidden_size", "d_model", "n_embd"), 1, 1u << 20, &out->hidden));
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("num_hidden_layers", "n_layers", "n_layer"), 1,
                               EXL2__CONFIG_LAYERS_MAX, &out->layers));
    out->inter = out->arch.traits[EXL2__TRAIT_POSITIONS] == EXL2__POSITIONS_LEARNED ? 4 * out->hidden : 0;
    if (out->arch.traits[EXL2__TRAIT_ROUTING] != EXL2__ROUTING_NONE) { /* without dense layers this may be all */
        EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("moe_intermediate_size"), 0, 1u << 20, &out->inter));
    }
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("intermediate_size", "ffn_config->ffn_hidden_size", "n_inner"), 1,
                               1u << 20, &out->inter));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES(eps, "layer_norm_epsilon"), 1e-30, 1,
                               "a number above 0 and up to 1", &norm_eps, &present));
    if (!present) {
        return exl2__fields_missing(f, eps);
    }
    out->norm_eps = (float)norm_eps;
    EXL2__TRY(exl2__config_read_heads(f, out));
    return exl2__config_read_context(f, out);
}

/* ---- factors, switches ---- */

/* The factor of the scores: attention_multiplier, else query_pre_attn_scalar^-1/2, else head_dim^-1/2. */
EXL2__PRIVATE exl2_result exl2__config_read_scale(const exl2__fields *f, exl2__config *out)
{
    double multiplier = 0, scalar = out->head_dim;
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("attention_multiplier"), 0, 1e6, "a number from 0 to 1e6",
                               &multiplier, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("query_pre_attn_scalar"), 1e-6, 1e6, "a number from 1e-6 to 1e6",
                               &scalar, NULL));
    out->attn_scale = (float)(multiplier > 0 ? multiplier : 1.0 / sqrt(scalar));
    return EXL2_OK;
}

/* Granite writes its factors as multipliers, and the factor of logits as a divisor; MiniCPM writes the depth and the
   width that its factors come from. */
EXL2__PRIVATE exl2_result exl2__config_read_factors(const exl2__fields *f, exl2__config *out)
{
    double depth = 0, base = 0, divisor = 0;
    out->embed_scale = out->arch.traits[EXL2__TRAIT_EMBED_SCALE] == EXL2__EMBED_SCALE_ROOT
                           ? (float)sqrt((double)out->hidden) : 1;
    out->residual_scale = out->logit_scale = 1;
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("scale_emb", "embedding_multiplier"), 1e-6, 1e6,
                                  &out->embed_scale));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("scale_depth"), 1e-6, 1e6, "a number from 1e-6 to 1e6", &depth,
                               NULL));
    out->residual_scale = depth > 0 ? (float)(depth / sqrt((double)out->layers)) : 1;
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("residual_multiplier"), 1e-6, 1e6, &out->residual_scale));
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("logit_scale"), 1e-6, 1e6, &out->logit_scale));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("dim_model_base"), 1, 1e6, "a number from 1 to 1e6", &base, NULL));
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("logits_scaling"), 1e-6, 1e6, "a number from 1e-6 to 1e6", &divisor,
                               NULL));
    out->logit_scale = base > 0 ? (float)((double)out->logit_scale * base / out->hidden) : out->logit_scale;
    out->logit_scale = divisor > 0 ? (float)(1 / divisor) : out->logit_scale;
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("attn_logit_softcapping"), 1e-3, 1e6, &out->attn_softcap));
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("final_logit_softcapping"), 1e-3, 1e6, &out->final_softcap));
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__FIELD_NAMES("clip_qkv", "attn_config->clip_qkv"), 1e-3, 1e6,
                                  &out->clip_qkv));
    return exl2__config_read_scale(f, out);
}

/* A switch that the file writes as a bool or as a number. */
EXL2__PRIVATE exl2_result exl2__config_read_switch(const exl2__fields *f, const char *name, bool *out)
{
    uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES(name), NULL);
    double value = 0;
    if (token && !exl2__json_bool(&f->json, token, out)) {
        if (!exl2__json_f64(&f->json, token, &value)) {
            return exl2__fields_bad(f, name, token, "true or false");
        }
        *out = value != 0; /* NOLINT */
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__config_read_switches(const exl2__fields *f, exl2__config *out)
{
    const uint8_t *traits = out->arch.traits;
    bool qk_norm = false;
    EXL2__TRY(exl2__config_read_switch(f, "tie_word_embeddings", &out->tie_embeddings));
    out->tie_embeddings = out->tie_embeddings || traits[EXL2__TRAIT_TIED] == EXL2__YES;
    EXL2__TRY(exl2__config_read_switch(f, "attention_bias", &out->attention_bias));
    EXL2__TRY(exl2__config_read_switch(f, "mlp_bias", &out->mlp_bias));
    EXL2__TRY(exl2__config_read_switch(f, "norm_head", &out->norm_head));
    EXL2__TRY(exl2__config_read_switch(f, "use_qk_norm", &qk_norm));
    out->qk_norm = (exl2__qk_norm)traits[EXL2__TRAIT_QK_NORM];
    if (out->qk_norm == EXL2__QK_NORM_BY_CONFIG) {
        out->qk_norm = qk_norm ? EXL2__QK_NORM_HEADS : EXL2__QK_NORM_NONE;
    }
    out->parallel = traits[EXL2__TRAIT_PARALLEL] == EXL2__YES;
    return traits[EXL2__TRAIT_PARALLEL] == EXL2__BY_CONFIG
               ? exl2__config_read_switch(f, "use_parallel_residual", &out->parallel) : EXL2_OK;
}

/* ---- RoPE ---- */

/* theta of the layers with a window, where it is another one. */
EXL2__PRIVATE exl2_result exl2__config_read_local_rope(const exl2__fields *f, exl2__config *out)
{
    uint8_t rule = out->arch.traits[EXL2__TRAIT_LOCAL_ROPE];
    const char *name = NULL;
    uint32_t kind = exl2__fields_find(f, EXL2__FIELD_NAMES("rope_parameters->sliding_attention->rope_type",
                                                           "rope_parameters->sliding_attention->type"), &name);
    if (kind && !exl2__json_is(&f->json, kind, "default")) {
        return exl2__fields_unsupported(f, name, kind, "default");
    }
    out->has_local_rope = rule != EXL2__LOCAL_ROPE_SAME;
    out->local_rope = (exl2__rope){ .theta = rule == EXL2__LOCAL_ROPE_BASE ? 10000 : out->rope.theta };
    return !out->has_local_rope ? EXL2_OK
         : exl2__fields_f64(f, EXL2__FIELD_NAMES("rope_local_base_freq",
                                                 "rope_parameters->sliding_attention->rope_theta"),
                            1, 1e30, "a number of at least 1", &out->local_rope.theta, NULL);
}

EXL2__PRIVATE exl2_result exl2__config_read_positions(const exl2__fields *f, exl2__config *out)
{
    double part = 1;
    if (out->arch.traits[EXL2__TRAIT_POSITIONS] == EXL2__POSITIONS_LEARNED) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__fields_f64(f, EXL2__FIELD_NAMES("partial_rotary_factor", "rope_pct",
                                                    "rope_parameters->partial_rotary_factor"), 1e-6, 1,
                               "a number above 0 and up to 1", &part, NULL));
    out->rotary = (uint32_t)(out->head_dim * part);
    EXL2__TRY(exl2__fields_u32(f, EXL2__FIELD_NAMES("rotary_dim"), 0, out->head_dim, &out->rotary));
    if (out->rotary % 2 != 0 || out->rotary == 0) {
        return exl2__fail(f->c, EXL2_ERR_FORMAT,
                          "%s: partial_rotary_factor and head_dim=%u give %u rotated elements, expected an even number "
                          "above 0", f->label, out->head_dim, out->rotary);
    }
    EXL2__TRY(exl2__rope_read(f, out->rotary, out->context_max, &out->rope));
    EXL2__TRY(EXL2__CONFIG_NUMBER(f, EXL2__ROPE_NAMES("llama_4_scaling_beta"), 0, 1e3, &out->query_growth));
    if (out->query_growth > 0) {
        double original;
        EXL2__TRY(exl2__rope_read_original(f, 0, &original));
        out->query_context = (float)original;
    }
    return exl2__config_read_local_rope(f, out);
}

/* ---- special tokens ---- */

/* Reads a token id. *out is -1 if the model cannot produce the token: its id is negative (some files write "none" so)
   or not in the vocabulary. */
EXL2__PRIVATE exl2_result exl2__config_token(const exl2__fields *f, const char *name, uint32_t token, uint32_t vocab,
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

EXL2__PRIVATE exl2_result exl2__config_add_eos(const exl2__fields *f, uint32_t token, exl2__config *out)
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
EXL2__PRIVATE exl2_result exl2__config_read_tokens(const exl2__fields *f, exl2__config *out)
{
    uint32_t bos = exl2__fields_find(f, EXL2__FIELD_NAMES("bos_token_id"), NULL);
    if (bos && f->json.tokens[bos].kind == EXL2__JSON_ARRAY) {
        bos = exl2__json_first(&f->json, bos);
    }
    if (bos && out->bos < 0) {
        EXL2__TRY(exl2__config_token(f, "bos_token_id", bos, out->vocab, &out->bos));
    }
    uint32_t eos = exl2__fields_find(f, EXL2__FIELD_NAMES("eos_token_id"), NULL);
    if (!eos || f->json.tokens[eos].kind != EXL2__JSON_ARRAY) {
        return eos ? exl2__config_add_eos(f, eos, out) : EXL2_OK;
    }
    for (uint32_t at = exl2__json_first(&f->json, eos); at; at = exl2__json_next(&f->json, eos, at)) {
        EXL2__TRY(exl2__config_add_eos(f, at, out));
    }
    return EXL2_OK;
}

/* ---- generation_config.json ---- */

/* A sampler's value that makes no sense is no reason not to load a model: it is as if the file did not have it. */
EXL2__PRIVATE void exl2__config_ignore_default(const exl2__fields *f, const char *name, uint32_t token,
                                               const char *allowed)
{
    char value[48];
    exl2__fields_value(f, token, value);
    exl2__log(f->c, EXL2_LOG_WARN, EXL2_LOG_ID_SETTING_IGNORED, "%s: %s=%s is ignored, expected %s", f->label, name,
              value, allowed);
}

/* *present: the file has the value, and it is from min to max. */
EXL2__PRIVATE void exl2__config_default(const exl2__fields *f, const char *name, double min, double max,
                                        const char *allowed, float *out, bool *present)
{
    double value = 0;
    uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES(name), NULL);
    *present = token && exl2__json_f64(&f->json, token, &value) && value >= min && value <= max;
    *out = (float)value;
    if (token && !*present) {
        exl2__config_ignore_default(f, name, token, allowed);
    }
}

EXL2__PRIVATE void exl2__config_read_defaults(const exl2__fields *f, exl2__config_defaults *d)
{
    exl2__config_default(f, "temperature", 0, 1000, "a number from 0 to 1000", &d->temperature, &d->has_temperature);
    exl2__config_default(f, "top_p", 0, 1, "a number from 0 to 1", &d->top_p, &d->has_top_p);
    exl2__config_default(f, "min_p", 0, 1, "a number from 0 to 1", &d->min_p, &d->has_min_p);
    exl2__config_default(f, "repetition_penalty", 0.01, 100, "a number from 0.01 to 100", &d->repeat_penalty,
                         &d->has_repeat_penalty);
    int64_t top_k = 0;
    uint32_t token = exl2__fields_find(f, EXL2__FIELD_NAMES("top_k"), NULL);
    d->has_top_k = token && exl2__json_i64(&f->json, token, &top_k) && top_k >= -1 && top_k <= INT32_MAX;
    d->top_k = d->has_top_k && top_k > 0 ? (uint32_t)top_k : 0; /* -1 is how other engines say that it is off */
    if (token && !d->has_top_k) {
        exl2__config_ignore_default(f, "top_k", token, "an integer from 0 to 2147483647, or -1");
    }
    token = exl2__fields_find(f, EXL2__FIELD_NAMES("do_sample"), NULL);
    d->has_do_sample = token && exl2__json_bool(&f->json, token, &d->do_sample);
    if (token && !d->has_do_sample) {
        exl2__config_ignore_default(f, "do_sample", token, "true or false");
    }
}

/* ---- all ---- */

EXL2__PRIVATE exl2_result exl2__config_read_model(exl2__fields *f, const char *dir, exl2__config *out)
{
    if (f->nested && f->json.tokens[f->nested].kind != EXL2__JSON_OBJECT) {
        return exl2__fields_bad(f, "text_config", f->nested, "an object");
    }
    EXL2__TRY(exl2__config_read_arch(f, out));
#ifdef EXL2_NO_MOE
    EXL2__TRY(exl2__experts_reject(f, &out->arch));
#endif
    f->defaults = out->arch.defaults;
    EXL2__TRY(exl2__config_check_unsupported(f, out));
    EXL2__TRY(exl2__quant_read(f, dir, &out->quant));
    EXL2__TRY(exl2__config_read_act(f, out));
    EXL2__TRY(exl2__config_read_sizes(f, out));
    EXL2__TRY(exl2__config_read_factors(f, out));
    EXL2__TRY(exl2__config_read_switches(f, out));
    EXL2__TRY(exl2__config_read_positions(f, out));
    EXL2__TRY(exl2__layers_read(f, out));
    return exl2__config_read_tokens(f, out);
}

EXL2__PRIVATE exl2_result exl2__config_read_generation(const exl2__fields *f, exl2__config *out)
{
    exl2__config_read_defaults(f, &out->defaults);
    return exl2__config_read_tokens(f, out);
}

EXL2__PRIVATE exl2_result exl2__config_open_generation(exl2__ctx *c, const char *dir, exl2__config *out)
{
    exl2__fields f;
    exl2_result result = EXL2_OK;
    EXL2__TRY(exl2__fields_open(c, dir, "generation_config.json", true, &f));
    if (f.text.data) {
        result = exl2__config_read_generation(&f, out);
    }
    exl2__fields_close(&f);
    return result;
}

/* Whether a name ends with ".gguf". */
static inline bool exl2__config_is_gguf(const char *name)
{
    static const char ending[] = ".gguf";
    size_t bytes = strlen(name), at = 0;
    while (bytes >= 5 && at < 5 && (name[bytes - 5 + at] | 0x20) == (ending[at] | 0x20)) {
        at++;
    }
    return at == 5;
}

#define EXL2__CONFIG_ENTRIES 100u /* of a folder without config.json that are looked at */

/* There is no config.json. A GGUF file in the folder, or in place of it, is the usual reason. */
EXL2__PRIVATE exl2_result exl2__config_absent(exl2__ctx *c, const char *dir)
{
    char name[EXL2__FILE_NAME_MAX];
    if (exl2__config_is_gguf(dir)) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: a model is a folder; a GGUF file must be imported (exl2 import)", dir);
    }
    for (uint32_t i = 0; i < EXL2__CONFIG_ENTRIES && c->files.list(c->files.user, dir, i, name, sizeof name); i++) {
        name[sizeof name - 1] = 0;
        if (exl2__config_is_gguf(name)) {
            return exl2__fail(c, EXL2_ERR_IO, "no config.json in %s, but %s: a GGUF file must be imported (exl2 "
                              "import)", dir, name);
        }
    }
    return exl2__fail(c, EXL2_ERR_IO, "no config.json in %s", dir);
}

/* Reads config.json, which must exist, and generation_config.json, if it exists. Messages name the file, the field, its
   value and the allowed values. */
EXL2__PRIVATE exl2_result exl2__config_read(exl2__ctx *c, const char *dir, exl2__config *out)
{
    exl2__fields f;
    *out = (exl2__config){ 0 };
    out->bos = -1;
    EXL2__TRY(exl2__fields_open(c, dir, "config.json", true, &f));
    if (!f.text.data) {
        return exl2__config_absent(c, dir);
    }
    exl2_result result = exl2__config_read_model(&f, dir, out);
    exl2__fields_close(&f);
    EXL2__TRY(result);
    return exl2__config_open_generation(c, dir, out);
}

/* The family, as far as a text depends on it. None is rejected: one that is not supported has no traits. */
EXL2__PRIVATE void exl2__config_text_arch(const exl2__fields *f, exl2__arch *out)
{
    char name[64] = "", type[64] = "", nested[64] = "";
    uint32_t list = exl2__json_get(&f->json, 0, "architectures");
    const uint32_t tokens[3] = {
        list && f->json.tokens[list].kind == EXL2__JSON_ARRAY ? exl2__json_first(&f->json, list) : 0,
        exl2__json_get(&f->json, 0, "model_type"),
        f->nested ? exl2__json_get(&f->json, f->nested, "model_type") : 0,
    };
    char *const texts[3] = { name, type, nested };
    for (uint32_t i = 0; i < 3; i++) {
        if (tokens[i] && f->json.tokens[tokens[i]].kind == EXL2__JSON_STRING) {
            exl2__json_text(&f->json, tokens[i], texts[i], sizeof name - 1);
        }
    }
    const exl2__arch_row *row = exl2__arch_find(name);
    row = row ? row : exl2__arch_find_type(type);
    const exl2__arch_row *inner = row && row->text_of_multimodal ? exl2__arch_find_type(nested) : NULL;
    if (row) {
        exl2__arch_resolve(inner && !inner->text_of_multimodal ? inner : row, out);
    }
}

/* What a text needs of config.json and generation_config.json, for a model whose weights are not loaded: the tokens,
   the family, the sampler's defaults. Both files may be missing. */
EXL2__PRIVATE exl2_result exl2__config_read_text(exl2__ctx *c, const char *dir, exl2__config *out)
{
    exl2__fields f;
    exl2_result result = EXL2_OK;
    *out = (exl2__config){ 0 };
    out->bos = -1;
    out->vocab = EXL2__CONFIG_VOCAB_MAX; /* any id fits, if no file says how many there are */
    EXL2__TRY(exl2__fields_open(c, dir, "config.json", true, &f));
    if (f.text.data) {
        exl2__config_text_arch(&f, &out->arch);
        f.defaults = out->arch.defaults;
        result = exl2__fields_u32(&f, EXL2__FIELD_NAMES("vocab_size"), 1, EXL2__CONFIG_VOCAB_MAX, &out->vocab);
        result = result < 0 ? result : exl2__config_read_tokens(&f, out);
    }
    exl2__fields_close(&f);
    EXL2__TRY(result);
    return exl2__config_open_generation(c, dir, out);
}

/* RoPE as the application wants it in place of the model's own; zeroed: the model's. */
typedef struct exl2__config_rope {
    float scale, alpha, yarn; /* as in exl2_model_desc */
} exl2__config_rope;

/* Applies it, also to the context. Layers with a window and a RoPE of their own keep it. */
EXL2__PRIVATE exl2_result exl2__config_stretch(exl2__ctx *c, const char *path, const exl2__config_rope *rope,
                                               exl2__config *config)
{
    double scale = (double)rope->scale, alpha = (double)rope->alpha, yarn = (double)rope->yarn;
    if (!(scale > 0 || alpha > 0 || yarn > 0)) {
        return EXL2_OK;
    }
    if (config->rotary == 0) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "%s: rope_scale, rope_alpha and yarn_factor cannot stretch learned positions", path);
    }
    if (yarn > 0 && config->rope.theta <= 1) {
        return exl2__fail(c, EXL2_ERR_ARG, "%s: yarn_factor needs a rope_theta above 1", path);
    }
    double context = exl2__rope_override(&config->rope, config->rotary, config->context_max, scale, alpha, yarn);
    config->context_max = context < EXL2__CONFIG_CONTEXT_MAX ? (uint32_t)context : EXL2__CONFIG_CONTEXT_MAX;
    return EXL2_OK;
}

/* Why such settings are wrong; NULL: they are not. */
static inline const char *exl2__config_rope_wrong(const exl2__config_rope *rope)
{
    const float values[3] = { rope->scale, rope->alpha, rope->yarn };
    for (uint32_t i = 0; i < 3; i++) {
        bool fits = (values[i] >= 0 && values[i] <= 0) || (values[i] >= 1 && values[i] <= 1000); /* false for NaN */
        if (!fits) {
            return "rope_scale, rope_alpha and yarn_factor are 0 or from 1 to 1000";
        }
    }
    return rope->scale > 0 && rope->yarn > 0 ? "rope_scale and yarn_factor are both set" : NULL;
}

#endif
