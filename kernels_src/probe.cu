/* probe.cu: what this device's memory really gives, the yardstick of every figure: reads of more bytes than any cache
   holds.
   takes: probe_args.h; 4 blocks of 512 threads a multiprocessor.
   gives: exl2k_probe_read.
   owns:  nothing.
   next:  kernels.def.h */
#include "probe_args.h"

/* Four loads in flight a thread; the last words, fewer than 4 a thread, are left out. */
extern "C" __global__ void __launch_bounds__(512) exl2k_probe_read(exl2k_probe_args a)
{
    const uint4 *from = (const uint4 *)a.from;
    exl2k_u64 step = (exl2k_u64)gridDim.x * blockDim.x;
    exl2k_u32 sum = 0;
    for (exl2k_u64 i = blockIdx.x * blockDim.x + threadIdx.x; i + 3 * step < a.words; i += 4 * step) {
        uint4 w0 = __ldcs(from + i), w1 = __ldcs(from + i + step);
        uint4 w2 = __ldcs(from + i + 2 * step), w3 = __ldcs(from + i + 3 * step);
        sum += (w0.x ^ w0.y ^ w0.z ^ w0.w) + (w1.x ^ w1.y ^ w1.z ^ w1.w);
        sum += (w2.x ^ w2.y ^ w2.z ^ w2.w) + (w3.x ^ w3.y ^ w3.z ^ w3.w);
    }
    if (sum == a.want) {
        *(exl2k_u32 *)a.to = sum;
    }
}
