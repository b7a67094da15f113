/* cpu_sample_list.h: the candidates of sampling: a list of tokens by id, and prefixes of it in order of weight.
   takes: a row of logits, its block maxima, scratch.
   gives: exl2__sample_work, exl2__sample_list, exl2__sample_scratch_bytes, exl2__sample_collect, exl2__sample_weigh,
          exl2__sample_prefix, exl2__sample_first, exl2__sample_sort.
   owns:  nothing; scratch belongs to the caller. */
#ifndef EXL2__CPU_SAMPLE_LIST_H
#define EXL2__CPU_SAMPLE_LIST_H

#include "../../0_base/arena.h"
#include "cpu_weight.h"

/* ---- scratch ---- */

/* The candidates, ascending by id. */
typedef struct exl2__sample_list {
    uint32_t *ids;     /* [vocab] */
    int32_t *keys;     /* [vocab] */
    uint64_t *weights; /* [vocab] */
    uint32_t count;
} exl2__sample_list;

typedef struct exl2__sample_work {
    exl2_cpu_path path; /* of the passes over all logits */
    const float *logits;
    uint32_t vocab;
    int32_t *block_keys;  /* [blocks] largest key of each block */
    uint64_t *block_sums; /* [blocks] sums of weights on the curve with `slope` */
    uint64_t sum;         /* sum of block_sums */
    float slope;          /* 0: block_sums are not valid, because logits have changed */
    uint32_t *touched;    /* [vocab / 32] bits: a penalty or bias has changed the logit */
    float *raw;           /* [vocab] the logit before that change; set where touched */
    uint32_t *order[2];   /* [vocab] sorted indices into the list, and memory for sorting */
    exl2__sample_list list;
} exl2__sample_work;

EXL2__PRIVATE void exl2__sample_layout(exl2__arena *scratch, uint32_t vocab, exl2__sample_work *w)
{
    uint64_t tokens = vocab, blocks = exl2__weight_blocks(vocab);
    *w = (exl2__sample_work){ 0 };
    w->vocab = vocab;
    w->block_keys = (int32_t *)exl2__arena_alloc(scratch, blocks * sizeof *w->block_keys);
    w->block_sums = (uint64_t *)exl2__arena_alloc(scratch, blocks * sizeof *w->block_sums);
    w->touched = (uint32_t *)exl2__arena_alloc(scratch, exl2__div_up(tokens, 32) * sizeof *w->touched);
    w->raw = (float *)exl2__arena_alloc(scratch, tokens * sizeof *w->raw);
    w->order[0] = (uint32_t *)exl2__arena_alloc(scratch, tokens * sizeof *w->order[0]);
    w->order[1] = (uint32_t *)exl2__arena_alloc(scratch, tokens * sizeof *w->order[1]);
    w->list.ids = (uint32_t *)exl2__arena_alloc(scratch, tokens * sizeof *w->list.ids);
    w->list.keys = (int32_t *)exl2__arena_alloc(scratch, tokens * sizeof *w->list.keys);
    w->list.weights = (uint64_t *)exl2__arena_alloc(scratch, tokens * sizeof *w->list.weights);
}

/* Bytes of scratch for exl2__sample_row; the scratch must be aligned to 64 bytes. */
EXL2__PRIVATE uint64_t exl2__sample_scratch_bytes(uint32_t vocab)
{
    exl2__arena dry = { 0 };
    exl2__sample_work w;
    exl2__sample_layout(&dry, vocab, &w);
    return dry.used;
}

/* ---- lists ---- */

/* The list becomes all tokens whose key is at least `least` (above EXL2__WEIGHT_KEY_NONE). Weights are not set. */
EXL2__PRIVATE void exl2__sample_collect(exl2__sample_work *w, int32_t least)
{
    uint32_t count = 0;
    for (uint32_t begin = 0, block = 0; begin < w->vocab; begin += EXL2__WEIGHT_BLOCK, block++) {
        if (w->block_keys[block] < least) {
            continue;
        }
        uint32_t end = exl2__min32(w->vocab, begin + EXL2__WEIGHT_BLOCK);
        for (uint32_t id = begin; id < end; id++) {
            int32_t key = exl2__weight_key(w->logits[id]);
            w->list.ids[count] = id; /* overwritten by the next token if this one is not added */
            w->list.keys[count] = key;
            count += key >= least;
        }
    }
    w->list.count = count;
}

/* The sum of all weights of the row. Sets block_sums. */
EXL2__PRIVATE uint64_t exl2__sample_sum(exl2__sample_work *w, const exl2__weight_curve *curve)
{
    if (w->slope != curve->slope) {
        w->sum = exl2__weight_sums(w->path, curve, w->logits, w->vocab, w->block_sums);
        w->slope = curve->slope;
    }
    return w->sum;
}

/* Sets the weights of the list; returns their sum. */
EXL2__PRIVATE uint64_t exl2__sample_weigh(exl2__sample_work *w, const exl2__weight_curve *curve)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->list.count; i++) {
        w->list.weights[i] = exl2__weight_of(curve, w->logits[w->list.ids[i]]);
        sum += w->list.weights[i];
    }
    return sum;
}

/* A prefix in order: all tokens with a key above `key`, and of those with this key, by id, as many as make `rest`. */
typedef struct exl2__sample_cut {
    int32_t key;
    uint64_t rest;
} exl2__sample_cut;

/* The shortest prefix whose measure is at least `need`. The measure is the sum of `weights`, or the number of tokens if
   weights is NULL. 1 <= need <= measure of all. Four passes; each finds one byte of the key's distance to `top_key`. */
EXL2__PRIVATE exl2__sample_cut exl2__sample_prefix(const int32_t *keys, const uint64_t *weights, uint32_t count,
                                                   int32_t top_key, uint64_t need)
{
    uint32_t distance = 0, mask = 0; /* distance of the prefix's last key; mask: its bytes that are known */
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint64_t bins[256] = { 0 };
        for (uint32_t i = 0; i < count; i++) {
            uint32_t below = (uint32_t)top_key - (uint32_t)keys[i];
            if ((below & mask) == distance) {
                bins[below >> shift & 255] += weights ? weights[i] : 1;
            }
        }
        uint32_t bin = 0;
        while (bin < 255 && bins[bin] < need) {
            need -= bins[bin++];
        }
        distance |= bin << shift;
        mask |= 255u << shift;
    }
    exl2__sample_cut cut = { (int32_t)((uint32_t)top_key - distance), need };
    return cut;
}

/* Keeps the tokens of a prefix. `order` [count]: the keys, and `weighted`: were weights given, in its computation? */
EXL2__PRIVATE void exl2__sample_keep_prefix(exl2__sample_list *list, const int32_t *order, exl2__sample_cut cut,
                                            bool weighted)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        int32_t key = order[i]; /* which may be list->keys, overwritten below */
        bool tie = key == cut.key && cut.rest > 0;
        if (tie) {
            cut.rest -= exl2__min64(cut.rest, weighted ? list->weights[i] : 1);
        }
        if (tie || key > cut.key) {
            list->ids[kept] = list->ids[i];
            list->keys[kept] = list->keys[i];
            list->weights[kept] = weighted ? list->weights[i] : 0;
            kept++;
        }
    }
    list->count = kept;
}

/* The list becomes the first k tokens in order, or all allowed tokens if there are fewer. k > 0. */
EXL2__PRIVATE void exl2__sample_first(exl2__sample_work *w, int32_t top_key, uint32_t k)
{
    uint32_t blocks = exl2__weight_blocks(w->vocab);
    int32_t least = EXL2__WEIGHT_KEY_LEAST;
    if (k <= blocks) { /* the k blocks with the largest maxima hold k tokens that are no smaller */
        int32_t key = exl2__sample_prefix(w->block_keys, NULL, blocks, top_key, k).key;
        least = key > least ? key : least;
    }
    exl2__sample_collect(w, least);
    if (w->list.count > k) {
        exl2__sample_cut cut = exl2__sample_prefix(w->list.keys, NULL, w->list.count, top_key, k);
        exl2__sample_keep_prefix(&w->list, w->list.keys, cut, false);
    }
}

/* Returns w->order[0]: indices into the list, by key descending, ties by lowest id. keys [count] are at most `top_key`.
   A radix sort: four passes, each by one byte of the distance to `top_key`. */
EXL2__PRIVATE const uint32_t *exl2__sample_sort(exl2__sample_work *w, const int32_t *keys, int32_t top_key)
{
    uint32_t count = w->list.count, *from = w->order[1], *to = w->order[0];
    for (uint32_t i = 0; i < count; i++) {
        to[i] = i;
    }
    for (uint32_t shift = 0; shift < 32; shift += 8) {
        uint32_t starts[257] = { 0 }, *other = from;
        from = to;
        to = other;
        for (uint32_t i = 0; i < count; i++) {
            starts[(((uint32_t)top_key - (uint32_t)keys[from[i]]) >> shift & 255) + 1]++;
        }
        for (uint32_t bin = 1; bin < 256; bin++) {
            starts[bin] += starts[bin - 1];
        }
        for (uint32_t i = 0; i < count; i++) {
            to[starts[((uint32_t)top_key - (uint32_t)keys[from[i]]) >> shift & 255]++] = from[i];
        }
    }
    return to; /* order[0], as the number of passes is even */
}

#endif
