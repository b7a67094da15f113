/* rope.cuh: reads the angles of RoPE.
   takes: tables that exl2k_rope_table made.
   gives: exl2k_rope_position; exl2k_rope_load_angle; exl2k_rope_load_line, exl2k_rope_add_block: its two parts. */
#ifndef EXL2K_ROPE_CUH
#define EXL2K_ROPE_CUH

#include "attend_args.h"
#include "base.cuh"

/* The position of a row's angle. flags: of the row. */
EXL2K_FN u32 exl2k_rope_position(u32 position, u32 flags)
{
    int moved = (int)flags >> EXL2K_ROW_MOVED;
    return flags & EXL2K_ROW_LATER ? position : position + (u32)moved;
}

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

template <typename Args>
EXL2K_FN void exl2k_rope_load_angle(const Args &a, u32 position, u32 i, f32 &c, f32 &s)
{
    exl2k_rope_load_line(a, position, i, c, s);
    if (a.rope_divided) {
        exl2k_rope_add_block(a, position, i, c, s);
    }
}

#endif
