/* buffer.h: a text in memory that grows, and JSON written into it.
   takes: texts and values; key is the member's name inside an object, NULL inside an array or at the top.
   gives: buffer_add, buffer_format, buffer_clear, buffer_free, and the writers of JSON buffer_object ... buffer_raw.
   owns:  its memory, until buffer_free.

   When memory runs out, `failed` is set and stays until buffer_clear; nothing is added any more. So a whole answer is
   written first, and `failed` is asked once. */
#ifndef DEMO_BUFFER_H
#define DEMO_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFFER_DEPTH 24

typedef struct buffer { /* zeroed: empty */
    char *data;         /* [bytes] and a NUL; NULL if nothing was ever added */
    size_t bytes, cap;
    bool failed;
    int depth;                 /* open objects and arrays */
    char close[BUFFER_DEPTH];  /* bracket that ends each */
    bool filled[BUFFER_DEPTH]; /* it has a member, so a comma comes next */
} buffer;

bool buffer_room(buffer *b, size_t bytes); /* reserves room for `bytes` bytes more, and a NUL; false: failed */
void buffer_add(buffer *b, const char *text, size_t bytes);
void buffer_string(buffer *b, const char *text); /* ends with NUL */
void buffer_format(buffer *b, const char *format, ...);
void buffer_cut(buffer *b, size_t bytes);        /* keeps the first bytes */
void buffer_drop(buffer *b, size_t bytes);       /* takes the first bytes away */
void buffer_clear(buffer *b);                    /* empty, but keeps its memory */
void buffer_free(buffer *b);

void buffer_object(buffer *b, const char *key);
void buffer_array(buffer *b, const char *key);
void buffer_end(buffer *b); /* ends the innermost open value */
/* text: NULL becomes null, and bad UTF-8 becomes U+FFFD; other UTF-8 stays as it is. */
void buffer_text(buffer *b, const char *key, const char *text, size_t bytes);
void buffer_name(buffer *b, const char *key, const char *text); /* the same for a text that ends with NUL */
void buffer_uint(buffer *b, const char *key, uint64_t value);
void buffer_int(buffer *b, const char *key, int64_t value);
void buffer_number(buffer *b, const char *key, double value); /* null if not finite */
void buffer_bool(buffer *b, const char *key, bool value);
void buffer_null(buffer *b, const char *key);
void buffer_raw(buffer *b, const char *key, const char *json, size_t bytes); /* a value that is JSON already */

/* The text and a NUL; the caller frees it. NULL: no memory. */
char *buffer_copy(const char *text, size_t bytes);

/* Bytes of the UTF-8 character that text begins with, 1 to 4; 0: it is none. */
size_t buffer_character(const char *text, size_t bytes);
bool buffer_is_utf8(const char *text, size_t bytes); /* all of it */

#endif
