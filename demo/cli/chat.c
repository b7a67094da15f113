/* chat.c: `exl2 chat`: a conversation in the terminal. The engine gets the whole conversation every time and reuses
   the part that its session already holds. When the context is too short for a reply, the older half of the turns is
   forgotten, and its tokens are trimmed from the session. A picture stays open as long as a message has it.
   takes: a model folder, lines on stdin, pictures.
   gives: cli_chat. */
#define _POSIX_C_SOURCE 200809L
#include "../common/gap.h"
#include "../common/host.h"
#include "../common/images.h"
#include "../common/interrupt.h"
#include "../common/memory.h"
#include "../common/text_file.h"
#include "chat_file.h"
#include "cli.h"
#include "formats.h"
#include "reply_view.h"
#include "sampling.h"
#include "template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAT_STEP_US 30000u /* Ctrl-C is checked after each step of this length */

typedef struct chat {
    host host;
    exl2_session session;
    exl2_message *messages; /* [count] the whole conversation; its texts and lists of pictures are on the heap */
    size_t count, cap;
    exl2_image shown[ARGS_LIST_MAX]; /* [shown_count] pictures of the next message */
    uint32_t shown_count;
    const images_options *images;
    char *system; /* NULL: none */
    reply_view view;
    exl2_chat_desc template;
    template_ending ending;
    uint32_t max_tokens;
    exl2_sampler_desc sampler;
    bool timings; /* each reply is followed by its figures */
    memory_text reply; /* text so far */
    host_end end;
} chat;

static void add_message(chat *c, const char *role, const char *text, size_t bytes)
{
    if (c->count == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 16;
        c->messages = memory_grow(c->messages, c->cap, sizeof *c->messages);
    }
    c->messages[c->count++] = (exl2_message){ .role = role, .text = memory_copy_text(text, bytes) };
}

/* Gives the newest message the pictures that were shown. */
static void add_shown(chat *c)
{
    exl2_message *m = &c->messages[c->count - 1];
    if (c->shown_count > 0) {
        exl2_image *list = memory_take(c->shown_count, sizeof *list);
        memcpy(list, c->shown, c->shown_count * sizeof *list);
        m->images = list;
        m->image_count = c->shown_count;
        c->shown_count = 0;
    }
}

static void free_message(const chat *c, exl2_message *m)
{
    for (size_t i = 0; i < m->image_count; i++) {
        exl2_image_close(c->host.engine, m->images[i]);
    }
    free((void *)(uintptr_t)m->images);
    free((void *)(uintptr_t)m->text);
}

/* Cuts the conversation back to its first `count` messages. */
static void keep_messages(chat *c, size_t count)
{
    while (c->count > count) {
        free_message(c, &c->messages[--c->count]);
    }
}

/* Forgets the older half of the turns, but not the system message and the newest message. false: there is none. */
static bool forget_turns(chat *c)
{
    size_t first = c->system != NULL, turns = (c->count - first - 1) / 2, drop = 2 * ((turns + 1) / 2);
    for (size_t i = first; i < first + drop; i++) {
        free_message(c, &c->messages[i]);
    }
    memmove(c->messages + first, c->messages + first + drop, (c->count - first - drop) * sizeof *c->messages);
    c->count -= drop;
    return drop > 0;
}

/* Takes the tokens of `turns` forgotten turns out of the session. The system message before them stays as it is, and
   the turns after them are computed again, by the next job. A history with pictures is left to that job, as it has
   rows where a rendered text has marks. false: failed, message printed. */
static bool trim_history(chat *c, size_t turns)
{
    exl2_engine *e = c->host.engine;
    size_t bytes = 0, now_count = 0, old_count = 0, pictures = 0;
    uint32_t from = 0, gap = 0;
    char *text = NULL;
    exl2_token *now = NULL, *old = NULL;
    if (exl2_session_pictures(e, c->session, NULL, 0, &pictures) >= 0 && pictures > 0) {
        fprintf(stderr, "(forgot the oldest %zu turns)\n", turns);
        return true;
    }
    exl2_result r = exl2_chat_render(e, c->host.model, c->messages, c->count, &c->template, NULL, 0, &bytes);
    if (r >= 0) {
        text = memory_take(bytes + 1, 1);
        now = memory_take(bytes + 1, sizeof *now); /* no text has more tokens than bytes */
        r = exl2_chat_render(e, c->host.model, c->messages, c->count, &c->template, text, bytes + 1, &bytes);
    }
    r = r < 0 ? r : exl2_tokenize(e, c->host.model, text, bytes, EXL2_TEXT_NO_BOS, now, bytes + 1, &now_count);
    r = r < 0 ? r : exl2_session_tokens(e, c->session, NULL, 0, &old_count);
    if (r >= 0) {
        old = memory_take(old_count + 1, sizeof *old);
        r = exl2_session_tokens(e, c->session, old, old_count, &old_count);
    }
    if (r >= 0) {
        gap = gap_find(old, old_count, now, now_count, &from);
        r = exl2_session_trim(e, c->session, from, gap);
    }
    free(text);
    free(now);
    free(old);
    if (r < 0) {
        host_failed(&c->host);
        return false;
    }
    fprintf(stderr, "(forgot the oldest %zu turns, %u tokens)\n", turns, gap);
    return true;
}

static void forget_shown(chat *c)
{
    while (c->shown_count > 0) {
        exl2_image_close(c->host.engine, c->shown[--c->shown_count]);
    }
}

static void begin_conversation(chat *c)
{
    keep_messages(c, 0);
    forget_shown(c);
    if (c->system) {
        add_message(c, "system", c->system, strlen(c->system));
    }
}

static exl2_flow on_event(void *user, const exl2_event *event)
{
    chat *c = user;
    host_end_take(&c->end, event);
    if (event->kind == EXL2_EVENT_TEXT) {
        memory_text_add(&c->reply, event->text, event->bytes);
        reply_view_text(&c->view, event->text, event->bytes);
        fflush(stdout);
    }
    return ferror(stdout) ? EXL2_STOP_JOB : EXL2_CONTINUE;
}

static void print_timings(const exl2_job_stats *s)
{
    double first = (double)(s->queued_ns + s->prefill_ns) * 1e-9, rest = (double)s->decode_ns * 1e-9;
    fprintf(stderr, "(prompt: %u tokens, %u of them known; first token after %.2f s; %u tokens, %.1f a second)\n",
            s->prompt_tokens, s->reused_tokens, first, s->new_tokens, rest > 0 ? s->new_tokens / rest : 0);
}

/* Streams the reply to the messages; Ctrl-C ends it early. false: failed, message printed. */
static bool reply(chat *c)
{
    exl2_job job;
    exl2_job_desc d = { .session = c->session, .loras = c->host.loras.uses, .lora_count = c->host.loras.count,
                        .prompt = { .messages = c->messages, .message_count = c->count }, .chat = c->template,
                        .max_tokens = c->max_tokens, .sampler = c->sampler, .stop_tokens = c->ending.tokens,
                        .stop_token_count = c->ending.token_count, .stop_strings = c->ending.strings,
                        .stop_string_count = c->ending.string_count, .on_event = on_event, .user = c };
    uint32_t quarter = c->host.info.context_max / 4;
    uint32_t least = c->max_tokens ? c->max_tokens : quarter < 512 ? quarter : 512; /* tokens of a reply */
    exl2_job_size size = { 0 };
    exl2_result fits = exl2_job_measure(c->host.engine, &d, &size);
    size_t before = c->count;
    while ((fits == EXL2_ERR_CONTEXT_FULL || (fits >= 0 && size.max_tokens < least)) && forget_turns(c)) {
        d.prompt.message_count = c->count;
        fits = exl2_job_measure(c->host.engine, &d, &size);
    }
    if (c->count < before && !trim_history(c, (before - c->count) / 2)) {
        return false;
    }
    c->reply.bytes = 0;
    c->end = (host_end){ 0 };
    reply_view_open(&c->view);
    exl2_result result = exl2_job_start(c->host.engine, &d, &job);
    while (result >= 0 && !c->end.done) {
        result = host_step(&c->host, job, CHAT_STEP_US);
    }
    interrupt_forget(); /* Ctrl-C ended the reply, not the conversation */
    if (result < 0) {
        host_failed(&c->host);
        return false;
    }
    reply_view_end(&c->view);
    fflush(stdout);
    if (c->end.stop != EXL2_STOP_CANCELLED && !host_end_good(&c->host, &c->end)) {
        return false;
    }
    add_message(c, "assistant", c->reply.data, c->reply.bytes);
    if (c->timings) {
        print_timings(&c->end.stats);
    }
    return true;
}

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

static void set_system(chat *c, const char *text)
{
    free(c->system);
    c->system = text && *text ? memory_copy_text(text, strlen(text)) : NULL;
    begin_conversation(c);
}

/* Shows a picture, which stands in the next message. false: it cannot be; a message was printed. */
static bool show(chat *c, const char *path)
{
    char sentence[1280] = "";
    exl2_image_info info = { 0 };
    exl2_image *image = &c->shown[c->shown_count];
    if (!*path) {
        snprintf(sentence, sizeof sentence, "/image needs a file");
    } else if (c->images->open + c->images->files.count == 0) {
        snprintf(sentence, sizeof sentence, "the model was loaded without its tower for pictures: give --images N, "
                 "the number of pictures in a conversation");
    } else if (c->shown_count == ARGS_LIST_MAX) {
        snprintf(sentence, sizeof sentence, "a message has at most %d pictures", ARGS_LIST_MAX);
    } else if (images_make_file(c->host.engine, c->host.model, path, image, sentence, sizeof sentence) >= 0) {
        exl2_image_get(c->host.engine, *image, &info);
        c->shown_count++;
        fprintf(stderr, "(%s: %u tokens of the next message)\n", path, info.tokens);
        return true;
    }
    fprintf(stderr, "%s\n", sentence);
    return false;
}

/* ---- commands; false: failed, message printed ---- */

static bool reset(chat *c, const char *argument)
{
    (void)argument;
    begin_conversation(c);
    return true;
}

static bool begin_again(chat *c, const char *argument)
{
    set_system(c, argument);
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
    keep_messages(c, before_reply(c, true));
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
    keep_messages(c, count);
    return reply(c);
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
    set_system(c, system ? messages[0].text : NULL);
    for (size_t i = system; i < count; i++) {
        add_message(c, messages[i].role, messages[i].text, strlen(messages[i].text));
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
    { "/image", " FILE", "shows a picture, which stands in the next message; needs --images", show },
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
    add_message(c, "user", said->data, said->bytes);
    add_shown(c);
    bool good = reply(c);
    if (!good) {
        keep_messages(c, before);
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
    set_system(c, system);
    for (uint32_t i = 0; i < c->images->files.count; i++) {
        if (!show(c, c->images->files.items[i])) {
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
        IMAGES_ROOM(pictures),
        { "--max-tokens", ARG_U32, &max_tokens, "N",
          "maximum tokens of a reply, also --max; 0 = 512, or what fits the context (0)" },
#define SAMPLING_OF sampling
        SAMPLING_ARGS,
#undef SAMPLING_OF
        HOST_LORA_ARG(options),
        HOST_CONTEXT_ARGS(model),
        HOST_ARGS(options),
    };
    const args_desc d = { "exl2 chat",
                          "Chats in the terminal. /help lists the commands.",
                          positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    chat c = { .images = &pictures };
    args_result parsed = args_parse(&d, argc, argv);
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
    forget_shown(&c);
    keep_messages(&c, 0);
    host_close(&c.host);
    free(template_text);
    free(c.messages);
    free(c.system);
    free(c.reply.data);
    return code;
}
