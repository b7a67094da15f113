/* http_parse.c: the parser of requests (demo/serve/http_parse.h): good and malformed requests as a table, each of them
   whole, byte by byte and in two pieces at every cut. The result is a text, so that any difference shows. */
#include "../check.h"

#include "../../demo/serve/http_parse.h"

#define BODY_MAX 1000
#define REST "Host: a\r\n\r\n"
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST "POST /p HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define NUL_AT "\1" /* stands for NUL in the table */

typedef struct example {
    const char *bytes, *result;
} example;

/* Requests as "METHOD path?query host [marks] body;", and at the end "..." (unfinished) or "!status". */
static const example good[] = {
    { GET "\r\n", "GET / a ;" },
    { "GET /a/b?c=d&e HTTP/1.1\r\nHost: localhost:5000\r\n\r\n", "GET /a/b?c=d&e localhost:5000 ;" },
    { "HEAD /x HTTP/1.1\r\nhost:[::1]:80\r\n\r\n", "HEAD /x [::1]:80 ;" },
    { "GET /v1/models/a%20b%2Fc HTTP/1.1\r\n" REST, "GET /v1/models/a b/c a ;" },
    { "GET /a+b?q=%41 HTTP/1.1\r\n" REST, "GET /a+b?q=%41 a ;" },
    { "GET http://a/x?y HTTP/1.1\r\n" REST, "GET /x?y a ;" },
    { "GET HTTP://A HTTP/1.1\r\n" REST, "GET / a ;" },
    { "GET https://a?y HTTP/1.1\r\n" REST, "GET /?y a ;" },
    { "OPTIONS * HTTP/1.1\r\n" REST, "OPTIONS * a ;" },
    { "VERSION-CONTROL / HTTP/1.1\r\n" REST, "VERSION-CONTROL / a ;" },
    { "GET / HTTP/1.0\r\n\r\n", "GET /  1.0 close ;" },
    { "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /  1.0 ;" },
    { GET "Connection: foo, Close\r\n\r\n", "GET / a close ;" },
    { GET "Connection: keep-alive\r\nConnection: close\r\n\r\n", "GET / a close ;" },
    { GET "A:\r\nB: \t x y \t \r\nC:d\r\nd: \xC3\xA9\r\n\r\n", "GET / a a= b=x y c=d d=\xC3\xA9 ;" },
    { GET "!#$%&'*+-.^_`|~09aZ: v\r\n\r\n", "GET / a !#$%&'*+-.^_`|~09az=v ;" },
    { POST "Content-Length: 5\r\n\r\nhello", "POST /p a hello;" },
    { POST "Content-Length: 0\r\n\r\n", "POST /p a ;" },
    { POST "Content-Length: 005\r\n\r\nhelloGET", "POST /p a hello;..." },
    { POST "Content-Length: 5\r\nExpect: 100-Continue\r\n\r\nhello", "POST /p a continue hello;" },
    { POST "Expect: 100-continue\r\n\r\n", "POST /p a ;" },
    { "POST /p HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi", "POST /p  1.0 close hi;" },
    { CHUNKED "5\r\nhello\r\n0\r\n\r\n", "POST /p a hello;" },
    { CHUNKED "1\r\na\r\n2;x=\"y z\"\r\nbc\r\n0A\r\n0123456789\r\n000\r\n\r\n", "POST /p a abc0123456789;" },
    { CHUNKED "0000000000000001\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", "POST /p a a;" },
    { CHUNKED "0;ext\r\n\r\n", "POST /p a ;" },
    { POST "Transfer-Encoding: CHUNKED\r\n\r\n1\r\n\n\r\n0\r\n\r\n", "POST /p a \n;" },
    { "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "GET / a abc;" },
    { GET "\r\n" POST "Content-Length: 1\r\n\r\nx" CHUNKED "1\r\ny\r\n0\r\n\r\n" GET "\r\n",
      "GET / a ;POST /p a x;POST /p a y;GET / a ;" },
    { POST "Content-Length: 23\r\n\r\nGET / HTTP/1.1\r\nHost: b", "POST /p a GET / HTTP/1.1\r\nHost: b;" },
    { GET, "..." },
    { POST "Content-Length: 5\r\n\r\nhell", "POST /p a hell..." },
    { CHUNKED "5\r\nhello\r\n0\r\n", "POST /p a hello..." },
    { "", "" },
};

static const example bad[] = {
    /* two readings of the length: request smuggling */
    { POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5, 5\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: identity\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding:\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: chunk\r\n ed\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "Transfer-Encoding: \x0b"
           "chunked\r\n\r\n0\r\n\r\n",
      "!400" },
    { POST "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { POST "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400" },
    /* lengths */
    { POST "Content-Length: +5\r\n\r\nhello", "!400" },
    { POST "Content-Length: -5\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5a\r\n\r\nhello", "!400" },
    { POST "Content-Length: 0x5\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5 5\r\n\r\nhello", "!400" },
    { POST "Content-Length: 5.0\r\n\r\nhello", "!400" },
    { POST "Content-Length:\r\n\r\n", "!400" },
    { POST "Content-Length: 1234567890123456789\r\n\r\n", "!400" },
    { POST "Content-Length: 1001\r\n\r\n", "POST /p a !413" },
    { POST "Content-Length: 123456789012345678\r\n\r\n", "POST /p a !413" },
    /* line ends, NUL, controls, folds, colons */
    { "GET / HTTP/1.1\nHost: a\n\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\rHost: a\r\n\r\n", "!400" },
    { GET "\n", "!400" },
    { GET "\rX", "!400" },
    { GET "X: a" NUL_AT "b\r\n\r\n", "!400" },
    { GET "X" NUL_AT ": b\r\n\r\n", "!400" },
    { "GET /" NUL_AT " HTTP/1.1\r\n" REST, "!400" },
    { GET "X: a\x07\r\n\r\n", "!400" },
    { GET "X: a\x7f\r\n\r\n", "!400" },
    { GET "X: a\r\n b\r\n\r\n", "!400" },
    { GET "X: a\r\n\tb\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "!400" },
    { GET "X : a\r\n\r\n", "!400" },
    { GET ": a\r\n\r\n", "!400" },
    { GET "X\r\n\r\n", "!400" },
    { GET "X(y): a\r\n\r\n", "!400" },
    { GET "\xC3\xA9: a\r\n\r\n", "!400" },
    /* Host */
    { "GET / HTTP/1.1\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "!400" },
    { "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost:\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: a:800000\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "!400" },
    { "GET / HTTP/1.1\r\nHost: []\r\n\r\n", "!400" },
    { "GET http://b/ HTTP/1.1\r\n" REST, "!400" },
    { "GET http://a:80/ HTTP/1.1\r\n" REST, "!400" },
    /* the request line */
    { "\r\nGET / HTTP/1.1\r\n" REST, "!400" },
    { " GET / HTTP/1.1\r\n" REST, "!400" },
    { "get / HTTP/1.1\r\n" REST, "!400" },
    { "GeT / HTTP/1.1\r\n" REST, "!400" },
    { "G(T / HTTP/1.1\r\n" REST, "!400" },
    { "ABCDEFGHIJKLMNOPQRSTU / HTTP/1.1\r\n" REST, "!400" },
    { "GET\t/ HTTP/1.1\r\n" REST, "!400" },
    { "GET  / HTTP/1.1\r\n" REST, "!400" },
    { "GET /  HTTP/1.1\r\n" REST, "!400" },
    { "GET / HTTP/1.1 \r\n" REST, "!400" },
    { "GET / a HTTP/1.1\r\n" REST, "!400" },
    { "GET /\r\n\r\n", "!400" },
    { "GET\r\n\r\n", "!400" },
    { "GET / HTTP/1.2\r\n" REST, "!400" },
    { "GET / HTTP/2.0\r\n" REST, "!400" },
    { "GET / HTTP/1\r\n" REST, "!400" },
    { "GET / HTTP/1.10\r\n" REST, "!400" },
    { "GET / http/1.1\r\n" REST, "!400" },
    { "GET / HTTP/ 1.1\r\n" REST, "!400" },
    { "GET / ICY/1.1\r\n" REST, "!400" },
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "!400" },
    { "GET * HTTP/1.1\r\n" REST, "!400" },
    { "GET x HTTP/1.1\r\n" REST, "!400" },
    { "GET http:/// HTTP/1.1\r\n" REST, "!400" },
    { "GET ftp://a/ HTTP/1.1\r\n" REST, "!400" },
    { "CONNECT a:80 HTTP/1.1\r\n" REST, "!400" },
    { "GET /#x HTTP/1.1\r\n" REST, "!400" },
    { "GET /\xC3\xA9 HTTP/1.1\r\n" REST, "!400" },
    { "GET /% HTTP/1.1\r\n" REST, "!400" },
    { "GET /%4 HTTP/1.1\r\n" REST, "!400" },
    { "GET /%g0 HTTP/1.1\r\n" REST, "!400" },
    { "GET /%00 HTTP/1.1\r\n" REST, "!400" },
    { "GET /%0a HTTP/1.1\r\n" REST, "!400" },
    { "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "!400" }, /* TLS */
    /* Expect */
    { POST "Content-Length: 5\r\nExpect: 200-ok\r\n\r\nhello", "!417" },
    /* chunks */
    { CHUNKED "\r\n", "POST /p a !400" },
    { CHUNKED "g\r\n", "POST /p a !400" },
    { CHUNKED " 5\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "5 \r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "+5\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "-1\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "5\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "5\r\nhello\n0\r\n\r\n", "POST /p a hello!400" },
    { CHUNKED "5\r\nhello!\r\n0\r\n\r\n", "POST /p a hello!400" },
    { CHUNKED "5\r\nhello0\r\n\r\n", "POST /p a hello!400" },
    { CHUNKED "5;a\nb\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "5;a\rb\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "5;" NUL_AT "\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "00000000000000005\r\nhello\r\n0\r\n\r\n", "POST /p a !400" },
    { CHUNKED "ffffffffffffffff\r\n", "POST /p a !413" },
    { CHUNKED "3e9\r\n", "POST /p a !413" },
    { CHUNKED "1\r\na\r\n3e8\r\n", "POST /p a a!413" },
    { CHUNKED "0\r\nX: y\n\r\n", "POST /p a !400" },
    { CHUNKED "0\r\n X: y\r\n\r\n", "POST /p a !400" },
    { CHUNKED "0\r\nX\r\n\r\n", "POST /p a !400" },
    { CHUNKED "0\r\nContent-Length: 5\r\n\r\n", "POST /p a !400" },
    { CHUNKED "0\r\nTransfer-Encoding: chunked\r\n\r\n", "POST /p a !400" },
    { CHUNKED "0\r\nHost: b\r\n\r\n", "POST /p a !400" },
    /* a good one, then a bad one */
    { GET "\r\nGET / HTTP/1.1\r\n\r\n", "GET / a ;!400" },
};

static char *text; /* the result of the current run */
static size_t text_bytes, text_room;

static void add(const char *bytes, size_t count)
{
    while (text_bytes + count >= text_room) {
        text_room = text_room ? text_room * 2 : 65536;
        text = (char *)realloc(text, text_room);
    }
    memcpy(text + text_bytes, bytes, count);
    text_bytes += count;
    text[text_bytes] = 0;
}

static void say(const char *what)
{
    add(what, strlen(what));
}

static void say_head(const http_request *r)
{
    say(r->method), say(" "), say(r->path);
    say(*r->query ? "?" : ""), say(r->query), say(" "), say(r->host);
    say(r->minor == 0 ? " 1.0" : ""), say(r->keep_alive ? "" : " close"), say(r->expects_continue ? " continue" : "");
    for (int i = 0; i < r->field_count; i++) {
        static const char *const known[] = { "host", "content-length", "transfer-encoding", "connection", "expect" };
        int j = 0;
        while (j < 5 && strcmp(r->fields[i].name, known[j]) != 0) {
            j++;
        }
        if (j == 5) {
            say(" "), say(r->fields[i].name), say("="), say(r->fields[i].value);
        }
    }
    say(" ");
}

static http_parser parser;

/* Gives the parser some bytes, of which it must use all, or refuse. false: it has refused, or must not go on. */
static bool feed(const char *bytes, size_t count)
{
    for (size_t used = 0;;) {
        char status[16];
        http_step step = http_parse(&parser, bytes + used, count - used);
        used += parser.used;
        switch (step) {
        case HTTP_HEAD:
            say_head(&parser.request);
            break;
        case HTTP_BODY:
            CHECK(parser.piece_bytes > 0 && parser.piece + parser.piece_bytes == bytes + used);
            add(parser.piece, parser.piece_bytes);
            break;
        case HTTP_DONE:
            say(";");
            http_parse_begin(&parser, BODY_MAX);
            break;
        case HTTP_BAD:
            snprintf(status, sizeof status, "!%d", parser.status);
            say(status);
            CHECK(parser.problem && strlen(parser.problem) > 10);
            CHECK_INT(http_parse(&parser, bytes, count), HTTP_BAD);
            return false;
        default:
            return CHECK_INT(used, count) && used == count;
        }
    }
}

/* Reads the bytes in pieces: the first of `first` bytes, the others of `then` bytes. The pieces lie in blocks of
   exactly their size, so that ASan detects an access to the byte after them. */
static const char *parse(const char *bytes, size_t count, size_t first, size_t then)
{
    bool reads = true;
    text_bytes = 0;
    say("");
    http_parse_begin(&parser, BODY_MAX);
    for (size_t at = 0; at < count && reads;) {
        size_t size = at == 0 && first > 0 ? first : then;
        size = size < count - at ? size : count - at;
        char *piece = (char *)malloc(size);
        memcpy(piece, bytes + at, size);
        reads = feed(piece, size);
        free(piece);
        at += size;
    }
    if (reads && http_parse_started(&parser)) {
        say("...");
    }
    return text;
}

static void check_all_cuts(const char *bytes, size_t count, const char *wanted)
{
    if (!CHECK_TEXT(parse(bytes, count, 0, count), wanted)) {
        printf("    whole: %s\n", bytes);
    }
    if (!CHECK_TEXT(parse(bytes, count, 0, 1), wanted)) {
        printf("    byte by byte: %s\n", bytes);
    }
    for (size_t cut = 1; cut < count; cut++) {
        if (!CHECK_TEXT(parse(bytes, count, cut, count), wanted)) {
            printf("    cut at %zu: %s\n", cut, bytes);
        }
    }
}

static void check_examples(const example *examples, size_t count)
{
    char bytes[1024];
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(examples[i].bytes);
        CHECK(size < sizeof bytes);
        memcpy(bytes, examples[i].bytes, size + 1);
        for (size_t at = 0; at < size; at++) {
            bytes[at] = bytes[at] == 1 ? 0 : bytes[at];
        }
        check_all_cuts(bytes, size, examples[i].result);
    }
}

/* Every control character is refused in a value and in the target; a tab is white space in a value. */
static void check_controls(void)
{
    for (int c = 0; c < 256; c++) {
        char value[] = GET "X: a_b\r\n\r\n", target[] = "GET /a_b HTTP/1.1\r\n" REST;
        bool control = c < 32 || c == 127;
        *strchr(value, '_') = (char)c;
        *strchr(target, '_') = (char)c;
        parse(value, sizeof value - 1, 0, sizeof value);
        CHECK_INT(strstr(text, "!400") != NULL, control && c != '\t');
        parse(target, sizeof target - 1, 0, sizeof target);
        CHECK_INT(strstr(text, "!400") != NULL, control || c == ' ' || c == '#' || c == '%' || c > 127);
    }
}

/* A request with a target of `target` bytes, `fields` fields beside Host, and a head of `head` bytes in all if that is
   not 0. */
static const char *parse_large(size_t target, int fields, size_t head)
{
    static char bytes[65536];
    size_t used = (size_t)snprintf(bytes, sizeof bytes, "GET /");
    memset(bytes + used, 'x', target - 1);
    used += target - 1;
    used += (size_t)snprintf(bytes + used, sizeof bytes - used, " HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < fields; i++) {
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "f: v\r\n");
    }
    if (head > 0) {
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "g: ");
        CHECK(head > used + 4);
        memset(bytes + used, 'y', head - used - 4);
        used = head - 4;
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "\r\n");
    }
    used += (size_t)snprintf(bytes + used, sizeof bytes - used, "\r\n");
    char *whole = strdup(parse(bytes, used, 0, used));
    CHECK_TEXT(parse(bytes, used, 0, 1), whole);
    CHECK_TEXT(parse(bytes, used, 5000, 7), whole);
    free(whole);
    return text_bytes >= 4 && text[text_bytes - 4] == '!' ? text + text_bytes - 4 : text + text_bytes - 1;
}

static void check_limits(void)
{
    CHECK_TEXT(parse_large(4096, 0, 0), ";");
    CHECK_TEXT(parse_large(4097, 0, 0), "!414");
    CHECK_TEXT(parse_large(4200, 0, 0), "!414");
    CHECK_TEXT(parse_large(40000, 0, 0), "!414");
    CHECK_TEXT(parse_large(1, 99, 0), ";");
    CHECK_TEXT(parse_large(1, 100, 0), "!431");
    CHECK_TEXT(parse_large(1, 0, HTTP_HEAD_MAX), ";");
    CHECK_TEXT(parse_large(1, 0, HTTP_HEAD_MAX + 1), "!431");
    CHECK_TEXT(parse_large(1, 0, 50000), "!431");
}

/* Trailers and extensions without end are refused. */
static void check_endless(void)
{
    static char bytes[65536];
    size_t used = (size_t)snprintf(bytes, sizeof bytes, "%s0\r\n", CHUNKED);
    while (used < sizeof bytes - 100) {
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "A-long-trailer-of-many: %060d\r\n", 0);
    }
    CHECK(strstr(parse(bytes, used, 0, 100), "!431") != NULL);
    used = (size_t)snprintf(bytes, sizeof bytes, "%s", CHUNKED);
    while (used < sizeof bytes - 100) {
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, "1;%060d\r\na\r\n", 0);
    }
    CHECK(strstr(parse(bytes, used, 0, 100), "!400") != NULL);
}

static void check_questions(void)
{
    CHECK(http_has_token("a, B ,c", "b") && http_has_token("close", "Close") && !http_has_token("closed", "close"));
    CHECK(!http_has_token("", "a") && !http_has_token(" , ", "a") && !http_has_token("a b", "a"));
}

int main(void)
{
    check_examples(good, sizeof good / sizeof good[0]);
    check_examples(bad, sizeof bad / sizeof bad[0]);
    check_controls();
    check_limits();
    check_endless();
    check_questions();
    free(text);
    return check_done();
}
