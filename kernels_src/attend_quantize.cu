/* attend_quantize.cu: stores K and V of a pass's rows in a quantized cache; writes its pages as fp16, for prefill.
   takes: attend.cuh, codes.cuh.
   gives: exl2k_attend_quantize, exl2k_attend_expand. */
#include "attend.cuh"
#include "codes.cuh"

/* A warp stores one head of K or V of a row. */
extern "C" __global__ void __launch_bounds__(128) exl2k_attend_quantize(exl2k_attend_args a)
{
    __shared__ __align__(16) u16 staged[4][256];
    u32 head = blockIdx.y * 4 + threadIdx.x / 32; /* first K, then V */
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (blockIdx.x >= exl2k_load(a.pass) || (row.w & EXL2K_ROW_DONE) || head >= 2 * a.kv_heads) {
        return;
    }
    u32 page = exl2k_load(exl2k_table_line(a, row.z) + row.y / EXL2K_PAGE_TOKENS * 4);
    bool value = head >= a.kv_heads;
    u16 *to = staged[threadIdx.x / 32];
    f32 v[8];
    exl2k_head_elements<8>(a, blockIdx.x, exl2k_rope_position(row.y, row.w), (a.heads + head) * a.dim, value, to, v);
    exl2k_codes_make<8>(v, value ? a.value_bits : a.key_bits, to);
    exl2k_codes_store<8>(a, page, row.y, value ? head - a.kv_heads : head, value, to);
}

/* Codes and scale of 8 elements of a token. */
typedef struct exl2k_expand_input {
    uint2 codes;
    u32 scale;
} exl2k_expand_input;

EXL2K_FN exl2k_expand_input exl2k_expand_load(const exl2k_attend_args &a, u32 page, u32 token, u32 group, u32 part,
                                              bool value)
{
    u32 bits = value ? a.value_bits : a.key_bits;
    u64 at = exl2k_codes_at(a, page, blockIdx.y, value) + (token * exl2k_groups(a) + group) * 4 * bits + part * bits;
    exl2k_expand_input in = { make_uint2(exl2k_load(at), bits == 8 ? exl2k_load(at + 4) : 0), 0 };
    in.scale = exl2k_load_u16(exl2k_scales_at(a, page, blockIdx.y, value) + (group * EXL2K_PAGE_TOKENS + token) * 2);
    return in;
}

EXL2K_FN void exl2k_expand_store(const exl2k_attend_args &a, const exl2k_expand_input &in, u64 to, u32 first, u32 bits)
{
    f32 v[8];
    exl2k_unpack8(in.codes, bits, in.scale, v);
    exl2k_rotate<8>(v, exl2k_group_short(a, first / 32), EXL2K_ALL);
    u32 pairs[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        pairs[i] = exl2k_pack_f16(exl2k_clamp_f16(v[2 * i]), exl2k_clamp_f16(v[2 * i + 1]));
    }
    if (first < a.dim) {
        exl2k_store4(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
    }
}

#if __CUDA_ARCH__ >= 1200 /* left alone, ptxas 13.0 uses 48 registers and four words of local memory there */
#define EXL2K_EXPAND_BOUNDS __launch_bounds__(256, 4)
#else
#define EXL2K_EXPAND_BOUNDS __launch_bounds__(256)
#endif

/* The tiles of a sequence divide the pages that its rows attend to. Four lanes expand a group of K and of V. */
extern "C" __global__ void EXL2K_EXPAND_BOUNDS exl2k_attend_expand(exl2k_attend_args a)
{
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    if (blockIdx.x >= counts.z) {
        return;
    }
    u64 tiles = addresses.z | (u64)addresses.w << 32;
    uint4 tile = exl2k_load4(tiles + blockIdx.x * sizeof(exl2k_tile)); /* row, rows, pair */
    uint4 row = exl2k_load4(a.rows + tile.x * sizeof(exl2k_row));
    u32 last = (row.y + tile.y - 1) / EXL2K_PAGE_TOKENS, groups = exl2k_groups(a);
    u32 each = (tile.y * a.group + EXL2K_TILE_PAIRS - 1) / EXL2K_TILE_PAIRS;
    u32 begin = exl2k_window_begin(a, row.y) / EXL2K_PAGE_TOKENS + tile.z / EXL2K_TILE_PAIRS;
    u64 table = exl2k_table_line(a, row.z), head_bytes = EXL2K_PAGE_TOKENS * a.dim * 2;
    for (u32 p = begin + blockIdx.z * each; p <= last; p += gridDim.z * each) {
        u32 page = exl2k_load(table + p * 4);
        u64 to = a.expanded + ((u64)page * 2 * a.kv_heads + blockIdx.y) * head_bytes;
        for (u32 item = threadIdx.x; item < EXL2K_PAGE_TOKENS * groups * 4; item += 256) {
            u32 part = item % 4, group = item / 4 % groups, token = item / 4 / groups, first = group * 32 + part * 8;
            exl2k_expand_input k = exl2k_expand_load(a, page, token, group, part, false);
            exl2k_expand_input v = exl2k_expand_load(a, page, token, group, part, true);
            u64 at = to + (token * a.dim + first) * 2;
            exl2k_expand_store(a, k, at, first, a.key_bits);
            exl2k_expand_store(a, v, at + a.kv_heads * head_bytes, first, a.value_bits);
        }
    }
}
