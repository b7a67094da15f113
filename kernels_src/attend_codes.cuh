/* attend_codes.cuh: attention in decode, from the pages of a quantized cache: the ring, scores and weighted sums.
   takes: attend_ring.cuh, codes.cuh; EXL2K_DIM.
   gives: exl2k_ring_fill, exl2k_ring_start, exl2k_codes_own, exl2k_codes_patch, exl2k_codes_queries,
          exl2k_codes_scores, exl2k_codes_values, exl2k_codes_sum, exl2k_codes_rotate_back.
   owns:  nothing.

   An element of the ring is a unit: K, then V, each as the codes of 16 tokens, exl2k_codes_pitch apart, and scales
   [groups][16]. Codes are multiplied as they are: the scale of K multiplies the group's part of a score, that of V a
   weight. q is rotated instead of K, and the output instead of V. */
#ifndef EXL2K_ATTEND_CODES_CUH
#define EXL2K_ATTEND_CODES_CUH

#include "attend_ring.cuh"
#include "codes.cuh"

#define EXL2K_GROUPS (EXL2K_DIM / 32)

EXL2K_FN u32 exl2k_codes_pitch(const exl2k_attend_args &a, u32 bits) { return 4 * bits * (exl2k_groups(a) | 1); }

/* Offset of V in a slot. */
EXL2K_FN u32 exl2k_codes_value(const exl2k_attend_args &a) { return EXL2K_CODES_BYTES(a.key_bits, exl2k_groups(a)); }

/* Starts to copy K or V of a unit, whose tokens lie side by side. Copies those that the row does not attend to, too. */
EXL2K_FN void exl2k_codes_fill(const exl2k_decode &d, const exl2k_attend_args &a, u64 from, u64 scales, u32 bits,
                               u32 slot)
{
    u32 groups = exl2k_groups(a), each = groups * bits / 4; /* pieces of a token */
    u32 padding = groups % 2 ? 0 : 4 * bits, inverse = 65536 / each + 1;
#pragma unroll
    for (u32 i = 0; i < EXL2K_UNIT * EXL2K_GROUPS * 2; i += 32) {
        u32 piece = d.lane + i;
        if (piece < EXL2K_UNIT * each) {
            exl2k_copy16(slot + piece * 16 + (piece * inverse >> 16) * padding, from + piece * 16);
        }
    }
    if (d.lane < 2 * groups) {
        exl2k_copy16(slot + EXL2K_UNIT * exl2k_codes_pitch(a, bits) + d.lane * 16,
                     scales + d.lane / 2 * EXL2K_PAGE_TOKENS * 2 + d.lane % 2 * 16);
    }
}

/* Starts to copy element e. Commits a group even if there is no such element. */
EXL2K_FN void exl2k_ring_fill(exl2k_decode &d, const exl2k_attend_args &a, u32 e, u32 slot)
{
    if (e < d.units) {
        u32 token = exl2k_unit_token(d, e), row_bytes = exl2k_groups(a) * 4, page = exl2k_unit_page(d, token);
        token %= EXL2K_PAGE_TOKENS;
        u64 keys = exl2k_codes_at(a, page, d.kv_head, false) + token * row_bytes * a.key_bits;
        u64 values = exl2k_codes_at(a, page, d.kv_head, true) + token * row_bytes * a.value_bits;
        u64 scales = exl2k_scales_at(a, page, d.kv_head, false) + token * 2;
        exl2k_codes_fill(d, a, keys, scales, a.key_bits, slot);
        exl2k_codes_fill(d, a, values, scales + row_bytes * 32, a.value_bits, slot + exl2k_codes_value(a));
    }
    exl2k_copy_commit();
}

/* Fills the ring from element e on, `old`: up to the first one that has tokens of this launch, which
   exl2k_attend_quantize may not have stored yet. Returns the next element. */
EXL2K_FN u32 exl2k_ring_start(exl2k_decode &d, const exl2k_attend_args &a, u32 e, bool old)
{
#pragma unroll 1
    for (; e < d.stages && !(old && exl2k_unit_token(d, e) + EXL2K_UNIT > d.position - d.back); e++) {
        exl2k_ring_fill(d, a, e, d.ring + e * exl2k_slot_bytes(a));
    }
    return e;
}

/* ---- the row's own token, where decode stores it ---- */

/* Quantizes K and V of the row into shared memory and into its page. The last warps do this: they have the fewest
   units. */
EXL2K_FN void exl2k_codes_own(exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    u32 groups = exl2k_groups(a), item = EXL2K_DECODE_THREADS - 1 - threadIdx.x, part = 3 - item % 4;
    u32 group = item / 4 % groups, page = exl2k_unit_page(d, d.end - 1);
    bool value = item / 4 >= groups;
    if (item / 32 * 32 < groups * 8) { /* whole warps */
        uint2 codes;
        u32 scale = exl2k_quantize_row(a, d.row, d.position, d.kv_head, value, group, part, codes);
        if (item < groups * 8) {
            u32 bits = value ? a.value_bits : a.key_bits, own = exl2k_shared(shared->new_kv[0][value]);
            exl2k_shared_store(own + group * 4 * bits + part * bits, codes.x);
            if (bits == 8) {
                exl2k_shared_store(own + group * 4 * bits + part * bits + 4, codes.y);
            }
            if (part == 0) {
                exl2k_shared_store_u16(own + EXL2K_DIM + group * 2, scale);
            }
            if (d.writes && d.end == d.position + 1) {
                exl2k_codes_store(a, page, d.position, d.kv_head, value, group, part, codes, scale);
            }
        }
    }
}

/* Overwrites the row's own token in a unit. */
EXL2K_FN void exl2k_codes_patch(const exl2k_decode &d, const exl2k_attend_args &a, u32 token, u32 slot,
                                const exl2k_decode_shared *shared)
{
    u32 groups = exl2k_groups(a), nth = d.position - token;
    if (!a.stores || nth >= EXL2K_UNIT || d.end != d.position + 1) {
        return;
    }
#pragma unroll 1
    for (u32 value = 0; value < 2; value++) {
        u32 bits = value ? a.value_bits : a.key_bits, pitch = exl2k_codes_pitch(a, bits);
        u32 at = slot + (value ? exl2k_codes_value(a) : 0);
        const u16 *own = shared->new_kv[0][value];
        for (u32 i = d.lane; i < groups * bits; i += 32) {
            exl2k_shared_store(at + nth * pitch + i * 4, ((const u32 *)own)[i]);
        }
        if (d.lane < groups) {
            exl2k_shared_store_u16(at + EXL2K_UNIT * pitch + d.lane * 32 + nth * 2, own[EXL2K_DIM / 2 + d.lane]);
        }
    }
    __syncwarp();
}

/* ---- sums ---- */

EXL2K_FN u32 exl2k_shared_load_u16(u32 at)
{
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}

/* Rotates the queries that this warp has stored. Four lanes have a group. */
EXL2K_FN void exl2k_codes_queries(const exl2k_decode &d, const exl2k_attend_args &a, exl2k_decode_shared *shared)
{
    __syncwarp();
#pragma unroll
    for (u32 n = 0; n < EXL2K_QUERIES; n++) {
        u32 head = exl2k_min(d.warp + n * EXL2K_DECODE_WARPS, EXL2K_HEAD_TILE - 1);
        uint4 *at = (uint4 *)&shared->query[head][d.lane % (EXL2K_GROUPS * 4) * 8], q = *at;
        f32 v[8] = { exl2k_low(q.x), exl2k_high(q.x), exl2k_low(q.y), exl2k_high(q.y),
                     exl2k_low(q.z), exl2k_high(q.z), exl2k_low(q.w), exl2k_high(q.w) };
        exl2k_rotate<8>(v, exl2k_group_short(a, d.lane / 4 % EXL2K_GROUPS), EXL2K_ALL);
        u32 pairs[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            pairs[i] = exl2k_pack_f16(exl2k_clamp_f16(v[2 * i]), exl2k_clamp_f16(v[2 * i + 1]));
        }
        if (d.lane < EXL2K_GROUPS * 4 && d.warp + n * EXL2K_DECODE_WARPS < EXL2K_HEAD_TILE) {
            *at = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}

/* The lane's pairs of a group of a token of K: its 8 dims. */
template <u32 BITS> EXL2K_FN void exl2k_key_pairs(u32 at, u32 pairs[4])
{
    if (BITS == 8) {
        uint2 codes = exl2k_shared_load2(at);
        exl2k_code_pairs<8>(codes.x, codes.y, pairs);
    } else {
        exl2k_word_pairs(exl2k_shared_load(at), pairs);
    }
}

/* Scores of a unit. query[2 b], [2 b + 1]: dims 32 b + 8 t .. + 7 of head g; those after the last group are 0. */
template <u32 BITS>
EXL2K_FN void exl2k_codes_scores(f32 score[4], const exl2k_attend_args &a, u32 lane, u32 slot,
                                 const u32 query[EXL2K_STEPS][2])
{
    u32 pitch = exl2k_codes_pitch(a, BITS), at = slot + lane / 4 * pitch + lane % 4 * BITS;
    u32 scales = slot + EXL2K_UNIT * pitch + lane / 4 * 2;
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        score[j] = 0.0f;
    }
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        u32 group = exl2k_min(b, exl2k_groups(a) - 1), near[4], far[4]; /* token g, token g + 8 */
        f32 part[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
        exl2k_key_pairs<BITS>(at + group * 4 * BITS, near);
        exl2k_key_pairs<BITS>(at + 8 * pitch + group * 4 * BITS, far);
        f32 scale[2] = { exl2k_f16_to_f32(exl2k_shared_load_u16(scales + group * 32)),
                         exl2k_f16_to_f32(exl2k_shared_load_u16(scales + group * 32 + 16)) };
#pragma unroll
        for (u32 i = 0; i < 4; i += 2) {
            u32 rows[4] = { near[i], far[i], near[i + 1], far[i + 1] };
            exl2k_mma(part, rows, query[2 * b + i / 2][0], query[2 * b + i / 2][1]);
        }
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            score[j] = fmaf(part[j], scale[j / 2], score[j]);
        }
    }
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        score[j] *= exl2k_code_unit(BITS);
    }
}

/* The lane's V of a unit: four codes of tokens 2t, 2t + 1, 2t + 8, 2t + 9 in each group, and their scales. */
typedef struct exl2k_unit_values {
    u32 codes[EXL2K_GROUPS][4], scales[EXL2K_GROUPS][2];
} exl2k_unit_values;

template <u32 BITS>
EXL2K_FN void exl2k_codes_values(exl2k_unit_values &v, const exl2k_attend_args &a, u32 lane, u32 slot)
{
    u32 pitch = exl2k_codes_pitch(a, BITS), at = slot + lane % 4 * 2 * pitch + lane / 4 * (BITS / 2);
    u32 scales = slot + EXL2K_UNIT * pitch + lane % 4 * 4;
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        u32 group = exl2k_min(b, exl2k_groups(a) - 1);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 from = at + (i % 2 + i / 2 * 8) * pitch + group * 4 * BITS;
            v.codes[b][i] = BITS == 8 ? exl2k_shared_load(from) : exl2k_shared_load_u16(from);
        }
        v.scales[b][0] = exl2k_shared_load(scales + group * 32);
        v.scales[b][1] = exl2k_shared_load(scales + group * 32 + 16);
    }
}

/* Adds the weighted sum of a unit's V. A row of the MMA is dim 32 b + 8 (g / 2) + g % 2 + 2 n of the lane's four codes
   n. nth, seen: as for exl2k_softmax_step; a scale that the row does not see may be NaN. */
template <u32 BITS>
EXL2K_FN void exl2k_codes_sum(f32 out[EXL2K_STEPS][4], const exl2k_unit_values &v, u32 lane, const u32 weights[2],
                              u32 nth, u32 seen)
{
    u32 weight[2], mask[2];
#pragma unroll
    for (u32 k = 0; k < 2; k++) { /* tokens 2t + 8k, + 1 */
        u32 token = nth + lane % 4 * 2 + 8 * k;
        weight[k] = BITS == 8 ? exl2k_mul2(weights[k], 0x4C004C00u) : weights[k]; /* exl2k_code_unit */
        mask[k] = (token < seen ? 0xFFFFu : 0) | (token + 1 < seen ? 0xFFFF0000u : 0);
    }
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        u32 pairs[2][4], scaled[2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            exl2k_code_pairs<BITS>(v.codes[b][2 * k], v.codes[b][2 * k + 1], pairs[k]);
            scaled[k] = exl2k_mul2(weight[k], v.scales[b][k] & mask[k]);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i += 2) {
            u32 rows[4] = { pairs[0][i], pairs[0][i + 1], pairs[1][i], pairs[1][i + 1] };
            exl2k_mma(out[2 * b + i / 2], rows, scaled[0], scaled[1]);
        }
    }
}

/* Rotates four adjacent dims of a head back. lanes: those that have dims of the head. */
EXL2K_FN void exl2k_codes_rotate_back(const exl2k_attend_args &a, u32 dim, u32 lanes, float4 &values)
{
    f32 v[4] = { values.x, values.y, values.z, values.w };
    exl2k_rotate<4>(v, exl2k_group_short(a, dim / 32), lanes);
    values = make_float4(v[0], v[1], v[2], v[3]);
}

#endif
