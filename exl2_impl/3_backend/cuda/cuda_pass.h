/* cuda_pass.h: the data of a pass, packed into one pinned slot and uploaded as one block.
   takes: a step.
   gives: exl2__cuda_begin, exl2__cuda_masks, exl2__cuda_pass_captured. */
#ifndef EXL2__CUDA_PASS_H
#define EXL2__CUDA_PASS_H

#include "cuda_gemm_wg.h"
#include "cuda_load.h"

/* ---- data ---- */

/* Offsets of the parts of a pass's data, in bytes. Captured graphs know those up to `steers`. */
typedef struct exl2__cuda_pass_offsets {
    uint64_t groups, windowed, rows, samplings, loras, sets, row_sets, row_steers, steers;
    uint64_t tables, part_tables, tiles, copies, part_copies, lists;
} exl2__cuda_pass_offsets;

EXL2__PRIVATE exl2__cuda_pass_offsets exl2__cuda_pass_offsets_of(const exl2__cuda_pass *pass, const exl2__step *step,
                                                                 uint32_t groups, uint32_t table_pitch)
{
    exl2__cuda_pass_offsets at = { 0 };
    uint32_t sampling_count = pass->captured ? pass->row_count : step->logit_count;
    at.windowed = groups * sizeof(exl2k_pass);
    at.rows = exl2__align_up((groups + pass->parts) * sizeof(exl2k_pass), 16);
    at.samplings = exl2__align_up(at.rows + pass->row_count * sizeof(exl2k_row), 16);
    at.loras = exl2__align_up(at.samplings + sampling_count * sizeof(exl2k_sampling), 16);
    uint64_t sets = pass->captured ? pass->row_count : step->lora_set_count; /* captured: as many at most */
    uint64_t row_sets = exl2__align_up(pass->row_count * sizeof(exl2k_u16), 16);
    bool by_sets = pass->apart || pass->experts;
    at.sets = at.loras + (pass->adapted && !pass->apart ? sizeof(exl2k_lora_pass) : 0);
    at.row_sets = at.sets + (by_sets ? sets * sizeof(exl2k_lora_set) : 0);
    at.row_steers = at.row_sets + (by_sets ? row_sets : 0);
    at.steers = at.row_steers + (pass->steered ? row_sets : 0);
    at.tables = exl2__align_up(at.steers + (pass->steered ? sets * sizeof(exl2k_steer_set) : 0), 16);
    uint64_t table_bytes = (uint64_t)step->sequence_count * table_pitch * sizeof(uint32_t);
    at.part_tables = at.tables + table_bytes;
    at.tiles = exl2__align_up(at.part_tables + (pass->parts ? table_bytes : 0), 16);
    at.copies = exl2__align_up(at.tiles + pass->tile_count * sizeof(exl2k_tile), 16);
    at.part_copies = at.copies + step->copy_count * sizeof *step->copies;
    at.lists = exl2__align_up(at.part_copies + (pass->parts ? step->copy_count * sizeof *step->copies : 0), 16);
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

/* turned: a kernel rotates q and k by three axes, and attention does not. part_tables: only if the step has some. */
EXL2__PRIVATE void exl2__cuda_fill_rows(const exl2__step *step, bool turned, uint32_t vocab, exl2k_row *rows,
                                        uint32_t *tables, uint32_t *part_tables, uint32_t pitch)
{
    (void)vocab; /* only asserts read it */
    for (uint32_t i = 0; i < step->row_count; i++) {
        const exl2__step_row *row = &step->rows[i];
        uint32_t pages = exl2__cuda_last_position(step, i) / EXL2K_PAGE_TOKENS + 1;
        EXL2__ASSERT(row->vector || (uint32_t)row->token < vocab);
        EXL2__ASSERT(turned || (row->turn[0] == row->turn[1] && row->turn[0] == row->turn[2]));
        rows[i] = (exl2k_row){ (exl2k_u32)row->token, row->position, row->sequence, 0 };
        rows[i].flags = (row->vector ? EXL2K_ROW_VECTOR : 0) | (row->later ? EXL2K_ROW_LATER : 0);
        rows[i].flags |= (row->later ? row->later : turned ? 0 : (uint32_t)row->turn[0]) << EXL2K_ROW_MOVED;
        if (i + 1 < step->row_count && row[1].sequence == row->sequence) {
            continue;
        }
        size_t line = (size_t)row->sequence * pitch;
        memcpy(tables + line, step->page_tables[row->sequence], pages * sizeof *tables);
        if (step->part_tables) {
            memcpy(part_tables + line, step->part_tables[row->sequence], pages * sizeof *tables);
        }
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

/* ---- slots of adapters (lora_args.h) ---- */

/* The address in this device's memory of what lies at `at` of a block of an adapter. */
static inline uint64_t exl2__cuda_lora_own(const exl2__cuda_model *m, uint64_t at)
{
    const exl2__cuda_lora_block *block = m->lora_blocks ? *m->lora_blocks : NULL;
    while (block && at - block->of[0] >= block->bytes) {
        block = block->next;
    }
    return block ? at - block->of[0] + block->of[m->columns.index] : at;
}

/* Address of the adapter's table in this device's memory. */
static inline uint64_t exl2__cuda_lora_at(const exl2__cuda_model *m, const exl2__lora_use *use)
{
    return exl2__cuda_lora_own(m, use->store->device[m->plan->span]);
}

/* The slot that holds the adapter's table; EXL2K_LORA_SLOTS: none. */
EXL2__PRIVATE uint32_t exl2__cuda_lora_slot(const exl2__cuda_model *m, const exl2__lora_use *use)
{
    uint32_t slot = 0;
    while (slot < EXL2K_LORA_SLOTS
           && (m->lora_slots[slot].id != use->id || m->lora_slots[slot].table != exl2__cuda_lora_at(m, use))) {
        slot++;
    }
    return slot;
}

/* Copies the adapter's table to a slot that is not taken. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_place(exl2__cuda_model *m, const exl2__lora_use *use, const bool *taken,
                                                uint32_t *slot)
{
    uint64_t bytes = exl2__cuda_lora_table(m->plan) * sizeof(exl2k_lora_matrix);
    for (*slot = 0; taken[*slot];) {
        ++*slot;
    }
    EXL2__ASSERT(*slot < m->plan->lora_max);
    m->lora_slots[*slot] = (struct exl2__cuda_lora_slot){ use->id, exl2__cuda_lora_at(m, use) };
    return exl2__cuda_device_check(m->gpu, m->gpu->driver.copy(m->b.lora_tables + *slot * bytes,
                                                               exl2__cuda_lora_at(m, use), (size_t)bytes,
                                                               m->gpu->stream),
                                   "copying the table of an adapter");
}

/* Gives slots to the step's adapters. Those that have one keep it; tables of others are copied over tables of adapters
   that the step does not have. Earlier passes have read these by then. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_take(exl2__cuda_model *m)
{
    bool taken[EXL2K_LORA_SLOTS + 1] = { false };
    uint32_t sets = m->step->lora_set_count;
    for (uint32_t i = 0; i < 2 * sets; i++) { /* all that have slots, then all that have none */
        const exl2__lora_set *set = &m->step->lora_sets[i % sets];
        for (uint32_t u = 0; u < set->count; u++) {
            uint32_t slot = exl2__cuda_lora_slot(m, &set->uses[u]);
            if (slot == EXL2K_LORA_SLOTS && i >= sets) {
                EXL2__TRY(exl2__cuda_lora_place(m, &set->uses[u], taken, &slot));
            }
            taken[slot] = true;
        }
        taken[EXL2K_LORA_SLOTS] = false;
    }
    return EXL2_OK;
}

/* Fills in the adapters of the step's rows, in the order of their ids. */
EXL2__PRIVATE void exl2__cuda_fill_loras(const exl2__cuda_model *m, exl2k_lora_pass *pass)
{
    const exl2__step *step = m->step;
    const exl2__lora_use *uses[EXL2K_LORA_ADAPTERS];
    memset(pass, 0, sizeof *pass);
    for (uint32_t i = 0; i < step->lora_set_count; i++) {
        const exl2__lora_set *set = &step->lora_sets[i];
        for (uint32_t u = 0; u < set->count; u++) {
            uint32_t at = pass->count;
            while (at > 0 && uses[at - 1]->id > set->uses[u].id) {
                at--;
            }
            if (at > 0 && uses[at - 1]->id == set->uses[u].id) {
                continue;
            }
            EXL2__ASSERT(pass->count < EXL2K_LORA_ADAPTERS);
            memmove(&uses[at + 1], &uses[at], (pass->count - at) * sizeof *uses);
            uses[at] = &set->uses[u];
            pass->count++;
        }
    }
    for (uint32_t k = 0; k < pass->count; k++) {
        pass->slots[k] = (exl2k_u8)exl2__cuda_lora_slot(m, uses[k]);
        for (uint32_t i = 0; i < step->row_count; i++) {
            const exl2__lora_set *set = step->row_loras[i] ? &step->lora_sets[step->row_loras[i] - 1] : NULL;
            for (uint32_t u = 0; set && u < set->count; u++) {
                if (set->uses[u].id == uses[k]->id) {
                    pass->scale[k][i] = set->uses[u].scale;
                    pass->users[k] |= (exl2k_u8)(1u << i);
                }
            }
        }
    }
}

/* The same for passes whose products do not add adapters themselves. A captured pass may have fewer rows than its
   launches. */
EXL2__PRIVATE void exl2__cuda_fill_sets(const exl2__cuda_model *m, exl2k_lora_set *sets, exl2k_u16 *row_sets)
{
    const exl2__step *step = m->step;
    for (uint32_t i = 0; i < step->lora_set_count; i++) {
        sets[i] = (exl2k_lora_set){ .count = step->lora_sets[i].count };
        for (uint32_t u = 0; u < sets[i].count; u++) {
            sets[i].slots[u] = (exl2k_u8)exl2__cuda_lora_slot(m, &step->lora_sets[i].uses[u]);
            sets[i].scale[u] = step->lora_sets[i].uses[u].scale;
        }
    }
    for (uint32_t i = 0; i < m->pass.row_count; i++) {
        row_sets[i] = i < step->row_count ? step->row_loras[i] : 0;
    }
}

/* ---- control vectors (steer_args.h) ---- */

/* Copies a control vector to its slot, unless the slot holds it already. Earlier passes have read the old content by
   then. Layers for which the control vector has nothing become 0. */
EXL2__PRIVATE exl2_result exl2__cuda_steer_take(exl2__cuda_model *m, const exl2__lora_use *use)
{
    const exl2__steer_store *from = use->steer;
    uint32_t layers = exl2__cuda_steer_layers(m->plan), first = exl2__plan_first(m->plan);
    uint32_t hidden = m->plan->shape.hidden;
    uint64_t row_bytes = hidden * sizeof(float), to = m->b.steers + from->slot * layers * row_bytes;
    uint32_t most = (uint32_t)exl2__min64(m->ring.slot_bytes / row_bytes, layers);
    if (m->steer_slots[from->slot] == use->id || layers == 0) {
        return EXL2_OK;
    }
    EXL2__ASSERT(most > 0);
    m->steer_slots[from->slot] = 0;
    for (uint32_t done = 0, count; done < layers; done += count) {
        void *slot;
        count = exl2__min32(layers - done, most);
        EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, count * row_bytes, true, &slot));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t layer = first + done + i;
            uint8_t *row = (uint8_t *)slot + i * row_bytes;
            if (from->has[layer]) {
                memcpy(row, from->values + (size_t)layer * hidden, (size_t)row_bytes);
            } else {
                memset(row, 0, (size_t)row_bytes);
            }
        }
        EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, to + done * row_bytes, 0, count * row_bytes));
        EXL2__TRY(exl2__cuda_ring_next(m->gpu, &m->ring));
    }
    m->steer_slots[from->slot] = use->id;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_steers_take(exl2__cuda_model *m)
{
    for (uint32_t i = 0; i < m->step->lora_set_count; i++) {
        const exl2__lora_set *set = &m->step->lora_sets[i];
        for (uint32_t u = set->count; u < set->count + set->steer_count; u++) {
            EXL2__TRY(exl2__cuda_steer_take(m, &set->uses[u]));
        }
    }
    return EXL2_OK;
}

/* Fills in the control vectors of the step's rows. */
EXL2__PRIVATE void exl2__cuda_fill_steers(const exl2__cuda_model *m, exl2k_steer_set *sets, exl2k_u16 *row_sets)
{
    const exl2__step *step = m->step;
    for (uint32_t i = 0; i < step->lora_set_count; i++) {
        const exl2__lora_set *set = &step->lora_sets[i];
        sets[i] = (exl2k_steer_set){ .count = set->steer_count };
        for (uint32_t u = 0; u < set->steer_count; u++) {
            sets[i].slots[u] = (exl2k_u8)set->uses[set->count + u].steer->slot;
            sets[i].scale[u] = set->uses[set->count + u].scale;
        }
    }
    for (uint32_t i = 0; i < step->row_count; i++) {
        uint16_t set = step->row_loras[i];
        row_sets[i] = set && step->lora_sets[set - 1].steer_count ? set : 0;
    }
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
                                  .tiles = k->device + at->tiles,
                                  .ticket = m->fences_queued + m->plan->host_mlps + g, /* crossings come first */
                                  .logit_count = exl2__min32(size, step->logit_count - g * size) };
    }
    if (m->pass.parts) {
        passes[groups] = passes[0];
        passes[groups].tables = k->device + at->part_tables;
    }
    exl2__cuda_fill_rows(step, m->pass.turned, m->plan->shape.vocab, (exl2k_row *)(void *)(k->slot + at->rows),
                         (uint32_t *)(void *)(k->slot + at->tables), (uint32_t *)(void *)(k->slot + at->part_tables),
                         table_pitch);
    if (m->pass.prompts) {
        exl2__cuda_pack_tiles(m, step, (exl2k_tile *)(void *)(k->slot + at->tiles));
    }
    if (step->copy_count) {
        memcpy(k->slot + at->copies, step->copies, step->copy_count * sizeof *step->copies);
    }
    if (step->copy_count && m->pass.parts) {
        memcpy(k->slot + at->part_copies, step->part_copies, step->copy_count * sizeof *step->copies);
    }
    if (m->pass.apart || m->pass.experts) {
        exl2__cuda_fill_sets(m, (exl2k_lora_set *)(void *)(k->slot + at->sets),
                             (exl2k_u16 *)(void *)(k->slot + at->row_sets));
    }
    if (m->pass.adapted && !m->pass.apart) {
        exl2__cuda_fill_loras(m, (exl2k_lora_pass *)(void *)(k->slot + at->loras));
    }
    if (m->pass.steered) {
        exl2__cuda_fill_steers(m, (exl2k_steer_set *)(void *)(k->slot + at->steers),
                               (exl2k_u16 *)(void *)(k->slot + at->row_steers));
    }
    bool good = !m->pass.turned || exl2__cuda_pack_turns(m, k);
    for (uint32_t i = 0; i < step->logit_count && good; i++) {
        good = exl2__cuda_pack_sampling(k, &step->logits[i], step->repeats, &samplings[i]);
        samplings[i].row -= step->rows_before;
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
EXL2__PRIVATE exl2__cuda_pass exl2__cuda_pass_captured(const exl2__cuda_model *m, uint32_t rows, uint32_t kind)
{
    static const exl2__step none = { 0 };
    uint32_t adapted = kind % EXL2__CUDA_GRAPH_STEERED;
    exl2__cuda_pass pass = { .row_count = rows, .captured = true, .decodes = true, .adapted = adapted > 0,
                             .apart = adapted && m->plan->shape.exl3, .narrow = adapted == EXL2__CUDA_GRAPH_NARROW,
                             .steered = kind >= EXL2__CUDA_GRAPH_STEERED,
                             .parts = m->plan->window_pages > 0 };
    exl2__cuda_pass_offsets at = exl2__cuda_pass_offsets_of(&pass, &none, 1, 0);
    pass.groups = m->b.data + at.groups;
    pass.windowed = m->b.data + at.windowed;
    pass.rows = m->b.data + at.rows;
    pass.samplings = m->b.data + at.samplings;
    pass.loras = m->b.data + at.loras;
    pass.sets = m->b.data + at.sets;
    pass.row_sets = m->b.data + at.row_sets;
    pass.row_steers = m->b.data + at.row_steers;
    pass.steers = m->b.data + at.steers;
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

/* Counts passes with adapters. Values of t carry a number of their pass, of 16 bits at least (lora_args.h): they are
   cleared before a number returns. */
EXL2__PRIVATE exl2_result exl2__cuda_lora_turn(exl2__cuda_model *m)
{
    const exl2__cuda_driver *driver = &m->gpu->driver;
    if (!m->pass.adapted || m->pass.apart || ++m->lora_turns < EXL2__CUDA_LORA_TURNS) {
        return EXL2_OK;
    }
    m->lora_turns = 0;
    m->pass.chained = false; /* the next kernel waits for it */
    return exl2__cuda_device_check(m->gpu, driver->fill8(m->b.lora_t, 0, (size_t)m->b.lora_t_bytes, m->gpu->stream),
                                   "clearing buffers");
}

#ifndef EXL2_NO_VISION
/* Where the vectors lie that are added to rows after layer `level` - 1. */
static inline uint64_t exl2__cuda_deep(const exl2__cuda_model *m, uint32_t level)
{
    return m->b.deep + (uint64_t)(level - 1) * m->plan->rows_max * m->plan->shape.hidden * sizeof(float);
}
#endif

/* Sends the vectors of the pass begun. */
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

/* Finds whether an adapter of the step adds to experts by number, and whether all add to q, k and v alone. */
static inline void exl2__cuda_lora_reach(const exl2__step *step, bool *experts, bool *narrow)
{
    *experts = false;
    *narrow = true;
    for (uint32_t i = 0; i < step->lora_set_count; i++) {
        const exl2__lora_set *set = &step->lora_sets[i];
        for (uint32_t u = 0; u < set->count; u++) {
            *experts = *experts || set->uses[u].store->experts;
            *narrow = *narrow && set->uses[u].store->narrow;
        }
    }
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
                               .adapted = step->adapted, .steered = step->steered,
                               .prompts = step->kind == EXL2__ROWS_PROMPT, .parts = m->plan->window_pages > 0 };
    bool narrow;
    exl2__cuda_lora_reach(step, &pass->experts, &narrow);
    pass->captured = step->decodes && step->row_count <= exl2__cuda_graph_rows(m->plan) && !pass->experts;
    pass->apart = pass->adapted && (pass->prompts || m->plan->shape.exl3);
    pass->narrow = pass->adapted && !pass->apart && narrow;
    EXL2__ASSERT(!pass->adapted || pass->prompts || step->row_count <= EXL2__CUDA_LORA_ROWS);
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
    pass->windowed = m->b.data + at.windowed;
    pass->rows = m->b.data + at.rows;
    pass->samplings = m->b.data + at.samplings;
    pass->loras = m->b.data + at.loras;
    pass->sets = m->b.data + at.sets;
    pass->row_sets = m->b.data + at.row_sets;
    pass->row_steers = m->b.data + at.row_steers;
    pass->steers = m->b.data + at.steers;
    pass->copies = m->b.data + at.copies;
    pass->part_copies = m->b.data + at.part_copies;
    EXL2__TRY(pass->adapted ? exl2__cuda_lora_take(m) : EXL2_OK);
    EXL2__TRY(pass->steered ? exl2__cuda_steers_take(m) : EXL2_OK);
    m->fences_collected = m->fences_queued; /* skips the results of a pass that was dropped */
    EXL2__TRY(exl2__cuda_ring_take(m->gpu, &m->ring, m->b.data_bytes, true, &slot));
    exl2__cuda_packer k = { (uint8_t *)slot, 0, m->b.data_bytes, m->b.data };
    if (!exl2__cuda_pack_all(m, &k, &at, table_pitch, groups)) {
        return exl2__fail(m->c, EXL2_ERR_INTERNAL, "the data of a pass needs %llu bytes, but %llu were planned",
                          (unsigned long long)k.used, (unsigned long long)k.size);
    }
    uint64_t to = step->groups > 1 ? m->b.kept + step->group * m->b.data_bytes : m->b.data;
    EXL2__TRY(exl2__cuda_ring_copy(m->gpu, &m->ring, to, 0, k.used));
    EXL2__TRY(exl2__cuda_ring_next(m->gpu, &m->ring));
    if (step->groups > 1) {
        m->kept[step->group] = (exl2__cuda_kept){ *pass, step, k.used };
    }
    EXL2__TRY(exl2__cuda_lora_turn(m));
    bool sends = exl2__plan_first(m->plan) == 0 && !exl2__columns_are_cut(&m->columns); /* else cuda_group.h does */
    return sends ? exl2__cuda_send_vectors(m) : EXL2_OK;
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
    bool streamed = step->kind == EXL2__ROWS_PROMPT && m->given->streamed.parts > 0;
    m->plan = streamed ? &m->prompt_plan : m->given;
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    return exl2__cuda_device_leave_with(m->gpu, exl2__cuda_begin_pass(m));
}

#endif
