/* engine_thread.h: the thread that owns the engine. It starts jobs, steps, and copies each event into the run that the
   job belongs to; then it wakes the I/O thread, once a step. Everything else happens on the I/O thread.
   takes: runs (jobs with what surrounds them), loads (models), tasks.
   gives: engine_open, engine_load_begin, engine_unload, engine_submit, engine_continue, engine_cancel, engine_pause,
          engine_run_free, engine_do, engine_take, engine_read, engine_budget, engine_watch, engine_close;
          engine_ids.
   owns:  the engine, its thread pool, its models and sessions, the grammars that are kept.

   Runs, loads and tasks belong to the caller. The engine's thread reads what the caller has set until it reports the
   end, and the caller frees nothing before that. All functions here are for the I/O thread. None of them waits for a
   step: one lock guards the lists, and nobody holds it for longer than a few copies take. */
#ifndef DEMO_ENGINE_THREAD_H
#define DEMO_ENGINE_THREAD_H

#include "../common/host.h"
#include "../common/images.h"
#include "buffer.h"
#include "exl2.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_STEPS 1024u      /* newest steps whose times are kept */
#define ENGINE_STEP_BUCKETS 12u /* of the histogram of step times; the last one has no upper limit */
#define ENGINE_GRAMMARS 8u      /* compiled grammars that are kept */

extern const double engine_step_limits[ENGINE_STEP_BUCKETS - 1]; /* upper limits of the buckets, seconds */

typedef struct engine_thread engine_thread;
typedef struct engine_load engine_load;
typedef struct engine_run engine_run;
typedef struct engine_batch engine_batch;

typedef struct engine_desc {
    const host_options *host;
    uint32_t max_jobs, max_sessions; /* of the engine; 0 = its defaults */
    uint32_t cpu_us, gpu_us;         /* of a step; 0 = one pass */
    void (*wake)(void *user);        /* called on the engine's thread when engine_take has something */
    void *user;
} engine_desc;

/* ---- models ---- */

typedef enum engine_load_state { ENGINE_UNLOADED, ENGINE_LOADING, ENGINE_READY, ENGINE_FAILED } engine_load_state;

struct engine_load { /* a model; zeroed but for the first part */
    exl2_model_desc desc;   /* on_event, user are set here. The path must stay. desc.vision counts where the model has a
                               tower that this engine computes; info.tower_bytes says whether it is loaded */
    uint32_t sequences;     /* contexts that the cache holds if memory allows, where desc.cache.tokens is 0 */
    bool no_text;           /* a draft model: needs no engine for texts */
    engine_load *draft;     /* guesses for this model; loaded before it; NULL: none */
    void (*on_news)(engine_load *l); /* called by engine_take after progress or a new state; may be NULL */
    void *user;
    /* Read these in on_news or between two calls of engine_take; they change there only. */
    engine_load_state state;
    float progress;          /* 0..1 */
    char error[sizeof(((exl2_error *)0)->text)];
    char blind[sizeof(((exl2_error *)0)->text)]; /* READY: why the tower that it has is not loaded; "" = no reason */
    exl2_model_info info;
    exl2_engine *text;       /* READY: an engine with the tokenizer and the template alone, for the I/O thread */
    exl2_model text_model;
    /* Of the engine's thread. */
    exl2_model model;
    exl2_engine *text_loading;
    exl2_model text_loading_model;
    bool model_done, text_done;
    /* Under the lock. */
    engine_load_state new_state;
    float new_progress;
    char new_error[sizeof(((exl2_error *)0)->text)];
    char new_blind[sizeof(((exl2_error *)0)->text)];
    exl2_model_info new_info;
    bool begun, closing, listed;
    engine_load *next_ready, *next;
};

/* ---- runs ---- */

typedef enum engine_record_kind {
    ENGINE_STARTED, /* the job is queued in the engine */
    ENGINE_REFUSED, /* it was not started; nothing follows */
    ENGINE_SCORES,  /* log-probabilities of the prompt's tokens, from the second one on */
    ENGINE_TEXT,
    ENGINE_VECTOR,  /* of the prompt: text has the values, f32 */
    ENGINE_IDS,     /* of the prompt of a run that counts: text has them */
    ENGINE_DONE     /* nothing follows, unless engine_continue is called */
} engine_record_kind;

typedef enum engine_refusal { ENGINE_BY_JOB, ENGINE_BY_GRAMMAR, ENGINE_BY_MODEL, ENGINE_BY_MEMORY } engine_refusal;

typedef struct engine_record { /* what engine_read gives; its pointers are valid until the next engine_take */
    engine_record_kind kind;
    uint32_t token_count, alts_per_token;
    const char *text;         /* TEXT: NUL after it. REFUSED, DONE with result < 0: the message */
    size_t bytes;
    const exl2_alt *tokens;   /* [token_count] */
    const exl2_alt *alts;     /* [token_count][alts_per_token]; NULL if not asked for */
    exl2_result result;       /* REFUSED, DONE */
    engine_refusal refusal;   /* REFUSED */
    exl2_stop stop;           /* DONE */
    exl2_job_stats stats;     /* DONE */
    uint32_t prompt_tokens;   /* STARTED, REFUSED with CONTEXT_FULL: of the prompt */
    uint32_t context_max;     /* STARTED, REFUSED: of a session; 0 = not known */
    uint32_t given_tokens;    /* STARTED after engine_continue: tokens that its prompt appended to the session */
} engine_record;

struct engine_run { /* a job, and the ones that follow it in its session; zeroed but for the first part */
    exl2_job_desc desc;      /* model, session, grammar, draft.model, user and max_tokens are set here */
    engine_load *load;       /* the model */
    exl2_grammar_desc grammar; /* source NULL and kind JSON_SCHEMA: none. `model` is set here */
    bool has_grammar;
    uint32_t max_tokens;     /* 0, or more than the context leaves: what it leaves */
    bool no_end;             /* no end token before max_tokens */
    bool counts;             /* no job: the ids of its prompt are the answer */
    bool keeps_session;      /* a session of its own, so that engine_continue can follow */
    bool draws_back;         /* engine_continue: first takes off all that came after the newest job's prompt */
    uint32_t loras_epoch;    /* engine_epoch of the handles of desc.loras: in another engine they name others */
    engine_run *twin;        /* an earlier run of the batch with the same prompt and limits; NULL: none */
    void *user;
    /* Of the engine's thread. */
    engine_batch *batch;
    exl2_session session;
    uint32_t epoch, slots, room, prompt_end; /* prompt_end: tokens of the session up to the newest prompt's end */
    bool checked, follows, active;
    /* Under the lock. */
    exl2_job job;
    bool started, ended, cancelled, listed;
    uint32_t held;           /* jobs of the engine that it has, or that are kept for the one that follows */
    uint64_t started_ns;
    buffer inbox;            /* records; failed: memory ran out, and something is missing */
    engine_run *next_ready, *next_urgent;
    /* Of the I/O thread. */
    buffer outbox;
    size_t read;
    bool taken_end, told_end;
};

struct engine_batch { /* the runs of a request, refused or started together; zeroed but for the first part */
    engine_run **runs;
    uint32_t count;
    const picture_file *pictures; /* [picture_count] of the prompts of all runs; read until one run has STARTED */
    exl2_image *images;           /* [picture_count] what the descs of the runs name; made here, and closed here */
    uint32_t picture_count;
    /* Of the engine's thread and under the lock. */
    uint32_t next_run, images_made, images_epoch;
    engine_batch *next;
};

typedef struct engine_task { /* something that the engine's thread does between steps; at most 20 ms each time */
    bool (*work)(struct engine_task *t, exl2_engine *e); /* on the engine's thread; false: again after the next step.
                                                            e NULL: the engine is lost, and this is the last call */
    void (*done)(struct engine_task *t);                 /* on the I/O thread, by engine_take; it may free the task */
    struct engine_task *next;
} engine_task;

typedef struct engine_times { /* how the engine's thread does */
    exl2_engine_stats stats;
    exl2_engine_info info;
    uint32_t waiting;        /* batches that have not been started as a whole */
    uint32_t active;         /* runs that were started and have not ended */
    uint64_t step_end_ns;    /* when the last step ended (clock_ns); 0 = none yet */
    bool lost;               /* the device is lost and the engine is not yet open again */
    uint32_t step_us[ENGINE_STEPS]; /* [step_count], the newest ones in any order */
    uint32_t step_count;
    uint64_t buckets[ENGINE_STEP_BUCKETS];
    double step_seconds;     /* sum of all steps that did something */
    uint32_t cpu_us, gpu_us; /* the budgets of a step */
} engine_times;

/* Opens the engine and starts its thread. NULL: failed, message on stderr. */
engine_thread *engine_open(const engine_desc *d);
/* Ends the thread and closes the engine. No run may be without its end. Accepts NULL. */
void engine_close(engine_thread *t);

/* Loads a model beside others. on_news follows until the state is READY or FAILED. */
void engine_load_begin(engine_thread *t, engine_load *l);
/* Ends its runs and unloads it, also while it loads; on_news with UNLOADED is the end. Its runs' last records may come
   after that. */
void engine_unload(engine_thread *t, engine_load *l);
/* Closes the engine of texts of a load that ended: the I/O thread's part of unloading. */
void engine_load_free_text(engine_load *l);

/* Queues a request's runs: first come, first started. Either each gets STARTED or, before anything starts, each gets
   REFUSED. (If an engine's lists are full although they were checked, a later run may still be refused alone.) */
void engine_submit(engine_thread *t, engine_batch *b);
/* After DONE: goes on in the run's session with the desc's new prompt, before all batches that wait. */
void engine_continue(engine_thread *t, engine_run *run);
/* The run ends soon, with REFUSED (CANCELLED) if it waits, else with DONE. */
void engine_cancel(engine_thread *t, engine_run *run);
void engine_pause(engine_thread *t, engine_run *run, bool paused);
/* After its end: closes the session if it has one, and frees the run's buffers. */
void engine_run_free(engine_thread *t, engine_run *run);

void engine_do(engine_thread *t, engine_task *task);

/* Takes what has happened: calls on_news and done, and gives one of the runs that have records. Read all of them, and
   call it again until it returns NULL. */
engine_run *engine_take(engine_thread *t);
/* The run's next record; false: no more. */
bool engine_read(engine_run *run, engine_record *out);

void engine_budget(engine_thread *t, uint32_t cpu_us, uint32_t gpu_us);
void engine_watch(engine_thread *t, engine_times *out);
uint32_t engine_waiting(engine_thread *t); /* batches for which the engine has no place now */
uint32_t engine_epoch(engine_thread *t);   /* engines that were opened after the first; for any thread */
/* State and figures of a run's job; false: it has not started or has ended. */
bool engine_job(engine_thread *t, const engine_run *run, exl2_job_info *out);

/* For any thread that may call `e`: the ids of a prompt of messages or text, as a job has them; the caller frees *ids.
   MEMORY also without a message of the engine. */
exl2_result engine_ids(exl2_engine *e, exl2_model m, const exl2_prompt *p, const exl2_chat_desc *d, exl2_token **ids,
                       size_t *count);

#endif
