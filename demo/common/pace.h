/* pace.h: waits for the refreshes of an imagined 60 Hz display.
   takes: nothing.
   gives: pace_until, pace_display, PACE_FRAME_NS. */
#ifndef DEMO_PACE_H
#define DEMO_PACE_H

#include <stdint.h>

#define PACE_FRAME_NS 16666667u

/* Waits until the time `ns`: sleeps, and spins for the last spin_ns because a sleep may end late. */
void pace_until(uint64_t ns, uint64_t spin_ns);

/* Waits for the next refresh after *display_ns and writes its time to *display_ns. If the caller is more than a frame
   late, refreshes are counted anew from now. Returns the time after the wait. */
uint64_t pace_display(uint64_t *display_ns);

#endif
