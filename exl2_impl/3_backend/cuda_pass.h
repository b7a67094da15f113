/* cuda_pass.h: the data of a pass, packed into one pinned slot and uploaded as one block.
   takes: a step.
   gives: exl2__cuda_prepare, exl2__cuda_begin.
   owns:  nothing.
   next:  cuda_phases.h */
#ifndef EXL2__CUDA_PASS_H
#define EXL2__CUDA_PASS_H

#include "../../kernels_src/norm_args.h"
#include "cuda_model.h"

#ifndef EXL2__CUDA_MANY_ROWS
#define EXL2__CUDA_MANY_ROWS 97u /* from here on products by gemm take less time than those of 8 rows (H200) */
#endif

/* ---- once ---- */

/* cos and sin of every position, by the device, from frequencies in double. */
static exl2_result exl2__cuda_make_rope(exl2__cuda_model *m, const exl2__plan *p)
{
    uint32_t half = p->shape.head_dim / 2;
    uint64_t pairs = (uint64_t)p->context_max * half;
    EXL2__TRY(exl2__cuda_upload(m, m->b.data, p->rope_frequency, half * sizeof(double)));
    exl2k_rope_args a = { m->b.data, m->b.rope, half, p->context_max };
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(pairs, 256), .y = 1, .threads = 256 };
    return exl2__cuda_device_launch(m->gpu, EXL2__KERNEL_exl2k_rope_table, grid, &a);
}

/* The buffers of passes; weights are packed, so what only loading needs goes first. */
static exl2_result exl2__cuda_prepare_buffers(exl2__cuda_model *m, const exl2__plan *p)
{
    exl2__cuda_device *gpu = m->gpu;
    exl2__cuda_arena dry = { 0 };
    void *results;
    EXL2__TRY(exl2__cuda_device_check(gpu, gpu->driver.stream_wait(gpu->stream), "packing weights"));
    exl2__cuda_device_free(gpu, m->raw, m->raw_bytes, EXL2_MEM_STAGING);
    m->raw = m->raw_bytes = 0;
    exl2__cuda_buffers_lay(&m->b, p, &dry);
    EXL2__TRY(exl2__cuda_arena_open(gpu, &m->rest, dry.used, EXL2_MEM_KV));
    exl2__cuda_buffers_lay(&m->b, p, &m->rest);
    if (m->b.data_bytes > m->ring.slot_bytes) {
        exl2__cuda_ring_close(gpu, &m->ring);
        EXL2__TRY(exl2__cuda_ring_open(gpu, &m->ring, 2, m->b.data_bytes, gpu->stream));
    }
    m->results_bytes = 2 * p->logit_rows_max * sizeof(exl2k_result);
    EXL2__TRY(exl2__cuda_pin(gpu, m->results_bytes, &results));
    m->b.results = (exl2k_result *)results;
    EXL2__TRY(exl2__cuda_device_check(gpu, gpu->driver.event_make(&m->b.sampled, EXL2__CUDA_EVENT_NO_TIMING),
                                      "making an event"));
    EXL2__TRY(exl2__cuda_device_check(gpu, gpu->driver.fill8(m->b.clear, 0, (size_t)m->b.clear_bytes, gpu->stream),
                                      "clearing its buffers"));
    return exl2__cuda_make_rope(m, p);
}

/* What the kernels take: maps are u16, heads are cut into runs of 16 elements, tokens are 24 bits of a key. */
static exl2_result exl2__cuda_check_shape(exl2__cuda_model *m, const exl2__shape *s)
{
    uint64_t attention = (uint64_t)s->heads * s->head_dim;
    uint32_t widest = (uint32_t)exl2__max64(exl2__max32(s->hidden, s->inter), exl2__min64(attention, UINT32_MAX));
    if (s->head_dim % 16 != 0 || s->head_dim > 256) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend has no kernels for heads of %u elements, only "
                          "for multiples of 16 up to 256", s->head_dim);
    }
    if (widest > 1u << 16) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend supports rows of up to 65536 elements, this "
                          "model has rows of %u", widest);
    }
    if (s->vocab > 1u << 24) {
        return exl2__fail(m->c, EXL2_ERR_UNSUPPORTED, "the CUDA backend supports vocabularies of up to 16777216 "
                          "tokens, this model has %u", s->vocab);
    }
    return EXL2_OK;
}

/* Dry arenas measure only what the host gives, which is nothing: exl2__cuda_room counts the device's. */
static exl2_result exl2__cuda_prepare(exl2__device *device, const exl2__plan *plan, exl2__arena *pages,
                                      exl2__arena *scratch)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    (void)pages;
    m->plan = plan;
    EXL2__TRY(exl2__cuda_check_shape(m, &plan->shape));
    if (!scratch->base) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = exl2__cuda_prepare_buffers(m, plan);
    exl2__cuda_device_leave(m->gpu);
    return r;
}

/* ---- data ---- */

typedef struct exl2__cuda_packer {
    uint8_t *slot;
    uint64_t used, size, device; /* device: where the slot's first byte will lie */
} exl2__cuda_packer;

/* Room for `bytes`, aligned to 16; *address: on the device. NULL: more than was planned. */
static void *exl2__cuda_pack(exl2__cuda_packer *k, uint64_t bytes, uint64_t *address)
{
    uint64_t at = k->used;
    *address = k->device + at;
    k->used = exl2__align_up(at + bytes, 16);
    return k->used <= k->size ? k->slot + at : NULL;
}

/* Rows [first, *end) go through attention together: those of one sequence, by tiles; or (true) rows that are each the
   only one of their sequence, by the kernel of single rows. So a decoding sequence has the same bits whoever is beside
   it. */
static bool exl2__cuda_run(const exl2__step *step, uint32_t first, uint32_t *end)
{
    uint32_t last = first, count = step->row_count;
    const exl2__step_row *rows = step->rows;
    while (last < count && (last + 1 == count || rows[last + 1].sequence != rows[last].sequence)
           && (last == first || rows[last - 1].sequence != rows[last].sequence)) {
        last++;
    }
    *end = last;
    if (last > first) {
        return true;
    }
    while (*end < count && rows[*end].sequence == rows[first].sequence) {
        ++*end;
    }
    return false;
}

/* Tiles of the prefill kernels; returns how many. tiles NULL: only counts. */
static uint32_t exl2__cuda_pack_tiles(const exl2__cuda_model *m, const exl2__step *step, exl2k_tile *tiles)
{
    uint32_t group = m->plan->shape.heads / m->plan->shape.kv_heads, count = 0;
    for (uint32_t first = 0, end; first < step->row_count; first = end) {
        if (exl2__cuda_run(step, first, &end)) {
            continue;
        }
        for (uint32_t pair = 0; pair < (end - first) * group; pair += EXL2K_TILE_PAIRS) {
            if (tiles) {
                tiles[count] = (exl2k_tile){ first, end - first, pair, 0 };
            }
            count++;
        }
    }
    return count;
}

/* Rows with their page tables, and how attention is cut. */
static bool exl2__cuda_pack_rows(exl2__cuda_model *m, exl2__cuda_packer *k)
{
    const exl2__step *step = m->step;
    exl2__cuda_pass *pass = &m->pass;
    exl2k_row *rows = (exl2k_row *)exl2__cuda_pack(k, step->row_count * sizeof *rows, &pass->rows);
    uint32_t pages[2] = { 1, 1 };
    if (!rows) {
        return false;
    }
    pass->splits = 1;
    for (uint32_t i = 0; i < step->row_count; i++) {
        const exl2__step_row *row = &step->rows[i];
        uint32_t tokens = row->position + 1;
        rows[i] = (exl2k_row){ (exl2k_u32)row->token, row->position, row->sequence, 0 };
        pass->splits = exl2__max32(pass->splits, (uint32_t)exl2__div_up(tokens, EXL2K_SPLIT_LENGTH(tokens)));
        pages[0] = exl2__max32(pages[0], row->position / EXL2K_PAGE_TOKENS + 1);
    }
    pass->table_pitch = pages[0];
    uint32_t *tables = (uint32_t *)exl2__cuda_pack(k, (uint64_t)step->sequence_count * pages[0] * 4, &pass->tables);
    for (uint32_t i = 0; tables && i < step->row_count; i++) {
        const exl2__step_row *row = &step->rows[i];
        memcpy(tables + (size_t)row->sequence * pages[0], step->page_tables[row->sequence],
               (row->position / EXL2K_PAGE_TOKENS + 1) * sizeof *tables);
    }
    pass->tile_count = exl2__cuda_pack_tiles(m, step, NULL);
    exl2k_tile *tiles = (exl2k_tile *)exl2__cuda_pack(k, pass->tile_count * sizeof *tiles, &pass->tiles);
    if (tiles && pass->tile_count) {
        exl2__cuda_pack_tiles(m, step, tiles);
    }
    return tables && tiles;
}

/* One row of logits with its lists. */
static bool exl2__cuda_pack_draw(exl2__cuda_packer *k, const exl2__logit_row *row, exl2k_draw *draw)
{
    exl2__cuda_lists lists = { 0 };
    if (row->use == EXL2__LOGIT_DRAW) {
        lists.history_size = row->history_count;
        void *history = exl2__cuda_pack(k, row->history_count * sizeof(uint32_t), &lists.history);
        exl2k_bias *bias =
            (exl2k_bias *)exl2__cuda_pack(k, row->sampling->bias_count * sizeof(exl2k_bias), &lists.bias);
        if (!history || !bias) {
            return false;
        }
        if (row->history_count) {
            memcpy(history, row->history, row->history_count * sizeof(uint32_t));
        }
        for (uint32_t i = 0; i < row->sampling->bias_count; i++) {
            bias[i] = (exl2k_bias){ (exl2k_u32)row->sampling->bias[i].token, row->sampling->bias[i].add };
        }
    }
    *draw = exl2__cuda_sample_draw(row, &lists, false, 0);
    return true;
}

static bool exl2__cuda_pack_all(exl2__cuda_model *m, exl2__cuda_packer *k)
{
    const exl2__step *step = m->step;
    exl2__cuda_pass *pass = &m->pass;
    uint32_t size = m->plan->logit_rows_max, groups = exl2__max32(1, (uint32_t)exl2__div_up(step->logit_count, size));
    exl2k_step *steps = (exl2k_step *)exl2__cuda_pack(k, groups * sizeof *steps, &pass->steps);
    bool good = steps && exl2__cuda_pack_rows(m, k);
    void *copies = exl2__cuda_pack(k, step->copy_count * sizeof *step->copies, &pass->copies);
    exl2k_draw *draws = (exl2k_draw *)exl2__cuda_pack(k, step->logit_count * sizeof *draws, &pass->draws);
    if (!good || !copies || !draws) {
        return false;
    }
    if (step->copy_count) {
        memcpy(copies, step->copies, step->copy_count * sizeof *step->copies);
    }
    for (uint32_t g = 0; g < groups; g++) {
        steps[g] = (exl2k_step){ .row_count = step->row_count, .tile_count = pass->tile_count,
                                 .table_pitch = pass->table_pitch, .tables = pass->tables, .tiles = pass->tiles,
                                 .draw_count = exl2__min32(size, step->logit_count - g * size),
                                 .ticket = pass->ticket + g };
    }
    for (uint32_t i = 0; i < step->logit_count && good; i++) {
        good = exl2__cuda_pack_draw(k, &step->logits[i], &draws[i]);
    }
    return good;
}

static exl2_result exl2__cuda_begin_pass(exl2__cuda_model *m)
{
    void *slot;
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, true, &slot));
    exl2__cuda_packer k = { (uint8_t *)slot, 0, m->b.data_bytes, m->b.data };
    if (!exl2__cuda_pack_all(m, &k)) {
        return exl2__fail(m->c, EXL2_ERR_INTERNAL, "the data of a pass takes %llu bytes, %llu were planned",
                          (unsigned long long)k.used, (unsigned long long)k.size);
    }
    m->pass.now = 0;
    m->pass.first = true;
    m->pass.many = m->step->row_count >= EXL2__CUDA_MANY_ROWS;
    return exl2__cuda_ring_send(m->gpu, &m->ring, m->b.data, 0, k.used, true);
}

static exl2_result exl2__cuda_begin(exl2__device *device, const exl2__step *step)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    m->step = step;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = exl2__cuda_begin_pass(m);
    exl2__cuda_device_leave(m->gpu);
    return r;
}

#endif
