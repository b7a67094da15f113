/* asserts.h: what EXL2_ASSERT does in every test build: the program aborts with the condition, file and line. The
   compiler includes it before the first line of each file, so it includes nothing itself: system headers must still see
   the feature macros of that file.
   takes: dprintf and abort of libc.
   gives: EXL2_ASSERT. */
#ifndef ASSERTS_H
#define ASSERTS_H

extern int dprintf(int file, const char *format, ...);
extern void abort(void);

#define EXL2_ASSERT(c) ((c) ? (void)0 : (dprintf(2, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #c), abort()))

#endif
