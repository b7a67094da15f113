/* serve.c: `exl2 serve`: models for many clients over HTTP, as OpenAI and TabbyAPI do it.
   takes: the command line, signals.
   gives: cli_serve.
   owns:  the server, from the command line to its exit. */
#define _POSIX_C_SOURCE 200809L
#include "serve.h"

#include "../cli/cli.h"
#include "../common/clock.h"
#include "../common/folder.h"
#include "../common/interrupt.h"
#include "adapters.h"
#include "embeddings.h"
#include "inline_load.h"
#include "metrics.h"
#include "models.h"
#include "reasoning.h"
#include "ui_sessions.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _WIN32
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#else
#include <unistd.h>
#endif

#define TURN_MS 200         /* a signal is seen after that, at the latest */
#define STREAMS_END_MS 5000 /* after a signal, streams may end by themselves */
#define CUT_MS 1000         /* and then what was written may be read */
#define CPU_US 20000u       /* of a step, so that long prompts can be left */
#define IMAGES 8u           /* open at a time, and in a request */
#define JOBS_PER_PLACE 4u   /* jobs in the engine for each place of a batch; the others wait in the queue */

/* ---- ids ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

void server_id(server *s, char out[25])
{
    uint64_t a = mixed(s->id_seed + ++s->id_count * 0x9E3779B97F4A7C15u);
    snprintf(out, 25, "%016llx%08llx", (unsigned long long)a, (unsigned long long)(mixed(a ^ s->id_seed) >> 32));
}

/* ---- callbacks ---- */

static void on_head(void *user, http_exchange *x, const http_request *r)
{
    endpoints_head(user, x, r);
}

static void on_request(void *user, http_exchange *x, const http_request *r)
{
    endpoints_request(user, x, r);
}

static void on_gone(void *user, http_exchange *x)
{
    owner *o = http_user(x);
    if (!o) {
        return;
    }
    switch (o->kind) {
    case OWNER_CALL: call_gone((call *)(void *)o); break;
    case OWNER_LOADER: loader_gone(user, x); break;
    case OWNER_WATCHER: endpoint_watch_gone(user, x); break;
    case OWNER_EMBEDDINGS: embeddings_gone((embeddings *)(void *)o); break;
    case OWNER_ADAPTERS: adapters_gone(user, x); break;
    case OWNER_WAITER: inline_load_gone(user, x); break;
    }
}

static void on_room(void *user, http_exchange *x)
{
    owner *o = http_user(x);
    (void)user;
    if (o && o->kind == OWNER_CALL) {
        call_room((call *)(void *)o);
    }
}

static void take_news(server *s)
{
    for (engine_run *run; (run = engine_take(s->engine)) != NULL;) {
        bool embeds = run->desc.embed.pool != EXL2_EMBED_OFF;
        void *user = run->user;
        for (engine_record record; engine_read(run, &record);) {
            embeds ? embeddings_record(run, &record) : call_record(user, &record);
        }
        embeds ? embeddings_records_end(run) : call_records_end(user);
    }
    models_sweep(s);
    inline_load_look(s);
}

static void on_wake(void *user)
{
    take_news(user);
}

static void on_alarm(void *user)
{
    endpoint_watch_alarm(user);
}

static void on_log(void *user, const http_log *line)
{
    server *s = user;
    metrics_count(&s->metrics, endpoints_path(line->path), line->status);
    if (!s->options->log_requests) {
        return;
    }
    char path[256];
    size_t at = 0;
    for (const char *c = line->path; *c && at + 5 < sizeof path; c++) {
        at += (size_t)(isprint((unsigned char)*c) ? snprintf(path + at, 5, "%c", *c)
                                                  : snprintf(path + at, 5, "\\x%02x", (unsigned char)*c));
    }
    path[at] = 0;
    fprintf(stderr, "%s %s %s %d %llu bytes %llu ms, %08lx-%llu%s\n", line->peer, line->method, path, line->status,
            (unsigned long long)line->bytes, (unsigned long long)line->ms,
            (unsigned long)(uint32_t)s->id_seed, (unsigned long long)line->id, line->gone ? " (client left)" : "");
}

static void wake(void *user)
{
    http_wake(((server *)user)->http);
}

/* ---- start ---- */

/* Is it what browsers send as Origin: a scheme, "://", a host and perhaps a port; or null, of a page that is a file? */
static bool is_origin(const char *text)
{
    const char *mark = strstr(text, "://");
    return strcmp(text, "null") == 0 || (mark && mark > text && mark[3] && !strpbrk(mark + 3, "/ "));
}

static bool check(const args_desc *d, const serve_options *o)
{
    reasoning_tags tags;
    const char *address = o->address ? o->address : "127.0.0.1";
    bool loopback = strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 || strcmp(address, "[::1]") == 0
                 || strcmp(address, "localhost") == 0;
    if (!o->models.count && !o->folder) {
        args_wrong(d, "MODEL is missing (or give --models DIR and load a model later)");
    } else if (o->models.count > SERVER_MODELS_MAX) {
        args_wrong(d, "at most %u models can be served", SERVER_MODELS_MAX);
    } else if (o->port > 65535) {
        args_wrong(d, "--port must be at most 65535, not %u", o->port);
    } else if (o->reasoning && !reasoning_tags_read(o->reasoning, NULL, &tags)) {
        args_wrong(d, "--reasoning must be auto, none, or two tags with a comma between them, not '%s'", o->reasoning);
    } else if (o->queue == 0) {
        args_wrong(d, "--queue must be at least 1: with 0 no request could begin");
    } else if (o->cors && !is_origin(o->cors)) {
        args_wrong(d, "--cors must be an origin such as http://127.0.0.1:8000, not '%s'", o->cors);
    } else if (o->no_auth && o->keys) {
        args_wrong(d, "--keys and --no-auth exclude each other");
    } else if (o->inline_load && !o->folder) {
        args_wrong(d, "--inline-load needs --models DIR");
    } else if (o->no_auth && !loopback && !o->anyone) {
        args_wrong(d, "--no-auth with the address %s lets everybody in: add --yes-anyone if that is meant", address);
    } else {
        return true;
    }
    return false;
}

static bool open_http(server *s)
{
    const serve_options *o = s->options;
    char error[256] = "";
    s->http = http_open(&(http_desc){ .host = o->address, .port = (int)o->port, .body_max = o->body_max,
                                      .ping_seconds = o->ping, .no_auth = o->no_auth, .cors_origin = o->cors,
                                      .id_seed = (uint32_t)s->id_seed, .user = s,
                                      .on_head = on_head, .on_request = on_request, .on_gone = on_gone,
                                      .on_room = on_room, .on_wake = on_wake, .on_alarm = on_alarm, .on_log = on_log },
                        error, sizeof error);
    if (!s->http) {
        fprintf(stderr, "%s\n", error);
    }
    return s->http != NULL;
}

static bool open_engine(server *s)
{
    const serve_options *o = s->options;
    uint32_t batch = o->batch ? o->batch : 16, jobs = batch * JOBS_PER_PLACE;
    jobs = jobs < 64 ? 64 : jobs;
    s->engine = engine_open(&(engine_desc){ .host = &o->host, .max_jobs = jobs, .max_sessions = jobs * 4,
                                            .cpu_us = o->cpu_us, .gpu_us = o->gpu_us, .wake = wake, .user = s });
    if (!s->engine) {
        return false;
    }
    engine_watch(s->engine, &s->times);
    if (s->times.info.backend == EXL2_BACKEND_CUDA && o->cpu_us == CPU_US) {
        engine_budget(s->engine, 0, o->gpu_us); /* the default is meant for the CPU */
    }
    return true;
}

static void ignore_entry(void *user, const char *name)
{
    (void)user;
    (void)name;
}

/* A folder of a flag must be there at the start, as nobody else would hear that its name is wrong. */
static bool check_folder(const char *flag, const char *path)
{
    bool good = !path || folder_each(path, ignore_entry, NULL);
    if (!good) {
        fprintf(stderr, "%s %s: there is no such folder, or it cannot be read\n", flag, path);
    }
    return good;
}

/* Requests choose a model by its name. */
static bool check_name(const server *s, const char *path)
{
    char *name = models_name(path);
    bool good = true;
    for (const model *m = name ? s->models : NULL; m; m = m->next) {
        good = good && strcmp(m->name, name) != 0;
    }
    if (!good) {
        fprintf(stderr, "%s: two of the models have the name '%s'\n", path, name);
    }
    free(name);
    return good;
}

static bool open_all(server *s)
{
    const serve_options *o = s->options;
    char why[UI_SESSIONS_WHY_BYTES] = "";
    s->keys.open_to_all = o->no_auth;
    if (!keys_random(&s->id_seed, sizeof s->id_seed)) {
        fputs("the system has no random numbers\n", stderr);
        return false;
    }
    if (!o->no_auth && !keys_open(&s->keys, o->keys)) {
        return false;
    }
    if (o->sessions && !ui_sessions_open(o->sessions, why)) {
        fprintf(stderr, "%s\n", why);
        return false;
    }
    if (!check_folder("--models", o->folder) || !check_folder("--loras", o->adapters)) {
        return false;
    }
    if (o->template && !loader_template(s, o->template, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return false;
    }
    if (!open_http(s) || !open_engine(s)) {
        return false;
    }
    for (uint32_t i = 0; i < o->models.count; i++) {
        if (!check_name(s, o->models.items[i])) {
            return false;
        }
        if (!models_load(s, &(models_desc){ .path = o->models.items[i], .draft = i == 0 ? o->draft : NULL })) {
            fputs("out of memory\n", stderr);
            return false;
        }
    }
    if (o->embeddings && !models_load(s, &(models_desc){ .path = o->embeddings, .embeds = true })) {
        fprintf(stderr, "--embeddings: there is no memory, or there are %u models already\n", SERVER_MODELS_MAX);
        return false;
    }
    return true;
}

/* The first line on stdout: the server can be used. */
static void announce(server *s)
{
    const char *key = keys_first(&s->keys, KEYS_ADMIN);
    const model *m = models_first(s);
    char why[512];
    if (s->options->override && !overrides_load(s, s->options->override, m ? m->load.info.vocab : INT32_MAX, why,
                                                sizeof why)) {
        fprintf(stderr, "%s\n", why);
        s->failed = true;
        return;
    }
    s->announced = true;
    printf("http://%s/\n", http_address(s->http));
    fflush(stdout);
    if (isatty(fileno(stderr))) {
        fprintf(stderr, "http://%s/%s%s\n", http_address(s->http), key ? "#key=" : "", key ? key : "");
    }
}

/* ---- the loop and the end ---- */

static void begin_stop(server *s)
{
    s->stopping = true;
    s->stop_ms = http_now_ms(s->http) + STREAMS_END_MS;
    endpoint_watch_end(s);
    http_stop(s->http);
}

static void run(server *s)
{
    while (http_turn(s->http, TURN_MS)) {
        if ((interrupted() || s->failed) && !s->stopping) {
            begin_stop(s);
        }
        if (!s->announced && !s->failed && (models_all_ready(s) || !s->models) && !s->adapters_load) {
            announce(s);
        }
        if (s->cut && http_now_ms(s->http) >= s->stop_ms) {
            return; /* these clients do not read */
        }
        if (s->stopping && !s->cut && http_now_ms(s->http) >= s->stop_ms) {
            s->cut = true;
            s->stop_ms = http_now_ms(s->http) + CUT_MS;
            call_end_all(s, "The server is shutting down.");
            embeddings_end_all(s, "The server is shutting down.");
            inline_load_end(s, "The server is shutting down.");
        }
    }
}

static void close_all(server *s)
{
    if (s->engine) {
        call_end_all(s, "The server is shutting down.");
        embeddings_end_all(s, "The server is shutting down.");
        while (s->calls || s->embeddings) {
            take_news(s);
            clock_sleep_us(500);
        }
        engine_close(s->engine);
    }
    http_close(s->http);
    inline_load_close(s);
    models_close(s);
    overrides_free(&s->overrides);
    free(s->template_text);
}

int cli_serve(int argc, char **argv)
{
    serve_options o = { .port = 5000, .queue = 256, .ping = 15, .cpu_us = CPU_US };
    o.model.vision = (exl2_vision_desc){ .images = IMAGES, .pixels_max = REQUEST_PIXELS_MAX };
    const arg positional[] = { { "MODEL", ARG_TEXTS, &o.models, NULL, "model folders, up to four" } };
    const arg flags[] = {
        { "--host", ARG_TEXT, &o.address, "A", "address to listen on (127.0.0.1)" },
        { "--port", ARG_U32, &o.port, "N", "port to listen on; 0 = a free one (5000)" },
        { "--keys", ARG_TEXT, &o.keys, "FILE",
          "file with keys (exl2/keys in your configuration folder, made if absent)" },
        { "--no-auth", ARG_BOOL, &o.no_auth, NULL, "needs no keys: whoever reaches the port may do all" },
        { "--yes-anyone", ARG_BOOL, &o.anyone, NULL, "allows --no-auth with an address that is not loopback" },
        { "--models", ARG_TEXT, &o.folder, "DIR", "folder of models and templates that an admin may load" },
        { "--inline-load", ARG_BOOL, &o.inline_load, NULL,
          "an admin's request loads the model of --models that it names" },
        { "--draft", ARG_TEXT, &o.draft, "DIR", "a smaller model that guesses for the first one" },
        HOST_LORA_ARG(o.host),
        { "--loras", ARG_TEXT, &o.adapters, "DIR", "folder of adapters that an admin may load" },
        { "--embeddings", ARG_TEXT, &o.embeddings, "DIR", "a model for /v1/embeddings, beside the others" },
        { "--ngram", ARG_BOOL, &o.ngram, NULL, "guesses tokens by what the text said before; same text" },
        { "--batch", ARG_U32, &o.batch, "N", "most sequences in a pass (16)" },
        { "--sampling", ARG_CHOICE, &o.sampling, "neutral|model|balanced",
          "settings that a request leaves out (neutral)" },
        { "--override", ARG_TEXT, &o.override, "FILE",
          "values of request fields: {field: {override, force, additive}}" },
        { "--template", ARG_TEXT, &o.template, "FILE",
          "chat template instead of the models' own; also the name of one of --models" },
        { "--reasoning", ARG_TEXT, &o.reasoning, "auto|none|START,END", "tags around reasoning (auto)" },
        { "--tools", ARG_CHOICE, &o.tools, "auto|none|hermes|llama3|mistral", "how calls of tools are written (auto)" },
        { "--alias", ARG_TEXTS, &o.aliases, "NAME", "another name of the first model; may be repeated" },
        { "--cors", ARG_TEXT, &o.cors, "ORIGIN", "the one origin whose pages may use the server" },
        { "--body-max", ARG_U64, &o.body_max, "BYTES",
          "most bytes of a request's body (4194304; 16777216 where it may have pictures)" },
        { "--images", ARG_U32, &o.model.vision.images, "N",
          "most pictures of a request, where the model reads pictures; 0 = none (8)" },
        { "--image-rows", ARG_U32, &o.model.vision.rows, "N", "rows of pictures that are kept (those of 8 pictures)" },
        IMAGES_LIMITS(o.model.vision),
        { "--queue", ARG_U32, &o.queue, "N", "most requests that wait (256)" },
        { "--ping", ARG_U32, &o.ping, "N", "seconds of silence before a stream gets a comment (15)" },
        { "--cpu-us", ARG_U32, &o.cpu_us, "N",
          "CPU microseconds of a step; 0 = a whole pass (20000 if models run on the CPU)" },
        { "--gpu-us", ARG_U32, &o.gpu_us, "N", "GPU microseconds of a step; 0 = a whole pass (0)" },
        { "--sessions", ARG_TEXT, &o.sessions, "DIR", "folder that keeps the page's chats (the browser keeps them)" },
        { "--log-requests", ARG_BOOL, &o.log_requests, NULL, "writes a line to stderr for each request" },
        { "--log-prompts", ARG_BOOL, &o.log_prompts, NULL, "writes the bodies of requests to stderr" },
        HOST_CONTEXT_ARGS(o.model),
        HOST_ARGS(o.host),
    };
    const args_desc d = { "exl2 serve",
                          "Serves models over HTTP to clients of OpenAI and TabbyAPI, and a page to talk to them.",
                          positional, ARGS_COUNT(positional), 0, flags, ARGS_COUNT(flags) };
    args_result parsed = host_parse(&d, argc, argv, &o.host);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    if (!check(&d, &o)) {
        return CLI_EXIT_USAGE;
    }
    server *s = calloc(1, sizeof *s);
    if (!s) {
        fputs("out of memory\n", stderr);
        return 1;
    }
    s->options = &o;
    interrupt_watch();
    interrupt_watch_ends();
    bool open = open_all(s);
    if (open) {
        run(s);
    }
    close_all(s);
    int code = open && !s->failed ? 0 : 1;
    free(s);
    return code;
}
