/* kernel_folder.c: see kernel_folder.h.
   takes: stdio and the system's folders.
   gives: what kernel_folder.h declares.
   owns:  nothing. */
#define _POSIX_C_SOURCE 200809L
#include "kernel_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#ifdef _WIN32
#include <direct.h>
#include <io.h>
#include <process.h>
#define process_id _getpid
#else
#include <dirent.h>
#include <unistd.h>
#define process_id getpid
#endif

static bool make_folder(const char *path)
{
#ifdef _WIN32
    return _mkdir(path) == 0 || errno == EEXIST;
#else
    return mkdir(path, 0777) == 0 || errno == EEXIST;
#endif
}

/* Makes the folder and its parents. */
static bool make_folders(const char *path)
{
    char part[1024];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; *at; at++) {
        if (*at == '/') {
            *at = 0;
            make_folder(part); /* may exist, or be forbidden: only the last one counts */
            *at = '/';
        }
    }
    return make_folder(part);
}

/* Renames `from` to `to`, and replaces `to`. */
static bool move_over(const char *from, const char *to)
{
#ifdef _WIN32
    remove(to); /* on Windows rename does not replace. A reader that comes now finds no entry and compiles */
#endif
    return rename(from, to) == 0;
}

bool kernel_folder_open(kernel_folder *f, const char *path)
{
    *f = (kernel_folder){ .stored = 0 };
    int bytes;
    if (path) {
        bytes = snprintf(f->path, sizeof f->path, "%s", path);
    } else {
#ifdef _WIN32
        const char *caches = getenv("LOCALAPPDATA"), *home = NULL;
#else
        const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
#endif
        bool has_caches = caches && *caches, has_home = home && *home;
        bytes = has_caches || has_home
                    ? snprintf(f->path, sizeof f->path, "%s%s/exl2", has_caches ? caches : home,
                               has_caches ? "" : "/.cache")
                    : 0;
    }
    return bytes >= 0 && (size_t)bytes < sizeof f->path;
}

static bool entry_path(const kernel_folder *f, const char *key, const char *ending, char *out, size_t cap)
{
    int bytes = snprintf(out, cap, "%s/%s%s", f->path, key, ending);
    return bytes > 0 && (size_t)bytes < cap;
}

static size_t load(void *user, const char *key, void *dst, size_t cap)
{
    char path[1280];
    FILE *file = entry_path(user, key, "", path, sizeof path) ? fopen(path, "rb") : NULL;
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    size_t size = bytes > 0 ? (size_t)bytes : 0;
    if (size && size <= cap) {
        rewind(file);
        size = fread(dst, 1, size, file);
    }
    if (file) {
        fclose(file);
    }
    return size;
}

static bool write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        return false;
    }
    bool written = fwrite(data, 1, bytes, file) == bytes;
    return fclose(file) == 0 && written;
}

/* ---- entries of other versions: the same "module-target-" followed by 16 other digits ---- */

#define KEY_DIGITS 16
#define KEEP_SECONDS (30.0 * 24 * 3600)

static bool is_other_version(const char *name, const char *key)
{
    size_t bytes = strlen(key);
    if (bytes <= KEY_DIGITS || strlen(name) != bytes || strcmp(name, key) == 0) {
        return false;
    }
    size_t stem = bytes - KEY_DIGITS;
    return key[stem - 1] == '-' && memcmp(name, key, stem) == 0
           && strspn(name + stem, "0123456789abcdef") == KEY_DIGITS;
}

/* Removes the file if it is an entry of another version that was written long ago. */
static void remove_if_old(const kernel_folder *f, const char *name, const char *key)
{
    char path[1280];
    struct stat about;
    if (is_other_version(name, key) && entry_path(f, name, "", path, sizeof path) && stat(path, &about) == 0
        && difftime(time(NULL), about.st_mtime) > KEEP_SECONDS) {
        remove(path);
    }
}

static void remove_old(const kernel_folder *f, const char *key)
{
#ifdef _WIN32
    char pattern[1280];
    struct _finddata_t found;
    intptr_t list = entry_path(f, "*", "", pattern, sizeof pattern) ? _findfirst(pattern, &found) : -1;
    for (int more = list == -1 ? -1 : 0; more == 0; more = _findnext(list, &found)) {
        remove_if_old(f, found.name, key);
    }
    if (list != -1) {
        _findclose(list);
    }
#else
    DIR *list = opendir(f->path);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        remove_if_old(f, entry->d_name, key);
    }
    if (list) {
        closedir(list);
    }
#endif
}

static void store(void *user, const char *key, const void *data, size_t bytes)
{
    kernel_folder *f = user;
    char path[1280], part[1280], ending[32];
    snprintf(ending, sizeof ending, ".part%ld", (long)process_id());
    if (!entry_path(f, key, "", path, sizeof path) || !entry_path(f, key, ending, part, sizeof part)) {
        return;
    }
    if (make_folders(f->path) && write_file(part, data, bytes) && move_over(part, path)) {
        f->stored++;
        f->stored_bytes += bytes;
        remove_old(f, key);
        return;
    }
    if (!f->error[0]) {
        snprintf(f->error, sizeof f->error, "%.200s: %s", f->path, strerror(errno));
    }
    remove(part);
}

exl2_kernel_cache kernel_folder_hook(kernel_folder *f)
{
    return f->path[0] ? (exl2_kernel_cache){ load, store, f } : (exl2_kernel_cache){ NULL, NULL, NULL };
}
