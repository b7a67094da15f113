/* double_rounded.h: the double reference of cpu_double.h, but with weights rounded to fp16.
   takes: nothing.
   gives: cpu_rounded_backend, cpu_rounded_look: as cpu_double_backend, cpu_double_look.
   owns:  nothing. */
#ifndef DOUBLE_ROUNDED_H
#define DOUBLE_ROUNDED_H

#include "../unit/cpu_double.h"

const exl2__backend *cpu_rounded_backend(void);
cpu_double_view cpu_rounded_look(exl2__device *d);

#endif
