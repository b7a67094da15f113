/* gemv_team.cuh: the product of 9 to 16 rows with one matrix, by teams of warps that share their inputs.
   takes: what gemv.cuh defines before it includes this file; sm_90a.
   gives: exl2k_gemv_team: the body of a kernel; grid = CTAs (one per SM), EXL2K_TEAM_THREADS threads.
   owns:  nothing; included by gemv.cuh only.

   In products of fewer rows each warp has a slice of K, and keeps the inputs of a chunk in registers. With 16 rows these
   are 64 registers, and loading them lasts as long as a product with two strips. Here the 16 warps of a block of P strips
   form 16 / P GROUPS of warps. A warp has one strip, and group k has the k-th range of its slices. A TEAM is the warps of
   a group whose strips belong to one part of the matrix: they need the same inputs at about the same time. Four more
   warps, the HELPERS, copy these inputs to stages in shared memory, two records (128 inputs) at a time, and add them up.

   BITS. A chunk's sum, a slice's sum and the sum of the slices are added in the order in which products of fewer rows add
   them. The first group adds up its slices as it goes; each of the other groups' slices has a partial sum of its own, as
   the slices before it are not known. */
#ifndef EXL2K_GEMV_TEAM_CUH
#define EXL2K_GEMV_TEAM_CUH

#include "wg.cuh"

#define EXL2K_TEAM_SUMS 128u    /* bytes of the initial sums of a half */
#define EXL2K_TEAM_SCALES 1024u /* bytes of scales of a warp's chunk; affine: and of zeros */

/* Shared memory. base: barriers; then the chunk tables of all parts, scales of each warp, the rings of weights, the
   stages of all teams, partial sums [strip][slot], and what results need. */
typedef struct exl2k_team_shared { u32 base, tables, scales, rings, stages, sums, small; } exl2k_team_shared;

EXL2K_FN u32 exl2k_team_strips(const exl2k_gemv_args &a) { return a.block << a.matrix.interleaved; }

EXL2K_FN exl2k_team_shared exl2k_team_shared_of(const exl2k_gemv_args &a, u32 base)
{
    exl2k_team_shared s;
    u32 chunks = a.matrix.part[0].chunk_count;
    chunks += a.matrix.parts > 1 ? a.matrix.part[1].chunk_count : 0;
    chunks += a.matrix.parts > 2 ? a.matrix.part[2].chunk_count : 0;
    s.base = base;
    s.tables = base + EXL2K_TEAM_BARRIERS;
    s.scales = s.tables + chunks * (u32)sizeof(exl2k_chunk);
    s.rings = s.scales + exl2k_team_strips(a) * a.groups * EXL2K_TEAM_SCALES;
    s.stages = s.rings + exl2k_team_strips(a) * a.groups * 2 * a.slot_bytes;
    s.sums = s.stages + a.teams * a.stages * EXL2K_TEAM_STAGE_BYTES;
    s.small = s.sums + exl2k_team_strips(a) * a.sums_per_strip * exl2k_partial_bytes<16>();
    return s;
}

/* Barriers: of the two slots of a warp's ring; of a stage: full, added up, empty. */
EXL2K_FN u32 exl2k_team_slot(const exl2k_team_shared &s, u32 warp, u32 slot) { return s.base + warp * 16 + slot * 8; }
EXL2K_FN u32 exl2k_team_stage(const exl2k_gemv_args &a, const exl2k_team_shared &s, u32 team, u32 stage)
{
    return s.base + 256 + (team * a.stages + stage) * 24;
}
enum { EXL2K_TEAM_READY = 8, EXL2K_TEAM_EMPTY = 16, EXL2K_TEAM_WIDTH = 4608 };

EXL2K_FN u32 exl2k_team_stage_at(const exl2k_gemv_args &a, const exl2k_team_shared &s, u32 team, u32 stage)
{
    return s.stages + (team * a.stages + stage) * EXL2K_TEAM_STAGE_BYTES;
}

/* The chunk table of a part in shared memory. */
EXL2K_FN u32 exl2k_team_table(const exl2k_gemv_args &a, const exl2k_team_shared &s, u32 part)
{
    u32 before = part > 0 ? a.matrix.part[0].chunk_count : 0;
    before += part > 1 ? a.matrix.part[1].chunk_count : 0;
    return s.tables + before * (u32)sizeof(exl2k_chunk);
}

/* ---- who does what ---- */

/* Slices of a group: numbers [begin, end); number `slices` is the rest of the chunks. */
EXL2K_FN exl2k_span exl2k_team_slices(const exl2k_gemv_args &a, u32 group)
{
    u32 all = a.matrix.slices + a.matrix.rest;
    return exl2k_span{ exl2k_divide(all * group, a.groups), exl2k_divide(all * (group + 1), a.groups) };
}

EXL2K_FN const exl2k_slice &exl2k_team_slice(const exl2k_gemv_args &a, const exl2k_part &p, u32 number)
{
    return p.slice[number < a.matrix.slices ? number : EXL2K_SLICES_MAX];
}

/* Chunks of a group in a part: [begin, end), side by side in memory. */
EXL2K_FN exl2k_span exl2k_team_chunks(const exl2k_gemv_args &a, const exl2k_part &p, exl2k_span slices)
{
    exl2k_span c;
    c.begin = c.end = exl2k_team_slice(a, p, slices.begin).chunk;
#pragma unroll 1
    for (u32 i = slices.begin; i < slices.end; i++) {
        c.end += exl2k_team_slice(a, p, i).count;
    }
    return c;
}

/* A warp's strip in a block. */
typedef struct exl2k_member {
    u32 part, strip, team; /* strip: of the part */
    u32 local;             /* strip of the block */
    exl2k_span slices, chunks;
    bool works;
} exl2k_member;

EXL2K_FN exl2k_member exl2k_member_of(const exl2k_gemv_args &a, exl2k_span block, u32 warp)
{
    const exl2k_matrix &m = a.matrix;
    exl2k_member r;
    u32 group = warp * a.strips_inverse >> 8;
    r.local = warp - group * exl2k_team_strips(a);
    r.works = group < a.groups && r.local < (block.end - block.begin) << m.interleaved;
    if (m.interleaved) {
        r.part = r.local & 1;
        r.strip = block.begin + r.local / 2;
        r.team = r.part * a.groups + group;
    } else {
        r.part = exl2k_part_at(m, exl2k_min(block.begin + r.local, m.strips - 1));
        r.strip = block.begin + r.local - m.part[r.part].first;
        r.team = (r.part - exl2k_part_at(m, block.begin)) * a.groups + group;
    }
    r.slices = exl2k_team_slices(a, group);
    r.chunks = exl2k_team_chunks(a, m.part[r.part], r.slices);
    return r;
}

/* Strips of a block that belong to a part. */
EXL2K_FN u32 exl2k_team_members(const exl2k_gemv_args &a, exl2k_span block, u32 part)
{
    exl2k_span s = exl2k_strips_of_part(a.matrix.part[part], block);
    return a.matrix.interleaved ? block.end - block.begin : exl2k_max(s.end, s.begin) - s.begin;
}

/* Teams of a block. */
EXL2K_FN u32 exl2k_team_count(const exl2k_gemv_args &a, exl2k_span block)
{
    const exl2k_matrix &m = a.matrix;
    u32 parts = m.interleaved ? 2 : exl2k_part_at(m, block.end - 1) - exl2k_part_at(m, block.begin) + 1;
    return parts * a.groups;
}

/* ---- weights ---- */

/* Copies a chunk into a slot of the warp's ring. */
EXL2K_FN void exl2k_team_copy(const exl2k_gemv_args &a, const exl2k_team_shared &s, u32 warp, u32 job, u64 from,
                              u32 bytes)
{
    if (exl2k_elect()) {
        u32 barrier = exl2k_team_slot(s, warp, job & 1);
        exl2k_barrier_expect(barrier, bytes);
        exl2k_copy_bulk(s.rings + (warp * 2 + (job & 1)) * a.slot_bytes, from, bytes, barrier, exl2k_evict_first());
    }
    __syncwarp();
}

EXL2K_FN u64 exl2k_team_strip_at(const exl2k_gemv_args &a, const exl2k_member &r)
{
    const exl2k_part &p = a.matrix.part[r.part];
    return p.base + (u64)r.strip * p.pitch;
}

/* Copies a block's first two chunks. Their addresses follow from the kernel's arguments alone. */
EXL2K_FN void exl2k_team_start(const exl2k_gemv_args &a, const exl2k_team_shared &s, const exl2k_member &r, u32 warp,
                               u32 job)
{
    const exl2k_part &p = a.matrix.part[r.part];
    u64 from = exl2k_team_strip_at(a, r);
    u32 copied = 0;
#pragma unroll 1
    for (u32 i = r.slices.begin; i < r.slices.end && copied < 2 && r.works; i++) {
        const exl2k_slice &slice = exl2k_team_slice(a, p, i);
        u32 at = slice.offset16, sizes = slice.sizes;
        for (u32 k = 0; k < slice.count && copied < 2; k++, copied++) {
            exl2k_team_copy(a, s, warp, job + copied, from + (u64)at * 16, (sizes & 255) * 16);
            at += sizes & 255;
            sizes >>= 8;
        }
    }
}

/* ---- inputs: the helpers ---- */

/* What a helper knows of a team. */
typedef struct exl2k_team_place { u32 chunk, end, record, copied; } exl2k_team_place; /* copied: stages */

/* Copies up to four halves of 32 inputs to a stage: half h, tile i at (2 h + i) * 512. Halves that the chunk lacks are
   0. x: address of the lane's inputs of rows g and 8 + g. */
EXL2K_FN void exl2k_team_inputs(const exl2k_gemv_args &a, const u64 x[2], u32 entry, u32 record, u32 to, u32 lane)
{
    uint2 place = exl2k_shared_load2(entry), shape = exl2k_shared_load2(entry + 8);
    u32 row = (place.y & 0xFFFF) + 2 * record, halves = (shape.y >> 8 & 255) - 2 * record;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 half = i / 2, at = to + i * 512 + lane * 16;
        if (half < halves) {
            exl2k_copy16(at, x[i % 2] + (u64)(row + half) * a.x_step);
        } else {
            exl2k_shared_store4(at, make_uint4(0, 0, 0, 0));
        }
    }
}

/* Adds up the halves of a stage and stores what their sums begin with, as exl2k_load_inputs does: f32 [half][tile]
   [lane % 4][4] behind the inputs. Row i of A is 1 for half i / 2 of tile i % 2, and the others are 0, so that row i of
   the result is the sum of that half. */
EXL2K_FN void exl2k_team_add(u32 stage, u32 width, u32 lane)
{
    f32 d[2][4];
    exl2k_clear(d[0]);
    exl2k_clear(d[1]);
#pragma unroll 2
    for (u32 i = 0; i < 8; i++) {
        uint4 v = exl2k_shared_load4(stage + i * 512 + lane * 16);
        u32 mine = lane / 4 == i ? 0x3C003C00u : 0;
        const u32 one[4] = { mine, 0, mine, 0 };
        exl2k_mma(d[i % 2], one, v.x, v.y);
        exl2k_mma(d[i % 2], one, v.z, v.w);
    }
    f32 first = d[0][0] + d[1][0], second = d[0][1] + d[1][1];
    f32 low = exl2k_start_factor(width, 0), high = exl2k_start_factor(width, 1);
    exl2k_shared_store4(stage + 4096 + lane * 16,
                        make_uint4(__float_as_uint(first * low), __float_as_uint(second * low),
                                   __float_as_uint(first * high), __float_as_uint(second * high)));
}

/* A helper's part of a block: teams helper, helper + 4, ... Stage n is copied, then stage n - lag is added up. */
EXL2K_FN void exl2k_team_help(const exl2k_gemv_args &a, const exl2k_team_shared &s, exl2k_span block, u32 helper,
                              u32 rows)
{
    u32 lane = threadIdx.x % EXL2K_WARP, teams = exl2k_team_count(a, block);
    u32 first_part = a.matrix.interleaved ? 0 : exl2k_part_at(a.matrix, block.begin);
    u32 places = s.base + EXL2K_TEAM_PLACES;
    u64 x[2];
    for (u32 i = 0; i < 2; i++) {
        u32 row = exl2k_min(i * 8 + lane / 4, rows - 1);
        x[i] = a.x + (u64)row * (a.x_pitch * 2) + lane % 4 * 16;
    }
    u32 lag = a.stages > 4 ? 2 : 1, slot = 0, parity = 1, added = 0, added_parity = 0;
#pragma unroll 1
    for (u32 n = 0, busy = 1; busy; n++) {
        busy = 0;
#pragma unroll 1
        for (u32 team = helper; team < teams; team += EXL2K_TEAM_HELPERS) {
            uint4 p = exl2k_shared_load4(places + team * 16); /* exl2k_team_place */
            __syncwarp();
            if (p.x < p.y) {
                u32 barrier = exl2k_team_stage(a, s, team, slot), to = exl2k_team_stage_at(a, s, team, slot);
                u32 part = first_part + exl2k_divide(team, a.groups);
                u32 entry = exl2k_team_table(a, s, part) + p.x * (u32)sizeof(exl2k_chunk);
                u32 shape = exl2k_shared_load(entry + 8);
                exl2k_barrier_wait(barrier + EXL2K_TEAM_EMPTY, parity); /* passes in the first round */
                exl2k_team_inputs(a, x, entry, p.z, to, lane);
                p.z += 2;
                if (p.z >= (shape >> 8 & 255)) {
                    p.z = 0;
                    p.x++;
                }
                p.w = n + 1;
                if (lane == 0) {
                    exl2k_shared_store(to + EXL2K_TEAM_WIDTH, shape & 255);
                    exl2k_shared_store4(places + team * 16, p);
                }
                __syncwarp();
                asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
                busy = 1;
            }
            if (n >= lag && n - lag < p.w) {
                u32 barrier = exl2k_team_stage(a, s, team, added), stage = exl2k_team_stage_at(a, s, team, added);
                exl2k_barrier_wait(barrier, added_parity);
                exl2k_team_add(stage, exl2k_shared_load(stage + EXL2K_TEAM_WIDTH), lane);
                asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier + EXL2K_TEAM_READY) : "memory");
                busy = 1;
            }
            __syncwarp();
        }
        if (++slot == a.stages) {
            slot = 0;
            parity ^= 1;
        }
        if (n >= lag && ++added == a.stages) {
            added = 0;
            added_parity ^= 1;
        }
        busy |= n < lag;
    }
}

/* Makes the barriers of a helper's teams, and where these begin. again: there was a block before. */
EXL2K_FN void exl2k_team_open(const exl2k_gemv_args &a, const exl2k_team_shared &s, exl2k_span block, u32 helper,
                              bool again)
{
    u32 teams = exl2k_team_count(a, block), lane = threadIdx.x % EXL2K_WARP;
    u32 first_part = a.matrix.interleaved ? 0 : exl2k_part_at(a.matrix, block.begin);
    if (lane < a.stages) {
#pragma unroll 1
        for (u32 team = helper; team < a.teams && again; team += EXL2K_TEAM_HELPERS) {
            u32 barrier = exl2k_team_stage(a, s, team, lane);
            for (u32 i = 0; i < 3; i++) {
                asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(barrier + i * 8) : "memory");
            }
        }
#pragma unroll 1
        for (u32 team = helper; team < a.teams; team += EXL2K_TEAM_HELPERS) {
            u32 barrier = exl2k_team_stage(a, s, team, lane), part = first_part + exl2k_divide(team, a.groups);
            u32 members = team < teams ? exl2k_team_members(a, block, part) : 1;
            exl2k_barrier_init(barrier, EXL2K_WARP);
            exl2k_barrier_init(barrier + EXL2K_TEAM_READY, EXL2K_WARP);
            exl2k_barrier_init(barrier + EXL2K_TEAM_EMPTY, exl2k_max(1, members) * EXL2K_WARP);
            if (lane == 0 && team < teams) {
                exl2k_span slices = exl2k_team_slices(a, team - exl2k_divide(team, a.groups) * a.groups);
                exl2k_span chunks = exl2k_team_chunks(a, a.matrix.part[part], slices);
                u32 end = members > 0 ? chunks.end : chunks.begin;
                exl2k_shared_store4(s.base + EXL2K_TEAM_PLACES + team * 16, make_uint4(chunks.begin, end, 0, 0));
            }
        }
        exl2k_barrier_init_fence();
    }
    __syncwarp();
}

/* ---- products ---- */

/* Where a warp is among its team's stages. */
typedef struct exl2k_team_cursor { u32 stage, barrier, slot, parity; } exl2k_team_cursor;

/* The sums of half h of a record, of both tiles. x: the lane's inputs; sums: what they begin with; zeros: affine: the
   factors of the sums of inputs, which follow from the initial sums. */
template <u32 W>
EXL2K_FN void exl2k_team_half(f32 d[2][4], const u32 *w, u32 h, u32 x, u32 sums, uint2 zeros)
{
    constexpr f32 back = W == EXL2K_W16 ? 0.0f : 1.0f / exl2k_sum_centre<W>(0);
    uint4 v[2] = { exl2k_shared_load4(x), exl2k_shared_load4(x + 512) }, sum = exl2k_shared_load4(sums);
    uint4 other = exl2k_shared_load4(sums + 64);
    d[0][0] = __uint_as_float(sum.x);
    d[0][1] = __uint_as_float(sum.y);
    d[0][2] = __uint_as_float(sum.z);
    d[0][3] = __uint_as_float(sum.w);
    d[1][0] = __uint_as_float(other.x);
    d[1][1] = __uint_as_float(other.y);
    d[1][2] = __uint_as_float(other.z);
    d[1][3] = __uint_as_float(other.w);
    const f32 first[2] = { d[0][0] * back, d[1][0] * back }, second[2] = { d[0][1] * back, d[1][1] * back };
#pragma unroll
    for (u32 tile = 0; tile < 2 && W == EXL2K_W2; tile++) {
        exl2k_quarter_odd(v[tile], EXL2K_W2);
    }
#pragma unroll
    for (u32 step = 0; step < 2; step++) {
        u32 a[4];
        exl2k_decode<W, true>(w, 2 * h + step, a);
#pragma unroll
        for (u32 tile = 0; tile < 2; tile++) {
            exl2k_mma(d[tile], a, step ? v[tile].z : v[tile].x, step ? v[tile].w : v[tile].y);
        }
    }
    if (EXL2K_AFFINE) {
#pragma unroll
        for (u32 tile = 0; tile < 2; tile++) {
            d[tile][0] = fmaf(__uint_as_float(zeros.x), first[tile], d[tile][0]);
            d[tile][1] = fmaf(__uint_as_float(zeros.x), second[tile], d[tile][1]);
            d[tile][2] = fmaf(__uint_as_float(zeros.y), first[tile], d[tile][2]);
            d[tile][3] = fmaf(__uint_as_float(zeros.y), second[tile], d[tile][3]);
        }
    }
}

/* Multiplies a record: acc = or += the scaled sums of both halves. scales: of the record, for the lane's columns. */
template <u32 W>
EXL2K_FN void exl2k_team_record(f32 acc[2][4], bool first, u32 at, u32 x, u32 sums, u32 scales, u32 lane)
{
    u32 w[exl2k_width<W>::bits];
    f32 d0[2][4], d1[2][4];
    exl2k_lane_words<W>(at, lane, w);
    uint4 v = exl2k_shared_load4(scales), z = make_uint4(0, 0, 0, 0);
    if (EXL2K_AFFINE) {
        z = exl2k_shared_load4(scales + 512);
    }
    exl2k_team_half<W>(d0, w, 0, x, sums, make_uint2(z.x, z.y));
    exl2k_team_half<W>(d1, w, 1, x + 1024, sums + EXL2K_TEAM_SUMS, make_uint2(z.z, z.w));
    const f32 scale[4] = { __uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w) };
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        u32 c = i % 4 / 2;
        f32 s = fmaf(scale[2 + c], d1[i / 4][i % 4], scale[c] * d0[i / 4][i % 4]);
        acc[i / 4][i % 4] = first ? s : acc[i / 4][i % 4] + s;
    }
}

/* Lane t decodes the scales of record t, of both halves, and stores them for the four lanes of its column, times
   exl2k_sum_unit, a power of 2. Affine: behind them the factors of the sums of inputs. */
template <u32 W> EXL2K_FN void exl2k_team_scales(u32 at, u32 entry, const exl2k_task &task, u32 table, u32 lane)
{
    constexpr f32 low = exl2k_sum_unit<W>(0), high = exl2k_sum_unit<W>(1);
    u32 t = lane % 4, words = at + exl2k_task_records(task) * exl2k_width<W>::bits * 128;
    u32 to = table + t * 128 + lane / 4 * 16;
    uint2 pairs = make_uint2(0x3C003C00u, 0x3C003C00u);
    words += exl2k_scales_of_lane(exl2k_task_groups(task), lane);
    if (EXL2K_AFFINE) {
        constexpr f32 left = -exl2k_power(exl2k_code_bit<W>(0) - 24), right = -exl2k_power(exl2k_code_bit<W>(1) - 24);
        uint2 first = exl2k_affine_words(at, task, 2 * t, lane), second = exl2k_affine_words(at, task, 2 * t + 1, lane);
        u32 zeros[2] = { exl2k_affine_zeros(first), exl2k_affine_zeros(second) };
        f32 z0 = exl2k_low(zeros[0]) * left, z1 = exl2k_high(zeros[0]) * right;
        f32 z2 = exl2k_low(zeros[1]) * left, z3 = exl2k_high(zeros[1]) * right;
        pairs = make_uint2(exl2k_affine_scales(first), exl2k_affine_scales(second));
        exl2k_shared_store4(to + 512, make_uint4(__float_as_uint(z0), __float_as_uint(z1), __float_as_uint(z2),
                                                 __float_as_uint(z3)));
    } else if (W != EXL2K_W16) {
        u32 maxima = exl2k_shared_load(entry + 16 + t * 4);
        uint2 v;
        if (exl2k_task_by_half(task)) {
            v = exl2k_shared_load2(words + exl2k_min(2 * t, exl2k_task_groups(task) - 2) * 4);
        } else {
            v.x = v.y = exl2k_shared_load(words + exl2k_group_of_record(task, t) * 4);
        }
        pairs.x = exl2k_scale_pair(v.x, lane / 4, exl2k_permute_bytes(maxima, 0, 0x1010u));
        pairs.y = exl2k_scale_pair(v.y, lane / 4, exl2k_permute_bytes(maxima, 0, 0x3232u));
    }
    f32 s0 = exl2k_low(pairs.x) * low, s1 = exl2k_high(pairs.x) * high;
    f32 s2 = exl2k_low(pairs.y) * low, s3 = exl2k_high(pairs.y) * high;
    exl2k_shared_store4(to, make_uint4(__float_as_uint(s0), __float_as_uint(s1), __float_as_uint(s2),
                                       __float_as_uint(s3)));
    __syncwarp();
}

/* The sums of a chunk, and its inputs, two records at a time. */
template <u32 W>
EXL2K_FN void exl2k_team_chunk(f32 sum[2][4], const exl2k_gemv_args &a, exl2k_team_cursor &c, u32 at, u32 entry, u32 table, u32 lane)
{
    if constexpr ((EXL2K_WIDTHS_MASK >> W & 1) != 0) {
        constexpr u32 bytes = exl2k_width<W>::bits * 128;
        exl2k_task task;
        uint2 words = exl2k_shared_load2(entry + 8);
        task.shape = words.x;
        task.ends = words.y;
        task.maximum = 0;
        u32 records = exl2k_task_records(task), scales = table + lane / 4 * 16;
        exl2k_team_scales<W>(at, entry, task, table, lane);
#pragma unroll 1
        for (u32 r = 0; r < records; r += 2) {
            f32 acc[2][4];
            u32 barrier = c.barrier + c.slot * 24, stage = c.stage + c.slot * EXL2K_TEAM_STAGE_BYTES;
            u32 x = stage + lane * 16, sums = stage + 4096 + lane % 4 * 16;
            exl2k_barrier_wait(barrier + EXL2K_TEAM_READY, c.parity);
            exl2k_team_record<W>(acc, true, at, x, sums, scales, lane);
            if (r + 1 < records) {
                exl2k_team_record<W>(acc, false, at + bytes, x + 2048, sums + 2 * EXL2K_TEAM_SUMS, scales + 128, lane);
            }
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier + EXL2K_TEAM_EMPTY) : "memory");
            at += 2 * bytes;
            scales += 256;
            if (++c.slot == a.stages) {
                c.slot = 0;
                c.parity ^= 1;
            }
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                sum[i / 4][i % 4] = r ? sum[i / 4][i % 4] + acc[i / 4][i % 4] : acc[i / 4][i % 4];
            }
        }
    }
}

/* A warp's part of a block; job: number of its chunks so far. */
EXL2K_FN void exl2k_team_work(const exl2k_gemv_args &a, const exl2k_team_shared &s, const exl2k_member &r, u32 warp,
                              u32 &job)
{
    const exl2k_part &p = a.matrix.part[r.part];
    u32 lane = threadIdx.x % EXL2K_WARP, table = s.scales + warp * EXL2K_TEAM_SCALES;
    u32 entry = exl2k_team_table(a, s, r.part) + r.chunks.begin * (u32)sizeof(exl2k_chunk);
    u32 left = r.chunks.end - r.chunks.begin;
    u64 from = exl2k_team_strip_at(a, r);
    exl2k_team_cursor c = { exl2k_team_stage_at(a, s, r.team, 0), exl2k_team_stage(a, s, r.team, 0), 0, 0 };
    u32 to = s.sums + r.local * a.sums_per_strip * exl2k_partial_bytes<16>() + exl2k_partial_lane(lane);
#pragma unroll 1
    for (u32 slice = r.slices.begin; slice < r.slices.end; slice++) {
        f32 total[2][4];
        exl2k_clear(total[0]);
        exl2k_clear(total[1]);
#pragma unroll 1
        for (u32 count = exl2k_team_slice(a, p, slice).count; count > 0; count--) {
            f32 sum[2][4];
            u32 at = s.rings + (warp * 2 + (job & 1)) * a.slot_bytes;
            exl2k_barrier_wait(exl2k_team_slot(s, warp, job & 1), job >> 1 & 1);
            switch (exl2k_shared_load(entry + 8) & 255) {
            case EXL2K_W2: exl2k_team_chunk<EXL2K_W2>(sum, a, c, at, entry, table, lane); break;
            case EXL2K_W3: exl2k_team_chunk<EXL2K_W3>(sum, a, c, at, entry, table, lane); break;
            case EXL2K_W4: exl2k_team_chunk<EXL2K_W4>(sum, a, c, at, entry, table, lane); break;
            case EXL2K_W5: exl2k_team_chunk<EXL2K_W5>(sum, a, c, at, entry, table, lane); break;
            case EXL2K_W6: exl2k_team_chunk<EXL2K_W6>(sum, a, c, at, entry, table, lane); break;
            case EXL2K_W8: exl2k_team_chunk<EXL2K_W8>(sum, a, c, at, entry, table, lane); break;
            default: exl2k_team_chunk<EXL2K_W16>(sum, a, c, at, entry, table, lane); break;
            }
            __syncwarp();
            if (left > 2) {
                uint2 next = exl2k_shared_load2(entry + 2 * (u32)sizeof(exl2k_chunk));
                exl2k_team_copy(a, s, warp, job, from + (u64)next.x * 16, (next.y >> 16) * 16);
            }
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                total[i / 4][i % 4] += sum[i / 4][i % 4];
            }
            entry += (u32)sizeof(exl2k_chunk);
            left--;
            job++;
        }
        exl2k_partial_add_many<16>(to, total, slice == r.slices.begin || r.slices.begin > 0);
        to += r.slices.begin > 0 ? exl2k_partial_bytes<16>() : 0;
    }
}

/* Partial sums of a strip before those of a warp's group. Group 0 has one, the others one for each slice. */
EXL2K_FN u32 exl2k_team_skipped(const exl2k_gemv_args &a, const exl2k_member &r)
{
    return r.slices.begin > 0 ? 1 + r.slices.begin - exl2k_team_slices(a, 0).end : 0;
}

/* ---- the kernel ---- */

EXL2K_FN void exl2k_gemv_team(const exl2k_gemv_args &a)
{
    extern __shared__ uint4 exl2k_dynamic[];
    exl2k_team_shared s = exl2k_team_shared_of(a, exl2k_shared(exl2k_dynamic));
    u32 warp = __shfl_sync(EXL2K_ALL, threadIdx.x / EXL2K_WARP, 0), lane = threadIdx.x % EXL2K_WARP, job = 0;
    exl2k_span block = exl2k_block_at<16>(a, exl2k_strips_of_cta<16>(a).begin);
    bool helps = warp >= EXL2K_GEMV_WARPS;
    exl2k_out out;
    out.small = s.small;
    out.rows = 0;
    if (helps) {
        exl2k_team_open(a, s, block, warp - EXL2K_GEMV_WARPS, false);
        /* All tables of chunks. */
        for (u32 part = 0; part < a.matrix.parts; part++) {
            const exl2k_part &p = a.matrix.part[part];
            u32 to = exl2k_team_table(a, s, part);
            for (u32 i = threadIdx.x - EXL2K_GEMV_THREADS; i < 2 * p.chunk_count; i += 32 * EXL2K_TEAM_HELPERS) {
                exl2k_copy16(to + i * 16, p.chunks + i * 16);
            }
        }
        exl2k_copy_commit();
        exl2k_copy_wait<0>();
    } else {
        if (lane < 2) {
            exl2k_barrier_init(exl2k_team_slot(s, warp, lane), 1);
            exl2k_barrier_init_fence();
        }
        __syncwarp();
        exl2k_team_start(a, s, exl2k_member_of(a, block, warp), warp, 0);
        out = exl2k_out_open<16>(a, block, s.small);
    }
    __syncthreads();
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (helps) {
        exl2k_registers_less<64>();
        u32 rows = a.rows_at ? exl2k_min(exl2k_load(a.rows_at) - a.before, 16) : a.rows;
        while (block.begin < block.end) {
            exl2k_team_help(a, s, block, warp - EXL2K_GEMV_WARPS, rows);
            __syncthreads();
            if (a.kind == EXL2K_GEMV_RESIDUAL) { /* as in exl2k_out_residual */
                __syncthreads();
            }
            block = exl2k_block_at<16>(a, block.end);
            if (block.begin < block.end) {
                exl2k_team_open(a, s, block, warp - EXL2K_GEMV_WARPS, true);
                __syncthreads();
            }
        }
        return;
    }
    exl2k_registers_more<104>();
    exl2k_out_begin<16>(out, a);
    while (block.begin < block.end) {
        exl2k_member r = exl2k_member_of(a, block, warp);
        exl2k_span next = exl2k_block_at<16>(a, block.end);
        if (r.works) {
            exl2k_team_shared mine = s;
            mine.sums += exl2k_team_skipped(a, r) * exl2k_partial_bytes<16>();
            exl2k_team_work(a, mine, r, warp, job);
        }
        if (next.begin < next.end) {
            exl2k_team_start(a, s, exl2k_member_of(a, next, warp), warp, job);
        }
        __syncthreads();
        exl2k_out_block<16>(out, a, block, s.sums);
        block = next;
        if (block.begin < block.end) {
            exl2k_out_constants<16>(out, a, block);
            __syncthreads();
        }
    }
    exl2k_out_close<16>(out, a);
}

#endif
