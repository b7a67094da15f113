/* library.c: see library.h.
   takes: its name.
   gives: what library.h declares. */
#include "library.h"

#include <stddef.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>

void *library_open(const char *name)
{
    return (void *)LoadLibraryA(name);
}

static void *find(void *library, const char *name)
{
    FARPROC found = GetProcAddress((HMODULE)library, name);
    void *address;
    memcpy(&address, &found, sizeof address);
    return address;
}
#else
#include <dlfcn.h>

void *library_open(const char *name)
{
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static void *find(void *library, const char *name)
{
    return dlsym(library, name);
}
#endif

library_function library_find(void *library, const char *name)
{
    void *address = find(library, name);
    library_function function;
    memcpy(&function, &address, sizeof function); /* C has no cast from one to the other */
    return function;
}
