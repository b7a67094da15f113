/* sample_select.cuh: the tokens of a row as ordered items, and the search for prefixes of that order, by one CTA.
   takes: sample_weight.cuh; the largest key of each block of the row.
   gives: exl2k_w, exl2k_view_set, exl2k_collect, exl2k_items_sum, exl2k_prefix, sums and scans over the CTA.
   owns:  exl2k_w: the shared memory of exl2k_sample_token.

   Survivors of filters are always a prefix of the order (logit descending, id ascending). A key and a number therefore
   describe them: every token above the key, and the first `ties` of the tokens with an equal key. The prefix with a
   given measure (sum of weights, or number of tokens) is found by a search over keys with three probes per round.
   Tokens are read from a list in shared memory or, if they are too many for the list, from global memory. All threads
   of the CTA call every function of this file together. Their data lies in shared memory, and the larger functions are
   not inlined, because the kernel is long and instructions have to be fetched, too. */
#ifndef EXL2K_SAMPLE_SELECT_CUH
#define EXL2K_SAMPLE_SELECT_CUH

#include "sample_weight.cuh"

#define EXL2K_LIST_MAX 2048u
#define EXL2K_BLOCKS_MAX (2 * EXL2K_LIST_MAX)
#define EXL2K_TIES_ALL EXL2K_ALL
#define EXL2K_SAMPLE_WARPS (EXL2K_SAMPLE_THREADS / 32)
#define EXL2K_NOINLINE static __device__ __noinline__

enum { EXL2K_ITEMS_LIST, EXL2K_ITEMS_ROW, EXL2K_ITEMS_BLOCKS };

typedef struct exl2k_row_view { /* a row of logits, unmodified or adjusted */
    u64 logits, keys, sums; /* f32 [vocab], i32 [blocks], u64 [blocks] */
    u32 vocab, blocks;      /* blocks: number of blocks of the vocabulary */
    exl2k_curve curve;
} exl2k_row_view;

typedef struct exl2k_items {
    u32 kind, count; /* ROW: count = vocab, and only tokens with keys >= least are items */
    u32 tokens;      /* number of tokens that are items */
    int least;
    u32 weighted;    /* 1: the measure is the weight; 0: the number of tokens */
    int cut_key;     /* the cut: tokens above cut_key survive, and the first cut_ties with an equal key */
    u32 cut_ties;
} exl2k_items;

typedef struct exl2k_sample_work {
    union {
        struct {
            union {
                u64 weights[EXL2K_LIST_MAX];
                int block_keys[EXL2K_BLOCKS_MAX]; /* copy of the block keys, if the row has no more than this */
            };
            int keys[EXL2K_LIST_MAX];
            u32 ids[EXL2K_LIST_MAX]; /* in ascending order */
        };
        /* Bins of this CTA's chunk, before the list is needed: sums of the low 20 bits, and of the bits above. */
        struct {
            u32 low[EXL2K_SAMPLE_BINS], high[EXL2K_SAMPLE_BINS], counts[EXL2K_SAMPLE_BINS];
        } bins;
    };
    u64 partial[6][EXL2K_SAMPLE_WARPS], total;
    exl2k_sampling sampling;
    exl2k_row_view view;
    exl2k_items items, saved_items;
    u32 alt_ids[EXL2K_ALTS_MAX];
    int alt_keys[EXL2K_ALTS_MAX];
    u32 counter, found;
    u32 last; /* id of the last token that survives the cut; EXL2K_ALL: not known */
} exl2k_sample_work;

static __shared__ exl2k_sample_work exl2k_w;

/* ---- sums over the CTA ---- */

/* Sums each of values[COUNT] over the CTA. All threads find the sums in partial[j][0]. */
template <u32 COUNT> EXL2K_FN void exl2k_block_sums(u64 values[COUNT])
{
    /* Sum over each warp. */
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
    /* The first threads add up the warps' sums. */
    u64 *mine = &exl2k_w.partial[0][threadIdx.x], sum = threadIdx.x < COUNT * EXL2K_SAMPLE_WARPS ? *mine : 0;
    for (u32 step = EXL2K_SAMPLE_WARPS / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
    }
    if (threadIdx.x < COUNT * EXL2K_SAMPLE_WARPS && threadIdx.x % EXL2K_SAMPLE_WARPS == 0) {
        *mine = sum;
    }
    __syncthreads();
}

/* Exclusive prefix sum over the CTA; exl2k_w.total gets the sum of all threads. */
EXL2K_NOINLINE u64 exl2k_block_scan(u64 own)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = own, before = 0;
    /* Compute the prefix sum within the warp. */
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
    /* Add the sums of the preceding warps. */
    for (u32 i = 0; i < EXL2K_SAMPLE_WARPS; i++) {
        before += i < warp ? exl2k_w.partial[0][i] : 0;
    }
    if (threadIdx.x == EXL2K_SAMPLE_THREADS - 1) {
        exl2k_w.total = before + sum;
    }
    __syncthreads();
    return before + sum - own;
}

/* This thread's contiguous segment of `count` elements. */
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

/* Generic address of the items' keys, or of their logits: in shared or in global memory. */
EXL2K_FN u64 exl2k_items_at(u32 kind)
{
    if (kind == EXL2K_ITEMS_ROW) {
        return exl2k_w.view.logits;
    }
    bool copied = kind == EXL2K_ITEMS_LIST || exl2k_w.view.blocks <= EXL2K_BLOCKS_MAX;
    return copied ? (u64)(kind == EXL2K_ITEMS_LIST ? exl2k_w.keys : exl2k_w.block_keys) : exl2k_w.view.keys;
}

/* Loads a word from a generic address; never from L1. */
EXL2K_FN u32 exl2k_load_item(u64 at)
{
    u32 v;
    asm volatile("ld.cg.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

/* Key of item i of the list or of the row. */
EXL2K_FN int exl2k_token_key(bool list, u32 i)
{
    return list ? exl2k_w.keys[i] : exl2k_key(exl2k_load(exl2k_w.view.logits + 4ull * i));
}

#define EXL2K_KEYS_IN_FLIGHT 8u /* keys in flight per thread */

/* Measures the items whose distance to the top key lies in [from, a], [from, b] and [from, c]; a <= b <= c. All
   threads find the results in partial[k][0]: first the three measures, then the three numbers of tokens. */
EXL2K_NOINLINE void exl2k_measure(u32 from, u32 a, u32 b, u32 c)
{
    exl2k_items items = exl2k_w.items;
    exl2k_curve curve = exl2k_w.view.curve;
    u64 at = exl2k_items_at(items.kind), sums[3] = { 0, 0, 0 };
    u32 to[3] = { a, b, c }, counts[3] = { 0, 0, 0 };
    /* Tokens with the cut's key are counted once at the end, if not all of them survive. */
    bool row = items.kind == EXL2K_ITEMS_ROW, has_cut_ties = items.cut_ties != EXL2K_TIES_ALL;
    int least = has_cut_ties && items.cut_key >= items.least ? items.cut_key + 1 : items.least;
    /* Each thread loads several keys at a time, then adds up those in range. */
#pragma unroll 1
    for (u32 i0 = threadIdx.x; i0 < items.count; i0 += EXL2K_KEYS_IN_FLIGHT * EXL2K_SAMPLE_THREADS) {
        u32 words[EXL2K_KEYS_IN_FLIGHT];
#pragma unroll
        for (u32 j = 0; j < EXL2K_KEYS_IN_FLIGHT; j++) {
            words[j] = exl2k_load_item(at + 4ull * exl2k_min(i0 + j * EXL2K_SAMPLE_THREADS, items.count - 1));
        }
#pragma unroll 1
        for (u32 j0 = 0; j0 < EXL2K_KEYS_IN_FLIGHT; j0 += EXL2K_KEYS_IN_FLIGHT / 2) {
#pragma unroll
            for (u32 j = 0; j < EXL2K_KEYS_IN_FLIGHT / 2; j++) {
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
                words[j] = words[j + EXL2K_KEYS_IN_FLIGHT / 2];
            }
        }
    }
    /* Add the surviving tokens with the cut's key. */
    if (has_cut_ties && threadIdx.x == 0) {
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

/* Sum of the weights of all surviving items. */
EXL2K_FN u64 exl2k_items_sum(void)
{
    u32 lowest = (u32)exl2k_w.view.curve.top_key - (u32)exl2k_w.items.least;
    exl2k_measure(0, lowest, lowest, lowest);
    return exl2k_w.partial[0][0];
}

#define EXL2K_PAIRS_IN_FLIGHT 8u /* pairs of blocks whose logits are in flight */

/* Appends to the list the tokens of a pair of blocks with keys in [least, least + span]. The lane has four logits of
   the pair. Tokens go to list positions from `at` on, as long as they are below `limit`. Returns the next free
   position. */
EXL2K_FN u32 exl2k_list_pair(u32 id, const uint4 &four, int least, u32 span, u32 limit, u32 at)
{
    u32 bits[4] = { four.x, four.y, four.z, four.w }, before = (1u << threadIdx.x % 32) - 1, to = at;
    u32 vocab = exl2k_w.view.vocab, keys[4];
    bool in[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) { /* NaN lies outside of the range, whatever its bits */
        u32 sign = (u32)((int)bits[i] >> 31);
        keys[i] = (bits[i] ^ (sign & 0x7FFFFFFFu)) - sign;
        in[i] = keys[i] - (u32)least <= span && id + i < vocab;
        u32 lanes = __ballot_sync(EXL2K_ALL, in[i]);
        to += (u32)__popc(lanes & before);
        at += (u32)__popc(lanes);
    }
    /* Write the lane's tokens at their positions. */
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

/* Appends the tokens of the warp's pairs [begin, end). */
EXL2K_FN u32 exl2k_list_pairs(u32 begin, u32 end, int least, u32 span, u32 limit, u32 at)
{
    u32 lane = threadIdx.x % 32, vocab = exl2k_w.view.vocab;
    u64 logits = exl2k_w.view.logits, blocks = exl2k_w.view.keys;
#pragma unroll 1
    for (u32 base = begin; base < end; base += 32) {
        /* Find the pairs with a key in range; each lane checks one pair. */
        u32 pair = exl2k_min(base + lane, end - 1);
        int first = (int)exl2k_load(blocks + 8ull * pair), second = EXL2K_KEY_NONE;
        if (2 * pair + 1 < exl2k_w.view.blocks) {
            second = (int)exl2k_load(blocks + 8ull * pair + 4);
        }
        u32 pending = __ballot_sync(EXL2K_ALL, base + lane < end && (first >= least || second >= least));
        /* Load the logits of several such pairs, then append their tokens. */
#pragma unroll 1
        while (pending) {
            u32 ids[EXL2K_PAIRS_IN_FLIGHT];
            uint4 four[EXL2K_PAIRS_IN_FLIGHT];
            int left = __popc(pending);
#pragma unroll
            for (u32 j = 0; j < EXL2K_PAIRS_IN_FLIGHT; j++) {
                u32 index = pending ? base + (u32)__ffs((int)pending) - 1 : 0;
                ids[j] = pending ? index * 2 * EXL2K_SAMPLE_BLOCK + 4 * lane : vocab;
                pending &= pending - 1;
                four[j] = exl2k_load4(logits + 4ull * (ids[j] < vocab ? ids[j] : 0));
            }
#pragma unroll 1
            for (left = left < (int)EXL2K_PAIRS_IN_FLIGHT ? left : (int)EXL2K_PAIRS_IN_FLIGHT; left > 0; left -= 2) {
                /* One copy of the code handles the first two pairs; the others move up. */
#pragma unroll
                for (u32 j = 0; j < EXL2K_PAIRS_IN_FLIGHT; j++) {
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

/* The items become the tokens with keys in [least, most], above EXL2K_KEY_NONE. If they fit, they go to the list,
   with their weights if `weighted`. Otherwise the items become all tokens of the row with keys of at least `least`. */
EXL2K_NOINLINE void exl2k_collect(int least, int most, bool weighted)
{
    u32 warp = threadIdx.x / 32, pairs = (exl2k_w.view.blocks + 1) / 2;
    u32 span = (pairs + EXL2K_SAMPLE_WARPS - 1) / EXL2K_SAMPLE_WARPS;
    u32 begin = exl2k_min(warp * span, pairs), end = exl2k_min(begin + span, pairs), at = 0;
    u64 total = 0;
    /* The first round counts the tokens of each warp, the second writes them at their positions. */
#pragma unroll 1
    for (u32 write = 0; write < 2; write++) {
        u32 own = exl2k_list_pairs(begin, end, least, (u32)most - (u32)least, write ? EXL2K_LIST_MAX : 0, at);
        if (!write) {
            u64 before = exl2k_block_scan(threadIdx.x % 32 == 31 ? own : 0);
            at = (u32)__shfl_sync(EXL2K_ALL, before, 31);
            total = exl2k_w.total;
            if (total > EXL2K_LIST_MAX) {
                break;
            }
        }
    }
    /* Set the items, and compute the weights of the list. */
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

/* ---- the prefix with a given measure ---- */

/* State of the search for the last key of a prefix: its distance to the top key lies in [low, high]. */
typedef struct exl2k_search {
    u32 low, high;
    u64 need;  /* the measure that is still missing, from `low` on */
    u64 count; /* number of items in [low, high] */
} exl2k_search;

/* Measures up to three probes, and narrows the search to the range between the last probe that is too short and the
   next. */
EXL2K_FN void exl2k_search_step(exl2k_search *s, const u32 to[3])
{
    u64 passed = 0, left = 0;
    bool found = false;
    exl2k_measure(s->low, to[0], to[1], to[2]);
    /* The first probe that reaches the measure is the new upper end; the probe before it is the new lower end. */
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
    /* Measures and counts up to the lower end are done. */
    s->count -= left;
    s->need -= passed;
}

/* Finds the id of the `ties`-th token of the list with this key. */
EXL2K_FN void exl2k_find_last(int key, u32 ties)
{
    u32 begin, end, own = 0;
    exl2k_segment(exl2k_w.items.count, &begin, &end);
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        own += exl2k_w.keys[i] == key;
    }
    /* The thread in whose segment the token lies reports its id. */
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

/* Prefix of a short list: every thread measures the items before its own in the order of items. */
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
    /* The thread with the last item of the prefix reports it. */
    if (before < need && need - before <= measure) {
        exl2k_w.found = (u32)key;
        exl2k_w.counter = ties + 1;
    }
    __syncthreads();
}

/* Three probes, spaced evenly in logits or in keys. */
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

/* Cuts the items to the shortest prefix that measures at least `need` (>= 1), counted from distance `low` to the top
   key. The prefix ends at a distance in [low, high], where `count` items lie, and all of these together measure at
   least `need`. If the items are a list, the list stays valid. If they are the tokens of the row, the list's content
   is lost. */
EXL2K_NOINLINE void exl2k_prefix_within(u64 need, u32 low, u32 high, u32 count)
{
    exl2k_search s = { low, high, need, count };
    u32 top = (u32)exl2k_w.view.curve.top_key, rounds = 0;
    bool row = exl2k_w.items.kind == EXL2K_ITEMS_ROW, whole = row, is_short;
    __syncthreads();
    /* The items of a row are saved, because the list serves the search. */
    if (row && threadIdx.x == 0) {
        exl2k_w.saved_items = exl2k_w.items;
        exl2k_w.last = EXL2K_ALL;
    }
#pragma unroll 1
    for (;;) {
        /* The tokens in [low, high] go to the list if they are few, if low equals high, or after 12 rounds. If they do
           not fit, the items of the row are restored. */
        if (whole && (s.low >= s.high || s.count <= EXL2K_LIST_MAX || rounds++ == 12)) {
            exl2k_collect((int)(top - s.high), (int)(top - s.low), exl2k_w.items.weighted);
            if (exl2k_w.items.kind == EXL2K_ITEMS_LIST) {
                /* The cut so far remains valid in the list. */
                exl2k_cut_set(exl2k_w.saved_items.cut_key, exl2k_w.saved_items.cut_ties);
            } else {
                exl2k_items_set(exl2k_w.saved_items);
            }
            whole = false;
        }
        /* The search ends when the range is a single key, or when the list is short. */
        is_short = exl2k_w.items.kind == EXL2K_ITEMS_LIST && exl2k_w.items.count <= EXL2K_SAMPLE_THREADS;
        if (!whole && (is_short || s.low >= s.high)) {
            break;
        }
        /* Otherwise three more probes narrow the range. */
        u32 to[3];
        exl2k_probes(&s, whole, to);
        exl2k_search_step(&s, to);
    }
    /* Find the last key of the prefix, and the number of tokens with that key. */
    if (is_short) {
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
    /* Restore the items of a row, and find the last token if the list has it. */
    if (row) {
        if (exl2k_w.items.kind == EXL2K_ITEMS_LIST) {
            exl2k_find_last((int)exl2k_w.found, exl2k_w.counter);
        }
        exl2k_items_set(exl2k_w.saved_items);
    }
    /* The prefix is the new cut. */
    exl2k_cut_set((int)exl2k_w.found, exl2k_w.counter);
}

/* The same over all items. */
EXL2K_FN void exl2k_prefix(u64 need)
{
    exl2k_prefix_within(need, 0, (u32)exl2k_w.view.curve.top_key - (u32)exl2k_w.items.least, exl2k_w.items.tokens);
}

#endif
