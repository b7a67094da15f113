/* text_file.c: see text_file.h.
   takes: stdio.
   gives: what text_file.h declares. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "text_file.h"

#include "folder.h"
#include "memory.h"
#include "wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <process.h>

#define process_id _getpid
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define process_id getpid
#endif

#define TEXT_FILE_MAX ((size_t)1 << 30) /* bytes; /dev/zero has no end */

FILE *text_file_open(const char *path, const char *mode)
{
#ifdef _WIN32
    wchar_t at[1024], how[8];
    wide_path(path, at, 1024);
    if (!at[0]) {
        errno = EINVAL;
        return NULL;
    }
    return _wfopen(at, wide_path(mode, how, 8));
#else
    return fopen(path, mode);
#endif
}

char *text_file_load(const char *path, size_t most, size_t *bytes)
{
    char *text = NULL;
    size_t used = 0, cap = 0, got = 1;
    FILE *file = text_file_open(path, "rb");
    bool large = false;
    if (!file) {
        return NULL;
    }
    while (got > 0 && !large) {
        if (used + 1 >= cap) {
            cap = cap ? cap * 2 : 1 << 16;
            char *more = realloc(text, cap);
            if (!more) {
                free(text);
                fclose(file);
                errno = ENOMEM;
                return NULL;
            }
            text = more;
        }
        got = fread(text + used, 1, cap - used - 1, file);
        used += got;
        large = used > most;
    }
    if (large || ferror(file)) {
        int why = large ? EFBIG : errno;
        free(text);
        fclose(file);
        errno = why;
        return NULL;
    }
    fclose(file);
    text[used] = 0;
    *bytes = used;
    return text;
}

char *text_file_read(const char *path, size_t *bytes)
{
    char *text = text_file_load(path, TEXT_FILE_MAX, bytes);
    if (!text) {
        fprintf(stderr, "%s: %s\n", path, errno == EFBIG ? "larger than 1 GiB" : strerror(errno));
    }
    return text;
}

/* A device or a pipe is written to, not replaced. */
static bool is_device(const char *path)
{
#ifdef _WIN32
    (void)path; /* the system does not let one be replaced */
    return false;
#else
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
#endif
}

static char *copy_of(const char *path)
{
    size_t bytes = strlen(path) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, path, bytes) : NULL;
}

/* The path of the file that a link leads to. NULL: no memory. */
static char *target_of(const char *path)
{
#ifndef _WIN32
    char *target = realpath(path, NULL);
    if (target) {
        return target;
    }
#endif
    return copy_of(path);
}

/* The new file may be read by those who may read the older one. */
static void copy_mode(const char *path, FILE *file)
{
#ifdef _WIN32
    (void)path;
    (void)file;
#else
    struct stat s;
    if (stat(path, &s) == 0 && fchmod(fileno(file), s.st_mode & 0777) != 0) {
        errno = 0; /* then it has the mode of a new file */
    }
#endif
}

/* The new name is on the disk when this returns, where the disk can do that. */
static void sync_folder_of(const char *path)
{
#ifdef _WIN32
    (void)path; /* wide_move_over waits */
#else
    char *folder = copy_of(path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (!folder) {
        return; /* then the disk has the new name a little later */
    }
    if (slash) {
        slash[slash == folder] = 0;
    }
    int file = open(slash ? folder : ".", O_RDONLY);
    if (file >= 0) {
        fsync(file);
        close(file);
    }
    free(folder);
#endif
}

bool text_file_begin(text_file_part *f, const char *path)
{
    *f = (text_file_part){ .path = target_of(path) };
    bool part = f->path && !is_device(f->path);
    size_t cap = part ? strlen(f->path) + 32 : 0;
    f->part = part ? malloc(cap) : NULL;
    if (f->part) {
        snprintf(f->part, cap, "%s.part%ld", f->path, (long)process_id());
    }
    bool memory = f->path && (f->part || !part);
    errno = memory ? 0 : ENOMEM;
    f->file = memory ? text_file_open(f->part ? f->part : f->path, "wb") : NULL;
    if (!f->file) {
        int why = errno;
        free(f->path);
        free(f->part);
        *f = (text_file_part){ 0 };
        errno = why;
        return false;
    }
    if (f->part) {
        copy_mode(f->path, f->file);
    }
    return true;
}

bool text_file_end(text_file_part *f, bool good)
{
    int why = errno;
    if (good && fflush(f->file) != 0) {
        why = errno;
        good = false;
    }
    if (good && ferror(f->file)) { /* a write has failed before */
        why = EIO;
        good = false;
    }
    if (good && f->part && !wide_sync(f->file)) {
        why = errno;
        good = false;
    }
    if (fclose(f->file) != 0 && good) {
        why = errno;
        good = false;
    }
    if (good && f->part && !wide_move_over(f->part, f->path)) {
        why = errno;
        good = false;
    }
    if (good && f->part) {
        sync_folder_of(f->path);
    } else if (f->part) {
        folder_remove_file(f->part);
    }
    free(f->path);
    free(f->part);
    *f = (text_file_part){ 0 };
    errno = why;
    return good;
}

bool text_file_replace(const char *path, const void *data, size_t bytes)
{
    text_file_part f;
    if (!text_file_begin(&f, path)) {
        return false;
    }
    return text_file_end(&f, fwrite(data, 1, bytes, f.file) == bytes);
}

bool text_file_write(const char *path, const void *data, size_t bytes)
{
    bool good = text_file_replace(path, data, bytes);
    if (!good) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    }
    return good;
}

bool text_line_read(FILE *file, char **line, size_t *cap, size_t *bytes)
{
    size_t used = 0;
    int c;
    while ((c = fgetc(file)) != EOF && c != '\n') {
        if (used + 1 >= *cap) {
            *cap = *cap ? *cap * 2 : 256;
            *line = memory_grow(*line, *cap, 1);
        }
        (*line)[used++] = (char)c;
    }
    if (c == EOF && used == 0) {
        return false;
    }
    if (!*line) {
        *cap = 256;
        *line = memory_grow(NULL, *cap, 1);
    }
    (*line)[used] = 0;
    *bytes = used;
    return true;
}

int text_stdout_end(int code)
{
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        fputs("stdout cannot be written\n", stderr);
        return 1;
    }
    return code;
}
