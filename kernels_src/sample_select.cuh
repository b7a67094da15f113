/* sample_select.cuh: the tokens of a row as items in order, and prefixes of that order, by one CTA.
   takes: sample_weight.cuh; the row's keys of blocks.
   gives: exl2k_w, exl2k_view_set, exl2k_collect, exl2k_items_sum, exl2k_prefix, sums and scans over the CTA.
   owns:  exl2k_w: the shared memory of exl2k_sample_token.
   next:  sample_bins.cuh

   Survivors of filters are always a prefix of the order (logit descending, id ascending), so a key and a number say it
   all: every token above the key, and the first `ties` of those equal to it. The prefix that measures a given amount
   is found by a search over keys with three probes a round. Tokens are looked at in a list in shared memory, or, when
   more are left than it takes, where they lie. All threads of the CTA call every function here. What functions are
   about lies in shared memory and they are not inlined: the kernel is long, and instructions must be fetched, too. */
#ifndef EXL2K_SAMPLE_SELECT_CUH
#define EXL2K_SAMPLE_SELECT_CUH

#include "sample_weight.cuh"

#define EXL2K_LIST_MAX 2048u
#define EXL2K_BLOCKS_MAX (2 * EXL2K_LIST_MAX)
#define EXL2K_TIES_ALL EXL2K_ALL
#define EXL2K_SAMPLE_WARPS (EXL2K_SAMPLE_THREADS / 32)
#define EXL2K_NOINLINE static __device__ __noinline__

enum { EXL2K_ITEMS_LIST, EXL2K_ITEMS_ROW, EXL2K_ITEMS_BLOCKS };

typedef struct exl2k_row_view { /* a row of logits, raw or adjusted */
    u64 logits, keys, sums;     /* f32 [vocab], i32 [blocks], u64 [blocks] */
    u32 vocab, blocks;          /* blocks: of `vocab` */
    exl2k_curve curve;
} exl2k_row_view;

typedef struct exl2k_items {
    u32 kind, count; /* ROW: count = vocab, and only keys >= least are in */
    u32 tokens;      /* really in */
    int least;
    u32 weighted;    /* measured by weight; else by number */
    int cut_key;     /* what the filters so far have left */
    u32 cut_ties;
} exl2k_items;

typedef struct exl2k_sample_work {
    union {
        struct {
            union {
                u64 weights[EXL2K_LIST_MAX];
                int block_keys[EXL2K_BLOCKS_MAX]; /* a copy, if the row has no more */
            };
            int keys[EXL2K_LIST_MAX];
            u32 ids[EXL2K_LIST_MAX]; /* ascending */
        };
        struct { /* of this CTA's chunk, before there is a list: sums of the low 20 bits and of what is above them */
            u32 low[EXL2K_SAMPLE_BINS], high[EXL2K_SAMPLE_BINS], counts[EXL2K_SAMPLE_BINS];
        } bins;
    };
    u64 partial[6][EXL2K_SAMPLE_WARPS], total;
    exl2k_sampling draw;
    exl2k_row_view view;
    exl2k_items items, kept;
    u32 alt_ids[EXL2K_ALTS_MAX];
    int alt_keys[EXL2K_ALTS_MAX];
    u32 counter, found;
    u32 last; /* id of the last token of the cut that is in; EXL2K_ALL: not known */
} exl2k_sample_work;

static __shared__ exl2k_sample_work exl2k_w;

/* ---- sums over the CTA ---- */

/* values[COUNT], each summed: for all, in partial[j][0]. */
template <u32 COUNT> EXL2K_FN void exl2k_block_sums(u64 values[COUNT])
{
#pragma unroll 1
    for (u32 step = 16; step > 0; step /= 2) {
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            values[j] += __shfl_xor_sync(EXL2K_ALL, values[j], step);
        }
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (u32 j = 0; j < COUNT; j++) {
            exl2k_w.partial[j][threadIdx.x / 32] = values[j];
        }
    }
    __syncthreads();
    u64 *mine = &exl2k_w.partial[0][threadIdx.x], sum = threadIdx.x < COUNT * EXL2K_SAMPLE_WARPS ? *mine : 0;
    for (u32 step = EXL2K_SAMPLE_WARPS / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
    }
    if (threadIdx.x < COUNT * EXL2K_SAMPLE_WARPS && threadIdx.x % EXL2K_SAMPLE_WARPS == 0) {
        *mine = sum;
    }
    __syncthreads();
}

/* Sum of the threads before this one; exl2k_w.total: of all. */
EXL2K_NOINLINE u64 exl2k_block_scan(u64 own)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = own, before = 0;
#pragma unroll 1
    for (u32 step = 1; step < 32; step *= 2) {
        u64 left = __shfl_up_sync(EXL2K_ALL, sum, step);
        sum += lane >= step ? left : 0;
    }
    __syncthreads();
    if (lane == 31) {
        exl2k_w.partial[0][warp] = sum;
    }
    __syncthreads();
    for (u32 i = 0; i < EXL2K_SAMPLE_WARPS; i++) {
        before += i < warp ? exl2k_w.partial[0][i] : 0;
    }
    if (threadIdx.x == EXL2K_SAMPLE_THREADS - 1) {
        exl2k_w.total = before + sum;
    }
    __syncthreads();
    return before + sum - own;
}

/* The thread's run of `count` things. */
EXL2K_FN void exl2k_segment(u32 count, u32 *begin, u32 *end)
{
    u32 each = (count + EXL2K_SAMPLE_THREADS - 1) / EXL2K_SAMPLE_THREADS;
    *begin = exl2k_min(threadIdx.x * each, count);
    *end = exl2k_min(*begin + each, count);
}

/* ---- items ---- */

EXL2K_FN void exl2k_view_set(const exl2k_row_view &view)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        exl2k_w.view = view;
    }
    __syncthreads();
}

EXL2K_FN void exl2k_items_set(const exl2k_items &items)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        exl2k_w.items = items;
    }
    __syncthreads();
}

EXL2K_FN void exl2k_cut_set(int key, u32 ties)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        exl2k_w.items.cut_key = key;
        exl2k_w.items.cut_ties = ties;
    }
    __syncthreads();
}

/* Where the keys of the items lie, or their logits: an address of either kind of memory. */
EXL2K_FN u64 exl2k_items_at(u32 kind)
{
    if (kind == EXL2K_ITEMS_ROW) {
        return exl2k_w.view.logits;
    }
    bool copied = kind == EXL2K_ITEMS_LIST || exl2k_w.view.blocks <= EXL2K_BLOCKS_MAX;
    return copied ? (u64)(kind == EXL2K_ITEMS_LIST ? exl2k_w.keys : exl2k_w.block_keys) : exl2k_w.view.keys;
}

/* A word of either kind of memory; never from L1. */
EXL2K_FN u32 exl2k_load_item(u64 at)
{
    u32 v;
    asm volatile("ld.cg.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

/* Key of an item of a list or of the row. */
EXL2K_FN int exl2k_token_key(bool list, u32 i)
{
    return list ? exl2k_w.keys[i] : exl2k_key(exl2k_load(exl2k_w.view.logits + 4ull * i));
}

#define EXL2K_MEASURE 8u /* keys on their way at a time */

/* Measures of the items at distances [from, a], [from, b], [from, c] to the top key; a <= b <= c. For all, in
   partial[k][0]: the measures, then the numbers. */
EXL2K_NOINLINE void exl2k_measure(u32 from, u32 a, u32 b, u32 c)
{
    exl2k_items items = exl2k_w.items;
    exl2k_curve curve = exl2k_w.view.curve;
    u64 at = exl2k_items_at(items.kind), sums[3] = { 0, 0, 0 };
    u32 to[3] = { a, b, c }, counts[3] = { 0, 0, 0 };
    bool row = items.kind == EXL2K_ITEMS_ROW, bulk = items.cut_ties != EXL2K_TIES_ALL;
    int least = bulk && items.cut_key >= items.least ? items.cut_key + 1 : items.least;
#pragma unroll 1
    for (u32 i0 = threadIdx.x; i0 < items.count; i0 += EXL2K_MEASURE * EXL2K_SAMPLE_THREADS) {
        u32 words[EXL2K_MEASURE];
#pragma unroll
        for (u32 j = 0; j < EXL2K_MEASURE; j++) {
            words[j] = exl2k_load_item(at + 4ull * exl2k_min(i0 + j * EXL2K_SAMPLE_THREADS, items.count - 1));
        }
#pragma unroll 1
        for (u32 j0 = 0; j0 < EXL2K_MEASURE; j0 += EXL2K_MEASURE / 2) {
#pragma unroll
            for (u32 j = 0; j < EXL2K_MEASURE / 2; j++) {
                u32 i = i0 + (j0 + j) * EXL2K_SAMPLE_THREADS;
                int key = row ? exl2k_key(words[j]) : (int)words[j];
                u32 below = (u32)curve.top_key - (u32)key;
                if (i < items.count && key >= least && below >= from && below <= c) {
                    u64 m = 1;
                    if (items.weighted) {
                        m = row ? exl2k_key_weight(&curve, key) : exl2k_w.weights[i];
                    }
#pragma unroll
                    for (u32 k = 0; k < 3; k++) {
                        sums[k] += below <= to[k] ? m : 0;
                        counts[k] += below <= to[k];
                    }
                }
                words[j] = words[j + EXL2K_MEASURE / 2];
            }
        }
    }
    if (bulk && threadIdx.x == 0) {
        u32 below = (u32)curve.top_key - (u32)items.cut_key;
        u64 m = items.cut_ties * (items.weighted ? exl2k_key_weight(&curve, items.cut_key) : 1);
#pragma unroll
        for (u32 k = 0; k < 3; k++) {
            sums[k] += below >= from && below <= to[k] ? m : 0;
        }
    }
    u64 values[6] = { sums[0], sums[1], sums[2], counts[0], counts[1], counts[2] };
    exl2k_block_sums<6>(values);
}

EXL2K_FN u64 exl2k_items_sum(void)
{
    u32 far = (u32)exl2k_w.view.curve.top_key - (u32)exl2k_w.items.least;
    exl2k_measure(0, far, far, far);
    return exl2k_w.partial[0][0];
}

#define EXL2K_WALK 8u /* pairs of blocks of which the logits are on their way */

/* Puts the tokens with keys in [least, least + span] of a pair of blocks, of which the lane has four logits, into the
   list at the places from `at` that are below `limit`. The first of them that is free. */
EXL2K_FN u32 exl2k_list_pair(u32 id, const uint4 &four, int least, u32 span, u32 limit, u32 at)
{
    u32 bits[4] = { four.x, four.y, four.z, four.w }, before = (1u << threadIdx.x % 32) - 1, to = at;
    u32 vocab = exl2k_w.view.vocab, keys[4];
    bool in[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) { /* what is no number lies outside, whatever its key */
        u32 sign = (u32)((int)bits[i] >> 31);
        keys[i] = (bits[i] ^ (sign & 0x7FFFFFFFu)) - sign;
        in[i] = keys[i] - (u32)least <= span && id + i < vocab;
        u32 lanes = __ballot_sync(EXL2K_ALL, in[i]);
        to += (u32)__popc(lanes & before);
        at += (u32)__popc(lanes);
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (in[i] && to < limit) {
            exl2k_w.ids[to] = id + i;
            exl2k_w.keys[to] = (int)keys[i];
        }
        to += in[i];
    }
    return at;
}

/* The same of the warp's pairs [begin, end). */
EXL2K_FN u32 exl2k_walk(u32 begin, u32 end, int least, u32 span, u32 limit, u32 at)
{
    u32 lane = threadIdx.x % 32, vocab = exl2k_w.view.vocab;
    u64 logits = exl2k_w.view.logits, blocks = exl2k_w.view.keys;
#pragma unroll 1
    for (u32 base = begin; base < end; base += 32) {
        u32 pair = exl2k_min(base + lane, end - 1);
        int first = (int)exl2k_load(blocks + 8ull * pair), second = EXL2K_KEY_NONE;
        if (2 * pair + 1 < exl2k_w.view.blocks) {
            second = (int)exl2k_load(blocks + 8ull * pair + 4);
        }
        u32 open = __ballot_sync(EXL2K_ALL, base + lane < end && (first >= least || second >= least));
#pragma unroll 1
        while (open) {
            u32 ids[EXL2K_WALK];
            uint4 four[EXL2K_WALK];
            int left = __popc(open);
#pragma unroll
            for (u32 j = 0; j < EXL2K_WALK; j++) {
                u32 index = open ? base + (u32)__ffs((int)open) - 1 : 0;
                ids[j] = open ? index * 2 * EXL2K_SAMPLE_BLOCK + 4 * lane : vocab;
                open &= open - 1;
                four[j] = exl2k_load4(logits + 4ull * (ids[j] < vocab ? ids[j] : 0));
            }
#pragma unroll 1
            for (left = left < (int)EXL2K_WALK ? left : (int)EXL2K_WALK; left > 0; left -= 2) {
#pragma unroll
                for (u32 j = 0; j < EXL2K_WALK; j++) { /* the next two come first */
                    if (j < 2) {
                        at = exl2k_list_pair(ids[j], four[j], least, span, limit, at);
                    } else {
                        ids[j - 2] = ids[j];
                        four[j - 2] = four[j];
                    }
                }
            }
        }
    }
    return at;
}

/* The items become the tokens with keys in [least, most], above EXL2K_KEY_NONE; with weights if the list takes them.
   If it does not, they become all of at least `least`. */
EXL2K_NOINLINE void exl2k_collect(int least, int most, bool weighted)
{
    u32 warp = threadIdx.x / 32, pairs = (exl2k_w.view.blocks + 1) / 2;
    u32 span = (pairs + EXL2K_SAMPLE_WARPS - 1) / EXL2K_SAMPLE_WARPS;
    u32 begin = exl2k_min(warp * span, pairs), end = exl2k_min(begin + span, pairs), at = 0;
    u64 total = 0;
#pragma unroll 1
    for (u32 write = 0; write < 2; write++) {
        u32 own = exl2k_walk(begin, end, least, (u32)most - (u32)least, write ? EXL2K_LIST_MAX : 0, at);
        if (!write) {
            u64 before = exl2k_block_scan(threadIdx.x % 32 == 31 ? own : 0);
            at = (u32)__shfl_sync(EXL2K_ALL, before, 31);
            total = exl2k_w.total;
            if (total > EXL2K_LIST_MAX) {
                break;
            }
        }
    }
    bool list = total <= EXL2K_LIST_MAX;
    u32 kind = list ? (u32)EXL2K_ITEMS_LIST : (u32)EXL2K_ITEMS_ROW, count = list ? (u32)total : exl2k_w.view.vocab;
    exl2k_items items = { kind, count, (u32)total, least, weighted, least, EXL2K_TIES_ALL };
    exl2k_items_set(items);
    for (u32 i = threadIdx.x; i < items.count && list && weighted; i += EXL2K_SAMPLE_THREADS) {
        exl2k_curve curve = exl2k_w.view.curve;
        exl2k_w.weights[i] = exl2k_key_weight(&curve, exl2k_w.keys[i]);
    }
    __syncthreads();
}

/* ---- the prefix that measures a given amount ---- */

/* Where the last key of a prefix is looked for: distances [low, high] to the top key. */
typedef struct exl2k_search {
    u32 low, high;
    u64 need;  /* what of the prefix is left to find, from `low` on */
    u64 count; /* items there */
} exl2k_search;

/* Measures up to three probes: the search goes on between the last that is too short and the next. */
EXL2K_FN void exl2k_search_step(exl2k_search *s, const u32 to[3])
{
    u64 passed = 0, left = 0;
    bool found = false;
    exl2k_measure(s->low, to[0], to[1], to[2]);
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
        if (!found && exl2k_w.partial[j][0] >= s->need) {
            s->high = to[j];
            s->count = exl2k_w.partial[3 + j][0];
            found = true;
        }
        if (!found) {
            s->low = to[j] + 1;
            passed = exl2k_w.partial[j][0];
            left = exl2k_w.partial[3 + j][0];
        }
    }
    s->count -= left;
    s->need -= passed;
}

/* Id of number `ties` of the list's tokens with this key. */
EXL2K_FN void exl2k_find_last(int key, u32 ties)
{
    u32 begin, end, own = 0;
    exl2k_segment(exl2k_w.items.count, &begin, &end);
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        own += exl2k_w.keys[i] == key;
    }
    u32 before = (u32)exl2k_block_scan(own);
#pragma unroll 1
    for (u32 i = begin; i < end && before < ties; i++) {
        before += exl2k_w.keys[i] == key;
        if (exl2k_w.keys[i] == key && before == ties) {
            exl2k_w.last = exl2k_w.ids[i];
        }
    }
    __syncthreads();
}

/* A short list: every thread measures what comes before its own item in order. */
EXL2K_FN void exl2k_prefix_short(u64 need)
{
    u32 own = threadIdx.x, ties = 0, count = exl2k_w.items.count;
    bool weighted = exl2k_w.items.weighted;
    int key = own < count ? exl2k_w.keys[own] : EXL2K_KEY_NONE;
    u64 before = 0, measure = own < count ? weighted ? exl2k_w.weights[own] : 1 : 0;
    for (u32 i = 0; i < count; i++) {
        int other = exl2k_w.keys[i];
        bool tie = other == key && i < own;
        ties += tie;
        before += tie || other > key ? weighted ? exl2k_w.weights[i] : 1 : 0;
    }
    __syncthreads();
    if (before < need && need - before <= measure) {
        exl2k_w.found = (u32)key;
        exl2k_w.counter = ties + 1;
    }
    __syncthreads();
}

/* Three probes: in even steps of logits, or of keys. */
EXL2K_FN void exl2k_probes(const exl2k_search *s, bool logits, u32 to[3])
{
    u32 top = (u32)exl2k_w.view.curve.top_key, from = s->low;
    f32 most = exl2k_key_logit((int)(top - s->low)), least = exl2k_key_logit((int)(top - s->high));
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
        f32 probe = most - (most - least) * (0.25f * (f32)(j + 1));
        from = exl2k_min(exl2k_max(top - (u32)exl2k_key(__float_as_uint(probe)), from), s->high - 1);
        to[j] = logits ? from : s->low + (u32)((u64)(s->high - s->low) * (j + 1) / 4);
    }
}

/* Cuts the items to a prefix that ends at a distance in [low, high] to the top key: the shortest of which what lies
   there, `count` items, measures at least `need`; all of them do. 1 <= need. A list stays as it is; what it holds is
   lost if the items were those of the row. */
EXL2K_NOINLINE void exl2k_prefix_within(u64 need, u32 low, u32 high, u32 count)
{
    exl2k_search s = { low, high, need, count };
    u32 top = (u32)exl2k_w.view.curve.top_key, rounds = 0;
    bool row = exl2k_w.items.kind == EXL2K_ITEMS_ROW, whole = row, brief;
    __syncthreads();
    if (row && threadIdx.x == 0) {
        exl2k_w.kept = exl2k_w.items;
        exl2k_w.last = EXL2K_ALL;
    }
#pragma unroll 1
    for (;;) {
        if (whole && (s.low >= s.high || s.count <= EXL2K_LIST_MAX || rounds++ == 12)) { /* the list takes the rest */
            exl2k_collect((int)(top - s.high), (int)(top - s.low), exl2k_w.items.weighted);
            if (exl2k_w.items.kind == EXL2K_ITEMS_LIST) {
                exl2k_cut_set(exl2k_w.kept.cut_key, exl2k_w.kept.cut_ties);
            } else {
                exl2k_items_set(exl2k_w.kept);
            }
            whole = false;
        }
        brief = exl2k_w.items.kind == EXL2K_ITEMS_LIST && exl2k_w.items.count <= EXL2K_SAMPLE_THREADS;
        if (!whole && (brief || s.low >= s.high)) {
            break;
        }
        u32 to[3];
        exl2k_probes(&s, whole, to);
        exl2k_search_step(&s, to);
    }
    if (brief) {
        exl2k_prefix_short(s.need);
    } else {
        int key = (int)(top - s.low);
        exl2k_curve curve = exl2k_w.view.curve;
        u64 weight = exl2k_w.items.weighted ? exl2k_key_weight(&curve, key) : 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            exl2k_w.found = (u32)key;
            exl2k_w.counter = (u32)((s.need + weight - 1) / weight);
        }
        __syncthreads();
    }
    if (row) {
        if (exl2k_w.items.kind == EXL2K_ITEMS_LIST) {
            exl2k_find_last((int)exl2k_w.found, exl2k_w.counter);
        }
        exl2k_items_set(exl2k_w.kept);
    }
    exl2k_cut_set((int)exl2k_w.found, exl2k_w.counter);
}

/* The same over all items. */
EXL2K_FN void exl2k_prefix(u64 need)
{
    exl2k_prefix_within(need, 0, (u32)exl2k_w.view.curve.top_key - (u32)exl2k_w.items.least, exl2k_w.items.tokens);
}

#endif
