/* interrupt.c: Ctrl-C as a flag: it is kept until the program obeys it, and what ignored signals do.
   takes: demo/common/interrupt.c.
   gives: exit code 0 or 1. */
#include "../../demo/common/interrupt.c"

#include "../check.h"

static bool has_handler(int signal_number)
{
    struct sigaction now;
    CHECK_INT(sigaction(signal_number, NULL, &now), 0);
    return now.sa_handler == on_interrupt;
}

static void set(int signal_number, void (*to)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = to;
    CHECK_INT(sigaction(signal_number, &action, NULL), 0);
}

/* A second call of interrupt_watch neither forgets the first Ctrl-C nor lets the program survive the next. */
static void kept(void)
{
    interrupt_watch();
    CHECK(!interrupted() && has_handler(SIGINT));
    CHECK_INT(raise(SIGINT), 0);
    CHECK(interrupted() && !has_handler(SIGINT));
    interrupt_watch();
    CHECK(interrupted() && !has_handler(SIGINT));
    interrupt_forget();
    CHECK(!interrupted() && has_handler(SIGINT));
    CHECK_INT(raise(SIGINT), 0);
    CHECK(interrupted());
    interrupt_forget();
}

/* SIGINT is taken where it was ignored; nohup's SIGHUP is not. */
static void ignored(void)
{
    set(SIGINT, SIG_IGN);
    set(SIGHUP, SIG_IGN);
    set(SIGTERM, SIG_DFL);
    interrupt_watch();
    interrupt_watch_ends();
    CHECK(has_handler(SIGINT) && has_handler(SIGTERM) && !has_handler(SIGHUP));
    CHECK_INT(raise(SIGHUP), 0);
    CHECK(!interrupted());
    CHECK_INT(raise(SIGTERM), 0);
    CHECK(interrupted());
}

int main(void)
{
    kept();
    ignored();
    return check_done();
}
