/* shards.h: writes safetensors files. The list of tensors is given first; their bytes may then be written in any order.
   takes: names, types and shapes; then the bytes of each tensor, in pieces.
   gives: exl2__shards with _begin, _add or _add_copy, _open, _write, _finish and _close, called in this order; _measure
          or _outline in place of _open, _write and _finish; exl2__shards_fits.
   owns:  the list and the open files, until exl2__shards_close. */
#ifndef EXL2__SHARDS_H
#define EXL2__SHARDS_H

#include "../0_base/arena.h"
#include "../1_load/tensor_table.h"
#include "write.h"

#define EXL2__SHARDS_BYTES ((uint64_t)4 << 30) /* tensor data per file; a larger tensor gets a file for itself */
#define EXL2__SHARDS_NAME_MAX 96

typedef struct exl2__shards_entry {
    char name[EXL2__SHARDS_NAME_MAX];
    uint32_t type, rank, shard; /* exl2__tensor_type */
    uint64_t dims[EXL2__TENSORS_DIMS];
    uint64_t offset, bytes, written; /* offset: relative to the data of its shard */
} exl2__shards_entry;

typedef struct exl2__shards_file {
    void *file;
    uint64_t data_start, data_bytes;
    char path[EXL2__FILE_PATH_MAX];
} exl2__shards_file;

typedef struct exl2__shards {
    exl2__ctx *ctx;
    exl2__arena memory, file_memory;
    exl2__shards_entry *entries;
    exl2__shards_file *files;
    uint32_t capacity, count, file_count;
    uint64_t shard_bytes;
    const char *stem; /* begin of the files' names */
} exl2__shards;

/* Allocates a list of up to `capacity` tensors. The files will be called <stem>.safetensors, or
   <stem>-00001-of-00002.safetensors and so on; the text must outlive *s. */
EXL2__PRIVATE exl2_result exl2__shards_begin(exl2__ctx *c, exl2__shards *s, const char *stem, uint32_t capacity,
                                             uint64_t shard_bytes)
{
    *s = (exl2__shards){ 0 };
    s->ctx = c;
    s->stem = stem;
    s->capacity = capacity;
    s->shard_bytes = shard_bytes;
    EXL2__TRY(exl2__arena_open(
        c, &s->memory, exl2__align_up((uint64_t)capacity * sizeof *s->entries, EXL2__ARENA_ALIGN), EXL2_MEM_GENERAL));
    s->entries = (exl2__shards_entry *)exl2__arena_alloc_zeroed(&s->memory, (uint64_t)capacity * sizeof *s->entries);
    return EXL2_OK;
}

/* Adds a tensor [dim0] (rank 1) or [dim0, dim1] (rank 2) to the list. exl2__shards_write identifies it by its number,
   in the order of these calls. Its name is prefix and suffix together. */
EXL2__PRIVATE void exl2__shards_add(exl2__shards *s, const char *prefix, const char *suffix, exl2__tensor_type type,
                                    uint32_t rank, uint64_t dim0, uint64_t dim1)
{
    EXL2__ASSERT(s->count < s->capacity);
    exl2__shards_entry *entry = &s->entries[s->count++];
    exl2__format(entry->name, sizeof entry->name, "%s%s", prefix, suffix);
    entry->type = (uint32_t)type;
    entry->rank = rank;
    entry->dims[0] = dim0;
    entry->dims[1] = dim1;
    entry->bytes = dim0 * (rank == 2 ? dim1 : 1) * exl2__tensor_type_bytes(entry->type);
}

/* Can a tensor of another file be one of these, with its type and shape? */
static inline bool exl2__shards_fits(const exl2__tensor *t)
{
    return strlen(t->name) < EXL2__SHARDS_NAME_MAX && t->rank <= EXL2__TENSORS_DIMS && t->type != EXL2__TENSOR_UNKNOWN;
}

/* Adds such a tensor; one without dimensions gets one of size 1. */
EXL2__PRIVATE void exl2__shards_add_copy(exl2__shards *s, const exl2__tensor *t)
{
    exl2__shards_add(s, t->name, "", (exl2__tensor_type)t->type, exl2__max32(t->rank, 1), 0, 0);
    exl2__shards_entry *entry = &s->entries[s->count - 1];
    memcpy(entry->dims, t->dims, sizeof entry->dims);
    entry->bytes = t->bytes;
}

/* Distributes the tensors to the files in the order of the list. Within a file the widest types come first, so that all
   tensors are aligned. */
EXL2__PRIVATE void exl2__shards_place(exl2__shards *s)
{
    uint64_t in_shard = 0;
    uint32_t shard = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (in_shard > 0 && in_shard + s->entries[i].bytes > s->shard_bytes) {
            shard++;
            in_shard = 0;
        }
        s->entries[i].shard = shard;
        in_shard += s->entries[i].bytes;
    }
    s->file_count = shard + 1;
}

EXL2__PRIVATE void exl2__shards_place_in_file(exl2__shards *s, uint32_t shard)
{
    uint64_t offset = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        for (uint32_t i = 0; i < s->count; i++) {
            exl2__shards_entry *entry = &s->entries[i];
            if (entry->shard == shard && exl2__tensor_type_bytes(entry->type) == width) {
                entry->offset = offset;
                offset += entry->bytes;
            }
        }
    }
    s->files[shard].data_bytes = offset;
}

EXL2__PRIVATE void exl2__shards_header_text(const exl2__shards *s, uint32_t shard, exl2__write *w)
{
    exl2__write_format(w, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__shards_entry *entry = &s->entries[i];
        if (entry->shard == shard) {
            exl2__write_format(w, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu", entry->name,
                               exl2__tensor_type_name(entry->type), (unsigned long long)entry->dims[0]);
            for (uint32_t k = 1; k < entry->rank; k++) {
                exl2__write_format(w, ",%llu", (unsigned long long)entry->dims[k]);
            }
            exl2__write_format(w, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->offset,
                               (unsigned long long)(entry->offset + entry->bytes));
        }
    }
    exl2__write_format(w, "}");
}

EXL2__PRIVATE exl2_result exl2__shards_header_bytes(const exl2__shards *s, uint32_t shard, uint64_t *bytes)
{
    exl2__write w;
    EXL2__TRY(exl2__write_open(s->ctx, NULL, &w));
    exl2__shards_header_text(s, shard, &w);
    *bytes = w.offset + w.used;
    return exl2__write_close(&w);
}

/* Writes a file's header: the length word, the JSON text and spaces up to a multiple of 8 bytes. */
EXL2__PRIVATE exl2_result exl2__shards_write_header(exl2__shards *s, uint32_t shard)
{
    exl2__shards_file *f = &s->files[shard];
    exl2__write w;
    uint8_t length[8];
    uint64_t bytes;
    EXL2__TRY(exl2__shards_header_bytes(s, shard, &bytes));
    uint64_t padded = exl2__align_up(bytes, 8);
    EXL2__TRY(exl2__write_open(s->ctx, f->path, &w));
    exl2__store64(length, padded);
    exl2__write_raw(&w, (const char *)length, sizeof length);
    exl2__shards_header_text(s, shard, &w);
    exl2__write_raw(&w, "       ", padded - bytes);
    f->data_start = sizeof length + padded;
    exl2__write_flush(&w);
    f->file = w.file; /* the file stays open for the data */
    w.file = NULL;
    return exl2__write_close(&w);
}

EXL2__PRIVATE exl2_result exl2__shards_place_all(exl2__shards *s)
{
    exl2__shards_place(s);
    uint64_t bytes = exl2__align_up(s->file_count * sizeof *s->files, EXL2__ARENA_ALIGN);
    EXL2__TRY(exl2__arena_open(s->ctx, &s->file_memory, bytes, EXL2_MEM_GENERAL));
    s->files = (exl2__shards_file *)exl2__arena_alloc_zeroed(&s->file_memory, bytes);
    for (uint32_t i = 0; i < s->file_count; i++) {
        exl2__shards_place_in_file(s, i);
    }
    return EXL2_OK;
}

/* The size of all files. */
EXL2__PRIVATE exl2_result exl2__shards_measure(exl2__shards *s, uint64_t *bytes)
{
    uint64_t header;
    *bytes = 0;
    EXL2__TRY(exl2__shards_place_all(s));
    for (uint32_t i = 0; i < s->file_count; i++) {
        EXL2__TRY(exl2__shards_header_bytes(s, i, &header));
        *bytes += 8 + exl2__align_up(header, 8) + s->files[i].data_bytes;
    }
    return EXL2_OK;
}

/* To be called after the last exl2__shards_add: places all tensors, creates the files in `dir` and writes their
   headers. */
EXL2__PRIVATE exl2_result exl2__shards_open(exl2__shards *s, const char *dir)
{
    EXL2__TRY(exl2__shards_place_all(s));
    for (uint32_t i = 0; i < s->file_count; i++) {
        char *path = s->files[i].path;
        if (s->file_count == 1) {
            exl2__format(path, sizeof s->files[i].path, "%s/%s.safetensors", dir, s->stem);
        } else {
            uint32_t numbers[2] = { i + 1, s->file_count };
            char five[2][6];
            for (uint32_t k = 0; k < 2; k++) {
                for (uint32_t digit = 0, rest = numbers[k]; digit < 5; digit++, rest /= 10) {
                    five[k][4 - digit] = (char)('0' + rest % 10);
                }
                five[k][5] = 0;
            }
            exl2__format(path, sizeof s->files[i].path, "%s/%s-%s-of-%s.safetensors", dir, s->stem, five[0], five[1]);
        }
        EXL2__TRY(exl2__shards_write_header(s, i));
    }
    return EXL2_OK;
}

/* Writes the files' headers alone. *bytes: what all files would have. */
EXL2__PRIVATE exl2_result exl2__shards_outline(exl2__shards *s, const char *dir, uint64_t *bytes)
{
    EXL2__TRY(exl2__shards_open(s, dir));
    *bytes = 0;
    for (uint32_t i = 0; i < s->file_count; i++) {
        *bytes += s->files[i].data_start + s->files[i].data_bytes;
    }
    return EXL2_OK;
}

/* Writes bytes [at, at + bytes) of tensor `number`. Each byte of each tensor must be written exactly once, in any
   order. */
EXL2__PRIVATE exl2_result exl2__shards_write(exl2__shards *s, uint32_t number, uint64_t at, const void *data,
                                             uint64_t bytes)
{
    exl2__shards_entry *entry = &s->entries[number];
    const exl2__shards_file *f = &s->files[entry->shard];
    EXL2__ASSERT(at + bytes <= entry->bytes);
    if (!exl2__platform_write(f->file, f->data_start + entry->offset + at, data, (size_t)bytes)) {
        return exl2__fail(s->ctx, EXL2_ERR_IO, "%s: writing %llu bytes failed (disk full?)", f->path,
                          (unsigned long long)bytes);
    }
    entry->written += bytes;
    return EXL2_OK;
}

/* Closes the files and frees the memory; accepts zeroed and partly opened ones. */
EXL2__PRIVATE void exl2__shards_close(exl2__shards *s)
{
    for (uint32_t i = 0; s->files && i < s->file_count; i++) {
        if (s->files[i].file) {
            exl2__platform_finish(s->files[i].file);
        }
    }
    if (s->ctx) {
        exl2__arena_close(s->ctx, &s->memory);
        exl2__arena_close(s->ctx, &s->file_memory);
    }
    *s = (exl2__shards){ 0 };
}

/* Fails if a tensor is incomplete or a file cannot be written to its end. exl2__shards_close must be called all the
   same. */
EXL2__PRIVATE exl2_result exl2__shards_finish(exl2__shards *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const exl2__shards_entry *entry = &s->entries[i];
        if (entry->written != entry->bytes) {
            return exl2__fail(s->ctx, EXL2_ERR_INTERNAL, "%s: %llu of %llu bytes were written", entry->name,
                              (unsigned long long)entry->written, (unsigned long long)entry->bytes);
        }
    }
    for (uint32_t i = 0; i < s->file_count; i++) {
        void *file = s->files[i].file;
        s->files[i].file = NULL;
        bool synced = exl2__platform_sync(file); /* before the folder gets its name */
        if (!exl2__platform_finish(file) || !synced) {
            return exl2__fail(s->ctx, EXL2_ERR_IO, "%s: writing failed at the end (disk full?)", s->files[i].path);
        }
    }
    return EXL2_OK;
}

#endif
