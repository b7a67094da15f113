/* memory_files.h: a folder in memory, read through the files hook, and a context over it, for loader tests. Reads can
   return small pieces, end early or fail. */
#ifndef MEMORY_FILES_H
#define MEMORY_FILES_H

#include "private/platform_alloc.h"
#include "private/alloc.h"
#include "check.h"

#define MEMORY_FILES_MAX 8

typedef struct memory_file {
    char name[128];
    uint8_t *data;
    size_t bytes; /* size that open reports */
    size_t there; /* bytes that can be read */
} memory_file;

typedef struct memory_files {
    memory_file files[MEMORY_FILES_MAX];
    uint32_t count, open_files;
    size_t piece;         /* most bytes that one read returns; 0 = all */
    bool fail_reads;
    uint32_t warnings;    /* number of warnings */
    char warning[256];    /* text of the latest warning */
    exl2_log_id warning_id; /* its id */
    exl2__ctx c;
} memory_files;

static void *memory_open(void *user, const char *path, uint64_t *bytes)
{
    memory_files *m = (memory_files *)user;
    const char *slash = strrchr(path, '/');
    for (uint32_t i = 0; i < m->count; i++) {
        if (slash && strcmp(m->files[i].name, slash + 1) == 0) {
            *bytes = m->files[i].bytes;
            m->open_files++;
            return &m->files[i];
        }
    }
    return NULL;
}

static bool memory_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    memory_files *m = (memory_files *)user;
    (void)dir;
    if (index >= m->count) {
        return false;
    }
    snprintf(name, cap, "%s", m->files[index].name);
    return true;
}

static int64_t memory_read(void *user, void *file, uint64_t offset, void *dst, size_t bytes)
{
    memory_files *m = (memory_files *)user;
    const memory_file *f = (const memory_file *)file;
    if (m->fail_reads) {
        return -1;
    }
    size_t rest = offset < f->there ? f->there - (size_t)offset : 0;
    bytes = bytes < rest ? bytes : rest;
    bytes = m->piece && bytes > m->piece ? m->piece : bytes;
    memcpy(dst, f->data + (bytes ? offset : 0), bytes);
    return (int64_t)bytes;
}

static void memory_close(void *user, void *file)
{
    (void)file;
    ((memory_files *)user)->open_files--;
}

static void memory_line(void *user, exl2_log_level level, exl2_log_id id, exl2_result code, const char *text)
{
    memory_files *m = (memory_files *)user;
    (void)code;
    if (level == EXL2_LOG_WARN) {
        m->warnings++;
        m->warning_id = id;
        snprintf(m->warning, sizeof m->warning, "%s", text);
    }
}

/* Makes an empty folder. `m` must not move. */
static void memory_make(memory_files *m)
{
    memset(m, 0, sizeof *m);
    m->c.allocator = exl2__platform_allocator();
    m->c.files.open = memory_open;
    m->c.files.list = memory_list;
    m->c.files.read = memory_read;
    m->c.files.close = memory_close;
    m->c.files.user = m;
    m->c.logger.line = memory_line;
    m->c.logger.user = m;
}

static void memory_add(memory_files *m, const char *name, const void *data, size_t bytes)
{
    memory_file *f = &m->files[m->count++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->data = (uint8_t *)malloc(bytes ? bytes : 1);
    memcpy(f->data, data, bytes);
    f->bytes = f->there = bytes;
}

static inline void memory_add_text(memory_files *m, const char *name, const char *text)
{
    memory_add(m, name, text, strlen(text));
}

/* JSON with ' in place of ", which C strings would have to escape. The copy lives until the next call. */
static inline const char *json_text(const char *text)
{
    static char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = copy; *p; p++) {
        *p = *p == '\'' ? '"' : *p;
    }
    return copy;
}

/* Also checks that nothing is still open or allocated. */
static void memory_free(memory_files *m)
{
    CHECK_INT(m->open_files, 0);
    CHECK_INT(m->c.host_bytes, 0);
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->files[i].data);
    }
    m->count = 0;
}

/* The message of the most recent error contains both pieces; prints it if not. */
static inline void check_error(const exl2__ctx *c, const char *piece, const char *other, const char *what)
{
    bool holds = strstr(c->error.text, piece) && strstr(c->error.text, other);
    if (!CHECK(holds)) {
        printf("  %s: \"%s\" should hold \"%s\" and \"%s\"\n", what, c->error.text, piece, other);
    }
}

#endif
