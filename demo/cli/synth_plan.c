/* synth_plan.c: see synth_plan.h.
   takes: tables of shapes and of the mixes that the EXL2 converter chooses for them.
   gives: what synth_plan.h declares.
   owns:  the plan's list of tensors. */
#include "synth_plan.h"

#include "../common/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const synth_shape shapes[] = {
    { "smollm2-135m", 576, 1536, 30, 9, 3, 64, 49152, 100000 },
    { "tinyllama-1.1b", 2048, 5632, 22, 32, 4, 64, 32000, 10000 },
    { "llama3.2-3b", 3072, 8192, 28, 24, 8, 128, 128256, 500000 },
    { "llama2-7b", 4096, 11008, 32, 32, 32, 128, 32000, 10000 },
    { "llama3-8b", 4096, 14336, 32, 32, 8, 128, 128256, 500000 },
    { "llama2-13b", 5120, 13824, 40, 40, 40, 128, 32000, 10000 },
    { "llama2-70b", 8192, 28672, 80, 64, 8, 128, 32000, 10000 },
};

typedef struct rate {
    double bpw;
    synth_mix attn, v, gate, up, down; /* attn: for q, k and o */
} rate;

static const rate rates[] = {
    { .bpw = 2.5,
      .attn = { { { 3, .1, 64 }, { 2, .9, 64 } } },
      .v = { { { 4, .1, 128 }, { 3, .9, 128 } } },
      .gate = { { { 3, .1, 64 }, { 2, .9, 64 } } },
      .up = { { { 3, .3, 64 }, { 2, .7, 64 } } },
      .down = { { { 5, .05, 32 }, { 3, .95, 32 } } } },
    { .bpw = 3.0,
      .attn = { { { 4, .1, 128 }, { 3, .9, 128 } } },
      .v = { { { 4, .1, 64 }, { 3, .9, 64 } } },
      .gate = { { { 3, .3, 64 }, { 2, .7, 64 } } },
      .up = { { { 4, .25, 128 }, { 3, .75, 128 } } },
      .down = { { { 8, .05, 32 }, { 4, .1, 128 }, { 3, .85, 128 } } } },
    { .bpw = 4.0,
      .attn = { { { 4, 1, 128 } } },
      .v = { { { 4, 1, 64 } } },
      .gate = { { { 4, .1, 32 }, { 3, .9, 32 } } },
      .up = { { { 4, 1, 32 } } },
      .down = { { { 8, .05, 32 }, { 4, .95, 128 } } } },
    { .bpw = 4.5,
      .attn = { { { 5, .1, 64 }, { 4, .9, 64 } } },
      .v = { { { 5, 1, 64 } } },
      .gate = { { { 5, .1, 128 }, { 4, .9, 128 } } },
      .up = { { { 5, .25, 128 }, { 4, .75, 128 } } },
      .down = { { { 8, .05, 32 }, { 5, .1, 128 }, { 4, .85, 128 } } } },
    { .bpw = 5.0,
      .attn = { { { 6, .1, 128 }, { 5, .9, 128 } } },
      .v = { { { 6, 1, 128 } } },
      .gate = { { { 5, .1, 32 }, { 4, .9, 32 } } },
      .up = { { { 5, .25, 32 }, { 4, .75, 32 } } },
      .down = { { { 8, .05, 32 }, { 6, .1, 128 }, { 5, .85, 128 } } } },
    { .bpw = 6.0,
      .attn = { { { 6, 1, 128 } } },
      .v = { { { 6, 1, 128 } } },
      .gate = { { { 6, 1, 128 } } },
      .up = { { { 6, 1, 128 } } },
      .down = { { { 8, .05, 32 }, { 6, .95, 128 } } } },
    { .bpw = 8.0,
      .attn = { { { 8, 1, 128 } } },
      .v = { { { 8, 1, 128 } } },
      .gate = { { { 8, 1, 128 } } },
      .up = { { { 8, 1, 128 } } },
      .down = { { { 8, 1, 128 } } } },
};

static const synth_mix head_mix = { { { 8, .15, 128 }, { 6, .85, 128 } } };

const synth_shape *synth_shape_find(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strcmp(shapes[i].name, name) == 0) {
            return &shapes[i];
        }
    }
    return NULL;
}

static const rate *find_rate(double bpw)
{
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (fabs(rates[i].bpw - bpw) < 1e-6) {
            return &rates[i];
        }
    }
    return NULL;
}

bool synth_bpw_known(double bpw)
{
    return find_rate(bpw) != NULL;
}

uint32_t synth_groups(const synth_mix *mix, uint32_t rows, synth_group groups[SYNTH_GROUPS_MAX])
{
    uint32_t left = rows, count = 0, word_row = 0;
    for (uint32_t part = 0; part < SYNTH_MIX_PARTS && mix->parts[part].bits; part++) {
        uint32_t size = mix->parts[part].group, bits = mix->parts[part].bits;
        double wanted = fmin(rows * mix->parts[part].share, left);
        uint32_t wanted_groups = (uint32_t)ceil(wanted / size - 1e-9);
        for (uint32_t g = 0; g < wanted_groups && left && count < SYNTH_GROUPS_MAX; g++) {
            uint32_t in_group = size < left ? size : left;
            groups[count++] = (synth_group){ bits, word_row, in_group };
            word_row += in_group * bits / 32;
            left -= in_group;
        }
    }
    return count;
}

static synth_tensor *add(synth_plan *p, const char *prefix, const char *name, const char *dtype, uint64_t rows,
                         uint64_t columns, synth_fill fill, uint64_t seed)
{
    if (p->count == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 512;
        p->tensors = memory_grow(p->tensors, p->cap, sizeof *p->tensors);
    }
    synth_tensor *t = &p->tensors[p->count++];
    *t = (synth_tensor){ .dtype = dtype, .shape = { rows, columns }, .fill = fill, .seed = seed };
    t->bytes = rows * (columns ? columns : 1) * (dtype[1] == '3' ? 4 : 2); /* I32, else I16 or F16 */
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
    return t;
}

/* Adds the five tensors of a matrix and returns its bits. Matrices that read the same input share perm_seed, and with
   it their permutation. */
static uint64_t add_matrix(synth_plan *p, const char *prefix, const char *name, uint32_t in, uint32_t out,
                           const synth_mix *mix, uint64_t seed, uint64_t perm_seed)
{
    synth_group groups[SYNTH_GROUPS_MAX];
    char key[64];
    uint32_t count = synth_groups(mix, in, groups);
    uint32_t word_rows = groups[count - 1].word_row + groups[count - 1].rows * groups[count - 1].bits / 32;
    uint32_t stored = (out + 31) / 32 * 32;
    snprintf(key, sizeof key, "%s%s", prefix, name);
    add(p, key, ".q_weight", "I32", word_rows, stored, SYNTH_WORDS, seed);
    add(p, key, ".q_scale", "I32", count, stored / 8, SYNTH_WORDS, seed + 1);
    synth_tensor *t = add(p, key, ".q_scale_max", "F16", count, 0, SYNTH_SCALE_MAX, 0);
    t->mix = mix;
    t->rows = in;
    t = add(p, key, ".q_groups", "I16", (uint64_t)count * 2, 0, SYNTH_GROUPS, 0);
    t->mix = mix;
    t->rows = in;
    t = add(p, key, ".q_invperm", "I32", in, 0, SYNTH_PERM, perm_seed);
    t->rows = in;
    return (uint64_t)word_rows * 32 * stored + (uint64_t)count * (stored * 4 + 16) + (uint64_t)in * 16;
}

static void add_layer(synth_plan *p, uint32_t layer, const rate *r, uint64_t seed)
{
    const synth_shape *s = p->shape;
    uint32_t hidden = s->hidden, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, inter = s->inter;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "model.layers.%u.", layer);
    seed += ((uint64_t)layer + 1) << 8;
    add(p, prefix, "input_layernorm.weight", "F16", hidden, 0, SYNTH_NORMS, seed);
    add(p, prefix, "post_attention_layernorm.weight", "F16", hidden, 0, SYNTH_NORMS, seed + 1);
    p->layer_bits += add_matrix(p, prefix, "self_attn.q_proj", hidden, q, &r->attn, seed + 10, seed + 2);
    p->layer_bits += add_matrix(p, prefix, "self_attn.k_proj", hidden, kv, &r->attn, seed + 20, seed + 2);
    p->layer_bits += add_matrix(p, prefix, "self_attn.v_proj", hidden, kv, &r->v, seed + 30, seed + 2);
    p->layer_bits += add_matrix(p, prefix, "self_attn.o_proj", q, hidden, &r->attn, seed + 40, seed + 3);
    p->layer_bits += add_matrix(p, prefix, "mlp.gate_proj", hidden, inter, &r->gate, seed + 50, seed + 4);
    p->layer_bits += add_matrix(p, prefix, "mlp.up_proj", hidden, inter, &r->up, seed + 60, seed + 4);
    p->layer_bits += add_matrix(p, prefix, "mlp.down_proj", inter, hidden, &r->down, seed + 70, seed + 5);
    p->layer_weights += (uint64_t)hidden * (2 * q + 2 * kv) + (uint64_t)hidden * inter * 3;
}

synth_plan synth_plan_make(const synth_shape *shape, double bpw, uint32_t seed)
{
    synth_plan p = { .shape = shape, .bpw = bpw };
    uint64_t base = (uint64_t)seed << 32; /* the seeds of layers and tensors count up from it */
    add(&p, "", "model.embed_tokens.weight", "F16", shape->vocab, shape->hidden, SYNTH_EMBEDDING, base);
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        add_layer(&p, layer, find_rate(bpw), base);
    }
    add(&p, "", "model.norm.weight", "F16", shape->hidden, 0, SYNTH_NORMS, base + 1);
    p.head_bits = add_matrix(&p, "", "lm_head", shape->hidden, shape->vocab, &head_mix, base + 2, base + 4);
    return p;
}
