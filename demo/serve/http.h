/* http.h: an HTTP/1.1 server on one thread: connections, limits, timeouts, streams with back-pressure, Origin rules.
   It knows nothing of engines: the host decides about each request in callbacks.
   takes: a description with callbacks.
   gives: http_*.
   owns:  the listening socket, the connections and their buffers.

   A connection has one exchange (a request and its answer) at a time; requests that a client sends ahead wait. For
   each exchange the host is called:
     on_head     The head has arrived. The host decides about key, path and method, and may answer at once; then the
                 body is not read. Otherwise it returns, and the body is read.
     on_request  The body has arrived: request->body, body_bytes. The host answers now or later.
     on_gone     The exchange is over without the host: the client has left, or took no byte for 60 s, or the server
                 refused the rest of the request after on_head. The exchange is invalid when the callback returns. Not
                 called for an exchange that the host has finished.
     on_room     Fewer than HTTP_ROOM bytes of a stream wait, after more than HTTP_FULL waited.
   The host finishes an exchange by http_answer, http_answer_error or http_stream_end: the pointer is then
   invalid, unless it is used by the running callback for nothing more.

   The server itself answers malformed and late requests, OPTIONS, and what the Origin rules forbid; it leaves out the
   body of an answer to HEAD. A client that has ended its direction only is not gone while it waits for an answer that
   is no stream. Whether it has left altogether shows when something is sent, so "100 Continue" is sent to it now and
   then.

   Everything but http_wake is for one thread, and may be called in callbacks and between two calls of http_turn. No
   function calls back: on_gone comes in a later turn, even when memory has run out. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "http_parse.h"
#include "net.h"

#define HTTP_FULL (32u << 10) /* bytes that wait in a stream: above, the host pauses what writes to it */
#define HTTP_ROOM (16u << 10) /* below: on_room */

typedef struct http http;
typedef struct http_exchange http_exchange;

/* One line of the log: an exchange that is over, also one that the server itself refused. */
typedef struct http_log {
    const char *peer;           /* address of the client */
    const char *method, *path;  /* "" if the request was not readable; path as in http_request: escape controls */
    int status;                 /* 0: the client left before there was one */
    uint64_t id;                /* of the answer: X-Request-Id has it and the desc's id_seed; 0: there was none */
    uint64_t bytes;             /* of the answer's body */
    uint64_t ms;                /* from the first byte of the request on */
    bool gone;                  /* the answer was cut off */
} http_log;

typedef struct http_desc {
    const char *host;           /* address or name to listen on; NULL: 127.0.0.1 */
    int port;                   /* 0: a free one */
    uint64_t body_max;          /* bytes; 0: 4 MiB */
    int connections_max;        /* 0: 512 */
    unsigned ping_seconds;      /* a stream begun with `ping` gets ": keep-alive" after so long a silence; 0: 15 */
    uint32_t id_seed;           /* of this run of the server: X-Request-Id is "SEED-N", the Nth answer */
    bool no_auth;               /* the server has no keys: only pages of its own origin may use it (see README) */
    const char *cors_origin;    /* --cors: the one origin that is allowed; NULL: any with keys, none with no_auth */
    void *user;
    void (*on_head)(void *user, http_exchange *x, const http_request *r);    /* may be NULL */
    void (*on_request)(void *user, http_exchange *x, const http_request *r);
    void (*on_gone)(void *user, http_exchange *x);
    void (*on_room)(void *user, http_exchange *x);                           /* may be NULL */
    void (*on_wake)(void *user);                                             /* http_wake was called; may be NULL */
    void (*on_alarm)(void *user);                                            /* http_set_alarm; may be NULL */
    void (*on_log)(void *user, const http_log *line);                        /* may be NULL */
    net_system system;          /* zeroed: the real one; tests replace calls */
} http_desc;

/* NULL: error[0..error_bytes) has one sentence. Texts of the desc are used until http_close. */
http *http_open(const http_desc *desc, char *error, size_t error_bytes);
void http_close(http *h); /* closes everything at once, without callbacks; NULL is allowed */
int http_port(const http *h);
const char *http_address(const http *h); /* "127.0.0.1:5000", "[::1]:5000": as in a URL */
int http_connections(const http *h);     /* open ones */

/* Waits at most wait_ms (-1: until something happens) and handles what has happened. false: http_stop was called, and
   no connection is left. */
bool http_turn(http *h, int wait_ms);
void http_run(http *h);  /* turns until there is no more to do */
/* Accepts no more and closes connections without an exchange. The host still finishes its exchanges. */
void http_stop(http *h);
void http_wake(http *h); /* from any thread or signal handler: on_wake is called soon, once for many calls */
uint64_t http_now_ms(const http *h);           /* the server's clock */
void http_set_alarm(http *h, uint64_t ms);     /* calls on_alarm once, after `ms` milliseconds; replaces an earlier
                                                  alarm */

/* In on_head: the limit of this request's body, in place of the desc's. */
void http_set_body_max(http_exchange *x, uint64_t bytes);

/* Exchanges. `headers` are whole lines "Name: value\r\n", or NULL; Date, Content-Length, Transfer-Encoding,
   Connection, X-Request-Id, X-Content-Type-Options and those of CORS are added. `type` is the Content-Type; NULL:
   there is none. The body is copied, and left out where the method is HEAD, or the status 204 or 304. */
void http_answer(http_exchange *x, int status, const char *type, const char *headers, const void *body, size_t bytes);
/* {"error":{"message","type","param","code"},"detail":message}; param and code may be NULL: null. */
void http_answer_error(http_exchange *x, int status, const char *headers, const char *type, const char *param,
                       const char *code, const char *message);
/* An answer whose length is not known: chunked, or until the end of the connection for HTTP/1.0. The head is sent at
   the end of this turn. ping: it is text/event-stream, and comments keep it alive. */
void http_stream_begin(http_exchange *x, int status, const char *type, const char *headers, bool ping);
void http_stream_write(http_exchange *x, const void *bytes, size_t count); /* copies; sent at the end of this turn */
void http_stream_end(http_exchange *x);
size_t http_stream_pending(const http_exchange *x); /* bytes that the system has not taken yet */

const http_request *http_request_of(const http_exchange *x);
void http_drop_body(http_exchange *x); /* of the request, whose answer may be long in coming: it is not read again */
void http_set_user(http_exchange *x, void *user);
void *http_user(const http_exchange *x); /* NULL before http_set_user */

#endif
