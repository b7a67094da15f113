/* text_file.h: opens files, reads whole files and whole lines, writes files so that an older one stays until the new
   one is whole, and checks stdout at the end of a program.
   takes: paths, stdin.
   gives: text_file_open, text_file_load, text_file_read, text_file_begin, text_file_end, text_file_replace,
          text_file_write, text_line_read, text_stdout_end.
   owns:  a file that is written, from text_file_begin to text_file_end; the caller frees what it gets. */
#ifndef DEMO_TEXT_FILE_H
#define DEMO_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

FILE *text_file_open(const char *path, const char *mode); /* as fopen; the path is UTF-8 on Windows, too */

/* Reads the file, of at most `most` bytes, and adds a NUL; the caller frees it. NULL: failed, errno says why (EFBIG: it
   is larger). */
char *text_file_load(const char *path, size_t most, size_t *bytes);

/* The same for files of at most 1 GiB. NULL: failed, message on stderr. */
char *text_file_read(const char *path, size_t *bytes);

/* A file that is being written, beside the one that it will replace. A device or a pipe is written to as it is. */
typedef struct text_file_part {
    FILE *file; /* to write to */
    char *path; /* of the file to replace: a link's target, not the link */
    char *part; /* path of the new file; NULL: a device or a pipe */
} text_file_part;

/* Opens the new file. false: failed, errno says why, and there is nothing to end. */
bool text_file_begin(text_file_part *f, const char *path);

/* If `good` is true and all of the new file has reached the disk, it replaces the older one; else that stays as it is,
   and the new file is removed. false: not replaced, errno says why. */
bool text_file_end(text_file_part *f, bool good);

/* Writes a whole file in this way. false: failed, errno says why. */
bool text_file_replace(const char *path, const void *data, size_t bytes);

/* The same. false: failed, message on stderr. */
bool text_file_write(const char *path, const void *data, size_t bytes);

/* Reads the next line into *line, without its line end. *line grows as in getline (start with NULL and 0). false at the
   end of the input. */
bool text_line_read(FILE *file, char **line, size_t *cap, size_t *bytes);

/* For the end of main: returns `code`, or prints a message and returns 1 if stdout could not be written (full disk,
   closed pipe). */
int text_stdout_end(int code);

#endif
