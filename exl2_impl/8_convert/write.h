/* write.h: writes text files, mostly JSON, through a buffer. The first failure is kept and returned by
   exl2__write_close, so that callers need no checks in between.
   takes: a path, pieces of text.
   gives: exl2__write, exl2__write_open, exl2__write_close; _raw, _format, _quoted, _float.
   owns:  the buffer and the open file, until exl2__write_close. */
#ifndef EXL2__WRITE_H
#define EXL2__WRITE_H

#include "../0_base/alloc.h"
#include "../0_base/arena.h"
#include "../0_base/half.h"
#include "../0_base/platform_write.h"
#include "../0_base/json/json_number.h"
#include "../0_base/json/json_scan.h"

#define EXL2__WRITE_BUFFER 65536u

typedef struct exl2__write {
    exl2__ctx *ctx;
    const char *path; /* the caller's string; for messages */
    const char *from; /* file from which quoted text comes, or NULL; for messages */
    void *file;       /* NULL: bytes are only counted */
    char *buffer;
    uint64_t offset;  /* offset of the buffer's first byte in the file */
    uint32_t used;
    exl2_result result;
} exl2__write;

/* Creates or empties the file. path NULL: counts bytes and writes nothing. */
EXL2__PRIVATE exl2_result exl2__write_open(exl2__ctx *c, const char *path, exl2__write *w)
{
    void *buffer;
    *w = (exl2__write){ 0 };
    EXL2__TRY(exl2__alloc(c, EXL2__WRITE_BUFFER, EXL2__ARENA_ALIGN, EXL2_MEM_GENERAL, &buffer));
    w->ctx = c;
    w->path = path;
    w->buffer = (char *)buffer;
    w->file = path ? exl2__platform_create(path) : NULL;
    if (path && !w->file) {
        w->result = exl2__fail(c, EXL2_ERR_IO, "%s: the file cannot be created", path);
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__write_flush(exl2__write *w)
{
    if (w->result >= 0 && w->file && !exl2__platform_write(w->file, w->offset, w->buffer, w->used)) {
        w->result = exl2__fail(w->ctx, EXL2_ERR_IO, "%s: writing failed after %llu bytes (disk full?)", w->path,
                               (unsigned long long)w->offset);
    }
    w->offset += w->used;
    w->used = 0;
}

EXL2__PRIVATE void exl2__write_raw(exl2__write *w, const char *text, uint64_t bytes)
{
    while (bytes > 0) {
        uint32_t piece = (uint32_t)exl2__min64(bytes, EXL2__WRITE_BUFFER - w->used);
        memcpy(w->buffer + w->used, text, piece);
        w->used += piece;
        text += piece;
        bytes -= piece;
        if (w->used == EXL2__WRITE_BUFFER) {
            exl2__write_flush(w);
        }
    }
}

/* At most 1,023 bytes per call. The conversions are those of exl2__format. */
EXL2__PRINTF(2, 3)
EXL2__PRIVATE void exl2__write_format(exl2__write *w, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    size_t bytes = exl2__format_list(text, sizeof text, format, args);
    va_end(args);
    exl2__write_raw(w, text, bytes);
}

/* Writes a JSON string with its quotes. Text that is not valid UTF-8 is an error; the message names `what`. */
EXL2__PRIVATE void exl2__write_quoted(exl2__write *w, const char *what, const char *text, uint64_t bytes)
{
    exl2__write_raw(w, "\"", 1);
    for (uint64_t i = 0; i < bytes;) {
        uint8_t byte = (uint8_t)text[i];
        uint32_t size = byte < 0x80, room = (uint32_t)exl2__min64(bytes - i, 4);
        if (size == 0 && !exl2__json_scan_utf8((const uint8_t *)text + i, &size, room)) {
            if (w->result >= 0) {
                w->result = exl2__fail(w->ctx, EXL2_ERR_FORMAT, "%s: %s is not valid UTF-8 (byte %u at %llu)",
                                       w->from ? w->from : "text", what, byte, (unsigned long long)i);
            }
            return;
        }
        if (byte == '"' || byte == '\\') {
            exl2__write_format(w, "\\%c", byte);
        } else if (byte == '\n') {
            exl2__write_raw(w, "\\n", 2);
        } else if (byte < 0x20) {
            exl2__write_format(w, "\\u00%x%x", (unsigned)byte >> 4, byte & 15u);
        } else {
            exl2__write_raw(w, text + i, size);
        }
        i += size;
    }
    exl2__write_raw(w, "\"", 1);
}

EXL2__PRIVATE void exl2__write_quoted_z(exl2__write *w, const char *text)
{
    exl2__write_quoted(w, text, text, strlen(text));
}

/* Writes the decimal number with the fewest digits that reads back as `value`, such as 1e-05 or 100000.0. `value` is
   finite and not negative. */
EXL2__PRIVATE void exl2__write_float(exl2__write *w, float value)
{
    uint64_t digits = 0;
    int32_t exponent = 0, places;
    double scaled = (double)value;
    while (scaled >= 10) {
        scaled /= 10;
        exponent++;
    }
    while (scaled > 0 && scaled < 1) {
        scaled *= 10;
        exponent--;
    }
    for (places = 0; places < 9; places++) {
        double read = 0;
        digits = (uint64_t)(scaled + 0.5);
        exl2__json_number number = { digits, exponent - places, false, false };
        if (exl2__json_number_f64(&number, &read) && exl2__float_bits((float)read) == exl2__float_bits(value)) {
            break;
        }
        scaled *= 10;
    }
    exponent -= places;
    for (; digits > 0 && digits % 10 == 0; digits /= 10) { /* 9.99... was rounded up to 10 */
        exponent++;
    }
    if (digits == 0 || (exponent >= 0 && exponent <= 9)) {
        static const uint32_t tens[10] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000 };
        exl2__write_format(w, "%llu.0", (unsigned long long)(digits * (digits ? tens[exponent] : 1)));
    } else {
        exl2__write_format(w, "%llue%d", (unsigned long long)digits, exponent);
    }
}

/* Ends the file, and returns the first failure of all calls, if any. Accepts a zeroed *w. */
EXL2__PRIVATE exl2_result exl2__write_close(exl2__write *w)
{
    exl2_result result = EXL2_OK;
    if (w->ctx) {
        exl2__write_flush(w);
        bool synced = w->file && exl2__platform_sync(w->file); /* before the folder gets its name */
        if (w->file && !(exl2__platform_finish(w->file) && synced) && w->result >= 0) {
            w->result = exl2__fail(w->ctx, EXL2_ERR_IO, "%s: writing failed at the end (disk full?)", w->path);
        }
        result = w->result;
        exl2__free(w->ctx, w->buffer, EXL2__WRITE_BUFFER, EXL2_MEM_GENERAL);
    }
    *w = (exl2__write){ 0 };
    return result;
}

#endif
