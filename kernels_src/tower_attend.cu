/* tower_attend.cu: attention of a tower: no causal mask; a row sees its segment, or all rows.
   takes: base.cuh, tower_tiles.cuh.
   gives: exl2k_tower_attend32, exl2k_tower_attend64, exl2k_tower_attend80, exl2k_tower_attend128.

   A CTA has 128 rows of one head. A warp has 16 of them, from their queries (in registers) to their outputs. K and V
   are loaded in tiles; the next tile is in flight while the warps work on the current one. Tiles begin at multiples of
   their size, and a row's sums are rescaled when its own scores grow: so the bits of a row do not depend on its CTA. */
#include "base.cuh"
#include "tower_tiles.cuh"

#define EXL2K_TOWER_LEAST -1e30f /* first reference score: finite, since a row's first tiles may be masked as a whole */
#define EXL2K_TOWER_GROWTH 8.0f  /* a row's sums are rescaled if its largest score exceeds the reference by more */

EXL2K_FN f32 exl2k_tower_exp2(f32 x)
{
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies 16 bytes, or writes zeros; `from` is a valid address in either case. */
EXL2K_FN void exl2k_tower_copy16(u32 to, u64 from, bool copy)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copy ? 16 : 0) : "memory");
#else
    exl2k_shared_store4(to, copy ? exl2k_load4(from) : make_uint4(0, 0, 0, 0));
#endif
}

/* The sums of a warp's 16 rows. Lane 4g + t has rows g and g + 8. */
template <u32 DIM> struct exl2k_tower_sums {
    f32 out[DIM / 8][4];    /* dims 8n + 2t, + 1 of row g, then of row g + 8 */
    f32 most[2], total[2];  /* reference score; sum of this lane's weights */
};

/* Starts to copy K and V of rows [first, first + KEYS). */
template <u32 DIM, u32 KEYS>
EXL2K_FN void exl2k_tower_tile(const exl2k_tower_attend_args &a, u64 keys, u64 values, u32 first, u32 end, u32 to)
{
    const u32 pitch = DIM * 2 + 16, pieces = DIM / 8;
    if (first < end) {
        for (u32 i = threadIdx.x; i < KEYS * pieces; i += 256) {
            u32 line = i / pieces, piece = i % pieces;
            bool inside = first + line < a.rows;
            u64 from = ((u64)(inside ? first + line : 0) * DIM + piece * 8) * 2;
            u32 at = to + line * pitch + piece * 16;
            exl2k_tower_copy16(at, keys + from, inside);
            exl2k_tower_copy16(at + KEYS * pitch, values + from, inside);
        }
    }
    exl2k_copy_commit();
}

/* Turns scores into weights; rescales the sums of rows whose scores have grown. */
template <u32 DIM, u32 KEYS>
EXL2K_FN void exl2k_tower_softmax(exl2k_tower_sums<DIM> &s, f32 (&score)[KEYS / 8][4], f32 scale)
{
    f32 most[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        most[j] = fmaxf(score[0][2 * j], score[0][2 * j + 1]);
#pragma unroll
        for (u32 n = 1; n < KEYS / 8; n++) {
            most[j] = fmaxf(most[j], fmaxf(score[n][2 * j], score[n][2 * j + 1]));
        }
        most[j] *= scale;
    }
    if (__any_sync(EXL2K_ALL, most[0] > s.most[0] + EXL2K_TOWER_GROWTH || most[1] > s.most[1] + EXL2K_TOWER_GROWTH)) {
        f32 factor[2];
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
            f32 now = fmaxf(most[j], __shfl_xor_sync(EXL2K_ALL, most[j], 1));
            now = fmaxf(now, __shfl_xor_sync(EXL2K_ALL, now, 2));
            now = now > s.most[j] + EXL2K_TOWER_GROWTH ? now : s.most[j];
            factor[j] = exl2k_tower_exp2(s.most[j] - now);
            s.total[j] *= factor[j];
            s.most[j] = now;
        }
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                s.out[n][i] *= factor[i / 2];
            }
        }
    }
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = exl2k_tower_exp2(fmaf(score[n][i], scale, -s.most[i / 2]));
            s.total[i / 2] += score[n][i];
        }
    }
}

/* Adds a tile, whose KEYS rows begin at row `first`: begin, end: of the keys of this lane's rows. masked: some are not
   among these. */
template <u32 DIM, u32 KEYS>
EXL2K_FN void exl2k_tower_attend_tile(const exl2k_tower_attend_args &a, exl2k_tower_sums<DIM> &s,
                                      const u32 (&query)[DIM / 16][4], u32 tile, u32 first, const u32 (&begin)[2],
                                      const u32 (&end)[2], bool masked)
{
    const u32 pitch = DIM * 2 + 16;
    u32 lane = threadIdx.x % 32;
    u32 columns = tile + ((lane & 7) + (lane >> 4 << 3)) * pitch + (lane >> 3 & 1) * 16;
    u32 rows = tile + KEYS * pitch + ((lane & 7) + (lane & 8)) * pitch + (lane >> 4) * 16;
    f32 score[KEYS / 8][4];
#pragma unroll
    for (u32 n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            score[n][i] = 0.0f;
        }
    }
#pragma unroll
    for (u32 k = 0; k < DIM / 16; k++) {
#pragma unroll
        for (u32 n = 0; n < KEYS / 16; n++) {
            uint4 b = exl2k_ldmatrix4(columns + n * 16 * pitch + k * 32);
            exl2k_mma(score[2 * n], query[k], b.x, b.y);
            exl2k_mma(score[2 * n + 1], query[k], b.z, b.w);
        }
    }
    if (masked) {
#pragma unroll
        for (u32 n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 key = first + 8 * n + 2 * (lane % 4) + (i & 1);
                bool seen = key >= begin[i / 2] && key < end[i / 2];
                score[n][i] = seen ? score[n][i] : __uint_as_float(0xFF800000u);
            }
        }
    }
    exl2k_tower_softmax<DIM, KEYS>(s, score, a.scale);
    u32 weight[KEYS / 16][4];
#pragma unroll
    for (u32 m = 0; m < KEYS / 16; m++) {
        weight[m][0] = exl2k_pack_f16(score[2 * m][0], score[2 * m][1]);
        weight[m][1] = exl2k_pack_f16(score[2 * m][2], score[2 * m][3]);
        weight[m][2] = exl2k_pack_f16(score[2 * m + 1][0], score[2 * m + 1][1]);
        weight[m][3] = exl2k_pack_f16(score[2 * m + 1][2], score[2 * m + 1][3]);
    }
#pragma unroll
    for (u32 m = 0; m < KEYS / 16; m++) {
#pragma unroll
        for (u32 k = 0; k < DIM / 16; k++) {
            uint4 b = exl2k_ldmatrix4_transposed(rows + m * 16 * pitch + k * 32);
            exl2k_mma(s.out[2 * k], weight[m], b.x, b.y);
            exl2k_mma(s.out[2 * k + 1], weight[m], b.z, b.w);
        }
    }
}

/* First key of a row if `end` is 0, else the end of its keys. */
EXL2K_FN u32 exl2k_tower_segment(const exl2k_tower_attend_args &a, u32 row, u32 end)
{
    return a.segments ? exl2k_load(a.segments + ((u64)row * 2 + end) * 4) : end ? a.rows : 0;
}

/* KEYS: rows of a tile. */
template <u32 DIM, u32 KEYS> EXL2K_FN void exl2k_tower_attend(const exl2k_tower_attend_args &a)
{
    const u32 pitch = DIM * 2 + 16, bytes = 2 * KEYS * pitch;
    __shared__ __align__(128) u8 shared[2 * bytes];
    u32 at = exl2k_shared(shared), other = at + bytes, lane = threadIdx.x % 32, last = a.rows - 1;
    u32 first_row = a.row + blockIdx.x * EXL2K_TOWER_TILE, warp_row = first_row + threadIdx.x / 32 * 16;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u64 head = ((u64)blockIdx.y * a.rows_max) * DIM * 2, all = (u64)a.heads * a.rows_max * DIM * 2;
    u64 keys = a.heads_at + all + head, values = keys + all;
    u32 begin_all = exl2k_tower_segment(a, exl2k_min(first_row, last), 0) / KEYS * KEYS;
    u32 end_all = exl2k_tower_segment(a, exl2k_min(first_row + EXL2K_TOWER_TILE - 1, last), 1);
    u32 begin_warp = exl2k_tower_segment(a, exl2k_min(warp_row, last), 0);
    u32 begin_last = exl2k_tower_segment(a, exl2k_min(warp_row + 15, last), 0);
    u32 end_warp = exl2k_tower_segment(a, exl2k_min(warp_row + 15, last), 1);
    u32 end_first = exl2k_tower_segment(a, exl2k_min(warp_row, last), 1);
    u32 begin[2], end[2], query[DIM / 16][4];
    exl2k_tower_tile<DIM, KEYS>(a, keys, values, begin_all, end_all, at);
    exl2k_tower_sums<DIM> s;
#pragma unroll
    for (u32 j = 0; j < 2; j++) { /* rows after the last one are the last one, and are not stored */
        u32 row = exl2k_min(warp_row + lane / 4 + 8 * j, last);
        u64 from = a.heads_at + head + ((u64)row * DIM + lane % 4 * 2) * 2;
        begin[j] = exl2k_tower_segment(a, row, 0);
        end[j] = exl2k_tower_segment(a, row, 1);
        s.most[j] = EXL2K_TOWER_LEAST;
        s.total[j] = 0.0f;
#pragma unroll
        for (u32 k = 0; k < DIM / 16; k++) {
            query[k][j] = exl2k_load(from + k * 32);
            query[k][j + 2] = exl2k_load(from + k * 32 + 16);
        }
    }
#pragma unroll
    for (u32 n = 0; n < DIM / 8; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            s.out[n][i] = 0.0f;
        }
    }
    for (u32 first = begin_all; first < end_all; first += KEYS) {
        exl2k_copy_wait<0>();
        __syncthreads();
        exl2k_tower_tile<DIM, KEYS>(a, keys, values, first + KEYS, end_all, other);
        if (first < end_warp && first + KEYS > begin_warp) {
            bool masked = first < begin_last || first + KEYS > end_first;
            exl2k_tower_attend_tile<DIM, KEYS>(a, s, query, at, first, begin, end, masked);
        }
        u32 swap = at;
        at = other;
        other = swap;
    }
    u32 thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); /* addresses are computed here, not before the loop: it needs the registers */
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        u32 row = first_row + thread / 32 * 16 + thread % 32 / 4 + 8 * j;
        f32 total = s.total[j];
        total += __shfl_xor_sync(EXL2K_ALL, total, 1);
        total += __shfl_xor_sync(EXL2K_ALL, total, 2);
        f32 inverse = 1.0f / total;
#pragma unroll
        for (u32 n = 0; n < DIM / 8; n++) {
            u32 i = n * 8 + thread % 4 * 2;
            if (row < a.rows && i < a.dim) {
                exl2k_store(a.out + exl2k_tower_at(row, blockIdx.y * a.dim + i, a.rows_max),
                            exl2k_pack_f16(s.out[n][2 * j] * inverse, s.out[n][2 * j + 1] * inverse));
            }
        }
    }
}

#if __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 1000
#define EXL2K_TOWER_CTAS 2 /* of an SM; elsewhere ptxas 13.0 would use local memory for a few registers */
#else
#define EXL2K_TOWER_CTAS 1
#endif

extern "C" __global__ void __launch_bounds__(256, 2) exl2k_tower_attend32(exl2k_tower_attend_args a)
{
    exl2k_tower_attend<32, 64>(a);
}

extern "C" __global__ void __launch_bounds__(256, EXL2K_TOWER_CTAS) exl2k_tower_attend64(exl2k_tower_attend_args a)
{
    exl2k_tower_attend<64, 64>(a);
}

extern "C" __global__ void __launch_bounds__(256, EXL2K_TOWER_CTAS) exl2k_tower_attend80(exl2k_tower_attend_args a)
{
    exl2k_tower_attend<80, 64>(a);
}

extern "C" __global__ void __launch_bounds__(256, 1) exl2k_tower_attend128(exl2k_tower_attend_args a)
{
    exl2k_tower_attend<128, 32>(a);
}
