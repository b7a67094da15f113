/* copy.cu: copies KV pages, and gathers rows for the head.
   takes: copy_args.h.
   gives: exl2k_copy_pages, exl2k_head_rows. */
#include "base.cuh"
#include "copy_args.h"

/* Copies pages. A thread copies the same 16 bytes of every page, so that the thread's program order is the order of
   the copies. */
extern "C" __global__ void __launch_bounds__(EXL2K_COPY_THREADS) exl2k_copy_pages(exl2k_copy_args a)
{
    u64 offset = ((u64)blockIdx.x * EXL2K_COPY_THREADS + threadIdx.x) * 16;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (offset >= a.page_bytes) {
        return;
    }
    u64 base = a.pages + (u64)blockIdx.y * a.page_count * a.page_bytes + offset;
    for (u32 i = 0; i < a.count; i++) {
        u32 from = exl2k_load(a.copies + 8ull * i), to = exl2k_load(a.copies + 8ull * i + 4);
        exl2k_store4(base + (u64)to * a.page_bytes, exl2k_load4(base + (u64)from * a.page_bytes));
    }
}

EXL2K_FN void exl2k_copy_row(u64 to, u64 from, u32 bytes)
{
    for (u32 i = threadIdx.x * 16; i < bytes; i += EXL2K_COPY_THREADS * 16) {
        exl2k_store4(to + i, exl2k_load4(from + i));
    }
}

/* Gathers the inputs of one row that wants logits, and its sums of squares. */
extern "C" __global__ void __launch_bounds__(EXL2K_COPY_THREADS) exl2k_head_rows(exl2k_head_rows_args a)
{
    u64 row = blockIdx.x;
    exl2k_dependency_release();
    exl2k_dependency_wait();
    if (row >= exl2k_load(a.rows_at)) {
        return;
    }
    u64 source = exl2k_load(a.samplings + row * sizeof(exl2k_sampling));
    exl2k_copy_row(a.out + row * a.row_bytes, a.x + source * a.row_bytes, a.row_bytes);
    exl2k_copy_row(a.now_out + row * a.slots_bytes, a.sums_now + source * a.slots_bytes, a.slots_bytes);
    exl2k_copy_row(a.before_out + row * a.slots_bytes, a.sums_before + source * a.slots_bytes, a.slots_bytes);
}
