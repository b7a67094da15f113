/* cpu_attend.h: RoPE, storing K and V in their pages, and attention.
   takes: q, k, v of the step's rows, page tables.
   gives: exl2__cpu_attend_store_tiles (last stage of phase qkv), exl2__cpu_attend (phase attend).
   owns:  nothing.

   Order of sums: a score is a chain of multiply-adds over the dimensions, ascending; an output element is a chain over
   the tokens 0..position, ascending; see also exl2__cpu_ops.softmax. The rows of a tile have different numbers of keys.
   Keys after a row's position get a weight of exactly 0, which changes no bit of a finite sum, so the result does not
   depend on how rows are divided into tiles. */
#ifndef EXL2__CPU_ATTEND_H
#define EXL2__CPU_ATTEND_H

#include "cpu_device.h"

static uint32_t exl2__cpu_attend_page(const exl2__cpu_device *d, uint32_t row, uint32_t position)
{
    return d->step->page_tables[d->step->rows[row].sequence][position / EXL2__PAGE_TOKENS];
}

/* Applies RoPE to q and k of one row, and stores k and v. */
static void exl2__cpu_attend_store(exl2__cpu_device *d, uint32_t layer, uint32_t row, uint32_t task)
{
    const exl2__shape *s = &d->shape;
    size_t angles = (size_t)row * (s->head_dim / 2);
    const float *cosine = d->cosine + angles, *sine = d->sine + angles;
    uint32_t position = d->step->rows[row].position, slot = position % EXL2__PAGE_TOKENS;
    exl2__kv *k_page = exl2__cpu_device_page(d, exl2__cpu_attend_page(d, row, position), layer);
    exl2__kv *v_page = k_page + d->key_count, *rounded = d->task[task].key;
    for (uint32_t h = 0; h < s->heads; h++) {
        exl2__real *q = d->query + (size_t)row * d->query_stride + h * s->head_dim;
        d->ops->rope(q, cosine, sine, s->head_dim / 2, (exl2__real)s->attn_scale);
    }
    for (uint32_t h = 0; h < s->kv_heads; h++) {
        exl2__real *k = d->key + (size_t)row * d->key_stride + h * s->head_dim;
        const exl2__real *v = d->value + (size_t)row * d->key_stride + h * s->head_dim;
        exl2__kv *to = k_page + (size_t)h * s->head_dim * EXL2__PAGE_TOKENS + slot;
        d->ops->rope(k, cosine, sine, s->head_dim / 2, 1);
        d->ops->to_kv(k, s->head_dim, rounded);
        for (uint32_t i = 0; i < s->head_dim; i++) {
            to[i * EXL2__PAGE_TOKENS] = rounded[i];
        }
        d->ops->to_kv(v, s->head_dim, v_page + ((size_t)h * EXL2__PAGE_TOKENS + slot) * d->value_stride);
    }
}

/* Items: tiles of rows, the same tiles as for products. */
static void exl2__cpu_attend_store_tiles(const exl2__cpu_share *s)
{
    uint32_t rows = s->d->step->row_count, most = s->d->ops->tile_rows;
    uint32_t last = exl2__cpu_tile_start(rows, most, s->end);
    for (uint32_t row = exl2__cpu_tile_start(rows, most, s->begin); row < last; row++) {
        exl2__cpu_attend_store(s->d, s->layer->index, row, s->task);
    }
}

/* Attention of the queries [first, first + n) of a tile. A tile has one query for each of its rows and each head that
   shares the K/V head `head`. */
static void exl2__cpu_attend_queries(exl2__cpu_device *d, uint32_t layer, const exl2__cpu_rows *rows, uint32_t head,
                                     uint32_t first, uint32_t n, const exl2__cpu_task *task)
{
    const exl2__shape *s = &d->shape;
    uint32_t dim = s->head_dim, group = s->heads / s->kv_heads;
    uint32_t last_row = rows->row + (first + n - 1) / group, keys = d->step->rows[last_row].position + 1;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = rows->row + (first + r) / group, h = head * group + (first + r) % group;
        const exl2__real *q = d->query + (size_t)row * d->query_stride + h * dim;
        for (uint32_t i = 0; i < dim; i++) {
            task->query[i * n + r] = q[i];
        }
    }
    for (uint32_t t = 0; t < keys; t += EXL2__PAGE_TOKENS) {
        const exl2__kv *k = exl2__cpu_device_page(d, exl2__cpu_attend_page(d, last_row, t), layer)
                          + (size_t)head * dim * EXL2__PAGE_TOKENS;
        d->ops->scores(task->query, n, k, dim, exl2__min32(keys - t, EXL2__PAGE_TOKENS), task->scores + t,
                       d->context_max);
    }
    exl2__real *inverse = task->query; /* the queries are not needed any more */
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row_keys = d->step->rows[rows->row + (first + r) / group].position + 1;
        uint32_t end = (uint32_t)exl2__align_up(keys, EXL2__PAGE_TOKENS);
        inverse[r] = d->ops->softmax(task->scores + (size_t)r * d->context_max, row_keys, end);
    }
    memset(task->weighted, 0, (size_t)n * d->value_stride * sizeof *task->weighted);
    for (uint32_t t = 0; t < keys; t += EXL2__PAGE_TOKENS) {
        const exl2__kv *v = exl2__cpu_device_page(d, exl2__cpu_attend_page(d, last_row, t), layer) + d->key_count
                          + (size_t)head * EXL2__PAGE_TOKENS * d->value_stride;
        d->ops->weighted_sum(task->scores + t, d->context_max, n, v, d->value_stride,
                             exl2__min32(keys - t, EXL2__PAGE_TOKENS), task->weighted);
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = rows->row + (first + r) / group, h = head * group + (first + r) % group;
        exl2__real *out = d->query + (size_t)row * d->query_stride + h * dim;
        for (uint32_t i = 0; i < dim; i++) {
            out[i] = task->weighted[r * d->value_stride + i] * inverse[r];
        }
    }
}

/* Items: pairs of an element of attend_rows and a K/V head. The result overwrites the query. */
static void exl2__cpu_attend(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    uint32_t group = d->shape.heads / d->shape.kv_heads, most = d->ops->tile_queries;
    for (uint32_t item = s->begin; item < s->end; item++) {
        const exl2__cpu_rows *rows = &d->attend_rows[item / d->shape.kv_heads];
        uint32_t queries = rows->count * group;
        for (uint32_t first = 0, n, t = 0; first < queries; first += n) {
            n = exl2__cpu_tile_start(queries, most, ++t) - first;
            exl2__cpu_attend_queries(d, s->layer->index, rows, item % d->shape.kv_heads, first, n, &d->task[s->task]);
        }
    }
}

#endif
