/* cpu_exl3.h: matrices of EXL3 on the CPU: how they are packed, inputs that are transformed once, and the product in
   plain loops, which defines the order of sums.
   takes: parts of the sources EXL3 and EXL3_TABLE; rows of activations.
   gives: exl2__cpu_exl3_gather, exl2__cpu_exl3_finish, exl2__cpu_exl3_product, exl2__cpu_exl3_embed.

   LAYOUT  The tiles of 16 inputs by 16 outputs as the file has them, but those of the same 16 outputs, a column of
           tiles, lie together: [out_stored / 16][in_stored / 16][words] of 16 bits. A strip is two columns of tiles.
   INPUT   A transformed input is H (x * in_scales), with H of 128 neighbours; a tile of n rows of it is
           [in_stored / 16][n][16], and the 16 of a row of tiles stand in the order (q, l): input 2 l + q % 2 +
           8 (q / 2), q and l from 0 to 3. So position 8 L + q + 4 c of a tile is multiplied by element 4 q + L % 4
           (exl3_decode.h).
   SUMS    They are the same for one row and any batch. A column of tiles has 64 chains of fused multiply-adds, for each
           L of 0..31 and c of 0..1, over the rows of tiles, and in one over q, ascending. An output L / 4 + 8 c of the
           column is (chain 0 + chain 1) + (chain 2 + chain 3) by L % 4. Then H of 128 outputs by butterflies, from
           neighbours on, a product with 1 / sqrt(128), one with out_scales, and the bias is added.

   The transform needs 128 outputs, so such products are computed in items of four strips. */
#ifndef EXL2__CPU_EXL3_H
#define EXL2__CPU_EXL3_H

#include "cpu_phases.h"

#if EXL2__EXL3

EXL2__ROUND_TWICE_BEGIN

/* x [128] = H x / sqrt(128). */
EXL2__PRIVATE void exl2__cpu_exl3_transform(exl2__real *x)
{
    exl2__cpu_phases_hadamard(x, EXL2__EXL3_BLOCK);
    for (uint32_t i = 0; i < EXL2__EXL3_BLOCK; i++) {
        x[i] = exl2__cpu_phases_mul(x[i], (exl2__real)EXL2__EXL3_SCALE);
    }
}

/* Place of input k, 0 to 15, of a tile in the order of INPUT. */
static inline uint32_t exl2__cpu_exl3_place(uint32_t k)
{
    return 4 * (k % 2 + 2 * (k / 8)) + k / 2 % 4;
}

/* Makes one tile of an input from rows x [n, stride]: out [in_stored / 16][n][16]. */
EXL2__PRIVATE void exl2__cpu_exl3_gather(const exl2__cpu_part *p, const exl2__real *x, size_t stride, uint32_t n,
                                         exl2__real *out)
{
    for (uint32_t i = 0; i < p->in; i += EXL2__EXL3_BLOCK) {
        for (uint32_t r = 0; r < n; r++) {
            exl2__real block[EXL2__EXL3_BLOCK];
            const exl2__real *from = x + r * stride + i;
            for (uint32_t k = 0; k < EXL2__EXL3_BLOCK; k++) {
                exl2__real scale = (exl2__real)exl2__f16_to_f32(p->exl3.in_scales[i + k]);
                block[k] = i + k < p->exl3.width ? exl2__cpu_phases_mul(from[k], scale) : 0;
            }
            exl2__cpu_exl3_transform(block);
            for (uint32_t k = 0; k < EXL2__EXL3_BLOCK; k++) {
                out[((size_t)(i + k) / 16 * n + r) * 16 + exl2__cpu_exl3_place(k % 16)] = block[k];
            }
        }
    }
}

/* Ends a product: z [128], changed, are the sums of the outputs of a row from strip `strip` on; `count` of them are
   written to out, the address of column 0, as exl2__cpu_ops.product says. */
EXL2__PRIVATE void exl2__cpu_exl3_finish(const exl2__cpu_part *p, uint32_t strip, uint32_t count, exl2__real *z,
                                         exl2__real *out, exl2__real add)
{
    uint32_t first = strip * EXL2__CPU_STRIP;
    exl2__cpu_exl3_transform(z);
    for (uint32_t i = 0; i < count; i++) {
        exl2__real y = exl2__cpu_phases_mul(z[i], (exl2__real)exl2__f16_to_f32(p->exl3.out_scales[first + i]));
        y += p->bias ? (exl2__real)p->bias[first + i] : 0;
        out[first + i] = add != 0 ? out[first + i] + exl2__cpu_phases_mul(add, y) : y;
    }
}

/* Sums of a row x, whose tiles of 16 inputs lie `pitch` apart, for a column of tiles: z [16]. */
EXL2__PRIVATE void exl2__cpu_exl3_column(const exl2__cpu_part *p, uint32_t column, const exl2__real *x, size_t pitch,
                                         exl2__real *z)
{
    uint32_t words = p->exl3.words, tiles = p->in / 16;
    const uint16_t *tile = (const uint16_t *)(const void *)p->data + (size_t)column * tiles * words;
    exl2__real chain[64] = { 0 };
    for (uint32_t i = 0; i < tiles; i++, tile += words, x += pitch) {
        for (uint32_t t = 0; t < 256; t++) {
            uint16_t half = exl2__exl3_value(p->exl3.codebook, exl2__exl3_state(tile, words, t));
            exl2__real *to = &chain[t / 8 + 32 * (t / 4 % 2)];
            *to += x[4 * (t % 4) + t / 8 % 4] * (exl2__real)exl2__f16_to_f32(half);
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        const exl2__real *of = chain + 4 * i;
        z[i] = (of[0] + of[1]) + (of[2] + of[3]);
    }
}

/* As exl2__cpu_ops.product; `begin` is a multiple of 4 strips, and `end`, too, unless it is the last one. */
EXL2__PRIVATE void exl2__cpu_exl3_product(const exl2__cpu_part *p, const exl2__cpu_input *input, uint32_t begin,
                                          uint32_t end, exl2__real *out, size_t stride, exl2__real add)
{
    for (uint32_t t = 0; t < exl2__cpu_tiles(input->rows, input->tile_rows); t++) {
        uint32_t row0 = exl2__cpu_tile_start(input->rows, input->tile_rows, t);
        uint32_t n = exl2__cpu_tile_start(input->rows, input->tile_rows, t + 1) - row0;
        for (uint32_t r = 0; r < n; r++) {
            const exl2__real *x = input->x + (size_t)row0 * p->in + r * 16;
            for (uint32_t strip = begin; strip < end; strip += EXL2__CPU_EXL3_STRIPS) {
                exl2__real z[EXL2__EXL3_BLOCK];
                for (uint32_t i = 0; i < EXL2__EXL3_BLOCK / 16; i++) {
                    exl2__cpu_exl3_column(p, 2 * strip + i, x, (size_t)n * 16, z + i * 16);
                }
                uint32_t count = exl2__min32(end - strip, EXL2__CPU_EXL3_STRIPS) * EXL2__CPU_STRIP;
                exl2__cpu_exl3_finish(p, strip, count, z, out + (row0 + r) * stride, add);
            }
        }
    }
}

/* out [hidden]: a row of an embedding. */
EXL2__PRIVATE void exl2__cpu_exl3_embed(const exl2__cpu_part *p, uint32_t row, uint32_t hidden, exl2__real *out)
{
    uint32_t words = p->exl3.words, groups = exl2__exl3_groups(hidden);
    const uint16_t *ring = (const uint16_t *)(const void *)p->data + (size_t)row * groups * words;
    for (uint32_t i = 0; i < hidden; i += EXL2__EXL3_TABLE_BLOCK, ring += words) {
        float group[EXL2__EXL3_TABLE_BLOCK];
        exl2__exl3_table_group(ring, words / 16, p->exl3.in_scales + i, group);
        for (uint32_t k = 0; k < exl2__min32(hidden - i, EXL2__EXL3_TABLE_BLOCK); k++) {
            out[i + k] = (exl2__real)group[k];
        }
    }
}

EXL2__ROUND_TWICE_END

#endif
#endif
