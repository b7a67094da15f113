/* cuda_make_exl3.h: makes EXL3 matrices and embeddings on the device before their rows arrive, which stay as in the
   file.
   takes: checked matrix descriptions; the context must be current.
   gives: exl2__cuda_make_exl3, exl2__cuda_feed_exl3, exl2__cuda_move_exl3. */
#ifndef EXL2__CUDA_MAKE_EXL3_H
#define EXL2__CUDA_MAKE_EXL3_H

#include "cuda_make.h"

#if EXL2__EXL3

/* Uploads what is not fed in rows. */
static inline exl2_result exl2__cuda_exl3_table(exl2__cuda_model *m, const void *data, uint64_t bytes, exl2k_u64 *out)
{
    *out = exl2__cuda_arena_take(&m->weights, bytes);
    return exl2__cuda_upload(m, *out, data, bytes);
}

/* cut: the columns that the device has. */
EXL2__PRIVATE exl2_result exl2__cuda_exl3_part(exl2__cuda_model *m, const exl2__matrix_desc *d, exl2__cuda_cut cut,
                                               uint32_t column, exl2k_exl3_part *out)
{
    static const uint8_t books[] = { [EXL2__EXL3_3INST] = EXL2K_EXL3_3INST, [EXL2__EXL3_MCG] = EXL2K_EXL3_MCG,
                                     [EXL2__EXL3_MUL1] = EXL2K_EXL3_MUL1 };
    uint32_t stored = exl2__cuda_exl3_stored(cut.columns);
    *out = (exl2k_exl3_part){ .out = stored, .row_tiles = stored / EXL2K_EXL3_TILE, .columns = cut.columns,
                              .column = column, .rate = d->exl3.words / 8, .book = books[d->exl3.codebook] };
    out->trellis = exl2__cuda_arena_take(&m->weights, (uint64_t)d->words * out->row_tiles * d->exl3.words * 2);
    EXL2__TRY(exl2__cuda_exl3_table(m, d->in_scales, d->exl3.in_stored * sizeof(uint16_t), &out->suh));
    EXL2__TRY(exl2__cuda_exl3_table(m, d->out_scales + cut.first, stored * sizeof(uint16_t), &out->svh));
    return d->has_bias ? exl2__cuda_exl3_table(m, d->bias + cut.first, cut.columns * sizeof(float), &out->bias)
                       : EXL2_OK;
}

/* An embedding (its rows have room already), or a matrix of `count` parts. */
EXL2__PRIVATE exl2_result exl2__cuda_make_exl3(exl2__cuda_model *m, const exl2__matrix_desc *parts, uint32_t count,
                                               exl2__cuda_matrix *out)
{
    exl2__cuda_exl3 *e = &out->exl3;
    if (parts->kind == EXL2__MATRIX_EXL3_TABLE) {
        e->bits = parts->exl3.words / 16;
        return exl2__cuda_exl3_table(m, parts->in_scales, parts->exl3.in_stored * sizeof(uint16_t), &e->signs);
    }
    if (exl2__cuda_is_down(parts)) {
        m->down.count = 0; /* h is in natural order */
    }
    EXL2__ASSERT(!(parts->uses & EXL2__USE_UP) || m->down.count == 0); /* exl2__weights_must_dequantize */
    uint32_t column = count == 1 ? out->cut[0].first : 0, strips = 0; /* strips: of the whole matrix */
    for (uint32_t i = 0; i < count; i++) {
        EXL2__TRY(exl2__cuda_exl3_part(m, &parts[i], out->cut[i], column, &e->part[i]));
        column += count == 2 ? 0 : out->cut[i].columns; /* gate and up become one */
        strips += parts[i].out_stored / EXL2K_EXL3_BLOCK;
    }
    e->parts = count;
    e->blocks = parts->exl3.in_stored / EXL2K_EXL3_BLOCK;
    e->splits = exl2__cuda_exl3_splits(strips, e->blocks, m->gpu->sm_count);
    e->crowd_splits = exl2__cuda_exl3_crowd_splits(strips, e->blocks, m->gpu->sm_count);
    return EXL2_OK;
}

/* Rows of a part, which stay as they are. Where the device has some of the columns, those of each row follow one
   another: they are moved to the beginning of the staging memory first. */
EXL2__PRIVATE exl2_result exl2__cuda_feed_exl3(exl2__cuda_model *m, const exl2__cuda_matrix *matrix, uint32_t index,
                                               const exl2__rows_slice *slice)
{
    const exl2__cuda_cut *cut = &matrix->cut[index];
    const exl2k_exl3_part *part = &matrix->exl3.part[index];
    uint64_t row_bytes = matrix->feed[index].row_bytes, tile = 16ull * part->rate, own = part->row_tiles * tile;
    uint8_t *rows = m->ring.memory + m->ring.next * m->ring.slot_bytes + m->ring.used;
    for (uint32_t i = 0; i < slice->rows && own < row_bytes; i++) {
        memmove(rows + i * own, rows + i * row_bytes + cut->first / EXL2K_EXL3_TILE * tile, (size_t)own);
    }
    return own == 0 ? EXL2_OK : exl2__cuda_ring_copy(m->gpu, &m->ring, part->trellis + slice->row * own, 0,
                                                     slice->rows * own);
}

/* The weights have another address. */
EXL2__PRIVATE void exl2__cuda_move_exl3(exl2__cuda_exl3 *e, uint64_t by)
{
    for (uint32_t i = 0; i < e->parts; i++) {
        e->part[i].trellis += by;
        e->part[i].suh += by;
        e->part[i].svh += by;
        e->part[i].bias += e->part[i].bias ? by : 0;
    }
    e->signs += e->signs ? by : 0;
}

#endif
#endif
