/* engine_files.h: the files, folders and times of the tests' engine (engine.c), which a test of conversions replaces.
   takes: engine_ns of engine.c.
   gives: convert_system; the functions of platform_write.h, and exl2__platform_ns, over it.
   owns:  nothing. */
#ifndef ENGINE_FILES_H
#define ENGINE_FILES_H

#include "convert_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

convert_system_calls convert_system;

/* ---- the system's calls ---- */

static inline int convert_at(void)
{
    return convert_system.at ? convert_system.at() : 0;
}

static inline int convert_fsync(int file)
{
    return !convert_system.at ? fsync(file) : convert_at() ? -1 : 0; /* a killed process loses nothing that it wrote */
}

static inline ssize_t convert_pwrite(int file, const void *data, size_t bytes, off_t at)
{
    return convert_system.pwrite ? convert_system.pwrite(file, data, bytes, at) : pwrite(file, data, bytes, at);
}

#define pwrite(file, data, bytes, at) convert_pwrite(file, data, bytes, at)
#define fsync(file) convert_fsync(file)
#define mkdir(path, mode) (convert_at() ? -1 : (mkdir)(path, mode))
#define unlink(path) (convert_at() ? -1 : (unlink)(path))
#define rmdir(path) (convert_at() ? -1 : (rmdir)(path))

/* ---- the engine's functions above them ---- */

#define exl2__platform_create engine_create
#define exl2__platform_write engine_write
#define exl2__platform_sync engine_sync
#define exl2__platform_finish engine_finish
#define exl2__platform_rename engine_rename
#define exl2__platform_replace engine_replace
#define exl2__platform_disk_free engine_disk_free
#include "private/platform_write.h"
#undef exl2__platform_create
#undef exl2__platform_write
#undef exl2__platform_sync
#undef exl2__platform_finish
#undef exl2__platform_rename
#undef exl2__platform_replace
#undef exl2__platform_disk_free

static inline uint64_t exl2__platform_ns(void)
{
    return convert_system.ns ? convert_system.ns() : engine_ns();
}

static inline void *exl2__platform_create(const char *path)
{
    return convert_system.create ? convert_system.create(path) : engine_create(path);
}

static inline bool exl2__platform_write(void *file, uint64_t offset, const void *data, size_t bytes)
{
    return (convert_system.write ? convert_system.write : engine_write)(file, offset, data, bytes);
}

static inline bool exl2__platform_sync(void *file)
{
    return convert_system.sync ? convert_system.sync(file) : engine_sync(file);
}

static inline bool exl2__platform_finish(void *file)
{
    return convert_system.finish ? convert_system.finish(file) : engine_finish(file);
}

static inline bool exl2__platform_rename(const char *from, const char *to)
{
    return !convert_at() && engine_rename(from, to);
}

static inline bool exl2__platform_replace(const char *from, const char *to)
{
    return !convert_at() && (convert_system.replace ? convert_system.replace : engine_replace)(from, to);
}

static inline bool exl2__platform_disk_free(const char *path, uint64_t *bytes)
{
    return (convert_system.disk_free ? convert_system.disk_free : engine_disk_free)(path, bytes);
}

#endif
