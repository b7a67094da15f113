/* interrupt.c: see interrupt.h.
   takes: POSIX signals.
   gives: what interrupt.h declares.
   owns:  one flag. */
#define _POSIX_C_SOURCE 200809L
#include "interrupt.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t flag;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    flag = 1;
}

static void watch(int signal_number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* the second signal ends the process */
    sigaction(signal_number, &action, NULL);
}

void interrupt_watch(void)
{
    flag = 0;
    watch(SIGINT);
}

void interrupt_watch_ends(void)
{
    watch(SIGTERM);
    watch(SIGHUP);
}

bool interrupted(void)
{
    return flag != 0;
}
