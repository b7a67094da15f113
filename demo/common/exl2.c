/* exl2.c: the implementation of exl2.h, for programs of several C files.
   takes: EXL2_CONVERT from the build, if the program makes models.
   gives: every function of exl2.h. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"
