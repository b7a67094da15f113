/* http_line.c: see http_line.h, and the questions to a request of http_parse.h.
   takes: lines of a head.
   gives: what http_line.h declares; http_field_of, http_has_token.
   owns:  nothing. */
#include "http_line.h"

#include <string.h>

#define LENGTH_DIGITS_MAX 18 /* of Content-Length: fits 64 bits with room */

static bool refuse(http_parser *p, int status, const char *problem)
{
    p->status = status;
    p->problem = problem;
    return false;
}

/* isalnum and tolower of ctype.h depend on the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* A tchar of RFC 9110, 5.6.2. */
static bool is_token(char c)
{
    return is_letter(c) || is_digit(c) || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

bool http_line_same(const char *text, size_t bytes, const char *other)
{
    size_t i = 0;
    while (i < bytes && other[i] != 0 && lower(text[i]) == lower(other[i])) {
        i++;
    }
    return i == bytes && other[i] == 0;
}

static bool same(const char *a, const char *b)
{
    return http_line_same(a, strlen(a), b);
}

static int hex_digit(char c)
{
    char l = lower(c);
    return is_digit(c) ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

/* Decodes percent signs of text[0..bytes) into out, which has room for bytes + 1 and may be text. false: a percent sign
   without two digits, or a control character. */
static bool decode(const char *text, size_t bytes, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < bytes; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int high = i + 2 < bytes ? hex_digit(text[i + 1]) : -1, low = high < 0 ? -1 : hex_digit(text[i + 2]);
            if (low < 0) {
                return false;
            }
            c = high << 4 | low;
            i += 2;
        }
        if (c < 0x20 || c == 0x7F) {
            return false;
        }
        out[used++] = (char)c;
    }
    out[used] = 0;
    return true;
}

/* "http://host/path": the path begins after the host, which must be the one of the field Host. Returns the path, or
   NULL if the target has another form. */
static char *skip_authority(http_parser *p, char *target)
{
    size_t scheme = http_line_same(target, 7, "http://") ? 7 : http_line_same(target, 8, "https://") ? 8 : 0;
    if (scheme == 0) {
        return NULL;
    }
    p->authority = target + scheme;
    p->authority_bytes = strcspn(p->authority, "/?");
    char *path = target + scheme + p->authority_bytes;
    return p->authority_bytes > 0 ? path : NULL;
}

static bool read_target(http_parser *p, char *target, size_t bytes)
{
    http_request *r = &p->request;
    if (bytes > HTTP_TARGET_MAX) {
        return refuse(p, 414, "The target of the request is longer than 4096 bytes.");
    }
    for (size_t i = 0; i < bytes; i++) {
        if (target[i] < 0x21 || target[i] > 0x7E || target[i] == '#') {
            return refuse(p, 400, "The target of the request contains a character that is not allowed.");
        }
    }
    if (strcmp(target, "*") == 0 && strcmp(r->method, "OPTIONS") == 0) {
        r->path = target;
        return true;
    }
    char *path = *target == '/' ? target : skip_authority(p, target);
    if (!path) {
        return refuse(p, 400, "The target of the request does not begin with '/'.");
    }
    size_t path_bytes = strcspn(path, "?");
    r->query = path[path_bytes] ? path + path_bytes + 1 : "";
    r->path = path_bytes > 0 ? path : "/";
    return decode(path, path_bytes, path) || refuse(p, 400, "The path of the request has a bad percent sign.");
}

bool http_line_request(http_parser *p, char *line)
{
    http_request *r = &p->request;
    size_t method = 0;
    while ((line[method] >= 'A' && line[method] <= 'Z') || line[method] == '-') {
        method++;
    }
    if (method == 0 || method > HTTP_METHOD_MAX || line[method] != ' ') {
        return refuse(p, 400, "The request does not begin with a method.");
    }
    line[method] = 0;
    r->method = line;
    char *target = line + method + 1;
    size_t bytes = strcspn(target, " ");
    const char *version = target + bytes + 1;
    if (bytes == 0 || target[bytes] == 0 || (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)) {
        return refuse(p, 400, "The request line is not METHOD TARGET HTTP/1.1.");
    }
    target[bytes] = 0;
    r->minor = version[7] - '0';
    return read_target(p, target, bytes);
}

/* name, name:port, [address] or [address]:port. */
static bool is_host(const char *text)
{
    const char *at = text;
    if (*at == '[') {
        at += 1 + strspn(at + 1, "0123456789abcdefABCDEF:.");
        if (at == text + 1 || *at++ != ']') {
            return false;
        }
    } else {
        while (is_letter(*at) || is_digit(*at) || (*at != 0 && strchr("-._", *at) != NULL)) {
            at++;
        }
        if (at == text) {
            return false;
        }
    }
    if (*at == ':') {
        at++;
        size_t digits = strspn(at, "0123456789");
        at += digits <= 5 ? digits : 0;
    }
    return *at == 0;
}

static bool read_host(http_parser *p, const char *value)
{
    if (p->hosts++ > 0) {
        return refuse(p, 400, "The request has more than one Host.");
    }
    p->request.host = value;
    return is_host(value) || refuse(p, 400, "The field Host is not a name or an address with a port.");
}

static bool read_length(http_parser *p, const char *value)
{
    if (p->lengths++ > 0) {
        return refuse(p, 400, "The request has more than one Content-Length.");
    }
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > LENGTH_DIGITS_MAX || value[digits] != 0) {
        return refuse(p, 400, "Content-Length is not a number of 1 to 18 digits.");
    }
    for (size_t i = 0; i < digits; i++) {
        p->request.length = p->request.length * 10 + (uint64_t)(value[i] - '0');
    }
    return true;
}

static bool read_coding(http_parser *p, const char *value)
{
    if (p->codings++ > 0 || !same(value, "chunked")) {
        return refuse(p, 400, "Transfer-Encoding is not the one word \"chunked\".");
    }
    return true;
}

static bool read_expect(http_parser *p, const char *value)
{
    p->request.expects_continue = true;
    return same(value, "100-continue") || refuse(p, 417, "Expect is not \"100-continue\".");
}

static bool read_connection(http_parser *p, const char *value)
{
    p->close |= http_has_token(value, "close");
    p->stay |= http_has_token(value, "keep-alive");
    return true;
}

/* Splits the line into a name in lower case and a trimmed value. */
static bool split_field(http_parser *p, char *line, http_field *out)
{
    size_t name = 0;
    if (is_space(*line)) {
        return refuse(p, 400, "A field is folded over two lines.");
    }
    while (is_token(line[name])) {
        line[name] = lower(line[name]);
        name++;
    }
    if (name == 0 || line[name] != ':') {
        return refuse(p, 400, "A line of the head is not a name, a colon and a value.");
    }
    line[name] = 0;
    char *value = line + name + 1, *end = value + strlen(value);
    while (is_space(*value)) {
        value++;
    }
    while (end > value && is_space(end[-1])) {
        *--end = 0;
    }
    out->name = line;
    out->value = value;
    if (p->request.field_count + p->trailers >= HTTP_FIELDS_MAX) {
        return refuse(p, 431, "The head of the request has more than 100 fields.");
    }
    return true;
}

bool http_line_field(http_parser *p, char *line)
{
    static const struct {
        const char *name;
        bool (*read)(http_parser *p, const char *value);
    } known[] = {
        { "host", read_host },     { "content-length", read_length }, { "transfer-encoding", read_coding },
        { "expect", read_expect }, { "connection", read_connection },
    };
    http_field field;
    if (!split_field(p, line, &field)) {
        return false;
    }
    p->request.fields[p->request.field_count++] = field;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(field.name, known[i].name) == 0) {
            return known[i].read(p, field.value);
        }
    }
    return true;
}

bool http_line_trailer(http_parser *p, char *line)
{
    static const char *const framing[] = { "host", "content-length", "transfer-encoding" };
    http_field field;
    if (!split_field(p, line, &field)) {
        return false;
    }
    p->trailers++;
    for (size_t i = 0; i < sizeof framing / sizeof framing[0]; i++) {
        if (strcmp(field.name, framing[i]) == 0) {
            return refuse(p, 400, "A trailer changes where the request ends.");
        }
    }
    return true;
}

const char *http_field_of(const http_request *r, const char *name)
{
    for (int i = 0; i < r->field_count; i++) {
        if (strcmp(r->fields[i].name, name) == 0) {
            return r->fields[i].value;
        }
    }
    return NULL;
}

bool http_has_token(const char *list, const char *token)
{
    while (*list) {
        list += strspn(list, ", \t");
        size_t bytes = strcspn(list, ","), end = bytes;
        while (end > 0 && is_space(list[end - 1])) {
            end--;
        }
        if (end > 0 && http_line_same(list, end, token)) {
            return true;
        }
        list += bytes;
    }
    return false;
}
