/* attend_rig.h: scenes for tests of attention: sequences in shuffled pages, the rows of a pass, a reference in double.
   takes: rig.h; kernels attend_*.cu.
   gives: attend_scene, attend_decode, attend_prefill, attend_check, attend_same.
   owns:  attend_scene: host arrays and device memory, until attend_scene_free. */
#ifndef ATTEND_RIG_H
#define ATTEND_RIG_H

#include "private/cpu_codes.h"
#include "../../kernels_src/attend_args.h"
#include "../sample_reference.h"
#include "rig.h"

#define ATTEND_SEQUENCES 6
#define ATTEND_PERMUTED 1u  /* outputs are permuted */
#define ATTEND_HALF 2u      /* qkv is fp16 */
#define ATTEND_UNWRITTEN 4u /* K and V of earlier tokens are not made: only for timing, results mean nothing */

/* What attention computes. */
typedef struct attend_kind {
    uint32_t heads, kv_heads, dim;
    uint32_t window;     /* 0: none */
    uint32_t unrotated;  /* elements of a head that RoPE does not rotate, the last ones; dim: the layer has no RoPE */
    bool pairs;          /* RoPE rotates elements (2i, 2i + 1) */
    bool divided;        /* the table of RoPE has the first block of positions, then the first position of each */
    float cap;           /* soft cap of scores; 0: none */
    bool sinks;          /* heads have sinks: attend_sink */
    exl2_kv format;      /* of the pages */
} attend_kind;

/* As in Llama. */
static attend_kind attend_plain(uint32_t heads, uint32_t kv_heads, uint32_t dim)
{
    return (attend_kind){ .heads = heads, .kv_heads = kv_heads, .dim = dim };
}

typedef struct attend_sequence {
    uint32_t before, rows; /* number of tokens in the pages; number of rows in the pass */
} attend_sequence;

typedef struct attend_modules {
    rig_module decode[3], few[3], crowd, codes[3], prefill[3], wg[2]; /* crowd, wg: on Hopper only */
    rig_module store, prepare, quantize;
} attend_modules;

typedef struct attend_scene {
    attend_kind kind;
    uint32_t heads, kv_heads, dim, rows, present, flags, table_pitch, page_count, qkv_pitch, out_pitch, page_bytes;
    attend_sequence sequences[ATTEND_SEQUENCES];
    exl2k_row *row;
    uint32_t *table;          /* [ATTEND_SEQUENCES, table_pitch] */
    float *qkv, *rope;        /* [rows, qkv_pitch]; [lines, dim / 2, 2] */
    uint16_t *map;
    uint16_t *host_pages;     /* expected contents of pages of fp16 after the pass; 0xFFFF: never written */
    uint8_t *codes;           /* [page_count, codes_bytes] the same of a quantized cache; else NULL */
    float *values;            /* what the codes mean, in the places of host_pages; NaN: not computed yet */
    uint32_t codes_bytes, key_bits, value_bits;
    float scale;
    bool scattered;           /* the prefill kernel permutes the outputs itself, without exl2k_attend_permute */
    uint32_t wg;              /* prefill by wgmma, at most with so many CTAs; 0: by mma.sync */
    bool rotates;             /* prefill: K and V are stored by exl2k_attend_store_queries, which rotates queries */
    uint64_t norm[2];         /* of decode: weights of the norms of q and k; 0: none */
    bool stores;              /* decode from codes stores K and V itself */
    bool no_cluster;          /* decode is launched without clusters */
    bool crowd;               /* decode runs by the kernel with smaller CTAs, if attend_has_crowd */
    bool any_rows;            /* decode of few rows without norms by the kernel for all launches, too */
    uint32_t splits, early;   /* of decode launches; splits 0: EXL2K_SPLITS_MAX; 2 to 8: launched as a cluster */
    rig_buffer step, rows_at, tables, inputs, angles, pages, expanded, out, order, partial, tickets, tiles, sinks;
} attend_scene;

static const char *const attend_formats[] = { "fp16", "q8", "q6", "q4" };
static uint64_t attend_random = 17;
static double attend_worst[4][2]; /* largest relative error of decode and of prefill, by format */

/* options: NVRTC options separated by blanks, or NULL */
static attend_modules attend_modules_load(const char *options)
{
    static const char *const names[4][3] = { { "attend_decode64.cu", "attend_decode128.cu", "attend_decode256.cu" },
                                             { "attend_prefill64.cu", "attend_prefill128.cu",
                                               "attend_prefill256.cu" },
                                             { "attend_codes64.cu", "attend_codes128.cu", "attend_codes256.cu" },
                                             { "attend_decode_few64.cu", "attend_decode_few128.cu",
                                               "attend_decode_few256.cu" } };
    attend_modules m = { .store = rig_load("attend_store.cu", options),
                         .quantize = rig_load("attend_quantize.cu", options),
                         .prepare = rig_load("attend_prepare.cu", options) };
    for (int i = 0; i < 3; i++) {
        m.decode[i] = rig_load(names[0][i], options);
        m.prefill[i] = rig_load(names[1][i], options);
        m.codes[i] = rig_load(names[2][i], options);
        m.few[i] = rig_load(names[3][i], options);
        printf("%s, %s: compiled in %.0f and %.0f ms\n", names[0][i], names[1][i], m.decode[i].compile_ms,
               m.prefill[i].compile_ms);
    }
    m.crowd = rig_exists("attend_decode_crowd128.cu") ? rig_load("attend_decode_crowd128.cu", options) : m.crowd;
    for (int i = 0; i < 2 && rig_exists("attend_wg64.cu"); i++) {
        m.wg[i] = rig_load(i ? "attend_wg128.cu" : "attend_wg64.cu", options);
        printf("%s: compiled in %.0f ms\n", m.wg[i].name, m.wg[i].compile_ms);
    }
    return m;
}

/* ---- scenes ---- */

static double attend_number(void) { return (uniform(&attend_random) * 2 - 1) * 1.7; }

static uint16_t *attend_kv(const attend_scene *s, uint32_t sequence, uint32_t position, uint32_t head, bool value)
{
    uint64_t page = s->table[sequence * s->table_pitch + position / 64];
    return s->host_pages + page * s->page_bytes / 2
         + ((uint64_t)((value ? s->kv_heads : 0) + head) * 64 + position % 64) * s->dim;
}

static double attend_input(const attend_scene *s, uint32_t row, uint32_t feature)
{
    return (double)s->qkv[(size_t)row * s->qkv_pitch + feature];
}

/* The first token that a row at this position attends to. */
static uint32_t attend_begin(const attend_scene *s, uint32_t position)
{
    return s->kind.window && position >= s->kind.window ? position + 1 - s->kind.window : 0;
}

/* The sink of a head: from far below the scores to far above them. */
static float attend_sink(uint32_t head) { return (float)(head % 8) * 3.0f - 9.0f; }

static double attend_angle(const attend_scene *s, uint32_t position, uint32_t pair)
{
    return position * pow(10000, -2.0 * pair / (s->dim - s->kind.unrotated));
}

/* Rotates (RoPE) the head of a row that begins at `feature`. The result is in the order of pages: first the first
   elements of all pairs, then the second ones; two unrotated neighbours are a pair, too. */
static void attend_rotate(const attend_scene *s, uint32_t row, uint32_t feature, double *out)
{
    uint32_t half = s->dim / 2, rotated = (s->dim - s->kind.unrotated) / 2;
    for (uint32_t i = 0; i < half; i++) {
        bool neighbours = s->kind.pairs || i >= rotated;
        double angle = i < rotated ? attend_angle(s, s->row[row].position, i) : 0, c = cos(angle), n = sin(angle);
        double x = attend_input(s, row, feature + (neighbours ? 2 * i : i));
        double y = attend_input(s, row, feature + (neighbours ? 2 * i + 1 : rotated + i));
        uint32_t place = rotated == 0 ? 2 * i : i; /* without RoPE, elements keep their places */
        out[place] = x * c - y * n;
        out[rotated == 0 ? place + 1 : half + i] = y * c + x * n;
    }
}

/* ---- a quantized cache ---- */

/* The codes of K or V of a head in a page of the host, and their scales: CODES of attend_args.h. */
static uint8_t *attend_codes(const attend_scene *s, uint32_t sequence, uint32_t position, uint32_t head, bool value,
                             uint16_t **scales)
{
    uint32_t groups = EXL2K_CODES_GROUPS(s->dim), page = s->table[sequence * s->table_pitch + position / 64];
    uint8_t *at = s->codes + (size_t)page * s->codes_bytes
                + (size_t)head * groups * 64 * 4 * (s->key_bits + s->value_bits + 1);
    *scales = (uint16_t *)(void *)(at + groups * 64 * 4 * (s->key_bits + s->value_bits)) + (value ? groups * 64 : 0)
            + position % 64;
    return at + (value ? groups * 64 * 4 * s->key_bits : 0)
         + position % 64 * groups * 4 * (value ? s->value_bits : s->key_bits);
}

/* Bit at which the code of element i of a group of 32 lies. */
static uint32_t attend_code_bit(uint32_t i, uint32_t bits) { return (i / 8 * 8 + i % 2 * 4 + i % 8 / 2) * bits; }

/* Quantizes halves as the CPU does, into the host's pages. */
static void attend_put(attend_scene *s, uint32_t sequence, uint32_t position, uint32_t head, bool value,
                       const uint16_t *halves)
{
    uint32_t bits = value ? s->value_bits : s->key_bits, groups = EXL2K_CODES_GROUPS(s->dim);
    float x[256];
    uint16_t *scales;
    uint8_t *to = attend_codes(s, sequence, position, head, value, &scales);
    for (uint32_t i = 0; i < s->dim; i++) {
        x[i] = exl2__f16_to_f32(halves[i]);
    }
    exl2__cpu_codes_rotate(x, s->dim, 1);
    s->values[attend_kv(s, sequence, position, head, value) - s->host_pages] = NAN;
    memset(to, 0, groups * 4 * bits);
    for (uint32_t g = 0; g < groups; g++, to += 4 * bits) {
        uint8_t codes[32] = { 0 }; /* the second half of a short group: 0 */
        scales[g * 64] = exl2__cpu_codes_make(x + g * 32, exl2__min32(s->dim - g * 32, 32), bits, codes);
        for (uint32_t i = 0; i < 32; i++) {
            uint32_t code = (codes[i] + (1u << (bits - 1))) & ((1u << bits) - 1), bit = attend_code_bit(i, bits);
            to[bit / 8] = (uint8_t)(to[bit / 8] | code << bit % 8);
        }
    }
}

/* Decodes K or V of a token. */
static void attend_decode_codes(const attend_scene *s, uint32_t sequence, uint32_t position, uint32_t head, bool value,
                                float *out)
{
    uint32_t bits = value ? s->value_bits : s->key_bits;
    uint16_t *scales;
    const uint8_t *codes = attend_codes(s, sequence, position, head, value, &scales);
    for (uint32_t g = 0; g * 32 < s->dim; g++) {
        uint32_t n = exl2__min32(s->dim - g * 32, 32);
        double x[32], scale = (double)exl2__f16_to_f32(scales[g * 64]) / sqrt(n);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t bit = attend_code_bit(i, bits), byte = codes[g * 4 * bits + bit / 8];
            x[i] = (double)(byte >> bit % 8 & ((1u << bits) - 1)) - (double)(1u << (bits - 1));
        }
        for (uint32_t bit = 1; bit < n; bit *= 2) { /* Hadamard's matrix, which is its own inverse */
            for (uint32_t i = 0; i < n; i++) {
                double low = x[i & ~bit], high = x[i | bit];
                if (!(i & bit)) {
                    x[i] = low + high;
                    x[i | bit] = low - high;
                }
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            out[g * 32 + i] = (float)(x[i] * scale);
        }
    }
}

/* K or V of a token, as a row reads it. */
static void attend_read(const attend_scene *s, uint32_t sequence, uint32_t position, uint32_t head, bool value,
                        double *out)
{
    const uint16_t *halves = attend_kv(s, sequence, position, head, value);
    float *values = s->codes ? s->values + (halves - s->host_pages) : NULL;
    if (values && isnan(values[0])) {
        attend_decode_codes(s, sequence, position, head, value, values);
    }
    for (uint32_t i = 0; i < s->dim; i++) {
        out[i] = (double)(values ? values[i] : exl2__f16_to_f32(halves[i]));
    }
}

/* Halves of K or V of a row of the pass, with the bits of the GPU. */
static void attend_halves(const attend_scene *s, uint32_t row, uint32_t head, bool value, uint16_t *out)
{
    uint32_t half = s->dim / 2, position = s->row[row].position;
    uint32_t feature = (s->heads + (value ? s->kv_heads : 0) + head) * s->dim;
    uint32_t rotated = (s->dim - s->kind.unrotated) / 2;
    const float *in = s->qkv + (size_t)row * s->qkv_pitch + feature;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t split = value || s->kind.unrotated == s->dim ? half : s->kind.pairs ? 0 : rotated;
        float x = in[i < split ? i : 2 * i], y = in[i < split ? i + split : 2 * i + 1];
        uint32_t line = s->kind.divided ? position % EXL2K_ROPE_BLOCK : position;
        const float *angle = s->rope + ((size_t)line * half + i) * 2;
        float c = angle[0], n = angle[1];
        if (s->kind.divided) {
            const float *block = s->rope + ((size_t)(EXL2K_ROPE_BLOCK + position / EXL2K_ROPE_BLOCK) * half + i) * 2;
            float b = n, products[2] = { b * block[1], c * block[1] };
            n = fmaf(b, block[0], products[1]);
            c = fmaf(c, block[0], -products[0]);
        }
        if (s->kind.unrotated == s->dim) {
            c = 1;
            n = 0;
        }
        float ys = y * n, xs = x * n;
        out[i] = exl2__f32_to_f16(value ? x : fmaf(x, c, -ys));
        out[i + half] = exl2__f32_to_f16(value ? y : fmaf(y, c, xs));
    }
}

static void attend_fill_tables(attend_scene *s)
{
    uint32_t *order = take(s->page_count * sizeof *order), next = 0;
    for (uint32_t i = 0; i < s->page_count; i++) {
        uint32_t j = (uint32_t)(mix(&attend_random) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t q = 0; q < ATTEND_SEQUENCES; q++) {
        for (uint32_t p = 0; p < s->table_pitch; p++) {
            uint32_t before = s->sequences[q].before, first = attend_begin(s, before);
            uint32_t end = before + s->sequences[q].rows;
            bool used = s->sequences[q].rows > 0 && p * 64 < end && p * 64 + 64 > first;
            s->table[q * s->table_pitch + p] = used ? order[next++] : 0xFFFFFFFFu; /* reading that page is a fault */
        }
    }
    free(order);
}

/* Lines of the table of RoPE. */
static uint32_t attend_lines(const attend_kind *kind, uint32_t positions)
{
    return kind->divided ? EXL2K_ROPE_BLOCK + (positions + EXL2K_ROPE_BLOCK - 1) / EXL2K_ROPE_BLOCK : positions;
}

static void attend_fill_inputs(attend_scene *s, uint32_t positions)
{
    for (size_t i = 0; i < (size_t)s->rows * s->qkv_pitch; i++) {
        float x = (float)attend_number();
        s->qkv[i] = s->flags & ATTEND_HALF ? exl2__f16_to_f32(exl2__f32_to_f16(x)) : x;
    }
    for (uint32_t line = 0; line < attend_lines(&s->kind, positions); line++) {
        bool block = s->kind.divided && line >= EXL2K_ROPE_BLOCK;
        uint32_t position = block ? (line - EXL2K_ROPE_BLOCK) * EXL2K_ROPE_BLOCK : line;
        for (uint32_t i = 0; i < s->dim / 2; i++) {
            double angle = i < (s->dim - s->kind.unrotated) / 2 ? attend_angle(s, position, i) : 0;
            s->rope[((size_t)line * (s->dim / 2) + i) * 2] = (float)cos(angle);
            s->rope[((size_t)line * (s->dim / 2) + i) * 2 + 1] = (float)sin(angle);
        }
    }
    for (uint32_t i = 0; i < s->heads * s->dim; i++) {
        uint32_t j = s->flags & ATTEND_PERMUTED ? (uint32_t)(mix(&attend_random) % (i + 1)) : i;
        s->map[i] = s->map[j];
        s->map[j] = (uint16_t)i;
    }
    for (uint32_t q = 0; q < ATTEND_SEQUENCES && !(s->flags & ATTEND_UNWRITTEN); q++) {
        for (uint32_t p = attend_begin(s, s->sequences[q].before) / 64 * 64; p < s->sequences[q].before; p++) {
            for (uint32_t head = 0; head < 2 * s->kv_heads; head++) {
                uint16_t *to = attend_kv(s, q, p, head % s->kv_heads, head >= s->kv_heads);
                for (uint32_t i = 0; i < s->dim; i++) {
                    to[i] = exl2__f32_to_f16((float)attend_number());
                }
                if (s->codes) {
                    attend_put(s, q, p, head % s->kv_heads, head >= s->kv_heads, to);
                }
            }
        }
    }
}

static void attend_buffers(attend_scene *s, uint32_t positions)
{
    uint64_t inputs = (uint64_t)s->rows * s->qkv_pitch;
    uint32_t *zeros = take(s->rows * s->heads * 4); /* at least one ticket per row, K/V head and tile of heads */
    memset(zeros, 0, s->rows * s->heads * 4);
    s->step = rig_buffer_make(sizeof(exl2k_pass));
    s->rows_at = rig_buffer_make(s->rows * sizeof(exl2k_row));
    s->tables = rig_buffer_of(s->table, ATTEND_SEQUENCES * s->table_pitch * 4);
    s->inputs = rig_buffer_make(inputs * 4);
    if (s->flags & ATTEND_HALF) {
        uint16_t *halves = take(inputs * 2);
        for (uint64_t i = 0; i < inputs; i++) {
            halves[i] = exl2__f32_to_f16(s->qkv[i]);
        }
        rig_upload(s->inputs, 0, halves, inputs * 2);
        free(halves);
    } else {
        rig_upload(s->inputs, 0, s->qkv, inputs * 4);
    }
    s->angles = rig_buffer_of(s->rope, (size_t)attend_lines(&s->kind, positions) * s->dim * 4);
    s->pages = rig_buffer_of(s->codes ? (const void *)s->codes : s->host_pages,
                             (size_t)s->page_count * (s->codes ? s->codes_bytes : s->page_bytes));
    s->expanded = rig_buffer_make(s->codes ? (uint64_t)s->page_count * s->page_bytes : 16);
    s->out = rig_buffer_make((uint64_t)s->rows * s->out_pitch * 2);
    s->order = rig_buffer_of(s->map, s->heads * s->dim * 2);
    s->partial = rig_buffer_make((uint64_t)s->rows * s->heads * EXL2K_SPLITS_MAX * (s->dim + EXL2K_SPLIT_EXTRA) * 4);
    s->tickets = rig_buffer_of(zeros, s->rows * s->heads * 4);
    float *sinks = take(s->heads * sizeof *sinks);
    for (uint32_t head = 0; head < s->heads; head++) {
        sinks[head] = attend_sink(head);
    }
    s->sinks = rig_buffer_of(sinks, s->heads * sizeof *sinks);
    free(sinks);
    s->tiles = rig_buffer_make((s->rows * (uint64_t)s->heads / 64 + ATTEND_SEQUENCES) * sizeof(exl2k_tile));
    free(zeros);
}

static void attend_scene_make(attend_scene *s, const attend_kind *kind, const attend_sequence *sequences,
                              uint32_t flags)
{
    uint32_t positions = 0, heads = kind->heads, kv_heads = kind->kv_heads, dim = kind->dim;
    *s = (attend_scene){ .kind = *kind, .heads = heads, .kv_heads = kv_heads, .dim = dim, .flags = flags };
    memcpy(s->sequences, sequences, sizeof s->sequences);
    for (uint32_t q = 0; q < ATTEND_SEQUENCES; q++) {
        uint32_t end = sequences[q].rows ? sequences[q].before + sequences[q].rows : 0;
        s->rows += sequences[q].rows;
        s->page_count += (end + 63) / 64;
        positions = end > positions ? end : positions;
    }
    s->present = s->rows;
    s->page_count += 2;
    s->table_pitch = (positions + 63) / 64 + 1;
    s->page_bytes = 2 * kv_heads * 64 * dim * 2;
    s->qkv_pitch = (heads + 2 * kv_heads) * dim + 16;
    s->out_pitch = heads * dim + 32;
    s->scale = 1 / sqrtf((float)dim);
    s->row = take(s->rows * sizeof *s->row);
    s->table = take(ATTEND_SEQUENCES * s->table_pitch * sizeof *s->table);
    s->qkv = take((size_t)s->rows * s->qkv_pitch * sizeof *s->qkv);
    s->rope = take((size_t)attend_lines(kind, positions) * dim * sizeof *s->rope);
    s->map = take(heads * dim * sizeof *s->map);
    s->host_pages = take((size_t)s->page_count * s->page_bytes);
    memset(s->host_pages, 0xFF, (size_t)s->page_count * s->page_bytes);
    s->key_bits = kind->format == EXL2_KV_Q4 ? 4 : 8;
    s->value_bits = kind->format == EXL2_KV_Q8 ? 8 : 4;
    s->codes_bytes = (uint32_t)(kv_heads * exl2__cpu_codes_head_bytes(dim, kind->format));
    if (kind->format != EXL2_KV_FP16) {
        s->codes = take((size_t)s->page_count * s->codes_bytes);
        memset(s->codes, 0xFF, (size_t)s->page_count * s->codes_bytes); /* the scales are NaN */
        s->values = take((size_t)s->page_count * s->page_bytes * 2);
        memset(s->values, 0xFF, (size_t)s->page_count * s->page_bytes * 2);
    }
    for (uint32_t q = 0, r = 0; q < ATTEND_SEQUENCES; q++) {
        for (uint32_t i = 0; i < sequences[q].rows; i++) {
            s->row[r++] = (exl2k_row){ 0, sequences[q].before + i, q, 0 };
        }
    }
    attend_fill_tables(s);
    attend_fill_inputs(s, positions);
    attend_buffers(s, positions);
}

static void attend_scene_free(attend_scene *s)
{
    rig_buffer *all[] = { &s->step, &s->rows_at, &s->tables, &s->inputs, &s->angles, &s->pages, &s->expanded, &s->out,
                          &s->order, &s->partial, &s->tickets, &s->tiles, &s->sinks };
    for (size_t i = 0; i < EXL2__COUNT(all); i++) {
        rig_buffer_free(all[i]);
    }
    free(s->row); free(s->table); free(s->qkv); free(s->rope); free(s->map); free(s->host_pages);
    free(s->codes); free(s->values);
}

/* ---- launches ---- */

static exl2k_attend_args attend_args(const attend_scene *s, uint32_t stages, uint64_t pages)
{
    exl2k_attend_args a = {
        .pass = s->step.address, .rows = s->rows_at.address, .qkv = s->inputs.address,
        .rope = s->angles.address, .pages = pages, .out = s->out.address,
        .map = s->flags & ATTEND_PERMUTED ? s->order.address : 0, .partial = s->partial.address,
        .tickets = s->tickets.address, .sinks = s->kind.sinks ? s->sinks.address : 0,
        .qkv_pitch = s->qkv_pitch, .out_pitch = s->out_pitch,
        .qkv_half = (s->flags & ATTEND_HALF) != 0,
        .page_bytes = s->codes ? s->codes_bytes : s->page_bytes, .heads = s->heads,
        .kv_heads = s->kv_heads, .group = s->heads / s->kv_heads, .dim = s->dim, .stages = stages,
        .rope_pitch = s->kind.unrotated < s->dim ? s->dim / 2 : 0,
        .rope_split = s->kind.unrotated == s->dim ? s->dim / 2 : s->kind.pairs ? 0 : (s->dim - s->kind.unrotated) / 2,
        .rope_divided = s->kind.divided,
        .window = s->kind.window ? s->kind.window : EXL2K_WINDOW_MAX,
        .scale = s->kind.cap > 0 ? s->kind.cap : s->scale,
        .tanh_scale = s->kind.cap > 0 ? s->scale / s->kind.cap : 0, .norm = { s->norm[0], s->norm[1] },
        .norm_eps = 1e-5f, .expanded = s->expanded.address, .key_bits = s->key_bits, .value_bits = s->value_bits };
    return a;
}

/* cluster: the x CTAs of a row and head form one cluster. */
static void attend_launch(const rig_module *m, const char *name, uint32_t x, uint32_t y, uint32_t z, uint32_t threads,
                          uint32_t shared, exl2k_attend_args *a, bool cluster)
{
    void *arguments[1] = { a };
    exl2__cuda_function *function = rig_function(m, name);
    if (shared > 24 * 1024) { /* static memory comes on top */
        rig_try(rig.driver.function_set(function, EXL2__CUDA_FUNCTION_DYNAMIC_MAX, (int)shared), name);
    }
    if ((rig.programmatic || cluster) && rig.arch >= 90 && rig.driver.launch_with) {
        exl2__cuda_launch_attribute attributes[] = {
            { .id = EXL2__CUDA_LAUNCH_PROGRAMMATIC, .value.on = rig.programmatic },
            { .id = EXL2__CUDA_LAUNCH_CLUSTER, .value.xyz = { x, 1, 1 } }
        };
        exl2__cuda_launch launch = { { x, y, z }, { threads, 1, 1 }, shared, rig.stream, attributes, cluster ? 2 : 1 };
        rig_try(rig.driver.launch_with(&launch, function, arguments, NULL), name);
        return;
    }
    rig_try(rig.driver.launch(function, x, y, z, threads, 1, 1, shared, rig.stream, arguments, NULL), name);
}

static uint32_t attend_class(const attend_scene *s) { return s->dim <= 64 ? 0 : s->dim <= 128 ? 1 : 2; }

/* Stores K and V of the rows in a quantized cache. */
static void attend_quantize(const attend_modules *m, const attend_scene *s, uint32_t rows, exl2k_attend_args *a)
{
    attend_launch(&m->quantize, "exl2k_attend_quantize", rows, (s->kv_heads + 1) / 2, 1, 128, 0, a, false);
}

/* Whether decode of the scene may run by exl2k_attend_decode_crowd128. */
static bool attend_has_crowd(const attend_scene *s)
{
    return rig_exists("attend_decode_crowd128.cu") && attend_class(s) == 1 && !s->codes;
}

static void attend_decode_launch(const attend_modules *m, const attend_scene *s, uint32_t rows, uint32_t stages,
                                 uint64_t pages)
{
    static const char *const names[3][3] = {
        { "exl2k_attend_decode64", "exl2k_attend_decode128", "exl2k_attend_decode256" },
        { "exl2k_attend_codes64", "exl2k_attend_codes128", "exl2k_attend_codes256" },
        { "exl2k_attend_decode_few64", "exl2k_attend_decode_few128", "exl2k_attend_decode_few256" }
    };
    static const uint32_t warps[] = { EXL2K_WARPS64, EXL2K_WARPS128, EXL2K_WARPS256 };
    exl2k_attend_args a = attend_args(s, stages, pages);
    uint32_t kind = attend_class(s), tiles = (s->heads / s->kv_heads + EXL2K_HEAD_TILE - 1) / EXL2K_HEAD_TILE;
    bool crowd = s->crowd && attend_has_crowd(s), clusters = rig.arch >= 90 && !s->no_cluster && !crowd;
    bool cluster = clusters && s->splits > 1 && s->splits <= EXL2K_CLUSTER_MAX;
    uint32_t sums = EXL2K_SUMS_BYTES(64u << kind), most = (uint32_t)rig.shared_optin - 21504; /* less static memory */
    cluster = cluster && warps[kind] * sums + EXL2K_INBOX_BYTES(s->splits, s->dim) <= most; /* as in cuda_attend.h */
    uint32_t inbox = cluster ? EXL2K_INBOX_BYTES(s->splits, s->dim) : 0;
    a.early = s->early;
    a.stores = s->stores;
    uint32_t slot = s->codes ? EXL2K_CODES_SLOT(s->key_bits, s->value_bits, 2u << kind) : sums;
    while (warps[kind] * a.stages * slot + inbox > most) {
        a.stages--;
    }
    a.ring_bytes = exl2__max32(a.stages * slot, sums);
    if (s->codes && !s->stores) {
        attend_quantize(m, s, rows, &a);
    }
    bool few = rows <= EXL2K_KEPT && !s->norm[0] && !s->norm[1] && !s->any_rows; /* as in cuda_attend.h */
    uint32_t set = s->codes ? 1 : few ? 2 : 0;
    const rig_module *module = s->codes ? &m->codes[kind] : few ? &m->few[kind] : &m->decode[kind];
    uint32_t splits = s->splits ? s->splits : EXL2K_SPLITS_MAX;
    if (crowd) { /* half of the warps, each with a second chain of sums */
        attend_launch(&m->crowd, "exl2k_attend_decode_crowd128", splits, s->kv_heads * tiles, rows, warps[kind] * 16,
                      warps[kind] / 2 * (a.ring_bytes + sums), &a, false);
        return;
    }
    attend_launch(module, names[set][kind],
                  splits, s->kv_heads * tiles, rows, warps[kind] * 32,
                  warps[kind] * a.ring_bytes + inbox, &a, cluster);
}

/* Uploads rows [first, first + count) of the scene with their tiles, and poisons the outputs. Returns the number of
   tiles. */
static uint32_t attend_upload(attend_scene *s, uint32_t first, uint32_t count)
{
    uint32_t group = s->heads / s->kv_heads, tiles = 0, bytes = s->flags & ATTEND_HALF ? 2 : 4;
    for (uint32_t r = 0; r < count;) {
        uint32_t rows = 1;
        while (r + rows < count && s->row[first + r + rows].sequence == s->row[first + r].sequence) {
            rows++;
        }
        for (uint32_t pair = 0; pair < rows * group; pair += EXL2K_TILE_PAIRS) {
            exl2k_tile tile = { r, rows, pair, 0 };
            rig_upload(s->tiles, tiles++ * sizeof tile, &tile, sizeof tile);
        }
        r += rows;
    }
    exl2k_pass step = { .row_count = s->present < count ? s->present : count, .tile_count = tiles,
                        .table_pitch = s->table_pitch, .tables = s->tables.address, .tiles = s->tiles.address };
    rig_upload(s->step, 0, &step, sizeof step);
    rig_upload(s->rows_at, 0, s->row + first, count * sizeof *s->row);
    rig_poison(s->out);
    if (s->rotates) { /* the launch before has changed the queries */
        rig_upload(s->inputs, 0, s->qkv, (size_t)s->rows * s->qkv_pitch * bytes);
    }
    return tiles;
}

/* The scene with the addresses of inputs and outputs moved, so that a launch begins at row `first`. */
static attend_scene attend_shifted(const attend_scene *s, uint32_t first)
{
    attend_scene shifted = *s;
    shifted.inputs.address += (uint64_t)first * s->qkv_pitch * (s->flags & ATTEND_HALF ? 2 : 4);
    shifted.out.address += (uint64_t)first * s->out_pitch * 2;
    return shifted;
}

/* The largest number of splits of a row. */
static uint32_t attend_splits(const attend_scene *s, uint32_t first, uint32_t count)
{
    uint32_t most = 1;
    for (uint32_t r = first; r < first + count; r++) {
        uint32_t position = s->row[r].position, tokens = position + 1 - attend_begin(s, position);
        uint32_t each = EXL2K_SPLIT_LENGTH(tokens);
        most = exl2__max32(most, (tokens + each - 1) / each);
    }
    return most;
}

static void attend_decode(const attend_modules *m, attend_scene *s, uint32_t first, uint32_t count, uint32_t stages)
{
    attend_upload(s, first, count);
    attend_scene shifted = attend_shifted(s, first);
    attend_decode_launch(m, &shifted, count, stages, s->pages.address);
    rig_wait();
}

/* Whether the GPU has a prefill by wgmma for heads of this size. */
static bool attend_has_wg(uint32_t dim) { return rig_exists("attend_wg64.cu") && dim <= 128; }

/* Whether exl2k_attend_store_queries can store K and V of the scene. */
static bool attend_can_rotate(const attend_scene *s)
{
    return s->wg && !s->codes && !(s->flags & ATTEND_HALF) && s->dim % 16 == 0
           && attend_args(s, 1, 0).rope_split == s->dim / 2;
}

/* Prefill without its storing and permuting. */
static void attend_rows_launch(const attend_modules *m, const attend_scene *s, uint32_t rows, exl2k_attend_args *a)
{
    static const char *const names[] = { "exl2k_attend_prefill64", "exl2k_attend_prefill128",
                                         "exl2k_attend_prefill256" };
    uint32_t kind = attend_class(s), tiles = rows * (s->heads / s->kv_heads) / EXL2K_TILE_PAIRS + ATTEND_SEQUENCES;
    if (s->wg) {
        attend_launch(&m->wg[kind], kind ? "exl2k_attend_wg128" : "exl2k_attend_wg64",
                      exl2__min32(tiles * s->kv_heads, s->wg), 1, 1, EXL2K_ATTEND_WG_THREADS,
                      EXL2K_ATTEND_SHARED(64u << kind), a, false);
        return;
    }
    attend_launch(&m->prefill[kind], names[kind], tiles, s->kv_heads, EXL2K_ATTEND_PARTS * (s->dim > 128 ? 2 : 1),
                  EXL2K_ATTEND_THREADS, 0, a, false);
}

static void attend_prefill_launch(const attend_modules *m, const attend_scene *s, uint32_t rows)
{
    exl2k_attend_args a = attend_args(s, 1, s->pages.address), natural = a;
    uint32_t tiles = rows * (s->heads / s->kv_heads) / EXL2K_TILE_PAIRS + ATTEND_SEQUENCES;
    bool ordered = a.map && !s->scattered;
    natural.map = ordered ? 0 : a.map;
    if (s->codes) {
        attend_quantize(m, s, rows, &a);
        attend_launch(&m->quantize, "exl2k_attend_expand", tiles, s->kv_heads, 3, 256, 0, &a, false);
        natural.pages = s->expanded.address;
        natural.page_bytes = s->page_bytes;
    } else if (s->rotates) {
        uint32_t parts = (uint32_t)exl2__div_up((s->heads + 2 * s->kv_heads) * (s->dim / 16), EXL2K_QUERIES_THREADS);
        attend_launch(&m->store, "exl2k_attend_store_queries", rows, parts, 1, EXL2K_QUERIES_THREADS, 0, &a, false);
        natural.rotated = 1;
    } else {
        attend_launch(&m->store, "exl2k_attend_store", rows, 1, 1, 256, 0, &a, false);
    }
    attend_rows_launch(m, s, rows, &natural);
    if (ordered) {
        attend_launch(&m->store, "exl2k_attend_permute", tiles, EXL2K_PERMUTE_PARTS, 1, 256, 0, &a, false);
    }
}

static void attend_prefill(const attend_modules *m, attend_scene *s, uint32_t first, uint32_t count)
{
    attend_upload(s, first, count);
    attend_scene shifted = attend_shifted(s, first);
    attend_prefill_launch(m, &shifted, count);
    rig_wait();
}

static uint16_t *attend_outputs(const attend_scene *s)
{
    uint16_t *out = take((size_t)s->rows * s->out_pitch * 2);
    rig_download(s->out, 0, out, (size_t)s->rows * s->out_pitch * 2);
    return out;
}

/* ---- comparisons ---- */

/* Outputs of rows [first, first + count) must equal `wanted` bit for bit. */
static void attend_same(const attend_scene *s, const uint16_t *wanted, uint32_t first, uint32_t count, const char *what)
{
    uint16_t *out = attend_outputs(s);
    size_t from = (size_t)first * s->out_pitch;
    if (!CHECK(memcmp(out + from, wanted + from, (size_t)count * s->out_pitch * 2) == 0)) {
        printf("  %s: rows %u.. of %u/%u heads of %u\n", what, first, s->heads, s->kv_heads, s->dim);
    }
    free(out);
}

/* Checks K and V that the GPU stored for the row, to half a unit of fp16, and copies them to host_pages. */
static void attend_check_stored(attend_scene *s, uint32_t row, const uint16_t *device)
{
    uint32_t wrong = 0, features = s->heads * s->dim;
    if (s->codes) { /* compared bit by bit, by attend_check */
        for (uint32_t head = 0; head < 2 * s->kv_heads; head++) {
            uint16_t halves[256];
            attend_halves(s, row, head % s->kv_heads, head >= s->kv_heads, halves);
            attend_put(s, s->row[row].sequence, s->row[row].position, head % s->kv_heads, head >= s->kv_heads, halves);
        }
        return;
    }
    double *k = take(s->dim * sizeof *k);
    for (uint32_t head = 0; head < 2 * s->kv_heads; head++) {
        bool value = head >= s->kv_heads;
        uint32_t feature = features + head * s->dim;
        uint16_t *to = attend_kv(s, s->row[row].sequence, s->row[row].position, head % s->kv_heads, value);
        const uint16_t *from = device + (to - s->host_pages);
        attend_rotate(s, row, feature, k);
        for (uint32_t i = 0; i < s->dim; i++) {
            double wanted = value ? attend_input(s, row, feature + i) : k[i];
            wrong += !(fabs((double)exl2__f16_to_f32(from[i]) - wanted) <= fabs(wanted) * 0x1.02p-11 + 1e-6);
            to[i] = from[i];
        }
    }
    CHECK_INT(wrong, 0);
    free(k);
}

static bool attend_page_has(const attend_scene *s, uint32_t row)
{
    size_t bytes = (size_t)s->page_count * (s->codes ? s->codes_bytes : s->page_bytes);
    uint16_t *pages = take(bytes), *at = attend_kv(s, s->row[row].sequence, s->row[row].position, 0, false);
    if (s->codes) {
        attend_codes(s, s->row[row].sequence, s->row[row].position, 0, false, &at);
    }
    rig_download(s->pages, 0, pages, bytes);
    bool has = pages[at - (s->codes ? (uint16_t *)(void *)s->codes : s->host_pages)] != 0xFFFF;
    free(pages);
    return has;
}

/* Output of one head of one row in double, from K and V of host_pages. */
static void attend_reference(const attend_scene *s, uint32_t row, uint32_t head, double *out)
{
    uint32_t begin = attend_begin(s, s->row[row].position), keys = s->row[row].position + 1;
    uint32_t kv_head = head / (s->heads / s->kv_heads);
    double *q = take(s->dim * sizeof *q), *score = take(keys * sizeof *score), most = -1e300, sum = 0, kv[256];
    attend_rotate(s, row, head * s->dim, q);
    for (uint32_t p = begin; p < keys; p++) {
        attend_read(s, s->row[row].sequence, p, kv_head, false, kv);
        score[p] = 0;
        for (uint32_t i = 0; i < s->dim; i++) {
            score[p] += q[i] * kv[i];
        }
        score[p] *= (double)s->scale;
        score[p] = s->kind.cap > 0 ? (double)s->kind.cap * tanh(score[p] / (double)s->kind.cap) : score[p];
        most = score[p] > most ? score[p] : most;
    }
    memset(out, 0, s->dim * sizeof *out);
    for (uint32_t p = begin; p < keys; p++) {
        attend_read(s, s->row[row].sequence, p, kv_head, true, kv);
        double weight = exp(score[p] - most);
        sum += weight;
        for (uint32_t i = 0; i < s->dim; i++) {
            out[i] += weight * kv[i];
        }
    }
    sum += s->kind.sinks ? exp((double)attend_sink(head) - most) : 0;
    for (uint32_t i = 0; i < s->dim; i++) {
        out[i] /= sum;
    }
    free(q);
    free(score);
}

/* To be called after all rows have run: checks stored K and V, outputs, and that nothing else was written. */
static void attend_check(attend_scene *s, const char *what)
{
    size_t bytes = (size_t)s->page_count * (s->codes ? s->codes_bytes : s->page_bytes);
    uint16_t *out = attend_outputs(s), *pages = take(bytes);
    double *wanted = take(s->dim * sizeof *wanted), *worst = &attend_worst[s->kind.format][what[0] == 'p'];
    rig_download(s->pages, 0, pages, bytes);
    for (uint32_t r = 0; r < s->rows; r++) {
        attend_check_stored(s, r, pages);
    }
    const void *expected = s->codes ? (const void *)s->codes : s->host_pages;
    if (!CHECK(memcmp(pages, expected, bytes) == 0)) {
        size_t wrong = 0, first = 0;
        for (size_t i = bytes; i-- > 0;) {
            bool differs = ((const uint8_t *)pages)[i] != ((const uint8_t *)expected)[i];
            wrong += differs;
            first = differs ? i : first;
        }
        printf("  %s: %zu of %zu bytes of pages differ, the first at %zu: %u/%u heads of %u, format %d\n", what, wrong,
               bytes, first, s->heads, s->kv_heads, s->dim, (int)s->kind.format);
    }
    for (uint32_t r = 0; r < s->rows; r += s->rows > 100 ? 3 : 1) {
        double error = 0, size = 0;
        for (uint32_t head = 0; head < s->heads; head += s->heads > 8 ? 5 : 1) {
            attend_reference(s, r, head, wanted);
            for (uint32_t i = 0; i < s->dim; i++) {
                uint32_t feature = head * s->dim + i, place = s->flags & ATTEND_PERMUTED ? s->map[feature] : feature;
                double got = (double)exl2__f16_to_f32(out[r * s->out_pitch + place]);
                error += (got - wanted[i]) * (got - wanted[i]);
                size += wanted[i] * wanted[i];
            }
        }
        error = sqrt(error / size);
        *worst = error <= *worst ? *worst : error;
        if (!CHECK(error < 1e-3)) {
            printf("  %s: row %u, position %u, %u/%u heads of %u, format %d: off by %g\n", what, r, s->row[r].position,
                   s->heads, s->kv_heads, s->dim, (int)s->kind.format, error);
        }
        for (uint32_t i = s->heads * s->dim; i < s->out_pitch; i++) {
            CHECK(out[r * s->out_pitch + i] == 0xFFFF);
        }
    }
    free(out);
    free(pages);
    free(wanted);
}

#endif
