/* memory.h: heap memory for programs that cannot go on without it.
   takes: sizes.
   gives: memory_take, memory_grow, memory_copy_text, memory_text.
   owns:  nothing; the caller gives memory back with free(). */
#ifndef DEMO_MEMORY_H
#define DEMO_MEMORY_H

#include <stddef.h>

typedef struct memory_text { /* a text that grows; zeroed: empty. free() its data */
    char *data; /* [bytes]; NULL while it is empty */
    size_t bytes, cap;
} memory_text;

/* None returns NULL: without memory the program says so and exits with 1. */
void *memory_take(size_t count, size_t bytes_each);              /* zeroed */
void *memory_grow(void *old, size_t count, size_t bytes_each);   /* the new part is not zeroed */
char *memory_copy_text(const char *text, size_t bytes);          /* a NUL behind it */
void memory_text_add(memory_text *t, const char *text, size_t bytes);

#endif
