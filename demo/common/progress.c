/* progress.c: see progress.h.
   takes: stderr.
   gives: what progress.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_CELLS 32

void progress_show(progress *p, double done, const char *what)
{
    uint64_t now = clock_ns();
    if (!isatty(STDERR_FILENO) || (p->open && now - p->shown_ns < 100000000u)) {
        return;
    }
    char bar[PROGRESS_CELLS + 1];
    done = done < 0 ? 0 : done > 1 ? 1 : done;
    for (int i = 0; i < PROGRESS_CELLS; i++) {
        bar[i] = i < (int)(done * PROGRESS_CELLS) ? '#' : '.';
    }
    bar[PROGRESS_CELLS] = 0;
    fprintf(stderr, "\r[%s] %3d%% %.36s\x1b[K", bar, (int)(done * 100), what);
    fflush(stderr);
    p->shown_ns = now;
    p->open = true;
}

void progress_show_stage(progress *p, double done, const char *what)
{
    char text[80];
    if (strncmp(p->stage, what, sizeof p->stage - 1) != 0 || done < p->stage_done) {
        snprintf(p->stage, sizeof p->stage, "%s", what);
        p->stage_ns = clock_ns();
    }
    p->stage_done = done;
    double seconds = clock_seconds_since(p->stage_ns);
    if (done > 0.01 && seconds > 1) {
        snprintf(text, sizeof text, "%s, %.0f s left", p->stage, seconds * (1 / done - 1));
    } else {
        snprintf(text, sizeof text, "%s", p->stage);
    }
    progress_show(p, done, text);
}

void progress_end(progress *p)
{
    if (p->open) {
        fputs("\r\x1b[K", stderr);
        fflush(stderr);
    }
    *p = (progress){ 0 };
}
