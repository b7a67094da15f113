/* sentences.h: cuts a text that is still being written into sentences, for speech, subtitles and lips.
   takes: UTF-8, untrusted, which may end anywhere.
   gives: exl2__sentences, exl2__sentences_first.

   A sentence ends at a line break, or at signs such as . ! ? and the closing quotes and brackets after them, if what
   follows does not continue it. It has the spaces after it. So the sign alone decides nothing: the next character that
   is no space is waited for, and after a number the next word ("am 3. Mai"). What was decided once is never decided in
   another way when more text comes. */
#ifndef EXL2__SENTENCES_H
#define EXL2__SENTENCES_H

#include "unicode.h"

#define EXL2__SENTENCES_MORE 0x110002u /* the text may go on here */
#define EXL2__SENTENCES_END 0x110003u  /* the text ends here */
#define EXL2__SENTENCES_WORD 24u       /* longest word of the lists, in bytes, with its NUL */

/* A text that begins with a sentence. */
typedef struct exl2__sentences {
    const char *text;
    size_t bytes;
    bool whole;   /* nothing follows these bytes */
    size_t begin; /* where the first character is that is no space */
} exl2__sentences;

/* The code point at text[at] and its length: EXL2__SENTENCES_MORE or _END has the length 0. */
static inline uint32_t exl2__sentences_at(const exl2__sentences *s, size_t at, uint32_t *length)
{
    uint32_t code = s->whole ? EXL2__SENTENCES_END : EXL2__SENTENCES_MORE;
    *length = at < s->bytes ? exl2__unicode_next(s->text + at, s->bytes - at, &code) : 0;
    if (code == EXL2__UNICODE_CUT) {
        code = s->whole ? EXL2__UNICODE_BAD : EXL2__SENTENCES_MORE;
        *length = s->whole ? *length : 0;
    }
    return code;
}

/* ---- characters ---- */

static inline bool exl2__sentences_is_in(const uint16_t *list, size_t count, uint32_t code)
{
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        found = found || list[i] == code;
    }
    return found;
}

static inline bool exl2__sentences_breaks(uint32_t code)
{
    return code == '\n' || code == '\r' || code == 0x85 || code == 0x2028 || code == 0x2029;
}

/* Signs after which the next sentence needs no space: those of Chinese and Japanese. */
static inline bool exl2__sentences_is_wide(uint32_t code)
{
    static const uint16_t list[] = { 0x3002, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61 };
    return exl2__sentences_is_in(list, EXL2__COUNT(list), code);
}

/* Signs that end sentences: of Latin, Greek and Cyrillic, Armenian, Arabic and Urdu, Devanagari, Burmese, Ethiopic,
   Khmer, and double ones. */
static inline bool exl2__sentences_ends(uint32_t code)
{
    static const uint16_t list[] = { '.', '!', '?', 0x37E, 0x589, 0x61F, 0x6D4, 0x964, 0x965, 0x104A, 0x104B, 0x1362,
                                     0x1367, 0x1368, 0x17D4, 0x17D5, 0x2026, 0x203C, 0x203D, 0x2047, 0x2048, 0x2049 };
    return exl2__sentences_is_wide(code) || exl2__sentences_is_in(list, EXL2__COUNT(list), code);
}

/* Quotes, brackets and marks of emphasis that belong to the sentence before them. */
static inline bool exl2__sentences_closes(uint32_t code)
{
    static const uint16_t list[] = { '"', '\'', ')', ']', '}', '*', '_', 0xBB, 0xAB, 0x2019, 0x201D, 0x201C, 0x203A,
                                     0x3009, 0x300B, 0x300D, 0x300F, 0x3011, 0x3015, 0xFF09, 0xFF3D, 0xFF63 };
    return exl2__sentences_is_in(list, EXL2__COUNT(list), code);
}

/* ---- words before a full stop ---- */

/* Whether the word is in a list of words, each of which is followed by a space. */
static inline bool exl2__sentences_listed(const char *list, const char *word, size_t bytes)
{
    for (const char *at = list; bytes > 0 && *at; at = strchr(at, ' ') + 1) {
        if (strncmp(at, word, bytes) == 0 && at[bytes] == ' ') {
            return true;
        }
    }
    return false;
}

/* Abbreviations that never end a sentence: a name or another word follows. */
static const char exl2__sentences_titles[] =
    "Mr Mrs Ms Mx Dr Prof St Ste Mt Messrs Capt Cpt Cmdr Lt Col Gen Sgt Cpl Adm Maj Rev Fr Hon Pres Gov Sen Rep Sr Sra "
    "Srta Dra Don Hr Frl Sig Dott Ing Mag Mme Mlle vs ca bzw ggf evtl inkl exkl vgl sog bspw geb gest gegr approx cf "
    "viz al resp incl excl mr mrs dr prof st dhr mevr drs ir zgn \xD1\x83\xD0\xBB \xD0\xA3\xD0\xBB \xD0\xB3 "
    "\xD0\xB8\xD0\xBC "
    "\xD0\xBF\xD1\x80\xD0\xBE\xD1\x84 \xD0\xB3\xD1\x80 ";

/* Abbreviations that a number follows: "No. 5", but "No. Never." */
static const char exl2__sentences_counters[] =
    "No Nos Nr Fig Figs Abb Tab Vol vol Bd Art art Kap Ch ch Sec sec Abs p pp S n no nr N fig t Op op Ps ";

/* What may follow a number with a full stop, which then is an ordinal, as in German. */
static const char exl2__sentences_ordinals[] =
    "Januar J\xC3\xA4nner Februar M\xC3\xA4rz April Mai Juni Juli August September Oktober November Dezember "
    "Jahrhundert Jahrhunderts Geburtstag Stock Klasse Mal Tag Kapitel Platz Weltkrieg Jh ";

static inline bool exl2__sentences_is_letter(uint32_t code)
{
    return code < EXL2__UNICODE_BAD && (exl2__unicode_class(code) & EXL2__UNICODE_LETTER);
}

/* The word before text[at]: letters, digits and full stops. */
static inline const char *exl2__sentences_word(const exl2__sentences *s, size_t at, size_t *bytes)
{
    size_t from = at;
    while (from > s->begin) {
        size_t before = exl2__unicode_before(s->text, from);
        uint32_t code;
        exl2__unicode_next(s->text + before, s->bytes - before, &code);
        bool in_word = code == '.' || (code < EXL2__UNICODE_BAD && (exl2__unicode_class(code) & EXL2__UNICODE_WORD));
        if (!in_word || before < s->begin) {
            break;
        }
        from = before;
    }
    *bytes = at - from;
    return s->text + from;
}

/* Whether the word is an initial ("J.") or has full stops between its letters ("e.g.", "U.S."). "I" is a word, and
   "a.m." and "p.m." may end a sentence. */
static inline bool exl2__sentences_is_initials(const char *word, size_t bytes)
{
    bool letter = false, initials = bytes > 0 && !(bytes == 1 && *word == 'I') && !(bytes == 3 && word[2] == 'm');
    for (size_t at = 0; at < bytes && initials;) {
        uint32_t code;
        at += exl2__unicode_next(word + at, bytes - at, &code);
        initials = code == '.' ? letter : !letter && exl2__sentences_is_letter(code);
        letter = code != '.';
    }
    return initials && letter;
}

/* A character that is no digit follows the word. */
static inline bool exl2__sentences_is_number(const char *word, size_t bytes)
{
    return bytes > 0 && strspn(word, "0123456789") >= bytes;
}

typedef enum exl2__sentences_answer {
    EXL2__SENTENCES_NO,
    EXL2__SENTENCES_YES,
    EXL2__SENTENCES_LATER /* more text decides */
} exl2__sentences_answer;

/* Whether the next word, at text[at], makes an ordinal of the number before it. */
EXL2__PRIVATE exl2__sentences_answer exl2__sentences_ordinal(const exl2__sentences *s, size_t at)
{
    uint32_t length, code;
    size_t end = at;
    while (exl2__sentences_is_letter(code = exl2__sentences_at(s, end, &length)) && end - at < EXL2__SENTENCES_WORD) {
        end += length;
    }
    if (code == EXL2__SENTENCES_MORE && end - at < EXL2__SENTENCES_WORD) {
        return EXL2__SENTENCES_LATER;
    }
    return exl2__sentences_listed(exl2__sentences_ordinals, s->text + at, end - at) ? EXL2__SENTENCES_YES
                                                                                    : EXL2__SENTENCES_NO;
}

/* Whether a single full stop at text[at] belongs to an abbreviation or a number. The next character is `code`, at
   text[next]. */
EXL2__PRIVATE exl2__sentences_answer exl2__sentences_shortens(const exl2__sentences *s, size_t at, uint32_t code,
                                                              size_t next)
{
    size_t bytes;
    const char *word = exl2__sentences_word(s, at, &bytes);
    if (exl2__sentences_is_number(word, bytes)) {
        bool first = word == s->text + s->begin; /* "1. Open the door" */
        return first ? EXL2__SENTENCES_YES : bytes > 2 ? EXL2__SENTENCES_NO : exl2__sentences_ordinal(s, next);
    }
    bool digit = code < EXL2__UNICODE_BAD && (exl2__unicode_class(code) & EXL2__UNICODE_DIGIT);
    bool yes = exl2__sentences_is_initials(word, bytes)
            || exl2__sentences_listed(exl2__sentences_titles, word, bytes)
            || (digit && exl2__sentences_listed(exl2__sentences_counters, word, bytes));
    return yes ? EXL2__SENTENCES_YES : EXL2__SENTENCES_NO;
}

/* ---- the end of a sentence ---- */

/* Moves *at past spaces. true: there is a line break among them. */
EXL2__PRIVATE bool exl2__sentences_skip(const exl2__sentences *s, size_t *at)
{
    uint32_t length, code;
    bool breaks = false;
    while ((code = exl2__sentences_at(s, *at, &length)) < EXL2__UNICODE_BAD
           && (exl2__unicode_class(code) & EXL2__UNICODE_SPACE)) {
        breaks = breaks || exl2__sentences_breaks(code);
        *at += length;
    }
    return breaks;
}

/* The length of a quote at text[at] that closes after a space, as in French; 0: none. The same sign opens in German,
   and then a letter follows. */
static inline size_t exl2__sentences_quote(const exl2__sentences *s, size_t at)
{
    uint32_t length, more, code = exl2__sentences_at(s, at, &length);
    if (code != 0xBB && code != 0x203A) {
        return 0;
    }
    code = exl2__sentences_at(s, at + length, &more);
    return exl2__sentences_is_letter(code) ? 0 : length;
}

/* Whether the sentence ends with the signs that begin at text[*at]. *at: set to their end; YES: to the end of the
   spaces after them. */
EXL2__PRIVATE exl2__sentences_answer exl2__sentences_end(const exl2__sentences *s, size_t *at)
{
    uint32_t length, code = 0, first = 0;
    size_t begin = *at, signs = 0;
    bool wide = false;
    while (exl2__sentences_ends(code = exl2__sentences_at(s, *at, &length))) {
        first = signs++ ? first : code;
        wide = wide || exl2__sentences_is_wide(code);
        *at += length;
    }
    while (exl2__sentences_closes(code = exl2__sentences_at(s, *at, &length))) {
        *at += length;
    }
    if (code == EXL2__SENTENCES_MORE) {
        return EXL2__SENTENCES_LATER;
    }
    bool space = code < EXL2__UNICODE_BAD && (exl2__unicode_class(code) & EXL2__UNICODE_SPACE);
    bool dense = first != '.' && code >= 0x2E80 && exl2__sentences_is_letter(code); /* Chinese with "!" of ASCII */
    if (!space && !wide && !dense && code != EXL2__SENTENCES_END) {
        return EXL2__SENTENCES_NO; /* 3.5, example.com */
    }
    size_t next = *at;
    bool breaks = exl2__sentences_skip(s, &next);
    next += exl2__sentences_quote(s, next);
    breaks = exl2__sentences_skip(s, &next) || breaks;
    code = exl2__sentences_at(s, next, &length);
    if (code == EXL2__SENTENCES_MORE) {
        return EXL2__SENTENCES_LATER;
    }
    bool lower = code < EXL2__UNICODE_BAD && exl2__unicode_class(code) == EXL2__UNICODE_LOWER;
    bool dash = code == 0x2013 || code == 0x2014;
    bool goes_on = !breaks && !wide && (lower || dash || code == ','); /* "What?" he said. */
    exl2__sentences_answer shortens = EXL2__SENTENCES_NO;
    if (!goes_on && !breaks && first == '.' && signs == 1 && code != EXL2__SENTENCES_END) {
        shortens = exl2__sentences_shortens(s, begin, code, next);
    }
    if (goes_on || shortens != EXL2__SENTENCES_NO) {
        return shortens == EXL2__SENTENCES_LATER ? EXL2__SENTENCES_LATER : EXL2__SENTENCES_NO;
    }
    *at = next;
    return EXL2__SENTENCES_YES;
}

/* Bytes of the first sentence, with the spaces before and after it; 0: it may go on. If the text is whole, its rest is
   a sentence. */
EXL2__PRIVATE size_t exl2__sentences_first(const char *text, size_t bytes, bool whole)
{
    exl2__sentences s = { text, bytes, whole, 0 };
    uint32_t length, code;
    exl2__sentences_skip(&s, &s.begin);
    for (size_t at = s.begin; (code = exl2__sentences_at(&s, at, &length)) < EXL2__SENTENCES_MORE;) {
        exl2__sentences_answer ends = EXL2__SENTENCES_NO;
        if (exl2__sentences_ends(code)) {
            ends = exl2__sentences_end(&s, &at);
        } else if (exl2__sentences_breaks(code)) {
            exl2__sentences_skip(&s, &at);
            ends = exl2__sentences_at(&s, at, &length) == EXL2__SENTENCES_MORE ? EXL2__SENTENCES_LATER
                                                                               : EXL2__SENTENCES_YES;
        } else {
            at += length;
        }
        if (ends != EXL2__SENTENCES_NO) {
            return ends == EXL2__SENTENCES_YES ? at : 0;
        }
    }
    return whole ? bytes : 0;
}

#endif
