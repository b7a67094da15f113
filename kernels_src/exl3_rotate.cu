/* exl3_rotate.cu: transformed inputs of EXL3 products of many rows, and the decoder as a kernel of its own.
   takes: exl3.cuh, exl3_out.cuh.
   gives: exl2k_exl3_rotate, exl2k_exl3_dump. */
#include "exl3_out.cuh"

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_rotate(const __grid_constant__ exl2k_exl3_rotate_args a)
{
    u32 lane = threadIdx.x % EXL2K_WARP, block = blockIdx.x * EXL2K_EXL3_WARPS + threadIdx.x / EXL2K_WARP;
    u32 part = blockIdx.y / a.rotated_rows, row = blockIdx.y % a.rotated_rows;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (block >= a.blocks) {
        return;
    }
    uint2 pairs = make_uint2(0, 0);
    if (row < rows) {
        pairs = exl2k_exl3_input(a.x + (u64)row * a.x_pitch * 2, a.suh[part], block, a.in, lane);
    }
    u32 k = block * EXL2K_EXL3_BLOCK + 4 * lane;
    if (a.order == EXL2K_EXL3_FRAGMENTS) {
        u64 to = a.rotated + (u64)(part * a.blocks + block) * a.rotated_rows * 256 + row / 8 * 2048 + row % 8 * 64;
        u32 at = k % EXL2K_EXL3_BLOCK / 32 * 512 + exl2k_exl3_place(k % 32);
        exl2k_store(to + at, pairs.x);
        exl2k_store(to + (at ^ 16), pairs.y);
        return;
    }
    if (a.order == EXL2K_EXL3_TILES) {
        u64 stage = (u64)(blockIdx.y / 128 * a.blocks * 2 + k / EXL2K_EXL3_STEP) * EXL2K_EXL3_WG_INPUTS;
        u32 at = blockIdx.y % 128 * 128 + (k % EXL2K_EXL3_STEP / 8 ^ blockIdx.y % 8) * 16 + k % 8 * 2;
        exl2k_store2(a.rotated + stage + at, pairs.x, pairs.y);
        return;
    }
    u64 to = a.rotated + (u64)blockIdx.y * a.blocks * (EXL2K_EXL3_BLOCK * 2);
    exl2k_store(to + exl2k_exl3_place(k), pairs.x);
    exl2k_store(to + exl2k_exl3_place(k + 2), pairs.y);
}

template <u32 RATE, u32 BOOK> EXL2K_FN void exl2k_exl3_dump_tile(u32 v[4], u64 tile, u32 lane)
{
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 words[exl2k_exl3_words<RATE>()];
    exl2k_exl3_fetch<RATE>(words, tile, place);
    exl2k_exl3_decode<RATE, BOOK>(v, words, place.shift);
}

template <u32 RATE> EXL2K_FN void exl2k_exl3_dump_book(u32 v[4], u32 book, u64 tile, u32 lane)
{
    if (book == EXL2K_EXL3_MUL1) {
        exl2k_exl3_dump_tile<RATE, EXL2K_EXL3_MUL1>(v, tile, lane);
    } else if (RATE % 2 == 0 && book == EXL2K_EXL3_MCG) {
        exl2k_exl3_dump_tile<RATE, EXL2K_EXL3_MCG>(v, tile, lane);
    } else if (RATE % 2 == 0) {
        exl2k_exl3_dump_tile<RATE, EXL2K_EXL3_3INST>(v, tile, lane);
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_dump(const __grid_constant__ exl2k_exl3_dump_args a)
{
    u32 lane = threadIdx.x % EXL2K_WARP, column = blockIdx.y * EXL2K_EXL3_WARPS + threadIdx.x / EXL2K_WARP;
    u64 tile = a.trellis + ((u64)blockIdx.x * (a.columns / EXL2K_EXL3_TILE) + column) * 16 * a.rate;
    u32 v[4] = { 0, 0, 0, 0 };
    switch (a.rate) {
    case 2: exl2k_exl3_dump_book<2>(v, a.book, tile, lane); break;
    case 3: exl2k_exl3_dump_book<3>(v, a.book, tile, lane); break;
    case 4: exl2k_exl3_dump_book<4>(v, a.book, tile, lane); break;
    case 5: exl2k_exl3_dump_book<5>(v, a.book, tile, lane); break;
    case 6: exl2k_exl3_dump_book<6>(v, a.book, tile, lane); break;
    case 7: exl2k_exl3_dump_book<7>(v, a.book, tile, lane); break;
    case 8: exl2k_exl3_dump_book<8>(v, a.book, tile, lane); break;
    case 10: exl2k_exl3_dump_book<10>(v, a.book, tile, lane); break;
    case 12: exl2k_exl3_dump_book<12>(v, a.book, tile, lane); break;
    case 14: exl2k_exl3_dump_book<14>(v, a.book, tile, lane); break;
    case 16: exl2k_exl3_dump_book<16>(v, a.book, tile, lane); break;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) { /* operand A: register 1 and 3 are 8 outputs further, 2 and 3 are 8 inputs further */
        u32 input = blockIdx.x * EXL2K_EXL3_TILE + lane % 4 * 2 + i / 2 * 8;
        u32 output = column * EXL2K_EXL3_TILE + lane / 4 + i % 2 * 8;
        u64 at = a.out + ((u64)input * a.columns + output) * 2;
        exl2k_store_u16(at, v[i] & 0xFFFFu);
        exl2k_store_u16(at + a.columns * 2, v[i] >> 16);
    }
}
