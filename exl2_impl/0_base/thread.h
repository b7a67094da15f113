/* thread.h: one more thread, and how two threads wait for each other. Beside platform.h and platform_*.h the only
   file that calls the operating system.
   takes: a function to run.
   gives: exl2__mutex, exl2__signal, exl2__thread and their functions.
   owns:  a thread, from exl2__thread_start to exl2__thread_join. */
#ifndef EXL2__THREAD_H
#define EXL2__THREAD_H

#include "platform.h"

#ifndef EXL2_NO_THREADS
#if defined(_WIN32)
/* Declared as in platform.h. */
struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
struct _SECURITY_ATTRIBUTES;
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(struct _RTL_SRWLOCK *lock);
__declspec(dllimport) void __stdcall WakeConditionVariable(struct _RTL_CONDITION_VARIABLE *condition);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(struct _RTL_CONDITION_VARIABLE *condition,
                                                              struct _RTL_SRWLOCK *lock, unsigned long milliseconds,
                                                              unsigned long flags);
__declspec(dllimport) void *__stdcall CreateThread(struct _SECURITY_ATTRIBUTES *attributes, size_t stack,
                                                   unsigned long(__stdcall *run)(void *), void *arg,
                                                   unsigned long flags, unsigned long *id);
__declspec(dllimport) unsigned long __stdcall GetCurrentThreadId(void);
__declspec(dllimport) unsigned long __stdcall WaitForSingleObject(void *handle, unsigned long milliseconds);
__declspec(dllimport) int __stdcall CloseHandle(void *handle);
#else
#include <pthread.h>
#endif

#define EXL2__FOREVER UINT32_MAX

#if defined(_WIN32)
typedef struct exl2__mutex { void *srw; } exl2__mutex; /* zeroed: free; holds nothing of the system */
typedef struct exl2__condition { void *variable; } exl2__condition;
#else
typedef struct exl2__mutex { pthread_mutex_t posix; } exl2__mutex;
typedef struct exl2__condition { pthread_cond_t posix; } exl2__condition;
#endif

static inline void exl2__mutex_make(exl2__mutex *m)
{
#if defined(_WIN32)
    m->srw = NULL;
#else
    pthread_mutex_init(&m->posix, NULL);
#endif
}

static inline void exl2__mutex_close(exl2__mutex *m)
{
#if defined(_WIN32)
    (void)m;
#else
    pthread_mutex_destroy(&m->posix);
#endif
}

static inline void exl2__mutex_lock(exl2__mutex *m)
{
#if defined(_WIN32)
    AcquireSRWLockExclusive((struct _RTL_SRWLOCK *)(void *)&m->srw);
#else
    pthread_mutex_lock(&m->posix);
#endif
}

static inline void exl2__mutex_unlock(exl2__mutex *m)
{
#if defined(_WIN32)
    ReleaseSRWLockExclusive((struct _RTL_SRWLOCK *)(void *)&m->srw);
#else
    pthread_mutex_unlock(&m->posix);
#endif
}

/* One thread waits until another one raises the signal. A signal that was raised before ends the next wait at once. */
typedef struct exl2__signal {
    exl2__mutex lock;
    exl2__condition changed;
    bool raised;
} exl2__signal;

static inline void exl2__signal_make(exl2__signal *s)
{
    exl2__mutex_make(&s->lock);
#if defined(_WIN32)
    s->changed.variable = NULL;
#else
    pthread_cond_init(&s->changed.posix, NULL);
#endif
    s->raised = false;
}

static inline void exl2__signal_close(exl2__signal *s)
{
#if !defined(_WIN32)
    pthread_cond_destroy(&s->changed.posix);
#endif
    exl2__mutex_close(&s->lock);
}

static inline void exl2__signal_raise(exl2__signal *s)
{
    exl2__mutex_lock(&s->lock);
    s->raised = true;
#if defined(_WIN32)
    WakeConditionVariable((struct _RTL_CONDITION_VARIABLE *)(void *)&s->changed.variable);
#else
    pthread_cond_signal(&s->changed.posix);
#endif
    exl2__mutex_unlock(&s->lock);
}

/* Waits for the signal and lowers it, or returns after about `us` microseconds (Windows: whole milliseconds). */
static inline void exl2__signal_wait(exl2__signal *s, uint32_t us)
{
    bool late = false;
#if !defined(_WIN32)
    struct timespec end = { 0, 0 };
    timespec_get(&end, TIME_UTC);
    uint64_t ns = (uint64_t)end.tv_nsec + (uint64_t)us * 1000u;
    end.tv_sec += (time_t)(ns / 1000000000u);
    end.tv_nsec = (long)(ns % 1000000000u);
#endif
    exl2__mutex_lock(&s->lock);
    while (!s->raised && !late) {
#if defined(_WIN32)
        unsigned long ms = us == EXL2__FOREVER ? 0xFFFFFFFFu : us / 1000u + 1u;
        late = !SleepConditionVariableSRW((struct _RTL_CONDITION_VARIABLE *)(void *)&s->changed.variable,
                                          (struct _RTL_SRWLOCK *)(void *)&s->lock.srw, ms, 0);
#else
        late = us == EXL2__FOREVER ? pthread_cond_wait(&s->changed.posix, &s->lock.posix) != 0
                                   : pthread_cond_timedwait(&s->changed.posix, &s->lock.posix, &end) != 0;
#endif
    }
    s->raised = false;
    exl2__mutex_unlock(&s->lock);
}

typedef struct exl2__thread {
    void (*run)(void *arg);
    void *arg;
#if defined(_WIN32)
    void *handle;
    unsigned long id;
#else
    pthread_t id;
#endif
} exl2__thread;

#if defined(_WIN32)
#define EXL2__THREAD_RESULT unsigned long __stdcall
#else
#define EXL2__THREAD_RESULT void *
#endif
EXL2__PRIVATE EXL2__THREAD_RESULT exl2__thread_main(void *thread)
{
    const exl2__thread *t = (const exl2__thread *)thread;
    t->run(t->arg);
    return 0;
}

/* false: the system has no thread left. *t must stay where it is until exl2__thread_join. */
static inline bool exl2__thread_start(exl2__thread *t, void (*run)(void *arg), void *arg)
{
    t->run = run;
    t->arg = arg;
#if defined(_WIN32)
    t->handle = CreateThread(NULL, 0, exl2__thread_main, t, 0, &t->id);
    return t->handle != NULL;
#else
    return pthread_create(&t->id, NULL, exl2__thread_main, t) == 0;
#endif
}

static inline void exl2__thread_join(exl2__thread *t)
{
#if defined(_WIN32)
    WaitForSingleObject(t->handle, 0xFFFFFFFFu);
    CloseHandle(t->handle);
#else
    pthread_join(t->id, NULL);
#endif
}

/* Whether the caller runs on this thread. */
static inline bool exl2__thread_is_this(const exl2__thread *t)
{
#if defined(_WIN32)
    return GetCurrentThreadId() == t->id;
#else
    return pthread_equal(pthread_self(), t->id) != 0;
#endif
}
#endif

#endif
