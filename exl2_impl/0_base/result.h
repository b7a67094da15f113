/* result.h: one context per engine, one error record per context, one way to report an error.
   takes: the application's hooks, as exl2_open has copied them.
   gives: exl2__ctx, exl2__format, exl2__fail, exl2__error_copy, EXL2__TRY, EXL2__TRY_DONE,
          EXL2__CHECK_ZEROED.
   owns:  nothing; the engine owns its context. */
#ifndef EXL2__RESULT_H
#define EXL2__RESULT_H

#include "../../exl2.h"
#include "config.h"

#include <stdarg.h>

/* What every folder below the engine needs: hooks, byte counts, the most recent error. */
typedef struct exl2__ctx {
    exl2_allocator allocator;
    exl2_files files;
    exl2_logger logger;
    exl2_zones zones;
    exl2_parallel parallel;
    exl2_cpu_path cpu_path; /* AUTO, of a context that no exl2_open made: plain C */
    bool cpu_vnni;          /* exl2__cpu_path_has_vnni(cpu_path) */
    bool cpu_splits;        /* exl2__cpu_path_splits_products() */
    bool reserves_cache; /* KV caches are reserved, and a backend commits each page before its first use */
    uint64_t host_bytes, host_peak, host_bytes_max, allocations;
    uint32_t error_lock; /* guards error */
    exl2_error error;
} exl2__ctx;

#define EXL2__TRY(call)                \
    do {                               \
        exl2_result try_ = (call);     \
        if (try_ < 0) {                \
            return try_;               \
        }                              \
    } while (0)

/* The same for a call that works in slices (work.h): returns unless it is done. */
#define EXL2__TRY_DONE(call)           \
    do {                               \
        exl2_result try_ = (call);     \
        if (try_ != EXL2_OK) {         \
            return try_;               \
        }                              \
    } while (0)

/* Length of the longest prefix of at most `bytes` bytes that does not end inside a code point. */
static inline size_t exl2__utf8_cut(const char *text, size_t bytes)
{
    size_t cut = bytes;
    while (cut > 0 && ((unsigned char)text[cut] & 0xC0) == 0x80) {
        cut--;
    }
    return cut;
}

/* Length of the text without an incomplete code point at its end. */
static inline size_t exl2__utf8_whole(const char *text, size_t bytes)
{
    size_t more = 0;
    while (more < 3 && more < bytes && ((unsigned char)text[bytes - 1 - more] & 0xC0) == 0x80) {
        more++;
    }
    unsigned lead = more < bytes ? (unsigned char)text[bytes - 1 - more] : 0;
    size_t wanted = lead < 0xC2 || lead > 0xF4 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    return wanted > more ? bytes - 1 - more : bytes;
}

/* Writes the digits of a number so that they end before `end`, and returns their count. base: 10 or 16. */
static inline size_t exl2__format_number(char *end, uint64_t value, unsigned base)
{
    size_t n = 0;
    do {
        *--end = "0123456789abcdef"[value % base];
        value /= base;
        n++;
    } while (value);
    return n;
}

/* The same with a sign. */
static inline size_t exl2__format_signed(char *end, int64_t value)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t n = exl2__format_number(end, size, 10);
    if (value < 0) {
        n++;
        *(end - n) = '-';
    }
    return n;
}

/* A small printf: %s %.*s %c %d %u %x %zu %lld %llu %%. It depends on no locale and no stdio, formats no floats, and
   never cuts a code point in two. Returns the number of bytes written, without the NUL. */
EXL2__PRINTF(3, 0)
static inline size_t exl2__format_list(char *out, size_t cap, const char *format, va_list args)
{
    size_t used = 0;
    for (const char *f = format; *f; f++) {
        char number[24];
        char *number_end = number + sizeof number;
        const char *piece = f;
        size_t bytes = 1;
        if (*f == '%') {
            f++;
            size_t limit = SIZE_MAX;
            if (f[0] == '.' && f[1] == '*') {
                int given = va_arg(args, int);
                limit = given > 0 ? (size_t)given : 0;
                f += 2;
            }
            int longs = 0;
            while (*f == 'l' || *f == 'z') {
                longs += *f == 'z' ? 3 : 1;
                f++;
            }
            if (*f == 's') {
                piece = va_arg(args, const char *);
                piece = piece ? piece : "(null)";
                for (bytes = 0; bytes < limit && piece[bytes]; bytes++) {
                }
                bytes = bytes == limit ? exl2__utf8_whole(piece, bytes) : bytes; /* the limit may cut a code point */
            } else if (*f == 'c') {
                number[0] = (char)va_arg(args, int);
                piece = number;
            } else if (*f == 'd') {
                int64_t value = longs >= 2 ? (int64_t)va_arg(args, long long) : va_arg(args, int);
                bytes = exl2__format_signed(number_end, value);
                piece = number_end - bytes;
            } else if (*f == 'u' || *f == 'x') {
                uint64_t value = longs == 3 ? va_arg(args, size_t)
                               : longs == 2 ? va_arg(args, unsigned long long) : va_arg(args, unsigned);
                bytes = exl2__format_number(number_end, value, *f == 'x' ? 16 : 10);
                piece = number_end - bytes;
            } else {
                EXL2__ASSERT(*f == '%');
                piece = "%";
            }
        }
        if (cap == 0 || used + bytes > cap - 1) {
            bytes = cap == 0 ? 0 : cap - 1 - used;
            memcpy(out + used, piece, bytes);
            used += bytes;
            used = exl2__utf8_whole(out, used);
            break;
        }
        memcpy(out + used, piece, bytes);
        used += bytes;
    }
    if (cap) {
        out[used] = 0;
    }
    return used;
}

EXL2__PRINTF(3, 4)
static inline size_t exl2__format(char *out, size_t cap, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t used = exl2__format_list(out, cap, format, args);
    va_end(args);
    return used;
}

/* Makes one line of a message: control characters and line separators become spaces, and every byte that is not valid
   UTF-8 becomes '?'. Messages quote untrusted names and texts, and may cut them. A text without any word, such as that
   of raise_exception(''), is replaced. */
static inline void exl2__format_repair(char *text, size_t cap)
{
    bool blank = true;
    for (unsigned char *at = (unsigned char *)text; *at;) {
        unsigned lead = at[0], more = lead < 0x80 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1, have = 0;
        while (have < more && (at[1 + have] & 0xC0) == 0x80) {
            have++;
        }
        bool low = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xF0 && at[1] < 0x90); /* an overlong form */
        bool high = (lead == 0xED && at[1] > 0x9F) || (lead == 0xF4 && at[1] > 0x8F); /* surrogates, above 10FFFF */
        bool separator = (lead == 0xC2 && at[1] < 0xA0) || (lead == 0xE2 && at[1] == 0x80 && (at[2] & 0xFE) == 0xA8);
        if (have < more || (lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || low || high) {
            *at++ = '?';
            blank = false;
        } else if (lead < 0x20 || lead == 0x7F || separator) {
            memset(at, ' ', 1 + more);
            at += 1 + more;
        } else {
            blank = blank && lead == ' ';
            at += 1 + more;
        }
    }
    if (blank) {
        exl2__format(text, cap, "(a message without text)");
    }
}

/* Records an error and returns its code: `return exl2__fail(c, EXL2_ERR_FORMAT, "%s: ...", file);`
   The function that knows the most about the error calls it; its callers return the code and keep the message. */
EXL2__PRINTF(3, 4)
static inline exl2_result exl2__fail(exl2__ctx *c, exl2_result code, const char *format, ...)
{
    exl2_error error = { code, 0, { 0 } };
    va_list args;
    va_start(args, format);
    exl2__format_list(error.text, sizeof error.text, format, args);
    exl2__format_repair(error.text, sizeof error.text);
    va_end(args);
    exl2__lock(&c->error_lock);
    c->error = error;
    exl2__unlock(&c->error_lock);
    exl2_log_level level = c->logger.max_level ? c->logger.max_level : EXL2_LOG_WARN;
    if (c->logger.line && level >= EXL2_LOG_ERROR) {
        c->logger.line(c->logger.user, EXL2_LOG_ERROR, EXL2_LOG_ID_FAILED, code, error.text);
    }
    return code;
}

/* Copies the most recent error; any thread may call it. */
static inline void exl2__error_copy(exl2__ctx *c, exl2_error *out)
{
    exl2__lock(&c->error_lock);
    *out = c->error;
    exl2__unlock(&c->error_lock);
}

/* Fails for a desc that was never zeroed, which its canaries show. It holds garbage, so none of its pointers may be
   used. */
static inline exl2_result exl2__check_zeroed(exl2__ctx *c, uint32_t start, uint32_t end, const char *desc)
{
    if (start == 0 && end == 0) {
        return EXL2_OK;
    }
    return exl2__fail(c, EXL2_ERR_ARG, "%s was not zeroed before its fields were set: its %s is %u", desc,
                      start ? "_start_canary" : "_end_canary", start ? start : end);
}

#define EXL2__CHECK_ZEROED(c, d, desc) exl2__check_zeroed(c, (d)->_start_canary, (d)->_end_canary, #desc)

#endif
