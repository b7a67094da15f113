/* display.h: a virtual display for tests of windows, without extensions of X that a window could do without; and a
   second client of it, which presses keys.
   takes: Xvfb; libX11, loaded at run time.
   gives: display_open, display_window, display_type, display_close.
   owns:  the server's process. */
#ifndef DISPLAY_H
#define DISPLAY_H

#include "../../demo/render/library.c"
#include "../check.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct display_key { /* XKeyEvent */
    int type;
    unsigned long serial;
    int sent;
    void *display;
    unsigned long window, root, child, time;
    int x, y, root_x, root_y;
    unsigned state, code;
    int same_screen;
    long rest[12]; /* of the union XEvent */
} display_key;

static struct {
    pid_t server;
    void *connection;
    int (*query)(void *, unsigned long, unsigned long *, unsigned long *, unsigned long **, unsigned *);
    int (*send)(void *, unsigned long, int, long, display_key *);
    unsigned char (*code)(void *, unsigned long);
    int (*sync)(void *, int);
    unsigned long (*root)(void *);
    int (*release)(void *);
} display;

static inline void *display_call(void *library, const char *name)
{
    library_function found = library_find(library, name);
    void *address;
    memcpy(&address, &found, sizeof address);
    return address;
}

#define DISPLAY_CALL(member, name) \
    address = display_call(library, name), memcpy(&display.member, &address, sizeof address)

/* Starts a server and sets DISPLAY. false: there is no Xvfb or no libX11. */
static inline bool display_open(void)
{
    int ends[2];
    char number[16] = "", name[24];
    void *library = library_open("libX11.so.6"), *address;
    void *(*open)(const char *);
    if (!library || system("command -v Xvfb >/dev/null 2>&1") != 0 || !CHECK(pipe(ends) == 0)) {
        return false;
    }
    display.server = fork();
    if (display.server == 0) {
        char descriptor[16];
        snprintf(descriptor, sizeof descriptor, "%d", ends[1]);
        close(ends[0]);
        if (freopen("/dev/null", "w", stderr)) {
            execlp("Xvfb", "Xvfb", "-displayfd", descriptor, "-screen", "0", "1100x700x24", "-nolisten", "tcp",
                   "-extension", "MIT-SHM", "-extension", "RENDER", "-extension", "XTEST", "-extension", "GLX",
                   "-noreset", (char *)NULL);
        }
        _exit(127);
    }
    close(ends[1]);
    ssize_t got = 0;
    for (size_t used = 0; used + 1 < sizeof number && !strchr(number, '\n'); used += (size_t)got) {
        got = read(ends[0], number + used, sizeof number - 1 - used);
        if (got <= 0) {
            return false; /* it cannot run here */
        }
    }
    close(ends[0]);
    snprintf(name, sizeof name, ":%d", atoi(number));
    setenv("DISPLAY", name, 1);
    address = display_call(library, "XOpenDisplay");
    memcpy(&open, &address, sizeof open);
    DISPLAY_CALL(query, "XQueryTree");
    DISPLAY_CALL(send, "XSendEvent");
    DISPLAY_CALL(code, "XKeysymToKeycode");
    DISPLAY_CALL(sync, "XSync");
    DISPLAY_CALL(root, "XDefaultRootWindow");
    DISPLAY_CALL(release, "XFree");
    display.connection = open(NULL);
    return CHECK(display.connection != NULL);
}

/* The only window; 0: there is none yet. */
static inline unsigned long display_window(void)
{
    unsigned long root, parent, *children = NULL, found = 0;
    unsigned count = 0;
    void *to = display.connection;
    if (display.query(to, display.root(to), &root, &parent, &children, &count) && count) {
        found = children[count - 1];
        display.release(children);
    }
    return found;
}

/* Presses the keys of a text without capital letters; '\n' is Enter. */
static inline void display_type(unsigned long window, const char *text)
{
    for (; *text; text++) {
        display_key key = { .type = 2, .display = display.connection, .window = window, .same_screen = 1 };
        key.root = display.root(display.connection);
        key.code = display.code(display.connection, *text == '\n' ? 0xFF0D : (unsigned long)*text);
        CHECK(display.send(display.connection, window, 0, 1, &key));
        key.type = 3;
        CHECK(display.send(display.connection, window, 0, 2, &key));
    }
    display.sync(display.connection, 0);
}

static inline void display_close(void)
{
    if (display.server > 0) {
        kill(display.server, SIGTERM);
        waitpid(display.server, NULL, 0);
    }
}

#endif
