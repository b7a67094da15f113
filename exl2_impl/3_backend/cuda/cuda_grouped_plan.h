/* cuda_grouped_plan.h: how the experts of a layer are launched for many rows: six kernels and their scratch memory.
   takes: addresses and sizes of a layer's experts, number of rows, SMs and bytes of shared memory.
   gives: exl2__cuda_grouped, exl2__cuda_grouped_plan, exl2__cuda_grouped_scratch_bytes,
          exl2__cuda_grouped_plan_make.

   The host knows only how many rows there are. Which experts they chose is read on the device, so the launches have a
   fixed shape. A row's bits depend only on the row and its experts: neither on other rows nor on the plan. */
#ifndef EXL2__CUDA_GROUPED_PLAN_H
#define EXL2__CUDA_GROUPED_PLAN_H

#include "../../../kernels_src/grouped_gemm_args.h"
#include "cuda_exl3_plan.h"
#include "cuda_gemm.h"

#ifndef EXL2_NO_MOE

#define EXL2__CUDA_GROUPED_ALIGN 256u /* bytes to which each array in scratch memory is aligned */
#define EXL2__CUDA_GROUPED_LAUNCHES 5u
#define EXL2__CUDA_GROUPED_UP 2u      /* number of the launch that computes h */
#define EXL2__CUDA_GROUPED_FEW 24u    /* rows of an expert, on average, up to which tiles have 32 rows */

/* What the caller knows of a layer's experts and of the pass. All addresses are in device memory. */
typedef struct exl2__cuda_grouped {
    uint64_t experts;      /* exl2k_expert [count] */
    uint64_t choice;       /* u32 [rows, active], ascending in each row */
    uint64_t weight;       /* f32 [rows, active] */
    uint64_t x;            /* fp16 [rows, x_pitch], normalised; 16-byte aligned, as x_pitch * 2 */
    uint64_t out;          /* f32 [rows, out_pitch] */
    uint64_t scratch;      /* exl2__cuda_grouped_scratch_bytes */
    uint64_t partial;      /* exl2__cuda_gemm_partial_max; no part of scratch */
    uint32_t rows, active, count;
    uint32_t hidden, inter;
    uint32_t parts;        /* of up: 2, or 1 without a gate */
    uint32_t act;          /* EXL2K_ACT_*; CLAMPED needs act_limit, and matrices that are not affine */
    uint32_t chunk_bytes;  /* largest chunk of all matrices of all experts */
    uint32_t x_pitch, out_pitch;
    float scale, act_limit;
    bool add;              /* true: out += scale * sum; false: out = scale * sum */
    bool affine;           /* all matrices are affine; else none is */
    bool packed;           /* x is in the order of up, which all experts share; else in natural order */
    exl2__columns columns; /* columns that the device has of all matrices */
    uint32_t columns_unit;
} exl2__cuda_grouped;

typedef struct exl2__cuda_grouped_launch {
    exl2__cuda_kernel kernel;
    exl2__cuda_grid grid;
    union {
        exl2k_grouped_sort_args sort;
        exl2k_grouped_gather_args gather;
        exl2k_grouped_gemm_args gemm;
        exl2k_grouped_sum_args sum;
    } args;
} exl2__cuda_grouped_launch;

typedef struct exl2__cuda_grouped_plan {
    uint32_t count; /* launches; 0: shared memory is too small */
    uint32_t h_pitch; /* elements from a row of h to the next one; h begins `h` bytes after scratch */
    uint64_t h;
    exl2__cuda_grouped_launch launch[EXL2__CUDA_GROUPED_LAUNCHES]; /* grid.x 0: the device has no columns */
} exl2__cuda_grouped_plan;

/* ---- scratch memory ---- */

/* Offsets of the arrays of grouped_rows_args.h. */
typedef struct exl2__cuda_grouped_layout {
    uint64_t pairs, places, tile_count, tiles, h, results, bytes;
    uint32_t pitch, h_pitch;
} exl2__cuda_grouped_layout;

EXL2__PRIVATE exl2__cuda_grouped_layout exl2__cuda_grouped_layout_of(uint32_t rows, uint32_t active, uint32_t count,
                                                                     uint32_t hidden, uint32_t inter)
{
    const uint64_t align = EXL2__CUDA_GROUPED_ALIGN;
    uint64_t slots = (uint64_t)rows * active;
    exl2__cuda_grouped_layout l = { .pitch = (uint32_t)exl2__align_up(hidden, 64),
                                    .h_pitch = (uint32_t)exl2__align_up(inter, 64) };
    l.places = l.pairs + exl2__align_up(slots * sizeof(exl2k_grouped_pair), align);
    l.tile_count = l.places + exl2__align_up(slots * 4, align);
    l.tiles = l.tile_count + align;
    l.h = l.tiles + exl2__align_up((slots / 32 + exl2__min64(slots, count)) * sizeof(exl2k_grouped_tile), align);
    l.results = l.h + exl2__align_up(slots * l.h_pitch * 2, align);
    l.bytes = l.results + exl2__align_up(slots * l.pitch * sizeof(float), align);
    return l;
}

/* The same for experts in EXL3, whose rows have whole blocks. Products read a tile beyond the last place. */
EXL2__PRIVATE exl2__cuda_grouped_layout exl2__cuda_grouped_layout_exl3(uint32_t rows, uint32_t active, uint32_t count,
                                                                       uint32_t hidden, uint32_t inter)
{
    uint32_t pitch = (uint32_t)exl2__align_up(hidden, EXL2K_EXL3_BLOCK);
    uint32_t h_pitch = (uint32_t)exl2__align_up(inter, EXL2K_EXL3_BLOCK);
    exl2__cuda_grouped_layout l = exl2__cuda_grouped_layout_of(rows, active, count, pitch, h_pitch);
    l.bytes += (uint64_t)EXL2K_EXL3_EXPERT_TILE_MAX * exl2__max32(pitch, h_pitch) * 2;
    return l;
}

/* Bytes of scratch memory for at most `rows` rows. */
static inline uint64_t exl2__cuda_grouped_scratch_bytes(uint32_t rows, uint32_t active, uint32_t count,
                                                        uint32_t hidden, uint32_t inter, bool exl3)
{
    return exl3 ? exl2__cuda_grouped_layout_exl3(rows, active, count, hidden, inter).bytes
                : exl2__cuda_grouped_layout_of(rows, active, count, hidden, inter).bytes;
}

/* ---- the products ---- */

/* The launch of a product, without addresses: tiles of tile_rows rows, `twice` two CTAs on an SM. Returns false if
   shared memory is too small. */
EXL2__PRIVATE bool exl2__cuda_grouped_try(exl2__cuda_grouped_launch *l, exl2__cuda_kernel kernel, uint32_t tile_rows,
                                          bool twice, const exl2__cuda_grouped *e, uint32_t sms, uint32_t budget)
{
    exl2k_gemm_args form = { 0 };
    /* An SM has 1 KiB more than a block may have, and each block takes 1 KiB more than it asks for. */
    budget = twice ? (exl2__max32(budget, 1024) - 1024) / 2 : budget;
    l->kernel = kernel;
    l->grid = (exl2__cuda_grid){ .x = twice ? 2 * sms : sms, .y = 1, .threads = EXL2K_GEMM_THREADS,
                                 .shared_bytes = exl2__cuda_gemm_shared(&form, tile_rows, e->chunk_bytes, budget) };
    l->args.gemm = (exl2k_grouped_gemm_args){ .row_blocks = tile_rows / 32, .stage_mask = form.stage_mask,
                                              .slot_mask = form.slot_mask, .stages_log = form.stages_log,
                                              .slots_log = form.slots_log, .slot_bytes = form.slot_bytes,
                                              .ring_bytes = form.ring_bytes };
    return l->grid.shared_bytes > 0;
}

/* Chooses kernel and tiles: small ones for few rows of an expert or little shared memory. Returns the rows of a tile, 0
   if shared memory is too small. */
EXL2__PRIVATE uint32_t exl2__cuda_grouped_tiles(exl2__cuda_grouped_launch *l, const exl2__cuda_grouped *e, uint32_t sms,
                                                uint32_t budget)
{
    exl2__cuda_kernel kernel = e->affine ? EXL2__KERNEL_exl2k_grouped_gemm_affine : EXL2__KERNEL_exl2k_grouped_gemm;
    bool few = (uint64_t)e->rows * e->active <= (uint64_t)EXL2__CUDA_GROUPED_FEW * e->count && !e->affine;
    for (uint32_t rows = few ? 16 : 128; rows >= 32; rows /= 2) {
        if (exl2__cuda_grouped_try(l, kernel, rows, false, e, sms, budget)) {
            return rows;
        }
    }
    kernel = EXL2__KERNEL_exl2k_grouped_gemm32;
    bool fits = !e->affine && (exl2__cuda_grouped_try(l, kernel, 32, true, e, sms, budget)
                               || exl2__cuda_grouped_try(l, kernel, 32, false, e, sms, budget));
    return fits ? 32 : 0;
}

EXL2__PRIVATE void exl2__cuda_grouped_products(exl2__cuda_grouped_launch *up, exl2__cuda_grouped_launch *down,
                                               const exl2__cuda_grouped *e, const exl2__cuda_grouped_layout *l)
{
    exl2k_grouped_gemm_args *a = &up->args.gemm, *d = &down->args.gemm;
    exl2__columns_run h = exl2__columns_of(&e->columns, e->inter, e->columns_unit);
    exl2__columns_run results = exl2__columns_of(&e->columns, e->hidden, e->columns_unit);
    a->experts = e->experts;
    a->tiles = e->scratch + l->tiles;
    a->tile_count = e->scratch + l->tile_count;
    a->x = e->scratch + l->results;
    a->out = e->scratch + l->h;
    a->partial = e->partial;
    a->x_pitch = l->pitch;
    a->out_pitch = l->h_pitch;
    a->kind = EXL2K_GROUPED_UP;
    a->parts = e->parts;
    a->halves = (uint32_t)exl2__div_up(e->hidden, 32);
    a->column_tiles = (uint32_t)exl2__div_up(h.count, EXL2K_GEMM_STRIPS * 16);
    a->act = e->act;
    a->scale = e->act_limit;
    *down = *up;
    d->x = e->scratch + l->h;
    d->out = e->scratch + l->results;
    d->x_pitch = l->h_pitch;
    d->out_pitch = l->pitch;
    d->kind = EXL2K_GROUPED_DOWN;
    d->parts = 1;
    d->scale = 1;
    d->halves = (uint32_t)exl2__div_up(e->inter, 32);
    d->column_tiles = (uint32_t)exl2__div_up(results.count, EXL2K_GEMM_STRIPS * 16);
    a->out += h.first * sizeof(exl2k_u16);
    d->out += results.first * sizeof(float);
    up->grid.x = a->column_tiles ? up->grid.x : 0;
    down->grid.x = d->column_tiles ? down->grid.x : 0;
}

/* ---- the plan ---- */

EXL2__PRIVATE exl2__cuda_grouped_launch *exl2__cuda_grouped_add(exl2__cuda_grouped_plan *plan, exl2__cuda_kernel kernel,
                                                                uint32_t x, uint32_t threads)
{
    exl2__cuda_grouped_launch *l = &plan->launch[plan->count++];
    l->kernel = kernel;
    l->grid = (exl2__cuda_grid){ .x = x, .y = 1, .threads = threads };
    return l;
}

/* Bytes of shared memory for permuting a row; 0: more than the budget. */
static inline uint32_t exl2__cuda_grouped_staged(uint32_t columns, uint32_t budget)
{
    uint64_t bytes = exl2__align_up(columns * 2ull, 16);
    return bytes <= budget ? (uint32_t)bytes : 0;
}

EXL2__PRIVATE void exl2__cuda_grouped_sort(exl2__cuda_grouped_plan *plan, const exl2__cuda_grouped *e,
                                           const exl2__cuda_grouped_layout *l, uint32_t tile_rows)
{
    uint32_t slots = e->rows * e->active;
    uint32_t ctas = (uint32_t)exl2__div_up(slots, EXL2K_GROUPED_SORT_THREADS);
    exl2__cuda_grouped_launch *launch = exl2__cuda_grouped_add(plan, EXL2__KERNEL_exl2k_grouped_sort, ctas,
                                                               EXL2K_GROUPED_SORT_THREADS);
    launch->args.sort = (exl2k_grouped_sort_args){ .choice = e->choice, .pairs = e->scratch + l->pairs,
                                                   .places = e->scratch + l->places, .tiles = e->scratch + l->tiles,
                                                   .tile_count = e->scratch + l->tile_count,
                                                   .slot_count = slots, .k = e->active,
                                                   .experts = e->count, .tile_rows = tile_rows,
                                                   .ordered = exl2__columns_are_cut(&e->columns) };
}

EXL2__PRIVATE void exl2__cuda_grouped_gather(exl2__cuda_grouped_plan *plan, const exl2__cuda_grouped *e,
                                             const exl2__cuda_grouped_layout *l, uint32_t budget)
{
    exl2__cuda_grouped_launch *launch = exl2__cuda_grouped_add(plan, EXL2__KERNEL_exl2k_grouped_gather,
                                                               e->rows * e->active, EXL2K_GROUPED_ROW_THREADS);
    launch->grid.shared_bytes = exl2__cuda_grouped_staged(e->hidden, budget);
    launch->args.gather = (exl2k_grouped_gather_args){ .experts = e->experts, .pairs = e->scratch + l->pairs,
                                                       .x = e->x, .to = e->scratch + l->results,
                                                       .h = e->scratch + l->h, .x_pitch = e->x_pitch,
                                                       .columns = e->hidden, .pitch = l->pitch,
                                                       .h_columns = e->inter, .h_pitch = l->h_pitch,
                                                       .staged = launch->grid.shared_bytes, .packed = e->packed };
}

EXL2__PRIVATE void exl2__cuda_grouped_sum(exl2__cuda_grouped_plan *plan, const exl2__cuda_grouped *e,
                                          const exl2__cuda_grouped_layout *l)
{
    exl2__cuda_grouped_launch *launch = exl2__cuda_grouped_add(plan, EXL2__KERNEL_exl2k_grouped_sum, e->rows,
                                                               EXL2K_GROUPED_SUM_THREADS);
    exl2__columns_run own = exl2__columns_of(&e->columns, e->hidden, e->columns_unit);
    launch->grid.x = own.count ? e->rows : 0;
    launch->grid.y = (uint32_t)exl2__div_up(own.count, EXL2K_GROUPED_SUM_THREADS * EXL2K_GROUPED_SUM_COLUMNS);
    launch->args.sum = (exl2k_grouped_sum_args){ .weight = e->weight, .places = e->scratch + l->places,
                                                 .results = e->scratch + l->results + own.first * sizeof(float),
                                                 .out = e->out + own.first * sizeof(float), .k = e->active,
                                                 .columns = own.count, .pitch = l->pitch, .out_pitch = e->out_pitch,
                                                 .scale = e->scale, .add = e->add };
}

/* Plans the launches. sms: multiprocessors of the device; budget: bytes of shared memory that a block may use. */
EXL2__PRIVATE exl2__cuda_grouped_plan exl2__cuda_grouped_plan_make(const exl2__cuda_grouped *e, uint32_t sms,
                                                                   uint32_t budget)
{
    exl2__cuda_grouped_layout l = exl2__cuda_grouped_layout_of(e->rows, e->active, e->count, e->hidden, e->inter);
    exl2__cuda_grouped_plan plan = { .h = l.h, .h_pitch = l.h_pitch };
    exl2__cuda_grouped_launch product = { 0 }, down;
    uint32_t tile_rows = exl2__cuda_grouped_tiles(&product, e, sms, budget);
    if (tile_rows == 0) {
        return plan;
    }
    exl2__cuda_grouped_products(&product, &down, e, &l);
    exl2__cuda_grouped_sort(&plan, e, &l, tile_rows);
    exl2__cuda_grouped_gather(&plan, e, &l, budget);
    plan.launch[plan.count++] = product;
    plan.launch[plan.count++] = down;
    exl2__cuda_grouped_sum(&plan, e, &l);
    return plan;
}

#endif
#endif
