/* convert_source.h: the folder that a conversion reads. A GGUF file, a folder with FP8 weights, or one into which
   adapters are merged, first becomes a dense folder, which is kept in the work folder.
   takes: a path.
   gives: exl2__convert_source_identify, exl2__convert_source_check, exl2__convert_source_find,
          exl2__convert_source_outline, exl2__convert_source_make, exl2__convert_source_run;
          exl2__convert_source_copies; exl2__convert_source; exl2__convert_source_files.
   owns:  nothing in memory; the folders "source" and "source-outline" in the work folder.

   The dense folder is as large as the model in FP16, so all that can be checked is checked before it is written, on its
   outline: the same files, but those of tensors end after their headers.

   FP8: E4M3 numbers and, in a tensor of F32, F16 or BF16, their scales: one for all, or one for each block of
   128 x 128. Its name is that of the weight with _scale_inv or _scale (DeepSeek and compressed-tensors have different
   names for the same factor). The product is rounded to FP16.

   Matrices that adapters change are merged row by row in f32. They become F16 where the source has F16 or FP8, else
   F32, so that what a small adapter adds to BF16 is not lost. */
#ifndef EXL2__CONVERT_SOURCE_H
#define EXL2__CONVERT_SOURCE_H

#include "../gguf/import.h"
#include "convert_lora.h"
#include "convert_watch.h"
#include "convert_write.h"

#define EXL2__CONVERT_SOURCE_NAME "source" /* folders in the work folder */
#define EXL2__CONVERT_SOURCE_OUTLINE "source-outline"
#define EXL2__CONVERT_SOURCE_BLOCK 128u    /* side of a block of FP8 numbers with one scale */
#define EXL2__CONVERT_SOURCE_HASHED 65536u /* bytes that one task hashes; EXL2__TASKS_TRY_MAX of them are in memory */
#define EXL2__CONVERT_SOURCE_REPORT ((uint64_t)256 << 20) /* bytes between two reports of progress */

typedef enum exl2__convert_source_kind {
    EXL2__CONVERT_SOURCE_FOLDER, EXL2__CONVERT_SOURCE_GGUF, EXL2__CONVERT_SOURCE_FP8
} exl2__convert_source_kind;

typedef struct exl2__convert_source {
    exl2__convert_source_kind kind;
    uint64_t weights; /* a hash of all bytes of the files with tensors, and of those that say what they mean */
    uint64_t text;    /* the same of the files that text depends on: the tokenizer, the chat template */
    bool merges;      /* adapters are merged into it; `weights` depends on them and on their scales, too */
} exl2__convert_source;

/* Whether a dense folder is made of it. */
static inline bool exl2__convert_source_copies(const exl2__convert_source *s)
{
    return s->kind != EXL2__CONVERT_SOURCE_FOLDER || s->merges;
}

/* ---- what it is ---- */

EXL2__PRIVATE exl2_result exl2__convert_source_tensors(exl2__ctx *c, const char *dir, exl2__tensors *t)
{
    exl2__tensors_reader reader;
    exl2__work all = exl2__work_all();
    exl2__tensors_read_begin(&reader, c, dir, NULL, t);
    exl2_result result = exl2__tensors_read_slice(&reader, &all);
    exl2__tensors_read_end(&reader);
    return result;
}

/* Chunks of a file that are read and hashed together. */
typedef struct exl2__convert_source_chunks {
    const char *name;
    void *file;
    uint8_t *data;      /* [EXL2__TASKS_TRY_MAX * EXL2__CONVERT_SOURCE_HASHED] */
    uint64_t at, bytes; /* the first of them in the file; the file's size */
    uint64_t hash[EXL2__TASKS_TRY_MAX];
    exl2__convert_watch_file *watched; /* gets the hashes of the file's blocks; NULL: they are known */
} exl2__convert_source_chunks;

/* Part: one chunk. */
EXL2__PRIVATE exl2_result exl2__convert_source_chunk(exl2__ctx *c, void *arg, uint32_t index)
{
    exl2__convert_source_chunks *k = (exl2__convert_source_chunks *)arg;
    uint64_t first = (uint64_t)index * EXL2__CONVERT_SOURCE_HASHED, at = k->at + first;
    uint64_t bytes = exl2__min64(k->bytes - at, EXL2__CONVERT_SOURCE_HASHED);
    EXL2__TRY(exl2__file_read_at(c, k->name, k->file, at, k->data + first, bytes));
    k->hash[index] = exl2__workdir_hash(EXL2__WORKDIR_HASH, k->data + first, bytes);
    if (k->watched) {
        exl2__convert_watch_fill(k->watched, at, k->data + first, bytes);
    }
    return EXL2_OK;
}

/* Reports progress of reading the source to the application, once for many bytes. */
EXL2__PRIVATE exl2_result exl2__convert_source_report(exl2__ctx *c, const exl2_convert_desc *d, uint64_t at,
                                                      uint64_t bytes)
{
    if (at == 0 || at % EXL2__CONVERT_SOURCE_REPORT != 0 || !d->progress) {
        return EXL2_OK;
    }
    return d->progress(d->user, "load", (float)((double)at / (double)bytes)) ? EXL2_OK
        : exl2__fail(c, EXL2_ERR_CANCELLED, "the conversion of %s was cancelled", d->source_dir);
}

/* Continues a hash with all bytes of a file. */
EXL2__PRIVATE exl2_result exl2__convert_source_hash_chunks(exl2__ctx *c, const exl2_convert_desc *d,
                                                           exl2__convert_source_chunks *k, uint64_t *hash)
{
    const uint64_t most = (uint64_t)EXL2__TASKS_TRY_MAX * EXL2__CONVERT_SOURCE_HASHED;
    void *memory;
    uint64_t room = exl2__min64(k->bytes, most);
    EXL2__TRY(exl2__alloc(c, room, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    k->data = (uint8_t *)memory;
    exl2_result result = EXL2_OK;
    for (k->at = 0; k->at < k->bytes && result >= 0; k->at += most) {
        uint64_t some = exl2__min64(k->bytes - k->at, most);
        uint32_t count = (uint32_t)exl2__div_up(some, EXL2__CONVERT_SOURCE_HASHED);
        result = exl2__convert_source_report(c, d, k->at, k->bytes);
        result = result < 0 ? result : exl2__tasks_try(c, count, exl2__convert_source_chunk, k);
        *hash = exl2__workdir_hash(*hash, k->hash, count * sizeof *k->hash);
    }
    exl2__free(c, memory, room, EXL2_MEM_SCRATCH);
    return result;
}

/* Adds a hash of a file's name, size and bytes to a sum: folders list their files in any order. A file that does not
   exist adds nothing. watch: gets the file; NULL: no one does. */
EXL2__PRIVATE exl2_result exl2__convert_source_add_path(exl2__ctx *c, const exl2_convert_desc *d, const char *path,
                                                        exl2__convert_watch *watch, uint64_t *sum)
{
    const char *name = exl2__folder_name(path);
    exl2__convert_source_chunks k = { .name = name };
    k.file = c->files.open(c->files.user, path, &k.bytes);
    if (!k.file) {
        return EXL2_OK;
    }
    uint64_t hash = exl2__workdir_hash(exl2__workdir_hash(EXL2__WORKDIR_HASH, name, strlen(name)), &k.bytes,
                                       sizeof k.bytes);
    exl2_result result = watch ? exl2__convert_watch_add(c, watch, path, k.bytes, &k.watched) : EXL2_OK;
    result = result < 0 ? result : exl2__convert_source_hash_chunks(c, d, &k, &hash);
    c->files.close(c->files.user, k.file);
    *sum += hash;
    return result;
}

/* The same for a file of the source's folder. */
EXL2__PRIVATE exl2_result exl2__convert_source_add_file(exl2__ctx *c, const exl2_convert_desc *d, const char *dir,
                                                        const char *name, exl2__convert_watch *watch, uint64_t *sum)
{
    char path[EXL2__FILE_PATH_MAX];
    if (exl2__format(path, sizeof path, "%s/%s", dir, name) != strlen(dir) + 1 + strlen(name)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the path of %s is longer than %d bytes: %s", name, EXL2__FILE_PATH_MAX - 1,
                          dir);
    }
    return exl2__convert_source_add_path(c, d, path, watch, sum);
}

/* Fills in the hashes of a folder. Notices and licenses are copied at the end and change nothing else: a new one does
   not make a conversion another one. */
EXL2__PRIVATE exl2_result exl2__convert_source_hash_folder(exl2__ctx *c, const exl2_convert_desc *d,
                                                           exl2__convert_watch *watch, exl2__convert_source *out)
{
    static const char *const notices[] = { "LICENSE", "LICENSE.txt", "NOTICE", "README.md" };
    char name[EXL2__FILE_NAME_MAX];
    EXL2__TRY(exl2__convert_source_add_file(c, d, d->source_dir, "config.json", watch, &out->weights));
    EXL2__TRY(exl2__convert_source_add_file(c, d, d->source_dir, "quantize_config.json", watch, &out->weights));
    for (uint32_t i = 0; c->files.list(c->files.user, d->source_dir, i, name, sizeof name); i++) {
        if (exl2__tensor_files_is_safetensors(name)) {
            EXL2__TRY(exl2__convert_source_add_file(c, d, d->source_dir, name, watch, &out->weights));
        }
    }
    for (uint32_t i = 0; exl2__folder_copied[i]; i++) {
        bool notice = false;
        for (size_t k = 0; k < EXL2__COUNT(notices); k++) {
            notice = notice || strcmp(exl2__folder_copied[i], notices[k]) == 0;
        }
        if (!notice) {
            EXL2__TRY(exl2__convert_source_add_file(c, d, d->source_dir, exl2__folder_copied[i], watch, &out->text));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE bool exl2__convert_source_is_gguf(const char *path)
{
    size_t bytes = strlen(path);
    return bytes > 5 && strcmp(path + bytes - 5, ".gguf") == 0;
}

/* Fills in the hash of a GGUF file, or of all files of a model that is split. */
EXL2__PRIVATE exl2_result exl2__convert_source_hash_gguf(exl2__ctx *c, const exl2_convert_desc *d,
                                                         exl2__convert_watch *watch, exl2__convert_source *out)
{
    exl2__gguf g;
    exl2_result result = exl2__gguf_split_open(c, d->source_dir, &g);
    for (uint32_t i = 0; i < (g.parts ? g.part_count : 1) && result >= 0; i++) {
        const char *path = g.parts ? g.parts[i].path : d->source_dir;
        result = exl2__convert_source_add_path(c, d, path, watch, &out->weights);
    }
    exl2__gguf_close(&g);
    return result;
}

/* Adds the adapters, in their order, with their scales. */
EXL2__PRIVATE exl2_result exl2__convert_source_hash_loras(exl2__ctx *c, const exl2_convert_desc *d,
                                                          exl2__convert_watch *watch, exl2__convert_source *out)
{
    for (uint32_t i = 0; i < d->lora_count; i++) {
        double scale = exl2__convert_loras_scale(&d->loras[i]);
        uint64_t files = 0;
        if (!(scale < 0 || scale > 0)) {
            continue;
        }
        out->merges = true;
        EXL2__TRY(exl2__convert_source_add_file(c, d, d->loras[i].folder, "adapter_config.json", watch, &files));
        EXL2__TRY(exl2__convert_source_add_file(c, d, d->loras[i].folder, EXL2__LORA_FILE, watch, &files));
        out->weights = exl2__workdir_hash(out->weights, &files, sizeof files);
        out->weights = exl2__workdir_hash(out->weights, &scale, sizeof scale);
    }
    return EXL2_OK;
}

/* What a source is without its adapters. */
EXL2__PRIVATE exl2_result exl2__convert_source_identify_plain(exl2__ctx *c, const exl2_convert_desc *d,
                                                              exl2__convert_watch *watch, exl2__convert_source *out)
{
    exl2__tensors t = { 0 };
    exl2__blob config;
    *out = (exl2__convert_source){ EXL2__CONVERT_SOURCE_FOLDER, 0, 0, false };
    if (exl2__convert_source_is_gguf(d->source_dir)) {
        out->kind = EXL2__CONVERT_SOURCE_GGUF;
        return exl2__convert_source_hash_gguf(c, d, watch, out);
    }
    EXL2__TRY(exl2__file_read_all(c, d->source_dir, "config.json", EXL2__CONVERT_WRITE_JSON_MAX, &config));
    exl2__blob_close(c, &config);
    exl2_result result = exl2__convert_source_tensors(c, d->source_dir, &t);
    for (uint32_t i = 0; i < t.count && result >= 0; i++) {
        out->kind = t.entries[i].type == EXL2__TENSOR_F8_E4M3 ? EXL2__CONVERT_SOURCE_FP8 : out->kind;
    }
    exl2__tensors_close(c, &t);
    return result < 0 ? result : exl2__convert_source_hash_folder(c, d, watch, out);
}

/* Finds out what a source is, and hashes it: all bytes are read. Headers are checked before. watch: gets the files;
   NULL: no one does. */
EXL2__PRIVATE exl2_result exl2__convert_source_identify(exl2__ctx *c, const exl2_convert_desc *d,
                                                        exl2__convert_watch *watch, exl2__convert_source *out)
{
    EXL2__TRY(exl2__convert_source_identify_plain(c, d, watch, out));
    return exl2__convert_source_hash_loras(c, d, watch, out);
}

EXL2__PRIVATE exl2_result exl2__convert_source_changed(exl2__ctx *c, const exl2_convert_desc *d)
{
    return exl2__fail(c, EXL2_ERR_STATE, "%s has changed while it was converted; convert it again", d->source_dir);
}

/* Fails if the source is not what was identified, or was not when some of it was read. */
EXL2__PRIVATE exl2_result exl2__convert_source_check(exl2__ctx *c, const exl2_convert_desc *d,
                                                     const exl2__convert_source *before, exl2__convert_watch *watch)
{
    exl2__convert_source now;
    EXL2__TRY(exl2__convert_source_identify(c, d, NULL, &now));
    if (now.weights != before->weights || now.text != before->text) {
        exl2__atomic_store(&watch->changed, 1);
    }
    return exl2__convert_watch_changed(watch) ? exl2__convert_source_changed(c, d) : EXL2_OK;
}

/* ---- FP8 ---- */

/* E4M3: a sign, 4 bits of exponent with the bias 7, 3 bits of mantissa; 0x7F and 0xFF are NaN, there is no infinity. */
static inline float exl2__convert_source_e4m3(uint8_t code)
{
    uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    float size = exponent ? exl2__bits_float((exponent + 120) << 23 | mantissa << 20) : (float)mantissa / 512;
    size = (code & 0x7F) == 0x7F ? exl2__bits_float(0x7FC00000) : size;
    return code & 0x80 ? -size : size;
}

/* The scales of an FP8 tensor. */
typedef struct exl2__convert_source_scales {
    float *values; /* [rows, columns]; one for the whole tensor if rows is 0 */
    uint32_t rows, columns;
    uint64_t bytes;
} exl2__convert_source_scales;

EXL2__PRIVATE exl2_result exl2__convert_source_find_scales(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
                                                           exl2__convert_source_scales *out)
{
    char name[EXL2__SHARDS_NAME_MAX + 16];
    void *memory;
    *out = (exl2__convert_source_scales){ 0 };
    exl2__format(name, sizeof name, "%s_scale_inv", e->name);
    const exl2__tensor *scale = exl2__tensors_find(t, name);
    exl2__format(name, sizeof name, "%s_scale", e->name);
    scale = scale ? scale : exl2__tensors_find(t, name);
    if (!scale || !exl2__tensor_is_float(scale)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s is FP8, but there is no %s_inv or %s of F32, F16 or BF16", e->name,
                          name, name);
    }
    uint64_t rows = exl2__div_up(e->dims[0], EXL2__CONVERT_SOURCE_BLOCK);
    uint64_t columns = exl2__div_up(e->dims[1], EXL2__CONVERT_SOURCE_BLOCK);
    uint64_t count = scale->dims[0] * scale->dims[1] * scale->dims[2];
    bool blocks = scale->rank == 2 && scale->dims[0] == rows && scale->dims[1] == columns;
    if (e->rank != 2 || (!blocks && count != 1)) {
        return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s is FP8 [%llu, %llu] of rank %u with %llu scales; expected a "
                          "matrix with one, or with one for each block of 128 x 128", e->name,
                          (unsigned long long)e->dims[0], (unsigned long long)e->dims[1], e->rank,
                          (unsigned long long)count);
    }
    out->bytes = count * sizeof(float);
    EXL2__TRY(exl2__alloc(c, out->bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &memory));
    out->values = (float *)memory;
    out->rows = blocks ? (uint32_t)rows : 0;
    out->columns = (uint32_t)columns;
    EXL2__TRY(exl2__tensor_floats_range(c, t, scale, 0, (uint32_t)count, out->values));
    for (uint64_t i = 0; i < count; i++) {
        if (!exl2__float_is_finite(out->values[i])) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s has a scale that is not finite", e->name);
        }
    }
    return EXL2_OK;
}

/* Writes one FP8 tensor as FP16. codes [columns], halves [columns]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_source_decode(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
                                                      const exl2__convert_source_scales *scales, exl2__shards *shards,
                                                      uint32_t number, uint8_t *codes, uint16_t *halves)
{
    uint64_t columns = e->dims[1];
    for (uint64_t row = 0; row < e->dims[0]; row++) {
        EXL2__TRY(exl2__tensors_read(c, t, e, row * columns, codes, columns));
        const float *scale = scales->values + (scales->rows ? row / EXL2__CONVERT_SOURCE_BLOCK * scales->columns : 0);
        for (uint64_t i = 0; i < columns; i++) {
            float factor = scale[scales->rows ? i / EXL2__CONVERT_SOURCE_BLOCK : 0];
            halves[i] = exl2__f32_to_f16(exl2__convert_source_e4m3(codes[i]) * factor);
            if ((halves[i] & 0x7C00) == 0x7C00) {
                return exl2__fail(c, EXL2_ERR_FORMAT, "%s has a weight (output %llu, input %llu) that is not finite, "
                                  "or larger than 65504", e->name, (unsigned long long)row, (unsigned long long)i);
            }
        }
        EXL2__TRY(exl2__shards_write(shards, number, row * columns * 2, halves, columns * 2));
    }
    return EXL2_OK;
}

/* Is the tensor written to the dense folder? Scales are not, nor are tensors that are not floats. */
EXL2__PRIVATE bool exl2__convert_source_is_kept(const exl2__tensors *t, const exl2__tensor *e)
{
    static const char *const tails[] = { "_scale_inv", "_scale" };
    char name[EXL2__SHARDS_NAME_MAX];
    size_t bytes = strlen(e->name);
    for (size_t i = 0; i < EXL2__COUNT(tails); i++) {
        size_t tail = strlen(tails[i]);
        if (bytes > tail && bytes - tail < sizeof name && strcmp(e->name + bytes - tail, tails[i]) == 0) {
            memcpy(name, e->name, bytes - tail);
            name[bytes - tail] = 0;
            const exl2__tensor *weight = exl2__tensors_find(t, name);
            if (weight && weight->type == EXL2__TENSOR_F8_E4M3) {
                return false;
            }
        }
    }
    return exl2__tensor_is_float(e) || e->type == EXL2__TENSOR_F8_E4M3;
}

/* The type of a matrix after the merge. */
static inline exl2__tensor_type exl2__convert_source_merged(const exl2__tensor *e)
{
    bool half = e->type == EXL2__TENSOR_F16 || e->type == EXL2__TENSOR_F8_E4M3;
    return half ? EXL2__TENSOR_F16 : EXL2__TENSOR_F32;
}

/* Fails for a source that is quantized in another way than FP8, if adapters are to be merged. */
EXL2__PRIVATE exl2_result exl2__convert_source_check_dense(exl2__ctx *c, const exl2__convert_loras *loras,
                                                           const exl2__tensor *e)
{
    static const char *const ends[] = { ".qweight", ".q_weight" };
    size_t bytes = strlen(e->name);
    for (size_t i = 0; i < EXL2__COUNT(ends) && loras->count; i++) {
        size_t end = strlen(ends[i]);
        if (bytes > end && strcmp(e->name + bytes - end, ends[i]) == 0) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "adapters are merged into dense, FP8 or GGUF models, but '%s' "
                              "is EXL2, GPTQ or AWQ: rounding it twice would hide the adapter", e->name);
        }
    }
    return EXL2_OK;
}

/* Lists the tensors: FP8 as FP16, those that adapters change, all others as they are. Checks the scales of FP8, and
   that every adapter's tensors are used. */
EXL2__PRIVATE exl2_result exl2__convert_source_list(exl2__ctx *c, const exl2__tensors *t,
                                                    const exl2__convert_loras *loras, exl2__shards *shards)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        bool fp8 = e->type == EXL2__TENSOR_F8_E4M3, merged;
        EXL2__TRY(exl2__convert_source_check_dense(c, loras, e));
        if (!exl2__convert_source_is_kept(t, e)) {
            continue;
        }
        EXL2__TRY(exl2__convert_loras_find(loras, e, &merged));
        if (!exl2__shards_fits(e) || (fp8 && e->dims[1] > EXL2__CONVERT_WRITE_PIECE)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "the tensor '%s' has too long a name, too many dimensions, or "
                              "too many columns", e->name);
        }
        if (!fp8 && !merged) {
            exl2__shards_add_copy(shards, e);
        } else if (!fp8) {
            exl2__shards_add(shards, e->name, "", exl2__convert_source_merged(e), e->rank, e->dims[0], e->dims[1]);
        } else {
            exl2__convert_source_scales scales;
            exl2__shards_add(shards, e->name, "", EXL2__TENSOR_F16, e->rank, e->dims[0], e->dims[1]);
            exl2_result result = exl2__convert_source_find_scales(c, t, e, &scales);
            exl2__free(c, scales.values, scales.bytes, EXL2_MEM_SCRATCH);
            EXL2__TRY(result);
        }
    }
    return exl2__convert_loras_check_used(loras);
}

/* Reads row `index` of a matrix as f32. codes [columns]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_source_row(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
                                                   const exl2__convert_source_scales *scales, uint32_t index,
                                                   uint8_t *codes, float *row)
{
    uint32_t columns = (uint32_t)e->dims[1];
    if (e->type != EXL2__TENSOR_F8_E4M3) {
        return exl2__tensor_floats_range(c, t, e, (uint64_t)index * columns, columns, row);
    }
    const float *scale = scales->values + (scales->rows ? index / EXL2__CONVERT_SOURCE_BLOCK * scales->columns : 0);
    EXL2__TRY(exl2__tensors_read(c, t, e, (uint64_t)index * columns, codes, columns));
    for (uint32_t i = 0; i < columns; i++) {
        row[i] = exl2__convert_source_e4m3(codes[i]) * scale[scales->rows ? i / EXL2__CONVERT_SOURCE_BLOCK : 0];
    }
    return EXL2_OK;
}

/* Writes row `index` of a merged matrix. */
EXL2__PRIVATE exl2_result exl2__convert_source_put_row(exl2__ctx *c, const exl2__tensor *e, exl2__shards *shards,
                                                       uint32_t number, uint32_t index, exl2__convert_merge *m)
{
    uint64_t columns = e->dims[1];
    bool half = exl2__convert_source_merged(e) == EXL2__TENSOR_F16;
    for (uint64_t i = 0; i < columns; i++) {
        m->halves[i] = exl2__f32_to_f16(m->row[i]);
        if (!exl2__float_is_finite(m->row[i]) || (half && (m->halves[i] & 0x7C00) == 0x7C00)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s with its adapters has a weight (row %u, column %llu) that is not "
                              "finite%s", e->name, index, (unsigned long long)i, half ? ", or larger than 65504" : "");
        }
    }
    return half ? exl2__shards_write(shards, number, index * columns * 2, m->halves, columns * 2)
                : exl2__shards_write(shards, number, index * columns * 4, m->row, columns * 4);
}

/* Merges the adapters into a matrix, and writes it. */
EXL2__PRIVATE exl2_result exl2__convert_source_merge(exl2__ctx *c, const exl2__tensors *t,
                                                     const exl2__convert_loras *loras, const exl2__tensor *e,
                                                     exl2__shards *shards, uint32_t number)
{
    exl2__convert_source_scales scales = { 0 };
    exl2__convert_merge m;
    bool fp8 = e->type == EXL2__TENSOR_F8_E4M3;
    exl2_result result = exl2__convert_merge_begin(loras, e, &m);
    result = result < 0 || !fp8 ? result : exl2__convert_source_find_scales(c, t, e, &scales);
    uint32_t measured = result < 0 || exl2__convert_merge_passes(&m) == 1 ? 0 : (uint32_t)e->dims[0];
    for (uint32_t row = 0; row < measured && result >= 0; row++) {
        result = exl2__convert_source_row(c, t, e, &scales, row, m.codes, m.row);
        if (result >= 0) {
            exl2__convert_merge_measure(&m, row);
        }
    }
    for (uint32_t row = 0; row < e->dims[0] && result >= 0; row++) {
        result = exl2__convert_source_row(c, t, e, &scales, row, m.codes, m.row);
        if (result >= 0) {
            exl2__convert_merge_row(&m, row);
            result = exl2__convert_source_put_row(c, e, shards, number, row, &m);
        }
    }
    exl2__free(c, scales.values, scales.bytes, EXL2_MEM_SCRATCH);
    exl2__convert_merge_end(c, &m);
    return result;
}

/* Writes the listed tensors. numbers [PIECE]: scratch. */
EXL2__PRIVATE exl2_result exl2__convert_source_write(exl2__ctx *c, const exl2__tensors *t,
                                                     const exl2__convert_loras *loras, exl2__shards *shards,
                                                     const char *dir, float *numbers)
{
    EXL2__TRY(exl2__shards_open(shards, dir));
    for (uint32_t i = 0, number = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        bool merged;
        if (!exl2__convert_source_is_kept(t, e)) {
            continue;
        }
        EXL2__TRY(exl2__convert_loras_find(loras, e, &merged));
        if (merged) {
            EXL2__TRY(exl2__convert_source_merge(c, t, loras, e, shards, number));
        } else if (e->type == EXL2__TENSOR_F8_E4M3) {
            exl2__convert_source_scales scales;
            uint8_t *codes = (uint8_t *)(numbers + EXL2__CONVERT_WRITE_PIECE / 2);
            exl2_result result = exl2__convert_source_find_scales(c, t, e, &scales);
            result = result < 0 ? result : exl2__convert_source_decode(c, t, e, &scales, shards, number, codes,
                                                                       (uint16_t *)numbers);
            exl2__free(c, scales.values, scales.bytes, EXL2_MEM_SCRATCH);
            EXL2__TRY(result);
        } else {
            EXL2__TRY(exl2__convert_write_raw(c, t, e, shards, number, numbers));
        }
        number++;
    }
    return exl2__shards_finish(shards);
}

/* config.json without a quantization_config, and the files of the tokenizer. */
EXL2__PRIVATE exl2_result exl2__convert_source_others(exl2__convert_write *w, const char *dir)
{
    w->dense = true;
    EXL2__TRY(exl2__convert_write_config(w, dir));
    for (uint32_t i = 0; exl2__folder_copied[i]; i++) {
        EXL2__TRY(exl2__convert_write_copy(w, dir, exl2__folder_copied[i]));
    }
    return EXL2_OK;
}

/* Copies a folder with FP8 weights, or one that adapters are merged into, to a dense folder. outline: NULL, or only
   headers are written of the files of tensors, and it gets their size. */
EXL2__PRIVATE exl2_result exl2__convert_source_dense(exl2__ctx *c, const exl2_convert_desc *d, const char *path,
                                                     const char *out, uint64_t *outline)
{
    exl2__convert_write w = { .c = c, .source_dir = path };
    exl2__folder folder = { { 0 }, { 0 }, { 0 }, NULL };
    exl2__tensors t = { 0 };
    exl2__shards shards = { 0 };
    exl2__convert_loras loras;
    void *numbers = NULL;
    uint64_t bytes = EXL2__CONVERT_WRITE_PIECE * sizeof(float);
    exl2_result result = exl2__convert_loras_open(c, d, path, &loras);
    result = result < 0 ? result : exl2__convert_source_tensors(c, path, &t);
    result = result < 0 ? result : exl2__shards_begin(c, &shards, "model", t.count, EXL2__SHARDS_BYTES);
    result = result < 0 ? result : exl2__convert_source_list(c, &t, &loras, &shards);
    result = result < 0 ? result : exl2__folder_begin(c, &folder, out);
    if (outline) {
        result = result < 0 ? result : exl2__shards_outline(&shards, folder.work_path, outline);
    } else {
        result = result < 0 ? result : exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &numbers);
        result = result < 0 ? result : exl2__convert_source_write(c, &t, &loras, &shards, folder.work_path,
                                                                  (float *)numbers);
        exl2__free(c, numbers, numbers ? bytes : 0, EXL2_MEM_SCRATCH);
    }
    exl2__shards_close(&shards);
    exl2__tensors_close(c, &t);
    exl2__convert_loras_close(&loras);
    result = result < 0 ? result : exl2__convert_source_others(&w, folder.work_path);
    result = result < 0 ? result : exl2__folder_commit(c, &folder);
    exl2__folder_abandon(&folder);
    return result;
}

/* ---- the outline ---- */

/* Files of a folder whose tensors have no data yet: they seem to be as large as a file can be, and hold zeros. */
typedef struct exl2__convert_source_files {
    exl2_files under;
} exl2__convert_source_files;

EXL2__PRIVATE void *exl2__convert_source_files_open(void *user, const char *path, uint64_t *bytes)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    void *file = under->open(under->user, path, bytes);
    size_t length = strlen(path), end = strlen(".safetensors");
    if (file && length > end && strcmp(path + length - end, ".safetensors") == 0) {
        *bytes = INT64_MAX;
    }
    return file;
}

EXL2__PRIVATE bool exl2__convert_source_files_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    return under->list(under->user, dir, index, name, cap);
}

EXL2__PRIVATE int64_t exl2__convert_source_files_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    int64_t got = under->read(under->user, file, offset, dst, bytes);
    if (got < 0) {
        return got;
    }
    memset((uint8_t *)dst + got, 0, bytes - (size_t)got);
    return (int64_t)bytes;
}

EXL2__PRIVATE void exl2__convert_source_files_close(void *user, void *file)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    under->close(under->user, file);
}

/* The hook of an outline, over files->under. */
EXL2__PRIVATE exl2_files exl2__convert_source_files_of(exl2__convert_source_files *files)
{
    return (exl2_files){ exl2__convert_source_files_open, exl2__convert_source_files_list,
                         exl2__convert_source_files_read, exl2__convert_source_files_close, files };
}

/* ---- the dense folder ---- */

/* Fills in the folder to read. false: it must be made first. One that an earlier run has made in the work folder is
   complete. */
EXL2__PRIVATE bool exl2__convert_source_find(const exl2_convert_desc *d, const exl2__convert_source *source,
                                             const exl2__workdir *work, char dir[EXL2__FILE_PATH_MAX])
{
    char name[EXL2__FILE_NAME_MAX];
    if (!exl2__convert_source_copies(source)) {
        exl2__format(dir, EXL2__FILE_PATH_MAX, "%s", d->source_dir);
        return true;
    }
    exl2__workdir_path(work, EXL2__CONVERT_SOURCE_NAME, "", dir);
    return exl2__platform_entry(dir, 0, name, sizeof name);
}

EXL2__PRIVATE bool exl2__convert_source_progress(void *user, float done, const char *what)
{
    const exl2_convert_desc *d = (const exl2_convert_desc *)user;
    (void)what;
    return !d->progress || d->progress(d->user, "import", done);
}

/* Imports the GGUF file into the folder `dir`. outline: as above. */
EXL2__PRIVATE exl2_result exl2__convert_source_import(exl2__ctx *c, const exl2_convert_desc *d, const char *dir,
                                                      uint64_t *outline)
{
    exl2_import_desc import = { 0 };
    import.gguf_path = d->source_dir;
    import.out_dir = dir;
    import.bits = EXL2__IMPORT_DENSE_BITS;
    import.parallel = c->parallel;
    import.progress = exl2__convert_source_progress;
    import.user = (void *)(uintptr_t)d; /* only read */
    return outline ? exl2__import_outline(c, &import, outline) : exl2__import_gguf(c, &import);
}

/* Makes the folder `dir`. outline: as above; of a GGUF file it is that without adapters, which is as large. */
EXL2__PRIVATE exl2_result exl2__convert_source_run(exl2__ctx *c, const exl2_convert_desc *d,
                                                   const exl2__convert_source *source, const char *dir,
                                                   uint64_t *outline)
{
    char plain[EXL2__FILE_PATH_MAX];
    if (source->kind != EXL2__CONVERT_SOURCE_GGUF) {
        return exl2__convert_source_dense(c, d, d->source_dir, dir, outline);
    }
    if (outline || !source->merges) {
        return exl2__convert_source_import(c, d, dir, outline);
    }
    if (exl2__format(plain, sizeof plain, "%s.unmerged", dir) >= sizeof plain) {
        return exl2__fail(c, EXL2_ERR_ARG, "the path %s is too long", dir);
    }
    exl2__folder_remove(plain); /* of a killed run */
    exl2_result result = exl2__convert_source_import(c, d, plain, NULL);
    result = result < 0 ? result : exl2__convert_source_dense(c, d, plain, dir, NULL);
    exl2__folder_remove(plain);
    return result;
}

/* Makes the outline, after that of a killed run was removed. *bytes: of the dense folder's tensors. */
EXL2__PRIVATE exl2_result exl2__convert_source_outline(exl2__ctx *c, const exl2_convert_desc *d,
                                                       const exl2__convert_source *source, const exl2__workdir *work,
                                                       char dir[EXL2__FILE_PATH_MAX], uint64_t *bytes)
{
    exl2__workdir_path(work, EXL2__CONVERT_SOURCE_OUTLINE, "", dir);
    exl2__folder_remove(dir);
    return exl2__convert_source_run(c, d, source, dir, bytes);
}

EXL2__PRIVATE exl2_result exl2__convert_source_make(exl2__ctx *c, const exl2_convert_desc *d,
                                                    const exl2__convert_source *source, const exl2__workdir *work,
                                                    char dir[EXL2__FILE_PATH_MAX])
{
    exl2__workdir_path(work, EXL2__CONVERT_SOURCE_NAME, "", dir);
    return exl2__convert_source_run(c, d, source, dir, NULL);
}

#endif
