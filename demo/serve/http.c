/* http.c: see http.h. The turns of the server: waits for sockets, accepts, and removes connections that are over.
   takes: sockets.
   gives: http_open, http_close, http_turn, http_run, http_stop, http_wake, and the questions of http.h.
   owns:  the listening socket, the waking pair, the connections. */
#include "http_exchange.h"
#include "../common/clock.h"

#include <stdio.h>
#include <string.h>

#define CONNECTIONS 512
#define BODY_MAX (4u << 20)
#define PING_SECONDS 15
#define ACCEPTS_MAX 64 /* in a turn */
#define PAUSE_MS 250   /* without accepting, after the system had no descriptor left and none could be closed */

static void *resize(http *h, void *memory, size_t bytes)
{
    return h->desc.system.resize(h->desc.system.user, memory, bytes);
}

static bool open_parts(http *h, char *error, size_t error_bytes)
{
    size_t most = (size_t)h->desc.connections_max;
    h->connections = resize(h, NULL, most * sizeof *h->connections);
    h->polls = resize(h, NULL, (most + 2) * sizeof *h->polls);
    if (!h->connections || !h->polls) {
        snprintf(error, error_bytes, "no memory for %d connections", h->desc.connections_max);
        return false;
    }
    if (!net_wake_open(h->wake)) {
        snprintf(error, error_bytes, "cannot open a pipe");
        return false;
    }
    h->port = h->desc.port;
    h->listener = net_listen(h->desc.host, &h->port, h->address, sizeof h->address, error, error_bytes);
    return h->listener != NET_NONE;
}

http *http_open(const http_desc *desc, char *error, size_t error_bytes)
{
    net_system system = desc->system;
    net_complete(&system);
    http *h = system.resize(system.user, NULL, sizeof *h);
    if (!h) {
        snprintf(error, error_bytes, "no memory for a server");
        return NULL;
    }
    memset(h, 0, sizeof *h);
    h->desc = *desc;
    h->desc.system = system;
    h->desc.host = desc->host ? desc->host : "127.0.0.1";
    h->desc.body_max = desc->body_max ? desc->body_max : BODY_MAX;
    h->desc.connections_max = desc->connections_max ? desc->connections_max : CONNECTIONS;
    h->desc.ping_seconds = desc->ping_seconds ? desc->ping_seconds : PING_SECONDS;
    h->listener = h->wake[0] = h->wake[1] = NET_NONE;
    h->now_ms = system.now_ms(system.user);
    if (!open_parts(h, error, error_bytes)) {
        http_close(h);
        return NULL;
    }
    return h;
}

/* Frees the connection; the last one takes its place. */
static void remove_connection(http *h, int index)
{
    http_exchange *x = h->connections[index];
    net_close(x->socket);
    http_free_buffer(h, &x->body);
    http_free_buffer(h, &x->out);
    http_free_buffer(h, &x->ahead);
    resize(h, x, 0);
    h->connections[index] = h->connections[--h->count];
}

void http_close(http *h)
{
    if (!h) {
        return;
    }
    while (h->count > 0) {
        remove_connection(h, h->count - 1);
    }
    net_close(h->listener);
    if (h->wake[0] != NET_NONE) {
        net_wake_close(h->wake);
    }
    if (h->polls) {
        resize(h, h->polls, 0);
    }
    if (h->connections) {
        resize(h, h->connections, 0);
    }
    resize(h, h, 0);
}

/* ---- accepting ---- */

/* The connection that for the longest time has not sent its whole request; -1: all have. */
static int find_oldest(const http *h)
{
    int oldest = -1;
    for (int i = 0; i < h->count; i++) {
        const http_exchange *x = h->connections[i];
        bool waits = x->state == HTTP_READING || x->state == HTTP_LINGERING;
        if (waits && (oldest < 0 || x->since_ms < h->connections[oldest]->since_ms)) {
            oldest = i;
        }
    }
    return oldest;
}

static bool close_oldest(http *h)
{
    int oldest = find_oldest(h);
    if (oldest < 0) {
        return false;
    }
    http_lose_exchange(h->connections[oldest]);
    remove_connection(h, oldest);
    return true;
}

static void add_connection(http *h, net_socket socket)
{
    http_exchange *x = resize(h, NULL, sizeof *x);
    if (!x) {
        net_close(socket);
        return;
    }
    memset(x, 0, offsetof(http_exchange, parser));
    x->server = h;
    x->socket = socket;
    net_names(socket, x->peer, x->local);
    http_next_exchange(x);
    h->connections[h->count++] = x;
}

static bool can_accept(const http *h)
{
    return h->listener != NET_NONE && h->now_ms >= h->accept_ms &&
           (h->count < h->desc.connections_max || find_oldest(h) >= 0);
}

static void accept_connections(http *h)
{
    const net_system *system = &h->desc.system;
    for (int i = 0; i < ACCEPTS_MAX && can_accept(h); i++) {
        net_socket socket = NET_NONE;
        net_result result = system->accept(system->user, h->listener, &socket);
        if (result == NET_FULL && close_oldest(h)) {
            continue; /* with its descriptor */
        }
        if (result == NET_FULL || result == NET_FAILED) {
            h->accept_ms = h->now_ms + PAUSE_MS;
        }
        if (result != NET_OK) {
            return;
        }
        if (h->count == h->desc.connections_max) {
            close_oldest(h);
        }
        add_connection(h, socket);
    }
}

/* ---- a turn ---- */

static void settle(http *h)
{
    for (int i = 0; i < h->count; i++) {
        http_settle_exchange(h->connections[i]);
    }
    for (int i = h->count; i-- > 0;) {
        if (h->connections[i]->state == HTTP_CLOSED) {
            remove_connection(h, i);
        }
    }
}

static uint64_t next_deadline(const http *h)
{
    uint64_t at = h->alarm_set ? h->alarm_ms : HTTP_NEVER;
    if (h->listener != NET_NONE && h->accept_ms > h->now_ms && h->accept_ms < at) {
        at = h->accept_ms;
    }
    for (int i = 0; i < h->count; i++) {
        uint64_t own = http_exchange_deadline(h->connections[i]);
        at = own < at ? own : at;
    }
    return at;
}

/* Milliseconds to wait: at most wait_ms, or without end if that is -1, and up to the next deadline. */
static int wait_of(const http *h, int wait_ms)
{
    uint64_t at = next_deadline(h);
    if (at == HTTP_NEVER) {
        return wait_ms;
    }
    uint64_t left = at > h->now_ms ? at - h->now_ms : 0;
    left = left < INT32_MAX ? left : INT32_MAX;
    return wait_ms >= 0 && (uint64_t)wait_ms < left ? wait_ms : (int)left;
}

/* Waits; polls[0] is the waking pair, then there are the connections in their order, then perhaps the listener.
   Returns how many entries were filled in; 0: nothing is ready. */
static size_t poll_all(http *h, int wait_ms)
{
    size_t count = 0;
    const net_system *system = &h->desc.system;
    h->polls[count++] = (net_poll){ .fd = h->wake[0], .events = POLLIN };
    for (int i = 0; i < h->count; i++) {
        h->polls[count++] =
            (net_poll){ .fd = h->connections[i]->socket, .events = http_exchange_events(h->connections[i]) };
    }
    if (can_accept(h)) {
        h->polls[count++] = (net_poll){ .fd = h->listener, .events = POLLIN };
    }
    int ready = system->poll(system->user, h->polls, count, wait_of(h, wait_ms));
    if (ready < 0) {
        clock_sleep_us(1000); /* a signal, or no memory: never a loop that keeps the CPU busy */
    }
    h->now_ms = system->now_ms(system->user);
    return ready > 0 ? count : 0;
}

static void take_wake(http *h)
{
    net_drain(h->wake[0]);
    atomic_store(&h->woken, false); /* after the drain: a call of http_wake from here on writes a byte again */
    if (h->desc.on_wake) {
        h->desc.on_wake(h->desc.user);
    }
}

static void take_events(http *h, size_t polled)
{
    int count = h->count; /* callbacks and reads do not change it */
    for (int i = 0; i < count && polled > 0; i++) {
        http_exchange *x = h->connections[i];
        short events = h->polls[i + 1].revents, broken = POLLERR | POLLHUP | POLLNVAL;
        if (events & POLLIN) {
            http_read_exchange(x);
        } else if (events & broken) {
            x->broken = true;
        }
    }
    if (polled > (size_t)count + 1 && h->polls[count + 1].revents) {
        accept_connections(h);
    }
    if (polled > 0 && h->polls[0].revents) {
        take_wake(h);
    }
}

static void take_deadlines(http *h)
{
    for (int i = 0; i < h->count; i++) {
        if (h->now_ms >= http_exchange_deadline(h->connections[i])) {
            http_expire_exchange(h->connections[i]);
        }
    }
    if (h->alarm_set && h->now_ms >= h->alarm_ms) {
        h->alarm_set = false;
        if (h->desc.on_alarm) {
            h->desc.on_alarm(h->desc.user);
        }
    }
}

bool http_turn(http *h, int wait_ms)
{
    h->now_ms = h->desc.system.now_ms(h->desc.system.user);
    settle(h);
    if (h->stopping && h->count == 0) {
        return false;
    }
    take_events(h, poll_all(h, wait_ms));
    take_deadlines(h);
    settle(h);
    return true;
}

void http_run(http *h)
{
    while (http_turn(h, -1)) {
    }
}

void http_stop(http *h)
{
    h->stopping = true;
    net_close(h->listener);
    h->listener = NET_NONE;
}

void http_wake(http *h)
{
    if (!atomic_exchange(&h->woken, true)) {
        net_wake(h->wake[1]);
    }
}

/* ---- questions ---- */

int http_port(const http *h)
{
    return h->port;
}

const char *http_address(const http *h)
{
    return h->address;
}

int http_connections(const http *h)
{
    return h->count;
}

uint64_t http_now_ms(const http *h)
{
    return h->now_ms;
}

void http_set_alarm(http *h, uint64_t ms)
{
    h->alarm_set = true;
    h->alarm_ms = h->desc.system.now_ms(h->desc.system.user) + ms;
}

void http_set_body_max(http_exchange *x, uint64_t bytes)
{
    x->parser.body_max = bytes;
}

const http_request *http_request_of(const http_exchange *x)
{
    return &x->parser.request;
}

void http_drop_body(http_exchange *x)
{
    http_free_buffer(x->server, &x->body);
    x->parser.request.body = NULL;
    x->parser.request.body_bytes = 0;
}

void http_set_user(http_exchange *x, void *user)
{
    x->user = user;
}

void *http_user(const http_exchange *x)
{
    return x->user;
}
