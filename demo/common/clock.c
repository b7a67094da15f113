/* clock.c: see clock.h.
   takes: the POSIX clocks.
   gives: what clock.h declares.
   owns:  nothing. */
#define _POSIX_C_SOURCE 200809L
#include "clock.h"

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

double clock_seconds_since(uint64_t start_ns)
{
    return (double)(clock_ns() - start_ns) * 1e-9;
}

void clock_sleep_us(uint64_t us)
{
    struct timespec nap = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
    nanosleep(&nap, 0);
}
