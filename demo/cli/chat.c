/* chat.c: `exl2 chat`: a conversation in the terminal. The engine gets the whole conversation every time and keeps
   what its session already knows of it.
   takes: a model folder, lines on stdin.
   gives: cli_chat.
   owns:  nothing beyond the call.
   next:  generate.c */
#define _POSIX_C_SOURCE 200809L
#include "../common/host.h"
#include "../common/interrupt.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "cli.h"
#include "sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAT_STEP_US 30000u /* Ctrl-C is seen this often */

typedef struct chat {
    host host;
    exl2_session session;
    exl2_message *messages; /* [count] the whole conversation; texts are on the heap */
    size_t count, cap;
    const char *system;
    uint32_t max_tokens;
    exl2_sampler_desc sampler;
    char *reply; /* [reply_bytes] so far */
    size_t reply_bytes, reply_cap;
    bool done;
    exl2_stop stop;
    char error[sizeof(((exl2_error *)0)->text)];
} chat;

static void add_message(chat *c, const char *role, const char *text, size_t bytes)
{
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->messages = memory_grow(c->messages, c->cap, sizeof *c->messages);
    }
    c->messages[c->count++] = (exl2_message){ role, memory_copy_text(text, bytes) };
}

/* Ends the conversation after its first `count` messages. */
static void keep_messages(chat *c, size_t count)
{
    while (c->count > count) {
        free((void *)(uintptr_t)c->messages[--c->count].text);
    }
}

static void begin_conversation(chat *c)
{
    keep_messages(c, 0);
    if (c->system) {
        add_message(c, "system", c->system, strlen(c->system));
    }
}

static exl2_flow on_event(void *user, const exl2_event *event)
{
    chat *c = user;
    if (event->kind == EXL2_EVENT_TEXT && event->bytes) {
        if (c->reply_bytes + event->bytes > c->reply_cap) {
            c->reply_cap = (c->reply_bytes + event->bytes) * 2;
            c->reply = memory_grow(c->reply, c->reply_cap, 1);
        }
        memcpy(c->reply + c->reply_bytes, event->text, event->bytes);
        c->reply_bytes += event->bytes;
        fwrite(event->text, 1, event->bytes, stdout);
        fflush(stdout);
    } else if (event->kind == EXL2_EVENT_DONE) {
        c->done = true;
        c->stop = event->stop;
        snprintf(c->error, sizeof c->error, "%s", event->error ? event->error : "");
    }
    return EXL2_CONTINUE;
}

/* Streams the reply to the messages; false with a sentence when the engine refused or failed. */
static bool reply(chat *c)
{
    exl2_job job;
    exl2_job_desc d = { .session = c->session, .messages = c->messages, .message_count = c->count,
                        .max_tokens = c->max_tokens, .sampler = c->sampler, .on_event = on_event, .user = c };
    c->reply_bytes = 0;
    c->done = false;
    interrupt_watch();
    exl2_result result = exl2_job_start(c->host.engine, &d, &job);
    while (result >= 0 && !c->done) {
        result = host_step(&c->host, job, CHAT_STEP_US);
    }
    if (result < 0) {
        host_failed(&c->host);
        return false;
    }
    fputc('\n', stdout);
    fflush(stdout);
    if (c->stop == EXL2_STOP_ERROR) {
        fprintf(stderr, "%s\n", c->error);
        return false;
    }
    add_message(c, "assistant", c->reply, c->reply_bytes);
    return true;
}

/* Lines until /quit, the end of stdin, or a Ctrl-C at the prompt. Exit code. */
static int talk(chat *c)
{
    char *line = NULL;
    size_t cap = 0, bytes;
    bool terminal = isatty(STDIN_FILENO) != 0;
    int code = 0;
    for (;;) {
        interrupt_watch();
        if (terminal) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        bool got_line = text_line_read(stdin, &line, &cap, &bytes) && !interrupted();
        if (!got_line && terminal) {
            fputc('\n', stdout);
        }
        if (!got_line || strcmp(line, "/quit") == 0) {
            break;
        }
        if (strcmp(line, "/reset") == 0) {
            begin_conversation(c);
        } else if (line[0] == '/') {
            fprintf(stderr, "'%s' is no command; there are /reset and /quit\n", line);
        } else if (bytes) {
            size_t before = c->count;
            add_message(c, "user", line, bytes);
            if (!reply(c)) { /* the message that got no reply is forgotten */
                keep_messages(c, before);
                code = 1;
                if (!terminal) {
                    break;
                }
            } else {
                code = 0;
            }
        }
    }
    free(line);
    return code;
}

int cli_chat(int argc, char **argv)
{
    const char *path = NULL, *system = NULL;
    uint32_t max_tokens = 0;
    sampling_options sampling = SAMPLING_DEFAULTS;
    host_options options = { 0 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &path, NULL, "model folder" } };
    const arg flags[] = {
        { "--system", ARG_TEXT, &system, "T", "system message" },
        { "--max", ARG_U32, &max_tokens, "N", "tokens of a reply (512)" },
        SAMPLING_ARGS(sampling),
        HOST_ARGS(options),
    };
    const args_desc d = { "exl2 chat",
                          "Talks in the terminal. /reset begins anew, /quit ends, Ctrl-C ends a reply.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    chat c = { 0 };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed == ARGS_OK) {
        parsed = sampling_desc(&d, &sampling, &c.sampler);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    c.system = system;
    c.max_tokens = max_tokens;
    exl2_model_desc model = { .path = path };
    int code = 1;
    if (host_open(&c.host, &options) && host_load(&c.host, &model, 1)) {
        begin_conversation(&c);
        code = exl2_session_open(c.host.engine, c.host.model, &c.session) < 0 ? host_failed(&c.host) : talk(&c);
    }
    keep_messages(&c, 0);
    host_close(&c.host);
    free(c.messages);
    free(c.reply);
    return code;
}
