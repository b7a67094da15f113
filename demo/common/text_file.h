/* text_file.h: whole files and whole lines, and the end of stdout.
   takes: paths, stdin.
   gives: text_file_read, text_line_read, text_stdout_end.
   owns:  nothing; the caller frees what it gets. */
#ifndef DEMO_TEXT_FILE_H
#define DEMO_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The file with a NUL behind it, to be freed; NULL and one sentence on stderr when it cannot be read. */
char *text_file_read(const char *path, size_t *bytes);

/* The next line without its end, in *line, which grows as getline's does (start with NULL and 0). False at the end. */
bool text_line_read(FILE *file, char **line, size_t *cap, size_t *bytes);

/* For the end of main: the code, or 1 and a sentence where stdout did not take all (full disk, closed pipe). */
int text_stdout_end(int code);

#endif
