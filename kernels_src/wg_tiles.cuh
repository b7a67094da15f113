/* wg_tiles.cuh: where the inputs of gemm_wg.cuh lie in memory.
   takes: base.cuh.
   gives: exl2k_wg_chunk_at, exl2k_wg_offset, exl2k_wg_store_chunk.

   Inputs are tiles [half][row][64 bytes]: a half is 32 inputs, and the number of rows is the next multiple of 8. The 64
   bytes are 4 chunks of 16 bytes: chunk c has inputs 8 t + 2 c and 8 t + 2 c + 1 of the half, for t = 0..3. That is the
   order in which the steps of a record use them. Chunk c lies at place c ^ (row / 2 % 4), which is the 64-byte swizzle
   of wgmma: 8 rows of one chunk lie in different banks of shared memory. */
#ifndef EXL2K_WG_TILES_CUH
#define EXL2K_WG_TILES_CUH

#include "base.cuh"

/* Offset of a chunk. rows: of the tiles, a multiple of 8. */
EXL2K_FN u64 exl2k_wg_chunk_at(u32 half, u32 chunk, u32 row, u32 rows)
{
    return ((u64)half * rows + row) * 64 + (chunk ^ row / 2 % 4) * 16;
}

/* Offset of input n. Inputs n and n + 1 (n even) are neighbours. */
EXL2K_FN u64 exl2k_wg_offset(u32 n, u32 row, u32 rows)
{
    return exl2k_wg_chunk_at(n / 32, n / 2 % 4, row, rows) + n / 8 % 4 * 4 + n % 2 * 2;
}

/* Stores chunk i, of all of a row, to the tiles at `to`. shared: the row in shared memory. */
EXL2K_FN void exl2k_wg_store_chunk(u64 to, u32 i, u32 shared, u32 row, u32 rows)
{
    u32 from = shared + i / 4 * 64 + i % 4 * 4;
    exl2k_store4(to + exl2k_wg_chunk_at(i / 4, i % 4, row, rows),
                 make_uint4(exl2k_shared_load(from), exl2k_shared_load(from + 16), exl2k_shared_load(from + 32),
                            exl2k_shared_load(from + 48)));
}

#endif
