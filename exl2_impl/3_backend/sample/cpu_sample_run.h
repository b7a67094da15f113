/* cpu_sample_run.h: samples from a row of logits in parts, so that a step of the engine can end between two of them.
   takes: logits [vocab] f32 (overwritten), an exl2__logit_row, scratch.
   gives: exl2__sample_run and its functions _begin, _parts, _part, _next; exl2__sample_kind and exl2__sample_part_cost,
          by which the time of a part is predicted; exl2__sample_row, which is all of it at once.
   owns:  nothing; scratch and the array of alternatives belong to the caller. */
#ifndef EXL2__CPU_SAMPLE_RUN_H
#define EXL2__CPU_SAMPLE_RUN_H

#include "cpu_sample.h"

#define EXL2__SAMPLE_PART_BLOCKS (EXL2__SAMPLE_PART / EXL2__WEIGHT_BLOCK)
#define EXL2__SAMPLE_HISTORY_PARTS 16u /* most parts of the penalties */
#define EXL2__SAMPLE_SHAPE_KIND 11u /* the kind of the first pass of filters, each of which is of its own */

/* The passes of a row, in this order; one that a row does not need has no elements. The elements of a pass marked
   "blocks" are blocks of logits. The numbers are those of the steps in cpu_sample.h. */
typedef enum exl2__sample_pass {
    EXL2__SAMPLE_OWN_MAXIMA,  /* blocks. Guidance: the row's largest keys */
    EXL2__SAMPLE_OWN_SUMS,    /* blocks. Guidance: sums of the row's weights */
    EXL2__SAMPLE_OTHER_MAXIMA, /* blocks. Guidance: the largest keys of the negative row */
    EXL2__SAMPLE_OTHER_SUMS,  /* blocks. Guidance: sums of its weights */
    EXL2__SAMPLE_GUIDE,       /* guidance: the logits that follow from both rows */
    EXL2__SAMPLE_RAW_MAXIMA,  /* blocks. The raw softmax: the largest keys */
    EXL2__SAMPLE_RAW_SUMS,    /* blocks. The raw softmax: the sum of all weights */
    EXL2__SAMPLE_ALTS_BLOCKS, /* alternatives: which blocks can hold them */
    EXL2__SAMPLE_ALTS_LIST,   /* blocks. Alternatives: the list of what these blocks hold */
    EXL2__SAMPLE_ALTS_SEARCH, /* alternatives: the last one */
    EXL2__SAMPLE_ALTS_KEEP,   /* alternatives: all of them */
    EXL2__SAMPLE_MASK,        /* 0 */
    EXL2__SAMPLE_PENALTIES,   /* 1 and 2 */
    EXL2__SAMPLE_MAXIMA,      /* blocks. 3 */
    EXL2__SAMPLE_SUMS,        /* blocks. 4, if all tokens count */
    EXL2__SAMPLE_TOP_BLOCKS,  /* 5: as for the likeliest tokens */
    EXL2__SAMPLE_LIST,        /* blocks */
    EXL2__SAMPLE_TOP_SEARCH,
    EXL2__SAMPLE_TOP_KEEP,
    EXL2__SAMPLE_WEIGH,       /* 4, of the list; if top-p needs more tokens, back to LIST */
    EXL2__SAMPLE_SEARCH,      /* 6 */
    EXL2__SAMPLE_KEEP,
    EXL2__SAMPLE_LEAST,       /* min-p */
    EXL2__SAMPLE_SHAPE,       /* 7 and 8: passes of its own */
    EXL2__SAMPLE_SUM,         /* 9: sums of parts of the list, for skew in order of weight */
    EXL2__SAMPLE_FIND,        /* 9: the token, in the part that holds it */
    EXL2__SAMPLE_ENDED
} exl2__sample_pass;

struct exl2__sample_run {
    exl2__sample_work w;
    float *logits;
    exl2__logit_row row;         /* copies: between two parts the row's job may end, and another one get its slot */
    exl2__sampling sampling;
    exl2__logit_result *result;
    exl2__sample_pass pass;
    uint32_t elements;           /* of the pass */
    float own_sum, other_sum;    /* guidance: logsumexp of both rows */
    exl2__sample_softmax raw;
    int32_t top_key;             /* of the adjusted row */
    exl2__weight_curve curve;    /* of the weights that count now */
    int32_t least_key;           /* of the list */
    uint64_t least_weight, share; /* min-p; top-p * 2^64 */
    int places;                  /* with top-p over the whole row: the list has weights down to 2^-places */
    bool cuts;                   /* top-p has to cut the list */
    uint32_t block, kept;        /* of a pass: the next block; tokens that are kept so far */
    exl2__sample_search search;
    exl2__sample_cut cut;
    uint64_t need, sum, target, running;
    uint32_t place;              /* first that of the part, then the sampled token's, in the list */
    exl2__sample_shape shape;
};

static inline bool exl2__sample_all_count(const exl2__sampling *s)
{
    return s->top_k == 0 && s->top_p >= 1 && s->min_p <= 0 && !exl2__sample_is_shaped(s);
}

/* Top-p over the whole row: the end of the prefix is searched among ever smaller weights. */
static inline bool exl2__sample_is_nucleus(const exl2__sample_run *x)
{
    const exl2__sampling *s = x->row.sampling;
    return s->top_k == 0 && s->top_p < 1 && !x->curve.square;
}

static inline bool exl2__sample_has_penalties(const exl2__logit_row *row)
{
    const exl2__sampling *s = row->sampling;
    return row->history_count > 0 && (s->repeat_penalty != 1.0f || exl2__sample_is_penalized(s));
}

static inline uint32_t exl2__sample_alts(const exl2__sample_run *x)
{
    return exl2__min32(x->row.alts, EXL2_ALTS_MAX);
}

/* ---- what a pass begins with: its number of elements ---- */

static inline uint32_t exl2__sample_begin_sums(exl2__sample_run *x)
{
    return x->w.slope == x->curve.slope ? 0 : exl2__weight_blocks(x->w.vocab);
}

/* The first k tokens in order: the k blocks with the largest maxima hold k tokens that are no smaller. k may be 0. */
static inline uint32_t exl2__sample_begin_blocks(exl2__sample_run *x, int32_t top_key, uint32_t k)
{
    uint32_t blocks = exl2__weight_blocks(x->w.vocab);
    x->least_key = EXL2__WEIGHT_KEY_LEAST;
    if (k == 0 || k > blocks) {
        return 0;
    }
    exl2__sample_search_begin(&x->search, x->w.block_keys, NULL, blocks, top_key, k);
    return EXL2__SAMPLE_PASSES * blocks;
}

static inline uint32_t exl2__sample_begin_list(exl2__sample_run *x)
{
    x->w.list.count = x->block = 0;
    return exl2__sample_collected_blocks(&x->w, x->least_key);
}

static inline uint32_t exl2__sample_begin_search(exl2__sample_run *x, int32_t top_key, const uint64_t *weights,
                                                 uint64_t need)
{
    exl2__sample_search_begin(&x->search, x->w.list.keys, weights, x->w.list.count, top_key, need);
    return EXL2__SAMPLE_PASSES * x->w.list.count;
}

static inline uint32_t exl2__sample_begin_keep(exl2__sample_run *x)
{
    x->cut = exl2__sample_search_end(&x->search);
    x->kept = 0;
    return x->w.list.count;
}

/* Step 4: how weights depend on logits, and the least that min-p leaves. */
static inline void exl2__sample_begin_weights(exl2__sample_run *x)
{
    const exl2__sampling *s = x->row.sampling;
    float temperature = s->temperature_last ? 1 : s->temperature;
    x->curve = s->smoothing > 0 ? exl2__weight_curve_smooth(x->top_key, temperature, s->smoothing)
                                : exl2__weight_curve_make(x->top_key, temperature);
    bool min_p = s->min_p > 0 && s->top_a <= 0; /* top-a needs the tokens that min-p removes */
    bool later = s->temperature_last || s->dynamic_max > s->dynamic_min; /* a weight of 0 may become larger */
    x->least_weight = min_p ? exl2__max64(1, (uint64_t)(s->min_p * 1099511627776.0f)) : later ? 0 : 1;
    /* Powers of two scale floats exactly, so the threshold is the setting's own, rounded down. */
    x->share = s->top_p < 1 ? (uint64_t)(s->top_p * 4294967296.0f) << 32 : 0;
}

/* The least weight of the list, with top-p over the whole row. */
static inline uint64_t exl2__sample_nucleus_weight(const exl2__sample_run *x)
{
    uint64_t weight = x->places < EXL2__WEIGHT_ONE_LOG2 ? EXL2__WEIGHT_ONE >> x->places : 1;
    return exl2__max64(weight, x->least_weight);
}

static inline void exl2__sample_set_least_key(exl2__sample_run *x)
{
    const exl2__sampling *s = x->row.sampling;
    if (exl2__sample_is_nucleus(x)) {
        x->least_key = exl2__weight_least_key(&x->curve, exl2__sample_nucleus_weight(x));
    } else if (s->top_k == 0) {
        uint64_t least = s->top_p < 1 ? 1 : x->least_weight;
        x->least_key = least ? exl2__weight_least_key(&x->curve, least) : EXL2__WEIGHT_KEY_LEAST;
    }
}

/* The list's order in step 9; NULL: by id. */
static inline const uint32_t *exl2__sample_order(const exl2__sample_run *x)
{
    return exl2__sample_skewed(x->row.sampling) ? x->shape.sort.to : NULL;
}

/* Sums of the parts of which [begin, end) consists; they replace those of the blocks. */
EXL2__PRIVATE void exl2__sample_sum_parts(exl2__sample_run *x, uint32_t begin, uint32_t end)
{
    const uint64_t *weights = x->w.list.weights;
    const uint32_t *order = exl2__sample_order(x);
    for (uint32_t at = begin, last; at < end; at = last) {
        uint64_t sum = 0;
        last = exl2__min32(end, at + EXL2__SAMPLE_PART);
        for (uint32_t i = at; order && i < last; i++) {
            sum += weights[order[i]];
        }
        sum = order ? sum : exl2__weight_total(weights + at, last - at);
        x->w.block_sums[at / EXL2__SAMPLE_PART] = sum;
        x->sum += sum;
    }
}

/* The part at which the running sum exceeds the target. */
static inline void exl2__sample_find_part(exl2__sample_run *x)
{
    const uint64_t *sums = x->w.block_sums;
    uint32_t part = 0;
    for (x->running = 0; x->running + sums[part] <= x->target; part++) {
        x->running += sums[part];
    }
    x->place = part * EXL2__SAMPLE_PART;
}

EXL2__PRIVATE uint32_t exl2__sample_begin_pass(exl2__sample_run *x)
{
    const exl2__logit_row *row = &x->row;
    const exl2__sampling *s = row->sampling;
    exl2__sample_work *w = &x->w;
    uint32_t alts = exl2__sample_alts(x);
    uint64_t random;
    switch (x->pass) {
    case EXL2__SAMPLE_OWN_MAXIMA:
    case EXL2__SAMPLE_OWN_SUMS:
    case EXL2__SAMPLE_OTHER_MAXIMA:
    case EXL2__SAMPLE_OTHER_SUMS:
    case EXL2__SAMPLE_RAW_MAXIMA:
        return exl2__weight_blocks(w->vocab);
    case EXL2__SAMPLE_GUIDE:
        return w->vocab;
    case EXL2__SAMPLE_RAW_SUMS:
        x->curve = exl2__weight_curve_make(x->raw.top_key, 1.0f);
        return exl2__sample_begin_sums(x);
    case EXL2__SAMPLE_ALTS_BLOCKS:
        return exl2__sample_begin_blocks(x, x->raw.top_key, alts);
    case EXL2__SAMPLE_ALTS_LIST:
        return alts ? exl2__sample_begin_list(x) : 0;
    case EXL2__SAMPLE_ALTS_SEARCH:
        return alts && w->list.count > alts ? exl2__sample_begin_search(x, x->raw.top_key, NULL, alts) : 0;
    case EXL2__SAMPLE_ALTS_KEEP:
        return alts && w->list.count > alts ? exl2__sample_begin_keep(x) : 0;
    case EXL2__SAMPLE_MASK:
        memset(w->touched, 0, (size_t)exl2__div_up(w->vocab, 32) * sizeof *w->touched);
        return row->mask ? w->vocab : 0;
    case EXL2__SAMPLE_PENALTIES:
        return exl2__sample_has_penalties(row) ? row->history_count : 0;
    case EXL2__SAMPLE_MAXIMA:
        x->top_key = x->raw.top_key;
        return exl2__sample_has_penalties(row) || s->bias_count + row->extra_count > 0 || row->mask
                   ? exl2__weight_blocks(w->vocab) : 0;
    case EXL2__SAMPLE_SUMS:
        exl2__sample_begin_weights(x);
        x->places = 10;
        return exl2__sample_all_count(s) || exl2__sample_is_nucleus(x) ? exl2__sample_begin_sums(x) : 0;
    case EXL2__SAMPLE_TOP_BLOCKS:
        return exl2__sample_begin_blocks(x, x->top_key, s->top_k);
    case EXL2__SAMPLE_LIST:
        exl2__sample_set_least_key(x);
        return exl2__sample_begin_list(x);
    case EXL2__SAMPLE_TOP_SEARCH:
        return s->top_k > 0 && w->list.count > s->top_k ? exl2__sample_begin_search(x, x->top_key, NULL, s->top_k) : 0;
    case EXL2__SAMPLE_TOP_KEEP:
        return s->top_k > 0 && w->list.count > s->top_k ? exl2__sample_begin_keep(x) : 0;
    case EXL2__SAMPLE_WEIGH:
        x->sum = 0;
        return w->list.count;
    case EXL2__SAMPLE_SEARCH:
        return x->cuts ? exl2__sample_begin_search(x, x->top_key, w->list.weights, x->need) : 0;
    case EXL2__SAMPLE_KEEP:
        return x->cuts ? exl2__sample_begin_keep(x) : 0;
    case EXL2__SAMPLE_LEAST:
        x->kept = 0;
        return !exl2__sample_is_nucleus(x) && (s->top_k > 0 || s->top_p < 1) && x->least_weight ? w->list.count : 0;
    case EXL2__SAMPLE_SHAPE:
        return exl2__sample_is_shaped(s) ? x->shape.elements : 0;
    case EXL2__SAMPLE_SUM:
        x->sum = 0;
        w->slope = 0;
        return w->list.count;
    case EXL2__SAMPLE_FIND:
        random = exl2__sample_random(s->seed, row->sample_position, row->attempt);
        x->target = exl2__sample_skewed(s) ? exl2__sample_shape_skew_target(s, random, x->sum)
                                           : exl2__weight_scale(random, x->sum);
        exl2__sample_find_part(x);
        return exl2__min32(w->list.count - x->place, EXL2__SAMPLE_PART);
    case EXL2__SAMPLE_ENDED:
        break;
    }
    return 0;
}

/* ---- elements [begin, end) of the pass ---- */

static inline bool exl2__sample_of_blocks(exl2__sample_pass pass)
{
    return (pass <= EXL2__SAMPLE_RAW_SUMS && pass != EXL2__SAMPLE_GUIDE) || pass == EXL2__SAMPLE_ALTS_LIST
        || pass == EXL2__SAMPLE_MAXIMA || pass == EXL2__SAMPLE_SUMS || pass == EXL2__SAMPLE_LIST;
}

EXL2__PRIVATE void exl2__sample_elements(exl2__sample_run *x, uint32_t begin, uint32_t end)
{
    exl2__sample_work *w = &x->w;
    const uint32_t *order;
    switch (x->pass) {
    case EXL2__SAMPLE_OTHER_MAXIMA:
        exl2__weight_maxima_of(w->path, x->row.negative, w->vocab, begin, end, w->block_keys);
        break;
    case EXL2__SAMPLE_OTHER_SUMS:
        exl2__weight_sums_of(w->path, &x->curve, x->row.negative, w->vocab, begin, end, w->block_sums);
        break;
    case EXL2__SAMPLE_GUIDE:
        exl2__sample_guide(x->logits, &x->row, x->own_sum, x->other_sum, begin, end);
        break;
    case EXL2__SAMPLE_OWN_MAXIMA:
    case EXL2__SAMPLE_RAW_MAXIMA:
    case EXL2__SAMPLE_MAXIMA:
        exl2__weight_maxima_of(w->path, w->logits, w->vocab, begin, end, w->block_keys);
        break;
    case EXL2__SAMPLE_OWN_SUMS:
    case EXL2__SAMPLE_RAW_SUMS:
    case EXL2__SAMPLE_SUMS:
        exl2__weight_sums_of(w->path, &x->curve, w->logits, w->vocab, begin, end, w->block_sums);
        break;
    case EXL2__SAMPLE_ALTS_BLOCKS:
    case EXL2__SAMPLE_ALTS_SEARCH:
    case EXL2__SAMPLE_TOP_BLOCKS:
    case EXL2__SAMPLE_TOP_SEARCH:
    case EXL2__SAMPLE_SEARCH:
        exl2__sample_search_run(&x->search, begin, end);
        break;
    case EXL2__SAMPLE_ALTS_LIST:
    case EXL2__SAMPLE_LIST:
        exl2__sample_collect(w, x->least_key, &x->block, end - begin);
        break;
    case EXL2__SAMPLE_ALTS_KEEP:
    case EXL2__SAMPLE_TOP_KEEP:
        exl2__sample_keep_part(&w->list, w->list.keys, &x->cut, false, begin, end, &x->kept);
        break;
    case EXL2__SAMPLE_KEEP:
        exl2__sample_keep_part(&w->list, w->list.keys, &x->cut, true, begin, end, &x->kept);
        break;
    case EXL2__SAMPLE_MASK:
        exl2__sample_mask(x->logits, x->row.mask, begin, end);
        break;
    case EXL2__SAMPLE_PENALTIES:
        exl2__sample_penalize(w, x->logits, &x->row, begin, end);
        break;
    case EXL2__SAMPLE_WEIGH:
        x->sum += exl2__sample_weigh(w, &x->curve, begin, end);
        break;
    case EXL2__SAMPLE_LEAST:
        x->kept = exl2__sample_keep_least_part(&w->list, x->least_weight, begin, end, x->kept);
        break;
    case EXL2__SAMPLE_SHAPE:
        exl2__sample_shape_run(&x->shape, begin, end);
        break;
    case EXL2__SAMPLE_SUM:
        exl2__sample_sum_parts(x, begin, end);
        break;
    case EXL2__SAMPLE_FIND:
        order = exl2__sample_order(x);
        x->place = exl2__sample_find(&w->list, order, x->target, x->place + begin, x->place + end, &x->running);
        x->place = order ? order[x->place] : x->place;
        break;
    case EXL2__SAMPLE_ENDED:
        break;
    }
}

/* ---- what a pass ends with: the next one ---- */

static inline exl2__sample_pass exl2__sample_end_with(exl2__sample_run *x, exl2_token token)
{
    const exl2__sample_work *w = &x->w;
    bool touched = w->touched[(uint32_t)token / 32] >> (token & 31) & 1;
    x->result->token = token;
    x->result->logprob = exl2__sample_logprob(&x->raw, touched ? w->raw[token] : x->logits[token]);
    return EXL2__SAMPLE_ENDED;
}

/* Guidance: after the maxima of one of both rows. One without any allowed token has no effect. */
static inline exl2__sample_pass exl2__sample_end_guide_maxima(exl2__sample_run *x)
{
    int32_t top_key = exl2__weight_most(x->w.block_keys, exl2__weight_blocks(x->w.vocab));
    if (top_key == EXL2__WEIGHT_KEY_NONE) {
        return EXL2__SAMPLE_RAW_MAXIMA;
    }
    x->curve = exl2__weight_curve_make(top_key, 1.0f);
    return (exl2__sample_pass)(x->pass + 1);
}

/* Guidance: the logsumexp of one of both rows. */
static inline float exl2__sample_guide_sum(const exl2__sample_run *x)
{
    uint64_t sum = exl2__weight_total(x->w.block_sums, exl2__weight_blocks(x->w.vocab));
    return (float)((double)x->curve.top + exl2__weight_log(sum));
}

static inline exl2__sample_pass exl2__sample_end_raw(exl2__sample_run *x)
{
    x->raw.top = x->curve.top;
    x->raw.log_sum = exl2__weight_log(x->w.sum);
    x->result->logsumexp = x->raw.top_key == EXL2__WEIGHT_KEY_INF ? x->raw.top
                                                                  : (float)((double)x->raw.top + x->raw.log_sum);
    return EXL2__SAMPLE_ALTS_BLOCKS;
}

static inline exl2__sample_pass exl2__sample_end_alts(exl2__sample_run *x)
{
    const exl2__logit_row *row = &x->row;
    if (row->alts > 0) {
        exl2__sample_alternatives(&x->w, &x->raw, x->result);
    }
    if (row->use != EXL2__LOGIT_SCORE) {
        return EXL2__SAMPLE_MASK;
    }
    x->result->token = row->target;
    if ((uint32_t)row->target < x->w.vocab) {
        x->result->logprob = exl2__sample_logprob(&x->raw, x->logits[row->target]);
    }
    return EXL2__SAMPLE_ENDED;
}

/* After the maxima of the adjusted row. */
static inline exl2__sample_pass exl2__sample_end_adjusted(exl2__sample_run *x)
{
    if (x->top_key == EXL2__WEIGHT_KEY_NONE) {
        return EXL2__SAMPLE_ENDED;
    }
    return x->row.sampling->greedy ? exl2__sample_end_with(x, exl2__sample_greedy(&x->w, x->top_key))
                                    : EXL2__SAMPLE_SUMS;
}

static inline exl2__sample_pass exl2__sample_end_weigh(exl2__sample_run *x)
{
    const exl2__sampling *s = x->row.sampling;
    x->cuts = s->top_p < 1;
    x->need = x->cuts ? exl2__sample_need(exl2__sample_is_nucleus(x) ? x->w.sum : x->sum, x->share) : 0;
    if (exl2__sample_is_nucleus(x) && x->sum < x->need) {
        if (exl2__sample_nucleus_weight(x) > exl2__max64(x->least_weight, 1)) {
            x->places += 10;
            return EXL2__SAMPLE_LIST;
        }
        x->cuts = false; /* the prefix has all tokens that min-p leaves */
    }
    return EXL2__SAMPLE_SEARCH;
}

EXL2__PRIVATE exl2__sample_pass exl2__sample_end_pass(exl2__sample_run *x)
{
    const exl2__sampling *s = x->row.sampling;
    exl2__sample_work *w = &x->w;
    uint32_t blocks = exl2__weight_blocks(w->vocab);
    switch (x->pass) {
    case EXL2__SAMPLE_OWN_MAXIMA:
    case EXL2__SAMPLE_OTHER_MAXIMA:
        return exl2__sample_end_guide_maxima(x);
    case EXL2__SAMPLE_OWN_SUMS:
        x->own_sum = exl2__sample_guide_sum(x);
        break;
    case EXL2__SAMPLE_OTHER_SUMS:
        x->other_sum = exl2__sample_guide_sum(x);
        break;
    case EXL2__SAMPLE_RAW_MAXIMA:
        x->raw.top_key = exl2__weight_most(w->block_keys, blocks);
        return x->raw.top_key == EXL2__WEIGHT_KEY_NONE ? EXL2__SAMPLE_ENDED : EXL2__SAMPLE_RAW_SUMS;
    case EXL2__SAMPLE_RAW_SUMS:
    case EXL2__SAMPLE_SUMS:
        if (x->elements) {
            w->sum = exl2__weight_total(w->block_sums, blocks);
            w->slope = x->curve.slope;
        }
        if (x->pass == EXL2__SAMPLE_SUMS && exl2__sample_all_count(s)) {
            uint64_t random = exl2__sample_random(s->seed, x->row.sample_position, x->row.attempt);
            return exl2__sample_end_with(x, exl2__sample_pick_all(w, &x->curve, random));
        }
        return x->pass == EXL2__SAMPLE_SUMS ? EXL2__SAMPLE_TOP_BLOCKS : exl2__sample_end_raw(x);
    case EXL2__SAMPLE_ALTS_BLOCKS:
    case EXL2__SAMPLE_TOP_BLOCKS:
        if (x->elements) {
            int32_t key = exl2__sample_search_end(&x->search).key;
            x->least_key = key > x->least_key ? key : x->least_key;
        }
        break;
    case EXL2__SAMPLE_ALTS_KEEP:
    case EXL2__SAMPLE_TOP_KEEP:
    case EXL2__SAMPLE_KEEP:
    case EXL2__SAMPLE_LEAST:
        w->list.count = x->elements ? x->kept : w->list.count;
        if (x->pass == EXL2__SAMPLE_ALTS_KEEP) {
            return exl2__sample_end_alts(x);
        }
        if (x->pass == EXL2__SAMPLE_LEAST && exl2__sample_is_shaped(s)) {
            exl2__sample_shape_begin(&x->shape, w, x->logits, s, &x->curve);
        }
        break;
    case EXL2__SAMPLE_SHAPE:
        if (x->elements) {
            exl2__sample_shape_next(&x->shape);
        }
        return x->elements ? EXL2__SAMPLE_SHAPE : EXL2__SAMPLE_SUM;
    case EXL2__SAMPLE_PENALTIES:
        exl2__sample_add(w, x->logits, s->bias, s->bias_count);
        exl2__sample_add(w, x->logits, x->row.extras, x->row.extra_count);
        break;
    case EXL2__SAMPLE_MAXIMA:
        if (x->elements) { /* logits have changed */
            w->slope = 0;
            x->top_key = exl2__weight_most(w->block_keys, blocks);
        }
        return exl2__sample_end_adjusted(x);
    case EXL2__SAMPLE_WEIGH:
        return exl2__sample_end_weigh(x);
    case EXL2__SAMPLE_FIND:
        if (s->mirostat_tau > 0) {
            double sum = (double)x->sum;
            x->result->surprise = (float)(log2(sum) - log2((double)w->list.weights[x->place]));
        }
        if (s->adaptive_target > 0) {
            x->result->chance = x->logits[w->list.ids[x->place]];
        }
        return exl2__sample_end_with(x, (exl2_token)w->list.ids[x->place]);
    case EXL2__SAMPLE_GUIDE:
    case EXL2__SAMPLE_ALTS_LIST:
    case EXL2__SAMPLE_ALTS_SEARCH:
    case EXL2__SAMPLE_MASK:
    case EXL2__SAMPLE_LIST:
    case EXL2__SAMPLE_TOP_SEARCH:
    case EXL2__SAMPLE_SEARCH:
    case EXL2__SAMPLE_SUM:
    case EXL2__SAMPLE_ENDED:
        break;
    }
    return (exl2__sample_pass)(x->pass + 1);
}

/* ---- parts ---- */

/* Elements of one part of the pass. */
static inline uint32_t exl2__sample_part_elements(const exl2__sample_run *x)
{
    uint32_t history = (uint32_t)exl2__div_up(x->elements, EXL2__SAMPLE_HISTORY_PARTS);
    return exl2__sample_of_blocks(x->pass) ? EXL2__SAMPLE_PART_BLOCKS
         : x->pass == EXL2__SAMPLE_PENALTIES ? exl2__max32(history, EXL2__SAMPLE_PART) : EXL2__SAMPLE_PART;
}

/* Number of parts of the pass; 0: the row has its result. */
static inline uint32_t exl2__sample_parts(const exl2__sample_run *x)
{
    return x->pass == EXL2__SAMPLE_ENDED ? 0 : (uint32_t)exl2__div_up(x->elements, exl2__sample_part_elements(x));
}

/* More than the parts of all passes of a row. */
static inline uint32_t exl2__sample_parts_most(uint32_t vocab)
{
    return 64u + 128u * (uint32_t)exl2__div_up(vocab, EXL2__SAMPLE_PART);
}

/* Passes that need about the same time for an element are of one kind, one of EXL2__PHASE_KINDS. */
EXL2__PRIVATE uint32_t exl2__sample_kind(const exl2__sample_run *x)
{
    switch (x->pass) {
    case EXL2__SAMPLE_OWN_MAXIMA:
    case EXL2__SAMPLE_OTHER_MAXIMA:
    case EXL2__SAMPLE_RAW_MAXIMA:
    case EXL2__SAMPLE_MAXIMA:
        return 0;
    case EXL2__SAMPLE_OWN_SUMS:
    case EXL2__SAMPLE_OTHER_SUMS:
    case EXL2__SAMPLE_RAW_SUMS:
    case EXL2__SAMPLE_SUMS:
        return 1;
    case EXL2__SAMPLE_ALTS_LIST:
    case EXL2__SAMPLE_LIST:
        return 2;
    case EXL2__SAMPLE_ALTS_BLOCKS:
    case EXL2__SAMPLE_ALTS_SEARCH:
    case EXL2__SAMPLE_TOP_BLOCKS:
    case EXL2__SAMPLE_TOP_SEARCH:
    case EXL2__SAMPLE_SEARCH:
        return 3;
    case EXL2__SAMPLE_WEIGH:
        return 4;
    case EXL2__SAMPLE_SUM:
        return 5;
    case EXL2__SAMPLE_FIND:
        return 6;
    case EXL2__SAMPLE_MASK:
        return 7;
    case EXL2__SAMPLE_PENALTIES:
        return 8;
    case EXL2__SAMPLE_GUIDE:
        return 9;
    case EXL2__SAMPLE_SHAPE:
        EXL2__ASSERT(EXL2__SAMPLE_SHAPE_KIND + (uint32_t)x->shape.pass < EXL2__PHASE_KINDS);
        return EXL2__SAMPLE_SHAPE_KIND + (uint32_t)x->shape.pass;
    default:
        return 10;
    }
}

/* A part's multiply-adds, roughly. A pass of few elements takes some time, too: it counts as one of 64. */
static inline uint64_t exl2__sample_part_cost(const exl2__sample_run *x)
{
    uint64_t elements = exl2__min32(exl2__sample_part_elements(x), x->elements);
    elements *= exl2__sample_of_blocks(x->pass) ? EXL2__WEIGHT_BLOCK : 1;
    return 16 * exl2__max64(elements, 64);
}

/* Whether parts of the pass may run at the same time; else they follow each other. */
static inline bool exl2__sample_is_parallel(const exl2__sample_run *x)
{
    return (exl2__sample_of_blocks(x->pass) && x->pass != EXL2__SAMPLE_ALTS_LIST && x->pass != EXL2__SAMPLE_LIST)
        || x->pass == EXL2__SAMPLE_MASK;
}

/* Parts [begin, end) of the pass. */
static inline void exl2__sample_part(exl2__sample_run *x, uint32_t begin, uint32_t end)
{
    uint32_t each = exl2__sample_part_elements(x);
    exl2__sample_elements(x, begin * each, exl2__min32(end * each, x->elements));
}

/* All parts of the pass have run: goes on to the next pass that has any, or to the end. */
EXL2__PRIVATE void exl2__sample_next(exl2__sample_run *x)
{
    do {
        x->pass = exl2__sample_end_pass(x);
        x->elements = exl2__sample_begin_pass(x);
    } while (x->elements == 0 && x->pass != EXL2__SAMPLE_ENDED);
}

/* Begins a row. result->alts is [EXL2_ALTS_MAX]; scratch is aligned to 64 bytes. Fails only if vocab is greater than
   2^24. */
EXL2__PRIVATE exl2_result exl2__sample_begin(exl2__sample_run *x, exl2_cpu_path path, float *logits, uint32_t vocab,
                                             const exl2__logit_row *row, void *scratch, exl2__logit_result *result)
{
    if (vocab > 1u << 24) {
        return EXL2_ERR_UNSUPPORTED; /* sums of weights could overflow 64 bits */
    }
    exl2__arena arena = { (uint8_t *)scratch, exl2__sample_scratch_bytes(vocab), 0, EXL2_MEM_SCRATCH };
    exl2__sample_layout(&arena, vocab, &x->w);
    x->w.path = path;
    x->w.logits = x->logits = logits;
    x->row = *row;
    if (row->sampling) {
        x->sampling = *row->sampling;
        x->row.sampling = &x->sampling;
    }
    x->result = result;
    result->token = -1;
    result->alt_count = 0;
    result->surprise = result->chance = 0;
    result->logprob = result->logsumexp = exl2__weight_key_logit(EXL2__WEIGHT_KEY_NONE);
    x->pass = row->negative ? EXL2__SAMPLE_OWN_MAXIMA : EXL2__SAMPLE_RAW_MAXIMA;
    x->elements = exl2__sample_begin_pass(x);
    return EXL2_OK;
}

/* Fills *result from one row of logits: all passes at once. The token is -1 if no token is allowed, before or after
   penalties and biases. Fails as exl2__sample_begin. */
EXL2__PRIVATE exl2_result exl2__sample_row(exl2_cpu_path path, float *logits, uint32_t vocab,
                                           const exl2__logit_row *row, void *scratch, exl2__logit_result *result)
{
    exl2__sample_run x;
    EXL2__TRY(exl2__sample_begin(&x, path, logits, vocab, row, scratch, result));
    while (x.pass != EXL2__SAMPLE_ENDED) {
        exl2__sample_elements(&x, 0, x.elements);
        exl2__sample_next(&x);
    }
    return EXL2_OK;
}

#endif
