/* expert_list.cuh: the experts in use: those that the rows of a slice have chosen, as a list in shared memory.
   takes: base.cuh, expert_args.h.
   gives: exl2k_expert_list, exl2k_expert_list_make, exl2k_expert_used_max, exl2k_expert_rows, exl2k_expert_chosen.
   owns:  nothing; included by expert.cuh and expert_gather.cu. */
#ifndef EXL2K_EXPERT_LIST_CUH
#define EXL2K_EXPERT_LIST_CUH

#include "base.cuh"
#include "expert_args.h"

typedef struct exl2k_expert_list {
    u32 rows;   /* rows of the slice; 0: none */
    u32 count;  /* experts in use */
    u32 *index; /* [count] ascending */
    u32 *marks; /* several rows: byte e has bit r if row r has chosen expert e */
} exl2k_expert_list;

/* Experts in use at most. */
EXL2K_FN u32 exl2k_expert_used_max(const exl2k_expert_choice &c, u32 rows)
{
    return exl2k_min(c.count, rows * c.active);
}

EXL2K_FN u32 exl2k_expert_rows(const exl2k_expert_choice &c)
{
    u32 rows = exl2k_load(c.rows_at);
    return c.first < rows ? exl2k_min(rows - c.first, EXL2K_EXPERT_ROWS) : 0;
}

/* The experts that several rows have chosen. */
EXL2K_FN void exl2k_expert_list_unite(const exl2k_expert_choice &c, exl2k_expert_list &list, u64 choice, u32 threads)
{
    __shared__ u32 count;
    for (u32 i = threadIdx.x; i < (c.count + 3) / 4; i += threads) {
        list.marks[i] = 0;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < list.rows * c.active; i += threads) {
        u32 expert = exl2k_load(choice + i * 4), row = i / c.active;
        atomicOr(&list.marks[expert / 4], 1u << (8 * (expert % 4) + row));
    }
    __syncthreads();
    if (threadIdx.x < EXL2K_WARP) {
        u32 before = 0;
        for (u32 base = 0; base < c.count; base += EXL2K_WARP) {
            u32 expert = base + threadIdx.x;
            bool used = expert < c.count && (list.marks[expert / 4] >> 8 * (expert % 4) & 255) != 0;
            u32 bits = __ballot_sync(EXL2K_ALL, used);
            if (used) {
                list.index[before + __popc(bits & ((1u << threadIdx.x) - 1))] = expert;
            }
            before += __popc(bits);
        }
        if (threadIdx.x == 0) {
            count = before;
        }
    }
    __syncthreads();
    list.count = count;
}

/* Makes the list; every thread of the CTA calls it. memory: u32 [used_max + ceil(count / 4)]. M: 1, or 8 rows. */
template <u32 M>
EXL2K_FN exl2k_expert_list exl2k_expert_list_make(const exl2k_expert_choice &c, u32 *memory, u32 threads)
{
    exl2k_expert_list list;
    list.rows = exl2k_expert_rows(c);
    list.index = memory;
    list.marks = memory + exl2k_expert_used_max(c, M);
    list.count = c.active;
    u64 choice = c.choice + (u64)c.first * c.active * 4;
    if constexpr (M == 1) {
        for (u32 i = threadIdx.x; i < c.active; i += threads) {
            list.index[i] = exl2k_load(choice + i * 4);
        }
        __syncthreads();
    } else {
        exl2k_expert_list_unite(c, list, choice, threads);
    }
    return list;
}

/* Whether row `row` of the slice has chosen the expert. */
template <u32 M> EXL2K_FN bool exl2k_expert_chosen(const exl2k_expert_list &list, u32 expert, u32 row)
{
    return M == 1 || (list.marks[expert / 4] >> (8 * (expert % 4) + row) & 1) != 0;
}

#endif
