/* ngram.c: what followed the last tokens before: by hand, and compared with a plain search for each length.
   takes: nothing.
   gives: main. */
#include "../../exl2.h"

#include "private/bytes.h"
#include "private/ngram.h"
#include "../check.h"

/* Letters stand for tokens. */
static void check(const char *text, const char *last, bool own, uint32_t most, const char *wanted)
{
    exl2_token ids[64], ends[4], out[16];
    char found[17] = "";
    uint32_t bytes = (uint32_t)strlen(text), count = (uint32_t)strlen(last);
    for (uint32_t i = 0; i < bytes; i++) {
        ids[i] = text[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        ends[i] = last[i];
    }
    uint32_t n = exl2__ngram_follow(ids, bytes, ends, count, own, out, most);
    for (uint32_t i = 0; i < n; i++) {
        found[i] = (char)out[i];
    }
    CHECK_TEXT(found, wanted);
}

static void by_hand(void)
{
    check("abcdeab", "deab", true, 3, "cde");
    check("abXabYab", "bYab", true, 2, "Ya");        /* the newest */
    check("QabXabYcab", "Ycab", true, 2, "Yc");
    check("1cabX2abYcab", "Ycab", true, 4, "X2ab");  /* the longest, although an older one */
    check("aab", "aab", true, 4, "");                /* a single token is not enough */
    check("ab", "ab", true, 4, "");
    check("xabab", "abab", true, 7, "abababa");      /* a repetition goes on with itself */
    check("aaaa", "aaaa", true, 5, "aaaaa");
    check("", "", true, 5, "");
    check("abc", "a", false, 5, "");
    check("zabcd", "xab", false, 5, "cd");           /* another text ends */
    check("zab", "xab", false, 5, "");
    check("abcdabce", "abcd", false, 1, "a");
}

static uint32_t at_random(uint32_t below)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) % below);
}

static void at_length(void)
{
    exl2_token text[200], out[15];
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t count = 4 + at_random(190), begin = 0;
        for (uint32_t i = 0; i < count; i++) {
            text[i] = (exl2_token)at_random(2 + round % 9);
        }
        for (uint32_t length = 4; length >= 2 && !begin; length--) {
            for (uint32_t i = count - length; i-- > 0 && !begin;) {
                begin = memcmp(text + i, text + count - length, length * sizeof *text) == 0 ? i + length : 0;
            }
        }
        uint32_t n = exl2__ngram_follow(text, count, text + count - 4, 4, true, out, 15);
        CHECK_INT(n, begin ? 15 : 0);
        for (uint32_t i = 0; i < n; i++) {
            CHECK_INT(out[i], begin + i < count ? text[begin + i] : out[begin + i - count]);
        }
    }
}

int main(void)
{
    by_hand();
    at_length();
    return check_done();
}
