/* ptx_run.c: runs a launch: its CTAs, the turns of their warps, and what ends it.
   takes: ptx_parts.h.
   gives: ptx_start, ptx_advance, ptx_fault, ptx_end, ptx_fail, ptx_random.
   Warps take turns. A turn ends when the warp waits, or only polls memory, or has executed TURN steps; with a seed the
   order and the lengths are random. */
#include "ptx_parts.h"

#include <stdarg.h>
#include <stdio.h>

#define TURN 4096u
#define THREADS_MAX 1024u
#define SHARED_MAX (1u << 20)
#define POISON 0xFF /* a NaN in every format, and an index that is out of every range */

uint32_t ptx_random(ptx_run *run, uint32_t below)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return (uint32_t)((run->random >> 32) * below >> 32);
}

uint64_t ptx_clock(uint64_t more)
{
    static uint64_t now = 1000000000;
    return __atomic_add_fetch(&now, more, __ATOMIC_RELAXED);
}

/* ---- faults ---- */

/* The text's line, without the blanks around it. */
static const char *line_of(const char *text, uint32_t line, int *bytes)
{
    while (line > 1 && *text) {
        line -= *text++ == '\n';
    }
    text += strspn(text, " \t");
    *bytes = (int)strcspn(text, ";\n");
    *bytes = *bytes > 120 ? 120 : *bytes;
    return text;
}

void ptx_fail(ptx_warp *w, const ptx_step *s, uint32_t lane, const char *format, ...)
{
    ptx_cta *cta = w->cta;
    ptx_run *run = cta->run;
    int bytes;
    const char *text = line_of(run->kernel->text, s->line, &bytes);
    if (run->failed) {
        return;
    }
    run->failed = true;
    int n = snprintf(run->fault, sizeof run->fault, "kernel %s, CTA (%u, %u, %u), thread %u, line %u (%.*s): ",
                     run->kernel->name, (unsigned)cta->id[0], (unsigned)cta->id[1], (unsigned)cta->id[2],
                     (unsigned)(w->index * PTX_LANES + lane), (unsigned)s->line, bytes, text);
    if (n > 0 && (size_t)n < sizeof run->fault) {
        va_list list;
        va_start(list, format);
        vsnprintf(run->fault + n, sizeof run->fault - (size_t)n, format, list);
        va_end(list);
    }
}

static ptx_run *reject(ptx_run *run, const char *why)
{
    run->failed = true;
    snprintf(run->fault, sizeof run->fault, "kernel %s cannot start: %s", run->kernel->name, why);
    return run;
}

/* ---- CTAs ---- */

static void *memory_of(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        abort(); /* a test without memory cannot go on */
    }
    return memory;
}

static void warp_begin(ptx_warp *w, const ptx_run *run)
{
    uint32_t threads = run->threads - w->index * PTX_LANES;
    uint8_t *registers = w->registers, *local = w->local;
    ptx_copies_end(w);
    ptx_products_end(w);
    memset(registers, POISON, run->kernel->register_bytes);
    memset(local, POISON, (size_t)run->kernel->local_bytes * PTX_LANES);
    *w = (ptx_warp){ .registers = registers, .local = local, .constants = run->kernel->constants, .cta = w->cta,
        .index = w->index, .live = threads >= PTX_LANES ? PTX_ALL : (1u << threads) - 1, .changed = true };
}

static void cta_begin(ptx_run *run, ptx_cta *cta, uint64_t number, ptx_cta *first)
{
    const uint32_t *grid = run->launch.grid;
    cta->id[0] = (uint32_t)(number % grid[0]);
    cta->id[1] = (uint32_t)(number / grid[0] % grid[1]);
    cta->id[2] = (uint32_t)(number / grid[0] / grid[1]);
    cta->rank = (uint32_t)(cta - first);
    cta->cluster = first;
    cta->live_warps = run->warps;
    cta->live_threads = run->threads;
    cta->cluster_arrived = cta->cluster_phase = 0;
    cta->released = false;
    memset(cta->barriers, 0, sizeof cta->barriers);
    ptx_bulks_end(cta);
    memset(cta->shared, POISON, run->shared_bytes);
    for (uint32_t i = 0; i < run->warps; i++) {
        warp_begin(&cta->warps[i], run);
    }
}

/* Starts the next cluster in a place. */
static void place_fill(ptx_run *run, uint32_t place)
{
    ptx_cta *first = &run->ctas[(size_t)place * run->cluster];
    for (uint32_t i = 0; i < run->cluster; i++) {
        cta_begin(run, &first[i], run->next_cluster * run->cluster + i, first);
    }
    run->next_cluster++;
}

static bool place_ended(const ptx_run *run, const ptx_cta *first)
{
    for (uint32_t i = 0; i < run->cluster; i++) {
        if (first[i].live_warps > 0) {
            return false;
        }
    }
    return true;
}

static void ctas_make(ptx_run *run)
{
    const ptx_kernel *k = run->kernel;
    uint32_t count = run->places * run->cluster;
    run->ctas = memory_of(count, sizeof *run->ctas);
    for (uint32_t i = 0; i < count; i++) {
        ptx_cta *cta = &run->ctas[i];
        cta->run = run;
        cta->shared = memory_of(run->shared_bytes, 1);
        cta->warps = memory_of(run->warps, sizeof *cta->warps);
        for (uint32_t n = 0; n < run->warps; n++) {
            cta->warps[n].cta = cta;
            cta->warps[n].index = n;
            cta->warps[n].registers = aligned_alloc(64, k->register_bytes + 64);
            cta->warps[n].local = memory_of(k->local_bytes, PTX_LANES);
            if (!cta->warps[n].registers) {
                abort();
            }
        }
    }
}

ptx_run *ptx_start(const ptx_launch *launch)
{
    ptx_run *run = memory_of(1, sizeof *run);
    const ptx_kernel *k = launch->kernel;
    const uint32_t *grid = launch->grid, *block = launch->block;
    run->launch = *launch;
    run->kernel = k;
    run->random = launch->seed * 0x9E3779B97F4A7C15u + 0x1234567;
    run->cluster = k->cluster ? k->cluster : launch->cluster > 1 ? launch->cluster : 1;
    bool small = block[0] <= THREADS_MAX && block[1] <= THREADS_MAX && block[2] <= THREADS_MAX;
    uint64_t threads = small ? (uint64_t)block[0] * block[1] * block[2] : 0;
    if (threads == 0 || threads > k->threads_max || threads > THREADS_MAX) {
        return reject(run, "its CTAs have no threads, or too many");
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535) {
        return reject(run, "the grid has no CTAs, or too many");
    }
    if (k->cluster && launch->cluster && launch->cluster != k->cluster) {
        return reject(run, "the kernel requires clusters of another size");
    }
    if (run->cluster > 16 || grid[0] % run->cluster) {
        return reject(run, "the grid is no multiple of the cluster");
    }
    if (launch->dynamic_bytes > SHARED_MAX || k->shared_bytes > SHARED_MAX) {
        return reject(run, "it needs too much shared memory");
    }
    run->threads = (uint32_t)threads;
    run->warps = (run->threads + PTX_LANES - 1) / PTX_LANES;
    run->shared_bytes = PTX_SHARED_BEGIN + (launch->dynamic_bytes ? k->dynamic_at : k->shared_bytes)
                      + launch->dynamic_bytes;
    run->clusters = (uint64_t)grid[0] * grid[1] * grid[2] / run->cluster;
    uint64_t places = launch->resident ? (launch->resident + run->cluster - 1) / run->cluster : run->clusters;
    run->places = (uint32_t)(places < run->clusters ? places : run->clusters);
    run->parameters = memory_of(k->parameter_bytes, 1);
    if (k->parameter_bytes > 0) {
        memcpy(run->parameters, launch->parameters, k->parameter_bytes);
    }
    run->launch.parameters = NULL;
    ctas_make(run);
    for (uint32_t i = 0; i < run->places; i++) {
        place_fill(run, i);
    }
    return run;
}

void ptx_end(ptx_run *run)
{
    if (!run) {
        return;
    }
    for (uint32_t i = 0; run->ctas && i < run->places * run->cluster; i++) {
        ptx_cta *cta = &run->ctas[i];
        for (uint32_t n = 0; n < run->warps; n++) {
            ptx_copies_end(&cta->warps[n]);
            ptx_products_end(&cta->warps[n]);
            free(cta->warps[n].registers);
            free(cta->warps[n].local);
        }
        ptx_bulks_end(cta);
        free(cta->warps);
        free(cta->shared);
    }
    free(run->ctas);
    free(run->parameters);
    free(run);
}

bool ptx_released(const ptx_run *run)
{
    bool all = !run->failed && run->next_cluster == run->clusters;
    for (uint32_t i = 0; all && i < run->places * run->cluster; i++) {
        all = run->ctas[i].released || run->ctas[i].live_warps == 0;
    }
    return all;
}

const char *ptx_fault(const ptx_run *run) { return run->fault; }
uint64_t ptx_executed(const ptx_run *run) { return run->instructions; }

/* ---- turns ---- */

/* The step at which a lane of the warp waits. */
static void fail_waiting(ptx_run *run)
{
    for (uint32_t i = 0; i < run->places * run->cluster; i++) {
        for (uint32_t n = 0; n < run->warps; n++) {
            ptx_warp *w = &run->ctas[i].warps[n];
            if (w->live) {
                uint32_t lane = ptx_first(w->live);
                const ptx_step *s = &run->kernel->steps[w->pcs[lane] > 0 ? w->pcs[lane] - 1 : 0];
                ptx_fail(w, s, lane, "all warps wait, and nothing can end their wait");
                return;
            }
        }
    }
}

/* One turn of a warp. */
static uint64_t turn_take(ptx_run *run, ptx_warp *w, uint64_t budget)
{
    /* While nothing happens, every warp gets a whole turn, so that a deadlock is seen. */
    uint64_t most = run->launch.seed && run->idle == 0 ? 1 + ptx_random(run, ptx_random(run, 8) ? 200 : TURN) : TURN;
    uint64_t done = ptx_warp_run(w, most < budget ? most : budget);
    bool waits = done == 0 || (w->stuck && !w->polls_global && !w->acted);
    bool idle = waits || (w->yield && (w->polled || w->slept || w->stuck) && !w->acted);
    run->waiting = waits ? run->waiting + 1 : 0;
    run->idle = idle ? run->idle + 1 : 0;
    return done;
}

int ptx_advance(ptx_run *run, uint64_t instructions)
{
    if (run->failed) {
        return -1;
    }
    memset(run->readable, 0, sizeof run->readable); /* memory may have been freed since */
    memset(run->writable, 0, sizeof run->writable);
    uint32_t total = run->places * run->cluster * run->warps;
    run->idle = run->waiting = 0;
    while (instructions > 0 && run->ended < run->clusters && run->idle < total) {
        run->turn = (run->turn + 1) % total;
        if (run->launch.seed && run->idle == 0 && ptx_random(run, 3) == 0) {
            continue;
        }
        ptx_cta *cta = &run->ctas[run->turn / run->warps];
        uint64_t done = turn_take(run, &cta->warps[run->turn % run->warps], instructions);
        instructions -= done < instructions ? done : instructions;
        ptx_clock(done);
        if (run->failed) {
            return -1;
        }
        if (done > 0 && cta->live_warps == 0 && place_ended(run, cta->cluster)) {
            run->ended++;
            if (run->next_cluster < run->clusters) {
                place_fill(run, (uint32_t)(cta->cluster - run->ctas) / run->cluster);
            }
        }
    }
    if (run->ended < run->clusters && run->waiting >= total) {
        fail_waiting(run);
        return -1;
    }
    return run->ended < run->clusters;
}
