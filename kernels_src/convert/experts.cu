/* convert/experts.cu: what the experts of a calibration pass need besides the router (expert_route.cu) and products:
   weights of rows, sums over the experts of a row, and the blend of their moments.
   takes: convert_args.h.
   gives: exl2k_experts_weigh, exl2k_experts_sum, exl2k_experts_blend. */
#include "base.cuh"
#include "convert/convert_args.h"

/* One row a CTA. */
extern "C" __global__ void __launch_bounds__(256) exl2k_experts_weigh(exl2k_experts_weigh_args a)
{
    u32 slot = a.slots ? ((const u32 *)a.slots)[blockIdx.x] : blockIdx.x;
    f32 weight = ((const f32 *)a.weight)[slot], *x = (f32 *)a.x + (u64)blockIdx.x * a.in;
    for (u32 i = threadIdx.x; i < a.in; i += 256) {
        x[i] *= weight;
    }
}

/* One row of the residual a CTA. */
extern "C" __global__ void __launch_bounds__(256) exl2k_experts_sum(exl2k_experts_sum_args a)
{
    u64 slot = (u64)blockIdx.x * a.active;
    const u32 *place = (const u32 *)a.places + slot, *choice = (const u32 *)a.choice + slot;
    const f32 *weight = (const f32 *)a.weight + slot, *y = (const f32 *)a.y, *bias = (const f32 *)a.bias;
    f32 *out = (f32 *)a.residual + (u64)blockIdx.x * a.hidden;
    for (u32 i = threadIdx.x; i < a.hidden; i += 256) {
        f32 sum = 0;
        for (u32 k = 0; k < a.active; k++) {
            sum += y[(u64)place[k] * a.hidden + i];
            sum += bias ? weight[k] * bias[(u64)choice[k] * a.hidden + i] : 0.0f;
        }
        out[i] += a.scale * sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) exl2k_experts_blend(exl2k_experts_blend_args a)
{
    const f32 *tokens = (const f32 *)a.tokens;
    u64 count = (u64)a.in * a.in;
    f32 shared = (f32)a.in / 4;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < count; i += (u64)gridDim.x * 256) {
        f32 *sums = (f32 *)a.sums + i, mean = 0;
        for (u32 e = 0; e < a.experts; e++) {
            mean += sums[e * count];
        }
        mean = mean / a.all * shared;
        for (u32 e = 0; e < a.experts; e++) {
            sums[e * count] = (sums[e * count] + mean) / (tokens[e] + shared);
        }
    }
}
