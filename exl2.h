/* exl2.h - run EXL2 language models inside a game or desktop app, from one C header.

   MANUAL PLACEHOLDER
*/
#ifndef EXL2_H
#define EXL2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef EXL2_API
#ifdef EXL2_STATIC
#define EXL2_API static
#else
#define EXL2_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define EXL2_VERSION 100 /* major * 10000 + minor * 100 + patch */

/* ---- 1. basic types ---------------------------------------------------------------------------------------- */

typedef struct exl2_engine exl2_engine;                     /* opaque root object; owns everything below */
typedef struct exl2_model { uint32_t id; } exl2_model;      /* handles: 0 = none. Slot and generation, so that */
typedef struct exl2_session { uint32_t id; } exl2_session;  /* a closed one is reported as EXL2_ERR_STALE and */
typedef struct exl2_job { uint32_t id; } exl2_job;          /* never followed. */
typedef int32_t exl2_token;                                 /* index into the model's vocabulary */

typedef enum exl2_result {
    EXL2_OK = 0,
    EXL2_PENDING = 1,            /* work is in flight; step again */
    EXL2_IDLE = 2,               /* nothing can advance until the host does something */
    EXL2_ERR_ARG = -1,           /* an argument is wrong */
    EXL2_ERR_STATE = -2,         /* not allowed now */
    EXL2_ERR_STALE = -3,         /* the handle's object is gone */
    EXL2_ERR_TOO_SMALL = -4,     /* the buffer is too small; *need says how much it takes */
    EXL2_ERR_MEMORY = -5,        /* the host allocator refused */
    EXL2_ERR_BUDGET = -7,        /* over a cap that you set */
    EXL2_ERR_CONTEXT_FULL = -8,  /* the session is at its limit */
    EXL2_ERR_IO = -9,            /* a file is missing or a read failed */
    EXL2_ERR_FORMAT = -10,       /* a file is malformed */
    EXL2_ERR_UNSUPPORTED = -11,  /* well formed, but not implemented here */
    EXL2_ERR_CANCELLED = -16,    /* exl2_interrupt, a cancelled job, or a callback that said stop */
    EXL2_ERR_VERSION = -17,      /* header and implementation differ */
    EXL2_ERR_INTERNAL = -18      /* a defect of ours; please report the text */
} exl2_result;

typedef struct exl2_error {
    exl2_result code;
    int32_t native;  /* errno or the like; 0 = none */
    char text[248];  /* one UTF-8 sentence: what, where, what to do */
} exl2_error;

/* ---- 2. host hooks: a zeroed hook struct means the default named at its right ------------------------------- */

typedef enum exl2_mem { EXL2_MEM_GENERAL, EXL2_MEM_WEIGHTS, EXL2_MEM_KV, EXL2_MEM_SCRATCH, EXL2_MEM_STAGING } exl2_mem;

typedef struct exl2_allocator { /* malloc and free */
    void *(*alloc_fn)(void *user, size_t bytes, size_t align, exl2_mem tag); /* NULL = refused; align: a power of 2 */
    void (*free_fn)(void *user, void *ptr, size_t bytes, exl2_mem tag);      /* _fn: hosts define free() macros */
    void *user;
} exl2_allocator;

typedef struct exl2_files { /* plain files; replace it to read from a game archive. Paths are UTF-8, '/' inside */
    void *(*open)(void *user, const char *path, uint64_t *bytes);                            /* NULL = not found */
    bool (*list)(void *user, const char *dir, uint32_t index, char *name, size_t cap);       /* index-th file name; false = no more */
    int64_t (*read)(void *user, void *file, uint64_t offset, void *dst, size_t bytes);       /* bytes read, or -1 */
    void (*close)(void *user, void *file);
    void *user;
} exl2_files;

typedef enum exl2_log_level { EXL2_LOG_ERROR = 1, EXL2_LOG_WARN, EXL2_LOG_INFO, EXL2_LOG_DEBUG } exl2_log_level;

typedef struct exl2_logger { /* silent */
    void (*line)(void *user, exl2_log_level level, exl2_result code, const char *text);
    void *user;
    exl2_log_level max_level; /* 0 = EXL2_LOG_WARN */
} exl2_logger;

typedef struct exl2_zones { /* none; for Tracy, Superluminal, RAD Telemetry */
    void (*begin)(void *user, const char *name);
    void (*end)(void *user);
    void *user;
} exl2_zones;

typedef struct exl2_parallel { /* serial; lets CPU work run on the host's job system */
    void (*run)(void *user, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg); /* returns when all are done */
    uint32_t width; /* tasks that can really run side by side */
    void *user;
} exl2_parallel;

/* ---- 3. the engine ------------------------------------------------------------------------------------------ */

typedef enum exl2_backend { EXL2_BACKEND_AUTO = 0, EXL2_BACKEND_CPU = 2 } exl2_backend;

typedef struct exl2_engine_desc {
    exl2_backend backend;    /* AUTO: the best one that works on this machine */
    uint64_t host_bytes_max; /* hard cap, bytes; 0 = no cap */
    uint32_t max_models, max_sessions, max_jobs, max_events; /* 0 = 4, 256, 64, 1024 */
    exl2_allocator allocator;
    exl2_files files;
    exl2_logger logger;
    exl2_zones zones;
    exl2_parallel parallel;
    exl2_error *open_error;  /* optional: filled when exl2_open fails */
    uint32_t _end_canary;    /* must be 0: catches a desc that was never zeroed */
} exl2_engine_desc;

/* Tags. A: any thread, also inside callbacks. E: one thread at a time per engine (engines are independent).
   nb: never waits for disk or another thread; allowed inside callbacks (but not exl2_step, exl2_next_event).
   wait: may take long; inside a callback it returns EXL2_ERR_STATE; exl2_interrupt ends it. */
EXL2_API uint32_t exl2_version(void);                    /* [A nb] of the implementation */
EXL2_API const char *exl2_result_name(exl2_result r);    /* [A nb] "EXL2_ERR_IO"; static string */
EXL2_API exl2_result exl2_open_versioned(const exl2_engine_desc *d, uint32_t header_version, exl2_engine **out); /* [A wait] see exl2_open */
EXL2_API void exl2_close(exl2_engine *e);                /* [E wait] cancel jobs, deliver their DONE, free all; NULL is fine */
EXL2_API void exl2_last_error(const exl2_engine *e, exl2_error *out); /* [A nb] copy of the newest failure */
EXL2_API void exl2_interrupt(exl2_engine *e);            /* [A nb] a waiting call returns EXL2_ERR_CANCELLED soon */
static inline exl2_result exl2_open(const exl2_engine_desc *d, exl2_engine **out) /* [A wait] create; NULL desc = defaults */
{
    return exl2_open_versioned(d, EXL2_VERSION, out);
}

/* ---- 4. events ---------------------------------------------------------------------------------------------- */

typedef enum exl2_event_kind { EXL2_EVENT_LOAD = 1, EXL2_EVENT_PREFILL, EXL2_EVENT_TEXT, EXL2_EVENT_DONE } exl2_event_kind;

typedef enum exl2_stop {
    EXL2_STOP_NONE,
    EXL2_STOP_EOS,       /* one of the model's end tokens */
    EXL2_STOP_STRING,    /* one of the job's stop strings */
    EXL2_STOP_TOKEN,     /* one of the job's stop tokens */
    EXL2_STOP_LENGTH,    /* max_tokens, or a finished prefill_only job */
    EXL2_STOP_CALLBACK,  /* on_event returned EXL2_STOP_JOB */
    EXL2_STOP_CANCELLED,
    EXL2_STOP_ERROR
} exl2_stop;

typedef struct exl2_job_stats {
    uint32_t prompt_tokens, reused_tokens, new_tokens; /* reused: of the prompt, already in the session's KV cache */
    uint64_t seed;                                     /* the one that was used */
    uint64_t queued_ns, prefill_ns, decode_ns;         /* host clock */
} exl2_job_stats;

typedef struct exl2_alt { exl2_token token; float logprob; } exl2_alt; /* natural log of the raw softmax */

typedef struct exl2_event { /* every pointer lives until the callback returns, or until the next exl2_next_event */
    exl2_event_kind kind;
    exl2_model model;
    exl2_session session;
    exl2_job job;
    const char *text;         /* TEXT: whole UTF-8 code points, NUL after them */
    size_t bytes;
    const exl2_alt *tokens;   /* TEXT: what made the text; PREFILL with score_prompt: prompt tokens, from the second on */
    uint32_t token_count;
    const exl2_alt *alts;     /* [token_count, alts_per_token] the likeliest tokens, if the job asked for them */
    uint32_t alts_per_token;
    const float *logsumexp;   /* [token_count] with score_prompt; logit = logprob + logsumexp */
    float progress;           /* LOAD, PREFILL: 0..1 */
    exl2_stop stop;           /* DONE */
    exl2_result result;       /* DONE, and LOAD at its end */
    const char *error;        /* the sentence for result < 0, else NULL */
    exl2_job_stats stats;     /* DONE */
} exl2_event;

typedef enum exl2_flow { EXL2_CONTINUE, EXL2_STOP_JOB, EXL2_PAUSE_JOB } exl2_flow;
typedef exl2_flow (*exl2_event_fn)(void *user, const exl2_event *event);

/* ---- 5. stepping: all work happens in here ------------------------------------------------------------------ */

typedef struct exl2_step_desc {
    uint32_t cpu_us; /* return after about this long; 0 = one forward pass */
} exl2_step_desc;

typedef struct exl2_engine_stats {
    uint64_t host_bytes, host_peak;                       /* through the allocator hook, now and at most */
    uint64_t allocations;                                 /* calls of alloc_fn so far */
    uint32_t pages_total, pages_used, pages_shared;       /* of 64 tokens, over all models; shared: by 2 or more sessions */
    uint32_t jobs_active, jobs_waiting;
    uint64_t steps, forwards, tokens_in, tokens_out;      /* tokens_in: prompt tokens computed; tokens_out: sampled */
    uint64_t last_step_ns, slowest_step_ns;
} exl2_engine_stats;

EXL2_API exl2_result exl2_step(exl2_engine *e, const exl2_step_desc *d);       /* [E nb] advance all; OK (a pass ended), PENDING, IDLE or an error */
EXL2_API bool exl2_next_event(exl2_engine *e, exl2_event *out);                /* [E nb] pull, for jobs and models without on_event */
EXL2_API void exl2_stats(const exl2_engine *e, exl2_engine_stats *out);        /* [A nb] */

/* ---- 6. models ---------------------------------------------------------------------------------------------- */

typedef struct exl2_cache_desc {
    uint64_t tokens; /* pool size over all sessions; 0 = 4 x context_max, less if a cap says so; rounded up to 64 */
} exl2_cache_desc;

typedef struct exl2_model_desc {
    const char *path;          /* directory with config.json, tokenizer.json, *.safetensors */
    exl2_cache_desc cache;
    uint32_t context_max;      /* tokens per session; 0 = the model's own, at most 8192 */
    bool text_only;            /* tokenizer and template files only: no weights, no jobs */
    uint32_t prefill_chunk, batch_max; /* tokens and sequences per forward pass; 0 = 1024, 16 */
    exl2_event_fn on_event;    /* LOAD events; its result is ignored */
    void *user;
    uint32_t _end_canary;
} exl2_model_desc;

typedef struct exl2_model_info {
    char arch[32];             /* "LlamaForCausalLM" */
    exl2_result state;         /* PENDING while loading, OK when ready, else why not */
    uint32_t vocab, hidden, layers, heads, kv_heads, context_max;
    float bits_per_weight;     /* over all matrices, scales and permutations included */
    uint64_t weight_bytes, cache_bytes, scratch_bytes, cache_bytes_per_token; /* host bytes; their sum is what loading adds */
    exl2_token bos, eos;       /* -1 = none */
    bool has_tokenizer, has_chat_template;
} exl2_model_info;

EXL2_API exl2_result exl2_model_measure(exl2_engine *e, const exl2_model_desc *d, exl2_model_info *out); /* [E wait] headers only: will it fit? */
EXL2_API exl2_result exl2_model_open(exl2_engine *e, const exl2_model_desc *d, exl2_model *out); /* [E nb] begin; exl2_step loads, slice by slice */
EXL2_API exl2_result exl2_model_load(exl2_engine *e, const exl2_model_desc *d, exl2_model *out); /* [E wait] exl2_model_open, then step until ready */
EXL2_API exl2_result exl2_model_get(const exl2_engine *e, exl2_model m, exl2_model_info *out);   /* [E nb] */
EXL2_API exl2_result exl2_model_close(exl2_engine *e, exl2_model m);                             /* [E wait] ends its jobs and sessions first */

/* ---- 7. text: usable while a model loads, as soon as its tokenizer is there ---------------------------------- */

typedef struct exl2_message {
    const char *role, *text;   /* "system", "user", "assistant"; text NULL: the template sees none */
} exl2_message;

typedef struct exl2_chat_desc {
    const char *tools;         /* JSON array for the template's `tools`; NULL = none */
    bool close_reply;          /* render without the opening of a reply */
} exl2_chat_desc;

typedef enum exl2_text_flags {
    EXL2_TEXT_NO_BOS = 1,      /* tokenize: do not put the model's BOS in front where it wants one */
    EXL2_TEXT_PLAIN = 2,       /* tokenize: markers such as <|end|> are plain text */
    EXL2_TEXT_SKIP_MARKERS = 4 /* detokenize: leave special tokens out */
} exl2_text_flags;

/* *need: tokens, or bytes without the NUL that is written behind them. out may be NULL with cap 0, to learn *need. */
EXL2_API exl2_result exl2_tokenize(exl2_engine *e, exl2_model m, const char *text, size_t bytes, uint32_t flags,
                                   exl2_token *out, size_t cap, size_t *need);                       /* [E nb] */
EXL2_API exl2_result exl2_detokenize(exl2_engine *e, exl2_model m, const exl2_token *t, size_t n, uint32_t flags,
                                     char *out, size_t cap, size_t *need);                           /* [E nb] */
EXL2_API exl2_result exl2_chat_render(exl2_engine *e, exl2_model m, const exl2_message *msgs, size_t n,
                                      const exl2_chat_desc *d, char *out, size_t cap, size_t *need); /* [E nb] */

/* ---- 8. sessions: a token history and its KV pages ----------------------------------------------------------- */

typedef struct exl2_session_info {
    exl2_model model;
    exl2_job busy_with;        /* 0 = free */
    uint32_t tokens, tokens_cached, context_max; /* history; how many of them have K and V */
    uint32_t pages, pages_shared;
} exl2_session_info;

EXL2_API exl2_result exl2_session_open(exl2_engine *e, exl2_model m, exl2_session *out);             /* [E nb] empty history */
EXL2_API exl2_result exl2_session_fork(exl2_engine *e, exl2_session s, exl2_session *out);           /* [E nb] same history, pages shared until written */
EXL2_API exl2_result exl2_session_rewind(exl2_engine *e, exl2_session s, uint32_t tokens);           /* [E nb] keep the first tokens */
EXL2_API exl2_result exl2_session_get(const exl2_engine *e, exl2_session s, exl2_session_info *out); /* [E nb] */
EXL2_API exl2_result exl2_session_tokens(const exl2_engine *e, exl2_session s, exl2_token *out, size_t cap, size_t *need); /* [E nb] */
EXL2_API exl2_result exl2_session_close(exl2_engine *e, exl2_session s);                             /* [E nb] cancels its job */

/* ---- 9. sampling --------------------------------------------------------------------------------------------- */

typedef enum exl2_preset {
    EXL2_PRESET_MODEL,         /* generation_config.json over BALANCED */
    EXL2_PRESET_NEUTRAL,       /* temperature 1, nothing else */
    EXL2_PRESET_GREEDY,        /* the likeliest token, ties to the lowest id */
    EXL2_PRESET_BALANCED       /* temperature 0.8, min-p 0.05, repeat penalty 1.1 over the last 256 tokens */
} exl2_preset;

typedef struct exl2_bias { exl2_token token; float add; } exl2_bias; /* added to the logit; -INFINITY bans */

#define EXL2_OFF (-1000)       /* turns one filter off; 0 keeps the preset's value */

typedef struct exl2_sampler_desc {
    exl2_preset preset;
    uint64_t seed;             /* 0 = drawn; the one used is in exl2_job_stats */
    int32_t top_k;             /* keep the k likeliest */
    float temperature;         /* logits are divided by it */
    float top_p;               /* keep the likeliest that together reach this probability */
    float min_p;               /* keep those at least this share of the likeliest */
    float repeat_penalty;      /* logits of tokens seen: divided by it if positive, else multiplied */
    int32_t penalty_range;     /* tokens looked back; -1 = all */
    const exl2_bias *bias;
    uint32_t bias_count;
} exl2_sampler_desc;

EXL2_API exl2_result exl2_sampler_resolve(const exl2_engine *e, exl2_model m, const exl2_sampler_desc *d, exl2_sampler_desc *out); /* [E nb] what 0 became */

/* ---- 10. jobs: one generation --------------------------------------------------------------------------------- */

typedef struct exl2_job_desc {
    exl2_model model;          /* one-shot: on a session of its own */
    exl2_session session;      /* or go on with this one; it is busy until DONE */
    const char *prompt;        /* text, appended to the session; */
    size_t prompt_bytes;       /* 0 = NUL-terminated */
    const exl2_token *tokens;  /* or ids, appended; */
    size_t token_count;
    const exl2_message *messages; /* or the whole conversation, for the chat template */
    size_t message_count;
    uint32_t text_flags;       /* exl2_text_flags for prompt */
    uint32_t max_tokens;       /* 0 = 512; pages for the prompt and max_tokens are reserved */
    bool prefill_only;         /* ends when the prompt is in the cache */
    bool score_prompt;         /* PREFILL events carry log-probabilities of the prompt's tokens */
    bool show_markers;         /* special tokens appear in the text */
    exl2_chat_desc chat;       /* how messages are rendered */
    exl2_sampler_desc sampler;
    const char *const *stop_strings;
    const exl2_token *stop_tokens;
    uint32_t stop_string_count, stop_token_count;
    uint32_t alts_per_token;   /* at most EXL2_ALTS_MAX */
    int32_t priority;          /* higher first; ties in order of start */
    exl2_event_fn on_event;    /* NULL: exl2_next_event */
    void *user;
    uint32_t _end_canary;
} exl2_job_desc;               /* copied in full: nothing must outlive exl2_job_start */

#define EXL2_ALTS_MAX 64

typedef enum exl2_phase { EXL2_PHASE_QUEUED, EXL2_PHASE_PREFILL, EXL2_PHASE_DECODE, EXL2_PHASE_PAUSED } exl2_phase;

typedef struct exl2_job_info {
    exl2_phase phase;
    exl2_session session;
    exl2_job_stats stats;
} exl2_job_info;

EXL2_API exl2_result exl2_job_start(exl2_engine *e, const exl2_job_desc *d, exl2_job *out); /* [E nb] queue; ends in exactly one DONE, then the handle is stale */
EXL2_API exl2_result exl2_generate(exl2_engine *e, const exl2_job_desc *d);                 /* [E wait] exl2_job_start, then step until DONE; gives DONE's result */
EXL2_API exl2_result exl2_job_cancel(exl2_engine *e, exl2_job j);                           /* [A nb] DONE follows in the next step */
EXL2_API exl2_result exl2_job_get(const exl2_engine *e, exl2_job j, exl2_job_info *out);    /* [A nb] */
EXL2_API exl2_result exl2_job_pause(exl2_engine *e, exl2_job j, bool paused);               /* [A nb] keeps its pages */

/* ---- 11. making models: only with EXL2_CONVERT; uses stdio; for tools and build machines, not games ------------ */
#ifdef EXL2_CONVERT
typedef struct exl2_import_desc {
    const char *gguf_path, *out_dir;
    uint32_t bits, group, head_bits; /* 2..8 (not 7); 32, 64 or 128; 0 = 8, 32, 8 */
    bool (*progress)(void *user, float done, const char *what); /* false = cancel */
    void *user;
    exl2_parallel parallel;
    exl2_error *error;
    uint32_t _end_canary;
} exl2_import_desc;

EXL2_API exl2_result exl2_import_gguf(const exl2_import_desc *d); /* [A wait] nothing half-made is left behind */
#endif

#ifdef __cplusplus
}
#endif
#endif /* EXL2_H */

#ifdef EXL2_IMPLEMENTATION
#ifndef EXL2_IMPLEMENTATION_DONE
#define EXL2_IMPLEMENTATION_DONE
#include "exl2_impl/exl2_impl.h"
#endif
#endif
