/* exl3_embed.cu: rows of trellis embeddings (exl3_args.h).
   takes: exl3.cuh, pass_args.h.
   gives: exl2k_exl3_embed. */
#include "exl3.cuh"
#include "pass_args.h"

/* Symbol i, modulo 256, of a ring of `bits` bits a symbol; `ring` is the address of its first word of symbols. */
EXL2K_FN u32 exl2k_exl3_symbol(u64 ring, u32 bits, u32 i)
{
    u32 bit = i % 256 * bits, word = bit / 16, more = exl2k_min(word + 1, 16 * bits - 1);
    u32 pair = exl2k_load_u16(ring + word * 2) | exl2k_load_u16(ring + more * 2) << 16;
    return pair >> bit % 16 & ((1u << bits) - 1);
}

extern "C" __global__ void __launch_bounds__(EXL2K_WARP)
exl2k_exl3_embed(const __grid_constant__ exl2k_exl3_embed_args a)
{
    u32 row = blockIdx.x, group = blockIdx.y, lane = threadIdx.x, steps = (15 + a.bits) / a.bits, state = 0;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint4 own = exl2k_load4(a.rows + row * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (row >= exl2k_load(a.pass) || (own.w & (EXL2K_ROW_DONE | EXL2K_ROW_VECTOR))) {
        return;
    }
    f32 v[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    if (own.x < a.table_rows) {
        u64 ring = a.table + ((u64)own.x * gridDim.y + group) * (1 + 16 * a.bits) * 2;
        f32 scale = exl2k_low(exl2k_load_u16(ring));
        for (u32 i = 0; i < steps; i++) {
            state = state << a.bits | exl2k_exl3_symbol(ring + 2, a.bits, 8 * lane + 256 - steps + i);
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            state = (state << a.bits | exl2k_exl3_symbol(ring + 2, a.bits, 8 * lane + i)) & 0xFFFFu;
            v[i] = exl2k_low(exl2k_exl3_values<EXL2K_EXL3_MUL1>(state, state)) * scale;
        }
    }
    /* H of 256: lane L has the values 8 L .. 8 L + 7. */
#pragma unroll
    for (u32 half = 1; half < 8; half *= 2) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if ((i & half) == 0) {
                f32 x = v[i], y = v[i + half];
                v[i] = x + y;
                v[i + half] = x - y;
            }
        }
    }
#pragma unroll
    for (u32 step = 1; step < EXL2K_WARP; step *= 2) {
        f32 sign = lane & step ? -1.0f : 1.0f;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            v[i] = fmaf(sign, v[i], __shfl_xor_sync(EXL2K_ALL, v[i], step));
        }
    }
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 n = group * 256 + 8 * lane + i;
        if (n < a.hidden) {
            f32 flip = exl2k_low(exl2k_load_u16(a.signs + n * 2));
            exl2k_store_f32(a.residual + ((u64)row * a.residual_pitch + n) * 4, v[i] * 0.0625f * flip * a.scale);
        }
    }
}
