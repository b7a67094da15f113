/* http_answer.c: answers and streams of http.h: heads, chunks, errors as JSON, and the buffers they wait in.
   takes: what the host answers.
   gives: http_answer, http_answer_error, http_stream_*; the buffers of http_exchange.h.
   owns:  nothing: a buffer belongs to its connection. */
#include "http_exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

bool http_reserve(http *h, http_buffer *b, size_t count)
{
    if (b->begin > 0 && b->size - b->end < count) {
        memmove(b->bytes, b->bytes + b->begin, b->end - b->begin);
        b->end -= b->begin;
        b->begin = 0;
    }
    if (b->size - b->end >= count) {
        return true;
    }
    if (count > SIZE_MAX / 4 - b->end) {
        return false;
    }
    size_t size = b->size > 0 ? b->size : 1024;
    while (size < b->end + count) {
        size *= 2;
    }
    char *bytes = h->desc.system.resize(h->desc.system.user, b->bytes, size);
    if (!bytes) {
        return false;
    }
    b->bytes = bytes;
    b->size = size;
    return true;
}

bool http_put(http *h, http_buffer *b, const void *bytes, size_t count)
{
    if (!http_reserve(h, b, count)) {
        return false;
    }
    if (count > 0) {
        memcpy(b->bytes + b->end, bytes, count);
    }
    b->end += count;
    return true;
}

void http_free_buffer(http *h, http_buffer *b)
{
    if (b->bytes) {
        h->desc.system.resize(h->desc.system.user, b->bytes, 0);
    }
    *b = (http_buffer){ 0 };
}

void http_put_out(http_exchange *x, const void *bytes, size_t count)
{
    if (x->out.begin == x->out.end) {
        x->sent_ms = x->server->now_ms;
    }
    if (!x->broken && !http_put(x->server, &x->out, bytes, count)) {
        x->broken = true;
    }
}

static void put_text(http_exchange *x, const char *text)
{
    http_put_out(x, text, strlen(text));
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void put_line(http_exchange *x, const char *format, ...)
{
    char line[160];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    http_put_out(x, line, bytes > 0 && (size_t)bytes < sizeof line ? (size_t)bytes : 0);
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        { 200, "OK" },
        { 201, "Created" },
        { 204, "No Content" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Answer";
}

/* "Sun, 06 Nov 1994 08:49:37 GMT". gmtime is shared by all threads, so the date is computed here. */
static void put_date(http_exchange *x)
{
    static const char days[] = "ThuFriSatSunMonTueWed", months[] = "MarAprMayJunJulAugSepOctNovDecJanFeb";
    int64_t now = (int64_t)time(NULL), day = now / 86400, second = now % 86400;
    int64_t from_march = day + 719468, era = from_march / 146097, of_era = from_march % 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * of_year + 2) / 153; /* 0 is March */
    int64_t year = year_of_era + era * 400 + (month >= 10);
    put_line(x, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + day % 7 * 3,
             (int)(of_year - (153 * month + 2) / 5 + 1), months + month * 3, (int)year, (int)(second / 3600),
             (int)(second / 60 % 60), (int)(second % 60));
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304;
}

/* The head up to the field that says where the body ends, and the fields that every answer has. */
static void put_head(http_exchange *x, int status, const char *type, const char *headers)
{
    const http_request *r = &x->parser.request;
    x->status = status;
    x->head_only = r->method && strcmp(r->method, "HEAD") == 0;
    x->close_after |= !r->keep_alive || x->server->stopping;
    put_line(x, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
    put_date(x);
    x->id = ++x->server->ids;
    put_line(x, "X-Request-Id: %08lx-%llu\r\n", (unsigned long)x->server->desc.id_seed, (unsigned long long)x->id);
    if (type) {
        put_text(x, "Content-Type: ");
        put_text(x, type);
        put_text(x, "\r\n");
    }
    put_text(x, x->close_after ? "Connection: close\r\n" : "Connection: keep-alive\r\n");
    put_text(x, "X-Content-Type-Options: nosniff\r\n");
    http_origin_put_headers(x);
    if (headers) {
        put_text(x, headers);
    }
}

/* The host has no more to do with the exchange. Whether the request was read decides if the connection can go on. */
static void finish(http_exchange *x)
{
    x->unread = x->state == HTTP_READING && x->parser.request.has_body;
    x->state = HTTP_SENDING;
    x->handed = false;
}

void http_answer(http_exchange *x, int status, const char *type, const char *headers, const void *body, size_t bytes)
{
    if (!x->handed || x->status != 0) {
        return;
    }
    finish(x);
    x->close_after |= x->unread;
    put_head(x, status, type, headers);
    if (!has_no_body(status)) {
        put_line(x, "Content-Length: %llu\r\n", (unsigned long long)bytes);
    }
    put_text(x, "\r\n");
    if (!has_no_body(status) && !x->head_only) {
        http_put_out(x, body, bytes);
        x->answer_bytes = bytes;
    }
}

/* Bytes of the UTF-8 character at text, which ends with NUL; 0: it is not UTF-8. */
static size_t character_bytes(const unsigned char *text)
{
    static const unsigned long least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned c = text[0];
    size_t bytes = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    unsigned long code = bytes > 1 ? c & (0x7Fu >> bytes) : c;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3Fu);
    }
    bool valid = bytes < 2 || (code >= least[bytes] && code < 0x110000 && (code < 0xD800 || code > 0xDFFF));
    return valid ? bytes : 0;
}

/* A JSON string, or null. */
static bool put_json(http *h, http_buffer *b, const char *text)
{
    if (!text) {
        return http_put(h, b, "null", 4);
    }
    bool good = http_put(h, b, "\"", 1);
    while (*text && good) {
        char escaped[8];
        size_t bytes = character_bytes((const unsigned char *)text);
        unsigned char c = (unsigned char)*text;
        if (bytes == 0 || c < 0x20 || c == 0x7F) {
            snprintf(escaped, sizeof escaped, "\\u%04x", bytes == 0 ? 0xFFFDu : c);
            good = http_put(h, b, escaped, 6);
            bytes = 1;
        } else {
            good = (c != '"' && c != '\\') || http_put(h, b, "\\", 1);
            good = good && http_put(h, b, text, bytes);
        }
        text += bytes;
    }
    return good && http_put(h, b, "\"", 1);
}

static bool put_member(http *h, http_buffer *b, const char *name, const char *text)
{
    return http_put(h, b, name, strlen(name)) && put_json(h, b, text);
}

void http_answer_error(http_exchange *x, int status, const char *headers, const char *type, const char *param,
                       const char *code, const char *message)
{
    http_buffer b = { 0 };
    http *h = x->server;
    bool good = put_member(h, &b, "{\"error\":{\"message\":", message) && put_member(h, &b, ",\"type\":", type) &&
                put_member(h, &b, ",\"param\":", param) && put_member(h, &b, ",\"code\":", code) &&
                put_member(h, &b, "},\"detail\":", message) && http_put(h, &b, "}", 1);
    x->broken |= !good;
    http_answer(x, status, "application/json", headers, b.bytes, b.end - b.begin);
    http_free_buffer(h, &b);
}

void http_refuse_exchange(http_exchange *x, int status, const char *problem)
{
    static const char *const invalid = "invalid_request_error";
    http_take_back(x);
    x->handed = true; /* for http_answer */
    x->close_after = true;
    http_answer_error(x, status, NULL, status >= 500 ? "server_error" : invalid, NULL, NULL, problem);
    x->unread = true;
}

void http_stream_begin(http_exchange *x, int status, const char *type, const char *headers, bool ping)
{
    if (!x->handed || x->status != 0) {
        return;
    }
    x->unread = x->state == HTTP_READING && x->parser.request.has_body;
    x->chunked = x->parser.request.minor == 1;
    x->close_after |= x->unread || !x->chunked;
    x->state = HTTP_STREAMING;
    x->ping = ping;
    x->wrote_ms = x->server->now_ms;
    put_head(x, status, type, headers);
    put_text(x, x->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void http_stream_write(http_exchange *x, const void *bytes, size_t count)
{
    if (!x->handed || x->state != HTTP_STREAMING || x->head_only || count == 0) {
        return;
    }
    if (x->chunked) {
        put_line(x, "%llx\r\n", (unsigned long long)count);
    }
    http_put_out(x, bytes, count);
    if (x->chunked) {
        put_text(x, "\r\n");
    }
    x->answer_bytes += count;
    x->wrote_ms = x->server->now_ms;
    x->was_full |= http_stream_pending(x) > HTTP_FULL;
}

void http_stream_end(http_exchange *x)
{
    if (!x->handed || x->state != HTTP_STREAMING) {
        return;
    }
    if (x->chunked && !x->head_only) {
        put_text(x, "0\r\n\r\n");
    }
    x->state = HTTP_SENDING;
    x->handed = false;
}

size_t http_stream_pending(const http_exchange *x)
{
    return x->out.end - x->out.begin;
}
