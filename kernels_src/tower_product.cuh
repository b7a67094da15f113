/* tower_product.cuh: what becomes of the sums of a product of a tower. They go through shared memory, so that a warp
   stores whole lines.
   takes: base.cuh, tower_args.h.
   gives: exl2k_tower_results_pitch, exl2k_tower_put, exl2k_tower_finish. */
#ifndef EXL2K_TOWER_PRODUCT_CUH
#define EXL2K_TOWER_PRODUCT_CUH

#include "base.cuh"
#include "tower_tiles.cuh"

/* Bytes of shared memory that a warp needs for its results: 16 rows. */
template <u32 COLUMNS> EXL2K_FN u32 exl2k_tower_results_pitch(void) { return (COLUMNS + 8) * 4; }

/* All but GELU by erf are v / (1 + e^-(plain + linear v + cubic v^3)). */
EXL2K_FN f32 exl2k_tower_act(const exl2k_tower_product_args &a, f32 v)
{
    f32 z = fmaf(fmaf(a.cubic * v, v, a.linear), v, a.plain);
    return a.act == EXL2K_TOWER_GELU ? exl2k_gelu(v) : v / (1.0f + __expf(-z));
}

/* Puts the sums of 16 rows and 8 columns from `column` on into shared memory; operands as those of exl2k_mma. */
template <u32 COLUMNS> EXL2K_FN void exl2k_tower_put(u32 shared, u32 column, const f32 d[4])
{
    u32 lane = threadIdx.x % 32;
    u32 at = shared + lane / 4 * exl2k_tower_results_pitch<COLUMNS>() + (column + lane % 4 * 2) * 4;
    exl2k_shared_store2(at, make_uint2(__float_as_uint(d[0]), __float_as_uint(d[1])));
    exl2k_shared_store2(at + 8 * exl2k_tower_results_pitch<COLUMNS>(),
                        make_uint2(__float_as_uint(d[2]), __float_as_uint(d[3])));
}

/* y of four neighbouring columns, whose sums are at `at`. */
EXL2K_FN void exl2k_tower_values(u32 at, const f32 bias[4], f32 y[4])
{
    uint4 v = exl2k_shared_load4(at);
    y[0] = fmaf(__uint_as_float(v.x), EXL2K_TOWER_SCALE, bias[0]);
    y[1] = fmaf(__uint_as_float(v.y), EXL2K_TOWER_SCALE, bias[1]);
    y[2] = fmaf(__uint_as_float(v.z), EXL2K_TOWER_SCALE, bias[2]);
    y[3] = fmaf(__uint_as_float(v.w), EXL2K_TOWER_SCALE, bias[3]);
}

/* STORE and ADD of columns that are not four, or do not lie on a multiple of 16 bytes. */
EXL2K_FN void exl2k_tower_store(const exl2k_tower_product_args &a, u32 row, u32 column, f32 y[4])
{
    u64 to = a.out + ((u64)row * a.out_pitch + column) * 4;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        if (column + k < a.columns) {
            exl2k_store_f32(to + k * 4, a.kind == EXL2K_TOWER_ADD ? exl2k_load_f32(to + k * 4) + y[k] : y[k]);
        }
    }
}

EXL2K_FN void exl2k_tower_bias(const exl2k_tower_product_args &a, u32 column, f32 bias[4])
{
    uint4 b = exl2k_load_constant4(a.bias + column * 4);
    bias[0] = __uint_as_float(b.x);
    bias[1] = __uint_as_float(b.y);
    bias[2] = __uint_as_float(b.z);
    bias[3] = __uint_as_float(b.w);
}

/* A pair of q or k, rotated. pair: of its head; patch: of the row. */
EXL2K_FN void exl2k_tower_rotate(const exl2k_tower_product_args &a, u32 patch, u32 pair, f32 y[2])
{
    u32 quarter = a.dim / 4, line = patch / a.patches, place = a.sides + patch - line * a.patches;
    u64 angle = a.angles + (pair < quarter ? (u64)line * 2 * quarter + pair
                                           : (u64)place * 2 * quarter + pair - quarter) * 4;
    f32 c = __uint_as_float(exl2k_load_constant(angle)), s = __uint_as_float(exl2k_load_constant(angle + quarter * 4));
    f32 first = y[0];
    y[0] = fmaf(first, c, -__fmul_rn(y[1], s));
    y[1] = fmaf(y[1], c, __fmul_rn(first, s));
}

/* HEADS of a multiple of four elements: a lane has four columns of one head. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_finish_heads(const exl2k_tower_product_args &a, u32 shared, u32 row, u32 column, u32 from,
                                       u32 end)
{
    u32 lane = threadIdx.x % 32, part = lane % (COLUMNS / 4), head = (column + part * 4) / a.dim;
    u32 i = column + part * 4 - head * a.dim; /* head: of q, k and v one after the other */
    const f32 inverse = 1.0f / EXL2K_TOWER_SCALE;
    bool turns = a.angles && head < 2 * a.heads;
    f32 bias[4];
    exl2k_tower_bias(a, column + part * 4, bias);
#pragma unroll 2
    for (u32 r = from + lane / (COLUMNS / 4); r < end; r += 128 / COLUMNS) {
        if (row + r < a.rows && head < 3 * a.heads) {
            f32 y[4];
            exl2k_tower_values(shared + r * exl2k_tower_results_pitch<COLUMNS>() + part * 16, bias, y);
            if (turns) {
                u32 patch = exl2k_load_constant(a.order + (u64)(row + r) * 4);
                exl2k_tower_rotate(a, patch, i / 2, y);
                exl2k_tower_rotate(a, patch, i / 2 + 1, y + 2);
            }
            exl2k_store2(a.out + (((u64)head * a.rows_max + row + r) * a.padded + i) * 2,
                         exl2k_pack_f16(y[0] * inverse, y[1] * inverse),
                         exl2k_pack_f16(y[2] * inverse, y[3] * inverse));
        }
    }
}

/* HEADS of any size, without angles. */
EXL2K_FN void exl2k_tower_store_heads(const exl2k_tower_product_args &a, u32 row, u32 column, f32 y[4])
{
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        u32 head = (column + k) / a.dim, i = column + k - head * a.dim;
        if (head < 3 * a.heads) {
            exl2k_store_u16(a.out + (((u64)head * a.rows_max + row) * a.padded + i) * 2,
                            exl2k_f32_to_f16(y[k] * (1.0f / EXL2K_TOWER_SCALE)));
        }
    }
}

/* GATED: a lane has two columns of gate, and of up 8 further. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_finish_gated(const exl2k_tower_product_args &a, u32 shared, u32 row, u32 column, u32 from,
                                       u32 end)
{
    u32 lane = threadIdx.x % 32, part = lane % (COLUMNS / 4) * 2, gate = part / 8 * 16 + part % 8;
    u32 to = column / 2 + part;
    const f32 inverse = 1.0f / EXL2K_TOWER_SCALE;
    uint2 gb = exl2k_load_constant2(a.bias + (column + gate) * 4);
    uint2 ub = exl2k_load_constant2(a.bias + (column + gate + 8) * 4);
#pragma unroll 2
    for (u32 r = from + lane / (COLUMNS / 4); r < end; r += 128 / COLUMNS) {
        u32 at = shared + r * exl2k_tower_results_pitch<COLUMNS>() + gate * 4;
        uint2 g = exl2k_shared_load2(at), u = exl2k_shared_load2(at + 32);
        f32 g0 = fmaf(__uint_as_float(g.x), EXL2K_TOWER_SCALE, __uint_as_float(gb.x));
        f32 g1 = fmaf(__uint_as_float(g.y), EXL2K_TOWER_SCALE, __uint_as_float(gb.y));
        f32 u0 = fmaf(__uint_as_float(u.x), EXL2K_TOWER_SCALE, __uint_as_float(ub.x));
        f32 u1 = fmaf(__uint_as_float(u.y), EXL2K_TOWER_SCALE, __uint_as_float(ub.y));
        if (row + r < a.rows && to < a.out_pitch) {
            exl2k_store(a.out + exl2k_tower_at(row + r, to, a.rows_max),
                        exl2k_pack_f16(exl2k_tower_act(a, g0) * u0 * inverse, exl2k_tower_act(a, g1) * u1 * inverse));
        }
    }
}

/* STORE and ADD, of columns in pieces of 16 bytes: what is added to is loaded for four rows at once. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_finish_wide(const exl2k_tower_product_args &a, u32 shared, u32 row, u32 column, u32 from,
                                      u32 end)
{
    u32 lane = threadIdx.x % 32, part = lane % (COLUMNS / 4), first = from + lane / (COLUMNS / 4);
    bool adds = a.kind == EXL2K_TOWER_ADD, inside = column + part * 4 < a.columns;
    f32 bias[4];
    exl2k_tower_bias(a, column + part * 4, bias);
#pragma unroll 1
    for (u32 r = first; r < end; r += 4 * (128 / COLUMNS)) {
        u64 to = a.out + ((u64)(row + r) * a.out_pitch + column + part * 4) * 4;
        u64 next = (u64)a.out_pitch * 512 / COLUMNS;
        uint4 old[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 line = r + k * (128 / COLUMNS);
            bool some = adds && inside && line < end && row + line < a.rows;
            old[k] = some ? exl2k_load4(to + k * next) : make_uint4(0, 0, 0, 0); /* a sum with 0 is exact */
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            f32 y[4];
            u32 line = r + k * (128 / COLUMNS);
            exl2k_tower_values(shared + line * exl2k_tower_results_pitch<COLUMNS>() + part * 16, bias, y);
            if (inside && line < end && row + line < a.rows) {
                exl2k_store4(to + k * next, make_uint4(__float_as_uint(__uint_as_float(old[k].x) + y[0]),
                                                       __float_as_uint(__uint_as_float(old[k].y) + y[1]),
                                                       __float_as_uint(__uint_as_float(old[k].z) + y[2]),
                                                       __float_as_uint(__uint_as_float(old[k].w) + y[3])));
            }
        }
    }
}

/* A warp finishes rows [from, end) of 16 whose sums are in shared memory: those from `row` on, columns from `column`
   on. */
template <u32 COLUMNS>
EXL2K_FN void exl2k_tower_finish(const exl2k_tower_product_args &a, u32 shared, u32 row, u32 column, u32 from = 0,
                                 u32 end = 16)
{
    u32 lane = threadIdx.x % 32, part = lane % (COLUMNS / 4), to = column + part * 4;
    const f32 inverse = 1.0f / EXL2K_TOWER_SCALE;
    bool floats = a.kind == EXL2K_TOWER_STORE || a.kind == EXL2K_TOWER_ADD;
    __syncwarp();
    if (a.kind == EXL2K_TOWER_GATED) {
        exl2k_tower_finish_gated<COLUMNS>(a, shared, row, column, from, end);
    } else if (floats && a.columns % 4 == 0 && a.out_pitch % 4 == 0) {
        exl2k_tower_finish_wide<COLUMNS>(a, shared, row, column, from, end);
    } else if (a.kind == EXL2K_TOWER_HEADS && a.dim % 4 == 0) {
        exl2k_tower_finish_heads<COLUMNS>(a, shared, row, column, from, end);
    } else {
        f32 bias[4];
        exl2k_tower_bias(a, to, bias);
#pragma unroll 1
        for (u32 r = from + lane / (COLUMNS / 4); r < end; r += 128 / COLUMNS) {
            f32 y[4];
            if (row + r >= a.rows) {
                continue;
            }
            exl2k_tower_values(shared + r * exl2k_tower_results_pitch<COLUMNS>() + part * 16, bias, y);
            if (a.kind == EXL2K_TOWER_HEADS) {
                exl2k_tower_store_heads(a, row + r, to, y);
            } else if (floats) {
                exl2k_tower_store(a, row + r, to, y);
            } else if (to < a.out_pitch) {
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    y[k] = exl2k_tower_act(a, y[k]) * inverse;
                }
                exl2k_store2(a.out + exl2k_tower_at(row + r, to, a.rows_max), exl2k_pack_f16(y[0], y[1]),
                             exl2k_pack_f16(y[2], y[3]));
            }
        }
    }
    __syncwarp();
}

#endif
