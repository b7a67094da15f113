/* clock.h: monotonic time, CPU time of the process, and sleep.
   takes: nothing.
   gives: clock_ns, clock_seconds_since, clock_cpu_ns, clock_sleep_us. */
#ifndef DEMO_CLOCK_H
#define DEMO_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);
double clock_seconds_since(uint64_t start_ns);
uint64_t clock_cpu_ns(void); /* sum over all threads of this process */
void clock_sleep_us(uint64_t us); /* returns early when a signal arrives */

#endif
