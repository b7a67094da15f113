/* cuda_exl3_plan.h: how products with EXL3 matrices are divided among CTAs.
   takes: kernels_src/exl3_args.h.
   gives: exl2__cuda_exl3_strips, exl2__cuda_exl3_splits, exl2__cuda_exl3_partial_bytes, exl2__cuda_exl3_shared,
          exl2__cuda_exl3_gemv, exl2__cuda_exl3_gemm, exl2__cuda_exl3_run. */
#ifndef EXL2__CUDA_EXL3_PLAN_H
#define EXL2__CUDA_EXL3_PLAN_H

#include "../../../kernels_src/exl3_args.h"
#include "../../0_base/bytes.h"
#include "cuda_kernels.h"

#define EXL2__CUDA_EXL3_SPLITS_MAX 64u
#define EXL2__CUDA_EXL3_CTAS 6u /* of a product of several splits, at most, for each SM */

/* Strips of parts [first, first + count). */
static inline uint32_t exl2__cuda_exl3_strips(const exl2k_exl3_part *parts, uint32_t first, uint32_t count)
{
    uint32_t strips = 0;
    for (uint32_t i = first; i < first + count; i++) {
        strips += parts[i].out / EXL2K_EXL3_BLOCK;
    }
    return strips;
}

/* Splits of a product of few rows whose matrix has `strips` strips of `blocks` blocks: those whose busiest SM has least
   to do. They depend on nothing else, as the bits of a row follow from them. A CTA costs about half a block by itself,
   and an SM hides latencies with two or more of them. */
EXL2__PRIVATE uint32_t exl2__cuda_exl3_splits(uint32_t strips, uint32_t blocks, uint32_t sms)
{
    uint32_t best = 1, most = exl2__min32(blocks, EXL2__CUDA_EXL3_SPLITS_MAX);
    uint64_t least = UINT64_MAX;
    for (uint32_t splits = 1; splits <= most; splits++) {
        uint64_t ctas = exl2__div_up((uint64_t)strips * splits, sms), each = exl2__div_up(blocks, splits);
        uint64_t cost = ctas * (2 * each + 1) * (ctas == 1 ? 12 : ctas == 2 ? 9 : 8);
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

/* Bytes of the sums of all splits of `rows` rows. */
static inline uint64_t exl2__cuda_exl3_partial_bytes(uint32_t strips, uint32_t splits, uint32_t rows)
{
    return (uint64_t)strips * splits * rows * EXL2K_EXL3_BLOCK * sizeof(float);
}

/* Dynamic shared memory of a product of few rows. */
static inline uint32_t exl2__cuda_exl3_shared(const exl2k_exl3_args *a)
{
    uint32_t blocks = (uint32_t)exl2__div_up(a->blocks, a->splits);
    return EXL2K_EXL3_SHARED(a->rows, blocks);
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

/* The kernel of a product of many rows. */
static inline exl2__cuda_kernel exl2__cuda_exl3_gemm(uint32_t book)
{
    static const exl2__cuda_kernel kernels[] = { EXL2__KERNEL_exl2k_exl3_gemm_3inst, EXL2__KERNEL_exl2k_exl3_gemm_mcg,
                                                 EXL2__KERNEL_exl2k_exl3_gemm_mul1 };
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

#endif
