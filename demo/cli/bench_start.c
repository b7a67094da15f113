/* bench_start.c: see bench_start.h.
   takes: options, a model's desc.
   gives: what bench_start.h declares. */
#include "bench_start.h"

#include "../common/clock.h"

#include <stdio.h>
#include <string.h>

/* ---- the engine's profiler zone around loading kernels, from cache or compiler to the driver ---- */

static void on_zone_begin(void *user, const char *name)
{
    bench_start *s = user;
    s->depth++;
    if (!s->kernel_depth && strcmp(name, "exl2 load kernels") == 0) {
        s->kernel_depth = s->depth;
        s->zone_ns = clock_ns();
    }
}

static void on_zone_end(void *user)
{
    bench_start *s = user;
    if (s->kernel_depth == s->depth) {
        s->kernel_seconds += clock_seconds_since(s->zone_ns);
        s->kernel_depth = 0;
    }
    s->depth--;
}

bool bench_start_run(bench_start *s, host *h, const host_options *o, const exl2_model_desc *d)
{
    host_options watched = *o;
    exl2_model_desc model = *d;
    exl2_engine_stats stats;
    *s = (bench_start){ 0 };
    watched.zones = (exl2_zones){ .begin = on_zone_begin, .end = on_zone_end, .user = s };
    if (!host_open(h, &watched)) {
        return false;
    }
    host_place(h, &model);
    if (exl2_model_measure(h->engine, &model, &s->plan) < 0) {
        host_failed(h);
        return false;
    }
    if (!host_load(h, &model, 1)) {
        return false;
    }
    exl2_stats(h->engine, &stats);
    s->open_seconds = h->open_seconds;
    s->load_seconds = h->load_seconds;
    s->kernels_compiled = stats.kernels_compiled;
    s->device_bytes = stats.device_bytes;
    s->device_peak = stats.device_peak;
    return true;
}

/* ---- the result ---- */

/* GB/s of weights, over the loading time without that of the kernels. */
static double load_speed(const bench_start *s)
{
    double seconds = s->load_seconds - s->kernel_seconds;
    return seconds > 0 ? (double)s->plan.weight_bytes * 1e-9 / seconds : 0;
}

void bench_start_print(const bench_start *s)
{
    bool on_gpu = s->plan.device_bytes > 0;
    if (on_gpu) {
        printf("opened in %.3f s; kernels in %.3f s, with %llu modules compiled; ", s->open_seconds,
               s->kernel_seconds, (unsigned long long)s->kernels_compiled);
    }
    printf("loaded %.2f GB of weights in %.2f s, %.2f GB/s\n", (double)s->plan.weight_bytes * 1e-9,
           s->load_seconds - s->kernel_seconds, load_speed(s));
    if (s->first_token_seconds > 0) {
        printf("first token after %.2f s\n", s->first_token_seconds);
    }
    if (on_gpu) {
        printf("GPU memory: %.3f GB predicted, %.3f GB used, peak %.3f GB\n", (double)s->plan.device_bytes * 1e-9,
               (double)s->device_bytes * 1e-9, (double)s->device_peak * 1e-9);
    }
    char offload[160];
    if (host_offload_text(&s->plan, offload, sizeof offload)) {
        printf("%s\n", offload);
    }
    fflush(stdout);
}

void bench_start_json(const bench_start *s, json_out *j)
{
    json_out_number(j, "open_s", s->open_seconds);
    json_out_number(j, "load_s", s->load_seconds);
    json_out_number(j, "kernels_s", s->kernel_seconds);
    if (s->first_token_seconds > 0) {
        json_out_number(j, "first_token_s", s->first_token_seconds);
    }
    json_out_uint(j, "kernels_compiled", s->kernels_compiled);
    json_out_number(j, "load_gb_s", load_speed(s));
    json_out_uint(j, "weight_bytes", s->plan.weight_bytes);
    json_out_uint(j, "device_bytes_planned", s->plan.device_bytes);
    json_out_uint(j, "device_bytes", s->device_bytes);
    json_out_uint(j, "device_bytes_peak", s->device_peak);
    json_out_uint(j, "host_mlps", s->plan.host_mlps);
    json_out_bool(j, "host_prompts", s->plan.host_prompts);
    json_out_uint(j, "host_weight_bytes", s->plan.host_weight_bytes);
}
