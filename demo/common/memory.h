/* memory.h: heap memory, for programs that end if an allocation fails.
   takes: sizes.
   gives: memory_take, memory_grow, memory_copy_text, memory_text, memory_text_add, memory_text_format.
   owns:  nothing; the caller frees memory with free(). */
#ifndef DEMO_MEMORY_H
#define DEMO_MEMORY_H

#include <stddef.h>

typedef struct memory_text { /* a text that grows; zeroed: empty; free() its data */
    char *data; /* [bytes]; NULL if empty */
    size_t bytes, cap;
} memory_text;

/* None of these returns NULL: if memory runs out they print a message and exit with 1. */
void *memory_take(size_t count, size_t bytes_each);              /* zeroed */
void *memory_grow(void *old, size_t count, size_t bytes_each);   /* the new part is not zeroed */
char *memory_copy_text(const char *text, size_t bytes);          /* adds a NUL */
void memory_text_add(memory_text *t, const char *text, size_t bytes);
void memory_text_format(memory_text *t, const char *format, ...); /* as printf, without the NUL */

#endif
