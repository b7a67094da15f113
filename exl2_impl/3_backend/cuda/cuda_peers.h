/* cuda_peers.h: passes of 1 to 16 rows in which kernels give their columns to the other GPUs that share every matrix
   (kernels_src/peers_args.h).
   takes: models of one group (cuda_group.h), with a current pass.
   gives: exl2__cuda_may_give, _may_give_attended, exl2__cuda_gives, _gives_one, _gives_attended, exl2__cuda_given,
          exl2__cuda_peers, exl2__cuda_give_attended, _qkv, _residual, _h, _head.

   The kernels of a layer hand over four vectors: attention gives `attended`; `out` gives x of the MLP; gate_up gives h;
   down gives x of the next layer, or of the head.

   ONE ROW: each buffer is emptied by a kernel that runs after its readers, two exchanges before the other GPUs write it
   again. The first product of a pass empties all buffers but `attended`, so that a pass may be dropped.

   MORE ROWS: kernels end with all columns in the buffers of any pass, and leave empty inboxes. */
#ifndef EXL2__CUDA_PEERS_H
#define EXL2__CUDA_PEERS_H

#include "cuda_meet.h"
#include "cuda_multiply.h"
#include "cuda_settle.h"

/* Whether a product of the model fits into shared memory with 16 rows. */
EXL2__PRIVATE bool exl2__cuda_gives_sixteen(const exl2__cuda_model *m, const exl2__cuda_matrix *w)
{
    exl2k_gemv_args a = { .matrix = w->device, .kind = EXL2K_GEMV_RESIDUAL };
    uint32_t ctas = exl2__cuda_product_ctas(m, w->device.strips >> w->device.interleaved);
    return exl2__cuda_gemv_shared(&a, w->chunk_bytes, 16, ctas, m->limits.shared_bytes, 0, false) > 0;
}

/* Most rows of a pass whose products give their columns: 0, if not all products of the model's layers and of its head
   are those of Llama, or this GPU lacks columns of one; 8; or 16, where such passes have products of their own. */
EXL2__PRIVATE uint32_t exl2__cuda_may_give(const exl2__cuda_model *m)
{
    const exl2__plan *p = m->plan;
    const exl2__shape *s = &p->shape;
    bool may = exl2__cuda_folds(s) && !exl2__cuda_needs_any(s) && !s->affine && p->host_mlps == 0 && !p->columns.idle;
    bool sixteen = exl2__cuda_has_sixteen(m, 0);
    for (uint32_t i = 0; i <= s->layers && may; i++) {
        const exl2__layer *layer = &p->layers[i];
        bool head = i == s->layers;
        for (uint32_t k = 0; k < (head ? 1 : 4) && may; k++) {
            static const uint32_t roles[] = { EXL2__ROLE_QKV, EXL2__ROLE_OUT, EXL2__ROLE_GATE_UP, EXL2__ROLE_DOWN };
            const exl2__cuda_matrix *w = exl2__cuda_matrix_of(head ? p->head : layer->matrix[roles[k]]);
            may = w && !w->affine && !w->order.apart && w->device.strips > 0 && w->in % 32 == 0;
            sixteen = sixteen && may && exl2__cuda_gives_sixteen(m, w);
        }
    }
    return !may ? 0 : sixteen ? EXL2__CUDA_GIVEN_ROWS : 8;
}

/* Most rows whose attention may give its outputs: a CTA of each row and head waits for other GPUs, and must leave SMs
   to those of the same launch that others wait for. With one row none waits. */
EXL2__PRIVATE uint32_t exl2__cuda_may_give_attended(const exl2__cuda_model *m)
{
    return exl2__max32(m->gpu->sm_count / 2 / (m->plan->shape.kv_heads * m->b.head_rows), 1);
}

/* Whether products of the pass give their columns to the other GPUs. */
static inline bool exl2__cuda_gives(const exl2__cuda_model *m)
{
    const exl2__cuda_pass *p = &m->pass;
    return p->row_count <= m->gives && p->decodes && !p->by_gemm && !p->adapted && !p->steered;
}

/* Whether they do so as the kernels of one row do. */
static inline bool exl2__cuda_gives_one(const exl2__cuda_model *m)
{
    return exl2__cuda_gives(m) && m->pass.row_count == 1;
}

/* Whether attention does, too. */
static inline bool exl2__cuda_gives_attended(const exl2__cuda_model *m)
{
    return exl2__cuda_gives(m) && m->pass.row_count <= m->gives_attended;
}

/* A buffer that the other GPUs write. */
static inline uint64_t exl2__cuda_given(const exl2__cuda_model *m, exl2__cuda_given_buffer which)
{
    return m->b.given + exl2__cuda_given_at(&m->b, which);
}

/* Bytes of the sums of squares of a norm. */
static inline uint32_t exl2__cuda_given_sums_bytes(const exl2__cuda_model *m)
{
    return exl2__cuda_given_strips(&m->plan->shape) * (uint32_t)sizeof(float);
}

/* Sums of squares of the norm `later` norms after the current one. */
static inline uint64_t exl2__cuda_given_sums(const exl2__cuda_model *m, uint32_t later)
{
    uint64_t set = (m->pass.norm + later) % EXL2__CUDA_SUMS, bytes = exl2__cuda_given_sums_bytes(m);
    return m->pass.row_count > 1 ? m->b.strip_sums + set * bytes * EXL2__CUDA_GIVEN_ROWS
                                 : exl2__cuda_given(m, EXL2__CUDA_GIVEN_SUMS) + set * bytes;
}

/* What the sums of that norm add up to, once a product has read them: f32 [EXL2__CUDA_GIVEN_ROWS, 8]. */
static inline uint64_t exl2__cuda_given_groups(const exl2__cuda_model *m, uint32_t later)
{
    uint64_t set = (m->pass.norm + later) % EXL2__CUDA_SUMS;
    return m->b.group_sums + set * EXL2__CUDA_GROUPS_BYTES;
}

/* The arguments by which all kernels of the pass know the other GPUs. */
EXL2__PRIVATE exl2k_peers exl2__cuda_peers(const exl2__cuda_model *m)
{
    uint32_t strips = (uint32_t)exl2__align_up(m->plan->shape.hidden, 32) / EXL2__CUDA_STRIP;
    uint32_t slots = exl2__cuda_residual_ctas(m);
    exl2k_peers p = { .stop = (uint64_t)(uintptr_t)m->b.stop, .strips = strips / slots,
                      .slots_with_more = strips % slots,
                      .sums_pitch = exl2__cuda_given_strips(&m->plan->shape) };
    for (uint32_t i = 0; i < m->columns.count; i++) {
        if (i != m->columns.index) {
            p.apart[p.others++] = m->mates[i]->b.given - m->b.given;
        }
    }
    return p;
}

/* ---- buffers that are emptied ---- */

EXL2__PRIVATE void exl2__cuda_clear_given(const exl2__cuda_model *m, exl2k_peers *p, uint32_t n,
                                          exl2__cuda_given_buffer which)
{
    p->clear[n] = exl2__cuda_given(m, which);
    p->clear_bytes[n] = (uint32_t)exl2__cuda_given_bytes(&m->b, which);
}

/* The sums that the residual product after the next one writes. */
EXL2__PRIVATE void exl2__cuda_clear_sums(const exl2__cuda_model *m, exl2k_peers *p, uint32_t n)
{
    p->clear[n] = exl2__cuda_given_sums(m, 2);
    p->clear_bytes[n] = exl2__cuda_given_sums_bytes(m);
}

/* All but `attended`, which comes last: the others may write it already. */
EXL2__PRIVATE void exl2__cuda_clear_all(const exl2__cuda_model *m, exl2k_peers *p)
{
    p->clear[0] = m->b.given;
    p->clear_bytes[0] = (uint32_t)exl2__cuda_given_at(&m->b, EXL2__CUDA_GIVEN_ATTENDED);
}

/* ---- products ---- */

/* More rows: which strips are taken from the inbox, by which CTA, and where they go. `a`: not shifted yet. */
EXL2__PRIVATE void exl2__cuda_give_inbox(const exl2__cuda_model *m, const exl2__cuda_matrix *w, exl2__cuda_kind kind,
                                         const exl2k_gemv_args *a, uint32_t ctas, exl2k_peers *p)
{
    bool residual = kind == EXL2__CUDA_RESIDUAL;
    p->inbox = exl2__cuda_given(m, residual ? EXL2__CUDA_GIVEN_INBOX : EXL2__CUDA_GIVEN_H_INBOX);
    p->all_out = a->out;
    p->all_map = residual ? a->map : 0;
    p->all_sums = a->sums_out;
    p->first_strip = w->cut[0].first / EXL2__CUDA_STRIP;
    p->own_strips = w->cut[0].columns / EXL2__CUDA_STRIP;
    uint32_t others = w->cut[0].all / EXL2__CUDA_STRIP - p->own_strips;
    p->taken = others / ctas;
    p->ctas_with_more = others % ctas;
}

/* Launches a product of `rows` rows. `a` as in exl2__cuda_multiply. */
EXL2__PRIVATE exl2_result exl2__cuda_give(exl2__cuda_model *m, const exl2__matrix *matrix, exl2__cuda_kind kind,
                                          const exl2k_gemv_args *a, uint32_t rows, const exl2k_peers *peers)
{
    static const exl2__cuda_kernel kernels[2][3] = {
        { EXL2__KERNEL_exl2k_gemv1_peers, EXL2__KERNEL_exl2k_gemv8_peers, EXL2__KERNEL_exl2k_gemv16_peers },
        { EXL2__KERNEL_exl2k_gemv1_large_peers, EXL2__KERNEL_exl2k_gemv8_large_peers,
          EXL2__KERNEL_exl2k_gemv16_peers }
    };
    static const uint32_t lanes[] = { 1, 8, 16 };
    uint32_t which = exl2__cuda_gives_one(m) ? 0 : m->pass.row_count <= 8 ? 1 : 2;
    bool large = exl2__cuda_is_large(m->gpu, &m->plan->shape);
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(matrix);
    if (w->device.strips == 0) {
        return EXL2_OK; /* a unit of the head, of whose columns this GPU has fewer than there are units */
    }
    uint32_t ctas = exl2__cuda_product_ctas(m, w->device.strips >> w->device.interleaved);
    exl2k_peers_gemv_args all = { .gemv = *a, .peers = *peers };
    if (which > 0 && kind != EXL2__CUDA_STORE) {
        exl2__cuda_give_inbox(m, w, kind, a, ctas, &all.peers);
    }
    exl2__cuda_columns_shift(m, w, kind, false, &all.gemv);
    if (kind == EXL2__CUDA_RESIDUAL) {
        all.gemv.sums_out += w->cut[0].first / EXL2__CUDA_STRIP * sizeof(float);
    }
    exl2__cuda_product_fill(m, w, kind, &all.gemv);
    uint32_t shared = exl2__cuda_gemv_shared(&all.gemv, w->chunk_bytes, lanes[which], ctas, m->limits.shared_bytes, 0,
                                             false);
    if (shared == 0) {
        return exl2__cuda_too_few_shared(m);
    }
    all.gemv.rows = rows;
    exl2__cuda_grid grid = { .x = ctas, .y = 1, .threads = EXL2K_GEMV_THREADS, .shared_bytes = shared };
    return exl2__cuda_chain(m, kernels[large][which], grid, &all);
}

/* Attention writes to where `out` reads. first: the first output of this GPU. */
EXL2__PRIVATE void exl2__cuda_give_attended(const exl2__cuda_model *m, const exl2__layer *layer, uint32_t first,
                                            exl2k_attend_args *a)
{
    const exl2__columns *c = &m->plan->columns;
    exl2k_peers p = exl2__cuda_peers(m);
    bool one = exl2__cuda_gives_one(m);
    a->map = a->all_map = exl2__cuda_inputs(layer->matrix[EXL2__ROLE_OUT]);
    a->all_out = one ? exl2__cuda_given(m, EXL2__CUDA_GIVEN_ATTENDED) : m->b.attended;
    a->out = a->all_out + (a->map ? 0 : first * 2);
    exl2__cuda_advance(&a->map, first * sizeof(exl2k_u16));
    a->inbox = one ? 0 : exl2__cuda_given(m, EXL2__CUDA_GIVEN_ATTENDED_INBOX);
    a->stop = p.stop;
    a->all_columns = c->heads * a->dim;
    a->first_column = first;
    a->own_columns = a->heads * a->dim;
    a->others = p.others;
    memcpy(a->apart, p.apart, sizeof a->apart);
}

/* q, k, v stay here. The first layer reads what the embedding has written, which each GPU has computed. */
EXL2__PRIVATE exl2_result exl2__cuda_give_qkv(exl2__cuda_model *m, const exl2__layer *layer, exl2k_gemv_args a)
{
    exl2k_peers p = exl2__cuda_peers(m);
    bool first = exl2__cuda_is_first(m, layer);
    p.groups_out = exl2__cuda_given_groups(m, 0);
    if (!first) {
        a.sums_now = exl2__cuda_given_sums(m, 0);
        a.sums_before = exl2__cuda_given_groups(m, EXL2__CUDA_SUMS - 1);
        p.now_by_strips = p.before_by_groups = 1;
    }
    if (exl2__cuda_gives_one(m) && first) {
        exl2__cuda_clear_all(m, &p);
    } else if (exl2__cuda_gives_one(m)) {
        a.x = exl2__cuda_given(m, EXL2__CUDA_GIVEN_X);
        exl2__cuda_clear_given(m, &p, 0, EXL2__CUDA_GIVEN_MLP_X);
        exl2__cuda_clear_given(m, &p, 1, EXL2__CUDA_GIVEN_H);
    }
    return exl2__cuda_give(m, layer->matrix[EXL2__ROLE_QKV], EXL2__CUDA_STORE, &a, m->pass.row_count, &p);
}

/* `out` or `down`, which adds to this GPU's columns of the residual, and gives the inputs of what follows. */
EXL2__PRIVATE exl2_result exl2__cuda_give_residual(exl2__cuda_model *m, exl2__operand of, exl2k_gemv_args a)
{
    exl2k_peers p = exl2__cuda_peers(m);
    bool down = of.role == EXL2__ROLE_DOWN, last = of.layer->index + 1 == m->plan->shape.layers;
    p.before_by_groups = down || !exl2__cuda_is_first(m, of.layer);
    a.sums_before = p.before_by_groups ? exl2__cuda_given_groups(m, 0) : a.sums_before;
    a.sums_out = exl2__cuda_given_sums(m, 1);
    if (exl2__cuda_gives_one(m)) {
        a.x = exl2__cuda_given(m, down ? EXL2__CUDA_GIVEN_H : EXL2__CUDA_GIVEN_ATTENDED);
        a.out = exl2__cuda_given(m, !down ? EXL2__CUDA_GIVEN_MLP_X : last ? EXL2__CUDA_GIVEN_HEAD_X
                                                                         : EXL2__CUDA_GIVEN_X);
        exl2__cuda_clear_sums(m, &p, 0);
    }
    if (exl2__cuda_gives_one(m) && !down) {
        exl2__cuda_clear_given(m, &p, 1, EXL2__CUDA_GIVEN_X);
    }
    return exl2__cuda_give(m, of.matrix, EXL2__CUDA_RESIDUAL, &a, m->pass.row_count, &p);
}

/* gate and up. */
EXL2__PRIVATE exl2_result exl2__cuda_give_h(exl2__cuda_model *m, const exl2__layer *layer, exl2k_gemv_args a)
{
    exl2k_peers p = exl2__cuda_peers(m);
    p.now_by_strips = 1;
    p.before_by_groups = !exl2__cuda_is_first(m, layer);
    p.groups_out = exl2__cuda_given_groups(m, 0);
    a.sums_now = exl2__cuda_given_sums(m, 0);
    a.sums_before = p.before_by_groups ? exl2__cuda_given_groups(m, EXL2__CUDA_SUMS - 1) : a.sums_before;
    if (exl2__cuda_gives_one(m)) {
        a.x = exl2__cuda_given(m, EXL2__CUDA_GIVEN_MLP_X);
        a.out = exl2__cuda_given(m, EXL2__CUDA_GIVEN_H);
        exl2__cuda_clear_given(m, &p, 0, EXL2__CUDA_GIVEN_ATTENDED);
    }
    return exl2__cuda_give(m, layer->matrix[EXL2__ROLE_GATE_UP], EXL2__CUDA_ACT, &a, m->pass.row_count, &p);
}

/* The head, or columns of it, for the rows of the range. */
EXL2__PRIVATE exl2_result exl2__cuda_give_head(exl2__cuda_model *m, const exl2__matrix *head, exl2k_gemv_args a,
                                               const exl2__range *range)
{
    exl2k_peers p = exl2__cuda_peers(m);
    uint64_t before = (uint64_t)range->logit0 * p.sums_pitch * sizeof(float);
    p.now_by_strips = p.before_by_groups = 1;
    a.x = exl2__cuda_gives_one(m) ? exl2__cuda_given(m, EXL2__CUDA_GIVEN_HEAD_X) : a.x;
    a.sums_now = exl2__cuda_given_sums(m, 0) + before;
    a.sums_before = exl2__cuda_given_groups(m, EXL2__CUDA_SUMS - 1) + range->logit0 * 8ull * sizeof(float);
    return exl2__cuda_give(m, head, EXL2__CUDA_STORE, &a, range->logit_count, &p);
}

#endif
