/* terminal.h: runs a program in a pseudo terminal.
   takes: program_set; _XOPEN_SOURCE 700 and _DEFAULT_SOURCE before the first include.
   gives: terminal_run.
   owns:  nothing; the caller frees what it gets. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include "program.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* What the program prints on a terminal of 24 rows if `typed` is waiting as input. It must end with exit code 0. */
static inline char *terminal_run(unsigned short columns, const char *typed, const char *format, ...)
{
    struct winsize size = { .ws_row = 24, .ws_col = columns };
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    char flags[4096], command[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(flags, sizeof flags, format, args);
    va_end(args);
    snprintf(command, sizeof command, "'%s' %s; code=$?; printf '\\001'; exit $code", program, flags);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 || ioctl(master, TIOCSWINSZ, &size) != 0) {
        check_skip("no pseudo terminal");
    }
    /* This process has the terminal open, too: at the last close the kernel may drop what was not read. */
    int held = open(ptsname(master), O_RDWR | O_NOCTTY);
    printf("+ %s (in a terminal)\n", flags);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        int terminal = open(ptsname(master), O_RDWR);
        for (int i = 0; i < 3; i++) {
            dup2(terminal, i);
        }
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    CHECK(write(master, typed, strlen(typed)) == (ssize_t)strlen(typed));
    memory_text said = { 0 };
    char part[512];
    ssize_t bytes;
    bool ended = false; /* \001 follows the program's last byte */
    while (!ended && (bytes = read(master, part, sizeof part)) > 0) {
        ended = part[bytes - 1] == '\001';
        memory_text_add(&said, part, (size_t)(bytes - ended));
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(held);
    close(master);
    char *text = memory_copy_text(said.data ? said.data : "", said.bytes);
    free(said.data);
    return text;
}

#endif
