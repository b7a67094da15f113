/* grouped_rows.cu: the kernels around the products of many rows with experts: sort, gather, sum.
   takes: grouped_rows_args.h, expert_args.h.
   gives: exl2k_grouped_sort, exl2k_grouped_gather, exl2k_grouped_sum. */
#include "base.cuh"
#include "expert_args.h"
#include "grouped_rows_args.h"

/* ---- pairs ---- */

EXL2K_FN uint2 exl2k_pair_at(u64 pairs, u32 place)
{
    uint2 v;
    asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y) : "l"(pairs + (u64)place * sizeof(exl2k_grouped_pair)) : "memory");
    return v;
}

EXL2K_FN void exl2k_pair_store(u64 pairs, u32 place, u32 row, u32 expert)
{
    exl2k_sleep(32);
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(pairs + (u64)place * sizeof(exl2k_grouped_pair)), "r"(row),
                 "r"(expert) : "memory");
}

/* ---- sorting ---- */

#define EXL2K_SORT_WARPS (EXL2K_GROUPED_SORT_THREADS / EXL2K_WARP)
#define EXL2K_SORT_EXPERTS (EXL2K_GROUPED_MAX / EXL2K_GROUPED_SORT_THREADS) /* of a thread */
#define EXL2K_SORT_BATCH 8 /* slots of a thread that are loaded together */

/* Numbers that are added up over experts: slots; tiles of more than half of the rows, more than a quarter, the rest. */
typedef struct exl2k_sort_counts {
    u32 v[4];
} exl2k_sort_counts;

/* The tiles of an expert with `rows` rows: full ones, and one of the size of the rest. */
EXL2K_FN exl2k_sort_counts exl2k_sort_count(u32 rows, u32 tile_rows)
{
    u32 full = rows / tile_rows, rest = rows % tile_rows;
    bool most = rest > tile_rows / 2, half = rest > tile_rows / 4;
    exl2k_sort_counts c = { { rows, full + most, half && !most, rest > 0 && !half } };
    return c;
}

/* Sums over the threads before this one, and over all threads. All threads of the CTA call it. */
EXL2K_FN exl2k_sort_counts exl2k_sort_before(const exl2k_sort_counts &own, exl2k_sort_counts &all)
{
    __shared__ u32 totals[EXL2K_SORT_WARPS][4];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP;
    exl2k_sort_counts before = own;
    /* Add up the lanes of each warp. */
    for (u32 i = 0; i < 4; i++) {
        for (u32 step = 1; step < EXL2K_WARP; step *= 2) {
            u32 left = __shfl_up_sync(EXL2K_ALL, before.v[i], step);
            before.v[i] += lane >= step ? left : 0;
        }
        if (lane == EXL2K_WARP - 1) {
            totals[warp][i] = before.v[i];
        }
        before.v[i] -= own.v[i];
        all.v[i] = 0;
    }
    __syncthreads();
    /* Add up the warps. */
#pragma unroll 4
    for (u32 w = 0; w < EXL2K_SORT_WARPS; w++) {
        for (u32 i = 0; i < 4; i++) {
            before.v[i] += w < warp ? totals[w][i] : 0;
            all.v[i] += totals[w][i];
        }
    }
    return before;
}

/* Writes the tiles of one expert. at: first place of the expert; then index of its first tile of each size. */
EXL2K_FN void exl2k_sort_tiles(const exl2k_grouped_sort_args &a, u32 expert, u32 rows, const u32 at[4])
{
    u32 large = at[1];
#pragma unroll 1
    for (u32 done = 0; done < rows; done += a.tile_rows) {
        u32 left = exl2k_min(rows - done, a.tile_rows);
        u32 index = left > a.tile_rows / 2 ? large++ : left > a.tile_rows / 4 ? at[2] : at[3];
        exl2k_store4(a.tiles + (u64)index * sizeof(exl2k_grouped_tile), make_uint4(expert, at[0] + done, left, 0));
    }
}

/* The experts of the slots i, i + EXL2K_GROUPED_SORT_THREADS, and so on, all loads in flight together. */
EXL2K_FN void exl2k_sort_load(u32 experts[EXL2K_SORT_BATCH], const exl2k_grouped_sort_args &a, u32 i)
{
#pragma unroll
    for (u32 n = 0; n < EXL2K_SORT_BATCH; n++, i += EXL2K_GROUPED_SORT_THREADS) {
        experts[n] = i < a.slot_count ? exl2k_load(a.choice + (u64)i * 4) : 0;
    }
#pragma unroll
    for (u32 n = 0; n < EXL2K_SORT_BATCH; n++) {
        experts[n] = exl2k_min(experts[n], a.experts - 1);
    }
}

/* The next place of the thread's expert (~0: it has none), in the order of the threads: warp by warp, and in a warp by
   the lanes that have the same expert. All threads of the CTA call it. */
EXL2K_FN u32 exl2k_sort_rank(u32 *before, u32 expert)
{
    u32 lane = threadIdx.x % EXL2K_WARP, place = 0, same = 0;
    for (u32 rest = EXL2K_ALL; rest;) { /* all lanes with the expert of the first lane that is left */
        u32 leader = __ffs(rest) - 1, mine = __shfl_sync(EXL2K_ALL, expert, leader);
        u32 alike = __ballot_sync(EXL2K_ALL, expert == mine);
        same = expert == mine ? alike : same;
        rest &= ~alike;
    }
#pragma unroll 1
    for (u32 warp = 0; warp < EXL2K_SORT_WARPS; warp++) {
        if (warp == threadIdx.x / EXL2K_WARP) {
            u32 earlier = same & ((1u << lane) - 1);
            place = (expert != ~0u ? before[expert] : 0) + __popc(earlier);
            __syncwarp();
            if (expert != ~0u && earlier == 0) {
                before[expert] += __popc(same);
            }
        }
        __syncthreads();
    }
    return place;
}

/* Each CTA counts all slots, and gives the EXL2K_GROUPED_SORT_THREADS slots of its own a place: after those of the same
   expert that earlier CTAs have. */
extern "C" __global__ void __launch_bounds__(EXL2K_GROUPED_SORT_THREADS)
exl2k_grouped_sort(const __grid_constant__ exl2k_grouped_sort_args a)
{
    __shared__ u32 before[EXL2K_GROUPED_MAX]; /* of each expert: slots of earlier CTAs, then the next place */
    __shared__ u32 after[EXL2K_GROUPED_MAX];  /* of each expert: the other slots */
    u32 own = blockIdx.x * EXL2K_GROUPED_SORT_THREADS, rows[EXL2K_SORT_EXPERTS];
    exl2k_sort_counts sums = { { 0, 0, 0, 0 } }, all;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Count the slots of each expert. */
    for (u32 e = threadIdx.x; e < EXL2K_GROUPED_MAX; e += EXL2K_GROUPED_SORT_THREADS) {
        before[e] = after[e] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < a.slot_count; i += EXL2K_GROUPED_SORT_THREADS * EXL2K_SORT_BATCH) {
        u32 experts[EXL2K_SORT_BATCH];
        exl2k_sort_load(experts, a, i);
#pragma unroll
        for (u32 n = 0; n < EXL2K_SORT_BATCH; n++) {
            u32 slot = i + n * EXL2K_GROUPED_SORT_THREADS;
            if (slot < a.slot_count) {
                atomicAdd(slot < own ? &before[experts[n]] : &after[experts[n]], 1);
            }
        }
    }
    __syncthreads();
    /* Each thread has a few experts. Find where their places and tiles begin. */
#pragma unroll
    for (u32 i = 0; i < EXL2K_SORT_EXPERTS; i++) {
        u32 expert = threadIdx.x * EXL2K_SORT_EXPERTS + i;
        rows[i] = before[expert] + after[expert];
        exl2k_sort_counts more = exl2k_sort_count(rows[i], a.tile_rows);
        for (u32 n = 0; n < 4; n++) {
            sums.v[n] += more.v[n];
        }
    }
    sums = exl2k_sort_before(sums, all);
    u32 at[4] = { sums.v[0], sums.v[1], all.v[1] + sums.v[2], all.v[1] + all.v[2] + sums.v[3] };
#pragma unroll
    for (u32 i = 0; i < EXL2K_SORT_EXPERTS; i++) {
        u32 expert = threadIdx.x * EXL2K_SORT_EXPERTS + i;
        before[expert] += at[0];
        if (blockIdx.x == 0) {
            exl2k_sort_tiles(a, expert, rows[i], at);
        }
        exl2k_sort_counts more = exl2k_sort_count(rows[i], a.tile_rows);
        for (u32 n = 0; n < 4; n++) {
            at[n] += more.v[n];
        }
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        exl2k_store(a.tile_count, all.v[1] + all.v[2] + all.v[3]);
    }
    __syncthreads();
    /* Give each slot of this CTA a place. */
    u32 slot = own + threadIdx.x;
    if (a.ordered) {
        u32 expert = slot < a.slot_count ? exl2k_min(exl2k_load(a.choice + (u64)slot * 4), a.experts - 1) : ~0u;
        u32 place = exl2k_sort_rank(before, expert);
        if (slot < a.slot_count) {
            exl2k_pair_store(a.pairs, place, slot / a.k, expert);
            exl2k_store(a.places + (u64)slot * 4, place);
        }
    } else if (slot < a.slot_count) {
        u32 expert = exl2k_min(exl2k_load(a.choice + (u64)slot * 4), a.experts - 1);
        u32 place = atomicAdd(&before[expert], 1);
        exl2k_pair_store(a.pairs, place, slot / a.k, expert);
        exl2k_store(a.places + (u64)slot * 4, place);
    }
}

/* ---- rows ---- */

#define EXL2K_ROW_BATCH 4 /* loads of a thread that are in flight together */

EXL2K_FN void exl2k_shared_store_u16(u32 at, u32 v)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((u16)v) : "memory");
}

/* Scatters elements `columns` / 8 * 8 and following, which no load of 16 bytes covers, to shared memory. */
EXL2K_FN void exl2k_row_rest(u32 shared, u64 from, u64 map, u32 columns)
{
    for (u32 n = columns / 8 * 8 + threadIdx.x; n < columns; n += EXL2K_GROUPED_ROW_THREADS) {
        exl2k_shared_store_u16(shared + (map ? exl2k_load_u16(map + n * 2) : n) * 2, exl2k_load_u16(from + n * 2));
    }
}

/* Copies element n of a row to map[n], through shared memory; map 0: identity. All threads of the CTA call it. */
EXL2K_FN void exl2k_row_permute(u64 to, u64 from, u64 map, u32 columns)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 shared = exl2k_shared(exl2k_dynamic), count = columns / 8;
    /* Each thread reads groups of eight elements with their indices, and scatters them in shared memory. */
#pragma unroll 1
    for (u32 i = threadIdx.x; i < count; i += EXL2K_GROUPED_ROW_THREADS * EXL2K_ROW_BATCH) {
        uint4 v[EXL2K_ROW_BATCH], index[EXL2K_ROW_BATCH];
#pragma unroll
        for (u32 n = 0; n < EXL2K_ROW_BATCH; n++) {
            u32 at = exl2k_min(i + n * EXL2K_GROUPED_ROW_THREADS, count - 1);
            v[n] = exl2k_load4(from + at * 16);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_ROW_BATCH; n++) {
            u32 at = exl2k_min(i + n * EXL2K_GROUPED_ROW_THREADS, count - 1);
            index[n] = map ? exl2k_load_constant4(map + at * 16) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_ROW_BATCH; n++) {
            const u32 values[4] = { v[n].x, v[n].y, v[n].z, v[n].w };
            const u32 places[4] = { index[n].x, index[n].y, index[n].z, index[n].w };
            u32 at = i + n * EXL2K_GROUPED_ROW_THREADS;
            if (at < count && !map) {
                exl2k_shared_store4(shared + at * 16, v[n]);
            } else if (at < count) {
                for (u32 k = 0; k < 8; k++) {
                    u32 place = places[k / 2] >> k % 2 * 16 & 0xFFFF;
                    exl2k_shared_store_u16(shared + place * 2, values[k / 2] >> k % 2 * 16);
                }
            }
        }
    }
    exl2k_row_rest(shared, from, map, columns);
    __syncthreads();
    /* The permuted row goes to global memory. */
    for (u32 i = threadIdx.x; i < count; i += EXL2K_GROUPED_ROW_THREADS) {
        exl2k_store4(to + i * 16, exl2k_shared_load4(shared + i * 16));
    }
    for (u32 n = count * 8 + threadIdx.x; n < columns; n += EXL2K_GROUPED_ROW_THREADS) {
        exl2k_store_u16(to + n * 2, exl2k_shared_load(shared + n / 2 * 4) >> n % 2 * 16);
    }
}

/* Copies element n of a row to map[n], directly. */
EXL2K_FN void exl2k_row_scatter(u64 to, u64 from, u64 map, u32 columns)
{
    for (u32 n = threadIdx.x; n < columns; n += EXL2K_GROUPED_ROW_THREADS) {
        exl2k_store_u16(to + (map ? exl2k_load_u16(map + n * 2) : n) * 2, exl2k_load_u16(from + n * 2));
    }
}

EXL2K_FN void exl2k_row_clear(u64 row, u32 from, u32 end)
{
    for (u32 n = from + threadIdx.x; n < end; n += EXL2K_GROUPED_ROW_THREADS) {
        exl2k_store_u16(row + n * 2, 0);
    }
}

extern "C" __global__ void __launch_bounds__(EXL2K_GROUPED_ROW_THREADS)
exl2k_grouped_gather(const __grid_constant__ exl2k_grouped_gather_args a)
{
    u32 place = blockIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    uint2 pair = exl2k_pair_at(a.pairs, place);
    u64 map = a.packed ? 0 : ((const exl2k_expert *)a.experts)[pair.y].up_map;
    u64 from = a.x + (u64)pair.x * a.x_pitch * 2, to = a.to + (u64)place * a.pitch * 2;
    if (a.staged) {
        exl2k_row_permute(to, from, map, a.columns);
    } else {
        exl2k_row_scatter(to, from, map, a.columns);
    }
    exl2k_row_clear(to, a.columns, a.pitch);
    exl2k_row_clear(a.h + (u64)place * a.h_pitch * 2, a.h_columns, a.h_pitch);
}

/* ---- the sum ---- */

#define EXL2K_SUM_BATCH 4 /* slots of which the results are loaded together */

extern "C" __global__ void __launch_bounds__(EXL2K_GROUPED_SUM_THREADS)
exl2k_grouped_sum(const __grid_constant__ exl2k_grouped_sum_args a)
{
    u32 first = blockIdx.y * (EXL2K_GROUPED_SUM_THREADS * EXL2K_GROUPED_SUM_COLUMNS) + threadIdx.x;
    u64 slots = (u64)blockIdx.x * a.k * 4;
    f32 sum[EXL2K_GROUPED_SUM_COLUMNS] = { 0 };
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Add up the row's slots. Each thread has columns that are a CTA's threads apart. */
#pragma unroll 1
    for (u32 i = 0; i < a.k; i += EXL2K_SUM_BATCH) {
        u32 places[EXL2K_SUM_BATCH];
        f32 weights[EXL2K_SUM_BATCH], v[EXL2K_SUM_BATCH][EXL2K_GROUPED_SUM_COLUMNS];
        /* Load the places, then the results. Slots after the row's last one repeat it. */
#pragma unroll
        for (u32 n = 0; n < EXL2K_SUM_BATCH; n++) {
            u32 slot = exl2k_min(i + n, a.k - 1);
            places[n] = exl2k_load(a.places + slots + slot * 4);
            weights[n] = exl2k_load_f32(a.weight + slots + slot * 4);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_SUM_BATCH * EXL2K_GROUPED_SUM_COLUMNS; n++) {
            u32 slot = n / EXL2K_GROUPED_SUM_COLUMNS, c = n % EXL2K_GROUPED_SUM_COLUMNS;
            u32 column = exl2k_min(first + c * EXL2K_GROUPED_SUM_THREADS, a.columns - 1);
            v[slot][c] = exl2k_load_f32(a.results + ((u64)places[slot] * a.pitch + column) * 4);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_SUM_BATCH * EXL2K_GROUPED_SUM_COLUMNS; n++) {
            u32 slot = n / EXL2K_GROUPED_SUM_COLUMNS, c = n % EXL2K_GROUPED_SUM_COLUMNS;
            sum[c] = i + slot < a.k ? fmaf(weights[slot], v[slot][c], sum[c]) : sum[c];
        }
    }
    /* Store the sums. */
#pragma unroll
    for (u32 c = 0; c < EXL2K_GROUPED_SUM_COLUMNS; c++) {
        u32 column = first + c * EXL2K_GROUPED_SUM_THREADS;
        if (column < a.columns) {
            u64 at = a.out + ((u64)blockIdx.x * a.out_pitch + column) * 4;
            exl2k_store_f32(at, fmaf(a.scale, sum[c], a.add ? exl2k_load_f32(at) : 0.0f));
        }
    }
}
