/* gemv_kept.cuh: a warp's tasks in a block of a product of 16 rows. Registers hold the inputs of a task, so shared
   memory holds what is not needed for every strip. Nothing is loaded in advance but the next table entry.
   takes: what gemv.cuh defines before it includes this file.
   gives: exl2k_kept, exl2k_kept_store, _load, _block; exl2k_gemv_block_kept.
   owns:  nothing; included by gemv.cuh only. */
#ifndef EXL2K_GEMV_KEPT_CUH
#define EXL2K_GEMV_KEPT_CUH

/* What a warp keeps: its task, as in exl2k_work, and what the kernel needs again after a block. */
typedef struct exl2k_kept {
    uint4 entry[2][2]; /* table entries (exl2k_chunk) of the task and of the next one, by the parity of the chunk */
    u32 piece, stride, sums, sums_end; /* sums: lane 0's, from strip to strip in steps of stride; = sums_end: no task */
    u32 chunk, end, row, first;
    u32 begin, rows, all_sums, small, starts; /* first strip of the block; rows of the launch; addresses */
    u32 unused[3];
} exl2k_kept;

static_assert(sizeof(exl2k_kept) == 128, "exl2k_small_starts");

EXL2K_FN void exl2k_kept_store(exl2k_kept *kept, const exl2k_work &w, u32 stride)
{
    __syncwarp();
    if (exl2k_lane<16>() == 0) {
        kept->piece = w.run.piece;
        kept->stride = stride;
        kept->sums = w.sums;
        kept->sums_end = w.sums + w.run.own * stride;
        kept->chunk = w.chunk;
        kept->end = w.end;
        kept->row = w.row;
        kept->first = w.first;
    }
    __syncwarp();
}

EXL2K_FN void exl2k_kept_block(exl2k_kept *kept, exl2k_span block, u32 rows, u32 sums, u32 small)
{
    if (exl2k_lane<16>() == 0) {
        kept->begin = block.begin;
        kept->rows = rows;
        kept->all_sums = sums;
        kept->small = small;
        kept->starts = small + exl2k_small_starts<16>() + (exl2k_thread<16>() / EXL2K_WARP) * 1024;
    }
    __syncwarp();
}

/* Starts to load the table entry of a chunk. */
EXL2K_FN void exl2k_kept_load(exl2k_kept *kept, const exl2k_gemv_args &a, u32 part, u32 chunk)
{
    u32 lane = exl2k_lane<16>();
    if (lane < 2) {
        u64 entry = a.matrix.part[part].chunks + chunk * sizeof(exl2k_chunk);
        exl2k_copy16(exl2k_shared(&kept->entry[chunk % 2][lane]), entry + lane * 16);
    }
    exl2k_copy_commit();
}

/* The task, whose entry has arrived. */
EXL2K_FN exl2k_task exl2k_kept_task(const exl2k_kept *kept)
{
    u32 entry = exl2k_shared(kept->entry[kept->chunk % 2]);
    uint2 words = exl2k_shared_load2(entry + 8);
    return exl2k_task{ words.x, words.y, entry + 16 };
}

/* Moves to the next task, and starts to load its table entry, which that of the same run has been. */
EXL2K_FN void exl2k_kept_next(exl2k_kept *kept, const exl2k_gemv_args &a, u32 halves)
{
    exl2k_role role = exl2k_role_of_warp<16>(a);
    exl2k_work w;
    w.run.piece = kept->piece;
    w.run.own = (kept->sums_end - kept->sums) / kept->stride;
    w.sums = kept->sums;
    w.chunk = kept->chunk + 1;
    w.end = kept->end;
    w.row = kept->row + halves;
    w.first = false;
    exl2k_work_next<16>(w, a, role, exl2k_block_at<16>(a, kept->begin), kept->all_sums);
    exl2k_kept_store(kept, w, w.first ? exl2k_work_stride<16>(w, a) : kept->stride);
    if (w.first && w.run.own > 0) {
        exl2k_kept_load(kept, a, w.run.part, w.chunk);
    }
}

/* Works through all of the warp's tasks in a block. */
EXL2K_FN void exl2k_gemv_block_kept(const exl2k_gemv_args &a, exl2k_stream &s, exl2k_kept *kept)
{
    while (kept->sums < kept->sums_end) {
        /* Load the inputs of this task, and start to load the next table entry. */
        exl2k_copy_wait<0>();
        __syncwarp();
        u32 lane = exl2k_lane<16>();
        u64 x[2];
        exl2k_inputs<16> inputs;
        for (u32 tile = 0; tile < 2; tile++) {
            u32 row = exl2k_min(tile * 8 + lane / 4, kept->rows - 1);
            x[tile] = a.x + kept->row * 64 + (u64)row * (a.x_pitch * 2) + lane % 4 * 16;
        }
        exl2k_load_inputs<16>(inputs, x, exl2k_kept_task(kept), kept->starts, lane);
        if (kept->chunk + 1 < kept->end) {
            exl2k_kept_load(kept, a, kept->piece >> a.matrix.rest, kept->chunk + 1);
        }
        /* One job per slot of the ring: wait for the copy, multiply, refill the slot. */
#pragma unroll 1
        for (u32 to = kept->sums; to < kept->sums_end; to += kept->stride) {
            f32 sum[2][4];
            exl2k_stream_seek(s, a);
            exl2k_stream_wait(s, a);
            exl2k_chunks_many<16>(sum, s.at, inputs, exl2k_kept_task(kept), lane);
            __syncwarp();
            exl2k_stream_fill<16>(s, a, exl2k_role{});
            exl2k_partial_add_many<16>(to + exl2k_lane<16>() * 16, sum, kept->first);
            exl2k_stream_plan_kept(s, a);
        }
        exl2k_kept_next(kept, a, exl2k_task_halves(exl2k_kept_task(kept)));
    }
}

#endif
