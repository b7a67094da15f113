/* cuda_gemm_wg.h: how a product of many rows is launched on sm_90a, by wgmma: kernel, splits of K, shared memory.
   takes: a matrix as the kernels see it; number of rows, SMs and bytes of shared memory.
   gives: exl2__cuda_wg_serves, exl2__cuda_wg_rows, exl2__cuda_wg_plan_make, exl2__cuda_wg_plan_few.

   The bits of a row depend on the splits, and these depend only on the matrix, the device, and the class of the number
   of rows. There are three classes: up to 256 rows of prompts, up to 256 of sampled tokens, and more. The rows of a
   tile do not change bits (gemm_wg.cuh). */
#ifndef EXL2__CUDA_GEMM_WG_H
#define EXL2__CUDA_GEMM_WG_H

#include "../../../kernels_src/gemm_wg_args.h"
#include "cuda_gemm.h"

#define EXL2__CUDA_WG_SPLIT_ROWS 256u  /* up to here K may be split */
#define EXL2__CUDA_WG_SPLIT_HALVES 16u /* cost of a split, in halves of K: its begin, and the sums in memory */
#define EXL2__CUDA_WG_FEW_ROWS 64u     /* most rows that exl2__cuda_wg_plan_few knows */
#define EXL2__CUDA_WG_CUT_HALVES 32u   /* fewest halves of K of a tile that two CTAs compute */
#define EXL2__CUDA_WG_TAKE_HALVES 4u   /* cost of continuing with another CTA's sums, in halves of K */
#define EXL2__CUDA_WG_CLUSTER 2u       /* CTAs of a cluster. Four were slower on an H200 (NOTES.md) */
#define EXL2__CUDA_WG_TILE_ROWS 160u   /* cost of a tile besides its rows, in rows: decoding */

/* Rows of tiles of inputs (wg_tiles.cuh) that hold `rows` rows. */
static inline uint32_t exl2__cuda_wg_rows(uint32_t rows)
{
    return (uint32_t)exl2__align_up(rows, 8);
}

/* Whether the kernels compute a product with the matrix: EXL2 or affine parts, whole halves of 32 inputs. */
static inline bool exl2__cuda_wg_serves(const exl2k_matrix *m)
{
    return m->rows % 32 == 0 && !(m->widths >> EXL2K_W16 & 1) && m->parts > 0;
}

static inline uint32_t exl2__cuda_wg_columns(const exl2k_gemm_args *a)
{
    bool act = a->kind == EXL2K_GEMM_ACT;
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (act ? 1 : a->matrix.parts); i++) {
        tiles += (uint32_t)exl2__div_up(a->matrix.part[i].strips, act ? 4 : 8);
    }
    return tiles;
}

/* The splits that end first on `ctas` CTAs at a time, for `tiles` tiles of K = 32 * halves inputs. */
EXL2__PRIVATE uint32_t exl2__cuda_wg_split_count(uint32_t tiles, uint32_t halves, uint32_t sms, uint32_t ctas)
{
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t splits = 1; splits <= EXL2__CUDA_GEMM_SPLITS_MAX; splits++) {
        uint64_t turns = exl2__div_up((uint64_t)tiles * splits, ctas);
        uint64_t cost = turns * (exl2__div_up(halves, splits) + EXL2__CUDA_WG_SPLIT_HALVES);
        bool fits = splits == 1 || (halves / splits >= 8 && tiles * splits <= 2 * sms);
        if (fits && cost < least) {
            least = cost;
            best = splits;
        }
    }
    return best;
}

/* Fills in what follows from the rows of a tile and from the CTAs that run at a time. */
EXL2__PRIVATE void exl2__cuda_wg_plan_tiles(exl2k_gemm_args *a, exl2__cuda_gemm_plan *plan, uint32_t ctas)
{
    a->row_tiles = (uint32_t)exl2__div_up(a->rows, plan->rows);
    uint32_t tiles = a->row_tiles * a->column_tiles * a->splits;
    plan->ctas = exl2__min32(tiles, ctas);
    plan->tickets = a->splits > 1 ? tiles / a->splits * EXL2K_GEMM_WARPS : 0;
    plan->partial_bytes = a->splits > 1 ? (uint64_t)tiles * plan->rows * 512 : 0;
}

/* Plans the launch for a->rows rows of a->matrix, with tiles of 32 (only of sampled tokens, not for any family), 64,
   128 or 256 rows, whichever end first. Two CTAs with tiles of up to 64 rows run on an SM. variant: 0 for Llama, 1 for
   any family, 2 for affine matrices. The caller has set a->kind and a->partial (0: no splits), too, and fills in
   addresses and a->out_pitch; this function fills in what else is used. whole: columns of tiles of the whole matrix,
   of which the device may have a part. */
EXL2__PRIVATE exl2__cuda_gemm_plan exl2__cuda_wg_plan_part(exl2k_gemm_args *a, uint32_t sms, bool sampled,
                                                           uint32_t variant, uint32_t whole)
{
    exl2__cuda_gemm_plan plan = { 0 };
    uint32_t halves = (uint32_t)exl2__div_up(a->matrix.rows, 32), splits = 1;
    uint64_t least = UINT64_MAX;
    a->column_tiles = exl2__cuda_wg_columns(a);
    a->cut = 0;
    if (a->rows <= EXL2__CUDA_WG_SPLIT_ROWS && a->partial) {
        splits = exl2__cuda_wg_split_count(whole, halves, sms, sampled ? 2 * sms : sms);
    }
    a->halves = (uint32_t)exl2__align_up(exl2__div_up(halves, splits), 2);
    a->splits = (uint32_t)exl2__div_up(halves, a->halves);
    for (uint32_t rows = 64; rows <= 256; rows *= 2) {
        uint64_t tiles = exl2__div_up(a->rows, rows) * a->column_tiles * a->splits;
        uint64_t cost = exl2__div_up(tiles, sms) * (rows + EXL2__CUDA_WG_TILE_ROWS);
        if (cost < least) {
            least = cost;
            plan.rows = rows;
        }
    }
    plan.rows = sampled && variant != 1 && a->rows <= 32 ? 32 : plan.rows;
    plan.shared_bytes = EXL2K_WG_SHARED(plan.rows, variant == 2);
    a->x_pitch = exl2__cuda_wg_rows(a->rows);
    exl2__cuda_wg_plan_tiles(a, &plan, plan.rows <= 64 ? 2 * sms : sms);
    return plan;
}

/* The same for a matrix that the device has as a whole. */
EXL2__PRIVATE exl2__cuda_gemm_plan exl2__cuda_wg_plan_make(exl2k_gemm_args *a, uint32_t sms, bool sampled,
                                                           uint32_t variant)
{
    return exl2__cuda_wg_plan_part(a, sms, sampled, variant, exl2__cuda_wg_columns(a));
}

/* Changes the plan of up to EXL2__CUDA_WG_FEW_ROWS rows of a prompt, without adapters. Where there are not more tiles
   than SMs, Llama has kernels whose warps have roles (gemm_wg_roles.cuh); where there are, two CTAs run on an SM, with
   tiles of 32 rows if these are enough. The splits stay, and so do the bits. */
EXL2__PRIVATE void exl2__cuda_wg_plan_few(exl2k_gemm_args *a, exl2__cuda_gemm_plan *plan, uint32_t sms,
                                          uint32_t variant)
{
    EXL2__ASSERT(a->rows <= EXL2__CUDA_WG_FEW_ROWS);
    plan->roles = variant == 0 && a->column_tiles * a->splits <= sms;
    if (plan->roles) {
        plan->rows = a->rows <= 16 ? 16 : a->rows <= 32 ? 32 : 64;
        plan->shared_bytes = EXL2K_WG_ROLE_SHARED(plan->rows);
    } else if (a->rows <= 32 && variant != 1) {
        plan->rows = 32;
        plan->shared_bytes = EXL2K_WG_SHARED(32, variant == 2);
    } else {
        return;
    }
    exl2__cuda_wg_plan_tiles(a, plan, plan->roles ? sms : 2 * sms);
}

/* The splits of a tile of a prompt's rows are a cluster, if each CTA has one: then their sums meet in shared memory. */
EXL2__PRIVATE void exl2__cuda_wg_plan_cluster(const exl2k_gemm_args *a, exl2__cuda_gemm_plan *plan, uint32_t sms)
{
    bool each = (uint64_t)a->row_tiles * a->column_tiles * a->splits == plan->ctas && plan->ctas <= sms;
    if (a->kind != EXL2K_GEMM_ACT && a->splits > 1 && a->splits <= EXL2__CUDA_WG_CLUSTER && each) {
        plan->cluster = a->splits;
    }
}

/* Where tiles of 128 or 256 rows need a last turn in which most CTAs would be idle, two CTAs compute each tile of that
   turn, one after the other. The order of the sums stays. (Where a CTA has to continue with several tiles, it is slower
   than a whole turn.) */
EXL2__PRIVATE void exl2__cuda_wg_plan_cut(exl2k_gemm_args *a, exl2__cuda_gemm_plan *plan, uint32_t sms)
{
    uint32_t tiles = a->row_tiles * a->column_tiles, rest = tiles % plan->ctas;
    uint32_t halves = (uint32_t)exl2__div_up(a->matrix.rows, 32);
    uint64_t bytes = (uint64_t)rest * plan->rows * 512;
    if (plan->rows < 128 || a->splits > 1 || !a->partial || tiles <= plan->ctas || rest == 0 || 2 * rest > plan->ctas
        || halves < EXL2__CUDA_WG_CUT_HALVES || bytes > exl2__cuda_gemm_partial_max(sms)) {
        return;
    }
    a->cut = (halves + EXL2__CUDA_WG_TAKE_HALVES) / 4 * 2; /* both parts last equally long */
    plan->partial_bytes = bytes;
    plan->tickets = rest * EXL2K_GEMM_WARPS;
}

#endif
