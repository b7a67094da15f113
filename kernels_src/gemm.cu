/* gemm.cu: the product of 9 and more rows with one matrix, for Llama; and the permutation of its columns.
   takes: gemm.cuh.
   gives: exl2k_gemm, exl2k_gemm_permute.
   owns:  nothing. */
#include "gemm.cuh"

/* ---- permutation of columns ---- */

/* Permutes one row per CTA, in place, through shared memory. */
EXL2K_FN void exl2k_permute_row(const exl2k_gemm_permute_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 shared = exl2k_shared(exl2k_dynamic);
    u64 row = a.values + (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Each thread reads eight elements with their indices, and scatters them in shared memory. */
    for (u32 i = threadIdx.x * 16; i < a.columns * 2; i += EXL2K_GEMM_THREADS * 16) {
        uint4 v = exl2k_load4(row + i), to = exl2k_load_constant4(a.map + i);
        const u32 values[4] = { v.x, v.y, v.z, v.w }, slots[4] = { to.x, to.y, to.z, to.w };
        for (u32 k = 0; k < 8; k++) {
            u32 value = values[k / 2] >> k % 2 * 16, slot = slots[k / 2] >> k % 2 * 16 & 0xFFFF;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + slot * 2), "h"((u16)value) : "memory");
        }
    }
    __syncthreads();
    /* The permuted row goes back to global memory. */
#pragma unroll 1
    for (u32 i = threadIdx.x * 16; i < a.columns * 2; i += EXL2K_GEMM_THREADS * 16) {
        exl2k_store4(row + i, exl2k_shared_load4(shared + i));
    }
}

/* ---- the kernels ---- */

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)
exl2k_gemm(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_products(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS)
exl2k_gemm_permute(const __grid_constant__ exl2k_gemm_permute_args a)
{
    exl2k_permute_row(a);
}
