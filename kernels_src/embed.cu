/* embed.cu: looks up tokens in the embedding table, or uses the vectors of rows or what another device has computed,
   and makes the first product's input and its sum of squares.
   takes: embed_args.h.
   gives: exl2k_embed. */
#include "base.cuh"
#include "embed_args.h"

/* Element `at` of a table of `kind`. */
EXL2K_FN f32 exl2k_table_value(u64 table, u32 kind, u64 at)
{
    if (kind == EXL2K_TABLE_F32) {
        return __uint_as_float(exl2k_load_constant(table + 4 * at));
    }
    u32 half = exl2k_load_u16(table + 2 * at);
    return kind == EXL2K_TABLE_F16 ? exl2k_f16_to_f32(half) : exl2k_bf16_to_f32(half);
}

/* rho of the norm whose sums these are, of all slots of a row; those that a device does not use are 0. Every thread of
   the CTA calls it. The order of the sum is that of products: first of 32 slots each, by warps; or that of experts. */
EXL2K_FN f32 exl2k_handed_rho(const exl2k_embed_args &a, u64 sums, f32 *partial)
{
    f32 sum = 0.0f;
    if (a.by_lanes) {
        for (u32 slot = threadIdx.x % EXL2K_WARP; slot < a.slots_pitch; slot += EXL2K_WARP) {
            sum += exl2k_load_f32(sums + slot * 4);
        }
        sum = exl2k_warp_sum(sum);
    } else {
        f32 group = exl2k_warp_sum(exl2k_load_f32(sums + threadIdx.x * 4));
        if (threadIdx.x % EXL2K_WARP == 0) {
            partial[threadIdx.x / EXL2K_WARP] = group;
        }
        __syncthreads();
        for (u32 i = 0; i < EXL2K_EMBED_THREADS / EXL2K_WARP; i++) {
            sum += partial[i];
        }
        __syncthreads();
    }
    return rsqrtf(fmaf(sum, a.inverse_hidden, a.eps));
}

/* Copies the slots of a row. A device with fewer CTAs has fewer slots, and adds up what lies beyond them. */
EXL2K_FN void exl2k_handed_slots(const exl2k_embed_args &a, u64 from, u64 to)
{
    if (threadIdx.x < a.slots) {
        f32 sum = 0.0f;
        for (u32 slot = threadIdx.x; slot < a.slots_pitch; slot += a.slots) {
            sum += exl2k_load_f32(from + slot * 4);
        }
        exl2k_store_f32(to + threadIdx.x * 4, sum);
    }
}

/* The CTAs of a column of the grid divide a row among them, so that all loads of the row are issued at once. CTA
   `part` has elements n = 256 part + thread, then every 256 * gridDim.y-th element after it. The order of sums is the
   same on every GPU. */
extern "C" __global__ void __launch_bounds__(EXL2K_EMBED_THREADS) exl2k_embed(exl2k_embed_args a)
{
    __shared__ f32 partial[EXL2K_EMBED_THREADS / 32];
    u32 row = blockIdx.x, part = blockIdx.y, parts = gridDim.y, thread = threadIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (a.turn && row + part + thread == 0) {
        exl2k_store(a.turn, exl2k_load(a.turn) + 1);
    }
    uint4 own = exl2k_load4(a.rows + row * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (row >= exl2k_load(a.pass) || (own.w & EXL2K_ROW_DONE)) {
        return;
    }
    /* Write the residual and the weighted input, and add up the squares. */
    u64 token = own.x, position = own.y;
    bool handed = a.kind == EXL2K_TABLE_HANDED, folded = handed && a.handed_now;
    bool given = (own.w & EXL2K_ROW_VECTOR && !handed) || a.kind == EXL2K_TABLE_GIVEN;
    bool in_table = token < a.table_rows, placed = position < a.position_rows;
    u64 slots = (u64)row * a.slots_pitch * 4;
    f32 square = 0.0f, rho = folded ? exl2k_handed_rho(a, a.handed_before + slots, partial) : 1.0f;
    for (u32 n = part * EXL2K_EMBED_THREADS + thread; n < a.hidden; n += parts * EXL2K_EMBED_THREADS) {
        u64 residual = a.residual + ((u64)row * a.residual_pitch + n) * 4;
        f32 r = given ? exl2k_load_f32(residual)
              : handed ? exl2k_load_f32(a.table + ((u64)row * a.hidden + n) * 4)
              : in_table ? exl2k_table_value(a.table, a.kind, token * a.hidden + n) * a.scale : 0.0f;
        r = handed ? r : r + (placed ? exl2k_table_value(a.positions, a.position_kind, position * a.hidden + n) : 0.0f);
        exl2k_store_f32(residual, r);
        square = fmaf(r, r, square);
        if (a.out) {
            f32 y = r * __uint_as_float(exl2k_load_constant(a.weight + n * 4));
            y = folded ? y * rho : y;
            u32 index = a.map ? exl2k_load_u16(a.map + n * 2) : n;
            exl2k_store_u16(a.out + ((u64)row * a.out_pitch + index) * 2, exl2k_f32_to_f16(exl2k_clamp_f16(y)));
        }
    }
    if (folded) {
        if (part == 0) {
            exl2k_handed_slots(a, a.handed_now + slots, a.sums + slots);
            exl2k_handed_slots(a, a.handed_before + slots, a.sums_before + slots);
        }
        return;
    }
    /* The sum of squares over the CTA goes to this part's slot. */
    square = exl2k_warp_sum(square);
    if (thread % 32 == 0) {
        partial[thread / 32] = square;
    }
    __syncthreads();
    f32 sum = 0.0f;
    for (u32 i = 0; i < EXL2K_EMBED_THREADS / 32; i++) {
        sum += partial[i];
    }
    u64 sums = a.sums + slots;
    if (thread == 0) {
        exl2k_store_f32(sums + part * 4, sum);
    }
    /* Part 0 clears the unused slots. */
    for (u32 slot = parts + thread; part == 0 && slot < a.slots; slot += EXL2K_EMBED_THREADS) {
        exl2k_store_f32(sums + slot * 4, 0.0f);
    }
}
