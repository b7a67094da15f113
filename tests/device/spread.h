/* spread.h: exl2_parallel with threads that live for one call, so that the references of tests run faster.
   takes: nothing.
   gives: spread_parallel. */
#ifndef SPREAD_H
#define SPREAD_H

#include <pthread.h>

#define SPREAD_THREADS 8

typedef struct errand {
    void (*task)(void *arg, uint32_t index);
    void *arg;
    uint32_t index;
} errand;

static inline void *errand_run(void *errand_of)
{
    const errand *e = (const errand *)errand_of;
    e->task(e->arg, e->index);
    return NULL;
}

static inline void spread(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg)
{
    pthread_t threads[SPREAD_THREADS];
    errand errands[SPREAD_THREADS];
    (void)user;
    for (uint32_t i = 1; i < count; i++) {
        errands[i] = (errand){ task, arg, i };
        if (pthread_create(&threads[i], NULL, errand_run, &errands[i]) != 0) {
            printf("no thread\n");
            exit(1);
        }
    }
    task(arg, 0);
    for (uint32_t i = 1; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

static inline exl2_parallel spread_parallel(void)
{
    exl2_parallel parallel = { 0 };
    parallel.run = spread;
    parallel.width = SPREAD_THREADS;
    return parallel;
}

#endif
