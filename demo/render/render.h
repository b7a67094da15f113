/* render.h: a renderer of its own for measurements: each frame draws full-screen passes and dispatches a compute shader
   that reads memory, as often as fills the wished GPU time.
   takes: milliseconds of GPU time in a frame.
   gives: renderer, render_open, render_look, render_frame, render_wait, render_seen, render_close; render_load, which a
          kind of load implements.
   owns:  the renderer's context and buffers, until render_close.

   OpenGL through EGL, without a window; where there is none, a second CUDA context with the same load stands in, so
   that the time slices of two contexts are measured all the same. */
#ifndef DEMO_RENDER_H
#define DEMO_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RENDER_WHAT_BYTES 256

typedef struct render_load {
    const char *name;
    /* NULL: not available; `what` says why. Else what renders. */
    void *(*open)(char what[RENDER_WHAT_BYTES]);
    /* Enqueues both and a fence; looks: and before the fence a copy of what was drawn. false: it failed */
    bool (*frame)(void *load, uint32_t draws, uint32_t reads, bool looks);
    bool (*wait)(void *load);                                  /* until the fence */
    bool (*seen)(void *load, uint8_t *rgbx);                   /* the copy; NULL: this kind draws no picture */
    void (*close)(void *load);                                 /* accepts NULL */
} render_load;

extern const render_load render_gl, render_cuda;

#define RENDER_SIDE 512u /* pixels of both sides of the picture */

typedef struct renderer { /* zeroed: closed */
    const render_load *load;
    void *self;
    bool looks; /* in the next frame */
    uint32_t draws, reads; /* of a frame */
    double ms;             /* what a frame took at the end of the calibration */
    char what[RENDER_WHAT_BYTES]; /* what renders */
} renderer;

/* false: nothing can render, or a frame failed; the message was printed. pictures: what is drawn must be a picture that
   can be read. */
bool render_open(renderer *r, double ms, bool pictures);
void render_look(renderer *r);                  /* the next frame's picture is to be read */
bool render_seen(renderer *r, uint8_t *rgbx);   /* after its fence: [RENDER_SIDE, RENDER_SIDE, 4], from the bottom */
bool render_frame(renderer *r); /* these two: false after a message */
bool render_wait(renderer *r);
void render_close(renderer *r);

#endif
