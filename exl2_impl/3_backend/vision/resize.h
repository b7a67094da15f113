/* resize.h: resizes and cuts a picture as Pillow 11.3 does, in units: the same bytes on every platform.
   takes: RGB bytes, an exl2__vision_size, memory for the result and for scratch.
   gives: exl2__resize, exl2__resize_begin, exl2__resize_step, exl2__resize_scratch_bytes.

   Columns are resized first, then rows, and results are bytes after either pass. Of N inputs and n outputs, with
   scale = N / n, f = max(scale, 1), c = (i + 0.5) scale: output i is the sum of k((j - c + 0.5) / f) times input j,
   from (int)(c - S f + 0.5) to below (int)(c + S f + 0.5). Weights are divided by their sum, then integers of 22 bits.

   No picture is stored between the passes. Source rows come in bands of eight, whose columns are resized together, as
   eight rows are a vector; then each row is added to the sums of those output rows that it is a part of. */
#ifndef EXL2__RESIZE_H
#define EXL2__RESIZE_H

#include "../../0_base/platform.h"
#include "../../0_base/simd.h"
#include "../../1_load/vision_size.h"
#include "vision_tasks.h"

#ifndef EXL2_NO_VISION

#define EXL2__RESIZE_BITS 22
#define EXL2__RESIZE_BAND 8u     /* source rows */
#define EXL2__RESIZE_LANES (3 * EXL2__RESIZE_BAND)
#define EXL2__RESIZE_COLUMNS 256u /* output columns that are computed at a time, by all tasks together */
#define EXL2__RESIZE_CHUNK 256u  /* source columns that a task has at a time */
#define EXL2__RESIZE_TASKS 16u   /* at most */

/* The weights of outputs [first, first + count). */
typedef struct exl2__resize_axis {
    uint32_t in, out, first, count;
    uint32_t ready;              /* outputs whose weights are computed */
    uint32_t used;               /* weights of these */
    uint32_t *low, *end, *at;    /* [count] inputs [low, end), and where their weights begin */
    int32_t *weight;
} exl2__resize_axis;

typedef struct exl2__resize_task {
    int32_t *sum;                /* [COLUMNS, LANES] */
    uint8_t *band;               /* [CHUNK, LANES] a part of the source, by columns, channels, rows */
    uint8_t *row;                /* [BAND, COLUMNS, 3] */
} exl2__resize_task;

typedef struct exl2__resize {
    const exl2__vision_config *config;
    exl2__vision_size size;
    const uint8_t *source;       /* the picture, or the video's frames one after the other */
    uint64_t source_bytes;       /* of the picture, or of a frame */
    uint32_t frame, width, height; /* the frame that is resized now; sides of the source */
    const uint8_t *from;         /* of the current resize: [y.in, x.in, 3] */
    uint8_t *to;                 /* [y.count, x.count, 3] */
    uint8_t *seen, *between[2];  /* between: pictures after the first and second of several resizes */
    exl2__resize_axis x, y;
    int32_t *sums;               /* [y.count, the group's columns, 3] */
    exl2__resize_task task[EXL2__RESIZE_TASKS];
    uint32_t tasks;
    uint32_t number;             /* of the resize */
    uint32_t group, row;         /* first column of the group; the next source row */
    uint32_t done;               /* outputs of y before it are complete */
    float ns_per_cost;           /* learned; 0: not known yet */
    const struct exl2__resize_ops *ops;
} exl2__resize;

/* ---- weights ---- */

EXL2__ROUND_TWICE_BEGIN

/* sin(pi x) without the C library's, which differs from platform to platform; error below 1e-15. */
EXL2__PRIVATE double exl2__resize_sine(double x)
{
    double whole = floor(x + 0.5), r = x - whole, z = r * 3.14159265358979323846, z2 = z * z, term = z, sum = z;
    for (uint32_t i = 2; i < 24; i += 2) {
        term = -(term * z2) / (double)(i * (i + 1));
        sum = sum + term;
    }
    return fmod(whole, 2) != 0 ? -sum : sum;
}

EXL2__PRIVATE double exl2__resize_sinc(double x)
{
    return fabs(x) < 1e-300 ? 1.0 : exl2__resize_sine(x) / (x * 3.14159265358979323846);
}

static inline double exl2__resize_support(uint32_t filter)
{
    return filter == 1 ? 3 : filter == 2 ? 1 : 2;
}

EXL2__PRIVATE double exl2__resize_filter(uint32_t filter, double x)
{
    const double a = -0.5;
    if (filter == 1) {
        return x >= -3 && x < 3 ? exl2__resize_sinc(x) * exl2__resize_sinc(x / 3) : 0;
    }
    x = fabs(x);
    if (filter == 2) {
        return x < 1 ? 1 - x : 0;
    }
    return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* The weights of the next output. Returns their number. */
EXL2__PRIVATE uint32_t exl2__resize_axis_add(exl2__resize_axis *a, uint32_t filter)
{
    double scale = (double)a->in / a->out, f = scale < 1 ? 1 : scale, inverse = 1 / f;
    double support = exl2__resize_support(filter) * f, centre = (a->first + a->ready + 0.5) * scale, total = 0;
    double begin = centre - support + 0.5, end = centre + support + 0.5;
    uint32_t low = begin > 0 ? (uint32_t)begin : 0, high = end < (double)a->in ? (uint32_t)end : a->in;
    for (uint32_t j = low; j < high; j++) {
        total += exl2__resize_filter(filter, ((double)j - centre + 0.5) * inverse);
    }
    for (uint32_t j = low; j < high; j++) {
        double w = exl2__resize_filter(filter, ((double)j - centre + 0.5) * inverse) / total;
        a->weight[a->used + j - low] = (int32_t)(w * (1 << EXL2__RESIZE_BITS) + (w < 0 ? -0.5 : 0.5));
    }
    a->low[a->ready] = low;
    a->end[a->ready] = high;
    a->at[a->ready++] = a->used;
    a->used += high - low;
    return high - low;
}

EXL2__ROUND_TWICE_END

/* ---- a band of rows ---- */

static inline uint8_t exl2__resize_byte(int32_t sum)
{
    int32_t value = sum >> EXL2__RESIZE_BITS; /* of a negative sum, too, an arithmetic shift on all compilers */
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* out [count, 8] = bytes [begin, begin + count) of eight rows */
EXL2__PRIVATE void exl2__resize_turn(const uint8_t *const rows[EXL2__RESIZE_BAND], size_t begin, uint32_t count,
                                     uint8_t *out)
{
    for (uint32_t k = 0; k < EXL2__RESIZE_BAND; k++) {
        for (uint32_t i = 0; i < count; i++) {
            out[(size_t)i * EXL2__RESIZE_BAND + k] = rows[k][begin + i];
        }
    }
}

/* sum [24] += count inputs [24] times their weights. */
EXL2__PRIVATE void exl2__resize_columns(int32_t *sum, const uint8_t *band, const int32_t *weight, uint32_t count)
{
    for (uint32_t j = 0; j < count; j++, band += EXL2__RESIZE_LANES) {
        for (uint32_t i = 0; i < EXL2__RESIZE_LANES; i++) {
            sum[i] += weight[j] * band[i];
        }
    }
}

/* sums [count] += weight * row; with `first` they begin with one half. */
EXL2__PRIVATE void exl2__resize_rows(int32_t *sums, const uint8_t *row, int32_t weight, uint32_t count, bool first)
{
    for (uint32_t i = 0; i < count; i++) {
        sums[i] = (first ? 1 << (EXL2__RESIZE_BITS - 1) : sums[i]) + weight * row[i];
    }
}

/* Bytes of sums [count, 8] to eight rows of out, which are `stride` apart. */
EXL2__PRIVATE void exl2__resize_bytes(const int32_t *sums, uint32_t count, uint8_t *out, size_t stride)
{
    for (uint32_t i = 0; i < count * EXL2__RESIZE_BAND; i++) {
        out[i % EXL2__RESIZE_BAND * stride + i / EXL2__RESIZE_BAND] = exl2__resize_byte(sums[i]);
    }
}

typedef struct exl2__resize_ops {
    void (*turn)(const uint8_t *const rows[EXL2__RESIZE_BAND], size_t begin, uint32_t count, uint8_t *out);
    void (*columns)(int32_t *sum, const uint8_t *band, const int32_t *weight, uint32_t count);
    void (*rows)(int32_t *sums, const uint8_t *row, int32_t weight, uint32_t count, bool first);
    void (*bytes)(const int32_t *sums, uint32_t count, uint8_t *out, size_t stride);
} exl2__resize_ops;

static const exl2__resize_ops exl2__resize_plain = { exl2__resize_turn, exl2__resize_columns, exl2__resize_rows,
                                                     exl2__resize_bytes };

#if EXL2__X86_SIMD
/* Eight rows of eight bytes, transposed: two of the results in each vector. */
EXL2__FORCE_INLINE EXL2__TARGET_AVX2 void exl2__resize_transpose(const __m128i in[8], __m128i out[4])
{
    __m128i a = _mm_unpacklo_epi8(in[0], in[1]), b = _mm_unpacklo_epi8(in[2], in[3]);
    __m128i c = _mm_unpacklo_epi8(in[4], in[5]), d = _mm_unpacklo_epi8(in[6], in[7]);
    __m128i ab = _mm_unpacklo_epi16(a, b), cd = _mm_unpacklo_epi16(c, d);
    __m128i ab2 = _mm_unpackhi_epi16(a, b), cd2 = _mm_unpackhi_epi16(c, d);
    out[0] = _mm_unpacklo_epi32(ab, cd);
    out[1] = _mm_unpackhi_epi32(ab, cd);
    out[2] = _mm_unpacklo_epi32(ab2, cd2);
    out[3] = _mm_unpackhi_epi32(ab2, cd2);
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__resize_turn_avx2(const uint8_t *const rows[EXL2__RESIZE_BAND], size_t begin,
                                                            uint32_t count, uint8_t *out)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i in[8], turned[4];
        for (uint32_t k = 0; k < 8; k++) {
            in[k] = _mm_loadl_epi64((const __m128i *)(const void *)(rows[k] + begin + i));
        }
        exl2__resize_transpose(in, turned);
        for (uint32_t k = 0; k < 4; k++) {
            _mm_storeu_si128((__m128i *)(void *)(out + (size_t)i * 8 + 16 * k), turned[k]);
        }
    }
    exl2__resize_turn(rows, begin + i, count - i, out + (size_t)i * 8);
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__resize_columns_avx2(int32_t *sum, const uint8_t *band, const int32_t *weight,
                                                               uint32_t count)
{
    EXL2__UNALIGNED_MOVES();
    __m256i s[3];
    for (uint32_t i = 0; i < 3; i++) {
        s[i] = _mm256_loadu_si256((const __m256i *)(const void *)(sum + 8 * i));
    }
    for (uint32_t j = 0; j < count; j++, band += EXL2__RESIZE_LANES) {
        __m256i w = _mm256_set1_epi32(weight[j]);
        for (uint32_t i = 0; i < 3; i++) {
            __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(band + 8 * i)));
            s[i] = _mm256_add_epi32(s[i], _mm256_mullo_epi32(w, x));
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        _mm256_storeu_si256((__m256i *)(void *)(sum + 8 * i), s[i]);
    }
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__resize_rows_avx2(int32_t *sums, const uint8_t *row, int32_t weight,
                                                            uint32_t count, bool first)
{
    EXL2__UNALIGNED_MOVES();
    __m256i w = _mm256_set1_epi32(weight), half = _mm256_set1_epi32(1 << (EXL2__RESIZE_BITS - 1));
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(row + i)));
        __m256i s = first ? half : _mm256_loadu_si256((const __m256i *)(const void *)(sums + i));
        _mm256_storeu_si256((__m256i *)(void *)(sums + i), _mm256_add_epi32(s, _mm256_mullo_epi32(w, x)));
    }
    exl2__resize_rows(sums + i, row + i, weight, count - i, first);
}

EXL2__PRIVATE EXL2__TARGET_AVX2 void exl2__resize_bytes_avx2(const int32_t *sums, uint32_t count, uint8_t *out,
                                                             size_t stride)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i in[8], turned[4];
        for (uint32_t k = 0; k < 8; k++) { /* saturation is the clipping */
            __m256i s = _mm256_loadu_si256((const __m256i *)(const void *)(sums + ((size_t)i + k) * 8));
            s = _mm256_srai_epi32(s, EXL2__RESIZE_BITS);
            __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
            in[k] = _mm_packus_epi16(words, words);
        }
        exl2__resize_transpose(in, turned);
        for (uint32_t k = 0; k < 4; k++) {
            _mm_storel_epi64((__m128i *)(void *)(out + 2 * k * stride + i), turned[k]);
            _mm_storel_epi64((__m128i *)(void *)(out + (2 * k + 1) * stride + i),
                             _mm_unpackhi_epi64(turned[k], turned[k]));
        }
    }
    exl2__resize_bytes(sums + (size_t)i * 8, count - i, out + i, stride);
}

static const exl2__resize_ops exl2__resize_avx2 = { exl2__resize_turn_avx2, exl2__resize_columns_avx2,
                                                    exl2__resize_rows_avx2, exl2__resize_bytes_avx2 };
#endif

/* Items: columns of the group. One band of rows. */
EXL2__PRIVATE void exl2__resize_band(void *arg, uint32_t begin, uint32_t end, uint32_t number)
{
    const exl2__resize *r = (const exl2__resize *)arg;
    const exl2__resize_axis *x = &r->x, *y = &r->y;
    const exl2__resize_task *task = &r->task[number];
    const exl2__resize_ops *ops = r->ops;
    uint32_t rows = exl2__min32(EXL2__RESIZE_BAND, y->in - r->row), first = r->group + begin, count = end - begin;
    uint32_t columns = exl2__min32(EXL2__RESIZE_COLUMNS, x->count - r->group);
    const uint8_t *from[EXL2__RESIZE_BAND];
    for (uint32_t k = 0; k < EXL2__RESIZE_BAND; k++) { /* the last row in place of missing ones */
        from[k] = r->from + (size_t)(r->row + exl2__min32(k, rows - 1)) * x->in * 3;
    }
    for (uint32_t i = 0; i < count * EXL2__RESIZE_LANES; i++) {
        task->sum[i] = 1 << (EXL2__RESIZE_BITS - 1);
    }
    uint32_t c0 = 0, limit = x->end[first + count - 1];
    for (uint32_t at = x->low[first]; at < limit; at += EXL2__RESIZE_CHUNK) {
        uint32_t to = exl2__min32(at + EXL2__RESIZE_CHUNK, limit);
        ops->turn(from, (size_t)at * 3, (to - at) * 3, task->band);
        for (; c0 < count && x->end[first + c0] <= at; c0++) {
        }
        for (uint32_t c = c0; c < count && x->low[first + c] < to; c++) {
            uint32_t low = exl2__max32(x->low[first + c], at), high = exl2__min32(x->end[first + c], to);
            const int32_t *weight = x->weight + x->at[first + c] + (low - x->low[first + c]);
            if (low < high) {
                ops->columns(task->sum + (size_t)c * EXL2__RESIZE_LANES,
                             task->band + (size_t)(low - at) * EXL2__RESIZE_LANES, weight, high - low);
            }
        }
    }
    ops->bytes(task->sum, count * 3, task->row, EXL2__RESIZE_COLUMNS * 3);
    uint32_t o = r->done;
    for (uint32_t k = 0; k < rows; k++) {
        uint32_t at = r->row + k;
        const uint8_t *row = task->row + (size_t)k * EXL2__RESIZE_COLUMNS * 3;
        for (; o < y->count && y->end[o] <= at; o++) {
        }
        for (uint32_t i = o; i < y->count && y->low[i] <= at; i++) {
            int32_t *sums = r->sums + ((size_t)i * columns + begin) * 3;
            if (at < y->end[i]) {
                ops->rows(sums, row, y->weight[y->at[i] + (at - y->low[i])], count * 3, at == y->low[i]);
            }
            if (at + 1 == y->end[i]) {
                uint8_t *out = r->to + ((size_t)i * x->count + r->group + begin) * 3;
                for (uint32_t j = 0; j < count * 3; j++) {
                    out[j] = exl2__resize_byte(sums[j]);
                }
            }
        }
    }
}

/* ---- memory ---- */

/* Weights of an axis, at most: an output has at most 2 S f + 2 inputs, with S <= 3. */
static inline uint64_t exl2__resize_weights(uint64_t in, uint64_t count)
{
    return 6 * exl2__max64(in, count) + 3 * count + 8;
}

EXL2__PRIVATE void exl2__resize_axis_layout(exl2__resize_axis *a, exl2__arena *m, uint64_t in, uint64_t count)
{
    a->low = (uint32_t *)exl2__arena_alloc(m, count * sizeof *a->low);
    a->end = (uint32_t *)exl2__arena_alloc(m, count * sizeof *a->end);
    a->at = (uint32_t *)exl2__arena_alloc(m, count * sizeof *a->at);
    a->weight = (int32_t *)exl2__arena_alloc(m, exl2__resize_weights(in, count) * sizeof *a->weight);
}

/* What every picture under the limits needs, with sides of at most `side` pixels. A dry arena measures. */
EXL2__PRIVATE void exl2__resize_layout(exl2__resize *r, const exl2__vision_config *v, const exl2__vision_limits *limits,
                                       uint32_t side, uint32_t tasks, exl2__arena *m)
{
    exl2__vision_size most;
    exl2__vision_largest(v, limits, &most);
    uint64_t out = most.width, pixels = most.seen_bytes / 3 / most.tiles;
    bool tiles = v->row->rule == EXL2__VISION_RULE_TILES;
    if (tiles) { /* of pictures before they are cut: all tiles but the whole, and a line that makes a side even */
        uint64_t cut = exl2__max32(most.tiles, 2) - 1, edge = v->edge + (uint64_t)v->wide;
        uint64_t scaled = exl2__min64(edge * edge, cut * pixels + 2 * edge);
        if (!v->splits) {
            scaled = (v->edge + 1ull) * (v->edge + 1ull);
        }
        r->between[0] = (uint8_t *)exl2__arena_alloc(m, scaled * 3);
        r->between[1] = (uint8_t *)exl2__arena_alloc(m, v->splits ? cut * pixels * 3 : 0);
        out = edge;
        pixels = exl2__max64(scaled, cut * pixels);
    }
    exl2__resize_axis_layout(&r->x, m, exl2__max64(side, out), out);
    exl2__resize_axis_layout(&r->y, m, exl2__max64(side, out), out);
    uint64_t sums = exl2__min64(pixels, out * EXL2__RESIZE_COLUMNS);
    r->sums = (int32_t *)exl2__arena_alloc(m, sums * 3 * sizeof *r->sums);
    r->tasks = exl2__min32(tasks, EXL2__RESIZE_TASKS);
    for (uint32_t i = 0; i < r->tasks; i++) {
        exl2__resize_task *t = &r->task[i];
        t->sum = (int32_t *)exl2__arena_alloc(m, EXL2__RESIZE_COLUMNS * EXL2__RESIZE_LANES * sizeof *t->sum);
        t->band = (uint8_t *)exl2__arena_alloc(m, EXL2__RESIZE_CHUNK * EXL2__RESIZE_LANES);
        t->row = (uint8_t *)exl2__arena_alloc(m, EXL2__RESIZE_BAND * EXL2__RESIZE_COLUMNS * 3);
    }
}

/* cpu: the device that exl2__resize_step will get; NULL: one thread. */
static inline uint64_t exl2__resize_scratch_bytes(const exl2__vision_config *v, const exl2__vision_limits *limits,
                                                  uint32_t side, const exl2__device *cpu)
{
    exl2__arena dry = { 0 };
    exl2__resize r = { 0 };
    exl2__resize_layout(&r, v, limits, side, exl2__vision_tasks(cpu), &dry);
    return dry.used;
}

/* ---- the sequence ---- */

/* Prepares the resize number r->number. */
EXL2__PRIVATE void exl2__resize_open(exl2__resize *r, const uint8_t *from, uint32_t width, uint32_t height)
{
    const exl2__vision_size *s = &r->size;
    uint32_t n = r->number, w = s->resize[n].width, h = s->resize[n].height;
    bool last = n + 1 == s->resizes, whole = last && !s->frames;
    bool crops = r->config->row->rule == EXL2__VISION_RULE_CROP;
    r->from = from;
    r->to = last ? r->seen + (whole ? s->tiles - 1 : r->frame) * exl2__vision_tile_bytes(s) : r->between[n];
    r->x.in = width;
    r->y.in = height;
    r->x.out = w;
    r->y.out = h;
    r->x.first = crops ? (w - s->width) / 2 : 0;
    r->y.first = crops ? (h - s->height) / 2 : 0;
    r->x.count = crops ? s->width : w;
    r->y.count = crops ? s->height : h;
    r->x.ready = r->y.ready = r->x.used = r->y.used = 0;
    r->group = r->row = r->done = 0;
}

/* rgb [frames or 1, height, width, 3] and `seen` must live until the last step; memory: of exl2__resize_scratch_bytes,
   aligned as an arena is, for the same limits, sides and device. */
static inline void exl2__resize_begin(exl2__resize *r, const exl2__vision_config *v, const exl2__vision_limits *limits,
                                      const exl2__vision_size *size, const uint8_t *rgb, uint32_t width,
                                      uint32_t height, uint32_t side, uint8_t *seen, void *memory,
                                      const exl2__device *cpu)
{
    exl2__arena m = { (uint8_t *)memory, UINT64_MAX / 4, 0, EXL2_MEM_GENERAL };
    float learned = r->ns_per_cost;
    memset(r, 0, sizeof *r);
    r->config = v;
    r->size = *size;
    r->source = rgb;
    r->source_bytes = (uint64_t)width * height * 3;
    r->width = width;
    r->height = height;
    r->seen = seen;
    r->ns_per_cost = learned;
    r->ops = &exl2__resize_plain;
#if EXL2__X86_SIMD
    exl2_cpu_path path = cpu ? exl2__cpu_of(cpu)->c->cpu_path : EXL2_CPU_C;
    r->ops = path == EXL2_CPU_AVX2 || path == EXL2_CPU_AVX512 ? &exl2__resize_avx2 : r->ops;
#endif
    exl2__resize_layout(r, v, limits, side, exl2__vision_tasks(cpu), &m);
    exl2__resize_open(r, rgb, width, height);
}

/* Cuts the picture that was resized last into tiles. */
EXL2__PRIVATE void exl2__resize_cut(exl2__resize *r)
{
    const exl2__vision_size *s = &r->size;
    size_t line = (size_t)s->width * 3, whole = line * s->tile_columns;
    for (uint32_t t = 0; t + 1 < s->tiles; t++) {
        const uint8_t *from = r->to + t / s->tile_columns * s->height * whole + t % s->tile_columns * line;
        uint8_t *to = r->seen + t * exl2__vision_tile_bytes(s);
        for (uint32_t y = 0; y < s->height; y++) {
            memcpy(to + y * line, from + y * whole, line);
        }
    }
}

/* Computes weights until that has cost `most`. false: all are computed. */
EXL2__PRIVATE bool exl2__resize_weigh(exl2__resize *r, uint64_t most, uint64_t *cost)
{
    for (uint32_t i = 0; i < 2; i++) {
        exl2__resize_axis *a = i ? &r->y : &r->x;
        while (a->ready < a->count) {
            if (*cost >= most) {
                return true;
            }
            *cost += 200ull * exl2__resize_axis_add(a, r->config->filter); /* Lanczos: 400 operations */
        }
    }
    return false;
}

/* Multiply-adds of the next band, roughly. */
static inline uint64_t exl2__resize_cost(const exl2__resize *r, uint32_t columns)
{
    uint64_t wide = (uint64_t)columns * EXL2__RESIZE_LANES;
    uint64_t x = 2 + r->x.used / r->x.count, y = 2 + (uint64_t)r->y.used / r->y.in;
    return wide * (x + y);
}

/* One unit of about unit_ns nanoseconds (0: all that is left). PENDING, or OK: `seen` is complete. */
static inline exl2_result exl2__resize_step(exl2__resize *r, const exl2__device *cpu, uint64_t unit_ns)
{
    uint64_t begin_ns = unit_ns ? exl2__platform_ns() : 0, cost = 0;
    double speed = r->ns_per_cost > 0 ? (double)r->ns_per_cost : 0.5;
    uint64_t most = unit_ns ? (uint64_t)((double)unit_ns / speed) + 1 : UINT64_MAX;
    while (r->number < r->size.resizes && cost < most) {
        if (exl2__resize_weigh(r, most, &cost)) {
            break;
        }
        uint32_t columns = exl2__min32(EXL2__RESIZE_COLUMNS, r->x.count - r->group);
        r->row = exl2__max32(r->row, r->y.low[0]);
        uint64_t band = exl2__resize_cost(r, columns);
        exl2__vision_tasks_run(cpu, r->tasks, exl2__resize_band, r, 0, columns, band);
        cost += band;
        r->row += EXL2__RESIZE_BAND;
        for (; r->done < r->y.count && r->y.end[r->done] <= r->row; r->done++) {
        }
        if (r->done == r->y.count) {
            r->row = r->done = 0;
            r->group += columns;
        }
        if (r->group == r->x.count) {
            bool cut = r->size.tile_rows > 0 && r->number + 2 == r->size.resizes;
            if (cut) {
                exl2__resize_cut(r);
            }
            if (++r->number < r->size.resizes) {
                exl2__resize_open(r, r->to, r->x.count, r->y.count);
            } else if (r->frame + 1 < r->size.frames) {
                r->frame++;
                r->number = 0;
                exl2__resize_open(r, r->source + r->frame * r->source_bytes, r->width, r->height);
            }
        }
    }
    if (unit_ns && cost) {
        float now = (float)((double)(exl2__platform_ns() - begin_ns) / (double)cost);
        r->ns_per_cost = r->ns_per_cost > 0 ? r->ns_per_cost + exl2__mul_float(0.25f, now - r->ns_per_cost) : now;
    }
    return r->number == r->size.resizes ? EXL2_OK : EXL2_PENDING;
}

#endif
#endif
