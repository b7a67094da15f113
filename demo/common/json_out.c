/* json_out.c: see json_out.h.
   takes: a stdio stream.
   gives: what json_out.h declares. */
#include "json_out.h"

#include <inttypes.h>
#include <string.h>

/* Decodes the code point at text[0..bytes), which is not empty. Bad UTF-8 gives U+FFFD and length 1. */
static uint32_t next_code_point(const unsigned char *text, size_t bytes, size_t *length)
{
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char lead = text[0];
    size_t n = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
    *length = 1;
    if (n == 1) {
        return lead;
    }
    if (n == 0 || n > bytes) {
        return 0xFFFD;
    }
    uint32_t point = lead & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80) {
            return 0xFFFD;
        }
        point = point << 6 | (text[i] & 0x3Fu);
    }
    if (point < smallest[n] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
        return 0xFFFD;
    }
    *length = n;
    return point;
}

static void write_quoted(FILE *file, const char *text, size_t bytes)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)text, *end = p + bytes;
    fputc('"', file);
    while (p < end) {
        size_t length;
        uint32_t point = next_code_point(p, (size_t)(end - p), &length);
        const char *short_form = point && point < 0x80 ? strchr(plain, (int)point) : NULL;
        if (short_form) {
            fputc('\\', file);
            fputc(letters[short_form - plain], file);
        } else if (point >= 0x20 && point < 0x7F) {
            fputc((int)point, file);
        } else if (point < 0x10000) {
            fprintf(file, "\\u%04x", (unsigned)point);
        } else {
            unsigned high = 0xD800 + ((point - 0x10000) >> 10), low = 0xDC00 + (point & 0x3FF);
            fprintf(file, "\\u%04x\\u%04x", high, low);
        }
        p += length;
    }
    fputc('"', file);
}

/* Writes the comma and the key before a value. */
static void begin_value(json_out *j, const char *key)
{
    if (j->depth > 0) {
        if (j->filled[j->depth - 1]) {
            fputs(", ", j->file);
        }
        j->filled[j->depth - 1] = true;
    }
    if (key) {
        write_quoted(j->file, key, strlen(key));
        fputs(": ", j->file);
    }
}

static void open_value(json_out *j, const char *key, char open, char close)
{
    begin_value(j, key);
    fputc(open, j->file);
    if (j->depth < JSON_OUT_DEPTH) {
        j->close[j->depth] = close;
        j->filled[j->depth] = false;
        j->depth++;
    }
}

void json_out_object(json_out *j, const char *key)
{
    open_value(j, key, '{', '}');
}

void json_out_array(json_out *j, const char *key)
{
    open_value(j, key, '[', ']');
}

void json_out_end(json_out *j)
{
    if (j->depth > 0) {
        j->depth--;
        fputc(j->close[j->depth], j->file);
    }
    if (j->depth == 0) {
        fputc('\n', j->file);
        fflush(j->file);
    }
}

void json_out_text(json_out *j, const char *key, const char *text, size_t bytes)
{
    begin_value(j, key);
    if (text) {
        write_quoted(j->file, text, bytes);
    } else {
        fputs("null", j->file);
    }
}

void json_out_string(json_out *j, const char *key, const char *text)
{
    json_out_text(j, key, text, text ? strlen(text) : 0);
}

void json_out_uint(json_out *j, const char *key, uint64_t value)
{
    begin_value(j, key);
    fprintf(j->file, "%" PRIu64, value);
}

void json_out_int(json_out *j, const char *key, int64_t value)
{
    begin_value(j, key);
    fprintf(j->file, "%" PRId64, value);
}

void json_out_number(json_out *j, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    bool finite = strspn(text, "0123456789+-.e") == strlen(text); /* a test that -ffast-math cannot remove */
    begin_value(j, key);
    fputs(finite ? text : "null", j->file);
}

void json_out_bool(json_out *j, const char *key, bool value)
{
    begin_value(j, key);
    fputs(value ? "true" : "false", j->file);
}

void json_out_ids(json_out *j, const char *key, const int32_t *ids, size_t count)
{
    json_out_array(j, key);
    for (size_t i = 0; i < count; i++) {
        json_out_int(j, NULL, ids[i]);
    }
    json_out_end(j);
}
