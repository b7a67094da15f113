/* keyboard.c: see keyboard.h.
   takes: POSIX terminals.
   gives: what keyboard.h declares.
   owns:  the terminal's mode.
   next:  screen.c */
#define _POSIX_C_SOURCE 200809L
#include "keyboard.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define CTRL_D 4
#define CTRL_U 21
#define ESCAPE 27
#define RUBOUT 127

void keyboard_open(keyboard *k)
{
    *k = (keyboard){ 0 };
    if (tcgetattr(STDIN_FILENO, &k->before) == 0) {
        struct termios mode = k->before;
        mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        mode.c_cc[VMIN] = 1;
        mode.c_cc[VTIME] = 0;
        mode.c_cc[VSUSP] = _POSIX_VDISABLE; /* a stopped program would leave the shell in this mode */
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

/* Arrow keys and the like: ESC, then '[' or 'O', then anything up to a letter or '~'. */
static bool inside_escape(keyboard *k, unsigned char c)
{
    if (k->escape == 0) {
        k->escape = c == ESCAPE;
    } else if (k->escape == 1) {
        k->escape = c == '[' || c == 'O' ? 2 : 0;
        return true;
    } else {
        k->escape = c >= '@' && c <= '~' ? 0 : 2;
        return true;
    }
    return k->escape != 0;
}

/* Takes back one code point: its last byte, and the continuation bytes 10xxxxxx in front of which it began. */
static void rub_out(keyboard *k)
{
    while (k->bytes && ((unsigned char)k->text[k->bytes - 1] & 0xC0) == 0x80) {
        k->bytes--;
    }
    k->bytes -= k->bytes > 0;
    k->text[k->bytes] = 0;
}

/* true: Enter ended a line. */
static bool take_key(keyboard *k, unsigned char c)
{
    if (inside_escape(k, c)) {
        return false;
    }
    if (c == '\n' || c == '\r') {
        memcpy(k->line, k->text, k->bytes + 1);
        k->bytes = 0;
        k->text[0] = 0;
        return true;
    }
    if (c == RUBOUT || c == '\b') {
        rub_out(k);
    } else if (c == CTRL_U) {
        k->bytes = 0;
        k->text[0] = 0;
    } else if (c == CTRL_D) {
        k->at_end = k->at_end || k->bytes == 0;
    } else if (c >= ' ' && k->bytes + 1 < sizeof k->text) {
        k->text[k->bytes++] = (char)c;
        k->text[k->bytes] = 0;
    }
    return false;
}

const char *keyboard_line(keyboard *k)
{
    struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
    while (!k->at_end && poll(&keys, 1, 0) > 0) {
        unsigned char c;
        ssize_t got = read(STDIN_FILENO, &c, 1);
        if (got == 1 && take_key(k, c)) {
            return k->line;
        }
        k->at_end = k->at_end || got == 0 || (got < 0 && errno != EINTR);
    }
    return NULL;
}
