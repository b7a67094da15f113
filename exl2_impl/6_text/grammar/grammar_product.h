/* grammar_product.h: languages of short texts, as products of automata. Texts must match some expressions, must not
   match others, and may be limited in length or be multiples of a number. The result is one deterministic automaton.
   takes: automata for the bytes of a text before JSON escapes it; a model's token table.
   gives: exl2__grammar_product, exl2__grammar_product_open, _add, _link, _regex, _pattern, _accepts, _walk, _run,
          _close; for grammar_unroll.h _emit_all, _emit_run.
   owns:  its automata and states, from _open to _close.

   Each expression is a part: an automaton of its own. The product walks all parts at once. Example: the texts in a*b*
   and not in a*, so the first part must match and the second must not.

       place:   (a*b*, a*) --a--> (a*b*, a*)        no text ends here: the second part matches
                           --b--> (b*, dead) ...    texts end here: only the first part matches

   exl2__grammar_product_run makes the product: it adds the edges of each place in turn, drops places from which no end
   can be reached, and merges places that are equivalent. _emit then writes the places as nodes of the automaton that
   the front end builds. */
#ifndef EXL2__GRAMMAR_PRODUCT_H
#define EXL2__GRAMMAR_PRODUCT_H

#include "grammar_regex.h"
#include "grammar_state.h"

#define EXL2__GRAMMAR_PRODUCT_PARTS_MAX 26u
#define EXL2__GRAMMAR_PRODUCT_REPORTS_MAX 12u
#define EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX 64u
#define EXL2__GRAMMAR_PRODUCT_PLACES_MAX 8192u /* states of a product; a power of two */
#define EXL2__GRAMMAR_PRODUCT_BYTES (1u << 20) /* memory for the states of one part */
#define EXL2__GRAMMAR_PRODUCT_WORK_MAX 200000u   /* states of all products of a schema */
#define EXL2__GRAMMAR_PRODUCT_ROUNDS_MAX 100u
#define EXL2__GRAMMAR_PRODUCT_LENGTH_NODES 12000u /* nodes to count the characters of one expression, about */
#define EXL2__GRAMMAR_PRODUCT_LENGTH_MIN 64u      /* a length up to this is never lowered to save nodes */
#define EXL2__GRAMMAR_PRODUCT_NONE UINT32_MAX

typedef enum exl2__grammar_product_role {
    EXL2__GRAMMAR_PRODUCT_MUST,   /* the text must be in the part's language */
    EXL2__GRAMMAR_PRODUCT_NOT,    /* the text must not be in it */
    EXL2__GRAMMAR_PRODUCT_REPORT, /* both are allowed; the outcome says which is the case */
    /* the preceding REPORT, compiled with `wide`: texts on which the two differ are excluded */
    EXL2__GRAMMAR_PRODUCT_REPORT_WIDE
} exl2__grammar_product_role;

/* multiple / 10^places: what numbers must be a multiple of. 0: any number. */
typedef struct exl2__grammar_product_multiple {
    uint32_t multiple, places;
} exl2__grammar_product_multiple;

typedef struct exl2__grammar_product_part {
    exl2__grammar_link link;
    exl2__grammar_state states; /* points to `link`, so parts must not move */
    bool shared;                /* `link` is a copy of a grammar's, which outlives the product */
    exl2__grammar_product_role role;
    uint32_t start;
    exl2__grammar_product_multiple of; /* the language has only the texts that are multiples */
} exl2__grammar_product_part;

typedef struct exl2__grammar_product_edge {
    uint32_t target;
    uint8_t low, high;
} exl2__grammar_product_edge;

typedef struct exl2__grammar_product_place {
    uint32_t edges, edge_count;
    uint32_t outcome; /* index in `outcomes`; NONE: no text ends here */
    uint32_t node;    /* node of the automaton that _emit writes; 0: no end can be reached from here */
    uint32_t same;    /* the first place that is equivalent: the same texts lead to the same outcomes */
} exl2__grammar_product_place;

/* A place is a state of the product. It is a tuple: the state of each part, then the remainder of each part (if one has
   a multiple). Lengths are not part of the product; grammar_unroll.h adds them. */
typedef struct exl2__grammar_product {
    exl2__grammar_code *g;
    const exl2__grammar_vocab *vocab;
    exl2__grammar_product_part *parts;
    uint32_t count;
    uint32_t min, max;  /* number of characters; max may be ENDLESS */
    uint32_t places_max; /* a power of two */
    bool has_multiple;  /* of a part */
    uint32_t outcomes[EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX], outcome_count; /* masks of the REPORTs that match */
    uint32_t *tuples, *slots;
    exl2__grammar_product_place *places;
    exl2__grammar_product_edge *edges;
    uint32_t place_count, place_room, tuple_room, edge_count, edge_room;
    uint16_t borders[257]; /* [byte] the next byte at which some part's byte class changes */
} exl2__grammar_product;

EXL2__PRIVATE void exl2__grammar_product_open(exl2__grammar_code *g, const exl2__grammar_vocab *vocab,
                                              exl2__grammar_product *w)
{
    void *memory = NULL;
    *w = (exl2__grammar_product){ 0 };
    w->g = g;
    w->vocab = vocab;
    w->max = EXL2__GRAMMAR_CODE_ENDLESS;
    w->places_max = EXL2__GRAMMAR_PRODUCT_PLACES_MAX;
    if (g->result == EXL2_OK) {
        g->result = exl2__alloc(g->c, EXL2__GRAMMAR_PRODUCT_PARTS_MAX * sizeof *w->parts, 8, EXL2_MEM_GENERAL, &memory);
    }
    w->parts = g->result == EXL2_OK ? (exl2__grammar_product_part *)memory : NULL;
}

/* Items of a tuple. */
static inline uint32_t exl2__grammar_product_width(const exl2__grammar_product *w)
{
    return w->has_multiple ? 2 * w->count : w->count;
}

EXL2__PRIVATE void exl2__grammar_product_close(exl2__grammar_product *w)
{
    exl2__ctx *c = w->g->c;
    for (uint32_t i = 0; i < w->count; i++) {
        exl2__grammar_state_close(c, &w->parts[i].states);
        w->parts[i].link = w->parts[i].shared ? (exl2__grammar_link){ 0 } : w->parts[i].link;
        exl2__grammar_link_close(c, &w->parts[i].link);
    }
    exl2__free(c, w->parts, EXL2__GRAMMAR_PRODUCT_PARTS_MAX * sizeof *w->parts, EXL2_MEM_GENERAL);
    exl2__free(c, w->tuples, (uint64_t)w->tuple_room * exl2__grammar_product_width(w) * 4, EXL2_MEM_GENERAL);
    exl2__free(c, w->places, (uint64_t)w->place_room * sizeof *w->places, EXL2_MEM_GENERAL);
    exl2__free(c, w->edges, (uint64_t)w->edge_room * sizeof *w->edges, EXL2_MEM_GENERAL);
    exl2__free(c, w->slots, w->slots ? (uint64_t)w->places_max * 8 : 0, EXL2_MEM_GENERAL);
    *w = (exl2__grammar_product){ 0 };
}

/* Rejects schemas whose products would need seconds. */
EXL2__PRIVATE void exl2__grammar_product_check(exl2__grammar_product *w)
{
    exl2__grammar_code *g = w->g;
    if (g->work > EXL2__GRAMMAR_PRODUCT_WORK_MAX && g->result == EXL2_OK) {
        g->result = exl2__fail(g->c, EXL2_ERR_BUDGET,
                               "%s: the expressions that must hold together have too many states", g->label);
    }
}

/* ---- parts ---- */

/* Adds the language of rule 0 of `code` as a part. Closes `code`. */
EXL2__PRIVATE void exl2__grammar_product_add(exl2__grammar_product *w, exl2__grammar_code *code,
                                             exl2__grammar_product_role role)
{
    exl2__grammar_code *g = w->g;
    g->result = g->result == EXL2_OK ? code->result : g->result;
    exl2__grammar_product_check(w);
    if (g->result == EXL2_OK && w->count == EXL2__GRAMMAR_PRODUCT_PARTS_MAX) {
        g->result = exl2__fail(g->c, EXL2_ERR_BUDGET,
                               "%s: at most %u expressions for one text are supported", code->label,
                               EXL2__GRAMMAR_PRODUCT_PARTS_MAX / 2);
    }
    if (g->result == EXL2_OK) {
        exl2__grammar_product_part *part = &w->parts[w->count];
        *part = (exl2__grammar_product_part){ .role = role };
        g->result = exl2__grammar_link_open(code, w->vocab, &part->link);
        if (g->result == EXL2_OK) {
            w->count++;
            g->result = exl2__grammar_state_open(g->c, &part->link, EXL2__GRAMMAR_PRODUCT_BYTES, &part->states);
        }
        part->start = g->result == EXL2_OK ? exl2__grammar_state_start(&part->states) : 0;
    }
    exl2__grammar_code_close(code);
}

/* Adds the language of a linked automaton, which outlives the product, as a part. bytes: memory for its states. */
EXL2__PRIVATE void exl2__grammar_product_link(exl2__grammar_product *w, const exl2__grammar_link *link, uint64_t bytes)
{
    exl2__grammar_code *g = w->g;
    EXL2__ASSERT(w->count < EXL2__GRAMMAR_PRODUCT_PARTS_MAX);
    if (g->result == EXL2_OK) {
        exl2__grammar_product_part *part = &w->parts[w->count++];
        *part = (exl2__grammar_product_part){ .role = EXL2__GRAMMAR_PRODUCT_MUST, .link = *link, .shared = true };
        g->result = exl2__grammar_state_open(g->c, &part->link, bytes, &part->states);
        part->start = g->result == EXL2_OK ? exl2__grammar_state_start(&part->states) : 0;
    }
}

/* Adds the numbers of `code` that are multiples. */
EXL2__PRIVATE void exl2__grammar_product_numbers(exl2__grammar_product *w, exl2__grammar_code *code,
                                                 exl2__grammar_product_multiple of, exl2__grammar_product_role role)
{
    exl2__grammar_product_add(w, code, role);
    if (w->g->result == EXL2_OK) {
        w->parts[w->count - 1].of = of;
        w->has_multiple = w->has_multiple || of.multiple;
    }
}

/* Adds a regular expression. With `whole` the whole text must match; without, the text must contain a match, as with
   JSON schema's pattern. Where dialects differ, `wide` accepts what one of them accepts; otherwise all must. */
EXL2__PRIVATE void exl2__grammar_product_regex(exl2__grammar_product *w, const char *text, size_t bytes, bool whole,
                                               bool wide, exl2__grammar_product_role role)
{
    exl2__grammar_code code;
    if (w->g->result < 0) {
        return;
    }
    w->g->work += 20; /* an expression costs about as much as 20 states */
    w->g->result = exl2__grammar_code_open(w->g->c, &code, w->g->label);
    code.wide = wide;
    exl2__grammar_code_rule(&code);
    exl2__grammar_code_define(&code, 0, exl2__grammar_regex_read(&code, text, bytes, whole));
    exl2__grammar_product_add(w, &code, role);
}

/* With `group`, the end of the group that begins at text[at]; without, the next '|' outside of groups. `bytes` if there
   is none. */
EXL2__PRIVATE size_t exl2__grammar_product_skip(const char *text, size_t bytes, size_t at, bool group)
{
    uint32_t depth = 0;
    bool in_class = false;
    for (; at < bytes; at++) {
        char c = text[at];
        if (c == '\\') {
            at++;
        } else if (in_class) {
            in_class = c != ']';
        } else if (c == '[') {
            in_class = true;
        } else if (c == '(') {
            depth++;
        } else if (c == ')' && depth > 0 && --depth == 0 && group) {
            return at;
        } else if (c == '|' && depth == 0 && !group) {
            return at;
        }
    }
    return bytes;
}

/* Adds a pattern that must match. It may begin with look-aheads; each becomes a separate part for the whole text.
   `room`: scratch of twice the pattern's bytes. */
EXL2__PRIVATE void exl2__grammar_product_pattern(exl2__grammar_product *w, const char *text, size_t bytes, char *room)
{
    size_t at = bytes && text[0] == '^';
    while (at && bytes - at > 3 && text[at] == '(' && text[at + 1] == '?'
           && (text[at + 2] == '!' || text[at + 2] == '=')
           && exl2__grammar_product_skip(text, bytes, at, false) == bytes) {
        size_t end = exl2__grammar_product_skip(text, bytes, at, true), used = 0;
        bool negative = text[at + 2] == '!';
        for (size_t from = at + 3; from <= end && end < bytes;) { /* anchor every alternative */
            size_t to = exl2__grammar_product_skip(text, end, from, false);
            room[used++] = '^';
            from += text[from] == '^';
            memcpy(room + used, text + from, to - from);
            used += to - from;
            room[used++] = '|';
            from = to + 1;
        }
        if (!used) {
            break;
        }
        exl2__grammar_product_regex(w, room, used - 1, false, negative,
                                    negative ? EXL2__GRAMMAR_PRODUCT_NOT : EXL2__GRAMMAR_PRODUCT_MUST);
        at = end + 1;
    }
    if (at > 1) {
        room[0] = '^';
        memcpy(room + 1, text + at, bytes - at);
        text = room;
        bytes = bytes - at + 1;
    }
    exl2__grammar_product_regex(w, text, bytes, false, false, EXL2__GRAMMAR_PRODUCT_MUST);
}

/* Is the text in the part's language? */
EXL2__PRIVATE bool exl2__grammar_product_holds(exl2__grammar_product *w, uint32_t part, const char *text, size_t bytes)
{
    exl2__grammar_state *states = &w->parts[part].states;
    uint32_t state = w->g->result == EXL2_OK ? exl2__grammar_state_next(states, w->parts[part].start, text, bytes) : 0;
    if (state == EXL2__GRAMMAR_STATE_FULL) {
        w->g->result = exl2__fail(w->g->c, EXL2_ERR_BUDGET, "%s: an expression has too many states", w->g->label);
        return false;
    }
    return states->states[state].may_end;
}

/* The outcome of a text: ends[i] says whether it is in part i's language. Returns the mask of the REPORTs that match,
   or NONE if the text is excluded. */
EXL2__PRIVATE uint32_t exl2__grammar_product_outcome(const exl2__grammar_product *w, const bool *ends)
{
    uint32_t mask = 0, report = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        switch (w->parts[i].role) {
        case EXL2__GRAMMAR_PRODUCT_MUST:
        case EXL2__GRAMMAR_PRODUCT_NOT:
            if (ends[i] != (w->parts[i].role == EXL2__GRAMMAR_PRODUCT_MUST)) {
                return EXL2__GRAMMAR_PRODUCT_NONE;
            }
            break;
        case EXL2__GRAMMAR_PRODUCT_REPORT:
            mask |= (uint32_t)ends[i] << report++;
            break;
        default:
            if (ends[i] != ends[i - 1]) {
                return EXL2__GRAMMAR_PRODUCT_NONE;
            }
        }
    }
    return mask;
}

/* The mask of the REPORTs that match a text; NONE: the text is not in the language, or dialects differ about it. */
EXL2__PRIVATE uint32_t exl2__grammar_product_accepts(exl2__grammar_product *w, const char *text, size_t bytes)
{
    bool ends[EXL2__GRAMMAR_PRODUCT_PARTS_MAX] = { false };
    uint32_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        length += ((uint8_t)text[i] & 0xC0) != 0x80;
    }
    for (uint32_t i = 0; i < w->count; i++) {
        ends[i] = exl2__grammar_product_holds(w, i, text, bytes);
    }
    return length < w->min || length > w->max ? EXL2__GRAMMAR_PRODUCT_NONE : exl2__grammar_product_outcome(w, ends);
}

/* ---- the product ---- */

EXL2__PRIVATE void exl2__grammar_product_set_borders(exl2__grammar_product *w)
{
    for (uint32_t byte = 256, border = 256; byte-- > 0;) {
        bool cut = byte == 0x80 || byte == 0xC0 || (w->has_multiple && byte >= '.' && byte <= '9' + 1);
        w->borders[byte] = (uint16_t)border;
        for (uint32_t i = 0; i < w->count && byte && !cut; i++) {
            cut = w->parts[i].link.class_of[byte] != w->parts[i].link.class_of[byte - 1];
        }
        border = cut ? byte : border;
    }
}

/* ---- multiples ----

   The remainder of a number's beginning is that of 10^places times its value, modulo `multiple`: 0.2 of the multiples
   of 0.25 has 20 modulo 25. So a digit adds what its place is worth, and a text may end wherever the remainder is 0. An
   item is the remainder + multiple * stage. Stages: 0 before the point, then 1 + the number of digits after it, up to
   1 + places; then the two below. */
static inline uint32_t exl2__grammar_product_begins(exl2__grammar_product_multiple of)
{
    return of.multiple * (of.places + 2); /* there is no digit yet */
}

static inline uint32_t exl2__grammar_product_fails(exl2__grammar_product_multiple of)
{
    return exl2__grammar_product_begins(of) + 1; /* a digit after the last place is not 0 */
}

/* The item after one more byte. */
EXL2__PRIVATE uint32_t exl2__grammar_product_divide(exl2__grammar_product_multiple of, uint32_t item, uint32_t byte)
{
    uint32_t m = of.multiple, worth = byte - '0';
    if (m == 0 || item == exl2__grammar_product_fails(of) || (byte != '.' && worth > 9)) {
        return item;
    }
    item = item == exl2__grammar_product_begins(of) ? 0 : item;
    uint32_t stage = item / m, rest = item % m;
    if (byte == '.') {
        return m + rest;
    }
    if (stage == of.places + 1) {
        return worth ? exl2__grammar_product_fails(of) : item;
    }
    for (uint32_t i = stage; i < of.places; i++) {
        worth = worth * 10 % m;
    }
    return stage == 0 ? (rest * 10 + worth) % m : m * (stage + 1) + (rest + worth) % m;
}

/* Is a text that ends with this item a multiple? */
static inline bool exl2__grammar_product_divides(exl2__grammar_product_multiple of, uint32_t item)
{
    return of.multiple == 0 || (item < exl2__grammar_product_begins(of) && item % of.multiple == 0);
}

/* Is the tuple that follows the last place's tuple in `tuples` that of the place? */
static inline bool exl2__grammar_product_is_at(const exl2__grammar_product *w, uint32_t place)
{
    uint32_t width = exl2__grammar_product_width(w), i = 0;
    const uint32_t *tuple = w->tuples + (size_t)w->place_count * width, *other = w->tuples + (size_t)place * width;
    while (i < width && tuple[i] == other[i]) {
        i++;
    }
    return i == width;
}

/* The place for the tuple that follows the last place's tuple in `tuples`, found or made. */
EXL2__PRIVATE uint32_t exl2__grammar_product_place_of(exl2__grammar_product *w)
{
    uint32_t width = exl2__grammar_product_width(w), hash = 0, mask = w->places_max * 2 - 1;
    const uint32_t *tuple = w->tuples + (size_t)w->place_count * width;
    for (uint32_t i = 0; i < width; i++) {
        hash = exl2__grammar_state_mix(hash, tuple[i]);
    }
    uint32_t at = hash & mask;
    for (; w->slots[at]; at = (at + 1) & mask) {
        if (memcmp(w->tuples + (size_t)(w->slots[at] - 1) * width, tuple, width * 4) == 0) {
            return w->slots[at] - 1;
        }
    }
    bool ends[EXL2__GRAMMAR_PRODUCT_PARTS_MAX];
    for (uint32_t i = 0; i < w->count; i++) {
        bool divides = !w->has_multiple || exl2__grammar_product_divides(w->parts[i].of, tuple[w->count + i]);
        ends[i] = w->parts[i].states.states[tuple[i]].may_end && divides;
    }
    uint32_t reports = exl2__grammar_product_outcome(w, ends);
    uint32_t outcome = reports == EXL2__GRAMMAR_PRODUCT_NONE ? EXL2__GRAMMAR_PRODUCT_NONE : 0;
    while (outcome < w->outcome_count && w->outcomes[outcome] != reports) {
        outcome++;
    }
    if (outcome == w->outcome_count && outcome < EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX) {
        w->outcomes[w->outcome_count++] = reports;
    }
    outcome = outcome < EXL2__GRAMMAR_PRODUCT_OUTCOMES_MAX ? outcome : EXL2__GRAMMAR_PRODUCT_NONE;
    exl2__grammar_product_place place = { 0, 0, outcome, 0, w->place_count };
    w->places[w->place_count] = place;
    w->slots[at] = w->place_count + 1;
    w->g->work++;
    return w->place_count++;
}

/* Makes room for one more place and its tuple. */
EXL2__PRIVATE bool exl2__grammar_product_room(exl2__grammar_product *w)
{
    exl2__grammar_product_check(w);
    if (w->place_count == w->place_room) {
        void *places = w->places, *tuples = w->tuples;
        static const char what[] = "states of expressions that must hold together";
        exl2__grammar_code_grow(w->g, &tuples, &w->tuple_room, w->places_max, exl2__grammar_product_width(w) * 4,
                                what);
        w->tuples = (uint32_t *)tuples;
        exl2__grammar_code_grow(w->g, &places, &w->place_room, w->places_max, sizeof *w->places, what);
        w->places = (exl2__grammar_product_place *)places;
    }
    return w->g->result == EXL2_OK;
}

EXL2__PRIVATE void exl2__grammar_product_add_edge(exl2__grammar_product *w, uint32_t from, uint32_t target,
                                                  uint32_t low, uint32_t high)
{
    exl2__grammar_product_edge *last = w->places[from].edge_count ? &w->edges[w->edge_count - 1] : NULL;
    if (last && last->target == target && last->high + 1u == low) {
        last->high = (uint8_t)high;
        return;
    }
    if (w->edge_count == w->edge_room) {
        void *edges = w->edges;
        if (!exl2__grammar_code_grow(w->g, &edges, &w->edge_room, EXL2__GRAMMAR_CODE_NODES_MAX, sizeof *w->edges,
                                     "transitions of expressions that must hold together")) {
            return;
        }
        w->edges = (exl2__grammar_product_edge *)edges;
    }
    exl2__grammar_product_edge edge = { target, (uint8_t)low, (uint8_t)high };
    w->edges[w->edge_count++] = edge;
    w->places[from].edge_count++;
}

/* Writes the tuple after one byte, following the last place's tuple in `tuples`. false: no text has this byte here. */
static inline bool exl2__grammar_product_step(exl2__grammar_product *w, const uint32_t *tuple,
                                              const uint32_t *const *rows, uint32_t byte)
{
    uint32_t *to = w->tuples + (size_t)w->place_count * exl2__grammar_product_width(w), count = w->count;
    const exl2__grammar_product_part *part = w->parts;
    for (uint32_t i = 0; i < count; i++, part++) {
        to[i] = rows[i] ? rows[i][part->link.class_of[byte]] : EXL2__GRAMMAR_STATE_DEAD;
        if (to[i] == EXL2__GRAMMAR_STATE_DEAD && part->role == EXL2__GRAMMAR_PRODUCT_MUST) {
            return false;
        }
    }
    for (uint32_t i = 0; i < w->count && w->has_multiple; i++) {
        to[w->count + i] = to[i] == EXL2__GRAMMAR_STATE_DEAD
            ? 0 : exl2__grammar_product_divide(w->parts[i].of, tuple[w->count + i], byte);
    }
    return true;
}

/* Adds all edges of a place, and the places that they lead to. */
EXL2__PRIVATE void exl2__grammar_product_add_edges(exl2__grammar_product *w, uint32_t from)
{
    const uint32_t *rows[EXL2__GRAMMAR_PRODUCT_PARTS_MAX];
    uint32_t width = exl2__grammar_product_width(w), last = EXL2__GRAMMAR_PRODUCT_NONE, checked = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t state = w->tuples[(size_t)from * width + i];
        rows[i] = state ? exl2__grammar_state_row(&w->parts[i].states, state) : NULL;
        if (state && !rows[i]) {
            w->g->result = exl2__fail(w->g->c, EXL2_ERR_BUDGET, "%s: an expression has too many states", w->g->label);
            return;
        }
    }
    w->places[from].edges = w->edge_count;
    for (uint32_t byte = 0; byte < 256; byte = w->borders[byte]) {
        if (w->place_count >= checked && !exl2__grammar_product_room(w)) {
            return;
        }
        checked = w->place_count + 1;
        if (exl2__grammar_product_step(w, w->tuples + (size_t)from * width, rows, byte)) {
            bool same = last != EXL2__GRAMMAR_PRODUCT_NONE && exl2__grammar_product_is_at(w, last);
            last = same ? last : exl2__grammar_product_place_of(w);
            exl2__grammar_product_add_edge(w, from, last, byte, w->borders[byte] - 1u);
        }
    }
}

/* Sets `node` to 1 for all places from which an end can be reached. */
EXL2__PRIVATE void exl2__grammar_product_trim(exl2__grammar_product *w)
{
    exl2__arena a;
    exl2__grammar_code *g = w->g;
    uint64_t n = w->place_count;
    g->result = exl2__arena_open(g->c, &a, (n * 2 + 1 + w->edge_count) * 4 + 64 * 3, EXL2_MEM_GENERAL);
    if (g->result < 0) {
        return;
    }
    uint32_t *begin = (uint32_t *)exl2__arena_alloc_zeroed(&a, (n + 1) * 4);
    uint32_t *stack = (uint32_t *)exl2__arena_alloc(&a, n * 4), top = 0;
    uint32_t *users = (uint32_t *)exl2__arena_alloc(&a, (uint64_t)w->edge_count * 4);
    for (uint32_t i = 0; i < w->edge_count; i++) {
        begin[w->edges[i].target]++;
    }
    for (uint32_t i = 0, sum = 0; i <= n; i++) {
        sum += begin[i];
        begin[i] = sum;
    }
    for (uint32_t i = 0; i < n; i++) {
        exl2__grammar_product_place *place = &w->places[i];
        for (uint32_t k = 0; k < place->edge_count; k++) {
            users[--begin[w->edges[place->edges + k].target]] = i;
        }
        place->node = place->outcome != EXL2__GRAMMAR_PRODUCT_NONE;
        stack[top] = i;
        top += place->node;
    }
    while (top) {
        uint32_t at = stack[--top];
        for (uint32_t i = begin[at]; i < begin[at + 1]; i++) {
            if (!w->places[users[i]].node) {
                w->places[users[i]].node = 1;
                stack[top++] = users[i];
            }
        }
    }
    exl2__arena_close(g->c, &a);
}

/* The next run of bytes that lead to places of one block; false: there is none. */
EXL2__PRIVATE bool exl2__grammar_product_next_run(const exl2__grammar_product *w, const uint32_t *block, uint32_t place,
                                                  uint32_t *at, exl2__grammar_product_edge *run)
{
    const exl2__grammar_product_place *p = &w->places[place];
    bool found = false;
    for (; *at < p->edge_count; ++*at) {
        const exl2__grammar_product_edge *edge = &w->edges[p->edges + *at];
        if (!w->places[edge->target].node) {
            continue;
        }
        if (found && (run->target != block[edge->target] || run->high + 1u != edge->low)) {
            break;
        }
        run->target = block[edge->target];
        run->low = found ? run->low : edge->low;
        run->high = edge->high;
        found = true;
    }
    return found;
}

/* Are two places in the same block, and do equal bytes lead from them to equal blocks? */
EXL2__PRIVATE bool exl2__grammar_product_equivalent(const exl2__grammar_product *w, const uint32_t *block, uint32_t a,
                                                    uint32_t b)
{
    uint32_t at = 0, other_at = 0;
    exl2__grammar_product_edge run, other;
    if (block[a] != block[b]) {
        return false;
    }
    for (;;) {
        bool more = exl2__grammar_product_next_run(w, block, a, &at, &run);
        if (more != exl2__grammar_product_next_run(w, block, b, &other_at, &other)) {
            return false;
        }
        if (!more) {
            return true;
        }
        if (run.target != other.target || run.low != other.low || run.high != other.high) {
            return false;
        }
    }
}

EXL2__PRIVATE uint32_t exl2__grammar_product_hash(const exl2__grammar_product *w, const uint32_t *block, uint32_t place)
{
    uint32_t hash = exl2__grammar_state_mix(3, block[place]), at = 0;
    exl2__grammar_product_edge run;
    while (exl2__grammar_product_next_run(w, block, place, &at, &run)) {
        hash = exl2__grammar_state_mix(exl2__grammar_state_mix(hash, run.target), run.low * 256u + run.high);
    }
    return hash;
}

/* Finds equivalent places (Moore's algorithm): blocks of places are split until equal bytes lead from all places of a
   block to equal blocks. If this needs more than ROUNDS_MAX rounds, no places are merged. */
EXL2__PRIVATE void exl2__grammar_product_merge(exl2__grammar_product *w)
{
    exl2__arena a;
    exl2__grammar_code *g = w->g;
    uint32_t n = w->place_count, blocks = 0, before = 0, mask = w->places_max * 2 - 1;
    g->result = exl2__arena_open(g->c, &a, (uint64_t)n * 8 + 64 * 2, EXL2_MEM_GENERAL);
    if (g->result < 0) {
        return;
    }
    uint32_t *block = (uint32_t *)exl2__arena_alloc(&a, (uint64_t)n * 4);
    uint32_t *next = (uint32_t *)exl2__arena_alloc(&a, (uint64_t)n * 4);
    for (uint32_t i = 0; i < n; i++) {
        block[i] = w->places[i].outcome;
    }
    for (uint32_t round = 0; round < EXL2__GRAMMAR_PRODUCT_ROUNDS_MAX && (round == 0 || blocks != before); round++) {
        before = blocks;
        blocks = 0;
        memset(w->slots, 0, (size_t)w->places_max * 8);
        for (uint32_t i = 0; i < n; i++) { /* a block's number is that of its first place */
            if (!w->places[i].node) {
                continue;
            }
            uint32_t at = exl2__grammar_product_hash(w, block, i) & mask;
            while (w->slots[at] && !exl2__grammar_product_equivalent(w, block, i, w->slots[at] - 1)) {
                at = (at + 1) & mask;
            }
            blocks += !w->slots[at];
            w->slots[at] = w->slots[at] ? w->slots[at] : i + 1;
            next[i] = w->slots[at] - 1;
        }
        memcpy(block, next, (size_t)n * 4);
    }
    for (uint32_t i = 0; i < n && blocks == before; i++) {
        w->places[i].same = w->places[i].node ? block[i] : i;
    }
    exl2__arena_close(g->c, &a);
}

/* Finds all places and their edges. Texts begin at place 0. false: no text is in all parts that must match, or an
   error. */
EXL2__PRIVATE bool exl2__grammar_product_walk(exl2__grammar_product *w)
{
    exl2__grammar_code *g = w->g;
    void *slots = NULL;
    bool dead = w->min > w->max;
    for (uint32_t i = 0; i < w->count && g->result == EXL2_OK; i++) {
        dead = dead || (w->parts[i].role == EXL2__GRAMMAR_PRODUCT_MUST && !w->parts[i].start);
    }
    if (g->result < 0 || dead || !exl2__grammar_product_room(w)) {
        return false;
    }
    g->result = exl2__alloc(g->c, (uint64_t)w->places_max * 8, 8, EXL2_MEM_GENERAL, &slots);
    if (g->result < 0) {
        return false;
    }
    w->slots = (uint32_t *)slots;
    memset(slots, 0, (size_t)w->places_max * 8);
    exl2__grammar_product_set_borders(w);
    for (uint32_t i = 0; i < exl2__grammar_product_width(w); i++) {
        w->tuples[i] = i < w->count ? w->parts[i].start : exl2__grammar_product_begins(w->parts[i - w->count].of);
    }
    exl2__grammar_product_place_of(w);
    for (uint32_t i = 0; i < w->place_count && g->result == EXL2_OK; i++) {
        exl2__grammar_product_add_edges(w, i);
    }
    return g->result == EXL2_OK;
}

/* Computes the product. Texts begin at place 0. false: the language is empty, or an error. */
EXL2__PRIVATE bool exl2__grammar_product_run(exl2__grammar_product *w)
{
    exl2__grammar_code *g = w->g;
    if (!exl2__grammar_product_walk(w)) {
        return false;
    }
    exl2__grammar_product_trim(w);
    if (g->result == EXL2_OK) {
        exl2__grammar_product_merge(w);
    }
    return g->result == EXL2_OK && w->places[0].node;
}

/* ---- writing the product as nodes ---- */

/* Node for one byte of low..high that leads to `target`, escaped for JSON if `escape`; 0: JSON has no short escape. */
EXL2__PRIVATE uint32_t exl2__grammar_product_byte(exl2__grammar_code *g, uint32_t low, uint32_t high, uint32_t target,
                                                  bool escape)
{
    static const char codes[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *code = escape && low && low < 0x80 ? strchr(codes, (int)low) : NULL;
    if (escape && !code && low < 0x20) {
        return 0;
    }
    exl2__grammar_code_piece byte = exl2__grammar_code_bytes(g, low, high);
    if (code) {
        char text[2] = { '\\', letters[code - codes] };
        byte = exl2__grammar_code_text(g, text, 2);
    }
    exl2__grammar_code_join(g, byte.last, target);
    return byte.first;
}

/* Node for bytes low..last that lead to `target`, with `node` as the alternative. */
EXL2__PRIVATE uint32_t exl2__grammar_product_emit_run(exl2__grammar_code *g, uint32_t low, uint32_t last,
                                                      uint32_t target, uint32_t node, bool escape)
{
    while (low <= last) {
        uint32_t high = last;
        if (escape) {
            bool alone = low < 0x20 || low == '"' || low == '\\';
            high = alone ? low : low < '"' ? exl2__min32(last, '"' - 1) : low < '\\' ? exl2__min32(last, '\\' - 1)
                : last;
        }
        uint32_t byte = exl2__grammar_product_byte(g, low, high, target, escape);
        node = byte && node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, byte, node) : byte ? byte : node;
        low = high + 1;
    }
    return node;
}

/* Like _emit_run, but reuses nodes that lead to the same places, because many places differ only in a few bytes. */
EXL2__PRIVATE uint32_t exl2__grammar_product_emit_shared(exl2__grammar_product *w, uint32_t low, uint32_t high,
                                                         uint32_t target, uint32_t node, bool escape)
{
    exl2__grammar_code *g = w->g;
    uint32_t mask = w->places_max * 2 - 1, hash = exl2__grammar_state_mix(low * 256 + high, target);
    uint32_t at = exl2__grammar_state_mix(hash, node) & mask;
    for (uint32_t tries = 0; tries < 8 && w->slots[at]; tries++, at = (at + 1) & mask) {
        const exl2__grammar_code_node *split = &g->nodes[w->slots[at]];
        const exl2__grammar_code_node *byte = node ? &g->nodes[split->next] : split;
        if ((!node || (split->kind == EXL2__GRAMMAR_CODE_SPLIT && split->other == node))
            && byte->kind == EXL2__GRAMMAR_CODE_BYTES && byte->low == low && byte->high == high
            && byte->next == target) {
            return w->slots[at];
        }
    }
    uint32_t made = exl2__grammar_product_emit_run(g, low, high, target, node, escape);
    w->slots[at] = made;
    return made;
}

/* Writes the product as nodes, without limits on the length. Sets the node of every place. `ends`: for each outcome,
   the node to which its texts lead, or 0. */
EXL2__PRIVATE void exl2__grammar_product_emit_all(exl2__grammar_product *w, const uint32_t *ends, bool escape)
{
    exl2__grammar_code *g = w->g;
    memset(w->slots, 0, (size_t)w->places_max * 8);
    for (uint32_t i = 0; i < w->place_count; i++) { /* `same` is never a later place */
        bool made = w->places[i].node && w->places[i].same == i;
        w->places[i].node = made ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_JUMP, 0, 0)
            : w->places[i].node ? w->places[w->places[i].same].node : 0;
    }
    for (uint32_t i = 0; i < w->place_count && g->result == EXL2_OK; i++) {
        const exl2__grammar_product_place *place = &w->places[i];
        const exl2__grammar_product_edge *edges = w->edges + place->edges;
        uint32_t end = place->outcome == EXL2__GRAMMAR_PRODUCT_NONE ? 0 : ends[place->outcome], node = 0;
        if (!place->node || place->same != i) {
            continue;
        }
        for (uint32_t k = place->edge_count; k-- > 0 && g->result == EXL2_OK;) {
            uint32_t low = edges[k].low, high = edges[k].high, target = w->places[edges[k].target].node;
            for (; k > 0 && edges[k - 1].high + 1u == low && w->places[edges[k - 1].target].node == target; k--) {
                low = edges[k - 1].low;
            }
            node = target ? exl2__grammar_product_emit_shared(w, low, high, target, node, escape) : node;
        }
        if (end) {
            node = node ? exl2__grammar_code_add(g, EXL2__GRAMMAR_CODE_SPLIT, end, node) : end;
        }
        node = node ? node : exl2__grammar_code_bytes(g, 1, 0).first; /* only bytes without a short escape */
        exl2__grammar_code_join(g, place->node, node);
    }
}

#endif
