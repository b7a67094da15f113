/* malloc.h: aligned memory */
#ifndef MSVC_MALLOC_H
#define MSVC_MALLOC_H

#include <stdlib.h>

void *_aligned_malloc(size_t bytes, size_t align);
void _aligned_free(void *memory);

#endif
