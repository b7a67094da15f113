/* cpu_attend.h: norms and RoPE of q and k, storing K and V in their pages, and attention.
   takes: q, k, v of the step's rows, page tables.
   gives: exl2__cpu_attend_store_tiles (last stage of phase qkv), exl2__cpu_attend (phase attend).

   Order of sums: a score is a chain of multiply-adds over the dimensions, ascending; an output element is a chain over
   the tokens that the row sees, ascending; see also exl2__cpu_ops.softmax. The rows of a tile see different keys. Keys
   after a row's end and before its window get a weight of exactly 0, which changes no bit of a finite sum, so the
   result does not depend on how rows are divided into tiles. */
#ifndef EXL2__CPU_ATTEND_H
#define EXL2__CPU_ATTEND_H

#include "cpu_device.h"

#define EXL2__CPU_ATTEND_UNSEEN (-1e30) /* score of a key that a row does not see: e^(this - maximum) is 0 */

/* The page, or the window part, that holds K and V of the layer at a position of the row's sequence. */
EXL2__PRIVATE uint32_t exl2__cpu_attend_page(const exl2__cpu_device *d, uint32_t layer, uint32_t row, uint32_t position)
{
    const uint32_t *const *tables = exl2__cpu_device_parts(d, layer) ? d->step->part_tables : d->step->page_tables;
    return tables[d->step->rows[row].sequence][position / EXL2__PAGE_TOKENS];
}

/* Norms of the heads of q or k, or of the whole vector. `norm`: its weights are [heads, head_dim]. */
EXL2__PRIVATE void exl2__cpu_attend_norm(const exl2__cpu_device *d, const exl2__norm *norm, uint32_t heads,
                                         exl2__real *x)
{
    const exl2__shape *s = &d->shape;
    bool whole = s->qk_norm == EXL2__QK_NORM_WHOLE;
    uint32_t count = whole ? heads * s->head_dim : s->head_dim;
    for (uint32_t i = 0; i < heads * s->head_dim; i += count) {
        exl2__cpu_norm(d, norm, i, x + i, count, x + i);
    }
}

EXL2__PRIVATE void exl2__cpu_attend_clip(exl2__real *x, uint32_t count, exl2__real bound)
{
    for (uint32_t i = 0; i < count; i++) {
        x[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
    }
}

/* Rotates one head and multiplies it by `scale`. Pairs (2i, 2i + 1) are moved to (i, i + rotary / 2) before; scores do
   not depend on the order of elements, if it is the same in q and k. */
EXL2__PRIVATE void exl2__cpu_attend_rotate(const exl2__cpu_device *d, const exl2__layer *layer, uint32_t row,
                                           exl2__real *x, exl2__real scale, exl2__real *pairs)
{
    const exl2__shape *s = &d->shape;
    uint32_t half = s->rotary / 2, rotated = layer->rope == EXL2__NO_ROPE ? 0 : s->rotary;
    if (rotated && s->pairs) {
        memcpy(pairs, x, s->rotary * sizeof *x);
        for (uint32_t i = 0; i < half; i++) {
            x[i] = pairs[2 * i];
            x[i + half] = pairs[2 * i + 1];
        }
    }
    if (rotated) {
        size_t angles = exl2__cpu_device_angles(d, layer->rope, row);
        d->ops->rope(x, d->cosine + angles, d->sine + angles, half, scale);
    }
    for (uint32_t i = rotated; i < s->head_dim; i++) {
        x[i] *= scale;
    }
}

/* Norms, bounds, RoPE of the heads of q or k. */
EXL2__PRIVATE void exl2__cpu_attend_heads(const exl2__cpu_share *share, uint32_t row, const exl2__norm *norm,
                                          uint32_t heads, exl2__real *x, exl2__real scale)
{
    const exl2__cpu_device *d = share->d;
    const exl2__shape *s = &d->shape;
    bool after = s->qk_norm == EXL2__QK_NORM_HEADS_ROTATED;
    if (norm->weight && !after) {
        exl2__cpu_attend_norm(d, norm, heads, x);
    }
    if (s->clip_qkv > 0) {
        exl2__cpu_attend_clip(x, heads * s->head_dim, (exl2__real)s->clip_qkv);
    }
    for (uint32_t h = 0; h < heads; h++) {
        exl2__cpu_attend_rotate(d, share->layer, row, x + (size_t)h * s->head_dim, norm->weight && after ? 1 : scale,
                                d->task[share->task].pairs);
    }
    if (norm->weight && after) {
        exl2__cpu_attend_norm(d, norm, heads, x);
        for (uint32_t i = 0; i < heads * s->head_dim; i++) {
            x[i] *= scale;
        }
    }
}

/* The factor of q: that of scores, which may grow with the position. */
EXL2__PRIVATE exl2__real exl2__cpu_attend_scale(const exl2__shape *s, uint32_t position)
{
    double scale = (double)s->attn_scale;
    if (s->query_growth > 0) {
        double growth = log(1 + floor(position / (double)s->query_context));
        scale *= 1 + exl2__mul_double((double)s->query_growth, growth);
    }
    return (exl2__real)scale;
}

/* Stores k and v of one row as f16. */
EXL2__PRIVATE void exl2__cpu_attend_store_f16(const exl2__cpu_share *share, uint32_t row, const exl2__real *key,
                                              const exl2__real *value)
{
    const exl2__cpu_device *d = share->d;
    uint32_t position = d->step->rows[row].position, slot = position % EXL2__PAGE_TOKENS, dim = d->shape.head_dim;
    uint32_t layer = share->layer->index;
    exl2__kv *k_page = exl2__cpu_device_page(d, exl2__cpu_attend_page(d, layer, row, position), layer);
    exl2__kv *v_page = k_page + d->key_count, *rounded = d->task[share->task].key;
    for (uint32_t h = 0; h < d->shape.kv_heads; h++) {
        exl2__kv *to = k_page + (size_t)h * dim * EXL2__PAGE_TOKENS + slot;
        d->ops->to_kv(key + (size_t)h * dim, dim, rounded);
        for (uint32_t i = 0; i < dim; i++) {
            to[i * EXL2__PAGE_TOKENS] = rounded[i];
        }
        d->ops->to_kv(value + (size_t)h * dim, dim, v_page + ((size_t)h * EXL2__PAGE_TOKENS + slot) * d->value_stride);
    }
}

/* 2^-(32 - bits): a code is read as an integer that is 2^(32 - bits) times as large. */
EXL2__PRIVATE exl2__real exl2__cpu_attend_unit(const exl2__cpu_device *d, bool value)
{
    return 1 / (exl2__real)(1u << (32 - exl2__cpu_codes_bits(d->kv, value)));
}

/* Rotates q, k and v of one row for a cache of codes, and stores k and v. */
EXL2__PRIVATE void exl2__cpu_attend_store_codes(const exl2__cpu_share *share, uint32_t row, exl2__real *query,
                                                exl2__real *key, exl2__real *value)
{
    const exl2__cpu_device *d = share->d;
    uint32_t position = d->step->rows[row].position, slot = position % EXL2__PAGE_TOKENS, dim = d->shape.head_dim;
    uint32_t page = exl2__cpu_attend_page(d, share->layer->index, row, position);
    for (uint32_t h = 0; h < d->shape.heads; h++) {
        exl2__cpu_codes_rotate(query + (size_t)h * dim, dim, exl2__cpu_attend_unit(d, false));
    }
    for (uint32_t h = 0; h < d->shape.kv_heads; h++) {
        exl2__cpu_codes k = exl2__cpu_device_codes(d, page, share->layer->index, h, false);
        exl2__cpu_codes v = exl2__cpu_device_codes(d, page, share->layer->index, h, true);
        exl2__cpu_codes_rotate(key + (size_t)h * dim, dim, 1);
        exl2__cpu_codes_rotate(value + (size_t)h * dim, dim, 1);
        exl2__cpu_codes_put(key + (size_t)h * dim, &k, slot, false);
        exl2__cpu_codes_put(value + (size_t)h * dim, &v, slot, true);
    }
}

/* Prepares q and k of one row for attention, and stores k and v. */
EXL2__PRIVATE void exl2__cpu_attend_store(const exl2__cpu_share *share, uint32_t row)
{
    exl2__cpu_device *d = share->d;
    const exl2__layer *layer = share->layer;
    const exl2__shape *s = &d->shape;
    exl2__real *query = d->query + (size_t)row * d->query_stride;
    exl2__real *key = d->key + (size_t)row * d->key_stride, *value = d->value + (size_t)row * d->key_stride;
    exl2__cpu_attend_heads(share, row, &layer->q_norm, s->heads, query,
                           exl2__cpu_attend_scale(s, d->step->rows[row].position));
    exl2__cpu_attend_heads(share, row, &layer->k_norm, s->kv_heads, key, 1);
    if (s->clip_qkv > 0) {
        exl2__cpu_attend_clip(value, s->kv_heads * s->head_dim, (exl2__real)s->clip_qkv);
    }
    if (d->kv == EXL2_KV_FP16) {
        exl2__cpu_attend_store_f16(share, row, key, value);
    } else {
        exl2__cpu_attend_store_codes(share, row, query, key, value);
    }
}

/* Items: tiles of rows, the same tiles as for products. */
EXL2__PRIVATE void exl2__cpu_attend_store_tiles(const exl2__cpu_share *s)
{
    uint32_t rows = s->d->step->row_count, most = s->d->ops->tile_rows;
    uint32_t last = exl2__cpu_tile_start(rows, most, s->end);
    for (uint32_t row = exl2__cpu_tile_start(rows, most, s->begin); row < last; row++) {
        exl2__cpu_attend_store(s, row);
    }
}

/* The first key that a row sees. */
EXL2__PRIVATE uint32_t exl2__cpu_attend_begin(const exl2__layer *layer, uint32_t position)
{
    return position + 1 > layer->window ? position + 1 - layer->window : 0;
}

/* Caps the scores of a row's keys [begin, end), and gives those before its window no weight. `begin` is a multiple of
   the page size. */
EXL2__PRIVATE void exl2__cpu_attend_bound(const exl2__cpu_device *d, exl2__real *scores, uint32_t begin, uint32_t first,
                                          uint32_t end)
{
    if (d->shape.attn_softcap > 0) {
        uint32_t count = (uint32_t)exl2__align_up(end - begin, 8);
        d->ops->softcap(scores + begin, count, (exl2__real)d->shape.attn_softcap);
    }
    for (uint32_t t = begin; t < first; t++) {
        scores[t] = (exl2__real)EXL2__CPU_ATTEND_UNSEEN;
    }
}

/* As exl2__cpu_ops.softmax; a sink is one more score in the sum, of a key without a value. */
EXL2__PRIVATE exl2__real exl2__cpu_attend_softmax(const exl2__cpu_device *d, const exl2__layer *layer, uint32_t head,
                                                  exl2__real *scores, uint32_t keys, uint32_t end)
{
    if (!layer->sinks) {
        return d->ops->softmax(scores, keys, end);
    }
    double sink = (double)((const float *)(const void *)layer->sinks)[head], largest = (double)scores[0];
    for (uint32_t t = 1; t < keys; t++) {
        largest = (double)scores[t] > largest ? (double)scores[t] : largest;
    }
    double sum = 1 / (double)d->ops->softmax(scores, keys, end);
    return (exl2__real)(1 / (sum + exp(sink - largest)));
}

/* Scores [n, context_max] of queries [dim, n] with the first `tokens` tokens of a page. */
EXL2__PRIVATE void exl2__cpu_attend_scores(const exl2__cpu_device *d, uint32_t page, uint32_t layer, uint32_t head,
                                           const exl2__real *query, uint32_t n, uint32_t tokens, exl2__real *scores)
{
    uint32_t dim = d->shape.head_dim;
    if (d->kv == EXL2_KV_FP16) {
        const exl2__kv *k = exl2__cpu_device_page(d, page, layer) + (size_t)head * dim * EXL2__PAGE_TOKENS;
        d->ops->scores(query, n, k, dim, tokens, scores, d->context_max);
    } else {
        exl2__cpu_codes k = exl2__cpu_device_codes(d, page, layer, head, false);
        d->ops->scores_of_codes(query, n, &k, tokens, scores, d->context_max);
    }
}

/* Adds to `out` [n, value_stride] the V of the same tokens, times weights [n, context_max]. */
EXL2__PRIVATE void exl2__cpu_attend_weighted_sum(const exl2__cpu_device *d, uint32_t page, uint32_t layer,
                                                 uint32_t head, const exl2__real *weights, uint32_t n, uint32_t tokens,
                                                 exl2__real *out)
{
    if (d->kv == EXL2_KV_FP16) {
        const exl2__kv *v = exl2__cpu_device_page(d, page, layer) + d->key_count
                          + (size_t)head * EXL2__PAGE_TOKENS * d->value_stride;
        d->ops->weighted_sum(weights, d->context_max, n, v, d->value_stride, tokens, out);
    } else {
        exl2__cpu_codes v = exl2__cpu_device_codes(d, page, layer, head, true);
        d->ops->weighted_codes(weights, d->context_max, n, &v, tokens, out);
    }
}

/* Attention of the queries [first, first + n) of a tile. A tile has one query for each of its rows and each head that
   shares the K/V head `head`. */
EXL2__PRIVATE void exl2__cpu_attend_queries(exl2__cpu_device *d, const exl2__layer *layer, const exl2__cpu_rows *rows,
                                            uint32_t head, uint32_t first, uint32_t n, const exl2__cpu_task *task)
{
    const exl2__shape *s = &d->shape;
    uint32_t dim = s->head_dim, group = s->heads / s->kv_heads;
    uint32_t last_row = rows->row + (first + n - 1) / group, keys = exl2__step_row_end(&d->step->rows[last_row]);
    uint32_t first_position = d->step->rows[rows->row + first / group].position;
    uint32_t begin = exl2__cpu_attend_begin(layer, first_position) / EXL2__PAGE_TOKENS * EXL2__PAGE_TOKENS;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = rows->row + (first + r) / group, h = head * group + (first + r) % group;
        const exl2__real *q = d->query + (size_t)row * d->query_stride + h * dim;
        for (uint32_t i = 0; i < dim; i++) {
            task->query[i * n + r] = q[i];
        }
    }
    for (uint32_t t = begin; t < keys; t += EXL2__PAGE_TOKENS) {
        exl2__cpu_attend_scores(d, exl2__cpu_attend_page(d, layer->index, last_row, t), layer->index, head, task->query,
                                n, exl2__min32(keys - t, EXL2__PAGE_TOKENS), task->scores + t);
    }
    exl2__real *inverse = task->query; /* the queries are not needed any more */
    for (uint32_t r = 0; r < n; r++) {
        const exl2__step_row *row = &d->step->rows[rows->row + (first + r) / group];
        uint32_t row_keys = exl2__step_row_end(row);
        uint32_t end = (uint32_t)exl2__align_up(keys, EXL2__PAGE_TOKENS);
        exl2__real *scores = task->scores + (size_t)r * d->context_max;
        exl2__cpu_attend_bound(d, scores, begin, exl2__cpu_attend_begin(layer, row->position), row_keys);
        inverse[r] = exl2__cpu_attend_softmax(d, layer, head * group + (first + r) % group, scores + begin,
                                              row_keys - begin, end - begin);
    }
    memset(task->weighted, 0, (size_t)n * d->value_stride * sizeof *task->weighted);
    for (uint32_t t = begin; t < keys; t += EXL2__PAGE_TOKENS) {
        uint32_t page = exl2__cpu_attend_page(d, layer->index, last_row, t);
        exl2__cpu_attend_weighted_sum(d, page, layer->index, head, task->scores + t, n,
                                      exl2__min32(keys - t, EXL2__PAGE_TOKENS), task->weighted);
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = rows->row + (first + r) / group, h = head * group + (first + r) % group;
        exl2__real *out = d->query + (size_t)row * d->query_stride + h * dim;
        for (uint32_t i = 0; i < dim; i++) {
            out[i] = task->weighted[r * d->value_stride + i] * inverse[r];
        }
        if (d->kv != EXL2_KV_FP16) {
            exl2__cpu_codes_rotate(out, dim, exl2__cpu_attend_unit(d, true));
        }
    }
}

/* Items: pairs of an element of attend_rows and a K/V head. The result overwrites the query. */
EXL2__PRIVATE void exl2__cpu_attend(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    uint32_t group = d->shape.heads / d->shape.kv_heads, most = d->ops->tile_queries;
    for (uint32_t item = s->begin; item < s->end; item++) {
        const exl2__cpu_rows *rows = &d->attend_rows[item / d->shape.kv_heads];
        uint32_t queries = rows->count * group;
        for (uint32_t first = 0, n, t = 0; first < queries; first += n) {
            n = exl2__cpu_tile_start(queries, most, ++t) - first;
            exl2__cpu_attend_queries(d, s->layer, rows, item % d->shape.kv_heads, first, n, &d->task[s->task]);
        }
    }
}

#endif
