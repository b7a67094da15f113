/* bench_image.c: see bench_image.h.
   takes: a host with a loaded model.
   gives: what bench_image.h declares.
   owns:  the pixels, during a run. */
#include "bench_image.h"

#include "../common/clock.h"
#include "../common/interrupt.h"
#include "../common/memory.h"
#include "../common/samples.h"

#include <stdio.h>
#include <stdlib.h>

#define PICTURES 10u /* the median is reported */

bool bench_image_size(const char *text, uint32_t *width, uint32_t *height)
{
    unsigned w = 0, h = 0;
    char end;
    bool good = sscanf(text, "%5ux%5u%c", &w, &h, &end) == 2 && w > 0 && h > 0;
    *width = w;
    *height = h;
    return good;
}

/* Encodes one picture. false: failed, message printed. */
static bool encode(host *h, const exl2_image_desc *d, exl2_image_info *info)
{
    exl2_image image;
    exl2_step_desc step = { .wait = true };
    exl2_result r = exl2_image_make(h->engine, d, &image);
    while (r >= 0 && (r = exl2_image_get(h->engine, image, info)) >= 0 && info->state != EXL2_IMAGE_ENCODED) {
        r = info->result < 0 ? info->result : exl2_step(h->engine, &step);
        if (interrupted()) {
            progress_end(&h->bar);
            fputs("interrupted\n", stderr);
            return false;
        }
    }
    if (r >= 0) {
        exl2_image_close(h->engine, image);
    } else {
        host_failed(h);
    }
    return r >= 0;
}

static bool encode_all(host *h, bench_image *b, uint8_t *pixels)
{
    samples wall = { 0 }, cpu = { 0 };
    size_t count = (size_t)b->width * b->height * 3;
    uint64_t state = 1;
    bool good = true;
    for (uint32_t i = 0; good && i < PICTURES; i++) {
        exl2_image_desc d = { .model = h->model, .width = b->width, .height = b->height, .pixels = pixels,
                              .silent = true };
        progress_show_stage(&h->bar, (double)i / PICTURES, "pictures");
        for (size_t k = 0; k < count; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            pixels[k] = (uint8_t)(state >> 56);
        }
        uint64_t cpu_ns = clock_cpu_ns();
        good = encode(h, &d, &b->seen);
        samples_add(&cpu, (double)(clock_cpu_ns() - cpu_ns) * 1e-6);
        samples_add(&wall, (double)b->seen.encode_ns * 1e-6);
    }
    b->ms = samples_median(&wall);
    b->cpu_ms = samples_median(&cpu);
    samples_free(&wall);
    samples_free(&cpu);
    return good;
}

/* Operations of the text model for a prompt: products and causal attention in the layers, and the head for one row. */
static double prompt_operations(const exl2_model_info *m, uint32_t rows)
{
    double attention = 2.0 * m->layers * m->heads * m->head_dim * (double)rows * (rows + 1);
    return 2.0 * (double)m->row_weights * rows + attention + 2.0 * m->hidden * m->vocab;
}

bool bench_image_run(host *h, bench_runs *runs, bench_image *out)
{
    bench_run prompt;
    uint32_t rows = BENCH_IMAGE_PROMPT;
    uint8_t *pixels = memory_take((size_t)out->width * out->height, 3);
    bool good = encode_all(h, out, pixels) && bench_runs_prefill(runs, rows, &prompt);
    free(pixels);
    if (good) {
        out->prefill_gflops = prompt_operations(&h->info, rows) / rows * prompt.tokens_per_second * 1e-9;
        out->prefill_cpu_ms = prompt.cpu_us * rows * 1e-3;
    }
    progress_end(&h->bar);
    return good;
}

static double gflops(const bench_image *b)
{
    return b->ms > 0 ? (double)b->seen.operations * 1e-6 / b->ms : 0;
}

void bench_image_print(const bench_image *b)
{
    printf("picture  %u x %u: %u tile%s of %u x %u, %u rows, %.2f TFLOP; tower %.1f ms (CPU %.1f ms), %.1f GFLOP/s; "
           "prompt %.1f GFLOP/s\n", b->width, b->height, b->seen.tiles, b->seen.tiles == 1 ? "" : "s", b->seen.width,
           b->seen.height, b->seen.rows, (double)b->seen.operations * 1e-12, b->ms, b->cpu_ms, gflops(b),
           b->prefill_gflops);
    fflush(stdout);
}

void bench_image_json(const bench_image *b, json_out *j)
{
    json_out_object(j, "image");
    json_out_uint(j, "width", b->width);
    json_out_uint(j, "height", b->height);
    json_out_uint(j, "tiles", b->seen.tiles);
    json_out_uint(j, "rows", b->seen.rows);
    json_out_number(j, "tflop", (double)b->seen.operations * 1e-12);
    json_out_number(j, "tower_ms", b->ms);
    json_out_number(j, "tower_cpu_ms", b->cpu_ms);
    json_out_number(j, "tower_gflops", gflops(b));
    json_out_number(j, "prefill_cpu_ms", b->prefill_cpu_ms);
    json_out_number(j, "prefill_gflops", b->prefill_gflops);
    json_out_end(j);
}
