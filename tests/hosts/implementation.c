/* implementation.c: the implementation and nothing else: for an application of two files, for its symbols and its
   size. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"
