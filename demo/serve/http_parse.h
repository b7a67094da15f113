/* http_parse.h: an incremental parser of HTTP/1.1 and HTTP/1.0 requests, over pieces of bytes of any size. It reads
   strictly: what two readers could understand differently is refused, never repaired. No system calls, no allocation.
   takes: bytes as they arrive.
   gives: http_parser, http_request, http_parse_begin, http_parse, http_parse_started, http_field_of, http_has_token. */
#ifndef SERVE_HTTP_PARSE_H
#define SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX 16384 /* bytes of the request line and all fields with their line ends; of the trailers too */
#define HTTP_FIELDS_MAX 100
#define HTTP_TARGET_MAX 4096
#define HTTP_METHOD_MAX 20
#define HTTP_EXTENSIONS_MAX 4096 /* bytes of all chunk extensions of a body, which are ignored */

typedef struct http_field {
    const char *name, *value; /* the name in lower case; the value without white space around it */
} http_field;

/* Texts end with NUL, lie in the parser, and live until http_parse_begin. */
typedef struct http_request {
    const char *method;  /* capital letters and '-' */
    const char *path;    /* begins with '/'; percent signs are decoded; "*" only with OPTIONS */
    const char *query;   /* what follows '?', as it came; "" if there is none */
    const char *host;    /* the field Host, checked; "" if an HTTP/1.0 request has none */
    int minor;           /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;     /* the client lets the connection stay open */
    bool has_body;       /* a length above 0, or chunked: bytes follow the head */
    bool chunked;
    bool expects_continue;
    uint64_t length;     /* Content-Length; 0 if there is none */
    int field_count;
    http_field fields[HTTP_FIELDS_MAX];
    const char *body;    /* set by the server (http.h) once all of it has arrived; NULL before and if it is empty */
    size_t body_bytes;
} http_request;

typedef enum http_step {
    HTTP_MORE, /* all bytes were used; the request goes on */
    HTTP_HEAD, /* the head is complete: request is filled in */
    HTTP_BODY, /* piece[0..piece_bytes) are the next bytes of the body, inside the bytes that were given */
    HTTP_DONE, /* the request is complete; bytes after `used` belong to the next one */
    HTTP_BAD   /* status and problem say why; the connection cannot be read any further */
} http_step;

typedef struct http_parser {
    http_request request;
    size_t used;         /* of the bytes that the last call was given */
    const char *piece;   /* HTTP_BODY */
    size_t piece_bytes;
    int status;          /* HTTP_BAD: 400, 413, 414, 417 or 431; else 0 */
    const char *problem; /* HTTP_BAD: one sentence */
    uint64_t body_max;   /* may be changed between HTTP_HEAD and the next call */
    /* private */
    int state;
    int hosts, lengths, codings, trailers; /* fields seen: Host, Content-Length, Transfer-Encoding; trailer fields */
    bool after_cr, close, stay;            /* the last byte was CR; tokens of Connection */
    const char *authority;                 /* of a target "http://authority/path"; NULL */
    size_t authority_bytes;
    size_t head_bytes, line_at;            /* bytes in head; where its last line begins */
    size_t digits, extension_bytes;        /* of the size of this chunk; of all extensions */
    uint64_t body_bytes, left;             /* left: of the length, or of this chunk */
    char head[HTTP_HEAD_MAX];              /* not cleared: only head_bytes of it are defined */
} http_parser;

/* Begins a request. body_max: bytes of the body; a longer one is HTTP_BAD with 413, after HTTP_HEAD. */
void http_parse_begin(http_parser *p, uint64_t body_max);
/* Reads on until the next event. Call it again with the bytes after p->used, also if there are none, until it returns
   HTTP_MORE, HTTP_DONE or HTTP_BAD. Events and results do not depend on how the bytes are cut into calls, except that
   a piece of the body may come in parts. */
http_step http_parse(http_parser *p, const char *bytes, size_t count);
bool http_parse_started(const http_parser *p); /* at least one byte of the request was read */

/* Value of the first field with this name, which is in lower case; NULL: there is none. */
const char *http_field_of(const http_request *r, const char *name);
/* The list with commas, such as the value of Connection, has this token; letters may be of either case. */
bool http_has_token(const char *list, const char *token);

#endif
