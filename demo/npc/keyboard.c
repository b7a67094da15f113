/* keyboard.c: see keyboard.h.
   takes: POSIX terminals; the Win32 console.
   gives: what keyboard.h declares.
   owns:  the terminal's mode. */
#define _POSIX_C_SOURCE 200809L
#include "keyboard.h"

/* The line of a key that ends one, or the command that stands for a function key. */
static const char *line_of(const keyboard *k, line_key key)
{
    return key == LINE_SAVE ? "/save" : key == LINE_LOAD ? "/load" : key == LINE_LESS ? "/mood -"
         : key == LINE_MORE ? "/mood +" : k->line.entered.text;
}

#ifdef _WIN32
#include <string.h>
#include <windows.h>

void keyboard_open(keyboard *k)
{
    HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
    DWORD mode = 0;
    *k = (keyboard){ 0 };
    if (GetConsoleMode(console, &mode)) {
        k->before = mode;
        mode &= ~(DWORD)(ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT);
        k->open = SetConsoleMode(console, mode | ENABLE_PROCESSED_INPUT) != 0; /* Ctrl-C stays an event */
    }
}

void keyboard_close(keyboard *k)
{
    if (k->open) {
        SetConsoleMode(GetStdHandle(STD_INPUT_HANDLE), k->before);
    }
    k->open = false;
}

/* The bytes that a POSIX terminal sends for a key without a character; "" for any other key. */
static const char *sequence_of(WORD key)
{
    switch (key) {
    case VK_UP: return "\x1b[A";
    case VK_DOWN: return "\x1b[B";
    case VK_RIGHT: return "\x1b[C";
    case VK_LEFT: return "\x1b[D";
    case VK_HOME: return "\x1b[H";
    case VK_END: return "\x1b[F";
    case VK_DELETE: return "\x1b[3~";
    case VK_F5: return "\x1b[15~";
    case VK_F6: return "\x1b[17~";
    case VK_F7: return "\x1b[18~";
    case VK_F9: return "\x1b[20~";
    default: return "";
    }
}

/* Writes the bytes of a key event to out, which has 8 bytes, and returns their number. */
static uint32_t bytes_of(keyboard *k, const KEY_EVENT_RECORD *event, char *out)
{
    wchar_t unit = event->uChar.UnicodeChar, text[2] = { (wchar_t)k->high, unit };
    bool pair = k->high && (unit & 0xFC00) == 0xDC00;
    if (!event->bKeyDown && event->wVirtualKeyCode != VK_MENU) { /* Alt gives the character of a typed number */
        return 0;
    }
    if (unit == 0) {
        const char *sequence = event->bKeyDown ? sequence_of(event->wVirtualKeyCode) : "";
        memcpy(out, sequence, strlen(sequence));
        return (uint32_t)strlen(sequence);
    }
    k->high = (unit & 0xFC00) == 0xD800 ? unit : 0;
    return k->high ? 0 : (uint32_t)WideCharToMultiByte(CP_UTF8, 0, pair ? text : text + 1, pair ? 2 : 1, out, 8, NULL,
                                                       NULL);
}

const char *keyboard_line(keyboard *k)
{
    HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
    DWORD waiting = 0;
    INPUT_RECORD event;
    while (!k->at_end) {
        if (!PeekConsoleInputW(console, &event, 1, &waiting)
            || (waiting && !ReadConsoleInputW(console, &event, 1, &waiting))) {
            k->at_end = true;
            break;
        }
        if (!waiting) {
            break;
        }
        char bytes[8];
        const KEY_EVENT_RECORD *typed = &event.Event.KeyEvent;
        uint32_t count = event.EventType == KEY_EVENT ? bytes_of(k, typed, bytes) : 0;
        for (uint32_t i = 0; i < count * (typed->wRepeatCount ? typed->wRepeatCount : 1u); i++) {
            line_key key = line_edit_byte(&k->line, (unsigned char)bytes[i % count]);
            if (key != LINE_TYPING && key != LINE_CLOSED) {
                return line_of(k, key);
            }
            k->at_end = key == LINE_CLOSED;
        }
    }
    return NULL;
}
#else
#include <errno.h>
#include <poll.h>
#include <unistd.h>

void keyboard_open(keyboard *k)
{
    *k = (keyboard){ 0 };
    if (tcgetattr(STDIN_FILENO, &k->before) == 0) {
        struct termios mode = k->before;
        mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        mode.c_cc[VMIN] = 1;
        mode.c_cc[VTIME] = 0;
        mode.c_cc[VSUSP] = _POSIX_VDISABLE; /* a program stopped by Ctrl-Z would leave the terminal in this mode */
        k->open = tcsetattr(STDIN_FILENO, TCSANOW, &mode) == 0;
    }
}

void keyboard_close(keyboard *k)
{
    if (k->open) {
        tcsetattr(STDIN_FILENO, TCSANOW, &k->before);
    }
    k->open = false;
}

const char *keyboard_line(keyboard *k)
{
    struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
    while (!k->at_end && poll(&keys, 1, 0) > 0) {
        unsigned char byte;
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        line_key key = got == 1 ? line_edit_byte(&k->line, byte) : LINE_TYPING;
        if (key != LINE_TYPING && key != LINE_CLOSED) {
            return line_of(k, key);
        }
        k->at_end = key == LINE_CLOSED || got == 0 || (got < 0 && errno != EINTR);
    }
    return NULL;
}
#endif
