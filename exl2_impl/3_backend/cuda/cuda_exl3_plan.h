/* cuda_exl3_plan.h: EXL3 matrices in device memory: their records, their sizes, and how their products are divided
   among CTAs.
   takes: checked matrix descriptions; kernels_src/exl3_args.h and exl3_expert_args.h.
   gives: exl2__cuda_exl3, exl2__cuda_exl3_by_wg, exl2__cuda_exl3_bytes, exl2__cuda_exl3_strips, exl2__cuda_exl3_splits,
          exl2__cuda_exl3_crowd_splits, exl2__cuda_exl3_expert_splits, exl2__cuda_exl3_partial_max,
          exl2__cuda_exl3_alone_max, exl2__cuda_exl3_tickets_max, exl2__cuda_exl3_rotated_max, exl2__cuda_exl3_rate,
          exl2__cuda_exl3_slabs, exl2__cuda_exl3_gemv, exl2__cuda_exl3_one, exl2__cuda_exl3_one_slabs,
          exl2__cuda_exl3_by_crowd, exl2__cuda_exl3_crowd_rows, exl2__cuda_exl3_crowd_kernel, exl2__cuda_exl3_tile_rows,
          exl2__cuda_exl3_outputs, exl2__cuda_exl3_gemm, exl2__cuda_exl3_gemm_threads, exl2__cuda_exl3_gemm_shared,
          exl2__cuda_exl3_decoded_max, exl2__cuda_exl3_by_wide, exl2__cuda_exl3_wide_strips,
          exl2__cuda_exl3_strips_kernel, exl2__cuda_exl3_run, exl2__cuda_exl3_part_range,
          exl2__cuda_exl3_range. */
#ifndef EXL2__CUDA_EXL3_PLAN_H
#define EXL2__CUDA_EXL3_PLAN_H

#include "../../../kernels_src/exl3_expert_args.h"
#include "../../2_graph/phases.h"
#include "cuda_device.h"

#define EXL2__CUDA_EXL3_SPLITS_MAX 64u
#define EXL2__CUDA_EXL3_STATIC 256u /* bytes of static shared memory of products of few rows, at most */
#define EXL2__CUDA_EXL3_NORM_SUMS 4096u /* bytes of exl2k_exl3_norm.sums, which lie before the sums of splits */
#define EXL2__CUDA_EXL3_CTAS 8u /* of a product of several splits, at most, for each SM */

/* Blocks of all strips from which 2 to 8, and 9 to 16 rows gain by a kernel that transforms their inputs (H200). */
#define EXL2__CUDA_EXL3_CROWD8_BLOCKS 5000u
#define EXL2__CUDA_EXL3_CROWD16_BLOCKS 1200u
#define EXL2__CUDA_EXL3_WIDE_ROWS 1792u /* fewest rows for which strips are decoded once for all rows (H200) */
#define EXL2__CUDA_EXL3_DECODED (72ull << 20) /* most bytes of decoded strips, unless one is more */

/* A matrix of EXL3, or an embedding. */
typedef struct exl2__cuda_exl3 {
    exl2k_exl3_part part[EXL2K_EXL3_PARTS];
    uint32_t parts;  /* 0: another kind */
    uint32_t blocks, splits; /* splits: of products in layers; the head has one */
    uint32_t crowd_splits;   /* the same of 17 to 64 rows of sampled tokens */
    exl2k_u64 signs; /* embedding: fp16 [rings of a row, 256]; 0: another kind */
    uint32_t bits;   /* embedding: K */
} exl2__cuda_exl3;

/* Whether products of many rows run by wgmma. */
static inline bool exl2__cuda_exl3_by_wg(const exl2__cuda_device *gpu)
{
    return gpu->info.arch == 90 && gpu->shared_bytes >= EXL2K_EXL3_WG_SHARED(EXL2K_EXL3_TILE_MAX, EXL2K_EXL3_BLOCK);
}

#if EXL2__EXL3

/* Strips of parts [first, first + count). */
static inline uint32_t exl2__cuda_exl3_strips(const exl2k_exl3_part *parts, uint32_t first, uint32_t count)
{
    uint32_t strips = 0;
    for (uint32_t i = first; i < first + count; i++) {
        strips += parts[i].out / EXL2K_EXL3_BLOCK;
    }
    return strips;
}

/* What a product with splits costs besides its blocks. An SM hides latencies with two or more CTAs. */
typedef struct exl2__cuda_exl3_costs {
    uint32_t cta;      /* of a CTA that works alone, in half blocks */
    uint32_t one, two; /* of all of them where an SM has one or two, in eighths */
} exl2__cuda_exl3_costs;

/* Splits of a product whose matrix has `strips` strips of `blocks` blocks: those whose busiest SM has least to do. They
   depend on nothing else, as the bits of a row follow from them. */
EXL2__PRIVATE uint32_t exl2__cuda_exl3_splits_by(exl2__cuda_exl3_costs costs, uint32_t strips, uint32_t blocks,
                                                 uint32_t sms)
{
    uint32_t best = 1, most = exl2__min32(blocks, EXL2__CUDA_EXL3_SPLITS_MAX);
    uint64_t least = UINT64_MAX;
    for (uint32_t splits = 1; splits <= most; splits++) {
        uint64_t ctas = exl2__div_up((uint64_t)strips * splits, sms), each = exl2__div_up(blocks, splits);
        uint64_t cost = ctas * (2 * each + costs.cta) * (ctas == 1 ? costs.one : ctas == 2 ? costs.two : 8);
        if (splits > 1 && ctas > EXL2__CUDA_EXL3_CTAS) {
            break;
        }
        if (cost < least) {
            least = cost;
            best = splits;
        }
    }
    return best;
}

/* Of a product of few rows. */
static inline uint32_t exl2__cuda_exl3_splits(uint32_t strips, uint32_t blocks, uint32_t sms)
{
    return exl2__cuda_exl3_splits_by((exl2__cuda_exl3_costs){ 1, 12, 9 }, strips, blocks, sms);
}

/* Of a product of 17 to 64 rows of sampled tokens, whose CTAs have more to begin and to end. */
static inline uint32_t exl2__cuda_exl3_crowd_splits(uint32_t strips, uint32_t blocks, uint32_t sms)
{
    return exl2__cuda_exl3_splits_by((exl2__cuda_exl3_costs){ 4, 14, 10 }, strips, blocks, sms);
}

static inline uint64_t exl2__cuda_exl3_round(uint64_t bytes) { return exl2__align_up(bytes, EXL2__CUDA_ALIGN); }

/* Outputs with padding of `columns` columns. */
static inline uint32_t exl2__cuda_exl3_stored(uint32_t columns)
{
    return (uint32_t)exl2__align_up(columns, EXL2K_EXL3_BLOCK);
}

/* Bytes of one part of a matrix, of which the device has `columns` columns, or of an embedding. */
EXL2__PRIVATE uint64_t exl2__cuda_exl3_bytes(const exl2__matrix_desc *d, uint32_t columns)
{
    uint64_t scales = exl2__cuda_exl3_round(d->exl3.in_stored * sizeof(uint16_t));
    if (d->kind == EXL2__MATRIX_EXL3) {
        uint32_t stored = exl2__cuda_exl3_stored(columns);
        scales += exl2__cuda_exl3_round(stored * sizeof(uint16_t));
        scales += d->has_bias ? exl2__cuda_exl3_round(columns * sizeof(float)) : 0;
        return scales + exl2__cuda_exl3_round((uint64_t)d->words * (stored / 16) * d->exl3.words * 2);
    }
    return scales; /* the rows are counted as those of any table */
}

/* ---- scratch memory of a model; sms: multiprocessors of the device ---- */

static inline uint32_t exl2__cuda_exl3_blocks(uint64_t values)
{
    return (uint32_t)exl2__div_up(values, EXL2K_EXL3_BLOCK);
}

/* Most strips of a matrix of a layer. */
EXL2__PRIVATE uint32_t exl2__cuda_exl3_widest(const exl2__shape *s)
{
    uint32_t heads = exl2__cuda_exl3_blocks((uint64_t)s->heads * s->head_dim);
    uint32_t qkv = heads + 2 * exl2__cuda_exl3_blocks((uint64_t)s->kv_heads * s->head_dim);
    return exl2__max32(exl2__max32(qkv, 2 * exl2__cuda_exl3_blocks(s->inter)), exl2__cuda_exl3_blocks(s->hidden));
}

/* Strips of all parts of the experts' up, or of down. */
static inline uint32_t exl2__cuda_exl3_expert_strips(const exl2__shape *s, bool down)
{
    return down ? exl2__cuda_exl3_blocks(s->hidden) : exl2__cuda_exl3_blocks(s->experts.inter) * (s->gated ? 2 : 1);
}

/* Splits of a product of few rows with experts: best for one row. */
EXL2__PRIVATE uint32_t exl2__cuda_exl3_expert_splits(const exl2__shape *s, bool down, uint32_t sms)
{
    return exl2__cuda_exl3_splits(exl2__cuda_exl3_expert_strips(s, down) * s->experts.active,
                                  exl2__cuda_exl3_blocks(down ? s->experts.inter : s->hidden), sms);
}

/* Sums of all splits of the experts' products, of 128 floats each. */
EXL2__PRIVATE uint64_t exl2__cuda_exl3_expert_partial(const exl2__shape *s, bool down, uint32_t sms)
{
    uint64_t strips = exl2__cuda_exl3_expert_strips(s, down);
    return strips * exl2__cuda_exl3_expert_splits(s, down, sms) * EXL2K_EXL3_ROWS * s->experts.active;
}

/* Bytes of the sums of all splits. The head has one split, so that it needs none. rows: of sampled tokens in a pass. */
EXL2__PRIVATE uint64_t exl2__cuda_exl3_partial_max(const exl2__shape *s, uint32_t rows, uint32_t sms)
{
    uint64_t sums = (uint64_t)exl2__max32(exl2__cuda_exl3_widest(s), EXL2__CUDA_EXL3_CTAS * sms);
    sums *= rows > EXL2K_EXL3_ROWS ? EXL2K_EXL3_CROWD_ROWS : EXL2K_EXL3_ROWS;
    for (uint32_t down = 0; down < 2 && exl2__experts_any(&s->experts); down++) {
        sums = exl2__max64(sums, exl2__cuda_exl3_expert_partial(s, down, sms));
    }
    return s->exl3 ? sums * EXL2K_EXL3_BLOCK * sizeof(float) : 0;
}

/* The same of one row by exl3_one.cuh, which begin and end as zeros. */
static inline uint64_t exl2__cuda_exl3_alone_max(const exl2__shape *s, uint32_t sms)
{
    uint64_t sums = exl2__max32(exl2__cuda_exl3_widest(s), EXL2__CUDA_EXL3_CTAS * sms);
    return s->exl3 ? sums * EXL2K_EXL3_BLOCK * sizeof(float) + EXL2__CUDA_EXL3_NORM_SUMS : 0;
}

EXL2__PRIVATE uint64_t exl2__cuda_exl3_tickets_max(const exl2__shape *s)
{
    uint64_t slots = (uint64_t)EXL2K_EXL3_ROWS * s->experts.active;
    uint64_t tickets = exl2__max64(exl2__cuda_exl3_widest(s), slots * exl2__cuda_exl3_blocks(s->experts.inter));
    return s->exl3 ? tickets * sizeof(uint32_t) : 0;
}

/* Bytes of transformed inputs of `rows` rows; or of inputs in the order of a matrix beside EXL3, in rows as they were
   before (exl2__cuda_pitch). wide: those of up and of down may be there together. */
EXL2__PRIVATE uint64_t exl2__cuda_exl3_rotated_max(const exl2__shape *s, uint64_t rows, bool wide)
{
    uint64_t blocks = 3 * (uint64_t)exl2__cuda_exl3_blocks(s->hidden);
    blocks = exl2__max64(blocks, exl2__cuda_exl3_blocks(exl2__shape_attended(s)));
    uint64_t inter = exl2__cuda_exl3_blocks(s->inter);
    blocks = exl2__max64(blocks, inter + (wide ? 2 * (uint64_t)exl2__cuda_exl3_blocks(s->hidden) : 0));
    blocks += s->mixes_exl3 ? 1 : 0;
    return s->exl3 ? exl2__align_up(rows, EXL2K_EXL3_TILE_MAX) * blocks * EXL2K_EXL3_BLOCK * sizeof(uint16_t) : 0;
}

/* Bytes of `strips` strips when they are decoded. */
static inline uint64_t exl2__cuda_exl3_decoded_bytes(uint32_t strips, uint32_t blocks)
{
    return (uint64_t)strips * blocks * (2 * EXL2K_EXL3_WIDE_STRIP);
}

/* Bytes of decoded strips of a matrix, for passes of up to `rows` rows. */
EXL2__PRIVATE uint64_t exl2__cuda_exl3_decoded_max(const exl2__shape *s, const exl2__cuda_device *gpu, uint32_t rows)
{
    uint32_t blocks = exl2__cuda_exl3_blocks(exl2__max64(exl2__max64(s->hidden, s->inter), exl2__shape_attended(s)));
    if (!s->exl3 || !exl2__cuda_exl3_by_wg(gpu) || rows < EXL2__CUDA_EXL3_WIDE_ROWS) {
        return 0;
    }
    uint64_t all = exl2__cuda_exl3_decoded_bytes(exl2__cuda_exl3_widest(s), blocks);
    return exl2__max64(exl2__min64(all, EXL2__CUDA_EXL3_DECODED), exl2__cuda_exl3_decoded_bytes(1, blocks));
}

/* ---- launches ---- */

/* The highest rate of the parts that the launch computes. */
static inline uint32_t exl2__cuda_exl3_rate(const exl2k_exl3_args *a)
{
    uint32_t rate = 0;
    for (uint32_t i = a->first; i < a->first + a->count; i++) {
        rate = exl2__max32(rate, a->part[i].rate);
    }
    return rate;
}

/* Chooses the slab of a product of few rows, and returns its dynamic shared memory, at most `most` bytes if slabs of
   one block fit. rate: the highest one. */
static inline uint32_t exl2__cuda_exl3_slabs(exl2k_exl3_args *a, uint32_t rate, uint32_t most)
{
    a->slab = exl2__min32(EXL2K_EXL3_SLAB_OF(a->rows), (uint32_t)exl2__div_up(a->blocks, a->splits));
    while (a->slab > 1 && EXL2K_EXL3_SHARED(a->rows, a->slab, rate) > most) {
        a->slab /= 2;
    }
    return EXL2K_EXL3_SHARED(a->rows, a->slab, rate);
}

/* The kernel of a product of few rows. */
static inline exl2__cuda_kernel exl2__cuda_exl3_gemv(uint32_t book, uint32_t rows)
{
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_exl3_gemv8_3inst, EXL2__KERNEL_exl2k_exl3_gemv16_3inst },
        { EXL2__KERNEL_exl2k_exl3_gemv8_mcg, EXL2__KERNEL_exl2k_exl3_gemv16_mcg },
        { EXL2__KERNEL_exl2k_exl3_gemv8_mul1, EXL2__KERNEL_exl2k_exl3_gemv16_mul1 },
    };
    return kernels[book][rows > 8];
}

/* The kernel of a product of one row, on GPUs that have it. */
static inline exl2__cuda_kernel exl2__cuda_exl3_one(uint32_t book)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_exl3_one_3inst, EXL2__KERNEL_exl2k_exl3_one_mcg,
                                                 EXL2__KERNEL_exl2k_exl3_one_mul1 };
    return kernels[book];
}

/* As exl2__cuda_exl3_slabs, for a product of one row by exl3_one.cuh. Tiles are stashed if an SM has room for four
   CTAs nevertheless. */
static inline uint32_t exl2__cuda_exl3_one_slabs(exl2k_exl3_args *a, uint32_t rate, uint32_t most)
{
    uint32_t least = exl2__max32(exl2__cuda_exl3_slabs(a, rate, most), EXL2K_EXL3_ONE_LEAST);
    uint32_t bytes = least + EXL2K_EXL3_STASH;
    a->stash = 4 * (bytes + EXL2__CUDA_EXL3_STATIC + 1024) <= most + 1024;
    return a->stash ? bytes : least;
}

/* Whether a product of up to 16 rows, which `a` describes but for its launches, is one of exl3_crowd.cuh, on GPUs that
   have these. It has the same bits, but a kernel of its own that transforms its inputs. */
static inline bool exl2__cuda_exl3_by_crowd(const exl2k_exl3_args *a)
{
    uint32_t blocks = exl2__cuda_exl3_strips(a->part, 0, a->parts) * a->blocks;
    return a->rows > 1 && blocks >= (a->rows > 8 ? EXL2__CUDA_EXL3_CROWD16_BLOCKS : EXL2__CUDA_EXL3_CROWD8_BLOCKS);
}

/* Rows, with padding, of a product of exl3_crowd.cuh. */
static inline uint32_t exl2__cuda_exl3_crowd_rows(uint32_t rows)
{
    return rows > 32 ? 64 : rows > 16 ? 32 : rows > 8 ? 16 : 8;
}

/* The kernel of such a product. */
static inline exl2__cuda_kernel exl2__cuda_exl3_crowd_kernel(uint32_t book, uint32_t rows)
{
    static const exl2__cuda_kernel kernels[][4] = {
        { EXL2__KERNEL_exl2k_exl3_crowd8_3inst, EXL2__KERNEL_exl2k_exl3_crowd16_3inst,
          EXL2__KERNEL_exl2k_exl3_crowd32_3inst, EXL2__KERNEL_exl2k_exl3_crowd64_3inst },
        { EXL2__KERNEL_exl2k_exl3_crowd8_mcg, EXL2__KERNEL_exl2k_exl3_crowd16_mcg,
          EXL2__KERNEL_exl2k_exl3_crowd32_mcg, EXL2__KERNEL_exl2k_exl3_crowd64_mcg },
        { EXL2__KERNEL_exl2k_exl3_crowd8_mul1, EXL2__KERNEL_exl2k_exl3_crowd16_mul1,
          EXL2__KERNEL_exl2k_exl3_crowd32_mul1, EXL2__KERNEL_exl2k_exl3_crowd64_mul1 },
    };
    return kernels[book][rows > 32 ? 3 : rows > 16 ? 2 : rows > 8];
}

/* The kernel of a product of few rows with experts. */
static inline exl2__cuda_kernel exl2__cuda_exl3_expert(uint32_t book, uint32_t rows)
{
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_exl3_expert8_3inst, EXL2__KERNEL_exl2k_exl3_expert16_3inst },
        { EXL2__KERNEL_exl2k_exl3_expert8_mcg, EXL2__KERNEL_exl2k_exl3_expert16_mcg },
        { EXL2__KERNEL_exl2k_exl3_expert8_mul1, EXL2__KERNEL_exl2k_exl3_expert16_mul1 },
    };
    return kernels[book][rows > 8];
}

/* The kernel of a product of many rows with experts. wg: by wgmma, in tiles of 128 rows. */
static inline exl2__cuda_kernel exl2__cuda_exl3_expert_gemm(uint32_t book, bool wg)
{
    static const exl2__cuda_kernel kernels[][2] = {
        { EXL2__KERNEL_exl2k_exl3_expert_gemm_3inst, EXL2__KERNEL_exl2k_exl3_expert_wg_3inst },
        { EXL2__KERNEL_exl2k_exl3_expert_gemm_mcg, EXL2__KERNEL_exl2k_exl3_expert_wg_mcg },
        { EXL2__KERNEL_exl2k_exl3_expert_gemm_mul1, EXL2__KERNEL_exl2k_exl3_expert_wg_mul1 },
    };
    return kernels[book][wg];
}

/* Rows of a tile of a product of many rows. wg: by wgmma, on sm_90a. */
static inline uint32_t exl2__cuda_exl3_tile_rows(bool wg, uint32_t rows)
{
    return !wg ? EXL2K_EXL3_GEMM_ROWS : rows <= 128 ? 128 : EXL2K_EXL3_TILE_MAX;
}

/* Outputs of a strip that a CTA of such a product has. 64: two CTAs share a strip, so that more SMs work. They exchange
   their sums through `partial`, which has room for SMs / 2 strips and more. sms: of the device. */
static inline uint32_t exl2__cuda_exl3_outputs(const exl2k_exl3_args *a, uint32_t tile_rows, uint32_t sms)
{
    uint32_t all = exl2__cuda_exl3_strips(a->part, 0, a->parts);
    bool half = tile_rows == 128 && all <= sms && 2 * exl2__cuda_exl3_strips(a->part, a->first, a->count) <= sms;
    return half ? EXL2K_EXL3_BLOCK / 2 : EXL2K_EXL3_BLOCK;
}

/* The kernel of a product of many rows. */
static inline exl2__cuda_kernel exl2__cuda_exl3_gemm(uint32_t book, uint32_t tile_rows, uint32_t outputs)
{
    static const exl2__cuda_kernel kernels[][4] = {
        { EXL2__KERNEL_exl2k_exl3_gemm_3inst, EXL2__KERNEL_exl2k_exl3_wg128_3inst, EXL2__KERNEL_exl2k_exl3_wg256_3inst,
          EXL2__KERNEL_exl2k_exl3_wg128_half_3inst },
        { EXL2__KERNEL_exl2k_exl3_gemm_mcg, EXL2__KERNEL_exl2k_exl3_wg128_mcg, EXL2__KERNEL_exl2k_exl3_wg256_mcg,
          EXL2__KERNEL_exl2k_exl3_wg128_half_mcg },
        { EXL2__KERNEL_exl2k_exl3_gemm_mul1, EXL2__KERNEL_exl2k_exl3_wg128_mul1, EXL2__KERNEL_exl2k_exl3_wg256_mul1,
          EXL2__KERNEL_exl2k_exl3_wg128_half_mul1 },
    };
    return kernels[book][outputs < EXL2K_EXL3_BLOCK ? 3 : tile_rows / 128];
}

static inline uint32_t exl2__cuda_exl3_gemm_threads(uint32_t tile_rows, uint32_t outputs)
{
    return tile_rows < 128 ? EXL2K_EXL3_THREADS : EXL2K_EXL3_WG_THREADS(outputs);
}

/* Dynamic shared memory of such a product. */
static inline uint32_t exl2__cuda_exl3_gemm_shared(uint32_t tile_rows, uint32_t outputs)
{
    return tile_rows < 128 ? EXL2K_EXL3_GEMM_SHARED : EXL2K_EXL3_WG_SHARED(tile_rows, outputs);
}

/* Whether the strips of a product of many rows are decoded once for all of them, where `bytes` are for decoded ones. */
static inline bool exl2__cuda_exl3_by_wide(const exl2__cuda_device *gpu, const exl2k_exl3_args *a, uint64_t bytes)
{
    return a->rows >= EXL2__CUDA_EXL3_WIDE_ROWS && exl2__cuda_exl3_decoded_bytes(1, a->blocks) <= bytes
        && exl2__cuda_exl3_by_wg(gpu);
}

/* Of `strips` strips, those of one launch: all that `bytes` hold when they are decoded, or as many as `sms` SMs have in
   whole rounds. tiles: of 256 rows. */
static inline uint32_t exl2__cuda_exl3_wide_strips(uint32_t strips, uint32_t blocks, uint32_t tiles, uint64_t bytes,
                                                   uint32_t sms)
{
    uint32_t most = (uint32_t)(bytes / exl2__cuda_exl3_decoded_bytes(1, blocks)), rounds = most * tiles / sms;
    uint32_t some = rounds ? rounds * sms / tiles : most;
    return strips <= most ? strips : some;
}

/* The kernel that decodes strips. */
static inline exl2__cuda_kernel exl2__cuda_exl3_strips_kernel(uint32_t book)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_exl3_strips_3inst,
                                                 EXL2__KERNEL_exl2k_exl3_strips_mcg,
                                                 EXL2__KERNEL_exl2k_exl3_strips_mul1 };
    return kernels[book];
}

/* Parts that one launch computes, from `first` on: those that have one codebook. */
static inline uint32_t exl2__cuda_exl3_run(const exl2k_exl3_part *parts, uint32_t first, uint32_t count)
{
    uint32_t end = first + 1;
    while (end < count && parts[end].book == parts[first].book) {
        end++;
    }
    return end - first;
}

/* Strips [first, end) of a part, as a part. Their results keep their places. */
EXL2__PRIVATE exl2k_exl3_part exl2__cuda_exl3_part_range(const exl2k_exl3_part *whole, uint32_t first, uint32_t end)
{
    exl2k_exl3_part p = *whole;
    p.trellis += (uint64_t)first * (EXL2K_EXL3_BLOCK / EXL2K_EXL3_TILE) * 16 * p.rate;
    p.svh += (uint64_t)first * EXL2K_EXL3_BLOCK * sizeof(uint16_t);
    p.bias += p.bias ? (uint64_t)first * EXL2K_EXL3_BLOCK * sizeof(float) : 0;
    p.column += first * EXL2K_EXL3_BLOCK;
    p.columns = exl2__min32(p.columns, end * EXL2K_EXL3_BLOCK) - first * EXL2K_EXL3_BLOCK;
    p.out = (end - first) * EXL2K_EXL3_BLOCK;
    return p;
}

/* The same of a matrix of one part. */
EXL2__PRIVATE exl2__cuda_exl3 exl2__cuda_exl3_range(const exl2__cuda_exl3 *whole, uint32_t first, uint32_t end)
{
    exl2__cuda_exl3 some = *whole;
    some.part[0] = exl2__cuda_exl3_part_range(&whole->part[0], first, end);
    return some;
}

#endif
#endif
