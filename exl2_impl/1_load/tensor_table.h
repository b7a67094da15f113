/* tensor_table.h: one table of all tensors in the *.safetensors files of a model folder: name, type, shape, file, byte
   range.
   takes: a folder, untrusted. Its model.safetensors.index.json decides which files are read, and which of several
          copies of a tensor. In EXL2 folders the index is mostly a copy of the source model's: if the folder has none
          of its files, it does not count.
   gives: exl2__tensor, exl2__tensors, exl2__tensors_close, exl2__tensors_find, exl2__tensors_read,
          exl2__tensor_floats, exl2__tensor_floats_range; exl2__tensors_reader and exl2__tensors_read_begin, _slice and
          _end, which work in slices.
   owns:  the table and the open files, until exl2__tensors_close; headers, until exl2__tensors_read_end. */
#ifndef EXL2__TENSOR_TABLE_H
#define EXL2__TENSOR_TABLE_H

#include "../0_base/arena.h"
#include "../0_base/half.h"
#include "../0_base/sort.h"
#include "json_file.h"
#include "tensor_files.h"

#define EXL2__TENSORS_COUNT_MAX (1u << 20)
#define EXL2__TENSORS_HEADER_MAX ((uint64_t)100 << 20)
#define EXL2__TENSORS_RANK_MAX 8u
#define EXL2__TENSORS_DIMS 5u /* dimensions that are kept; models use 3, their towers 5 */
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
    uint64_t dims[EXL2__TENSORS_DIMS]; /* the first dimensions; 1 where the rank is lower */
    uint16_t file;          /* index into exl2__tensors.files.items */
    uint8_t type, rank;     /* exl2__tensor_type */
    bool used;              /* exl2__tensors_find has found it */
    bool stale;             /* the index names another file that has it */
} exl2__tensor;

typedef struct exl2__tensors {
    exl2__tensor_files files;
    exl2__tensor *entries; /* [count], sorted by name */
    uint32_t count;
    exl2__arena memory;
    exl2__arena renamed;   /* names that the family renames */
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

typedef struct exl2__tensors_header {
    exl2__blob text;
    exl2__json json;
} exl2__tensors_header;

/* The state of reading. It works in stages, each of them in slices. */
typedef struct exl2__tensors_reader {
    exl2__ctx *c;
    const char *dir;
    const char *const *renames; /* pairs of a text and its replacement (exl2__arch.renames), ended by NULL; or NULL */
    const char *only;           /* the one file that is read; NULL: all, or those of the index */
    exl2__tensors *t;
    uint32_t stage;
    uint32_t at, key;           /* position in the stage, 0 at its begin: a file and a token of its header; an entry */
    exl2__tensor_files_reader files;
    exl2__json_file index;
    bool index_open;
    uint32_t map;               /* token of the index's weight_map; 0: there is none that counts */
    exl2__tensors_header *headers; /* [files.count] */
    uint64_t headers_bytes;
    uint64_t header_done;       /* bytes read of the current header */
    exl2__json_parse parse;     /* of the current header */
    char label[EXL2__FILE_NAME_MAX + 16];
    uint64_t count, name_bytes; /* of all headers; then of changed names */
    char *names;                /* where the next name is written */
} exl2__tensors_reader;

static inline void exl2__tensors_close(exl2__ctx *c, exl2__tensors *t)
{
    exl2__tensor_files_close(c, &t->files);
    exl2__arena_close(c, &t->memory);
    exl2__arena_close(c, &t->renamed);
    *t = (exl2__tensors){ 0 };
}

/* ---- headers ---- */

/* The file has no safetensors header: says what it is instead. */
EXL2__PRIVATE exl2_result exl2__tensors_reject_file(exl2__ctx *c, const exl2__tensor_file *f, uint64_t header_bytes)
{
    char begin[65] = { 0 };
    uint64_t bytes = exl2__min64(f->bytes, sizeof begin - 1);
    uint32_t printable = 0;
    EXL2__TRY(exl2__file_read_at(c, f->name, f->handle, 0, begin, bytes));
    const char *what = exl2__file_misplaced(begin, bytes);
    if (what) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s is %s", f->name, what);
    }
    while (begin[printable] >= ' ' && begin[printable] <= '~') {
        printable++;
    }
    begin[printable] = 0;
    return printable > 8 /* the size of a header is no text */
               ? exl2__fail(c, EXL2_ERR_FORMAT, "%s: not a safetensors file, but a text that begins with \"%s\"",
                            f->name, begin)
               : exl2__fail(c, EXL2_ERR_FORMAT, "%s: not a safetensors file, or a truncated one (header of %llu "
                            "bytes in a file of %llu)", f->name, (unsigned long long)header_bytes,
                            (unsigned long long)f->bytes);
}

/* Reads the size of a header, and allocates room for its text. */
EXL2__PRIVATE exl2_result exl2__tensors_header_begin(exl2__tensors_reader *r, const exl2__tensor_file *f,
                                                     exl2__tensors_header *h)
{
    uint8_t prefix[9] = { 0 };
    EXL2__TRY(exl2__file_read_at(r->c, f->name, f->handle, 0, prefix, exl2__min64(f->bytes, sizeof prefix)));
    uint64_t bytes = exl2__load64(prefix);
    if (f->bytes < 10 || bytes < 2 || bytes > f->bytes - 8 || bytes > EXL2__TENSORS_HEADER_MAX || prefix[8] != '{') {
        return exl2__tensors_reject_file(r->c, f, bytes);
    }
    void *memory;
    EXL2__TRY(exl2__alloc(r->c, bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
    h->text.data = (char *)memory;
    h->text.bytes = bytes;
    h->text.data[bytes] = 0;
    r->header_done = 0;
    exl2__format(r->label, sizeof r->label, "%s: the header", f->name);
    return exl2__json_parse_begin(r->c, &r->parse, r->label, h->text.data, (size_t)bytes, NULL);
}

/* Adds the number of tensors in a header and the bytes of their names, with a NUL each. */
EXL2__PRIVATE exl2_result exl2__tensors_header_count(exl2__tensors_reader *r, const exl2__json *j, exl2__work *work)
{
    for (r->key = r->key ? r->key : exl2__json_first(j, 0); r->key; r->key = exl2__json_next(j, 0, r->key)) {
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        if (!exl2__json_is(j, r->key, "__metadata__")) {
            r->count += 1;
            r->name_bytes += exl2__json_text(j, r->key, NULL, 0) + 1;
        }
    }
    return EXL2_OK;
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
    *elements = 1;
    for (uint32_t i = 0; i < EXL2__TENSORS_DIMS; i++) {
        out->dims[i] = 1;
    }
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
        if (axis < EXL2__TENSORS_DIMS) {
            out->dims[axis] = size;
        }
        empty = empty || size == 0;
        fits = exl2__mul64(*elements, size, elements) && fits;
    }
    *elements = empty ? 0 : *elements;
    return fits || empty;
}

/* Reads one entry of a header: {"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}. out->name is set already. */
EXL2__PRIVATE exl2_result exl2__tensors_entry(exl2__ctx *c, const exl2__tensor_file *f, const exl2__tensors_header *h,
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

/* ---- the index ---- */

EXL2__PRIVATE exl2_result exl2__tensors_read_index(exl2__tensors_reader *r, exl2__work *work)
{
    const exl2__json *j = &r->index.parse.j;
    if (r->only) {
        return EXL2_OK;
    }
    if (!r->index_open) {
        r->index_open = true;
        EXL2__TRY(exl2__json_file_open(r->c, r->dir, "model.safetensors.index.json", EXL2__TENSORS_HEADER_MAX, NULL,
                                       &r->index));
    }
    EXL2__TRY_DONE(exl2__json_file_slice(r->c, &r->index, work));
    r->map = j->tokens ? exl2__json_get(j, 0, "weight_map") : 0;
    r->map = r->map && j->tokens[r->map].kind == EXL2__JSON_OBJECT ? r->map : 0;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_list_files(exl2__tensors_reader *r, exl2__work *work)
{
    return r->only ? exl2__tensor_files_one(r->c, r->dir, &r->t->files, r->only)
                   : exl2__tensor_files_names(r->c, r->dir, &r->t->files, &r->files, work);
}

/* The name [EXL2__TENSORS_NAME_MAX] that a token holds; "" if it is no string, too long, or has a NUL. */
EXL2__PRIVATE void exl2__tensors_index_name(const exl2__json *j, uint32_t token, char *name)
{
    size_t bytes = exl2__json_text(j, token, name, EXL2__TENSORS_NAME_MAX - 1);
    bool fits = bytes < EXL2__TENSORS_NAME_MAX && !memchr(name, 0, bytes);
    name[fits ? bytes : 0] = 0;
}

/* Marks the files that the index names. A gap in numbered files gets its warning later. */
EXL2__PRIVATE exl2_result exl2__tensors_mark_files(exl2__tensors_reader *r, exl2__work *work)
{
    const exl2__json *j = &r->index.parse.j;
    char name[EXL2__TENSORS_NAME_MAX];
    size_t stem;
    uint32_t shard, total;
    r->key = r->key || !r->map ? r->key : exl2__json_first(j, r->map);
    for (; r->key; r->key = exl2__json_next(j, r->map, r->key)) {
        if (!exl2__work_spend(work, 200)) {
            return EXL2_PENDING;
        }
        exl2__tensors_index_name(j, r->key + 1, name);
        if (!exl2__tensor_files_mark(&r->t->files, &r->files, name) && r->at == 0 &&
            !exl2__tensor_files_shard(name, &stem, &shard, &total)) {
            r->at = r->key;
        }
    }
    r->map = r->files.marked ? r->map : 0;
    if (r->map && r->at) {
        exl2__tensors_index_name(j, r->at + 1, name);
        exl2__log(r->c, EXL2_LOG_WARN, EXL2_LOG_ID_SHARD_MISSING, "%s names %s, which is missing",
                  r->index.reader.name, name);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_read_files(exl2__tensors_reader *r, exl2__work *work)
{
    void *memory;
    EXL2__TRY_DONE(exl2__tensor_files_slice(r->c, r->dir, &r->t->files, &r->files, work));
    r->headers_bytes = r->t->files.count * (uint64_t)sizeof(exl2__tensors_header);
    EXL2__TRY(exl2__alloc(r->c, r->headers_bytes, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    memset(memory, 0, (size_t)r->headers_bytes);
    r->headers = (exl2__tensors_header *)memory;
    return EXL2_OK;
}

/* Reads and parses the header of every file. */
EXL2__PRIVATE exl2_result exl2__tensors_read_headers(exl2__tensors_reader *r, exl2__work *work)
{
    for (; r->at < r->t->files.count; r->at++, r->key = 0) {
        const exl2__tensor_file *f = &r->t->files.items[r->at];
        exl2__tensors_header *h = &r->headers[r->at];
        if (!h->text.data) {
            EXL2__TRY(exl2__tensors_header_begin(r, f, h));
        }
        if (!h->json.tokens) {
            EXL2__TRY_DONE(exl2__file_read_slice(r->c, f->name, f->handle, 8, &h->text, &r->header_done, work));
            EXL2__TRY_DONE(exl2__json_parse_slice(r->c, &r->parse, work));
            h->json = r->parse.j;
            r->parse.j = (exl2__json){ 0 };
        }
        EXL2__TRY_DONE(exl2__tensors_header_count(r, &h->json, work));
        if (r->count > EXL2__TENSORS_COUNT_MAX) {
            return exl2__fail(r->c, EXL2_ERR_UNSUPPORTED, "%s: more than %u tensors", f->name,
                              EXL2__TENSORS_COUNT_MAX);
        }
    }
    exl2__tensors *t = r->t;
    uint64_t entry_bytes = exl2__align_up(r->count * sizeof *t->entries, EXL2__ARENA_ALIGN);
    uint64_t total = entry_bytes + exl2__align_up(r->name_bytes, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(r->c, &t->memory, total, EXL2_MEM_GENERAL));
    t->entries = (exl2__tensor *)exl2__arena_alloc(&t->memory, entry_bytes);
    r->names = (char *)exl2__arena_alloc(&t->memory, r->name_bytes);
    return EXL2_OK;
}

/* Appends a tensor to t->entries, and its name to r->names. */
EXL2__PRIVATE exl2_result exl2__tensors_add(exl2__tensors_reader *r, const exl2__tensors_header *h, uint32_t key)
{
    const exl2__json *j = &h->json;
    const exl2__tensor_file *f = &r->t->files.items[r->at];
    if (exl2__json_is(j, key, "__metadata__")) {
        return EXL2_OK;
    }
    size_t bytes = exl2__json_text(j, key, r->names, SIZE_MAX);
    r->names[bytes] = 0;
    for (size_t i = 0; i < bytes; i++) {
        if ((uint8_t)r->names[i] < 0x20) {
            r->names[i] = 0;
            return exl2__tensors_malformed(r->c, f->name, r->names, "no control character in a name");
        }
    }
    exl2__tensor *entry = &r->t->entries[r->t->count++];
    *entry = (exl2__tensor){ 0 };
    entry->name = r->names;
    entry->file = (uint16_t)r->at;
    r->names += bytes + 1;
    return exl2__tensors_entry(r->c, f, h, key + 1, entry);
}

/* Fills in the table. */
EXL2__PRIVATE exl2_result exl2__tensors_read_entries(exl2__tensors_reader *r, exl2__work *work)
{
    for (; r->at < r->t->files.count; r->at++, r->key = 0) {
        const exl2__tensors_header *h = &r->headers[r->at];
        r->key = r->key ? r->key : exl2__json_first(&h->json, 0);
        for (; r->key; r->key = exl2__json_next(&h->json, 0, r->key)) {
            if (!exl2__work_spend(work, 300)) {
                return EXL2_PENDING;
            }
            EXL2__TRY(exl2__tensors_add(r, h, r->key));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_close_headers(exl2__tensors_reader *r, exl2__work *work)
{
    for (; r->headers && r->at < r->t->files.count; r->at++) {
        if (!exl2__work_spend(work, r->headers[r->at].text.bytes / 64)) { /* to give pages back */
            return EXL2_PENDING;
        }
        exl2__json_close(r->c, &r->headers[r->at].json);
        exl2__blob_close(r->c, &r->headers[r->at].text);
    }
    exl2__free(r->c, r->headers, r->headers_bytes, EXL2_MEM_GENERAL);
    r->headers = NULL;
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

EXL2__PRIVATE exl2_result exl2__tensors_sort_ranges(exl2__tensors_reader *r, exl2__work *work)
{
    exl2__sort_items by_range = { r->t->entries, exl2__tensors_range_less, exl2__tensors_swap };
    return exl2__sort_slice(&by_range, r->t->count, &r->at, work);
}

/* The first tensor whose name is not less. The names must be sorted. */
static inline uint32_t exl2__tensors_lower(const exl2__tensors *t, const char *name)
{
    uint32_t low = 0, high = t->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool less = strcmp(t->entries[middle].name, name) < 0;
        low = less ? middle + 1 : low;
        high = less ? high : middle;
    }
    return low;
}

/* Checks that tensors do not overlap. `key` is 1 + the last one that is not empty. */
EXL2__PRIVATE exl2_result exl2__tensors_check_ranges(exl2__tensors_reader *r, exl2__work *work)
{
    for (; r->at < r->t->count; r->at++) {
        const exl2__tensor *e = &r->t->entries[r->at], *last = r->key ? &r->t->entries[r->key - 1] : NULL;
        if (!exl2__work_spend(work, 10)) {
            return EXL2_PENDING;
        }
        if (last && e->bytes && last->file == e->file && e->offset < last->offset + last->bytes) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, "%s: '%s' and '%s' overlap", r->t->files.items[e->file].name,
                              last->name, e->name);
        }
        r->key = e->bytes ? r->at + 1 : r->key;
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_sort_names(exl2__tensors_reader *r, exl2__work *work)
{
    exl2__sort_items by_name = { r->t->entries, exl2__tensors_name_less, exl2__tensors_swap };
    return exl2__sort_slice(&by_name, r->t->count, &r->at, work);
}

/* Of the copies of a tensor marks those that are not in the file that the index names, if one of them is. */
EXL2__PRIVATE exl2_result exl2__tensors_mark_stale(exl2__tensors_reader *r, exl2__work *work)
{
    const exl2__json *j = &r->index.parse.j;
    exl2__tensors *t = r->t;
    char name[EXL2__TENSORS_NAME_MAX];
    r->key = r->key || !r->map ? r->key : exl2__json_first(j, r->map);
    for (; r->key; r->key = exl2__json_next(j, r->map, r->key)) {
        if (!exl2__work_spend(work, 500)) {
            return EXL2_PENDING;
        }
        exl2__tensors_index_name(j, r->key, name);
        uint32_t first = exl2__tensors_lower(t, name), end = first, right = 0;
        for (; end < t->count && strcmp(t->entries[end].name, name) == 0; end++) { /* one in each file at most */
            t->entries[end].stale = !exl2__json_is(j, r->key + 1, t->files.items[t->entries[end].file].name);
            right += !t->entries[end].stale;
        }
        for (uint32_t i = first; right == 0 && i < end; i++) {
            t->entries[i].stale = false;
        }
    }
    return EXL2_OK;
}

/* Removes the marked tensors from the table. `key`: the number of those that are left. */
EXL2__PRIVATE exl2_result exl2__tensors_drop_stale(exl2__tensors_reader *r, exl2__work *work)
{
    for (; r->map && r->at < r->t->count; r->at++) {
        if (!exl2__work_spend(work, 10)) {
            return EXL2_PENDING;
        }
        if (!r->t->entries[r->at].stale) {
            r->t->entries[r->key++] = r->t->entries[r->at];
        }
    }
    r->t->count = r->map ? r->key : r->t->count;
    return EXL2_OK;
}

/* Checks that every name is unique. */
EXL2__PRIVATE exl2_result exl2__tensors_check_names(exl2__tensors_reader *r, exl2__work *work)
{
    const exl2__tensor_file *files = r->t->files.items;
    for (r->at = exl2__max32(r->at, 1); r->at < r->t->count; r->at++) {
        const exl2__tensor *a = &r->t->entries[r->at - 1], *b = &r->t->entries[r->at];
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        if (strcmp(a->name, b->name) == 0) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, "'%s' is in both %s and %s; remove stale shards", a->name,
                              files[exl2__min32(a->file, b->file)].name, files[exl2__max32(a->file, b->file)].name);
        }
    }
    return EXL2_OK;
}

/* ---- renaming ---- */

/* Replaces every `from` in name[EXL2__TENSORS_NAME_MAX] by `to`; of "^x" only an x at its beginning. false: the result
   is too long. */
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

/* Counts the bytes of the new names, and allocates them. */
EXL2__PRIVATE exl2_result exl2__tensors_measure_names(exl2__tensors_reader *r, exl2__work *work)
{
    char name[EXL2__TENSORS_NAME_MAX];
    exl2__tensors *t = r->t;
    r->name_bytes = r->at ? r->name_bytes : 0;
    for (; r->renames && r->at < t->count; r->at++) {
        if (!exl2__work_spend(work, 500)) {
            return EXL2_PENDING;
        }
        r->name_bytes += exl2__tensors_new_name(t->entries[r->at].name, r->renames, name) ? strlen(name) + 1 : 0;
    }
    if (r->name_bytes) {
        EXL2__TRY(exl2__arena_open(r->c, &t->renamed, exl2__align_up(r->name_bytes, EXL2__ARENA_ALIGN),
                                   EXL2_MEM_GENERAL));
        r->names = (char *)exl2__arena_alloc(&t->renamed, r->name_bytes);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_rename(exl2__tensors_reader *r, exl2__work *work)
{
    char name[EXL2__TENSORS_NAME_MAX];
    exl2__tensors *t = r->t;
    for (; t->renamed.base && r->at < t->count; r->at++) {
        if (!exl2__work_spend(work, 500)) {
            return EXL2_PENDING;
        }
        if (exl2__tensors_new_name(t->entries[r->at].name, r->renames, name)) {
            size_t length = strlen(name) + 1;
            memcpy(r->names, name, length);
            t->entries[r->at].name = r->names;
            r->names += length;
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__tensors_sort_renamed(exl2__tensors_reader *r, exl2__work *work)
{
    return r->t->renamed.base ? exl2__tensors_sort_names(r, work) : EXL2_OK;
}

/* ---- reading in slices ---- */

typedef exl2_result (*exl2__tensors_stage)(exl2__tensors_reader *r, exl2__work *work);

/* The names must be unique before they are changed, too. */
static const exl2__tensors_stage exl2__tensors_stages[] = {
    exl2__tensors_read_index, exl2__tensors_list_files, exl2__tensors_mark_files,
    exl2__tensors_read_files, exl2__tensors_read_headers, exl2__tensors_read_entries, exl2__tensors_close_headers,
    exl2__tensors_sort_ranges, exl2__tensors_check_ranges, exl2__tensors_sort_names, exl2__tensors_mark_stale,
    exl2__tensors_drop_stale, exl2__tensors_check_names,
    exl2__tensors_measure_names, exl2__tensors_rename, exl2__tensors_sort_renamed, exl2__tensors_check_names,
};

/* Begins to open the *.safetensors files of the folder and to check all headers. */
EXL2__PRIVATE void exl2__tensors_read_begin(exl2__tensors_reader *r, exl2__ctx *c, const char *dir,
                                            const char *const *renames, exl2__tensors *t)
{
    memset(r, 0, sizeof *r);
    *t = (exl2__tensors){ 0 };
    r->c = c;
    r->dir = dir;
    r->renames = renames;
    r->t = t;
}

EXL2__PRIVATE exl2_result exl2__tensors_read_slice(exl2__tensors_reader *r, exl2__work *work)
{
    while (r->stage < EXL2__COUNT(exl2__tensors_stages)) {
        EXL2__TRY_DONE(exl2__tensors_stages[r->stage](r, work));
        r->stage++;
        r->at = r->key = 0;
    }
    return EXL2_OK;
}

/* Frees what reading needed; if it was not finished, the table, too. Accepts a zeroed reader. */
EXL2__PRIVATE void exl2__tensors_read_end(exl2__tensors_reader *r)
{
    if (r->c) {
        exl2__work all = exl2__work_all();
        r->at = 0;
        exl2__tensors_close_headers(r, &all);
        exl2__json_parse_close(r->c, &r->parse);
        exl2__json_file_close(r->c, &r->index);
        if (r->stage < EXL2__COUNT(exl2__tensors_stages)) {
            exl2__tensors_close(r->c, r->t);
        }
    }
    memset(r, 0, sizeof *r);
}

/* ---- use ---- */

/* The tensor, or NULL. A binary search, because the names are untrusted: they could be chosen so that hashes collide.
   */
static inline const exl2__tensor *exl2__tensors_find(const exl2__tensors *t, const char *name)
{
    uint32_t at = exl2__tensors_lower(t, name);
    if (at == t->count || strcmp(t->entries[at].name, name) != 0) {
        return NULL;
    }
    t->entries[at].used = true;
    return &t->entries[at];
}

/* The tensor "<key>.<part>", or NULL. */
static inline const exl2__tensor *exl2__tensors_find_part(const exl2__tensors *t, const char *key, const char *part)
{
    char name[EXL2__TENSORS_NAME_MAX];
    size_t bytes = exl2__format(name, sizeof name, "%s.%s", key, part);
    return bytes == strlen(key) + 1 + strlen(part) ? exl2__tensors_find(t, name) : NULL;
}

/* Whether the family's renames have given "KEY.weight" its name. */
static inline bool exl2__tensors_is_renamed(const exl2__tensors *t, const char *key)
{
    const exl2__tensor *entry = exl2__tensors_find_part(t, key, "weight");
    const char *begin = (const char *)t->renamed.base, *name = entry ? entry->name : NULL;
    return begin && name && name >= begin && name < begin + t->renamed.size;
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
static inline exl2_result exl2__tensor_floats_range(exl2__ctx *c, const exl2__tensors *t, const exl2__tensor *entry,
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
    return exl2__tensor_floats_range(c, t, exl2__tensors_find(t, name), 0, count, out);
}

#endif
