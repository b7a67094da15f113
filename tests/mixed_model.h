/* mixed_model.h: small random models whose matrices are each stored in a kind of their own (dense, GPTQ, AWQ, EXL2,
   EXL3), as a folder in memory, and their logits by a forward pass in double from the weights that the file formats
   define. Written from the formats, not with the loader's code. Two layers, hidden size 64, two heads of 32, one K/V
   head, MLP of 96. */
#ifndef MIXED_MODEL_H
#define MIXED_MODEL_H

#define MAKER_TENSORS_MAX 512
#include "model_maker.h"

#include "../exl2.h"

#include "private/half.h"

#include <math.h>

#define MIXED_HIDDEN 64u
#define MIXED_INTER 96u
#define MIXED_VOCAB 96u
#define MIXED_LAYERS 2u
#define MIXED_EXPERTS 4u
#define MIXED_TOKENS 40u
#define MIXED_MATRICES (4 + 3 * MIXED_EXPERTS) /* of a layer, at most: q, k, v, o, then gate, up, down of each expert */

/* kinds: MIXED_LAYERS texts with a letter for each matrix, in the order above. d: dense F16; b: dense BF16; g: GPTQ of
   4 bits; a: the same with act order; 2, 3, 8: GPTQ of so many bits; w: AWQ; e: EXL2 of 4 and 3 bits;
   t: EXL3 of 4 bits, MUL1; m: of 3 bits, MCG. */
typedef struct mixed_model {
    const char *kinds[MIXED_LAYERS];
    const char *config;        /* members of config.json beside those of the shape; begins with a comma, or "" */
    const char *name, *text;   /* a further file, or NULL */
    bool experts;              /* a Mixtral with 4 experts, 2 of them active */
    bool symmetric;            /* GPTQ: all zeros are 2^(bits-1) */
    bool v2[MIXED_LAYERS];     /* GPTQ: the zeros of the layer are stored as version 2 does */
    uint32_t state;            /* of the random numbers; the seed at first */
    maker m;
    double *w[MIXED_LAYERS][MIXED_MATRICES]; /* [out, in] */
    double embed[MIXED_VOCAB * MIXED_HIDDEN], norm[2 * MIXED_LAYERS + 1][MIXED_HIDDEN];
    double router[MIXED_LAYERS][MIXED_EXPERTS * MIXED_HIDDEN];
    double closest;            /* the smallest distance between the logits of a chosen and another expert */
    char config_json[1600];
    uint8_t *file;
    size_t file_bytes;
} mixed_model;

static uint32_t mixed_random(mixed_model *x, uint32_t below)
{
    x->state = x->state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(x->state >> 8) * below >> 24);
}

static double mixed_uniform(mixed_model *x, double low, double high)
{
    return low + (high - low) * mixed_random(x, 1u << 20) / (1u << 20);
}

static uint16_t mixed_half(mixed_model *x, double low, double high)
{
    return exl2__f32_to_f16((float)mixed_uniform(x, low, high));
}

static double mixed_value(uint16_t half)
{
    return (double)exl2__f16_to_f32(half);
}

/* Shuffles items in the order that a number stands for. */
static void mixed_shuffle(uint32_t order, uint32_t *items, uint32_t count)
{
    static mixed_model own;
    own.state = 1 + order * 7919;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = mixed_random(&own, i), held = items[i - 1];
        items[i - 1] = items[other];
        items[other] = held;
    }
}

/* Code `index` of a stream of `bits`-bit codes in little-endian words; words are `step` apart. */
static void mixed_put(uint32_t *words, size_t step, uint32_t index, uint32_t bits, uint32_t code)
{
    for (uint32_t i = 0; i < bits; i++) {
        uint32_t at = index * bits + i;
        words[at / 32 * step] |= (code >> i & 1u) << at % 32;
    }
}

static void mixed_add_words(mixed_model *x, const char *key, const char *part, uint32_t rows, uint32_t columns,
                            const uint32_t *words)
{
    size_t bytes = (size_t)rows * (columns ? columns : 1) * 4;
    maker_tensor *t = maker_add(&x->m, key, part, "I32", rows, columns, bytes, NULL);
    for (size_t i = 0; i < t->bytes / 4; i++) {
        maker_store(t->data + 4 * i, words[i], 4);
    }
}

/* ---- the kinds ---- */

/* most: the largest weight */
static void mixed_dense(mixed_model *x, const char *key, uint32_t in, uint32_t out, double most, bool brain, double *w)
{
    maker_tensor *t = maker_add(&x->m, key, "weight", brain ? "BF16" : "F16", out, in, (size_t)out * in * 2, NULL);
    for (size_t i = 0; i < (size_t)out * in; i++) {
        uint16_t half = mixed_half(x, -most, most);
        float value = exl2__f16_to_f32(half);
        uint16_t stored = brain ? (uint16_t)(exl2__float_bits(value) >> 16) : half;
        w[i] = brain ? (double)exl2__bf16_to_f32(stored) : (double)value;
        maker_store(t->data + 2 * i, stored, 2);
    }
}

/* GPTQ and AWQ in groups of 32 rows. */
static void mixed_affine(mixed_model *x, const char *key, uint32_t in, uint32_t out, uint32_t bits, bool act,
                         uint32_t order, bool awq, bool v2, double *w)
{
    static const uint32_t nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }; /* AWQ: of column n % 8 */
    uint32_t groups = in / 32, word_rows = awq ? in : in * bits / 32, word_columns = awq ? out / 8 : out;
    uint32_t zero_columns = out * bits / 32, group[96], *words, *zero_words;
    words = (uint32_t *)calloc((size_t)word_rows * word_columns, 4);
    zero_words = (uint32_t *)calloc((size_t)groups * zero_columns, 4);
    for (uint32_t k = 0; k < in; k++) {
        group[k] = k / 32;
    }
    if (act) {
        mixed_shuffle(order, group, in);
    }
    uint16_t scale[3][MIXED_INTER > MIXED_HIDDEN ? MIXED_INTER : MIXED_HIDDEN];
    uint32_t zero[3][MIXED_INTER > MIXED_HIDDEN ? MIXED_INTER : MIXED_HIDDEN], half = 1u << (bits - 1);
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t n = 0; n < out; n++) {
            scale[g][n] = mixed_half(x, 0.3 / (1u << bits), 0.55 / (1u << bits));
            zero[g][n] = x->symmetric ? half : half - 1 + mixed_random(x, 3);
            uint32_t stored = zero[g][n] - (awq || v2 ? 0 : 1);
            if (awq) {
                zero_words[g * zero_columns + n / 8] |= stored << 4 * nibble[n % 8];
            } else {
                mixed_put(zero_words + (size_t)g * zero_columns, 1, n, bits, stored);
            }
        }
    }
    for (uint32_t k = 0; k < in; k++) {
        for (uint32_t n = 0; n < out; n++) {
            uint32_t code = mixed_random(x, 1u << bits), g = group[k];
            double value = ((double)code - (double)zero[g][n]) * mixed_value(scale[g][n]);
            w[(size_t)n * in + k] = mixed_value(exl2__f32_to_f16((float)value));
            if (awq) {
                words[k * word_columns + n / 8] |= code << 4 * nibble[n % 8];
            } else {
                mixed_put(words + n, out, k, bits, code);
            }
        }
    }
    mixed_add_words(x, key, "qweight", word_rows, word_columns, words);
    mixed_add_words(x, key, "qzeros", groups, zero_columns, zero_words);
    if (!awq) {
        mixed_add_words(x, key, "g_idx", in, 0, group);
    }
    maker_tensor *t = maker_add(&x->m, key, "scales", "F16", groups, out, (size_t)groups * out * 2, NULL);
    for (uint32_t i = 0; i < groups * out; i++) {
        maker_store(t->data + 2 * i, scale[i / out][i % out], 2);
    }
    free(words);
    free(zero_words);
}

/* EXL2: 32 rows of 4 bits, then rows of 3 bits in one group, in a random order of inputs. */
static void mixed_exl2(mixed_model *x, const char *key, uint32_t in, uint32_t out, uint32_t order, double *w)
{
    uint32_t word_rows = 4 + (in - 32) * 3 / 32, perm[MIXED_INTER];
    uint32_t *words = (uint32_t *)calloc((size_t)word_rows * out, 4), *levels = (uint32_t *)calloc(out / 4, 4);
    const uint8_t groups[] = { 4, 0, 0, 0, 3, 0, 4, 0 };
    uint16_t most[2] = { mixed_half(x, 0.15, 0.25), mixed_half(x, 0.3, 0.5) };
    uint8_t level[2][MIXED_INTER];
    for (uint32_t j = 0; j < in; j++) {
        perm[j] = j;
    }
    mixed_shuffle(order, perm, in);
    for (uint32_t i = 0; i < 2 * out; i++) {
        level[i / out][i % out] = (uint8_t)(3 + mixed_random(x, 5));
        mixed_put(levels + i / out * (out / 8), 1, i % out, 4, level[i / out][i % out]);
    }
    for (uint32_t j = 0; j < in; j++) {
        uint32_t g = perm[j] >= 32, bits = g ? 3 : 4;
        double maximum = mixed_value(exl2__f32_to_f16((float)(mixed_value(most[g]) / 256)));
        for (uint32_t n = 0; n < out; n++) {
            uint32_t code = mixed_random(x, 1u << bits), root = level[g][n] + 1u;
            double scale = mixed_value(exl2__f32_to_f16((float)(root * root * maximum)));
            double value = ((double)code - (1u << (bits - 1))) * scale;
            w[(size_t)n * in + j] = mixed_value(exl2__f32_to_f16((float)value));
            mixed_put(words + (g ? 4 * out : 0) + n, out, perm[j] - (g ? 32 : 0), bits, code);
        }
    }
    mixed_add_words(x, key, "q_weight", word_rows, out, words);
    mixed_add_words(x, key, "q_scale", 2, out / 8, levels);
    mixed_add_words(x, key, "q_invperm", in, 0, perm);
    uint8_t maxima[4];
    maker_store(maxima, most[0], 2);
    maker_store(maxima + 2, most[1], 2);
    maker_add(&x->m, key, "q_scale_max", "F16", 2, 0, 4, maxima);
    maker_add(&x->m, key, "q_groups", "I16", 4, 0, sizeof groups, groups);
    free(words);
    free(levels);
}

/* The value of a state of EXL3's codebooks MCG and MUL1, which is rounded once. */
static double mixed_state(uint32_t state, bool mcg)
{
    uint32_t product = state * (mcg ? 0xCBAC1FEDu : 0x83DCD12Du), sum = 0;
    if (mcg) {
        uint32_t halves = (product & 0x8FFF8FFFu) ^ 0x3B603B60u;
        double value = mixed_value((uint16_t)halves) + mixed_value((uint16_t)(halves >> 16));
        return mixed_value(exl2__f32_to_f16((float)value));
    }
    for (uint32_t i = 0; i < 4; i++) {
        sum += product >> 8 * i & 255;
    }
    return mixed_value(exl2__f32_to_f16((float)((1024.0 + sum) * mixed_value(0x1EEE) + mixed_value(0xC931))));
}

/* Transforms 128 values that are `step` apart. */
static void mixed_hadamard(double *v, size_t step)
{
    for (uint32_t h = 1; h < 128; h *= 2) {
        for (uint32_t i = 0; i < 128; i++) {
            double a = v[i * step], b = v[(i ^ h) * step];
            if (!(i & h)) {
                v[i * step] = a + b;
                v[(i ^ h) * step] = a - b;
            }
        }
    }
    for (uint32_t i = 0; i < 128; i++) {
        v[i * step] /= sqrt(128);
    }
}

/* EXL3: tiles of 16 inputs and 16 outputs, each a ring of 256 states; one block of 128 inputs and outputs, of which
   only some are the model's. */
static void mixed_exl3(mixed_model *x, const char *key, uint32_t in, uint32_t out, bool mcg, double *w)
{
    uint32_t bits = mcg ? 3 : 4, words = 16 * bits, ring = 256 * bits;
    double *turned = (double *)calloc(128 * 128, sizeof *turned), scale[2][128]; /* turned: [inputs, outputs] */
    maker_tensor *t = maker_add(&x->m, key, "trellis", "I16", 8, 8, 64 * (size_t)words * 2, NULL);
    t->rank = 3;
    t->dims[2] = words;
    for (uint32_t tile = 0; tile < 64; tile++) {
        uint8_t *at = t->data + (size_t)tile * words * 2;
        for (uint32_t i = 0; i < 2 * words; i++) {
            at[i] = (uint8_t)mixed_random(x, 256);
        }
        for (uint32_t p = 0; p < 256; p++) {
            uint32_t state = 0, lane = p / 8, q = p % 8;
            for (uint32_t i = 0; i < 16; i++) { /* bit b of the ring is bit 31 - b % 32 of the 32-bit word b / 32 */
                uint32_t b = ((p + 1) * bits + ring - 16 + i) % ring, place = 31 - b % 32;
                state = state << 1 | ((uint32_t)at[b / 32 * 4 + place / 8] >> place % 8 & 1u);
            }
            uint32_t row = 2 * (lane % 4) + q % 2 + 8 * (q / 2 % 2), column = lane / 4 + 8 * (q / 4);
            turned[(tile / 8 * 16 + row) * 128 + tile % 8 * 16 + column] = mixed_state(state, mcg);
        }
    }
    for (uint32_t side = 0; side < 2; side++) {
        maker_tensor *of = maker_add(&x->m, key, side ? "svh" : "suh", "F16", 128, 0, 256, NULL);
        for (uint32_t i = 0; i < 128; i++) {
            uint16_t half = mixed_half(x, side ? 0.4 : 0.2, side ? 0.6 : 0.3);
            half = (uint16_t)(half ^ mixed_random(x, 2) << 15);
            maker_store(of->data + 2 * i, half, 2);
            scale[side][i] = mixed_value(half);
        }
    }
    uint8_t factor[4];
    maker_store(factor, mcg ? 0xCBAC1FEDu : 0x83DCD12Du, 4);
    maker_add(&x->m, key, mcg ? "mcg" : "mul1", "I32", 0, 0, sizeof factor, factor)->rank = 0;
    for (uint32_t i = 0; i < 128; i++) {
        mixed_hadamard(turned + (size_t)i * 128, 1);
    }
    for (uint32_t n = 0; n < 128; n++) {
        mixed_hadamard(turned + n, 128);
    }
    for (uint32_t n = 0; n < out; n++) {
        for (uint32_t k = 0; k < in; k++) {
            w[(size_t)n * in + k] = scale[0][k] * turned[(size_t)k * 128 + n] * scale[1][n];
        }
    }
    free(turned);
}

/* ---- the model ---- */

static const char *mixed_key(const mixed_model *x, uint32_t layer, uint32_t matrix, uint32_t *in, uint32_t *out)
{
    static char key[96];
    static const char *const attention[] = { "q_proj", "k_proj", "v_proj", "o_proj" };
    static const char *const mlp[] = { "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" };
    static const char *const w[] = { "w1", "w3", "w2" };
    uint32_t part = (matrix - 4) % 3;
    if (matrix < 4) {
        snprintf(key, sizeof key, "model.layers.%u.self_attn.%s", layer, attention[matrix]);
    } else if (x->experts) {
        snprintf(key, sizeof key, "model.layers.%u.block_sparse_moe.experts.%u.%s", layer, (matrix - 4) / 3, w[part]);
    } else {
        snprintf(key, sizeof key, "model.layers.%u.%s", layer, mlp[part]);
    }
    *in = matrix >= 4 && part == 2 ? MIXED_INTER : MIXED_HIDDEN;
    *out = matrix == 1 || matrix == 2 ? 32 : matrix >= 4 && part < 2 ? MIXED_INTER : MIXED_HIDDEN;
    return key;
}

static inline uint32_t mixed_matrices(const mixed_model *x)
{
    return x->experts ? MIXED_MATRICES : 7;
}

static void mixed_vector(mixed_model *x, const char *key, double *out)
{
    maker_tensor *t = maker_add(&x->m, key, "weight", "F16", MIXED_HIDDEN, 0, MIXED_HIDDEN * 2, NULL);
    for (uint32_t i = 0; i < MIXED_HIDDEN; i++) {
        uint16_t half = mixed_half(x, 0.8, 1.2);
        maker_store(t->data + 2 * i, half, 2);
        out[i] = mixed_value(half);
    }
}

static void mixed_make(mixed_model *x)
{
    char key[96];
    memset(&x->m, 0, sizeof x->m);
    mixed_dense(x, "model.embed_tokens", MIXED_HIDDEN, MIXED_VOCAB, 0.22, false, x->embed);
    mixed_vector(x, "model.norm", x->norm[2 * MIXED_LAYERS]);
    for (uint32_t layer = 0; layer < MIXED_LAYERS; layer++) {
        snprintf(key, sizeof key, "model.layers.%u.input_layernorm", layer);
        mixed_vector(x, key, x->norm[2 * layer]);
        snprintf(key, sizeof key, "model.layers.%u.post_attention_layernorm", layer);
        mixed_vector(x, key, x->norm[2 * layer + 1]);
        if (x->experts) {
            snprintf(key, sizeof key, "model.layers.%u.block_sparse_moe.gate", layer);
            mixed_dense(x, key, MIXED_HIDDEN, MIXED_EXPERTS, 2, false, x->router[layer]);
        }
        for (uint32_t i = 0; i < mixed_matrices(x); i++) {
            uint32_t in, out;
            const char *name = mixed_key(x, layer, i, &in, &out);
            char kind = x->kinds[layer][i];
            /* q, k and v have one order of inputs, and so have gate and up of an expert. */
            uint32_t order = 100 * layer + (i < 3 ? 0 : i == 3 ? 1 : 2 + (i - 4) / 3 * 2 + ((i - 4) % 3 == 2));
            double *w = x->w[layer][i] = (double *)malloc((size_t)in * out * sizeof *w);
            if (kind == 'd' || kind == 'b') {
                mixed_dense(x, name, in, out, 0.22, kind == 'b', w);
            } else if (kind == 'e') {
                mixed_exl2(x, name, in, out, order, w);
            } else if (kind == 't' || kind == 'm') {
                mixed_exl3(x, name, in, out, kind == 'm', w);
            } else {
                uint32_t bits = kind >= '2' && kind <= '8' ? (uint32_t)(kind - '0') : 4;
                mixed_affine(x, name, in, out, bits, kind == 'a', order, kind == 'w', x->v2[layer], w);
            }
        }
    }
    snprintf(x->config_json, sizeof x->config_json,
             "{\"architectures\":[\"%s\"],\"vocab_size\":%u,\"hidden_size\":%u,\"intermediate_size\":%u,"
             "\"num_hidden_layers\":%u,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
             "\"hidden_act\":\"silu\",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
             "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2%s%s}",
             x->experts ? "MixtralForCausalLM" : "LlamaForCausalLM", MIXED_VOCAB, MIXED_HIDDEN, MIXED_INTER,
             MIXED_LAYERS, x->experts ? ",\"num_local_experts\":4,\"num_experts_per_tok\":2" : "", x->config);
    x->file = maker_file(&x->m, &x->file_bytes);
    maker_free(&x->m);
}

static void mixed_free(mixed_model *x)
{
    for (uint32_t i = 0; i < MIXED_LAYERS * MIXED_MATRICES; i++) {
        free(x->w[i / MIXED_MATRICES][i % MIXED_MATRICES]);
    }
    free(x->file);
    memset(x->w, 0, sizeof x->w);
    x->file = NULL;
}

/* ---- the folder in memory ---- */

typedef struct mixed_file {
    const void *data;
    size_t bytes;
} mixed_file;

static void *mixed_open(void *user, const char *path, uint64_t *bytes)
{
    const mixed_model *x = (const mixed_model *)user;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    mixed_file file = { NULL, 0 };
    if (strcmp(name, "config.json") == 0) {
        file = (mixed_file){ x->config_json, strlen(x->config_json) };
    } else if (strcmp(name, "model.safetensors") == 0) {
        file = (mixed_file){ x->file, x->file_bytes };
    } else if (x->name && strcmp(name, x->name) == 0) {
        file = (mixed_file){ x->text, strlen(x->text) };
    }
    mixed_file *copy = file.data ? (mixed_file *)malloc(sizeof *copy) : NULL;
    if (copy) {
        *copy = file;
        *bytes = file.bytes;
    }
    return copy;
}

static bool mixed_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    (void)user;
    (void)dir;
    snprintf(name, cap, "%s", "model.safetensors");
    return index == 0;
}

static int64_t mixed_read(void *user, void *handle, uint64_t offset, void *dst, size_t bytes)
{
    const mixed_file *file = (const mixed_file *)handle;
    (void)user;
    bytes = offset >= file->bytes ? 0 : bytes < file->bytes - offset ? bytes : file->bytes - (size_t)offset;
    if (bytes) {
        memcpy(dst, (const uint8_t *)file->data + offset, bytes);
    }
    return (int64_t)bytes;
}

static void mixed_close(void *user, void *handle)
{
    (void)user;
    free(handle);
}

static inline exl2_files mixed_files(mixed_model *x)
{
    return (exl2_files){ mixed_open, mixed_list, mixed_read, mixed_close, x };
}

/* ---- the forward pass ---- */

static void mixed_product(const double *w, const double *x, uint32_t in, uint32_t out, double *y)
{
    for (uint32_t n = 0; n < out; n++) {
        y[n] = 0;
        for (uint32_t k = 0; k < in; k++) {
            y[n] += w[(size_t)n * in + k] * x[k];
        }
    }
}

static void mixed_norm(const double *weight, const double *x, double *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < MIXED_HIDDEN; i++) {
        sum += x[i] * x[i] / MIXED_HIDDEN;
    }
    for (uint32_t i = 0; i < MIXED_HIDDEN; i++) {
        y[i] = x[i] / sqrt(sum + 1e-5) * weight[i];
    }
}

static void mixed_rotate(double *head, uint32_t position)
{
    for (uint32_t i = 0; i < 16; i++) {
        double angle = position * pow(10000, -2.0 * i / 32), a = head[i], b = head[i + 16];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + 16] = b * cos(angle) + a * sin(angle);
    }
}

/* residual += factor * MLP(x), with the matrices from `first` on */
static void mixed_mlp(const mixed_model *x, uint32_t layer, uint32_t first, const double *h, double factor,
                      double *residual)
{
    double gate[MIXED_INTER], up[MIXED_INTER], y[MIXED_HIDDEN];
    mixed_product(x->w[layer][first], h, MIXED_HIDDEN, MIXED_INTER, gate);
    mixed_product(x->w[layer][first + 1], h, MIXED_HIDDEN, MIXED_INTER, up);
    for (uint32_t i = 0; i < MIXED_INTER; i++) {
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    }
    mixed_product(x->w[layer][first + 2], gate, MIXED_INTER, MIXED_HIDDEN, y);
    for (uint32_t i = 0; i < MIXED_HIDDEN; i++) {
        residual[i] += factor * y[i];
    }
}

/* The two experts with the largest logits, by the softmax over these two. */
static void mixed_route(mixed_model *x, uint32_t layer, const double *h, double *residual)
{
    double logit[MIXED_EXPERTS];
    uint32_t order[MIXED_EXPERTS];
    mixed_product(x->router[layer], h, MIXED_HIDDEN, MIXED_EXPERTS, logit);
    for (uint32_t i = 0; i < MIXED_EXPERTS; i++) {
        uint32_t at = i;
        for (; at > 0 && logit[order[at - 1]] < logit[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    x->closest = fmin(x->closest, logit[order[1]] - logit[order[2]]);
    double first = 1 / (1 + exp(logit[order[1]] - logit[order[0]]));
    mixed_mlp(x, layer, 4 + 3 * order[0], h, first, residual);
    mixed_mlp(x, layer, 4 + 3 * order[1], h, 1 - first, residual);
}

/* logits [MIXED_TOKENS, MIXED_VOCAB] */
static void mixed_forward(mixed_model *x, const int32_t *ids, double *logits)
{
    static double keys[MIXED_LAYERS][MIXED_TOKENS][32], values[MIXED_LAYERS][MIXED_TOKENS][32];
    x->closest = 1e9;
    for (uint32_t p = 0; p < MIXED_TOKENS; p++) {
        double residual[MIXED_HIDDEN], h[MIXED_HIDDEN], q[MIXED_HIDDEN], y[MIXED_HIDDEN];
        memcpy(residual, x->embed + (size_t)ids[p] * MIXED_HIDDEN, sizeof residual);
        for (uint32_t layer = 0; layer < MIXED_LAYERS; layer++) {
            double attended[MIXED_HIDDEN] = { 0 }, score[MIXED_TOKENS];
            mixed_norm(x->norm[2 * layer], residual, h);
            mixed_product(x->w[layer][0], h, MIXED_HIDDEN, MIXED_HIDDEN, q);
            mixed_product(x->w[layer][1], h, MIXED_HIDDEN, 32, keys[layer][p]);
            mixed_product(x->w[layer][2], h, MIXED_HIDDEN, 32, values[layer][p]);
            mixed_rotate(keys[layer][p], p);
            for (uint32_t head = 0; head < 2; head++) {
                double sum = 0;
                mixed_rotate(q + 32 * head, p);
                for (uint32_t j = 0; j <= p; j++) {
                    score[j] = 0;
                    for (uint32_t i = 0; i < 32; i++) {
                        score[j] += q[32 * head + i] * keys[layer][j][i] / sqrt(32);
                    }
                    score[j] = exp(score[j]);
                    sum += score[j];
                }
                for (uint32_t j = 0; j <= p; j++) {
                    for (uint32_t i = 0; i < 32; i++) {
                        attended[32 * head + i] += score[j] / sum * values[layer][j][i];
                    }
                }
            }
            mixed_product(x->w[layer][3], attended, MIXED_HIDDEN, MIXED_HIDDEN, y);
            for (uint32_t i = 0; i < MIXED_HIDDEN; i++) {
                residual[i] += y[i];
            }
            mixed_norm(x->norm[2 * layer + 1], residual, h);
            if (x->experts) {
                mixed_route(x, layer, h, residual);
            } else {
                mixed_mlp(x, layer, 4, h, 1, residual);
            }
        }
        mixed_norm(x->norm[2 * MIXED_LAYERS], residual, h);
        mixed_product(x->embed, h, MIXED_HIDDEN, MIXED_VOCAB, logits + (size_t)p * MIXED_VOCAB);
    }
}

#endif
