/* convert.h: exl2_convert: a dense folder becomes an EXL2 folder, which is created completely or not at all.
   takes: exl2_convert_desc.
   gives: exl2_convert; exl2__convert_run, which does the same with a given context, for tests.
   owns:  all files and memory of a conversion, until it returns; the work folder stays after a failure.

   Stages: ids; measure (layer by layer: moments, losses of blocks, sensitivities); allocate; quantize (matrix by
   matrix); write; compare on rows that were kept out of calibration. */
#ifndef EXL2__CONVERT_H
#define EXL2__CONVERT_H

#include "convert_write.h"
#include "texts.h"

#define EXL2__CONVERT_ROWS 64u
#define EXL2__CONVERT_LENGTH 512u
#define EXL2__CONVERT_LENGTH_MAX 8192u
#define EXL2__CONVERT_HELD 2u         /* rows kept out of calibration, for 64 */
#define EXL2__CONVERT_SAVE_NS 30000000000u /* time between two writes of the states */

typedef struct exl2__convert {
    exl2__ctx *c;
    const exl2_convert_desc *d;
    char out_dir[EXL2__FILE_PATH_MAX];
    uint32_t rows, held, length, head_bits; /* held: rows after those of calibration */
    exl2_token *ids;          /* [rows + held, length] */
    uint64_t ids_bytes;
    exl2__keep work;
    exl2__runner source;
    exl2__slots slots;
    exl2__measure measure;
    exl2__arena memory;       /* of `measure` */
    float *before;            /* [probe rows, hidden] */
    exl2__folder folder;
    exl2__convert_write write;
} exl2__convert;

/* ---- progress ---- */

static exl2_result exl2__convert_progress(const exl2__convert *v, const char *stage, double done)
{
    if (v->d->progress && !v->d->progress(v->d->user, stage, (float)done)) {
        return exl2__fail(v->c, EXL2_ERR_CANCELLED, "the conversion of %s was cancelled", v->d->source_dir);
    }
    return EXL2_OK;
}

static bool exl2__convert_text_progress(void *user, double done)
{
    const exl2__convert *v = (const exl2__convert *)user;
    return !v->d->progress || v->d->progress(v->d->user, "text", (float)done);
}

/* ---- what is asked for ---- */

static exl2_result exl2__convert_check(exl2__convert *v)
{
    const exl2_convert_desc *d = v->d;
    exl2__ctx *c = v->c;
    EXL2__TRY(EXL2__CHECK_ZEROED(c, d, exl2_convert_desc));
    if (!d->source_dir || !d->out_dir) {
        return exl2__fail(c, EXL2_ERR_ARG, "exl2_convert_desc.%s is NULL", d->source_dir ? "out_dir" : "source_dir");
    }
    if (!(d->bpw >= 2 && d->bpw <= 16)) {
        return exl2__fail(c, EXL2_ERR_ARG, "bpw must be from 2 to 16");
    }
    v->head_bits = d->head_bits ? d->head_bits : 6;
    if (!exl2__slots_head_of(v->head_bits)) {
        return exl2__fail(c, EXL2_ERR_ARG, "head_bits is %u, expected 2, 3, 4, 5, 6 or 8", v->head_bits);
    }
    v->length = d->length ? d->length : EXL2__CONVERT_LENGTH;
    v->rows = d->rows ? d->rows : EXL2__CONVERT_ROWS;
    if (v->length < 32 || v->length > EXL2__CONVERT_LENGTH_MAX || v->rows > 65536) {
        return exl2__fail(c, EXL2_ERR_ARG, "%u rows of %u tokens: expected at most 65536 rows, of 32 to %u tokens",
                          v->rows, v->length, EXL2__CONVERT_LENGTH_MAX);
    }
    if (d->calibration_file_count && !d->calibration_files) {
        return exl2__fail(c, EXL2_ERR_ARG, "calibration_files is NULL");
    }
    exl2__format(v->out_dir, sizeof v->out_dir, "%s", d->out_dir);
    size_t bytes = strlen(v->out_dir);
    while (bytes > 1 && (v->out_dir[bytes - 1] == '/' || v->out_dir[bytes - 1] == '\\')) {
        v->out_dir[--bytes] = 0;
    }
    return EXL2_OK;
}

/* A hash of the source's headers and config.json: another model has another one. */
static exl2_result exl2__convert_source_hash(exl2__convert *v, uint64_t *out)
{
    exl2__blob config;
    const exl2__tensors *t = &v->source.load.tensors;
    uint64_t hash = 0xCBF29CE484222325u;
    EXL2__TRY(exl2__file_read_all(v->c, v->d->source_dir, "config.json", EXL2__CONVERT_WRITE_JSON_MAX, &config));
    hash = exl2__keep_hash(hash, config.data, config.bytes);
    exl2__blob_close(v->c, &config);
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        uint64_t place[4] = { e->offset, e->bytes, e->file, e->type };
        hash = exl2__keep_hash(hash, e->name, strlen(e->name));
        hash = exl2__keep_hash(hash, place, sizeof place);
        hash = exl2__keep_hash(hash, e->dims, sizeof e->dims);
    }
    *out = hash;
    return EXL2_OK;
}

static exl2_result exl2__convert_files_hash(exl2__convert *v, uint64_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < v->d->calibration_file_count; i++) {
        exl2__blob blob;
        EXL2__TRY(exl2__texts_read(v->c, v->d->calibration_files[i], &blob));
        *out = exl2__keep_hash(*out + 1, blob.data, blob.bytes);
        exl2__blob_close(v->c, &blob);
    }
    return EXL2_OK;
}

/* bpw as a whole number of thousandths, so that it can be compared and written exactly. */
static inline uint32_t exl2__convert_bpw_1000(const exl2__convert *v)
{
    return (uint32_t)((double)v->d->bpw * 1000 + 0.5);
}

static exl2_result exl2__convert_open_work(exl2__convert *v)
{
    char text[1024], dir[EXL2__FILE_PATH_MAX];
    uint64_t source, files;
    EXL2__TRY(exl2__convert_source_hash(v, &source));
    EXL2__TRY(exl2__convert_files_hash(v, &files));
    exl2__format(text, sizeof text,
                 "version: 1\nsource: %x%x\nbpw in thousandths: %u\nhead bits: %u\nrows: %u\nlength: %u\n"
                 "calibration: %x%x\nseed: %llu\n", (uint32_t)(source >> 32), (uint32_t)source,
                 exl2__convert_bpw_1000(v), v->head_bits, v->rows, v->length, (uint32_t)(files >> 32), (uint32_t)files,
                 (unsigned long long)v->d->seed);
    if (v->d->work_dir) {
        exl2__format(dir, sizeof dir, "%s", v->d->work_dir);
    } else {
        exl2__format(dir, sizeof dir, "%s.work", v->out_dir);
    }
    return exl2__keep_open(v->c, dir, text, &v->work);
}

/* ---- ids ---- */

static exl2_result exl2__convert_alloc_ids(exl2__convert *v)
{
    void *memory;
    v->ids_bytes = (uint64_t)(v->rows + v->held) * v->length * sizeof *v->ids;
    EXL2__TRY(exl2__alloc(v->c, v->ids_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    v->ids = (exl2_token *)memory;
    return EXL2_OK;
}

/* Sets the number of rows, by the number of ids: some are kept out for the comparison at the end. */
static exl2_result exl2__convert_share_rows(exl2__convert *v, uint64_t ids)
{
    uint64_t whole = ids / v->length;
    if (whole < 2) {
        return exl2__fail(v->c, EXL2_ERR_ARG, "calibration has %llu ids, but at least two rows of %u are needed",
                          (unsigned long long)ids, v->length);
    }
    v->held = exl2__max32(v->rows / 64 * EXL2__CONVERT_HELD, 1);
    if (whole < (uint64_t)v->rows + v->held) {
        v->held = exl2__max32((uint32_t)whole / 32, 1);
        v->rows = (uint32_t)whole - v->held;
    }
    return EXL2_OK;
}

/* Reads the ids of the work folder, or collects them and stores them there. */
static exl2_result exl2__convert_ids(exl2__convert *v)
{
    uint32_t counts[2];
    bool found;
    exl2__keep_piece pieces[2] = { { counts, sizeof counts }, { NULL, 0 } };
    EXL2__TRY(exl2__keep_load(&v->work, "ids-rows", pieces, 1, &found));
    if (found) {
        v->rows = counts[0];
        v->held = counts[1];
        EXL2__TRY(exl2__convert_alloc_ids(v));
        pieces[1] = (exl2__keep_piece){ v->ids, v->ids_bytes };
        EXL2__TRY(exl2__keep_load(&v->work, "ids", pieces + 1, 1, &found));
    }
    if (found) {
        return EXL2_OK;
    }
    exl2__texts t;
    uint64_t wanted = (uint64_t)(v->rows + exl2__max32(v->rows / 64 * EXL2__CONVERT_HELD, 1)) * v->length;
    exl2__free(v->c, v->ids, v->ids_bytes, EXL2_MEM_GENERAL);
    v->ids = NULL;
    exl2_result result = exl2__texts_make(v->c, v->d->source_dir, v->d->calibration_files,
                                          v->d->calibration_file_count, wanted, v->d->seed,
                                          v->source.plan.shape.vocab, exl2__convert_text_progress, v, &t);
    result = result < 0 ? result : exl2__convert_share_rows(v, t.count);
    result = result < 0 ? result : exl2__convert_alloc_ids(v);
    if (result >= 0) {
        memcpy(v->ids, t.ids, (size_t)v->ids_bytes);
        counts[0] = v->rows;
        counts[1] = v->held;
        pieces[1] = (exl2__keep_piece){ v->ids, v->ids_bytes };
        result = exl2__keep_save(&v->work, "ids", pieces + 1, 1);
        result = result < 0 ? result : exl2__keep_save(&v->work, "ids-rows", pieces, 1);
    }
    exl2__texts_close(&t);
    return result;
}

/* ---- measure ---- */

/* The width nearest to bpw, with which matrices are tried. */
static uint32_t exl2__convert_probe_bits(const exl2__convert *v)
{
    uint32_t best = 2;
    for (uint32_t i = 0; i < EXL2__LOSSES_WIDTHS; i++) {
        uint32_t bits = exl2__losses_bits(i);
        best = fabs((double)bits - (double)v->d->bpw) < fabs((double)best - (double)v->d->bpw) ? bits : best;
    }
    return best;
}

static void exl2__convert_layout(exl2__convert *v, exl2__arena *a)
{
    exl2__measure *m = &v->measure;
    m->r = &v->source;
    m->ids = v->ids;
    m->rows = v->rows;
    m->length = v->length;
    m->probe_rows = exl2__min32(v->length, EXL2__MEASURE_PROBE);
    m->probe_bits = exl2__convert_probe_bits(v);
    exl2__measure_layout(m, a);
    v->before = (float *)exl2__arena_alloc(a, (uint64_t)m->probe_rows * v->source.plan.shape.hidden * sizeof(float));
}

/* The moments of an input, as a file. */
static exl2__keep_piece exl2__convert_moments(exl2__convert *v, uint32_t tap)
{
    return (exl2__keep_piece){ v->measure.grams[tap].sum, exl2__panels_bytes(v->measure.grams[tap].in) };
}

static void exl2__convert_moments_name(uint32_t layer, uint32_t tap, char name[EXL2__FILE_NAME_MAX])
{
    if (layer == EXL2__SLOTS_NO_LAYER) {
        exl2__format(name, EXL2__FILE_NAME_MAX, "head-moments");
    } else {
        exl2__format(name, EXL2__FILE_NAME_MAX, "layer-%u-%u.moments", layer, tap);
    }
}

/* Pieces of the file with the losses of a layer; returns their number. */
static uint32_t exl2__convert_losses(exl2__convert *v, uint32_t layer, exl2__keep_piece *pieces,
                                     char name[EXL2__FILE_NAME_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->slots.per_layer; i++) {
        exl2__slot *slot = &v->slots.items[layer * v->slots.per_layer + i];
        uint64_t bytes = (uint64_t)EXL2__LOSSES_WIDTHS * (slot->in / 32) * sizeof(double);
        pieces[count++] = (exl2__keep_piece){ &slot->measured.power, sizeof(double) };
        pieces[count++] = (exl2__keep_piece){ &slot->measured.sensitivity, sizeof(double) };
        pieces[count++] = (exl2__keep_piece){ slot->measured.losses, bytes };
    }
    exl2__format(name, EXL2__FILE_NAME_MAX, "layer-%u.losses", layer);
    return count;
}

/* Factors the moments of an input, and measures the matrices that it goes into. */
static exl2_result exl2__convert_measure_tap(exl2__convert *v, uint32_t layer, uint32_t tap)
{
    exl2__factor f;
    exl2__slot *slots = &v->slots.items[layer * v->slots.per_layer];
    exl2_result result = EXL2_OK;
    bool made = false;
    for (uint32_t i = 0; i < v->slots.per_layer && result >= 0; i++) {
        exl2__slot *slot = &slots[i];
        if (slot->tap != (exl2__runner_tap)tap) {
            continue;
        }
        if (!made) {
            EXL2__TRY(exl2__factor_make(v->c, slot->name, v->measure.grams[tap].sum, slot->in, &f));
            made = true;
        }
        result = exl2__measure_part(&v->measure, slot->name, layer, exl2__convert_write_part(&v->source, slot), &f,
                                    v->before, &slot->measured);
        double done = (layer + (i + 1.0) / v->slots.per_layer) / v->source.plan.shape.layers;
        result = result < 0 ? result : exl2__convert_progress(v, "measure", done);
    }
    if (made) {
        exl2__factor_close(v->c, &f);
    }
    return result;
}

static exl2_result exl2__convert_save_states(exl2__convert *v, uint32_t layer)
{
    uint64_t index = layer, count = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden;
    exl2__keep_piece pieces[2] = { { &index, sizeof index }, { v->measure.states, count * sizeof(float) } };
    return exl2__keep_save(&v->work, "states", pieces, 2);
}

/* Sets the states to those before the last saved layer, at most `layer`, or to the embeddings. */
static exl2_result exl2__convert_load_states(exl2__convert *v, uint32_t layer, uint32_t *at)
{
    uint64_t index = 0, count = (uint64_t)v->rows * v->length * v->source.plan.shape.hidden;
    exl2__keep_piece pieces[2] = { { &index, sizeof index }, { v->measure.states, count * sizeof(float) } };
    bool found;
    EXL2__TRY(exl2__keep_load(&v->work, "states", pieces, 2, &found));
    *at = (uint32_t)index;
    if (found && index <= layer) {
        exl2_result result = exl2__runner_run(&v->source, v->ids, v->measure.probe_rows, exl2__measure_keep_probe,
                                              &v->measure);
        return result;
    }
    *at = 0;
    return exl2__measure_begin(&v->measure);
}

static exl2_result exl2__convert_measure_layer(exl2__convert *v, uint32_t layer, bool measured)
{
    exl2__keep_piece pieces[EXL2__MEASURE_MATRICES * 3];
    char name[EXL2__FILE_NAME_MAX];
    EXL2__TRY(exl2__measure_layer(&v->measure, layer, v->before));
    if (measured) {
        return EXL2_OK;
    }
    for (uint32_t tap = 0; tap < EXL2__RUNNER_TAPS; tap++) {
        exl2__keep_piece moments = exl2__convert_moments(v, tap);
        exl2__convert_moments_name(layer, tap, name);
        EXL2__TRY(exl2__keep_save(&v->work, name, &moments, 1));
        EXL2__TRY(exl2__convert_measure_tap(v, layer, tap));
    }
    uint32_t count = exl2__convert_losses(v, layer, pieces, name);
    return exl2__keep_save(&v->work, name, pieces, count);
}

/* Measures what is not in the work folder yet. */
static exl2_result exl2__convert_measure(exl2__convert *v)
{
    uint32_t layers = v->source.plan.shape.layers, first = 0, at;
    exl2__keep_piece pieces[EXL2__MEASURE_MATRICES * 3], head = exl2__convert_moments(v, EXL2__RUNNER_QKV);
    char name[EXL2__FILE_NAME_MAX];
    bool found = true;
    while (first < layers && found) {
        uint32_t count = exl2__convert_losses(v, first, pieces, name);
        EXL2__TRY(exl2__keep_load(&v->work, name, pieces, count, &found));
        first += found;
    }
    if (found) {
        EXL2__TRY(exl2__keep_load(&v->work, "head-moments", &head, 1, &found));
        if (found) {
            return EXL2_OK;
        }
    }
    EXL2__TRY(exl2__convert_load_states(v, first, &at));
    uint64_t saved_ns = exl2__platform_ns();
    for (; at < layers; at++) {
        EXL2__TRY(exl2__convert_measure_layer(v, at, at < first));
        if (exl2__platform_ns() - saved_ns > EXL2__CONVERT_SAVE_NS || at + 1 == layers) {
            EXL2__TRY(exl2__convert_save_states(v, at + 1));
            saved_ns = exl2__platform_ns();
        }
    }
    EXL2__TRY(exl2__measure_head(&v->measure));
    head = exl2__convert_moments(v, EXL2__RUNNER_QKV);
    return exl2__keep_save(&v->work, "head-moments", &head, 1);
}

/* ---- allocate ---- */

/* Range of bpw in the message: thousandths of a bit as text. */
static void exl2__convert_bpw_text(char out[16], double bpw)
{
    uint32_t hundredths = (uint32_t)(bpw * 100 + 0.5);
    exl2__format(out, 16, "%u.%u%u", hundredths / 100, hundredths / 10 % 10, hundredths % 10);
}

/* Losses times sensitivities, for exl2__allocate_run. */
static exl2_result exl2__convert_allocate_in(exl2__convert *v, exl2__allocate_slot *slots, double *losses)
{
    uint32_t count = v->slots.count - 1;
    uint64_t least, most, weights = 0;
    char low[16], high[16];
    for (uint32_t i = 0; i < count; i++) {
        exl2__slot *slot = &v->slots.items[i];
        uint32_t cells = EXL2__LOSSES_WIDTHS * (slot->in / 32);
        for (uint32_t k = 0; k < cells; k++) {
            losses[k] = slot->measured.losses[k] * slot->measured.sensitivity;
        }
        slots[i] = (exl2__allocate_slot){ slot->in, slot->columns, slot->has_bias, losses, slot->widths };
        losses += cells;
        weights += (uint64_t)slot->in * slot->columns;
    }
    exl2__allocate_range(slots, count, &least, &most);
    uint64_t budget = (uint64_t)((double)v->d->bpw * (double)weights);
    if (budget < least) {
        exl2__convert_bpw_text(low, (double)least / (double)weights + 0.005);
        exl2__convert_bpw_text(high, (double)most / (double)weights);
        return exl2__fail(v->c, EXL2_ERR_ARG, "this model can have %s to %s bits per weight", low, high);
    }
    return exl2__allocate_run(v->c, slots, count, budget);
}

static exl2_result exl2__convert_allocate(exl2__convert *v)
{
    exl2__arena dry = { 0 }, memory;
    uint64_t cells = 0;
    for (uint32_t i = 0; i + 1 < v->slots.count; i++) {
        cells += (uint64_t)EXL2__LOSSES_WIDTHS * (v->slots.items[i].in / 32);
    }
    exl2__arena_alloc(&dry, v->slots.count * sizeof(exl2__allocate_slot));
    exl2__arena_alloc(&dry, cells * sizeof(double));
    EXL2__TRY(exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__allocate_slot *slots =
        (exl2__allocate_slot *)exl2__arena_alloc(&memory, v->slots.count * sizeof *slots);
    double *losses = (double *)exl2__arena_alloc(&memory, cells * sizeof *losses);
    exl2_result result = exl2__convert_allocate_in(v, slots, losses);
    exl2__arena_close(v->c, &memory);
    return result;
}

/* ---- quantize ---- */

/* Packs what the quantizer made. */
static void exl2__convert_pack(const exl2__solve *s, const exl2__slot *slot, exl2__slot_codes *codes)
{
    for (uint32_t g = 0; g < codes->group_count; g++) {
        const exl2__group *group = &codes->groups[g];
        for (uint32_t strip = 0; strip < s->strips; strip++) {
            exl2__pack_codes(s->codes + ((size_t)strip * slot->in + group->row) * EXL2__PANELS_LANES, group->rows,
                             EXL2__PANELS_LANES, EXL2__PANELS_LANES, group->bits,
                             codes->words + (size_t)group->word * slot->columns + strip * EXL2__PANELS_LANES,
                             slot->columns);
        }
        exl2__pack_levels(s->levels + (size_t)g * slot->columns, slot->columns,
                          codes->scales + (size_t)g * (slot->columns / 8));
        codes->scale_max[g] = s->scale_max[g];
        codes->table[2 * g] = (uint16_t)group->bits;
        codes->table[2 * g + 1] = (uint16_t)group->word;
    }
    for (uint32_t i = 0; i < slot->in; i++) {
        codes->inverse[s->factor->order[i]] = i;
    }
}

/* Quantizes one matrix, and stores its codes. */
static exl2_result exl2__convert_quantize_slot(exl2__convert *v, uint32_t index, const exl2__factor *f,
                                               exl2__slot_codes *codes)
{
    const exl2__slot *slot = &v->slots.items[index];
    exl2__keep_piece pieces[EXL2__SLOT_PIECES];
    char name[EXL2__FILE_NAME_MAX];
    exl2__solve s;
    EXL2__TRY(exl2__solve_open(v->c, f, slot->columns, codes->groups, codes->group_count, &s));
    exl2_result result = exl2__measure_weights(v->c, slot->name, exl2__convert_write_part(&v->source, slot), f,
                                               slot->out, s.weights);
    if (result >= 0) {
        exl2__solve_run(v->c, &s);
        exl2__convert_pack(&s, slot, codes);
        codes->losses[0] = exl2__solve_energy(v->c, &s, s.errors);
        codes->losses[1] = exl2__solve_energy(v->c, &s, s.weights);
        uint32_t count = exl2__slot_codes_pieces(slot, codes, pieces);
        exl2__convert_write_codes_name(&v->slots, index, name);
        result = exl2__keep_save(&v->work, name, pieces, count);
    }
    exl2__solve_close(v->c, &s);
    return result;
}

/* The slots [first, end) have one input. Those that are in the work folder are left as they are. */
static exl2_result exl2__convert_quantize_input(exl2__convert *v, uint32_t first, uint32_t end)
{
    exl2__factor f;
    bool made = false;
    exl2_result result = EXL2_OK;
    for (uint32_t i = first; i < end && result >= 0; i++) {
        const exl2__slot *slot = &v->slots.items[i];
        exl2__arena dry = { 0 }, memory;
        exl2__slot_codes codes;
        exl2__keep_piece pieces[EXL2__SLOT_PIECES], moments = exl2__convert_moments(v, slot->tap);
        char name[EXL2__FILE_NAME_MAX];
        bool found = false;
        exl2__slot_codes_layout(&v->slots, slot, &codes, &dry);
        result = exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH);
        if (result < 0) {
            break;
        }
        exl2__slot_codes_layout(&v->slots, slot, &codes, &memory);
        uint32_t count = exl2__slot_codes_pieces(slot, &codes, pieces);
        exl2__convert_write_codes_name(&v->slots, i, name);
        result = exl2__keep_load(&v->work, name, pieces, count, &found);
        if (result >= 0 && !found && !made) {
            exl2__convert_moments_name(slot->layer, slot->tap, name);
            result = exl2__keep_load(&v->work, name, &moments, 1, &made);
            result = result < 0 ? result : !made ? exl2__fail(v->c, EXL2_ERR_IO, "%s/%s is missing or damaged; remove "
                                                              "that folder", v->work.dir, name)
                   : exl2__factor_make(v->c, slot->name, v->measure.grams[slot->tap].sum, slot->in, &f);
            made = result >= 0;
        }
        if (result >= 0 && !found) {
            result = exl2__convert_quantize_slot(v, i, &f, &codes);
        }
        exl2__arena_close(v->c, &memory);
        result = result < 0 ? result : exl2__convert_progress(v, "quantize", (i + 1.0) / v->slots.count);
    }
    if (made) {
        exl2__factor_close(v->c, &f);
    }
    return result;
}

static exl2_result exl2__convert_quantize(exl2__convert *v)
{
    for (uint32_t first = 0, end; first < v->slots.count; first = end) {
        const exl2__slot *slot = &v->slots.items[first];
        for (end = first + 1; end < v->slots.count && v->slots.items[end].layer == slot->layer
                              && v->slots.items[end].tap == slot->tap; end++) {
        }
        EXL2__TRY(exl2__convert_quantize_input(v, first, end));
    }
    return EXL2_OK;
}

/* ---- report ---- */

static void exl2__convert_report(exl2__convert *v, exl2_convert_info *info)
{
    uint64_t bits = 0, weights = 0;
    exl2__format(info->arch, sizeof info->arch, "%s", v->source.load.config.arch_name);
    info->bytes = v->write.bytes;
    info->matrices = v->slots.count;
    info->rows = v->rows;
    info->length = v->length;
    for (uint32_t i = 0; i < v->slots.count; i++) {
        const exl2__slot *slot = &v->slots.items[i];
        exl2__arena dry = { 0 };
        exl2__slot_codes codes;
        exl2__slot_codes_layout(&v->slots, slot, &codes, &dry);
        uint64_t own = exl2__slots_bits(slot, &codes), all = (uint64_t)slot->in * slot->columns;
        exl2_convert_matrix m = { .name = slot->name, .in = slot->in, .out = slot->out };
        exl2__group groups[EXL2__MATRIX_IN_MAX / 32 + 1];
        uint32_t words, count = exl2__slots_groups(&v->slots, slot, groups, &words);
        for (uint32_t g = 0; g < count; g++) {
            m.rows[groups[g].bits] += groups[g].rows;
        }
        m.bpw = (float)((double)own / (double)all);
        m.loss = slot->power > 0 ? slot->loss / slot->power : 0;
        m.kl = slot->measured.sensitivity * slot->loss;
        info->predicted_kl += m.kl;
        if (slot->layer == EXL2__SLOTS_NO_LAYER) {
            info->head_bpw = m.bpw;
        } else {
            bits += own;
            weights += all;
        }
        if (v->d->on_matrix) {
            v->d->on_matrix(v->d->user, &m);
        }
    }
    info->bpw = weights ? (float)((double)bits / (double)weights) : 0;
}

/* Compares the output with the source on the rows that were kept out. */
static exl2_result exl2__convert_compare(exl2__convert *v, const char *dir, exl2_convert_info *info)
{
    exl2__runner out;
    exl2__compare m = { 0 };
    exl2__arena dry = { 0 }, memory = { 0 };
    uint32_t stride = exl2__compare_stride(v->source.plan.shape.vocab);
    exl2__arena_alloc(&dry, stride * sizeof(float));
    exl2__arena_alloc(&dry, stride * sizeof(float));
    EXL2__TRY(exl2__runner_open(v->c, dir, v->length, &out));
    exl2_result result = exl2__arena_open(v->c, &memory, dry.used, EXL2_MEM_SCRATCH);
    m.a = &v->source;
    m.b = &out;
    if (result >= 0) {
        m.first = (float *)exl2__arena_alloc(&memory, stride * sizeof(float));
        m.second = (float *)exl2__arena_alloc(&memory, stride * sizeof(float));
    }
    for (uint32_t i = 0; i < v->held && result >= 0; i++) {
        result = exl2__compare_rows(&m, v->ids + (size_t)(v->rows + i) * v->length, v->length);
        result = result < 0 ? result : exl2__convert_progress(v, "compare", (i + 1.0) / v->held);
    }
    if (result >= 0) {
        info->kl = m.kl / (double)m.positions;
        info->top1 = (double)m.same_top / (double)m.positions;
        info->nll_before = m.nll_a / (double)m.scored;
        info->nll_after = m.nll_b / (double)m.scored;
    }
    exl2__arena_close(v->c, &memory);
    exl2__runner_close(&out);
    return result;
}

/* ---- all ---- */

static exl2_result exl2__convert_steps(exl2__convert *v)
{
    exl2__ctx *c = v->c;
    exl2_convert_info info = { 0 };
    exl2__arena dry = { 0 };
    EXL2__TRY(exl2__convert_check(v));
    EXL2__TRY(exl2__folder_begin(c, &v->folder, v->out_dir)); /* fails before hours of work, not after */
    EXL2__TRY(exl2__convert_progress(v, "load", 0));
    EXL2__TRY(exl2__runner_open(c, v->d->source_dir, v->length, &v->source));
    EXL2__TRY(exl2__slots_open(c, &v->source, v->head_bits, &v->slots));
    EXL2__TRY(exl2__convert_open_work(v));
    EXL2__TRY(exl2__convert_ids(v));
    exl2__convert_layout(v, &dry);
    EXL2__TRY(exl2__arena_open(c, &v->memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__convert_layout(v, &v->memory);
    EXL2__TRY(exl2__convert_measure(v));
    EXL2__TRY(exl2__convert_allocate(v));
    EXL2__TRY(exl2__convert_quantize(v));
    EXL2__TRY(exl2__convert_progress(v, "write", 0));
    v->write = (exl2__convert_write){ .c = c, .source_dir = v->d->source_dir, .source = &v->source,
                                      .slots = &v->slots, .work = &v->work, .bpw_1000 = exl2__convert_bpw_1000(v),
                                      .rows = v->rows, .length = v->length,
                                      .own_text = v->d->calibration_file_count == 0 };
    EXL2__TRY(exl2__convert_write_all(&v->write, v->folder.work_path));
    exl2__arena_close(c, &v->memory);
    EXL2__TRY(exl2__convert_compare(v, v->folder.work_path, &info));
    EXL2__TRY(exl2__folder_commit(c, &v->folder));
    exl2__convert_report(v, &info);
    if (!v->d->work_dir) {
        exl2__keep_remove(&v->work);
    }
    if (v->d->info) {
        *v->d->info = info;
    }
    return EXL2_OK;
}

static exl2_result exl2__convert_run(exl2__ctx *c, const exl2_convert_desc *d)
{
    exl2__convert v = { 0 };
    v.c = c;
    v.d = d;
    exl2_result result = exl2__convert_steps(&v);
    exl2__arena_close(c, &v.memory);
    exl2__free(c, v.ids, v.ids_bytes, EXL2_MEM_GENERAL);
    exl2__slots_close(c, &v.slots);
    exl2__runner_close(&v.source);
    exl2__folder_abandon(&v.folder);
    return result;
}

EXL2_API exl2_result exl2_convert(const exl2_convert_desc *d)
{
    exl2__ctx c = { 0 };
    if (!d) {
        return EXL2_ERR_ARG;
    }
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    c.parallel = d->parallel;
    c.cpu_path = exl2__cpu_path_best();
    exl2_result result = exl2__convert_run(&c, d);
    if (!d->_start_canary && !d->_end_canary && d->error) { /* else d->error may be garbage, too */
        *d->error = c.error;
    }
    return result;
}

#endif
