/* convert/half.cuh: where a product of halves goes.
   takes: base.cuh; convert_args.h.
   gives: exl2k_half_store. */
#ifndef EXL2K_HALF_CUH
#define EXL2K_HALF_CUH

#include "base.cuh"
#include "convert/convert_args.h"

EXL2K_FN void exl2k_half_store(const exl2k_half_product_args &a, u32 row, u32 column, f32 sum)
{
    if (row < a.m && column < a.n) {
        f32 *to = (f32 *)a.c + (u64)row * a.c_pitch + column;
        f32 value = sum * ((const f32 *)a.a_scale)[row];
        value = a.b_scale ? value * ((const f32 *)a.b_scale)[column] : value;
        value = a.bias ? value + ((const f32 *)a.bias)[column] : value;
        *to = a.add != 0.0f ? *to + a.add * value : value;
    }
}

#endif
