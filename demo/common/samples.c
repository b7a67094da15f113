/* samples.c: see samples.h.
   takes: the C library's heap and sort.
   gives: what samples.h declares.
   owns:  nothing beyond the lists. */
#include "samples.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

void samples_add(samples *s, double value)
{
    if (s->count == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 256;
        s->values = memory_grow(s->values, s->cap, sizeof *s->values);
    }
    s->values[s->count++] = value;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void sort(samples *s)
{
    if (s->sorted_count != s->count) {
        s->sorted = memory_grow(s->sorted, s->count, sizeof *s->sorted);
        memcpy(s->sorted, s->values, s->count * sizeof *s->sorted);
        qsort(s->sorted, s->count, sizeof *s->sorted, ascending);
        s->sorted_count = s->count;
    }
}

double samples_percentile(samples *s, double percent)
{
    if (s->count == 0) {
        return 0;
    }
    sort(s);
    double rank = percent / 100.0 * (double)s->count;
    size_t at = rank > 0 ? (size_t)rank : 0;
    if ((double)at < rank) {
        at++; /* nearest rank: the smallest value with at least `percent` of all at or below it */
    }
    at = at > 0 ? at - 1 : 0;
    return s->sorted[at < s->count ? at : s->count - 1];
}

double samples_median(samples *s)
{
    if (s->count == 0) {
        return 0;
    }
    sort(s);
    return (s->sorted[(s->count - 1) / 2] + s->sorted[s->count / 2]) / 2;
}

void samples_free(samples *s)
{
    free(s->values);
    free(s->sorted);
    *s = (samples){ 0 };
}
