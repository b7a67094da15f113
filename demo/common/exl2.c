/* exl2.c: the one C file of a program that holds the engine.
   takes: EXL2_CONVERT from the build, where the program makes models.
   gives: every function of exl2.h.
   owns:  nothing. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"
