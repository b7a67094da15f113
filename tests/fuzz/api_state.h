/* api_state.h: what the parts of the API fuzzer share: the random numbers of an operation, the records of the shadow
   model, and findings, which end the process.
   takes: nothing.
   gives: api, api_shared; api_draw, api_chance; api_lend; api_finding, api_trace; the shadow's records.
   owns:  the shadow's records, until api_shadow_end. */
#ifndef API_STATE_H
#define API_STATE_H

#include "../device/fake_tower.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <unistd.h>

#define API_HISTORY 2048u /* tokens of a history, more than any context */
#define API_TEXT 8192u    /* bytes of text that a job may generate */
#define API_MODELS 256u   /* records of models, with closed ones */
#define API_SESSIONS 64u
#define API_GRAMMARS 64u
#define API_LORAS 16u    /* of all models together */
#define API_STEERS 16u   /* the same */
#define API_IMAGES 32u   /* of all models together */
#define API_JOB_IMAGES 3u
#define API_PICTURES 12u /* of a history that are recorded */
#define API_LOOKS 64u
#define API_JOBS_MAX 4096u
#define API_DEAD 1024u
#define API_FRAMES 16u

/* ---- between the processes ---- */

/* What the parent can read after a child has ended in any way. */
typedef struct api_report {
    uint64_t seed, calls, sequences, jobs, dones, tokens, replays, refused;
    uint64_t restarts, drafted; /* jobs that began with a draft model that came back; tokens by draft models */
    uint64_t seeing, seen_again; /* jobs with pictures that ended well; replays of such jobs */
    uint32_t op;
    char call[32];     /* name of the function that runs, or "" */
    bool found;
    char finding[512];
} api_report;

static api_report *api_shared;

/* ---- random numbers ---- */

static inline uint64_t api_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint64_t api_next(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    return api_mix(*state);
}

static inline uint32_t api_below(uint64_t *state, uint32_t below)
{
    return (uint32_t)((api_next(state) >> 32) * below >> 32);
}

/* ---- the shadow model ---- */

typedef enum api_kind { API_MODEL, API_SESSION, API_JOB, API_GRAMMAR } api_kind;

typedef uint64_t api_id; /* id of a handle */

#define API_CARDS 3u /* GPUs of the fake driver */

typedef struct api_model {
    uint64_t id;          /* 0 = not open */
    uint32_t folder;
    bool used, text_only, loading, ready, has_text, ended, closing; /* ended: the last LOAD event has arrived */
    bool parked;          /* as far as the application knows */
    float progress;
    uint32_t vocab;
    exl2_card cards[API_CARDS]; /* desc.cards */
    exl2_model_desc desc; /* for a replay */
} api_model;

typedef struct api_job api_job;

typedef struct api_session {
    uint64_t id;          /* 0 = free record */
    api_model *model;
    api_job *busy;        /* the job that uses it, as far as the application knows */
    exl2_token history[API_HISTORY];
    uint32_t count;
    exl2_picture pictures[API_PICTURES];
    uint32_t picture_count;
} api_session;

typedef struct api_grammar {
    uint64_t id;
    api_model *model;
    uint32_t spec;        /* index in api_grammar_specs */
} api_grammar;

typedef struct api_lora {
    uint64_t id;          /* 0 = free record */
    api_model *model;
    bool loading, ready;
} api_lora;

typedef struct api_steer {
    uint64_t id;          /* 0 = free record */
    api_model *model;
} api_steer;
/* What a picture is: pixels that a seed names. gray: all three colors of a pixel are equal. frames 0: no video. */
typedef struct api_recipe {
    uint32_t seed, width, height, max_tiles, gray, frames;
} api_recipe;

typedef struct api_image {
    uint64_t id;          /* 0 = free record */
    api_model *model;
    api_recipe recipe;
    uint32_t rows;        /* 0 = not known yet */
    uint8_t name[16];     /* the engine's id of the picture */
    bool begun, ended;    /* by its events */
} api_image;

/* Hashes of what models of a folder have made of a recipe; 0 = not known yet. */
typedef struct api_look {
    uint32_t folder;      /* 0 = free record: API_TEXT_FOLDER does not see */
    api_recipe recipe;
    uint64_t id, seen, rows;
} api_look;

#define API_PROMPT 400u   /* most ids of a prompt */

/* A job's desc with everything to which it points, so that the desc can be made twice and replayed. */
typedef struct api_job_store {
    exl2_job_desc d;
    char prompt[768], negative[64], words[4][96], stops[4][24], bans[4][24], breakers[2][8];
    exl2_token tokens[API_PROMPT], stop_tokens[4], allow[40], ban[8], keep[4];
    exl2_bias bias[8];
    exl2_lora_use loras[2];
    exl2_steer_use steers[2];
    exl2_grammar grammars[2];
    exl2_image images[API_JOB_IMAGES];
    uint32_t image_count;
    exl2_message messages[4], negatives[2];
    const char *stop_list[4], *ban_list[4], *breaker_list[2];
    uint32_t edit;        /* what on_logits does; 0 = no callback */
    exl2_token edited;
    uint32_t replaces;    /* on_token replaces one token in so many; 0 = none; 7 = also by ids that do not exist */
    bool irregular;       /* the job may allocate at its start: see section 5 of exl2.h */
} api_job_store;

struct api_job {
    uint64_t id;          /* 0 = not known yet (exl2_generate) */
    uint32_t number;
    api_model *model;
    uint64_t model_id;
    uint32_t vocab;
    exl2_model_desc settings;             /* of its model, for a replay */
    bool has_text;
    api_session *session, *negative;      /* NULL: made by the engine, none, or closed since */
    uint64_t session_id, negative_id;
    bool pull, dropped, waited, replay;   /* pull: events are polled; dropped: no events; waited: exl2_generate */
    bool done, over;                      /* over: DONE cannot arrive any more */
    bool busy_told;
    api_job_store store;
    uint32_t grammar_spec;                /* index in api_grammar_specs + 1; 0 = no grammar */
    exl2_token before[API_HISTORY], negative_before[API_HISTORY], said[API_HISTORY];
    uint32_t before_count, negative_before_count, said_count;
    api_recipe recipes[API_JOB_IMAGES];   /* of store.images */
    uint8_t image_ids[API_JOB_IMAGES][16];
    exl2_picture pictures_after[API_PICTURES];
    uint32_t picture_count_after;
    bool had_pictures;                    /* in the histories with which it began */
    exl2_token after[API_HISTORY], negative_after[API_HISTORY];
    uint32_t after_count, negative_after_count;
    bool after_known, negative_after_known;
    char text[API_TEXT];
    uint32_t text_bytes;
    float progress;
    uint32_t scored, vectors;
    uint64_t vector_hash;
    exl2_stop stop;
    exl2_result result;
    exl2_job_stats stats;
    char error[248];
};

typedef struct api_frame {
    uint32_t fn;
    bool may_allocate, in_callback;
    bool other_called;    /* another thread's call failed meanwhile and may have set the most recent message */
    bool interrupted;
    uint64_t refused, failed_reads, looks;
    uint32_t naps;
} api_frame;

typedef struct api_block {
    void *memory;
    size_t bytes;
    exl2_mem tag;
} api_block;

#define API_BLOCKS 8192u

typedef struct api_state {
    uint64_t seed;
    uint64_t random, other_random; /* state of this operation's random numbers; of the other thread's */
    bool cuda, tracing, threads;
    bool quiet;           /* hooks do not fail and no other thread calls, as during a replay */
    bool nobody;          /* calls have no engine, so no engine has a message for them */
    exl2_engine *e;
    exl2_engine_desc desc;
    uint32_t max_sessions, max_jobs, max_models;
    exl2_device_desc picks[API_CARDS]; /* desc.devices */
    bool peers;           /* the GPUs reach each other's memory */
    bool columns;         /* a model of this engine was to be shared by columns */
    uint32_t op, depth;   /* number of the operation; depth of nested callbacks */
    api_frame frames[API_FRAMES];
    uint32_t frame_count;
    /* hooks */
    uint64_t ns, live_bytes, allocations, refused, failed_reads, looks;
    uint32_t live_blocks, open_files, zones;
    uint32_t refuse_one_in, fail_one_in; /* 0 = never */
    bool device_faulted;
    api_block blocks[API_BLOCKS];
    /* shadow */
    api_model models[API_MODELS];
    api_session sessions[API_SESSIONS];
    api_grammar grammars[API_GRAMMARS];
    api_lora loras[API_LORAS];
    api_steer steers[API_STEERS];
    api_image images[API_IMAGES];
    api_look looks_of[API_LOOKS];
    api_job **jobs;
    uint32_t job_count;
    struct { api_kind kind; uint64_t id; } dead[API_DEAD];
    uint32_t dead_count;
    uint64_t dead_seen;
    api_job *waiting;     /* job of the exl2_generate that runs */
} api_state;

static api_state api;

/* The engine that a second thread may call while it holds the lock; NULL if no engine is open. */
static pthread_mutex_t api_lent_lock = PTHREAD_MUTEX_INITIALIZER;
static exl2_engine *api_lent;

static inline void api_lend(exl2_engine *e)
{
    pthread_mutex_lock(&api_lent_lock);
    api_lent = e;
    pthread_mutex_unlock(&api_lent_lock);
}

static inline uint32_t api_draw(uint32_t below)
{
    return api_below(&api.random, below);
}

static inline bool api_chance(uint32_t one_in)
{
    return api_draw(one_in) == 0;
}

/* ---- findings ---- */

/* Prints one line about what happens, if tracing is on. */
__attribute__((format(printf, 1, 2)))
static void api_trace(const char *format, ...)
{
    if (!api.tracing) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    printf("%*s", 4 + 4 * (int)api.depth, "");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* Records a finding for the parent and ends the process. */
__attribute__((format(printf, 1, 2), noreturn))
static void api_finding(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(api_shared->finding, sizeof api_shared->finding, format, arguments);
    va_end(arguments);
    api_shared->found = true;
    if (api.tracing) {
        printf("    FINDING: %s\n", api_shared->finding);
        fflush(stdout);
    }
    _exit(3);
}

#define API_MUST(condition, ...)        \
    do {                                \
        if (!(condition)) {             \
            api_finding(__VA_ARGS__);   \
        }                               \
    } while (0)

#endif
