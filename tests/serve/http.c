/* http.c: the HTTP contract of demo/serve/http.h, over a live server: answers byte for byte, the order of pipelined
   requests, bodies of each kind, refusals, and the Origin rules. */
#include "http_rig.h"

#define COMMON "X-Content-Type-Options: nosniff\r\n"
#define STAR "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\n"
#define KEEP "Connection: keep-alive\r\n" COMMON STAR
#define CLOSE "Connection: close\r\n" COMMON STAR
#define OK_TEXT "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
#define OK_STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
#define CHUNKS "9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
#define HELLO(fields) OK_TEXT fields "X-Extra: 1\r\nContent-Length: 5\r\n\r\nhello"
#define EXPECTS ECHO_HEAD "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
#define GO_ON "HTTP/1.1 100 Continue\r\n\r\n"
#define ECHO_HEAD "POST /echo HTTP/1.1\r\nHost: a\r\n"
#define ECHO ECHO_HEAD "Content-Length: 5\r\n\r\nhello"
#define NOT_FOUND \
    "{\"error\":{\"message\":\"There is no such path.\",\"type\":\"invalid_request_error\",\"param\":\"path\"," \
    "\"code\":\"not_found\"},\"detail\":\"There is no such path.\"}"
#define REFUSED \
    "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n" CLOSE "WWW-Authenticate: Bearer\r\n" \
    "Content-Length: 110\r\n\r\n{\"error\":{\"message\":\"No.\",\"type\":\"authentication_error\",\"param\":null," \
    "\"code\":\"invalid_api_key\"},\"detail\":\"No.\"}"

/* Answers to one request each; `closes`: the connection ends after it. */
static void check_answers(void)
{
    static const struct {
        const char *request, *answer;
        bool closes;
    } rows[] = {
        { ECHO, HELLO(KEEP), false },
        { ECHO_HEAD "Connection: close\r\nContent-Length: 5\r\n\r\nhello", HELLO(CLOSE), true },
        { "POST /echo HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello", HELLO(CLOSE), true },
        { "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", HELLO(KEEP), false },
        { ECHO_HEAD "Transfer-Encoding: chunked\r\n\r\n2;x\r\nhe\r\n3\r\nllo\r\n0\r\nT: u\r\n\r\n", HELLO(KEEP),
          false },
        { "HEAD /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
          OK_TEXT KEEP "X-Extra: 1\r\nContent-Length: 5\r\n\r\n", false },
        { "GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 204 No Content\r\n" KEEP "\r\n", false },
        { "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
          "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n" KEEP "Content-Length: 145\r\n\r\n" NOT_FOUND,
          false },
        { "GET /two HTTP/1.1\r\nHost: a\r\n\r\n", OK_STREAM KEEP "Transfer-Encoding: chunked\r\n\r\n" CHUNKS, false },
        { "HEAD /two HTTP/1.1\r\nHost: a\r\n\r\n", OK_STREAM KEEP "Transfer-Encoding: chunked\r\n\r\n", false },
        { "GET /two HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", OK_STREAM CLOSE "\r\ndata: 1\n\ndata: [DONE]\n\n",
          true },
        { "GET /early HTTP/1.1\r\nHost: a\r\n\r\n", OK_TEXT KEEP "Content-Length: 5\r\n\r\nearly", false },
        { "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", REFUSED, true },
        { "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
          "HTTP/1.1 204 No Content\r\n" KEEP "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n\r\n", false },
    };
    rig_start((http_desc){ 0 });
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int s = rig_client();
        CHECK_TEXT(rig_talk(s, rows[i].request, rows[i].closes ? NULL : rows[i].answer), rows[i].answer);
        if (!rows[i].closes) { /* the connection is good for another request */
            CHECK_TEXT(rig_talk(s, ECHO, HELLO(KEEP)), HELLO(KEEP));
        }
        close(s);
        rig_turns();
    }
    CHECK_INT(http_connections(rig.server), 0);
    CHECK_INT(rig.gone, 0);
    rig_close();
}

/* The same bytes, one at a time in both directions. */
static void check_small_pieces(void)
{
    static const char answers[] = HELLO(KEEP) HELLO(KEEP) HELLO(KEEP);
    static const char requests[] = ECHO ECHO_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" ECHO;
    rig_start((http_desc){ 0 });
    int s = rig_client();
    for (size_t i = 0; i < sizeof requests - 1; i++) {
        rig_send_bytes(s, requests + i, 1);
    }
    CHECK_TEXT(rig_read(s, answers), answers);
    rig.short_reads = rig.short_writes = 1;
    rig_send(s, requests);
    for (int i = 0; i < 400; i++) {
        rig_turn();
    }
    CHECK_TEXT(rig_read(s, answers), answers);
    CHECK_INT(rig.requests, 6);
    close(s);
    rig_close();
}

/* Requests that come ahead wait, and are answered in order. */
static void check_pipelining(void)
{
    static const char all[] = OK_TEXT KEEP "Content-Length: 5\r\n\r\nfirst" HELLO(KEEP) OK_STREAM KEEP
        "Transfer-Encoding: chunked\r\n\r\n" CHUNKS HELLO(KEEP);
    rig_start((http_desc){ 0 });
    int s = rig_client();
    rig_send(s, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n" ECHO "GET /two HTTP/1.1\r\nHost: a\r\n\r\n" ECHO);
    CHECK(rig_quiet(s));
    CHECK_INT(rig.held_count, 1);
    CHECK_INT(rig.requests, 1);
    http_answer(rig.held[0], 200, "text/plain", NULL, "first", 5);
    CHECK_TEXT(rig_read(s, all), all);
    /* A client that sends without end is not read any further than 64 KiB and one turn. */
    static char many[1 << 20];
    memset(many, 'x', sizeof many);
    rig_send(s, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    size_t sent = 0;
    for (ssize_t done = 1; done > 0; sent += done > 0 ? (size_t)done : 0) {
        done = send(s, many, sizeof many, MSG_NOSIGNAL);
        rig_turns();
    }
    int calls = rig.calls[CALL_READ];
    rig_turns();
    CHECK(sent > 64u << 10 && sent < 64u << 20);
    CHECK_INT(rig.calls[CALL_READ], calls);
    CHECK(rig.asked_ms != 0); /* it does not spin while bytes wait */
    close(s);
    rig_close();
}

static void check_expect(void)
{
    rig_start((http_desc){ 0 });
    int s = rig_client();
    CHECK_TEXT(rig_talk(s, EXPECTS, GO_ON), GO_ON);
    CHECK_TEXT(rig_talk(s, "hello", HELLO(KEEP)), HELLO(KEEP));
    /* The body came without waiting. */
    CHECK_TEXT(rig_talk(s, EXPECTS "hello", HELLO(KEEP)), HELLO(KEEP));
    /* Refused: the final answer at once, and no 100. */
    CHECK_TEXT(rig_talk(s, "POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
                        NULL),
               REFUSED);
    close(s);
    s = rig_client();
    CHECK(strncmp(rig_talk(s, ECHO_HEAD "Expect: 100-continue\r\nContent-Length: 4194305\r\n\r\n", NULL),
                  "HTTP/1.1 413 Content Too Large\r\n", 32) == 0);
    close(s);
    rig_close();
}

/* Bodies up to the limit, and not a byte more; an answer is read whole although the body was not. */
static void check_bodies(void)
{
    static char body[300001];
    char head[200];
    memset(body, 'b', sizeof body);
    rig_start((http_desc){ .body_max = 300000 });
    int s = rig_client();
    snprintf(head, sizeof head, ECHO_HEAD "Content-Length: 300000\r\n\r\n");
    rig_send(s, head);
    rig_send_bytes(s, body, 300000);
    body[300000] = 0;
    CHECK(strstr(rig_read(s, body), "Content-Length: 300000\r\n\r\nb") != NULL);
    snprintf(head, sizeof head, ECHO_HEAD "Content-Length: 300001\r\n\r\n");
    rig_send(s, head);
    rig_send_bytes(s, body, 300001);
    CHECK(strncmp(rig_read(s, NULL), "HTTP/1.1 413 ", 13) == 0);
    CHECK_INT(rig.requests, 1);
    CHECK_INT(rig.gone, 1); /* the host had seen the head */
    close(s);
    s = rig_client();
    rig_send(s, "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    rig_send_bytes(s, body, 300000);
    CHECK_TEXT(rig_read(s, NULL), REFUSED);
    close(s);
    rig_close();
}

/* One refusal, and the end of the connection; the next client is served. */
static void check_refusals(void)
{
    static const struct {
        const char *request;
        int status;
    } rows[] = {
        { "GET / HTTP/1.1\r\n\r\n" ECHO, 400 },
        { "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
        { ECHO_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX", 400 },
        { ECHO_HEAD "Content-Length: 99999999999\r\n\r\n", 413 },
        { ECHO_HEAD "Expect: x\r\nContent-Length: 5\r\n\r\nhello", 417 },
        { "\x16\x03\x01\x02", 400 },
    };
    rig_start((http_desc){ 0 });
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char begin[32];
        int s = rig_client();
        snprintf(begin, sizeof begin, "HTTP/1.1 %d ", rows[i].status);
        const char *got = rig_talk(s, rows[i].request, NULL);
        CHECK(strncmp(got, begin, strlen(begin)) == 0);
        CHECK(strstr(got + 1, "HTTP/1.1") == NULL);
        CHECK(strstr(got, "\r\nConnection: close\r\n") && strstr(got, "{\"error\":{\"message\":\""));
        CHECK_INT(rig.log.status, rows[i].status);
        close(s);
        s = rig_client();
        CHECK_TEXT(rig_talk(s, ECHO, HELLO(KEEP)), HELLO(KEEP));
        close(s);
    }
    char *large = (char *)malloc(20000);
    int s = rig_client();
    snprintf(large, 20000, "GET /%08000d HTTP/1.1\r\n", 0);
    CHECK(strncmp(rig_talk(s, large, NULL), "HTTP/1.1 414 ", 13) == 0);
    close(s);
    s = rig_client();
    snprintf(large, 20000, "GET / HTTP/1.1\r\nHost: a\r\nX: %017000d\r\n", 0);
    CHECK(strncmp(rig_talk(s, large, NULL), "HTTP/1.1 431 ", 13) == 0);
    close(s);
    free(large);
    rig_close();
}

static void check_log(void)
{
    rig_start((http_desc){ 0 });
    int s = rig_client();
    rig_send(s, "GET /held?q HTTP/1.1\r\nHost: a\r\n\r\n");
    rig_turns();
    rig_pass(1234);
    CHECK_INT(rig.logs, 0);
    http_answer(rig.held[0], 200, NULL, NULL, "abc", 3);
    rig_read(s, "abc");
    CHECK_INT(rig.logs, 1);
    CHECK_INT(rig.log.status, 200);
    CHECK_INT(rig.log.bytes, 3);
    CHECK_INT(rig.log.id, 1);
    CHECK_INT(rig.log.ms, 1234);
    CHECK(!rig.log.gone);
    CHECK_TEXT(rig.log.peer, "127.0.0.1");
    CHECK_TEXT(rig.log.method, "GET");
    CHECK_TEXT(rig.log.path, "/held");
    close(s);
    rig_turns();
    CHECK_INT(rig.logs, 1); /* the end of an idle connection is no line */
    rig_close();
}

/* ---- Origin rules ---- */

typedef struct origin_row {
    const char *fields; /* %d: the port */
    const char *method, *has, *has_not;
    int status;
} origin_row;

static void check_origin_rows(http_desc desc, const origin_row *rows, size_t count)
{
    rig_start(desc);
    for (size_t i = 0; i < count; i++) {
        char request[1000], fields[500], begin[32];
        int port = http_port(rig.server), s = rig_client();
        snprintf(fields, sizeof fields, rows[i].fields, port, port);
        snprintf(request, sizeof request, "%s /echo HTTP/1.1\r\n%sContent-Length: 0\r\n\r\n", rows[i].method, fields);
        snprintf(begin, sizeof begin, "HTTP/1.1 %d ", rows[i].status);
        shutdown((rig_send(s, request), s), SHUT_WR);
        const char *got = rig_read(s, NULL);
        bool good = CHECK(strncmp(got, begin, strlen(begin)) == 0);
        good &= CHECK(!rows[i].has || strstr(got, rows[i].has) != NULL);
        good &= CHECK(!rows[i].has_not || strstr(got, rows[i].has_not) == NULL);
        if (!good) {
            printf("    %s\n    %s\n", request, got);
        }
        close(s);
    }
    rig_close();
}

#define LOCAL "Host: 127.0.0.1:%d\r\n"
#define JSON "Content-Type: application/json\r\n"
#define ALLOW "Access-Control-"
#define ASK "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, content-type\r\n"
#define ROWS(rows) (rows), sizeof(rows) / sizeof((rows)[0])

static void check_origins(void)
{
    static const origin_row keys[] = {
        { "Host: anything\r\n", "GET", STAR, "Vary", 200 },
        { LOCAL "Origin: http://evil.example\r\nContent-Type: text/plain\r\n", "POST", STAR, "Vary", 200 },
        { LOCAL "Origin: http://b.example\r\n" ASK, "OPTIONS",
          "Access-Control-Allow-Headers: authorization, content-type\r\n", NULL, 204 },
        { LOCAL "Origin: http://b.example\r\n" ASK, "OPTIONS", STAR, NULL, 204 },
        { LOCAL "Origin: http://b.example\r\nAccess-Control-Request-Method: GET\r\n", "OPTIONS",
          "Access-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE, OPTIONS\r\n", "Allow-Headers", 204 },
    };
    static const origin_row keys_one[] = {
        { LOCAL "Origin: http://a.example\r\n", "GET",
          "Vary: Origin\r\nAccess-Control-Allow-Origin: http://a.example\r\n", "Origin: *", 200 },
        { LOCAL "Origin: http://a.example\r\n" ASK, "OPTIONS",
          "Access-Control-Allow-Headers: authorization, content-type\r\n", NULL, 204 },
        { LOCAL "Origin: http://a.example.evil\r\n", "GET", "Vary: Origin\r\n", ALLOW, 200 },
        { LOCAL "Origin: http://b.example\r\n" ASK, "OPTIONS", "Vary: Origin\r\n", ALLOW, 403 },
        { LOCAL, "GET", "Vary: Origin\r\n", ALLOW, 200 },
    };
    static const origin_row open[] = {
        { LOCAL, "GET", NULL, ALLOW, 200 },
        { LOCAL JSON, "POST", NULL, ALLOW, 200 },
        { "Host: localhost:%d\r\nContent-Type: Application/JSON; charset=utf-8\r\n", "POST", NULL, ALLOW, 200 },
        { "Host: LOCALHOST\r\n", "GET", NULL, ALLOW, 200 },
        { "Host: evil.example:%d\r\n", "GET", NULL, ALLOW, 403 },
        { "Host: localhost.evil.example\r\n", "GET", NULL, ALLOW, 403 },
        { "Host: 127.0.0.1.evil.example\r\n", "GET", NULL, ALLOW, 403 },
        { "Host: 127.0.0.2:%d\r\n", "GET", NULL, ALLOW, 403 },
        { LOCAL "Origin: http://127.0.0.1:%d\r\n" JSON, "POST", NULL, ALLOW, 200 },
        { LOCAL "Origin: http://evil.example\r\n" JSON, "POST", NULL, ALLOW, 403 },
        { LOCAL "Origin: http://127.0.0.1\r\n", "GET", NULL, ALLOW, 403 },
        { LOCAL "Origin: http://127.0.0.1:%d.evil\r\n", "GET", NULL, ALLOW, 403 },
        { LOCAL "Origin: null\r\n", "GET", NULL, ALLOW, 403 },
        { LOCAL "Origin: http://evil.example\r\n" ASK, "OPTIONS", NULL, ALLOW, 403 },
        { LOCAL, "POST", NULL, ALLOW, 415 },
        { LOCAL "Content-Type: text/plain\r\n", "POST", NULL, ALLOW, 415 },
        { LOCAL "Content-Type: application/jsonx\r\n", "POST", NULL, ALLOW, 415 },
        { LOCAL "Content-Type: text/plain; application/json\r\n", "POST", NULL, ALLOW, 415 },
    };
    static const origin_row open_one[] = {
        { LOCAL "Origin: http://a.example\r\n" JSON, "POST", "Access-Control-Allow-Origin: http://a.example\r\n",
          "Origin: *", 200 },
        { LOCAL "Origin: http://a.example\r\n" ASK, "OPTIONS",
          "Access-Control-Allow-Headers: authorization, content-type\r\n", NULL, 204 },
        { LOCAL "Origin: http://b.example\r\n" JSON, "POST", "Vary: Origin\r\n", ALLOW, 403 },
        { LOCAL "Origin: http://a.example\r\n", "POST", NULL, NULL, 415 },
    };
    check_origin_rows((http_desc){ 0 }, ROWS(keys));
    check_origin_rows((http_desc){ .cors_origin = "http://a.example" }, ROWS(keys_one));
    check_origin_rows((http_desc){ .no_auth = true }, ROWS(open));
    check_origin_rows((http_desc){ .no_auth = true, .cors_origin = "http://a.example" }, ROWS(open_one));
}

static void check_addresses(void)
{
    char error[200], url[100];
    rig_start((http_desc){ 0 });
    int port = http_port(rig.server);
    snprintf(url, sizeof url, "127.0.0.1:%d", port);
    CHECK_TEXT(http_address(rig.server), url);
    http_desc taken = { .port = port, .on_request = rig_on_request, .on_gone = rig_on_gone };
    CHECK(http_open(&taken, error, sizeof error) == NULL && strstr(error, "cannot listen on 127.0.0.1, port "));
    taken.host = "no such host";
    CHECK(http_open(&taken, error, sizeof error) == NULL && strstr(error, "no such host"));
    rig_close();
}

int main(void)
{
    check_answers();
    check_small_pieces();
    check_pipelining();
    check_expect();
    check_bodies();
    check_refusals();
    check_log();
    check_origins();
    check_addresses();
    return check_done();
}
