/* exl3_rotate.cu: transformed inputs of EXL3 products of many rows, also of normalised rows, and the decoder as a kernel
   of its own.
   takes: exl3.cuh, exl3_out.cuh.
   gives: exl2k_exl3_rotate, exl2k_exl3_norm_rows, exl2k_exl3_dump. */
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
        exl2k_store2(exl2k_exl3_tile_at(a.rotated, blockIdx.y, k, a.blocks), pairs.x, pairs.y);
        return;
    }
    u64 to = a.rotated + (u64)blockIdx.y * a.blocks * (EXL2K_EXL3_BLOCK * 2);
    exl2k_store(to + exl2k_exl3_place(k), pairs.x);
    exl2k_store(to + exl2k_exl3_place(k + 2), pairs.y);
}

/* Transforms a lane's 16 inputs of a block (exl2k_exl3_hadamard_rows), and stores them in the order TILES. k: the first
   one. */
EXL2K_FN void exl2k_exl3_norm_turn(const exl2k_exl3_settle_args &a, u32 part, const uint2 x[4], u32 row, u32 k,
                                   bool stores, u32 lane)
{
    u32 hidden = a.settle.hidden;
    u64 tiles = a.rotated + (u64)part * a.rotated_rows * hidden * 2;
    constexpr f32 factor = 0.08838834764831845f;
    f32 v[1][4][4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        uint2 suh = stores ? exl2k_exl3_scales(a.suh[part] + (k + 32 * i) * 2) : make_uint2(0, 0);
        v[0][i][0] = exl2k_low(x[i].x) * exl2k_low(suh.x);
        v[0][i][1] = exl2k_high(x[i].x) * exl2k_high(suh.x);
        v[0][i][2] = exl2k_low(x[i].y) * exl2k_low(suh.y);
        v[0][i][3] = exl2k_high(x[i].y) * exl2k_high(suh.y);
    }
    exl2k_exl3_hadamard_rows<1>(v, lane);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (stores) {
            exl2k_store2(exl2k_exl3_tile_at(tiles, row, k + 32 * i, hidden / EXL2K_EXL3_BLOCK),
                         exl2k_pack_f16(v[0][i][0] * factor, v[0][i][1] * factor),
                         exl2k_pack_f16(v[0][i][2] * factor, v[0][i][3] * factor));
        }
    }
}

/* Normalises a row, with the bits of exl2k_settle. There a warp has the blocks w, w + 32, ..., adds up the squares of a
   lane in that order, then those of lanes, then those of warps. Here a warp has four blocks at a time, with eight lanes
   for each, so that a lane has what four lanes have there. */
extern "C" __global__ void __launch_bounds__(EXL2K_EXL3_THREADS)
exl2k_exl3_norm_rows(const __grid_constant__ exl2k_exl3_settle_args a)
{
    __shared__ f32 partial[EXL2K_WARP];
    constexpr u32 turns = EXL2K_EXL3_NORM_HELD / 4;
    u32 lane = threadIdx.x % EXL2K_WARP, first = threadIdx.x / 8, own = lane % 8 * 4, row = blockIdx.x;
    u32 hidden = a.settle.hidden, blocks = hidden / EXL2K_EXL3_BLOCK, warps = exl2k_min(blocks, EXL2K_WARP);
    f32 v[turns][4][4], square[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= exl2k_load(a.settle.rows_at)) {
        return;
    }
#pragma unroll
    for (u32 t = 0; t < turns; t++) {
        u32 block = first + t * EXL2K_WARP;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            uint4 s = make_uint4(0, 0, 0, 0);
            if (block < blocks) {
                s = exl2k_load4(a.settle.residual
                                + ((u64)row * hidden + block * EXL2K_EXL3_BLOCK + own + 32 * i) * 4);
            }
            v[t][i][0] = __uint_as_float(s.x);
            v[t][i][1] = __uint_as_float(s.y);
            v[t][i][2] = __uint_as_float(s.z);
            v[t][i][3] = __uint_as_float(s.w);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 4 * turns; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            square[i % 4] = fmaf(v[i / 4][i % 4][j], v[i / 4][i % 4][j], square[i % 4]);
        }
    }
    f32 sum = (square[0] + square[2]) + (square[1] + square[3]); /* steps 16 and 8 of exl2k_warp_sum */
#pragma unroll
    for (u32 step = 4; step > 0; step /= 2) {
        sum += __shfl_xor_sync(EXL2K_ALL, sum, step);
    }
    if (lane % 8 == 0) {
        partial[first] = sum;
    }
    __syncthreads();
    f32 total = exl2k_warp_sum(lane < warps ? partial[lane] : 0.0f);
    f32 rho = rsqrtf(fmaf(total, 1.0f / (f32)hidden, a.settle.eps));
#pragma unroll
    for (u32 t = 0; t < turns; t++) {
        u32 block = first + t * EXL2K_WARP, k = block * EXL2K_EXL3_BLOCK + own;
        if (first / 4 * 4 + t * EXL2K_WARP >= blocks) { /* none of the warp's */
            break;
        }
        uint2 x[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            uint4 w = make_uint4(0, 0, 0, 0);
            if (block < blocks) {
                w = exl2k_load_constant4(a.settle.weight + (k + 32 * i) * 4);
            }
            f32 y[4] = { fmaf(v[t][i][0] * rho, __uint_as_float(w.x), 0.0f),
                         fmaf(v[t][i][1] * rho, __uint_as_float(w.y), 0.0f),
                         fmaf(v[t][i][2] * rho, __uint_as_float(w.z), 0.0f),
                         fmaf(v[t][i][3] * rho, __uint_as_float(w.w), 0.0f) };
            x[i] = make_uint2(exl2k_pack_f16(exl2k_clamp_f16(y[0]), exl2k_clamp_f16(y[1])),
                              exl2k_pack_f16(exl2k_clamp_f16(y[2]), exl2k_clamp_f16(y[3])));
            if (a.settle.out[0] && block < blocks) {
                exl2k_store2(a.settle.out[0] + ((u64)row * a.settle.out_pitch + k + 32 * i) * 2, x[i].x, x[i].y);
            }
        }
#pragma unroll 1
        for (u32 p = 0; p < a.parts; p++) {
            exl2k_exl3_norm_turn(a, p, x, row, k, block < blocks, lane);
        }
    }
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
