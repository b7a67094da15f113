/* time.h: the clock, with the order of parameters that MSVC has */
#ifndef MSVC_TIME_H
#define MSVC_TIME_H

#include <stddef.h>

typedef long long time_t;
struct tm {
    int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_wday, tm_yday, tm_isdst;
};
struct timespec {
    time_t tv_sec;
    long tv_nsec;
};
#define TIME_UTC 1
time_t time(time_t *out);
int localtime_s(struct tm *out, const time_t *at);
int timespec_get(struct timespec *out, int base);

#endif
