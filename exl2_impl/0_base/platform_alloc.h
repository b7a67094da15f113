/* platform_alloc.h: the default allocator, and memory that is reserved before it is used.
   takes: sizes and alignments.
   gives: exl2__platform_allocator, exl2__platform_reserve, exl2__platform_commit, exl2__platform_release,
          exl2__platform_populate, exl2__platform_discard. */
#ifndef EXL2__PLATFORM_ALLOC_H
#define EXL2__PLATFORM_ALLOC_H

#include "platform.h"

#include <stdlib.h>

#if defined(_WIN32)
#include <malloc.h>
/* Declared with the tags of windows.h, as in platform.h. */
__declspec(dllimport) void *__stdcall VirtualAlloc(void *address, size_t bytes, unsigned long type,
                                                   unsigned long protection);
__declspec(dllimport) int __stdcall VirtualFree(void *address, size_t bytes, unsigned long type);
#elif defined(__linux__) /* sys/mman.h hides both under -std=c11 and POSIX */
extern int madvise(void *memory, size_t bytes, int advice);
#define EXL2__MADV_DONTNEED 4
#define EXL2__MADV_POPULATE_WRITE 23
#endif

/* The names of libc stand in parentheses because applications may define malloc and free as macros. */
EXL2__PRIVATE void *exl2__platform_alloc(void *user, size_t bytes, size_t align, exl2_mem tag)
{
    (void)user;
    (void)tag;
#if defined(_WIN32)
    return (_aligned_malloc)(bytes, align);
#else
    if (bytes > SIZE_MAX - align) {
        return NULL;
    }
    return (aligned_alloc)(align, (bytes + align - 1) / align * align);
#endif
}

EXL2__PRIVATE void exl2__platform_free(void *user, void *memory, size_t bytes, exl2_mem tag)
{
    (void)user;
    (void)bytes;
    (void)tag;
#if defined(_WIN32)
    (_aligned_free)(memory);
#else
    (free)(memory);
#endif
}

/* Windows counts memory against the system's limit when it is allocated, other systems when it is first written. So on
   Windows a large block that may never be used is reserved, and its parts are committed before their first use. */
#ifndef EXL2__PLATFORM_RESERVES /* tests reserve on other systems, too */
#if defined(_WIN32)
#define EXL2__PLATFORM_RESERVES 1
#else
#define EXL2__PLATFORM_RESERVES 0
#endif
#endif

/* Addresses without memory, aligned to 4,096 bytes. NULL: failed. */
static inline void *exl2__platform_reserve(size_t bytes)
{
#if defined(_WIN32)
    return VirtualAlloc(NULL, bytes, 0x2000u /* MEM_RESERVE */, 1 /* PAGE_NOACCESS */);
#else
    return exl2__platform_alloc(NULL, bytes, 4096, EXL2_MEM_GENERAL);
#endif
}

/* Makes a part of a reserved block usable. false: the system has no memory for it. */
static inline bool exl2__platform_commit(void *memory, size_t bytes)
{
#ifdef EXL2__TEST_COMMIT /* lets a test make it fail */
    if (!EXL2__TEST_COMMIT(bytes)) {
        return false;
    }
#endif
#if defined(_WIN32)
    return VirtualAlloc(memory, bytes, 0x1000u /* MEM_COMMIT */, 4 /* PAGE_READWRITE */) != NULL;
#else
    (void)memory;
    (void)bytes;
    return true;
#endif
}

/* Frees a reserved block. */
static inline void exl2__platform_release(void *memory)
{
#if defined(_WIN32)
    VirtualFree(memory, 0, 0x8000u /* MEM_RELEASE */);
#else
    exl2__platform_free(NULL, memory, 0, EXL2_MEM_GENERAL);
#endif
}

/* Asks for the memory of a block in one call, which costs less than a fault for each page. Where the system has no such
   call (Linux before 5.14, other systems), the first access to a page does it. */
static inline void exl2__platform_populate(void *memory, size_t bytes)
{
#if defined(__linux__)
    uintptr_t begin = (uintptr_t)memory / 4096 * 4096;
    madvise((void *)begin, (uintptr_t)memory + bytes - begin, EXL2__MADV_POPULATE_WRITE);
#else
    (void)memory;
    (void)bytes;
#endif
}

/* Gives the pages of a block back before it is freed: its contents are lost. Freeing a large block takes Linux a
   millisecond per 10 MiB, and this can be done in parts. It does nothing on other systems. */
static inline void exl2__platform_discard(void *memory, size_t bytes)
{
#if defined(__linux__)
    const uintptr_t page = 65536; /* the largest of any system's pages, so that no other block is touched */
    uintptr_t begin = ((uintptr_t)memory + page - 1) / page * page, end = ((uintptr_t)memory + bytes) / page * page;
    if (end > begin) {
        madvise((void *)begin, end - begin, EXL2__MADV_DONTNEED);
    }
#else
    (void)memory;
    (void)bytes;
#endif
}

static inline exl2_allocator exl2__platform_allocator(void)
{
    exl2_allocator hook = { .alloc_fn = exl2__platform_alloc, .free_fn = exl2__platform_free };
    return hook;
}

#endif
