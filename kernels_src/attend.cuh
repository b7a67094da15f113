/* attend.cuh: functions that decode and prefill share: q, k, v of a row, RoPE, pages, tiles in shared memory.
   takes: base.cuh, attend_args.h; EXL2K_DIM: 64, 128 or 256, the largest dim.
   gives: exl2k_qkv, exl2k_rope_load, exl2k_rope_apply, exl2k_out_index, exl2k_page_of, exl2k_tile_at, exl2k_exp2,
          exl2k_sink_weight.

   A tile of K or V in shared memory has EXL2K_DIM halves per token, in pieces of 16 bytes. Piece p of token i is
   stored at position p ^ (i % 8), so that a column of eight tokens lies in different banks. */
#ifndef EXL2K_ATTEND_CUH
#define EXL2K_ATTEND_CUH

#include "attend_args.h"
#include "base.cuh"
#include "rope.cuh"

#define EXL2K_LOG2E 1.4426950408889634f
#define EXL2K_MINUS_INF __uint_as_float(0xFF800000u)

EXL2K_FN f32 exl2k_exp2(f32 x) /* subnormal results become 0 */
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The weight of a head's sink beside those of tokens. max_score: the score, times log2(e), whose weight is 1. */
EXL2K_FN f32 exl2k_sink_weight(const exl2k_attend_args &a, u32 head, f32 max_score)
{
    return a.sinks ? exl2k_exp2(fmaf(exl2k_load_f32(a.sinks + head * 4), EXL2K_LOG2E, -max_score)) : 0.0f;
}

/* tanh(x), for `twice` = 2 log2(e) x, with an error of at most 4e-7; tanh.approx has one of 5e-4. */
EXL2K_FN f32 exl2k_tanh(f32 twice) { return fmaf(-2.0f, exl2k_reciprocal(exl2k_exp2(twice) + 1.0f), 1.0f); }

/* Transposes an 8 x 8 tile. Lane 4g + t holds columns 2t and 2t + 1 of row g. */
EXL2K_FN u32 exl2k_transpose(u32 pair)
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

/* The two elements of a pair (see PAIRS in attend_args.h), and the cosine and sine of their angle. Loading and rotating
   are separate functions, so that all loads can be issued before the first use. */
typedef struct exl2k_rope_input {
    f32 x, y, c, s;
} exl2k_rope_input;

/* split: a.rope_split; dim / 2 for V, whose elements keep their places. */
EXL2K_FN void exl2k_rope_load_elements(const exl2k_attend_args &a, u32 row, u32 feature, u32 i, u32 split,
                                       exl2k_rope_input &u)
{
    u.x = exl2k_qkv(a, row, feature + (i < split ? i : 2 * i));
    u.y = exl2k_qkv(a, row, feature + (i < split ? i + split : 2 * i + 1));
}

EXL2K_FN exl2k_rope_input exl2k_rope_load(const exl2k_attend_args &a, u32 row, u32 position, u32 feature, u32 i)
{
    exl2k_rope_input u;
    exl2k_rope_load_elements(a, row, feature, i, a.rope_split, u);
    exl2k_rope_load_angle(a, position, i, u.c, u.s);
    return u;
}

/* Returns the rotated elements as a half pair. The intrinsics fix which product is rounded separately, so that a row
   has the same bits wherever it is rotated. */
EXL2K_FN u32 exl2k_rope_apply(const exl2k_rope_input &u)
{
    return exl2k_pack_f16(exl2k_clamp_f16(fmaf(u.x, u.c, -__fmul_rn(u.y, u.s))),
                          exl2k_clamp_f16(fmaf(u.y, u.c, __fmul_rn(u.x, u.s))));
}

/* Index of an output. The map is constant, so these loads may be issued early. */
EXL2K_FN u32 exl2k_out_index(const exl2k_attend_args &a, u32 feature)
{
    u16 index = (u16)feature;
    if (a.map) {
        asm("ld.global.nc.u16 %0, [%1];" : "=h"(index) : "l"(a.map + feature * 2));
    }
    return index;
}

/* Indices of four outputs, a u16 each; the first feature is a multiple of 4. */
EXL2K_FN uint2 exl2k_out_indices(const exl2k_attend_args &a, u32 feature)
{
    uint2 indices = make_uint2(feature | (feature + 1) << 16, (feature + 2) | (feature + 3) << 16);
    if (a.map) {
        asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(indices.x), "=r"(indices.y) : "l"(a.map + feature * 2));
    }
    return indices;
}

EXL2K_FN u32 exl2k_value(const exl2k_attend_args &a, u32 row, u32 head, u32 i)
{
    u32 feature = (a.heads + a.kv_heads + head) * a.dim + i;
    return exl2k_f32_to_f16(exl2k_clamp_f16(exl2k_qkv(a, row, feature)));
}

/* Address of a head's K in a page; its V lies exl2k_value_offset bytes after it. */
EXL2K_FN u64 exl2k_page_of(const exl2k_attend_args &a, u32 page, u32 head)
{
    return a.pages + (u64)page * a.page_bytes + (u64)head * EXL2K_PAGE_TOKENS * a.dim * 2;
}

EXL2K_FN u64 exl2k_value_offset(const exl2k_attend_args &a) { return (u64)a.kv_heads * EXL2K_PAGE_TOKENS * a.dim * 2; }

/* Address of a sequence's line of the page tables: one u32 per page. */
EXL2K_FN u64 exl2k_table_line(const exl2k_attend_args &a, u32 sequence)
{
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    return (addresses.x | (u64)addresses.y << 32) + (u64)sequence * counts.w * 4;
}

/* The first token that a row at this position attends to. */
EXL2K_FN u32 exl2k_window_begin(const exl2k_attend_args &a, u32 position)
{
    return position + 1 - exl2k_min(position + 1, a.window);
}

#ifdef EXL2K_DIM
#define EXL2K_PIECES (EXL2K_DIM / 8)     /* pieces of 16 bytes per token */
#define EXL2K_TOKEN_BYTES (EXL2K_DIM * 2)

/* Offset of a token's piece in a tile. */
EXL2K_FN u32 exl2k_tile_at(u32 token, u32 piece) { return token * EXL2K_TOKEN_BYTES + ((piece ^ (token & 7)) << 4); }

/* Offset of one element in a tile. */
EXL2K_FN u32 exl2k_tile_element(u32 token, u32 i) { return exl2k_tile_at(token, i / 8) + (i & 7) * 2; }

/* Copies 16 bytes, or writes zeros. Both addresses are multiples of 16; `from` must be a valid address in either
   case. */
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

/* ldmatrix address of this lane, for tokens 0..15 as the MMA's rows and dims 16 step .. + 15 as its columns. */
EXL2K_FN u32 exl2k_tile_rows(u32 tile, u32 step)
{
    u32 lane = threadIdx.x % 32;
    return tile + exl2k_tile_at((lane & 7) + (lane & 8), 2 * step + (lane >> 4));
}

/* The transposed order: dims 16 step .. + 15 as rows, tokens 0..15 as columns. */
EXL2K_FN u32 exl2k_tile_columns(u32 tile, u32 step)
{
    u32 lane = threadIdx.x % 32;
    return tile + exl2k_tile_at((lane & 7) + (lane >> 4 << 3), 2 * step + (lane >> 3 & 1));
}
#endif

#endif
