/* pace.c: see pace.h.
   takes: the clock.
   gives: what pace.h declares. */
#include "pace.h"

#include "clock.h"

#define DISPLAY_SPIN_NS 300000u

void pace_until(uint64_t ns, uint64_t spin_ns)
{
    uint64_t now = clock_ns();
    if (ns > now + spin_ns) {
        clock_sleep_us((ns - now - spin_ns) / 1000);
    }
    while (clock_ns() < ns) {
    }
}

uint64_t pace_display(uint64_t *display_ns)
{
    *display_ns += PACE_FRAME_NS;
    pace_until(*display_ns, DISPLAY_SPIN_NS);
    uint64_t now = clock_ns();
    *display_ns = now > *display_ns + PACE_FRAME_NS ? now : *display_ns;
    return now;
}
