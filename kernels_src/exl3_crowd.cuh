/* exl3_crowd.cuh: the product of 2 to 64 rows of sampled tokens with an EXL3 matrix, on sm_90 (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh, exl3_gemv.cuh (strips, sums of splits), wg.cuh (barriers).
   gives: exl2k_exl3_crowd<TILES, BOOK>: the body of a kernel for 8, 16, 32 or 64 rows (TILES 1, 2, 4, 8) and one
          codebook. Grid: strips of the launch's parts, splits; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_CROWD_SHARED
          bytes of dynamic shared memory.

   A stage has the transformed inputs of a block for all rows, as exl2k_exl3_rotate writes them for this product, and
   the block's tiles. Stages come by bulk copies, which the warps start in turn; the first tiles are on their way before
   the kernels in front of this one have ended. Each warp decodes one column of tiles in registers, and multiplies a
   tile by all rows at once. The last CTA of a strip to arrive adds up the splits and makes the outputs. A row's bits
   depend on the matrix and the number of splits only. Up to 16 rows they are those of exl3_gemv.cuh, which has two
   chains of sums. */
#ifndef EXL2K_EXL3_CROWD_CUH
#define EXL2K_EXL3_CROWD_CUH

#include "exl3_gemv.cuh"
#include "wg.cuh"

#define EXL2K_EXL3_CROWD_TURN 2 /* rows that a warp ends at a time: their loads and shuffles overlap */

/* The work of a CTA. */
typedef struct exl2k_exl3_crowd_work {
    u64 tiles, inputs; /* of the first block */
    u32 count;         /* blocks */
    u32 pitch, bytes;  /* of a row of tiles; bytes: of the strip's */
    u32 shared, stage; /* shared memory, and bytes of a stage; barriers follow the stages: full, then empty */
} exl2k_exl3_crowd_work;

EXL2K_FN u32 exl2k_exl3_crowd_full(const exl2k_exl3_crowd_work &w, u32 slot)
{
    return w.shared + EXL2K_EXL3_CROWD_STAGES * w.stage + slot * 8;
}

EXL2K_FN u32 exl2k_exl3_crowd_empty(const exl2k_exl3_crowd_work &w, u32 slot)
{
    return exl2k_exl3_crowd_full(w, slot + EXL2K_EXL3_CROWD_STAGES);
}

/* Starts to copy the tiles of the CTA's block `index` into its stage, which is free. One thread calls it. */
template <u32 TILES> EXL2K_FN void exl2k_exl3_crowd_tiles(const exl2k_exl3_crowd_work &w, u32 index)
{
    u32 slot = index % EXL2K_EXL3_CROWD_STAGES, full = exl2k_exl3_crowd_full(w, slot);
    u32 to = w.shared + slot * w.stage + TILES * 2048;
    u64 from = w.tiles + (u64)index * 8 * w.pitch, policy = exl2k_evict_first();
    exl2k_barrier_expect(full, TILES * 2048 + 8 * w.bytes);
#pragma unroll 1
    for (u32 i = 0; i < 8; i++) {
        exl2k_copy_bulk(to + i * w.bytes, from + (u64)i * w.pitch, w.bytes, full, policy);
    }
}

/* The same of its inputs, afterwards. */
template <u32 TILES> EXL2K_FN void exl2k_exl3_crowd_inputs(const exl2k_exl3_crowd_work &w, u32 index)
{
    u32 slot = index % EXL2K_EXL3_CROWD_STAGES;
    exl2k_copy_whole(w.shared + slot * w.stage, w.inputs + (u64)index * (TILES * 2048), TILES * 2048,
                     exl2k_exl3_crowd_full(w, slot));
}

/* Chains of sums: of even and of odd tiles, or one of all. */
EXL2K_FN constexpr u32 exl2k_exl3_crowd_chains(u32 tiles) { return tiles <= 2 ? 2 : 1; }

/* sum += the products of the CTA's blocks. */
template <u32 TILES, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_crowd_column(const exl2k_exl3_crowd_work &w, f32 sum[][TILES][4], u32 warp, u32 lane)
{
    constexpr u32 count = exl2k_exl3_words<RATE>(), group = TILES < 4 ? TILES : 4;
    constexpr u32 last = exl2k_exl3_crowd_chains(TILES) - 1;
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 column = TILES * 2048 + warp * 16 * RATE;
#pragma unroll 1
    for (u32 index = 0; index < w.count; index++) {
        u32 slot = index % EXL2K_EXL3_CROWD_STAGES, at = w.shared + slot * w.stage;
        u32 next = index + EXL2K_EXL3_CROWD_AHEAD;
        if (next % EXL2K_EXL3_WARPS == warp && next < w.count) { /* the warps take turns */
            u32 turn = next / EXL2K_EXL3_CROWD_STAGES & 1;
            exl2k_barrier_wait(exl2k_exl3_crowd_empty(w, next % EXL2K_EXL3_CROWD_STAGES), turn ^ 1);
            if (exl2k_elect()) {
                exl2k_exl3_crowd_tiles<TILES>(w, next);
                exl2k_exl3_crowd_inputs<TILES>(w, next);
            }
            __syncwarp();
        }
        exl2k_barrier_wait(exl2k_exl3_crowd_full(w, slot), index / EXL2K_EXL3_CROWD_STAGES & 1);
#pragma unroll
        for (u32 part = 0; part < 8; part += 4) {
            u32 words[4][count];
#pragma unroll
            for (u32 i = 0; i < count; i++) {
                u32 from = at + column + place.at[i];
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    words[k][i] = exl2k_shared_load(from + (part + k) * 128 * RATE);
                }
            }
#pragma unroll
            for (u32 k = 0; k < 4; k += 2) {
                u32 even[4], odd[4];
                exl2k_exl3_decode<RATE, BOOK>(even, words[k], place.shift);
                exl2k_exl3_decode<RATE, BOOK>(odd, words[k + 1], place.shift);
#pragma unroll
                for (u32 n = 0; n < TILES; n += group) {
                    uint4 b[group];
#pragma unroll
                    for (u32 i = 0; i < group; i++) {
                        b[i] = exl2k_shared_load4(at + lane * 16 + (n + i) * 2048 + (part + k) * 256);
                    }
#pragma unroll
                    for (u32 i = 0; i < group; i++) {
                        exl2k_mma(sum[0][n + i], even, b[i].x, b[i].y);
                    }
#pragma unroll
                    for (u32 i = 0; i < group; i++) {
                        exl2k_mma(sum[last][n + i], odd, b[i].z, b[i].w);
                    }
                }
            }
        }
        __syncwarp();
        if (lane == 0) {
            exl2k_barrier_arrive(exl2k_exl3_crowd_empty(w, slot));
        }
    }
}

template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_crowd_any_rate(u32 rate, const exl2k_exl3_crowd_work &w, f32 sum[][TILES][4], u32 warp,
                                        u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_crowd_column<TILES, R, BOOK>(w, sum, warp, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* ---- sums of splits ---- */

/* The outputs of rows row, row + 8, ... of a strip; before: strips of the parts before it. */
EXL2K_FN void exl2k_exl3_crowd_total(f32 v[EXL2K_EXL3_CROWD_TURN][4], const exl2k_exl3_args &a,
                                     const exl2k_exl3_part &part, u32 strip, u32 before, u32 row, u32 rows, u32 lane)
{
    exl2k_exl3_ends e = exl2k_exl3_ends_of(part, strip, lane);
#pragma unroll
    for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) {
        v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0;
    }
#pragma unroll 4
    for (u32 split = 0; split < a.splits; split++) {
#pragma unroll
        for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) { /* rows beyond the last repeat it, and are not stored */
            u32 own = exl2k_min(row + i * EXL2K_EXL3_WARPS, rows - 1);
            uint4 p = exl2k_load4(exl2k_exl3_partial(a, before + strip, split, own) + lane * 16);
            v[i][0] += __uint_as_float(p.x);
            v[i][1] += __uint_as_float(p.y);
            v[i][2] += __uint_as_float(p.z);
            v[i][3] += __uint_as_float(p.w);
        }
    }
#pragma unroll
    for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) {
        exl2k_exl3_ended(v[i], e, part.bias != 0, lane);
    }
}

/* What follows the sums of all CTAs of a strip, or of a strip of gate and the same one of up. rows_at: where the number
   of rows lies in shared memory, as registers are few. sums: where the sums lie there, if no other CTA has some; else
   0. */
EXL2K_FN void exl2k_exl3_crowd_outputs(const exl2k_exl3_args &a, const exl2k_exl3_unit &u, bool pairs, u32 rows_at,
                                       u32 sums, u32 warp, u32 lane)
{
    u32 own_part = pairs ? 1 : u.part, before_strips = pairs ? a.part[0].out / EXL2K_EXL3_BLOCK : u.before;
    const exl2k_exl3_part &part = a.part[own_part];
#pragma unroll 1
    for (u32 row = warp; row < exl2k_shared_load(rows_at); row += EXL2K_EXL3_CROWD_TURN * EXL2K_EXL3_WARPS) {
        f32 v[EXL2K_EXL3_CROWD_TURN][4], before[EXL2K_EXL3_CROWD_TURN][4];
        if (pairs) {
            exl2k_exl3_crowd_total(before, a, a.part[0], u.strip, 0, row, exl2k_shared_load(rows_at), lane);
        } else {
#pragma unroll
            for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) {
                before[i][0] = before[i][1] = before[i][2] = before[i][3] = 0;
                if (a.kind == EXL2K_EXL3_RESIDUAL) { /* on its way with the sums */
                    u32 own = exl2k_min(row + i * EXL2K_EXL3_WARPS, exl2k_shared_load(rows_at) - 1);
                    exl2k_exl3_before(before[i], exl2k_exl3_goal_of(a, part, u.strip, own, lane));
                }
            }
        }
        if (sums) {
            exl2k_exl3_ends e = exl2k_exl3_ends_of(part, u.strip, lane);
#pragma unroll
            for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) {
                u32 own = exl2k_min(row + i * EXL2K_EXL3_WARPS, exl2k_shared_load(rows_at) - 1);
                exl2k_exl3_sums(v[i], sums, own, lane);
                exl2k_exl3_ended(v[i], e, part.bias != 0, lane);
            }
        } else {
            exl2k_exl3_crowd_total(v, a, part, u.strip, before_strips, row, exl2k_shared_load(rows_at), lane);
        }
#pragma unroll
        for (u32 i = 0; i < EXL2K_EXL3_CROWD_TURN; i++) {
            u32 own = row + i * EXL2K_EXL3_WARPS;
            if (own < exl2k_shared_load(rows_at)) {
                exl2k_exl3_finish_row(a, exl2k_exl3_goal_of(a, part, u.strip, own, lane), v[i], before[i]);
            }
        }
    }
}

/* Writes the sums of a split; the last CTA of a strip makes its outputs. */
template <u32 TILES>
EXL2K_FN void exl2k_exl3_crowd_split(const exl2k_exl3_args &a, const f32 sum[TILES][4], bool pairs, u32 rows_at)
{
    u32 thread = exl2k_exl3_again(threadIdx.x), lane = thread % EXL2K_WARP, warp = thread / EXL2K_WARP;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, exl2k_exl3_again(blockIdx.x));
    u32 rows = exl2k_shared_load(rows_at);
    u64 to = exl2k_exl3_partial(a, u.before + u.strip, blockIdx.y, 0) + (warp * EXL2K_EXL3_TILE + lane / 4) * 4;
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * n + lane % 4 * 2 + i % 2;
            if (row < rows) {
                exl2k_store_f32(to + row * (EXL2K_EXL3_BLOCK * 4) + i / 2 * 32, sum[n][i]);
            }
        }
    }
    u64 ticket = a.tickets + (pairs ? u.strip : u.before + u.strip) * 4;
    if (!exl2k_exl3_is_last(ticket, a.splits << pairs)) {
        return;
    }
    exl2k_exl3_crowd_outputs(a, u, pairs, rows_at, 0, warp, lane);
}

template <u32 TILES, u32 BOOK> EXL2K_FN void exl2k_exl3_crowd(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0);
    u32 begin = a.blocks * blockIdx.y / a.splits, end = a.blocks * (blockIdx.y + 1) / a.splits;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    exl2k_exl3_crowd_work w;
    w.shared = exl2k_shared(exl2k_dynamic);
    w.stage = TILES * 2048 + a.slab;
    w.bytes = 128 * part.rate;
    w.pitch = part.row_tiles * 16 * part.rate;
    w.tiles = part.trellis + (u64)begin * 8 * w.pitch + u.strip * w.bytes;
    w.inputs = a.rotated + (u64)(u.part * a.blocks + begin) * (TILES * 2048);
    w.count = end - begin;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < EXL2K_EXL3_CROWD_STAGES; i++) {
            exl2k_barrier_init(exl2k_exl3_crowd_full(w, i), 1);
            exl2k_barrier_init(exl2k_exl3_crowd_empty(w, i), EXL2K_EXL3_WARPS);
        }
        exl2k_barrier_init_fence();
    }
    __syncthreads();
    bool first = warp < EXL2K_EXL3_CROWD_AHEAD && warp < w.count && exl2k_elect();
    if (first) { /* weights are constant: they come while preceding kernels may still run */
        exl2k_exl3_crowd_tiles<TILES>(w, warp);
    }
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (first) {
        exl2k_exl3_crowd_inputs<TILES>(w, warp);
    }
    __syncwarp();
    __shared__ u32 present; /* no register is left for it */
    if (threadIdx.x == 0) {
        present = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    }
    f32 sum[exl2k_exl3_crowd_chains(TILES)][TILES][4];
#pragma unroll
    for (u32 k = 0; k < exl2k_exl3_crowd_chains(TILES); k++) {
#pragma unroll
        for (u32 n = 0; n < TILES; n++) {
            sum[k][n][0] = sum[k][n][1] = sum[k][n][2] = sum[k][n][3] = 0;
        }
    }
    exl2k_exl3_crowd_any_rate<TILES, BOOK>(part.rate, w, sum, warp, exl2k_exl3_again(lane));
    if constexpr (exl2k_exl3_crowd_chains(TILES) == 2) {
#pragma unroll
        for (u32 i = 0; i < TILES * 4; i++) {
            sum[0][i / 4][i % 4] += sum[1][i / 4][i % 4];
        }
    }
    bool pairs = a.kind == EXL2K_EXL3_ACT && a.parts == 2;
    __syncthreads(); /* all warps have read all stages */
    u32 rows = present;
    if (rows == 0) {
        return;
    }
    if (a.splits > 1 || pairs) {
        exl2k_exl3_crowd_split<TILES>(a, sum[0], pairs, exl2k_shared(&present));
        return;
    }
    exl2k_exl3_gather<TILES>(w.shared, sum[0], warp, lane, rows);
    __syncthreads();
    exl2k_exl3_crowd_outputs(a, u, false, exl2k_shared(&present), w.shared, warp, lane);
}

#endif
