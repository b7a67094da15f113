/* rope.cuh: reads the angles of RoPE.
   takes: tables that exl2k_rope_table made.
   gives: exl2k_rope_load_angle; exl2k_rope_load_line, exl2k_rope_add_block: its two parts; exl2k_rope_load_block,
          exl2k_rope_join: the second part without a branch. */
#ifndef EXL2K_ROPE_CUH
#define EXL2K_ROPE_CUH

#include "attend_args.h"
#include "base.cuh"

/* The asm is volatile, because otherwise the compiler may load before it is known that there is a table. */
EXL2K_FN void exl2k_rope_load_entry(u64 at, f32 &c, f32 &s)
{
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(c), "=f"(s) : "l"(at));
}

/* Cosine and sine of pair i at a position, from a table of exl2k_attend_args or exl2k_prepare_args; if the table is
   divided, of the position in its block. An index fits u32: whole tables have at most 16 MiB. */
template <typename Args>
EXL2K_FN void exl2k_rope_load_line(const Args &a, u32 position, u32 i, f32 &c, f32 &s)
{
    u32 line = a.rope_divided ? position % EXL2K_ROPE_BLOCK : position;
    exl2k_rope_load_entry(a.rope + (u64)(line * a.rope_pitch + i) * 8, c, s);
}

/* Adds the angle of the position's block, of a divided table: cos(x + y) = cos x cos y - sin x sin y. */
template <typename Args>
EXL2K_FN void exl2k_rope_add_block(const Args &a, u32 position, u32 i, f32 &c, f32 &s)
{
    f32 block_c, block_s, x = c, y = s;
    u32 line = EXL2K_ROPE_BLOCK + position / EXL2K_ROPE_BLOCK;
    exl2k_rope_load_entry(a.rope + (u64)(line * a.rope_pitch + i) * 8, block_c, block_s);
    c = fmaf(x, block_c, -__fmul_rn(y, block_s));
    s = fmaf(y, block_c, __fmul_rn(x, block_s));
}

/* As exl2k_rope_add_block, in two parts: a load that nothing waits for, and the sum, which any table may have. A branch
   around the load would write c and s on one way alone, and there a warp waits until they have arrived. Of a table that
   is not divided it loads what exl2k_rope_load_line does. */
template <typename Args>
EXL2K_FN void exl2k_rope_load_block(const Args &a, u32 position, u32 i, float2 &block)
{
    u32 line = a.rope_divided ? EXL2K_ROPE_BLOCK + position / EXL2K_ROPE_BLOCK : position;
    exl2k_rope_load_entry(a.rope + (u64)(line * a.rope_pitch + i) * 8, block.x, block.y);
}

template <typename Args> EXL2K_FN void exl2k_rope_join(const Args &a, float2 block, f32 &c, f32 &s)
{
    f32 x = c, y = s;
    c = a.rope_divided ? fmaf(x, block.x, -__fmul_rn(y, block.y)) : x;
    s = a.rope_divided ? fmaf(y, block.x, __fmul_rn(x, block.y)) : y;
}

template <typename Args>
EXL2K_FN void exl2k_rope_load_angle(const Args &a, u32 position, u32 i, f32 &c, f32 &s)
{
    exl2k_rope_load_line(a, position, i, c, s);
    if (a.rope_divided) {
        exl2k_rope_add_block(a, position, i, c, s);
    }
}

#endif
