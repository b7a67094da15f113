/* cuda_group.h: a backend whose device is several GPUs that share every matrix of a model by columns (columns.h).
   takes: open GPUs that reach each other's memory.
   gives: exl2__cuda_group_backend, whose `open` needs the GPUs as cuda_group_members.h has them.
   owns:  a model of the CUDA backend on each GPU, until close.

   Each member has its columns of all matrices and its heads' K and V; in between they meet (cuda_meet.h). All get the
   same calls in the same order, and compute norms, the residual and sampling alike, so results are those of member 0,
   and have the bits of one GPU. A page, as it is copied to host memory, is that of one GPU, too. */
#ifndef EXL2__CUDA_GROUP_H
#define EXL2__CUDA_GROUP_H

#include "cuda_group_loras.h"
#include "cuda_group_towers.h"

/* ---- open and close ---- */

/* Waits until the work of all members has ended: until then one may read the memory of another. */
EXL2__PRIVATE void exl2__cuda_group_wait(const exl2__cuda_group *g)
{
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        if (m && m->gpu->driver.context_push(m->gpu->context) == 0) {
            m->gpu->driver.stream_wait(m->gpu->stream);
            exl2__cuda_device_leave(m->gpu);
        }
    }
}

EXL2__PRIVATE void exl2__cuda_group_close(exl2__device *device)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    if (!g) {
        return;
    }
    exl2__ctx *c = g->c;
    exl2__cuda_group_wait(g);
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__cuda_close(g->of[i]);
    }
    while (g->shared) {
        exl2__cuda_shared *next = g->shared->next;
        exl2__free(c, g->shared, sizeof *g->shared, EXL2_MEM_GENERAL);
        g->shared = next;
    }
    exl2__free(c, g, sizeof *g, EXL2_MEM_GENERAL);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_check(exl2__ctx *c, const exl2__cuda_group_gpus *gpus)
{
    for (uint32_t i = 0; i < gpus->count * gpus->count; i++) {
        const exl2__cuda_device *one = gpus->of[i / gpus->count], *other = gpus->of[i % gpus->count];
        if (one != other && !(one->peers >> other->slot & 1)) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "GPU %u (%s) and GPU %u (%s) do not reach each other's memory, "
                              "so they cannot share a model by columns; by layers they can", one->info.index,
                              one->info.name, other->info.index, other->info.name);
        }
        if (one->info.arch != other->info.arch || one->sm_count != other->sm_count) {
            return exl2__fail(c, EXL2_ERR_UNSUPPORTED, "GPU %u (%s) and GPU %u (%s) are of different kinds, so they "
                              "cannot share a model by columns; by layers they can", one->info.index,
                              one->info.name, other->info.index, other->info.name);
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_open(exl2__ctx *c, void *hardware, exl2__device **out)
{
    const exl2__cuda_group_gpus *gpus = (const exl2__cuda_group_gpus *)hardware;
    void *memory;
    *out = NULL;
    EXL2__TRY(exl2__cuda_group_check(c, gpus));
    EXL2__TRY(exl2__alloc(c, sizeof(exl2__cuda_group), 16, EXL2_MEM_GENERAL, &memory));
    exl2__cuda_group *g = (exl2__cuda_group *)memory;
    memset(g, 0, sizeof *g);
    g->c = c;
    g->count = gpus->count;
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        r = exl2__cuda_open(c, gpus->of[i], &g->of[i]);
    }
    if (r < 0) {
        exl2__cuda_group_close((exl2__device *)memory);
        return r;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        m->columns = exl2__columns_make(gpus->shares, g->count);
        m->columns.index = i;
        m->lora_blocks = &g->lora_blocks;
        for (uint32_t k = 0; k < g->count; k++) {
            m->mates[k] = exl2__cuda_of(g->of[k]);
        }
    }
    *out = (exl2__device *)memory;
    return EXL2_OK;
}

/* ---- plans of members ---- */

/* The plan of member `index`, still with the matrices and vectors of the whole model. */
EXL2__PRIVATE exl2__plan exl2__cuda_group_plan(const exl2__cuda_group *g, const exl2__plan *plan, uint32_t index)
{
    exl2__plan p = *plan;
    uint32_t dim = p.shape.head_dim, all = p.shape.kv_heads * dim;
    uint32_t unit = exl2__columns_heads(dim, p.shape.columns_unit) * dim;
    p.columns = exl2__cuda_of(g->of[index])->columns;
    exl2__columns_run own = exl2__columns_of(&p.columns, all, unit);
    p.columns.heads = p.shape.heads;
    p.columns.kv_heads = p.shape.kv_heads;
    p.columns.first_kv_head = own.first / dim;
    p.columns.idle = own.count == 0;
    p.shape.attended = p.shape.heads * dim;
    p.shape.kv_heads = exl2__max32(own.count / dim, 1);
    p.shape.heads = p.shape.kv_heads * (p.columns.heads / p.columns.kv_heads);
#ifndef EXL2_NO_VISION
    p.tower = index == 0 ? p.tower : NULL;
#endif
    return p;
}

/* Fills in the member's matrices and vectors. layers [shape.layers], experts [shape.layers, shape.experts.count]:
   memory for them. All experts of a layer have one record, which is that of up and of down. */
EXL2__PRIVATE void exl2__cuda_group_translate(const exl2__plan *plan, uint32_t index, exl2__layer *layers,
                                              exl2__matrix **experts, exl2__plan *p)
{
    p->layers = layers;
    p->embed = exl2__cuda_group_matrix(plan->embed, index);
    p->head = exl2__cuda_group_matrix(plan->head, index);
    p->positions = exl2__cuda_group_matrix(plan->positions, index);
    p->final_norm = exl2__cuda_group_norm(plan->final_norm, index);
    for (uint32_t i = 0; i < plan->shape.layers; i++) {
        const exl2__layer *from = &plan->layers[i];
        exl2__layer *to = &layers[i];
        *to = *from;
        for (uint32_t role = 0; role < EXL2__ROLE_SINGLES; role++) {
            to->matrix[role] = exl2__cuda_group_matrix(from->matrix[role], index);
        }
        for (uint32_t k = 0; k < plan->shape.experts.count && from->experts[0]; k++) {
            uint64_t at = (uint64_t)i * plan->shape.experts.count;
            experts[at + k] = exl2__cuda_group_matrix(from->experts[0][k], index);
            to->experts[0] = to->experts[1] = experts + at;
        }
        to->choice_bias = (exl2__vector *)exl2__cuda_group_part(from->choice_bias, index);
        to->sinks = (exl2__vector *)exl2__cuda_group_part(from->sinks, index);
        to->attn_norm = exl2__cuda_group_norm(from->attn_norm, index);
        to->attn_post_norm = exl2__cuda_group_norm(from->attn_post_norm, index);
        to->mlp_norm = exl2__cuda_group_norm(from->mlp_norm, index);
        to->mlp_post_norm = exl2__cuda_group_norm(from->mlp_post_norm, index);
        to->q_norm = exl2__cuda_group_norm(from->q_norm, index);
        to->k_norm = exl2__cuda_group_norm(from->k_norm, index);
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_group_supports(exl2__device *device, const exl2__shape *s)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    return exl2__cuda_supports(g->of[0], s);
}

/* ---- sizes ---- */

EXL2__PRIVATE uint32_t exl2__cuda_group_sharers(const exl2__device *device)
{
    return exl2__cuda_group_of(device)->count;
}

EXL2__PRIVATE uint64_t exl2__cuda_group_own_bytes(const exl2__device *device, uint32_t index,
                                                  const exl2__matrix_desc *parts, uint32_t count)
{
    return exl2__cuda_matrix_bytes(exl2__cuda_group_of(device)->of[index], parts, count);
}

EXL2__PRIVATE uint64_t exl2__cuda_group_matrix_bytes(const exl2__device *device, const exl2__matrix_desc *parts,
                                                     uint32_t count)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(device);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        bytes += exl2__cuda_matrix_bytes(g->of[i], parts, count);
    }
    return bytes;
}

EXL2__PRIVATE uint64_t exl2__cuda_group_vector_bytes(const exl2__device *device, uint32_t count)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(device);
    return exl2__cuda_vector_bytes(g->of[0], count) * g->count;
}

EXL2__PRIVATE uint64_t exl2__cuda_group_page_bytes(const exl2__device *device, const exl2__plan *plan, bool part)
{
    return exl2__cuda_page_bytes_all(exl2__cuda_group_of(device)->of[0], plan, part);
}

/* A member without heads has pages all the same: they count as buffers. */
EXL2__PRIVATE uint64_t exl2__cuda_group_buffer_bytes(const exl2__device *device, const exl2__plan *plan)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(device);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__plan p = exl2__cuda_group_plan(g, plan, i);
        bytes += exl2__cuda_buffer_bytes(g->of[i], &p) + exl2__cuda_cache_bytes(&p);
    }
    return bytes - exl2__cuda_cache_bytes(plan);
}

EXL2__PRIVATE uint64_t exl2__cuda_group_host_bytes(const exl2__device *device, const exl2__plan *plan,
                                                   uint64_t slice_bytes, bool ready)
{
    const exl2__cuda_group *g = exl2__cuda_group_of(device);
    uint64_t layers = exl2__plan_span(plan), each = EXL2__ROLE_SINGLES + 2 * (uint64_t)plan->shape.experts.count;
    uint64_t shared = (each + EXL2__UNIT_VECTORS_MAX) * layers + 5, bytes = shared * sizeof(exl2__cuda_shared);
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__plan p = exl2__cuda_group_plan(g, plan, i);
        bytes += exl2__cuda_host_bytes(g->of[i], &p, slice_bytes, ready);
    }
    return bytes;
}

/* ---- weights ---- */

EXL2__PRIVATE exl2_result exl2__cuda_group_reserve(exl2__device *device, const uint64_t *weight_bytes)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (; g->reserved < g->count; g->reserved++) {
        EXL2__TRY_DONE(exl2__cuda_reserve(g->of[g->reserved], weight_bytes + g->reserved));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_stage(exl2__device *device, uint64_t bytes, void **out)
{
    return exl2__cuda_stage(exl2__cuda_group_of(device)->of[0], bytes, out);
}

/* A record of what each member is to make. */
EXL2__PRIVATE exl2_result exl2__cuda_group_share(exl2__cuda_group *g, exl2__cuda_shared **out)
{
    void *memory;
    EXL2__TRY(exl2__alloc(g->c, sizeof(exl2__cuda_shared), 16, EXL2_MEM_GENERAL, &memory));
    *out = (exl2__cuda_shared *)memory;
    **out = (exl2__cuda_shared){ .next = g->shared };
    g->shared = *out;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_matrix_make(exl2__device *device, exl2__arena *weights,
                                                       const exl2__matrix_desc *parts, uint32_t count,
                                                       exl2__matrix **out)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2__cuda_shared *shared;
    EXL2__TRY(exl2__cuda_group_share(g, &shared));
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__matrix *matrix;
        EXL2__TRY(exl2__cuda_matrix_make(g->of[i], weights, parts, count, &matrix));
        shared->of[i] = matrix;
    }
    *out = (exl2__matrix *)(void *)shared;
    return EXL2_OK;
}

/* Each member gets all rows, and packs its columns of them. */
EXL2__PRIVATE exl2_result exl2__cuda_group_matrix_feed(exl2__device *device, exl2__matrix *matrix, uint32_t part,
                                                       const exl2__rows_slice *slice, exl2__work *work)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    const exl2__cuda_matrix *first = exl2__cuda_matrix_of(exl2__cuda_group_matrix(matrix, 0));
    uint64_t bytes = slice->rows * first->feed[part].row_bytes;
    for (uint32_t i = g->count; i-- > 0;) { /* the rows lie in the staging memory of member 0, which comes last */
        exl2__rows_slice own = *slice;
        if (i > 0) {
            void *memory;
            EXL2__TRY(exl2__cuda_stage(g->of[i], bytes, &memory));
            memcpy(memory, slice->data, (size_t)bytes);
            own.data = memory;
        }
        EXL2__TRY(exl2__cuda_matrix_feed(g->of[i], exl2__cuda_group_matrix(matrix, i), part, &own, work));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_vector_make(exl2__device *device, exl2__arena *weights, const float *values,
                                                       uint32_t count, exl2__vector **out)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2__cuda_shared *shared;
    EXL2__TRY(exl2__cuda_group_share(g, &shared));
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__vector *vector;
        EXL2__TRY(exl2__cuda_vector_make(g->of[i], weights, values, count, &vector));
        shared->of[i] = vector;
    }
    *out = (exl2__vector *)(void *)shared;
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_keep_packed(exl2__device *device, exl2__work *work)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        EXL2__TRY_DONE(exl2__cuda_keep_packed(g->of[i], work));
    }
    return EXL2_OK;
}

EXL2__PRIVATE void exl2__cuda_group_drop(exl2__device *device)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2__cuda_group_wait(g);
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__cuda_drop(g->of[i]);
    }
    g->reserved = 0;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_restore(exl2__device *device, exl2__work *work)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        EXL2__TRY_DONE(exl2__cuda_restore(g->of[i], work));
    }
    return EXL2_OK;
}

/* ---- prepare ---- */

/* Empties what the others give to a member. Returns the driver's result. */
EXL2__PRIVATE int exl2__cuda_group_empty(const exl2__cuda_model *m)
{
    uint64_t bytes = exl2__cuda_given_at(&m->b, EXL2__CUDA_GIVEN_COUNT);
    return m->gpu->driver.fill8(m->b.given, 0xFF, (size_t)bytes, m->gpu->stream);
}

/* All members' buffers are allocated: what they read of each other is known, and units are cut as for the one that has
   the most weights. */
EXL2__PRIVATE exl2_result exl2__cuda_group_join(exl2__cuda_group *g)
{
    const exl2__cuda_model *slowest = exl2__cuda_of(g->of[0]);
    uint32_t gives = EXL2__CUDA_GIVEN_ROWS, gives_attended = gives;
    for (uint32_t i = 0; i < g->count; i++) { /* before the others write to what it clears */
        exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        slowest = m->weights.used > slowest->weights.used ? m : slowest;
        gives = exl2__min32(gives, exl2__cuda_may_give(m));
        gives_attended = exl2__min32(gives_attended, exl2__cuda_may_give_attended(m));
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        int waited = exl2__cuda_group_empty(m);
        waited = waited ? waited : m->gpu->driver.stream_wait(m->gpu->stream);
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, exl2__cuda_device_check(m->gpu, waited, "clearing buffers")));
    }
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
        m->layers_per_unit = slowest->layers_per_unit;
        m->head_units = slowest->head_units;
        m->whole_graphs = slowest->whole_graphs;
        m->gives = gives;
        m->gives_attended = gives_attended;
        EXL2__TRY(exl2__cuda_device_enter(m->gpu));
        EXL2__TRY(exl2__cuda_device_leave_with(m->gpu, exl2__cuda_graphs_open(m)));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_prepare(exl2__device *device, const exl2__plan *plan, exl2__arena *pages,
                                                   exl2__arena *scratch)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    g->page_max = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        uint64_t count = plan->shape.layers, all = count * plan->shape.experts.count;
        exl2__layer *layers = (exl2__layer *)exl2__arena_alloc(scratch, count * sizeof *layers);
        exl2__matrix **experts = (exl2__matrix **)exl2__arena_alloc(scratch, all * sizeof *experts);
        g->plans[i] = exl2__cuda_group_plan(g, plan, i);
        g->page_max = exl2__max64(g->page_max, exl2__cuda_page_bytes_all(g->of[i], &g->plans[i], false));
        g->page_max = exl2__max64(g->page_max, exl2__cuda_page_bytes_all(g->of[i], &g->plans[i], true));
        if (layers) {
            exl2__cuda_group_translate(plan, i, layers, experts, &g->plans[i]);
        }
        EXL2__TRY(exl2__cuda_prepare(g->of[i], &g->plans[i], pages, scratch));
    }
    g->page = (uint8_t *)exl2__arena_alloc(scratch, g->page_max);
    return scratch->base ? exl2__cuda_group_join(g) : EXL2_OK;
}

/* ---- pages ---- */

/* Copies between the page of one GPU and a member's: K and V of its heads, of one layer. */
EXL2__PRIVATE void exl2__cuda_group_page_layer(const exl2__cuda_group *g, uint32_t index, uint8_t *whole, uint8_t *part,
                                               bool out)
{
    const exl2__plan *p = &g->plans[index];
    uint32_t pieces = p->kv == EXL2_KV_FP16 ? 2 : 1; /* K of all heads, then V of all; codes: head by head */
    uint64_t bytes = exl2__cuda_page_bytes(&p->shape, p->kv) / p->shape.kv_heads / pieces; /* of a head */
    for (uint32_t piece = 0; piece < pieces; piece++) {
        uint8_t *all = whole + (piece * (uint64_t)p->columns.kv_heads + p->columns.first_kv_head) * bytes;
        uint8_t *own = part + piece * p->shape.kv_heads * bytes;
        memcpy(out ? all : own, out ? own : all, (size_t)(p->shape.kv_heads * bytes));
    }
}

EXL2__PRIVATE exl2_result exl2__cuda_group_page_copy(exl2__cuda_group *g, uint32_t page, bool part, uint8_t *whole,
                                                     bool out)
{
    for (uint32_t i = 0; i < g->count; i++) {
        const exl2__plan *p = &g->plans[i];
        uint64_t own = exl2__cuda_page_bytes(&p->shape, p->kv), all = own / p->shape.kv_heads * p->columns.kv_heads;
        uint32_t layers = exl2__plan_place(p, exl2__plan_end(p), part);
        if (p->columns.idle) {
            continue;
        }
        if (out) {
            EXL2__TRY(exl2__cuda_page_get(g->of[i], page, part, g->page));
        }
        for (uint32_t layer = 0; layer < layers; layer++) {
            exl2__cuda_group_page_layer(g, i, whole + layer * all, g->page + layer * own, out);
        }
        if (!out) {
            EXL2__TRY(exl2__cuda_page_set(g->of[i], page, part, g->page));
        }
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_page_get(exl2__device *device, uint32_t page, bool part, void *out)
{
    return exl2__cuda_group_page_copy(exl2__cuda_group_of(device), page, part, (uint8_t *)out, true);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_page_set(exl2__device *device, uint32_t page, bool part, const void *in)
{
    return exl2__cuda_group_page_copy(exl2__cuda_group_of(device), page, part, (uint8_t *)(uintptr_t)in, false);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tier_open(exl2__device *device, const exl2__plan *plan, uint32_t slots,
                                                     exl2__work *work)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        exl2__plan p = exl2__cuda_group_plan(g, plan, i);
        EXL2__TRY_DONE(exl2__cuda_tier_open(g->of[i], &p, slots, work));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_tier_move(exl2__device *device, const exl2__tier_move *moves, uint32_t count)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    for (uint32_t i = 0; i < g->count; i++) {
        EXL2__TRY(exl2__cuda_tier_move(g->of[i], moves, count));
    }
    return EXL2_OK;
}

EXL2__PRIVATE uint64_t exl2__cuda_group_tier_ns(const exl2__device *device, bool copy)
{
    return exl2__cuda_tier_ns(exl2__cuda_group_of(device)->of[0], copy);
}

/* ---- passes ---- */

/* After a failure some members may have got work that waits for others, which have not: lets all of it end, and has all
   begin anew. */
EXL2__PRIVATE exl2_result exl2__cuda_group_ended(exl2__cuda_group *g, exl2_result r)
{
    for (uint32_t step = 0; step < 3 && r < 0; step++) {
        for (uint32_t i = 0; i < g->count; i++) {
            exl2__cuda_model *m = exl2__cuda_of(g->of[i]);
            const exl2__cuda_driver *driver = &m->gpu->driver;
            if (step != 1 && m->b.stop) {
                exl2__atomic_store(m->b.stop, step == 0);
            } else if (step == 1 && m->b.meet && driver->context_push(m->gpu->context) == 0) {
                driver->stream_wait(m->gpu->stream);
                driver->fill8(m->b.meet, 0, sizeof(exl2k_meet_state), m->gpu->stream);
                exl2__cuda_group_empty(m);
                driver->stream_wait(m->gpu->stream);
                exl2__cuda_device_leave(m->gpu);
            }
        }
    }
    return r;
}

/* Sends the vectors of rows to a member, once the others do not read its residual any more: after a meeting, which
   `meets` enqueues. */
EXL2__PRIVATE exl2_result exl2__cuda_group_vectors_of(exl2__cuda_model *m, bool meets)
{
    EXL2__TRY(exl2__cuda_device_enter(m->gpu));
    exl2_result r = meets ? exl2__cuda_meet_all(m) : exl2__cuda_send_vectors(m);
    m->pass.chained = false; /* the next kernel reads them */
    exl2__cuda_device_flush(m->gpu);
    return exl2__cuda_device_leave_with(m->gpu, r);
}

/* The same for all. Sending may wait for the GPU, and so for the meeting: all have been told of it before. */
EXL2__PRIVATE exl2_result exl2__cuda_group_vectors(exl2__cuda_group *g, const exl2__step *step)
{
    exl2_result r = EXL2_OK;
    uint32_t vectors = 0;
    for (uint32_t i = 0; i < step->row_count; i++) {
        vectors += step->rows[i].vector != NULL;
    }
    for (uint32_t i = 0; i < 2 * g->count && vectors > 0 && r >= 0; i++) {
        r = exl2__cuda_group_vectors_of(exl2__cuda_of(g->of[i % g->count]), i < g->count);
    }
    return r;
}

EXL2__PRIVATE exl2_result exl2__cuda_group_begin(exl2__device *device, const exl2__step *step)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        r = exl2__cuda_begin(g->of[i], step);
    }
    return exl2__cuda_group_ended(g, r < 0 ? r : exl2__cuda_group_vectors(g, step));
}

EXL2__PRIVATE uint32_t exl2__cuda_group_items(const exl2__device *device, exl2__phase phase, const exl2__layer *layer,
                                              const exl2__range *range)
{
    return exl2__cuda_items(exl2__cuda_group_of(device)->of[0], phase, layer, range);
}

EXL2__PRIVATE uint32_t exl2__cuda_group_units(const exl2__device *device)
{
    return exl2__cuda_units(exl2__cuda_group_of(device)->of[0]);
}

EXL2__PRIVATE uint32_t exl2__cuda_group_head_units(const exl2__device *device)
{
    return exl2__cuda_head_units(exl2__cuda_group_of(device)->of[0]);
}

/* Kernels wait for those of the other members, and a driver accepts only some launches before it waits for the GPU. So
   each unit is enqueued for all members before the next one. */
EXL2__PRIVATE exl2_result exl2__cuda_group_enqueue(exl2__device *device, uint32_t begin, uint32_t end, bool timed)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    bool captured = exl2__cuda_of(g->of[0])->pass.captured;
    exl2_result r = EXL2_OK;
    for (uint32_t unit = begin, next; unit < end && r >= 0; unit = next) {
        next = captured ? end : unit + 1;
        for (uint32_t i = 0; i < g->count && r >= 0; i++) {
            r = exl2__cuda_queue(g->of[i], unit, next, timed);
        }
    }
    return exl2__cuda_group_ended(g, r);
}

EXL2__PRIVATE uint64_t exl2__cuda_group_unit_ns(const exl2__device *device, uint32_t unit)
{
    return exl2__cuda_unit_ns(exl2__cuda_group_of(device)->of[0], unit);
}

EXL2__PRIVATE uint64_t exl2__cuda_group_queued_ns(exl2__device *device)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    uint64_t most = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        most = exl2__max64(most, exl2__cuda_queued_ns(g->of[i]));
    }
    return most;
}

EXL2__PRIVATE uint32_t exl2__cuda_group_rows_for(const exl2__device *device, uint64_t ns)
{
    return exl2__cuda_rows_for(exl2__cuda_group_of(device)->of[0], ns);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_masks(exl2__device *device)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        r = exl2__cuda_masks(g->of[i]);
    }
    return exl2__cuda_group_ended(g, r);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_repeat(exl2__device *device)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2_result r = EXL2_OK;
    for (uint32_t i = 0; i < g->count && r >= 0; i++) {
        r = exl2__cuda_repeat(g->of[i]);
    }
    return exl2__cuda_group_ended(g, r);
}

EXL2__PRIVATE uint32_t exl2__cuda_group_ahead(const exl2__device *device)
{
    return exl2__cuda_ahead(exl2__cuda_group_of(device)->of[0]);
}

/* The others have the same results, which nobody reads. */
EXL2__PRIVATE exl2_result exl2__cuda_group_collect(exl2__device *device, uint32_t logit0, uint32_t count, bool wait,
                                                   exl2__logit_result *results)
{
    exl2__cuda_group *g = exl2__cuda_group_of(device);
    exl2_result r = exl2__cuda_collect(g->of[0], logit0, count, wait, results);
    for (uint32_t i = 1; i < g->count && r == EXL2_OK; i++) {
        exl2__cuda_of(g->of[i])->fences_collected++;
    }
    return exl2__cuda_group_ended(g, r);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_logits(exl2__device *device, uint32_t row, float **out)
{
    return exl2__cuda_row_logits(exl2__cuda_group_of(device)->of[0], row, out);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_sample(exl2__device *device, float *logits, const exl2__logit_row *row,
                                                  exl2__logit_result *result, exl2__sample_run **out)
{
    return exl2__cuda_row_sample(exl2__cuda_group_of(device)->of[0], logits, row, result, out);
}

EXL2__PRIVATE exl2_result exl2__cuda_group_hidden(exl2__device *device, uint32_t row, uint32_t count, bool raw,
                                                  float *out)
{
    return exl2__cuda_row_hidden(exl2__cuda_group_of(device)->of[0], row, count, raw, out);
}

static const exl2__backend_memory exl2__cuda_group_memory = {
    .prefill_chunk = exl2__cuda_prefill_chunk,
    .tier_open = exl2__cuda_group_tier_open,
    .tier_move = exl2__cuda_group_tier_move,
    .tier_ns = exl2__cuda_group_tier_ns,
    .buffer_bytes = exl2__cuda_group_buffer_bytes,
    .host_bytes = exl2__cuda_group_host_bytes,
    .reserve = exl2__cuda_group_reserve,
    .sharers = exl2__cuda_group_sharers,
    .own_bytes = exl2__cuda_group_own_bytes,
    .staging = exl2__cuda_group_stage,
    .keep_packed = exl2__cuda_group_keep_packed,
    .drop = exl2__cuda_group_drop,
    .restore = exl2__cuda_group_restore,
};

static const exl2__backend_queue exl2__cuda_group_queue = {
    .units = exl2__cuda_group_units,
    .head_units = exl2__cuda_group_head_units,
    .enqueue = exl2__cuda_group_enqueue,
    .unit_ns = exl2__cuda_group_unit_ns,
    .queued_ns = exl2__cuda_group_queued_ns,
    .rows_for = exl2__cuda_group_rows_for,
    .masks_ready = exl2__cuda_group_masks,
    .repeat = exl2__cuda_group_repeat,
    .ahead = exl2__cuda_group_ahead,
};

static const exl2__backend exl2__cuda_group_backend = {
    .name = "cuda",
    .memory = &exl2__cuda_group_memory,
    .queue = &exl2__cuda_group_queue,
    .loras = &exl2__cuda_group_loras,
#ifndef EXL2_NO_VISION
    .towers = &exl2__cuda_group_towers,
#endif
    .open = exl2__cuda_group_open,
    .close = exl2__cuda_group_close,
    .decode_rows = EXL2__CUDA_SAMPLED_ROWS,
    .logit_rows = EXL2__CUDA_LOGIT_ROWS,
    .exact_rows = 128,
    .two_kinds = true,
    .needs_groups = true,
    .one_kind = true,
    .has_exl3 = EXL2__EXL3,
    .matrix_bytes = exl2__cuda_group_matrix_bytes,
    .vector_bytes = exl2__cuda_group_vector_bytes,
    .matrix_make = exl2__cuda_group_matrix_make,
    .matrix_feed = exl2__cuda_group_matrix_feed,
    .vector_make = exl2__cuda_group_vector_make,
    .supports = exl2__cuda_group_supports,
    .page_bytes = exl2__cuda_group_page_bytes,
    .prepare = exl2__cuda_group_prepare,
    .page_get = exl2__cuda_group_page_get,
    .page_set = exl2__cuda_group_page_set,
    .begin = exl2__cuda_group_begin,
    .items = exl2__cuda_group_items,
    .collect = exl2__cuda_group_collect,
    .can_sample = exl2__cuda_sample_supports,
    .logits = exl2__cuda_group_logits,
    .sample_row = exl2__cuda_group_sample,
    .hidden = exl2__cuda_group_hidden,
};

#endif
