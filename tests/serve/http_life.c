/* http_life.c: the life of connections of demo/serve/http.h: limits of time, clients that leave in each state, streams
   that nobody reads, full tables, and the end of the server. Time moves only when the test moves it. */
#include "http_rig.h"

#define HEAD "Host: a\r\n\r\n"
#define HELD "GET /held HTTP/1.1\r\n" HEAD
#define STREAM "GET /stream HTTP/1.1\r\n" HEAD
#define ECHO "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
#define ECHOED "Content-Length: 5\r\n\r\nhello"
#define GO_ON "HTTP/1.1 100 Continue\r\n\r\n"
#define SECOND 1000

static bool is_status(const char *text, int status)
{
    char begin[32];
    snprintf(begin, sizeof begin, "HTTP/1.1 %d ", status);
    return strncmp(text, begin, strlen(begin)) == 0;
}

static int client_that_sent(const char *text)
{
    int s = rig_client();
    rig_send(s, text);
    rig_turns();
    return s;
}

static void reset(int s)
{
    struct linger now = { 1, 0 };
    setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(s);
}

/* ---- limits of time ---- */

/* Quiet up to the last millisecond before the limit; then the answer (0: none) and the end. */
static void check_limit(const char *sent, uint64_t limit_ms, int status)
{
    int s = client_that_sent(sent);
    CHECK(rig.asked_ms >= 1);
    rig_pass(limit_ms - 1);
    CHECK(rig_quiet(s));
    CHECK(rig.asked_ms >= 0 && rig.asked_ms <= 1); /* poll would wait for just this limit */
    rig.now_ms += 1;
    const char *got = rig_read(s, NULL);
    CHECK(status ? is_status(got, status) : *got == 0);
    close(s);
    rig_turns();
    CHECK_INT(http_connections(rig.server), 0);
}

static void check_limits(void)
{
    rig_start((http_desc){ 0 });
    check_limit("", 75 * SECOND, 0);
    check_limit("G", 10 * SECOND, 408);
    check_limit("GET / HTTP/1.1\r\nHost: a\r\n", 10 * SECOND, 408);
    check_limit("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell", 30 * SECOND, 408);
    check_limit("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5", 30 * SECOND, 408);
    CHECK_INT(rig.gone, 2); /* the host had seen two heads */
    /* A head that comes byte by byte is late all the same; a body is late only without any byte. */
    int s = client_that_sent("GET / HTTP/1.1\r\nX: ");
    for (int i = 0; i < 9; i++) {
        rig_pass(SECOND);
        rig_send(s, "y");
    }
    CHECK(rig_quiet(s));
    rig_pass(SECOND);
    CHECK(is_status(rig_read(s, NULL), 408));
    close(s);
    s = client_that_sent("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    for (int i = 0; i < 5; i++) {
        rig_pass(29 * SECOND);
        CHECK(rig_quiet(s));
        rig_send_bytes(s, &"hello"[i], 1);
    }
    rig_read(s, ECHOED);
    /* Between two requests the time of an idle connection begins anew. */
    rig_pass(74 * SECOND);
    rig_talk(s, ECHO, ECHOED);
    rig_pass(74 * SECOND);
    CHECK(rig_quiet(s));
    rig_pass(SECOND);
    CHECK_TEXT(rig_read(s, NULL), "");
    close(s);
    /* No limit ends a request whose client waits. */
    s = client_that_sent(HELD);
    rig_pass((uint64_t)24 * 3600 * SECOND);
    CHECK(rig_quiet(s));
    CHECK_INT(rig.asked_ms, 1); /* -1 became the 1 ms that the test wants: there is no deadline */
    http_answer(rig.held[0], 200, NULL, NULL, "late", 4);
    CHECK(is_status(rig_read(s, "late"), 200));
    close(s);
    rig_close();
}

static void check_pings(void)
{
    rig_start((http_desc){ 0 });
    int s = client_that_sent(STREAM);
    rig_read(s, "\r\n\r\n");
    rig_pass(15 * SECOND - 1);
    CHECK(rig_quiet(s));
    rig_pass(1);
    CHECK_TEXT(rig_read(s, "\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
    rig_pass(14 * SECOND);
    http_stream_write(rig.held[0], "data: x\n\n", 9);
    CHECK_TEXT(rig_read(s, "\n\r\n"), "9\r\ndata: x\n\n\r\n");
    rig_pass(15 * SECOND - 1);
    CHECK(rig_quiet(s));
    rig_pass(1);
    CHECK_TEXT(rig_read(s, "\n\r\n"), "e\r\n: keep-alive\n\n\r\n");
    http_stream_end(rig.held[0]);
    CHECK_TEXT(rig_read(s, "\r\n\r\n"), "0\r\n\r\n");
    close(s);
    rig_close();
}

/* ---- clients that leave ---- */

enum { LEAVE_CLOSE, LEAVE_RESET, LEAVE_SHUT };

/* The client leaves; on_gone must come within `ms`, and the exchange of another client goes on. */
static void check_leaving(const char *sent, int how, uint64_t ms)
{
    rig_start((http_desc){ 0 });
    int other = client_that_sent(HELD), s = client_that_sent(sent);
    CHECK_INT(rig.gone, 0);
    if (how == LEAVE_RESET) {
        reset(s);
    } else if (how == LEAVE_SHUT) {
        shutdown(s, SHUT_WR);
    } else {
        close(s);
    }
    for (uint64_t passed = 0; passed < ms && rig.gone == 0; passed += 10) {
        rig_pass(10);
    }
    CHECK_INT(rig.gone, 1);
    CHECK_INT(rig.held_count, 1);
    CHECK_INT(http_connections(rig.server), 1);
    http_answer(rig.held[0], 200, NULL, NULL, "other", 5);
    CHECK(is_status(rig_read(other, "other"), 200));
    if (how == LEAVE_SHUT) {
        close(s);
    }
    close(other);
    rig_close();
}

static void check_all_leaving(void)
{
    static const char *const requests[] = { HELD, STREAM, HELD ECHO, STREAM ECHO,
                                            "POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel" };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        check_leaving(requests[i], LEAVE_CLOSE, 100);
        check_leaving(requests[i], LEAVE_RESET, 10);
    }
    check_leaving(STREAM, LEAVE_SHUT, 10);
    check_leaving(STREAM ECHO, LEAVE_SHUT, 10);
}

/* A client that has ended only its own direction gets its answer. */
static void check_half_closed(void)
{
    rig_start((http_desc){ 0 });
    int s = client_that_sent(HELD ECHO);
    shutdown(s, SHUT_WR);
    rig_pass(20); /* answered soon: nothing but the answers */
    http_answer(rig.held[0], 200, NULL, NULL, "soon", 4);
    const char *got = rig_read(s, NULL);
    CHECK(is_status(got, 200) && strstr(got, "soon") && !strstr(got, GO_ON));
    CHECK_TEXT(got + strlen(got) - 5, "hello");
    close(s);
    rig.held_count = 0;
    s = client_that_sent(HELD);
    shutdown(s, SHUT_WR);
    rig_turns();
    rig_pass(29);
    CHECK(rig_quiet(s));
    rig_pass(1);
    CHECK_TEXT(rig_read(s, GO_ON), GO_ON);
    for (int i = 0; i < 3600; i++) {
        rig.now_ms += SECOND;
        rig_turn();
    }
    CHECK_INT(rig.gone, 0);
    http_answer(rig.held[0], 200, NULL, NULL, "after an hour", 13);
    CHECK(strstr(rig_read(s, NULL), "after an hour") != NULL);
    close(s);
    rig.held_count = 0;
    s = client_that_sent("GET /held HTTP/1.0\r\n\r\n"); /* HTTP/1.0 knows no 100 */
    shutdown(s, SHUT_WR);
    rig_pass(3600 * SECOND);
    CHECK(rig_quiet(s));
    http_answer(rig.held[0], 200, NULL, NULL, "old", 3);
    CHECK(is_status(rig_read(s, NULL), 200));
    close(s);
    s = client_that_sent("GET / HTTP/1.1\r\nHost: a\r\n"); /* half a request */
    shutdown(s, SHUT_WR);
    CHECK(is_status(rig_read(s, NULL), 400));
    close(s);
    rig_close();
}

/* One that has ended its direction gets no stream. */
static void check_half_closed_stream(void)
{
    rig_start((http_desc){ 0 });
    int s = client_that_sent(HELD);
    shutdown(s, SHUT_WR);
    rig_turns();
    CHECK_INT(rig.gone, 0);
    http_stream_begin(rig.held[0], 200, "text/event-stream", NULL, true);
    rig_turns();
    CHECK_INT(rig.gone, 1);
    close(s);
    rig_close();
}

/* A client that still sends when it is refused must be able to read why: its bytes are read away for 2 s. */
static void check_lingering(void)
{
    static char more[256 << 10];
    char byte;
    rig_start((http_desc){ 0 });
    int s = client_that_sent("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n");
    CHECK(is_status(rig_read(s, "}"), 401));
    for (int i = 0; i < 19; i++) {
        rig_pass(100);
        rig_send_bytes(s, more, sizeof more);
        CHECK_INT(recv(s, &byte, 1, 0), 0); /* the end, not a reset */
    }
    CHECK_INT(http_connections(rig.server), 1);
    rig_pass(100);
    CHECK_INT(http_connections(rig.server), 0);
    CHECK_INT(rig.gone, 0);
    close(s);
    rig_close();
}

/* ---- streams that nobody reads ---- */

#define PIECE 1000

static size_t write_until_full(http_exchange *x, int *number)
{
    size_t written = 0;
    for (int i = 0; i < 100000 && http_stream_pending(x) <= HTTP_FULL; i++) {
        char piece[PIECE + 1];
        snprintf(piece, sizeof piece, "%0*d", PIECE, (*number)++);
        http_stream_write(x, piece, PIECE);
        written += PIECE;
        rig_turn();
    }
    return written;
}

/* Nothing is dropped, and on_room comes once when the client reads on. */
static void check_back_pressure(void)
{
    rig_start((http_desc){ 0 });
    int s = client_that_sent(STREAM), number = 0;
    size_t written = write_until_full(rig.held[0], &number);
    CHECK(http_stream_pending(rig.held[0]) > HTTP_FULL);
    rig.full = true;
    rig_pass(59 * SECOND);
    CHECK_INT(rig.gone + rig.rooms, 0);
    CHECK(rig.asked_ms > 0); /* poll waits */
    rig.full = false;
    size_t read = 0;
    int rows = 0;
    char *all = (char *)malloc(written * 2 + 4096);
    for (int i = 0; i < TURNS_MAX && rows < number; i++) {
        ssize_t done = recv(s, all + read, written * 2 + 4095 - read, 0);
        read += done > 0 ? (size_t)done : 0;
        all[read] = 0;
        for (char *at = all;
             i % 16 == 15 && (at = strstr(at, "\r\n3e8\r\n")) != NULL && at + 7 + PIECE <= all + read;) {
            rows = atoi(at + 7 + PIECE - 9) + 1;
            at += 7 + PIECE;
        }
        rig_turn();
    }
    CHECK_INT(rows, number);
    int wanted = 0;
    for (char *at = all; (at = strstr(at, "\r\n3e8\r\n")) != NULL; at += 7) {
        CHECK_INT(atoi(at + 7 + PIECE - 9), wanted++);
    }
    CHECK_INT(wanted, number);
    CHECK_INT(rig.rooms, 1);
    CHECK_INT(http_stream_pending(rig.held[0]), 0);
    free(all);
    http_stream_end(rig.held[0]);
    rig_read(s, "0\r\n\r\n");
    close(s);
    rig_close();
}

/* A client that takes nothing for 60 s is gone, whatever is sent to it; so is one with an answer. The rig says when
   nothing is taken: a real system sometimes takes bytes long after it had no room. */
static void check_stuck(void)
{
    rig_start((http_desc){ 0 });
    int s = client_that_sent(STREAM);
    rig.full = true;
    http_stream_write(rig.held[0], "x", 1);
    rig_pass(59 * SECOND);
    http_stream_write(rig.held[0], "x", 1);
    rig_pass(999);
    CHECK_INT(rig.gone, 0);
    rig_pass(1);
    CHECK_INT(rig.gone, 1);
    CHECK_INT(http_connections(rig.server), 0);
    close(s);
    s = client_that_sent(HELD);
    http_answer(rig.held[0], 200, NULL, NULL, "z", 1);
    rig_pass(59 * SECOND);
    CHECK_INT(http_connections(rig.server), 1);
    rig_pass(1 * SECOND);
    CHECK_INT(http_connections(rig.server), 0);
    CHECK_INT(rig.gone, 1); /* the host had finished */
    CHECK(rig.log.gone);
    close(s);
    rig_close();
}

/* ---- full tables ---- */

/* 512 clients with half a request; those who come later push out the oldest of them, and never one that waits. */
static void check_full(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int most = files.rlim_cur > 1200 ? 512 : 64, *s = (int *)calloc((size_t)most, sizeof *s);
    rig_start((http_desc){ .connections_max = most });
    s[0] = client_that_sent(HELD);
    for (int i = 1; i < most; i++) {
        s[i] = rig_client();
        rig.now_ms++;
        rig_send(s[i], i % 2 ? "GET / HT" : "");
    }
    rig_turns();
    CHECK_INT(http_connections(rig.server), most);
    for (int i = 0; i < 3; i++) {
        int late = rig_client();
        rig_talk(late, ECHO, ECHOED);
        CHECK_TEXT(rig_read(s[1 + i], NULL), "");
        CHECK(rig_quiet(s[0]) && rig_quiet(s[2 + i]));
        CHECK_INT(http_connections(rig.server), most);
        close(late);
        close(s[1 + i]);
        s[1 + i] = rig_client();
        rig_turns();
    }
    CHECK_INT(rig.gone, 0);
    for (int i = 0; i < most; i++) {
        close(s[i]);
    }
    rig_close();
    free(s);
}

/* All have sent their requests: a new one waits in the system's queue, and poll does not spin over it. */
static void check_all_busy(void)
{
    int s[3];
    rig_start((http_desc){ .connections_max = 2 });
    s[0] = client_that_sent(HELD);
    s[1] = client_that_sent(STREAM);
    s[2] = client_that_sent(ECHO);
    int calls = rig.calls[CALL_ACCEPT];
    rig_turns();
    CHECK_INT(rig.calls[CALL_ACCEPT], calls);
    http_answer(rig.held[0], 200, NULL, NULL, "done", 4);
    rig_read(s[2], ECHOED); /* s[0] is idle now, and goes */
    CHECK_INT(rig.gone, 0);
    for (int i = 0; i < 3; i++) {
        close(s[i]);
    }
    rig_close();
}

/* Without descriptors the server does not spin: it closes one that has sent no request, and tries again later. */
static void check_no_descriptors(void)
{
    rig_start((http_desc){ 0 });
    int idle = client_that_sent("GET"), held = client_that_sent(HELD), calls = rig.calls[CALL_ACCEPT];
    rig.fails[CALL_ACCEPT] = calls + 1;
    rig.always[CALL_ACCEPT] = true;
    int late = rig_client();
    rig_send(late, ECHO);
    rig_turns();
    CHECK_INT(rig.calls[CALL_ACCEPT], calls + 2); /* once more after one was closed; now there is none to close */
    CHECK_TEXT(rig_read(idle, NULL), "");
    rig_pass(249);
    CHECK_INT(rig.calls[CALL_ACCEPT], calls + 2);
    CHECK(rig.asked_ms > 0);
    rig_pass(1);
    CHECK_INT(rig.calls[CALL_ACCEPT], calls + 3);
    rig.fails[CALL_ACCEPT] = 0;
    rig_pass(250);
    rig_read(late, ECHOED);
    CHECK(rig_quiet(held));
    CHECK_INT(rig.gone, 0);
    close(idle), close(held), close(late);
    rig_close();
}

/* ---- the body of a request that waits ---- */

static void check_dropped_body(void)
{
    rig_start((http_desc){ 0 });
    int client = client_that_sent("POST /held HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                  "Content-Length: 4\r\n\r\nbody");
    CHECK_INT(rig.held_count, 1);
    CHECK_TEXT(rig.seen_body, "body");
    long blocks = rig.blocks;
    http_drop_body(rig.held[0]);
    CHECK_INT(rig.blocks, blocks - 1);
    CHECK(!http_request_of(rig.held[0])->body && http_request_of(rig.held[0])->body_bytes == 0);
    http_answer(rig.held[0], 200, NULL, NULL, "y", 1);
    rig_send(client, ECHO);
    rig_read(client, ECHOED);
    close(client);
    rig_close();
}

/* ---- the end of the server, the alarm ---- */

static void check_stop(void)
{
    rig_start((http_desc){ 0 });
    int idle = client_that_sent(""), half = client_that_sent("GET"), stream = client_that_sent(STREAM);
    int held = client_that_sent(HELD);
    http_stop(rig.server);
    CHECK_TEXT(rig_read(idle, NULL), "");
    CHECK_TEXT(rig_read(half, NULL), "");
    CHECK_INT(http_connections(rig.server), 2);
    http_stream_write(rig.held[0], "x", 1);
    http_stream_end(rig.held[0]);
    CHECK(strstr(rig_read(stream, "0\r\n\r\n"), "1\r\nx\r\n0\r\n\r\n") != NULL);
    http_answer(rig.held[1], 200, NULL, NULL, "y", 1);
    http_run(rig.server);
    CHECK(!http_turn(rig.server, -1));
    ssize_t done = recv(held, rig_text, sizeof rig_text - 1, 0);
    CHECK(done > 0 && rig_text[done - 1] == 'y');
    close(idle), close(half), close(stream), close(held);
    rig_close();
}

static void check_alarm(void)
{
    rig_start((http_desc){ 0 });
    http_set_alarm(rig.server, 250);
    rig_pass(249);
    CHECK_INT(rig.alarms, 0);
    CHECK_INT(rig.asked_ms, 1);
    rig_pass(1);
    rig_pass(1000);
    CHECK_INT(rig.alarms, 1);
    http_wake(rig.server);
    http_wake(rig.server);
    rig_turns();
    CHECK_INT(rig.wakes, 1);
    http_wake(rig.server);
    rig_turns();
    CHECK_INT(rig.wakes, 2);
    rig_close();
}

int main(void)
{
    check_limits();
    check_pings();
    check_all_leaving();
    check_half_closed();
    check_half_closed_stream();
    check_lingering();
    check_back_pressure();
    check_stuck();
    check_full();
    check_all_busy();
    check_no_descriptors();
    check_dropped_body();
    check_stop();
    check_alarm();
    return check_done();
}
