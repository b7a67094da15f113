/* pool.h: a small thread pool behind exl2_parallel: threads spin briefly between phases, then sleep.
   takes: a thread count.
   gives: pool_open, pool_hook, pool_close, pool_processors, POOL_THREADS_ARG.
   owns:  its threads. */
#ifndef DEMO_POOL_H
#define DEMO_POOL_H

#include "exl2.h"

#define POOL_WIDTH_MAX 64u

/* A row of a flag table (args.h). */
#define POOL_THREADS_ARG(threads) \
    { "--threads", ARG_U32, &(threads), "N", "CPU threads, with the main one; at most 64 (all cores)" }

typedef struct pool pool;

uint32_t pool_processors(void);   /* logical CPUs that this process may use, at least 1 */
pool *pool_open(uint32_t width);  /* threads with the calling one, at most 64; 0 = pool_processors(). NULL: failed */
exl2_parallel pool_hook(pool *p); /* zeroed (serial) for NULL or width 1. One thread at a time may call run */
uint32_t pool_width(const pool *p);
void pool_close(pool *p);         /* accepts NULL; must not be called during a run */

#endif
