/* recall.c: see recall.h.
   takes: words of ASCII letters; everything else separates words.
   gives: what recall.h declares. */
#include "recall.h"

#include <ctype.h>
#include <string.h>

#define WORD_BYTES 24
#define ENDING_MAX 2 /* letters by which words that count as equal may differ */
#define WEIGHT_MIN 4 /* weight of a word that is no filler */

/* Reads the next word in lower case, truncated to WORD_BYTES. false: none is left. */
static bool next_word(const char **at, char word[WORD_BYTES])
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

/* True for "friend" and "friends", "sleep" and "asleep"; false for "night" and "midnight". */
static bool alike(const char *a, const char *b)
{
    size_t bytes = strlen(a), others = strlen(b);
    return (bytes >= 4 && bytes <= others && others <= bytes + ENDING_MAX && strstr(b, a))
        || (others >= 4 && others <= bytes && bytes <= others + ENDING_MAX && strstr(a, b)) || strcmp(a, b) == 0;
}

static bool contains(const char *text, const char *word)
{
    char other[WORD_BYTES];
    bool found = false;
    while (!found && next_word(&text, other)) {
        found = alike(word, other);
    }
    return found;
}

/* Weight of the words that both questions share. Fillers alone have none, unless every word of the known
   question was asked ("Who are you?"). */
static int weight_of(const char *question, const char *known)
{
    char word[WORD_BYTES];
    int weight = 0, fillers = 0;
    bool whole = true;
    while (next_word(&known, word)) {
        bool asked = contains(question, word), filler = is_filler(word);
        weight += asked && !filler ? WEIGHT_MIN : 0;
        fillers += asked && filler;
        whole = whole && asked;
    }
    weight += whole ? WEIGHT_MIN : 0;
    return weight ? weight + fillers : 0;
}

const example *recall(const character *who, recollection *m, const char *question)
{
    const example *best = NULL;
    int most = WEIGHT_MIN - 1;
    for (uint32_t i = 0; i < who->example_count; i++) {
        int weight = weight_of(question, who->examples[i].question);
        if (weight > most && &who->examples[i] != m->last) {
            most = weight;
            best = &who->examples[i];
        }
    }
    for (uint32_t i = 0; !best && cast_is_plot(who, question) && i < who->example_count; i++) {
        bool of_it = cast_is_plot(who, who->examples[i].question) && &who->examples[i] != m->last;
        best = of_it ? &who->examples[i] : NULL;
    }
    m->last = best;
    return best;
}

uint32_t recall_evasions(const character *who, const recollection *m, const char *out[CAST_EVASIONS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < who->evasion_count; i++) {
        bool rests = m->used[i] > 0 && m->used[i] + who->evasion_count / 2 > m->count;
        if (!rests) {
            out[count++] = who->evasions[i];
        }
    }
    return count;
}

void recall_used(const character *who, recollection *m, const char *said)
{
    for (uint32_t i = 0; said[0] && i < who->evasion_count; i++) {
        if (strncmp(who->evasions[i], said, strlen(said)) == 0) {
            m->used[i] = ++m->count;
            return;
        }
    }
}
