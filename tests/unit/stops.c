/* stops.c: stop strings: the rule in examples, then compared with a brute-force search over random texts split at
   random. */
#include "../check.h"
#include "private/stops.h"

static const char *names[8];
static uint32_t name_count, which;

/* Feeds text in pieces of the given lengths, as a job does; *shown is the text that was released or that precedes the
   stop. */
static bool feed(const char *text, size_t bytes, const size_t *pieces, char *shown)
{
    _Alignas(8) static char memory[4096];
    static char held[4096];
    exl2__stops stops = { 0 };
    size_t total = 0, held_bytes = 0, shown_bytes = 0, settled, stop_at;
    for (uint32_t i = 0; i < name_count; i++) {
        total += strlen(names[i]);
    }
    CHECK(exl2__stops_bytes(name_count, total) <= sizeof memory);
    memset(memory, 0xAA, sizeof memory);
    exl2__stops_make(&stops, names, name_count, memory);
    CHECK((uint8_t)memory[exl2__stops_bytes(name_count, total)] == 0xAA);
    for (size_t at = 0, i = 0; at < bytes; i++) {
        size_t take = pieces[i] < bytes - at ? pieces[i] : bytes - at;
        memcpy(held + held_bytes, text + at, take);
        held_bytes += take;
        at += take;
        bool found = exl2__stops_match(&stops, held, held_bytes, &settled, &stop_at, &which);
        size_t release = found ? stop_at : settled;
        memcpy(shown + shown_bytes, held, release);
        shown_bytes += release;
        shown[shown_bytes] = 0;
        if (found) {
            return true;
        }
        held_bytes -= release;
        memmove(held, held + release, held_bytes);
    }
    memcpy(shown + shown_bytes, held, held_bytes); /* at the end no stop string can become complete any more */
    shown[shown_bytes + held_bytes] = 0;
    return false;
}

/* The first end of any stop string in the text; of those that end there, the longest. *index: which it is. */
static bool search(const char *text, size_t bytes, size_t *start, uint32_t *index)
{
    for (size_t end = 1; end <= bytes; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < name_count; i++) {
            size_t length = strlen(names[i]);
            if (length <= end && length > longest && memcmp(text + end - length, names[i], length) == 0) {
                longest = length;
                *index = i;
            }
        }
        if (longest) {
            *start = end - longest;
            return true;
        }
    }
    return false;
}

static void check_examples(void)
{
    static const size_t whole[] = { 100 }, single[100] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    char shown[128];
    names[0] = "\nUser:";
    names[1] = "cd";
    names[2] = "abcdef";
    name_count = 3;
    CHECK(feed("hi\nUser: x", 10, single, shown));
    CHECK_TEXT(shown, "hi");
    CHECK(!feed("hi\nUse", 6, single, shown));
    CHECK_TEXT(shown, "hi\nUse");
    CHECK(feed("xabcdef", 7, single, shown)); /* cd is complete first, in one piece and in seven */
    CHECK_TEXT(shown, "xab");
    CHECK(feed("xabcdef", 7, whole, shown));
    CHECK_TEXT(shown, "xab");
    names[0] = "world";
    names[1] = "o world";
    name_count = 2;
    CHECK(feed("hello world", 11, whole, shown)); /* both end there: the longer one counts */
    CHECK_TEXT(shown, "hell");
    CHECK_INT(which, 1);

    exl2__stops none = { 0 };
    size_t settled = 0, stop_at;
    CHECK(!exl2__stops_match(&none, "abc", 3, &settled, &stop_at, &which));
    CHECK_INT(settled, 3);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static void check_random(void)
{
    uint32_t state = 1;
    int stopped = 0;
    for (int round = 0; round < 20000; round++) {
        char text[64], shown[128];
        static char strings[8][12];
        size_t pieces[64], bytes = 1 + next_random(&state) % 60, start;
        uint32_t index = 0;
        name_count = 1 + next_random(&state) % 4;
        for (uint32_t i = 0; i < name_count; i++) {
            size_t length = 1 + next_random(&state) % 9;
            for (size_t k = 0; k < length; k++) {
                strings[i][k] = (char)('a' + next_random(&state) % 2);
            }
            strings[i][length] = 0;
            names[i] = strings[i];
        }
        for (size_t i = 0; i < bytes; i++) {
            text[i] = (char)('a' + (next_random(&state) % 16 == 0 ? 2 : next_random(&state) % 2));
            pieces[i] = 1 + next_random(&state) % 5;
        }
        bool wanted = search(text, bytes, &start, &index);
        stopped += wanted;
        CHECK_INT(feed(text, bytes, pieces, shown), wanted);
        CHECK_INT(which, index);
        CHECK(strlen(shown) == (wanted ? start : bytes) && memcmp(shown, text, strlen(shown)) == 0);
    }
    CHECK(stopped > 1000 && stopped < 20000);
}

/* ASCII letters match in either case, other bytes exactly. */
static void check_fold(void)
{
    static const char *const strings[] = { "sToP!", "\xC3\x84x" };
    _Alignas(8) char memory[512];
    exl2__stops stops = { .fold = true };
    size_t settled, at;
    exl2__stops_make(&stops, strings, 2, memory);
    CHECK(exl2__stops_match(&stops, "ab STOp!", 8, &settled, &at, &which) && at == 3);
    CHECK(!exl2__stops_match(&stops, "ab STO", 6, &settled, &at, &which) && settled == 3);
    CHECK(!exl2__stops_match(&stops, "stop1", 5, &settled, &at, &which) && settled == 5);
    CHECK(exl2__stops_match(&stops, "\xC3\x84X", 3, &settled, &at, &which) && at == 0);
    CHECK(!exl2__stops_match(&stops, "\xC3\xA4x", 3, &settled, &at, &which));
}

int main(void)
{
    check_fold();
    check_examples();
    check_random();
    return check_done();
}
