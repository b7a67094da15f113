/* json_out.h: writes JSON in ASCII, one value at a time, to a stdio stream.
   takes: values; key is the member's name inside an object, NULL inside an array or at the top.
   gives: json_out_*. */
#ifndef DEMO_JSON_OUT_H
#define DEMO_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_OUT_DEPTH 16

typedef struct json_out { /* { .file = stdout } is ready to use */
    FILE *file;
    int depth;
    char close[JSON_OUT_DEPTH];  /* bracket that ends each open value */
    bool filled[JSON_OUT_DEPTH]; /* the open value has a member, so a comma comes next */
} json_out;

void json_out_object(json_out *j, const char *key);
void json_out_array(json_out *j, const char *key);
void json_out_end(json_out *j); /* ends the innermost open value; after the outermost one the line ends */
/* text: NULL becomes null, and bad UTF-8 becomes U+FFFD. string: the same for a text that ends with NUL. */
void json_out_text(json_out *j, const char *key, const char *text, size_t bytes);
void json_out_string(json_out *j, const char *key, const char *text);
void json_out_uint(json_out *j, const char *key, uint64_t value);
void json_out_int(json_out *j, const char *key, int64_t value);
void json_out_number(json_out *j, const char *key, double value); /* 9 digits, exact for floats; null if not finite */
void json_out_bool(json_out *j, const char *key, bool value);
void json_out_ids(json_out *j, const char *key, const int32_t *ids, size_t count);

#endif
