/* convert_engine.c: the engine that fuzz/convert.c drives. What it does to files and folders passes through the fuzzer,
   which counts these calls, makes one fail or stops the process at it.
   takes: fuzz_at; fuzz_write.
   gives: every function of exl2.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int fuzz_at(void); /* before a call; not 0: it fails */
ssize_t fuzz_write(int file, const void *data, size_t bytes, off_t at);

#define pwrite(file, data, bytes, at) fuzz_write(file, data, bytes, at)
#define fsync(file) ((void)(file), fuzz_at() ? -1 : 0) /* a killed process loses nothing that it wrote */
#define mkdir(path, mode) (fuzz_at() ? -1 : (mkdir)(path, mode))
#define unlink(path) (fuzz_at() ? -1 : (unlink)(path))
#define rmdir(path) (fuzz_at() ? -1 : (rmdir)(path))
#define exl2__platform_rename engine_rename
#define exl2__platform_replace engine_replace
#define EXL2_CONVERT
#include "../../exl2_impl/0_base/platform_write.h"
#undef exl2__platform_rename
#undef exl2__platform_replace

static inline bool exl2__platform_rename(const char *from, const char *to)
{
    return !fuzz_at() && engine_rename(from, to);
}

static inline bool exl2__platform_replace(const char *from, const char *to)
{
    return !fuzz_at() && engine_replace(from, to);
}

#define EXL2_IMPLEMENTATION
#include "../../exl2.h"
