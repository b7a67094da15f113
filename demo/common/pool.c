/* pool.c: see pool.h. The whole state of a run is one 64-bit ticket, `count << 32 | next`. The thread that
   increments `next` owns that index. The run cannot end before this thread has finished, so task and arg stay valid.
   takes: POSIX threads.
   gives: what pool.h declares.
   owns:  the pool, its threads. */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define POOL_SPINS 4000u /* spins of a few to 40 ns each; together longer than the gap between two phases of a pass */
#define POOL_WIDTH_MAX 64u

struct pool {
    _Alignas(64) atomic_uint_least64_t ticket;
    _Alignas(64) atomic_uint_least32_t unfinished; /* tasks of the run that have not returned */
    _Alignas(64) void (*task)(void *arg, uint32_t index);
    void *arg;
    atomic_uint_least32_t sleepers;
    atomic_bool caller_sleeps, stop;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint32_t width, started;
    pthread_t threads[POOL_WIDTH_MAX];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_work(pool *p)
{
    uint64_t ticket = atomic_load(&p->ticket);
    return (uint32_t)ticket < (uint32_t)(ticket >> 32);
}

/* Claims and runs tasks until all are claimed. */
static void work(pool *p)
{
    uint64_t ticket = atomic_load(&p->ticket);
    while ((uint32_t)ticket < (uint32_t)(ticket >> 32)) {
        if (!atomic_compare_exchange_weak(&p->ticket, &ticket, ticket + 1)) {
            continue;
        }
        p->task(p->arg, (uint32_t)ticket);
        if (atomic_fetch_sub(&p->unfinished, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
        ticket = atomic_load(&p->ticket);
    }
}

static void *thread_main(void *user)
{
    pool *p = user;
    while (!atomic_load(&p->stop)) {
        for (uint32_t spin = 0; spin < POOL_SPINS && !has_work(p); spin++) {
            relax();
        }
        if (!has_work(p)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (!has_work(p) && !atomic_load(&p->stop)) {
                pthread_cond_wait(&p->wake, &p->lock);
            }
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        work(p);
    }
    return NULL;
}

static void wake_all(pool *p)
{
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void run(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    pool *p = user;
    if (count == 0) {
        return;
    }
    p->task = task;
    p->arg = arg;
    atomic_store(&p->unfinished, count);
    atomic_store(&p->ticket, (uint64_t)count << 32);
    if (atomic_load(&p->sleepers)) {
        wake_all(p);
    }
    work(p);
    for (uint32_t spin = 0; spin < POOL_SPINS && atomic_load(&p->unfinished); spin++) {
        relax();
    }
    if (atomic_load(&p->unfinished)) { /* more threads than CPU cores: sleep, to free this core */
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->caller_sleeps, true);
        while (atomic_load(&p->unfinished)) {
            pthread_cond_wait(&p->done, &p->lock);
        }
        atomic_store(&p->caller_sleeps, false);
        pthread_mutex_unlock(&p->lock);
    }
}

uint32_t pool_processors(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return (uint32_t)CPU_COUNT(&set);
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

pool *pool_open(uint32_t width)
{
    width = width ? width : pool_processors();
    width = width < POOL_WIDTH_MAX ? width : POOL_WIDTH_MAX;
    pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) {
        return NULL;
    }
    *p = (pool){ .width = width };
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    while (p->started + 1 < width) {
        if (pthread_create(&p->threads[p->started], NULL, thread_main, p) != 0) {
            pool_close(p);
            return NULL;
        }
        p->started++;
    }
    return p;
}

exl2_parallel pool_hook(pool *p)
{
    exl2_parallel hook = { 0 };
    if (p && p->width > 1) {
        hook.run = run;
        hook.width = p->width;
        hook.user = p;
    }
    return hook;
}

uint32_t pool_width(const pool *p)
{
    return p ? p->width : 1;
}

void pool_close(pool *p)
{
    if (!p) {
        return;
    }
    atomic_store(&p->stop, true);
    wake_all(p);
    for (uint32_t i = 0; i < p->started; i++) {
        pthread_join(p->threads[i], NULL);
    }
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
