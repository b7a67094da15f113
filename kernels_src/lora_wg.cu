/* lora_wg.cu: t = scale * factor * (A x) of rows with adapters, for products by wgmma.
   takes: lora_wg.cuh.
   gives: exl2k_lora_wg_t16, exl2k_lora_wg_t32, exl2k_lora_wg_t64.

   The CTAs of a cluster have the same rows and a quarter of the inputs each, and their warps an eighth of that. So a
   value is the sum of 32 slices of the inputs, in the order of warps and then in that of CTAs, whatever the number of
   rows. Up to three blocks of 16 values are computed at a time, of any parts. */
#include "lora_wg.cuh"

#if __CUDA_ARCH__ == 900

#define EXL2K_LORA_WG_WARPS (EXL2K_LORA_WG_THREADS / EXL2K_WARP)
#define EXL2K_LORA_WG_AT_ONCE 3

/* What an adapter of a set adds to the parts of the matrix. */
typedef struct exl2k_lora_wg_use {
    u32 rank[EXL2K_LORA_PARTS];
    f32 factor[EXL2K_LORA_PARTS];
    u64 a[EXL2K_LORA_PARTS];
} exl2k_lora_wg_use;

/* Each lane looks up a part. */
EXL2K_FN exl2k_lora_wg_use exl2k_lora_wg_use_of(const exl2k_lora_wg_args &a, u32 set, const exl2k_lora_wg_set &s, u32 u)
{
    u64 at = exl2k_lora_wg_matrix_at(a, s, u, exl2k_min(threadIdx.x % EXL2K_WARP, a.parts - 1));
    uint4 low = exl2k_load4(at), high = exl2k_load4(at + 16);
    f32 scale = exl2k_load_f32(a.sets + (u64)(set - 1) * sizeof(exl2k_lora_set) + 16 + u * 4);
    exl2k_lora_wg_use use;
#pragma unroll
    for (u32 part = 0; part < EXL2K_LORA_PARTS; part++) {
        u32 rank = __shfl_sync(EXL2K_ALL, low.x, part);
        use.rank[part] = part < a.parts ? rank : 0;
        use.factor[part] = scale * __uint_as_float(__shfl_sync(EXL2K_ALL, low.y, part));
        use.a[part] = (u64)__shfl_sync(EXL2K_ALL, high.y, part) << 32 | __shfl_sync(EXL2K_ALL, high.x, part);
    }
    return use;
}

/* A block of 16 values of t. rank 0: there is no such block. */
typedef struct exl2k_lora_wg_block {
    u32 part, block;
    u32 rank;        /* of its adapter */
    f32 factor;
    u64 low, high;   /* addresses of the lane's two rows of A */
} exl2k_lora_wg_block;

/* Block `index` of all parts. */
EXL2K_FN exl2k_lora_wg_block exl2k_lora_wg_block_of(const exl2k_lora_wg_use &use, u32 index, u32 in)
{
    exl2k_lora_wg_block b = { 0, 0, 0, 0.0f, 0, 0 };
    u32 before = 0, pitch = in * 2, lane = threadIdx.x % EXL2K_WARP;
#pragma unroll
    for (u32 part = 0; part < EXL2K_LORA_PARTS; part++) {
        u32 blocks = (use.rank[part] + EXL2K_LORA_WG_BLOCK - 1) / EXL2K_LORA_WG_BLOCK;
        if (index >= before && index < before + blocks) {
            u32 k = (index - before) * EXL2K_LORA_WG_BLOCK + lane / 4, last = use.rank[part] - 1;
            b.part = part;
            b.block = index - before;
            b.rank = use.rank[part];
            b.factor = use.factor[part];
            b.low = use.a[part] + (u64)exl2k_min(k, last) * pitch + lane % 4 * 16;
            b.high = use.a[part] + (u64)exl2k_min(k + 8, last) * pitch + lane % 4 * 16;
        }
        before += blocks;
    }
    return b;
}

/* Words i of lanes 4 g + t become words t of lanes 4 g + i. */
EXL2K_FN uint4 exl2k_lora_wg_transpose(uint4 v)
{
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    u32 x = __shfl_xor_sync(EXL2K_ALL, odd ? v.x : v.y, 1), y = __shfl_xor_sync(EXL2K_ALL, odd ? v.z : v.w, 1);
    v = odd ? make_uint4(x, v.y, y, v.w) : make_uint4(v.x, x, v.z, y);
    x = __shfl_xor_sync(EXL2K_ALL, upper ? v.x : v.z, 2);
    y = __shfl_xor_sync(EXL2K_ALL, upper ? v.y : v.w, 2);
    return upper ? make_uint4(x, y, v.z, v.w) : make_uint4(v.x, v.y, x, y);
}

/* The operands of half of the inputs: x in the order of tiles, where lane t has pairs 2 t, 2 t + 8, 2 t + 16 and
   2 t + 24; A as it lies, where lane t has the eight inputs from 8 t on. */
template <u32 TILES> struct exl2k_lora_wg_half {
    uint4 x[TILES], low[EXL2K_LORA_WG_AT_ONCE], high[EXL2K_LORA_WG_AT_ONCE];
};

template <u32 TILES>
EXL2K_FN void exl2k_lora_wg_load(exl2k_lora_wg_half<TILES> &h, const exl2k_lora_wg_args &a,
                                 const exl2k_lora_wg_block *b, u32 first, u32 half)
{
    u32 lane = threadIdx.x % EXL2K_WARP;
#pragma unroll
    for (u32 n = 0; n < EXL2K_LORA_WG_AT_ONCE; n++) {
        if (b[n].rank > 0) {
            h.low[n] = exl2k_load_constant4(b[n].low + half * 64);
            h.high[n] = exl2k_load_constant4(b[n].high + half * 64);
        }
    }
#pragma unroll
    for (u32 i = 0; i < TILES; i++) {
        u32 row = exl2k_min(first + i * 8 + lane / 4, a.tile_rows - 1);
        h.x[i] = exl2k_load4(a.x + exl2k_wg_chunk_at(half, lane % 4, row, a.tile_rows));
    }
}

/* The sums of a warp's slice. The operands of the next half are loaded meanwhile if registers are left for them. */
template <u32 TILES>
EXL2K_FN void exl2k_lora_wg_slice(const exl2k_lora_wg_args &a, const exl2k_lora_wg_block *b, u32 first, u32 begin,
                                  u32 end, f32 (*sum)[TILES][4])
{
    constexpr bool early = TILES < 8;
    exl2k_lora_wg_half<TILES> h, next = {};
    if (early && begin < end) {
        exl2k_lora_wg_load(next, a, b, first, begin);
    }
#pragma unroll 1
    for (u32 half = begin; half < end; half++) {
        h = next;
        if (!early || half + 1 < end) {
            exl2k_lora_wg_load(early ? next : h, a, b, first, half + early);
        }
#pragma unroll
        for (u32 n = 0; n < EXL2K_LORA_WG_AT_ONCE; n++) {
            if (b[n].rank > 0) {
                uint4 low = exl2k_lora_wg_transpose(h.low[n]), high = exl2k_lora_wg_transpose(h.high[n]);
                const u32 even[4] = { low.x, high.x, low.y, high.y }, odd[4] = { low.z, high.z, low.w, high.w };
#pragma unroll
                for (u32 i = 0; i < TILES; i++) {
                    exl2k_mma(sum[n][i], even, h.x[i].x, h.x[i].y);
                    exl2k_mma(sum[n][i], odd, h.x[i].z, h.x[i].w);
                }
            }
        }
    }
}

/* A value in shared memory of CTA `rank` of the cluster. */
EXL2K_FN f32 exl2k_lora_wg_load_from(u32 at, u32 rank)
{
    f32 v;
    asm volatile("{\n.reg .b32 from;\nmapa.shared::cluster.u32 from, %1, %2;\nld.shared::cluster.f32 %0, [from];\n}"
                 : "=f"(v) : "r"(at), "r"(rank) : "memory");
    return v;
}

/* The larger term of a value: what TF32 has of it. */
EXL2K_FN u32 exl2k_lora_wg_term(f32 v) { return __float_as_uint(v) & 0xFFFFE000u; }

/* Adds up the four CTAs' sums of a quarter of the rows, and stores the terms of four values of a row. */
template <u32 TILES>
EXL2K_FN void exl2k_lora_wg_store(const exl2k_lora_wg_args &a, const exl2k_lora_wg_block *b, u32 first, u32 u, u32 set,
                                  u32 totals)
{
    constexpr u32 rows = TILES * 8, own = rows / EXL2K_LORA_WG_CLUSTER;
    for (u32 i = threadIdx.x; i < EXL2K_LORA_WG_AT_ONCE * own * 4; i += EXL2K_LORA_WG_THREADS) {
        u32 n = i / (own * 4), row = blockIdx.x * own + i / 4 % own, chunk = i % 4;
        exl2k_lora_wg_block c = n == 0 ? b[0] : n == 1 ? b[1] : b[2];
        bool has = c.rank > 0 && first + row < a.rows && exl2k_load_u16(a.row_sets + (u64)(first + row) * 2) == set;
        if (!has) {
            continue;
        }
        u32 large[4], small[4];
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            u32 k = chunk * 4 + e, at = totals + ((n * EXL2K_LORA_WG_BLOCK + k) * (rows + 1) + row) * 4;
            f32 total = 0.0f;
#pragma unroll
            for (u32 rank = 0; rank < EXL2K_LORA_WG_CLUSTER; rank++) {
                total += exl2k_lora_wg_load_from(at, rank);
            }
            f32 t = c.block * EXL2K_LORA_WG_BLOCK + k < c.rank ? total * c.factor : 0.0f;
            large[e] = exl2k_lora_wg_term(t);
            small[e] = exl2k_lora_wg_term(t - __uint_as_float(large[e]));
        }
        u32 line = first + row;
        u64 to = exl2k_lora_wg_t_at(a, u, c.part, c.block, line) + (chunk ^ line / 2 % 4) * 16;
        exl2k_store4(to, make_uint4(large[0], large[1], large[2], large[3]));
        exl2k_store4(to + (u64)a.tile_rows * 64, make_uint4(small[0], small[1], small[2], small[3]));
    }
}

/* Up to three blocks of use u of a set, for TILES * 8 rows. */
template <u32 TILES>
EXL2K_FN void exl2k_lora_wg_some(const exl2k_lora_wg_args &a, const exl2k_lora_wg_block *b, u32 first, u32 u, u32 set,
                                 f32 (*sums)[EXL2K_LORA_WG_BLOCK][TILES * 8 + 1],
                                 f32 (*totals)[EXL2K_LORA_WG_BLOCK][TILES * 8 + 1])
{
    constexpr u32 warps = EXL2K_LORA_WG_WARPS, slices = warps * EXL2K_LORA_WG_CLUSTER, rows = TILES * 8;
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, slice = blockIdx.x * warps + warp;
    u32 halves = a.in / 32;
    f32 sum[EXL2K_LORA_WG_AT_ONCE][TILES][4] = {};
    exl2k_lora_wg_slice<TILES>(a, b, first, slice * halves / slices, (slice + 1) * halves / slices, sum);
#pragma unroll
    for (u32 n = 0; n < EXL2K_LORA_WG_AT_ONCE; n++) {
        if (b[n].rank > 0) {
            __syncthreads(); /* the sums before these are read */
#pragma unroll
            for (u32 i = 0; i < TILES * 4; i++) {
                u32 e = i % 4;
                sums[warp][lane / 4 + e / 2 * 8][i / 4 * 8 + lane % 4 * 2 + e % 2] = sum[n][i / 4][e];
            }
            __syncthreads();
            for (u32 i = threadIdx.x; i < EXL2K_LORA_WG_BLOCK * rows; i += EXL2K_LORA_WG_THREADS) {
                u32 k = i / rows, row = i % rows;
                f32 total = 0.0f;
#pragma unroll
                for (u32 w = 0; w < warps; w++) {
                    total += sums[w][k][row];
                }
                totals[n][k][row] = total;
            }
        }
    }
    exl2k_cluster_arrive();
    exl2k_cluster_wait();
    exl2k_lora_wg_store<TILES>(a, b, first, u, set, exl2k_shared(totals));
    exl2k_cluster_arrive(); /* the totals are read */
    exl2k_cluster_wait();
}

template <u32 TILES> EXL2K_FN void exl2k_lora_wg_t(const exl2k_lora_wg_args &a)
{
    __shared__ f32 sums[EXL2K_LORA_WG_WARPS][EXL2K_LORA_WG_BLOCK][TILES * 8 + 1];
    __shared__ f32 totals[EXL2K_LORA_WG_AT_ONCE][EXL2K_LORA_WG_BLOCK][TILES * 8 + 1];
    u32 first = blockIdx.y * TILES * 8, waits = 1;
    exl2k_dependency_release();
    exl2k_lora_wg_sets sets = exl2k_lora_wg_sets_of(a, first, TILES * 8);
#pragma unroll 1
    for (u32 set = 0; (set = exl2k_lora_wg_next(sets, set)) > 0;) {
        exl2k_lora_wg_set s = exl2k_lora_wg_set_of(a, set);
#pragma unroll 1
        for (u32 u = 0; u < s.count; u++) {
            exl2k_lora_wg_use use = exl2k_lora_wg_use_of(a, set, s, u);
            if (waits) { /* sets and tables are older than the kernel before */
                exl2k_dependency_wait();
                waits = 0;
            }
#pragma unroll 1
            for (u32 index = 0;; index += EXL2K_LORA_WG_AT_ONCE) {
                exl2k_lora_wg_block b[EXL2K_LORA_WG_AT_ONCE];
#pragma unroll
                for (u32 n = 0; n < EXL2K_LORA_WG_AT_ONCE; n++) {
                    b[n] = exl2k_lora_wg_block_of(use, index + n, a.in);
                }
                if (b[0].rank == 0) {
                    break;
                }
                exl2k_lora_wg_some<TILES>(a, b, first, u, set, sums, totals);
            }
        }
    }
    if (waits) {
        exl2k_dependency_wait();
    }
}

extern "C" __global__ void __cluster_dims__(EXL2K_LORA_WG_CLUSTER, 1, 1)
__launch_bounds__(EXL2K_LORA_WG_THREADS, 1) exl2k_lora_wg_t16(exl2k_lora_wg_args a)
{
    exl2k_lora_wg_t<2>(a);
}

extern "C" __global__ void __cluster_dims__(EXL2K_LORA_WG_CLUSTER, 1, 1)
__launch_bounds__(EXL2K_LORA_WG_THREADS, 1) exl2k_lora_wg_t32(exl2k_lora_wg_args a)
{
    exl2k_lora_wg_t<4>(a);
}

extern "C" __global__ void __cluster_dims__(EXL2K_LORA_WG_CLUSTER, 1, 1)
__launch_bounds__(EXL2K_LORA_WG_THREADS, 1) exl2k_lora_wg_t64(exl2k_lora_wg_args a)
{
    exl2k_lora_wg_t<8>(a);
}

#endif
