/* page.c: see page.h.
   takes: the folder page, embedded by exl2_impl/tools/embed.c.
   gives: what page.h declares. */
#include "page.h"

#include <string.h>

typedef struct embedded_file {
    const char *name, *data;
    size_t bytes;
} embedded_file;

#include "page.inc"

#define PAGE_FILES (sizeof embedded_files / sizeof embedded_files[0])

/* The name of the file that the path of a request stands for. */
static const char *name_of(const char *path)
{
    return strcmp(path, "/") == 0 ? "index.html" : strcmp(path, "/favicon.ico") == 0 ? "favicon.svg" : path + 1;
}

static const char *type_of(const char *name)
{
    static const char *const types[][2] = { { ".html", "text/html; charset=utf-8" },
                                            { ".css", "text/css; charset=utf-8" },
                                            { ".js", "text/javascript; charset=utf-8" },
                                            { ".svg", "image/svg+xml" } };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(ending, types[i][0]) == 0) {
            return types[i][1];
        }
    }
    return "application/octet-stream";
}

bool page_find(const char *path, page_file *file)
{
    const char *name = path[0] == '/' ? name_of(path) : "";
    for (size_t i = 0; i < PAGE_FILES; i++) {
        if (strcmp(name, embedded_files[i].name) == 0) {
            *file = (page_file){ type_of(name), embedded_files[i].data, embedded_files[i].bytes };
            return true;
        }
    }
    return false;
}
