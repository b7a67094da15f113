/* table.c: the page pool and the tables of sessions, compared with plain arrays: thousands of random appends, rewinds
   and forks. An array next to the pool stands for K and V; it is written and copied as a backend would.
   takes: nothing.
   gives: main.
   owns:  nothing. */
#include "../../exl2.h"

#include "../../exl2_impl/4_cache/table.h"
#include "../check.h"

#define PAGES 24u
#define SESSIONS 6u
#define CONTEXT (8u * EXL2__PAGE_TOKENS)

typedef struct twin { /* the expected contents of a session */
    exl2_token tokens[CONTEXT];
    uint32_t count, cached;
} twin;

static exl2__pages pages;
static exl2__table tables[SESSIONS];
static twin twins[SESSIONS];
static uint32_t users[PAGES], free_list[PAGES], lists[SESSIONS][CONTEXT / EXL2__PAGE_TOKENS];
static exl2_token tokens[PAGES * EXL2__PAGE_TOKENS], kv[PAGES * EXL2__PAGE_TOKENS];
static exl2__page_copy copies[PAGES];

static uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % limit);
}

static void open_pool(void)
{
    memset(&pages, 0, sizeof pages);
    pages = (exl2__pages){ PAGES, PAGES, 0, users, free_list, tokens };
    memset(users, 0, sizeof users);
    for (uint32_t i = 0; i < PAGES; i++) {
        free_list[i] = PAGES - 1 - i;
    }
    for (uint32_t s = 0; s < SESSIONS; s++) {
        tables[s] = (exl2__table){ lists[s], 0, 0, 0 };
        twins[s].count = twins[s].cached = 0;
    }
}

static exl2_token *kv_at(uint32_t s, uint32_t position)
{
    uint32_t page = tables[s].pages[position / EXL2__PAGE_TOKENS];
    return &kv[page * EXL2__PAGE_TOKENS + position % EXL2__PAGE_TOKENS];
}

/* What a job does: reserve, append, then "compute" all tokens or all but the last one. */
static void extend(uint32_t s)
{
    exl2__table *t = &tables[s];
    uint32_t more = 1 + random_below(100), end = t->tokens + more, copy_count = 0;
    uint32_t demand = exl2__table_demand(t, &pages, end);
    if (end > CONTEXT || demand > pages.free_count) {
        return;
    }
    uint32_t free_before = pages.free_count;
    exl2__table_reserve(t, &pages, end, copies, &copy_count);
    CHECK_INT(free_before - pages.free_count, demand);
    CHECK(copy_count <= demand);
    for (uint32_t i = 0; i < copy_count; i++) {
        memcpy(&kv[copies[i].to * EXL2__PAGE_TOKENS], &kv[copies[i].from * EXL2__PAGE_TOKENS],
               EXL2__PAGE_TOKENS * sizeof kv[0]);
    }
    while (t->tokens < end) {
        exl2_token token = (exl2_token)random_below(1000);
        exl2__table_append(t, &pages, token);
        twins[s].tokens[twins[s].count++] = token;
    }
    uint32_t cached = end - random_below(2);
    while (t->cached < cached) {
        *kv_at(s, t->cached) = twins[s].tokens[t->cached];
        t->cached++;
    }
    twins[s].cached = t->cached;
}

static void rewind_to(uint32_t s, uint32_t count)
{
    exl2__table_rewind(&tables[s], &pages, count);
    twins[s].count = count < twins[s].count ? count : twins[s].count;
    twins[s].cached = twins[s].cached < twins[s].count ? twins[s].cached : twins[s].count;
}

static void fork_into(uint32_t from, uint32_t to)
{
    if (from == to) {
        return;
    }
    rewind_to(to, 0);
    exl2__table_fork(&tables[from], &pages, &tables[to]);
    twins[to] = twins[from];
}

static void check_all(void)
{
    uint32_t uses[PAGES] = { 0 }, used = 0, shared = 0;
    for (uint32_t s = 0; s < SESSIONS; s++) {
        const exl2__table *t = &tables[s];
        exl2_token history[CONTEXT];
        CHECK_INT(t->tokens, twins[s].count);
        CHECK_INT(t->cached, twins[s].cached);
        exl2__table_read(t, &pages, 0, t->tokens, history);
        CHECK(memcmp(history, twins[s].tokens, t->tokens * sizeof history[0]) == 0);
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < t->cached; i++) {
            wrong += *kv_at(s, i) != twins[s].tokens[i];
        }
        CHECK_INT(wrong, 0);
        CHECK(t->page_count >= exl2__pages_for(t->tokens));
        for (uint32_t i = 0; i < t->page_count; i++) {
            uses[t->pages[i]]++;
        }
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        CHECK_INT(users[i], uses[i]);
        used += uses[i] > 0;
        shared += uses[i] > 1;
    }
    CHECK_INT(PAGES - pages.free_count, used);
    CHECK_INT(pages.shared, shared);
}

int main(void)
{
    open_pool();
    uint32_t most_shared = 0;
    for (uint32_t round = 0; round < 4000; round++) {
        uint32_t s = random_below(SESSIONS), action = random_below(8);
        if (action < 5) {
            extend(s);
        } else if (action < 7) {
            fork_into(random_below(SESSIONS), s);
        } else {
            rewind_to(s, random_below(twins[s].count + 1));
        }
        most_shared = pages.shared > most_shared ? pages.shared : most_shared;
        check_all();
    }
    CHECK(most_shared > 4);
    for (uint32_t s = 0; s < SESSIONS; s++) {
        rewind_to(s, 0);
    }
    check_all();
    CHECK_INT(pages.free_count, PAGES);
    return check_done();
}
