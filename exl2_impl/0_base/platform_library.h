/* platform_library.h: shared libraries that are found at run time.
   takes: a path or a name.
   gives: exl2__platform_library, exl2__platform_symbol, exl2__platform_unload.
   owns:  libraries, until exl2__platform_unload. */
#ifndef EXL2__PLATFORM_LIBRARY_H
#define EXL2__PLATFORM_LIBRARY_H

#include "platform.h"

#if defined(_WIN32)
/* Declared with the tags of windows.h, as in platform.h. */
__declspec(dllimport) struct HINSTANCE__ *__stdcall LoadLibraryW(const wchar_t *path);
__declspec(dllimport) intptr_t(__stdcall *__stdcall GetProcAddress(struct HINSTANCE__ *library,
                                                                   const char *name))(void);
__declspec(dllimport) int __stdcall FreeLibrary(struct HINSTANCE__ *library);
#else
#include <dlfcn.h>
#endif

/* Loads the library with this path or name (UTF-8; a name is searched as the system does). NULL: not found. */
static inline void *exl2__platform_library(const char *name)
{
#if defined(_WIN32)
    wchar_t wide[EXL2__WIDE_MAX];
    return exl2__platform_wide(name, wide) ? (void *)LoadLibraryW(wide) : NULL;
#else
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
#endif
}

/* Writes the address of an exported function to the function pointer *function. If it does not exist, writes NULL and
   returns false. */
static inline bool exl2__platform_symbol(void *library, const char *name, void *function)
{
#if defined(_WIN32)
    intptr_t(__stdcall * address)(void) = GetProcAddress((struct HINSTANCE__ *)library, name);
#else
    void *address = dlsym(library, name);
#endif
    memcpy(function, &address, sizeof address); /* C has no cast from a data pointer to a function pointer */
    return address != NULL;
}

/* `library` may be NULL. Its functions must not be called any more. */
static inline void exl2__platform_unload(void *library)
{
    if (library) {
#if defined(_WIN32)
        FreeLibrary((struct HINSTANCE__ *)library);
#else
        dlclose(library);
#endif
    }
}

#endif
