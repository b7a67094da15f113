/* json_scan.h: the JSON grammar (RFC 8259, strict, without recursion; a byte order mark may precede the text). Turns
   text into tokens, or finds the first error.
   takes: untrusted bytes, and memory for the tokens once they are counted.
   gives: exl2__json_kind, exl2__json_token, exl2__json_scan, exl2__json_scan_slice, exl2__json_scan_all,
          exl2__json_scan_fill, exl2__json_scan_child. */
#ifndef EXL2__JSON_SCAN_H
#define EXL2__JSON_SCAN_H

#include "../bytes.h"
#include "../work.h"

#define EXL2__JSON_DEPTH_MAX 64
#define EXL2__JSON_DEEP_MAX 256 /* the same where no code recurses over the tokens */

typedef enum exl2__json_kind {
    EXL2__JSON_OBJECT,
    EXL2__JSON_ARRAY,
    EXL2__JSON_STRING,
    EXL2__JSON_NUMBER,
    EXL2__JSON_TRUE,
    EXL2__JSON_FALSE,
    EXL2__JSON_NULL,
    EXL2__JSON_NONFINITE /* NaN, Infinity or -Infinity, if the scan accepts them: no number, for every reader */
} exl2__json_kind;

typedef struct exl2__json_token {
    uint32_t begin, end; /* byte range of the value in the text; strings without their quotes */
    uint32_t after;      /* index of the first token after this value and all inside it */
    uint32_t count;      /* number of members or elements */
    uint8_t kind;        /* exl2__json_kind */
    bool escaped;        /* the string contains a backslash */
} exl2__json_token;

#define EXL2__JSON_FLAT_MAX 2

/* A container that is not parsed into tokens. exl2__json_walk reads and checks its members one at a time. */
typedef struct exl2__json_flat {
    uint32_t begin, end; /* byte range; begin 0: the text has no such container */
    uint32_t members;    /* upper bound of the number of members */
    uint32_t longest;    /* bytes of its longest string, quotes and escapes included */
} exl2__json_flat;

/* The same code first counts the tokens and then fills them in. Functions are given the offset to read at, and return
   the offset after what they read, or EXL2__JSON_BAD. */
typedef struct exl2__json_scan {
    const uint8_t *text;
    exl2__json_token *tokens; /* NULL: count only */
    uint32_t bytes, token_count, depth;
    uint32_t open[EXL2__JSON_DEEP_MAX]; /* [depth] tokens of the open containers */
    bool is_object[EXL2__JSON_DEEP_MAX];
    bool deep; /* DEEP_MAX levels are accepted instead of DEPTH_MAX */
    const char *wanted; /* after an error: what is expected at offset `at` */
    uint32_t at;        /* between two slices: the next byte to read */
    uint32_t depth_read; /* `depth` before the last child; if it has grown since, a container was opened */
    exl2__json_flat *skipped; /* the container that is being skipped; NULL: none */
    uint32_t skipped_depth;   /* brackets that are open in it */
    const char *const *flat_keys; /* [EXL2__JSON_FLAT_MAX] keys of the containers that are not parsed, in objects that
                                     are members of the root; NULL: none */
    exl2__json_flat flat[EXL2__JSON_FLAT_MAX];
    bool nonfinite; /* NaN and Infinity are accepted, which Python writes, too */
} exl2__json_scan;

#define EXL2__JSON_BAD UINT32_MAX /* larger than every offset */

static inline uint32_t exl2__json_scan_fail(exl2__json_scan *s, uint32_t at, const char *wanted)
{
    s->at = at;
    s->wanted = wanted;
    return EXL2__JSON_BAD;
}

/* Skips white space; runs of spaces, with which files are often indented, are skipped in larger steps. */
static inline uint32_t exl2__json_scan_blank(const uint8_t *text, uint32_t at, uint32_t bytes)
{
    for (; at < bytes && text[at] <= ' '; at++) {
        if (text[at] == ' ') {
            uint32_t room = bytes - at;
            at += room >= 8 && memcmp(text + at, "        ", 8) == 0 ? 7
                : room >= 4 && memcmp(text + at, "    ", 4) == 0 ? 3 : 0;
        } else if (text[at] != '\n' && text[at] != '\r' && text[at] != '\t') {
            break;
        }
    }
    return at;
}

static inline uint32_t exl2__json_scan_space(const exl2__json_scan *s, uint32_t at)
{
    return exl2__json_scan_blank(s->text, at, s->bytes);
}

/* The byte at `at`, or 0 at the end of the text. (JSON allows no byte 0 outside of strings.) */
static inline uint8_t exl2__json_scan_peek(const exl2__json_scan *s, uint32_t at)
{
    return at < s->bytes ? s->text[at] : 0;
}

/* Adds a token, and returns `end`. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__json_scan_token(exl2__json_scan *s, exl2__json_kind kind, bool escaped, uint32_t begin,
                                             uint32_t end)
{
    if (s->tokens) {
        exl2__json_token t = { begin, end, s->token_count + 1, 0, (uint8_t)kind, escaped };
        s->tokens[s->token_count] = t;
    }
    s->token_count++;
    return end;
}

/* Skips one well-formed UTF-8 sequence of two or more bytes at *at (Unicode 15, table 3-7). false: there is none. *at
   is increased by constants in branches, so that a CPU can predict its value. */
static inline bool exl2__json_scan_utf8(const uint8_t *text, uint32_t *at, uint32_t bytes)
{
    const uint8_t *p = text + *at;
    uint32_t room = bytes - *at;
    uint8_t low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[0] < 0xC2 || p[0] > 0xF4 || room < 2 || p[1] < low || p[1] > high) {
        return false;
    }
    if (p[0] < 0xE0) {
        *at += 2;
        return true;
    }
    if (room < 3 || (p[2] & 0xC0) != 0x80) {
        return false;
    }
    if (p[0] < 0xF0) {
        *at += 3;
        return true;
    }
    *at += 4;
    return room > 3 && (p[3] & 0xC0) == 0x80;
}

EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__json_scan_escape(exl2__json_scan *s, uint32_t at)
{
    uint8_t c = exl2__json_scan_peek(s, at + 1);
    uint32_t code;
    if (c == 'u') {
        return exl2__hex_read(s->text + at + 2, s->bytes - at - 2, 4, &code) == 4
             ? at + 6 : exl2__json_scan_fail(s, at, "four hexadecimal digits after \\u");
    }
    if (c == 0 || !strchr("\"\\/bfnrt", c)) {
        return exl2__json_scan_fail(s, at, "one of \"\\/bfnrtu after a backslash");
    }
    return at + 2;
}

/* Number of bytes from text[at] on, up to 8, that are printable ASCII, no quote and no backslash. */
static inline uint32_t exl2__json_scan_plain(const uint8_t *text, uint32_t at, uint32_t bytes)
{
    uint64_t word = exl2__eight_load(text + at, bytes - at);
    uint64_t unprintable = ((word - EXL2__EIGHT(0x20u)) | word) & EXL2__EIGHT(0x80u); /* or not ASCII */
    return exl2__eight_first(unprintable | exl2__eight_is(word, '"') | exl2__eight_is(word, '\\'));
}

/* From the opening quote to the byte after the closing one. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__json_scan_string(exl2__json_scan *s, uint32_t quote)
{
    const uint8_t *text = s->text;
    uint32_t at = quote + 1, bytes = s->bytes;
    bool escaped = false;
    for (;;) {
        if (at == bytes) {
            return exl2__json_scan_fail(s, quote, "a closing quote for the string that begins here");
        }
        if (text[at] >= 0x80) {
            uint32_t begin = at;
            if (!exl2__json_scan_utf8(text, &at, bytes)) {
                return exl2__json_scan_fail(s, begin, "valid UTF-8");
            }
            continue;
        }
        uint32_t run = exl2__json_scan_plain(text, at, bytes);
        at += run;
        if (run == 8 || at == bytes) {
            continue;
        }
        if (text[at] == '"') {
            break;
        }
        if (text[at] == '\\') {
            at = exl2__json_scan_escape(s, at);
            if (at == EXL2__JSON_BAD) {
                return at;
            }
            escaped = true;
        } else if (text[at] < 0x20) {
            return exl2__json_scan_fail(s, at, "an escape instead of a control character");
        }
    }
    return exl2__json_scan_token(s, EXL2__JSON_STRING, escaped, quote + 1, at) + 1;
}

EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__json_scan_digits(exl2__json_scan *s, uint32_t at)
{
    uint32_t begin = at;
    while (exl2__json_scan_peek(s, at) >= '0' && exl2__json_scan_peek(s, at) <= '9') {
        at++;
    }
    return at > begin ? at : exl2__json_scan_fail(s, at, "a digit");
}

static inline uint32_t exl2__json_scan_number(exl2__json_scan *s, uint32_t begin)
{
    uint32_t at = begin + (exl2__json_scan_peek(s, begin) == '-');
    /* if a digit follows a leading 0, the caller reports a missing comma */
    at = exl2__json_scan_peek(s, at) == '0' ? at + 1 : exl2__json_scan_digits(s, at);
    if (at != EXL2__JSON_BAD && exl2__json_scan_peek(s, at) == '.') {
        at = exl2__json_scan_digits(s, at + 1);
    }
    if (at != EXL2__JSON_BAD && (exl2__json_scan_peek(s, at) | 0x20) == 'e') {
        uint8_t sign = exl2__json_scan_peek(s, at + 1);
        at = exl2__json_scan_digits(s, at + 1 + (sign == '+' || sign == '-'));
    }
    return at == EXL2__JSON_BAD ? at : exl2__json_scan_token(s, EXL2__JSON_NUMBER, false, begin, at);
}

EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__json_scan_word(exl2__json_scan *s, uint32_t at, const char *word, exl2__json_kind kind)
{
    uint32_t bytes = (uint32_t)strlen(word);
    if (s->bytes - at < bytes || memcmp(s->text + at, word, bytes) != 0) {
        return exl2__json_scan_fail(s, at, "a value");
    }
    return exl2__json_scan_token(s, kind, false, at, at + bytes);
}

static inline uint32_t exl2__json_scan_open(exl2__json_scan *s, uint32_t at)
{
    if (s->depth == (s->deep ? EXL2__JSON_DEEP_MAX : EXL2__JSON_DEPTH_MAX)) {
        return exl2__json_scan_fail(s, at, s->deep ? "at most 256 levels of nesting" : "at most 64 levels of nesting");
    }
    bool is_object = s->text[at] == '{';
    s->open[s->depth] = s->token_count;
    s->is_object[s->depth++] = is_object;
    return exl2__json_scan_token(s, is_object ? EXL2__JSON_OBJECT : EXL2__JSON_ARRAY, false, at, at) + 1;
}

/* Skips the string whose opening quote is at `at`, without checking it; to the end of the text if it does not end. */
static inline uint32_t exl2__json_scan_skip(const uint8_t *text, uint32_t at, uint32_t bytes)
{
    uint64_t i = (uint64_t)at + 1;
    while (i < bytes) {
        uint64_t word = exl2__eight_load(text + i, bytes - i);
        uint32_t run = exl2__eight_first(exl2__eight_is(word, '"') | exl2__eight_is(word, '\\'));
        i += run;
        if (run < 8) {
            if (text[i] == '"') {
                return (uint32_t)i + 1;
            }
            i += 2;
        }
    }
    return bytes;
}

/* The kind of the container whose opening bracket is at `at`. */
static inline exl2__json_kind exl2__json_scan_container(const exl2__json_scan *s, uint32_t at)
{
    return s->text[at] == '{' ? EXL2__JSON_OBJECT : EXL2__JSON_ARRAY;
}

/* At the opening bracket of a container that is not parsed. The second pass uses what the counting pass has found. */
static inline uint32_t exl2__json_scan_flat(exl2__json_scan *s, uint32_t begin, exl2__json_flat *f)
{
    if (f->begin == begin) {
        return exl2__json_scan_token(s, exl2__json_scan_container(s, begin), false, begin, f->end);
    }
    s->skipped = f;
    s->skipped_depth = 0;
    f->begin = begin;
    return begin;
}

/* Looks for the end of the container that is being skipped, at most as far as `limit`. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__json_scan_flat_slice(exl2__json_scan *s, uint32_t at, uint32_t limit)
{
    exl2__json_flat *f = s->skipped;
    uint32_t depth = s->skipped_depth, members = f->members, longest = f->longest;
    while (at < limit) {
        uint8_t c = s->text[at];
        if (c == ' ' || c == '\n') {
            at = exl2__json_scan_blank(s->text, at, s->bytes);
            continue;
        }
        if (c == '"') {
            uint32_t end = exl2__json_scan_skip(s->text, at, s->bytes);
            longest = longest > end - at ? longest : end - at;
            at = end;
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        members += depth == 1 && (c == ',' || at == f->begin + 1);
        if ((c == '}' || c == ']') && --depth == 0) {
            s->skipped = NULL;
            f->end = exl2__json_scan_token(s, exl2__json_scan_container(s, f->begin), false, f->begin, at);
            break;
        }
    }
    s->skipped_depth = depth;
    f->members = members;
    f->longest = longest;
    return at < s->bytes || !s->skipped
         ? at : exl2__json_scan_fail(s, f->begin, "a closing bracket for the container that begins here");
}

/* The entry of `flat` for the container at `at`, whose key is text[begin .. end); NULL if the container is parsed. */
EXL2__NOINLINE
EXL2__PRIVATE exl2__json_flat *exl2__json_scan_flat_of(exl2__json_scan *s, uint32_t begin, uint32_t end, uint32_t at)
{
    for (int i = 0; i < EXL2__JSON_FLAT_MAX; i++) {
        if (end - begin == strlen(s->flat_keys[i]) && memcmp(s->text + begin, s->flat_keys[i], end - begin) == 0 &&
            (exl2__json_scan_peek(s, at) == '{' || exl2__json_scan_peek(s, at) == '[')) {
            return &s->flat[i];
        }
    }
    return NULL;
}

/* Reads a scalar, or the opening bracket of a container. */
static inline uint32_t exl2__json_scan_value(exl2__json_scan *s, uint32_t at)
{
    switch (exl2__json_scan_peek(s, at)) {
    case '{':
    case '[':
        return exl2__json_scan_open(s, at);
    case '"':
        return exl2__json_scan_string(s, at);
    case 't':
        return exl2__json_scan_word(s, at, "true", EXL2__JSON_TRUE);
    case 'f':
        return exl2__json_scan_word(s, at, "false", EXL2__JSON_FALSE);
    case 'n':
        return exl2__json_scan_word(s, at, "null", EXL2__JSON_NULL);
    case 'N': case 'I':
        return s->nonfinite ? exl2__json_scan_word(s, at, s->text[at] == 'N' ? "NaN" : "Infinity", EXL2__JSON_NONFINITE)
                            : exl2__json_scan_fail(s, at, "a value");
    case '-':
        if (s->nonfinite && exl2__json_scan_peek(s, at + 1) == 'I') {
            return exl2__json_scan_word(s, at, "-Infinity", EXL2__JSON_NONFINITE);
        }
        return exl2__json_scan_number(s, at);
    case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        return exl2__json_scan_number(s, at);
    default:
        return exl2__json_scan_fail(s, at, "a value");
    }
}

/* Reads the next element, or key and value, of the innermost open container, or the end of that container. */
EXL2__HOT
EXL2__PRIVATE uint32_t exl2__json_scan_child(exl2__json_scan *s, uint32_t at, bool first)
{
    bool is_object = s->is_object[s->depth - 1];
    at = exl2__json_scan_space(s, at);
    if (exl2__json_scan_peek(s, at) == (is_object ? '}' : ']')) {
        at++;
        s->depth--;
        if (s->tokens) {
            s->tokens[s->open[s->depth]].end = at;
            s->tokens[s->open[s->depth]].after = s->token_count;
        }
        return at;
    }
    if (!first) {
        if (exl2__json_scan_peek(s, at) != ',') {
            return exl2__json_scan_fail(s, at, is_object ? "',' or '}'" : "',' or ']'");
        }
        at = exl2__json_scan_space(s, at + 1);
    }
    if (s->tokens) {
        s->tokens[s->open[s->depth - 1]].count++;
    }
    if (is_object) {
        if (exl2__json_scan_peek(s, at) != '"') {
            return exl2__json_scan_fail(s, at, first ? "a key in quotes or '}'" : "a key in quotes");
        }
        uint32_t key = at + 1, key_end = exl2__json_scan_string(s, at);
        if (key_end == EXL2__JSON_BAD) {
            return key_end;
        }
        at = exl2__json_scan_space(s, key_end);
        if (exl2__json_scan_peek(s, at) != ':') {
            return exl2__json_scan_fail(s, at, "':' after a key");
        }
        at = exl2__json_scan_space(s, at + 1);
        exl2__json_flat *flat = s->flat_keys && s->depth == 2 ? exl2__json_scan_flat_of(s, key, key_end - 1, at) : NULL;
        if (flat) {
            return exl2__json_scan_flat(s, at, flat);
        }
    }
    return exl2__json_scan_value(s, at);
}

/* Reads on until the slice is used up. PENDING: call it again. OK: the whole text is valid. ERR_FORMAT: `wanted` and
   `at` describe the error. */
EXL2__PRIVATE exl2_result exl2__json_scan_slice(exl2__json_scan *s, exl2__work *work)
{
    uint32_t at = s->at;
    if (s->token_count == 0 && exl2__work_spend(work, 1)) {
        uint32_t begin = (uint32_t)exl2__utf8_mark((const char *)s->text, s->bytes);
        at = exl2__json_scan_value(s, exl2__json_scan_space(s, begin));
    }
    while ((s->depth > 0 || s->token_count == 0) && at != EXL2__JSON_BAD) {
        uint32_t begin = at;
        if (work->left <= 0) {
            s->at = at;
            return EXL2_PENDING;
        }
        if (s->skipped) {
            uint64_t bytes = exl2__min64(s->bytes - at, (uint64_t)work->left);
            at = exl2__json_scan_flat_slice(s, at, at + (uint32_t)bytes);
        } else {
            bool first = s->depth > s->depth_read;
            s->depth_read = s->depth;
            at = exl2__json_scan_child(s, at, first);
        }
        exl2__work_spend(work, at - begin + 16); /* about a nanosecond per byte */
    }
    if (at == EXL2__JSON_BAD) {
        return EXL2_ERR_FORMAT;
    }
    at = exl2__json_scan_space(s, at);
    bool ends = at == s->bytes || exl2__json_scan_fail(s, at, "nothing after the value") != EXL2__JSON_BAD;
    return ends ? EXL2_OK : EXL2_ERR_FORMAT;
}

/* After a scan that has counted the tokens: begins the one that fills them in. */
static inline void exl2__json_scan_fill(exl2__json_scan *s, exl2__json_token *tokens)
{
    s->tokens = tokens;
    s->token_count = s->at = s->depth_read = 0;
}

/* Reads the whole text at once. false: `wanted` and `at` describe the error. */
static inline bool exl2__json_scan_all(exl2__json_scan *s)
{
    exl2__work all = exl2__work_all();
    return exl2__json_scan_slice(s, &all) == EXL2_OK;
}

#endif
