/* gemv_stream.cuh: the work of a warp of a gemv product: its strips, its jobs, and the ring that streams its chunks.
   takes: base.cuh, gemv_args.h; EXL2K_BULK (default: from sm_90 on): copies by the bulk engine.
   gives: exl2k_role, exl2k_span, exl2k_run, exl2k_stream, exl2k_stream_open, _wait, _fill, _replan, _step.
   owns:  nothing; included by gemv.cuh only, which has a drawing of strips, pieces, runs and jobs. */
#ifndef EXL2K_GEMV_STREAM_CUH
#define EXL2K_GEMV_STREAM_CUH

#include "base.cuh"
#include "gemv_args.h"
#include "lora_args.h"

/* 1: the kernel is for large matrices: gemv_large.cuh. */
#ifndef EXL2K_LARGE
#define EXL2K_LARGE 0
#endif

/* 1: the launch adds what adapters add: gemv_lora.cuh. */
#ifndef EXL2K_LORA
#define EXL2K_LORA 0
#endif

/* 1: slices add to running sums: gemv.cuh. */
#ifndef EXL2K_CHAIN
#define EXL2K_CHAIN 0
#endif

#ifndef EXL2K_BULK
#define EXL2K_BULK (__CUDA_ARCH__ >= 900)
#endif

/* ---- which strips ---- */

/* Strips [begin, end); interleaved: pairs of strips. */
typedef struct exl2k_span { u32 begin, end; } exl2k_span;

/* threadIdx.x, and the index of the CTA among those that have strips. With 16 rows they are read again wherever they
   are needed, as no register is free. */
template <u32 M> EXL2K_FN u32 exl2k_thread(void)
{
    u32 thread = threadIdx.x;
    if (M == 16) {
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    }
    return thread;
}

template <u32 M> EXL2K_FN u32 exl2k_lane(void) { return exl2k_thread<M>() % EXL2K_WARP; }

template <u32 M> EXL2K_FN u32 exl2k_cta(const exl2k_gemv_args &a)
{
    u32 cta = blockIdx.x;
    if (M == 16) {
        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
    }
    return cta - (EXL2K_LORA ? a.ctas_before : 0);
}

template <u32 M> EXL2K_FN exl2k_span exl2k_strips_of_cta(const exl2k_gemv_args &a)
{
    u32 c = exl2k_cta<M>(a), begin = c * a.strips_per_cta + exl2k_min(c, a.ctas_with_more);
    u32 end = begin + a.strips_per_cta + (c < a.ctas_with_more);
    return exl2k_span{ begin, end };
}

/* The block that begins with strip `begin`; an empty block (begin == end) follows the last one. */
template <u32 M> EXL2K_FN exl2k_span exl2k_block_at(const exl2k_gemv_args &a, u32 begin)
{
    return exl2k_span{ begin, exl2k_min(begin + a.block, exl2k_strips_of_cta<M>(a).end) };
}

/* The strips of a span that lie in a part; end <= begin: none. */
EXL2K_FN exl2k_span exl2k_strips_of_part(const exl2k_part &p, exl2k_span all)
{
    return exl2k_span{ exl2k_max(all.begin, p.first), exl2k_min(all.end, p.first + p.strips) };
}

/* The role of a warp. `groups` groups of warps divide the strips of a block among them; a group has one warp for
   each slice. group >= 16: the warp has no work. slot: index of the warp's partial sum of a strip. */
typedef struct exl2k_role { u32 slice, slot, group, groups, lane, warp; } exl2k_role;

/* slices_inverse = 256 / slices + 1, so that a multiplication and a shift divide 0..16 by the number of slices. */
template <u32 M> EXL2K_FN exl2k_role exl2k_role_of_warp(const exl2k_gemv_args &a)
{
    exl2k_role p;
    u32 thread = exl2k_thread<M>();
    p.lane = thread % EXL2K_WARP;
    p.warp = __shfl_sync(EXL2K_ALL, thread / EXL2K_WARP, 0);
    p.group = p.warp * a.slices_inverse >> 8;
    p.groups = EXL2K_GEMV_WARPS * a.slices_inverse >> 8;
    p.slice = p.slot = p.warp - p.group * a.matrix.slices;
    if (p.group >= p.groups) { /* 16 is not a multiple of slices: the last warps have no group */
        p.group = 0xFFFF;
    }
    return p;
}

/* ---- which chunks of these strips ---- */

/* Number of pieces: for each part its slices and, if rest is 1, its remaining chunks. */
EXL2K_FN u32 exl2k_pieces(const exl2k_matrix &m) { return m.parts << m.rest; }

/* The part that a strip belongs to; for a pair of interleaved strips: the first part. */
EXL2K_FN u32 exl2k_part_at(const exl2k_matrix &m, u32 strip) { return (strip >= m.second) + (strip >= m.third); }

/* The role of the warp in a piece. In a piece of remaining chunks every warp is a group of its own. */
EXL2K_FN exl2k_role exl2k_role_in_piece(const exl2k_matrix &m, const exl2k_role &role, u32 piece)
{
    exl2k_role p = role;
    if (piece & m.rest) {
        p.slice = EXL2K_SLICES_MAX;
        p.slot = m.slices;
        p.group = role.warp;
        p.groups = EXL2K_GEMV_WARPS;
    }
    return p;
}

/* ---- the stream of chunks into the ring of a warp ---- */

/* The stream of a warp's jobs. A job fills one slot of the ring with a chunk of one strip or of two. Lane i holds
   the addresses of job 32 n + i, and copies it, or hands them over (large matrices); with 16 rows, shared memory holds
   those of 16 jobs. All slots are filled at the start, and a slot is refilled as soon as it has been read. Therefore
   one cursor serves for both reading and filling. */
typedef struct exl2k_stream {
    u64 from;          /* the lane's job: address of the chunk of its first strip, and its bytes (0: no job) */
    u32 bytes, stride; /* stride: bytes from the first strip to the second; 0: one strip */
    uint2 table_words; /* first words of the chunk's table entry, for chunks that exl2k_slice does not list; else 0 */
    uint2 packed;      /* the lane's job for all: (from - address of the first strip) / 16; bytes << 20 | stride / 16 */
    u32 job;           /* the next job to copy */
    u32 ring, barriers;
    u32 at;            /* the cursor: address of the slot */
    u32 slot, parity;
} exl2k_stream;

/* Jobs that are planned at a time. */
template <u32 M> EXL2K_FN constexpr u32 exl2k_stream_planned(void) { return M == 16 ? 16 : EXL2K_WARP; }

/* floor(a / b) for a < 2^20; any value for b = 0. */
EXL2K_FN u32 exl2k_divide(u32 a, u32 b) { return (u32)(((f32)a + 0.5f) * exl2k_reciprocal((f32)b)); }

/* Number of these strips that belong to the warp's group. */
EXL2K_FN u32 exl2k_own_strips(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_span strips)
{
    u32 begin = strips.begin + role.group + 1, over = exl2k_max(strips.end + role.groups, begin) - begin;
    return role.slice == EXL2K_SLICES_MAX ? over / EXL2K_GEMV_WARPS : over * a.groups_inverse >> 16;
}

/* Whether a slot holds two strips. Never with many rows, because registers are scarce. */
template <u32 M> EXL2K_FN bool exl2k_slot_holds_two(const exl2k_gemv_args &a) { return M == 1 && a.slot_strips == 2; }

/* Whether the next job has two strips, with `left` strips left to do. */
template <u32 M> EXL2K_FN bool exl2k_job_has_two(const exl2k_gemv_args &a, u32 left)
{
    return exl2k_slot_holds_two<M>(a) && left % 2 == 0;
}

/* Number of strips in the first `chunk_jobs` jobs of a chunk. */
template <u32 M> EXL2K_FN u32 exl2k_strips_of_jobs(const exl2k_gemv_args &a, u32 own, u32 chunk_jobs)
{
    return exl2k_slot_holds_two<M>(a) ? 2 * chunk_jobs - (chunk_jobs > 0 ? own % 2 : 0) : chunk_jobs;
}

/* A run: the strips of the warp in one piece of a block. */
typedef struct exl2k_run {
    exl2k_role role;
    u32 piece, part;
    u32 begin; /* first strip of the part in the block */
    u32 own;   /* number of strips of the warp; 0: none */
} exl2k_run;

EXL2K_FN exl2k_run exl2k_run_of(const exl2k_gemv_args &a, const exl2k_role &role, u32 piece, exl2k_span block)
{
    exl2k_run r;
    r.piece = piece;
    r.part = piece >> a.matrix.rest;
    r.role = exl2k_role_in_piece(a.matrix, role, piece);
    exl2k_span strips = exl2k_strips_of_part(a.matrix.part[r.part], block);
    r.begin = strips.begin;
    r.own = exl2k_own_strips(a, r.role, strips);
    return r;
}

/* The run of the first piece of the part in which the block begins. */
EXL2K_FN exl2k_run exl2k_run_first(const exl2k_gemv_args &a, const exl2k_role &role, exl2k_span block)
{
    return exl2k_run_of(a, role, exl2k_part_at(a.matrix, block.begin) << a.matrix.rest, block);
}

/* Finds this lane's job among the 32 jobs from s.job on. It needs only kernel arguments, so no lane waits for the chunk
   table. exl2k_stream_apply_table adds the values of the table later. */
template <u32 M>
EXL2K_FN void exl2k_stream_plan(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_role &role)
{
    const exl2k_matrix &m = a.matrix;
    exl2k_span all = exl2k_strips_of_cta<M>(a);
    u32 left = s.job + role.lane, seen = 0;
    s.from = 0;
    s.bytes = s.stride = s.table_words.x = s.table_words.y = 0;
    /* Step over the jobs of every piece of every block, until the lane's job is found. */
#pragma unroll 1
    for (u32 begin = all.begin; begin < all.end && seen < s.job + exl2k_stream_planned<M>(); begin += a.block) {
#pragma unroll 1
        for (u32 piece = 0; piece < exl2k_pieces(m); piece++) {
            /* Count the jobs of this run: chunk by chunk, with one or two strips each. */
            exl2k_run r = exl2k_run_of(a, role, piece, exl2k_span{ begin, exl2k_min(begin + a.block, all.end) });
            const exl2k_part &p = m.part[r.part];
            const exl2k_slice &slice = p.slice[r.role.slice];
            u32 chunk_jobs = exl2k_slot_holds_two<M>(a) ? (r.own + 1) / 2 : r.own, jobs = chunk_jobs * slice.count;
            seen += jobs;
            /* The lane's job may be in this run: job `chunk_job` of chunk `index` of the slice. */
            if (left < jobs) {
                u32 index = exl2k_divide(left, chunk_jobs), chunk_job = left - index * chunk_jobs;
                u32 offset16 = slice.offset16 + exl2k_dot4(slice.sizes, 0x01010101u & ((1u << 8 * (index & 3)) - 1));
                s.bytes = (slice.sizes >> 8 * (index & 3) & 255) * 16;
                if (index > 3) {
                    s.table_words = exl2k_load_constant2(p.chunks + (slice.chunk + index) * sizeof(exl2k_chunk));
                    offset16 = 0;
                }
                /* The strips before this job give the address of its first strip. */
                u32 done = exl2k_strips_of_jobs<M>(a, r.own, chunk_job);
                u32 strip = r.begin - p.first + r.role.group + done * r.role.groups;
                s.from = p.base + (u64)strip * p.pitch + offset16 * 16;
                s.stride = exl2k_job_has_two<M>(a, r.own - done) ? r.role.groups * p.pitch : 0;
                left = ~0u;
            } else {
                left -= jobs;
            }
        }
    }
}

/* Applies the loaded table entry, for a job whose chunk is not among the first four of its slice, and packs the job. */
EXL2K_FN void exl2k_stream_apply_table(exl2k_stream &s, const exl2k_gemv_args &a)
{
    s.from += (u64)s.table_words.x * 16;
    s.bytes = s.table_words.y > 0 ? (s.table_words.y >> 16) * 16 : s.bytes;
    s.packed = make_uint2((u32)((s.from - a.matrix.part[0].base) / 16), s.bytes << 20 | s.stride / 16);
}

#if EXL2K_BULK
/* Copies the lane's job into slot `slot` at address `to`. */
EXL2K_FN void exl2k_stream_copy(const exl2k_stream &s, const exl2k_gemv_args &a, u32 to, u32 slot)
{
    u32 barrier = s.barriers + slot * 8;
    exl2k_barrier_expect(barrier, s.stride > 0 ? 2 * s.bytes : s.bytes);
    exl2k_copy_bulk(to, s.from, s.bytes, barrier, exl2k_evict_first());
    if (s.stride > 0) {
        exl2k_copy_bulk(to + a.slot_bytes, s.from + s.stride, s.bytes, barrier, exl2k_evict_first());
    }
}
#endif

/* 16 rows: stores the lane's packed job in shared memory. */
EXL2K_FN void exl2k_stream_keep(const exl2k_stream &s)
{
    u32 lane = exl2k_lane<16>();
    if (lane < 16) {
        exl2k_shared_store2(s.ring + lane * 8, s.packed);
    }
    __syncwarp();
}

/* Starts to copy the next job into the slot at the cursor. */
template <u32 M>
EXL2K_FN void exl2k_stream_fill(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_role &role)
{
    u32 from = s.job++ % exl2k_stream_planned<M>();
#if EXL2K_BULK
    if (M == 16 || EXL2K_LARGE) {
        /* All lanes get the packed job, and one copies it. */
        exl2k_stream job = s;
        uint2 v = M == 16 ? exl2k_shared_load2(s.ring + from * 8) :
                            make_uint2(__shfl_sync(EXL2K_ALL, s.packed.x, from),
                                       __shfl_sync(EXL2K_ALL, s.packed.y, from));
        job.from = a.matrix.part[0].base + (u64)v.x * 16;
        job.bytes = M == 1 ? v.y >> 24 << 4 : v.y >> 20;
        job.stride = M == 1 ? v.y << 8 >> 4 : 0;
        if (exl2k_elect() && v.y > 0) {
            exl2k_stream_copy(job, a, s.at, s.slot);
        }
    } else if (role.lane == from && s.bytes > 0) { /* the lane that planned the job copies it */
        exl2k_stream_copy(s, a, s.at, s.slot);
    }
#else
    /* All lanes get the job's addresses and copy it together. */
    u32 bytes = __shfl_sync(EXL2K_ALL, s.bytes, from), stride = __shfl_sync(EXL2K_ALL, s.stride, from);
    u64 at = (u64)__shfl_sync(EXL2K_ALL, (u32)(s.from >> 32), from) << 32 | __shfl_sync(EXL2K_ALL, (u32)s.from, from);
    for (u32 i = role.lane * 16; i < bytes; i += 512) {
        exl2k_copy16_once(s.at + i, at + i);
        if (stride > 0) {
            exl2k_copy16_once(s.at + a.slot_bytes + i, at + stride + i);
        }
    }
    exl2k_copy_commit();
#endif
    __syncwarp();
}

/* Plans the next jobs when the current ones have been issued. */
template <u32 M>
EXL2K_FN void exl2k_stream_replan(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_role &role)
{
    if (s.job % exl2k_stream_planned<M>() == 0) {
        exl2k_stream_plan<M>(s, a, role);
        exl2k_stream_apply_table(s, a);
    }
}

/* 16 rows: plans the next jobs when the current ones have been issued. */
EXL2K_FN void exl2k_stream_plan_kept(const exl2k_stream &s, const exl2k_gemv_args &a)
{
    if (s.job % 16 == 0) {
        exl2k_stream planned = s;
        exl2k_stream_plan<16>(planned, a, exl2k_role_of_warp<16>(a));
        exl2k_stream_apply_table(planned, a);
        exl2k_stream_keep(planned);
    }
}

/* Moves the cursor to the next slot. */
EXL2K_FN void exl2k_stream_step(exl2k_stream &s, const exl2k_gemv_args &a)
{
    s.at += a.slot_strips * a.slot_bytes;
    if (++s.slot == a.stages) {
        s.slot = 0;
        s.at = s.ring;
        s.parity ^= 1;
    }
}

/* 16 rows: the ring has two slots, so the number of jobs tells where the cursor is, and no register has to. */
EXL2K_FN void exl2k_stream_seek(exl2k_stream &s, const exl2k_gemv_args &a)
{
    s.slot = s.job & 1;
    s.parity = (s.job >> 1 & 1) ^ 1;
    s.at = s.ring + EXL2K_RING_HEAD + s.slot * a.slot_bytes;
    s.barriers = s.ring + 128;
}

/* Waits until the copy into the slot at the cursor has arrived, for every lane. */
EXL2K_FN void exl2k_stream_wait(const exl2k_stream &s, const exl2k_gemv_args &a)
{
#if EXL2K_BULK
    exl2k_barrier_wait(s.barriers + s.slot * 8, s.parity);
#else
    if (a.stages >= 4) { /* as many groups are in flight as there are stages */
        exl2k_copy_wait<3>();
    } else if (a.stages == 3) {
        exl2k_copy_wait<2>();
    } else if (a.stages == 2) {
        exl2k_copy_wait<1>();
    } else {
        exl2k_copy_wait<0>();
    }
    __syncwarp();
#endif
}

/* Starts the copy of job 0 if it belongs to this run. Copies of all warps are then in flight while the rest of the
   setup runs. Returns whether a copy was started. */
template <u32 M>
EXL2K_FN bool exl2k_stream_first(exl2k_stream &s, const exl2k_gemv_args &a, const exl2k_role &role,
                                 const exl2k_run &r)
{
#if EXL2K_BULK
    const exl2k_part &p = a.matrix.part[r.part];
    const exl2k_slice &slice = p.slice[r.role.slice];
    if (r.own == 0 || slice.count == 0) {
        return false;
    }
    /* Its addresses follow from the kernel's arguments alone. */
    if (role.lane == 0) {
        s.from = p.base + (u64)(r.begin - p.first + r.role.group) * p.pitch + slice.offset16 * 16;
        s.bytes = (slice.sizes & 255) * 16;
        s.stride = exl2k_job_has_two<M>(a, r.own) ? r.role.groups * p.pitch : 0;
        exl2k_stream_copy(s, a, s.at, 0);
    }
    return true;
#else
    return false;
#endif
}

/* Opens the stream and fills all stages. */
template <u32 M>
EXL2K_FN exl2k_stream exl2k_stream_open(const exl2k_gemv_args &a, const exl2k_role &role, const exl2k_run &run,
                                        u32 shared, u32 small)
{
    exl2k_stream s;
    /* Find the ring and the barriers of this warp. */
    if (M == 16) {
        s.job = 0;
        s.ring = shared + role.warp * (EXL2K_RING_HEAD + 2 * a.slot_bytes);
        exl2k_stream_seek(s, a);
    } else {
        s.ring = s.at = shared + role.warp * a.stages * a.slot_strips * a.slot_bytes;
        s.barriers = small + role.warp * 64;
    }
    s.slot = s.parity = s.job = 0;
#if EXL2K_BULK
    if (role.lane == 0) {
        for (u32 i = 0; i < (M == 16 ? 2 : EXL2K_GEMV_STAGES_MAX); i++) { /* 16 rows: a slot follows */
            exl2k_barrier_init(s.barriers + i * 8, 1);
        }
        exl2k_barrier_init_fence();
    }
    __syncwarp(); /* the fence instruction is the warp's, not lane 0's */
    /* Job 0 starts before the other jobs are planned. */
    bool first = exl2k_stream_first<M>(s, a, role, run);
    __syncwarp();
    exl2k_stream_plan<M>(s, a, role);
    /* Lane i then copies job i into slot i, except job 0 if it has started already. */
    if (role.lane < a.stages && role.lane >= (u32)first && s.bytes > 0) {
        exl2k_stream_copy(s, a, s.at + role.lane * a.slot_strips * a.slot_bytes, role.lane);
    }
    s.job = a.stages;
    __syncwarp();
#else
    exl2k_stream_plan<M>(s, a, role);
#pragma unroll 1
    for (u32 i = 0; i < a.stages; i++) {
        exl2k_stream_fill<M>(s, a, role);
        exl2k_stream_step(s, a);
    }
    s.parity = 0;
#endif
    exl2k_stream_apply_table(s, a);
    if (M == 16) {
        exl2k_stream_keep(s);
    }
    return s;
}

#endif
