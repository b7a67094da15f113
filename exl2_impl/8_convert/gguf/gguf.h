/* gguf.h: opens a GGUF file, version 2 or 3, and gives its keys and tensors. All offsets and sizes are checked.
   takes: a path, which is opened by the context's file functions.
   gives: exl2__gguf_open, _close, _key; _get_* to read keys of a type; _tensor_find, _read.
   owns:  the header, the two tables and the open file, until exl2__gguf_close. */
#ifndef EXL2__GGUF_H
#define EXL2__GGUF_H

#include "../../0_base/sort.h"
#include "../../1_load/file.h"
#include "gguf_header.h"

/* ---- keys ---- */

/* NULL: no such key. */
EXL2__PRIVATE const exl2__gguf_pair *exl2__gguf_key(const exl2__gguf *g, const char *name)
{
    uint32_t entry = exl2__strtab_find(&g->pair_names, name, strlen(name), NULL);
    return entry == UINT32_MAX ? NULL : &g->pairs[entry];
}

EXL2__PRIVATE exl2_result exl2__gguf_wrong_kind(const exl2__gguf *g, const exl2__gguf_pair *pair, const char *wanted)
{
    return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %.*s is of type %s, expected %s", g->path,
                      EXL2__GGUF_NAME(pair->name), exl2__gguf_kind_name(pair->kind), wanted);
}

/* Reads an integer of any type, up to INT32_MAX. If the key is absent, *value does not change. */
EXL2__PRIVATE exl2_result exl2__gguf_get_u32(const exl2__gguf *g, const char *name, uint32_t *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (!pair) {
        return EXL2_OK;
    }
    uint64_t wide = 0;
    switch (pair->kind) {
    case EXL2__GGUF_U8: wide = pair->data[0]; break;
    case EXL2__GGUF_I8: wide = (uint64_t)(int8_t)pair->data[0]; break; /* a negative value becomes too large */
    case EXL2__GGUF_U16: wide = exl2__load16(pair->data); break;
    case EXL2__GGUF_I16: wide = (uint64_t)(int16_t)exl2__load16(pair->data); break;
    case EXL2__GGUF_U32: wide = exl2__load32(pair->data); break;
    case EXL2__GGUF_I32: wide = (uint64_t)(int32_t)exl2__load32(pair->data); break;
    case EXL2__GGUF_U64:
    case EXL2__GGUF_I64: wide = exl2__load64(pair->data); break;
    default: return exl2__gguf_wrong_kind(g, pair, "an integer");
    }
    if (wide > INT32_MAX) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is %lld, which is out of range", g->path, name,
                          (long long)wide);
    }
    *value = (uint32_t)wide;
    return EXL2_OK;
}

/* Reads f32 or f64. If the key is absent, *value does not change. */
EXL2__PRIVATE exl2_result exl2__gguf_get_f32(const exl2__gguf *g, const char *name, float *value)
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

/* If the key is absent, *value does not change. */
EXL2__PRIVATE exl2_result exl2__gguf_get_bool(const exl2__gguf *g, const char *name, bool *value)
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

/* If the key is absent, *value does not change. */
EXL2__PRIVATE exl2_result exl2__gguf_get_text(const exl2__gguf *g, const char *name, exl2__gguf_text *value)
{
    const exl2__gguf_pair *pair = exl2__gguf_key(g, name);
    if (pair && pair->kind != EXL2__GGUF_STRING) {
        return exl2__gguf_wrong_kind(g, pair, "string");
    }
    *value = pair ? exl2__gguf_string_at(pair->data) : *value;
    return EXL2_OK;
}

/* *out: an array with items of this kind, or NULL if the key is absent. */
EXL2__PRIVATE exl2_result exl2__gguf_get_array(const exl2__gguf *g, const char *name, exl2__gguf_kind item_kind,
                                               const exl2__gguf_pair **out)
{
    *out = exl2__gguf_key(g, name);
    if (*out && ((*out)->kind != EXL2__GGUF_ARRAY || (*out)->item_kind != item_kind)) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: key %s is of type %s of %s, expected an array of %s", g->path,
                          name, exl2__gguf_kind_name((*out)->kind), exl2__gguf_kind_name((*out)->item_kind),
                          exl2__gguf_kind_name(item_kind));
    }
    return EXL2_OK;
}

/* ---- tensors ---- */

/* NULL: no such tensor. */
EXL2__PRIVATE exl2__gguf_tensor *exl2__gguf_tensor_find(const exl2__gguf *g, const char *name)
{
    uint32_t entry = exl2__strtab_find(&g->tensor_names, name, strlen(name), NULL);
    return entry == UINT32_MAX ? NULL : &g->tensors[entry];
}

EXL2__PRIVATE bool exl2__gguf_earlier(const void *tensors, uint32_t a, uint32_t b)
{
    return ((const exl2__gguf_tensor *)tensors)[a].offset < ((const exl2__gguf_tensor *)tensors)[b].offset;
}

EXL2__PRIVATE void exl2__gguf_swap(void *tensors, uint32_t a, uint32_t b)
{
    exl2__gguf_tensor *t = (exl2__gguf_tensor *)tensors, kept = t[a];
    t[a] = t[b];
    t[b] = kept;
}

/* Turns offsets into file offsets, sorts the tensors by offset, and checks that their data is aligned, lies within the
   file and does not overlap. */
EXL2__PRIVATE exl2_result exl2__gguf_place_tensors(exl2__gguf *g, uint64_t header_bytes)
{
    uint32_t alignment = 32;
    EXL2__TRY(exl2__gguf_get_u32(g, "general.alignment", &alignment));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: general.alignment is %u, expected a power of two", g->path,
                          alignment);
    }
    uint64_t data_start = exl2__align_up(header_bytes, alignment);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        exl2__gguf_tensor tensor = g->tensors[i];
        uint64_t end = UINT64_MAX;
        if (tensor.offset % alignment != 0) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensor %.*s begins at %llu, expected a multiple of %u",
                              g->path, EXL2__GGUF_NAME(tensor.name), (unsigned long long)tensor.offset, alignment);
        }
        if (!exl2__add64(tensor.offset, data_start, &tensor.offset) ||
            !exl2__add64(tensor.offset, tensor.bytes, &end) || end > g->file_bytes) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT,
                              "%s: tensor %.*s ends at %llu, but the file has %llu bytes (truncated download?)",
                              g->path, EXL2__GGUF_NAME(tensor.name), (unsigned long long)end,
                              (unsigned long long)g->file_bytes);
        }
        g->tensors[i].offset = tensor.offset;
    }
    exl2__sort_items order = { g->tensors, exl2__gguf_earlier, exl2__gguf_swap };
    exl2__sort(&order, g->tensor_count);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const exl2__gguf_tensor *t = &g->tensors[i];
        if (i > 0 && t[-1].offset + t[-1].bytes > t->offset) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: tensors %.*s and %.*s overlap", g->path,
                              EXL2__GGUF_NAME(t[-1].name), EXL2__GGUF_NAME(t->name));
        }
        EXL2__TRY(exl2__gguf_enter(g, &g->tensor_names, "tensor", t->name, i));
    }
    return EXL2_OK;
}

/* Reads `bytes` bytes from `offset` on. They lie in one part if there are several. */
EXL2__PRIVATE exl2_result exl2__gguf_read(const exl2__gguf *g, uint64_t offset, void *out, uint64_t bytes)
{
    const exl2__gguf *from = g;
    for (uint32_t i = 0; i < g->part_count && g->parts[i].begin <= offset; i++) {
        from = &g->parts[i];
    }
    return exl2__file_read_at(g->ctx, from->path, from->file, offset - from->begin, out, bytes);
}

/* Reads the beginning of the file, at first 128 KiB and then twice as much each time, until it contains the header. So
   a small header costs little, and a large one about twice as much as one read of it. */
EXL2__PRIVATE exl2_result exl2__gguf_read_header(exl2__gguf *g)
{
    for (uint64_t bytes = 1u << 17;; bytes *= 2) {
        bytes = exl2__min64(bytes, g->file_bytes);
        exl2__arena_close(g->ctx, &g->header);
        EXL2__TRY(exl2__arena_open(g->ctx, &g->header, bytes, EXL2_MEM_GENERAL));
        EXL2__TRY(exl2__gguf_read(g, 0, g->header.base, bytes));
        exl2__gguf_cursor cursor = { g, g->header.base, 0, bytes, false };
        EXL2__TRY(exl2__gguf_parse(&cursor));
        if (!cursor.truncated) {
            return exl2__gguf_place_tensors(g, cursor.at);
        }
        if (bytes == g->file_bytes) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the file ends after %llu bytes, inside its header", g->path,
                              (unsigned long long)bytes);
        }
        if (bytes >= EXL2__GGUF_HEADER_MAX) {
            return exl2__fail(g->ctx, EXL2_ERR_FORMAT, "%s: the header is longer than %u bytes, which is not supported",
                              g->path, EXL2__GGUF_HEADER_MAX);
        }
    }
}

/* Closes the file or its parts, and frees the memory; accepts zeroed and partly opened ones. */
EXL2__PRIVATE void exl2__gguf_close(exl2__gguf *g)
{
    for (uint32_t i = 0; g->parts && i < g->part_count; i++) {
        exl2__gguf_close(&g->parts[i]); /* a part has no parts */
    }
    if (g->file) {
        g->ctx->files.close(g->ctx->files.user, g->file);
    }
    if (g->ctx) {
        exl2__arena_close(g->ctx, &g->header);
        exl2__arena_close(g->ctx, &g->tables);
    }
    *g = (exl2__gguf){ 0 };
}

/* Opens and checks a file; on failure *g is closed. `path` must outlive *g, and *g must not be moved. */
EXL2__PRIVATE exl2_result exl2__gguf_open(exl2__ctx *c, const char *path, exl2__gguf *g)
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
