/* product_rig.h: random matrices with any mix of bit widths for tests of kernels, in host memory and packed on the GPU.
   takes: rig.h; runs of rows with their bit widths and group sizes; kernels shuffle.cu.
   gives: product_matrix, product_make, product_order_of, product_pack, product_code, product_weight,
          product_record_code, random numbers.
   owns:  product_matrix: tables in host memory and device memory, until product_free. */
#ifndef PRODUCT_RIG_H
#define PRODUCT_RIG_H

#include "private/half.h"
#include "private/cuda_matrix.h"
#include "../../kernels_src/shuffle_args.h"
#include "rig.h"

#include <math.h>

/* ---- random numbers ---- */

static uint64_t product_state = 0x9E3779B97F4A7C15u;

static uint32_t product_random(void)
{
    product_state ^= product_state << 13;
    product_state ^= product_state >> 7;
    product_state ^= product_state << 17;
    return (uint32_t)(product_state >> 20);
}

static float product_uniform(void) { return (float)(product_random() & 0xFFFFFF) * (2.0f / 0x1000000) - 1.0f; }

/* ---- matrices ---- */

#define PRODUCT_AFFINE 256u /* added to the bits of a run: an affine matrix, as in GPTQ and AWQ, which has one run */

typedef struct product_run { /* `rows` rows of `bits` in groups of `group` rows; bits 16: dense */
    uint32_t bits, rows, group;
} product_run;

typedef struct product_part {
    exl2__matrix_desc desc;
    exl2__group *groups;
    uint32_t *words;           /* q_weight */
    uint32_t *scale_codes, *inverse;
    uint16_t *scale_max, *scales, *zeros;
    uint16_t *dense;           /* [out, in] fp16 */
    float *bias;
    exl2k_chunk *chunks;
    uint16_t (*group_of)[8];
    exl2__cuda_layout layout;
    uint64_t base;             /* offset of its strips in product_matrix.strips */
} product_part;

typedef struct product_matrix {
    product_part part[EXL2K_PARTS_MAX];
    uint32_t count, in;
    exl2k_matrix device;
    uint32_t chunk_bytes;      /* size of the largest chunk of all parts */
    uint64_t bytes;            /* size of all strips */
    rig_buffer strips, tables[EXL2K_PARTS_MAX], bias[EXL2K_PARTS_MAX];
} product_matrix;

static void *product_take(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        printf("out of memory\n");
        exit(1);
    }
    return memory;
}

/* Random halves in [-1, 1), in device memory. */
static inline rig_buffer product_random_halves(size_t count)
{
    uint16_t *values = product_take(count, 2);
    for (size_t i = 0; i < count; i++) {
        values[i] = exl2__f32_to_f16(product_uniform());
    }
    rig_buffer b = rig_buffer_of(values, count * 2);
    free(values);
    return b;
}

/* A random permutation of 0 .. count - 1, u16, in device memory. */
static inline rig_buffer product_random_map(uint32_t count)
{
    uint16_t *map = product_take(count, 2);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = product_random() % (i + 1);
        map[i] = map[k];
        map[k] = (uint16_t)i;
    }
    rig_buffer b = rig_buffer_of(map, count * 2);
    free(map);
    return b;
}

/* Random scales, and zeros from 0 to 2^bits; both are 0 in the padding. */
static void product_part_affine(product_part *p, uint32_t bits)
{
    exl2__matrix_desc *d = &p->desc;
    size_t count = (size_t)d->group_count * d->out_stored;
    p->scales = product_take(count, 2);
    p->zeros = product_take(count, 2);
    for (size_t i = 0; i < count; i++) {
        bool real = i % d->out_stored < d->out;
        float scale = 0.02f / (float)(1u << (bits - 1)) * (1.5f + product_uniform());
        p->scales[i] = real ? exl2__f32_to_f16(product_random() % 8 ? scale : -scale) : 0;
        p->zeros[i] = real ? (uint16_t)(product_random() % ((1u << bits) + 1)) : 0;
    }
    d->scales = p->scales;
    d->zeros = p->zeros;
}

/* Makes random tables and codes of one part. The scales give weights of about 0.02. */
static void product_part_make(product_part *p, const product_run *runs, uint32_t run_count, uint32_t out, bool bias)
{
    exl2__matrix_desc *d = &p->desc;
    *d = (exl2__matrix_desc){ .name = "random", .out = out, .out_stored = (out + 31) / 32 * 32, .has_bias = bias };
    d->kind = runs[0].bits == 16              ? EXL2__MATRIX_DENSE
              : runs[0].bits > PRODUCT_AFFINE ? EXL2__MATRIX_AFFINE
                                              : EXL2__MATRIX_EXL2;
    p->groups = product_take(65536 / 32, sizeof *p->groups);
    for (uint32_t i = 0; i < run_count; i++) {
        for (uint32_t left = runs[i].rows; left > 0 && d->kind != EXL2__MATRIX_DENSE;) {
            uint32_t rows = left < runs[i].group ? left : runs[i].group;
            uint32_t bits = runs[i].bits % PRODUCT_AFFINE;
            p->groups[d->group_count++] = (exl2__group){ d->in, rows, d->words, bits };
            d->in += rows;
            d->words += rows * bits / 32;
            left -= rows;
        }
        d->in += d->kind == EXL2__MATRIX_DENSE ? runs[i].rows : 0;
    }
    p->words = product_take((size_t)d->words * d->out_stored, 4);
    p->scale_codes = product_take((size_t)d->group_count * d->out_stored / 8, 4);
    p->scale_max = product_take(d->group_count, 2);
    p->bias = product_take(out, 4);
    for (size_t i = 0; i < (size_t)d->words * d->out_stored; i++) {
        p->words[i] = product_random() ^ product_random() << 12;
    }
    for (size_t i = 0; i < (size_t)d->group_count * d->out_stored / 8; i++) {
        p->scale_codes[i] = product_random() ^ product_random() << 12;
    }
    for (uint32_t g = 0; g < d->group_count; g++) {
        float size = 0.02f / (float)(1u << (p->groups[g].bits - 1)) * (1.5f + product_uniform()) / 100.0f;
        p->scale_max[g] = exl2__f32_to_f16(size);
    }
    if (d->kind == EXL2__MATRIX_DENSE) {
        p->dense = product_take((size_t)d->in * out, 2);
        for (size_t i = 0; i < (size_t)d->in * out; i++) {
            p->dense[i] = exl2__f32_to_f16(product_uniform() * 0.05f);
        }
    }
    for (uint32_t i = 0; i < out; i++) {
        p->bias[i] = product_uniform();
    }
    if (d->kind == EXL2__MATRIX_AFFINE) {
        product_part_affine(p, runs[0].bits % PRODUCT_AFFINE);
    }
    d->groups = p->groups;
    d->scale_codes = p->scale_codes;
    d->scale_max = p->scale_max;
    d->bias = bias ? p->bias : NULL;
}

#define PRODUCT_REST 32u /* n * PRODUCT_REST in `slices` sets exl2__cuda_slicing.rest to n */

/* Makes the descriptor, the chunk tables and the memory of the strips on the GPU, for parts that have been made.
   slices 0: as the backend chooses. */
static void product_lay(product_matrix *m, uint32_t count, uint32_t slices, uint32_t chunk_bytes)
{
    uint32_t shared = chunk_bytes < EXL2__CUDA_CHUNK_BYTES ? 48 * 1024 : (uint32_t)rig.shared_optin;
    const exl2__cuda_limits form = { (uint32_t)rig.sm_count, chunk_bytes, shared };
    exl2__matrix_desc descs[EXL2K_PARTS_MAX] = { { 0 } };
    uint64_t at = 0, pair = 0;
    m->count = count;
    m->in = m->part[0].desc.in;
    for (uint32_t i = 0; i < count; i++) {
        descs[i] = m->part[i].desc;
    }
    exl2__cuda_slicing cut = { slices % PRODUCT_REST, slices / PRODUCT_REST };
    cut = slices ? cut : exl2__cuda_layout_slicing(descs, count, &form);
    m->device = (exl2k_matrix){ .parts = count, .interleaved = count == 2, .slices = cut.slices, .rest = cut.rest,
                                .rows = m->in };
    for (uint32_t i = 0; i < count; i++) {
        product_part *p = &m->part[i];
        uint32_t most = exl2__cuda_layout_chunks_max(p->desc.in);
        p->chunks = product_take(most, sizeof *p->chunks);
        p->group_of = product_take(most, sizeof *p->group_of);
        exl2__cuda_layout_part(&p->layout, &p->desc, cut, chunk_bytes, p->chunks, p->group_of);
        CHECK(p->layout.count <= most);
        m->chunk_bytes = exl2__max32(m->chunk_bytes, p->layout.chunk_bytes_max);
        pair += p->layout.bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        product_part *p = &m->part[i];
        exl2k_part *d = &m->device.part[i];
        m->tables[i] = rig_buffer_of(p->chunks, p->layout.count * sizeof *p->chunks);
        m->bias[i] = rig_buffer_of(p->bias, p->desc.out * 4);
        d->pitch = (exl2k_u32)(count == 2 ? pair : p->layout.bytes);
        d->strips = exl2__cuda_strips(&p->desc);
        d->column = i ? m->device.part[i - 1].column + m->device.part[i - 1].columns : 0;
        d->columns = p->desc.out;
        d->chunks = m->tables[i].address;
        d->bias = p->desc.has_bias ? m->bias[i].address : 0;
        d->chunk_count = p->layout.count;
        memcpy(d->slice, p->layout.entries, sizeof d->slice);
        p->base = count == 2 ? (i ? m->part[0].layout.bytes : 0) : at;
        at += p->layout.bytes * d->strips;
        m->device.strips += d->strips;
        m->device.widths |= p->layout.widths;
    }
    exl2__cuda_matrix_firsts(&m->device);
    m->bytes = at;
    m->strips = rig_buffer_make(at);
    for (uint32_t i = 0; i < count; i++) {
        m->device.part[i].base = m->strips.address + m->part[i].base;
    }
}

/* The part's codes as AWQ stores them: [words * 8, out_stored / 8], each word with one row of 8 columns. */
static uint32_t *product_awq(const product_part *p)
{
    static const uint32_t order[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    const exl2__matrix_desc *d = &p->desc;
    uint32_t *words = product_take((size_t)d->words * d->out_stored, 4);
    for (uint32_t row = 0; row < d->words * 8; row++) {
        for (uint32_t n = 0; n < d->out_stored; n++) {
            uint32_t column = n / 8 * 8 + order[n % 8];
            uint32_t code = p->words[(size_t)(row / 8) * d->out_stored + column] >> row % 8 * 4 & 15;
            words[((size_t)row * d->out_stored + n) / 8] |= code << n % 8 * 4;
        }
    }
    return words;
}

/* The columns that places have if column n has place map[n]: u16 [count, rounded up to a multiple of 32]. */
static inline uint16_t *product_order_of(const uint16_t *map, uint32_t count)
{
    uint16_t *order = product_take((count + 31) / 32 * 32, 2);
    for (uint32_t i = 0; i < (count + 31) / 32 * 32; i++) {
        order[i < count ? map[i] : i] = (uint16_t)i;
    }
    return order;
}

/* Packs all parts with the kernels of shuffle.cu. Each launch packs the codes of at most `slab` chunks. order: u16
   [out_stored], the column that each place has, and for the biases; NULL: columns stay as they are. */
static void product_pack(product_matrix *m, const rig_module *shuffle, uint32_t slab, const uint16_t *order)
{
    rig_buffer columns = { 0 };
    for (uint32_t i = 0; i < m->count && order; i++) {
        const exl2__matrix_desc *d = &m->part[i].desc;
        float *bias = product_take(d->out, sizeof *bias);
        for (uint32_t n = 0; n < d->out; n++) {
            bias[n] = m->part[i].bias[order[n]];
        }
        rig_upload(m->bias[i], 0, bias, d->out * sizeof *bias);
        free(bias);
        columns = columns.address ? columns : rig_buffer_of(order, d->out_stored * 2);
        CHECK(d->kind != EXL2__MATRIX_DENSE && columns.bytes == d->out_stored * 2);
    }
    for (uint32_t i = 0; i < m->count; i++) {
        product_part *p = &m->part[i];
        const exl2__matrix_desc *d = &p->desc;
        exl2k_shuffle_args a = { .base = m->device.part[i].base, .chunks = m->tables[i].address,
                                 .columns_from = columns.address, .pitch = m->device.part[i].pitch,
                                 .columns = d->kind == EXL2__MATRIX_DENSE ? d->out : d->out_stored };
        if (d->kind == EXL2__MATRIX_DENSE) {
            rig_buffer source = rig_buffer_of(p->dense, (size_t)d->in * d->out * 2);
            a.source = source.address;
            a.rows = d->out;
            a.inputs = d->in;
            a.records = (d->in + 63) / 64;
            rig_launch(shuffle, "exl2k_shuffle_dense", exl2__cuda_strips(d), (a.records + 7) / 8, 256, 0, &a, sizeof a);
            rig_wait();
            rig_buffer_free(&source);
            continue;
        }
        bool awq = d->kind == EXL2__MATRIX_AFFINE && d->groups[0].bits == 4 && d->words % 8 == 0;
        uint32_t *stored = awq ? product_awq(p) : p->words;
        rig_buffer words = rig_buffer_of(stored, (size_t)d->words * d->out_stored * 4);
        a.type = awq ? EXL2K_FROM_AWQ : 0;
        bool affine = d->kind == EXL2__MATRIX_AFFINE;
        size_t entries = (size_t)d->group_count * d->out_stored, bytes = affine ? entries * 2 : entries / 2;
        rig_buffer scales = rig_buffer_of(affine ? (void *)p->scales : p->scale_codes, bytes);
        rig_buffer zeros = rig_buffer_of(affine ? (void *)p->zeros : p->scale_codes, bytes);
        rig_buffer groups = rig_buffer_of(p->group_of, p->layout.count * sizeof *p->group_of);
        for (a.chunk = 0; a.chunk < p->layout.count; a.chunk += slab) {
            uint32_t chunks = exl2__min32(slab, p->layout.count - a.chunk);
            a.first = p->chunks[a.chunk].word;
            a.source = words.address + (uint64_t)a.first * d->out_stored * 4;
            rig_launch(shuffle, "exl2k_shuffle_codes", d->out_stored / 32, chunks, 256, 0, &a, sizeof a);
        }
        a.chunk = 0;
        a.source = scales.address;
        a.group_of = groups.address;
        a.zeros = zeros.address;
        rig_launch(shuffle, affine ? "exl2k_shuffle_affine" : "exl2k_shuffle_scales", d->out_stored / 16,
                   p->layout.count, affine ? EXL2K_AFFINE_THREADS : 32, 0, &a, sizeof a);
        rig_wait();
        rig_buffer_free(&zeros);
        rig_buffer_free(&words);
        if (awq) {
            free(stored);
        }
        rig_buffer_free(&scales);
        rig_buffer_free(&groups);
    }
    if (order) {
        rig_buffer_free(&columns);
    }
}

static void product_free(product_matrix *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        product_part *p = &m->part[i];
        void *all[] = { p->groups, p->words, p->scale_codes, p->scale_max, p->scales, p->zeros, p->dense, p->bias,
                        p->chunks, p->group_of };
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            free(all[k]);
        }
        rig_buffer_free(&m->tables[i]);
        rig_buffer_free(&m->bias[i]);
    }
    rig_buffer_free(&m->strips);
    *m = (product_matrix){ 0 };
}

/* ---- reference ---- */

static uint32_t product_group_of(const product_part *p, uint32_t row)
{
    uint32_t g = 0;
    while (row >= p->groups[g].row + p->groups[g].rows) {
        g++;
    }
    return g;
}

/* Code of a row in packed order and of a column: `bits` bits of the column's words, low bits first, from the group's
   first word on (formats.md, "EXL2: groups"). */
static uint32_t product_code(const product_part *p, uint32_t g, uint32_t row, uint32_t column)
{
    const exl2__group *group = &p->groups[g];
    uint32_t bit = (row - group->row) * group->bits, stride = p->desc.out_stored;
    size_t word = (size_t)(group->word + bit / 32) * stride + column;
    uint64_t pair = p->words[word];
    if (bit % 32 + group->bits > 32) {
        pair |= (uint64_t)p->words[word + stride] << 32;
    }
    return (uint32_t)(pair >> bit % 32) & ((1u << group->bits) - 1);
}

static uint32_t product_level(const product_part *p, uint32_t g, uint32_t column)
{
    return p->scale_codes[(size_t)g * (p->desc.out_stored / 8) + column / 8] >> column % 8 * 4 & 15u;
}

/* A weight of an affine matrix. rounded: fp16(fp16(code - zero) * scale), as AutoGPTQ and AutoAWQ compute it. */
static double product_affine_weight(const product_part *p, uint32_t g, uint32_t row, uint32_t column, bool rounded)
{
    size_t at = (size_t)g * p->desc.out_stored + column;
    float code = (float)((int)product_code(p, g, row, column) - (int)p->zeros[at]);
    float scale = exl2__f16_to_f32(p->scales[at]);
    return rounded ? (double)exl2__f16_to_f32(exl2__f32_to_f16(code * scale)) : (double)code * (double)scale;
}

/* A column of weights q * S in packed order. rounded: fp16(q * S), which is what the format defines. */
static void product_column(const product_part *p, uint32_t column, bool rounded, double *weights)
{
    const exl2__matrix_desc *d = &p->desc;
    if (d->kind == EXL2__MATRIX_DENSE) {
        for (uint32_t row = 0; row < d->in; row++) {
            weights[row] = (double)exl2__f16_to_f32(p->dense[(size_t)column * d->in + row]);
        }
        return;
    }
    for (uint32_t row = 0; row < d->in && d->kind == EXL2__MATRIX_AFFINE; row++) {
        weights[row] = product_affine_weight(p, product_group_of(p, row), row, column, rounded);
    }
    for (uint32_t g = 0; g < d->group_count && d->kind == EXL2__MATRIX_EXL2; g++) {
        const exl2__group *group = &p->groups[g];
        uint32_t level = product_level(p, g, column) + 1;
        float scale = exl2__f16_to_f32(exl2__f32_to_f16((float)(level * level) * exl2__f16_to_f32(d->scale_max[g])));
        for (uint32_t row = group->row; row < group->row + group->rows; row++) {
            float code = (float)((int)product_code(p, g, row, column) - (1 << (group->bits - 1)));
            float half = rounded ? exl2__f16_to_f32(exl2__f32_to_f16(code * scale)) : 0.0f;
            weights[row] = rounded ? (double)half : (double)code * (double)scale;
        }
    }
}

/* The outputs of `rows` rows, bias included: value [rows, columns of all parts]. x: [rows, in]. rounded: as
   product_column. */
static inline void product_values(const product_matrix *m, bool rounded, const double *x, uint32_t rows,
                                  uint32_t columns, double *value)
{
    double *weights = product_take(m->in + 64, sizeof *weights);
    for (uint32_t part = 0, first = 0; part < m->count; first += m->part[part++].desc.out) {
        const product_part *p = &m->part[part];
        for (uint32_t n = 0; n < p->desc.out; n++) {
            product_column(p, n, rounded, weights);
            for (uint32_t row = 0; row < rows; row++) {
                double sum = p->desc.has_bias ? (double)p->bias[n] : 0;
                for (uint32_t k = 0; k < m->in; k++) {
                    sum += weights[k] * x[(size_t)row * m->in + k];
                }
                value[(size_t)row * columns + first + n] = sum;
            }
        }
    }
    free(weights);
}

/* ---- the layout of a record (kernels_src/unpack.cuh), implemented a second time ---- */

/* The word and the bit in which bit n of a code lies, for pair i of step j; the second row of the pair lies 16 bits
   higher. */
static void product_field(uint32_t bits, uint32_t j, uint32_t i, uint32_t n, uint32_t *word, uint32_t *bit)
{
    static const uint32_t at2[2][4] = { { 4, 6, 10, 12 }, { 0, 8, 2, 14 } }, at3[4] = { 4, 7, 10, 13 };
    *word = j;
    switch (bits) {
    case 16: *word = 4 * j + i; *bit = n; break;
    case 8: *word = 2 * j + i / 2; *bit = i % 2 * 8 + n; break;
    case 4: *bit = (2 + 4 * i + n) % 16; break;
    case 2: *word = j / 2; *bit = at2[j % 2][i] + n; break;
    case 3:
        *word = j < 3 ? j : i < 3 ? i : n;
        *bit = j < 3 ? at3[i] + n : i < 3 ? n : 3;
        break;
    case 5:
        *word = j == 0 ? i / 2 : i % 2 == 0 ? j + 1 : j == 3 && i == 3 ? n : 2 * j - 2 + i / 2;
        *bit = j == 0 ? i % 2 * 10 + n : i % 2 == 0 ? i / 2 * 10 + n : j == 3 && i == 3 ? 15 : 5 + n;
        break;
    default: /* 6 bits: each half has words A, B, C */
        *word = j / 2 * 3 + (j % 2 == 0 ? i / 2 : i < 2 || n >= 4 ? 2 : i - 2);
        *bit = j % 2 == 0 || i < 2 ? i % 2 * 6 + n : n < 4 ? 12 + n : (i == 2 ? 12 : 14) + n - 4;
        break;
    }
}

/* Offset of word k of a lane in the record, in words. */
static uint32_t product_word(uint32_t bits, uint32_t k, uint32_t lane)
{
    uint32_t quads = bits / 4;
    if (k < quads * 4) {
        return k / 4 * 128 + lane * 4 + k % 4;
    }
    k -= quads * 4;
    return quads * 128 + (k < 2 && bits % 4 >= 2 ? lane * 2 + k : bits % 4 / 2 * 64 + lane);
}

/* The code (of dense matrices, the half) in row 0..63 and column 0..15 of a record. */
static uint32_t product_record_code(const uint32_t *record, uint32_t bits, uint32_t row, uint32_t column)
{
    uint32_t h = row / 32, t = row % 32 / 8, j = 2 * h + row % 8 / 4, code = 0;
    uint32_t i = row % 4 / 2 * 2 + column / 8, lane = column % 8 * 4 + t;
    for (uint32_t n = 0; n < bits; n++) {
        uint32_t word, bit;
        product_field(bits, j, i, n, &word, &bit);
        code |= (record[product_word(bits, word, lane)] >> (bit + row % 2 * 16) & 1u) << n;
    }
    return code;
}

#endif
