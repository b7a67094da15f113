/* grammar_vocab.h: a model's tokens as byte tries, one trie per group. A group says what its tokens are inside a JSON
   string. With it goes a trie of the tokens' shapes. The table is built once per model.
   takes: a vocabulary, which must outlive the table.
   gives: exl2__grammar_vocab, exl2__grammar_vocab_open, _close, _find, _hash, _kind; exl2__grammar_vocab_maker and
          _make_begin, _make_slice, _make_end, which work in slices.
   owns:  one block, from open to close; a list of tokens until _make_end. */
#ifndef EXL2__GRAMMAR_VOCAB_H
#define EXL2__GRAMMAR_VOCAB_H

#include "../tokenizer/vocab.h"
#include "grammar_shapes.h"

#define EXL2__GRAMMAR_VOCAB_NONE UINT32_MAX
#define EXL2__GRAMMAR_VOCAB_BYTES_MAX 255u /* longer tokens are never allowed */
#define EXL2__GRAMMAR_VOCAB_FIND_MAX 16u   /* bytes of the longest token that _find can find */
#define EXL2__GRAMMAR_VOCAB_SHORT 16u      /* most characters of a short TEXT token */
#define EXL2__GRAMMAR_VOCAB_LONG 32u       /* most characters of a token in group TEXT32 */
#define EXL2__GRAMMAR_VOCAB_CHARS 31u   /* kinds of characters: exl2__grammar_vocab_kind */
#define EXL2__GRAMMAR_VOCAB_BLOCK 16u   /* words of masks that are computed at once, so that compilers use vectors */
#define EXL2__GRAMMAR_VOCAB_LENGTHS 18u    /* length classes of TEXT: 1, 2 ... SHORT characters; up to LONG; more */

/* TEXT tokens consist of whole characters that a JSON string holds unescaped; they are most of a vocabulary, and they
   are grouped by their number of characters. CONTROL tokens: such characters, then a control character. OTHER tokens:
   the first character that is not TEXT is a quote, a backslash or a part of a character. The groups from TEXT32 on hold
   long tokens: TEXT of more than SHORT characters, and tokens of the other kinds of more than SHORT bytes. */
typedef enum exl2__grammar_vocab_group {
    EXL2__GRAMMAR_VOCAB_TEXT4, /* 1..4 characters */
    EXL2__GRAMMAR_VOCAB_TEXT8,
    EXL2__GRAMMAR_VOCAB_TEXT16,
    EXL2__GRAMMAR_VOCAB_CONTROL,
    EXL2__GRAMMAR_VOCAB_OTHER,
    EXL2__GRAMMAR_VOCAB_TEXT32,
    EXL2__GRAMMAR_VOCAB_TEXT,  /* more than LONG characters */
    EXL2__GRAMMAR_VOCAB_OTHER_LONG,
    EXL2__GRAMMAR_VOCAB_GROUPS
} exl2__grammar_vocab_group;

/* Nodes are stored in depth-first order: the nodes below a node follow it and end before `skip`. */
typedef struct exl2__grammar_vocab_node {
    uint32_t skip;
    uint32_t token; /* NONE: no token ends here. Tokens with equal bytes each have their own last node */
    uint8_t byte, depth; /* the first byte of a token has depth 1 */
} exl2__grammar_vocab_node;

typedef struct exl2__grammar_vocab {
    const exl2__vocab *vocab;
    exl2__grammar_vocab_node *nodes;
    uint32_t begin[EXL2__GRAMMAR_VOCAB_GROUPS + 1];
    uint32_t *masks[EXL2__GRAMMAR_VOCAB_LENGTHS]; /* [words] TEXT tokens up to each length class */
    uint32_t *with[EXL2__GRAMMAR_VOCAB_CHARS]; /* [words] TEXT tokens with characters of each kind */
    uint32_t *longs[2];  /* [words] tokens of the groups from TEXT32 on; tokens of the groups from TEXT on */
    exl2__grammar_shapes shapes; /* the same tokens by the shapes of their texts */
    uint32_t longest;    /* bytes of the longest token */
    uint32_t *slots, slot_mask;                   /* hash table of tokens up to FIND_MAX bytes: id + 1 */
    uint32_t words;                               /* words of a mask: one bit per id, 32 bits per word; whole blocks */
    exl2__arena memory;
} exl2__grammar_vocab;

typedef struct exl2__grammar_vocab_item {
    uint64_t prefix; /* first eight bytes; the first byte is the most significant */
    const char *text;
    uint32_t id;
    uint8_t bytes, group, length;
} exl2__grammar_vocab_item;

/* The kind of a TEXT character that has this byte, an index into exl2__grammar_vocab.with: each of a to z, A to Z,
   digits, space, the rest of ASCII, all others. */
static inline uint32_t exl2__grammar_vocab_kind(uint8_t byte)
{
    return byte >= 'a' && byte <= 'z' ? byte - 97u : byte >= 'A' && byte <= 'Z' ? 26u
         : byte >= '0' && byte <= '9' ? 27u : byte == ' ' ? 28u : byte < 0x80 ? 29u : 30u;
}

/* *length: for TEXT tokens the index into `masks` plus 1, otherwise 0. */
EXL2__PRIVATE uint8_t exl2__grammar_vocab_group_of(const char *text, size_t bytes, uint8_t *length)
{
    uint32_t count = 0, code;
    bool is_long = bytes > EXL2__GRAMMAR_VOCAB_SHORT;
    *length = 0;
    for (size_t at = 0; at < bytes; count++) {
        at += exl2__unicode_next(text + at, bytes - at, &code);
        if (code >= EXL2__UNICODE_BAD || code == '"' || code == '\\' || code < 0x20) {
            return is_long ? EXL2__GRAMMAR_VOCAB_OTHER_LONG : code < 0x20 ? EXL2__GRAMMAR_VOCAB_CONTROL
                : EXL2__GRAMMAR_VOCAB_OTHER;
        }
    }
    bool longest = count > EXL2__GRAMMAR_VOCAB_LONG;
    *length = (uint8_t)(exl2__min32(count, EXL2__GRAMMAR_VOCAB_SHORT + 1) + longest);
    return count <= 4 ? EXL2__GRAMMAR_VOCAB_TEXT4 : count <= 8 ? EXL2__GRAMMAR_VOCAB_TEXT8
        : count <= EXL2__GRAMMAR_VOCAB_SHORT ? EXL2__GRAMMAR_VOCAB_TEXT16
        : longest ? EXL2__GRAMMAR_VOCAB_TEXT : EXL2__GRAMMAR_VOCAB_TEXT32;
}

EXL2__PRIVATE bool exl2__grammar_vocab_less(const void *items, uint32_t left, uint32_t right)
{
    const exl2__grammar_vocab_item *a = (const exl2__grammar_vocab_item *)items + left;
    const exl2__grammar_vocab_item *b = (const exl2__grammar_vocab_item *)items + right;
    if (a->group != b->group) {
        return a->group < b->group;
    }
    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix;
    }
    int order = memcmp(a->text, b->text, a->bytes < b->bytes ? a->bytes : b->bytes);
    return order ? order < 0 : a->bytes != b->bytes ? a->bytes < b->bytes : a->id < b->id;
}

EXL2__PRIVATE void exl2__grammar_vocab_swap(void *items, uint32_t a, uint32_t b)
{
    exl2__grammar_vocab_item *list = (exl2__grammar_vocab_item *)items, item = list[a];
    list[a] = list[b];
    list[b] = item;
}

/* One step of the hash that _find needs; the hash starts at 0. */
static inline uint64_t exl2__grammar_vocab_hash(uint64_t hash, uint8_t byte)
{
    return (hash + byte + 1) * 0x9E3779B97F4A7C15u;
}

/* banned: bits of tokens, or NULL. */
static inline bool exl2__grammar_vocab_is_banned(const uint32_t *banned, uint32_t token)
{
    return banned && banned[token / 32] >> (token & 31) & 1;
}

/* Is there a token with these bytes that is not banned? `hash` is their hash. */
static inline bool exl2__grammar_vocab_find(const exl2__grammar_vocab *v, uint64_t hash, const char *text,
                                            size_t bytes, const uint32_t *banned)
{
    uint32_t at = (uint32_t)(hash >> 32) & v->slot_mask;
    for (; v->slots[at]; at = (at + 1) & v->slot_mask) {
        size_t size;
        const char *piece = exl2__pieces_text(&v->vocab->pieces, v->slots[at] - 1, &size);
        if (size == bytes && memcmp(piece, text, bytes) == 0
            && !exl2__grammar_vocab_is_banned(banned, v->slots[at] - 1)) {
            return true;
        }
    }
    return false;
}

/* Enters a token into the hash table. After 16 occupied slots the token is left out: only estimates depend on _find. */
EXL2__PRIVATE void exl2__grammar_vocab_remember(exl2__grammar_vocab *v, const exl2__grammar_vocab_item *item)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < item->bytes; i++) {
        hash = exl2__grammar_vocab_hash(hash, (uint8_t)item->text[i]);
    }
    uint32_t at = (uint32_t)(hash >> 32) & v->slot_mask;
    for (uint32_t tries = 0; tries < 16; tries++, at = (at + 1) & v->slot_mask) {
        if (v->slots[at] == 0) {
            v->slots[at] = item->id + 1;
            return;
        }
    }
}

EXL2__PRIVATE uint32_t exl2__grammar_vocab_shared(const exl2__grammar_vocab_item *a, const exl2__grammar_vocab_item *b)
{
    uint32_t shared = 0;
    if (a->group == b->group) {
        while (shared < a->bytes && shared < b->bytes && a->text[shared] == b->text[shared]) {
            shared++;
        }
    }
    return shared;
}

/* Closes all nodes of the path but the first `keep`: their subtrees end before `node`. */
EXL2__PRIVATE void exl2__grammar_vocab_end(exl2__grammar_vocab *v, const uint32_t *path, uint32_t *depth, uint32_t keep,
                                           uint32_t node)
{
    for (; *depth > keep; --*depth) {
        v->nodes[path[*depth - 1]].skip = node;
    }
}

/* The state of making the table. It works in stages, each of them in slices. */
typedef struct exl2__grammar_vocab_maker {
    exl2__ctx *c;
    exl2__grammar_vocab *v;
    exl2__grammar_vocab_item *items; /* [vocab->id_count] of which `count` are filled in */
    uint32_t stage, count, nodes;
    uint64_t at;           /* position in the stage, 0 at its begin: an id, an item, a byte, a word */
    uint32_t node, group;  /* the next node, and its group */
    uint32_t depth, path[EXL2__GRAMMAR_VOCAB_BYTES_MAX]; /* the nodes of the last token */
    exl2__grammar_shapes_maker shapes;
} exl2__grammar_vocab_maker;

/* Lists the tokens. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_list(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    const exl2__vocab *vocab = m->v->vocab;
    for (; m->at < vocab->id_count; m->at++) {
        uint32_t id = (uint32_t)m->at;
        size_t bytes;
        bool special;
        if (!exl2__work_spend(work, 100)) {
            return EXL2_PENDING;
        }
        const char *text = exl2__vocab_piece(vocab, (exl2_token)id, &bytes, &special);
        if (!text || special || bytes == 0 || bytes > EXL2__GRAMMAR_VOCAB_BYTES_MAX) {
            continue;
        }
        exl2__grammar_vocab_item *item = &m->items[m->count++];
        item->prefix = 0;
        for (uint32_t i = 0; i < 8; i++) {
            item->prefix = item->prefix << 8 | (i < bytes ? (uint8_t)text[i] : 0);
        }
        item->text = text;
        item->id = id;
        item->bytes = (uint8_t)bytes;
        item->group = exl2__grammar_vocab_group_of(text, bytes, &item->length);
        exl2__grammar_shapes_find(&m->shapes, text, (uint32_t)bytes, item->length == 0, id);
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_sort(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    exl2__sort_items order = { m->items, exl2__grammar_vocab_less, exl2__grammar_vocab_swap };
    uint32_t at = (uint32_t)m->at;
    exl2_result result = exl2__sort_slice(&order, m->count, &at, work);
    m->at = at;
    return result;
}

/* With a dry arena this only counts bytes; otherwise its memory is zeroed already. */
EXL2__PRIVATE void exl2__grammar_vocab_layout(exl2__grammar_vocab_maker *m, exl2__arena *a)
{
    exl2__grammar_vocab *v = m->v;
    v->nodes = (exl2__grammar_vocab_node *)exl2__arena_alloc(a, (uint64_t)m->nodes * sizeof *v->nodes);
    v->slots = (uint32_t *)exl2__arena_alloc(a, ((uint64_t)v->slot_mask + 1) * sizeof *v->slots);
    for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_LENGTHS + 2; i++) {
        uint32_t **mask = i < EXL2__GRAMMAR_VOCAB_LENGTHS ? &v->masks[i] : &v->longs[i - EXL2__GRAMMAR_VOCAB_LENGTHS];
        *mask = (uint32_t *)exl2__arena_alloc(a, (uint64_t)v->words * sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < EXL2__GRAMMAR_VOCAB_CHARS; i++) {
        v->with[i] = (uint32_t *)exl2__arena_alloc(a, (uint64_t)v->words * sizeof(uint32_t));
    }
    exl2__grammar_shapes_make_layout(&m->shapes, m->count, a, &v->shapes);
}

/* Counts the nodes, and allocates the table. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_count(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    exl2__grammar_vocab *v = m->v;
    for (; m->at < m->count; m->at++) {
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        const exl2__grammar_vocab_item *item = &m->items[m->at];
        uint32_t shared = m->at ? exl2__grammar_vocab_shared(item - 1, item) : 0;
        m->nodes += item->bytes - shared + (shared == item->bytes);
    }
    for (v->slot_mask = 63; v->slot_mask < 2 * m->count; v->slot_mask = v->slot_mask * 2 + 1) {
    }
    exl2__arena dry = { 0 };
    exl2__grammar_vocab_layout(m, &dry);
    return exl2__arena_open(m->c, &v->memory, dry.used, EXL2_MEM_GENERAL);
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_clear(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__arena_clear(&m->v->memory, &m->at, work));
    exl2__grammar_vocab_layout(m, &m->v->memory);
    return EXL2_OK;
}

/* Appends the nodes of the next token, of which those of the last token's prefix exist. */
EXL2__PRIVATE void exl2__grammar_vocab_add(exl2__grammar_vocab_maker *m, const exl2__grammar_vocab_item *item,
                                           bool first)
{
    exl2__grammar_vocab *v = m->v;
    uint32_t shared = first ? 0 : exl2__grammar_vocab_shared(item - 1, item);
    shared -= shared == item->bytes; /* a token with equal bytes gets its own last node */
    exl2__grammar_vocab_end(v, m->path, &m->depth, shared, m->node);
    for (; m->group < item->group; m->group++) {
        v->begin[m->group + 1] = m->node;
    }
    for (; m->depth < item->bytes; m->node++) {
        exl2__grammar_vocab_node n = { 0, EXL2__GRAMMAR_VOCAB_NONE, (uint8_t)item->text[m->depth],
                                       (uint8_t)(m->depth + 1) };
        v->nodes[m->node] = n;
        m->path[m->depth++] = m->node;
    }
    v->nodes[m->node - 1].token = item->id;
    uint32_t bit = 1u << item->id % 32, word = item->id / 32;
    if (item->length) {
        v->masks[item->length - 1][word] |= bit;
    }
    for (uint32_t i = 0; i < item->bytes && item->length; i++) {
        v->with[exl2__grammar_vocab_kind((uint8_t)item->text[i])][word] |= bit;
    }
    v->longs[0][word] |= item->group >= EXL2__GRAMMAR_VOCAB_TEXT32 ? bit : 0;
    v->longs[1][word] |= item->group >= EXL2__GRAMMAR_VOCAB_TEXT ? bit : 0;
    v->longest = exl2__max32(v->longest, item->bytes);
    if (item->bytes <= EXL2__GRAMMAR_VOCAB_FIND_MAX) {
        exl2__grammar_vocab_remember(v, item);
    }
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_fill(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    for (; m->at < m->count; m->at++) {
        if (!exl2__work_spend(work, 80)) {
            return EXL2_PENDING;
        }
        exl2__grammar_vocab_add(m, &m->items[m->at], m->at == 0);
    }
    exl2__grammar_vocab_end(m->v, m->path, &m->depth, 0, m->node);
    for (; m->group < EXL2__GRAMMAR_VOCAB_GROUPS; m->group++) {
        m->v->begin[m->group + 1] = m->node;
    }
    return EXL2_OK;
}

/* So far each mask has the tokens of one length: adds the shorter ones. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_join(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    exl2__grammar_vocab *v = m->v;
    for (; m->at < v->words; m->at++) {
        if (!exl2__work_spend(work, 20)) {
            return EXL2_PENDING;
        }
        for (uint32_t i = 1; i < EXL2__GRAMMAR_VOCAB_LENGTHS; i++) {
            v->masks[i][m->at] |= v->masks[i - 1][m->at];
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_sort_shapes(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    return exl2__grammar_shapes_make_sort(&m->shapes, work);
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_count_shapes(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    return exl2__grammar_shapes_make_count(&m->shapes, work);
}

EXL2__PRIVATE exl2_result exl2__grammar_vocab_fill_shapes(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    EXL2__TRY_DONE(exl2__grammar_shapes_make_nodes(&m->shapes, &m->v->shapes, work));
    for (; m->at < m->count; m->at++) {
        if (!exl2__work_spend(work, 10)) {
            return EXL2_PENDING;
        }
        exl2__grammar_shapes_add(&m->shapes, &m->v->shapes, m->items[m->at].id);
    }
    return EXL2_OK;
}

typedef exl2_result (*exl2__grammar_vocab_stage)(exl2__grammar_vocab_maker *m, exl2__work *work);

static const exl2__grammar_vocab_stage exl2__grammar_vocab_stages[] = {
    exl2__grammar_vocab_list, exl2__grammar_vocab_sort_shapes, exl2__grammar_vocab_count_shapes,
    exl2__grammar_vocab_sort, exl2__grammar_vocab_count, exl2__grammar_vocab_clear, exl2__grammar_vocab_fill,
    exl2__grammar_vocab_join, exl2__grammar_vocab_fill_shapes,
};

EXL2__PRIVATE void exl2__grammar_vocab_close(exl2__ctx *c, exl2__grammar_vocab *v)
{
    exl2__arena_close(c, &v->memory);
    *v = (exl2__grammar_vocab){ 0 };
}

/* Begins to make *v. After a failure, too, the caller ends m. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_make_begin(exl2__grammar_vocab_maker *m, exl2__ctx *c,
                                                         const exl2__vocab *vocab, exl2__grammar_vocab *v)
{
    void *items;
    memset(m, 0, sizeof *m);
    *v = (exl2__grammar_vocab){ 0 };
    m->c = c;
    m->v = v;
    v->vocab = vocab;
    v->words = (uint32_t)exl2__align_up(exl2__bit_words(vocab->id_count), EXL2__GRAMMAR_VOCAB_BLOCK);
    EXL2__TRY(exl2__alloc(c, (uint64_t)vocab->id_count * sizeof *m->items, 8, EXL2_MEM_GENERAL, &items));
    m->items = (exl2__grammar_vocab_item *)items;
    return exl2__grammar_shapes_make_begin(&m->shapes, c, vocab->id_count);
}

/* Goes on, in slices. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_make_slice(exl2__grammar_vocab_maker *m, exl2__work *work)
{
    while (m->stage < EXL2__COUNT(exl2__grammar_vocab_stages)) {
        EXL2__TRY_DONE(exl2__grammar_vocab_stages[m->stage](m, work));
        m->stage++;
        m->at = 0;
    }
    return EXL2_OK;
}

/* Frees what making needed; if it was not finished, the table, too. Accepts a zeroed maker. */
EXL2__PRIVATE void exl2__grammar_vocab_make_end(exl2__grammar_vocab_maker *m)
{
    if (m->c) {
        exl2__free(m->c, m->items, (uint64_t)m->v->vocab->id_count * sizeof *m->items, EXL2_MEM_GENERAL);
        exl2__grammar_shapes_make_end(&m->shapes);
        if (m->stage < EXL2__COUNT(exl2__grammar_vocab_stages)) {
            exl2__grammar_vocab_close(m->c, m->v);
        }
    }
    memset(m, 0, sizeof *m);
}

/* Makes the table at once. On failure *v is zeroed. */
EXL2__PRIVATE exl2_result exl2__grammar_vocab_open(exl2__ctx *c, const exl2__vocab *vocab, exl2__grammar_vocab *v)
{
    exl2__work all = exl2__work_all();
    exl2__grammar_vocab_maker m;
    exl2_result result = exl2__grammar_vocab_make_begin(&m, c, vocab, v);
    result = result < 0 ? result : exl2__grammar_vocab_make_slice(&m, &all);
    exl2__grammar_vocab_make_end(&m);
    return result;
}

#endif
