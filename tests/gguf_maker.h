/* gguf_maker.h: GGUF files made in memory, value by value, valid or invalid as a test needs them. */
#ifndef GGUF_MAKER_H
#define GGUF_MAKER_H

#include "check.h"

#include <stdbool.h>

#define GGUF_MAKER_TENSORS 96

typedef struct gguf_bytes {
    uint8_t *data;
    size_t bytes, capacity;
} gguf_bytes;

typedef struct gguf_maker {
    gguf_bytes keys, infos, data;
    uint32_t version;
    uint64_t key_count, tensor_count;
    uint64_t add_keys, add_tensors; /* added to the counts in the header, to make them wrong */
    bool unpadded;                  /* no padding before the data */
} gguf_maker;

static void gguf_put(gguf_bytes *b, const void *data, size_t bytes)
{
    if (b->bytes + bytes > b->capacity) {
        b->capacity = (b->bytes + bytes) * 2;
        b->data = (uint8_t *)realloc(b->data, b->capacity);
    }
    if (bytes) {
        memcpy(b->data + b->bytes, data, bytes);
    }
    b->bytes += bytes;
}

static void gguf_put32(gguf_bytes *b, uint32_t value)
{
    uint8_t bytes[4] = { (uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24) };
    gguf_put(b, bytes, 4);
}

static void gguf_put64(gguf_bytes *b, uint64_t value)
{
    gguf_put32(b, (uint32_t)value);
    gguf_put32(b, (uint32_t)(value >> 32));
}

static void gguf_put_text(gguf_bytes *b, const char *text)
{
    gguf_put64(b, strlen(text));
    gguf_put(b, text, strlen(text));
}

static void gguf_key(gguf_maker *m, const char *name, uint32_t kind)
{
    gguf_put_text(&m->keys, name);
    gguf_put32(&m->keys, kind);
    m->key_count++;
}

static void gguf_key_u32(gguf_maker *m, const char *name, uint32_t value)
{
    gguf_key(m, name, 4);
    gguf_put32(&m->keys, value);
}

static void gguf_key_f32(gguf_maker *m, const char *name, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    gguf_key(m, name, 6);
    gguf_put32(&m->keys, bits);
}

static inline void gguf_key_bool(gguf_maker *m, const char *name, bool value)
{
    uint8_t byte = value;
    gguf_key(m, name, 7);
    gguf_put(&m->keys, &byte, 1);
}

static void gguf_key_text(gguf_maker *m, const char *name, const char *text)
{
    gguf_key(m, name, 8);
    gguf_put_text(&m->keys, text);
}

/* The caller appends the items with gguf_put* on m->keys. */
static void gguf_key_array(gguf_maker *m, const char *name, uint32_t item_kind, uint64_t count)
{
    gguf_key(m, name, 9);
    gguf_put32(&m->keys, item_kind);
    gguf_put64(&m->keys, count);
}

/* The tensor's entry without data; `offset` as stored. dims [3] end at the first 0. */
static void gguf_info_of(gguf_maker *m, const char *name, uint32_t type, const uint64_t *dims, uint64_t offset)
{
    uint32_t rank = dims[1] == 0 ? 1 : dims[2] == 0 ? 2 : 3;
    gguf_put_text(&m->infos, name);
    gguf_put32(&m->infos, rank);
    for (uint32_t i = 0; i < rank; i++) {
        gguf_put64(&m->infos, dims[i]);
    }
    gguf_put32(&m->infos, type);
    gguf_put64(&m->infos, offset);
    m->tensor_count++;
}

/* The same with up to two dims. */
static void gguf_info(gguf_maker *m, const char *name, uint32_t type, uint64_t dim0, uint64_t dim1, uint64_t offset)
{
    const uint64_t dims[3] = { dim0, dim1, 0 };
    gguf_info_of(m, name, type, dims, offset);
}

static void gguf_pad(gguf_bytes *b, size_t unit)
{
    static const uint8_t zeros[64] = { 0 };
    gguf_put(b, zeros, (unit - b->bytes % unit) % unit);
}

/* Entry and data, aligned to 32. */
static void gguf_tensor(gguf_maker *m, const char *name, uint32_t type, uint64_t dim0, uint64_t dim1, const void *data,
                        size_t bytes)
{
    gguf_pad(&m->data, 32);
    gguf_info(m, name, type, dim0, dim1, m->data.bytes);
    gguf_put(&m->data, data, bytes);
}

/* Returns the whole file, whose data the caller frees. Frees the maker. */
static gguf_bytes gguf_finish(gguf_maker *m)
{
    gguf_bytes file = { 0 };
    gguf_put(&file, "GGUF", 4);
    gguf_put32(&file, m->version ? m->version : 3);
    gguf_put64(&file, m->tensor_count + m->add_tensors);
    gguf_put64(&file, m->key_count + m->add_keys);
    gguf_put(&file, m->keys.data, m->keys.bytes);
    gguf_put(&file, m->infos.data, m->infos.bytes);
    if (!m->unpadded) {
        gguf_pad(&file, 32);
    }
    gguf_put(&file, m->data.data, m->data.bytes);
    free(m->keys.data);
    free(m->infos.data);
    free(m->data.data);
    memset(m, 0, sizeof *m);
    return file;
}

#endif
