/* engine.c: the engine as tests link it: compiled once, with its private functions visible, so that a test calls them
   without compiling them.
   takes: EXL2_CONVERT and an empty EXL2__PRIVATE from tests/meson.build.
   gives: every function of the engine. */
#define EXL2_IMPLEMENTATION
#include "exl2.h"
