/* gemm_wg_order.cu: writes the inputs of products by wgmma as tiles, in the order of their reader.
   takes: gemm_wg_args.h, wg_tiles.cuh.
   gives: exl2k_wg_order.
   owns:  nothing. */
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
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u32 i = threadIdx.x; i < a.columns / 8; i += blockDim.x) {
        /* Load 8 elements. Without order they are columns n to n + 3 and n + 8 to n + 11 of a strip, two by two. */
        u32 n = a.from_pitch ? i * 8 : i / 2 * 16 + i % 2 * 4, more = a.from_pitch ? 4 : 8;
        u64 at = a.from_pitch ? ((u64)row * a.from_pitch + n) * 2 : ((u64)(i / 4) * a.rows + row) * 64 + i % 4 * 16;
        uint4 v = exl2k_load4(a.from + at);
        u32 left[2] = { v.x, a.from_pitch ? v.y : v.z }, right[2] = { a.from_pitch ? v.z : v.y, v.w };
        u32 values[4] = { left[0], left[1], right[0], right[1] };
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 first = n + k / 2 * more + k % 2 * 2, to = first | (first + 1) << 16;
            to = a.map ? exl2k_load_constant(a.map + first * 2) : to;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + (to & 0xFFFF) * 2), "h"((u16)values[k]) : "memory");
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + (to >> 16) * 2), "h"((u16)(values[k] >> 16))
                         : "memory");
        }
    }
    __syncthreads();
    /* Store chunk by chunk. */
    for (u32 i = threadIdx.x; i < a.columns / 8; i += blockDim.x) {
        u32 from = shared + i / 4 * 64 + i % 4 * 4;
        exl2k_store4(a.to + exl2k_wg_chunk_at(i / 4, i % 4, row, a.rows),
                     make_uint4(exl2k_shared_load(from), exl2k_shared_load(from + 16), exl2k_shared_load(from + 32),
                                exl2k_shared_load(from + 48)));
    }
}
