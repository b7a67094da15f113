/* text_file.c: see text_file.h.
   takes: stdio.
   gives: what text_file.h declares.
   owns:  nothing. */
#include "text_file.h"

#include "memory.h"
#include "wide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
