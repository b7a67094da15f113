/* chat.c: `exl2 chat` in a terminal: its first lines, its commands, replies wrapped between words; and the same
   conversation through pipes, where replies are passed on unchanged.
   takes: chat PROGRAM FOLDER: the program, a folder to write to; the real model.
   gives: exit code 0, 1 or 77 (no model).
   owns:  FOLDER. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "terminal.h"

#define COLUMNS 30

static const char *model;

/* The words of `text` from `start` on, separated by one blank, until `end`. */
static char *words(const char *text, const char *start, const char *end)
{
    const char *at = strstr(text, start), *stop = at ? strstr(at + strlen(start), end) : NULL;
    memory_text out = { 0 };
    if (!CHECK(at != NULL) || !CHECK(stop != NULL)) {
        printf("%s\n", text);
        exit(1);
    }
    for (at += strlen(start); at < stop; at++) {
        bool blank = *at == ' ' || *at == '\r' || *at == '\n';
        if (!blank || (out.bytes && out.data[out.bytes - 1] != ' ')) {
            memory_text_add(&out, blank ? " " : at, 1);
        }
    }
    while (out.bytes && out.data[out.bytes - 1] == ' ') {
        out.bytes--;
    }
    char *copy = memory_copy_text(out.data ? out.data : "", out.bytes);
    free(out.data);
    return copy;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        printf("usage: chat PROGRAM FOLDER\n");
        return 1;
    }
    model = check_model();
    setenv("NO_COLOR", "1", 1);
    program_set(argv[1], argv[2]);
    program_write("typed", "Tell me about the sea.\n/system Answer in French.\n/help\n/sing\n/reset\n");
    CHECK_INT(program_run("chat '%s' --greedy --max 40 --threads 2 --backend cpu <'%s/typed'", model, folder), 0);
    char *out = program_read("out"), *err = program_read("err");
    CHECK(strstr(err, "unknown command '/sing'; /help lists the commands") != NULL);
    CHECK(strncmp(out, "Type ", 5) != 0 && strchr(out, '>') == NULL); /* no prompts for a user who is not present */
    size_t first = strcspn(out, "\n");
    CHECK(first > COLUMNS); /* a pipe gets the reply unwrapped */
    CHECK(strstr(out, "/system TEXT") != NULL && strstr(out, "/reset") != NULL);
    char *piped = memory_copy_text(out, (size_t)(strstr(out, "/image FILE") - out)), *shown, *wanted, *got;
    free(out);
    free(err);

    shown = terminal_run(COLUMNS, "Tell me about the sea.\n/quit\n",
                         "chat '%s' --greedy --max 40 --threads 2 --backend cpu", model);
    CHECK(strstr(shown, "/help lists the commands") != NULL && strstr(shown, "/help") < strstr(shown, "> "));
    got = words(shown, "> ", "\n> ");
    out = memory_take(strlen(piped) + 8, 1);
    sprintf(out, "> %s\n> ", piped);
    wanted = words(out, "> ", "\n> ");
    CHECK_TEXT(got, wanted); /* no word is split or lost */
    size_t widest = 0, column = 0;
    /* the echo of the typed line has already ended this row */
    for (const char *at = strstr(shown, "> ") + 2; *at; at++) {
        column = *at == '\n' || *at == '\r' ? 0 : column + ((*at & 0xC0) != 0x80);
        widest = column > widest ? column : widest;
    }
    if (!CHECK(widest <= COLUMNS && widest > COLUMNS / 2)) {
        printf("%zu columns:\n%s\n", widest, shown);
    }
    free(out);
    free(got);
    free(wanted);
    free(shown);
    free(piped);

    /* A system message passed at the start and one set by the command give the same conversation. */
    program_write("typed", "Who are you?\n");
    CHECK_INT(program_run("chat '%s' --system 'You are a pirate.' --greedy --max 12 <'%s/typed'", model, folder), 0);
    wanted = program_read("out");
    program_write("typed", "/system You are a pirate.\nWho are you?\n");
    CHECK_INT(program_run("chat '%s' --greedy --max 12 <'%s/typed'", model, folder), 0);
    got = program_read("out");
    CHECK_TEXT(got, wanted);
    free(got);
    program_write("typed", "/system\nWho are you?\n");
    CHECK_INT(program_run("chat '%s' --system 'You are a pirate.' --greedy --max 12 <'%s/typed'", model, folder), 0);
    got = program_read("out");
    CHECK(strcmp(got, wanted) != 0);
    free(got);
    free(wanted);

    /* A talk that is many times as long as the context: no turn fails, and each gets a reply. */
    char lines[40 * 64] = "";
    for (int i = 0; i < 40; i++) {
        sprintf(lines + strlen(lines), "What do you know about the number %d?\n", 100 + i);
    }
    program_write("typed", lines);
    CHECK_INT(program_run("chat '%s' --system 'You are a pirate.' --greedy --max 12 --context 256 <'%s/typed'", model,
                          folder), 0);
    got = program_read("out");
    size_t replies = 0;
    for (const char *at = got; *at; at++) {
        replies += *at == '\n';
    }
    CHECK(replies >= 40);
    free(got);
    return check_done();
}
