/* platform_files.h: the default hooks with which an engine reads files. platform_write.h writes files, where models are
   made.
   takes: paths in UTF-8.
   gives: exl2__platform_files.
   owns:  open files, until the close hook. */
#ifndef EXL2__PLATFORM_FILES_H
#define EXL2__PLATFORM_FILES_H

#include "platform.h"

#if defined(_WIN32)
#include <io.h>
#ifndef EXL2_NO_FILES
#include <share.h>
#include <stdio.h>
/* Declared with the tags of windows.h, as in platform.h. */
__declspec(dllimport) int __stdcall WideCharToMultiByte(unsigned int page, unsigned long flags, const wchar_t *text,
                                                        int count, char *out, int cap, const char *fallback,
                                                        int *used_fallback);
#endif
#else
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__linux__) /* unistd.h hides it under -std=c11 */
extern ssize_t pread(int file, void *to, size_t bytes, off_t offset);
#endif
#endif

#ifndef EXL2_NO_FILES
#if defined(_WIN32)

/* Finds the first entry of a folder, or returns -1. */
static inline intptr_t exl2__platform_first(const char *dir, struct _wfinddata64_t *entry)
{
    wchar_t wide[EXL2__WIDE_MAX + 2];
    if (!exl2__platform_wide(dir, wide)) {
        return -1;
    }
    size_t length = 0;
    while (wide[length]) {
        length++;
    }
    wide[length] = L'\\';
    wide[length + 1] = L'*';
    wide[length + 2] = 0;
    return _wfindfirst64(wide, entry);
}

EXL2__PRIVATE void *exl2__platform_open(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    wchar_t wide[EXL2__WIDE_MAX];
    if (!exl2__platform_wide(path, wide)) {
        return NULL;
    }
    FILE *file = _wfsopen(wide, L"rb", _SH_DENYNO); /* as _wfopen, which /sdl of MSVC rejects */
    if (!file) {
        return NULL;
    }
    int64_t size = _fseeki64(file, 0, SEEK_END) == 0 ? _ftelli64(file) : -1;
    if (size < 0) {
        fclose(file);
        return NULL;
    }
    *bytes = (uint64_t)size;
    return file;
}

EXL2__PRIVATE bool exl2__platform_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    (void)user;
    struct _wfinddata64_t entry;
    intptr_t search = exl2__platform_first(dir, &entry);
    if (search == -1) {
        return false;
    }
    bool found = false;
    do {
        if (!(entry.attrib & _A_SUBDIR) && index-- == 0) {
            found = WideCharToMultiByte(EXL2__UTF8_PAGE, 0, entry.name, -1, name, (int)cap, NULL, NULL) > 0;
            break;
        }
    } while (_wfindnext64(search, &entry) == 0);
    _findclose(search);
    return found;
}

EXL2__PRIVATE int64_t exl2__platform_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    (void)user;
    _lock_file((FILE *)file); /* other threads may read the same file */
    bool found = _fseeki64((FILE *)file, (int64_t)offset, SEEK_SET) == 0;
    size_t got = found ? fread(out, 1, bytes, (FILE *)file) : 0;
    bool failed = !found || (got < bytes && ferror((FILE *)file));
    _unlock_file((FILE *)file);
    return failed ? -1 : (int64_t)got;
}

EXL2__PRIVATE void exl2__platform_close(void *user, void *file)
{
    (void)user;
    fclose((FILE *)file);
}

#else

/* The handle is the file descriptor + 1, so that opening a file allocates nothing. */
EXL2__PRIVATE void *exl2__platform_open(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    int file = open(path, O_RDONLY);
    if (file < 0) {
        return NULL;
    }
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(file);
        return NULL;
    }
    *bytes = (uint64_t)info.st_size;
    return (void *)((intptr_t)file + 1);
}

EXL2__PRIVATE bool exl2__platform_list(void *user, const char *dir, uint32_t index, char *name, size_t cap)
{
    (void)user;
    DIR *folder = opendir(dir);
    if (!folder) {
        return false;
    }
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) {
        size_t bytes = strlen(entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || bytes >= cap) {
            continue;
        }
        if (index-- == 0) {
            memcpy(name, entry->d_name, bytes + 1);
            found = true;
        }
    }
    closedir(folder);
    return found;
}

EXL2__PRIVATE int64_t exl2__platform_read(void *user, void *file, uint64_t offset, void *out, size_t bytes)
{
    (void)user;
    int descriptor = (int)((intptr_t)file - 1);
    size_t done = 0;
    if (offset > INT64_MAX - bytes) {
        return -1;
    }
    while (done < bytes) {
        ssize_t got = pread(descriptor, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return (int64_t)done;
}

EXL2__PRIVATE void exl2__platform_close(void *user, void *file)
{
    (void)user;
    close((int)((intptr_t)file - 1));
}

#endif

static inline exl2_files exl2__platform_files(void)
{
    exl2_files hook = { exl2__platform_open, exl2__platform_list, exl2__platform_read, exl2__platform_close, NULL };
    return hook;
}
#endif

#endif
