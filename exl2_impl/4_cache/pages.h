/* pages.h: the pool of KV pages of one model: who uses a page, and which tokens lie in it. K and V themselves belong
   to the backend; the tokens stay here, so histories can be read without a device.
   takes: a page count.
   gives: exl2__pages, take, share, give.
   owns:  nothing; its arrays come from the model's scratch arena. */
#ifndef EXL2__PAGES_H
#define EXL2__PAGES_H

#include "../2_graph/phases.h"

typedef struct exl2__pages {
    uint32_t count, free_count, shared; /* shared: pages with two or more users */
    uint32_t *users;                    /* [count] sessions whose table names the page */
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
        p->free_list[i] = count - 1 - i; /* page 0 is taken first */
    }
}

/* A page of one's own. The caller has checked free_count. */
static inline uint32_t exl2__pages_alloc(exl2__pages *p)
{
    EXL2__ASSERT(p->free_count > 0);
    uint32_t page = p->free_list[--p->free_count];
    p->users[page] = 1;
    return page;
}

static inline void exl2__pages_share(exl2__pages *p, uint32_t page)
{
    p->shared += ++p->users[page] == 2;
}

static inline void exl2__pages_free(exl2__pages *p, uint32_t page)
{
    EXL2__ASSERT(p->users[page] > 0);
    p->shared -= p->users[page] == 2;
    if (--p->users[page] == 0) {
        p->free_list[p->free_count++] = page;
    }
}

static inline uint32_t exl2__pages_for(uint64_t tokens)
{
    return (uint32_t)exl2__div_up(tokens, EXL2__PAGE_TOKENS);
}

#endif
