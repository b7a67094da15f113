/* gemm_wg_lora.cuh: what adapters add to the product of many rows by wgmma: further blocks of K for its tiles.
   takes: gemm_wg.cuh, lora_wg.cuh.
   gives: exl2k_wg_lora_products: the body of a kernel.
   owns:  nothing; included by gemm_wg64_lora.cu to gemm_wg256_lora.cu, and by their twins.

   After the records of a tile its sums get, block by block (lora_wg_args.h), what 16 values of t add: 64 columns of B
   as operands in registers, t from shared memory, both in TF32, which has B as it is. t takes stages of the inputs, and
   B slots of the weights, so both are copied while the tile's records are multiplied. Tiles of gate and up have a stage
   for the t of each, of which a warp group uses its own.

   A slot has 1 + lines, or 0 after the last block of a tile, in the place of a table entry, and then the lines: 64
   columns of B each, EXL2K_LORA_WG_LINE bytes apart. */
#ifndef EXL2K_GEMM_WG_LORA_CUH
#define EXL2K_GEMM_WG_LORA_CUH

#define EXL2K_WG_PACKED 1 /* the warps that copy need registers, which those that multiply leave */
#include "gemm_wg.cuh"
#include "lora_wg.cuh"

#if __CUDA_ARCH__ == 900

/* ---- the warps that copy ---- */

/* Adapter u of a set, one after another those of a tile. What a warp copies is looked up while it still copies what
   comes before. */
typedef struct exl2k_wg_lora_use {
    exl2k_lora_wg_sets sets; /* of the tile's rows */
    u32 set, u, count;       /* set 0: there are no more. count: adapters of the set */
    u32 ranks[2];            /* for the tile's part; with ACT for gate and up */
    u64 b;                   /* for the part of the warp */
} exl2k_wg_lora_use;

EXL2K_FN u32 exl2k_wg_lora_blocks(const exl2k_wg_lora_use &use)
{
    return (exl2k_max(use.ranks[0], use.ranks[1]) + EXL2K_LORA_WG_BLOCK - 1) / EXL2K_LORA_WG_BLOCK;
}

/* Goes on to the next adapter: of the set, or the first one of the next set. */
EXL2K_FN void exl2k_wg_lora_next(exl2k_wg_lora_use &use, const exl2k_lora_wg_args &l, u32 part, bool act)
{
    if (++use.u >= use.count) {
        use.u = 0;
        use.set = exl2k_lora_wg_next(use.sets, use.set);
        if (use.set == 0) {
            return;
        }
    }
    exl2k_lora_wg_set s = exl2k_lora_wg_set_of(l, use.set);
    use.count = s.count;
    u64 at = exl2k_lora_wg_matrix_at(l, s, use.u, part);
    u32 other = act ? exl2k_load(part ? at - sizeof(exl2k_lora_matrix) : at + sizeof(exl2k_lora_matrix)) : 0;
    uint4 m = exl2k_load4(at);
    use.ranks[0] = act && part ? other : m.x;
    use.ranks[1] = act && part ? m.x : other;
    use.b = (u64)m.w << 32 | m.z;
}

template <u32 N>
EXL2K_FN exl2k_wg_lora_use exl2k_wg_lora_first(const exl2k_gemm_args &a, const exl2k_lora_wg_args &l,
                                               const exl2k_wg_job &p)
{
    exl2k_wg_lora_use use = { exl2k_lora_wg_sets_of(l, p.row, N), 0, 0, 0, { 0, 0 }, 0 };
    exl2k_wg_lora_next(use, l, p.part, a.kind == EXL2K_GEMM_ACT);
    return use;
}

/* Copies a block of t for the rows of a tile. with: bits of the lane's eight rows that have its set. */
template <u32 N>
EXL2K_FN void exl2k_wg_copy_block(const exl2k_lora_wg_args &l, const exl2k_wg_shared &s, u32 number, u32 row, u64 from,
                                  u32 with)
{
    exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(number);
    u32 full = s.base + stage.index * 8, to = s.inputs + stage.index * N * 128, lane = threadIdx.x % EXL2K_WARP;
    u32 rows = from ? exl2k_min(N, l.tile_rows - row) : 0; /* a multiple of 8 */
    bool all = __all_sync(EXL2K_ALL, with == 255);
    exl2k_barrier_wait(full + EXL2K_WG_EMPTY, stage.parity ^ 1);
    if (lane == 0) {
        exl2k_barrier_expect(full, rows * 128);
    }
    __syncwarp();
    /* A lane copies its eight rows one by one or, if they are alike, at a time; lane 0 copies all if these are. */
    u32 bytes = all ? rows * 64 : with == 255 || with == 0 ? 512 : 64, at = all ? 0 : lane * 512;
    u32 end = lane * 8 < rows && (!all || lane == 0) ? at + (all ? bytes : 512) : 0;
#pragma unroll 1
    for (u32 term = 0; term < 2; term++, to += N * 64, from += l.tile_rows * 64) {
#pragma unroll 1
        for (u32 i = at; i < end; i += bytes) {
            exl2k_weights_bulk(to + i, with >> i / 64 % 8 & 1 ? from + i : l.zeros, bytes, full);
        }
    }
}

template <u32 N>
EXL2K_FN void exl2k_wg_copy_t(const exl2k_gemm_args &a, const exl2k_lora_wg_args &l, const exl2k_wg_shared &s,
                              const exl2k_wg_job &p, exl2k_wg_lora_use &use, u32 &count)
{
    bool act = a.kind == EXL2K_GEMM_ACT;
#pragma unroll 1
    for (; use.set > 0; exl2k_wg_lora_next(use, l, p.part, act)) {
        u32 with = exl2k_lora_wg_with(use.sets, use.set);
#pragma unroll 1
        for (u32 i = 0; i < exl2k_wg_lora_blocks(use) << act; i++, count++) {
            u32 block = i >> act, part = act ? i & 1 : p.part, rank = act && part ? use.ranks[1] : use.ranks[0];
            bool any = block * EXL2K_LORA_WG_BLOCK < rank;
            exl2k_wg_copy_block<N>(l, s, count, p.row, any ? exl2k_lora_wg_t_at(l, use.u, part, block, p.row) : 0,
                                   with);
        }
    }
}

/* Waits for a slot and announces what it gets. lane 0 does. */
EXL2K_FN void exl2k_wg_announce(u32 full, u32 slot, u32 parity, u32 header, u32 bytes)
{
    exl2k_barrier_wait(full + EXL2K_WG_SLOT_EMPTY, parity ^ 1);
    if (threadIdx.x % EXL2K_WARP == 0) {
        exl2k_shared_store(slot, header);
        exl2k_async_fence(); /* later copies write here, too */
        exl2k_barrier_expect(full, bytes);
    }
    __syncwarp();
}

template <u32 N>
EXL2K_FN void exl2k_wg_copy_b(const exl2k_gemm_args &a, const exl2k_lora_wg_args &l, const exl2k_wg_shared &s,
                              const exl2k_wg_job &p, exl2k_wg_lora_use &use, u32 &count)
{
    bool act = a.kind == EXL2K_GEMM_ACT;
    u32 lane = threadIdx.x % EXL2K_WARP, pitch = (a.matrix.part[p.part].columns + 31) / 32 * 32, n = p.strip * 16;
    u32 bytes = n < pitch ? exl2k_min(64, pitch - n) * 2 : 0;
#pragma unroll 1
    for (; use.set > 0; exl2k_wg_lora_next(use, l, p.part, act)) {
        u32 rank = act && p.part ? use.ranks[1] : use.ranks[0];
#pragma unroll 1
        for (u32 block = 0; block < exl2k_wg_lora_blocks(use); block++, count++) {
            exl2k_wg_place place = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(count);
            u32 k = block * EXL2K_LORA_WG_BLOCK, lines = k < rank ? exl2k_min(rank - k, EXL2K_LORA_WG_BLOCK) : 0;
            u32 slot = s.weights + place.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE), full = s.full + place.index * 8;
            exl2k_wg_announce(full, slot, place.parity, 1 + lines, lines * bytes);
            if (lane < lines && bytes > 0) {
                exl2k_weights_bulk(slot + EXL2K_GEMM_ENTRY + lane * EXL2K_LORA_WG_LINE,
                                   use.b + ((u64)(k + lane) * pitch + n) * 2, bytes, full);
            }
        }
    }
    exl2k_wg_place place = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(count++);
    exl2k_wg_announce(s.full + place.index * 8, s.weights + place.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE),
                      place.parity, 0, 0);
}

/* ---- the warp groups that multiply ---- */

/* As EXL2K_WGMMA: a product of TF32. */
#define EXL2K_WGMMA_TF32(n, low) \
    "{\n.reg .b64 b;\nmov.b64 b, {%" #low ", 0x80000020};\nwgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {"
#define EXL2K_WGMMA_TF32_END ", b, 1, 1, 1;\n}"

/* Starts d[64 x N] += a[64 x 8] b[8 x N], d as of exl2k_wgmma. Lane 4 g + t of warp w has in a: columns 16 w + g and
   16 w + g + 8 of k = t, then of k = t + 4. */
template <u32 N> EXL2K_FN void exl2k_wgmma_tf32(f32 *d, const u32 a[4], u32 b)
{
    if constexpr (N == 64) {
        asm volatile(EXL2K_WGMMA_TF32(64, 36) EXL2K_D0_TO_31
                     "}, {%32, %33, %34, %35}" EXL2K_WGMMA_TF32_END : EXL2K_D32(0) : EXL2K_A4);
    } else if constexpr (N == 128) {
        asm volatile(EXL2K_WGMMA_TF32(128, 68) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 "}, {%64, %65, %66, %67}" EXL2K_WGMMA_TF32_END
                     : EXL2K_D32(0), EXL2K_D32(32) : EXL2K_A4);
    } else {
        asm volatile(EXL2K_WGMMA_TF32(256, 132) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 EXL2K_D64_TO_127 "}, {%128, %129, %130, %131}" EXL2K_WGMMA_TF32_END
                     : EXL2K_D32(0), EXL2K_D32(32), EXL2K_D32(64), EXL2K_D32(96) : EXL2K_A4);
    }
}

/* B of a slot as operands of two products of 8 values of t: 0 beyond its lines. */
EXL2K_FN void exl2k_wg_lora_operands(u32 a[2][4], u32 slot, u32 lines)
{
    u32 lane = threadIdx.x % EXL2K_WARP, column = threadIdx.x / EXL2K_WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 k = i / 2 * 4 + lane % 4, at = slot + EXL2K_GEMM_ENTRY + k * EXL2K_LORA_WG_LINE + (column + i % 2 * 8) * 2;
        u16 half;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(at) : "memory");
        a[i / 4][i % 4] = k < lines ? __float_as_uint(exl2k_f16_to_f32(half)) : 0;
    }
}

template <u32 N>
EXL2K_FN void exl2k_wg_add_loras(f32 *d, exl2k_wg_cursor &c, const exl2k_lora_wg_args &, const exl2k_wg_shared &s,
                                 bool act)
{
#pragma unroll 1
    for (;;) {
        exl2k_wg_place place = exl2k_wg_place_of<EXL2K_WG_SLOTS(N, EXL2K_AFFINE)>(c.slots++);
        u32 slot = s.weights + place.index * EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE), full = s.full + place.index * 8,
            a[2][4];
        exl2k_barrier_wait(full, place.parity);
        u32 header = __shfl_sync(EXL2K_ALL, exl2k_shared_load(slot), 0);
        exl2k_wg_lora_operands(a, slot, header - 1);
        exl2k_barrier_arrive(full + EXL2K_WG_SLOT_EMPTY);
        if (header == 0) {
            break;
        }
#pragma unroll 1
        for (u32 part = 0; part < 1u + act; part++, c.halves += 2, exl2k_wg_release<N>(c, s, c.halves)) {
            exl2k_wg_wait_inputs<N>(s, c.halves);
            if (header == 1 || (act && part != threadIdx.x / 128)) {
                continue;
            }
            u32 b = exl2k_wg_inputs<N>(s, c.halves);
            exl2k_wg_begin();
            exl2k_wgmma_tf32<N>(d, a[0], b);
            exl2k_wgmma_tf32<N>(d, a[1], b + 2); /* the next 8 values: 32 bytes */
            exl2k_wgmma_tf32<N>(d, a[0], b + N * 4); /* the smaller terms */
            exl2k_wgmma_tf32<N>(d, a[1], b + N * 4 + 2);
            exl2k_wg_commit();
            exl2k_wg_wait<0>();
#pragma unroll
            for (u32 i = 0; i < N / 2; i++) {
                asm volatile("" : "+f"(d[i])::"memory");
            }
        }
    }
}

template <u32 N> EXL2K_FN void exl2k_wg_lora_products(const exl2k_gemm_lora_args &a)
{
    exl2k_wg_products<N>(a.gemm, a.lora);
}

#endif
#endif
