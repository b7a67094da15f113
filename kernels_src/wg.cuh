/* wg.cuh: products by warpgroups (wgmma), which only sm_90a has: 128 threads multiply 64 rows of A, in their registers,
   by a tile of B in shared memory.
   takes: base.cuh.
   gives: exl2k_wg_tile, exl2k_wg_rows; exl2k_wg_begin, _commit, _wait, _hold; exl2k_wg_multiply, _multiply_tiles;
          exl2k_wg_product; exl2k_copy_whole; exl2k_stmatrix4; exl2k_copied_arrive, exl2k_async_fence,
          exl2k_registers_less, _more.

   A product is asynchronous: between exl2k_wg_begin and the wait for its group nothing may touch its registers, and
   after the wait exl2k_wg_hold must name its sums, or the compiler may read them before.

   Tiles of B have lines of 128 bytes; piece p (16 bytes) of line i lies at place p ^ (i % 8). A tile begins at a
   multiple of 1,024 bytes. */
#ifndef EXL2K_WG_CUH
#define EXL2K_WG_CUH

#include "base.cuh"

/* Descriptor of a tile whose lines are B's columns, 64 elements of k each. The next 16 elements are 2 units on. */
EXL2K_FN u64 exl2k_wg_tile(u32 at) { return (1ull << 62) | (64ull << 32) | (1ull << 16) | (at & 0x3FFFFu) >> 4; }

/* Descriptor of tiles whose lines are rows k of B; a tile has 64 columns and lies `apart` bytes from the next one. The
   next 16 rows are 128 units on. */
EXL2K_FN u64 exl2k_wg_rows(u32 at, u32 apart)
{
    return (1ull << 62) | (64ull << 32) | ((u64)(apart >> 4) << 16) | (at & 0x3FFFFu) >> 4;
}

EXL2K_FN void exl2k_wg_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
EXL2K_FN void exl2k_wg_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Waits until at most PENDING groups are unfinished. */
template <u32 PENDING> EXL2K_FN void exl2k_wg_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <u32 N> EXL2K_FN void exl2k_wg_hold(f32 (&d)[N][4])
{
#pragma unroll
    for (u32 n = 0; n < N; n++) {
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
    }
}

#define EXL2K_WG_4(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
#define EXL2K_WG_16(d) EXL2K_WG_4((d)[0]), EXL2K_WG_4((d)[1]), EXL2K_WG_4((d)[2]), EXL2K_WG_4((d)[3])

#define EXL2K_WG_64 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

/* d = a b (first) or d += a b, with 16 elements of k, and 32, 64 or 128 columns. Rows: B's tiles hold rows of B, see
   exl2k_wg_rows. Lane 4g + t of warp w has rows 16w + g and 16w + g + 8, as in exl2k_mma. */
template <bool ROWS> EXL2K_FN void exl2k_wg_multiply(f32 (&d)[4][4], const u32 a[4], u64 b, bool first)
{
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, "
                 "p, "
                 "1, 1, %22;\n}"
                 : EXL2K_WG_16(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)first), "n"(ROWS ? 1 : 0) : "memory");
}

template <bool ROWS> EXL2K_FN void exl2k_wg_multiply(f32 (&d)[8][4], const u32 a[4], u64 b, bool first)
{
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)first), "n"(ROWS ? 1 : 0) : "memory");
}

template <bool ROWS> EXL2K_FN void exl2k_wg_multiply(f32 (&d)[16][4], const u32 a[4], u64 b, bool first)
{
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 EXL2K_WG_64 ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4), EXL2K_WG_16(d + 8), EXL2K_WG_16(d + 12)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)first), "n"(ROWS ? 1 : 0) : "memory");
}

/* d += a b with 16 elements of k and 128 columns, where A's tile lies in shared memory, too: its lines are 64 rows of A
   (exl2k_wg_tile). */
EXL2K_FN void exl2k_wg_multiply_tiles(f32 (&d)[16][4], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 " EXL2K_WG_64 ", %64, %65, 1, 1, 1, 0, 0;"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4), EXL2K_WG_16(d + 8), EXL2K_WG_16(d + 12)
                 : "l"(a), "l"(b) : "memory");
}

/* d = a b, or d += a b if `adds` is not 0, with 16 elements of k, 64 rows and 128 or 64 columns; a and b are
   descriptors. */
EXL2K_FN void exl2k_wg_product(f32 (&d)[16][4], u64 a, u64 b, u32 adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 EXL2K_WG_64 ", %64, %65, p, 1, 1, 0, 0;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4), EXL2K_WG_16(d + 8), EXL2K_WG_16(d + 12)
                 : "l"(a), "l"(b), "r"(adds) : "memory");
}

EXL2K_FN void exl2k_wg_product(f32 (&d)[8][4], u64 a, u64 b, u32 adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4)
                 : "l"(a), "l"(b), "r"(adds) : "memory");
}

#define EXL2K_WG_128 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
    "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
    "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, " \
    "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, " \
    "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
    "%119, %120, %121, %122, %123, %124, %125, %126, %127}"

/* The same with 256 columns. */
EXL2K_FN void exl2k_wg_product(f32 (&d)[32][4], u64 a, u64 b, u32 adds)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
                 EXL2K_WG_128 ", %128, %129, p, 1, 1, 0, 0;\n}"
                 : EXL2K_WG_16(d), EXL2K_WG_16(d + 4), EXL2K_WG_16(d + 8), EXL2K_WG_16(d + 12), EXL2K_WG_16(d + 16),
                   EXL2K_WG_16(d + 20), EXL2K_WG_16(d + 24), EXL2K_WG_16(d + 28)
                 : "l"(a), "l"(b), "r"(adds) : "memory");
}

/* Stores four 8 x 8 tiles of halves; lane l gives the address of row l % 8 of tile l / 8, as for exl2k_ldmatrix4. */
EXL2K_FN void exl2k_stmatrix4(u32 at, const u32 v[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

/* ---- warps that copy, and warps that multiply ---- */

/* One thread copies a contiguous range from global memory; `bytes` and both addresses are multiples of 16. */
EXL2K_FN void exl2k_copy_whole(u32 to, u64 from, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

/* Arrives when all copies that this thread has started (exl2k_copy16) have ended; the barrier counts it in advance. */
EXL2K_FN void exl2k_copied_arrive(u32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Between a thread's own stores or finished copies to shared memory and the barrier after which wgmma reads them. */
EXL2K_FN void exl2k_async_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* All warps of a warpgroup give registers back, or get more: `COUNT` are left, a multiple of 8. */
template <u32 COUNT> EXL2K_FN void exl2k_registers_less(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <u32 COUNT> EXL2K_FN void exl2k_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
