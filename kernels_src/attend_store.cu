/* attend_store.cu: stores K (rotated) and V of a pass's rows into their pages; permutes the outputs of prefill.
   takes: attend.cuh, attend_args.h.
   gives: exl2k_attend_store, exl2k_attend_store_queries, exl2k_attend_permute. */
#include "attend.cuh"

#define EXL2K_STORE_BATCH 2

/* Stores K and V of one row. */
extern "C" __global__ void __launch_bounds__(256) exl2k_attend_store(exl2k_attend_args a)
{
    /* Wait for q, k and v, if `early` when their places are known; rows that have ended are skipped. */
    u32 half = a.dim / 2;
    exl2k_dependency_release();
    if (!a.early) {
        exl2k_dependency_wait();
    }
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    bool stores = blockIdx.x < exl2k_load(a.pass) && !(row.w & EXL2K_ROW_DONE);
    u32 page = stores ? exl2k_load(exl2k_table_line(a, row.z) + row.y / EXL2K_PAGE_TOKENS * 4) : 0;
    if (a.early) {
        exl2k_dependency_wait();
    }
    if (!stores) {
        return;
    }
    /* Each thread stores pairs of K, and elements i and i + dim / 2 of V. All loads are issued before the first use:
       those of up to EXL2K_STORE_BATCH pairs. */
    u32 items = a.kv_heads * half;
    for (u32 first = threadIdx.x; first < items; first += EXL2K_STORE_BATCH * 256) {
        exl2k_rope_input keys[EXL2K_STORE_BATCH], values[EXL2K_STORE_BATCH];
#pragma unroll
        for (u32 k = 0; k < EXL2K_STORE_BATCH; k++) {
            u32 item = exl2k_min(first + k * 256, items - 1), head = item / half, i = item % half;
            exl2k_rope_load_elements(a, blockIdx.x, (a.heads + head) * a.dim, i, a.rope_split, keys[k]);
            exl2k_rope_load_line(a, row.y, i, keys[k].c, keys[k].s);
            exl2k_rope_load_elements(a, blockIdx.x, (a.heads + a.kv_heads + head) * a.dim, i, half, values[k]);
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_STORE_BATCH && a.rope_divided; k++) {
            exl2k_rope_add_block(a, row.y, exl2k_min(first + k * 256, items - 1) % half, keys[k].c, keys[k].s);
        }
#pragma unroll
        for (u32 k = 0; k < EXL2K_STORE_BATCH; k++) {
            u32 item = first + k * 256, head = item / half, i = item % half;
            if (item < items) {
                u64 to = exl2k_page_of(a, page, head) + ((u64)(row.y % EXL2K_PAGE_TOKENS) * a.dim + i) * 2;
                u32 pair = exl2k_rope_apply(keys[k]);
                exl2k_store_u16(to, pair);
                exl2k_store_u16(to + half * 2, pair >> 16);
                to += exl2k_value_offset(a);
                exl2k_store_u16(to, exl2k_f32_to_f16(exl2k_clamp_f16(values[k].x)));
                exl2k_store_u16(to + half * 2, exl2k_f32_to_f16(exl2k_clamp_f16(values[k].y)));
            }
        }
    }
}

/* Loads eight neighbouring values. */
EXL2K_FN void exl2k_store_load(u64 at, f32 v[8])
{
#pragma unroll
    for (u32 k = 0; k < 8; k += 4) {
        uint4 u = exl2k_load4(at + k * 4);
        v[k] = __uint_as_float(u.x);
        v[k + 1] = __uint_as_float(u.y);
        v[k + 2] = __uint_as_float(u.z);
        v[k + 3] = __uint_as_float(u.w);
    }
}

/* Loads the angles of pairs i to i + 7 of a row at this position: all entries of a table before the first use. */
EXL2K_FN void exl2k_store_angles(const exl2k_attend_args &a, u32 position, u32 i, exl2k_rope_input pairs[8])
{
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        exl2k_rope_load_line(a, position, i + k, pairs[k].c, pairs[k].s);
    }
#pragma unroll
    for (u32 k = 0; k < 8 && a.rope_divided; k++) {
        exl2k_rope_add_block(a, position, i + k, pairs[k].c, pairs[k].s);
    }
}

/* Eight halves of the low, or of the high, half-words. */
EXL2K_FN uint4 exl2k_store_halves(const u32 pair[8], u32 high)
{
    u32 bytes = high ? 0x7632 : 0x5410;
    return make_uint4(__byte_perm(pair[0], pair[1], bytes), __byte_perm(pair[2], pair[3], bytes),
                      __byte_perm(pair[4], pair[5], bytes), __byte_perm(pair[6], pair[7], bytes));
}

/* Each thread has 8 pairs of a head of q or K, or 16 elements of V. What is older than the pass, the angles too, is
   read before the wait. */
extern "C" __global__ void __launch_bounds__(EXL2K_QUERIES_THREADS) exl2k_attend_store_queries(exl2k_attend_args a)
{
    u32 half = a.dim / 2, item = blockIdx.y * EXL2K_QUERIES_THREADS + threadIdx.x;
    u32 head = item / (half / 8), i = item % (half / 8) * 8, keys_end = a.heads + a.kv_heads;
    exl2k_dependency_release();
    if (!a.early) {
        exl2k_dependency_wait();
    }
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    bool query = head < a.heads, works = blockIdx.x < exl2k_load(a.pass) && head < keys_end + a.kv_heads;
    works = works && (query || !(row.w & EXL2K_ROW_DONE)); /* attention reads the queries of all rows */
    exl2k_rope_input pairs[8];
    u32 page = 0;
    if (works && !query) {
        page = exl2k_load(exl2k_table_line(a, row.z) + row.y / EXL2K_PAGE_TOKENS * 4);
    }
    if (works && head < keys_end) {
        exl2k_store_angles(a, row.y, i, pairs);
    }
    if (a.early) {
        exl2k_dependency_wait();
    }
    if (!works) {
        return;
    }
    f32 x[8], y[8];
    u32 both[8];
    u64 from = a.qkv + ((u64)blockIdx.x * a.qkv_pitch + head * a.dim + i) * 4;
    exl2k_store_load(from, x);
    exl2k_store_load(from + half * 4, y);
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        pairs[k].x = x[k];
        pairs[k].y = y[k];
        both[k] = head < keys_end ? exl2k_rope_apply(pairs[k])
                                  : exl2k_pack_f16(exl2k_clamp_f16(x[k]), exl2k_clamp_f16(y[k]));
    }
    /* A query goes where its floats were, K and V into the page. */
    u64 to = from;
    u32 apart = 16;
    if (!query) {
        u32 own = head < keys_end ? head - a.heads : head - keys_end;
        to = exl2k_page_of(a, page, own) + ((u64)(row.y % EXL2K_PAGE_TOKENS) * a.dim + i) * 2;
        to += head < keys_end ? 0 : exl2k_value_offset(a);
        apart = half * 2;
    }
    exl2k_store4(to, exl2k_store_halves(both, 0));
    exl2k_store4(to + apart, exl2k_store_halves(both, 1));
}

/* Permutes the rows of a tile. Each row goes through shared memory: the permutation scatters there, so that global
   memory is accessed in whole lines. */
extern "C" __global__ void __launch_bounds__(256) exl2k_attend_permute(exl2k_attend_args a)
{
    __shared__ __align__(16) u16 staged[EXL2K_PERMUTE_MAX];
    u32 width = a.heads * a.dim;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    /* Load this CTA's tile. */
    uint4 counts = exl2k_load4(a.pass), addresses = exl2k_load4(a.pass + 16);
    if (blockIdx.x >= counts.z) {
        return;
    }
    u64 tiles = addresses.z | (u64)addresses.w << 32;
    uint4 tile = exl2k_load4(tiles + blockIdx.x * sizeof(exl2k_tile)); /* row, rows, pair */
    u32 first = (tile.z + a.group - 1) / a.group; /* the CTAs of a tile divide the rows whose first pair is in the
                                                     tile */
    u32 end = exl2k_min((tile.z + EXL2K_TILE_PAIRS + a.group - 1) / a.group, tile.y);
    /* Row by row: scatter to shared memory, then store. */
    for (u32 row = first + blockIdx.y; row < end; row += EXL2K_PERMUTE_PARTS) {
        u64 at = a.out + (u64)(tile.x + row) * a.out_pitch * 2;
        for (u32 n = threadIdx.x * 8; n < width; n += 256 * 8) {
            uint4 values = exl2k_load4(at + n * 2), indices = exl2k_load_constant4(a.map + n * 2);
            u32 value[4] = { values.x, values.y, values.z, values.w };
            u32 index[4] = { indices.x, indices.y, indices.z, indices.w };
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                staged[index[i] & 0xFFFFu] = (u16)value[i];
                staged[index[i] >> 16] = (u16)(value[i] >> 16);
            }
        }
        __syncthreads();
        for (u32 n = threadIdx.x * 8; n < width; n += 256 * 8) {
            exl2k_store4(at + n * 2, *(const uint4 *)&staged[n]);
        }
        __syncthreads();
    }
}
