/* reply_view.c: see reply_view.h.
   takes: text, the environment.
   gives: what reply_view.h declares. */
#include "reply_view.h"

#include "../common/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICKS 3u

static bool has_colors(void)
{
    const char *off = getenv("NO_COLOR");
    return console_is_live() && !(off && *off);
}

const char *reply_view_color(void)
{
    return has_colors() ? "\033[36m" : "";
}

const char *reply_view_plain(void)
{
    return has_colors() ? "\033[0m" : "";
}

void reply_view_open(reply_view *v)
{
    *v = (reply_view){ .code = false };
    wrap_open(&v->wrap);
}

/* The part of a row that follows its beginning. */
static void put(reply_view *v, const char *text, size_t bytes)
{
    if (v->verbatim) {
        fwrite(text, 1, bytes, stdout);
    } else if (bytes) {
        wrap_text(&v->wrap, text, bytes);
    }
}

/* Writes ticks that turned out to be no fence. */
static void put_ticks(reply_view *v)
{
    if (v->ticks <= TICKS) {
        put(v, "```", v->ticks);
    }
    v->ticks = UINT32_MAX;
}

static void end_row(reply_view *v)
{
    put_ticks(v);
    put(v, "\n", 1);
    v->ticks = 0;
    if (v->verbatim && !v->code) {
        fputs(reply_view_plain(), stdout);
        v->verbatim = false;
    }
}

/* A row that begins with three ticks begins or ends a block. */
static void put_fence(reply_view *v)
{
    if (!v->code) {
        fputs(reply_view_color(), stdout);
    }
    v->verbatim = true;
    v->code = !v->code;
    v->ticks = TICKS;
    put_ticks(v);
}

void reply_view_text(reply_view *v, const char *text, size_t bytes)
{
    if (!v->wrap.on) {
        fwrite(text, 1, bytes, stdout);
        return;
    }
    for (size_t i = 0; i < bytes;) {
        if (text[i] == '\n') {
            end_row(v);
            i++;
        } else if (v->ticks < TICKS && text[i] == '`') {
            i++;
            if (++v->ticks == TICKS) {
                put_fence(v);
            }
        } else {
            const char *end = memchr(text + i, '\n', bytes - i);
            size_t row = end ? (size_t)(end - (text + i)) : bytes - i;
            put_ticks(v);
            put(v, text + i, row);
            i += row;
        }
    }
}

void reply_view_end(reply_view *v)
{
    if (v->wrap.on) {
        put_ticks(v);
    }
    if (v->verbatim) {
        fputs(reply_view_plain(), stdout);
    }
    wrap_end(&v->wrap);
}
