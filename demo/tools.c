/* tools.c: a model that calls functions of the program: a table of tools, one grammar for a call or an answer, the call
   and its result as messages, and another job for what the model makes of it.
   takes: a model folder, perhaps a seed; on stdin a line for each turn:
              TEXT             what the player says; the model answers, or calls tools first
              @NAME TEXT       the same, but the model's first reply must call this tool
              /leave N TEXT    the same, but the reply is cancelled after N bytes: the player walks away
              /prompt          shows what the template makes of the talk so far
   gives: main.
   owns:  the engine, and the texts of the talk. */
#include "exl2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define MESSAGES_MAX 64
#define CALLS_MAX 4      /* in one turn */
#define TURN_BYTES 16384 /* of texts that a turn may add, at most */

/* ---- the world and its tools ---- */

typedef struct world {
    bool lamp, south_open;
} world;

/* arguments: JSON that fits the tool's schema, so that it needs no checks. false: the tool failed; result says why. */
typedef bool (*tool_fn)(world *w, const char *arguments, char *result, size_t cap);

static bool open_door(world *w, const char *arguments, char *result, size_t cap)
{
    char door[16];
    size_t need;
    exl2_json_text(arguments, strlen(arguments), "/door", door, sizeof door, &need, NULL);
    bool opens = strcmp(door, "south") == 0;
    w->south_open = w->south_open || opens;
    snprintf(result, cap, opens ? "the %s door is open" : "error: the %s door is locked", door);
    return opens;
}

static bool set_lamp(world *w, const char *arguments, char *result, size_t cap)
{
    char on[8];
    size_t need;
    exl2_json_text(arguments, strlen(arguments), "/on", on, sizeof on, &need, NULL);
    w->lamp = strcmp(on, "true") == 0;
    snprintf(result, cap, "the lamp is %s", w->lamp ? "on" : "off");
    return true;
}

static bool look(world *w, const char *arguments, char *result, size_t cap)
{
    (void)arguments;
    snprintf(result, cap, "the lamp is %s, the south door is %s", w->lamp ? "on" : "off",
             w->south_open ? "open" : "closed");
    return true;
}

#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
static const struct { const char *name, *about, *parameters; tool_fn run; } tools[] = {
    { "open_door", "Opens one of the doors.",
      "{\"type\":\"object\",\"required\":[\"door\"],\"properties\":{\"door\":{\"enum\":[\"north\",\"south\"]}}}",
      open_door },
    { "set_lamp", "Switches the lamp.",
      "{\"type\":\"object\",\"required\":[\"on\"],\"properties\":{\"on\":{\"type\":\"boolean\"}}}", set_lamp },
    { "look", "Tells what there is.", NO_ARGUMENTS, look },
};

static size_t tool_find(const char *name) /* ANY: there is none */
{
    size_t i = 0;
    while (i < COUNT(tools) && strcmp(tools[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* What a reply may be: a call of the tool `only`; ANY: a call of any tool, or an answer; ANSWER: an answer. Each tool
   has a branch of its own, so a name that does not exist, and arguments of another tool, cannot be written. */
#define ANY COUNT(tools)
#define ANSWER (COUNT(tools) + 1)
static void write_schema(size_t only, char *out, size_t cap)
{
    size_t used = (size_t)snprintf(out, cap, "{\"anyOf\":[");
    for (size_t i = 0; i < COUNT(tools); i++) {
        if (only == ANY || only == i) {
            used += (size_t)snprintf(out + used, cap - used, "{\"type\":\"object\",\"required\":[\"name\","
                                     "\"arguments\"],\"properties\":{\"name\":{\"const\":\"%s\"},\"arguments\":%s}}%s",
                                     tools[i].name, tools[i].parameters, only == i ? "" : ",");
        }
    }
    snprintf(out + used, cap - used, only < ANY ? "]}" : "{\"type\":\"object\",\"required\":[\"say\"],"
             "\"properties\":{\"say\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":200}}}]}");
}

/* The tools as chat templates want them, and as the system message lists them for a template that ignores them. */
static void write_tools(char *out, size_t cap)
{
    size_t used = 0;
    for (size_t i = 0; i < COUNT(tools); i++) {
        used += (size_t)snprintf(out + used, cap - used, "%s{\"type\":\"function\",\"function\":{\"name\":\"%s\","
                                 "\"description\":\"%s\",\"parameters\":%s}}", i ? "," : "[", tools[i].name,
                                 tools[i].about, tools[i].parameters);
    }
    snprintf(out + used, cap - used, "]");
}

/* ---- the talk ---- */

typedef struct talk {
    exl2_engine *e;
    exl2_model m;
    exl2_model_info info;
    exl2_session session;
    exl2_message messages[MESSAGES_MAX];
    size_t count;
    char texts[MESSAGES_MAX * 1024]; /* of the messages, one after the other */
    size_t texts_used;
    char tools[2048], reply[2048];
    size_t reply_bytes, leave_at;    /* leave_at 0: nobody leaves */
    uint64_t seed;
    exl2_job job;
    exl2_result result;
    bool speaks;
    world world;
} talk;

static const char *keep(talk *t, const char *text)
{
    char *at = t->texts + t->texts_used;
    size_t bytes = strlen(text) + 1;
    memcpy(at, text, bytes); /* talk_has_room was asked */
    t->texts_used += bytes;
    return at;
}

static bool talk_has_room(const talk *t)
{
    return t->count + 2 + 2 * CALLS_MAX <= MESSAGES_MAX && t->texts_used + TURN_BYTES <= sizeof t->texts;
}

static void add(talk *t, exl2_message message)
{
    message.text = keep(t, message.text);
    t->messages[t->count++] = message;
}

/* A call and its result: as the template has them, or as words where it drops them. */
static void add_call(talk *t, const char *result)
{
    char calls[2200], id[16], said[300];
    if (!t->info.reads_tool_calls) {
        snprintf(said, sizeof said, "Result: %s", result);
        add(t, (exl2_message){ .role = "assistant", .text = t->reply });
        add(t, (exl2_message){ .role = "user", .text = said });
        return;
    }
    snprintf(id, sizeof id, "call%05u", (unsigned)t->count);
    snprintf(calls, sizeof calls, "[{\"id\":\"%s\",\"type\":\"function\",\"function\":%s}]", id, t->reply);
    add(t, (exl2_message){ .role = "assistant", .text = "", .tool_calls = keep(t, calls) });
    add(t, (exl2_message){ .role = "tool", .text = result, .tool_call_id = keep(t, id) });
}

static exl2_flow hear(void *user, const exl2_event *event)
{
    talk *t = user;
    if (event->kind == EXL2_EVENT_DONE) {
        t->result = event->result;
        t->speaks = false;
    }
    if (event->kind != EXL2_EVENT_TEXT) {
        return EXL2_CONTINUE;
    }
    if (event->bytes >= sizeof t->reply - t->reply_bytes) {
        exl2_job_cancel(t->e, t->job); /* the schema allows no reply that is so long */
        return EXL2_CONTINUE;
    }
    memcpy(t->reply + t->reply_bytes, event->text, event->bytes + 1);
    t->reply_bytes += event->bytes;
    if (t->leave_at && t->reply_bytes >= t->leave_at) {
        exl2_job_cancel(t->e, t->job);
    }
    return EXL2_CONTINUE;
}

/* One job. EXL2_OK: the reply is whole, so it is one of the schema's branches. */
static exl2_result reply(talk *t, size_t only)
{
    char schema[4096];
    exl2_grammar g;
    write_schema(only, schema, sizeof schema);
    exl2_grammar_desc grammar = { .model = t->m, .kind = EXL2_GRAMMAR_JSON_SCHEMA, .source = schema };
    exl2_result r = exl2_grammar_make(t->e, &grammar, &g);
    if (r < 0) {
        return r;
    }
    exl2_job_desc d = { .session = t->session, .prompt = { .messages = t->messages, .message_count = t->count },
                        .chat.tools = t->info.reads_tools ? t->tools : NULL, .grammar = g,
                        .sampler.seed = t->seed + t->count, .on_event = hear, .user = t };
    t->reply_bytes = 0;
    t->speaks = true;
    r = exl2_job_start(t->e, &d, &t->job);
    exl2_grammar_close(t->e, g); /* the job keeps what it needs */
    while (r >= 0 && t->speaks) {
        exl2_step(t->e, NULL); /* a game calls it once a frame, with a budget */
    }
    return r < 0 ? r : t->result;
}

/* What the player says, and replies until one is an answer. After a cancel the talk is as it was. */
static exl2_result turn(talk *t, const char *text, size_t only)
{
    char name[32], said[1024], result[128];
    size_t count = t->count, used = t->texts_used, need;
    exl2_result r;
    add(t, (exl2_message){ .role = "user", .text = text });
    for (uint32_t calls = 0; (r = reply(t, only)) >= 0; calls++) {
        exl2_json_text(t->reply, t->reply_bytes, "/say", said, sizeof said, &need, NULL);
        if (need > 0) {
            printf("say: %s\n", said);
            add(t, (exl2_message){ .role = "assistant", .text = t->reply });
            return EXL2_OK;
        }
        exl2_json_text(t->reply, t->reply_bytes, "/name", name, sizeof name, &need, NULL);
        exl2_json_text(t->reply, t->reply_bytes, "/arguments", said, sizeof said, &need, NULL);
        size_t tool = tool_find(name);
        bool good = tools[tool].run(&t->world, said, result, sizeof result); /* the schema has no other names */
        printf("call: %s %s\n%s: %s\n", name, said, good ? "result" : "failed", result);
        add_call(t, result); /* also when it failed: the model should know */
        only = calls + 1 < CALLS_MAX ? ANY : ANSWER;
    }
    t->count = count;
    t->texts_used = used;
    return r;
}

/* ---- the program ---- */

static exl2_result show_prompt(talk *t)
{
    static char text[1 << 17];
    size_t need;
    exl2_chat_desc chat = { .tools = t->info.reads_tools ? t->tools : NULL };
    exl2_result r = exl2_chat_render(t->e, t->m, t->messages, t->count, &chat, text, sizeof text, &need);
    printf("%s\n", r < 0 ? "" : text);
    return r;
}

/* A line of stdin. An unknown tool or command is the user's mistake and ends nothing. */
static exl2_result obey(talk *t, char *line)
{
    size_t only = ANY;
    t->leave_at = 0;
    if (strcmp(line, "/prompt") == 0) {
        return show_prompt(t);
    }
    if (strncmp(line, "/leave ", 7) == 0) {
        t->leave_at = strtoul(line + 7, &line, 10);
        line += *line == ' ';
    } else if (line[0] == '@') {
        char *space = strchr(line, ' ');
        line[space ? space - line : (ptrdiff_t)strlen(line)] = 0;
        only = tool_find(line + 1);
        if (only == ANY || !space) {
            printf("there is no tool '%s', or nothing is said\n", line + 1);
            return EXL2_OK;
        }
        line = space + 1;
    }
    exl2_result r = turn(t, line, only);
    if (r == EXL2_ERR_CANCELLED) {
        printf("left after %zu bytes: %s\n", t->reply_bytes, t->reply);
        return EXL2_OK;
    }
    return r;
}

int main(int argc, char **argv)
{
    static talk t;
    static char system[4096], line[1024];
    exl2_error error = { EXL2_OK, 0, "" };
    char *end = "";
    t.seed = argc == 3 ? strtoull(argv[2], &end, 10) : 1;
    if ((argc != 2 && argc != 3) || *end) {
        fputs("usage: tools MODEL [SEED], with a whole number as the seed\n", stderr);
        return 2;
    }
    exl2_result r = exl2_open(&(exl2_engine_desc){ .open_error = &error }, &t.e);
    r = r < 0 ? r : exl2_model_load(t.e, &(exl2_model_desc){ .path = argv[1] }, &t.m);
    r = r < 0 ? r : exl2_model_get(t.e, t.m, &t.info);
    r = r < 0 ? r : exl2_session_open(t.e, t.m, &t.session);
    write_tools(t.tools, sizeof t.tools);
    snprintf(system, sizeof system, "You are the caretaker of a house. Reply in JSON: {\"name\": ..., \"arguments\": "
             "...} calls a tool, {\"say\": ...} speaks.%s%s", t.info.reads_tools ? "" : " Tools: ",
             t.info.reads_tools ? "" : t.tools);
    add(&t, (exl2_message){ .role = "system", .text = system });
    while (r >= 0 && talk_has_room(&t) && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\r\n")] = 0;
        r = obey(&t, line);
        fflush(stdout);
    }
    if (r < 0 && t.e) {
        exl2_last_error(t.e, &error);
    }
    if (r < 0) {
        fprintf(stderr, "%s\n", error.text);
    }
    exl2_close(t.e);
    return r < 0;
}
