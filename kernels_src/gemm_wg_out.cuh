/* gemm_wg_out.cuh: what products of many rows by wgmma do with their sums: splits are added up, results are stored.
   takes: gemm_wg_job.cuh, gemm_results.cuh (part of it), wg_tiles.cuh.
   gives: exl2k_wg_split_ends, exl2k_wg_join; exl2k_wg_store, exl2k_wg_act; exl2k_wg_share.
   owns:  nothing; included by gemm_wg.cuh. */
#ifndef EXL2K_GEMM_WG_OUT_CUH
#define EXL2K_GEMM_WG_OUT_CUH

#include "gemm_results.cuh"
#include "gemm_wg_job.cuh"
#include "wg_tiles.cuh"

#if __CUDA_ARCH__ == 900

/* ---- splits ---- */

/* Stores the sums of a split; whether this warp (ACT: this CTA, as the groups exchange sums) is the last to do so of
   those that have the same columns and rows. A block has [N / 8][256 threads] times four sums. */
template <u32 N>
EXL2K_FN bool exl2k_wg_split_ends(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_shared &s, u32 work)
{
    bool act = a.kind == EXL2K_GEMM_ACT;
    u64 own = a.partial + (u64)work * (N * 512) + threadIdx.x * 16;
    u64 ticket = a.tickets + (work / a.splits * 8 + (act ? 0 : threadIdx.x / EXL2K_WARP)) * 4;
    u32 last = 0;
#pragma unroll
    for (u32 i = 0; i < N / 8; i++) {
        exl2k_store4(own + i * 4096, make_uint4(__float_as_uint(d[4 * i]), __float_as_uint(d[4 * i + 1]),
                                                __float_as_uint(d[4 * i + 2]), __float_as_uint(d[4 * i + 3])));
    }
    if (act) {
        exl2k_wg_sync();
    }
    __syncwarp();
    if (act ? threadIdx.x == 0 : threadIdx.x % EXL2K_WARP == 0) {
        asm volatile("fence.acq_rel.gpu;" ::: "memory"); /* of all that arrived at the barrier before */
        last = atomicInc((u32 *)ticket, a.splits - 1) == a.splits - 1;
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        exl2k_shared_store(s.base + EXL2K_WG_LAST, last);
    }
    if (act) {
        exl2k_wg_sync();
        return exl2k_shared_load(s.base + EXL2K_WG_LAST);
    }
    return __shfl_sync(EXL2K_ALL, last, 0);
}

/* Blocks of eight rows whose sums are added up at a time. */
template <u32 N> EXL2K_FN constexpr u32 exl2k_wg_some(void) { return N < 32 ? N / 8 : 4; }

/* Adds up the sums of a thread over all splits, in their order: of `some` blocks from b on. BATCH: splits whose sums
   are loaded at a time. */
template <u32 N, u32 some, u32 BATCH> EXL2K_FN void exl2k_wg_join(f32 *d, const exl2k_gemm_args &a, u32 work, u32 b)
{
    u64 from = a.partial + (u64)(work / a.splits * a.splits) * (N * 512) + threadIdx.x * 16 + b * 4096;
#pragma unroll
    for (u32 i = 0; i < 4 * some; i++) {
        d[i] = 0.0f;
    }
#pragma unroll 1
    for (u32 split = 0; split < a.splits; split += BATCH) {
        uint4 v[BATCH][some];
#pragma unroll
        for (u32 i = 0; i < BATCH * some; i++) {
            u32 number = exl2k_min(split + i / some, a.splits - 1);
            v[i / some][i % some] = exl2k_load4(from + (u64)number * (N * 512) + i % some * 4096);
        }
#pragma unroll
        for (u32 i = 0; i < BATCH * some; i++) {
            if (split + i / some < a.splits) {
                d[4 * (i % some)] += __uint_as_float(v[i / some][i % some].x);
                d[4 * (i % some) + 1] += __uint_as_float(v[i / some][i % some].y);
                d[4 * (i % some) + 2] += __uint_as_float(v[i / some][i % some].z);
                d[4 * (i % some) + 3] += __uint_as_float(v[i / some][i % some].w);
            }
        }
    }
}

/* ---- tiles that two CTAs compute ---- */

/* Where a thread's sums of the first part of a tile are, and the flag that says that its warp has stored them. */
template <u32 N> EXL2K_FN u64 exl2k_wg_handed(const exl2k_gemm_args &a, u32 work)
{
    return a.partial + (u64)(work - exl2k_wg_works(a) / gridDim.x * gridDim.x) * (N * 512) + threadIdx.x * 16;
}
EXL2K_FN u64 exl2k_wg_flag(const exl2k_gemm_args &a, u32 work)
{
    u32 number = work - exl2k_wg_works(a) / gridDim.x * gridDim.x;
    return a.tickets + (number * 8 + threadIdx.x / EXL2K_WARP) * 4;
}

/* After the first part of a tile's halves. */
template <u32 N> EXL2K_FN void exl2k_wg_hand_over(const f32 *d, const exl2k_gemm_args &a, u32 work)
{
    u64 to = exl2k_wg_handed<N>(a, work);
#pragma unroll
    for (u32 i = 0; i < N / 8; i++) {
        exl2k_store4(to + i * 4096, make_uint4(__float_as_uint(d[4 * i]), __float_as_uint(d[4 * i + 1]),
                                               __float_as_uint(d[4 * i + 2]), __float_as_uint(d[4 * i + 3])));
    }
    __syncwarp();
    if (threadIdx.x % EXL2K_WARP == 0) {
        asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], 1;" ::"l"(exl2k_wg_flag(a, work)) : "memory");
    }
}

/* Before the second part: waits for the same warp of the CTA that has the first part, and takes its sums. That CTA has
   a lower number, so it runs already, and it waits for nobody. */
template <u32 N> EXL2K_FN void exl2k_wg_continue(f32 *d, const exl2k_gemm_args &a, u32 work)
{
    u64 from = exl2k_wg_handed<N>(a, work), flag = exl2k_wg_flag(a, work);
    u32 handed = 0;
#pragma unroll 1
    while (!handed) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(handed) : "l"(flag) : "memory");
    }
    __syncwarp();
    if (threadIdx.x % EXL2K_WARP == 0) {
        exl2k_store(flag, 0); /* for the next launch */
    }
#pragma unroll
    for (u32 i = 0; i < N / 8; i++) {
        uint4 v = exl2k_load4(from + i * 4096);
        d[4 * i] = __uint_as_float(v.x);
        d[4 * i + 1] = __uint_as_float(v.y);
        d[4 * i + 2] = __uint_as_float(v.z);
        d[4 * i + 3] = __uint_as_float(v.w);
    }
}

/* ---- results ---- */

/* Rows below x of a column are stored, rows below y are added to. */
EXL2K_FN void exl2k_wg_put(uint2 below, u32 row, u64 at, f32 v)
{
    exl2k_sleep(32);
    asm volatile("{\n.reg .pred p, q;\nsetp.lt.u32 p, %0, %1;\nsetp.lt.u32 q, %0, %2;\n@p st.global.f32 [%3], %4;\n"
                 "@q red.relaxed.gpu.global.add.f32 [%3], %4;\n}"
                 ::"r"(row), "r"(below.x), "r"(below.y), "l"(at), "f"(v) : "memory");
}

/* STORE and RESIDUAL of COUNT sums of a thread, whose rows begin with `first` of the tile. Eight lanes have eight
   columns of one row, which are 32 bytes of it. One thread adds to an output, so the order of additions does not
   matter. */
template <u32 COUNT>
EXL2K_FN void exl2k_wg_store(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_job &p, u32 first)
{
    u32 lane = threadIdx.x % EXL2K_WARP, n = (p.strip + threadIdx.x / EXL2K_WARP % 4) * 16 + lane / 4;
    const exl2k_part &q = a.matrix.part[p.part];
    f32 left = exl2k_bias_of(q, n), right = exl2k_bias_of(q, n + 8);
    f32 scale = EXL2K_ANY && a.kind == EXL2K_GEMM_RESIDUAL ? a.scale : 1.0f;
    u32 row = p.row + first + lane % 4 * 2, line = a.out_pitch * 4, add = a.kind == EXL2K_GEMM_RESIDUAL;
    uint2 all = make_uint2(add ? 0 : a.rows, add ? a.rows : 0), none = make_uint2(0, 0);
    uint2 left_rows = n < q.columns ? all : none, right_rows = n + 8 < q.columns ? all : none;
    u64 at = a.out + ((u64)row * a.out_pitch + q.column + n) * 4;
#pragma unroll
    for (u32 i = 0; i < COUNT; i += 4, row += 8, at += 8 * (u64)line) {
        exl2k_wg_put(left_rows, row, at, (d[i] + left) * scale);
        exl2k_wg_put(left_rows, row + 1, at + line, (d[i + 1] + left) * scale);
        exl2k_wg_put(right_rows, row, at + 32, (d[i + 2] + right) * scale);
        exl2k_wg_put(right_rows, row + 1, at + line + 32, (d[i + 3] + right) * scale);
    }
}

/* STORE and RESIDUAL of a tile whose splits the CTAs of a cluster have: their sums meet in shared memory, where the
   inputs were, and each CTA adds up and stores its share of the rows, in the order of the splits. BATCH: as in
   exl2k_wg_join. */
template <u32 N, u32 BATCH>
EXL2K_FN void exl2k_wg_share(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_shared &s, const exl2k_wg_job &p)
{
    constexpr u32 some = N >= 128 ? 4 : N >= 32 ? N / 32 : 1; /* blocks of eight rows that are added up at a time */
    u32 own = s.inputs + threadIdx.x * 16;
    exl2k_wg_sync(); /* both groups have read their inputs */
#pragma unroll
    for (u32 i = 0; i < N / 8; i++) {
        exl2k_shared_store4(own + i * 4096, make_uint4(__float_as_uint(d[4 * i]), __float_as_uint(d[4 * i + 1]),
                                                       __float_as_uint(d[4 * i + 2]), __float_as_uint(d[4 * i + 3])));
    }
    exl2k_cluster_arrive(); /* of all CTAs; the warps that do not multiply have exited, or will */
    exl2k_cluster_wait();
#pragma unroll 1
    for (u32 b = blockIdx.x % a.splits * some; b < N / 8; b += a.splits * some) {
        f32 sums[4 * some];
#pragma unroll
        for (u32 i = 0; i < 4 * some; i++) {
            sums[i] = 0.0f;
        }
#pragma unroll 1
        for (u32 split = 0; split < a.splits; split += BATCH) {
            uint4 v[BATCH][some];
#pragma unroll
            for (u32 k = 0; k < BATCH; k++) {
                u32 from = exl2k_cluster_address(own + b * 4096, exl2k_min(split + k, a.splits - 1));
#pragma unroll
                for (u32 i = 0; i < some; i++) {
                    v[k][i] = exl2k_cluster_load4(from + i * 4096);
                }
            }
#pragma unroll
            for (u32 k = 0; k < BATCH; k++) {
#pragma unroll
                for (u32 i = 0; i < some && split + k < a.splits; i++) {
                    sums[4 * i] += __uint_as_float(v[k][i].x);
                    sums[4 * i + 1] += __uint_as_float(v[k][i].y);
                    sums[4 * i + 2] += __uint_as_float(v[k][i].z);
                    sums[4 * i + 3] += __uint_as_float(v[k][i].w);
                }
            }
        }
        exl2k_wg_store<4 * some>(sums, a, p, b * 8);
    }
    exl2k_cluster_arrive(); /* the others have read the sums */
    exl2k_cluster_wait();
}

/* Transposes an 8 x 8 matrix of halves: a lane 4 g + t gives elements 2 t, 2 t + 1 of row g, and gets these of the
   transposed matrix. */
EXL2K_FN u32 exl2k_wg_transpose(u32 v)
{
    u32 d;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(v));
    return d;
}

/* SiLU or GELU by tanh, which are both v / (1 + e^-(linear v + cubic v^3)): without a branch, as the code is repeated
   for each sum. */
EXL2K_FN f32 exl2k_wg_gate(f32 v, f32 linear, f32 cubic)
{
    return EXL2K_ANY ? v * exl2k_reciprocal(1.0f + __expf(-v * fmaf(cubic * v, v, linear))) : exl2k_silu_quick(v);
}

/* ACT: act(gate) * up. The groups exchange sums: group 0 gets both factors of the first half of the rows, group 1 of
   the second. The results are tiles as the inputs are, and the columns are in the order of their reader: lane t of a
   row has columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of the strip, which are half of chunk t (wg_tiles.cuh). */
template <u32 N> EXL2K_FN void exl2k_wg_act(const f32 *d, const exl2k_gemm_args &a, const exl2k_wg_shared &s,
                                            const exl2k_wg_job &p)
{
    constexpr u32 blocks = N / 16, step = blocks < 4 ? blocks : 4; /* blocks of 8 rows for each group */
    u32 lane = threadIdx.x % EXL2K_WARP, group = threadIdx.x / 128, strip = p.strip + threadIdx.x / EXL2K_WARP % 4;
    u32 n = strip * 16 + lane / 4, row = p.row + group * (N / 2) + lane / 4;
    u32 mine = s.exchange + threadIdx.x * 16, other = s.exchange + (threadIdx.x ^ 128) * 16;
    const exl2k_part &gate_part = a.matrix.part[0], &up_part = a.matrix.part[1];
    f32 gate_bias[2] = { exl2k_bias_of(gate_part, n), exl2k_bias_of(gate_part, n + 8) };
    f32 up_bias[2] = { exl2k_bias_of(up_part, n), exl2k_bias_of(up_part, n + 8) };
    bool tanh = a.act == EXL2K_ACT_GELU_TANH; /* exl2k_gelu_tanh */
    f32 linear = tanh ? 1.5957691216f : 1.0f, cubic = tanh ? 1.5957691216f * 0.044715f : 0.0f;
    u64 at = a.out + exl2k_wg_chunk_at(strip / 2, lane % 4, row, a.out_pitch) + strip % 2 * 8;
#pragma unroll
    for (u32 block = 0; block < blocks; block += step) {
        f32 kept[4 * step];
#pragma unroll
        for (u32 i = 0; i < step; i++) {
            u32 sent[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                f32 low = d[4 * (block + i) + e], high = d[4 * (blocks + block + i) + e];
                kept[4 * i + e] = group ? high : low;
                sent[e] = __float_as_uint(group ? low : high);
            }
            exl2k_shared_store4(mine + i * 4096, make_uint4(sent[0], sent[1], sent[2], sent[3]));
        }
        exl2k_wg_sync();
#pragma unroll
        for (u32 i = 0; i < step; i++) {
            uint4 got = exl2k_shared_load4(other + i * 4096);
            u32 word[4] = { got.x, got.y, got.z, got.w };
            f32 h[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                f32 v = __uint_as_float(word[e]), gate = group ? v : kept[4 * i + e], up = group ? kept[4 * i + e] : v;
                h[e] = exl2k_clamp_f16(exl2k_wg_gate(gate + gate_bias[e / 2], linear, cubic) * (up + up_bias[e / 2]));
            }
            u32 left = exl2k_wg_transpose(exl2k_pack_f16(h[0], h[1]));
            u32 right = exl2k_wg_transpose(exl2k_pack_f16(h[2], h[3]));
            if (row + (block + i) * 8 < a.rows && strip < gate_part.strips) {
                exl2k_store2(at + (block + i) * 512, left, right);
            }
        }
        exl2k_wg_sync();
    }
}

#endif
#endif
