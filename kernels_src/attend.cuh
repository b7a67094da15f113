/* attend.cuh: what both kinds of attention share: q, k, v of a row, RoPE, pages, tiles in shared memory.
   takes: base.cuh, attend_args.h; EXL2K_DIM: 64, 128 or 256, the largest dim.
   gives: exl2k_qkv, exl2k_rope_pair, exl2k_out_place, exl2k_page_of, exl2k_tile_at, exl2k_exp2.
   owns:  nothing.
   next:  attend_ring.cuh

   A tile of K or V in shared memory has EXL2K_DIM halves a token, its 16-byte pieces swapped about so that eight
   tokens of a column lie in different banks: piece p of token i is at place p ^ (i % 8). */
#ifndef EXL2K_ATTEND_CUH
#define EXL2K_ATTEND_CUH

#include "attend_args.h"
#include "base.cuh"

#define EXL2K_LOG2E 1.4426950408889634f
#define EXL2K_MINUS_INF __uint_as_float(0xFF800000u)

EXL2K_FN f32 exl2k_exp2(f32 x) /* subnormal results are 0 */
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The 8 x 8 tile whose row g lane 4g + t has as columns 2t, 2t + 1, mirrored. */
EXL2K_FN u32 exl2k_mirror(u32 pair)
{
    u32 mirrored;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(mirrored) : "r"(pair));
    return mirrored;
}

EXL2K_FN f32 exl2k_qkv(const exl2k_attend_args &a, u32 row, u32 feature)
{
    u64 at = (u64)row * a.qkv_pitch + feature;
    return a.qkv_half ? exl2k_f16_to_f32(exl2k_load_u16(a.qkv + at * 2)) : exl2k_load_f32(a.qkv + at * 4);
}

/* Elements i and i + dim / 2 of a head, and their angle. All loads are issued before anything waits for one. */
typedef struct exl2k_unturned {
    f32 x, y, c, s;
} exl2k_unturned;

EXL2K_FN void exl2k_angle_load(const exl2k_attend_args &a, u32 position, u32 i, exl2k_unturned &u)
{
    asm("ld.global.nc.v2.f32 {%0, %1}, [%2];"
        : "=f"(u.c), "=f"(u.s) : "l"(a.rope + ((u64)position * (a.dim / 2) + i) * 8));
}

EXL2K_FN void exl2k_elements_load(const exl2k_attend_args &a, u32 row, u32 feature, u32 i, exl2k_unturned &u)
{
    u.x = exl2k_qkv(a, row, feature + i);
    u.y = exl2k_qkv(a, row, feature + a.dim / 2 + i);
}

EXL2K_FN exl2k_unturned exl2k_unturned_load(const exl2k_attend_args &a, u32 row, u32 position, u32 feature, u32 i)
{
    exl2k_unturned u;
    exl2k_elements_load(a, row, feature, i, u);
    exl2k_angle_load(a, position, i, u);
    return u;
}

/* The rotated elements as a half pair; which product is rounded by itself is not left to the compiler, so that a row
   has the same bits wherever it is rotated. */
EXL2K_FN u32 exl2k_turn(const exl2k_unturned &u)
{
    return exl2k_pack_f16(exl2k_clamp_f16(fmaf(u.x, u.c, -__fmul_rn(u.y, u.s))),
                          exl2k_clamp_f16(fmaf(u.y, u.c, __fmul_rn(u.x, u.s))));
}

EXL2K_FN u32 exl2k_rope_pair(const exl2k_attend_args &a, u32 row, u32 position, u32 feature, u32 i)
{
    return exl2k_turn(exl2k_unturned_load(a, row, position, feature, i));
}

/* Where an output goes; constant, so that these loads may be issued early. */
EXL2K_FN u32 exl2k_out_place(const exl2k_attend_args &a, u32 feature)
{
    u16 place = (u16)feature;
    if (a.map) {
        asm("ld.global.nc.u16 %0, [%1];" : "=h"(place) : "l"(a.map + feature * 2));
    }
    return place;
}

/* Of four features, the first a multiple of 4: a u16 each. */
EXL2K_FN uint2 exl2k_out_places(const exl2k_attend_args &a, u32 feature)
{
    uint2 places = make_uint2(feature | (feature + 1) << 16, (feature + 2) | (feature + 3) << 16);
    if (a.map) {
        asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(places.x), "=r"(places.y) : "l"(a.map + feature * 2));
    }
    return places;
}

EXL2K_FN u32 exl2k_value(const exl2k_attend_args &a, u32 row, u32 head, u32 i)
{
    u32 feature = (a.heads + a.kv_heads + head) * a.dim + i;
    return exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_qkv(a, row, feature)));
}

/* Address of the page's K of a head; its V lies exl2k_value_offset behind. */
EXL2K_FN u64 exl2k_page_of(const exl2k_attend_args &a, u32 page, u32 head)
{
    return a.pages + (u64)page * a.page_bytes + (u64)head * EXL2K_PAGE_TOKENS * a.dim * 2;
}

EXL2K_FN u64 exl2k_value_offset(const exl2k_attend_args &a) { return (u64)a.kv_heads * EXL2K_PAGE_TOKENS * a.dim * 2; }

/* Line of the page tables of a sequence: u32 a page. */
EXL2K_FN u64 exl2k_table_line(const exl2k_attend_args &a, u32 sequence)
{
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    return (addresses.x | (u64)addresses.y << 32) + (u64)sequence * counts.w * 4;
}

#ifdef EXL2K_DIM
#define EXL2K_PIECES (EXL2K_DIM / 8)     /* of 16 bytes, a token */
#define EXL2K_TOKEN_BYTES (EXL2K_DIM * 2)

/* Offset in a tile of a piece of a token. */
EXL2K_FN u32 exl2k_tile_at(u32 token, u32 piece) { return token * EXL2K_TOKEN_BYTES + ((piece ^ (token & 7)) << 4); }

/* Of one element. */
EXL2K_FN u32 exl2k_tile_element(u32 token, u32 i) { return exl2k_tile_at(token, i / 8) + (i & 7) * 2; }

/* 16 bytes, or zeros that need no source. Both addresses are multiples of 16, `from` in memory that is there. */
EXL2K_FN void exl2k_copy16_or_zeros(u32 to, u64 from, bool copy)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copy ? 16 : 0) : "memory");
#else
    exl2k_shared_store4(to, copy ? exl2k_load4(from) : make_uint4(0, 0, 0, 0));
#endif
}

EXL2K_FN void exl2k_shared_store_u16(u32 at, u32 v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((u16)v) : "memory");
}

/* ldmatrix addresses. Rows as the MMA's rows: tokens 0..15, dims 16 step .. + 15. */
EXL2K_FN u32 exl2k_tile_rows(u32 tile, u32 step)
{
    u32 lane = threadIdx.x % 32;
    return tile + exl2k_tile_at((lane & 7) + (lane & 8), 2 * step + (lane >> 4));
}

/* Mirrored: dims 16 step .. + 15 as rows, tokens 0..15 as columns. */
EXL2K_FN u32 exl2k_tile_columns(u32 tile, u32 step)
{
    u32 lane = threadIdx.x % 32;
    return tile + exl2k_tile_at((lane & 7) + (lane >> 4 << 3), 2 * step + (lane >> 3 & 1));
}
#endif

#endif
