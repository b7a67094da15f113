/* pages.h: the pool of KV pages of one model: the number of users and the tokens of each page. K and V belong to the
   backend; the tokens are kept here, so that histories can be read without the backend.
   takes: a page count.
   gives: exl2__pages, exl2__pages_make, exl2__pages_alloc, exl2__pages_share, exl2__pages_free, exl2__pages_for.
   owns:  nothing; its arrays come from the model's scratch arena. */
#ifndef EXL2__PAGES_H
#define EXL2__PAGES_H

#include "../2_graph/phases.h"

typedef struct exl2__pages {
    uint32_t count, free_count, shared; /* shared: pages with two or more users */
    uint32_t *users;                    /* [count] number of tables that contain the page */
    uint32_t *free_list;                /* [count] stack of unused pages */
    exl2_token *tokens;                 /* [count, EXL2__PAGE_TOKENS] */
} exl2__pages;

static inline void exl2__pages_make(exl2__pages *p, exl2__arena *arena, uint32_t count)
{
    *p = (exl2__pages){ count, count, 0, NULL, NULL, NULL };
    p->users = (uint32_t *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *p->users);
    p->free_list = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *p->free_list);
    p->tokens = (exl2_token *)exl2__arena_alloc(arena, (uint64_t)count * EXL2__PAGE_TOKENS * sizeof *p->tokens);
    for (uint32_t i = 0; p->free_list && i < count; i++) {
        p->free_list[i] = count - 1 - i; /* page 0 is allocated first */
    }
}

/* A page with one user. free_count must be greater than 0. */
static inline uint32_t exl2__pages_alloc(exl2__pages *p)
{
    EXL2__ASSERT(p->free_count > 0);
    uint32_t page = p->free_list[--p->free_count];
    p->users[page] = 1;
    return page;
}

/* Adds a user. */
static inline void exl2__pages_share(exl2__pages *p, uint32_t page)
{
    p->shared += ++p->users[page] == 2;
}

/* Removes a user. The page is free once it has none. */
static inline void exl2__pages_free(exl2__pages *p, uint32_t page)
{
    EXL2__ASSERT(p->users[page] > 0);
    p->shared -= p->users[page] == 2;
    if (--p->users[page] == 0) {
        p->free_list[p->free_count++] = page;
    }
}

/* Number of pages that hold `tokens` tokens. */
static inline uint32_t exl2__pages_for(uint64_t tokens)
{
    return (uint32_t)exl2__div_up(tokens, EXL2__PAGE_TOKENS);
}

#endif
