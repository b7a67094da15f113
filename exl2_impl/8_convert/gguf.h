/* gguf.h: a GGUF file, versions 2 and 3 -> its keys and tensors, every number checked against the file.
   takes: a path, through the context's files hook.
   gives: exl2__gguf, exl2__gguf_open, exl2__gguf_key, exl2__gguf_tensor, typed reads of keys, exl2__gguf_read.
   owns:  the header block, the two tables, the open file; exl2__gguf_close frees them.
   next:  pack.h */
#ifndef EXL2__GGUF_H
#define EXL2__GGUF_H

#include "../0_base/arena.h"
#include "../0_base/hash.h"
#include "../0_base/sort.h"
#include "../1_load/file.h"
#include "gguf_types.h"

#define EXL2__GGUF_HEADER_MAX (256u << 20) /* bytes before the tensor data; a vocabulary of 256k takes 15 MB */
#define EXL2__GGUF_KEYS_MAX 4096u
#define EXL2__GGUF_TENSORS_MAX 8192u
#define EXL2__GGUF_NAME_MAX 127u /* bytes of a key or tensor name */
#define EXL2__GGUF_DIMS_MAX 4u

typedef enum exl2__gguf_kind {
    EXL2__GGUF_U8, EXL2__GGUF_I8, EXL2__GGUF_U16, EXL2__GGUF_I16, EXL2__GGUF_U32, EXL2__GGUF_I32, EXL2__GGUF_F32,
    EXL2__GGUF_BOOL, EXL2__GGUF_STRING, EXL2__GGUF_ARRAY, EXL2__GGUF_U64, EXL2__GGUF_I64, EXL2__GGUF_F64, EXL2__GGUF_KINDS
} exl2__gguf_kind;

typedef struct exl2__gguf_text { /* a view into the header; no NUL behind it */
    const char *data;
    uint64_t bytes;
} exl2__gguf_text;

typedef struct exl2__gguf_pair {
    exl2__gguf_text name;
    exl2__gguf_kind kind, item_kind; /* item_kind: of an array */
    uint64_t count;                  /* items of an array, else 1 */
    const uint8_t *data;             /* first item; a string is a u64 length and its bytes */
} exl2__gguf_pair;

typedef struct exl2__gguf_tensor {
    exl2__gguf_text name;
    const exl2__gguf_type *type;
    uint32_t dim_count;
    uint64_t dims[EXL2__GGUF_DIMS_MAX]; /* dims[0] is contiguous: a matrix is [out = dims[1], in = dims[0]] */
    uint64_t offset, bytes;             /* offset: in the file */
    bool used;                          /* set by an importer, so that it can name what it did not understand */
} exl2__gguf_tensor;

typedef struct exl2__gguf {
    exl2__ctx *ctx;
    const char *path; /* the caller's; for messages */
    void *file;
    uint64_t file_bytes;
    exl2__arena header, tables;
    exl2__gguf_pair *pairs;     /* [pair_count] */
    exl2__gguf_tensor *tensors; /* [tensor_count], in file order of their data */
    uint32_t version, pair_count, tensor_count;
    exl2__strtab pair_names, tensor_names;
} exl2__gguf;

static inline const char *exl2__gguf_kind_name(uint32_t kind)
{
    static const char *const names[EXL2__GGUF_KINDS] = { "u8", "i8", "u16", "i16", "u32", "i32", "f32",
                                                         "bool", "string", "array", "u64", "i64", "f64" };
    return kind < EXL2__GGUF_KINDS ? names[kind] : "unknown";
}

/* Bytes of one value; 0 for strings and arrays. */
static inline uint32_t exl2__gguf_kind_bytes(uint32_t kind)
{
    static const uint8_t bytes[EXL2__GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return bytes[kind];
}

/* ---- parsing: a cursor over the part of the header read so far ---- */

typedef struct exl2__gguf_cursor {
    exl2__gguf *g;
    const uint8_t *data;
    uint64_t at, bytes;
    bool dry; /* ran past `bytes` */
} exl2__gguf_cursor;

/* `bytes` bytes, or NULL and dry. */
static const uint8_t *exl2__gguf_take(exl2__gguf_cursor *k, uint64_t bytes)
{
    if (k->dry || bytes > k->bytes - k->at) {
        k->dry = true;
        return NULL;
    }
    k->at += bytes;
    return k->data + k->at - bytes;
}

static uint32_t exl2__gguf_take32(exl2__gguf_cursor *k)
{
    const uint8_t *p = exl2__gguf_take(k, 4);
    return p ? exl2__load32(p) : 0;
}

static uint64_t exl2__gguf_take64(exl2__gguf_cursor *k)
{
    const uint8_t *p = exl2__gguf_take(k, 8);
    return p ? exl2__load64(p) : 0;
}

static exl2__gguf_text exl2__gguf_take_text(exl2__gguf_cursor *k)
{
    exl2__gguf_text text = { NULL, exl2__gguf_take64(k) };
    text.data = (const char *)exl2__gguf_take(k, text.bytes);
    return text;
}

/* A key or tensor name: printable ASCII without spaces, so that messages may quote it. */
static exl2_result exl2__gguf_take_name(exl2__gguf_cursor *k, const char *what, uint32_t index, exl2__gguf_text *out)
{
    *out = exl2__gguf_take_text(k);
    if (out->bytes == 0 || out->bytes > EXL2__GGUF_NAME_MAX) {
        if (k->dry && out->bytes == 0) {
            return EXL2_OK;
        }
        return exl2__fail(k->g->ctx, EXL2_ERR_FORMAT, "%s: the name of %s %u has %llu bytes; 1 to %u are possible", k->g->path,
                          what, index, (unsigned long long)out->bytes, EXL2__GGUF_NAME_MAX);
    }
    for (uint64_t i = 0; !k->dry && i < out->bytes; i++) {
        if (out->data[i] < 0x21 || out->data[i] > 0x7E) {
            return exl2__fail(k->g->ctx, EXL2_ERR_FORMAT, "%s: the name of %s %u is not printable ASCII (byte %u at %llu)",
                              k->g->path, what, index, (unsigned)(unsigned char)out->data[i], (unsigned long long)i);
        }
    }
    return EXL2_OK;
}

#define EXL2__GGUF_NAME(text) (int)(text).bytes, (text).data /* for "%.*s" */

/* Steps over the items of one pair. */
static void exl2__gguf_skip_items(exl2__gguf_cursor *k, exl2__gguf_kind kind, uint64_t count)
{
    if (kind != EXL2__GGUF_STRING) {
        uint64_t bytes;
        exl2__mul64(count, exl2__gguf_kind_bytes(kind), &bytes); /* an overflow is UINT64_MAX, more than any file */
        exl2__gguf_take(k, bytes);
        return;
    }
    for (uint64_t i = 0; i < count && !k->dry; i++) {
        exl2__gguf_take_text(k);
    }
}

static exl2_result exl2__gguf_parse_pair(exl2__gguf_cursor *k, uint32_t index, exl2__gguf_pair *pair)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_take_name(k, "key", index, &pair->name));
    uint32_t kind = exl2__gguf_take32(k), item_kind = kind;
    pair->count = 1;
    if (kind == EXL2__GGUF_ARRAY) {
        item_kind = exl2__gguf_take32(k);
        pair->count = exl2__gguf_take64(k);
    }
    if (k->dry) {
        return EXL2_OK;
    }
    if (kind >= EXL2__GGUF_KINDS || item_kind >= EXL2__GGUF_KINDS) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s has the unknown value type %u", g->path,
                          EXL2__GGUF_NAME(pair->name), kind >= EXL2__GGUF_KINDS ? kind : item_kind);
    }
    if (item_kind == EXL2__GGUF_ARRAY) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: key %.*s is an array of arrays; only flat arrays are read", g->path,
                          EXL2__GGUF_NAME(pair->name));
    }
    pair->kind = (exl2__gguf_kind)kind;
    pair->item_kind = (exl2__gguf_kind)item_kind;
    pair->data = k->data + k->at;
    exl2__gguf_skip_items(k, pair->item_kind, pair->count);
    if (pair->kind == EXL2__GGUF_BOOL && !k->dry && pair->data[0] > 1) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s is a bool with the value %u", g->path,
                          EXL2__GGUF_NAME(pair->name), pair->data[0]);
    }
    return EXL2_OK;
}

/* Name, dimensions and type; the offset is still relative to the data region. */
static exl2_result exl2__gguf_parse_tensor(exl2__gguf_cursor *k, uint32_t index, exl2__gguf_tensor *t)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_take_name(k, "tensor", index, &t->name));
    t->dim_count = exl2__gguf_take32(k);
    if (!k->dry && (t->dim_count == 0 || t->dim_count > EXL2__GGUF_DIMS_MAX)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has %u dimensions; 1 to %u are possible", g->path,
                          EXL2__GGUF_NAME(t->name), t->dim_count, EXL2__GGUF_DIMS_MAX);
    }
    uint64_t items = 1;
    bool fits = true;
    for (uint32_t i = 0; i < EXL2__GGUF_DIMS_MAX; i++) {
        t->dims[i] = i < t->dim_count && !k->dry ? exl2__gguf_take64(k) : 1;
        fits = fits && t->dims[i] && exl2__mul64(items, t->dims[i], &items);
    }
    uint32_t type_id = exl2__gguf_take32(k);
    t->offset = exl2__gguf_take64(k);
    if (k->dry) {
        return EXL2_OK;
    }
    t->type = exl2__gguf_types_find(type_id);
    if (!t->type) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: tensor %.*s has the unknown GGML type %u", g->path,
                          EXL2__GGUF_NAME(t->name), type_id);
    }
    if (!fits || items > UINT64_MAX / 1024) { /* 1024: more than the bytes of any block */
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has the impossible shape %llu x %llu x %llu x %llu", g->path,
                          EXL2__GGUF_NAME(t->name), (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                          (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    }
    if (t->dims[0] % t->type->items != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s has rows of %llu, %s needs a multiple of %u", g->path,
                          EXL2__GGUF_NAME(t->name), (unsigned long long)t->dims[0], t->type->name, t->type->items);
    }
    t->bytes = items / t->type->items * t->type->bytes;
    return EXL2_OK;
}

/* Magic, version and counts; opens the tables. Twenty-four bytes, so a dry cursor is a file that is too short. */
static exl2_result exl2__gguf_parse_start(exl2__gguf_cursor *k)
{
    exl2__gguf *g = k->g;
    const uint8_t *magic = exl2__gguf_take(k, 4);
    g->version = exl2__gguf_take32(k);
    uint64_t tensor_count = exl2__gguf_take64(k), pair_count = exl2__gguf_take64(k);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: not a GGUF file (it does not begin with GGUF)", g->path);
    }
    if (g->version == 0x02000000u || g->version == 0x03000000u) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: a big-endian GGUF file; only little-endian ones are read", g->path);
    }
    if (k->dry) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the file ends after %llu bytes, inside its header", g->path,
                          (unsigned long long)g->file_bytes);
    }
    if (g->version < 2 || g->version > 3) {
        return exl2__fail(g->ctx, EXL2_ERR_UNSUPPORTED, "%s: GGUF version %u; versions 2 and 3 are read", g->path, g->version);
    }
    if (pair_count > EXL2__GGUF_KEYS_MAX || tensor_count > EXL2__GGUF_TENSORS_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: %llu keys and %llu tensors; at most %u and %u are possible", g->path,
                          (unsigned long long)pair_count, (unsigned long long)tensor_count, EXL2__GGUF_KEYS_MAX,
                          EXL2__GGUF_TENSORS_MAX);
    }
    g->pair_count = (uint32_t)pair_count;
    g->tensor_count = (uint32_t)tensor_count;
    return EXL2_OK;
}

static const char *exl2__gguf_pair_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_pair *pair = &((const exl2__gguf *)owner)->pairs[entry];
    *bytes = (size_t)pair->name.bytes;
    return pair->name.data;
}

static const char *exl2__gguf_tensor_name(const void *owner, uint32_t entry, size_t *bytes)
{
    const exl2__gguf_tensor *tensor = &((const exl2__gguf *)owner)->tensors[entry];
    *bytes = (size_t)tensor->name.bytes;
    return tensor->name.data;
}

static void exl2__gguf_lay_tables(exl2__gguf *g, exl2__arena *a)
{
    g->pairs = (exl2__gguf_pair *)exl2__arena_take_zeroed(a, (uint64_t)g->pair_count * sizeof *g->pairs);
    g->tensors = (exl2__gguf_tensor *)exl2__arena_take_zeroed(a, (uint64_t)g->tensor_count * sizeof *g->tensors);
    exl2__strtab_make(&g->pair_names, a, g->pair_count);
    exl2__strtab_make(&g->tensor_names, a, g->tensor_count);
    g->pair_names.name = exl2__gguf_pair_name;
    g->tensor_names.name = exl2__gguf_tensor_name;
    g->pair_names.owner = g->tensor_names.owner = g;
}

/* Enters `name` as entry `index`; refuses a second one of that name. */
static exl2_result exl2__gguf_enter(exl2__gguf *g, exl2__strtab *names, const char *what, exl2__gguf_text name, uint32_t index)
{
    uint32_t slot;
    if (exl2__strtab_find(names, name.data, (size_t)name.bytes, &slot) != UINT32_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: there are two %ss called %.*s", g->path, what, EXL2__GGUF_NAME(name));
    }
    exl2__strtab_put(names, slot, index);
    return EXL2_OK;
}

/* Keys and tensors of a header of which `k` holds the beginning. k->dry afterwards: it held too little. */
static exl2_result exl2__gguf_parse(exl2__gguf_cursor *k)
{
    exl2__gguf *g = k->g;
    EXL2__TRY(exl2__gguf_parse_start(k));
    if (!g->tables.base) {
        exl2__arena measure = { 0 };
        exl2__gguf_lay_tables(g, &measure);
        EXL2__TRY(exl2__arena_open(g->ctx, &g->tables, measure.used, EXL2_MEM_GENERAL));
    }
    g->tables.used = 0;
    exl2__gguf_lay_tables(g, &g->tables);
    for (uint32_t i = 0; i < g->pair_count && !k->dry; i++) {
        EXL2__TRY(exl2__gguf_parse_pair(k, i, &g->pairs[i]));
        if (!k->dry) {
            EXL2__TRY(exl2__gguf_enter(g, &g->pair_names, "key", g->pairs[i].name, i));
        }
    }
    for (uint32_t i = 0; i < g->tensor_count && !k->dry; i++) {
        EXL2__TRY(exl2__gguf_parse_tensor(k, i, &g->tensors[i]));
    }
    return EXL2_OK;
}

/* ---- keys ---- */

/* NULL: no such key. */
static const exl2__gguf_pair *exl2__gguf_key(const exl2__gguf *g, const char *name)
{
    uint32_t entry = exl2__strtab_find(&g->pair_names, name, strlen(name), NULL);
    return entry == UINT32_MAX ? NULL : &g->pairs[entry];
}

static exl2_result exl2__gguf_wrong_kind(const exl2__gguf *g, const exl2__gguf_pair *pair, const char *wanted)
{
    return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s is of type %s, expected %s", g->path, EXL2__GGUF_NAME(pair->name),
                      exl2__gguf_kind_name(pair->kind), wanted);
}

/* Any integer type, as long as its value fits. An absent key leaves *value as it is. */
static exl2_result exl2__gguf_get_u32(const exl2__gguf *g, const char *name, uint32_t *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (!pair) {
        return EXL2_OK;
    }
    uint64_t wide = 0;
    switch (pair->kind) {
    case EXL2__GGUF_U8: wide = pair->data[0]; break;
    case EXL2__GGUF_I8: wide = (uint64_t)(int8_t)pair->data[0]; break; /* a negative one becomes too large */
    case EXL2__GGUF_U16: wide = exl2__load16(pair->data); break;
    case EXL2__GGUF_I16: wide = (uint64_t)(int16_t)exl2__load16(pair->data); break;
    case EXL2__GGUF_U32: wide = exl2__load32(pair->data); break;
    case EXL2__GGUF_I32: wide = (uint64_t)(int32_t)exl2__load32(pair->data); break;
    case EXL2__GGUF_U64:
    case EXL2__GGUF_I64: wide = exl2__load64(pair->data); break;
    default: return exl2__gguf_wrong_kind(g, pair, "an integer");
    }
    if (wide > INT32_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is %lld, out of range", g->path, name, (long long)wide);
    }
    *value = (uint32_t)wide;
    return EXL2_OK;
}

/* An absent key leaves *value as it is. */
static exl2_result exl2__gguf_get_f32(const exl2__gguf *g, const char *name, float *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (!pair) {
        return EXL2_OK;
    }
    if (pair->kind == EXL2__GGUF_F64) {
        uint64_t bits = exl2__load64(pair->data);
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        *value = (float)wide;
    } else if (pair->kind == EXL2__GGUF_F32) {
        *value = exl2__bits_float(exl2__load32(pair->data));
    } else {
        return exl2__gguf_wrong_kind(g, pair, "f32");
    }
    if (!exl2__float_is_finite(*value)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is not a finite number", g->path, name);
    }
    return EXL2_OK;
}

/* An absent key leaves *value as it is. */
static exl2_result exl2__gguf_get_bool(const exl2__gguf *g, const char *name, bool *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (pair && pair->kind != EXL2__GGUF_BOOL) {
        return exl2__gguf_wrong_kind(g, pair, "bool");
    }
    *value = pair ? pair->data[0] != 0 : *value;
    return EXL2_OK;
}

static inline exl2__gguf_text exl2__gguf_string_at(const uint8_t *data)
{
    exl2__gguf_text text = { (const char *)data + 8, exl2__load64(data) };
    return text;
}

/* An absent key leaves *value as it is. */
static exl2_result exl2__gguf_get_text(const exl2__gguf *g, const char *name, exl2__gguf_text *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (pair && pair->kind != EXL2__GGUF_STRING) {
        return exl2__gguf_wrong_kind(g, pair, "string");
    }
    *value = pair ? exl2__gguf_string_at(pair->data) : *value;
    return EXL2_OK;
}

/* *out: NULL when the key is absent; else an array of that kind. */
static exl2_result exl2__gguf_get_array(const exl2__gguf *g, const char *name, exl2__gguf_kind item_kind, const exl2__gguf_pair **out)
{
    *out = exl2__gguf_key(g, name);
    if (*out && ((*out)->kind != EXL2__GGUF_ARRAY || (*out)->item_kind != item_kind)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is of type %s of %s, expected an array of %s", g->path, name,
                          exl2__gguf_kind_name((*out)->kind), exl2__gguf_kind_name((*out)->item_kind),
                          exl2__gguf_kind_name(item_kind));
    }
    return EXL2_OK;
}

/* ---- tensors ---- */

/* NULL: no such tensor. */
static exl2__gguf_tensor *exl2__gguf_tensor_find(const exl2__gguf *g, const char *name)
{
    uint32_t entry = exl2__strtab_find(&g->tensor_names, name, strlen(name), NULL);
    return entry == UINT32_MAX ? NULL : &g->tensors[entry];
}

static bool exl2__gguf_earlier(const void *tensors, uint32_t a, uint32_t b)
{
    return ((const exl2__gguf_tensor *)tensors)[a].offset < ((const exl2__gguf_tensor *)tensors)[b].offset;
}

static void exl2__gguf_swap(void *tensors, uint32_t a, uint32_t b)
{
    exl2__gguf_tensor *t = (exl2__gguf_tensor *)tensors, kept = t[a];
    t[a] = t[b];
    t[b] = kept;
}

/* Offsets become file offsets, tensors come in file order; data inside the file, aligned, without overlap. */
static exl2_result exl2__gguf_place_tensors(exl2__gguf *g, uint64_t header_bytes)
{
    uint32_t alignment = 32;
    EXL2__TRY(exl2__gguf_get_u32(g, "general.alignment", &alignment));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: general.alignment is %u, not a power of two", g->path, alignment);
    }
    uint64_t data_start = exl2__align_up(header_bytes, alignment);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        exl2__gguf_tensor tensor = g->tensors[i];
        uint64_t end = UINT64_MAX;
        if (tensor.offset % alignment != 0) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s begins at %llu, not a multiple of %u", g->path,
                              EXL2__GGUF_NAME(tensor.name), (unsigned long long)tensor.offset, alignment);
        }
        if (!exl2__add64(tensor.offset, data_start, &tensor.offset) || !exl2__add64(tensor.offset, tensor.bytes, &end) ||
            end > g->file_bytes) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s ends at %llu, the file has %llu bytes (truncated download?)",
                              g->path, EXL2__GGUF_NAME(tensor.name), (unsigned long long)end, (unsigned long long)g->file_bytes);
        }
        g->tensors[i].offset = tensor.offset;
    }
    exl2__sort_items order = { g->tensors, exl2__gguf_earlier, exl2__gguf_swap };
    exl2__sort(&order, g->tensor_count);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const exl2__gguf_tensor *t = &g->tensors[i];
        if (i > 0 && t[-1].offset + t[-1].bytes > t->offset) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensors %.*s and %.*s overlap", g->path, EXL2__GGUF_NAME(t[-1].name),
                              EXL2__GGUF_NAME(t->name));
        }
        EXL2__TRY(exl2__gguf_enter(g, &g->tensor_names, "tensor", t->name, i));
    }
    return EXL2_OK;
}

/* `bytes` bytes of the file from `offset` on. */
static exl2_result exl2__gguf_read(const exl2__gguf *g, uint64_t offset, void *out, uint64_t bytes)
{
    return exl2__file_read_at(g->ctx, g->path, g->file, offset, out, bytes);
}

/* Reads the header in blocks that double until it is whole, so that a small header costs little and a large one is
   parsed at most twice over. */
static exl2_result exl2__gguf_read_header(exl2__gguf *g)
{
    for (uint64_t bytes = 1u << 20;; bytes *= 2) {
        bytes = exl2__min64(bytes, g->file_bytes);
        exl2__arena_close(g->ctx, &g->header);
        EXL2__TRY(exl2__arena_open(g->ctx, &g->header, bytes, EXL2_MEM_GENERAL));
        EXL2__TRY(exl2__gguf_read(g, 0, g->header.base, bytes));
        exl2__gguf_cursor cursor = { g, g->header.base, 0, bytes, false };
        EXL2__TRY(exl2__gguf_parse(&cursor));
        if (!cursor.dry) {
            return exl2__gguf_place_tensors(g, cursor.at);
        }
        if (bytes == g->file_bytes) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the file ends after %llu bytes, inside its header", g->path,
                              (unsigned long long)bytes);
        }
        if (bytes >= EXL2__GGUF_HEADER_MAX) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the header is longer than %u bytes", g->path, EXL2__GGUF_HEADER_MAX);
        }
    }
}

/* Frees all; accepts zeroed and half-open ones. */
static void exl2__gguf_close(exl2__gguf *g)
{
    if (g->file) {
        g->ctx->files.close(g->ctx->files.user, g->file);
    }
    if (g->ctx) {
        exl2__arena_close(g->ctx, &g->header);
        exl2__arena_close(g->ctx, &g->tables);
    }
    *g = (exl2__gguf){ 0 };
}

/* Opens and checks; on failure *g is closed. `path` must outlive *g, and *g must not move. */
static exl2_result exl2__gguf_open(exl2__ctx *c, const char *path, exl2__gguf *g)
{
    *g = (exl2__gguf){ 0 };
    g->ctx = c;
    g->path = path;
    g->file = c->files.open(c->files.user, path, &g->file_bytes);
    if (!g->file) {
        return exl2__fail(c, EXL2_ERR_IO, "%s: no such file, or it cannot be opened", path);
    }
    exl2_result result = exl2__gguf_read_header(g);
    if (result < 0) {
        exl2__gguf_close(g);
    }
    return result;
}

#endif
