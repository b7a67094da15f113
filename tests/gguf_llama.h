/* gguf_llama.h: a tiny Llama as llama.cpp's converter would store it in GGUF, and the values that its matrices must
   have after an import, with rows in the order of the published models. */
#ifndef GGUF_LLAMA_H
#define GGUF_LLAMA_H

#include "private/gguf_types.h"
#include "gguf_maker.h"

#define LLAMA_TENSORS_MAX 64

typedef struct llama_wanted {
    char name[96]; /* such as "model.layers.0.self_attn.q_proj" */
    uint32_t in, out;
    float *numbers; /* [out, in] */
    float *bias;    /* [out] or NULL */
} llama_wanted;

typedef struct llama_options {
    uint32_t hidden, inter, layers, heads, kv_heads, head_dim, vocab;
    bool tied, attention_bias, no_tokenizer;
    const char *pre;             /* NULL: smollm */
    uint32_t cut_tokens;         /* tokens missing at the end of the tokenizer */
    void (*change)(gguf_maker *m); /* adds what a test wants to see rejected or handled */
    const char *skip;            /* name of a GGUF tensor to omit */
    const char *skip_key;        /* name of a key to omit */
    const char *spoil;           /* name of a GGUF tensor whose last value becomes a NaN (F32 tensors) */
} llama_options;

typedef struct llama_model {
    llama_wanted wanted[LLAMA_TENSORS_MAX];
    uint32_t count;
    gguf_bytes file;
} llama_model;

static uint64_t llama_state = 11;

static uint32_t llama_draw(uint32_t below)
{
    llama_state = llama_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((llama_state >> 33) % below);
}

static float llama_number(void)
{
    float sum = 0; /* the sum of four uniform numbers is about normal */
    for (int i = 0; i < 4; i++) {
        sum += (float)llama_draw(65536) / 65536.0f - 0.5f;
    }
    return sum * 0.05f;
}

/* Random blocks with small fp16 scales; `out` gets the decoded values. */
static void llama_blocks(const exl2__gguf_type *type, uint64_t items, uint8_t *blocks, float *out)
{
    static const struct {
        uint32_t id, at[2], count;
    } scales[] = { { 2, { 0, 0 }, 1 },   { 3, { 0, 2 }, 2 },    { 6, { 0, 0 }, 1 },  { 7, { 0, 2 }, 2 },
                   { 8, { 0, 0 }, 1 },   { 10, { 80, 82 }, 2 }, { 11, { 108, 0 }, 1 }, { 12, { 0, 2 }, 2 },
                   { 13, { 0, 2 }, 2 },  { 14, { 208, 0 }, 1 }, { 20, { 0, 0 }, 1 }, { 23, { 0, 0 }, 1 } };
    uint64_t count = items / type->items;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i * type->bytes;
        for (uint32_t k = 0; k < type->bytes; k++) {
            block[k] = (uint8_t)llama_draw(256);
        }
        if (type->items == 1) {
            uint32_t bits = exl2__float_bits(llama_number());
            uint32_t stored = type->id == 1    ? exl2__f32_to_f16(exl2__bits_float(bits))
                              : type->id == 30 ? bits >> 16
                                               : bits;
            memcpy(block, &stored, type->bytes);
        }
        for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
            for (uint32_t n = 0; scales[k].id == type->id && n < scales[k].count; n++) {
                uint16_t half = (uint16_t)(0x0C00 + llama_draw(0x400)); /* 2.4e-4 to 4.9e-4 */
                memcpy(block + scales[k].at[n], &half, 2);
            }
        }
    }
    exl2__gguf_types_read(type, blocks, items, out);
}

/* The row order of llama.cpp's converter: [heads, 2, half] becomes [heads, half, 2]. */
static uint32_t llama_row(uint32_t row, uint32_t head_dim)
{
    uint32_t half = head_dim / 2, head = row / head_dim, pair = row % head_dim / half, i = row % half;
    return head * head_dim + i * 2 + pair;
}

static bool llama_is(const char *name, const char *other)
{
    return other && strcmp(name, other) == 0;
}

/* Adds one matrix: in GGUF as gguf_name, expected as `name`. head_dim not 0: rows in pairs, as llama.cpp stores
   them. */
static void llama_add(llama_model *l, gguf_maker *m, const llama_options *o, const char *gguf_name, const char *name,
                      uint32_t type_id, uint32_t in, uint32_t out, uint32_t head_dim, bool bias)
{
    const exl2__gguf_type *type = exl2__gguf_types_find(type_id);
    llama_wanted *w = &l->wanted[l->count++];
    size_t row_bytes = (size_t)in / type->items * type->bytes;
    uint8_t *blocks = (uint8_t *)malloc(row_bytes * out), *stored = (uint8_t *)malloc(row_bytes * out);
    char label[128];
    snprintf(w->name, sizeof w->name, "%s", name);
    w->in = in;
    w->out = out;
    w->numbers = (float *)malloc((size_t)in * out * sizeof(float));
    w->bias = NULL;
    llama_blocks(type, (uint64_t)in * out, blocks, w->numbers);
    for (uint32_t row = 0; row < out; row++) {
        memcpy(stored + row_bytes * (head_dim ? llama_row(row, head_dim) : row), blocks + row_bytes * row, row_bytes);
    }
    snprintf(label, sizeof label, "%s.weight", gguf_name);
    if (llama_is(label, o->spoil)) {
        memcpy(stored + row_bytes * out - 4, "\x00\x00\xC0\x7F", 4);
    }
    if (!llama_is(label, o->skip)) {
        gguf_tensor(m, label, type_id, in, out > 1 ? out : 0, stored, row_bytes * out);
    }
    if (bias) {
        float *shuffled = (float *)malloc(out * sizeof(float));
        w->bias = (float *)malloc(out * sizeof(float));
        for (uint32_t row = 0; row < out; row++) {
            w->bias[row] = exl2__f16_to_f32(exl2__f32_to_f16(llama_number()));
            shuffled[head_dim ? llama_row(row, head_dim) : row] = w->bias[row];
        }
        snprintf(label, sizeof label, "%s.bias", gguf_name);
        gguf_tensor(m, label, 0, out, 0, shuffled, out * sizeof(float));
        free(shuffled);
    }
    free(blocks);
    free(stored);
}

/* Tokens: three control tokens, a user-defined one, the single bytes a..z and G (space), some pairs, an unused one. */
static void llama_tokenizer(gguf_maker *m, const llama_options *o)
{
    uint32_t count = o->vocab - o->cut_tokens;
    char token[16];
    gguf_key_text(m, "tokenizer.ggml.model", "gpt2");
    if (!llama_is("tokenizer.ggml.pre", o->skip_key)) {
        gguf_key_text(m, "tokenizer.ggml.pre", o->pre ? o->pre : "smollm");
    }
    gguf_key_array(m, "tokenizer.ggml.tokens", 8, count);
    for (uint32_t id = 0; id < count; id++) {
        static const char *const first[4] = { "<|end|>", "<|start|>", "<|pad \"\\\n|>", "<user>" };
        snprintf(token, sizeof token, "%c%c", (int)('a' + (id - 31) / 26 % 26), (int)('a' + (id - 31) % 26));
        if (id < 31) {
            snprintf(token, sizeof token, "%c", (int)('a' + (id - 4) % 26));
        }
        gguf_put_text(&m->keys, id < 4 ? first[id] : id == 30 ? "\xC4\xA0" : id + 1 == count ? "[PAD]" : token);
    }
    gguf_key_array(m, "tokenizer.ggml.token_type", 5, count);
    for (uint32_t id = 0; id < count; id++) {
        gguf_put32(&m->keys, id < 3 ? 3 : id == 3 ? 4 : id + 1 == count ? 5 : 1);
    }
    gguf_key_array(m, "tokenizer.ggml.merges", 8, 3);
    gguf_put_text(&m->keys, "a a");
    gguf_put_text(&m->keys, "a b");
    gguf_put_text(&m->keys, "a z");
    gguf_key_u32(m, "tokenizer.ggml.bos_token_id", 1);
    gguf_key_u32(m, "tokenizer.ggml.eos_token_id", 0);
    gguf_key_u32(m, "tokenizer.ggml.eot_token_id", 3);
    gguf_key_u32(m, "tokenizer.ggml.unknown_token_id", UINT32_MAX); /* none */
    gguf_key_u32(m, "tokenizer.ggml.padding_token_id", 2);
    gguf_key_text(m, "tokenizer.chat_template", "{% for m in messages %}\t\"\\\xE2\x82\xAC\x01{% endfor %}");
}

static void llama_keys(gguf_maker *m, const llama_options *o)
{
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = { { "llama.block_count", o->layers },           { "llama.context_length", 512 },
                  { "llama.embedding_length", o->hidden },      { "llama.feed_forward_length", o->inter },
                  { "llama.attention.head_count", o->heads },   { "llama.attention.head_count_kv", o->kv_heads },
                  { "llama.attention.key_length", o->head_dim }, { "llama.attention.value_length", o->head_dim },
                  { "llama.rope.dimension_count", o->head_dim } };
    gguf_key_text(m, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!llama_is(sizes[i].key, o->skip_key)) {
            gguf_key_u32(m, sizes[i].key, sizes[i].value);
        }
    }
    if (!llama_is("llama.attention.layer_norm_rms_epsilon", o->skip_key)) {
        gguf_key_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    }
    gguf_key_f32(m, "llama.rope.freq_base", 500000.0f);
}

/* Free with llama_free. */
static void llama_make(llama_model *l, const llama_options *o)
{
    gguf_maker m = { 0 };
    bool k = o->hidden % 256 == 0; /* types with blocks of 256 are possible */
    uint32_t q = o->heads * o->head_dim, kv = o->kv_heads * o->head_dim;
    memset(l, 0, sizeof *l);
    llama_keys(&m, o);
    if (!o->no_tokenizer) {
        llama_tokenizer(&m, o);
    }
    llama_add(l, &m, o, "token_embd", "model.embed_tokens", 8, o->hidden, o->vocab, 0, false);
    for (uint32_t layer = 0; layer < o->layers; layer++) {
        static const char *const from[9] = { "attn_q", "attn_k",   "attn_v",    "attn_output", "ffn_gate",
                                             "ffn_up", "ffn_down", "attn_norm", "ffn_norm" };
        static const char *const to[9] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                           "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                           "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm" };
        static const uint32_t plain_types[2][9] = { { 0, 1, 30, 2, 3, 6, 7, 0, 1 }, { 8, 20, 0, 8, 2, 7, 20, 0, 0 } };
        static const uint32_t k_types[2][9] = { { 0, 1, 10, 11, 12, 13, 7, 0, 1 },
                                                { 14, 23, 30, 14, 10, 11, 8, 0, 0 } };
        const uint32_t *types = k ? k_types[layer % 2] : plain_types[layer % 2];
        uint32_t in[9] = { o->hidden, o->hidden, o->hidden, q, o->hidden, o->hidden, o->inter, o->hidden, o->hidden };
        uint32_t out[9] = { q, kv, kv, o->hidden, o->inter, o->inter, o->hidden, 1, 1 };
        for (uint32_t i = 0; i < 9; i++) {
            char gguf_name[64], name[96];
            snprintf(gguf_name, sizeof gguf_name, "blk.%u.%s", layer, from[i]);
            snprintf(name, sizeof name, "model.layers.%u.%s", layer, to[i]);
            llama_add(l, &m, o, gguf_name, name, types[i], in[i], out[i], i < 2 ? o->head_dim : 0,
                      o->attention_bias && i < 3);
        }
    }
    llama_add(l, &m, o, "output_norm", "model.norm", 0, o->hidden, 1, 0, false);
    if (!o->tied) {
        llama_add(l, &m, o, "output", "lm_head", k ? 14 : 1, o->hidden, o->vocab, 0, false);
    }
    if (o->change) {
        o->change(&m);
    }
    l->file = gguf_finish(&m);
}

static void llama_free(llama_model *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        free(l->wanted[i].numbers);
        free(l->wanted[i].bias);
    }
    free(l->file.data);
    memset(l, 0, sizeof *l);
}

static inline const llama_wanted *llama_find(const llama_model *l, const char *name)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (strcmp(l->wanted[i].name, name) == 0) {
            return &l->wanted[i];
        }
    }
    return NULL;
}

#endif
