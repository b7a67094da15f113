/* render.c: see render.h.
   takes: the kinds of load.
   gives: what render.h declares. */
#include "render.h"

#include "../common/clock.h"

#include <stdio.h>

#define COUNT_MAX 100000u /* of draws, and of reads, in a frame */
#define TRIES 5

static bool failed(const renderer *r)
{
    fprintf(stderr, "%s: a frame failed\n", r->load->name);
    return false;
}

bool render_frame(renderer *r)
{
    bool looks = r->looks;
    r->looks = false;
    return r->load->frame(r->self, r->draws, r->reads, looks) || failed(r);
}

void render_look(renderer *r)
{
    r->looks = true;
}

bool render_seen(renderer *r, uint8_t *rgbx)
{
    return r->load->seen(r->self, rgbx) || failed(r);
}

bool render_wait(renderer *r)
{
    return r->load->wait(r->self) || failed(r);
}

/* Milliseconds from a frame's beginning to its fence: the best of some. Negative: it failed. */
static double time_of(renderer *r, uint32_t draws, uint32_t reads)
{
    double best = -1;
    r->draws = draws;
    r->reads = reads;
    for (int i = 0; i < TRIES; i++) {
        uint64_t start = clock_ns();
        if (!render_frame(r) || !render_wait(r)) {
            return -1;
        }
        double ms = (double)(clock_ns() - start) * 1e-6;
        best = best < 0 || ms < best ? ms : best;
    }
    return best;
}

/* How many draws (draw), or reads, need `ms`; at least 1. 0: it failed. The GPU's clock rises meanwhile. */
static uint32_t count_for(renderer *r, bool draw, double ms)
{
    uint32_t count = 1;
    double took = time_of(r, draw, !draw);
    while (took >= 0 && took < ms && count < COUNT_MAX) {
        double more = took > ms / 16 ? ms / took : 2;
        uint32_t next = (uint32_t)((double)count * (more < 2 ? more : 2)) + 1;
        count = next < COUNT_MAX ? next : COUNT_MAX;
        took = time_of(r, draw ? count : 0, draw ? 0 : count);
    }
    return took < 0 ? 0 : count;
}

/* Half of the time is for drawing, half for reading. */
static bool calibrate(renderer *r, double ms)
{
    uint32_t draws = count_for(r, true, ms / 2), reads = draws ? count_for(r, false, ms / 2) : 0;
    r->ms = reads ? time_of(r, draws, reads) : -1;
    for (int i = 0; i < 3 && r->ms >= 0; i++) { /* together they may take less, or more */
        draws = (uint32_t)((double)draws * ms / r->ms + 0.5);
        reads = (uint32_t)((double)reads * ms / r->ms + 0.5);
        r->ms = time_of(r, draws ? draws : 1, reads ? reads : 1);
        draws = r->draws;
        reads = r->reads;
    }
    return r->ms >= 0;
}

bool render_open(renderer *r, double ms, bool pictures)
{
    char why[RENDER_WHAT_BYTES];
    *r = (renderer){ .load = &render_gl };
    r->self = r->load->open(r->what);
    if (!r->self && pictures) {
        fprintf(stderr, "nothing can draw a picture here: %s\n", r->what);
        return false;
    }
    if (!r->self) {
        snprintf(why, sizeof why, "%s", r->what);
        r->load = &render_cuda;
        r->self = r->load->open(r->what);
    }
    if (!r->self) {
        fprintf(stderr, "nothing can render here: %s; %s\n", why, r->what);
        return false;
    }
    return calibrate(r, ms);
}

void render_close(renderer *r)
{
    if (r->load) {
        r->load->close(r->self);
    }
    *r = (renderer){ 0 };
}
