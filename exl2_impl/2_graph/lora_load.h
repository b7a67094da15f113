/* lora_load.h: reads an adapter's pairs into a backend's memory, in slices.
   takes: an adapter's folder, a model that is loaded.
   gives: exl2__lora_loader, exl2__lora_load_begin, exl2__lora_load_measure, exl2__lora_load_slice, exl2__lora_load_end,
          exl2__lora_load_free.
   owns:  while it loads: the files, a buffer for one matrix. After it: the adapter's block and table, until
          exl2__lora_load_free.

   Each half of a pair is multiplied by a power of two, so that its largest value lies in [2^14, 2^15). So numbers of
   BF16 that are too small for f16 do not become 0. The factor of the matrix has the inverse. F16 is kept as it is. */
#ifndef EXL2__LORA_LOAD_H
#define EXL2__LORA_LOAD_H

#include "../1_load/content_id.h"
#include "lora_match.h"
#include "span.h"
#include "weights.h"

#define EXL2__LORA_PIECE 4096u     /* elements that are read at once */
#define EXL2__LORA_EXPONENT_MIN (-24)
#define EXL2__LORA_EXPONENT_MAX 60

/* An adapter's memory: a block for each span of the model, with what it adds to the layers of the span. The end of a
   block is the table of all layers; where a backend has memory of its own, a copy of it. */
typedef struct exl2__lora_memory {
    exl2__lora_matrix *table;      /* [layers, places] */
    uint64_t table_bytes;
    uint64_t block[EXL2__SPANS_MAX], block_bytes[EXL2__SPANS_MAX];
    uint32_t copies;               /* devices that have a block, each */
} exl2__lora_memory;

static inline uint64_t exl2__lora_memory_blocks(const exl2__lora_memory *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < EXL2__SPANS_MAX; i++) {
        bytes += m->block_bytes[i];
    }
    return bytes * exl2__max32(m->copies, 1);
}

typedef struct exl2__lora_loader {
    exl2__ctx *c;
    const exl2__config *config;
    const exl2__plan *plan;
    const exl2__spans *spans;
    const exl2__backend *backend;
    exl2__lora_files files;
    exl2__lora_files_reader reader;
    exl2__lora_matcher matcher;
    uint32_t stage;
    uint64_t bytes, rows_bytes;    /* of the matrices; of the largest half */
    uint32_t widest;               /* most inputs or outputs of a part */
    exl2__lora_memory memory;
    uint16_t *half;                /* [rows_bytes / 2] the half that is being read */
    uint32_t *order;               /* [2, widest] places of inputs, then of outputs */
    /* Position: */
    uint32_t unit, part;
    bool found, ordered;           /* `u` and `parts` are those of the unit; `order` is that of the part */
    bool second;                   /* B */
    bool scaled;                   /* its exponent is known */
    uint64_t at;                   /* elements of the half that are done */
    uint64_t next[EXL2__SPANS_MAX]; /* bytes of a block that are used */
    float peak;
    int exponent[3][2];            /* of each part's A and B */
    exl2__unit u;
    exl2__lora_part parts[3];
    uint64_t read_bytes;           /* part of `bytes` that is done */
    uint64_t content[2];
    uint8_t raw[EXL2__LORA_PIECE * 4];
    float values[EXL2__LORA_PIECE];
} exl2__lora_loader;

/* ---- sizes ---- */

EXL2__PRIVATE exl2_result exl2__lora_load_read(exl2__lora_loader *l, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__lora_files_read_slice(&l->reader, work));
    exl2__lora_files_read_end(&l->reader);
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__lora_load_match(exl2__lora_loader *l, exl2__work *work)
{
    return exl2__lora_match_slice(l->c, &l->files, l->config, &l->matcher, work);
}

/* Adds up the bytes of all parts. */
EXL2__PRIVATE exl2_result exl2__lora_load_add_up(exl2__lora_loader *l, exl2__work *work)
{
    for (; l->unit < exl2__unit_count(l->config, true); l->unit++) {
        if (!exl2__work_spend(work, 3000)) {
            return EXL2_PENDING;
        }
        exl2__unit_make(l->config, l->unit, &l->u);
        if (l->u.table) {
            continue;
        }
        EXL2__TRY(exl2__lora_unit(l->c, &l->files, &l->u, l->parts));
        for (uint32_t i = 0; i < l->u.count; i++) {
            const exl2__lora_part *part = &l->parts[i];
            if (part->pair) {
                uint64_t a = exl2__lora_a_bytes(part->pair->rank, l->u.in);
                uint64_t b = exl2__lora_b_bytes(part->pair->rank, l->u.out[i]);
                uint64_t both = (part->shares ? 0 : a) + b;
                l->bytes += both;
                l->memory.block_bytes[exl2__spans_of_layer(l->spans, l->u.layer)] += both;
                l->rows_bytes = exl2__max64(l->rows_bytes, exl2__max64(a, b));
                l->widest = exl2__max32(l->widest, exl2__max32(l->u.in, l->u.out[i]));
            }
        }
    }
    l->unit = 0;
    uint64_t places = (uint64_t)l->config->layers * exl2__lora_places(l->config->experts.count);
    l->memory.table_bytes = exl2__align_up(places * sizeof *l->memory.table, EXL2__ARENA_ALIGN);
    for (uint32_t i = 0; i < l->spans->count; i++) {
        l->memory.block_bytes[i] += l->memory.table_bytes;
    }
    l->memory.copies = l->backend->loras->copies ? l->backend->loras->copies(l->spans->span[0].device) : 1;
    return EXL2_OK;
}

/* ---- memory ---- */

EXL2__PRIVATE void exl2__lora_load_free(exl2__ctx *c, const exl2__spans *spans, exl2__lora_memory *m)
{
    for (uint32_t i = 0; i < EXL2__SPANS_MAX; i++) {
        if (m->block[i]) {
            spans->span[i].backend->loras->close(spans->span[i].device, m->block[i], m->block_bytes[i]);
        }
    }
    if (m->table && exl2__backend_has_memory(exl2__spans_backend(spans))) {
        exl2__free(c, m->table, m->table_bytes, EXL2_MEM_WEIGHTS);
    }
    *m = (exl2__lora_memory){ 0 };
}

EXL2__PRIVATE exl2_result exl2__lora_load_allocate(exl2__lora_loader *l, exl2__work *work)
{
    void *memory;
    if (!exl2__work_spend_all(work)) {
        return EXL2_PENDING;
    }
    bool own = exl2__backend_has_memory(l->backend);
    for (uint32_t i = 0; i < l->spans->count; i++) {
        uint64_t bytes = l->memory.block_bytes[i];
        EXL2__TRY(l->backend->loras->open(l->spans->span[i].device, bytes, &l->memory.block[i]));
    }
    if (own) {
        EXL2__TRY(exl2__alloc(l->c, l->memory.table_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_WEIGHTS, &memory));
        l->memory.table = (exl2__lora_matrix *)memory;
    } else {
        l->memory.table = (exl2__lora_matrix *)(uintptr_t)(l->memory.block[0] + l->bytes);
    }
    memset(l->memory.table, 0, (size_t)l->memory.table_bytes);
    EXL2__TRY(exl2__alloc(l->c, l->rows_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING, &memory));
    l->half = (uint16_t *)memory;
    EXL2__TRY(exl2__alloc(l->c, 2 * (uint64_t)l->widest * sizeof *l->order, EXL2__ARENA_ALIGN, EXL2_MEM_STAGING,
                          &memory));
    l->order = (uint32_t *)memory;
    l->content[0] = 1;
    l->content[1] = 2;
    return EXL2_OK;
}

/* ---- numbers ---- */

/* Reads the next elements of the half into l->values: of A in the order of the file, of B the part's rows. Returns
   their number in *count. */
EXL2__PRIVATE exl2_result exl2__lora_load_piece(exl2__lora_loader *l, const exl2__tensor *t, uint32_t width,
                                                uint64_t elements, uint32_t *count)
{
    uint64_t from = l->at, n = exl2__min64(EXL2__LORA_PIECE, elements - l->at);
    uint32_t size = exl2__tensor_type_bytes(t->type);
    if (l->second) { /* number of whole rows that are adjacent in the file */
        const exl2__matrix_view *view = &l->parts[l->part].view;
        uint32_t row = (uint32_t)(l->at / width);
        uint64_t rows = exl2__min64(EXL2__LORA_PIECE / width, view->run - row % view->run);
        n = exl2__min64(rows, elements / width - row) * width;
        from = exl2__matrix_view_at(view, row) * width;
    }
    EXL2__TRY(exl2__tensors_read(l->c, &l->files.tensors, t, from * size, l->raw, n * size));
    for (uint32_t i = 0; i < n; i++) {
        l->values[i] = exl2__tensor_float(t->type, l->raw + i * size);
        if (!exl2__float_is_finite(l->values[i])) {
            return exl2__fail(l->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s': value %llu is not finite", t->name,
                              (unsigned long long)(from + i));
        }
    }
    *count = (uint32_t)n;
    return EXL2_OK;
}

/* The power of two for a half with this largest absolute value. */
EXL2__PRIVATE exl2_result exl2__lora_load_exponent(exl2__lora_loader *l, const exl2__tensor *t, int *out)
{
    int above = (int)(exl2__float_bits(l->peak) >> 23 & 255u) - 126; /* peak < 2^above */
    int exponent = exl2__float_bits(l->peak) == 0 ? 0 : 15 - above;
    if (exponent < EXL2__LORA_EXPONENT_MIN) {
        return exl2__fail(l->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' has a value of 2^%d or more, which is too "
                          "large", t->name, above - 1);
    }
    *out = exponent > EXL2__LORA_EXPONENT_MAX ? EXL2__LORA_EXPONENT_MAX : exponent;
    return EXL2_OK;
}

static inline float exl2__lora_load_power(int exponent)
{
    return exl2__bits_float((uint32_t)(127 + exponent) << 23);
}

/* Puts l->values, the elements from l->at on, at their places in l->half. */
EXL2__PRIVATE void exl2__lora_load_put(exl2__lora_loader *l, uint32_t width, uint32_t count, int exponent)
{
    float scale = exl2__lora_load_power(exponent);
    uint32_t line = (uint32_t)(l->at / width), at = (uint32_t)(l->at % width);
    const uint32_t *place = l->order + (l->second ? l->widest : 0);
    size_t stride = l->second ? exl2__lora_b_stride(l->u.out[l->part]) : exl2__lora_a_stride(l->u.in);
    for (uint32_t i = 0; i < count; i++) {
        size_t to = l->second ? at * stride + place[line] : line * stride + place[at];
        l->half[to] = exl2__f32_to_f16(exl2__mul_float(l->values[i], scale));
        at = at + 1 < width ? at + 1 : 0;
        line += at == 0;
    }
}

/* Where the next half of the current unit will lie. */
static inline uint64_t exl2__lora_load_at(const exl2__lora_loader *l)
{
    uint32_t span = exl2__spans_of_layer(l->spans, l->u.layer);
    return l->memory.block[span] + l->next[span];
}

/* The operand of the current unit. */
static inline exl2__operand exl2__lora_load_operand(const exl2__lora_loader *l)
{
    exl2__role role = exl2__weights_role(l->u.kind);
    exl2__layer *layer = &l->plan->layers[l->u.layer];
    return (exl2__operand){ *exl2__layer_matrix(layer, role, l->u.expert), layer, role, l->u.expert };
}

/* Reads one half of the current part. */
EXL2__PRIVATE exl2_result exl2__lora_load_half(exl2__lora_loader *l, exl2__work *work)
{
    const exl2__lora_part *part = &l->parts[l->part];
    const exl2__tensor *t = l->second ? part->pair->b : part->pair->a;
    uint32_t rank = part->pair->rank, width = l->second ? rank : l->u.in, count;
    uint64_t elements = (uint64_t)rank * (l->second ? l->u.out[l->part] : l->u.in);
    uint64_t bytes = l->second ? exl2__lora_b_bytes(rank, l->u.out[l->part]) : exl2__lora_a_bytes(rank, l->u.in);
    int *exponent = &l->exponent[l->part][l->second];
    if (l->at == 0 && !l->scaled) {
        l->peak = 0;
        *exponent = 0;
        l->scaled = t->type == EXL2__TENSOR_F16;
        memset(l->half, 0, (size_t)bytes);
    }
    for (; !l->scaled; l->at += count) {
        if (l->at == elements) {
            EXL2__TRY(exl2__lora_load_exponent(l, t, exponent));
            l->scaled = true;
            l->at = 0;
            break;
        }
        if (!exl2__work_spend(work, EXL2__LORA_PIECE * 2)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__lora_load_piece(l, t, width, elements, &count));
        for (uint32_t i = 0; i < count; i++) {
            float value = l->values[i] < 0 ? -l->values[i] : l->values[i];
            l->peak = value > l->peak ? value : l->peak;
        }
    }
    for (; l->at < elements; l->at += count) {
        if (!exl2__work_spend(work, EXL2__LORA_PIECE * 4)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__lora_load_piece(l, t, width, elements, &count));
        exl2__content_id_add(l->content, l->values, count * sizeof *l->values);
        exl2__lora_load_put(l, width, count, *exponent);
    }
    uint32_t span = exl2__spans_of_layer(l->spans, l->u.layer);
    exl2__device *device = l->spans->span[span].device;
    const exl2__backend_loras *loras = l->backend->loras;
    if (l->second && loras->write_b) {
        EXL2__TRY(loras->write_b(device, exl2__lora_load_at(l), l->half, rank, exl2__lora_b_stride(l->u.out[l->part]),
                                 exl2__lora_load_operand(l), l->part));
    } else {
        EXL2__TRY(loras->write(device, exl2__lora_load_at(l), l->half, bytes));
    }
    l->next[span] += bytes;
    l->read_bytes += bytes;
    l->at = 0;
    l->scaled = false;
    return EXL2_OK;
}

/* Where the backend has the part's inputs and outputs. */
EXL2__PRIVATE exl2_result exl2__lora_load_order(exl2__lora_loader *l)
{
    exl2__operand of = exl2__lora_load_operand(l);
    for (uint32_t i = 0; i < l->widest; i++) {
        l->order[i] = l->order[l->widest + i] = i;
    }
    if (l->backend->loras->order) {
        const exl2__span *span = &l->spans->span[exl2__spans_of_layer(l->spans, l->u.layer)];
        EXL2__TRY(l->backend->loras->order(span->device, of, l->part, l->order, l->order + l->widest));
    }
    l->ordered = true;
    return EXL2_OK;
}

/* Reads the current part, and fills in its place of the table. */
EXL2__PRIVATE exl2_result exl2__lora_load_part(exl2__lora_loader *l, exl2__work *work)
{
    const exl2__lora_part *part = &l->parts[l->part];
    exl2__role role = exl2__weights_role(l->u.kind);
    uint32_t places = exl2__lora_places(l->config->experts.count);
    exl2__lora_matrix *m = &l->memory.table[(size_t)l->u.layer * places
                                            + exl2__role_lora_place(role, l->u.expert, l->part)];
    if (!l->ordered) {
        const uint32_t key[] = { l->u.layer, (uint32_t)role, l->u.expert, l->part, part->pair->rank };
        exl2__content_id_add(l->content, key, sizeof key);
        exl2__content_id_add(l->content, &part->pair->factor, sizeof part->pair->factor);
        EXL2__TRY(exl2__lora_load_order(l));
        m->a = part->shares ? m[-1].a : exl2__lora_load_at(l);
        l->exponent[l->part][0] = part->shares ? l->exponent[l->part - 1][0] : 0;
        l->second = part->shares;
    }
    if (!l->second) {
        EXL2__TRY_DONE(exl2__lora_load_half(l, work));
        l->second = true;
    }
    m->b = exl2__lora_load_at(l);
    EXL2__TRY_DONE(exl2__lora_load_half(l, work));
    int *exponent = l->exponent[l->part];
    m->factor = (float)(part->pair->factor * (double)exl2__lora_load_power(-exponent[0])
                        * (double)exl2__lora_load_power(-exponent[1]));
    m->shares = part->shares ? 1 : 0;
    m->rank = part->pair->rank;
    l->second = l->ordered = false;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__lora_load_numbers(exl2__lora_loader *l, exl2__work *work)
{
    for (; l->unit < exl2__unit_count(l->config, true); l->unit++, l->found = false) {
        if (!l->found) {
            if (!exl2__work_spend(work, 3000)) {
                return EXL2_PENDING;
            }
            exl2__unit_make(l->config, l->unit, &l->u);
            memset(l->parts, 0, sizeof l->parts);
            EXL2__TRY(l->u.table ? EXL2_OK : exl2__lora_unit(l->c, &l->files, &l->u, l->parts));
            l->found = true;
            l->part = 0;
        }
        for (; l->part < 3; l->part++) {
            if (l->parts[l->part].pair) {
                EXL2__TRY_DONE(exl2__lora_load_part(l, work));
            }
        }
    }
    for (uint32_t i = 0; i < l->spans->count; i++) {
        uint64_t bytes = l->memory.table_bytes;
        EXL2__ASSERT(l->next[i] + bytes == l->memory.block_bytes[i]);
        if (exl2__backend_has_memory(l->backend)) {
            const exl2__backend_loras *loras = l->backend->loras;
            exl2__device *device = l->spans->span[i].device;
            uint64_t at = l->memory.block[i] + l->next[i];
            EXL2__TRY(loras->write_table ? loras->write_table(device, at, l->memory.table, bytes)
                                         : loras->write(device, at, l->memory.table, bytes));
        }
    }
    return EXL2_OK;
}

/* What a job's rows know of the adapter that has been loaded. */
static inline exl2__lora_store exl2__lora_load_store(const exl2__lora_loader *l)
{
    exl2__lora_store store = { .matrices = l->memory.table, .places = exl2__lora_places(l->config->experts.count),
                               .rank_max = l->files.rank_max };
    store.narrow = true;
    for (uint32_t i = 0; i < l->config->layers * store.places; i++) {
        store.experts = store.experts || (i % store.places >= EXL2__LORA_ROUTER && store.matrices[i].rank > 0);
        store.narrow = store.narrow && (i % store.places < EXL2__LORA_OUT || store.matrices[i].rank == 0);
    }
    for (uint32_t i = 0; i < l->spans->count && exl2__backend_has_memory(l->backend); i++) {
        store.device[i] = l->memory.block[i] + l->next[i];
    }
    return store;
}

/* ---- the stages ---- */

typedef exl2_result (*exl2__lora_load_stage)(exl2__lora_loader *l, exl2__work *work);

static const exl2__lora_load_stage exl2__lora_load_stages[] = {
    exl2__lora_load_read, exl2__lora_load_match, exl2__lora_load_add_up, exl2__lora_load_allocate,
    exl2__lora_load_numbers,
};

#define EXL2__LORA_LOAD_MEASURED 3u /* stages that only read headers */

/* `dir`, the config, the plan and the spans must live until the end. */
EXL2__PRIVATE void exl2__lora_load_begin(exl2__lora_loader *l, exl2__ctx *c, const char *dir,
                                         const exl2__config *config, const exl2__plan *plan,
                                         const exl2__spans *spans)
{
    memset(l, 0, sizeof *l);
    l->c = c;
    l->config = config;
    l->plan = plan;
    l->spans = spans;
    l->backend = exl2__spans_backend(spans);
    exl2__lora_files_read_begin(&l->reader, c, dir, config->arch.renames, false, &l->files);
}

/* Reads headers alone, in slices; then the sizes of l->memory are known. */
EXL2__PRIVATE exl2_result exl2__lora_load_measure(exl2__lora_loader *l, exl2__work *work)
{
    for (; l->stage < EXL2__LORA_LOAD_MEASURED; l->stage++) {
        EXL2__TRY_DONE(exl2__lora_load_stages[l->stage](l, work));
    }
    return EXL2_OK;
}

/* Reads on, in slices. OK: l->memory and l->content are whole. */
EXL2__PRIVATE exl2_result exl2__lora_load_slice(exl2__lora_loader *l, exl2__work *work)
{
    for (; l->stage < EXL2__COUNT(exl2__lora_load_stages); l->stage++) {
        EXL2__TRY_DONE(exl2__lora_load_stages[l->stage](l, work));
    }
    return EXL2_OK;
}

/* Frees what loading needed. The memory is the caller's, if it takes it before. Accepts a zeroed loader. */
EXL2__PRIVATE void exl2__lora_load_end(exl2__lora_loader *l)
{
    if (l->c) {
        exl2__lora_files_read_end(&l->reader);
        exl2__lora_files_close(l->c, &l->files);
        exl2__free(l->c, l->half, l->rows_bytes, EXL2_MEM_STAGING);
        exl2__free(l->c, l->order, 2 * (uint64_t)l->widest * sizeof *l->order, EXL2_MEM_STAGING);
        exl2__lora_load_free(l->c, l->spans, &l->memory);
    }
    memset(l, 0, sizeof *l);
}

#endif
