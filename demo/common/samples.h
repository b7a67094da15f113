/* samples.h: percentiles of measurements.
   takes: numbers, one at a time.
   gives: samples_add, samples_sort, samples_percentile, samples_median, samples_free.
   owns:  the list; a zeroed one is empty.
   next:  picture.h */
#ifndef DEMO_SAMPLES_H
#define DEMO_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct samples {
    double *values; /* [count] in order of arrival, until a percentile is asked for: then ascending */
    size_t count, cap;
    bool sorted;
} samples;

void samples_add(samples *s, double value);
void samples_sort(samples *s);
double samples_percentile(samples *s, double percent); /* nearest rank, 0..100; sorts; 0 when empty */
double samples_median(samples *s);                     /* mean of the middle two; sorts; 0 when empty */
void samples_free(samples *s);

#endif
