/* platform.h: the only file, with platform_write.h and thread.h, that calls the operating system: clock, sleep, default
   allocator, default files, shared libraries.
   takes: nothing.
   gives: exl2__platform_ns, exl2__platform_sleep_ms, exl2__platform_sleep_us, exl2__platform_entropy,
          exl2__platform_allocator, exl2__platform_reserve, exl2__platform_commit, exl2__platform_release,
          exl2__platform_populate, exl2__platform_discard, exl2__platform_files, exl2__platform_library,
          exl2__platform_symbol, exl2__platform_unload. platform_write.h writes files, where models are made.
   owns:  open files, until the close hook; libraries, until exl2__platform_unload. */
#ifndef EXL2__PLATFORM_H
#define EXL2__PLATFORM_H

#include "result.h"

#include <stdlib.h>
#include <time.h>

#if defined(_WIN32)
#include <io.h>
#include <malloc.h>
#ifndef EXL2_NO_FILES
#include <share.h>
#include <stdio.h>
#endif
#ifdef EXL2_CONVERT
#include <direct.h>
#include <wchar.h>
#endif
/* Declared here with the tags of windows.h, so that the application may include windows.h before or after this file. */
union _LARGE_INTEGER;
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *count);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *frequency);
__declspec(dllimport) void __stdcall Sleep(unsigned long milliseconds);
__declspec(dllimport) int __stdcall MultiByteToWideChar(unsigned int page, unsigned long flags, const char *text,
                                                        int bytes, wchar_t *out, int cap);
__declspec(dllimport) int __stdcall WideCharToMultiByte(unsigned int page, unsigned long flags, const wchar_t *text,
                                                        int count, char *out, int cap, const char *fallback,
                                                        int *used_fallback);
__declspec(dllimport) void *__stdcall VirtualAlloc(void *address, size_t bytes, unsigned long type,
                                                   unsigned long protection);
__declspec(dllimport) int __stdcall VirtualFree(void *address, size_t bytes, unsigned long type);
__declspec(dllimport) unsigned long __stdcall GetFullPathNameW(const wchar_t *path, unsigned long cap, wchar_t *out,
                                                               wchar_t **name);
__declspec(dllimport) struct HINSTANCE__ *__stdcall LoadLibraryW(const wchar_t *path);
__declspec(dllimport) intptr_t(__stdcall *__stdcall GetProcAddress(struct HINSTANCE__ *library,
                                                                   const char *name))(void);
__declspec(dllimport) int __stdcall FreeLibrary(struct HINSTANCE__ *library);
#ifdef EXL2_CONVERT
union _ULARGE_INTEGER;
__declspec(dllimport) int __stdcall GetDiskFreeSpaceExW(const wchar_t *path, union _ULARGE_INTEGER *available,
                                                        union _ULARGE_INTEGER *total, union _ULARGE_INTEGER *free);
#endif
#else
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#ifdef EXL2_CONVERT
#include <stdio.h>
#include <sys/statvfs.h>
#endif
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__linux__) && !defined(CLOCK_MONOTONIC) /* -std=c11 hides these declarations */
extern int clock_gettime(int clock, struct timespec *time);
extern int nanosleep(const struct timespec *time, struct timespec *left);
extern struct tm *localtime_r(const time_t *time, struct tm *parts);
#define EXL2__CLOCK_MONOTONIC 1
#elif defined(CLOCK_MONOTONIC)
#define EXL2__CLOCK_MONOTONIC CLOCK_MONOTONIC
#endif
#if defined(__linux__) /* sys/mman.h hides both under -std=c11 and POSIX */
extern int madvise(void *memory, size_t bytes, int advice);
#define EXL2__MADV_DONTNEED 4
#define EXL2__MADV_POPULATE_WRITE 23
#endif
#if defined(__linux__) /* unistd.h hides both under -std=c11 */
extern ssize_t pread(int file, void *to, size_t bytes, off_t offset);
extern ssize_t pwrite(int file, const void *from, size_t bytes, off_t offset);
#endif
#if defined(__linux__) && defined(EXL2_CONVERT) /* -std=c11 and POSIX before 2001 hide it */
extern ssize_t readlink(const char *path, char *target, size_t cap);
#endif
#endif

#if defined(_WIN32)
#define EXL2__PLATFORM_HAS_SLEEP_US 0
#else
#define EXL2__PLATFORM_HAS_SLEEP_US 1
#endif

/* Nanoseconds of a monotonic clock. */
static inline uint64_t exl2__platform_ns(void)
{
#if defined(_WIN32)
    int64_t count = 0, frequency = 1;
    QueryPerformanceCounter((union _LARGE_INTEGER *)(void *)&count);
    QueryPerformanceFrequency((union _LARGE_INTEGER *)(void *)&frequency);
    uint64_t whole = (uint64_t)(count / frequency), part = (uint64_t)(count % frequency);
    return whole * 1000000000u + part * 1000000000u / (uint64_t)frequency;
#else
    struct timespec now = { 0, 0 };
#ifdef EXL2__CLOCK_MONOTONIC
    clock_gettime(EXL2__CLOCK_MONOTONIC, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Sleeps for about a millisecond. */
static inline void exl2__platform_sleep_ms(void)
{
#if defined(_WIN32)
    Sleep(1);
#else
    struct timespec millisecond = { 0, 1000000 };
    nanosleep(&millisecond, NULL);
#endif
}

/* Sleeps for a little more than `us` microseconds, below a million. Not available where EXL2__PLATFORM_HAS_SLEEP_US is
   0. */
static inline void exl2__platform_sleep_us(uint32_t us)
{
#if EXL2__PLATFORM_HAS_SLEEP_US
    struct timespec time = { 0, (long)us * 1000 };
    nanosleep(&time, NULL);
#else
    (void)us;
#endif
}

/* Local time: year, month (from 1), day, hour, minute, second. */
static inline void exl2__platform_local_time(int32_t out[6])
{
    struct tm parts = { 0 };
    time_t now = time(NULL);
#if defined(_WIN32)
    localtime_s(&parts, &now);
#else
    localtime_r(&now, &parts);
#endif
    const int all[6] = { parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                         parts.tm_hour,        parts.tm_min,     parts.tm_sec };
    for (uint32_t i = 0; i < 6; i++) {
        out[i] = all[i];
    }
}

/* A random number, for seeds that the application left at 0. Not for secrets. */
static inline uint64_t exl2__platform_entropy(const void *salt)
{
    uint64_t x = exl2__platform_ns() ^ (uint64_t)(uintptr_t)salt << 20 ^ (uint64_t)time(NULL) << 40;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* ---- paths of Windows ---- */

#if defined(_WIN32)
#define EXL2__UTF8_PAGE 65001u
#define EXL2__WIDE_MAX 1024

/* The path in UTF-16. Windows rejects a path of 260 characters, and a folder's of 248, unless it is absolute and begins
   with \\?\, so a long path gets that form. false: longer than EXL2__WIDE_MAX. */
static inline bool exl2__platform_wide(const char *path, wchar_t out[EXL2__WIDE_MAX])
{
    int count = MultiByteToWideChar(EXL2__UTF8_PAGE, 0, path, -1, out, EXL2__WIDE_MAX);
    if (count <= 240 || (out[0] == L'\\' && out[1] == L'\\' && out[2] == L'?')) {
        return count > 0;
    }
    wchar_t full[EXL2__WIDE_MAX];
    unsigned long length = GetFullPathNameW(out, EXL2__WIDE_MAX, full, NULL);
    if (length == 0 || length + 8 >= EXL2__WIDE_MAX) {
        return false;
    }
    bool network = full[0] == L'\\' && full[1] == L'\\';
    const wchar_t *head = network ? L"\\\\?\\UNC\\" : L"\\\\?\\", *tail = network ? full + 2 : full;
    size_t used = 0;
    for (; *head; head++) {
        out[used++] = *head;
    }
    do {
        out[used++] = *tail;
    } while (*tail++);
    return true;
}
#endif

/* ---- shared libraries ---- */

/* Loads the library with this path or name (UTF-8; a name is searched as the system does). NULL: not found. */
static inline void *exl2__platform_library(const char *name)
{
#if defined(_WIN32)
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(name, wide) ? (void *)LoadLibraryW(wide) : NULL;
#else
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
#endif
}

/* Writes the address of an exported function to the function pointer *function. If it does not exist, writes NULL and
   returns false. */
static inline bool exl2__platform_symbol(void *library, const char *name, void *function)
{
#if defined(_WIN32)
    intptr_t(__stdcall * address)(void) = GetProcAddress((struct HINSTANCE__ *)library, name);
#else
    void *address = dlsym(library, name);
#endif
    memcpy(function, &address, sizeof address); /* C has no cast from a data pointer to a function pointer */
    return address != NULL;
}

/* `library` may be NULL. Its functions must not be called any more. */
static inline void exl2__platform_unload(void *library)
{
    if (library) {
#if defined(_WIN32)
        FreeLibrary((struct HINSTANCE__ *)library);
#else
        dlclose(library);
#endif
    }
}

/* ---- default allocator ---- */

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
#ifdef EXL2__TEST_COMMIT /* lets a test refuse */
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

/* ---- default files ---- */

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
#endif /* EXL2_NO_FILES */

#endif
