/* library.c: the engine as a shared library, for languages that cannot include exl2.h. It exports the public functions
   and nothing else.
   takes: kernels from the build.
   gives: every function of exl2.h but those of EXL2_CONVERT. */
#ifdef _WIN32
#define EXL2_API __declspec(dllexport)
#else
#define EXL2_API __attribute__((visibility("default")))
#endif
#define EXL2_IMPLEMENTATION
#include "../../exl2.h"
