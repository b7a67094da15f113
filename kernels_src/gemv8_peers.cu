/* gemv8_peers.cu: the product of 2 to 8 rows with one matrix, for Llama, whose GPUs give each other its columns
   (peers_args.h).
   takes: gemv.cuh.
   gives: exl2k_gemv8_peers. */
#define EXL2K_PEERS 1
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_GEMV_THREADS, 1)
exl2k_gemv8_peers(const __grid_constant__ exl2k_peers_gemv_args a)
{
    exl2k_gemv<8>(a);
}
