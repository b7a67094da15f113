/* cuda_gemm.h: how a product of 9 and more rows is launched: kernel, splits of K, shared memory.
   takes: a matrix as the kernels see it; number of rows, SMs and bytes of shared memory.
   gives: exl2__cuda_gemm_plan, exl2__cuda_gemm_plan_make.
   owns:  nothing.
   next:  ../../kernels_src/gemm_args.h

   The bits of a row depend on the plan, and the plan on matrix, device and class of rows alone. Classes: up to 32 rows,
   64, 128, 256, 512, and more. */
#ifndef EXL2__CUDA_GEMM_H
#define EXL2__CUDA_GEMM_H

#include "../../kernels_src/gemm_args.h"
#include "../0_base/bytes.h"

#define EXL2__CUDA_GEMM_SPLITS_MAX 16u
#define EXL2__CUDA_GEMM_TILE_BYTES 1024u /* of inputs, for each 8 rows */

typedef struct exl2__cuda_gemm_plan {
    uint32_t tile;           /* rows of a CTA: 32, 64, 128; 0: no room */
    uint32_t x, y, z;        /* grid */
    uint32_t shared_bytes;
    uint64_t partial_bytes;  /* exl2k_gemm_args.partial; tickets: x * y * 8 u32 */
} exl2__cuda_gemm_plan;

/* Rows of the class of `rows`: plans are made for as many; 0: of any more. */
static inline uint32_t exl2__cuda_gemm_class(uint32_t rows)
{
    uint32_t most = 32;
    while (most < rows && most < 1024) {
        most *= 2;
    }
    return most > 512 ? 0 : most;
}

static inline uint32_t exl2__cuda_gemm_columns(const exl2k_matrix *m, bool act)
{
    uint32_t tiles = 0, strips = act ? EXL2K_GEMM_STRIPS / 2 : EXL2K_GEMM_STRIPS;
    for (uint32_t i = 0; i < (act ? 1 : m->parts); i++) {
        tiles += (uint32_t)exl2__div_up(m->part[i].strips, strips);
    }
    return tiles;
}

/* Slots of a strip so that weights can be read `ahead` halves before their use: every width may end with half a
   record, a split may begin with one; of dense matrices every half is a record. */
static inline uint32_t exl2__cuda_gemm_slots(const exl2k_matrix *m, uint32_t ahead)
{
    uint32_t widths = 0;
    for (uint32_t i = 0; i < EXL2K_WIDTHS; i++) {
        widths += m->widths >> i & 1;
    }
    uint32_t slots = m->widths >> EXL2K_W16 & 1 ? ahead : (ahead + widths + 1) / 2 + 1;
    return exl2__max32(2, exl2__min32(slots, ahead));
}

static inline uint32_t exl2__cuda_gemm_slot_bytes(const exl2k_matrix *m)
{
    uint32_t bits = 2;
    for (uint32_t i = 0; i < EXL2K_WIDTHS; i++) {
        uint32_t width = i >= EXL2K_W8 ? 8 : i + 2;
        bits = m->widths >> i & 1 ? exl2__max32(bits, width) : bits;
    }
    return bits * 128 + EXL2K_GEMM_SCALES;
}

/* Fills in stages, slots, ahead: as deep as the budget allows. Bytes of shared memory; 0: too few. */
static uint32_t exl2__cuda_gemm_shared(exl2k_gemm_args *a, uint32_t tile, bool act, uint32_t budget)
{
    static const uint8_t depths[][2] = { { 8, 11 }, { 6, 7 }, { 4, 5 }, { 3, 5 }, { 3, 3 }, { 2, 3 }, { 2, 2 } };
    uint32_t least = EXL2K_GEMM_RESULT(exl2__min32(tile, 64));
    for (uint32_t i = tile == 128 ? 2 : tile == 64 ? 1 : 0; i < sizeof depths / sizeof depths[0]; i++) {
        a->stages = depths[i][0];
        a->ahead = depths[i][1];
        a->slots = exl2__cuda_gemm_slots(&a->matrix, a->ahead);
        a->slot_bytes = exl2__cuda_gemm_slot_bytes(&a->matrix);
        uint32_t bytes = a->halves * (act ? 16 : 8) + a->slots * a->slot_bytes * EXL2K_GEMM_STRIPS;
        bytes += a->stages * tile / 8 * EXL2__CUDA_GEMM_TILE_BYTES;
        bytes = EXL2K_GEMM_BARRIERS + exl2__max32(bytes, least);
        if (bytes <= budget) {
            return bytes;
        }
    }
    return 0;
}

/* Splits of K so that the class fills the device; more while `tile` rows do not fit otherwise. */
static bool exl2__cuda_gemm_try(exl2k_gemm_args *a, exl2__cuda_gemm_plan *plan, uint32_t tile, uint32_t splits,
                                uint32_t budget)
{
    uint32_t halves = (uint32_t)exl2__div_up(a->matrix.rows, 32);
    a->halves = (uint32_t)exl2__align_up(exl2__div_up(halves, splits), 2);
    plan->tile = tile;
    plan->x = (uint32_t)exl2__div_up(a->rows, tile);
    plan->z = (uint32_t)exl2__div_up(halves, a->halves);
    plan->shared_bytes = exl2__cuda_gemm_shared(a, tile, a->kind == EXL2K_GEMM_ACT, budget);
    plan->partial_bytes = plan->z == 1 ? 0 : (uint64_t)plan->x * plan->y * plan->z * tile * 1024;
    return plan->shared_bytes != 0;
}

/* The launch of a->rows rows of a->matrix; `a` has kind, too, and gets the rest but addresses and pitches. */
static exl2__cuda_gemm_plan exl2__cuda_gemm_plan_make(exl2k_gemm_args *a, uint32_t sms, uint32_t budget)
{
    exl2__cuda_gemm_plan plan = { .y = exl2__cuda_gemm_columns(&a->matrix, a->kind == EXL2K_GEMM_ACT) };
    uint32_t most = exl2__cuda_gemm_class(a->rows), splits = 1;
    for (uint32_t tile = most == 0 ? 128 : exl2__min32(most, 128); tile >= 32; tile /= 2) {
        uint32_t ctas = plan.y * (uint32_t)exl2__div_up(most, tile);
        splits = most == 0 ? 1 : exl2__max32(1, exl2__min32(sms / ctas, EXL2__CUDA_GEMM_SPLITS_MAX));
        if (exl2__cuda_gemm_try(a, &plan, tile, splits, budget)) {
            return plan;
        }
    }
    while (splits < 64) { /* a split has a smaller table */
        splits *= 2;
        if (exl2__cuda_gemm_try(a, &plan, 32, splits, budget)) {
            return plan;
        }
    }
    return (exl2__cuda_gemm_plan){ 0 };
}

#endif
