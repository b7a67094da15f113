/* cuda_settle.h: adds results of blocks to the residual and normalises it, for models whose norms are not folded into
   products.
   takes: a model with a current pass.
   gives: exl2__cuda_next, exl2__cuda_next_attention, exl2__cuda_next_mlp, exl2__cuda_settle_out,
          exl2__cuda_settle_down, exl2__cuda_mlp_input.

   RMSNorm before a block is a factor of each row, which the products around it apply (cuda_phases.h). A mean, a norm
   after a block, no norm at all, and a norm that two products read are not: there the kernel `settle` runs after the
   embedding and after each block. It writes the inputs of the following products to x, normalised, in passes of few
   rows and of many rows alike. */
#ifndef EXL2__CUDA_SETTLE_H
#define EXL2__CUDA_SETTLE_H

#include "../../../kernels_src/settle_args.h"
#include "cuda_steer.h"

/* What follows a block: a norm of the residual, and the products that read it. */
typedef struct exl2__cuda_next {
    const exl2__norm *norm;
    const exl2__matrix *readers[2]; /* NULL: none. The second one reads x2 */
} exl2__cuda_next;

/* Whether gate_up of parallel blocks, if the device has it, reads its inputs in another order than q, k, v. */
static inline bool exl2__cuda_two_orders(const exl2__cuda_model *m, const exl2__layer *layer)
{
    const exl2__matrix *gate_up = layer->matrix[EXL2__ROLE_GATE_UP];
    return m->plan->shape.parallel && gate_up
        && exl2__cuda_inputs(layer->matrix[EXL2__ROLE_QKV]) != exl2__cuda_inputs(gate_up);
}

/* The layer that the phase `embed` is followed by, whose norm is the first one of the pass; or one whose rows come from
   the host (cuda_host.h), where norms begin anew. */
static inline bool exl2__cuda_is_first(const exl2__cuda_model *m, const exl2__layer *layer)
{
    return layer->index == exl2__plan_first(m->plan) || exl2__plan_is_host(m->plan, layer->index - 1);
}

/* Index of the layer after the embedding (NULL) or a layer; the end of the span if there is none. */
static inline uint32_t exl2__cuda_index_after(const exl2__cuda_model *m, const exl2__layer *after)
{
    return after ? after->index + 1 : exl2__plan_first(m->plan);
}

/* What follows the embedding (NULL) or a layer. Passes that do not decode gather the head's rows in phase head. A span
   that another one follows has neither final norm nor head: its rows are handed over as they are. */
static inline exl2__cuda_next exl2__cuda_next_attention(const exl2__cuda_model *m, const exl2__layer *after)
{
    uint32_t index = exl2__cuda_index_after(m, after);
    if (index == exl2__plan_end(m->plan)) {
        bool decodes = m->pass.decodes && !m->pass.by_gemm;
        return (exl2__cuda_next){ &m->plan->final_norm, { decodes ? m->plan->head : NULL, NULL } };
    }
    const exl2__layer *layer = &m->plan->layers[index];
    bool two = exl2__cuda_two_orders(m, layer);
    return (exl2__cuda_next){ &layer->attn_norm, { layer->matrix[EXL2__ROLE_QKV],
                                                   two ? layer->matrix[EXL2__ROLE_GATE_UP] : NULL } };
}

/* What follows attention if the blocks of a layer are not parallel. */
static inline exl2__cuda_next exl2__cuda_next_mlp(const exl2__layer *layer)
{
    return (exl2__cuda_next){ &layer->mlp_norm, { layer->matrix[EXL2__ROLE_GATE_UP], NULL } };
}

/* Sums of squares of the norm `later` norms after the current one; 0: norms are not folded into products. */
static inline uint64_t exl2__cuda_sums(const exl2__cuda_model *m, uint32_t later)
{
    return exl2__cuda_folds(&m->plan->shape) ? m->b.sums[(m->pass.norm + later) % EXL2__CUDA_SUMS] : 0;
}

/* Sums of squares of the previous norm; 0 if there is none. */
static inline uint64_t exl2__cuda_sums_before(const exl2__cuda_model *m)
{
    return m->pass.first_norm ? 0 : exl2__cuda_sums(m, EXL2__CUDA_SUMS - 1);
}

/* Whether the span before hands over sums of squares in this pass, too. After MLPs of the host, norms begin anew. */
static inline bool exl2__cuda_takes_sums(const exl2__cuda_model *m)
{
    return m->before && exl2__cuda_folds(&m->plan->shape) && !m->pass.by_gemm && m->before->plan->host_mlps == 0;
}

/* Whether the norm before the layer is the first one, which knows no sums of squares of a norm before. */
static inline bool exl2__cuda_begins_anew(const exl2__cuda_model *m, const exl2__layer *layer)
{
    bool first = layer->index == exl2__plan_first(m->plan);
    return first ? !exl2__cuda_takes_sums(m) : exl2__plan_is_host(m->plan, layer->index - 1);
}

/* What follows a layer if norms are folded: a norm, and the product that reads it. The kernels write an input for some
   norm in any case. At the end of a span that another one follows, nothing reads it: any norm of the layer will do. */
typedef struct exl2__cuda_follower {
    const exl2__norm *norm;
    const exl2__matrix *reader;
} exl2__cuda_follower;

static inline exl2__cuda_follower exl2__cuda_follower_of(const exl2__cuda_model *m, const exl2__layer *layer)
{
    if (layer->index + 1 < exl2__plan_end(m->plan)) {
        return (exl2__cuda_follower){ &layer[1].attn_norm, layer[1].matrix[EXL2__ROLE_QKV] };
    }
    return exl2__plan_has_head(m->plan) ? (exl2__cuda_follower){ &m->plan->final_norm, m->plan->head }
                                        : (exl2__cuda_follower){ &layer->attn_norm, layer->matrix[EXL2__ROLE_QKV] };
}

/* The input of gate_up. */
static inline uint64_t exl2__cuda_mlp_input(const exl2__cuda_model *m, const exl2__layer *layer)
{
    return exl2__cuda_two_orders(m, layer) ? m->b.x2 : m->b.x;
}

/* Whether the products of the pass have one row, and kernels that write their inputs transform these for EXL3, too. */
static inline bool exl2__cuda_exl3_turns(const exl2__cuda_model *m)
{
    return EXL2__EXL3 && m->pass.row_count == 1 && !m->pass.by_gemm && exl2__cuda_exl3_by_wg(m->gpu)
           && !exl2__columns_are_cut(&m->columns);
}

/* Rows of the tiles in which `rows` rows of a prompt are transformed for EXL3 by kernels that write them; 0: they are
   not. */
static inline uint32_t exl2__cuda_exl3_turned_rows(const exl2__cuda_model *m, uint32_t rows)
{
    bool many = EXL2__EXL3 && m->pass.prompts && m->pass.by_gemm && exl2__cuda_exl3_by_wg(m->gpu)
             && !exl2__columns_are_cut(&m->columns);
    return many ? (uint32_t)exl2__align_up(rows, rows <= 128 ? 128 : EXL2K_EXL3_TILE_MAX) : 0;
}

/* Where the transformed row of h lies: after that of x. */
static inline uint64_t exl2__cuda_turned_h(const exl2__cuda_model *m)
{
    uint64_t blocks = exl2__div_up(m->plan->shape.hidden, EXL2K_EXL3_BLOCK);
    return m->b.exl3_rotated + EXL2K_EXL3_PARTS * blocks * EXL2K_EXL3_BLOCK * sizeof(uint16_t);
}

/* Where transformed rows of h lie, for `rows` rows of tiles: after those that gate and up read. */
static inline uint64_t exl2__cuda_turned_rows_h(const exl2__cuda_model *m, uint32_t rows)
{
    uint64_t blocks = exl2__div_up(m->plan->shape.hidden, EXL2K_EXL3_BLOCK);
    return m->b.exl3_rotated + 2 * blocks * EXL2K_EXL3_BLOCK * sizeof(uint16_t) * rows;
}

#if EXL2__EXL3
/* Launches `a` for one row, or for rows of a prompt, which are transformed for an EXL3 matrix, too. rotated_rows: of a
   prompt; 0: one row. */
EXL2__PRIVATE exl2_result exl2__cuda_settle_turned(exl2__cuda_model *m, const exl2k_settle_args *a,
                                                   const exl2__cuda_exl3 *reader, uint32_t rows, uint32_t rotated_rows)
{
    exl2k_exl3_settle_args both = { .settle = *a, .rotated = m->b.exl3_rotated, .parts = reader->parts,
                                    .rotated_rows = rotated_rows };
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = exl2k_settle_threads(a->hidden) };
    if (rotated_rows) { /* does anything but the reader's EXL3 parts read x? */
        bool read = m->pass.adapted || m->plan->host_mlps > 0 || m->plan->shape.mixes_exl3;
        grid.threads = EXL2K_EXL3_THREADS;
        both.settle.out[0] = read ? a->out[0] : 0;
    }
    for (uint32_t i = 0; i < reader->parts; i++) {
        both.suh[i] = reader->part[i].suh;
    }
    m->pass.turned_x = both.suh[0];
    return exl2__cuda_chain(m, rotated_rows ? EXL2__KERNEL_exl2k_exl3_norm_rows : EXL2__KERNEL_exl2k_exl3_settle, grid,
                            &both);
}
#endif

/* Launches the kernel for `rows` rows. `a` holds branch, post_weight, post_bias, rows_at, samplings, added and out. */
EXL2__PRIVATE exl2_result exl2__cuda_settle_rows(exl2__cuda_model *m, exl2k_settle_args a, uint32_t rows,
                                                 exl2__cuda_next next)
{
    const exl2__shape *s = &m->plan->shape;
    if (m->pass.settled) {
        m->pass.settled = false;
        return EXL2_OK;
    }
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = exl2k_settle_threads(s->hidden) };
    for (uint32_t i = 0; i < 2; i++) {
        a.out[i] = next.readers[i] ? a.out[i] : 0;
        a.map[i] = next.readers[i] ? exl2__cuda_inputs(next.readers[i]) : 0;
    }
    a.tile_rows = m->pass.by_wg && !a.samplings ? exl2__cuda_wg_rows(m->pass.row_count) : 0;
    a.residual = m->b.residual;
    a.weight = exl2__cuda_values_or_none(next.norm->weight);
    a.bias = exl2__cuda_values_or_none(next.norm->bias);
    a.hidden = s->hidden;
    a.out_pitch = m->b.x_pitch;
    a.layer_norm = s->layer_norm;
    a.eps = s->norm_eps;
    a.scale = s->residual_scale;
    /* Where the block's product leaves many SMs to others, the product after this kernel would start there, and its
       copies would delay attention and the block. */
    a.late = 3 * exl2__cuda_residual_ctas(m) <= 2 * m->limits.ctas;
    bool steers = exl2__cuda_steers_few(m);
    m->pass.turned_x = 0;
#if EXL2__EXL3
    bool turns = !a.samplings && !steers && a.out[0] && !a.out[1] && !a.map[0] && s->hidden % EXL2K_EXL3_BLOCK == 0;
    bool plain = a.weight && !a.bias && !a.branch && !a.added && !a.layer_norm && s->hidden <= EXL2K_EXL3_NORM_MAX;
    bool layers = turns && plain && next.readers[0] != m->plan->head;
    uint32_t many = layers ? exl2__cuda_exl3_turned_rows(m, rows) : 0;
    turns = turns && (exl2__cuda_exl3_turns(m) || many);
    const exl2__cuda_exl3 *reader = turns ? &exl2__cuda_matrix_of(next.readers[0])->exl3 : NULL;
    if (reader && reader->parts > 0) {
        return exl2__cuda_settle_turned(m, &a, reader, rows, many);
    }
#endif
    exl2__cuda_kernel kernel = steers ? EXL2__KERNEL_exl2k_settle_steer : EXL2__KERNEL_exl2k_settle;
    return a.branch || a.out[0] || a.added ? exl2__cuda_chain(m, kernel, grid, &a) : EXL2_OK;
}

/* One launch for all rows of a pass. */
typedef struct exl2__cuda_settling {
    const exl2__norm *post; /* norm of the block's result in m->b.branch; NULL: the residual has the result already */
    exl2__cuda_next next;
    uint64_t added;         /* exl2__cuda_steer_rows */
} exl2__cuda_settling;

/* After attention. */
static inline exl2__cuda_settling exl2__cuda_settling_out(const exl2__cuda_model *m, const exl2__layer *layer)
{
    return (exl2__cuda_settling){ m->plan->shape.post_norms ? &layer->attn_post_norm : NULL,
                                  exl2__cuda_next_mlp(layer), 0 };
}

/* After the MLP, or after parallel blocks; `layer` NULL: after the embedding. */
static inline exl2__cuda_settling exl2__cuda_settling_down(const exl2__cuda_model *m, const exl2__layer *layer)
{
    bool post = layer && m->plan->shape.post_norms;
    return (exl2__cuda_settling){ post ? &layer->mlp_post_norm : NULL, exl2__cuda_next_attention(m, layer),
                                  layer ? exl2__cuda_steer_rows(m, layer) : 0 };
}

/* now: the launch. soon: the one after it, whose tables are to be in L2 by then; NULL: none. */
EXL2__PRIVATE exl2_result exl2__cuda_settle(exl2__cuda_model *m, exl2__cuda_settling now,
                                            const exl2__cuda_settling *soon)
{
    exl2k_settle_args a = { .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count),
                            .out = { m->b.x, m->b.x2 }, .added = now.added };
    if (now.post) {
        a.branch = m->b.branch;
        a.post_weight = exl2__cuda_values(now.post->weight);
        a.post_bias = exl2__cuda_values_or_none(now.post->bias);
    }
    if (soon) {
        a.soon[0] = exl2__cuda_values_or_none(soon->next.norm->weight);
        a.soon[1] = exl2__cuda_values_or_none(soon->next.norm->bias);
        a.soon[2] = soon->post ? exl2__cuda_values_or_none(soon->post->weight) : 0;
        a.soon_map = soon->next.readers[0] ? exl2__cuda_inputs(soon->next.readers[0]) : 0;
    }
    EXL2__TRY(a.added ? exl2__cuda_meet_all(m) : EXL2_OK); /* other GPUs may still read the residual */
    return exl2__cuda_settle_rows(m, a, m->pass.row_count, now.next);
}

EXL2__PRIVATE exl2_result exl2__cuda_settle_out(exl2__cuda_model *m, const exl2__layer *layer)
{
    exl2__cuda_settling soon = exl2__cuda_settling_down(m, layer);
    return exl2__cuda_settle(m, exl2__cuda_settling_out(m, layer), &soon);
}

EXL2__PRIVATE exl2_result exl2__cuda_settle_down(exl2__cuda_model *m, const exl2__layer *layer)
{
    uint32_t index = exl2__cuda_index_after(m, layer);
    const exl2__layer *following = index < exl2__plan_end(m->plan) ? &m->plan->layers[index] : NULL;
    exl2__cuda_settling soon = { 0 };
    /* In a layer with experts the phase `route` normalises the router's inputs: nothing settles after attention. */
    if (following && (m->plan->shape.parallel || following->matrix[EXL2__ROLE_ROUTER])) {
        soon = exl2__cuda_settling_down(m, following);
    } else if (following) {
        soon = exl2__cuda_settling_out(m, following);
    }
    return exl2__cuda_settle(m, exl2__cuda_settling_down(m, layer), following ? &soon : NULL);
}

#endif
