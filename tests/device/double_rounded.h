/* double_rounded.h: the double reference of cpu_double.h, but with weights rounded to fp16.
   takes: nothing.
   gives: cpu_rounded_backend, _look, _look_routed, _choose: as those of cpu_double.h. */
#ifndef DOUBLE_ROUNDED_H
#define DOUBLE_ROUNDED_H

#include "../unit/cpu_double.h"

const exl2__backend *cpu_rounded_backend(void);
cpu_double_view cpu_rounded_look(exl2__device *d);
cpu_double_routed cpu_rounded_look_routed(exl2__device *d);
void cpu_rounded_choose(exl2__device *d, const uint32_t *choice, const float *weight);

#endif
