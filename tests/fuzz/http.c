/* http.c: fuzz target: any bytes as HTTP requests. What the parser finds does not depend on how the bytes are cut, and
   what it says about a request holds.
   By hand: clang -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/http.c demo/serve/http_parse.c
   demo/serve/http_line.c. The suite runs it with run_seeds.c. */
#include "../../demo/serve/http_parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_MAX 5000

typedef struct reading {
    http_parser parser;
    uint64_t hash; /* of all that was found */
    size_t requests;
} reading;

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void add(reading *r, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        r->hash = (r->hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3u;
    }
}

static void add_text(reading *r, const char *text)
{
    add(r, text, strlen(text) + 1);
}

static bool is_plain(const char *text)
{
    for (; *text; text++) {
        if (((unsigned char)*text < 32 && *text != '\t') || *text == 127) {
            return false;
        }
    }
    return true;
}

static void check_head(reading *r)
{
    const http_request *q = &r->parser.request;
    require(q->method && *q->method && q->path && (*q->path == '/' || strcmp(q->path, "*") == 0) && q->query &&
            q->host);
    require((q->minor == 1 && *q->host) || q->minor == 0);
    require(!q->chunked || (q->length == 0 && q->minor == 1 && !http_field_of(q, "content-length")));
    require(q->has_body == (q->chunked || q->length > 0));
    require(q->field_count <= HTTP_FIELDS_MAX && is_plain(q->method) && is_plain(q->path) && is_plain(q->query));
    add_text(r, q->method);
    add_text(r, q->path);
    add_text(r, q->query);
    for (int i = 0; i < q->field_count; i++) {
        require(*q->fields[i].name && is_plain(q->fields[i].name) && is_plain(q->fields[i].value));
        add_text(r, q->fields[i].name);
        add_text(r, q->fields[i].value);
        http_has_token(q->fields[i].value, "close");
    }
}

/* Reads a piece. Returns whether the parser reads on. */
static bool feed(reading *r, const char *bytes, size_t count)
{
    http_parser *p = &r->parser;
    for (size_t used = 0;;) {
        http_step step = http_parse(p, bytes + used, count - used);
        used += p->used;
        require(used <= count);
        if (step == HTTP_HEAD) {
            check_head(r);
        } else if (step == HTTP_BODY) {
            require(p->piece_bytes > 0 && p->piece + p->piece_bytes == bytes + used);
            add(r, p->piece, p->piece_bytes);
        } else if (step == HTTP_DONE) {
            r->requests++;
            http_parse_begin(p, BODY_MAX);
        } else if (step == HTTP_BAD) {
            require(p->problem && p->status >= 400 && p->status < 500);
            add(r, &p->status, sizeof p->status);
            add_text(r, p->problem);
            return false;
        } else {
            require(used == count);
            return true;
        }
    }
}

static reading read_in_pieces(const uint8_t *data, size_t size, size_t piece)
{
    static reading r;
    r.hash = 0xCBF29CE484222325u;
    r.requests = 0;
    bool more = true;
    http_parse_begin(&r.parser, BODY_MAX);
    for (size_t at = 0; at < size && more; at += piece) {
        more = feed(&r, (const char *)data + at, piece < size - at ? piece : size - at);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static reading whole, cut;
    static const size_t pieces[] = { 1, 2, 7, 61 };
    whole = read_in_pieces(data, size, size > 0 ? size : 1);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        cut = read_in_pieces(data, size, pieces[i]);
        require(cut.hash == whole.hash && cut.requests == whole.requests && cut.parser.status == whole.parser.status);
    }
    return 0;
}
