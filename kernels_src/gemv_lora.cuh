/* gemv_lora.cuh: what adapters add to a product of 1 to 8 rows, in the product's own launch.
   takes: what gemv.cuh defines before it includes this file; lora_args.h.
   gives: exl2k_lora_shrink<M>; exl2k_lora_copy, exl2k_lora_copied, exl2k_lora_begin, exl2k_lora_expand<M>,
          exl2k_lora_again.
   owns:  nothing; included by gemv.cuh only, if EXL2K_LORA.

   The first EXL2K_LORA_CTAS CTAs of the launch have no strips. They compute t = factor A x, by tiles of 16 values of t
   and 8 rows, and publish it with its epoch. All others multiply as ever; a warp that has no chunks left takes strips,
   waits for t, and writes B t of these strips as if it were one more slice. So all factors and biases that follow hold
   for it, too. The grid begins with the CTAs that compute t, and these wait for no CTA of the launch. A launch whose
   matrix no adapter of the pass adds to (matrix.adapted is 0) does nothing of this.

   A row's values depend on its own adapters alone: a value of t is the sum of 16 slices of the inputs, B t is a sum
   along the rank, and adapters are added up in the order of the pass. */
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

/* Starts to copy what a CTA with strips reads of the pass and of the tables, which are older than the preceding kernel.
   It comes first, so that it has arrived when it is needed. The last threads have entries, the first ones the pass. */
EXL2K_FN void exl2k_lora_copy(const exl2k_lora_gemv_args &l, u32 small)
{
    u32 entries = l.slots * l.gemv.matrix.parts;
    if (threadIdx.x == 0) {
        exl2k_shared_store(small + EXL2K_LORA_NEXT_AT, 0);
#if EXL2K_BULK
        exl2k_barrier_init(small + EXL2K_LORA_BARRIER_AT, EXL2K_GEMV_THREADS);
#endif
    }
    if (threadIdx.x < EXL2K_LORA_HEAD_BYTES / 16) {
        exl2k_lora_copy_one(small + threadIdx.x * 16, l.pass + threadIdx.x * 16);
    }
#pragma unroll 1
    for (u32 i = EXL2K_GEMV_THREADS - 1 - threadIdx.x; i < entries; i += EXL2K_GEMV_THREADS) {
        exl2k_lora_copy_one(small + EXL2K_LORA_ENTRY_AT + i * 16, exl2k_lora_matrix_at(l, i));
    }
}

/* Called after a barrier of all threads: the copies of this thread arrive at the barrier of them all. */
EXL2K_FN void exl2k_lora_copied(u32 small)
{
#if EXL2K_BULK
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(small + EXL2K_LORA_BARRIER_AT) : "memory");
#endif
}

EXL2K_FN u32 exl2k_shared_load_u8(u32 at)
{
    u32 v;
    asm volatile("{\n.reg .u16 b;\nld.shared.u8 b, [%1];\ncvt.u32.u16 %0, b;\n}" : "=r"(v) : "r"(at) : "memory");
    return v;
}

/* slot * parts + part, of part i % parts of adapter i / parts of the pass, from shared memory. */
EXL2K_FN u32 exl2k_lora_index_of(const exl2k_lora_gemv_args &l, u32 small, u32 i)
{
    u32 adapter = i * l.parts_inverse >> 16;
    return (exl2k_shared_load_u8(small + 16 + adapter) - adapter) * l.gemv.matrix.parts + i;
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

EXL2K_FN u64 exl2k_lora_scale_at(const exl2k_lora_gemv_args &l, u32 adapter, u32 row)
{
    u64 scales = l.pass + EXL2K_LORA_HEAD_BYTES;
    return scales + (adapter * EXL2K_LORA_ROWS + row) * 4;
}

/* An exl2k_lora_matrix. */
EXL2K_FN u32 exl2k_lora_entry(u32 small, u32 index) { return small + EXL2K_LORA_TABLE_AT + index * 32; }

/* Copies the beginning of the pass and all tables to shared memory, and brings A and B of the adapters of the pass into
   L2, while preceding kernels may still run. */
EXL2K_FN void exl2k_lora_open(const exl2k_lora_gemv_args &l, u32 small)
{
    const exl2k_matrix &m = l.gemv.matrix;
    u32 first = blockIdx.x * EXL2K_GEMV_THREADS + threadIdx.x, step = EXL2K_LORA_CTAS * EXL2K_GEMV_THREADS;
    if (threadIdx.x < EXL2K_LORA_HEAD_BYTES / 16) {
        exl2k_copy16(small + threadIdx.x * 16, l.pass + threadIdx.x * 16);
    }
#pragma unroll 1
    for (u32 i = EXL2K_GEMV_THREADS - 1 - threadIdx.x; i < 2 * l.slots * m.parts; i += EXL2K_GEMV_THREADS) {
        exl2k_copy16(exl2k_lora_entry(small, 0) + i * 16, exl2k_lora_matrix_at(l, i / 2) + i % 2 * 16);
    }
    exl2k_copy_commit();
    exl2k_copy_wait<0>();
    __syncthreads();
    u32 count = exl2k_shared_load(small) * m.parts;
#pragma unroll 1
    for (u32 i = 0; i < count; i++) {
        u32 at = exl2k_lora_entry(small, exl2k_lora_index_of(l, small, i));
        uint4 low = exl2k_shared_load4(at);
        uint2 high = exl2k_shared_load2(at + 16);
        u32 a = low.x * exl2k_lora_pitch(l.in, 16), b = low.x * exl2k_lora_pitch(m.part[i % m.parts].columns, 32);
        for (u32 k = first * 64; k < a; k += step * 64) {
            exl2k_prefetch(((u64)high.y << 32 | high.x) + k * 2);
        }
        for (u32 k = first * 64; k < b; k += step * 64) {
            exl2k_prefetch(((u64)low.w << 32 | low.z) + k * 2);
        }
    }
}

/* The work of a CTA that computes t: some tiles. */
typedef struct exl2k_lora_tile {
    u32 i, first;      /* part i % parts of adapter i / parts of the pass; i = count: no tile is left */
    u32 rank, index;   /* index: slot * parts + part */
    f32 factor;
    u64 a;
} exl2k_lora_tile;

/* Moves on by `more` tiles. */
EXL2K_FN void exl2k_lora_next(exl2k_lora_tile &t, const exl2k_lora_gemv_args &l, u32 small, u32 count, u32 more)
{
#pragma unroll 1
    while (t.i < count) {
        t.index = exl2k_lora_index_of(l, small, t.i);
        uint4 low = exl2k_shared_load4(exl2k_lora_entry(small, t.index));
        uint2 high = exl2k_shared_load2(exl2k_lora_entry(small, t.index) + 16);
        t.rank = low.x;
        t.factor = __uint_as_float(low.y);
        t.a = (u64)high.y << 32 | high.x;
        u32 tiles = (exl2k_max(t.rank, t.first) - t.first + EXL2K_LORA_TILE - 1) / EXL2K_LORA_TILE;
        if (more < tiles) {
            t.first += more * EXL2K_LORA_TILE;
            return;
        }
        more -= tiles;
        t.first = 0;
        t.i++;
    }
}

/* Steps whose inputs and rows of A are on their way at once. */
#define EXL2K_LORA_GROUP (__CUDA_ARCH__ == 900 ? 8 : 4)

/* Loads what the warp multiplies with its inputs from step `from` on: 0 for steps from `end` on. */
EXL2K_FN void exl2k_lora_load_a(uint4 low[EXL2K_LORA_GROUP], uint4 high[EXL2K_LORA_GROUP], const exl2k_lora_tile &t,
                                u32 pitch, u32 from, u32 end)
{
    u32 lane = threadIdx.x % EXL2K_WARP, column = from * 32 + lane % 4 * 8;
    u64 low_at = t.a + ((u64)exl2k_min(t.first + lane / 4, t.rank - 1) * pitch + column) * 2;
    u64 high_at = t.a + ((u64)exl2k_min(t.first + lane / 4 + 8, t.rank - 1) * pitch + column) * 2;
#pragma unroll
    for (u32 i = 0; i < EXL2K_LORA_GROUP; i++) { /* A has zeros behind its inputs, up to its pitch */
        bool has = from + i < end && column + i * 32 < pitch;
        low[i] = has ? exl2k_load_constant4(low_at + i * 64) : make_uint4(0, 0, 0, 0);
        high[i] = has ? exl2k_load_constant4(high_at + i * 64) : make_uint4(0, 0, 0, 0);
    }
}

/* Adds up the slices of a tile, and publishes it. scale: of the thread's row. */
EXL2K_FN void exl2k_lora_publish(const exl2k_lora_gemv_args &l, u32 sums, const exl2k_lora_tile &t, u32 rows, f32 scale,
                                 u32 epoch)
{
    u32 k = t.first + threadIdx.x / EXL2K_LORA_ROWS, row = threadIdx.x % EXL2K_LORA_ROWS;
    f32 total = 0.0f;
    if (threadIdx.x >= EXL2K_LORA_TILE * EXL2K_LORA_ROWS || row >= rows || k >= t.rank) {
        return;
    }
#pragma unroll
    for (u32 warp = 0; warp < EXL2K_GEMV_WARPS; warp++) {
        total += exl2k_shared_load_f32(sums + (warp * EXL2K_LORA_TILE * EXL2K_LORA_ROWS + threadIdx.x) * 4);
    }
    exl2k_publish(exl2k_lora_t_at(l, t.index, row, k), total * (scale * t.factor), epoch);
}

/* The whole work of a CTA that computes t. A of its first tile is on its way before the inputs are there. */
template <u32 M> EXL2K_FN void exl2k_lora_shrink(const exl2k_lora_gemv_args &l, u32 small)
{
    const exl2k_gemv_args &a = l.gemv;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, done = 0;
    u32 pitch = exl2k_lora_pitch(l.in, 16), steps = (pitch + 31) / 32;
    u32 begin = warp * steps / EXL2K_GEMV_WARPS, end = (warp + 1) * steps / EXL2K_GEMV_WARPS;
    exl2k_dependency_release();
    exl2k_lora_open(l, small);
    u32 count = exl2k_shared_load(small) * a.matrix.parts;
    exl2k_lora_tile t = { 0 };
    uint4 low[EXL2K_LORA_GROUP], high[EXL2K_LORA_GROUP];
    exl2k_lora_next(t, l, small, count, blockIdx.x);
    bool loaded = t.i < count;
    if (loaded) {
        exl2k_lora_load_a(low, high, t, pitch, begin, end);
    }
    exl2k_dependency_wait();
    u32 rows = M == 1 ? 1 : a.rows_at ? exl2k_min(exl2k_load(a.rows_at), M) : a.rows;
    u32 epoch = exl2k_load(l.turn) * l.epochs + l.epoch;
    u64 x = l.x + (u64)exl2k_min(lane / 4, rows - 1) * a.x_pitch * 2 + lane % 4 * 16;
#pragma unroll 1
    for (; t.i < count; exl2k_lora_next(t, l, small, count, EXL2K_LORA_CTAS)) {
        u32 row = l.row + threadIdx.x % EXL2K_LORA_ROWS, sums = small + EXL2K_LORA_SUMS_AT;
        f32 scale = exl2k_load_f32(exl2k_lora_scale_at(l, t.i * l.parts_inverse >> 16, row)), sum[4];
        sums += done++ % 2 * EXL2K_LORA_SUMS_BYTES;
        sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
#pragma unroll 1
        for (u32 from = begin; from < end; from += EXL2K_LORA_GROUP) {
            uint4 v[EXL2K_LORA_GROUP];
            if (!loaded) {
                exl2k_lora_load_a(low, high, t, pitch, from, end);
            }
            loaded = false;
#pragma unroll
            for (u32 i = 0; i < EXL2K_LORA_GROUP; i++) {
                v[i] = exl2k_load4(x + (u64)exl2k_min(from + i, end - 1) * a.x_step);
            }
#pragma unroll
            for (u32 i = 0; i < EXL2K_LORA_GROUP; i++) { /* steps from `end` on add 0 */
                const u32 even[4] = { low[i].x, high[i].x, low[i].y, high[i].y };
                const u32 odd[4] = { low[i].z, high[i].z, low[i].w, high[i].w };
                exl2k_mma(sum, even, v[i].x, v[i].y);
                exl2k_mma(sum, odd, v[i].z, v[i].w);
            }
        }
        u32 to = sums + (warp * EXL2K_LORA_TILE + lane / 4) * (EXL2K_LORA_ROWS * 4) + lane % 4 * 8;
        exl2k_shared_store2(to, make_uint2(__float_as_uint(sum[0]), __float_as_uint(sum[1])));
        exl2k_shared_store2(to + 8 * EXL2K_LORA_ROWS * 4, make_uint2(__float_as_uint(sum[2]), __float_as_uint(sum[3])));
        __syncthreads(); /* the buffer after this one is free then, too */
        exl2k_lora_publish(l, sums, t, rows, scale, epoch);
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

/* Called between two blocks. */
EXL2K_FN void exl2k_lora_again(u32 small)
{
    if (threadIdx.x == 0) {
        exl2k_shared_store(small + EXL2K_LORA_NEXT_AT, 0);
    }
}

/* The next strip of the block that has no B t yet, for all lanes. So warps whose chunks come to an end early have more
   of this work. */
EXL2K_FN u32 exl2k_lora_take(u32 small)
{
    u32 strip = 0;
    if (exl2k_lane<16>() == 0) {
        asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(strip) : "r"(small + EXL2K_LORA_NEXT_AT) : "memory");
    }
    return __shfl_sync(EXL2K_ALL, strip, 0);
}

/* Where a partial sum of a column and row lies in a slot. */
template <u32 M> EXL2K_FN u32 exl2k_lora_inside(u32 column, u32 row)
{
    return M == 1 ? column * 4 : exl2k_partial_lane(column % 8 * 4 + row % 8 / 2) + (row % 2 + column / 8 * 2) * 4;
}

/* Adds what the pass's adapters add to two columns of a strip, for the rows of `mask`. n: the lane's first column of
   the part. Lanes 8 i .. 8 i + 7 have 4 i .. 4 i + 3 of each 16 values along the rank; the sums of these quarters are
   added in pairs. B is read once for all rows. out: column n, then n + 1, of one row, in all lanes; with eight rows of
   rows r and r + 1, where r is 4 if the lane's bit 8 is set, plus 2 if bit 16 is. */
template <u32 M>
EXL2K_FN void exl2k_lora_strip(const exl2k_lora_gemv_args &l, u32 part, u32 n, u32 mask, u32 epoch, u32 small,
                               f32 out[4])
{
    const exl2k_matrix &m = l.gemv.matrix;
    u32 lane = exl2k_lane<16>(), row = M == 1 ? 0 : lane % 8, begin = lane / 8 * 4;
    u32 pitch = exl2k_lora_pitch(m.part[part].columns, 32), count = exl2k_shared_load(small);
    out[0] = out[1] = out[2] = out[3] = 0.0f;
#pragma unroll 1
    for (u32 adapter = 0; adapter < count; adapter++) {
        u32 at = small + 16 + adapter, users = exl2k_shared_load_u8(at + EXL2K_LORA_ADAPTERS) >> l.row;
        users &= mask;
        if (!users) {
            continue;
        }
        u32 index = exl2k_shared_load_u8(at) * m.parts + part;
        uint4 entry = exl2k_shared_load4(small + EXL2K_LORA_ENTRY_AT + index * 16); /* rank, factor, B */
        u32 rank = n < pitch ? entry.x : 0;
        u64 b = ((u64)entry.w << 32 | entry.z) + n * 2, t = exl2k_lora_t_at(l, index, row, 0);
        f32 low[M], high[M]; /* of columns n and n + 1 */
#pragma unroll
        for (u32 r = 0; r < M; r++) {
            low[r] = high[r] = 0.0f;
        }
#pragma unroll 1
        for (u32 first = 0; first < entry.x; first += 16) {
            u32 pair[4], ready, k = first + begin;
            bool mine = users >> row & 1;
            uint4 two[2];
            f32 value[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                pair[i] = k + i < rank ? exl2k_load_constant(b + (u64)(k + i) * pitch * 2) : 0;
            }
            do {
                ready = 1;
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
                    if (mine && k + 2 * i < rank) {
                        two[i] = exl2k_load_published(t + (k + 2 * i) * 8);
                        ready &= two[i].y == epoch && (k + 2 * i + 1 >= rank || two[i].w == epoch);
                    }
                }
            } while (!ready);
            __syncwarp();
#pragma unroll
            for (u32 i = 0; i < 4; i++) { /* what lies behind the rank may be anything */
                value[i] = mine && k + i < rank ? __uint_as_float(i % 2 ? two[i / 2].z : two[i / 2].x) : 0.0f;
            }
#pragma unroll
            for (u32 r = 0; r < M; r++) {
                if (M == 1 || users >> r & 1) {
#pragma unroll
                    for (u32 i = 0; i < 4; i++) {
                        f32 v = M == 1 ? value[i] : __shfl_sync(EXL2K_ALL, value[i], lane / 8 * 8 + r);
                        low[r] = fmaf(exl2k_low(pair[i]), v, low[r]);
                        high[r] = fmaf(exl2k_high(pair[i]), v, high[r]);
                    }
                }
            }
        }
        if constexpr (M == 1) {
#pragma unroll
            for (u32 step = 8; step < EXL2K_WARP; step *= 2) {
                low[0] += __shfl_xor_sync(EXL2K_ALL, low[0], step);
                high[0] += __shfl_xor_sync(EXL2K_ALL, high[0], step);
            }
            out[0] += low[0];
            out[1] += high[0];
        } else {
            /* A lane keeps half of its rows, adds those of another lane, and again. */
            f32 half[2][4];
#pragma unroll
            for (u32 r = 0; r < 4; r++) {
                f32 first = lane & 8 ? low[r] : low[r + 4], second = lane & 8 ? high[r] : high[r + 4];
                half[0][r] = (lane & 8 ? low[r + 4] : low[r]) + __shfl_xor_sync(EXL2K_ALL, first, 8);
                half[1][r] = (lane & 8 ? high[r + 4] : high[r]) + __shfl_xor_sync(EXL2K_ALL, second, 8);
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 c = i / 2, r = i % 2;
                f32 other = lane & 16 ? half[c][r] : half[c][r + 2];
                out[i] += (lane & 16 ? half[c][r + 2] : half[c][r]) + __shfl_xor_sync(EXL2K_ALL, other, 16);
            }
        }
    }
}

/* Writes B t of all strips of a block, as the last partial sum of each strip. If the pass has several adapters, a warp
   has two rows of a strip at a time. */
template <u32 M>
EXL2K_FN void exl2k_lora_expand(const exl2k_lora_gemv_args &l, exl2k_span block, u32 sums, u32 rows, u32 small)
{
    const exl2k_matrix &m = l.gemv.matrix;
    u32 lane = exl2k_lane<16>(), warp = exl2k_thread<16>() / EXL2K_WARP, both = exl2k_side_by_side<M>(l.gemv);
    u32 strips = block.end - block.begin << both, slots = exl2k_partials(m), column = lane % 8 * 2, unit;
    exl2k_copy_wait<0>();
    __syncwarp();
#if EXL2K_BULK
    exl2k_barrier_wait(small + EXL2K_LORA_BARRIER_AT, 0);
#endif
    u32 quarters = M > 1 && exl2k_shared_load(small) > 1 ? 2 : 0;
    u32 epoch = exl2k_shared_load(small + EXL2K_LORA_TURN_AT + warp * 16) * l.epochs + l.epoch;
#pragma unroll 1
    while ((unit = exl2k_lora_take(small)) < strips << quarters) {
        u32 strip = unit >> quarters, mask = quarters ? 3u << unit % 4 * 2 : 255;
        u32 place = block.begin + (strip >> both), part = both ? strip % 2 : exl2k_part_at(m, place);
        u32 n = (place - m.part[part].first) * 16 + column,
            to = sums + (strip * slots + slots - 1) * exl2k_partial_bytes<M>();
        f32 d[4];
        exl2k_lora_strip<M>(l, part, n, mask & (1u << rows) - 1, epoch, small, d);
        u32 row = (lane & 8) / 2 + (lane & 16) / 8;
        if (M == 1 && lane < 8) {
            exl2k_shared_store2(to + column * 4, make_uint2(__float_as_uint(d[0]), __float_as_uint(d[1])));
        } else if (M > 1 && mask >> row & 1) {
            exl2k_shared_store2(to + exl2k_lora_inside<M>(column, row),
                                make_uint2(__float_as_uint(d[0]), __float_as_uint(d[1])));
            exl2k_shared_store2(to + exl2k_lora_inside<M>(column + 1, row),
                                make_uint2(__float_as_uint(d[2]), __float_as_uint(d[3])));
        }
    }
}

#endif
