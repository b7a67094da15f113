/* exl3_one.cuh: the product of one row with an EXL3 matrix, on sm_90 (exl3_args.h).
   takes: exl3_gemv.cuh.
   gives: exl2k_exl3_one<BOOK>: the body of a kernel for one codebook. Grid and threads as exl3_gemv.cuh, and dynamic
          shared memory, too, with EXL2K_EXL3_STASH bytes more if `stash` is 1.

   It has the bits of exl3_gemv.cuh. What counts is that a GPU decodes all the time. So each warp decodes its first
   tiles while the kernels in front of this one have not ended, when there is little else to do: some into shared
   memory, and some into registers. Their products follow as soon as there are inputs, which other kernels have
   transformed where they can. At the end no CTA waits but the last one of each strip. It makes the outputs, normalises
   the residual, and transforms what the next product reads. */
#ifndef EXL2K_EXL3_ONE_CUH
#define EXL2K_EXL3_ONE_CUH

#include "exl3_gemv.cuh"

/* Tiles that a warp decodes into registers before it waits. Other codebooks than MUL1 need more registers to decode. */
#define EXL2K_EXL3_AHEAD(book) ((book) == EXL2K_EXL3_MUL1 ? 8u : 4u)

/* Decodes a tile in shared memory. */
template <u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_one_tile(u32 value[4], u32 tile, const exl2k_exl3_place_of<RATE> &place)
{
    u32 words[exl2k_exl3_words<RATE>()];
#pragma unroll
    for (u32 i = 0; i < exl2k_exl3_words<RATE>(); i++) {
        words[i] = exl2k_shared_load(tile + place.at[i]);
    }
    exl2k_exl3_decode<RATE, BOOK>(value, words, place.shift);
}

/* Decodes the first tiles of a column, of whose ring all slots are on their way: EXL2K_EXL3_STASH_TILES of them into
   shared memory, unless `stash` is 0, and those after them into registers. */
template <u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_one_ahead(u32 values[][4], exl2k_exl3_ring &ring, u32 stash, u32 lane)
{
    constexpr u32 batch = EXL2K_EXL3_BATCH(BOOK, RATE), slots = EXL2K_EXL3_RING_TILES / batch;
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    exl2k_copy_wait<slots - 1>();
    __syncwarp();
    u32 slot = ring.at = ring.to;
    if (stash) {
#pragma unroll 1
        for (u32 first = 0; first < EXL2K_EXL3_STASH_TILES; first += batch) {
#pragma unroll 4
            for (u32 k = 0; k < batch; k++) {
                u32 v[4];
                exl2k_exl3_one_tile<RATE, BOOK>(v, slot + k * 16 * RATE, place);
                exl2k_shared_store4(stash + (first + k) * 512, make_uint4(v[0], v[1], v[2], v[3]));
            }
            slot = exl2k_exl3_ring_next<batch * RATE, slots>(ring, lane);
        }
    }
#pragma unroll
    for (u32 first = 0; first < EXL2K_EXL3_AHEAD(BOOK); first += batch) {
        slot = first ? exl2k_exl3_ring_next<batch * RATE, slots>(ring, lane) : slot;
#pragma unroll
        for (u32 k = 0; k < batch; k++) {
            exl2k_exl3_one_tile<RATE, BOOK>(values[first + k], slot + k * 16 * RATE, place);
        }
    }
}

template <u32 BOOK>
EXL2K_FN void exl2k_exl3_one_any_rate(u32 rate, u32 values[][4], exl2k_exl3_ring &ring, u32 stash, u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_one_ahead<R, BOOK>(values, ring, stash, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* Brings the transformed inputs of a slab into shared memory. If no kernel has transformed them, a warp does it for a
   block. */
EXL2K_FN void exl2k_exl3_one_slab(const exl2k_exl3_args &a, u32 part, u32 shared, u32 block, u32 count)
{
    u32 thread = exl2k_exl3_again(threadIdx.x), lane = thread % EXL2K_WARP, warp = thread / EXL2K_WARP;
    if (a.turned) {
        u64 from = a.rotated + (part * a.blocks + block) * (EXL2K_EXL3_BLOCK * 2);
#pragma unroll 1
        for (u32 i = thread * 16; i < count * (EXL2K_EXL3_BLOCK * 2); i += EXL2K_EXL3_THREADS * 16) {
            exl2k_shared_store4(shared + i, exl2k_load4(from + i));
        }
        return;
    }
#pragma unroll 1
    for (u32 own = warp; own < count; own += EXL2K_EXL3_WARPS) {
        uint2 pairs = exl2k_exl3_input(a.x, a.part[part].suh, block + own, a.in, lane);
        u32 k = own * EXL2K_EXL3_BLOCK + 4 * lane;
        exl2k_shared_store(shared + exl2k_exl3_place(k), pairs.x);
        exl2k_shared_store(shared + exl2k_exl3_place(k + 2), pairs.y);
    }
}

/* ---- sums of splits ---- */

/* A sum on its way to the CTA that ends its strip is stored as the complement of its bits, so that 0, as which memory
   begins, says that it has not arrived: no sum has these bits. So nobody needs a ticket or a fence. */
EXL2K_FN void exl2k_exl3_one_send(u64 to, f32 sum)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(~__float_as_uint(sum)) : "memory");
}

EXL2K_FN uint4 exl2k_exl3_one_look(u64 at)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

/* The address of one of the sums that the last CTA of a strip takes: those of gate, then those of other splits of its
   own strip. */
EXL2K_FN u64 exl2k_exl3_one_from(const exl2k_exl3_args &a, const exl2k_exl3_unit &u, u32 gates, u32 item)
{
    return item < gates ? exl2k_exl3_partial(a, u.strip, item, 0)
                        : exl2k_exl3_partial(a, u.before + u.strip, item - gates, 0);
}

/* Adds to a lane's v the sums of the CTA's strip by other CTAs, in their order; in warp 1, those of gate. gates: of
   them; count: of all. Memory is left as it was before. All warps call it, as each waits for some; they come through
   shared memory. */
EXL2K_FN void exl2k_exl3_one_take(f32 v[4], const exl2k_exl3_args &a, const exl2k_exl3_unit &u, u32 shared, u32 gates,
                                  u32 count, u32 warp, u32 lane)
{
    constexpr u32 bytes = EXL2K_EXL3_BLOCK * 4;
    u32 begin = warp == 0 ? gates : 0, end = warp == 0 ? count : warp == 1 ? gates : 0;
#pragma unroll 1
    for (u32 first = 0; first < count; first += EXL2K_EXL3_ONE_TAKES) {
        __syncthreads(); /* what was there has been read */
        u32 one = first + warp, two = one + EXL2K_EXL3_WARPS;
        uint4 s = make_uint4(1, 1, 1, 1), t = s;
        do {
            if (one < count) {
                s = exl2k_exl3_one_look(exl2k_exl3_one_from(a, u, gates, one) + lane * 16);
            }
            if (two < count) {
                t = exl2k_exl3_one_look(exl2k_exl3_one_from(a, u, gates, two) + lane * 16);
            }
        } while (!(s.x && s.y && s.z && s.w && t.x && t.y && t.z && t.w));
        if (one < count) {
            exl2k_shared_store4(shared + warp * bytes + lane * 16, s);
            exl2k_store4(exl2k_exl3_one_from(a, u, gates, one) + lane * 16, make_uint4(0, 0, 0, 0));
        }
        if (two < count) {
            exl2k_shared_store4(shared + (warp + EXL2K_EXL3_WARPS) * bytes + lane * 16, t);
            exl2k_store4(exl2k_exl3_one_from(a, u, gates, two) + lane * 16, make_uint4(0, 0, 0, 0));
        }
        __syncthreads();
#pragma unroll 1
        for (u32 i = exl2k_max(first, begin); i < exl2k_min(first + EXL2K_EXL3_ONE_TAKES, end); i++) {
            s = exl2k_shared_load4(shared + (i - first) * bytes + lane * 16);
            v[0] += __uint_as_float(~s.x);
            v[1] += __uint_as_float(~s.y);
            v[2] += __uint_as_float(~s.z);
            v[3] += __uint_as_float(~s.w);
        }
    }
}

/* Normalises the residual, of which this warp has the elements r of a strip, and transforms it for the matrix that
   reads it. The warps that end strips exchange their sums of squares, so all of these CTAs are on the GPU together, and
   all inputs of the product have been read when x is written. The bits are those of exl2k_settle. */
EXL2K_FN void exl2k_exl3_one_norm(const exl2k_exl3_args &a, u32 strip, const f32 r[4], u32 lane)
{
    u32 k = strip * EXL2K_EXL3_BLOCK + 4 * lane, columns = a.part[0].columns, strips = columns / EXL2K_EXL3_BLOCK;
    uint4 weight = exl2k_load4(a.norm.weight + k * 4);
    uint2 suh[EXL2K_EXL3_PARTS];
#pragma unroll
    for (u32 p = 0; p < EXL2K_EXL3_PARTS; p++) {
        suh[p] = p < a.norm.parts ? exl2k_exl3_scales(a.norm.suh[p] + k * 2) : make_uint2(0, 0);
    }
    f32 square = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        square = fmaf(r[i], r[i], square);
    }
    square = exl2k_warp_sum(square);
    u32 sum = 1;
    if (lane < strips) {
        u64 at = a.norm.sums + (strip * EXL2K_WARP + lane) * 4;
        exl2k_exl3_one_send(a.norm.sums + (lane * EXL2K_WARP + strip) * 4, square);
        do {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(sum) : "l"(at) : "memory");
        } while (!sum);
        exl2k_store(at, 0);
    }
    __syncwarp();
    f32 total = exl2k_warp_sum(lane < strips ? __uint_as_float(~sum) : 0.0f);
    f32 rho = rsqrtf(fmaf(total, 1.0f / (f32)columns, a.norm.eps));
    f32 y[4] = { fmaf(r[0] * rho, __uint_as_float(weight.x), 0.0f), fmaf(r[1] * rho, __uint_as_float(weight.y), 0.0f),
                 fmaf(r[2] * rho, __uint_as_float(weight.z), 0.0f), fmaf(r[3] * rho, __uint_as_float(weight.w), 0.0f) };
    uint2 x = make_uint2(exl2k_pack_f16(exl2k_clamp_f16(y[0]), exl2k_clamp_f16(y[1])),
                         exl2k_pack_f16(exl2k_clamp_f16(y[2]), exl2k_clamp_f16(y[3])));
    exl2k_store2(a.norm.x + k * 2, x.x, x.y);
#pragma unroll
    for (u32 p = 0; p < EXL2K_EXL3_PARTS; p++) {
        if (p < a.norm.parts) {
            uint2 v = exl2k_exl3_rotated(x, suh[p], lane);
            u64 to = a.norm.rotated + p * columns * 2;
            exl2k_store(to + exl2k_exl3_place(k), v.x);
            exl2k_store(to + exl2k_exl3_place(k + 2), v.y);
        }
    }
}

/* What follows the sums of a CTA. The last CTA of a strip (ACT: of the same strip of gate and of up) in the order of
   the grid makes the outputs. All CTAs that it waits for were started before it. Its second warp adds up gate. Results
   of ACT are also transformed for the matrix that reads them. */
EXL2K_FN void exl2k_exl3_one_finish(const exl2k_exl3_args &a, const f32 sum[1][4], u32 shared)
{
    u32 thread = exl2k_exl3_again(threadIdx.x), lane = thread % EXL2K_WARP, warp = thread / EXL2K_WARP;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, exl2k_exl3_again(blockIdx.x));
    bool pairs = a.kind == EXL2K_EXL3_ACT && a.parts == 2;
    if (blockIdx.y + 1 < a.splits || (pairs && u.part == 0)) {
        if (lane % 4 == 0) {
            u64 to = exl2k_exl3_partial(a, u.before + u.strip, blockIdx.y, 0);
            to += (warp * EXL2K_EXL3_TILE + lane / 4) * 4;
            exl2k_exl3_one_send(to, sum[0][0]);
            exl2k_exl3_one_send(to + 32, sum[0][2]);
        }
        return;
    }
    const exl2k_exl3_part &part = a.part[pairs && warp == 1 ? 0 : u.part];
    u32 gates = pairs ? a.splits : 0, count = gates + a.splits - 1;
    u32 k = u.strip * EXL2K_EXL3_BLOCK + 4 * lane, gate_at = shared + EXL2K_EXL3_PITCH * 4 + lane * 16;
    f32 v[4] = { 0, 0, 0, 0 }, before[4] = { 0, 0, 0, 0 }, w[4];
    if (a.kind == EXL2K_EXL3_RESIDUAL && warp == 0) { /* on its way with the sums, as svh is */
        exl2k_exl3_before(before, exl2k_exl3_goal_of(a, part, u.strip, 0, lane));
    }
    exl2k_exl3_ends e = exl2k_exl3_ends_of(part, u.strip, lane);
    __syncthreads(); /* sums may lie where inputs and rings were */
    exl2k_exl3_gather<1>(shared, sum, warp, lane, 1);
    exl2k_exl3_one_take(v, a, u, shared + EXL2K_EXL3_PITCH * 4, gates, count, warp, lane);
    __syncthreads();
    if (warp > pairs) {
        return;
    }
    if (warp == 0) {
        f32 last[4];
        exl2k_exl3_sums(last, shared, 0, lane);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            v[i] = a.splits == 1 && !pairs ? last[i] : v[i] + last[i];
        }
    }
    exl2k_exl3_ended(v, e, part.bias != 0, lane);
    if (pairs) {
        if (warp == 1) {
            exl2k_shared_store4(gate_at, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]),
                                                    __float_as_uint(v[2]), __float_as_uint(v[3])));
        }
        asm volatile("bar.sync 1, 64;" ::: "memory"); /* the other warps have left */
        if (warp == 1) {
            return;
        }
        uint4 s = exl2k_shared_load4(gate_at);
        before[0] = __uint_as_float(s.x);
        before[1] = __uint_as_float(s.y);
        before[2] = __uint_as_float(s.z);
        before[3] = __uint_as_float(s.w);
    }
    exl2k_exl3_goal g = exl2k_exl3_goal_of(a, part, u.strip, 0, lane);
    exl2k_exl3_made(w, a, v, before);
    exl2k_exl3_put(g, w);
    if (a.norm.parts) {
        exl2k_exl3_one_norm(a, u.strip, w, lane);
    }
    if (a.next_suh) {
        uint2 suh = exl2k_exl3_scales(a.next_suh + k * 2);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            w[i] = i < g.count ? exl2k_clamp_f16(w[i]) : 0.0f;
        }
        uint2 r = exl2k_exl3_rotated(make_uint2(exl2k_pack_f16(w[0], w[1]), exl2k_pack_f16(w[2], w[3])), suh, lane);
        exl2k_store(a.next_rotated + exl2k_exl3_place(k), r.x);
        exl2k_store(a.next_rotated + exl2k_exl3_place(k + 2), r.y);
    }
}

template <u32 BOOK> EXL2K_FN void exl2k_exl3_one(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    constexpr u32 ahead = EXL2K_EXL3_AHEAD(BOOK);
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, split = blockIdx.y;
    u32 shared = exl2k_shared(exl2k_dynamic);
    u32 begin = a.blocks * split / a.splits, end = a.blocks * (split + 1) / a.splits;
    u32 slab = exl2k_min(end - begin, a.slab);
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u64 tile = part.trellis + (u64)begin * 8 * pitch + (u64)(u.strip * 8 + warp) * tile_bytes;
    u32 rings = shared + EXL2K_EXL3_SHARED_ROWS(1, slab), batch = EXL2K_EXL3_BATCH(BOOK, part.rate);
    bool stashes = a.stash && slab * 8 >= EXL2K_EXL3_STASH_TILES + ahead;
    u32 stash = rings + EXL2K_EXL3_WARPS * EXL2K_EXL3_RING(part.rate)
                + (warp * EXL2K_EXL3_STASH_TILES * EXL2K_WARP + lane) * 16;
    /* Weights and scales are constant: they come while preceding kernels may still run. */
    exl2k_exl3_ring ring = exl2k_exl3_ring_open(rings + warp * EXL2K_EXL3_RING(part.rate), tile, pitch, part.rate,
                                                (end - begin) * 8, batch, 1, lane);
    exl2k_exl3_ring_fill(ring, batch * part.rate, lane);
    if (!a.turned) {
        u32 at = exl2k_min(begin * EXL2K_EXL3_BLOCK + threadIdx.x * 16, end * EXL2K_EXL3_BLOCK - 1);
        exl2k_prefetch(part.suh + at * 2);
    }
    if (threadIdx.x < 2) { /* what ends the product needs would come from the slow memory, too */
        u32 at = (u.strip * EXL2K_EXL3_BLOCK + threadIdx.x * 64) * 2;
        exl2k_prefetch(part.svh + at);
        if (a.next_suh) {
            exl2k_prefetch(a.next_suh + at);
        }
        if (a.norm.parts && split + 1 == a.splits) {
            exl2k_prefetch(a.norm.weight + at * 2);
            exl2k_prefetch(a.norm.weight + at * 2 + 128);
            for (u32 p = 0; p < a.norm.parts; p++) {
                exl2k_prefetch(a.norm.suh[p] + at);
            }
        }
    }
    exl2k_dependency_release();
    u32 values[ahead][4];
    exl2k_exl3_one_any_rate<BOOK>(part.rate, values, ring, stashes ? stash : 0, exl2k_exl3_again(lane));
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before), count = slab; /* on its way with the inputs */
    exl2k_exl3_one_slab(a, u.part, shared, begin, count);
    __syncthreads();
    if (rows == 0) {
        exl2k_copy_wait<0>(); /* nothing may arrive in the memory of another CTA */
        return;
    }
    u32 inputs = shared + lane % 4 * 16, skip = ahead; /* skip: tiles that are decoded already */
    f32 sum[2][1][4] = { 0 };
    if (stashes) {
#pragma unroll
        for (u32 k = 0; k < EXL2K_EXL3_STASH_TILES; k += 2) {
            uint4 b = exl2k_shared_load4(inputs + k * 32);
            uint4 even = exl2k_shared_load4(stash + k * 512), odd = exl2k_shared_load4(stash + k * 512 + 512);
            u32 v[2][4] = { { even.x, even.y, even.z, even.w }, { odd.x, odd.y, odd.z, odd.w } };
            exl2k_mma(sum[0][0], v[0], b.x, b.y);
            exl2k_mma(sum[1][0], v[1], b.z, b.w);
        }
        inputs += EXL2K_EXL3_STASH_TILES * 32;
        skip += EXL2K_EXL3_STASH_TILES;
    }
#pragma unroll
    for (u32 k = 0; k < ahead; k += 2) {
        uint4 b = exl2k_shared_load4(inputs + k * 32);
        exl2k_mma(sum[0][0], values[k], b.x, b.y);
        exl2k_mma(sum[1][0], values[k + 1], b.z, b.w);
    }
#pragma unroll 1
    for (u32 block = begin;;) {
        u32 again = exl2k_exl3_again(lane); /* what each rate derives from the lane is not kept through the loop */
        u32 from[1] = { shared + again % 4 * 16 + skip * 32 };
        exl2k_exl3_any_rate<1, BOOK>(part.rate, sum, ring, count * 8 - skip, from, again);
        block += count;
        if (block >= end) {
            break;
        }
        skip = 0;
        count = exl2k_min(slab, end - block);
        __syncthreads(); /* all warps have read the inputs of the slab before */
        exl2k_exl3_one_slab(a, u.part, shared, block, count);
        __syncthreads();
    }
    exl2k_copy_wait<0>();
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        sum[0][0][i] += sum[1][0][i];
    }
    exl2k_exl3_one_finish(a, sum[0], shared);
}

#endif
