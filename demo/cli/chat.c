/* chat.c: `exl2 chat`: what a person or a script types, and the commands.
   takes: a model folder, lines on stdin, pictures.
   gives: cli_chat. */
#define _POSIX_C_SOURCE 200809L
#include "../common/interrupt.h"
#include "../common/text_file.h"
#include "chat_file.h"
#include "chat_talk.h"
#include "cli.h"
#include "formats.h"
#include "sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads what the user says next: a line, and those after it as long as each ends with a backslash. false: /quit, the
   end of stdin, or Ctrl-C at the prompt. */
static bool ask(bool terminal, memory_text *said)
{
    char *line = NULL;
    size_t cap = 0, bytes = 0;
    bool more = true, good = true;
    said->bytes = 0;
    while (more && good) {
        if (terminal) {
            fprintf(stdout, "%s%s ", reply_view_color(), said->bytes ? "." : ">");
            fflush(stdout);
        }
        good = !interrupted() && text_line_read(stdin, &line, &cap, &bytes) && !interrupted();
        more = good && bytes > 0 && line[bytes - 1] == '\\';
        if (good) {
            memory_text_add(said, line, more ? bytes - 1 : bytes);
            memory_text_add(said, more ? "\n" : "", 1); /* the NUL is not part of the text */
        }
    }
    free(line);
    if (terminal) {
        fprintf(stdout, "%s%s", reply_view_plain(), good ? "" : "\n");
        fflush(stdout);
    }
    said->bytes -= good;
    return good && strcmp(said->data, "/quit") != 0;
}

/* ---- commands; false: failed, message printed ---- */

static bool reset(chat *c, const char *argument)
{
    (void)argument;
    chat_begin(c);
    return true;
}

static bool begin_again(chat *c, const char *argument)
{
    chat_set_system(c, argument);
    return true;
}

/* The number of messages before the last reply and, if `said`, before what it replies to. */
static size_t before_reply(const chat *c, bool said)
{
    size_t first = c->system != NULL, count = c->count;
    count -= count > first && strcmp(c->messages[count - 1].role, "assistant") == 0;
    return count - (said && count > first);
}

static bool undo(chat *c, const char *argument)
{
    (void)argument;
    chat_keep(c, before_reply(c, true));
    return true;
}

/* A seed that the user chose would give the same reply, so it counts up. */
static bool retry(chat *c, const char *argument)
{
    (void)argument;
    size_t count = before_reply(c, false);
    if (count == (c->system != NULL)) {
        fputs("there is nothing to reply to\n", stderr);
        return true;
    }
    c->sampler.seed += c->sampler.seed != 0;
    chat_keep(c, count);
    return chat_reply(c);
}

static bool save(chat *c, const char *argument)
{
    if (!*argument) {
        fputs("/save needs the name of a file\n", stderr);
        return false;
    }
    for (size_t i = 0; i < c->count; i++) {
        if (c->messages[i].image_count) {
            fputs("a conversation with pictures cannot be saved: the file has texts alone\n", stderr);
            return false;
        }
    }
    return chat_file_write(argument, c->messages, c->count);
}

static bool load(chat *c, const char *argument)
{
    exl2_message *messages;
    size_t count;
    if (!*argument) {
        fputs("/load needs the name of a file\n", stderr);
        return false;
    }
    if (!chat_file_read(argument, &messages, &count)) {
        return false;
    }
    bool system = count > 0 && strcmp(messages[0].role, "system") == 0;
    chat_set_system(c, system ? messages[0].text : NULL);
    for (size_t i = system; i < count; i++) {
        chat_add(c, messages[i].role, messages[i].text, strlen(messages[i].text));
    }
    chat_file_free(messages, count);
    fprintf(stderr, "(%zu messages)\n", count);
    return true;
}

static bool switch_timings(chat *c, const char *argument)
{
    (void)argument;
    c->timings = !c->timings;
    return true;
}

static bool help(chat *c, const char *argument);

static const struct { const char *name, *argument, *does; bool (*run)(chat *, const char *argument); } commands[] = {
    { "/image", " FILE", "shows a picture, which stands in the next message; needs --images", chat_show },
    { "/reset", "", "forgets the conversation, but not the system message", reset },
    { "/system", " TEXT", "forgets the conversation and sets the system message; no TEXT: none", begin_again },
    { "/retry", "", "replies again to what you said last", retry },
    { "/undo", "", "forgets what you said last, and its reply", undo },
    { "/save", " FILE", "writes the conversation to a file, as JSON", save },
    { "/load", " FILE", "goes on with the conversation of such a file", load },
    { "/timings", "", "prints the times of each reply, or no longer", switch_timings },
    { "/help", "", "lists the commands", help },
    { "/quit", "", "quits, as does the end of the input", NULL }, /* never gets here: see ask */
};

static bool help(chat *c, const char *argument)
{
    (void)c;
    (void)argument;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(stdout, "%s%-*s %s\n", commands[i].name, (int)(14 - strlen(commands[i].name)), commands[i].argument,
                commands[i].does);
    }
    fputs("A line that ends with \\ goes on in the next one. Ctrl-C stops a reply.\n", stdout);
    return true;
}

/* Runs a line that begins with a slash. */
static bool obey(chat *c, const char *line)
{
    size_t bytes = strcspn(line, " "), i = 0, count = sizeof commands / sizeof commands[0];
    const char *argument = line + bytes + strspn(line + bytes, " ");
    while (i < count && (strlen(commands[i].name) != bytes || strncmp(commands[i].name, line, bytes) != 0)) {
        i++;
    }
    if (i == count || (!commands[i].argument[0] && *argument)) {
        fprintf(stderr, "unknown command '%s'; /help lists the commands\n", line);
        return true;
    }
    return commands[i].run(c, argument);
}

/* Runs a command or answers a message. false: there was no reply, so the message is dropped; the error was printed. */
static bool answer(chat *c, const memory_text *said)
{
    if (said->bytes == 0) {
        return true;
    }
    if (said->data[0] == '/') {
        return obey(c, said->data);
    }
    size_t before = c->count;
    chat_add(c, "user", said->data, said->bytes);
    chat_add_shown(c);
    bool good = chat_reply(c);
    if (!good) {
        chat_keep(c, before);
    }
    return good;
}

/* After an error a person may continue, a script may not. Returns the exit code. */
static int talk(chat *c)
{
    memory_text said = { 0 };
    bool terminal = isatty(STDIN_FILENO) != 0, good = true;
    if (terminal) {
        fputs("Type what you want to say; /help lists the commands.\n", stdout);
    }
    while (!ferror(stdout) && (good || terminal) && ask(terminal, &said)) {
        good = answer(c, &said);
    }
    free(said.data);
    if (ferror(stdin) && !interrupted()) {
        fputs("stdin cannot be read\n", stderr);
        return 1;
    }
    return good ? 0 : 1;
}

/* Fails if the model has no chat template. Returns the exit code. */
static int open_and_talk(chat *c, const exl2_model_desc *model, const char *system, const char *template)
{
    if (!host_load(&c->host, model, 1)) {
        return 1;
    }
    char offload[160];
    if (host_offload_text(&c->host.info, offload, sizeof offload)) {
        fprintf(stderr, "%s\n", offload);
    }
    if (!(c->host.info.has_chat_template || c->template.template_text || c->template.template_name) ||
        !c->host.info.has_tokenizer) {
        if (c->host.info.has_tokenizer) {
            fprintf(stderr, "%s has no chat template: name a format, such as '--template raw' (%s), or use "
                    "'exl2 generate' with plain text\n", model->path, format_names);
        } else {
            fprintf(stderr, "%s has no tokenizer.json; use 'exl2 generate' with ids\n", model->path);
        }
        return 1;
    }
    if (exl2_session_open(c->host.engine, c->host.model, &c->session) < 0) {
        return host_failed(&c->host);
    }
    c->ending = template_end(template, c->host.engine, c->host.model);
    chat_set_system(c, system);
    for (uint32_t i = 0; i < c->images->files.count; i++) {
        if (!chat_show(c, c->images->files.items[i])) {
            return 1;
        }
    }
    return talk(c);
}

int cli_chat(int argc, char **argv)
{
    exl2_model_desc model = { .path = NULL };
    const char *system = NULL, *template = NULL;
    char *template_text = NULL;
    uint32_t max_tokens = 0;
    sampling_options sampling = sampling_defaults();
    host_options options = { 0 };
    images_options pictures = { 0 };
    const arg positional[] = { { "MODEL", ARG_TEXT, &model.path, NULL, "model folder" } };
    const arg flags[] = {
        { "--system", ARG_TEXT, &system, "T", "system message" },
        TEMPLATE_ARG(template),
        { "--image", ARG_TEXTS, &pictures.files, "FILE", "a picture of the first message; may be repeated" },
        IMAGES_ROOM(pictures, "(those of --image)"),
        { "--max-tokens", ARG_U32, &max_tokens, "N",
          "maximum tokens of a reply, also --max; 0 = 512, or what fits the context (0)" },
#define SAMPLING_OF sampling
        SAMPLING_ARGS,
#undef SAMPLING_OF
        HOST_LORA_ARG(options),
        HOST_STEER_ARG(options),
        HOST_CONTEXT_ARGS(model),
        HOST_ARGS(options),
    };
    const args_desc d = { "exl2 chat",
                          "Chats in the terminal. /help lists the commands.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    chat c = { .images = &pictures };
    args_result parsed = host_parse(&d, argc, argv, &options);
    if (parsed == ARGS_OK) {
        parsed = sampling_desc(&d, &sampling, &c.sampler);
    }
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    c.max_tokens = max_tokens;
    images_room(&(images){ 0 }, &pictures, pictures.files.count, &model);
    bool good = template_choose(template, &c.template, &template_text) && host_open(&c.host, &options);
    int code = good ? open_and_talk(&c, &model, system, template) : 1;
    chat_close(&c);
    host_close(&c.host);
    free(template_text);
    return code;
}
