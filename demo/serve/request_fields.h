/* request_fields.h: reads the members of a request's JSON object, each with its type and range.
   takes: a tree of json_in.h.
   gives: fields_find, fields_text, fields_bool, fields_number, fields_whole, fields_object, fields_array,
          fields_fail, fields_within, fields_names, fields_read, fields_unique.
   owns:  nothing.

   A member that is absent, null, "", {} or [] counts as absent. A member of a wrong type or out of range is an error,
   which names it; after the first error all calls are without effect. */
#ifndef DEMO_REQUEST_FIELDS_H
#define DEMO_REQUEST_FIELDS_H

#include "../common/json_in.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIELDS_VALUES_MAX 500000u /* of a body: a value takes some hundred bytes of memory */
#define FIELDS_RULES ((json_rules){ .values_max = FIELDS_VALUES_MAX, .strict_numbers = true })

typedef struct request_error { /* zeroed: none */
    bool set;
    char message[512];
    char param[64];        /* the field's name; "" = none */
    const char *code;      /* a constant, "invalid_value" unless it says more; NULL without an error */
} request_error;

typedef struct fields {
    const json_value *object;
    request_error *error;
} fields;

/* names: one name, or several with '|' between them: the first that is present counts. */
const json_value *fields_find(const fields *f, const char *names);
/* These return whether the member is present and good, and only then change *out. */
bool fields_text(fields *f, const char *names, const char **out, size_t *bytes); /* bytes may be NULL: then no NUL */
bool fields_bool(fields *f, const char *names, bool *out);
bool fields_number(fields *f, const char *names, double least, double most, double *out);
bool fields_whole(fields *f, const char *names, double least, double most, int64_t *out);
bool fields_object(fields *f, const char *names, const json_value **out);
bool fields_array(fields *f, const char *names, size_t most, const json_value **out);

/* Sets the first error; false. param may be NULL. */
bool fields_fail(request_error *error, const char *param, const char *format, ...);
/* An error about a member of an inner object, whose call is the last one: its param becomes "outer.param". */
void fields_within(request_error *error, const char *outer);
/* All names of a field, with '|' between them, by any of them. */
const char *fields_names(const char *name);
/* The object that a client has sent as a body, in UTF-8; json_free frees it. NULL: the error says what is wrong. */
json_value *fields_read(const char *body, size_t bytes, request_error *error);
/* No object in the tree has a key twice. false: the error names one. */
bool fields_unique(const json_value *tree, request_error *error);

#endif
