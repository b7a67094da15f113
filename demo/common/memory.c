/* memory.c: see memory.h.
   takes: the C library's heap.
   gives: what memory.h declares. */
#include "memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *memory_or_exit(void *memory, size_t count, size_t bytes_each)
{
    if (!memory) {
        fprintf(stderr, "out of memory (%zu x %zu bytes)\n", count, bytes_each);
        exit(1);
    }
    return memory;
}

void *memory_take(size_t count, size_t bytes_each)
{
    return memory_or_exit(calloc(count ? count : 1, bytes_each ? bytes_each : 1), count, bytes_each);
}

void *memory_grow(void *old, size_t count, size_t bytes_each)
{
    if (bytes_each && count > SIZE_MAX / bytes_each) {
        return memory_or_exit(NULL, count, bytes_each);
    }
    size_t bytes = count * bytes_each;
    return memory_or_exit(realloc(old, bytes ? bytes : 1), count, bytes_each);
}

void memory_text_add(memory_text *t, const char *text, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (bytes > t->cap - t->bytes) {
        t->cap = (t->bytes + bytes) * 2;
        t->data = memory_grow(t->data, t->cap, 1);
    }
    memcpy(t->data + t->bytes, text, bytes);
    t->bytes += bytes;
}

void memory_text_format(memory_text *t, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int bytes = vsnprintf(NULL, 0, format, list);
    if (bytes > 0) {
        char *text = memory_take((size_t)bytes + 1, 1);
        vsnprintf(text, (size_t)bytes + 1, format, again);
        memory_text_add(t, text, (size_t)bytes);
        free(text);
    }
    va_end(again);
    va_end(list);
}

char *memory_copy_text(const char *text, size_t bytes)
{
    char *copy = memory_take(bytes + 1, 1);
    if (bytes) {
        memcpy(copy, text, bytes);
    }
    return copy;
}
