/* macros.c: an application that defines macros with the names that debug heaps, windows.h and old engines use. Any of
   our names that they replace does not compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define malloc(bytes) host_malloc(bytes, __FILE__, __LINE__)
#define calloc(count, bytes) host_calloc(count, bytes, __FILE__, __LINE__)
#define realloc(memory, bytes) host_realloc(memory, bytes, __FILE__, __LINE__)
#define free(memory) host_free(memory, __FILE__, __LINE__)
#define printf host_printf_is_not_declared
#define fprintf host_fprintf_is_not_declared
#define snprintf host_snprintf_is_not_declared
#define abort() host_abort(__FILE__, __LINE__)
#define exit(code) host_exit(code, __FILE__, __LINE__)
#define assert(condition) host_assert(condition, __FILE__, __LINE__)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define near
#define far
#define small char
#define interface struct
#define IN
#define OUT
#define ERROR 0
#define TRY(call) host_try(call)
#define CHECK(call) host_check(call)
#define ALIGN(n) host_align(n)

#define EXL2_IMPLEMENTATION
#include "exl2.h"

int main(void)
{
    exl2_engine *engine = NULL;
    if (exl2_open(NULL, &engine) != EXL2_OK) {
        return 1;
    }
    exl2_close(engine);
    return 0;
}
