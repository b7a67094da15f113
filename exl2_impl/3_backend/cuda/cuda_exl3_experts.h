/* cuda_exl3_experts.h: launches of a layer's experts in EXL3.
   takes: a model with a current pass; a layer whose experts are all of EXL3; what the router has chosen.
   gives: exl2__cuda_exl3_experts, exl2__cuda_exl3_grouped.

   Everything happens in launches of a fixed shape (kernels_src/exl3_expert_args.h). Each product is a launch for each
   codebook that the layer's experts have: mostly one. */
#ifndef EXL2__CUDA_EXL3_EXPERTS_H
#define EXL2__CUDA_EXL3_EXPERTS_H

#include "cuda_exl3.h"
#include "cuda_grouped_gemm.h"
#include "cuda_meet.h"

#if EXL2__EXL3 && !defined(EXL2_NO_MOE)

#define EXL2__CUDA_EXL3_BOOKS 3u

/* The arguments that all products of the layer share. */
EXL2__PRIVATE exl2k_exl3_expert_args exl2__cuda_exl3_expert_args(const exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    return (exl2k_exl3_expert_args){ .product = { .rows = m->pass.row_count, .parts = 1, .splits = 1, .scale = 1,
                                                  .act = exl2__cuda_act(m), .act_limit = s->act_limit },
                                     .experts = e->device, .choice = m->b.routed.choice, .weight = m->b.routed.weight,
                                     .count = e->count, .active = s->experts.active };
}

/* Few rows, from row `first` on: h of all slots; down: adds the results to the residual. Adapters of experts have
   computed what is added to gate and up (cuda_experts.h). */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_experts(exl2__cuda_model *m, const exl2__layer *layer, uint32_t first,
                                                  uint32_t rows, bool down)
{
    const exl2__shape *s = &m->plan->shape;
    const exl2__cuda_experts *e = exl2__cuda_experts_of(layer);
    exl2k_exl3_expert_args a = exl2__cuda_exl3_expert_args(m, layer);
    exl2k_exl3_args *p = &a.product;
    uint32_t books = down ? e->books[EXL2K_EXL3_EXPERT_PARTS - 1] : e->books[0] | (e->parts == 2 ? e->books[1] : 0u);
    uint64_t slots = (uint64_t)first * a.active;
    a.choice += slots * sizeof(exl2k_u32);
    a.weight += slots * sizeof(float);
    a.added = m->pass.experts && !down ? m->b.lora_experts : 0;
    p->rows_at = m->pass.groups + offsetof(exl2k_pass, row_count);
    p->rows = rows;
    p->before = first;
    p->partial = m->b.exl3_partial;
    p->tickets = m->b.exl3_tickets;
    p->kind = down ? EXL2K_EXL3_RESIDUAL : EXL2K_EXL3_ACT;
    p->first = down ? EXL2K_EXL3_EXPERT_PARTS - 1 : 0;
    p->parts = down ? 1 : e->parts;
    p->in = down ? s->experts.inter : s->hidden;
    p->blocks = exl2__cuda_exl3_blocks(p->in);
    p->splits = exl2__cuda_exl3_expert_splits(s, down, m->gpu->sm_count);
    p->x = down ? m->b.routed.h : m->b.routed.x + (uint64_t)first * m->b.x_pitch * sizeof(uint16_t);
    p->x_pitch = down ? m->b.routed.h_pitch : m->b.x_pitch;
    p->out = down ? m->b.residual + (uint64_t)first * s->hidden * sizeof(float) : m->b.routed.h;
    p->out_pitch = down ? s->hidden : m->b.routed.h_pitch;
    p->scale = down ? s->residual_scale : 1;
    exl2__columns_run own = exl2__columns_of(&m->columns, down ? s->hidden : s->experts.inter, s->columns_unit);
    p->out += own.first * (down ? sizeof(float) : sizeof(uint16_t));
    a.strips = exl2__cuda_exl3_blocks(own.count);
    uint32_t blocks = (uint32_t)exl2__div_up(p->blocks, p->splits);
    exl2__cuda_grid grid = { .x = a.strips * p->parts, .y = p->rows * a.active * p->splits,
                             .threads = EXL2K_EXL3_THREADS, .shared_bytes = EXL2K_EXL3_EXPERT_SHARED(p->rows, blocks) };
    for (uint32_t book = 0; book < EXL2__CUDA_EXL3_BOOKS && a.strips > 0; book++) {
        if (books >> book & 1) {
            EXL2__TRY(exl2__cuda_chain(m, exl2__cuda_exl3_expert(book, p->rows), grid, &a));
        }
    }
    m->pass.chained = m->pass.chained && (down || a.strips > 0); /* `down` reads the choice early (cuda_experts.h) */
    return down ? EXL2_OK : exl2__cuda_meet_expert_h(m, offsetof(exl2__cuda_buffers, routed.h), 0, p->rows * a.active,
                                                     p->out_pitch);
}

/* ---- many rows ---- */

/* The product of one part. a: all but the part. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_grouped_part(exl2__cuda_model *m, const exl2__layer *layer,
                                                       exl2k_exl3_expert_args a, uint32_t part)
{
    bool wg = exl2__cuda_exl3_by_wg(m->gpu);
    uint32_t tile_rows = wg ? EXL2K_EXL3_EXPERT_TILE_MAX : EXL2K_EXL3_GEMM_ROWS, slots = a.product.rows * a.active;
    exl2__cuda_grid grid = { .x = a.strips, .y = slots / tile_rows + exl2__min32(slots, a.count),
                             .threads = EXL2K_EXL3_THREADS,
                             .shared_bytes = wg ? EXL2K_EXL3_EXPERT_WG_SHARED : EXL2K_EXL3_GEMM_SHARED };
    a.part = part;
    for (uint32_t book = 0; book < EXL2__CUDA_EXL3_BOOKS && a.strips > 0; book++) {
        if (exl2__cuda_experts_of(layer)->books[part] >> book & 1) {
            EXL2__TRY(exl2__cuda_chain(m, exl2__cuda_exl3_expert_gemm(book, wg), grid, &a));
        }
    }
    return EXL2_OK;
}

/* Transforms the inputs of `parts` parts. r: x and its pitch, rotated, the first part, inputs. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_grouped_rotate(exl2__cuda_model *m, const exl2__cuda_grouped *g,
                                                         exl2k_exl3_expert_rotate_args r, uint32_t parts)
{
    r.experts = g->experts;
    r.blocks = exl2__cuda_exl3_blocks(r.in);
    r.natural = exl2__cuda_exl3_by_wg(m->gpu);
    r.step = (uint64_t)g->rows * g->active * r.blocks * EXL2K_EXL3_BLOCK * sizeof(uint16_t);
    exl2__cuda_grid grid = { .x = g->rows * g->active, .threads = EXL2K_EXL3_THREADS,
                             .y = (uint32_t)exl2__div_up(r.blocks, EXL2K_EXL3_WARPS) * parts };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_exl3_expert_rotate, grid, &r);
}

/* All rows of a pass of many rows, up and down. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_grouped(exl2__cuda_model *m, const exl2__layer *layer,
                                                  const exl2__cuda_grouped *g)
{
    exl2__cuda_grouped_layout l = exl2__cuda_grouped_layout_exl3(g->rows, g->active, g->count, g->hidden, g->inter);
    exl2__cuda_grouped_plan plan = { 0 };
    exl2__cuda_grouped_sort(&plan, g, &l, exl2__cuda_exl3_by_wg(m->gpu) ? EXL2K_EXL3_EXPERT_TILE_MAX
                                                                       : EXL2K_EXL3_GEMM_ROWS);
    exl2__cuda_grouped_sum(&plan, g, &l);
    exl2k_exl3_expert_rotate_args r = { .pairs = g->scratch + l.pairs, .x = g->x, .x_pitch = g->x_pitch,
                                        .rotated = g->scratch + l.results, .in = g->hidden };
    exl2k_exl3_expert_args a = exl2__cuda_exl3_expert_args(m, layer);
    exl2k_exl3_args *p = &a.product;
    a.tiles = g->scratch + l.tiles;
    a.tile_count = g->scratch + l.tile_count;
    exl2__columns_run h = exl2__columns_of(&g->columns, g->inter, g->columns_unit);
    exl2__columns_run results = exl2__columns_of(&g->columns, g->hidden, g->columns_unit);
    a.strips = exl2__cuda_exl3_blocks(h.count);
    p->in = g->hidden;
    p->blocks = exl2__cuda_exl3_blocks(p->in);
    p->rotated = r.rotated;
    p->out = g->scratch + l.h + h.first * sizeof(uint16_t);
    p->out_pitch = l.h_pitch;
    p->out_half = 1;
    EXL2__TRY(exl2__cuda_chain(m, plan.launch[0].kernel, plan.launch[0].grid, &plan.launch[0].args));
    EXL2__TRY(exl2__cuda_exl3_grouped_rotate(m, g, r, g->parts));
    if (g->parts == 2) { /* gate: up's launch reads it */
        p->kind = EXL2K_EXL3_STORE;
        EXL2__TRY(exl2__cuda_exl3_grouped_part(m, layer, a, 0));
        p->rotated += (uint64_t)g->rows * g->active * p->blocks * EXL2K_EXL3_BLOCK * sizeof(uint16_t);
    }
    p->kind = EXL2K_EXL3_ACT;
    p->parts = g->parts;
    EXL2__TRY(exl2__cuda_exl3_grouped_part(m, layer, a, g->parts - 1));
    /* h is transformed where it lies, after all GPUs have read their columns of it. */
    EXL2__TRY(exl2__cuda_meet_expert_h(m, offsetof(exl2__cuda_buffers, routed.grouped), l.h, g->rows * g->active,
                                       l.h_pitch));
    EXL2__TRY(exl2__cuda_meet_all(m));
    r.x = r.rotated = p->rotated = g->scratch + l.h;
    r.x_pitch = l.h_pitch;
    r.in = p->in = g->inter;
    r.by_place = 1;
    r.first = EXL2K_EXL3_EXPERT_PARTS - 1;
    EXL2__TRY(exl2__cuda_exl3_grouped_rotate(m, g, r, 1));
    a.strips = exl2__cuda_exl3_blocks(results.count);
    p->blocks = exl2__cuda_exl3_blocks(p->in);
    p->kind = EXL2K_EXL3_STORE;
    p->parts = 1;
    p->out = g->scratch + l.results + results.first * sizeof(float);
    p->out_pitch = l.pitch;
    p->out_half = 0;
    EXL2__TRY(exl2__cuda_exl3_grouped_part(m, layer, a, EXL2K_EXL3_EXPERT_PARTS - 1));
    const exl2__cuda_grouped_launch *sum = &plan.launch[1];
    return sum->grid.x ? exl2__cuda_chain(m, sum->kernel, sum->grid, &sum->args) : EXL2_OK;
}

#endif
#endif
