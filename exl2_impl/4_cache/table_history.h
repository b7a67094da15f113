/* table_history.h: a session's history, and which of its pages an idle session remembers.
   takes: the pages of the model.
   gives: exl2__table, exl2__table_text; exl2__table_make, _words, _is_vector, _token, _read, _read_last, _append,
          _append_words, _forget, _remember, _cached, _computed_tokens, _keep, _move, _rewind, _trim, _fork; for table.h
          _gather, _usable, _drop_page, _owns.

   The session owns its words, each of which is a use of the vector that it names. It owns pages only while a job runs
   (table.h). An idle session only keeps a list of the pages that were in the cache when it became idle
   (exl2__table_remember), so that they are evicted after the pages that no session needs; the list holds none of
   them. */
#ifndef EXL2__TABLE_HISTORY_H
#define EXL2__TABLE_HISTORY_H

#include "tier.h"

struct exl2__table {
    uint32_t *words;          /* [tokens], room for context_max: the history */
    uint32_t *pages;          /* [page_count], room for context_max */
    uint32_t tokens, page_count;
    /* While a job runs: */
    uint32_t cached;          /* tokens whose K and V are computed, or are by the end of the current pass */
    uint32_t closed;          /* number of closed pages at the beginning; the others are open, of this table alone */
    uint32_t owed;            /* pages that were promised and not taken yet */
    uint32_t seen, seen_end;  /* the table's pages [seen, seen_end), whose parts it has pinned (windows.h) */
    uint32_t parts_promised;  /* most of these parts, but for the rows of a pass */
    uint32_t likely[2];       /* where other texts may go on from: where the known text ended, and the prompt's end */
    uint64_t root;            /* sessions with different roots share no pages */
    exl2__table *next, *previous; /* list of idle tables; previous == this table: it is in no list */
};

/* ---- the history ---- */

/* The words of the table's page `page`, as far as the history has them. */
static inline uint32_t *exl2__table_words(const exl2__table *t, uint32_t page)
{
    return t->words + (size_t)page * EXL2__PAGE_TOKENS;
}

/* Is a vector at this position, and no token? */
static inline bool exl2__table_is_vector(const exl2__table *t, uint32_t position)
{
    return exl2__vectors_is(t->words[position]);
}

static inline exl2_token exl2__table_token(const exl2__table *t, uint32_t position)
{
    EXL2__ASSERT(!exl2__table_is_vector(t, position));
    return (exl2_token)(t->words[position] & ~EXL2__WORD_SAMPLED);
}

/* Copies the tokens at positions [from, from + count), without vectors. Returns their number. */
static inline uint32_t exl2__table_read(const exl2__table *t, uint32_t from, uint32_t count, exl2_token *out)
{
    uint32_t tokens = 0;
    for (uint32_t i = from; i < from + count; i++) {
        if (!exl2__table_is_vector(t, i)) {
            out[tokens++] = exl2__table_token(t, i);
        }
    }
    return tokens;
}

/* Copies the history's last `most` tokens, or all if it has fewer; vectors do not count. Returns their number. */
static inline uint32_t exl2__table_read_last(const exl2__table *t, uint32_t most, exl2_token *out)
{
    uint32_t from = t->tokens;
    for (uint32_t tokens = 0; tokens < most && from > 0; from--) {
        tokens += !exl2__table_is_vector(t, from - 1);
    }
    return exl2__table_read(t, from, t->tokens - from, out);
}

/* sampled: the token's K and V will be computed in a row that is sampled from. */
static inline void exl2__table_append(exl2__table *t, const exl2__pages *p, exl2_token token, bool sampled)
{
    EXL2__ASSERT(token >= 0 && !exl2__vectors_is((uint32_t)token));
    t->words[t->tokens++] = (uint32_t)token | (sampled ? p->sampled : 0);
}

/* Appends words of a prompt. The token before them becomes one of the prompt, too, if it was sampled: no pass has
   computed the last token of a reply, and its row then shares a pass with those of the prompt. */
static inline void exl2__table_append_words(exl2__table *t, const exl2__pages *p, const uint32_t *words, uint32_t count)
{
    exl2__vectors_use(p->vectors, words, count);
    if (t->tokens > 0 && count > 0) {
        t->words[t->tokens - 1] &= ~EXL2__WORD_SAMPLED;
    }
    for (uint32_t i = 0; i < count; i++) {
        t->words[t->tokens++] = words[i];
    }
}

/* A history and words that would follow its first `keep` ones. */
typedef struct exl2__table_text {
    const exl2__table *table;
    uint32_t keep;
    const uint32_t *tail;
    uint32_t tokens; /* keep + length of the tail */
    uint32_t copied; /* the first tokens, whose K and V may be copied from another page before their rows */
} exl2__table_text;

/* Copies the words of page `page` of the text, as they are once the tail was appended. Returns their number. */
static inline uint32_t exl2__table_gather(const exl2__table_text *x, uint32_t page, uint32_t *words)
{
    uint32_t begin = page * EXL2__PAGE_TOKENS, count = exl2__min32(x->tokens - begin, EXL2__PAGE_TOKENS);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = begin + i;
        words[i] = at < x->keep ? x->table->words[at] : x->tail[at - x->keep];
        words[i] &= at + 1 == x->keep && x->tokens > x->keep ? ~EXL2__WORD_SAMPLED : UINT32_MAX;
    }
    return count;
}

/* ---- idle sessions ---- */

/* Takes an idle table off the list, and its pages' keepers with it. */
static inline void exl2__table_forget(exl2__table *t, exl2__pages *p)
{
    if (t->previous == t) {
        return;
    }
    for (uint32_t i = 0; i < t->page_count; i++) {
        p->page[t->pages[i]].keepers--;
        exl2__pages_rank(p, t->pages[i]);
    }
    *(t->previous ? &t->previous->next : &p->idle) = t->next;
    if (t->next) {
        t->next->previous = t->previous;
    }
    t->next = NULL;
    t->previous = t;
    t->page_count = 0;
}

/* Lists the cached pages of an idle session. */
static inline void exl2__table_remember(exl2__table *t, exl2__pages *p)
{
    uint32_t parent = EXL2__NO_PAGE, common;
    exl2__table_forget(t, p);
    t->page_count = 0;
    for (uint32_t i = 0; i < exl2__pages_for(t->tokens); i++) {
        const uint32_t *words = exl2__table_words(t, i);
        uint32_t count = exl2__min32(t->tokens - i * EXL2__PAGE_TOKENS, EXL2__PAGE_TOKENS);
        uint32_t page = count < EXL2__PAGE_TOKENS ? EXL2__NO_PAGE
                                                  : exl2__pages_match(p, parent, t->root, words, EXL2__NO_PAGE);
        bool whole = page != EXL2__NO_PAGE && p->page[page].filled == EXL2__PAGE_TOKENS;
        page = whole ? page : exl2__pages_closest(p, parent, t->root, words, count, EXL2__NO_PAGE, false, &common);
        if (page == EXL2__NO_PAGE) {
            break;
        }
        p->page[page].keepers++;
        exl2__pages_rank(p, page);
        t->pages[t->page_count++] = parent = page;
        if (!whole) {
            break;
        }
    }
    t->previous = NULL;
    t->next = p->idle;
    if (p->idle) {
        p->idle->previous = t;
    }
    p->idle = t;
}

/* Number of the first `tokens` tokens in the table's pages after which a job can go on: the cache still has all parts
   that its next row sees. It is `tokens`, or a multiple of the page size. */
static inline uint32_t exl2__table_usable(const exl2__table *t, const exl2__pages *p, uint32_t tokens)
{
    const exl2__windows *w = &p->windows;
    uint32_t run = 0, usable = 0; /* run: the first page of those before the next one that all have their parts */
    for (uint32_t i = 0; i < exl2__pages_for(tokens) && w->count > 0; i++) {
        uint32_t end = exl2__min32((i + 1) * EXL2__PAGE_TOKENS, tokens);
        run = exl2__windows_has(w, t->pages[i]) ? run : i + 1;
        usable = run <= exl2__windows_first(w, end) ? end : usable;
    }
    return w->count > 0 ? usable : tokens;
}

/* Number of tokens of the history whose K and V are computed. */
static inline uint32_t exl2__table_cached(const exl2__table *t, const exl2__pages *p)
{
    if (t->previous == t || t->page_count == 0) {
        return t->previous == t ? t->cached : 0;
    }
    uint32_t last = t->page_count - 1, begin = last * EXL2__PAGE_TOKENS;
    uint32_t common = exl2__pages_common(p, t->pages[last], exl2__table_words(t, last), t->tokens - begin);
    return exl2__table_usable(t, p, begin + exl2__min32(p->page[t->pages[last]].filled, common));
}

/* The same, but of a running job only what finished passes have computed. */
static inline uint32_t exl2__table_computed_tokens(const exl2__table *t, const exl2__pages *p)
{
    uint32_t tokens = exl2__table_cached(t, p), last = tokens / EXL2__PAGE_TOKENS;
    bool more = t->previous == t && last < t->page_count;
    return more ? exl2__min32(tokens, last * EXL2__PAGE_TOKENS + p->page[t->pages[last]].filled) : tokens;
}

/* Frees a cached page without children, also in the lists of idle sessions. */
static inline void exl2__table_drop_page(exl2__pages *p, uint32_t page)
{
    exl2__page *n = &p->page[page];
    for (exl2__table *t = p->idle; t && n->keepers > 0; t = t->next) {
        while (t->page_count > n->depth && t->pages[n->depth] == page) {
            p->page[t->pages[--t->page_count]].keepers--;
            exl2__pages_rank(p, t->pages[t->page_count]);
        }
    }
    exl2__pages_unlink(p, page);
}

/* A new session's table. */
static inline void exl2__table_make(exl2__table *t, uint32_t *words, uint32_t *pages, uint64_t root)
{
    *t = (exl2__table){ .words = words, .pages = pages, .root = root };
    t->previous = t;
}

/* Leaves the history its first `tokens` tokens. The table is in no list, and its pages are the caller's concern. */
static inline void exl2__table_keep(exl2__table *t, const exl2__pages *p, uint32_t tokens)
{
    if (tokens < t->tokens) {
        exl2__vectors_drop(p->vectors, t->words + tokens, t->tokens - tokens);
        t->tokens = tokens;
    }
}

/* Moves the history into another tree, where its K and V are found or computed anew. No job runs in it. */
static inline void exl2__table_move(exl2__table *t, exl2__pages *p, uint64_t root)
{
    if (t->root != root) {
        bool listed = t->previous != t;
        exl2__table_forget(t, p);
        t->root = root;
        if (listed) {
            exl2__table_remember(t, p);
        }
    }
}

/* Keeps the first `tokens` tokens of an idle session's history. */
static inline void exl2__table_rewind(exl2__table *t, exl2__pages *p, uint32_t tokens)
{
    exl2__table_forget(t, p);
    exl2__table_keep(t, p, tokens);
    exl2__table_remember(t, p);
}

/* Takes `count` tokens from position `from` on out of an idle session's history. What follows gets new positions, so
   its K and V are computed again, as those of a prompt. */
static inline void exl2__table_trim(exl2__table *t, exl2__pages *p, uint32_t from, uint32_t count)
{
    exl2__table_forget(t, p);
    exl2__vectors_drop(p->vectors, t->words + from, count);
    t->tokens -= count;
    for (uint32_t i = from; i < t->tokens && count; i++) {
        t->words[i] = t->words[i + count] & ~EXL2__WORD_SAMPLED;
    }
    exl2__table_remember(t, p);
}

/* The new session `to` gets the first `tokens` tokens of the history. */
static inline void exl2__table_fork(const exl2__table *from, exl2__pages *p, exl2__table *to, uint32_t tokens)
{
    to->root = from->root;
    exl2__table_append_words(to, p, from->words, tokens);
    exl2__table_remember(to, p);
}

/* May the table continue the page itself? No job has it, and no other session lists it. */
static inline bool exl2__table_owns(const exl2__table *t, const exl2__pages *p, uint32_t page)
{
    const exl2__page *n = &p->page[page];
    bool listed = t->previous != t && t->page_count > n->depth && t->pages[n->depth] == page;
    return n->users == 0 && n->child == EXL2__NO_PAGE && n->keepers == listed;
}

#endif
