/* pages.c: the tree of pages, the tables of sessions and the scheduler, against plain arrays: random opens, jobs,
   forks, rewinds, closes, cancels, preemptions and evictions in a pool that is too small. In place of K and V each
   slot of a page has a hash of all words up to it: every slot that counts as filled must have the hash of its history,
   however it got there, and all counters must add up after every move. Then the same with a second tier, in which each
   page that was kept must have the hashes of its text; and with window parts of pages: a row must find the hashes of
   its window in them.
   takes: nothing.
   gives: main. */
#include "../../exl2.h"

#include "private/roots.h"
#include "private/schedule.h"
#include "../check.h"

#define PAGES 40u
#define SESSIONS 10u
#define CONTEXT (12u * EXL2__PAGE_TOKENS)
#define TEXTS 3u
#define MOVES 100000u
#define SLOTS 50u /* of the second tier */
#define PARTS 29u /* for six jobs with windows of 100 tokens, of which each may need 4, and 200 rows */

typedef struct speaker {
    bool open, wants_ban;
    exl2_token twin[CONTEXT]; /* the expected history */
    uint32_t twin_count;
    exl2_token prompt[CONTEXT];
    uint32_t held;            /* sampled tokens that are not final */
    exl2__sequence *sequence; /* NULL: idle */
} speaker;

static exl2__pages pages;
static exl2__table tables[SESSIONS];
static exl2__sequence memory[SESSIONS], *all[SESSIONS];
static speaker speakers[SESSIONS];
static uint32_t words[SESSIONS][CONTEXT], lists[SESSIONS][CONTEXT / EXL2__PAGE_TOKENS];
static exl2_token texts[TEXTS][CONTEXT];
static uint64_t kv[PAGES][EXL2__PAGE_TOKENS];
static uint64_t part_kv[PARTS][EXL2__PAGE_TOKENS];
static uint64_t slot_kv[SLOTS][EXL2__PAGE_TOKENS];
static exl2__tier tier;
static exl2__page_copy copies[PAGES];
static uint64_t roots;
static struct {
    uint64_t starts, reused, shared, copied, evicted, preempted, cancelled, waits, bans, merged, kinds[3], wrong_kinds;
    uint64_t limited, lost, slid;
    uint64_t parts_in; /* pages filled in part that came back */
} seen;

static uint32_t below(uint32_t limit)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % limit);
}

static uint64_t mix(uint64_t before, uint32_t word)
{
    uint64_t h = (before ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* window 0: pages have one part. slots 0: there is no second tier. */
static void open_pool(uint32_t window, uint32_t slots)
{
    static uint8_t block[(PAGES + 2 * SLOTS) * 1024];
    exl2__arena arena = { 0 };
    arena.base = block;
    arena.size = sizeof block;
    exl2__pages_make(&pages, &arena, PAGES);
    exl2__windows_make(&pages.windows, &arena, PAGES, window ? PARTS : 0, window, exl2__windows_rows(200, 0));
    exl2__tier_make(&tier, &arena, slots, PAGES, CONTEXT / EXL2__PAGE_TOKENS);
    CHECK(arena.used <= arena.size && pages.buckets != NULL && (slots == 0 || tier.moves != NULL));
    tier.worth = true;
    pages.tier = slots ? &tier : NULL;
    memset(&seen, 0, sizeof seen);
    pages.sampled = EXL2__WORD_SAMPLED;
    for (uint32_t t = 0; t < TEXTS; t++) { /* texts with common beginnings */
        for (uint32_t i = 0; i < CONTEXT; i++) {
            texts[t][i] = t && i < 150 * t ? texts[t - 1][i] : 1 + (exl2_token)below(50);
        }
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        all[i] = &memory[i];
    }
}

/* ---- what must always hold ---- */

/* The hash of the history up to the page's slot `slot`. */
static uint64_t expected(const exl2__pages *p, uint32_t page, uint32_t slot)
{
    const exl2__page *n = &p->page[page];
    uint64_t h = n->parent == EXL2__NO_PAGE ? n->root * 77 + 5 : expected(p, n->parent, EXL2__PAGE_TOKENS - 1);
    for (uint32_t i = 0; i <= slot; i++) {
        h = mix(h, exl2__pages_words(p, page)[i]);
    }
    return h;
}

static void check_page(uint32_t page, uint32_t users, uint32_t keepers)
{
    const exl2__page *n = &pages.page[page];
    uint32_t wrong = 0, children = 0, listed = 0;
    for (uint32_t c = n->child; c != EXL2__NO_PAGE; c = pages.page[c].next) {
        wrong += pages.page[c].parent != page || pages.page[c].depth != n->depth + 1;
        children++;
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        for (uint32_t c = pages.buckets[i]; c != EXL2__NO_PAGE; c = pages.page[c].same_hash) {
            listed += c == page;
        }
    }
    uint64_t h = n->parent == EXL2__NO_PAGE ? n->root * 77 + 5 : expected(&pages, n->parent, EXL2__PAGE_TOKENS - 1);
    uint32_t part = pages.windows.count ? pages.windows.part[page] : EXL2__NO_PAGE;
    for (uint32_t i = 0; i < n->filled; i++) {
        h = mix(h, exl2__pages_words(&pages, page)[i]);
        wrong += kv[page][i] != h;
        wrong += part != EXL2__NO_PAGE && part_kv[part][i] != h;
    }
    bool leaf = users == 0 && children == 0;
    CHECK(wrong == 0 && n->users == users && n->keepers == keepers && listed == !n->open);
    CHECK(n->filled <= n->count && n->count <= EXL2__PAGE_TOKENS && (n->open || n->count == EXL2__PAGE_TOKENS));
    CHECK(!n->open || users <= 1);
    CHECK(users > 0 || (n->filled == n->count && n->count > 0));
    CHECK((pages.rank[page] != UINT64_MAX) == leaf && (!leaf || (pages.rank[page] >> 63 != 0) == (keepers > 0)));
    for (uint32_t c = n->child; c != EXL2__NO_PAGE && users == 0; c = pages.page[c].next) {
        CHECK(pages.page[c].users == 0 && n->filled == EXL2__PAGE_TOKENS); /* no holes */
    }
}

/* Each part is free, or has one page. Those in `users` are pinned so often. */
static void check_parts(const uint32_t *users, uint32_t promised)
{
    const exl2__windows *w = &pages.windows;
    uint32_t used = 0, wrong = 0, pinned = 0;
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t part = w->part[i];
        used += part != EXL2__NO_PAGE;
        wrong += part != EXL2__NO_PAGE && (w->page[part] != i || w->users[part] != users[i]);
        wrong += part == EXL2__NO_PAGE && users[i] > 0;
        wrong += part != EXL2__NO_PAGE && (w->rank[part] == UINT64_MAX) != (users[i] > 0);
        pinned += users[i] > 0;
    }
    for (uint32_t i = 0; i < w->free_count; i++) {
        wrong += w->rank[w->free_list[i]] != UINT64_MAX || w->users[w->free_list[i]] != 0;
    }
    CHECK(wrong == 0 && used + w->free_count == PARTS && pinned <= PARTS);
    CHECK_INT(w->promised, promised);
    CHECK(promised + w->rows <= PARTS);
}

/* The node has the hashes of its words, and no other one that has more begins with them. */
static void check_node(uint32_t node)
{
    const exl2__pages *p = &tier.tree;
    const exl2__page *n = &p->page[node];
    const uint32_t *own = exl2__pages_words(p, node);
    uint32_t wrong = 0, at = *exl2__pages_children(&tier.tree, n->parent);
    uint64_t h = n->parent == EXL2__NO_PAGE ? n->root * 77 + 5 : expected(p, n->parent, EXL2__PAGE_TOKENS - 1);
    for (uint32_t i = 0; i < n->filled; i++) {
        h = mix(h, own[i]);
        wrong += slot_kv[tier.slot[node]][i] != h;
    }
    for (; at != EXL2__NO_PAGE; at = p->page[at].next) {
        bool sibling = at != node && exl2__pages_is_child(&p->page[at], n->parent, n->root);
        wrong += sibling && p->page[at].filled >= n->count && exl2__pages_common(p, at, own, n->count) == n->count;
    }
    CHECK(wrong == 0 && n->users == 0 && n->open == (n->count < EXL2__PAGE_TOKENS));
    CHECK(n->count >= EXL2__PAGES_COPY_MIN && (!n->open || n->child == EXL2__NO_PAGE));
    CHECK(n->filled == (tier.slot[node] == EXL2__NO_PAGE ? 0 : n->count) && (n->filled || n->child != EXL2__NO_PAGE));
}

/* Each slot is free, or has one node. */
static void check_tier(void)
{
    bool is_free[PAGES + SLOTS] = { false };
    uint32_t used[SLOTS] = { 0 }, wrong = 0;
    for (uint32_t i = 0; i < tier.tree.free_count; i++) {
        is_free[tier.tree.free_list[i]] = true;
    }
    for (uint32_t i = 0; i < tier.free_slot_count; i++) {
        used[tier.free_slots[i]]++;
    }
    for (uint32_t i = 0; i < tier.tree.count; i++) {
        if (!is_free[i] && tier.slot[i] != EXL2__NO_PAGE) {
            used[tier.slot[i]]++;
        }
        if (!is_free[i]) {
            check_node(i);
        }
    }
    for (uint32_t i = 0; i < tier.slots; i++) {
        wrong += used[i] != 1;
    }
    CHECK_INT(wrong, 0);
    CHECK_INT(tier.move_count, 0);
}

static void check_all(void)
{
    uint32_t users[PAGES] = { 0 }, keepers[PAGES] = { 0 }, owed = 0, used = 0, shared = 0;
    uint32_t part_users[PAGES] = { 0 }, promised = 0;
    bool is_free[PAGES] = { false };
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const exl2__table *t = &tables[i];
        const exl2__sequence *s = speakers[i].sequence;
        if (!speakers[i].open) {
            continue;
        }
        uint32_t wrong = t->tokens != speakers[i].twin_count;
        for (uint32_t k = 0; k < t->tokens; k++) {
            wrong += exl2__table_token(t, k) != speakers[i].twin[k];
        }
        CHECK_INT(wrong, 0);
        owed += t->owed;
        promised += t->parts_promised;
        for (uint32_t k = t->seen; k < t->seen_end; k++) {
            part_users[t->pages[k]]++;
        }
        bool active = s && s->active, idle = t->previous != t;
        CHECK(!active || (!idle && t->page_count + t->owed == exl2__pages_for(s->tokens_end)));
        CHECK(!idle || exl2__table_cached(t, &pages) <= t->tokens);
        for (uint32_t k = 0; k < t->page_count; k++) {
            users[t->pages[k]] += active;
            keepers[t->pages[k]] += idle;
            const exl2__page *n = &pages.page[t->pages[k]];
            CHECK(n->depth == k && n->parent == (k ? t->pages[k - 1] : EXL2__NO_PAGE) && (k || n->root == t->root));
            uint32_t have = exl2__min32(t->tokens - exl2__min32(t->tokens, k * 64), 64);
            CHECK(!active || exl2__pages_common(&pages, t->pages[k], t->words + k * 64, have)
                                 == exl2__min32(have, n->count));
        }
    }
    for (uint32_t i = 0; i < pages.free_count; i++) {
        is_free[pages.free_list[i]] = true;
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        used += users[i] > 0;
        shared += users[i] > 1;
        if (is_free[i]) {
            CHECK(users[i] == 0 && keepers[i] == 0 && pages.rank[i] == UINT64_MAX);
        } else {
            check_page(i, users[i], keepers[i]);
        }
    }
    CHECK_INT(pages.used, used);
    CHECK_INT(pages.shared, shared);
    CHECK_INT(pages.free_count + pages.used + pages.cached, PAGES);
    CHECK_INT(pages.owed, owed);
    if (pages.windows.count) {
        check_parts(part_users, promised);
    }
    CHECK(pages.owed <= pages.free_count + pages.cached); /* every promise can be kept */
    if (tier.slots) {
        check_tier();
    }
}

/* ---- moves ---- */

static void open_session(uint32_t i, uint32_t from)
{
    speaker *s = &speakers[i];
    if (s->open) {
        return;
    }
    memset(s, 0, sizeof *s);
    s->open = true;
    exl2__table_make(&tables[i], words[i], lists[i], below(4) ? 0 : ++roots);
    if (speakers[from].open && from != i) {
        const exl2__sequence *q = speakers[from].sequence;
        uint32_t tokens = q && q->begun ? q->final_end : tables[from].tokens;
        exl2__table_fork(&tables[from], &pages, &tables[i], tokens);
        memcpy(s->twin, speakers[from].twin, sizeof s->twin);
        s->twin_count = tokens;
    }
}

/* A job whose prompt goes on from a part of the history, often in the words of one of the texts. */
static void queue_job(uint32_t i)
{
    static uint64_t order;
    speaker *sp = &speakers[i];
    exl2__sequence *s = &memory[i];
    if (!sp->open || sp->sequence) {
        return;
    }
    *s = (exl2__sequence){ .live = true, .table = &tables[i], .prompt = (const uint32_t *)sp->prompt,
                           .order = order++ };
    const exl2_token *text = texts[below(TEXTS)];
    s->keep = below(3) ? sp->twin_count : below(sp->twin_count + 1);
    s->prompt_count = below(4) ? 1 + below(200) : 0;
    if (s->keep + s->prompt_count == 0 || s->keep + s->prompt_count > CONTEXT - 80) {
        s->keep = 0;
        s->prompt_count = 1 + below(CONTEXT - 300);
    }
    for (uint32_t k = 0; k < s->prompt_count; k++) {
        sp->prompt[k] = text[s->keep + k];
    }
    if (below(3) == 0) {
        sp->prompt[s->prompt_count ? below(s->prompt_count) : 0] = 60;
    }
    s->tokens_end = s->keep + s->prompt_count + 1 + below(CONTEXT - s->keep - s->prompt_count);
    s->priority = (int32_t)below(4);
    s->score_prompt = below(8) == 0;
    sp->sequence = s;
    sp->held = 0;
}

/* The same prompt in another session, in the same pass. */
static void queue_same(uint32_t i, uint32_t other)
{
    if (speakers[i].sequence && speakers[other].open && !speakers[other].sequence && other != i) {
        queue_job(other);
        exl2__sequence *s = &memory[other];
        const exl2__sequence *from = &memory[i];
        s->keep = 0;
        for (uint32_t k = 0; k < from->keep; k++) {
            speakers[other].prompt[k] = speakers[i].twin[k];
        }
        memcpy(speakers[other].prompt + from->keep, from->prompt, from->prompt_count * sizeof(exl2_token));
        s->prompt_count = from->keep + from->prompt_count;
        s->tokens_end = from->tokens_end;
    }
}

/* As exl2__jobs_free. */
static void end_job(uint32_t i)
{
    speaker *sp = &speakers[i];
    exl2__sequence *s = sp->sequence;
    if (!s) {
        return;
    }
    if (s->active) {
        exl2__table_release(s->table, &pages, s->final_end);
        s->active = false;
    }
    if (s->begun) {
        exl2__table_rewind(s->table, &pages, s->final_end);
        sp->twin_count = s->final_end;
    }
    s->live = false;
    sp->sequence = NULL;
}

static void close_session(uint32_t i)
{
    if (speakers[i].open) {
        end_job(i);
        exl2__table_forget(&tables[i], &pages);
        speakers[i].open = false;
    }
}

static void admit(void)
{
    uint32_t active = 0;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        active += memory[i].live && memory[i].active;
    }
    exl2__schedule_room room = { &pages, 6 - exl2__min32(active, 6) };
    exl2__sequence *s;
    uint32_t lost = exl2__schedule_slide(all, SESSIONS, &pages);
    seen.lost += lost;
    room.places += lost;
    seen.preempted += exl2__schedule_make_room(all, SESSIONS, &pages, &room);
    while ((s = exl2__schedule_next(all, SESSIONS, &room)) != NULL) {
        speaker *sp = &speakers[s - memory];
        exl2__table_text text = exl2__sequence_text(s);
        uint32_t demand = exl2__schedule_demand(s, &pages), before = exl2__pages_room(&pages);
        uint32_t found = exl2__table_find(&pages, &text, exl2__sequence_shared(s, text.tokens),
                                          exl2__sequence_reuse(s, text.tokens));
        if (!s->begun) {
            memcpy(sp->twin + s->keep, sp->prompt, s->prompt_count * sizeof *sp->prompt);
            sp->twin_count = s->keep + s->prompt_count;
        }
        uint32_t known, limit = exl2__table_limit(&pages, &text, exl2__sequence_shared(s, text.tokens),
                                                  exl2__sequence_reuse(s, text.tokens), &known);
        seen.limited += limit < known;
        exl2__schedule_start(s, all, SESSIONS, &pages);
        CHECK_INT(before - exl2__pages_room(&pages), demand);
        CHECK(s->table->cached <= found); /* the rest of what was found is copied before its rows */
        seen.starts++;
        seen.reused += found;
        room.places--;
    }
}

/* As exl2__tier_moves_run. */
static void run_moves(void)
{
    for (uint32_t i = 0; i < tier.move_count; i++) {
        exl2__tier_move m = tier.moves[i];
        uint64_t *page = kv[m.page], *slot = slot_kv[m.slot];
        memcpy(m.out ? slot : page, m.out ? page : slot, sizeof kv[0]);
        seen.parts_in += !m.out && pages.page[m.page].filled < EXL2__PAGE_TOKENS;
    }
    tier.move_count = 0;
}

/* The window of a row must have its hashes. Then the row's own joins them. */
static void fill_part(const exl2__table *t, uint32_t at, uint64_t h)
{
    const exl2__windows *w = &pages.windows;
    uint32_t wrong = 0, first = at + 1 > w->window ? at + 1 - w->window : 0;
    for (uint32_t i = first; i <= at; i++) {
        uint32_t page = t->pages[i / 64], part = w->part[page];
        bool there = i / 64 >= t->seen && i / 64 < t->seen_end && part != EXL2__NO_PAGE;
        wrong += !there || (i < at && part_kv[part][i % 64] != kv[page][i % 64]);
    }
    CHECK_INT(wrong, 0);
    part_kv[w->part[t->pages[at / 64]]][at % 64] = h;
    seen.slid += first > 0;
}

/* One pass. lost: it is dropped before it is computed, as after a cancel. */
static void run_pass(bool lost)
{
    uint32_t copy_count = 0, before = pages.used + pages.cached;
    static exl2__row_kind last;
    exl2__schedule_limits limits = { .kind = last, .rows = 1 + below(200), .prompt_rows = 1 + below(200),
                                     .sequences = 6, .sampled_rows = 8 };
    exl2__schedule_kind(all, SESSIONS, &pages, last, &limits);
    last = limits.kind;
    uint32_t rows = exl2__schedule_rows(all, SESSIONS, &pages, &limits, copies, &copy_count);
    run_moves();
    seen.kinds[last]++;
    seen.merged += pages.used + pages.cached < before;
    seen.shared += pages.shared > 0;
    seen.copied += copy_count;
    if (rows == 0 || lost) {
        CHECK(rows > 0 || copy_count == 0);
        for (uint32_t i = 0; rows > 0 && i < SESSIONS; i++) { /* a pass is dropped only with all of its jobs */
            if (memory[i].live && memory[i].rows) {
                end_job(i);
                seen.cancelled++;
            }
        }
        return;
    }
    for (uint32_t i = 0; i < copy_count; i++) {
        memcpy(kv[copies[i].to], kv[copies[i].from], sizeof kv[0]);
        if (pages.windows.count) {
            memcpy(part_kv[pages.windows.copies[i].to], part_kv[pages.windows.copies[i].from], sizeof part_kv[0]);
        }
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        exl2__sequence *s = &memory[i];
        exl2__table *t = &tables[i];
        seen.waits += s->live && s->blocked;
        for (uint32_t k = 0; s->live && k < s->rows; k++) {
            uint32_t at = t->cached + k;
            uint64_t h = at ? kv[t->pages[(at - 1) / 64]][(at - 1) % 64] : t->root * 77 + 5;
            kv[t->pages[at / 64]][at % 64] = mix(h, t->words[at]);
            if (pages.windows.count) {
                fill_part(t, at, kv[t->pages[at / 64]][at % 64]);
            }
            seen.wrong_kinds += !(t->words[at] & EXL2__WORD_SAMPLED) == (last == EXL2__ROWS_SAMPLED);
        }
    }
    for (uint32_t i = 0; i < SESSIONS; i++) {
        exl2__sequence *s = &memory[i];
        speaker *sp = &speakers[i];
        if (!s->live || s->rows == 0) {
            continue;
        }
        exl2__table_computed(s->table, &pages, s->rows);
        s->computed_end = exl2__max32(s->computed_end, s->table->cached);
        if (exl2__sequence_pending(s) == 0 && s->table->tokens < s->tokens_end) { /* sample */
            exl2_token token = texts[i % TEXTS][s->table->tokens];
            exl2__table_append(s->table, &pages, token, true);
            sp->twin[sp->twin_count++] = token;
            sp->held++;
            if (below(40) == 0) { /* a banned text: back to a token that is not final */
                uint32_t back = 1 + below(sp->held), tokens = s->table->tokens - back;
                exl2__table_cut(s->table, &pages, tokens, exl2__min32(s->table->cached, tokens - 1));
                sp->twin_count -= back;
                sp->held -= back;
                seen.bans++;
            }
            if (pages.windows.count ? below(40) == 0 : below(3)) { /* some of the held tokens are delivered */
                uint32_t due = below(sp->held + 1);
                s->final_end += due;
                sp->held -= due;
            }
        }
        if (s->table->tokens >= s->tokens_end) {
            s->final_end = s->table->tokens;
            end_job(i);
        }
    }
}

static void run(uint32_t window, uint32_t slots, uint32_t moves)
{
    open_pool(window, slots);
    for (uint32_t move = 0; move < moves; move++) {
        uint32_t i = below(SESSIONS), action = below(64);
        if (action < 3) {
            open_session(i, action ? below(SESSIONS) : i);
        } else if (action < 10) {
            queue_job(i);
            if (below(3) == 0) {
                queue_same(i, below(SESSIONS));
            }
        } else if (action < 12) {
            seen.cancelled += speakers[i].sequence != NULL;
            end_job(i);
        } else if (action == 12) {
            close_session(i);
        } else if (action == 13 && speakers[i].open && !speakers[i].sequence) {
            speakers[i].twin_count = below(speakers[i].twin_count + 1);
            exl2__table_rewind(&tables[i], &pages, speakers[i].twin_count);
        } else if (action == 14 && speakers[i].sequence) {
            speakers[i].sequence->held = !speakers[i].sequence->held;
        } else {
            admit();
            run_pass(action == 15);
        }
        if (move % 4 == 0 || move < 2000) {
            check_all();
        }
    }
    seen.evicted = pages.evictions;
    printf("%u starts, %u tokens found, %u evictions, %u preemptions, %u cancels, %u copies, %u waits, %u bans, "
           "%u merged\n", (unsigned)seen.starts, (unsigned)seen.reused, (unsigned)seen.evicted,
           (unsigned)seen.preempted,
           (unsigned)seen.cancelled, (unsigned)seen.copied, (unsigned)seen.waits, (unsigned)seen.bans,
           (unsigned)seen.merged);
    CHECK(seen.starts > 1000 && seen.reused > 100000 && seen.evicted > 1000 && seen.preempted > 100);
    CHECK(seen.kinds[EXL2__ROWS_PROMPT] > 1000 && seen.kinds[EXL2__ROWS_SAMPLED] > 1000 && seen.wrong_kinds == 0);
    CHECK(seen.cancelled > 500 && seen.copied > 100 && seen.waits > 10 && seen.bans > 50 && seen.shared > 100);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        close_session(i);
    }
    check_all();
    CHECK(pages.used == 0 && pages.owed == 0 && pages.shared == 0);
    while (pages.cached) { /* everything can be evicted */
        exl2__table_drop_page(&pages, exl2__pages_oldest(&pages));
    }
    CHECK_INT(pages.free_count, PAGES);
}

/* A cached page whose words begin with `first`. */
static uint32_t cached_page(uint64_t root, uint32_t first)
{
    uint32_t text[EXL2__PAGE_TOKENS];
    for (uint32_t i = 0; i < EXL2__PAGE_TOKENS; i++) {
        text[i] = first + i;
    }
    pages.clock++;
    uint32_t page = exl2__pages_link(&pages, EXL2__NO_PAGE, root, text, EXL2__PAGE_TOKENS);
    pages.page[page].filled = EXL2__PAGE_TOKENS;
    exl2__pages_close(&pages, page);
    exl2__pages_unpin(&pages, page);
    return page;
}

/* An adapter of root 2 ends: its pages are evicted first, from the second tier, too, and no more of them go there. */
static void check_ended_adapter(void)
{
    open_pool(0, SLOTS);
    uint32_t plain = cached_page(1, 1), adapted = cached_page(2, 1), later = cached_page(2, 100);
    exl2__tier_keep(&tier, &pages, plain);
    exl2__tier_keep(&tier, &pages, adapted);
    CHECK(tier.out == 2 && pages.page[exl2__pages_oldest(&pages)].root == 1);
    exl2__roots_age(&pages, 2);
    CHECK_INT(pages.page[exl2__pages_oldest(&pages)].root, 2);
    CHECK_INT(tier.tree.page[exl2__pages_oldest(&tier.tree)].root, 2);
    exl2__tier_keep(&tier, &pages, later);
    CHECK_INT(tier.out, 2);
    exl2__tier_forget(&tier);
}

int main(void)
{
    check_ended_adapter();
    run(0, 0, MOVES);
    run(0, SLOTS, MOVES);
    printf("second tier: %u pages out, %u in, %u of these filled in part\n", (unsigned)tier.out, (unsigned)tier.in,
           (unsigned)seen.parts_in);
    CHECK(tier.out > 1000 && tier.in > 500 && seen.parts_in > 200);
    exl2__tier_forget(&tier);
    CHECK(tier.free_slot_count == SLOTS && tier.tree.free_count == PAGES + SLOTS);
    run(100, 0, MOVES);
    printf("parts of pages: %u starts before what is known, %u jobs that lost parts, %u rows beyond the window\n",
           (unsigned)seen.limited, (unsigned)seen.lost, (unsigned)seen.slid);
    CHECK(seen.limited > 100 && seen.slid > 10000);
    CHECK_INT(pages.windows.free_count, PARTS);
    return check_done();
}
