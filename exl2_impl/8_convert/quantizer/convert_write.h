/* convert_write.h: the output folder of a conversion: codes, the other tensors as FP16, config.json, and the files that
   belong to the tokenizer.
   takes: the source, its linears, the codes in the work folder.
   gives: exl2__convert_write, exl2__convert_write_all.
   owns:  the open files, until exl2__convert_write_all returns.

   Every matrix is read back through the loader's checks, and compared with what the quantizer made. */
#ifndef EXL2__CONVERT_WRITE_H
#define EXL2__CONVERT_WRITE_H

#include "../folder.h"
#include "../shards.h"
#include "linears.h"

#define EXL2__CONVERT_WRITE_PIECE (1u << 20) /* numbers that are converted at once */
#define EXL2__CONVERT_WRITE_SHARE ((uint64_t)EXL2__CONVERT_WRITE_PIECE / 32) /* numbers that one task converts */
#define EXL2__CONVERT_WRITE_JSON_MAX ((uint64_t)16 << 20)
#define EXL2__CONVERT_WRITE_MATRIX 1u /* mark of a tensor that is part of a matrix */

/* The text of calibration. */
enum { EXL2__CONVERT_WRITE_FILES, EXL2__CONVERT_WRITE_OWN, EXL2__CONVERT_WRITE_SPARE, EXL2__CONVERT_WRITE_RANDOM };

/* What the files of an output need to know. */
typedef struct exl2__convert_write {
    exl2__ctx *c;
    const char *source_dir;
    exl2__runner *source;
    const exl2__linears *linears;
    const exl2__workdir *work;
    uint32_t bpw_1000, rows, text; /* bpw * 1000; rows of calibration, and which text they are */
    uint32_t length, head_bits; /* head_bits: for config.json */
    bool dense;     /* nothing is quantized */
    bool dry;       /* nothing is written */
    uint64_t shard_bytes;
    uint32_t *decoded; /* [tensors of the source] 0, or 1 + the number of the matrix (EXL2__LINEARS_PARTS of each unit)
                          that the tensor holds and that is not quantized: written as FP16, without EXL3's padding */
    exl2__shards shards;
    uint64_t bytes; /* of all tensors */
    uint64_t other_bytes; /* of the files without tensors */
} exl2__convert_write;

/* Name of the file with a linear's codes. */
EXL2__PRIVATE void exl2__convert_write_codes_name(const exl2__linears *s, uint32_t linear,
                                                  char name[EXL2__FILE_NAME_MAX])
{
    if (linear + 1 == s->count) {
        exl2__format(name, EXL2__FILE_NAME_MAX, "head-codes");
    } else {
        uint32_t layer = s->items[linear].layer;
        exl2__format(name, EXL2__FILE_NAME_MAX, "layer-%u-%u.codes", layer, linear - s->first[layer]);
    }
}

/* ---- the list of tensors ---- */

/* Marks the tensors that a matrix consists of. */
EXL2__PRIVATE void exl2__convert_write_mark(const exl2__tensors *t, const exl2__matrix_desc *d, uint32_t *number)
{
    static const char *const parts[] = { "q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm", "q_perm",
                                         "qweight", "qzeros", "scales", "g_idx", "bias",
                                         "trellis", "suh", "svh", "su", "sv", "mcg", "mul1", "signs", "weight" };
    const exl2__tensor *found[EXL2__COUNT(parts) + 2] = { d->data, d->bias_data };
    if (exl2__matrix_stored(d) != EXL2__MATRIX_DENSE) {
        char key[EXL2__KEY_BYTES]; /* of the tensors that the matrix may be a part of */
        exl2__format(key, sizeof key, "%s", d->data->name);
        *strrchr(key, '.') = 0; /* .q_weight, .qweight or .trellis */
        for (size_t i = 0; i < EXL2__COUNT(parts); i++) {
            found[i + 2] = exl2__tensors_find_part(t, key, parts[i]);
        }
    }
    for (size_t i = 0; i < EXL2__COUNT(found); i++) {
        if (found[i]) {
            number[found[i] - t->entries] = EXL2__CONVERT_WRITE_MATRIX;
        }
    }
}

/* Is the matrix, if it is not quantized, written in another form than the source's? It is one of EXL3 or has EXL3's
   padding. */
static inline bool exl2__convert_write_is_decoded(const exl2__matrix_desc *d)
{
    return exl2__matrix_is_exl3(exl2__matrix_stored(d)) || d->padded;
}

/* Marks the tensors of all matrices that are quantized, or decoded. */
EXL2__PRIVATE exl2_result exl2__convert_write_mark_all(exl2__convert_write *w, uint32_t *number)
{
    const exl2__config *config = &w->source->load.config;
    const exl2__tensors *t = &w->source->load.tensors;
    memset(w->decoded, 0, t->count * sizeof *w->decoded);
    for (uint32_t i = 0; i < exl2__weights_units(&w->source->load); i++) {
        exl2__unit u;
        exl2__matrix_desc parts[3];
        EXL2__TRY(exl2__weights_find(w->c, &w->source->load, i, &u, parts));
        bool quantized = u.kind == EXL2__UNIT_HEAD
                         || (exl2__linears_input(&u) != UINT32_MAX && exl2__linears_misfit(config, &u) == 0);
        for (uint32_t k = 0; k < u.count; k++) {
            bool decoded = !quantized && exl2__convert_write_is_decoded(&parts[k]);
            if (quantized || decoded) {
                exl2__convert_write_mark(t, &parts[k], number);
            }
            w->decoded[parts[k].data - t->entries] = decoded ? 1 + i * EXL2__LINEARS_PARTS + k : 0;
        }
        if (u.kind == EXL2__UNIT_ROUTER && parts[0].kind != EXL2__MATRIX_DENSE) {
            return exl2__fail(w->c, EXL2_ERR_UNSUPPORTED, "%s is quantized (%s); a router must be dense", u.keys[0],
                              exl2__matrix_kind_name(parts[0].kind));
        }
    }
    return EXL2_OK;
}

/* Is it a tensor of a tower: of what reads images or sound? It is copied as it is. What else nothing has asked for is
   left out: copies of what is quantized, layers that predict further tokens, tables of RoPE. */
EXL2__PRIVATE bool exl2__convert_write_is_tower(const exl2__convert_write *w, const exl2__tensor *entry)
{
    static const char *const text[] = { "model.layers.", "model.language_model.", "language_model.", "model.mtp",
                                        "mtp.", "lm_head." };
    bool other = w->source->load.config.arch.text_of_multimodal && !entry->used;
    for (size_t i = 0; i < EXL2__COUNT(text); i++) {
        other = other && strncmp(entry->name, text[i], strlen(text[i])) != 0;
    }
    return other;
}

/* The matrix that a tensor holds and that is written as FP16. Its name points into *u. */
static inline exl2_result exl2__convert_write_find_decoded(const exl2__convert_write *w, uint32_t entry, exl2__unit *u,
                                                           exl2__matrix_desc *out)
{
    exl2__matrix_desc parts[3];
    uint32_t matrix = w->decoded[entry] - 1;
    EXL2__TRY(exl2__weights_find(w->c, &w->source->load, matrix / EXL2__LINEARS_PARTS, u, parts));
    *out = parts[matrix % EXL2__LINEARS_PARTS];
    return EXL2_OK;
}

/* Adds the weights and the bias of a decoded matrix to the list of tensors. */
EXL2__PRIVATE exl2_result exl2__convert_write_list_decoded(exl2__convert_write *w, uint32_t entry)
{
    exl2__unit u;
    exl2__matrix_desc d;
    char key[EXL2__SHARDS_NAME_MAX];
    EXL2__TRY(exl2__convert_write_find_decoded(w, entry, &u, &d));
    const char *own = exl2__linears_own_name(w->linears, d.data);
    if (strlen(own) + 8 >= sizeof key) {
        return exl2__fail(w->c, EXL2_ERR_UNSUPPORTED, "the tensor '%s' has too long a name", own);
    }
    exl2__format(key, sizeof key, "%s", own);
    *strrchr(key, '.') = 0; /* .trellis or .weight */
    exl2__shards_add(&w->shards, key, ".weight", EXL2__TENSOR_F16, 2, d.out, d.in);
    if (d.has_bias) {
        exl2__shards_add(&w->shards, key, ".bias", EXL2__TENSOR_F16, 1, d.out, 0);
    }
    return EXL2_OK;
}

/* Adds the source's other tensors that the text model uses, and towers. number [tensors]: index in the output, or
   UINT32_MAX. */
EXL2__PRIVATE exl2_result exl2__convert_write_list(exl2__convert_write *w, uint32_t *number)
{
    const exl2__tensors *t = &w->source->load.tensors;
    memset(number, 0, t->count * sizeof *number);
    EXL2__TRY(exl2__convert_write_mark_all(w, number));
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *entry = &t->entries[i];
        if (w->decoded[i]) {
            number[i] = w->shards.count;
            EXL2__TRY(exl2__convert_write_list_decoded(w, i));
            continue;
        }
        bool is_tower = exl2__convert_write_is_tower(w, entry);
        bool other = entry->used && exl2__tensor_is_float(entry) && number[i] != EXL2__CONVERT_WRITE_MATRIX;
        number[i] = UINT32_MAX;
        if (!is_tower && !other) {
            continue;
        }
        exl2__tensor own = *entry;
        own.name = exl2__linears_own_name(w->linears, entry);
        if (is_tower && !exl2__shards_fits(&own)) {
            return exl2__fail(w->c, EXL2_ERR_UNSUPPORTED, "the tensor '%s' of a tower cannot be copied: it has too "
                              "long a name, an unknown type, or more than %u dimensions", own.name,
                              EXL2__TENSORS_DIMS);
        }
        if (other && (own.rank > 2 || strlen(own.name) >= EXL2__SHARDS_NAME_MAX)) {
            return exl2__fail(w->c, EXL2_ERR_UNSUPPORTED, "the tensor '%s' has more than two dimensions or too long a "
                              "name", own.name);
        }
        number[i] = w->shards.count;
        if (is_tower) {
            exl2__shards_add_copy(&w->shards, &own);
        } else {
            exl2__shards_add(&w->shards, own.name, "", EXL2__TENSOR_F16, own.rank, own.dims[0], own.dims[1]);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__convert_write_list_linear(exl2__convert_write *w, exl2__linear *linear)
{
    exl2__arena dry = { 0 };
    exl2__linear_codes codes;
    exl2__linear_codes_layout(w->linears, linear, &codes, &dry);
    linear->entry = w->shards.count;
    uint64_t columns = linear->columns, count = codes.group_count;
    exl2__shards_add(&w->shards, linear->name, ".q_weight", EXL2__TENSOR_I32, 2, codes.word_count, columns);
    exl2__shards_add(&w->shards, linear->name, ".q_scale", EXL2__TENSOR_I32, 2, count, columns / 8);
    exl2__shards_add(&w->shards, linear->name, ".q_scale_max", EXL2__TENSOR_F16, 1, count, 0);
    exl2__shards_add(&w->shards, linear->name, ".q_groups", EXL2__TENSOR_I16, 1, 2 * count, 0);
    exl2__shards_add(&w->shards, linear->name, ".q_invperm", EXL2__TENSOR_I32, 1, linear->in, 0);
    if (linear->has_bias) {
        exl2__shards_add(&w->shards, linear->name, ".bias", EXL2__TENSOR_F16, 1, linear->out, 0);
    }
}

/* ---- data ---- */

EXL2__PRIVATE exl2_result exl2__convert_write_halves(exl2__ctx *c, const char *name, const float *numbers,
                                                     uint64_t count, uint16_t *halves)
{
    for (uint64_t i = 0; i < count; i++) {
        halves[i] = exl2__f32_to_f16(numbers[i]);
        if ((halves[i] & 0x7C00) == 0x7C00) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "the tensor '%s' has a number that is not finite or larger than "
                              "65504", name);
        }
    }
    return EXL2_OK;
}

/* Writes a tensor as it is. piece [PIECE * 4 bytes]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_write_raw(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
                                                  exl2__shards *shards, uint32_t number, void *piece)
{
    for (uint64_t at = 0, some; at < entry->bytes; at += some) {
        some = exl2__min64(entry->bytes - at, EXL2__CONVERT_WRITE_PIECE * sizeof(float));
        EXL2__TRY(exl2__tensors_read(c, t, entry, at, piece, some));
        EXL2__TRY(exl2__shards_write(shards, number, at, piece, some));
    }
    return EXL2_OK;
}

/* Numbers of a tensor that become FP16: [at, at + count). */
typedef struct exl2__convert_write_numbers {
    const exl2__convert_write *w;
    const exl2__tensor *entry;
    uint64_t at, count;
    float *numbers;
    uint16_t *halves;
} exl2__convert_write_numbers;

/* Part: some of them. */
EXL2__PRIVATE exl2_result exl2__convert_write_share(exl2__ctx *c, void *arg, uint32_t index)
{
    const exl2__convert_write_numbers *job = (const exl2__convert_write_numbers *)arg;
    uint64_t first = index * EXL2__CONVERT_WRITE_SHARE;
    uint64_t count = exl2__min64(job->count - first, EXL2__CONVERT_WRITE_SHARE);
    float *numbers = job->numbers + first;
    EXL2__TRY(exl2__tensor_floats_range(c, &job->w->source->load.tensors, job->entry, job->at + first, (uint32_t)count,
                                        numbers));
    return exl2__convert_write_halves(c, job->entry->name, numbers, count, job->halves + first);
}

/* Decodes rows [row, row + rows) of a matrix to numbers. */
EXL2__PRIVATE exl2_result exl2__convert_write_decode(exl2__convert_write *w, const exl2__matrix_desc *d, uint32_t row,
                                                     uint32_t rows, float *numbers)
{
    const exl2__tensors *t = &w->source->load.tensors;
#if EXL2__EXL3
    if (exl2__matrix_is_exl3(exl2__matrix_stored(d))) {
        return exl2__dequantize_exl3_rows(w->c, t, d, row, rows, numbers);
    }
#endif
    for (uint32_t i = 0; i < rows; i++) {
        EXL2__TRY(exl2__tensor_floats_range(w->c, t, d->data, (row + i) * d->view.columns, d->in,
                                            numbers + (size_t)i * d->in));
    }
    return EXL2_OK;
}

/* Writes a decoded matrix and its bias. */
EXL2__PRIVATE exl2_result exl2__convert_write_decoded(exl2__convert_write *w, uint32_t entry, uint32_t number,
                                                      float *numbers, uint16_t *halves)
{
    exl2__unit u;
    exl2__matrix_desc d;
    exl2__matrix_tables tables;
    EXL2__TRY(exl2__convert_write_find_decoded(w, entry, &u, &d));
    uint32_t most = exl2__max32(EXL2__CONVERT_WRITE_PIECE / d.in, 1);
    /* rows of a block are decoded together */
    most = most < EXL2__EXL3_BLOCK ? most : most / EXL2__EXL3_BLOCK * EXL2__EXL3_BLOCK;
    exl2_result result = exl2__matrix_tables_open(w->c, &w->source->load.tensors, 1.0f, &d, &tables);
    for (uint32_t row = 0, rows; result >= 0 && row < d.out; row += rows) {
        rows = exl2__min32(most, d.out - row);
        uint64_t count = (uint64_t)rows * d.in;
        result = exl2__convert_write_decode(w, &d, row, rows, numbers);
        result = result < 0 ? result : exl2__convert_write_halves(w->c, d.data->name, numbers, count, halves);
        uint64_t at = (uint64_t)row * d.in * 2;
        result = result < 0 || w->dry ? result : exl2__shards_write(&w->shards, number, at, halves, count * 2);
    }
    for (uint32_t n = 0, some; result >= 0 && d.has_bias && n < d.out; n += some) {
        some = exl2__min32(d.out - n, EXL2__CONVERT_WRITE_PIECE);
        result = exl2__convert_write_halves(w->c, d.bias_data->name, d.bias + n, some, halves);
        result = result < 0 || w->dry ? result : exl2__shards_write(&w->shards, number + 1, (uint64_t)n * 2, halves,
                                                                    (uint64_t)some * 2);
    }
    exl2__matrix_tables_close(w->c, &tables);
    return result;
}

/* numbers, halves [PIECE]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_write_tensor(exl2__convert_write *w, const exl2__tensor *entry, uint32_t number,
                                                     float *numbers, uint16_t *halves)
{
    uint32_t index = (uint32_t)(entry - w->source->load.tensors.entries);
    if (w->decoded[index]) {
        return exl2__convert_write_decoded(w, index, number, numbers, halves);
    }
    if (exl2__convert_write_is_tower(w, entry)) {
        return w->dry ? EXL2_OK : exl2__convert_write_raw(w->c, &w->source->load.tensors, entry, &w->shards, number,
                                                          numbers);
    }
    uint64_t all = w->shards.entries[number].bytes / 2;
    for (uint64_t at = 0, some; at < all; at += some) {
        some = exl2__min64(all - at, EXL2__CONVERT_WRITE_PIECE);
        exl2__convert_write_numbers job = { w, entry, at, some, numbers, halves };
        EXL2__TRY(exl2__tasks_try(w->c, (uint32_t)exl2__div_up(some, EXL2__CONVERT_WRITE_SHARE),
                                  exl2__convert_write_share, &job));
        if (!w->dry) {
            EXL2__TRY(exl2__shards_write(&w->shards, number, at * 2, halves, some * 2));
        }
    }
    return EXL2_OK;
}

/* The biases of a linear. halves [PIECE]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_write_bias(exl2__convert_write *w, const exl2__linear *linear, uint16_t *halves)
{
    if (linear->has_bias && linear->layer != EXL2__LINEARS_NO_LAYER) {
        EXL2__TRY(exl2__runner_hold(w->source, linear->layer));
    }
    for (uint32_t n = 0, some; linear->has_bias && n < linear->out; n += some) {
        const exl2__cpu_part *p = exl2__linears_part(w->source, linear);
        some = exl2__min32(linear->out - n, EXL2__CONVERT_WRITE_PIECE);
        EXL2__TRY(exl2__convert_write_halves(w->c, linear->name, p->bias + n, some, halves));
        if (!w->dry) {
            EXL2__TRY(exl2__shards_write(&w->shards, linear->entry + 5, (uint64_t)n * 2, halves, (uint64_t)some * 2));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__convert_write_linear(exl2__convert_write *w, uint32_t index, uint16_t *halves)
{
    exl2__linear *linear = &w->linears->items[index];
    exl2__arena dry = { 0 }, memory;
    exl2__linear_codes codes;
    exl2__workdir_piece pieces[EXL2__SLOT_PIECES];
    char name[EXL2__FILE_NAME_MAX];
    bool found = false;
    exl2__linear_codes_layout(w->linears, linear, &codes, &dry);
    EXL2__TRY(exl2__arena_open(w->c, &memory, dry.used, EXL2_MEM_SCRATCH));
    exl2__linear_codes_layout(w->linears, linear, &codes, &memory);
    uint32_t count = exl2__linear_codes_pieces(linear, &codes, pieces);
    exl2__convert_write_codes_name(w->linears, index, name);
    exl2_result result = exl2__workdir_load(w->work, name, pieces, count, &found);
    if (result >= 0 && !found) {
        result = exl2__fail(w->c, EXL2_ERR_IO, "%s/%s is missing or damaged; run the conversion again", w->work->dir,
                            name);
    }
    for (uint32_t i = 0; i < 5 && result >= 0; i++) {
        result = exl2__shards_write(&w->shards, linear->entry + i, 0, pieces[i].data, pieces[i].bytes);
    }
    result = result < 0 ? result : exl2__convert_write_bias(w, linear, halves);
    linear->loss = codes.losses[0];
    linear->power = codes.losses[1];
    exl2__arena_close(w->c, &memory);
    return result;
}

EXL2__PRIVATE exl2_result exl2__convert_write_tensors(exl2__convert_write *w, const char *dir, uint32_t *number,
                                                      float *numbers, uint16_t *halves)
{
    const exl2__tensors *t = &w->source->load.tensors;
    EXL2__TRY(exl2__convert_write_list(w, number));
    for (uint32_t i = 0; i < w->linears->count; i++) {
        exl2__convert_write_list_linear(w, &w->linears->items[i]);
    }
    EXL2__TRY(exl2__shards_open(&w->shards, dir));
    for (uint32_t i = 0; i < t->count; i++) {
        if (number[i] != UINT32_MAX) {
            EXL2__TRY(exl2__convert_write_tensor(w, &t->entries[i], number[i], numbers, halves));
        }
    }
    for (uint32_t i = 0; i < w->linears->count; i++) {
        EXL2__TRY(exl2__convert_write_linear(w, i, halves));
    }
    for (uint32_t i = 0; i < w->shards.count; i++) {
        w->bytes += w->shards.entries[i].bytes;
    }
    return exl2__shards_finish(&w->shards);
}

/* ---- other files ---- */

/* Writes the members of the source's config.json, but what says how the source itself is quantized, and then those of
   `last`, which may be "". */
EXL2__PRIVATE void exl2__convert_write_members(const exl2__json *j, const char *last, exl2__write *out)
{
    const char *begin = "{\n  \""; /* of a member */
    for (uint32_t key = exl2__json_first(j, 0); key; key = exl2__json_next(j, 0, key)) {
        const exl2__json_token *value = &j->tokens[key + 1];
        const char *quote = value->kind == EXL2__JSON_STRING ? "\"" : "";
        if (exl2__json_is(j, key, "quantization_config") || exl2__json_is(j, key, "compression_config")) {
            continue;
        }
        exl2__write_raw(out, begin, strlen(begin));
        exl2__write_raw(out, j->text + j->tokens[key].begin, j->tokens[key].end - j->tokens[key].begin);
        exl2__write_format(out, "\": %s", quote);
        exl2__write_raw(out, j->text + value->begin, value->end - value->begin);
        exl2__write_raw(out, quote, strlen(quote));
        begin = ",\n  \"";
    }
    exl2__write_format(out, "%s%s\n}\n", *last ? ",\n" : "", last);
}

/* config.json of the source with the output's own quantization_config, or, for a dense copy, without one. */
EXL2__PRIVATE exl2_result exl2__convert_write_config(exl2__convert_write *w, const char *dir)
{
    static const char *const texts[] = { "(files)", "(spare texts, own text)", "(spare texts)", "(random ids)" };
    exl2__blob blob;
    exl2__json j;
    exl2__write out = { 0 };
    char path[EXL2__FILE_PATH_MAX], own[512] = { 0 };
    EXL2__TRY(exl2__file_read_all(w->c, w->source_dir, "config.json", EXL2__CONVERT_WRITE_JSON_MAX, &blob));
    exl2_result result = exl2__json_open_whole(w->c, "config.json", blob.data, (size_t)blob.bytes, NULL, true, &j);
    if (result < 0) {
        exl2__blob_close(w->c, &blob);
        return result;
    }
    if (!w->dense) {
        exl2__format(own, sizeof own, "  \"quantization_config\": {\n    \"quant_method\": \"exl2\",\n    "
                     "\"version\": \"0.3.2\",\n    \"bits\": %u.%u%u%u,\n    \"head_bits\": %u,\n    "
                     "\"calibration\": {\"rows\": %u, \"length\": %u, \"dataset\": \"%s\"},\n    "
                     "\"tool\": \"exl2.h %u.%u.%u\"\n  }",
                     w->bpw_1000 / 1000, w->bpw_1000 / 100 % 10, w->bpw_1000 / 10 % 10, w->bpw_1000 % 10,
                     w->head_bits, w->rows, w->length, texts[w->text],
                     EXL2_VERSION / 10000u, EXL2_VERSION / 100u % 100u, EXL2_VERSION % 100u);
    }
    exl2__format(path, sizeof path, "%s/config.json", dir);
    result = exl2__write_open(w->c, w->dry ? NULL : path, &out);
    if (result >= 0) {
        exl2__convert_write_members(&j, own, &out);
        w->other_bytes += out.offset + out.used;
        result = exl2__write_close(&out);
    }
    exl2__json_close(w->c, &j);
    exl2__blob_close(w->c, &blob);
    return result;
}

/* Copies a file of the source, if it has one of this name. */
EXL2__PRIVATE exl2_result exl2__convert_write_copy(exl2__convert_write *w, const char *dir, const char *name)
{
    exl2__blob blob;
    exl2__write out;
    char path[EXL2__FILE_PATH_MAX];
    EXL2__TRY(exl2__file_read_optional(w->c, w->source_dir, name, (uint64_t)1 << 30, &blob));
    if (!blob.data) {
        return EXL2_OK;
    }
    exl2__format(path, sizeof path, "%s/%s", dir, name);
    exl2_result result = exl2__write_open(w->c, w->dry ? NULL : path, &out);
    if (result >= 0) {
        w->other_bytes += blob.bytes;
        exl2__write_raw(&out, blob.data, blob.bytes);
        result = exl2__write_close(&out);
    }
    exl2__blob_close(w->c, &blob);
    return result;
}

/* ---- reading back ---- */

EXL2__PRIVATE exl2_result exl2__convert_write_differs(exl2__convert_write *w, const char *name)
{
    return exl2__fail(w->c, EXL2_ERR_INTERNAL, "%s was read back with other values than were written", name);
}

/* Words that are read again, in chunks from `at` on. */
typedef struct exl2__convert_write_words {
    const exl2__tensors *t;
    const exl2__tensor *entry;
    uint32_t *read;
    const uint32_t *wanted;
    uint64_t at, bytes;
    bool differs[EXL2__TASKS_TRY_MAX];
} exl2__convert_write_words;

/* Part: one chunk. */
EXL2__PRIVATE exl2_result exl2__convert_write_check_words(exl2__ctx *c, void *arg, uint32_t index)
{
    exl2__convert_write_words *job = (exl2__convert_write_words *)arg;
    uint64_t at = job->at + index * EXL2__WORKDIR_CHUNK, bytes = exl2__min64(job->bytes - at, EXL2__WORKDIR_CHUNK);
    uint8_t *to = (uint8_t *)job->read + at;
    EXL2__TRY(exl2__tensors_read(c, job->t, job->entry, at, to, bytes));
    job->differs[index] = memcmp(to, (const uint8_t *)job->wanted + at, (size_t)bytes) != 0;
    return EXL2_OK;
}

/* Compares a matrix of the output with the codes in the work folder, after the loader's checks. */
EXL2__PRIVATE exl2_result exl2__convert_write_check_linear(exl2__convert_write *w, const exl2__tensors *t,
                                                           uint32_t index,
                                                           const exl2__linear_codes *codes, uint32_t *words)
{
    const exl2__linear *linear = &w->linears->items[index];
    exl2__matrix_desc desc = { 0 };
    exl2__matrix_tables tables = { 0 };
    EXL2__TRY(exl2__matrix_find(w->c, t, linear->name, linear->in, linear->out, &desc));
    EXL2__TRY(exl2__matrix_tables_open(w->c, t, 1.0f, &desc, &tables));
    uint64_t bytes = (uint64_t)codes->word_count * linear->columns * 4;
    bool same = desc.words == codes->word_count && desc.group_count == codes->group_count
             && memcmp(desc.groups, codes->groups, codes->group_count * sizeof *codes->groups) == 0
             && memcmp(desc.scale_codes, codes->scales, (size_t)codes->group_count * linear->columns / 2) == 0
             && memcmp(desc.inverse_perm, codes->inverse, linear->in * sizeof *codes->inverse) == 0;
    for (uint32_t g = 0; same && g < codes->group_count; g++) {
        same = desc.scale_max[g] == exl2__f32_to_f16(exl2__f16_to_f32(codes->scale_max[g]) * (1.0f / 256));
    }
    exl2_result result = EXL2_OK;
    exl2__convert_write_words job = { t, desc.data, words, codes->words, 0, bytes, { 0 } };
    for (uint32_t count; same && result >= 0 && job.at < bytes; job.at += count * EXL2__WORKDIR_CHUNK) {
        count = (uint32_t)exl2__min64(exl2__div_up(bytes - job.at, EXL2__WORKDIR_CHUNK), EXL2__TASKS_TRY_MAX);
        result = exl2__tasks_try(w->c, count, exl2__convert_write_check_words, &job);
        for (uint32_t i = 0; i < count; i++) {
            same = same && !job.differs[i];
        }
    }
    exl2__matrix_tables_close(w->c, &tables);
    return result < 0 ? result : same ? EXL2_OK : exl2__convert_write_differs(w, linear->name);
}

EXL2__PRIVATE exl2_result exl2__convert_write_check(exl2__convert_write *w, const char *dir)
{
    exl2__tensors t = { 0 };
    exl2__tensors_reader reader;
    exl2__work all = exl2__work_all();
    exl2__tensors_read_begin(&reader, w->c, dir, NULL, &t);
    exl2_result result = exl2__tensors_read_slice(&reader, &all);
    exl2__tensors_read_end(&reader);
    for (uint32_t i = 0; i < w->linears->count && result >= 0; i++) {
        exl2__arena dry = { 0 }, memory = { 0 };
        exl2__linear_codes codes, again;
        exl2__workdir_piece pieces[EXL2__SLOT_PIECES];
        char name[EXL2__FILE_NAME_MAX];
        bool found = false;
        exl2__linear_codes_layout(w->linears, &w->linears->items[i], &codes, &dry);
        exl2__linear_codes_layout(w->linears, &w->linears->items[i], &again, &dry);
        result = exl2__arena_open(w->c, &memory, dry.used, EXL2_MEM_SCRATCH);
        if (result < 0) {
            break;
        }
        exl2__linear_codes_layout(w->linears, &w->linears->items[i], &codes, &memory);
        exl2__linear_codes_layout(w->linears, &w->linears->items[i], &again, &memory);
        exl2__convert_write_codes_name(w->linears, i, name);
        uint32_t count = exl2__linear_codes_pieces(&w->linears->items[i], &codes, pieces);
        result = exl2__workdir_load(w->work, name, pieces, count, &found);
        result = result < 0 ? result : !found ? exl2__convert_write_differs(w, name)
               : exl2__convert_write_check_linear(w, &t, i, &codes, again.words);
        exl2__arena_close(w->c, &memory);
    }
    exl2__tensors_close(w->c, &t);
    return result;
}

/* ---- all ---- */

/* Room for the list of tensors: the source's, and up to six for each linear. */
static inline uint32_t exl2__convert_write_tensors_max(const exl2__convert_write *w)
{
    return w->source->load.tensors.count + 6 * w->linears->count;
}

/* Scratch of all tensors; with a dry arena this only measures. */
typedef struct exl2__convert_write_scratch {
    uint32_t *number, *decoded; /* [tensors of the source] */
    float *numbers;    /* [PIECE] */
    uint16_t *halves;  /* [PIECE] */
} exl2__convert_write_scratch;

EXL2__PRIVATE exl2__convert_write_scratch exl2__convert_write_layout(const exl2__convert_write *w, exl2__arena *a)
{
    exl2__convert_write_scratch s;
    s.number = (uint32_t *)exl2__arena_alloc(a, w->source->load.tensors.count * sizeof *s.number);
    s.decoded = (uint32_t *)exl2__arena_alloc(a, w->source->load.tensors.count * sizeof *s.decoded);
    s.numbers = (float *)exl2__arena_alloc(a, EXL2__CONVERT_WRITE_PIECE * sizeof *s.numbers);
    s.halves = (uint16_t *)exl2__arena_alloc(a, EXL2__CONVERT_WRITE_PIECE * sizeof *s.halves);
    return s;
}

/* Writes nothing. values: checks that all numbers that will be FP16 can be. bytes: NULL, or gets the size of the
   folder. */
EXL2__PRIVATE exl2_result exl2__convert_write_dry_run(exl2__convert_write *w, bool values, uint64_t *bytes,
                                                      exl2__convert_write_scratch *s)
{
    const exl2__tensors *t = &w->source->load.tensors;
    EXL2__TRY(exl2__convert_write_list(w, s->number));
    for (uint32_t i = 0; i < t->count && values; i++) {
        if (s->number[i] != UINT32_MAX) {
            EXL2__TRY(exl2__convert_write_tensor(w, &t->entries[i], s->number[i], s->numbers, s->halves));
        }
    }
    for (uint32_t i = 0; i < w->linears->count; i++) {
        exl2__convert_write_list_linear(w, &w->linears->items[i]);
        if (values) {
            EXL2__TRY(exl2__convert_write_bias(w, &w->linears->items[i], s->halves));
        }
    }
    if (bytes) {
        EXL2__TRY(exl2__shards_measure(&w->shards, bytes));
        EXL2__TRY(exl2__convert_write_config(w, ""));
        for (uint32_t i = 0; exl2__folder_copied[i]; i++) {
            EXL2__TRY(exl2__convert_write_copy(w, "", exl2__folder_copied[i]));
        }
        *bytes += w->other_bytes;
    }
    return EXL2_OK;
}

/* Makes the list of tensors, and writes them. dir NULL: a dry run. */
EXL2__PRIVATE exl2_result exl2__convert_write_run(exl2__convert_write *w, const char *dir, bool values, uint64_t *bytes)
{
    exl2__arena dry = { 0 }, memory;
    w->dry = !dir;
    w->bytes = w->other_bytes = 0;
    exl2__convert_write_layout(w, &dry);
    EXL2__TRY(exl2__shards_begin(w->c, &w->shards, "output", exl2__convert_write_tensors_max(w), w->shard_bytes));
    exl2_result result = exl2__arena_open(w->c, &memory, dry.used, EXL2_MEM_SCRATCH);
    if (result >= 0) {
        exl2__convert_write_scratch s = exl2__convert_write_layout(w, &memory);
        w->decoded = s.decoded;
        result = dir ? exl2__convert_write_tensors(w, dir, s.number, s.numbers, s.halves)
                     : exl2__convert_write_dry_run(w, values, bytes, &s);
        exl2__arena_close(w->c, &memory);
    }
    exl2__shards_close(&w->shards);
    return result;
}

/* See exl2__convert_write_dry_run. */
EXL2__PRIVATE exl2_result exl2__convert_write_dry(exl2__convert_write *w, bool values, uint64_t *bytes)
{
    return exl2__convert_write_run(w, NULL, values, bytes);
}

EXL2__PRIVATE exl2_result exl2__convert_write_all(exl2__convert_write *w, const char *dir)
{
    EXL2__TRY(exl2__convert_write_run(w, dir, false, NULL));
    EXL2__TRY(exl2__convert_write_config(w, dir));
    for (uint32_t i = 0; exl2__folder_copied[i]; i++) {
        EXL2__TRY(exl2__convert_write_copy(w, dir, exl2__folder_copied[i]));
    }
    return exl2__convert_write_check(w, dir);
}

#endif
