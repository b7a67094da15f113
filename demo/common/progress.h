/* progress.h: one progress line on stderr, only where stderr is a terminal.
   takes: a share of 0..1 and a description of the work.
   gives: progress_show, progress_show_stage, progress_end.
   owns:  the last line of the terminal, from progress_show to progress_end. */
#ifndef DEMO_PROGRESS_H
#define DEMO_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress { /* zeroed: nothing shown yet */
    uint64_t shown_ns;
    uint64_t stage_ns; /* when the stage began: its text was new, or its share smaller than before */
    char stage[48];
    double stage_done;
    bool open;
} progress;

void progress_show(progress *p, double done, const char *what); /* redraws at most ten times a second */
void progress_show_stage(progress *p, double done, const char *what); /* the same, with the time that is left */
void progress_end(progress *p);                                 /* clears the line, if there is one */

#endif
