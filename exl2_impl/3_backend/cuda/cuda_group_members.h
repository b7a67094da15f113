/* cuda_group_members.h: several GPUs that share every matrix of a model, and what each of them has.
   takes: models of the CUDA backend.
   gives: exl2__cuda_group_gpus, exl2__cuda_shared, exl2__cuda_group, exl2__cuda_group_of, exl2__cuda_group_part,
          exl2__cuda_group_matrix, exl2__cuda_group_norm.
   owns:  nothing; the members and records are the backend's (cuda_group.h). */
#ifndef EXL2__CUDA_GROUP_MEMBERS_H
#define EXL2__CUDA_GROUP_MEMBERS_H

#include "cuda.h"

typedef struct exl2__cuda_group_gpus {
    exl2__cuda_device *of[EXL2K_MEET_GPUS]; /* [count] */
    float shares[EXL2K_MEET_GPUS];          /* as exl2__columns_make has them */
    uint32_t count;
} exl2__cuda_group_gpus;

/* A matrix, or a vector, of all members. */
typedef struct exl2__cuda_shared {
    struct exl2__cuda_shared *next;
    void *of[EXL2K_MEET_GPUS];
} exl2__cuda_shared;

typedef struct exl2__cuda_group { /* exl2__device of this backend */
    exl2__ctx *c;
    exl2__device *of[EXL2K_MEET_GPUS]; /* [count] */
    uint32_t count, reserved;          /* reserved: number of members whose memory is reserved */
    exl2__plan plans[EXL2K_MEET_GPUS];
    exl2__cuda_shared *shared;
    exl2__cuda_lora_block *lora_blocks;
    uint8_t *page;                     /* [page_max] of one member, as it is copied */
    uint64_t page_max;
} exl2__cuda_group;

static inline exl2__cuda_group *exl2__cuda_group_of(const exl2__device *d)
{
    return (exl2__cuda_group *)(uintptr_t)d;
}

static inline void *exl2__cuda_group_part(const void *shared, uint32_t index)
{
    return shared ? ((const exl2__cuda_shared *)shared)->of[index] : NULL;
}

static inline exl2__matrix *exl2__cuda_group_matrix(const exl2__matrix *shared, uint32_t index)
{
    return (exl2__matrix *)exl2__cuda_group_part(shared, index);
}

static inline exl2__norm exl2__cuda_group_norm(exl2__norm shared, uint32_t index)
{
    return (exl2__norm){ (exl2__vector *)exl2__cuda_group_part(shared.weight, index),
                         (exl2__vector *)exl2__cuda_group_part(shared.bias, index) };
}

#endif
