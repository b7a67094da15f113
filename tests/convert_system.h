/* convert_system.h: what a test of conversions puts in the place of the system's clock, disk and files. Include it
   before the engine's files.
   takes: nothing.
   gives: convert_system. */
#ifndef CONVERT_SYSTEM_H
#define CONVERT_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct convert_system_calls { /* NULL: the system's own */
    uint64_t (*ns)(void);
    bool (*disk_free)(const char *path, uint64_t *bytes);
    /* the engine's own functions on files that it writes */
    void *(*create)(const char *path);
    bool (*write)(void *file, uint64_t offset, const void *data, size_t bytes);
    bool (*sync)(void *file);
    bool (*finish)(void *file);
    bool (*replace)(const char *from, const char *to);
    /* calls of the system below them */
    int (*at)(void); /* before each that writes, syncs, renames or removes; not 0: it fails. Files are not synced */
    ssize_t (*pwrite)(int file, const void *data, size_t bytes, off_t at);
} convert_system_calls;

extern convert_system_calls convert_system;

#endif
