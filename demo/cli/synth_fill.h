/* synth_fill.h: the bytes of a synthetic tensor, which depend only on its seed and the position.
   takes: a tensor of the plan, a function that receives bytes in order.
   gives: synth_fill_tensor. */
#ifndef DEMO_CLI_SYNTH_FILL_H
#define DEMO_CLI_SYNTH_FILL_H

#include "synth_plan.h"

/* Passes all bytes to put_fn, at most 1 MiB per call. Stops and returns false if put_fn returns false. */
bool synth_fill_tensor(const synth_tensor *t, bool (*put_fn)(void *user, const void *data, size_t bytes), void *user);

#endif
