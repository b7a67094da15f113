/* tower_tiles.cuh: where the halves lie that products of a tower read: TILES of tower_args.h.
   takes: base.cuh, tower_args.h.
   gives: exl2k_tower_at. */
#ifndef EXL2K_TOWER_TILES_CUH
#define EXL2K_TOWER_TILES_CUH

#include "base.cuh"
#include "tower_args.h"

/* Offset of an element of a line, in bytes. lines: of the matrix, in memory. */
EXL2K_FN u64 exl2k_tower_at(u32 line, u32 element, u32 lines)
{
    return (u64)(element / 64 * lines + line) * 128 + ((element / 8 ^ line) % 8 * 16 + element % 8 * 2);
}

#endif
