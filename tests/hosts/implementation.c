/* The implementation and nothing else: for a host of two files, for its symbols and its size. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"
