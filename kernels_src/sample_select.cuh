/* sample_select.cuh: the tokens of a row as items in order, and prefixes of that order, by one CTA.
   takes: sample_weight.cuh, sample_args.h; the row's keys of blocks.
   gives: exl2k_sample_work, exl2k_row_view, exl2k_items, exl2k_collect, exl2k_items_sum, exl2k_prefix.
   owns:  nothing; lists lie in exl2k_sample_work, in shared memory.
   next:  sample_filter.cuh

   Survivors of filters are always a prefix of the order (logit descending, id ascending), so a key and a number say it
   all: every token above the key, and the first `ties` of those equal to it. The prefix that measures a given amount
   is found by a search over keys with three probes a round. Tokens are looked at in a list in shared memory, or, when
   more are left than it takes, where they lie. All threads of the CTA call every function here. */
#ifndef EXL2K_SAMPLE_SELECT_CUH
#define EXL2K_SAMPLE_SELECT_CUH

#include "sample_args.h"
#include "sample_weight.cuh"

#define EXL2K_LIST_MAX 2048u
#define EXL2K_BLOCKS_MAX (2 * EXL2K_LIST_MAX)
#define EXL2K_TIES_ALL EXL2K_ALL
#define EXL2K_SAMPLE_WARPS (EXL2K_SAMPLE_THREADS / 32)

typedef struct exl2k_sample_work { /* shared memory */
    union {
        u64 weights[EXL2K_LIST_MAX];
        int block_keys[EXL2K_BLOCKS_MAX]; /* a copy, if the row has no more */
    };
    int keys[EXL2K_LIST_MAX];
    u32 ids[EXL2K_LIST_MAX]; /* ascending */
    u64 partial[3][EXL2K_SAMPLE_WARPS];
    exl2k_draw draw;
    u32 eighths[8];
    u32 alt_ids[EXL2K_ALTS_MAX];
    int alt_keys[EXL2K_ALTS_MAX];
    u32 counter, found;
} exl2k_sample_work;

typedef struct exl2k_row_view { /* a row of logits, raw or adjusted */
    exl2k_sample_work *w;
    u64 logits, keys, sums; /* f32 [vocab], i32 [blocks], u64 [blocks] */
    u32 vocab, blocks;      /* blocks: of `vocab` */
    exl2k_curve curve;
} exl2k_row_view;

typedef struct exl2k_choice {
    int key;
    u32 ties;
} exl2k_choice;

/* ---- sums over the CTA ---- */

EXL2K_FN u64 exl2k_warp_sum64(u64 v)
{
    for (u32 step = 16; step > 0; step /= 2) {
        v += __shfl_xor_sync(EXL2K_ALL, v, step);
    }
    return v;
}

EXL2K_FN void exl2k_block_sum3(exl2k_sample_work *w, u64 v[3])
{
    u32 warp = threadIdx.x / 32;
    for (u32 j = 0; j < 3; j++) {
        v[j] = exl2k_warp_sum64(v[j]);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        for (u32 j = 0; j < 3; j++) {
            w->partial[j][warp] = v[j];
        }
    }
    __syncthreads();
    for (u32 j = 0; j < 3; j++) {
        v[j] = 0;
        for (u32 i = 0; i < EXL2K_SAMPLE_WARPS; i++) {
            v[j] += w->partial[j][i];
        }
    }
}

/* Sum of the threads before this one; *total: of all. */
EXL2K_FN u64 exl2k_block_scan(exl2k_sample_work *w, u64 own, u64 *total)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = own, before = 0;
    for (u32 step = 1; step < 32; step *= 2) {
        u64 left = __shfl_up_sync(EXL2K_ALL, sum, step);
        sum += lane >= step ? left : 0;
    }
    __syncthreads();
    if (lane == 31) {
        w->partial[0][warp] = sum;
    }
    __syncthreads();
    *total = 0;
    for (u32 i = 0; i < EXL2K_SAMPLE_WARPS; i++) {
        before += i < warp ? w->partial[0][i] : 0;
        *total += w->partial[0][i];
    }
    return before + sum - own;
}

/* ---- items: tokens in the list, tokens of the row, or blocks by their largest key ---- */

enum { EXL2K_ITEMS_LIST, EXL2K_ITEMS_ROW, EXL2K_ITEMS_BLOCKS };

typedef struct exl2k_items {
    u32 kind, count; /* ROW: count = vocab, and only keys >= least are in */
    u32 tokens;      /* really in */
    int least;
    bool weighted;   /* measured by weight; else by number */
    exl2k_choice cut; /* cut.ties != TIES_ALL: what an earlier filter left */
} exl2k_items;

EXL2K_FN int exl2k_item_key(const exl2k_row_view *v, const exl2k_items *items, u32 i)
{
    if (items->kind == EXL2K_ITEMS_LIST) {
        return v->w->keys[i];
    }
    if (items->kind == EXL2K_ITEMS_ROW) {
        return exl2k_key(exl2k_load(v->logits + 4ull * i));
    }
    return v->blocks <= EXL2K_BLOCKS_MAX ? v->w->block_keys[i] : (int)exl2k_load(v->keys + 4ull * i);
}

EXL2K_FN u64 exl2k_item_weight(const exl2k_row_view *v, const exl2k_items *items, u32 i, int key)
{
    return items->kind == EXL2K_ITEMS_LIST ? v->w->weights[i] : exl2k_key_weight(&v->curve, key);
}

/* Measures of the items whose distance to the top key is in [from, to[j]]; to[0] <= to[1] <= to[2]. count[j]: their
   numbers, of this thread only. */
EXL2K_FN void exl2k_measure(const exl2k_row_view *v, const exl2k_items *items, u32 from, const u32 to[3], u64 sum[3],
                            u64 count[3])
{
    for (u32 j = 0; j < 3; j++) {
        sum[j] = count[j] = 0;
    }
    bool bulk = items->cut.ties != EXL2K_TIES_ALL;
    for (u32 i0 = threadIdx.x; i0 < items->count; i0 += 4 * EXL2K_SAMPLE_THREADS) {
        int keys[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 i = i0 + j * EXL2K_SAMPLE_THREADS;
            keys[j] = i < items->count ? exl2k_item_key(v, items, i) : EXL2K_KEY_NONE - 1;
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 below = (u32)v->curve.top_key - (u32)keys[j];
            bool in = keys[j] >= items->least && !(bulk && keys[j] <= items->cut.key);
            if (in && below >= from && below <= to[2]) {
                u64 m = items->weighted ? exl2k_item_weight(v, items, i0 + j * EXL2K_SAMPLE_THREADS, keys[j]) : 1;
                sum[0] += below <= to[0] ? m : 0;
                sum[1] += below <= to[1] ? m : 0;
                sum[2] += m;
                count[0] += below <= to[0];
                count[1] += below <= to[1];
                count[2]++;
            }
        }
    }
    if (bulk && threadIdx.x == 0) {
        u32 below = (u32)v->curve.top_key - (u32)items->cut.key;
        u64 m = items->cut.ties * (items->weighted ? exl2k_key_weight(&v->curve, items->cut.key) : 1);
        for (u32 j = 0; j < 3; j++) {
            sum[j] += below >= from && below <= to[j] ? m : 0;
        }
    }
    exl2k_block_sum3(v->w, sum);
}

/* Tokens of the blocks [begin, end) with keys in [least, most]; by one warp, four blocks at a time. `write`: into the
   list from `at` on. */
EXL2K_FN u32 exl2k_walk(const exl2k_row_view *v, u32 begin, u32 end, int least, int most, bool write, u32 at)
{
    u32 lane = threadIdx.x % 32, before = (1u << lane) - 1;
    for (u32 base = begin; base < end; base += 32) {
        int largest = base + lane < end ? (int)exl2k_load(v->keys + 4ull * (base + lane)) : EXL2K_KEY_NONE;
        u32 open = __ballot_sync(EXL2K_ALL, largest >= least);
        while (open) {
            u32 ids[8];
            int keys[8];
#pragma unroll
            for (u32 j = 0; j < 8; j += 2) {
                u32 first = open ? (base + (u32)__ffs((int)open) - 1) * EXL2K_SAMPLE_BLOCK + lane : v->vocab;
                open &= open - 1;
#pragma unroll
                for (u32 k = 0; k < 2; k++) {
                    u32 id = first + 32 * k;
                    ids[j + k] = id;
                    keys[j + k] = id < v->vocab ? exl2k_key(exl2k_load(v->logits + 4ull * id)) : EXL2K_KEY_NONE;
                }
            }
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                bool fits = keys[j] >= least && keys[j] <= most;
                u32 in = __ballot_sync(EXL2K_ALL, fits);
                if (write && fits) {
                    u32 to = at + (u32)__popc(in & before);
                    v->w->ids[to] = ids[j];
                    v->w->keys[to] = keys[j];
                }
                at += (u32)__popc(in);
            }
        }
    }
    return at;
}

/* The tokens with keys in [least, most], above EXL2K_KEY_NONE; with weights if the list takes them. If it does not, the
   items are all of at least `least`. */
EXL2K_FN exl2k_items exl2k_collect(const exl2k_row_view *v, int least, int most, bool weighted)
{
    u32 warp = threadIdx.x / 32, span = (v->blocks + EXL2K_SAMPLE_WARPS - 1) / EXL2K_SAMPLE_WARPS;
    u32 begin = exl2k_min(warp * span, v->blocks), end = exl2k_min(begin + span, v->blocks);
    u32 own = exl2k_walk(v, begin, end, least, most, false, 0);
    u64 total, before = exl2k_block_scan(v->w, threadIdx.x % 32 == 31 ? own : 0, &total);
    exl2k_items items = { EXL2K_ITEMS_ROW, v->vocab, (u32)total, least, weighted, { least, EXL2K_TIES_ALL } };
    if (total > EXL2K_LIST_MAX) {
        return items;
    }
    items.kind = EXL2K_ITEMS_LIST;
    items.count = (u32)total;
    exl2k_walk(v, begin, end, least, most, true, (u32)__shfl_sync(EXL2K_ALL, before, 31));
    __syncthreads();
    if (weighted) {
        for (u32 i = threadIdx.x; i < items.count; i += EXL2K_SAMPLE_THREADS) {
            v->w->weights[i] = exl2k_key_weight(&v->curve, v->w->keys[i]);
        }
        __syncthreads();
    }
    return items;
}

/* Where the last key of a prefix is looked for: distances [low, high] to the top key. */
typedef struct exl2k_search {
    u32 low, high;
    u64 need; /* what of the prefix is left to find, from `low` on */
    u64 count; /* items there; kept by exl2k_narrow */
} exl2k_search;

/* Probes [low, to[j]] measured: the search goes on between the last that is too short and the next. */
EXL2K_FN void exl2k_search_step(exl2k_search *s, const u32 to[3], const u64 sum[3], const u64 count[3])
{
    u64 passed = 0, left = 0;
    bool found = false;
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
        if (!found && sum[j] >= s->need) {
            s->high = to[j];
            s->count = count[j];
            found = true;
        }
        if (!found) {
            s->low = to[j] + 1;
            passed = sum[j];
            left = count[j];
        }
    }
    s->count -= left;
    s->need -= passed;
}

/* A short list: every thread measures what comes before its own item in order. */
EXL2K_FN exl2k_choice exl2k_prefix_short(const exl2k_row_view *v, const exl2k_items *items, u64 need)
{
    u32 own = threadIdx.x, ties = 0;
    int key = own < items->count ? v->w->keys[own] : EXL2K_KEY_NONE;
    u64 before = 0, measure = own < items->count ? items->weighted ? v->w->weights[own] : 1 : 0;
    for (u32 i = 0; i < items->count; i++) {
        int other = v->w->keys[i];
        bool tie = other == key && i < own;
        ties += tie;
        before += tie || other > key ? items->weighted ? v->w->weights[i] : 1 : 0;
    }
    __syncthreads();
    if (before < need && need - before <= measure) {
        v->w->found = (u32)key;
        v->w->counter = ties + 1;
    }
    __syncthreads();
    exl2k_choice choice = { (int)v->w->found, v->w->counter };
    __syncthreads();
    return choice;
}

/* Rounds over the whole row, probed in even steps of logits, until the list takes what is left. */
EXL2K_FN exl2k_items exl2k_narrow(const exl2k_row_view *v, const exl2k_items *row, exl2k_search *s)
{
    u32 top = (u32)v->curve.top_key;
    for (u32 round = 0; round < 12 && s->low < s->high && s->count > EXL2K_LIST_MAX; round++) {
        f32 most = exl2k_key_logit((int)(top - s->low)), least = exl2k_key_logit((int)(top - s->high));
        u32 to[3], from = s->low;
        u64 sum[3], count[3];
#pragma unroll
        for (u32 j = 0; j < 3; j++) {
            f32 probe = most - (most - least) * (0.25f * (f32)(j + 1));
            to[j] = exl2k_min(exl2k_max(top - (u32)exl2k_key(__float_as_uint(probe)), from), s->high - 1);
            from = to[j];
        }
        exl2k_measure(v, row, s->low, to, sum, count);
        exl2k_block_sum3(v->w, count);
        exl2k_search_step(s, to, sum, count);
    }
    return exl2k_collect(v, (int)(top - s->high), (int)(top - s->low), row->weighted);
}

/* The shortest prefix that measures at least `need`; all items do. 1 <= need. Items of the list may be lost. */
EXL2K_FN exl2k_choice exl2k_prefix(const exl2k_row_view *v, const exl2k_items *all, u64 need)
{
    exl2k_search s = { 0, (u32)v->curve.top_key - (u32)all->least, need, all->tokens };
    exl2k_items items = *all;
    if (items.kind == EXL2K_ITEMS_ROW) {
        exl2k_items window = exl2k_narrow(v, all, &s);
        if (window.kind == EXL2K_ITEMS_LIST) {
            items = window;
            items.cut = all->cut;
        }
    }
    if (items.kind == EXL2K_ITEMS_LIST && items.count <= EXL2K_SAMPLE_THREADS) {
        return exl2k_prefix_short(v, &items, s.need);
    }
    while (s.low < s.high) {
        u32 to[3];
        u64 sum[3], count[3];
#pragma unroll
        for (u32 j = 0; j < 3; j++) {
            to[j] = s.low + (u32)((u64)(s.high - s.low) * (j + 1) / 4);
        }
        exl2k_measure(v, &items, s.low, to, sum, count);
        exl2k_search_step(&s, to, sum, count);
    }
    exl2k_choice choice = { (int)((u32)v->curve.top_key - s.low), (u32)s.need };
    if (items.weighted) {
        u64 weight = exl2k_key_weight(&v->curve, choice.key);
        choice.ties = (u32)((s.need + weight - 1) / weight);
    }
    return choice;
}

EXL2K_FN u64 exl2k_items_sum(const exl2k_row_view *v, const exl2k_items *items)
{
    u32 far = (u32)v->curve.top_key - (u32)items->least, to[3] = { far, far, far };
    u64 sum[3], count[3];
    exl2k_measure(v, items, 0, to, sum, count);
    return sum[0];
}

#endif
