/* wide.h: paths as Windows wants them. Empty on other systems.
   takes: UTF-8.
   gives: wide_path.
   owns:  nothing. */
#ifndef DEMO_WIDE_H
#define DEMO_WIDE_H

#ifdef _WIN32
#include <windows.h>

/* The text in UTF-16, in out [cap]; "" if it is too long, which is the name of no file. */
static inline const wchar_t *wide_path(const char *path, wchar_t *out, int cap)
{
    if (MultiByteToWideChar(CP_UTF8, 0, path, -1, out, cap) == 0) {
        out[0] = 0;
    }
    return out;
}
#endif

#endif
