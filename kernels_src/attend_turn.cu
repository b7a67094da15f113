/* attend_turn.cu: rotates q and k where positions have three axes (M-RoPE), before attention.
   takes: attend_args.h, rope.cuh.
   gives: exl2k_attend_turn.

   The rotation is that of attention (exl2k_rope_apply), before its results become halves: a row with the same angle on
   all axes has the bits that attention alone gives. */
#include "rope.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_TURN_THREADS) exl2k_attend_turn(exl2k_turn_args a)
{
    u32 row = blockIdx.x, half = a.dim / 2;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint4 own = exl2k_load4(a.rows + row * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (row >= exl2k_load(a.pass) || (own.w & EXL2K_ROW_DONE)) {
        return;
    }
    u64 head = a.qkv + ((u64)row * a.pitch + blockIdx.y * a.dim) * 4; /* of q, then of k */
    for (u32 i = threadIdx.x; i < half; i += EXL2K_TURN_THREADS) {
        u32 axis = *(const u8 *)(a.axes + i), position = own.y + exl2k_load(a.turns + (row * 3 + axis) * 4);
        u32 first = i < a.rope_split ? i : 2 * i, second = i < a.rope_split ? i + a.rope_split : 2 * i + 1;
        f32 c, s, x = exl2k_load_f32(head + first * 4), y = exl2k_load_f32(head + second * 4);
        exl2k_rope_load_angle(a, position, i, c, s);
        exl2k_store_f32(head + first * 4, fmaf(x, c, -__fmul_rn(y, s)));
        exl2k_store_f32(head + second * 4, fmaf(y, c, __fmul_rn(x, s)));
    }
}
