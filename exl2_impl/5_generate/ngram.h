/* ngram.h: guesses how a text goes on, by what followed its last tokens before.
   takes: a text as token ids.
   gives: exl2__ngram_follow. */
#ifndef EXL2__NGRAM_H
#define EXL2__NGRAM_H

#include "../2_graph/phases.h"

#define EXL2__NGRAM_MAX 4u /* tokens that must have occurred before, at most */
#define EXL2__NGRAM_MIN 2u

/* Finds the longest of the last MAX to MIN tokens of a history that occurs in `text`, newest first, and writes the
   tokens that followed it to out[most]. last[count]: the history's last tokens, at most MAX. With `own`, `text` is that
   history, and a repetition that reaches its end goes on with itself. Returns the number of tokens. */
EXL2__PRIVATE uint32_t exl2__ngram_follow(const exl2_token *text, uint32_t text_count, const exl2_token *last,
                                          uint32_t count, bool own, exl2_token *out, uint32_t most)
{
    uint32_t longest = EXL2__NGRAM_MIN - 1, begin = 0;
    for (uint32_t end = text_count; end-- > 1 && longest < count;) { /* the match ends before text[end] */
        uint32_t same = 0;
        while (same < count && same < end && text[end - 1 - same] == last[count - 1 - same]) {
            same++;
        }
        if (same > longest) {
            longest = same;
            begin = end;
        }
    }
    most = begin == 0 ? 0 : own ? most : exl2__min32(most, text_count - begin);
    for (uint32_t i = 0; i < most; i++) {
        out[i] = begin + i < text_count ? text[begin + i] : out[begin + i - text_count];
    }
    return most;
}

#endif
