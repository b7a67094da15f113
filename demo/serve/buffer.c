/* buffer.c: see buffer.h.
   takes: texts, values.
   gives: what buffer.h declares.
   owns:  the memory of buffers. */
#include "buffer.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool buffer_room(buffer *b, size_t bytes)
{
    if (b->failed || bytes > SIZE_MAX / 4 - b->bytes) {
        b->failed = true;
        return false;
    }
    if (b->bytes + bytes + 1 <= b->cap) {
        return true;
    }
    size_t cap = b->cap ? b->cap : 256;
    while (cap < b->bytes + bytes + 1) {
        cap *= 2;
    }
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buffer_add(buffer *b, const char *text, size_t bytes)
{
    if (buffer_room(b, bytes)) {
        if (bytes) {
            memcpy(b->data + b->bytes, text, bytes);
        }
        b->bytes += bytes;
        b->data[b->bytes] = 0;
    }
}

void buffer_string(buffer *b, const char *text)
{
    buffer_add(b, text, strlen(text));
}

void buffer_format(buffer *b, const char *format, ...)
{
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    int bytes = vsnprintf(NULL, 0, format, list);
    if (bytes < 0) {
        b->failed = true;
    } else if (buffer_room(b, (size_t)bytes)) {
        vsnprintf(b->data + b->bytes, (size_t)bytes + 1, format, again);
        b->bytes += (size_t)bytes;
    }
    va_end(again);
    va_end(list);
}

void buffer_cut(buffer *b, size_t bytes)
{
    if (bytes < b->bytes) {
        b->bytes = bytes;
        b->data[bytes] = 0;
    }
}

void buffer_drop(buffer *b, size_t bytes)
{
    if (bytes >= b->bytes) {
        buffer_cut(b, 0);
        return;
    }
    memmove(b->data, b->data + bytes, b->bytes - bytes);
    buffer_cut(b, b->bytes - bytes);
}

void buffer_clear(buffer *b)
{
    b->bytes = 0;
    b->failed = false;
    b->depth = 0;
    if (b->data) {
        b->data[0] = 0;
    }
}

void buffer_free(buffer *b)
{
    free(b->data);
    *b = (buffer){ 0 };
}

char *buffer_copy(const char *text, size_t bytes)
{
    char *out = malloc(bytes + 1);
    if (out) {
        memcpy(out, text, bytes);
        out[bytes] = 0;
    }
    return out;
}

size_t buffer_character(const char *text, size_t bytes)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char first = bytes ? (unsigned char)text[0] : 0x80;
    size_t count = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (count == 0 || count > bytes) {
        return 0;
    }
    uint32_t point = count == 1 ? first : first & (0x7Fu >> count);
    for (size_t i = 1; i < count; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xC0) != 0x80) {
            return 0;
        }
        point = point << 6 | (next & 0x3Fu);
    }
    bool good = point >= least[count] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
    return good ? count : 0;
}

bool buffer_is_utf8(const char *text, size_t bytes)
{
    for (size_t i = 0, count; i < bytes; i += count) {
        count = buffer_character(text + i, bytes - i);
        if (count == 0) {
            return false;
        }
    }
    return true;
}

/* ---- JSON ---- */

static void put_quoted(buffer *b, const char *text, size_t bytes)
{
    buffer_add(b, "\"", 1);
    for (size_t i = 0, plain = 0; i < bytes || plain < i;) { /* [plain, i) needs no change */
        unsigned char c = i < bytes ? (unsigned char)text[i] : 0;
        size_t count = i < bytes ? buffer_character(text + i, bytes - i) : 0;
        if (i < bytes && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F && count) {
            i += count;
            continue;
        }
        buffer_add(b, text + plain, i - plain);
        if (i >= bytes) {
            break;
        }
        if (!count) {
            buffer_add(b, "\xEF\xBF\xBD", 3);
        } else if (c == '"' || c == '\\') {
            char escape[2] = { '\\', (char)c };
            buffer_add(b, escape, 2);
        } else if (c == '\n') {
            buffer_add(b, "\\n", 2);
        } else {
            buffer_format(b, "\\u%04x", c);
        }
        plain = ++i;
    }
    buffer_add(b, "\"", 1);
}

/* The comma and the key before a value. */
static void begin(buffer *b, const char *key)
{
    if (b->depth > 0) {
        if (b->filled[b->depth - 1]) {
            buffer_add(b, ",", 1);
        }
        b->filled[b->depth - 1] = true;
    }
    if (key) {
        put_quoted(b, key, strlen(key));
        buffer_add(b, ":", 1);
    }
}

static void open_value(buffer *b, const char *key, char open, char close)
{
    begin(b, key);
    buffer_add(b, &open, 1);
    if (b->depth == BUFFER_DEPTH) {
        b->failed = true; /* a defect of the caller; never by input */
        return;
    }
    b->close[b->depth] = close;
    b->filled[b->depth++] = false;
}

void buffer_object(buffer *b, const char *key)
{
    open_value(b, key, '{', '}');
}

void buffer_array(buffer *b, const char *key)
{
    open_value(b, key, '[', ']');
}

void buffer_end(buffer *b)
{
    if (b->depth > 0) {
        buffer_add(b, &b->close[--b->depth], 1);
    }
}

void buffer_text(buffer *b, const char *key, const char *text, size_t bytes)
{
    begin(b, key);
    if (text) {
        put_quoted(b, text, bytes);
    } else {
        buffer_add(b, "null", 4);
    }
}

void buffer_name(buffer *b, const char *key, const char *text)
{
    buffer_text(b, key, text, text ? strlen(text) : 0);
}

void buffer_uint(buffer *b, const char *key, uint64_t value)
{
    begin(b, key);
    buffer_format(b, "%llu", (unsigned long long)value);
}

void buffer_int(buffer *b, const char *key, int64_t value)
{
    begin(b, key);
    buffer_format(b, "%lld", (long long)value);
}

void buffer_number(buffer *b, const char *key, double value)
{
    begin(b, key);
    if (value >= -DBL_MAX && value <= DBL_MAX) { /* isfinite of mingw converts to float */
        buffer_format(b, "%.9g", value);
    } else {
        buffer_add(b, "null", 4);
    }
}

void buffer_bool(buffer *b, const char *key, bool value)
{
    begin(b, key);
    buffer_string(b, value ? "true" : "false");
}

void buffer_null(buffer *b, const char *key)
{
    begin(b, key);
    buffer_add(b, "null", 4);
}

void buffer_raw(buffer *b, const char *key, const char *json, size_t bytes)
{
    begin(b, key);
    buffer_add(b, json, bytes);
}
