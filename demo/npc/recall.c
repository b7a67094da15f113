/* recall.c: see recall.h.
   takes: words of ASCII letters; everything else parts words.
   gives: what recall.h declares.
   owns:  nothing.
   next:  tavern.c */
#include "recall.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define WORD_BYTES 24
#define WEIGHT_MIN 4 /* one word that means something */

/* Takes the next word, in small letters, cut to fit. false: there is none. */
static bool take_word(const char **at, char word[WORD_BYTES])
{
    size_t bytes = 0;
    while (**at && !isalpha((unsigned char)**at)) {
        (*at)++;
    }
    for (; isalpha((unsigned char)**at); (*at)++) {
        if (bytes + 1 < WORD_BYTES) {
            word[bytes++] = (char)tolower((unsigned char)**at);
        }
    }
    word[bytes] = 0;
    return bytes > 0;
}

static bool is_filler(const char *word)
{
    static const char words[] =
        " a about all an and any are at be but by can come could did do does for from have he her here "
        "him his how i in is it know listen me my not now of on one or out she so tell that the there "
        "they thing think this to was we well were what when where which who why will with would you "
        "your ";
    char spaced[WORD_BYTES + 2] = " ";
    strcat(spaced, word);
    strcat(spaced, " ");
    return strstr(words, spaced) != NULL;
}

/* "friend" and "friends", "sleep" and "asleep" are alike. */
static bool alike(const char *a, const char *b)
{
    return strcmp(a, b) == 0 || (strlen(a) >= 4 && strstr(b, a)) || (strlen(b) >= 4 && strstr(a, b));
}

static bool contains(const char *text, const char *word)
{
    char other[WORD_BYTES];
    bool found = false;
    while (!found && take_word(&text, other)) {
        found = alike(word, other);
    }
    return found;
}

/* Fillers alone weigh nothing, unless the whole known question was asked: "Who are you?" */
static int weight_of(const char *question, const char *known)
{
    char word[WORD_BYTES];
    int weight = 0;
    bool whole = true;
    while (take_word(&known, word)) {
        bool asked = contains(question, word);
        weight += !asked ? 0 : is_filler(word) ? 1 : WEIGHT_MIN;
        whole = whole && asked;
    }
    return whole ? weight + WEIGHT_MIN : weight;
}

const example *recall(const character *who, const char *question)
{
    const example *best = NULL;
    int most = WEIGHT_MIN - 1;
    for (uint32_t i = 0; i < who->example_count; i++) {
        int weight = weight_of(question, who->examples[i].question);
        if (weight > most) {
            most = weight;
            best = &who->examples[i];
        }
    }
    return best;
}
