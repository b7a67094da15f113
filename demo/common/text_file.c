/* text_file.c: see text_file.h.
   takes: stdio.
   gives: what text_file.h declares.
   owns:  nothing. */
#include "text_file.h"

#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#endif

#define TEXT_FILE_MAX ((size_t)1 << 30) /* bytes; /dev/zero has no end */

FILE *text_file_open(const char *path, const char *mode)
{
#ifdef _WIN32
    wchar_t wide_path[1024], wide_mode[8];
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, wide_path, 1024) == 0
        || MultiByteToWideChar(CP_UTF8, 0, mode, -1, wide_mode, 8) == 0) {
        errno = EINVAL;
        return NULL;
    }
    return _wfopen(wide_path, wide_mode);
#else
    return fopen(path, mode);
#endif
}

char *text_file_read(const char *path, size_t *bytes)
{
    char *text = NULL;
    size_t used = 0, cap = 0, got = 0;
    FILE *file = text_file_open(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return NULL;
    }
    do {
        if (used >= TEXT_FILE_MAX) {
            fprintf(stderr, "%s: larger than 1 GiB\n", path);
            free(text);
            fclose(file);
            return NULL;
        }
        if (used + 1 >= cap) {
            cap = cap ? cap * 2 : 1 << 16;
            text = memory_grow(text, cap, 1);
        }
        got = fread(text + used, 1, cap - used - 1, file);
        used += got;
    } while (got > 0);
    if (ferror(file)) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        free(text);
        fclose(file);
        return NULL;
    }
    fclose(file);
    text[used] = 0;
    *bytes = used;
    return text;
}

bool text_file_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = text_file_open(path, "wb");
    bool good = file && fwrite(data, 1, bytes, file) == bytes;
    good = file && fclose(file) == 0 && good;
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
