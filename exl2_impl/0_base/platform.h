/* platform.h: clock, sleep, local time, random seeds, and paths of Windows. Only this file, the platform_*.h beside it
   and thread.h call the operating system.
   takes: nothing.
   gives: exl2__platform_ns, exl2__platform_sleep_ms, exl2__platform_sleep_us, exl2__platform_local_time,
          exl2__platform_entropy; exl2__platform_wide on Windows. */
#ifndef EXL2__PLATFORM_H
#define EXL2__PLATFORM_H

#include "result.h"

#include <time.h>

#if defined(_WIN32)
/* Declared here with the tags of windows.h, so that the application may include windows.h before or after this file. */
union _LARGE_INTEGER;
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *count);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *frequency);
__declspec(dllimport) void __stdcall Sleep(unsigned long milliseconds);
__declspec(dllimport) int __stdcall MultiByteToWideChar(unsigned int page, unsigned long flags, const char *text,
                                                        int bytes, wchar_t *out, int cap);
__declspec(dllimport) unsigned long __stdcall GetFullPathNameW(const wchar_t *path, unsigned long cap, wchar_t *out,
                                                               wchar_t **name);
#elif defined(__linux__) && !defined(CLOCK_MONOTONIC) /* -std=c11 hides these declarations */
extern int clock_gettime(int clock, struct timespec *time);
extern int nanosleep(const struct timespec *time, struct timespec *left);
extern struct tm *localtime_r(const time_t *time, struct tm *parts);
#define EXL2__CLOCK_MONOTONIC 1
#elif defined(CLOCK_MONOTONIC)
#define EXL2__CLOCK_MONOTONIC CLOCK_MONOTONIC
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

#endif
