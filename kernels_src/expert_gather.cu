/* expert_gather.cu: rows in the packed orders of their experts, for layers whose experts have different orders; and the
   weight of a shared expert.
   takes: expert_args.h.
   gives: exl2k_expert_gather, exl2k_expert_switch. */
#include "expert_list.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_GATHER_THREADS)
exl2k_expert_gather(const __grid_constant__ exl2k_expert_gather_args a)
{
    extern __shared__ u32 exl2k_gather_memory[];
    u32 used = blockIdx.x, row = blockIdx.y;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    exl2k_expert_list list =
        exl2k_expert_list_make<EXL2K_EXPERT_ROWS>(a.rows, exl2k_gather_memory, EXL2K_EXPERT_GATHER_THREADS);
    if (used >= list.count || row >= list.rows || !exl2k_expert_chosen<8>(list, list.index[used], row)) {
        return;
    }
    u64 expert = a.experts + (u64)list.index[used] * sizeof(exl2k_expert);
    uint2 words = exl2k_load_constant2(expert + 2 * sizeof(exl2k_matrix));
    u64 map = (u64)words.y << 32 | words.x, from = a.from + (u64)(a.rows.first + row) * a.pitch * 2;
    u64 to = a.to + (u64)(used * EXL2K_EXPERT_ROWS + row) * a.pitch * 2;
    for (u32 n = threadIdx.x; n < a.inputs; n += EXL2K_EXPERT_GATHER_THREADS) {
        exl2k_store_u16(to + (map ? exl2k_load_u16(map + n * 2) : n) * 2, exl2k_load_u16(from + n * 2));
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXPERT_GATHER_THREADS)
    exl2k_expert_switch(exl2k_expert_switch_args a)
{
    u32 row = blockIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= exl2k_load(a.rows_at)) {
        return;
    }
    f32 weight = exl2k_load_f32(a.weight + row * 4);
    for (u32 n = threadIdx.x; n < a.count; n += EXL2K_EXPERT_GATHER_THREADS) {
        u64 at = a.h + ((u64)row * a.pitch + n) * 2;
        exl2k_store_u16(at, exl2k_f32_to_f16(exl2k_f16_to_f32(exl2k_load_u16(at)) * weight));
    }
}
