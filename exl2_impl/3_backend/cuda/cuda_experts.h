/* cuda_experts.h: phases of layers with experts: the router, the experts of each row, the weight of a shared expert.
   takes: a model with a current pass; layers with experts.
   gives: exl2__cuda_is_sparse, exl2__cuda_route, exl2__cuda_expert_up, exl2__cuda_expert_down,
          exl2__cuda_expert_switch, exl2__cuda_expert_plan.

   Everything happens on the device, in launches of a fixed shape: the router leaves each row's experts and their
   weights in device memory, and the kernels of the experts find out there which matrices they need. Rows go through the
   experts in slices of EXL2K_EXPERT_ROWS. Experts in EXL3 have kernels of their own (cuda_exl3_experts.h). */
#ifndef EXL2__CUDA_EXPERTS_H
#define EXL2__CUDA_EXPERTS_H

#include "../../../kernels_src/route_args.h"
#include "cuda_exl3_experts.h"
#include "cuda_lora.h"
#include "cuda_settle.h"

static inline bool exl2__cuda_is_sparse(const exl2__layer *layer)
{
    return layer->matrix[EXL2__ROLE_ROUTER] != NULL;
}

#ifndef EXL2_NO_MOE

#define EXL2__CUDA_EXPERT_RUNS_MAX 64u /* experts that a CTA of expert_down works on at a time */
#define EXL2__CUDA_EXPERT_SPARE 256u   /* bytes of static shared memory */

/* ---- plans of launches ---- */

/* Bytes of shared memory besides the rings and the partial sums (expert.cuh). */
static inline uint64_t exl2__cuda_expert_fixed(const exl2k_expert_args *a, uint32_t used_max, uint32_t runs)
{
    uint64_t parts = (uint64_t)runs * a->parts;
    uint64_t bytes = EXL2K_EXPERT_WARPS * (512u + EXL2K_EXPERT_STAGES_MAX * 8u) + runs * 32u + (parts + 1) * 4;
    bytes += parts * (a->chunks * sizeof(exl2k_chunk) + EXL2K_EXPERT_PART_BYTES);
    return bytes + (used_max + exl2__div_up(a->rows.count, 4)) * 4 + EXL2__CUDA_EXPERT_SPARE;
}

/* Fills in what a launch of `ctas` CTAs for `rows` 1 or 8 needs, within `budget` bytes: deep rings and all of a CTA's
   work at once if there is room, else smaller blocks. a: rows, down, parts, columns, chunks and slot_bytes are set.
   Returns the dynamic shared memory of the launch, 0 if the budget is too small. */
EXL2__PRIVATE uint32_t exl2__cuda_expert_plan(exl2k_expert_args *a, uint32_t rows, uint32_t ctas, uint32_t budget)
{
    uint32_t sum_bytes = rows == 1 ? 64 : 512, strips = (uint32_t)exl2__div_up(a->columns, EXL2__CUDA_STRIP);
    uint32_t used_max = (uint32_t)exl2__min64(a->rows.count, (uint64_t)rows * a->rows.active);
    uint64_t all = a->down ? strips : (uint64_t)strips * used_max, wanted = exl2__div_up(all, ctas);
    uint32_t most = exl2__min32(used_max, a->down ? EXL2__CUDA_EXPERT_RUNS_MAX : 4);
    wanted = a->down ? exl2__min64(wanted, EXL2K_EXPERT_THREADS / (16 * rows)) : wanted;
    for (a->unit = 1; a->unit < 2 * a->chunks; a->unit *= 2) {
        for (uint32_t turn = 0; turn < 2; turn++) { /* first for all of the work at once, then for any */
            for (a->stages = turn == 1 ? 2 : rows == 1 ? 4 : 3; a->stages > (turn == 0); a->stages--) {
                for (a->runs = most; a->runs > 0; a->runs = turn == 0 ? 0 : a->runs / 2) {
                    uint64_t taken = exl2__cuda_expert_fixed(a, used_max, a->runs);
                    taken += (uint64_t)EXL2K_EXPERT_WARPS * a->stages * a->slot_bytes;
                    uint64_t each = (a->down ? a->runs : a->parts) * exl2__div_up(a->chunks, a->unit);
                    uint64_t items = taken < budget ? (budget - taken) / sum_bytes / each : 0;
                    items = exl2__min64(items, wanted);
                    if (items >= (turn == 0 ? wanted : 1)) {
                        a->items = (uint32_t)items;
                        a->units = (uint32_t)(items * each);
                        return (uint32_t)(taken + a->units * sum_bytes - EXL2__CUDA_EXPERT_SPARE);
                    }
                }
            }
        }
    }
    return 0;
}

/* ---- route ---- */

/* Whether rows of the experts' inputs are written in the order that all experts of the layer share. */
static inline bool exl2__cuda_routed_packed(const exl2__layer *layer)
{
    return !exl2__cuda_experts_of(layer)->order.apart;
}

/* Adds to the logits, f32, what adapters of the router add. These adapters read the inputs of the experts. */
EXL2__PRIVATE exl2_result exl2__cuda_route_loras(exl2__cuda_model *m, const exl2__layer *layer)
{
    exl2__operand of = { layer->matrix[EXL2__ROLE_ROUTER], layer, EXL2__ROLE_ROUTER, 0 };
    exl2k_gemv_args a = { .x = m->b.routed.x, .x_pitch = m->b.x_pitch, .out = m->b.routed.logits,
                          .out_pitch = m->b.routed.logits_pitch };
    exl2k_lora_rows_args l = exl2__cuda_lora_rows_args(m, of, &a, m->pass.row_count);
    if (!exl2__cuda_lora_needs(m, of)) {
        return EXL2_OK;
    }
    l.scale = 1;
    EXL2__TRY(exl2__cuda_lora_rows_t(m, &l));
    return exl2__cuda_lora_rows_add(m, EXL2__CUDA_STORE, &a, l);
}

/* Few rows: one kernel for all. Passes by GEMM, and with adapters of routers or experts: one for the logits, one for
   the choice, with the same results. */
EXL2__PRIVATE exl2_result exl2__cuda_route_launch(exl2__cuda_model *m, const exl2__layer *layer,
                                                  const exl2k_route_args *a, const exl2k_route_choose_args *choose)
{
    uint32_t outputs = a->table[0].outputs + a->table[1].outputs, rows = m->pass.row_count;
    uint32_t choose_bytes = exl2k_route_choose_bytes(choose->count, choose->groups);
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(outputs, EXL2K_ROUTE_OUTPUTS), .y = rows,
                             .threads = EXL2K_ROUTE_THREADS };
    grid.shared_bytes = exl2__max32((uint32_t)exl2__align_up(a->hidden, 8) * 4, choose_bytes);
    if (!m->pass.by_gemm && !m->pass.experts && grid.shared_bytes + 1024 <= m->limits.shared_bytes) {
        exl2k_route_one_args one = { *a, *choose, m->b.routed.tickets };
        return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_route_one, grid, &one);
    }
    grid = (exl2__cuda_grid){ .x = (uint32_t)exl2__div_up(outputs, EXL2K_ROUTE_WARPS),
                              .y = (uint32_t)exl2__div_up(rows, EXL2K_ROUTE_ROWS), .threads = EXL2K_ROUTE_THREADS };
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_route_many, grid, a));
    EXL2__TRY(m->pass.experts ? exl2__cuda_route_loras(m, layer) : EXL2_OK);
    grid = (exl2__cuda_grid){ .x = rows, .y = 1, .threads = 32, .shared_bytes = choose_bytes };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_route_choose, grid, choose);
}

EXL2__PRIVATE exl2_result exl2__cuda_route(exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__experts *e = &s->experts;
    const exl2__cuda_matrix *router = exl2__cuda_matrix_of(layer->matrix[EXL2__ROLE_ROUTER]);
    uint64_t rows_at = m->pass.groups + offsetof(exl2k_pass, row_count);
    exl2k_route_args a = { .rows_at = rows_at, .residual = m->b.residual, .logits = m->b.routed.logits,
                           .weight = exl2__cuda_values_or_none(layer->mlp_norm.weight),
                           .bias = exl2__cuda_values_or_none(layer->mlp_norm.bias), .hidden = s->hidden,
                           .out_pitch = m->b.x_pitch, .logits_pitch = m->b.routed.logits_pitch,
                           .layer_norm = s->layer_norm, .eps = s->norm_eps };
    for (uint32_t i = 0; i < 2 && router->tables[i]; i++) {
        a.table[i] = (exl2k_route_table){ router->tables[i], router->bias[i], router->feed[i].type,
                                          router->feed[i].rows };
    }
    a.out[0] = m->b.routed.x;
    a.map[0] = exl2__cuda_routed_packed(layer) ? exl2__cuda_experts_of(layer)->order.inputs[0] : 0;
    /* Of the shared expert; else `out` writes it, or the norm of GEMM. */
    if (layer->matrix[EXL2__ROLE_GATE_UP] && !exl2__cuda_folds(s)) {
        a.out[1] = m->b.x;
        a.map[1] = exl2__cuda_inputs(layer->matrix[EXL2__ROLE_GATE_UP]);
    }
    exl2k_route_choose_args choose = { .rows_at = rows_at, .logits = a.logits, .choice = m->b.routed.choice,
                                       .choice_bias = exl2__cuda_values_or_none(layer->choice_bias),
                                       .weight = m->b.routed.weight, .shared = m->b.routed.shared,
                                       .logits_pitch = a.logits_pitch, .count = e->count, .active = e->active,
                                       .sigmoid = e->sigmoid, .renormalized = e->renormalized, .groups = e->groups,
                                       .groups_active = e->groups_active, .scale = e->scale };
    return exl2__cuda_route_launch(m, layer, &a, &choose);
}

/* Multiplies h of the shared expert by the rows' weights. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_switch(exl2__cuda_model *m, const exl2__layer *layer)
{
    exl2k_expert_switch_args a = { .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count), .h = m->b.h,
                                   .weight = m->b.routed.shared, .pitch = m->b.h_pitch,
                                   .count = exl2__cuda_matrix_of(layer->matrix[EXL2__ROLE_DOWN])->in };
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = 1, .threads = EXL2K_EXPERT_GATHER_THREADS };
    return a.weight ? exl2__cuda_chain(m, EXL2__KERNEL_exl2k_expert_switch, grid, &a) : EXL2_OK;
}

/* ---- products ---- */

/* The slice of rows that begins at row `first`. */
EXL2__PRIVATE exl2k_expert_choice exl2__cuda_expert_slice(const exl2__cuda_model *m, uint32_t first)
{
    const exl2__experts *e = &m->plan->shape.experts;
    return (exl2k_expert_choice){ .choice = m->b.routed.choice, .weight = m->b.routed.weight,
                                  .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count), .first = first,
                                  .count = e->count, .active = e->active };
}

EXL2__PRIVATE exl2_result exl2__cuda_expert_launch(exl2__cuda_model *m, exl2k_expert_args *a, uint32_t rows,
                                                   bool affine)
{
    uint32_t ctas = a->down ? exl2__cuda_residual_ctas(m) : m->limits.ctas; /* a slot of sums_out for each */
    uint32_t kind_rows = rows == 1 ? 1 : EXL2K_EXPERT_ROWS;
    uint32_t shared = exl2__cuda_expert_plan(a, kind_rows, ctas, m->limits.shared_bytes);
    if (shared == 0) {
        return exl2__cuda_too_few_shared(m);
    }
    exl2__cuda_grid grid = { .x = ctas, .y = 1, .threads = EXL2K_EXPERT_THREADS, .shared_bytes = shared };
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_expert1, EXL2__KERNEL_exl2k_expert8 },
        { EXL2__KERNEL_exl2k_expert1_affine, EXL2__KERNEL_exl2k_expert8_affine },
        { EXL2__KERNEL_exl2k_expert1_steer, EXL2__KERNEL_exl2k_expert8_steer },
        { EXL2__KERNEL_exl2k_expert1_affine_steer, EXL2__KERNEL_exl2k_expert8_affine_steer },
    };
    bool steers = exl2__cuda_steers_few(m) || m->pass.experts;
    return exl2__cuda_chain(m, kernels[affine + 2 * steers][rows > 1], grid, a);
}

/* ---- adapters of experts ---- */

/* The kernel that computes t of a slice of rows, and then the one that adds B t: to gate and up, before `up`, or to the
   residual, before `down`. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_loras(exl2__cuda_model *m, const exl2__layer *layer, uint32_t first,
                                                  bool down)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    uint32_t rows = exl2__min32(m->pass.row_count - first, EXL2K_EXPERT_ROWS), slots = rows * s->experts.active;
    exl2__role role = down ? EXL2__ROLE_EXPERT_DOWN : EXL2__ROLE_EXPERT_UP;
    exl2__columns_run own = exl2__columns_of(&m->columns, down ? s->hidden : s->experts.inter, s->columns_unit);
    exl2k_lora_experts_args a = {
        .rows = exl2__cuda_expert_slice(m, first), .row_sets = m->pass.row_sets, .sets = m->pass.sets,
        .tables = m->b.lora_tables, .x = down ? m->b.routed.h : m->b.routed.x, .t = m->b.lora_experts_t,
        .out = down ? m->b.residual + own.first * sizeof(float) : m->b.lora_experts, .down = down,
        .parts = down ? 1 : e->parts,
        .table = exl2__cuda_lora_table(m->plan),
        .place = layer->index * exl2__lora_places(s->experts.count) + exl2__role_lora_place(role, 0, 0),
        .step = EXL2__LORA_EXPERT_PARTS, .in = down ? s->experts.inter : s->hidden,
        .columns = own.count, .uses = exl2__cuda_lora_uses(m->plan),
        .rank_stride = exl2__cuda_lora_rank_stride(m->plan), .x_pitch = down ? m->b.routed.h_pitch : m->b.x_pitch,
        .out_pitch = s->hidden, .by_slot = down && e->exl3, .scale = s->residual_scale
    };
    exl2__cuda_grid grid = { .x = slots, .y = a.parts, .threads = EXL2K_LORA_EXPERTS_THREADS };
    if (own.count == 0) {
        return EXL2_OK; /* the device has no columns of them */
    }
    EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_lora_experts_t, grid, &a));
    grid = (exl2__cuda_grid){ .x = (uint32_t)exl2__div_up(a.columns, EXL2K_LORA_EXPERTS_THREADS),
                              .y = down ? rows : slots, .z = down ? 1 : a.parts,
                              .threads = EXL2K_LORA_EXPERTS_THREADS };
    return exl2__cuda_chain(m, down ? EXL2__KERNEL_exl2k_lora_experts_down : EXL2__KERNEL_exl2k_lora_experts_up, grid,
                            &a);
}

/* h of a slice. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_slice_up(exl2__cuda_model *m, const exl2__layer *layer, uint32_t first)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    uint32_t rows = exl2__min32(m->pass.row_count - first, EXL2K_EXPERT_ROWS);
    EXL2__TRY(m->pass.experts ? exl2__cuda_expert_loras(m, layer, first, false) : EXL2_OK);
#if EXL2__EXL3
    if (e->exl3) {
        return exl2__cuda_exl3_experts(m, layer, first, rows, false);
    }
#endif
    exl2k_expert_args a = { .rows = exl2__cuda_expert_slice(m, first), .experts = e->device, .tables = e->tables,
                            .x = m->b.routed.x + (uint64_t)first * m->b.x_pitch * 2, .out = m->b.routed.h,
                            .x_pitch = m->b.x_pitch, .out_pitch = m->b.routed.h_pitch, .parts = e->parts,
                            .inputs = s->hidden, .columns = s->experts.inter, .act = exl2__cuda_act(m),
                            .act_limit = s->act_limit,
                            .table_chunks = e->table_chunks, .chunks = e->chunks[0],
                            .slot_bytes = e->chunk_bytes[0] };
    if (e->order.apart) {
        exl2k_expert_gather_args gather = { .rows = a.rows, .experts = e->device, .from = m->b.routed.x,
                                            .to = m->b.routed.gathered, .pitch = m->b.x_pitch, .inputs = s->hidden };
        exl2__cuda_grid grid = { .x = m->b.routed.used_max, .y = EXL2K_EXPERT_ROWS,
                                 .threads = EXL2K_EXPERT_GATHER_THREADS };
        grid.shared_bytes = (uint32_t)(m->b.routed.used_max + exl2__div_up(a.rows.count, 4)) * 4;
        EXL2__TRY(exl2__cuda_chain(m, EXL2__KERNEL_exl2k_expert_gather, grid, &gather));
        a.x = gather.to;
        a.x_step = EXL2K_EXPERT_ROWS * m->b.x_pitch;
    }
    a.added = m->pass.experts ? m->b.lora_experts : 0;
    exl2__columns_run own = exl2__columns_of(&m->columns, s->experts.inter, s->columns_unit);
    a.out += own.first * sizeof(exl2k_u16);
    a.columns = own.count;
    EXL2__TRY(own.count ? exl2__cuda_expert_launch(m, &a, rows, e->affine) : EXL2_OK);
    m->pass.chained = m->pass.chained && own.count > 0; /* `down` reads the choice early: `up` has waited for it, or the
                                                           meeting begins after the router */
    bool one = m->pass.row_count == 1; /* the others of EXL2K_EXPERT_ROWS are not there */
    uint32_t used = exl2__min32(rows * s->experts.active, e->count), step = one ? EXL2K_EXPERT_ROWS : 1;
    return exl2__cuda_meet_expert_h(m, offsetof(exl2__cuda_buffers, routed.h), 0,
                                    used * EXL2K_EXPERT_ROWS / step, m->b.routed.h_pitch * step);
}

/* Adds the results of a slice's experts to the residual. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_slice_down(exl2__cuda_model *m, const exl2__layer *layer, uint32_t first)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    uint32_t rows = exl2__min32(m->pass.row_count - first, EXL2K_EXPERT_ROWS);
    EXL2__TRY(m->pass.experts ? exl2__cuda_expert_loras(m, layer, first, true) : EXL2_OK);
#if EXL2__EXL3
    if (e->exl3) {
        return exl2__cuda_exl3_experts(m, layer, first, rows, true);
    }
#endif
    exl2k_expert_args a = { .rows = exl2__cuda_expert_slice(m, first), .experts = e->device, .tables = e->tables,
                            .x = m->b.routed.h, .residual = m->b.residual, .x_pitch = m->b.routed.h_pitch,
                            .x_step = EXL2K_EXPERT_ROWS * m->b.routed.h_pitch, .residual_pitch = s->hidden,
                            .down = 1, .parts = 1, .inputs = s->experts.inter, .columns = s->hidden,
                            .scale = s->residual_scale, .table_chunks = e->table_chunks, .chunks = e->chunks[1],
                            .slot_bytes = e->chunk_bytes[1] };
    exl2__columns_run own = exl2__columns_of(&m->columns, s->hidden, s->columns_unit);
    a.residual += own.first * sizeof(float);
    a.columns = own.count;
    if (exl2__cuda_folds(s) && !m->pass.by_gemm) {
        a.added = exl2__cuda_steer_rows(m, layer);
        exl2__cuda_advance(&a.added, own.first * sizeof(float));
        exl2__cuda_follower next = exl2__cuda_follower_of(m, layer);
        a.next = m->b.x;
        a.next_pitch = m->b.x_pitch;
        a.norm = exl2__cuda_values(next.norm->weight);
        a.map = exl2__cuda_inputs(next.reader);
        a.sums_before = exl2__cuda_sums(m, 0);
        a.sums_out = exl2__cuda_sums(m, 1);
        a.slots_pitch = EXL2K_SLOTS_MAX;
        a.slots = exl2__cuda_residual_ctas(m);
        a.eps = s->norm_eps;
        a.inverse_hidden = 1.0f / (float)s->hidden;
        a.next = exl2__columns_are_cut(&m->columns) ? 0 : a.next; /* the last meeting of the layer writes it */
    }
    return own.count ? exl2__cuda_expert_launch(m, &a, rows, e->affine) : EXL2_OK;
}

/* After the last slice: the residual and, where norms are folded into products, what the next one reads. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_meet(exl2__cuda_model *m, const exl2__layer *layer)
{
    if (m->pass.by_gemm || !exl2__cuda_folds(&m->plan->shape)) {
        return exl2__cuda_meet_floats(m, offsetof(exl2__cuda_buffers, residual));
    }
    exl2__cuda_follower next = exl2__cuda_follower_of(m, layer);
    exl2k_gemv_args of = { .out = m->b.x, .out_pitch = m->b.x_pitch, .weight = exl2__cuda_values(next.norm->weight),
                           .map = exl2__cuda_inputs(next.reader), .sums_before = exl2__cuda_sums(m, 0),
                           .sums_out = exl2__cuda_sums(m, 1) };
    return exl2__cuda_meet_norm(m, &of, true);
}

/* All rows of a pass of many rows, up and down. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_grouped(exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    exl2__cuda_grouped a = { .experts = e->device, .choice = m->b.routed.choice, .weight = m->b.routed.weight,
                             .x = m->b.routed.x, .out = m->b.residual, .scratch = m->b.routed.grouped,
                             .rows = m->pass.row_count, .active = s->experts.active, .count = e->count,
                             .hidden = s->hidden, .inter = s->experts.inter, .parts = e->parts,
                             .act = exl2__cuda_act(m), .act_limit = s->act_limit,
                             .chunk_bytes = exl2__max32(e->chunk_bytes[0], e->chunk_bytes[1]),
                             .x_pitch = m->b.x_pitch, .out_pitch = s->hidden, .scale = s->residual_scale,
                             .add = true, .affine = e->affine, .packed = exl2__cuda_routed_packed(layer),
                             .columns = m->columns, .columns_unit = s->columns_unit };
#if EXL2__EXL3
    if (e->exl3) {
        return exl2__cuda_exl3_grouped(m, layer, &a);
    }
#endif
    return exl2__cuda_grouped_gemm(m, &a);
}

/* Passes by GEMM do all of their work in expert_down; so do those of several slices, because h has room for
   one. Where adapters add to experts, passes by GEMM have slices, too. */
EXL2__PRIVATE exl2_result exl2__cuda_expert_up(exl2__cuda_model *m, const exl2__layer *layer)
{
    bool one = m->pass.row_count <= EXL2K_EXPERT_ROWS && !m->pass.by_gemm;
#if EXL2__EXL3
    if (exl2__cuda_experts_of(layer)->exl3 && !m->pass.experts) {
        return m->pass.by_gemm ? EXL2_OK : exl2__cuda_exl3_experts(m, layer, 0, m->pass.row_count, false);
    }
#endif
    return one ? exl2__cuda_expert_slice_up(m, layer, 0) : EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_expert_down_all(exl2__cuda_model *m, const exl2__layer *layer)
{
    if (m->pass.by_gemm && !m->pass.experts) {
        return exl2__cuda_expert_grouped(m, layer);
    }
#if EXL2__EXL3
    if (exl2__cuda_experts_of(layer)->exl3 && !m->pass.experts) {
        return exl2__cuda_exl3_experts(m, layer, 0, m->pass.row_count, true);
    }
#endif
    if (m->pass.row_count <= EXL2K_EXPERT_ROWS && !m->pass.by_gemm) {
        return exl2__cuda_expert_slice_down(m, layer, 0);
    }
    for (uint32_t first = 0; first < m->pass.row_count; first += EXL2K_EXPERT_ROWS) {
        EXL2__TRY(first ? exl2__cuda_meet_all(m) : EXL2_OK); /* h of the slice before is read */
        EXL2__TRY(exl2__cuda_expert_slice_up(m, layer, first));
        EXL2__TRY(exl2__cuda_expert_slice_down(m, layer, first));
    }
    return EXL2_OK;
}

EXL2__PRIVATE exl2_result exl2__cuda_expert_down(exl2__cuda_model *m, const exl2__layer *layer)
{
    EXL2__TRY(exl2__cuda_expert_down_all(m, layer));
    return exl2__cuda_expert_meet(m, layer);
}

#endif
#endif
