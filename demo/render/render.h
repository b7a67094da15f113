/* render.h: a renderer of its own for measurements: each frame draws full-screen passes and dispatches a compute shader
   that reads memory, so many that the GPU needs the wished time for them.
   takes: milliseconds of GPU time in a frame.
   gives: renderer, render_open, render_frame, render_wait, render_close; render_load, which a kind of load implements.
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
    bool (*frame)(void *load, uint32_t draws, uint32_t reads); /* enqueues both and a fence; false: it failed */
    bool (*wait)(void *load);                                  /* until the fence */
    void (*close)(void *load);                                 /* accepts NULL */
} render_load;

extern const render_load render_gl, render_cuda;

typedef struct renderer { /* zeroed: closed */
    const render_load *load;
    void *self;
    uint32_t draws, reads; /* of a frame */
    double ms;             /* what a frame took at the end of the calibration */
    char what[RENDER_WHAT_BYTES]; /* what renders */
} renderer;

/* false: nothing can render, or a frame failed; the message was printed. */
bool render_open(renderer *r, double ms);
bool render_frame(renderer *r); /* these two: false after a message */
bool render_wait(renderer *r);
void render_close(renderer *r);

#endif
