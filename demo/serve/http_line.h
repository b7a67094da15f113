/* http_line.h: the lines of a request's head: the request line, fields, trailers. For http_parse.c alone.
   takes: one line, without its CRLF, which ends with NUL and has no control characters but tabs.
   gives: http_line_request, http_line_field, http_line_trailer, http_line_same. */
#ifndef SERVE_HTTP_LINE_H
#define SERVE_HTTP_LINE_H

#include "http_parse.h"

/* Each reads the line into p->request, which points into it. false: p->status and p->problem say why. */
bool http_line_request(http_parser *p, char *line);
bool http_line_field(http_parser *p, char *line);
bool http_line_trailer(http_parser *p, char *line); /* checks it; nothing is kept */
/* text[0..bytes) is the same as `other`, letters of either case. */
bool http_line_same(const char *text, size_t bytes, const char *other);

#endif
