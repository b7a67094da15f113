/* http_parse.c: see http_parse.h. Lines are collected up to their CRLF and then read; bodies are passed on as they
   come. takes: bytes.
   gives: http_parse_begin, http_parse, http_parse_started.
   owns:  nothing. */
#include "http_parse.h"
#include "http_line.h"

#include <string.h>

enum {
    STATE_HEAD,      /* inside a line of the head */
    STATE_CHOOSE,    /* the head was delivered: what follows? */
    STATE_LENGTH,    /* inside a body with a length */
    STATE_SIZE,      /* inside the digits of a chunk's size */
    STATE_EXTENSION, /* after them, up to the line's end */
    STATE_CHUNK,     /* inside a chunk */
    STATE_CHUNK_END, /* inside the CRLF after it */
    STATE_TRAILER,   /* inside a line after the last chunk */
    STATE_DONE,
    STATE_BAD
};

void http_parse_begin(http_parser *p, uint64_t body_max)
{
    memset(p, 0, offsetof(http_parser, head));
    p->body_max = body_max;
    p->request.query = p->request.host = "";
}

bool http_parse_started(const http_parser *p)
{
    return p->head_bytes > 0;
}

static http_step refuse(http_parser *p, int status, const char *problem)
{
    p->state = STATE_BAD;
    p->status = status;
    p->problem = problem;
    return HTTP_BAD;
}

/* A control character inside a line. A tab counts as white space. */
static bool is_control(unsigned char c)
{
    return (c < 0x20 && c != '\t') || c == 0x7F;
}

/* Adds a byte to the line at line_at. HTTP_DONE: the line is complete, ends with NUL, and line_at is that of the next
   one. HTTP_MORE: it goes on. */
static http_step add_to_line(http_parser *p, unsigned char c)
{
    bool first = p->line_at == 0;
    if (p->after_cr ? c != '\n' : c == '\n') {
        return refuse(p, 400, "A line ends with CR or LF alone; it must end with CR LF.");
    }
    if (c != '\r' && c != '\n' && is_control(c)) {
        return refuse(p, 400, "The head of the request contains a control character.");
    }
    if (first && p->head_bytes >= HTTP_METHOD_MAX + HTTP_TARGET_MAX + sizeof "  HTTP/1.1\r\n" - 1) {
        return refuse(p, 414, "The target of the request is longer than 4096 bytes.");
    }
    if (p->head_bytes == HTTP_HEAD_MAX) {
        return refuse(p, 431, "The head of the request is longer than 16384 bytes.");
    }
    p->head[p->head_bytes++] = (char)(c == '\r' || c == '\n' ? 0 : c);
    p->after_cr = c == '\r';
    return c == '\n' ? HTTP_DONE : HTTP_MORE;
}

/* The head has ended: what its fields mean together. */
static http_step end_head(http_parser *p)
{
    http_request *r = &p->request;
    if (p->hosts == 0 && r->minor == 1) {
        return refuse(p, 400, "The request has no Host.");
    }
    if (p->codings > 0 && p->lengths > 0) {
        return refuse(p, 400, "The request has both Content-Length and Transfer-Encoding.");
    }
    if (p->codings > 0 && r->minor == 0) {
        return refuse(p, 400, "An HTTP/1.0 request cannot have Transfer-Encoding.");
    }
    if (p->authority && !http_line_same(p->authority, p->authority_bytes, r->host)) {
        return refuse(p, 400, "The target names another host than the field Host.");
    }
    r->chunked = p->codings > 0;
    r->has_body = r->chunked || r->length > 0;
    r->keep_alive = !p->close && (r->minor == 1 || p->stay);
    r->expects_continue = r->expects_continue && r->minor == 1 && r->has_body;
    p->state = STATE_CHOOSE;
    return HTTP_HEAD;
}

static http_step read_head_line(http_parser *p)
{
    char *line = p->head + p->line_at;
    bool first = p->line_at == 0;
    p->line_at = p->head_bytes;
    if (first) {
        return http_line_request(p, line) ? HTTP_MORE : refuse(p, p->status, p->problem);
    }
    if (*line == 0) {
        return end_head(p);
    }
    return http_line_field(p, line) ? HTTP_MORE : refuse(p, p->status, p->problem);
}

static http_step read_trailer_line(http_parser *p)
{
    char *line = p->head + p->line_at;
    p->line_at = p->head_bytes;
    if (*line == 0) {
        p->state = STATE_DONE;
        return HTTP_DONE;
    }
    return http_line_trailer(p, line) ? HTTP_MORE : refuse(p, p->status, p->problem);
}

static http_step choose(http_parser *p)
{
    const http_request *r = &p->request;
    if (r->length > p->body_max) {
        return refuse(p, 413, "The body is longer than this server accepts.");
    }
    p->left = r->length;
    p->state = r->chunked ? STATE_SIZE : r->length > 0 ? STATE_LENGTH : STATE_DONE;
    return p->state == STATE_DONE ? HTTP_DONE : HTTP_MORE;
}

static int hex_digit(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* The line with a chunk's size has ended. */
static http_step end_size(http_parser *p)
{
    if (p->left > p->body_max - p->body_bytes) {
        return refuse(p, 413, "The body is longer than this server accepts.");
    }
    p->state = p->left > 0 ? STATE_CHUNK : STATE_TRAILER;
    p->digits = 0;
    p->after_cr = false;
    return HTTP_MORE;
}

static http_step read_size(http_parser *p, unsigned char c)
{
    int digit = hex_digit(c);
    if (digit >= 0 && p->digits < 16) {
        p->left = p->left << 4 | (unsigned)digit;
        p->digits++;
        return HTTP_MORE;
    }
    if (p->digits == 0 || digit >= 0 || (c != ';' && c != '\r')) {
        return refuse(p, 400, "The size of a chunk is not 1 to 16 hexadecimal digits.");
    }
    p->state = STATE_EXTENSION;
    p->after_cr = c == '\r';
    return HTTP_MORE;
}

static http_step read_extension(http_parser *p, unsigned char c)
{
    if (p->after_cr) {
        return c == '\n' ? end_size(p) : refuse(p, 400, "The line of a chunk's size does not end with CR LF.");
    }
    if (c == '\r') {
        p->after_cr = true;
        return HTTP_MORE;
    }
    if (is_control(c) || ++p->extension_bytes > HTTP_EXTENSIONS_MAX) {
        return refuse(p, 400, "A chunk's extension is not readable, or too long.");
    }
    return HTTP_MORE;
}

static http_step read_chunk_end(http_parser *p, unsigned char c)
{
    if (c != (p->after_cr ? '\n' : '\r')) {
        return refuse(p, 400, "A chunk does not end with CR LF after as many bytes as it said.");
    }
    if (p->after_cr) {
        p->state = STATE_SIZE;
    }
    p->after_cr = !p->after_cr;
    return HTTP_MORE;
}

/* One byte in any state but those of a body's bytes. */
static http_step read_byte(http_parser *p, unsigned char c)
{
    http_step step;
    switch (p->state) {
    case STATE_HEAD:
        if (p->head_bytes == 0 && (c < 'A' || c > 'Z')) {
            return refuse(p, 400, "The request does not begin with a method.");
        }
        step = add_to_line(p, c);
        return step == HTTP_DONE ? read_head_line(p) : step;
    case STATE_SIZE:
        return read_size(p, c);
    case STATE_EXTENSION:
        return read_extension(p, c);
    case STATE_CHUNK_END:
        return read_chunk_end(p, c);
    default: /* STATE_TRAILER */
        step = add_to_line(p, c);
        return step == HTTP_DONE ? read_trailer_line(p) : step;
    }
}

/* The next bytes of the body. */
static http_step read_piece(http_parser *p, const char *bytes, size_t count)
{
    p->piece = bytes;
    p->piece_bytes = count < p->left ? count : (size_t)p->left;
    p->used += p->piece_bytes;
    p->left -= p->piece_bytes;
    p->body_bytes += p->piece_bytes;
    if (p->left == 0) {
        p->state = p->state == STATE_CHUNK ? STATE_CHUNK_END : STATE_DONE;
    }
    return HTTP_BODY;
}

http_step http_parse(http_parser *p, const char *bytes, size_t count)
{
    http_step step = HTTP_MORE;
    p->used = 0;
    if (p->state == STATE_CHOOSE) {
        step = choose(p);
    }
    while (step == HTTP_MORE && p->state != STATE_DONE && p->state != STATE_BAD && p->used < count) {
        if (p->state == STATE_LENGTH || p->state == STATE_CHUNK) {
            return read_piece(p, bytes + p->used, count - p->used);
        }
        step = read_byte(p, (unsigned char)bytes[p->used++]);
    }
    if (p->state == STATE_DONE) {
        return HTTP_DONE;
    }
    return p->state == STATE_BAD ? HTTP_BAD : step;
}
