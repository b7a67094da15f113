/* lock.h: a mutex, a condition and a thread of the system, for the two threads of the server.
   takes: POSIX threads, or those of Windows.
   gives: lock_*, signal_*, thread_open, thread_join. */
#ifndef DEMO_LOCK_H
#define DEMO_LOCK_H

#include <stdbool.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN /* windows.h without the older winsock.h */
#endif
#include <windows.h>

typedef SRWLOCK lock;
typedef CONDITION_VARIABLE lock_signal;
typedef HANDLE lock_thread;
typedef DWORD(WINAPI *lock_thread_fn)(void *user);
#define LOCK_THREAD(name) static DWORD WINAPI name(void *user)
#define LOCK_THREAD_END 0

static inline bool lock_open(lock *l) { InitializeSRWLock(l); return true; }
static inline void lock_take(lock *l) { AcquireSRWLockExclusive(l); }
static inline void lock_release(lock *l) { ReleaseSRWLockExclusive(l); }
static inline void lock_close(lock *l) { (void)l; }
static inline bool signal_open(lock_signal *s) { InitializeConditionVariable(s); return true; }
static inline void signal_wait(lock_signal *s, lock *l) { SleepConditionVariableSRW(s, l, INFINITE, 0); }
static inline void signal_one(lock_signal *s) { WakeConditionVariable(s); }
static inline void signal_close(lock_signal *s) { (void)s; }

static inline bool thread_open(lock_thread *t, lock_thread_fn work, void *user)
{
    *t = CreateThread(NULL, 0, work, user, 0, NULL);
    return *t != NULL;
}

static inline void thread_join(lock_thread t)
{
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
#else
#include <pthread.h>

typedef pthread_mutex_t lock;
typedef pthread_cond_t lock_signal;
typedef pthread_t lock_thread;
typedef void *(*lock_thread_fn)(void *user);
#define LOCK_THREAD(name) static void *name(void *user)
#define LOCK_THREAD_END NULL

static inline bool lock_open(lock *l) { return pthread_mutex_init(l, NULL) == 0; }
static inline void lock_take(lock *l) { pthread_mutex_lock(l); }
static inline void lock_release(lock *l) { pthread_mutex_unlock(l); }
static inline void lock_close(lock *l) { pthread_mutex_destroy(l); }
static inline bool signal_open(lock_signal *s) { return pthread_cond_init(s, NULL) == 0; }
static inline void signal_wait(lock_signal *s, lock *l) { pthread_cond_wait(s, l); }
static inline void signal_one(lock_signal *s) { pthread_cond_signal(s); }
static inline void signal_close(lock_signal *s) { pthread_cond_destroy(s); }
static inline bool thread_open(lock_thread *t, lock_thread_fn work, void *user)
{
    return pthread_create(t, NULL, work, user) == 0;
}
static inline void thread_join(lock_thread t) { pthread_join(t, NULL); }
#endif

#endif
