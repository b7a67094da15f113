/* console.h: what differs between the consoles of POSIX and of Windows.
   takes: main's arguments; stdout.
   gives: console_start, console_columns, console_make_folder.
   owns:  nothing. */
#ifndef DEMO_CONSOLE_H
#define DEMO_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the arguments as UTF-8. A write to a closed pipe fails from now on and does not end the process; a Windows
   console shows UTF-8 and understands ANSI sequences. */
char **console_start(int argc, char **argv);
uint32_t console_columns(void);              /* width of the terminal at stdout now; 0 = unknown */
bool console_make_folder(const char *path);  /* as mkdir: sets errno when it fails */

#endif
