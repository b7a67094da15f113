/* gap.c: see gap.h.
   takes: the tokens of both conversations.
   gives: what gap.h declares. */
#include "gap.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* lengths[k], k > 0: how many tokens from s[k] on equal those at the beginning of s (the Z algorithm). */
static void match_beginning(const exl2_token *s, size_t count, size_t *lengths)
{
    size_t left = 0, right = 0; /* of all matches so far [left, right) ends last: it equals s[0, right - left) */
    for (size_t k = 1; k < count; k++) {
        size_t known = k < right ? lengths[k - left] : 0, run = known < right - k || k >= right ? known : right - k;
        while (k + run < count && s[run] == s[k + run]) {
            run++;
        }
        lengths[k] = run;
        if (k + run > right) {
            left = k;
            right = k + run;
        }
    }
}

uint32_t gap_find(const exl2_token *old, size_t old_count, const exl2_token *now, size_t now_count, uint32_t *from)
{
    size_t same = 0, longest = 0;
    while (same < old_count && same < now_count && old[same] == now[same]) {
        same++;
    }
    size_t wanted = now_count - same, rest = old_count - same;
    size_t gap = rest; /* as long as nothing that follows a gap is the same */
    exl2_token *s = memory_take(wanted + rest + 1, sizeof *s); /* what is wanted after the gap, then where to find it */
    size_t *lengths = memory_take(wanted + rest + 1, sizeof *lengths);
    memcpy(s, now + same, wanted * sizeof *s);
    memcpy(s + wanted, old + same, rest * sizeof *s);
    match_beginning(s, wanted + rest, lengths);
    for (size_t i = 0; i < rest; i++) {
        size_t run = wanted ? lengths[wanted + i] : 0;
        run = run < wanted ? run : wanted;
        if (run > longest) {
            longest = run;
            gap = i;
        }
    }
    free(s);
    free(lengths);
    *from = (uint32_t)same;
    return (uint32_t)gap;
}
