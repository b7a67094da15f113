/* cpu_simd_template.h: products and attention with SIMD, written once and included once per instruction set.
   takes: the macros EXL2__V_* below, from cpu_avx2.h, cpu_avx512.h, cpu_neon.h and cpu_plain.h.
   gives: the functions product, scores, weighted_sum, scores_of_codes and weighted_codes of one instruction set, named
          by the macros of the includer.

   There is no include guard: each include defines the functions of one set. Every lane computes the same chain of fused
   multiply-adds for every width of vectors, so all sets give the same bits (order of sums: cpu_matrix.h, cpu_attend.h).
   In plain C (cpu_plain.h) the chain is the same, but FMA rounds twice.

   EXL2__V_NAME(name)   exl2__cpu_<isa>_name           EXL2__V_TARGET   attribute of the functions
   EXL2__V, EXL2__V_INT vectors of float, of int32     EXL2__V_LANES    lanes of both
   EXL2__V_ALONE        vectors of columns of a tile of one row; may be two strips, see LAYOUT in cpu_matrix.h
   EXL2__V_TWO          vectors of columns of a tile of two rows
   EXL2__V_ACROSS       vectors of columns of a tile of more rows, or of keys for attention: 1 or 2
   EXL2__V_ROWS         maximum rows of a tile: accumulators of so many rows by ACROSS vectors stay in registers
   EXL2__V_TILES(X)     X(n) for every number of rows that a tile can have, see exl2__cpu_ops
   EXL2__V_QUERIES(X)   X(n) for the numbers of queries that attention computes together: 1 to 4, EXL2__V_QUERIES_MOST
   EXL2__V_CODE_QUERIES(X), EXL2__V_CODE_QUERIES_MOST  the same for attention to codes; 1 to the most
   EXL2__V_SET(x) EXL2__V_LOAD(p) EXL2__V_STORE(p, v) EXL2__V_ADD(a, b) EXL2__V_FMA(a, b, c) = a * b + c
   EXL2__V_HALF(p) EXL2__V_BF16(p)   lanes widened from 16 bits
   EXL2__V_BITS(p) EXL2__V_SET_BITS(u) EXL2__V_AND(a, b) EXL2__V_FLOAT(i)   integers; FLOAT converts signed
   EXL2__V_PREFETCH(p)  asks for the memory at p, which is read later
   EXL2__V_TOPS(t, w)   t >> 2 | (w & 0xC0000000)
   EXL2__V_SHIFT(v, n)  v << n, n the same for all lanes
   EXL2__V_BYTES(p)     lanes from bytes; what lies above a lane's 8 bits does not matter */

#define EXL2__V_INLINE EXL2__FORCE_INLINE EXL2__V_TARGET
#define EXL2__V_WIDE (EXL2__CPU_STRIP / EXL2__V_LANES) /* vectors of a strip; at least 2 */
#define EXL2__V_MOST (2 * EXL2__V_WIDE)
#define EXL2__V_HAS_PAIRS (EXL2__V_ALONE > EXL2__V_WIDE)

/* sum[r][j] += x[r] * weight[j] */
EXL2__V_INLINE void EXL2__V_NAME(step)(EXL2__V sum[][EXL2__V_MOST], const EXL2__V *weight, const float *x, uint32_t n,
                                       uint32_t v)
{
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__V factor = EXL2__V_SET(x[r]);
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            sum[r][j] = EXL2__V_FMA(factor, weight[j], sum[r][j]);
        }
    }
}

/* The same for codes, which are masked and converted inside their words (see the head of cpu_matrix.h). With one row
   each weight is used at once: gcc 12 spills sums where all weights wait for their factor. */
EXL2__V_INLINE void EXL2__V_NAME(field)(EXL2__V sum[][EXL2__V_MOST], const EXL2__V_INT *word, uint32_t mask,
                                        const float *x, uint32_t n, uint32_t v)
{
    EXL2__V weight[EXL2__V_MOST], factor = EXL2__V_SET(x[0]);
    EXL2__V_INT bits = EXL2__V_SET_BITS(mask);
    EXL2__UNROLL
    for (uint32_t j = 0; j < v; j++) {
        weight[j] = EXL2__V_FLOAT(EXL2__V_AND(word[j], bits));
        if (n == 1) {
            sum[0][j] = EXL2__V_FMA(factor, weight[j], sum[0][j]);
        }
    }
    if (n > 1) {
        EXL2__V_NAME(step)(sum, weight, x, n, v);
    }
}

/* total = packed codes times n rows x [in, n], for v vectors of columns from `column` of `strip` on. n and v are
   constants of the caller. */
EXL2__V_INLINE void EXL2__V_NAME(codes)(const exl2__cpu_part *p, uint32_t strip, uint32_t column, const float *x,
                                        const float *centre, uint32_t n, uint32_t v, EXL2__V total[][EXL2__V_MOST])
{
    const uint32_t *lines = exl2__cpu_matrix_line(p, strip, 0);
    size_t pitch = exl2__cpu_matrix_pitch(p, strip), row = 2 * pitch, at = strip % 2 * EXL2__CPU_STRIP + column;
    size_t ahead = exl2__cpu_matrix_ahead(p, strip);
    const exl2__cpu_block *block = p->block, *end = block + p->blocks;
    const exl2__cpu_fields *next_kind = &exl2__cpu_fields_of[block->bits];
    const uint32_t *next_words = lines + block->line * pitch + at;
    for (; block < end; centre += n) {
        const exl2__cpu_fields *kind = n == 1 ? next_kind : &exl2__cpu_fields_of[block->bits]; /* so it is faster */
        uint32_t bits = block->bits, fields = kind->fields;
        const uint32_t *mask = kind->mask, *words = next_words;
        const uint16_t *scale = (const uint16_t *)(const void *)(lines + block->scale * pitch) + at;
        if (++block < end) { /* now, because the first products of a block would wait for its address */
            next_kind = &exl2__cpu_fields_of[block->bits];
            next_words = lines + block->line * pitch + at;
        }
        EXL2__V sum[EXL2__V_ROWS][EXL2__V_MOST];
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            EXL2__UNROLL
            for (uint32_t r = 0; r < n; r++) {
                sum[r][j] = EXL2__V_SET(centre[r]);
            }
        }
        if (exl2__cpu_matrix_is_affine(p->source)) { /* zeros, times the sums of x */
            const uint16_t *zeros = scale + row;
            centre += n;
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                EXL2__V zero = EXL2__V_HALF(zeros + j * EXL2__V_LANES);
                EXL2__UNROLL
                for (uint32_t r = 0; r < n; r++) {
                    sum[r][j] = EXL2__V_FMA(zero, EXL2__V_SET(centre[r]), sum[r][j]);
                }
            }
        }
        EXL2__V_INT tops[EXL2__V_MOST]; /* the word that is made of the top bits of all words */
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            tops[j] = EXL2__V_SET_BITS(0);
        }
        for (uint32_t w = 0; w < bits; w++, words += row) {
            EXL2__V_INT word[EXL2__V_MOST];
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                word[j] = EXL2__V_BITS(words + j * EXL2__V_LANES);
            }
            if (fields * bits < EXL2__CPU_BLOCK) {
                EXL2__UNROLL
                for (uint32_t j = 0; j < v; j++) {
                    tops[j] = EXL2__V_TOPS(tops[j], word[j]);
                }
            }
            for (uint32_t j = 0; n > 1 && j < v * EXL2__V_LANES; j += EXL2__CPU_LINE / 4) {
                EXL2__V_PREFETCH(words + row + j);   /* several rows skip the lines of other columns, which hardware */
                EXL2__V_PREFETCH(words + ahead + j); /* does not foresee; this is the same row of the next strip */
            }
            for (uint32_t f = 0; f < fields; f++, x += n) {
                EXL2__V_NAME(field)(sum, word, mask[f], x, n, v);
            }
        }
        for (uint32_t i = fields * bits; i < EXL2__CPU_BLOCK; i++, x += n) { /* none, or 30 and 31 */
            EXL2__V_NAME(field)(sum, tops, mask[i - 14], x, n, v);
        }
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            EXL2__V factor = EXL2__V_HALF(scale + j * EXL2__V_LANES);
            EXL2__UNROLL
            for (uint32_t r = 0; r < n; r++) {
                total[r][j] = EXL2__V_FMA(factor, sum[r][j], total[r][j]);
            }
        }
    }
}

/* The same for dense weights [in, 32] of any type. */
EXL2__V_INLINE void EXL2__V_NAME(dense)(const exl2__cpu_part *p, uint32_t strip, uint32_t column, const float *x,
                                        uint32_t n, uint32_t v, EXL2__V total[][EXL2__V_MOST])
{
    size_t bytes = exl2__cpu_matrix_dense_bytes(p->source);
    const uint8_t *base = p->data + strip * p->strip_bytes + column * bytes;
    for (uint32_t i = 0; i < p->in; i += EXL2__CPU_BLOCK) {
        uint32_t end = exl2__min32(i + EXL2__CPU_BLOCK, p->in);
        EXL2__V sum[EXL2__V_ROWS][EXL2__V_MOST], weight[EXL2__V_MOST];
        EXL2__UNROLL
        for (uint32_t r = 0; r < n; r++) {
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                sum[r][j] = EXL2__V_SET(0);
            }
        }
        for (uint32_t k = i; k < end; k++, x += n, base += EXL2__CPU_STRIP * bytes) {
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                const void *at = base + j * EXL2__V_LANES * bytes;
                weight[j] = p->source == EXL2__CPU_F16 ? EXL2__V_HALF(at)
                          : p->source == EXL2__CPU_BF16 ? EXL2__V_BF16(at) : EXL2__V_LOAD((const float *)at);
            }
            EXL2__V_NAME(step)(sum, weight, x, n, v);
        }
        EXL2__UNROLL
        for (uint32_t r = 0; r < n; r++) {
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                total[r][j] = EXL2__V_ADD(total[r][j], sum[r][j]);
            }
        }
    }
}

/* Writes sums [n, v vectors] plus bias to out [n, stride], or with `add` not 0 adds `add` times them to it. `out`: the
   address of column 0. */
EXL2__NOINLINE
EXL2__V_TARGET static void EXL2__V_NAME(store)(const exl2__cpu_part *p, uint32_t first, const EXL2__V *sums, uint32_t n,
                                               uint32_t v, float *out, size_t stride, float add)
{
    EXL2__UNALIGNED_MOVES();
    for (out += first; n > 0; n--, out += stride) {
        for (uint32_t j = 0; j < v; j++) {
            uint32_t at = j * EXL2__V_LANES;
            EXL2__V y = *sums++;
            y = p->bias ? EXL2__V_ADD(y, EXL2__V_LOAD(p->bias + first + at)) : y;
            EXL2__V_STORE(out + at, add != 0 ? EXL2__V_FMA(EXL2__V_SET(add), y, EXL2__V_LOAD(out + at)) : y);
        }
    }
}

/* One tile: n rows x [in, n] times v vectors of columns from `column` of `strip`. */
EXL2__V_INLINE void EXL2__V_NAME(tile)(const exl2__cpu_part *p, uint32_t strip, uint32_t column, const float *x,
                                       const float *centre, uint32_t n, uint32_t v, float *out, size_t stride,
                                       float add)
{
    EXL2__V total[EXL2__V_ROWS][EXL2__V_MOST], sums[2 * EXL2__V_ROWS];
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            total[r][j] = EXL2__V_SET(0);
        }
    }
    if (v > EXL2__V_WIDE || exl2__cpu_matrix_is_codes(p->source)) { /* only codes have pairs */
        EXL2__V_NAME(codes)(p, strip, column, x, centre, n, v, total);
    } else {
        EXL2__V_NAME(dense)(p, strip, column, x, n, v, total);
    }
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            sums[r * v + j] = total[r][j];
        }
    }
    EXL2__V_NAME(store)(p, strip * EXL2__CPU_STRIP + column, sums, n, v, out, stride, add);
}

/* A tile of n rows over one strip, ACROSS vectors of columns at a time. With one or two rows these may be too few
   chains to hide the latency of an addition, so more vectors are computed at once. */
#define EXL2__V_TILE(n)                                                                                               \
    EXL2__NOINLINE                                                                                                    \
    EXL2__V_TARGET static void EXL2__V_NAME(tile_##n)(const exl2__cpu_part *p, uint32_t strip, const float *x,        \
                                                      const float *centre, float *out, size_t stride, float add)       \
    {                                                                                                                 \
        EXL2__UNALIGNED_MOVES();                                                                                      \
        uint32_t v = n > 2 ? EXL2__V_ACROSS : n == 2 ? EXL2__V_TWO : EXL2__V_ALONE;                                   \
        v = exl2__min32(v, EXL2__V_WIDE);                                                                             \
        for (uint32_t column = 0; column < EXL2__CPU_STRIP; column += v * EXL2__V_LANES) {                            \
            EXL2__V_NAME(tile)(p, strip, column, x, centre, n, v, out, stride, add);                                  \
        }                                                                                                             \
    }

EXL2__V_TILES(EXL2__V_TILE)

/* A tile of one row over a pair of strips of codes, the first of which is even. */
EXL2__NOINLINE
EXL2__V_TARGET static void EXL2__V_NAME(pair)(const exl2__cpu_part *p, uint32_t strip, const float *x,
                                              const float *centre, float *out, float add)
{
    EXL2__UNALIGNED_MOVES();
    EXL2__V_NAME(tile)(p, strip, 0, x, centre, 1, EXL2__V_ALONE, out, 0, add);
}

EXL2__V_TARGET static void EXL2__V_NAME(product)(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin,
                                                 uint32_t end, float *out, size_t stride, float add)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t tiles = exl2__cpu_tiles(input->rows, input->tile_rows);
    bool pairs = EXL2__V_HAS_PAIRS && input->rows == 1 && exl2__cpu_matrix_is_codes(p->source);
    for (uint32_t strip = begin; strip < end; strip++) {
        if (pairs && strip % 2 == 0 && strip + 1 < end) {
            EXL2__V_NAME(pair)(p, strip++, input->x, input->centre, out, add);
            continue;
        }
        for (uint32_t t = 0; t < tiles; t++) {
            uint32_t row = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
            const float *x = input->x + (size_t)row * p->in;
            const float *centre = input->centre + exl2__cpu_matrix_start(p, row);
            float *to = out + row * stride;
            switch (exl2__cpu_tile_start(input->rows, input->tile_rows, t + 1) - row) {
#define EXL2__V_CASE(n) case n: EXL2__V_NAME(tile_##n)(p, strip, x, centre, to, stride, add); break;
                EXL2__V_TILES(EXL2__V_CASE)
#undef EXL2__V_CASE
            }
        }
    }
}

/* ---- attention ---- */

/* Number of queries, of n remaining ones, to compute together next. Only some numbers are compiled, to limit the code.
   */
EXL2__V_INLINE uint32_t EXL2__V_NAME(queries)(uint32_t n)
{
    return n >= EXL2__V_QUERIES_MOST ? EXL2__V_QUERIES_MOST : exl2__min32(n, 4);
}

/* Scores of the first n of `all` queries. */
EXL2__V_INLINE void EXL2__V_NAME(scores_of)(const float *q, uint32_t all, uint32_t n, const uint16_t *k, uint32_t dim,
                                            float *out, size_t stride)
{
    EXL2__V sum[EXL2__V_ROWS][EXL2__V_MOST], weight[EXL2__V_MOST];
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
            sum[r][j] = EXL2__V_SET(0);
        }
    }
    for (uint32_t i = 0; i < dim; i++, q += all, k += EXL2__PAGE_TOKENS) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
            weight[j] = EXL2__V_HALF(k + j * EXL2__V_LANES);
        }
        EXL2__V_NAME(step)(sum, weight, q, n, EXL2__V_ACROSS);
    }
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
            EXL2__V_STORE(out + r * stride + j * EXL2__V_LANES, sum[r][j]);
        }
    }
}

/* Weighted sums of V for v vectors of dimensions. */
EXL2__V_INLINE void EXL2__V_NAME(weighted_sum_of)(const float *weights, size_t stride, uint32_t n,
                                                  const uint16_t *values, uint32_t dim_stride, uint32_t tokens,
                                                  uint32_t v, float *out)
{
    EXL2__V sum[EXL2__V_ROWS][EXL2__V_MOST], value[EXL2__V_MOST];
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            sum[r][j] = EXL2__V_LOAD(out + r * dim_stride + j * EXL2__V_LANES);
        }
    }
    for (uint32_t t = 0; t < tokens; t++, values += dim_stride, weights++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            value[j] = EXL2__V_HALF(values + j * EXL2__V_LANES);
        }
        EXL2__UNROLL
        for (uint32_t r = 0; r < n; r++) {
            EXL2__V factor = EXL2__V_SET(weights[r * stride]);
            EXL2__UNROLL
            for (uint32_t j = 0; j < v; j++) {
                sum[r][j] = EXL2__V_FMA(factor, value[j], sum[r][j]);
            }
        }
    }
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__UNROLL
        for (uint32_t j = 0; j < v; j++) {
            EXL2__V_STORE(out + r * dim_stride + j * EXL2__V_LANES, sum[r][j]);
        }
    }
}

EXL2__V_TARGET static void EXL2__V_NAME(scores)(const float *q, uint32_t n, const uint16_t *k, uint32_t dim,
                                                uint32_t tokens, float *out, size_t stride)
{
    EXL2__UNALIGNED_MOVES();
    for (uint32_t r = 0, m; r < n; r += m, out += m * stride) {
        m = EXL2__V_NAME(queries)(n - r);
        for (uint32_t t = 0; t < tokens; t += EXL2__V_ACROSS * EXL2__V_LANES) {
            switch (m) {
#define EXL2__V_CASE(m) case m: EXL2__V_NAME(scores_of)(q + r, n, m, k + t, dim, out + t, stride); break;
                EXL2__V_QUERIES(EXL2__V_CASE)
#undef EXL2__V_CASE
            }
        }
    }
}

EXL2__V_TARGET static void EXL2__V_NAME(weighted_sum)(const float *weights, size_t stride, uint32_t n,
                                                      const uint16_t *v, uint32_t dim_stride, uint32_t tokens,
                                                      float *out)
{
    EXL2__UNALIGNED_MOVES();
    const uint32_t wide = EXL2__V_ACROSS * EXL2__V_LANES;
    uint32_t i = dim_stride / wide * wide;
    for (uint32_t r = 0, m; r < n; r += m) {
        m = EXL2__V_NAME(queries)(n - r);
        for (uint32_t j = 0; j < i; j += wide) {
            const float *w = weights + r * stride;
            float *to = out + r * dim_stride + j;
            switch (m) {
#define EXL2__V_CASE(m) \
    case m: EXL2__V_NAME(weighted_sum_of)(w, stride, m, v + j, dim_stride, tokens, EXL2__V_ACROSS, to); break;
                EXL2__V_QUERIES(EXL2__V_CASE)
#undef EXL2__V_CASE
            }
        }
    }
    for (; i < dim_stride; i += EXL2__V_LANES) { /* the last 16 dimensions, if they are only one vector */
        for (uint32_t r = 0; r < n; r++) {
            float *to = out + r * dim_stride + i;
            EXL2__V_NAME(weighted_sum_of)(weights + r * stride, stride, 1, v + i, dim_stride, tokens, 1, to);
        }
    }
}

/* ---- attention to codes (layout: cpu_codes.h) ---- */

/* As `queries`, of a smaller set; 4 are 2 and 2. */
EXL2__V_INLINE uint32_t EXL2__V_NAME(code_queries)(uint32_t n)
{
    return exl2__min32(n == 4 ? 2 : n, EXL2__V_CODE_QUERIES_MOST);
}

/* Adds to `out` the scores of the first n of `all` queries with the tokens from `token` on. The code that is next lies
   in the top bits of its word, where it is a signed integer. */
EXL2__V_INLINE void EXL2__V_NAME(code_scores_of)(const float *q, uint32_t all, uint32_t n, const exl2__cpu_codes *k,
                                                 uint32_t token, float *out, size_t stride)
{
    const uint32_t *words = (const uint32_t *)(const void *)k->codes + token, fields = 32 / k->bits;
    const uint16_t *scale = k->scales + token;
    const EXL2__V_INT top = EXL2__V_SET_BITS(~0u << (32 - k->bits));
    for (uint32_t i = 0; i < k->dim; i += 32, scale += EXL2__PAGE_TOKENS) {
        EXL2__V sum[EXL2__V_ROWS][EXL2__V_MOST], weight[EXL2__V_MOST];
        EXL2__UNROLL
        for (uint32_t r = 0; r < n; r++) {
            EXL2__UNROLL
            for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
                sum[r][j] = EXL2__V_SET(0);
            }
        }
        for (uint32_t d = i; d < exl2__min32(i + 32, k->dim); d += fields, words += EXL2__PAGE_TOKENS) {
            EXL2__V_INT word[EXL2__V_MOST];
            EXL2__UNROLL
            for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
                word[j] = EXL2__V_BITS(words + j * EXL2__V_LANES);
            }
            for (uint32_t f = 0; f < fields; f++, q += all) {
                EXL2__UNROLL
                for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
                    weight[j] = EXL2__V_FLOAT(EXL2__V_AND(word[j], top));
                    word[j] = EXL2__V_SHIFT(word[j], k->bits);
                }
                EXL2__V_NAME(step)(sum, weight, q, n, EXL2__V_ACROSS);
            }
        }
        EXL2__UNROLL
        for (uint32_t j = 0; j < EXL2__V_ACROSS; j++) {
            EXL2__V factor = EXL2__V_HALF(scale + j * EXL2__V_LANES);
            EXL2__UNROLL
            for (uint32_t r = 0; r < n; r++) {
                float *to = out + r * stride + j * EXL2__V_LANES;
                EXL2__V_STORE(to, EXL2__V_FMA(factor, sum[r][j], EXL2__V_LOAD(to)));
            }
        }
    }
}

/* Adds to a vector of dimensions, and to the one 16 dimensions later, the sums of V with weights [n, 64], which are
   multiplied by V's scales. A token's bytes lie `pitch` apart. */
EXL2__V_INLINE void EXL2__V_NAME(code_sum_of)(const float *weights, uint32_t n, const uint8_t *bytes, uint32_t bits,
                                              size_t pitch, uint32_t tokens, float *out, uint32_t dim_stride)
{
    const EXL2__V_INT top = EXL2__V_SET_BITS(~0u << (32 - bits));
    const uint32_t second = bits == 8 ? 16 : 0; /* 4 bits: in the same bytes */
    EXL2__V sum[EXL2__V_ROWS][2];
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        sum[r][0] = EXL2__V_LOAD(out + r * dim_stride);
        sum[r][1] = EXL2__V_LOAD(out + r * dim_stride + 16);
    }
    for (uint32_t t = 0; t < tokens; t++, bytes += pitch, weights++) {
        EXL2__V low = EXL2__V_FLOAT(EXL2__V_SHIFT(EXL2__V_BYTES(bytes), 32 - bits));
        EXL2__V high = EXL2__V_FLOAT(EXL2__V_AND(EXL2__V_SHIFT(EXL2__V_BYTES(bytes + second), 24), top));
        EXL2__UNROLL
        for (uint32_t r = 0; r < n; r++) {
            EXL2__V factor = EXL2__V_SET(weights[r * EXL2__PAGE_TOKENS]);
            sum[r][0] = EXL2__V_FMA(factor, low, sum[r][0]);
            sum[r][1] = EXL2__V_FMA(factor, high, sum[r][1]);
        }
    }
    EXL2__UNROLL
    for (uint32_t r = 0; r < n; r++) {
        EXL2__V_STORE(out + r * dim_stride, sum[r][0]);
        EXL2__V_STORE(out + r * dim_stride + 16, sum[r][1]);
    }
}

EXL2__V_TARGET static void EXL2__V_NAME(scores_of_codes)(const float *q, uint32_t n, const exl2__cpu_codes *k,
                                                         uint32_t tokens, float *out, size_t stride)
{
    EXL2__UNALIGNED_MOVES();
    for (uint32_t r = 0, m; r < n; r += m, out += m * stride) {
        m = EXL2__V_NAME(code_queries)(n - r);
        for (uint32_t i = 0; i < m; i++) {
            memset(out + i * stride, 0, EXL2__PAGE_TOKENS * sizeof *out);
        }
        for (uint32_t t = 0; t < tokens; t += EXL2__V_ACROSS * EXL2__V_LANES) {
            switch (m) {
#define EXL2__V_CASE(m) case m: EXL2__V_NAME(code_scores_of)(q + r, n, m, k, t, out + t, stride); break;
                EXL2__V_CODE_QUERIES(EXL2__V_CASE)
#undef EXL2__V_CASE
            }
        }
    }
}

EXL2__V_TARGET static void EXL2__V_NAME(weighted_codes)(const float *weights, size_t stride, uint32_t n,
                                                        const exl2__cpu_codes *v, uint32_t tokens, float *out)
{
    EXL2__UNALIGNED_MOVES();
    uint32_t groups = (uint32_t)exl2__div_up(v->dim, 32), wide = 32 * groups, pitch = groups * 4 * v->bits;
    float scaled[EXL2__V_CODE_QUERIES_MOST * EXL2__PAGE_TOKENS];
    for (uint32_t g = 0; g < groups; g++) {
        for (uint32_t r = 0, m; r < n; r += m) {
            m = EXL2__V_NAME(code_queries)(n - r);
            for (uint32_t t = 0; t < EXL2__PAGE_TOKENS; t += EXL2__V_LANES) {
                EXL2__V scale = EXL2__V_HALF(v->scales + g * EXL2__PAGE_TOKENS + t);
                for (uint32_t i = 0; i < m; i++) {
                    EXL2__V weight = EXL2__V_LOAD(weights + (r + i) * stride + t);
                    EXL2__V_STORE(scaled + i * EXL2__PAGE_TOKENS + t, EXL2__V_FMA(weight, scale, EXL2__V_SET(0)));
                }
            }
            for (uint32_t j = 0; j < 16; j += EXL2__V_LANES) {
                const uint8_t *bytes = v->codes + g * 4 * v->bits + j;
                float *to = out + r * wide + g * 32 + j;
                switch (m) {
#define EXL2__V_CASE(m) case m: EXL2__V_NAME(code_sum_of)(scaled, m, bytes, v->bits, pitch, tokens, to, wide); break;
                    EXL2__V_CODE_QUERIES(EXL2__V_CASE)
#undef EXL2__V_CASE
                }
            }
        }
    }
}

#undef EXL2__V_INLINE
#undef EXL2__V_WIDE
#undef EXL2__V_MOST
#undef EXL2__V_HAS_PAIRS
#undef EXL2__V_TILE
#undef EXL2__V_NAME
#undef EXL2__V_TARGET
#undef EXL2__V
#undef EXL2__V_INT
#undef EXL2__V_LANES
#undef EXL2__V_ROWS
#undef EXL2__V_ALONE
#undef EXL2__V_TWO
#undef EXL2__V_ACROSS
#undef EXL2__V_TILES
#undef EXL2__V_QUERIES
#undef EXL2__V_QUERIES_MOST
#undef EXL2__V_CODE_QUERIES
#undef EXL2__V_CODE_QUERIES_MOST
#undef EXL2__V_SET
#undef EXL2__V_LOAD
#undef EXL2__V_STORE
#undef EXL2__V_ADD
#undef EXL2__V_FMA
#undef EXL2__V_HALF
#undef EXL2__V_BF16
#undef EXL2__V_BITS
#undef EXL2__V_SET_BITS
#undef EXL2__V_AND
#undef EXL2__V_FLOAT
#undef EXL2__V_TOPS
#undef EXL2__V_SHIFT
#undef EXL2__V_BYTES
#undef EXL2__V_PREFETCH

/* Those of cpu_exl3_template.h, which is included before. */
#undef EXL2__V_FUNNEL
#undef EXL2__V_JOIN
#undef EXL2__V_TAKE
#undef EXL2__V_TAKE_AT
#undef EXL2__V_TAKE_INDEX
#undef EXL2__V_TAKES
#undef EXL2__V_SHRI
#undef EXL2__V_SRAI
#undef EXL2__V_INT_ADD
#undef EXL2__V_INT_SUB
#undef EXL2__V_INT_MUL
#undef EXL2__V_MASK_XOR
#undef EXL2__V_BITS_FLOAT
#undef EXL2__V_SUM_BYTES
#undef EXL2__V_SUM_BASE
#undef EXL2__V_SUM_TIMES
#undef EXL2__V_SUM_LESS
#undef EXL2__V_LOW
#undef EXL2__V_OPAQUE
#undef EXL2__V_SUB
#undef EXL2__V_MUL
#undef EXL2__V_PICK
#undef EXL2__V_PICK_NEAR
#undef EXL2__V_PICK_INDEX
#undef EXL2__V_NEAR
#undef EXL2__V_BY_BYTES
#undef EXL2__V_HALVES
#undef EXL2__V_SHUFFLE
#undef EXL2__V_OR
#undef EXL2__V_FIRST
#undef EXL2__V_FOURS
#undef EXL2__V_SWAP1
#undef EXL2__V_SWAP2
#undef EXL2__V_SWAP4
#undef EXL2__V_SWAP8
#undef EXL2__V_FOLD
#undef EXL2__V_UNROLL
#undef EXL2__V_EXL3_ROWS
#undef EXL2__V_EXL3_ROWS_MOST
