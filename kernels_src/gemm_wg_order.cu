/* gemm_wg_order.cu: writes the inputs of products by wgmma as tiles, in the order of their reader.
   takes: gemm_wg_args.h, wg_tiles.cuh.
   gives: exl2k_wg_order. */
#include "base.cuh"
#include "gemm_wg_args.h"
#include "wg_tiles.cuh"

/* Each row goes through shared memory: the permutation scatters there, so that global memory is accessed in whole
   sectors. */
extern "C" __global__ void __launch_bounds__(EXL2K_WG_ORDER_THREADS)
exl2k_wg_order(const __grid_constant__ exl2k_wg_order_args a)
{
    extern __shared__ uint4 exl2k_staged[];
    u32 shared = exl2k_shared(exl2k_staged), row = blockIdx.x;
    uint4 map = make_uint4(0, 0, 0, 0); /* of the eight elements that the thread moves */
    if (a.map && threadIdx.x < a.columns / 8) {
        map = exl2k_load_constant4(a.map + threadIdx.x * 16); /* the first ones: while the kernel before ends */
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u32 i = threadIdx.x; i < a.columns / 8; i += blockDim.x) {
        uint4 v = exl2k_load4(a.from + ((u64)row * a.from_pitch + i * 8) * 2);
        if (a.map && i >= blockDim.x) {
            map = exl2k_load_constant4(a.map + i * 16);
        }
        u32 values[4] = { v.x, v.y, v.z, v.w }, places[4] = { map.x, map.y, map.z, map.w };
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 first = i * 8 + k * 2, to = first | (first + 1) << 16;
            to = a.map ? places[k] : to;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + (to & 0xFFFF) * 2), "h"((u16)values[k]) : "memory");
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + (to >> 16) * 2), "h"((u16)(values[k] >> 16))
                         : "memory");
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < a.columns / 8; i += blockDim.x) {
        exl2k_wg_store_chunk(a.to, i, shared, row, a.rows);
    }
}
