/* wchar.h: what exl2.h uses of the C library */
#ifndef MSVC_WCHAR_H
#define MSVC_WCHAR_H

#include <stddef.h>

int wcscmp(const wchar_t *a, const wchar_t *b);

#endif
