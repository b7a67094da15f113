/* attend_store.cu: K (rotated) and V of all rows of a pass into their pages.
   takes: attend_args.h.
   gives: exl2k_attend_store.
   owns:  nothing.
   next:  attend_prefill.cuh */
#include "attend.cuh"

extern "C" __global__ void __launch_bounds__(256) exl2k_attend_store(exl2k_attend_args a)
{
    u32 half = a.dim / 2;
    exl2k_dependency_wait();
    exl2k_dependency_release();
    uint4 row = exl2k_load4(a.rows + blockIdx.x * sizeof(exl2k_row)); /* token, position, sequence, flags */
    if (blockIdx.x >= exl2k_load(a.step) || (row.w & EXL2K_ROW_DONE)) {
        return;
    }
    u32 page = exl2k_load(exl2k_table_line(a, row.z) + row.y / EXL2K_PAGE_TOKENS * 4);
    for (u32 item = threadIdx.x; item < a.kv_heads * half; item += 256) {
        u32 head = item / half, i = item % half;
        u64 to = exl2k_page_of(a, page, head) + ((u64)(row.y % EXL2K_PAGE_TOKENS) * a.dim + i) * 2;
        u32 pair = exl2k_rope_pair(a, blockIdx.x, row.y, (a.heads + head) * a.dim, i);
        exl2k_store_u16(to, pair);
        exl2k_store_u16(to + half * 2, pair >> 16);
        to += exl2k_value_offset(a);
        exl2k_store_u16(to, exl2k_value(a, blockIdx.x, head, i));
        exl2k_store_u16(to + half * 2, exl2k_value(a, blockIdx.x, head, i + half));
    }
}
