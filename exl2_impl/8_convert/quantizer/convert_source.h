/* convert_source.h: the folder that a conversion reads. A GGUF file, or a folder with FP8 weights, first becomes a
   dense folder, which is kept in the work folder.
   takes: a path.
   gives: exl2__convert_source_identify, exl2__convert_source_find, exl2__convert_source_outline,
          exl2__convert_source_make; exl2__convert_source; exl2__convert_source_files.
   owns:  nothing in memory; the folders "source" and "source-outline" in the work folder.

   The dense folder is as large as the model in FP16, so all that can be checked is checked before it is written, on its
   outline: the same files, but those of tensors end after their headers.

   FP8: E4M3 numbers and, in a tensor of F32, F16 or BF16, their scales: one for all, or one for each block of
   128 x 128. Its name is that of the weight with _scale_inv or _scale (DeepSeek and compressed-tensors have different
   names for the same factor). The product is rounded to FP16. */
#ifndef EXL2__CONVERT_SOURCE_H
#define EXL2__CONVERT_SOURCE_H

#include "../gguf/import.h"
#include "convert_write.h"

#define EXL2__CONVERT_SOURCE_NAME "source" /* folders in the work folder */
#define EXL2__CONVERT_SOURCE_OUTLINE "source-outline"
#define EXL2__CONVERT_SOURCE_BLOCK 128u    /* side of a block of FP8 numbers with one scale */

typedef enum exl2__convert_source_kind {
    EXL2__CONVERT_SOURCE_FOLDER, EXL2__CONVERT_SOURCE_GGUF, EXL2__CONVERT_SOURCE_FP8
} exl2__convert_source_kind;

typedef struct exl2__convert_source {
    exl2__convert_source_kind kind;
    uint64_t hash; /* of what the files' headers say, and of config.json */
} exl2__convert_source;

/* ---- what it is ---- */

static exl2_result exl2__convert_source_tensors(exl2__ctx *c, const char *dir, exl2__tensors *t)
{
    exl2__tensors_reader reader;
    exl2__work all = exl2__work_all();
    exl2__tensors_read_begin(&reader, c, dir, NULL, t);
    exl2_result result = exl2__tensors_read_some(&reader, &all);
    exl2__tensors_read_end(&reader);
    return result;
}

static uint64_t exl2__convert_source_hash_tensor(uint64_t hash, const char *name, size_t bytes,
                                                 const uint64_t *place, uint32_t count)
{
    return exl2__keep_hash(exl2__keep_hash(hash, name, bytes), place, count * sizeof *place);
}

static exl2_result exl2__convert_source_identify_gguf(exl2__ctx *c, const char *path, exl2__convert_source *out)
{
    exl2__gguf g;
    EXL2__TRY(exl2__gguf_split_open(c, path, &g));
    out->kind = EXL2__CONVERT_SOURCE_GGUF;
    for (uint32_t i = 0; i < g.tensor_count; i++) {
        const exl2__gguf_tensor *t = &g.tensors[i];
        uint64_t place[] = { t->offset, t->bytes, t->dims[0] };
        out->hash = exl2__convert_source_hash_tensor(out->hash, t->name.data, t->name.bytes, place, 3);
    }
    exl2__gguf_close(&g);
    return EXL2_OK;
}

/* Finds out what a source is, from headers alone. */
static exl2_result exl2__convert_source_identify(exl2__ctx *c, const char *path, exl2__convert_source *out)
{
    size_t bytes = strlen(path);
    exl2__tensors t = { 0 };
    exl2__blob config;
    *out = (exl2__convert_source){ EXL2__CONVERT_SOURCE_FOLDER, 0xCBF29CE484222325u };
    if (bytes > 5 && strcmp(path + bytes - 5, ".gguf") == 0) {
        return exl2__convert_source_identify_gguf(c, path, out);
    }
    EXL2__TRY(exl2__file_read_all(c, path, "config.json", EXL2__CONVERT_WRITE_JSON_MAX, &config));
    out->hash = exl2__keep_hash(out->hash, config.data, config.bytes);
    exl2__blob_close(c, &config);
    exl2_result result = exl2__convert_source_tensors(c, path, &t);
    for (uint32_t i = 0; i < t.count && result >= 0; i++) {
        const exl2__tensor *e = &t.entries[i];
        uint64_t place[] = { e->offset, e->bytes, e->file, e->type, e->dims[0], e->dims[1], e->dims[2] };
        out->hash = exl2__convert_source_hash_tensor(out->hash, e->name, strlen(e->name), place, 7);
        out->kind = e->type == EXL2__TENSOR_F8_E4M3 ? EXL2__CONVERT_SOURCE_FP8 : out->kind;
    }
    exl2__tensors_close(c, &t);
    return result;
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

static exl2_result exl2__convert_source_find_scales(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
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
    EXL2__TRY(exl2__tensor_some_floats(c, t, scale, 0, (uint32_t)count, out->values));
    for (uint64_t i = 0; i < count; i++) {
        if (!exl2__float_is_finite(out->values[i])) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s has a scale that is not finite", e->name);
        }
    }
    return EXL2_OK;
}

/* Writes one FP8 tensor as FP16. codes [columns], halves [columns]: scratch. */
static exl2_result exl2__convert_source_decode(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *e,
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
static bool exl2__convert_source_is_kept(const exl2__tensors *t, const exl2__tensor *e)
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

/* Lists the tensors: FP8 as FP16, all others as they are. Checks the scales of FP8. */
static exl2_result exl2__convert_source_list(exl2__ctx *c, const exl2__tensors *t, exl2__shards *shards)
{
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        bool fp8 = e->type == EXL2__TENSOR_F8_E4M3;
        if (!exl2__convert_source_is_kept(t, e)) {
            continue;
        }
        if (!exl2__shards_fits(e) || (fp8 && e->dims[1] > EXL2__CONVERT_WRITE_PIECE)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "the tensor '%s' has too long a name, too many dimensions, or "
                              "too many columns", e->name);
        }
        if (!fp8) {
            exl2__shards_add_copy(shards, e);
        } else {
            exl2__convert_source_scales scales;
            exl2__shards_add(shards, e->name, "", EXL2__TENSOR_F16, e->rank, e->dims[0], e->dims[1]);
            exl2_result result = exl2__convert_source_find_scales(c, t, e, &scales);
            exl2__free(c, scales.values, scales.bytes, EXL2_MEM_SCRATCH);
            EXL2__TRY(result);
        }
    }
    return EXL2_OK;
}

/* Writes the listed tensors. numbers [PIECE]: scratch. */
static exl2_result exl2__convert_source_write(exl2__ctx *c, const exl2__tensors *t, exl2__shards *shards,
                                              const char *dir, float *numbers)
{
    EXL2__TRY(exl2__shards_open(shards, dir));
    for (uint32_t i = 0, number = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        if (!exl2__convert_source_is_kept(t, e)) {
            continue;
        }
        if (e->type == EXL2__TENSOR_F8_E4M3) {
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
static exl2_result exl2__convert_source_others(exl2__convert_write *w, const char *dir)
{
    w->dense = true;
    EXL2__TRY(exl2__convert_write_config(w, dir));
    for (uint32_t i = 0; exl2__folder_copied[i]; i++) {
        EXL2__TRY(exl2__convert_write_copy(w, dir, exl2__folder_copied[i]));
    }
    return EXL2_OK;
}

/* outline: NULL, or only headers are written of the files of tensors, and it gets their size. */
static exl2_result exl2__convert_source_fp8(exl2__ctx *c, const char *path, const char *out, uint64_t *outline)
{
    exl2__convert_write w = { .c = c, .source_dir = path };
    exl2__folder folder = { { 0 }, { 0 } };
    exl2__tensors t = { 0 };
    exl2__shards shards = { 0 };
    void *numbers = NULL;
    uint64_t bytes = EXL2__CONVERT_WRITE_PIECE * sizeof(float);
    exl2_result result = exl2__convert_source_tensors(c, path, &t);
    result = result < 0 ? result : exl2__shards_begin(c, &shards, "model", t.count, EXL2__SHARDS_BYTES);
    result = result < 0 ? result : exl2__convert_source_list(c, &t, &shards);
    result = result < 0 ? result : exl2__folder_begin(c, &folder, out);
    if (outline) {
        result = result < 0 ? result : exl2__shards_outline(&shards, folder.work_path, outline);
    } else {
        result = result < 0 ? result : exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_SCRATCH, &numbers);
        result = result < 0 ? result : exl2__convert_source_write(c, &t, &shards, folder.work_path, (float *)numbers);
        exl2__free(c, numbers, numbers ? bytes : 0, EXL2_MEM_SCRATCH);
    }
    exl2__shards_close(&shards);
    exl2__tensors_close(c, &t);
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

static void *exl2__convert_source_files_open(void *user, const char *path, uint64_t *bytes)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    void *file = under->open(under->user, path, bytes);
    size_t length = strlen(path), end = strlen(".safetensors");
    if (file && length > end && strcmp(path + length - end, ".safetensors") == 0) {
        *bytes = INT64_MAX;
    }
    return file;
}

static bool exl2__convert_source_files_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    return under->list(under->user, dir, index, name, cap);
}

static int64_t exl2__convert_source_files_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    int64_t got = under->read(under->user, file, offset, dst, bytes);
    if (got < 0) {
        return got;
    }
    memset((uint8_t *)dst + got, 0, bytes - (size_t)got);
    return (int64_t)bytes;
}

static void exl2__convert_source_files_close(void *user, void *file)
{
    const exl2_files *under = &((const exl2__convert_source_files *)user)->under;
    under->close(under->user, file);
}

/* The hook of an outline, over files->under. */
static exl2_files exl2__convert_source_files_of(exl2__convert_source_files *files)
{
    return (exl2_files){ exl2__convert_source_files_open, exl2__convert_source_files_list,
                         exl2__convert_source_files_read, exl2__convert_source_files_close, files };
}

/* ---- the dense folder ---- */

/* Fills in the folder to read. false: it must be made first. One that an earlier run has made in the work folder is
   complete. */
static bool exl2__convert_source_find(const exl2_convert_desc *d, const exl2__convert_source *source,
                                      const exl2__keep *work, char dir[EXL2__FILE_PATH_MAX])
{
    char name[EXL2__FILE_NAME_MAX];
    if (source->kind == EXL2__CONVERT_SOURCE_FOLDER) {
        exl2__format(dir, EXL2__FILE_PATH_MAX, "%s", d->source_dir);
        return true;
    }
    exl2__keep_path(work, EXL2__CONVERT_SOURCE_NAME, "", dir);
    return exl2__platform_entry(dir, 0, name, sizeof name);
}

static bool exl2__convert_source_progress(void *user, float done, const char *what)
{
    const exl2_convert_desc *d = (const exl2_convert_desc *)user;
    (void)what;
    return !d->progress || d->progress(d->user, "import", done);
}

/* Makes the folder `dir`. outline: as above. */
static exl2_result exl2__convert_source_run(exl2__ctx *c, const exl2_convert_desc *d,
                                            const exl2__convert_source *source, const char *dir, uint64_t *outline)
{
    exl2_import_desc import = { 0 };
    if (source->kind == EXL2__CONVERT_SOURCE_FP8) {
        return exl2__convert_source_fp8(c, d->source_dir, dir, outline);
    }
    import.gguf_path = d->source_dir;
    import.out_dir = dir;
    import.bits = EXL2__IMPORT_DENSE_BITS;
    import.parallel = c->parallel;
    import.progress = exl2__convert_source_progress;
    import.user = (void *)(uintptr_t)d; /* only read */
    return outline ? exl2__import_outline(c, &import, outline) : exl2__import_gguf(c, &import);
}

/* Makes the outline, after that of a killed run was removed. *bytes: of the dense folder's tensors. */
static exl2_result exl2__convert_source_outline(exl2__ctx *c, const exl2_convert_desc *d,
                                                const exl2__convert_source *source, const exl2__keep *work,
                                                char dir[EXL2__FILE_PATH_MAX], uint64_t *bytes)
{
    exl2__keep_path(work, EXL2__CONVERT_SOURCE_OUTLINE, "", dir);
    exl2__folder_remove(dir);
    return exl2__convert_source_run(c, d, source, dir, bytes);
}

static exl2_result exl2__convert_source_make(exl2__ctx *c, const exl2_convert_desc *d,
                                             const exl2__convert_source *source, const exl2__keep *work,
                                             char dir[EXL2__FILE_PATH_MAX])
{
    exl2__keep_path(work, EXL2__CONVERT_SOURCE_NAME, "", dir);
    return exl2__convert_source_run(c, d, source, dir, NULL);
}

#endif
