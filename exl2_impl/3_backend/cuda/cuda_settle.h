/* cuda_settle.h: adds results of blocks to the residual and normalises it, for models whose norms are not folded into
   products.
   takes: a model with a current pass.
   gives: exl2__cuda_next, exl2__cuda_next_attention, exl2__cuda_next_mlp, exl2__cuda_settle,
          exl2__cuda_mlp_input.
   owns:  nothing.

   RMSNorm before a block is a factor of each row, which the products around it apply (cuda_phases.h). A mean, a norm
   after a block, no norm at all, and a norm that two products read are not: there the kernel `settle` runs after the
   embedding and after each block. It writes the inputs of the following products to x, normalised, in passes of few
   rows and of many rows alike. */
#ifndef EXL2__CUDA_SETTLE_H
#define EXL2__CUDA_SETTLE_H

#include "../../../kernels_src/settle_args.h"
#include "cuda_product.h"

/* What follows a block: a norm of the residual, and the products that read it. */
typedef struct exl2__cuda_next {
    const exl2__norm *norm;
    const exl2__matrix *readers[2]; /* NULL: none. The second one reads x2 */
} exl2__cuda_next;

/* Both matrices read their inputs in the same order. */
static inline bool exl2__cuda_orders_equal(const exl2__matrix *a, const exl2__matrix *b)
{
    return exl2__cuda_matrix_of(a)->map == exl2__cuda_matrix_of(b)->map;
}

/* What follows the embedding (NULL) or a layer. Passes that do not decode gather the head's rows in phase head. */
static inline exl2__cuda_next exl2__cuda_next_attention(const exl2__cuda_model *m, const exl2__layer *after)
{
    uint32_t index = after ? after->index + 1 : 0;
    if (index == m->plan->shape.layers) {
        bool decodes = m->pass.decodes && !m->pass.by_gemm;
        return (exl2__cuda_next){ &m->plan->final_norm, { decodes ? m->plan->head : NULL, NULL } };
    }
    const exl2__layer *layer = &m->plan->layers[index];
    bool two = m->plan->shape.parallel && !exl2__cuda_orders_equal(layer->qkv, layer->gate_up);
    return (exl2__cuda_next){ &layer->attn_norm, { layer->qkv, two ? layer->gate_up : NULL } };
}

/* What follows attention if the blocks of a layer are not parallel. */
static inline exl2__cuda_next exl2__cuda_next_mlp(const exl2__layer *layer)
{
    return (exl2__cuda_next){ &layer->mlp_norm, { layer->gate_up, NULL } };
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

/* What follows a layer if norms are folded: a norm, and the product that reads it. */
typedef struct exl2__cuda_follower {
    const exl2__norm *norm;
    const exl2__matrix *reader;
} exl2__cuda_follower;

static inline exl2__cuda_follower exl2__cuda_follower_of(const exl2__cuda_model *m, const exl2__layer *layer)
{
    bool last = layer->index + 1 == m->plan->shape.layers;
    return last ? (exl2__cuda_follower){ &m->plan->final_norm, m->plan->head }
                : (exl2__cuda_follower){ &layer[1].attn_norm, layer[1].qkv };
}

/* The input of gate_up. */
static inline uint64_t exl2__cuda_mlp_input(const exl2__cuda_model *m, const exl2__layer *layer)
{
    bool two = m->plan->shape.parallel && !exl2__cuda_orders_equal(layer->qkv, layer->gate_up);
    return two ? m->b.x2 : m->b.x;
}

/* Launches the kernel for `rows` rows. `a` holds branch, post_weight, post_bias, rows_at, samplings and out. */
static exl2_result exl2__cuda_settle_rows(exl2__cuda_model *m, exl2k_settle_args a, uint32_t rows, exl2__cuda_next next)
{
    const exl2__shape *s = &m->plan->shape;
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = EXL2K_SETTLE_THREADS };
    for (uint32_t i = 0; i < 2; i++) {
        a.out[i] = next.readers[i] ? a.out[i] : 0;
        a.map[i] = next.readers[i] ? exl2__cuda_matrix_of(next.readers[i])->map : 0;
    }
    a.residual = m->b.residual;
    a.weight = exl2__cuda_values_or_none(next.norm->weight);
    a.bias = exl2__cuda_values_or_none(next.norm->bias);
    a.hidden = s->hidden;
    a.out_pitch = m->b.x_pitch;
    a.layer_norm = s->layer_norm;
    a.eps = s->norm_eps;
    a.scale = s->residual_scale;
    return a.branch || a.out[0] ? exl2__cuda_chain(m, EXL2__KERNEL_exl2k_settle, grid, &a) : EXL2_OK;
}

/* Settles all rows of the pass. post: the norm of the block's result, which lies in m->b.branch; NULL: the residual
   has the result already. */
static exl2_result exl2__cuda_settle(exl2__cuda_model *m, const exl2__norm *post, exl2__cuda_next next)
{
    exl2k_settle_args a = { .rows_at = m->pass.groups + offsetof(exl2k_pass, row_count),
                            .out = { m->b.x, m->b.x2 } };
    if (post) {
        a.branch = m->b.branch;
        a.post_weight = exl2__cuda_values(post->weight);
        a.post_bias = exl2__cuda_values_or_none(post->bias);
    }
    return exl2__cuda_settle_rows(m, a, m->pass.row_count, next);
}

#endif
