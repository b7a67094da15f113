/* host.h: what every program does around the engine: open it with a thread pool, load a model with a progress line,
   record how a job ended, print the engine's warnings and the message of an error.
   takes: --backend, --device or --cards, --cpu-path, --kernels and --threads, a model folder.
   gives: host_parse, host_open, host_load, host_load_draft, host_place, host_offload_text, host_step, host_end,
          host_on_gpu, host_cpu_path, host_failed, host_close, HOST_ARGS, HOST_BACKEND_ARG, HOST_DEVICE_ARGS,
          HOST_GPU_ARGS, HOST_CACHE_ARGS, HOST_WORK_ARGS, HOST_LORA_ARG, HOST_ROPE_ARGS, HOST_CONTEXT_ARGS.
   owns:  the engine and the pool. */
#ifndef DEMO_HOST_H
#define DEMO_HOST_H

#include "args.h"
#include "exl2.h"
#include "kernel_folder.h"
#include "loras.h"
#include "steers.h"
#include "pool.h"
#include "progress.h"

enum { HOST_AUTO, HOST_CUDA, HOST_CPU }; /* as --backend lists them */
enum { HOST_SPLIT_LAYERS, HOST_SPLIT_AUTO, HOST_SPLIT_COLUMNS }; /* as --split lists them */
enum { HOST_OFFLOAD_AUTO, HOST_OFFLOAD_NONE }; /* as --offload lists them */

typedef struct host_options { /* zeroed: auto, the best GPU, a thread for each logical CPU */
    uint32_t backend;
    arg_numbers device;  /* empty, or one number */
    arg_numbers cards;   /* GPUs that the model lies on, as `exl2 info` numbers them; empty: that of `device` alone */
    uint32_t split;      /* as --split lists it; AUTO: on the fewest of `cards`, or of all GPUs */
    arg_sizes card_bytes; /* of the model on each card, at most; empty, or as many as cards */
    arg_floats shares;   /* of each card; empty, or as many as cards */
    uint32_t offload;    /* as --offload lists it: HOST_OFFLOAD_AUTO, HOST_OFFLOAD_NONE */
    uint32_t host_mlps;  /* layers whose MLPs the CPU computes; 0 = as few as the caps allow */
    bool host_prompts;   /* for rows of prompts, too */
    uint64_t gpu_bytes;  /* cap of the engine's memory on each GPU; 0 = no cap */
    const char *draft;   /* folder of the model that guesses, or DIR@N: it lies on GPU N; NULL: none */
    uint32_t cpu_path;   /* exl2_cpu_path */
    uint32_t threads;
    uint32_t experts;    /* experts that a token uses; 0 = the model's own number */
    uint32_t cache;      /* exl2_kv */
    uint64_t cache_tokens; /* 0 = what the program needs */
    bool full_cache;     /* exl2_cache_desc.full */
    uint64_t cache_host; /* bytes of host memory for pages that a GPU has no room for */
    uint64_t bytes_max;  /* cap of the engine's host memory; 0 = no cap */
    arg_texts loras;     /* --lora: adapters of every job */
    arg_texts steers;    /* --steer: control vectors of every job */
    const char *kernels; /* folder of compiled kernels; NULL = the user's cache */
    uint32_t max_jobs, max_sessions; /* of the engine; 0 = its defaults */
    bool first_start;    /* the entries of that folder are not read */
    bool says_place;     /* no warning about running on the CPU: the program prints the reason itself */
    exl2_zones zones;    /* profiler hooks; what they point to must outlive the engine */
} host_options;

/* Rows of a flag table. */
#define HOST_BACKEND_ARG(options, usual)                                                                              \
    { "--backend", ARG_CHOICE, &(options).backend, "auto|cuda|cpu",                                                   \
      "what computes; auto = a GPU if there is one " usual }
#define HOST_DEVICE_ARGS(options)                                                                                     \
    { "--device", ARG_NUMBERS, &(options).device, "N", "the GPU, by its index in 'exl2 info' (fastest memory)" },     \
    { "--cards", ARG_NUMBERS, &(options).cards, "N,..", "GPUs that share the model's layers, by index (one GPU)" },   \
    { "--split", ARG_CHOICE, &(options).split, "layers|auto|columns",                                                  \
      "layers: on each of --cards; columns: parts of every matrix; auto: on as few cards as hold it (layers)" },      \
    { "--card-bytes", ARG_SIZES, &(options).card_bytes, "SIZE,..",                                                    \
      "most bytes of the model on each of --cards, such as 8GB (no limit)" },                                         \
    { "--shares", ARG_FLOATS, &(options).shares, "X,..",                                                              \
      "how much of the model each of --cards has (by the speed of its memory; columns: equal parts)" },               \
    { "--gpu-bytes", ARG_SIZE, &(options).gpu_bytes, "SIZE",                                                          \
      "most memory to use on a GPU, such as 6.5GB (no limit)" },                                                      \
    { "--offload", ARG_CHOICE, &(options).offload, "auto|none",                                                       \
      "whether the CPU computes MLPs that a GPU has no room for (auto)" },                                            \
    { "--host-mlps", ARG_U32, &(options).host_mlps, "N",                                                              \
      "with --offload auto: the CPU computes the MLPs of the last N layers (as few as can be)" },                     \
    { "--host-prompts", ARG_BOOL, &(options).host_prompts, NULL,                                                      \
      "the CPU has them for prompts, too: slow, but in half of the memory" },                                         \
    { "--cpu-path", ARG_CHOICE, &(options).cpu_path, "auto|c|avx2|avx512|neon",                                       \
      "fastest instruction set to use (auto)" },                                                                      \
    { "--kernels", ARG_TEXT, &(options).kernels, "DIR", "folder of compiled GPU kernels (your cache folder)" }
#define HOST_GPU_ARGS(options)            \
    HOST_BACKEND_ARG(options, "(auto)"),  \
    HOST_DEVICE_ARGS(options)
#define HOST_CACHE_ARGS(options)                                                                                      \
    { "--cache", ARG_CHOICE, &(options).cache, "fp16|q8|q6|q4", "format of the KV cache (fp16)" },                    \
    { "--cache-tokens", ARG_U64, &(options).cache_tokens, "N", "tokens of the KV cache (what the program needs)" },   \
    { "--full-cache", ARG_BOOL, &(options).full_cache, NULL, "layers with a window keep K and V of all tokens, too" }, \
    { "--cache-host", ARG_SIZE, &(options).cache_host, "SIZE",                                                        \
      "host memory for pages of the cache that a GPU has no room for, such as 4GB (0)" }
#define HOST_WORK_ARGS(options)                                                                                       \
    POOL_THREADS_ARG((options).threads),                                                                              \
    { "--experts", ARG_U32, &(options).experts, "N", "experts that a token uses (the model's own number)" }
#define HOST_ARGS(options)    \
    HOST_GPU_ARGS(options),   \
    HOST_CACHE_ARGS(options), \
    HOST_WORK_ARGS(options)

/* Rows of a flag table for adapters, and for control vectors. */
#define HOST_LORA_ARG(options) \
    { "--lora", ARG_TEXTS, &(options).loras, "DIR[:S]", "an adapter (LoRA), with factor S (1); may be repeated" }
#define HOST_STEER_ARG(options) \
    { "--steer", ARG_TEXTS, &(options).steers, "FILE[:X]", "a control vector, with factor X (1); up to 4 times" }

/* Rows of a flag table for the RoPE of a model, and for its context too: an exl2_model_desc. */
#define HOST_ROPE_ARGS(desc)                                                                                          \
    { "--rope-scale", ARG_FLOAT, &(desc).rope_scale, "X",                                                             \
      "divides RoPE positions by X; 1 = plain RoPE (the model's own)" },                                              \
    { "--rope-alpha", ARG_FLOAT, &(desc).rope_alpha, "X",                                                             \
      "raises RoPE's theta for X times the context, NTK (the model's own)" },                                         \
    { "--yarn", ARG_FLOAT, &(desc).yarn_factor, "X", "scales RoPE by YaRN for X times the context (the model's own)" }
#define HOST_CONTEXT_ARGS(desc)                                                                                       \
    { "--context", ARG_U32, &(desc).context_max, "N", "tokens of a session (the model's own, at most 8192)" },        \
    HOST_ROPE_ARGS(desc)

#define HOST_WARNINGS 64

typedef struct host { /* zeroed: closed */
    exl2_engine *engine;
    pool *pool;
    kernel_folder kernels;
    char why_cpu[256]; /* why --backend auto found no GPU, else "" */
    bool says_place;
    void (*on_warning)(void *user, const char *text); /* NULL: stderr; may be set after host_open */
    void *warning_user;
    uint64_t warned[HOST_WARNINGS]; /* hashes of the newest warnings */
    uint32_t warnings;
    uint32_t experts, cache; /* as in the options */
    exl2_card cards[EXL2_DEVICES_MAX]; /* [card_count] GPUs of the model */
    uint32_t card_count;
    bool split_auto, columns;
    exl2_card draft_card; /* where host_load_draft loads its model, if has_draft_card */
    bool has_draft_card;
    exl2_offload offload; /* as in exl2_model_desc, and the next two */
    uint32_t host_mlps;
    bool host_prompts;
    uint64_t cache_tokens, cache_host;
    bool full_cache;
    exl2_model model;
    exl2_model_info info;
    arg_texts lora_texts, steer_texts; /* as in the options */
    loras loras;         /* adapters that were loaded with the model */
    steers steers;       /* control vectors that were made with it */
    progress bar;
    double open_seconds, load_seconds;
} host;

typedef struct host_end { /* how a job ended; zeroed before it starts */
    bool done;
    exl2_stop stop;
    exl2_result result;
    exl2_job_stats stats;
    char error[sizeof(((exl2_error *)0)->text)]; /* "" unless result < 0 */
} host_end;

/* Calls args_parse, then checks the options of the rows above: lists with one value for each GPU, and flags that
   exclude each other. host_open expects options that have passed these checks. */
args_result host_parse(const args_desc *d, int argc, char **argv, const host_options *o);
/* These four print a message to stderr if they fail. host_load: if d gives no cache size, the cache holds `sequences`
   full contexts. Ctrl-C ends the load. The adapters of --lora and the control vectors of --steer are loaded, too.
   host_load_text loads only the tokenizer and the chat template. host_load_draft loads a draft model for `sequences`
   sequences of the model that is loaded. */
bool host_open(host *h, const host_options *o);
bool host_load(host *h, const exl2_model_desc *d, uint32_t sequences);
bool host_load_text(host *h, const char *path);
bool host_load_draft(host *h, const char *path, uint32_t sequences, exl2_model *out);

void host_place(const host *h, exl2_model_desc *d); /* --cache, --cache-tokens, --cards, --split, --offload into d */
/* What the CPU computes of a model on a GPU, in words; false: nothing. */
bool host_offload_text(const exl2_model_info *info, char *out, size_t size);
const char *host_cache_name(const host *h);                    /* as --cache names it */
exl2_result host_step(host *h, exl2_job job, uint32_t cpu_us); /* one step, which may wait; Ctrl-C cancels the job */
void host_end_take(host_end *end, const exl2_event *event);    /* records a DONE event, ignores others */
bool host_end_good(host *h, const host_end *end);              /* false: failed or Ctrl-C, message printed */
bool host_on_gpu(const host *h);                               /* the loaded model runs on a GPU */
const char *host_cpu_path(const host *h);                      /* the CPU's instruction set, as --cpu-path names it */
int host_failed(host *h);                                      /* prints the message of the newest error; returns 1 */
void host_close(host *h);                                      /* also for a zeroed or partly opened host */
const char *host_stop_name(exl2_stop stop);                    /* "eos", "length" ... */

#endif
