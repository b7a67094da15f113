/* text_rows.h: what the tests of 6_text share: a context, a folder in memory, rows of .jsonl files. */
#ifndef TEXT_ROWS_H
#define TEXT_ROWS_H

#include "private/platform_alloc.h"
#include "private/platform_files.h"
#include "private/json.h"
#include "check.h"

#ifndef EXL2_GOLDEN_DIR
#define EXL2_GOLDEN_DIR "tests/golden"
#endif

static inline exl2__ctx rows_ctx(void)
{
    exl2__ctx c = { 0 };
    c.allocator = exl2__platform_allocator();
    c.files = exl2__platform_files();
    return c;
}

/* A model folder of two files in memory; NULL = the file is missing. If fail_at is not 0, reads fail from the
   fail_at-th on. */
typedef struct rows_folder {
    const char *tokenizer, *config;
    size_t tokenizer_bytes, config_bytes; /* 0 = up to the NUL */
    int fail_at, reads;
} rows_folder;

static inline const char *rows_file(const rows_folder *f, const void *handle, size_t *bytes)
{
    const char *text = handle == &f->tokenizer ? f->tokenizer : f->config;
    size_t given = handle == &f->tokenizer ? f->tokenizer_bytes : f->config_bytes;
    *bytes = given || !text ? given : strlen(text);
    return text;
}

static inline void *rows_open(void *user, const char *path, uint64_t *bytes)
{
    rows_folder *f = user;
    void *handle = strstr(path, "tokenizer.json") ? (void *)&f->tokenizer : (void *)&f->config;
    size_t size;
    if (!rows_file(f, handle, &size)) {
        return NULL;
    }
    *bytes = size;
    return handle;
}

static inline int64_t rows_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    rows_folder *f = user;
    size_t size;
    const char *text = rows_file(f, file, &size);
    if (f->fail_at && ++f->reads >= f->fail_at) {
        return -1;
    }
    memcpy(dst, text + offset, bytes);
    return (int64_t)bytes;
}

static inline void rows_close(void *user, void *file)
{
    (void)user;
    (void)file;
}

static inline exl2_files rows_files(rows_folder *folder)
{
    exl2_files hook = { rows_open, NULL, rows_read, rows_close, folder };
    return hook;
}

/* Calls row(user, j, line) for every line of the text; returns the number of lines. */
static inline int rows_each_line(exl2__ctx *c, const char *path, char *text, size_t bytes,
                                 void (*row)(void *user, const exl2__json *j, int line), void *user)
{
    int line = 0;
    for (char *at = text, *end; at < text + bytes; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + bytes - at));
        end = end ? end : text + bytes;
        exl2__json j;
        line++;
        if (CHECK(exl2__json_open(c, path, at, (size_t)(end - at), &j) == EXL2_OK)) {
            row(user, &j, line);
        }
        exl2__json_close(c, &j);
    }
    return line;
}

/* The same for a file. */
static inline int rows_each(exl2__ctx *c, const char *path, void (*row)(void *user, const exl2__json *j, int line),
                            void *user)
{
    size_t bytes;
    char *text = check_read(path, &bytes);
    int line = rows_each_line(c, path, text, bytes, row, user);
    free(text);
    return line;
}

/* Text of a string token, allocated, NUL-terminated. */
static inline char *rows_text(const exl2__json *j, uint32_t token, size_t *bytes)
{
    *bytes = exl2__json_text(j, token, NULL, 0);
    char *text = malloc(*bytes + 1);
    exl2__json_text(j, token, text, *bytes);
    text[*bytes] = 0;
    return text;
}

/* A list of ids, allocated. */
static inline exl2_token *rows_ids(const exl2__json *j, uint32_t list, size_t *count)
{
    *count = j->tokens[list].count;
    exl2_token *ids = malloc((*count + 1) * sizeof *ids);
    size_t at = 0;
    for (uint32_t item = exl2__json_first(j, list); item; item = exl2__json_next(j, list, item)) {
        int64_t id = 0;
        CHECK(exl2__json_i64(j, item, &id));
        ids[at++] = (exl2_token)id;
    }
    return ids;
}

static inline int rows_flag(const exl2__json *j, const char *key)
{
    bool value = false;
    CHECK(exl2__json_bool(j, exl2__json_get(j, 0, key), &value));
    return value;
}

#endif
