/* http_faults.c: demo/serve/http.h when calls of the system fail: each allocation, accept, read, write and poll once,
   and all from one on; and with wakes from threads and signal handlers, for the thread sanitizer. */
#include "http_rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define ECHO "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
#define ECHOED "X-Extra: 1\r\nContent-Length: 5\r\n\r\nhello"

/* Sends and reads what can be sent and read: the server may close at any time. */
static void try_talk(int s, const char *text)
{
    ssize_t sent = send(s, text, strlen(text), MSG_NOSIGNAL);
    (void)sent;
    for (int i = 0; i < 4; i++) {
        char bytes[4096];
        http_turn(rig.server, 1);
        while (recv(s, bytes, sizeof bytes, 0) > 0) {
        }
    }
}

/* Bodies, pipelined requests, refusals, a held answer and a stream. */
static void scenario(void)
{
    static char large[9000];
    int one = rig_client(), two = rig_client();
    memset(large, 'w', sizeof large - 1);
    try_talk(one, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n");
    try_talk(one, large + sizeof large - 1 - 5000);
    try_talk(one, "\r\n0\r\n\r\n" ECHO "GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
    try_talk(two, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n" ECHO ECHO "GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    try_talk(one, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = rig.held_count; i-- > 0;) {
        http_exchange *x = rig.held[i];
        if (strcmp(http_request_of(x)->path, "/stream") == 0) {
            http_stream_write(x, large, 20);
            http_stream_write(x, large, sizeof large - 1);
            http_stream_end(x);
        } else {
            http_answer(x, 200, "text/plain", NULL, large, sizeof large - 1);
        }
        rig_forget(x);
    }
    try_talk(one, "bad\r\n\r\n");
    try_talk(two, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhe");
    close(one), close(two);
}

/* Lets the n-th call fail. Returns whether it was made. */
static bool fail_nth(int call, int n, bool always)
{
    memset(&rig, 0, sizeof rig);
    rig.now_ms = 1000000;
    rig.fails[call] = n;
    rig.always[call] = always;
    bool open = rig_open() != NULL;
    if (open) {
        scenario();
    }
    bool made = rig.calls[call] >= n;
    rig.fails[call] = 0;
    if (open) {
        rig_pass(300); /* the pause after a failed accept */
        int s = rig_client();
        CHECK(strstr(rig_talk(s, ECHO, ECHOED), ECHOED) != NULL);
        close(s);
        rig_turns();
        rig_pass(100); /* a request that was accepted late is held: its client has left */
        CHECK_INT(http_connections(rig.server), 0);
    }
    rig_close();
    return made;
}

static void check_every(int call, int at_least)
{
    int n = 1;
    while (n < 1000 && fail_nth(call, n, false)) {
        n++;
    }
    CHECK(n > at_least && n < 1000);
    for (int i = 1; i < n; i += 1 + n / 8) {
        fail_nth(call, i, true);
    }
}

/* ---- threads ---- */

#define WAKES 20000

static atomic_int asked; /* wakes whose cause is written */
static atomic_bool stop;
static http *shared;
static int seen; /* by the server's thread */

static void on_shared_wake(void *user)
{
    (void)user;
    seen = atomic_load(&asked);
    if (atomic_load(&stop)) {
        http_stop(shared);
    }
}

static void on_shared_request(void *user, http_exchange *x, const http_request *r)
{
    (void)user;
    http_answer(x, 200, NULL, NULL, r->path, strlen(r->path));
}

static void on_shared_gone(void *user, http_exchange *x)
{
    (void)user, (void)x;
}

static void on_signal(int number)
{
    (void)number;
    http_wake(shared);
}

static void *run_server(void *user)
{
    (void)user;
    http_run(shared);
    return NULL;
}

static void *run_wakes(void *user)
{
    (void)user;
    for (int i = 0; i < WAKES; i++) {
        atomic_fetch_add(&asked, 1);
        http_wake(shared);
    }
    return NULL;
}

/* No wake is lost, whatever calls it, while requests are answered. */
static void check_threads(void)
{
    char error[200], answer[512];
    pthread_t server, wakers[2];
    http_desc desc = { .on_request = on_shared_request, .on_gone = on_shared_gone, .on_wake = on_shared_wake };
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    shared = http_open(&desc, error, sizeof error);
    CHECK(shared != NULL);
    pthread_create(&server, NULL, run_server, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_create(&wakers[i], NULL, run_wakes, NULL);
    }
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)http_port(shared)) };
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(s, (struct sockaddr *)&at, sizeof at) == 0);
    for (int i = 0; i < 200; i++) {
        static const char request[] = "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n";
        size_t read = 0;
        pthread_kill(server, SIGUSR1);
        CHECK(send(s, request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)sizeof request - 1);
        for (ssize_t done = 1; done > 0 && (read < 3 || memcmp(answer + read - 3, "/ok", 3) != 0);) {
            done = recv(s, answer + read, sizeof answer - read, 0);
            read += done > 0 ? (size_t)done : 0;
        }
        CHECK(read > 3 && memcmp(answer + read - 3, "/ok", 3) == 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(wakers[i], NULL);
    }
    close(s);
    atomic_store(&stop, true);
    http_wake(shared);
    pthread_join(server, NULL);
    CHECK_INT(seen, 2 * WAKES);
    http_close(shared);
}

int main(void)
{
    check_every(CALL_RESIZE, 10);
    check_every(CALL_ACCEPT, 2);
    check_every(CALL_READ, 8);
    check_every(CALL_WRITE, 6);
    check_every(CALL_POLL, 20);
    check_threads();
    return check_done();
}
