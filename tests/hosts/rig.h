/* rig.h: what all cases of hosts.c share: commands in a work folder, and the compilers of this machine.
   takes: the folders, which main of hosts.c sets.
   gives: run, MUST, have, need, everything, compilers, cpu_has.
   owns:  the paths of the folders. */
#ifndef HOSTS_RIG_H
#define HOSTS_RIG_H

#include "../check.h"

#include <stdarg.h>
#include <stdbool.h>
#include <sys/wait.h>

#define WARNINGS "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"

static char root[1024], build[1024], hosts[1100], dist[1100], work[1200];
static char tree[2200]; /* include options for an application of the source tree: the tree, and exl2_kernels.inc */
static char whole[4600]; /* options for a test that compiles the files of the engine which it includes (TEST_WHOLE) */

/* Runs the command in the work folder and returns its exit code. */
static int run(const char *format, ...)
{
    char command[8192], full[9600];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(full, sizeof full, "cd '%s' && %s", work, command);
    printf("+ %s\n", command);
    fflush(stdout);
    int status = system(full);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

#define MUST(...) CHECK(run(__VA_ARGS__) == 0)

static bool have(const char *tool)
{
    char command[256];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", tool);
    return system(command) == 0;
}

static void need(const char *tool)
{
    if (!have(tool)) {
        char reason[256];
        snprintf(reason, sizeof reason, "no %s", tool);
        check_skip(reason);
    }
}

/* Is this `tests/run.sh --all`? Else few engines are compiled: other compilers and switches are only parsed, in a
   quarter of the time. clang gives all its warnings then; gcc does not say which functions are unused. */
static bool everything(void)
{
    return getenv("EXL2_TEST_ALL") != NULL;
}

/* The C compilers of this machine. If clang is missing, the case still runs with gcc. */
static size_t compilers(const char *const *wanted, const char **found)
{
    size_t count = 0;
    for (; *wanted; wanted++) {
        if (have(*wanted)) {
            found[count++] = *wanted;
        }
    }
    if (count == 0) {
        check_skip("no compiler for this host");
    }
    return count;
}

static const char *const c_compilers[] = { "gcc", "clang", NULL };
static const char *const cpp_compilers[] = { "g++", "clang++", NULL };

/* Whether this CPU has every one of these flags of /proc/cpuinfo. */
static bool cpu_has(const char *flags)
{
    return run("for flag in %s; do grep -qw \"$flag\" /proc/cpuinfo || exit 1; done", flags) == 0;
}

#endif
