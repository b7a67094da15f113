/* kernel_folder.c: see kernel_folder.h.
   takes: stdio and the system's folders.
   gives: what kernel_folder.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "kernel_folder.h"

#include "wide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PATH_CAP WIDE_PATH_MAX

/* ---- the system's files ---- */

#ifdef _WIN32
#include <direct.h>
#include <io.h>
#include <process.h>

#define process_id _getpid
#define PATH_MARK '\\'

static bool make_folder(const char *path)
{
    wchar_t at[PATH_CAP];
    return _wmkdir(wide_path(path, at, PATH_CAP)) == 0 || errno == EEXIST;
}

static FILE *open_file(const char *path, bool to_write)
{
    wchar_t at[PATH_CAP];
    return _wfopen(wide_path(path, at, PATH_CAP), to_write ? L"wb" : L"rb");
}

static void remove_file(const char *path)
{
    wchar_t at[PATH_CAP];
    _wremove(wide_path(path, at, PATH_CAP));
}

/* When the file was written; false: it does not exist. */
static bool time_of(const char *path, time_t *out)
{
    wchar_t at[PATH_CAP];
    struct _stat64 about;
    bool exists = _wstat64(wide_path(path, at, PATH_CAP), &about) == 0;
    *out = exists ? (time_t)about.st_mtime : 0;
    return exists;
}

/* Writes the default folder, as snprintf does. 0: there is none. */
static int default_folder(char *out, size_t cap)
{
    char text[PATH_CAP];
    const wchar_t *caches = _wgetenv(L"LOCALAPPDATA");
    bool known = caches && *caches && WideCharToMultiByte(CP_UTF8, 0, caches, -1, text, PATH_CAP, NULL, NULL) > 0;
    return known ? snprintf(out, cap, "%s/exl2", text) : 0;
}
#else
#include <dirent.h>
#include <unistd.h>

#define process_id getpid
#define PATH_MARK '/'

static bool make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static FILE *open_file(const char *path, bool to_write)
{
    return fopen(path, to_write ? "wb" : "rb");
}

static void remove_file(const char *path)
{
    remove(path);
}

/* When the file was written; false: it does not exist. */
static bool time_of(const char *path, time_t *out)
{
    struct stat about;
    bool exists = stat(path, &about) == 0;
    *out = exists ? about.st_mtime : 0;
    return exists;
}

/* Writes the default folder, as snprintf does. 0: there is none. */
static int default_folder(char *out, size_t cap)
{
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_caches = caches && *caches, has_home = home && *home;
    return has_caches || has_home ? snprintf(out, cap, "%s%s/exl2", has_caches ? caches : home,
                                             has_caches ? "" : "/.cache")
                                  : 0;
}
#endif

/* ---- the folder ---- */

/* Makes the folder and its parents. */
static bool make_folders(const char *path)
{
    char part[1024];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; *at; at++) {
        char mark = *at;
        if (mark == '/' || mark == PATH_MARK) {
            *at = 0;
            make_folder(part); /* may exist, or be forbidden: only the last one counts */
            *at = mark;
        }
    }
    return make_folder(part);
}

bool kernel_folder_open(kernel_folder *f, const char *path)
{
    *f = (kernel_folder){ .stored = 0 };
    int bytes = path ? snprintf(f->path, sizeof f->path, "%s", path) : default_folder(f->path, sizeof f->path);
    return bytes >= 0 && (size_t)bytes < sizeof f->path;
}

static bool entry_path(const kernel_folder *f, const char *key, const char *ending, char *out, size_t cap)
{
    int bytes = snprintf(out, cap, "%s/%s%s", f->path, key, ending);
    return bytes > 0 && (size_t)bytes < cap;
}

static size_t load(void *user, const char *key, void *dst, size_t cap)
{
    char path[PATH_CAP];
    FILE *file = entry_path(user, key, "", path, sizeof path) ? open_file(path, false) : NULL;
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
    FILE *file = open_file(path, true);
    if (!file) {
        return false;
    }
    bool written = fwrite(data, 1, bytes, file) == bytes && wide_sync(file);
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
    char path[PATH_CAP];
    time_t written;
    if (is_other_version(name, key) && entry_path(f, name, "", path, sizeof path) && time_of(path, &written)
        && difftime(time(NULL), written) > KEEP_SECONDS) {
        remove_file(path);
    }
}

static void remove_old(const kernel_folder *f, const char *key)
{
#ifdef _WIN32
    char pattern[PATH_CAP], name[PATH_CAP];
    wchar_t at[PATH_CAP];
    struct _wfinddata64_t found;
    bool fits = entry_path(f, "*", "", pattern, sizeof pattern);
    intptr_t list = fits ? _wfindfirst64(wide_path(pattern, at, PATH_CAP), &found) : -1;
    for (int more = list == -1 ? -1 : 0; more == 0; more = _wfindnext64(list, &found)) {
        if (WideCharToMultiByte(CP_UTF8, 0, found.name, -1, name, PATH_CAP, NULL, NULL) > 0) {
            remove_if_old(f, name, key);
        }
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
    char path[PATH_CAP], part[PATH_CAP], ending[32];
    snprintf(ending, sizeof ending, ".part%ld", (long)process_id());
    if (!entry_path(f, key, "", path, sizeof path) || !entry_path(f, key, ending, part, sizeof part)) {
        return;
    }
    if (make_folders(f->path) && write_file(part, data, bytes) && wide_move_over(part, path)) {
        f->stored++;
        f->stored_bytes += bytes;
        remove_old(f, key);
        return;
    }
    if (!f->error[0]) {
        snprintf(f->error, sizeof f->error, "%.200s: %s", f->path, strerror(errno));
    }
    remove_file(part);
}

exl2_kernel_cache kernel_folder_hook(kernel_folder *f)
{
    return f->path[0] ? (exl2_kernel_cache){ load, store, f } : (exl2_kernel_cache){ NULL, NULL, NULL };
}
