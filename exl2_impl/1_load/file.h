/* file.h: reads files of a model folder through the application's files hook; small files are read whole.
   takes: a folder, a name in it, a maximum size.
   gives: exl2__blob, exl2__blob_close; exl2__file_read_all, exl2__file_read_optional, exl2__file_open,
          exl2__file_read_at, exl2__file_read_slice, exl2__file_misplaced, exl2__file_check_text; exl2__file_reader
          and its functions, which work in slices.
   owns:  a blob's bytes, until exl2__blob_close; a reader's file and bytes, until exl2__file_reader_close. */
#ifndef EXL2__FILE_H
#define EXL2__FILE_H

#include "../0_base/alloc.h"
#include "../0_base/platform_files.h"
#include "../0_base/work.h"

#define EXL2__FILE_PATH_MAX 1024
#define EXL2__FILE_NAME_MAX 256
#define EXL2__FILE_PART (256u << 10) /* bytes that are read between two looks at the slice */

typedef struct exl2__blob {
    char *data; /* [bytes], followed by a NUL; NULL: there is no such file */
    uint64_t bytes;
} exl2__blob;

static inline void exl2__blob_close(exl2__ctx *c, exl2__blob *blob)
{
    exl2__free(c, blob->data, blob->bytes + 1, EXL2_MEM_GENERAL);
    *blob = (exl2__blob){ 0 };
}

/* *file: the hook's handle, which the caller closes with c->files.close; NULL if there is no such file. */
static inline exl2_result exl2__file_open(exl2__ctx *c, const char *dir, const char *name, void **file, uint64_t *bytes)
{
    char path[EXL2__FILE_PATH_MAX];
    *file = NULL;
    *bytes = 0;
    if (exl2__format(path, sizeof path, "%s/%s", dir, name) != strlen(dir) + 1 + strlen(name)) {
        return exl2__fail(c, EXL2_ERR_ARG, "the path of %s is longer than %d bytes: %s", name, EXL2__FILE_PATH_MAX - 1,
                          dir);
    }
    *file = c->files.open(c->files.user, path, bytes);
    return EXL2_OK;
}

/* Fills all of dst, or fails: the file ends early, or reading fails. `name` is used in the message. */
static inline exl2_result exl2__file_read_at(exl2__ctx *c, const char *name, void *file, uint64_t offset, void *dst,
                                             uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        size_t want = (size_t)exl2__min64(bytes - done, (uint64_t)1 << 30);
        int64_t got = c->files.read(c->files.user, file, offset + done, (uint8_t *)dst + done, want);
        if (got <= 0 || (uint64_t)got > want) {
            return exl2__fail(c, EXL2_ERR_IO, "%s: reading %llu bytes at offset %llu %s after %llu bytes", name,
                              (unsigned long long)bytes, (unsigned long long)offset,
                              got == 0 ? "reached the end of the file" : "failed", (unsigned long long)done);
        }
        done += (uint64_t)got;
    }
    return EXL2_OK;
}

/* Reads on, from *done until the blob is full, in slices. Its first byte is at `offset` of the file. */
EXL2__PRIVATE exl2_result exl2__file_read_slice(exl2__ctx *c, const char *name, void *file, uint64_t offset,
                                                const exl2__blob *blob, uint64_t *done, exl2__work *work)
{
    while (*done < blob->bytes) {
        uint64_t part = exl2__min64(blob->bytes - *done, EXL2__FILE_PART);
        if (!exl2__work_spend(work, part / 2)) {
            return EXL2_PENDING;
        }
        EXL2__TRY(exl2__file_read_at(c, name, file, offset + *done, blob->data + *done, part));
        *done += part;
    }
    return EXL2_OK;
}

/* Reads a whole file in slices. */
typedef struct exl2__file_reader {
    const char *name;
    void *file;      /* NULL: there is no such file, or it is read */
    exl2__blob blob; /* the result; data NULL: there is no such file */
    uint64_t done;
} exl2__file_reader;

static inline void exl2__file_reader_close(exl2__ctx *c, exl2__file_reader *r)
{
    if (r->file) {
        c->files.close(c->files.user, r->file);
        r->file = NULL;
    }
    exl2__blob_close(c, &r->blob);
}

/* After a failure, too, the caller closes r. */
EXL2__PRIVATE exl2_result exl2__file_reader_open(exl2__ctx *c, const char *dir, const char *name, uint64_t bytes_max,
                                                 exl2__file_reader *r)
{
    void *memory;
    uint64_t bytes;
    *r = (exl2__file_reader){ .name = name };
    EXL2__TRY(exl2__file_open(c, dir, name, &r->file, &bytes));
    if (!r->file) {
        return EXL2_OK;
    }
    if (bytes > bytes_max) {
        return exl2__fail(c, EXL2_ERR_FORMAT, "%s has %llu bytes, but at most %llu are accepted", name,
                          (unsigned long long)bytes, (unsigned long long)bytes_max);
    }
    EXL2__TRY(exl2__alloc(c, bytes + 1, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
    r->blob.data = (char *)memory;
    r->blob.bytes = bytes;
    r->blob.data[bytes] = 0;
    return EXL2_OK;
}

/* What begins with these bytes in the place of another file, and what to do; NULL: nothing that is known. */
EXL2__PRIVATE const char *exl2__file_misplaced(const char *data, uint64_t bytes)
{
    static const char page[] = "a web page, not the file itself; download it again";
    static const struct { const char *begin, *what; } kinds[] = {
        { "version https://git-lfs.", "a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder" },
        { "<!doctype html", page }, { "<html", page }, { "<?xml", page },
        { "GGUF", "a GGUF file; import it (exl2 import)" },
        { "PK\3\4", "a ZIP archive, as PyTorch saves weights; only .safetensors files are read" },
    };
    size_t end = (size_t)exl2__min64(bytes, 64), zeros = 0, at = exl2__utf8_mark(data, end);
    while (zeros < end && data[zeros] == 0) {
        zeros++;
    }
    while (at < end && (data[at] == ' ' || (data[at] >= '\t' && data[at] <= '\r'))) {
        at++;
    }
    for (size_t i = 0; i < EXL2__COUNT(kinds); i++) {
        size_t k = 0;
        for (char letter; kinds[i].begin[k] && at + k < end; k++) {
            letter = data[at + k];
            letter = (char)(letter >= 'A' && letter <= 'Z' && kinds[i].begin[0] == '<' ? letter + 0x20 : letter);
            if (letter != kinds[i].begin[k]) {
                break;
            }
        }
        if (!kinds[i].begin[k]) {
            return kinds[i].what;
        }
    }
    return end && zeros == end ? "full of zeros, so its download did not end; download it again" : NULL;
}

/* Fails if the text of a file shows that another file lies in its place. */
static inline exl2_result exl2__file_check_text(exl2__ctx *c, const char *name, const exl2__blob *text)
{
    const char *what = exl2__file_misplaced(text->data, text->bytes);
    return what ? exl2__fail(c, EXL2_ERR_FORMAT, "%s is %s", name, what) : EXL2_OK;
}

/* OK: r->blob is the whole file. */
EXL2__PRIVATE exl2_result exl2__file_reader_slice(exl2__ctx *c, exl2__file_reader *r, exl2__work *work)
{
    if (r->file) {
        EXL2__TRY_DONE(exl2__file_read_slice(c, r->name, r->file, 0, &r->blob, &r->done, work));
        c->files.close(c->files.user, r->file);
        r->file = NULL;
    }
    return EXL2_OK;
}

/* Gives the memory of a file that is not needed any more back to the system, in slices, so that closing the reader is
   short. Memory of the application's allocator is left to it. *at is 0 at first. */
EXL2__PRIVATE exl2_result exl2__file_reader_discard(exl2__ctx *c, const exl2__file_reader *r, uint64_t *at,
                                                    exl2__work *work)
{
    for (uint64_t part; c->allocator.free_fn == exl2__platform_free && *at < r->blob.bytes; *at += part) {
        part = exl2__min64(r->blob.bytes - *at, 4 * EXL2__FILE_PART);
        if (!exl2__work_spend(work, part / 8)) {
            return EXL2_PENDING;
        }
        exl2__platform_discard(r->blob.data + *at, (size_t)part);
    }
    return EXL2_OK;
}

/* Reads the whole file at once. If there is no such file, *out is empty (data NULL). On failure *out is zeroed. */
static inline exl2_result exl2__file_read_optional(exl2__ctx *c, const char *dir, const char *name, uint64_t bytes_max,
                                                   exl2__blob *out)
{
    exl2__file_reader r;
    exl2__work all = exl2__work_all();
    exl2_result result = exl2__file_reader_open(c, dir, name, bytes_max, &r);
    result = result < 0 ? result : exl2__file_reader_slice(c, &r, &all);
    *out = result < 0 ? (exl2__blob){ 0 } : r.blob;
    r.blob = result < 0 ? r.blob : (exl2__blob){ 0 };
    exl2__file_reader_close(c, &r);
    return result;
}

/* The same for a file that must exist; the message is "no config.json in models/llama". */
static inline exl2_result exl2__file_read_all(exl2__ctx *c, const char *dir, const char *name, uint64_t bytes_max,
                                              exl2__blob *out)
{
    EXL2__TRY(exl2__file_read_optional(c, dir, name, bytes_max, out));
    return out->data ? EXL2_OK : exl2__fail(c, EXL2_ERR_IO, "no %s in %s", name, dir);
}

#endif
