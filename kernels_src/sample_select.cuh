/* sample_select.cuh: which tokens of a row survive the filters, and which of them a number draws, by one CTA.
   takes: sample_weight.cuh, sample_args.h; the row's keys and sums of blocks.
   gives: exl2k_row_view, exl2k_choice, exl2k_keep_first, exl2k_keep_nucleus, exl2k_draw_from, exl2k_draw_all,
          exl2k_first_of.
   owns:  nothing; lists lie in exl2k_sample_work, in shared memory.
   next:  sample.cu

   Survivors are always a prefix of the order (logit descending, id ascending), so a key and a number say it all: every
   token above the key, and the first `ties` of those equal to it. The prefix that measures a given amount is found by
   a search over keys with three probes a round. Tokens are looked at in a list in shared memory, or, when more are
   left than it takes, where they lie. All threads of the CTA call every function here. */
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

/* Measures of the items whose distance to the top key is in [from, to[j]]; to[0] <= to[1] <= to[2]. */
EXL2K_FN void exl2k_measure(const exl2k_row_view *v, const exl2k_items *items, u32 from, const u32 to[3],
                                     u64 sum[3])
{
    sum[0] = sum[1] = sum[2] = 0;
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

/* The shortest prefix that measures at least `need`; all items do. 1 <= need. */
EXL2K_FN exl2k_choice exl2k_prefix(const exl2k_row_view *v, const exl2k_items *items, u64 need)
{
    u32 low = 0, high = (u32)v->curve.top_key - (u32)items->least;
    while (low < high) { /* the last key of the prefix has a distance in [low, high]; `need`: what is left to find */
        u32 to[3];
        u64 sum[3];
        for (u32 j = 0; j < 3; j++) {
            to[j] = low + (u32)((u64)(high - low) * (j + 1) / 4);
        }
        exl2k_measure(v, items, low, to, sum);
        u64 passed = 0;
        if (sum[0] >= need) {
            high = to[0];
        } else if (sum[1] >= need) {
            high = to[1];
            low = to[0] + 1;
            passed = sum[0];
        } else if (sum[2] >= need) {
            high = to[2];
            low = to[1] + 1;
            passed = sum[1];
        } else {
            low = to[2] + 1;
            passed = sum[2];
        }
        need -= passed;
    }
    exl2k_choice choice = { (int)((u32)v->curve.top_key - low), (u32)need };
    if (items->weighted) {
        u64 weight = exl2k_key_weight(&v->curve, choice.key);
        choice.ties = (u32)((need + weight - 1) / weight);
    }
    return choice;
}

/* Tokens of the blocks [begin, end) with keys of at least `least`; by one warp, four blocks at a time. `write`: into
   the list from `at` on. */
EXL2K_FN u32 exl2k_walk(const exl2k_row_view *v, u32 begin, u32 end, int least, bool write, u32 at)
{
    u32 lane = threadIdx.x % 32, before = (1u << lane) - 1;
    for (u32 base = begin; base < end; base += 32) {
        int most = base + lane < end ? (int)exl2k_load(v->keys + 4ull * (base + lane)) : EXL2K_KEY_NONE;
        u32 open = __ballot_sync(EXL2K_ALL, most >= least);
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
                u32 in = __ballot_sync(EXL2K_ALL, keys[j] >= least);
                if (write && keys[j] >= least) {
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

/* The tokens whose key is at least `least`, which is above EXL2K_KEY_NONE; with weights if the list takes them. */
EXL2K_FN exl2k_items exl2k_collect(const exl2k_row_view *v, int least, bool weighted)
{
    u32 warp = threadIdx.x / 32, span = (v->blocks + EXL2K_SAMPLE_WARPS - 1) / EXL2K_SAMPLE_WARPS;
    u32 begin = exl2k_min(warp * span, v->blocks), end = exl2k_min(begin + span, v->blocks);
    u32 own = exl2k_walk(v, begin, end, least, false, 0);
    u64 total, before = exl2k_block_scan(v->w, threadIdx.x % 32 == 31 ? own : 0, &total);
    exl2k_items items = { EXL2K_ITEMS_ROW, v->vocab, (u32)total, least, weighted, { least, EXL2K_TIES_ALL } };
    if (total > EXL2K_LIST_MAX) {
        return items;
    }
    items.kind = EXL2K_ITEMS_LIST;
    items.count = (u32)total;
    exl2k_walk(v, begin, end, least, true, (u32)__shfl_sync(EXL2K_ALL, before, 31));
    __syncthreads();
    if (weighted) {
        for (u32 i = threadIdx.x; i < items.count; i += EXL2K_SAMPLE_THREADS) {
            v->w->weights[i] = exl2k_key_weight(&v->curve, v->w->keys[i]);
        }
        __syncthreads();
    }
    return items;
}

EXL2K_FN u64 exl2k_items_sum(const exl2k_row_view *v, const exl2k_items *items)
{
    u32 far = (u32)v->curve.top_key - (u32)items->least, to[3] = { far, far, far };
    u64 sum[3];
    exl2k_measure(v, items, 0, to, sum);
    return sum[0];
}

/* ---- filters ---- */

/* The first k tokens in order, or all that are allowed if they are fewer; k > 0. */
EXL2K_FN exl2k_items exl2k_keep_first(const exl2k_row_view *v, u32 k, bool weighted)
{
    int least = EXL2K_KEY_LEAST;
    if (k <= v->blocks) { /* the k blocks with the largest maxima hold k tokens that are no smaller */
        exl2k_items blocks = { EXL2K_ITEMS_BLOCKS, v->blocks, v->blocks, EXL2K_KEY_NONE, false,
                               { EXL2K_KEY_NONE, EXL2K_TIES_ALL } };
        for (u32 i = threadIdx.x; i < v->blocks && v->blocks <= EXL2K_BLOCKS_MAX; i += EXL2K_SAMPLE_THREADS) {
            v->w->block_keys[i] = (int)exl2k_load(v->keys + 4ull * i);
        }
        __syncthreads();
        int key = exl2k_prefix(v, &blocks, k).key;
        __syncthreads();
        least = key > least ? key : least;
    }
    exl2k_items items = exl2k_collect(v, least, weighted);
    if (items.tokens > k) {
        items.weighted = false;
        items.cut = exl2k_prefix(v, &items, k);
        items.weighted = weighted;
    }
    return items;
}

/* Drops what weighs less than `least_weight`. */
EXL2K_FN void exl2k_keep_weighty(const exl2k_row_view *v, exl2k_items *items, u64 least_weight)
{
    if (exl2k_key_weight(&v->curve, items->cut.key) < least_weight) {
        items->cut.key = exl2k_least_key(&v->curve, least_weight);
        items->cut.ties = EXL2K_TIES_ALL;
    }
}

/* Top-p, then min-p, over the whole row, whose weights sum up to `sum`: looks among ever smaller weights. */
EXL2K_FN exl2k_items exl2k_keep_nucleus(const exl2k_row_view *v, u64 sum, u64 share, u64 least_weight)
{
    u64 need = __umul64hi(sum, share);
    need = need > 1 ? need : 1;
    for (u32 places = 10;; places += 10) {
        u64 weight = places < EXL2K_WEIGHT_ONE_LOG2 ? EXL2K_WEIGHT_ONE >> places : 1;
        weight = weight > least_weight ? weight : least_weight;
        exl2k_items items = exl2k_collect(v, exl2k_least_key(&v->curve, weight), true);
        if (exl2k_items_sum(v, &items) >= need) {
            items.cut = exl2k_prefix(v, &items, need);
            return items;
        }
        if (weight == least_weight) {
            return items;
        }
    }
}

/* ---- draws ---- */

EXL2K_FN void exl2k_segment(u32 count, u32 *begin, u32 *end)
{
    u32 each = (count + EXL2K_SAMPLE_THREADS - 1) / EXL2K_SAMPLE_THREADS;
    *begin = exl2k_min(threadIdx.x * each, count);
    *end = exl2k_min(*begin + each, count);
}

/* Those of the thread's segment that are equal to the cut and in. */
EXL2K_FN u32 exl2k_segment_ties(const exl2k_row_view *v, const exl2k_items *items, u32 begin, u32 end)
{
    u32 own = 0;
    for (u32 i = begin; i < end; i++) {
        own += exl2k_item_key(v, items, i) == items->cut.key;
    }
    u64 all, before = exl2k_block_scan(v->w, own, &all);
    return before >= items->cut.ties ? 0 : exl2k_min(own, items->cut.ties - (u32)before);
}

/* The first survivor, ascending by id, at which the running sum passes floor(random * sum / 2^64). */
EXL2K_FN u32 exl2k_draw_from(const exl2k_row_view *v, const exl2k_items *items, u64 random)
{
    u32 begin, end;
    exl2k_segment(items->count, &begin, &end);
    u32 ties = exl2k_segment_ties(v, items, begin, end);
    u64 own = ties * exl2k_key_weight(&v->curve, items->cut.key), sum;
    for (u32 i = begin; i < end; i++) {
        int key = exl2k_item_key(v, items, i);
        own += key > items->cut.key ? exl2k_item_weight(v, items, i, key) : 0;
    }
    u64 running = exl2k_block_scan(v->w, own, &sum), target = __umul64hi(random, sum);
    if (running <= target && target - running < own) {
        for (u32 i = begin; i < end; i++) {
            int key = exl2k_item_key(v, items, i);
            bool tie = key == items->cut.key && ties > 0;
            ties -= tie;
            running += tie || key > items->cut.key ? exl2k_item_weight(v, items, i, key) : 0;
            if (running > target) {
                v->w->found = items->kind == EXL2K_ITEMS_LIST ? v->w->ids[i] : i;
                break;
            }
        }
    }
    __syncthreads();
    return v->w->found;
}

EXL2K_FN u64 exl2k_load64(u64 at) { return exl2k_load(at) | (u64)exl2k_load(at + 4) << 32; }

/* Within a block, by the first warp: lane l has tokens 2l and 2l + 1. `target` is less than the block's sum. */
EXL2K_FN void exl2k_draw_within(const exl2k_row_view *v, u32 block, u64 target)
{
    u32 lane = threadIdx.x % 32, id = block * EXL2K_SAMPLE_BLOCK + 2 * lane;
    u64 weight[2];
    for (u32 j = 0; j < 2; j++) {
        f32 logit = id + j < v->vocab ? exl2k_load_f32(v->logits + 4ull * (id + j)) : exl2k_key_logit(EXL2K_KEY_NONE);
        weight[j] = exl2k_weight(&v->curve, logit);
    }
    u64 running = weight[0] + weight[1];
    for (u32 step = 1; step < 32; step *= 2) {
        u64 left = __shfl_up_sync(EXL2K_ALL, running, step);
        running += lane >= step ? left : 0;
    }
    u32 passed = __ballot_sync(EXL2K_ALL, running > target);
    if (lane == (u32)__ffs((int)passed) - 1) {
        v->w->found = running - weight[1] > target ? id : id + 1;
    }
}

/* The same over all tokens, by the sums of blocks. */
EXL2K_FN u32 exl2k_draw_all(const exl2k_row_view *v, u64 random)
{
    u32 begin, end;
    u64 own = 0, sum;
    exl2k_segment(v->blocks, &begin, &end);
    for (u32 i = begin; i < end; i++) {
        own += exl2k_load64(v->sums + 8ull * i);
    }
    u64 running = exl2k_block_scan(v->w, own, &sum), target = __umul64hi(random, sum);
    if (running <= target && target - running < own) {
        u32 block = begin;
        for (u64 next; (next = running + exl2k_load64(v->sums + 8ull * block)) <= target; block++) {
            running = next;
        }
        v->w->found = block;
        v->w->partial[1][0] = target - running;
    }
    __syncthreads();
    u32 block = v->w->found;
    __syncthreads();
    if (threadIdx.x < 32) {
        exl2k_draw_within(v, block, v->w->partial[1][0]);
    }
    __syncthreads();
    return v->w->found;
}

/* The lowest id with the largest key. */
EXL2K_FN u32 exl2k_first_of(const exl2k_row_view *v)
{
    if (threadIdx.x == 0) {
        v->w->found = EXL2K_NO_TOKEN;
    }
    __syncthreads();
    for (u32 block = threadIdx.x; block < v->blocks; block += EXL2K_SAMPLE_THREADS) {
        if ((int)exl2k_load(v->keys + 4ull * block) == v->curve.top_key) {
            atomicMin(&v->w->found, block);
        }
    }
    __syncthreads();
    u32 first = v->w->found * EXL2K_SAMPLE_BLOCK;
    __syncthreads();
    if (threadIdx.x == 0) {
        v->w->found = EXL2K_NO_TOKEN;
    }
    __syncthreads();
    u32 id = first + threadIdx.x;
    if (threadIdx.x < EXL2K_SAMPLE_BLOCK && id < v->vocab
        && exl2k_key(exl2k_load(v->logits + 4ull * id)) == v->curve.top_key) {
        atomicMin(&v->w->found, id);
    }
    __syncthreads();
    return v->w->found;
}

#endif
