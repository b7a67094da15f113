/* tower_stages.h: the stages of a tower on the CPU; the items of a stage are independent.
   takes: a tower with a pass that has begun (tower_run.h).
   gives: exl2__tower_stage_run and what it needs: the items of a stage, and their cost.

   Sources of the formulas: modeling_siglip.py, modeling_clip.py, modeling_pixtral.py, modeling_qwen2_vl.py,
   modeling_qwen2_5_vl.py, modeling_qwen3_vl.py, modeling_gemma3.py, modeling_idefics3.py, modeling_mistral3.py and
   modeling_llava.py of transformers 5. */
#ifndef EXL2__TOWER_STAGES_H
#define EXL2__TOWER_STAGES_H

#include "tower.h"

#ifndef EXL2_NO_VISION

/* First row of the current block, and the number of its rows. After COMBINE they are rows of the result. */
static inline uint32_t exl2__tower_block_row(const exl2__tower *t)
{
    return t->block * EXL2__TOWER_BLOCK;
}

static inline uint32_t exl2__tower_block_rows(const exl2__tower *t)
{
    uint32_t all = t->stage >= EXL2__TOWER_COMBINE ? t->out_rows : t->rows_now;
    return exl2__min32(all - exl2__tower_block_row(t), EXL2__TOWER_BLOCK);
}

/* Rows of a chunk of a block. */
static inline uint32_t exl2__tower_chunk_rows(const exl2__tower *t, uint32_t chunk)
{
    return exl2__min32(exl2__tower_block_rows(t) - chunk * EXL2__TOWER_CHUNK, EXL2__TOWER_CHUNK);
}

static inline exl2__cpu_part *exl2__tower_matrix(exl2__cpu_matrix *m) { return &m->parts[0]; }

static inline const exl2__tower_projector *exl2__tower_projector_now(const exl2__tower *t)
{
    return &t->projector[t->level_now];
}

static inline exl2__cpu_part *exl2__tower_first_matrix(const exl2__tower *t)
{
    const exl2__tower_projector *p = exl2__tower_projector_now(t);
    return exl2__tower_matrix(p->merge ? p->merge : p->linear1);
}

EXL2__PRIVATE void exl2__tower_norm_row(const exl2__tower *t, const exl2__tower_norm *norm, bool rms, float eps,
                                        uint32_t count, const float *x, float *out)
{
    if (!norm->weight) {
        memmove(out, x, count * sizeof *out);
    } else if (rms) {
        t->ops->norm(x, norm->weight, count, eps, out);
    } else {
        exl2__cpu_phases_layer_norm(x, norm->weight, norm->bias, count, eps, out);
    }
}

/* The rows of a chunk that a tile has. */
typedef struct exl2__tower_tile { uint32_t row, count; } exl2__tower_tile;

static inline exl2__tower_tile exl2__tower_tile_of(const exl2__tower *t, uint32_t rows, uint32_t tile)
{
    uint32_t row = exl2__cpu_tile_start(rows, t->ops->tile_rows, tile);
    return (exl2__tower_tile){ row, exl2__cpu_tile_start(rows, t->ops->tile_rows, tile + 1) - row };
}

/* Brings rows x [n, stride] of a chunk's tile into the order of a product's input. Dense matrices have no centre. */
EXL2__PRIVATE void exl2__tower_gather(const exl2__tower *t, const exl2__cpu_part *p, uint32_t chunk,
                                      exl2__tower_tile tile, const float *x, size_t stride)
{
    float *out = t->input + ((size_t)chunk * EXL2__TOWER_CHUNK + tile.row) * p->in;
    t->ops->gather(p, x, stride, tile.count, out, out);
}

/* Items: chunks of the block, whose rows are gathered from x [rows, stride] without a norm. */
EXL2__PRIVATE void exl2__tower_gather_chunks(const exl2__tower *t, const exl2__cpu_part *p, const float *x,
                                             size_t stride, uint32_t begin, uint32_t end)
{
    for (uint32_t chunk = begin; chunk < end; chunk++) {
        uint32_t rows = exl2__tower_chunk_rows(t, chunk);
        for (uint32_t i = 0; i < exl2__cpu_tiles(rows, t->ops->tile_rows); i++) {
            exl2__tower_tile tile = exl2__tower_tile_of(t, rows, i);
            exl2__tower_gather(t, p, chunk, tile, x + ((size_t)chunk * EXL2__TOWER_CHUNK + tile.row) * stride, stride);
        }
    }
}

/* The same of rows of the residual after a norm. */
EXL2__PRIVATE void exl2__tower_norm_chunks(const exl2__tower *t, const exl2__cpu_part *p, const exl2__tower_norm *norm,
                                           uint32_t begin, uint32_t end, uint32_t task)
{
    float *x = t->task[task].rows;
    for (uint32_t chunk = begin; chunk < end; chunk++) {
        uint32_t rows = exl2__tower_chunk_rows(t, chunk), first = exl2__tower_block_row(t) + chunk * EXL2__TOWER_CHUNK;
        for (uint32_t i = 0; i < exl2__cpu_tiles(rows, t->ops->tile_rows); i++) {
            exl2__tower_tile tile = exl2__tower_tile_of(t, rows, i);
            for (uint32_t r = 0; r < tile.count; r++) {
                exl2__tower_norm_row(t, norm, t->config.row->rms, t->config.eps, t->config.width,
                                     t->residual + (size_t)(first + tile.row + r) * t->stride,
                                     x + (size_t)r * t->config.width);
            }
            exl2__tower_gather(t, p, chunk, tile, x, t->config.width);
        }
    }
}

/* Strips [begin, end) of a chunk of the block: out [rows of the block, stride]. */
EXL2__PRIVATE void exl2__tower_product(const exl2__tower *t, const exl2__cpu_part *p, uint32_t chunk, uint32_t begin,
                                       uint32_t end, float *out, size_t stride, float add)
{
    float *x = t->input + (size_t)chunk * EXL2__TOWER_CHUNK * p->in;
    exl2__cpu_input input = { x, x, exl2__tower_chunk_rows(t, chunk), t->ops->tile_rows };
    t->ops->product(p, &input, begin, end, out + (size_t)chunk * EXL2__TOWER_CHUNK * stride, stride, add);
}

/* Items: chunks times strips, those of a chunk one after the other. */
EXL2__PRIVATE void exl2__tower_products(const exl2__tower *t, const exl2__cpu_part *p, float *out, size_t stride,
                                        float add, uint32_t begin, uint32_t end)
{
    for (uint32_t to; begin < end; begin = to) {
        uint32_t chunk = begin / p->strips;
        to = exl2__min32(end, (chunk + 1) * p->strips);
        exl2__tower_product(t, p, chunk, begin % p->strips, (to - 1) % p->strips + 1, out, stride, add);
    }
}

/* x [count] = act(x) * up, or act(x); quick_gelu(x) = silu(1.702 x) / 1.702. count: a multiple of 32. */
EXL2__PRIVATE void exl2__tower_activate(const exl2__tower *t, exl2__vision_act act, float *x, const float *up,
                                        uint32_t count)
{
    static const exl2__act acts[] = { EXL2__ACT_SILU, EXL2__ACT_GELU, EXL2__ACT_GELU_TANH, EXL2__ACT_SILU,
                                      EXL2__ACT_SILU };
    bool quick = act == EXL2__VISION_ACT_QUICK_GELU;
    for (uint32_t i = 0; quick && i < count; i++) {
        x[i] *= 1.702f;
    }
    t->ops->activate(acts[act], x, up, count);
    for (uint32_t i = 0; quick && i < count; i++) {
        x[i] *= 1 / 1.702f;
    }
}

/* ---- from pixels to the residual ---- */

/* Items: lines, then columns of patches. */
EXL2__PRIVATE void exl2__tower_angles(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    uint32_t quarter = t->config.head_dim / 4, lines = t->rows_now ? t->patch_rows : 0;
    double d = (double)t->config.head_dim;
    bool split = t->config.row->rope == EXL2__VISION_ROPE_SPLIT;
    (void)task;
    for (uint32_t i = begin; i < end; i++) {
        bool column = i >= lines;
        uint32_t place = column ? i - lines : i;
        float *out = t->angles + ((size_t)(column ? t->sides_max : 0) + place) * 2 * quarter;
        for (uint32_t j = 0; j < quarter; j++) {
            double power = split ? (4.0 * j + (column ? 2 : 0)) / d : 4.0 * j / d;
            double angle = place * pow(t->config.theta, -power);
            out[j] = (float)cos(angle);
            out[quarter + j] = (float)sin(angle);
        }
    }
}

/* The inputs of a patch: channel, frame, line, column. A still picture is two equal frames, as is the last frame of an
   odd number. */
EXL2__PRIVATE void exl2__tower_patch(const exl2__tower *t, uint32_t patch, float *out)
{
    const exl2__vision_config *v = &t->config;
    uint32_t p = v->patch, columns = t->size.width / p, line = (uint32_t)t->size.width * 3;
    size_t apart = exl2__vision_tile_frames(&t->size, t->tile) > 1 ? exl2__vision_tile_bytes(&t->size) : 0;
    const uint8_t *first = t->seen + exl2__vision_tile_at(&t->size, t->tile)
                         + (size_t)(patch / columns) * p * line + (size_t)(patch % columns) * p * 3;
    for (uint32_t channel = 0; channel < 3; channel++) {
        for (uint32_t f = 0; f < v->frames; f++) {
            const uint8_t *from = first + f * apart;
            for (uint32_t y = 0; y < p; y++) {
                for (uint32_t x = 0; x < p; x++) {
                    *out++ = t->level[channel][from[(size_t)y * line + x * 3 + channel]];
                }
            }
        }
    }
}

/* Items: chunks. The class row is a patch of zeros here. */
EXL2__PRIVATE void exl2__tower_patches(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__cpu_part *p = exl2__tower_matrix(t->patch);
    uint32_t before = t->config.class_row;
    float *x = t->task[task].rows;
    for (uint32_t chunk = begin; chunk < end; chunk++) {
        uint32_t rows = exl2__tower_chunk_rows(t, chunk), first = exl2__tower_block_row(t) + chunk * EXL2__TOWER_CHUNK;
        for (uint32_t i = 0; i < exl2__cpu_tiles(rows, t->ops->tile_rows); i++) {
            exl2__tower_tile tile = exl2__tower_tile_of(t, rows, i);
            for (uint32_t r = 0; r < tile.count; r++) {
                uint32_t row = first + tile.row + r;
                if (row < before) {
                    memset(x + (size_t)r * p->in, 0, p->in * sizeof *x);
                } else {
                    exl2__tower_patch(t, t->order[row - before], x + (size_t)r * p->in);
                }
            }
            exl2__tower_gather(t, p, chunk, tile, x, p->in);
        }
    }
}

EXL2__PRIVATE void exl2__tower_embed(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_products(t, exl2__tower_matrix(t->patch), t->residual + (size_t)exl2__tower_block_row(t) * t->stride,
                         t->stride, 0, begin, end);
}

/* Adds the table of side x side places, stretched over the patches with corners on corners. */
EXL2__PRIVATE void exl2__tower_add_bilinear(const exl2__tower *t, uint32_t patch, float *x)
{
    const exl2__cpu_part *table = exl2__tower_matrix(t->positions);
    uint32_t side = t->config.side, columns = t->size.width / t->config.patch, lines = t->patch_rows;
    double y = lines > 1 ? (double)(patch / columns) * (side - 1) / (lines - 1) : 0;
    double z = columns > 1 ? (double)(patch % columns) * (side - 1) / (columns - 1) : 0;
    uint32_t y0 = (uint32_t)y, z0 = (uint32_t)z;
    uint32_t y1 = exl2__min32(y0 + 1, side - 1), z1 = exl2__min32(z0 + 1, side - 1);
    float fy = (float)(y - y0), fz = (float)(z - z0);
    for (uint32_t i = 0; i < t->config.width; i++) {
        float upper = exl2__mul_float(exl2__cpu_matrix_weight(table, i, y0 * side + z0), 1 - fz)
                    + exl2__mul_float(exl2__cpu_matrix_weight(table, i, y0 * side + z1), fz);
        float lower = exl2__mul_float(exl2__cpu_matrix_weight(table, i, y1 * side + z0), 1 - fz)
                    + exl2__mul_float(exl2__cpu_matrix_weight(table, i, y1 * side + z1), fz);
        x[i] += exl2__mul_float(upper, 1 - fy) + exl2__mul_float(lower, fy);
    }
}

/* Items: rows of the block. */
EXL2__PRIVATE void exl2__tower_places(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__vision_config *v = &t->config;
    (void)task;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t row = exl2__tower_block_row(t) + i;
        float *x = t->residual + (size_t)row * t->stride;
        uint32_t place = row < v->class_row ? 0 : t->order[row - v->class_row] + v->class_row;
        if (row < v->class_row) {
            memcpy(x, t->class_row, v->width * sizeof *x);
        }
        for (uint32_t j = 0; v->row->table == EXL2__VISION_TABLE_PLACES && j < v->width; j++) {
            x[j] += exl2__cpu_matrix_weight(exl2__tower_matrix(t->positions), j, place);
        }
        if (v->row->table == EXL2__VISION_TABLE_BILINEAR) {
            exl2__tower_add_bilinear(t, place, x);
        }
        if (t->pre_norm.weight) {
            exl2__tower_norm_row(t, &t->pre_norm, v->row->rms, v->eps, v->width, x, x);
        }
    }
}

/* ---- attention ---- */

EXL2__PRIVATE void exl2__tower_norm1(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__tower_layer *layer = &t->layers[t->layer];
    exl2__tower_norm_chunks(t, exl2__tower_matrix(layer->qkv[0]), &layer->norm1, begin, end, task);
}

/* Items: chunks times strips of q, then of k, then of v. */
EXL2__PRIVATE void exl2__tower_qkv(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__tower_layer *layer = &t->layers[t->layer];
    uint32_t first = 0, chunks = (uint32_t)exl2__div_up(exl2__tower_block_rows(t), EXL2__TOWER_CHUNK);
    (void)task;
    for (uint32_t i = 0; i < 3 && layer->qkv[i]; i++) {
        const exl2__cpu_part *p = exl2__tower_matrix(layer->qkv[i]);
        uint32_t from = exl2__max32(begin, first) - first, items = chunks * p->strips;
        uint32_t to = exl2__max32(exl2__min32(end, first + items), first) - first;
        if (from < to) {
            exl2__tower_products(t, p, t->middle + (size_t)i * t->stride, t->qkv_stride, 0, from, to);
        }
        first += items;
    }
}

/* The angles of a row: its line's, then its column's. */
EXL2__PRIVATE void exl2__tower_row_angles(const exl2__tower *t, uint32_t row, const exl2__tower_task *task)
{
    uint32_t quarter = t->config.head_dim / 4, columns = t->size.width / t->config.patch, patch = t->order[row];
    const float *line = t->angles + (size_t)(patch / columns) * 2 * quarter;
    const float *column = t->angles + ((size_t)t->sides_max + patch % columns) * 2 * quarter;
    memcpy(task->cosine, line, quarter * sizeof *line);
    memcpy(task->cosine + quarter, column, quarter * sizeof *line);
    memcpy(task->sine, line + quarter, quarter * sizeof *line);
    memcpy(task->sine + quarter, column + quarter, quarter * sizeof *line);
}

/* Items: rows of the block, whose q, k and v are rotated, and stored where attention reads them. Towers with RoPE have
   no class row. */
EXL2__PRIVATE void exl2__tower_store(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__vision_config *v = &t->config;
    uint32_t d = v->head_dim, apart = v->row->names.qkv ? v->width : t->stride;
    uint32_t wide = t->value_strips * EXL2__CPU_STRIP;
    float scale = 1 / sqrtf((float)d);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t row = exl2__tower_block_row(t) + i, in_strip = row % EXL2__CPU_STRIP;
        float *q = t->middle + (size_t)i * t->qkv_stride, *k = q + apart, *value = k + apart;
        if (v->row->rope) {
            exl2__tower_row_angles(t, row, &t->task[task]);
        }
        for (uint32_t h = 0; h < v->heads; h++, q += d, k += d, value += d) {
            float *key = t->key + ((size_t)h * t->key_strips + row / EXL2__CPU_STRIP) * d * EXL2__CPU_STRIP + in_strip;
            float *to = t->value + (size_t)h * t->value_strips * t->rows_max * EXL2__CPU_STRIP;
            if (v->row->rope) {
                t->ops->rope(q, t->task[task].cosine, t->task[task].sine, d / 2, scale);
                t->ops->rope(k, t->task[task].cosine, t->task[task].sine, d / 2, 1);
            }
            for (uint32_t j = 0; j < d; j++) {
                t->query[(size_t)row * t->stride + h * d + j] = v->row->rope ? q[j] : q[j] * scale;
                key[(size_t)j * EXL2__CPU_STRIP] = k[j];
            }
            for (uint32_t j = 0; j < wide; j++) {
                size_t strip = (size_t)(j / EXL2__CPU_STRIP) * t->rows_max + row;
                to[strip * EXL2__CPU_STRIP + j % EXL2__CPU_STRIP] = j < d ? value[j] : 0;
            }
        }
    }
}

/* Attention of some queries of one head. */
EXL2__PRIVATE void exl2__tower_attend_queries(const exl2__tower *t, const exl2__tower_queries *q, uint32_t head,
                                              const exl2__tower_task *task)
{
    uint32_t d = t->config.head_dim, first = q->begin / EXL2__CPU_STRIP, keys = q->end - q->begin;
    uint32_t strips = (uint32_t)exl2__div_up(q->end, EXL2__CPU_STRIP) - first, wide = t->value_strips * EXL2__CPU_STRIP;
    uint32_t tiles = exl2__cpu_tiles(q->count, t->ops->tile_rows);
    exl2__cpu_part key = { .source = EXL2__CPU_F32, .in = d, .out = strips * EXL2__CPU_STRIP, .strips = strips,
                           .blocks = (uint32_t)exl2__div_up(d, EXL2__CPU_BLOCK) };
    exl2__cpu_part value = { .source = EXL2__CPU_F32, .in = keys, .out = d, .strips = t->value_strips,
                             .blocks = (uint32_t)exl2__div_up(keys, EXL2__CPU_BLOCK) };
    key.strip_bytes = (uint64_t)d * EXL2__CPU_STRIP * sizeof(float);
    key.data = (uint8_t *)(t->key + ((size_t)head * t->key_strips + first) * d * EXL2__CPU_STRIP);
    value.strip_bytes = (uint64_t)t->rows_max * EXL2__CPU_STRIP * sizeof(float);
    value.data = (uint8_t *)(t->value + ((size_t)head * t->value_strips * t->rows_max + q->begin) * EXL2__CPU_STRIP);
    float *out = t->query + (size_t)q->row * t->stride + (size_t)head * d, inverse[EXL2__TOWER_QUERIES];
    for (uint32_t i = 0; i < tiles; i++) {
        exl2__tower_tile tile = exl2__tower_tile_of(t, q->count, i);
        t->ops->gather(&key, out + tile.row * (size_t)t->stride, t->stride, tile.count,
                       task->query + (size_t)tile.row * d, task->query);
    }
    exl2__cpu_input queries = { task->query, task->query, q->count, t->ops->tile_rows };
    t->ops->product(&key, &queries, 0, strips, task->scores, t->score_stride, 0);
    float *scores = task->scores + (q->begin - first * EXL2__CPU_STRIP);
    for (uint32_t r = 0; r < q->count; r++) {
        inverse[r] = t->ops->softmax(scores + (size_t)r * t->score_stride, keys, (uint32_t)exl2__align_up(keys, 64));
    }
    for (uint32_t i = 0; i < tiles; i++) {
        exl2__tower_tile tile = exl2__tower_tile_of(t, q->count, i);
        t->ops->gather(&value, scores + (size_t)tile.row * t->score_stride, t->score_stride, tile.count,
                       task->weights + (size_t)tile.row * keys, task->weights);
    }
    exl2__cpu_input weights = { task->weights, task->weights, q->count, t->ops->tile_rows };
    t->ops->product(&value, &weights, 0, t->value_strips, task->result, wide, 0);
    for (uint32_t r = 0; r < q->count; r++) {
        for (uint32_t i = 0; i < d; i++) {
            out[(size_t)r * t->stride + i] = task->result[(size_t)r * wide + i] * inverse[r];
        }
    }
}

/* Items: heads times groups of queries, those of a head one after the other. */
EXL2__PRIVATE void exl2__tower_attend(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    bool full = t->config.full[t->layer];
    const exl2__tower_queries *queries = full ? t->full : t->windowed;
    uint32_t count = full ? t->full_count : t->windowed_count;
    for (uint32_t i = begin; i < end; i++) {
        exl2__tower_attend_queries(t, &queries[i % count], i / count, &t->task[task]);
    }
}

/* ---- blocks of a layer ---- */

EXL2__PRIVATE void exl2__tower_out_input(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_gather_chunks(t, exl2__tower_matrix(t->layers[t->layer].out),
                              t->query + (size_t)exl2__tower_block_row(t) * t->stride, t->stride, begin, end);
}

EXL2__PRIVATE void exl2__tower_out(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_products(t, exl2__tower_matrix(t->layers[t->layer].out),
                         t->residual + (size_t)exl2__tower_block_row(t) * t->stride, t->stride, 1, begin, end);
}

EXL2__PRIVATE void exl2__tower_norm2(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__tower_layer *layer = &t->layers[t->layer];
    exl2__tower_norm_chunks(t, exl2__tower_matrix(layer->up), &layer->norm2, begin, end, task);
}

/* Items: chunks times strips of up, with the same ones of gate. */
EXL2__PRIVATE void exl2__tower_up(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__tower_layer *layer = &t->layers[t->layer];
    const exl2__cpu_part *up = exl2__tower_matrix(layer->up);
    (void)task;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t chunk = i / up->strips, strip = i % up->strips, rows = exl2__tower_chunk_rows(t, chunk);
        exl2__tower_product(t, layer->gate ? exl2__tower_matrix(layer->gate) : up, chunk, strip, strip + 1, t->middle,
                            t->inter_stride, 0);
        if (layer->gate) {
            exl2__tower_product(t, up, chunk, strip, strip + 1, t->up, t->inter_stride, 0);
        }
        for (uint32_t r = 0; r < rows; r++) {
            size_t at = ((size_t)chunk * EXL2__TOWER_CHUNK + r) * t->inter_stride + strip * EXL2__CPU_STRIP;
            exl2__tower_activate(t, t->config.act, t->middle + at, layer->gate ? t->up + at : NULL, EXL2__CPU_STRIP);
        }
    }
}

EXL2__PRIVATE void exl2__tower_down_input(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_gather_chunks(t, exl2__tower_matrix(t->layers[t->layer].down), t->middle, t->inter_stride, begin, end);
}

EXL2__PRIVATE void exl2__tower_down(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_products(t, exl2__tower_matrix(t->layers[t->layer].down),
                         t->residual + (size_t)exl2__tower_block_row(t) * t->stride, t->stride, 1, begin, end);
}

/* ---- the projector ---- */

/* The norms of one patch before it is merged. */
EXL2__PRIVATE void exl2__tower_combine_patch(const exl2__tower *t, uint32_t row, float *out)
{
    const exl2__vision_config *v = &t->config;
    const exl2__tower_projector *p = exl2__tower_projector_now(t);
    const float *x = t->residual + (size_t)row * t->stride;
    bool last = t->level_now == 0;
    exl2__tower_norm_row(t, last ? &t->post_norm : &(exl2__tower_norm){ NULL, NULL }, v->row->rms, v->eps, v->width, x,
                         out);
    if (last && v->row->norm_patches) {
        exl2__tower_norm_row(t, &p->norm, v->row->norm_rms, v->projector_eps, v->width, out, out);
    }
}

/* The input of the projector for row `o` of the tile's result. patch [width]: scratch. */
EXL2__PRIVATE void exl2__tower_combine_row(const exl2__tower *t, uint32_t o, float *patch, float *out)
{
    const exl2__vision_config *v = &t->config;
    const exl2__tower_projector *p = exl2__tower_projector_now(t);
    uint32_t s = v->merge, width = v->width, columns = t->size.width / v->patch, cells = columns / s, many = s * s;
    uint32_t before = v->class_row, merged = exl2__tower_merged(v);
    bool mean = v->row->merge == EXL2__VISION_MERGE_MEAN, channels = v->row->merge == EXL2__VISION_MERGE_CYX;
    if (v->class_row && v->keeps_class) { /* the merge is 1 */
        exl2__tower_combine_patch(t, o, out);
        return;
    }
    for (uint32_t i = 0; mean && i < width; i++) {
        out[i] = 0;
    }
    for (uint32_t i = 0; i < many; i++) {
        uint32_t line = o / cells * s + i / s, column = o % cells * s + i % s;
        exl2__tower_combine_patch(t, before + t->at[line * columns + column],
                                  mean || channels ? patch : out + (size_t)i * width);
        for (uint32_t j = 0; (mean || channels) && j < width; j++) {
            if (mean) {
                out[j] += patch[j] / (float)many;
            } else {
                out[(size_t)j * many + i] = patch[j];
            }
        }
    }
    if (t->level_now || !v->row->norm_patches) {
        exl2__tower_norm_row(t, &p->norm, v->row->norm_rms, v->projector_eps, merged, out, out);
    }
}

/* Tiles of a chunk, at most: the last chunk of a block may have one more, of few rows. */
static inline uint32_t exl2__tower_tiles_most(const exl2__tower *t)
{
    return EXL2__TOWER_CHUNK / t->ops->tile_rows + 1;
}

/* Items: tiles of the result's rows, as many of each chunk as one can have, for a row is made of many patches. */
EXL2__PRIVATE void exl2__tower_combine(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__cpu_part *p = exl2__tower_first_matrix(t);
    uint32_t most = exl2__tower_tiles_most(t);
    float *x = t->task[task].rows;
    for (uint32_t item = begin; item < end; item++) {
        uint32_t chunk = item / most, rows = exl2__tower_chunk_rows(t, chunk), i = item % most;
        uint32_t first = exl2__tower_block_row(t) + chunk * EXL2__TOWER_CHUNK;
        if (i < exl2__cpu_tiles(rows, t->ops->tile_rows)) {
            exl2__tower_tile tile = exl2__tower_tile_of(t, rows, i);
            for (uint32_t r = 0; r < tile.count; r++) {
                exl2__tower_combine_row(t, first + tile.row + r, t->task[task].patch, x + (size_t)r * p->in);
            }
            exl2__tower_gather(t, p, chunk, tile, x, p->in);
        }
    }
}

EXL2__PRIVATE void exl2__tower_merge(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_products(t, exl2__tower_matrix(exl2__tower_projector_now(t)->merge), t->middle, t->middle_most, 0,
                         begin, end);
}

EXL2__PRIVATE void exl2__tower_linear1_input(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_gather_chunks(t, exl2__tower_matrix(exl2__tower_projector_now(t)->linear1), t->middle, t->middle_most,
                              begin, end);
}

EXL2__PRIVATE void exl2__tower_linear1(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    const exl2__tower_projector *p = exl2__tower_projector_now(t);
    const exl2__cpu_part *m = exl2__tower_matrix(p->linear1);
    (void)task;
    exl2__tower_products(t, m, t->middle, t->middle_most, 0, begin, end);
    for (uint32_t i = begin; p->linear2 && i < end; i++) {
        uint32_t chunk = i / m->strips, strip = i % m->strips, rows = exl2__tower_chunk_rows(t, chunk);
        for (uint32_t r = 0; r < rows; r++) {
            size_t at = ((size_t)chunk * EXL2__TOWER_CHUNK + r) * t->middle_most + strip * EXL2__CPU_STRIP;
            exl2__tower_activate(t, t->config.projector_act, t->middle + at, NULL, EXL2__CPU_STRIP);
        }
    }
}

EXL2__PRIVATE void exl2__tower_linear2_input(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_gather_chunks(t, exl2__tower_matrix(exl2__tower_projector_now(t)->linear2), t->middle, t->middle_most,
                              begin, end);
}

EXL2__PRIVATE void exl2__tower_linear2(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    const exl2__tower *t = (const exl2__tower *)arg;
    (void)task;
    exl2__tower_products(t, exl2__tower_matrix(exl2__tower_projector_now(t)->linear2), t->middle, t->middle_most, 0,
                         begin, end);
}

/* Items: rows of the block, which are copied to the picture's. */
EXL2__PRIVATE void exl2__tower_give(void *arg, uint32_t begin, uint32_t end, uint32_t task)
{
    exl2__tower *t = (exl2__tower *)arg;
    uint32_t hidden = t->config.hidden, first = t->tile * t->out_rows + exl2__tower_block_row(t);
    (void)task;
    for (uint32_t i = begin; i < end; i++) {
        float *to = t->rows + ((size_t)(first + i) * t->config.levels + t->level_now) * hidden;
        bool finite = true;
        memcpy(to, t->middle + (size_t)i * t->middle_most, hidden * sizeof *to);
        for (uint32_t j = 0; j < hidden; j++) {
            finite = finite && exl2__float_is_finite(to[j]);
        }
        if (!finite) {
            exl2__atomic_store(&t->bad, 1);
        }
    }
}

/* ---- the list ---- */

typedef struct exl2__tower_items {
    exl2__vision_work work;
    uint32_t count;
    uint64_t cost; /* multiply-adds of an item, roughly */
} exl2__tower_items;

/* Chunks of the block. An item of a product is a strip of a chunk. */
EXL2__PRIVATE exl2__tower_items exl2__tower_items_product(const exl2__tower *t, exl2__vision_work work,
                                                          const exl2__cpu_matrix *m)
{
    uint32_t chunks = (uint32_t)exl2__div_up(exl2__tower_block_rows(t), EXL2__TOWER_CHUNK);
    exl2__tower_items none = { work, 0, 0 };
    return !m ? none
              : (exl2__tower_items){ work, chunks * m->parts->strips,
                                     (uint64_t)EXL2__TOWER_CHUNK * EXL2__CPU_STRIP * m->parts->in };
}

/* An item is a chunk whose rows have `wide` elements. */
EXL2__PRIVATE exl2__tower_items exl2__tower_items_chunks(const exl2__tower *t, exl2__vision_work work, uint32_t wide)
{
    uint32_t chunks = (uint32_t)exl2__div_up(exl2__tower_block_rows(t), EXL2__TOWER_CHUNK);
    return (exl2__tower_items){ work, wide ? chunks : 0, (uint64_t)EXL2__TOWER_CHUNK * wide * 16 };
}

EXL2__PRIVATE exl2__tower_items exl2__tower_items_rows(const exl2__tower *t, exl2__vision_work work, uint32_t wide)
{
    return (exl2__tower_items){ work, exl2__tower_block_rows(t), (uint64_t)wide * 16 };
}

/* The items of the current stage. A stage that the family does not have has none. */
EXL2__PRIVATE exl2__tower_items exl2__tower_items_now(const exl2__tower *t)
{
    const exl2__vision_config *v = &t->config;
    const exl2__tower_layer *layer = &t->layers[t->layer];
    const exl2__tower_projector *p = exl2__tower_projector_now(t);
    exl2__tower_items items = { NULL, 0, 0 };
    bool full = v->full[t->layer];
    switch ((exl2__tower_stage)t->stage) {
    case EXL2__TOWER_ANGLES:
        items.work = exl2__tower_angles;
        items.count = v->row->rope ? t->patch_rows + t->size.width / v->patch : 0;
        items.cost = v->head_dim * 400ull;
        return items;
    case EXL2__TOWER_PATCHES:
        return exl2__tower_items_chunks(t, exl2__tower_patches, t->patch->parts->in);
    case EXL2__TOWER_EMBED:
        return exl2__tower_items_product(t, exl2__tower_embed, t->patch);
    case EXL2__TOWER_PLACES:
        return exl2__tower_items_rows(t, exl2__tower_places, v->row->table ? v->width * 8 : v->width);
    case EXL2__TOWER_NORM1:
        return exl2__tower_items_chunks(t, exl2__tower_norm1, v->width);
    case EXL2__TOWER_QKV:
        items = exl2__tower_items_product(t, exl2__tower_qkv, layer->qkv[0]);
        items.count *= layer->qkv[1] ? 3 : 1;
        return items;
    case EXL2__TOWER_STORE:
        return exl2__tower_items_rows(t, exl2__tower_store, 3 * v->width);
    case EXL2__TOWER_ATTEND:
        items.work = exl2__tower_attend;
        items.count = v->heads * (full ? t->full_count : t->windowed_count);
        items.cost = 2ull * exl2__min32(EXL2__TOWER_QUERIES, t->rows_now) * (full ? t->rows_now : 64) * v->head_dim;
        return items;
    case EXL2__TOWER_OUT_INPUT:
        return exl2__tower_items_chunks(t, exl2__tower_out_input, v->width);
    case EXL2__TOWER_OUT:
        return exl2__tower_items_product(t, exl2__tower_out, layer->out);
    case EXL2__TOWER_NORM2:
        return exl2__tower_items_chunks(t, exl2__tower_norm2, v->width);
    case EXL2__TOWER_UP:
        items = exl2__tower_items_product(t, exl2__tower_up, layer->up);
        items.cost *= layer->gate ? 2 : 1;
        return items;
    case EXL2__TOWER_DOWN_INPUT:
        return exl2__tower_items_chunks(t, exl2__tower_down_input, v->inter);
    case EXL2__TOWER_DOWN:
        return exl2__tower_items_product(t, exl2__tower_down, layer->down);
    case EXL2__TOWER_COMBINE:
        items = exl2__tower_items_chunks(t, exl2__tower_combine, v->merge * v->merge * v->width);
        items.count *= exl2__tower_tiles_most(t);
        items.cost /= exl2__tower_tiles_most(t) - 1;
        return items;
    case EXL2__TOWER_MERGE:
        return exl2__tower_items_product(t, exl2__tower_merge, p->merge);
    case EXL2__TOWER_LINEAR1_INPUT:
        return exl2__tower_items_chunks(t, exl2__tower_linear1_input, p->merge ? p->linear1->parts->in : 0);
    case EXL2__TOWER_LINEAR1:
        return exl2__tower_items_product(t, exl2__tower_linear1, p->linear1);
    case EXL2__TOWER_LINEAR2_INPUT:
        return exl2__tower_items_chunks(t, exl2__tower_linear2_input, p->linear2 ? p->linear2->parts->in : 0);
    case EXL2__TOWER_LINEAR2:
        return exl2__tower_items_product(t, exl2__tower_linear2, p->linear2);
    case EXL2__TOWER_GIVE:
        return exl2__tower_items_rows(t, exl2__tower_give, v->hidden);
    case EXL2__TOWER_STAGES:
        break;
    }
    return items;
}

/* Computes items [begin, end) of the current stage. */
EXL2__PRIVATE void exl2__tower_stage_run(exl2__tower *t, const exl2__tower_items *items, uint32_t begin, uint32_t end)
{
    exl2__vision_tasks_run(t->cpu, t->tasks, items->work, t, begin, end, (end - begin) * items->cost);
}

#endif
#endif
