/* http_origin.c: which pages may use the server: the fields Host and Origin, the headers of CORS, OPTIONS.
   With keys, a page needs a key, so any origin is allowed, or the one of --cors. Without keys, a page of any site that
   the user visits could use the server; therefore only pages of its own origin, and the one of --cors, may.
   takes: the head of a request.
   gives: http_origin_check, http_origin_put_headers.
   owns:  nothing. */
#include "http_exchange.h"
#include "http_line.h"

#include <stdio.h>
#include <string.h>

#define METHODS "GET, HEAD, POST, PUT, DELETE, OPTIONS"

static bool same(const char *a, const char *b)
{
    return http_line_same(a, strlen(a), b);
}

static void put(http_exchange *x, const char *text)
{
    http_put_out(x, text, strlen(text));
}

/* The origin is "http://" or "https://" and the host that the request itself names. */
static bool is_own(const char *origin, const char *host)
{
    size_t scheme = strncmp(origin, "http://", 7) == 0 ? 7 : strncmp(origin, "https://", 8) == 0 ? 8 : 0;
    return scheme > 0 && *host && same(origin + scheme, host);
}

static bool is_cors_origin(const http_exchange *x, const char *origin)
{
    const char *allowed = x->server->desc.cors_origin;
    return origin && allowed && strcmp(origin, allowed) == 0;
}

void http_origin_put_headers(http_exchange *x)
{
    const http_desc *d = &x->server->desc;
    const char *origin = http_field_of(&x->parser.request, "origin");
    if (d->cors_origin) {
        put(x, "Vary: Origin\r\n");
    }
    bool any = !d->no_auth && !d->cors_origin;
    if (any || is_cors_origin(x, origin)) {
        put(x, "Access-Control-Allow-Origin: ");
        put(x, any ? "*" : d->cors_origin);
        put(x, "\r\nAccess-Control-Expose-Headers: *\r\n");
    }
}

/* Host names this machine: a page that reached the server by a name of its own (DNS rebinding) is refused. */
static bool is_own_host(const http_exchange *x)
{
    const char *host = x->parser.request.host;
    size_t bytes = *host == '[' ? strcspn(host, "]") : strcspn(host, ":"), skip = *host == '[';
    if (bytes < skip + 1) {
        return false;
    }
    return http_line_same(host + skip, bytes - skip, "localhost") ||
           http_line_same(host + skip, bytes - skip, x->local) ||
           http_line_same(host + skip, bytes - skip, x->server->desc.host);
}

static void answer_options(http_exchange *x)
{
    char headers[HTTP_HEAD_MAX + 256];
    const http_request *r = &x->parser.request;
    const char *origin = http_field_of(r, "origin"), *fields = http_field_of(r, "access-control-request-headers");
    bool preflight = origin && http_field_of(r, "access-control-request-method");
    bool allowed = (!x->server->desc.no_auth && !x->server->desc.cors_origin) || is_cors_origin(x, origin);
    if (!preflight) {
        http_answer(x, 204, NULL, "Allow: " METHODS "\r\n", NULL, 0);
    } else if (!allowed) {
        http_answer_error(x, 403, NULL, "permission_error", NULL, "origin_not_allowed",
                          "Pages of this origin may not use the server (see --cors).");
    } else {
        snprintf(headers, sizeof headers,
                 "Access-Control-Allow-Methods: " METHODS "\r\n%s%s%sAccess-Control-Max-Age: 600\r\n",
                 fields ? "Access-Control-Allow-Headers: " : "", fields ? fields : "", fields ? "\r\n" : "");
        http_answer(x, 204, NULL, headers, NULL, 0);
    }
}

/* A page can send such a body to another origin only after a preflight. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t bytes = type ? strcspn(type, "; \t") : 0;
    return bytes > 0 && http_line_same(type, bytes, json);
}

static bool refuse(http_exchange *x, int status, const char *code, const char *message)
{
    http_answer_error(x, status, NULL, status == 403 ? "permission_error" : "invalid_request_error", NULL, code,
                      message);
    return false;
}

bool http_origin_check(http_exchange *x)
{
    const http_request *r = &x->parser.request;
    const char *origin = http_field_of(r, "origin");
    if (x->server->desc.no_auth) {
        if (!is_own_host(x)) {
            return refuse(x, 403, "host_not_allowed", "Host is neither the server's address nor localhost.");
        }
        if (origin && !is_own(origin, r->host) && !is_cors_origin(x, origin)) {
            return refuse(x, 403, "origin_not_allowed", "Pages of this origin may not use the server (see --cors).");
        }
        if (strcmp(r->method, "POST") == 0 && !is_json(http_field_of(r, "content-type"))) {
            return refuse(x, 415, "content_type", "Without keys, the body of a POST must be application/json.");
        }
    }
    if (strcmp(r->method, "OPTIONS") == 0) {
        answer_options(x);
        return false;
    }
    return true;
}
