/* repack.c: codes, scales and dense weights packed on the GPU, read back with a second implementation of the layout.
   takes: nothing; a GPU.
   gives: exit code 0, 1, or 77 without a GPU. */
#include "product_rig.h"

static uint32_t width_bits(const exl2k_chunk *chunk)
{
    static const uint32_t bits[EXL2K_WIDTHS] = { 2, 3, 4, 5, 6, 8, 16 };
    return bits[chunk->width];
}

/* Checks every row of strip `s`, with padding. order: the column that each place has. Returns the number of wrong codes
   and scales. */
static uint32_t check_strip(const product_part *p, const uint32_t *strip, uint32_t s, const uint16_t *order)
{
    uint32_t wrong = 0, rows = 0;
    for (uint32_t c = 0; c < p->layout.count; c++) {
        const exl2k_chunk *chunk = &p->chunks[c];
        uint32_t bits = width_bits(chunk), index = 0;
        const uint32_t *words = strip + chunk->offset16 * 4, *scales = words + chunk->records * bits * 32;
        for (uint32_t row = 0; row < chunk->records * 64u; row++) {
            uint32_t packed = chunk->row * 32u + row;
            bool there = row < chunk->halves * 32u && packed < p->desc.in;
            uint32_t g = there && p->desc.kind != EXL2__MATRIX_DENSE ? product_group_of(p, packed) : 0;
            index = chunk->by_half ? row / 32 : index;
            for (uint32_t n = 0; n < 16; n++) {
                uint32_t got = product_record_code(words + row / 64 * bits * 32, bits, row % 64, n), wanted;
                uint32_t column = order[s * 16 + n];
                if (p->desc.kind == EXL2__MATRIX_DENSE) {
                    wanted = there && column < p->desc.out ? p->dense[(size_t)column * p->desc.in + packed] : 0;
                } else {
                    wanted = there ? product_code(p, g, packed, column) : 1u << (bits - 1);
                }
                wrong += got != wanted;
                if (p->desc.kind == EXL2__MATRIX_AFFINE) {
                    uint32_t word = scales[index * 16u + n % 8 * 2 + n / 8];
                    size_t at = (size_t)g * p->desc.out_stored + column;
                    float zero = there ? (float)p->zeros[at] - (float)(1u << (bits - 1)) : 0;
                    wrong += (word & 0xFFFF) != (there ? p->scales[at] : 0u);
                    wrong += exl2__f16_to_f32((uint16_t)(word >> 16)) != zero;
                } else if (there && p->desc.kind != EXL2__MATRIX_DENSE) {
                    uint32_t word = scales[n % 8 / 4 * chunk->groups + index];
                    uint32_t level = word >> (n % 4 * 4 + n / 8 * 16) & 15u;
                    uint32_t maximum = chunk->maxima[row / 64] >> row / 32 % 2 * 16 & 0xFFFFu;
                    wrong += level != product_level(p, g, column) || maximum != p->scale_max[g];
                }
            }
            index += !chunk->by_half && row % 64 == 63 && (chunk->ends >> row / 64 & 1);
            rows += there;
        }
    }
    return wrong + (rows != p->desc.in);
}

/* ordered: columns are stored in a random order. */
static void check_order(const rig_module *shuffle, const product_run *runs, uint32_t run_count, uint32_t out,
                        uint32_t slices, uint32_t chunk_bytes, bool ordered)
{
    product_matrix m = { 0 };
    product_part_make(&m.part[0], runs, run_count, out, false);
    product_lay(&m, 1, slices, chunk_bytes);
    uint16_t *map = product_take(out, 2);
    for (uint32_t i = 0; i < out; i++) {
        uint32_t k = ordered ? product_random() % (i + 1) : i;
        map[i] = map[k];
        map[k] = (uint16_t)i;
    }
    uint16_t *order = product_order_of(map, out);
    product_pack(&m, shuffle, 1 + product_random() % 9, ordered ? order : NULL);
    uint32_t *host = product_take(m.bytes / 4, 4), wrong = 0;
    rig_download(m.strips, 0, host, m.bytes);
    for (uint32_t s = 0; s < m.device.strips; s++) {
        wrong += check_strip(&m.part[0], host + (size_t)s * m.part[0].layout.bytes / 4, s, order);
    }
    if (!CHECK_INT(wrong, 0)) {
        printf("    %u runs from %u bits, %u rows, %u outputs, %u slices%s\n", run_count, runs[0].bits, m.in, out,
               slices, ordered ? ", in a random order" : "");
    }
    free(host);
    free(map);
    free(order);
    product_free(&m);
}

static void check_matrix(const rig_module *shuffle, const product_run *runs, uint32_t run_count, uint32_t out,
                         uint32_t slices, uint32_t chunk_bytes)
{
    check_order(shuffle, runs, run_count, out, slices, chunk_bytes, false);
    if (runs[0].bits != 16) {
        check_order(shuffle, runs, run_count, out, slices, chunk_bytes, true);
    }
}

static const struct { uint32_t count; product_run runs[6]; } mixes[] = {
    { 1, { { 2, 32, 32 } } },
    { 1, { { 8, 96, 32 } } },
    { 1, { { 2, 224, 64 } } },
    { 1, { { 3, 352, 128 } } },
    { 1, { { 4, 2880, 128 } } },
    { 1, { { 5, 320, 64 } } },
    { 1, { { 6, 416, 32 } } },
    { 3, { { 8, 736, 32 }, { 4, 1536, 128 }, { 3, 12064, 128 } } },  /* 23 groups of 32 before groups of 128 */
    { 2, { { 4, 416, 32 }, { 3, 3680, 32 } } },
    { 2, { { 3, 448, 64 }, { 2, 3648, 64 } } },
    { 2, { { 5, 224, 32 }, { 3, 4000, 32 } } },
    { 3, { { 8, 224, 32 }, { 6, 512, 128 }, { 5, 3360, 128 } } },
    { 6, { { 8, 32, 32 }, { 6, 96, 32 }, { 5, 160, 64 }, { 4, 288, 128 }, { 3, 96, 96 }, { 2, 352, 160 } } },
    { 1, { { PRODUCT_AFFINE + 4, 1024, 128 } } },
    { 1, { { PRODUCT_AFFINE + 2, 672, 32 } } },
    { 1, { { PRODUCT_AFFINE + 3, 992, 96 } } },
    { 1, { { PRODUCT_AFFINE + 8, 352, 352 } } },
    { 1, { { 16, 64, 0 } } },
    { 1, { { 16, 72, 0 } } },
    { 1, { { 16, 1000, 0 } } },
};

int main(int argc, char **argv)
{
    rig_open(argc > 1 ? argv[1] : "kernels_src");
    rig_module shuffle = rig_load("shuffle.cu", NULL);
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++) {
        check_matrix(&shuffle, mixes[i].runs, mixes[i].count, 64, 16, EXL2__CUDA_CHUNK_BYTES);
        check_matrix(&shuffle, mixes[i].runs, mixes[i].count, 96, 1 + product_random() % 16, 1088);
    }
    static const uint32_t widths[] = { 2, 3, 4, 5, 6, 8, 16 }, sizes[] = { 32, 64, 128 };
    for (uint32_t i = 0; i < 21; i++) { /* every width with every group size; rows are odd multiples of 32 */
        product_run run = { widths[i % 7], (product_random() % 20 * 2 + 1) * 32, sizes[i / 7] };
        check_matrix(&shuffle, &run, 1, 32 + 30 * (i % 3), 0, EXL2__CUDA_CHUNK_BYTES);
    }
    rig_unload(&shuffle);
    rig_close();
    return check_done();
}
