/* generate.c: `exl2 generate`: one generation, streamed as text or as one JSON object at its end.
   takes: a model folder; a prompt, ids or a chat message.
   gives: cli_generate.
   owns:  nothing beyond the call.
   next:  score.c */
#define _POSIX_C_SOURCE 200809L
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/json_out.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "ids.h"
#include "sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GENERATE_STEP_US 30000u /* Ctrl-C is seen this often */

typedef struct generate_options {
    const char *path, *prompt, *prompt_file, *ids, *system;
    bool chat, json;
    uint32_t max_tokens;
    arg_texts stops;
    sampling_options sampling;
    host_options host;
} generate_options;

typedef struct generation {
    const generate_options *options;
    host *host;
    char *file_text; /* of --prompt-file */
    const char *prompt;
    size_t prompt_bytes;
    ids prompt_ids; /* of --ids */
    exl2_message messages[2];
    exl2_session session;
    char *text; /* --json: [text_bytes] all of it */
    size_t text_bytes, text_cap;
    bool done;
    exl2_stop stop;
    exl2_result result;
    exl2_job_stats stats;
    char error[sizeof(((exl2_error *)0)->text)];
} generation;

static exl2_flow on_event(void *user, const exl2_event *event)
{
    generation *g = user;
    if (event->kind == EXL2_EVENT_TEXT && !g->options->json) {
        fwrite(event->text, 1, event->bytes, stdout);
        fflush(stdout);
    } else if (event->kind == EXL2_EVENT_TEXT && event->bytes) {
        if (g->text_bytes + event->bytes > g->text_cap) {
            g->text_cap = (g->text_bytes + event->bytes) * 2;
            g->text = memory_grow(g->text, g->text_cap, 1);
        }
        memcpy(g->text + g->text_bytes, event->text, event->bytes);
        g->text_bytes += event->bytes;
    } else if (event->kind == EXL2_EVENT_DONE) {
        g->done = true;
        g->stop = event->stop;
        g->result = event->result;
        g->stats = event->stats;
        snprintf(g->error, sizeof g->error, "%s", event->error ? event->error : "");
    }
    return EXL2_CONTINUE;
}

static args_result check(const args_desc *d, const generate_options *o)
{
    int sources = (o->prompt != NULL) + (o->prompt_file != NULL) + (o->ids != NULL);
    if (sources != 1) {
        return args_wrong(d, "give one of --prompt, --prompt-file and --ids");
    }
    if (o->chat && o->ids) {
        return args_wrong(d, "--chat goes with --prompt or --prompt-file");
    }
    if (o->system && !o->chat) {
        return args_wrong(d, "--system goes with --chat");
    }
    return ARGS_OK;
}

static void print_json(const generation *g, const exl2_token *history, size_t count)
{
    size_t prompt = g->stats.prompt_tokens < count ? g->stats.prompt_tokens : count;
    json_out j = { .file = stdout };
    json_out_object(&j, NULL);
    json_out_ids(&j, "prompt_ids", history, prompt);
    json_out_ids(&j, "ids", history + prompt, count - prompt);
    json_out_text(&j, "text", g->text ? g->text : "", g->text_bytes);
    json_out_string(&j, "stop", host_stop_name(g->stop));
    json_out_object(&j, "stats");
    json_out_uint(&j, "prompt_tokens", g->stats.prompt_tokens);
    json_out_uint(&j, "reused_tokens", g->stats.reused_tokens);
    json_out_uint(&j, "new_tokens", g->stats.new_tokens);
    json_out_uint(&j, "seed", g->stats.seed);
    json_out_number(&j, "queued_s", (double)g->stats.queued_ns * 1e-9);
    json_out_number(&j, "prefill_s", (double)g->stats.prefill_ns * 1e-9);
    json_out_number(&j, "decode_s", (double)g->stats.decode_ns * 1e-9);
    json_out_number(&j, "load_s", g->host->load_seconds);
    json_out_end(&j);
    json_out_end(&j);
}

/* The end of a streamed text: its line, and figures for a person who watches. */
static void print_end(const generation *g)
{
    double seconds = (double)g->stats.decode_ns * 1e-9;
    fputc('\n', stdout);
    fflush(stdout);
    if (isatty(STDERR_FILENO) && seconds > 0) {
        fprintf(stderr, "[%s; %u tokens read, %u written, %.1f a second; seed %llu]\n", host_stop_name(g->stop),
                g->stats.prompt_tokens, g->stats.new_tokens, (double)g->stats.new_tokens / seconds,
                (unsigned long long)g->stats.seed);
    }
}

static int report(generation *g)
{
    if (g->options->json) {
        size_t need = 0;
        exl2_session_tokens(g->host->engine, g->session, NULL, 0, &need);
        exl2_token *history = memory_take(need, sizeof *history);
        exl2_result result = exl2_session_tokens(g->host->engine, g->session, history, need, &need);
        if (result < 0) {
            free(history);
            return host_failed(g->host);
        }
        print_json(g, history, need);
        free(history);
    } else {
        print_end(g);
    }
    if (g->stop == EXL2_STOP_CANCELLED) {
        fputs("interrupted\n", stderr);
        return 1;
    }
    return 0;
}

static int run(generation *g, const exl2_sampler_desc *sampler)
{
    const generate_options *o = g->options;
    exl2_job job;
    exl2_job_desc d = { .max_tokens = o->max_tokens, .sampler = *sampler, .stop_strings = o->stops.items,
                        .stop_string_count = o->stops.count, .on_event = on_event, .user = g };
    if (exl2_session_open(g->host->engine, g->host->model, &g->session) < 0) {
        return host_failed(g->host);
    }
    d.session = g->session;
    if (o->ids) {
        d.tokens = g->prompt_ids.items;
        d.token_count = g->prompt_ids.count;
    } else if (o->chat) {
        uint32_t count = 0;
        if (o->system) {
            g->messages[count++] = (exl2_message){ "system", o->system };
        }
        g->messages[count++] = (exl2_message){ "user", g->prompt };
        d.messages = g->messages;
        d.message_count = count;
    } else {
        d.prompt = g->prompt;
        d.prompt_bytes = g->prompt_bytes;
    }
    if (exl2_job_start(g->host->engine, &d, &job) < 0) {
        return host_failed(g->host);
    }
    while (!g->done) {
        if (host_step(g->host, job, GENERATE_STEP_US) < 0) {
            return host_failed(g->host);
        }
    }
    if (g->result < 0 && g->stop != EXL2_STOP_CANCELLED) {
        fprintf(stderr, "%s\n", g->error);
        return 1;
    }
    return report(g);
}

static bool read_prompt(generation *g)
{
    const generate_options *o = g->options;
    if (o->prompt_file) {
        g->file_text = text_file_read(o->prompt_file, &g->prompt_bytes);
        g->prompt = g->file_text;
        return g->file_text != NULL;
    }
    g->prompt = o->prompt;
    g->prompt_bytes = o->prompt ? strlen(o->prompt) : 0;
    return true;
}

int cli_generate(int argc, char **argv)
{
    generate_options o = { .sampling = SAMPLING_DEFAULTS };
    const arg positional[] = { { "MODEL", ARG_TEXT, &o.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--prompt", ARG_TEXT, &o.prompt, "T", "text to go on with; markers such as <|im_start|> count" },
        { "--prompt-file", ARG_TEXT, &o.prompt_file, "F", "the same from a file" },
        { "--ids", ARG_TEXT, &o.ids, "1,2", "token ids to go on with" },
        { "--chat", ARG_BOOL, &o.chat, NULL, "the prompt is a user's message, for the chat template" },
        { "--system", ARG_TEXT, &o.system, "T", "system message, with --chat" },
        { "--max", ARG_U32, &o.max_tokens, "N", "tokens to write (512)" },
        SAMPLING_ARGS(o.sampling),
        { "--stop", ARG_TEXTS, &o.stops, "T", "text that ends the reply; may be repeated" },
        HOST_ARGS(o.host),
        { "--json", ARG_BOOL, &o.json, NULL, "one JSON object instead of the text" },
    };
    const args_desc d = { "exl2 generate",
                          "Goes on with a text, with ids, or answers a message.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    exl2_sampler_desc sampler;
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = check(&d, &o);
    }
    if (parsed == ARGS_OK) {
        parsed = sampling_desc(&d, &o.sampling, &sampler);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    host h = { 0 };
    generation g = { .options = &o, .host = &h };
    exl2_model_desc model = { .path = o.path };
    int code = 1;
    if (o.ids && !ids_from_commas(o.ids, &g.prompt_ids)) {
        code = cli_exit(args_wrong(&d, "--ids takes whole numbers with commas between them, not '%s'", o.ids));
    } else if (read_prompt(&g) && host_open(&h, &o.host) && host_load(&h, &model, 1)) {
        code = run(&g, &sampler);
    }
    host_close(&h);
    free(g.prompt_ids.items);
    free(g.file_text);
    free(g.text);
    return code;
}
