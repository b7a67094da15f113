/* http_requests.c: reads texts from stdin and prints the requests that demo/serve/http_parse.h finds in them, for
   h11_compare.py. A text is its length (4 bytes, the lowest first) and its bytes; it reaches the parser in pieces. Per
   request a line "R method minor path query body name value ...", in hexadecimal but for `minor`, "-" for an empty
   text; at the end of a text a line "E", with the status if it was refused. */
#include "../../demo/serve/http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BODY_MAX 100000

static http_parser parser;
static char body[BODY_MAX];
static size_t body_bytes;

static void print_hex(const char *bytes, size_t count)
{
    printf(count ? " " : " -");
    for (size_t i = 0; i < count; i++) {
        printf("%02x", (unsigned char)bytes[i]);
    }
}

static void print_text(const char *text)
{
    print_hex(text, strlen(text));
}

static void print_request(void)
{
    const http_request *r = &parser.request;
    printf("R");
    print_text(r->method);
    printf(" %d", r->minor);
    print_text(r->path);
    print_text(r->query);
    print_hex(body, body_bytes);
    for (int i = 0; i < r->field_count; i++) {
        print_text(r->fields[i].name);
        print_text(r->fields[i].value);
    }
    printf("\n");
}

/* Returns whether the parser reads on. */
static bool feed(const char *bytes, size_t count)
{
    for (size_t used = 0;;) {
        http_step step = http_parse(&parser, bytes + used, count - used);
        used += parser.used;
        if (step == HTTP_BODY) {
            memcpy(body + body_bytes, parser.piece, parser.piece_bytes); /* the parser keeps body_max */
            body_bytes += parser.piece_bytes;
        } else if (step == HTTP_DONE) {
            bool more = parser.request.keep_alive;
            print_request();
            body_bytes = 0;
            http_parse_begin(&parser, BODY_MAX);
            if (!more) {
                return false;
            }
        } else if (step == HTTP_MORE || step == HTTP_BAD) {
            return step == HTTP_MORE;
        }
    }
}

int main(void)
{
    unsigned char head[4];
    for (size_t number = 0; fread(head, 1, 4, stdin) == 4; number++) {
        size_t count = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16, size = 1 + number * 7 % 64;
        char *bytes = (char *)malloc(count + 1);
        if (!bytes || fread(bytes, 1, count, stdin) != count) {
            return 1;
        }
        http_parse_begin(&parser, BODY_MAX);
        body_bytes = 0;
        bool more = true;
        for (size_t at = 0; at < count && more; at += size) {
            more = feed(bytes + at, size < count - at ? size : count - at);
        }
        free(bytes);
        printf("E %d\n", parser.status);
    }
    return 0;
}
