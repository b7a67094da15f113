/* interrupt.h: Ctrl-C as a flag; a second Ctrl-C ends the program as usual.
   takes: SIGINT; SIGTERM and SIGHUP when asked.
   gives: interrupt_watch, interrupt_watch_ends, interrupted.
   owns:  the process's handlers of these signals. */
#ifndef DEMO_INTERRUPT_H
#define DEMO_INTERRUPT_H

#include <stdbool.h>

void interrupt_watch(void);      /* from now on; forgets an earlier Ctrl-C. Reads that wait return with EINTR */
void interrupt_watch_ends(void); /* SIGTERM and SIGHUP too, for work that cleans up behind itself */
bool interrupted(void);          /* one of them came since interrupt_watch */

#endif
