/* sample_filter.cuh: filters the tokens of a row, and picks one of the survivors by a random number; one CTA per row.
   takes: sample_bins.cuh; the row's sums of blocks, and its bins.
   gives: exl2k_least_key, exl2k_keep_top_k, exl2k_keep_min_p, exl2k_keep_top_p_min_p, exl2k_pick_survivor,
          exl2k_pick_blocks. */
#ifndef EXL2K_SAMPLE_FILTER_CUH
#define EXL2K_SAMPLE_FILTER_CUH

#include "sample_bins.cuh"

/* The smallest key whose weight is at least `weight` (at most 2^40) and whose bin is at most `bin`. Every warp
   probes 32 keys per round. */
EXL2K_NOINLINE int exl2k_least_key(u64 weight, u32 bin)
{
    exl2k_curve curve = exl2k_w.view.curve;
    u32 low = (u32)EXL2K_KEY_LEAST, high = (u32)curve.top_key;
    /* Each round narrows [low, high] to the gap between two neighbouring probes. */
#pragma unroll 1
    while (low != high) {
        u64 step = high - low;
        u32 probe = low + (u32)(step * (threadIdx.x % 32) / 32);
        u32 steps = exl2k_steps(&curve, exl2k_key_logit((int)probe));
        u32 enough = __ballot_sync(EXL2K_ALL, exl2k_exp2(steps) >= weight && exl2k_steps_bin(steps) <= bin);
        u32 first = enough ? (u32)__ffs((int)enough) - 1 : 32, begin = low;
        high = first < 32 ? begin + (u32)(step * first / 32) : high;
        low = first > 0 ? begin + (u32)(step * (first - 1) / 32) + 1 : low;
    }
    return (int)low;
}

/* ---- filters: the items become the survivors, with their cut ---- */

/* A key that at least k tokens reach, or EXL2K_KEY_NONE; k <= THREADS. Each thread finds the largest key of some
   blocks; the result is the k-th largest of these keys. */
EXL2K_FN int exl2k_kth_key_few(u32 k)
{
    int most = EXL2K_KEY_NONE;
    u32 rank = 0, blocks = exl2k_w.view.blocks;
    u64 keys = exl2k_w.view.keys;
    /* Find the largest key of this thread's blocks. */
#pragma unroll 4
    for (u32 i = threadIdx.x; i < blocks; i += EXL2K_SAMPLE_THREADS) {
        int key = (int)exl2k_load(keys + 4ull * i);
        most = key > most ? key : most;
    }
    __syncthreads();
    exl2k_w.keys[threadIdx.x] = most;
    __syncthreads();
    /* Compute the rank of this thread's key among all threads. */
#pragma unroll 8
    for (u32 i = 0; i < EXL2K_SAMPLE_THREADS; i++) {
        int other = exl2k_w.keys[i];
        rank += other > most || (other == most && i < threadIdx.x);
    }
    if (rank == k - 1) {
        exl2k_w.found = (u32)most;
    }
    __syncthreads();
    return (int)exl2k_w.found;
}

/* The same with the keys of all blocks; k <= blocks. */
EXL2K_FN int exl2k_kth_key_many(u32 k)
{
    u32 count = exl2k_w.view.blocks;
    exl2k_items blocks = { EXL2K_ITEMS_BLOCKS, count, count, EXL2K_KEY_NONE, false, EXL2K_KEY_NONE, EXL2K_TIES_ALL };
    for (u32 i = threadIdx.x; i < count && count <= EXL2K_BLOCKS_MAX; i += EXL2K_SAMPLE_THREADS) {
        exl2k_w.block_keys[i] = (int)exl2k_load(exl2k_w.view.keys + 4ull * i);
    }
    exl2k_items_set(blocks);
    exl2k_prefix(k);
    return exl2k_w.items.cut_key;
}

/* Top-k: keeps the first k tokens in order, or all allowed tokens if there are fewer; k > 0. */
EXL2K_NOINLINE void exl2k_keep_top_k(u32 k, bool weighted)
{
    int least = EXL2K_KEY_NONE;
    /* A key that k tokens reach limits the tokens that are collected. */
    if (k <= EXL2K_SAMPLE_THREADS / 2) {
        least = exl2k_kth_key_few(k);
    } else if (k <= exl2k_w.view.blocks) {
        least = exl2k_kth_key_many(k);
    }
    __syncthreads();
    exl2k_collect(least > EXL2K_KEY_LEAST ? least : EXL2K_KEY_LEAST, EXL2K_KEY_INF, weighted);
    /* If more than k tokens reach it, cut them by number. */
    if (exl2k_w.items.tokens > k) {
        __syncthreads();
        if (threadIdx.x == 0) {
            exl2k_w.items.weighted = false;
        }
        __syncthreads();
        exl2k_prefix(k);
        if (threadIdx.x == 0) {
            exl2k_w.items.weighted = weighted;
        }
        __syncthreads();
    }
}

/* Min-p: drops tokens with a weight below `least_weight`. */
EXL2K_FN void exl2k_keep_min_p(u64 least_weight)
{
    exl2k_curve curve = exl2k_w.view.curve;
    if (exl2k_key_weight(&curve, exl2k_w.items.cut_key) < least_weight) {
        exl2k_cut_set(exl2k_least_key(least_weight, EXL2K_SAMPLE_BINS), EXL2K_TIES_ALL);
    }
}

/* Top-p: cuts to the shortest prefix that weighs `top_p` of `sum`. */
EXL2K_FN void exl2k_keep_top_p(u64 sum, u64 top_p)
{
    u64 need = __umul64hi(sum, top_p);
    exl2k_prefix(need > 1 ? need : 1);
}

/* The items become all tokens of the row with keys of at least `least`, without reading them. */
EXL2K_FN void exl2k_row_items(int least, u32 tokens)
{
    exl2k_items items = { EXL2K_ITEMS_ROW, exl2k_w.view.vocab, tokens, least, true, least, EXL2K_TIES_ALL };
    exl2k_items_set(items);
}

/* Top-p, then min-p, over the whole row; the row's weights sum up to `sum`. */
EXL2K_FN void exl2k_keep_top_p_min_p(u64 bins, u64 sum, u64 top_p, u64 least_weight)
{
    u64 need = __umul64hi(sum, top_p);
    need = need > 1 ? need : 1;
    /* Find the bin in which the top-p prefix ends, the keys of the bin, and the smallest key that min-p keeps. */
    exl2k_cut_bin cut = exl2k_find_bin(bins, need);
    int least = exl2k_least_key(0, cut.bin), min_p_key = exl2k_least_key(least_weight, EXL2K_SAMPLE_BINS);
    int most = cut.bin ? exl2k_least_key(0, cut.bin - 1) - 1 : exl2k_w.view.curve.top_key;
    /* Collect the tokens down to the larger of the two limits. */
    if (min_p_key <= least && cut.before + cut.count > EXL2K_LIST_MAX) {
        exl2k_row_items(least, cut.before + cut.count);
    } else {
        exl2k_collect(min_p_key > least ? min_p_key : least, EXL2K_KEY_INF, true);
    }
    if (min_p_key > least && exl2k_items_sum() < need) {
        return; /* min-p keeps less than top-p would, so top-p cuts nothing */
    }
    /* Cut to the top-p prefix. */
    if (exl2k_w.items.kind == EXL2K_ITEMS_LIST) {
        exl2k_prefix(need);
    } else {
        u32 top = (u32)exl2k_w.view.curve.top_key, last = top - (u32)(min_p_key > least ? min_p_key : least);
        exl2k_prefix_within(need - cut.weight_before, top - (u32)most, last, cut.count);
    }
}

/* ---- picking a survivor: the first one, in order of ids, whose running sum exceeds floor(random * sum / 2^64) ---- */

/* Number of surviving tokens in the thread's segment whose key equals the cut. */
EXL2K_FN u32 exl2k_segment_ties(bool list, u32 begin, u32 end)
{
    u32 own = 0, ties = exl2k_w.items.cut_ties;
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        own += exl2k_token_key(list, i) == exl2k_w.items.cut_key;
    }
    u64 before = exl2k_block_scan(own);
    return before >= ties ? 0 : exl2k_min(own, ties - (u32)before);
}

/* Picks among the items; each thread has a segment of them. */
EXL2K_FN u32 exl2k_pick_items(u64 random)
{
    u32 begin, end, count = exl2k_w.items.count;
    bool list = exl2k_w.items.kind == EXL2K_ITEMS_LIST;
    int cut = exl2k_w.items.cut_key;
    exl2k_curve curve = exl2k_w.view.curve;
    exl2k_segment(count, &begin, &end);
    u32 ties = exl2k_segment_ties(list, begin, end);
    /* Sum the survivors' weights in this thread's segment. */
    u64 own = ties * exl2k_key_weight(&curve, cut);
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        int key = exl2k_token_key(list, i);
        own += key > cut ? exl2k_key_weight(&curve, key) : 0;
    }
    /* The thread in whose segment the running sum exceeds the target finds the token. */
    u64 running = exl2k_block_scan(own), target = __umul64hi(random, exl2k_w.total);
    if (running <= target && target - running < own) {
#pragma unroll 1
        for (u32 i = begin; i < end; i++) {
            int key = exl2k_token_key(list, i);
            bool tie = key == cut && ties > 0;
            ties -= tie;
            running += tie || key > cut ? exl2k_key_weight(&curve, key) : 0;
            if (running > target) {
                exl2k_w.found = list ? exl2k_w.ids[i] : i;
                break;
            }
        }
    }
    __syncthreads();
    return exl2k_w.found;
}

EXL2K_FN u64 exl2k_load64(u64 at) { return exl2k_load(at) | (u64)exl2k_load(at + 4) << 32; }

/* Weight of a token if it survives, else 0. It survives if its key is above the cut, or equals the cut with an id of
   at most `last`. */
EXL2K_FN u64 exl2k_survivor_weight(const exl2k_curve *curve, int cut, u32 last, u32 id, u32 bits)
{
    int key = exl2k_key(bits);
    return key > cut || (key == cut && id <= last) ? exl2k_weight(curve, __uint_as_float(bits)) : 0;
}

/* Picks within a block, by the first warp: lane l has tokens 2l and 2l + 1. `target` is less than the block's sum. */
EXL2K_FN void exl2k_pick_in_block(int cut, u32 last, u32 block, u64 target)
{
    u32 lane = threadIdx.x % 32, id = block * EXL2K_SAMPLE_BLOCK + 2 * lane;
    exl2k_curve curve = exl2k_w.view.curve;
    u64 weight[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        bool valid = id + j < exl2k_w.view.vocab;
        u32 bits = valid ? exl2k_load(exl2k_w.view.logits + 4ull * (id + j)) : EXL2K_BITS_NONE;
        weight[j] = exl2k_survivor_weight(&curve, cut, last, id + j, bits);
    }
    u64 running = weight[0] + weight[1];
    /* Compute the running sum over the lanes, and find the first lane where it exceeds the target. */
#pragma unroll 1
    for (u32 step = 1; step < 32; step *= 2) {
        u64 left = __shfl_up_sync(EXL2K_ALL, running, step);
        running += lane >= step ? left : 0;
    }
    u32 passed = __ballot_sync(EXL2K_ALL, running > target);
    if (lane == (u32)__ffs((int)passed) - 1) {
        exl2k_w.found = running - weight[1] > target ? id : id + 1;
    }
}

/* Picks among the whole row by the sums of its blocks. These hold the survivors only: keys above the cut, or equal
   keys with id <= last. */
EXL2K_NOINLINE u32 exl2k_pick_blocks(int cut, u32 last, u64 random)
{
    u32 begin, end;
    u64 own = 0, sums = exl2k_w.view.sums;
    exl2k_segment(exl2k_w.view.blocks, &begin, &end);
    /* Sum this thread's blocks. */
#pragma unroll 4
    for (u32 i = begin; i < end; i++) {
        own += exl2k_load64(sums + 8ull * i);
    }
    /* The thread in whose blocks the running sum exceeds the target finds the block. */
    u64 running = exl2k_block_scan(own), target = __umul64hi(random, exl2k_w.total);
    if (running <= target && target - running < own) {
        u32 block = begin;
        for (u64 next; (next = running + exl2k_load64(sums + 8ull * block)) <= target; block++) {
            running = next;
        }
        exl2k_w.found = block;
        exl2k_w.partial[1][0] = target - running;
    }
    __syncthreads();
    /* The first warp finds the token within the block. */
    u32 block = exl2k_w.found;
    __syncthreads();
    if (threadIdx.x < 32) {
        exl2k_pick_in_block(cut, last, block, exl2k_w.partial[1][0]);
    }
    __syncthreads();
    return exl2k_w.found;
}

/* Computes the sum of the survivors of each block. A half-warp has a block, four tokens per lane. */
EXL2K_FN void exl2k_survivor_sums(int cut, u32 last)
{
    u32 vocab = exl2k_w.view.vocab, blocks = exl2k_w.view.blocks;
    u64 logits = exl2k_w.view.logits, sums = exl2k_w.view.sums;
    exl2k_curve curve = exl2k_w.view.curve;
#pragma unroll 1
    for (u32 base = 0; base < blocks; base += 4 * EXL2K_SAMPLE_THREADS / 16) {
        uint4 four[4];
        u32 first = base + threadIdx.x / 16, lane = threadIdx.x % 16 * 4;
        /* Load four blocks per half-warp. */
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 id = (first + k * EXL2K_SAMPLE_THREADS / 16) * EXL2K_SAMPLE_BLOCK + lane;
            four[k] = exl2k_load4(logits + 4ull * (id < vocab ? id : 0));
        }
        /* One block after another; the loop is not unrolled, so the next block's logits move to the front. */
#pragma unroll 1
        for (u32 k = 0; k < 4; k++) {
            u32 block = first + k * EXL2K_SAMPLE_THREADS / 16, id = block * EXL2K_SAMPLE_BLOCK + lane;
            u32 bits[4] = { four[0].x, four[0].y, four[0].z, four[0].w };
            u64 sum = 0;
            for (u32 j = 0; j < 3; j++) {
                four[j] = four[j + 1];
            }
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                sum += id + j < vocab ? exl2k_survivor_weight(&curve, cut, last, id + j, bits[j]) : 0;
            }
            for (u32 step = 8; step > 0; step /= 2) {
                sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
            }
            if (lane == 0 && block < blocks) {
                exl2k_store(sums + 8ull * block, (u32)sum);
                exl2k_store(sums + 8ull * block + 4, (u32)(sum >> 32));
            }
        }
    }
    __threadfence_block();
    __syncthreads();
}

/* Picks among the survivors of the cut. */
EXL2K_FN u32 exl2k_pick_survivor(u64 random)
{
    exl2k_items items = exl2k_w.items;
    u32 last = exl2k_w.view.vocab;
    bool per_item = items.kind == EXL2K_ITEMS_LIST;
    /* Not all tokens with the cut's key survive: find the last one that does, by collecting these tokens. */
    if (!per_item && items.cut_ties != EXL2K_TIES_ALL) {
        last = exl2k_w.last;
        if (last == EXL2K_ALL) {
            exl2k_collect(items.cut_key, items.cut_key, false);
            per_item = exl2k_w.items.kind != EXL2K_ITEMS_LIST; /* more equal logits than fit in the list */
            last = exl2k_w.ids[per_item ? 0 : items.cut_ties - 1];
            exl2k_items_set(items);
        }
    }
    /* A list is read token by token, a row by the sums of its blocks. */
    if (per_item) {
        return exl2k_pick_items(random);
    }
    exl2k_survivor_sums(items.cut_key, last);
    return exl2k_pick_blocks(items.cut_key, last, random);
}

#endif
