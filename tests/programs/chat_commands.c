/* chat_commands.c: the commands of `exl2 chat`, and chat formats by name: the next reply comes from what a command left
   of the conversation, and files that cannot be loaded change nothing. With a model of random weights.
   takes: chat_commands PROGRAM FOLDER: the program exl2, a folder to write to.
   gives: exit code 0 or 1.
   owns:  FOLDER. */
#define _POSIX_C_SOURCE 200809L
#include "program.h"

#define SEEDED "--seed 3 --temperature 1"
#define BEGIN "{\"messages\": [{\"role\": "

/* What chat says to these lines; the caller frees it. */
static char *chat(const char *flags, const char *lines, int code)
{
    program_write("typed", lines);
    CHECK_INT(program_run("chat '%s/model' --max 3 %s <'%s/typed'", folder, flags, folder),
              code);
    return program_read("out");
}

/* The last line that both say is the same, or differs. */
static void check_last(const char *flags, const char *lines, const char *others, bool same)
{
    char *a = chat(flags, lines, 0), *b = chat(flags, others, 0), *last[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        size_t bytes = strlen(last[i]);
        if (!CHECK(bytes > 1 && last[i][bytes - 1] == '\n')) {
            continue;
        }
        last[i][bytes - 1] = 0;
        char *row = strrchr(last[i], '\n');
        last[i] = row ? row + 1 : last[i];
    }
    if (!CHECK((strcmp(last[0], last[1]) == 0) == same)) {
        printf("'%s' and '%s'\n", last[0], last[1]);
    }
    free(a);
    free(b);
}

static void check_error(const char *file, const char *text, const char *sentence)
{
    char line[2048], *err;
    program_write(file, text);
    snprintf(line, sizeof line, "Hello.\n/load %s/%s\n", folder, file);
    free(chat(SEEDED, line, 1));
    err = program_read("err");
    if (!CHECK(strstr(err, sentence) != NULL)) {
        printf("%s\n", err);
    }
    free(err);
}

static void conversations(void)
{
    char lines[4096], *out, *err;
    check_last(SEEDED, "Hello.\nWho are you?\n/undo\nAnd the sea?\n", "Hello.\nAnd the sea?\n", true);
    check_last(SEEDED, "Hello.\nWho are you?\nAnd the sea?\n", "Hello.\nAnd the sea?\n", false);
    check_last(SEEDED, "Hello.\n/undo\n/undo\nAnd the sea?\n", "And the sea?\n", true);
    check_last(SEEDED, "Hello.\n", "Hello.\n/retry\n", false); /* the seed counts up */
    check_last("--greedy", "Hello.\nYou?\n", "Hello.\nYou?\n/retry\n", true);
    check_last(SEEDED, "One\\\ntwo\n", "One\n/undo\ntwo\n", false);
    out = chat(SEEDED, "/retry\n", 0);
    err = program_read("err");
    CHECK(strstr(err, "there is nothing to reply to") != NULL);
    free(out);
    free(err);

    snprintf(lines, sizeof lines, "/system Be brief.\nHello \"you\".\n/save %s/talk.json\n", folder);
    free(chat(SEEDED, lines, 0));
    char *text = program_read("talk.json");
    json_value *root = program_parse(text, strlen(text));
    const json_value *list = json_member(root, "messages");
    if (CHECK(list && list->child_count == 3)) {
        CHECK_TEXT(program_text(list->child, "role"), "system");
        CHECK_TEXT(program_text(list->child->next, "content"), "Hello \"you\".");
        CHECK_TEXT(program_text(list->child->next->next, "role"), "assistant");
    }
    json_free(root);
    free(text);
    char load[2048];
    snprintf(load, sizeof load, "Never mind.\n/load %s/talk.json\nGo on.\n", folder);
    check_last("--greedy", load, "/system Be brief.\nHello \"you\".\nGo on.\n", false); /* other seeds, other replies */
    snprintf(lines, sizeof lines, "/system Be brief.\nHello.\n/save %s/greedy.json\nGo on.\n", folder);
    snprintf(load, sizeof load, "Never mind.\n/load %s/greedy.json\nGo on.\n", folder);
    check_last("--greedy", lines, load, true);

    out = chat(SEEDED, "/timings\nHello.\n/timings\nHello.\n", 0);
    err = program_read("err");
    const char *figures = strstr(err, "(prompt: ");
    CHECK(figures && strstr(figures, " known; first token after ") && !strstr(figures + 1, "(prompt: "));
    free(out);
    free(err);
}

static void bad_files(void)
{
    check_error("a.json", "{\"messages\": [", "a.json: ");
    check_error("b.json", "[]", "b.json has no list \"messages\"");
    check_error("c.json", BEGIN "\"assistant\", \"content\": \"x\"}]}", "message 1 has another \"role\"");
    check_error("d.json", BEGIN "\"user\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": \"x\"}]}",
                "message 2 has another \"role\"");
    check_error("e.json", BEGIN "\"user\", \"content\": [1]}]}", "message 1 has no text as its \"content\"");
    check_error("f.json", BEGIN "\"user\", \"content\": \"a\\u0000b\"}]}", "message 1 has no text");
    check_error("g.json", "{\"messages\": [7]}", "message 1 has another \"role\"");
    free(chat(SEEDED, "/load /nowhere/talk.json\n", 1));
    program_sentence(1, 1, "/nowhere/talk.json: No such file");
    free(chat(SEEDED, "Hello.\n/save /nowhere/talk.json\n", 1));
    program_sentence(1, 1, "/nowhere/talk.json: ");
    free(chat(SEEDED, "/save\n", 1));
    program_sentence(1, 1, "/save needs the name of a file");
}

/* A folder without a template: chat names the formats; with one of them it replies. */
static void formats(void)
{
    char command[4096];
    snprintf(command, sizeof command, "rm '%s/model/tokenizer_config.json'", folder);
    CHECK_INT(system(command), 0);
    free(chat(SEEDED, "Hello.\n", 1));
    program_sentence(1, 1, "has no chat template: name a format, such as '--template raw' (alpaca, chatml, ");
    check_last("--template raw --greedy", "Hello.\n", "Hello.\n", true);
    check_last("--template chatml --greedy", "Hello.\n/undo\nYou?\n", "You?\n", true);
    free(chat("--template nosuch", "Hello.\n", 1));
    program_sentence(1, 1, "has no chat template: ");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: chat_commands PROGRAM FOLDER\n", stderr);
        return 1;
    }
    program_set(argv[1], argv[2]);
    program_make_model(program, "model", 1, 1);
    conversations();
    bad_files();
    formats();
    program_set(argv[1], argv[2]); /* the model is large */
    return check_done();
}
