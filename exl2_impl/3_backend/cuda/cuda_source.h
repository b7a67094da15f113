/* cuda_source.h: the source text of a kernel module: its file and all files that it includes.
   takes: exl2_kernels.inc, which tools/embed.c makes of kernels_src; or, with EXL2_KERNEL_DIR, that folder itself.
   gives: exl2__cuda_source with open, close, body and hash.
   owns:  the joined texts, until close. */
#ifndef EXL2__CUDA_SOURCE_H
#define EXL2__CUDA_SOURCE_H

#include "../../0_base/hash.h"
#include "../../1_load/file.h"

#define EXL2__CUDA_SOURCES_MAX 24u
#define EXL2__CUDA_SOURCE_BYTES_MAX (1u << 20)
#define EXL2__CUDA_SOURCE_NAME_MAX 48u

typedef struct exl2__cuda_file { /* a built-in source file */
    char name[EXL2__CUDA_SOURCE_NAME_MAX];
    uint32_t piece, at; /* where it begins: the string of exl2__kernel_text, and the byte in that string */
    uint32_t bytes;     /* of the joined text, in which four spaces stand in the place of a tab */
} exl2__cuda_file;

#ifdef EXL2_KERNEL_DIR
static const char exl2__kernel_text[][1] = { "" };
static const exl2__cuda_file exl2__cuda_files[] = { { "", 0, 0, 0 } };
#else
#include "exl2_kernels.inc" /* exl2__kernel_text: strings of whole lines; exl2__cuda_files */
#endif

typedef struct exl2__cuda_source {
    uint32_t count; /* texts[0] is the module; the others are headers, in the order in which they are first included */
    char names[EXL2__CUDA_SOURCES_MAX][EXL2__CUDA_SOURCE_NAME_MAX];
    exl2__blob texts[EXL2__CUDA_SOURCES_MAX];
} exl2__cuda_source;

static inline void exl2__cuda_source_close(exl2__ctx *c, exl2__cuda_source *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        exl2__blob_close(c, &s->texts[i]);
    }
    *s = (exl2__cuda_source){ 0 };
}

/* Joins the pieces of a built-in file. *out is empty if there is no file of this name. */
EXL2__PRIVATE exl2_result exl2__cuda_source_join(exl2__ctx *c, const char *name, exl2__blob *out)
{
    *out = (exl2__blob){ 0 };
    for (size_t f = 0; f < EXL2__COUNT(exl2__cuda_files); f++) {
        const exl2__cuda_file *file = &exl2__cuda_files[f];
        if (!file->bytes || strcmp(file->name, name) != 0) {
            continue;
        }
        void *memory;
        EXL2__TRY(exl2__alloc(c, file->bytes + 1u, sizeof(uint64_t), EXL2_MEM_GENERAL, &memory));
        out->data = (char *)memory;
        out->bytes = file->bytes;
        const char *from = exl2__kernel_text[file->piece] + file->at;
        for (size_t used = 0, length, piece = file->piece; used < out->bytes;) {
            from = *from ? from : exl2__kernel_text[++piece];
            for (; *from == '\t'; from++, used += 4) {
                memset(out->data + used, ' ', 4);
            }
            length = (size_t)exl2__min64(strcspn(from, "\t"), out->bytes - used); /* another file may follow */
            memcpy(out->data + used, from, length);
            from += length;
            used += length;
        }
        out->data[out->bytes] = 0;
    }
    return EXL2_OK;
}

/* dir NULL: the built-in file. */
EXL2__PRIVATE exl2_result exl2__cuda_source_read(exl2__ctx *c, const char *dir, const char *name, exl2__blob *out)
{
#ifdef EXL2_KERNEL_DIR
    dir = dir ? dir : EXL2_KERNEL_DIR;
#endif
    if (dir) {
        return exl2__file_read_all(c, dir, name, EXL2__CUDA_SOURCE_BYTES_MAX, out);
    }
    EXL2__TRY(exl2__cuda_source_join(c, name, out));
    return out->data ? EXL2_OK : exl2__fail(c, EXL2_ERR_INTERNAL, "kernel source %s is not built in", name);
}

/* The name between the quotes if the line at `at` is #include "name"; else *bytes is 0. */
static inline const char *exl2__cuda_source_included(const char *at, size_t *bytes)
{
    static const char directive[] = "#include \"";
    *bytes = 0;
    if (strncmp(at, directive, sizeof directive - 1) != 0) {
        return at;
    }
    at += sizeof directive - 1;
    while (at[*bytes] && at[*bytes] != '"' && at[*bytes] != '\n') {
        ++*bytes;
    }
    return at;
}

/* Adds the files that text `index` includes and that the list does not have yet. */
EXL2__PRIVATE exl2_result exl2__cuda_source_follow(exl2__ctx *c, const char *dir, exl2__cuda_source *s, uint32_t index)
{
    for (const char *line = s->texts[index].data; line; line = strchr(line, '\n')) {
        size_t bytes;
        line += *line == '\n';
        const char *name = exl2__cuda_source_included(line, &bytes);
        bool known = bytes == 0;
        for (uint32_t i = 0; i < s->count && !known; i++) {
            known = strlen(s->names[i]) == bytes && memcmp(s->names[i], name, bytes) == 0;
        }
        if (known) {
            continue;
        }
        if (s->count == EXL2__CUDA_SOURCES_MAX || bytes >= EXL2__CUDA_SOURCE_NAME_MAX) {
            return exl2__fail(c, EXL2_ERR_INTERNAL,
                              "kernel source %s has too many includes, or a name that is too long: %.*s", s->names[0],
                              (int)bytes, name);
        }
        memcpy(s->names[s->count], name, bytes);
        EXL2__TRY(exl2__cuda_source_read(c, dir, s->names[s->count], &s->texts[s->count]));
        s->count++;
    }
    return EXL2_OK;
}

/* Opens a module and its headers. dir: folder of kernel sources; NULL: the built-in sources. On failure everything is
   closed. */
EXL2__PRIVATE exl2_result exl2__cuda_source_open(exl2__ctx *c, const char *dir, const char *module,
                                                 exl2__cuda_source *out)
{
    *out = (exl2__cuda_source){ 0 };
    exl2__format(out->names[0], sizeof out->names[0], "%s", module);
    exl2_result result = exl2__cuda_source_read(c, dir, out->names[0], &out->texts[0]);
    out->count = 1;
    for (uint32_t i = 0; i < out->count && result == EXL2_OK; i++) {
        result = exl2__cuda_source_follow(c, dir, out, i);
    }
    if (result < 0) {
        exl2__cuda_source_close(c, out);
    }
    return result;
}

/* A text without the comment that the file begins with, or without the "#line" that a built-in text has instead. */
static inline const char *exl2__cuda_source_body(const char *text)
{
    const char *end = strncmp(text, "/*", 2) == 0 ? strstr(text, "*/\n") : NULL;
    return end ? end + 3 : strncmp(text, "#line ", 6) == 0 ? strchr(text, '\n') + 1 : text;
}

/* Hash of all names and texts, without heads: that of a folder is that of the built-in texts made from it. */
static inline uint64_t exl2__cuda_source_hash(const exl2__cuda_source *s)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const char *body = exl2__cuda_source_body(s->texts[i].data);
        hash = exl2__hash_words(s->names[i], strlen(s->names[i]), hash);
        hash = exl2__hash_words(body, strlen(body), hash);
    }
    return hash;
}

#endif
