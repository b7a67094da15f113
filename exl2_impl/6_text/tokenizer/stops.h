/* stops.h: finds stop strings in text that arrives in pieces, and says how much of it can be released.
   takes: stop strings, the text that has not been released yet.
   gives: exl2__stops, exl2__stops_bytes, exl2__stops_make, exl2__stops_match.
   owns:  nothing; the strings are copied into the caller's memory. */
#ifndef EXL2__STOPS_H
#define EXL2__STOPS_H

#include "../../0_base/bytes.h"

/* Zeroed: no stop strings. */
typedef struct exl2__stops_string {
    const char *text;
    const uint32_t *borders; /* [bytes] for each prefix of text: its longest shorter prefix that also ends it (KMP) */
    uint32_t bytes;
} exl2__stops_string;

typedef struct exl2__stops {
    exl2__stops_string *strings;
    uint32_t count;
    bool fold; /* ignore the case of ASCII letters; set before exl2__stops_make */
} exl2__stops;

static inline char exl2__stops_byte(const exl2__stops *stops, char byte)
{
    return stops->fold && byte >= 'A' && byte <= 'Z' ? (char)(byte + ('a' - 'A')) : byte;
}

/* Memory for a copy of `count` strings that have `total` bytes together. */
static inline size_t exl2__stops_bytes(uint32_t count, size_t total)
{
    return count * sizeof(exl2__stops_string) + total * (sizeof(uint32_t) + 1);
}

/* Length of the longest prefix of s with which the text ends once `byte` is appended. `matched`: that length before. */
static inline uint32_t exl2__stops_advance(const exl2__stops_string *s, uint32_t matched, char byte)
{
    while (matched > 0 && s->text[matched] != byte) {
        matched = s->borders[matched - 1];
    }
    return matched + (s->text[matched] == byte);
}

/* `memory` has exl2__stops_bytes, aligned to 8. Empty strings never match. Each string is shorter than 4 GiB. */
static inline void exl2__stops_make(exl2__stops *stops, const char *const *strings, uint32_t count, void *memory)
{
    stops->strings = (exl2__stops_string *)memory;
    stops->count = count;
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        total += strlen(strings[i]);
    }
    uint32_t *borders = (uint32_t *)(void *)(stops->strings + count);
    char *text = (char *)(borders + total);
    for (uint32_t i = 0; i < count; i++) {
        exl2__stops_string *s = &stops->strings[i];
        s->bytes = (uint32_t)strlen(strings[i]);
        s->text = text;
        s->borders = borders;
        for (uint32_t at = 0; at < s->bytes; at++) {
            text[at] = exl2__stops_byte(stops, strings[i][at]);
            borders[at] = at ? exl2__stops_advance(s, borders[at - 1], text[at]) : 0;
        }
        text += s->bytes;
        borders += s->bytes;
    }
}

/* `text`: the text that has arrived and was not released, in whole code points.
   true: the text contains a stop string, strings[*which]. It begins at *stop_at, and the output ends there. If there
   are several, the one that ends first counts and, among those, the longest; so the result does not depend on the
   pieces in which the text arrived. Of equal strings the first counts.
   false: text[0 .. *releasable) can be released, since no stop string begins in it. The rest must be given again,
   together with the text that follows. */
static inline bool exl2__stops_match(const exl2__stops *stops, const char *text, size_t bytes, size_t *releasable,
                                     size_t *stop_at, uint32_t *which)
{
    size_t end = bytes, held = 0;
    bool found = false;
    *stop_at = bytes;
    *which = 0;
    for (uint32_t i = 0; i < stops->count; i++) {
        const exl2__stops_string *s = &stops->strings[i];
        uint32_t matched = 0;
        for (size_t at = 0; at < end && s->bytes; at++) {
            matched = exl2__stops_advance(s, matched, exl2__stops_byte(stops, text[at]));
            if (matched < s->bytes) {
                continue;
            }
            size_t start = at + 1 - matched;
            if (at + 1 < end || start < *stop_at) {
                *stop_at = start;
                *which = i;
            }
            end = at + 1; /* other strings count only if they end here or before */
            found = true;
            break;
        }
        held = matched > held ? matched : held;
    }
    *releasable = found ? *stop_at : bytes - held;
    return found;
}

#endif
