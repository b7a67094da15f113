/* pace.h: the pace of a 60 Hz display.
   takes: nothing.
   gives: pace_until, pace_display, PACE_FRAME_NS.
   owns:  nothing. */
#ifndef DEMO_PACE_H
#define DEMO_PACE_H

#include <stdint.h>

#define PACE_FRAME_NS 16666667u

/* Waits: naps, then spins through the last spin_ns, since a nap may end late. */
void pace_until(uint64_t ns, uint64_t spin_ns);

/* Waits for the refresh after *display_ns and moves *display_ns there. Returns when that was; lost ones are lost. */
uint64_t pace_display(uint64_t *display_ns);

#endif
