/* gpu_experts.h: the experts of a layer on the GPU: which ones the rows choose, their products, and the moments of what
   their last matrices read.
   takes: layers of the CPU backend; the rows of a pass as the input, normalised.
   gives: exl2__gpu_routed, exl2__gpu_routed_layout, exl2__gpu_routed_rows, exl2__gpu_route_of; exl2__gpu_experts_open,
          exl2__gpu_experts_route, exl2__gpu_experts_switch, exl2__gpu_experts_up, exl2__gpu_experts_down;
          exl2__gpu_experts_begin, exl2__gpu_experts_add, exl2__gpu_experts_blend.
   owns:  nothing. The context is current.

   The router is the engine's (expert_route.cu), in f32. The host then sorts the rows by expert, as the CPU backend
   does: sums have a fixed order, and an expert's products are launched with the number of its rows. */
#ifndef EXL2__GPU_EXPERTS_H
#define EXL2__GPU_EXPERTS_H

#include "gpu_inputs.h"

#ifndef EXL2_NO_CUDA

#include "../../../kernels_src/route_args.h"

/* The rows of a pass by expert. A row's i-th choice is its slot row * active + i; slots have places, those of an expert
   one after the other. */
typedef struct exl2__gpu_routed {
    uint32_t *choice; /* [rows, active] ascending in each row */
    uint32_t *slots;  /* [rows * active] the slot at each place */
    uint32_t *places; /* [rows * active] the place of each slot */
    uint32_t *first;  /* [experts + 1] place of the expert's first row */
    uint32_t rows;
} exl2__gpu_routed;

/* Lays out the lists for passes of at most `rows` rows in `a`, which may be dry. */
EXL2__PRIVATE void exl2__gpu_routed_layout(exl2__gpu_routed *r, const exl2__experts *e, uint32_t rows, exl2__arena *a)
{
    uint64_t bytes = (uint64_t)rows * e->active * sizeof(uint32_t);
    r->choice = (uint32_t *)exl2__arena_alloc(a, bytes);
    r->slots = (uint32_t *)exl2__arena_alloc(a, bytes);
    r->places = (uint32_t *)exl2__arena_alloc(a, bytes);
    r->first = (uint32_t *)exl2__arena_alloc(a, e->count ? (e->count + 1) * sizeof *r->first : 0);
}

static inline uint32_t exl2__gpu_routed_rows(const exl2__gpu_routed *r, uint32_t expert)
{
    return r->first[expert + 1] - r->first[expert];
}

/* What the buffer ROUTE holds, numbers of 4 bytes; exl2__gpu_route_of returns its size. */
typedef struct exl2__gpu_route {
    uint64_t logits;         /* [rows, experts and the shared one's switch] */
    uint64_t weight, choice; /* [rows, active] */
    uint64_t slots, places;
    uint64_t shared;         /* [rows] weights of the shared expert */
    uint64_t rows;           /* their number */
} exl2__gpu_route;

EXL2__PRIVATE uint64_t exl2__gpu_route_of(exl2__gpu_route *at, const exl2__experts *e, uint64_t rows, uint64_t base)
{
    uint64_t slots = rows * e->active * 4;
    at->logits = base;
    at->weight = at->logits + rows * (e->count + e->shared_switch) * 4;
    at->choice = at->weight + slots;
    at->slots = at->choice + slots;
    at->places = at->slots + slots;
    at->shared = at->places + slots;
    at->rows = at->shared + rows * 4;
    return at->rows + 4 - base;
}

/* Loads the router's kernels, which are not the converter's own. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_open(exl2__gpu *g)
{
    bool wanted[EXL2__KERNEL_COUNT] = { false };
    wanted[exl2__cuda_module_of(EXL2__KERNEL_exl2k_route_many)] = true;
    return exl2__cuda_device_kernels(g->d, wanted);
}

/* ---- the choice ---- */

/* Sorts the slots by expert. A row's choices ascend and differ; buffers have room for no others. */
EXL2__PRIVATE void exl2__gpu_experts_sort(const exl2__experts *e, exl2__gpu_routed *r)
{
    uint32_t count = r->rows * e->active;
    memset(r->first, 0, (e->count + 1) * sizeof *r->first);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i % e->active, least = k ? r->choice[i - 1] + 1 : 0, most = e->count - e->active + k;
        r->choice[i] = exl2__min32(exl2__max32(r->choice[i], least), most);
        r->first[r->choice[i] + 1]++;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        r->first[i + 1] += r->first[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = r->first[r->choice[i]]++;
        r->slots[place] = i;
        r->places[i] = place;
    }
    memmove(r->first + 1, r->first, e->count * sizeof *r->first); /* each is where the next expert begins now */
    r->first[0] = 0;
}

/* Phase route. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_route(exl2__gpu *g, const exl2__shape *s, const exl2__layer *layer,
                                                  exl2__gpu_routed *r)
{
    const exl2__experts *e = &s->experts;
    const exl2__cpu_matrix *router = exl2__cpu_matrix_of(layer->matrix[EXL2__ROLE_ROUTER]);
    exl2__gpu_route at;
    exl2k_u64 base;
    uint64_t lists = (uint64_t)g->rows * e->active * sizeof(uint32_t);
    EXL2__TRY(exl2__gpu_need(g, exl2__gpu_route_of(&at, e, g->rows, 0), EXL2__GPU_ROUTE, &base));
    exl2__gpu_route_of(&at, e, g->rows, base);
    EXL2__TRY(exl2__gpu_up(g, at.rows, &g->rows, sizeof g->rows));
    for (uint32_t i = 0; i < router->count; i++) {
        const exl2__cpu_part *p = &router->parts[i];
        exl2__gpu_weights *weights;
        exl2k_route_args a = { .rows_at = at.rows, .residual = g->input, .logits = at.logits + (i ? e->count * 4 : 0),
                               .hidden = g->in, .logits_pitch = e->count + e->shared_switch };
        EXL2__TRY(exl2__gpu_vector(g, p->bias, p->out, 0, &a.table[0].bias));
        EXL2__TRY(exl2__gpu_weights_of(g, p, &weights));
        a.table[0].weights = weights->memory.address;
        a.table[0].outputs = p->out;
        EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_route_many, (uint32_t)exl2__div_up(p->out, EXL2K_ROUTE_WARPS),
                                   (uint32_t)exl2__div_up(g->rows, EXL2K_ROUTE_ROWS), EXL2K_ROUTE_THREADS, 0, &a));
    }
    exl2k_route_choose_args a = { .rows_at = at.rows, .logits = at.logits, .choice = at.choice, .weight = at.weight,
                                  .shared = e->shared_switch ? at.shared : 0, .count = e->count, .active = e->active,
                                  .logits_pitch = e->count + e->shared_switch, .sigmoid = e->sigmoid,
                                  .renormalized = e->renormalized, .groups = e->groups,
                                  .groups_active = e->groups_active, .scale = e->scale };
    EXL2__TRY(exl2__gpu_vector(g, (const float *)(const void *)layer->choice_bias, e->count, 1, &a.choice_bias));
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_route_choose, g->rows, 1, 32,
                               exl2k_route_choose_bytes(e->count, e->groups), &a));
    r->rows = g->rows;
    EXL2__TRY(exl2__gpu_down(g, r->choice, at.choice, lists));
    exl2__gpu_experts_sort(e, r);
    EXL2__TRY(exl2__gpu_up(g, at.slots, r->slots, lists));
    return exl2__gpu_up(g, at.places, r->places, lists);
}

/* x [rows, in] times the weights of the slots (list 0: of the shared expert). */
EXL2__PRIVATE exl2_result exl2__gpu_experts_weigh(exl2__gpu *g, uint64_t x, uint32_t rows, uint32_t in, uint64_t weight,
                                                  uint64_t list)
{
    exl2k_experts_weigh_args a = { .x = x, .weight = weight, .slots = list, .in = in };
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_experts_weigh, rows, 1, 256, 0, &a);
}

/* After phase gate_up of the shared expert: x [rows, in] times the rows' weights of that expert. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_switch(exl2__gpu *g, const exl2__shape *s, uint64_t x, uint32_t in)
{
    exl2__gpu_route at;
    exl2__gpu_route_of(&at, &s->experts, g->rows, g->scratch[EXL2__GPU_ROUTE].address);
    return s->experts.shared_switch ? exl2__gpu_experts_weigh(g, x, g->rows, in, at.shared, 0) : EXL2_OK;
}

/* ---- products ---- */

/* Rows of x become the halves that exl2__gpu_experts_product reads: [places, in]. list: slots, or 0: all rows of x. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_halves(exl2__gpu *g, const exl2__experts *e, const exl2__gpu_routed *r,
                                                   uint64_t x, uint32_t in, uint64_t list)
{
    exl2k_half_rows_args a = { .x = x, .list = list, .in = in, .each = e->active };
    uint32_t count = r->rows * e->active;
    g->rows = g->in = 0; /* the pass's input is no more */
    EXL2__TRY(exl2__gpu_need(g, ((uint64_t)count + EXL2K_HALF_TILE) * in * 2, EXL2__GPU_HALVES, &a.out));
    EXL2__TRY(exl2__gpu_need(g, count * sizeof(float), EXL2__GPU_SCALES, &a.scale));
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_rows, count, 1, 128, 0, &a);
}

/* out [places, columns]: at the places of an expert, its rows times a part of it, with the bias if `biased`. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_product(exl2__gpu *g, const exl2__gpu_routed *r, uint32_t expert,
                                                    const exl2__cpu_part *p, uint64_t out, bool biased)
{
    uint64_t first = r->first[expert];
    uint32_t columns = p->strips * EXL2__CPU_STRIP;
    exl2__gpu_weights *weights;
    exl2k_half_product_args a = { .a = g->scratch[EXL2__GPU_HALVES].address + first * p->in * 2,
                                  .a_scale = g->scratch[EXL2__GPU_SCALES].address + first * sizeof(float),
                                  .c = out + first * columns * sizeof(float), .n = columns, .k = p->in,
                                  .m = exl2__gpu_routed_rows(r, expert), .c_pitch = columns };
    if (a.m == 0) {
        return EXL2_OK;
    }
    EXL2__TRY(exl2__gpu_vector(g, biased ? p->bias : NULL, columns, 0, &a.bias));
    EXL2__TRY(exl2__gpu_weights_of(g, p, &weights));
    a.b = weights->memory.address;
    return exl2__gpu_half_product(g, &a);
}

/* Phase expert_up: h of all experts, in EXPERT_ACTIVE. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_up(exl2__gpu *g, const exl2__shape *s, const exl2__layer *layer,
                                               exl2__gpu_routed *r)
{
    const exl2__experts *e = &s->experts;
    exl2__gpu_route at;
    uint32_t rows = r->rows * e->active;
    exl2k_half_act_args a = { .count = (uint64_t)rows * e->inter, .act = (uint32_t)s->act, .limit = s->act_limit };
    exl2__gpu_route_of(&at, e, r->rows, g->scratch[EXL2__GPU_ROUTE].address);
    EXL2__TRY(exl2__gpu_experts_halves(g, e, r, g->input, s->hidden, at.slots));
    EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_EXPERT_ACTIVE, &a.x));
    EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_Y, &a.gate));
    if (s->gated) {
        EXL2__TRY(exl2__gpu_need(g, a.count * sizeof(float), EXL2__GPU_UP, &a.up));
    }
    for (uint32_t i = 0; i < e->count; i++) {
        const exl2__cpu_part *gate = exl2__cpu_part_of(exl2__operand_of_expert(layer, EXL2__ROLE_EXPERT_UP, i), 0);
        EXL2__TRY(exl2__gpu_experts_product(g, r, i, gate, a.gate, true));
        if (s->gated) {
            EXL2__TRY(exl2__gpu_experts_product(g, r, i, gate + 1, a.up, true));
        }
    }
    EXL2__TRY(exl2__gpu_launch(g, EXL2__KERNEL_exl2k_half_act, g->d->sm_count * 8, 1, 256, 0, &a));
    return exl2__gpu_experts_weigh(g, a.x, rows, e->inter, at.weight, at.slots);
}

/* Phase expert_down: the results of all experts go into the residual. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_down(exl2__gpu *g, const exl2__shape *s, const exl2__layer *layer,
                                                 const exl2__gpu_routed *r, uint64_t residual)
{
    const exl2__experts *e = &s->experts;
    uint64_t row = s->hidden * sizeof(float);
    exl2__gpu_route at;
    exl2__gpu_route_of(&at, e, r->rows, g->scratch[EXL2__GPU_ROUTE].address);
    exl2k_experts_sum_args a = { .residual = residual, .weight = at.weight, .choice = at.choice, .places = at.places,
                                 .hidden = s->hidden, .active = e->active, .scale = s->residual_scale };
    EXL2__TRY(exl2__gpu_experts_halves(g, e, r, g->scratch[EXL2__GPU_EXPERT_ACTIVE].address, e->inter, 0));
    EXL2__TRY(exl2__gpu_need(g, (uint64_t)r->rows * e->active * row, EXL2__GPU_Y, &a.y));
    for (uint32_t i = 0; i < e->count; i++) {
        const exl2__cpu_part *p = exl2__cpu_part_of(exl2__operand_of_expert(layer, EXL2__ROLE_EXPERT_DOWN, i), 0);
        EXL2__TRY(exl2__gpu_experts_product(g, r, i, p, a.y, false));
        if (p->bias) { /* it is weighted */
            EXL2__TRY(exl2__gpu_need(g, e->count * row, EXL2__GPU_EXPERT_BIAS, &a.bias));
            EXL2__TRY(exl2__gpu_up(g, a.bias + i * row, p->bias, row));
        }
    }
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_experts_sum, r->rows, 1, 256, 0, &a);
}

/* ---- moments ---- */

/* Begins the sums of all experts of a layer. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_begin(exl2__gpu *g, const exl2__experts *e)
{
    exl2k_u64 sums;
    uint64_t bytes = (uint64_t)e->count * e->inter * e->inter * sizeof(float);
    EXL2__TRY(exl2__gpu_need(g, bytes, EXL2__GPU_EXPERT_SUMS, &sums));
    return exl2__gpu_fill(g, sums, bytes);
}

/* Adds the rows of a pass, after expert_up. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_add(exl2__gpu *g, const exl2__experts *e, const exl2__gpu_routed *r)
{
    for (uint32_t i = 0; i < e->count; i++) {
        uint64_t x = g->scratch[EXL2__GPU_EXPERT_ACTIVE].address + (uint64_t)r->first[i] * e->inter * sizeof(float);
        EXL2__TRY(exl2__gpu_gram_add_rows(g, EXL2__GPU_INPUTS + i, x, exl2__gpu_routed_rows(r, i), e->inter));
    }
    return EXL2_OK;
}

/* The sums of each expert, blended with the mean of all, become moments. tokens [experts] of each; all: their sum. */
EXL2__PRIVATE exl2_result exl2__gpu_experts_blend(exl2__gpu *g, const exl2__experts *e, const float *tokens, float all)
{
    exl2k_experts_blend_args a = { .sums = g->scratch[EXL2__GPU_EXPERT_SUMS].address, .in = e->inter,
                                   .experts = e->count, .all = all };
    EXL2__TRY(exl2__gpu_vector(g, tokens, e->count, 0, &a.tokens));
    return exl2__gpu_launch(g, EXL2__KERNEL_exl2k_experts_blend, g->d->sm_count * 8, 1, 256, 0, &a);
}
#endif

#endif
