/* slots.h: the list of matrices that a conversion quantizes, and the layout of what it makes of each.
   takes: a loaded source model.
   gives: exl2__slot, exl2__slots, exl2__slots_open, exl2__slots_close, exl2__slots_groups; exl2__slot_codes.
   owns:  the list, until exl2__slots_close. */
#ifndef EXL2__SLOTS_H
#define EXL2__SLOTS_H

#include "allocate.h"
#include "measure.h"
#include "keep.h"

#define EXL2__SLOTS_NO_LAYER UINT32_MAX /* the head */

typedef struct exl2__slot {
    char name[EXL2__KEY_BYTES];
    uint32_t layer, part;     /* part: of the input's matrix */
    exl2__runner_tap tap;
    uint32_t in, out, columns; /* columns: out, rounded up to a multiple of 32 */
    bool has_bias;
    exl2__measure_matrix measured; /* not of the head */
    uint8_t *widths;          /* [in / 32] index of the width of each block of rows; not of the head */
    uint32_t entry;           /* its first tensor in the output */
    double loss;              /* tr(E' H E) */
    double power;             /* tr(W' H W) */
} exl2__slot;

typedef struct exl2__slots {
    exl2__slot *items;        /* [count] in the order of layers; the last one is the head */
    uint32_t count, per_layer, head_bits;
    exl2__arena memory;
} exl2__slots;

/* What a quantized matrix consists of, as the tensors of its file. */
typedef struct exl2__slot_codes {
    uint32_t *words;   /* [words, columns] */
    uint32_t *scales;  /* [group_count, columns / 8] */
    uint16_t *scale_max; /* [group_count] */
    uint16_t *table;   /* [group_count, 2] */
    uint32_t *inverse; /* [in] */
    double *losses;    /* [2] loss, power */
    exl2__group *groups; /* [group_count] not stored */
    uint32_t group_count, word_count;
} exl2__slot_codes;

/* ---- groups ---- */

/* Layouts of the head: `share` of the rows, rounded up to whole groups, have more bits. ExLlamaV2's. */
typedef struct exl2__slots_head {
    uint32_t bits, high, low, group;
    double share;
} exl2__slots_head;

static inline const exl2__slots_head *exl2__slots_head_of(uint32_t bits)
{
    static const exl2__slots_head layouts[] = {
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
static uint32_t exl2__slots_groups(const exl2__slots *s, const exl2__slot *slot, exl2__group *groups, uint32_t *words)
{
    uint32_t count = 0, word = 0, high_rows = 0;
    const exl2__slots_head *head = NULL;
    if (slot->layer == EXL2__SLOTS_NO_LAYER) {
        head = exl2__slots_head_of(s->head_bits);
        high_rows = (uint32_t)ceil(slot->in * head->share / head->group) * head->group;
    }
    for (uint32_t row = 0; row < slot->in; row += groups[count++].rows) {
        exl2__group *group = &groups[count];
        bool high = head && row < high_rows;
        group->row = row;
        group->bits = !head ? exl2__losses_bits(slot->widths[row / 32]) : high ? head->high : head->low;
        group->rows = exl2__min32(head ? head->group : EXL2__LOSSES_BLOCK, slot->in - row);
        group->word = word;
        word += group->rows / 32 * group->bits;
    }
    *words = word;
    return count;
}

/* Bits of the matrix in the file. */
static uint64_t exl2__slots_bits(const exl2__slot *slot, const exl2__slot_codes *codes)
{
    return (uint64_t)codes->word_count * slot->columns * 32 + codes->group_count * (48 + 4 * (uint64_t)slot->columns)
           + 32 * (uint64_t)slot->in + (slot->has_bias ? 16 * (uint64_t)slot->columns : 0);
}

/* Lays out the codes of a slot in `a`, which may be dry. */
static void exl2__slot_codes_layout(const exl2__slots *s, const exl2__slot *slot, exl2__slot_codes *codes,
                                    exl2__arena *a)
{
    *codes = (exl2__slot_codes){ 0 };
    codes->groups = (exl2__group *)exl2__arena_alloc(a, slot->in / 32 * sizeof *codes->groups);
    exl2__group scratch[EXL2__MATRIX_IN_MAX / 32 + 1];
    exl2__group *groups = codes->groups ? codes->groups : scratch;
    codes->group_count = exl2__slots_groups(s, slot, groups, &codes->word_count);
    uint64_t columns = slot->columns, count = codes->group_count;
    codes->words = (uint32_t *)exl2__arena_alloc(a, codes->word_count * columns * 4);
    codes->scales = (uint32_t *)exl2__arena_alloc(a, count * columns / 2);
    codes->scale_max = (uint16_t *)exl2__arena_alloc(a, count * 2);
    codes->table = (uint16_t *)exl2__arena_alloc(a, count * 4);
    codes->inverse = (uint32_t *)exl2__arena_alloc(a, slot->in * sizeof *codes->inverse);
    codes->losses = (double *)exl2__arena_alloc(a, 2 * sizeof *codes->losses);
}

/* Largest number of pieces of a file of codes. */
#define EXL2__SLOT_PIECES 6u

static uint32_t exl2__slot_codes_pieces(const exl2__slot *slot, const exl2__slot_codes *codes, exl2__keep_piece *out)
{
    uint64_t columns = slot->columns, count = codes->group_count;
    out[0] = (exl2__keep_piece){ codes->words, codes->word_count * columns * 4 };
    out[1] = (exl2__keep_piece){ codes->scales, count * columns / 2 };
    out[2] = (exl2__keep_piece){ codes->scale_max, count * 2 };
    out[3] = (exl2__keep_piece){ codes->table, count * 4 };
    out[4] = (exl2__keep_piece){ codes->inverse, slot->in * sizeof *codes->inverse };
    out[5] = (exl2__keep_piece){ codes->losses, 2 * sizeof *codes->losses };
    return EXL2__SLOT_PIECES;
}

/* ---- the list ---- */

static void exl2__slots_close(exl2__ctx *c, exl2__slots *s)
{
    exl2__arena_close(c, &s->memory);
    *s = (exl2__slots){ 0 };
}

/* Fills in the slots of one unit. */
static exl2_result exl2__slots_unit(exl2__ctx *c, const exl2__runner *r, uint32_t index, uint32_t layer,
                                    exl2__runner_tap tap, exl2__slot *out, uint32_t *count)
{
    exl2__unit u;
    exl2__matrix_desc parts[3];
    EXL2__TRY(exl2__weights_find(c, &r->load, index, &u, parts));
    for (uint32_t i = 0; i < u.count; i++) {
        if (parts[i].kind != EXL2__MATRIX_DENSE) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s is quantized already (%s); the source must be dense",
                              u.keys[i], exl2__matrix_kind_name(parts[i].kind));
        }
        if (u.in % 32 != 0 || u.in > EXL2__MATRIX_IN_MAX) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s has %u inputs; only multiples of 32 up to %u can be "
                              "quantized", u.keys[i], u.in, EXL2__MATRIX_IN_MAX / 32 * 32);
        }
        exl2__slot *slot = &out[i];
        *slot = (exl2__slot){ .layer = layer, .part = i, .tap = tap, .in = u.in, .out = parts[i].out,
                              .has_bias = parts[i].has_bias };
        exl2__format(slot->name, sizeof slot->name, "%s", u.keys[i]);
        slot->columns = (uint32_t)exl2__align_up(slot->out, EXL2__PANELS_LANES);
    }
    *count = u.count;
    return EXL2_OK;
}

static exl2_result exl2__slots_fill(exl2__ctx *c, const exl2__runner *r, exl2__slots *s)
{
    const exl2__config *config = &r->load.config;
    uint32_t tables = 1 + (config->arch.names[EXL2__NAME_POSITIONS][0] != 0), count = 0;
    s->count = 0;
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        for (uint32_t tap = 0; tap < EXL2__RUNNER_TAPS; tap++) {
            EXL2__TRY(exl2__slots_unit(c, r, tables + layer * EXL2__RUNNER_TAPS + tap, layer, (exl2__runner_tap)tap,
                                       s->items + s->count, &count));
            s->count += count;
        }
    }
    s->per_layer = s->count / config->layers;
    exl2__slot *head = &s->items[s->count++];
    const exl2__cpu_part *p = exl2__runner_part(r->plan.head, 0);
    *head = (exl2__slot){ .layer = EXL2__SLOTS_NO_LAYER, .in = config->hidden, .out = config->vocab,
                          .has_bias = p->bias != NULL };
    head->columns = (uint32_t)exl2__align_up(head->out, EXL2__PANELS_LANES);
    const char *name = config->arch.names[EXL2__NAME_HEAD];
    exl2__format(head->name, sizeof head->name, "%s", name[0] ? name : "lm_head");
    return EXL2_OK;
}

static void exl2__slots_layout(exl2__slots *s, exl2__arena *a)
{
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        exl2__slot *slot = &s->items[i];
        slot->widths = (uint8_t *)exl2__arena_alloc_zeroed(a, slot->in / 32);
        slot->measured.losses =
            (double *)exl2__arena_alloc_zeroed(a, (uint64_t)EXL2__LOSSES_WIDTHS * (slot->in / 32) * sizeof(double));
    }
}

/* Lists and checks the matrices of a source. After a failure *s is zeroed. */
static exl2_result exl2__slots_open(exl2__ctx *c, const exl2__runner *r, uint32_t head_bits, exl2__slots *s)
{
    const exl2__config *config = &r->load.config;
    uint32_t capacity = config->layers * EXL2__MEASURE_MATRICES + 1;
    exl2__arena dry = { 0 };
    *s = (exl2__slots){ 0 };
    if (config->experts.count) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s has experts, which exl2_convert does not support yet",
                          config->arch_name);
    }
    uint64_t widest = exl2__max64(exl2__max64(config->hidden, config->inter),
                                  (uint64_t)config->heads * config->head_dim) / 32 + 1;
    exl2__arena_alloc(&dry, capacity * sizeof *s->items);
    for (uint32_t i = 0; i < capacity; i++) {
        exl2__arena_alloc(&dry, widest);
        exl2__arena_alloc(&dry, widest * EXL2__LOSSES_WIDTHS * sizeof(double));
    }
    EXL2__TRY(exl2__arena_open(c, &s->memory, dry.used, EXL2_MEM_GENERAL));
    s->items = (exl2__slot *)exl2__arena_alloc_zeroed(&s->memory, capacity * sizeof *s->items);
    s->head_bits = head_bits;
    exl2_result result = exl2__slots_fill(c, r, s);
    if (result < 0) {
        exl2__slots_close(c, s);
        return result;
    }
    exl2__slots_layout(s, &s->memory);
    return EXL2_OK;
}

#endif
