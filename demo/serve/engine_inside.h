/* engine_inside.h: the state of the engine's thread, for the files engine_*.c alone.
   takes: engine_thread.h.
   gives: engine_thread, and what its files call of each other. */
#ifndef DEMO_ENGINE_INSIDE_H
#define DEMO_ENGINE_INSIDE_H

#include "engine_thread.h"
#include "lock.h"

typedef struct engine_grammar { /* a compiled grammar that is kept */
    exl2_grammar handle;        /* 0: none */
    exl2_model model;
    exl2_grammar_kind kind;
    bool strict, prefer_end;
    char *source;
    size_t bytes;
    uint64_t used; /* the larger, the later */
} engine_grammar;

struct engine_thread {
    engine_desc desc;
    host_options options;
    lock_thread thread;
    lock lock;
    lock_signal more; /* of `news` */
    bool sync_open;
    /* Under the lock. */
    host *host; /* NULL while it is opened again. Functions of any thread are called under the lock, others without it
                   on the engine's thread */
    bool news, quit, lost;
    uint32_t cpu_us, gpu_us;
    engine_batch *batches, **batch_end;
    uint32_t waiting, active;
    uint32_t slots, max_jobs; /* slots: that the runs hold of the engine's jobs */
    engine_run *urgent, **urgent_end;
    engine_run *ready, **ready_end;
    engine_load *loads, *ready_loads;
    engine_task *tasks, **task_end, *done_tasks;
    exl2_session *closing; /* [closing_count] sessions to close; room for all that the engine can have */
    uint32_t closing_count, closing_cap;
    bool woken; /* wake was called and engine_take has not yet returned NULL */
    engine_times times;
    /* Of the engine's thread alone. */
    uint32_t epoch; /* counts the engines that were opened; changed under the lock */
    engine_grammar grammars[ENGINE_GRAMMARS];
    uint64_t grammar_uses, steps;
    bool works;     /* the newest step did something */
    bool try_again; /* a batch waits for what that step did: pictures were resized */
};

/* ---- records: the lock is held ---- */

void engine_put(engine_thread *t, engine_run *run, const engine_record *r); /* and lists the run as ready */
void engine_put_event(engine_thread *t, const exl2_event *event);           /* of a job */
void engine_give_slots(engine_thread *t, engine_run *run);                  /* gives back the jobs that the run holds */

/* ---- jobs: on the engine's thread, without the lock ---- */

void engine_start_waiting(engine_thread *t);
void engine_forget_grammars(engine_thread *t, exl2_model model); /* id 0: of all models */

/* ---- models: on the engine's thread, without the lock ---- */

void engine_begin_loads(engine_thread *t);
bool engine_step_loads(engine_thread *t);                         /* false: none was loading texts */
void engine_load_event(engine_thread *t, const exl2_event *event); /* the lock is held */
/* News of loads that are ready, failed or closed. true: there were some, so that a load that waits may begin. */
bool engine_end_loads(engine_thread *t);
void engine_reopen(engine_thread *t);                             /* after the device was lost */

#endif
