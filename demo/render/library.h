/* library.h: a library of the system, which may be missing.
   takes: its name.
   gives: library_open, library_find.
   owns:  nothing: it stays loaded until the program ends, as drivers expect. */
#ifndef DEMO_LIBRARY_H
#define DEMO_LIBRARY_H

typedef void (*library_function)(void);

void *library_open(const char *name); /* NULL: there is none */
library_function library_find(void *library, const char *name);

#endif
