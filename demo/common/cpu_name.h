/* cpu_name.h: what the CPU is called, for reports of speeds.
   takes: CPUID; on ARM what macOS or Linux says.
   gives: cpu_name. */
#ifndef DEMO_CPU_NAME_H
#define DEMO_CPU_NAME_H

#include <stddef.h>

void cpu_name(char *out, size_t cap); /* "" = unknown; cap is at least 1 */

#endif
