/* http_rig.h: a server (demo/serve/http.h) and its clients in one thread. Time stands still until the test moves it,
   and the calls of the system can fail or be cut short.
   takes: the files of demo/serve, linked.
   gives: rig_open, rig_close, rig_turn, rig_client, rig_send, rig_read, rig_talk, rig_end. */
#ifndef HTTP_RIG_H
#define HTTP_RIG_H

#include "../check.h"

#include "../../demo/serve/http.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS_MAX 4000 /* of 1 ms at most, before a test gives up waiting */

enum { CALL_RESIZE, CALL_ACCEPT, CALL_READ, CALL_WRITE, CALL_POLL, CALLS };

static struct {
    http *server;
    http_desc desc;
    uint64_t now_ms;
    int calls[CALLS];   /* made since rig_open */
    int fails[CALLS];   /* the number of the call that fails; 0: none */
    bool always[CALLS]; /* every call from then on */
    size_t short_reads; /* bytes of a read at most; 0: any */
    size_t short_writes;
    bool full;         /* the system has no room for what the server sends */
    int asked_ms;      /* what the last poll would have waited */
    long blocks;       /* of memory */
    net_system system; /* the real calls */
    /* what the host has seen */
    http_exchange *held[600];
    int held_count, gone, rooms, wakes, alarms, heads, requests, logs;
    http_log log; /* the last line; its texts are in log_texts */
    char log_texts[3][5000];
    char seen_body[4096]; /* of the last request, if it fits */
} rig;

static bool rig_fails(int call)
{
    rig.calls[call]++;
    return rig.fails[call] > 0 &&
           (rig.always[call] ? rig.calls[call] >= rig.fails[call] : rig.calls[call] == rig.fails[call]);
}

static uint64_t rig_now(void *user)
{
    (void)user;
    return rig.now_ms;
}

static void *rig_resize(void *user, void *memory, size_t bytes)
{
    if (bytes > 0 && rig_fails(CALL_RESIZE)) {
        return NULL;
    }
    rig.blocks += (bytes > 0) - (memory != NULL);
    return rig.system.resize(user, memory, bytes);
}

static net_result rig_accept(void *user, net_socket listener, net_socket *out)
{
    return rig_fails(CALL_ACCEPT) ? NET_FULL : rig.system.accept(user, listener, out);
}

static net_result rig_read_call(void *user, net_socket s, void *bytes, size_t count, size_t *done)
{
    count = rig.short_reads > 0 && rig.short_reads < count ? rig.short_reads : count;
    return rig_fails(CALL_READ) ? NET_FAILED : rig.system.read(user, s, bytes, count, done);
}

static net_result rig_write_call(void *user, net_socket s, const void *bytes, size_t count, size_t *done)
{
    if (rig.full) {
        return NET_AGAIN;
    }
    count = rig.short_writes > 0 && rig.short_writes < count ? rig.short_writes : count;
    if (rig.short_writes > 0 && rig.calls[CALL_WRITE] % 3 == 2) { /* and nothing at all now and then */
        rig.calls[CALL_WRITE]++;
        return NET_AGAIN;
    }
    return rig_fails(CALL_WRITE) ? NET_FAILED : rig.system.write(user, s, bytes, count, done);
}

static int rig_poll(void *user, net_poll *sockets, size_t count, int wait_ms)
{
    rig.asked_ms = wait_ms;
    for (size_t i = 0; i < count && rig.full; i++) {
        sockets[i].events &= (short)~POLLOUT;
    }
    return rig_fails(CALL_POLL) ? -1 : rig.system.poll(user, sockets, count, wait_ms > 0 ? 1 : wait_ms);
}

/* ---- the host: what a path does ---- */

static void rig_hold(http_exchange *x)
{
    CHECK(rig.held_count < 600);
    rig.held[rig.held_count++] = x;
}

static void rig_on_head(void *user, http_exchange *x, const http_request *r)
{
    CHECK(user == &rig && !r->body);
    rig.heads++;
    if (strcmp(r->path, "/refused") == 0) {
        http_answer_error(x, 401, "WWW-Authenticate: Bearer\r\n", "authentication_error", NULL, "invalid_api_key",
                          "No.");
    } else if (strcmp(r->path, "/early") == 0) {
        http_answer(x, 200, "text/plain", NULL, "early", 5);
    }
    http_set_user(x, &rig.heads);
}

static void rig_on_request(void *user, http_exchange *x, const http_request *r)
{
    CHECK(user == &rig && http_user(x) == &rig.heads && http_request_of(x) == r);
    rig.requests++;
    if (r->body_bytes < sizeof rig.seen_body) {
        memcpy(rig.seen_body, r->body ? r->body : "", r->body_bytes);
        rig.seen_body[r->body_bytes] = 0;
    }
    if (strcmp(r->path, "/echo") == 0) {
        http_answer(x, 200, "text/plain", "X-Extra: 1\r\n", r->body, r->body_bytes);
    } else if (strcmp(r->path, "/none") == 0) {
        http_answer(x, 204, NULL, NULL, NULL, 0);
    } else if (strcmp(r->path, "/two") == 0) {
        http_stream_begin(x, 200, "text/event-stream", NULL, true);
        http_stream_write(x, "data: 1\n\n", 9);
        http_stream_write(x, "", 0);
        http_stream_write(x, "data: [DONE]\n\n", 14);
        http_stream_end(x);
    } else if (strcmp(r->path, "/held") == 0) {
        rig_hold(x);
    } else if (strcmp(r->path, "/stream") == 0) {
        http_stream_begin(x, 200, "text/event-stream", NULL, true);
        rig_hold(x);
    } else {
        http_answer_error(x, 404, NULL, "invalid_request_error", "path", "not_found", "There is no such path.");
    }
}

static void rig_forget(http_exchange *x)
{
    for (int i = 0; i < rig.held_count; i++) {
        if (rig.held[i] == x) {
            rig.held[i] = rig.held[--rig.held_count];
            return;
        }
    }
}

static void rig_on_gone(void *user, http_exchange *x)
{
    CHECK(user == &rig && http_user(x) == &rig.heads);
    rig.gone++;
    rig_forget(x);
}

static void rig_on_room(void *user, http_exchange *x)
{
    (void)user;
    CHECK(http_stream_pending(x) < HTTP_ROOM);
    rig.rooms++;
}

static void rig_on_wake(void *user)
{
    (void)user;
    rig.wakes++;
}

static void rig_on_alarm(void *user)
{
    (void)user;
    rig.alarms++;
}

static void rig_on_log(void *user, const http_log *line)
{
    (void)user;
    rig.logs++;
    rig.log = *line;
    snprintf(rig.log_texts[0], sizeof rig.log_texts[0], "%s", line->peer);
    snprintf(rig.log_texts[1], sizeof rig.log_texts[1], "%s", line->method);
    snprintf(rig.log_texts[2], sizeof rig.log_texts[2], "%s", line->path);
    rig.log.peer = rig.log_texts[0];
    rig.log.method = rig.log_texts[1];
    rig.log.path = rig.log_texts[2];
}

/* Opens a server over rig.desc, in which the test has set what it wants. NULL when a call failed. */
static http *rig_open(void)
{
    char error[200] = "";
    http_desc d = rig.desc;
    net_complete(&rig.system);
    d.user = &rig;
    d.on_head = rig_on_head;
    d.on_request = rig_on_request;
    d.on_gone = rig_on_gone;
    d.on_room = rig_on_room;
    d.on_wake = rig_on_wake;
    d.on_alarm = rig_on_alarm;
    d.on_log = rig_on_log;
    d.system = (net_system){ .now_ms = rig_now,
                             .resize = rig_resize,
                             .accept = rig_accept,
                             .read = rig_read_call,
                             .write = rig_write_call,
                             .poll = rig_poll };
    rig.server = http_open(&d, error, sizeof error);
    CHECK((rig.server != NULL) == (*error == 0));
    return rig.server;
}

/* A server with these settings and nothing that fails. */
static inline void rig_start(http_desc desc)
{
    memset(&rig, 0, sizeof rig);
    rig.now_ms = 1000000;
    rig.desc = desc;
    CHECK(rig_open() != NULL);
}

static void rig_close(void)
{
    http_close(rig.server);
    rig.server = NULL;
    CHECK_INT(rig.blocks, 0);
}

static void rig_turn(void)
{
    CHECK(http_turn(rig.server, 1));
}

/* Turns until nothing happens any more. */
static void rig_turns(void)
{
    for (int i = 0; i < 6; i++) {
        rig_turn();
    }
}

/* ---- clients ---- */

/* A client that is connected; it does not block. */
static int rig_client(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)http_port(rig.server)) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s >= 0 && connect(s, (struct sockaddr *)&at, sizeof at) == 0);
    fcntl(s, F_SETFL, O_NONBLOCK);
    return s;
}

/* Sends all, with turns of the server while its buffers are full. */
static void rig_send_bytes(int s, const void *bytes, size_t count)
{
    const char *at = (const char *)bytes;
    for (int i = 0; i < TURNS_MAX && count > 0; i++) {
        ssize_t done = send(s, at, count, MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN) {
            return; /* the server has closed: the test sees it by what it reads */
        }
        at += done > 0 ? done : 0;
        count -= done > 0 ? (size_t)done : 0;
        rig_turn();
    }
    CHECK_INT(count, 0);
}

static void rig_send(int s, const char *text)
{
    rig_send_bytes(s, text, strlen(text));
}

static char rig_text[1 << 21]; /* what the last rig_read has read, without Date and X-Request-Id */
static size_t rig_text_bytes;

/* Every answer has these lines, which differ from one to the next. */
static void rig_drop_lines(const char *name, bool (*good)(const char *line, const char *end))
{
    for (char *at = rig_text; (at = strstr(at, name)) != NULL;) {
        char *end = strstr(at, "\r\n");
        if (!end) {
            return; /* the rest has not come yet */
        }
        CHECK(good(at, end));
        memmove(at, end + 2, (size_t)(rig_text + rig_text_bytes - (end + 2)) + 1);
        rig_text_bytes -= (size_t)(end + 2 - at);
    }
}

static bool rig_good_date(const char *line, const char *end)
{
    return end - line == 35 && strncmp(end - 4, " GMT", 4) == 0;
}

static bool rig_good_id(const char *line, const char *end)
{
    const char *digits = line + sizeof "X-Request-Id: 01234567-" - 1;
    bool whole = digits < end && strspn(digits, "0123456789") == (size_t)(end - digits);
    return whole && digits[-1] == '-' && *digits != '0';
}

/* Reads until the text ends with `until`; NULL: until the connection ends. Returns what came. */
static const char *rig_read(int s, const char *until)
{
    bool open = true, whole = false;
    rig_text_bytes = 0;
    for (int i = 0; i < TURNS_MAX && open && !whole; i++) {
        rig_turn();
        ssize_t done = 1;
        while (done > 0 && rig_text_bytes < sizeof rig_text - 1) {
            done = recv(s, rig_text + rig_text_bytes, sizeof rig_text - 1 - rig_text_bytes, 0);
            rig_text_bytes += done > 0 ? (size_t)done : 0;
        }
        rig_text[rig_text_bytes] = 0;
        rig_drop_lines("Date: ", rig_good_date);
        rig_drop_lines("X-Request-Id: ", rig_good_id);
        open = done > 0 || (done < 0 && errno == EAGAIN);
        size_t end = until ? strlen(until) : 0;
        whole = until && rig_text_bytes >= end && strcmp(rig_text + rig_text_bytes - end, until) == 0;
    }
    CHECK(until ? whole : !open);
    return rig_text;
}

static const char *rig_talk(int s, const char *text, const char *until)
{
    rig_send(s, text);
    return rig_read(s, until);
}

/* Nothing has arrived, and the connection is open. */
static inline bool rig_quiet(int s)
{
    char byte;
    rig_turns();
    return recv(s, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

/* Moves the time and lets the server see it. */
static void rig_pass(uint64_t ms)
{
    rig.now_ms += ms;
    rig_turns();
}

#endif
