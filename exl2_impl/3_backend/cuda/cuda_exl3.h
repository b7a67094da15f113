/* cuda_exl3.h: launches of EXL3 matrices in a pass, products and embeddings; inputs of matrices beside them.
   takes: a model with a current pass.
   gives: exl2__cuda_exl3_product, exl2__cuda_exl3_permute, exl2__cuda_exl3_embed. */
#ifndef EXL2__CUDA_EXL3_H
#define EXL2__CUDA_EXL3_H

#include "../../../kernels_src/gather_args.h"
#include "cuda_settle.h"

#if EXL2__EXL3

/* The launches of one product, which `e` describes but for the parts of each launch. tile_rows: of many rows, those of
   a tile; 0: a product of few rows. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_launch(exl2__cuda_model *m, exl2k_exl3_args e, uint32_t tile_rows)
{
    bool few = tile_rows == 0, pair = !few && e.kind == EXL2K_EXL3_ACT && e.parts == 2;
    bool alone = few && e.rows == 1 && exl2__cuda_exl3_by_wg(m->gpu);
    uint32_t most = m->limits.shared_bytes - EXL2__CUDA_EXL3_STATIC;
    for (e.first = 0; e.first < e.parts; e.first += e.count) {
        exl2k_exl3_args one = e;
        e.count = one.count = pair ? 1 : exl2__cuda_exl3_run(e.part, e.first, e.parts);
        if (pair && e.first == 0) { /* gate: up's launch reads it */
            one.kind = EXL2K_EXL3_STORE;
            one.out_half = 1;
        }
        uint32_t book = one.part[one.first].book, strips = exl2__cuda_exl3_strips(one.part, one.first, one.count);
        uint32_t outputs = exl2__cuda_exl3_outputs(&one, tile_rows, m->gpu->sm_count);
        uint32_t rate = exl2__cuda_exl3_rate(&one);
        one.partial = alone ? m->b.exl3_alone + EXL2__CUDA_EXL3_NORM_SUMS : one.partial;
        exl2__cuda_grid grid = { .x = strips * (EXL2K_EXL3_BLOCK / outputs),
                                 .y = few ? one.splits : one.rotated_rows / tile_rows,
                                 .threads = few ? EXL2K_EXL3_THREADS : exl2__cuda_exl3_gemm_threads(tile_rows, outputs),
                                 .shared_bytes = alone ? exl2__cuda_exl3_one_slabs(&one, rate, most)
                                                 : few ? exl2__cuda_exl3_slabs(&one, rate, most)
                                                       : exl2__cuda_exl3_gemm_shared(tile_rows, outputs) };
        exl2__cuda_kernel kernel = alone ? exl2__cuda_exl3_one(book)
                                   : few ? exl2__cuda_exl3_gemv(book, one.rows)
                                         : exl2__cuda_exl3_gemm(book, tile_rows, outputs);
        EXL2__TRY(grid.x ? exl2__cuda_chain(m, kernel, grid, &one) : EXL2_OK);
    }
    return EXL2_OK;
}

/* Transforms the inputs of `e`, in an order of EXL2K_EXL3_*, for tiles of `tile_rows` rows. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_rotate(exl2__cuda_model *m, exl2k_exl3_args *e, uint32_t order,
                                                 uint32_t tile_rows)
{
    e->rotated = m->b.exl3_rotated;
    e->rotated_rows = (uint32_t)exl2__align_up(e->rows, tile_rows);
    if (order == EXL2K_EXL3_TILES && e->x == m->b.x && e->part[0].suh == m->pass.turned_x) {
        return EXL2_OK; /* settle has done it */
    }
    if (order == EXL2K_EXL3_TILES && e->x == m->b.h && e->part[0].suh == m->pass.turned_h) {
        e->rotated = exl2__cuda_turned_rows_h(m, e->rotated_rows); /* up has done it */
        return EXL2_OK;
    }
    m->pass.turned_x = 0;
    exl2k_exl3_rotate_args r = { .x = e->x, .rotated = e->rotated, .rows = e->rows, .rotated_rows = e->rotated_rows,
                                 .in = e->in, .blocks = e->blocks, .x_pitch = e->x_pitch, .order = order,
                                 .rows_at = e->rows_at, .before = e->before };
    for (uint32_t i = 0; i < e->parts; i++) {
        r.suh[i] = e->part[i].suh;
    }
    exl2__cuda_grid grid = { .x = (uint32_t)exl2__div_up(e->blocks, EXL2K_EXL3_WARPS), .y = e->rotated_rows * e->parts,
                             .threads = EXL2K_EXL3_THREADS };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_exl3_rotate, grid, &r);
}

/* One launch of exl2k_exl3_wide, for e.count parts from e.first on, before which their strips are decoded. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_wide_some(exl2__cuda_model *m, exl2k_exl3_args e)
{
    uint32_t end = e.first + e.count, strips = exl2__cuda_exl3_strips(e.part, e.first, e.count);
    e.decoded = m->b.exl3_decoded + (m->decoded_turn ? m->b.exl3_decoded_bytes : 0);
    m->decoded_turn = !m->decoded_turn;
    exl2k_exl3_args some = e;
    for (; some.first < end; some.first += some.count) {
        some.count = exl2__cuda_exl3_run(e.part, some.first, end);
        uint32_t own = exl2__cuda_exl3_strips(e.part, some.first, some.count);
        exl2__cuda_grid grid = { .x = own, .y = (uint32_t)exl2__div_up(2 * e.blocks, EXL2K_EXL3_STRIPS_STAGES),
                                 .threads = EXL2K_EXL3_THREADS,
                                 .shared_bytes = EXL2K_EXL3_STRIPS_SHARED(exl2__cuda_exl3_rate(&some)) };
        EXL2__TRY(exl2__cuda_chain(m, exl2__cuda_exl3_strips_kernel(e.part[some.first].book), grid, &some));
        some.decoded += exl2__cuda_exl3_decoded_bytes(own, e.blocks);
    }
    exl2__cuda_grid grid = { .x = e.rotated_rows / EXL2K_EXL3_TILE_MAX, .y = strips,
                             .threads = EXL2K_EXL3_WIDE_THREADS, .shared_bytes = EXL2K_EXL3_WIDE_SHARED };
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_exl3_wide, grid, &e);
}

/* Many rows, whose inputs are transformed: strips are decoded once for all of them. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_wide(exl2__cuda_model *m, exl2k_exl3_args e)
{
    bool pair = e.kind == EXL2K_EXL3_ACT && e.parts == 2, half = e.kind == EXL2K_EXL3_ACT || e.out_half;
    uint32_t tiles = e.rotated_rows / EXL2K_EXL3_TILE_MAX, all = exl2__cuda_exl3_strips(e.part, 0, e.parts);
    bool whole = !pair && exl2__cuda_exl3_decoded_bytes(all, e.blocks) <= m->b.exl3_decoded_bytes;
    for (e.first = 0; e.first < e.parts; e.first += e.count) {
        exl2k_exl3_args some = e;
        some.count = e.count = whole ? e.parts : 1;
        if (pair && e.first == 0) { /* gate: up's launch reads it */
            some.kind = EXL2K_EXL3_STORE;
            some.out_half = 1;
            some.next_suh = 0;
        }
        exl2k_exl3_part *p = &some.part[e.first];
        uint32_t strips = exl2__cuda_exl3_strips(e.part, e.first, e.count);
        uint32_t each = whole ? strips : exl2__cuda_exl3_wide_strips(strips, e.blocks, tiles, m->b.exl3_decoded_bytes,
                                                                     m->gpu->sm_count);
        for (uint32_t done = 0; done < strips; done += each) {
            if (!whole) {
                *p = exl2__cuda_exl3_part_range(&e.part[e.first], done, exl2__min32(done + each, strips));
                p->column = e.part[e.first].column;
                some.out = e.out + (uint64_t)done * EXL2K_EXL3_BLOCK * (half ? 2 : 4);
                some.next_suh = some.next_suh ? e.next_suh + (uint64_t)done * EXL2K_EXL3_BLOCK * 2 : 0;
                some.next_rotated = e.next_rotated + (uint64_t)done * 2 * EXL2K_EXL3_WG_INPUTS;
            }
            EXL2__TRY(exl2__cuda_exl3_wide_some(m, some));
        }
    }
    return EXL2_OK;
}

/* Many rows: has the results of ACT transformed for down, if nothing else reads them and all strips are plain ones
   (exl2k_exl3_wg_plain). */
EXL2__PRIVATE void exl2__cuda_exl3_turn_rows(exl2__cuda_model *m, exl2__operand of, exl2k_exl3_args *e)
{
    const exl2__matrix *down = of.layer->matrix[EXL2__ROLE_ROUTER] ? NULL : of.layer->matrix[EXL2__ROLE_DOWN];
    const exl2__cuda_exl3 *reader = down ? &exl2__cuda_matrix_of(down)->exl3 : NULL;
    bool plain = e->kind == EXL2K_EXL3_ACT && e->parts == 2 && e->act == EXL2K_ACT_SILU && e->out == m->b.h
              && e->part[0].columns % EXL2K_EXL3_BLOCK == 0 && e->part[0].column == 0 && e->part[1].column == 0;
    m->pass.turned_h = 0;
    if (!plain || !reader || reader->parts != 1 || reader->blocks * EXL2K_EXL3_BLOCK != e->part[0].columns
        || m->pass.adapted || exl2__columns_are_cut(&m->columns) || m->plan->host_mlps > 0) {
        return;
    }
    m->pass.turned_h = e->next_suh = reader->part[0].suh;
    e->next_rotated = exl2__cuda_turned_rows_h(m, e->rotated_rows);
    e->next_blocks = reader->blocks;
}

/* Many rows of a layer's matrix. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_many(exl2__cuda_model *m, exl2__operand of, exl2k_exl3_args e)
{
    uint32_t tile_rows = exl2__cuda_exl3_tile_rows(exl2__cuda_exl3_by_wg(m->gpu), e.rows);
    EXL2__TRY(exl2__cuda_exl3_rotate(m, &e, tile_rows >= 128 ? EXL2K_EXL3_TILES : EXL2K_EXL3_BY_ROWS, tile_rows));
    if (!exl2__cuda_exl3_by_wide(m->gpu, &e, m->b.exl3_decoded_bytes)) {
        return exl2__cuda_exl3_launch(m, e, tile_rows);
    }
    if (e.kind == EXL2K_EXL3_ACT) {
        exl2__cuda_exl3_turn_rows(m, of, &e);
    }
    return exl2__cuda_exl3_wide(m, e);
}

/* The launches of a product of exl3_crowd.cuh, of 2 to 64 rows: one for parts of one codebook. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_crowd(exl2__cuda_model *m, exl2k_exl3_args e)
{
    uint32_t tile_rows = exl2__cuda_exl3_crowd_rows(e.rows);
    EXL2__TRY(exl2__cuda_exl3_rotate(m, &e, EXL2K_EXL3_FRAGMENTS, tile_rows));
    for (e.first = 0; e.first < e.parts; e.first += e.count) {
        e.count = exl2__cuda_exl3_run(e.part, e.first, e.parts);
        uint32_t rate = exl2__cuda_exl3_rate(&e), strips = exl2__cuda_exl3_strips(e.part, e.first, e.count);
        exl2__cuda_grid grid = { .x = strips, .y = e.splits, .threads = EXL2K_EXL3_THREADS,
                                 .shared_bytes = EXL2K_EXL3_CROWD_SHARED(tile_rows, rate) };
        e.slab = EXL2K_EXL3_CROWD_WORDS(rate);
        EXL2__TRY(strips ? exl2__cuda_chain(m, exl2__cuda_exl3_crowd_kernel(e.part[e.first].book, e.rows), grid, &e)
                         : EXL2_OK);
    }
    return EXL2_OK;
}

/* A product of one row: its result is added to the residual, and normalised if `settle` would do nothing else. The CTAs
   that do it, 32 at most, wait for each other, so each has an SM. */
EXL2__PRIVATE void exl2__cuda_exl3_norm(exl2__cuda_model *m, exl2__operand of, const exl2k_gemv_args *a,
                                        exl2k_exl3_args *e)
{
    const exl2__shape *s = &m->plan->shape;
    bool out = of.role == EXL2__ROLE_OUT;
    if (!of.layer || (!out && of.role != EXL2__ROLE_DOWN) || of.layer->matrix[EXL2__ROLE_ROUTER]
        || e->parts != 1 || e->part[0].columns != s->hidden || s->hidden % EXL2K_EXL3_BLOCK != 0
        || s->hidden > 32 * EXL2K_EXL3_BLOCK || a->residual != m->b.residual || m->pass.adapted || m->pass.steered
        || s->layer_norm || s->post_norms || s->parallel || m->plan->host_mlps > 0 || m->gpu->sm_count < 32) {
        return;
    }
    exl2__cuda_next next = out ? exl2__cuda_next_mlp(of.layer) : exl2__cuda_next_attention(m, of.layer);
    uint64_t weight = exl2__cuda_values_or_none(next.norm->weight);
    const exl2__cuda_matrix *reader = next.readers[0] ? exl2__cuda_matrix_of(next.readers[0]) : NULL;
    if (!weight || exl2__cuda_values_or_none(next.norm->bias) || !reader || next.readers[1]
        || reader->exl3.parts == 0 || exl2__cuda_inputs(next.readers[0])) {
        return;
    }
    e->norm = (exl2k_exl3_norm){ .weight = weight, .x = m->b.x, .rotated = m->b.exl3_rotated,
                                 .sums = m->b.exl3_alone, .parts = reader->exl3.parts, .eps = s->norm_eps };
    for (uint32_t i = 0; i < reader->exl3.parts; i++) {
        e->norm.suh[i] = reader->exl3.part[i].suh;
    }
    m->pass.settled = true;
    m->pass.turned_x = e->norm.suh[0];
}

/* A product of one row: finds its transformed inputs if there are any, and has its results transformed for down. */
EXL2__PRIVATE void exl2__cuda_exl3_turn(exl2__cuda_model *m, exl2__operand of, const exl2k_gemv_args *a,
                                        exl2k_exl3_args *e)
{
    bool sparse = of.layer && of.layer->matrix[EXL2__ROLE_ROUTER]; /* h gets a factor there */
    const exl2__matrix *down = of.layer && !sparse ? of.layer->matrix[EXL2__ROLE_DOWN] : NULL;
    const exl2__cuda_exl3 *reader = down ? &exl2__cuda_matrix_of(down)->exl3 : NULL;
    bool of_x = a->x == m->b.x && e->part[0].suh == m->pass.turned_x;
    bool of_h = a->x == m->b.h && e->part[0].suh == m->pass.turned_h;
    e->turned = of_x || of_h;
    e->rotated = of_h ? exl2__cuda_turned_h(m) : m->b.exl3_rotated;
    if (e->kind == EXL2K_EXL3_RESIDUAL) {
        exl2__cuda_exl3_norm(m, of, a, e);
    }
    if (e->kind == EXL2K_EXL3_ACT) {
        bool next = reader && reader->parts == 1 && a->out == m->b.h;
        e->next_suh = m->pass.turned_h = next ? reader->part[0].suh : 0;
        e->next_rotated = exl2__cuda_turned_h(m);
    }
}

/* Multiplies `rows` rows, as exl2__cuda_multiply. Norms are not folded, so the inputs are normalised, and RESIDUAL only
   adds. The head is a product of few rows, but in passes of many sampled rows. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_product(exl2__cuda_model *m, exl2__operand of, exl2__cuda_kind kind,
                                                  const exl2k_gemv_args *a, uint32_t rows)
{
    const exl2__cuda_matrix *w = exl2__cuda_matrix_of(of.matrix);
    exl2k_exl3_args e = { .x = a->x, .x_pitch = a->x_pitch, .out = a->out, .out_pitch = a->out_pitch,
                          .partial = m->b.exl3_partial, .tickets = m->b.exl3_tickets, .parts = w->exl3.parts,
                          .in = w->in, .blocks = w->exl3.blocks, .splits = of.layer ? w->exl3.splits : 1,
                          .kind = kind == EXL2__CUDA_ACT ? EXL2K_EXL3_ACT : kind == EXL2__CUDA_RESIDUAL
                                ? EXL2K_EXL3_RESIDUAL : EXL2K_EXL3_STORE,
                          .out_half = a->out_half, .scale = a->scale, .cap = a->cap, .act = exl2__cuda_act(m),
                          .act_limit = m->plan->shape.act_limit };
    memcpy(e.part, w->exl3.part, sizeof e.part);
    if (kind == EXL2__CUDA_RESIDUAL) {
        e.out = a->residual;
        e.out_pitch = a->residual_pitch;
    } else if (kind == EXL2__CUDA_ACT) { /* other columns have their places from exl2k_exl3_part.column */
        e.out += w->cut[0].first * sizeof(uint16_t);
    }
    uint64_t out = e.out;
    if (rows == 1 && exl2__cuda_exl3_turns(m)) {
        exl2__cuda_exl3_turn(m, of, a, &e);
    }
    if (exl2__cuda_exl3_strips(e.part, 0, e.parts) == 0) {
        return EXL2_OK; /* the device has no columns of it */
    }
    bool half = kind == EXL2__CUDA_ACT || a->out_half;
    bool crowd = m->pass.by_gemm && !m->pass.prompts && exl2__cuda_exl3_by_wg(m->gpu);
    if (of.layer && m->pass.by_gemm && !crowd) {
        e.rows = rows;
        return exl2__cuda_exl3_many(m, of, e);
    }
    if (crowd && of.layer) {
        e.splits = w->exl3.crowd_splits;
    }
    e.rows_at = exl2__cuda_rows_at(m); /* 0 for many rows */
    for (uint32_t done = 0; done < rows; done += e.rows) {
        e.rows = exl2__min32(rows - done, crowd ? EXL2K_EXL3_CROWD_ROWS : EXL2K_EXL3_ROWS);
        e.before = done;
        e.x = a->x + (uint64_t)done * e.x_pitch * 2;
        e.out = out + (uint64_t)done * e.out_pitch * (half ? 2 : 4);
        bool by_crowd = crowd || (exl2__cuda_exl3_by_wg(m->gpu) && exl2__cuda_exl3_by_crowd(&e));
        EXL2__TRY(by_crowd ? exl2__cuda_exl3_crowd(m, e) : exl2__cuda_exl3_launch(m, e, 0));
    }
    return EXL2_OK;
}

/* Brings inputs in natural order into that of a matrix beside EXL3, where transformed inputs lie else. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_permute(exl2__cuda_model *m, const exl2__cuda_matrix *w, exl2k_gemv_args *a,
                                                  uint32_t rows)
{
    exl2k_gather_args gather = { .from = a->x, .to = m->b.exl3_rotated, .map = w->order.inputs[0],
                                 .rows_at = exl2__cuda_rows_at(m), .count = w->in, .pitch = a->x_pitch };
    exl2__cuda_grid grid = { .x = rows, .y = 1, .threads = EXL2K_GATHER_THREADS };
    if (!w->natural || !gather.map) {
        return EXL2_OK;
    }
    a->x = gather.to;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_gather, grid, &gather);
}

/* Decodes the rows of a trellis embedding into the residual, where the kernel that `a` is for finds them. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_embed(exl2__cuda_model *m, exl2k_embed_args *a)
{
    const exl2__cuda_exl3 *e = &exl2__cuda_matrix_of(m->plan->embed)->exl3;
    exl2k_exl3_embed_args rows = { .pass = a->pass, .rows = a->rows, .table = a->table, .signs = e->signs,
                                   .residual = a->residual, .table_rows = a->table_rows, .hidden = a->hidden,
                                   .bits = e->bits, .residual_pitch = a->residual_pitch, .scale = a->scale };
    exl2__cuda_grid grid = { .x = m->pass.row_count, .y = (uint32_t)exl2__div_up(a->hidden, 256), .threads = 32 };
    a->kind = EXL2K_TABLE_GIVEN;
    return exl2__cuda_chain(m, EXL2__KERNEL_exl2k_exl3_embed, grid, &rows);
}

#endif
#endif
