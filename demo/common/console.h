/* console.h: what differs between the consoles of POSIX and of Windows.
   takes: main's arguments; stdout.
   gives: console_start, console_size, console_is_live. */
#ifndef DEMO_CONSOLE_H
#define DEMO_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the arguments as UTF-8. A write to a closed pipe fails from now on and does not end the process; a Windows
   console shows UTF-8 and understands ANSI sequences. */
char **console_start(int argc, char **argv);
bool console_size(uint32_t *columns, uint32_t *rows); /* of the terminal at stdout, now; false: unknown */
bool console_is_live(void);                  /* stdout is a terminal that understands ANSI sequences */

#endif
