/* bench_image.h: times the tower of a model for pictures.
   takes: a host with a loaded model, a size.
   gives: bench_image, bench_image_size, bench_image_run, bench_image_print, bench_image_json. */
#ifndef BENCH_IMAGE_H
#define BENCH_IMAGE_H

#include "../common/host.h"
#include "../common/json_out.h"
#include "bench_runs.h"

#define BENCH_IMAGE_PROMPT 512u /* rows of the text model that a tower is compared with */

typedef struct bench_image { /* medians of ten pictures */
    uint32_t width, height;
    exl2_image_info seen;
    double ms, cpu_ms;       /* in the tower and the projector; CPU time of all threads, with resizing */
    double prefill_gflops;   /* of the text model, in a prompt of BENCH_IMAGE_PROMPT rows */
    double prefill_cpu_ms;   /* of that prompt, of all threads */
} bench_image;

bool bench_image_size(const char *text, uint32_t *width, uint32_t *height); /* "512x288"; false: it is no size */

/* Encodes ten pictures of noise, each another one. false: failed, message printed. */
bool bench_image_run(host *h, bench_runs *runs, bench_image *out);

void bench_image_print(const bench_image *b);
void bench_image_json(const bench_image *b, json_out *j);

#endif
