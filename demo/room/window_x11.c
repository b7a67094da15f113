/* window_x11.c: the window under X11. libX11 is loaded at run time, so neither its headers nor the library are needed
   to build; no extension of X is needed to run.
   takes: libX11.so.6, the display that DISPLAY names.
   gives: what window.h declares.
   owns:  the connection and the window. */
#ifndef _WIN32
#include "window.h"

#include "../common/memory.h"
#include "../render/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what Xlib.h declares: the parts that are used, laid out as its binary interface has them ---- */

typedef struct x_display x_display;
typedef struct x_gc *x_gc;
typedef unsigned long x_id; /* of windows, atoms and key symbols */

typedef struct x_visual {
    void *extension;
    x_id id;
    int class;
    unsigned long red_mask, green_mask, blue_mask;
} x_visual;

typedef struct x_image { /* its first members */
    int width, height, offset, format;
    char *data;
    int byte_order, unit, bit_order, pad, depth, row_bytes, bits_per_pixel;
} x_image;

typedef struct x_key {
    int type;
    unsigned long serial;
    int sent;
    x_display *display;
    x_id window, root, child;
    unsigned long time;
    int x, y, root_x, root_y;
    unsigned state, code;
    int same_screen;
} x_key;

typedef struct x_message {
    int type;
    unsigned long serial;
    int sent;
    x_display *display;
    x_id window, kind;
    int format;
    long data[5];
} x_message;

typedef struct x_configure {
    int type;
    unsigned long serial;
    int sent;
    x_display *display;
    x_id event, window;
    int x, y, width, height;
} x_configure;

typedef union x_event {
    int type;
    x_key key;
    x_message message;
    x_configure configure;
    long room[24];
} x_event;

enum { X_KEY_PRESS = 2, X_KEY_RELEASE = 3, X_FOCUS_OUT = 10, X_CONFIGURE = 22, X_MESSAGE = 33 };
enum { X_MASK_KEYS = 3, X_MASK_STRUCTURE = 1 << 17, X_MASK_FOCUS = 1 << 21 };
enum { X_FORMAT_PIXMAP = 2, X_STATE_CONTROL = 4 };

/* Return type, name, parameters. */
#define X_FUNCTIONS(X)                                                                                             \
    X(x_display *, XOpenDisplay, (const char *name))                                                               \
    X(int, XCloseDisplay, (x_display *))                                                                           \
    X(int, XDefaultScreen, (x_display *))                                                                          \
    X(int, XDefaultDepth, (x_display *, int screen))                                                               \
    X(x_visual *, XDefaultVisual, (x_display *, int screen))                                                       \
    X(x_id, XDefaultRootWindow, (x_display *))                                                                     \
    X(x_id, XCreateSimpleWindow, (x_display *, x_id parent, int x, int y, unsigned width, unsigned height,         \
                                  unsigned border, unsigned long border_colour, unsigned long colour))             \
    X(int, XStoreName, (x_display *, x_id, const char *))                                                          \
    X(int, XSelectInput, (x_display *, x_id, long mask))                                                           \
    X(x_id, XInternAtom, (x_display *, const char *, int only_if_there))                                           \
    X(int, XSetWMProtocols, (x_display *, x_id, x_id *, int count))                                                \
    X(int, XMapRaised, (x_display *, x_id))                                                                        \
    X(x_gc, XCreateGC, (x_display *, x_id, unsigned long mask, void *values))                                      \
    X(int, XFreeGC, (x_display *, x_gc))                                                                           \
    X(x_image *, XCreateImage, (x_display *, x_visual *, unsigned depth, int format, int offset, char *data,       \
                                unsigned width, unsigned height, int pad, int row_bytes))                          \
    X(int, XPutImage, (x_display *, x_id, x_gc, x_image *, int from_x, int from_y, int x, int y, unsigned width,   \
                       unsigned height))                                                                           \
    X(int, XClearWindow, (x_display *, x_id))                                                                      \
    X(int, XPending, (x_display *))                                                                                \
    X(int, XNextEvent, (x_display *, x_event *))                                                                   \
    X(int, XLookupString, (x_key *, char *out, int cap, x_id *symbol, void *))                                     \
    X(int, XFlush, (x_display *))                                                                                  \
    X(int, XSync, (x_display *, int discard))                                                                      \
    X(int, XFree, (void *))

typedef struct x_library {
#define X(type, name, parameters) type (*name) parameters;
    X_FUNCTIONS(X)
#undef X
    int (*XkbSetDetectableAutoRepeat)(x_display *, int on, int *supported); /* NULL: an older libX11 */
} x_library;

struct window {
    x_library x;
    x_display *display;
    x_id id, close;
    x_gc gc;
    x_visual *visual;
    int depth, width, height; /* of the window: its size */
    x_image *image;           /* the enlarged picture; NULL: none yet */
    uint32_t *pixels;         /* of the image */
    int scale;
};

/* ---- opening ---- */

static bool load(x_library *x)
{
    void *library = library_open("libX11.so.6");
    bool good = library != NULL;
    library_function found = NULL;
#define X(type, name, parameters)                                       \
    found = good ? library_find(library, #name) : NULL;                 \
    good = found != NULL;                                               \
    memcpy(&x->name, &found, sizeof found); /* both are addresses of functions */
    X_FUNCTIONS(X)
#undef X
    found = good ? library_find(library, "XkbSetDetectableAutoRepeat") : NULL;
    memcpy(&x->XkbSetDetectableAutoRepeat, &found, sizeof found);
    return good;
}

static bool shows_colours(const window *w)
{
    return w->depth >= 24 && w->visual->red_mask == 0xFF0000 && w->visual->green_mask == 0xFF00
        && w->visual->blue_mask == 0xFF;
}

static void create(window *w, const char *title)
{
    x_library *x = &w->x;
    x_id protocols[1];
    w->id = x->XCreateSimpleWindow(w->display, x->XDefaultRootWindow(w->display), 0, 0, (unsigned)w->width,
                                   (unsigned)w->height, 0, 0, 0);
    x->XStoreName(w->display, w->id, title);
    x->XSelectInput(w->display, w->id, X_MASK_KEYS | X_MASK_STRUCTURE | X_MASK_FOCUS);
    w->close = protocols[0] = x->XInternAtom(w->display, "WM_DELETE_WINDOW", 0);
    x->XSetWMProtocols(w->display, w->id, protocols, 1);
    if (x->XkbSetDetectableAutoRepeat) { /* a held key is then not released between its repetitions */
        x->XkbSetDetectableAutoRepeat(w->display, 1, NULL);
    }
    w->gc = x->XCreateGC(w->display, w->id, 0, NULL);
    x->XMapRaised(w->display, w->id);
    x->XSync(w->display, 0);
}

window *window_open(const char *title, const canvas *picture)
{
    window *w = memory_take(1, sizeof *w);
    const char *name = getenv("DISPLAY");
    w->width = picture->width * 2;
    w->height = picture->height * 2;
    if (!load(&w->x)) {
        fputs("a window needs libX11.so.6 (Debian: libx11-6); npc is the same game for a terminal\n", stderr);
        free(w);
        return NULL;
    }
    w->display = name && name[0] ? w->x.XOpenDisplay(NULL) : NULL;
    if (!w->display) {
        fprintf(stderr, "there is no display (DISPLAY is %s); npc is the same game for a terminal\n",
                name && name[0] ? name : "not set");
        free(w);
        return NULL;
    }
    int screen = w->x.XDefaultScreen(w->display);
    w->visual = w->x.XDefaultVisual(w->display, screen);
    w->depth = w->x.XDefaultDepth(w->display, screen);
    if (!shows_colours(w)) {
        fprintf(stderr, "the display must have 24 bits of colour for each pixel, it has %d\n", w->depth);
        window_close(w);
        return NULL;
    }
    create(w, title);
    return w;
}

/* ---- keys ---- */

static const struct {
    x_id symbol;
    window_key key;
} keys[] = {
    { 0xFF51, KEY_LEFT }, { 0xFF53, KEY_RIGHT }, { 0xFF52, KEY_UP }, { 0xFF54, KEY_DOWN }, { 0xFF0D, KEY_ENTER },
    { 0xFF8D, KEY_ENTER }, { 0xFF08, KEY_BACKSPACE }, { 0xFFFF, KEY_DELETE }, { 0xFF50, KEY_HOME }, { 0xFF57, KEY_END },
    { 0xFF55, KEY_PAGE_UP }, { 0xFF56, KEY_PAGE_DOWN }, { 0xFF1B, KEY_ESCAPE }, { 0xFFBE, KEY_F1 }, { 0xFFBF, KEY_F2 },
    { 0xFFC0, KEY_F3 }, { 0xFFC2, KEY_F5 }, { 0xFFC6, KEY_F9 },
};

/* Symbols up to 0xFF are characters of Latin-1; from 0x1000100 on they are code points. */
static uint32_t point_of(x_id symbol)
{
    bool latin = (symbol >= 0x20 && symbol < 0x7F) || (symbol >= 0xA0 && symbol <= 0xFF);
    return latin ? (uint32_t)symbol : symbol >= 0x1000100 && symbol <= 0x110FFFF ? (uint32_t)symbol & 0x1FFFFF : 0;
}

static void write_point(char out[8], uint32_t point)
{
    int bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    memset(out, 0, 8);
    for (int i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    out[0] = (char)(bytes == 1 ? point : point | (0xF00u >> bytes & 0xFF));
}

static bool read_key(window *w, x_event *event, window_event *out)
{
    char text[8];
    x_id symbol = 0;
    w->x.XLookupString(&event->key, text, sizeof text, &symbol, NULL);
    *out = (window_event){ .down = event->type == X_KEY_PRESS };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        out->key = keys[i].symbol == symbol ? keys[i].key : out->key;
    }
    uint32_t point = event->key.state & X_STATE_CONTROL ? 0 : point_of(symbol);
    if (out->key == KEY_NONE && point && out->down) {
        out->key = KEY_TEXT;
        write_point(out->text, point);
    }
    return out->key != KEY_NONE && (out->down || out->key <= KEY_DOWN);
}

bool window_next(window *w, window_event *out)
{
    x_event event;
    while (w->x.XPending(w->display) > 0) {
        w->x.XNextEvent(w->display, &event);
        if ((event.type == X_KEY_PRESS || event.type == X_KEY_RELEASE) && read_key(w, &event, out)) {
            return true;
        }
        if (event.type == X_CONFIGURE) {
            w->width = event.configure.width;
            w->height = event.configure.height;
        }
        if (event.type == X_FOCUS_OUT || (event.type == X_MESSAGE && (x_id)event.message.data[0] == w->close)) {
            *out = (window_event){ .key = event.type == X_MESSAGE ? KEY_CLOSE : KEY_BLUR, .down = true };
            return true;
        }
    }
    return false;
}

/* ---- pictures ---- */

/* Makes the image anew when the size of the window asks for another scale. */
static bool make_image(window *w, const canvas *picture)
{
    int across = w->width / picture->width, down = w->height / picture->height;
    int scale = across < down ? across : down, width, height;
    scale = scale < 1 ? 1 : scale;
    if (w->image && scale == w->scale) {
        return true;
    }
    width = picture->width * scale;
    height = picture->height * scale;
    if (w->image) {
        w->x.XFree(w->image);
        w->x.XClearWindow(w->display, w->id);
    }
    free(w->pixels);
    w->scale = scale;
    w->pixels = memory_take((size_t)width * (size_t)height, sizeof *w->pixels);
    w->image = w->x.XCreateImage(w->display, w->visual, (unsigned)w->depth, X_FORMAT_PIXMAP, 0, (char *)w->pixels,
                                 (unsigned)width, (unsigned)height, 32, 0);
    if (w->image) {
        uint32_t one = 1;
        w->image->byte_order = *(char *)&one != 1; /* of this machine; Xlib swaps for a display with another one */
    }
    return w->image != NULL && w->image->bits_per_pixel == 32;
}

void window_show(window *w, const canvas *picture)
{
    if (!make_image(w, picture)) {
        return;
    }
    int scale = w->scale, width = picture->width * scale, height = picture->height * scale;
    for (int y = 0; y < picture->height; y++) {
        uint32_t *first = w->pixels + (size_t)(y * scale) * (size_t)width, *to = first;
        for (int x = 0; x < picture->width; x++) {
            for (int i = 0; i < scale; i++) {
                *to++ = picture->pixels[y * picture->width + x];
            }
        }
        for (int i = 1; i < scale; i++, to += width) {
            memcpy(to, first, (size_t)width * sizeof *to);
        }
    }
    w->x.XPutImage(w->display, w->id, w->gc, w->image, 0, 0, (w->width - width) / 2, (w->height - height) / 2,
                   (unsigned)width, (unsigned)height);
    w->x.XFlush(w->display);
}

void window_close(window *w)
{
    if (!w) {
        return;
    }
    if (w->image) {
        w->x.XFree(w->image);
    }
    if (w->gc) {
        w->x.XFreeGC(w->display, w->gc);
    }
    w->x.XCloseDisplay(w->display);
    free(w->pixels);
    free(w);
}
#else
typedef int window_x11_is_empty; /* C has no empty file */
#endif
