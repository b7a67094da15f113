/* stdlib.h: what exl2.h and immintrin.h use of the C library; there is no aligned_alloc */
#ifndef MSVC_STDLIB_H
#define MSVC_STDLIB_H

#include <stddef.h>

void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *memory, size_t bytes);
void free(void *memory);

#endif
