/* reply_view.c: how a reply of `exl2 chat` looks in a terminal: prose broken between words, code blocks as they are and
   in colour, the same screen in whatever pieces the text comes; and the text unchanged where there is no terminal.
   takes: reply_view FOLDER: a folder to write to. The program runs itself: reply_view show BYTES prints the reply.
   gives: exit code 0, 1 or 77 (no pseudo terminal).
   owns:  FOLDER. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#include "terminal.h"

#include "../../demo/cli/reply_view.c"
#undef _DEFAULT_SOURCE
#include "../../demo/common/console.c"
#undef _DEFAULT_SOURCE
#include "../../demo/common/wrap.c"

static const char reply[] = "Here is a program that says hello:\n\n```c\nint main(void) { puts(\"hello, world\"); }\n"
                            "```\nUse `cc` to build it. ``Two`` ticks begin no block.\n```\nlast";

/* On 24 columns. `code` and `plain` stand where colours begin and end. */
static char *screen(const char *code, const char *plain)
{
    memory_text t = { 0 };
    memory_text_format(&t, "Here is a program that\r\nsays hello:\r\n\r\n%s```c\r\nint main(void) { "
                       "puts(\"hello, world\"); }\r\n```\r\n%sUse `cc` to build it.\r\n``Two`` ticks begin no\r\n"
                       "block.\r\n%s```\r\nlast%s\r\n", code, plain, code, plain);
    memory_text_add(&t, "", 1);
    return t.data;
}

static int show(size_t piece)
{
    reply_view v;
    reply_view_open(&v);
    for (size_t at = 0; at < sizeof reply - 1; at += piece) {
        size_t left = sizeof reply - 1 - at;
        reply_view_text(&v, reply + at, left < piece ? left : piece);
    }
    reply_view_end(&v);
    return 0;
}

static void check_screen(const char *wanted, unsigned piece)
{
    char *got = terminal_run(24, "", "show %u", piece);
    CHECK_TEXT(got, wanted);
    free(got);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "show") == 0) {
        return show((size_t)atoi(argv[2]));
    }
    if (argc != 2) {
        printf("usage: reply_view FOLDER\n");
        return 1;
    }
    program_set(argv[0], argv[1]);
    char *colored = screen("\033[36m", "\033[0m"), *bare = screen("", "");
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    for (unsigned piece = 1; piece < 100; piece += piece < 8 ? 1 : 30) {
        check_screen(colored, piece);
    }
    setenv("NO_COLOR", "1", 1);
    check_screen(bare, 5);
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    check_screen(bare, 5);
    setenv("TERM", "xterm", 1);
    CHECK_INT(program_run("show 7"), 0);
    char *out = program_read("out");
    CHECK(strncmp(out, reply, sizeof reply - 1) == 0 && strcmp(out + sizeof reply - 1, "\n") == 0);
    free(out);
    free(colored);
    free(bare);
    return check_done();
}
