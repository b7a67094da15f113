/* interrupt.h: Ctrl-C as a flag; a second Ctrl-C ends the program as usual.
   takes: SIGINT, and on request SIGTERM and SIGHUP; on Windows control events.
   gives: interrupt_watch, interrupt_watch_ends, interrupt_forget, interrupted.
   owns:  the process's handlers of these signals. */
#ifndef DEMO_INTERRUPT_H
#define DEMO_INTERRUPT_H

#include <stdbool.h>

/* Starts to watch, also where SIGINT was ignored, as in a script's background; called again, it changes nothing, and an
   earlier Ctrl-C stays. Blocked reads return with EINTR. */
void interrupt_watch(void);
/* Also watches SIGTERM and SIGHUP, for work that has to clean up. One that was ignored stays so: nohup is obeyed. */
void interrupt_watch_ends(void);
void interrupt_forget(void); /* the Ctrl-C that has arrived was obeyed: watches for the next one */
bool interrupted(void);      /* a watched signal has arrived that was not forgotten */

#endif
