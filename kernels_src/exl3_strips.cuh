/* exl3_strips.cuh: decodes strips of an EXL3 matrix into tiles as products by wgmma read them (exl3_args.h).
   takes: exl3_gemv.cuh, wg.cuh.
   gives: exl2k_exl3_strips_of<BOOK>: the body of a kernel for one codebook. Grid: strips of the launch's parts, blocks *
          2 / EXL2K_EXL3_STRIPS_STAGES rounded up; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_STRIPS_SHARED bytes of dynamic
          shared memory, for the highest rate of the parts.

   It waits for no kernel before it begins, so it runs on the SMs that the last CTAs of the product before have left.
   Where it writes nothing may be read any more: products use two places by turns, and one lets the next kernel begin
   only when it has waited itself (exl3_wide.cuh). */
#ifndef EXL2K_EXL3_STRIPS_CUH
#define EXL2K_EXL3_STRIPS_CUH

#include "exl3_gemv.cuh"
#include "wg.cuh"

/* A warp has a column of tiles, four of which are 64 inputs: 2 KB of a tile of the result. */
template <u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_strips_column(u32 shared, u64 tile, u64 to, u32 pitch, u32 stages, u32 warp, u32 lane)
{
    constexpr u32 count = exl2k_exl3_words<RATE>(), slots = EXL2K_EXL3_RING_TILES / EXL2K_EXL3_WG_BATCH;
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 own = shared + warp * 2048, rings = shared + EXL2K_EXL3_WARPS * 2048;
    exl2k_exl3_ring ring = exl2k_exl3_ring_open(rings + warp * EXL2K_EXL3_RING(RATE), tile + warp * 16 * RATE, pitch,
                                                RATE, stages * EXL2K_EXL3_WG_BATCH, EXL2K_EXL3_WG_BATCH, 1, lane);
    /* Lane l gives the address of line l % 8 of the quarter l / 8 of a tile (exl2k_stmatrix4). */
    u32 line = own + (lane / 8 % 2 * 8 + lane % 8) * 128, half = (lane / 16 ^ lane % 8) * 16;
    to += warp * 2048 + lane * 16;
#pragma unroll 1
    for (u32 i = 0; i < stages; i++, to += EXL2K_EXL3_WIDE_STRIP) {
        u32 at = exl2k_exl3_ring_next<EXL2K_EXL3_WG_BATCH * RATE, slots>(ring, lane);
        u32 words[EXL2K_EXL3_WG_BATCH][count];
#pragma unroll
        for (u32 n = 0; n < count; n++) {
#pragma unroll
            for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
                words[k][n] = exl2k_shared_load(at + place.at[n] + k * 16 * RATE);
            }
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_EXL3_WG_BATCH; k++) {
            u32 a[4];
            exl2k_exl3_decode<RATE, BOOK>(a, words[k], place.shift);
            exl2k_stmatrix4(line + (half ^ k * 32), a);
        }
        __syncwarp();
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            exl2k_store4(to + j * 512, exl2k_shared_load4(own + lane * 16 + j * 512));
        }
        __syncwarp(); /* all lanes have read before the next tiles */
    }
    exl2k_copy_wait<0>();
}

template <u32 BOOK> EXL2K_FN void exl2k_exl3_strips_of(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, stages = a.blocks * 2;
    u32 begin = blockIdx.y * EXL2K_EXL3_STRIPS_STAGES, count = exl2k_min(stages - begin, EXL2K_EXL3_STRIPS_STAGES);
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 pitch = part.row_tiles * 16 * part.rate;
    u64 tile = part.trellis + (u64)begin * 4 * pitch + (u64)u.strip * 8 * 16 * part.rate;
    u64 to = a.decoded + ((u64)blockIdx.x * stages + begin) * EXL2K_EXL3_WIDE_STRIP;
    exl2k_dependency_release();
#define EXL2K_EXL3_CASE(R)                                                                                    \
    case R:                                                                                                   \
        exl2k_exl3_strips_column<R, BOOK>(exl2k_shared(exl2k_dynamic), tile, to, pitch, count, warp, lane);   \
        break;
    EXL2K_EXL3_RATES(part.rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
    exl2k_dependency_wait(); /* who waits for this kernel waits for those before it, too */
}

#endif
