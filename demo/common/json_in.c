/* json_in.c: see json_in.h.
   takes: text.
   gives: what json_in.h declares.
   owns:  the nodes, keys and texts of a tree. */
#include "json_in.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH 64

const char json_no_memory[] = "there is no memory left";

typedef struct reader {
    const char *at, *end;
    const char *error; /* message of the first error */
    json_rules rules;
    size_t values;     /* read so far */
} reader;

static bool fail(reader *r, const char *error)
{
    r->error = r->error ? r->error : error;
    return false;
}

static void *take_memory(reader *r, size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory) {
        fail(r, json_no_memory);
    }
    return memory;
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) {
        r->at++;
    }
}

static bool take(reader *r, char c)
{
    if (r->at < r->end && *r->at == c) {
        r->at++;
        return true;
    }
    return false;
}

/* Four hex digits, or -1. */
static int32_t take_hex4(reader *r)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = r->at < r->end && *r->at ? strchr(digits, *r->at) : NULL;
        if (!digit) {
            return -1;
        }
        value = value * 16 + (int32_t)((digit - digits) & 15);
    }
    return value;
}

/* Decodes the escape after a backslash to UTF-8; lone surrogates become U+FFFD. Returns its bytes; 0: bad escape. */
static size_t take_escape(reader *r, char out[4])
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char letter = r->at < r->end ? *r->at++ : 0;
    const char *known = letter ? strchr(letters, letter) : NULL;
    if (known) {
        out[0] = values[known - letters];
        return 1;
    }
    int32_t unit = letter == 'u' ? take_hex4(r) : -1;
    if (unit < 0) {
        return 0;
    }
    uint32_t point = (uint32_t)unit;
    if (point >= 0xD800 && point < 0xE000) {
        reader ahead = *r;
        int32_t low = point < 0xDC00 && take(&ahead, '\\') && take(&ahead, 'u') ? take_hex4(&ahead) : -1;
        if (low >= 0xDC00 && low < 0xE000) {
            point = 0x10000 + ((point - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
            *r = ahead;
        } else {
            point = 0xFFFD;
        }
    }
    size_t n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    for (size_t i = n; i-- > 1; point >>= 6) {
        out[i] = (char)(0x80 | (point & 0x3F));
    }
    out[0] = (char)(lead[n] | point);
    return n;
}

/* Reads the string whose opening quote is at the cursor. NULL: failed. */
static char *take_string(reader *r, size_t *bytes)
{
    if (!take(r, '"')) {
        fail(r, "expected a string");
        return NULL;
    }
    const char *close = r->at;
    while (close < r->end && *close != '"') {
        close += *close == '\\' ? 2 : 1;
    }
    if (close >= r->end) {
        fail(r, "a string does not end");
        return NULL;
    }
    char *out = take_memory(r, (size_t)(close - r->at) + 1); /* an escape is never shorter than its UTF-8 */
    size_t used = 0;
    while (out && r->at < close) {
        unsigned char c = (unsigned char)*r->at++;
        if (c == '\\') {
            char piece[4];
            size_t n = take_escape(r, piece);
            if (n == 0) {
                fail(r, "a string has an invalid escape");
                free(out);
                return NULL;
            }
            memcpy(out + used, piece, n);
            used += n;
        } else if (c < 0x20) {
            fail(r, "a string has a control character");
            free(out);
            return NULL;
        } else {
            out[used++] = (char)c;
        }
    }
    r->at = close + 1;
    *bytes = used;
    return out;
}

/* Is it a number as JSON has it? strtod also takes a plus sign, zeros before the first digit and a bare point. */
static bool is_number(const char *text)
{
    text += *text == '-';
    size_t whole = strspn(text, "0123456789");
    if (whole == 0 || (whole > 1 && *text == '0')) {
        return false;
    }
    text += whole;
    if (*text == '.') {
        size_t part = strspn(++text, "0123456789");
        if (part == 0) {
            return false;
        }
        text += part;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '+' || *text == '-';
        size_t exponent = strspn(text, "0123456789");
        return exponent && text[exponent] == 0;
    }
    return *text == 0;
}

static bool take_number(reader *r, json_value *v)
{
    char text[64];
    size_t n = 0;
    while (r->at + n < r->end && r->at[n] && strchr("+-.0123456789eE", r->at[n])) {
        n++;
    }
    if (n == 0 || n >= sizeof text) {
        return fail(r, n ? "a number is too long" : "expected a value");
    }
    memcpy(text, r->at, n);
    text[n] = 0;
    char *stop;
    v->kind = JSON_NUMBER;
    v->number = strtod(text, &stop); /* the programs never leave the C locale */
    r->at += n;
    return (*stop == 0 && (!r->rules.strict_numbers || is_number(text))) || fail(r, "a number is malformed");
}

static bool take_word(reader *r, json_value *v)
{
    static const char *const words[] = { "null", "false", "true" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->at) >= n && memcmp(r->at, words[i], n) == 0) {
            v->kind = (json_kind)i;
            r->at += n;
            return true;
        }
    }
    return take_number(r, v);
}

static bool take_value(reader *r, json_value *v, int depth);

static bool take_children(reader *r, json_value *v, char close, int depth)
{
    json_value **tail = &v->child;
    r->at++;
    skip_space(r);
    if (take(r, close)) {
        return true;
    }
    do {
        json_value *child = take_memory(r, sizeof *child);
        if (!child) {
            return false;
        }
        *tail = child;
        tail = &child->next;
        v->child_count++;
        skip_space(r);
        if (close == '}') {
            size_t bytes;
            child->key = take_string(r, &bytes);
            skip_space(r);
            if (!child->key || !take(r, ':')) {
                return fail(r, "a member has no ':'");
            }
        }
        if (!take_value(r, child, depth + 1)) {
            return false;
        }
        skip_space(r);
    } while (take(r, ','));
    return take(r, close) || fail(r, close == '}' ? "an object does not end" : "an array does not end");
}

/* Recursion ends at JSON_DEPTH. */
static bool take_value(reader *r, json_value *v, int depth)
{
    bool good;
    skip_space(r);
    v->raw = r->at;
    char c = r->at < r->end ? *r->at : 0;
    if (depth == JSON_DEPTH && (c == '{' || c == '[')) {
        return fail(r, "arrays and objects are nested too deeply");
    }
    if (r->rules.values_max && ++r->values > r->rules.values_max) {
        return fail(r, "there are too many values");
    }
    if (c == '{' || c == '[') {
        v->kind = c == '{' ? JSON_OBJECT : JSON_ARRAY;
        good = take_children(r, v, c == '{' ? '}' : ']', depth);
    } else if (c == '"') {
        v->kind = JSON_TEXT;
        v->text = take_string(r, &v->text_bytes);
        good = v->text != NULL;
    } else {
        good = take_word(r, v);
    }
    v->raw_bytes = (size_t)(r->at - v->raw);
    return good;
}

json_value *json_read_rules(const char *text, size_t bytes, const json_rules *rules, const char **error)
{
    reader r = { .at = text, .end = text + bytes, .rules = *rules };
    json_value *root = take_memory(&r, sizeof *root);
    bool good = root && take_value(&r, root, rules->depth);
    skip_space(&r);
    if (good && r.at != r.end) {
        good = fail(&r, "there is more text after the value");
    }
    if (!good) {
        json_free(root);
        root = NULL;
    }
    *error = r.error;
    return root;
}

json_value *json_read(const char *text, size_t bytes, const char **error)
{
    return json_read_rules(text, bytes, &(json_rules){ 0 }, error);
}

const json_value *json_member(const json_value *object, const char *key)
{
    const json_value *found = NULL;
    for (const json_value *m = object && object->kind == JSON_OBJECT ? object->child : NULL; m; m = m->next) {
        if (strcmp(m->key, key) == 0) {
            found = m;
        }
    }
    return found && found->kind != JSON_NULL ? found : NULL;
}

/* Recursion ends at JSON_DEPTH. */
void json_free(json_value *value)
{
    while (value) {
        json_value *next = value->next;
        json_free(value->child);
        free(value->key);
        free(value->text);
        free(value);
        value = next;
    }
}
