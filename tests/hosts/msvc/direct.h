/* direct.h: folders */
#ifndef MSVC_DIRECT_H
#define MSVC_DIRECT_H

#include <stddef.h>

int _wmkdir(const wchar_t *path);
int _wrmdir(const wchar_t *path);

#endif
