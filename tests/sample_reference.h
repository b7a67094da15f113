/* sample_reference.h: what the sampling tests share: unusual numbers, logits, the sampling chain written in double, and
   a comparison of the two chains. */
#ifndef SAMPLE_REFERENCE_H
#define SAMPLE_REFERENCE_H

#include "private/cpu_sample_run.h"
#include "check.h"

#include <math.h>

#define NOT_A_NUMBER exl2__bits_float(0x7FC00000u)
#define NEGATIVE_NAN exl2__bits_float(0xFFC00001u)
#define MINUS_ZERO exl2__bits_float(0x80000000u)
#define PLUS_INF exl2__bits_float(0x7F800000u)
#define MINUS_INF exl2__bits_float(0xFF800000u)

static uint64_t mix(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double uniform(uint64_t *state)
{
    return (double)(mix(state) >> 11) / 9007199254740992.0;
}

static void *take(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        exit(1);
    }
    return memory;
}

/* Logits as a model gives them: about normal, with a few far above the rest. */
static void fill_logits(float *logits, uint32_t vocab, double spread, uint64_t seed)
{
    for (uint32_t i = 0; i < vocab; i++) {
        double sum = 0;
        for (int j = 0; j < 6; j++) {
            sum += uniform(&seed) - 0.5;
        }
        logits[i] = (float)(sum * spread + (mix(&seed) % 997 == 0 ? 2 * spread : 0));
    }
}

static exl2__sampling settings(float temperature, uint32_t top_k, float top_p, float min_p, float repeat_penalty)
{
    exl2__sampling s = { 0 };
    s.temperature = temperature;
    s.top_k = top_k;
    s.top_p = top_p;
    s.min_p = min_p;
    s.repeat_penalty = repeat_penalty;
    return s;
}

/* ---- the chain in double ---- */

typedef struct candidate {
    double logit, p; /* p: probability among the remaining tokens; 0 = removed */
    double edge;     /* relative distance to the threshold that decided about the token */
    uint32_t id;
} candidate;

static int by_order(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The order in which ExLlamaV2's top-k leaves them. */
static int by_order_ids_down(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->logit == y->logit ? by_order(b, a) : by_order(a, b);
}

static void shares(candidate *c, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += c[i].p;
    }
    for (uint32_t i = 0; i < count; i++) {
        c[i].p /= sum;
    }
}

/* ExLlamaV2's top-p is not the textbook filter: it streams tokens into a heap and drops the smallest while the sum is
   above the threshold. */
static void streamed_top_p(candidate *c, uint32_t count, double top_p)
{
    double sum = 0;
    uint32_t kept = 0;
    candidate *heap = take((count + 1) * sizeof *heap);
    for (uint32_t i = 0; i < count; i++) {
        if (c[i].p < 1e-6) {
            continue;
        }
        uint32_t at = kept++;
        for (; at > 0 && heap[at - 1].p < c[i].p; at--) {
            heap[at] = heap[at - 1];
        }
        heap[at] = c[i];
        sum += c[i].p;
        while (sum > top_p && kept > 1) {
            sum -= heap[--kept].p;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        bool in = false;
        for (uint32_t j = 0; j < kept; j++) {
            in |= heap[j].id == c[i].id;
        }
        c[i].p = in ? c[i].p : 0;
    }
    free(heap);
}

/* ---- filters after min-p: removed tokens have p 0; the others are in order ---- */

static double surplus(double value, double mark)
{
    return mark != 0 ? fabs(value / mark - 1) : fabs(value);
}

/* Removes tokens below the threshold. The most likely token stays. */
static void cut_below(candidate *c, uint32_t count, double mark)
{
    double most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = c[i].p > most ? c[i].p : most;
    }
    mark = mark > most ? most : mark;
    for (uint32_t i = 0; i < count; i++) {
        double edge = surplus(c[i].p, mark);
        c[i].edge = c[i].p > 0 && edge < c[i].edge ? edge : c[i].edge;
        c[i].p = c[i].p < mark ? 0 : c[i].p;
    }
    shares(c, count);
}

static int by_share(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return (x->p > 0) != (y->p > 0) ? (x->p > 0 ? -1 : 1) : by_order(a, b);
}

/* Moves the remaining tokens to the front; returns their number. */
static uint32_t gather(candidate *c, uint32_t count)
{
    uint32_t in = 0;
    qsort(c, count, sizeof *c, by_share);
    while (in < count && c[in].p > 0) {
        in++;
    }
    return in;
}

static void tail_free_in_double(candidate *c, uint32_t count, double z)
{
    uint32_t n = gather(c, count);
    if (n < 3) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        c[i].p = c[i].p < 1e-8 ? 0 : c[i].p;
    }
    n = gather(c, count);
    double sum = 0, running = 0;
    for (uint32_t i = 0; i + 2 < n; i++) {
        sum += fabs(c[i].p - 2 * c[i + 1].p + c[i + 2].p);
    }
    for (uint32_t i = 0; i < n && n >= 3 && sum > 0; i++) {
        double before = running;
        running += i + 2 < n ? fabs(c[i].p - 2 * c[i + 1].p + c[i + 2].p) / sum : 1;
        c[i].edge = fmin(c[i].edge, fmin(fabs(before - z), fabs(running - z)));
        c[i].p = i > 0 && before > z ? 0 : c[i].p; /* stays if the curvatures before it add up to at most z */
    }
    shares(c, count);
}

static double mean_surprise; /* by_distance sorts by the distance from it */

static int by_distance(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    double to_x = fabs(-log(x->p) - mean_surprise), to_y = fabs(-log(y->p) - mean_surprise);
    return to_x != to_y ? (to_x < to_y ? -1 : 1) : x->id < y->id ? -1 : x->id > y->id;
}

static void typical_in_double(candidate *c, uint32_t count, double share)
{
    uint32_t n = gather(c, count);
    double running = 0;
    mean_surprise = 0;
    for (uint32_t i = 0; i < n; i++) {
        mean_surprise -= c[i].p * log(c[i].p);
    }
    qsort(c, n, sizeof *c, by_distance);
    for (uint32_t i = 0; i < n; i++) {
        double before = running;
        running += c[i].p;
        c[i].edge = fmin(c[i].edge, fabs(before - share));
        c[i].p = i > 0 && before >= share ? 0 : c[i].p;
    }
    shares(c, count);
}

static void power(candidate *c, uint32_t count, double temperature)
{
    double most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = c[i].p > most ? c[i].p : most;
    }
    for (uint32_t i = 0; i < count; i++) {
        c[i].p = c[i].p > 0 ? exp(log(c[i].p / most) / temperature) : 0;
    }
    shares(c, count);
}

static void xtc_in_double(candidate *c, uint32_t count, const exl2__sampling *s)
{
    double gone = 0;
    uint32_t eligible = 0, last = 0;
    char *goes = take(count + 1);
    for (uint32_t i = 0; i < count; i++) {
        goes[i] = c[i].p > 0 && c[i].p >= (double)s->xtc_threshold
                  && !(s->xtc_keeps && s->xtc_keeps(s->xtc_user, (exl2_token)c[i].id));
        if (goes[i]) {
            bool less = eligible == 0 || c[i].p < c[last].p || (c[i].p <= c[last].p && c[i].id > c[last].id);
            last = less ? i : last;
            gone += c[i].p;
            eligible++;
        }
    }
    gone -= eligible ? c[last].p : 0;
    for (uint32_t i = 0; i < count && eligible >= 2; i++) {
        double q = (double)s->xtc_probability;
        c[i].p *= goes[i] && i != last ? 1 - q : 1 + q * gone / (1 - gone);
    }
    free(goes);
}

/* The logits of llama.cpp's adaptive-p, and their softmax. Tokens below 2^-40 of the likeliest one stay out. */
static void adaptive_in_double(candidate *c, uint32_t count, const exl2__sampling *s)
{
    double most = 0, wanted = fmin(fmax(2 * (double)s->adaptive_target - (double)s->state, 0), 1);
    for (uint32_t i = 0; i < count; i++) {
        most = c[i].p > most ? c[i].p : most;
    }
    for (uint32_t i = 0; i < count; i++) {
        double weight = c[i].p / most * 0x1p40, far = fabs(c[i].p - wanted) / 0.3;
        c[i].edge = weight > 0.5 && weight < 2 ? 0 : c[i].edge;
        c[i].p = weight < 1 ? 0 : exp(5 - 10 * far * far / (1 + far));
    }
    shares(c, count);
}

static void shaped_in_double(candidate *c, uint32_t count, const exl2__sampling *s)
{
    if (s->tail_free > 0) {
        tail_free_in_double(c, count, (double)s->tail_free);
    }
    if (s->typical > 0) {
        typical_in_double(c, count, (double)s->typical);
    }
    if (s->mirostat_tau > 0) {
        cut_below(c, count, pow(2, -(double)s->state));
    }
    if (s->dynamic_max > s->dynamic_min) {
        double entropy = 0;
        uint32_t n = gather(c, count);
        for (uint32_t i = 0; i < n; i++) {
            entropy -= c[i].p * log(c[i].p);
        }
        double part = n > 1 ? pow(entropy / log((double)n), (double)s->dynamic_exponent) : 0;
        power(c, count, (double)s->dynamic_min + (double)(s->dynamic_max - s->dynamic_min) * part);
    } else if (s->temperature_last) {
        power(c, count, (double)s->temperature);
    }
    if (s->xtc_probability > 0) {
        xtc_in_double(c, count, s);
    }
    if (s->adaptive_target > 0) {
        adaptive_in_double(c, count, s);
    }
}

/* All penalties as the manual describes them: for one token, over the history from the newest token on. */
static double penalized(double x, uint32_t token, const exl2__sampling *s, const exl2_token *history, uint32_t count)
{
    bool first = true;
    for (uint32_t j = 1; j <= count; j++) {
        if (history[count - j] != (exl2_token)token) {
            continue;
        }
        double full = s->penalty_decay ? s->penalty_range + 1 : count;
        double share = j <= full ? 1 : 1 - (j - full) / s->penalty_decay, r = 1 + (s->repeat_penalty - 1.0) * share;
        if (first) {
            x = (x > 0 ? x / r : x * r) - s->presence_penalty * share;
        }
        x -= s->frequency_penalty * share;
        first = false;
    }
    return x;
}

/* Puts the remaining tokens, in order, into c, which has room for the vocabulary; returns their number. No logit is NaN
   or +infinity. `streamed`: top-p as ExLlamaV2 does it. */
static uint32_t reference(const float *logits, uint32_t vocab, const exl2__sampling *s, const exl2_token *history,
                          uint32_t history_count, bool streamed, candidate *c)
{
    char *seen = take(vocab + 1);
    memset(seen, 0, vocab);
    for (uint32_t i = 0; i < history_count; i++) {
        if (history[i] >= 0 && (uint32_t)history[i] < vocab) {
            seen[history[i]] = 1;
        }
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        double x = seen[i] ? penalized(logits[i], i, s, history, history_count) : (double)logits[i];
        for (uint32_t j = 0; j < s->bias_count; j++) {
            x += (uint32_t)s->bias[j].token == i ? s->bias[j].add : 0;
        }
        if (x > -1e30) {
            c[count++] = (candidate){ x, 0, 1, i };
        }
    }
    free(seen);
    bool sorted = !streamed || s->top_k > 0; /* ExLlamaV2 streams in order of ids unless top-k has sorted */
    double top = -1e300;
    for (uint32_t i = 0; i < count; i++) {
        top = c[i].logit > top ? c[i].logit : top;
    }
    if (sorted) {
        qsort(c, count, sizeof *c, by_order);
    }
    double temperature = s->temperature_last ? 1 : (double)s->temperature;
    for (uint32_t i = 0; i < count; i++) {
        double below = c[i].logit - top;
        c[i].p = exp(s->smoothing > 0 ? -below * below * (double)s->smoothing / temperature : below / temperature);
    }
    if (s->top_k > 0 && s->top_k < count) {
        count = s->top_k;
    }
    shares(c, count);
    if (sorted && streamed) {
        qsort(c, count, sizeof *c, by_order_ids_down);
    }
    if (s->top_p < 1 && streamed) {
        streamed_top_p(c, count, (double)s->top_p);
        shares(c, count);
    } else if (s->top_p < 1) {
        double sum = 0;
        for (uint32_t i = 0; i < count; i++) {
            double before = sum;
            sum += c[i].p;
            c[i].p = i > 0 && before >= (double)s->top_p ? 0 : c[i].p;
            c[i].edge = fabs(before - (double)s->top_p);
        }
        shares(c, count);
    }
    double most = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = c[i].p > most ? c[i].p : most;
    }
    if (s->top_a > 0) {
        cut_below(c, count, (double)s->top_a * most * most);
    }
    if (s->min_p > 0) {
        most = 0;
        for (uint32_t i = 0; i < count; i++) {
            most = c[i].p > most ? c[i].p : most;
        }
        cut_below(c, count, (double)s->min_p * most);
    }
    shaped_in_double(c, count, s);
    return count;
}

/* ---- probabilities of the implementation ---- */

/* shares[vocab]: probability with which each token would be sampled. The logits are adjusted as by exl2__sample_row. */
static void implied(float *logits, uint32_t vocab, const exl2__sampling *s, const exl2_token *history,
                    uint32_t history_count, double *p)
{
    void *scratch = take(exl2__sample_scratch_bytes(vocab));
    exl2__logit_row row = { 0 };
    exl2__logit_result result = { 0 };
    exl2__sample_run x;
    row.sampling = s;
    row.history = history;
    row.history_count = history_count;
    exl2__sample_begin(&x, exl2__cpu_path_best(), logits, vocab, &row, scratch, &result);
    while (x.pass != EXL2__SAMPLE_SUM && x.pass != EXL2__SAMPLE_ENDED) {
        exl2__sample_part(&x, 0, exl2__sample_parts(&x));
        exl2__sample_next(&x);
    }
    if (x.pass == EXL2__SAMPLE_ENDED) { /* no filter is on: there is no list */
        x.w.list.count = x.block = 0;
        exl2__sample_collect(&x.w, EXL2__WEIGHT_KEY_LEAST, &x.block,
                             exl2__sample_collected_blocks(&x.w, EXL2__WEIGHT_KEY_LEAST));
        CHECK(exl2__sample_weigh(&x.w, &x.curve, 0, x.w.list.count) == x.w.sum);
    }
    const exl2__sample_list *list = &x.w.list;
    uint64_t sum = 0;
    uint32_t disorder = 0;
    memset(p, 0, vocab * sizeof *p);
    for (uint32_t i = 0; i < list->count; i++) {
        sum += list->weights[i];
    }
    for (uint32_t i = 0; i < list->count; i++) {
        disorder += i > 0 && list->ids[i] <= list->ids[i - 1];
        p[list->ids[i]] = (double)list->weights[i] / (double)sum;
    }
    CHECK_INT(disorder, 0);
    free(scratch);
}

/* The remaining tokens are equal, except for those within 1e-6 of a threshold; probabilities differ by at most 1e-6 of
   their value. */
static void compare(const float *logits, uint32_t vocab, const exl2__sampling *s, const exl2_token *history,
                    uint32_t history_count)
{
    candidate *c = take((vocab + 1) * sizeof *c);
    double *p = take((vocab + 1) * sizeof *p);
    float *copy = take((vocab + 1) * sizeof *copy);
    memcpy(copy, logits, vocab * sizeof *copy);
    uint32_t count = reference(logits, vocab, s, history, history_count, false, c), survivors = 0, strays = 0;
    implied(copy, vocab, s, history, history_count, p);
    double outside = 0; /* how much a token at the threshold changes all other probabilities */
    for (uint32_t i = 0; i < count; i++) {
        bool in = p[c[i].id] > 0;
        if (in != (c[i].p > 0) && c[i].p > 0x1p-37) {
            CHECK(c[i].edge < 1e-6);
            outside += c[i].p + p[c[i].id];
        }
        survivors += in;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (p[c[i].id] > 0 && c[i].p > 0 && outside == 0) {
            double logit_rounding = s->repeat_penalty != 1 ? fabs(c[i].logit) * 0x1p-22 / (double)s->temperature : 0;
            double bound = 1e-6 + 0x1p-39 / c[i].p + fabs(log2(c[0].p / c[i].p)) * 0x1p-23 + logit_rounding;
            bound += exl2__sample_is_shaped(s) || exl2__sample_is_penalized(s) ? 2e-5 + 0x1p-35 / c[i].p : 0;
            strays += fabs(p[c[i].id] / c[i].p - 1) > bound;
        }
        p[c[i].id] = 0;
    }
    for (uint32_t i = 0; i < vocab; i++) {
        strays += p[i] > 0; /* can be sampled, although it is not a candidate */
    }
    CHECK_INT(strays, 0);
    CHECK(survivors > 0);
    free(c);
    free(p);
    free(copy);
}

#endif
