/* gemm.cu: products of 9 and more rows: 32, 64 or 128 rows x 256 columns a CTA, weights decoded in registers.
   takes: base.cuh, gemm_weights.cuh, gemm_results.cuh, gemm_args.h.
   gives: exl2k_gemm, exl2k_gemm_permute.
   owns:  nothing.
   next:  gemm_weights.cuh

   One kernel for the three sizes: it decodes seven widths, and each size of its own would compile for a second more.
   Eight warps of two strips each. Every weight is decoded once, by the warp that uses it for all rows, and multiplied
   by its fp16 scale: fp16(code * scale) is what the format defines. A row's sums depend on K alone, never on other
   rows. Inputs are shared: tiles of 32 inputs x all rows, handed over by arrivals (mbarrier, sm_80 on), not by barriers
   of the CTA.

   What a record (64 inputs) of 128 rows takes of a scheduler: 256 HMMA of 6.5 clocks, 1664 in all, and 2 x 350 other
   instructions; shared memory gives the inputs in 1024 clocks. An H200 takes about 2,500: 335 to 365 TFLOP/s. Both
   warps multiply at the same time and decode at the same time, and turns by barriers do not help: a warp alone does not
   keep the tensor cores busy, and two are what there are registers for. Of a warp's time products are 55 %, decoding
   12 %, tiles that are waited for and filled 10 %, results 7 %.

   A tile of inputs is [rows][64 bytes]: eight inputs of a lane are 16 bytes, and a warp reads 512 bytes in a row. Tiles
   are filled by one warp each, in turn. ACT takes the gate's columns first, leaves them in memory, and meets them again
   when it stores the up's: their records begin at different rows. */
#include "base.cuh"
#include "gemm_results.cuh"
#include "gemm_weights.cuh"

/* ---- tiles of inputs ---- */

/* Tiles are counted from the first of the kernel on, so that places and phases need no memory. */
typedef struct exl2k_tiles {
    u32 at, barriers, home; /* shared addresses; `at`: place 0; home: u64 input 0 of row 0 of tile `base`, u32 first row
                               of the CTA, the last row there is */
    u32 base, end;         /* tiles of this walk over K: the first, the one behind the last */
    u32 fill;              /* the next tile that this warp fills */
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

/* Barrier i: the copies to place i have arrived; barrier 16 + i: all threads have read it. Each tells for itself, which
   costs no more than one of a warp after __syncwarp, and racecheck sees it. */
EXL2K_FN void exl2k_tiles_begin(u32 barriers, u32 places)
{
#if __CUDA_ARCH__ >= 800
    if (threadIdx.x < places) {
        u32 full = barriers + threadIdx.x * 8, empty = full + EXL2K_GEMM_TILE_BARRIERS / 2;
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(full), "r"(EXL2K_WARP) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(empty), "r"(EXL2K_GEMM_THREADS) : "memory");
    }
#endif
}

EXL2K_FN u32 exl2k_tile_place(const exl2k_gemm_args &a, u32 tile) { return tile & a.stage_mask; }
EXL2K_FN u32 exl2k_tile_bytes(const exl2k_gemm_args &a) { return a.row_blocks * 2048; }

/* Tiles are filled by one warp each, in turn: begins to copy those of this warp before `until`. Rows beyond the last
   are the last, and are never stored. */
EXL2K_FN void exl2k_tiles_fill(exl2k_tiles &s, const exl2k_gemm_args &a, u32 until)
{
#pragma unroll 1
    for (; s.fill < until && s.fill < s.end; s.fill += EXL2K_GEMM_WARPS) {
        u32 place = exl2k_tile_place(a, s.fill), lane = threadIdx.x % EXL2K_WARP;
        u32 to = s.at + place * exl2k_tile_bytes(a) + lane * 16;
        uint4 home = exl2k_shared_load4(s.home);
        u32 row = home.z + lane / 4;
        u64 from = exl2k_first(home) + (u64)(s.fill - s.base) * 64 + lane % 4 * 16;
#if __CUDA_ARCH__ >= 800
        if (s.fill >> a.stages_log) {
            u32 empty = s.barriers + EXL2K_GEMM_TILE_BARRIERS / 2 + place * 8;
            while (!exl2k_arrived(empty, (s.fill >> a.stages_log & 1) ^ 1)) {
            }
        }
#endif
#pragma unroll 4
        for (u32 i = 0; i < a.row_blocks * 4; i++) {
            exl2k_copy16(to + i * 512, from + (u64)exl2k_min(row + i * 8, home.w) * (a.x_pitch * 2));
        }
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(s.barriers + place * 8) : "memory");
#endif
    }
}

/* Whether a tile has arrived; exl2k_tiles_wait waits for it. The same for all warps. */
EXL2K_FN u32 exl2k_tiles_test(const exl2k_tiles &s, const exl2k_gemm_args &a, u32 tile)
{
#if __CUDA_ARCH__ >= 800
    return exl2k_arrived(s.barriers + exl2k_tile_place(a, tile) * 8, tile >> a.stages_log & 1);
#else
    return 0;
#endif
}

EXL2K_FN void exl2k_tiles_wait(const exl2k_tiles &s, const exl2k_gemm_args &a, u32 tile, u32 arrived)
{
#if __CUDA_ARCH__ >= 800
    while (!arrived) {
        arrived = exl2k_tiles_test(s, a, tile);
    }
#else
    __syncthreads();
#endif
}

/* This thread will not read the tile again. */
EXL2K_FN void exl2k_tiles_done(const exl2k_tiles &s, const exl2k_gemm_args &a, u32 tile)
{
#if __CUDA_ARCH__ >= 800
    u32 empty = s.barriers + EXL2K_GEMM_TILE_BARRIERS / 2 + exl2k_tile_place(a, tile) * 8;
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(empty) : "memory");
#endif
}

/* Waits for a tile and leaves it. */
EXL2K_FN void exl2k_tiles_skip(const exl2k_tiles &s, const exl2k_gemm_args &a, u32 tile)
{
    exl2k_tiles_wait(s, a, tile, 0);
    exl2k_tiles_done(s, a, tile);
}

/* ---- sums ---- */

/* A lane's inputs of 32 rows and one tile. */
EXL2K_FN void exl2k_inputs(uint4 x[4], u32 at)
{
    for (u32 i = 0; i < 4; i++) {
        x[i] = exl2k_shared_load4(at + i * 512);
    }
}

/* The two strips' operands of steps j, j + 1 against 32 rows. */
EXL2K_FN void exl2k_half_product(exl2k_sums &sums, const exl2k_operand a[2], u32 j, u32 block, const uint4 x[4])
{
    for (u32 k = 0; k < 8; k++) {
        exl2k_mma(sums.v[k % 2][block * 4 + k / 2], a[k % 2][j], x[k / 2].x, x[k / 2].y);
    }
    for (u32 k = 0; k < 8; k++) {
        exl2k_mma(sums.v[k % 2][block * 4 + k / 2], a[k % 2][j + 1], x[k / 2].z, x[k / 2].w);
    }
}

/* The two strips' operands against all rows. low, high: the lane's inputs of the record's halves. Ends after 32, 64 or
   128 rows are also what keeps the compiler from loading all inputs first: it would have no registers left. */
EXL2K_FN void exl2k_product(exl2k_sums &sums, const exl2k_operand a[2], u32 low, u32 high, u32 row_blocks)
{
    uint4 x[2][4];
    exl2k_inputs(x[0], low);
    exl2k_inputs(x[1], high);
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

/* sums = W x over the chunks of w, records that begin in the halves [low, high). */
EXL2K_FN void exl2k_gemm_sum(exl2k_sums &sums, const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 low,
                             u32 high)
{
    u32 lane = threadIdx.x % EXL2K_WARP, half = low;
    /* Tiles are filled so far ahead: at least the next record's two, which must not wait for this warp to get there; no
       further than leaves warps room to be apart. */
    u32 lead = exl2k_max(a.stage_mask - 3, 3);
    u32 from = s.at + lane * 16, other = (a.slot_bytes - EXL2K_GEMM_ENTRY) / 2;
#pragma unroll
    for (u32 k = 0; k < 128; k++) {
        sums.v[k / 64][k / 4 % 16][k % 4] = 0.0f;
    }
    exl2k_tiles_fill(s, a, s.base + lead);
#pragma unroll 1
    while (half < high) {
        u32 slot = exl2k_slot(w, a, w.used);
        exl2k_weights_fill(w, a, lane);
        exl2k_weights_wait(w, a);
        uint4 c = exl2k_shared_load4(slot);
        u32 row = c.y & 0xFFFF, width = c.z & 255, records = c.z >> 8 & 255, groups = c.z >> 16 & 255;
        u32 bytes = (width == EXL2K_W16 ? 2048 : exl2k_bits(width) * 128), there = row + (c.w >> 8 & 255);
        exl2k_record r = { slot + EXL2K_GEMM_ENTRY, 0, other, 0, c.z >> 24 };
        u32 scales = r.codes + records * bytes + lane / 16 * groups * 4;
        u32 i = row < low ? (low - row + 1) / 2 : 0;
        if (row + 2 * i > half) { /* the record before this split has the first half */
            exl2k_tiles_skip(s, a, s.base);
        }
        half = row + 2 * i;
#pragma unroll 1
        for (; i < records && half < high; i++) {
            u32 tile = s.base + half - low, two = half + 1 < there, arrived[2];
            exl2k_operand operand[2];
            arrived[0] = exl2k_tiles_test(s, a, tile);
            arrived[1] = exl2k_tiles_test(s, a, tile + two);
            r.maximum = exl2k_shared_load(slot + 16 + i * 4);
            r.scales = scales + (r.by_half ? 2 * i : __popc(c.w & ((1u << i) - 1))) * 4;
            r.codes = slot + EXL2K_GEMM_ENTRY + i * bytes;
            exl2k_record_decode(operand, r, width, lane);
            exl2k_tiles_wait(s, a, tile, arrived[0]);
            if (two) {
                exl2k_tiles_wait(s, a, tile + 1, arrived[1]);
            }
            exl2k_tiles_fill(s, a, tile + lead + 1);
            /* a half that is not there: zeros, for which any finite inputs do */
            exl2k_product(sums, operand, from + exl2k_tile_place(a, tile) * exl2k_tile_bytes(a),
                          from + exl2k_tile_place(a, tile + two) * exl2k_tile_bytes(a), a.row_blocks);
            exl2k_tiles_done(s, a, tile);
            if (two) {
                exl2k_tiles_done(s, a, tile + 1);
            }
            half += 1 + two;
        }
        w.used++;
    }
    if (s.base + half - low < s.end) { /* the record that would need it begins in the next split */
        exl2k_tiles_skip(s, a, s.end - 1);
    }
}

/* ---- tiles ---- */

/* Where a tile lies. It is worked out twice, before and after the sums, which need the registers. */
typedef struct exl2k_spot {
    u32 part, strip; /* the warp's first strip; ACT: part 0 */
    u32 row, low, high;
} exl2k_spot;

EXL2K_FN exl2k_spot exl2k_spot_of(const exl2k_gemm_args &a, u32 work)
{
    const exl2k_matrix &m = a.matrix;
    u32 tile = work / a.splits, split = work % a.splits, column = tile / a.row_tiles;
    exl2k_spot p = { 0, 0, tile % a.row_tiles * (a.row_blocks * 32), split * a.halves, 0 };
    p.high = exl2k_min(p.low + a.halves, (m.rows + 31) / 32);
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

/* Begins to copy weights and inputs of a tile; false when it has no rows. */
EXL2K_FN bool exl2k_gemm_begin(const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, const exl2k_spot &p,
                               u32 pass)
{
    const exl2k_part &q = a.matrix.part[p.part + pass];
    u32 lane = threadIdx.x % EXL2K_WARP, from = 0, end = q.chunk_count;
    if (a.splits > 1) {
        exl2k_weights_range(q, p.low, p.high, from, end);
    }
    u32 last = q.strips - 1; /* strips beyond the last are the last, and are never stored */
    exl2k_weights_start(w, q.base + (u64)exl2k_min(p.strip, last) * q.pitch,
                        q.base + (u64)exl2k_min(p.strip + 1, last) * q.pitch, q.chunks + from * sizeof(exl2k_chunk),
                        q.chunks + end * sizeof(exl2k_chunk), lane);
#pragma unroll 1
    for (u32 i = 0; i < a.slot_mask; i++) {
        exl2k_weights_fill(w, a, lane);
    }
    if (s.end == 0) {
        exl2k_dependency_release();
        exl2k_dependency_wait();
    }
    u32 rows = exl2k_gemm_rows(a);
    if (p.row >= rows) {
        exl2k_weights_drop(w, a);
        return false;
    }
    u64 x = a.x + (u64)p.low * 64;
    if (lane == 0) {
        exl2k_shared_store4(s.home, exl2k_two(x, (u64)(rows - 1) << 32 | p.row));
    }
    __syncwarp();
    s.base = s.end;
    s.end += exl2k_min(p.high + 1, (a.matrix.rows + 31) / 32) - p.low;
    return true;
}

/* Whether this warp is the last of its kind, of all splits, to get here; then it sees what the others have stored. */
EXL2K_FN bool exl2k_last(const exl2k_gemm_args &a, u32 ticket)
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

/* Tile work / splits, split work % splits. What is needed after the sums waits in shared memory: they need the
   registers. All lanes store and load the same. */
EXL2K_FN void exl2k_gemm_tile(const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 work, u32 pass)
{
    exl2k_sums sums;
    exl2k_spot p = exl2k_spot_of(a, work);
    if (!exl2k_gemm_begin(a, w, s, p, pass)) {
        return;
    }
    exl2k_gemm_sum(sums, a, w, s, p.low, p.high);
    work = exl2k_shared_load(w.home + 80);
    pass = exl2k_shared_load(w.home + 84);
    p = exl2k_spot_of(a, work);
    u32 passes = exl2k_passes(a), n = p.strip * 16 + threadIdx.x % EXL2K_WARP;
    u32 rows = exl2k_min(exl2k_gemm_rows(a) - p.row, a.row_blocks * 32), tile = work / a.splits;
    u64 bytes = a.row_blocks * 32768;
    u64 gates = a.partial + (a.splits > 1 ? gridDim.x * passes + tile : blockIdx.x) * bytes;
    bool there = n < a.matrix.part[p.part + pass].columns;
    u64 block = a.partial + (work * passes + pass) * bytes;
    exl2k_column c = a.splits > 1 ? exl2k_column_block(block)
                                  : exl2k_column_of(a, p.part + pass, pass, n, p.row, gates);
    exl2k_gemm_results(sums, c, there, rows, w.ring);
    if (a.splits > 1 && exl2k_last(a, tile * passes + pass) && there) {
        c = exl2k_column_of(a, p.part + pass, pass, n, p.row, gates);
        exl2k_column_sum(c, block - work % a.splits * passes * bytes, a.splits, passes * bytes, rows);
    }
}

EXL2K_FN void exl2k_products(const exl2k_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 shared = exl2k_shared(exl2k_dynamic);
    exl2k_tiles s = { 0 };
    exl2k_weights w = { 0 };
    s.barriers = shared;
    s.at = shared + EXL2K_GEMM_BARRIERS;
    s.fill = threadIdx.x / EXL2K_WARP;
    w.ring = s.at + (exl2k_tile_bytes(a) << a.stages_log) + threadIdx.x / EXL2K_WARP * a.ring_bytes;
    w.home = shared + EXL2K_GEMM_TILE_BARRIERS + threadIdx.x / EXL2K_WARP * EXL2K_GEMM_HOME;
    s.home = w.home + 64;
    exl2k_weights_begin(w, a, threadIdx.x % EXL2K_WARP);
    exl2k_tiles_begin(shared, a.stage_mask + 1);
    __syncthreads();
    u32 work = blockIdx.x, pass = 0, tiles = a.row_tiles * a.column_tiles * a.splits;
#pragma unroll 1
    while (work < tiles) {
        __syncwarp();
        if (threadIdx.x % EXL2K_WARP == 0) {
            exl2k_shared_store(w.home + 80, work);
            exl2k_shared_store(w.home + 84, pass);
        }
        __syncwarp();
        exl2k_gemm_tile(a, w, s, work, pass);
        work = exl2k_shared_load(w.home + 80);
        pass = exl2k_shared_load(w.home + 84) + 1;
        if (pass == exl2k_passes(a)) {
            work += gridDim.x;
            pass = 0;
        }
        tiles = a.row_tiles * a.column_tiles * a.splits;
    }
}

/* ---- columns in another order ---- */

/* One row a CTA, in place. */
EXL2K_FN void exl2k_order(const exl2k_gemm_permute_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 shared = exl2k_shared(exl2k_dynamic);
    u64 row = a.values + (u64)blockIdx.x * a.pitch * 2;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    for (u32 i = threadIdx.x * 16; i < a.columns * 2; i += EXL2K_GEMM_THREADS * 16) {
        uint4 v = exl2k_load4(row + i), to = exl2k_load_constant4(a.map + i);
        const u32 values[4] = { v.x, v.y, v.z, v.w }, places[4] = { to.x, to.y, to.z, to.w };
        for (u32 k = 0; k < 8; k++) {
            u32 value = values[k / 2] >> k % 2 * 16, place = places[k / 2] >> k % 2 * 16 & 0xFFFF;
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(shared + place * 2), "h"((u16)value) : "memory");
        }
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x * 16; i < a.columns * 2; i += EXL2K_GEMM_THREADS * 16) {
        exl2k_store4(row + i, exl2k_shared_load4(shared + i));
    }
}

/* ---- the kernels ---- */

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)
exl2k_gemm(const __grid_constant__ exl2k_gemm_args a)
{
    exl2k_products(a);
}

extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS)
exl2k_gemm_permute(const __grid_constant__ exl2k_gemm_permute_args a)
{
    exl2k_order(a);
}
