/* convert_lora.h: adapters that a conversion merges into the weights of its source: W + factor B A; with DoRA the rows
   of that sum get the lengths that the adapter has for them.
   takes: exl2_convert_desc.loras; names and shapes of the source's tensors.
   gives: exl2__convert_loras_check, exl2__convert_loras_used, exl2__convert_loras_open and _close;
          exl2__convert_loras_find and _check_used; exl2__convert_merge with _begin, _passes, _measure, _row and _end.
   owns:  the adapters' files from _open to _close; the numbers of one matrix from _begin to _end.

   Several adapters are merged one after the other, as peft 0.21 does it: the factor of one with DoRA is made of the
   source's rows and its own B A, but scales what those before it have added, too. Sums are in f32. */
#ifndef EXL2__CONVERT_LORA_H
#define EXL2__CONVERT_LORA_H

#include "../../1_load/lora_files.h"
#include "../../1_load/model_config_read.h"

#define EXL2__CONVERT_LORAS 8u /* adapters of a conversion */

typedef struct exl2__convert_lora {
    exl2__lora_files files;
    double scale; /* of the desc; it multiplies the pairs' factors */
} exl2__convert_lora;

typedef struct exl2__convert_loras {
    exl2__ctx *c;
    exl2__config config; /* of the source: its family */
    exl2__convert_lora items[EXL2__CONVERT_LORAS];
    uint32_t count;
} exl2__convert_loras;

/* ---- the desc ---- */

/* The scale of an adapter; 0: it is left out. */
static inline double exl2__convert_loras_scale(const exl2_convert_lora *lora)
{
    bool off = lora->scale >= (float)EXL2_OFF && lora->scale <= (float)EXL2_OFF;
    bool given = lora->scale < 0 || lora->scale > 0;
    return off ? 0 : given ? (double)lora->scale : 1;
}

/* Number of adapters that are not left out. */
static inline uint32_t exl2__convert_loras_used(const exl2_convert_desc *d)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < d->lora_count; i++) {
        double scale = exl2__convert_loras_scale(&d->loras[i]);
        used += scale < 0 || scale > 0;
    }
    return used;
}

EXL2__PRIVATE exl2_result exl2__convert_loras_check(exl2__ctx *c, const exl2_convert_desc *d)
{
    if (d->lora_count > EXL2__CONVERT_LORAS || (d->lora_count && !d->loras)) {
        return exl2__fail(c, EXL2_ERR_ARG, d->loras ? "lora_count is %u, but at most %u adapters are merged"
                                                    : "lora_count is %u, but loras is NULL", d->lora_count,
                          EXL2__CONVERT_LORAS);
    }
    for (uint32_t i = 0; i < d->lora_count; i++) {
        double scale = exl2__convert_loras_scale(&d->loras[i]);
        if (!d->loras[i].folder || !d->loras[i].folder[0]) {
            return exl2__fail(c, EXL2_ERR_ARG, "loras[%u].folder is %s", i,
                              d->loras[i].folder ? "an empty string" : "NULL");
        }
        if (!(scale >= -100 && scale <= 100)) {
            return exl2__fail(c, EXL2_ERR_ARG, "loras[%u].scale must be from -100 to 100", i);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(d->loras[k].folder, d->loras[i].folder) == 0) {
                return exl2__fail(c, EXL2_ERR_ARG, "loras[%u].folder is that of loras[%u]: an adapter is merged once",
                                  i, k);
            }
        }
    }
    return EXL2_OK;
}

/* ---- the adapters ---- */

static inline void exl2__convert_loras_close(exl2__convert_loras *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        exl2__lora_files_close(l->c, &l->items[i].files);
    }
    l->count = 0;
}

/* Opens all adapters that are not left out. dir: the source's folder, for its family. *l is closed by the caller, also
   after a failure. */
EXL2__PRIVATE exl2_result exl2__convert_loras_open(exl2__ctx *c, const exl2_convert_desc *d, const char *dir,
                                                   exl2__convert_loras *l)
{
    memset(l, 0, sizeof *l);
    l->c = c;
    EXL2__TRY(exl2__convert_loras_used(d) ? exl2__config_read_text(c, dir, &l->config) : EXL2_OK);
    for (uint32_t i = 0; i < d->lora_count; i++) {
        double scale = exl2__convert_loras_scale(&d->loras[i]);
        exl2__lora_files_reader reader;
        exl2__work all = exl2__work_all();
        if (scale < 0 || scale > 0) {
            exl2__convert_lora *item = &l->items[l->count++];
            item->scale = scale;
            exl2__lora_files_read_begin(&reader, c, d->loras[i].folder, l->config.arch.renames, true, &item->files);
            exl2_result result = exl2__lora_files_read_slice(&reader, &all);
            exl2__lora_files_read_end(&reader);
            EXL2__TRY(result);
        }
    }
    return EXL2_OK;
}

/* Is the matrix of this tensor stored [in, out]? */
static inline bool exl2__convert_loras_transposed(const exl2__convert_loras *l, const char *name)
{
    return l->config.arch.traits[EXL2__TRAIT_TRANSPOSED] == EXL2__YES && strncmp(name, "model.layers.", 13) == 0;
}

/* The pair of an adapter for a tensor of the source, by its name after the renames of the family; or NULL. */
EXL2__PRIVATE exl2_result exl2__convert_loras_pair(const exl2__convert_loras *l, uint32_t index, const exl2__tensor *e,
                                                   bool *transposed, const exl2__lora_pair **out)
{
    static const char end[] = ".weight";
    char name[EXL2__TENSORS_NAME_MAX];
    const exl2__lora_files *files = &l->items[index].files;
    size_t bytes = strlen(e->name);
    *out = NULL;
    if (bytes >= sizeof name) {
        return EXL2_OK;
    }
    exl2__format(name, sizeof name, "%s", e->name);
    if (l->config.arch.renames) {
        exl2__tensors_new_name(e->name, l->config.arch.renames, name);
    }
    bytes = strlen(name);
    if (bytes < sizeof end || strcmp(name + bytes - (sizeof end - 1), end) != 0) {
        return EXL2_OK;
    }
    name[bytes - (sizeof end - 1)] = 0;
    const exl2__lora_pair *pair = exl2__lora_files_find(files, name);
    *transposed = exl2__convert_loras_transposed(l, name);
    if (!pair) {
        return EXL2_OK;
    }
    uint64_t in = pair->a->dims[1], outputs = pair->b->dims[0];
    bool fits = e->rank == 2 && e->dims[*transposed ? 0 : 1] == in && e->dims[*transposed ? 1 : 0] == outputs;
    if (!fits) {
        return exl2__fail(l->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' is for a matrix of %llu inputs and %llu "
                          "outputs, but '%s' of the source has the shape [%llu, %llu]", pair->name,
                          (unsigned long long)in, (unsigned long long)outputs, e->name, (unsigned long long)e->dims[0],
                          (unsigned long long)e->dims[1]);
    }
    const exl2__tensor *m = pair->magnitude;
    if (m && (m->rank != 1 || m->dims[0] != outputs)) {
        return exl2__fail(l->c, EXL2_ERR_FORMAT, EXL2__LORA_FILE ": '%s' must have one value for each of the %llu "
                          "outputs", m->name, (unsigned long long)outputs);
    }
    *out = pair;
    return EXL2_OK;
}

/* *found: an adapter changes the tensor. Its shape is checked. */
EXL2__PRIVATE exl2_result exl2__convert_loras_find(const exl2__convert_loras *l, const exl2__tensor *e, bool *found)
{
    *found = false;
    for (uint32_t i = 0; i < l->count; i++) {
        const exl2__lora_pair *pair;
        bool transposed;
        EXL2__TRY(exl2__convert_loras_pair(l, i, e, &transposed, &pair));
        *found = *found || pair;
    }
    return EXL2_OK;
}

/* Fails for a pair that no tensor of the source has. */
EXL2__PRIVATE exl2_result exl2__convert_loras_check_used(const exl2__convert_loras *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        exl2__work all = exl2__work_all();
        uint32_t at = 0;
        EXL2__TRY(exl2__lora_files_check_used(l->c, &l->items[i].files, &at, &all));
    }
    return EXL2_OK;
}

/* ---- one matrix ---- */

typedef struct exl2__convert_merge_part {
    const float *a, *b;      /* [rank, in], [out, rank] */
    const float *magnitude;  /* [out]; NULL: no DoRA */
    double *square;          /* DoRA of a transposed matrix: [out] squares of lengths, summed by _measure */
    uint32_t rank, in, out;
    double factor;
} exl2__convert_merge_part;

/* The numbers of all adapters of a matrix. */
typedef struct exl2__convert_merge {
    exl2__arena memory;
    exl2__convert_merge_part parts[EXL2__CONVERT_LORAS];
    uint32_t count, columns;
    bool transposed;
    float *row;              /* [columns] for the caller */
    float *own;              /* [columns] a row of the source with one adapter */
    float *source;           /* [columns] a row of the source */
    uint16_t *halves;        /* [columns] for the caller */
    uint8_t *codes;          /* [columns] the same */
} exl2__convert_merge;

/* Lays out the numbers; a dry run counts their bytes. */
EXL2__PRIVATE void exl2__convert_merge_layout(exl2__convert_merge *m, const exl2__tensor *e, exl2__arena *a)
{
    for (uint32_t i = 0; i < m->count; i++) {
        exl2__convert_merge_part *p = &m->parts[i];
        bool dora = p->magnitude != NULL;
        p->a = (float *)exl2__arena_alloc(a, (uint64_t)p->rank * p->in * sizeof(float));
        p->b = (float *)exl2__arena_alloc(a, (uint64_t)p->rank * p->out * sizeof(float));
        p->magnitude = dora ? (float *)exl2__arena_alloc(a, (uint64_t)p->out * sizeof(float)) : NULL;
        p->square = dora && m->transposed
                  ? (double *)exl2__arena_alloc_zeroed(a, (uint64_t)p->out * sizeof(double)) : NULL;
    }
    m->columns = (uint32_t)e->dims[1];
    m->row = (float *)exl2__arena_alloc(a, e->dims[1] * sizeof(float));
    m->own = (float *)exl2__arena_alloc(a, e->dims[1] * sizeof(float));
    m->source = (float *)exl2__arena_alloc(a, e->dims[1] * sizeof(float));
    m->halves = (uint16_t *)exl2__arena_alloc(a, e->dims[1] * sizeof(uint16_t));
    m->codes = (uint8_t *)exl2__arena_alloc(a, e->dims[1]);
}

EXL2__PRIVATE exl2_result exl2__convert_merge_read(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
                                                   uint64_t count, const float *to)
{
    return count > UINT32_MAX ? exl2__fail(c, EXL2_ERR_UNSUPPORTED, EXL2__LORA_FILE ": '%s' is too large", e->name)
                              : exl2__tensor_floats_range(c, t, e, 0, (uint32_t)count, (float *)(uintptr_t)to);
}

/* Reads all that adapters have for a tensor of the source. */
EXL2__PRIVATE exl2_result exl2__convert_merge_begin(const exl2__convert_loras *l, const exl2__tensor *e,
                                                    exl2__convert_merge *m)
{
    static const float present = 0;
    const exl2__lora_pair *pairs[EXL2__CONVERT_LORAS] = { NULL };
    uint32_t from[EXL2__CONVERT_LORAS] = { 0 };
    exl2__arena dry = { 0 };
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < l->count; i++) {
        const exl2__lora_pair *pair;
        EXL2__TRY(exl2__convert_loras_pair(l, i, e, &m->transposed, &pair));
        if (pair) {
            pairs[m->count] = pair;
            from[m->count] = i;
            m->parts[m->count++] = (exl2__convert_merge_part){
                .rank = pair->rank, .in = (uint32_t)pair->a->dims[1], .out = (uint32_t)pair->b->dims[0],
                .factor = pair->factor * l->items[i].scale, .magnitude = pair->magnitude ? &present : NULL
            };
        }
    }
    exl2__convert_merge_layout(m, e, &dry);
    for (uint32_t i = 0; i < m->count; i++) { /* the dry run has left no addresses */
        m->parts[i].magnitude = pairs[i]->magnitude ? &present : NULL;
    }
    EXL2__TRY(exl2__arena_open(l->c, &m->memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__convert_merge_layout(m, e, &m->memory);
    for (uint32_t i = 0; i < m->count; i++) {
        const exl2__convert_merge_part *p = &m->parts[i];
        const exl2__tensors *t = &l->items[from[i]].files.tensors;
        EXL2__TRY(exl2__convert_merge_read(l->c, t, pairs[i]->a, (uint64_t)p->rank * p->in, p->a));
        EXL2__TRY(exl2__convert_merge_read(l->c, t, pairs[i]->b, (uint64_t)p->rank * p->out, p->b));
        EXL2__TRY(p->magnitude ? exl2__convert_merge_read(l->c, t, pairs[i]->magnitude, p->out, p->magnitude)
                               : EXL2_OK);
    }
    return EXL2_OK;
}

static inline void exl2__convert_merge_end(exl2__ctx *c, exl2__convert_merge *m)
{
    exl2__arena_close(c, &m->memory);
}

/* Adds B A for row `index` of the tensor: the weights of an output, or, transposed, of an input. */
EXL2__PRIVATE void exl2__convert_merge_add(const exl2__convert_merge_part *p, bool transposed, uint32_t index,
                                           float *row)
{
    for (uint32_t r = 0; r < p->rank && !transposed; r++) {
        float b = (float)(p->factor * (double)p->b[(size_t)index * p->rank + r]);
        for (uint32_t k = 0; k < p->in; k++) {
            row[k] += exl2__mul_float(b, p->a[(size_t)r * p->in + k]);
        }
    }
    for (uint32_t k = 0; k < p->out && transposed; k++) {
        for (uint32_t r = 0; r < p->rank; r++) {
            float a = (float)(p->factor * (double)p->a[(size_t)r * p->in + index]);
            row[k] += exl2__mul_float(a, p->b[(size_t)k * p->rank + r]);
        }
    }
}

static inline double exl2__convert_merge_length(double magnitude, double square)
{
    return square > 0 ? magnitude / sqrt(square) : 1;
}

/* Scales the row to the lengths of an adapter with DoRA. m->source: the row before all adapters. */
EXL2__PRIVATE void exl2__convert_merge_scale(exl2__convert_merge *m, const exl2__convert_merge_part *p,
                                             uint32_t index)
{
    double square = 0;
    for (uint32_t k = 0; k < m->columns && m->transposed; k++) {
        m->row[k] = (float)((double)m->row[k]
                            * exl2__convert_merge_length((double)p->magnitude[k], p->square[k]));
    }
    if (m->transposed) {
        return;
    }
    memcpy(m->own, m->source, m->columns * sizeof *m->own);
    exl2__convert_merge_add(p, false, index, m->own);
    for (uint32_t k = 0; k < m->columns; k++) {
        square += exl2__mul_double((double)m->own[k], (double)m->own[k]);
    }
    double factor = exl2__convert_merge_length((double)p->magnitude[index], square);
    for (uint32_t k = 0; k < m->columns; k++) {
        m->row[k] = (float)((double)m->row[k] * factor);
    }
}

/* Number of times that the caller reads the rows: lengths of outputs that are columns are known after the last row. */
static inline uint32_t exl2__convert_merge_passes(const exl2__convert_merge *m)
{
    bool dora = false;
    for (uint32_t i = 0; i < m->count; i++) {
        dora = dora || m->parts[i].magnitude;
    }
    return dora && m->transposed ? 2 : 1;
}

/* The first of two passes: adds row `index` of the source, which is in m->row, to the lengths. */
EXL2__PRIVATE void exl2__convert_merge_measure(exl2__convert_merge *m, uint32_t index)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const exl2__convert_merge_part *p = &m->parts[i];
        if (!p->magnitude) {
            continue;
        }
        memcpy(m->own, m->row, m->columns * sizeof *m->own);
        exl2__convert_merge_add(p, true, index, m->own);
        for (uint32_t k = 0; k < p->out; k++) {
            p->square[k] += exl2__mul_double((double)m->own[k], (double)m->own[k]);
        }
    }
}

/* Adds what the adapters have for row `index` of the tensor to m->row. */
EXL2__PRIVATE void exl2__convert_merge_row(exl2__convert_merge *m, uint32_t index)
{
    memcpy(m->source, m->row, m->columns * sizeof *m->source);
    for (uint32_t i = 0; i < m->count; i++) {
        exl2__convert_merge_add(&m->parts[i], m->transposed, index, m->row);
        if (m->parts[i].magnitude) {
            exl2__convert_merge_scale(m, &m->parts[i], index);
        }
    }
}

#endif
