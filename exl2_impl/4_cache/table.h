/* table.h: the pages that hold K and V of a session's history while a job runs.
   takes: a history; the pages of the model.
   gives: exl2__table_limit, _find, _demand, _start, _sync, _promise_windows, _slide, _see, _reserve, _borrow, _run,
          _set_sampled, _mark, _computed, _cut, _close, _release, _unpin_all, _pin_all.
   owns:  a use of each of its pages, from exl2__table_start to exl2__table_release; both arrays lie in the model's
          scratch arena.

   In a model with windows a job can only continue at a place where all parts with keys that its next row sees are left.
   After a rewind, or where texts diverge, such parts may have been given away. Then the job begins earlier, with pages
   of its own, whose parts go to the pages that had lost theirs (exl2__table_close). */
#ifndef EXL2__TABLE_H
#define EXL2__TABLE_H

#include "table_history.h"

/* ---- what a start finds ---- */

/* The cached page that the table may continue itself, because it has all parts, and all of its words belong to the
   history. EXL2__NO_PAGE: there is none. */
static inline uint32_t exl2__table_own_page(const exl2__table *t, const exl2__pages *p, uint32_t parent,
                                            const uint32_t *words, uint32_t count)
{
    uint32_t best = EXL2__NO_PAGE, at = parent == EXL2__NO_PAGE ? p->first : p->page[parent].child;
    for (; at != EXL2__NO_PAGE; at = p->page[at].next) {
        const exl2__page *n = &p->page[at];
        bool own = exl2__pages_is_child(n, parent, t->root) && exl2__table_owns(t, p, at)
                && exl2__windows_has(&p->windows, at) && exl2__pages_common(p, at, words, count) == n->count;
        best = own && (best == EXL2__NO_PAGE || n->count > p->page[best].count) ? at : best;
    }
    return best;
}

/* How much of the text's first `reuse` tokens, of which the first `shared` may lie in pages of other jobs, a job can
   use although parts of pages were given away: a multiple of the page size. UINT32_MAX: all that it finds. *known:
   number of tokens whose K and V of layers without a window are cached. */
static inline uint32_t exl2__table_limit(const exl2__pages *p, const exl2__table_text *x, uint32_t shared,
                                         uint32_t reuse, uint32_t *known)
{
    const exl2__windows *w = &p->windows;
    uint32_t words[EXL2__PAGE_TOKENS], parent = EXL2__NO_PAGE, run = 0, usable = 0; /* as in exl2__table_usable */
    *known = 0;
    for (uint32_t i = 0; i * EXL2__PAGE_TOKENS < reuse && w->count > 0; i++) {
        uint32_t begin = i * EXL2__PAGE_TOKENS, count = exl2__table_gather(x, i, words), filled = 0;
        bool closed = begin + EXL2__PAGE_TOKENS <= shared;
        uint32_t page = closed ? exl2__pages_match(p, parent, x->table->root, words, EXL2__NO_PAGE) : EXL2__NO_PAGE;
        page = page == EXL2__NO_PAGE ? exl2__table_own_page(x->table, p, parent, words, count) : page;
        filled = page == EXL2__NO_PAGE ? 0 : exl2__min32(p->page[page].filled, reuse - begin);
        run = filled == 0 || exl2__windows_has(w, page) ? run : i + 1;
        *known = begin + filled;
        if (filled < EXL2__PAGE_TOKENS) {
            break;
        }
        usable = run <= exl2__windows_first(w, *known) ? *known : usable;
        parent = page;
    }
    return w->count == 0 || run <= exl2__windows_first(w, *known) ? UINT32_MAX : usable;
}

/* For the second tier: the words of a page of a text; of a table. */
static inline const uint32_t *exl2__table_text_words(const void *text, uint32_t page, uint32_t *memory)
{
    exl2__table_gather((const exl2__table_text *)text, page, memory);
    return memory;
}

static inline const uint32_t *exl2__table_own_words(const void *table, uint32_t page, uint32_t *memory)
{
    (void)memory;
    return exl2__table_words((const exl2__table *)table, page);
}

/* How many of the first `most` words of the text's page `at` come back from the second tier, at *node, into the table's
   page, which has `own` of them. 0: the tier has hardly more, or a page of the pool has as many. parent: the parent of
   that page in the pool. own_page: the page that the table continues itself. */
static inline uint32_t exl2__table_back(const exl2__pages *p, const exl2__table_text *x, uint32_t at, uint32_t most,
                                        uint32_t parent, uint32_t own_page, uint32_t own, uint32_t *node)
{
    uint32_t words[EXL2__PAGE_TOKENS], common, pooled;
    *node = exl2__tier_closest(p->tier, x->table->root, at, most, exl2__table_text_words, x, &common);
    if (common < own + EXL2__PAGES_COPY_MIN) {
        return 0;
    }
    exl2__table_gather(x, at, words);
    exl2__pages_closest(p, parent, x->table->root, words, most, own_page, true, &pooled);
    return common > pooled ? common : 0;
}

/* Number of the text's first `reuse` tokens whose K and V a job would find. The first `shared` of them may lie in pages
   of other jobs. */
static inline uint32_t exl2__table_find(const exl2__pages *p, const exl2__table_text *x, uint32_t shared,
                                        uint32_t reuse)
{
    uint32_t words[EXL2__PAGE_TOKENS], parent = EXL2__NO_PAGE, common;
    uint32_t limit = exl2__table_limit(p, x, shared, reuse, &common);
    uint64_t root = x->table->root;
    if (limit != UINT32_MAX) {
        return limit;
    }
    for (uint32_t i = 0; i * EXL2__PAGE_TOKENS < reuse; i++) {
        uint32_t begin = i * EXL2__PAGE_TOKENS, count = exl2__table_gather(x, i, words);
        bool closed = begin + EXL2__PAGE_TOKENS <= shared;
        uint32_t page = closed ? exl2__pages_match(p, parent, root, words, EXL2__NO_PAGE) : EXL2__NO_PAGE;
        uint32_t back = closed && page == EXL2__NO_PAGE
            ? exl2__tier_count(p->tier, root, i, shared / EXL2__PAGE_TOKENS, exl2__table_text_words, x) : 0;
        if (back) { /* the pool has no page after those of the tier */
            begin += back * EXL2__PAGE_TOKENS;
            exl2__tier_closest(p->tier, root, i + back, exl2__min32(reuse - begin, EXL2__PAGE_TOKENS),
                               exl2__table_text_words, x, &common);
            return begin + common;
        }
        if (page == EXL2__NO_PAGE || p->page[page].filled < EXL2__PAGE_TOKENS) {
            uint32_t own_page = page == EXL2__NO_PAGE ? exl2__table_own_page(x->table, p, parent, words, count) : page;
            uint32_t own = own_page == EXL2__NO_PAGE ? 0 : exl2__min32(p->page[own_page].filled, reuse - begin), node;
            uint32_t rest = page == EXL2__NO_PAGE ? exl2__min32(reuse - begin, EXL2__PAGE_TOKENS) : 0;
            own = exl2__max32(own, exl2__table_back(p, x, i, rest, parent, own_page, own, &node));
            uint32_t most = exl2__min32(exl2__min32(x->copied, reuse) - begin, EXL2__PAGE_TOKENS - 1), same = own;
            while (same < count && !((words[same] ^ words[own]) & p->sampled)) {
                same++;
            }
            most = exl2__min32(most, exl2__max32(same, 1) - 1); /* a row of this kind follows the copy */
            exl2__pages_closest(p, parent, root, words, most, own_page, true, &common);
            return begin + (common >= own + EXL2__PAGES_COPY_MIN ? common : own);
        }
        parent = page;
    }
    return reuse;
}

/* Number of pages of the pool's room that a start would use: all pages of the text up to tokens_end, but not those that
   running jobs have already. `shared` and `reuse` are those of the start. */
static inline uint32_t exl2__table_demand(const exl2__pages *p, const exl2__table_text *x, uint32_t shared,
                                          uint32_t reuse, uint32_t tokens_end)
{
    uint32_t words[EXL2__PAGE_TOKENS], parent = EXL2__NO_PAGE, demand = exl2__pages_for(tokens_end), known;
    shared = p->used == 0 ? 0 : exl2__min32(shared, exl2__table_limit(p, x, shared, reuse, &known));
    for (uint32_t i = 0; (i + 1) * EXL2__PAGE_TOKENS <= shared; i++) {
        exl2__table_gather(x, i, words);
        parent = exl2__pages_match(p, parent, x->table->root, words, EXL2__NO_PAGE);
        if (parent == EXL2__NO_PAGE || p->page[parent].users == 0) {
            break;
        }
        demand--;
    }
    return demand;
}

/* ---- a running job ---- */

/* Extends a page, which has the first words of the table's page `at`, to the first `count` of them. */
static inline void exl2__table_extend_page(const exl2__table *t, exl2__pages *p, uint32_t page, uint32_t at,
                                           uint32_t count)
{
    exl2__page *n = &p->page[page];
    if (count > n->count) {
        const uint32_t *words = exl2__table_words(t, at) + n->count;
        exl2__vectors_use(p->vectors, words, count - n->count);
        memcpy(exl2__pages_words(p, page) + n->count, words, (count - n->count) * sizeof *words);
        n->count = count;
    }
}

/* An open page with `count` words after the table's last one. A promised page is always free, or can be evicted. */
static inline void exl2__table_take(exl2__table *t, exl2__pages *p, const uint32_t *words, uint32_t count)
{
    if (p->free_count == 0) {
        uint32_t oldest = exl2__pages_oldest(p);
        exl2__tier_keep(p->tier, p, oldest);
        exl2__table_drop_page(p, oldest);
        p->evictions++;
    }
    uint32_t parent = t->page_count ? t->pages[t->page_count - 1] : EXL2__NO_PAGE;
    t->pages[t->page_count++] = exl2__pages_link(p, parent, t->root, words, count);
}

/* After the pages that the table has found come those that the second tier has, into new pages, up to the closed
   ones. */
static inline void exl2__table_bring(exl2__table *t, exl2__pages *p)
{
    exl2__tier *tier = p->tier;
    if (!tier || !tier->worth || t->page_count >= t->closed) {
        return;
    }
    uint32_t node = exl2__tier_find(tier, t->root, t->page_count, exl2__table_own_words, t), next = node;
    while (next != EXL2__NO_PAGE && tier->slot[next] != EXL2__NO_PAGE && tier->move_count + 2 <= tier->move_max) {
        exl2__table_take(t, p, exl2__table_words(t, t->page_count), EXL2__PAGE_TOKENS); /* which may list an eviction */
        uint32_t page = t->pages[t->page_count - 1];
        p->page[page].filled = EXL2__PAGE_TOKENS;
        exl2__pages_close(p, page);
        exl2__tier_list(tier, tier->slot[next], page, false);
        node = next;
        next = t->page_count < t->closed
             ? exl2__tier_pin(tier, node, t->root, exl2__table_words(t, t->page_count), false) : EXL2__NO_PAGE;
    }
    exl2__tier_unpin(tier, next != EXL2__NO_PAGE ? next : node);
}

/* Advances `cached` over what this job or another one has computed in the table's pages. */
static inline void exl2__table_sync(exl2__table *t, const exl2__pages *p)
{
    uint32_t last = t->tokens - 1; /* is always computed by the job itself, for its logits */
    for (uint32_t page = t->cached / EXL2__PAGE_TOKENS; t->cached < last && page < t->page_count; page++) {
        uint32_t filled = page * EXL2__PAGE_TOKENS + p->page[t->pages[page]].filled;
        t->cached = exl2__max32(t->cached, exl2__min32(filled, last));
        if (filled < (page + 1) * EXL2__PAGE_TOKENS) {
            break;
        }
    }
}

/* ---- parts of pages ---- */

/* Promises the table the parts that a history of tokens_end needs. */
static inline void exl2__table_promise_windows(exl2__table *t, exl2__pages *p, uint32_t tokens_end)
{
    if (p->windows.count > 0) {
        t->parts_promised = exl2__min32(exl2__windows_each(p->windows.window), exl2__pages_for(tokens_end));
        p->windows.promised += t->parts_promised;
    }
}

/* Gives up the part of the table's page. A text that goes on from one of the likely places would need it. */
static inline void exl2__table_unsee(const exl2__table *t, exl2__pages *p, uint32_t page, bool last)
{
    for (uint32_t i = 0; i < EXL2__COUNT(t->likely); i++) {
        last = last || (page >= exl2__windows_first(&p->windows, t->likely[i])
                        && page < exl2__pages_for(t->likely[i]));
    }
    exl2__windows_unpin(&p->windows, t->pages[page], last);
}

/* After `cached` has changed: pins the parts that the next row sees, and gives up the others, but for the page after
   the history. false: one of them was given away, so the job cannot go on here. */
static inline bool exl2__table_slide(exl2__table *t, exl2__pages *p)
{
    const exl2__windows *w = &p->windows;
    if (w->count == 0) {
        return true;
    }
    uint32_t first = exl2__windows_first(w, t->cached), end = exl2__pages_for(t->cached);
    uint32_t most = exl2__pages_for((uint64_t)t->cached + 1 + EXL2__PAGE_TOKENS);
    while (t->seen_end > t->seen && t->seen_end > most) {
        exl2__table_unsee(t, p, --t->seen_end, false);
    }
    while (t->seen < t->seen_end && t->seen < first) {
        exl2__table_unsee(t, p, t->seen++, false);
    }
    if (t->seen == t->seen_end) {
        t->seen = t->seen_end = first;
    }
    while (t->seen > first && exl2__windows_has(w, t->pages[t->seen - 1])) {
        exl2__windows_pin(&p->windows, t->pages[--t->seen]);
    }
    while (t->seen_end < end && exl2__windows_has(w, t->pages[t->seen_end])) {
        exl2__windows_pin(&p->windows, t->pages[t->seen_end++]);
    }
    return t->seen == first && t->seen_end >= end;
}

/* Pins the parts of the table's pages before `end`, and gives parts to those that have none. */
static inline void exl2__table_see(exl2__table *t, exl2__pages *p, uint32_t end)
{
    exl2__windows *w = &p->windows;
    for (end = exl2__min32(end, t->page_count); w->count > 0 && t->seen_end < end; t->seen_end++) {
        uint32_t page = t->pages[t->seen_end];
        if (!exl2__windows_has(w, page)) {
            EXL2__ASSERT(p->page[page].filled == 0);
            exl2__windows_take(w, page);
        }
        exl2__windows_pin(w, page);
    }
}

/* Gives up all parts, and the promise. */
static inline void exl2__table_unsee_all(exl2__table *t, exl2__pages *p)
{
    while (t->seen < t->seen_end) {
        exl2__table_unsee(t, p, t->seen++, true);
    }
    p->windows.promised -= t->parts_promised;
    t->seen = t->seen_end = t->parts_promised = 0;
}

/* The page `from` of the table makes way for `to`, which has the same words: so does its part. */
static inline void exl2__table_merge_parts(const exl2__table *t, exl2__pages *p, uint32_t at, uint32_t from,
                                           uint32_t to)
{
    exl2__windows *w = &p->windows;
    if (w->count > 0 && exl2__windows_has(w, from) && !exl2__windows_has(w, to)) {
        exl2__windows_move(w, from, to);
    } else if (at >= t->seen && at < t->seen_end) {
        exl2__windows_pin(w, to);
        exl2__windows_unpin(w, from, false);
    }
}

/* ---- start ---- */

/* The first `count` words of the table's page `at` come back from the node, which is given up. */
static inline void exl2__table_bring_part(const exl2__table *t, exl2__pages *p, uint32_t at, uint32_t node,
                                          uint32_t count)
{
    exl2__tier *tier = p->tier;
    if (tier->move_count < tier->move_max) {
        exl2__tier_list(tier, tier->slot[node], t->pages[at], false);
        p->page[t->pages[at]].filled = count;
    }
    exl2__tier_unpin(tier, node);
}

/* After the pages that were found comes the one that the table continues itself, perhaps with words that the second
   tier has, and then new ones. At most `reuse` tokens are found. text: the whole history. */
static inline void exl2__table_continue(exl2__table *t, exl2__pages *p, const exl2__table_text *text, uint32_t reuse)
{
    uint32_t first = t->page_count, total = exl2__pages_for(t->tokens), begin = first * EXL2__PAGE_TOKENS, node;
    uint32_t parent = first ? t->pages[first - 1] : EXL2__NO_PAGE;
    uint32_t own_page = exl2__table_own_page(t, p, parent, exl2__table_words(t, first),
                                             exl2__min32(t->tokens - begin, EXL2__PAGE_TOKENS));
    uint32_t rest = reuse > begin ? reuse - begin : 0;
    uint32_t own = own_page == EXL2__NO_PAGE ? 0 : exl2__min32(p->page[own_page].filled, rest);
    uint32_t back = exl2__table_back(p, text, first, exl2__min32(rest, EXL2__PAGE_TOKENS), parent, own_page, own,
                                     &node);
    if (back) {
        exl2__tier_hold(p->tier, node); /* while pages are evicted */
    }
    for (uint32_t i = first; i < total; i++) {
        uint32_t count = exl2__min32(t->tokens - i * EXL2__PAGE_TOKENS, EXL2__PAGE_TOKENS);
        if (i > first || own_page == EXL2__NO_PAGE) {
            exl2__table_take(t, p, exl2__table_words(t, i), count);
        } else {
            exl2__pages_pin(p, own_page);
            exl2__pages_open(p, own_page);
            exl2__table_extend_page(t, p, own_page, i, count);
            p->page[own_page].filled = own;
            t->pages[t->page_count++] = own_page;
        }
        if (i < t->closed) {
            exl2__pages_close(p, t->pages[i]);
        }
    }
    if (back) {
        exl2__table_bring_part(t, p, first, node, back);
    }
}

/* Gives the table the pages of its history: those that exist, then new ones. At most `reuse` tokens are found, and the
   first `shared` of them in pages of other jobs, too; shared <= reuse < the history. Pages for a history of tokens_end
   are promised: the pool must have room for exl2__table_demand. */
static inline void exl2__table_start(exl2__table *t, exl2__pages *p, uint32_t tokens_end, uint32_t shared,
                                     uint32_t reuse)
{
    uint32_t total = exl2__pages_for(t->tokens), page, parent = EXL2__NO_PAGE;
    exl2__table_text text = { t, t->tokens, NULL, t->tokens, 0 };
    exl2__table_forget(t, p);
    uint32_t limit = exl2__table_limit(p, &text, shared, reuse, &t->likely[0]);
    shared = exl2__min32(shared, limit);
    reuse = exl2__min32(reuse, limit);
    t->likely[1] = t->tokens;
    t->page_count = t->cached = 0;
    t->closed = shared / EXL2__PAGE_TOKENS;
    p->clock++;
    while (t->page_count < t->closed) {
        page = exl2__pages_match(p, parent, t->root, exl2__table_words(t, t->page_count), EXL2__NO_PAGE);
        if (page == EXL2__NO_PAGE) {
            break;
        }
        exl2__pages_pin(p, page);
        t->pages[t->page_count++] = parent = page;
    }
    exl2__table_bring(t, p);
    exl2__table_continue(t, p, &text, reuse);
    t->owed = exl2__pages_for(tokens_end) - total;
    p->owed += t->owed;
    exl2__table_sync(t, p);
    EXL2__ASSERT(t->closed <= t->page_count && t->page_count == total);
    EXL2__ASSERT(exl2__pages_add_up(p));
}

/* Number of pages that the table has or was promised. */
static inline uint32_t exl2__table_promised(const exl2__table *t)
{
    return t->page_count + t->owed;
}

/* Promises more pages, `count` in all, those that the table has included. The pool must have room for them. */
static inline void exl2__table_promise(exl2__table *t, exl2__pages *p, uint32_t count)
{
    uint32_t more = count > exl2__table_promised(t) ? count - exl2__table_promised(t) : 0;
    t->owed += more;
    p->owed += more;
    EXL2__ASSERT(exl2__pages_add_up(p));
}

/* Takes promised pages, so that the table has those of the first `tokens` tokens. */
static inline void exl2__table_reserve(exl2__table *t, exl2__pages *p, uint32_t tokens)
{
    while (t->page_count < exl2__pages_for(tokens)) {
        EXL2__ASSERT(t->owed > 0);
        exl2__table_take(t, p, t->words, 0);
        t->owed--;
        p->owed--;
    }
}

/* Before the next tokens get rows. false: another job computes some of them in this pass, so this one waits. If another
   page has more of them than the table's own, it is copied: *copied, and `cached` counts its tokens. At most `reuse`
   tokens of the history may be found. parts: as `copy`, of the pages' parts. */
static inline bool exl2__table_borrow(exl2__table *t, exl2__pages *p, uint32_t reuse, exl2__page_copy *copy,
                                      exl2__page_copy *parts, bool *copied)
{
    uint32_t at = t->cached / EXL2__PAGE_TOKENS, begin = at * EXL2__PAGE_TOKENS, page = t->pages[at];
    uint32_t parent = p->page[page].parent, best = EXL2__NO_PAGE, own = t->cached - begin, ready = own, coming = own;
    *copied = false;
    if (p->page[page].pass == p->pass) {
        return false;
    }
    if (reuse < t->cached + EXL2__PAGES_COPY_MIN) {
        return true;
    }
    uint32_t most = exl2__min32(reuse - begin, EXL2__PAGE_TOKENS - 1); /* one row at least fills the page itself */
    uint32_t q = parent == EXL2__NO_PAGE ? p->first : p->page[parent].child;
    for (; q != EXL2__NO_PAGE; q = p->page[q].next) {
        bool usable = q != page && exl2__windows_has(&p->windows, q);
        if (!usable || !exl2__pages_is_child(&p->page[q], parent, t->root)) {
            continue;
        }
        uint32_t same = exl2__pages_common(p, q, exl2__table_words(t, at), most);
        coming = p->page[q].pass == p->pass ? exl2__max32(coming, same) : coming;
        same = exl2__min32(same, p->page[q].filled);
        best = same > ready ? q : best;
        ready = exl2__max32(ready, same);
    }
    if (coming > ready && coming >= own + EXL2__PAGES_COPY_MIN) {
        return false;
    }
    if (ready >= own + EXL2__PAGES_COPY_MIN) {
        *copy = (exl2__page_copy){ best, page };
        *copied = true;
        if (p->windows.count > 0) {
            exl2__windows_pin(&p->windows, best); /* the page's own part must be another one */
            exl2__table_see(t, p, at + 1);
            *parts = (exl2__page_copy){ p->windows.part[best], p->windows.part[page] };
            exl2__windows_unpin(&p->windows, best, true);
        }
        p->page[best].age = p->clock;
        exl2__pages_rank(p, best);
        t->cached = begin + ready;
    }
    return true;
}

/* Number of pending tokens at the beginning whose rows are of one kind. */
static inline uint32_t exl2__table_run(const exl2__table *t, const exl2__pages *p)
{
    uint32_t end = t->cached;
    while (end < t->tokens && !((t->words[end] ^ t->words[t->cached]) & p->sampled)) {
        end++;
    }
    return end - t->cached;
}

/* May this job change the words of the table's page? Only those of an open page, which no other job has. */
static inline bool exl2__table_may_write(const exl2__table *t, const exl2__pages *p, uint32_t page)
{
    const exl2__page *n = &p->page[t->pages[page]];
    return page >= t->closed && page < t->page_count && n->open && n->users == 1;
}

/* Makes the history's last token, which lies in an open page and has no K and V yet, a sampled one. */
static inline void exl2__table_set_sampled(exl2__table *t, exl2__pages *p)
{
    uint32_t last = t->tokens - 1;
    EXL2__ASSERT(exl2__table_may_write(t, p, last / EXL2__PAGE_TOKENS));
    t->words[last] |= p->sampled;
    exl2__pages_words(p, t->pages[last / EXL2__PAGE_TOKENS])[last % EXL2__PAGE_TOKENS] = t->words[last];
}

/* The next `rows` tokens get rows in this pass: no other job needs to compute them. */
static inline void exl2__table_mark(const exl2__table *t, exl2__pages *p, uint32_t rows)
{
    for (uint32_t i = t->cached / EXL2__PAGE_TOKENS; i * EXL2__PAGE_TOKENS < t->cached + rows; i++) {
        p->page[t->pages[i]].pass = p->pass;
    }
}

/* K and V of the next `rows` tokens are computed. */
static inline void exl2__table_computed(exl2__table *t, exl2__pages *p, uint32_t rows)
{
    uint32_t end = t->cached + rows;
    for (uint32_t i = t->cached / EXL2__PAGE_TOKENS; i * EXL2__PAGE_TOKENS < end; i++) {
        uint32_t filled = exl2__min32(end - i * EXL2__PAGE_TOKENS, EXL2__PAGE_TOKENS);
        exl2__page *n = &p->page[t->pages[i]];
        EXL2__ASSERT(n->count >= filled || exl2__table_may_write(t, p, i));
        exl2__table_extend_page(t, p, t->pages[i], i, filled);
        n->filled = exl2__max32(n->filled, filled);
    }
    t->cached = end;
}

/* Keeps the first `tokens` tokens of a history in use, and K and V of the first `cached`. Only open pages are cut. */
static inline void exl2__table_cut(exl2__table *t, exl2__pages *p, uint32_t tokens, uint32_t cached)
{
    EXL2__ASSERT(tokens <= t->tokens);
    bool shorter = tokens < t->tokens; /* pages may have words of the others */
    exl2__table_keep(t, p, tokens);
    if (cached >= t->cached && !shorter) {
        return;
    }
    EXL2__ASSERT(cached >= t->cached || cached / EXL2__PAGE_TOKENS >= t->closed);
    for (uint32_t i = exl2__max32(cached / EXL2__PAGE_TOKENS, t->closed); i < t->page_count; i++) {
        exl2__page *n = &p->page[t->pages[i]];
        uint32_t keep = cached > i * EXL2__PAGE_TOKENS ? cached - i * EXL2__PAGE_TOKENS : 0;
        EXL2__ASSERT(exl2__table_may_write(t, p, i));
        n->filled = exl2__min32(n->filled, keep);
        exl2__pages_shorten(p, t->pages[i], keep);
    }
    t->cached = exl2__min32(t->cached, cached);
}

/* Closes the pages of the first `final` tokens, which cannot be cut any more. If another page has the same words, the
   table takes that one and gives its own back. */
static inline void exl2__table_close(exl2__table *t, exl2__pages *p, uint32_t final)
{
    for (; t->closed < t->page_count && (t->closed + 1) * EXL2__PAGE_TOKENS <= final; t->closed++) {
        uint32_t page = t->pages[t->closed];
        const exl2__page *n = &p->page[page];
        if (n->filled < EXL2__PAGE_TOKENS) {
            return;
        }
        uint32_t same = exl2__pages_match(p, n->parent, t->root, exl2__pages_words(p, page), page);
        if (same == EXL2__NO_PAGE || p->page[same].filled < EXL2__PAGE_TOKENS) {
            exl2__pages_close(p, page);
            continue;
        }
        if (t->closed + 1 < t->page_count) {
            exl2__pages_detach(p, t->pages[t->closed + 1]);
            exl2__pages_attach(p, t->pages[t->closed + 1], same);
        }
        exl2__pages_pin(p, same);
        exl2__table_merge_parts(t, p, t->closed, page, same);
        exl2__pages_unpin(p, page);
        exl2__table_drop_page(p, page);
        t->pages[t->closed] = same;
    }
}

/* The job has ended, or waits again: the history keeps `tokens` tokens, and what is computed of them becomes cache. */
static inline void exl2__table_release(exl2__table *t, exl2__pages *p, uint32_t tokens)
{
    exl2__table_unsee_all(t, p);
    exl2__table_cut(t, p, tokens, exl2__min32(t->cached, tokens));
    exl2__table_close(t, p, tokens);
    p->clock++;
    for (uint32_t i = t->page_count; i-- > 0;) {
        exl2__page *n = &p->page[t->pages[i]];
        exl2__pages_unpin(p, t->pages[i]);
        if (n->users == 0 && n->filled < EXL2__PAGE_TOKENS) {
            exl2__pages_open(p, t->pages[i]);
            exl2__pages_shorten(p, t->pages[i], n->filled);
        }
        if (n->users == 0 && n->count == 0) {
            exl2__table_drop_page(p, t->pages[i]);
        }
    }
    p->owed -= t->owed;
    t->owed = t->page_count = t->cached = t->closed = 0;
    EXL2__ASSERT(exl2__pages_add_up(p));
    EXL2__ASSERT_SLOW(exl2__pages_are_apart(p));
}

/* Unpins a job's pages, as if it had released them, to find out what would fit then. exl2__table_pin_all undoes it. */
static inline void exl2__table_unpin_all(const exl2__table *t, exl2__pages *p)
{
    p->owed -= t->owed;
    p->windows.promised -= t->parts_promised;
    for (uint32_t i = 0; i < t->page_count; i++) {
        exl2__pages_unpin(p, t->pages[i]);
    }
}

static inline void exl2__table_pin_all(const exl2__table *t, exl2__pages *p)
{
    p->owed += t->owed;
    p->windows.promised += t->parts_promised;
    for (uint32_t i = 0; i < t->page_count; i++) {
        exl2__pages_pin(p, t->pages[i]);
    }
}

#endif
