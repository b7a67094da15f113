/* chart.c: see chart.h.
   takes: milliseconds a frame.
   gives: what chart.h declares. */
#include "chart.h"

#define BUCKETS 12
#define BAR_CELLS 50

void chart_histogram(FILE *file, const double *ms, size_t count, double bucket_ms)
{
    size_t buckets[BUCKETS] = { 0 }, most = 1;
    for (size_t i = 0; i < count; i++) {
        double at = ms[i] / bucket_ms;
        size_t bucket = at < BUCKETS - 1 ? (at > 0 ? (size_t)at : 0) : BUCKETS - 1;
        buckets[bucket]++;
        most = buckets[bucket] > most ? buckets[bucket] : most;
    }
    for (size_t b = 0; b < BUCKETS; b++) {
        char bar[BAR_CELLS + 1], to[16] = "   more";
        size_t cells = (buckets[b] * BAR_CELLS + most - 1) / most; /* rounded up, so that a single frame is visible */
        for (size_t i = 0; i < cells; i++) {
            bar[i] = '#';
        }
        bar[cells] = 0;
        if (b + 1 < BUCKETS) {
            snprintf(to, sizeof to, "- %5.2f", bucket_ms * (double)(b + 1));
        }
        fprintf(file, "%6.2f %s ms %6zu %s\n", bucket_ms * (double)b, to, buckets[b], bar);
    }
}

static int level(const chart *c, int y, int height, double ms)
{
    double share = ms / c->top_ms;
    share = share > 1 ? 1 : share;
    return y + height - (int)(share * height);
}

static void draw_scale(picture *p, int x, int y, int width, int height, const chart *c)
{
    double step = c->top_ms > 20 ? 10 : c->top_ms > 8 ? 4 : c->top_ms > 4 ? 2 : c->top_ms > 2 ? 1 : c->top_ms / 4;
    for (double ms = 0; ms <= c->top_ms; ms += step) {
        char number[16];
        int line = level(c, y, height, ms);
        snprintf(number, sizeof number, "%.*f", step < 1 ? 2 : 0, ms);
        picture_box(p, x, line, width, 1, CHART_GRID);
        picture_text(p, x - 6 - picture_text_width(number, 1), line - 3, 1, CHART_DIM, number);
    }
}

void chart_panel(picture *p, int x, int y, int width, int height, const chart *c)
{
    char label[64];
    picture_box(p, x, y, width, height, CHART_PANEL);
    draw_scale(p, x, y, width, height, c);
    for (int column = 0; column < width && c->count; column++) {
        size_t first = (size_t)column * c->count / (size_t)width, end = ((size_t)column + 1) * c->count / (size_t)width;
        double slowest = c->ms[first];
        for (size_t i = first; i < end; i++) {
            slowest = c->ms[i] > slowest ? c->ms[i] : slowest;
        }
        int top = level(c, y, height, slowest);
        uint32_t colour = slowest > c->late_ms ? CHART_LATE : first < c->on_from ? CHART_OFF : CHART_ON;
        picture_box(p, x + column, top, 1, y + height - top, colour);
    }
    int limit = level(c, y, height, c->limit_ms);
    picture_box(p, x, limit, width, 1, CHART_LIMIT);
    snprintf(label, sizeof label, "%s %.2f ms", c->limit_name, c->limit_ms);
    picture_text(p, x + width - picture_text_width(label, 1) - 4, limit - 10, 1, CHART_LIMIT, label);
    picture_text(p, x, y - 12, 1, CHART_TEXT, c->title);
}
