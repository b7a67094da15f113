/* cpu_experts.h: experts on the CPU: the choice of experts, rows gathered by expert, the experts' products.
   takes: the step's rows of the residual, layers with experts.
   gives: exl2__cpu_route_row; the stages of the phases route, expert_up and expert_down; exl2__cpu_expert_run.
   owns:  nothing; the buffers lie in the scratch arena (cpu_device.h).

   A slot is a pair of a row and an expert that it uses. Slots are sorted by expert, then by row, and divided into tiles
   of one expert each. Order of sums: expert_down adds the results of a row's experts to the residual in ascending order
   of the experts, each as one product. So a row's bits do not depend on the other rows and their experts. */
#ifndef EXL2__CPU_EXPERTS_H
#define EXL2__CPU_EXPERTS_H

#include "cpu_product.h"

#ifndef EXL2_NO_MOE

/* ---- the choice ---- */

/* A NaN is worse than all numbers. */
static inline bool exl2__cpu_route_better(double a, double b)
{
    return a > b || (exl2__float_is_nan((float)b) && !exl2__float_is_nan((float)a));
}

/* Sets the bits of the `wanted` highest scores [count] whose bits in taken are 0; of equal scores, those of the lowest
   index. There are always `wanted` new bits. */
EXL2__PRIVATE void exl2__cpu_route_pick(const double *score, uint32_t count, uint32_t wanted, uint32_t *taken)
{
    for (; wanted > 0; wanted--) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < count; i++) {
            bool is_free = !(taken[i / 32] >> (i % 32) & 1u);
            best = is_free && (best == UINT32_MAX || exl2__cpu_route_better(score[i], score[best])) ? i : best;
        }
        taken[best / 32] |= 1u << (best % 32);
    }
}

/* Sets the bits of all experts outside of the best groups. */
EXL2__PRIVATE void exl2__cpu_route_groups(const exl2__experts *e, const double *choice, uint32_t *taken)
{
    double sum[EXL2__EXPERTS_GROUPS_MAX];
    uint32_t chosen[EXL2__EXPERTS_GROUPS_MAX / 32] = { 0 }, size = e->count / e->groups;
    for (uint32_t g = 0; g < e->groups; g++) {
        const double *of = choice + (size_t)g * size;
        double first = of[0], second = 0;
        for (uint32_t i = 1; i < size; i++) {
            second = i == 1 || of[i] > second ? of[i] : second;
            if (second > first) {
                double held = first;
                first = second;
                second = held;
            }
        }
        sum[g] = first + second;
    }
    exl2__cpu_route_pick(sum, e->groups, e->groups_active, chosen);
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t group = i / size;
        taken[i / 32] |= (chosen[group / 32] >> (group % 32) & 1u ? 0u : 1u) << (i % 32);
    }
}

/* Replaces logits [count] by scores. false: one of them is not finite. */
EXL2__PRIVATE bool exl2__cpu_route_scores(const exl2__experts *e, double *logits)
{
    double largest = logits[0], sum = 0;
    bool finite = true;
    for (uint32_t i = 0; i < e->count; i++) {
        finite = finite && exl2__float_is_finite((float)logits[i]);
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        logits[i] = e->sigmoid ? 1 / (1 + exp(-logits[i])) : exp(logits[i] - largest);
        sum += logits[i];
    }
    for (uint32_t i = 0; !e->sigmoid && i < e->count; i++) {
        logits[i] /= sum;
    }
    return finite;
}

/* Chooses the experts of a row: choice [active], ascending, and their weights [active]. choice_bias: [count] or NULL.
   score, biased: scratch [count]. Logits that are not finite give weights of NaN, which reach the row's logits, so that
   its job ends as one whose logits are NaN. */
EXL2__PRIVATE void exl2__cpu_route_row(const exl2__experts *e, const exl2__real *logits, const float *choice_bias,
                                       double *score, double *biased, uint32_t *choice, exl2__real *weight)
{
    uint32_t taken[EXL2__EXPERTS_MAX / 32] = { 0 }, outside[EXL2__EXPERTS_MAX / 32] = { 0 }, n = 0;
    double sum = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        score[i] = (double)logits[i];
    }
    bool finite = exl2__cpu_route_scores(e, score);
    for (uint32_t i = 0; i < e->count; i++) {
        biased[i] = score[i] + (choice_bias ? (double)choice_bias[i] : 0);
    }
    if (e->groups_active < e->groups) {
        exl2__cpu_route_groups(e, biased, outside);
        memcpy(taken, outside, sizeof taken);
    }
    exl2__cpu_route_pick(biased, e->count, e->active, taken);
    for (uint32_t i = 0; i < e->count && n < e->active; i++) {
        if ((taken[i / 32] & ~outside[i / 32]) >> (i % 32) & 1u) {
            choice[n++] = i;
            sum += score[i];
        }
    }
    for (n = 0; n < e->active; n++) {
        double w = score[choice[n]] * (double)e->scale / (e->renormalized ? sum + (e->sigmoid ? 1e-20 : 0) : 1);
        weight[n] = finite ? (exl2__real)w : (exl2__real)exl2__bits_float(0x7FC00000u);
    }
}

/* ---- phase route ---- */

/* Items: tiles of rows, which are normalised, kept for the experts, and gathered for the router. */
EXL2__PRIVATE void exl2__cpu_route_input(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    uint32_t rows = d->step->row_count, most = d->ops->tile_rows;
    for (uint32_t t = s->begin; t < s->end; t++) {
        uint32_t row = exl2__cpu_tile_start(rows, most, t), n = exl2__cpu_tile_start(rows, most, t + 1) - row;
        exl2__real *x = d->routed.x + (size_t)row * d->hidden_stride;
        for (uint32_t r = 0; r < n; r++) {
            const exl2__real *from = d->residual + (size_t)(row + r) * d->hidden_stride;
            exl2__cpu_norm_or_copy(d, &s->layer->mlp_norm, from, x + (size_t)r * d->hidden_stride);
        }
        exl2__cpu_gather(d, exl2__operand_of(s->layer, EXL2__ROLE_ROUTER), rows, row, n, x, d->hidden_stride);
    }
}

/* Items: strips of the router, then one with the one strip of the shared expert's switch. */
EXL2__PRIVATE void exl2__cpu_route_strips(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__operand of = exl2__operand_of(s->layer, EXL2__ROLE_ROUTER);
    uint32_t rows = d->step->row_count, items = exl2__cpu_device_items(d, d->routed.router_stride);
    exl2__cpu_share strips = exl2__cpu_device_strips(s, d->routed.router_stride);
    exl2__cpu_multiply_rows(d, of, 0, rows, strips.begin, strips.end, d->routed.logits, d->routed.router_stride, 0);
    if (s->end > items) {
        exl2__cpu_multiply_rows(d, of, 1, rows, 0, 1, d->routed.shared, EXL2__CPU_STRIP, 0);
    }
}

/* Items: tiles of rows. */
EXL2__PRIVATE void exl2__cpu_route_choose(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    const exl2__experts *e = &d->shape.experts;
    const float *bias = (const float *)(const void *)s->layer->choice_bias;
    uint32_t rows = d->step->row_count, most = d->ops->tile_rows;
    uint32_t last = exl2__cpu_tile_start(rows, most, s->end);
    double *score = d->task[s->task].scores_of_experts;
    for (uint32_t row = exl2__cpu_tile_start(rows, most, s->begin); row < last; row++) {
        size_t at = (size_t)row * e->active;
        exl2__cpu_route_row(e, d->routed.logits + (size_t)row * d->routed.router_stride, bias, score, score + e->count,
                            d->routed.choice + at, d->routed.weight + at);
        if (e->shared_switch) {
            exl2__real *shared = d->routed.shared + (size_t)row * EXL2__CPU_STRIP;
            *shared = (exl2__real)(1 / (1 + exp(-(double)*shared)));
        }
    }
}

/* Adds the expert's slots [slot, slot + rows) to the lists. */
EXL2__PRIVATE void exl2__cpu_route_add(exl2__cpu_routed *routed, uint32_t expert, uint32_t slot, uint32_t rows,
                                       uint32_t most)
{
    exl2__cpu_expert *one = &routed->experts[routed->expert_count++];
    *one = (exl2__cpu_expert){ expert, rows, routed->tile_count, exl2__cpu_tiles(rows, most) };
    for (uint32_t t = 0; t < one->tiles; t++) {
        uint32_t begin = exl2__cpu_tile_start(rows, most, t), end = exl2__cpu_tile_start(rows, most, t + 1);
        routed->tiles[routed->tile_count++] = (exl2__cpu_slots){ expert, slot + begin, end - begin };
    }
}

/* One item: sorts all slots by expert. */
EXL2__PRIVATE void exl2__cpu_route_sort(const exl2__cpu_share *s)
{
    exl2__cpu_device *d = s->d;
    exl2__cpu_routed *routed = &d->routed;
    const exl2__experts *e = &d->shape.experts;
    uint32_t slots = d->step->row_count * e->active, *next = routed->next;
    memset(next, 0, (e->count + 1) * sizeof *next);
    for (uint32_t i = 0; i < slots; i++) {
        next[routed->choice[i] + 1]++;
    }
    routed->expert_count = routed->tile_count = 0;
    for (uint32_t expert = 0; expert < e->count; expert++) {
        if (next[expert + 1]) {
            exl2__cpu_route_add(routed, expert, next[expert], next[expert + 1], d->ops->tile_rows);
        }
        next[expert + 1] += next[expert];
    }
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = next[routed->choice[i]]++;
        routed->slot_row[slot] = i / e->active;
        routed->slot_weight[slot] = routed->weight[i];
    }
}

/* ---- phases expert_up and expert_down ---- */

/* The gathered input of a tile of slots. All experts of a layer, affine or not, have the same room for a slot. */
EXL2__PRIVATE exl2__cpu_input exl2__cpu_expert_input(const exl2__cpu_device *d, const exl2__cpu_part *p,
                                                     const exl2__cpu_slots *tile)
{
    return (exl2__cpu_input){ d->routed.input + (size_t)tile->slot * exl2__cpu_device_room(d, p->in),
                              d->routed.centre + (size_t)tile->slot * exl2__cpu_device_centres(d, p->in),
                              tile->count, d->ops->tile_rows };
}

#define EXL2__CPU_EXPERT_COLUMNS 128u /* of an item, at most */

/* Strips of an item: two, or those of a transform of EXL3. */
static inline uint32_t exl2__cpu_expert_strips(const exl2__cpu_device *d)
{
    return exl2__max32(exl2__cpu_device_item(d), 2);
}

/* Items of a row of `stride` columns. */
static inline uint32_t exl2__cpu_expert_items(const exl2__cpu_device *d, uint32_t stride)
{
    return (uint32_t)exl2__div_up(stride, exl2__cpu_expert_strips(d) * EXL2__CPU_STRIP);
}

/* One item of the product of a tile of slots with a part; the last one may have fewer strips. */
EXL2__PRIVATE exl2__cpu_product exl2__cpu_expert_product(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                                         exl2__cpu_input input, uint32_t item)
{
    uint32_t strips = exl2__cpu_expert_strips(d);
    exl2__cpu_product p = { .of = of, .part = part, .input = input, .begin = strips * item, .first = strips * item,
                            .biased = true, .stride = EXL2__CPU_EXPERT_COLUMNS };
    p.end = exl2__min32(p.begin + strips, exl2__cpu_part_of(of, part)->strips);
    return p;
}

/* The rows of a tile of slots, for their adapters. */
static inline exl2__cpu_lora_rows exl2__cpu_expert_rows(const exl2__cpu_device *d, const exl2__cpu_slots *tile)
{
    return (exl2__cpu_lora_rows){ d->routed.slot_row + tile->slot, tile->slot };
}

/* Gathers the rows of a tile of slots for one part of expert_up. */
EXL2__PRIVATE void exl2__cpu_expert_gather(const exl2__cpu_device *d, exl2__operand of, uint32_t part,
                                           const exl2__cpu_slots *tile, exl2__real *rows, const exl2__cpu_input *input)
{
    for (uint32_t r = 0; r < tile->count; r++) {
        memcpy(rows + (size_t)r * d->hidden_stride,
               d->routed.x + (size_t)d->routed.slot_row[tile->slot + r] * d->hidden_stride,
               d->shape.hidden * sizeof *rows);
    }
    exl2__cpu_gather_part(d, of, part, input, 0, tile->count, rows, d->hidden_stride);
}

/* Items: tiles of slots. */
EXL2__PRIVATE void exl2__cpu_expert_up_input(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    for (uint32_t t = s->begin; t < s->end; t++) {
        const exl2__cpu_slots *tile = &d->routed.tiles[t];
        exl2__operand of = exl2__operand_of_expert(s->layer, EXL2__ROLE_EXPERT_UP, tile->expert);
        exl2__cpu_input input = exl2__cpu_expert_input(d, exl2__cpu_part_of(of, 0), tile);
        exl2__cpu_expert_gather(d, of, 0, tile, d->task[s->task].rows, &input);
        exl2__cpu_lora_rows rows = exl2__cpu_expert_rows(d, tile);
        for (uint32_t i = 0; exl2__cpu_lora_any(d, of) && i < exl2__cpu_matrix_of(of.matrix)->count; i++) {
            exl2__cpu_lora_shrink(d, of, i, d->shape.hidden, &rows, tile->count, d->task[s->task].rows,
                                  d->hidden_stride);
        }
    }
}

/* One item of h for a tile of slots. If up's rows are packed in another order than gate's, they are gathered
   here. */
EXL2__PRIVATE void exl2__cpu_expert_up_tile(const exl2__cpu_share *s, exl2__operand of, uint32_t index,
                                            const exl2__cpu_slots *tile)
{
    const exl2__cpu_device *d = s->d;
    const exl2__cpu_task *task = &d->task[s->task];
    const exl2__cpu_matrix *m = exl2__cpu_matrix_of(of.matrix);
    exl2__cpu_input input = exl2__cpu_expert_input(d, m->parts, tile);
    exl2__real up[EXL2__CPU_PHASES_TILE * EXL2__CPU_EXPERT_COLUMNS];
    exl2__cpu_product product = exl2__cpu_expert_product(d, of, 0, input, index);
    uint32_t first = product.begin * EXL2__CPU_STRIP, columns = (product.end - product.begin) * EXL2__CPU_STRIP;
    exl2__real *h = d->routed.h + (size_t)tile->slot * d->routed.expert_stride + first;
    product.out = h;
    product.stride = d->routed.expert_stride;
    product.rows = exl2__cpu_expert_rows(d, tile);
    exl2__cpu_multiply(d, &product);
    if (m->count == 2 && m->parts[1].input_part == 1) {
        input = (exl2__cpu_input){ task->gathered, task->centre, tile->count, d->ops->tile_rows };
        exl2__cpu_expert_gather(d, of, 1, tile, task->rows, &input);
    }
    if (m->count == 2) {
        product = exl2__cpu_expert_product(d, of, 1, input, index);
        product.out = up;
        product.rows = exl2__cpu_expert_rows(d, tile);
        exl2__cpu_multiply(d, &product);
    }
    for (uint32_t r = 0; r < tile->count; r++, h += d->routed.expert_stride) {
        exl2__real weight = d->routed.slot_weight[tile->slot + r];
        exl2__cpu_activate(d, h, m->count == 2 ? up + (size_t)r * EXL2__CPU_EXPERT_COLUMNS : NULL, columns);
        for (uint32_t i = 0; i < columns; i++) {
            h[i] *= weight;
        }
    }
}

/* Items: strips of the first chosen expert, then of the next one. */
EXL2__PRIVATE void exl2__cpu_expert_up_items(const exl2__cpu_share *s)
{
    const exl2__cpu_routed *routed = &s->d->routed;
    uint32_t items = exl2__cpu_expert_items(s->d, routed->expert_stride);
    for (uint32_t item = s->begin; item < s->end; item++) {
        const exl2__cpu_expert *expert = &routed->experts[item / items];
        exl2__operand of = exl2__operand_of_expert(s->layer, EXL2__ROLE_EXPERT_UP, expert->index);
        for (uint32_t t = 0; t < expert->tiles; t++) {
            exl2__cpu_expert_up_tile(s, of, item % items, &routed->tiles[expert->tile + t]);
        }
    }
}

/* Items: tiles of slots. */
EXL2__PRIVATE void exl2__cpu_expert_down_input(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    for (uint32_t t = s->begin; t < s->end; t++) {
        const exl2__cpu_slots *tile = &d->routed.tiles[t];
        exl2__operand of = exl2__operand_of_expert(s->layer, EXL2__ROLE_EXPERT_DOWN, tile->expert);
        exl2__cpu_input input = exl2__cpu_expert_input(d, exl2__cpu_part_of(of, 0), tile);
        exl2__cpu_gather_part(d, of, 0, &input, 0, tile->count,
                              d->routed.h + (size_t)tile->slot * d->routed.expert_stride, d->routed.expert_stride);
        if (exl2__cpu_lora_any(d, of)) {
            exl2__cpu_lora_rows rows = exl2__cpu_expert_rows(d, tile);
            exl2__cpu_lora_shrink(d, of, 0, d->shape.experts.inter, &rows, tile->count,
                                  d->routed.h + (size_t)tile->slot * d->routed.expert_stride,
                                  d->routed.expert_stride);
        }
    }
}

/* Items: strips of the residual; each adds the results of all chosen experts. */
EXL2__PRIVATE void exl2__cpu_expert_down_items(const exl2__cpu_share *s)
{
    const exl2__cpu_device *d = s->d;
    exl2__real scale = (exl2__real)d->shape.residual_scale, y[EXL2__CPU_PHASES_TILE * EXL2__CPU_EXPERT_COLUMNS];
    for (uint32_t item = s->begin; item < s->end; item++) {
        uint32_t first = item * exl2__cpu_expert_strips(d) * EXL2__CPU_STRIP;
        for (uint32_t t = 0; t < d->routed.tile_count; t++) { /* ascending by expert */
            const exl2__cpu_slots *tile = &d->routed.tiles[t];
            exl2__operand of = exl2__operand_of_expert(s->layer, EXL2__ROLE_EXPERT_DOWN, tile->expert);
            const exl2__cpu_part *p = exl2__cpu_part_of(of, 0);
            const float *bias = p->bias ? p->bias + first : NULL;
            exl2__cpu_product product = exl2__cpu_expert_product(d, of, 0, exl2__cpu_expert_input(d, p, tile), item);
            product.out = y;
            product.biased = false; /* the bias is weighted */
            product.rows = exl2__cpu_expert_rows(d, tile);
            exl2__cpu_multiply(d, &product);
            for (uint32_t r = 0; r < tile->count; r++) {
                uint32_t slot = tile->slot + r;
                size_t at = (size_t)d->routed.slot_row[slot] * d->hidden_stride + first;
                for (uint32_t i = 0; i < (product.end - product.begin) * EXL2__CPU_STRIP; i++) {
                    exl2__real sum = y[(size_t)r * EXL2__CPU_EXPERT_COLUMNS + i];
                    sum += bias ? exl2__cpu_phases_mul(d->routed.slot_weight[slot], (exl2__real)bias[i]) : 0;
                    d->residual[at + i] += exl2__cpu_phases_mul(scale, sum);
                }
            }
        }
    }
}

/* ---- costs ---- */

#define EXL2__CPU_EXPERT_READ 2u /* rows whose products cost as much as reading the weights of a tile */

/* Stages of the phases. layer NULL: not routed yet; then all rows use the same experts, the most expensive case for an
   item of expert_up. */
EXL2__PRIVATE void exl2__cpu_expert_stages(const exl2__cpu_device *d, exl2__phase phase, const exl2__layer *layer,
                                           uint32_t rows, exl2__cpu_stage *stages)
{
    const exl2__experts *e = &d->shape.experts;
    const exl2__cpu_routed *routed = &d->routed;
    uint32_t tiles = exl2__cpu_device_tiles(d, rows), slots = rows * e->active;
    uint32_t experts = layer ? routed->expert_count : e->active;
    uint32_t slot_tiles = layer ? exl2__max32(routed->tile_count, 1) : tiles * e->active;
    uint64_t hidden = d->shape.hidden, up_items = exl2__cpu_expert_items(d, routed->expert_stride);
    uint64_t parts = 1u + d->shape.gated, read = EXL2__CPU_EXPERT_READ;
    uint64_t columns = (uint64_t)exl2__cpu_expert_strips(d) * EXL2__CPU_STRIP;
    if (e->count == 0) {
        return;
    }
    if (phase == EXL2__PHASE_route) {
        uint32_t items = exl2__cpu_device_items(d, routed->router_stride) + e->shared_switch;
        uint64_t item = (uint64_t)exl2__cpu_device_item(d) * EXL2__CPU_STRIP;
        stages[0] = (exl2__cpu_stage){ exl2__cpu_route_input, tiles, d->ops->tile_rows * hidden * 16 };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_route_strips, items, rows * item * hidden };
        stages[2] = (exl2__cpu_stage){ exl2__cpu_route_choose, tiles,
                                       (uint64_t)d->ops->tile_rows * e->count * (64 + e->active) };
        stages[3] = (exl2__cpu_stage){ exl2__cpu_route_sort, 1, (slots + (uint64_t)e->count) * 32 };
    } else if (phase == EXL2__PHASE_expert_up) {
        uint64_t each = (uint64_t)slots / exl2__max32(experts, 1) + read; /* rows of an expert, on average */
        stages[0] = (exl2__cpu_stage){ exl2__cpu_expert_up_input, slot_tiles, slots * hidden * 16 / slot_tiles };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_expert_up_items, (uint32_t)(experts * up_items),
                                       parts * each * columns * hidden };
    } else {
        uint64_t all = slots + experts * read;
        stages[0] = (exl2__cpu_stage){ exl2__cpu_expert_down_input, slot_tiles,
                                       (uint64_t)slots * e->inter * 8 / slot_tiles };
        stages[1] = (exl2__cpu_stage){ exl2__cpu_expert_down_items, exl2__cpu_expert_items(d, d->hidden_stride),
                                       all * columns * e->inter };
    }
}

/* Item `item` of the second stage of expert_up, after routing: narrows `run` of the whole stage, which begins at item
   `first`, to the expert of the item. */
EXL2__PRIVATE void exl2__cpu_expert_run(const exl2__cpu_device *d, uint32_t first, uint32_t item, exl2__item_run *run)
{
    uint32_t items = exl2__cpu_expert_items(d, d->routed.expert_stride), index = (item - first) / items;
    uint64_t rows = d->routed.experts[index].rows + EXL2__CPU_EXPERT_READ;
    run->cost = (1u + d->shape.gated) * rows * exl2__cpu_expert_strips(d) * EXL2__CPU_STRIP * d->shape.hidden;
    run->end = first + (index + 1) * items;
}

#endif

#endif
