/* import_config.h: the llama.* keys of a GGUF file -> config.json and generation_config.json of an EXL2 folder.
   takes: an open GGUF file.
   gives: exl2__import_config, exl2__import_config_read, exl2__import_config_write.
   owns:  nothing.
   next:  import_text.h */
#ifndef EXL2__IMPORT_CONFIG_H
#define EXL2__IMPORT_CONFIG_H

#include "gguf.h"
#include "pack.h"
#include "write.h"

#include <math.h>

typedef enum exl2__import_rope { EXL2__IMPORT_ROPE_PLAIN, EXL2__IMPORT_ROPE_LINEAR, EXL2__IMPORT_ROPE_LLAMA3 } exl2__import_rope;

typedef struct exl2__import_config {
    uint32_t layers, hidden, inter, heads, kv_heads, head_dim, context, vocab; /* vocab: rows of the embedding */
    float norm_eps, rope_theta;
    exl2__import_rope rope;
    float rope_factor;
    uint32_t rope_original_context; /* LLAMA3 */
    bool tied, attention_bias, mlp_bias;
    uint32_t bits, group, head_bits; /* of the folder to make */
} exl2__import_config;

#define EXL2__IMPORT_LLAMA3_LOW 1.0f /* low_freq_factor and high_freq_factor of every Llama 3.x; GGUF does not keep them */
#define EXL2__IMPORT_LLAMA3_HIGH 4.0f

/* ---- reading ---- */

/* Keys that change what the model computes, in ways this importer does not follow: absent or neutral, or refused. */
static exl2_result exl2__import_config_refuse(const exl2__gguf *g)
{
    static const struct {
        const char *key;
        float neutral;
    } keys[] = {
        { "llama.logit_scale", 1 }, { "llama.embedding_scale", 1 }, { "llama.residual_scale", 1 }, { "llama.attention.scale", 0 },
        { "llama.attn_logit_softcapping", 0 }, { "llama.final_logit_softcapping", 0 }, { "llama.attention.clamp_kqv", 0 },
    };
    uint32_t experts = 0;
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.expert_count", &experts));
    if (experts > 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: llama.expert_count is %u; mixtures of experts are not imported", g->path, experts);
    }
    for (size_t i = 0; i < EXL2__COUNT(keys); i++) {
        float value = keys[i].neutral;
        EXL2__TRY(exl2__gguf_get_f32(g, keys[i].key, &value));
        if (value != keys[i].neutral) {
            return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: a model with %s is not imported", g->path, keys[i].key);
        }
    }
    return EXL2_OK;
}

/* A required size in [least, most], a multiple of `unit`. */
static exl2_result exl2__import_config_size(const exl2__gguf *g, const char *key, uint32_t least, uint32_t most, uint32_t unit, uint32_t *value)
{
    if (!exl2__gguf_key(g, key) && *value == 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is missing", g->path, key);
    }
    EXL2__TRY(exl2__gguf_get_u32(g, key, value));
    if (*value < least || *value > most || *value % unit != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %s is %u; %u to %u in steps of %u are possible", g->path, key, *value, least,
                          most, unit);
    }
    return EXL2_OK;
}

static exl2_result exl2__import_config_attention(const exl2__gguf *g, exl2__import_config *m)
{
    uint32_t value_dim, rope_dim;
    EXL2__TRY(exl2__import_config_size(g, "llama.attention.head_count", 1, 4096, 1, &m->heads));
    m->kv_heads = m->heads;
    EXL2__TRY(exl2__import_config_size(g, "llama.attention.head_count_kv", 1, m->heads, 1, &m->kv_heads));
    if (m->heads % m->kv_heads != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %u heads cannot share %u KV heads", g->path, m->heads, m->kv_heads);
    }
    m->head_dim = m->hidden / m->heads;
    EXL2__TRY(exl2__import_config_size(g, "llama.attention.key_length", 2, 1024, 2, &m->head_dim));
    value_dim = rope_dim = m->head_dim;
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.attention.value_length", &value_dim));
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.rope.dimension_count", &rope_dim));
    if (value_dim != m->head_dim || rope_dim != m->head_dim) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: keys of %u, values of %u and rotations of %u numbers a head; only equal ones are imported",
                          g->path, m->head_dim, value_dim, rope_dim);
    }
    if (m->heads * m->head_dim % EXL2__PACK_UNIT != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %u heads of %u make an attention width that is not a multiple of %u", g->path,
                          m->heads, m->head_dim, EXL2__PACK_UNIT);
    }
    return EXL2_OK;
}

/* What a frequency is divided by under Llama 3's scaling (rope_type llama3), frequency i of dims / 2. */
static double exl2__import_config_llama3_factor(const exl2__import_config *m, uint32_t i, float factor, uint32_t original_context)
{
    double frequency = pow((double)m->rope_theta, -2.0 * i / m->head_dim);
    double turns = original_context * frequency / 6.283185307179586; /* in the original context */
    double blend = (turns - EXL2__IMPORT_LLAMA3_LOW) / (EXL2__IMPORT_LLAMA3_HIGH - EXL2__IMPORT_LLAMA3_LOW);
    blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
    return 1.0 / ((1.0 - blend) / factor + blend);
}

/* GGUF keeps Llama 3's scaling as a table of divisors, rope_freqs.weight; find the numbers that it was made from. */
static exl2_result exl2__import_config_rope_table(exl2__gguf *g, exl2__gguf_tensor *table, exl2__import_config *m)
{
    uint8_t bytes[512 * 4];
    float stored[512];
    uint32_t count = m->head_dim / 2, contexts[2] = { 8192, 8192 };
    table->used = true;
    if (table->type->id != 0 || table->dims[0] != count || table->bytes != count * 4) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: rope_freqs.weight is %s with %llu numbers, expected F32 with %u", g->path,
                          table->type->name, (unsigned long long)(table->bytes / 4), count);
    }
    EXL2__TRY(exl2__gguf_read(g, table->offset, bytes, table->bytes));
    exl2__gguf_types_read(table->type, bytes, count, stored);
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.rope.scaling.original_context_length", &contexts[0]));
    float factor = stored[count - 1];
    for (uint32_t k = 0; k < 2; k++) {
        bool same = factor >= 1.0f && exl2__float_is_finite(factor);
        for (uint32_t i = 0; same && i < count; i++) {
            double wanted = exl2__import_config_llama3_factor(m, i, factor, contexts[k]);
            same = exl2__float_is_finite(stored[i]) && fabs(stored[i] - wanted) < 1e-3 * wanted;
        }
        if (same) {
            m->rope = factor > 1.0f ? EXL2__IMPORT_ROPE_LLAMA3 : EXL2__IMPORT_ROPE_PLAIN;
            m->rope_factor = factor;
            m->rope_original_context = contexts[k];
            return EXL2_OK;
        }
    }
    return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: rope_freqs.weight is not the scaling of Llama 3; other tables are not imported", g->path);
}

static exl2_result exl2__import_config_rope(exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text kind = { "none", 4 };
    float old_factor = 1;
    m->rope_theta = 10000;
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.freq_base", &m->rope_theta));
    if (!(m->rope_theta > 0)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: llama.rope.freq_base is not positive", g->path);
    }
    m->rope_factor = 1;
    EXL2__TRY(exl2__gguf_get_text(g, "llama.rope.scaling.type", &kind));
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.scale_linear", &old_factor));
    bool linear = kind.bytes == 6 && memcmp(kind.data, "linear", 6) == 0;
    if (linear) {
        EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.scaling.factor", &m->rope_factor));
    } else if (kind.bytes != 4 || memcmp(kind.data, "none", 4) != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: llama.rope.scaling.type is not linear or none; others are not imported", g->path);
    }
    m->rope_factor = m->rope_factor == 1 ? old_factor : m->rope_factor;
    if (!(m->rope_factor >= 1)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the factor of RoPE scaling is below 1", g->path);
    }
    m->rope = m->rope_factor != 1 ? EXL2__IMPORT_ROPE_LINEAR : EXL2__IMPORT_ROPE_PLAIN;
    exl2__gguf_tensor *table = exl2__gguf_tensor_find(g, "rope_freqs.weight");
    if (!table) {
        return EXL2_OK;
    }
    if (m->rope == EXL2__IMPORT_ROPE_LINEAR) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: linear RoPE scaling and rope_freqs.weight at once are not imported", g->path);
    }
    return exl2__import_config_rope_table(g, table, m);
}

/* Everything but the biases, which exl2__import_model_plan finds. */
static exl2_result exl2__import_config_read(exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text arch = { NULL, 0 };
    EXL2__TRY(exl2__gguf_get_text(g, "general.architecture", &arch));
    if (arch.bytes != 5 || memcmp(arch.data, "llama", 5) != 0) {
        bool printable = arch.bytes > 0 && arch.bytes < 32;
        for (uint64_t i = 0; printable && i < arch.bytes; i++) {
            printable = arch.data[i] >= 0x20 && arch.data[i] < 0x7F;
        }
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: general.architecture is %.*s; only llama is imported", g->path,
                          printable ? (int)arch.bytes : 7, printable ? arch.data : "missing");
    }
    EXL2__TRY(exl2__import_config_refuse(g));
    EXL2__TRY(exl2__import_config_size(g, "llama.block_count", 1, 1024, 1, &m->layers));
    EXL2__TRY(exl2__import_config_size(g, "llama.context_length", 1, INT32_MAX, 1, &m->context));
    EXL2__TRY(exl2__import_config_size(g, "llama.embedding_length", 32, 65504, EXL2__PACK_UNIT, &m->hidden));
    EXL2__TRY(exl2__import_config_size(g, "llama.feed_forward_length", 32, 65504, EXL2__PACK_UNIT, &m->inter));
    EXL2__TRY(exl2__import_config_attention(g, m));
    EXL2__TRY(exl2__import_config_rope(g, m));
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.attention.layer_norm_rms_epsilon", &m->norm_eps));
    if (!(m->norm_eps > 0)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: llama.attention.layer_norm_rms_epsilon is missing or not positive", g->path);
    }
    const exl2__gguf_tensor *embedding = exl2__gguf_tensor_find(g, "token_embd.weight");
    if (!embedding || embedding->dim_count != 2 || embedding->dims[1] > INT32_MAX / 4) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor token_embd.weight is missing or not a matrix", g->path);
    }
    m->vocab = (uint32_t)embedding->dims[1];
    m->tied = !exl2__gguf_tensor_find(g, "output.weight");
    return EXL2_OK;
}

/* ---- writing ---- */

/* Token ids of tokenizer.ggml.*, -1 where the file has none. */
typedef struct exl2__import_ids {
    int32_t bos, eos, eot, eom, unk, pad;
} exl2__import_ids;

static exl2_result exl2__import_config_id(const exl2__gguf *g, const char *key, uint32_t vocab, int32_t *id)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, key);
    uint32_t value = 0;
    *id = -1;
    if (!pair || ((pair->kind == EXL2__GGUF_U32 || pair->kind == EXL2__GGUF_I32) && exl2__load32(pair->data) == UINT32_MAX)) {
        return EXL2_OK; /* some writers store -1 for "none" */
    }
    EXL2__TRY(exl2__gguf_get_u32(g, key, &value));
    if (value >= vocab) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is %u, the vocabulary has %u tokens", g->path, key, value, vocab);
    }
    *id = (int32_t)value;
    return EXL2_OK;
}

static exl2_result exl2__import_config_ids(const exl2__gguf *g, uint32_t vocab, exl2__import_ids *ids)
{
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.bos_token_id", vocab, &ids->bos));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eos_token_id", vocab, &ids->eos));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eot_token_id", vocab, &ids->eot));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eom_token_id", vocab, &ids->eom));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.unknown_token_id", vocab, &ids->unk));
    return exl2__import_config_id(g, "tokenizer.ggml.padding_token_id", vocab, &ids->pad);
}

/* ,\n    "name": id (or nothing); the end tokens are a list when there are several. */
static void exl2__import_config_write_ids(exl2__write *w, const exl2__import_ids *ids)
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

static void exl2__import_config_write_rope(exl2__write *w, const exl2__import_config *m)
{
    exl2__write_format(w, ",\n    \"rope_theta\": ");
    exl2__write_float(w, m->rope_theta);
    if (m->rope != EXL2__IMPORT_ROPE_PLAIN) {
        exl2__write_format(w, ",\n    \"rope_scaling\": {\n        \"rope_type\": \"%s\",\n        \"factor\": ",
                           m->rope == EXL2__IMPORT_ROPE_LINEAR ? "linear" : "llama3");
        exl2__write_float(w, m->rope_factor);
        if (m->rope == EXL2__IMPORT_ROPE_LLAMA3) {
            exl2__write_format(w, ",\n        \"low_freq_factor\": ");
            exl2__write_float(w, EXL2__IMPORT_LLAMA3_LOW);
            exl2__write_format(w, ",\n        \"high_freq_factor\": ");
            exl2__write_float(w, EXL2__IMPORT_LLAMA3_HIGH);
            exl2__write_format(w, ",\n        \"original_max_position_embeddings\": %u", m->rope_original_context);
        }
        exl2__write_format(w, "\n    }");
    }
}

static void exl2__import_config_write_model(exl2__write *w, const exl2__import_config *m, const exl2__import_ids *ids)
{
    exl2__write_format(w, "{\n    \"architectures\": [\n        \"LlamaForCausalLM\"\n    ],\n    \"model_type\": \"llama\"");
    exl2__write_format(w, ",\n    \"hidden_size\": %u,\n    \"intermediate_size\": %u,\n    \"num_hidden_layers\": %u", m->hidden, m->inter, m->layers);
    exl2__write_format(w, ",\n    \"num_attention_heads\": %u,\n    \"num_key_value_heads\": %u,\n    \"head_dim\": %u", m->heads, m->kv_heads, m->head_dim);
    exl2__write_format(w, ",\n    \"vocab_size\": %u,\n    \"max_position_embeddings\": %u,\n    \"rms_norm_eps\": ", m->vocab, m->context);
    exl2__write_float(w, m->norm_eps);
    exl2__import_config_write_rope(w, m);
    exl2__write_format(w, ",\n    \"hidden_act\": \"silu\",\n    \"tie_word_embeddings\": %s", m->tied ? "true" : "false");
    exl2__write_format(w, ",\n    \"attention_bias\": %s,\n    \"mlp_bias\": %s", m->attention_bias ? "true" : "false", m->mlp_bias ? "true" : "false");
    exl2__import_config_write_ids(w, ids);
    exl2__write_format(w, ",\n    \"torch_dtype\": \"float16\",\n    \"quantization_config\": {\n        \"quant_method\": \"exl2\"");
    exl2__write_format(w, ",\n        \"version\": \"exl2.h %d.%d.%d\",\n        \"bits\": %u.0,\n        \"head_bits\": %u", EXL2_VERSION / 10000,
                       EXL2_VERSION / 100 % 100, EXL2_VERSION % 100, m->bits, m->head_bits);
    exl2__write_format(w, ",\n        \"calibration\": {\n            \"rows\": 0,\n            \"length\": 0,\n            \"dataset\": \"(none)\"\n        }\n    }\n}\n");
}

/* config.json and generation_config.json in `dir`. */
static exl2_result exl2__import_config_write(exl2__ctx *c, const char *dir, const exl2__import_config *m, const exl2__import_ids *ids)
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
