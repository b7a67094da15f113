/* linears.h: the linear layers ("linears") of a model that a conversion quantizes, and the layout of what it makes of
   each.
   takes: a loaded source model.
   gives: exl2__linear, exl2__linears, exl2__linears_open, exl2__linears_close, exl2__linears_groups,
          exl2__linears_part, exl2__linears_together, exl2__linears_most, exl2__linears_own_name; exl2__linear_codes.
   owns:  the list, until exl2__linears_close.

   In the source's files, the text model inside of a multimodal one has longer names than in this engine. The output has
   the source's own, so that whatever reads the source reads the output, too. */
#ifndef EXL2__LINEARS_H
#define EXL2__LINEARS_H

#include "allocate.h"
#include "measure.h"
#include "workdir.h"

#define EXL2__LINEARS_NO_LAYER UINT32_MAX /* the head */
#define EXL2__LINEARS_PARTS 3u /* most matrices of a unit */

typedef struct exl2__linear {
    char name[EXL2__KEY_BYTES]; /* the source's own */
    exl2__unit_kind kind;
    uint32_t layer, expert, part; /* part: of the unit's matrices */
    uint32_t input;           /* of the runner */
    uint32_t in, out, columns; /* columns: out, rounded up to a multiple of 32 */
    bool has_bias;
    exl2__measure_matrix *measured; /* of the head if head_bits is 0; else zeros, as are */
    double *losses;           /* [EXL2__LOSSES_WIDTHS, in / 32] */
    uint8_t *widths;          /* [in / 32] index of the width of each block of rows; of the head if head_bits is 0 */
    uint8_t group_rows[EXL2__LOSSES_WIDTHS]; /* rows of a group of each width; 0 = 32 */
    uint32_t entry;           /* its first tensor in the output */
    double loss;              /* tr(E' H E) */
    double power;             /* tr(W' H W) */
    bool bad;                 /* the weight [bad_out, bad_in] of the source cannot be quantized */
    uint32_t bad_in, bad_out;
} exl2__linear;

/* Linears of a layer are ordered by their input. Those that are tried together, all experts' gates for example,
   follow each other. */
typedef struct exl2__linears {
    exl2__linear *items;      /* [count] in the order of layers; the last one is the head */
    uint32_t *first;          /* [layers + 1] first linear of a layer */
    uint32_t count, head_bits; /* head_bits 0: the head has widths as other linears do */
    exl2__matrix_kind source; /* of the matrices; or DENSE */
    bool gated;               /* MLPs have a gate */
    uint32_t dense_count, dense_in; /* matrices that stay dense; the size of an input in the block of the first */
    char dense_name[EXL2__KEY_BYTES]; /* name of the first matrix that stays dense */
    bool chosen;              /* the widths are those of ExLlamaV2's measurement */
    exl2__measure_matrix *measured; /* [count] */
    exl2__tensors own;        /* the source's tensors by their own names; empty: all names are the engine's, too */
    exl2__arena memory, tables;
} exl2__linears;

/* What a quantized matrix consists of, as the tensors of its file. */
typedef struct exl2__linear_codes {
    uint32_t *words;   /* [words, columns] */
    uint32_t *scales;  /* [group_count, columns / 8] */
    uint16_t *scale_max; /* [group_count] */
    uint16_t *table;   /* [group_count, 2] */
    uint32_t *inverse; /* [in] */
    double *losses;    /* [2] loss, power */
    exl2__group *groups; /* [group_count] not stored */
    uint32_t group_count, word_count;
} exl2__linear_codes;

/* ---- groups ---- */

/* Layouts of the head: `share` of the rows, rounded up to whole groups, have more bits. ExLlamaV2's. */
typedef struct exl2__linears_head {
    uint32_t bits, high, low, group;
    double share;
} exl2__linears_head;

static inline const exl2__linears_head *exl2__linears_head_of(uint32_t bits)
{
    static const exl2__linears_head layouts[] = {
        { 2, 4, 2, 32, 0.3 }, { 3, 4, 3, 32, 0.15 }, { 4, 6, 4, 32, 0.15 },
        { 5, 6, 5, 128, 0.15 }, { 6, 8, 6, 128, 0.15 }, { 8, 8, 8, 128, 1 },
    };
    for (size_t i = 0; i < EXL2__COUNT(layouts); i++) {
        if (layouts[i].bits == bits) {
            return &layouts[i];
        }
    }
    return NULL;
}

/* Fills groups, which has room for in / 32. Returns their number; *words: rows of words. */
EXL2__PRIVATE uint32_t exl2__linears_groups(const exl2__linears *s, const exl2__linear *linear, exl2__group *groups,
                                          uint32_t *words)
{
    uint32_t count = 0, word = 0, high_rows = 0;
    const exl2__linears_head *head = NULL;
    if (linear->layer == EXL2__LINEARS_NO_LAYER && s->head_bits) {
        head = exl2__linears_head_of(s->head_bits);
        high_rows = (uint32_t)ceil(linear->in * head->share / head->group) * head->group;
    }
    for (uint32_t row = 0; row < linear->in; row += groups[count++].rows) {
        exl2__group *group = &groups[count];
        bool high = head && row < high_rows;
        group->row = row;
        group->bits = !head ? exl2__losses_bits(linear->widths[row / 32]) : high ? head->high : head->low;
        uint32_t rows = head ? head->group : linear->group_rows[linear->widths[row / 32]];
        group->rows = exl2__min32(rows ? rows : EXL2__LOSSES_BLOCK, linear->in - row);
        group->word = word;
        word += group->rows / 32 * group->bits;
    }
    *words = word;
    return count;
}

/* Bits of the matrix in the file. */
EXL2__PRIVATE uint64_t exl2__linears_bits(const exl2__linear *linear, const exl2__linear_codes *codes)
{
    return (uint64_t)codes->word_count * linear->columns * 32
           + codes->group_count * (48 + 4 * (uint64_t)linear->columns) + 32 * (uint64_t)linear->in
           + (linear->has_bias ? 16 * (uint64_t)linear->columns : 0);
}

/* Lays out the codes of a linear in `a`, which may be dry. */
EXL2__PRIVATE void exl2__linear_codes_layout(const exl2__linears *s, const exl2__linear *linear,
                                             exl2__linear_codes *codes,
                                           exl2__arena *a)
{
    *codes = (exl2__linear_codes){ 0 };
    codes->groups = (exl2__group *)exl2__arena_alloc(a, linear->in / 32 * sizeof *codes->groups);
    exl2__group scratch[EXL2__MATRIX_IN_MAX / 32 + 1];
    exl2__group *groups = codes->groups ? codes->groups : scratch;
    codes->group_count = exl2__linears_groups(s, linear, groups, &codes->word_count);
    uint64_t columns = linear->columns, count = codes->group_count;
    codes->words = (uint32_t *)exl2__arena_alloc(a, codes->word_count * columns * 4);
    codes->scales = (uint32_t *)exl2__arena_alloc(a, count * columns / 2);
    codes->scale_max = (uint16_t *)exl2__arena_alloc(a, count * 2);
    codes->table = (uint16_t *)exl2__arena_alloc(a, count * 4);
    codes->inverse = (uint32_t *)exl2__arena_alloc(a, linear->in * sizeof *codes->inverse);
    codes->losses = (double *)exl2__arena_alloc(a, 2 * sizeof *codes->losses);
}

/* Largest number of pieces of a file of codes. */
#define EXL2__SLOT_PIECES 6u

EXL2__PRIVATE uint32_t exl2__linear_codes_pieces(const exl2__linear *linear, const exl2__linear_codes *codes,
                                               exl2__workdir_piece *out)
{
    uint64_t columns = linear->columns, count = codes->group_count;
    out[0] = (exl2__workdir_piece){ codes->words, codes->word_count * columns * 4 };
    out[1] = (exl2__workdir_piece){ codes->scales, count * columns / 2 };
    out[2] = (exl2__workdir_piece){ codes->scale_max, count * 2 };
    out[3] = (exl2__workdir_piece){ codes->table, count * 4 };
    out[4] = (exl2__workdir_piece){ codes->inverse, linear->in * sizeof *codes->inverse };
    out[5] = (exl2__workdir_piece){ codes->losses, 2 * sizeof *codes->losses };
    return EXL2__SLOT_PIECES;
}

/* ---- the list ---- */

EXL2__PRIVATE void exl2__linears_close(exl2__ctx *c, exl2__linears *s)
{
    exl2__tensors_close(c, &s->own);
    exl2__arena_close(c, &s->tables);
    exl2__arena_close(c, &s->memory);
    *s = (exl2__linears){ 0 };
}

/* The matrix of a linear in a model. */
EXL2__PRIVATE exl2__cpu_part *exl2__linears_part(exl2__runner *r, const exl2__linear *linear)
{
    exl2__unit u = { .kind = linear->kind, .layer = linear->layer, .expert = linear->expert };
    return &exl2__cpu_matrix_of(*exl2__weights_place(&r->load, &u, &r->plan))->parts[linear->part];
}

/* ---- names ---- */

EXL2__PRIVATE exl2_result exl2__linears_open_own(exl2__ctx *c, const char *dir, exl2__linears *s)
{
    exl2__tensors_reader reader;
    exl2__work all = exl2__work_all();
    exl2__tensors_read_begin(&reader, c, dir, NULL, &s->own);
    exl2_result result = exl2__tensors_read_slice(&reader, &all);
    exl2__tensors_read_end(&reader);
    return result;
}

/* What the source's files call a tensor. */
EXL2__PRIVATE const char *exl2__linears_own_name(const exl2__linears *s, const exl2__tensor *e)
{
    for (uint32_t i = 0; i < s->own.count && e->bytes; i++) {
        const exl2__tensor *own = &s->own.entries[i];
        if (own->file == e->file && own->offset == e->offset && own->bytes) {
            return own->name;
        }
    }
    return e->name;
}

/* Writes the source's own name of the matrix that the engine calls `key`. weight: a tensor beside it in the source; of
   a head that is the embedding, the embedding. The prefixes are those of EXL2__RENAME_WRAPPED. */
EXL2__PRIVATE void exl2__linears_own_key(const exl2__linears *s, const exl2__tensor *weight, const char *key,
                                       char out[EXL2__KEY_BYTES])
{
    static const char before[] = "language_model.", within[] = "model.language_model.", replaced[] = "model.";
    const char *own = exl2__linears_own_name(s, weight);
    bool longer = strncmp(own, weight->name, EXL2__KEY_BYTES) != 0;
    bool all = longer && strncmp(own, before, sizeof before - 1) == 0;
    bool inner = longer && strncmp(own, within, sizeof within - 1) == 0
              && strncmp(key, replaced, sizeof replaced - 1) == 0;
    exl2__format(out, EXL2__KEY_BYTES, "%s%s", all ? before : inner ? within : "",
                 key + (inner ? sizeof replaced - 1 : 0));
}

/* The input of the runner that a unit reads, or UINT32_MAX. */
EXL2__PRIVATE uint32_t exl2__linears_input(const exl2__unit *u)
{
    switch (u->kind) {
    case EXL2__UNIT_QKV:
        return EXL2__RUNNER_QKV;
    case EXL2__UNIT_OUT:
        return EXL2__RUNNER_OUT;
    case EXL2__UNIT_GATE_UP:
    case EXL2__UNIT_EXPERT_UP:
        return EXL2__RUNNER_UP;
    case EXL2__UNIT_DOWN:
        return EXL2__RUNNER_DOWN;
    case EXL2__UNIT_EXPERT_DOWN:
        return EXL2__RUNNER_EXPERTS + u->expert;
    default:
        return UINT32_MAX;
    }
}

static inline bool exl2__linears_fits(uint32_t in) { return in % 32 == 0 && in <= EXL2__MATRIX_IN_MAX; }

/* Attention's matrices are all of one kind, and so are those of an MLP: if one of them has an input that cannot be
   quantized, the size of that input, else 0. */
EXL2__PRIVATE uint32_t exl2__linears_misfit(const exl2__config *c, const exl2__unit *u)
{
    bool expert = u->kind == EXL2__UNIT_EXPERT_UP || u->kind == EXL2__UNIT_EXPERT_DOWN;
    uint32_t inner = u->kind == EXL2__UNIT_QKV || u->kind == EXL2__UNIT_OUT ? c->heads * c->head_dim
                   : expert ? c->experts.inter : exl2__unit_sparse(c, u->layer) ? c->experts.shared_inter : c->inter;
    return !exl2__linears_fits(c->hidden) ? c->hidden : !exl2__linears_fits(inner) ? inner : 0;
}

/* Adds the linear of a unit's part, if it has that part. */
EXL2__PRIVATE exl2_result exl2__linears_add(exl2__ctx *c, const exl2__runner *r, exl2__linears *s, uint32_t index,
                                          uint32_t part)
{
    exl2__unit u;
    exl2__matrix_desc parts[3];
    EXL2__TRY(exl2__weights_find(c, &r->load, index, &u, parts));
    if (part >= u.count) {
        return EXL2_OK;
    }
    uint32_t misfit = exl2__linears_misfit(&r->load.config, &u);
    if (misfit) {
        if (s->dense_count++ == 0) {
            s->dense_in = misfit;
            exl2__format(s->dense_name, sizeof s->dense_name, "%s", u.keys[part]);
        }
        return EXL2_OK;
    }
    exl2__linear *linear = &s->items[s->count++];
    *linear = (exl2__linear){ .kind = u.kind, .layer = u.layer, .expert = u.expert, .part = part,
                          .input = exl2__linears_input(&u), .in = u.in, .out = parts[part].out,
                          .has_bias = parts[part].has_bias };
    exl2__linears_own_key(s, parts[part].data, u.keys[part], linear->name);
    linear->columns = (uint32_t)exl2__align_up(linear->out, EXL2__PANELS_LANES);
    exl2__matrix_kind stored = exl2__matrix_stored(&parts[part]);
    s->source = stored != EXL2__MATRIX_DENSE ? stored : s->source;
    return EXL2_OK;
}

/* The matrices of a layer, whose first unit is `first`. */
EXL2__PRIVATE exl2_result exl2__linears_layer(exl2__ctx *c, const exl2__runner *r, exl2__linears *s, uint32_t layer,
                                            uint32_t first)
{
    static const exl2__unit_kind kinds[] = { EXL2__UNIT_QKV, EXL2__UNIT_OUT, EXL2__UNIT_GATE_UP, EXL2__UNIT_EXPERT_UP,
                                             EXL2__UNIT_DOWN, EXL2__UNIT_EXPERT_DOWN };
    const exl2__config *config = &r->load.config;
    for (uint32_t i = 0; i < EXL2__COUNT(kinds) * EXL2__LINEARS_PARTS; i++) {
        for (uint32_t k = 0; k < exl2__unit_of_layer(config, layer); k++) {
            exl2__unit u = { .layer = layer };
            if (exl2__unit_kind_of(config, &u, k) == kinds[i / EXL2__LINEARS_PARTS]) {
                EXL2__TRY(exl2__linears_add(c, r, s, first + k, i % EXL2__LINEARS_PARTS));
            }
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__linears_fill(exl2__ctx *c, const exl2__runner *r, exl2__linears *s)
{
    const exl2__config *config = &r->load.config;
    uint32_t unit = 1 + (config->arch.names[EXL2__NAME_POSITIONS][0] != 0);
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        s->first[layer] = s->count;
        EXL2__TRY(exl2__linears_layer(c, r, s, layer, unit));
        unit += exl2__unit_of_layer(config, layer);
    }
    s->first[config->layers] = s->count;
    if (s->count == 0) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "the block of %s has a matrix with %u inputs; only multiples of 32 "
                          "up to %u can be quantized, so no block can be", s->dense_name, s->dense_in,
                          EXL2__MATRIX_IN_MAX / 32 * 32);
    }
    exl2__unit u;
    exl2__matrix_desc parts[3];
    EXL2__TRY(exl2__weights_find(c, &r->load, r->load.tied ? 0 : exl2__weights_units(&r->load) - 1, &u, parts));
    exl2__linear *head = &s->items[s->count++];
    *head = (exl2__linear){ .kind = EXL2__UNIT_HEAD, .layer = EXL2__LINEARS_NO_LAYER, .in = config->hidden,
                          .out = config->vocab };
    head->has_bias = parts[0].has_bias;
    head->columns = (uint32_t)exl2__align_up(head->out, EXL2__PANELS_LANES);
    const char *name = config->arch.names[EXL2__NAME_HEAD];
    exl2__linears_own_key(s, parts[0].data, name[0] ? name : "lm_head", head->name);
    return EXL2_OK;
}

/* Are the two linears tried together? So are the same matrices of all experts of a layer. */
EXL2__PRIVATE bool exl2__linears_together(const exl2__linear *a, const exl2__linear *b)
{
    return a->layer == b->layer && a->kind == b->kind && a->part == b->part && a->layer != EXL2__LINEARS_NO_LAYER;
}

/* Most linears of a layer, at least 1. */
EXL2__PRIVATE uint32_t exl2__linears_most(const exl2__linears *s)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        most = exl2__max32(most, s->first[s->items[i].layer + 1] - s->first[s->items[i].layer]);
    }
    return most;
}

EXL2__PRIVATE void exl2__linears_layout_items(exl2__linears *s, uint32_t capacity, uint32_t layers, exl2__arena *a)
{
    s->items = (exl2__linear *)exl2__arena_alloc_zeroed(a, capacity * sizeof *s->items);
    s->first = (uint32_t *)exl2__arena_alloc_zeroed(a, (layers + 1) * sizeof *s->first);
}

/* What is measured lies in one piece for all linears, so that a layer's part can be stored. */
EXL2__PRIVATE void exl2__linears_layout_tables(exl2__linears *s, exl2__arena *a)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        blocks += s->items[i].in / 32;
    }
    s->measured = (exl2__measure_matrix *)exl2__arena_alloc_zeroed(a, s->count * sizeof *s->measured);
    double *losses = (double *)exl2__arena_alloc_zeroed(a, blocks * EXL2__LOSSES_WIDTHS * sizeof *losses);
    uint8_t *widths = (uint8_t *)exl2__arena_alloc_zeroed(a, blocks);
    for (uint32_t i = 0; widths && i < s->count; i++) {
        s->items[i].measured = &s->measured[i];
        s->items[i].losses = losses;
        s->items[i].widths = widths;
        losses += EXL2__LOSSES_WIDTHS * (s->items[i].in / 32);
        widths += s->items[i].in / 32;
    }
}

EXL2__PRIVATE exl2_result exl2__linears_steps(exl2__ctx *c, const exl2__runner *r, const char *dir, exl2__linears *s)
{
    const exl2__config *config = &r->load.config;
    uint32_t capacity = 1;
    exl2__arena dry = { 0 };
    if (config->arch.text_of_multimodal) {
        EXL2__TRY(exl2__linears_open_own(c, dir, s));
    }
    for (uint32_t i = 0; i < config->layers; i++) {
        capacity += exl2__unit_of_layer(config, i) * EXL2__LINEARS_PARTS;
    }
    exl2__linears_layout_items(s, capacity, config->layers, &dry);
    EXL2__TRY(exl2__arena_open(c, &s->memory, dry.used, EXL2_MEM_GENERAL));
    exl2__linears_layout_items(s, capacity, config->layers, &s->memory);
    EXL2__TRY(exl2__linears_fill(c, r, s));
    dry = (exl2__arena){ 0 };
    exl2__linears_layout_tables(s, &dry);
    EXL2__TRY(exl2__arena_open(c, &s->tables, dry.used, EXL2_MEM_GENERAL));
    exl2__linears_layout_tables(s, &s->tables);
    return EXL2_OK;
}

/* Lists and checks the matrices of a source, whose headers are enough. dir: its folder. After a failure *s is
   zeroed. */
EXL2__PRIVATE exl2_result exl2__linears_open(exl2__ctx *c, const exl2__runner *r, const char *dir, uint32_t head_bits,
                                           exl2__linears *s)
{
    *s = (exl2__linears){ .head_bits = head_bits, .source = EXL2__MATRIX_DENSE,
                        .gated = r->load.config.arch.traits[EXL2__TRAIT_GATED] == EXL2__YES };
    exl2_result result = exl2__linears_steps(c, r, dir, s);
    if (result < 0) {
        exl2__linears_close(c, s);
    }
    return result;
}

#endif
