/* tower_attend_wg.cu: attention of a tower by wgmma, where each row sees all rows.
   takes: wg.cuh, tower_tiles.cuh.
   gives: exl2k_tower_attend_wg64, exl2k_tower_attend_wg80.

   A CTA has rows of one head, 64 of each warpgroup, whose queries and outputs stay in registers. Heads of 80 need more
   of these, so there a CTA has three warpgroups and an SM to itself, else two, and two run on an SM. K and V come in
   tiles of 64 rows, one of which is in flight. The scores of a tile are computed while the weighted sum of the tile
   before still runs. Tiles begin at multiples of 64, and a row's sums are rescaled when its own scores grow: the bits
   of a row do not depend on its CTA. */
#include "wg.cuh"
#include "tower_tiles.cuh"

#define EXL2K_TOWER_LEAST -1e30f /* first reference score */
#define EXL2K_TOWER_GROWTH 8.0f  /* a row's sums are rescaled if its largest score exceeds the reference by more */
#define EXL2K_TOWER_KEYS 64u
#define EXL2K_TOWER_BLOCK (EXL2K_TOWER_KEYS * 128) /* bytes of 64 elements of a tile's rows */

EXL2K_FN f32 exl2k_tower_exp2(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies 16 bytes, or writes zeros; `from` is a valid address in either case. */
EXL2K_FN void exl2k_tower_copy16(u32 to, u64 from, bool copy)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copy ? 16 : 0) : "memory");
}

/* d += a b with 16 elements of k and 16 columns, as exl2k_wg_multiply<true>. */
EXL2K_FN void exl2k_tower_multiply16(f32 (&d)[2][4], const u32 a[4], u64 b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 1;\n}"
                 : EXL2K_WG_4(d[0]), EXL2K_WG_4(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1u) : "memory");
}

/* Starts to copy K and V of 64 rows from `first` on; rows after the last one become zeros. */
template <u32 DIM, u32 THREADS>
EXL2K_FN void exl2k_tower_wg_tile(const exl2k_tower_attend_args &a, u64 keys, u64 values, u32 first, u32 to)
{
    const u32 pieces = DIM / 8, blocks = (DIM + 63) / 64;
    for (u32 i = threadIdx.x; i < EXL2K_TOWER_KEYS * pieces; i += THREADS) {
        u32 line = i / pieces, piece = i % pieces;
        bool inside = first + line < a.rows;
        u64 from = ((u64)(inside ? first + line : 0) * DIM + piece * 8) * 2;
        u32 at = to + piece / 8 * EXL2K_TOWER_BLOCK + line * 128 + ((piece ^ line) % 8) * 16;
        exl2k_tower_copy16(at, keys + from, inside);
        exl2k_tower_copy16(at + blocks * EXL2K_TOWER_BLOCK, values + from, inside);
    }
}

/* Turns scores into weights. True: outputs must be scaled by `factor`. */
EXL2K_FN bool exl2k_tower_wg_softmax(f32 (&score)[8][4], f32 scale, f32 most[2], f32 total[2], f32 factor[2])
{
    f32 now[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        now[j] = fmaxf(score[0][2 * j], score[0][2 * j + 1]);
#pragma unroll
        for (u32 n = 1; n < 8; n++) {
            now[j] = fmaxf(now[j], fmaxf(score[n][2 * j], score[n][2 * j + 1]));
        }
        now[j] *= scale;
    }
    bool grown = __any_sync(EXL2K_ALL, now[0] > most[0] + EXL2K_TOWER_GROWTH || now[1] > most[1] + EXL2K_TOWER_GROWTH);
    if (grown) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            now[j] = fmaxf(now[j], __shfl_xor_sync(EXL2K_ALL, now[j], 1));
            now[j] = fmaxf(now[j], __shfl_xor_sync(EXL2K_ALL, now[j], 2));
            now[j] = now[j] > most[j] + EXL2K_TOWER_GROWTH ? now[j] : most[j];
            factor[j] = exl2k_tower_exp2(most[j] - now[j]);
            total[j] *= factor[j];
            most[j] = now[j];
        }
    }
#pragma unroll
    for (u32 n = 0; n < 8; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = exl2k_tower_exp2(fmaf(score[n][i], scale, -most[i / 2]));
            total[i / 2] += score[n][i];
        }
    }
    return grown;
}

/* The tile that is in flight arrives; starts to copy tile t, if there is one, to `to`, which nothing reads any more. */
template <u32 DIM, u32 THREADS>
EXL2K_FN void exl2k_tower_wg_next(const exl2k_tower_attend_args &a, u64 keys, u64 values, u32 t, u32 tiles, u32 to)
{
    exl2k_copy_wait<0>();
    exl2k_async_fence();
    __syncthreads();
    if (t < tiles) {
        exl2k_tower_wg_tile<DIM, THREADS>(a, keys, values, t * EXL2K_TOWER_KEYS, to);
    }
    exl2k_copy_commit();
}

/* Starts the scores of a tile of keys. */
template <u32 DIM> EXL2K_FN void exl2k_tower_wg_scores(f32 (&score)[8][4], const u32 (&query)[DIM / 16][4], u32 at)
{
    u64 tile = exl2k_wg_tile(at);
#pragma unroll
    for (u32 k = 0; k < DIM / 16; k++) {
        exl2k_wg_multiply<false>(score, query[k], tile + k / 4 * (EXL2K_TOWER_BLOCK / 16) + k % 4 * 2, k == 0);
    }
    exl2k_wg_commit();
}

/* Starts to add the weighted sum of a tile of values. more: of elements from 64 on. */
template <u32 DIM>
EXL2K_FN void exl2k_tower_wg_sum(f32 (&out)[8][4], f32 (&more)[2][4], const u32 (&weight)[4][4], u32 at)
{
    u64 tile = exl2k_wg_rows(at, EXL2K_TOWER_BLOCK);
#pragma unroll
    for (u32 m = 0; m < 4; m++) {
        exl2k_wg_multiply<true>(out, weight[m], tile + m * 128, false);
        if (DIM > 64) {
            exl2k_tower_multiply16(more, weight[m], tile + EXL2K_TOWER_BLOCK / 16 + m * 128);
        }
    }
    exl2k_wg_commit();
}

/* Rows from `rows` on are not seen. */
EXL2K_FN void exl2k_tower_wg_mask(f32 (&score)[8][4], u32 first, u32 rows)
{
    if (first + EXL2K_TOWER_KEYS > rows) {
#pragma unroll
        for (u32 n = 0; n < 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                bool seen = first + 8 * n + 2 * (threadIdx.x % 4) + (i & 1) < rows;
                score[n][i] = seen ? score[n][i] : __uint_as_float(0xFF800000u);
            }
        }
    }
}

EXL2K_FN void exl2k_tower_wg_weights(const f32 (&score)[8][4], u32 (&weight)[4][4])
{
#pragma unroll
    for (u32 m = 0; m < 4; m++) {
        weight[m][0] = exl2k_pack_f16(score[2 * m][0], score[2 * m][1]);
        weight[m][1] = exl2k_pack_f16(score[2 * m][2], score[2 * m][3]);
        weight[m][2] = exl2k_pack_f16(score[2 * m + 1][0], score[2 * m + 1][1]);
        weight[m][3] = exl2k_pack_f16(score[2 * m + 1][2], score[2 * m + 1][3]);
    }
}

template <u32 DIM, u32 THREADS> EXL2K_FN void exl2k_tower_wg_attend(const exl2k_tower_attend_args &a)
{
    extern __shared__ uint4 exl2k_tower_wg_stages[];
    const u32 blocks = (DIM + 63) / 64, part = blocks * EXL2K_TOWER_BLOCK, bytes = 2 * part;
    u32 shared = (exl2k_shared(exl2k_tower_wg_stages) + 1023) & ~1023u, lane = threadIdx.x % 32, last = a.rows - 1;
    u32 warp_row = a.row + blockIdx.x * (THREADS / 2) + threadIdx.x / 32 * 16;
    u32 tiles = (a.rows + EXL2K_TOWER_KEYS - 1) / EXL2K_TOWER_KEYS;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 head = ((u64)blockIdx.y * a.rows_max) * DIM * 2, all = (u64)a.heads * a.rows_max * DIM * 2;
    u64 keys = a.heads_at + all + head, values = keys + all;
    u32 query[DIM / 16][4], weight[4][4], now = 0, next = 1;
    f32 out[8][4] = {}, more[2][4] = {}, most[2] = { EXL2K_TOWER_LEAST, EXL2K_TOWER_LEAST }, total[2] = { 0.0f, 0.0f };
    exl2k_tower_wg_tile<DIM, THREADS>(a, keys, values, 0, shared);
    exl2k_copy_commit();
#pragma unroll
    for (u32 j = 0; j < 2; j++) { /* rows after the last one are the last one, and are not stored */
        u32 row = exl2k_min(warp_row + lane / 4 + 8 * j, last);
        u64 from = a.heads_at + head + ((u64)row * DIM + lane % 4 * 2) * 2;
#pragma unroll
        for (u32 k = 0; k < DIM / 16; k++) {
            query[k][j] = exl2k_load(from + k * 32);
            query[k][j + 2] = exl2k_load(from + k * 32 + 16);
        }
    }
    f32 score[8][4], factor[2];
    exl2k_tower_wg_next<DIM, THREADS>(a, keys, values, 1, tiles, shared + bytes);
    exl2k_wg_begin();
    exl2k_tower_wg_scores<DIM>(score, query, shared);
    exl2k_wg_wait<0>();
    exl2k_wg_hold(score);
    exl2k_tower_wg_mask(score, 0, a.rows);
    exl2k_tower_wg_softmax(score, a.scale, most, total, factor);
    exl2k_tower_wg_weights(score, weight);
    for (u32 t = 1; t < tiles; t++) {
        u32 following = next == 2 ? 0 : next + 1;
        exl2k_tower_wg_next<DIM, THREADS>(a, keys, values, t + 1, tiles, shared + following * bytes);
        exl2k_wg_begin();
        exl2k_tower_wg_scores<DIM>(score, query, shared + next * bytes);
        exl2k_tower_wg_sum<DIM>(out, more, weight, shared + now * bytes + part);
        exl2k_wg_wait<1>();
        exl2k_wg_hold(score);
        exl2k_tower_wg_mask(score, t * EXL2K_TOWER_KEYS, a.rows);
        bool grown = exl2k_tower_wg_softmax(score, a.scale, most, total, factor);
        exl2k_wg_wait<0>();
        exl2k_wg_hold(out);
        exl2k_wg_hold(more);
        if (grown) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 n = 0; n < 8; n++) {
                    out[n][i] *= factor[i / 2];
                }
                more[0][i] *= factor[i / 2];
                more[1][i] *= factor[i / 2];
            }
        }
        exl2k_tower_wg_weights(score, weight);
        now = next;
        next = following;
    }
    exl2k_wg_begin();
    exl2k_tower_wg_sum<DIM>(out, more, weight, shared + now * bytes + part);
    exl2k_wg_wait<0>();
    exl2k_wg_hold(out);
    exl2k_wg_hold(more);
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        u32 row = warp_row + lane / 4 + 8 * j;
        f32 sum = total[j] + __shfl_xor_sync(EXL2K_ALL, total[j], 1);
        f32 inverse = 1.0f / (sum + __shfl_xor_sync(EXL2K_ALL, sum, 2));
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
            u32 i = n * 8 + lane % 4 * 2;
            const f32 *pair = n < 8 ? &out[n % 8][2 * j] : &more[n % 2][2 * j];
            if (row < a.rows && i < a.dim) {
                u64 to = a.out + exl2k_tower_at(row, blockIdx.y * a.dim + i, a.rows_max);
                exl2k_store(to, exl2k_pack_f16(pair[0] * inverse, pair[1] * inverse));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) exl2k_tower_attend_wg64(exl2k_tower_attend_args a)
{
    exl2k_tower_wg_attend<64, 256>(a);
}

extern "C" __global__ void __launch_bounds__(384, 1) exl2k_tower_attend_wg80(exl2k_tower_attend_args a)
{
    exl2k_tower_wg_attend<80, 384>(a);
}
