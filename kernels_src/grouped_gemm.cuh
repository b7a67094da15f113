/* grouped_gemm.cuh: products of many rows with the experts that they have chosen: tiles from a list in memory.
   takes: gemm.cuh, grouped_gemm_args.h; EXL2K_GROUPED_BLOCKS: 1: tiles have up to 32 rows; 4: up to 128.
   gives: exl2k_grouped_products: the body of a kernel.
   owns:  nothing; included by grouped_gemm.cu, grouped_gemm32.cu and grouped_gemm_affine.cu.

   Weights, tiles of inputs, sums and results are those of gemm.cuh. Only the origin of an output tile differs: the
   list says its expert and rows, and the expert's matrix lies in device memory. A tile has 32, 64 or 128 rows by the
   rows that it really has, so that the last rows of an expert do not cost a whole tile. */
#ifndef EXL2K_GROUPED_GEMM_CUH
#define EXL2K_GROUPED_GEMM_CUH

#define EXL2K_ANY 1
#include "grouped_gemm_args.h"
#include "gemm.cuh"

/* ---- sizes of tiles, for the functions of gemm.cuh ---- */

EXL2K_FN u32 exl2k_tile_bytes(const exl2k_grouped_gemm_args &a)
{
    return EXL2K_GROUPED_BLOCKS == 1 ? 2048 : a.row_blocks * 2048;
}

EXL2K_FN u32 exl2k_tile_rows(const exl2k_tiles &s)
{
    uint2 rows = exl2k_shared_load2(s.state + 8);
    return rows.y - rows.x + 1;
}

EXL2K_FN u32 exl2k_tile_blocks(const exl2k_grouped_gemm_args &a, const exl2k_tiles &s)
{
    if (EXL2K_GROUPED_BLOCKS == 1) {
        return 1;
    }
    u32 rows = exl2k_tile_rows(s);
    return rows > 64 ? 4 : rows > 32 ? 2 : 1;
}

/* Rows beyond the last eight that exist are not copied. What their slots hold is multiplied, and never stored. */
EXL2K_FN u32 exl2k_tile_steps(const exl2k_grouped_gemm_args &a, const exl2k_tiles &s)
{
    return (exl2k_tile_rows(s) + 7) / 8;
}

/* ---- tiles of the output ---- */

/* Position of an output tile. It is computed twice, before and after the sums, because the sums need the registers. */
typedef struct exl2k_grouped_origin {
    const exl2k_expert *expert;
    u32 first, rows, strip; /* strip: the warp's first strip */
} exl2k_grouped_origin;

EXL2K_FN exl2k_grouped_origin exl2k_grouped_origin_of(const exl2k_grouped_gemm_args &a, u32 work)
{
    uint4 tile = exl2k_load4(a.tiles + (u64)(work / a.column_tiles) * sizeof(exl2k_grouped_tile));
    exl2k_grouped_origin p = { (const exl2k_expert *)a.experts + tile.x, tile.y, tile.z,
                              work % a.column_tiles * EXL2K_GEMM_STRIPS + threadIdx.x / EXL2K_WARP * 2 };
    return p;
}

EXL2K_FN const exl2k_part &exl2k_grouped_part(const exl2k_grouped_gemm_args &a, const exl2k_grouped_origin &p, u32 pass)
{
    return (a.kind == EXL2K_GROUPED_UP ? p.expert->up : p.expert->down).part[pass];
}

/* Starts to copy the weights and inputs of an output tile. */
EXL2K_FN void exl2k_grouped_begin(const exl2k_grouped_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 work,
                                u32 pass)
{
    exl2k_grouped_origin p = exl2k_grouped_origin_of(a, work);
    const exl2k_part &q = exl2k_grouped_part(a, p, pass);
    u32 lane = threadIdx.x % EXL2K_WARP, last = q.strips - 1; /* strips beyond the last repeat it; never stored */
    exl2k_weights_start(w, q.base + (u64)exl2k_min(p.strip, last) * q.pitch,
                        q.base + (u64)exl2k_min(p.strip + 1, last) * q.pitch, q.chunks,
                        q.chunks + q.chunk_count * sizeof(exl2k_chunk), lane);
#pragma unroll 1
    for (u32 i = 0; i < a.slot_mask; i++) {
        exl2k_weights_fill(w, a, lane);
    }
    /* The address of the inputs, the first row and the last go to shared memory. */
    if (lane == 0) {
        exl2k_shared_store4(s.state, exl2k_pack_u64s(a.x, (u64)(p.first + p.rows - 1) << 32 | p.first));
    }
    __syncwarp();
    s.base = s.end;
    s.end += a.halves;
}

/* The lane's column of results; n: its column in the part. UP of two parts: pass 0 stores the gate in the block of the
   CTA, and pass 1 reads it there. */
EXL2K_FN exl2k_column exl2k_grouped_column(const exl2k_grouped_gemm_args &a, const exl2k_grouped_origin &p, u32 pass,
                                          u32 n)
{
    const exl2k_part &q = exl2k_grouped_part(a, p, pass);
    u64 gates = a.partial + (u64)blockIdx.x * exl2k_tile_bytes(a) * 16;
    u32 up = a.kind == EXL2K_GROUPED_UP;
    if (pass + 1 < a.parts) {
        return exl2k_column_block(gates);
    }
    u32 size = up ? 1 : 2;
    exl2k_column c = { a.out + (((u64)p.first * a.out_pitch + n) << size), 0, a.out_pitch << size, 1024,
                       exl2k_bias_of(q, n), 0.0f, a.scale, up ? a.act : 0, up };
    if (pass > 0) {
        c.prior = gates + threadIdx.x * 4;
        c.prior_bias = exl2k_bias_of(exl2k_grouped_part(a, p, 0), n);
    }
    return c;
}

/* Stores the sums. With 32 rows, all of them lie in the ring before the first ones are stored: fewer registers. */
EXL2K_FN void exl2k_grouped_results(const exl2k_sums &sums, exl2k_column &c, bool valid, u32 rows, u32 ring)
{
    if (EXL2K_GROUPED_BLOCKS > 1) {
        exl2k_gemm_results(sums, c, valid, rows, ring);
        return;
    }
    u32 lane = threadIdx.x % EXL2K_WARP, to = ring + lane % 4 * 2 * EXL2K_GEMM_PITCH + lane / 4 * 4;
    __syncwarp();
#pragma unroll
    for (u32 k = 0; k < 32; k++) {
        u32 i = k / 8, s = k / 4 % 2, e = k % 4;
        exl2k_shared_store_f32(to + (i * 8 + e % 2) * EXL2K_GEMM_PITCH + s * 64 + e / 2 * 32, sums.v[s][i][e]);
    }
    __syncwarp();
#pragma unroll 1
    for (u32 row = 0; row < rows; row += 16) {
        f32 v[16], prior[16];
        u32 left = valid ? rows - row : 0;
        exl2k_column_load(c, prior, left);
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            v[i] = exl2k_shared_load_f32(ring + lane * 4 + (row + i) * EXL2K_GEMM_PITCH);
        }
        exl2k_column_store(c, v, prior, left);
    }
    exl2k_results_fence();
    __syncwarp();
}

/* Computes one pass of an output tile. */
EXL2K_FN void exl2k_grouped_compute(const exl2k_grouped_gemm_args &a, exl2k_weights &w, exl2k_tiles &s, u32 work,
                                   u32 pass)
{
    exl2k_sums sums;
    exl2k_grouped_begin(a, w, s, work, pass);
    exl2k_gemm_sum(sums, a, w, s, 0, a.halves);
    /* After the sums: restore the position of the tile. */
    work = exl2k_shared_load(w.state + 80);
    pass = exl2k_shared_load(w.state + 84);
    exl2k_grouped_origin p = exl2k_grouped_origin_of(a, work);
    u32 n = p.strip * 16 + threadIdx.x % EXL2K_WARP;
    exl2k_column c = exl2k_grouped_column(a, p, pass, n);
    exl2k_grouped_results(sums, c, n < exl2k_grouped_part(a, p, pass).columns, p.rows, w.ring);
}

/* All output tiles of a CTA. */
EXL2K_FN void exl2k_grouped_products(const exl2k_grouped_gemm_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    /* Divide shared memory into barriers, states of warps, tiles of inputs and rings of weights. */
    u32 shared = exl2k_shared(exl2k_dynamic);
    exl2k_tiles s = { 0 };
    exl2k_weights w = { 0 };
    s.barriers = shared;
    s.at = shared + EXL2K_GEMM_BARRIERS;
    s.fill = threadIdx.x / EXL2K_WARP;
    w.ring = s.at + (exl2k_tile_bytes(a) << a.stages_log) + threadIdx.x / EXL2K_WARP * a.ring_bytes;
    w.state = shared + EXL2K_GEMM_TILE_BARRIERS + threadIdx.x / EXL2K_WARP * EXL2K_GEMM_WARP_STATE;
    s.state = w.state + 64;
    /* Initialise the barriers. */
    exl2k_weights_begin(w, a, threadIdx.x % EXL2K_WARP);
    exl2k_tiles_begin(shared, a.stage_mask + 1);
    __syncthreads();
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Each output tile needs one pass for each part. The loop's state lies in shared memory during a tile. */
    u32 work = blockIdx.x, pass = 0;
#pragma unroll 1
    while (work < exl2k_load(a.tile_count) * a.column_tiles) {
        __syncwarp();
        if (threadIdx.x % EXL2K_WARP == 0) {
            exl2k_shared_store(w.state + 80, work);
            exl2k_shared_store(w.state + 84, pass);
        }
        __syncwarp();
        exl2k_grouped_compute(a, w, s, work, pass);
        work = exl2k_shared_load(w.state + 80);
        pass = exl2k_shared_load(w.state + 84) + 1;
        if (pass == a.parts) {
            work += gridDim.x;
            pass = 0;
        }
    }
}

#endif
