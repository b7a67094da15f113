/* cpu_phases.h: the operations that phases consist of, in plain loops: the reference that defines each operation.
   takes: packed parts, rows of activations, KV pages.
   gives: exl2__cpu_ops, exl2__cpu_codes, exl2__cpu_phases_ops (for tests), exl2__real.

   Tests compile this file in double (EXL2__REAL), with weights rounded to f16 as ExLlamaV2 rounds them
   (EXL2__TEST_F16_WEIGHTS), and with K and V not rounded (EXL2__TEST_F32_KV). */
#ifndef EXL2__CPU_PHASES_H
#define EXL2__CPU_PHASES_H

#include "cpu_matrix.h"

#include <math.h>

#ifdef EXL2__REAL
typedef EXL2__REAL exl2__real;
#else
typedef float exl2__real; /* type of activations and of all arithmetic */
#endif

/* a * b, rounded before it is added to something (see config.h). gcc inlines a function of the following loops in no
   other function, so this one stands before them. */
static inline exl2__real exl2__cpu_phases_mul(exl2__real a, exl2__real b)
{
#ifdef EXL2__REAL
    return a * b;
#else
    return exl2__mul_float(a, b);
#endif
}

/* x [n] = H x with the Hadamard matrix of n rows in Sylvester's order, n a power of 2. */
static inline void exl2__cpu_phases_hadamard(exl2__real *x, uint32_t n)
{
    for (uint32_t half = 1; half < n; half *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                exl2__real a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
        }
    }
}

EXL2__ROUND_TWICE_BEGIN

/* The fast paths are compiled only if exl2__real is float, and weights and KV are what they are outside of tests. */
#if !defined(EXL2__REAL) && !defined(EXL2__TEST_F16_WEIGHTS) && !defined(EXL2__TEST_F32_KV)
#define EXL2__CPU_AS_SHIPPED
#endif
#if (EXL2__X86_SIMD || EXL2__NEON_SIMD) && defined(EXL2__CPU_AS_SHIPPED)
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

/* The input of a part: rows whose features are in the order of the packed rows, divided into tiles. A tile is
   [in, rows of the tile], so that a kernel reads it from front to back. */
typedef struct exl2__cpu_input {
    exl2__real *x;      /* all tiles, rows * in elements */
    exl2__real *centre; /* the start value of each block's chain, rows * blocks elements in tiles; fast paths only. An
                           affine part has twice as many, [blocks, 2, rows of the tile]: start values and sums of x */
    uint32_t rows, tile_rows; /* tile_rows: of exl2__cpu_ops */
} exl2__cpu_input;

/* First item of share `index`, if `count` items are divided into `shares` shares of about equal size. */
static inline uint32_t exl2__cpu_share_start(uint32_t count, uint32_t shares, uint32_t index)
{
    return (uint32_t)((uint64_t)count * index / shares);
}

/* Number of tiles that `rows` rows are divided into; one call of exl2__cpu_ops computes one tile, of at most `most`
   rows. If `most` is at most 8, the tiles have about equal sizes. If it is larger, there are as many tiles of `most`
   rows as fit, and the remaining rows are one tile of at most 8 rows, or two. With most = 12: 25 = 12 + 12 + 1, 21 = 12
   + 8 + 1. */
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

/* K or V of one head in a page of a quantized cache; the layout is that of cpu_codes.h. */
typedef struct exl2__cpu_codes {
    uint8_t *codes;
    uint16_t *scales; /* f16 [ceil(dim / 32), 64] */
    uint32_t dim, bits;
} exl2__cpu_codes;

/* The operations of one instruction set. `n` is the number of rows of a tile, or of queries that share a K/V head. */
typedef struct exl2__cpu_ops {
    const char *name;
    uint32_t tile_rows, tile_queries; /* maximum of n; n is at most 8, or this maximum */
    /* out[i] = x[i] * weight[i] / sqrt(mean(x^2) + eps) */
    void (*norm)(const exl2__real *x, const float *weight, uint32_t count, exl2__real eps, exl2__real *out);
    /* Makes one tile of an input from rows x [n, stride]: out [in, n], centre [blocks, n], or [blocks, 2, n]. */
    void (*gather)(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n, exl2__real *out,
                   exl2__real *centre);
    /* The columns of strips [begin, end): out [rows, stride] = input * W + bias, or with `add` not 0
       out += add * (input * W + bias). `out` is the address of column 0; whole strips are written. */
    void (*product)(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin, uint32_t end,
                    exl2__real *out, size_t stride, exl2__real add);
    /* RoPE of one head: rotates the pairs (i, i + half) by the angles with these cosines and sines, times `scale`. */
    void (*rope)(exl2__real *x, const float *cosine, const float *sine, uint32_t half, exl2__real scale);
    void (*to_kv)(const exl2__real *x, uint32_t count, exl2__kv *out);
    /* scores [n, stride] of tokens [0, tokens) of a page = q [dim, n] * K [dim, 64]. It may write all 64 of a row. */
    void (*scores)(const exl2__real *q, uint32_t n, const exl2__kv *k, uint32_t dim, uint32_t tokens,
                   exl2__real *out, size_t stride);
    /* Replaces scores [keys] by exp(score - maximum), and scores [keys, end) by 0; end is a multiple of 64. Returns
       1 / sum. */
    exl2__real (*softmax)(exl2__real *scores, uint32_t keys, uint32_t end);
    /* out [n, dim_stride] += weights [n, stride] * V [tokens, dim_stride], dim_stride a multiple of 16. */
    void (*weighted_sum)(const exl2__real *weights, size_t stride, uint32_t n, const exl2__kv *v, uint32_t dim_stride,
                uint32_t tokens, exl2__real *out);
    /* The same two of codes, each counted as code * 2^(32 - bits): q is that much smaller, `out` of the weighted sum
       that much larger. out [n, dim rounded up to 32]; all 64 weights and scales of a page may be read. */
    void (*scores_of_codes)(const exl2__real *q, uint32_t n, const exl2__cpu_codes *k, uint32_t tokens,
                            exl2__real *out, size_t stride);
    void (*weighted_codes)(const exl2__real *weights, size_t stride, uint32_t n, const exl2__cpu_codes *v,
                           uint32_t tokens, exl2__real *out);
    /* gate[i] = act(gate[i]) * up[i], or act(gate[i]) where `up` is NULL; count is a multiple of 32 */
    void (*activate)(exl2__act act, exl2__real *gate, const exl2__real *up, uint32_t count);
    /* x[i] = cap * tanh(x[i] / cap); count is a multiple of 8 */
    void (*softcap)(exl2__real *x, uint32_t count, exl2__real cap);
    /* The same as `gather` and `product` for a matrix of EXL3, the product in whole items of four strips. NULL: those
       of cpu_exl3.h. */
    void (*exl3_gather)(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n, exl2__real *out);
    void (*exl3_product)(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin, uint32_t end,
                         exl2__real *out, size_t stride, exl2__real add);
    /* Adapters (2_graph/lora.h): t[k] = factor * sum of a[k * stride + i] x[i] for k < rank, i < in; and
       out[i] += add * sum over k of b[k * stride + i] t[k] for i < count, a multiple of 32. a, b: f16. */
    void (*shrink)(const uint16_t *a, size_t stride, uint32_t rank, uint32_t in, const exl2__real *x,
                   exl2__real factor, exl2__real *t);
    void (*expand)(const uint16_t *b, size_t stride, uint32_t rank, uint32_t count, const exl2__real *t,
                   exl2__real add, exl2__real *out);
} exl2__cpu_ops;

#if EXL2__EXL3
#define EXL2__CPU_EXL3_OPS(isa) exl2__cpu_##isa##_exl3_gather, exl2__cpu_##isa##_exl3_product,
#else
#define EXL2__CPU_EXL3_OPS(isa) NULL, NULL,
#endif

EXL2__PRIVATE void exl2__cpu_phases_norm(const exl2__real *x, const float *weight, uint32_t count, exl2__real eps,
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

/* out[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i], in double, because a mean that is large against
   the deviation would cost the bits of the variance. bias may be NULL. For every instruction set. */
EXL2__PRIVATE void exl2__cpu_phases_layer_norm(const exl2__real *x, const float *weight, const float *bias,
                                               uint32_t count, exl2__real eps, exl2__real *out)
{
    double sum = 0, square = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += (double)x[i];
    }
    double mean = sum / count;
    for (uint32_t i = 0; i < count; i++) {
        square += exl2__mul_double((double)x[i] - mean, (double)x[i] - mean);
    }
    double factor = 1 / sqrt(square / count + (double)eps);
    for (uint32_t i = 0; i < count; i++) {
        exl2__real y = exl2__cpu_phases_mul((exl2__real)(((double)x[i] - mean) * factor), (exl2__real)weight[i]);
        out[i] = bias ? y + (exl2__real)bias[i] : y;
    }
}

EXL2__PRIVATE void exl2__cpu_phases_gather(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n,
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

/* weights [32]: one block of a column. Returns the factor by which the sum of their products is multiplied. */
EXL2__PRIVATE exl2__real exl2__cpu_phases_unpack(const exl2__cpu_part *p, uint32_t block, uint32_t column,
                                                 exl2__real *weights)
{
    bool factored = exl2__cpu_matrix_is_codes(p->source);
#ifdef EXL2__TEST_F16_WEIGHTS
    factored = false;
#endif
    uint32_t end = exl2__min32((block + 1) * EXL2__CPU_BLOCK, p->in);
    for (uint32_t i = block * EXL2__CPU_BLOCK; i < end; i++) {
        *weights++ = factored ? (exl2__real)exl2__cpu_matrix_level(p, i, column)
                              : (exl2__real)exl2__cpu_matrix_weight(p, i, column);
    }
    return factored ? (exl2__real)exl2__cpu_matrix_scale(p, block, 0, column) : 1;
}

#define EXL2__CPU_PHASES_TILE 16u

/* Products of n <= EXL2__CPU_PHASES_TILE rows x [in, n] with one column. */
EXL2__PRIVATE void exl2__cpu_phases_column(const exl2__cpu_part *p, const exl2__real *x, uint32_t n, uint32_t column,
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

EXL2__PRIVATE void exl2__cpu_phases_product(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin,
                                            uint32_t end, exl2__real *out, size_t stride, exl2__real add)
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
                *to = add != 0 ? *to + add * y[r] : y[r];
            }
        }
    }
}

EXL2__PRIVATE void exl2__cpu_phases_rope(exl2__real *x, const float *cosine, const float *sine, uint32_t half,
                                         exl2__real scale)
{
    for (uint32_t i = 0; i < half; i++) {
        exl2__real a = x[i], b = x[i + half], c = (exl2__real)cosine[i], s = (exl2__real)sine[i];
        x[i] = (a * c - b * s) * scale;
        x[i + half] = (b * c + a * s) * scale;
    }
}

EXL2__PRIVATE void exl2__cpu_phases_kv(const exl2__real *x, uint32_t count, exl2__kv *out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = exl2__cpu_phases_to_kv(x[i]);
    }
}

EXL2__PRIVATE void exl2__cpu_phases_scores(const exl2__real *q, uint32_t n, const exl2__kv *k, uint32_t dim,
                                           uint32_t tokens, exl2__real *out, size_t stride)
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

EXL2__PRIVATE exl2__real exl2__cpu_phases_softmax(exl2__real *scores, uint32_t keys, uint32_t end)
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

EXL2__PRIVATE void exl2__cpu_phases_weighted_sum(const exl2__real *weights, size_t stride, uint32_t n,
                                                 const exl2__kv *v, uint32_t dim_stride, uint32_t tokens,
                                                 exl2__real *out)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < dim_stride; i++) {
                out[r * dim_stride + i] += weights[r * stride + t] * exl2__cpu_phases_from_kv(v[t * dim_stride + i]);
            }
        }
    }
}

/* The code of dimension i of a token's K, times 2^(32 - bits). */
static inline exl2__real exl2__cpu_phases_key(const exl2__cpu_codes *k, uint32_t i, uint32_t token)
{
    uint32_t fields = 32 / k->bits, at = i / fields * EXL2__PAGE_TOKENS + token;
    uint32_t word = exl2__load32(k->codes + 4 * (size_t)at) << (i % fields * k->bits);
    return (exl2__real)(int32_t)(word & ~0u << (32 - k->bits));
}

/* The same of V. */
static inline exl2__real exl2__cpu_phases_value(const exl2__cpu_codes *v, uint32_t i, uint32_t token)
{
    uint32_t groups = (uint32_t)exl2__div_up(v->dim, 32), in = i % 32;
    const uint8_t *bytes = v->codes + (size_t)(token * groups + i / 32) * 4 * v->bits;
    uint32_t code = v->bits == 8 ? bytes[in] : in < 16 ? bytes[in] & 15u : bytes[in - 16] >> 4;
    return (exl2__real)(int32_t)(code << (32 - v->bits));
}

EXL2__PRIVATE void exl2__cpu_phases_scores_of_codes(const exl2__real *q, uint32_t n, const exl2__cpu_codes *k,
                                                    uint32_t tokens, exl2__real *out, size_t stride)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            exl2__real total = 0, sum = 0;
            for (uint32_t i = 0; i < k->dim; i++) {
                sum += q[i * n + r] * exl2__cpu_phases_key(k, i, t);
                if (i % 32 == 31 || i + 1 == k->dim) {
                    total += sum * (exl2__real)exl2__f16_to_f32(k->scales[i / 32 * EXL2__PAGE_TOKENS + t]);
                    sum = 0;
                }
            }
            out[r * stride + t] = total;
        }
    }
}

EXL2__PRIVATE void exl2__cpu_phases_weighted_codes(const exl2__real *weights, size_t stride, uint32_t n,
                                                   const exl2__cpu_codes *v, uint32_t tokens, exl2__real *out)
{
    uint32_t wide = (uint32_t)exl2__align_up(v->dim, 32);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            for (uint32_t i = 0; i < v->dim; i++) {
                exl2__real scale = (exl2__real)exl2__f16_to_f32(v->scales[i / 32 * EXL2__PAGE_TOKENS + t]);
                exl2__real weight = weights[r * stride + t] * scale;
                out[r * wide + i] += weight * exl2__cpu_phases_value(v, i, t);
            }
        }
    }
}

static inline exl2__real exl2__cpu_phases_act(exl2__act act, exl2__real x)
{
    switch (act) {
    case EXL2__ACT_SILU:
    case EXL2__ACT_CLAMPED: /* exl2__cpu_activate bounds the arguments */
        break;
    case EXL2__ACT_GELU_TANH:
        return x / (1 + (exl2__real)exp(-1.5957691216057308 * (double)(x + (exl2__real)0.044715 * x * x * x)));
    case EXL2__ACT_GELU:
        return (exl2__real)(0.5 * (double)x * (1 + erf((double)x * 0.70710678118654752)));
    case EXL2__ACT_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    }
    return x / (1 + (exl2__real)exp((double)-x));
}

EXL2__PRIVATE void exl2__cpu_phases_activate(exl2__act act, exl2__real *gate, const exl2__real *up, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        exl2__real y = exl2__cpu_phases_act(act, gate[i]);
        gate[i] = up ? y * up[i] : y;
    }
}

EXL2__PRIVATE void exl2__cpu_phases_softcap(exl2__real *x, uint32_t count, exl2__real cap)
{
    for (uint32_t i = 0; i < count; i++) {
        x[i] = cap * (exl2__real)tanh((double)(x[i] / cap));
    }
}

EXL2__PRIVATE void exl2__cpu_phases_shrink(const uint16_t *a, size_t stride, uint32_t rank, uint32_t in,
                                           const exl2__real *x, exl2__real factor, exl2__real *t)
{
    for (uint32_t k = 0; k < rank; k++) {
        exl2__real sum = 0;
        for (uint32_t i = 0; i < in; i++) {
            sum += exl2__cpu_phases_mul((exl2__real)exl2__f16_to_f32(a[k * stride + i]), x[i]);
        }
        t[k] = factor * sum;
    }
}

EXL2__PRIVATE void exl2__cpu_phases_expand(const uint16_t *b, size_t stride, uint32_t rank, uint32_t count,
                                           const exl2__real *t, exl2__real add, exl2__real *out)
{
    for (uint32_t i = 0; i < count; i++) {
        exl2__real sum = 0;
        for (uint32_t k = 0; k < rank; k++) {
            sum += exl2__cpu_phases_mul((exl2__real)exl2__f16_to_f32(b[k * stride + i]), t[k]);
        }
        out[i] += exl2__cpu_phases_mul(add, sum);
    }
}

static const exl2__cpu_ops exl2__cpu_phases_ops = {
    "reference", EXL2__CPU_PHASES_TILE, 4,
    exl2__cpu_phases_norm, exl2__cpu_phases_gather, exl2__cpu_phases_product,
    exl2__cpu_phases_rope, exl2__cpu_phases_kv,
    exl2__cpu_phases_scores, exl2__cpu_phases_softmax, exl2__cpu_phases_weighted_sum,
    exl2__cpu_phases_scores_of_codes, exl2__cpu_phases_weighted_codes,
    exl2__cpu_phases_activate, exl2__cpu_phases_softcap, NULL, NULL,
    exl2__cpu_phases_shrink, exl2__cpu_phases_expand,
};

EXL2__ROUND_TWICE_END

#endif
