/* folder.c: see folder.h.
   takes: POSIX, or the C runtime of Windows.
   gives: what folder.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "folder.h"

#include "wide.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Number of entries but "." and "..", and the sum of the sizes of files. -1: it cannot be read. */
static int64_t list(const char *path, uint64_t *bytes);

#ifdef _WIN32
#include <direct.h>
#include <io.h>

#define WIDE_CAP 1024

bool folder_make(const char *path)
{
    wchar_t at[WIDE_CAP];
    return _wmkdir(wide_path(path, at, WIDE_CAP)) == 0;
}

void folder_remove(const char *path)
{
    wchar_t at[WIDE_CAP];
    _wrmdir(wide_path(path, at, WIDE_CAP));
}

void folder_remove_file(const char *path)
{
    wchar_t at[WIDE_CAP];
    _wremove(wide_path(path, at, WIDE_CAP));
}

static int64_t list(const char *path, uint64_t *bytes)
{
    char pattern[4096];
    wchar_t at[WIDE_CAP];
    struct _wfinddata64_t entry;
    int64_t count = 0;
    snprintf(pattern, sizeof pattern, "%s/*", path);
    intptr_t found = _wfindfirst64(wide_path(pattern, at, WIDE_CAP), &entry);
    if (found == -1) {
        return -1;
    }
    do {
        bool dots = wcscmp(entry.name, L".") == 0 || wcscmp(entry.name, L"..") == 0;
        count += !dots;
        *bytes += entry.attrib & _A_SUBDIR ? 0 : (uint64_t)entry.size;
    } while (_wfindnext64(found, &entry) == 0);
    _findclose(found);
    return count;
}

bool folder_each(const char *path, void (*entry)(void *user, const char *name), void *user)
{
    char pattern[4096], name[WIDE_CAP];
    wchar_t at[WIDE_CAP];
    struct _wfinddata64_t one;
    snprintf(pattern, sizeof pattern, "%s/*", path);
    intptr_t found = _wfindfirst64(wide_path(pattern, at, WIDE_CAP), &one);
    if (found == -1) {
        return false;
    }
    do {
        bool dots = wcscmp(one.name, L".") == 0 || wcscmp(one.name, L"..") == 0;
        if (!dots && WideCharToMultiByte(CP_UTF8, 0, one.name, -1, name, WIDE_CAP, NULL, NULL) > 0) {
            entry(user, name);
        }
    } while (_wfindnext64(found, &one) == 0);
    _findclose(found);
    return true;
}
#else
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

bool folder_make(const char *path)
{
    return mkdir(path, 0777) == 0;
}

void folder_remove(const char *path)
{
    rmdir(path);
}

void folder_remove_file(const char *path)
{
    remove(path);
}

bool folder_each(const char *path, void (*entry)(void *user, const char *name), void *user)
{
    DIR *entries = opendir(path);
    if (!entries) {
        return false;
    }
    for (struct dirent *one; (one = readdir(entries)) != NULL;) {
        if (strcmp(one->d_name, ".") != 0 && strcmp(one->d_name, "..") != 0) {
            entry(user, one->d_name);
        }
    }
    closedir(entries);
    return true;
}

static int64_t list(const char *path, uint64_t *bytes)
{
    DIR *entries = opendir(path);
    int64_t count = 0;
    if (!entries) {
        return -1;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char file[4096];
        struct stat about;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        *bytes += stat(file, &about) == 0 && S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    }
    closedir(entries);
    return count;
}
#endif

bool folder_is_empty(const char *path)
{
    uint64_t bytes = 0;
    return list(path, &bytes) == 0;
}

uint64_t folder_bytes(const char *path)
{
    uint64_t bytes = 0;
    list(path, &bytes);
    return bytes;
}
