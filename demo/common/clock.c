/* clock.c: see clock.h.
   takes: the clocks of POSIX, or of Windows.
   gives: what clock.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "clock.h"

#ifdef _WIN32
#include <windows.h>

#define HIGH_RESOLUTION 2 /* CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, from Windows 10 1803 on */

uint64_t clock_ns(void)
{
    LARGE_INTEGER now, a_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&a_second);
    uint64_t ticks = (uint64_t)now.QuadPart, rate = (uint64_t)a_second.QuadPart;
    return ticks / rate * 1000000000u + ticks % rate * 1000000000u / rate;
}

static uint64_t hundreds_of_ns(FILETIME t)
{
    return (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime;
}

uint64_t clock_cpu_ns(void)
{
    FILETIME start, end, kernel = { 0, 0 }, user = { 0, 0 };
    GetProcessTimes(GetCurrentProcess(), &start, &end, &kernel, &user);
    return (hundreds_of_ns(kernel) + hundreds_of_ns(user)) * 100;
}

void clock_sleep_us(uint64_t us)
{
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, HIGH_RESOLUTION, TIMER_ALL_ACCESS);
    LARGE_INTEGER due = { .QuadPart = -(LONGLONG)us * 10 };
    if (timer && SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE)) {
        WaitForSingleObject(timer, INFINITE);
    } else {
        Sleep((DWORD)((us + 999) / 1000));
    }
    if (timer) {
        CloseHandle(timer);
    }
}
#else
#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now = { 0, 0 };
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_sleep_us(uint64_t us)
{
    struct timespec nap = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
    nanosleep(&nap, 0);
}
#endif

double clock_seconds_since(uint64_t start_ns)
{
    return (double)(clock_ns() - start_ns) * 1e-9;
}
