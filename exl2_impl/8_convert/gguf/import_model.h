/* import_model.h: carries out a plan: reads GGUF tensors, quantizes them one slab of rows at a time, and writes the
   safetensors files of the folder.
   takes: a plan, the output folder, progress and parallel hooks.
   gives: exl2__import_model_run, exl2__import_model_outline.
   owns:  scratch for one stored tensor and one slab of numbers, and the output files, until exl2__import_model_run
          returns. */
#ifndef EXL2__IMPORT_MODEL_H
#define EXL2__IMPORT_MODEL_H

#include "import_plan.h"
#include "../quantize.h"
#include "../tasks.h"

#define EXL2__IMPORT_SLAB_ROWS 256u /* rows (input features) of a slab: a multiple of all group and block sizes */
#define EXL2__IMPORT_CHUNK 256u     /* columns (output features) per task */
#define EXL2__IMPORT_TRIES 16u      /* group scales that are tried */
#define EXL2__IMPORT_GROUPS (EXL2__IMPORT_SLAB_ROWS / EXL2__PACK_UNIT) /* most groups of a slab */

/* In the sizes below, `stored` is that of the widest matrix, and `chunks` follows from it. */
typedef struct exl2__import_scratch {
    uint64_t piece;        /* most numbers that are converted at once where nothing is quantized */
    uint8_t *raw;          /* a stored matrix, or `piece` stored numbers */
    float *slab;           /* [stored / 16][SLAB_ROWS][16] */
    float *peaks;          /* [GROUPS][stored] */
    double *errors;        /* [GROUPS][chunks][TRIES] */
    uint8_t *codes;        /* [SLAB_ROWS][stored] */
    uint8_t *levels;       /* [GROUPS][stored] */
    uint32_t *words;       /* [SLAB_ROWS / 4][stored] */
    uint32_t *scales;      /* [GROUPS][stored / 8] */
    exl2__group *groups;   /* [most groups of a matrix] */
    uint16_t *scale_max;   /* [most groups of a matrix] q_scale_max */
    uint16_t *group_words; /* [most groups of a matrix][2] q_groups */
    uint32_t *inverse;     /* [most inputs of a matrix] q_invperm */
} exl2__import_scratch;

typedef struct exl2__import_model {
    exl2__import_plan *plan;
    exl2__gguf *g; /* plan->g */
    const exl2_import_desc *desc;
    exl2__arena memory;
    exl2__import_scratch scratch;
    exl2__shards shards;
    uint64_t shard_bytes;
    uint64_t numbers_done; /* out of plan->numbers */
} exl2__import_model;

/* Data that the tasks of one slab share. */
typedef struct exl2__import_slab {
    const exl2__import_matrix *matrix;
    const exl2__import_scratch *scratch;
    const exl2__group *groups; /* [group_count] groups of this slab */
    uint32_t row, rows, group_count, chunks;
    exl2_cpu_path path;
    uint16_t tries[EXL2__IMPORT_GROUPS][EXL2__IMPORT_TRIES];
    uint16_t scale_max[EXL2__IMPORT_GROUPS];
} exl2__import_slab;

/* ---- scratch, progress, tasks ---- */

static inline uint64_t exl2__import_model_row_bytes(const exl2__gguf_tensor *t)
{
    return t->dims[0] / t->type->items * t->type->bytes;
}

/* Scratch of an import that does not quantize. A piece has whole rows, and whole heads where rows are permuted. */
EXL2__PRIVATE void exl2__import_model_layout_dense(exl2__import_model *m, exl2__arena *a)
{
    exl2__import_scratch *s = &m->scratch;
    s->piece = 1u << 20;
    for (uint32_t i = 0; i < m->plan->matrix_count; i++) {
        const exl2__import_matrix *x = &m->plan->matrices[i];
        s->piece = exl2__max64(s->piece, exl2__max64((uint64_t)x->in * (x->pair_dim ? x->pair_dim : 1), x->out));
    }
    s->raw = (uint8_t *)exl2__arena_alloc(a, s->piece * sizeof(float));
    s->slab = (float *)exl2__arena_alloc(a, s->piece * sizeof *s->slab);
    s->peaks = (float *)exl2__arena_alloc(a, s->piece * sizeof *s->peaks);
    s->codes = (uint8_t *)exl2__arena_alloc(a, s->piece * 2);
}

EXL2__PRIVATE void exl2__import_model_layout(exl2__import_model *m, exl2__arena *a)
{
    exl2__import_scratch *s = &m->scratch;
    uint64_t raw = 0, stored = 0, in = m->plan->config->hidden, groups = 0;
    for (uint32_t i = 0; i < m->plan->matrix_count; i++) {
        const exl2__import_matrix *x = &m->plan->matrices[i];
        raw = exl2__max64(raw, exl2__import_model_row_bytes(x->weight) * x->out);
        stored = exl2__max64(stored, x->stored);
        in = exl2__max64(in, x->in);
        groups = exl2__max64(groups, x->group_count);
    }
    if (m->plan->dense) {
        exl2__import_model_layout_dense(m, a);
        return;
    }
    s->piece = exl2__min64(stored * EXL2__IMPORT_SLAB_ROWS / 2, 1u << 20); /* as many f16 as `codes` has room for */
    raw = exl2__max64(raw, s->piece * sizeof(float));
    uint64_t chunks = exl2__div_up(stored, EXL2__IMPORT_CHUNK);
    s->raw = (uint8_t *)exl2__arena_alloc(a, raw);
    s->slab = (float *)exl2__arena_alloc(a, stored * EXL2__IMPORT_SLAB_ROWS * sizeof *s->slab);
    s->peaks = (float *)exl2__arena_alloc(a, stored * EXL2__IMPORT_GROUPS * sizeof *s->peaks);
    s->errors = (double *)exl2__arena_alloc(a, chunks * EXL2__IMPORT_GROUPS * EXL2__IMPORT_TRIES * sizeof *s->errors);
    s->codes = (uint8_t *)exl2__arena_alloc(a, stored * EXL2__IMPORT_SLAB_ROWS);
    s->levels = (uint8_t *)exl2__arena_alloc(a, stored * EXL2__IMPORT_GROUPS);
    s->words = (uint32_t *)exl2__arena_alloc(a, stored * EXL2__IMPORT_SLAB_ROWS / 4 * sizeof *s->words);
    s->scales = (uint32_t *)exl2__arena_alloc(a, stored * EXL2__IMPORT_GROUPS / 8 * sizeof *s->scales);
    s->groups = (exl2__group *)exl2__arena_alloc(a, groups * sizeof *s->groups);
    s->scale_max = (uint16_t *)exl2__arena_alloc(a, groups * sizeof *s->scale_max);
    s->group_words = (uint16_t *)exl2__arena_alloc(a, groups * 2 * sizeof *s->group_words);
    s->inverse = (uint32_t *)exl2__arena_alloc(a, in * sizeof *s->inverse);
}

/* Counts `numbers` as done, and reports the progress to the application, which may cancel. */
EXL2__PRIVATE exl2_result exl2__import_model_progress(exl2__import_model *m, uint64_t numbers, const char *what)
{
    const exl2_import_desc *d = m->desc;
    m->numbers_done += numbers;
    if (d->progress && !d->progress(d->user, (float)((double)m->numbers_done / (double)m->plan->numbers), what)) {
        return exl2__fail(m->g->ctx, EXL2_ERR_CANCELLED, "the import of %s was cancelled", m->g->path);
    }
    return EXL2_OK;
}

/* Chunk i has the columns [*begin, *end). */
static inline void exl2__import_model_chunk(const exl2__import_slab *b, uint32_t i, uint32_t *begin, uint32_t *end)
{
    *begin = i * EXL2__IMPORT_CHUNK;
    *end = exl2__min32(*begin + EXL2__IMPORT_CHUNK, b->matrix->stored);
}

static inline float *exl2__import_model_strip(const exl2__import_slab *b, uint32_t column)
{
    return b->scratch->slab + (size_t)column * EXL2__IMPORT_SLAB_ROWS;
}

/* The GGUF row of output feature n, counted from the first row of the matrix. Where pair_dim is not 0, RoPE rotates the
   pairs (2 i, 2 i + 1) of a head in GGUF, the pairs (i, i + dim / 2) in the output. With a head size of 8, feature 1 of
   a head is row 2 in GGUF, feature 4 is row 1. */
static inline uint32_t exl2__import_model_source_row(uint32_t pair_dim, uint32_t n)
{
    if (pair_dim == 0) {
        return n;
    }
    uint32_t half = pair_dim / 2, in_head = n % pair_dim;
    return n - in_head + in_head % half * 2 + in_head / half;
}

/* Task: decodes the numbers of one chunk of columns, and finds their peaks per group. Padding columns are zeros. */
EXL2__PRIVATE void exl2__import_model_load_task(void *arg, uint32_t index)
{
    const exl2__import_slab *b = (const exl2__import_slab *)arg;
    const exl2__import_matrix *x = b->matrix;
    const exl2__gguf_type *type = x->weight->type;
    size_t row_bytes = (size_t)x->in / type->items * type->bytes, skip = (size_t)b->row / type->items * type->bytes;
    uint32_t begin, end;
    exl2__import_model_chunk(b, index, &begin, &end);
    for (uint32_t column = begin; column < end; column++) {
        float numbers[EXL2__IMPORT_SLAB_ROWS] = { 0 };
        uint32_t lane = column % EXL2__QUANTIZE_LANES;
        float *strip = exl2__import_model_strip(b, column - lane) + lane;
        if (column < x->out) {
            uint32_t source = exl2__import_model_source_row(x->pair_dim, column);
            const uint8_t *row = b->scratch->raw + source * row_bytes + skip;
            exl2__gguf_types_read(type, row, b->rows, numbers);
        }
        for (uint32_t r = 0; r < b->rows; r++) {
            strip[(size_t)r * EXL2__QUANTIZE_LANES] = numbers[r];
        }
    }
    for (uint32_t g = 0; g < b->group_count; g++) {
        float *peaks = b->scratch->peaks + (size_t)g * x->stored;
        size_t first = (size_t)(b->groups[g].row - b->row) * EXL2__QUANTIZE_LANES;
        for (uint32_t column = begin; column < end; column += EXL2__QUANTIZE_LANES) {
            exl2__quantize_peaks(exl2__import_model_strip(b, column) + first, b->groups[g].rows, peaks + column);
        }
    }
}

/* Task: computes the squared error of each scale to try for one group in one chunk. */
EXL2__PRIVATE void exl2__import_model_search_task(void *arg, uint32_t index)
{
    const exl2__import_slab *b = (const exl2__import_slab *)arg;
    uint32_t g = index / b->chunks, begin, end;
    const exl2__group *group = &b->groups[g];
    double *errors = b->scratch->errors + (size_t)index * EXL2__IMPORT_TRIES;
    exl2__import_model_chunk(b, index % b->chunks, &begin, &end);
    memset(errors, 0, EXL2__IMPORT_TRIES * sizeof *errors);
    for (uint32_t column = begin; column < end; column += EXL2__QUANTIZE_LANES) {
        const float *strip = exl2__import_model_strip(b, column) + (size_t)(group->row - b->row) * EXL2__QUANTIZE_LANES;
        const float *peaks = b->scratch->peaks + (size_t)g * b->matrix->stored + column;
        exl2__quantize_errors(b->path, strip, NULL, group->rows, peaks, group->bits, b->tries[g], EXL2__IMPORT_TRIES,
                              errors);
    }
}

/* Task: makes levels, codes and words of one group in one chunk. */
EXL2__PRIVATE void exl2__import_model_pack_task(void *arg, uint32_t index)
{
    const exl2__import_slab *b = (const exl2__import_slab *)arg;
    const exl2__import_scratch *s = b->scratch;
    uint32_t g = index / b->chunks, stored = b->matrix->stored, begin, end;
    const exl2__group *group = &b->groups[g];
    uint8_t *codes = s->codes + (size_t)(group->row - b->row) * stored;
    uint8_t *levels = s->levels + (size_t)g * stored;
    exl2__import_model_chunk(b, index % b->chunks, &begin, &end);
    for (uint32_t column = begin; column < end; column += EXL2__QUANTIZE_LANES) {
        const float *strip = exl2__import_model_strip(b, column) + (size_t)(group->row - b->row) * EXL2__QUANTIZE_LANES;
        exl2__quantize_levels(b->path, strip, NULL, group->rows, s->peaks + (size_t)g * stored + column, group->bits,
                              b->scale_max[g], levels + column);
        exl2__quantize_codes(strip, group->rows, levels + column, group->bits, b->scale_max[g], codes + column, stored);
    }
    exl2__pack_codes(codes + begin, group->rows, end - begin, stored, group->bits,
                     s->words + (size_t)(group->word - b->groups[0].word) * stored + begin, stored);
    exl2__pack_levels(levels + begin, end - begin, s->scales + (size_t)g * (stored / 8) + begin / 8);
}

/* ---- one tensor ---- */

/* Chooses the scales to try for each group of the slab; rejects numbers that are not finite or too large for fp16. */
EXL2__PRIVATE exl2_result exl2__import_model_slab_tries(exl2__import_model *m, exl2__import_slab *b)
{
    const exl2__import_matrix *x = b->matrix;
    for (uint32_t g = 0; g < b->group_count; g++) {
        const float *peaks = b->scratch->peaks + (size_t)g * x->stored;
        float peak = 0;
        for (uint32_t n = 0; n < x->stored; n++) {
            peak = peak > peaks[n] ? peak : peaks[n];
            if (!exl2__float_is_finite(peaks[n]) || peaks[n] > EXL2__QUANTIZE_MAX) {
                return exl2__fail(m->g->ctx, EXL2_ERR_FORMAT,
                                  "%s: tensor %.*s has a number in row %llu that is not finite or larger than 32752",
                                  m->g->path, EXL2__GGUF_NAME(x->weight->name),
                                  (unsigned long long)(x->first + exl2__import_model_source_row(x->pair_dim, n)));
            }
        }
        exl2__quantize_tries(peak, x->bits, false, EXL2__IMPORT_TRIES, b->tries[g]);
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__import_model_slab_pick(exl2__import_slab *b)
{
    for (uint32_t g = 0; g < b->group_count; g++) {
        /* summed in the order of chunks, so that the result does not depend on the threads */
        double sums[EXL2__IMPORT_TRIES] = { 0 };
        for (uint32_t i = 0; i < b->chunks; i++) {
            const double *errors = b->scratch->errors + ((size_t)g * b->chunks + i) * EXL2__IMPORT_TRIES;
            for (uint32_t k = 0; k < EXL2__IMPORT_TRIES; k++) {
                sums[k] += errors[k];
            }
        }
        b->scale_max[g] = exl2__quantize_pick(b->tries[g], EXL2__IMPORT_TRIES, sums);
    }
}

/* Quantizes and writes the groups of one slab. Their q_scale_max stay in scratch. */
EXL2__PRIVATE exl2_result exl2__import_model_run_slab(exl2__import_model *m, const exl2__import_matrix *x,
                                                      uint32_t first_group, uint32_t group_count)
{
    exl2__import_scratch *s = &m->scratch;
    exl2__import_slab b;
    memset(&b, 0, sizeof b);
    b.matrix = x;
    b.scratch = s;
    b.path = m->g->ctx->cpu_path;
    b.groups = s->groups + first_group;
    b.group_count = group_count;
    b.row = b.groups[0].row;
    b.rows = b.groups[group_count - 1].row + b.groups[group_count - 1].rows - b.row;
    b.chunks = (uint32_t)exl2__div_up(x->stored, EXL2__IMPORT_CHUNK);
    exl2__tasks_run(m->g->ctx, b.chunks, exl2__import_model_load_task, &b);
    EXL2__TRY(exl2__import_model_slab_tries(m, &b));
    exl2__tasks_run(m->g->ctx, b.chunks * group_count, exl2__import_model_search_task, &b);
    exl2__import_model_slab_pick(&b);
    exl2__tasks_run(m->g->ctx, b.chunks * group_count, exl2__import_model_pack_task, &b);
    memcpy(s->scale_max + first_group, b.scale_max, group_count * sizeof *b.scale_max);
    uint64_t row_bytes = (uint64_t)x->stored * 4, words = (uint64_t)b.rows * x->bits / 32;
    EXL2__TRY(exl2__shards_write(&m->shards, x->entry, b.groups[0].word * row_bytes, s->words, words * row_bytes));
    EXL2__TRY(exl2__shards_write(&m->shards, x->entry + 1, first_group * row_bytes / 8, s->scales,
                                 group_count * row_bytes / 8));
    return exl2__import_model_progress(m, (uint64_t)b.rows * x->stored, x->name);
}

/* Converts numbers [count] to f16. `first`: index of the first one in its tensor, for the message. */
EXL2__PRIVATE exl2_result exl2__import_model_halves(const exl2__import_model *m, const exl2__gguf_tensor *t,
                                                    const float *numbers, uint64_t count, uint64_t first,
                                                    uint16_t *halves)
{
    for (uint64_t i = 0; i < count; i++) {
        halves[i] = exl2__f32_to_f16(numbers[i]);
        if ((halves[i] & 0x7C00) == 0x7C00) {
            return exl2__fail(m->g->ctx, EXL2_ERR_FORMAT,
                              "%s: tensor %.*s has a number at %llu that is not finite or larger than 65504",
                              m->g->path, EXL2__GGUF_NAME(t->name), (unsigned long long)(first + i));
        }
    }
    return EXL2_OK;
}

/* Fails if one of the numbers is not finite. `first`: as above. */
EXL2__PRIVATE exl2_result exl2__import_model_check(const exl2__import_model *m, const exl2__gguf_tensor *t,
                                                   const float *numbers, uint64_t count, uint64_t first)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!exl2__float_is_finite(numbers[i])) {
            return exl2__fail(m->g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has a number at %llu that is not finite",
                              m->g->path, EXL2__GGUF_NAME(t->name), (unsigned long long)(first + i));
        }
    }
    return EXL2_OK;
}

/* Writes `count` numbers of an output tensor from number `at` on, as f32 or f16, as the tensor is listed. */
EXL2__PRIVATE exl2_result exl2__import_model_write(exl2__import_model *m, const exl2__gguf_tensor *t, uint32_t entry,
                                                   const float *numbers, uint64_t count, uint64_t at)
{
    uint16_t *halves = (uint16_t *)(void *)m->scratch.codes;
    if (m->shards.entries[entry].type == EXL2__TENSOR_F32) {
        EXL2__TRY(exl2__import_model_check(m, t, numbers, count, at));
        return exl2__shards_write(&m->shards, entry, at * 4, numbers, count * 4);
    }
    EXL2__TRY(exl2__import_model_halves(m, t, numbers, count, at, halves));
    return exl2__shards_write(&m->shards, entry, at * 2, halves, count * 2);
}

/* Reads, converts and writes an embedding or norm in pieces. */
EXL2__PRIVATE exl2_result exl2__import_model_run_plain(exl2__import_model *m, const exl2__import_plain *p)
{
    const exl2__gguf_tensor *t = p->tensor;
    const exl2__import_scratch *s = &m->scratch;
    uint64_t all = t->bytes / t->type->bytes * t->type->items, piece;
    for (uint64_t done = 0; done < all; done += piece) {
        piece = exl2__min64(all - done, s->piece / EXL2__GGUF_TYPES_ITEMS_MAX * EXL2__GGUF_TYPES_ITEMS_MAX);
        EXL2__TRY(exl2__gguf_read(m->g, t->offset + done / t->type->items * t->type->bytes, s->raw,
                                  piece / t->type->items * t->type->bytes));
        exl2__gguf_types_read(t->type, s->raw, piece, s->slab);
        for (uint64_t i = 0; p->minus_one && i < piece; i++) {
            s->slab[i] -= 1;
        }
        EXL2__TRY(exl2__import_model_write(m, t, p->entry, s->slab, piece, done));
        EXL2__TRY(exl2__import_model_progress(m, piece, m->shards.entries[p->entry].name));
    }
    return EXL2_OK;
}

/* Writes a bias in the order of the output features; zeros if the file has no bias for this layer. */
EXL2__PRIVATE exl2_result exl2__import_model_run_bias(exl2__import_model *m, const exl2__import_matrix *x)
{
    const exl2__import_scratch *s = &m->scratch;
    float *stored = s->slab, *ordered = s->peaks;
    memset(ordered, 0, (size_t)x->stored * sizeof *ordered);
    if (x->bias) {
        const exl2__gguf_type *type = x->bias->type;
        if (x->first % type->items != 0 || x->out % type->items != 0) {
            return exl2__fail(m->g->ctx, EXL2_ERR_UNSUPPORTED, "%s: tensor %.*s is of type %s, whose blocks span two "
                              "matrices", m->g->path, EXL2__GGUF_NAME(x->bias->name), type->name);
        }
        EXL2__TRY(exl2__gguf_read(m->g, x->bias->offset + x->first / type->items * type->bytes, s->raw,
                                  (uint64_t)x->out / type->items * type->bytes));
        exl2__gguf_types_read(type, s->raw, x->out, stored);
        for (uint32_t n = 0; n < x->out; n++) {
            ordered[n] = stored[exl2__import_model_source_row(x->bias_pair_dim, n)];
        }
    }
    return exl2__import_model_write(m, x->bias ? x->bias : x->weight, x->bias_entry, ordered, x->stored, 0);
}

/* Writes rows [row, row + rows) of a matrix [out, in] that the output stores as [in, out]. */
EXL2__PRIVATE exl2_result exl2__import_model_write_transposed(exl2__import_model *m, const exl2__import_matrix *x,
                                                              uint32_t row, uint32_t rows)
{
    const exl2__import_scratch *s = &m->scratch;
    for (uint32_t k = 0; k < x->in; k++) {
        for (uint32_t n = 0; n < rows; n++) {
            s->peaks[n] = s->slab[(size_t)n * x->in + k];
        }
        EXL2__TRY(exl2__import_model_write(m, x->weight, x->entry, s->peaks, rows, (uint64_t)k * x->out + row));
    }
    return EXL2_OK;
}

/* Writes a matrix as f16, in pieces of whole rows. */
EXL2__PRIVATE exl2_result exl2__import_model_run_dense(exl2__import_model *m, const exl2__import_matrix *x)
{
    const exl2__import_scratch *s = &m->scratch;
    uint64_t row_bytes = exl2__import_model_row_bytes(x->weight), step = s->piece / x->in;
    uint32_t unit = x->pair_dim ? x->pair_dim : 1, rows;
    step -= step % unit;
    for (uint32_t row = 0; row < x->out; row += rows) {
        rows = (uint32_t)exl2__min64(x->out - row, step);
        EXL2__TRY(exl2__gguf_read(m->g, x->weight->offset + (x->first + row) * row_bytes, s->raw,
                                  rows * row_bytes));
        for (uint32_t n = 0; n < rows; n++) {
            exl2__gguf_types_read(x->weight->type,
                                  s->raw + exl2__import_model_source_row(x->pair_dim, n) * row_bytes, x->in,
                                  s->slab + (size_t)n * x->in);
        }
        EXL2__TRY(x->transposed ? exl2__import_model_write_transposed(m, x, row, rows)
                                : exl2__import_model_write(m, x->weight, x->entry, s->slab, (uint64_t)rows * x->in,
                                                           (uint64_t)row * x->in));
        EXL2__TRY(exl2__import_model_progress(m, (uint64_t)rows * x->in, x->name));
    }
    return x->has_bias ? exl2__import_model_run_bias(m, x) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_model_run_matrix(exl2__import_model *m, const exl2__import_matrix *x)
{
    exl2__import_scratch *s = &m->scratch;
    exl2__pack_band band = { x->bits, x->in, x->group };
    uint32_t group_count = 0, words = 0, slab_groups = EXL2__IMPORT_SLAB_ROWS / x->group;
    EXL2__TRY(exl2__pack_layout(m->g->ctx, x->name, x->in, &band, 1, s->groups, &group_count, &words));
    uint64_t row_bytes = exl2__import_model_row_bytes(x->weight);
    EXL2__TRY(exl2__gguf_read(m->g, x->weight->offset + x->first * row_bytes, s->raw, x->out * row_bytes));
    for (uint32_t i = 0; i < group_count; i += slab_groups) {
        EXL2__TRY(exl2__import_model_run_slab(m, x, i, exl2__min32(slab_groups, group_count - i)));
    }
    for (uint32_t i = 0; i < group_count; i++) {
        s->group_words[2 * i] = (uint16_t)s->groups[i].bits;
        s->group_words[2 * i + 1] = (uint16_t)s->groups[i].word;
    }
    for (uint32_t i = 0; i < x->in; i++) {
        s->inverse[i] = i; /* rows keep their order, as it is not known which inputs matter most */
    }
    EXL2__TRY(exl2__shards_write(&m->shards, x->entry + 2, 0, s->scale_max, (uint64_t)group_count * 2));
    EXL2__TRY(exl2__shards_write(&m->shards, x->entry + 3, 0, s->group_words, (uint64_t)group_count * 4));
    EXL2__TRY(exl2__shards_write(&m->shards, x->entry + 4, 0, s->inverse, (uint64_t)x->in * 4));
    return x->has_bias ? exl2__import_model_run_bias(m, x) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__import_model_run_all(exl2__import_model *m, const char *dir)
{
    exl2__arena measure = { 0 };
    exl2__import_model_layout(m, &measure);
    EXL2__TRY(exl2__arena_open(m->g->ctx, &m->memory, measure.used, EXL2_MEM_SCRATCH));
    exl2__import_model_layout(m, &m->memory);
    EXL2__TRY(exl2__import_plan_list(m->plan, m->shard_bytes, &m->shards));
    EXL2__TRY(exl2__shards_open(&m->shards, dir));
    for (uint32_t i = 0; i < m->plan->plain_count; i++) {
        EXL2__TRY(exl2__import_model_run_plain(m, &m->plan->plains[i]));
    }
    for (uint32_t i = 0; i < m->plan->matrix_count; i++) {
        const exl2__import_matrix *x = &m->plan->matrices[i];
        EXL2__TRY(m->plan->dense ? exl2__import_model_run_dense(m, x) : exl2__import_model_run_matrix(m, x));
    }
    return exl2__shards_finish(&m->shards);
}

/* Writes all tensors of the plan to files in `dir`, each with at most shard_bytes of data unless one tensor is
   larger. */
EXL2__PRIVATE exl2_result exl2__import_model_run(exl2__import_plan *plan, const exl2_import_desc *desc, const char *dir,
                                                 uint64_t shard_bytes)
{
    exl2__import_model m;
    memset(&m, 0, sizeof m);
    m.plan = plan;
    m.g = plan->g;
    m.desc = desc;
    m.shard_bytes = shard_bytes;
    exl2_result result = exl2__import_model_run_all(&m, dir);
    exl2__shards_close(&m.shards);
    exl2__arena_close(m.g->ctx, &m.memory);
    return result;
}

/* The same without the tensors' data: headers alone. *bytes: what all files would have. */
EXL2__PRIVATE exl2_result exl2__import_model_outline(exl2__import_plan *plan, const char *dir, uint64_t *bytes)
{
    exl2__shards shards = { 0 };
    exl2_result result = exl2__import_plan_list(plan, EXL2__SHARDS_BYTES, &shards);
    result = result < 0 ? result : exl2__shards_outline(&shards, dir, bytes);
    exl2__shards_close(&shards);
    return result;
}

#endif
