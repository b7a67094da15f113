/* sample_filter.cuh: which tokens of a row survive the filters, and which of them a number draws, by one CTA.
   takes: sample_select.cuh; the row's sums of blocks.
   gives: exl2k_keep_first, exl2k_keep_weighty, exl2k_keep_nucleus, exl2k_draw_from, exl2k_draw_all, exl2k_first_of.
   owns:  nothing.
   next:  sample.cu */
#ifndef EXL2K_SAMPLE_FILTER_CUH
#define EXL2K_SAMPLE_FILTER_CUH

#include "sample_select.cuh"

/* ---- filters ---- */

/* A key that at least k tokens reach, or EXL2K_KEY_NONE; k <= THREADS. Each thread has the largest key of some blocks:
   the k-th largest of those. */
EXL2K_FN int exl2k_reach_few(const exl2k_row_view *v, u32 k)
{
    int most = EXL2K_KEY_NONE;
    u32 rank = 0;
    for (u32 i = threadIdx.x; i < v->blocks; i += EXL2K_SAMPLE_THREADS) {
        int key = (int)exl2k_load(v->keys + 4ull * i);
        most = key > most ? key : most;
    }
    __syncthreads();
    v->w->keys[threadIdx.x] = most;
    __syncthreads();
    for (u32 i = 0; i < EXL2K_SAMPLE_THREADS; i++) {
        int other = v->w->keys[i];
        rank += other > most || (other == most && i < threadIdx.x);
    }
    if (rank == k - 1) {
        v->w->found = (u32)most;
    }
    __syncthreads();
    return (int)v->w->found;
}

/* The same by all blocks; k <= blocks. */
EXL2K_FN int exl2k_reach_many(const exl2k_row_view *v, u32 k)
{
    exl2k_items blocks = { EXL2K_ITEMS_BLOCKS, v->blocks, v->blocks, EXL2K_KEY_NONE, false,
                           { EXL2K_KEY_NONE, EXL2K_TIES_ALL } };
    for (u32 i = threadIdx.x; i < v->blocks && v->blocks <= EXL2K_BLOCKS_MAX; i += EXL2K_SAMPLE_THREADS) {
        v->w->block_keys[i] = (int)exl2k_load(v->keys + 4ull * i);
    }
    __syncthreads();
    int key = exl2k_prefix(v, &blocks, k).key;
    __syncthreads();
    return key;
}

/* The first k tokens in order, or all that are allowed if they are fewer; k > 0. */
EXL2K_FN exl2k_items exl2k_keep_first(const exl2k_row_view *v, u32 k, bool weighted)
{
    int least = EXL2K_KEY_NONE;
    if (k <= EXL2K_SAMPLE_THREADS / 2) {
        least = exl2k_reach_few(v, k);
    } else if (k <= v->blocks) {
        least = exl2k_reach_many(v, k);
    }
    exl2k_items items = exl2k_collect(v, least > EXL2K_KEY_LEAST ? least : EXL2K_KEY_LEAST, EXL2K_KEY_INF, weighted);
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
        exl2k_items items = exl2k_collect(v, exl2k_least_key(&v->curve, weight), EXL2K_KEY_INF, true);
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
EXL2K_FN u32 exl2k_draw_items(const exl2k_row_view *v, const exl2k_items *items, u64 random)
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

/* Weight of a token if it survives: key above the cut's, or equal and id at most `last`. */
EXL2K_FN u64 exl2k_survivor(const exl2k_row_view *v, int cut, u32 last, u32 id, u32 bits)
{
    int key = exl2k_key(bits);
    return key > cut || (key == cut && id <= last) ? exl2k_weight(&v->curve, __uint_as_float(bits)) : 0;
}

/* Within a block, by the first warp: lane l has tokens 2l and 2l + 1. `target` is less than the block's sum. */
EXL2K_FN void exl2k_draw_within(const exl2k_row_view *v, int cut, u32 last, u32 block, u64 target)
{
    u32 lane = threadIdx.x % 32, id = block * EXL2K_SAMPLE_BLOCK + 2 * lane;
    u64 weight[2];
    for (u32 j = 0; j < 2; j++) {
        u32 bits = id + j < v->vocab ? exl2k_load(v->logits + 4ull * (id + j)) : EXL2K_BITS_NONE;
        weight[j] = exl2k_survivor(v, cut, last, id + j, bits);
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

/* The same over the row, by the sums of blocks, which hold the survivors only. */
EXL2K_FN u32 exl2k_draw_blocks(const exl2k_row_view *v, int cut, u32 last, u64 random)
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
        exl2k_draw_within(v, cut, last, block, v->w->partial[1][0]);
    }
    __syncthreads();
    return v->w->found;
}

EXL2K_FN u32 exl2k_draw_all(const exl2k_row_view *v, u64 random)
{
    return exl2k_draw_blocks(v, EXL2K_KEY_NONE, v->vocab, random);
}

/* Sums of the survivors of each block: a half-warp has four tokens a lane. */
EXL2K_FN void exl2k_survivor_sums(const exl2k_row_view *v, int cut, u32 last)
{
#pragma unroll 2
    for (u32 base = 0; base < v->blocks; base += EXL2K_SAMPLE_THREADS / 16) {
        u32 block = base + threadIdx.x / 16, id = block * EXL2K_SAMPLE_BLOCK + threadIdx.x % 16 * 4;
        u32 bits[4] = { EXL2K_BITS_NONE, EXL2K_BITS_NONE, EXL2K_BITS_NONE, EXL2K_BITS_NONE };
        u64 sum = 0;
        if (id < v->vocab) {
            uint4 four = exl2k_load4(v->logits + 4ull * id);
            bits[0] = four.x;
            bits[1] = four.y;
            bits[2] = four.z;
            bits[3] = four.w;
        }
        for (u32 j = 0; j < 4; j++) {
            sum += id + j < v->vocab ? exl2k_survivor(v, cut, last, id + j, bits[j]) : 0;
        }
        for (u32 step = 8; step > 0; step /= 2) {
            sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
        }
        if (threadIdx.x % 16 == 0 && block < v->blocks) {
            exl2k_store(v->sums + 8ull * block, (u32)sum);
            exl2k_store(v->sums + 8ull * block + 4, (u32)(sum >> 32));
        }
    }
    __threadfence_block();
    __syncthreads();
}

EXL2K_FN u32 exl2k_draw_from(const exl2k_row_view *v, const exl2k_items *items, u64 random)
{
    if (items->kind == EXL2K_ITEMS_LIST) {
        return exl2k_draw_items(v, items, random);
    }
    u32 last = v->vocab;
    if (items->cut.ties != EXL2K_TIES_ALL) {
        exl2k_items ties = exl2k_collect(v, items->cut.key, items->cut.key, false);
        if (ties.kind != EXL2K_ITEMS_LIST) { /* thousands of equal logits */
            return exl2k_draw_items(v, items, random);
        }
        last = v->w->ids[items->cut.ties - 1];
        __syncthreads();
    }
    exl2k_survivor_sums(v, items->cut.key, last);
    return exl2k_draw_blocks(v, items->cut.key, last, random);
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
