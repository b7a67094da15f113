/* gemv_lora.cuh: what adapters add to a product of 1 to 8 rows, in the product's own launch.
   takes: what gemv.cuh defines before it includes this file; lora_args.h.
   gives: exl2k_lora_shrink<M>; exl2k_lora_copy, exl2k_lora_begin, exl2k_lora_expand<M>.
   owns:  nothing; included by gemv.cuh only, if EXL2K_LORA.

   The first EXL2K_LORA_CTAS CTAs of the launch have no strips. They compute t = factor A x, by tiles of 16 values of t
   and 8 rows, and publish it with its epoch. All others multiply as ever; a warp that has no chunks left waits for t,
   and writes B t of its strips as if it were one more slice. So all factors and biases that follow hold for it, too.
   The grid begins with the CTAs that compute t, and these wait for no CTA of the launch.

   A row's values depend on its own adapters alone: a value of t is the sum of 16 slices of the inputs, B t is a sum
   along the rank, and adapters are added up in the order of the row. */
#ifndef EXL2K_GEMV_LORA_CUH
#define EXL2K_GEMV_LORA_CUH

#include "lora_args.h"

/* Where the area of adapters lies in shared memory, from the small area on. */
template <u32 M> EXL2K_FN constexpr u32 exl2k_lora_behind(void)
{
    return M == 1 ? EXL2K_GEMV_SMALL_BYTES : EXL2K_GEMV8_SMALL_BYTES;
}

/* Address of what the adapter of entry `index` = slot * parts + part adds. */
EXL2K_FN u64 exl2k_lora_matrix_at(const exl2k_lora_gemv_args &l, u32 index)
{
    u32 parts = l.gemv.matrix.parts, slot = index * l.parts_inverse >> 16;
    return l.tables + ((u64)slot * l.table + l.place + index - slot * parts) * sizeof(exl2k_lora_matrix);
}

EXL2K_FN u64 exl2k_lora_t_at(const exl2k_lora_gemv_args &l, u32 index, u32 row, u32 k)
{
    return l.t + (((u64)index * EXL2K_LORA_ROWS + l.row + row) * l.rank_stride + k) * 8;
}

EXL2K_FN u32 exl2k_lora_pitch(u32 elements, u32 multiple) { return (elements + multiple - 1) / multiple * multiple; }

EXL2K_FN void exl2k_lora_copy_one(u32 to, u64 from)
{
#if EXL2K_BULK
    exl2k_copy16(to, from);
#else
    exl2k_shared_store4(to, exl2k_load4(from)); /* an asynchronous copy would be among those of the ring */
#endif
}

/* Starts to copy what a CTA with strips reads of the pass and of the tables, which are older than the preceding kernel. It
   comes first, so that nothing waits for it at the end of the setup. The last threads have entries, the first ones
   rows. */
EXL2K_FN void exl2k_lora_copy(const exl2k_lora_gemv_args &l, u32 small)
{
    u32 entries = l.slots * l.gemv.matrix.parts;
    if (threadIdx.x < EXL2K_LORA_ROWS) {
        exl2k_lora_copy_one(small + threadIdx.x * 16, l.pass + 16 + threadIdx.x * (u32)sizeof(exl2k_lora_row));
    }
#pragma unroll 1
    for (u32 i = EXL2K_GEMV_THREADS - 1 - threadIdx.x; i < entries; i += EXL2K_GEMV_THREADS) {
        exl2k_lora_copy_one(small + EXL2K_LORA_ENTRY_AT + i * 16, exl2k_lora_matrix_at(l, i));
    }
}

/* ---- values that are ready when they carry the epoch of the product ---- */

/* Two values and their epochs, each pair of which another CTA of the launch may be publishing. */
EXL2K_FN uint4 exl2k_load_published(u64 at)
{
    u64 first, second;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
    return make_uint4((u32)first, (u32)(first >> 32), (u32)second, (u32)(second >> 32));
}

/* Stores a value and its epoch at once, for other CTAs of the launch. */
EXL2K_FN void exl2k_publish(u64 at, f32 value, u32 epoch)
{
    exl2k_sleep(32);
    u64 both = (u64)epoch << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(both) : "memory");
}

/* ---- t = factor A x ---- */

/* slot * parts + part, of part i % parts of adapter i / parts of the pass. */
EXL2K_FN u32 exl2k_lora_index(const exl2k_lora_gemv_args &l, u32 i)
{
    u32 parts = l.gemv.matrix.parts, adapter = i / parts;
    u32 four = exl2k_load(l.pass + 16 + EXL2K_LORA_ROWS * sizeof(exl2k_lora_row) + adapter / 4 * 4);
    return (four >> adapter % 4 * 8 & 255) * parts + i - adapter * parts;
}

EXL2K_FN u64 exl2k_lora_scale_at(const exl2k_lora_gemv_args &l, u32 adapter, u32 row)
{
    u64 scales = l.pass + 16 + EXL2K_LORA_ROWS * sizeof(exl2k_lora_row) + EXL2K_LORA_ADAPTERS;
    return scales + (adapter * EXL2K_LORA_ROWS + row) * 4;
}

/* An exl2k_lora_matrix; its last word is the index. */
EXL2K_FN u32 exl2k_lora_entry(u32 small, u32 index) { return small + EXL2K_LORA_ENTRY_AT + index * 32; }

/* Copies the entries of the adapters of the pass to shared memory, in the order of their list, and brings A and B into
   L2, while preceding kernels may still run. */
EXL2K_FN void exl2k_lora_open(const exl2k_lora_gemv_args &l, u32 small, u32 count)
{
    const exl2k_matrix &m = l.gemv.matrix;
    u32 first = blockIdx.x * EXL2K_GEMV_THREADS + threadIdx.x, step = EXL2K_LORA_CTAS * EXL2K_GEMV_THREADS;
    if (threadIdx.x < count) {
        u32 index = exl2k_lora_index(l, threadIdx.x);
        u64 at = exl2k_lora_matrix_at(l, index);
        uint4 low = exl2k_load4(at), high = exl2k_load4(at + 16);
        high.w = index;
        exl2k_shared_store4(exl2k_lora_entry(small, threadIdx.x), low);
        exl2k_shared_store4(exl2k_lora_entry(small, threadIdx.x) + 16, high);
    }
    __syncthreads();
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        uint4 low = exl2k_shared_load4(exl2k_lora_entry(small, i));
        uint2 high = exl2k_shared_load2(exl2k_lora_entry(small, i) + 16);
        u32 a = low.x * exl2k_lora_pitch(l.in, 16), b = low.x * exl2k_lora_pitch(m.part[i % m.parts].columns, 32);
        for (u32 k = first * 64; k < a; k += step * 64) {
            exl2k_prefetch(((u64)high.y << 32 | high.x) + k * 2);
        }
        for (u32 k = first * 64; k < b; k += step * 64) {
            exl2k_prefetch(((u64)low.w << 32 | low.z) + k * 2);
        }
    }
}

/* This warp's slice of the products of rows [first, first + 16) of A with 8 rows of x, as exl2k_mma has sums. x: where
   the lane's row and its quarter of 32 inputs begin. */
EXL2K_FN void exl2k_lora_slice(const exl2k_lora_gemv_args &l, u64 a, u32 rank, u32 first, u64 x, f32 sum[4])
{
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, pitch = exl2k_lora_pitch(l.in, 16);
    u32 steps = (pitch + 31) / 32, begin = warp * steps / EXL2K_GEMV_WARPS, end = (warp + 1) * steps / EXL2K_GEMV_WARPS;
    u64 low_at = a + (u64)exl2k_min(first + lane / 4, rank - 1) * pitch * 2;
    u64 high_at = a + (u64)exl2k_min(first + lane / 4 + 8, rank - 1) * pitch * 2;
    sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
#pragma unroll 8
    for (u32 i = begin; i < end; i++) {
        u32 column = i * 32 + lane % 4 * 8; /* A has zeros behind its inputs, up to its pitch */
        uint4 low = make_uint4(0, 0, 0, 0), high = low, v = exl2k_load4(x + (u64)i * l.gemv.x_step);
        if (column < pitch) {
            low = exl2k_load_constant4(low_at + column * 2);
            high = exl2k_load_constant4(high_at + column * 2);
        }
        const u32 even[4] = { low.x, high.x, low.y, high.y }, odd[4] = { low.z, high.z, low.w, high.w };
        exl2k_mma(sum, even, v.x, v.y);
        exl2k_mma(sum, odd, v.z, v.w);
    }
}

/* Adds up the slices of a tile, and publishes it. scale: of the thread's row. */
EXL2K_FN void exl2k_lora_publish(const exl2k_lora_gemv_args &l, u32 sums, u32 index, u32 first, uint4 entry, u32 rows,
                                 f32 scale, u32 epoch)
{
    u32 k = first + threadIdx.x / EXL2K_LORA_ROWS, row = threadIdx.x % EXL2K_LORA_ROWS;
    f32 total = 0.0f;
    if (threadIdx.x >= EXL2K_LORA_TILE * EXL2K_LORA_ROWS || row >= rows || k >= entry.x) {
        return;
    }
#pragma unroll
    for (u32 warp = 0; warp < EXL2K_GEMV_WARPS; warp++) {
        total += exl2k_shared_load_f32(sums + (warp * EXL2K_LORA_TILE * EXL2K_LORA_ROWS + threadIdx.x) * 4);
    }
    exl2k_publish(exl2k_lora_t_at(l, index, row, k), total * (scale * __uint_as_float(entry.y)), epoch);
}

/* The whole work of a CTA that computes t. */
template <u32 M> EXL2K_FN void exl2k_lora_shrink(const exl2k_lora_gemv_args &l, u32 small)
{
    const exl2k_gemv_args &a = l.gemv;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, tile = 0;
    u32 count = exl2k_load(l.pass) * a.matrix.parts;
    exl2k_lora_open(l, small, count);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = M == 1 ? 1 : a.rows_at ? exl2k_min(exl2k_load(a.rows_at), M) : a.rows;
    u32 epoch = exl2k_load(l.turn) * l.epochs + l.epoch;
    u64 x = l.x + (u64)exl2k_min(lane / 4, rows - 1) * a.x_pitch * 2 + lane % 4 * 16;
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        uint4 low = exl2k_shared_load4(exl2k_lora_entry(small, i));
        uint4 high = exl2k_shared_load4(exl2k_lora_entry(small, i) + 16);
#pragma unroll 1
        for (u32 first = 0; first < low.x; first += EXL2K_LORA_TILE) {
            if (tile++ % EXL2K_LORA_CTAS != blockIdx.x) {
                continue;
            }
            u32 row = l.row + threadIdx.x % EXL2K_LORA_ROWS;
            f32 scale = exl2k_load_f32(exl2k_lora_scale_at(l, i * l.parts_inverse >> 16, row)), sum[4];
            u32 buffer = (tile - 1) / EXL2K_LORA_CTAS % 2 * EXL2K_LORA_SUMS_BYTES;
            u32 sums = small + EXL2K_LORA_SUMS_AT + buffer;
            u32 to = sums + (warp * EXL2K_LORA_TILE + lane / 4) * (EXL2K_LORA_ROWS * 4) + lane % 4 * 8;
            exl2k_lora_slice(l, (u64)high.y << 32 | high.x, low.x, first, x, sum);
            exl2k_shared_store2(to, make_uint2(__float_as_uint(sum[0]), __float_as_uint(sum[1])));
            exl2k_shared_store2(to + 8 * EXL2K_LORA_ROWS * 4,
                                make_uint2(__float_as_uint(sum[2]), __float_as_uint(sum[3])));
            __syncthreads(); /* the buffer after this one is free then, too */
            exl2k_lora_publish(l, sums, high.w, first, low, rows, scale, epoch);
        }
    }
}

/* ---- B t ---- */

/* Called after the dependency wait: starts to copy the turn, for this warp. */
EXL2K_FN void exl2k_lora_begin(const exl2k_lora_gemv_args &l, u32 small)
{
    if (threadIdx.x % EXL2K_WARP == 0) {
        exl2k_copy16(small + EXL2K_LORA_TURN_AT + threadIdx.x / EXL2K_WARP * 16, l.turn);
    }
}

/* What an adapter adds to columns n and n + 1 of a part. t: of the row; waits until it is ready. Four sums have four
   neighbours of each 16 along the rank, and are added in pairs. LANES neighbouring groups of 8 lanes have the same columns,
   and divide the sums among them; all get the total. */
template <u32 LANES>
EXL2K_FN void exl2k_lora_add(u64 b, u32 pitch, u32 rank, u32 n, u64 t, u32 epoch, f32 out[2])
{
    constexpr u32 own = 16 / LANES; /* of 16 values of t */
    u32 begin = threadIdx.x % EXL2K_WARP / 8 % LANES * own;
    f32 low[own / 4], high[own / 4];
#pragma unroll
    for (u32 i = 0; i < own / 4; i++) {
        low[i] = high[i] = 0.0f;
    }
#pragma unroll 1
    for (u32 first = begin; first < rank; first += 16) {
        u32 pair[own], ready;
        uint4 two[own / 2];
#pragma unroll
        for (u32 i = 0; i < own; i++) {
            pair[i] = first + i < rank ? exl2k_load_constant(b + ((u64)(first + i) * pitch + n) * 2) : 0;
        }
        do {
            ready = 1;
#pragma unroll
            for (u32 i = 0; i < own / 2; i++) {
                two[i] = exl2k_load_published(t + (first + 2 * i) * 8);
                ready &= first + 2 * i >= rank || two[i].y == epoch;
                ready &= first + 2 * i + 1 >= rank || two[i].w == epoch;
            }
        } while (!ready);
#pragma unroll
        for (u32 i = 0; i < own; i++) { /* what lies behind the rank may be anything */
            f32 value = first + i < rank ? __uint_as_float(i % 2 ? two[i / 2].z : two[i / 2].x) : 0.0f;
            low[i / 4] = fmaf(exl2k_low(pair[i]), value, low[i / 4]);
            high[i / 4] = fmaf(exl2k_high(pair[i]), value, high[i / 4]);
        }
    }
    if constexpr (LANES == 2) {
        low[0] += low[1];
        high[0] += high[1];
    }
#pragma unroll
    for (u32 step = 8; step < 8 * LANES; step *= 2) {
        low[0] += __shfl_xor_sync(EXL2K_ALL, low[0], step);
        high[0] += __shfl_xor_sync(EXL2K_ALL, high[0], step);
    }
    out[0] += low[0];
    out[1] += high[0];
}

/* Where a partial sum of a column and row lies in a slot. */
template <u32 M> EXL2K_FN u32 exl2k_lora_inside(u32 column, u32 row)
{
    return M == 1 ? column * 4 : exl2k_partial_lane(column % 8 * 4 + row % 8 / 2) + (row % 2 + column / 8 * 2) * 4;
}

/* Writes B t of all strips of a block, as the last partial sum of each strip. With one row a warp has one strip at a
   time, with eight rows two rows of a strip. */
template <u32 M>
EXL2K_FN void exl2k_lora_expand(const exl2k_lora_gemv_args &l, exl2k_span block, u32 sums, u32 rows, u32 small)
{
    constexpr u32 lanes = M == 1 ? 4 : 2, each = 4 / lanes; /* groups of 8 lanes of a row and strip; these of a warp */
    const exl2k_matrix &m = l.gemv.matrix;
    u32 warp = threadIdx.x / EXL2K_WARP, lane = threadIdx.x % EXL2K_WARP, both = exl2k_side_by_side<M>(m);
    u32 cells = (block.end - block.begin << both) * M, slots = exl2k_partials(m);
    exl2k_copy_wait<0>();
    __syncwarp();
    u32 epoch = exl2k_shared_load(small + EXL2K_LORA_TURN_AT + warp * 16) * l.epochs + l.epoch;
#pragma unroll 1
    for (u32 first = warp * each; first < cells; first += EXL2K_GEMV_WARPS * each) {
        u32 cell = first + lane / (8 * lanes), strip = cell / M, row = cell % M, place = block.begin + (strip >> both);
        u32 part = both ? strip % 2 : exl2k_part_at(m, place);
        u32 column = lane % 8 * 2, n = (place - m.part[part].first) * 16 + column;
        u32 pitch = exl2k_lora_pitch(m.part[part].columns, 32);
        f32 out[2] = { 0.0f, 0.0f };
        uint4 uses = exl2k_shared_load4(small + (l.row + row) * 16);
        u32 count = row < rows ? uses.x : 0;
#pragma unroll 1
        for (u32 u = 0; __any_sync(EXL2K_ALL, u < count); u++) {
            u32 index = ((u < 4 ? uses.y : uses.z) >> u % 4 * 8 & 255) * m.parts + part;
            uint4 entry = exl2k_shared_load4(small + EXL2K_LORA_ENTRY_AT + index * 16); /* rank, factor, B */
            u32 rank = u < count && n < pitch ? entry.x : 0;
            u64 b = (u64)entry.w << 32 | entry.z;
            exl2k_lora_add<lanes>(b, pitch, rank, n, exl2k_lora_t_at(l, index, row, 0), epoch, out);
        }
        if (lane / 8 % lanes == 0) {
            u32 to = sums + (strip * slots + slots - 1) * exl2k_partial_bytes<M>();
            exl2k_shared_store_f32(to + exl2k_lora_inside<M>(column, row), out[0]);
            exl2k_shared_store_f32(to + exl2k_lora_inside<M>(column + 1, row), out[1]);
        }
    }
}

#endif
