/* cpu_phases.h: what the phases are made of, in straight loops and without tricks: the meaning of every operation.
   takes: packed parts, rows of activations, KV pages.
   gives: exl2__cpu_ops, exl2__cpu_phases_ops (the reference, for every processor), exl2__real.
   owns:  nothing.

   Tests build this in double (EXL2__REAL), with weights rounded to f16 as ExLlamaV2 has them
   (EXL2__TEST_F16_WEIGHTS) and with K and V unrounded (EXL2__TEST_F32_KV). */
#ifndef EXL2__CPU_PHASES_H
#define EXL2__CPU_PHASES_H

#include "cpu_matrix.h"

#include <math.h>

#ifdef EXL2__REAL
typedef EXL2__REAL exl2__real;
#else
typedef float exl2__real; /* type of activations and of all arithmetic */
#endif

/* Whether the fast paths may be used at all. */
#if EXL2__X86_SIMD && !defined(EXL2__REAL) && !defined(EXL2__TEST_F16_WEIGHTS) && !defined(EXL2__TEST_F32_KV)
#define EXL2__CPU_FAST
#endif

#ifdef EXL2__TEST_F32_KV
typedef exl2__real exl2__kv;
static inline exl2__real exl2__cpu_phases_from_kv(exl2__kv x) { return x; }
static inline exl2__kv exl2__cpu_phases_to_kv(exl2__real x) { return x; }
#else
typedef uint16_t exl2__kv; /* f16 */
static inline exl2__real exl2__cpu_phases_from_kv(exl2__kv x) { return (exl2__real)exl2__f16_to_f32(x); }
static inline exl2__kv exl2__cpu_phases_to_kv(exl2__real x) { return exl2__f32_to_f16((float)x); }
#endif

/* Input rows of a part in the order of its packed rows, cut into tiles. Each lies [in, its rows], so that a kernel
   reads it straight through. */
typedef struct exl2__cpu_input {
    exl2__real *x;      /* [rows * in] in all */
    exl2__real *centre; /* [rows * blocks] what the chain of each block starts from, tiled alike; fast paths only */
    uint32_t rows, tile_rows; /* tile_rows: of exl2__cpu_ops */
} exl2__cpu_input;

/* Where share `index` of `shares` equal ones begins. */
static inline uint32_t exl2__cpu_share_start(uint32_t count, uint32_t shares, uint32_t index)
{
    return (uint32_t)((uint64_t)count * index / shares);
}

/* Rows become tiles that a call of an exl2__cpu_ops takes: of equal size where it takes at most 8, else as many of
   `most` as there are, then the rest in one of 8 or fewer, or in two. For 12: 25 = 12 + 12 + 1, 21 = 12 + 8 + 1. */
static inline uint32_t exl2__cpu_tiles(uint32_t rows, uint32_t most)
{
    return (uint32_t)exl2__div_up(rows, most) + (rows % most > 8);
}

static inline uint32_t exl2__cpu_tile_start(uint32_t rows, uint32_t most, uint32_t tile)
{
    uint32_t whole = exl2__min32(rows / most, tile);
    return most > 8 ? exl2__min32(whole * most + (tile - whole) * 8, rows)
                    : exl2__cpu_share_start(rows, exl2__cpu_tiles(rows, most), tile);
}

/* One row of these per instruction set. `n` counts rows of a tile, or queries that share a head of K and V. */
typedef struct exl2__cpu_ops {
    const char *name;
    uint32_t tile_rows, tile_queries; /* the most that one call takes; no number between 8 and that */
    /* out[i] = x[i] * weight[i] / sqrt(mean(x^2) + eps) */
    void (*norm)(const exl2__real *x, const float *weight, uint32_t count, exl2__real eps, exl2__real *out);
    /* One tile of an input: rows x [n rows, stride] -> out [in, n], centre [blocks, n]. */
    void (*gather)(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n, exl2__real *out,
                   exl2__real *centre);
    /* Columns of strips [begin, end): out [rows, stride] = input * W + bias, or added to what is there. `out` is the
       address of column 0; whole strips are written. */
    void (*product)(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin, uint32_t end,
                    exl2__real *out, size_t stride, bool add);
    /* One head, pairs (i, i + half): rotated by the angle with the given cosines and sines, then times `scale`. */
    void (*rope)(exl2__real *x, const float *cosine, const float *sine, uint32_t half, exl2__real scale);
    void (*to_kv)(const exl2__real *x, uint32_t count, exl2__kv *out);
    /* scores [n, stride] of tokens [0, tokens) of a page = q [dim, n] * K [dim, 64]. May write up to 64 of a row. */
    void (*scores)(const exl2__real *q, uint32_t n, const exl2__kv *k, uint32_t dim, uint32_t tokens,
                   exl2__real *out, size_t stride);
    /* scores [keys] -> exp(score - largest); 0 in [keys, end), end a multiple of 64. Returns 1 / sum. */
    exl2__real (*softmax)(exl2__real *scores, uint32_t keys, uint32_t end);
    /* out [n, dim_stride] += weights [n, stride] * V [tokens, dim_stride], dim_stride a multiple of 16. */
    void (*weighted_sum)(const exl2__real *weights, size_t stride, uint32_t n, const exl2__kv *v, uint32_t dim_stride,
                uint32_t tokens, exl2__real *out);
    /* gate[i] = silu(gate[i]) * up[i] */
    void (*silu)(exl2__real *gate, const exl2__real *up, uint32_t count);
} exl2__cpu_ops;

static void exl2__cpu_phases_norm(const exl2__real *x, const float *weight, uint32_t count, exl2__real eps,
                                  exl2__real *out)
{
    exl2__real sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += x[i] * x[i];
    }
    exl2__real factor = 1 / (exl2__real)sqrt((double)(sum / (exl2__real)count + eps));
    for (uint32_t i = 0; i < count; i++) {
        out[i] = x[i] * factor * (exl2__real)weight[i];
    }
}

static void exl2__cpu_phases_gather(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n,
                                    exl2__real *out, exl2__real *centre)
{
    (void)centre;
    for (uint32_t i = 0; i < p->in; i++) {
        uint32_t feature = p->order ? p->order[i] : i;
        for (uint32_t r = 0; r < n; r++) {
            out[(size_t)i * n + r] = x[r * stride + feature];
        }
    }
}

/* Weights of one block of a column -> [32]; returns the factor of their products' sum. */
static exl2__real exl2__cpu_phases_unpack(const exl2__cpu_part *p, uint32_t block, uint32_t column, exl2__real *weights)
{
    bool factored = p->source == EXL2__CPU_CODES;
#ifdef EXL2__TEST_F16_WEIGHTS
    factored = false;
#endif
    uint32_t end = exl2__min32((block + 1) * EXL2__CPU_BLOCK, p->in);
    for (uint32_t i = block * EXL2__CPU_BLOCK; i < end; i++) {
        *weights++ = factored ? (exl2__real)exl2__cpu_matrix_code(p, i, column)
                              : (exl2__real)exl2__cpu_matrix_weight(p, i, column);
    }
    return factored ? (exl2__real)exl2__cpu_matrix_group_scale(p, p->block[block].group, column) : 1;
}

#define EXL2__CPU_PHASES_TILE 16u

/* Products of n <= EXL2__CPU_PHASES_TILE rows x [in, n] with one column. */
static void exl2__cpu_phases_column(const exl2__cpu_part *p, const exl2__real *x, uint32_t n, uint32_t column,
                                    exl2__real *y)
{
    for (uint32_t r = 0; r < n; r++) {
        y[r] = 0;
    }
    for (uint32_t b = 0; b < p->blocks; b++) {
        exl2__real weights[EXL2__CPU_BLOCK];
        exl2__real scale = exl2__cpu_phases_unpack(p, b, column, weights);
        uint32_t rows = exl2__min32(p->in - b * EXL2__CPU_BLOCK, EXL2__CPU_BLOCK);
        for (uint32_t r = 0; r < n; r++) {
            exl2__real sum = 0;
            for (uint32_t i = 0; i < rows; i++) {
                sum += x[((size_t)b * EXL2__CPU_BLOCK + i) * n + r] * weights[i];
            }
            y[r] += scale * sum;
        }
    }
}

static void exl2__cpu_phases_product(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin,
                                     uint32_t end, exl2__real *out, size_t stride, bool add)
{
    for (uint32_t t = 0; t < exl2__cpu_tiles(input->rows, input->tile_rows); t++) {
        uint32_t row0 = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
        uint32_t n = exl2__cpu_tile_start(input->rows, input->tile_rows, t + 1) - row0;
        for (uint32_t column = begin * EXL2__CPU_STRIP; column < end * EXL2__CPU_STRIP; column++) {
            exl2__real y[EXL2__CPU_PHASES_TILE];
            exl2__cpu_phases_column(p, input->x + (size_t)row0 * p->in, n, column, y);
            for (uint32_t r = 0; r < n; r++) {
                exl2__real *to = &out[(row0 + r) * stride + column];
                y[r] += p->bias ? (exl2__real)p->bias[column] : 0;
                *to = add ? *to + y[r] : y[r];
            }
        }
    }
}

static void exl2__cpu_phases_rope(exl2__real *x, const float *cosine, const float *sine, uint32_t half,
                                  exl2__real scale)
{
    for (uint32_t i = 0; i < half; i++) {
        exl2__real a = x[i], b = x[i + half], c = (exl2__real)cosine[i], s = (exl2__real)sine[i];
        x[i] = (a * c - b * s) * scale;
        x[i + half] = (b * c + a * s) * scale;
    }
}

static void exl2__cpu_phases_kv(const exl2__real *x, uint32_t count, exl2__kv *out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = exl2__cpu_phases_to_kv(x[i]);
    }
}

static void exl2__cpu_phases_scores(const exl2__real *q, uint32_t n, const exl2__kv *k, uint32_t dim, uint32_t tokens,
                                    exl2__real *out, size_t stride)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            exl2__real sum = 0;
            for (uint32_t i = 0; i < dim; i++) {
                sum += q[i * n + r] * exl2__cpu_phases_from_kv(k[i * EXL2__PAGE_TOKENS + t]);
            }
            out[r * stride + t] = sum;
        }
    }
}

static exl2__real exl2__cpu_phases_softmax(exl2__real *scores, uint32_t keys, uint32_t end)
{
    exl2__real largest = scores[0], sum = 0;
    for (uint32_t t = 1; t < keys; t++) {
        largest = scores[t] > largest ? scores[t] : largest;
    }
    for (uint32_t t = 0; t < keys; t++) {
        scores[t] = (exl2__real)exp((double)(scores[t] - largest));
        sum += scores[t];
    }
    for (uint32_t t = keys; t < end; t++) {
        scores[t] = 0;
    }
    return 1 / sum;
}

static void exl2__cpu_phases_weighted_sum(const exl2__real *weights, size_t stride, uint32_t n, const exl2__kv *v,
                                 uint32_t dim_stride, uint32_t tokens, exl2__real *out)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < dim_stride; i++) {
                out[r * dim_stride + i] += weights[r * stride + t] * exl2__cpu_phases_from_kv(v[t * dim_stride + i]);
            }
        }
    }
}

static void exl2__cpu_phases_silu(exl2__real *gate, const exl2__real *up, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        gate[i] = gate[i] / (1 + (exl2__real)exp((double)-gate[i])) * up[i];
    }
}

static const exl2__cpu_ops exl2__cpu_phases_ops = {
    "reference", EXL2__CPU_PHASES_TILE, 4,
    exl2__cpu_phases_norm, exl2__cpu_phases_gather, exl2__cpu_phases_product,
    exl2__cpu_phases_rope, exl2__cpu_phases_kv,
    exl2__cpu_phases_scores, exl2__cpu_phases_softmax, exl2__cpu_phases_weighted_sum, exl2__cpu_phases_silu,
};

#endif
