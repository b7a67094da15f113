/* gemm.cuh: the product of 9 and more rows: 32, 64 or 128 rows x 256 columns per CTA, weights decoded in registers.
   takes: base.cuh, gemm_weights.cuh, gemm_results.cuh, gemm_args.h.
   gives: exl2k_products: the body of a kernel; exl2k_tiles, exl2k_gemm_sum.
   owns:  nothing; included by gemm.cu, gemm_any.cu, gemm_affine.cu, and by grouped_gemm.cuh, which has tiles of its
          own. ARGS: a kernel's arguments, exl2k_gemm_args or those of grouped_gemm.cuh.

   One kernel serves the three sizes: it decodes seven widths, and a kernel for each size would cost another second of
   compile time each. A CTA has eight warps of two strips each. Every weight is decoded once, by the warp that uses it
   for all rows, and multiplied by its fp16 scale: the EXL2 format defines a weight as fp16(code * scale). A row's sums
   depend on K alone, never on other rows. The warps share the inputs: tiles of 32 inputs x all rows, which are handed
   over by mbarriers (sm_80 on), not by barriers of the CTA.

   Cost of a record (64 inputs) of 128 rows on one scheduler of an H200: 256 HMMA of 6.5 clocks, together 1664 clocks,
   and 2 x 350 other instructions; shared memory delivers the inputs in 1024 clocks. Measured: about 2,500 clocks, or
   335 to 365 TFLOP/s. The two warps of a scheduler multiply at the same time and decode at the same time. Barriers
   that make them alternate do not help, because one warp alone does not keep the tensor cores busy, and the registers
   allow no more than two. A warp spends 55 % of its time on products, 12 % on decoding, 10 % on waiting for tiles and
   filling them, and 7 % on results.

   A tile of inputs is [rows][64 bytes]. Eight inputs of a lane are 16 bytes, and a warp reads 512 contiguous bytes. The
   warps fill the tiles in turn, each tile by one warp. ACT computes the gate's columns first and stores them in memory.
   It reads them again when it stores the columns of up. The two passes are separate because the records of gate and up
   begin at different rows. */
#ifndef EXL2K_GEMM_CUH
#define EXL2K_GEMM_CUH

#include "base.cuh"
#include "gemm_results.cuh"
#include "gemm_weights.cuh"

/* ---- tiles of inputs ---- */

/* A ring of tiles. Tiles are numbered from the first tile of the kernel on, so that slots and phases follow from the
   number and need no memory. */
typedef struct exl2k_tiles {
    u32 at, barriers, state; /* shared addresses; at: slot 0; state: u64 address of input 0 of row 0 of tile `base`,
                                u32 first row of the CTA, u32 last row that exists */
    u32 base, end; /* tiles of the current pass over K: the first, and the one after the last */
    u32 fill;      /* the next tile that this warp fills */
} exl2k_tiles;

#if __CUDA_ARCH__ >= 800
EXL2K_FN u32 exl2k_arrived(u32 barrier, u32 parity)
{
    u32 done;
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#else
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#endif
    return done;
}
#endif

/* Initialises the barriers. Barrier i: the copies to slot i have arrived. Barrier 16 + i: all threads have read slot
   i. Every thread arrives for itself: this costs no more than one arrival per warp after __syncwarp, and the tool
   racecheck can follow it. */
EXL2K_FN void exl2k_tiles_begin(u32 barriers, u32 slots)
{
#if __CUDA_ARCH__ >= 800
    if (threadIdx.x < slots) {
        u32 full = barriers + threadIdx.x * 8, empty = full + EXL2K_GEMM_TILE_BARRIERS / 2;
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(full), "r"(EXL2K_WARP) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(empty), "r"(EXL2K_GEMM_THREADS) : "memory");
    }
#endif
}

template <class ARGS> EXL2K_FN u32 exl2k_tile_slot(const ARGS &a, u32 tile) { return tile & a.stage_mask; }
EXL2K_FN u32 exl2k_tile_bytes(const exl2k_gemm_args &a) { return a.row_blocks * 2048; }

/* Rows of the current output tile in units of 32. */
EXL2K_FN u32 exl2k_tile_blocks(const exl2k_gemm_args &a, const exl2k_tiles &s) { return a.row_blocks; }

/* Rows that are copied, in units of eight. */
EXL2K_FN u32 exl2k_tile_steps(const exl2k_gemm_args &a, const exl2k_tiles &s) { return a.row_blocks * 4; }

/* Starts to copy those tiles before `until` that this warp fills. Rows beyond the last row repeat the last row, and
   their results are never stored. */
template <class ARGS> EXL2K_FN void exl2k_tiles_fill(exl2k_tiles &s, const ARGS &a, u32 until)
{
#pragma unroll 1
    for (; s.fill < until && s.fill < s.end; s.fill += EXL2K_GEMM_WARPS) {
        /* Compute the addresses of the lane's first 16 bytes in the tile and in the inputs. */
        u32 slot = exl2k_tile_slot(a, s.fill), lane = threadIdx.x % EXL2K_WARP;
        u32 to = s.at + slot * exl2k_tile_bytes(a) + lane * 16;
        uint4 state = exl2k_shared_load4(s.state);
        u32 row = state.z + lane / 4;
        u64 from = exl2k_first_u64(state) + (u64)(s.fill - s.base) * 64 + lane % 4 * 16;
#if __CUDA_ARCH__ >= 800
        /* Wait until all threads have read the tile that the slot held before. */
        if (s.fill >> a.stages_log) {
            u32 empty = s.barriers + EXL2K_GEMM_TILE_BARRIERS / 2 + slot * 8;
            while (!exl2k_arrived(empty, (s.fill >> a.stages_log & 1) ^ 1)) {
            }
        }
#endif
        /* Each step copies eight rows. */
#pragma unroll 4
        for (u32 i = 0; i < exl2k_tile_steps(a, s); i++) {
            exl2k_copy16(to + i * 512, from + (u64)exl2k_min(row + i * 8, state.w) * (a.x_pitch * 2));
        }
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(s.barriers + slot * 8) : "memory");
#endif
    }
}

/* Whether a tile has arrived; exl2k_tiles_wait waits for it. */
template <class ARGS> EXL2K_FN u32 exl2k_tiles_test(const exl2k_tiles &s, const ARGS &a, u32 tile)
{
#if __CUDA_ARCH__ >= 800
    return exl2k_arrived(s.barriers + exl2k_tile_slot(a, tile) * 8, tile >> a.stages_log & 1);
#else
    return 0;
#endif
}

template <class ARGS> EXL2K_FN void exl2k_tiles_wait(const exl2k_tiles &s, const ARGS &a, u32 tile, u32 arrived)
{
#if __CUDA_ARCH__ >= 800
    while (!arrived) {
        arrived = exl2k_tiles_test(s, a, tile);
    }
#else
    __syncthreads();
#endif
}

/* Arrives at the tile's barrier: this thread will not read the tile again. */
template <class ARGS> EXL2K_FN void exl2k_tiles_done(const exl2k_tiles &s, const ARGS &a, u32 tile)
{
#if __CUDA_ARCH__ >= 800
    u32 empty = s.barriers + EXL2K_GEMM_TILE_BARRIERS / 2 + exl2k_tile_slot(a, tile) * 8;
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(empty) : "memory");
#endif
}

/* Waits for a tile that this warp does not need, and releases it. */
template <class ARGS> EXL2K_FN void exl2k_tiles_skip(const exl2k_tiles &s, const ARGS &a, u32 tile)
{
    exl2k_tiles_wait(s, a, tile, 0);
    exl2k_tiles_done(s, a, tile);
}

/* ---- sums ---- */

/* Loads a lane's inputs of 32 rows and one tile. */
EXL2K_FN void exl2k_inputs(uint4 x[4], u32 at)
{
    for (u32 i = 0; i < 4; i++) {
        x[i] = exl2k_shared_load4(at + i * 512);
    }
}

/* Multiplies the two strips' operands of steps j and j + 1 by the inputs of 32 rows. */
EXL2K_FN void exl2k_half_product(exl2k_sums &sums, const exl2k_operand a[2], u32 j, u32 block, const uint4 x[4])
{
    for (u32 k = 0; k < 8; k++) {
        exl2k_mma(sums.v[k % 2][block * 4 + k / 2], a[k % 2][j], x[k / 2].x, x[k / 2].y);
    }
    for (u32 k = 0; k < 8; k++) {
        exl2k_mma(sums.v[k % 2][block * 4 + k / 2], a[k % 2][j + 1], x[k / 2].z, x[k / 2].w);
    }
}

/* Multiplies the two strips' operands by the inputs of all rows. low, high: the lane's inputs of the record's two
   halves. The exits after 32, 64 and 128 rows also keep the compiler from loading all inputs first, which would need
   too many registers. */
EXL2K_FN void exl2k_product(exl2k_sums &sums, const exl2k_operand a[2], u32 low, u32 high, u32 row_blocks)
{
    uint4 x[2][4];
    exl2k_inputs(x[0], low);
    exl2k_inputs(x[1], high);
    /* Each round multiplies 32 rows. The next 32 rows' inputs are loaded as soon as registers are free. */
#pragma unroll
    for (u32 b = 0; b < 4; b++) {
        bool more = b == 2 || (b < 2 && b + 1 < row_blocks);
        exl2k_half_product(sums, a, 0, b, x[0]);
        if (more) {
            exl2k_inputs(x[0], low + b * 2048 + 2048);
        }
        exl2k_half_product(sums, a, 2, b, x[1]);
        if (more) {
            exl2k_inputs(x[1], high + b * 2048 + 2048);
        }
        if (b < 2 && !more) {
            break;
        }
    }
}

/* Offset of the lane's scale words of record i among those of the chunk in the slot. ends, by_half: of its table entry.
   With affine matrices on sm_86 and 89 they are loaded again, or ptxas runs out of registers. */
EXL2K_FN u32 exl2k_record_group(u32 slot, u32 ends, u32 by_half, u32 i)
{
#if EXL2K_AFFINE && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890)
    uint2 entry = exl2k_shared_load2(slot + 8);
    by_half = entry.x >> 24;
    ends = entry.y;
#endif
    return (by_half ? 2 * i : __popc(ends & ((1u << i) - 1))) * EXL2K_GROUP_BYTES;
}

/* sums = W x over the chunks of w, for the records that begin in the halves [low, high). */
template <class ARGS>
EXL2K_FN void exl2k_gemm_sum(exl2k_sums &sums, const ARGS &a, exl2k_weights &w, exl2k_tiles &s, u32 low, u32 high)
{
    u32 lane = threadIdx.x % EXL2K_WARP, half = low;
    /* Number of tiles that are filled in advance. At least the next record's two, because these must not wait for
       this warp; not all of them, so that the warps need not run in lockstep. */
    u32 lead = exl2k_max(a.stage_mask - 3, 3);
    u32 from = s.at + lane * 16, other = (a.slot_bytes - EXL2K_GEMM_ENTRY) / 2;
    /* Clear the sums, and fill the first tiles. */
#pragma unroll
    for (u32 k = 0; k < 128; k++) {
        sums.v[k / 64][k / 4 % 16][k % 4] = 0.0f;
    }
    exl2k_tiles_fill(s, a, s.base + lead);
    /* Chunk by chunk: refill a slot of the ring, and wait for the next chunk. */
#pragma unroll 1
    while (half < high) {
        u32 slot = exl2k_slot(w, a, w.used);
        exl2k_weights_fill(w, a, lane);
        exl2k_weights_wait(w, a);
        uint4 c = exl2k_shared_load4(slot);
        /* Extract the fields of the chunk's table entry, and compute the addresses of its codes and scales. */
        u32 row = c.y & 0xFFFF, width = c.z & 255, records = c.z >> 8 & 255, groups = c.z >> 16 & 255;
        u32 bytes = (width == EXL2K_W16 ? 2048 : exl2k_bits(width) * 128), halves_end = row + (c.w >> 8 & 255);
        exl2k_record r = { slot + EXL2K_GEMM_ENTRY, 0, other, 0, c.z >> 24 };
        u32 scales = r.codes + records * bytes + exl2k_scales_of_lane(groups, lane);
        /* Find the first record that belongs to this split. */
        u32 i = row < low ? (low - row + 1) / 2 : 0;
        if (row + 2 * i > half) { /* the first half belongs to a record of the preceding split */
            exl2k_tiles_skip(s, a, s.base);
        }
        half = row + 2 * i;
        /* Record by record: decode the weights, wait for the inputs, multiply. */
#pragma unroll 1
        for (; i < records && half < high; i++) {
            u32 tile = s.base + half - low, two = half + 1 < halves_end, arrived[2];
            exl2k_operand operand[2];
            /* Ask for the tiles' state before decoding, so that the answer is ready after it. Decoding an affine record
               needs the registers that would hold the answers. */
            arrived[0] = EXL2K_AFFINE ? 0 : exl2k_tiles_test(s, a, tile);
            arrived[1] = EXL2K_AFFINE ? 0 : exl2k_tiles_test(s, a, tile + two);
            r.maximum = EXL2K_AFFINE ? 0 : exl2k_shared_load(slot + 16 + i * 4);
            r.scales = scales + exl2k_record_group(slot, c.w, r.by_half, i);
            r.codes = slot + EXL2K_GEMM_ENTRY + i * bytes;
            exl2k_record_decode(operand, r, width, lane);
            /* Wait for the one or two tiles of the record, and fill a tile that will be needed later. */
            exl2k_tiles_wait(s, a, tile, arrived[0]);
            if (two) {
                exl2k_tiles_wait(s, a, tile + 1, arrived[1]);
            }
            exl2k_tiles_fill(s, a, tile + lead + 1);
            /* a missing second half has weights of 0, so any finite inputs serve */
            exl2k_product(sums, operand, from + exl2k_tile_slot(a, tile) * exl2k_tile_bytes(a),
                          from + exl2k_tile_slot(a, tile + two) * exl2k_tile_bytes(a),
                          exl2k_tile_blocks(a, s));
            exl2k_tiles_done(s, a, tile);
            if (two) {
                exl2k_tiles_done(s, a, tile + 1);
            }
            half += 1 + two;
        }
        w.used++;
    }
    if (s.base + half - low < s.end) { /* the last half belongs to a record of the next split */
        exl2k_tiles_skip(s, a, s.end - 1);
    }
}

/* ---- tiles of the output ---- */

/* Position of an output tile. It is computed twice, before and after the sums, because the sums need the registers. */
typedef struct exl2k_tile_origin {
    u32 part, strip; /* the warp's first strip; ACT: of part 0 */
    u32 row, low, high;
} exl2k_tile_origin;

EXL2K_FN exl2k_tile_origin exl2k_tile_origin_of(const exl2k_gemm_args &a, u32 work)
{
    const exl2k_matrix &m = a.matrix;
    u32 tile = work / a.splits, split = work % a.splits, column = tile / a.row_tiles;
    exl2k_tile_origin p = { 0, 0, tile % a.row_tiles * (a.row_blocks * 32), split * a.halves, 0 };
    p.high = exl2k_min(p.low + a.halves, (m.rows + 31) / 32);
    /* Columns of tiles follow one another part by part; find the tile's part. */
    for (u32 i = 0; i + 1 < EXL2K_PARTS_MAX && exl2k_passes(a) == 1; i++) {
        u32 tiles = (m.part[i].strips + EXL2K_GEMM_STRIPS - 1) / EXL2K_GEMM_STRIPS;
        if (p.part == i && i + 1 < m.parts && column >= tiles) {
            column -= tiles;
            p.part++;
        }
    }
    p.strip = column * EXL2K_GEMM_STRIPS + threadIdx.x / EXL2K_WARP * 2;
    return p;
}

EXL2K_FN u32 exl2k_gemm_rows(const exl2k_gemm_args &a) { return a.rows_at ? exl2k_load(a.rows_at) : a.rows; }

/* Starts to copy the weights and inputs of an output tile; false if the tile has no rows. */
EXL2K_FN bool exl2k_gemm_begin(const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, const exl2k_tile_origin &p,
                               u32 pass)
{
    const exl2k_part &q = a.matrix.part[p.part + pass];
    u32 lane = threadIdx.x % EXL2K_WARP, from = 0, end = q.chunk_count;
    /* Find the chunks of the split, and start the first copies of weights. */
    if (a.splits > 1) {
        exl2k_weights_range(q, p.low, p.high, from, end);
    }
    u32 last = q.strips - 1; /* strips beyond the last repeat the last, and are never stored */
    exl2k_weights_start(w, q.base + (u64)exl2k_min(p.strip, last) * q.pitch,
                        q.base + (u64)exl2k_min(p.strip + 1, last) * q.pitch, q.chunks + from * sizeof(exl2k_chunk),
                        q.chunks + end * sizeof(exl2k_chunk), lane);
#pragma unroll 1
    for (u32 i = 0; i < a.slot_mask; i++) {
        exl2k_weights_fill(w, a, lane);
    }
    /* Before the first tile's inputs, wait for the preceding kernels. */
    if (s.end == 0) {
        exl2k_dependency_release();
        exl2k_dependency_wait();
    }
    u32 rows = exl2k_gemm_rows(a);
    if (p.row >= rows) {
        exl2k_weights_discard(w, a);
        return false;
    }
    /* The address of the inputs and the first row go to shared memory. */
    u64 x = a.x + (u64)p.low * 64;
    if (lane == 0) {
        exl2k_shared_store4(s.state, exl2k_pack_u64s(x, (u64)(rows - 1) << 32 | p.row));
    }
    __syncwarp();
    s.base = s.end;
    s.end += exl2k_min(p.high + 1, (a.matrix.rows + 31) / 32) - p.low;
    return true;
}

/* Whether this warp is the last among the same warps of all splits to arrive. The last one sees what the others have
   stored. */
EXL2K_FN bool exl2k_is_last_split(const exl2k_gemm_args &a, u32 ticket)
{
    u32 taken = 0;
    __syncwarp();
    if (threadIdx.x % EXL2K_WARP == 0) {
        __threadfence();
        taken = atomicInc((u32 *)a.tickets + ticket * EXL2K_GEMM_WARPS + threadIdx.x / EXL2K_WARP, a.splits - 1);
        __threadfence();
    }
    return __shfl_sync(EXL2K_ALL, taken, 0) == a.splits - 1;
}

/* Computes output tile work / splits, split work % splits. Data for the time after the sums waits in shared memory,
   because the sums need the registers. All lanes store and load the same values. */
EXL2K_FN void exl2k_gemm_tile(const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 work, u32 pass)
{
    exl2k_sums sums;
    exl2k_tile_origin p = exl2k_tile_origin_of(a, work);
    if (!exl2k_gemm_begin(a, w, s, p, pass)) {
        return;
    }
    exl2k_gemm_sum(sums, a, w, s, p.low, p.high);
    /* After the sums: restore the position of the tile. */
    work = exl2k_shared_load(w.state + 80);
    pass = exl2k_shared_load(w.state + 84);
    p = exl2k_tile_origin_of(a, work);
    u32 passes = exl2k_passes(a), n = p.strip * 16 + threadIdx.x % EXL2K_WARP;
    u32 rows = exl2k_min(exl2k_gemm_rows(a) - p.row, a.row_blocks * 32), tile = work / a.splits;
    /* Compute the addresses of the blocks for sums of splits and for the gate. */
    u64 bytes = a.row_blocks * 32768;
    u64 gates = a.partial + (a.splits > 1 ? gridDim.x * passes + tile : blockIdx.x) * bytes;
    bool valid = n < a.matrix.part[p.part + pass].columns;
    u64 block = a.partial + (work * passes + pass) * bytes;
    /* Without splits the results are stored in the output; with splits in the split's block, and the last warp adds
       up the blocks. */
    exl2k_column c = a.splits > 1 ? exl2k_column_block(block)
                                  : exl2k_column_of(a, p.part + pass, pass, n, p.row, gates);
    exl2k_gemm_results(sums, c, valid, rows, w.ring);
    if (a.splits > 1 && exl2k_is_last_split(a, tile * passes + pass) && valid) {
        c = exl2k_column_of(a, p.part + pass, pass, n, p.row, gates);
        exl2k_column_sum(c, block - work % a.splits * passes * bytes, a.splits, passes * bytes, rows);
    }
}

/* All output tiles of a CTA. */
EXL2K_FN void exl2k_products(const exl2k_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    /* Divide shared memory into barriers, states of warps, tiles of inputs and rings of weights. */
    u32 shared = exl2k_shared(exl2k_dynamic);
    exl2k_tiles s = { 0 };
    exl2k_weights w = { 0 };
    s.barriers = shared;
    s.at = shared + EXL2K_GEMM_BARRIERS;
    s.fill = threadIdx.x / EXL2K_WARP;
    w.ring = s.at + (exl2k_tile_bytes(a) << a.stages_log) + threadIdx.x / EXL2K_WARP * a.ring_bytes;
    w.state = shared + EXL2K_GEMM_TILE_BARRIERS + threadIdx.x / EXL2K_WARP * EXL2K_GEMM_WARP_STATE;
    s.state = w.state + 64;
    /* Initialise the barriers. */
    exl2k_weights_begin(w, a, threadIdx.x % EXL2K_WARP);
    exl2k_tiles_begin(shared, a.stage_mask + 1);
    __syncthreads();
    /* Each output tile needs one pass, with ACT of two parts two. The loop's state lies in shared memory during a
       tile. */
    u32 work = blockIdx.x, pass = 0, tiles = a.row_tiles * a.column_tiles * a.splits;
#pragma unroll 1
    while (work < tiles) {
        __syncwarp();
        if (threadIdx.x % EXL2K_WARP == 0) {
            exl2k_shared_store(w.state + 80, work);
            exl2k_shared_store(w.state + 84, pass);
        }
        __syncwarp();
        exl2k_gemm_tile(a, w, s, work, pass);
        work = exl2k_shared_load(w.state + 80);
        pass = exl2k_shared_load(w.state + 84) + 1;
        if (pass == exl2k_passes(a)) {
            work += gridDim.x;
            pass = 0;
        }
        tiles = a.row_tiles * a.column_tiles * a.splits;
    }
}

#endif
