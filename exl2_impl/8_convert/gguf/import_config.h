/* import_config.h: reads the keys of a GGUF file that describe the model.
   takes: an open GGUF file.
   gives: exl2__import_config, exl2__import_config_read; exl2__import_ids, exl2__import_config_ids. */
#ifndef EXL2__IMPORT_CONFIG_H
#define EXL2__IMPORT_CONFIG_H

#include "../../1_load/model_experts.h"
#include "../../1_load/model_rope.h"
#include "../pack.h"
#include "gguf_split.h"
#include "import_families.h"

#define EXL2__IMPORT_DENSE_BITS 16u /* `bits` of an import that does not quantize */
#define EXL2__IMPORT_LAYERS_MAX 1024u

typedef struct exl2__import_config {
    const exl2__import_family *family;
    exl2__arch arch;               /* resolved */
    uint32_t layers, hidden, inter, heads, kv_heads, head_dim, context, vocab; /* vocab: rows of the embedding */
    uint32_t rotary;               /* elements of a head that RoPE rotates; 0 with learned positions */
    uint32_t window;               /* 0: none */
    uint32_t window_period;        /* EXL2__WINDOW_PATTERN: without a list, every layer of this period's end is full */
    const uint8_t *windowed;       /* [layers] 1: the layer has the window; NULL: the file has no list */
    float norm_eps;
    float local_theta;             /* EXL2__LOCAL_ROPE_BASE */
    exl2__rope rope;
    float numbers[EXL2__IMPORT_KEY_COUNT]; /* of the fields of the family; 0: config.json does not get the field */
    exl2__qk_norm qk_norm;         /* never BY_CONFIG */
    exl2__experts experts;         /* count 0: none. shared_switch is not used */
    bool expert_width;             /* the file has a width of experts apart from `inter` */
    uint32_t sparse[EXL2__IMPORT_LAYERS_MAX / 32]; /* a bit per layer: it has experts */
    uint32_t skipped_layers;       /* after `layers`: they predict further tokens, and are not imported */
    bool parallel, tied, attention_bias, mlp_bias;
    uint32_t bits, group, head_bits; /* settings of the import */
} exl2__import_config;

static inline bool exl2__import_config_is(exl2__gguf_text text, const char *wanted)
{
    return text.bytes == strlen(wanted) && memcmp(text.data, wanted, strlen(wanted)) == 0;
}

/* The text for a message. Untrusted text is quoted only if it is a short word of printable ASCII. */
EXL2__PRIVATE const char *exl2__import_config_show(exl2__gguf_text text, char out[32])
{
    bool plain = text.bytes > 0 && text.bytes < 32;
    for (uint64_t i = 0; plain && i < text.bytes; i++) {
        plain = text.data[i] > 0x20 && text.data[i] < 0x7F;
    }
    exl2__format(out, 32, "%.*s", plain ? (int)text.bytes : 12, plain ? text.data : "(not a word)");
    return text.bytes == 0 ? "missing" : out;
}

/* ---- keys ---- */

#define EXL2__IMPORT_KEY_BYTES 96

/* Writes "<architecture>.<name>" into key[EXL2__IMPORT_KEY_BYTES], and returns it. */
EXL2__PRIVATE const char *exl2__import_config_key(const exl2__import_config *m, const char *name, char *key)
{
    exl2__format(key, EXL2__IMPORT_KEY_BYTES, "%s.%s", m->family->gguf, name);
    return key;
}

/* Reads a size in [least, most] that is a multiple of `unit`. It is required unless *value has a default, not 0. */
EXL2__PRIVATE exl2_result exl2__import_config_size(const exl2__gguf *g, const exl2__import_config *m, const char *name,
                                                   uint32_t least, uint32_t most, uint32_t unit, uint32_t *value)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    exl2__import_config_key(m, name, key);
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

/* Reads a number above 0, up to 1e9. Without the key *value does not change; *present (may be NULL): the key exists. */
EXL2__PRIVATE exl2_result exl2__import_config_float(const exl2__gguf *g, const exl2__import_config *m, const char *name,
                                                    float *value, bool *present)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    bool found = exl2__gguf_key(g, exl2__import_config_key(m, name, key)) != NULL;
    EXL2__TRY(exl2__gguf_get_f32(g, key, value));
    if (found && !(*value > 0 && *value <= 1e9f)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is out of range, expected a number above 0 and up to 1e9",
                          g->path, key);
    }
    if (present) {
        *present = found;
    }
    return EXL2_OK;
}

/* ---- family ---- */

/* The tensor of the first layer that has a shared expert, or NULL. */
EXL2__PRIVATE exl2__gguf_tensor *exl2__import_config_shared(const exl2__gguf *g)
{
    exl2__gguf_tensor *found = NULL;
    for (uint32_t i = 0; i < EXL2__IMPORT_LAYERS_MAX && !found; i++) {
        char name[EXL2__GGUF_NAME_MAX + 1];
        exl2__format(name, sizeof name, "blk.%u.%s.weight", i, exl2__import_family_tensor(EXL2__NAME_SHARED_UP));
        found = exl2__gguf_tensor_find(g, name);
    }
    return found;
}

/* Names what is in a file that holds no model. */
EXL2__PRIVATE exl2_result exl2__import_config_is_model(const exl2__gguf *g)
{
    static const char *const types[][2] = {
        { "adapter", "a LoRA adapter" }, { "vocab", "a vocabulary" }, { "imatrix", "an importance matrix (imatrix)" },
        { "mmproj", "a projector of images or sound (mmproj)" },
    };
    exl2__gguf_text type = { NULL, 0 };
    char name[32];
    const char *what = exl2__gguf_key(g, "adapter.type") ? types[0][1] : g->tensor_count == 0 ? types[1][1] : NULL;
    EXL2__TRY(exl2__gguf_get_text(g, "general.type", &type));
    for (size_t i = 0; i < EXL2__COUNT(types); i++) {
        what = exl2__import_config_is(type, types[i][0]) ? types[i][1] : what;
    }
    if (what) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: the file is %s, not a model", g->path, what);
    }
    return type.bytes == 0 || exl2__import_config_is(type, "model") ? EXL2_OK
         : exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: general.type is %s, expected model", g->path,
                      exl2__import_config_show(type, name));
}

/* Finds the family and its row. */
EXL2__PRIVATE exl2_result exl2__import_config_family(const exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text arch = { NULL, 0 };
    char name[32], key[EXL2__IMPORT_KEY_BYTES];
    EXL2__TRY(exl2__import_config_is_model(g));
    EXL2__TRY(exl2__gguf_get_text(g, "general.architecture", &arch));
    for (size_t i = 0; i < EXL2__COUNT(exl2__import_families) && !m->family; i++) {
        m->family = exl2__import_config_is(arch, exl2__import_families[i].gguf) ? &exl2__import_families[i] : NULL;
    }
    if (!m->family) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: general.architecture is %s, which is not imported",
                          g->path, exl2__import_config_show(arch, name));
    }
    EXL2__TRY(exl2__gguf_get_u32(g, exl2__import_config_key(m, "expert_count", key), &m->experts.count));
    EXL2__TRY(exl2__gguf_get_u32(g, exl2__import_config_key(m, "attention.sliding_window", key), &m->window));
    const char *row = m->window > 0 && m->family->windowed_arch ? m->family->windowed_arch
                    : m->experts.count > 0 && m->family->experts_arch ? m->family->experts_arch
                    : exl2__import_config_shared(g) && m->family->shared_arch ? m->family->shared_arch
                    : m->family->arch;
    exl2__arch_resolve(exl2__arch_find(row), &m->arch);
    return EXL2_OK;
}

/* Reads the factors, and rejects the others of exl2__import_keys unless they have their neutral value. */
EXL2__PRIVATE exl2_result exl2__import_config_numbers(const exl2__gguf *g, exl2__import_config *m)
{
    const exl2__import_family *f = m->family;
    float defaults[EXL2__IMPORT_KEY_COUNT];
    memcpy(defaults, f->absent, sizeof defaults);
    if (f->from_sizes) {
        defaults[EXL2__IMPORT_KEY_LOGIT_SCALE] = (float)m->hidden / 256;
        defaults[EXL2__IMPORT_KEY_RESIDUAL_SCALE] = (float)(1.4 / sqrt((double)m->layers));
    }
    for (uint32_t i = 0; i < EXL2__IMPORT_KEY_COUNT; i++) {
        char key[EXL2__IMPORT_KEY_BYTES];
        float neutral = exl2__import_keys[i].neutral, value = defaults[i] > 0 ? defaults[i] : neutral;
        EXL2__TRY(exl2__gguf_get_f32(g, exl2__import_config_key(m, exl2__import_keys[i].key, key), &value));
        if (value != neutral && !f->fields[i]) {
            return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                              "%s: key %s changes what the model computes, which is not imported", g->path, key);
        }
        if (value != neutral && !(value >= 1e-6f && value <= 1e6f)) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is out of range, expected a number from 1e-6 to 1e6",
                              g->path, key);
        }
        m->numbers[i] = f->fields[i] && (value != neutral || neutral > 0) ? value : 0;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_config_attention(const exl2__gguf *g, exl2__import_config *m)
{
    uint32_t value_dim;
    bool undo = (m->family->undo & (EXL2__IMPORT_UNDO_PAIRS | EXL2__IMPORT_UNDO_WEIGHT_PAIRS)) != 0;
    EXL2__TRY(exl2__import_config_size(g, m, "attention.head_count", 1, 4096, 1, &m->heads));
    m->kv_heads = m->heads;
    EXL2__TRY(exl2__import_config_size(g, m, "attention.head_count_kv", 1, m->heads, 1, &m->kv_heads));
    if (m->heads % m->kv_heads != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %u heads cannot share %u KV heads", g->path, m->heads,
                          m->kv_heads);
    }
    m->head_dim = m->hidden % m->heads == 0 ? m->hidden / m->heads : 0;
    EXL2__TRY(exl2__import_config_size(g, m, "attention.key_length", 2, 2 * EXL2__ROPE_HALF_MAX, 2, &m->head_dim));
    value_dim = m->rotary = m->head_dim;
    EXL2__TRY(exl2__import_config_size(g, m, "attention.value_length", 1, INT32_MAX, 1, &value_dim));
    EXL2__TRY(exl2__import_config_size(g, m, "rope.dimension_count", 2, INT32_MAX, 2, &m->rotary));
    if (value_dim != m->head_dim || m->rotary > m->head_dim || (undo && m->rotary != m->head_dim)) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: the dimensions of a head are %u for keys, %u for values and %u for RoPE; only %s",
                          g->path, m->head_dim, value_dim, m->rotary,
                          undo ? "equal ones are imported" : "equal ones, with fewer for RoPE, are imported");
    }
    if (m->bits != EXL2__IMPORT_DENSE_BITS && m->heads * m->head_dim % EXL2__PACK_UNIT != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %u heads of %u make an attention width that is not a multiple of %u", g->path, m->heads,
                          m->head_dim, EXL2__PACK_UNIT);
    }
    return EXL2_OK;
}

/* ---- RoPE ---- */

/* A table of divisors of the frequencies, [rotary / 2]. *table NULL: the file has none. */
EXL2__PRIVATE exl2_result exl2__import_config_divisors(const exl2__gguf *g, const exl2__import_config *m,
                                                       const char *name, exl2__gguf_tensor **table, float *divisors)
{
    uint8_t bytes[EXL2__ROPE_HALF_MAX * 4];
    uint32_t count = m->rotary / 2;
    *table = exl2__gguf_tensor_find(g, name);
    if (!*table) {
        return EXL2_OK;
    }
    if ((*table)->type->id != 0 || (*table)->dims[0] != count || (*table)->bytes != count * 4) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is %s with rows of %llu, expected F32 with rows of %u",
                          g->path, name, (*table)->type->name, (unsigned long long)(*table)->dims[0], count);
    }
    EXL2__TRY(exl2__gguf_read(g, (*table)->offset, bytes, (*table)->bytes));
    exl2__gguf_types_read((*table)->type, bytes, count, divisors);
    for (uint32_t i = 0; i < count; i++) {
        if (!(divisors[i] >= 1e-6f && divisors[i] <= 1e6f)) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s[%u] is out of range, expected a number from 1e-6 to 1e6",
                              g->path, name, i);
        }
    }
    (*table)->used = true;
    return EXL2_OK;
}

/* GGUF stores the RoPE scaling of Llama 3 as a table with one divisor per frequency. This finds the parameters from
   which the table was computed. The low and high factors are 1 and 4 in every Llama 3.x; the original context is mostly
   8,192. false: the table is another one. */
EXL2__PRIVATE bool exl2__import_config_is_llama3(exl2__import_config *m, const float *divisors, uint32_t original)
{
    double plain[EXL2__ROPE_HALF_MAX], scaled[EXL2__ROPE_HALF_MAX], magnitude;
    uint32_t count = m->rotary / 2, contexts[2] = { original ? original : 8192, 8192 };
    exl2__rope_frequencies(&m->rope, m->rotary, 1, plain, &magnitude);
    for (uint32_t k = 0; divisors[count - 1] >= 1 && k < 2; k++) {
        exl2__rope rope = { .kind = EXL2__ROPE_LLAMA3, .theta = m->rope.theta, .factor = (double)divisors[count - 1],
                            .low = 1, .high = 4, .original_context_max = contexts[k] };
        exl2__rope_frequencies(&rope, m->rotary, 1, scaled, &magnitude);
        bool same = true;
        for (uint32_t i = 0; same && i < count; i++) {
            same = fabs((double)divisors[i] * scaled[i] - plain[i]) < 1e-3 * plain[i];
        }
        if (same) {
            m->rope = rope.factor > 1 ? rope : m->rope;
            return true;
        }
    }
    return false;
}

/* rope_freqs.weight: Llama 3's scaling, or else longrope with the same divisors for all contexts and magnitude 1. */
EXL2__PRIVATE exl2_result exl2__import_config_rope_freqs(const exl2__gguf *g, exl2__import_config *m, uint32_t original)
{
    float divisors[EXL2__ROPE_HALF_MAX];
    exl2__gguf_tensor *table;
    EXL2__TRY(exl2__import_config_divisors(g, m, "rope_freqs.weight", &table, divisors));
    if (!table) {
        return EXL2_OK;
    }
    if (m->rope.kind != EXL2__ROPE_PLAIN && m->rope.kind != EXL2__ROPE_LINEAR) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: rope_freqs.weight together with another scaling of RoPE is not imported", g->path);
    }
    if (m->rope.kind == EXL2__ROPE_PLAIN && exl2__import_config_is_llama3(m, divisors, original)) {
        return EXL2_OK;
    }
    for (uint32_t i = 0; i < m->rotary / 2; i++) {
        m->rope.short_factor[i] = m->rope.long_factor[i] = divisors[i] * (float)m->rope.factor;
    }
    m->rope.kind = EXL2__ROPE_LONGROPE;
    m->rope.attention_factor = 1;
    m->rope.original_context_max = m->context;
    m->rope.factor = 1;
    return EXL2_OK;
}

/* rope_factors_long.weight and rope_factors_short.weight: longrope. */
EXL2__PRIVATE exl2_result exl2__import_config_longrope(const exl2__gguf *g, exl2__import_config *m, uint32_t original,
                                                       float magnitude)
{
    exl2__gguf_tensor *tables[2];
    EXL2__TRY(exl2__import_config_divisors(g, m, "rope_factors_long.weight", &tables[0], m->rope.long_factor));
    EXL2__TRY(exl2__import_config_divisors(g, m, "rope_factors_short.weight", &tables[1], m->rope.short_factor));
    if (!tables[0] && !tables[1]) {
        return EXL2_OK;
    }
    if (!tables[0] || !tables[1] || m->rope.kind != EXL2__ROPE_PLAIN || original == 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: longrope needs rope_factors_long.weight, rope_factors_short.weight, "
                          "%s.rope.scaling.original_context_length, and no other scaling of RoPE", g->path,
                          m->family->gguf);
    }
    m->rope.kind = EXL2__ROPE_LONGROPE;
    m->rope.original_context_max = original;
    m->rope.factor = (double)m->context / original;
    m->rope.attention_factor = (double)magnitude;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_config_yarn(const exl2__gguf *g, exl2__import_config *m, uint32_t original,
                                                   float factor)
{
    exl2__rope *r = &m->rope;
    float fast = 32, slow = 1, magnitude = 1;
    EXL2__TRY(exl2__import_config_float(g, m, "rope.scaling.yarn_beta_fast", &fast, NULL));
    EXL2__TRY(exl2__import_config_float(g, m, "rope.scaling.yarn_beta_slow", &slow, NULL));
    EXL2__TRY(exl2__import_config_float(g, m, "rope.scaling.attn_factor", &magnitude, NULL));
    if (original == 0 || !(fast > slow)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: YaRN needs %s.rope.scaling.original_context_length, and a yarn_beta_fast greater than "
                          "yarn_beta_slow", g->path, m->family->gguf);
    }
    r->kind = EXL2__ROPE_YARN;
    r->rounded = !m->family->yarn_exact;
    r->factor = (double)factor;
    r->high = (double)fast;
    r->low = (double)slow;
    r->original_context_max = original;
    r->attention_factor = magnitude != 1 ? (double)magnitude * exl2__rope_yarn_magnitude(r, 1) : 0;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_config_rope(const exl2__gguf *g, exl2__import_config *m)
{
    exl2__gguf_text kind = { "none", 4 };
    char name[32], key[EXL2__IMPORT_KEY_BYTES];
    float theta = 10000, factor = 1, magnitude = 0;
    uint32_t original = 0;
    EXL2__TRY(exl2__import_config_float(g, m, "rope.freq_base", &theta, NULL));
    EXL2__TRY(exl2__import_config_float(g, m, "rope.scale_linear", &factor, NULL)); /* key of older files */
    EXL2__TRY(exl2__gguf_get_text(g, exl2__import_config_key(m, "rope.scaling.type", key), &kind));
    bool linear = exl2__import_config_is(kind, "linear"), yarn = exl2__import_config_is(kind, "yarn");
    if (!linear && !yarn && !exl2__import_config_is(kind, "none") && !exl2__import_config_is(kind, "longrope")) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %s is %s, only linear, yarn, longrope and none are imported", g->path, key,
                          exl2__import_config_show(kind, name));
    }
    if (linear || yarn) {
        EXL2__TRY(exl2__import_config_float(g, m, "rope.scaling.factor", &factor, NULL));
    }
    if (!(theta > 1) || !(factor >= 1)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s%s is below 1", g->path,
                          theta > 1 ? "the factor of RoPE scaling" : m->family->gguf,
                          theta > 1 ? "" : ".rope.freq_base");
    }
    m->rope.kind = factor != 1 ? EXL2__ROPE_LINEAR : EXL2__ROPE_PLAIN;
    m->rope.theta = (double)theta;
    m->rope.factor = (double)factor;
    exl2__import_config_key(m, "rope.scaling.original_context_length", key);
    EXL2__TRY(exl2__gguf_get_u32(g, key, &original));
    EXL2__TRY(exl2__import_config_float(g, m, "rope.scaling.attn_factor", &magnitude, NULL));
    if (yarn) {
        EXL2__TRY(exl2__import_config_yarn(g, m, original, factor));
    }
    EXL2__TRY(exl2__import_config_longrope(g, m, original, magnitude));
    return exl2__import_config_rope_freqs(g, m, original);
}

/* theta of the layers with a window. */
EXL2__PRIVATE exl2_result exl2__import_config_local_rope(const exl2__gguf *g, exl2__import_config *m)
{
    bool own = m->arch.traits[EXL2__TRAIT_LOCAL_ROPE] == EXL2__LOCAL_ROPE_BASE;
    m->local_theta = own ? 10000 : (float)m->rope.theta;
    EXL2__TRY(exl2__import_config_float(g, m, "rope.freq_base_swa", &m->local_theta, NULL));
    if ((!own && m->local_theta != (float)m->rope.theta) || !(m->local_theta >= 1)) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %s.rope.freq_base_swa is not the value that the other layers have, or is below 1, which "
                          "is not imported", g->path, m->family->gguf);
    }
    return EXL2_OK;
}

/* ---- layers that differ ---- */

/* attention.sliding_window_pattern is a period, or has a bool for each layer. */
EXL2__PRIVATE exl2_result exl2__import_config_pattern(const exl2__gguf *g, exl2__import_config *m)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    const exl2__gguf_pair *pair =
        exl2__gguf_key(g, exl2__import_config_key(m, "attention.sliding_window_pattern", key));
    m->window_period = m->family->window_period;
    if (!pair || pair->kind != EXL2__GGUF_ARRAY) {
        return pair ? exl2__import_config_size(g, m, "attention.sliding_window_pattern", 1, 4096, 1,
                                               &m->window_period) : EXL2_OK;
    }
    if (pair->item_kind != EXL2__GGUF_BOOL || pair->count != m->layers) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: %s is an array of %llu %s, expected a number, or an array of %u bool (one per layer)",
                          g->path, key, (unsigned long long)pair->count, exl2__gguf_kind_name(pair->item_kind),
                          m->layers);
    }
    m->windowed = pair->data;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_config_windows(const exl2__gguf *g, exl2__import_config *m)
{
    uint8_t rule = m->arch.traits[EXL2__TRAIT_WINDOW];
    if (m->window == 0) {
        return EXL2_OK;
    }
    if (rule != EXL2__WINDOW_ALL && rule != EXL2__WINDOW_EVEN && rule != EXL2__WINDOW_PATTERN) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %s.attention.sliding_window is %u, but no window of this architecture is imported",
                          g->path, m->family->gguf, m->window);
    }
    return exl2__import_config_pattern(g, m);
}

/* ---- experts ---- */

EXL2__PRIVATE bool exl2__import_config_is_sparse(const exl2__import_config *m, uint32_t layer)
{
    return (m->sparse[layer / 32] >> (layer % 32) & 1) != 0;
}

/* How experts are chosen and weighted. Keys that are not in the file have the values that the row has. */
EXL2__PRIVATE exl2_result exl2__import_config_routing(const exl2__gguf *g, exl2__import_config *m)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    exl2__experts *e = &m->experts;
    uint8_t own = m->arch.traits[EXL2__TRAIT_RENORMALIZED];
    uint32_t scores = 0, groups = 1, groups_active = 1;
    bool weighted = m->arch.traits[EXL2__TRAIT_ACT] == EXL2__ACT_CLAMPED; /* "softmax of the chosen ones" */
    e->sigmoid = m->arch.traits[EXL2__TRAIT_ROUTING] == EXL2__ROUTING_SIGMOID;
    EXL2__TRY(exl2__gguf_get_u32(g, exl2__import_config_key(m, "expert_gating_func", key), &scores));
    if (scores != 0 && scores != (e->sigmoid ? 2u : 1u) && !(weighted && scores == 3)) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %s is %u, expected %u (%s)", g->path, key, scores,
                          e->sigmoid ? 2u : 1u, e->sigmoid ? "sigmoid" : "softmax");
    }
    e->renormalized = own == EXL2__YES || (own == EXL2__BY_CONFIG && m->family->experts.renormalized);
    bool renormalized = e->renormalized;
    EXL2__TRY(exl2__gguf_get_bool(g, exl2__import_config_key(m, "expert_weights_norm", key), &e->renormalized));
    if (own != EXL2__BY_CONFIG && e->renormalized != renormalized) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %s is %s, which is not imported", g->path, key,
                          e->renormalized ? "true" : "false");
    }
    e->scale = 1;
    EXL2__TRY(exl2__gguf_get_f32(g, exl2__import_config_key(m, "expert_weights_scale", key), &e->scale));
    e->scale = exl2__float_bits(e->scale) << 1 == 0 ? 1 : e->scale; /* some files write 0 for "none" */
    if (!(e->scale >= 1e-6f && e->scale <= 1e6f)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is out of range, expected a number from 1e-6 to 1e6",
                          g->path, key);
    }
    EXL2__TRY(exl2__import_config_size(g, m, "expert_group_count", 1, EXL2__EXPERTS_GROUPS_MAX, 1, &groups));
    EXL2__TRY(exl2__import_config_size(g, m, "expert_group_used_count", 1, groups, 1, &groups_active));
    if (groups > 1 && !e->sigmoid) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: %s.expert_group_count is %u, but no groups of experts of "
                          "this architecture are imported", g->path, m->family->gguf, groups);
    }
    e->groups = groups;
    e->groups_active = groups_active;
    return EXL2_OK;
}

/* Finds the layers with experts: those that have a router. */
EXL2__PRIVATE exl2_result exl2__import_config_sparse(const exl2__gguf *g, exl2__import_config *m)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < m->layers; i++) {
        char name[EXL2__GGUF_NAME_MAX + 1];
        exl2__format(name, sizeof name, "blk.%u.%s.weight", i, exl2__import_family_tensor(EXL2__NAME_ROUTER));
        bool found = exl2__gguf_tensor_find(g, name) != NULL;
        m->sparse[i / 32] |= (uint32_t)found << (i % 32);
        all += found ? m->experts.count : 0;
    }
    if (all == 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s.expert_count is %u, but no layer has a tensor %s.weight",
                          g->path, m->family->gguf, m->experts.count, exl2__import_family_tensor(EXL2__NAME_ROUTER));
    }
    return all <= EXL2__EXPERTS_ALL_MAX ? EXL2_OK
         : exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: all layers together have %llu experts, expected at most %u",
                      g->path, (unsigned long long)all, EXL2__EXPERTS_ALL_MAX);
}

/* unit and most: of widths. */
EXL2__PRIVATE exl2_result exl2__import_config_experts(const exl2__gguf *g, exl2__import_config *m, uint32_t unit,
                                                      uint32_t most)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    exl2__experts *e = &m->experts;
    if (m->arch.traits[EXL2__TRAIT_ROUTING] == EXL2__ROUTING_NONE) {
        return e->count == 0 ? EXL2_OK
             : exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: %s.expert_count is %u, but no experts of this architecture are imported", g->path,
                          m->family->gguf, e->count);
    }
    EXL2__TRY(exl2__import_config_size(g, m, "expert_count", 1, EXL2__EXPERTS_MAX, 1, &e->count));
    EXL2__TRY(exl2__import_config_size(g, m, "expert_used_count", 1, e->count, 1, &e->active));
    m->expert_width = exl2__gguf_key(g, exl2__import_config_key(m, "expert_feed_forward_length", key)) != NULL;
    e->inter = m->inter;
    EXL2__TRY(exl2__import_config_size(g, m, "expert_feed_forward_length", unit, most, unit, &e->inter));
    const exl2__gguf_tensor *shared = m->family->experts.shared ? exl2__import_config_shared(g) : NULL;
    if (shared && (shared->dims[1] == 0 || shared->dims[1] > most || shared->dims[1] % unit != 0 ||
                   (m->family->experts.shared_multiple && shared->dims[1] % e->inter != 0))) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: tensor %.*s has %llu rows, expected at most %u, a multiple of %u", g->path,
                          EXL2__GGUF_NAME(shared->name), (unsigned long long)shared->dims[1], most,
                          m->family->experts.shared_multiple ? e->inter : unit);
    }
    e->shared_inter = shared ? (uint32_t)shared->dims[1] : 0;
    EXL2__TRY(exl2__import_config_routing(g, m));
    return exl2__import_config_sparse(g, m);
}

/* ---- all ---- */

/* The number of layers without those that predict further tokens, which stand at the end. */
EXL2__PRIVATE exl2_result exl2__import_config_layers(const exl2__gguf *g, exl2__import_config *m)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    EXL2__TRY(exl2__import_config_size(g, m, "block_count", 1, EXL2__IMPORT_LAYERS_MAX, 1, &m->layers));
    EXL2__TRY(exl2__gguf_get_u32(g, exl2__import_config_key(m, "nextn_predict_layers", key), &m->skipped_layers));
    if (m->skipped_layers >= m->layers) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s is %u, expected less than the %u layers", g->path, key,
                          m->skipped_layers, m->layers);
    }
    m->layers -= m->skipped_layers;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_config_eps(const exl2__gguf *g, exl2__import_config *m)
{
    static const char *const names[2] = { "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon" };
    uint8_t norm = m->arch.traits[EXL2__TRAIT_NORM];
    bool layer = norm == EXL2__NORM_LAYER || norm == EXL2__NORM_LAYER_PLUS_ONE, present = false;
    for (uint32_t i = 0; i < 2 && !present; i++) {
        EXL2__TRY(exl2__import_config_float(g, m, names[layer ? 1 - i : i], &m->norm_eps, &present));
    }
    return present && m->norm_eps <= 1 ? EXL2_OK
         : exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %s.%s is missing or above 1", g->path, m->family->gguf,
                      names[layer]);
}

EXL2__PRIVATE exl2_result exl2__import_config_switches(const exl2__gguf *g, exl2__import_config *m)
{
    char key[EXL2__IMPORT_KEY_BYTES];
    m->tied = !exl2__gguf_tensor_find(g, "output.weight");
    m->qk_norm = (exl2__qk_norm)m->arch.traits[EXL2__TRAIT_QK_NORM];
    if (m->qk_norm == EXL2__QK_NORM_BY_CONFIG) {
        m->qk_norm = exl2__gguf_tensor_find(g, "blk.0.attn_q_norm.weight") ? EXL2__QK_NORM_HEADS : EXL2__QK_NORM_NONE;
    }
    m->parallel = m->arch.traits[EXL2__TRAIT_PARALLEL] == EXL2__YES;
    return m->arch.traits[EXL2__TRAIT_PARALLEL] == EXL2__BY_CONFIG
               ? exl2__gguf_get_bool(g, exl2__import_config_key(m, "use_parallel_residual", key), &m->parallel)
               : EXL2_OK;
}

/* Reads all but attention_bias and mlp_bias, which exl2__import_plan_make finds out. bits, group and head_bits are set
   already. */
EXL2__PRIVATE exl2_result exl2__import_config_read(const exl2__gguf *g, exl2__import_config *m)
{
    bool dense = m->bits == EXL2__IMPORT_DENSE_BITS;
    uint32_t unit = dense ? 1 : EXL2__PACK_UNIT, most = dense ? 1u << 20 : 65504;
    EXL2__TRY(exl2__import_config_family(g, m));
    EXL2__TRY(exl2__import_config_layers(g, m));
    EXL2__TRY(exl2__import_config_size(g, m, "context_length", 1, 1u << 30, 1, &m->context));
    EXL2__TRY(exl2__import_config_size(g, m, "embedding_length", unit, most, unit, &m->hidden));
    EXL2__TRY(exl2__import_config_size(g, m, "feed_forward_length", unit, most, unit, &m->inter));
    EXL2__TRY(exl2__import_config_experts(g, m, unit, most));
    EXL2__TRY(exl2__import_config_numbers(g, m));
    EXL2__TRY(exl2__import_config_attention(g, m));
    if (m->arch.traits[EXL2__TRAIT_POSITIONS] == EXL2__POSITIONS_LEARNED) {
        m->rotary = 0;
    } else {
        EXL2__TRY(exl2__import_config_rope(g, m));
        EXL2__TRY(exl2__import_config_local_rope(g, m));
    }
    EXL2__TRY(exl2__import_config_windows(g, m));
    EXL2__TRY(exl2__import_config_eps(g, m));
    const exl2__gguf_tensor *embedding = exl2__gguf_tensor_find(g, "token_embd.weight");
    if (!embedding || embedding->dim_count != 2 || embedding->dims[1] > 1u << 24) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: tensor token_embd.weight is missing, or not a matrix with at most %u rows", g->path,
                          1u << 24);
    }
    m->vocab = (uint32_t)embedding->dims[1];
    return exl2__import_config_switches(g, m);
}

/* ---- special tokens ---- */

/* Token ids from tokenizer.ggml.*; -1 if the file has none. */
typedef struct exl2__import_ids {
    int32_t bos, eos, eot, eom, unk, pad;
} exl2__import_ids;

EXL2__PRIVATE exl2_result exl2__import_config_id(const exl2__gguf *g, const char *key, uint32_t vocab, int32_t *id)
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

EXL2__PRIVATE exl2_result exl2__import_config_ids(const exl2__gguf *g, uint32_t vocab, exl2__import_ids *ids)
{
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.bos_token_id", vocab, &ids->bos));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eos_token_id", vocab, &ids->eos));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eot_token_id", vocab, &ids->eot));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.eom_token_id", vocab, &ids->eom));
    EXL2__TRY(exl2__import_config_id(g, "tokenizer.ggml.unknown_token_id", vocab, &ids->unk));
    return exl2__import_config_id(g, "tokenizer.ggml.padding_token_id", vocab, &ids->pad);
}

#endif
