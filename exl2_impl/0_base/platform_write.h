/* platform_write.h: writes files and folders, for the tools that make models.
   takes: platform_files.h, and EXL2_CONVERT.
   gives: exl2__platform_create, exl2__platform_write, exl2__platform_sync, exl2__platform_finish, to write a file;
          exl2__platform_replace, exl2__platform_rename, exl2__platform_sync_dir, exl2__platform_remove_file,
          exl2__platform_make_dir, exl2__platform_remove_dir; exl2__platform_is_link, exl2__platform_is_file,
          exl2__platform_same, exl2__platform_entry, exl2__platform_disk_free; exl2__platform_lock,
          exl2__platform_unlock.
   owns:  open files, until exl2__platform_finish; locked ones, until exl2__platform_unlock. */
#ifndef EXL2__PLATFORM_WRITE_H
#define EXL2__PLATFORM_WRITE_H

#include "platform_files.h"

#if defined(EXL2_CONVERT) && !defined(EXL2_NO_FILES)
#if defined(_WIN32)
#include <direct.h>
#include <wchar.h>
/* Declared with the tags of windows.h, as in platform.h. */
struct _SECURITY_ATTRIBUTES;
struct _BY_HANDLE_FILE_INFORMATION;
union _ULARGE_INTEGER;
__declspec(dllimport) void *__stdcall CreateFileW(const wchar_t *path, unsigned long access, unsigned long share,
                                                  struct _SECURITY_ATTRIBUTES *security, unsigned long create,
                                                  unsigned long flags, void *like);
__declspec(dllimport) int __stdcall GetFileInformationByHandle(void *file, struct _BY_HANDLE_FILE_INFORMATION *out);
__declspec(dllimport) int __stdcall CloseHandle(void *handle);
__declspec(dllimport) int __stdcall MoveFileExW(const wchar_t *from, const wchar_t *to, unsigned long flags);
__declspec(dllimport) unsigned long __stdcall GetCurrentProcessId(void);
__declspec(dllimport) int __stdcall GetDiskFreeSpaceExW(const wchar_t *path, union _ULARGE_INTEGER *available,
                                                        union _ULARGE_INTEGER *total, union _ULARGE_INTEGER *free);
#else
#include <stdio.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#if defined(__linux__) /* -std=c11 hides pwrite, and with POSIX before 2001 readlink */
extern ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset);
extern ssize_t readlink(const char *path, char *target, size_t cap);
#endif
#endif

#define EXL2__PLATFORM_LOCK_BYTES 11 /* of a locked file: spaces, its holder's process id, a newline */

/* Writes the text of a locked file. */
static inline void exl2__platform_lock_text(uint32_t process, char out[EXL2__PLATFORM_LOCK_BYTES])
{
    memset(out, ' ', EXL2__PLATFORM_LOCK_BYTES);
    out[EXL2__PLATFORM_LOCK_BYTES - 1] = '\n';
    for (uint32_t at = EXL2__PLATFORM_LOCK_BYTES - 1; at-- > 0 && process > 0; process /= 10) {
        out[at] = (char)('0' + process % 10);
    }
}

/* The process id in the text of a locked file; 0: there is none. */
static inline uint32_t exl2__platform_lock_holder(const char text[EXL2__PLATFORM_LOCK_BYTES])
{
    uint32_t process = 0;
    for (uint32_t i = 0; i < EXL2__PLATFORM_LOCK_BYTES; i++) {
        process = text[i] >= '0' && text[i] <= '9' ? process * 10 + (uint32_t)(text[i] - '0') : process;
    }
    return process;
}

#if defined(_WIN32)

/* Creates or empties a file for exl2__platform_write. NULL: failed. */
static inline void *exl2__platform_create(const char *path)
{
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(path, wide) ? _wfsopen(wide, L"wb", _SH_DENYNO) : NULL;
}

/* Writes all bytes, or returns false. Several threads may write to a file at once. */
static inline bool exl2__platform_write(void *file, uint64_t offset, const void *data, size_t bytes)
{
    _lock_file((FILE *)file);
    bool good = _fseeki64((FILE *)file, (int64_t)offset, SEEK_SET) == 0
             && fwrite(data, 1, bytes, (FILE *)file) == bytes;
    _unlock_file((FILE *)file);
    return good;
}

/* Waits until all that was written is on the disk, so that a loss of power does not lose it. */
static inline bool exl2__platform_sync(void *file)
{
    return fflush((FILE *)file) == 0 && _commit(_fileno((FILE *)file)) == 0;
}

/* Closes the file. false: some of the data could not be written. */
static inline bool exl2__platform_finish(void *file)
{
    return fclose((FILE *)file) == 0;
}

static inline bool exl2__platform_make_dir(const char *path)
{
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(path, wide) && _wmkdir(wide) == 0;
}

static inline bool exl2__platform_remove_file(const char *path)
{
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(path, wide) && _wunlink(wide) == 0;
}

/* Removes a folder, if it is empty. */
static inline bool exl2__platform_remove_dir(const char *path)
{
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(path, wide) && _wrmdir(wide) == 0;
}

static inline bool exl2__platform_rename(const char *from, const char *to)
{
    wchar_t wide[EXL2__WIDE_MAX], wide_to[EXL2__WIDE_MAX];
    return exl2__platform_wide(from, wide) && exl2__platform_wide(to, wide_to) && _wrename(wide, wide_to) == 0;
}

#define EXL2__REPARSE_POINT 0x400u /* FILE_ATTRIBUTE_REPARSE_POINT: a link or a junction */

/* Attributes of the file or folder; of a link, those of the link. false: it does not exist. */
static inline bool exl2__platform_attributes(const char *path, unsigned *out)
{
    wchar_t wide[EXL2__WIDE_MAX];
    struct _wfinddata64_t entry;
    if (!exl2__platform_wide(path, wide)) {
        return false;
    }
    intptr_t search = _wfindfirst64(wide, &entry);
    if (search == -1) {
        return false;
    }
    *out = entry.attrib;
    _findclose(search);
    return true;
}

static inline bool exl2__platform_is_link(const char *path)
{
    unsigned attributes;
    return exl2__platform_attributes(path, &attributes) && (attributes & EXL2__REPARSE_POINT);
}

/* Is it a regular file? A link to a file is not. */
static inline bool exl2__platform_is_file(const char *path)
{
    unsigned attributes;
    return exl2__platform_attributes(path, &attributes) && !(attributes & (_A_SUBDIR | EXL2__REPARSE_POINT));
}

/* Name of entry `index` of a folder. In contrast to the list hook, folders are counted, too. */
static inline bool exl2__platform_entry(const char *dir, uint32_t index, char *name, size_t cap)
{
    struct _wfinddata64_t entry;
    intptr_t search = exl2__platform_first(dir, &entry);
    bool found = search != -1;
    while (found && (wcscmp(entry.name, L".") == 0 || wcscmp(entry.name, L"..") == 0 || index-- != 0)) {
        found = _wfindnext64(search, &entry) == 0;
    }
    if (found && WideCharToMultiByte(EXL2__UTF8_PAGE, 0, entry.name, -1, name, (int)cap, NULL, NULL) <= 0) {
        name[0] = 0;
    }
    if (search != -1) {
        _findclose(search);
    }
    return found;
}

/* Renames a file, over an older one if there is one. false: that is still there, unchanged. */
static inline bool exl2__platform_replace(const char *from, const char *to)
{
    wchar_t wide[EXL2__WIDE_MAX], wide_to[EXL2__WIDE_MAX];
    return exl2__platform_wide(from, wide) && exl2__platform_wide(to, wide_to)
        && MoveFileExW(wide, wide_to, 1u | 8u /* MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH */) != 0;
}

/* Waits until the names of a folder are on the disk, too. Windows has no such call: exl2__platform_replace waits. */
static inline void exl2__platform_sync_dir(const char *path)
{
    (void)path;
}

/* Numbers of the disk and of the file or folder that a path leads to. false: it does not exist. */
static inline bool exl2__platform_number(const char *path, uint32_t out[3])
{
    wchar_t wide[EXL2__WIDE_MAX];
    uint32_t about[13] = { 0 }; /* as BY_HANDLE_FILE_INFORMATION */
    if (!exl2__platform_wide(path, wide)) {
        return false;
    }
    void *file = CreateFileW(wide, 0, 7u /* FILE_SHARE_READ, _WRITE, _DELETE */, NULL, 3u /* OPEN_EXISTING */,
                             0x02000000u /* FILE_FLAG_BACKUP_SEMANTICS: also a folder */, NULL);
    if (file == (void *)(intptr_t)-1) {
        return false;
    }
    bool known = GetFileInformationByHandle(file, (struct _BY_HANDLE_FILE_INFORMATION *)(void *)about) != 0;
    CloseHandle(file);
    out[0] = about[7];  /* dwVolumeSerialNumber */
    out[1] = about[11]; /* nFileIndexHigh */
    out[2] = about[12]; /* nFileIndexLow */
    return known;
}

/* Do both paths lead to the same file or folder, by whatever names and links? */
static inline bool exl2__platform_same(const char *a, const char *b)
{
    uint32_t x[3], y[3];
    return exl2__platform_number(a, x) && exl2__platform_number(b, y) && memcmp(x, y, sizeof x) == 0;
}

/* Opens or creates the file for this caller alone, until exl2__platform_unlock or the end of the process, however that
   comes. NULL: it cannot be created (*holder is 0), or *holder, a process, has it. */
static inline void *exl2__platform_lock(const char *path, uint32_t *holder)
{
    wchar_t wide[EXL2__WIDE_MAX];
    char text[EXL2__PLATFORM_LOCK_BYTES] = { 0 };
    *holder = 0;
    if (!exl2__platform_wide(path, wide)) {
        return NULL;
    }
    FILE *file = _wfsopen(wide, L"wb", _SH_DENYWR); /* fails before it empties a file that another one has */
    if (file) {
        exl2__platform_lock_text((uint32_t)GetCurrentProcessId(), text);
        fwrite(text, 1, sizeof text, file);
        fflush(file);
        return file;
    }
    FILE *other = _wfsopen(wide, L"rb", _SH_DENYNO);
    if (other) {
        *holder = fread(text, 1, sizeof text, other) == sizeof text ? exl2__platform_lock_holder(text) : 0;
        fclose(other);
    }
    return NULL;
}

/* Removes the file, and lets others have one of its name. */
static inline void exl2__platform_unlock(void *file, const char *path)
{
    fclose((FILE *)file);
    exl2__platform_remove_file(path);
}

/* Bytes that this user may still write to the disk of a folder. false: it cannot be known. */
static inline bool exl2__platform_disk_free(const char *path, uint64_t *bytes)
{
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(path, wide) &&
           GetDiskFreeSpaceExW(wide, (union _ULARGE_INTEGER *)(void *)bytes, NULL, NULL);
}

#else

/* Creates or empties a file for exl2__platform_write. NULL: failed. */
static inline void *exl2__platform_create(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    return file < 0 ? NULL : (void *)((intptr_t)file + 1);
}

/* Writes all bytes, or returns false. Several threads may write to a file at once. */
static inline bool exl2__platform_write(void *file, uint64_t offset, const void *data, size_t bytes)
{
    int descriptor = (int)((intptr_t)file - 1);
    size_t done = 0;
    if (offset > INT64_MAX - bytes) {
        return false;
    }
    while (done < bytes) {
        ssize_t put = pwrite(descriptor, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (put <= 0 && !(put < 0 && errno == EINTR)) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* Waits until all that was written is on the disk, so that a loss of power does not lose it. */
static inline bool exl2__platform_sync(void *file)
{
    return fsync((int)((intptr_t)file - 1)) == 0;
}

/* Closes the file. false: some of the data could not be written. */
static inline bool exl2__platform_finish(void *file)
{
    return close((int)((intptr_t)file - 1)) == 0;
}

static inline bool exl2__platform_make_dir(const char *path)
{
    return mkdir(path, 0777) == 0;
}

static inline bool exl2__platform_remove_file(const char *path)
{
    return unlink(path) == 0;
}

/* Removes a folder, if it is empty. */
static inline bool exl2__platform_remove_dir(const char *path)
{
    return rmdir(path) == 0;
}

static inline bool exl2__platform_rename(const char *from, const char *to)
{
    return (rename)(from, to) == 0;
}

static inline bool exl2__platform_is_link(const char *path)
{
    char target[1];
    return readlink(path, target, sizeof target) >= 0;
}

/* Is it a regular file? A link to a file is not. */
static inline bool exl2__platform_is_file(const char *path)
{
    struct stat info;
    return !exl2__platform_is_link(path) && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Name of entry `index` of a folder; folders are counted, too. */
static inline bool exl2__platform_entry(const char *dir, uint32_t index, char *name, size_t cap)
{
    return exl2__platform_list(NULL, dir, index, name, cap);
}

/* Renames a file, over an older one if there is one. false: that is still there, unchanged. */
static inline bool exl2__platform_replace(const char *from, const char *to)
{
    return (rename)(from, to) == 0;
}

/* Waits until the names of a folder are on the disk, too. Not all disks can do it. */
static inline void exl2__platform_sync_dir(const char *path)
{
    int folder = open(path, O_RDONLY);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
}

/* Do both paths lead to the same file or folder, by whatever names and links? */
static inline bool exl2__platform_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Opens or creates the file for this caller alone, until exl2__platform_unlock or the end of the process, however that
   comes. NULL: it cannot be created (*holder is 0), or *holder, a process, has it. On a disk that has no locks
   everybody gets the file. */
static inline void *exl2__platform_lock(const char *path, uint32_t *holder)
{
    for (;;) {
        char text[EXL2__PLATFORM_LOCK_BYTES] = { 0 };
        struct stat own, named;
        *holder = 0;
        int file = open(path, O_RDWR | O_CREAT, 0666);
        if (file < 0) {
            return NULL;
        }
        fcntl(file, F_SETFD, FD_CLOEXEC); /* a program that is started meanwhile must not keep the lock */
        if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            bool known = pread(file, text, sizeof text, 0) == (ssize_t)sizeof text;
            *holder = known && exl2__platform_lock_holder(text) ? exl2__platform_lock_holder(text) : UINT32_MAX;
            close(file);
            return NULL;
        }
        bool same = fstat(file, &own) == 0 && stat(path, &named) == 0 && own.st_dev == named.st_dev
                 && own.st_ino == named.st_ino;
        if (same) {
            exl2__platform_lock_text((uint32_t)getpid(), text);
            if (pwrite(file, text, sizeof text, 0) == (ssize_t)sizeof text) {
                return (void *)((intptr_t)file + 1);
            }
            close(file);
            return NULL;
        }
        close(file); /* its holder removed it after it was opened here: the name is free, or another file's */
    }
}

/* Removes the file, and lets others have one of its name. */
static inline void exl2__platform_unlock(void *file, const char *path)
{
    unlink(path); /* while it is still locked, so that nobody else's file is removed */
    close((int)((intptr_t)file - 1));
}

/* Bytes that this user may still write to the disk of a folder. false: it cannot be known. */
static inline bool exl2__platform_disk_free(const char *path, uint64_t *bytes)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0) {
        return false;
    }
    *bytes = (uint64_t)info.f_bavail * (uint64_t)info.f_frsize;
    return true;
}

#endif
#endif /* EXL2_CONVERT */

#endif
