/* synth_fill.h: the bytes of a synthetic tensor: a function of its seed and the place in it.
   takes: a tensor of the plan, a function that takes bytes in order.
   gives: synth_fill_tensor.
   owns:  nothing beyond the call. */
#ifndef DEMO_CLI_SYNTH_FILL_H
#define DEMO_CLI_SYNTH_FILL_H

#include "synth_plan.h"

/* Gives all bytes, at most 1 MiB at a time; false as soon as put_fn does. */
bool synth_fill_tensor(const synth_tensor *t, bool (*put_fn)(void *user, const void *data, size_t bytes), void *user);

#endif
