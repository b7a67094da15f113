/* console.c: see console.h.
   takes: POSIX terminals and signals; the Win32 console.
   gives: what console.h declares.
   owns:  on Windows the copy of the arguments, until the process ends. */
#define _DEFAULT_SOURCE
#include "console.h"

#ifdef _WIN32
#include "memory.h"

#include <direct.h>
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

uint32_t console_columns(void)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    bool known = GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info) != 0;
    return known ? (uint32_t)(info.srWindow.Right - info.srWindow.Left + 1) : 0;
}

bool console_make_folder(const char *path)
{
    return _mkdir(path) == 0;
}
#else
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

char **console_start(int argc, char **argv)
{
    (void)argc;
    signal(SIGPIPE, SIG_IGN);
    return argv;
}

uint32_t console_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool console_make_folder(const char *path)
{
    return mkdir(path, 0777) == 0;
}
#endif
