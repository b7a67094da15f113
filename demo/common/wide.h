/* wide.h: what Windows does in another way: paths, renaming over a file, and waiting for the disk.
   takes: UTF-8; elsewhere a file that defines _POSIX_C_SOURCE.
   gives: wide_path, on Windows alone; wide_move_over, wide_sync. */
#ifndef DEMO_WIDE_H
#define DEMO_WIDE_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#define WIDE_PATH_MAX 1280

#ifdef _WIN32
#include <io.h>
#include <windows.h>

/* The text in UTF-16, in out [cap]; "" if it is too long, which is the name of no file. */
static inline const wchar_t *wide_path(const char *path, wchar_t *out, int cap)
{
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, out, cap) == 0) {
        out[0] = 0;
    }
    return out;
}
#else
#include <unistd.h>
#endif

/* Waits until what was written to a file is on the disk, so that a loss of power does not lose it. false: it fails, and
   says why in errno. */
static inline bool wide_sync(FILE *file)
{
#ifdef _WIN32
    return fflush(file) == 0 && _commit(_fileno(file)) == 0;
#else
    return fflush(file) == 0 && fsync(fileno(file)) == 0;
#endif
}

/* As rename, but on Windows, too, it replaces a file. false: it fails, and says why in errno. */
static inline bool wide_move_over(const char *from, const char *to)
{
#ifdef _WIN32
    wchar_t old[WIDE_PATH_MAX], new[WIDE_PATH_MAX];
    if (!MoveFileExW(wide_path(from, old, WIDE_PATH_MAX), wide_path(to, new, WIDE_PATH_MAX),
                     MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
        errno = EACCES;
        return false;
    }
    return true;
#else
    return rename(from, to) == 0;
#endif
}

#endif
