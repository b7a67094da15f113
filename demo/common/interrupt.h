/* interrupt.h: Ctrl-C as a flag; a second Ctrl-C ends the program as usual.
   takes: SIGINT.
   gives: interrupt_watch, interrupted.
   owns:  the process's handler of SIGINT.
   next:  host.h */
#ifndef DEMO_INTERRUPT_H
#define DEMO_INTERRUPT_H

#include <stdbool.h>

void interrupt_watch(void); /* from now on; forgets an earlier Ctrl-C. Reads that wait return with EINTR */
bool interrupted(void);     /* Ctrl-C came since interrupt_watch */

#endif
