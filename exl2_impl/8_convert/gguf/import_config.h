/* import_config.h: reads the llama.* keys of a GGUF file, and writes config.json and generation_config.json.
   takes: an open GGUF file.
   gives: exl2__import_config, exl2__import_config_read, exl2__import_config_write.
   owns:  nothing. */
#ifndef EXL2__IMPORT_CONFIG_H
#define EXL2__IMPORT_CONFIG_H

#include "../../1_load/model_rope.h"
#include "gguf.h"
#include "../pack.h"
#include "../write.h"

typedef struct exl2__import_config {
    uint32_t layers, hidden, inter, heads, kv_heads, head_dim, context, vocab; /* vocab: rows of the embedding */
    float norm_eps;
    exl2__rope rope;
    bool tied, attention_bias, mlp_bias;
    uint32_t bits, group, head_bits; /* settings of the import */
} exl2__import_config;

/* ---- reading ---- */

static inline bool exl2__import_config_is(exl2__gguf_text text, const char *wanted)
{
    return text.bytes == strlen(wanted) && memcmp(text.data, wanted, strlen(wanted)) == 0;
}

/* The text for a message. Untrusted text is quoted only if it is a short word of printable ASCII. */
static const char *exl2__import_config_show(exl2__gguf_text text, char out[32])
{
    bool plain = text.bytes > 0 && text.bytes < 32;
    for (uint64_t i = 0; plain && i < text.bytes; i++) {
        plain = text.data[i] > 0x20 && text.data[i] < 0x7F;
    }
    exl2__format(out, 32, "%.*s", plain ? (int)text.bytes : 12, plain ? text.data : "(not a word)");
    return text.bytes == 0 ? "missing" : out;
}

/* Rejects keys that change what the model computes in unsupported ways, unless they are absent or have the neutral
   value. */
static exl2_result exl2__import_config_check_keys(const exl2__gguf *g)
{
    static const struct {
        const char *key;
        float neutral;
    } keys[] = {
        { "llama.logit_scale", 1 },
        { "llama.embedding_scale", 1 },
        { "llama.residual_scale", 1 },
        { "llama.attention.scale", 0 },
        { "llama.attn_logit_softcapping", 0 },
        { "llama.final_logit_softcapping", 0 },
        { "llama.attention.clamp_kqv", 0 },
    };
    uint32_t experts = 0, parts = 1;
    EXL2__TRY(exl2__gguf_get_u32(g, "split.count", &parts));
    if (parts > 1) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: the file is one of %u parts of a model; join them first (llama-gguf-split --merge)",
                          g->path, parts);
    }
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.expert_count", &experts));
    if (experts > 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: llama.expert_count is %u, but mixtures of experts are not imported", g->path, experts);
    }
    for (size_t i = 0; i < EXL2__COUNT(keys); i++) {
        float value = keys[i].neutral;
        EXL2__TRY(exl2__gguf_get_f32(g, keys[i].key, &value));
        if (value != keys[i].neutral) {
            return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: key %s changes what the model computes, which is not imported", g->path,
                              keys[i].key);
        }
    }
    return EXL2_OK;
}

/* Reads a size in [least, most] that is a multiple of `unit`. It is required unless *value has a default, not 0. */
static exl2_result exl2__import_config_size(const exl2__gguf *g, const char *key, uint32_t least, uint32_t most,
                                            uint32_t unit, uint32_t *value)
{
    if (!exl2__gguf_key(g, key) && *value == 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is missing", g->path, key);
    }
    EXL2__TRY(exl2__gguf_get_u32(g, key, value));
    if (*value < least || *value > most || *value % unit != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %s is %u, expected %u to %u in steps of %u", g->path,
                          key, *value, least, most, unit);
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
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %u heads cannot share %u KV heads", g->path, m->heads,
                          m->kv_heads);
    }
    m->head_dim = m->hidden / m->heads;
    EXL2__TRY(exl2__import_config_size(g, "llama.attention.key_length", 2, 1024, 2, &m->head_dim));
    value_dim = rope_dim = m->head_dim;
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.attention.value_length", &value_dim));
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.rope.dimension_count", &rope_dim));
    if (value_dim != m->head_dim || rope_dim != m->head_dim) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: the dimensions of a head are %u for keys, %u for values and %u for RoPE; only equal "
                          "ones are imported",
                          g->path, m->head_dim, value_dim, rope_dim);
    }
    if (m->heads * m->head_dim % EXL2__PACK_UNIT != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %u heads of %u make an attention width that is not a multiple of %u", g->path, m->heads,
                          m->head_dim, EXL2__PACK_UNIT);
    }
    return EXL2_OK;
}

/* GGUF stores the RoPE scaling of Llama 3 as a table, rope_freqs.weight, with one divisor per frequency. This finds the
   parameters from which the table was computed. The low and high factors are 1 and 4 in every Llama 3.x; the original
   context is mostly 8,192. */
static exl2_result exl2__import_config_rope_table(exl2__gguf *g, exl2__gguf_tensor *table, exl2__import_config *m)
{
    uint8_t bytes[512 * 4];
    float divisors[512];
    double plain[512], scaled[512], magnitude;
    uint32_t count = m->head_dim / 2, contexts[2] = { 8192, 8192 };
    table->used = true;
    if (table->type->id != 0 || table->dims[0] != count || table->bytes != count * 4) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: rope_freqs.weight is %s with rows of %llu, expected F32 with rows of %u", g->path,
                          table->type->name, (unsigned long long)table->dims[0], count);
    }
    EXL2__TRY(exl2__gguf_read(g, table->offset, bytes, table->bytes));
    exl2__gguf_types_read(table->type, bytes, count, divisors);
    EXL2__TRY(exl2__gguf_get_u32(g, "llama.rope.scaling.original_context_length", &contexts[0]));
    exl2__rope_frequencies(&m->rope, m->head_dim, 1, plain, &magnitude);
    bool usable = exl2__float_is_finite(divisors[count - 1]) && divisors[count - 1] >= 1;
    for (uint32_t k = 0; usable && k < 2; k++) {
        exl2__rope rope = { .kind = EXL2__ROPE_LLAMA3, .theta = m->rope.theta, .factor = (double)divisors[count - 1],
                            .low = 1, .high = 4, .original_context_max = contexts[k] };
        exl2__rope_frequencies(&rope, m->head_dim, 1, scaled, &magnitude);
        bool same = true;
        for (uint32_t i = 0; same && i < count; i++) {
            same = exl2__float_is_finite(divisors[i]) &&
                   fabs((double)divisors[i] * scaled[i] - plain[i]) < 1e-3 * plain[i];
        }
        if (same) {
            m->rope = rope.factor > 1 ? rope : m->rope;
            return EXL2_OK;
        }
    }
    return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                      "%s: rope_freqs.weight is not the scaling of Llama 3, and no other is imported", g->path);
}

static exl2_result exl2__import_config_rope(exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text kind = { "none", 4 };
    char name[32];
    float theta = 10000, factor = 1;
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.freq_base", &theta));
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.scale_linear", &factor)); /* key of older files */
    EXL2__TRY(exl2__gguf_get_text(g, "llama.rope.scaling.type", &kind));
    if (exl2__import_config_is(kind, "linear")) {
        EXL2__TRY(exl2__gguf_get_f32(g, "llama.rope.scaling.factor", &factor));
    } else if (!exl2__import_config_is(kind, "none")) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: llama.rope.scaling.type is %s, only linear and none are imported", g->path,
                          exl2__import_config_show(kind, name));
    }
    if (!(theta > 1) || !(factor >= 1)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is below 1", g->path,
                          theta > 1 ? "the factor of RoPE scaling" : "llama.rope.freq_base");
    }
    m->rope.kind = factor != 1 ? EXL2__ROPE_LINEAR : EXL2__ROPE_PLAIN;
    m->rope.theta = (double)theta;
    m->rope.factor = (double)factor;
    exl2__gguf_tensor *table = exl2__gguf_tensor_find(g, "rope_freqs.weight");
    if (table && m->rope.kind == EXL2__ROPE_LINEAR) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: linear RoPE scaling together with rope_freqs.weight is not imported", g->path);
    }
    return table ? exl2__import_config_rope_table(g, table, m) : EXL2_OK;
}

/* Reads all but attention_bias and mlp_bias, which exl2__import_plan_make finds out. */
static exl2_result exl2__import_config_read(exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text arch = { NULL, 0 };
    char name[32];
    EXL2__TRY(exl2__gguf_get_text(g, "general.architecture", &arch));
    if (!exl2__import_config_is(arch, "llama")) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: general.architecture is %s, only llama is imported",
                          g->path, exl2__import_config_show(arch, name));
    }
    EXL2__TRY(exl2__import_config_check_keys(g));
    EXL2__TRY(exl2__import_config_size(g, "llama.block_count", 1, 1024, 1, &m->layers));
    EXL2__TRY(exl2__import_config_size(g, "llama.context_length", 1, INT32_MAX, 1, &m->context));
    EXL2__TRY(exl2__import_config_size(g, "llama.embedding_length", 32, 65504, EXL2__PACK_UNIT, &m->hidden));
    EXL2__TRY(exl2__import_config_size(g, "llama.feed_forward_length", 32, 65504, EXL2__PACK_UNIT, &m->inter));
    EXL2__TRY(exl2__import_config_attention(g, m));
    EXL2__TRY(exl2__import_config_rope(g, m));
    EXL2__TRY(exl2__gguf_get_f32(g, "llama.attention.layer_norm_rms_epsilon", &m->norm_eps));
    if (!(m->norm_eps > 0)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: llama.attention.layer_norm_rms_epsilon is missing or not positive", g->path);
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

/* Token ids from tokenizer.ggml.*; -1 if the file has none. */
typedef struct exl2__import_ids {
    int32_t bos, eos, eot, eom, unk, pad;
} exl2__import_ids;

static exl2_result exl2__import_config_id(const exl2__gguf *g, const char *key, uint32_t vocab, int32_t *id)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, key);
    uint32_t value = 0;
    *id = -1;
    if (!pair ||
        ((pair->kind == EXL2__GGUF_U32 || pair->kind == EXL2__GGUF_I32) && exl2__load32(pair->data) == UINT32_MAX)) {
        return EXL2_OK; /* some writers store -1 for "none" */
    }
    EXL2__TRY(exl2__gguf_get_u32(g, key, &value));
    if (value >= vocab) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is %u, but the vocabulary has %u tokens", g->path, key,
                          value, vocab);
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

/* Writes ,\n    "name": id for each id that is not -1. If there are several end tokens, they are a list. */
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

static void exl2__import_config_write_rope(exl2__write *w, const exl2__rope *rope)
{
    exl2__write_format(w, ",\n    \"rope_theta\": ");
    exl2__write_float(w, (float)rope->theta);
    if (rope->kind == EXL2__ROPE_PLAIN) {
        return;
    }
    exl2__write_format(w, ",\n    \"rope_scaling\": {\n        \"rope_type\": \"%s\",\n        \"factor\": ",
                       rope->kind == EXL2__ROPE_LINEAR ? "linear" : "llama3");
    exl2__write_float(w, (float)rope->factor);
    if (rope->kind == EXL2__ROPE_LLAMA3) {
        exl2__write_format(w, ",\n        \"low_freq_factor\": ");
        exl2__write_float(w, (float)rope->low);
        exl2__write_format(w, ",\n        \"high_freq_factor\": ");
        exl2__write_float(w, (float)rope->high);
        exl2__write_format(w, ",\n        \"original_max_position_embeddings\": %u",
                           (uint32_t)rope->original_context_max);
    }
    exl2__write_format(w, "\n    }");
}

static void exl2__import_config_write_model(exl2__write *w, const exl2__import_config *m, const exl2__import_ids *ids)
{
    const char *const yes_no[2] = { "false", "true" };
    exl2__write_format(w, "{\n    \"architectures\": [\n        \"LlamaForCausalLM\"\n    ]");
    exl2__write_format(w, ",\n    \"model_type\": \"llama\",\n    \"hidden_act\": \"silu\",\n    \"torch_dtype\": "
                          "\"float16\"");
    exl2__write_format(w, ",\n    \"hidden_size\": %u,\n    \"intermediate_size\": %u", m->hidden, m->inter);
    exl2__write_format(w, ",\n    \"num_hidden_layers\": %u,\n    \"num_attention_heads\": %u", m->layers, m->heads);
    exl2__write_format(w, ",\n    \"num_key_value_heads\": %u,\n    \"head_dim\": %u", m->kv_heads, m->head_dim);
    exl2__write_format(w, ",\n    \"vocab_size\": %u,\n    \"max_position_embeddings\": %u", m->vocab, m->context);
    exl2__write_format(w, ",\n    \"rms_norm_eps\": ");
    exl2__write_float(w, m->norm_eps);
    exl2__import_config_write_rope(w, &m->rope);
    exl2__write_format(w, ",\n    \"tie_word_embeddings\": %s", yes_no[m->tied]);
    exl2__write_format(w, ",\n    \"attention_bias\": %s", yes_no[m->attention_bias]);
    exl2__write_format(w, ",\n    \"mlp_bias\": %s", yes_no[m->mlp_bias]);
    exl2__import_config_write_ids(w, ids);
    exl2__write_format(w, ",\n    \"quantization_config\": {\n        \"quant_method\": \"exl2\"");
    exl2__write_format(w, ",\n        \"version\": \"exl2.h %d.%d.%d\"", EXL2_VERSION / 10000, EXL2_VERSION / 100 % 100,
                       EXL2_VERSION % 100);
    exl2__write_format(w, ",\n        \"bits\": %u.0,\n        \"head_bits\": %u", m->bits, m->head_bits);
    exl2__write_format(w, ",\n        \"calibration\": {\n            \"rows\": 0,\n            \"length\": 0");
    exl2__write_format(w, ",\n            \"dataset\": \"(none)\"\n        }\n    }\n}\n");
}

/* Writes config.json and generation_config.json to `dir`. */
static exl2_result exl2__import_config_write(exl2__ctx *c, const char *dir, const exl2__import_config *m,
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
