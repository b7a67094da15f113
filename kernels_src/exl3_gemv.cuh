/* exl3_gemv.cuh: the product of 1 to 16 rows with an EXL3 matrix (exl3_args.h).
   takes: exl3.cuh, exl3_out.cuh.
   gives: exl2k_exl3_gemv<TILES, BOOK>: the body of a kernel for 8 or 16 rows (TILES 1, 2) and one codebook. Grid:
          strips of the launch's parts, splits; EXL2K_EXL3_THREADS threads; EXL2K_EXL3_SHARED bytes of dynamic shared
          memory.

   Each CTA transforms the inputs of its split itself, a warp a block. Each warp then decodes one column of tiles, in
   registers, and multiplies a tile by all rows at once. The words of its column come through a ring in shared memory
   that only this warp uses; its first slots are on their way before the kernels in front of this one have ended. The
   last CTA of a strip to arrive adds up the splits and transforms the outputs. A row's bits do not depend on the other
   rows. */
#ifndef EXL2K_EXL3_GEMV_CUH
#define EXL2K_EXL3_GEMV_CUH

#include "exl3_out.cuh"

/* CTAs of 8 rows on an SM. Four leave 64 registers, of which some spill in code for these GPUs. */
#if defined __CUDA_ARCH__ && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ >= 1200)
#define EXL2K_EXL3_CTAS8 3
#else
#define EXL2K_EXL3_CTAS8 4
#endif

/* Tiles of a slot of a ring. A loop of eight has fewer instructions a tile than one of four. It was measured on 9.0
   only; the other codebooks have no registers left for it. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ == 900
#define EXL2K_EXL3_BATCH(book, rate) ((book) == EXL2K_EXL3_MUL1 && (rate) <= 8 ? 8u : 4u)
#else
#define EXL2K_EXL3_BATCH(book, rate) 4u
#endif

/* ---- the ring of a warp ---- */

/* Where the ring is. A slot has some tiles of the column (EXL2K_EXL3_BATCH), one after the other, and a lane copies one
   or two of its pieces of 16 bytes. */
typedef struct exl2k_exl3_ring {
    u64 from;   /* the lane's piece of the next slot to be filled */
    u32 second; /* bytes from there to its second piece */
    u32 step;   /* bytes from a slot's tiles to those of the next one */
    u32 to, at; /* addresses of slot 0, and of the slot that is filled next, and is read before that */
    u32 left;   /* slots that are still to be filled */
} exl2k_exl3_ring;

/* Starts to fill a slot, if any is left. pieces: of a slot. */
EXL2K_FN void exl2k_exl3_ring_fill(exl2k_exl3_ring &r, u32 pieces, u32 lane)
{
    if (r.left > 0) {
        r.left--;
        if (pieces >= EXL2K_WARP || lane < pieces) {
            exl2k_copy16_once(r.at + lane * 16, r.from);
        }
        if (lane + EXL2K_WARP < pieces) {
            exl2k_copy16_once(r.at + (lane + EXL2K_WARP) * 16, r.from + r.second);
        }
        r.from += r.step;
    }
    exl2k_copy_commit();
}

/* Bytes, behind a column's tile, of a lane's piece of a slot. A tile has as many pieces as its rate says. */
EXL2K_FN u32 exl2k_exl3_piece(u32 piece, u32 pitch, u32 rate)
{
    u32 tile = piece / rate;
    return tile * pitch + (piece - tile * rate) * 16;
}

/* Opens the ring of a column whose tiles lie `pitch` bytes apart, and starts to fill all slots but the last one. tiles:
   to be copied in all; batch: of them in a slot; every: 2: those of every second batch. */
EXL2K_FN exl2k_exl3_ring exl2k_exl3_ring_open(u32 to, u64 tile, u32 pitch, u32 rate, u32 tiles, u32 batch,
                                              u32 every, u32 lane)
{
    u32 pieces = batch * rate, first = exl2k_exl3_piece(lane, pitch, rate);
    u32 second = exl2k_exl3_piece(lane + EXL2K_WARP, pitch, rate) - first;
    exl2k_exl3_ring r = { tile + first, second, batch * pitch * every, to, to, tiles / batch };
#pragma unroll 1
    for (u32 i = batch; i < EXL2K_EXL3_RING_TILES; i += batch, r.at += pieces * 16) {
        exl2k_exl3_ring_fill(r, pieces, lane);
    }
    return r;
}

/* The address of the next slot to be read, which has arrived; the one before it is filled again. */
template <u32 PIECES, u32 SLOTS> EXL2K_FN u32 exl2k_exl3_ring_next(exl2k_exl3_ring &r, u32 lane)
{
    exl2k_copy_wait<SLOTS - 2>();
    __syncwarp(); /* all lanes have copied this slot, and have read the one before */
    exl2k_exl3_ring_fill(r, PIECES, lane);
    r.at += PIECES * 16;
    r.at = r.at == r.to + SLOTS * PIECES * 16 ? r.to : r.at;
    return r.at;
}

/* sum[0] and sum[1] += the products of the next `tiles` tiles, even and odd ones, with inputs in shared memory. They
   are two chains of sums, so that a product need not wait for the one before. */
template <u32 TILES, u32 RATE, u32 BOOK>
EXL2K_FN void exl2k_exl3_column(f32 sum[2][TILES][4], exl2k_exl3_ring &ring, u32 tiles, const u32 inputs[TILES],
                                u32 lane)
{
    constexpr u32 count = exl2k_exl3_words<RATE>(), batch = EXL2K_EXL3_BATCH(BOOK, RATE);
    exl2k_exl3_place_of<RATE> place = exl2k_exl3_places<RATE>(lane);
    u32 at = 0;
#pragma unroll 1
    for (u32 left = tiles / batch; left > 0; left--) {
        u32 slot = exl2k_exl3_ring_next<batch * RATE, EXL2K_EXL3_RING_TILES / batch>(ring, lane);
#pragma unroll
        for (u32 part = 0; part < batch; part += 4) {
            u32 words[4][count];
#pragma unroll
            for (u32 i = 0; i < count; i++) {
                u32 from = slot + place.at[i];
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    words[k][i] = exl2k_shared_load(from + (part + k) * 16 * RATE);
                }
            }
#pragma unroll
            for (u32 k = 0; k < 4; k += 2) {
                u32 even[4], odd[4];
                exl2k_exl3_decode<RATE, BOOK>(even, words[k], place.shift);
                exl2k_exl3_decode<RATE, BOOK>(odd, words[k + 1], place.shift);
#pragma unroll
                for (u32 n = 0; n < TILES; n++) {
                    uint4 b = exl2k_shared_load4(inputs[n] + at + (part + k) * 32);
                    exl2k_mma(sum[0][n], even, b.x, b.y);
                    exl2k_mma(sum[1][n], odd, b.z, b.w);
                }
            }
        }
        at += batch * 32;
    }
}

/* A rate is the same for a whole CTA. Only MUL1 has half rates. */
template <u32 TILES, u32 BOOK>
EXL2K_FN void exl2k_exl3_any_rate(u32 rate, f32 sum[2][TILES][4], exl2k_exl3_ring &ring, u32 tiles,
                                  const u32 inputs[TILES], u32 lane)
{
#define EXL2K_EXL3_CASE(R) \
    case R: exl2k_exl3_column<TILES, R, BOOK>(sum, ring, tiles, inputs, lane); break;
    EXL2K_EXL3_RATES(rate, BOOK, EXL2K_EXL3_CASE)
#undef EXL2K_EXL3_CASE
}

/* A strip of the launch. */
typedef struct exl2k_exl3_unit {
    u32 part, strip; /* strip of the part */
    u32 before;      /* strips of the parts before it, of the whole matrix */
} exl2k_exl3_unit;

EXL2K_FN exl2k_exl3_unit exl2k_exl3_unit_of(const exl2k_exl3_args &a, u32 index)
{
    exl2k_exl3_unit u = { 0, index, 0 };
    for (; u.part < a.first; u.part++) {
        u.before += a.part[u.part].out / EXL2K_EXL3_BLOCK;
    }
    for (; u.strip >= a.part[u.part].out / EXL2K_EXL3_BLOCK; u.part++) {
        u.strip -= a.part[u.part].out / EXL2K_EXL3_BLOCK;
        u.before += a.part[u.part].out / EXL2K_EXL3_BLOCK;
    }
    return u;
}

/* Address of the sums of a strip (of the whole matrix), split and row. */
EXL2K_FN u64 exl2k_exl3_partial(const exl2k_exl3_args &a, u32 strip, u32 split, u32 row)
{
    return a.partial + (((u64)strip * a.splits + split) * a.rows + row) * (EXL2K_EXL3_BLOCK * 4);
}

/* The outputs of a row of a strip, from the sums of all splits. */
EXL2K_FN void exl2k_exl3_total(f32 v[4], const exl2k_exl3_args &a, u32 part, u32 strip, u32 before, u32 row, u32 lane)
{
    u64 at = exl2k_exl3_partial(a, before + strip, 0, row) + lane * 16;
    exl2k_exl3_ends e = exl2k_exl3_ends_of(a.part[part], strip, lane);
    v[0] = v[1] = v[2] = v[3] = 0;
#pragma unroll 8
    for (u32 split = 0; split < a.splits; split++) {
        uint4 s = exl2k_load4(at + (u64)split * a.rows * (EXL2K_EXL3_BLOCK * 4));
        v[0] += __uint_as_float(s.x);
        v[1] += __uint_as_float(s.y);
        v[2] += __uint_as_float(s.z);
        v[3] += __uint_as_float(s.w);
    }
    exl2k_exl3_ended(v, e, a.part[part].bias != 0, lane);
}

/* Some inputs of a slab of `count` blocks from `block` on: of rows row, row + row_step, ... and of the slab's blocks
   own, own + own_step, ... */
typedef struct exl2k_exl3_share {
    u32 row, row_step, rows, own, own_step, count, block;
} exl2k_exl3_share;

/* Transforms COUNT of them into shared memory. Their loads and shuffles overlap. */
template <u32 COUNT>
EXL2K_FN void exl2k_exl3_inputs(const exl2k_exl3_args &a, const exl2k_exl3_part &part, const exl2k_exl3_share &s,
                                u32 shared, u32 row_bytes, u32 lane)
{
    uint2 v[COUNT], scale[COUNT];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) { /* those beyond the last repeat it, and are not stored */
        u32 row = exl2k_min(s.row + i * s.row_step, s.rows - 1), own = exl2k_min(s.own + i * s.own_step, s.count - 1);
        u32 k = (s.block + own) * EXL2K_EXL3_BLOCK + 4 * lane;
        scale[i] = exl2k_exl3_scales(part.suh + (u64)k * 2);
        v[i] = exl2k_exl3_inputs_at(a.x + (u64)row * a.x_pitch * 2, k, a.in);
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        v[i] = exl2k_exl3_rotated(v[i], scale[i], lane);
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        u32 row = s.row + i * s.row_step, own = s.own + i * s.own_step, k = own * EXL2K_EXL3_BLOCK + 4 * lane;
        if (row < s.rows && own < s.count) {
            exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k), v[i].x);
            exl2k_shared_store(shared + row * row_bytes + exl2k_exl3_place(k + 2), v[i].y);
        }
    }
}

/* Transforms the inputs of a slab into shared memory: a warp has blocks of one row, or rows of one block after the
   other. */
EXL2K_FN void exl2k_exl3_slab(const exl2k_exl3_args &a, const exl2k_exl3_part &part, u32 shared, u32 row_bytes,
                              u32 rows, u32 block, u32 count, u32 warp, u32 lane)
{
    if (rows == 1) {
        exl2k_exl3_share s = { 0, 0, 1, warp, EXL2K_EXL3_WARPS, count, block };
#pragma unroll 1
        for (; s.own < count; s.own += 2 * EXL2K_EXL3_WARPS) {
            if (s.own + EXL2K_EXL3_WARPS >= count) {
                exl2k_exl3_inputs<1>(a, part, s, shared, row_bytes, lane);
            } else {
                exl2k_exl3_inputs<2>(a, part, s, shared, row_bytes, lane);
            }
        }
        return;
    }
    u32 groups = exl2k_max(EXL2K_EXL3_WARPS / count, 1), group = warp / count;
#pragma unroll 1
    for (u32 own = warp - group * count; own < count && group < groups; own += EXL2K_EXL3_WARPS) {
        exl2k_exl3_share s = { group, groups, rows, own, 0, count, block };
#pragma unroll 1
        for (; s.row < rows; s.row += 4 * groups) {
            exl2k_exl3_inputs<4>(a, part, s, shared, row_bytes, lane);
        }
    }
}

/* What follows the sums of a CTA: those of other splits, the transform of outputs, and what the kind says. What it
   needs of the CTA's place is computed again, as registers are few before. */
template <u32 TILES>
EXL2K_FN void exl2k_exl3_finish(const exl2k_exl3_args &a, const f32 sum[TILES][4], u32 shared, u32 rows)
{
    u32 thread = exl2k_exl3_again(threadIdx.x), lane = thread % EXL2K_WARP, warp = thread / EXL2K_WARP;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, exl2k_exl3_again(blockIdx.x));
    const exl2k_exl3_part &part = a.part[u.part];
    bool pairs = a.kind == EXL2K_EXL3_ACT && a.parts == 2;
    if (a.splits == 1 && !pairs) {
        exl2k_exl3_gather<TILES>(shared, sum, warp, lane, rows);
        __syncthreads();
        for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
            f32 v[4], gate[4] = { 0, 0, 0, 0 };
            lane = exl2k_exl3_again(lane); /* a loop of one turn or two: nothing is worth a register outside */
            exl2k_exl3_sums(v, shared, row, lane);
            exl2k_exl3_output(v, part, u.strip, lane);
            exl2k_exl3_result(a, part, u.strip, row, v, gate, lane);
        }
        return;
    }
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = 8 * n + lane % 4 * 2 + i % 2, column = warp * EXL2K_EXL3_TILE + lane / 4 + i / 2 * 8;
            if (row < rows) {
                exl2k_store_f32(exl2k_exl3_partial(a, u.before + u.strip, blockIdx.y, row) + column * 4, sum[n][i]);
            }
        }
    }
    /* The last CTA of the strip makes the outputs. */
    u64 ticket = a.tickets + (pairs ? u.strip : u.before + u.strip) * 4;
    if (!exl2k_exl3_is_last(ticket, a.splits << pairs)) {
        return;
    }
    for (u32 row = warp; row < rows; row += EXL2K_EXL3_WARPS) {
        f32 v[4], more[4] = { 0, 0, 0, 0 };
        lane = exl2k_exl3_again(lane);
        exl2k_exl3_goal g = exl2k_exl3_goal_of(a, pairs ? a.part[1] : part, u.strip, row, lane);
        if (pairs) {
            exl2k_exl3_total(more, a, 0, u.strip, 0, row, lane);
            exl2k_exl3_total(v, a, 1, u.strip, a.part[0].out / EXL2K_EXL3_BLOCK, row, lane);
        } else {
            if (a.kind == EXL2K_EXL3_RESIDUAL) {
                exl2k_exl3_before(more, g); /* on its way with the sums */
            }
            exl2k_exl3_total(v, a, u.part, u.strip, u.before, row, lane);
        }
        exl2k_exl3_finish_row(a, g, v, more);
    }
}

template <u32 TILES, u32 BOOK> EXL2K_FN void exl2k_exl3_gemv(const exl2k_exl3_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    u32 lane = threadIdx.x % EXL2K_WARP, warp = threadIdx.x / EXL2K_WARP, split = blockIdx.y;
    u32 shared = exl2k_shared(exl2k_dynamic);
    u32 begin = a.blocks * split / a.splits, end = a.blocks * (split + 1) / a.splits;
    u32 slab = exl2k_min(end - begin, a.slab), row_bytes = slab * (EXL2K_EXL3_BLOCK * 2) + EXL2K_EXL3_SPARE;
    exl2k_exl3_unit u = exl2k_exl3_unit_of(a, blockIdx.x);
    const exl2k_exl3_part &part = a.part[u.part];
    u32 tile_bytes = 16 * part.rate, pitch = part.row_tiles * tile_bytes;
    u64 tile = part.trellis + (u64)begin * 8 * pitch + (u64)(u.strip * 8 + warp) * tile_bytes;
    u32 ring_at = shared + EXL2K_EXL3_SHARED_ROWS(a.rows, slab) + warp * EXL2K_EXL3_RING(part.rate);
    /* Weights and scales are constant: they come while preceding kernels may still run. */
    exl2k_exl3_ring ring = exl2k_exl3_ring_open(ring_at, tile, pitch, part.rate,
                                                (end - begin) * 8, EXL2K_EXL3_BATCH(BOOK, part.rate), 1, lane);
    exl2k_prefetch(part.suh + exl2k_min(begin * EXL2K_EXL3_BLOCK + threadIdx.x * 16, end * EXL2K_EXL3_BLOCK - 1) * 2);
    exl2k_dependency_release();
    exl2k_dependency_wait();
    u32 rows = exl2k_exl3_rows(a.rows_at, a.rows, a.before);
    if (rows == 0) {
        exl2k_copy_wait<0>(); /* nothing may arrive in the memory of another CTA */
        return;
    }
    /* Rows beyond the last repeat it; nothing reads their sums. */
    u32 inputs[TILES];
    f32 sum[2][TILES][4];
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
        inputs[n] = shared + exl2k_min(8 * n + lane / 4, rows - 1) * row_bytes + lane % 4 * 16;
        sum[0][n][0] = sum[0][n][1] = sum[0][n][2] = sum[0][n][3] = 0;
        sum[1][n][0] = sum[1][n][1] = sum[1][n][2] = sum[1][n][3] = 0;
    }
#pragma unroll 1
    for (u32 block = begin; block < end; block += slab) {
        u32 count = exl2k_min(slab, end - block);
        if (block > begin) {
            __syncthreads(); /* all warps have read the inputs of the slab before */
        }
        exl2k_exl3_slab(a, part, shared, row_bytes, rows, block, count, warp, exl2k_exl3_again(lane));
        __syncthreads();
        u32 again = exl2k_exl3_again(lane); /* what each rate derives from the lane is not kept through the loop */
        exl2k_exl3_any_rate<TILES, BOOK>(part.rate, sum, ring, count * 8, inputs, again);
    }
    exl2k_copy_wait<0>();
#pragma unroll
    for (u32 n = 0; n < TILES; n++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            sum[0][n][i] += sum[1][n][i];
        }
    }
    __syncthreads(); /* sums may lie where inputs were */
    exl2k_exl3_finish<TILES>(a, sum[0], shared, rows);
}

#endif
