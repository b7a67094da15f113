/* keyboard.c: see keyboard.h.
   takes: POSIX terminals.
   gives: what keyboard.h declares.
   owns:  the terminal's mode. */
#define _POSIX_C_SOURCE 200809L
#include "keyboard.h"

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
        if (key == LINE_ENTERED) {
            return k->line.entered.text;
        }
        k->at_end = key == LINE_CLOSED || got == 0 || (got < 0 && errno != EINTR);
    }
    return NULL;
}
