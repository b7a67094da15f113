/* io.h: lists of folders, and writing a file through to the disk */
#ifndef MSVC_IO_H
#define MSVC_IO_H

#include <stddef.h>
#include <stdint.h>

#define _A_SUBDIR 0x10
struct _wfinddata64_t {
    unsigned attrib;
    long long time_create, time_access, time_write, size;
    wchar_t name[260];
};
intptr_t _wfindfirst64(const wchar_t *pattern, struct _wfinddata64_t *entry);
int _wfindnext64(intptr_t search, struct _wfinddata64_t *entry);
int _findclose(intptr_t search);
int _commit(int file);

#endif
