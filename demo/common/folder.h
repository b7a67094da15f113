/* folder.h: making, listing and removing folders, with paths in UTF-8 on Windows, too.
   takes: paths.
   gives: folder_make, folder_is_empty, folder_bytes, folder_each, folder_remove, folder_remove_file. */
#ifndef DEMO_FOLDER_H
#define DEMO_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

bool folder_make(const char *path);        /* as mkdir: sets errno when it fails */
bool folder_is_empty(const char *path);    /* false as well if it is no folder */
uint64_t folder_bytes(const char *path);   /* sum of the sizes of its files */
/* Calls `entry` with the name of each file and folder in it, but "." and "..". false: it cannot be read. */
bool folder_each(const char *path, void (*entry)(void *user, const char *name), void *user);
void folder_remove(const char *path);      /* if it is empty */
void folder_remove_file(const char *path);

#endif
