/* tensor_table.h: one table of all tensors in the *.safetensors files of a model folder: name, type, shape, file, byte
   range.
   takes: a folder, untrusted.
   gives: exl2__tensor, exl2__tensors, exl2__tensors_open, exl2__tensors_close, exl2__tensors_rename,
          exl2__tensors_find, exl2__tensors_read, exl2__tensor_floats, exl2__tensor_some_floats.
   owns:  the table and the open files, until exl2__tensors_close. */
#ifndef EXL2__TENSOR_TABLE_H
#define EXL2__TENSOR_TABLE_H

#include "../0_base/arena.h"
#include "../0_base/half.h"
#include "../0_base/sort.h"
#include "../0_base/json/json.h"
#include "tensor_files.h"

#define EXL2__TENSORS_COUNT_MAX (1u << 20)
#define EXL2__TENSORS_HEADER_MAX ((uint64_t)100 << 20)
#define EXL2__TENSORS_RANK_MAX 8u
#define EXL2__TENSORS_NAME_MAX 512u

/* Element types by their name in the header, with their size in bytes. A tensor of another type is an error only if the
   model needs the tensor. */
#define EXL2__TENSOR_TYPES(X)                                                                            \
    X(F16, 2) X(BF16, 2) X(F32, 4) X(I16, 2) X(I32, 4) X(F64, 8) X(I64, 8) X(U64, 8) X(U32, 4) X(U16, 2) \
    X(U8, 1) X(I8, 1) X(BOOL, 1) X(F8_E4M3, 1) X(F8_E5M2, 1)

typedef enum exl2__tensor_type {
    EXL2__TENSOR_UNKNOWN,
#define X(name, bytes) EXL2__TENSOR_##name,
    EXL2__TENSOR_TYPES(X)
#undef X
    EXL2__TENSOR_TYPE_COUNT
} exl2__tensor_type;

typedef struct exl2__tensor {
    const char *name;       /* NUL-terminated, no control characters */
    uint64_t offset, bytes; /* in the file; checked to lie inside it */
    uint64_t dims[3];       /* the first dimensions; 1 where the rank is lower */
    uint16_t file;          /* index into exl2__tensors.files.items */
    uint8_t type, rank;     /* exl2__tensor_type */
    bool used;              /* exl2__tensors_find has found it */
} exl2__tensor;

typedef struct exl2__tensors {
    exl2__tensor_files files;
    exl2__tensor *entries; /* [count], sorted by name */
    uint32_t count;
    exl2__arena memory;
    exl2__arena renamed;   /* names that exl2__tensors_rename has changed */
} exl2__tensors;

static inline const char *exl2__tensor_type_name(uint32_t type)
{
    static const char *const names[] = { "an unknown type",
#define X(name, bytes) #name,
        EXL2__TENSOR_TYPES(X)
#undef X
    };
    return names[type < EXL2__COUNT(names) ? type : 0];
}

/* Bytes of one element; 0 for EXL2__TENSOR_UNKNOWN. */
static inline uint32_t exl2__tensor_type_bytes(uint32_t type)
{
    static const uint8_t sizes[] = { 0,
#define X(name, bytes) bytes,
        EXL2__TENSOR_TYPES(X)
#undef X
    };
    return sizes[type < EXL2__COUNT(sizes) ? type : 0];
}

static inline void exl2__tensors_close(exl2__ctx *c, exl2__tensors *t)
{
    exl2__tensor_files_close(c, &t->files);
    exl2__arena_close(c, &t->memory);
    exl2__arena_close(c, &t->renamed);
    *t = (exl2__tensors){ 0 };
}

/* ---- headers ---- */

typedef struct exl2__tensors_header {
    exl2__blob text;
    exl2__json json;
} exl2__tensors_header;

static inline exl2_result exl2__tensors_header_read(exl2__ctx *c, const exl2__tensor_file *f, exl2__tensors_header *h)
{
    uint8_t prefix[9] = { 0 };
    EXL2__TRY(exl2__file_read_at(c, f->name, f->handle, 0, prefix, exl2__min64(f->bytes, sizeof prefix)));
    uint64_t bytes = exl2__load64(prefix);
    if (f->bytes < 10 || bytes < 2 || bytes > f->bytes - 8 || bytes > EXL2__TENSORS_HEADER_MAX || prefix[8] != '{') {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: not a safetensors file (header of %llu bytes in a file of %llu)",
                          f->name,
                          (unsigned long long)bytes, (unsigned long long)f->bytes);
    }
    void *memory;
    char label[EXL2__FILE_NAME_MAX + 16];
    exl2__format(label, sizeof label, "%s: the header", f->name);
    EXL2__TRY(exl2__alloc(c, bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
    h->text.data = (char *)memory;
    h->text.bytes = bytes;
    h->text.data[bytes] = 0;
    EXL2__TRY(exl2__file_read_at(c, f->name, f->handle, 8, h->text.data, bytes));
    return exl2__json_open(c, label, h->text.data, (size_t)bytes, &h->json);
}

/* Adds the number of tensors in a header to *count, and the bytes of their names, with a NUL each, to *name_bytes. */
static inline void exl2__tensors_header_count(const exl2__json *j, uint64_t *count, uint64_t *name_bytes)
{
    for (uint32_t key = exl2__json_first(j, 0); key; key = exl2__json_next(j, 0, key)) {
        if (!exl2__json_is(j, key, "__metadata__")) {
            *count += 1;
            *name_bytes += exl2__json_text(j, key, NULL, 0) + 1;
        }
    }
}

static inline exl2_result exl2__tensors_malformed(exl2__ctx *c, const char *file, const char *name, const char *wanted)
{
    return exl2__fail(c, EXL2_ERR_FORMAT, "%s: malformed header near '%s': expected %s", file, name, wanted);
}

static inline uint8_t exl2__tensors_type(const exl2__json *j, uint32_t token)
{
    for (uint32_t type = 1; type < EXL2__TENSOR_TYPE_COUNT; type++) {
        if (exl2__json_is(j, token, exl2__tensor_type_name(type))) {
            return (uint8_t)type;
        }
    }
    return EXL2__TENSOR_UNKNOWN;
}

/* Reads out->rank, out->dims and *elements from a shape. false: it is no list of sizes, or the product overflows. */
static inline bool exl2__tensors_shape(const exl2__json *j, uint32_t shape, exl2__tensor *out, uint64_t *elements)
{
    bool fits = true, empty = false;
    out->dims[0] = out->dims[1] = out->dims[2] = *elements = 1;
    if (j->tokens[shape].kind != EXL2__JSON_ARRAY || j->tokens[shape].count > EXL2__TENSORS_RANK_MAX) {
        return false;
    }
    out->rank = (uint8_t)j->tokens[shape].count;
    uint32_t axis = 0;
    for (uint32_t at = exl2__json_first(j, shape); at; at = exl2__json_next(j, shape, at), axis++) {
        uint64_t size;
        if (!exl2__json_u64(j, at, &size)) {
            return false;
        }
        if (axis < EXL2__COUNT(out->dims)) {
            out->dims[axis] = size;
        }
        empty = empty || size == 0;
        fits = exl2__mul64(*elements, size, elements) && fits;
    }
    *elements = empty ? 0 : *elements;
    return fits || empty;
}

/* Reads one entry of a header: {"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}. out->name is set already. */
static exl2_result exl2__tensors_entry(exl2__ctx *c, const exl2__tensor_file *f, const exl2__tensors_header *h,
                                       uint32_t value, exl2__tensor *out)
{
    const exl2__json *j = &h->json;
    uint32_t type = exl2__json_get(j, value, "dtype"), shape = exl2__json_get(j, value, "shape");
    uint32_t range = exl2__json_get(j, value, "data_offsets");
    uint64_t begin, end, elements, wanted;
    if (!type || j->tokens[type].kind != EXL2__JSON_STRING || !shape || !range) {
        return exl2__tensors_malformed(c, f->name, out->name, "an object with dtype, shape and data_offsets");
    }
    if (j->tokens[range].kind != EXL2__JSON_ARRAY || j->tokens[range].count != 2 ||
        !exl2__json_u64(j, range + 1, &begin) || !exl2__json_u64(j, range + 2, &end)) {
        return exl2__tensors_malformed(c, f->name, out->name, "two offsets in data_offsets");
    }
    if (!exl2__tensors_shape(j, shape, out, &elements)) {
        return exl2__tensors_malformed(c, f->name, out->name, "a shape of at most 8 sizes with a product below 2^64");
    }
    uint64_t data = 8 + h->text.bytes, data_bytes = f->bytes - data;
    if (begin > end || end > data_bytes) {
        return exl2__fail(c, EXL2_ERR_FORMAT,
                          "%s: '%s' lies outside the file (truncated download?): data bytes %llu to %llu of %llu",
                          f->name, out->name, (unsigned long long)begin, (unsigned long long)end,
                          (unsigned long long)data_bytes);
    }
    out->type = exl2__tensors_type(j, type);
    out->offset = data + begin;
    out->bytes = end - begin;
    bool fits = exl2__mul64(elements, exl2__tensor_type_bytes(out->type), &wanted);
    if (out->type != EXL2__TENSOR_UNKNOWN && (!fits || wanted != out->bytes)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' size does not match its shape: %llu bytes, expected %llu",
                          f->name,
                          out->name, (unsigned long long)out->bytes, (unsigned long long)wanted);
    }
    return EXL2_OK;
}

/* Appends all tensors of a file to t->entries; their names are written to *names, which moves past them. */
static exl2_result exl2__tensors_add(exl2__ctx *c, exl2__tensors *t, uint32_t file, const exl2__tensors_header *h,
                                     char **names)
{
    const exl2__json *j = &h->json;
    for (uint32_t key = exl2__json_first(j, 0); key; key = exl2__json_next(j, 0, key)) {
        if (exl2__json_is(j, key, "__metadata__")) {
            continue;
        }
        size_t bytes = exl2__json_text(j, key, *names, SIZE_MAX);
        (*names)[bytes] = 0;
        for (size_t i = 0; i < bytes; i++) {
            if ((uint8_t)(*names)[i] < 0x20) {
                (*names)[i] = 0;
                return exl2__tensors_malformed(c, t->files.items[file].name, *names, "no control character in a name");
            }
        }
        exl2__tensor *entry = &t->entries[t->count++];
        *entry = (exl2__tensor){ 0 };
        entry->name = *names;
        entry->file = (uint16_t)file;
        *names += bytes + 1;
        EXL2__TRY(exl2__tensors_entry(c, &t->files.items[file], h, key + 1, entry));
    }
    return EXL2_OK;
}

/* Reads every header and makes the table. headers: [files.count], zeroed; the caller closes them. */
static exl2_result exl2__tensors_read_headers(exl2__ctx *c, exl2__tensors *t, exl2__tensors_header *headers)
{
    uint64_t count = 0, name_bytes = 0;
    for (uint32_t i = 0; i < t->files.count; i++) {
        EXL2__TRY(exl2__tensors_header_read(c, &t->files.items[i], &headers[i]));
        exl2__tensors_header_count(&headers[i].json, &count, &name_bytes);
        if (count > EXL2__TENSORS_COUNT_MAX) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "%s: more than %u tensors", t->files.items[i].name,
                              EXL2__TENSORS_COUNT_MAX);
        }
    }
    uint64_t entry_bytes = exl2__align_up(count * sizeof *t->entries, EXL2__ARENA_ALIGN);
    uint64_t total = entry_bytes + exl2__align_up(name_bytes, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(c, &t->memory, total, EXL2_MEM_GENERAL));
    t->entries = (exl2__tensor *)exl2__arena_alloc(&t->memory, entry_bytes);
    char *names = (char *)exl2__arena_alloc(&t->memory, name_bytes);
    for (uint32_t i = 0; i < t->files.count; i++) {
        EXL2__TRY(exl2__tensors_add(c, t, i, &headers[i], &names));
    }
    return EXL2_OK;
}

/* ---- checks over the whole table ---- */

static inline bool exl2__tensors_range_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__tensor *x = (const exl2__tensor *)items + a, *y = (const exl2__tensor *)items + b;
    return x->file != y->file ? x->file < y->file : x->offset < y->offset;
}

static inline bool exl2__tensors_name_less(const void *items, uint32_t a, uint32_t b)
{
    const exl2__tensor *entries = (const exl2__tensor *)items;
    return strcmp(entries[a].name, entries[b].name) < 0;
}

static inline void exl2__tensors_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__tensor *entries = (exl2__tensor *)items, held = entries[a];
    entries[a] = entries[b];
    entries[b] = held;
}

/* Sorts the entries by name, and checks that every name is unique. */
static exl2_result exl2__tensors_sort(exl2__ctx *c, exl2__tensors *t)
{
    exl2__sort_items by_name = { t->entries, exl2__tensors_name_less, exl2__tensors_swap };
    exl2__sort(&by_name, t->count);
    for (uint32_t i = 1; i < t->count; i++) {
        const exl2__tensor *a = &t->entries[i - 1], *b = &t->entries[i];
        if (strcmp(a->name, b->name) == 0) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "'%s' is in both %s and %s; remove stale shards", a->name,
                              t->files.items[a->file < b->file ? a->file : b->file].name,
                              t->files.items[a->file < b->file ? b->file : a->file].name);
        }
    }
    return EXL2_OK;
}

/* Checks that tensors do not overlap, and that every name is unique. Leaves the entries sorted by name. */
static exl2_result exl2__tensors_check(exl2__ctx *c, exl2__tensors *t)
{
    exl2__sort_items by_range = { t->entries, exl2__tensors_range_less, exl2__tensors_swap };
    exl2__sort(&by_range, t->count);
    const exl2__tensor *last = NULL; /* the last tensor that is not empty */
    for (uint32_t i = 0; i < t->count; i++) {
        const exl2__tensor *e = &t->entries[i];
        if (last && e->bytes && last->file == e->file && e->offset < last->offset + last->bytes) {
            return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s' and '%s' overlap", t->files.items[e->file].name, last->name,
                              e->name);
        }
        last = e->bytes ? e : last;
    }
    return exl2__tensors_sort(c, t);
}

static exl2_result exl2__tensors_open_table(exl2__ctx *c, const char *dir, exl2__tensors *t)
{
    EXL2__TRY(exl2__tensor_files_open(c, dir, &t->files));
    uint64_t bytes = t->files.count * (uint64_t)sizeof(exl2__tensors_header);
    void *memory;
    EXL2__TRY(exl2__alloc(c, bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, (size_t)bytes);
    exl2__tensors_header *headers = (exl2__tensors_header *)memory;
    exl2_result result = exl2__tensors_read_headers(c, t, headers);
    for (uint32_t i = 0; i < t->files.count; i++) {
        exl2__json_close(c, &headers[i].json);
        exl2__blob_close(c, &headers[i].text);
    }
    exl2__free(c, memory, bytes, EXL2_MEM_GENERAL);
    EXL2__TRY(result);
    return exl2__tensors_check(c, t);
}

/* Opens every *.safetensors file of the folder and checks all headers. On failure *t is zeroed. */
static exl2_result exl2__tensors_open(exl2__ctx *c, const char *dir, exl2__tensors *t)
{
    *t = (exl2__tensors){ 0 };
    exl2_result result = exl2__tensors_open_table(c, dir, t);
    if (result < 0) {
        exl2__tensors_close(c, t);
    }
    return result;
}

/* ---- renaming ---- */

/* Replaces every `from` in name[EXL2__TENSORS_NAME_MAX] by `to`; of "^x" only an x at the begin. false: the result is
   too long. */
static inline bool exl2__tensors_replace(char *name, const char *from, const char *to)
{
    bool begin_only = from[0] == '^';
    size_t from_bytes = strlen(from + begin_only), to_bytes = strlen(to);
    from += begin_only;
    for (char *at = name; (at = strstr(at, from)) != NULL; at += to_bytes) {
        size_t rest = strlen(at + from_bytes);
        if (begin_only && at != name) {
            return true;
        }
        if ((size_t)(at - name) + to_bytes + rest >= EXL2__TENSORS_NAME_MAX) {
            return false;
        }
        memmove(at + to_bytes, at + from_bytes, rest + 1);
        memcpy(at, to, to_bytes);
    }
    return true;
}

/* Writes the new name of a tensor to out[EXL2__TENSORS_NAME_MAX]. false: the tensor keeps its name. */
static inline bool exl2__tensors_new_name(const char *name, const char *const *renames, char *out)
{
    bool fits = strlen(name) < EXL2__TENSORS_NAME_MAX;
    exl2__format(out, EXL2__TENSORS_NAME_MAX, "%s", name);
    for (uint32_t i = 0; renames[i] && fits; i += 2) {
        fits = exl2__tensors_replace(out, renames[i], renames[i + 1]);
    }
    return fits && strcmp(name, out) != 0;
}

/* Renames the tensors: `renames` are pairs of a text and its replacement, applied in order, and end with NULL
   (exl2__arch.renames). */
static exl2_result exl2__tensors_rename(exl2__ctx *c, exl2__tensors *t, const char *const *renames)
{
    char name[EXL2__TENSORS_NAME_MAX];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        bytes += exl2__tensors_new_name(t->entries[i].name, renames, name) ? strlen(name) + 1 : 0;
    }
    if (bytes == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__arena_open(c, &t->renamed, exl2__align_up(bytes, EXL2__ARENA_ALIGN), EXL2_MEM_GENERAL));
    char *at = (char *)exl2__arena_alloc(&t->renamed, bytes);
    for (uint32_t i = 0; i < t->count; i++) {
        if (exl2__tensors_new_name(t->entries[i].name, renames, name)) {
            size_t length = strlen(name) + 1;
            memcpy(at, name, length);
            t->entries[i].name = at;
            at += length;
        }
    }
    return exl2__tensors_sort(c, t);
}

/* ---- use ---- */

/* The tensor, or NULL. A binary search, because the names are untrusted: they could be chosen so that hashes collide.
   */
static inline const exl2__tensor *exl2__tensors_find(const exl2__tensors *t, const char *name)
{
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(t->entries[middle].name, name);
        if (order == 0) {
            t->entries[middle].used = true;
            return &t->entries[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* The tensor "<key>.<part>", or NULL. */
static inline const exl2__tensor *exl2__tensors_find_part(const exl2__tensors *t, const char *key, const char *part)
{
    char name[EXL2__TENSORS_NAME_MAX];
    size_t bytes = exl2__format(name, sizeof name, "%s.%s", key, part);
    return bytes == strlen(key) + 1 + strlen(part) ? exl2__tensors_find(t, name) : NULL;
}

/* Reads bytes [offset, offset + bytes) of the tensor into dst. */
static inline exl2_result exl2__tensors_read(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
                                             uint64_t offset,
                                             void *dst, uint64_t bytes)
{
    const exl2__tensor_file *f = &t->files.items[entry->file];
    char label[EXL2__FILE_NAME_MAX + EXL2__TENSORS_NAME_MAX];
    if (offset > entry->bytes || bytes > entry->bytes - offset) {
        return exl2__fail(c, EXL2_ERR_INTERNAL, "%s: read past the end of '%s'", f->name, entry->name);
    }
    exl2__format(label, sizeof label, "%s: '%s'", f->name, entry->name);
    return exl2__file_read_at(c, label, f->handle, entry->offset + offset, dst, bytes);
}

/* The element types that a dense weight may have. */
static inline bool exl2__tensor_is_float(const exl2__tensor *entry)
{
    return entry->type == EXL2__TENSOR_F16 || entry->type == EXL2__TENSOR_BF16 || entry->type == EXL2__TENSOR_F32;
}

static inline float exl2__tensor_float(uint32_t type, const uint8_t *p)
{
    return type == EXL2__TENSOR_F16 ? exl2__f16_to_f32(exl2__load16(p))
         : type == EXL2__TENSOR_BF16 ? exl2__bf16_to_f32(exl2__load16(p)) : exl2__bits_float(exl2__load32(p));
}

/* Fails unless the tensor `name` exists and is a vector of `count` F16, BF16 or F32. */
static inline exl2_result exl2__tensor_check_floats(exl2__ctx *c, const exl2__tensors *t, const char *name,
                                                    uint32_t count)
{
    const exl2__tensor *entry = exl2__tensors_find(t, name);
    if (!entry) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "'%s' is missing in all .safetensors files", name);
    }
    const char *file = t->files.items[entry->file].name;
    if (!exl2__tensor_is_float(entry)) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s': expected F16, BF16 or F32, found %s", file, name,
                          exl2__tensor_type_name(entry->type));
    }
    if (entry->rank != 1 || entry->dims[0] != count) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s': wrong size [%llu] of rank %u, expected [%u]", file, name,
                          (unsigned long long)entry->dims[0], entry->rank, count);
    }
    return EXL2_OK;
}

/* Reads elements [first, first + count) of a tensor of floats as float. Fails if a value is not finite. */
static inline exl2_result exl2__tensor_some_floats(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
                                                   uint64_t first, uint32_t count, float *out)
{
    uint8_t raw[2048];
    uint32_t size = exl2__tensor_type_bytes(entry->type), step = (uint32_t)sizeof raw / size;
    for (uint32_t i = 0; i < count; i += step) {
        uint32_t n = exl2__min32(step, count - i);
        EXL2__TRY(exl2__tensors_read(c, t, entry, (first + i) * size, raw, (uint64_t)n * size));
        for (uint32_t k = 0; k < n; k++) {
            out[i + k] = exl2__tensor_float(entry->type, raw + k * size);
            if (!exl2__float_is_finite(out[i + k])) {
                return exl2__fail(c, EXL2_ERR_FORMAT, "%s: '%s': value %llu is not finite",
                                  t->files.items[entry->file].name, entry->name, (unsigned long long)(first + i + k));
            }
        }
    }
    return EXL2_OK;
}

/* Reads the vector `name` (norm weights, a bias) as float [count]. Fails if a value is not finite. */
static inline exl2_result exl2__tensor_floats(exl2__ctx *c, const exl2__tensors *t, const char *name, uint32_t count,
                                              float *out)
{
    EXL2__TRY(exl2__tensor_check_floats(c, t, name, count));
    return exl2__tensor_some_floats(c, t, exl2__tensors_find(t, name), 0, count, out);
}

#endif
