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

typedef struct exl2__merges_reader {
    exl2__ctx *c;
    const exl2__json *j;
    const exl2__pieces *pieces;
    char *buffer; /* room for two strings of the file */
} exl2__merges_reader;

/* Last bytes, a bit each, of the left sides of merges whose right side begins with a space: what is before a space
   stays with it in a word when it ends in one of these, else nothing ever merges over the gap. */
typedef struct exl2__merges_gaps {
    uint32_t kept[8];
} exl2__merges_gaps;

/* The bytes of one merge: left, then right, in the reader's buffer. */
typedef struct exl2__merges_sides {
    size_t left, both;
    bool reachable; /* a side that merging cannot reach never comes about */
} exl2__merges_sides;

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

/* Fills `out`, which has room for every element of the list, and *gaps. `buffer` has room for any two strings of the
   file. */
static exl2_result exl2__merges_read(exl2__ctx *c, const exl2__json *j, const exl2__json_flat *list,
                                     const exl2__pieces *pieces, char *buffer, exl2__bpe *out, exl2__merges_gaps *gaps)
{
    exl2__json_walk walk;
    exl2__json_walk_begin(&walk, j, list);
    exl2__merges_reader r = { c, &walk.view, pieces, buffer };
    const exl2__json_token *t = &walk.tokens[1];
    uint32_t rank = 0, guess = 0;
    *gaps = (exl2__merges_gaps){ { 0 } };
    while (exl2__json_walk_next(&walk)) {
        exl2__merges_sides sides = { 0 };
        if (t->kind == EXL2__JSON_STRING && t->end - t->begin >= 8 && memcmp(j->text + t->begin, "#version", 8) == 0) {
            continue; /* a line of the text file that the list was made from */
        }
        EXL2__TRY(exl2__merges_sides_of(&r, 1, rank, &sides));
        exl2__bpe_merge merge = { exl2__pieces_find(pieces, buffer, sides.left),
                                  exl2__pieces_find(pieces, buffer + sides.left, sides.both - sides.left),
                                  exl2__merges_result(pieces, buffer, sides.both, guess) };
        guess = merge.id;
        bool sides_known = merge.left != EXL2__PIECES_NONE && merge.right != EXL2__PIECES_NONE;
        if (sides.reachable && (!sides_known || merge.id == EXL2__PIECES_NONE)) {
            return exl2__fail(c, EXL2_ERR_FORMAT,
                              EXL2__MERGES_LABEL " %u (%.*s) needs a token that model.vocab lacks", rank,
                              (int)exl2__min32(t->end - t->begin, 80), j->text + t->begin);
        }
        if (sides.reachable && !exl2__bpe_add(out, rank, merge)) {
            return exl2__fail(c, EXL2_ERR_FORMAT, EXL2__MERGES_LABEL "s up to %u were made to collide", rank);
        }
        if (sides.left && sides.both > sides.left && buffer[sides.left] == ' ') {
            uint8_t last = (uint8_t)buffer[sides.left - 1];
            gaps->kept[last >> 5] |= 1u << (last & 31);
        }
        rank++;
    }
    return exl2__json_walk_end(c, "tokenizer.json", &walk);
}

#endif
