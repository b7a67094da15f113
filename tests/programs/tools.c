/* tools.c: the program tools on a model with random weights: calls with their results, one that fails, names that do
   not exist, a reply that is cancelled in a call; with a template that reads tools and one that drops them.
   takes: tools TOOLS EXL2 FOLDER: the two programs, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define SCRIPT "@open_door Open a door.\n@set_lamp Light!\n@look What is here?\n"

/* Writes tools and tool_calls as JSON, so that a test can read them again. */
static const char reads[] =
    "{% if tools %}[tools]{{ tools | tojson }}\n{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}[call {{ c.id }}]{{ c.function | tojson }}{% endfor %}{% endif %}"
    "{% if m.tool_call_id %}[of {{ m.tool_call_id }}]{% endif %}\n{% endfor %}[reply]";

static char *talk(const char *seed, const char *script, int code)
{
    char model[1100];
    snprintf(model, sizeof model, "%s/model", folder);
    program_write("script", script);
    CHECK_INT(program_run("'%s' %s <'%s/script'", model, seed, folder), code);
    return program_read("out");
}

static uint32_t count_of(const char *text, const char *piece)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, piece)) != NULL; at += strlen(piece)) {
        count++;
    }
    return count;
}

/* Each call has the arguments of its schema and the result that follows from them. Returns the number of calls. */
static uint32_t check_calls(const char *out)
{
    uint32_t calls = 0, turns = 0;
    for (const char *at = out; (at = strstr(at, "call: ")) != NULL; at += 6, calls++) {
        char name[32] = "", arguments[64] = "", kind[16] = "", wanted[64], result[64] = "";
        CHECK_INT(sscanf(at, "call: %31s %63[^\n]\n%15[a-z]: %63[^\n]", name, arguments, kind, result), 4);
        bool north = strstr(arguments, "\"north\"") != NULL, on = strstr(arguments, "true") != NULL;
        if (strcmp(name, "open_door") == 0) {
            CHECK(north || strstr(arguments, "\"south\""));
            CHECK_TEXT(kind, north ? "failed" : "result");
            CHECK_TEXT(result, north ? "error: the north door is locked" : "the south door is open");
        } else if (strcmp(name, "set_lamp") == 0) {
            snprintf(wanted, sizeof wanted, "the lamp is %s", on ? "on" : "off");
            CHECK(on || strstr(arguments, "false"));
            CHECK_TEXT(kind, "result");
            CHECK_TEXT(result, wanted);
        } else {
            CHECK_TEXT(name, "look");
            CHECK_TEXT(arguments, "{}");
            CHECK(strncmp(result, "the lamp is ", 12) == 0);
        }
    }
    turns = count_of(out, "\nsay: ") + (strncmp(out, "say: ", 5) == 0);
    CHECK(calls <= 4 * turns);
    return calls;
}

/* At each seed a turn makes the call that it must, and every turn ends in an answer. One seed has a door that fails. */
static void check_turns(void)
{
    uint32_t failed = 0, opened = 0;
    for (uint32_t seed = 1; seed <= 3; seed++) {
        char text[8];
        snprintf(text, sizeof text, "%u", seed);
        char *out = talk(text, SCRIPT, 0);
        CHECK(strncmp(out, "call: open_door ", 16) == 0);
        CHECK(strstr(out, "\ncall: set_lamp ") && strstr(out, "\ncall: look {}\n"));
        CHECK(check_calls(out) >= 3);
        CHECK_INT(count_of(out, "\nsay: "), 3);
        failed += count_of(out, "failed: ");
        opened += count_of(out, "result: the south door is open");
        free(out);
    }
    CHECK(failed > 0 && opened > 0);
}

/* The calls and results of a turn are in the next prompt. A turn that was left in a call leaves nothing behind: neither
   a message nor a change of the world. */
static void check_prompt(bool in_template)
{
    char *before = talk("3", SCRIPT "/prompt\n", 0);
    char *prompt = strstr(before, in_template ? "[tools]" : "<|im_start|>system");
    if (!CHECK(prompt != NULL)) {
        free(before);
        return;
    }
    CHECK_INT(count_of(prompt, "\"description\""), 3);
    CHECK_INT(count_of(prompt, in_template ? "[call call0" : "Result: "), check_calls(before));
    CHECK_INT(count_of(prompt, "[of call0"), in_template ? check_calls(before) : 0);
    CHECK_INT(strstr(prompt, "Tools: ") != NULL, !in_template);
    char *left = talk("3", SCRIPT "/leave 14 @x\n/leave 27 Open!\n/prompt\n", 0);
    const char *at = strstr(left, "left after ");
    CHECK(at != NULL && strstr(at, in_template ? "[tools]" : "<|im_start|>system") != NULL);
    CHECK_INT(count_of(left, "left after "), 2);
    CHECK_TEXT(strstr(left, in_template ? "[tools]" : "<|im_start|>system"), prompt);
    CHECK_INT(count_of(left, "call: "), count_of(before, "call: "));
    free(left);
    free(before);
}

static void check_mistakes(void)
{
    char *out = talk("1", "@fly Up!\n@look\n", 0);
    CHECK_TEXT(out, "there is no tool 'fly', or nothing is said\nthere is no tool 'look', or nothing is said\n");
    free(out);
    program_sentence(program_run("'%s/nowhere'", folder), 1, "config.json");
    program_sentence(program_run(""), 2, "usage: tools MODEL [SEED]");
    program_sentence(program_run("'%s/model' seven", folder), 2, "a whole number as the seed");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: tools TOOLS EXL2 FOLDER\n", stderr);
        return 2;
    }
    program_set(argv[1], argv[3]);
    program_make_model(argv[2], "model", 1, 1);
    check_turns();
    check_prompt(false);
    check_mistakes();
    program_write("model/chat_template.jinja", reads);
    check_prompt(true);
    check_turns();
    return check_done();
}
