/* trace.c: see trace.h.
   takes: units, as the engine tells of them.
   gives: what trace.h declares.
   owns:  nothing beyond a trace. */
#include "trace.h"

#include "memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool trace_open(trace *t, const char *path)
{
    *t = (trace){ 0 };
    if (!path) {
        return true;
    }
    if (!text_file_begin(&t->file, path)) {
        fprintf(stderr, "%s cannot be written: %s\n", path, strerror(errno));
        return false;
    }
    fputs("step,part,predicted_us,us\n", t->file.file);
    t->parts = memory_take(TRACE_PARTS_MAX, sizeof *t->parts);
    return true;
}

/* Writing waits until the step has ended, so that the trace costs little. */
static void on_unit(void *user, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    trace *t = user;
    if (t->count == TRACE_PARTS_MAX) {
        t->left_out++;
        return;
    }
    t->parts[t->count++] = (trace_part){ name, predicted_ns, ns };
}

exl2_zones trace_zones(trace *t)
{
    return t->file.file ? (exl2_zones){ .unit = on_unit, .user = t } : (exl2_zones){ 0 };
}

static void write_part(const trace *t, const char *name, uint64_t predicted_ns, uint64_t ns)
{
    fprintf(t->file.file, "%llu,%s,%.1f,%.1f\n", (unsigned long long)t->steps, name, (double)predicted_ns * 1e-3,
            (double)ns * 1e-3);
}

void trace_step(trace *t, uint64_t budget_ns, uint64_t ns)
{
    if (!t->file.file) {
        return;
    }
    for (size_t i = 0; i < t->count; i++) {
        write_part(t, t->parts[i].name, t->parts[i].predicted_ns, t->parts[i].ns);
    }
    write_part(t, "step", budget_ns, ns);
    t->count = 0;
    t->steps++;
}

bool trace_close(trace *t)
{
    bool good = true;
    if (t->left_out) {
        fprintf(stderr, "the trace lacks %zu parts: a step had more than %d\n", t->left_out, TRACE_PARTS_MAX);
    }
    if (t->file.file && !text_file_end(&t->file, true)) {
        fprintf(stderr, "the trace cannot be written: %s\n", strerror(errno));
        good = false;
    }
    free(t->parts);
    *t = (trace){ 0 };
    return good;
}
