/* synth_plan.c: see synth_plan.h.
   takes: a shape; a table of the mixes that the EXL2 converter chooses.
   gives: what synth_plan.h declares.
   owns:  the plan's list of tensors. */
#include "synth_plan.h"

#include "../common/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static const rate *find_rate(double bpw)
{
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (fabs(rates[i].bpw - bpw) < 1e-6) {
            return &rates[i];
        }
    }
    return NULL;
}

static const char *const format_names[SYNTH_FORMATS] = { "exl2", "gptq", "awq", "dense", "exl3" };

bool synth_format_find(const char *name, synth_format *out)
{
    for (uint32_t i = 0; i < SYNTH_FORMATS; i++) {
        if (strcmp(format_names[i], name) == 0) {
            *out = (synth_format)i;
            return true;
        }
    }
    return false;
}

const char *synth_format_name(synth_format format)
{
    return format_names[format];
}

bool synth_bpw_known(synth_format format, double bpw)
{
    bool four = fabs(bpw - 4) < 1e-6;
    switch (format) {
    case SYNTH_EXL2: return find_rate(bpw) != NULL;
    case SYNTH_GPTQ: return four || fabs(bpw - 2) < 1e-6 || fabs(bpw - 3) < 1e-6 || fabs(bpw - 8) < 1e-6;
    case SYNTH_AWQ: return four;
    case SYNTH_EXL3: {
        double whole = floor(bpw);
        return bpw >= 1 && bpw <= 8 && (fabs(bpw - whole) < 1e-6 || (bpw < 4 && fabs(bpw - whole - 0.5) < 1e-6));
    }
    default: return true;
    }
}

uint32_t synth_group_rows(const synth_shape *s)
{
    bool wide = s->hidden % 128 == 0 && s->inter % 128 == 0 && s->heads * s->head_dim % 128 == 0;
    return wide ? 128 : 32;
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

static void add_normal(synth_plan *p, const char *prefix, const char *name, uint64_t rows, uint64_t columns, float mean,
                       float deviation, uint64_t seed)
{
    synth_tensor *t = add(p, prefix, name, "F16", rows, columns, SYNTH_NORMAL, seed);
    t->mean = mean;
    t->deviation = deviation;
}

/* A norm [size], with a bias if the family's norms have one. */
static void add_norm(synth_plan *p, const char *prefix, const char *name, uint32_t size, uint64_t seed)
{
    char key[80];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    add_normal(p, key, ".weight", size, 0, 1, 0.05f, seed);
    if (p->shape.family->norm_biases) {
        add_normal(p, key, ".bias", size, 0, 0, 0.02f, seed + 7);
    }
}

/* ---- matrices; each function adds the tensors of one and returns its bits ---- */

static uint64_t add_exl2(synth_plan *p, const char *key, uint32_t in, uint32_t out, const synth_mix *mix, uint64_t seed,
                         uint64_t perm_seed)
{
    synth_group groups[SYNTH_GROUPS_MAX];
    uint32_t count = synth_groups(mix, in, groups);
    uint32_t word_rows = groups[count - 1].word_row + groups[count - 1].rows * groups[count - 1].bits / 32;
    uint32_t stored = (out + 31) / 32 * 32;
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

/* GPTQ stores zero - 1, AWQ the zero. All zeros are in the middle of the codes. */
static uint64_t add_affine(synth_plan *p, const char *key, uint32_t in, uint32_t out, uint64_t seed)
{
    bool gptq = p->format == SYNTH_GPTQ;
    uint32_t bits = gptq ? (uint32_t)p->bpw : 4, group = synth_group_rows(&p->shape), groups = (in + group - 1) / group;
    uint32_t stored = (out + 31) / 32 * 32, rows = gptq ? in * bits / 32 : in, columns = gptq ? stored : stored / 8;
    double deviation = sqrt((pow(4, bits) - 1) / 12);
    add(p, key, ".qweight", "I32", rows, columns, SYNTH_WORDS, seed);
    synth_tensor *t = add(p, key, ".qzeros", "I32", groups, stored * bits / 32, SYNTH_CODES, 0);
    t->bits = bits;
    t->code = (1u << (bits - 1)) - gptq;
    add_normal(p, key, ".scales", groups, stored, (float)(0.02 / deviation), (float)(0.002 / deviation), seed + 1);
    if (gptq) {
        add(p, key, ".g_idx", "I32", in, 0, SYNTH_INDEX, 0)->rows = group;
    }
    return (uint64_t)stored * (in * bits + groups * (16 + bits));
}

/* A trellis of random words, each of which is valid. The head has 6 bits. */
static uint64_t add_exl3(synth_plan *p, const char *key, uint32_t in, uint32_t out, bool head, uint64_t seed)
{
    uint64_t inputs = (in + 127) / 128 * 128, outputs = (out + 127) / 128 * 128;
    uint64_t words = head ? 96 : (uint64_t)(16 * p->bpw);
    synth_tensor *t = add(p, key, ".trellis", "I16", inputs / 16, outputs / 16, SYNTH_WORDS, seed);
    t->shape[2] = words;
    t->bytes *= words;
    add_normal(p, key, ".suh", inputs, 0, 0.02f, 0.002f, seed + 1);
    add_normal(p, key, ".svh", outputs, 0, 1, 0.1f, seed + 2);
    if (p->codebook != SYNTH_3INST) {
        add(p, key, p->codebook == SYNTH_MCG ? ".mcg" : ".mul1", "I32", 1, 0, SYNTH_NUMBER, 0)->code =
            p->codebook == SYNTH_MCG ? 0xCBAC1FEDu : 0x83DCD12Du;
    }
    return inputs * outputs * words / 16 + (inputs + outputs) * 16;
}

/* Matrices that read the same input share perm_seed, and with it their permutation. */
static uint64_t add_matrix(synth_plan *p, const char *prefix, const char *name, uint32_t in, uint32_t out, bool bias,
                           const synth_mix *mix, uint64_t seed, uint64_t perm_seed)
{
    char key[80];
    uint64_t bits;
    snprintf(key, sizeof key, "%s%s", prefix, name);
    if (p->format == SYNTH_DENSE) {
        add_normal(p, key, ".weight", out, in, 0, 0.02f, seed);
        bits = (uint64_t)out * in * 16;
    } else if (p->format == SYNTH_EXL3) {
        bits = add_exl3(p, key, in, out, mix == &head_mix, seed);
    } else {
        bits = p->format == SYNTH_EXL2 ? add_exl2(p, key, in, out, mix, seed, perm_seed)
                                       : add_affine(p, key, in, out, seed);
    }
    if (bias) {
        add_normal(p, key, ".bias", out, 0, 0, 0.02f, seed + 8);
        bits += (uint64_t)out * 16;
    }
    return bits;
}

/* ---- layers ---- */

/* gate, up and down of a dense MLP, or of an expert. Experts share the permutation of gate and up, as in the files of
   the reference's converter. Returns their bits. */
static uint64_t add_mlp(synth_plan *p, const char *prefix, uint32_t expert, const rate *r, uint64_t layer_seed)
{
    const synth_family *f = p->shape.family;
    const char *names[3] = { f->gate, f->up, f->down };
    const synth_mix *mixes[3] = { &r->gate, &r->up, &r->down };
    uint32_t hidden = p->shape.hidden, inter = p->shape.inter;
    uint64_t bits = 0, seed = layer_seed + ((uint64_t)expert << 16);
    for (uint32_t i = 0; i < 3; i++) {
        char name[64];
        const char *mark = names[i] ? strchr(names[i], '#') : NULL;
        if (!names[i]) {
            continue;
        }
        if (mark) {
            snprintf(name, sizeof name, "%.*s%u%s", (int)(mark - names[i]), names[i], expert, mark + 1);
        } else {
            snprintf(name, sizeof name, "%s", names[i]);
        }
        bits += add_matrix(p, prefix, name, i < 2 ? hidden : inter, i < 2 ? inter : hidden, f->mlp_biases, mixes[i],
                           seed + 50 + 10 * i, i < 2 ? layer_seed + 4 : seed + 5);
        p->layer_weights += (uint64_t)hidden * inter;
    }
    return bits;
}

static void add_experts(synth_plan *p, const char *prefix, const rate *r, uint64_t seed)
{
    const synth_shape *s = &p->shape;
    char key[80];
    uint64_t all = 0;
    snprintf(key, sizeof key, "%s%s", prefix, s->family->router);
    add_normal(p, key, ".weight", s->experts, s->hidden, 0, 0.02f, seed + 90);
    if (s->family->mlp_biases) {
        add_normal(p, key, ".bias", s->experts, 0, 0, 0.02f, seed + 91);
    }
    for (uint32_t i = 0; i < s->experts; i++) {
        all += add_mlp(p, prefix, i, r, seed);
    }
    uint64_t router = (uint64_t)s->experts * s->hidden * 16;
    p->layer_bits += all + router;
    p->token_bits += all / s->experts * s->active + router;
}

/* How the names of the text model begin. */
static const char *text_names(const synth_shape *s)
{
    return s->tower ? s->tower->text : "model.";
}

static void add_layer(synth_plan *p, uint32_t layer, const rate *r, uint64_t seed)
{
    const synth_shape *s = &p->shape;
    const synth_family *f = s->family;
    uint32_t hidden = s->hidden, q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    bool bias = f->attention_biases, qkv = bias || f->qkv_biases, whole = f->qk_norm == SYNTH_QK_WHOLE;
    char prefix[64];
    uint64_t bits = 0;
    snprintf(prefix, sizeof prefix, "%slayers.%u.", text_names(s), layer);
    seed += ((uint64_t)layer + 1) << 8;
    for (uint32_t i = 0; i < SYNTH_NORMS_MAX && f->norms[i]; i++) {
        add_norm(p, prefix, f->norms[i], hidden, seed + (i < 2 ? i : 100 + i));
    }
    if (f->qk_norm != SYNTH_QK_NONE) {
        add_norm(p, prefix, "self_attn.q_norm", whole ? q : s->head_dim, seed + 104);
        add_norm(p, prefix, "self_attn.k_norm", whole ? kv : s->head_dim, seed + 105);
    }
    if (f->sinks) {
        add_normal(p, prefix, "self_attn.sinks", s->heads, 0, 0, 1, seed + 106);
    }
    bits += add_matrix(p, prefix, "self_attn.q_proj", hidden, q, qkv, &r->attn, seed + 10, seed + 2);
    bits += add_matrix(p, prefix, "self_attn.k_proj", hidden, kv, qkv, &r->attn, seed + 20, seed + 2);
    bits += add_matrix(p, prefix, "self_attn.v_proj", hidden, kv, qkv, &r->v, seed + 30, seed + 2);
    bits += add_matrix(p, prefix, "self_attn.o_proj", q, hidden, bias, &r->attn, seed + 40, seed + 3);
    p->layer_weights += (uint64_t)hidden * (2 * q + 2 * kv);
    bits += f->router ? 0 : add_mlp(p, prefix, 0, r, seed);
    p->layer_bits += bits;
    p->token_bits += bits;
    if (f->router) {
        add_experts(p, prefix, r, seed);
    }
}

/* A tensor of the tower, and its bias. */
static void add_part(synth_plan *p, const synth_part *part, uint32_t layer, uint64_t seed)
{
    const synth_tower *tower = p->shape.tower;
    const char *mark = strchr(part->name, '#');
    uint32_t rows = synth_tower_size(&p->shape, part->rows), columns = synth_tower_size(&p->shape, part->columns);
    char key[80];
    if (mark) {
        snprintf(key, sizeof key, "%.*s%u%s", (int)(mark - part->name), part->name, layer, mark + 1);
    } else {
        snprintf(key, sizeof key, "%s", part->name);
    }
    add_normal(p, key, part->bare ? "" : ".weight", rows, columns, part->norm ? 1 : 0, 0.02f, seed);
    if (part->columns == 'p') { /* a convolution */
        synth_tensor *t = &p->tensors[p->count - 1];
        uint32_t side = 1, frames = tower->frames > 1;
        t->shape[side++] = 3;
        if (frames) {
            t->shape[side++] = tower->frames;
        }
        t->shape[side++] = tower->patch;
        t->shape[side] = tower->patch;
    }
    if (part->bias) {
        add_normal(p, key, ".bias", rows, 0, 0, 0.02f, seed + 1);
    }
}

static void add_tower(synth_plan *p, uint64_t seed)
{
    const synth_tower *t = p->shape.tower;
    for (uint32_t i = 0; t && t->parts[i].name; i++) {
        uint32_t count = strchr(t->parts[i].name, '#') ? t->layers : 1;
        for (uint32_t layer = 0; layer < count; layer++) {
            add_part(p, &t->parts[i], layer, seed + ((uint64_t)layer << 8) + 2 * i);
        }
    }
}

synth_plan synth_plan_make(const synth_shape *shape, synth_format format, synth_codebook codebook, double bpw,
                           uint32_t seed)
{
    synth_plan p = { .shape = *shape, .format = format, .codebook = codebook, .bpw = bpw };
    uint64_t base = (uint64_t)seed << 32; /* the seeds of layers and tensors count up from it */
    const rate *r = find_rate(format == SYNTH_EXL2 ? bpw : 4);
    add_normal(&p, text_names(shape), "embed_tokens.weight", shape->vocab, shape->hidden, 0, 1, base);
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        add_layer(&p, layer, r, base);
    }
    add_norm(&p, text_names(shape), "norm", shape->hidden, base + 1);
    add_tower(&p, base + (UINT64_C(1) << 24));
    if (format == SYNTH_DENSE && shape->family->tied) {
        p.head_bits = (uint64_t)shape->vocab * shape->hidden * 16;
    } else {
        const char *head = shape->tower ? shape->tower->head : "lm_head";
        p.head_bits = add_matrix(&p, "", head, shape->hidden, shape->vocab, false, &head_mix, base + 2, base + 4);
    }
    return p;
}

/* ---- adapters ---- */

const char *const synth_targets[SYNTH_TARGETS] = { "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                   "down_proj" };

synth_plan synth_plan_adapter(const synth_shape *s, uint32_t targets, uint32_t rank, uint32_t seed)
{
    synth_plan p = { .shape = *s, .rank = rank };
    uint32_t heads = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const uint32_t ins[SYNTH_TARGETS] = { s->hidden, s->hidden, s->hidden, heads, s->hidden, s->hidden, s->inter };
    const uint32_t outs[SYNTH_TARGETS] = { heads, kv, kv, s->hidden, s->inter, s->inter, s->hidden };
    for (uint32_t i = 0; i < s->layers * SYNTH_TARGETS; i++) {
        char key[80];
        uint32_t target = i % SYNTH_TARGETS;
        uint64_t random = ((uint64_t)seed << 32) + 2 * i;
        if (targets >> target & 1) {
            snprintf(key, sizeof key, "base_model.model.model.layers.%u.%s.%s.lora_", i / SYNTH_TARGETS,
                     target < 4 ? "self_attn" : "mlp", synth_targets[target]);
            add_normal(&p, key, "A.weight", rank, ins[target], 0, 0.02f, random);
            add_normal(&p, key, "B.weight", outs[target], rank, 0, 0.02f, random + 1);
        }
    }
    return p;
}
