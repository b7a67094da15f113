/* http_exchange.c: the life of a connection: reads requests, gives them to the host, sends what waits, and keeps the
   limits of time. Nothing here waits, and nothing removes a connection: that is http_turn's.
   takes: http_parse.h, and the sockets' calls of the desc.
   gives: http_next_exchange, http_read_exchange, http_settle_exchange, http_lose_exchange, http_exchange_deadline,
          http_expire_exchange, http_exchange_events.
   owns:  nothing: a connection belongs to the server. */
#include "http_exchange.h"

#include <string.h>

#define READ_BYTES (16u << 10) /* of one call */
#define READS_MAX 4            /* calls for a connection in a turn, so that the others get theirs */

/* Limits of time, in milliseconds. */
#define IDLE_MS 75000  /* a connection without a request */
#define HEAD_MS 10000  /* from the first byte of a head to its last */
#define BODY_MS 30000  /* without a byte of a body */
#define STUCK_MS 60000 /* without taking a byte of an answer */
#define LINGER_MS 2000
#define FIRST_PROBE_MS 30 /* after the client has ended its direction */
#define PROBE_MS 1000

void http_next_exchange(http_exchange *x)
{
    x->state = HTTP_READING;
    x->since_ms = x->read_ms = x->server->now_ms;
    x->handed = x->close_after = x->unread = x->chunked = x->head_only = x->ping = x->was_full = false;
    x->user = NULL;
    x->status = 0;
    x->id = x->answer_bytes = x->first_ms = x->probe_ms = x->wrote_ms = 0;
    http_free_buffer(x->server, &x->body);
    http_parse_begin(&x->parser, x->server->desc.body_max);
}

static void log_exchange(http_exchange *x, bool gone)
{
    const http_request *r = &x->parser.request;
    const http_desc *d = &x->server->desc;
    if (!d->on_log || (x->status == 0 && !http_parse_started(&x->parser))) {
        return;
    }
    http_log line = { .peer = x->peer,
                      .method = r->method ? r->method : "",
                      .path = r->path ? r->path : "",
                      .status = x->status,
                      .id = x->id,
                      .bytes = x->answer_bytes,
                      .ms = x->server->now_ms - x->first_ms,
                      .gone = gone };
    d->on_log(d->user, &line);
}

void http_take_back(http_exchange *x)
{
    if (x->handed) {
        x->handed = false; /* first, so that what the host still writes is ignored */
        x->server->desc.on_gone(x->server->desc.user, x);
    }
}

void http_lose_exchange(http_exchange *x)
{
    if (x->state == HTTP_CLOSED) {
        return;
    }
    http_take_back(x);
    if (x->state != HTTP_LINGERING) {
        log_exchange(x, true);
    }
    x->state = HTTP_CLOSED;
}

/* The head is complete. */
static void take_head(http_exchange *x, bool more_bytes)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const http_desc *d = &x->server->desc;
    const http_request *r = &x->parser.request;
    x->handed = true;
    if (http_origin_check(x) && d->on_head) {
        d->on_head(d->user, x, r);
    }
    bool too_long = r->length > x->parser.body_max;
    if (x->state == HTTP_READING && r->expects_continue && !more_bytes && !too_long) {
        http_put_out(x, go_on, sizeof go_on - 1);
    }
}

/* The request is complete. */
static void take_request(http_exchange *x)
{
    http_request *r = &x->parser.request;
    const http_desc *d = &x->server->desc;
    r->body = x->body.bytes;
    r->body_bytes = x->body.end;
    x->state = HTTP_WAITING;
    x->probe_ms = x->server->now_ms + FIRST_PROBE_MS;
    d->on_request(d->user, x, r);
}

static void take_step(http_exchange *x, http_step step, bool more_bytes)
{
    switch (step) {
    case HTTP_HEAD:
        take_head(x, more_bytes);
        break;
    case HTTP_BODY:
        if (!http_put(x->server, &x->body, x->parser.piece, x->parser.piece_bytes)) {
            http_refuse_exchange(x, 503, "There is no memory for the body of the request.");
        }
        break;
    case HTTP_DONE:
        take_request(x);
        break;
    case HTTP_BAD:
        http_refuse_exchange(x, x->parser.status, x->parser.problem);
        break;
    default:
        break;
    }
}

/* Reads a request from bytes that have arrived. Returns how many were used: all, unless the request has ended. */
static size_t feed(http_exchange *x, const char *bytes, size_t count)
{
    size_t used = 0;
    http_step step = HTTP_HEAD;
    if (!http_parse_started(&x->parser)) {
        x->first_ms = x->server->now_ms;
    }
    x->read_ms = x->server->now_ms;
    while (x->state == HTTP_READING && !x->broken && step != HTTP_MORE) {
        step = http_parse(&x->parser, bytes + used, count - used);
        used += x->parser.used;
        take_step(x, step, used < count);
    }
    return used;
}

/* The client sends no more. A request that waits for its answer may still want it; http_settle_exchange ends others. */
static void take_end(http_exchange *x)
{
    x->half_closed = true;
    if (x->state == HTTP_LINGERING) {
        x->state = HTTP_CLOSED;
    } else if (x->state == HTTP_WAITING) {
        x->probe_ms = x->server->now_ms + FIRST_PROBE_MS;
    }
}

/* Bytes from the socket. Those that follow a request wait until it is answered. */
static void take_bytes(http_exchange *x, const char *bytes, size_t count)
{
    size_t used = x->state == HTTP_READING && x->ahead.begin == x->ahead.end ? feed(x, bytes, count) : 0;
    if (x->state == HTTP_LINGERING || x->unread) {
        return;
    }
    if (used < count && !http_put(x->server, &x->ahead, bytes + used, count - used)) {
        x->broken = true;
    }
}

static bool may_read(const http_exchange *x)
{
    return !x->half_closed && x->ahead.end - x->ahead.begin < HTTP_AHEAD_MAX;
}

void http_read_exchange(http_exchange *x)
{
    char bytes[READ_BYTES];
    const net_system *system = &x->server->desc.system;
    for (int i = 0; i < READS_MAX && x->state != HTTP_CLOSED && !x->broken && may_read(x); i++) {
        size_t done = 0;
        net_result result = system->read(system->user, x->socket, bytes, sizeof bytes, &done);
        if (result == NET_OK) {
            take_bytes(x, bytes, done);
        } else if (result == NET_END) {
            take_end(x);
        } else if (result == NET_FAILED) {
            x->broken = true;
        }
        if (result != NET_OK) {
            break;
        }
    }
}

static void send_out(http_exchange *x)
{
    const net_system *system = &x->server->desc.system;
    while (x->out.begin < x->out.end && !x->broken) {
        size_t done = 0;
        net_result result =
            system->write(system->user, x->socket, x->out.bytes + x->out.begin, x->out.end - x->out.begin, &done);
        if (result == NET_AGAIN) {
            return;
        }
        x->broken = result != NET_OK;
        x->out.begin += done;
        x->sent_ms = x->server->now_ms;
    }
    if (x->out.begin == x->out.end && x->out.bytes) {
        http_free_buffer(x->server, &x->out);
    }
}

/* The answer was sent. */
static void end_exchange(http_exchange *x)
{
    log_exchange(x, false);
    if (!x->close_after) {
        http_next_exchange(x);
        return;
    }
    bool rest = x->unread || x->ahead.begin < x->ahead.end;
    x->state = rest && !x->half_closed ? HTTP_LINGERING : HTTP_CLOSED;
    x->since_ms = x->server->now_ms;
    http_free_buffer(x->server, &x->ahead);
    http_free_buffer(x->server, &x->body);
    if (x->state == HTTP_LINGERING) {
        net_end_write(x->socket);
    }
}

/* Requests that arrived before their turn, and what the end of the client's direction means for a request. */
static void read_ahead(http_exchange *x)
{
    if (x->ahead.begin < x->ahead.end) {
        x->ahead.begin += feed(x, x->ahead.bytes + x->ahead.begin, x->ahead.end - x->ahead.begin);
    }
    if (x->ahead.begin == x->ahead.end) {
        http_free_buffer(x->server, &x->ahead);
    }
    if (x->state != HTTP_READING || x->broken) {
        return;
    }
    bool started = http_parse_started(&x->parser);
    if (x->half_closed && started) {
        http_refuse_exchange(x, 400, "The connection has ended before the request.");
    } else if (x->half_closed || (x->server->stopping && !x->handed)) {
        x->state = HTTP_CLOSED;
    }
}

static bool has_room(const http_exchange *x)
{
    return x->state == HTTP_STREAMING && x->was_full && http_stream_pending(x) < HTTP_ROOM;
}

void http_settle_exchange(http_exchange *x)
{
    const http_desc *d = &x->server->desc;
    send_out(x);
    if (x->state == HTTP_SENDING && !x->broken && x->out.begin == x->out.end) {
        end_exchange(x);
    }
    if (x->state == HTTP_READING && !x->broken) {
        read_ahead(x);
    }
    if (has_room(x) && !x->broken) {
        x->was_full = false;
        if (d->on_room) {
            d->on_room(d->user, x);
        }
    }
    if (x->broken || (x->state == HTTP_STREAMING && x->half_closed)) {
        http_lose_exchange(x);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A client that has ended its direction has perhaps left altogether, which only an answer to what we send tells. */
static bool must_probe(const http_exchange *x)
{
    return x->state == HTTP_WAITING && x->half_closed && x->parser.request.minor == 1;
}

/* An empty stream that is silent for too long gets a comment. */
static bool must_ping(const http_exchange *x)
{
    return x->state == HTTP_STREAMING && x->ping && x->out.begin == x->out.end;
}

uint64_t http_exchange_deadline(const http_exchange *x)
{
    uint64_t at = HTTP_NEVER;
    if (x->state == HTTP_LINGERING) {
        return x->since_ms + LINGER_MS;
    }
    if (x->state == HTTP_READING) {
        at = !http_parse_started(&x->parser) ? x->since_ms + IDLE_MS
             : x->handed                     ? x->read_ms + BODY_MS
                                             : x->first_ms + HEAD_MS;
    }
    if (x->out.begin < x->out.end) {
        at = earlier(at, x->sent_ms + STUCK_MS);
    }
    if (must_probe(x)) {
        at = earlier(at, x->probe_ms);
    }
    return must_ping(x) ? earlier(at, x->wrote_ms + x->server->desc.ping_seconds * 1000u) : at;
}

void http_expire_exchange(http_exchange *x)
{
    static const char probe[] = "HTTP/1.1 100 Continue\r\n\r\n", comment[] = ": keep-alive\n\n";
    uint64_t now = x->server->now_ms;
    if (x->state == HTTP_LINGERING || (x->out.begin < x->out.end && now >= x->sent_ms + STUCK_MS)) {
        http_lose_exchange(x);
    } else if (must_probe(x)) {
        http_put_out(x, probe, sizeof probe - 1);
        x->probe_ms = now + PROBE_MS;
    } else if (must_ping(x)) {
        http_stream_write(x, comment, sizeof comment - 1);
        x->wrote_ms = now; /* also where nothing is written, as for HEAD */
    } else if (x->state == HTTP_READING && http_parse_started(&x->parser)) {
        http_refuse_exchange(x, 408, "The request was not sent in time.");
    } else if (x->state == HTTP_READING) {
        x->state = HTTP_CLOSED;
    }
}

short http_exchange_events(const http_exchange *x)
{
    return (short)((may_read(x) ? POLLIN : 0) | (x->out.begin < x->out.end ? POLLOUT : 0));
}
