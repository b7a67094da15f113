/* convert_watch.h: a files hook that gives the bytes of a source only as they were when it was identified.
   takes: the files of the source, with a hash of each block of 4 KiB; the hook under it.
   gives: exl2__convert_watch, exl2__convert_watch_add, exl2__convert_watch_fill, exl2__convert_watch_files,
          exl2__convert_watch_changed, exl2__convert_watch_close.
   owns:  the hashes, until exl2__convert_watch_close: a thousandth of the source's bytes.

   A conversion lasts hours, and a streamed source is read once for each of its stages. A source that changes and then
   changes back has the same bytes at the beginning and at the end. Times and inodes do not show that on every disk, or
   where a link in the path was moved. So all bytes are compared each time that they are read: no part of the result is
   made of other bytes. */
#ifndef EXL2__CONVERT_WATCH_H
#define EXL2__CONVERT_WATCH_H

#include "workdir.h"

#define EXL2__CONVERT_WATCH_BLOCK 4096u
#define EXL2__CONVERT_WATCH_OPEN 4u /* handles of one file at a time */

typedef struct exl2__convert_watch_file {
    struct exl2__convert_watch_file *next;
    uint64_t path, bytes; /* path: a hash */
    void *open[EXL2__CONVERT_WATCH_OPEN]; /* handles of the hook under this one; NULL: none */
    uint32_t *hashes;     /* [blocks] the memory after this struct */
} exl2__convert_watch_file;

typedef struct exl2__convert_watch {
    exl2_files under;
    exl2__convert_watch_file *files;
    uint32_t changed; /* atomic: a file was not what it had been */
} exl2__convert_watch;

static inline uint64_t exl2__convert_watch_bytes(uint64_t file_bytes)
{
    return sizeof(exl2__convert_watch_file) + exl2__div_up(file_bytes, EXL2__CONVERT_WATCH_BLOCK) * sizeof(uint32_t);
}

static inline uint64_t exl2__convert_watch_path(const char *path)
{
    return exl2__workdir_hash(EXL2__WORKDIR_HASH, path, strlen(path));
}

static inline uint32_t exl2__convert_watch_hash(const void *data, uint64_t bytes)
{
    uint64_t hash = exl2__workdir_hash(EXL2__WORKDIR_HASH, data, bytes);
    return (uint32_t)(hash ^ hash >> 32);
}

/* A file that will be opened as `path`; its hashes are to be filled in. */
EXL2__PRIVATE exl2_result exl2__convert_watch_add(exl2__ctx *c, exl2__convert_watch *w, const char *path,
                                                  uint64_t bytes, exl2__convert_watch_file **out)
{
    void *memory;
    EXL2__TRY(exl2__alloc(c, exl2__convert_watch_bytes(bytes), EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &memory));
    *out = (exl2__convert_watch_file *)memory;
    **out = (exl2__convert_watch_file){ .next = w->files, .path = exl2__convert_watch_path(path), .bytes = bytes,
                                        .hashes = (uint32_t *)(void *)(*out + 1) };
    w->files = *out;
    return EXL2_OK;
}

/* Fills in the hashes of whole blocks, or of the last ones of the file. at: a multiple of the block's size. */
EXL2__PRIVATE void exl2__convert_watch_fill(exl2__convert_watch_file *f, uint64_t at, const uint8_t *data,
                                            uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += EXL2__CONVERT_WATCH_BLOCK) {
        uint64_t some = exl2__min64(bytes - i, EXL2__CONVERT_WATCH_BLOCK);
        f->hashes[(at + i) / EXL2__CONVERT_WATCH_BLOCK] = exl2__convert_watch_hash(data + i, some);
    }
}

EXL2__PRIVATE void exl2__convert_watch_close(exl2__ctx *c, exl2__convert_watch *w)
{
    while (w->files) {
        exl2__convert_watch_file *f = w->files;
        w->files = f->next;
        exl2__free(c, f, exl2__convert_watch_bytes(f->bytes), EXL2_MEM_GENERAL);
    }
}

static inline bool exl2__convert_watch_changed(const exl2__convert_watch *w)
{
    return exl2__atomic_load(&w->changed) != 0;
}

/* ---- the hook ---- */

/* The file of a handle, and its place there; NULL: it is no file of the source. */
EXL2__PRIVATE exl2__convert_watch_file *exl2__convert_watch_find(const exl2__convert_watch *w, const void *handle,
                                                                 uint32_t *place)
{
    for (exl2__convert_watch_file *f = w->files; f; f = f->next) {
        for (*place = 0; *place < EXL2__CONVERT_WATCH_OPEN; ++*place) {
            if (f->open[*place] == handle) {
                return f;
            }
        }
    }
    return NULL;
}

/* One thread opens and closes files; several may read. */
EXL2__PRIVATE void *exl2__convert_watch_open(void *user, const char *path, uint64_t *bytes)
{
    exl2__convert_watch *w = (exl2__convert_watch *)user;
    void *handle = w->under.open(w->under.user, path, bytes);
    uint64_t hash = exl2__convert_watch_path(path);
    exl2__convert_watch_file *f = w->files;
    uint32_t place = 0;
    while (f && f->path != hash) {
        f = f->next;
    }
    if (!f) {
        return handle;
    }
    while (place < EXL2__CONVERT_WATCH_OPEN && f->open[place]) {
        place++;
    }
    EXL2__ASSERT(place < EXL2__CONVERT_WATCH_OPEN);
    if (!handle || *bytes != f->bytes) {
        exl2__atomic_store(&w->changed, 1);
    }
    f->open[place] = handle;
    return handle;
}

EXL2__PRIVATE bool exl2__convert_watch_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    const exl2_files *under = &((const exl2__convert_watch *)user)->under;
    return under->list(under->user, dir, index, name, cap);
}

/* Fills a block that was read in part, and overwrites that part: what is used is what is compared. */
EXL2__PRIVATE bool exl2__convert_watch_whole(const exl2__convert_watch *w, void *handle, uint64_t at, uint8_t *block,
                                             uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        int64_t got = w->under.read(w->under.user, handle, at + done, block + done, (size_t)(bytes - done));
        if (got <= 0) {
            return false;
        }
        done += (uint64_t)got;
    }
    return true;
}

EXL2__PRIVATE int64_t exl2__convert_watch_read(void *user, void *handle, uint64_t offset, void *dst, size_t bytes)
{
    exl2__convert_watch *w = (exl2__convert_watch *)user;
    uint8_t block[EXL2__CONVERT_WATCH_BLOCK];
    uint32_t place;
    const exl2__convert_watch_file *f = exl2__convert_watch_find(w, handle, &place);
    int64_t got = w->under.read(w->under.user, handle, offset, dst, bytes);
    if (!f || got <= 0) {
        return got;
    }
    uint64_t end = exl2__min64(offset + (uint64_t)got, f->bytes);
    bool same = end == offset + (uint64_t)got;
    for (uint64_t at = offset / EXL2__CONVERT_WATCH_BLOCK * EXL2__CONVERT_WATCH_BLOCK; at < end && same;
         at += EXL2__CONVERT_WATCH_BLOCK) {
        uint64_t some = exl2__min64(f->bytes - at, EXL2__CONVERT_WATCH_BLOCK);
        const uint8_t *data = block;
        if (at >= offset && at + some <= end) {
            data = (const uint8_t *)dst + (at - offset);
        } else {
            uint64_t from = exl2__max64(at, offset), to = exl2__min64(at + some, end);
            same = exl2__convert_watch_whole(w, handle, at, block, some);
            memcpy((uint8_t *)dst + (from - offset), block + (from - at), (size_t)(to - from));
        }
        same = same && exl2__convert_watch_hash(data, some) == f->hashes[at / EXL2__CONVERT_WATCH_BLOCK];
    }
    if (!same) {
        exl2__atomic_store(&w->changed, 1);
    }
    return same ? got : -1;
}

EXL2__PRIVATE void exl2__convert_watch_close_file(void *user, void *handle)
{
    exl2__convert_watch *w = (exl2__convert_watch *)user;
    uint32_t place;
    exl2__convert_watch_file *f = exl2__convert_watch_find(w, handle, &place);
    if (f) {
        f->open[place] = NULL;
    }
    w->under.close(w->under.user, handle);
}

EXL2__PRIVATE exl2_files exl2__convert_watch_files(exl2__convert_watch *w)
{
    return (exl2_files){ exl2__convert_watch_open, exl2__convert_watch_list, exl2__convert_watch_read,
                         exl2__convert_watch_close_file, w };
}

#endif
