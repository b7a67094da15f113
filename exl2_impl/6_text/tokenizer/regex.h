/* regex.h: matches the regular expressions of tokenizer.json in linear time, with ordered alternatives as in Perl.
   takes: valid UTF-8, a program that regex_parse.h made.
   gives: exl2__regex, exl2__regex_layout, exl2__regex_finish, exl2__regex_begin, exl2__regex_match.
   owns:  nothing; program and work space lie in the caller's memory. A program works on one text at a time. */
#ifndef EXL2__REGEX_H
#define EXL2__REGEX_H

#include "../../0_base/arena.h"
#include "../unicode/unicode.h"

/* A match is a path through the program to MATCH. For each position of the text there is a set of instructions from
   which such a path exists; it follows from the set of the next position. So the text is read backwards first, and the
   sets are stored. Matching forward then never backtracks: at a SPLIT it follows the first branch that is in the set.
   Sets are stored on three levels: of all positions of a block of 2^10 bytes, of every 2^10th position of a block of
   2^20 bytes, and of every 2^20th position of a block of 2^30 bytes. A block that is needed again is recomputed from
   the set at its end, which the next level has. */
#define EXL2__REGEX_CODE_MAX 256
#define EXL2__REGEX_SETS_MAX 128
#define EXL2__REGEX_RANGES_MAX 512
#define EXL2__REGEX_SHIFT 10  /* sets in a block: 2^10 */
#define EXL2__REGEX_LEVELS 3  /* texts are below 2^30 bytes (EXL2__NORMAL_BYTES_MAX) */
#define EXL2__REGEX_SEEN 1024 /* backward steps in the cache */
#define EXL2__REGEX_WORDS_MAX (EXL2__REGEX_CODE_MAX / 64)

typedef enum exl2__regex_op {
    EXL2__REGEX_MATCH,
    EXL2__REGEX_SET,       /* one character of set `a`, then continues with the next instruction */
    EXL2__REGEX_SPLIT,     /* continues at + a or, if there is no match from there, at + b */
    EXL2__REGEX_JUMP,      /* continues at + a */
    EXL2__REGEX_LOOK,      /* lookahead: continues at + b if there is a match from + a or, if `not`, there is none */
    EXL2__REGEX_LINE,      /* at the beginning of a line, continues at + a */
    EXL2__REGEX_LINE_END   /* at the end of a line, continues at + a */
} exl2__regex_op;

typedef struct exl2__regex_code {
    uint8_t op;
    bool not;
    int16_t a, b;
} exl2__regex_code;

/* Characters below 256 are bits. Others are in the set if they are in one of the classes or ranges; `not` inverts
   that. */
typedef struct exl2__regex_set {
    uint32_t latin[8];
    uint16_t kinds, first, count; /* ranges[first .. first + count) */
    bool not;
} exl2__regex_set;

typedef struct exl2__regex {
    const exl2__regex_code *code;
    const exl2__regex_set *sets;
    const uint32_t (*ranges)[2];  /* first and last character */
    uint8_t *order;               /* [order_count] instructions that read no character, each after those it leads to */
    uint64_t *latin;              /* [256][words] SET instructions that accept the character */
    uint64_t *kept[EXL2__REGEX_LEVELS]; /* [1024][words] */
    uint64_t *seen;               /* [EXL2__REGEX_SEEN][1 + 2 words] character + 1, set after it, set before it */
    bool lines;                   /* there is a LINE: a step then depends on more text, so `seen` is not used */
    uint64_t matches[EXL2__REGEX_WORDS_MAX]; /* the MATCH instructions */
    uint32_t count, order_count, words;
    const char *text;             /* as given to exl2__regex_begin */
    size_t bytes;
    size_t block[EXL2__REGEX_LEVELS]; /* index of the block that `kept` has; SIZE_MAX: none */
} exl2__regex;

static inline bool exl2__regex_has(const uint64_t *set, uint32_t at)
{
    return set[at >> 6] >> (at & 63) & 1;
}

static inline bool exl2__regex_in_set(const exl2__regex *r, const exl2__regex_set *s, uint32_t code, uint32_t kind)
{
    if (code < 256) {
        return s->latin[code >> 5] >> (code & 31) & 1;
    }
    bool in = (s->kinds & kind) != 0;
    for (uint32_t i = s->first; i < (uint32_t)s->first + s->count && !in; i++) {
        in = code >= r->ranges[i][0] && code <= r->ranges[i][1];
    }
    return in != s->not;
}

/* *out: the SET instructions that accept the character. */
EXL2__COLD
EXL2__PRIVATE void exl2__regex_accepts(const exl2__regex *r, uint32_t code, uint64_t *out)
{
    uint32_t kind = exl2__unicode_class(code);
    memset(out, 0, r->words * sizeof *out);
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->code[i].op == EXL2__REGEX_SET && exl2__regex_in_set(r, &r->sets[r->code[i].a], code, kind)) {
            out[i >> 6] |= (uint64_t)1 << (i & 63);
        }
    }
}

/* ---- making ---- */

/* Allocates the tables of a program of r->count instructions; with a dry arena it only counts bytes. */
EXL2__COLD
EXL2__PRIVATE void exl2__regex_layout(exl2__regex *r, exl2__arena *arena)
{
    r->words = (r->count + 63) / 64;
    r->order = (uint8_t *)exl2__arena_alloc(arena, r->count);
    r->latin = (uint64_t *)exl2__arena_alloc(arena, 256 * sizeof(uint64_t) * r->words);
    r->seen = (uint64_t *)exl2__arena_alloc_zeroed(arena, EXL2__REGEX_SEEN * sizeof(uint64_t) * (1 + 2 * r->words));
    for (int level = 0; level < EXL2__REGEX_LEVELS; level++) {
        r->kept[level] = (uint64_t *)exl2__arena_alloc(arena, (sizeof(uint64_t) << EXL2__REGEX_SHIFT) * r->words);
    }
}

/* Are all instructions to which `at` leads at the same position in `done`? */
static inline bool exl2__regex_ready(const exl2__regex *r, const uint64_t *done, uint32_t at)
{
    const exl2__regex_code *code = &r->code[at];
    bool two = code->op == EXL2__REGEX_SPLIT || code->op == EXL2__REGEX_LOOK;
    return exl2__regex_has(done, (uint32_t)((int32_t)at + code->a)) &&
           (!two || exl2__regex_has(done, (uint32_t)((int32_t)at + code->b)));
}

/* Fills the tables. In no program does an instruction lead back to itself without reading a character. */
EXL2__COLD
EXL2__PRIVATE void exl2__regex_finish(exl2__regex *r)
{
    uint64_t done[EXL2__REGEX_WORDS_MAX] = { 0 };
    for (uint32_t i = 0; i < 256; i++) {
        exl2__regex_accepts(r, i, r->latin + (size_t)i * r->words);
    }
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->code[i].op <= EXL2__REGEX_SET) {
            done[i >> 6] |= (uint64_t)1 << (i & 63);
        }
        r->lines = r->lines || r->code[i].op == EXL2__REGEX_LINE;
        if (r->code[i].op == EXL2__REGEX_MATCH) {
            r->matches[i >> 6] |= (uint64_t)1 << (i & 63);
        }
    }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = r->count; i-- > 0;) {
            if (!exl2__regex_has(done, i) && exl2__regex_ready(r, done, i)) {
                done[i >> 6] |= (uint64_t)1 << (i & 63);
                r->order[r->order_count++] = (uint8_t)i;
                more = true;
            }
        }
    }
}

/* ---- backwards ---- */

/* Adds the instructions that read no character to the set of position `at`. */
static inline void exl2__regex_close(const exl2__regex *r, size_t at, uint64_t *set)
{
    for (uint32_t i = 0; i < r->order_count; i++) {
        uint32_t here = r->order[i];
        const exl2__regex_code *code = &r->code[here];
        bool in = exl2__regex_has(set, (uint32_t)((int32_t)here + code->a));
        switch (code->op) {
        case EXL2__REGEX_SPLIT:
            in = in || exl2__regex_has(set, (uint32_t)((int32_t)here + code->b));
            break;
        case EXL2__REGEX_LOOK:
            in = in != code->not && exl2__regex_has(set, (uint32_t)((int32_t)here + code->b));
            break;
        case EXL2__REGEX_LINE:
            in = in && (at == 0 || (r->text[at - 1] == '\n' && at < r->bytes));
            break;
        case EXL2__REGEX_LINE_END:
            in = in && (at == r->bytes || r->text[at] == '\n');
            break;
        default:
            break;
        }
        set[here >> 6] |= (uint64_t)in << (here & 63);
    }
}

/* Turns the set after the character at `at` into the set before it. */
EXL2__NOINLINE
EXL2__PRIVATE void exl2__regex_compute(const exl2__regex *r, size_t at, uint32_t code, uint64_t *set)
{
    uint64_t own[EXL2__REGEX_WORDS_MAX];
    const uint64_t *accepts = own;
    if (code < 256) {
        accepts = r->latin + (size_t)code * r->words;
    } else {
        exl2__regex_accepts(r, code, own);
    }
    for (uint32_t w = 0; w < r->words; w++) { /* a SET leads to the instruction after it */
        uint64_t next = set[w] >> 1 | (w + 1 < r->words ? set[w + 1] << 63 : 0);
        set[w] = (accepts[w] & next) | r->matches[w];
    }
    exl2__regex_close(r, at, set);
}

/* The same with a cache: texts use few different characters, and few different sets occur between them. */
static inline void exl2__regex_step(exl2__regex *r, size_t at, uint64_t *set)
{
    uint32_t code;
    exl2__unicode_next(r->text + at, r->bytes - at, &code);
    uint64_t hash = code;
    for (uint32_t w = 0; w < r->words; w++) {
        hash = (hash ^ set[w]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    uint64_t *seen = r->seen + (hash % EXL2__REGEX_SEEN) * (1 + 2 * r->words);
    bool same = seen[0] == (uint64_t)code + 1 && !r->lines;
    for (uint32_t w = 0; w < r->words; w++) {
        same = same && seen[1 + w] == set[w];
        seen[1 + w] = set[w];
    }
    if (!same) {
        seen[0] = (uint64_t)code + 1;
        exl2__regex_compute(r, at, code, set);
    }
    for (uint32_t w = 0; w < r->words; w++) {
        seen[1 + r->words + w] = set[w] = same ? seen[1 + r->words + w] : set[w];
    }
}

/* Index of the level's block that contains the position. */
static inline size_t exl2__regex_block_of(size_t at, uint32_t level)
{
    return at >> EXL2__REGEX_SHIFT * (level + 1);
}

/* Where that block ends; the next level has the set of this position. */
static inline size_t exl2__regex_block_end(size_t at, uint32_t level)
{
    return (exl2__regex_block_of(at, level) + 1) << EXL2__REGEX_SHIFT * (level + 1);
}

/* Computes the level's block that contains `at`, from its end to its beginning. The set at its end is known: it is the
   set at the end of the text, or a set of the next level's current block. A position inside a character has the set of
   the next character. */
EXL2__NOINLINE
EXL2__PRIVATE void exl2__regex_fill(exl2__regex *r, uint32_t level, size_t at)
{
    uint32_t shift = EXL2__REGEX_SHIFT * level;
    size_t mask = ((size_t)1 << EXL2__REGEX_SHIFT) - 1, stride = ((size_t)1 << shift) - 1;
    size_t stop = exl2__regex_block_end(at, level), end = stop;
    size_t begin = stop - ((size_t)1 << (shift + EXL2__REGEX_SHIFT));
    uint64_t *kept = r->kept[level], set[EXL2__REGEX_WORDS_MAX];
    if (end >= r->bytes || level + 1 == EXL2__REGEX_LEVELS) { /* a text is no longer than a block of the last level */
        end = r->bytes;
        memcpy(set, r->matches, sizeof set);
        exl2__regex_close(r, end, set);
    } else {
        size_t place = end >> (shift + EXL2__REGEX_SHIFT) & mask;
        memcpy(set, r->kept[level + 1] + place * r->words, r->words * sizeof *set);
        while (end < r->bytes && ((uint8_t)r->text[end] & 0xC0) == 0x80) {
            end++;
        }
    }
    for (size_t high = end, before;; high = before) { /* `set` holds for all positions from `low` to `high` */
        before = high > begin ? exl2__unicode_before(r->text, high) : 0;
        size_t low = high > begin && before >= begin ? before + 1 : begin;
        for (size_t place = low; place <= high && place < stop; place++) {
            uint64_t *out = kept + (place >> shift & mask) * r->words;
            for (uint32_t w = 0; w < r->words && (place & stride) == 0; w++) {
                out[w] = set[w];
            }
        }
        if (low == begin) {
            break;
        }
        exl2__regex_step(r, before, set);
    }
    r->block[level] = exl2__regex_block_of(at, level);
}

/* The set at `at`, or at the next character if `at` lies inside one. To fill a block, the set at its end must be known.
   The first loop goes up to a level that has it; the second fills the blocks on the way down. */
EXL2__NOINLINE
EXL2__PRIVATE const uint64_t *exl2__regex_at(exl2__regex *r, size_t at)
{
    size_t places[EXL2__REGEX_LEVELS] = { at }, mask = ((size_t)1 << EXL2__REGEX_SHIFT) - 1;
    uint32_t level = 0;
    while (level + 1 < EXL2__REGEX_LEVELS && r->block[level] != exl2__regex_block_of(places[level], level)
           && exl2__regex_block_end(places[level], level) < r->bytes) {
        places[level + 1] = exl2__regex_block_end(places[level], level);
        level++;
    }
    for (level++; level-- > 0;) {
        if (r->block[level] != exl2__regex_block_of(places[level], level)) {
            exl2__regex_fill(r, level, places[level]);
        }
    }
    return r->kept[0] + (at & mask) * r->words;
}

/* ---- forward ---- */

/* Sets the text to be matched. */
static inline void exl2__regex_begin(exl2__regex *r, const char *text, size_t bytes)
{
    r->text = text;
    r->bytes = bytes;
    for (int level = 0; level < EXL2__REGEX_LEVELS; level++) {
        r->block[level] = SIZE_MAX;
    }
}

/* End of the match at p, or p when there is none; no match is empty. p lies in the text, before its end. */
EXL2__NOINLINE
EXL2__PRIVATE const char *exl2__regex_match(exl2__regex *r, const char *p)
{
    size_t at = (size_t)(p - r->text);
    int32_t here = 0;
    if (!exl2__regex_has(exl2__regex_at(r, at), 0)) {
        return p;
    }
    for (;;) {
        const exl2__regex_code *code = &r->code[here];
        uint8_t lead;
        switch (code->op) {
        case EXL2__REGEX_MATCH:
            return r->text + at;
        case EXL2__REGEX_SET:
            lead = (uint8_t)r->text[at];
            at += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
            here++;
            break;
        case EXL2__REGEX_SPLIT:
            here += exl2__regex_has(exl2__regex_at(r, at), (uint32_t)(here + code->a)) ? code->a : code->b;
            break;
        case EXL2__REGEX_JUMP:
            here += code->a;
            break;
        case EXL2__REGEX_LOOK:
            here += code->b;
            break;
        default:
            here++;
            break;
        }
    }
}

#endif
