/* interrupt.c: see interrupt.h.
   takes: POSIX signals; control events of the Windows console.
   gives: what interrupt.h declares.
   owns:  one flag. */
#define _POSIX_C_SOURCE 200809L
#include "interrupt.h"

#ifdef _WIN32
#include <windows.h>

static volatile LONG flag;
static bool watches_ends; /* the closing of the console, too */

/* Runs on a thread of its own. The second event ends the process. */
static BOOL WINAPI on_event(DWORD event)
{
    bool known = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT || watches_ends;
    return known && InterlockedExchange(&flag, 1) == 0;
}

void interrupt_watch(void)
{
    SetConsoleCtrlHandler(on_event, FALSE); /* of an earlier call */
    SetConsoleCtrlHandler(on_event, TRUE);
}

void interrupt_forget(void)
{
    InterlockedExchange(&flag, 0);
}

void interrupt_watch_ends(void)
{
    watches_ends = true;
}
#else
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

/* After the first signal the handler is not set again, so that a second one ends the process. */
void interrupt_watch(void)
{
    if (!flag) {
        watch(SIGINT);
    }
}

static void watch_end(int signal_number)
{
    struct sigaction before;
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        watch(signal_number);
    }
}

void interrupt_watch_ends(void)
{
    watch_end(SIGTERM);
    watch_end(SIGHUP);
}

void interrupt_forget(void)
{
    flag = 0;
    watch(SIGINT);
}
#endif

bool interrupted(void)
{
    return flag != 0;
}
