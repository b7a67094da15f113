/* samples.c: see samples.h.
   takes: the C library's heap and sort.
   gives: what samples.h declares.
   owns:  nothing beyond the lists.
   next:  picture.c */
#include "samples.h"

#include "memory.h"

#include <stdlib.h>

void samples_add(samples *s, double value)
{
    if (s->count == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->values = memory_grow(s->values, s->cap, sizeof *s->values);
    }
    s->values[s->count++] = value;
    s->sorted = false;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void samples_sort(samples *s)
{
    if (!s->sorted && s->count) {
        qsort(s->values, s->count, sizeof *s->values, ascending);
    }
    s->sorted = true;
}

double samples_percentile(samples *s, double percent)
{
    if (s->count == 0) {
        return 0;
    }
    samples_sort(s);
    double rank = percent / 100.0 * (double)s->count;
    size_t at = rank > 0 ? (size_t)rank : 0;
    if ((double)at < rank) {
        at++; /* nearest rank: the smallest value with at least `percent` of all at or below it */
    }
    at = at > 0 ? at - 1 : 0;
    return s->values[at < s->count ? at : s->count - 1];
}

double samples_median(samples *s)
{
    if (s->count == 0) {
        return 0;
    }
    samples_sort(s);
    return (s->values[(s->count - 1) / 2] + s->values[s->count / 2]) / 2;
}

void samples_free(samples *s)
{
    free(s->values);
    *s = (samples){ 0 };
}
