/* overrides.h: values of request fields that the server's owner sets: {field: {override, force, additive}}.
   takes: the text of a JSON or YAML file of two levels, bodies of requests.
   gives: overrides_read, overrides_apply, overrides_json, overrides_free.
   owns:  the rows, until overrides_free.

   Without `force` a value stands in for an absent field. With it, it replaces the request's. `additive` adds its items
   to the request's list. A field counts as given under any of its names (request_fields.h). */
#ifndef DEMO_OVERRIDES_H
#define DEMO_OVERRIDES_H

#include "buffer.h"
#include "request_fields.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OVERRIDES_MAX 128u

extern const char overrides_safe_defaults[]; /* the preset of that name, as YAML */

typedef struct overrides_row {
    char *field;
    char *value; /* JSON */
    bool force, additive;
} overrides_row;

typedef struct overrides { /* zeroed: none */
    overrides_row row[OVERRIDES_MAX];
    uint32_t count;
} overrides;

/* false: *error says what is wrong, with the line of a YAML text; *out is then empty. Each value is checked as
   that of a request is. */
bool overrides_read(const char *text, size_t bytes, uint32_t vocab, overrides *out, request_error *error);
/* YAML of two levels as the JSON of the same; by overrides_read. */
bool overrides_yaml(const char *text, size_t bytes, buffer *out, request_error *error);
/* Appends the request's body with the overrides in it to *out, or the body itself if it is no JSON object (then
   request_read says so). false: memory ran out. */
bool overrides_apply(const overrides *o, const char *body, size_t bytes, buffer *out);
/* {"temperature":{"override":0.8,"force":false,"additive":false}} as a member, for GET /v1/sampling/overrides. */
void overrides_json(const overrides *o, const char *key, buffer *out);
void overrides_free(overrides *o);

#endif
