/* objects.h: the engine's objects and how a handle becomes one.
   takes: handles from the application.
   gives: exl2_engine, exl2__model, exl2__session, exl2__job; the functions exl2__objects_*, which look up handles.
   owns:  the engine's block (slots, event ring); each model owns its arenas. */
#ifndef EXL2__OBJECTS_H
#define EXL2__OBJECTS_H

#include "../0_base/pool.h"
#include "../1_load/pooling.h"
#include "../0_base/thread.h"
#include "../2_graph/forward.h"
#include "../2_graph/weights.h"
#include "../4_cache/roots.h"
#include "../3_backend/hardware.h"
#include "../5_generate/batch.h"
#include "../5_generate/sampler.h"
#include "../5_generate/schedule.h"
#include "../6_text/tokenizer/encode.h"
#include "../6_text/grammar/grammar.h"
#include "../6_text/tokenizer/stops.h"
#include "../6_text/tokenizer/stream.h"
#include "../6_text/chat/template_set.h"
#include "events.h"
#include "image_objects.h"

#define EXL2__PATH_BYTES 1024
#define EXL2__PIECE_BYTES_MAX 1024       /* text of one token; a vocabulary with longer texts is rejected */
#define EXL2__JOB_TEXT_BYTES 8192        /* a job's stop strings, banned strings, lists of tokens and biases */
#define EXL2__JOB_STOP_BYTES_MAX 512     /* one stop string */
#define EXL2__JOB_REWINDS_MAX 256     /* rewinds of banned texts without text delivered in between */
#define EXL2__JOB_HOLD_BYTES (EXL2__JOB_STOP_BYTES_MAX + 5 * EXL2__PIECE_BYTES_MAX) /* text that may still be cut */
#define EXL2__JOB_HELD_TOKENS (EXL2__JOB_STOP_BYTES_MAX + 8)
#define EXL2__JOB_DEFERRED_MAX 32u        /* the worker writes no more texts ahead of the job's callback */
#define EXL2__JOB_DEFERRED_BYTES 8192u    /* nor any event while this many bytes are ahead of it */
#define EXL2__JOB_ALTS 4096              /* alternatives of held tokens */
#define EXL2__JOB_EVENT_BYTES 49152u     /* bytes of a job's events from one pass that a callback may hear later */
#define EXL2__JOB_EMBED_MAX 12160u        /* values of an embedding: its event fits into EXL2__JOB_EVENT_BYTES */
#define EXL2__FIRST_DRAFT_RATE 0.5f      /* a guess; see exl2__job.drafting.rate */
#define EXL2__FIRST_MASK_NS 40.0f        /* a guess; see exl2__model.mask_ns */
#define EXL2__FIRST_MASK_BEGIN_NS 2e5f   /* a guess; see exl2__model.mask_begin_ns */
#define EXL2__RENDER_BYTES (256u * 1024) /* block for a template; larger conversations allocate for the call */

typedef struct exl2__held_token {
    exl2_alt token;
    uint32_t end;                /* where the token's text ends in the held text, in bytes */
    float state;                 /* the sampler's state before the token */
    exl2__stream stream;         /* the decoder's state before the token */
} exl2__held_token;

/* A job's part of its model's scratch memory: copies that exl2_job_start makes, and text and tokens that wait for
   delivery. */
typedef struct exl2__job_block {
    uint64_t text[EXL2__JOB_TEXT_BYTES / 8]; /* bytes; the type aligns every block of an array for pointers */
    union {
        struct {
            char hold[EXL2__JOB_HOLD_BYTES + 1];
            exl2__held_token held[EXL2__JOB_HELD_TOKENS];
            exl2_alt alts[EXL2__JOB_ALTS]; /* [held tokens, alts_per_token] */
            exl2_alt event_tokens[EXL2__JOB_HELD_TOKENS];
        };
        float embedding[EXL2__JOB_EMBED_MAX]; /* of a job that has no text: the sum so far, then the vector */
    };
} exl2__job_block;

/* A set of adapters and control vectors by what they are, for snapshots. */
typedef struct exl2__lora_name {
    uint8_t content_id[16];
    float scale;
} exl2__lora_name;

typedef struct exl2__lora_names {
    uint32_t count;
    exl2__lora_name names[EXL2_JOB_LORAS + EXL2_JOB_STEERS];
} exl2__lora_names;

/* A control vector (steers.h); its values lie in the model's scratch memory. */
typedef struct exl2__steer {
    uint64_t id;                 /* 0 = free slot */
    bool closing;                /* its handle is stale; the slot is free when nothing uses it */
    exl2_steer_info info;
    exl2__steer_store store;
} exl2__steer;

/* PARKED: the model has neither weights nor pages; its jobs wait. LOADS: it loads again. */
typedef enum exl2__park { EXL2__PARK_NONE, EXL2__PARK_PARKED, EXL2__PARK_LOADS } exl2__park;

/* A row that the engine samples from fetched logits, in parts, perhaps over several steps. */
typedef struct exl2__row_sampling {
    exl2__sample_run *run;       /* the backend's; NULL: no row has begun */
    uint32_t parts;              /* of its pass that have run */
    float ns_per_cost[EXL2__PHASE_KINDS]; /* learned, by kind of pass; 0 = not known yet */
} exl2__row_sampling;

typedef struct exl2__model {
    uint64_t id;                 /* 0 = free slot */
    exl2_result state;           /* PENDING, OK, or the error */
    exl2_error error;            /* the message for state < 0 */
    char path[EXL2__PATH_BYTES];
    exl2_model_desc desc;        /* path points to the copy */
    bool discard_events;         /* exl2_model_load without on_event */
    bool closing;                /* new jobs, sessions and grammars are rejected; callbacks may still ask for them */
    exl2__weights weights;       /* config; while loading also the tensor table and the position in it */
    uint32_t loading_stage;      /* of exl2__loading_stages */
    struct exl2__loading *loading; /* state of the stages that read everything but the weights; NULL: not in them */
    exl2_result load_result;     /* of loading, or PENDING; `state` becomes it once the last LOAD event is delivered */
    bool load_deferred;          /* that event waits in the worker's ring for the callback */
    exl2__park park;             /* of a model whose state is OK */
    uint64_t prepared_at;        /* offset of the backend's part of `scratch` */
    float progress, progress_sent; /* progress of loading; progress in the most recent LOAD event */
    uint64_t scratch_bytes;
    exl2_model_info info;
    uint8_t content_head[16];    /* of content_id.h: the content_id of saves that releases up to 0.2.0 made */
    exl2__pooling pooling;       /* what the folder says of embeddings */
    exl2__vocab vocab;
    exl2__template_set chats;
    float mask_ns;               /* learned time of a mask per node of exl2__grammar_mask_cost, in nanoseconds */
    float mask_begin_ns;         /* learned time to begin a mask, before its nodes, in nanoseconds */
    exl2__grammar_vocab grammar_vocab; /* zeroed until the first grammar, or made while loading */
    exl2_card cards[EXL2__SPANS_MAX]; /* [desc.card_count] the desc's; desc.cards points here */
    exl2__spans spans;           /* devices, with weights and pages */
    uint64_t span_bytes[EXL2__SPANS_MAX]; /* of the weights, as exl2__weights.span_bytes, with the tower */
    exl2__plan plan;             /* of the whole model */
    exl2__arena scratch;
    exl2__pages pages;
    exl2__tier tier;             /* of the pages, in host memory */
    exl2__roots roots;           /* trees of pages of the sets of adapters and control vectors */
    struct exl2__lora *loras;    /* [desc.lora_max] adapters (loras.h) */
    exl2__steer *steers;         /* [desc.steer_max] */
    float *steer_values;         /* [desc.steer_max, layers, hidden] */
    bool *steer_has;             /* [desc.steer_max, layers] */
    uint8_t lora_turn[EXL2__ROWS_SAMPLED + 1]; /* as in exl2__schedule_limits */
    exl2__lora_set *lora_sets;   /* [max_jobs] of each job */
    exl2__lora_names *lora_names; /* [max_sessions] the set of the session's newest job, or of its snapshot's; its table
                                    is in their tree. NULL: lora_max and steer_max are 0 */
    exl2__vectors vectors;       /* inputs that are no tokens, which words of histories and pages name */
#ifndef EXL2_NO_VISION
    exl2__images images;
#endif
    exl2__batch batch;
    exl2__forward forward;
    uint32_t results_read;       /* number of forward.result_count results that went to their jobs */
    exl2__row_sampling sampling; /* of the next result */
    bool tables_updated;         /* the pass has written all its K and V, and `cached` of its tables is updated */
    uint64_t alike;              /* id of a model that has the same vocabulary; 0 = not known */
    bool asked;                  /* a drafter was asked in this step */
    bool guesses;                /* drafts were looked for before the current pass: none is repeated, so that the next
                                    one can have some */
    float draft_pass_ns;         /* learned: time of a pass of one row; 0 = not known yet */
    float draft_row_time[EXL2__FORWARD_CLASSES]; /* of one more row, in passes of one row; 0 = not known yet */
    uint64_t pass_ns;            /* time of the current pass so far */
    uint64_t pass_begin_ns;      /* when the current pass became the current one */
    bool pass_reads;             /* the current pass may have rows of prompts */
    exl2__sequence **sequences;  /* [max_jobs] the jobs' sequences, for the scheduler */
    exl2__sequence no_sequence;  /* stands in for the jobs of other models in `sequences` */
    uint32_t *page_lists;        /* [max_sessions, pages per table] */
    uint32_t *histories;         /* [max_sessions, context_max + EXL2__JOB_HELD_TOKENS] words of the sessions' tables,
                                    then states of samplers that a restored session waits with */
    exl2_token *prompts;         /* [max_jobs, context_max] */
    exl2__job_block *blocks;     /* [max_jobs] */
    void *render;                /* [EXL2__RENDER_BYTES] */
} exl2__model;

/* What a restored session goes on with: the moving parts of the job that it had when it was saved. Words of tokens that
   were not delivered yet follow the history. */
typedef struct exl2__session_resume {
    bool present;
    bool states;                 /* the sampler's states before the held tokens follow the room for words */
    uint32_t prompt_end, prompt_count, delivered, computed_end;
    uint32_t tokens;             /* length of the history with the held tokens */
    uint32_t max_tokens, min_tokens;
    uint32_t attempt, rewinds;
    uint32_t shown;              /* as in exl2__job_delivery */
    exl2_token healed;
    uint64_t seed;
    float state;                 /* the sampler's */
    uint32_t tried_count, tried_at;
    uint32_t from;               /* as in exl2__job_bans */
    exl2_token tried[EXL2__SEQUENCE_TRIED_MAX];
    bool begun;                  /* as in exl2__job_grammar, and the next two */
    uint32_t begun_tokens, begun_skip;
    uint32_t lora_count;         /* adapters and control vectors of the job */
    exl2__lora_name lora;        /* the first of them */
} exl2__session_resume;

typedef struct exl2__session {
    uint64_t id;
    uint32_t model;              /* slot */
    uint64_t job;                /* id of the job that keeps it busy; 0 = none */
    bool one_shot, closing;      /* close at the job's DONE */
    uint64_t base_root;          /* root of its texts without adapters and control vectors */
    exl2__table table;
    exl2__session_resume resume;
} exl2__session;

typedef struct exl2__grammar_slot {
    uint64_t id;
    uint32_t model;              /* slot */
    uint32_t users;              /* jobs */
    bool closing;                /* freed when its jobs have ended */
    bool prefer_end;             /* texts end where they may */
    exl2__grammar *made;         /* NULL: a CUSTOM grammar, which calls allow with user */
    bool (*allow)(void *user, exl2_job job, const exl2_token *tokens, uint32_t n, uint32_t *bits, uint32_t words);
    void *user;
    uint64_t own_bytes;          /* of the block in which a grammar lies that jobs made; 0: it is in the pool */
    struct exl2__grammar_slot *kept; /* what it and others have in common, made by a job that named it first; or NULL */
} exl2__grammar_slot;

typedef struct exl2__job exl2__job;

/* A job's output. Sampled tokens and their text are held in the job's block until no stop string, banned string or
   incomplete code point can change them; then they are due, and a TEXT event delivers them. */
typedef struct exl2__job_delivery {
    exl2_event_fn on_event;      /* NULL: events go into the ring */
    bool discard;                /* without on_event: events are discarded instead */
    exl2__stream stream;         /* decodes tokens to text */
    uint32_t held_bytes, held_tokens;
    uint32_t held_tokens_max;
    uint32_t due_bytes, due_tokens; /* the first part of what is held: the next TEXT event */
    bool text_due, progress_due; /* a TEXT or a PREFILL event must be delivered before more work */
    bool embedding_due;          /* the job's embedding must be delivered before DONE */
    bool done_due;               /* the job has ended, but the ring had no room for DONE */
    exl2_model done_model;       /* the handles of that event */
    exl2_session done_session;
    uint32_t delivered;          /* tokens delivered so far */
    uint32_t deferred;           /* events that the worker has written, and that no callback has got yet */
    uint32_t deferred_bytes;     /* bytes of the deferred events in the worker's rings */
    uint32_t deferred_tokens;    /* tokens in the deferred events */
    uint32_t deferred_paused;    /* number of deferred events that wait in exl2__worker.paused */
    bool put_back;               /* such an event was put back there in this step, so those after it follow */
    uint32_t resumed;            /* part of `delivered` from before the session was saved */
    uint32_t shown;              /* bytes of the first held token's text that were delivered already */
    uint32_t prompt_done;        /* length of the history that the newest PREFILL event counted as computed */
} exl2__job_delivery;

/* Room in the ring for the log-probabilities of prompt tokens. */
typedef struct exl2__job_scores {
    bool due;                    /* room must be reserved before the next pass */
    bool blocked;                /* the ring has no room: the job gets no rows */
    uint32_t reserved;           /* bytes reserved for the current pass, in `ring` */
    exl2__events *ring;
} exl2__job_scores;

typedef struct exl2__job_bans {
    exl2__stops strings;         /* when one is complete, the history is rewound to the token where it begins */
    uint32_t rewinds;            /* since new text was last due */
    uint32_t from;               /* held bytes in which no string is looked for: they are due, or one is shown there */
} exl2__job_bans;

typedef struct exl2__job_stops {
    exl2__stops strings;
    const exl2_token *tokens;
    uint32_t token_count;
} exl2__job_stops;

/* Lists of tokens that sampling needs. */
typedef struct exl2__job_lists {
    const exl2__vocab *vocab;    /* vocabulary of the job's model */
    exl2__stops dry_breakers;
    const exl2_token *xtc_keep, *allow;
    uint32_t xtc_keep_count, allow_count;
} exl2__job_lists;

typedef struct exl2__job_grammar {
    exl2__grammar_slot *slot;    /* NULL = no grammar */
    exl2__grammar_mask_place place; /* state of the text in the grammar */
    uint32_t place_tokens;       /* tokens of the text up to that state */
    bool begun;                  /* with begun_reply: the grammar's text begins in the prompt */
    uint32_t begun_tokens;       /* last tokens of the prompt that hold it; 0: the healed token alone */
    uint32_t begun_skip;         /* bytes of the first of these tokens that come before it */
} exl2__job_grammar;

/* Guidance pairs a job with a job for the negative prompt, which has no events of its own and ends with it. Both rows
   of a pass are needed to sample a token; the logits of the row that came first wait in `logits`. All but `positive` is
   used in the positive job only. */
typedef struct exl2__job_guidance {
    exl2__job *negative;         /* in the positive job; NULL = no guidance */
    exl2__job *positive;         /* in the negative job; else NULL */
    float scale;
    float *logits;               /* [vocab] */
    bool has_logits;
    uint32_t row;                /* index of the positive job's logit row in the step */
} exl2__job_guidance;

/* Guesses of a job's next tokens (drafts.h), perhaps by another model (draft_models.h), in which a hidden job, the
   drafter, samples them for its target. */
typedef struct exl2__job_drafting {
    bool on;                     /* the job's next tokens are guessed */
    bool ngram;                  /* by what followed the last tokens earlier in a history */
    exl2__job *drafter;          /* the hidden job that guesses them; NULL: none */
    exl2__job *target;           /* in the drafter: the job that it drafts for; else NULL */
    uint32_t wanted;             /* drafts for the next pass; in the drafter: tokens that it was asked for */
    bool ready;                  /* in the drafter: it has sampled them all */
    uint32_t most;               /* drafts of a pass, at most */
    float rate;                  /* running mean: share of drafts that were accepted */
    uint32_t last;               /* length of the history at the last drafts */
} exl2__job_drafting;

/* What other threads write or read, under the engine's lock. */
typedef struct exl2__job_shared {
    uint64_t cancel, pause;      /* id of the job when requested */
    exl2_job_info info;
} exl2__job_shared;

struct exl2__job {
    uint64_t id;
    uint32_t model, session;     /* slots */
    exl2__sequence sequence;
    exl2__job_block *block;
    uint64_t root_before;        /* root of its session's history before the job */
    exl2__job_delivery delivery;
    exl2__job_scores scores;
    exl2__job_stops stops;
    exl2__job_bans bans;
    exl2__job_lists lists;
    exl2__job_grammar grammar;
    exl2__job_guidance guidance;
    exl2_logits_fn on_logits;
    exl2_token_fn on_token;
    void *user;                  /* for on_event, on_logits and on_token */
    exl2__job_drafting drafting;
    bool one_by_one;             /* every token is sampled; none is appended because it is forced */
    bool prefilled;              /* all K and V of a prefill_only job are computed */
    uint32_t embedded;           /* rows that are in its embedding */
    bool embeds_raw;
    uint32_t computed;           /* tokens of the prompt whose K and V this job has computed */
    exl2_token healed;           /* last token of the prompt, which the first sampled token replaces; -1 = none */
    uint32_t max_tokens;
    uint32_t loop_stop;          /* as in exl2_job_desc */
    bool ending;                 /* decided; DONE follows once all earlier events are delivered */
    exl2_stop stop;              /* why it is ending */
    exl2_result result;
    exl2_error error;
    exl2_job_stats stats;
    uint64_t start_ns, active_ns, first_token_ns; /* by exl2__platform_ns; 0 = not yet */
    uint64_t pictured_ns;        /* since when its sequence waits for a picture */
    exl2__job_shared shared;
};

/* A thread that steps the engine (worker.h). */
typedef struct exl2__worker {
    bool runs;                   /* from exl2_worker_start to exl2_worker_stop */
    bool stepping;               /* the worker is in a step, and holds the gate */
    uint32_t news;               /* atomic: calls and deliveries that may have made work, counted */
    uint32_t wanted;             /* atomic: calls that wait for the gate */
    uint32_t asked;              /* atomic: odd while the worker waits for the gate */
    uint32_t overtakes;          /* calls in a row that the worker has waited for */
    uint32_t held;               /* calls that wait: meanwhile the worker does nothing */
    exl2__events events;         /* deferred: of jobs and models with on_event, until exl2_step delivers them */
    exl2__events paused;         /* deferred events whose jobs were paused meanwhile */
    exl2__arena memory;          /* of both rings */
#ifndef EXL2_NO_THREADS
    exl2__thread thread;
    exl2__mutex gate;            /* guards the engine; see gate.h */
    exl2__signal wake;           /* for the worker: there may be work */
    exl2__signal done;           /* for exl2_step: a pass has ended, or the worker can do nothing more */
    exl2__signal turn;           /* for a call that lets the worker go first: the worker has the gate */
    bool quit;
    bool idle;                   /* its newest step found nothing to do */
    uint32_t idle_news;          /* value of `news` before that step */
    bool passed;                 /* a pass has ended since the last exl2_step */
    bool worked;                 /* anything was done since the last exl2_step */
    bool unlimited;              /* exl2_step had no budget: the worker needs none */
    bool granted;                /* exl2_step allowed work that has not begun yet: at least one unit */
    uint64_t deadline_ns;        /* by exl2__platform_ns: the end of what exl2_step allowed */
    uint32_t gpu_us;             /* GPU time that exl2_step allowed */
#endif
} exl2__worker;

struct exl2_engine {
    exl2__ctx ctx;
    exl2__arena block;           /* the engine itself lies at its start */
    uint32_t max_models, max_sessions, max_jobs;
    exl2_engine_info info;
    exl2__hardware hardware;     /* the backend and its devices */
    exl2__pool model_ids, session_ids, job_ids, grammar_ids;
    exl2__model *models;
    exl2__session *sessions;
    exl2__job *jobs;
    exl2__grammar_slot *grammars; /* [max_sessions] */
    exl2__events events;
    uint64_t loras_made;         /* number of adapters and control vectors so far: the newest one's id */
    uint64_t order;              /* number of the next job start */
    uint32_t image_serial;       /* of the newest handle of a picture */
    uint32_t first_model;        /* slot that a step begins with; it rotates */
    bool closing;                /* new models are rejected */
    bool loads_on_caller;        /* the worker loads no models: exl2_step does */
    uint32_t in_callback;        /* depth of nested callbacks */
    uint32_t interrupted;        /* atomic */
    uint32_t waiting;            /* atomic: a call that waits is running */
    uint64_t watched;            /* id of the job that exl2_generate waits for */
    exl2_result watched_result;
    exl2_error watched_error;
    exl2__worker worker;
    uint32_t lock;               /* guards stats and the jobs' shared parts */
    exl2_engine_stats stats, published;
};

/* The backend of the model's spans; NULL: it has no weights (text_only, or the load has not come so far). */
static inline const exl2__backend *exl2__objects_backend(const exl2__model *m)
{
    return exl2__spans_backend(&m->spans);
}

static inline bool exl2__objects_is_async(const exl2__model *m)
{
    return exl2__backend_is_async(exl2__objects_backend(m));
}

static inline bool exl2__objects_has_memory(const exl2__model *m)
{
    return exl2__backend_has_memory(exl2__objects_backend(m));
}

/* ---- handles ---- */

static inline exl2__model *exl2__objects_model(const exl2_engine *e, exl2_model m)
{
    int32_t slot = exl2__pool_slot(&e->model_ids, m.id);
    return slot < 0 ? NULL : &e->models[slot];
}

static inline exl2__session *exl2__objects_session(const exl2_engine *e, exl2_session s)
{
    int32_t slot = exl2__pool_slot(&e->session_ids, s.id);
    return slot < 0 || e->sessions[slot].closing || e->sessions[slot].one_shot ? NULL : &e->sessions[slot];
}

static inline exl2__grammar_slot *exl2__objects_grammar(const exl2_engine *e, exl2_grammar g)
{
    int32_t slot = exl2__pool_slot(&e->grammar_ids, g.id);
    return slot < 0 || e->grammars[slot].closing ? NULL : &e->grammars[slot];
}

static inline exl2__job *exl2__objects_job(const exl2_engine *e, exl2_job j)
{
    int32_t slot = exl2__pool_slot(&e->job_ids, j.id);
    return slot < 0 || !e->jobs[slot].sequence.live ? NULL : &e->jobs[slot];
}

/* The live job of the model in the first slot after `previous`, NULL = from the first slot on; NULL after the last job.
   Jobs may start and end between two calls. */
static inline exl2__job *exl2__objects_next_job(exl2_engine *e, const exl2__model *m, const exl2__job *previous)
{
    for (uint32_t i = previous ? (uint32_t)(previous - e->jobs) + 1 : 0; i < e->job_ids.end; i++) {
        if (e->jobs[i].sequence.live && &e->models[e->jobs[i].model] == m) {
            return &e->jobs[i];
        }
    }
    return NULL;
}

/* The job of the positive prompt, which gets the events: the job itself, unless it is the negative job of a pair. */
static inline exl2__job *exl2__objects_positive(exl2__job *job)
{
    return job->guidance.positive ? job->guidance.positive : job;
}

/* Whether the application does not know of the job: it is that of a negative prompt, or a drafter. */
static inline bool exl2__objects_is_hidden(const exl2__job *job)
{
    return job->guidance.positive || job->drafting.target;
}

static inline exl2_result exl2__objects_stale(exl2_engine *e, const char *kind, uint64_t id)
{
    if (id == 0) {
        return exl2__fail(&e->ctx, EXL2_ERR_STALE, "the %s handle is 0, which names no %s: it was never set", kind,
                          kind);
    }
    return exl2__fail(&e->ctx, EXL2_ERR_STALE, "%s handle " EXL2__POOL_NAME " names no live %s; it was closed, ended, "
                      "or never made", kind, EXL2__POOL_NAMED(id), kind);
}

/* Rejects new objects of a model that is being closed: a callback at a DONE may still ask for one, and nothing would
   end that object. */
static inline exl2_result exl2__objects_not_closing(exl2_engine *e, const exl2__model *m)
{
    return m->closing || e->closing ? exl2__fail(&e->ctx, EXL2_ERR_STATE, "%s: the model is being closed", m->path)
                                    : EXL2_OK;
}

/* Tokens of the history that cannot be rewound any more: for a busy session those that were delivered. */
static inline uint32_t exl2__objects_final_tokens(const exl2_engine *e, const exl2__session *s)
{
    exl2_job handle = { s->job };
    const exl2__job *job = s->job ? exl2__objects_job(e, handle) : NULL;
    bool negative = job && s != &e->sessions[job->session];
    const exl2__sequence *q = negative ? &job->guidance.negative->sequence : job ? &job->sequence : NULL;
    return q && q->begun ? q->final_end : s->table.tokens;
}

/* ---- invariants, for EXL2__ASSERT_SLOW ---- */

/* Each busy session has exactly one live job; each free one has none. */
static inline bool exl2__objects_sessions_agree(const exl2_engine *e)
{
    for (uint32_t i = 0; i < e->max_sessions; i++) {
        uint32_t jobs = 0;
        for (uint32_t k = 0; e->session_ids.live[i] && k < e->job_ids.end; k++) {
            jobs += e->job_ids.live[k] && e->jobs[k].sequence.live && e->jobs[k].session == i;
        }
        if (jobs != (e->session_ids.live[i] && e->sessions[i].job != 0)) {
            return false;
        }
    }
    return true;
}

/* ---- sessions ---- */

/* Fails if a job uses the session. */
static inline exl2_result exl2__objects_not_busy(exl2_engine *e, const exl2__session *s)
{
    return !s->job ? EXL2_OK : exl2__fail(&e->ctx, EXL2_ERR_STATE, "the session is busy with job " EXL2__POOL_NAME
                                          " until its DONE", EXL2__POOL_NAMED(s->job));
}

/* *out: an empty session of the model. */
static inline exl2_result exl2__objects_new_session(exl2_engine *e, exl2__model *m, exl2__session **out)
{
    uint64_t id = exl2__pool_alloc(&e->session_ids);
    if (!id) {
        return exl2__fail(&e->ctx, EXL2_ERR_BUDGET, "all %u sessions are in use; raise max_sessions", e->max_sessions);
    }
    uint32_t slot = exl2__pool_slot_of(id);
    exl2__session *s = &e->sessions[slot];
    *s = (exl2__session){ 0 };
    s->id = id;
    s->model = (uint32_t)(m - e->models);
    exl2__table_make(&s->table, m->histories + (size_t)slot * (m->plan.context_max + EXL2__JOB_HELD_TOKENS),
                     m->page_lists + (size_t)slot * exl2__pages_for(m->plan.context_max),
                     m->desc.cache.no_reuse ? ++m->pages.roots : 0);
    s->base_root = s->table.root;
    if (m->lora_names) {
        m->lora_names[slot].count = 0;
    }
    *out = s;
    return EXL2_OK;
}

static inline void exl2__objects_free_session(exl2_engine *e, exl2__session *s)
{
    exl2__table_forget(&s->table, &e->models[s->model].pages);
    exl2__table_keep(&s->table, &e->models[s->model].pages, 0);
    uint32_t slot = exl2__pool_slot_of(s->id);
    *s = (exl2__session){ 0 };
    exl2__pool_free(&e->session_ids, slot);
}

/* ---- counters ---- */

/* Makes the counters visible to exl2_stats, which any thread may call. */
static inline void exl2__objects_publish(exl2_engine *e)
{
    exl2_engine_stats *s = &e->stats;
    s->host_bytes = e->ctx.host_bytes;
    s->host_peak = e->ctx.host_peak;
    s->allocations = e->ctx.allocations;
    exl2__hardware_count(&e->hardware, s);
    s->pages_total = s->pages_used = s->pages_shared = s->pages_cached = s->pages_host = 0;
    s->jobs_active = s->jobs_waiting = 0;
    for (uint32_t i = 0; i < e->max_models; i++) {
        exl2__model *m = &e->models[i];
        if (m->id && m->state == EXL2_OK) {
            s->pages_total += m->pages.count;
            s->pages_used += m->pages.used;
            s->pages_shared += m->pages.shared;
            s->pages_cached += m->pages.cached;
            s->evictions += m->pages.evictions;
            m->pages.evictions = 0;
            s->pages_host += m->tier.slots - m->tier.free_slot_count;
            s->pages_out += m->tier.out;
            s->pages_in += m->tier.in;
            m->tier.out = m->tier.in = 0;
        }
    }
    for (uint32_t i = 0; i < e->job_ids.end; i++) {
        if (e->jobs[i].sequence.live && !exl2__objects_is_hidden(&e->jobs[i])) {
            s->jobs_active += e->jobs[i].sequence.active;
            s->jobs_waiting += !e->jobs[i].sequence.active;
        }
    }
    exl2__lock(&e->lock);
    e->published = *s;
    exl2__unlock(&e->lock);
}

/* After a call that allocates only sometimes, or that may have failed midway. */
static inline void exl2__objects_publish_memory(exl2_engine *e)
{
    const exl2__ctx *c = &e->ctx;
    if (c->allocations != e->stats.allocations || c->host_bytes != e->stats.host_bytes) {
        exl2__objects_publish(e);
    }
}

#endif
