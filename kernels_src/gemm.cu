/* gemm.cu: products of 9 and more rows: 32, 64 or 128 rows x 256 columns a CTA, weights decoded in registers.
   takes: base.cuh, gemm_weights.cuh, gemm_args.h.
   gives: exl2k_gemm32, exl2k_gemm64, exl2k_gemm128.
   owns:  nothing.
   next:  gemm_weights.cuh

   Eight warps of two strips (ACT: one of gate, one of up). Every weight is decoded once by the warp that uses it for
   all rows; only inputs are shared, in tiles of 64 inputs. What a half (32 inputs) of all SMs' work costs a scheduler
   with two warps at 128 rows: 128 HMMA of 6.7 clocks, 860 in all, against 2 x 150 other instructions; shared memory
   gives inputs in 512 clocks. The two warps take turns: one decodes while the other multiplies, so nothing may make
   them wait for each other: tiles of inputs are handed over by arrivals (mbarrier), not by barriers of the CTA.

   A tile of inputs is two halves of [rows][64 bytes], the second with 64-byte columns swapped: a lane's 8 inputs are 16
   bytes, read and written without bank conflicts. */
#include "base.cuh"
#include "gemm_args.h"
#include "gemm_weights.cuh"

/* ---- tiles of inputs ---- */

/* Tiles are counted from the first of the kernel on, so that places and phases need no memory. */
typedef struct exl2k_tiles {
    u64 x;                         /* this thread's piece of tile `base` */
    u32 first, last;               /* this thread's first row, the last there is */
    u32 at, to;                    /* shared addresses of place 0: of all; of this thread's piece */
    u32 barriers;
    u32 base, filled, ready, done; /* the first tile of this walk over K; tiles begun, arrived, read */
} exl2k_tiles;

#if __CUDA_ARCH__ >= 800
EXL2K_FN void exl2k_arrival_wait(u32 barrier, u32 parity)
{
    u32 done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#else
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
#endif
    } while (!done);
}
#endif

/* Barrier i: all threads' copies to place i have arrived; barrier 8 + i: all warps have read it. */
EXL2K_FN void exl2k_tiles_begin(u32 barriers, u32 places)
{
#if __CUDA_ARCH__ >= 800
    if (threadIdx.x < places) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barriers + threadIdx.x * 8), "r"(EXL2K_GEMM_THREADS)
                     : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barriers + 64 + threadIdx.x * 8),
                     "r"(EXL2K_GEMM_WARPS) : "memory");
    }
#endif
}

EXL2K_FN u32 exl2k_tile_place(const exl2k_gemm_args &a, u32 tile) { return tile & ((1u << a.stages_log) - 1); }

/* Begins to copy the next tile; rows beyond the last are the last, and are never stored. */
template <u32 NT> EXL2K_FN void exl2k_tiles_fill(exl2k_tiles &s, const exl2k_gemm_args &a)
{
    u32 place = exl2k_tile_place(a, s.filled), to = s.to + place * (NT * 1024);
    u64 from = s.x + (u64)(s.filled - s.base) * 128;
#if __CUDA_ARCH__ >= 800
    if (s.filled >> a.stages_log) {
        exl2k_arrival_wait(s.barriers + 64 + place * 8, (s.filled >> a.stages_log & 1) ^ 1);
    }
#endif
#pragma unroll
    for (u32 i = 0; i < NT * 8; i += EXL2K_GEMM_THREADS / 8) {
        exl2k_copy16(to + i * 64, from + (u64)exl2k_min(s.first + i, s.last) * (a.x_pitch * 2));
    }
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(s.barriers + place * 8) : "memory");
#endif
    s.filled++;
}

/* Waits for all tiles before `end`. The same for all warps. */
EXL2K_FN void exl2k_tiles_wait(exl2k_tiles &s, const exl2k_gemm_args &a, u32 end)
{
#pragma unroll 1
    while (s.ready < end) {
#if __CUDA_ARCH__ >= 800
        exl2k_arrival_wait(s.barriers + exl2k_tile_place(a, s.ready) * 8, s.ready >> a.stages_log & 1);
#else
        __syncthreads();
#endif
        s.ready++;
    }
}

/* The warp will read no tile before `end` again. */
EXL2K_FN void exl2k_tiles_done(exl2k_tiles &s, const exl2k_gemm_args &a, u32 end, u32 lane)
{
    __syncwarp();
#if __CUDA_ARCH__ >= 800
#pragma unroll 1
    for (; s.done < end; s.done++) {
        if (lane == 0) {
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(s.barriers + 64 + exl2k_tile_place(a, s.done) * 8)
                         : "memory");
        }
    }
#endif
}

/* ---- sums ---- */

template <u32 NT> struct exl2k_sums { /* [strip][8 rows]: column g + 8 (e / 2), row 2 t + e % 2 in element e */
    f32 v[2][NT][4];
};

/* The two strips' operands of steps j, j + 1 against all rows. at: the lane's inputs of the first row. */
template <u32 NT> EXL2K_FN void exl2k_half_product(exl2k_sums<NT> &sums, const exl2k_operand a[2], u32 j, u32 at)
{
    uint4 x[2][2];
    x[0][0] = exl2k_shared_load4(at);
    x[0][1] = exl2k_shared_load4(at + 512);
#pragma unroll
    for (u32 p = 0; p < NT / 2; p++) {
        if (p + 1 < NT / 2) {
            x[(p + 1) % 2][0] = exl2k_shared_load4(at + p * 1024 + 1024);
            x[(p + 1) % 2][1] = exl2k_shared_load4(at + p * 1024 + 1536);
        }
        for (u32 k = 0; k < 4; k++) {
            exl2k_mma(sums.v[k % 2][2 * p + k / 2], a[k % 2][j], x[p % 2][k / 2].x, x[p % 2][k / 2].y);
        }
        for (u32 k = 0; k < 4; k++) {
            exl2k_mma(sums.v[k % 2][2 * p + k / 2], a[k % 2][j + 1], x[p % 2][k / 2].z, x[p % 2][k / 2].w);
        }
    }
}

/* The lane's inputs of half `half`, counted from the first tile of the walk. */
template <u32 NT> EXL2K_FN u32 exl2k_half_at(const exl2k_tiles &s, const exl2k_gemm_args &a, u32 half,
                                          u32 from)
{
    u32 place = exl2k_tile_place(a, s.base + half / 2), odd = half & 1;
    return s.at + place * (NT * 1024) + odd * (NT * 512) + (from ^ odd * 64);
}

/* sums = W x over the chunks of w, records that begin in the halves [low, high). */
template <u32 NT>
EXL2K_FN void exl2k_gemm_sum(exl2k_sums<NT> &sums, const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 low,
                             u32 high)
{
    u32 lane = threadIdx.x % EXL2K_WARP, lead = a.stages_log > 1 ? (1u << a.stages_log) - 2 : 1, from = lane / 4 * 64 + lane % 4 * 16;
    u32 tiles_end = s.base + (exl2k_min(high + 1, (a.matrix.rows + 31) / 32) - low + 1) / 2;
    u32 other = (a.slot_bytes - EXL2K_GEMM_ENTRY) / 2;
#pragma unroll
    for (u32 k = 0; k < 2 * NT * 4; k++) {
        sums.v[k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
    }
#pragma unroll 1
    for (u32 i = 0; i < lead && s.filled < tiles_end; i++) {
        exl2k_tiles_fill<NT>(s, a);
    }
#pragma unroll 1
    for (u32 half = low; half < high;) {
        exl2k_weights_fill(w, a, lane);
        exl2k_weights_wait(a.slots);
        uint4 c = exl2k_shared_load4(w.use);
        u32 row = c.y & 0xFFFF, width = c.z & 255, records = c.z >> 8 & 255, groups = c.z >> 16 & 255;
        u32 bytes = (width == EXL2K_W16 ? 2048 : exl2k_bits(width) * 128), there = row + (c.w >> 8 & 255);
        exl2k_record r = { w.use + EXL2K_GEMM_ENTRY, 0, other, 0, c.z >> 24 };
        u32 scales = r.codes + records * bytes + lane / 16 * groups * 4;
#pragma unroll 1
        for (u32 i = row < low ? (low - row + 1) / 2 : 0; i < records && row + 2 * i < high; i++) {
            half = row + 2 * i;
            u32 two = half + 1 < there, end = s.base + (half + two - low) / 2 + 1;
            exl2k_operand operand[2];
            r.maximum = exl2k_shared_load(w.use + 16 + i * 4);
            r.scales = scales + (r.by_half ? 2 * i : __popc(c.w & ((1u << i) - 1))) * 4;
            r.codes = w.use + EXL2K_GEMM_ENTRY + i * bytes;
            exl2k_record_decode(operand, r, width, lane);
            exl2k_tiles_wait(s, a, end);
#pragma unroll 1
            while (s.filled < tiles_end && s.filled < end + lead) {
                exl2k_tiles_fill<NT>(s, a);
            }
            exl2k_half_product<NT>(sums, operand, 0, exl2k_half_at<NT>(s, a, half - low, from));
            if (two) {
                exl2k_half_product<NT>(sums, operand, 2, exl2k_half_at<NT>(s, a, half + 1 - low, from));
            }
            half += 1 + two;
            exl2k_tiles_done(s, a, s.base + (half - low) / 2, lane);
        }
        half = there;
        w.use = exl2k_slot_next(w, a, w.use);
    }
    exl2k_tiles_wait(s, a, s.filled);
    exl2k_tiles_done(s, a, s.filled, lane);
}

/* ---- sums in memory ---- */

/* Where this warp of CTA `block` has its sums number `which`, and this lane 16 bytes of each 512. */
template <u32 NT> EXL2K_FN u64 exl2k_partial(const exl2k_gemm_args &a, u32 block, u32 which)
{
    u32 each = a.kind == EXL2K_GEMM_ACT && a.splits > 1 ? 2 : 1;
    return a.partial + ((u64)(block * each + which) * EXL2K_GEMM_THREADS + threadIdx.x / 32 * 32) * (NT * 32)
           + threadIdx.x % 32 * 16;
}

template <u32 NT> EXL2K_FN void exl2k_partial_store(const exl2k_sums<NT> &sums, u64 to)
{
#pragma unroll
    for (u32 k = 0; k < 2 * NT; k++) {
        const f32 *v = sums.v[k / NT][k % NT];
        exl2k_store4(to + k * 512, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                                              __float_as_uint(v[3])));
    }
}

/* Sums of all splits of this CTA's tile, in their order. */
template <u32 NT> EXL2K_FN void exl2k_partial_sum(exl2k_sums<NT> &sums, const exl2k_gemm_args &a, u32 which)
{
    u32 block = blockIdx.x / a.splits * a.splits;
#pragma unroll
    for (u32 k = 0; k < 2 * NT * 4; k++) {
        sums.v[k / (NT * 4)][k / 4 % NT][k % 4] = 0.0f;
    }
#pragma unroll 1
    for (u32 z = 0; z < a.splits; z++) {
        u64 from = exl2k_partial<NT>(a, block + z, which);
#pragma unroll
        for (u32 k = 0; k < 2 * NT; k++) {
            uint4 v = exl2k_load4(from + k * 512);
            f32 *sum = sums.v[k / NT][k % NT];
            sum[0] += __uint_as_float(v.x);
            sum[1] += __uint_as_float(v.y);
            sum[2] += __uint_as_float(v.z);
            sum[3] += __uint_as_float(v.w);
        }
    }
}

/* Leaves this warp's sums; true for the last of the tile's splits, which then has those of all. */
template <u32 NT> EXL2K_FN bool exl2k_partial_gather(exl2k_sums<NT> &sums, const exl2k_gemm_args &a, u32 which)
{
    u32 lane = threadIdx.x % EXL2K_WARP, ticket = 0, at = blockIdx.x / a.splits * EXL2K_GEMM_WARPS + threadIdx.x / 32;
    exl2k_partial_store<NT>(sums, exl2k_partial<NT>(a, blockIdx.x, which));
    __syncwarp();
    if (lane == 0) {
        __threadfence();
        ticket = atomicInc((u32 *)a.tickets + at, a.splits - 1);
        __threadfence();
    }
    if (__shfl_sync(EXL2K_ALL, ticket, 0) != a.splits - 1) {
        return false;
    }
#pragma unroll 1
    for (u32 i = 0; i < which; i++) { /* ACT: the gate's, to where this CTA has its own */
        exl2k_partial_sum<NT>(sums, a, i);
        exl2k_partial_store<NT>(sums, exl2k_partial<NT>(a, blockIdx.x, i));
    }
    exl2k_partial_sum<NT>(sums, a, which);
    return true;
}

/* ---- results ---- */

EXL2K_FN f32 exl2k_silu(f32 v) { return __fdividef(v, 1.0f + __expf(-v)); }

EXL2K_FN f32 exl2k_bias(const exl2k_part &p, u32 n)
{
    return p.bias && n < p.columns ? __uint_as_float(exl2k_load_constant(p.bias + n * 4)) : 0.0f;
}

/* ACT: silu(gate) * up; `sums` are of up, the gate's are in memory. n: the first column. */
template <u32 NT> EXL2K_FN void exl2k_gemm_act(exl2k_sums<NT> &sums, const exl2k_gemm_args &a, u32 n)
{
    u64 from = exl2k_partial<NT>(a, blockIdx.x, 0);
    f32 gate[4], up[4];
    for (u32 i = 0; i < 4; i++) { /* columns of strip i / 2 */
        gate[i] = exl2k_bias(a.matrix.part[0], n + i * 8 + threadIdx.x % 32 / 4);
        up[i] = exl2k_bias(a.matrix.part[1], n + i * 8 + threadIdx.x % 32 / 4);
    }
#pragma unroll
    for (u32 k = 0; k < 2 * NT; k++) {
        u32 i = k / NT * 2;
        uint4 v = exl2k_load4(from + k * 512);
        f32 *sum = sums.v[k / NT][k % NT];
        sum[0] = exl2k_silu(__uint_as_float(v.x) + gate[i]) * (sum[0] + up[i]);
        sum[1] = exl2k_silu(__uint_as_float(v.y) + gate[i]) * (sum[1] + up[i]);
        sum[2] = exl2k_silu(__uint_as_float(v.z) + gate[i + 1]) * (sum[2] + up[i + 1]);
        sum[3] = exl2k_silu(__uint_as_float(v.w) + gate[i + 1]) * (sum[3] + up[i + 1]);
    }
}

/* `rows` rows of a warp's results, from shared memory to where they belong: this lane's column. at: of the first. */
EXL2K_FN void exl2k_rows_store(const exl2k_gemm_args &a, u32 from, u64 at, f32 bias, u32 rows)
{
    u64 step = (u64)a.out_pitch * 4;
    if (a.kind == EXL2K_GEMM_RESIDUAL) {
#pragma unroll 1
        for (u32 row = 0; row < rows; row += 16) { /* 16 reads under way */
            f32 old[16];
#pragma unroll
            for (u32 i = 0; i < 16; i++) {
                old[i] = row + i < rows ? exl2k_load_f32(at + i * step) : 0.0f;
            }
#pragma unroll
            for (u32 i = 0; i < 16; i++) {
                if (row + i < rows) {
                    f32 value = exl2k_shared_load_f32(from + (row + i) * EXL2K_GEMM_PITCH) + bias;
                    exl2k_store_f32(at + i * step, old[i] + value);
                }
            }
            at += 16 * step;
        }
    } else if (a.kind == EXL2K_GEMM_ACT || a.out_half) {
#pragma unroll 4
        for (u32 row = 0; row < rows; row++, at += step / 2) {
            f32 value = exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH) + bias;
            exl2k_store_u16(at, exl2k_f32_to_f16(exl2k_clamp_f16(value)));
        }
    } else {
#pragma unroll 4
        for (u32 row = 0; row < rows; row++, at += step) {
            exl2k_store_f32(at, exl2k_shared_load_f32(from + row * EXL2K_GEMM_PITCH) + bias);
        }
    }
}

/* Turns the warp's sums into rows in its ring, 64 (or 32) at a time, and stores those. n: the first column. */
template <u32 NT>
EXL2K_FN void exl2k_gemm_results(const exl2k_sums<NT> &sums, const exl2k_gemm_args &a, const exl2k_part &p, u32 n,
                                 u32 row0, u32 rows, u32 ring)
{
    constexpr u32 each = NT < 8 ? NT : 8;
    u32 lane = threadIdx.x % EXL2K_WARP, to = ring + lane % 4 * 2 * EXL2K_GEMM_PITCH + lane / 4 * 4;
    u32 act = a.kind == EXL2K_GEMM_ACT, half = act || (a.out_half && a.kind == EXL2K_GEMM_STORE);
    f32 bias = act ? 0.0f : exl2k_bias(p, n + lane);
    u32 place = p.column + n + lane;
    if (act && a.map && n + lane < p.columns) {
        place = exl2k_load_u16(a.map + (n + lane) * 2);
    }
#pragma unroll
    for (u32 c = 0; c < NT; c += each) {
        u32 first = row0 + c * 8, count = exl2k_min(each * 8, exl2k_max(rows, first) - first);
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < each * 8; k++) {
            u32 i = k / 8, s = k / 4 % 2, e = k % 4;
            exl2k_shared_store_f32(to + (i * 8 + e % 2) * EXL2K_GEMM_PITCH + s * 64 + e / 2 * 32, sums.v[s][c + i][e]);
        }
        __syncwarp();
        if (n + lane < p.columns) {
            u64 at = a.out + (((u64)first * a.out_pitch + place) << (half ? 1 : 2));
            exl2k_rows_store(a, ring + lane * 4, at, bias, count);
        }
    }
    __syncwarp();
}

/* ---- the kernels ---- */

template <u32 NT>
EXL2K_FN void exl2k_gemm_tile(const exl2k_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 tile, u32 split, bool first)
{
    const exl2k_matrix &m = a.matrix;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, act = a.kind == EXL2K_GEMM_ACT, part = 0;
    u32 column = tile / a.row_tiles, row0 = tile % a.row_tiles * (NT * 8), halves = (m.rows + 31) / 32;
    u32 low = split * a.halves, high = exl2k_min(low + a.halves, halves), rows = 0, from = 0, end = 0;
    for (u32 i = 0; i + 1 < EXL2K_PARTS_MAX && !act; i++) {
        u32 tiles = (m.part[i].strips + EXL2K_GEMM_STRIPS - 1) / EXL2K_GEMM_STRIPS;
        if (part == i && i + 1 < m.parts && column >= tiles) {
            column -= tiles;
            part++;
        }
    }
    u32 strip = column * EXL2K_GEMM_STRIPS + warp * 2;
    exl2k_sums<NT> sums;
#pragma unroll 1
    for (u32 pass = 0; pass <= act; pass++) {
        const exl2k_part &q = m.part[part + pass];
        end = q.slice[m.ways];
        if (a.splits > 1) {
            exl2k_weights_range(q, m.ways, low, high, from, end);
        }
        for (u32 i = 0; i < 2; i++) { /* strips beyond the last are the last, and are never stored */
            w.strip[i] = q.base + (u64)exl2k_min(strip + i, q.strips - 1) * q.pitch + lane * 16;
        }
        w.table = q.chunks + from * sizeof(exl2k_chunk);
        w.table_end = q.chunks + end * sizeof(exl2k_chunk);
        w.fill = w.use = w.ring;
        exl2k_weights_peek(w);
        for (u32 i = 0; i + 1 < a.slots; i++) {
            exl2k_weights_fill(w, a, lane);
        }
        if (first && pass == 0) {
            exl2k_dependency_release();
            exl2k_dependency_wait();
        }
        rows = a.rows_at ? exl2k_load(a.rows_at) : a.rows;
        if (row0 >= rows) {
            exl2k_copy_wait<0>();
            return;
        }
        u32 piece = threadIdx.x % 8, line = threadIdx.x / 8;
        s.x = a.x + (u64)low * 64 + piece * 16;
        s.first = row0 + line;
        s.last = rows - 1;
        s.base = s.filled;
        exl2k_gemm_sum<NT>(sums, a, w, s, low, high);
        if (pass < act) {
            exl2k_partial_store<NT>(sums, exl2k_partial<NT>(a, blockIdx.x, 0));
        }
    }
    if (a.splits > 1 && !exl2k_partial_gather<NT>(sums, a, act)) {
        return;
    }
    if (act) {
        exl2k_gemm_act<NT>(sums, a, strip * 16);
    }
    exl2k_gemm_results<NT>(sums, a, m.part[part], strip * 16, row0, rows, w.ring);
}

template <u32 NT> EXL2K_FN void exl2k_gemm(const exl2k_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 shared = exl2k_shared(exl2k_dynamic), piece = threadIdx.x % 8, line = threadIdx.x / 8;
    exl2k_tiles s = { 0 };
    exl2k_weights w = { { 0 } };
    s.barriers = shared;
    s.at = shared + EXL2K_GEMM_BARRIERS;
    s.to = s.at + piece / 4 * (NT * 512) + ((line * 64 + piece % 4 * 16) ^ (piece / 4 * 64));
    w.ring = s.at + (NT * 1024 << a.stages_log) + threadIdx.x / EXL2K_WARP * a.ring_bytes;
    exl2k_tiles_begin(shared, 1u << a.stages_log);
    __syncthreads();
    u32 tiles = a.row_tiles * a.column_tiles * a.splits;
#pragma unroll 1
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        exl2k_gemm_tile<NT>(a, w, s, tile / a.splits, tile % a.splits, tile == blockIdx.x);
    }
}

#define EXL2K_GEMM(name, NT)                                                                                         \
    extern "C" __global__ void __launch_bounds__(EXL2K_GEMM_THREADS, 1)                                             \
    name(const __grid_constant__ exl2k_gemm_args a)                                                                 \
    {                                                                                                               \
        exl2k_gemm<NT>(a);                                                                                          \
    }

EXL2K_GEMM(exl2k_gemm32, 4)
EXL2K_GEMM(exl2k_gemm64, 8)
EXL2K_GEMM(exl2k_gemm128, 16)
