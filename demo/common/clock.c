/* clock.c: see clock.h.
   takes: the POSIX monotonic clock.
   gives: what clock.h declares.
   owns:  nothing.
   next:  pace.c */
#define _POSIX_C_SOURCE 200809L
#include "clock.h"

#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec now = { 0, 0 };
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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
