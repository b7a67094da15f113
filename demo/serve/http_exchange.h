/* http_exchange.h: what the files http*.c share: the server, a connection with its exchange, and its buffers.
   takes: http.h.
   gives: http_buffer, struct http_exchange, struct http, http_put, http_*_exchange, http_origin_*. */
#ifndef SERVE_HTTP_EXCHANGE_H
#define SERVE_HTTP_EXCHANGE_H

#include "http.h"

#include <stdatomic.h>

#define HTTP_AHEAD_MAX (64u << 10) /* bytes that a client sends before its request is answered; then it waits */
#define HTTP_NEVER UINT64_MAX

typedef struct http_buffer { /* bytes[begin..end) are in use */
    char *bytes;
    size_t begin, end, size;
} http_buffer;

typedef enum http_state {
    HTTP_READING,   /* a request, or nothing yet */
    HTTP_WAITING,   /* the host has the request */
    HTTP_STREAMING, /* the host writes */
    HTTP_SENDING,   /* the host has finished; the rest of the answer is sent */
    HTTP_LINGERING, /* everything is sent; reads on, as closing at once could destroy what the client has not read */
    HTTP_CLOSED     /* is removed at the end of the turn */
} http_state;

struct http_exchange { /* a connection with its current exchange */
    http *server;
    net_socket socket;
    http_state state;
    void *user;
    http_buffer body, out, ahead;
    /* of the connection */
    bool half_closed;     /* the client sends no more */
    bool broken;          /* a socket failed, or there was no memory */
    uint64_t since_ms;    /* begin of the state READING or LINGERING */
    uint64_t read_ms;     /* of the last byte that was read */
    uint64_t sent_ms;     /* when the system took a byte, or `out` was empty */
    /* of the exchange: cleared by http_next_exchange */
    bool handed;          /* between on_head and its end: the host may hold the pointer */
    bool close_after;     /* the answer says so */
    bool unread;          /* the request was not read to its end */
    bool chunked, head_only, ping, was_full, probed;
    int status;           /* of the answer; 0: none yet */
    uint64_t id;          /* of the answer; 0: none yet */
    uint64_t answer_bytes, first_ms, probe_ms, wrote_ms;
    char peer[NET_ADDRESS_MAX], local[NET_ADDRESS_MAX];
    http_parser parser;   /* the last member: most of it is not cleared */
};

struct http {
    http_desc desc;
    net_socket listener, wake[2];
    atomic_bool woken;    /* a byte is in the pair */
    bool stopping, alarm_set;
    int port, count;
    uint64_t ids;         /* answers that were begun */
    uint64_t now_ms, accept_ms, alarm_ms; /* time of this turn; no accept before; the alarm is due */
    http_exchange **connections; /* [count] of connections_max */
    net_poll *polls;             /* [connections_max + 2] */
    char address[NET_ADDRESS_MAX + 16];
};

/* http_answer.c */
bool http_reserve(http *h, http_buffer *b, size_t count); /* reserves room for `count` bytes at the end; false: no
                                                             memory */
bool http_put(http *h, http_buffer *b, const void *bytes, size_t count);
void http_free_buffer(http *h, http_buffer *b);
void http_put_out(http_exchange *x, const void *bytes, size_t count); /* without memory, x->broken */
/* The server's own answer, after which the connection is closed. The host loses the exchange. */
void http_refuse_exchange(http_exchange *x, int status, const char *problem);

/* http_exchange.c: what happens to a connection. None of them removes it. */
void http_next_exchange(http_exchange *x);              /* a new request may come */
void http_read_exchange(http_exchange *x);              /* the socket is readable */
void http_settle_exchange(http_exchange *x);            /* sends, and begins the next request after an answer */
void http_take_back(http_exchange *x);                  /* on_gone, if the host has the exchange */
void http_lose_exchange(http_exchange *x);              /* the connection is over */
uint64_t http_exchange_deadline(const http_exchange *x); /* HTTP_NEVER: none */
void http_expire_exchange(http_exchange *x);            /* the deadline has come */
short http_exchange_events(const http_exchange *x);     /* for poll */

/* http_origin.c */
bool http_origin_check(http_exchange *x);         /* false: the request was answered: refused, or OPTIONS */
void http_origin_put_headers(http_exchange *x);   /* the headers of CORS, into x->out */

#endif
