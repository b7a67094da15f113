/* model_maker.h: a tiny, valid EXL2 Llama model made in memory, tensor by tensor, so that a test can spoil any part of
   it. One layer, hidden size 64, two heads of 32, one K/V head, MLP size 64, vocabulary 64. Every matrix has 32 rows of
   4 bits and 32 of 3 bits. */
#ifndef MODEL_MAKER_H
#define MODEL_MAKER_H

#include "check.h"

#include <stdbool.h>

#ifndef MAKER_TENSORS_MAX
#define MAKER_TENSORS_MAX 64
#endif
#define MAKER_HIDDEN 64u
#define MAKER_CONFIG                                                                                    \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":64,\"hidden_size\":64,\"intermediate_size\":64," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"       \
    "\"hidden_act\":\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0," \
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}"

typedef struct maker_tensor {
    char name[128], dtype[16];
    uint64_t dims[3];
    uint32_t rank;
    uint8_t *data;
    size_t bytes;
    char entry[256]; /* if set: JSON of the header entry, used as it is; `data` is still written */
} maker_tensor;

typedef struct maker {
    maker_tensor tensors[MAKER_TENSORS_MAX];
    uint32_t count;
    uint32_t state; /* state of the random generator */
} maker;

static inline uint32_t maker_random(maker *m)
{
    m->state = m->state * 1664525u + 1013904223u;
    return m->state >> 8;
}

/* Adds a tensor with a copy of `data`, or with random bytes if `data` is NULL. */
static maker_tensor *maker_add(maker *m, const char *key, const char *part, const char *dtype, uint64_t dim0,
                               uint64_t dim1,
                               size_t bytes, const void *data)
{
    maker_tensor *t = &m->tensors[m->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s.%s", key, part);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->dims[0] = dim0;
    t->dims[1] = dim1;
    t->rank = dim1 ? 2 : 1;
    t->bytes = bytes;
    t->data = (uint8_t *)malloc(bytes ? bytes : 1);
    for (size_t i = 0; i < bytes; i++) {
        t->data[i] = data ? ((const uint8_t *)data)[i] : (uint8_t)maker_random(m);
    }
    return t;
}

static void maker_store(uint8_t *p, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(value >> (8 * i));
    }
}

/* f16 values around 1. */
static void maker_add_halves(maker *m, const char *key, uint64_t dim0, uint64_t dim1)
{
    size_t count = (size_t)(dim0 * (dim1 ? dim1 : 1));
    maker_tensor *t = maker_add(m, key, "weight", "F16", dim0, dim1, count * 2, NULL);
    for (size_t i = 0; i < count; i++) {
        maker_store(t->data + 2 * i, 0x3800 + maker_random(m) % 0x800, 2);
    }
}

/* 32 rows of 4 bits and 32 of 3 bits: 4 + 3 word rows. q_invperm[j] = 5j + 7 mod 64. */
static void maker_add_exl2(maker *m, const char *key, uint32_t out)
{
    static const uint8_t groups[] = { 4, 0, 0, 0, 3, 0, 4, 0 };
    static const uint8_t scale_max[] = { 0x66, 0x2a, 0x25, 0x22 };
    uint8_t perm[64 * 4];
    for (uint32_t j = 0; j < 64; j++) {
        maker_store(perm + 4 * j, (5 * j + 7) % 64, 4);
    }
    maker_add(m, key, "q_weight", "I32", 7, out, 7 * out * 4, NULL);
    maker_add(m, key, "q_scale", "I32", 2, out / 8, 2 * out / 8 * 4, NULL);
    maker_add(m, key, "q_scale_max", "F16", 2, 0, sizeof scale_max, scale_max);
    maker_add(m, key, "q_groups", "I16", 4, 0, sizeof groups, groups);
    maker_add(m, key, "q_invperm", "I32", 64, 0, sizeof perm, perm);
}

/* vocab: tokens, a multiple of 32. MAKER_CONFIG is that of 64. */
static inline void maker_make_vocab(maker *m, uint32_t vocab)
{
    memset(m, 0, sizeof *m);
    m->state = 12345;
    maker_add_halves(m, "model.embed_tokens", vocab, 64);
    maker_add_halves(m, "model.layers.0.input_layernorm", 64, 0);
    maker_add_halves(m, "model.layers.0.post_attention_layernorm", 64, 0);
    maker_add_halves(m, "model.norm", 64, 0);
    maker_add_exl2(m, "model.layers.0.self_attn.q_proj", 64);
    maker_add_exl2(m, "model.layers.0.self_attn.k_proj", 32);
    maker_add_exl2(m, "model.layers.0.self_attn.v_proj", 32);
    maker_add_exl2(m, "model.layers.0.self_attn.o_proj", 64);
    maker_add_exl2(m, "model.layers.0.mlp.gate_proj", 64);
    maker_add_exl2(m, "model.layers.0.mlp.up_proj", 64);
    maker_add_exl2(m, "model.layers.0.mlp.down_proj", 64);
    maker_add_exl2(m, "lm_head", vocab);
}

static inline void maker_make(maker *m)
{
    maker_make_vocab(m, 64);
}

static void maker_free(maker *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->tensors[i].data);
    }
    m->count = 0;
}

/* The tensor whose name has this ending; it must exist. */
static maker_tensor *maker_find(maker *m, const char *ending)
{
    for (uint32_t i = 0; i < m->count; i++) {
        size_t bytes = strlen(m->tensors[i].name), wanted = strlen(ending);
        if (bytes >= wanted && strcmp(m->tensors[i].name + bytes - wanted, ending) == 0) {
            return &m->tensors[i];
        }
    }
    printf("maker_find: no %s\n", ending);
    exit(1);
}

static inline void maker_drop(maker *m, const char *ending)
{
    maker_tensor *t = maker_find(m, ending);
    free(t->data);
    *t = m->tensors[--m->count];
}

/* Returns the safetensors file, allocated. The header is padded so that the data begin at a multiple of 8. */
static uint8_t *maker_file(const maker *m, size_t *bytes)
{
    size_t data_bytes = 0, cap = 4096, used = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        data_bytes += m->tensors[i].bytes;
        cap += 1024;
    }
    char *header = (char *)malloc(cap);
    size_t offset = 0;
    used += (size_t)snprintf(header, cap, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < m->count; i++) {
        const maker_tensor *t = &m->tensors[i];
        char shape[96] = "";
        for (uint32_t k = 0; k < t->rank; k++) {
            size_t at = strlen(shape);
            snprintf(shape + at, sizeof shape - at, "%s%llu", k ? "," : "", (unsigned long long)t->dims[k]);
        }
        if (t->entry[0]) {
            used += (size_t)snprintf(header + used, cap - used, ",\"%s\":%s", t->name, t->entry);
        } else {
            used += (size_t)snprintf(header + used, cap - used,
                                     ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                     t->name, t->dtype, shape, offset, offset + t->bytes);
        }
        offset += t->bytes;
    }
    used += (size_t)snprintf(header + used, cap - used, "}");
    while (used % 8) {
        header[used++] = ' ';
    }
    *bytes = 8 + used + data_bytes;
    uint8_t *file = (uint8_t *)malloc(*bytes);
    maker_store(file, used, 8);
    memcpy(file + 8, header, used);
    free(header);
    offset = 8 + used;
    for (uint32_t i = 0; i < m->count; i++) {
        memcpy(file + offset, m->tensors[i].data, m->tensors[i].bytes);
        offset += m->tensors[i].bytes;
    }
    return file;
}

/* Writes a file of a folder. */
static inline void maker_write(const char *dir, const char *name, const void *data, size_t bytes)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (CHECK(file != NULL)) {
        CHECK(fwrite(data, 1, bytes, file) == bytes);
        CHECK(fclose(file) == 0);
    }
}

/* Writes to the folder `dir` a model whose head has as many outputs as a large vocabulary has tokens. */
static inline void maker_write_wide(const char *dir, uint32_t vocab)
{
    static const char *const parts[] = { "q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm" };
    char path[800], name[64];
    const char *config = MAKER_CONFIG, *rest = strchr(config, ','); /* after the architecture */
    maker m;
    size_t bytes;
    maker_make(&m);
    maker_drop(&m, "model.embed_tokens.weight");
    maker_add_halves(&m, "model.embed_tokens", vocab, MAKER_HIDDEN);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "lm_head.%s", parts[i]);
        maker_drop(&m, name);
    }
    maker_add_exl2(&m, "lm_head", vocab);
    uint8_t *data = maker_file(&m, &bytes);
    maker_write(dir, "output.safetensors", data, bytes);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "wb");
    CHECK(f && fprintf(f, "%.*s,\"vocab_size\":%u%s", (int)(rest - config), config, vocab, strchr(rest + 1, ',')) > 0
          && fclose(f) == 0);
    free(data);
    maker_free(&m);
}

#endif
