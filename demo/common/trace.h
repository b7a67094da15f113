/* trace.h: a trace of frames: the parts of each step with their predicted and measured times, as CSV. A line is
   step,part,predicted_us,us; the part "step" ends a step, and its prediction is the budget.
   takes: a file's path; the engine's zones.
   gives: trace_open, trace_zones, trace_step, trace_close.
   owns:  the file and the parts of the current step. */
#ifndef DEMO_TRACE_H
#define DEMO_TRACE_H

#include "exl2.h"
#include "text_file.h"

#include <stdbool.h>

#define TRACE_PARTS_MAX 65536 /* of a step; further ones are counted, not written */

typedef struct trace_part {
    const char *name;
    uint64_t predicted_ns, ns;
} trace_part;

typedef struct trace { /* zeroed: closed */
    text_file_part file; /* file.file NULL: there is no trace */
    trace_part *parts; /* [count] of the current step */
    size_t count, left_out;
    uint64_t steps;
} trace;

bool trace_open(trace *t, const char *path); /* path NULL: there is none. false: a message was printed to stderr */
exl2_zones trace_zones(trace *t);            /* *t must outlive the engine */
void trace_step(trace *t, uint64_t budget_ns, uint64_t ns); /* writes the parts; call it outside of the timed step */
bool trace_close(trace *t);                  /* false: a message was printed to stderr */

#endif
