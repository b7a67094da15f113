/* cpu_sample_list.h: the candidates of sampling: a list of tokens by id, and prefixes of it in order of weight.
   takes: a row of logits, its block maxima, scratch.
   gives: exl2__sample_work, exl2__sample_list, exl2__sample_scratch_bytes, exl2__sample_touch, exl2__sample_collect,
          exl2__sample_weigh; exl2__sample_search and exl2__sample_keep_part; exl2__sample_sort.
   owns:  nothing; scratch belongs to the caller. */
#ifndef EXL2__CPU_SAMPLE_LIST_H
#define EXL2__CPU_SAMPLE_LIST_H

#include "../../0_base/arena.h"
#include "cpu_weight.h"

#define EXL2__SAMPLE_PART 1024u /* elements of a part of a pass, at least those of a block of logits */

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
    uint64_t *block_sums; /* [blocks] sums of weights on the curve with `slope`; later sums of parts of the list */
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

/* Saves logits[token] before its first change. Returns true if this is the first. */
EXL2__PRIVATE bool exl2__sample_touch(exl2__sample_work *w, uint32_t token)
{
    uint32_t bit = 1u << (token & 31), *word = &w->touched[token / 32];
    bool first = !(*word & bit);
    if (first) {
        *word |= bit;
        w->raw[token] = w->logits[token];
    }
    return first;
}

/* ---- lists. A pass over the row or over a list can be made in parts, in order; without parts it is one call ---- */

/* Number of blocks that exl2__sample_collect goes through. */
static inline uint32_t exl2__sample_collected_blocks(const exl2__sample_work *w, int32_t least)
{
    uint32_t count = 0;
    for (uint32_t block = 0; block < exl2__weight_blocks(w->vocab); block++) {
        count += w->block_keys[block] >= least;
    }
    return count;
}

/* Adds to the list all tokens whose key is at least `least` (above EXL2__WEIGHT_KEY_NONE), of the next `blocks` blocks
   from *block on that have any. Weights are not set. */
EXL2__PRIVATE void exl2__sample_collect(exl2__sample_work *w, int32_t least, uint32_t *block, uint32_t blocks)
{
    uint32_t count = w->list.count;
    for (; blocks > 0; ++*block) {
        if (w->block_keys[*block] < least) {
            continue;
        }
        uint32_t begin = *block * EXL2__WEIGHT_BLOCK, end = exl2__min32(w->vocab, begin + EXL2__WEIGHT_BLOCK);
        for (uint32_t id = begin; id < end; id++) {
            int32_t key = exl2__weight_key(w->logits[id]);
            w->list.ids[count] = id; /* overwritten by the next token if this one is not added */
            w->list.keys[count] = key;
            count += key >= least;
        }
        blocks--;
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

/* Sets the weights of tokens [begin, end) of the list; returns their sum. */
EXL2__PRIVATE uint64_t exl2__sample_weigh(exl2__sample_work *w, const exl2__weight_curve *curve, uint32_t begin,
                                          uint32_t end)
{
    uint64_t sum = 0;
    for (uint32_t i = begin; i < end; i++) {
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

/* The search for the shortest prefix whose measure is at least `need`. The measure is the sum of `weights`, or the
   number of tokens if weights is NULL. 1 <= need <= measure of all. EXL2__SAMPLE_PASSES passes; each finds one byte of
   the key's distance to `top_key`. */
#define EXL2__SAMPLE_PASSES 4u
typedef struct exl2__sample_search {
    const int32_t *keys;     /* [count] */
    const uint64_t *weights; /* [count] or NULL */
    uint32_t count;
    int32_t top_key;
    uint64_t need;
    uint32_t distance, mask; /* distance of the prefix's last key; mask: its bytes that are known */
    uint64_t bins[256];
} exl2__sample_search;

EXL2__PRIVATE void exl2__sample_search_begin(exl2__sample_search *x, const int32_t *keys, const uint64_t *weights,
                                             uint32_t count, int32_t top_key, uint64_t need)
{
    *x = (exl2__sample_search){ keys, weights, count, top_key, need, 0, 0, { 0 } };
}

/* Keys [begin, end) of EXL2__SAMPLE_PASSES times `count`: the passes follow each other. */
EXL2__PRIVATE void exl2__sample_search_run(exl2__sample_search *x, uint32_t begin, uint32_t end)
{
    while (begin < end) {
        uint32_t pass = begin / x->count, first = pass * x->count, last = exl2__min32(end, first + x->count);
        uint32_t shift = 8 * (EXL2__SAMPLE_PASSES - 1 - pass);
        for (uint32_t i = begin - first; i < last - first; i++) {
            uint32_t below = (uint32_t)x->top_key - (uint32_t)x->keys[i];
            uint64_t counts = 0 - (uint64_t)((below & x->mask) == x->distance); /* a mask: every key lasts as long */
            x->bins[below >> shift & 255] += counts & (x->weights ? x->weights[i] : 1);
        }
        if (last == first + x->count) {
            uint32_t bin = 0;
            while (bin < 255 && x->bins[bin] < x->need) {
                x->need -= x->bins[bin++];
            }
            x->distance |= bin << shift;
            x->mask |= 255u << shift;
            memset(x->bins, 0, sizeof x->bins);
        }
        begin = last;
    }
}

static inline exl2__sample_cut exl2__sample_search_end(const exl2__sample_search *x)
{
    return (exl2__sample_cut){ (int32_t)((uint32_t)x->top_key - x->distance), x->need };
}

/* Moves the tokens of a prefix, of [begin, end) of the list, after the first *kept ones. `order` [count]: the keys, and
   `weighted`: were weights given, in the search? After the last part *kept is the length of the list. */
EXL2__PRIVATE void exl2__sample_keep_part(exl2__sample_list *list, const int32_t *order, exl2__sample_cut *cut,
                                          bool weighted, uint32_t begin, uint32_t end, uint32_t *kept)
{
    uint32_t to = *kept;
    for (uint32_t i = begin; i < end; i++) {
        int32_t key = order[i]; /* which may be list->keys, overwritten below */
        bool tie = key == cut->key && cut->rest > 0;
        if (tie) {
            cut->rest -= exl2__min64(cut->rest, weighted ? list->weights[i] : 1);
        }
        if (tie || key > cut->key) {
            list->ids[to] = list->ids[i];
            list->keys[to] = list->keys[i];
            list->weights[to] = weighted ? list->weights[i] : 0;
            to++;
        }
    }
    *kept = to;
}

/* A radix sort: indices into the list, by key descending, ties by lowest id. EXL2__SAMPLE_SORTS passes: the indices in
   order of id; then, for each byte of the distance to `top_key`, one that counts its values and one that moves. */
#define EXL2__SAMPLE_SORTS 9u
typedef struct exl2__sample_sort {
    const int32_t *keys;   /* [count] at most `top_key` */
    uint32_t count;
    int32_t top_key;
    uint32_t *from, *to;   /* [count] after the last pass `to` has the result */
    uint32_t starts[257];  /* by value of a byte */
} exl2__sample_sort;

EXL2__PRIVATE void exl2__sample_sort_begin(exl2__sample_sort *x, exl2__sample_work *w, const int32_t *keys,
                                           int32_t top_key)
{
    *x = (exl2__sample_sort){ keys, w->list.count, top_key, w->order[1], w->order[0], { 0 } };
}

/* Elements [begin, end) of one pass. */
static inline void exl2__sample_sort_pass(exl2__sample_sort *x, uint32_t pass, uint32_t begin, uint32_t end)
{
    uint32_t shift = pass ? 8 * ((pass - 1) / 2) : 0;
    if (pass == 0) {
        for (uint32_t i = begin; i < end; i++) {
            x->to[i] = i;
        }
    } else if (pass % 2) {
        for (uint32_t i = begin; i < end; i++) {
            x->starts[(((uint32_t)x->top_key - (uint32_t)x->keys[x->from[i]]) >> shift & 255) + 1]++;
        }
    } else {
        for (uint32_t i = begin; i < end; i++) {
            x->to[x->starts[((uint32_t)x->top_key - (uint32_t)x->keys[x->from[i]]) >> shift & 255]++] = x->from[i];
        }
    }
}

/* Elements [begin, end) of EXL2__SAMPLE_SORTS times `count`: the passes follow each other. */
EXL2__PRIVATE void exl2__sample_sort_run(exl2__sample_sort *x, uint32_t begin, uint32_t end)
{
    while (begin < end) {
        uint32_t pass = begin / x->count, first = pass * x->count, last = exl2__min32(end, first + x->count);
        if (begin == first && pass % 2) {
            uint32_t *other = x->from;
            x->from = x->to;
            x->to = other;
            memset(x->starts, 0, sizeof x->starts);
        }
        exl2__sample_sort_pass(x, pass, begin - first, last - first);
        if (last == first + x->count && pass % 2) {
            for (uint32_t bin = 1; bin < 256; bin++) {
                x->starts[bin] += x->starts[bin - 1];
            }
        }
        begin = last;
    }
}

#endif
