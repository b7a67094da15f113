/* metrics.c: see metrics.h.
   takes: figures of the server and of the engine's thread.
   gives: what metrics.h declares. */
#define _POSIX_C_SOURCE 200809L
#include "metrics.h"

#include <stdio.h>
#include <string.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#include <psapi.h>

uint64_t metrics_resident_bytes(void)
{
    PROCESS_MEMORY_COUNTERS memory = { .cb = sizeof memory };
    return K32GetProcessMemoryInfo(GetCurrentProcess(), &memory, sizeof memory) ? memory.WorkingSetSize : 0;
}
#else
#include <unistd.h>

uint64_t metrics_resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    int read = file ? fscanf(file, "%llu %llu", &all, &resident) : 0;
    if (file) {
        fclose(file);
    }
    return read == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
#endif

static const double limits[METRICS_BUCKETS - 1] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 10, 60 };

void metrics_add(histogram *h, double seconds)
{
    uint32_t at = 0;
    while (at < METRICS_BUCKETS - 1 && seconds > limits[at]) {
        at++;
    }
    h->buckets[at]++;
    h->sum += seconds;
    h->count++;
}

void metrics_count(metrics *m, const char *path, int status)
{
    for (uint32_t i = 0; i < m->request_kinds; i++) {
        if (m->requests[i].status == status && strcmp(m->requests[i].path, path) == 0) {
            m->requests[i].count++;
            return;
        }
    }
    if (m->request_kinds < sizeof m->requests / sizeof m->requests[0]) {
        m->requests[m->request_kinds++] = (request_count){ path, status, 1 };
    }
}

static void put(buffer *out, const char *name, const char *type, double value)
{
    buffer_format(out, "# TYPE %s %s\n%s %.17g\n", name, type, name, value);
}

static void put_histogram(buffer *out, const char *name, const uint64_t *buckets, const double *upper, uint32_t count,
                          double sum)
{
    uint64_t total = 0;
    buffer_format(out, "# TYPE %s histogram\n", name);
    for (uint32_t i = 0; i < count; i++) {
        total += buckets[i];
        if (i + 1 < count) {
            buffer_format(out, "%s_bucket{le=\"%g\"} %llu\n", name, upper[i], (unsigned long long)total);
        }
    }
    buffer_format(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, (unsigned long long)total,
                  name, sum, name, (unsigned long long)total);
}

static uint64_t page_bytes(const server *s)
{
    return s->models ? s->models->load.info.cache_bytes_per_token * 64 : 0;
}

static void put_engine(server *s, buffer *out, const engine_times *t)
{
    const exl2_engine_stats *e = &t->stats;
    put(out, "exl2_jobs_active", "gauge", e->jobs_active);
    put(out, "exl2_jobs_waiting", "gauge", e->jobs_waiting);
    put(out, "exl2_queue", "gauge", t->waiting);
    put(out, "exl2_connections", "gauge", http_connections(s->http));
    put(out, "exl2_pages_total", "gauge", e->pages_total);
    put(out, "exl2_pages_used", "gauge", e->pages_used);
    put(out, "exl2_pages_shared", "gauge", e->pages_shared);
    put(out, "exl2_pages_cached", "gauge", e->pages_cached);
    put(out, "exl2_page_bytes", "gauge", (double)page_bytes(s));
    put(out, "exl2_tokens_prompt_total", "counter", (double)e->tokens_in);
    put(out, "exl2_tokens_reused_total", "counter", (double)s->metrics.tokens_reused);
    put(out, "exl2_tokens_generated_total", "counter", (double)e->tokens_out);
    put(out, "exl2_tokens_forced_total", "counter", (double)e->forced_tokens);
    put(out, "exl2_tokens_accepted_total", "counter", (double)e->accepted);
    put(out, "exl2_host_bytes", "gauge", (double)e->host_bytes);
    put(out, "exl2_device_bytes", "gauge", (double)e->device_bytes);
    put(out, "process_resident_memory_bytes", "gauge", (double)metrics_resident_bytes());
    put_histogram(out, "exl2_step_seconds", t->buckets, engine_step_limits, ENGINE_STEP_BUCKETS, t->step_seconds);
}

void metrics_write(server *s, buffer *out)
{
    const metrics *m = &s->metrics;
    engine_watch(s->engine, &s->times);
    put_engine(s, out, &s->times);
    put_histogram(out, "exl2_first_token_seconds", m->first_token.buckets, limits, METRICS_BUCKETS, m->first_token.sum);
    put_histogram(out, "exl2_token_seconds", m->token.buckets, limits, METRICS_BUCKETS, m->token.sum);
    put_histogram(out, "exl2_request_seconds", m->request.buckets, limits, METRICS_BUCKETS, m->request.sum);
    buffer_string(out, "# TYPE exl2_cancelled_total counter\n");
    buffer_format(out, "exl2_cancelled_total{reason=\"gone\"} %llu\n", (unsigned long long)m->cancelled_gone);
    buffer_format(out, "exl2_cancelled_total{reason=\"shutdown\"} %llu\n", (unsigned long long)m->cancelled_shutdown);
    buffer_format(out, "exl2_cancelled_total{reason=\"error\"} %llu\n", (unsigned long long)m->cancelled_error);
    buffer_string(out, "# TYPE exl2_requests_total counter\n");
    for (uint32_t i = 0; i < m->request_kinds; i++) {
        buffer_format(out, "exl2_requests_total{path=\"%s\",code=\"%d\"} %llu\n", m->requests[i].path,
                      m->requests[i].status, (unsigned long long)m->requests[i].count);
    }
}
