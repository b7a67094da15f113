/* server.h: what the parts of the server share: options, models, figures. All of it belongs to the I/O thread.
   takes: the command line.
   gives: serve_options, server, model; server_id, server_log.
   owns:  nothing; serve.c opens and closes it. */
#ifndef DEMO_SERVER_H
#define DEMO_SERVER_H

#include "buffer.h"
#include "engine_thread.h"
#include "http.h"
#include "keys.h"
#include "overrides.h"

#define SERVER_MODELS_MAX 4u /* as the engine's default */

typedef struct serve_options {
    arg_texts models;         /* folders */
    const char *embeddings;   /* folder of a model for /v1/embeddings */
    const char *address, *keys, *folder, *draft, *template, *reasoning, *cors, *override, *sessions;
    uint32_t port, queue, ping, batch;
    uint64_t body_max;
    uint32_t cpu_us, gpu_us;
    uint32_t sampling;        /* index in neutral|model|balanced */
    uint32_t tools;           /* a tools_format */
    arg_texts aliases;        /* of the first model */
    bool no_auth, anyone, ngram, log_requests, log_prompts;
    exl2_model_desc model;    /* --context and RoPE */
    host_options host;
} serve_options;

typedef struct server server;
typedef struct model model;
typedef struct call call;

/* What http_user of an exchange points to, if anything: the first member of what waits for something. */
typedef enum owner_kind { OWNER_CALL, OWNER_LOADER, OWNER_WATCHER, OWNER_EMBEDDINGS } owner_kind;
typedef struct owner {
    owner_kind kind;
} owner;

typedef struct watcher watcher; /* a stream of /ui/watch */
typedef struct loader loader;   /* a stream of /v1/model/load */

struct model { /* one that is loaded, or that some call still names */
    server *server;
    engine_load load, draft;
    bool has_draft;
    char *name, *path, *draft_path;
    char *template_text;      /* the model's own; NULL: none */
    const char *template_name;
    int64_t created;          /* seconds since 1970 */
    uint32_t calls;           /* that use it */
    bool leaving;             /* it is being unloaded */
    bool embeds;              /* the model of --embeddings, which no request to generate gets */
    bool failed_at_start;
    loader *loader;           /* streams the progress of its load; NULL: none */
    model *next;
};

#define METRICS_BUCKETS 12u
typedef struct histogram {
    uint64_t buckets[METRICS_BUCKETS]; /* the last one has no upper limit */
    double sum;
    uint64_t count;
} histogram;

typedef struct request_count { /* answers of one path with one status */
    const char *path;
    int status;
    uint64_t count;
} request_count;

typedef struct metrics {
    histogram first_token, token, request;
    uint64_t cancelled_gone, cancelled_shutdown, cancelled_error; /* requests */
    uint64_t tokens_reused;
    request_count requests[128];
    uint32_t request_kinds;
} metrics;

struct server {
    const serve_options *options;
    http *http;
    engine_thread *engine;
    keys keys;
    model *models;
    call *calls;
    struct embeddings *embeddings; /* requests of /v1/embeddings */
    metrics metrics;
    char *template_text;      /* --template FILE, or of /v1/template/switch; NULL: the models' own */
    char template_name[128];
    overrides overrides;      /* of request fields */
    char override_name[128];  /* preset or file; "": none */
    uint64_t id_seed, id_count;
    bool stopping;            /* a signal has arrived */
    bool failed;              /* the command fails */
    bool announced;           /* the line with the address was written */
    uint64_t stop_ms;         /* when streams are cut off */
    watcher *watchers;
};

/* 24 random hex digits and a NUL. */
void server_id(server *s, char out[25]);

#endif
