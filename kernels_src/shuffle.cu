/* shuffle.cu: repacks codes, scales and dense weights into strips of records while a model is loaded.
   takes: base.cuh, unpack.cuh (its head defines the layout), shuffle_args.h.
   gives: exl2k_shuffle_codes, exl2k_shuffle_scales, exl2k_shuffle_affine, exl2k_shuffle_dense. */
#include "base.cuh"
#include "unpack.cuh"
#include "shuffle_args.h"

/* ---- encoding: the inverse of unpack.cuh ---- */

/* Encodes the pairs of a lane into its words. Pair p = 4 step + i of a record is low code | high code << 16. */
template <u32 W> EXL2K_FN void exl2k_encode(const u32 *pair, u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits;
#pragma unroll
    for (u32 k = 0; k < bits; k++) {
        w[k] = 0;
    }
    /* Each case inverts the fields of its width. */
    if constexpr (W == EXL2K_W16) {
        for (u32 p = 0; p < 16; p++) {
            w[p] = pair[p];
        }
    } else if constexpr (W == EXL2K_W8) {
        for (u32 p = 0; p < 16; p++) {
            w[p / 2] |= pair[p] << p % 2 * 8;
        }
    } else if constexpr (W == EXL2K_W6) {
        for (u32 h = 0; h < 2; h++) {
            const u32 *q = pair + 8 * h;
            w[3 * h] = q[0] | q[1] << 6 | (q[6] & 0x000F000Fu) << 12;
            w[3 * h + 1] = q[2] | q[3] << 6 | (q[7] & 0x000F000Fu) << 12;
            w[3 * h + 2] = q[4] | q[5] << 6 | (q[6] & 0x00300030u) << 8 | (q[7] & 0x00300030u) << 10;
        }
    } else if constexpr (W == EXL2K_W5) {
        w[0] = pair[0] | pair[1] << 10;
        w[1] = pair[2] | pair[3] << 10;
        for (u32 j = 1; j < 4; j++) {
            w[j + 1] |= pair[4 * j] | pair[4 * j + 2] << 10;
            w[2 * j - 2] |= pair[4 * j + 1] << 5;
            if (j < 3) {
                w[2 * j - 1] |= pair[4 * j + 3] << 5;
            }
        }
        for (u32 n = 0; n < 5; n++) {
            w[n] |= (pair[15] >> n & 0x00010001u) << 15;
        }
    } else if constexpr (W == EXL2K_W4) {
        for (u32 k = 0; k < 4; k++) {
            u32 all = pair[4 * k] | pair[4 * k + 1] << 4 | pair[4 * k + 2] << 8 | pair[4 * k + 3] << 12;
            w[k] = (all << 2 & 0xFFFCFFFCu) | (all >> 14 & 0x00030003u);
        }
    } else if constexpr (W == EXL2K_W3) {
        for (u32 k = 0; k < 3; k++) {
            w[k] = pair[4 * k] << 4 | pair[4 * k + 1] << 7 | pair[4 * k + 2] << 10 | pair[4 * k + 3] << 13 |
                   pair[12 + k] | (pair[15] >> k & 0x00010001u) << 3;
        }
    } else {
        for (u32 k = 0; k < 2; k++) {
            const u32 *q = pair + 8 * k;
            w[k] = q[0] << 4 | q[1] << 6 | q[2] << 10 | q[3] << 12 | q[4] | q[5] << 8 | q[6] << 2 | q[7] << 14;
        }
    }
}

/* Stores the words of one lane in the record at `at`. */
template <u32 W> EXL2K_FN void exl2k_store_words(u64 at, u32 lane, const u32 *w)
{
    constexpr u32 bits = exl2k_width<W>::bits, quads = bits / 4;
#pragma unroll
    for (u32 q = 0; q + 1 <= quads; q++) {
        exl2k_store4(at + q * 512 + lane * 16, make_uint4(w[4 * q], w[4 * q + 1], w[4 * q + 2], w[4 * q + 3]));
    }
    if constexpr ((bits & 2) != 0) {
        exl2k_store(at + quads * 512 + lane * 8, w[4 * quads]);
        exl2k_store(at + quads * 512 + lane * 8 + 4, w[4 * quads + 1]);
    }
    if constexpr ((bits & 1) != 0) {
        exl2k_store(at + quads * 512 + (bits & 2) * 128 + lane * 4, w[bits - 1]);
    }
}

/* ---- codes ---- */

/* Bytes for the 32 codes of a column: a multiple of 16 that spreads columns over the banks. */
#define EXL2K_CODES_PITCH 48u

/* Unpacks the 32 codes of one column from `bits` words of the staging buffer, and stores them as bytes in shared
   memory. */
EXL2K_FN void exl2k_codes_to_shared(u64 from, u64 pitch, u32 bits, u32 to)
{
    /* A window of two words moves down the column; each code lies inside of the window. */
    u32 mask = (1u << bits) - 1, low = exl2k_load(from), high = bits > 1 ? exl2k_load(from + pitch) : 0, word = 0;
    for (u32 quad = 0; quad < 8; quad++) {
        u32 bytes = 0;
        for (u32 i = 0; i < 4; i++) {
            u32 at = (quad * 4 + i) * bits;
            if (at / 32 != word) {
                word++;
                low = high;
                high = word + 1 < bits ? exl2k_load(from + (word + 1) * pitch) : 0;
            }
            bytes |= (__funnelshift_r(low, high, at % 32) & mask) << i * 8;
        }
        exl2k_shared_store(to + quad * 4, bytes);
    }
}

/* The same from 32 rows of AWQ: a word has one row's codes of 8 columns, whose order is 0 2 4 6 1 3 5 7. */
EXL2K_FN void exl2k_awq_to_shared(u64 from, u64 pitch, u32 column, u32 to)
{
    u32 shift = (column % 2 * 4 + column % 8 / 2) * 4;
    for (u32 quad = 0; quad < 8; quad++) {
        u32 bytes = 0;
        for (u32 i = 0; i < 4; i++) {
            bytes |= (exl2k_load(from + (quad * 4 + i) * pitch + column / 8 * 4) >> shift & 15) << i * 8;
        }
        exl2k_shared_store(to + quad * 4, bytes);
    }
}

/* Pairs of one lane: rows 32 h + 8 t .. + 7 of columns g and g + 8 are 8 bytes each. */
EXL2K_FN void exl2k_pairs_of_lane(u32 codes, u32 strip, u32 record, u32 lane, u32 pair[16])
{
    for (u32 h = 0; h < 2; h++) {
        for (u32 side = 0; side < 2; side++) {
            u32 column = strip * 16 + side * 8 + lane / 4;
            uint2 v = exl2k_shared_load2(codes + ((record * 2 + h) * 32 + column) * EXL2K_CODES_PITCH + lane % 4 * 8);
            pair[8 * h + side] = exl2k_permute_bytes(v.x, 0, 0x4140u);
            pair[8 * h + side + 2] = exl2k_permute_bytes(v.x, 0, 0x4342u);
            pair[8 * h + side + 4] = exl2k_permute_bytes(v.y, 0, 0x4140u);
            pair[8 * h + side + 6] = exl2k_permute_bytes(v.y, 0, 0x4342u);
        }
    }
}

template <u32 W> EXL2K_FN void exl2k_store_record(u64 at, u32 lane, const u32 pair[16])
{
    u32 w[exl2k_width<W>::bits];
    exl2k_encode<W>(pair, w);
    exl2k_store_words<W>(at, lane, w);
}

extern "C" __global__ void __launch_bounds__(EXL2K_SHUFFLE_THREADS)
exl2k_shuffle_codes(const __grid_constant__ exl2k_shuffle_args a)
{
    /* Each warp unpacks one half (32 rows) of the chunk, a column per lane. */
    __shared__ uint4 exl2k_codes[8 * 32 * EXL2K_CODES_PITCH / 16];
    u32 codes = exl2k_shared(exl2k_codes), lane = threadIdx.x % 32, part = threadIdx.x / 32;
    const exl2k_chunk *chunk = (const exl2k_chunk *)a.chunks + a.chunk + blockIdx.y;
    u32 width = chunk->width, bits = exl2k_bits(width), column = blockIdx.x * 32 + lane;
    u32 from = a.columns_from ? exl2k_load_u16(a.columns_from + column * 2) : column;
    u64 pitch = (u64)a.columns * 4;
    u32 mine = codes + (part * 32 + lane) * EXL2K_CODES_PITCH;
    if (part < chunk->halves) {
        u64 at = a.source + (u64)(chunk->word + part * bits - a.first) * pitch;
        if (a.type == EXL2K_FROM_AWQ) {
            exl2k_awq_to_shared(at, pitch / 8, from, mine);
        } else {
            exl2k_codes_to_shared(at + from * 4, pitch, bits, mine);
        }
    } else { /* padding: codes that decode to 0 */
        for (u32 quad = 0; quad < 8; quad++) {
            exl2k_shared_store(mine + quad * 4, 0x01010101u << (bits - 1));
        }
    }
    /* Then each warp encodes one record of one of the two strips. */
    __syncthreads();
    u32 strip = part / 4, record = part % 4;
    if (record >= chunk->records) {
        return;
    }
    u32 pair[16];
    exl2k_pairs_of_lane(codes, strip, record, lane, pair);
    u64 at = a.base + (u64)(blockIdx.x * 2 + strip) * a.pitch + (u64)chunk->offset16 * 16 + record * bits * 128;
    switch (width) {
    case EXL2K_W2: exl2k_store_record<EXL2K_W2>(at, lane, pair); break;
    case EXL2K_W3: exl2k_store_record<EXL2K_W3>(at, lane, pair); break;
    case EXL2K_W4: exl2k_store_record<EXL2K_W4>(at, lane, pair); break;
    case EXL2K_W5: exl2k_store_record<EXL2K_W5>(at, lane, pair); break;
    case EXL2K_W6: exl2k_store_record<EXL2K_W6>(at, lane, pair); break;
    default: exl2k_store_record<EXL2K_W8>(at, lane, pair); break;
    }
}

/* ---- scales ---- */

/* The level - 1 of a stored column. */
EXL2K_FN u32 exl2k_level(const exl2k_shuffle_args &a, u32 group, u32 column)
{
    u32 from = a.columns_from ? exl2k_load_u16(a.columns_from + column * 2) : column;
    return exl2k_load(a.source + ((u64)group * (a.columns / 8) + from / 8) * 4) >> from % 8 * 4 & 15;
}

extern "C" __global__ void __launch_bounds__(32) exl2k_shuffle_scales(const __grid_constant__ exl2k_shuffle_args a)
{
    /* Each thread makes one scale word of a chunk. */
    u32 index = a.chunk + blockIdx.y;
    const exl2k_chunk *chunk = (const exl2k_chunk *)a.chunks + index;
    u32 groups = chunk->groups, bits = exl2k_bits(chunk->width), word = threadIdx.x;
    u32 end = (u32)chunk->bytes16 * 4 - chunk->records * bits * 32; /* words, with the padding to 16 bytes */
    if (word >= end) {
        return;
    }
    /* A scale word has the levels of four columns g, and of the four columns g + 8. */
    u32 group = word < 2 * groups ? exl2k_load_u16(a.group_of + (index * 8 + word % groups) * 2) : 0xFFFFu, value = 0;
    for (u32 i = 0; i < 4 && group != 0xFFFFu; i++) {
        u32 column = blockIdx.x * 16 + word / groups * 4 + i;
        value |= exl2k_level(a, group, column) << i * 4 | exl2k_level(a, group, column + 8) << (16 + i * 4);
    }
    u64 at = a.base + (u64)blockIdx.x * a.pitch + (u64)chunk->offset16 * 16 + chunk->records * bits * 128;
    exl2k_store(at + word * 4, value);
}

extern "C" __global__ void __launch_bounds__(EXL2K_AFFINE_THREADS)
exl2k_shuffle_affine(const __grid_constant__ exl2k_shuffle_args a)
{
    /* Each thread makes the scale word of one group and column. */
    u32 index = a.chunk + blockIdx.y, slot = threadIdx.x / 16, column = threadIdx.x % 16, word = 0;
    const exl2k_chunk *chunk = (const exl2k_chunk *)a.chunks + index;
    if (slot >= chunk->groups) {
        return;
    }
    u32 group = exl2k_load_u16(a.group_of + (index * 8 + slot) * 2);
    if (group != 0xFFFFu) {
        u32 from = a.columns_from ? exl2k_load_u16(a.columns_from + (blockIdx.x * 16 + column) * 2)
                                  : blockIdx.x * 16 + column;
        u64 at = ((u64)group * a.columns + from) * 2;
        f32 zero = (f32)exl2k_load_u16(a.zeros + at) - (f32)(1u << (exl2k_bits(chunk->width) - 1));
        word = exl2k_load_u16(a.source + at) | exl2k_f32_to_f16(zero) << 16;
    }
    u64 to = a.base + (u64)blockIdx.x * a.pitch + (u64)chunk->offset16 * 16 +
             chunk->records * exl2k_bits(chunk->width) * 128 + slot * EXL2K_AFFINE_BYTES;
    exl2k_store(to + column % 8 * 8 + column / 8 * 4, word);
}

/* ---- dense matrices ---- */

/* Weight (output `row` of the staging buffer, input) as fp16 bits; 0 outside the matrix. */
EXL2K_FN u32 exl2k_dense_half(const exl2k_shuffle_args &a, u32 row, u32 input)
{
    u32 column = a.first + row;
    if (row >= a.rows || column >= a.columns || input >= a.inputs) {
        return 0;
    }
    u64 at = (u64)row * a.inputs + input;
    if (a.type == EXL2K_FROM_F16) {
        return exl2k_load_u16(a.source + at * 2);
    }
    f32 value = a.type == EXL2K_FROM_BF16 ? exl2k_bf16_to_f32(exl2k_load_u16(a.source + at * 2))
                                          : exl2k_load_f32(a.source + at * 4);
    return exl2k_f32_to_f16(exl2k_clamp_f16(value));
}

extern "C" __global__ void __launch_bounds__(EXL2K_SHUFFLE_THREADS)
exl2k_shuffle_dense(const __grid_constant__ exl2k_shuffle_args a)
{
    u32 lane = threadIdx.x % 32, record = blockIdx.y * 8 + threadIdx.x / 32;
    u64 strip = a.first / 16 + blockIdx.x, to = a.base + strip * a.pitch + (u64)record * 2048 + lane * 16;
    if (record >= a.records) {
        return;
    }
    /* Each warp makes one record: four steps of four pairs per lane. */
#pragma unroll 1
    for (u32 step = 0; step < 4; step++) {
        u32 pair[4];
#pragma unroll
        for (u32 p = 0; p < 4; p++) {
            u32 column = blockIdx.x * 16 + lane / 4 + p % 2 * 8;
            u32 input = record * 64 + step / 2 * 32 + lane % 4 * 8 + step % 2 * 4 + p / 2 * 2;
            pair[p] = exl2k_dense_half(a, column, input) | exl2k_dense_half(a, column, input + 1) << 16;
        }
        exl2k_store4(to + step * 512, make_uint4(pair[0], pair[1], pair[2], pair[3]));
    }
}
