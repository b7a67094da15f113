/* gguf_header.h: parses the part of a GGUF file before its tensor data: keys with their values, tensors with their
   shapes.
   takes: the first bytes of the file; if they are too few, the caller repeats the call with more.
   gives: exl2__gguf and its parts, exl2__gguf_parse.
   owns:  nothing; the tables lie in the arena of the exl2__gguf. */
#ifndef EXL2__GGUF_HEADER_H
#define EXL2__GGUF_HEADER_H

#include "../../0_base/hash.h"
#include "../../1_load/file.h"
#include "gguf_types.h"

#define EXL2__GGUF_HEADER_MAX (256u << 20) /* bytes before the tensor data; a vocabulary of 256k needs 15 MB */
#define EXL2__GGUF_KEYS_MAX 4096u
#define EXL2__GGUF_TENSORS_MAX 8192u
#define EXL2__GGUF_NAME_MAX 127u /* bytes of a key or tensor name */
#define EXL2__GGUF_DIMS_MAX 4u

typedef enum exl2__gguf_kind {
    EXL2__GGUF_U8,
    EXL2__GGUF_I8,
    EXL2__GGUF_U16,
    EXL2__GGUF_I16,
    EXL2__GGUF_U32,
    EXL2__GGUF_I32,
    EXL2__GGUF_F32,
    EXL2__GGUF_BOOL,
    EXL2__GGUF_STRING,
    EXL2__GGUF_ARRAY,
    EXL2__GGUF_U64,
    EXL2__GGUF_I64,
    EXL2__GGUF_F64,
    EXL2__GGUF_KINDS
} exl2__gguf_kind;

typedef struct exl2__gguf_text { /* a view into the header, without a NUL at its end */
    const char *data;
    uint64_t bytes;
} exl2__gguf_text;

typedef struct exl2__gguf_pair {
    exl2__gguf_text name;
    exl2__gguf_kind kind, item_kind; /* item_kind: kind of an array's items, else `kind` */
    uint64_t count;                  /* number of items of an array, else 1 */
    const uint8_t *data;             /* first item; a string is a u64 length and its bytes */
    uint64_t bytes;                  /* of all items */
} exl2__gguf_pair;

typedef struct exl2__gguf_tensor {
    exl2__gguf_text name;
    const exl2__gguf_type *type;
    uint32_t dim_count;
    uint64_t dims[EXL2__GGUF_DIMS_MAX]; /* dims[0] is contiguous: a matrix is [out = dims[1], in = dims[0]] */
    uint64_t offset, bytes;             /* offset: from the beginning of the file, or of the first of all parts */
    bool used;                          /* set by the importer, which rejects files with unused tensors */
} exl2__gguf_tensor;

typedef struct exl2__gguf {
    exl2__ctx *ctx;
    const char *path; /* the caller's string; for messages */
    void *file;
    uint64_t file_bytes;
    exl2__arena header, tables;
    exl2__gguf_pair *pairs;     /* [pair_count] */
    exl2__gguf_tensor *tensors; /* [tensor_count], sorted by offset */
    uint32_t version, pair_count, tensor_count;
    exl2__strtab pair_names, tensor_names;
    struct exl2__gguf *parts; /* [part_count] the files of a model that is split (gguf_split.h); `file` is then NULL */
    uint32_t part_count;
    uint64_t begin;           /* of a part: what its offsets are counted from where all parts are one model */
} exl2__gguf;

static inline const char *exl2__gguf_kind_name(uint32_t kind)
{
    static const char *const names[EXL2__GGUF_KINDS] = { "u8", "i8", "u16", "i16", "u32", "i32", "f32",
                                                         "bool", "string", "array", "u64", "i64", "f64" };
    return kind < EXL2__GGUF_KINDS ? names[kind] : "unknown";
}

/* Size of one value in bytes; 0 for strings and arrays. */
static inline uint32_t exl2__gguf_kind_bytes(uint32_t kind)
{
    static const uint8_t bytes[EXL2__GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return bytes[kind];
}

/* ---- parsing: a cursor over the part of the header that has been read ---- */

typedef struct exl2__gguf_cursor {
    exl2__gguf *g;
    const uint8_t *data;
    uint64_t at, bytes;
    bool truncated; /* more than `bytes` bytes were needed; once set, it stays set */
} exl2__gguf_cursor;

/* The next `bytes` bytes; if there are not enough, NULL, and k->truncated is set. */
EXL2__PRIVATE const uint8_t *exl2__gguf_next(exl2__gguf_cursor *k, uint64_t bytes)
{
    if (k->truncated || bytes > k->bytes - k->at) {
        k->truncated = true;
        return NULL;
    }
    k->at += bytes;
    return k->data + k->at - bytes;
}

EXL2__PRIVATE uint32_t exl2__gguf_next32(exl2__gguf_cursor *k)
{
    const uint8_t *p = exl2__gguf_next(k, 4);
    return p ? exl2__load32(p) : 0;
}

EXL2__PRIVATE uint64_t exl2__gguf_next64(exl2__gguf_cursor *k)
{
    const uint8_t *p = exl2__gguf_next(k, 8);
    return p ? exl2__load64(p) : 0;
}

EXL2__PRIVATE exl2__gguf_text exl2__gguf_next_text(exl2__gguf_cursor *k)
{
    exl2__gguf_text text = { NULL, exl2__gguf_next64(k) };
    text.data = (const char *)exl2__gguf_next(k, text.bytes);
    return text;
}

/* Reads the name of a key or tensor. It must be printable ASCII without spaces, so that messages can quote it. */
EXL2__PRIVATE exl2_result exl2__gguf_next_name(exl2__gguf_cursor *k, const char *what, uint32_t index,
                                               exl2__gguf_text *out)
{
    *out = exl2__gguf_next_text(k);
    if (out->bytes == 0 || out->bytes > EXL2__GGUF_NAME_MAX) {
        if (k->truncated && out->bytes == 0) {
            return EXL2_OK;
        }
        return exl2__fail(k->g->ctx, EXL2_ERR_FORMAT, "%s: the name of %s %u has %llu bytes, expected 1 to %u",
                          k->g->path, what, index, (unsigned long long)out->bytes, EXL2__GGUF_NAME_MAX);
    }
    for (uint64_t i = 0; !k->truncated && i < out->bytes; i++) {
        if (out->data[i] < 0x21 || out->data[i] > 0x7E) {
            return exl2__fail(k->g->ctx, EXL2_ERR_FORMAT,
                              "%s: the name of %s %u is not printable ASCII (byte %u at %llu)", k->g->path, what, index,
                              (unsigned)(unsigned char)out->data[i], (unsigned long long)i);
        }
    }
    return EXL2_OK;
}

#define EXL2__GGUF_NAME(text) (int)(text).bytes, (text).data /* for "%.*s" */

/* Skips the items of one pair. */
EXL2__PRIVATE void exl2__gguf_skip_items(exl2__gguf_cursor *k, exl2__gguf_kind kind, uint64_t count)
{
    if (kind != EXL2__GGUF_STRING) {
        uint64_t bytes;
        exl2__mul64(count, exl2__gguf_kind_bytes(kind), &bytes); /* overflow: UINT64_MAX, larger than any file */
        exl2__gguf_next(k, bytes);
        return;
    }
    for (uint64_t i = 0; i < count && !k->truncated; i++) {
        exl2__gguf_next_text(k);
    }
}

EXL2__PRIVATE exl2_result exl2__gguf_parse_pair(exl2__gguf_cursor *k, uint32_t index, exl2__gguf_pair *pair)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_next_name(k, "key", index, &pair->name));
    uint32_t kind = exl2__gguf_next32(k), item_kind = kind;
    pair->count = 1;
    if (kind == EXL2__GGUF_ARRAY) {
        item_kind = exl2__gguf_next32(k);
        pair->count = exl2__gguf_next64(k);
    }
    if (k->truncated) {
        return EXL2_OK;
    }
    if (kind >= EXL2__GGUF_KINDS || item_kind >= EXL2__GGUF_KINDS) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s has the unsupported value type %u", g->path,
                          EXL2__GGUF_NAME(pair->name), kind >= EXL2__GGUF_KINDS ? kind : item_kind);
    }
    if (item_kind == EXL2__GGUF_ARRAY) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: key %.*s is an array of arrays, which is not supported",
                          g->path, EXL2__GGUF_NAME(pair->name));
    }
    pair->kind = (exl2__gguf_kind)kind;
    pair->item_kind = (exl2__gguf_kind)item_kind;
    pair->data = k->data + k->at;
    uint64_t begin = k->at;
    exl2__gguf_skip_items(k, pair->item_kind, pair->count);
    pair->bytes = k->at - begin;
    if (pair->kind == EXL2__GGUF_BOOL && !k->truncated && pair->data[0] > 1) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s is a bool with the value %u, expected 0 or 1", g->path,
                          EXL2__GGUF_NAME(pair->name), pair->data[0]);
    }
    return EXL2_OK;
}

/* Reads name, dimensions, type and offset; the offset is still relative to the tensor data. */
EXL2__PRIVATE exl2_result exl2__gguf_parse_tensor(exl2__gguf_cursor *k, uint32_t index, exl2__gguf_tensor *t)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_next_name(k, "tensor", index, &t->name));
    t->dim_count = exl2__gguf_next32(k);
    if (!k->truncated && (t->dim_count == 0 || t->dim_count > EXL2__GGUF_DIMS_MAX)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has %u dimensions, expected 1 to %u", g->path,
                          EXL2__GGUF_NAME(t->name), t->dim_count, EXL2__GGUF_DIMS_MAX);
    }
    uint64_t items = 1;
    bool fits = true;
    for (uint32_t i = 0; i < EXL2__GGUF_DIMS_MAX; i++) {
        t->dims[i] = i < t->dim_count && !k->truncated ? exl2__gguf_next64(k) : 1;
        fits = fits && t->dims[i] && exl2__mul64(items, t->dims[i], &items);
    }
    uint32_t type_id = exl2__gguf_next32(k);
    t->offset = exl2__gguf_next64(k);
    if (k->truncated) {
        return EXL2_OK;
    }
    t->type = exl2__gguf_types_find(type_id);
    if (!t->type) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: tensor %.*s has the unsupported GGML type %u", g->path,
                          EXL2__GGUF_NAME(t->name), type_id);
    }
    if (!fits || items > UINT64_MAX / 1024) { /* no block has 1024 bytes */
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has the impossible shape %llu x %llu x %llu x %llu",
                          g->path, EXL2__GGUF_NAME(t->name), (unsigned long long)t->dims[0],
                          (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                          (unsigned long long)t->dims[3]);
    }
    if (t->dims[0] % t->type->items != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has rows of %llu, expected a multiple of %u for %s",
                          g->path, EXL2__GGUF_NAME(t->name), (unsigned long long)t->dims[0], t->type->items,
                          t->type->name);
    }
    t->bytes = items / t->type->items * t->type->bytes;
    return EXL2_OK;
}

/* Reads magic, version and counts. They are 24 bytes, so if they do not suffice, the file itself is too short. */
EXL2__PRIVATE exl2_result exl2__gguf_parse_start(exl2__gguf_cursor *k)
{
    exl2__gguf *g = k->g;
    const uint8_t *magic = exl2__gguf_next(k, 4);
    g->version = exl2__gguf_next32(k);
    uint64_t tensor_count = exl2__gguf_next64(k), pair_count = exl2__gguf_next64(k);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        const char *what = exl2__file_misplaced((const char *)k->data, k->bytes);
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s%s%s", g->path, what ? " is " : ": not a GGUF file: ",
                          what ? what : "it does not begin with GGUF");
    }
    if (g->version == 0x02000000u || g->version == 0x03000000u) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED,
                          "%s: the file is big-endian, only little-endian GGUF is supported", g->path);
    }
    if (k->truncated) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the file ends after %llu bytes, inside its header", g->path,
                          (unsigned long long)g->file_bytes);
    }
    if (g->version < 2 || g->version > 3) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: the file has GGUF version %u, only 2 and 3 are supported",
                          g->path, g->version);
    }
    if (pair_count > EXL2__GGUF_KEYS_MAX || tensor_count > EXL2__GGUF_TENSORS_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                          "%s: the file has %llu keys and %llu tensors, at most %u and %u are supported", g->path,
                          (unsigned long long)pair_count, (unsigned long long)tensor_count, EXL2__GGUF_KEYS_MAX,
                          EXL2__GGUF_TENSORS_MAX);
    }
    g->pair_count = (uint32_t)pair_count;
    g->tensor_count = (uint32_t)tensor_count;
    return EXL2_OK;
}

EXL2__PRIVATE const char *exl2__gguf_pair_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_pair *pair = &((const exl2__gguf *)owner)->pairs[entry];
    *bytes = (size_t)pair->name.bytes;
    return pair->name.data;
}

EXL2__PRIVATE const char *exl2__gguf_tensor_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_tensor *tensor = &((const exl2__gguf *)owner)->tensors[entry];
    *bytes = (size_t)tensor->name.bytes;
    return tensor->name.data;
}

EXL2__PRIVATE void exl2__gguf_layout(exl2__gguf *g, exl2__arena *a)
{
    g->pairs = (exl2__gguf_pair *)exl2__arena_alloc_zeroed(a, (uint64_t)g->pair_count * sizeof *g->pairs);
    g->tensors = (exl2__gguf_tensor *)exl2__arena_alloc_zeroed(a, (uint64_t)g->tensor_count * sizeof *g->tensors);
    exl2__strtab_make(&g->pair_names, a, g->pair_count);
    exl2__strtab_make(&g->tensor_names, a, g->tensor_count);
    g->pair_names.name = exl2__gguf_pair_name;
    g->tensor_names.name = exl2__gguf_tensor_name;
    g->pair_names.owner = g->tensor_names.owner = g;
}

/* Enters `name` as entry `index`; rejects a name that occurs twice. */
EXL2__PRIVATE exl2_result exl2__gguf_enter(exl2__gguf *g, exl2__strtab *names, const char *what, exl2__gguf_text name,
                                           uint32_t index)
{
    uint32_t slot = 0;
    if (exl2__strtab_find(names, name.data, (size_t)name.bytes, &slot) != UINT32_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: there are two %ss called %.*s", g->path, what,
                          EXL2__GGUF_NAME(name));
    }
    if (!exl2__strtab_put(names, slot, index)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: too many of its %ss have names with the same hash", g->path,
                          what);
    }
    return EXL2_OK;
}

/* Parses keys and tensors. `k` has the beginning of the file; if it was too little, k->truncated is set afterwards. */
EXL2__PRIVATE exl2_result exl2__gguf_parse(exl2__gguf_cursor *k)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_parse_start(k));
    if (!g->tables.base) {
        exl2__arena measure = { 0 };
        exl2__gguf_layout(g, &measure);
        EXL2__TRY(exl2__arena_open(g->ctx, &g->tables, measure.used, EXL2_MEM_GENERAL));
    }
    g->tables.used = 0;
    exl2__gguf_layout(g, &g->tables);
    for (uint32_t i = 0; i < g->pair_count && !k->truncated; i++) {
        EXL2__TRY(exl2__gguf_parse_pair(k, i, &g->pairs[i]));
        if (!k->truncated) {
            EXL2__TRY(exl2__gguf_enter(g, &g->pair_names, "key", g->pairs[i].name, i));
        }
    }
    for (uint32_t i = 0; i < g->tensor_count && !k->truncated; i++) {
        EXL2__TRY(exl2__gguf_parse_tensor(k, i, &g->tensors[i]));
    }
    return EXL2_OK;
}

#endif
