/* interrupt.h: Ctrl-C as a flag; a second Ctrl-C ends the program as usual.
   takes: SIGINT, and on request SIGTERM and SIGHUP; on Windows control events.
   gives: interrupt_watch, interrupt_watch_ends, interrupted.
   owns:  the process's handlers of these signals. */
#ifndef DEMO_INTERRUPT_H
#define DEMO_INTERRUPT_H

#include <stdbool.h>

void interrupt_watch(void);      /* starts to watch, and forgets an earlier Ctrl-C. Blocked reads return with EINTR */
void interrupt_watch_ends(void); /* also watches SIGTERM and SIGHUP, for work that has to clean up */
bool interrupted(void);          /* a watched signal has arrived since interrupt_watch */

#endif
