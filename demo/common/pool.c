/* pool.c: see pool.h. The whole state of a run is one 64-bit ticket, `count << 32 | next`. The thread that
   increments `next` owns that index. The run cannot end before this thread has finished, so task and arg stay valid.
   takes: POSIX threads, or those of Windows.
   gives: what pool.h declares.
   owns:  the pool, its threads. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#define POOL_SPINS 4000u /* spins of a few to 40 ns each; together longer than the gap between two phases of a pass */

/* ---- threads of the system ---- */

#ifdef _WIN32
#include <windows.h>

typedef SRWLOCK pool_lock;
typedef CONDITION_VARIABLE pool_signal;
typedef HANDLE pool_thread;

static void lock_open(pool_lock *l) { InitializeSRWLock(l); }
static void lock_take(pool_lock *l) { AcquireSRWLockExclusive(l); }
static void lock_release(pool_lock *l) { ReleaseSRWLockExclusive(l); }
static void lock_close(pool_lock *l) { (void)l; }
static void signal_open(pool_signal *s) { InitializeConditionVariable(s); }
static void signal_wait(pool_signal *s, pool_lock *l) { SleepConditionVariableSRW(s, l, INFINITE, 0); }
static void signal_one(pool_signal *s) { WakeConditionVariable(s); }
static void signal_all(pool_signal *s) { WakeAllConditionVariable(s); }
static void signal_close(pool_signal *s) { (void)s; }

static void thread_work(void *user);

static DWORD WINAPI thread_main(void *user)
{
    thread_work(user);
    return 0;
}

static bool thread_open(pool_thread *t, void *user)
{
    *t = CreateThread(NULL, 0, thread_main, user, 0, NULL);
    return *t != NULL;
}

static void thread_join(pool_thread t)
{
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}

static void *pool_take(size_t bytes) { return _aligned_malloc(bytes, 64); }
static void pool_free(void *memory) { _aligned_free(memory); }

uint32_t pool_processors(void)
{
    DWORD_PTR process = 0, system = 0;
    uint32_t count = 0;
    GetProcessAffinityMask(GetCurrentProcess(), &process, &system);
    for (; process; process &= process - 1) {
        count++;
    }
    return count ? count : 1;
}
#else
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

typedef pthread_mutex_t pool_lock;
typedef pthread_cond_t pool_signal;
typedef pthread_t pool_thread;

static void lock_open(pool_lock *l) { pthread_mutex_init(l, NULL); }
static void lock_take(pool_lock *l) { pthread_mutex_lock(l); }
static void lock_release(pool_lock *l) { pthread_mutex_unlock(l); }
static void lock_close(pool_lock *l) { pthread_mutex_destroy(l); }
static void signal_open(pool_signal *s) { pthread_cond_init(s, NULL); }
static void signal_wait(pool_signal *s, pool_lock *l) { pthread_cond_wait(s, l); }
static void signal_one(pool_signal *s) { pthread_cond_signal(s); }
static void signal_all(pool_signal *s) { pthread_cond_broadcast(s); }
static void signal_close(pool_signal *s) { pthread_cond_destroy(s); }

static void thread_work(void *user);

static void *thread_main(void *user)
{
    thread_work(user);
    return NULL;
}

static bool thread_open(pool_thread *t, void *user) { return pthread_create(t, NULL, thread_main, user) == 0; }
static void thread_join(pool_thread t) { pthread_join(t, NULL); }
static void *pool_take(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }
static void pool_free(void *memory) { free(memory); }

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
#endif

/* ---- the pool ---- */

struct pool {
    _Alignas(64) atomic_uint_least64_t ticket;
    _Alignas(64) atomic_uint_least32_t unfinished; /* tasks of the run that have not returned */
    _Alignas(64) void (*task)(void *arg, uint32_t index);
    void *arg;
    atomic_uint_least32_t sleepers;
    atomic_bool caller_sleeps, stop;
    pool_lock lock;
    pool_signal wake, done;
    uint32_t width, started;
    pool_thread threads[POOL_WIDTH_MAX];
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
            lock_take(&p->lock);
            signal_one(&p->done);
            lock_release(&p->lock);
        }
        ticket = atomic_load(&p->ticket);
    }
}

static void thread_work(void *user)
{
    pool *p = user;
    while (!atomic_load(&p->stop)) {
        for (uint32_t spin = 0; spin < POOL_SPINS && !has_work(p); spin++) {
            relax();
        }
        if (!has_work(p)) {
            lock_take(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (!has_work(p) && !atomic_load(&p->stop)) {
                signal_wait(&p->wake, &p->lock);
            }
            atomic_fetch_sub(&p->sleepers, 1);
            lock_release(&p->lock);
        }
        work(p);
    }
}

static void wake_all(pool *p)
{
    lock_take(&p->lock);
    signal_all(&p->wake);
    lock_release(&p->lock);
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
        lock_take(&p->lock);
        atomic_store(&p->caller_sleeps, true);
        while (atomic_load(&p->unfinished)) {
            signal_wait(&p->done, &p->lock);
        }
        atomic_store(&p->caller_sleeps, false);
        lock_release(&p->lock);
    }
}

pool *pool_open(uint32_t width)
{
    width = width ? width : pool_processors();
    width = width < POOL_WIDTH_MAX ? width : POOL_WIDTH_MAX;
    pool *p = pool_take(sizeof *p);
    if (!p) {
        return NULL;
    }
    *p = (pool){ .width = width };
    lock_open(&p->lock);
    signal_open(&p->wake);
    signal_open(&p->done);
    while (p->started + 1 < width) {
        if (!thread_open(&p->threads[p->started], p)) {
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
        thread_join(p->threads[i]);
    }
    signal_close(&p->done);
    signal_close(&p->wake);
    lock_close(&p->lock);
    pool_free(p);
}
