/* samples.h: percentiles of measurements.
   takes: numbers, one at a time.
   gives: samples_add, samples_percentile, samples_median, samples_free.
   owns:  the lists; a zeroed list is empty. */
#ifndef DEMO_SAMPLES_H
#define DEMO_SAMPLES_H

#include <stddef.h>

typedef struct samples {
    double *values; /* [count] in order of arrival */
    size_t count, cap;
    double *sorted; /* [sorted_count] ascending; up to date when sorted_count == count */
    size_t sorted_count;
} samples;

void samples_add(samples *s, double value);
double samples_percentile(samples *s, double percent); /* nearest rank, percent 0..100; 0 if empty */
double samples_median(samples *s);                     /* an even count: mean of the two in the middle; 0 if empty */
void samples_free(samples *s);

#endif
