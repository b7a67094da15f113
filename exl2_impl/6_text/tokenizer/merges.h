/* merges.h: reads model.merges of tokenizer.json into the table of merges.
   takes: the parsed file, pieces that can be looked up by their bytes.
   gives: exl2__merges_reader, exl2__merges_begin, exl2__merges_slice. */
#ifndef EXL2__MERGES_H
#define EXL2__MERGES_H

#include "../../0_base/json/json.h"
#include "bpe.h"
#include "pieces.h"

#define EXL2__MERGES_LABEL "tokenizer.json: merge"

#define EXL2__MERGES_WAITING 32
#define EXL2__MERGES_SHORT 48 /* bytes of the longest merge that can wait */

/* A merge that waits while memory it needs is prefetched into the cache. */
typedef struct exl2__merges_entry {
    const char *text;      /* left, then right */
    size_t left, both;     /* bytes of the left side, and of both */
    uint64_t hashes[2];    /* hash of each side */
    uint32_t likely[2];    /* likely id of each side, judged by its hash only */
    uint32_t begin, end;   /* its place in the file */
    exl2__bpe_merge merge;
    bool reachable;        /* false: merging can never produce one of the sides */
    char own[8 + EXL2__MERGES_SHORT + 8]; /* text that waits begins at own[8] */
} exl2__merges_entry;

/* Bit b is set if some merge has a left side that ends with byte b and a right side that begins with a space. Only
   after such a byte can text merge across a space; after any other byte it may be cut there. */
typedef struct exl2__merges_gaps {
    uint32_t kept[8];
} exl2__merges_gaps;

typedef struct exl2__merges_reader {
    exl2__ctx *c;
    exl2__json_walk walk;
    const exl2__json *j; /* the element of the list at which `walk` is */
    const exl2__pieces *pieces;
    char *buffer; /* room for two strings of the file and 16 bytes; the 8 bytes before it are readable */
    exl2__bpe *out;
    exl2__merges_gaps *gaps;
    uint32_t rank, guess; /* rank of the next merge, and a guess of its result's id */
    uint32_t count;
    exl2__merges_entry waiting[EXL2__MERGES_WAITING];
} exl2__merges_reader;

/* Reads a merge of the file, "a b" or ["a", "b"], into *e. The bytes of a long merge go to r->buffer. */
static inline exl2_result exl2__merges_load(exl2__merges_reader *r, uint32_t token, exl2__merges_entry *e)
{
    const exl2__json_token *t = &r->j->tokens[token];
    char *raw = r->buffer + 8; /* loading the left side may overwrite the 8 bytes before */
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0, bytes = 0;
    if (t->kind == EXL2__JSON_STRING) {
        left = exl2__json_view(r->j, token, raw, &bytes);
        const char *space = bytes ? (const char *)memchr(left, ' ', bytes) : NULL;
        if (space) {
            left_bytes = (size_t)(space - left);
            bytes -= left_bytes + 1;
            right = memchr(space + 1, ' ', bytes) ? NULL : space + 1;
        }
    } else if (t->kind == EXL2__JSON_ARRAY && t->count == 2 && t[1].kind == EXL2__JSON_STRING &&
               t[2].kind == EXL2__JSON_STRING && t[1].end > t[1].begin) {
        left = exl2__json_view(r->j, token + 1, raw, &left_bytes);
        right = exl2__json_view(r->j, token + 2, raw + left_bytes, &bytes);
    }
    if (!right) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__MERGES_LABEL " %u is neither \"A B\" nor [\"A\", \"B\"] of two tokens A and B",
                          r->rank + r->count);
    }
    uint8_t left_kind, right_kind;
    char *out = left_bytes + bytes <= EXL2__MERGES_SHORT ? e->own + 8 : r->buffer;
    e->text = out;
    e->begin = t->begin;
    e->end = t->end;
    e->left = exl2__pieces_load(r->pieces, out, left, left_bytes, &left_kind);
    e->both = e->left + exl2__pieces_load(r->pieces, out + e->left, right, bytes, &right_kind);
    e->reachable = (left_kind & right_kind & EXL2__PIECES_BYTES) != 0;
    return EXL2_OK;
}

/* exl2__pieces_hash and exl2__pieces_is for text of which the eight bytes before its end are readable, even if it is
   shorter. They are faster when lengths vary. */
static inline uint64_t exl2__merges_hash(const char *text, size_t bytes)
{
    size_t tail = bytes & 7;
    return exl2__pieces_mix(text, bytes, tail ? exl2__eight_before(text + bytes, tail) : 0);
}

static inline bool exl2__merges_is(const exl2__pieces *p, uint32_t id, const char *text, size_t bytes)
{
    const char *piece = p->text + p->starts[id];
    return p->starts[id + 1] - p->starts[id] == bytes &&
           (bytes - 1 < 8 ? exl2__eight_before(piece + bytes, bytes) == exl2__eight_before(text + bytes, bytes)
                          : exl2__eight_same(piece, text, bytes));
}

/* Id of the piece with this text. Files list merges in the order of their results, so that it often is `guess` or the
   id after `guess`. */
static inline uint32_t exl2__merges_result(const exl2__pieces *p, const char *text, size_t bytes, uint32_t guess)
{
    for (uint32_t id = guess; id < p->count && id <= guess + 1; id++) {
        if ((p->flags[id] & EXL2__PIECES_BYTES) && exl2__merges_is(p, id, text, bytes)) {
            return id;
        }
    }
    return exl2__pieces_find(p, text, bytes);
}

/* Id of the side (0 left, 1 right) with the text text[0 .. bytes). */
static inline uint32_t exl2__merges_side(const exl2__pieces *p, const exl2__merges_entry *e, int side, const char *text,
                                         size_t bytes)
{
    uint32_t id = e->likely[side];
    return id != EXL2__PIECES_NONE && exl2__merges_is(p, id, text, bytes)
         ? id : exl2__pieces_at(p, text, bytes, e->hashes[side]);
}

static inline exl2_result exl2__merges_find(exl2__merges_reader *r, exl2__merges_entry *e, uint32_t rank)
{
    const exl2__pieces *p = r->pieces;
    e->merge.left = exl2__merges_side(p, e, 0, e->text, e->left);
    e->merge.right = exl2__merges_side(p, e, 1, e->text + e->left, e->both - e->left);
    e->merge.id = r->guess = exl2__merges_result(p, e->text, e->both, r->guess);
    bool known = e->merge.left != EXL2__PIECES_NONE && e->merge.right != EXL2__PIECES_NONE &&
                 e->merge.id != EXL2__PIECES_NONE;
    if (e->reachable && !known) {
        return exl2__fail(r->c, EXL2_ERR_FORMAT,
                          EXL2__MERGES_LABEL " %u (%.*s) needs a token that is not in model.vocab", rank,
                          (int)exl2__min32(e->end - e->begin, 80), r->j->text + e->begin);
    }
    if (e->left && e->both > e->left && e->text[e->left] == ' ') {
        uint8_t last = (uint8_t)e->text[e->left - 1];
        r->gaps->kept[last >> 5] |= 1u << (last & 31);
    }
    EXL2__PREFETCH(&r->out->slots[exl2__bpe_hash(e->merge.left, e->merge.right) & r->out->mask]);
    return EXL2_OK;
}

/* Adds the waiting merges to the table, in five loops: the first four prefetch what the next one reads. Otherwise most
   of the time would be memory latency. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__merges_flush(exl2__merges_reader *r)
{
    const exl2__pieces *p = r->pieces;
    uint32_t count = r->count;
    r->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        exl2__merges_entry *e = &r->waiting[i];
        e->hashes[0] = exl2__merges_hash(e->text, e->left);
        e->hashes[1] = exl2__merges_hash(e->text + e->left, e->both - e->left);
        EXL2__PREFETCH(&p->slots[(uint32_t)e->hashes[0] & p->mask]);
        EXL2__PREFETCH(&p->slots[(uint32_t)e->hashes[1] & p->mask]);
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        exl2__merges_entry *e = &r->waiting[i / 2];
        e->likely[i & 1] = exl2__pieces_likely(p, e->hashes[i & 1]);
        EXL2__PREFETCH(&p->starts[exl2__min32(e->likely[i & 1], p->count)]);
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        EXL2__PREFETCH(p->text + p->starts[exl2__min32(r->waiting[i / 2].likely[i & 1], p->count)]);
    }
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__merges_find(r, &r->waiting[i], r->rank + i));
    }
    for (uint32_t i = 0; i < count; i++, r->rank++) {
        if (r->waiting[i].reachable && !exl2__bpe_add(r->out, r->rank, r->waiting[i].merge)) {
            return exl2__fail(r->c, EXL2_ERR_FORMAT,
                              EXL2__MERGES_LABEL "s: too many up to merge %u have the same hash", r->rank);
        }
    }
    return EXL2_OK;
}

/* Begins to read the list of merges into `out`, which has room for every element, and into *gaps. `buffer` has room for
   any two strings of the file and 16 bytes, and the 8 bytes before it are readable. */
static inline void exl2__merges_begin(exl2__merges_reader *r, exl2__ctx *c, const exl2__json *j,
                                      const exl2__json_flat *list, const exl2__pieces *pieces, char *buffer,
                                      exl2__bpe *out, exl2__merges_gaps *gaps)
{
    exl2__json_walk_begin(&r->walk, j, list);
    r->c = c;
    r->j = &r->walk.view;
    r->pieces = pieces;
    r->buffer = buffer;
    r->out = out;
    r->gaps = gaps;
    r->rank = r->guess = r->count = 0;
    *gaps = (exl2__merges_gaps){ { 0 } };
}

/* Reads on, in slices. */
EXL2__HOT
EXL2__PRIVATE exl2_result exl2__merges_slice(exl2__merges_reader *r, exl2__work *work)
{
    const exl2__json_token *t = &r->walk.tokens[1];
    while (exl2__work_spend(work, 200)) {
        if (!exl2__json_walk_next(&r->walk)) {
            EXL2__TRY(exl2__merges_flush(r));
            return exl2__json_walk_end(r->c, "tokenizer.json", &r->walk);
        }
        bool text = t->kind == EXL2__JSON_STRING && t->end - t->begin >= 8;
        if (text && memcmp(r->j->text + t->begin, "#version", 8) == 0) {
            continue; /* the first line of merges.txt, from which the list was made */
        }
        exl2__merges_entry *e = &r->waiting[r->count];
        EXL2__TRY(exl2__merges_load(r, 1, e));
        r->count++;
        if (r->count == EXL2__MERGES_WAITING || e->text == r->buffer) {
            EXL2__TRY(exl2__merges_flush(r));
        }
    }
    return EXL2_PENDING;
}

#endif
