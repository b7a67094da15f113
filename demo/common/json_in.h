/* json_in.h: reads one JSON text into a tree.
   takes: UTF-8 text, at most 64 levels deep.
   gives: json_read, json_read_rules, json_member, json_free.
   owns:  the tree, until json_free; `raw` points into the text that was read. */
#ifndef DEMO_JSON_IN_H
#define DEMO_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>

typedef enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json_value json_value;
struct json_value {
    json_kind kind;
    double number;
    char *key;                /* inside an object, else NULL */
    char *text;               /* JSON_TEXT: unescaped, ends with NUL */
    size_t text_bytes;
    const char *raw;          /* the source text of the value */
    size_t raw_bytes;
    json_value *child, *next; /* first element or member; next one of the same parent */
    size_t child_count;
};

extern const char json_no_memory[]; /* the error where memory ran out, and not the text is wrong */

/* Reads the whole text. NULL: failed; *error is the message, a static string. */
json_value *json_read(const char *text, size_t bytes, const char **error);

typedef struct json_rules { /* for text that anyone may send; zeroed: those of json_read */
    size_t values_max;      /* of the whole tree; 0 = any number */
    bool strict_numbers;    /* no +1, 01, .5 or 1. */
    int depth;              /* of arrays and objects that the text will lie in; those inside of it may be fewer */
} json_rules;

json_value *json_read_rules(const char *text, size_t bytes, const json_rules *rules, const char **error);
const json_value *json_member(const json_value *object, const char *key); /* NULL: absent, null, or no object */
void json_free(json_value *value);                                        /* accepts NULL */

#endif
