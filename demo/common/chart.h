/* chart.h: frame times as a histogram in text and as a panel of a picture.
   takes: milliseconds per frame, in order.
   gives: chart_histogram, chart_panel, chart colours. */
#ifndef DEMO_CHART_H
#define DEMO_CHART_H

#include "picture.h"

#include <stddef.h>
#include <stdio.h>

#define CHART_BACKGROUND 0x12161Cu
#define CHART_PANEL 0x1B222Bu
#define CHART_GRID 0x303A46u
#define CHART_TEXT 0xD8DEE6u
#define CHART_DIM 0x8A96A3u
#define CHART_OFF 0x6F7C8Au  /* frames without the engine */
#define CHART_ON 0x3FA7D6u   /* frames with the engine */
#define CHART_LATE 0xE4572Eu /* late frames */
#define CHART_LIMIT 0xF2C14Eu

typedef struct chart {
    const char *title, *limit_name; /* ASCII */
    const double *ms;               /* [count] */
    size_t count;
    size_t on_from;                 /* first frame with the engine */
    double limit_ms;                /* drawn as a line */
    double top_ms;                  /* upper edge of the panel */
    double late_ms;                 /* longer frames are marked as late */
} chart;

/* Prints twelve buckets of bucket_ms each, from 0 on; the last one has no upper bound. */
void chart_histogram(FILE *file, const double *ms, size_t count, double bucket_ms);
/* Draws one column per frame; if frames share a column, the slowest is shown. */
void chart_panel(picture *p, int x, int y, int width, int height, const chart *c);

#endif
