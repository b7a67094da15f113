/* merges.h: model.merges of tokenizer.json -> the table that words are merged with.
   takes: the parsed file, pieces that can be found by their bytes.
   gives: exl2__merges_read.
   owns:  nothing.
   next:  added.h */
#ifndef EXL2__MERGES_H
#define EXL2__MERGES_H

#include "../1_load/json.h"
#include "bpe.h"
#include "pieces.h"

#define EXL2__MERGES_LABEL "tokenizer.json: merge"

/* The bytes of one merge: left, then right. */
typedef struct exl2__merges_sides {
    size_t left, both;
    bool reachable; /* a side that merging cannot reach never comes about */
} exl2__merges_sides;

#define EXL2__MERGES_WAITING 16
#define EXL2__MERGES_SHORT 48 /* bytes of a merge that can wait */

/* A merge whose memory is on its way into the cache. */
typedef struct exl2__merges_entry {
    exl2__merges_sides sides;
    const char *text;
    uint32_t begin, end;   /* in the file */
    uint32_t slots[2];     /* where finding the sides begins */
    exl2__bpe_merge merge;
    char own[EXL2__MERGES_SHORT];
} exl2__merges_entry;

/* Last bytes, a bit each, of the left sides of merges whose right side begins with a space: what is before a space
   stays with it in a word when it ends in one of these, else nothing ever merges over the gap. */
typedef struct exl2__merges_gaps {
    uint32_t kept[8];
} exl2__merges_gaps;

typedef struct exl2__merges_reader {
    exl2__ctx *c;
    const exl2__json *j;
    const exl2__pieces *pieces;
    char *buffer; /* room for two strings of the file */
    exl2__bpe *out;
    exl2__merges_gaps *gaps;
    uint32_t rank, guess; /* of the next one: its rank, and perhaps its id */
    uint32_t count;
    exl2__merges_entry waiting[EXL2__MERGES_WAITING];
} exl2__merges_reader;

/* Where the right side begins in the buffer, and where it ends; 0 = malformed. */
static inline size_t exl2__merges_load(const exl2__merges_reader *r, uint32_t token, size_t *left, size_t *end)
{
    const exl2__json_token *t = &r->j->tokens[token];
    if (t->kind == EXL2__JSON_ARRAY) { /* ["a", "b"] */
        uint32_t a = exl2__json_first(r->j, token), b = a ? exl2__json_next(r->j, token, a) : 0;
        if (t->count != 2 || r->j->tokens[a].kind != EXL2__JSON_STRING || r->j->tokens[b].kind != EXL2__JSON_STRING) {
            return 0;
        }
        *left = exl2__json_text(r->j, a, r->buffer, SIZE_MAX);
        *end = *left + exl2__json_text(r->j, b, r->buffer + *left, SIZE_MAX);
        return *left;
    }
    *end = exl2__json_text(r->j, token, r->buffer, SIZE_MAX); /* "a b" */
    const char *space = *end ? (const char *)memchr(r->buffer, ' ', *end) : NULL;
    *left = space ? (size_t)(space - r->buffer) : 0;
    return space && !memchr(space + 1, ' ', *end - *left - 1) ? *left + 1 : 0;
}

static inline exl2_result exl2__merges_sides_of(const exl2__merges_reader *r, uint32_t token, uint32_t rank,
                                                exl2__merges_sides *out)
{
    uint8_t left_kind, right_kind;
    size_t left = 0, end = 0, begin = exl2__merges_load(r, token, &left, &end);
    if (begin == 0) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__MERGES_LABEL " %u is neither two tokens and a space nor a list of two", rank);
    }
    size_t right = exl2__pieces_load(r->pieces, r->buffer + begin, end - begin, &right_kind);
    out->left = exl2__pieces_load(r->pieces, r->buffer, left, &left_kind);
    memmove(r->buffer + out->left, r->buffer + begin, right);
    out->both = out->left + right;
    out->reachable = (left_kind & right_kind & EXL2__PIECES_BYTES) != 0;
    return EXL2_OK;
}

/* Id of the piece that reads so; files list merges by what they make, so it often is `guess` or the id after it. */
static inline uint32_t exl2__merges_result(const exl2__pieces *p, const char *text, size_t bytes, uint32_t guess)
{
    for (uint32_t id = guess; id < p->count && id <= guess + 1; id++) {
        if ((p->flags[id] & EXL2__PIECES_BYTES) && p->starts[id + 1] - p->starts[id] == bytes &&
            memcmp(p->text + p->starts[id], text, bytes) == 0) {
            return id;
        }
    }
    return exl2__pieces_find(p, text, bytes);
}

static inline exl2_result exl2__merges_find(exl2__merges_reader *r, exl2__merges_entry *e, uint32_t rank)
{
    const exl2__pieces *p = r->pieces;
    const exl2__merges_sides *s = &e->sides;
    e->merge.left = exl2__pieces_find(p, e->text, s->left);
    e->merge.right = exl2__pieces_find(p, e->text + s->left, s->both - s->left);
    e->merge.id = r->guess = exl2__merges_result(p, e->text, s->both, r->guess);
    bool known = e->merge.left != EXL2__PIECES_NONE && e->merge.right != EXL2__PIECES_NONE &&
                 e->merge.id != EXL2__PIECES_NONE;
    if (s->reachable && !known) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__MERGES_LABEL " %u (%.*s) needs a token that model.vocab lacks",
                          rank, (int)exl2__min32(e->end - e->begin, 80), r->j->text + e->begin);
    }
    if (s->left && s->both > s->left && e->text[s->left] == ' ') {
        uint8_t last = (uint8_t)e->text[s->left - 1];
        r->gaps->kept[last >> 5] |= 1u << (last & 31);
    }
    EXL2__PREFETCH(&r->out->slots[exl2__bpe_hash(e->merge.left, e->merge.right) & r->out->mask]);
    return EXL2_OK;
}

/* Adds those that wait. What each step reads was asked for in the one before: else the memory's delay is most of the
   time that reading takes. */
EXL2__HOT
static exl2_result exl2__merges_flush(exl2__merges_reader *r)
{
    const exl2__pieces *p = r->pieces;
    uint32_t count = r->count;
    r->count = 0;
    for (uint32_t i = 0; i < 2 * count; i++) {
        uint32_t *at = &r->waiting[i / 2].slots[i & 1], slot = p->slots[*at];
        *at = slot ? EXL2__PIECES_ID(slot) : 0;
        EXL2__PREFETCH(&p->starts[*at]);
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        EXL2__PREFETCH(p->text + p->starts[r->waiting[i / 2].slots[i & 1]]);
    }
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__merges_find(r, &r->waiting[i], r->rank + i));
    }
    for (uint32_t i = 0; i < count; i++, r->rank++) {
        if (r->waiting[i].sides.reachable && !exl2__bpe_add(r->out, r->rank, r->waiting[i].merge)) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT, EXL2__MERGES_LABEL "s up to %u were made to collide", r->rank);
        }
    }
    return EXL2_OK;
}

/* The merge in r->buffer. */
static inline exl2_result exl2__merges_put(exl2__merges_reader *r, exl2__merges_sides sides,
                                           const exl2__json_token *t)
{
    const exl2__pieces *p = r->pieces;
    bool waits = sides.both <= EXL2__MERGES_SHORT;
    if (!waits) {
        EXL2__TRY(exl2__merges_flush(r));
    }
    exl2__merges_entry *e = &r->waiting[r->count++];
    e->sides = sides;
    e->text = waits ? e->own : r->buffer;
    e->begin = t->begin;
    e->end = t->end;
    e->slots[0] = (uint32_t)exl2__pieces_hash(r->buffer, sides.left) & p->mask;
    e->slots[1] = (uint32_t)exl2__pieces_hash(r->buffer + sides.left, sides.both - sides.left) & p->mask;
    EXL2__PREFETCH(&p->slots[e->slots[0]]);
    EXL2__PREFETCH(&p->slots[e->slots[1]]);
    if (waits) {
        memcpy(e->own, r->buffer, sides.both);
    }
    return waits && r->count < EXL2__MERGES_WAITING ? EXL2_OK : exl2__merges_flush(r);
}

/* Fills `out`, which has room for every element of the list, and *gaps. `buffer` has room for any two strings of the
   file. */
EXL2__HOT
static exl2_result exl2__merges_read(exl2__ctx *c, const exl2__json *j, const exl2__json_flat *list,
                                     const exl2__pieces *pieces, char *buffer, exl2__bpe *out, exl2__merges_gaps *gaps)
{
    exl2__json_walk walk;
    exl2__json_walk_begin(&walk, j, list);
    exl2__merges_reader r;
    r.c = c;
    r.j = &walk.view;
    r.pieces = pieces;
    r.buffer = buffer;
    r.out = out;
    r.gaps = gaps;
    r.rank = r.guess = r.count = 0;
    const exl2__json_token *t = &walk.tokens[1];
    *gaps = (exl2__merges_gaps){ { 0 } };
    while (exl2__json_walk_next(&walk)) {
        exl2__merges_sides sides = { 0 };
        if (t->kind == EXL2__JSON_STRING && t->end - t->begin >= 8 && memcmp(j->text + t->begin, "#version", 8) == 0) {
            continue; /* a line of the text file that the list was made from */
        }
        EXL2__TRY(exl2__merges_sides_of(&r, 1, r.rank + r.count, &sides));
        EXL2__TRY(exl2__merges_put(&r, sides, t));
    }
    EXL2__TRY(exl2__merges_flush(&r));
    return exl2__json_walk_end(c, "tokenizer.json", &walk);
}

#endif
