/* regex_parse.h: compiles a regular expression in Oniguruma's syntax (Ruby's) to a program. Syntax that is not
   supported is rejected, with a name for the message.
   takes: the untrusted text of a pattern, in valid UTF-8.
   gives: exl2__regex_parser, exl2__regex_parse, exl2__regex_copy.
   owns:  nothing; the parser is plain data of a few kilobytes. */
#ifndef EXL2__REGEX_PARSE_H
#define EXL2__REGEX_PARSE_H

#include "regex.h"
#include "regex_lex.h"

#define EXL2__REGEX_DEPTH_MAX 16 /* levels of nested groups, and of nested classes */
#define EXL2__REGEX_REPEAT_MAX 255

/* Grammar: . [...] \s \d \w \p{Lu} \x41 ^ $ (...) (?:...) (?i:...) (?=...) (?!...) | ? * + {2,3}, lazy ones with ?, and
   possessive ?+ *+ ++ after a single character. Jumps are relative, so that instructions can be moved and copied. */
typedef struct exl2__regex_parser {
    exl2__regex_lex x;
    const char *rejected;   /* the first unsupported construct, for a message; NULL: none yet */
    uint32_t count, set_count, range_count, depth;
    bool fold, in_class;    /* inside (?i), inside [...] */
    exl2__regex_code code[EXL2__REGEX_CODE_MAX];
    exl2__regex_set sets[EXL2__REGEX_SETS_MAX];
    uint32_t ranges[EXL2__REGEX_RANGES_MAX][2];
} exl2__regex_parser;

EXL2__PRIVATE bool exl2__regex_alternatives(exl2__regex_parser *p, bool *empty);

EXL2__PRIVATE bool exl2__regex_reject(exl2__regex_parser *p, const char *what)
{
    p->rejected = p->rejected ? p->rejected : what;
    return false;
}

static const exl2__regex_dialect exl2__regex_oniguruma = { "nrtfvae", "\n\r\t\f\v\a\x1B", 'x', 8, false, true };

/* Inserts an instruction before those from `place` on. */
EXL2__PRIVATE bool exl2__regex_insert(exl2__regex_parser *p, uint32_t place, exl2__regex_op op, int32_t a, int32_t b)
{
    if (p->count == EXL2__REGEX_CODE_MAX) {
        return exl2__regex_reject(p, "too many characters and repetitions");
    }
    memmove(p->code + place + 1, p->code + place, (p->count++ - place) * sizeof *p->code);
    p->code[place] = (exl2__regex_code){ (uint8_t)op, false, (int16_t)a, (int16_t)b };
    return true;
}

static inline bool exl2__regex_emit(exl2__regex_parser *p, exl2__regex_op op, int32_t a, int32_t b)
{
    return exl2__regex_insert(p, p->count, op, a, b);
}

/* ---- characters and classes ---- */

EXL2__PRIVATE bool exl2__regex_add_range(exl2__regex_parser *p, exl2__regex_set *s, uint32_t low, uint32_t high)
{
    if (low > high || (p->fold && high >= 0x80)) {
        return exl2__regex_reject(p, low > high ? "a range that ends before it begins"
                                                : "a character above U+007F inside (?i)");
    }
    for (uint32_t code = low; code <= high && code < 256; code++) {
        s->latin[code >> 5] |= 1u << (code & 31);
        uint32_t letter = code | 32;
        if (p->fold && letter >= 'a' && letter <= 'z') {
            s->latin[code >> 5 ^ 1] |= 1u << (code & 31);
            if (letter == 's' || letter == 'k') { /* U+017F folds to s, U+212A to k */
                uint32_t other = letter == 's' ? 0x17F : 0x212A;
                p->fold = false;
                bool fine = exl2__regex_add_range(p, s, other, other);
                p->fold = true;
                if (!fine) {
                    return false;
                }
            }
        }
    }
    if (high >= 256) {
        if (p->range_count == EXL2__REGEX_RANGES_MAX) {
            return exl2__regex_reject(p, "too many ranges of characters");
        }
        p->ranges[p->range_count][0] = low < 256 ? 256 : low;
        p->ranges[p->range_count++][1] = high;
        s->count++;
    }
    return true;
}

EXL2__PRIVATE void exl2__regex_add_kinds(exl2__regex_set *s, uint32_t kinds, bool not)
{
    for (uint32_t code = 0; code < 256; code++) {
        uint32_t kind = exl2__unicode_class(code);
        s->latin[code >> 5] |= (uint32_t)(((kind & kinds) != 0) != not) << (code & 31);
    }
    s->kinds = (uint16_t)(s->kinds | (not ? ~kinds : kinds));
}

/* Reads a property after \p: {Lu} or {^L}. `not`: after \P. */
EXL2__PRIVATE bool exl2__regex_property(exl2__regex_parser *p, exl2__regex_set *s, bool not)
{
    static const struct {
        char name[3];
        uint16_t kinds;
    } names[] = {
        { "L", EXL2__UNICODE_LETTER }, { "Lu", EXL2__UNICODE_UPPER }, { "Ll", EXL2__UNICODE_LOWER },
        { "Lt", EXL2__UNICODE_TITLE }, { "Lm", EXL2__UNICODE_MODIFIER }, { "Lo", EXL2__UNICODE_CASELESS },
        { "M", EXL2__UNICODE_MARK }, { "N", EXL2__UNICODE_NUMBERS }, { "Nd", EXL2__UNICODE_DIGIT },
        { "Nl", EXL2__UNICODE_LETTER_NUMBER }, { "No", EXL2__UNICODE_NUMERAL },
        { "P", EXL2__UNICODE_PUNCTUATION | EXL2__UNICODE_CONNECTOR }, { "Pc", EXL2__UNICODE_CONNECTOR },
        { "S", EXL2__UNICODE_SYMBOL | EXL2__UNICODE_WORD_SYMBOL }
    };
    if (exl2__regex_lex_skip(&p->x, "{")) {
        not = exl2__regex_lex_skip(&p->x, "^") != not;
        for (size_t i = 0; i < EXL2__COUNT(names); i++) {
            size_t bytes = strlen(names[i].name);
            const char *name = p->x.text + p->x.at;
            if (p->x.bytes - p->x.at > bytes && name[bytes] == '}' && memcmp(name, names[i].name, bytes) == 0) {
                p->x.at += bytes + 1;
                if (p->fold && (names[i].kinds & 0x1C) && names[i].kinds != EXL2__UNICODE_LETTER) {
                    return exl2__regex_reject(p, "a class of letters inside (?i)");
                }
                exl2__regex_add_kinds(s, names[i].kinds, not);
                return true;
            }
        }
    }
    return exl2__regex_reject(p, "an unsupported property \\p{...}");
}

/* Reads an escape after its backslash: either a character into *code, or a class into the set; *code is then
   UINT32_MAX. */
EXL2__PRIVATE bool exl2__regex_escape(exl2__regex_parser *p, exl2__regex_set *s, uint32_t *code)
{
    exl2__regex_token t = exl2__regex_lex_escape(&p->x);
    if (t.kind == EXL2__REGEX_TOKEN_CHAR && t.code < 0x110000) {
        *code = t.code;
        return true;
    }
    if (t.kind != EXL2__REGEX_TOKEN_CLASS) {
        return exl2__regex_reject(p, "an unsupported escape");
    }
    bool not = (t.code & 32) == 0;
    char letter = (char)(t.code | 32);
    uint32_t kinds = letter == 's' ? EXL2__UNICODE_SPACE : letter == 'd' ? EXL2__UNICODE_DIGIT
                                                         : EXL2__UNICODE_WORD & ~EXL2__UNICODE_WORD_OTHER;
    *code = UINT32_MAX;
    if (letter == 'p') {
        return exl2__regex_property(p, s, not);
    }
    exl2__regex_add_kinds(s, kinds, not);
    if (letter == 'w' && !p->in_class) { /* outside [...], numerals from U+0080 to U+00FF, such as U+00B2, count too */
        exl2__regex_set more = { { 0 }, 0, 0, 0, false };
        exl2__regex_add_kinds(&more, kinds | EXL2__UNICODE_NUMERAL, not);
        memcpy(s->latin, more.latin, sizeof s->latin);
    }
    return true;
}

/* Reads a literal character or an escape. */
static inline bool exl2__regex_character(exl2__regex_parser *p, exl2__regex_set *s, uint32_t *code)
{
    if (exl2__regex_lex_skip(&p->x, "\\")) {
        return exl2__regex_escape(p, s, code);
    }
    p->x.at += exl2__unicode_next(p->x.text + p->x.at, p->x.bytes - p->x.at, code);
    return true;
}

/* Reads a class after its '[', and adds its characters to the set. */
EXL2__PRIVATE bool exl2__regex_class(exl2__regex_parser *p, exl2__regex_set *out)
{
    exl2__regex_set s = { { 0 }, 0, (uint16_t)p->range_count, 0, false };
    bool not = exl2__regex_lex_skip(&p->x, "^"), fine = ++p->depth <= EXL2__REGEX_DEPTH_MAX;
    for (bool first = true; fine && p->x.at < p->x.bytes && (first || exl2__regex_lex_peek(&p->x, 0) != ']');
         first = false) {
        uint32_t code = 0, high;
        if (exl2__regex_lex_skip(&p->x, "[")) {
            fine = p->x.at < p->x.bytes && exl2__regex_lex_peek(&p->x, 0) != ':' && exl2__regex_class(p, &s);
            continue;
        }
        fine = !exl2__regex_lex_skip(&p->x, "&&") && exl2__regex_character(p, &s, &code);
        high = code = fine ? code : 0;
        if (fine && code != UINT32_MAX && exl2__regex_lex_range(&p->x)) {
            fine = p->x.at < p->x.bytes && exl2__regex_lex_peek(&p->x, 0) != '['
                && exl2__regex_character(p, &s, &high) && high != UINT32_MAX;
        }
        fine = fine && (code == UINT32_MAX || exl2__regex_add_range(p, &s, code, high));
    }
    if (!fine || !exl2__regex_lex_skip(&p->x, "]")) {
        return exl2__regex_reject(p, "a class with &&, with [:...:], without its ], or nested too deeply");
    }
    p->depth--;
    for (uint32_t i = 0; i < 8; i++) {
        out->latin[i] |= not ? ~s.latin[i] : s.latin[i];
    }
    out->not = not && s.count;
    out->kinds = (uint16_t)(out->kinds | (not && !s.count ? ~s.kinds : s.kinds));
    out->count = (uint16_t)(out->count + s.count);
    return p->depth == 0 || !out->not || exl2__regex_reject(p, "a class nested in another class and negated with [^");
}

/* ---- items ---- */

/* Reads an item for one character: [...], an escape, '.' or a literal. */
EXL2__PRIVATE bool exl2__regex_single(exl2__regex_parser *p)
{
    uint32_t code = UINT32_MAX, depth = p->depth;
    if (p->set_count == EXL2__REGEX_SETS_MAX) {
        return exl2__regex_reject(p, "too many characters and classes");
    }
    exl2__regex_set *s = &p->sets[p->set_count];
    *s = (exl2__regex_set){ { 0 }, 0, (uint16_t)p->range_count, 0, false };
    bool fine = true;
    if (exl2__regex_lex_skip(&p->x, "[")) {
        p->depth = 0; /* counts nested classes until the class ends */
        p->in_class = true;
        fine = exl2__regex_class(p, s);
        p->in_class = false;
        p->depth = depth;
    } else if (exl2__regex_lex_skip(&p->x, ".")) {
        exl2__regex_add_kinds(s, 0, true);
        s->latin[0] &= ~(1u << '\n');
    } else {
        fine = exl2__regex_character(p, s, &code) && (code == UINT32_MAX || exl2__regex_add_range(p, s, code, code));
    }
    return fine && exl2__regex_emit(p, EXL2__REGEX_SET, (int32_t)p->set_count++, 0);
}

/* Reads a group after its '('. */
EXL2__PRIVATE bool exl2__regex_group(exl2__regex_parser *p, bool *empty)
{
    bool fold = p->fold, not = exl2__regex_lex_skip(&p->x, "?!"), look = not || exl2__regex_lex_skip(&p->x, "?=");
    uint32_t place = p->count;
    if (p->depth++ == EXL2__REGEX_DEPTH_MAX) {
        return exl2__regex_reject(p, "groups nested too deeply");
    }
    if (look && !exl2__regex_emit(p, EXL2__REGEX_LOOK, 1, 0)) {
        return false;
    }
    if (!look && exl2__regex_lex_skip(&p->x, "?i:")) {
        p->fold = true;
    } else if (!look && !exl2__regex_lex_skip(&p->x, "?:") && exl2__regex_lex_peek(&p->x, 0) == '?') {
        return exl2__regex_reject(p, "a group (? other than (?: (?i: (?= (?!");
    }
    if (!exl2__regex_alternatives(p, empty) || !exl2__regex_lex_skip(&p->x, ")")) {
        return exl2__regex_reject(p, "a ( without its )");
    }
    if (look) {
        if (!exl2__regex_emit(p, EXL2__REGEX_MATCH, 0, 0)) {
            return false;
        }
        p->code[place].not = not;
        p->code[place].b = (int16_t)(p->count - place);
        *empty = true;
    }
    p->fold = fold;
    p->depth--;
    return true;
}

/* Reads {2}, {2,}, {,3} or {2,3}. Anything else is no repetition: returns false and reads nothing. */
EXL2__PRIVATE bool exl2__regex_counts(exl2__regex_parser *p, uint32_t *least, uint32_t *most)
{
    size_t begin = p->x.at++, first = exl2__regex_lex_number(&p->x, least), second = 0;
    bool comma = exl2__regex_lex_skip(&p->x, ",");
    *most = *least;
    if (comma) {
        second = exl2__regex_lex_number(&p->x, most);
        *most = second ? *most : UINT32_MAX;
    }
    bool counts = first + second > 0 && first <= 5 && second <= 5 && exl2__regex_lex_skip(&p->x, "}");
    p->x.at = counts ? p->x.at : begin;
    return counts;
}

/* Turns the code from `place` on into a repetition of it. It is not inlined, so that its buffer is not on the stack of
   each nested group. */
EXL2__NOINLINE
EXL2__PRIVATE bool exl2__regex_repeat(exl2__regex_parser *p, uint32_t place, uint32_t least, uint32_t most, bool lazy)
{
    uint32_t one = p->count - place;
    exl2__regex_code copy[EXL2__REGEX_CODE_MAX];
    memcpy(copy, p->code + place, one * sizeof *copy);
    bool forever = most == UINT32_MAX;
    uint32_t copies = forever ? least > 1 ? least : 1 : most;
    if (least > most) {
        return exl2__regex_reject(p, "a repetition {m,n} with m > n");
    }
    if (copies > EXL2__REGEX_REPEAT_MAX || copies * (one + 1) > EXL2__REGEX_CODE_MAX) {
        return exl2__regex_reject(p, "a repetition with too large a count");
    }
    p->count = place;
    for (uint32_t i = 0; i < copies; i++) {
        bool option = i >= least, loop = forever && i + 1 == copies;
        int32_t over = (int32_t)(one + 1 + (loop && option));
        if (option && !exl2__regex_emit(p, EXL2__REGEX_SPLIT, lazy ? over : 1, lazy ? 1 : over)) {
            return false;
        }
        if (p->count + one > EXL2__REGEX_CODE_MAX) {
            return exl2__regex_reject(p, "a repetition with too large a count");
        }
        memcpy(p->code + p->count, copy, one * sizeof *copy);
        p->count += one;
        if (loop && option && !exl2__regex_emit(p, EXL2__REGEX_JUMP, -(int32_t)one - 1, 0)) {
            return false;
        }
        if (loop && !option &&
            !exl2__regex_emit(p, EXL2__REGEX_SPLIT, lazy ? 1 : -(int32_t)one, lazy ? -(int32_t)one : 1)) {
            return false;
        }
    }
    return true;
}

/* Makes the greedy repetition of one character possessive: a lookahead after it demands that the character does not
   follow once more. */
EXL2__PRIVATE bool exl2__regex_possess(exl2__regex_parser *p, uint32_t place, exl2__regex_code one, bool option)
{
    if (one.op != EXL2__REGEX_SET) {
        return exl2__regex_reject(p, "?+, *+ or ++ after more than one character");
    }
    if (option && !exl2__regex_emit(p, EXL2__REGEX_JUMP, 4, 0)) { /* if the option matched, one more may follow */
        return false;
    }
    p->code[place].b = option ? 3 : p->code[place].b;
    bool fine = exl2__regex_emit(p, EXL2__REGEX_LOOK, 1, 3) && exl2__regex_emit(p, EXL2__REGEX_SET, one.a, 0) &&
                exl2__regex_emit(p, EXL2__REGEX_MATCH, 0, 0);
    if (fine) {
        p->code[p->count - 3].not = true;
    }
    return fine;
}

/* Reads the quantifiers after an item. */
EXL2__PRIVATE bool exl2__regex_quantifiers(exl2__regex_parser *p, uint32_t place, bool *empty)
{
    while (p->x.at < p->x.bytes) {
        char c = exl2__regex_lex_peek(&p->x, 0);
        uint32_t least = c == '+', most = c == '?' ? 1 : UINT32_MAX;
        if (c == '{' ? !exl2__regex_counts(p, &least, &most) : c != '?' && c != '*' && c != '+') {
            break;
        }
        p->x.at += c != '{';
        bool single = p->count == place + 1, lazy = exl2__regex_lex_skip(&p->x, "?");
        exl2__regex_code one = p->code[place];
        if ((*empty && most > 1) || (lazy && c == '{' && least == most)) {
            return exl2__regex_reject(p, "a repetition of an item that may be empty, or {n}?");
        }
        if (!exl2__regex_repeat(p, place, least, most, lazy)) {
            return false;
        }
        if (c != '{' && !lazy && exl2__regex_lex_skip(&p->x, "+")) {
            one.op = single ? one.op : (uint8_t)EXL2__REGEX_MATCH;
            if (!exl2__regex_possess(p, place, one, c == '?')) {
                return false;
            }
        }
        *empty = *empty || least == 0;
    }
    return true;
}

EXL2__PRIVATE bool exl2__regex_item(exl2__regex_parser *p, bool *empty)
{
    uint32_t place = p->count;
    char c = exl2__regex_lex_peek(&p->x, 0);
    bool fine;
    *empty = false;
    if (exl2__regex_lex_skip(&p->x, "(")) {
        fine = exl2__regex_group(p, empty);
    } else if (c == '^' || c == '$') {
        fine = exl2__regex_emit(p, c == '^' ? EXL2__REGEX_LINE : EXL2__REGEX_LINE_END, 1, 0);
        p->x.at++;
        *empty = true;
    } else if (c == '?' || c == '*' || c == '+') {
        fine = exl2__regex_reject(p, "a repetition of nothing");
    } else {
        fine = exl2__regex_single(p);
    }
    return fine && exl2__regex_quantifiers(p, place, empty);
}

/* Reads alternatives up to ')' or the end. Each but the last becomes SPLIT, its code, and a JUMP to the end. *empty:
   one of them can match the empty text. */
EXL2__PRIVATE bool exl2__regex_alternatives(exl2__regex_parser *p, bool *empty)
{
    uint32_t begin = p->count, place = begin;
    bool all_empty = true;
    *empty = false;
    while (p->x.at < p->x.bytes && exl2__regex_lex_peek(&p->x, 0) != ')') {
        bool item;
        if (!exl2__regex_lex_skip(&p->x, "|")) {
            if (!exl2__regex_item(p, &item)) {
                return false;
            }
            all_empty = all_empty && item;
            continue;
        }
        if (!exl2__regex_insert(p, place, EXL2__REGEX_SPLIT, 1, 0) || !exl2__regex_emit(p, EXL2__REGEX_JUMP, 0, 0)) {
            return false;
        }
        p->code[place].b = (int16_t)(p->count - place);
        place = p->count;
        *empty = *empty || all_empty;
        all_empty = true;
    }
    *empty = *empty || all_empty;
    for (uint32_t next; begin < place; begin = next) {
        int32_t over = p->code[begin].b;
        next = begin + (uint32_t)over;
        p->code[next - 1].a = (int16_t)(p->count - next + 1);
    }
    return true;
}

/* Compiles `text`; *p then has the program. false: p->rejected says why. */
EXL2__PRIVATE bool exl2__regex_parse(exl2__regex_parser *p, const char *text, size_t bytes)
{
    bool empty;
    p->x = (exl2__regex_lex){ &exl2__regex_oniguruma, text, bytes, 0 };
    p->rejected = NULL;
    p->count = p->set_count = p->range_count = p->depth = 0;
    p->in_class = false;
    p->fold = exl2__regex_lex_skip(&p->x, "(?i)");
    if (!exl2__regex_alternatives(p, &empty)) {
        return exl2__regex_reject(p, "an unsupported syntax");
    }
    if (p->x.at < p->x.bytes || empty) {
        return exl2__regex_reject(p, empty ? "a match that may be empty" : "a ) without its (");
    }
    return exl2__regex_emit(p, EXL2__REGEX_MATCH, 0, 0);
}

/* A copy of the program in the arena. NULL: the arena is dry, and only bytes were counted. */
EXL2__PRIVATE exl2__regex *exl2__regex_copy(const exl2__regex_parser *p, exl2__arena *arena)
{
    exl2__regex made = { 0 }, *out = (exl2__regex *)exl2__arena_alloc(arena, sizeof *out);
    exl2__regex_code *code = (exl2__regex_code *)exl2__arena_alloc(arena, p->count * sizeof *code);
    exl2__regex_set *sets = (exl2__regex_set *)exl2__arena_alloc(arena, p->set_count * sizeof *sets);
    uint32_t (*ranges)[2] = (uint32_t (*)[2])exl2__arena_alloc(arena, p->range_count * sizeof *ranges);
    made.count = p->count;
    exl2__regex_layout(&made, arena);
    if (out == NULL || made.kept[EXL2__REGEX_LEVELS - 1] == NULL) {
        return NULL;
    }
    memcpy(code, p->code, p->count * sizeof *code);
    memcpy(sets, p->sets, p->set_count * sizeof *sets);
    memcpy(ranges, p->ranges, p->range_count * sizeof *ranges);
    made.code = code;
    made.sets = sets;
    made.ranges = (const uint32_t (*)[2])ranges;
    *out = made;
    exl2__regex_finish(out);
    return out;
}

#endif
