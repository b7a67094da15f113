/* text_unpack.h: goldens of tokenizers that are compressed; the program xz unpacks them. The test defines
   _POSIX_C_SOURCE. */
#ifndef TEXT_UNPACK_H
#define TEXT_UNPACK_H

#include "text_goldens.h"

/* The file, or the unpacked file of that name with .xz after it; NULL: neither exists. */
static inline char *text_unpack(const char *path, size_t *bytes)
{
    char command[2000];
    snprintf(command, sizeof command, "if [ -f '%s' ]; then cat '%s'; else xz -dc '%s.xz' 2>/dev/null; fi", path, path,
             path);
    FILE *pipe = popen(command, "r");
    size_t cap = 1 << 16, used = 0;
    char *text = malloc(cap);
    for (size_t got; pipe && (got = fread(text + used, 1, cap - used, pipe)) > 0;) {
        used += got;
        if (used == cap) {
            text = realloc(text, cap *= 2);
        }
    }
    if (pipe) {
        pclose(pipe);
    }
    *bytes = used;
    if (used == 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Checks every row of a file of goldens, of which there are at least `least`. */
static inline void text_rows(rows_state *s, const char *dir, const char *name, int least,
                             void (*row)(void *user, const exl2__json *j, int line))
{
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    s->path = path;
    char *text = text_unpack(path, &bytes);
    if (CHECK(text != NULL)) {
        CHECK(rows_each_line(s->c, path, text, bytes, row, s) >= least);
    }
    free(text);
}

#endif
