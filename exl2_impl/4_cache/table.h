/* table.h: a session's history as a list of pages: append, rewind, fork; shared pages are copied before a write.
   takes: the pool of pages.
   gives: exl2__table, exl2__table_read, exl2__table_append, exl2__table_rewind, exl2__table_fork, exl2__table_reserve,
          exl2__table_demand.
   owns:  a use of each of its pages; the page list itself lies in the model's scratch arena.

   cached <= tokens: the newest tokens may be in the history before their K and V are computed. A job must call
   exl2__table_reserve once before it writes tokens from position `tokens` on, or K and V from position `cached` on. */
#ifndef EXL2__TABLE_H
#define EXL2__TABLE_H

#include "pages.h"

typedef struct exl2__table {
    uint32_t *pages; /* [page_count], room for context_max */
    uint32_t page_count, tokens, cached; /* tokens: length of the history. cached: tokens whose K and V are computed */
} exl2__table;

static inline exl2_token *exl2__table_token(const exl2__table *t, const exl2__pages *p, uint32_t position)
{
    return &p->tokens[t->pages[position / EXL2__PAGE_TOKENS] * (size_t)EXL2__PAGE_TOKENS
                      + position % EXL2__PAGE_TOKENS];
}

/* Copies tokens [from, from + count) of the history. */
static inline void exl2__table_read(const exl2__table *t, const exl2__pages *p, uint32_t from, uint32_t count,
                                    exl2_token *out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = *exl2__table_token(t, p, from + i);
    }
}

/* Keeps the first `tokens` tokens, and frees the pages after them. */
static inline void exl2__table_rewind(exl2__table *t, exl2__pages *p, uint32_t tokens)
{
    t->tokens = exl2__min32(t->tokens, tokens);
    t->cached = exl2__min32(t->cached, t->tokens);
    uint32_t keep = exl2__pages_for(t->tokens);
    while (t->page_count > keep) {
        exl2__pages_free(p, t->pages[--t->page_count]);
    }
}

/* Makes *to a copy of `from` that shares its pages. */
static inline void exl2__table_fork(const exl2__table *from, exl2__pages *p, exl2__table *to)
{
    to->tokens = from->tokens;
    to->cached = from->cached;
    to->page_count = exl2__pages_for(from->tokens); /* not the pages reserved for a running job */
    for (uint32_t i = 0; i < to->page_count; i++) {
        to->pages[i] = from->pages[i];
        exl2__pages_share(p, to->pages[i]);
    }
}

/* Number of pages that exl2__table_reserve(tokens) would allocate: new ones, and copies of shared ones. */
static inline uint32_t exl2__table_demand(const exl2__table *t, const exl2__pages *p, uint32_t tokens)
{
    uint32_t total = exl2__pages_for(tokens);
    uint32_t demand = total > t->page_count ? total - t->page_count : 0;
    for (uint32_t i = t->cached / EXL2__PAGE_TOKENS; i < t->page_count; i++) {
        demand += p->users[t->pages[i]] > 1;
    }
    return demand;
}

/* Makes positions [cached, tokens) writable. The pool must have exl2__table_demand free pages. Pages that the backend
   must copy, too, are appended to copies[*copy_count]; they are at most as many as the demand. */
static inline void exl2__table_reserve(exl2__table *t, exl2__pages *p, uint32_t tokens, exl2__page_copy *copies,
                                       uint32_t *copy_count)
{
    for (uint32_t i = t->cached / EXL2__PAGE_TOKENS; i < t->page_count; i++) {
        uint32_t old = t->pages[i];
        if (p->users[old] > 1) {
            uint32_t page = exl2__pages_alloc(p);
            memcpy(&p->tokens[page * (size_t)EXL2__PAGE_TOKENS], &p->tokens[old * (size_t)EXL2__PAGE_TOKENS],
                   EXL2__PAGE_TOKENS * sizeof(exl2_token));
            if (i * EXL2__PAGE_TOKENS < t->cached) {
                copies[(*copy_count)++] = (exl2__page_copy){ old, page };
            }
            exl2__pages_free(p, old);
            t->pages[i] = page;
        }
    }
    while (t->page_count < exl2__pages_for(tokens)) {
        t->pages[t->page_count++] = exl2__pages_alloc(p);
    }
}

/* Appends a token, whose position must have been reserved. */
static inline void exl2__table_append(exl2__table *t, exl2__pages *p, exl2_token token)
{
    *exl2__table_token(t, p, t->tokens) = token;
    t->tokens++;
}

#endif
