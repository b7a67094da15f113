/* gemm_wg_job.cuh: of products of many rows by wgmma: the instruction, a CTA's shared memory, its tiles of the output.
   takes: base.cuh, gemm_wg_args.h, wg.cuh.
   gives: exl2k_wgmma; exl2k_wg_shared, exl2k_wg_place_of, exl2k_wg_sync; exl2k_wg_item_of, exl2k_wg_job_of, exl2k_wg_works.
   owns:  nothing; included by gemm_wg_out.cuh. */
#ifndef EXL2K_GEMM_WG_JOB_CUH
#define EXL2K_GEMM_WG_JOB_CUH

#include "base.cuh"
#include "gemm_wg_args.h"
#include "wg.cuh"

#if __CUDA_ARCH__ == 900

/* ---- wgmma ---- */

#define EXL2K_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                    "+f"(d[i + 6]), "+f"(d[i + 7])
#define EXL2K_D32(i) EXL2K_D8(i), EXL2K_D8(i + 8), EXL2K_D8(i + 16), EXL2K_D8(i + 24)
#define EXL2K_D0_TO_15 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define EXL2K_D0_TO_31 EXL2K_D0_TO_15 \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EXL2K_D32_TO_63 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EXL2K_D64_TO_127 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EXL2K_A4 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b)
/* A product of n rows up to its sums, and after its operand A. low: operand with the low word of the descriptor. */
#define EXL2K_WGMMA(n, low) \
    "{\n.reg .b64 b;\nmov.b64 b, {%" #low ", 0x80000020};\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {"
#define EXL2K_WGMMA_END ", b, 1, 1, 1, 0;\n}"

/* Starts d[64 x N] += a[64 x 16] b[16 x N]. Lane 4 g + t of warp w has in d[4 i + e]: column 16 w + g + 8 (e / 2), row
   8 i + 2 t + e % 2. b: descriptor of the inputs. */
template <u32 N> EXL2K_FN void exl2k_wgmma(f32 *d, const u32 a[4], u32 b)
{
    if constexpr (N == 32) {
        asm volatile(EXL2K_WGMMA(32, 20) EXL2K_D0_TO_15
                     "}, {%16, %17, %18, %19}" EXL2K_WGMMA_END : EXL2K_D8(0), EXL2K_D8(8) : EXL2K_A4);
    } else if constexpr (N == 64) {
        asm volatile(EXL2K_WGMMA(64, 36) EXL2K_D0_TO_31
                     "}, {%32, %33, %34, %35}" EXL2K_WGMMA_END : EXL2K_D32(0) : EXL2K_A4);
    } else if constexpr (N == 128) {
        asm volatile(EXL2K_WGMMA(128, 68) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 "}, {%64, %65, %66, %67}" EXL2K_WGMMA_END
                     : EXL2K_D32(0), EXL2K_D32(32) : EXL2K_A4);
    } else {
        asm volatile(EXL2K_WGMMA(256, 132) EXL2K_D0_TO_31
                     EXL2K_D32_TO_63 EXL2K_D64_TO_127 "}, {%128, %129, %130, %131}" EXL2K_WGMMA_END
                     : EXL2K_D32(0), EXL2K_D32(32), EXL2K_D32(64), EXL2K_D32(96) : EXL2K_A4);
    }
}

/* ---- a CTA's shared memory ---- */

/* Stages hold two halves of N rows. Halves are numbered from the first of the kernel on; a tile begins with an even
   number. Slots hold a chunk of four strips, with its table entry, for a warp group. */
typedef struct exl2k_wg_shared {
    u32 base;    /* barriers: u64 [16] stages full, [16] empty; then for each warp group [8] slots full, [8] empty; then
                    u32: this CTA is the last split of its tile */
    u32 full;    /* barriers of the slots of this thread's warp group */
    u32 inputs;  /* stages */
    u32 weights; /* slots of this thread's warp group */
    u32 exchange; /* results on their way between the groups */
} exl2k_wg_shared;

enum { EXL2K_WG_EMPTY = 128, EXL2K_WG_SLOT_BARRIERS = 256, EXL2K_WG_SLOT_EMPTY = 64, EXL2K_WG_LAST = 512 };

/* group: which warp group's weights. */
template <u32 N> EXL2K_FN exl2k_wg_shared exl2k_wg_shared_of(u32 base, u32 group)
{
    constexpr u32 weights = EXL2K_GEMM_BARRIERS + N * 128 * EXL2K_WG_STAGES(N);
    constexpr u32 ring = EXL2K_WG_SLOT_BYTES(EXL2K_AFFINE) * EXL2K_WG_SLOTS(N, EXL2K_AFFINE);
    exl2k_wg_shared s = { base, base + EXL2K_WG_SLOT_BARRIERS + group * 128, base + EXL2K_GEMM_BARRIERS,
                          base + weights + group * ring, base + weights + 2 * ring };
    return s;
}

/* LORAS of products that add nothing. */
typedef struct exl2k_wg_no_loras {
} exl2k_wg_no_loras;

template <class LORAS>
EXL2K_FN constexpr bool exl2k_wg_adapts(void) { return sizeof(LORAS) != sizeof(exl2k_wg_no_loras); }

/* A stage or slot, from the number of stages or slots before it: its barrier and the parity of its round. */
typedef struct exl2k_wg_place {
    u32 index, parity;
} exl2k_wg_place;

template <u32 COUNT> EXL2K_FN exl2k_wg_place exl2k_wg_place_of(u32 number)
{
    exl2k_wg_place p = { number % COUNT, number / COUNT & 1 };
    return p;
}

/* A barrier of the two warp groups that multiply. */
EXL2K_FN void exl2k_wg_sync(void) { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* ---- tiles of the output ---- */

/* One tile of the output, and one split of K, for one warp group. */
typedef struct exl2k_wg_job {
    u32 part, strip; /* of warp 0 of the group */
    u32 row;         /* first row */
    u32 low, high;   /* the records that begin in these halves */
    u32 end;         /* the tile's inputs are the halves [low, end) */
} exl2k_wg_job;

/* What a CTA computes: a tile, or one of the two parts of its halves (gemm_wg_args.h, CUT). */
enum { EXL2K_WG_WHOLE, EXL2K_WG_FIRST, EXL2K_WG_SECOND };

typedef struct exl2k_wg_item {
    u32 work; /* tile * splits + split */
    u32 part; /* EXL2K_WG_WHOLE, .. */
} exl2k_wg_item;

EXL2K_FN u32 exl2k_wg_works(const exl2k_gemm_args &a) { return a.row_tiles * a.column_tiles * a.splits; }

/* Numbers of this CTA's items: the first one, and from one to the next. Tiles of few rows are never cut, and their
   items have the numbers of their works, as they have few registers. */
template <u32 N> EXL2K_FN u32 exl2k_wg_item_first(void) { return N >= 128 ? 0 : blockIdx.x; }
template <u32 N> EXL2K_FN u32 exl2k_wg_item_step(void) { return N >= 128 ? 1 : gridDim.x; }

/* Item i of this CTA; its work is not below exl2k_wg_works after the last one. */
template <u32 N> EXL2K_FN exl2k_wg_item exl2k_wg_item_of(const exl2k_gemm_args &a, u32 i)
{
    exl2k_wg_item item = { N >= 128 ? blockIdx.x + i * gridDim.x : i, EXL2K_WG_WHOLE };
    if (N >= 128 && a.cut) {
        u32 works = exl2k_wg_works(a), turns = works / gridDim.x, whole = turns * gridDim.x, rest = works - whole;
        if (blockIdx.x < rest) { /* the first part of a tile, then whole ones */
            item.work = i == 0 ? whole + blockIdx.x : i <= turns ? item.work - gridDim.x : works;
            item.part = i == 0 ? EXL2K_WG_FIRST : EXL2K_WG_WHOLE;
        } else if (i >= turns) { /* whole tiles, then second parts of tiles */
            item.work = whole + blockIdx.x - rest + (i - turns) * (gridDim.x - rest);
            item.part = EXL2K_WG_SECOND;
        }
    }
    return item;
}

template <u32 N> EXL2K_FN exl2k_wg_job exl2k_wg_job_of(const exl2k_gemm_args &a, exl2k_wg_item item, u32 group)
{
    const exl2k_matrix &m = a.matrix;
    u32 work = item.work, tile = work / a.splits, column = tile / a.row_tiles, halves = (m.rows + 31) / 32;
    exl2k_wg_job p = { 0, 0, tile % a.row_tiles * N, work % a.splits * a.halves, 0, 0 };
    p.high = exl2k_min(p.low + a.halves, halves);
    p.low = item.part == EXL2K_WG_SECOND ? a.cut : p.low;
    p.high = item.part == EXL2K_WG_FIRST ? a.cut : p.high;
    p.end = exl2k_min(p.high + 1, halves);
    if (a.kind == EXL2K_GEMM_ACT) { /* group 0 has four strips of gate, group 1 the same strips of up */
        p.part = group;
        p.strip = column * 4;
        return p;
    }
    /* Columns of tiles follow one another part by part; find the tile's part. */
    for (u32 i = 0; i + 1 < EXL2K_PARTS_MAX; i++) {
        u32 tiles = (m.part[i].strips + 7) / 8;
        if (p.part == i && i + 1 < m.parts && column >= tiles) {
            column -= tiles;
            p.part++;
        }
    }
    p.strip = column * 8 + group * 4;
    return p;
}

/* Whether it is the last split of its tile, which adds what adapters add. */
EXL2K_FN bool exl2k_wg_is_last(const exl2k_gemm_args &a, u32 work) { return work % a.splits + 1 == a.splits; }

#endif
#endif
