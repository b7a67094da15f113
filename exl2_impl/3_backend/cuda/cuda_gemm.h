/* cuda_gemm.h: how a product of many rows (GEMM) is launched: kernel, splits of K, shared memory.
   takes: a matrix as the kernels see it; number of rows, SMs and bytes of shared memory.
   gives: exl2__cuda_gemm_plan, exl2__cuda_gemm_plan_make.

   The bits of a row depend on the plan, and the plan depends only on the matrix, the device and the class of the number
   of rows. Classes: up to 32 rows, 64, 128, 256, 512, and more. */
#ifndef EXL2__CUDA_GEMM_H
#define EXL2__CUDA_GEMM_H

#include "../../../kernels_src/gemm_args.h"
#include "../../0_base/bytes.h"

#define EXL2__CUDA_GEMM_SPLITS_MAX 16u
#define EXL2__CUDA_GEMM_TILE_BYTES 512u /* bytes of inputs in a stage, for each 8 rows */

typedef struct exl2__cuda_gemm_plan {
    uint32_t rows;           /* rows of a tile: 16 to 256; 0: shared memory is too small */
    uint32_t ctas;
    bool roles;              /* by wgmma: some warps decode (gemm_wg_roles.cuh) */
    uint32_t cluster;        /* by wgmma: CTAs of a cluster, which have the splits of a tile; 0: there are none */
    uint32_t shared_bytes;
    uint32_t tickets;        /* u32 counters at exl2k_gemm_args.tickets; zero before the first launch */
    uint64_t partial_bytes;  /* bytes at exl2k_gemm_args.partial */
} exl2__cuda_gemm_plan;

/* Upper bound of partial_bytes of any plan. Launches with splits or with a second sum (ACT of two parts) have at most
   one CTA for each SM. With both, each CTA has two blocks, and each tile, of which there are half as many, has one
   more. */
static inline uint64_t exl2__cuda_gemm_partial_max(uint32_t sms)
{
    return exl2__div_up((uint64_t)sms * 5, 2) * 128 * 1024;
}
static inline uint64_t exl2__cuda_gemm_tickets_max(uint32_t sms)
{
    return (uint64_t)sms * EXL2K_GEMM_WARPS * 4 * sizeof(uint32_t); /* by wgmma: up to four tiles of rows */
}

/* Most rows of the class that `rows` belongs to, for which the plan is made; 0: the class has no limit. */
static inline uint32_t exl2__cuda_gemm_class(uint32_t rows)
{
    uint32_t most = 32;
    while (most < rows && most < 1024) {
        most *= 2;
    }
    return most > 512 ? 0 : most;
}

static inline uint32_t exl2__cuda_gemm_columns(const exl2k_gemm_args *a)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (a->kind == EXL2K_GEMM_ACT ? 1 : a->matrix.parts); i++) {
        tiles += (uint32_t)exl2__div_up(a->matrix.part[i].strips, EXL2K_GEMM_STRIPS);
    }
    return tiles;
}

/* Fills in stages, slots and their sizes, as many as the budget allows. Returns bytes of shared memory, 0 if the budget
   is too small. */
EXL2__PRIVATE uint32_t exl2__cuda_gemm_shared(exl2k_gemm_args *a, uint32_t rows, uint32_t chunk_bytes, uint32_t budget)
{
    static const uint8_t depths[][2] = { { 4, 2 }, { 3, 2 }, { 3, 1 }, { 2, 1 }, { 2, 0 } }; /* stages_log, slots_log */
    a->slot_bytes = EXL2K_GEMM_ENTRY + 2 * chunk_bytes;
    for (uint32_t i = rows == 128 ? 1 : 0; i < sizeof depths / sizeof depths[0]; i++) {
        a->stages_log = depths[i][0];
        a->slots_log = depths[i][1];
        a->stage_mask = (1u << a->stages_log) - 1;
        a->slot_mask = (1u << a->slots_log) - 1;
        a->ring_bytes = exl2__max32(a->slot_bytes << a->slots_log, EXL2K_GEMM_RESULT);
        uint32_t bytes = EXL2K_GEMM_BARRIERS + (rows / 8 * EXL2__CUDA_GEMM_TILE_BYTES << a->stages_log)
                         + EXL2K_GEMM_WARPS * a->ring_bytes;
        if (bytes <= budget) {
            return bytes;
        }
    }
    return 0;
}

/* Plans the launch for a->rows rows of a->matrix. chunk_bytes: size of the matrix's largest chunk. whole: columns of
   tiles of the whole matrix, of which the device may have a part. The caller has set a->kind, too, and fills in
   addresses and pitches; this function fills in the rest of `a`. */
EXL2__PRIVATE exl2__cuda_gemm_plan exl2__cuda_gemm_plan_part(exl2k_gemm_args *a, uint32_t chunk_bytes, uint32_t sms,
                                                             uint32_t budget, uint32_t whole)
{
    exl2__cuda_gemm_plan plan = { 0 };
    uint32_t most = exl2__cuda_gemm_class(a->rows), rows = most == 0 ? 128 : exl2__min32(most, 128);
    uint32_t halves = (uint32_t)exl2__div_up(a->matrix.rows, 32), splits = 1;
    do {
        plan.shared_bytes = exl2__cuda_gemm_shared(a, rows, chunk_bytes, budget);
        plan.rows = plan.shared_bytes ? rows : 0;
        a->row_blocks = rows / 32;
        rows /= 2;
    } while (plan.rows == 0 && rows >= 32);
    if (plan.rows == 0) {
        return plan;
    }
    a->column_tiles = exl2__cuda_gemm_columns(a);
    a->row_tiles = (uint32_t)exl2__div_up(a->rows, plan.rows);
    if (most > 0) {
        splits = sms / (whole * (uint32_t)exl2__div_up(most, plan.rows));
        splits = exl2__max32(1, exl2__min32(exl2__min32(splits, EXL2__CUDA_GEMM_SPLITS_MAX), halves / 8));
    }
    a->halves = (uint32_t)exl2__align_up(exl2__div_up(halves, splits), 2);
    a->splits = (uint32_t)exl2__div_up(halves, a->halves);
    uint32_t tiles = a->row_tiles * a->column_tiles, passes = a->kind == EXL2K_GEMM_ACT ? a->matrix.parts : 1;
    bool split = a->splits > 1;
    plan.ctas = split ? tiles * a->splits : exl2__min32(tiles, sms);
    plan.tickets = split ? tiles * passes * EXL2K_GEMM_WARPS : 0;
    plan.partial_bytes = split ? (uint64_t)plan.ctas * passes : 0;
    plan.partial_bytes += passes == 1 ? 0 : split ? tiles : plan.ctas;
    plan.partial_bytes *= plan.rows * 1024;
    return plan;
}

/* The same for a matrix that the device has as a whole. */
EXL2__PRIVATE exl2__cuda_gemm_plan exl2__cuda_gemm_plan_make(exl2k_gemm_args *a, uint32_t chunk_bytes, uint32_t sms,
                                                             uint32_t budget)
{
    return exl2__cuda_gemm_plan_part(a, chunk_bytes, sms, budget, exl2__cuda_gemm_columns(a));
}

#endif
