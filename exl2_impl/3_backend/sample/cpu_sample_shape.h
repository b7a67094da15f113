/* cpu_sample_shape.h: the less common filters: top-a, tail-free, typical, mirostat, a temperature applied last or
   dynamic, XTC, adaptive-p, skew. They run in passes, which can be made in parts, as those of cpu_sample_run.h.
   takes: a list of candidates with their weights.
   gives: exl2__sample_is_shaped, exl2__sample_is_penalized; exl2__sample_shape and its functions _begin, _run, _next;
          exl2__sample_skewed. */
#ifndef EXL2__CPU_SAMPLE_SHAPE_H
#define EXL2__CPU_SAMPLE_SHAPE_H

#include "../../2_graph/phases.h"
#include "cpu_sample_list.h"

/* Differences to ExLlamaV2 0.3.2, which has defects in some filters; here each filter does what its literature says
   (docs/generation.md, "Sampling: differences to ExLlamaV2"):
   - a temperature of 0 applied last is greedy (there: division by zero)
   - smoothing divides by the temperature once (there: once per row)
   - top-p and typical keep the token that reaches the sum; typical sorts by |-ln p - H| (there: by p + ln p)
   - top-a is at most 1 and keeps the most likely token
   - XTC works on lists in any order, and of equal probabilities removes the lowest ids first
   - tokens of weight 0 are never sampled, and the whole range of the random number is used */

/* Is any setting on that this file implements? */
static inline bool exl2__sample_is_shaped(const exl2__sampling *s)
{
    return s->temperature_last || s->smoothing > 0 || s->top_a > 0 || s->tail_free > 0 || s->typical > 0
        || s->skew > 0 || s->skew < 0 || s->dynamic_max > s->dynamic_min || s->xtc_probability > 0
        || exl2__sampling_has_state(s);
}

/* Are there penalties other than a repeat penalty without decay? */
static inline bool exl2__sample_is_penalized(const exl2__sampling *s)
{
    return s->frequency_penalty > 0 || s->frequency_penalty < 0 || s->presence_penalty > 0 || s->presence_penalty < 0
        || (s->penalty_decay > 0 && s->repeat_penalty != 1.0f);
}

/* The passes, in this order; one that a row does not need has no elements. An element is a token of the list, if no
   other number is named. */
typedef enum exl2__shape_pass {
    EXL2__SHAPE_TOP_A_SUM,      /* top-a: the most likely token, and the sum */
    EXL2__SHAPE_TOP_A,          /* top-a: the tokens that it keeps */
    EXL2__SHAPE_MIN_P,          /* min-p after top-a: those of them that it keeps */
    EXL2__SHAPE_TAIL_SUM,       /* tail-free: the sum */
    EXL2__SHAPE_TAIL_LEAST,     /* tail-free: removes tokens that do not count */
    EXL2__SHAPE_TAIL_BEST,      /* tail-free: the most likely token */
    EXL2__SHAPE_TAIL_SORT,      /* tail-free: EXL2__SAMPLE_SORTS for each token */
    EXL2__SHAPE_TAIL_CURVES,    /* tail-free: sums of curvatures by part, and the part where they exceed z of all */
    EXL2__SHAPE_TAIL_KEEP,
    EXL2__SHAPE_TYPICAL_MEAN,   /* typical: the entropy */
    EXL2__SHAPE_TYPICAL_AWAY,   /* typical: distances from the entropy */
    EXL2__SHAPE_TYPICAL_SEARCH, /* typical: EXL2__SAMPLE_PASSES for each token */
    EXL2__SHAPE_TYPICAL_KEEP,
    EXL2__SHAPE_MIROSTAT_SUM,
    EXL2__SHAPE_MIROSTAT,
    EXL2__SHAPE_DYNAMIC_MEAN,
    EXL2__SHAPE_BEST,           /* temperature applied last, or dynamic: the most likely token */
    EXL2__SHAPE_WEIGH,          /* temperature applied last, or dynamic: new weights */
    EXL2__SHAPE_XTC_SUM,
    EXL2__SHAPE_XTC_FIND,       /* XTC: the tokens that it removes */
    EXL2__SHAPE_XTC,            /* XTC: the new weights of these tokens */
    EXL2__SHAPE_ADAPTIVE_SUM,
    EXL2__SHAPE_ADAPTIVE_LEAST, /* adaptive-p: the nearest probability */
    EXL2__SHAPE_ADAPTIVE,       /* adaptive-p: the new weights */
    EXL2__SHAPE_SKEW_KEYS,      /* skew: weights as keys */
    EXL2__SHAPE_SKEW_SORT,      /* skew: EXL2__SAMPLE_SORTS for each token */
    EXL2__SHAPE_ENDED
} exl2__shape_pass;

typedef struct exl2__sample_shape {
    exl2__sample_work *w;
    float *logits;                   /* w->logits, of which adaptive-p overwrites some */
    const exl2__sampling *s;
    const exl2__weight_curve *curve; /* of the weights before this file changes them */
    exl2__shape_pass pass;
    uint32_t elements;               /* of the pass */
    uint32_t best, kept;             /* index of the most likely token; tokens that are kept so far */
    uint64_t sum, least;             /* of weights; the least weight that is kept */
    double mean;                     /* sum of steps times weights; of typical then their mean */
    uint64_t curves;                 /* tail-free: sum of all curvatures */
    uint32_t last;                   /* tail-free: the last token that is kept, in order. XTC: the one that stays */
    bool ended;                      /* adaptive-p: `nearest` is set */
    /* With a temperature T that is applied last, or dynamic: */
    exl2__weight_curve now;          /* the curve of the new weights */
    double inverse;                  /* 1 / T */
    uint32_t least_steps;            /* steps of the most likely token on `curve` */
    double gone, factor;             /* XTC: sum of the removed weights; what remains of each */
    uint32_t eligible;
    double wanted, nearest;          /* adaptive-p */
    exl2__sample_sort sort;
    exl2__sample_search search;
    exl2__sample_cut cut;
} exl2__sample_shape;

static inline bool exl2__sample_skewed(const exl2__sampling *s)
{
    return s->skew > 0 || s->skew < 0;
}

static inline void exl2__sample_copy(exl2__sample_list *list, uint32_t to, uint32_t from)
{
    list->ids[to] = list->ids[from];
    list->keys[to] = list->keys[from];
    list->weights[to] = list->weights[from];
}

/* Of tokens [begin, end), moves those whose weight is at least `least` after the first `kept` ones. Returns how many
   are kept now; after the last part that is the length of the list. */
EXL2__PRIVATE uint32_t exl2__sample_keep_least_part(exl2__sample_list *list, uint64_t least, uint32_t begin,
                                                    uint32_t end, uint32_t kept)
{
    for (uint32_t i = begin; i < end; i++) {
        exl2__sample_copy(list, kept, i); /* overwritten by the next token if this one is removed */
        kept += list->weights[i] >= least;
    }
    return kept;
}

/* ---- what several filters use ---- */

/* Index of the most likely token so far, of equal ones that with the lowest id. */
static inline void exl2__sample_shape_best(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    const int32_t *keys = x->w->list.keys;
    uint32_t best = x->best;
    for (uint32_t i = begin; i < end; i++) {
        best = keys[i] > keys[best] ? i : best;
    }
    x->best = best;
}

static inline void exl2__sample_shape_sum(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    x->sum += exl2__weight_total(x->w->list.weights + begin, end - begin);
}

/* The least weight that is kept: at least `weight`, and at most that of the most likely token. */
static inline uint64_t exl2__sample_shape_share(const exl2__sample_shape *x, double weight)
{
    uint64_t most = x->w->list.weights[x->best];
    return weight < (double)most ? exl2__max64((uint64_t)weight, 1) : most;
}

/* -log2 of the token's weight relative to the top, from its logit, in steps of 2^-25. */
static inline uint32_t exl2__sample_shape_steps(const exl2__sample_shape *x, uint32_t i)
{
    return exl2__weight_steps(x->curve, x->logits[x->w->list.ids[i]]);
}

/* The mean of the steps, by weight. -log2 p differs from the steps by the same constant for all tokens, so the mean can
   be used in place of the entropy, and no logarithm is needed. */
static inline void exl2__sample_shape_mean(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    const uint64_t *weights = x->w->list.weights;
    uint64_t sum = x->sum;
    double mean = x->mean;
    for (uint32_t i = begin; i < end; i++) {
        mean += exl2__mul_double((double)weights[i], (double)exl2__sample_shape_steps(x, i));
        sum += weights[i];
    }
    x->sum = sum;
    x->mean = mean;
}

/* ---- tail-free sampling ---- */

/* With the tokens in order of weight, |w[i] - 2 w[i+1] + w[i+2]| is the curvature after token i. It keeps one token
   more than those whose curvatures sum up to at most z of the total. Tokens with a probability below 1e-8 are removed
   and not counted. */
static inline uint64_t exl2__sample_shape_curvature(const exl2__sample_shape *x, uint32_t i)
{
    const uint64_t *weights = x->w->list.weights;
    const uint32_t *order = x->sort.to;
    uint64_t ends = weights[order[i]] + weights[order[i + 2]], middle = 2 * weights[order[i + 1]];
    return ends > middle ? ends - middle : middle - ends;
}

/* Sums of curvatures of the parts of which [begin, end) consists, in place of sums of blocks. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_curves(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    for (uint32_t at = begin, last; at < end; at = last) {
        uint64_t sum = 0;
        last = exl2__min32(end, at + EXL2__SAMPLE_PART);
        for (uint32_t i = at; i < last; i++) {
            sum += exl2__sample_shape_curvature(x, i);
        }
        x->w->block_sums[at / EXL2__SAMPLE_PART] = sum;
        x->curves += sum;
    }
}

/* The last token that is kept: first the part in which the sum exceeds z of the total, then the token. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_tail_cut(exl2__sample_shape *x)
{
    const uint64_t *sums = x->w->block_sums;
    uint32_t count = x->w->list.count - 2, at = 0;
    uint64_t within = 0, next;
    double limit = (double)x->s->tail_free * (double)x->curves;
    while (at < count && (double)(next = within + sums[at / EXL2__SAMPLE_PART]) <= limit) {
        within = next;
        at += EXL2__SAMPLE_PART;
    }
    while (at < count && (double)(within += exl2__sample_shape_curvature(x, at)) <= limit) {
        at++;
    }
    x->last = exl2__min32(at, count);
}

EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_tail_keep(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    exl2__sample_list *list = &x->w->list;
    for (uint32_t i = begin; i < end; i++) {
        int32_t key = list->keys[i];
        exl2__sample_copy(list, x->kept, i);
        x->kept += key > x->cut.key || (key == x->cut.key && i <= x->cut.rest);
    }
}

/* ---- typical sampling ---- */

/* Keeps the tokens whose -log p is nearest to the entropy, as few as make `typical` of the sum; of equally near ones
   the lowest id first. */
static inline int32_t *exl2__sample_shape_distances(const exl2__sample_shape *x)
{
    return (int32_t *)(void *)x->w->order[0];
}

static inline void exl2__sample_shape_away(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    int32_t *order = exl2__sample_shape_distances(x);
    for (uint32_t i = begin; i < end; i++) {
        double away = (double)exl2__sample_shape_steps(x, i) - x->mean;
        order[i] = -(int32_t)(away < 0 ? -away : away);
    }
}

/* ---- a temperature that is dynamic or applied last ---- */

/* The dynamic temperature: min + (max - min) * (entropy / largest possible entropy)^exponent */
static inline double exl2__sample_shape_dynamic(const exl2__sample_shape *x)
{
    const exl2__sampling *s = x->s;
    double mean = x->mean / (double)x->sum; /* ln(sum / 2^40) + mean * ln 2 = entropy */
    double ln2 = 0.69314718055994531 / (double)(1u << EXL2__WEIGHT_STEP_LOG2); /* of one step */
    double entropy = exl2__weight_log(x->sum) + exl2__mul_double(mean, ln2);
    double part = entropy / log((double)x->w->list.count);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    double range = (double)s->dynamic_max - (double)s->dynamic_min;
    return (double)s->dynamic_min + exl2__mul_double(range, pow(part, (double)s->dynamic_exponent));
}

/* Weights become p^(1 / T), scaled so that the most likely token of the list has 2^40. (It need not be the most likely
   token of the row.) A temperature below 0.01 counts as 0.01. A weight of 0 may become larger, except with smoothing,
   where distant tokens have the weight 0 at every temperature. */
static inline void exl2__sample_shape_begin_weigh(exl2__sample_shape *x)
{
    bool dynamic = x->s->dynamic_max > x->s->dynamic_min;
    double temperature = dynamic ? exl2__sample_shape_dynamic(x) : (double)x->s->temperature;
    x->inverse = 1 / (temperature < 0.01 ? 0.01 : temperature);
    x->least_steps = exl2__sample_shape_steps(x, x->best);
    x->now = *x->curve;
    x->now.top_key = x->w->list.keys[x->best];
    x->now.top = exl2__weight_key_logit(x->now.top_key);
    x->now.slope = (float)((double)x->curve->slope * x->inverse);
}

static inline void exl2__sample_shape_weigh(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    if (!x->curve->square) {
        exl2__sample_weigh(x->w, &x->now, begin, end);
        return;
    }
    for (uint32_t i = begin; i < end; i++) {
        uint32_t was = exl2__sample_shape_steps(x, i);
        double steps = (double)(was - x->least_steps) * x->inverse;
        bool out = was == EXL2__WEIGHT_STEPS_MAX || steps >= EXL2__WEIGHT_STEPS_MAX;
        x->w->list.weights[i] = exl2__weight_exp2(out ? EXL2__WEIGHT_STEPS_MAX : (uint32_t)steps);
    }
}

/* ---- XTC ---- */

/* With probability q, all tokens at or above the threshold are removed, except the least likely of them and those that
   xtc_keeps excludes. Here no random choice is made for that: the weights become those of the mixture of both cases,
   which gives each token the same probability. */
static inline bool exl2__sample_shape_xtc_keeps(const exl2__sampling *s, uint32_t id)
{
    return s->xtc_keeps && s->xtc_keeps(s->xtc_user, (exl2_token)id);
}

EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_xtc_find(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    const exl2__sample_list *list = &x->w->list;
    double least = (double)x->s->xtc_threshold * (double)x->sum, gone = x->gone;
    uint32_t last = x->last, eligible = x->eligible;
    for (uint32_t i = begin; i < end; i++) {
        double weight = (double)list->weights[i];
        if (weight < least || exl2__sample_shape_xtc_keeps(x->s, list->ids[i])) {
            continue;
        }
        last = eligible == 0 || list->weights[i] <= list->weights[last] ? i : last;
        gone += weight;
        eligible++;
    }
    x->gone = gone;
    x->last = last;
    x->eligible = eligible;
}

static inline void exl2__sample_shape_xtc_begin(exl2__sample_shape *x)
{
    x->gone -= (double)x->w->list.weights[x->last];
    double q = (double)x->s->xtc_probability, rest = (double)x->sum - x->gone;
    x->factor = (1 - q) * rest / (rest + exl2__mul_double(q, x->gone));
}

EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_xtc(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    const exl2__sample_list *list = &x->w->list;
    double least = (double)x->s->xtc_threshold * (double)x->sum, factor = x->factor;
    uint32_t last = x->last;
    for (uint32_t i = begin; i < end; i++) {
        double weight = (double)list->weights[i];
        if (weight >= least && i != last && !exl2__sample_shape_xtc_keeps(x->s, list->ids[i])) {
            list->weights[i] = (uint64_t)(weight * factor);
        }
    }
}

/* ---- adaptive-p ---- */

/* Adaptive-p (llama.cpp, pull request 17927). With p, the probabilities that the filters before left, the logits become
   5 - 10 d^2 / (1 + d), d = |p - wanted| / 0.3, so that tokens whose probability is near `wanted` are likely. Earlier
   tokens that were likelier than the target lower `wanted`. The least d of the list gets the weight 2^40, and a token
   of weight 0 keeps it. The probability p replaces the logit, which is saved. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_adaptive(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    const double nat = 48408812.646245942; /* 2^25 log2(e): steps */
    exl2__sample_list *list = &x->w->list;
    for (uint32_t i = begin; i < end; i++) {
        if (list->weights[i] == 0) {
            continue;
        }
        double p = (double)list->weights[i] / (double)x->sum, d = (p < x->wanted ? x->wanted - p : p - x->wanted) / 0.3;
        double below = 10 * d * d / (1 + d); /* at most 25.7, as p and `wanted` are 0 to 1 */
        if (x->pass == EXL2__SHAPE_ADAPTIVE_LEAST) {
            x->nearest = !x->ended || below < x->nearest ? below : x->nearest;
            x->ended = true;
            continue;
        }
        exl2__sample_touch(x->w, list->ids[i]);
        x->logits[list->ids[i]] = (float)p;
        list->weights[i] = exl2__weight_exp2((uint32_t)((below - x->nearest) * nat));
    }
}

/* ---- skew ---- */

/* Step 9 with skew goes through the tokens from the most likely to the least likely, and uses u^exp(-skew) in place of
   the random number u of 0..1. Weights that are equal as floats are in order of id. */
EXL2__COLD
EXL2__PRIVATE void exl2__sample_shape_skew_keys(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    exl2__sample_list *list = &x->w->list;
    for (uint32_t i = begin; i < end; i++) {
        list->keys[i] = exl2__weight_key((float)list->weights[i]);
        x->now.top_key = list->keys[i] > x->now.top_key ? list->keys[i] : x->now.top_key;
    }
}

static inline uint64_t exl2__sample_shape_skew_target(const exl2__sampling *s, uint64_t random, uint64_t sum)
{
    double u = pow((double)(random >> 11) * 0x1p-53, exp(-(double)s->skew));
    return exl2__min64((uint64_t)(u * (double)sum), sum - 1);
}

/* ---- passes ---- */

static inline uint32_t exl2__sample_shape_elements(const exl2__sample_shape *x)
{
    const exl2__sampling *s = x->s;
    uint32_t count = x->w->list.count;
    bool tail = s->tail_free > 0 && count >= 3, typical = s->typical > 0 && count > 1;
    bool dynamic = s->dynamic_max > s->dynamic_min && count > 1, last = s->temperature_last && count > 1;
    switch (x->pass) {
    case EXL2__SHAPE_TOP_A_SUM:
    case EXL2__SHAPE_TOP_A:
    case EXL2__SHAPE_MIN_P:
        return s->top_a > 0 ? count : 0;
    case EXL2__SHAPE_TAIL_SUM:
    case EXL2__SHAPE_TAIL_LEAST:
    case EXL2__SHAPE_TAIL_BEST:
        return tail ? count : 0;
    case EXL2__SHAPE_TAIL_SORT:
        return tail ? EXL2__SAMPLE_SORTS * count : 0;
    case EXL2__SHAPE_TAIL_CURVES:
        return tail ? count - 2 : 0;
    case EXL2__SHAPE_TAIL_KEEP:
        return tail && x->curves ? count : 0;
    case EXL2__SHAPE_TYPICAL_MEAN:
    case EXL2__SHAPE_TYPICAL_AWAY:
    case EXL2__SHAPE_TYPICAL_KEEP:
        return typical ? count : 0;
    case EXL2__SHAPE_TYPICAL_SEARCH:
        return typical ? EXL2__SAMPLE_PASSES * count : 0;
    case EXL2__SHAPE_MIROSTAT_SUM:
    case EXL2__SHAPE_MIROSTAT:
        return s->mirostat_tau > 0 ? count : 0;
    case EXL2__SHAPE_DYNAMIC_MEAN:
        return dynamic ? count : 0;
    case EXL2__SHAPE_BEST:
    case EXL2__SHAPE_WEIGH:
        return dynamic || last ? count : 0;
    case EXL2__SHAPE_XTC_SUM:
    case EXL2__SHAPE_XTC_FIND:
        return s->xtc_probability > 0 ? count : 0;
    case EXL2__SHAPE_XTC:
        return s->xtc_probability > 0 && x->eligible >= 2 ? count : 0;
    case EXL2__SHAPE_ADAPTIVE_SUM:
    case EXL2__SHAPE_ADAPTIVE_LEAST:
    case EXL2__SHAPE_ADAPTIVE:
        return s->adaptive_target > 0 ? count : 0;
    case EXL2__SHAPE_SKEW_KEYS:
        return exl2__sample_skewed(s) ? count : 0;
    case EXL2__SHAPE_SKEW_SORT:
        return exl2__sample_skewed(s) ? EXL2__SAMPLE_SORTS * count : 0;
    case EXL2__SHAPE_ENDED:
        break;
    }
    return 0;
}

/* Prepares a pass that has elements. Sums begin with 0 in the pass that makes them. */
EXL2__PRIVATE void exl2__sample_shape_prepare(exl2__sample_shape *x)
{
    const exl2__sampling *s = x->s;
    const exl2__sample_list *list = &x->w->list;
    double sum = (double)x->sum, most;
    x->kept = 0;
    switch (x->pass) {
    case EXL2__SHAPE_TOP_A_SUM:
    case EXL2__SHAPE_TAIL_SUM:
    case EXL2__SHAPE_TAIL_BEST:
    case EXL2__SHAPE_MIROSTAT_SUM:
    case EXL2__SHAPE_XTC_SUM:
    case EXL2__SHAPE_ADAPTIVE_SUM:
        x->sum = x->best = 0;
        break;
    case EXL2__SHAPE_TOP_A: /* p >= a pmax^2 */
        most = (double)list->weights[x->best];
        x->least = exl2__sample_shape_share(x, (double)s->top_a * most * most / sum);
        break;
    case EXL2__SHAPE_MIN_P:
        x->least = exl2__max64(1, (uint64_t)(s->min_p * 1099511627776.0f));
        break;
    case EXL2__SHAPE_TAIL_LEAST:
        x->least = exl2__max64(1, (uint64_t)(1e-8 * sum));
        break;
    case EXL2__SHAPE_TAIL_SORT:
        exl2__sample_sort_begin(&x->sort, x->w, list->keys, list->keys[x->best]);
        break;
    case EXL2__SHAPE_TAIL_CURVES:
        x->curves = 0;
        x->w->slope = 0; /* parts take the place of blocks */
        break;
    case EXL2__SHAPE_TAIL_KEEP:
        exl2__sample_shape_tail_cut(x);
        x->cut = (exl2__sample_cut){ list->keys[x->sort.to[x->last]], x->sort.to[x->last] };
        break;
    case EXL2__SHAPE_TYPICAL_MEAN:
    case EXL2__SHAPE_DYNAMIC_MEAN:
        x->mean = 0;
        x->sum = 0;
        break;
    case EXL2__SHAPE_TYPICAL_AWAY:
        x->mean /= sum;
        break;
    case EXL2__SHAPE_TYPICAL_SEARCH:
        exl2__sample_search_begin(&x->search, exl2__sample_shape_distances(x), list->weights, list->count, 0,
                                  exl2__min64(x->sum, exl2__max64(1, (uint64_t)((double)s->typical * sum))));
        break;
    case EXL2__SHAPE_TYPICAL_KEEP:
        x->cut = exl2__sample_search_end(&x->search);
        break;
    case EXL2__SHAPE_MIROSTAT: /* p >= 2^-mu */
        x->least = exl2__sample_shape_share(x, exp2(-(double)s->state) * sum);
        break;
    case EXL2__SHAPE_BEST:
        x->best = 0;
        break;
    case EXL2__SHAPE_WEIGH:
        exl2__sample_shape_begin_weigh(x);
        break;
    case EXL2__SHAPE_XTC_FIND:
        x->gone = 0;
        x->eligible = x->last = 0;
        break;
    case EXL2__SHAPE_XTC:
        exl2__sample_shape_xtc_begin(x);
        break;
    case EXL2__SHAPE_ADAPTIVE_LEAST:
        x->wanted = exl2__mul_double(2, (double)s->adaptive_target) - (double)s->state;
        x->wanted = x->wanted < 0 ? 0 : x->wanted > 1 ? 1 : x->wanted;
        x->ended = false;
        break;
    case EXL2__SHAPE_SKEW_KEYS:
        x->now.top_key = 0;
        break;
    case EXL2__SHAPE_SKEW_SORT:
        exl2__sample_sort_begin(&x->sort, x->w, list->keys, x->now.top_key);
        break;
    case EXL2__SHAPE_ADAPTIVE:
    case EXL2__SHAPE_ENDED:
        break;
    }
}

/* Elements [begin, end) of the pass. */
EXL2__PRIVATE void exl2__sample_shape_run(exl2__sample_shape *x, uint32_t begin, uint32_t end)
{
    exl2__sample_list *list = &x->w->list;
    switch (x->pass) {
    case EXL2__SHAPE_TOP_A_SUM:
    case EXL2__SHAPE_MIROSTAT_SUM:
        exl2__sample_shape_best(x, begin, end);
        exl2__sample_shape_sum(x, begin, end);
        break;
    case EXL2__SHAPE_TAIL_SUM:
    case EXL2__SHAPE_XTC_SUM:
    case EXL2__SHAPE_ADAPTIVE_SUM:
        exl2__sample_shape_sum(x, begin, end);
        break;
    case EXL2__SHAPE_TOP_A:
    case EXL2__SHAPE_MIN_P:
    case EXL2__SHAPE_TAIL_LEAST:
    case EXL2__SHAPE_MIROSTAT:
        x->kept = exl2__sample_keep_least_part(list, x->least, begin, end, x->kept);
        break;
    case EXL2__SHAPE_TAIL_BEST:
    case EXL2__SHAPE_BEST:
        exl2__sample_shape_best(x, begin, end);
        break;
    case EXL2__SHAPE_TAIL_SORT:
    case EXL2__SHAPE_SKEW_SORT:
        exl2__sample_sort_run(&x->sort, begin, end);
        break;
    case EXL2__SHAPE_TAIL_CURVES:
        exl2__sample_shape_curves(x, begin, end);
        break;
    case EXL2__SHAPE_TAIL_KEEP:
        exl2__sample_shape_tail_keep(x, begin, end);
        break;
    case EXL2__SHAPE_TYPICAL_MEAN:
    case EXL2__SHAPE_DYNAMIC_MEAN:
        exl2__sample_shape_mean(x, begin, end);
        break;
    case EXL2__SHAPE_TYPICAL_AWAY:
        exl2__sample_shape_away(x, begin, end);
        break;
    case EXL2__SHAPE_TYPICAL_SEARCH:
        exl2__sample_search_run(&x->search, begin, end);
        break;
    case EXL2__SHAPE_TYPICAL_KEEP:
        exl2__sample_keep_part(list, exl2__sample_shape_distances(x), &x->cut, true, begin, end, &x->kept);
        break;
    case EXL2__SHAPE_WEIGH:
        exl2__sample_shape_weigh(x, begin, end);
        break;
    case EXL2__SHAPE_XTC_FIND:
        exl2__sample_shape_xtc_find(x, begin, end);
        break;
    case EXL2__SHAPE_XTC:
        exl2__sample_shape_xtc(x, begin, end);
        break;
    case EXL2__SHAPE_ADAPTIVE_LEAST:
    case EXL2__SHAPE_ADAPTIVE:
        exl2__sample_shape_adaptive(x, begin, end);
        break;
    case EXL2__SHAPE_SKEW_KEYS:
        exl2__sample_shape_skew_keys(x, begin, end);
        break;
    case EXL2__SHAPE_ENDED:
        break;
    }
}

static inline bool exl2__sample_shape_keeps(exl2__shape_pass pass)
{
    return pass == EXL2__SHAPE_TOP_A || pass == EXL2__SHAPE_MIN_P || pass == EXL2__SHAPE_TAIL_LEAST
        || pass == EXL2__SHAPE_TAIL_KEEP || pass == EXL2__SHAPE_TYPICAL_KEEP || pass == EXL2__SHAPE_MIROSTAT;
}

/* The first pass from `pass` on that has elements, or the end. */
static inline void exl2__sample_shape_go_to(exl2__sample_shape *x, uint32_t pass)
{
    x->elements = 0;
    for (; x->elements == 0 && pass <= EXL2__SHAPE_ENDED; pass++) {
        x->pass = (exl2__shape_pass)pass;
        x->elements = exl2__sample_shape_elements(x);
    }
    if (x->elements) {
        exl2__sample_shape_prepare(x);
    }
}

/* All elements of the pass have run: goes on to the next one. */
EXL2__PRIVATE void exl2__sample_shape_next(exl2__sample_shape *x)
{
    if (exl2__sample_shape_keeps(x->pass)) {
        x->w->list.count = x->kept;
    }
    exl2__sample_shape_go_to(x, x->pass + 1u);
}

/* Begins steps 7 and 8. The list is not empty before, and not after. What the arguments point to must stay. */
EXL2__PRIVATE void exl2__sample_shape_begin(exl2__sample_shape *x, exl2__sample_work *w, float *logits,
                                            const exl2__sampling *s, const exl2__weight_curve *curve)
{
    x->w = w;
    x->logits = logits;
    x->s = s;
    x->curve = curve;
    exl2__sample_shape_go_to(x, EXL2__SHAPE_TOP_A_SUM);
}

#endif
