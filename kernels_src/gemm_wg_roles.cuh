/* gemm_wg_roles.cuh: the product of few rows of prompts by wgmma, on sm_90a: some warps decode, others multiply.
   takes: gemm_wg.cuh.
   gives: exl2k_wg_role_products: the body of a kernel.
   owns:  nothing; included by gemm_wg16_roles.cu, gemm_wg32_roles.cu, gemm_wg64_roles.cu.

   A CTA computes tiles as gemm_wg.cuh does, with its splits of K, its order of sums and so its bits. But a record is
   decoded by a warp that does not multiply, into shared memory, from where wgmma reads it: decoding never waits for
   products, and two warps share the records of a strip, so that 16 warps decode where gemm_wg.cuh has eight. It gains
   where there are only tiles for one CTA on an SM; with two CTAs on an SM gemm_wg.cuh is faster, as it has fewer
   instructions (see tests/device/NOTES.md).

   WARPS. 0 to 7 multiply (two groups of 64 columns), 8 to 11 copy, as in gemm_wg.cuh; 12 to 27 decode: eight for each
   group, two for each strip, which take turns.

   DECODED RECORDS. A place holds 64 columns x 64 inputs of a record of a group: a line of 128 bytes for each column;
   piece p (16 bytes) of line i lies at p ^ (i % 8). With it is what those that multiply must know of its inputs. */
#ifndef EXL2K_GEMM_WG_ROLES_CUH
#define EXL2K_GEMM_WG_ROLES_CUH

#define EXL2K_WG_ROLES 1
#include "gemm_wg.cuh"

#if __CUDA_ARCH__ == 900

/* Barriers of a group's places: u64 [4] full, [4] empty; and u32 [4][8]: descriptors of the inputs of both halves, the
   barrier of the stage that has the last half, 2 * (number of the last half + 1) + its parity, and the barrier by which
   the stage that the record completes is released, or 0. */
enum { EXL2K_ROLE_PLACES = EXL2K_WG_PLACES, EXL2K_ROLE_BARRIERS = 544, EXL2K_ROLE_EMPTY = 32, EXL2K_ROLE_HALVES = 672 };

template <u32 N> EXL2K_FN exl2k_wg_shared exl2k_role_shared_of(u32 base, u32 group)
{
    exl2k_wg_shared s = exl2k_wg_shared_of<N>(base, group);
    s.inputs += EXL2K_WG_DECODED;
    s.weights += EXL2K_WG_DECODED;
    s.exchange += EXL2K_WG_DECODED;
    return s;
}

EXL2K_FN u32 exl2k_role_full(const exl2k_wg_shared &s, u32 group, u32 place)
{
    return s.base + EXL2K_ROLE_BARRIERS + group * 64 + place * 8;
}
EXL2K_FN u32 exl2k_role_halves(const exl2k_wg_shared &s, u32 group, u32 place)
{
    return s.base + EXL2K_ROLE_HALVES + (group * EXL2K_ROLE_PLACES + place) * 32;
}
EXL2K_FN u32 exl2k_role_place(const exl2k_wg_shared &s, u32 group, u32 place)
{
    return s.base + EXL2K_GEMM_BARRIERS + (group * EXL2K_ROLE_PLACES + place) * 8192;
}

/* ---- the warps that decode ---- */

/* Decodes a record, which is number `count` of its group, to its place. */
template <u32 N, u32 W>
EXL2K_FN void exl2k_role_decode(exl2k_wg_cursor &c, const exl2k_wg_shared &s, u32 group, u32 count)
{
    exl2k_wg_record r;
    u32 lane = threadIdx.x % EXL2K_WARP, strip = threadIdx.x / EXL2K_WARP % 4;
    u32 place = count % EXL2K_ROLE_PLACES, full = exl2k_role_full(s, group, place);
    u32 line = strip * 16 + lane / 8 % 2 * 8 + lane % 8;
    u32 to = exl2k_role_place(s, group, place) + line * 128 + (lane / 16 ^ lane % 8) * 16;
    exl2k_wg_load<W>(r, c);
    exl2k_barrier_wait(full + EXL2K_ROLE_EMPTY, (count / EXL2K_ROLE_PLACES & 1) ^ 1); /* passes in the first round */
    uint4 scales = exl2k_wg_scales(r, 0);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 a[4];
        scales = j == 2 ? exl2k_wg_scales(r, 1) : scales;
        exl2k_wg_decode<W>(a, r, j, scales);
        exl2k_stmatrix4(to ^ j * 32, a);
    }
    exl2k_async_fence();
    if (threadIdx.x / EXL2K_WARP % 4 == 0 && lane == 0) {
        /* a missing second half has weights of 0, so any finite inputs serve */
        u32 last = c.halves - 1;
        exl2k_wg_place stage = exl2k_wg_place_of<EXL2K_WG_STAGES(N)>(last / 2);
        u32 ended = s.base + EXL2K_WG_EMPTY + r.half / 2 % EXL2K_WG_STAGES(N) * 8;
        exl2k_shared_store(exl2k_role_halves(s, group, place) + 16, c.halves / 2 != r.half / 2 ? ended : 0);
        exl2k_shared_store4(exl2k_role_halves(s, group, place),
                            make_uint4(exl2k_wg_inputs<N>(s, r.half), exl2k_wg_inputs<N>(s, last),
                                       s.base + stage.index * 8, 2 * last + 2 + stage.parity));
    }
    __syncwarp();
    if (lane == 0) {
        exl2k_barrier_arrive(full);
    }
}

/* Decodes every second record of the cursor's width, as `turn` says; false at the end of the tile. */
template <u32 N, u32 W>
EXL2K_FN bool exl2k_role_region(exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p, u32 group,
                                u32 turn, u32 &count)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) == 0) {
        return false;
    }
#pragma unroll 1
    for (;;) {
        if (count % 2 == turn) {
            exl2k_role_decode<N, W>(c, s, group, count);
        } else {
            c.halves += c.record < exl2k_wg_whole(c) ? 2 : 1;
            c.record++;
        }
        count++;
        if (c.record == exl2k_wg_last(c)) {
            bool more = exl2k_wg_next<N>(c, s, p);
            if (!more || exl2k_wg_width(c) != W) {
                return more;
            }
        }
    }
}

template <u32 N>
EXL2K_FN void exl2k_role_decodes(const exl2k_gemm_args &a, const exl2k_wg_shared &s, u32 group, u32 turn)
{
    exl2k_wg_cursor c = { 0 };
    u32 count = 0;
#pragma unroll 1
    for (u32 i = exl2k_wg_item_first<N>(); exl2k_wg_item_of<N>(a, i).work < exl2k_wg_works(a);
         i += exl2k_wg_item_step<N>()) {
        exl2k_wg_job p = exl2k_wg_job_of<N>(a, exl2k_wg_item_of<N>(a, i), group);
        u32 end = c.halves + p.end - p.low;
        exl2k_wg_open<N>(c, s, p, p.low);
        bool more = true;
#pragma unroll 1
        while (more) {
            switch (exl2k_wg_width(c)) {
            case EXL2K_W2: more = exl2k_role_region<N, EXL2K_W2>(c, s, p, group, turn, count); break;
            case EXL2K_W3: more = exl2k_role_region<N, EXL2K_W3>(c, s, p, group, turn, count); break;
            case EXL2K_W4: more = exl2k_role_region<N, EXL2K_W4>(c, s, p, group, turn, count); break;
            case EXL2K_W5: more = exl2k_role_region<N, EXL2K_W5>(c, s, p, group, turn, count); break;
            case EXL2K_W6: more = exl2k_role_region<N, EXL2K_W6>(c, s, p, group, turn, count); break;
            default: more = exl2k_role_region<N, EXL2K_W8>(c, s, p, group, turn, count); break;
            }
        }
        c.halves = end + end % 2;
    }
}

/* ---- the warps that multiply ---- */

#define EXL2K_ROLE_WGMMA(n, low_a, low_b)                                                                      \
    "{\n.reg .b64 a, b;\nmov.b64 a, {%" #low_a ", 0x40000040};\nmov.b64 b, {%" #low_b ", 0x80000020};\n"        \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {"
#define EXL2K_ROLE_END "}, a, b, 1, 1, 1, 0, 0;\n}"

/* exl2k_wgmma with A in shared memory; a: low word of its descriptor. */
template <u32 N> EXL2K_FN void exl2k_role_wgmma(f32 *d, u32 a, u32 b)
{
    if constexpr (N == 16) {
        asm volatile(EXL2K_ROLE_WGMMA(16, 8, 9) "%0, %1, %2, %3, %4, %5, %6, %7" EXL2K_ROLE_END
                     : EXL2K_D8(0) : "r"(a), "r"(b));
    } else if constexpr (N == 32) {
        asm volatile(EXL2K_ROLE_WGMMA(32, 16, 17) EXL2K_D0_TO_15 EXL2K_ROLE_END
                     : EXL2K_D8(0), EXL2K_D8(8) : "r"(a), "r"(b));
    } else {
        asm volatile(EXL2K_ROLE_WGMMA(64, 32, 33) EXL2K_D0_TO_31 EXL2K_ROLE_END : EXL2K_D32(0) : "r"(a), "r"(b));
    }
}

EXL2K_FN void exl2k_role_arrive(u32 barrier, bool arrives)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared.b64 _, [%0];\n}"
                 ::"r"(barrier), "r"((u32)arrives) : "memory");
}

/* What lasts over the records of a tile. */
typedef struct exl2k_role_state {
    u32 parity;      /* of this round of the places */
    u32 ended, last; /* of the record before: as in shared memory */
    u32 end;         /* 2 * the number of the half after the tile's last record */
} exl2k_role_state;

/* Multiplies the record in a place; whether it is not the tile's last one. `before`: this warp has multiplied another
   one, which has the place before. */
template <u32 N, u32 PLACE>
EXL2K_FN bool exl2k_role_multiply(f32 *d, exl2k_role_state &r, u32 barriers, u32 places, u32 infos, bool before)
{
    bool one = threadIdx.x % EXL2K_WARP == 0;
    exl2k_barrier_wait(barriers + PLACE * 8, r.parity);
    uint4 v = exl2k_shared_load4(infos + PLACE * 32);
    u32 ended = exl2k_shared_load(infos + PLACE * 32 + 16);
    /* The stage before has arrived: this warp has waited for it with the record before, or those that decode have. */
    exl2k_barrier_wait(v.z, v.w & 1);
    u32 a = places + PLACE * 512;
    exl2k_wg_begin();
    exl2k_role_wgmma<N>(d, a, v.x);
    exl2k_role_wgmma<N>(d, a + 2, v.x + 2); /* the next 16 inputs: 32 bytes */
    exl2k_role_wgmma<N>(d, a + 4, v.y);
    exl2k_role_wgmma<N>(d, a + 6, v.y + 2);
    exl2k_wg_commit();
    exl2k_wg_wait<1>();
    exl2k_role_arrive(r.ended, one && r.ended);
    exl2k_role_arrive(barriers + (PLACE + 3) % 4 * 8 + EXL2K_ROLE_EMPTY, one && before);
    r.ended = ended;
    r.last = v.w;
    return v.w < r.end;
}

/* exl2k_wg_sum of records that others decode. c.slots counts them. */
template <u32 N>
EXL2K_FN void exl2k_role_sum(f32 *d, exl2k_wg_cursor &c, const exl2k_wg_shared &s, const exl2k_wg_job &p, u32 group)
{
    u32 barriers = exl2k_role_full(s, group, 0), infos = exl2k_role_halves(s, group, 0);
    u32 places = 1u << 16 | exl2k_role_place(s, group, 0) >> 4, begin = c.halves, first = c.slots % 4;
    exl2k_role_state r = { c.slots / 4 & 1, 0, 0, 2 * (begin + p.high - p.low) };
    bool more = true;
#pragma unroll
    for (u32 i = 0; i < N / 2; i++) {
        d[i] = 0.0f;
    }
#pragma unroll 1
    for (;;) {
        if (first == 0) {
            more = exl2k_role_multiply<N, 0>(d, r, barriers, places, infos, c.slots > 0);
            c.slots++;
        }
        if (first <= 1 && more) {
            more = exl2k_role_multiply<N, 1>(d, r, barriers, places, infos, true);
            c.slots++;
        }
        if (first <= 2 && more) {
            more = exl2k_role_multiply<N, 2>(d, r, barriers, places, infos, true);
            c.slots++;
        }
        if (more) {
            more = exl2k_role_multiply<N, 3>(d, r, barriers, places, infos, true);
            c.slots++;
        }
        if (!more) {
            break;
        }
        first = 0;
        r.parity ^= 1;
    }
    exl2k_wg_wait<0>();
    exl2k_role_arrive(r.ended, threadIdx.x % EXL2K_WARP == 0 && r.ended);
    c.halves = r.last / 2;
    c.released = c.halves / 2;
    exl2k_wg_sum_ends<N>(d, c, s, begin + p.end - p.low);
}

/* ---- the kernel ---- */

template <u32 N> EXL2K_FN void exl2k_wg_role_products(const exl2k_gemm_args &a)
{
    extern __shared__ __align__(1024) uint4 exl2k_dynamic[];
    u32 warp = threadIdx.x / EXL2K_WARP, decoder = warp - 12;
    u32 group = warp < 8 ? warp / 4 : warp < 12 ? warp == 10 : decoder / 8;
    group = __shfl_sync(EXL2K_ALL, group, 0); /* tells the compiler that a warp has one */
    exl2k_wg_shared s = exl2k_role_shared_of<N>(exl2k_shared(exl2k_dynamic), group);
    constexpr u32 slots = EXL2K_WG_SLOTS(N, EXL2K_AFFINE);
    if (threadIdx.x < 16) { /* stages: one thread that copies, eight warps that read */
        exl2k_barrier_init(s.base + threadIdx.x * 8, 1);
        exl2k_barrier_init(s.base + EXL2K_WG_EMPTY + threadIdx.x * 8, 8);
    } else if (threadIdx.x < 16 + 2 * slots) { /* slots of both groups: one warp that copies, eight that read */
        u32 i = threadIdx.x - 16, full = s.base + EXL2K_WG_SLOT_BARRIERS + i / slots * 128;
        exl2k_barrier_init(full + i % slots * 8, 1);
        exl2k_barrier_init(full + EXL2K_WG_SLOT_EMPTY + i % slots * 8, 8 * EXL2K_WARP);
    } else if (threadIdx.x >= 32 && threadIdx.x < 32 + 2 * EXL2K_ROLE_PLACES) { /* four warps write, four read */
        u32 i = threadIdx.x - 32, full = exl2k_role_full(s, i / EXL2K_ROLE_PLACES, i % EXL2K_ROLE_PLACES);
        exl2k_barrier_init(full, 4);
        exl2k_barrier_init(full + EXL2K_ROLE_EMPTY, 4);
    }
    exl2k_barrier_init_fence();
    __syncthreads();
    exl2k_dependency_release();
    if (warp >= 12) {
        exl2k_role_decodes<N>(a, s, group, decoder / 4 % 2);
    } else if (warp >= 8) {
        exl2k_registers_less<40>();
        if (threadIdx.x == 256) {
            exl2k_dependency_wait();
            exl2k_wg_copy_inputs<N>(a, exl2k_wg_no_loras(), s);
        } else if (warp > 8 && warp < 11) {
            exl2k_wg_copy_weights<N>(a, exl2k_wg_no_loras(), s, group);
        }
    } else {
        exl2k_registers_more<88>();
        exl2k_dependency_wait();
        exl2k_wg_multiply<N, true>(a, exl2k_wg_no_loras(), s, group);
    }
}

#endif
#endif
