/* exl3_settle.cu: settles one row, and transforms it for an EXL3 matrix.
   takes: settle.cuh, exl3.cuh.
   gives: exl2k_exl3_settle. */
#include "exl3.cuh"
#include "settle.cuh"

/* A warp has 128 neighbours in each run of four elements: a block. */
extern "C" __global__ void __launch_bounds__(EXL2K_SETTLE_THREADS, 1)
exl2k_exl3_settle(const __grid_constant__ exl2k_exl3_settle_args a)
{
    __shared__ f32 partial[3 * EXL2K_WARP];
    u32 lane = threadIdx.x % EXL2K_WARP, hidden = a.settle.hidden;
    uint2 first[EXL2K_EXL3_PARTS]; /* scales are constant */
#pragma unroll
    for (u32 p = 0; p < EXL2K_EXL3_PARTS; p++) {
        first[p] = p < a.parts ? exl2k_exl3_scales(a.suh[p] + threadIdx.x * 8) : make_uint2(0, 0);
    }
    exl2k_settle_settle<4, false>(a.settle, partial, [&](const exl2k_settle_fixed &fixed, exl2k_settle_row &residual,
                                                         exl2k_settle_norm norm) {
        exl2k_settle_each<4>(residual, hidden, [&](u32 n, u32 i, const f32 *v) {
            f32 weight[4], bias[4], y[4];
            bool early = i < EXL2K_SETTLE_EARLY;
            if (!early) {
                exl2k_settle_table<4>(weight, a.settle.weight, n);
                exl2k_settle_table<4>(bias, a.settle.bias, n);
            }
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                u32 own = i % EXL2K_SETTLE_EARLY + j;
                y[j] = a.settle.weight ? exl2k_settle_value(norm, early ? fixed.weight[own] : weight[j],
                                                            early ? fixed.bias[own] : bias[j], v[j]) : v[j];
                y[j] = exl2k_clamp_f16(y[j]);
            }
            uint2 x = make_uint2(exl2k_pack_f16(y[0], y[1]), exl2k_pack_f16(y[2], y[3]));
            exl2k_store2(a.settle.out[0] + n * 2, x.x, x.y);
#pragma unroll
            for (u32 p = 0; p < EXL2K_EXL3_PARTS; p++) {
                if (p < a.parts) {
                    uint2 r = exl2k_exl3_rotated(x, early ? first[p] : exl2k_exl3_scales(a.suh[p] + n * 2), lane);
                    u64 to = a.rotated + p * hidden * 2;
                    exl2k_store(to + exl2k_exl3_place(n), r.x);
                    exl2k_store(to + exl2k_exl3_place(n + 2), r.y);
                }
            }
        });
    });
}
