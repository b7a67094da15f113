/* phase_rig.h: a synthetic model on the GPU and two references in double; every buffer of the GPU's passes is watched.
   takes: a shape, an open exl2__cuda_device; cpu_double.c and double_rounded.c, linked.
   gives: trio with open and close; watch_poison, watch_check; pages_fill, pages_check; level_*.
   owns:  the models and the copies in host memory, until trio_close.

   One reference has weights code * scale, as products of few rows compute them. The other one rounds that to fp16, as
   products of many rows decode weights. Before each phase the reference gets the GPU's inputs, so that each phase is
   compared by itself. */
#ifndef PHASE_RIG_H
#define PHASE_RIG_H

#include "../unit/cpu_double.h"
#include "../unit/cpu_synth.h"
#include "double_rounded.h"
#include "gpu_rig.h"
#include "phase_pass.h"

/* ---- the watched buffers ---- */

#define WATCHED(X)                                                                                                  \
    X(residual) X(x) X(x2) X(branch) X(qkv) X(attended) X(h) X(sums0) X(sums1) X(sums2) X(head_x) X(logits)

typedef enum watch {
#define X(name) WATCH_##name,
    WATCHED(X)
#undef X
    WATCH_COUNT
} watch;

#define SEEN(name) (1u << WATCH_##name)

typedef struct watched { /* the first `used` of the `pitch` bytes of a row are data, the rest is padding */
    uint64_t at;
    uint32_t rows, used, pitch;
    uint8_t *now; /* copy of the buffer, as the GPU holds it */
    uint32_t tiled; /* halves of a row; 0: the buffer has rows, else tiles (wg_tiles.cuh; of few rows: gemv_args.h) */
} watched;

enum { FACTORED, ROUNDED, TRUTHS };

typedef struct trio {
    synth_model tested, truth[TRUTHS];
    cpu_double_view view[TRUTHS];
    watched watched[WATCH_COUNT];
    uint8_t *kept;   /* the residual before expert_down */
    uint16_t *pages; /* [layers, PAGES, page_elements] copy of the pages, as the GPU holds them */
    size_t page_elements;
    const synth_shape *shape;
    const made_step *made;
    uint32_t logit0, logit_count;
} trio;

static inline const exl2__cuda_model *device_of(const trio *t)
{
    return exl2__cuda_of(t->tested.d);
}

static inline void gpu_need(exl2_result result)
{
    if (!CHECK_INT(result, EXL2_OK)) {
        printf("%s\n", gpu_ctx.error.text);
        exit(1);
    }
}

static inline void gpu_read(uint64_t from, void *to, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    gpu_need(exl2__cuda_device_enter(&gpu));
    gpu_need(exl2__cuda_device_check(&gpu, gpu.driver.copy_down(to, from, bytes, gpu.stream), "copying from it"));
    gpu_need(exl2__cuda_device_check(&gpu, gpu.driver.stream_wait(gpu.stream), "running a phase"));
    exl2__cuda_device_leave(&gpu);
}

static inline void gpu_write(uint64_t to, const void *from, size_t bytes)
{
    gpu_need(exl2__cuda_device_enter(&gpu));
    gpu_need(exl2__cuda_device_check(&gpu, gpu.driver.copy_up(to, from, bytes, gpu.stream), "copying"));
    gpu_need(exl2__cuda_device_check(&gpu, gpu.driver.stream_wait(gpu.stream), "copying"));
    exl2__cuda_device_leave(&gpu);
}

/* ---- open and close ---- */

static inline void watch_open(trio *t)
{
    const exl2__cuda_model *m = device_of(t);
    const exl2__cuda_buffers *b = &m->b;
    const synth_shape *s = t->shape;
    uint32_t attention = s->heads * s->head_dim, qkv = attention + 2 * s->kv_heads * s->head_dim;
    uint32_t rows = t->tested.plan.rows_max, logits = t->tested.plan.logit_rows_max, tiles = exl2__cuda_wg_rows(rows);
    uint32_t slots = EXL2K_SLOTS_MAX * 4, used = m->limits.ctas * 4;
    uint32_t h_rows = exl2__max32(tiles, (uint32_t)exl2__div_up((uint64_t)tiles * attention, b->h_pitch)); /* of out */
    watched all[WATCH_COUNT] = {
        [WATCH_residual] = { b->residual, rows, s->hidden * 4, s->hidden * 4, NULL, 0 },
        [WATCH_x] = { b->x, tiles, s->hidden * 2, b->x_pitch * 2, NULL, 0 },
        [WATCH_x2] = { b->x2, b->x2 ? tiles : 0, s->hidden * 2, b->x_pitch * 2, NULL, 0 },
        [WATCH_branch] = { b->branch, b->branch ? rows : 0, s->hidden * 4, s->hidden * 4, NULL, 0 },
        [WATCH_qkv] = { b->qkv, rows, qkv * 4, b->qkv_pitch * 4, NULL, 0 },
        [WATCH_attended] = { b->attended, rows, attention * 2, b->attended_pitch * 2, NULL, 0 },
        [WATCH_h] = { b->h, h_rows, s->inter * 2, b->h_pitch * 2, NULL, 0 },
        [WATCH_sums0] = { b->sums[0], rows, used, slots, NULL, 0 },
        [WATCH_sums1] = { b->sums[1], rows, used, slots, NULL, 0 },
        [WATCH_sums2] = { b->sums[2], rows, used, slots, NULL, 0 },
        [WATCH_head_x] = { b->head_x, logits, s->hidden * 2, b->x_pitch * 2, NULL, 0 },
        [WATCH_logits] = { b->logits, logits, s->vocab * 4, b->stride * 4, NULL, 0 },
    };
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        size_t bytes = (size_t)all[i].rows * all[i].pitch;
        all[i].now = (uint8_t *)synth_alloc(bytes);
        t->watched[i] = all[i];
        gpu_read(all[i].at, all[i].now, bytes);
    }
}

static inline void trio_open(trio *t, const synth_shape *s, uint64_t seed, exl2_parallel parallel)
{
    exl2_parallel none = { 0 };
    *t = (trio){ .shape = s };
    synth_model_open(&t->truth[FACTORED], cpu_double_backend(), s, seed, parallel, ROWS_MAX, CONTEXT, PAGES, NULL);
    synth_model_open(&t->truth[ROUNDED], cpu_rounded_backend(), s, seed, parallel, ROWS_MAX, CONTEXT, PAGES, NULL);
    synth_model_open_on(&t->tested, &exl2__cuda_backend, &gpu, s, seed, none, ROWS_MAX, CONTEXT, PAGES, NULL);
    t->view[FACTORED] = cpu_double_look(t->truth[FACTORED].d);
    t->view[ROUNDED] = cpu_rounded_look(t->truth[ROUNDED].d);
    t->page_elements = device_of(t)->b.page_bytes / sizeof *t->pages;
    t->pages = (uint16_t *)synth_alloc(s->layers * PAGES * t->page_elements * sizeof *t->pages);
    watch_open(t);
}

static inline void trio_close(trio *t)
{
    synth_model_close(&t->tested);
    synth_model_close(&t->truth[FACTORED]);
    synth_model_close(&t->truth[ROUNDED]);
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        free(t->watched[i].now);
    }
    free(t->pages);
    free(t->kept);
}

/* ---- poison and canaries ---- */

/* Rows of the tiles of a pass with `rows` rows. */
static inline uint32_t tile_rows(const trio *t, uint32_t rows)
{
    return device_of(t)->pass.by_wg ? exl2__cuda_wg_rows(rows) : rows <= 8 ? 8 : 16;
}

/* Offset of half i of a row in tiles. */
static inline size_t tile_at(const trio *t, uint32_t row, uint32_t i)
{
    size_t line = (size_t)(i / 32) * tile_rows(t, t->made->step.row_count) + row;
    if (!device_of(t)->pass.by_wg) {
        return line * 64 + i % 32 * 2;
    }
    return line * 64 + ((i / 2 % 4) ^ (row / 2 % 4)) * 16 + i % 32 / 8 * 4 + i % 2 * 2;
}

/* Bytes of the first `rows` rows of a buffer. */
static inline uint64_t watch_bytes(const trio *t, const watched *w, uint32_t rows)
{
    return w->tiled ? exl2__align_up(w->tiled, 32) * tile_rows(t, rows) * 2 : (uint64_t)rows * w->pitch;
}

/* Copies the halves that tiles have from `from` to w->now; from NULL: fills them with NaN. */
static inline void watch_tiles(const trio *t, const watched *w, const uint8_t *from)
{
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        for (uint32_t i = 0; i < w->tiled; i++) {
            size_t at = tile_at(t, row, i);
            static const uint8_t nan[2] = { 0xFF, 0xFF };
            memcpy(w->now + at, from ? from + at : nan, 2);
        }
    }
}

/* Fills the data of the buffers in `set` with NaN, in all rows that a pass of this kind may have. Padding stays as it
   is, because products read it. Buffers that are never needed at the same time may overlap, so the copies of all
   buffers are read again. */
static inline void watch_poison(trio *t, uint32_t set)
{
    uint32_t most = device_of(t)->pass.by_gemm ? t->tested.plan.rows_max : EXL2__CUDA_GEMV_ROWS;
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        const watched *w = &t->watched[i];
        uint32_t rows = exl2__min32(w->rows, most);
        for (uint32_t row = 0; set >> i & 1 && !w->tiled && row < rows; row++) {
            memset(w->now + (size_t)row * w->pitch, 0xFF, w->used);
        }
        if (set >> i & 1 && w->tiled) {
            watch_tiles(t, w, NULL);
        }
        if (set >> i & 1) {
            gpu_write(w->at, w->now, (size_t)rows * w->pitch);
        }
    }
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        gpu_read(t->watched[i].at, t->watched[i].now, (size_t)t->watched[i].rows * t->watched[i].pitch);
    }
}

/* Whether bytes [at, at + bytes) of buffer `mine` may change because their memory has another use: they overlap the
   first `rows` rows of another buffer in `set`, or are in the logits, the scratch memory of products and attention. */
static inline bool watch_lent(const trio *t, uint32_t set, uint32_t rows, watch mine, uint64_t at, uint64_t bytes)
{
    bool lent = mine == WATCH_logits;
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        const watched *w = &t->watched[i];
        bool apart = at + bytes <= w->at || w->at + watch_bytes(t, w, rows) <= at;
        lent = lent || (i != (uint32_t)mine && set >> i & 1 && !apart);
    }
    return lent;
}

/* Reads all buffers again, and checks that only the data of the first `rows` rows of the buffers in `set` changed. */
static inline void watch_check(trio *t, uint32_t set, uint32_t rows)
{
    static const char *const names[WATCH_COUNT] = {
#define X(name) #name,
        WATCHED(X)
#undef X
    };
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        watched *w = &t->watched[i];
        size_t bytes = (size_t)w->rows * w->pitch;
        uint8_t *got = (uint8_t *)synth_alloc(bytes);
        uint32_t wrong = 0;
        gpu_read(w->at, got, bytes);
        if (set >> i & 1 && w->tiled) {
            watch_tiles(t, w, got);
        }
        for (uint32_t row = 0; row < w->rows; row++) {
            bool mine = set >> i & 1 && row < rows && !w->tiled;
            size_t begin = (size_t)row * w->pitch, skip = mine ? w->used : 0;
            wrong += (set >> i & 1 || !watch_lent(t, set, rows, (watch)i, w->at + begin, w->pitch))
                     && memcmp(got + begin + skip, w->now + begin + skip, w->pitch - skip) != 0;
        }
        if (!CHECK_INT(wrong, 0)) {
            printf("    rows of %s that nothing should write\n", names[i]);
        }
        free(w->now);
        w->now = got;
    }
}

static inline float float_at(const trio *t, watch buffer, uint32_t row, uint32_t i)
{
    const watched *w = &t->watched[buffer];
    float value;
    memcpy(&value, w->now + (size_t)row * w->pitch + 4 * (size_t)i, 4);
    return value;
}

static inline double half_at(const trio *t, watch buffer, uint32_t row, uint32_t i)
{
    const watched *w = &t->watched[buffer];
    uint16_t value;
    memcpy(&value, w->now + (w->tiled ? tile_at(t, row, i) : (size_t)row * w->pitch + 2 * (size_t)i), 2);
    return (double)exl2__f16_to_f32(value);
}

/* The order of a buffer's rows that `matrix` reads: input i lies at element [i]. It is the matrix's input permutation,
   but products by wgmma put attention's results in order themselves. The backend keeps none of `down`. The caller frees
   it. */
static inline uint16_t *order_of(const trio *t, watch buffer, const exl2__matrix *matrix, uint32_t count)
{
    bool natural = buffer == WATCH_attended && device_of(t)->pass.by_wg;
    uint64_t map = natural ? 0 : exl2__cuda_inputs(matrix);
    uint16_t *order = (uint16_t *)synth_alloc(count * sizeof *order);
    for (uint32_t i = 0; i < count; i++) {
        order[i] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < t->tested.downs; i++) {
        if (matrix == t->tested.layers[i].matrix[EXL2__ROLE_DOWN]) {
            CHECK(map == 0);
            memcpy(order, t->tested.down_order[i], count * sizeof *order);
        }
    }
    if (map) {
        gpu_read(map, order, count * sizeof *order);
    }
    return order;
}

/* ---- pages ---- */

/* A head's K or V of one token. A page has fp16 K [kv_heads, 64, dim], then V of the same shape. */
static inline uint16_t *page_at(const trio *t, uint32_t layer, uint32_t page, bool value, uint32_t head, uint32_t slot)
{
    const synth_shape *s = t->shape;
    size_t line = (size_t)((value ? s->kv_heads : 0) + head) * EXL2__PAGE_TOKENS + slot;
    return t->pages + ((size_t)layer * PAGES + page) * t->page_elements + line * s->head_dim;
}

/* Fills the context with random K and V and everything else with NaN, which no result may depend on. */
static inline void pages_fill(trio *t)
{
    size_t lines = t->page_elements / t->shape->head_dim;
    for (size_t i = 0; i < t->shape->layers * PAGES * lines; i++) {
        bool known = t->made->is_context[i / lines % PAGES][i % EXL2__PAGE_TOKENS];
        for (uint32_t k = 0; k < t->shape->head_dim; k++) {
            float value = synth_float() * 2;
            t->pages[i * t->shape->head_dim + k] = known ? exl2__f32_to_f16(value) : (uint16_t)0x7E00;
        }
    }
    gpu_write(device_of(t)->b.pages, t->pages, t->shape->layers * PAGES * t->page_elements * sizeof *t->pages);
}

/* Element i of a row of the GPU's last qkv, which must belong to q or k, rotated (RoPE). */
static inline double rotated(const trio *t, uint32_t row, uint32_t i)
{
    const synth_shape *s = t->shape;
    uint32_t half = s->head_dim / 2, in_head = i % s->head_dim, pair = in_head % half;
    double angle = t->made->rows[row].position * t->tested.frequency[pair], c = cos(angle), d = sin(angle);
    double mine = (double)float_at(t, WATCH_qkv, row, i);
    return in_head < half ? mine * c - (double)float_at(t, WATCH_qkv, row, i + half) * d
                          : mine * c + (double)float_at(t, WATCH_qkv, row, i - half) * d;
}

/* Checks after attention that the pages hold K and V of the pass's rows, rounded once from the GPU's qkv, and that all
   else kept its bits. */
static inline void pages_check(trio *t, uint32_t layer)
{
    const synth_shape *s = t->shape;
    size_t count = PAGES * t->page_elements;
    uint32_t wrong = 0, keys = s->heads * s->head_dim, values = keys + s->kv_heads * s->head_dim;
    uint16_t *got = (uint16_t *)synth_alloc(count * sizeof *got), *mine = page_at(t, layer, 0, false, 0, 0);
    gpu_read(device_of(t)->b.pages + layer * count * sizeof *got, got, count * sizeof *got);
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        const exl2__step_row *r = &t->made->rows[row];
        uint32_t page = t->made->table[r->sequence][r->position / EXL2__PAGE_TOKENS];
        for (uint32_t i = 0; i < 2 * s->kv_heads * s->head_dim; i++) {
            bool value = i >= s->kv_heads * s->head_dim;
            uint32_t n = value ? i - s->kv_heads * s->head_dim : i, slot = r->position % EXL2__PAGE_TOKENS;
            uint16_t *to = page_at(t, layer, page, value, n / s->head_dim, slot) + n % s->head_dim;
            double wanted = value ? (double)float_at(t, WATCH_qkv, row, values + n) : rotated(t, row, keys + n);
            double off = fabs((double)exl2__f16_to_f32(got[to - mine]) - wanted);
            wrong += !(off <= fmax(fabs(wanted) * 0x1p-11, 0x1p-25) * 1.001 + 1e-5);
            *to = got[to - mine];
        }
    }
    CHECK_INT(wrong, 0);
    CHECK(memcmp(got, mine, count * sizeof *got) == 0);
    free(got);
}

/* ---- copies of the GPU's inputs for a reference ---- */

static inline void level_residual(const trio *t, uint32_t truth)
{
    const cpu_double_view *v = &t->view[truth];
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        for (uint32_t i = 0; i < t->shape->hidden; i++) {
            v->buffer[CPU_BUFFER_residual][row * v->stride[CPU_BUFFER_residual] + i] =
                (double)float_at(t, WATCH_residual, row, i);
        }
    }
}

/* Copies the result of a block, whose norm follows. */
static inline void level_branch(const trio *t, uint32_t truth)
{
    const cpu_double_view *v = &t->view[truth];
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        for (uint32_t i = 0; i < t->shape->hidden; i++) {
            v->branch[row * v->stride[CPU_BUFFER_residual] + i] = (double)float_at(t, WATCH_branch, row, i);
        }
    }
}

/* Copies fp16 rows, which lie permuted as the matrix that reads them needs. */
static inline void level_halves(const trio *t, uint32_t truth, watch from, cpu_buffer to, const exl2__matrix *reader,
                                uint32_t count)
{
    const cpu_double_view *v = &t->view[truth];
    uint16_t *order = order_of(t, from, reader, count);
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        for (uint32_t i = 0; i < count; i++) {
            v->buffer[to][row * v->stride[to] + i] = half_at(t, from, row, order[i]);
        }
    }
    free(order);
}

/* Copies the inputs of attention: rotated queries, which attention rounds to fp16, and the pages. A rounding moves a
   score by up to 2^-11 of the score's terms, so it would have a part in the result that grows with the scores. */
static inline void level_attention(const trio *t, uint32_t truth, uint32_t layer)
{
    const cpu_double_view *v = &t->view[truth];
    const synth_shape *s = t->shape;
    for (uint32_t row = 0; row < t->made->step.row_count; row++) {
        for (uint32_t i = 0; i < s->heads * s->head_dim; i++) {
            v->buffer[CPU_BUFFER_query][row * v->stride[CPU_BUFFER_query] + i] =
                (double)exl2__f16_to_f32(exl2__f32_to_f16((float)rotated(t, row, i)))
                * (double)t->tested.plan.shape.attn_scale;
        }
    }
    for (uint32_t page = 0; page < PAGES; page++) {
        double *k = v->buffer[CPU_BUFFER_pages] + page * v->stride[CPU_BUFFER_pages] + layer * v->layer_stride;
        for (uint32_t line = 0; line < s->kv_heads * EXL2__PAGE_TOKENS; line++) {
            uint32_t head = line / EXL2__PAGE_TOKENS, slot = line % EXL2__PAGE_TOKENS;
            const uint16_t *keys = page_at(t, layer, page, false, head, slot);
            const uint16_t *values = page_at(t, layer, page, true, head, slot);
            for (uint32_t i = 0; i < s->head_dim; i++) {
                k[(head * s->head_dim + i) * EXL2__PAGE_TOKENS + slot] = (double)exl2__f16_to_f32(keys[i]);
                k[v->key_count + line * v->value_stride + i] = (double)exl2__f16_to_f32(values[i]);
            }
        }
    }
}

static inline void level_logits(const trio *t, uint32_t truth)
{
    const cpu_double_view *v = &t->view[truth];
    for (uint32_t row = 0; row < t->logit_count; row++) {
        for (uint32_t i = 0; i < t->shape->vocab; i++) {
            v->buffer[CPU_BUFFER_logits][row * v->stride[CPU_BUFFER_logits] + i] =
                (double)float_at(t, WATCH_logits, row, i);
        }
    }
}

#endif
