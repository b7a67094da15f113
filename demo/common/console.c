/* console.c: see console.h.
   takes: POSIX terminals and signals; the Win32 console.
   gives: what console.h declares.
   owns:  on Windows the copy of the arguments, until the process ends. */
#define _DEFAULT_SOURCE
#include "console.h"

#ifdef _WIN32
#include "memory.h"

#include <windows.h>
#include <shellapi.h>

/* The bytes of a console are UTF-8, and its text understands ANSI sequences. Each fails where this is a file. */
static void prepare_output(DWORD which)
{
    HANDLE console = GetStdHandle(which);
    DWORD mode;
    if (GetConsoleMode(console, &mode)) {
        SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
}

char **console_start(int argc, char **argv)
{
    int count = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &count);
    SetConsoleOutputCP(CP_UTF8);
    SetConsoleCP(CP_UTF8);
    prepare_output(STD_OUTPUT_HANDLE);
    prepare_output(STD_ERROR_HANDLE);
    if (!wide || count != argc) {
        LocalFree(wide);
        return argv;
    }
    char **out = memory_take((size_t)count + 1, sizeof *out);
    for (int i = 0; i < count; i++) {
        int bytes = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        out[i] = memory_take((size_t)bytes + 1, 1);
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, out[i], bytes, NULL, NULL);
    }
    LocalFree(wide);
    return out;
}

bool console_size(uint32_t *columns, uint32_t *rows)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info)) {
        return false;
    }
    *columns = (uint32_t)(info.srWindow.Right - info.srWindow.Left + 1);
    *rows = (uint32_t)(info.srWindow.Bottom - info.srWindow.Top + 1);
    return true;
}

bool console_is_live(void)
{
    DWORD mode;
    return GetConsoleMode(GetStdHandle(STD_OUTPUT_HANDLE), &mode) && (mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}
#else
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

char **console_start(int argc, char **argv)
{
    (void)argc;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the user's limit of a file's size fails, as on a full disk */
    return argv;
}

bool console_size(uint32_t *columns, uint32_t *rows)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
        return false;
    }
    *columns = size.ws_col;
    *rows = size.ws_row;
    return true;
}

bool console_is_live(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}
#endif
