/* attend_codes.cuh: attention in decode, from the pages of a quantized cache: the ring, scores and weighted sums.
   takes: attend_merge.cuh, codes.cuh; EXL2K_DIM.
   gives: exl2k_ring_fill, exl2k_ring_start, exl2k_codes_early, exl2k_codes_prepare,
          exl2k_codes_store_own, exl2k_codes_units.

   An element of the ring is a unit: codes of 16 tokens of K, then of V, EXL2K_CODES_PITCH apart; then their scales,
   fp16 [groups][16] each. Groups after the head's last one are copies of it. q is rotated instead of K, and the output
   instead of V (attend_merge.cuh).

   SUBNORMAL  Products with halves in the MMA are exact for subnormal ones, too. So a code c becomes a half by masking
              alone: bits 0 to 3, or 0 to 7, are 2^-24 c, bits 4 to 7 are 2^-20 c. A code means c - 2^(bits - 1); what
              is too much is taken away by another MMA, which multiplies the same B operand by that constant. The scale
              of K multiplies the group's part of a score, that of V a weight. */
#ifndef EXL2K_ATTEND_CODES_CUH
#define EXL2K_ATTEND_CODES_CUH

#include "attend_merge.cuh"

#define EXL2K_GROUPS (EXL2K_DIM / 32)

/* ---- the ring ---- */

/* Starts to copy the codes of K or V of a unit. They lie side by side, also those that the row does not attend to. */
EXL2K_FN void exl2k_codes_fill(const exl2k_decode &d, const exl2k_attend_args &a, u64 from, u32 bits, u32 slot)
{
    u32 each = bits == 8 ? 2 * EXL2K_GROUPS : EXL2K_GROUPS; /* pieces of a token; 32 / each tokens at a time */
    u32 token = bits == 8 ? d.lane / (2 * EXL2K_GROUPS) : d.lane / EXL2K_GROUPS, piece = d.lane % each;
    u32 token_bytes = exl2k_groups(a) * 4 * bits, pitch = EXL2K_CODES_PITCH(bits, EXL2K_GROUPS);
    from += token * token_bytes + exl2k_min(piece, token_bytes / 16 - 1) * 16;
    slot += token * pitch + piece * 16;
#pragma unroll
    for (u32 i = 0; i < EXL2K_GROUPS; i++) {
        if (i < each / 2) {
            exl2k_copy16_once(slot + i * (32 / each) * pitch, from + i * (32 / each) * token_bytes);
        }
    }
}

/* Offsets in a slot: of V, of the scales. */
EXL2K_FN u32 exl2k_slot_values(u32 key_bits) { return EXL2K_UNIT * EXL2K_CODES_PITCH(key_bits, EXL2K_GROUPS); }

EXL2K_FN u32 exl2k_slot_scales(u32 key_bits, u32 value_bits)
{
    return exl2k_slot_values(key_bits) + EXL2K_UNIT * EXL2K_CODES_PITCH(value_bits, EXL2K_GROUPS);
}

/* Starts to copy element e. Commits a group even if there is no such element. */
EXL2K_FN void exl2k_ring_fill(exl2k_decode &d, const exl2k_attend_args &a, u32 key_bits, u32 value_bits, u32 e,
                              u32 slot)
{
    if (e < d.units) {
        u32 token = exl2k_unit_token(d, e), groups = exl2k_groups(a), page = exl2k_unit_page(d, token);
        token %= EXL2K_PAGE_TOKENS;
        u64 keys = exl2k_codes_head(a, page, d.kv_head), values = keys + groups * 256 * key_bits;
        exl2k_codes_fill(d, a, keys + token * groups * 4 * key_bits, key_bits, slot);
        exl2k_codes_fill(d, a, values + token * groups * 4 * value_bits, value_bits,
                         slot + exl2k_slot_values(key_bits));
        if (d.lane < 4 * EXL2K_GROUPS) {
            u32 group = exl2k_min(d.lane / 2 % EXL2K_GROUPS, groups - 1) + d.lane / (2 * EXL2K_GROUPS) * groups;
            exl2k_copy16_once(slot + exl2k_slot_scales(key_bits, value_bits) + d.lane * 16,
                              values + groups * 256 * value_bits + group * EXL2K_PAGE_TOKENS * 2 + token * 2
                                  + d.lane % 2 * 16);
        }
    }
    exl2k_copy_commit();
}

/* Fills the ring from element e on, `old`: up to the first one that has tokens of this launch, which
   exl2k_attend_quantize may not have stored yet. Returns the next element. */
EXL2K_FN u32 exl2k_ring_start(exl2k_decode &d, const exl2k_attend_args &a, u32 e, bool old)
{
#pragma unroll 1
    for (; e < d.stages && !(old && exl2k_unit_token(d, e) + EXL2K_UNIT > d.position - d.back); e++) {
        exl2k_ring_fill(d, a, a.key_bits, a.value_bits, e, d.ring + e * exl2k_slot_bytes(a));
    }
    return e;
}

/* ---- queries, and K and V of the launch's rows ---- */

/* The first token of the split whose K and V come from qkv; d.end: there is none. */
EXL2K_FN u32 exl2k_codes_new(const exl2k_decode &d, const exl2k_attend_args &a)
{
    return a.stores ? exl2k_min(exl2k_max(d.position - d.back, d.begin), d.end) : d.end;
}

/* Loads what no preceding kernel writes: the row's angles, into L1, and its page. */
EXL2K_FN u32 exl2k_codes_early(const exl2k_decode &d, const exl2k_attend_args &a)
{
    f32 c, s;
#pragma unroll
    for (u32 k = 0; k < EXL2K_DIM / 64; k++) {
        exl2k_rope_load_line(a, d.position + d.turn, exl2k_min(d.lane + 32 * k, a.dim / 2 - 1), c, s);
    }
    return exl2k_load(d.table + d.position / EXL2K_PAGE_TOKENS * 4);
}

/* Rotates the queries into shared memory; if decode stores K and V, quantizes those of this row and of rows before
   it. */
EXL2K_FN void exl2k_codes_prepare(const exl2k_decode &d, const exl2k_attend_args &a, u32 page,
                                  exl2k_decode_shared *shared)
{
    u32 first = exl2k_codes_new(d, a);
#pragma unroll 1
    for (u32 n = d.warp; n < d.heads + (d.end - first) * 2; n += EXL2K_DECODE_WARPS) {
        bool query = n < d.heads, value = !query && (n - d.heads) % 2;
        u32 head = query ? d.head + n : a.heads + d.kv_head + (value ? a.kv_heads : 0);
        u32 position = query ? d.position : first + (n - d.heads) / 2, back = d.position - position;
        f32 v[EXL2K_GROUPS];
        exl2k_head_elements<EXL2K_GROUPS>(a, d.row - back, position + d.turn, head * a.dim, value,
                                          shared->staged[d.warp], v);
        if (query) {
#pragma unroll
            for (u32 b = 0; b < EXL2K_GROUPS; b++) {
                shared->query[n][32 * b + d.lane] = (u16)exl2k_f32_to_f16(exl2k_clamp_f16(v[b]));
            }
            continue;
        }
        exl2k_codes_make<EXL2K_GROUPS>(v, value ? a.value_bits : a.key_bits,
                                       shared->new_kv[position % EXL2K_KEPT][value]);
    }
    if (threadIdx.x == 0) {
        shared->page = page;
    }
    /* Heads after the last one are 0. */
#pragma unroll 1
    for (u32 i = threadIdx.x + d.heads * (EXL2K_DIM / 2); i < EXL2K_HEAD_TILE * (EXL2K_DIM / 2);
         i += EXL2K_DECODE_THREADS) {
        *(u32 *)&shared->query[i / (EXL2K_DIM / 2)][i % (EXL2K_DIM / 2) * 2] = 0;
    }
}

/* Stores K and V of this row into its page. The last warps do this: in a merge they have the fewest heads. */
EXL2K_FN void exl2k_codes_store_own(const exl2k_decode &d, const exl2k_attend_args &a,
                                    const exl2k_decode_shared *shared)
{
    u32 value = d.warp % 2;
    if (a.stores && d.writes && d.end == d.position + 1 && d.warp >= EXL2K_DECODE_WARPS - 2) {
        exl2k_codes_store<EXL2K_GROUPS>(a, shared->page, d.position, d.kv_head, value,
                                        shared->new_kv[d.position % EXL2K_KEPT][value]);
    }
}

/* Adds to a unit what its copies lack: tokens from `first` on, and scales of 0 for V that the row does not attend to,
   which may be NaN. */
EXL2K_FN void exl2k_codes_patch(const exl2k_decode &d, const exl2k_attend_args &a, u32 key_bits, u32 value_bits,
                                u32 token, u32 slot, u32 first, const exl2k_decode_shared *shared)
{
    u32 scales = slot + exl2k_slot_scales(key_bits, value_bits);
    if (token >= d.first && token + EXL2K_UNIT <= first) {
        return;
    }
#pragma unroll
    for (u32 i = 0; i < EXL2K_GROUPS; i += 2) {
        u32 at = token + d.lane % EXL2K_UNIT;
        if (at < d.first || at >= d.end) {
            exl2k_shared_store_u16(scales + (EXL2K_GROUPS + i) * 32 + d.lane * 2, 0);
        }
    }
    u32 end = exl2k_min(d.end, token + EXL2K_UNIT), groups = exl2k_groups(a);
#pragma unroll 1
    for (u32 n = exl2k_max(first, token) * 2; n < end * 2; n++) {
        u32 value = n % 2, bits = value ? value_bits : key_bits, line = n / 2 - token;
        u32 at = slot + (value ? exl2k_slot_values(key_bits) : 0) + line * EXL2K_CODES_PITCH(bits, EXL2K_GROUPS);
        const u16 *from = shared->new_kv[n / 2 % EXL2K_KEPT][value];
#pragma unroll 1
        for (u32 i = d.lane; i < groups * bits; i += 32) {
            exl2k_shared_store(at + i * 4, ((const u32 *)from)[i]);
        }
        if (d.lane < EXL2K_GROUPS) {
            exl2k_shared_store_u16(scales + (value * EXL2K_GROUPS + d.lane) * 32 + line * 2,
                                   from[16 * EXL2K_GROUPS + exl2k_min(d.lane, groups - 1)]);
        }
    }
    __syncwarp();
}

/* ---- sums ---- */

/* Offset of the row of codes that this lane gives to exl2k_ldmatrix4: tiles of tokens 0..7 and 8..15 of 16 bytes, then
   the same of the next 16 bytes. */
EXL2K_FN u32 exl2k_codes_row(u32 lane, u32 bits)
{
    return lane % 16 * EXL2K_CODES_PITCH(bits, EXL2K_GROUPS) + lane / 16 * 16;
}

/* Pair n of the codes of a word, as subnormal halves: of one token of K; of two tokens of V. */
template <u32 BITS, bool VALUE> EXL2K_FN u32 exl2k_code_pair(u32 word, u32 n)
{
    if (BITS == 8) {
        return exl2k_permute_bytes(word, 0, VALUE ? (n % 2 ? 0x4341 : 0x4240) : (n % 2 ? 0x4342 : 0x4140));
    }
    return (n / 2 ? word >> 8 : word) & (n % 2 ? 0x00F000F0u : 0x000F000Fu);
}

/* What an operand for codes has too much, negative. high: of bits 4 to 7. */
template <u32 BITS> EXL2K_FN u32 exl2k_code_zero(bool high) { return BITS == 8 || high ? 0x80808080u : 0x80088008u; }

/* Loads the queries, in the order of the words of K that a lane has; zero: what parts of scores begin with. */
template <u32 BITS>
EXL2K_FN void exl2k_codes_queries(u32 query[EXL2K_STEPS][2], f32 zero[EXL2K_GROUPS][4], u32 lane,
                                  const exl2k_decode_shared *shared)
{
#pragma unroll
    for (u32 k = 0; k < EXL2K_STEPS; k++) {
        const u16 *head = shared->query[lane / 4];
        if (BITS == 8) { /* dims 8 (2 h + t / 2) + t % 2 + 0, 2, 4, 6 of a group, for half h of it */
            uint4 q = *(const uint4 *)(head + k / 2 * 32 + (k % 2 * 2 + lane % 4 / 2) * 8);
            u32 pick = lane % 2 ? 0x7632 : 0x5410;
            query[k][0] = exl2k_permute_bytes(q.x, q.y, pick);
            query[k][1] = exl2k_permute_bytes(q.z, q.w, pick);
        } else { /* dims 8 t + 0, 1 and + 2, 3, then + 4, 5 and + 6, 7; bits 4 to 7 are 16 times as much */
            uint2 q = *(const uint2 *)(head + k / 2 * 32 + lane % 4 * 8 + k % 2 * 4);
            query[k][0] = q.x;
            query[k][1] = exl2k_mul2(q.y, 0x2C002C00u);
        }
    }
    const u32 rows[4] = { exl2k_code_zero<BITS>(false), exl2k_code_zero<BITS>(false), exl2k_code_zero<BITS>(true),
                          exl2k_code_zero<BITS>(true) };
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        zero[b][0] = zero[b][1] = zero[b][2] = zero[b][3] = 0.0f;
        exl2k_mma(zero[b], rows, query[2 * b][0], query[2 * b][1]);
        exl2k_mma(zero[b], rows, query[2 * b + 1][0], query[2 * b + 1][1]);
    }
}

/* Scores of a unit, times 2^-24. zero: what a group's part begins with. */
template <u32 BITS>
EXL2K_FN void exl2k_codes_scores(f32 score[4], u32 lane, u32 slot, u32 scales, const u32 query[EXL2K_STEPS][2],
                                 const f32 zero[EXL2K_GROUPS][4])
{
    /* A lane gets the scales of tokens g and g + 8: two groups in a word. */
    u32 from = scales + lane % 2 * 32 + lane / 8 % 2 * 16 + lane / 16 * 64;
    uint4 scale[(EXL2K_GROUPS + 3) / 4], words[EXL2K_GROUPS * BITS / 8];
#pragma unroll
    for (u32 i = 0; i < EXL2K_GROUPS * BITS / 8; i++) {
        words[i] = exl2k_ldmatrix4(slot + exl2k_codes_row(lane, BITS) + 32 * i);
    }
#pragma unroll
    for (u32 i = 0; i < (EXL2K_GROUPS + 3) / 4; i++) {
        scale[i] = exl2k_ldmatrix4_transposed(from + 128 * i);
    }
    score[0] = score[1] = score[2] = score[3] = 0.0f;
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        f32 part[4] = { zero[b][0], zero[b][1], zero[b][2], zero[b][3] };
#pragma unroll
        for (u32 i = 0; i < 2; i++) { /* words of 8 bits: the halves of a group; of 4 bits: groups, two MMAs each */
            uint4 w = words[BITS == 8 ? b : b / 2];
            bool second = BITS == 8 ? i : b % 2;
            u32 near = second ? w.z : w.x, far = second ? w.w : w.y, n = BITS == 8 ? 0 : 2 * i;
            u32 rows[4] = { exl2k_code_pair<BITS, false>(near, n), exl2k_code_pair<BITS, false>(far, n),
                            exl2k_code_pair<BITS, false>(near, n + 1), exl2k_code_pair<BITS, false>(far, n + 1) };
            exl2k_mma(part, rows, query[2 * b + i][0], query[2 * b + i][1]);
        }
        u32 near = b % 4 < 2 ? scale[b / 4].x : scale[b / 4].z, far = b % 4 < 2 ? scale[b / 4].y : scale[b / 4].w;
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 pair = j < 2 ? near : far;
            score[j] = fmaf(part[j], b % 2 ? exl2k_high(pair) : exl2k_low(pair), score[j]);
        }
    }
}

/* A sum is rescaled only if a score exceeds its reference score by more than this. Weights are at most 2^4, and their
   products with scales overflow only if V has elements beyond 2^15. */
#define EXL2K_CODES_GROWTH 4.0f

/* As exl2k_softmax_step, of scaled scores; max_score is the reference score. Each head decides for itself whether its
   own changes. */
EXL2K_FN void exl2k_codes_softmax(exl2k_warp_sums &s, f32 score[4], u32 nth, u32 seen, u32 weights[2])
{
    u32 g = threadIdx.x % 32 / 4;
    f32 most[2];
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        score[j] = nth + g < seen ? score[j] : EXL2K_MINUS_INF;
        score[2 + j] = nth + g + 8 < seen ? score[2 + j] : EXL2K_MINUS_INF;
        most[j] = fmaxf(score[j], score[2 + j]);
    }
    if (__any_sync(EXL2K_ALL, most[0] > s.max_score[0] + EXL2K_CODES_GROWTH
                                  || most[1] > s.max_score[1] + EXL2K_CODES_GROWTH)) {
#pragma unroll
        for (u32 j = 0; j < 2; j++) {
#pragma unroll
            for (u32 step = 4; step < 32; step *= 2) {
                most[j] = fmaxf(most[j], __shfl_xor_sync(EXL2K_ALL, most[j], step));
            }
            most[j] = most[j] > s.max_score[j] + EXL2K_CODES_GROWTH ? most[j] : s.max_score[j];
            f32 factor = exl2k_exp2(s.max_score[j] - most[j]);
            s.max_score[j] = most[j];
            s.total[j] *= factor;
#pragma unroll
            for (u32 k = 0; k < EXL2K_STEPS; k++) {
                s.out[k][j] *= factor;
                s.out[k][2 + j] *= factor;
            }
        }
    }
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        score[j] = exl2k_exp2(score[j] - s.max_score[j]);
        score[2 + j] = exl2k_exp2(score[2 + j] - s.max_score[j]);
        s.total[j] += score[j] + score[2 + j];
    }
    weights[0] = exl2k_transpose(exl2k_pack_f16(score[0], score[1]));
    weights[1] = exl2k_transpose(exl2k_pack_f16(score[2], score[3]));
}

/* Adds the weighted sum of a unit's V, times 2^-24, or 2^-20 where its codes are in bits 4 to 7. */
template <u32 BITS>
EXL2K_FN void exl2k_codes_sum(f32 out[EXL2K_STEPS][4], u32 lane, const uint4 words[EXL2K_GROUPS * BITS / 8],
                              const uint4 scales[EXL2K_GROUPS / 2], const u32 weights[2])
{
    const u32 zero[4] = { exl2k_code_zero<BITS>(false), exl2k_code_zero<BITS>(true), exl2k_code_zero<BITS>(false),
                          exl2k_code_zero<BITS>(true) };
#pragma unroll
    for (u32 b = 0; b < EXL2K_GROUPS; b++) {
        uint4 scale = scales[b / 2];
        u32 near = exl2k_mul2(weights[0], b % 2 ? scale.z : scale.x);
        u32 far = exl2k_mul2(weights[1], b % 2 ? scale.w : scale.y);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            uint4 w = words[BITS == 8 ? b : b / 2];
            bool second = BITS == 8 ? i : b % 2;
            u32 first = second ? w.z : w.x, last = second ? w.w : w.y, n = BITS == 8 ? 0 : 2 * i;
            u32 rows[4] = { exl2k_code_pair<BITS, true>(first, n), exl2k_code_pair<BITS, true>(first, n + 1),
                            exl2k_code_pair<BITS, true>(last, n), exl2k_code_pair<BITS, true>(last, n + 1) };
            exl2k_mma(out[2 * b + i], zero, near, far);
            exl2k_mma(out[2 * b + i], rows, near, far);
        }
    }
}

/* The dim of a sum that a lane has: row g + 8 high of the MMA k. */
EXL2K_FN u32 exl2k_codes_dim(u32 k, u32 g, u32 high, u32 bits)
{
    return bits == 8 ? k / 2 * 32 + (k % 2 * 2 + g / 4) * 8 + g % 2 * 4 + g % 4 / 2 + high * 2
                     : k / 2 * 32 + g / 2 * 8 + g % 2 + (k % 2 * 2 + high) * 2;
}

/* Works through all units of the warp. */
template <u32 KEY_BITS, u32 VALUE_BITS>
EXL2K_FN void exl2k_codes_units(exl2k_decode &d, const exl2k_attend_args &a, exl2k_warp_sums &s,
                                const exl2k_decode_shared *shared)
{
    const u32 slot_bytes = EXL2K_CODES_SLOT(KEY_BITS, VALUE_BITS, EXL2K_GROUPS);
    u32 query[EXL2K_STEPS][2], at = d.ring, first = exl2k_codes_new(d, a);
    f32 zero[EXL2K_GROUPS][4], scale = (a.tanh_scale > 0.0f ? 2.0f * a.tanh_scale : a.scale) * EXL2K_LOG2E;
    scale *= 16777216.0f; /* 2^24 */
    exl2k_codes_queries<KEY_BITS>(query, zero, d.lane, shared);
#pragma unroll 1
    for (u32 u = 0; u < d.units; u++) {
        u32 token = exl2k_unit_token(d, u), scales_at = at + exl2k_slot_scales(KEY_BITS, VALUE_BITS), weights[2];
        uint4 words[EXL2K_GROUPS * VALUE_BITS / 8], scales[EXL2K_GROUPS / 2];
        f32 score[4];
        if (EXL2K_DIM == 64 && d.stages >= 8) { /* fewer cases than exl2k_ring_wait has: they cost more than they
                                                   gain */
            exl2k_copy_wait<7>();
        } else if (d.stages >= 4) {
            exl2k_copy_wait<3>();
        } else if (d.stages >= 2) {
            exl2k_copy_wait<1>();
        } else {
            exl2k_copy_wait<0>();
        }
        __syncwarp();
        exl2k_codes_patch(d, a, KEY_BITS, VALUE_BITS, token, at, first, shared);
        exl2k_codes_scores<KEY_BITS>(score, d.lane, at, scales_at, query, zero);
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            score[j] *= scale;
            score[j] = a.tanh_scale > 0.0f ? exl2k_tanh(score[j]) * a.scale * EXL2K_LOG2E : score[j];
        }
#pragma unroll
        for (u32 i = 0; i < EXL2K_GROUPS * VALUE_BITS / 8; i++) {
            words[i] = exl2k_ldmatrix4_transposed(at + exl2k_slot_values(KEY_BITS) + exl2k_codes_row(d.lane, VALUE_BITS)
                                                  + 32 * i);
        }
#pragma unroll
        for (u32 i = 0; i < EXL2K_GROUPS / 2; i++) { /* tokens 2t, 2t + 1 and 2t + 8, 2t + 9 of two groups */
            scales[i] = exl2k_ldmatrix4(scales_at + EXL2K_GROUPS * 32 + d.lane / 8 * 16 + 64 * i);
        }
        exl2k_codes_softmax(s, score, token - d.first, d.end - d.first, weights);
        exl2k_codes_sum<VALUE_BITS>(s.out, d.lane, words, scales, weights);
        __syncwarp();
        exl2k_ring_fill(d, a, KEY_BITS, VALUE_BITS, u + d.stages, at);
        at = at + slot_bytes < d.ring + d.stages * slot_bytes ? at + slot_bytes : d.ring;
    }
}

#endif
