/* words.h: cuts text into the words that byte-pair merging works on. Regular expressions of widely used tokenizer.json
   files have hand-written scanners, which find the same matches as Oniguruma; regex.h runs all others.
   takes: valid UTF-8, the rules that vocab_rules.h read.
   gives: exl2__words_rules, exl2__words, exl2__words_of, exl2__words_next.
   owns:  nothing; words point into the text. */
#ifndef EXL2__WORDS_H
#define EXL2__WORDS_H

#include "regex.h"

#define EXL2__WORDS_ASCII_SYMBOLS (1u << 16) /* a class of its own: EXL2__UNICODE_SYMBOL below U+0080 */

/* What a step looks for. */
typedef enum exl2__words_kind {
    EXL2__WORDS_GPT2,        /* GPT-2's pattern */
    EXL2__WORDS_CL100K,      /* the cl100k patterns below; `value`: most digits in a word */
    EXL2__WORDS_CASED,       /* tekken and o200k; `value`: most digits in a word, plus 16 for o200k's contractions */
    EXL2__WORDS_SPACED,      /* \s?X+, where X is the set of classes `value` */
    EXL2__WORDS_EASTERN,     /* DeepSeek's wide range of Chinese, Japanese and Korean characters, one or more */
    EXL2__WORDS_NEWLINE,     /* \r or \n */
    EXL2__WORDS_CLASS,       /* one character of the classes `value`, which may include EXL2__WORDS_ASCII_SYMBOLS */
    EXL2__WORDS_STRING,      /* text[0 .. value) */
    EXL2__WORDS_REGEX,       /* a match of `regex` */
    EXL2__WORDS_MARKS        /* text up to the next space or U+2581 that does not follow a byte in `kept` */
} exl2__words_kind;

/* What becomes of the matches, as the tokenizers library calls it. A gap is the text between two matches. */
typedef enum exl2__words_behavior {
    EXL2__WORDS_ISOLATED,
    EXL2__WORDS_REMOVED,
    EXL2__WORDS_MERGED_WITH_PREVIOUS,
    EXL2__WORDS_MERGED_WITH_NEXT,
    EXL2__WORDS_CONTIGUOUS
} exl2__words_behavior;

typedef struct exl2__words_step {
    exl2__words_kind kind;
    exl2__words_behavior behavior;
    bool invert;           /* matches and gaps change their roles */
    uint32_t value;
    const char *text;
    exl2__regex *regex;
    const uint32_t *kept;  /* MARKS: bit per byte; NULL: no bytes */
} exl2__words_step;

/* When to add a space before a piece; a piece that begins with a space gets one only with PREFIX_TWICE. */
typedef enum exl2__words_prefix {
    EXL2__WORDS_NO_PREFIX,
    EXL2__WORDS_PREFIX,        /* always (ByteLevel) */
    EXL2__WORDS_PREFIX_TWICE,  /* always, even before a space (Prepend) */
    EXL2__WORDS_PREFIX_MARK,   /* always (Metaspace): U+2581 counts as a space */
    EXL2__WORDS_PREFIX_FIRST   /* before the first piece of the whole text only (Metaspace) */
} exl2__words_prefix;

#define EXL2__WORDS_STEPS_MAX 12

/* The pre-tokenizer. Each step cuts the pieces of the step before it; the pieces of the last step are words. */
typedef struct exl2__words_rules {
    exl2__words_step steps[EXL2__WORDS_STEPS_MAX];
    uint32_t count;
    exl2__words_prefix prefix;
    uint32_t prefix_step;      /* the prefix is added to the pieces that this step is about to cut; may be `count` */
} exl2__words_rules;

#define EXL2__WORDS_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define EXL2__WORDS_TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define EXL2__WORDS_CL100K_HEAD EXL2__WORDS_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define EXL2__WORDS_CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" EXL2__WORDS_TAIL
#define EXL2__WORDS_CASED_HEAD "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define EXL2__WORDS_CASED_WORDS(suffix) EXL2__WORDS_CASED_HEAD "*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" suffix "|" \
    EXL2__WORDS_CASED_HEAD "+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" suffix "|"
#define EXL2__WORDS_CASED_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" EXL2__WORDS_TAIL

/* The regular expressions that have a hand-written scanner. */
static const struct exl2__words_pattern {
    const char *text;
    exl2__words_kind kind;
    uint32_t value;
} exl2__words_patterns[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", EXL2__WORDS_GPT2, 0 },
    { EXL2__WORDS_CL100K_HEAD "\\p{N}{1,3}" EXL2__WORDS_CL100K_TAIL, EXL2__WORDS_CL100K, 3 }, /* Llama 3 */
    { EXL2__WORDS_CL100K_HEAD "\\p{N}" EXL2__WORDS_CL100K_TAIL, EXL2__WORDS_CL100K, 1 },      /* Qwen 2, 3 */
    { EXL2__WORDS_CASED_WORDS("") "\\p{N}" EXL2__WORDS_CASED_TAIL, EXL2__WORDS_CASED, 1 },    /* tekken */
    { EXL2__WORDS_CASED_WORDS(EXL2__WORDS_CONTRACTIONS "?") "\\p{N}{1,3}" EXL2__WORDS_CASED_TAIL, EXL2__WORDS_CASED,
      16 + 3 },                                                                               /* o200k */
    { "\\s?\\p{L}+", EXL2__WORDS_SPACED, EXL2__UNICODE_LETTER },                              /* DeepSeek */
    { "\\s?\\p{P}+", EXL2__WORDS_SPACED, EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR },
    { "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", EXL2__WORDS_EASTERN, 0 },
    { "[\r\n]", EXL2__WORDS_NEWLINE, 0 }
};

/* ---- scanning; p..end is valid UTF-8 ---- */

/* Class of the code point at p, p < end. */
EXL2__NOINLINE
EXL2__PRIVATE uint32_t exl2__words_class(const char *p, const char *end, uint32_t *bytes)
{
    uint32_t code;
    *bytes = exl2__unicode_next(p, (size_t)(end - p), &code);
    return exl2__unicode_class(code);
}

/* End of the longest run of code points whose class is in `mask`. */
EXL2__NOINLINE
EXL2__PRIVATE const char *exl2__words_run(const char *p, const char *end, uint32_t mask)
{
    uint32_t bytes;
    while (p < end && (exl2__words_class(p, end, &bytes) & mask)) {
        p += bytes;
    }
    return p;
}

/* End of a match of \s+(?!\S)|\s+ at white space: at the end of the text it is all of the white space; elsewhere it is
   all but the last character, which may begin the next word. A single character is a match. `lead`: an added space
   comes before p. */
static inline const char *exl2__words_space_end(const char *p, const char *end, bool lead)
{
    const char *e = exl2__words_run(p, end, EXL2__UNICODE_SPACE);
    if (e == end) {
        return e;
    }
    const char *last = p + exl2__unicode_before(p, (size_t)(e - p));
    return last == p && !lead ? e : last;
}

/* Length of 's 't 're 've 'm 'll 'd at p, or 0. any_case: accepts capitals, too, and U+017F, which folds to s. */
static inline uint32_t exl2__words_contraction(const char *p, const char *end, bool any_case)
{
    if (end - p < 2 || p[0] != '\'') {
        return 0;
    }
    char fold = any_case ? 32 : 0;
    char a = (char)(p[1] | fold), b = end - p > 2 ? (char)(p[2] | fold) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return 3;
    }
    return any_case && end - p > 2 && memcmp(p + 1, "\xC5\xBF", 2) == 0 ? 3 : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
EXL2__NOINLINE
EXL2__PRIVATE const char *exl2__words_gpt2(const char *p, const char *end, bool lead)
{
    uint32_t contraction = lead ? 0 : exl2__words_contraction(p, end, false);
    if (contraction) {
        return p + contraction;
    }
    const char *q = !lead && *p == ' ' ? p + 1 : p;
    if (q < end) {
        uint32_t bytes, kind = exl2__words_class(q, end, &bytes);
        if (kind != EXL2__UNICODE_SPACE) {
            uint32_t mask = kind & EXL2__UNICODE_NUMBERS ? EXL2__UNICODE_NUMBERS
                          : kind & EXL2__UNICODE_SIGNS ? EXL2__UNICODE_SIGNS : EXL2__UNICODE_LETTER;
            return exl2__words_run(q + bytes, end, mask);
        }
    }
    return exl2__words_space_end(p, end, lead);
}

/* \p{N}{1,digits_max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ where no letter is; slash: [\r\n/]* */
EXL2__PRIVATE const char *exl2__words_rest(const char *p, const char *end, uint32_t digits_max, bool slash)
{
    uint32_t bytes;
    if (exl2__words_class(p, end, &bytes) & EXL2__UNICODE_NUMBERS) {
        for (uint32_t n = 0; n < digits_max && p < end; n++) {
            if (!(exl2__words_class(p, end, &bytes) & EXL2__UNICODE_NUMBERS)) {
                break;
            }
            p += bytes;
        }
        return p;
    }
    const char *q = *p == ' ' ? p + 1 : p;
    const char *signs = exl2__words_run(q, end, EXL2__UNICODE_SIGNS);
    if (signs > q) {
        while (signs < end && (*signs == '\r' || *signs == '\n' || (slash && *signs == '/'))) {
            signs++;
        }
        return signs;
    }
    /* \s*[\r\n]+ ends after the last newline of the white space */
    const char *spaces = exl2__words_run(p, end, EXL2__UNICODE_SPACE);
    for (const char *s = spaces; s > p; s--) {
        if (s[-1] == '\r' || s[-1] == '\n') {
            return s;
        }
    }
    return exl2__words_space_end(p, end, false);
}

static inline const char *exl2__words_cl100k(const char *p, const char *end, uint32_t digits_max)
{
    uint32_t contraction = exl2__words_contraction(p, end, true);
    if (contraction) {
        return p + contraction;
    }
    uint32_t bytes, next_bytes, kind = exl2__words_class(p, end, &bytes);
    if (kind & EXL2__UNICODE_LETTER) {
        return exl2__words_run(p, end, EXL2__UNICODE_LETTER);
    }
    if (!(kind & EXL2__UNICODE_NUMBERS) && *p != '\r' && *p != '\n' && p + bytes < end &&
        (exl2__words_class(p + bytes, end, &next_bytes) & EXL2__UNICODE_LETTER)) {
        return exl2__words_run(p + bytes, end, EXL2__UNICODE_LETTER);
    }
    return exl2__words_rest(p, end, digits_max, false);
}

/* End of a match of [Lu Lt Lm Lo M]*[Ll Lm Lo M]+ at q or, if `upper`, of [Lu Lt Lm Lo M]+[Ll Lm Lo M]*; q: no
   match. */
EXL2__PRIVATE const char *exl2__words_case(const char *q, const char *end, bool upper)
{
    const uint32_t lower = EXL2__UNICODE_LOWER | EXL2__UNICODE_MODIFIER | EXL2__UNICODE_CASELESS | EXL2__UNICODE_MARK;
    uint32_t bytes;
    const char *e = exl2__words_run(q, end, (lower ^ EXL2__UNICODE_LOWER) | EXL2__UNICODE_UPPER | EXL2__UNICODE_TITLE);
    if (upper) {
        return e > q ? exl2__words_run(e, end, lower) : q;
    }
    const char *more = exl2__words_run(e, end, lower);
    while (more == e && e > q) { /* backtracks: the second part needs a character of the first */
        const char *last = q + exl2__unicode_before(q, (size_t)(e - q));
        if (exl2__words_class(last, end, &bytes) & lower) {
            return last + bytes;
        }
        more = e = last;
    }
    return more;
}

/* The patterns of tekken and, with contractions after words, of o200k. */
static inline const char *exl2__words_cased(const char *p, const char *end, uint32_t digits_max, bool contractions)
{
    uint32_t bytes, kind = exl2__words_class(p, end, &bytes);
    bool prefix = !(kind & (EXL2__UNICODE_LETTER | EXL2__UNICODE_NUMBERS)) && *p != '\r' && *p != '\n';
    for (uint32_t i = 0; i < 4; i++) { /* alternative 1 with and without prefix, then 2 */
        const char *q = i & 1 ? p : p + bytes;
        const char *e = i & 1 || prefix ? exl2__words_case(q, end, i >= 2) : q;
        if (e > q) {
            return e + (contractions ? exl2__words_contraction(e, end, true) : 0);
        }
    }
    return exl2__words_rest(p, end, digits_max, true);
}

/* \s?X+, where X is the set of classes `mask`. */
static inline const char *exl2__words_spaced(const char *p, const char *end, uint32_t mask)
{
    uint32_t bytes, kind = exl2__words_class(p, end, &bytes);
    const char *q = kind == EXL2__UNICODE_SPACE ? p + bytes : p;
    const char *e = exl2__words_run(q, end, mask);
    return e > q ? e : p;
}

/* DeepSeek's [\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+ */
static inline const char *exl2__words_eastern(const char *p, const char *end)
{
    for (uint32_t code, bytes; p < end; p += bytes) {
        bytes = exl2__unicode_next(p, (size_t)(end - p), &code);
        if (code < 0x800 || (code > 0x9FA5 && code < 0xAC00) || code > 0xD7FF) {
            break;
        }
    }
    return p;
}

/* ---- matches ---- */

/* Length of a space (1) or U+2581 (3) at p, or 0. */
static inline uint32_t exl2__words_mark(const char *p, const char *end)
{
    return *p == ' ' ? 1 : end - p >= 3 && memcmp(p, "\xE2\x96\x81", 3) == 0 ? 3 : 0;
}

/* End of the stretch that begins at p, with or without a mark (space or U+2581), and ends before the next mark that
   does not follow a byte in `kept`. */
static inline const char *exl2__words_marks(const uint32_t *kept, const char *p, const char *end)
{
    uint32_t mark = exl2__words_mark(p, end);
    uint8_t last = mark ? ' ' : (uint8_t)*p;
    for (p += mark ? mark : 1; p < end; p += mark ? mark : 1) {
        mark = (uint8_t)*p == 0xE2 || *p == ' ' ? exl2__words_mark(p, end) : 0;
        if (mark && !(kept && kept[last >> 5] >> (last & 31) & 1)) {
            break;
        }
        last = mark ? ' ' : (uint8_t)*p;
    }
    return p;
}

/* End of a match of the step at p, or p when there is none. */
EXL2__NOINLINE
EXL2__PRIVATE const char *exl2__words_match(const exl2__words_step *s, const char *p, const char *end)
{
    uint32_t bytes, kind;
    bool ascii_symbol;
    switch (s->kind) {
    case EXL2__WORDS_GPT2:
        return exl2__words_gpt2(p, end, false);
    case EXL2__WORDS_CL100K:
        return exl2__words_cl100k(p, end, s->value);
    case EXL2__WORDS_CASED:
        return exl2__words_cased(p, end, s->value & 15, s->value >= 16);
    case EXL2__WORDS_SPACED:
        return exl2__words_spaced(p, end, s->value);
    case EXL2__WORDS_EASTERN:
        return exl2__words_eastern(p, end);
    case EXL2__WORDS_NEWLINE:
        return p + (*p == '\r' || *p == '\n');
    case EXL2__WORDS_CLASS:
        kind = exl2__words_class(p, end, &bytes);
        ascii_symbol = (s->value & EXL2__WORDS_ASCII_SYMBOLS) && bytes == 1 && (kind & EXL2__UNICODE_SYMBOL);
        return (kind & s->value) || ascii_symbol ? p + bytes : p;
    case EXL2__WORDS_STRING:
        return (size_t)(end - p) >= s->value && memcmp(p, s->text, s->value) == 0 ? p + s->value : p;
    case EXL2__WORDS_REGEX:
        return exl2__regex_match(s->regex, p);
    default:
        return exl2__words_marks(s->kept, p, end);
    }
}

/* End of the match or gap that begins at p. *match: it counts as a match. */
static inline const char *exl2__words_stretch(const exl2__words_step *s, const char *p, const char *end,
                                              bool *match)
{
    const char *e = exl2__words_match(s, p, end);
    *match = (e > p) != s->invert;
    if (e > p) {
        return e;
    }
    do {
        uint32_t code;
        p += exl2__unicode_next(p, (size_t)(end - p), &code);
    } while (p < end && exl2__words_match(s, p, end) == p);
    return p;
}

/* End of the piece that begins at p. If `lead` it may be p: then the added space is a word by itself. *removed: the
   piece is dropped. Each stretch is searched for at most twice. */
static inline const char *exl2__words_piece(const exl2__words_step *s, const char *p, const char *end, bool lead,
                                            bool *removed)
{
    bool match, other;
    if (lead && s->kind == EXL2__WORDS_GPT2) {
        *removed = false;
        return exl2__words_gpt2(p, end, true);
    }
    const char *e = exl2__words_stretch(s, p, end, &match);
    *removed = match && s->behavior == EXL2__WORDS_REMOVED;
    while (s->behavior >= EXL2__WORDS_MERGED_WITH_PREVIOUS && e < end) {
        const char *more = exl2__words_stretch(s, e, end, &other);
        bool contiguous = s->behavior == EXL2__WORDS_CONTIGUOUS;
        /* MERGED_WITH_NEXT: a match joins the gap after it. MERGED_WITH_PREVIOUS: a gap joins the match after it. */
        bool first = s->behavior == EXL2__WORDS_MERGED_WITH_NEXT;
        if (contiguous ? other != match : match != first || other == first) {
            break;
        }
        e = more;
        if (!contiguous) {
            break;
        }
    }
    return e;
}

/* ---- the walk ---- */

typedef struct exl2__words {
    const exl2__words_rules *rules;
    const char *at[EXL2__WORDS_STEPS_MAX + 1], *end[EXL2__WORDS_STEPS_MAX + 1]; /* what each step still has to cut */
    uint32_t level;
    bool lead;  /* a space that is not in the text is added before the next word */
    const char *first; /* the beginning of the whole text; NULL: it lies before this part */
} exl2__words;

typedef struct exl2__word {
    const char *text;
    size_t bytes;
    bool lead;  /* a space is added before the text; bytes may then be 0 */
} exl2__word;

/* Passes a piece on to step `level`; level = rules->count: the piece is a word. */
static inline void exl2__words_push(exl2__words *w, uint32_t level, const char *p, const char *end)
{
    w->level = level;
    w->at[level] = p;
    w->end[level] = end;
    if (level < w->rules->count && w->rules->steps[level].kind == EXL2__WORDS_REGEX) {
        exl2__regex_begin(w->rules->steps[level].regex, p, (size_t)(end - p));
    }
    if (level == w->rules->prefix_step && w->rules->prefix && p < end) {
        bool space = w->rules->prefix == EXL2__WORDS_PREFIX ? *p == ' ' : exl2__words_mark(p, end) > 0;
        space = space && w->rules->prefix != EXL2__WORDS_PREFIX_TWICE;
        w->lead = !space && (w->rules->prefix != EXL2__WORDS_PREFIX_FIRST || w->first == p);
    }
}

/* Begins to cut text. `first`: the text is the beginning of the whole text. An empty text has no words. */
static inline exl2__words exl2__words_of(const exl2__words_rules *rules, const char *text, size_t bytes, bool first)
{
    exl2__words w;
    w.rules = rules;
    w.lead = false;
    w.first = first ? text : NULL;
    exl2__words_push(&w, 0, text, text + bytes);
    return w;
}

/* The next word; false after the last one. */
static inline bool exl2__words_next(exl2__words *w, exl2__word *out)
{
    for (;;) {
        uint32_t level = w->level;
        const char *p = w->at[level], *end = w->end[level];
        bool word = level == w->rules->count;
        if (p == end && !(word && w->lead)) {
            if (level == 0) {
                return false;
            }
            w->level--;
            continue;
        }
        if (word) {
            *out = (exl2__word){ p, (size_t)(end - p), w->lead };
            w->at[level] = end;
            w->lead = false;
            return true;
        }
        bool removed;
        const char *e = exl2__words_piece(&w->rules->steps[level], p, end, w->lead, &removed);
        w->at[level] = e;
        if (!removed) {
            exl2__words_push(w, level + 1, p, e);
        }
    }
}

#endif
