/* probe.cu: measures the bandwidth of device memory by reading more bytes than any cache holds.
   takes: probe_args.h; 4 blocks of 512 threads per multiprocessor.
   gives: exl2k_probe_read. */
#include "probe_args.h"

/* Each thread has four loads in flight. The last words, fewer than 4 per thread, are not read. */
extern "C" __global__ void __launch_bounds__(512) exl2k_probe_read(exl2k_probe_args a)
{
    const uint4 *from = (const uint4 *)a.from;
    exl2k_u64 step = (exl2k_u64)gridDim.x * blockDim.x;
    exl2k_u32 sum = 0;
    /* Read four words per round. */
    for (exl2k_u64 i = blockIdx.x * blockDim.x + threadIdx.x; i + 3 * step < a.words; i += 4 * step) {
        uint4 w0 = __ldcs(from + i), w1 = __ldcs(from + i + step);
        uint4 w2 = __ldcs(from + i + 2 * step), w3 = __ldcs(from + i + 3 * step);
        sum += (w0.x ^ w0.y ^ w0.z ^ w0.w) + (w1.x ^ w1.y ^ w1.z ^ w1.w);
        sum += (w2.x ^ w2.y ^ w2.z ^ w2.w) + (w3.x ^ w3.y ^ w3.z ^ w3.w);
    }
    /* The compiler must assume that this store can happen. */
    if (sum == a.want) {
        *(exl2k_u32 *)a.to = sum;
    }
}
