/* windows.h: the window parts of KV pages: K and V of the layers with a window, which see the last tokens only.
   takes: pages by number; which of them running jobs see.
   gives: exl2__windows, exl2__windows_make, _each, _rows, _rows_most, _first, _has, _fits, _room, _take, _pin, _unpin,
          _move, _drop.
   owns:  nothing; its arrays come from the model's scratch arena.

   A page of a model with windows can have two parts: K and V of its other layers, as long as the page lives, and those
   of the layers with a window, from a pool of their own that is smaller. A page gets a part before rows fill it. The
   part is pinned while rows of a running job can see it. All other parts are cache: the oldest is given to another page
   when a job needs one, and its page then has K and V of its other layers alone.

   A running job is promised the parts that its window and its next page take up; the rows of a pass have some beside
   that (exl2__windows_rows), so the pool always has what a pass needs. */
#ifndef EXL2__WINDOWS_H
#define EXL2__WINDOWS_H

#include "../2_graph/phases.h"

#define EXL2__WINDOWS_ROWS 1024u

typedef struct exl2__windows {
    uint32_t window;          /* keys that a row sees, with its own */
    uint32_t count;           /* parts; 0: pages have one part, with K and V of all layers */
    uint32_t free_count;
    uint32_t rows;            /* parts beside the promised ones, for the rows of a pass */
    uint32_t promised;        /* parts that were promised to running jobs */
    uint64_t clock;
    uint32_t *part;           /* [pages] part of the page, or EXL2__NO_PAGE */
    uint32_t *page;           /* [count] page that has the part; of a free one undefined */
    uint32_t *users;          /* [count] running jobs whose rows see it */
    uint64_t *rank;           /* [count] order in which parts are given away, lowest first; UINT64_MAX: not now */
    uint32_t *free_list;      /* [free_count], room for count: a stack */
    exl2__page_copy *copies;  /* [pages] of the pass that is planned: parts to copy with copy i of pages */
} exl2__windows;

/* Most parts that a running job is promised: its window at any place, and the page after its last token. */
static inline uint32_t exl2__windows_each(uint32_t window)
{
    return (window + EXL2__PAGE_TOKENS - 1) / EXL2__PAGE_TOKENS + 2;
}

/* Number of parts for the rows of a pass, beside the promised ones. n rows of a job with t computed tokens see and fill
   the pages of [t + 1 - window, t + n], which are at most n / 64 more than the job is promised. A pass may have more
   than EXL2__WINDOWS_ROWS rows while fewer jobs run than there are windows for. picture_rows: part of rows_max that a
   picture's rows need at once. */
static inline uint32_t exl2__windows_rows(uint32_t rows_max, uint32_t picture_rows)
{
    return (exl2__min32(rows_max - picture_rows, EXL2__WINDOWS_ROWS) + picture_rows) / EXL2__PAGE_TOKENS + 1;
}

/* count 0: pages have one part. rows: as exl2__windows_rows. */
static inline void exl2__windows_make(exl2__windows *w, exl2__arena *arena, uint32_t pages, uint32_t count,
                                      uint32_t window, uint32_t rows)
{
    *w = (exl2__windows){ .window = window, .count = count, .free_count = count, .rows = rows };
    if (count == 0) {
        return;
    }
    w->part = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)pages * sizeof *w->part);
    w->page = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *w->page);
    w->users = (uint32_t *)exl2__arena_alloc_zeroed(arena, (uint64_t)count * sizeof *w->users);
    w->rank = (uint64_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *w->rank);
    w->free_list = (uint32_t *)exl2__arena_alloc(arena, (uint64_t)count * sizeof *w->free_list);
    w->copies = (exl2__page_copy *)exl2__arena_alloc(arena, (uint64_t)pages * sizeof *w->copies);
    for (uint32_t i = 0; w->part && i < pages; i++) {
        w->part[i] = EXL2__NO_PAGE;
    }
    for (uint32_t i = 0; w->free_list && i < count; i++) {
        w->free_list[i] = count - 1 - i; /* part 0 is taken first */
        w->rank[i] = UINT64_MAX;
    }
}

/* The first page of a sequence with keys that its row at `position` sees. */
static inline uint32_t exl2__windows_first(const exl2__windows *w, uint32_t position)
{
    return position + 1 > w->window ? (position + 1 - w->window) / EXL2__PAGE_TOKENS : 0;
}

/* Does the page have all of its parts? */
static inline bool exl2__windows_has(const exl2__windows *w, uint32_t page)
{
    return w->count == 0 || w->part[page] != EXL2__NO_PAGE;
}

/* Most rows of the next pass, those of a picture included. */
static inline uint32_t exl2__windows_rows_most(const exl2__windows *w)
{
    return w->count > 0 ? (w->count - w->promised) * EXL2__PAGE_TOKENS : UINT32_MAX;
}

/* Can `parts` parts be promised? */
static inline bool exl2__windows_fits(const exl2__windows *w, uint32_t parts)
{
    return w->count == 0 || w->promised + parts + w->rows <= w->count;
}

/* Number of parts that no job sees. */
static inline uint32_t exl2__windows_room(const exl2__windows *w)
{
    uint32_t room = w->free_count;
    for (uint32_t i = 0; i < w->count; i++) {
        room += w->rank[i] != UINT64_MAX;
    }
    return room;
}

/* Gives the page, which has none, a part: a free one, or the oldest of those that no job sees. */
static inline void exl2__windows_take(exl2__windows *w, uint32_t page)
{
    uint32_t part = 0;
    EXL2__ASSERT(w->part[page] == EXL2__NO_PAGE);
    if (w->free_count > 0) {
        part = w->free_list[--w->free_count];
    } else {
        for (uint32_t i = 1; i < w->count; i++) {
            part = w->rank[i] < w->rank[part] ? i : part;
        }
        EXL2__ASSERT(w->rank[part] != UINT64_MAX && w->users[part] == 0); /* else more is pinned than was promised */
        w->part[w->page[part]] = EXL2__NO_PAGE;
    }
    w->part[page] = part;
    w->page[part] = page;
    w->rank[part] = w->clock++;
}

/* Adds a job whose rows see the page's part. */
static inline void exl2__windows_pin(exl2__windows *w, uint32_t page)
{
    uint32_t part = w->part[page];
    w->users[part]++;
    w->rank[part] = UINT64_MAX;
}

/* Removes a job whose rows saw the page's part. last: another text is likely to continue from here, so all parts that
   are not `last` are given away first. */
static inline void exl2__windows_unpin(exl2__windows *w, uint32_t page, bool last)
{
    uint32_t part = w->part[page];
    EXL2__ASSERT(w->users[part] > 0);
    w->users[part]--;
    w->rank[part] = w->users[part] > 0 ? UINT64_MAX : (uint64_t)last << 63 | w->clock++;
}

/* The page `to`, which has no part, gets that of `from`, with its users. Both have the same words. */
static inline void exl2__windows_move(exl2__windows *w, uint32_t from, uint32_t to)
{
    uint32_t part = w->part[from];
    EXL2__ASSERT(part != EXL2__NO_PAGE && w->part[to] == EXL2__NO_PAGE);
    w->part[from] = EXL2__NO_PAGE;
    w->part[to] = part;
    w->page[part] = to;
}

/* The page becomes free. No job sees it. */
static inline void exl2__windows_drop(exl2__windows *w, uint32_t page)
{
    if (w->count > 0 && w->part[page] != EXL2__NO_PAGE) {
        uint32_t part = w->part[page];
        EXL2__ASSERT(w->users[part] == 0);
        w->part[page] = EXL2__NO_PAGE;
        w->rank[part] = UINT64_MAX;
        w->free_list[w->free_count++] = part;
    }
}

#endif
