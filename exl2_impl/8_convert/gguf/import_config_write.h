/* import_config_write.h: writes config.json and generation_config.json of an imported model.
   takes: what import_config.h has read.
   gives: exl2__import_config_write. */
#ifndef EXL2__IMPORT_CONFIG_WRITE_H
#define EXL2__IMPORT_CONFIG_WRITE_H

#include "../write.h"
#include "import_config.h"

/* Writes ,\n    "field": value */
EXL2__PRIVATE void exl2__import_config_write_float(exl2__write *w, const char *field, float value)
{
    exl2__write_format(w, ",\n    \"%s\": ", field);
    exl2__write_float(w, value);
}

/* Writes ,\n    "name": id for each id that is not -1. If there are several end tokens, they are a list. */
EXL2__PRIVATE void exl2__import_config_write_ids(exl2__write *w, const exl2__import_ids *ids)
{
    int32_t ends[3] = { ids->eos, ids->eot, ids->eom };
    uint32_t count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        bool seen = ends[i] < 0;
        for (uint32_t k = 0; k < count; k++) {
            seen = seen || ends[k] == ends[i];
        }
        if (!seen) {
            ends[count++] = ends[i];
        }
    }
    if (ids->bos >= 0) {
        exl2__write_format(w, ",\n    \"bos_token_id\": %d", ids->bos);
    }
    if (count > 0) {
        exl2__write_format(w, ",\n    \"eos_token_id\": %s%d", count > 1 ? "[" : "", ends[0]);
        for (uint32_t i = 1; i < count; i++) {
            exl2__write_format(w, ", %d", ends[i]);
        }
        exl2__write_format(w, "%s", count > 1 ? "]" : "");
    }
    if (ids->pad >= 0) {
        exl2__write_format(w, ",\n    \"pad_token_id\": %d", ids->pad);
    }
}

/* Writes the start of a list of numbers, or its next number. */
EXL2__PRIVATE void exl2__import_config_write_item(exl2__write *w, uint32_t index, float value)
{
    exl2__write_format(w, index ? ", " : "[");
    exl2__write_float(w, value);
}

EXL2__PRIVATE void exl2__import_config_write_scaling(exl2__write *w, const exl2__rope *rope, uint32_t rotary)
{
    static const char *const kinds[] = { [EXL2__ROPE_LINEAR] = "linear", [EXL2__ROPE_LLAMA3] = "llama3",
                                         [EXL2__ROPE_YARN] = "yarn", [EXL2__ROPE_LONGROPE] = "longrope" };
    exl2__rope computed = *rope;
    computed.attention_factor = 0;
    if (rope->kind == EXL2__ROPE_LONGROPE) { /* where Phi-3's files have it */
        exl2__write_format(w, ",\n    \"original_max_position_embeddings\": %u", (uint32_t)rope->original_context_max);
    }
    exl2__write_format(w, ",\n    \"rope_scaling\": {\n        \"%s\": \"%s\"",
                       rope->kind == EXL2__ROPE_LONGROPE ? "type" : "rope_type", kinds[rope->kind]);
    if (rope->kind != EXL2__ROPE_LONGROPE) {
        exl2__write_format(w, ",\n        \"factor\": ");
        exl2__write_float(w, (float)rope->factor);
    }
    if (rope->kind == EXL2__ROPE_LLAMA3 || rope->kind == EXL2__ROPE_YARN) {
        bool yarn = rope->kind == EXL2__ROPE_YARN;
        exl2__write_format(w, ",\n        \"%s\": ", yarn ? "beta_slow" : "low_freq_factor");
        exl2__write_float(w, (float)rope->low);
        exl2__write_format(w, ",\n        \"%s\": ", yarn ? "beta_fast" : "high_freq_factor");
        exl2__write_float(w, (float)rope->high);
        exl2__write_format(w, ",\n        \"original_max_position_embeddings\": %u",
                           (uint32_t)rope->original_context_max);
        exl2__write_format(w, yarn && !rope->rounded ? ",\n        \"truncate\": false" : "");
    }
    for (uint32_t list = 0; rope->kind == EXL2__ROPE_LONGROPE && list < 2; list++) {
        exl2__write_format(w, ",\n        \"%s\": ", list ? "long_factor" : "short_factor");
        for (uint32_t i = 0; i < rotary / 2; i++) {
            exl2__import_config_write_item(w, i, (list ? rope->long_factor : rope->short_factor)[i]);
        }
        exl2__write_format(w, "]");
    }
    /* Some readers of Phi-3's files reject other members than these, so a magnitude is not written that they find out
       themselves. */
    if (rope->attention_factor > 0 &&
        fabs(rope->attention_factor - exl2__rope_magnitude(&computed)) > 1e-6 * rope->attention_factor) {
        exl2__write_format(w, ",\n        \"attention_factor\": ");
        exl2__write_float(w, (float)rope->attention_factor);
    }
    exl2__write_format(w, "\n    }");
}

/* The part of a head that RoPE rotates. Readers round head_dim times this number down. */
EXL2__PRIVATE void exl2__import_config_write_part(exl2__write *w, const exl2__import_config *m)
{
    double part = (double)m->rotary / m->head_dim;
    bool exact = (uint64_t)m->rotary * 1000000 % m->head_dim == 0 && (uint32_t)(m->head_dim * part) == m->rotary;
    bool has_default = false;
    for (const exl2__field_default *d = m->arch.defaults; d && d->name; d++) {
        has_default = has_default || strcmp(d->name, "partial_rotary_factor") == 0;
    }
    if (m->rotary != m->head_dim || has_default) {
        exl2__import_config_write_float(w, "partial_rotary_factor",
                                        exact ? (float)part : (float)((m->rotary + 0.5) / m->head_dim));
    }
}

EXL2__PRIVATE void exl2__import_config_write_positions(exl2__write *w, const exl2__import_config *m)
{
    if (m->rotary == 0) {
        return;
    }
    exl2__import_config_write_part(w, m);
    exl2__import_config_write_float(w, "rope_theta", (float)m->rope.theta);
    if (m->arch.traits[EXL2__TRAIT_LOCAL_ROPE] == EXL2__LOCAL_ROPE_BASE) {
        exl2__import_config_write_float(w, "rope_local_base_freq", m->local_theta);
    }
    if (m->rope.kind != EXL2__ROPE_PLAIN) {
        exl2__import_config_write_scaling(w, &m->rope, m->rotary);
    }
}

EXL2__PRIVATE void exl2__import_config_write_windows(exl2__write *w, const exl2__import_config *m)
{
    if (m->window == 0) {
        return;
    }
    exl2__write_format(w, ",\n    \"sliding_window\": %u", m->window);
    if (!m->windowed && m->arch.traits[EXL2__TRAIT_WINDOW] == EXL2__WINDOW_PATTERN) {
        exl2__write_format(w, ",\n    \"sliding_window_pattern\": %u", m->window_period);
    }
    for (uint32_t i = 0; m->windowed && i < m->layers; i++) {
        exl2__write_format(w, "%s        \"%s_attention\"", i ? ",\n" : ",\n    \"layer_types\": [\n",
                           m->windowed[i] ? "sliding" : "full");
    }
    exl2__write_format(w, m->windowed ? "\n    ]" : "");
}

/* The factors, and what the file leaves out. */
EXL2__PRIVATE void exl2__import_config_write_numbers(exl2__write *w, const exl2__import_config *m)
{
    const exl2__import_family *f = m->family;
    for (uint32_t i = 0; i < EXL2__IMPORT_KEY_COUNT; i++) {
        float value = m->numbers[i];
        if (f->from_sizes && i == EXL2__IMPORT_KEY_LOGIT_SCALE) {
            value = (float)m->hidden / value;
        } else if (f->from_sizes && i == EXL2__IMPORT_KEY_RESIDUAL_SCALE) {
            value = (float)((double)value * sqrt((double)m->layers));
        }
        if (m->numbers[i] > 0) {
            exl2__import_config_write_float(w, f->fields[i], value);
        }
    }
    if (f->wide_layers) {
        exl2__import_config_write_float(w, "query_pre_attn_scalar",
                                        m->layers == f->wide_layers ? (float)m->hidden / (float)m->heads
                                                                    : (float)m->head_dim);
    }
    if (f->extra) {
        exl2__write_format(w, ",\n    %s", f->extra);
    }
}

/* The layers without experts: how many are before the first one with experts, and the others in a list. */
EXL2__PRIVATE void exl2__import_config_write_dense_layers(exl2__write *w, const exl2__import_config *m)
{
    uint32_t first = 0, listed = 0;
    while (m->family->experts.dense && first < m->layers && !exl2__import_config_is_sparse(m, first)) {
        first++;
    }
    if (m->family->experts.dense) {
        exl2__write_format(w, ",\n    \"%s\": %u", m->family->experts.dense, first);
    }
    for (uint32_t i = first; i < m->layers; i++) {
        if (!exl2__import_config_is_sparse(m, i)) {
            exl2__write_format(w, "%s%u", listed++ ? ", " : ",\n    \"mlp_only_layers\": [", i);
        }
    }
    exl2__write_format(w, listed ? "]" : "");
}

EXL2__PRIVATE void exl2__import_config_write_experts(exl2__write *w, const exl2__import_config *m)
{
    const exl2__import_expert_fields *f = &m->family->experts;
    const exl2__experts *e = &m->experts;
    if (e->count == 0) {
        return;
    }
    exl2__write_format(w, ",\n    \"%s\": %u,\n    \"%s\": %u", f->count, e->count, f->active, e->active);
    if (m->expert_width) {
        exl2__write_format(w, ",\n    \"moe_intermediate_size\": %u", e->inter);
    }
    if (m->arch.traits[EXL2__TRAIT_RENORMALIZED] == EXL2__BY_CONFIG) {
        exl2__write_format(w, ",\n    \"norm_topk_prob\": %s", e->renormalized ? "true" : "false");
    }
    if (exl2__float_bits(e->scale) != exl2__float_bits(1.0f)) {
        exl2__import_config_write_float(w, "routed_scaling_factor", e->scale);
    }
    if (e->groups > 1) {
        exl2__write_format(w, ",\n    \"n_group\": %u,\n    \"topk_group\": %u", e->groups, e->groups_active);
    }
    if (f->shared && m->arch.names[EXL2__NAME_SHARED_DOWN][0]) {
        exl2__write_format(w, ",\n    \"%s\": %u", f->shared,
                           f->shared_multiple ? e->shared_inter / e->inter : e->shared_inter);
    }
    exl2__import_config_write_dense_layers(w, m);
}

EXL2__PRIVATE void exl2__import_config_write_model(exl2__write *w, const exl2__import_config *m,
                                                   const exl2__import_ids *ids)
{
    static const char *const acts[] = { [EXL2__ACT_SILU] = "silu", [EXL2__ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                        [EXL2__ACT_GELU] = "gelu", [EXL2__ACT_RELU_SQUARED] = "relu2",
                                        [EXL2__ACT_CLAMPED] = "silu" };
    const char *const yes_no[2] = { "false", "true" };
    const uint8_t *traits = m->arch.traits;
    exl2__write_format(w, "{\n    \"architectures\": [\n        \"%s\"\n    ]", m->arch.name);
    exl2__write_format(w, ",\n    \"model_type\": \"%s\",\n    \"hidden_act\": \"%s\",\n    \"torch_dtype\": "
                          "\"float16\"", m->arch.type, acts[traits[EXL2__TRAIT_ACT]]);
    exl2__write_format(w, ",\n    \"hidden_size\": %u,\n    \"intermediate_size\": %u", m->hidden, m->inter);
    exl2__write_format(w, ",\n    \"num_hidden_layers\": %u,\n    \"num_attention_heads\": %u", m->layers, m->heads);
    exl2__write_format(w, ",\n    \"num_key_value_heads\": %u,\n    \"head_dim\": %u", m->kv_heads, m->head_dim);
    exl2__write_format(w, ",\n    \"vocab_size\": %u,\n    \"max_position_embeddings\": %u", m->vocab, m->context);
    exl2__import_config_write_float(w, m->arch.names[EXL2__NAME_EPS], m->norm_eps);
    exl2__import_config_write_positions(w, m);
    exl2__import_config_write_windows(w, m);
    exl2__import_config_write_experts(w, m);
    exl2__import_config_write_numbers(w, m);
    exl2__write_format(w, ",\n    \"tie_word_embeddings\": %s", yes_no[m->tied]);
    exl2__write_format(w, ",\n    \"attention_bias\": %s", yes_no[m->attention_bias]);
    exl2__write_format(w, ",\n    \"mlp_bias\": %s", yes_no[m->mlp_bias]);
    if (traits[EXL2__TRAIT_QK_NORM] == EXL2__QK_NORM_BY_CONFIG) {
        exl2__write_format(w, ",\n    \"use_qk_norm\": %s", yes_no[m->qk_norm == EXL2__QK_NORM_HEADS]);
    }
    if (traits[EXL2__TRAIT_PARALLEL] == EXL2__BY_CONFIG) {
        exl2__write_format(w, ",\n    \"use_parallel_residual\": %s", yes_no[m->parallel]);
    }
    exl2__import_config_write_ids(w, ids);
    if (m->bits != EXL2__IMPORT_DENSE_BITS) {
        exl2__write_format(w, ",\n    \"quantization_config\": {\n        \"quant_method\": \"exl2\"");
        exl2__write_format(w, ",\n        \"version\": \"exl2.h %d.%d.%d\"", EXL2_VERSION / 10000,
                           EXL2_VERSION / 100 % 100, EXL2_VERSION % 100);
        exl2__write_format(w, ",\n        \"bits\": %u.0,\n        \"head_bits\": %u", m->bits, m->head_bits);
        exl2__write_format(w, ",\n        \"calibration\": {\n            \"rows\": 0,\n            \"length\": 0");
        exl2__write_format(w, ",\n            \"dataset\": \"(none)\"\n        }\n    }");
    }
    exl2__write_format(w, "\n}\n");
}

/* Writes config.json and generation_config.json to `dir`. */
EXL2__PRIVATE exl2_result exl2__import_config_write(exl2__ctx *c, const char *dir, const exl2__import_config *m,
                                                    const exl2__import_ids *ids)
{
    char path[EXL2__FILE_PATH_MAX];
    exl2__write w;
    exl2__format(path, sizeof path, "%s/config.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    exl2__import_config_write_model(&w, m, ids);
    EXL2__TRY(exl2__write_close(&w));
    exl2__format(path, sizeof path, "%s/generation_config.json", dir);
    EXL2__TRY(exl2__write_open(c, path, &w));
    exl2__write_format(&w, "{\n    \"_from_model_config\": true");
    exl2__import_config_write_ids(&w, ids);
    exl2__write_format(&w, "\n}\n");
    return exl2__write_close(&w);
}

#endif
