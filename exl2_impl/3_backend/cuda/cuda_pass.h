/* cuda_pass.h: the data of a pass, packed into one pinned slot and uploaded as one block.
   takes: a step.
   gives: exl2__cuda_begin, exl2__cuda_masks, exl2__cuda_pass_captured. */
#ifndef EXL2__CUDA_PASS_H
#define EXL2__CUDA_PASS_H

#include "cuda_gemm_wg.h"
#include "cuda_load.h"

/* ---- data ---- */

/* Offsets of the parts of a pass's data, in bytes. Captured graphs know the first three. */
typedef struct exl2__cuda_pass_offsets {
    uint64_t groups, rows, samplings, tables, tiles, copies, lists;
} exl2__cuda_pass_offsets;

EXL2__PRIVATE exl2__cuda_pass_offsets exl2__cuda_pass_offsets_of(const exl2__cuda_pass *pass, const exl2__step *step,
                                                                 uint32_t groups, uint32_t table_pitch)
{
    exl2__cuda_pass_offsets at = { 0 };
    uint32_t sampling_count = pass->captured ? pass->row_count : step->logit_count;
    at.rows = exl2__align_up(groups * sizeof(exl2k_pass), 16);
    at.samplings = exl2__align_up(at.rows + pass->row_count * sizeof(exl2k_row), 16);
    at.tables = exl2__align_up(at.samplings + sampling_count * sizeof(exl2k_sampling), 16);
    at.tiles = exl2__align_up(at.tables + (uint64_t)step->sequence_count * table_pitch * sizeof(uint32_t), 16);
    at.copies = exl2__align_up(at.tiles + pass->tile_count * sizeof(exl2k_tile), 16);
    at.lists = exl2__align_up(at.copies + step->copy_count * sizeof *step->copies, 16);
    return at;
}

/* Variable-length lists (biases, histories) are appended after the fixed part of the pass data. */
typedef struct exl2__cuda_packer {
    uint8_t *slot;
    uint64_t used, size, device; /* device: address that the slot's first byte is uploaded to */
} exl2__cuda_packer;

/* Appends `bytes` bytes, aligned to 16; *address: where they will lie on the device. NULL: more than was planned. */
EXL2__PRIVATE void *exl2__cuda_pack(exl2__cuda_packer *k, uint64_t bytes, uint64_t *address)
{
    uint64_t at = k->used;
    *address = k->device + at;
    k->used = exl2__align_up(at + bytes, 16);
    return k->used <= k->size ? k->slot + at : NULL;
}

/* Fills in the tiles of the prefill kernels, each with rows of one sequence, and returns their number. tiles NULL: only
   counts. */
EXL2__PRIVATE uint32_t exl2__cuda_pack_tiles(const exl2__cuda_model *m, const exl2__step *step, exl2k_tile *tiles)
{
    uint32_t group = m->plan->shape.heads / m->plan->shape.kv_heads, count = 0;
    for (uint32_t first = 0, end; first < step->row_count; first = end) {
        for (end = first + 1; end < step->row_count && step->rows[end].sequence == step->rows[first].sequence;) {
            end++;
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

/* The last position that the row reaches before the next upload; its pages are already in the page table. */
static inline uint32_t exl2__cuda_last_position(const exl2__step *step, uint32_t row)
{
    uint32_t more = step->repeats ? exl2__max32(step->logits[row].left, 1) - 1 : 0;
    return step->rows[row].position + more;
}

EXL2__PRIVATE uint32_t exl2__cuda_table_pitch(const exl2__step *step)
{
    uint32_t pages = 1;
    for (uint32_t i = 0; i < step->row_count; i++) {
        pages = exl2__max32(pages, exl2__cuda_last_position(step, i) / EXL2K_PAGE_TOKENS + 1);
    }
    return pages;
}

/* later: of a later span, whose rows have their index in place of a token (exl2__cuda_embed_table). turned: a kernel
   rotates q and k by three axes, and attention does not. */
EXL2__PRIVATE void exl2__cuda_fill_rows(const exl2__step *step, bool later, bool turned, uint32_t vocab,
                                        exl2k_row *rows, uint32_t *tables, uint32_t pitch)
{
    (void)vocab; /* only asserts read it */
    for (uint32_t i = 0; i < step->row_count; i++) {
        const exl2__step_row *row = &step->rows[i];
        uint32_t pages = exl2__cuda_last_position(step, i) / EXL2K_PAGE_TOKENS + 1;
        EXL2__ASSERT(row->vector || (uint32_t)row->token < vocab);
        EXL2__ASSERT(row->turn[0] <= 0 && (turned || (row->turn[0] == row->turn[1] && row->turn[0] == row->turn[2])));
        rows[i] = (exl2k_row){ later ? i : (exl2k_u32)row->token, row->position, row->sequence, 0 };
        rows[i].flags = row->vector && !later ? EXL2K_ROW_VECTOR : 0;
        rows[i].flags |= (row->later ? row->later : turned ? 0 : (uint32_t)row->turn[0]) << EXL2K_ROW_MOVED;
        if (i + 1 < step->row_count && row[1].sequence == row->sequence) {
            continue;
        }
        memcpy(tables + (size_t)row->sequence * pitch, step->page_tables[row->sequence], pages * sizeof *tables);
    }
}

/* Packs one logit row with its lists, without its mask. */
EXL2__PRIVATE bool exl2__cuda_pack_sampling(exl2__cuda_packer *k, const exl2__logit_row *row, bool advance,
                                            exl2k_sampling *sampling)
{
    exl2__cuda_lists lists = { 0 };
    if (row->use == EXL2__LOGIT_SAMPLE) {
        lists.history_size = advance ? row->history_max : row->history_count;
        void *history = exl2__cuda_pack(k, lists.history_size * sizeof(uint32_t), &lists.history);
        const exl2__sampling *s = row->sampling;
        uint64_t biases = s->bias_count + row->extra_count;
        exl2k_bias *bias = (exl2k_bias *)exl2__cuda_pack(k, biases * sizeof(exl2k_bias), &lists.bias);
        if (!history || !bias) {
            return false;
        }
        if (row->history_count) {
            memcpy(history, row->history, row->history_count * sizeof(uint32_t));
        }
        for (uint32_t i = 0; i < biases; i++) {
            const exl2_bias *from = i < s->bias_count ? &s->bias[i] : &row->extras[i - s->bias_count];
            bias[i] = (exl2k_bias){ (exl2k_u32)from->token, from->add };
        }
    }
    *sampling = exl2__cuda_sample_settings(row, &lists, advance, row->left);
    return true;
}

/* Bytes of one mask. */
static inline uint64_t exl2__cuda_mask_bytes(const exl2__cuda_model *m)
{
    return exl2__align_up(exl2__bit_words(m->plan->shape.vocab) * sizeof(uint32_t), 16);
}

/* Packs the sets of adapters of the step's rows. */
EXL2__PRIVATE bool exl2__cuda_pack_loras(exl2__cuda_model *m, exl2__cuda_packer *k)
{
    const exl2__step *step = m->step;
    exl2k_lora_row *rows =
        (exl2k_lora_row *)exl2__cuda_pack(k, step->row_count * sizeof *rows, &m->pass.loras);
    for (uint32_t i = 0; rows && i < step->row_count; i++) {
        rows[i] = (exl2k_lora_row){ 0 };
        const exl2__lora_set *set = step->row_loras[i] ? &step->lora_sets[step->row_loras[i] - 1] : NULL;
        for (uint32_t u = 0; set && u < set->count; u++) {
            rows[i].uses[rows[i].count++] = (exl2k_lora_use){ set->uses[u].store->device, set->uses[u].scale, 0 };
        }
    }
    return rows != NULL;
}

/* Packs what turns the angles of each row, by axis. */
EXL2__PRIVATE bool exl2__cuda_pack_turns(exl2__cuda_model *m, exl2__cuda_packer *k)
{
    const exl2__step *step = m->step;
    int32_t *turns = (int32_t *)exl2__cuda_pack(k, step->row_count * 3 * sizeof *turns, &m->pass.turns);
    for (uint32_t i = 0; turns && i < step->row_count; i++) {
        memcpy(turns + 3 * (size_t)i, step->rows[i].turn, sizeof step->rows[i].turn);
    }
    return turns != NULL;
}

/* Gives the masks their addresses, after everything else; they are uploaded later. */
EXL2__PRIVATE bool exl2__cuda_pack_masks(exl2__cuda_model *m, const exl2__cuda_packer *k, exl2k_sampling *samplings)
{
    uint64_t bytes = 0;
    m->pass.masks = k->device + k->used;
    for (uint32_t i = 0; i < m->step->logit_count; i++) {
        if (m->step->logits[i].mask) {
            samplings[i].mask = m->pass.masks + bytes;
            bytes += exl2__cuda_mask_bytes(m);
        }
    }
    return k->used + bytes <= k->size;
}

/* Packs all of the data at the offsets `at`. */
EXL2__PRIVATE bool exl2__cuda_pack_all(exl2__cuda_model *m, exl2__cuda_packer *k, const exl2__cuda_pass_offsets *at,
                                       uint32_t table_pitch, uint32_t groups)
{
    const exl2__step *step = m->step;
    exl2k_pass *passes = (exl2k_pass *)(void *)(k->slot + at->groups);
    exl2k_sampling *samplings = (exl2k_sampling *)(void *)(k->slot + at->samplings);
    uint32_t size = m->plan->logit_rows_max;
    k->used = at->lists;
    if (k->used > k->size) {
        return false;
    }
    for (uint32_t g = 0; g < groups; g++) {
        passes[g] = (exl2k_pass){ .row_count = step->row_count, .tile_count = m->pass.tile_count,
                                  .table_pitch = table_pitch, .tables = k->device + at->tables,
                                  .tiles = k->device + at->tiles, .ticket = m->fences_queued + g,
                                  .logit_count = exl2__min32(size, step->logit_count - g * size) };
    }
    bool later = exl2__plan_first(m->plan) > 0;
    exl2__cuda_fill_rows(step, later, m->pass.turned, m->plan->shape.vocab, (exl2k_row *)(void *)(k->slot + at->rows),
                         (uint32_t *)(void *)(k->slot + at->tables), table_pitch);
    if (m->pass.prompts) {
        exl2__cuda_pack_tiles(m, step, (exl2k_tile *)(void *)(k->slot + at->tiles));
    }
    if (step->copy_count) {
        memcpy(k->slot + at->copies, step->copies, step->copy_count * sizeof *step->copies);
    }
    bool good = (!m->pass.adapted || exl2__cuda_pack_loras(m, k)) && (!m->pass.turned || exl2__cuda_pack_turns(m, k));
    for (uint32_t i = 0; i < step->logit_count && good; i++) {
        good = exl2__cuda_pack_sampling(k, &step->logits[i], step->repeats, &samplings[i]);
    }
    return good && exl2__cuda_pack_masks(m, k, samplings);
}

/* Chooses the kernels of products, by the rows of launches. */
static inline void exl2__cuda_pass_products(const exl2__cuda_model *m, exl2__cuda_pass *pass)
{
    pass->by_gemm = pass->prompts || pass->row_count >= EXL2__CUDA_GEMM_ROWS_MIN;
    pass->by_wg = m->has_wg && pass->by_gemm;
}

/* What launches of a captured pass of `rows` rows, those of its class, need to know; nothing of it comes from a
   step. */
EXL2__PRIVATE exl2__cuda_pass exl2__cuda_pass_captured(const exl2__cuda_model *m, uint32_t rows)
{
    static const exl2__step none = { 0 };
    exl2__cuda_pass pass = { .row_count = rows, .captured = true, .decodes = true };
    exl2__cuda_pass_offsets at = exl2__cuda_pass_offsets_of(&pass, &none, 1, 0);
    pass.groups = m->b.data + at.groups;
    pass.rows = m->b.data + at.rows;
    pass.samplings = m->b.data + at.samplings;
    exl2__cuda_pass_products(m, &pass);
    return pass;
}

/* Uploads a level of the vectors of rows to `to`: the first one into the residual, where the embedding finds it. The
   stream's earlier passes do not read it any more by then. */
EXL2__PRIVATE exl2_result exl2__cuda_send_level(exl2__cuda_model *m, uint32_t level, uint64_t to)
{
    const exl2__step *step = m->step;
    uint64_t row_bytes = m->plan->shape.hidden * sizeof(float), most = m->ring.slot_bytes / row_bytes;
    size_t before = (size_t)level * m->plan->shape.hidden;
    EXL2__ASSERT(most > 0);
    for (uint32_t first = 0, count; first < step->row_count; first += exl2__max32(count, 1)) {
        void *slot;
        for (count = 0; first + count < step->row_count && step->rows[first + count].vector && count < most;) {
            count++; /* rows of one copy */
        }
        if (count == 0) {
            continue;
        }
        EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, count * row_bytes, true, &slot));
        for (uint32_t i = 0; i < count; i++) {
            memcpy((uint8_t *)slot + i * row_bytes, step->rows[first + i].vector + before, (size_t)row_bytes);
        }
        EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, to + first * row_bytes, 0, count * row_bytes));
        EXL2__TRY(exl2__cuda_ring_next(m->gpu, &m->ring));
    }
    return EXL2_OK;
}

#ifndef EXL2_NO_VISION
/* Where the vectors lie that are added to rows after layer `level` - 1. */
static inline uint64_t exl2__cuda_deep(const exl2__cuda_model *m, uint32_t level)
{
    return m->b.tower.deep + (uint64_t)(level - 1) * m->plan->rows_max * m->plan->shape.hidden * sizeof(float);
}
#endif

EXL2__PRIVATE exl2_result exl2__cuda_send_vectors(exl2__cuda_model *m)
{
    EXL2__TRY(exl2__cuda_send_level(m, 0, m->b.residual));
#ifndef EXL2_NO_VISION
    for (uint32_t level = 1; level < m->plan->shape.row_levels; level++) {
        EXL2__TRY(exl2__cuda_send_level(m, level, exl2__cuda_deep(m, level)));
    }
#endif
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_begin_pass(exl2__cuda_model *m)
{
    void *slot;
    const exl2__step *step = m->step;
    uint32_t table_pitch = exl2__cuda_table_pitch(step), size = m->plan->logit_rows_max;
    uint32_t groups = exl2__max32(1, (uint32_t)exl2__div_up(step->logit_count, size));
    exl2__cuda_pass *pass = &m->pass;
    EXL2__ASSERT(!step->decodes || !exl2__step_has_hidden(step, 0, step->logit_count, false));
    *pass = (exl2__cuda_pass){ .row_count = step->row_count, .first_norm = true, .decodes = step->decodes,
                               .adapted = step->row_loras != NULL,
                               .prompts = step->kind == EXL2__ROWS_PROMPT && !step->row_loras,
                               .captured = step->decodes && step->row_count <= exl2__cuda_graph_rows(m->plan)
                                           && !step->row_loras };
    EXL2__ASSERT(!pass->adapted || step->row_count <= EXL2__CUDA_LORA_ROWS);
    if (pass->captured) {
        pass->row_count = exl2__cuda_class_rows(m->plan, exl2__cuda_row_class(step->row_count));
    }
    exl2__cuda_pass_products(m, pass);
    pass->tile_count = pass->prompts ? exl2__cuda_pack_tiles(m, step, NULL) : 0;
    for (uint32_t i = 0; i < step->row_count; i++) {
        const exl2__step_row *row = &step->rows[i];
        pass->longest_context = exl2__max32(pass->longest_context, row->position + 1);
        pass->turned |= !pass->captured && (row->turn[0] || row->turn[1] || row->turn[2]);
    }
    exl2__cuda_pass_offsets at = exl2__cuda_pass_offsets_of(pass, step, groups, table_pitch);
    pass->groups = m->b.data + at.groups;
    pass->rows = m->b.data + at.rows;
    pass->samplings = m->b.data + at.samplings;
    pass->copies = m->b.data + at.copies;
    m->fences_collected = m->fences_queued; /* skips the results of a pass that was dropped */
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, m->b.data_bytes, true, &slot));
    exl2__cuda_packer k = { (uint8_t *)slot, 0, m->b.data_bytes, m->b.data };
    if (!exl2__cuda_pack_all(m, &k, &at, table_pitch, groups)) {
        return exl2__fail(m->c, EXL2_ERR_INTERNAL, "the data of a pass needs %llu bytes, but %llu were planned",
                          (unsigned long long)k.used, (unsigned long long)k.size);
    }
    EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, m->b.data, 0, k.used));
    EXL2__TRY(exl2__cuda_ring_next(m->gpu, &m->ring));
    return exl2__plan_first(m->plan) == 0 ? exl2__cuda_send_vectors(m) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_send_masks(exl2__cuda_model *m)
{
    void *slot;
    uint64_t used = 0;
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, m->ring.slot_bytes, true, &slot));
    for (uint32_t i = 0; i < m->step->logit_count; i++) {
        if (m->step->logits[i].mask) {
            memcpy((uint8_t *)slot + used, m->step->logits[i].mask,
                   exl2__bit_words(m->plan->shape.vocab) * sizeof(uint32_t));
            used += exl2__cuda_mask_bytes(m);
        }
    }
    m->pass.chained = false; /* the next kernel reads the masks */
    EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, m->pass.masks, 0, used));
    return exl2__cuda_ring_next(m->gpu, &m->ring);
}

EXL2__PRIVATE exl2_result exl2__cuda_masks(exl2__device *device)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_send_masks(m));
}

EXL2__PRIVATE exl2_result exl2__cuda_begin(exl2__device *device, const exl2__step *step)
{
    exl2__cuda_model *m = exl2__cuda_of(device);
    m->step = step;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_begin_pass(m));
}

#endif
