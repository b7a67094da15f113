/* text_file.c: see text_file.h.
   takes: stdio.
   gives: what text_file.h declares.
   owns:  nothing. */
#define _POSIX_C_SOURCE 200809L
#include "text_file.h"

#include "folder.h"
#include "memory.h"
#include "wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/stat.h>
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
            text = memory_grow(text, cap, 1);
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

bool text_file_save(const char *path, const void *data, size_t bytes)
{
    FILE *file = text_file_open(path, "wb");
    bool good = file && fwrite(data, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && good;
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

bool text_file_replace(const char *path, const void *data, size_t bytes)
{
    char part[1024];
    if (is_device(path)) {
        return text_file_save(path, data, bytes);
    }
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (text_file_save(part, data, bytes) && wide_move_over(part, path)) {
        return true;
    }
    int why = errno;
    folder_remove_file(part);
    errno = why;
    return false;
}

bool text_file_write(const char *path, const void *data, size_t bytes)
{
    bool good = text_file_save(path, data, bytes);
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
